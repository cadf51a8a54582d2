// SPDX-License-Identifier: MPL-2.0
//! Whether models on objects get objects, and whether what they say goes anywhere. Else it is an error: they would take time, and have no
//! effect.

use std::path::{Path, PathBuf};

use gst::glib;
use gst::prelude::*;
use gsttrt_core::image::masks::MaskOutput;
use gsttrt_core::options::Choices;
use gsttrt_core::redact::redacted;
use gsttrt_publish::record::FrameRecord;

use super::DetectArgs;
use super::table::{NO_MAPS, RowSubject, SEVERAL_VECTORS};
use crate::chain::{InferenceElements, ModelElements, element, models_before, stage};
use crate::failure::Failure;
use crate::serve::{HeadSettings, ModelOutcome, ModelSettings};
use crate::terminal::print_error;

/// What the files of the models tell. `configured` has the elements of the chain with their properties.
pub fn check(args: &DetectArgs, chain: &InferenceElements, configured: &gst::Pipeline) -> Result<(), Failure> {
    if args.vectors && args.rows == Some(RowSubject::Tracks) && args.json.is_none() {
        let text = "Rows of tracks have no vectors: use --rows objects, add --json FILE, or leave --vectors out.";
        return Err(text.into());
    }
    let is_shown = args.json.is_some() || args.output.is_some() || args.show.is_some();
    let is_table_alone = args.parquet.is_some() && !is_shown;
    if chain.on_objects.is_empty() && args.parquet.is_none() {
        return Ok(());
    }
    let outcomes: Vec<ModelOutcome> = (chain.models().enumerate())
        .map(|(number, model)| outcome(configured, number, &model.model.model).unwrap_or_default())
        .collect();
    if chain.on_objects.is_empty() {
        if outcomes[0].is_map && gives_maps(configured) {
            return Err(NO_MAPS.into());
        }
        let has_no_column = is_table_alone && outcomes[0].is_vector && !args.vectors;
        return if has_no_column { Err(no_column(&chain.first, true, "give another model")) } else { Ok(()) };
    }
    if !outcomes[0].may_give_objects {
        return Err(no_objects(chain));
    }
    let has_vectors = args.parquet.is_some() && args.vectors && args.rows != Some(RowSubject::Tracks);
    if has_vectors && outcomes.iter().filter(|outcome| outcome.is_vector).count() > 1 {
        return Err(SEVERAL_VECTORS.into());
    }
    let is_compared = args.tracker().is_some_and(|tracker| models_before(&tracker, outcomes.len()) > 1);
    let vectors = outcomes[1..].iter().position(|outcome| outcome.is_vector);
    if let Some(number) = vectors.filter(|_| !args.vectors && !is_table_alone && !is_compared) {
        let name = shown(&chain.on_objects[number].model.model);
        print_error(&format!("Warning: {name} gives vectors, and nothing is done with them: --vectors writes them."));
    }
    let has_column = |outcome: &ModelOutcome| !outcome.is_map && (args.vectors || !outcome.is_vector);
    if !is_table_alone || is_compared || outcomes[1..].iter().any(has_column) {
        return Ok(());
    }
    Err(no_column(&chain.on_objects[0], outcomes[1].is_vector, "leave --on-objects out"))
}

/// Whether the first model's maps come with its results.
fn gives_maps(configured: &gst::Pipeline) -> bool {
    let output = element(configured, &stage("nms", 0)).property_value("mask-output");
    let word = glib::EnumValue::from_value(&output).map_or("", |(_, value)| value.nick());
    MaskOutput::of_word(word) != Some(MaskOutput::None)
}

/// What the model says has none in the table.
fn no_column(model: &ModelElements, is_vector: bool, instead: &str) -> Failure {
    let name = shown(&model.model.model);
    let remedy = if is_vector { "add --vectors, with --rows objects or frames" } else { "add --json FILE" };
    format!("What {name} says has no column in the table of --parquet: {remedy}, or {instead}.").into()
}

/// What a model gives, where its file can tell. What is wrong with it the pipeline says.
fn outcome(configured: &gst::Pipeline, number: usize, file: &Path) -> Option<ModelOutcome> {
    let [infer, nms] = ["infer", "nms"].map(|name| element(configured, &stage(name, number)));
    let path = |property: &str| nms.property::<Option<PathBuf>>(property);
    let (labels, layout_file) = (path("label-file"), path("layout-file"));
    let settings = ModelSettings {
        file,
        labels: labels.as_deref(),
        batch_size: infer.property::<u32>("batch-size") as usize,
        input_size: infer.property::<Option<String>>("input-size").unwrap_or_default(),
        input_values: infer.property::<Option<String>>("input-values").unwrap_or_default(),
        head: HeadSettings::of(&nms, layout_file.as_deref()).ok()?,
    };
    settings.check().ok().map(|(outcome, _)| outcome)
}

/// Whether the results of a frame are of the whole of it, and not of objects. Of models in engines and on servers nothing tells it
/// before.
pub fn is_of_whole(frame: &FrameRecord) -> bool {
    let is_of_pixels = |map: &serde_json::Value| map["kind"] != "objects";
    let has_map = frame.maps.iter().flatten().any(is_of_pixels);
    frame.objects.is_empty() && (frame.classes.is_some() || !frame.texts.is_empty() || has_map)
}

/// The first model of the chain finds none.
pub fn no_objects(chain: &InferenceElements) -> Failure {
    let [first, second] = [0, 1].map(|number| {
        let model = chain.models().nth(number).map(|model| shown(&model.model.model));
        model.unwrap_or_default()
    });
    let text = format!(
        "{first} finds no objects, and {second} is to see them: give --model a detector, or leave --on-objects out."
    );
    text.into()
}

/// A model as messages name it; it may be on a server.
fn shown(model: &Path) -> String {
    redacted(&model.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_texts_and_maps_are_of_the_whole_frame() {
        let nothing = FrameRecord::default;
        let with_map = |kind: &str| FrameRecord { maps: Some(vec![json!({ "kind": kind })]), ..nothing() };
        for (frame, expected) in [
            (nothing(), false),
            (FrameRecord { classes: Some(vec![json!({ "label": "disc" })]), ..nothing() }, true),
            (FrameRecord { texts: vec![json!({ "text": "Hi" })], ..nothing() }, true),
            (with_map("depth"), true),
            (with_map("classes"), true),
            (with_map("objects"), false),
        ] {
            assert_eq!(is_of_whole(&frame), expected, "{frame:?}");
        }
    }
}
