// SPDX-License-Identifier: MPL-2.0
//! As `scrfd`, without points.

use super::scrfd::{self, GRID, INPUT};
use super::{BoxEncoding, CELLS_OF_COLUMNS, Column, HeadFormat, HeadSizes, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "scrfd-boxes",
    about: "SCRFD by InsightFace, without keypoints",
    task: Task::Detect,
    outputs: &[
        floats("", CELLS_OF_COLUMNS, &[Column::Classes]),
        floats("", CELLS_OF_COLUMNS, &[Column::Box(BoxEncoding::CornerEdges)]),
    ],
    holds: "scores; distances in cells from the corner of the cell",
    input: INPUT,
    sizes: &HeadSizes { classes: Some(1), coefficients: None, grid: Some(GRID), keypoints: None },
    #[cfg(test)]
    gold: |make| {
        let (outputs, wanted) = scrfd::gold(make);
        (outputs.into_iter().filter(|output| !output.desc().name.starts_with("kps")).collect(), wanted)
    },
    ..scrfd::HEAD
};
