// SPDX-License-Identifier: MPL-2.0
//! Motion on the GPU: `kernels/motion.cu`. The reference implementation is [`HostMotion`](super::HostMotion).

use super::{CELL, STEP};
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::MOTION;
use crate::error::Result;
use crate::image::device::{DevicePlane, check_planes};
use crate::image::frame::PixelFormat;
use crate::memory::{DeviceBlock, DevicePool, Mapped};

/// Threads of a block, as in the kernels.
const THREADS: u32 = 128;
/// Bytes of `Totals` of `motion.cu`, and where the count of changed cells is.
const TOTALS: usize = 16;
const CHANGED: usize = 8;

/// `MotionParameters` of `motion.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MotionParameters {
    plane: u64,
    background: u64,
    means: u64,
    totals: u64,
    stride: u32,
    width: u32,
    height: u32,
    columns: u32,
    rows: u32,
    channels: u32,
    rgb: [u32; 3],
    threshold: u32,
    is_first: u32,
    unused: u32,
}

const _: () = assert!(size_of::<MotionParameters>() == 80);

/// The background of frames of one format and size.
pub struct MotionKernel {
    means: Function,
    changes: Function,
    format: PixelFormat,
    size: (usize, usize),
    /// Totals, background and means.
    block: DeviceBlock,
    totals: Mapped,
    is_first: bool,
}

impl MotionKernel {
    /// # Errors
    /// `Run`, where the GPU has no memory left or cannot load the kernels.
    pub fn new(context: &Context, format: PixelFormat, size: (usize, usize)) -> Result<Self> {
        let name = match format {
            PixelFormat::P010 => "16",
            format if format.rgb_offsets().is_some() => "rgb",
            _ => "8",
        };
        let module = context.module(MOTION)?;
        let cells = size.0.div_ceil(CELL) * size.1.div_ceil(CELL);
        Ok(MotionKernel {
            means: module.function(&format!("motion_means_{name}"))?,
            changes: module.function("motion_changes")?,
            format,
            size,
            block: DevicePool::new(context).take(TOTALS + 2 * cells * size_of::<u16>())?,
            totals: Mapped::new(context, TOTALS)?,
            is_first: true,
        })
    }

    /// Whether it is for such frames in that context.
    pub fn is_for(&self, context: &Context, format: PixelFormat, size: (usize, usize)) -> bool {
        self.totals.context() == context && (self.format, self.size) == (format, size)
    }

    pub fn cells(&self) -> usize {
        self.size.0.div_ceil(CELL) * self.size.1.div_ceil(CELL)
    }

    /// As [`HostMotion::changed`](super::HostMotion::changed), behind what is queued on the stream. It is waited for.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`MotionKernel::new`], and nothing writes them until this returns.
    pub unsafe fn changed(&mut self, stream: &Stream, planes: &[DevicePlane], threshold: u32) -> Result<Option<u32>> {
        let (width, height) = self.size;
        check_planes(planes, self.format, width, height)?;
        let cells = self.cells() as u32;
        let (totals, background) = (self.block.address(), self.block.address() + TOTALS as u64);
        let parameters = MotionParameters {
            plane: planes[0].address,
            background,
            means: background + u64::from(cells) * size_of::<u16>() as u64,
            totals,
            stride: planes[0].stride as u32,
            width: width as u32,
            height: height as u32,
            columns: width.div_ceil(CELL) as u32,
            rows: height.div_ceil(CELL) as u32,
            channels: self.format.pixel_bytes() as u32,
            rgb: self.format.rgb_offsets().unwrap_or_default().map(|offset| offset as u32),
            threshold: threshold * STEP as u32,
            is_first: self.is_first.into(),
            unused: 0,
        };
        let shape = |grid| Launch { grid, block: (THREADS, 1, 1), shared: 0 };
        // SAFETY: the kernels take these parameters. The planes have such rows, as this function requires, and all memory
        // stays until the work is done, which is waited for here, also where a launch fails.
        let queued = unsafe {
            let strips = (parameters.width.div_ceil(THREADS), parameters.rows, 1);
            stream
                .clear(totals, TOTALS)
                .and_then(|()| stream.launch(&self.means, shape(strips), &parameters))
                .and_then(|()| stream.launch(&self.changes, shape((cells.div_ceil(THREADS), 1, 1)), &parameters))
                .and_then(|()| stream.download(totals, self.totals.host_mut()))
        };
        let done = stream.record().and_then(|fence| fence.wait());
        queued.and(done)?;
        let changed = self.totals.host()[CHANGED..][..size_of::<u32>()].try_into().expect("four bytes");
        Ok((!std::mem::take(&mut self.is_first)).then_some(u32::from_ne_bytes(changed)))
    }
}
