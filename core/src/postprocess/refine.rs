// SPDX-License-Identifier: MPL-2.0
//! What rows hold besides their boxes, read for the kept boxes only: on the host, and on a GPU (`kernels/gather.cu`) after
//! suppression and in the same CUDA graph, so that the host waits once for all of it.
//!
//! Both give the same bits.

use crate::cuda::driver::{Context, Function, Launch};
use crate::cuda::graph::KernelNode;
use crate::cuda::kernels::GATHER;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{Decoder, MaskParts, MaskSource, TensorView, number};
use crate::image::Candidate;
use crate::image::masks::{Masks, Prototypes};
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::postprocess::cells::CellGrid;
use crate::tensor::{DType, Tensor};

/// Threads of a block, as in the kernel.
const THREADS: u32 = 128;
/// Blocks of the launch, for any number of kept boxes: they share the work.
const BLOCKS: u32 = 64;

/// Appends the elements of `view` of the row of each candidate.
pub fn gather(view: &TensorView, tensor: &Tensor, kept: &[Candidate], to: &mut Vec<f32>) {
    for candidate in kept {
        let start = view.first + candidate.row as usize * view.row_stride;
        to.extend((0..view.count).map(|i| number(tensor, start + i * view.column_stride)));
    }
}

/// Finds the masks of the kept objects on the host; [`super::masks`] does on a GPU.
pub(super) struct MaskFinder {
    source: MaskSource,
    /// Width and height of the model's input.
    input: (u32, u32),
    /// Those of the objects of a frame.
    gathered: Vec<f32>,
}

impl MaskFinder {
    /// `None` for heads without masks.
    pub fn new(decoder: &Decoder, input: (u32, u32)) -> Option<Self> {
        Some(MaskFinder { source: decoder.masks()?, input, gathered: Vec::new() })
    }

    /// Appends the masks of these objects; `outputs` are what the decoder picked, in host memory.
    pub fn find(&mut self, outputs: &[&Tensor], kept: &[Candidate], to: &mut Masks) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let tensor = outputs[self.source.output];
        let prototypes = Prototypes::new(self.source.shape, tensor)
            .ok_or_else(|| Error::new(ErrorKind::WrongType, format!("Masks cannot be read from {}", tensor.desc())))?;
        match &self.source.parts {
            MaskParts::Prototypes(view) => {
                self.gathered.clear();
                gather(view, outputs[view.output], kept, &mut self.gathered);
                to.find(&prototypes, &self.gathered, kept, self.input);
            }
            MaskParts::Maps(over) => to.find_maps(*over, &prototypes, kept, self.input),
        }
        Ok(())
    }
}

/// [`gather`] on a GPU.
pub(super) struct DeviceGather {
    function: Function,
    pub view: TensorView,
    params: GatherParams,
    results: Mapped,
    copies: DeviceBlock,
}

/// Of `gather.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct GatherParams {
    found: u64,
    pub data: u64,
    pub results: u64,
    pub copies: u64,
    is_half: u32,
    first: u32,
    row_stride: u32,
    column_stride: u32,
    columns: u32,
    pub limit: u32,
    origin: u32,
    of_point: u32,
    grid: CellGrid,
}

const _: () = assert!(size_of::<GatherParams>() == 136);

impl GatherParams {
    /// What stays the same from frame to frame, of this view of one of the head's outputs. `found` is where suppression writes the
    /// kept boxes.
    pub fn new(decoder: &Decoder, view: &TensorView, grid: CellGrid, found: u64) -> Self {
        let dtype = decoder.dtypes().nth(view.output);
        GatherParams {
            found,
            is_half: (dtype == Some(DType::F16)).into(),
            first: view.first as u32,
            row_stride: view.row_stride as u32,
            column_stride: view.column_stride as u32,
            columns: view.count as u32,
            origin: decoder.point_origin() as u32,
            of_point: decoder.keypoints().map_or(1, |(shape, _)| shape.dims.into()),
            grid,
            ..GatherParams::default()
        }
    }
}

