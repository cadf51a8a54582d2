// SPDX-License-Identifier: MPL-2.0
//! A vector that tells pictures apart: pictures of the same person or thing have similar ones.

use super::recognise::Confidence;
use super::{CLASSES_ONLY, Column, HeadFormat, InputTransform, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "embed",
    about: "Vectors of pictures: ReID, faces, CLIP, DINO; with layout=embed, or the task embed in the metadata",
    task: Task::Embed,
    outputs: &[floats("", CLASSES_ONLY, &[Column::Vector])],
    holds: "the numbers of the vector of each picture",
    // Black is around the faces that models are trained with, where they reach over an edge.
    input: InputTransform { pad: 0, ..STRETCH },
    input_note: Some(
        "Set what the model was trained with on trtpreprocess, unless its graph does it: mean=0.485,0.456,0.406 \
         std=0.229,0.224,0.225 for most of ReID and DINO, mean=0.5 std=0.5 for most faces, and \
         mean=0.4815,0.4578,0.4082 std=0.2686,0.2613,0.2758 resize=center-crop for CLIP",
    ),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // It may be the scores of classes.
    likely: |candidate| (candidate.hints.task == Task::Embed.name()).then_some(Confidence::Sign),
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("output0", &[1, 4], &[0.5, -0.25, 0.0, 1.0])], Vec::new())
}
