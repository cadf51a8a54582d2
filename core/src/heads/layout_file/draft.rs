// SPDX-License-Identifier: MPL-2.0
//! A first draft of a layout file, from the outputs of a model: what is recognised, or what the dimensions suggest.

use super::write::{ModelSizes, quoted, text};
use crate::heads::grid::{StrideGrid, cells, strides_of};
use crate::heads::{Column, Dim, HeadFormat, ModelHints, explain};
use crate::tensor::{DType, Dims, TensorDesc};

/// Numbers that no network has as classes of a row: above that a dimension is taken for rows.
const FEW: i64 = 1000;

/// The text of a layout file for a model with these outputs. Comments say what is guessed: such a draft is to be read.
pub fn draft(outputs: &[TensorDesc], hints: &ModelHints) -> String {
    match explain(outputs, hints) {
        Ok(found) => recognised(found.format, &found.outputs, &found.reason, outputs, hints),
        Err(error) => guessed(outputs, hints, &error.message()),
    }
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
    let is_of_cells = head.has_boxes() && head.encoding().is_of_cells();
    let grid = match (hints.input, rows(Dim::Rows)) {
        (Some(input), Some(rows)) if is_of_cells => strides_of(rows, input),
        _ if head.sizes.grid.is_some() => None,
        (Some(input), _) if head.has_levels() => {
            let rows =
                places[..of_each].iter().map(|&place| outputs[place].dims.get(1).copied().unwrap_or(0).max(0) as u64);
            strides_of(rows.sum(), input)
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
        })),
        keypoints: own.keypoints.or(hints.keypoints.clone().filter(|_| has(|column| *column == Column::Keypoints))),
        ..own
    };
    let own = if head.file.is_some() { "" } else { "own-" };
    let note = format!("# As the layout {head}: {}.\n", reason.replace('\n', " "));
    note + &text(head, &format!("{own}{head}"), &sizes)
}

/// What the dimensions alone suggest. What cannot be told is `ignored`, and a comment says so.
fn guessed(outputs: &[TensorDesc], hints: &ModelHints, why: &str) -> String {
    let mut drawn = format!(
        "# {}\n# So this is guessed from dimensions alone. Compare it with what the model's exporter says.\n",
        why.replace('\n', " ")
    );
    let named: Vec<GuessedOutput> = outputs.iter().map(|desc| guess(desc, outputs, hints)).collect();
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
        drawn += &format!("dims = [{}]\nshape = {:?}\n", words.join(", "), &desc.dims[..]);
        for note in &output.notes {
            drawn += &format!("# {note}\n");
        }
        if !output.columns.is_empty() {
            drawn += &format!("columns = [{}]\n", output.columns.join(", "));
        }
    }
    drawn
}

struct GuessedOutput {
    dims: Vec<&'static str>,
    columns: Vec<String>,
    notes: Vec<String>,
}

fn guess(desc: &TensorDesc, all: &[TensorDesc], hints: &ModelHints) -> GuessedOutput {
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
    match desc.dims[..] {
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
    }
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
