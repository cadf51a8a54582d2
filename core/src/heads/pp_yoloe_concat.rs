// SPDX-License-Identifier: MPL-2.0
//! Rows of a box as corners, and class scores.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, PP_YOLOE_NOTE, ROWS_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "pp-yoloe-concat",
    about: "PP-YOLOE exported by PaddleDetection with exclude_post_process=True",
    task: Task::Detect,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Box(BoxEncoding::Corners), Column::Classes])],
    holds: "left, top, right, bottom in pixels, class scores",
    input: STRETCH,
    input_note: Some(PP_YOLOE_NOTE),
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    // Names that Paddle gives its tensors.
    likely: |candidate| {
        let is_paddle = candidate.name.contains(".tmp_") || candidate.name.starts_with("fetch_name_");
        (is_paddle && candidate.grid == AnchorGrid::One).then_some(Confidence::Sign)
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    (vec![rows(make, 21, &[(5, &[6.0, 4.0, 14.0, 16.0, 0.25, 0.375])])], vec![centered(5)])
}
