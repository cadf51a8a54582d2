// SPDX-License-Identifier: MPL-2.0
//! The ids of objects on their metas: `id` of a parameter `object_id` of the region, as DL Streamer writes and reads
//! it, and from GStreamer 1.24 on a GstAnalyticsTrackingMtd that the object relates to, as GStreamer's ioutracker and
//! relationmeta2onvifmeta use it.
//!
//! On frames that no model has seen, held regions are moved to the predicted boxes of their objects: `predicted`
//! replaces `held` in the parameter `detection`.

use std::ops::ControlFlow;
use std::sync::Arc;

use gst::buffer::BufferMetaForeachAction::{Keep, Remove};
use gst::glib;
use gst::glib::translate::*;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::masks::Mask;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::postprocess::fields::FieldVisitor;
use gsttrt_core::track::TrackedObject;

use super::carried::rotated;
use super::identity;
use super::read::MetaObjects;
use super::relations::{self, ObjectPlace, Relation, RelationsMut};
use super::structure::{Fields, Region, change_params};

/// What a region holds besides its object.
#[derive(Clone, Copy, Debug)]
pub struct RegionFacts {
    /// The quark of its type.
    pub name: u32,
    /// Whether the box is that of an earlier frame.
    pub is_held: bool,
    /// And nothing has moved since.
    pub is_still: bool,
    /// Whether the box was predicted, by [`write`].
    pub is_predicted: bool,
}

pub fn region_facts(buffer: &gst::BufferRef) -> impl Iterator<Item = RegionFacts> {
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| {
        let is = |field| meta.param("detection").is_some_and(|param| param.get::<bool>(field) == Ok(true));
        // SAFETY: a public field of a structure that `meta` keeps.
        let name = unsafe { (*meta.as_ptr()).roi_type };
        RegionFacts { name, is_held: is("held"), is_still: is("still"), is_predicted: is("predicted") }
    })
}

/// The result of tracking for an object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tracking {
    /// The tracked object with its id, if there is one.
    pub object: Option<TrackedObject>,
    /// Its predicted box in pixels of the frame; `None` if the box in its metas stays.
    pub place: Option<BBox>,
}

impl Tracking {
    /// Whether the object is predicted beyond the edges of the frame.
    fn is_beyond(&self, frame: &BBox) -> bool {
        self.place.is_some_and(|place| !place.clip(frame).is_valid())
    }
}

/// Writes the trackings of all objects to their metas and to `objects`, for a frame of that size. An object that is
/// predicted beyond the frame's edge loses its region.
pub fn write(buffer: &mut gst::BufferRef, objects: &mut MetaObjects, trackings: &[Tracking], size: (u32, u32)) {
    let frame: BBox = Rect::from(size).into();
    let frame = &frame;
    for (annotation, tracking) in objects.annotations.iter_mut().zip(trackings) {
        if let Some(object) = tracking.object {
            annotation.track_id = Some(object.id);
        }
        if let Some(place) = tracking.place {
            move_annotation(annotation, &place, size);
        }
    }
    let regions = buffer.iter_meta_mut::<VideoRegionOfInterestMeta>();
    for ((mut region, tracking), annotation) in regions.zip(trackings).zip(&objects.annotations) {
        if tracking.place.is_some() {
            move_region(&mut region, annotation, size);
        }
        // Larger ids do not fit in an int; reaching them takes years.
        if let Some(id) = tracking.object.and_then(|object| i32::try_from(object.id).ok()) {
            region.add_param(gst::Structure::builder("object_id").field("id", id).build());
        }
    }
    relate(buffer, objects, trackings, frame);
    super::results::attach(buffer, size);
    let are_gone = || trackings.iter().map(move |tracking| tracking.is_beyond(frame));
    if are_gone().any(|is_gone| is_gone) {
        let mut gone = are_gone();
        buffer.foreach_meta_mut(|meta| {
            let is_region = meta.api() == VideoRegionOfInterestMeta::meta_api();
            let is_gone = is_region && gone.next().unwrap_or(false);
            ControlFlow::Continue(if is_gone { Remove } else { Keep })
        });
        let mut gone = are_gone();
        objects.annotations.retain(|_| !gone.next().expect("as many"));
    }
}

