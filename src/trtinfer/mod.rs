//! `trtinfer`: runs a model on the tensor that trtpreprocess made of each frame.
//!
//! The model's own description decides which tensor that is; it travels upstream in the caps field `tensor`. The outputs
//! ride on the frame as a [`TensorMeta`](crate::meta::tensor::TensorMeta) to trtnms.
//!
//! Only the description is read while the element starts. The model itself is loaded beside, with `progress` messages on the
//! bus, and the first frame waits for it.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx interval=2 ! trtnms ! videoconvert ! autovideosink
//! ```

mod imp;
mod opening;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtInfer(ObjectSubclass<imp::TrtInfer>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtinfer", gst::Rank::NONE, TrtInfer::static_type())
}
