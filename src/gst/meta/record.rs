// SPDX-License-Identifier: MPL-2.0
//! What trtpublish publishes of a frame: all results in its metas, of any element.

use gst::glib;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::rotated::Corners;
use gsttrt_core::vector::to_text;
use gsttrt_publish::record::{FrameRecord, FrameTimes, ObjectRecord};
use serde_json::{Map, Value, json};

use super::{classification, identity, map, read, text, vector};
use crate::gst::property;

/// The results of a frame of that size; times and number are those of the caller.
pub fn frame(buffer: &gst::BufferRef, size: (u32, u32)) -> FrameRecord {
    FrameRecord {
        times: FrameTimes { ntp_time: ntp_time(buffer), ..FrameTimes::default() },
        number: 0,
        size,
        is_held: is_held(buffer),
        objects: objects(buffer, size),
        classes: classes(buffer),
        texts: texts(buffer),
        maps: maps(buffer),
        vectors: Vec::new(),
        events: events(buffer),
    }
}

/// Adds the vectors of the frame and of its objects, which take kilobytes each.
pub fn add_vectors(record: &mut FrameRecord, buffer: &gst::BufferRef) {
    record.vectors = vector::of_frame(buffer).iter().map(|vector| to_text(&vector.values)).collect();
    // The first objects are those of the regions, in their order.
    for (object, region) in record.objects.iter_mut().zip(buffer.iter_meta::<VideoRegionOfInterestMeta>()) {
        object.vectors = vector::of_region(&region).iter().map(|vector| to_text(&vector.values)).collect();
    }
}

