// SPDX-License-Identifier: MPL-2.0
//! `trttrack`: gives the objects of metas ids that stay the same from frame to frame.
//!
//! The metas may be those of trtnms or of any other element: GstVideoRegionOfInterestMeta, and with GStreamer 1.24 GstAnalyticsODMtd. Only
//! metas are read and written, so frames may be in any memory, and a picture is never mapped.
//!
//! | | |
//! |---|---|
//! | region | a parameter `object_id` with the int `id` |
//! | GstAnalytics | a GstAnalyticsTrackingMtd that the object relates to |
//! | element message `trt-detections`, with `post-messages=true` | `track-id` of each object that has one |
//!
//! A new object has no id until it is seen twice. Ids count from 1, and none is given twice until the element stops. A seek, a
//! flush, and another stream or size end all tracks.
//!
//! On frames that trtinfer skips (`interval`), the boxes that trtnms holds are moved to the predicted boxes of their objects.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx interval=2 ! trtnms draw=false score-threshold=0.1 ! trttrack ! trtoverlay ! videoconvert ! autovideosink
//! ```

mod imp;
mod settings;

use gst::glib;
use gst::prelude::*;

use crate::track::TrackerKind;

glib::wrapper! {
    pub struct TrtTrack(ObjectSubclass<imp::TrtTrack>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// The tracking algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtTracker")]
pub enum TrackAlgorithm {
    #[default]
    #[enum_value(name = "ByteTrack: detections of high scores first, then those of low scores", nick = "bytetrack")]
    ByteTrack,
    #[enum_value(name = "BoT-SORT without pixels: ByteTrack with a filter of width and height", nick = "botsort-iou")]
    BotSortIou,
    #[enum_value(name = "OC-SORT: by the direction and the place in which objects were seen", nick = "ocsort")]
    OcSort,
    #[enum_value(name = "The largest overlaps with the last boxes first", nick = "iou")]
    Iou,
}

impl From<TrackAlgorithm> for TrackerKind {
    fn from(value: TrackAlgorithm) -> Self {
        match value {
            TrackAlgorithm::ByteTrack => TrackerKind::ByteTrack,
            TrackAlgorithm::BotSortIou => TrackerKind::BotSortIou,
            TrackAlgorithm::OcSort => TrackerKind::OcSort,
            TrackAlgorithm::Iou => TrackerKind::Iou,
        }
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trttrack", gst::Rank::NONE, TrtTrack::static_type())
}
