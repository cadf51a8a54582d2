// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, and columns of class scores in another output.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, COLUMNS_OF_ROWS, Column, HeadFormat, PP_YOLOE_NOTE, ROWS_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "pp-yoloe",
    about: "PP-YOLOE exported by PaddleDetection with exclude_nms=True",
    task: Task::Detect,
    outputs: &[
        floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners)]),
        floats("", COLUMNS_OF_ROWS, &[Column::Classes]),
    ],
    holds: "left, top, right, bottom in pixels; class scores, one class after the other",
    input: STRETCH,
    input_note: Some(PP_YOLOE_NOTE),
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| (candidate.grid == AnchorGrid::One).then_some(Confidence::Sign),
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let boxes = rows(make, 21, &[(5, &[6.0, 4.0, 14.0, 16.0])]);
    (vec![boxes, columns(make, 21, &[(5, &[0.25, 0.375])])], vec![centered(5)])
}
