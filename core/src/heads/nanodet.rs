// SPDX-License-Identifier: MPL-2.0
//! Rows of class scores, and of the distances to the edges as distributions (Generalized Focal Loss, arXiv 2006.04388), as
//! nanodet/model/head/gfl_head.py of NanoDet reads them: from the middle of a cell, on strides 8, 16, 32.

use super::recognise::{Confidence, HeadCandidate};
use super::{BoxEncoding, Column, HeadFormat, InputTransform, ROWS_OF_COLUMNS, STRETCH, Task, floats};
use crate::image::transform::Colors;

pub static HEAD: HeadFormat = HeadFormat {
    name: "nanodet",
    about: "NanoDet",
    task: Task::Detect,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Classes, Column::Box(BoxEncoding::MiddleDistances)])],
    holds: "class scores; distributions over 0 to 7 cells of the distances from the cell to left, top, right, bottom",
    input: InputTransform {
        colors: Colors::Bgr,
        scale: 1.0,
        mean: [103.53, 116.28, 123.675],
        std: [57.375, 57.12, 58.395],
        ..STRETCH
    },
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| likely(candidate, &[8, 16, 32]),
    #[cfg(test)]
    gold: |make| gold(make, 6, [0.5, 1.0, 0.5, 0.5], [16.0, 4.0, 24.0, 16.0]),
};

/// Elements of a row that are no class scores.
const OTHERS: usize = BoxEncoding::MiddleDistances.width();

/// On these strides. YOLOX's rows may have the same dimensions.
pub(super) fn likely(candidate: &HeadCandidate, strides: &[u32]) -> Option<Confidence> {
    if candidate.strides() != Some(strides) || candidate.hints.ultralytics {
        return None;
    }
    // NanoDet's demo for one class.
    let classes = candidate.classes_without(OTHERS);
    let is_it = is_certain(candidate) || classes == 1 || candidate.is_labelled(classes);
    match is_it {
        true => Some(Confidence::Sign),
        false => (candidate.name == "output").then_some(Confidence::Shape),
    }
}

/// Whether rows are not YOLOX's: COCO's 80 classes, or strides that YOLOX has not, unless there are labels for as many classes as
/// YOLOX would have.
pub(super) fn is_certain(candidate: &HeadCandidate) -> bool {
    let classes = candidate.classes_without(OTHERS);
    let has_four_strides = candidate.strides() == Some(&[8, 16, 32, 64]);
    classes > 0 && (classes == 80 || has_four_strides) && !candidate.is_labelled(candidate.classes_without(5))
}

/// Boxes of cell `row` of 16 of the cells of 8, whose distributions lie at one or at two numbers.
#[cfg(test)]
pub(super) fn gold(
    make: super::tests::MakeTensor,
    row: usize,
    distances: [f32; 4],
    bbox: [f32; 4],
) -> super::tests::Gold {
    use super::tests::*;
    let mut numbers = vec![0.25, 0.375];
    for distance in distances {
        // Of two numbers that are the same and far above the others, the mean is in the middle.
        let (below, above) = (distance.floor() as usize, distance.ceil() as usize);
        numbers.extend((0..8).map(|at| if at == below || at == above { 1000.0 } else { -1000.0 }));
    }
    (vec![rows(make, 21, &[(row, &numbers)])], vec![candidate(row as u32, 1, 0.375, bbox)])
}
