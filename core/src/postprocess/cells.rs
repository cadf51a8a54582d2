// SPDX-License-Identifier: MPL-2.0
//! The grid of a head as kernels take it, in the layout of `kernels/grid.cuh`.

use crate::error::Result;
use crate::heads::{Decoder, MAX_STRIDES};
use crate::memory::{DeviceBlock, DevicePool};

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct GridLevel {
    pub stride: u32,
    pub columns: u32,
    pub rows: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct CellGrid {
    pub priors: u64,
    pub levels: [GridLevel; MAX_STRIDES],
    pub anchors: u32,
}

const _: () = assert!(size_of::<CellGrid>() == 72);

impl CellGrid {
    /// All zeros for heads whose boxes are not told from cells. Where the [sides of prior boxes](priors) lie is set once they are
    /// there.
    pub fn new(decoder: &Decoder) -> Self {
        let head = decoder.head();
        let mut cells = CellGrid::default();
        if let (true, Some(grid)) = (head.format.encoding().is_of_cells(), head.grid()) {
            cells.anchors = grid.anchors;
            for (level, &stride) in cells.levels.iter_mut().zip(grid.strides) {
                let (columns, rows) = grid.size(stride);
                *level = GridLevel { stride, columns, rows: columns * rows * grid.anchors };
            }
        }
        cells
    }
}

/// The numbers of a head's prior boxes: a side for each, or for those that are no squares three numbers.
pub(super) fn prior_numbers(decoder: &Decoder) -> &'static [f32] {
    decoder.head().grid().map_or(&[][..], |grid| match grid.boxes {
        [] => grid.priors,
        boxes => bytemuck::cast_slice(boxes),
    })
}

/// The same in GPU memory, if the head has some.
pub(super) fn priors(pool: &DevicePool, decoder: &Decoder) -> Result<Option<DeviceBlock>> {
    let numbers = prior_numbers(decoder);
    if numbers.is_empty() {
        return Ok(None);
    }
    let mut block = pool.take(size_of_val(numbers))?;
    block.write(bytemuck::cast_slice(numbers))?;
    Ok(Some(block))
}
