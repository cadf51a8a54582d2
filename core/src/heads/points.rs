// SPDX-License-Identifier: MPL-2.0
//! The keypoints of the rows that are kept, where they count from cells of a grid.

use super::decode::{from_place, from_prior, number};
use super::{BoxEncoding, Column, Decoder, Dim};
use crate::error::Result;
use crate::image::Candidate;
use crate::tensor::Tensor;

/// What the points of a row count from; the same in `kernels/gather.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointOrigin {
    /// They are in pixels of the input.
    Picture,
    /// The corner of the row's cell.
    Corner,
    Middle,
    /// The middle of its prior box.
    Prior,
}

impl Decoder {
    /// Whether keypoints are not simply numbers of one output.
    pub fn has_cell_keypoints(&self) -> bool {
        let outputs = self.format().outputs.iter();
        let mut of_keypoints = outputs.filter(|output| output.columns.iter().any(|column| column.are_keypoints()));
        of_keypoints.any(|output| output.dims.contains(&Dim::Cells) || output.columns.contains(&Column::CellKeypoints))
    }

    /// What its keypoints count from.
    pub(crate) fn point_origin(&self) -> PointOrigin {
        let format = self.format();
        match format.outputs.iter().any(|output| output.columns.contains(&Column::CellKeypoints)) {
            false => PointOrigin::Picture,
            true => match format.encoding() {
                BoxEncoding::PriorOffsets => PointOrigin::Prior,
                BoxEncoding::MiddleDistances => PointOrigin::Middle,
                _ => PointOrigin::Corner,
            },
        }
    }

    /// The keypoints of these candidates, in pixels of the model's input.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn cell_keypoints(&self, outputs: &[Tensor], candidates: &[Candidate], values: &mut Vec<f32>) -> Result<()> {
        values.clear();
        let (Some((shape, view)), picked) = (self.keypoints(), self.pick(outputs)?) else { return Ok(()) };
        let (origin, grid, levels) = (self.point_origin(), self.head().grid(), self.levels());
        for candidate in candidates {
            let mut row = candidate.row as usize;
            let cell = grid.map(|grid| grid.cell(row)).unwrap_or_default();
            let spec = &self.format().outputs[view.output];
            let mut tensor = picked[view.output * levels];
            // Rows of the tensor, and how many of the head one of them is: those of all anchors of a cell.
            let (mut rows, mut together) = (0, 1);
            for &level in &picked[view.output * levels..][..levels] {
                let [own, columns] =
                    super::levels::shape(spec, level.desc()).unwrap_or_default().map(|size| size as usize);
                (tensor, rows, together) = (level, own, (columns / view.row_stride.max(1)).max(1));
                if levels == 1 || row < rows * together {
                    break;
                }
                row -= rows * together;
            }
            let number = |i: usize| match super::levels::are_maps(spec) {
                true => {
                    let column = row % together * view.row_stride + view.first + i;
                    number(tensor, column * rows + row / together)
                }
                false => number(tensor, view.first + row * view.row_stride + i * view.column_stride),
            };
            for point in 0..usize::from(shape.count) {
                let first = point * usize::from(shape.dims);
                let (x, y) = (number(first), number(first + 1));
                let (x, y) = match origin {
                    PointOrigin::Picture => (x, y),
                    PointOrigin::Corner => from_place(cell, 0.0, x, y),
                    PointOrigin::Middle => from_place(cell, 0.5, x, y),
                    PointOrigin::Prior => from_prior(cell, x, y),
                };
                values.extend([x, y]);
                values.extend((2..usize::from(shape.dims)).map(|i| number(first + i)));
            }
        }
        Ok(())
    }
}
