// SPDX-License-Identifier: MPL-2.0
//! A first draft of a layout file, from the outputs of a model: what is recognised, or what the dimensions suggest.

use super::write::{ModelSizes, quoted, text};
use crate::error::{Error, ErrorKind, Result};
use crate::heads::grid::{StrideGrid, cells, strides_of};
use crate::heads::{Column, Dim, HeadFormat, ModelHints, explain, levels};
use crate::tensor::{DType, Dims, TensorDesc, list};

/// Numbers that no network has as classes of a row: above that a dimension is taken for rows.
const FEW: i64 = 1000;

/// Pictures that a model takes at once, where its input does not tell: a first dimension above that is rows.
const MANY_PICTURES: i64 = 64;

/// The text of a layout file for a model with these outputs. Comments say what is guessed: such a draft is to be read.
///
/// # Errors
/// `Model`, where rows lie in an output as no file can say.
pub fn draft(outputs: &[TensorDesc], hints: &ModelHints) -> Result<String> {
    match explain(outputs, hints) {
        Ok(found) if !(found.format.is_classifier() && lacks_batch(&outputs[found.outputs[0]], hints)) => {
            Ok(recognised(found.format, &found.outputs, &found.reason, outputs, hints))
        }
        Ok(_) => {
            guessed(outputs, hints, &format!("no head has rows without the dimension of a batch: {}", list(outputs)))
        }
        Err(error) => guessed(outputs, hints, &error.message()),
    }
}

/// Whether the first dimension is not that of the pictures of a batch.
fn lacks_batch(desc: &TensorDesc, hints: &ModelHints) -> bool {
    let first = desc.dims.first().copied().unwrap_or(1);
    hints.batch.map_or(first > MANY_PICTURES, |batch| first > 1 && first != batch)
}

fn recognised(head: &HeadFormat, places: &[usize], reason: &str, outputs: &[TensorDesc], hints: &ModelHints) -> String {
    let of_each = places.len() / head.outputs.len();
    let read: Vec<&TensorDesc> = places.iter().step_by(of_each).map(|&place| &outputs[place]).collect();
    let shape = |i: usize, desc: &TensorDesc| {
        let fits = desc.dims.len() == head.outputs[i].dims.len() && !head.has_levels();
        fits.then(|| desc.dims.to_vec())
    };
    // Names of the head's own hold: TensorFlow's end with “:0”.
    let name = |i: usize, desc: &TensorDesc| match head.outputs[i].name {
        name if head.has_levels() => name.to_string(),
        "" => desc.name.clone(),
        name => name.to_string(),
    };
    let rows = |dim: Dim| {
        head.outputs.iter().zip(&read).find_map(|(output, desc)| {
            let place = output.dims_of(desc.dims.len()).position(|other| other == dim)?;
            u64::try_from(*desc.dims.get(place)?).ok()
        })
    };
    let is_of_cells = head.has_rows() && head.encoding().is_of_cells();
    let grid = match (hints.input, rows(Dim::Rows)) {
        (Some(input), Some(rows)) if is_of_cells => strides_of(rows, input),
        _ if head.sizes.grid.is_some() => None,
        (Some(input), _) if head.has_levels() => {
            let shape = |&place: &usize| levels::shape(&head.outputs[0], &outputs[place]);
            let rows = places[..of_each].iter().filter_map(shape).map(|[rows, _]| rows.max(0));
            strides_of(rows.sum::<i64>() as u64, input)
        }
        _ => None,
    };
    let has = |is_it: fn(&Column) -> bool| head.outputs.iter().any(|output| output.columns.iter().any(is_it));
    let own = ModelSizes::of(head);
    let sizes = ModelSizes {
        outputs: read.iter().enumerate().map(|(i, desc)| (name(i, desc), shape(i, desc))).collect(),
        grid: own.grid.or(grid.map(|strides| StrideGrid {
            strides: strides.into(),
            anchors: 1,
            priors: Default::default(),
            boxes: Default::default(),
        })),
        keypoints: own.keypoints.or(hints.keypoints.clone().filter(|_| has(|column| *column == Column::Keypoints))),
        ..own
    };
    let own = if head.file.is_some() { "" } else { "own-" };
    let note = format!("# As the layout {head}: {}.\n", reason.replace('\n', " "));
    note + &text(head, &format!("{own}{head}"), &sizes)
}

