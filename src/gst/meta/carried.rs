// SPDX-License-Identifier: MPL-2.0
//! What another process gets of a frame's results: bytes, from which the same metas are made there.
//!
//! They are those of a GstStructure `results`: the size of the frame, and an array `regions` of structures, one of each object,
//! with its GstVideoRegionOfInterestMeta and its parameters as they are. Objects that only GstAnalytics has become regions
//! there. GStreamer itself carries our metas of classes, texts, maps, events and zones, which are
//! GstCustomMetas.

use gst::glib::Quark;
use gst_video::{VideoMeta, VideoRegionOfInterestMeta};
use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::map::PixelMap;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::image::rotated::{Corners, RotatedBox};
use gsttrt_core::postprocess::fields::FieldVisitor;

use super::relations::{Metadata, ObjectPlace, Relation, Relations, RelationsMut};
use super::structure::Fields;
use super::{attributes, classification, map, packed, read, segmentation};

const NAME: &str = "results";

/// The results of a frame, which had that size when they were attached.
pub fn bytes(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<u8> {
    let size = buffer.meta::<VideoMeta>().map_or(size, |meta| (meta.width(), meta.height()));
    let found = read::objects(buffer, size);
    let regions = buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| of_region(&meta));
    let others = found.annotations.iter().skip(found.regions).map(|annotation| of_annotation(annotation, size));
    let all: Vec<Relations> = Relations::of(buffer).collect();
    let with_analytics = |(mut region, place): (gst::Structure, &Option<(usize, u32)>)| {
        region.set("analytics", place.is_some());
        let age = place.and_then(|(meta, object)| age(all.get(meta)?, object));
        age.into_iter().for_each(|age| region.set("age", age));
        region
    };
    let regions = regions.chain(others).zip(&found.analytics).map(with_analytics);
    let mut results = Fields(gst::Structure::new_empty(NAME));
    results.frame_size(size);
    results.0.set("analytics", !all.is_empty());
    results.0.set("regions", gst::Array::new(regions));
    packed::pack(&results.0)
}

/// How long an object was tracked, in nanoseconds.
fn age(relations: &Relations, object: u32) -> Option<u64> {
    let track = relations.related(object, Relation::RelateTo, Metadata::Tracking).into_iter().next()?;
    let [first, last] = relations.track_times(track)?;
    last.checked_sub(first)
}