/// Moves an annotation with its box, on a frame of that size. A mask that would reach beyond it is left out.
fn move_annotation(annotation: &mut Annotation, place: &BBox, size: (u32, u32)) {
    let [(x, y), (from_x, from_y)] = [place.center(), annotation.bbox.center()];
    let by = [x - from_x, y - from_y];
    annotation.bbox = place.clip(&Rect::from(size).into());
    annotation.mask = annotation.mask.take().and_then(|mask| moved(&mask, by, size)).map(Arc::new);
    let points = annotation.corners.iter_mut().flatten();
    points.for_each(|point| point.iter_mut().zip(by).for_each(|(at, by)| *at += by));
    if let Some(keypoints) = &mut annotation.keypoints {
        let dims = keypoints.shape.dims.into();
        for point in keypoints.values.to_mut().chunks_exact_mut(dims) {
            point.iter_mut().zip(by).for_each(|(at, by)| *at += by);
        }
    }
}

fn moved(mask: &Mask, by: [f32; 2], (width, height): (u32, u32)) -> Option<Mask> {
    let Rect { left, top, right, bottom } = mask.rect();
    let [x, y] = by.map(|by| by.round() as i32);
    let across = |edge: u32| edge.checked_add_signed(x).filter(|&edge| edge <= width);
    let down = |edge: u32| edge.checked_add_signed(y).filter(|&edge| edge <= height);
    let rect = Rect { left: across(left)?, top: down(top)?, right: across(right)?, bottom: down(bottom)? };
    Mask::from_counts(rect, &mask.counts())
}

/// Updates a region and its parameters after its object was moved.
fn move_region(region: &mut Region, annotation: &Annotation, (width, height): (u32, u32)) {
    let BBox { x1, y1, x2, y2 } = annotation.bbox;
    let (left, top) = (x1.floor() as u32, y1.floor() as u32);
    region.set_rect((left, top, (x2.ceil() as u32).max(left) - left, (y2.ceil() as u32).max(top) - top));
    change_params(region, |param| match param.name().as_str() {
        "detection" => {
            param.remove_fields(["held", "still"]);
            param.set("predicted", true);
            for (name, edge, whole) in
                [("x_min", x1, width), ("y_min", y1, height), ("x_max", x2, width), ("y_max", y2, height)]
            {
                param.set(name, f64::from(edge) / f64::from(whole));
            }
        }
        "rotation" => set_points(
            param,
            "corners",
            annotation.corners.as_ref().map(|corners| corners.as_flattened()),
            (width, height),
        ),
        "keypoints" => {
            let values = annotation.keypoints.as_ref().map(|keypoints| &*keypoints.values);
            set_points(param, "keypoints", values, (width, height));
        }
        "mask" => set_mask(param, annotation.mask.as_deref(), (width, height)),
        _ => {}
    });
}

/// Numbers in pixels of a frame of that size.
fn set_points(param: &mut gst::StructureRef, name: &str, values: Option<&[f32]>, (width, height): (u32, u32)) {
    if let Some(values) = values {
        param.set(name, gst::Array::new(values.iter().map(|&value| f64::from(value))));
        param.set("frame-width", width);
        param.set("frame-height", height);
    }
}

/// In pixels of a frame of that size. Without one, nothing is left of the former.
fn set_mask(param: &mut gst::StructureRef, mask: Option<&Mask>, (width, height): (u32, u32)) {
    param.remove_fields(["mask-x", "mask-y", "mask-width", "mask-height", "mask-counts"]);
    let Some(mask) = mask else { return };
    let rect = mask.rect();
    for (name, side) in [("x", rect.left), ("y", rect.top), ("width", rect.width()), ("height", rect.height())] {
        param.set(format!("mask-{name}"), side);
    }
    param.set("mask-counts", mask.counts());
    param.set("frame-width", width);
    param.set("frame-height", height);
}

