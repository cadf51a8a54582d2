//! GStreamer elements that detect objects in video: `trtpreprocess ! trtinfer ! trtnms`.
//!
//! # Layout
//!
//! * [`error`]: what failed, why, and what to do; [`memory`]: buffers on the host and on GPUs, and pools of them; [`tensor`]:
//!   named arrays in such memory.
//! * [`dlpack`]: tensors to and from other frameworks.
//! * [`stats`]: what frames cost, noted where it happens.
//! * [`vision`]: the image side of detection, pure: preprocess, geometry, drawing. [`heads`]: what a model's outputs mean;
//!   [`postprocess`]: from these to results on the frame.
//! * [`cuda`]: the GPU: driver, kernels, GStreamer's CUDA.
//! * [`tensorrt`]: TensorRT, found at run time.
//! * [`model`]: what a model file says about itself; [`backend`]: what runs it.
//! * [`session`]: the elements' chain without a pipeline, for applications that have frames or tensors of their own;
//!   [`capi`]: the same for C; [`streaming`]: tensors that arrive in chunks, put together where they are wanted.
//! * [`meta`]: what the elements hang on buffers; [`video`]: the door between GStreamer's video and [`vision`].
//! * [`trtpreprocess`], [`trtinfer`], [`trtnms`]: the elements, thin: settings, caps, one call per frame.
//!
//! Arrows run one way: elements use everything, `session` all but elements and `video`, `backend`, `model` and `meta` use
//! `heads` and `vision`, and `vision` uses only `tensor` and `error`.

pub mod backend;
pub mod capi;
pub mod cuda;
pub mod dlpack;
pub mod error;
pub mod heads;
pub mod memory;
pub mod meta;
pub mod model;
mod onnx;
pub mod postprocess;
pub mod session;
pub mod stats;
pub mod streaming;
pub mod tensor;
pub mod tensorrt;
pub mod trtinfer;
pub mod trtnms;
pub mod trtpreprocess;
pub mod video;
pub mod vision;

fn plugin_init(plugin: &gst::Plugin) -> Result<(), gst::glib::BoolError> {
    trtpreprocess::register(plugin)?;
    trtinfer::register(plugin)?;
    trtnms::register(plugin)
}

gst::plugin_define!(
    trt,
    env!("CARGO_PKG_DESCRIPTION"),
    plugin_init,
    concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
    // GStreamer 1.22 knows the licence by this name.
    "MPL-2.0",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY"),
    env!("BUILD_REL_DATE")
);
