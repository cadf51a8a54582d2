// SPDX-License-Identifier: MPL-2.0
//! Boxes in parts of the input, and rows of class scores in another output, as tool/utils of pytorch-YOLOv4 reads them.

use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, ROWS_OF_ONE_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolov4",
    about: "YOLOv3 and YOLOv4 by pytorch-YOLOv4",
    task: Task::Detect,
    outputs: &[
        floats("boxes", ROWS_OF_ONE_OF_COLUMNS, &[Column::Box(BoxEncoding::CornersShares)]),
        floats("confs", ROWS_OF_COLUMNS, &[Column::Classes]),
    ],
    holds: "left, top, right, bottom in 0..1; class scores",
    input: STRETCH,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    let mut boxes = [0.0; 4 * 3];
    boxes[4..8].copy_from_slice(&[0.1875, 0.125, 0.4375, 0.5]);
    let boxes = make("boxes", &[1, 3, 1, 4], &boxes);
    (vec![boxes, make("confs", &[1, 3, 2], &[0.0, 0.0, 0.25, 0.375, 0.0, 0.0])], vec![super::tests::centered(1)])
}
