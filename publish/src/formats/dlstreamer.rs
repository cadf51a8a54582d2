// SPDX-License-Identifier: MPL-2.0
//! `dlstreamer`: as DL Streamer's gvametaconvert writes frames.

use gsttrt_core::image::overlay::Attribute;
use serde_json::{Map, Value, json};

use super::round;
use crate::clock::rfc3339;
use crate::record::{FrameRecord, ObjectRecord, PublishSource};

pub fn frame(record: &FrameRecord, source: &PublishSource) -> Value {
    let (width, height) = record.size;
    let mut line = json!({ "resolution": { "width": width, "height": height } });
    if let Some(id) = &source.id {
        line["source"] = id.as_str().into();
    }
    if let Some(time) = record.times.stream_time {
        line["timestamp"] = time.into();
    }
    if !source.tags.is_empty() {
        line["tags"] = source.tags.clone().into();
    }
    if let Some(time) = record.times.wall_clock {
        line["system_timestamp"] = rfc3339(time, 6).into();
    }
    if let Some(time) = record.times.ntp_time {
        line["rtp"] = json!({ "sender_ntp_unix_timestamp_ns": time });
    }
    line["objects"] = record.objects.iter().map(|found| object(found, record)).collect();
    line
}

fn object(found: &ObjectRecord, record: &FrameRecord) -> Value {
    let annotation = &found.annotation;
    let bbox = &annotation.bbox;
    let [width, height] = [record.size.0, record.size.1].map(|side| f64::from(side.max(1)));
    let share = |edge: f32, side: f64| round(f64::from(edge) / side, 6);
    let mut detection = json!({ "bounding_box": {
        "x_min": share(bbox.x1, width), "y_min": share(bbox.y1, height),
        "x_max": share(bbox.x2, width), "y_max": share(bbox.y2, height),
    }});
    with_class(&mut detection, &annotation.label, annotation.class, annotation.confidence);
    let mut object = json!({
        "x": bbox.x1.round() as i64, "y": bbox.y1.round() as i64,
        "w": bbox.width().round() as i64, "h": bbox.height().round() as i64,
    });
    if let Some(region) = found.region {
        object["region_id"] = region.into();
    }
    if let Some(parent) = found.parent {
        object["parent_id"] = parent.into();
    }
    if let Some(id) = annotation.track_id {
        object["id"] = id.into();
    }
    if let Some(id) = found.identity {
        object["identity"] = id.into();
    }
    object["roi_type"] = annotation.label.clone().into();
    object["detection"] = detection;
    for (number, Attribute { label, class, confidence, .. }) in annotation.attributes.iter().enumerate() {
        let name = if number == 0 { "classification".into() } else { format!("classification_{}", number + 1) };
        let mut attribute = Value::Object(Map::new());
        with_class(&mut attribute, label, *class, *confidence);
        object[name] = attribute;
    }
    with_events(&mut object, annotation.track_id, &record.events);
    object
}

fn with_class(to: &mut Value, label: &str, class: Option<u32>, confidence: Option<f32>) {
    if let Some(confidence) = confidence {
        to["confidence"] = round(confidence, 6).into();
    }
    if let Some(class) = class {
        to["label_id"] = class.into();
    }
    to["label"] = label.into();
}

/// The zones and tripwires of events that are about this object.
fn with_events(object: &mut Value, id: Option<u64>, events: &[Map<String, Value>]) {
    let Some(id) = id else { return };
    let of_object = events.iter().filter(|event| event.get("track-id").and_then(Value::as_u64) == Some(id));
    let (mut zones, mut crossings) = (Vec::new(), Vec::new());
    for event in of_object {
        let name = event.get("name").cloned().unwrap_or_default();
        match event.get("event").and_then(Value::as_str) {
            Some("entered") => zones.push(name),
            Some("crossed") => {
                let mut crossing = json!({ "tripwire_id": name });
                event.get("direction").into_iter().for_each(|direction| crossing["direction"] = direction.clone());
                crossings.push(crossing);
            }
            _ => {}
        }
    }
    for (name, list) in [("zone_violations", zones), ("tripwire_crossings", crossings)] {
        if !list.is_empty() {
            object[name] = list.into();
        }
    }
}
