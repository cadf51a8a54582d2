// SPDX-License-Identifier: MPL-2.0
//! Boxes, scores, classes and masks of models that suppress boxes themselves, by DeepStream-Yolo-Seg.

use super::{BoxEncoding, Column, HeadFormat, MAPS_OF_ROWS, ROWS, ROWS_OF_COLUMNS, Task, YOLO, floats};
use crate::image::masks::maps::MapOver;

pub static HEAD: HeadFormat = HeadFormat {
    name: "deepstream-yolo-seg",
    about: "Segmentation models re-exported by DeepStream-Yolo-Seg",
    task: Task::Segment,
    outputs: &[
        floats("boxes", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners)]),
        floats("scores", ROWS, &[Column::Score]),
        floats("classes", ROWS, &[Column::ClassId { first: 0 }]),
        floats("masks", MAPS_OF_ROWS, &[Column::Mask(MapOver::Box)]),
    ],
    holds: "boxes are left, top, right, bottom in pixels; masks are probabilities over the box",
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
    let outputs = vec![
        make("boxes", &[1, 2, 4], &[1.0, 1.0, 2.0, 2.0, 6.0, 4.0, 14.0, 16.0]),
        make("scores", &[1, 2, 1], &[0.0, 0.375]),
        make("classes", &[1, 2, 1], &[0.0, 1.0]),
        make("masks", &[1, 2, 3, 5], &[1.0; 30]),
    ];
    (outputs, vec![centered(1)])
}
