// SPDX-License-Identifier: MPL-2.0
//! `trtpublish`: publishes results as JSON, to files and brokers.
//!
//! The results are those in metas, of our elements or others. Only metas are read, so frames may be in any memory; they pass on as they
//! are, and never wait for a broker unless `drop=block`. A thread of the element connects and sends.
//!
//! | `location` | |
//! |---|---|
//! | `results.jsonl`, `file:/path` | JSON lines in a file |
//! | `-` | JSON lines on standard output |
//! | `unix:/path` | JSON lines to a Unix socket |
//! | `mqtt://user@host/topic`, `mqtts://` | MQTT 3.1.1 |
//! | `redis://host/key`, `rediss://` | a stream or a channel of Redis |
//! | `http://host/path`, `https://` | POST requests |
//! | `nats://host/subject` | NATS; cargo feature `nats` |
//! | `ws://0.0.0.0:8080/path` | a WebSocket server; cargo feature `websocket` |
//! | `kafka://host/topic`, `kafkas://` | Kafka; cargo features `kafka` and `kafka-tls` |
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms ! trtpublish location=mqtt://localhost/camera ! videoconvert ! autovideosink
//! ```

mod imp;
mod settings;

use gst::glib;
use gst::prelude::*;

use crate::publish::formats::PublishFormat;
use crate::publish::options::DropPolicy;

glib::wrapper! {
    pub struct TrtPublish(ObjectSubclass<imp::TrtPublish>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtPublishFormat")]
pub enum MessageFormat {
    #[default]
    #[enum_value(name = "All results, under the names that element messages have", nick = "gst-trt")]
    GstTrt,
    #[enum_value(name = "As DL Streamer's gvametaconvert", nick = "dlstreamer")]
    DlStreamer,
    #[enum_value(name = "As DeepStream's nvmsgconv with payload-type=1", nick = "deepstream-minimal")]
    DeepStreamMinimal,
    #[enum_value(name = "Arrays of results as pycocotools reads them", nick = "coco")]
    Coco,
}

impl From<MessageFormat> for PublishFormat {
    fn from(value: MessageFormat) -> Self {
        match value {
            MessageFormat::GstTrt => PublishFormat::GstTrt,
            MessageFormat::DlStreamer => PublishFormat::DlStreamer,
            MessageFormat::DeepStreamMinimal => PublishFormat::DeepStreamMinimal,
            MessageFormat::Coco => PublishFormat::Coco,
        }
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtPublishPer")]
pub enum MessageSubject {
    #[default]
    #[enum_value(name = "A message for each frame", nick = "frame")]
    Frame,
    #[enum_value(name = "A message for each event of trtanalytics", nick = "event")]
    Event,
    #[enum_value(name = "A message for each object with an id, when it is gone", nick = "object")]
    Object,
}

/// What happens where more messages wait than may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtPublishDrop")]
pub enum MessageDrop {
    #[default]
    #[enum_value(name = "Drop the message that has waited longest", nick = "oldest")]
    Oldest,
    #[enum_value(name = "Drop the new message", nick = "newest")]
    Newest,
    #[enum_value(name = "Hold frames until there is room", nick = "block")]
    Block,
}

impl From<MessageDrop> for DropPolicy {
    fn from(value: MessageDrop) -> Self {
        match value {
            MessageDrop::Oldest => DropPolicy::Oldest,
            MessageDrop::Newest => DropPolicy::Newest,
            MessageDrop::Block => DropPolicy::Block,
        }
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtpublish", gst::Rank::NONE, TrtPublish::static_type())
}
