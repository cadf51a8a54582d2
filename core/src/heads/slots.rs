// SPDX-License-Identifier: MPL-2.0
//! The text of a picture in a fixed number of places: in each, a score for each character of an alphabet.

use super::recognise::Confidence;
use super::{Column, HeadFormat, ROWS_OF_COLUMNS, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "slots",
    about: "Number plates in a fixed number of places: fast-plate-ocr, with its alphabet in label-file",
    task: Task::Text,
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Slots { pad: '_' }])],
    holds: "for each place the characters of the alphabet, of which “_” fills the end",
    input: STRETCH,
    input_note: Some(
        "fast-plate-ocr's graphs normalise by themselves: set scale=1 on trtpreprocess where their input is f32 and not u8",
    ),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Without a dictionary in the file: that is of `ctc`.
    likely: |candidate| {
        let is_text = candidate.hints.task == Task::Text.name() && !candidate.hints.has_dictionary;
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