fn objects(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<ObjectRecord> {
    let annotations = read::objects(buffer, size).annotations;
    // The first ones are those of the regions, in their order.
    let mut regions = buffer.iter_meta::<VideoRegionOfInterestMeta>();
    let record = |annotation| {
        let mut object = ObjectRecord {
            annotation,
            rotation: None,
            region: None,
            parent: None,
            is_predicted: false,
            identity: None,
            vectors: Vec::new(),
        };
        object.rotation = object.annotation.corners.as_ref().map(rotation);
        if let Some(region) = regions.next() {
            object.region = Some(region.id());
            object.parent = Some(region.parent_id()).filter(|&parent| parent >= 0 && parent != region.id());
            let is_predicted = region.param("detection").and_then(|param| param.get::<bool>("predicted").ok());
            object.is_predicted = is_predicted.unwrap_or(false);
            object.identity = identity::of_region(&region);
            // An angle of 0 is one, too.
            let angle = region.param("rotation").and_then(|param| param.get::<f64>("angle").ok());
            object.rotation = match (angle, object.rotation) {
                (Some(0.0), None) => Some((0.0, upright(&object.annotation.bbox))),
                (Some(angle), Some((_, corners))) if angle.is_finite() => Some((angle, corners)),
                (_, rotation) => rotation,
            };
        }
        object
    };
    annotations.into_iter().map(record).collect()
}

/// The angle by which a box is rotated, from its corners: the first edge of an upright one points up.
fn rotation(corners: &Corners) -> (f64, Vec<f64>) {
    let [[x1, y1], [x2, y2], ..] = *corners;
    let angle = f64::from(x2 - x1).atan2(f64::from(y1 - y2));
    (angle, corners.as_flattened().iter().map(|&number| number.into()).collect())
}

fn upright(bbox: &gsttrt_core::image::geometry::BBox) -> Vec<f64> {
    let bbox = gsttrt_core::image::rotated::RotatedBox { bbox: *bbox, angle: 0.0 };
    rotation(&bbox.corners()).1
}

fn is_held(buffer: &gst::BufferRef) -> bool {
    let is_held = |structure: &gst::StructureRef| structure.get::<bool>("held") == Ok(true);
    classification::register();
    map::register();
    super::track::region_facts(buffer).any(|facts| facts.is_held)
        || gst::meta::CustomMeta::from_buffer(buffer, classification::NAME).is_ok_and(|meta| is_held(meta.structure()))
        || structures(buffer, map::NAME, "maps").is_some_and(|maps| maps.iter().any(|map| is_held(map)))
        || vector::of_frame(buffer).iter().any(|vector| vector.is_held)
        || text::of_frame(buffer).iter().any(|text| text.is_held)
}

/// The structures of a field of a custom meta.
fn structures(buffer: &gst::BufferRef, meta: &str, field: &str) -> Option<Vec<gst::Structure>> {
    let meta = gst::meta::CustomMeta::from_buffer(buffer, meta).ok()?;
    let array = meta.structure().get::<gst::Array>(field).ok()?;
    Some(array.iter().filter_map(|value| value.get::<gst::Structure>().ok()).collect())
}

/// The classes of the frame as a whole, which classifiers tell, the best first.
fn classes(buffer: &gst::BufferRef) -> Option<Vec<Value>> {
    classification::register();
    let class = |class: &gst::Structure| {
        let mut found = json!({
            "label": class.get::<String>("label").ok()?,
            "class-id": class.get::<u32>("class-id").ok()?,
            "confidence": class.get::<f64>("confidence").ok()?,
        });
        for name in ["start-stream-time", "end-stream-time"] {
            class.get::<u64>(name).into_iter().for_each(|time| found[name] = time.into());
        }
        Some(found)
    };
    structures(buffer, classification::NAME, "classes")?.iter().map(class).collect()
}

/// The texts of the frame as a whole, one for each model that has read something.
fn texts(buffer: &gst::BufferRef) -> Vec<Value> {
    let fields = |text::FrameText { text, confidence, is_held }| {
        let mut found = json!({ "text": text });
        if let Some(confidence) = confidence {
            found["confidence"] = confidence.into();
        }
        if is_held {
            found["held"] = true.into();
        }
        found
    };
    text::of_frame(buffer).into_iter().map(fields).collect()
}

/// The maps of classes, depths or objects, without their pixels, which are in the field `picture`.
fn maps(buffer: &gst::BufferRef) -> Option<Vec<Value>> {
    map::register();
    let region = |value: &glib::SendValue| {
        let region = value.get::<gst::Structure>().ok()?;
        Some(json!({
            "label": region.get::<String>("label").ok()?,
            "class-id": region.get::<u32>("class-id").ok()?,
            "id": region.get::<u32>("id").ok()?,
            "share": region.get::<f64>("share").ok()?,
        }))
    };
    let map = |map: &gst::Structure| {
        let mut found = json!({ "kind": map.get::<String>("kind").ok()? });
        for name in ["map-width", "map-height"] {
            found[name] = map.get::<u32>(name).ok()?.into();
        }
        for name in ["x", "y", "w", "h", "minimum", "maximum"] {
            map.get::<f64>(name).into_iter().for_each(|number| found[name] = number.into());
        }
        if let Ok(regions) = map.get::<gst::Array>("regions") {
            found["regions"] = regions.iter().map(region).collect::<Option<Vec<_>>>()?.into();
        }
        Some(found)
    };
    structures(buffer, map::NAME, "maps")?.iter().map(map).collect()
}

/// The events of trtanalytics about this frame.
pub fn events(buffer: &gst::BufferRef) -> Vec<Map<String, Value>> {
    super::events::read(buffer).iter().map(|event| fields(event)).collect()
}

/// The fields of any structure.
fn fields(structure: &gst::StructureRef) -> Map<String, Value> {
    structure.iter().map(|(name, value)| (name.to_string(), json(value))).collect()
}

/// Any value: numbers, texts, flags, and structures and lists of them; others as GStreamer writes them.
fn json(value: &glib::SendValue) -> Value {
    macro_rules! number {
        ($($kind:ty)*) => {$(
            if let Ok(number) = value.get::<$kind>() {
                return number.into();
            }
        )*};
    }
    number!(bool i32 u32 i64 f32 f64);
    // A time that is not known is the largest number, in GStreamer.
    if let Ok(number) = value.get::<u64>() {
        return Some(number).filter(|&number| number != u64::MAX).into();
    }
    if value.type_() == glib::Type::STRING {
        return property::text_of(value).into();
    }
    if let Ok(structure) = value.get::<gst::Structure>() {
        return fields(&structure).into();
    }
    if let Ok(array) = value.get::<gst::Array>() {
        return array.iter().map(json).collect();
    }
    if let Ok(list) = value.get::<gst::List>() {
        return list.iter().map(json).collect();
    }
    value.serialize().ok().map(|text| text.to_string()).into()
}

/// When the camera took the frame, in nanoseconds since 1970: of the meta that rtspsrc adds with
/// `add-reference-timestamp-meta=true`.
fn ntp_time(buffer: &gst::BufferRef) -> Option<u64> {
    /// From 1900 to 1970.
    const NTP_TO_UNIX: u64 = 2_208_988_800 * 1_000_000_000;
    let unix = |meta: gst::MetaRef<gst::ReferenceTimestampMeta>| {
        let time = meta.timestamp().nseconds();
        match meta.reference().structure(0)?.name().as_str() {
            "timestamp/x-ntp" => time.checked_sub(NTP_TO_UNIX),
            "timestamp/x-unix" => Some(time),
            _ => None,
        }
    };
    buffer.iter_meta::<gst::ReferenceTimestampMeta>().find_map(unix)
}

#[cfg(test)]
mod tests {
    use gst::glib::translate::ToGlibPtrMut;

    use super::*;

    /// GStreamer looks at the texts of fields, and not at those of lists.
    #[test]
    fn texts_in_lists_may_have_any_bytes() {
        gst::init().unwrap();
        let mut text = "".to_send_value();
        assert_eq!(json(&text), "");
        // SAFETY: the value has a text, which is replaced by a copy of this one.
        unsafe { glib::gobject_ffi::g_value_set_string(text.to_glib_none_mut().0, c"Caf\xe9".as_ptr()) };
        let list = gst::Array::from_values([text]).to_send_value();
        assert_eq!(json(&list), json!(["Caf\u{fffd}"]));
        assert_eq!(json(&None::<String>.to_send_value()), Value::Null);
    }
}
