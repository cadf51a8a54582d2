// SPDX-License-Identifier: MPL-2.0
//! Detections as metas that other elements and applications read.
//!
//! Always `GstVideoRegionOfInterestMeta`: its type is the label, its id counts the objects of the frame, and a `detection`
//! structure holds `label_id`, `confidence` and the box in 0..1 of the frame, as DL Streamer's elements write and read
//! it; `held` is present and true where the box is that of an earlier frame, and `still` too where nothing has moved since. A rotated box is stored as the upright one
//! around it, and a `rotation` structure holds its angle and its corners. The mask of an object is in a `mask` structure.
//! Where GStreamer has its analytics library, from 1.24 on, also `GstAnalyticsODMtd`, from 1.26 on with its rotation, with a
//! `GstAnalyticsSegmentationMtd` that it contains where there is a mask. And [`message`], for applications that read
//! the bus.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use gst::glib::Quark;
use gst::glib::translate::IntoGlib;
use gst::meta::MetaAPIExt;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::geometry::Rect;

use gsttrt_core::image::{Candidate, label_text};
use gsttrt_core::postprocess::Instances;
use gsttrt_core::postprocess::fields;

use super::relations::{ObjectPlace, Relation, Relations, RelationsMut};
use super::structure::Fields;

/// The names of classes as GLib's quarks. Looking up the quark of a text takes a lock that all threads share: with 16
/// streams and 300 objects a frame, most of the time went there.
#[derive(Debug, Default)]
pub struct LabelQuarks(HashMap<u32, Quark>);

impl LabelQuarks {
    fn of(&mut self, labels: &[String], class: u32) -> Quark {
        *self.0.entry(class).or_insert_with(|| Quark::from_str(&*label_text(labels, class)))
    }
}

/// Copied and filled in for each object: its texts already have their quarks.
static DETECTION: LazyLock<gst::Structure> = LazyLock::new(|| {
    gst::Structure::builder("detection")
        .field("label_id", 0i32)
        .field("confidence", 0f64)
        .field("x_min", 0f64)
        .field("y_min", 0f64)
        .field("x_max", 0f64)
        .field("y_max", 0f64)
        .build()
});

/// Left, top, width and height in whole pixels that cover the box, inside a frame of that size.
fn pixels(detection: &Candidate, (width, height): (u32, u32)) -> (u32, u32, u32, u32) {
    let bbox = detection.bbox.clip(&Rect::from((width, height)).into());
    let (x, y) = (bbox.x1.floor() as u32, bbox.y1.floor() as u32);
    (x, y, (bbox.x2.ceil() as u32).max(x) - x, (bbox.y2.ceil() as u32).max(y) - y)
}

/// Whether objects are those of an earlier frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    No,
    /// The model did not look.
    Skipped,
    /// Nothing has moved since.
    Still,
}

/// Attaches objects, in pixels of a frame of that size, to the frame's buffer, after those of other models. `names` are
/// those of `labels`, and empty at first.
pub fn attach(
    buffer: &mut gst::BufferRef,
    instances: &Instances,
    labels: &[String],
    names: &mut LabelQuarks,
    size: (u32, u32),
    held: Held,
) {
    let is_held = held != Held::No;
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let ids = free_ids(buffer, instances.boxes.len());
    for ((object, detection), id) in instances.boxes.iter().enumerate().zip(ids) {
        let bbox = &detection.bbox;
        let confidence = f64::from(detection.score);
        let edges = [(bbox.x1, width), (bbox.y1, height), (bbox.x2, width), (bbox.y2, height)];
        let edges = edges.map(|(at, whole)| f64::from(at) / whole);
        let mut values = [(detection.class as i32).to_value(), confidence.to_value()]
            .into_iter()
            .chain(edges.iter().map(ToValue::to_value));
        let mut params = DETECTION.clone();
        let _ = params.map_in_place(|_, value| {
            *value = values.next().expect("as many as there are fields");
            ControlFlow::Continue(())
        });
        if is_held {
            params.set("held", true);
        }
        if held == Held::Still {
            params.set("still", true);
        }
        let mut meta = add_region(buffer, names.of(labels, detection.class), pixels(detection, size));
        meta.set_id(id);
        meta.set_parent_id(instances.parents.as_ref().map_or(NO_PARENT, |parents| parents[object]));
        meta.add_param(params);
        if let Some(params) = keypoints(instances, object, size) {
            meta.add_param(params);
        }
        if let Some(params) = rotation(instances, object, size) {
            meta.add_param(params);
        }
        if let Some(params) = mask(instances, object, size) {
            meta.add_param(params);
        }
    }
    super::classification::attach(buffer, instances, labels, is_held);
    super::text::attach(buffer, instances, is_held);
    super::vector::attach_to_frame(buffer, instances, is_held);
    super::map::attach(buffer, instances, labels, size, is_held);
    attach_analytics(buffer, instances, labels, names, size);
    super::results::attach(buffer, size);
}

