// SPDX-License-Identifier: MPL-2.0
//! Whether a line of text stands on its head: probabilities of 0 and 180 degrees. It is a classifier whose result turns its object.

use super::{CLASSES_ONLY, Column, HeadFormat, TEXT_LINE, TEXT_NOTE, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "text-orientation",
    about: "Lines of text that are upside down: PP-OCR's classifier of 0 and 180 degrees; with layout=text-orientation",
    task: Task::Classify,
    outputs: &[floats("", CLASSES_ONLY, &[Column::Classes])],
    holds: "probabilities or logits of 0 and 180 degrees",
    input: TEXT_LINE,
    input_note: Some(TEXT_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Two classes may mean anything.
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // A classifier gives no boxes.
    (vec![make("output", &[1, 2], &[0.25, 0.75])], Vec::new())
}
