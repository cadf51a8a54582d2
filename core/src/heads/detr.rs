// SPDX-License-Identifier: MPL-2.0
//! Labels, boxes and scores of transformers by their own exporters.

use super::{BoxEncoding, Column, DEIM_NOTE, HeadFormat, ROWS, ROWS_OF_COLUMNS, STRETCH, Task, floats, numbers};

pub static HEAD: HeadFormat = HeadFormat {
    name: "detr",
    about: "RT-DETR, D-FINE and DEIM by their own exporters",
    task: Task::Detect,
    outputs: &[
        numbers("labels", ROWS, &[Column::ClassId { first: 0 }]),
        floats("boxes", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners)]),
        floats("scores", ROWS, &[Column::Score]),
    ],
    holds: "boxes are left, top, right, bottom in the units of orig_target_sizes, which must be the input's size",
    input: STRETCH,
    input_note: Some(DEIM_NOTE),
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
        Tensor::from_slice("labels", &[1, 2], &[0i64, 1]),
        make("boxes", &[1, 2, 4], &[1.0, 1.0, 2.0, 2.0, 6.0, 4.0, 14.0, 16.0]),
        make("scores", &[1, 2], &[0.0, 0.375]),
    ];
    (outputs, vec![centered(1)])
}
