//! Which layout a model's outputs have.
//!
//! Names decide where a layout has names. Else every row of the table whose dimensions fit is asked what speaks for it;
//! a class count that agrees with the labels decides between those left, then the stronger evidence. A guess between
//! equals is never made: the error names them.

use smallvec::SmallVec;

use super::decode::rows_per_cell;
use super::{Batch, Classes, Is, Layout, Numbers, Output, Row, Rows, TABLE};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, Dims, TensorDesc, list};

/// Most boxes that heads choose themselves; 300 is usual.
const MOST_CHOSEN: u64 = 1000;

/// What is known about a model beside its outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
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
}

impl Hints {
    pub(super) fn rtdetr(&self) -> bool {
        self.head == "RTDETRDecoder" || self.description.to_ascii_lowercase().contains("rtdetr")
    }
}

/// An output that has the dimensions of a layout.
pub(super) struct Sight<'a> {
    pub name: &'a str,
    pub cells: Cells,
    /// -1 where that is open.
    pub rows: i64,
    /// Elements of a row.
    pub columns: i64,
    pub hints: &'a Hints,
}

/// How many rows there are for each cell of a grid over the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cells {
    One,
    Three,
    /// These are no anchors, but as few as the boxes of a head that chooses some itself.
    Few,
    /// These are no anchors of a grid that is known here.
    Other,
    /// The input's size or the number of rows is not known.
    Unknown,
}

/// What speaks for a layout, the weaker first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evidence {
    Shape,
    /// A name, metadata, or a number that no other layout has.
    Sign,
}

/// A layout laid over the outputs.
pub(super) struct Found {
    pub row: &'static Row,
    /// In the order of the row's.
    pub outputs: SmallVec<[usize; 4]>,
    pub rows: i64,
    pub columns: i64,
    /// `None` for heads that name class ids.
    pub classes: Option<usize>,
    evidence: Evidence,
}

/// The layout of a model with these outputs, whose dimensions may be open; `choice` is the user's.
///
/// An open number of rows tells nothing: what is ambiguous then need not be at the first inference, when
/// [`Decoder::new`](super::Decoder::new) asks again. Until then only [`Layout::recipe`] depends on it.
///
/// # Errors
/// Tasks other than detection, outputs that fit no layout or (with neither labels nor names to tell) more than one,
/// outputs that do not fit the choice, and class counts that are not the number of labels.
pub fn recognise(choice: Option<Layout>, outputs: &[TensorDesc], hints: &Hints) -> Result<Layout> {
    find(choice, outputs, hints).map(|found| found.row.layout)
}

/// The layout that [`recognise`] finds, and which outputs it reads, in its own order.
///
/// # Errors
/// As [`recognise`].
pub fn recognise_outputs(outputs: &[TensorDesc], hints: &Hints) -> Result<(Layout, SmallVec<[usize; 4]>)> {
    find(None, outputs, hints).map(|found| (found.row.layout, found.outputs))
}

pub(super) fn find(choice: Option<Layout>, outputs: &[TensorDesc], hints: &Hints) -> Result<Found> {
    if !matches!(hints.task.as_str(), "" | "detect") {
        return Err(Error::new(ErrorKind::Model, format!("This is a model for the task “{}”", hints.task))
            .remedy("Use one for “detect”; trtnms finds boxes only"));
    }
    let found = match choice {
        Some(layout) => forced(layout, outputs)?,
        None => guessed(outputs, hints)?,
    };
    match (found.classes, hints.classes) {
        (Some(classes), Some(labels)) if classes != labels => {
            let (output, layout) = (&outputs[found.outputs[0]], found.row.name);
            let classes = counted(classes, "class", "classes");
            let what =
                format!("Output {output} has {classes} as {layout}, against {}", counted(labels, "label", "labels"));
            Err(Error::new(ErrorKind::Settings, what).remedy(
                "Use the label file that belongs to the model, one line for each class, or set another layout on trtnms",
            ))
        }
        _ => Ok(found),
    }
}

fn forced(layout: Layout, outputs: &[TensorDesc]) -> Result<Found> {
    let row = layout.row();
    let named = || named(row, outputs);
    let in_order = || fit(row, outputs, (0..row.outputs.len()).collect());
    let any = || (0..outputs.len()).rev().find_map(|i| fit(row, outputs, [i].into_iter().collect()));
    let found = if row.outputs.len() == 1 { any() } else { named().or_else(in_order) };
    found.ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("The model's outputs do not fit layout={layout}"))
            .cause(format!("it reads {}, and there is {}", layout.expects(), list(outputs)))
            .remedy("Set layout=auto on trtnms, or the layout that the model has")
    })
}

fn guessed(outputs: &[TensorDesc], hints: &Hints) -> Result<Found> {
    let by_name = TABLE.iter().filter(|row| row.outputs.len() > 1).find_map(|row| named(row, outputs));
    if let Some(found) = by_name {
        return Ok(found);
    }
    let mut found: Vec<Found> =
        TABLE.iter().filter(|row| row.outputs.len() == 1).filter_map(|row| alone(row, outputs, hints)).collect();
    if let Some(labels) = hints.classes {
        let agrees = |found: &Found| found.classes.is_none_or(|classes| classes == labels);
        if found.iter().any(agrees) {
            found.retain(agrees);
        }
    }
    let strongest = found.iter().map(|found| found.evidence).max();
    found.retain(|found| Some(found.evidence) == strongest);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(unknown(outputs, hints)),
        _ => Err(ambiguous(&found, outputs, hints)),
    }
}

