// SPDX-License-Identifier: MPL-2.0
//! A head as the text of a layout file.

use std::fmt::Write;

use super::columns::{BLANKS, ENCODINGS, OVERS, word_of};
use super::read::{DIMS, SUPPRESS, TYPES};
use super::{AnomalyRange, LayoutFile};
use crate::heads::grid::StrideGrid;
use crate::heads::{Column, ElementClass, HeadFormat, HeadSizes, OutputSpec};
use crate::image::keypoints::KeypointModel;
use crate::image::transform::InputTransform;

/// What a text says of a model, besides what its head says.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelSizes {
    /// Name of each output, and its dimensions; nothing where the head's own names do.
    pub outputs: Vec<(String, Option<Vec<i64>>)>,
    pub classes: Option<usize>,
    pub coefficients: Option<usize>,
    pub grid: Option<StrideGrid>,
    pub keypoints: Option<KeypointModel>,
}

impl ModelSizes {
    /// Those that the head has itself.
    pub fn of(head: &HeadFormat) -> ModelSizes {
        let HeadSizes { classes, coefficients, grid, keypoints } = head.sizes;
        let (grid, keypoints) = (grid.clone(), keypoints.clone());
        ModelSizes { outputs: Vec::new(), classes: *classes, coefficients: *coefficients, grid, keypoints }
    }
}

/// The text of a head, under another name. Heads of files say what their file does.
pub fn to_toml(head: &HeadFormat, name: &str) -> String {
    let mut sizes = ModelSizes::of(head);
    if let Some(LayoutFile { shapes, .. }) = head.file {
        let outputs = head.outputs.iter().zip(shapes);
        sizes.outputs = outputs.map(|(output, shape)| (output.name.to_string(), shape.clone())).collect();
    }
    text(head, name, &sizes)
}

pub(super) fn text(head: &HeadFormat, name: &str, sizes: &ModelSizes) -> String {
    let mut text = format!("name = {}\nabout = {}\n", quoted(name), quoted(head.about));
    let mut line = |written: String| {
        text.push_str(&written);
        text.push('\n');
    };
    line(format!("task = \"{}\"", head.task.name()));
    if head.has_rows() {
        line(format!("suppression = \"{}\"", known(&SUPPRESS, head.suppress())));
    }
    input(&head.input, &mut line);
    if let Some(StrideGrid { strides, anchors, priors, boxes }) = &sizes.grid {
        line(format!("\n[grid]\nstrides = {strides:?}"));
        if *anchors != 1 {
            line(format!("anchors = {anchors}"));
        }
        if !priors.is_empty() {
            line(format!("priors = {:?}", priors.iter().map(|&side| side as i64).collect::<Vec<_>>()));
        }
        if !boxes.is_empty() {
            let sides = boxes.iter().map(|prior| [prior.width, prior.height].map(|side| side as i64));
            line(format!("priors = {:?}", sides.collect::<Vec<_>>()));
            let scales: Vec<f32> = boxes.iter().step_by(*anchors as usize).map(|prior| prior.scale).collect();
            line(format!("scale-x-y = {scales:?}"));
        }
    }
    if let Some(model) = &sizes.keypoints {
        line(format!("\n[keypoints]\ncount = {}\nnumbers = {}", model.shape.count, model.shape.dims));
        if !model.names.is_empty() {
            let names: Vec<String> = model.names.iter().map(|name| quoted(name)).collect();
            line(format!("names = [{}]", names.join(", ")));
        }
    }
    if let Some(AnomalyRange { image_threshold, pixel_threshold, min, max }) = head.anomaly_range() {
        line(format!("\n[anomaly]\nimage-threshold = {image_threshold}\nmin = {min}\nmax = {max}"));
        if let Some(threshold) = pixel_threshold {
            line(format!("pixel-threshold = {threshold}"));
        }
    }
    for (i, output) in head.outputs.iter().enumerate() {
        line(output_text(output, sizes.outputs.get(i), sizes));
    }
    text
}

fn output_text(output: &OutputSpec, own: Option<&(String, Option<Vec<i64>>)>, sizes: &ModelSizes) -> String {
    let mut text = String::from("\n[[output]]\n");
    let name = own.map_or(output.name, |(name, _)| name.as_str());
    if !name.is_empty() {
        let _ = writeln!(text, "name = {}", quoted(name));
    }
    if output.class != ElementClass::Float {
        let _ = writeln!(text, "type = \"{}\"", known(&TYPES, output.class));
    }
    let dims: Vec<String> = output.dims.iter().map(|&dim| format!("\"{}\"", known(&DIMS, dim))).collect();
    let _ = write!(text, "dims = [{}]", dims.join(", "));
    if let Some((_, Some(shape))) = own {
        let _ = write!(text, "\nshape = {shape:?}");
    }
    if !output.columns.is_empty() {
        let columns: Vec<String> = output.columns.iter().map(|&column| column_text(column, sizes)).collect();
        let _ = write!(text, "\ncolumns = [{}]", columns.join(", "));
    }
    text
}

fn column_text(column: Column, sizes: &ModelSizes) -> String {
    let word = word_of(column);
    let with = |rest: String| format!("{{ column = \"{word}\", {rest} }}");
    let count = |count: Option<usize>| count.map(|count| format!("count = {count}"));
    match column {
        Column::Box(encoding) => with(format!("encoding = \"{}\"", known(&ENCODINGS, encoding))),
        Column::Mask(over) => with(format!("over = \"{}\"", known(&OVERS, over))),
        Column::ClassId { first } if first != 0 => with(format!("first = {first}")),
        Column::Ignored { count } => with(format!("count = {count}")),
        Column::Characters { is_blank_last, has_space } => {
            with(format!("blank = \"{}\", space = {has_space}", known(&BLANKS, is_blank_last)))
        }
        Column::Slots { pad } => with(format!("pad = {}", quoted(&pad.to_string()))),
        Column::Logits { has_background } => {
            let count = count(sizes.classes).map_or(String::new(), |count| format!(", {count}"));
            with(format!("background = {has_background}{count}"))
        }
        Column::Classes => count(sizes.classes).map_or_else(|| format!("\"{word}\""), with),
        Column::Coefficients => count(sizes.coefficients).map_or_else(|| format!("\"{word}\""), with),
        _ => format!("\"{word}\""),
    }
}

/// What differs from what a file without these keys says.
fn input(input: &InputTransform, line: &mut impl FnMut(String)) {
    let usual = InputTransform::default();
    let numbers = |numbers: [f32; 3]| format!("[{}]", numbers.map(|number| number.to_string()).join(", "));
    let keys = [
        (input.colors != usual.colors).then(|| format!("colors = \"{}\"", input.colors.name())),
        (input.fit != usual.fit).then(|| format!("fit = \"{}\"", input.fit.name())),
        (input.shortest_edge != 0).then(|| format!("shortest-edge = {}", input.shortest_edge)),
        (input.pad != usual.pad).then(|| format!("pad = {}", input.pad)),
        (input.scale != usual.scale).then(|| format!("scale = {}", input.scale)),
        (input.mean != usual.mean).then(|| format!("mean = {}", numbers(input.mean))),
        (input.std != usual.std).then(|| format!("std = {}", numbers(input.std))),
    ];
    let keys: Vec<String> = keys.into_iter().flatten().collect();
    if !keys.is_empty() {
        line(format!("\n[input]\n{}", keys.join("\n")));
    }
}

/// The word of a value.
pub(super) fn known<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, other)| *other == value).map_or("", |(word, _)| word)
}

/// A text as TOML has it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
