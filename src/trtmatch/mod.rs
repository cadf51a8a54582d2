// SPDX-License-Identifier: MPL-2.0
//! `trtmatch`: names for the vectors of objects, by a gallery of known ones, and one id for the same object on several cameras.
//!
//! Vectors are parameters of GstVideoRegionOfInterestMeta, from a model that gives vectors of objects. Only metas are read and
//! written, so frames may be in any memory, and a picture is never mapped.
//!
//! | | |
//! |---|---|
//! | region | a parameter `classification` with the name as its label, as of classifiers of objects |
//! | GstAnalytics | a GstAnalyticsClsMtd that the object contains |
//! | region | a parameter `identity` with the id over cameras |
//! | element messages `trt-match`, `trt-identity` | an object with an id has another name, or another id over cameras, than before |
//!
//! Of objects with ids the looks at them vote. The file of the gallery is read again by a thread of its own when it changes.
//!
//! * `names`: names by a gallery, on the CPU or, where that pays, on a GPU. `identities`: ids by a table, which elements of a process share by its name: `sharing`.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms draw=false ! trttrack ! trtpreprocess regions=objects object-classes=person ! trtinfer model-file=reid.onnx ! trtnms layout=embed ! trtmatch gallery=people.jsonl ! trtoverlay ! videoconvert ! autovideosink
//! ```

mod identities;
mod imp;
mod names;
mod settings;
pub mod sharing;
#[cfg(test)]
mod tests;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::image::overlay::Annotation;

/// How much a look at an object can tell: the area of its box in pixels, times its confidence. How sharp the picture is, no meta says.
fn look_quality(annotation: &Annotation) -> f32 {
    let size = annotation.bbox.width() * annotation.bbox.height();
    size * annotation.confidence.unwrap_or(1.0)
}

glib::wrapper! {
    pub struct TrtMatch(ObjectSubclass<imp::TrtMatch>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtmatch", gst::Rank::NONE, TrtMatch::static_type())
}
