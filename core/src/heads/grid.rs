// SPDX-License-Identifier: MPL-2.0
//! The grid of cells over a model's input that rows belong to: which cell, and which prior box, each row has.

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::Head;

/// The sets of strides that heads have, and the rows they give.
pub(super) const STRIDES: [&[u32]; 4] = [&[8, 16, 32], &[8, 16, 32, 64], &[4, 8, 16, 32], &[16, 32]];

/// Strides of a grid, as many as the kernels take.
pub(crate) const MAX_STRIDES: usize = 5;

/// A grid as a head has it, for inputs of any size.
#[derive(Clone, Debug, PartialEq)]
pub struct StrideGrid {
    pub strides: Cow<'static, [u32]>,
    /// Rows for each cell, which lie side by side.
    pub anchors: u32,
    /// The sides of the square prior boxes in pixels, one for each anchor of each stride; empty where there are none.
    pub priors: Cow<'static, [f32]>,
    /// Those that are no squares, likewise.
    pub boxes: Cow<'static, [PriorBox]>,
}

/// A prior box around a place of its cell; three numbers for each in `kernels/decode.cu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct PriorBox {
    /// In pixels.
    pub width: f32,
    pub height: f32,
    /// What centres are stretched by about the middle of the cell, the same for all of a stride: darknet's `scale_x_y`.
    pub scale: f32,
}

/// A grid of cells over the model's input, as many rows for each as there are anchors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub strides: &'static [u32],
    pub anchors: u32,
    pub priors: &'static [f32],
    pub boxes: &'static [PriorBox],
    /// Width and height of the model's input.
    input: (u32, u32),
}

/// Where the numbers of a row count from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GridCell {
    /// Column and row of the cell, and its pixels.
    pub x: f32,
    pub y: f32,
    pub stride: f32,
    /// The side of the prior box in pixels, around the middle of the cell.
    pub prior: f32,
    /// The one that is no square.
    pub prior_box: PriorBox,
}

impl Grid {
    /// Columns and rows of the cells of a stride.
    pub fn size(&self, stride: u32) -> (u32, u32) {
        (self.input.0.div_ceil(stride), self.input.1.div_ceil(stride))
    }

    /// The cell of a row.
    pub(super) fn cell(&self, row: usize) -> GridCell {
        let mut row = row as u32;
        for (level, &stride) in (0u32..).zip(self.strides) {
            let (columns, rows) = self.size(stride);
            if row < columns * rows * self.anchors {
                let (cell, anchor) = (row / self.anchors, row % self.anchors);
                let at = (level * self.anchors + anchor) as usize;
                let prior = self.priors.get(at).copied().unwrap_or_default();
                let prior_box = self.boxes.get(at).copied().unwrap_or_default();
                let [x, y, stride] = [cell % columns, cell / columns, stride].map(|number| number as f32);
                return GridCell { x, y, stride, prior, prior_box };
            }
            row -= columns * rows * self.anchors;
        }
        GridCell::default() // beyond the grid, so boxes of no size
    }
}

impl Head {
    /// The grid that has the rows of this head.
    pub fn grid(&self) -> Option<Grid> {
        let (rows, input) = (self.rows as u64, self.input);
        match &self.format.sizes.grid {
            Some(StrideGrid { strides, anchors, priors, boxes }) => {
                let is_whole = cells(strides, input) * u64::from(*anchors) == rows;
                is_whole.then_some(Grid { strides, anchors: *anchors, priors, boxes, input })
            }
            None => Some(Grid { strides: strides_of(rows, input)?, anchors: 1, priors: &[], boxes: &[], input }),
        }
    }
}

/// The strides of a grid over the input with one cell for each row.
pub(super) fn strides_of(rows: u64, input: (u32, u32)) -> Option<&'static [u32]> {
    STRIDES.into_iter().find(|strides| cells(strides, input) == rows)
}

/// Rows for each cell of a grid over the input; `None` where there is no whole number of them.
pub(super) fn rows_per_cell(rows: u64, input: (u32, u32)) -> Option<u64> {
    let per_cell = STRIDES
        .map(|strides| cells(strides, input))
        .into_iter()
        .find_map(|cells| [1, 3].into_iter().find(|per_cell| cells * per_cell == rows));
    per_cell.filter(|_| rows > 0)
}

pub(super) fn cells(strides: &[u32], (width, height): (u32, u32)) -> u64 {
    strides.iter().map(|&stride| u64::from(width.div_ceil(stride)) * u64::from(height.div_ceil(stride))).sum()
}
