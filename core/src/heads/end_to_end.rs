// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, its score and its class, of models that suppress boxes themselves.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "end-to-end",
    about: "YOLOv10 and YOLO26 without NMS, or any Ultralytics model with NMS in the graph",
    task: Task::Detect,
    outputs: &[floats(
        "",
        ROWS_OF_COLUMNS,
        &[Column::Box(BoxEncoding::Corners), Column::Score, Column::ClassId { first: 0 }],
    )],
    holds: "left, top, right, bottom in pixels, score, class; zeros where there are fewer boxes",
    input: YOLO,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        _ if candidate.hints.rtdetr() => None,
        _ if candidate.hints.end_to_end || candidate.hints.ultralytics => Some(Confidence::Sign),
        AnchorGrid::Few | AnchorGrid::Unknown => Some(Confidence::Shape),
        AnchorGrid::One | AnchorGrid::Three | AnchorGrid::Other => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![rows(make, 21, &[(5, &[6.0, 4.0, 14.0, 16.0, 0.375, 1.0])])], vec![centered(5)])
}
