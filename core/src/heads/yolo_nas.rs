// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, and rows of class scores in another output.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolo-nas",
    about: "YOLO-NAS without its suppression",
    task: Task::Detect,
    outputs: &[
        floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners)]),
        floats("", ROWS_OF_COLUMNS, &[Column::Classes]),
    ],
    holds: "left, top, right, bottom in pixels; class scores",
    input: YOLO,
    input_note: None,
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
    (vec![boxes, rows(make, 21, &[(5, &[0.25, 0.375])])], vec![centered(5)])
}
