// SPDX-License-Identifier: MPL-2.0
//! Boxes, logits and masks of RF-DETR by its own exporter.

use super::{BoxEncoding, Column, HeadFormat, IMAGENET, MAPS_OF_ROWS, ROWS_OF_COLUMNS, Task, floats};
use crate::image::masks::maps::MapOver;

pub static HEAD: HeadFormat = HeadFormat {
    name: "rf-detr-seg",
    about: "RF-DETR's segmentation models by its own exporter",
    task: Task::Segment,
    outputs: &[
        floats("dets", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::CenterShares)]),
        floats("labels", ROWS_OF_COLUMNS, &[Column::Logits { has_background: true }]),
        floats("masks", MAPS_OF_ROWS, &[Column::Mask(MapOver::Input)]),
    ],
    holds: "as rf-detr, and logits of the mask of each row, over the whole input",
    input: IMAGENET,
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
    let (mut outputs, objects) = (super::rf_detr::HEAD.gold)(make);
    outputs.push(make("masks", &[1, 2, 3, 5], &[1.0; 30]));
    (outputs, objects)
}
