// SPDX-License-Identifier: MPL-2.0
//! The tests of the core that need more than one of its modules, in one program. Nothing here needs GStreamer.

#[path = "common/cases.rs"]
mod cases;
mod common;
#[path = "../src/test/fakes.rs"]
#[allow(dead_code)] // the unit tests use more of it
mod fakes;
#[path = "common/kserve_server.rs"]
mod kserve_server;
#[path = "common/server_memory.rs"]
mod server_memory;

mod gpu_boxes;
mod gpu_gallery;
mod gpu_maps;
mod gpu_motion;
mod gpu_pixels;
mod gpu_privacy;
mod half;
mod kserve;
mod kserve_cuda;
mod kserve_gpu;
mod nms;
mod preprocess_gold;
mod tensorrt_build;
mod tensorrt_gpu;
mod tensorrt_rtx;
mod verify;

// What the fakes take from the core.
use gsttrt_core::{cuda, error};

mod test {
    pub use crate::common::compiled::library;
    pub use crate::common::scratch;
}
