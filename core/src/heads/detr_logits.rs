// SPDX-License-Identifier: MPL-2.0
//! Boxes and logits of transformers, before their post-processing.

use super::exports::GROUNDING_DINO;
use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, DEIM_NOTE, HeadFormat, ROWS_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "detr-logits",
    about: "RT-DETR, RT-DETRv2, D-FINE, DEIM and DEIMv2 without their post-processing",
    task: Task::Detect,
    outputs: &[
        floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::CenterShares)]),
        floats("", ROWS_OF_COLUMNS, &[Column::Logits { has_background: false }]),
    ],
    holds: "centre x, centre y, width, height in 0..1; logits of the classes",
    input: STRETCH,
    input_note: Some(DEIM_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Models whose scores are a softmax, as DETR's, have the same outputs, but do not sample at points between pixels. The logits of
    // Grounding DINO are of no classes.
    likely: |candidate| match candidate.grid {
        AnchorGrid::Few | AnchorGrid::Unknown
            if candidate.hints.samples_points && !candidate.name.contains("logits") =>
        {
            let is_of_tokens = [candidate.rows, candidate.columns] == GROUNDING_DINO;
            (!is_of_tokens || candidate.is_labelled(candidate.classes_without(0))).then_some(Confidence::Sign)
        }
        _ => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    // A logit of 0 is a score of 0.5, and a query an object of each class that passes.
    let boxes = make("pred_boxes", &[1, 2, 4], &[0.3125, 0.3125, 0.25, 0.375, 0.5, 0.5, 0.25, 0.25]);
    let logits = make("logits", &[1, 2, 2], &[0.0, 0.0, -20.0, 20.0]);
    let (first, second) = ([6.0, 4.0, 14.0, 16.0], [12.0, 12.0, 20.0, 20.0]);
    (vec![boxes, logits], vec![candidate(0, 0, 0.5, first), candidate(0, 1, 0.5, first), candidate(1, 1, 1.0, second)])
}