impl DeviceGather {
    /// `None` where rows hold nothing else. `found` is where suppression writes the kept boxes, at most `limit`.
    pub fn new(
        context: &Context,
        pool: &DevicePool,
        decoder: &Decoder,
        grid: CellGrid,
        found: u64,
        limit: usize,
    ) -> Result<Option<Self>> {
        let Some(view) = decoder.gather_view() else { return Ok(None) };
        let bytes = limit * view.count * size_of::<f32>();
        Ok(Some(DeviceGather {
            function: context.module(GATHER)?.function("gather")?,
            params: GatherParams::new(decoder, &view, grid, found),
            view,
            results: Mapped::new(context, bytes)?,
            copies: pool.take(bytes)?,
        }))
    }

    /// For the next launch: where the tensor is, and how many boxes may be kept. Earlier launches are done.
    pub fn prepare(&mut self, context: &Context, pool: &DevicePool, data: u64, limit: usize) -> Result<()> {
        let bytes = limit * self.view.count * size_of::<f32>();
        if self.results.bytes() < bytes || self.copies.bytes() < bytes {
            self.results = Mapped::new(context, bytes)?;
            self.copies = pool.take(bytes)?;
        }
        let (results, copies) = (self.results.address(), self.copies.address());
        self.params = GatherParams { data, results, copies, limit: limit as u32, ..self.params };
        Ok(())
    }

    pub fn params(&self) -> &GatherParams {
        &self.params
    }

    pub fn call(&self) -> KernelNode<'_> {
        let shape = Launch { grid: (BLOCKS, 1, 1), block: (THREADS, 1, 1), shared: 0 };
        KernelNode::new(&self.function, shape, &self.params)
    }

    /// Where the numbers are in GPU memory.
    pub fn address(&self) -> u64 {
        self.copies.address()
    }

    /// Those of so many boxes, once the work is done.
    pub fn numbers(&self, kept: usize) -> &[f32] {
        &bytemuck::cast_slice(self.results.host())[..kept * self.view.count]
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::image::geometry::BBox;
    use proptest::prelude::*;

    fn kept(rows: &[u32]) -> Vec<Candidate> {
        let bbox = BBox::new(0.0, 0.0, 1.0, 1.0);
        rows.iter().map(|&row| Candidate { bbox, score: 0.5, class: 0, row, angle: 0.0 }).collect()
    }

    proptest! {
        /// Of rows and of columns, f32 and f16, the numbers are those of a plain reading.
        #[test]
        fn numbers_are_those_of_the_row(
            (rows, before, count) in (1..20usize, 0..6usize, 1..9usize),
            chosen in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
            columns_first in any::<bool>(),
        ) {
            let columns = before + count;
            let value = |row: usize, column: usize| (row * 32 + column) as f32;
            let chosen: Vec<u32> = chosen.iter().map(|index| index.index(rows) as u32).collect();
            let wanted: Vec<f32> =
                chosen.iter().flat_map(|&row| (before..columns).map(move |c| value(row as usize, c))).collect();
            let (dims, values): ([i64; 3], Vec<f32>) = if columns_first {
                let values = (0..columns).flat_map(|c| (0..rows).map(move |r| value(r, c))).collect();
                ([1, columns as i64, rows as i64], values)
            } else {
                let values = (0..rows).flat_map(|r| (0..columns).map(move |c| value(r, c))).collect();
                ([1, rows as i64, columns as i64], values)
            };
            let (row_stride, column_stride) = if columns_first { (1, rows) } else { (columns, 1) };
            let view = TensorView { output: 0, first: before * column_stride, row_stride, column_stride, count };
            let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
            for tensor in [Tensor::from_slice("a", &dims, &values), Tensor::from_slice("a", &dims, &halves)] {
                let mut have = Vec::new();
                gather(&view, &tensor, &kept(&chosen), &mut have);
                prop_assert_eq!(&have, &wanted);
            }
        }
    }
}
