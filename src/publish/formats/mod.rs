// SPDX-License-Identifier: MPL-2.0
//! Records as JSON in one line, a file for each format.

mod coco;
mod deepstream;
mod dlstreamer;
pub mod gst_trt;

#[cfg(feature = "gstreamer")]
use gst::glib;
use serde_json::Value;

use super::record::{FrameRecord, PublishSource, Record};

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "gstreamer", derive(glib::Enum), enum_type(name = "GstTrtPublishFormat"))]
pub enum PublishFormat {
    #[default]
    #[cfg_attr(
        feature = "gstreamer",
        enum_value(name = "All results, under the names that element messages have", nick = "gst-trt")
    )]
    GstTrt,
    #[cfg_attr(feature = "gstreamer", enum_value(name = "As DL Streamer's gvametaconvert", nick = "dlstreamer"))]
    DlStreamer,
    #[cfg_attr(
        feature = "gstreamer",
        enum_value(name = "As DeepStream's nvmsgconv with payload-type=1", nick = "deepstream-minimal")
    )]
    DeepStreamMinimal,
    #[cfg_attr(feature = "gstreamer", enum_value(name = "Arrays of results as pycocotools reads them", nick = "coco"))]
    Coco,
}

/// The message of a record. Formats other than `gst-trt` have frames alone.
pub fn message(format: PublishFormat, record: &Record, source: &PublishSource) -> String {
    let of_frame: fn(&FrameRecord, &PublishSource) -> Value = match format {
        PublishFormat::GstTrt => gst_trt::frame,
        PublishFormat::DlStreamer => dlstreamer::frame,
        PublishFormat::DeepStreamMinimal => deepstream::frame,
        PublishFormat::Coco => coco::frame,
    };
    match record {
        Record::Frame(frame) => of_frame(frame, source),
        Record::Event { times, number, event } => gst_trt::event(times, *number, event, source),
        Record::Track(track) => gst_trt::track(track, source),
    }
    .to_string()
}

/// With so many digits behind the point.
fn round(value: impl Into<f64>, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value.into() * factor).round() / factor
}

fn rounded(values: &[f32], digits: i32) -> Value {
    values.iter().map(|&value| round(value, digits)).collect()
}

#[cfg(test)]
mod tests;
