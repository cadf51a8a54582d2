// SPDX-License-Identifier: MPL-2.0
//! Attributes of objects: what classifiers and readers of objects have found, in the objects' metas.
//!
//! A parameter [`NAME`] of the region for each classifier, with `label`, `label_id` and `confidence` of the best class as DL
//! Streamer writes and reads it, the `model`, `held` where the result is that of an earlier frame, and an array
//! `classes` of all that it gave; of a clip also `start-stream-time` and `end-stream-time`. From GStreamer 1.24 on also a GstAnalyticsClsMtd that the object contains. Of a text that was read the
//! parameter has `label`, `confidence`, `model`, `held` and `text`, which is true; where several frames have decided on the label, and this
//! one has another, `read` is that.

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::label_text;
use gsttrt_core::image::overlay::{Annotation, Attribute};
use gsttrt_core::postprocess::fields::FieldVisitor;
use gsttrt_core::postprocess::{ClipSpan, FoundText, RankedClass};

use super::relations::{Relation, RelationsMut};
use super::structure::{Fields, change_params};
use crate::gst::meta::tensor::ObjectRegion;

/// The name of the parameter.
pub const NAME: &str = "classification";

/// When a clip begins and ends, in nanoseconds of stream time.
const START: &str = "start-stream-time";
const END: &str = "end-stream-time";

/// Attaches the classes of an object, the best first, with the time of the clip that they are of, if they are of one. Nothing is
/// attached where its meta is gone, or there are none.
pub fn attach(
    buffer: &mut gst::BufferRef,
    object: &ObjectRegion,
    (classes, span): (&[RankedClass], Option<ClipSpan>),
    labels: &[String],
    model: &str,
    is_held: bool,
) {
    let Some(best) = classes.first() else { return };
    let of_class = |found: &RankedClass| {
        let mut fields = Fields(gst::Structure::new_empty("class"));
        fields.text("label", &label_text(labels, found.class));
        fields.integer("class-id", found.class);
        fields.number("confidence", found.score);
        fields.0
    };
    let region = object.region.and_then(|index| buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().nth(index));
    if let Some(mut region) = region {
        let mut params = gst::Structure::builder(NAME)
            .field("label", &*label_text(labels, best.class))
            .field("label_id", best.class as i32)
            .field("confidence", f64::from(best.score))
            .field("model", model)
            .field("classes", gst::Array::new(classes.iter().map(of_class)))
            .build();
        if let Some(ClipSpan { start, end }) = span {
            params.set(START, start);
            params.set(END, end);
        }
        if is_held {
            params.set("held", true);
        }
        region.add_param(params);
    }
    attach_analytics(buffer, object, classes, labels);
}

/// Attaches the text of an object. Nothing is attached where its region is gone, or nothing was read. GstAnalytics gets none: its labels
/// stay in memory until the program ends, and texts are without end.
pub fn attach_text(buffer: &mut gst::BufferRef, object: &ObjectRegion, found: &FoundText, model: &str, is_held: bool) {
    let region = object.region.and_then(|index| buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().nth(index));
    if let Some(mut region) = region.filter(|_| !found.text.is_empty()) {
        let mut params = gst::Structure::builder(NAME)
            .field("label", &*found.text)
            .field("confidence", f64::from(found.confidence))
            .field("model", model)
            .field("text", true)
            .build();
        if is_held {
            params.set("held", true);
        }
        region.add_param(params);
    }
}

fn attach_analytics(buffer: &mut gst::BufferRef, object: &ObjectRegion, classes: &[RankedClass], labels: &[String]) {
    let Some((0, detected)) = object.analytics else { return };
    let Some(mut relations) = RelationsMut::first(buffer) else { return };
    let named = |found: &RankedClass| (gst::glib::Quark::from_str(&*label_text(labels, found.class)), found.score);
    if let Some(id) = relations.add_classes(classes.iter().map(named)) {
        relations.relate(Relation::Contain, detected, id);
    }
}

/// The attributes of a region, also those of other elements that write them as DL Streamer does.
pub fn read(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> Vec<Attribute> {
    let attribute = |param: &gst::StructureRef| {
        let is_text = is_text(param);
        let is_one = param.name() != "detection" && (is_text || param.has_field("label_id"));
        let label = param.get::<String>("label").ok().filter(|_| is_one)?;
        let confidence = param.get::<f64>("confidence").ok().map(|value| value as f32);
        let class = param.get::<i32>("label_id").ok().and_then(|id| id.try_into().ok());
        let time = |name: &str| param.get::<u64>(name).ok();
        let span = time(START).zip(time(END)).map(|(start, end)| [start, end]);
        Some(Attribute { label, class, confidence: confidence.filter(|value| value.is_finite()), is_text, span })
    };
    meta.params().filter_map(attribute).collect()
}

/// Whether it is the parameter of a text.
fn is_text(param: &gst::StructureRef) -> bool {
    param.name() == NAME && param.get::<bool>("text") == Ok(true) && param.get::<&str>("label").is_ok()
}

/// Whether texts of an object are known.
pub fn has_texts(annotation: &Annotation) -> bool {
    annotation.attributes.iter().any(|attribute| attribute.is_text)
}

/// A text of an object with an id.
#[derive(Clone, Copy, Debug)]
pub struct ReadText<'a> {
    pub id: u64,
    /// The how many-th of its object.
    pub number: usize,
    pub text: &'a str,
    pub confidence: f32,
    /// It is that of an earlier frame.
    pub is_held: bool,
}

/// Asks for the text, with its confidence, that is to be in place of each text of an object with an id, in its region and in its
/// annotation. The first annotations are those of the regions, in their order.
pub fn replace_texts(
    buffer: &mut gst::BufferRef,
    annotations: &mut [Annotation],
    mut decide: impl FnMut(ReadText) -> Option<(String, f32)>,
) {
    for (mut region, annotation) in buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().zip(annotations) {
        let Some(id) = annotation.track_id else { continue };
        let mut texts = annotation.attributes.iter_mut().filter(|attribute| attribute.is_text).enumerate();
        change_params(&mut region, |param| {
            let Some((number, attribute)) = is_text(param).then(|| texts.next()).flatten() else { return };
            let (confidence, is_held) = (attribute.confidence.unwrap_or(0.0), param.get::<bool>("held") == Ok(true));
            let read = ReadText { id, number, text: &attribute.label, confidence, is_held };
            let Some((text, confidence)) = decide(read) else { return };
            if text != attribute.label {
                param.set("read", &*attribute.label);
            }
            param.set("label", &*text);
            param.set("confidence", f64::from(confidence));
            (attribute.label, attribute.confidence) = (text, Some(confidence));
        });
    }
}

/// As in messages.
pub fn structures(attributes: &[Attribute]) -> gst::Array {
    let structure = |attribute: &Attribute| {
        let mut fields = Fields(gst::Structure::new_empty("attribute"));
        fields.text("label", &attribute.label);
        attribute.class.into_iter().for_each(|class| fields.integer("class-id", class));
        attribute.confidence.into_iter().for_each(|confidence| fields.number("confidence", confidence));
        if let Some([start, end]) = attribute.span {
            fields.time(START, start);
            fields.time(END, end);
        }
        fields.0
    };
    gst::Array::new(attributes.iter().map(structure))
}
