// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, objectness and class scores.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolov5",
    about: "YOLOv5, YOLOv6 and YOLOv7: rows with objectness",
    task: Task::Detect,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Center), Column::Objectness, Column::Classes])],
    holds: "centre x, centre y, width, height in pixels, objectness, class scores",
    input: YOLO,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        _ if candidate.hints.ultralytics => None,
        AnchorGrid::Three => Some(Confidence::Sign),
        AnchorGrid::One if candidate.name == "output" => None, // YOLOX
        AnchorGrid::One if candidate.name == "outputs" => Some(Confidence::Sign), // YOLOv6
        AnchorGrid::One | AnchorGrid::Unknown => Some(Confidence::Shape),
        AnchorGrid::Few | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let head = rows(make, 63, &[(5, &[10.0, 10.0, 8.0, 12.0, 0.5, 0.25, 0.75])]);
    (vec![head], vec![centered(5)])
}
