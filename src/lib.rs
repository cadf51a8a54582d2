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
//! * [`session`]: the whole chain without a pipeline; [`capi`]: the same for C.
//! * [`gst`]: GStreamer's side: metas, memory, contexts, statistics.
//! * [`trtpreprocess`], [`trtinfer`], [`trtnms`], [`trtoverlay`]: the elements, thin: settings, caps, one call per frame.

pub mod backends;
pub mod capi;
pub mod core;
pub mod gst;
pub mod heads;
pub mod image;
pub mod model;
mod onnx;
pub mod postprocess;
pub mod session;
#[cfg(test)]
mod test;
pub mod trtinfer;
pub mod trtnms;
pub mod trtoverlay;
pub mod trtpreprocess;

fn plugin_init(plugin: &::gst::Plugin) -> Result<(), ::gst::glib::BoolError> {
    trtpreprocess::register(plugin)?;
    trtinfer::register(plugin)?;
    trtnms::register(plugin)?;
    trtoverlay::register(plugin)
}

::gst::plugin_define!(
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
