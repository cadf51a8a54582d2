// SPDX-License-Identifier: MPL-2.0
//! Outputs of heads, of random numbers.

use gsttrt_core::heads::{BoxEncoding, Column, Dim, ElementClass, HeadFormat, OutputSpec};
use gsttrt_core::image::keypoints::KeypointShape;
use gsttrt_core::tensor::{DType, Element, Tensor};
use half::f16;

use crate::common::random::Random;

/// Numbers as heads write them, and a few that they should not.
fn spoil(random: &mut Random, rate: usize, usual: f32) -> f32 {
    const ODD: [f32; 10] =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -1.0, f32::MAX, f32::MIN_POSITIVE, 1e-40, 65504.0];
    if random.below(rate) == 0 { random.one_of(&ODD) } else { usual }
}

/// Scores of few different values, so that there are ties.
fn score(random: &mut Random) -> f32 {
    match random.below(3) {
        0 => random.below(5) as f32 * 0.25,
        1 => random.between(0.0, 0.3),
        _ => random.between(-0.1, 1.0),
    }
}

/// The numbers of a box.
fn numbers(encoding: BoxEncoding, random: &mut Random, size: f32) -> Vec<f32> {
    let (x, y) = (random.between(0.0, size), random.between(0.0, size));
    let (w, h) = (random.between(-2.0, size * 0.5), random.between(-2.0, size * 0.5));
    match encoding {
        BoxEncoding::Center => vec![x, y, w, h],
        BoxEncoding::CenterShares => vec![x / size, y / size, w / size, h / size],
        BoxEncoding::CenterCells | BoxEncoding::CornerEdges => (0..4).map(|_| random.between(-2.0, 5.0)).collect(),
        BoxEncoding::CornerPixels => (0..4).map(|_| random.between(-2.0, size * 0.25)).collect(),
        BoxEncoding::PriorOffsets => (0..4).map(|_| random.between(-9.0, 9.0)).collect(),
        BoxEncoding::PriorLogits => (0..4).map(|_| random.between(-4.0, 4.0)).collect(),
        BoxEncoding::Corners => vec![x, y, x + w, y + h],
        BoxEncoding::CornersYxShares => vec![y / size, x / size, (y + h) / size, (x + w) / size],
        BoxEncoding::CornersShares => vec![x / size, y / size, (x + w) / size, (y + h) / size],
        BoxEncoding::CornerDistances | BoxEncoding::MiddleDistances => {
            (0..encoding.width()).map(|_| random.between(-6.0, 6.0)).collect()
        }
    }
}

/// Whole numbers as a tensor of some type.
pub fn whole(name: &str, dims: &[i64], dtype: DType, values: &[f32]) -> Tensor {
    fn of<T: Element>(name: &str, dims: &[i64], values: &[f32], from: impl Fn(f32) -> T) -> Tensor {
        Tensor::from_slice(name, dims, &values.iter().map(|&v| from(v)).collect::<Vec<_>>())
    }
    match dtype {
        DType::F32 => of(name, dims, values, |v| v),
        DType::F16 => of(name, dims, values, f16::from_f32),
        DType::U8 => of(name, dims, values, |v| v as u8),
        DType::I32 => of(name, dims, values, |v| v as i32),
        DType::I64 => of(name, dims, values, |v| v as i64),
        _ => unreachable!(),
    }
}

/// As many classes as its rows have: its own number, or the given one.
pub fn classes_of(format: &HeadFormat, classes: usize) -> usize {
    format.sizes.classes.unwrap_or(classes)
}

/// A head of random numbers; `floats` is the type of its boxes and scores, `ids` of its classes and its count. Where rows are the
/// cells of a grid of its own, there are as many as over a square of that size.
pub fn head(
    format: &HeadFormat,
    random: &mut Random,
    (rows, classes, size): (usize, usize, u32),
    types: (DType, DType),
    rate: usize,
) -> Vec<Tensor> {
    head_over(format, random, (rows, classes, (size, size)), types, rate)
}

/// The same over an input of that width and height.
pub fn head_over(
    format: &HeadFormat,
    random: &mut Random,
    (rows, classes, input): (usize, usize, (u32, u32)),
    (floats, ids): (DType, DType),
    rate: usize,
) -> Vec<Tensor> {
    let grid = format.sizes.grid.as_ref();
    let strides = grid.map_or(&[8, 16, 32][..], |grid| &grid.strides);
    let rows_of = |stride: u32| {
        let anchors = grid.map_or(1, |grid| grid.anchors);
        (input.0.div_ceil(stride) * input.1.div_ceil(stride) * anchors) as usize
    };
    let rows = if grid.is_some() { strides.iter().map(|&stride| rows_of(stride)).sum() } else { rows };
    let mut made = Vec::new();
    for spec in format.outputs {
        if spec.dims.contains(&Dim::Cells) {
            for &stride in strides {
                let name = format!("{}_{stride}", spec.name);
                let numbers = (rows_of(stride), classes, input.0);
                made.push(output(random, (spec, format, &name), numbers, (floats, ids), rate));
            }
        } else {
            let name = if spec.name.is_empty() { "output0" } else { spec.name };
            made.push(output(random, (spec, format, name), (rows, classes, input.0), (floats, ids), rate));
        }
    }
    made
}

