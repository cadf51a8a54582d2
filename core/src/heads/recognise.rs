// SPDX-License-Identifier: MPL-2.0
//! Which head a model has.
//!
//! Names decide where a head's outputs have names. Else every head of the model's task whose dimensions fit gives its
//! evidence; a class count that agrees with the labels decides between those left, then the stronger confidence. There
//! is no guess between equals: the error names them.

use smallvec::SmallVec;

use super::background::BackgroundClass;
pub(super) use super::fit::Confidence;
use super::fit::{HeadMatch, by_levels, fit, keypoints_of, prototypes_of};
use super::grid::{rows_per_cell, strides_of};
use super::{Dim, HEADS, HeadFormat, OutputSpec, declared, exports, layout_file};
use crate::error::{Error, ErrorKind, Result};
use crate::image::keypoints::KeypointModel;
use crate::tensor::{Dims, TensorDesc, list};

/// The maximum number of boxes that heads choose themselves; 300 is usual.
const MAX_CHOSEN: u64 = 1000;

/// What is known about a model besides its outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelHints {
    /// Number of labels, from a label file or the model's metadata.
    pub classes: Option<usize>,
    /// Width and height of the model's input.
    pub input: Option<(u32, u32)>,
    /// How many pictures its input holds, where that is fixed.
    pub batch: Option<i64>,
    /// The last output is probabilities, such as by a softmax in the graph.
    pub has_probabilities: bool,
    /// Boxes are final according to the metadata: Ultralytics' `end2end`, or `nms` in its `args`.
    pub end_to_end: bool,
    /// Ultralytics exported it: `author` in the metadata.
    pub ultralytics: bool,
    /// `description`, `head` and `task` in Ultralytics' metadata; empty where there is none.
    pub description: String,
    pub head: String,
    pub task: String,
    /// Of models that find keypoints.
    pub keypoints: Option<KeypointModel>,
    /// Its graph samples feature maps at points between pixels, as deformable attention does.
    pub samples_points: bool,
    /// Its graph has an `Exp`, as one that makes sizes of YOLOX's logarithms.
    pub takes_exponentials: bool,
    /// It gives as many rows as it finds: its graph suppresses boxes, or the first dimension of its output is open where its batch
    /// is not.
    pub chooses_rows: bool,
    /// The characters that a text may have are in its metadata.
    pub has_dictionary: bool,
    /// Which logit is the background's, for heads with logits.
    pub background: BackgroundClass,
    /// The head that the model's own metadata describe, or what is wrong with that text.
    pub own: Option<Result<&'static HeadFormat>>,
}

impl ModelHints {
    pub(super) fn rtdetr(&self) -> bool {
        self.head == "RTDETRDecoder" || self.description.to_ascii_lowercase().contains("rtdetr")
    }
}

/// An output that has the dimensions of a head.
pub(super) struct HeadCandidate<'a> {
    pub name: &'a str,
    /// It is the model's only output.
    pub is_alone: bool,
    pub grid: AnchorGrid,
    /// -1 where that is dynamic.
    pub rows: i64,
    /// Elements of a row.
    pub columns: i64,
    pub output: &'a TensorDesc,
    pub hints: &'a ModelHints,
}

impl HeadCandidate<'_> {
    /// The strides of the grid over the input with one cell for each row.
    pub fn strides(&self) -> Option<&'static [u32]> {
        strides_of(u64::try_from(self.rows).ok()?, self.hints.input?)
    }

    /// How many classes rows have, if so many of their elements are none.
    pub fn classes_without(&self, others: usize) -> usize {
        usize::try_from(self.columns).unwrap_or(0).saturating_sub(others)
    }

    /// Whether that is the number of labels.
    pub fn is_labelled(&self, classes: usize) -> bool {
        self.hints.classes == Some(classes)
    }

    /// Whether the output's first dimension may be that of the model's batch.
    pub fn follows_batch(&self) -> bool {
        match (self.hints.batch, self.output.dims.first()) {
            // That of one picture, where those of a batch have been taken apart.
            (Some(batch), Some(&first)) => first == batch || first == 1,
            _ => true,
        }
    }

    /// Pixels of the model's input for one of a map, across and down, where that is a whole number and the same.
    pub fn pixels_of_map(&self) -> Option<i64> {
        let &[height, width] = self.output.dims.last_chunk()?;
        let (input_width, input_height) = self.hints.input?;
        let (input_width, input_height) = (i64::from(input_width), i64::from(input_height));
        let pixels = input_width.checked_div(width)?;
        (pixels > 0
            && width.checked_mul(pixels) == Some(input_width)
            && height.checked_mul(pixels) == Some(input_height))
        .then_some(pixels)
    }
}

