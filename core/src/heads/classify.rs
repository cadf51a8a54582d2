// SPDX-License-Identifier: MPL-2.0
//! A score for each class of the frame as a whole.

use super::recognise::{Confidence, HeadCandidate};
use super::{CLASSES_ONLY, Column, HeadFormat, Task, YOLO, floats};
use crate::image::geometry::ResizeMode;
use crate::image::transform::InputTransform;

pub static HEAD: HeadFormat = HeadFormat {
    name: "classify",
    about: "Classifiers: by Ultralytics, torchvision and timm",
    task: Task::Classify,
    outputs: &[floats("", CLASSES_ONLY, &[Column::Classes])],
    holds: "probabilities or logits of the classes",
    input: InputTransform { fit: ResizeMode::CenterCrop, ..YOLO },
    input_note: Some(
        "For torchvision's and timm's ImageNet models, unless their graph does it, set mean=0.485,0.456,0.406 \
         std=0.229,0.224,0.225 on trtpreprocess, and their shortest-edge, such as 256 for an input of 224",
    ),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // A single number may mean anything, and YOLO-NAS calls a list of boxes this.
    likely: |candidate| match candidate.hints.task.as_str() {
        "" if candidate.name.contains("flat_predictions") || !candidate.follows_batch() => None,
        "" if candidate.is_alone && candidate.columns > 1 && has_classes(candidate) => Some(Confidence::Shape),
        "" => None,
        _ => Some(Confidence::Sign),
    },
    #[cfg(test)]
    gold,
};

/// Whether the numbers are of classes, unless they look like something else and neither labels nor a softmax speak for classes: a vector that
/// tells pictures apart, an embedding, has a multiple of 64 numbers, and a row of `yolov7-end-to-end` has 7.
fn has_classes(candidate: &HeadCandidate) -> bool {
    let looks_different = candidate.columns % 64 == 0 || candidate.columns == 7;
    !looks_different || candidate.hints.has_probabilities || candidate.is_labelled(candidate.classes_without(0))
}

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // A classifier gives no boxes.
    (vec![make("output0", &[1, 3], &[0.25, 0.5, 0.25])], Vec::new())
}