/// What the dimensions alone suggest. What cannot be told is `ignored`, and a comment says so.
fn guessed(outputs: &[TensorDesc], hints: &ModelHints, why: &str) -> Result<String> {
    let mut drawn = format!(
        "# {}\n# So this is guessed from dimensions alone. Compare it with what the model's exporter says.\n",
        why.replace('\n', " ")
    );
    let named: Vec<GuessedOutput> = outputs.iter().map(|desc| guess(desc, outputs, hints)).collect::<Result<_>>()?;
    let all = |word: &str| named.iter().any(|output| output.columns.iter().any(|column| column.contains(word)));
    let task = match () {
        _ if all("\"coefficients\"") || all("\"mask\"") => "segment",
        _ if all("\"keypoints\"") => "pose",
        _ if all("\"box\"") => "detect",
        _ if named.iter().any(|output| output.dims == ["batch", "columns"]) && outputs.len() == 1 => "classify",
        _ => "detect",
    };
    drawn += &format!("name = \"own\"\ntask = \"{task}\"\n");
    if task != "classify" {
        drawn += "# \"none\" if the model gives each object once.\nsuppression = \"iou\"\n";
    }
    drawn += "\n# How a picture becomes the input: these are the usual values of YOLO.\n[input]\ncolors = \"rgb\"\nfit = \
              \"letterbox\"\npad = 114\nscale = 0.003921569\nmean = [0, 0, 0]\nstd = [1, 1, 1]\n";
    for (output, desc) in named.iter().zip(outputs) {
        drawn += &format!("\n[[output]]\nname = {}\n", quoted(&desc.name));
        if !matches!(desc.dtype, DType::F32 | DType::F16) {
            drawn += "type = \"number\"\n";
        }
        let words: Vec<String> = output.dims.iter().map(|dim| format!("\"{dim}\"")).collect();
        let (own, beyond) = desc.dims.split_at(words.len().min(desc.dims.len()));
        let shape = if beyond.iter().all(|&dim| dim == 1) { own } else { &desc.dims[..] };
        drawn += &format!("dims = [{}]\nshape = {shape:?}\n", words.join(", "));
        for note in &output.notes {
            drawn += &format!("# {note}\n");
        }
        if !output.columns.is_empty() {
            drawn += &format!("columns = [{}]\n", output.columns.join(", "));
        }
    }
    Ok(drawn)
}

struct GuessedOutput {
    dims: Vec<&'static str>,
    columns: Vec<String>,
    notes: Vec<String>,
}

