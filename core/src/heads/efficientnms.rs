// SPDX-License-Identifier: MPL-2.0
//! Boxes, scores, classes and their number, by TensorRT's EfficientNMS plugin.

use super::{BoxEncoding, Column, Dim, HeadFormat, ROWS, ROWS_OF_COLUMNS, Task, YOLO, floats, numbers};

pub static HEAD: HeadFormat = HeadFormat {
    name: "efficientnms",
    about: "Models with TensorRT's EfficientNMS plugin at the end",
    task: Task::Detect,
    outputs: &[
        numbers("num_dets", &[Dim::Batch], &[Column::Count]),
        floats("det_boxes", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners)]),
        floats("det_scores", ROWS, &[Column::Score]),
        numbers("det_classes", ROWS, &[Column::ClassId { first: 0 }]),
    ],
    holds: "boxes are left, top, right, bottom in pixels",
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
        Tensor::from_slice("num_dets", &[1, 1], &[1i32]),
        make("det_boxes", &[1, 2, 4], &[6.0, 4.0, 14.0, 16.0, 1.0, 1.0, 2.0, 2.0]),
        make("det_scores", &[1, 2], &[0.375, 0.5]),
        Tensor::from_slice("det_classes", &[1, 2], &[1i32, 0]),
    ];
    (outputs, vec![centered(0)])
}