/// The detections of an element message about a frame: the fields that trtnms writes, as far as they are known, and
/// `track-id`; `predicted` where no model has seen the object there. The first objects are those of the regions
/// of the frame, in their order.
pub fn message(
    frame: &gst::BufferRef,
    stream_time: Option<gst::ClockTime>,
    number: u64,
    size: (u32, u32),
    annotations: &[Annotation],
    is_predicted: bool,
) -> gst::Structure {
    let identities = identity::of_regions(frame).into_iter().chain(std::iter::repeat(None));
    let objects = annotations.iter().zip(identities).map(|(annotation, identity)| {
        let mut fields = Fields(gst::Structure::new_empty("detection"));
        fields.text("label", &annotation.label);
        annotation.class.into_iter().for_each(|class| fields.integer("class-id", class));
        annotation.confidence.into_iter().for_each(|confidence| fields.number("confidence", confidence));
        let bbox = &annotation.bbox;
        for (name, value) in [("x", bbox.x1), ("y", bbox.y1), ("w", bbox.width()), ("h", bbox.height())] {
            fields.number(name, value);
        }
        if let Some(corners) = &annotation.corners {
            fields.numbers("corners", corners.as_flattened());
        }
        if let Some(keypoints) = &annotation.keypoints {
            fields.numbers("keypoints", &keypoints.values);
            fields.integer("keypoint-dims", keypoints.shape.dims.into());
        }
        if let Some(id) = annotation.track_id {
            fields.0.set("track-id", id);
        }
        if let Some(id) = identity {
            fields.0.set("identity", id);
        }
        if !annotation.attributes.is_empty() {
            fields.0.set("attributes", super::attributes::structures(&annotation.attributes));
        }
        fields.0
    });
    let mut content = gst::Structure::builder("trt-detections")
        .field("stream-time", stream_time)
        .field("frame", number)
        .field("width", size.0)
        .field("height", size.1)
        .field("held", false)
        .field("predicted", is_predicted)
        .field("count", annotations.len() as u32)
        .build();
    if !annotations.is_empty() {
        content.set("detections", gst::Array::new(objects));
    }
    content
}

/// The quark of a label.
pub fn name_of(label: &str) -> u32 {
    glib::Quark::from_str(label).into_glib()
}

/// Left, top, width and height in whole pixels that cover a box. That of a foreign element may reach as far as numbers do.
fn covering(bbox: &BBox) -> [i32; 4] {
    let [x, y] = [bbox.x1, bbox.y1].map(|edge| edge.floor() as i32);
    [x, y, (bbox.x2.ceil() as i32).saturating_sub(x), (bbox.y2.ceil() as i32).saturating_sub(y)]
}

/// Adds an object with its rotation and mask, as `detection` does.
fn add(relations: &mut RelationsMut, number: usize, annotation: &Annotation) -> Option<u32> {
    let rect = covering(&annotation.bbox);
    let label = glib::Quark::from_str(&*annotation.label);
    let confidence = annotation.confidence.unwrap_or(1.0);
    let rotated = annotation.corners.as_ref().map(rotated);
    let detected = rotated.and_then(|rotated| relations.add_rotated(label, &rotated, confidence));
    let detected = detected.or_else(|| relations.add_object(label, ObjectPlace { rect, confidence }))?;
    if let Some(mask) = &annotation.mask
        && let Some(id) = super::segmentation::add_instance(relations, mask, (number % 255 + 1) as u8)
    {
        relations.relate(Relation::Contain, detected, id);
    }
    Some(detected)
}

/// Relates each object of GstAnalytics that has an id to its tracking. They cannot be moved, so where all were held and some have
/// moved, they are written again.
fn relate(buffer: &mut gst::BufferRef, objects: &mut MetaObjects, trackings: &[Tracking], frame: &BBox) {
    let MetaObjects { annotations, regions, analytics, .. } = objects;
    let is_first = |place: &Option<(usize, u32)>| matches!(place, Some((0, _)));
    let have_moved = trackings.iter().any(|tracking| tracking.place.is_some());
    if have_moved && analytics.len() == *regions && analytics.iter().all(is_first) {
        relations::remove(buffer);
        let Some(mut relations) = RelationsMut::add(buffer) else { return };
        let places = annotations.iter().zip(&mut *analytics).zip(trackings);
        for (number, ((annotation, place), tracking)) in places.enumerate() {
            let is_gone = tracking.is_beyond(frame);
            let added = if is_gone { None } else { add(&mut relations, number, annotation) };
            *place = added.map(|id| (0, id));
        }
    }
    let Some(mut relations) = RelationsMut::first(buffer) else { return };
    for (tracking, place) in trackings.iter().zip(&*analytics) {
        let (Some(object), Some((0, detected))) = (tracking.object, *place) else { continue };
        let first_seen = object.first_seen.min(u64::MAX - 1);
        if let Some(id) = relations.add_track(object.id, first_seen, object.last_seen) {
            relations.relate(Relation::RelateTo, detected, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_box_has_whole_pixels() {
        assert_eq!(covering(&BBox::new(1.5, 2.0, 3.5, 4.25)), [1, 2, 3, 3]);
        assert_eq!(covering(&BBox::new(-2e9, 0.0, 2e9, 1.0)), [-2_000_000_000, 0, i32::MAX, 1]);
        assert_eq!(covering(&BBox::new(f32::NAN, 0.0, f32::INFINITY, 1.0)), [0, 0, i32::MAX, 1]);
    }
}
