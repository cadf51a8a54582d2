// SPDX-License-Identifier: MPL-2.0
//! Rows of a box in grid cells, objectness and class scores.

use super::recognise::{AnchorGrid, Confidence};
use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, Task, YOLO, floats, nanodet};
use crate::image::geometry::ResizeMode;
use crate::image::transform::{Colors, InputTransform};

pub static HEAD: HeadFormat = HeadFormat {
    name: "yolox",
    about: "YOLOX as exported by default, undecoded",
    task: Task::Detect,
    outputs: &[floats(
        "",
        ROWS_OF_COLUMNS,
        &[Column::Box(BoxEncoding::CenterCells), Column::Objectness, Column::Classes],
    )],
    holds: "centre x, centre y, log width, log height in grid cells, objectness, class scores",
    input: InputTransform { colors: Colors::Bgr, fit: ResizeMode::LetterboxTopLeft, scale: 1.0, ..YOLO },
    input_note: None,
    needs_nms: true,
    sizes: &super::OPEN,
    file: None,
    likely: |candidate| {
        let is_it = candidate.grid == AnchorGrid::One
            && candidate.name == "output"
            && !candidate.hints.takes_exponentials
            && !candidate.hints.ultralytics
            && !nanodet::is_certain(candidate);
        is_it.then_some(Confidence::Sign)
    },
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    use super::tests::*;
    // Row 6 is column 2, row 1 of the cells of 8; row 17 is column 1, row 0 of those of 16; e⁰ = 1.
    let (eight, sixteen) = ([0.5, 0.25, 0.0, 0.0, 0.5, 0.25, 0.5], [0.5, 0.5, 0.0, 0.0, 1.0, 0.5, 0.5]);
    let head = rows(make, 21, &[(6, &eight), (17, &sixteen)]);
    (vec![head], vec![candidate(6, 1, 0.25, [16.0, 6.0, 24.0, 14.0]), candidate(17, 0, 0.5, [16.0, 0.0, 32.0, 16.0])])
}
