// SPDX-License-Identifier: MPL-2.0
//! The objects of a frame in its metas, attached by any element.
//!
//! Read are GstVideoRegionOfInterestMeta, with the parameters `detection` and `object_id` as trtnms and DL Streamer
//! write them and `keypoints`, `rotation`, `orientation` and `mask` as trtnms does, and from GStreamer 1.24 on the objects of
//! GstAnalyticsRelationMeta with their trackings, from 1.26 on with their segmentations.
//! An object in both is one.

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::Arc;

use gst::glib;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::keypoints::{KeypointShape, ObjectKeypoints};
use gsttrt_core::image::masks::Mask;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::image::rotated::{self, Corners};

use super::orientation;
use super::relations::{Metadata, Relation, Relations};
use super::structure::{scale, scaled_numbers};

/// The objects of a frame of that size, the most confident first. Those without a confidence count as 1.
pub fn annotations(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<Annotation<'static>> {
    let mut annotations = objects(buffer, size).annotations;
    annotations.extend(with_analytics(super::classification::annotations(buffer), buffer));
    annotations.extend(super::text::annotations(buffer));
    let confidence = |annotation: &Annotation| annotation.confidence.unwrap_or(1.0);
    annotations.sort_by(|a, b| confidence(b).total_cmp(&confidence(a)));
    annotations
}

/// The objects of a frame in the order of their metas.
#[derive(Default)]
pub struct MetaObjects {
    pub annotations: Vec<Annotation<'static>>,
    /// How many have a region: the first ones.
    pub regions: usize,
    /// The index of the GstAnalyticsRelationMeta and the id in it, for each object that has them.
    pub analytics: Vec<Option<(usize, u32)>>,
    /// Which are upside down, as far as is known.
    pub turned: Vec<bool>,
}

/// The objects of a frame of that size.
pub fn objects(buffer: &gst::BufferRef, size: (u32, u32)) -> MetaObjects {
    let mut objects = MetaObjects::default();
    ObjectReader::default().read(&mut objects, buffer, size);
    objects
}

/// Reads the objects of frame after frame, in memory that the first ones have taken.
#[derive(Default)]
pub struct ObjectReader {
    /// Where the object of each region was detected.
    found_at: Vec<BBox>,
    /// Whether a region has an object of GstAnalytics: each has at most one.
    is_paired: Vec<bool>,
}

impl ObjectReader {
    /// Reads those of a frame of that size in place of others.
    pub fn read(&mut self, objects: &mut MetaObjects, buffer: &gst::BufferRef, size: (u32, u32)) {
        let MetaObjects { annotations, regions, analytics, turned } = objects;
        annotations.clear();
        turned.clear();
        self.found_at.clear();
        for meta in buffer.iter_meta::<VideoRegionOfInterestMeta>() {
            let (annotation, found_at) = region(&meta, size);
            annotations.push(annotation);
            turned.push(orientation::is_turned(&meta));
            self.found_at.push(found_at);
        }
        *regions = annotations.len();
        analytics.clear();
        analytics.resize(*regions, None);
        self.is_paired.clear();
        self.is_paired.resize(*regions, false);
        self.add_analytics(objects, buffer, size);
        objects.turned.resize(objects.annotations.len(), false);
    }

    /// Adds the objects of GstAnalytics to those of regions. A region that was moved is still the object that was detected with it.
    fn add_analytics(&mut self, objects: &mut MetaObjects, buffer: &gst::BufferRef, size: (u32, u32)) {
        let (MetaObjects { annotations, analytics, .. }, ObjectReader { found_at, is_paired }) = (objects, self);
        for (number, relations) in Relations::of(buffer).enumerate() {
            for id in relations.all(Metadata::Object) {
                let Some(place) = relations.place(id) else { continue };
                let corners = relations.rotated(id).map(|rotated| rotated.corners());
                let upright = edges(place.rect.map(i64::from));
                let rect = corners.as_ref().map_or(upright, |corners| {
                    let BBox { x1, y1, x2, y2 } = hull(corners, size);
                    [x1, y1, x2, y2].map(f64::from)
                });
                let label = text_of(relations.label(id));
                let confidence = Some(place.confidence).filter(|confidence| confidence.is_finite());
                let trackings = relations.related(id, Relation::RelateTo, Metadata::Tracking);
                let track_id = trackings.into_iter().find_map(|id| relations.track(id));
                let mask = super::segmentation::mask_of(&relations, id, size).map(Arc::new);
                let is_same = |annotation: &Annotation, found_at: BBox| {
                    annotation.label == label && (are_near(annotation.bbox, rect) || are_near(found_at, rect))
                };
                let regions =
                    is_paired.iter_mut().zip(analytics.iter_mut()).zip(annotations.iter_mut()).zip(&*found_at);
                let mut open = regions.filter(|(((is_paired, _), _), _)| !**is_paired);
                let same = open.find(|((_, region), at)| is_same(region, **at));
                if let Some((((is_paired, analytics), annotation), _)) = same {
                    *is_paired = true;
                    *analytics = Some((number, id));
                    annotation.confidence = annotation.confidence.or(confidence);
                    if are_near(annotation.bbox, rect) {
                        annotation.corners = annotation.corners.or(corners);
                        annotation.mask = annotation.mask.take().or(mask);
                    }
                    annotation.track_id = track_id.or(annotation.track_id);
                    continue;
                }
                analytics.push(Some((number, id)));
                annotations.push(Annotation {
                    bbox: bbox(rect),
                    corners,
                    class: None,
                    label,
                    confidence,
                    track_id,
                    of_frame: false,
                    keypoints: None,
                    attributes: Vec::new(),
                    notes: Vec::new(),
                    mask,
                });
            }
        }
    }
}

