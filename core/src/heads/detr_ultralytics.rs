// SPDX-License-Identifier: MPL-2.0
//! Rows of a box in 0..1 and class scores.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "detr-ultralytics",
    about: "RT-DETR by Ultralytics until 8.4: a score for each class",
    task: Task::Detect,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::CenterShares), Column::Classes])],
    holds: "centre x, centre y, width, height in 0..1, class scores",
    input: STRETCH,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.grid {
        // Releases that write only the best class name their head in the metadata.
        _ if candidate.hints.rtdetr() && candidate.hints.head.is_empty() => Some(Confidence::Sign),
        _ if candidate.hints.rtdetr() => Some(Confidence::Shape),
        _ if candidate.hints.ultralytics || candidate.columns == 6 || candidate.columns >= candidate.rows => None,
        // It has 300 queries.
        AnchorGrid::Few
            if candidate.is_alone && (candidate.rows == 300 || candidate.is_labelled(candidate.classes_without(4))) =>
        {
            Some(Confidence::Shape)
        }
        _ => None,
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![rows(make, 10, &[(5, &[0.3125, 0.3125, 0.25, 0.375, 0.25, 0.375])])], vec![centered(5)])
}
