//! `trtnms`: turns a model's outputs into boxes on the frame.
//!
//! It decodes the head, drops the repeated boxes, maps the others to pixels of the frame, hangs them on the buffer as metas
//! that other elements and applications read (see [`meta::detection`](crate::gst::meta::detection)), and draws them.
//!
//! With `post-messages=true` there is an element message `trt-detections` for each frame that a model has seen: `pts` (ns),
//! `frame` (counted from 0, over all frames), `width`, `height`, and `detections`, an array of structures with `label`,
//! `class-id`, `confidence`, `x`, `y`, `w` and `h` in pixels of the frame.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms classes=person,car class-thresholds=car=0.5 ! videoconvert ! autovideosink
//! ```

mod drawing;
mod imp;
mod painter;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtNms(ObjectSubclass<imp::TrtNms>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtnms", gst::Rank::NONE, TrtNms::static_type())
}