/// So many ids that no region of the buffer has: those after all others. Where a foreign region has one of the last numbers, and there are
/// not so many after it, the first ones that are free.
fn free_ids(buffer: &gst::BufferRef, count: usize) -> impl Iterator<Item = i32> + use<> {
    let ids = || buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| meta.id());
    let first = ids().max().map_or(0, |last| i64::from(last) + 1).max(0);
    let is_room = first + count as i64 - 1 <= i64::from(i32::MAX);
    let (first, taken): (i32, HashSet<i32>) =
        if is_room { (first as i32, HashSet::new()) } else { (0, ids().collect()) };
    (first..=i32::MAX).filter(move |id| !taken.contains(id))
}

/// A structure with the keypoints of an object, if its model finds any, and the size of the frame that they are in
/// pixels of: an element that scales the frame scales the region, but not its parameters.
fn keypoints(instances: &Instances, object: usize, size: (u32, u32)) -> Option<gst::Structure> {
    instances.keypoints.as_ref()?;
    let mut fields = Fields(gst::Structure::new_empty("keypoints"));
    fields::visit_keypoints(instances, object, &mut fields);
    fields.frame_size(size);
    Some(fields.0)
}

/// A structure with the rotation of an object, if its model has rotated boxes, and also that size.
fn rotation(instances: &Instances, object: usize, size: (u32, u32)) -> Option<gst::Structure> {
    instances.rotated.as_ref()?;
    let mut fields = Fields(gst::Structure::new_empty("rotation"));
    fields::visit_rotation(instances, object, &mut fields);
    fields.frame_size(size);
    Some(fields.0)
}

/// A structure with the mask of an object, if its model gives masks, and also that size.
fn mask(instances: &Instances, object: usize, size: (u32, u32)) -> Option<gst::Structure> {
    if !instances.has_masks() {
        return None;
    }
    let mut fields = Fields(gst::Structure::new_empty("mask"));
    fields::visit_mask(instances, object, &mut fields);
    fields.frame_size(size);
    Some(fields.0)
}

/// [`VideoRegionOfInterestMeta::add`] takes a text, whose quark it then looks up.
fn add_region(
    buffer: &mut gst::BufferRef,
    name: Quark,
    (x, y, width, height): (u32, u32, u32, u32),
) -> gst::MetaRefMut<'_, VideoRegionOfInterestMeta, gst::meta::Standalone> {
    // SAFETY: the buffer is writable; the meta is of it and of that type.
    unsafe {
        let (buffer_ptr, name) = (buffer.as_mut_ptr(), name.into_glib());
        let meta =
            gst_video::ffi::gst_buffer_add_video_region_of_interest_meta_id(buffer_ptr, name, x, y, width, height);
        VideoRegionOfInterestMeta::from_mut_ptr(buffer, meta)
    }
}

/// No id: 0 is one.
pub const NO_PARENT: i32 = -1;

/// GstAnalytics has a table of the relations of all pairs of its metadata, a byte each, which it makes again with every fifth of them: of
/// ten thousand objects that would be 67 GB of memory written for a frame.
const MOST_ANALYTICS: usize = 1000;

