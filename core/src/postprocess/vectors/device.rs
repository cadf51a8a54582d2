// SPDX-License-Identifier: MPL-2.0
//! Vectors of pictures out of a GPU's memory: `kernels/normalise.cu`. The reference implementation is
//! [`normalise`](crate::vector::normalise). One launch and one wait for all objects of a frame: a copy of each output takes longer.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream, WaitHistory};
use crate::cuda::kernels::NORMALISE;
use crate::error::Result;
use crate::memory::Mapped;
use crate::postprocess::suppress::device::address;
use crate::tensor::{DType, Tensor};

/// As in the kernel.
const THREADS: u32 = 128;
const HAS_LENGTH: u32 = 1;
const IS_LOST: u32 = 2;

/// Of `normalise.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct VectorParams {
    rows: u64,
    vectors: u64,
    seen: u64,
    numbers: u32,
    is_half: u32,
}

const _: () = assert!(size_of::<VectorParams>() == 32);

/// Owns the memory for it, which grows with the number of pictures.
pub(super) struct DeviceVectorReader {
    context: Context,
    normalise: Function,
    numbers: usize,
    buffers: Option<VectorBuffers>,
    waits: WaitHistory,
}

/// Memory for so many pictures.
struct VectorBuffers {
    pictures: usize,
    rows: Mapped,
    vectors: Mapped,
    seen: Mapped,
}

impl VectorBuffers {
    fn new(context: &Context, pictures: usize, numbers: usize) -> Result<Self> {
        Ok(VectorBuffers {
            pictures,
            rows: Mapped::new(context, pictures * size_of::<u64>())?,
            vectors: Mapped::new(context, pictures * numbers * size_of::<f32>())?,
            seen: Mapped::new(context, pictures * size_of::<u32>())?,
        })
    }
}

impl DeviceVectorReader {
    /// # Errors
    /// `Run`, where the GPU cannot load the kernel.
    pub fn new(context: &Context, numbers: usize) -> Result<Self> {
        Ok(DeviceVectorReader {
            normalise: context.module(NORMALISE)?.function("normalise_vectors")?,
            context: context.clone(),
            numbers,
            buffers: None,
            waits: WaitHistory::default(),
        })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The vectors of outputs, behind what was queued on the stream; empty where one has no length. Waits once for all of them, and
    /// returns in how many a number is not finite.
    ///
    /// # Errors
    /// `WrongType` for tensors that are not on this GPU, `Run` where CUDA fails.
    pub fn read(&mut self, stream: &Stream, outputs: &[&Tensor], found: &mut Vec<Vec<f32>>) -> Result<usize> {
        let DeviceVectorReader { context, normalise, numbers, buffers, waits } = self;
        let Some(first) = outputs.first() else { return Ok(0) };
        let pictures = outputs.len();
        if buffers.as_ref().is_none_or(|buffers| buffers.pictures < pictures) {
            *buffers = None; // frees its memory before more is allocated
            *buffers = Some(VectorBuffers::new(context, pictures.next_power_of_two(), *numbers)?);
        }
        let Some(buffers) = buffers else { unreachable!("just put there") };
        let rows: &mut [u64] = cast_slice_mut(buffers.rows.host_mut());
        for (row, output) in rows.iter_mut().zip(outputs) {
            *row = address(output, context)?;
        }
        counters::uploaded(pictures * size_of::<u64>());
        let seen: &mut [u32] = cast_slice_mut(buffers.seen.host_mut());
        seen.fill(0);
        let params = VectorParams {
            rows: buffers.rows.address(),
            vectors: buffers.vectors.address(),
            seen: buffers.seen.address(),
            numbers: *numbers as u32,
            is_half: (first.desc().dtype == DType::F16).into(),
        };
        let shape = Launch { grid: (pictures as u32, 1, 1), block: (THREADS, 1, 1), shared: 0 };
        let queued = stream.queuing();
        // SAFETY: the kernel takes these parameters. Their addresses are of memory that `self` keeps, or of tensors that the caller
        // keeps, until `queued` has ended; a tensor has so many numbers, as the decoder was made for it.
        unsafe { stream.launch(normalise, shape, &params) }?;
        queued.record_awaited(waits)?.wait_again(waits)?;
        let seen: &[u32] = &cast_slice(buffers.seen.host())[..pictures];
        let vectors: &[f32] = &cast_slice(buffers.vectors.host())[..pictures * *numbers];
        counters::downloaded(size_of_val(seen) + size_of_val(vectors));
        for (at, seen) in seen.iter().enumerate() {
            let has_length = seen & HAS_LENGTH != 0;
            found.push(if has_length { vectors[at * *numbers..][..*numbers].to_vec() } else { Vec::new() });
        }
        Ok(seen.iter().filter(|&seen| seen & IS_LOST != 0).count())
    }
}