fn guess(desc: &TensorDesc, all: &[TensorDesc], hints: &ModelHints) -> Result<GuessedOutput> {
    let is_whole = !matches!(desc.dtype, DType::F32 | DType::F16);
    let is_grid = |rows: i64| {
        let rows = u64::try_from(rows).unwrap_or(0);
        hints.input.is_some_and(|input| strides_of(rows, input).is_some() || cells(&[8, 16, 32], input) * 3 == rows)
    };
    let of = |dims: &[&'static str], columns: Vec<String>, notes: Vec<String>| GuessedOutput {
        dims: dims.to_vec(),
        columns,
        notes,
    };
    let no_draft = |cause: String, dims: [i64; 3]| {
        Err(Error::new(ErrorKind::Model, format!("Cannot draft a layout for the output {desc}"))
            .cause(cause)
            .remedy(format!("Let the export give it as {}, such as by a reshape at its end", Dims::new(&dims))))
    };
    // As many rows as only a list of boxes has, and not the lines of a map.
    let are_rows = |a: i64, b: i64| is_grid(a) || a > FEW && a / 8 > b && b > 0;
    Ok(match desc.dims[..] {
        [batch, a, b, 1] if are_rows(a, b) || are_rows(b, a) => {
            let plain = TensorDesc { dims: Dims::new(&[batch, a, b]), ..desc.clone() };
            return guess(&plain, all, hints);
        }
        [_, a, 1, b] if are_rows(a, b) => {
            let (columns, notes) = guess_row(b, hints);
            of(&["batch", "rows", "one", "columns"], columns, notes)
        }
        [_, 1, a, b] if are_rows(a, b) => {
            let (columns, notes) = guess_row(b, hints);
            of(&["batch", "one", "rows", "columns"], columns, notes)
        }
        [batch, a, 1, b] if are_rows(b, a) => {
            return no_draft("no head reads a dimension of 1 between columns and rows".into(), [batch, a, b]);
        }
        [batch, 1, a, b] if are_rows(b, a) => {
            return no_draft("no head reads a dimension of 1 before columns and rows".into(), [batch, a, b]);
        }
        [_, b @ (6 | 7)] if !is_whole && all.len() == 1 && lacks_batch(desc, hints) => {
            let boxed = "{ column = \"box\", encoding = \"corners\" }";
            let columns = ["\"picture\"", boxed, "\"score\"", "\"class-id\""].map(String::from);
            let note = "A box, its score and its class; of 7 numbers the first one says of which picture.";
            of(&["rows", "columns"], columns[7 - b as usize..].to_vec(), vec![note.into()])
        }
        [a, b] if !is_whole && all.len() == 1 && lacks_batch(desc, hints) => {
            let cause = format!(
                "its first dimension, {a}, is not that of a batch; of rows without one a head reads a box, a score and a \
                 class id, which are 6 numbers, or 7 with the number of the picture"
            );
            return no_draft(cause, [1, a, b]);
        }
        [_, a, b] if is_grid(b) || b > a && b > FEW && !is_grid(a) => {
            let (columns, notes) = guess_row(a, hints);
            of(&["batch", "columns", "rows"], columns, notes)
        }
        [_, _, b] => {
            let (columns, notes) = guess_row(b, hints);
            of(&["batch", "rows", "columns"], columns, notes)
        }
        [_, b] if is_whole => of(&["batch", "rows"], vec!["\"class-id\"".into()], vec![format!("{b} rows.")]),
        [_, b] if all.len() == 1 => {
            let note = format!("{b} classes of the whole picture, or a vector that is no classes.");
            of(&["batch", "columns"], vec!["\"classes\"".into()], vec![note])
        }
        [_, _] => of(&["batch", "rows"], vec!["\"score\"".into()], Vec::new()),
        [_] => of(&["batch"], vec!["\"count\"".into()], Vec::new()),
        [_, _, _, _] => {
            let note = "Prototypes of masks, or a map: then batch one height width, or batch columns height width.";
            of(&["batch", "prototypes", "height", "width"], Vec::new(), vec![note.into()])
        }
        _ => {
            let note =
                "No head has an output with so many dimensions: leave this one out, or flatten it in the export.";
            of(&["batch", "rows", "columns"], Vec::new(), vec![note.into()])
        }
    })
}

/// What a row of so many numbers may be.
fn guess_row(numbers: i64, hints: &ModelHints) -> (Vec<String>, Vec<String>) {
    let boxed = |encoding: &str| format!("{{ column = \"box\", encoding = \"{encoding}\" }}");
    let classes = hints.classes.map(|classes| classes as i64);
    match numbers {
        Dims::DYNAMIC => (vec![boxed("center"), "\"classes\"".into()], vec!["The numbers of a row are open.".into()]),
        4 => (vec![boxed("corners")], vec!["Corners, or center, or one of the others.".into()]),
        6 if classes != Some(2) => (
            vec![boxed("corners"), "\"score\"".into(), "\"class-id\"".into()],
            vec!["A box, its score and its class; or a box and 2 classes.".into()],
        ),
        _ if classes == Some(numbers) || numbers < 4 => (vec!["\"classes\"".into()], Vec::new()),
        _ if classes.is_some_and(|classes| classes + 5 == numbers) => (
            vec![boxed("center"), "\"objectness\"".into(), "\"classes\"".into()],
            vec!["A box, objectness, and as many classes as there are names.".into()],
        ),
        _ => match classes.filter(|&classes| classes + 4 < numbers) {
            Some(classes) => (
                vec![
                    boxed("center"),
                    format!("{{ column = \"classes\", count = {classes} }}"),
                    format!("{{ column = \"ignored\", count = {} }}", numbers - classes - 4),
                ],
                vec!["What follows the classes is not read: keypoints, an angle, coefficients of masks.".into()],
            ),
            None => (
                vec![boxed("center"), "\"classes\"".into()],
                vec![format!("A box and {} classes; or a box, objectness and {}.", numbers - 4, numbers - 5)],
            ),
        },
    }
}
