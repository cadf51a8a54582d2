// SPDX-License-Identifier: MPL-2.0
//! Events of a frame: what trtanalytics writes and trtpublish reads.
//!
//! A `GstCustomMeta` called [`NAME`], which any program can read without our headers, by `gst_buffer_get_custom_meta`:
//! its structure has an array `events` of structures, each the same as the element message [`MESSAGE`] on the bus. Only
//! frames on which something has happened have it.

use std::sync::Once;

use gst::meta::CustomMeta;
use gsttrt_core::analytics::geometry::CrossingDirection;
use gsttrt_core::analytics::{Analytics, AnalyticsEvent, AnalyticsEventKind};
use gsttrt_core::postprocess::fields::FieldVisitor;

use super::structure::Fields;
use crate::gst::stream::StreamFrame;

pub const NAME: &str = "GstTrtEventMeta";

/// The name of the structures.
pub const MESSAGE: &str = "trt-event";

/// Registers the meta, once in a program.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Without tags: it stays on the frame through all elements that change the picture.
        if !CustomMeta::is_registered(NAME) {
            CustomMeta::register_simple(NAME);
        }
    });
}

/// The name of a direction.
pub fn direction_name(direction: CrossingDirection) -> &'static str {
    match direction {
        CrossingDirection::Forward => "forward",
        CrossingDirection::Backward => "backward",
    }
}

/// An event as in the meta and the message; `now` is the time of the frame as the events have it.
pub fn structure(
    analytics: &Analytics,
    event: &AnalyticsEvent,
    frame: &StreamFrame,
    now: u64,
    (width, height): (u32, u32),
) -> gst::Structure {
    let ago = gst::ClockTime::from_nseconds(now.saturating_sub(event.happened).min(u64::MAX - 1));
    let happened = frame.stream_time.map(|time| match frame.is_backwards {
        true => time.saturating_add(ago),
        false => time.saturating_sub(ago),
    });
    let mut fields = Fields(
        gst::Structure::builder(MESSAGE)
            .field("event", event.kind.name())
            .field("name", analytics.name_of(&event.kind))
            .field("stream-time", frame.stream_time)
            .field("event-time", happened)
            .field("frame", frame.number)
            .field("width", width)
            .field("height", height)
            .field("count", event.count)
            .build(),
    );
    if let AnalyticsEventKind::Crossed { direction, .. } = event.kind {
        fields.text("direction", direction_name(direction));
    }
    if let Some(dwell) = event.dwell {
        fields.0.set("dwell", dwell);
    }
    if let Some(object) = &event.object {
        let class = &analytics.classes()[usize::from(object.class)];
        fields.0.set("track-id", object.id);
        fields.text("label", &class.label);
        class.class.into_iter().for_each(|class| fields.integer("class-id", class));
        object.confidence.into_iter().for_each(|confidence| fields.number("confidence", confidence));
        let bbox = &object.bbox;
        for (name, value) in [("x", bbox.x1), ("y", bbox.y1), ("w", bbox.width()), ("h", bbox.height())] {
            fields.number(name, value);
        }
    }
    fields.0
}

/// Attaches events to the buffer of their frame, after those of other elements.
pub fn attach(buffer: &mut gst::BufferRef, events: &[gst::Structure]) {
    if events.is_empty() {
        return;
    }
    register();
    let meta = if CustomMeta::from_buffer(buffer, NAME).is_ok() {
        CustomMeta::from_mut_buffer(buffer, NAME)
    } else {
        CustomMeta::add(buffer, NAME)
    };
    let Ok(mut meta) = meta else { return };
    let structure = meta.mut_structure();
    let before = structure.get::<gst::Array>("events").unwrap_or_default();
    let before = before.iter().filter_map(|value| value.get::<gst::Structure>().ok());
    let all: Vec<_> = before.chain(events.iter().cloned()).collect();
    structure.set("events", gst::Array::new(all));
}

/// The events of a frame.
pub fn read(buffer: &gst::BufferRef) -> Vec<gst::Structure> {
    register();
    let meta = CustomMeta::from_buffer(buffer, NAME).ok();
    let events = meta.and_then(|meta| meta.structure().get::<gst::Array>("events").ok()).unwrap_or_default();
    events.iter().filter_map(|value| value.get::<gst::Structure>().ok()).collect()
}