/// One of its tensors.
fn output(
    random: &mut Random,
    (spec, format, name): (&OutputSpec, &HeadFormat, &str),
    (rows, classes, size): (usize, usize, u32),
    (floats, ids): (DType, DType),
    rate: usize,
) -> Tensor {
    let points = format.sizes.keypoints.as_ref().map_or(KEYPOINTS, |keypoints| keypoints.shape).numbers();
    let row = |random: &mut Random| -> Vec<f32> {
        let mut row = Vec::new();
        for column in spec.columns {
            match column {
                Column::Box(encoding) => row.extend(numbers(*encoding, random, size as f32)),
                Column::Objectness | Column::RootObjectness | Column::Score => row.push(score(random)),
                Column::Classes => row.extend((0..classes).map(|_| score(random))),
                Column::Logits { .. } => row.extend((0..classes).map(|_| random.between(-9.0, 3.0))),
                Column::ObjectnessLogit => row.push(random.between(-9.0, 3.0)),
                Column::ClassId { .. } => row.push(random.below(classes + 2) as f32 - 1.0),
                Column::Keypoints => {
                    row.extend((0..points).map(|_| random.between(-9.0, size as f32 + 9.0)));
                }
                Column::CellKeypoints => row.extend((0..points).map(|_| random.between(-9.0, 9.0))),
                Column::Mask(_) => {}
                Column::Ignored { count } => row.extend((0..*count).map(|_| random.between(-9.0, 9.0))),
                Column::Depth
                | Column::AnomalyScore
                | Column::Picture
                | Column::Vector
                | Column::TextScore
                | Column::Characters { .. }
                | Column::Slots { .. } => {
                    unreachable!("of a map, a picture or a text, or decoded on the host")
                }
                Column::Angle => row.push(random.between(-7.0, 7.0)),
                Column::Coefficients => row.extend((0..PROTOTYPES).map(|_| random.between(-2.0, 2.0))),
                Column::Count => row.push(random.one_of(&[
                    0.0,
                    1.0,
                    7.0,
                    rows as f32 * 0.5,
                    rows as f32,
                    rows as f32 + 9.0,
                    -3.0,
                    f32::NAN,
                ])),
            }
        }
        row.iter_mut().for_each(|value| *value = spoil(random, rate, *value));
        row
    };
    if spec.dims.contains(&Dim::Height) {
        let is_own = spec.dims.contains(&Dim::Rows);
        let (count, width, height) =
            if is_own { (rows, 16, 9) } else { (PROTOTYPES, size as usize / 4, size as usize / 8) };
        // Maps are negative outside a part of them, as real ones are.
        let values = (0..count * width * height).map(|at| {
            let is_seen = !is_own || (at / (width * height) + at / width + at) % 7 < 3;
            let usual = random.between(-1.0, if is_seen { 1.0 } else { 0.0 });
            spoil(random, rate * 99, usual)
        });
        let values: Vec<f32> = values.collect();
        let name = if is_own { name } else { "output1" };
        return whole(name, &[1, count as i64, height as i64, width as i64], floats, &values);
    }
    let count = if spec.dims.iter().any(|dim| matches!(dim, Dim::Rows | Dim::Cells)) { rows } else { 1 };
    let mut all: Vec<Vec<f32>> = (0..count).map(|_| row(random)).collect();
    let mut rows = rows;
    if spec.dims.last() == Some(&Dim::Cells) {
        // Maps have the numbers of all anchors of a cell.
        let anchors = format.sizes.grid.as_ref().map_or(1, |grid| grid.anchors as usize);
        all = all.chunks(anchors).map(|cell| cell.concat()).collect();
        rows = all.len();
    }
    let columns = all[0].len();
    let dims: Vec<i64> = (spec.dims.iter())
        .map(|dim| match dim {
            Dim::Batch => 1,
            Dim::Rows | Dim::Cells => rows as i64,
            Dim::Columns => columns as i64,
            Dim::One => 1,
            Dim::Prototypes | Dim::Height | Dim::Width => unreachable!("made above, or of a map"),
        })
        .collect();
    let dtype = if spec.class == ElementClass::Any { ids } else { floats };
    if matches!(spec.dims, [_, Dim::Columns, Dim::Rows | Dim::Cells]) {
        let values: Vec<f32> = (0..columns).flat_map(|c| all.iter().map(move |row| row[c])).collect();
        whole(name, &dims, dtype, &values)
    } else {
        whole(name, &dims, dtype, &all.concat())
    }
}

/// Of heads that have some.
pub const PROTOTYPES: usize = 6;
/// The same.
pub const KEYPOINTS: KeypointShape = KeypointShape { count: 5, dims: 3 };