/// The number of rows for each cell of a grid over the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnchorGrid {
    One,
    Three,
    /// Not anchors: as few rows as a head has that chooses its boxes itself.
    Few,
    /// Not the anchors of any known grid.
    Other,
    /// The input's size or the number of rows is not known.
    Unknown,
}

/// The head of a model with these outputs, whose dimensions may be open; `choice` is the user's.
///
/// A dynamic number of rows is no evidence. What is ambiguous then need not be at the first inference, when
/// [`Decoder::new`](super::Decoder::new) asks again. Until then only [`HeadFormat::input`] depends on it.
///
/// # Errors
/// Tasks that no head is for, outputs that fit no head or (with neither labels nor names to decide) more than one,
/// outputs that do not fit the choice, and class counts that are not the number of labels.
pub fn recognise(
    choice: Option<&'static HeadFormat>,
    outputs: &[TensorDesc],
    hints: &ModelHints,
) -> Result<&'static HeadFormat> {
    find(choice, outputs, hints).map(|found| found.format)
}

/// The head that [`recognise`] finds, and which outputs it reads, in its own order.
///
/// # Errors
/// As [`recognise`].
pub fn recognise_outputs(
    outputs: &[TensorDesc],
    hints: &ModelHints,
) -> Result<(&'static HeadFormat, SmallVec<[usize; 4]>)> {
    find(None, outputs, hints).map(|found| (found.format, found.outputs))
}

/// The head that [`recognise`] finds, and the number of its classes; `None` where rows name their class, or where that is open.
///
/// # Errors
/// As [`recognise`].
pub fn recognise_classes(
    choice: Option<&'static HeadFormat>,
    outputs: &[TensorDesc],
    hints: &ModelHints,
) -> Result<(&'static HeadFormat, Option<usize>)> {
    find(choice, outputs, hints).map(|found| (found.format, found.classes))
}

/// What is recognised of a model's outputs, and why.
pub struct Recognised {
    pub format: &'static HeadFormat,
    /// Which outputs it reads, in its own order.
    pub outputs: SmallVec<[usize; 4]>,
    /// The number of classes; `None` where rows name their class.
    pub classes: Option<usize>,
    /// Clauses: what decided.
    pub reason: String,
}

/// As [`recognise`] finds it without a choice of the user's, with the reasons.
///
/// # Errors
/// As [`recognise`].
pub fn explain(outputs: &[TensorDesc], hints: &ModelHints) -> Result<Recognised> {
    let HeadMatch { format, outputs: indices, classes, confidence, doubt, .. } = find(None, outputs, hints)?;
    let read: Vec<TensorDesc> = indices.iter().map(|&index| outputs[index].clone()).collect();
    let one = read.len() == 1;
    let (has, fits) = if one { ("has", "fits") } else { ("have", "fit") };
    let mut reasons =
        vec![match (format.file.is_none() && (is_found_by_shape(format) || format.has_levels()), confidence) {
            // By a name, a number or the metadata.
            (true, Confidence::Sign) => format!("{} {fits} only this layout", list(&read)),
            (true, Confidence::Shape) => format!("{} {has} the dimensions of this layout", list(&read)),
            (false, _) if format.file.is_some() => format!("{} describe it", layout_file::OF_METADATA),
            (false, _) => format!("{} {has} the names and dimensions of this layout", list(&read)),
        }];
    if hints.task == format.task.name() {
        reasons.push(format!("the task is “{}”", hints.task));
    }
    if let (Some(classes), Some(labels)) = (classes, hints.classes)
        && classes == labels
    {
        reasons.push(match labels {
            1 => "1 name for 1 class".to_string(),
            _ => format!("{labels} names for {classes} classes"),
        });
    }
    if let Some(others) = doubt.filter(|others| !others.is_empty()) {
        let names = others.iter().map(|format| format.name.to_string());
        reasons.push(format!("it may be {} as well", join(names, "or")));
    }
    Ok(Recognised { format, outputs: indices, classes, reason: reasons.join("; ") })
}

