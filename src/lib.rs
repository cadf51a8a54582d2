//! GStreamer elements that detect objects in video: `trtpreprocess ! trtinfer ! trtnms`.
//!
//! # Layout
//!
//! Each line uses only those above it.
//!
//! * [`core`]: errors, tensors, memory, CUDA.
//! * [`image`]: frames, the tensors made of them, and drawing. [`model`]: what a model file says about itself.
//! * [`heads`]: how a model writes its results, one file each. [`postprocess`]: from a head's rows to objects.
//! * [`backends`]: what runs models: TensorRT, or rten on the CPU.
//! * [`session`]: the whole chain without a pipeline. The crate `gsttrt-capi` is the same for C.
//! * [`gst`]: GStreamer's side: metas, memory, contexts, statistics.
//! * [`trtpreprocess`], [`trtinfer`], [`trtnms`], [`trtoverlay`]: the elements, thin: settings, caps, one call per frame.

// Some of the core is for the elements alone.
#![cfg_attr(not(feature = "gstreamer"), allow(dead_code, unused_imports))]

pub mod backends;
pub mod core;
#[cfg(feature = "gstreamer")]
pub mod gst;
pub mod heads;
pub mod image;
pub mod model;
mod onnx;
#[cfg(feature = "gstreamer")]
mod plugin;
pub mod postprocess;
pub mod session;
#[cfg(test)]
mod test;
#[cfg(feature = "gstreamer")]
pub mod trtinfer;
#[cfg(feature = "gstreamer")]
pub mod trtnms;
#[cfg(feature = "gstreamer")]
pub mod trtoverlay;
#[cfg(feature = "gstreamer")]
pub mod trtpreprocess;

#[cfg(feature = "gstreamer")]
pub use plugin::plugin_desc::plugin_register_static;
