// SPDX-License-Identifier: MPL-2.0
//! The text of a picture, by connectionist temporal classification: in each of several steps from left to right, a score for each
//! character of a dictionary, and for the blank between two of them.

use super::recognise::Confidence;
use super::{Column, HeadFormat, ROWS_OF_COLUMNS, TEXT_LINE, TEXT_NOTE, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "ctc",
    about: "Lines of text: PP-OCR's recognition models, with their dictionary in the metadata or in label-file",
    task: Task::Text,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Characters { is_blank_last: false, has_space: true }])],
    holds: "for each step the blank, the characters of the dictionary, and a space",
    input: TEXT_LINE,
    input_note: Some(TEXT_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Rows of scores may be boxes.
    likely: |candidate| {
        let is_text = candidate.hints.has_dictionary || candidate.hints.task == Task::Text.name();
        (is_text && candidate.follows_batch()).then_some(Confidence::Sign)
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("output", &[1, 2, 3], &[0.75, 0.25, 0.0, 0.0, 0.75, 0.25])], Vec::new())
}
