// SPDX-License-Identifier: MPL-2.0
//! Columns of a box and class scores.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, COLUMNS_OF_ROWS, Column, HeadFormat, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolov8",
    about: "YOLOv8, 9, 10, 11, 12, 26 and YOLOv5u by Ultralytics: columns without objectness",
    task: Task::Detect,
    outputs: &[floats("", COLUMNS_OF_ROWS, &[Column::Box(BoxEncoding::Center), Column::Classes])],
    holds: "centre x, centre y, width, height in pixels, class scores",
    input: YOLO,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        AnchorGrid::One | AnchorGrid::Unknown if candidate.hints.ultralytics => Some(Confidence::Sign),
        AnchorGrid::One | AnchorGrid::Three | AnchorGrid::Unknown => Some(Confidence::Shape),
        AnchorGrid::Few | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![columns(make, 21, &[(5, &[10.0, 10.0, 8.0, 12.0, 0.25, 0.375])])], vec![centered(5)])
}
