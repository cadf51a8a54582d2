// SPDX-License-Identifier: MPL-2.0
//! Maps of logits and of distances, each in an output for each stride, as mmdet/models/dense_heads/rtmdet_head.py of MMDetection reads
//! them. With the post-processing in the graph, which MMDeploy puts there, a model is `mmdeploy`.

use super::{BoxEncoding, Column, HeadFormat, InputTransform, MAPS_OF_CELLS, ResizeMode, Task, YOLO, floats};
use crate::image::transform::Colors;

pub static HEAD: HeadFormat = HeadFormat {
    name: "rtmdet",
    about: "RTMDet by MMDetection, without its post-processing",
    task: Task::Detect,
    outputs: &[
        floats("", MAPS_OF_CELLS, &[Column::Logits { has_background: false }]),
        floats("", MAPS_OF_CELLS, &[Column::Box(BoxEncoding::CornerPixels)]),
    ],
    holds: "a map of logits for each class; maps of the distances in pixels from the corner of the cell to left, top, right, bottom",
    input: InputTransform {
        colors: Colors::Bgr,
        fit: ResizeMode::LetterboxTopLeft,
        scale: 1.0,
        mean: [103.53, 116.28, 123.675],
        std: [57.375, 57.12, 58.395],
        ..YOLO
    },
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    // Over 32x32 the strides 8, 16 and 32 have maps of 4x4, 2x2 and 1x1. Cell (1, 0) of the second one has its corner at (16, 0); it
    // reaches 4 pixels to the left, none up, 8 to the right and 16 down. A logit of 0 is a score of 0.5.
    let mut outputs = Vec::new();
    for (part, columns, usual, of_cell) in
        [("cls", 2, -20.0, &[-20.0, 0.0][..]), ("reg", 4, 0.0, &[4.0, 0.0, 8.0, 16.0])]
    {
        for (level, side) in [4usize, 2, 1].into_iter().enumerate() {
            let mut maps = vec![usual; columns * side * side];
            if level == 1 {
                maps.chunks_exact_mut(side * side).zip(of_cell).for_each(|(map, &number)| map[1] = number);
            }
            let side = side as i64;
            outputs.push(make(&format!("{part}{level}"), &[1, columns as i64, side, side], &maps));
        }
    }
    (outputs, vec![candidate(17, 1, 0.5, [12.0, 0.0, 24.0, 16.0])])
}
