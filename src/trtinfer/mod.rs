// SPDX-License-Identifier: MPL-2.0
//! `trtinfer`: runs a model on the tensor that trtpreprocess made of each frame.
//!
//! The model's own description decides which tensor that is; it travels upstream in the caps field `tensor`. The outputs
//! are attached to the frame as a [`TensorMeta`](crate::gst::meta::tensor::TensorMeta) to trtnms.
//!
//! The caps need the size of the model's input. The description of an ONNX file is read while the element goes to
//! PAUSED. A TensorRT engine says what goes in and comes out only once it is deserialised: that is done in the background,
//! and what needs the caps waits for it. Everything else (building an engine, preparing to run it) is done in the background too,
//! with `progress` messages on the bus, and the first frame waits for it.
//!
//! `model-file` may be set at any time: the other model is loaded in the background and takes over between two frames. So do other
//! `input-values`, for which the model stays loaded.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx interval=2 ! trtnms ! videoconvert ! autovideosink
//! ```

mod auto_interval;
mod imp;
mod life;
mod loading;
mod messages;
mod model;
mod qos;
mod replacing;
mod settings;
mod sharing;
mod started;
#[cfg(test)]
mod tests;
mod trial;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtInfer(ObjectSubclass<imp::TrtInfer>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtinfer", gst::Rank::NONE, TrtInfer::static_type())
}
