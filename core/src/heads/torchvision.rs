// SPDX-License-Identifier: MPL-2.0
//! Boxes, labels and scores of one picture, as many as there are objects, by torchvision.

use super::{BoxEncoding, Column, Dim, HeadFormat, Task, YOLO, floats, numbers};

/// Of one picture: there is no batch.
const ROWS: &[Dim] = &[Dim::Rows];
const ROWS_OF_COLUMNS: &[Dim] = &[Dim::Rows, Dim::Columns];

pub static HEAD: HeadFormat = HeadFormat {
    name: "torchvision",
    about: "Faster R-CNN, Mask R-CNN, RetinaNet, FCOS and SSD by torchvision, for one picture at a time",
    task: Task::Detect,
    outputs: &[
        floats("boxes", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners)]),
        numbers("labels", ROWS, &[Column::ClassId { first: 0 }]),
        floats("scores", ROWS, &[Column::Score]),
    ],
    holds: "boxes are left, top, right, bottom in pixels; class 0 is the background, and so the first label",
    input: YOLO,
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
    use crate::tensor::Tensor;
    let outputs = vec![
        make("boxes", &[2, 4], &[1.0, 1.0, 2.0, 2.0, 6.0, 4.0, 14.0, 16.0]),
        Tensor::from_slice("labels", &[2], &[2i64, 1]),
        make("scores", &[2], &[0.0, 0.375]),
    ];
    (outputs, vec![centered(1)])
}
