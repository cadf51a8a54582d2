// SPDX-License-Identifier: MPL-2.0
//! Which head a model has.
//!
//! Names decide where a head's outputs have names. Else every head of the model's task whose dimensions fit is asked what speaks
//! for it; a class count that agrees with the labels decides between those left, then the stronger confidence. A guess between
//! equals is never made: the error names them.

use smallvec::SmallVec;

use super::decode::rows_per_cell;
use super::{Column, Dim, ElementClass, HEADS, HeadFormat, OutputSpec};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, Dims, TensorDesc, list};
use crate::image::keypoints::KeypointModel;

/// Most boxes that heads choose themselves; 300 is usual.
const MOST_CHOSEN: u64 = 1000;

/// What is known about a model beside its outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelHints {
    /// Number of labels, from a label file or the model's metadata.
    pub classes: Option<usize>,
    /// Width and height of the model's input.
    pub input: Option<(u32, u32)>,
    /// The metadata say that boxes are final: Ultralytics' `end2end`, or `nms` in its `args`.
    pub end_to_end: bool,
    /// Ultralytics exported it: `author` in the metadata.
    pub ultralytics: bool,
    /// `description`, `head` and `task` in Ultralytics' metadata; empty where there is none.
    pub description: String,
    pub head: String,
    pub task: String,
    /// Of models that find keypoints.
    pub keypoints: Option<KeypointModel>,
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
    /// -1 where that is open.
    pub rows: i64,
    /// Elements of a row.
    pub columns: i64,
    pub hints: &'a ModelHints,
}

/// How many rows there are for each cell of a grid over the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnchorGrid {
    One,
    Three,
    /// These are no anchors, but as few as the boxes of a head that chooses some itself.
    Few,
    /// These are no anchors of a grid that is known here.
    Other,
    /// The input's size or the number of rows is not known.
    Unknown,
}

/// What speaks for a head, the weaker first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Confidence {
    Shape,
    /// A name, metadata, or a number that no other head has.
    Sign,
}

/// A head laid over the outputs.
pub(super) struct HeadMatch {
    pub format: &'static HeadFormat,
    /// In the order of the head's.
    pub outputs: SmallVec<[usize; 4]>,
    pub rows: i64,
    pub columns: i64,
    /// `None` for heads that name class ids.
    pub classes: Option<usize>,
    confidence: Confidence,
}

/// The head of a model with these outputs, whose dimensions may be open; `choice` is the user's.
///
/// An open number of rows tells nothing: what is ambiguous then need not be at the first inference, when
/// [`Decoder::new`](super::Decoder::new) asks again. Until then only [`HeadFormat::input`] depends on it.
///
/// # Errors
/// Tasks that no head is for, outputs that fit no head or (with neither labels nor names to tell) more than one, outputs that do
/// not fit the choice, and class counts that are not the number of labels.
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

/// The heads for a task; all where the model does not say.
fn is_for(task: &str) -> impl Iterator<Item = &'static HeadFormat> {
    HEADS.iter().copied().filter(move |format| task.is_empty() || format.task.name() == task)
}

pub(super) fn find(
    choice: Option<&'static HeadFormat>,
    outputs: &[TensorDesc],
    hints: &ModelHints,
) -> Result<HeadMatch> {
    check_task(&hints.task)?;
    let found = match choice {
        Some(format) => forced(format, outputs, hints)?,
        None => guessed(outputs, hints)?,
    };
    match (found.classes, hints.classes) {
        (Some(classes), Some(labels)) if classes != labels => {
            let (output, format) = (&outputs[found.outputs[0]], found.format);
            let classes = counted(classes, "class", "classes");
            let what =
                format!("Output {output} has {classes} as {format}, against {}", counted(labels, "label", "labels"));
            Err(Error::new(ErrorKind::Settings, what).remedy(
                "Set layout=auto on trtnms, or the layout that the model has, and use the label file that belongs to the model, \
                 one line for each class",
            ))
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
    let any = || (0..outputs.len()).rev().find_map(|i| fit(format, outputs, hints, [i].into_iter().collect()));
    let found = if format.outputs.len() == 1 { any() } else { named().or_else(in_order) };
    found.ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("The model's outputs do not fit layout={format}"))
            .cause(format!(
                "it reads {}, and there is {}{}",
                format.expects(),
                list(outputs),
                keypoints_of(format, hints)
            ))
            .remedy("Set layout=auto on trtnms, or the layout that the model has")
    })
}

/// What the model says of its keypoints, where a head asks for that.
fn keypoints_of(format: &HeadFormat, hints: &ModelHints) -> String {
    if !format.outputs.iter().any(|output| output.columns.contains(&Column::Keypoints)) {
        return String::new();
    }
    match &hints.keypoints {
        Some(model) => {
            format!(", with kpt_shape [{}, {}] in the model's metadata", model.shape.count, model.shape.dims)
        }
        None => ", without kpt_shape in the model's metadata".into(),
    }
}

