// SPDX-License-Identifier: MPL-2.0
//! Faces with five points, each part in an output for each stride that has the stride in its name, as OpenCV's FaceDetectorYN reads
//! them.

use std::borrow::Cow;

use super::grid::StrideGrid;
use super::{
    BoxEncoding, CELLS_OF_COLUMNS, Colors, Column, FACE, HeadFormat, HeadSizes, InputTransform, ResizeMode, Task, YOLO,
    floats,
};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yunet",
    about: "YuNet of OpenCV's zoo, from 2023 on",
    task: Task::Pose,
    outputs: &[
        floats("cls", CELLS_OF_COLUMNS, &[Column::Classes]),
        floats("obj", CELLS_OF_COLUMNS, &[Column::RootObjectness]),
        floats("bbox", CELLS_OF_COLUMNS, &[Column::Box(BoxEncoding::CenterCells)]),
        floats("kps", CELLS_OF_COLUMNS, &[Column::CellKeypoints]),
    ],
    holds: "two scores, whose product has the score as its root; centre x, centre y in cells, logarithms of width, height in \
            cells; x and y of five points in cells",
    input: InputTransform { colors: Colors::Bgr, fit: ResizeMode::LetterboxTopLeft, pad: 0, scale: 1.0, ..YOLO },
    input_note: None,
    needs_nms: true,
    sizes: &HeadSizes { classes: Some(1), coefficients: None, grid: Some(GRID), keypoints: Some(FACE) },
    file: None,
    likely: |_| None,
    #[cfg(test)]
    gold,
};

const GRID: StrideGrid = StrideGrid {
    strides: Cow::Borrowed(&[8, 16, 32]),
    anchors: 1,
    priors: Cow::Borrowed(&[]),
    boxes: Cow::Borrowed(&[]),
};

/// Cell (1, 1) of the cells of 8 begins at (8, 8), and the logarithm of one cell is 0. The root of 0.5 × 0.125 is 0.25; a number
/// above 1 counts as 1.
#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let mut outputs = Vec::new();
    for (part, row, other) in [
        ("cls", &[0.5][..], &[0.0625][..]),
        ("obj", &[0.125], &[9.0]),
        ("bbox", &[0.5, 0.25, 0.0, 0.0], &[0.5, 0.5, 0.0, 0.0]),
        ("kps", &[0.5; 10], &[0.25; 10]),
    ] {
        for (stride, rows) in [(32, 1), (16, 4), (8, 16)] {
            let mut values = vec![0.0; rows * row.len()];
            match stride {
                8 => values[5 * row.len()..][..row.len()].copy_from_slice(row),
                32 => values.copy_from_slice(other),
                _ => {}
            }
            outputs.push(make(&format!("{part}_{stride}"), &[1, rows as i64, row.len() as i64], &values));
        }
    }
    (outputs, vec![candidate(5, 0, 0.25, [8.0, 6.0, 16.0, 14.0]), candidate(20, 0, 0.25, [0.0, 0.0, 32.0, 32.0])])
}
