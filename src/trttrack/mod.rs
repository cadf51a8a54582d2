// SPDX-License-Identifier: MPL-2.0
//! `trttrack`: gives the objects of metas ids that stay the same from frame to frame.
//!
//! The metas may be those of trtnms or of any other element: GstVideoRegionOfInterestMeta, and with GStreamer 1.24
//! GstAnalyticsODMtd. Only metas are read and written, so frames may be in any memory, and a picture is never mapped.
//!
//! | | |
//! |---|---|
//! | region | a parameter `object_id` with the int `id` |
//! | GstAnalytics | a GstAnalyticsTrackingMtd that the object relates to |
//! | element message `trt-detections`, with `post-messages=true` | `track-id` of each object that has one |
//!
//! A new object has no id until it is seen twice. Ids count from 1, and none is given twice until the element stops. A
//! seek, a flush, and another stream or size end all tracks.
//!
//! `tracker=botsort`, `deepocsort` and `boosttrack` compare the vectors of objects too, so the model that makes them comes before
//! trttrack.
//!
//! On frames that trtinfer skips (`interval`), the boxes that trtnms holds are moved to the predicted boxes of their
//! objects.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx interval=2 ! trtnms draw=false score-threshold=0.1 ! trttrack ! trtoverlay ! videoconvert ! autovideosink
//! ```

mod imp;
mod settings;
mod vectors;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtTrack(ObjectSubclass<imp::TrtTrack>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trttrack", gst::Rank::NONE, TrtTrack::static_type())
}
