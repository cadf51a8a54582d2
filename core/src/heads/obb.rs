// SPDX-License-Identifier: MPL-2.0
//! Columns of a box, class scores and the rotation of the box.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, COLUMNS_OF_ROWS, Column, HeadFormat, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "obb",
    about: "Models of rotated boxes by Ultralytics: YOLOv8, 11 and 26",
    task: Task::Obb,
    outputs: &[floats("", COLUMNS_OF_ROWS, &[Column::Box(BoxEncoding::Center), Column::Classes, Column::Angle])],
    holds: "centre x, centre y, width, height in pixels, class scores, and the angle in radians",
    input: YOLO,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    // Only the task distinguishes an angle from the score of one more class.
    likely: |candidate| match candidate.grid {
        _ if candidate.hints.task != Task::Obb.name() => None,
        AnchorGrid::One | AnchorGrid::Unknown => Some(Confidence::Sign),
        AnchorGrid::Three | AnchorGrid::Few | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    // The angle is greater than the scores, but is not a class score.
    let row = [10.0, 10.0, 8.0, 12.0, 0.25, 0.375, 2.5];
    (vec![columns(make, 21, &[(5, &row)])], vec![rotated(centered(5), 2.5)])
}