/// Refuses models for a task that no head is for.
pub(crate) fn check_task(task: &str) -> Result<()> {
    if is_for(task).next().is_some() {
        return Ok(());
    }
    let mut tasks: Vec<String> = Vec::new();
    for format in HEADS {
        let name = format!("“{}”", format.task.name());
        if !tasks.contains(&name) {
            tasks.push(name);
        }
    }
    let verb = if tasks.len() == 1 { "is" } else { "are" };
    let what = format!("Its task is “{task}”, and only {} {verb} supported", join(tasks.into_iter(), "and"));
    Err(Error::new(ErrorKind::Model, what).remedy("Use the detection model of the same family"))
}

/// The heads for a task; all where the model has none.
fn is_for(task: &str) -> impl Iterator<Item = &'static HeadFormat> {
    HEADS.iter().copied().filter(move |format| task.is_empty() || format.task.name() == task)
}

pub(super) fn find(
    choice: Option<&'static HeadFormat>,
    outputs: &[TensorDesc],
    hints: &ModelHints,
) -> Result<HeadMatch> {
    check_task(&hints.task)?;
    let choice = match choice {
        None => hints.own.clone().transpose()?,
        chosen => chosen,
    };
    let mut found = match choice.map(|format| (format, format.file)) {
        Some((format, Some(file))) => declared::find(format, file, outputs, hints)?,
        Some((format, None)) => forced(format, outputs, hints)?,
        None => guessed(outputs, hints)?,
    };
    if let (Some(slots), Some(is_usual)) = (found.classes, found.format.usual_background()) {
        found.background = hints.background.slot(slots, hints.classes, is_usual)?;
        found.classes = Some(slots - usize::from(found.background.is_some()));
    }
    match (found.classes, hints.classes) {
        (Some(classes), Some(labels)) if classes != labels => {
            let format = found.format;
            let scores =
                format.outputs.iter().position(|output| output.columns.iter().any(|column| column.are_scores()));
            let of_each = found.outputs.len() / format.outputs.len();
            let output = &outputs[found.outputs[scores.unwrap_or(0) * of_each]];
            let classes = counted(classes, "class", "classes");
            let others = found.coefficients.filter(|_| format.has_prototypes());
            let others = others.map(|count| counted(count, "mask coefficient", "mask coefficients"));
            let others = others.or(found.background.map(|_| "the background".into()));
            let others = others.map_or(String::new(), |counted| format!(" and {counted}"));
            let labels = counted(labels, "label", "labels");
            let what = format!("Output {output} has {classes}{others} as {format}, against {labels}");
            let background = format.usual_background().map_or("", |_| ", or background-class if it has one");
            Err(Error::new(ErrorKind::Settings, what).remedy(format!(
                "Set label-file on trtnms (labels in gst-trt serve) to the file that belongs to the model, one line for each \
                 class{background}, or {}",
                other_layout(choice)
            )))
        }
        _ => Ok(found),
    }
}

fn forced(format: &'static HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Result<HeadMatch> {
    if !is_for(&hints.task).any(|other| other == format) {
        let what =
            format!("layout={format} is for the task “{}”, and the model's is “{}”", format.task.name(), hints.task);
        return Err(Error::new(ErrorKind::Settings, what).remedy("Set layout=auto on trtnms"));
    }
    let named = || named(format, outputs, hints);
    let in_order = || fit(format, outputs, hints, (0..format.outputs.len()).collect());
    let any = || placements(format, outputs).into_iter().find_map(|indices| fit(format, outputs, hints, indices));
    let by_levels = || by_levels(format, outputs, hints);
    let found = match (format.has_levels(), is_found_by_shape(format)) {
        (true, _) => by_levels(),
        (false, true) => any(),
        // Exports of other releases have other names, or none.
        (false, false) if format.is_map() || format.is_score() => named().or_else(any),
        (false, false) => named().or_else(in_order),
    };
    found.ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("The model's outputs do not fit layout={format}"))
            .cause(format!(
                "it reads {}, and there is {}{}{}",
                format.expects(),
                list(outputs),
                keypoints_of(format, hints),
                prototypes_of(format, outputs)
            ))
            .remedy(format!("On trtnms, {}", other_layout(Some(format))))
    })
}

