// SPDX-License-Identifier: MPL-2.0
//! `trtnms`: turns a model's outputs into boxes on the frame.
//!
//! It decodes the head, drops the repeated boxes, maps the others to pixels of the frame, attaches them to the buffer
//! as metas that other elements and applications read (see [`meta::detection`](crate::gst::meta::detection)), and draws
//! them.
//!
//! Other elements may be between trtpreprocess and trtnms. Queues, converters and elements that only scale the picture
//! are followed: boxes are in pixels of the frame that trtnms gets. Where the picture is cropped, flipped, rotated,
//! given borders or composed with others, the pipeline ends with an error that names the element; such elements belong
//! before trtpreprocess or behind trtnms.
//!
//! A detection, wherever it is written:
//!
//! | | bus message, JSON lines | ROI meta | GstAnalyticsODMtd |
//! |---|---|---|---|
//! | class | `label`, `class-id` | type; `label_id` in `detection` | type |
//! | confidence, 0..1 | `confidence` | `confidence` | confidence |
//! | box | `x`, `y`, `w`, `h`: pixels of the frame, as floats | whole pixels that cover it; `x_min`, `y_min`, `x_max`, `y_max`: 0..1 of the frame | whole pixels that cover it |
//! | of an earlier frame | `held` of the frame | `held` | |
//!
//! With `post-messages=true` there is an element message `trt-detections` for each frame that has detections or could have:
//! `stream-time` (ns), `frame` (counted from 0, over all frames), `width`, `height`, `held`, `count`, and `detections`,
//! an array of structures, which is left out where the count is 0.
//!
//! Frames that trtinfer skips (`interval`) repeat the last detections and are `held`, unless `hold-detections=false`. Where there
//! are none to repeat, or scores cannot be read, the frame is marked: see [`meta::unseen`](crate::gst::meta::unseen).
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms classes=person,car class-thresholds=car=0.5 ! videoconvert ! autovideosink
//! ```

mod drawing;
mod imp;
mod objects;
mod settings;
mod spans;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtNms(ObjectSubclass<imp::TrtNms>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtnms", gst::Rank::NONE, TrtNms::static_type())
}
