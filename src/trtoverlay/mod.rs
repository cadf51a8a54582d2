// SPDX-License-Identifier: MPL-2.0
//! `trtoverlay`: draws the objects of a frame's metas on it, in system memory and in CUDA memory.
//!
//! The metas may be those of trtnms or of any other element: GstVideoRegionOfInterestMeta, and with GStreamer 1.24
//! GstAnalyticsODMtd. So a tracker or another element that changes them may come before it. The known properties of an
//! object are written at its box, like `person 87% #12`: class, confidence, and the id that a tracker gave it.
//!
//! No frame is dropped. One whose picture cannot be written passes unchanged, with one warning. But where something is to be
//! hidden by `blur`, `pixelate` or `mask`, no frame passes that shows it: what cannot be hidden is an error.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms draw=false ! queue ! trtoverlay line-width=4 ! videoconvert ! autovideosink
//! ```

mod imp;
mod privacy;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtOverlay(ObjectSubclass<imp::TrtOverlay>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtoverlay", gst::Rank::NONE, TrtOverlay::static_type())
}