/// What to do where a layout does not fit; `choice` is the user's.
pub(super) fn other_layout(choice: Option<&HeadFormat>) -> &'static str {
    match choice {
        Some(format) if format.file.is_some() => "set layout-file to the file that belongs to the model",
        Some(_) => "set layout=auto or the layout that the model has",
        None => "set layout to the one that the model has",
    }
}

/// Whether the outputs of a head need no names: it has one, or another of other dimensions next to it.
fn is_found_by_shape(format: &HeadFormat) -> bool {
    format.outputs.iter().all(|output| output.name.is_empty()) && !format.has_levels()
}

/// Which outputs may be those of a head that is found by their shape. Of those alone the last comes first; of boxes
/// with scores in another output, first those that are called boxes, then in the order of the model.
fn placements(format: &HeadFormat, outputs: &[TensorDesc]) -> Vec<SmallVec<[usize; 4]>> {
    let mut firsts: Vec<usize> = (0..outputs.len()).rev().collect();
    if format.outputs.len() > 1 && !format.has_prototypes() {
        firsts.sort_by_key(|&i| (!outputs[i].name.contains("box"), i));
    }
    let others = |i: usize| (0..outputs.len()).filter(move |&at| at != i);
    match format.outputs.len() {
        1 => firsts.into_iter().map(|i| [i].into_iter().collect()).collect(),
        2 => firsts.into_iter().flat_map(|i| others(i).map(move |at| [i, at].into_iter().collect())).collect(),
        _ => {
            let pairs = firsts.into_iter().flat_map(|i| others(i).map(move |at| [i, at]));
            let rest =
                |[i, at]: [usize; 2]| others(i).filter(move |&third| third != at).map(move |third| [i, at, third]);
            pairs.flat_map(rest).map(|three| three.into_iter().collect()).collect()
        }
    }
}

fn guessed(outputs: &[TensorDesc], hints: &ModelHints) -> Result<HeadMatch> {
    let heads = || is_for(&hints.task);
    let by_name = heads()
        .filter(|head| !is_found_by_shape(head) && !head.has_levels())
        .filter_map(|head| named(head, outputs, hints));
    // One head may be another with masks, or with a map, next to it.
    if let Some(found) = by_name.max_by_key(|found| found.outputs.len()) {
        return if lacks_map(&found, outputs) { Err(unknown(outputs, hints)) } else { Ok(found) };
    }
    if let Some(found) = heads().filter(|head| head.has_levels()).find_map(|head| by_levels(head, outputs, hints)) {
        return Ok(found);
    }
    let mut found: Vec<HeadMatch> =
        heads().filter(|head| is_found_by_shape(head)).filter_map(|head| by_shape(head, outputs, hints)).collect();
    if let Some(labels) = hints.classes {
        let agrees = |found: &HeadMatch| found.classes.is_none_or(|classes| classes == labels);
        if found.iter().any(agrees) {
            found.retain(agrees);
        }
    }
    let strongest = found.iter().map(|found| found.confidence).max();
    let (mut found, weaker): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|found| Some(found.confidence) == strongest);
    let weaker = weaker.into_iter().map(|found| found.format).collect::<Vec<_>>();
    match found.len() {
        1 => {
            let found = found.remove(0);
            // Metadata, or as many labels as classes.
            let is_told = hints.ultralytics
                || !hints.task.is_empty()
                || found.classes.is_some() && found.classes == hints.classes;
            let is_doubtful = !is_told && (found.confidence == Confidence::Shape || !weaker.is_empty());
            Ok(HeadMatch { doubt: is_doubtful.then_some(weaker), ..found })
        }
        0 => Err(unknown(outputs, hints)),
        _ => Err(ambiguous(&found, outputs, hints)),
    }
}

/// Whether a score would be read alone, and the map next to it, which has other dimensions than Anomalib's, lost without a word.
fn lacks_map(found: &HeadMatch, outputs: &[TensorDesc]) -> bool {
    found.format.is_score() && outputs.iter().any(|output| output.name.contains("anomaly_map"))
}

