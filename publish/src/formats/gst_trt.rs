// SPDX-License-Identifier: MPL-2.0
//! `gst-trt`: all that is known, under the names that messages and the C library have.

use gsttrt_core::image::geometry::BBox;
use gsttrt_core::image::overlay::Attribute;
use serde_json::{Map, Value, json};

use super::{round, rounded};
use crate::clock::rfc3339;
use crate::record::{FrameRecord, FrameTimes, ObjectRecord, PublishSource, TrackRecord};

/// A frame: `stream-time` in nanoseconds, `frame`, `width`, `height`, `held`, `detections`, and where there are some
/// `classes`, `texts`, `maps`, `vectors` and `events`; then what `source` adds.
pub fn frame(record: &FrameRecord, from: &PublishSource) -> Value {
    let mut line = json!({
        "stream-time": record.times.stream_time,
        "frame": record.number,
        "width": record.size.0,
        "height": record.size.1,
        "held": record.is_held,
        "detections": record.objects.iter().map(|object| detection(object, record)).collect::<Value>(),
    });
    if let Some(classes) = &record.classes {
        line["classes"] = classes.iter().map(|class| short("", class)).collect();
    }
    if !record.texts.is_empty() {
        line["texts"] = record.texts.iter().map(|text| short("", text)).collect();
    }
    if let Some(maps) = &record.maps {
        line["maps"] = maps.iter().map(|map| short("", map)).collect();
    }
    if !record.vectors.is_empty() {
        line["vectors"] = record.vectors.clone().into();
    }
    if !record.events.is_empty() {
        line["events"] = record.events.iter().map(event_fields).collect();
    }
    with_clocks(&mut line, &record.times);
    source(&mut line, from);
    line
}

/// The fields of an event but those that the message has itself.
fn event_fields(event: &Map<String, Value>) -> Value {
    let of_message = |name: &str| ["stream-time", "frame"].contains(&name);
    let fields = event.iter().filter(|(name, _)| !of_message(name));
    fields.map(|(name, value)| (name.clone(), short(name, value))).collect()
}

/// A value whose numbers have no more digits than those of detections: 3 of pixels, 6 of others.
fn short(name: &str, value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let digits = if ["x", "y", "w", "h"].contains(&name) { 3 } else { 6 };
            number.as_f64().map(|number| round(number, digits)).into()
        }
        Value::Array(values) => values.iter().map(|value| short(name, value)).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), short(name, value))).collect(),
        value => value.clone(),
    }
}

/// An event: `event` with its fields.
pub fn event(times: &FrameTimes, number: u64, event: &Map<String, Value>, from: &PublishSource) -> Value {
    let mut line = json!({ "stream-time": times.stream_time, "frame": number, "event": event_fields(event) });
    with_clocks(&mut line, times);
    source(&mut line, from);
    line
}

/// An object that is gone.
pub fn track(track: &TrackRecord, from: &PublishSource) -> Value {
    let mut object = json!({ "track-id": track.id, "label": track.label });
    if let Some(id) = track.identity {
        object["identity"] = id.into();
    }
    if !track.attributes.is_empty() {
        object["attributes"] = track.attributes.iter().map(attribute).collect();
    }
    if let Some(class) = track.class {
        object["class-id"] = class.into();
    }
    if let Some(confidence) = track.confidence {
        object["confidence"] = round(confidence, 6).into();
    }
    let (first, last) = (&track.first_times, &track.last_times);
    object["first-stream-time"] = first.stream_time.into();
    object["last-stream-time"] = last.stream_time.into();
    object["frames"] = track.frames.into();
    object["first-box"] = bbox(&track.first_box);
    object["last-box"] = bbox(&track.last_box);
    let mut line = json!({ "stream-time": last.stream_time, "object": object });
    with_clocks(&mut line, last);
    source(&mut line, from);
    line
}

fn bbox(bbox: &BBox) -> Value {
    rounded(&[bbox.x1, bbox.y1, bbox.width(), bbox.height()], 3)
}

fn detection(object: &ObjectRecord, frame: &FrameRecord) -> Value {
    let annotation = &object.annotation;
    let mut fields = json!({ "label": annotation.label });
    if let Some(class) = annotation.class {
        fields["class-id"] = class.into();
    }
    if let Some(confidence) = annotation.confidence {
        fields["confidence"] = round(confidence, 6).into();
    }
    let bbox = &annotation.bbox;
    for (name, value) in [("x", bbox.x1), ("y", bbox.y1), ("w", bbox.width()), ("h", bbox.height())] {
        fields[name] = round(value, 3).into();
    }
    if let Some((angle, corners)) = &object.rotation {
        fields["angle"] = round(*angle, 6).into();
        fields["corners"] = corners.iter().map(|&corner| round(corner, 4)).collect();
    }
    if let Some(keypoints) = &annotation.keypoints {
        fields["keypoints"] = rounded(&keypoints.values, 4);
        fields["keypoint-dims"] = keypoints.shape.dims.into();
    }
    if let Some(mask) = &annotation.mask {
        let rect = mask.rect();
        fields["mask-x"] = rect.left.into();
        fields["mask-y"] = rect.top.into();
        fields["mask-width"] = rect.width().into();
        fields["mask-height"] = rect.height().into();
        fields["mask-counts"] = mask.counts().into();
    }
    if let Some(id) = annotation.track_id {
        fields["track-id"] = id.into();
    }
    if let Some(id) = object.identity {
        fields["identity"] = id.into();
    }
    if object.is_predicted {
        fields["predicted"] = true.into();
    }
    let is_parent = |other: &ObjectRecord| object.parent.is_some() && other.region == object.parent;
    if let Some(parent) = frame.objects.iter().position(is_parent) {
        fields["parent"] = parent.into();
    }
    if !annotation.attributes.is_empty() {
        fields["attributes"] = annotation.attributes.iter().map(attribute).collect();
    }
    if !object.vectors.is_empty() {
        fields["vectors"] = object.vectors.clone().into();
    }
    fields
}

fn attribute(attribute: &Attribute) -> Value {
    let mut fields = json!({ "label": attribute.label });
    if let Some(class) = attribute.class {
        fields["class-id"] = class.into();
    }
    if let Some(confidence) = attribute.confidence {
        fields["confidence"] = round(confidence, 6).into();
    }
    if let Some([start, end]) = attribute.span {
        fields["start-stream-time"] = start.into();
        fields["end-stream-time"] = end.into();
    }
    fields
}

fn with_clocks(line: &mut Value, times: &FrameTimes) {
    for (name, time) in [("wall-clock", times.wall_clock), ("ntp-time", times.ntp_time)] {
        if let Some(time) = time {
            line[name] = rfc3339(time, 6).into();
        }
    }
}

/// `source-id` and `tags`, where they are set.
fn source(line: &mut Value, source: &PublishSource) {
    if let Some(id) = &source.id {
        line["source-id"] = id.as_str().into();
    }
    if !source.tags.is_empty() {
        line["tags"] = source.tags.clone().into();
    }
}
