// SPDX-License-Identifier: MPL-2.0
//! Whether a head from a file is that of a model. Its outputs are those that it names, or the only ones that fit: nothing is
//! guessed, and each error says in what the two differ.

use smallvec::{SmallVec, smallvec};

use super::fit::{HeadMatch, by_levels, fit, keypoints_of, prototypes_of};
use super::grid::cells;
use super::layout_file::{LayoutFile, word_of};
use super::{Column, ColumnSizes, Dim, HeadFormat, ModelHints, OutputSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Dims, TensorDesc, list};
use crate::words::nearest;

/// The outputs of the model that such a head reads.
///
/// # Errors
/// `Settings`, where it is for another model.
pub(super) fn find(
    format: &'static HeadFormat,
    file: &LayoutFile,
    outputs: &[TensorDesc],
    hints: &ModelHints,
) -> Result<HeadMatch> {
    let wrong = |cause: String| {
        Error::new(ErrorKind::Settings, format!("The model's outputs do not fit {}", format.called()))
            .cause(cause)
            .remedy(
                "Use the file that belongs to the model, or correct it: gst-trt info --explain-layout writes a draft",
            )
    };
    if !hints.task.is_empty() && hints.task != format.task.name() {
        return Err(wrong(format!("it is for the task “{}”, and the model's is “{}”", format.task.name(), hints.task)));
    }
    let unfit = || {
        let (keypoints, prototypes) = (keypoints_of(format, hints), prototypes_of(format, outputs));
        let levels = cells_of_levels(format, hints);
        wrong(format!("it reads {}, and there is {}{keypoints}{prototypes}{levels}", format.expects(), list(outputs)))
    };
    let found = if format.has_levels() {
        by_levels(format, outputs, hints).ok_or_else(unfit)?
    } else if format.outputs.iter().all(|output| output.name.is_empty()) {
        let fits = |indices| fit(format, outputs, hints, indices).filter(|found| has_shapes(file, outputs, found));
        let mut fitting: Vec<HeadMatch> = placements(format, outputs.len()).into_iter().filter_map(fits).collect();
        if fitting.len() > 1 {
            return Err(wrong(ambiguous(&fitting, outputs)));
        }
        fitting.pop().ok_or_else(unfit)?
    } else {
        let indices = format.outputs.iter().map(|output| named(output, outputs).map_err(wrong));
        let indices: SmallVec<[usize; 4]> = indices.collect::<Result<_>>()?;
        for ((spec, &index), shape) in format.outputs.iter().zip(&indices).zip(&file.shapes) {
            misfit(spec, shape.as_deref(), &outputs[index]).map_err(wrong)?;
        }
        fit(format, outputs, hints, indices).ok_or_else(unfit)?
    };
    if !format.has_levels() {
        for (spec, &index) in format.outputs.iter().zip(&found.outputs) {
            check_width(format, spec, &outputs[index], hints).map_err(wrong)?;
        }
    }
    check_counts(&found).and_then(|()| check_rows(&found, hints)).map_err(wrong)?;
    Ok(found)
}

/// Two of so many, in each order.
fn pairs(count: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..count).flat_map(move |i| (0..count).filter(move |&other| other != i).map(move |other| [i, other]))
}

/// All ways to take one output, two or three of so many.
fn placements(format: &HeadFormat, count: usize) -> Vec<SmallVec<[usize; 4]>> {
    match format.outputs.len() {
        1 => (0..count).map(|i| smallvec![i]).collect(),
        2 => pairs(count).map(|[i, other]| smallvec![i, other]).collect(),
        _ => pairs(count)
            .flat_map(|[i, other]| {
                (0..count).filter(move |&third| third != i && third != other).map(move |third| [i, other, third])
            })
            .map(|three| three.into_iter().collect())
            .collect(),
    }
}

fn ambiguous(fitting: &[HeadMatch], outputs: &[TensorDesc]) -> String {
    let names = fitting.iter().take(4).map(|found| {
        let read: Vec<&str> = found.outputs.iter().map(|&index| outputs[index].name.as_str()).collect();
        format!("“{}”", read.join(" and "))
    });
    format!("{} fit it. Give the outputs their names in it", names.collect::<Vec<_>>().join(" as well as "))
}

/// The output of that name. TensorFlow's tensors are called `detection_boxes:0`.
fn named(output: &OutputSpec, outputs: &[TensorDesc]) -> std::result::Result<usize, String> {
    let is_it = |desc: &TensorDesc| {
        desc.name == output.name || desc.name.split_once(':').is_some_and(|(plain, _)| plain == output.name)
    };
    outputs.iter().position(is_it).ok_or_else(|| {
        let names: Vec<&str> = outputs.iter().map(|desc| desc.name.as_str()).collect();
        let near = nearest(output.name, &names).map_or(String::new(), |near| format!("; did you mean “{near}”?"));
        format!("the model has no output “{}”, but {}{near}", output.name, list(outputs))
    })
}