/// The label of a region.
pub(super) fn label(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> Cow<'static, str> {
    // SAFETY: a public field of a structure that `meta` keeps.
    text_of(unsafe { (*meta.as_ptr()).roi_type })
}

/// The object of a region, and where it was detected: elsewhere, if an element has moved the region since.
fn region(meta: &gst::MetaRef<VideoRegionOfInterestMeta>, size: (u32, u32)) -> (Annotation<'static>, BBox) {
    let detection = meta.param("detection");
    let number = |field| detection?.get::<f64>(field).ok();
    let (x, y, width, height) = meta.rect();
    let rect = edges([x, y, width, height].map(i64::from));
    let found_at = fractional_box(["x_min", "y_min", "x_max", "y_max"].map(number), size).unwrap_or_else(|| bbox(rect));
    let (bbox, is_in_place) = place(found_at, rect);
    let is_around = |corners: &Corners| are_near(hull(corners, size), rect);
    let annotation = Annotation {
        bbox,
        corners: meta.param("rotation").and_then(|param| corners(param, size)).filter(is_around),
        class: detection.and_then(|detection| detection.get::<i32>("label_id").ok()?.try_into().ok()),
        label: label(meta),
        confidence: number("confidence").map(|value| value as f32).filter(|value| value.is_finite()),
        track_id: meta.param("object_id").and_then(|param| param.get::<i32>("id").ok()?.try_into().ok()),
        // If the region was moved, it is not known where they are now.
        of_frame: false,
        keypoints: meta.param("keypoints").filter(|_| is_in_place).and_then(|param| keypoints(param, size)),
        attributes: super::attributes::read(meta),
        notes: notes(meta),
        mask: meta.param("mask").filter(|_| is_in_place).and_then(|param| mask(param, size)).map(Arc::new),
    };
    (annotation, found_at)
}

/// The zones that the object of a region is in, and its id over cameras.
fn notes(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> Vec<String> {
    let zones = meta.param(super::zones::PARAM).map(super::zones::notes).unwrap_or_default();
    zones.into_iter().chain(super::identity::of_region(meta).map(|id| format!("id {id}"))).collect()
}

/// The keypoints of a region, in pixels of a frame of that size; `None` where the parameter is not as trtnms writes it.
fn keypoints(param: &gst::StructureRef, size: (u32, u32)) -> Option<ObjectKeypoints<'static>> {
    let [x, y] = scale(param, size)?;
    let dims = param.get::<u32>("keypoint-dims").ok().filter(|dims| (2..=3).contains(dims))?;
    let values = scaled_numbers(param, "keypoints", &[x, y, 1.0][..dims as usize])?;
    let count = u16::try_from(values.len() / dims as usize).ok()?;
    let shape = KeypointShape { count, dims: dims as u8 };
    (shape.numbers() == values.len()).then(|| ObjectKeypoints { shape, values: values.into() })
}

/// The mask of a region on a frame of that size; `None` where the parameter is not as trtnms writes it, or of a frame
/// that is very much greater.
fn mask(param: &gst::StructureRef, size: (u32, u32)) -> Option<Mask> {
    const MAX_SCALE: u32 = 16;
    let number = |field| param.get::<u32>(field).ok();
    let from = (number("frame-width")?, number("frame-height")?);
    let is_near = |from: u32, to: u32| from > 0 && from / MAX_SCALE <= to;
    if !is_near(from.0, size.0) || !is_near(from.1, size.1) {
        return None;
    }
    let (left, top) = (number("mask-x")?, number("mask-y")?);
    let (right, bottom) = (left.checked_add(number("mask-width")?)?, top.checked_add(number("mask-height")?)?);
    let rect = Some(Rect { left, top, right, bottom }).filter(|_| right <= from.0 && bottom <= from.1)?;
    let mask = Mask::from_counts(rect, param.get("mask-counts").ok()?)?;
    Some(if from == size { mask } else { mask.placed(from, &Rect::from(size).into(), size) })
}

/// Left, top, right and bottom of a rectangle whose meta holds left, top, width and height.
fn edges([x, y, width, height]: [i64; 4]) -> [f64; 4] {
    [x, y, x + width, y + height].map(|edge| edge as f64)
}

