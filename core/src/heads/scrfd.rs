// SPDX-License-Identifier: MPL-2.0
//! Faces with five points, each part in an output for each stride, two rows for each cell, as scrfd.py of InsightFace reads them.

use std::borrow::Cow;

use super::grid::StrideGrid;
use super::{
    BoxEncoding, CELLS_OF_COLUMNS, Column, FACE, HeadFormat, HeadSizes, InputTransform, ResizeMode, Task, YOLO, floats,
};

pub static HEAD: HeadFormat = HeadFormat {
    name: "scrfd",
    about: "SCRFD by InsightFace, with keypoints",
    task: Task::Pose,
    outputs: &[
        floats("", CELLS_OF_COLUMNS, &[Column::Classes]),
        floats("", CELLS_OF_COLUMNS, &[Column::Box(BoxEncoding::CornerEdges)]),
        floats("", CELLS_OF_COLUMNS, &[Column::CellKeypoints]),
    ],
    holds: "scores; distances in cells from the corner of the cell; x and y of five points from there",
    input: INPUT,
    input_note: None,
    needs_nms: true,
    sizes: &HeadSizes { classes: Some(1), coefficients: None, grid: Some(GRID), keypoints: Some(FACE) },
    file: None,
    likely: |_| None,
    #[cfg(test)]
    gold,
};

pub(super) const GRID: StrideGrid = StrideGrid {
    strides: Cow::Borrowed(&[8, 16, 32]),
    anchors: 2,
    priors: Cow::Borrowed(&[]),
    boxes: Cow::Borrowed(&[]),
};

pub(super) const INPUT: InputTransform =
    InputTransform { fit: ResizeMode::LetterboxTopLeft, pad: 0, scale: 1.0, mean: [127.5; 3], std: [128.0; 3], ..YOLO };

/// Over 32x32 cells of 8, 16 and 32 are 16, 4 and 1, each with two rows. Row 1 of cell (1, 0) of the second stride, whose corner is at
/// (16, 0), reaches one cell to the left, none up, half a cell to the right and two down.
#[cfg(test)]
pub(super) fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let mut outputs = Vec::new();
    for (part, row) in [("score", &[0.375][..]), ("bbox", &[1.0, 0.0, 0.5, 2.0]), ("kps", &[0.5; 10])] {
        for (level, rows) in [32, 8, 2].into_iter().enumerate() {
            let mut values = vec![0.0; rows * row.len()];
            if level == 1 {
                values[3 * row.len()..][..row.len()].copy_from_slice(row);
            }
            // As its files have them: without the batch.
            outputs.push(make(&format!("{part}{level}"), &[rows as i64, row.len() as i64], &values));
        }
    }
    (outputs, vec![candidate(35, 0, 0.375, [0.0, 0.0, 24.0, 32.0])])
}