fn of_region(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> gst::Structure {
    let (x, y, width, height) = meta.rect();
    gst::Structure::builder("region")
        .field("label", &*read::label(meta))
        .field("id", meta.id())
        .field("parent", meta.parent_id())
        .field("rect", gst::Array::new([x, y, width, height]))
        .field("params", gst::Array::new(meta.params().map(|param| param.to_owned())))
        .build()
}

/// A region for an object of GstAnalytics that has none.
fn of_annotation(annotation: &Annotation, size: (u32, u32)) -> gst::Structure {
    let bbox = annotation.bbox.clip(&Rect::from(size).into());
    let (left, top) = (bbox.x1.floor() as u32, bbox.y1.floor() as u32);
    let rect = [left, top, (bbox.x2.ceil() as u32).max(left) - left, (bbox.y2.ceil() as u32).max(top) - top];
    let mut params = Vec::new();
    if let Some(confidence) = annotation.confidence {
        params.push(gst::Structure::builder("detection").field("confidence", f64::from(confidence)).build());
    }
    if let Some(id) = annotation.track_id.and_then(|id| i32::try_from(id).ok()) {
        params.push(gst::Structure::builder("object_id").field("id", id).build());
    }
    if let Some(corners) = &annotation.corners {
        let mut rotation = Fields(gst::Structure::new_empty("rotation"));
        rotation.number("angle", rotated(corners).angle);
        rotation.numbers("corners", corners.as_flattened());
        rotation.frame_size(size);
        params.push(rotation.0);
    }
    if let Some(mask) = &annotation.mask {
        let (mut fields, rect) = (Fields(gst::Structure::new_empty("mask")), mask.rect());
        for (name, side) in [("x", rect.left), ("y", rect.top), ("width", rect.width()), ("height", rect.height())] {
            fields.0.set(format!("mask-{name}"), side);
        }
        fields.text("mask-counts", &mask.counts());
        fields.frame_size(size);
        params.push(fields.0);
    }
    gst::Structure::builder("region")
        .field("label", &*annotation.label)
        .field("id", -1)
        .field("parent", -1)
        .field("rect", gst::Array::new(rect))
        .field("params", gst::Array::new(params))
        .build()
}

/// The box that has these corners, the first of which is the lower right one.
pub(super) fn rotated(corners: &Corners) -> RotatedBox {
    let [lower, upper, ..] = *corners;
    let length = |from: [f32; 2], to: [f32; 2]| (to[0] - from[0]).hypot(to[1] - from[1]);
    let (width, height) = (length(upper, corners[2]), length(lower, upper));
    let [x, y] = [0, 1].map(|axis| corners.iter().map(|corner| corner[axis]).sum::<f32>() / 4.0);
    RotatedBox { bbox: BBox::from_center(x, y, width, height), angle: (upper[0] - lower[0]).atan2(lower[1] - upper[1]) }
}

/// Makes the metas of such bytes on a frame that has none yet, and returns the size of the frame that they are of. `None` where they
/// are none of ours.
pub fn restore(buffer: &mut gst::BufferRef, bytes: &[u8]) -> Option<(u32, u32)> {
    let results = packed::unpack(bytes).filter(|results| results.name() == NAME)?;
    let size = (results.get("frame-width").ok()?, results.get("frame-height").ok()?);
    let mut regions: Vec<gst::Structure> = structures(results.get::<gst::Array>("regions").ok()?);
    // A later GStreamer may carry them itself.
    if buffer.meta::<VideoRegionOfInterestMeta>().is_none() {
        regions.retain(|region| add_region(buffer, region).is_some());
    }
    map::restore_pictures(buffer);
    if results.get("analytics") == Ok(true) && Relations::of(buffer).next().is_none() {
        let kept = |region: &gst::Structure| KeptAnalytics {
            is_there: region.get("analytics") == Ok(true),
            age: region.get("age").unwrap_or(0),
        };
        add_analytics(buffer, size, &regions.iter().map(kept).collect::<Vec<_>>());
    }
    Some(size)
}

fn structures(array: gst::Array) -> Vec<gst::Structure> {
    array.iter().filter_map(|value| value.get().ok()).collect()
}

/// `None` where the structure is not one of ours.
fn add_region(buffer: &mut gst::BufferRef, region: &gst::StructureRef) -> Option<()> {
    let label = region.get::<String>("label").ok()?;
    let rect = region.get::<gst::Array>("rect").unwrap_or_default();
    let rect: Vec<u32> = rect.iter().filter_map(|value| value.get().ok()).collect();
    let &[x, y, width, height] = &rect[..] else { return None };
    let mut meta = VideoRegionOfInterestMeta::add(buffer, &label, (x, y, width, height));
    meta.set_id(region.get("id").unwrap_or(-1));
    meta.set_parent_id(region.get("parent").unwrap_or(-1));
    structures(region.get("params").unwrap_or_default()).into_iter().for_each(|param| meta.add_param(param));
    Some(())
}

/// What GStreamer's analytics metas had of a region.
struct KeptAnalytics {
    is_there: bool,
    /// How long it was tracked, in nanoseconds.
    age: u64,
}

/// The same results as GStreamer's analytics metas, as trtnms and trttrack write them. Nothing where GStreamer has no such library.
fn add_analytics(buffer: &mut gst::BufferRef, size: (u32, u32), kept: &[KeptAnalytics]) {
    let regions: Vec<_> = buffer
        .iter_meta::<VideoRegionOfInterestMeta>()
        .map(|meta| {
            let (x, y, width, height) = meta.rect();
            let rect = [x, y, width, height].map(|number| i32::try_from(number).unwrap_or(i32::MAX));
            // A text has none.
            let has_classes =
                |param: &&gst::StructureRef| param.name() == attributes::NAME && param.has_field("classes");
            (rect, meta.params().filter(has_classes).map(named_classes).collect::<Vec<_>>())
        })
        .collect();
    let annotations = read::objects(buffer, size).annotations;
    let (maps, names) = (map::own(buffer, size), map::labels(buffer));
    let classes = classification::annotations(buffer);
    let now = buffer.pts().map_or(0, gst::ClockTime::nseconds);
    let Some(mut relations) = RelationsMut::add(buffer) else { return };
    let mut ids = Vec::new();
    for (number, ((annotation, (rect, _)), kept)) in annotations.iter().zip(&regions).zip(kept).enumerate() {
        if !kept.is_there {
            ids.push(None);
            continue;
        }
        let (label, confidence) = (Quark::from_str(&*annotation.label), annotation.confidence.unwrap_or(1.0));
        let turned = annotation.corners.as_ref().map(rotated);
        let object = turned.and_then(|turned| relations.add_rotated(label, &turned, confidence));
        let object = object.or_else(|| relations.add_object(label, ObjectPlace { rect: *rect, confidence }));
        if let (Some(object), Some(mask)) = (object, &annotation.mask) {
            let id = segmentation::add_instance(&mut relations, mask, (number % 255 + 1) as u8);
            id.into_iter().for_each(|id| relations.relate(Relation::Contain, object, id));
        }
        ids.push(object);
    }
    let name = |class| Quark::from_str(names.get(&class).map_or("", String::as_str));
    maps.iter().filter(|map| !map.values().is_empty()).for_each(|map: &PixelMap| {
        segmentation::add_map(&mut relations, map, name);
    });
    if !classes.is_empty() {
        let named = |class: &Annotation| (Quark::from_str(&*class.label), class.confidence.unwrap_or(1.0));
        relations.add_classes(classes.iter().map(named));
    }
    // What later elements have added.
    for (object, (_, attributes)) in ids.iter().zip(regions) {
        for classes in attributes {
            let Some(object) = *object else { continue };
            let id = relations.add_classes(classes);
            id.into_iter().for_each(|id| relations.relate(Relation::Contain, object, id));
        }
    }
    for ((object, annotation), kept) in ids.iter().zip(&annotations).zip(kept) {
        let (Some(object), Some(track)) = (*object, annotation.track_id) else { continue };
        let id = relations.add_track(track, now.saturating_sub(kept.age), now);
        id.into_iter().for_each(|id| relations.relate(Relation::RelateTo, object, id));
    }
}

/// The classes in a parameter `classification`.
fn named_classes(param: &gst::StructureRef) -> Vec<(Quark, f32)> {
    let class = |class: gst::Structure| {
        let label = class.get::<String>("label").ok()?;
        Some((Quark::from_str(&label), class.get::<f64>("confidence").ok()? as f32))
    };
    structures(param.get("classes").unwrap_or_default()).into_iter().filter_map(class).collect()
}

#[cfg(test)]
mod tests {
    use gsttrt_core::image::masks::Mask;

    use super::*;

    const SIZE: (u32, u32) = (64, 48);

    fn frame() -> gst::Buffer {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let to = buffer.get_mut().unwrap();
        let mut region = VideoRegionOfInterestMeta::add(to, "a \"car\", [old]; <1>", (10, 20, 21, 11));
        region.set_id(4);
        region.set_parent_id(2);
        let corners = RotatedBox { bbox: BBox::new(11.0, 21.0, 29.0, 29.0), angle: 0.25 }.corners();
        let mask =
            Mask::of(Rect { left: 10, top: 20, right: 13, bottom: 22 }, &[true, false, true, false, false, true]);
        region.add_param(
            gst::Structure::builder("detection")
                .field("label_id", 3i32)
                .field("confidence", 0.1f64 + 0.2)
                .field("x_min", 10.25f64 / 64.0)
                .field("y_min", 20.25f64 / 48.0)
                .field("x_max", 30.75f64 / 64.0)
                .field("y_max", 30.75f64 / 48.0)
                .field("held", true)
                .build(),
        );
        region.add_param(gst::Structure::builder("object_id").field("id", 77i32).build());
        region.add_param(gst::Structure::builder("identity").field("id", u64::MAX).field("identities", "site").build());
        let values = gst::Buffer::from_slice([0u8; 8]);
        region.add_param(gst::Structure::builder("vector").field("dims", 2u32).field("values", values).build());
        let mut rotation = Fields(gst::Structure::new_empty("rotation"));
        rotation.number("angle", 0.25);
        rotation.numbers("corners", corners.as_flattened());
        rotation.frame_size(SIZE);
        region.add_param(rotation.0);
        let mut keypoints = Fields(gst::Structure::new_empty("keypoints"));
        keypoints.numbers("keypoints", &[11.5, 22.5, 0.75, 0.0, 0.0, 0.0]);
        keypoints.integer("keypoint-dims", 3);
        keypoints.texts("keypoint-names", &["left eye".into(), "ear \"2\"".into()]);
        keypoints.frame_size(SIZE);
        region.add_param(keypoints.0);
        let mut fields = Fields(gst::Structure::new_empty("mask"));
        for (name, side) in [("mask-x", 10), ("mask-y", 20), ("mask-width", 3), ("mask-height", 2)] {
            fields.integer(name, side);
        }
        fields.text("mask-counts", &mask.counts());
        fields.frame_size(SIZE);
        region.add_param(fields.0);
        let class =
            gst::Structure::builder("class").field("label", "red").field("class-id", 1u32).field("confidence", 0.5f64);
        region.add_param(
            gst::Structure::builder(attributes::NAME)
                .field("label", "red")
                .field("label_id", 1i32)
                .field("confidence", 0.5f64)
                .field("model", "colors.onnx")
                .field("classes", gst::Array::new([class.build()]))
                .build(),
        );
        VideoRegionOfInterestMeta::add(to, "", (0, 0, 1, 1));
        buffer
    }

    /// All that is known of the regions.
    fn regions(buffer: &gst::BufferRef) -> Vec<String> {
        let region = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
            let params: Vec<String> = meta.params().map(|param| param.to_string()).collect();
            format!("{} {} {} {:?} {params:?}", read::label(&meta), meta.id(), meta.parent_id(), meta.rect())
        };
        buffer.iter_meta::<VideoRegionOfInterestMeta>().map(region).collect()
    }

    #[test]
    fn regions_are_the_same_in_another_process() {
        let sent = frame();
        let bytes = bytes(&sent, SIZE);
        let mut received = gst::Buffer::new();
        assert_eq!(restore(received.get_mut().unwrap(), &bytes), Some(SIZE));
        assert_eq!(regions(&received), regions(&sent));
        let (ours, theirs) = (read::annotations(&sent, SIZE), read::annotations(&received, SIZE));
        assert_eq!(ours, theirs);
        let full =
            |object: &Annotation| object.mask.is_some() && object.keypoints.is_some() && object.corners.is_some();
        assert!(ours.len() == 2 && ours.iter().any(full), "{ours:?}");
        assert_eq!(super::bytes(&received, SIZE), bytes, "it can go on to a third one");
    }

    #[test]
    fn frames_without_objects_and_wrong_bytes_are_taken() {
        gst::init().unwrap();
        let empty = bytes(gst::Buffer::new().as_ref(), SIZE);
        let mut buffer = gst::Buffer::new();
        let buffer = buffer.get_mut().unwrap();
        assert_eq!(restore(buffer, &empty), Some(SIZE));
        let results = gst::Structure::builder(NAME).field("frame-width", 1u32).field("frame-height", 1u32).build();
        for wrong in [vec![], vec![7; 9], packed::pack(&results), packed::pack(&gst::Structure::new_empty("other"))] {
            assert_eq!(restore(buffer, &wrong), None, "{wrong:?}");
        }
        let mut odd = results;
        let short =
            gst::Structure::builder("region").field("label", "a").field("rect", gst::Array::new([1u32])).build();
        let odd_rect = gst::Structure::builder("region").field("rect", "b").build();
        odd.set("regions", gst::Array::new([short, odd_rect]));
        assert_eq!(restore(buffer, &packed::pack(&odd)), Some((1, 1)));
        assert!(regions(buffer).is_empty());
    }

    #[test]
    fn a_rotated_box_is_found_by_its_corners() {
        for angle in [0.0, 0.3, 1.5] {
            let wanted = RotatedBox { bbox: BBox::new(10.0, 20.0, 40.0, 30.0), angle };
            let found = rotated(&wanted.corners());
            let numbers = |of: &RotatedBox| [of.bbox.x1, of.bbox.y1, of.bbox.x2, of.bbox.y2, of.angle];
            let pairs = numbers(&wanted).into_iter().zip(numbers(&found));
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4), "{wanted:?} {found:?}");
        }
    }
}
