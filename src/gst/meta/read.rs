//! What metas say about the objects in a frame, whoever attached them.
//!
//! Read are GstVideoRegionOfInterestMeta, with the parameters `detection` and `object_id` as trtnms and DL Streamer write them and
//! `rotation` as trtnms does, and with GStreamer 1.24 the objects of GstAnalyticsRelationMeta with their trackings. An object of which both tell is one.

use std::borrow::Cow;
use std::ffi::CStr;

use gst::glib;
use gst_video::VideoRegionOfInterestMeta;

use crate::image::geometry::BBox;
use crate::image::overlay::Annotation;
use crate::image::rotated::RotatedBox;

/// The objects of a frame of that size, the most confident first. Those that do not say are as sure as can be.
pub fn annotations(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<Annotation<'static>> {
    let regions = buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| region(&meta, size));
    let mut annotations: Vec<_> = regions.collect();
    #[cfg(feature = "v1_24")]
    analytics::add_to(&mut annotations, buffer, size);
    let confidence = |annotation: &Annotation| annotation.confidence.unwrap_or(1.0);
    annotations.sort_by(|a, b| confidence(b).total_cmp(&confidence(a)));
    annotations
}

fn region(meta: &gst::MetaRef<VideoRegionOfInterestMeta>, size: (u32, u32)) -> Annotation<'static> {
    let detection = meta.param("detection");
    let number = |field| detection?.get::<f64>(field).ok();
    // SAFETY: a public field of a structure that `meta` keeps.
    let roi_type = unsafe { (*meta.as_ptr()).roi_type };
    let (x, y, width, height) = meta.rect();
    let rect = edges([x, y, width, height].map(i64::from));
    Annotation {
        bbox: float_box(rect, ["x_min", "y_min", "x_max", "y_max"].map(number), size),
        rotated: meta.param("rotation").and_then(rotated_box).filter(|rotated| are_near(hull(rotated, size), rect)),
        class: detection.and_then(|detection| detection.get::<i32>("label_id").ok()?.try_into().ok()),
        label: text_of(roi_type),
        confidence: number("confidence").map(|value| value as f32).filter(|value| value.is_finite()),
        track_id: meta.param("object_id").and_then(|param| param.get::<i32>("id").ok()?.try_into().ok()),
    }
}

/// Left, top, right and bottom of a rectangle of which a meta says left, top, width and height.
fn edges([x, y, width, height]: [i64; 4]) -> [f64; 4] {
    [x, y, x + width, y + height].map(|edge| edge as f64)
}

/// The edges that a meta says in 0..1 of the frame, where its rectangle says the same. Elements that move or scale a region know its
/// rectangle only.
fn float_box(rect: [f64; 4], fractions: [Option<f64>; 4], (width, height): (u32, u32)) -> BBox {
    if let [Some(x1), Some(y1), Some(x2), Some(y2)] = fractions {
        let (width, height) = (f64::from(width), f64::from(height));
        let exact = [x1 * width, y1 * height, x2 * width, y2 * height];
        if are_near(exact, rect) {
            return bbox(exact);
        }
    }
    bbox(rect)
}

/// Whether two boxes may be one, of which one or both are rounded to whole pixels that cover it. NaN is near nothing.
fn are_near(a: [f64; 4], b: [f64; 4]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 2.0)
}

/// The turned box of whose corners a structure tells. Elements that move or scale a region do not know it.
fn rotated_box(rotation: &gst::StructureRef) -> Option<RotatedBox> {
    let angle = rotation.get::<f64>("angle").ok()? as f32;
    let numbers = rotation.get::<gst::Array>("corners").ok()?;
    let numbers: Vec<f32> = numbers.iter().filter_map(|number| number.get::<f64>().ok()).map(|n| n as f32).collect();
    let [x0, y0, x1, y1, x2, y2, x3, y3] = numbers.try_into().ok()?;
    let bbox = BBox::from_center((x0 + x2) * 0.5, (y0 + y2) * 0.5, (x0 - x3).hypot(y0 - y3), (x0 - x1).hypot(y0 - y1));
    angle.is_finite().then_some(RotatedBox { bbox, angle })
}

/// The edges of the upright box around a turned one, inside a frame of that size.
fn hull(rotated: &RotatedBox, (width, height): (u32, u32)) -> [f64; 4] {
    let BBox { x1, y1, x2, y2 } = rotated.hull().clip(width as f32, height as f32);
    [x1, y1, x2, y2].map(f64::from)
}

