// SPDX-License-Identifier: MPL-2.0
//! Rows of a box and class scores.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolov8-transposed",
    about: "YOLOv8 and later with a transpose at the end: rows without objectness",
    task: Task::Detect,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Center), Column::Classes])],
    holds: "centre x, centre y, width, height in pixels, class scores",
    input: YOLO,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        _ if candidate.hints.ultralytics => None,
        AnchorGrid::One | AnchorGrid::Unknown => Some(Confidence::Shape),
        AnchorGrid::Three | AnchorGrid::Few | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![rows(make, 21, &[(5, &[10.0, 10.0, 8.0, 12.0, 0.25, 0.375])])], vec![centered(5)])
}
