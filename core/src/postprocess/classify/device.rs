// SPDX-License-Identifier: MPL-2.0
//! The best classes of pictures, found on a GPU: `kernels/classes.cu`. The reference implementation is [`host`](super::host).

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

use super::host::{RankedClass, RowKind, THREADS};
use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream, WaitHistory};
use crate::cuda::kernels::CLASSES;
use crate::error::Result;
use crate::heads::Thresholds;
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::postprocess::suppress::device::address;
use crate::tensor::{DType, Tensor};

/// Behind the last class of a picture.
const NONE: u32 = u32::MAX;
/// What the kernels have seen in a picture.
const IS_LOGITS: u32 = 1;
const IS_LOST: u32 = 2;

/// Of `classes.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ClassParams {
    rows: u64,
    thresholds: u64,
    scores: u64,
    best: u64,
    seen: u64,
    host_seen: u64,
    is_half: u32,
    kind: u32,
    classes: u32,
    top_k: u32,
}

const _: () = assert!(size_of::<ClassParams>() == 64);

/// A [`RankedClass`] as the kernel writes it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Found {
    class: u32,
    score: f32,
}

/// What was seen in pictures, besides their classes.
#[derive(Default)]
pub(super) struct Seen {
    /// Values that are no probabilities, where the kind depends on that.
    pub logits: bool,
    /// In how many a value is not finite.
    pub not_finite: usize,
}

/// Owns the memory for it, which grows with the number of pictures.
pub(super) struct DeviceClassFinder {
    find_logits: Function,
    best_classes: Function,
    classes: usize,
    thresholds: Option<(Thresholds, DeviceBlock)>,
    buffers: Option<ClassBuffers>,
    waits: WaitHistory,
    pool: DevicePool,
}

/// Memory for so many pictures, and so many classes of each.
struct ClassBuffers {
    pictures: usize,
    top_k: usize,
    rows: Mapped,
    best: Mapped,
    host_seen: Mapped,
    seen: DeviceBlock,
    scores: DeviceBlock,
}

impl ClassBuffers {
    fn new(pool: &DevicePool, pictures: usize, classes: usize, top_k: usize) -> Result<Self> {
        let context = pool.context();
        Ok(ClassBuffers {
            pictures,
            top_k,
            rows: Mapped::new(context, pictures * size_of::<u64>())?,
            best: Mapped::new(context, pictures * top_k.max(1) * size_of::<Found>())?,
            host_seen: Mapped::new(context, pictures * size_of::<u32>())?,
            seen: pool.take(pictures * size_of::<u32>())?,
            scores: pool.take(pictures * classes * size_of::<f32>())?,
        })
    }
}

impl DeviceClassFinder {
    /// # Errors
    /// `Run`, where the GPU cannot load the kernels.
    pub fn new(context: &Context, classes: usize) -> Result<Self> {
        let module = context.module(CLASSES)?;
        Ok(DeviceClassFinder {
            find_logits: module.function("find_logits")?,
            best_classes: module.function("best_classes")?,
            classes,
            thresholds: None,
            buffers: None,
            waits: WaitHistory::default(),
            pool: DevicePool::new(context),
        })
    }

    pub fn context(&self) -> &Context {
        self.pool.context()
    }

    /// The best classes of each output, behind what was queued on the stream. Waits once for all of them.
    ///
    /// # Errors
    /// `WrongType` for tensors that are not on this GPU, `Run` where CUDA fails.
    pub fn find(
        &mut self,
        stream: &Stream,
        outputs: &[&Tensor],
        kind: RowKind,
        thresholds: &Thresholds,
        top_k: usize,
        found: &mut Vec<Vec<RankedClass>>,
    ) -> Result<Seen> {
        let Some(first) = outputs.first() else { return Ok(Seen::default()) };
        let (pictures, classes, top_k) = (outputs.len(), self.classes, top_k.min(self.classes));
        let (pool, context) = (&self.pool, stream.context());
        if self.buffers.as_ref().is_none_or(|buffers| buffers.pictures < pictures || buffers.top_k < top_k) {
            self.buffers = None; // frees its memory before more is allocated
            self.buffers = Some(ClassBuffers::new(pool, pictures.next_power_of_two(), classes, top_k)?);
        }
        if self.thresholds.as_ref().is_none_or(|(of, _)| of != thresholds) {
            let table: Vec<f32> = (0..classes as u32).map(|class| thresholds.of(class)).collect();
            let mut block = pool.take(size_of_val(&table[..]))?;
            block.write(cast_slice(&table))?;
            self.thresholds = Some((thresholds.clone(), block));
        }
        let (Some(buffers), Some((_, table))) = (&mut self.buffers, &self.thresholds) else {
            return Ok(Seen::default());
        };
        let rows: &mut [u64] = cast_slice_mut(buffers.rows.host_mut());
        for (row, output) in rows.iter_mut().zip(outputs) {
            *row = address(output, context)?;
        }
        counters::uploaded(pictures * size_of::<u64>());
        let params = ClassParams {
            rows: buffers.rows.address(),
            thresholds: table.address(),
            scores: buffers.scores.address(),
            best: buffers.best.address(),
            seen: buffers.seen.address(),
            host_seen: buffers.host_seen.address(),
            is_half: (first.desc().dtype == DType::F16).into(),
            kind: kind as u32,
            classes: classes as u32,
            top_k: top_k as u32,
        };
        let shape = Launch { grid: (pictures as u32, 1, 1), block: (THREADS as u32, 1, 1), shared: 0 };
        let queued = stream.queuing();
        // SAFETY: the kernels take these parameters. Their addresses are of memory that `self` keeps, or of tensors that
        // the caller keeps, until `queued` has ended.
        unsafe {
            if kind == RowKind::ByValues {
                stream.launch(&self.find_logits, shape, &params)?;
            }
            stream.launch(&self.best_classes, shape, &params)?;
        }
        queued.record_awaited(&self.waits)?.wait_again(&mut self.waits)?;
        let best: &[Found] = cast_slice(buffers.best.host());
        counters::downloaded(pictures * top_k * size_of::<Found>());
        for of_picture in best.chunks(top_k.max(1)).take(pictures) {
            let classes = of_picture.iter().take(top_k).take_while(|found| found.class != NONE);
            found.push(classes.map(|&Found { class, score }| RankedClass { class, score }).collect());
        }
        let seen: &[u32] = &cast_slice(buffers.host_seen.host())[..pictures];
        counters::downloaded(size_of_val(seen));
        Ok(Seen {
            logits: seen.iter().any(|seen| seen & IS_LOGITS != 0),
            not_finite: seen.iter().filter(|&seen| seen & IS_LOST != 0).count(),
        })
    }
}
