// SPDX-License-Identifier: MPL-2.0
//! Columns of a box, class scores and keypoints.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, COLUMNS_OF_ROWS, Column, HeadFormat, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "pose",
    about: "Pose models by Ultralytics: YOLOv8, 11 and 26",
    task: Task::Pose,
    outputs: &[floats("", COLUMNS_OF_ROWS, &[Column::Box(BoxEncoding::Center), Column::Classes, Column::Keypoints])],
    holds: "centre x, centre y, width, height in pixels, class scores, and x, y and visibility of each keypoint of \
            kpt_shape",
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
    // The keypoints are greater than the scores, but are not class scores.
    let row = [10.0, 10.0, 8.0, 12.0, 0.25, 0.375, 7.0, 5.0, 0.5, 13.0, 15.0, 1.0];
    (vec![columns(make, 21, &[(5, &row)])], vec![centered(5)])
}
