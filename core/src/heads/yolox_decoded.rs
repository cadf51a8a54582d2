// SPDX-License-Identifier: MPL-2.0
//! Rows of YOLOv5, of a picture that is YOLOX's.

use super::recognise::{AnchorGrid, Confidence};
use super::{HeadFormat, yolov5, yolox};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolox-decoded",
    about: "YOLOX exported with --decode_in_inference",
    input: yolox::HEAD.input,
    likely: |candidate| {
        let is_it = candidate.grid == AnchorGrid::One
            && candidate.name == "output"
            && candidate.hints.takes_exponentials
            && !candidate.hints.ultralytics;
        is_it.then_some(Confidence::Sign)
    },
    ..yolov5::HEAD
};
