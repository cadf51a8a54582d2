// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, its score, its class and its angle, of models that suppress boxes themselves.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "obb-end-to-end",
    about: "YOLO26 models of rotated boxes without NMS, or any of Ultralytics' with NMS in the graph",
    task: Task::Obb,
    outputs: &[floats(
        "",
        ROWS_OF_COLUMNS,
        &[Column::Box(BoxEncoding::Center), Column::Score, Column::ClassId { first: 0 }, Column::Angle],
    )],
    holds: "centre x, centre y, width, height in pixels, score, class, and the angle in radians; zeros where there \
            are fewer boxes",
    input: YOLO,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        _ if candidate.hints.task != Task::Obb.name() => None,
        _ if candidate.hints.end_to_end => Some(Confidence::Sign),
        AnchorGrid::Few | AnchorGrid::Unknown => Some(Confidence::Shape),
        AnchorGrid::One | AnchorGrid::Three | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let row = [10.0, 10.0, 8.0, 12.0, 0.375, 1.0, -0.5];
    (vec![rows(make, 21, &[(5, &row)])], vec![rotated(centered(5), -0.5)])
}
