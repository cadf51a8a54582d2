// SPDX-License-Identifier: MPL-2.0
//! `trtpublish`: publishes results as JSON, to files and brokers.
//!
//! The results are those in metas, of our elements or others. Only metas are read, so frames may be in any memory; they
//! pass on as they are, and never wait for a broker unless `drop=block`. A thread of the element connects and sends.
//!
//! | `location` | |
//! |---|---|
//! | `results.jsonl`, `file:/path` | JSON lines in a file |
//! | `-` | JSON lines on standard output |
//! | `unix:/path` | JSON lines to a Unix socket |
//! | `mqtt://user@host/topic`, `mqtts://` | MQTT 3.1.1 |
//! | `redis://host/key`, `rediss://` | a stream or a channel of Redis |
//! | `http://host/path`, `https://` | POST requests |
//! | `amqp://host/queue`, `amqps://` | AMQP 0-9-1, as RabbitMQ has it |
//! | `kafka://host/topic`, `kafkas://` | Kafka, by librdkafka if it is installed |
//! | `nats://host/subject` | NATS; cargo feature `nats` |
//! | `ws://0.0.0.0:8080/path` | a WebSocket server; cargo feature `websocket` |
//! | `sei:` | the video itself, before and behind its encoder |
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms ! trtpublish location=mqtt://localhost/camera ! videoconvert ! autovideosink
//! ```

mod effect;
mod ending;
mod imp;
mod in_video;
mod settings;
mod subject;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub struct TrtPublish(ObjectSubclass<imp::TrtPublish>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// What a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtPublishPer")]
pub enum MessageSubject {
    #[default]
    #[enum_value(name = "A message for each frame with results", nick = "frame")]
    Frame,
    #[enum_value(name = "A message for each event of trtanalytics", nick = "event")]
    Event,
    #[enum_value(name = "A message for each object with an id, when it is gone", nick = "object")]
    Object,
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtpublish", gst::Rank::NONE, TrtPublish::static_type())
}
