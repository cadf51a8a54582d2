// SPDX-License-Identifier: MPL-2.0
//! The tests of the core that need more than one of its modules, in one program. Nothing here needs GStreamer.

#[path = "common/cases.rs"]
mod cases;
mod common;
#[path = "common/kserve_server.rs"]
mod kserve_server;

mod gpu_boxes;
mod gpu_maps;
mod gpu_motion;
mod gpu_pixels;
mod gpu_privacy;
mod half;
mod kserve;
mod nms;
mod preprocess_gold;
mod tensorrt_build;
mod tensorrt_gpu;
mod tensorrt_rtx;
mod verify;
