// SPDX-License-Identifier: MPL-2.0
//! Rows of all pictures of a batch, by the DetectionOutput of Caffe and OpenVINO.

use super::recognise::Confidence;
use super::{BoxEncoding, Column, Dim, HeadFormat, STRETCH, Task, floats};
use crate::image::transform::{Colors, InputTransform};

pub static HEAD: HeadFormat = HeadFormat {
    name: "openvino-ssd",
    about: "SSD and the like from Caffe and OpenVINO, with DetectionOutput at the end",
    task: Task::Detect,
    outputs: &[floats(
        "",
        &[Dim::One, Dim::One, Dim::Rows, Dim::Columns],
        &[Column::Picture, Column::ClassId { first: 0 }, Column::Score, Column::Box(BoxEncoding::CornersShares)],
    )],
    holds: "number of the picture in its batch, class, score, left, top, right, bottom in 0..1; class 0 is the background, and so \
            the first label; a number below 0 ends the rows",
    input: InputTransform { colors: Colors::Bgr, scale: 1.0, ..STRETCH },
    input_note: Some("If its page says so, set tensor-colors, scale, mean and std on trtpreprocess"),
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| (candidate.output.dims.len() == 4).then_some(Confidence::Sign),
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let rows = [
        [0.0, 1.0, 0.375, 0.1875, 0.125, 0.4375, 0.5],
        [-1.0, 1.0, 0.375, 0.1875, 0.125, 0.4375, 0.5], // of a frame before
        [0.0, 1.0, 0.375, 0.1875, 0.125, 0.4375, 0.5],
    ];
    (vec![make("detection_out", &[1, 1, 3, 7], rows.as_flattened())], vec![centered(0)])
}
