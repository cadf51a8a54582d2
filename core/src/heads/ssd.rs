// SPDX-License-Identifier: MPL-2.0
//! Boxes, classes, scores and their number, by TensorFlow.

use super::{BoxEncoding, Column, Dim, HeadFormat, ROWS, ROWS_OF_COLUMNS, STRETCH, Task, floats, numbers};
use crate::image::transform::InputTransform;

pub static HEAD: HeadFormat = HeadFormat {
    name: "ssd",
    about: "SSD and the like from TensorFlow's detection zoo",
    task: Task::Detect,
    outputs: &[
        floats("detection_boxes", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::CornersYxShares)]),
        numbers("detection_classes", ROWS, &[Column::ClassId { first: 1 }]),
        floats("detection_scores", ROWS, &[Column::Score]),
        numbers("num_detections", &[Dim::Batch], &[Column::Count]),
    ],
    holds: "boxes are top, left, bottom, right in 0..1; classes count from 1, so the first label is class 1",
    input: InputTransform { scale: 1.0, ..STRETCH },
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let outputs = vec![
        make("detection_boxes:0", &[1, 2, 4], &[0.125, 0.1875, 0.5, 0.4375, 0.0, 0.0, 1.0, 1.0]),
        make("detection_classes:0", &[1, 2], &[2.0, 1.0]),
        make("detection_scores:0", &[1, 2], &[0.375, 0.5]),
        make("num_detections:0", &[1], &[1.0]),
    ];
    (outputs, vec![centered(0)])
}