fn bbox(edges: [f64; 4]) -> BBox {
    let [x1, y1, x2, y2] = edges.map(|edge| edge as f32);
    BBox::new(x1, y1, x2, y2)
}

/// What GLib keeps for the rest of the program under that number; nothing where the number is none. The bindings take it for
/// granted that there is a text, and that it is UTF-8.
fn text_of(quark: glib::ffi::GQuark) -> Cow<'static, str> {
    // SAFETY: any number may be asked for; texts end with a zero and are never freed.
    unsafe {
        let text = glib::ffi::g_quark_to_string(quark);
        if text.is_null() { "".into() } else { CStr::from_ptr(text).to_string_lossy() }
    }
}

#[cfg(feature = "v1_24")]
mod analytics {
    use glib::translate::IntoGlib;
    use gst::glib;
    use gst_analytics::prelude::*;
    use gst_analytics::{AnalyticsODMtd, AnalyticsRelationMeta, AnalyticsTrackingMtd, RelTypes, ffi};

    use super::{Annotation, are_near, bbox, edges, hull, text_of};
    use crate::image::rotated::RotatedBox;

    pub fn add_to(annotations: &mut Vec<Annotation<'static>>, buffer: &gst::BufferRef, size: (u32, u32)) {
        // Each region is the same as one object at most.
        let mut is_paired = vec![false; annotations.len()];
        for meta in buffer.iter_meta::<AnalyticsRelationMeta>() {
            for found in meta.iter::<AnalyticsODMtd>() {
                let Ok(place) = found.location() else { continue };
                let rotated = oriented(&found);
                let upright = || edges([place.x, place.y, place.w, place.h].map(i64::from));
                let rect = rotated.map_or_else(upright, |rotated| hull(&rotated, size));
                let label = text_of(found.obj_type().map_or(0, IntoGlib::into_glib));
                let confidence = Some(place.loc_conf_lvl).filter(|confidence| confidence.is_finite());
                let mut trackings = meta.iter_direct_related::<AnalyticsTrackingMtd>(found.id(), RelTypes::RELATE_TO);
                let track_id = trackings.find_map(|tracking| track_id(&meta, tracking.id()));
                let is_same = |annotation: &Annotation| {
                    let bbox = annotation.bbox;
                    annotation.label == label && are_near([bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from), rect)
                };
                let mut regions = is_paired.iter_mut().zip(annotations.iter_mut());
                if let Some((is_paired, annotation)) = regions.find(|(paired, region)| !**paired && is_same(region)) {
                    *is_paired = true;
                    annotation.confidence = annotation.confidence.or(confidence);
                    annotation.rotated = annotation.rotated.or(rotated);
                    annotation.track_id = track_id.or(annotation.track_id);
                    continue;
                }
                annotations.push(Annotation { bbox: bbox(rect), rotated, class: None, label, confidence, track_id });
            }
        }
    }

    /// The box as it is turned, if it is.
    #[cfg(feature = "v1_26")]
    fn oriented(found: &gst_analytics::AnalyticsMtdRef<AnalyticsODMtd>) -> Option<RotatedBox> {
        let place = found.oriented_location().ok().filter(|place| place.r != 0.0 && place.r.is_finite())?;
        Some(RotatedBox { bbox: bbox(edges([place.x, place.y, place.w, place.h].map(i64::from))), angle: place.r })
    }

    #[cfg(not(feature = "v1_26"))]
    fn oriented(_found: &gst_analytics::AnalyticsMtdRef<AnalyticsODMtd>) -> Option<RotatedBox> {
        None
    }

    /// Not `info()` of the bindings, which panics where a time is unknown.
    fn track_id(meta: &gst::MetaRef<AnalyticsRelationMeta>, id: u32) -> Option<u64> {
        let mtd = ffi::GstAnalyticsTrackingMtd { id, meta: meta.as_ptr().cast_mut() };
        let (mut track_id, mut first, mut last, mut lost) = (0, 0, 0, 0);
        // SAFETY: the meta lives, and the id is that of one of its trackings.
        let known =
            unsafe { ffi::gst_analytics_tracking_mtd_get_info(&mtd, &mut track_id, &mut first, &mut last, &mut lost) };
        (known != 0).then_some(track_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The box of a region of a frame of 100x50.
    fn edges_of(rect: [i64; 4], fractions: [f64; 4]) -> [f32; 4] {
        let bbox = float_box(edges(rect), fractions.map(Some), (100, 50));
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
