// SPDX-License-Identifier: MPL-2.0
//! Faces with five points, from prior boxes of two sizes for each cell, as detect.py of Pytorch_Retinaface reads them.

use std::borrow::Cow;

use super::grid::{StrideGrid, cells};
use super::recognise::Confidence;
use super::{
    BoxEncoding, Colors, Column, FACE, HeadFormat, HeadSizes, InputTransform, ROWS_OF_COLUMNS, ResizeMode, Task, YOLO,
    floats,
};

pub static HEAD: HeadFormat = HeadFormat {
    name: "retinaface",
    about: "RetinaFace by Pytorch_Retinaface",
    task: Task::Pose,
    outputs: &[
        floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::PriorOffsets)]),
        floats("", ROWS_OF_COLUMNS, &[Column::Ignored { count: 1 }, Column::Classes]),
        floats("", ROWS_OF_COLUMNS, &[Column::CellKeypoints]),
    ],
    holds: "offsets from prior boxes; probabilities of background and face; offsets of five points",
    input: InputTransform {
        colors: Colors::Bgr,
        fit: ResizeMode::LetterboxTopLeft,
        pad: 0,
        scale: 1.0,
        mean: [104.0, 117.0, 123.0],
        ..YOLO
    },
    input_note: None,
    needs_nms: true,
    sizes: &HeadSizes { classes: Some(1), coefficients: None, grid: Some(GRID), keypoints: Some(FACE) },
    file: None,
    likely: |candidate| {
        let rows = candidate.hints.input.map(|input| 2 * cells(&[8, 16, 32], input));
        (rows.is_some_and(|rows| u64::try_from(candidate.rows) == Ok(rows))).then_some(Confidence::Sign)
    },
    #[cfg(test)]
    gold,
};

const GRID: StrideGrid = StrideGrid {
    strides: Cow::Borrowed(&[8, 16, 32]),
    anchors: 2,
    priors: Cow::Borrowed(&[16.0, 32.0, 64.0, 128.0, 256.0, 512.0]),
    boxes: Cow::Borrowed(&[]),
};

/// Row 1 of cell (2, 1) of 8: its middle is at (20, 12), and its prior box has sides of 32. Ten tenths are a side.
#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let parts: [&[f32]; 3] = [&[-0.3125, 0.625, 0.0, 0.0], &[0.625, 0.375], &[0.0; 10]];
    let mut outputs: Vec<_> = parts.map(|row| rows(make, 42, &[(13, row)])).into();
    outputs.swap(0, 1);
    // A multiplication by 0.1 is rounded, as that of the prior's side behind it.
    let (x, y) = (20.0 + -0.3125f32 * 0.1 * 32.0, 12.0 + 0.625f32 * 0.1 * 32.0);
    (outputs, vec![candidate(13, 0, 0.375, [x - 16.0, y - 16.0, x + 16.0, y + 16.0])])
}
