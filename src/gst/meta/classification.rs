// SPDX-License-Identifier: MPL-2.0
//! Classes of the whole frame as metas that other elements and applications read.
//!
//! Always a `GstCustomMeta` called [`NAME`], which any program can read without our headers, by
//! `gst_buffer_get_custom_meta`: its structure has an array `classes` of structures with `label`, `class-id` and
//! `confidence`, the most probable first, of clips with `start-stream-time` and `end-stream-time` too, and `held` where they are those of an earlier frame. Classes of a second
//! model follow those of the first. From GStreamer 1.24 on also a `GstAnalyticsClsMtd` that belongs to
//! no object.

use std::sync::Once;

use gst::meta::CustomMeta;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::postprocess::{Instances, fields};

use super::structure::Fields;

pub const NAME: &str = "GstTrtClassificationMeta";

/// Registers the meta, once in a program.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Without tags: it stays on the frame through all elements that change the picture.
        if !CustomMeta::is_registered(NAME) {
            CustomMeta::register_simple(NAME);
        }
    });
}

/// The classes of a frame, as in the message and the meta.
pub fn structures(instances: &Instances, labels: &[String]) -> Vec<gst::Structure> {
    let structure = |rank| {
        let mut fields = Fields(gst::Structure::new_empty("class"));
        fields::visit_class(instances, rank, labels, &mut fields);
        fields.0
    };
    (0..instances.frame_classes().len()).map(structure).collect()
}

/// Attaches the classes of a frame to its buffer.
pub fn attach(buffer: &mut gst::BufferRef, instances: &Instances, labels: &[String], is_held: bool) {
    if instances.classes.is_none() {
        return;
    }
    register();
    let classes = structures(instances, labels);
    let is_there = CustomMeta::from_buffer(buffer, NAME).is_ok();
    let meta = if is_there { CustomMeta::from_mut_buffer(buffer, NAME) } else { CustomMeta::add(buffer, NAME) };
    let Ok(mut meta) = meta else { return };
    let structure = meta.mut_structure();
    let before = structure.get::<gst::Array>("classes").unwrap_or_default();
    let all = before.iter().filter_map(|value| value.get::<gst::Structure>().ok()).chain(classes);
    structure.set("classes", gst::Array::new(all));
    if is_held {
        structure.set("held", true);
    }
}

/// The annotations for the classes of the whole frame in its metas.
pub fn annotations(buffer: &gst::BufferRef) -> Vec<Annotation<'static>> {
    register();
    let meta = CustomMeta::from_buffer(buffer, NAME).ok();
    let array = meta.and_then(|meta| meta.structure().get::<gst::Array>("classes").ok()).unwrap_or_default();
    let read = |value: &gst::glib::SendValue| {
        let class = value.get::<gst::Structure>().ok()?;
        let confidence = class.get::<f64>("confidence").ok().map(|score| score as f32);
        Some(Annotation {
            class: class.get::<u32>("class-id").ok(),
            confidence: confidence.filter(|confidence| confidence.is_finite()),
            ..Annotation::of_frame(class.get::<String>("label").unwrap_or_default().into())
        })
    };
    array.iter().filter_map(read).collect()
}
