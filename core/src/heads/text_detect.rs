// SPDX-License-Identifier: MPL-2.0
//! A probability for each pixel that it belongs to a text, by differentiable binarization. Its regions become rotated boxes.

use super::recognise::Confidence;
use super::{Column, HeadFormat, IMAGENET, MAP, Task, floats};
use crate::image::geometry::ResizeMode;
use crate::image::transform::{Colors, InputTransform};

pub static HEAD: HeadFormat = HeadFormat {
    name: "text-detect",
    about: "Rotated boxes of text, of a map: DBNet, PP-OCR's detection models; with layout=text-detect",
    task: Task::TextDetect,
    outputs: &[floats("", MAP, &[Column::TextScore])],
    holds: "the probability of each pixel that it belongs to a text",
    input: InputTransform { colors: Colors::Bgr, fit: ResizeMode::Letterbox, pad: 0, ..IMAGENET },
    input_note: Some(
        "The input is taken for that of PP-OCR: BGR, normalised by ImageNet's mean and std. If the model was trained \
         with something else, such as mean=0.5 std=0.5, set it on trtpreprocess",
    ),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // One number for each pixel may mean anything.
    likely: |candidate| (candidate.hints.task == Task::TextDetect.name()).then_some(Confidence::Sign),
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // Its boxes are no rows.
    (vec![make("maps", &[1, 1, 4, 4], &[0.5; 16])], Vec::new())
}
