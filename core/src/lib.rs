// SPDX-License-Identifier: MPL-2.0
//! Runs vision models with TensorRT or on the CPU, from frames to objects, without GStreamer.
//!
//! Applications use [`session`]; [`error`], [`tensor`], [`memory`], [`dlpack`] and [`frame`] are what it takes and gives.
//! The GStreamer elements of gst-plugin-trt, the C library and the program stand on the same crate.
//!
//! # Layout
//!
//! The other modules are for the crates of this workspace, and may change with each release. Each line uses only those
//! above it.
//!
//! * `error`, `tensor`, `memory`, `cuda`, `dlpack` and the other single files: what everything stands on.
//! * `image`: frames, the tensors made of them, and drawing. `onnx`: what is read of model files.
//! * `heads`: how a model writes its results, one file each. `track`: ids of objects that stay the same from frame to
//!   frame. `analytics`: counts in zones and across lines. `gallery`: names for vectors. `identity`: one id for the same object
//!   on several cameras.
//! * `model`: the description in a model file.
//! * `postprocess`: from a head's rows to objects.
//! * `backends`: what runs models: TensorRT, OpenVINO, ONNX Runtime, or rten on the CPU.
//! * [`session`]: the whole chain.

#[doc(hidden)]
pub mod analytics;
#[doc(hidden)]
pub mod backends;
#[doc(hidden)]
pub mod base64;
#[doc(hidden)]
pub mod counters;
#[doc(hidden)]
pub mod cuda;
#[doc(hidden)]
pub mod device;
pub mod dlpack;
#[doc(hidden)]
pub mod dtype;
#[doc(hidden)]
pub mod dylib;
pub mod error;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod gallery;
#[doc(hidden)]
pub mod heads;
#[doc(hidden)]
pub mod identity;
#[doc(hidden)]
pub mod image;
mod in_use;
#[doc(hidden)]
pub mod json;
mod literal;
pub mod memory;
#[doc(hidden)]
pub mod model;
mod npy;
mod onnx;
#[doc(hidden)]
pub mod options;
#[doc(hidden)]
pub mod postprocess;
#[doc(hidden)]
pub mod redact;
pub mod session;
pub mod tensor;
#[doc(hidden)]
pub mod track;
#[doc(hidden)]
pub mod vector;
#[doc(hidden)]
pub mod words;

#[cfg(test)]
#[path = "test/fakes.rs"]
#[allow(dead_code)] // the plugin uses more of it
mod fakes;
#[cfg(test)]
#[path = "../tests/common/onnx.rs"]
#[allow(dead_code)] // other tests use more of it
mod onnx_files;
#[cfg(test)]
#[path = "test/recorded.rs"]
mod recorded; // not in `test`, which other crates take as well
#[cfg(test)]
mod test;

/// Frames in host memory and in GPU memory.
pub mod frame {
    pub use crate::image::device::{DevicePlane, DevicePlanes};
    pub use crate::image::frame::{Colorimetry, Frame, Matrix, PixelFormat, Plane};
    pub use crate::image::geometry::BBox;
    pub use crate::image::masks::Mask;
    pub use crate::image::rotated::RotatedBox;
}
