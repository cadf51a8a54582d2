// SPDX-License-Identifier: MPL-2.0
//! The class of each pixel.

use super::recognise::Confidence;
use super::{Column, ElementClass, HeadFormat, MAP, MAP_NOTE, OutputSpec, Task, YOLO};

pub static HEAD: HeadFormat = HeadFormat {
    name: "semantic",
    about: "Semantic segmentation with class ids: Ultralytics' sem models, and others whose graph ends in an argmax",
    task: Task::Semantic,
    outputs: &[OutputSpec {
        name: "",
        class: ElementClass::Integer,
        dims: MAP,
        columns: &[Column::ClassId { first: 0 }],
    }],
    holds: "the class id of each pixel; of a single class 1, and 0 elsewhere",
    input: YOLO,
    input_note: Some(MAP_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| match candidate.hints.task.as_str() {
        "" if candidate.is_alone => candidate.pixels_of_map().map(|_| Confidence::Shape),
        "" => None,
        _ => Some(Confidence::Sign),
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(_: super::tests::MakeTensor) -> super::tests::Gold {
    use crate::tensor::Tensor;

    // It gives no boxes.
    (vec![Tensor::from_slice("output0", &[1, 4, 4], &[1u8; 16])], Vec::new())
}
