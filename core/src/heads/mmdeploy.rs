// SPDX-License-Identifier: MPL-2.0
//! Rows of a box and its score, and classes in another output, by MMDeploy.

use super::{BoxEncoding, Column, HeadFormat, ROWS, ROWS_OF_COLUMNS, Task, YOLO, floats, numbers};
use crate::image::geometry::ResizeMode;
use crate::image::transform::InputTransform;

pub static HEAD: HeadFormat = HeadFormat {
    name: "mmdeploy",
    about: "MMDetection by MMDeploy, with suppression in the graph",
    task: Task::Detect,
    outputs: &[
        floats("dets", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners), Column::Score]),
        numbers("labels", ROWS, &[Column::ClassId { first: 0 }]),
    ],
    holds: "left, top, right, bottom in pixels, score; classes",
    input: InputTransform { fit: ResizeMode::LetterboxTopLeft, ..YOLO },
    input_note: Some(
        "Set what the model's configuration has on trtpreprocess; for RTMDet that is tensor-colors=bgr scale=1 \
         mean=103.53,116.28,123.675 std=57.375,57.12,58.395",
    ),
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
        make("dets", &[1, 3, 5], &[1.0, 1.0, 2.0, 2.0, 0.0, 6.0, 4.0, 14.0, 16.0, 0.375, 1.0, 1.0, 2.0, 2.0, 0.5]),
        Tensor::from_slice("labels", &[1, 3], &[0i64, 1, -1]), // the last one is padding
    ];
    (outputs, vec![centered(1)])
}
