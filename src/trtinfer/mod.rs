// SPDX-License-Identifier: MPL-2.0
//! `trtinfer`: runs a model on the tensor that trtpreprocess made of each frame.
//!
//! The model's own description decides which tensor that is; it travels upstream in the caps field `tensor`. The outputs
//! are attached to the frame as a [`TensorMeta`](crate::gst::meta::tensor::TensorMeta) to trtnms.
//!
//! The file is read while the element goes to PAUSED, for the caps need the size of the input. Of an ONNX file only the description
//! is decoded then; the inputs and outputs of a TensorRT engine are known only once it is loaded onto the GPU, so it is deserialised
//! there, within the state change. All else (building an engine, preparing to run it) is done in another thread, with `progress` messages on
//! the bus, and the first frame waits for it.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx interval=2 ! trtnms ! videoconvert ! autovideosink
//! ```

mod imp;
mod loading;
mod messages;
mod settings;
mod sharing;
mod started;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtInfer(ObjectSubclass<imp::TrtInfer>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtinfer", gst::Rank::NONE, TrtInfer::static_type())
}
