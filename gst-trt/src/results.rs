// SPDX-License-Identifier: MPL-2.0
//! The results of a frame as JSON, read from its metas.

use serde_json::{Value, json};

/// The objects that trtnms attached to a buffer, in pixels of the frame, with the ids that trttrack gave.
pub fn detections(buffer: &gst::BufferRef, width: f64, height: f64) -> Vec<Value> {
    let metas = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
    metas.filter_map(|meta| detection(&meta, width, height)).collect()
}

fn detection(meta: &gst::MetaRef<gst_video::VideoRegionOfInterestMeta>, width: f64, height: f64) -> Option<Value> {
    let params = meta.param("detection")?;
    let [x1, y1, x2, y2] = ["x_min", "y_min", "x_max", "y_max"].map(|field| params.get::<f64>(field).unwrap_or(0.0));
    let round = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
    let mut detection = json!({
        "label": meta.roi_type(),
        "class-id": params.get::<i32>("label_id").ok()?,
        "confidence": round(params.get::<f64>("confidence").ok()?, 6),
        "x": round(x1 * width, 3),
        "y": round(y1 * height, 3),
        "w": round((x2 - x1) * width, 3),
        "h": round((y2 - y1) * height, 3),
    });
    let numbers = |params: &gst::StructureRef, field: &str| {
        let numbers = params.get::<gst::Array>(field).ok()?;
        numbers.iter().map(|number| Some(round(number.get().ok()?, 4))).collect::<Option<Value>>()
    };
    if let Some(id) = meta.param("object_id").and_then(|params| params.get::<i32>("id").ok()) {
        detection["track-id"] = id.into();
    }
    if let Some(params) = meta.param("rotation") {
        detection["angle"] = round(params.get::<f64>("angle").ok()?, 6).into();
        detection["corners"] = numbers(params, "corners")?;
    }
    if let Some(params) = meta.param("keypoints") {
        detection["keypoints"] = numbers(params, "keypoints")?;
        detection["keypoint-dims"] = params.get::<u32>("keypoint-dims").ok()?.into();
    }
    if let Some(params) = meta.param("mask") {
        for field in ["mask-x", "mask-y", "mask-width", "mask-height"] {
            detection[field] = params.get::<u32>(field).ok()?.into();
        }
        detection["mask-counts"] = params.get::<&str>("mask-counts").ok()?.into();
    }
    Some(detection)
}

/// The classes of the frame as a whole, which classifiers tell, the best first.
pub fn classes(buffer: &gst::BufferRef) -> Option<Vec<Value>> {
    let meta = gst::meta::CustomMeta::from_buffer(buffer, "GstTrtClassificationMeta").ok()?;
    let class = |value: &gst::glib::SendValue| {
        let class = value.get::<gst::Structure>().ok()?;
        Some(json!({
            "label": class.get::<String>("label").ok()?,
            "class-id": class.get::<u32>("class-id").ok()?,
            "confidence": class.get::<f64>("confidence").ok()?,
        }))
    };
    meta.structure().get::<gst::Array>("classes").ok()?.iter().map(class).collect()
}

/// The maps of classes, depths or objects, without their pixels, which are in the field `picture`.
pub fn maps(buffer: &gst::BufferRef) -> Option<Vec<Value>> {
    let meta = gst::meta::CustomMeta::from_buffer(buffer, "GstTrtMapMeta").ok()?;
    let region = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().ok()?;
        Some(json!({
            "label": region.get::<String>("label").ok()?,
            "class-id": region.get::<u32>("class-id").ok()?,
            "id": region.get::<u32>("id").ok()?,
            "share": region.get::<f64>("share").ok()?,
        }))
    };
    let map = |value: &gst::glib::SendValue| {
        let map = value.get::<gst::Structure>().ok()?;
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
    meta.structure().get::<gst::Array>("maps").ok()?.iter().map(map).collect()
}
