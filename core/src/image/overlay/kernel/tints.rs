// SPDX-License-Identifier: MPL-2.0
//! Masks, mixed into a frame on the GPU: `kernels/tint.cu`. The reference implementation is [`tint`](crate::image::overlay).

use bytemuck::{Pod, Zeroable, cast_slice};

use super::{THREADS, TILE};
use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::TINT;
use crate::error::Result;
use crate::image::detections::DeviceMasks;
use crate::image::device::DevicePlane;
use crate::image::geometry::{Letterbox, Rect};
use crate::image::masks::{Mask, column_edge, covering, row_edge};
use crate::image::overlay::{Sample, Target};
use crate::memory::{DeviceBlock, DevicePool, Mapped};

/// The header before the tints that the host planned: their count.
const HEADER: usize = 16;

/// Of `tint.cu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct DeviceTint {
    rect: Rect,
    first: u64,
    color: Sample,
    unused: u32,
}

/// `PlanParameters` of `tint.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct TintPlan {
    entries: u64,
    boxes: u64,
    count: u64,
    tints: u64,
    limit: u32,
    unused: u32,
}

/// Of `tint.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct TintParameters {
    planes: [u64; 3],
    count: u64,
    tints: u64,
    bits: u64,
    columns: u64,
    rows: u64,
    strides: [u32; 3],
    width: u32,
    height: u32,
    weight: u32,
}

const _: () =
    assert!(size_of::<DeviceTint>() == 32 && size_of::<TintPlan>() == 40 && size_of::<TintParameters>() == 88);

/// Mixes masks into frames of one format and size. It keeps its memory.
pub(super) struct Tints {
    plan: Function,
    paint: Function,
    target: Target,
    /// For each column and row of the frame that of the masks, which are in the model's input with that letterbox, or
    /// in the frame.
    tables: Option<(Option<Letterbox>, DeviceBlock)>,
    /// The planned tints.
    tints: Option<DeviceBlock>,
    /// The tints that the host planned, and the pixels of their masks.
    staging: Option<Mapped>,
}

/// The boxes that were planned on the GPU for detections.
pub(super) struct PlannedBoxes {
    pub count: u64,
    pub boxes: u64,
    pub limit: u32,
}

impl Tints {
    /// `format` is the suffix of the kernels for such frames.
    pub fn new(context: &Context, target: Target, format: &str) -> Result<Self> {
        let module = context.module(TINT)?;
        Ok(Tints {
            plan: module.function("plan_tints")?,
            paint: module.function(&format!("tint_{format}"))?,
            target,
            tables: None,
            tints: None,
            staging: None,
        })
    }

    /// Queues it for detections on the GPU, after the planning of their boxes.
    ///
    /// # Safety
    /// As [`super::OverlayKernel::launch`]; the masks are written before on the same stream.
    pub unsafe fn queue(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        planes: &[DevicePlane],
        masks: DeviceMasks,
        boxes: &PlannedBoxes,
        (letterbox, weight): (&Letterbox, u32),
    ) -> Result<()> {
        let bytes = boxes.limit as usize * size_of::<DeviceTint>();
        let block = match self.tints.take_if(|block| block.bytes() >= bytes) {
            Some(block) => block,
            None => pool.take(bytes)?,
        };
        let tints = self.tints.insert(block).address();
        let PlannedBoxes { count, boxes, limit } = *boxes;
        let plan = TintPlan { entries: masks.entries, boxes, count, tints, limit, unused: 0 };
        let shape = Launch { grid: (limit.div_ceil(THREADS), 1, 1), block: (THREADS, 1, 1), shared: 0 };
        let parameters = TintParameters { count, tints, bits: masks.bits, weight, ..TintParameters::default() };
        // SAFETY: the kernels take these parameters. Planes, boxes and masks are valid on this stream until the work is
        // done: this function requires that.
        unsafe {
            stream.launch(&self.plan, shape, &plan)?;
            self.start(stream, pool, planes, Some(letterbox), parameters)
        }
    }

