// SPDX-License-Identifier: MPL-2.0
//! A score for each class and pixel.

use super::recognise::Confidence;
use super::{Column, Dim, HeadFormat, MAP_NOTE, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "semantic-logits",
    about: "Semantic segmentation with scores: torchvision, Hugging Face (SegFormer), Ultralytics' engines",
    task: Task::Semantic,
    outputs: &[floats("", &[Dim::Batch, Dim::Columns, Dim::Height, Dim::Width], &[Column::Classes])],
    holds: "logits or probabilities of the classes for each pixel; of a single class a score, above map-threshold where it is",
    input: YOLO,
    input_note: Some(MAP_NOTE),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Heat maps have such dimensions too, but are smaller than the input. The names are torchvision's and Hugging Face's.
    likely: |candidate| match (candidate.hints.task.as_str(), candidate.name) {
        ("", _) if candidate.columns < 2 => None,
        ("", "out" | "logits") => Some(Confidence::Shape),
        ("", _) => {
            candidate.pixels_of_map().filter(|&pixels| pixels == 1 && candidate.is_alone).map(|_| Confidence::Shape)
        }
        _ => Some(Confidence::Sign),
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("output0", &[1, 3, 4, 4], &[0.5; 48])], Vec::new())
}
