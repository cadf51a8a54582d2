// SPDX-License-Identifier: MPL-2.0
//! The same as `ctc` with the steps in the first dimension, as recurrent networks write them.

use super::{Column, Dim, HeadFormat, TEXT_LINE, TEXT_NOTE, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "ctc-time-first",
    about: "Lines of text whose steps are the first dimension, in batches of one: CRNN; with label-file",
    task: Task::Text,
    outputs: &[floats(
        "",
        &[Dim::Rows, Dim::One, Dim::Columns],
        &[Column::Characters { is_blank_last: false, has_space: false }],
    )],
    holds: "for each step the blank, and the characters of the dictionary",
    input: TEXT_LINE,
    input_note: Some(TEXT_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // What the first dimension is, only the user knows.
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("output", &[2, 1, 3], &[0.75, 0.25, 0.0, 0.0, 0.75, 0.25])], Vec::new())
}
