// SPDX-License-Identifier: MPL-2.0
//! Boxes and logits of RF-DETR by its own exporter.

use super::{BoxEncoding, Column, HeadFormat, IMAGENET, ROWS_OF_COLUMNS, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "rf-detr",
    about: "RF-DETR by its own exporter",
    task: Task::Detect,
    outputs: &[
        floats("dets", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::CenterShares)]),
        floats("labels", ROWS_OF_COLUMNS, &[Column::Logits { has_background: true }]),
    ],
    holds: "centre x, centre y, width, height in 0..1; logits of the classes, and of the background or not \
            (background-class)",
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
    use super::tests::*;
    // A logit of 0 is a score of 0.5. A query is an object of each class that passes; the last slot is the background's.
    let dets = make("dets", &[1, 2, 4], &[0.3125, 0.3125, 0.25, 0.375, 0.5, 0.5, 0.25, 0.25]);
    let labels = make("labels", &[1, 2, 3], &[0.0, 0.0, 8.0, -20.0, 20.0, -20.0]);
    let (first, second) = ([6.0, 4.0, 14.0, 16.0], [12.0, 12.0, 20.0, 20.0]);
    (vec![dets, labels], vec![candidate(0, 0, 0.5, first), candidate(0, 1, 0.5, first), candidate(1, 1, 1.0, second)])
}