    /// The same for masks that the host has, the most important first.
    ///
    /// # Safety
    /// As [`super::OverlayKernel::launch_for`].
    pub unsafe fn launch<'a>(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        planes: &[DevicePlane],
        masks: impl Iterator<Item = (&'a Mask, Sample)>,
        weight: u32,
    ) -> Result<()> {
        let (mut tints, mut bits): (Vec<DeviceTint>, Vec<u32>) = (Vec::new(), Vec::new());
        for (mask, color) in masks {
            tints.push(DeviceTint { rect: mask.rect(), first: bits.len() as u64, color, unused: 0 });
            bits.extend_from_slice(mask.bits());
        }
        if bits.is_empty() {
            return Ok(());
        }
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(tints.len() as u32).to_ne_bytes());
        let parts: [&[u8]; 3] = [&header, cast_slice(&tints), cast_slice(&bits)];
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.staging.take_if(|staging| staging.bytes() < bytes);
        if self.staging.is_none() {
            self.staging = Some(Mapped::new(stream.context(), bytes.next_power_of_two())?);
        }
        let staging = self.staging.as_mut().expect("just put there");
        staging.host_mut()[..bytes].copy_from_slice(&parts.concat());
        counters::uploaded(bytes);
        let count = staging.address();
        let tints_at = count + HEADER as u64;
        let bits_at = tints_at + size_of_val(&tints[..]) as u64;
        let parameters = TintParameters { count, tints: tints_at, bits: bits_at, weight, ..TintParameters::default() };
        // SAFETY: the planes are valid until the work is done: this function requires that. The staging memory lives as
        // long as `self`, and earlier launches, which read it, are done.
        unsafe { self.start(stream, pool, planes, None, parameters) }
    }

    /// # Safety
    /// As [`super::OverlayKernel::launch`].
    unsafe fn start(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        planes: &[DevicePlane],
        letterbox: Option<&Letterbox>,
        parameters: TintParameters,
    ) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        let tables = self.tables(pool, letterbox)?;
        let plane = |i: usize| planes.get(i).copied().unwrap_or_default();
        let parameters = TintParameters {
            planes: [0, 1, 2].map(|i| plane(i).address),
            strides: [0, 1, 2].map(|i| plane(i).stride as u32),
            columns: tables,
            rows: tables + u64::from(width) * size_of::<u32>() as u64,
            width,
            height,
            ..parameters
        };
        // Cells of chroma, where there are any.
        let cell = if format.planes(1, 1).len() > 1 { 2 } else { 1 };
        let grid = (width.div_ceil(TILE.0 * cell), height.div_ceil(TILE.1 * cell), 1);
        // SAFETY: the kernel takes these parameters. Their addresses are valid until the work is done: this function
        // requires that.
        unsafe { stream.launch(&self.paint, Launch { grid, block: (THREADS, 1, 1), shared: 0 }, &parameters) }
    }

    /// The address of the tables for masks with that letterbox.
    fn tables(&mut self, pool: &DevicePool, letterbox: Option<&Letterbox>) -> Result<u64> {
        self.tables.take_if(|(of, _)| of.as_ref() != letterbox);
        if self.tables.is_none() {
            let Target { width, height, .. } = self.target;
            let [columns, rows] = match letterbox {
                Some(letterbox) => [
                    covering(width, letterbox.x..letterbox.x + letterbox.width, |at| column_edge(letterbox, at)),
                    covering(height, letterbox.y..letterbox.y + letterbox.height, |at| row_edge(letterbox, at)),
                ],
                None => [(0..width).collect(), (0..height).collect()],
            };
            let all = [columns, rows].concat();
            let mut block = pool.take(size_of_val(&all[..]))?;
            block.write(cast_slice(&all))?;
            self.tables = Some((letterbox.copied(), block));
        }
        Ok(self.tables.as_ref().expect("just put there").1.address())
    }
}
