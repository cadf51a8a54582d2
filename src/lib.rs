// SPDX-License-Identifier: MPL-2.0
//! GStreamer elements that detect objects in video: `trtpreprocess ! trtinfer ! trtnms`; and the same without a pipeline.
//!
//! Applications use the modules below: [`session`] runs models and finds objects in frames, the others are what it takes and
//! gives. Programs with pipelines call [`plugin_register_static`], or let GStreamer load the plugin.
//!
//! # Layout
//!
//! The rest is private. Each line uses only those above it.
//!
//! * `core`: errors, tensors, memory, CUDA.
//! * `image`: frames, the tensors made of them, and drawing. `model`: the description in a model file.
//! * `track`: ids of objects that stay the same from frame to frame. `analytics`: counts in zones and across lines.
//!   `publish`: results as JSON, to files and brokers.
//! * `heads`: how a model writes its results, one file each. `postprocess`: from a head's rows to objects.
//! * `backends`: what runs models: TensorRT, ONNX Runtime, or rten on the CPU.
//! * [`session`]: the whole chain without a pipeline. The crate `gsttrt-capi` is the same for C.
//! * `gst`: GStreamer's side: metas, memory, contexts, statistics.
//! * `trtpreprocess`, `trtinfer`, `trtnms`, `trttrack`, `trtanalytics`, `trtoverlay`, `trtpublish`: the elements, thin:
//!   settings, caps, one call per frame.

// Some of it is for the elements alone, and some for tests.
#![cfg_attr(not(all(feature = "gstreamer", feature = "internals")), allow(dead_code, unused_imports))]

/// All modules, under the names that the crate itself uses. They are public only to this workspace.
#[path = ""]
mod rooms {
    pub mod analytics;
    pub mod backends;
    pub mod core;
    #[cfg(feature = "gstreamer")]
    pub mod gst;
    pub mod heads;
    pub mod image;
    pub mod model;
    pub mod postprocess;
    pub mod publish;
    pub mod session;
    pub mod track;
    #[cfg(feature = "gstreamer")]
    pub mod trtanalytics;
    #[cfg(feature = "gstreamer")]
    pub mod trtinfer;
    #[cfg(feature = "gstreamer")]
    pub mod trtnms;
    #[cfg(feature = "gstreamer")]
    pub mod trtoverlay;
    #[cfg(feature = "gstreamer")]
    pub mod trtpreprocess;
    #[cfg(feature = "gstreamer")]
    pub mod trtpublish;
    #[cfg(feature = "gstreamer")]
    pub mod trttrack;
}
#[cfg(test)]
#[path = "test/fakes.rs"]
mod fakes;
mod onnx;
#[cfg(feature = "gstreamer")]
mod plugin;
#[cfg(test)]
mod test;

#[cfg(feature = "gstreamer")]
pub use plugin::plugin_desc::plugin_register_static;
pub use rooms::session;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use rooms::*;
#[cfg(not(feature = "internals"))]
use rooms::*;

/// Errors: what failed, why, and what to do.
pub mod error {
    pub use crate::core::error::{Error, ErrorKind, Result};
}

/// Tensors: a description, and bytes on the host or on a GPU.
pub mod tensor {
    pub use crate::core::dtype::{DType, Dims, Element, TensorDesc};
    pub use crate::core::tensor::{Tensor, Tensors};
}

/// Memory on the host and on a GPU, and pools of it.
pub mod memory {
    pub use crate::core::memory::{Buffer, Limits, MemoryKind, Pool, PoolStats, PooledBuffer};
}

/// Tensors of other frameworks (PyTorch, CuPy, NumPy, JAX) without a copy, by [DLPack](https://dmlc.github.io/dlpack).
pub mod dlpack {
    pub use crate::core::dlpack::{Consumer, DlManagedVersioned, Managed, delete, export, export_versioned, import};
}

/// Frames in host memory and in GPU memory.
pub mod frame {
    pub use crate::image::device::{DevicePlane, DevicePlanes};
    pub use crate::image::frame::{Colorimetry, Frame, Matrix, PixelFormat, Plane};
    pub use crate::image::geometry::BBox;
    pub use crate::image::masks::Mask;
    pub use crate::image::rotated::RotatedBox;
}
