//! Detections as the metas that other elements and applications read.
//!
//! Always `GstVideoRegionOfInterestMeta`: its type is the label, and a `detection` structure holds `label_id`, `confidence`
//! and the box in 0..1 of the frame, as DL Streamer's elements write and read it. With GStreamer 1.24 (feature `v1_24`) also
//! `GstAnalyticsODMtd`.

use crate::vision::Detection;

/// Name of a class, or its number where labels end: `person`, `#7`.
pub fn label_text(labels: &[String], class: u32) -> String {
    labels.get(class as usize).cloned().unwrap_or_else(|| format!("#{class}"))
}

/// Left, top, width and height in whole pixels that cover the box, inside a frame of that size.
fn pixels(detection: &Detection, (width, height): (u32, u32)) -> (u32, u32, u32, u32) {
    let bbox = detection.bbox.clip(width as f32, height as f32);
    let (x, y) = (bbox.x1.floor() as u32, bbox.y1.floor() as u32);
    (x, y, (bbox.x2.ceil() as u32).max(x) - x, (bbox.y2.ceil() as u32).max(y) - y)
}

/// Hangs `detections`, in pixels of a frame of that size, on the frame's buffer.
pub fn attach(buffer: &mut gst::BufferRef, detections: &[Detection], labels: &[String], size: (u32, u32)) {
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    for detection in detections {
        let label = label_text(labels, detection.class);
        let bbox = &detection.bbox;
        let params = gst::Structure::builder("detection")
            .field("label_id", detection.class as i32)
            .field("confidence", f64::from(detection.score))
            .field("x_min", f64::from(bbox.x1) / width)
            .field("y_min", f64::from(bbox.y1) / height)
            .field("x_max", f64::from(bbox.x2) / width)
            .field("y_max", f64::from(bbox.y2) / height)
            .build();
        let rect = pixels(detection, size);
        gst_video::VideoRegionOfInterestMeta::add(buffer, &label, rect).add_param(params);
    }
    #[cfg(feature = "v1_24")]
    attach_analytics(buffer, detections, labels, size);
}

#[cfg(feature = "v1_24")]
fn attach_analytics(buffer: &mut gst::BufferRef, detections: &[Detection], labels: &[String], size: (u32, u32)) {
    use gst_analytics::prelude::*;

    if detections.is_empty() {
        return;
    }
    let mut relations = gst_analytics::AnalyticsRelationMeta::add(buffer);
    for detection in detections {
        let label = gst::glib::Quark::from_str(label_text(labels, detection.class));
        let (x, y, width, height) = pixels(detection, size);
        // It fails only where memory ends.
        let _ = relations.add_od_mtd(label, x as i32, y as i32, width as i32, height as i32, detection.score);
    }
}
