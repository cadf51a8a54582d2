// SPDX-License-Identifier: MPL-2.0
//! Scores and distributions of distances, each in an output for each stride, by PaddleDetection.

use super::{BoxEncoding, CELLS_OF_COLUMNS, Column, HeadFormat, IMAGENET, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "picodet",
    about: "PicoDet by PaddleDetection, without its post-processing",
    task: Task::Detect,
    outputs: &[
        floats("", CELLS_OF_COLUMNS, &[Column::Box(BoxEncoding::MiddleDistances)]),
        floats("", CELLS_OF_COLUMNS, &[Column::Classes]),
    ],
    holds: "four distributions of distances in cells from the middle of the cell; class scores",
    input: IMAGENET,
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
    // Cells of 8, 16, 32 and 64 over 32x32: 16, 4, 1 and 1. Cell (1, 0) of the second stride has its middle at (24, 8).
    let cells = [16, 4, 1, 1];
    let one = |at: usize| {
        let mut bins = [-64.0; 8];
        bins[at] = 64.0;
        bins
    };
    let mut outputs = Vec::new();
    // Scores come first in such files, and none of the two has the strides in a given order.
    for (level, count) in [(1, cells[1]), (0, cells[0]), (2, cells[2]), (3, cells[3])] {
        let mut scores = vec![0.0; count * 2];
        if level == 1 {
            scores[2..4].copy_from_slice(&[0.25, 0.375]);
        }
        outputs.push(make(&format!("scores{level}"), &[1, count as i64, 2], &scores));
    }
    for (level, count) in cells.into_iter().enumerate() {
        let mut boxes = vec![0.0; count * 32];
        if level == 1 {
            boxes[32..64].copy_from_slice(&[one(1), one(0), one(2), one(3)].concat());
        }
        outputs.push(make(&format!("boxes{level}"), &[1, count as i64, 32], &boxes));
    }
    // One cell to the left, two to the right, three down.
    (outputs, vec![candidate(17, 1, 0.375, [8.0, 8.0, 56.0, 56.0])])
}