/// A head of outputs that have names, found by these.
fn named(format: &'static HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<HeadMatch> {
    // TensorFlow's tensors are called `detection_boxes:0`.
    let plain = |name: &'_ str| name.split_once(':').map_or(name, |(plain, _)| plain).to_string();
    let index = |output: &OutputSpec| outputs.iter().position(|desc| plain(&desc.name) == output.name);
    fit(format, outputs, hints, format.outputs.iter().map(index).collect::<Option<_>>()?)
}

/// A head that needs no names, if it fits and there is evidence for it. Of two alike the last is taken: YOLOv9's auxiliary
/// head comes first.
fn by_shape(format: &'static HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<HeadMatch> {
    placements(format, outputs).into_iter().find_map(|indices| {
        let index = indices[0];
        let mut found = fit(format, outputs, hints, indices)?;
        let desc = &outputs[index];
        // Boxes and scores in separate outputs, for the same rows: this is one half of another head.
        let halved = outputs.iter().enumerate().any(|(at, other)| {
            !found.outputs.contains(&at)
                && matches!(other.dims.len(), 2 | 3)
                && other.dims != desc.dims
                && other.dims[1..].contains(&found.rows)
        });
        // Also where other dimensions are dynamic, the channels are not.
        if halved || found.columns == Dims::DYNAMIC && format.outputs[0].dims.contains(&Dim::Columns) {
            return None;
        }
        let grid = match (hints.input, u64::try_from(found.rows)) {
            (Some(input), Ok(rows)) => match rows_per_cell(rows, input) {
                Some(1) => AnchorGrid::One,
                Some(_) => AnchorGrid::Three,
                None if rows <= MAX_CHOSEN => AnchorGrid::Few,
                None => AnchorGrid::Other,
            },
            (None, Ok(_)) if found.rows <= found.columns => return None,
            _ => AnchorGrid::Unknown,
        };
        let HeadMatch { rows, columns, .. } = found;
        found.confidence = (format.likely)(&HeadCandidate {
            name: &desc.name,
            is_alone: outputs.len() == 1,
            grid,
            rows,
            columns,
            output: desc,
            hints,
        })?;
        Some(found)
    })
}

fn unknown(outputs: &[TensorDesc], hints: &ModelHints) -> Error {
    let input = hints.input.map_or(String::new(), |(width, height)| format!(" for an input of {width}x{height}"));
    let layouts = is_for(&hints.task).map(|format| format.name.to_string());
    let keypoints = is_for(&hints.task).map(|format| keypoints_of(format, hints)).filter(|_| !hints.task.is_empty());
    let keypoints = keypoints.max().unwrap_or_default();
    let prototypes =
        is_for(&hints.task).map(|format| prototypes_of(format, outputs)).filter(|_| !hints.task.is_empty());
    let others = format!("{input}{keypoints}{}", prototypes.max().unwrap_or_default());
    let remedy = exports::remedy(outputs).map_or_else(
        || {
            let all = join(layouts, "or");
            format!(
                "If it has one of these, set it as layout on trtnms: {all}. For others write a layout file; gst-trt info \
                 --explain-layout makes a draft"
            )
        },
        str::to_string,
    );
    Error::new(ErrorKind::Model, format!("No layout fits the model's outputs {}{others}", list(outputs))).remedy(remedy)
}

fn ambiguous(found: &[HeadMatch], outputs: &[TensorDesc], hints: &ModelHints) -> Error {
    let readings = found.iter().map(|found| match found.classes {
        Some(classes) => format!("{} with {}", found.format.name, counted(classes, "class", "classes")),
        None => found.format.name.to_string(),
    });
    let output = &outputs[found[0].outputs[0]];
    let count = ["two", "three", "four"].get(found.len() - 2).unwrap_or(&"several");
    let labels = hints.classes.map_or(String::new(), |labels| format!(", for {}", counted(labels, "label", "labels")));
    let what = format!("Output {output} fits {count} layouts: {}{labels}", join(readings, "and"));
    let choices = found.iter().map(|found| format!("layout={}", found.format.name));
    Error::new(ErrorKind::Settings, what).remedy(format!("Set {} on trtnms", join(choices, "or")))
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `a, b or c`
fn join(words: impl Iterator<Item = String>, conjunction: &str) -> String {
    let words: Vec<String> = words.collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        _ => words.concat(),
    }
}
