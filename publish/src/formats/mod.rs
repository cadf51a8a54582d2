// SPDX-License-Identifier: MPL-2.0
//! Records as JSON in one line, a file for each format.

mod coco;
mod deepstream;
mod dlstreamer;
pub mod gst_trt;

use gsttrt_core::options::choices;
use serde_json::Value;

use super::record::{FrameRecord, PublishSource, Record};

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishFormat {
    #[default]
    GstTrt,
    DlStreamer,
    DeepStreamMinimal,
    Coco,
}

choices! {
    PublishFormat, "GstTrtPublishFormat":
    PublishFormat::GstTrt => "gst-trt" "All results, under the names that element messages have"
    PublishFormat::DlStreamer => "dlstreamer" "As DL Streamer's gvametaconvert"
    PublishFormat::DeepStreamMinimal => "deepstream-minimal" "As DeepStream's nvmsgconv with payload-type=1"
    PublishFormat::Coco => "coco" "Arrays of results as pycocotools reads them"
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
