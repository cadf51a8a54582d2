// SPDX-License-Identifier: MPL-2.0
//! Rows of all pictures of a batch, as many as there are objects: YOLOv7 with ONNX's suppression.

use super::recognise::Confidence;
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_ALL_PICTURES, Task, YOLO, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolov7-end-to-end",
    about: "YOLOv7 by export.py --end2end --max-wh, for ONNX Runtime",
    task: Task::Detect,
    outputs: &[floats(
        "",
        ROWS_OF_ALL_PICTURES,
        &[Column::Picture, Column::Box(BoxEncoding::Corners), Column::ClassId { first: 0 }, Column::Score],
    )],
    holds: "number of the picture in its batch, left, top, right, bottom in pixels, class, score; as many rows as objects",
    input: YOLO,
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Others name the order of theirs: batchno_classid_score_x1y1x2y2.
    likely: |candidate| {
        let chooses = candidate.hints.chooses_rows || !candidate.follows_batch();
        (chooses && candidate.is_alone && !candidate.name.contains("batchno")).then_some(Confidence::Sign)
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    let rows = [[0.0, 1.0, 1.0, 2.0, 2.0, 0.0, 0.0], [0.0, 6.0, 4.0, 14.0, 16.0, 1.0, 0.375]];
    (vec![make("output", &[2, 7], rows.as_flattened())], vec![centered(1)])
}
