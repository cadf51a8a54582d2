//! Detections as what other elements and applications read.
//!
//! Always `GstVideoRegionOfInterestMeta`: its type is the label, its id counts the objects of the frame, and a `detection`
//! structure holds `label_id`, `confidence` and the box in 0..1 of the frame, as DL Streamer's elements write and read it.
//! With GStreamer 1.24 (feature `v1_24`) also `GstAnalyticsODMtd`. And [`message`], for applications that watch the bus.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use gst::glib::Quark;
use gst::glib::translate::IntoGlib;
use gst::meta::MetaAPIExt;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;

use crate::image::Detection;

/// Name of a class, or its number where it has none: `person`, `#7`.
pub fn label_text(labels: &[String], class: u32) -> String {
    let label = labels.get(class as usize).filter(|label| !label.is_empty());
    label.cloned().unwrap_or_else(|| format!("#{class}"))
}

/// What classes are called, by GLib's numbers. To find those of a word takes a lock that all threads share: with 16 streams and 300
/// objects a frame, that was most of what they did.
#[derive(Debug, Default)]
pub struct LabelQuarks(HashMap<u32, Quark>);

impl LabelQuarks {
    fn of(&mut self, labels: &[String], class: u32) -> Quark {
        *self.0.entry(class).or_insert_with(|| Quark::from_str(label_text(labels, class)))
    }
}

/// Copied and filled in for each object, for its words have their numbers already.
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
fn pixels(detection: &Detection, (width, height): (u32, u32)) -> (u32, u32, u32, u32) {
    let bbox = detection.bbox.clip(width as f32, height as f32);
    let (x, y) = (bbox.x1.floor() as u32, bbox.y1.floor() as u32);
    (x, y, (bbox.x2.ceil() as u32).max(x) - x, (bbox.y2.ceil() as u32).max(y) - y)
}

/// Hangs `detections`, in pixels of a frame of that size, on the frame's buffer, beside those of other models. `names` are those
/// of `labels`, and empty at first.
pub fn attach(
    buffer: &mut gst::BufferRef,
    detections: &[Detection],
    labels: &[String],
    names: &mut LabelQuarks,
    size: (u32, u32),
) {
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let taken = buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| meta.id() + 1).max();
    for (id, detection) in (taken.unwrap_or(0)..).zip(detections) {
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
        let mut meta = add_region(buffer, names.of(labels, detection.class), pixels(detection, size));
        meta.set_id(id);
        meta.set_parent_id(NO_PARENT);
        meta.add_param(params);
    }
    #[cfg(feature = "v1_24")]
    attach_analytics(buffer, detections, labels, names, size);
}

/// [`VideoRegionOfInterestMeta::add`] takes a text, whose number it then looks for.
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
const NO_PARENT: i32 = -1;

#[cfg(feature = "v1_24")]
fn attach_analytics(
    buffer: &mut gst::BufferRef,
    detections: &[Detection],
    labels: &[String],
    names: &mut LabelQuarks,
    size: (u32, u32),
) {
    use gst_analytics::AnalyticsRelationMeta;
    use gst_analytics::prelude::*;

    // Readers look at one such meta only, so that of another model is continued. It is also there where nothing was found:
    // objectdetectionoverlay goes on showing the last boxes until it gets a new one.
    if buffer.meta::<AnalyticsRelationMeta>().is_none() {
        AnalyticsRelationMeta::add(buffer);
    }
    let mut relations = buffer.meta_mut::<AnalyticsRelationMeta>().expect("it is there or was just added");
    for detection in detections {
        let label = names.of(labels, detection.class);
        let (x, y, width, height) = pixels(detection, size);
        // It fails only where memory ends.
        let _ = relations.add_od_mtd(label, x as i32, y as i32, width as i32, height as i32, detection.score);
    }
}

/// The content of the element message about a frame, its `number` counted from 0.
pub fn message(
    pts: Option<gst::ClockTime>,
    number: u64,
    size: (u32, u32),
    detections: &[Detection],
    labels: &[String],
) -> gst::Structure {
    let objects = detections.iter().map(|detection| {
        let bbox = &detection.bbox;
        gst::Structure::builder("detection")
            .field("label", label_text(labels, detection.class))
            .field("class-id", detection.class)
            .field("confidence", f64::from(detection.score))
            .field("x", f64::from(bbox.x1))
            .field("y", f64::from(bbox.y1))
            .field("w", f64::from(bbox.width()))
            .field("h", f64::from(bbox.height()))
            .build()
    });
    gst::Structure::builder("trt-detections")
        .field("pts", pts)
        .field("frame", number)
        .field("width", size.0)
        .field("height", size.1)
        .field("detections", gst::Array::new(objects))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::BBox;

    #[test]
    fn classes_without_a_name_are_numbers() {
        let labels = ["person".to_string(), String::new()];
        assert_eq!([0, 1, 2].map(|class| label_text(&labels, class)), ["person", "#1", "#2"]);
    }

    #[test]
    fn whole_pixels_cover_the_box() {
        let of = |x1, y1, x2, y2| {
            let bbox = BBox::new(x1, y1, x2, y2);
            pixels(&Detection { bbox, score: 0.5, class: 0, anchor: 0 }, (64, 48))
        };
        assert_eq!(of(1.0, 2.0, 3.0, 4.0), (1, 2, 2, 2));
        assert_eq!(of(1.9, 2.9, 2.1, 3.1), (1, 2, 2, 2));
        assert_eq!(of(63.9, 47.9, 64.0, 48.0), (63, 47, 1, 1));
        assert_eq!(of(-5.0, -5.0, 70.0, 50.0), (0, 0, 64, 48));
    }
}