/// In what an output differs from what the file says of it.
fn misfit(spec: &OutputSpec, shape: Option<&[i64]>, desc: &TensorDesc) -> std::result::Result<(), String> {
    if !spec.class.has(desc.dtype) {
        let wanted = spec.class.types();
        return Err(format!("the output {desc} is not {wanted}: type in the file is another"));
    }
    let dims = spec.dims_of(desc.dims.len());
    let count = dims.clone().count();
    if desc.dims.len() < count || desc.dims[count..].iter().any(|&dim| dim != 1) {
        return Err(format!("the output {desc} has {} dimensions, and dims in the file {count}", desc.dims.len()));
    }
    if let Some(shape) = shape.filter(|shape| !has_shape(spec, shape, desc)) {
        return Err(format!("the output is {desc}, and its shape in the file {}", Dims::new(shape)));
    }
    let widths = spec.columns.iter().filter_map(|column| column.width(&ColumnSizes::default()));
    let known: usize = widths.sum();
    let columns = dims.zip(&*desc.dims).find(|(dim, _)| *dim == Dim::Columns).map(|(_, &size)| size);
    let is_open = |column: &Column| {
        let is_one = matches!(column, Column::Coefficients | Column::Vector);
        is_one || column.are_scores() || column.are_keypoints() || column.are_characters()
    };
    match columns {
        Some(columns) if columns != Dims::DYNAMIC => match spec.columns.iter().any(is_open) {
            true if columns <= known as i64 => {
                Err(format!("a row of the output {desc} has {columns} numbers, which leaves none for all columns"))
            }
            false if columns != known as i64 => {
                Err(format!("a row of the output {desc} has {columns} numbers, and the columns in the file {known}"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn has_shapes(file: &LayoutFile, outputs: &[TensorDesc], found: &HeadMatch) -> bool {
    let specs = found.format.outputs.iter().zip(&file.shapes).zip(&found.outputs);
    let mut fits =
        specs.map(|((spec, shape), &index)| shape.as_ref().is_none_or(|shape| has_shape(spec, shape, &outputs[index])));
    fits.all(|fits| fits)
}

/// How many pictures there are at once makes no difference, nor does a dimension that is open.
fn has_shape(spec: &OutputSpec, shape: &[i64], desc: &TensorDesc) -> bool {
    let all = spec.dims.iter().zip(shape).filter(|(dim, _)| **dim != Dim::One || desc.dims.len() >= spec.dims.len());
    all.zip(&*desc.dims).all(|((dim, &wanted), &size)| {
        *dim == Dim::Batch || wanted == Dims::DYNAMIC || size == Dims::DYNAMIC || wanted == size
    })
}

/// Where the file says how many numbers each column has: as many as a row has.
fn check_width(
    format: &HeadFormat,
    spec: &OutputSpec,
    desc: &TensorDesc,
    hints: &ModelHints,
) -> std::result::Result<(), String> {
    let place = spec.dims_of(desc.dims.len()).position(|dim| dim == Dim::Columns);
    let Some(numbers) = place.and_then(|place| usize::try_from(desc.dims[place]).ok()) else { return Ok(()) };
    let sizes =
        ColumnSizes { classes: 0, keypoints: format.keypoint_shape(hints), coefficients: format.sizes.coefficients };
    let width = |column: &Column| match column {
        column if column.are_scores() => format.sizes.classes,
        Column::Vector => None,
        column if column.are_characters() => None,
        column => column.width(&sizes),
    };
    let widths: Option<Vec<usize>> = spec.columns.iter().map(width).collect();
    let Some(widths) = widths.filter(|widths| !widths.is_empty()) else { return Ok(()) };
    let sum: usize = widths.iter().sum();
    if sum == numbers {
        return Ok(());
    }
    let named = spec.columns.iter().zip(&widths).map(|(column, width)| format!("{} {width}", word_of(*column)));
    let named = named.collect::<Vec<_>>().join(", ");
    let what = format!("a row of the output {desc} has {numbers} numbers, and the columns in the file {sum} ({named})");
    Err(match numbers.checked_sub(sum) {
        Some(rest) => {
            format!("{what}. Add {{ column = \"ignored\", count = {rest} }} if the others are not to be read")
        }
        None => format!("{what}: they would be read outside"),
    })
}

/// As many classes and coefficients as the file says.
fn check_counts(found: &HeadMatch) -> std::result::Result<(), String> {
    let sizes = found.format.sizes;
    for (what, wanted, has) in
        [("classes", sizes.classes, found.classes), ("coefficients", sizes.coefficients, found.coefficients)]
    {
        if let (Some(wanted), Some(has)) = (wanted, has)
            && wanted != has
        {
            return Err(format!("the model has {has} {what} in a row, and the file {wanted}"));
        }
    }
    Ok(())
}

/// How many rows the outputs of each stride have, in words.
fn cells_of_levels(format: &HeadFormat, hints: &ModelHints) -> String {
    let Some((grid, input)) = format.sizes.grid.as_ref().filter(|_| format.has_levels()).zip(hints.input) else {
        return String::new();
    };
    let rows = grid.strides.iter().map(|&stride| {
        let (columns, rows) = (input.0.div_ceil(stride), input.1.div_ceil(stride));
        format!("{columns}x{rows} cells of the stride {stride}")
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    format!(
        "; with the grid of the file, its input of {}x{} has {rows}; anchors of each cell: {}",
        input.0, input.1, grid.anchors
    )
}

/// As many rows as the grid has cells.
fn check_rows(found: &HeadMatch, hints: &ModelHints) -> std::result::Result<(), String> {
    let (Some(grid), Some(input), Ok(rows)) = (&found.format.sizes.grid, hints.input, u64::try_from(found.rows)) else {
        return Ok(());
    };
    let wanted = cells(&grid.strides, input) * u64::from(grid.anchors);
    if wanted == rows {
        return Ok(());
    }
    let (width, height) = input;
    let strides: Vec<String> = grid.strides.iter().map(u32::to_string).collect();
    Err(format!(
        "the model has {rows} rows, and the strides {} with {} for each cell give {wanted} over an input of {width}x{height}",
        strides.join(", "),
        grid.anchors
    ))
}
