// SPDX-License-Identifier: MPL-2.0
//! Rows of a box in 0..1, its score and its class.

use super::recognise::Confidence;
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "detr-topk",
    about: "RT-DETR by Ultralytics since 8.4: the best class only",
    task: Task::Detect,
    outputs: &[floats(
        "",
        ROWS_OF_COLUMNS,
        &[Column::Box(BoxEncoding::CenterShares), Column::Score, Column::ClassId { first: 0 }],
    )],
    holds: "centre x, centre y, width, height in 0..1, score, class",
    input: STRETCH,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| {
        if !candidate.hints.rtdetr() {
            None
        } else if candidate.hints.head.is_empty() {
            Some(Confidence::Shape)
        } else {
            Some(Confidence::Sign)
        }
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![rows(make, 10, &[(5, &[0.3125, 0.3125, 0.25, 0.375, 0.375, 1.0])])], vec![centered(5)])
}
