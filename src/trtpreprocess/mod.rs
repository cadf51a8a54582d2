// SPDX-License-Identifier: MPL-2.0
//! `trtpreprocess`: makes the model's input tensor from each frame.
//!
//! The frame itself passes unchanged; the tensor is attached to it as a
//! [`TensorMeta`](crate::gst::meta::tensor::TensorMeta). Size, element type, colours, normalisation and letterbox come
//! from the trtinfer downstream through the caps field `tensor`; each can be overridden by a property.
//!
//! ```text
//! gst-launch-1.0 filesrc location=street.mp4 ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms ! videoconvert ! autovideosink
//! ```

mod clips;
mod counts;
mod effect;
mod imp;
mod motion;
mod objects;
mod overrides;
mod settings;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtPreprocess(ObjectSubclass<imp::TrtPreprocess>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtpreprocess", gst::Rank::NONE, TrtPreprocess::static_type())
}