/// A layout of several outputs, found by their names.
fn named(row: &'static Row, outputs: &[TensorDesc]) -> Option<Found> {
    // TensorFlow's tensors are called `detection_boxes:0`.
    let plain = |name: &'_ str| name.split_once(':').map_or(name, |(plain, _)| plain).to_string();
    let index = |output: &Output| outputs.iter().position(|desc| plain(&desc.name) == output.name);
    fit(row, outputs, row.outputs.iter().map(index).collect::<Option<_>>()?)
}

/// A layout of one output, if one fits and something speaks for it. Of two alike the last is taken: YOLOv9's auxiliary
/// head comes first.
fn alone(row: &'static Row, outputs: &[TensorDesc], hints: &Hints) -> Option<Found> {
    (0..outputs.len()).rev().find_map(|index| {
        let mut found = fit(row, outputs, [index].into_iter().collect())?;
        let desc = &outputs[index];
        // Boxes and scores apart, for the same rows: this is one half of something else.
        let halved = outputs.iter().any(|other| {
            matches!(other.dims.len(), 2 | 3) && other.dims != desc.dims && other.dims[1..].contains(&found.rows)
        });
        // However open a model is, it knows its channels.
        if halved || found.columns == Dims::DYNAMIC {
            return None;
        }
        let cells = match (hints.input, u64::try_from(found.rows)) {
            (Some(input), Ok(rows)) => match rows_per_cell(rows, input) {
                Some(1) => Cells::One,
                Some(_) => Cells::Three,
                None if rows <= MOST_CHOSEN => Cells::Few,
                None => Cells::Other,
            },
            (None, Ok(_)) if found.rows <= found.columns => return None,
            _ => Cells::Unknown,
        };
        let Found { rows, columns, .. } = found;
        found.evidence = (row.likely)(&Sight { name: &desc.name, cells, rows, columns, hints })?;
        Some(found)
    })
}

/// Lays a row of the table over these outputs. Open dimensions take anything.
fn fit(row: &'static Row, outputs: &[TensorDesc], indices: SmallVec<[usize; 4]>) -> Option<Found> {
    let (mut rows, mut columns, mut classes) = (Dims::DYNAMIC, Dims::DYNAMIC, None);
    for (output, &index) in row.outputs.iter().zip(&indices) {
        let desc = outputs.get(index)?;
        let number = match desc.dtype {
            DType::F32 | DType::F16 => true,
            DType::U8 | DType::I32 | DType::I64 => output.numbers == Numbers::Any,
            DType::I8 | DType::Bool => false,
        };
        let (dims, beyond) = desc.dims.split_at_checked(output.dims.len())?;
        if !number || beyond.iter().any(|&dim| dim != 1) {
            return None;
        }
        for (wanted, &dim) in output.dims.iter().zip(dims) {
            let known = dim != Dims::DYNAMIC;
            match *wanted {
                _ if dim == 0 => return None,
                Batch => {}
                Rows if known && rows != Dims::DYNAMIC && dim != rows => return None,
                Rows if known => rows = dim,
                Is(size) if known && dim != size => return None,
                Classes(more) if known && dim <= more => return None,
                Classes(more) if known => classes = Some((dim - more) as usize),
                Rows | Is(_) | Classes(_) => {}
            }
            if matches!(wanted, Is(_) | Classes(_)) {
                columns = dim;
            }
        }
    }
    Some(Found { row, outputs: indices, rows, columns, classes, evidence: Evidence::Sign })
}

fn unknown(outputs: &[TensorDesc], hints: &Hints) -> Error {
    let input = hints.input.map_or(String::new(), |(width, height)| format!(" for an input of {width}x{height}"));
    let layouts = Layout::ALL.iter().map(|layout| layout.name().to_string());
    Error::new(ErrorKind::Model, format!("No layout fits the model's outputs {}{input}", list(outputs)))
        .remedy(format!("If it has one of these, set it as layout on trtnms: {}", join(layouts, "or")))
}

fn ambiguous(found: &[Found], outputs: &[TensorDesc], hints: &Hints) -> Error {
    let readings = found.iter().map(|found| match found.classes {
        Some(classes) => format!("{} with {}", found.row.name, counted(classes, "class", "classes")),
        None => found.row.name.to_string(),
    });
    let output = &outputs[found[0].outputs[0]];
    let count = ["two", "three", "four"].get(found.len() - 2).unwrap_or(&"several");
    let labels = hints.classes.map_or(String::new(), |labels| format!(", for {}", counted(labels, "label", "labels")));
    let what = format!("Output {output} fits {count} layouts: {}{labels}", join(readings, "and"));
    let choices = found.iter().map(|found| format!("layout={}", found.row.name));
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
