// SPDX-License-Identifier: MPL-2.0
//! The properties of trtnms.

use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;

use crate::core::error::Error;
use crate::gst::overlay::{draw_labels_property, line_width_property, mask_alpha_property};
use crate::gst::property::{PropertyTable, path_property, property, text_property};
use crate::gst::{cuda, stats};
use crate::heads::{self, HeadFormat};
use crate::image::overlay::Style;
use crate::postprocess::{PostprocessOptions, read_labels};

/// The value of `layout` that leaves the choice to the model.
const AUTO: &str = "auto";

/// The user's settings.
#[derive(Clone)]
pub struct NmsSettings {
    /// The name of a head, or `auto`. Looked up with the first frame of a model.
    pub layout: String,
    pub options: PostprocessOptions,
    pub draw: bool,
    pub style: Style,
    /// Repeats the last detections on frames that are skipped.
    pub hold_detections: bool,
    pub post_messages: bool,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    pub measure: bool,
}

impl Default for NmsSettings {
    fn default() -> Self {
        NmsSettings {
            layout: AUTO.into(),
            options: PostprocessOptions::default(),
            draw: true,
            style: Style::default(),
            hold_detections: true,
            post_messages: false,
            cuda_device_id: -1,
            measure: false,
        }
    }
}

impl NmsSettings {
    /// The options for a model's first frame, with what can be checked without the model.
    ///
    /// # Errors
    /// `Settings`, where there is no such head, and where the labels cannot be read.
    pub fn options_for_model(&self) -> Result<PostprocessOptions, Error> {
        let layout = Some(self.layout.as_str()).filter(|name| !name.is_empty() && *name != AUTO);
        // The labels are read again with the model, whose classes they must match.
        self.options.label_file.as_deref().map_or(Ok(()), |path| read_labels(path).map(drop))?;
        Ok(PostprocessOptions { layout: layout.map(HeadFormat::of_name).transpose()?, ..self.options.clone() })
    }
}

pub static PROPERTIES: LazyLock<PropertyTable<NmsSettings>> = LazyLock::new(|| {
    let default = NmsSettings::default();
    PropertyTable::new(vec![
        text_property!(
            glib::ParamSpecString::builder("layout")
                .nick("Layout")
                .blurb(&format!(
                    "Output format of the model's detection head: auto (from names, shapes and metadata), {}",
                    heads::names().join(", ")
                ))
                .default_value(AUTO)
                .mutable_playing()
                .build(),
            layout
        ),
        path_property!(
            glib::ParamSpecString::builder("label-file")
                .nick("Label file")
                .blurb("UTF-8 text with one class name a line (unset = names from the model file)")
                .mutable_playing()
                .build(),
            options.label_file
        ),
        property!(
            glib::ParamSpecFloat::builder("score-threshold")
                .nick("Score threshold")
                .blurb("Boxes with a lower score are dropped")
                .minimum(0.0)
                .maximum(1.0)
                .default_value(default.options.score_threshold)
                .mutable_playing()
                .build(),
            options.score_threshold
        ),
        text_property!(
            glib::ParamSpecString::builder("class-thresholds")
                .nick("Class thresholds")
                .blurb("Score thresholds of single classes by name or id, like person=0.5,car=0.3")
                .mutable_playing()
                .build(),
            options.class_thresholds
        ),
        text_property!(
            glib::ParamSpecString::builder("classes")
                .nick("Classes")
                .blurb("Names or ids of the classes to keep, like person,car (unset = all)")
                .mutable_playing()
                .build(),
            options.classes
        ),
        property!(
            glib::ParamSpecFloat::builder("iou-threshold")
                .nick("IoU threshold")
                .blurb("Overlap (intersection over union) above which the weaker of two boxes is dropped")
                .minimum(0.0)
                .maximum(1.0)
                .default_value(default.options.iou_threshold)
                .mutable_playing()
                .build(),
            options.iou_threshold
        ),
        property!(
            glib::ParamSpecUInt::builder("max-detections")
                .nick("Maximum detections")
                .blurb("Maximum boxes of a frame; those with the best scores are kept")
                .minimum(1)
                .maximum(65536)
                .default_value(default.options.max_detections)
                .mutable_playing()
                .build(),
            options.max_detections
        ),
        property!(
            glib::ParamSpecBoolean::builder("class-agnostic")
                .nick("Class agnostic")
                .blurb("Let boxes of different classes suppress each other")
                .default_value(default.options.class_agnostic)
                .mutable_playing()
                .build(),
            options.class_agnostic
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("merge", default.options.merge.method)
                .nick("Merge")
                .blurb("What becomes of an object that several slices have found, of all but the best one")
                .mutable_playing()
                .build(),
            options.merge.method
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("merge-metric", default.options.merge.metric)
                .nick("Merge metric")
                .blurb("How the overlap of boxes of different slices is measured")
                .mutable_playing()
                .build(),
            options.merge.metric
        ),
        property!(
            glib::ParamSpecFloat::builder("merge-threshold")
                .nick("Merge threshold")
                .blurb("Overlap from which on boxes of a class, found in different slices, are one object")
                .minimum(0.0)
                .maximum(1.0)
                .default_value(default.options.merge.threshold)
                .mutable_playing()
                .build(),
            options.merge.threshold
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("mask-output", default.options.mask_output)
                .nick("Mask output")
                .blurb("What metas and messages contain of the masks of segmentation models")
                .mutable_playing()
                .build(),
            options.mask_output
        ),
        property!(
            glib::ParamSpecUInt::builder("top-k")
                .nick("Top k")
                .blurb("Maximum classes that a classifier gives for a frame; those with the best scores are kept")
                .minimum(1)
                .maximum(65536)
                .default_value(default.options.top_k)
                .mutable_playing()
                .build(),
            options.top_k
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("class-scores", default.options.class_scores)
                .nick("Class scores")
                .blurb("What the output of a classifier holds")
                .mutable_playing()
                .build(),
            options.class_scores
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("background-class", default.options.background_class)
                .nick("Background class")
                .blurb("Which of a row's logits is the background's, for models of the DETR family whose file does not contain it")
                .mutable_playing()
                .build(),
            options.background_class
        ),
        property!(
            glib::ParamSpecBoolean::builder("draw")
                .nick("Draw")
                .blurb("Draw the boxes on the frame")
                .default_value(default.draw)
                .mutable_playing()
                .build(),
            draw
        ),
        property!(draw_labels_property("Write class and score at each drawn box"), style.labels),
        property!(line_width_property(), style.line_width),
        property!(mask_alpha_property(), style.mask_alpha),
        property!(
            glib::ParamSpecBoolean::builder("hold-detections")
                .nick("Hold detections")
                .blurb("On frames that trtinfer skips (interval), repeat the last detections, marked as held")
                .default_value(default.hold_detections)
                .mutable_playing()
                .build(),
            hold_detections
        ),
        property!(
            glib::ParamSpecBoolean::builder("post-messages")
                .nick("Post messages")
                .blurb("Post an element message trt-detections for each frame: stream-time, frame, width, height, held, count, and detections with label, class-id, confidence, x, y, w, h")
                .default_value(default.post_messages)
                .mutable_playing()
                .build(),
            post_messages
        ),
        property!(cuda::device_id_property(), cuda_device_id),
        property!(stats::measure_property(), measure),
    ])
});
