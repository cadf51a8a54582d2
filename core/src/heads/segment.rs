// SPDX-License-Identifier: MPL-2.0
//! Columns of a box, class scores and coefficients of a mask, and the prototypes of which masks are sums.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, COLUMNS_OF_ROWS, Column, HeadFormat, PROTOTYPES, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "segment",
    about: "Segmentation models by Ultralytics: YOLOv8, 9, 11, 12 and 26",
    task: Task::Segment,
    outputs: &[
        floats("", COLUMNS_OF_ROWS, &[Column::Box(BoxEncoding::Center), Column::Classes, Column::Coefficients]),
        PROTOTYPES,
    ],
    holds: "centre x, centre y, width, height in pixels, class scores and mask coefficients; the prototypes of masks",
    input: YOLO,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        AnchorGrid::One | AnchorGrid::Unknown => Some(Confidence::Sign),
        AnchorGrid::Three | AnchorGrid::Few | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    // The coefficients are greater than the scores, but are not class scores.
    let row = [10.0, 10.0, 8.0, 12.0, 0.25, 0.375, 2.5, -1.0, 4.0];
    (vec![columns(make, 21, &[(5, &row)]), make("output1", &[1, 3, 8, 8], &[1.0; 3 * 64])], vec![centered(5)])
}
