// SPDX-License-Identifier: MPL-2.0
//! `trtanalytics`: counts the objects of metas in zones and across lines, by the ids that a tracker gave them.
//!
//! Zones, tripwires and directions are configured in JSON with the words of DL Streamer's gvaanalytics, or by a file
//! for DeepStream's nvdsanalytics. Only metas are read and written, so frames may be in any memory, and a picture is
//! never mapped.
//!
//! | | |
//! |---|---|
//! | element message `trt-event` | for each event: crossed, entered, left, dwelled, crowded, uncrowded, headed |
//! | `GstTrtEventMeta` of the frame | the same structures |
//! | `GstTrtZoneMeta` of the frame | zones and tripwires with their counts, for trtoverlay |
//! | parameter `analytics` of a region | the zones that the object is in, the tripwires that it has just crossed, its direction |
//!
//! ```text
//! gst-launch-1.0 -m videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms draw=false ! trttrack ! trtanalytics config='{"tripwires": [{"id": "door", "points": [[0.5, 0], [0.5, 1]]}]}' ! trtoverlay ! videoconvert ! autovideosink
//! ```

mod counts;
mod imp;
mod known;
mod settings;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::analytics::EvaluationPoint;

glib::wrapper! {
    pub struct TrtAnalytics(ObjectSubclass<imp::TrtAnalytics>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// The point of an object that is in a zone or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtEvaluationPoint")]
pub enum ObjectPoint {
    #[default]
    #[enum_value(name = "The middle of the box's lower edge", nick = "bottom-center")]
    BottomCenter,
    #[enum_value(name = "The middle of the box", nick = "center")]
    Center,
}

impl From<ObjectPoint> for EvaluationPoint {
    fn from(value: ObjectPoint) -> Self {
        match value {
            ObjectPoint::BottomCenter => EvaluationPoint::BottomCenter,
            ObjectPoint::Center => EvaluationPoint::Center,
        }
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtanalytics", gst::Rank::NONE, TrtAnalytics::static_type())
}