fn guessed(outputs: &[TensorDesc], hints: &ModelHints) -> Result<HeadMatch> {
    let heads = || is_for(&hints.task);
    let by_name = heads().filter(|head| head.outputs.len() > 1).find_map(|head| named(head, outputs, hints));
    if let Some(found) = by_name {
        return Ok(found);
    }
    let mut found: Vec<HeadMatch> =
        heads().filter(|head| head.outputs.len() == 1).filter_map(|head| alone(head, outputs, hints)).collect();
    if let Some(labels) = hints.classes {
        let agrees = |found: &HeadMatch| found.classes.is_none_or(|classes| classes == labels);
        if found.iter().any(agrees) {
            found.retain(agrees);
        }
    }
    let strongest = found.iter().map(|found| found.confidence).max();
    found.retain(|found| Some(found.confidence) == strongest);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(unknown(outputs, hints)),
        _ => Err(ambiguous(&found, outputs, hints)),
    }
}

/// A head of several outputs, found by their names.
fn named(format: &'static HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<HeadMatch> {
    // TensorFlow's tensors are called `detection_boxes:0`.
    let plain = |name: &'_ str| name.split_once(':').map_or(name, |(plain, _)| plain).to_string();
    let index = |output: &OutputSpec| outputs.iter().position(|desc| plain(&desc.name) == output.name);
    fit(format, outputs, hints, format.outputs.iter().map(index).collect::<Option<_>>()?)
}

/// A head of one output, if it fits and something speaks for it. Of two alike the last is taken: YOLOv9's auxiliary
/// head comes first.
fn alone(format: &'static HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<HeadMatch> {
    (0..outputs.len()).rev().find_map(|index| {
        let mut found = fit(format, outputs, hints, [index].into_iter().collect())?;
        let desc = &outputs[index];
        // Boxes and scores apart, for the same rows: this is one half of something else.
        let halved = outputs.iter().any(|other| {
            matches!(other.dims.len(), 2 | 3) && other.dims != desc.dims && other.dims[1..].contains(&found.rows)
        });
        // However open a model is, it knows its channels.
        if halved || found.columns == Dims::DYNAMIC {
            return None;
        }
        let grid = match (hints.input, u64::try_from(found.rows)) {
            (Some(input), Ok(rows)) => match rows_per_cell(rows, input) {
                Some(1) => AnchorGrid::One,
                Some(_) => AnchorGrid::Three,
                None if rows <= MOST_CHOSEN => AnchorGrid::Few,
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
            hints,
        })?;
        Some(found)
    })
}

/// Lays a head over these outputs. Open dimensions take anything.
fn fit(
    format: &'static HeadFormat,
    outputs: &[TensorDesc],
    hints: &ModelHints,
    indices: SmallVec<[usize; 4]>,
) -> Option<HeadMatch> {
    let keypoints = hints.keypoints.as_ref().map(|keypoints| keypoints.shape);
    let (mut rows, mut columns, mut classes) = (Dims::DYNAMIC, Dims::DYNAMIC, None);
    for (output, &index) in format.outputs.iter().zip(&indices) {
        let desc = outputs.get(index)?;
        let is_number = match desc.dtype {
            DType::F32 | DType::F16 => true,
            DType::U8 | DType::I32 | DType::I64 => output.class == ElementClass::Any,
            DType::I8 | DType::Bool => false,
        };
        let (dims, beyond) = desc.dims.split_at_checked(output.dims.len())?;
        if !is_number || beyond.iter().any(|&dim| dim != 1) {
            return None;
        }
        // Elements of a row beside the scores of the classes.
        let widths = output.columns.iter().map(|column| column.width(0, keypoints));
        let others = i64::try_from(widths.sum::<Option<usize>>()?).ok()?;
        let has_classes = output.columns.contains(&Column::Classes);
        for (wanted, &dim) in output.dims.iter().zip(dims) {
            let known = dim != Dims::DYNAMIC;
            match *wanted {
                _ if dim == 0 => return None,
                Dim::Rows if known && rows != Dims::DYNAMIC && dim != rows => return None,
                Dim::Rows if known => rows = dim,
                Dim::Columns if known && has_classes && dim <= others => return None,
                Dim::Columns if known && !has_classes && dim != others => return None,
                Dim::Columns if known && has_classes => classes = Some((dim - others) as usize),
                Dim::Batch | Dim::Rows | Dim::Columns => {}
            }
            if *wanted == Dim::Columns {
                columns = dim;
            }
        }
    }
    Some(HeadMatch { format, outputs: indices, rows, columns, classes, confidence: Confidence::Sign })
}

fn unknown(outputs: &[TensorDesc], hints: &ModelHints) -> Error {
    let input = hints.input.map_or(String::new(), |(width, height)| format!(" for an input of {width}x{height}"));
    let layouts = is_for(&hints.task).map(|format| format.name.to_string());
    let keypoints = is_for(&hints.task).map(|format| keypoints_of(format, hints)).filter(|_| !hints.task.is_empty());
    let keypoints = keypoints.max().unwrap_or_default();
    Error::new(ErrorKind::Model, format!("No layout fits the model's outputs {}{input}{keypoints}", list(outputs)))
        .remedy(format!("If it has one of these, set it as layout on trtnms: {}", join(layouts, "or")))
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
