// SPDX-License-Identifier: MPL-2.0
//! The depth of each pixel.

use super::recognise::Confidence;
use super::{Column, HeadFormat, MAP, MAP_NOTE, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "depth",
    about: "Depth: Ultralytics' depth models; with layout=depth also Depth Anything, MiDaS and the like",
    task: Task::Depth,
    outputs: &[floats("", MAP, &[Column::Depth])],
    holds: "the depth of each pixel",
    input: STRETCH,
    input_note: Some(MAP_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // One number for each pixel may mean anything.
    likely: |candidate| (candidate.hints.task == Task::Depth.name()).then_some(Confidence::Sign),
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("output0", &[1, 1, 4, 4], &[0.5; 16])], Vec::new())
}
