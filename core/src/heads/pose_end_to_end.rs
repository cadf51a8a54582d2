// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, its score, its class and keypoints, of models that suppress boxes themselves.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "pose-end-to-end",
    about: "YOLO26 pose models without NMS, or any Ultralytics pose model with NMS in the graph",
    task: Task::Pose,
    outputs: &[floats(
        "",
        ROWS_OF_COLUMNS,
        &[Column::Box(BoxEncoding::Corners), Column::Score, Column::ClassId { first: 0 }, Column::Keypoints],
    )],
    holds: "left, top, right, bottom in pixels, score, class, and x, y and visibility of each keypoint of kpt_shape; \
            zeros where there are fewer boxes",
    input: YOLO,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
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
    let row = [6.0, 4.0, 14.0, 16.0, 0.375, 1.0, 7.0, 5.0, 0.5, 13.0, 15.0, 1.0];
    (vec![rows(make, 21, &[(5, &row)])], vec![centered(5)])
}
