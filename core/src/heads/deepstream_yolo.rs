// SPDX-License-Identifier: MPL-2.0
//! Rows of a box, its score and its class, which still repeat each other.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "deepstream-yolo",
    about: "Any family re-exported by DeepStream-Yolo",
    task: Task::Detect,
    outputs: &[floats(
        "",
        ROWS_OF_COLUMNS,
        &[Column::Box(BoxEncoding::Corners), Column::Score, Column::ClassId { first: 0 }],
    )],
    holds: "left, top, right, bottom in pixels, score, class; boxes repeat",
    input: YOLO,
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| {
        let is_dense = matches!(candidate.grid, AnchorGrid::One | AnchorGrid::Three);
        (is_dense && candidate.name == "output").then_some(Confidence::Sign)
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![rows(make, 21, &[(5, &[6.0, 4.0, 14.0, 16.0, 0.375, 1.0])])], vec![centered(5)])
}