/// Nothing where GStreamer has no analytics library.
fn attach_analytics(
    buffer: &mut gst::BufferRef,
    instances: &Instances,
    labels: &[String],
    names: &mut LabelQuarks,
    size: (u32, u32),
) {
    // Readers use one such meta only, so that of another model is continued. It is also attached if there are no objects:
    // objectdetectionoverlay goes on showing the last boxes until it gets a new one.
    let has_one = Relations::of(buffer).next().is_some();
    let relations = if has_one { RelationsMut::first(buffer) } else { RelationsMut::add(buffer) };
    let Some(mut relations) = relations else { return };
    for (object, detection) in instances.boxes.iter().enumerate().take(MOST_ANALYTICS) {
        let label = names.of(labels, detection.class);
        let rotated = instances.rotated_box(object);
        let detected = rotated.and_then(|rotated| relations.add_rotated(label, &rotated, detection.score));
        let detected = detected.or_else(|| {
            let (x, y, width, height) = pixels(detection, size);
            let rect = [x, y, width, height].map(|number| number as i32);
            relations.add_object(label, ObjectPlace { rect, confidence: detection.score })
        });
        if let (Some(detected), Some(mask)) = (detected, instances.mask(object)) {
            // Regions are distinguished by a byte; 0 is the background.
            let region = (object % 255 + 1) as u8;
            if let Some(id) = super::segmentation::add_instance(&mut relations, &mask, region) {
                relations.relate(Relation::Contain, detected, id);
            }
        }
    }
    if let Some(map) = instances.frame_map() {
        super::segmentation::add_map(&mut relations, map, |class| names.of(labels, class));
    }
    let classes = instances.frame_classes();
    if !classes.is_empty() {
        // It belongs to no object, so it is a class of the frame.
        relations.add_classes(classes.iter().map(|found| (names.of(labels, found.class), found.score)));
    }
}

/// The content of the element message about a frame, its `number` counted from 0.
pub fn message(
    stream_time: Option<gst::ClockTime>,
    number: u64,
    size: (u32, u32),
    instances: &Instances,
    labels: &[String],
    is_held: bool,
) -> gst::Structure {
    let objects = (0..instances.len()).map(|object| {
        let mut fields = Fields(gst::Structure::new_empty("detection"));
        fields::visit(instances, object, labels, &mut fields);
        fields.0
    });
    let mut content = gst::Structure::builder("trt-detections")
        .field("stream-time", stream_time)
        .field("frame", number)
        .field("width", size.0)
        .field("height", size.1)
        .field("held", is_held)
        .field("count", instances.len() as u32)
        .build();
    // An empty array has no type: gst-launch-1.0 -m would print one of integers.
    if !instances.is_empty() {
        content.set("detections", gst::Array::new(objects));
    }
    if !instances.frame_classes().is_empty() {
        content.set("classes", gst::Array::new(super::classification::structures(instances, labels)));
    }
    if let Some(found) = instances.frame_text() {
        content.set("text", &*found.text);
        content.set("text-confidence", f64::from(found.confidence));
    }
    if let Some(map) = instances.frame_map() {
        content.set("map", super::map::structure(map, labels));
    }
    content
}

#[cfg(test)]
mod tests {
    use gsttrt_core::image::geometry::BBox;

    use super::*;

    /// Those of foreign elements may be any numbers, and ids below 0 are none where they are a parent's.
    #[test]
    fn ids_are_those_that_no_region_has() {
        gst::init().unwrap();
        let found = |of_others: &[i32], count| -> Vec<i32> {
            let mut buffer = gst::Buffer::new();
            let frame = buffer.get_mut().unwrap();
            for &id in of_others {
                VideoRegionOfInterestMeta::add(frame, "a", (0, 0, 1, 1)).set_id(id);
            }
            free_ids(frame, count).take(count).collect()
        };
        assert_eq!(found(&[], 2), [0, 1]);
        assert_eq!(found(&[4, 1], 2), [5, 6]);
        assert_eq!(found(&[-1], 2), [0, 1]);
        assert_eq!(found(&[i32::MIN, -7], 2), [0, 1]);
        assert_eq!(found(&[i32::MAX - 2], 2), [i32::MAX - 1, i32::MAX]);
        assert_eq!(found(&[i32::MAX - 2], 3), [0, 1, 2]);
        assert_eq!(found(&[i32::MAX, 0, 2], 3), [1, 3, 4]);
    }

    #[test]
    fn whole_pixels_cover_the_box() {
        let of = |x1, y1, x2, y2| {
            let bbox = BBox::new(x1, y1, x2, y2);
            pixels(&Candidate { bbox, score: 0.5, class: 0, row: 0, angle: 0.0 }, (64, 48))
        };
        assert_eq!(of(1.0, 2.0, 3.0, 4.0), (1, 2, 2, 2));
        assert_eq!(of(1.9, 2.9, 2.1, 3.1), (1, 2, 2, 2));
        assert_eq!(of(63.9, 47.9, 64.0, 48.0), (63, 47, 1, 1));
        assert_eq!(of(-5.0, -5.0, 70.0, 50.0), (0, 0, 64, 48));
    }
}