/// The box that a meta holds in 0..1 of the frame.
fn fractional_box(fractions: [Option<f64>; 4], (width, height): (u32, u32)) -> Option<BBox> {
    let [Some(x1), Some(y1), Some(x2), Some(y2)] = fractions else { return None };
    let (width, height) = (f64::from(width), f64::from(height));
    Some(bbox([x1 * width, y1 * height, x2 * width, y2 * height]))
}

/// The box of a region that was detected there and has this rectangle, and whether both agree. Elements that move or scale a
/// region change only its rectangle.
fn place(found_at: BBox, rect: [f64; 4]) -> (BBox, bool) {
    if are_near(found_at, rect) { (found_at, true) } else { (bbox(rect), false) }
}

/// Whether a rectangle may be this box, rounded to whole pixels that cover it. NaN is never near.
fn are_near(bbox: BBox, rect: [f64; 4]) -> bool {
    let edges = [bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from);
    edges.iter().zip(rect).all(|(a, b)| (a - b).abs() < 2.0)
}

/// The corners of a rotated box, in pixels of a frame of that size; `None` where it is not rotated, or the parameter is
/// not as trtnms writes it.
fn corners(param: &gst::StructureRef, size: (u32, u32)) -> Option<Corners> {
    let angle = param.get::<f64>("angle").ok()? as f32;
    let numbers: [f32; 8] = scaled_numbers(param, "corners", &scale(param, size)?)?.try_into().ok()?;
    (angle != 0.0 && angle.is_finite()).then(|| [0, 2, 4, 6].map(|at| [numbers[at], numbers[at + 1]]))
}

/// The part inside a frame of that size of the smallest upright box around corners.
fn hull(corners: &Corners, size: (u32, u32)) -> BBox {
    rotated::hull(corners).clip(&Rect::from(size).into())
}

fn bbox(edges: [f64; 4]) -> BBox {
    let [x1, y1, x2, y2] = edges.map(|edge| edge as f32);
    BBox::new(x1, y1, x2, y2)
}

/// The text of a quark, which GLib keeps for the rest of the program; `None` where the number is not a quark. The
/// bindings assume that there is a text, and that it is UTF-8.
pub(super) fn text_of(quark: glib::ffi::GQuark) -> Cow<'static, str> {
    // SAFETY: any number may be passed; texts end with a zero and are never freed.
    unsafe {
        let text = glib::ffi::g_quark_to_string(quark);
        if text.is_null() { "".into() } else { CStr::from_ptr(text).to_string_lossy() }
    }
}

/// Adds the classes of GstAnalytics that belong to no object, except those whose labels are already present.
fn with_analytics(mut known: Vec<Annotation<'static>>, buffer: &gst::BufferRef) -> Vec<Annotation<'static>> {
    let labels: Vec<_> = known.iter().map(|annotation| annotation.label.clone()).collect();
    for relations in Relations::of(buffer) {
        let mut of_objects = super::segmentation::classifications(&relations);
        for object in relations.all(Metadata::Object) {
            of_objects.extend(relations.belonging_to(object, Metadata::Classes));
        }
        for id in relations.all(Metadata::Classes).filter(|id| !of_objects.contains(id)) {
            for (quark, level) in relations.classes(id) {
                let label = text_of(quark);
                if !labels.contains(&label) {
                    let confidence = Some(level).filter(|level| level.is_finite());
                    known.push(Annotation { confidence, ..Annotation::of_frame(label) });
                }
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The box of a region of a frame of 100x50.
    fn edges_of(rect: [i64; 4], fractions: [f64; 4]) -> [f32; 4] {
        let (bbox, _) = place(fractional_box(fractions.map(Some), (100, 50)).unwrap(), edges(rect));
        [bbox.x1, bbox.y1, bbox.x2, bbox.y2]
    }

    #[test]
    fn fractions_count_where_the_rectangle_agrees() {
        assert_eq!(edges_of([10, 10, 21, 16], [0.105, 0.21, 0.305, 0.51]), [10.5, 10.5, 30.5, 25.5]);
        assert_eq!(edges_of([40, 10, 21, 16], [0.105, 0.21, 0.305, 0.51]), [40.0, 10.0, 61.0, 26.0], "it was moved");
        assert_eq!(edges_of([10, 10, 21, 16], [f64::NAN, 0.21, 0.305, 0.51]), [10.0, 10.0, 31.0, 26.0]);
        assert_eq!(edges_of([10, 10, 21, 16], [0.1, 0.2, f64::INFINITY, 0.51]), [10.0, 10.0, 31.0, 26.0]);
    }

    #[test]
    fn any_quark_has_a_text() {
        assert_eq!(text_of(0), "");
        assert_eq!(text_of(u32::MAX), "");
        // SAFETY: a text with a zero at its end.
        let latin1 = unsafe { glib::ffi::g_quark_from_string(c"caf\xe9".as_ptr()) };
        assert_eq!(text_of(latin1), "caf\u{fffd}");
    }
}
