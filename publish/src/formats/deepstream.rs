// SPDX-License-Identifier: MPL-2.0
//! `deepstream-minimal`: as DeepStream's nvmsgconv writes frames with `payload-type=1`.

use serde_json::{Value, json};

use super::round;
use crate::clock::{now, rfc3339};
use crate::record::{FrameRecord, ObjectRecord, PublishSource};

/// The id of objects that no tracker follows.
const UNTRACKED: u64 = u64::MAX;

pub fn frame(record: &FrameRecord, source: &PublishSource) -> Value {
    let time = record.times.ntp_time.or(record.times.wall_clock).unwrap_or_else(now);
    json!({
        "version": "4.0",
        "id": record.number.to_string(),
        "@timestamp": rfc3339(time, 3),
        "sensorId": source.id.as_deref().unwrap_or_default(),
        "objects": record.objects.iter().map(object).collect::<Vec<_>>(),
    })
}

/// `id|left|top|right|bottom|label`, then `|#|` and the attributes with the confidence of the first. An id over cameras is the last of
/// the attributes.
fn object(object: &ObjectRecord) -> String {
    let annotation = &object.annotation;
    let plain = |text: &str| text.replace('|', "/");
    let bbox = &annotation.bbox;
    let [left, top, right, bottom] = [bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(|edge| round(edge, 3));
    let id = annotation.track_id.unwrap_or(UNTRACKED);
    let mut text = format!("{id}|{left}|{top}|{right}|{bottom}|{}", plain(&annotation.label));
    let names = annotation.attributes.iter().map(|attribute| plain(&attribute.label));
    let attributes: Vec<String> = names.chain(object.identity.map(|id| format!("identity={id}"))).collect();
    if !attributes.is_empty() {
        let confidence = annotation.attributes.first().and_then(|first| first.confidence).unwrap_or(1.0);
        text.push_str(&format!("|#|{}|{}", attributes.join("|"), round(confidence, 6)));
    }
    text
}
