// SPDX-License-Identifier: MPL-2.0
//! Outputs that come once for each stride as one for each of the head's own, on the GPU: `kernels/join.cu`. What reads them then
//! reads any head.
//!
//! The reference implementation is `heads::levels`.

use crate::cuda::driver::{Context, Function, Launch};
use crate::cuda::graph::KernelNode;
use crate::cuda::kernels::JOIN;
use crate::error::Result;
use crate::heads::Decoder;
use crate::memory::{DeviceBlock, DevicePool};
use crate::tensor::DType;

/// Tensors, as many as the outputs of a layout file times the strides of a grid.
const PARTS: usize = 80;
/// Threads of a block, as in the kernel, and blocks for each tensor.
const THREADS: u32 = 256;
const BLOCKS: u32 = 64;

pub(super) struct DeviceJoin {
    function: Function,
    plan: JoinPlan,
    /// How many tensors there are.
    count: usize,
    _block: DeviceBlock,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct JoinPart {
    pub from: u64,
    pub to: u64,
    pub count: u32,
    pub is_half: u32,
    /// Of a row, where each of them is a map of its own; else 0.
    pub columns: u32,
    pub unused: u32,
}

/// Of `join.cu`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct JoinParams {
    pub parts: [JoinPart; PARTS],
}

const _: () = assert!(size_of::<JoinParams>() == 2560);

/// Where all of it lies.
pub(crate) struct JoinPlan {
    pub params: JoinParams,
    /// Where each of the head's own outputs begins.
    pub joined: Vec<u64>,
    pub bytes: usize,
}

impl JoinPlan {
    /// From the address 0 on. `None` for heads whose outputs come once.
    pub fn new(decoder: &Decoder) -> Option<Self> {
        if !decoder.format().has_levels() {
            return None;
        }
        let params = JoinParams { parts: [JoinPart::default(); PARTS] };
        let mut plan = JoinPlan { params, joined: Vec::new(), bytes: 0 };
        for (at, (part, level)) in plan.params.parts.iter_mut().zip(decoder.pictures()).enumerate() {
            if at % decoder.levels() == 0 {
                plan.bytes = plan.bytes.next_multiple_of(256);
                plan.joined.push(plan.bytes as u64);
            }
            let numbers = level.rows * level.columns;
            *part = JoinPart {
                from: 0,
                to: plan.bytes as u64,
                count: numbers as u32,
                is_half: (level.dtype == DType::F16).into(),
                columns: if level.are_maps { level.columns as u32 } else { 0 },
                unused: 0,
            };
            plan.bytes += numbers * level.dtype.size();
        }
        Some(plan)
    }

    /// From that address on.
    pub fn lies_at(&mut self, address: u64) {
        self.joined.iter_mut().for_each(|place| *place += address);
        self.params.parts.iter_mut().for_each(|part| part.to += address);
    }
}

impl DeviceJoin {
    /// `None` for heads whose outputs come once.
    pub fn new(context: &Context, pool: &DevicePool, decoder: &Decoder) -> Result<Option<Self>> {
        let Some(mut plan) = JoinPlan::new(decoder) else { return Ok(None) };
        let block = pool.take(plan.bytes)?;
        plan.lies_at(block.address());
        let count = plan.joined.len() * decoder.levels();
        Ok(Some(DeviceJoin { function: context.module(JOIN)?.function("join")?, plan, count, _block: block }))
    }

    /// For the next launch: where the tensors are. Earlier launches are done.
    pub fn prepare(&mut self, addresses: impl Iterator<Item = Result<u64>>) -> Result<()> {
        for (part, address) in self.plan.params.parts.iter_mut().zip(addresses) {
            part.from = address?;
        }
        Ok(())
    }

    /// Where each of the head's own outputs is once the kernel is done.
    pub fn joined(&self) -> &[u64] {
        &self.plan.joined
    }

    pub fn params(&self) -> &JoinParams {
        &self.plan.params
    }

    pub fn call(&self) -> KernelNode<'_> {
        let shape = Launch { grid: (BLOCKS, self.count as u32, 1), block: (THREADS, 1, 1), shared: 0 };
        KernelNode::new(&self.function, shape, &self.plan.params)
    }
}
