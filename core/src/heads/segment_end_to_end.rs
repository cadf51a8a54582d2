// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, its score, its class and coefficients of its mask, of models that suppress boxes themselves, and the
//! prototypes of which masks are sums.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, PROTOTYPES, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "segment-end-to-end",
    about: "YOLO26 segmentation models without NMS, or any Ultralytics segmentation model with NMS in the graph",
    task: Task::Segment,
    outputs: &[
        floats(
            "",
            ROWS_OF_COLUMNS,
            &[Column::Box(BoxEncoding::Corners), Column::Score, Column::ClassId { first: 0 }, Column::Coefficients],
        ),
        PROTOTYPES,
    ],
    holds: "left, top, right, bottom in pixels, score, class and mask coefficients, zeros where there are fewer boxes; the \
            prototypes of masks",
    input: YOLO,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        _ if candidate.hints.end_to_end => Some(Confidence::Sign),
        AnchorGrid::Few | AnchorGrid::Unknown => Some(Confidence::Sign),
        AnchorGrid::One | AnchorGrid::Three | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let row = [6.0, 4.0, 14.0, 16.0, 0.375, 1.0, 2.5, -1.0, 4.0];
    (vec![rows(make, 21, &[(5, &row)]), make("output1", &[1, 3, 8, 8], &[1.0; 3 * 64])], vec![centered(5)])
}
