//! Boxes and labels on a frame, in place: `kernels/overlay.cu`. The twin is [`paint`](crate::vision::overlay::paint()), and
//! both take the same plan.

use bytemuck::cast_slice;

use super::{DevicePlane, OVERLAY, check_planes};
use crate::cuda::driver::{Context, Fence, Function, Launch, Patience, Stream};
use crate::error::Result;
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::stats;
use crate::vision::frame::PixelFormat;
use crate::vision::overlay::{Font, Mark, Plan, Rect, Target};

/// Threads of a block, and cells of a part that it paints, as in the kernel.
const THREADS: u32 = 128;
const PIECE: u32 = 8 * THREADS;
/// Four sides and a tag.
const PARTS: u32 = 5;

/// Paints plans on frames of one format. Keeps its memory, so that nothing is allocated once the busiest frame has passed.
pub struct Overlay {
    paint: Function,
    fetch: Function,
    format: PixelFormat,
    pool: DevicePool,
    plan: Option<Memory>,
    font: Option<Atlas>,
    /// The last launch, which reads `plan`.
    pending: Option<Fence>,
    patience: Patience,
}

/// Marks and then text: where the host writes them, and where the kernel reads them.
struct Memory {
    staging: Mapped,
    device: DeviceBlock,
}

/// The coverage of a font on the GPU.
struct Atlas {
    height: u32,
    coverage: DeviceBlock,
}

/// `Parameters` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parameters {
    planes: [u64; 3],
    marks: u64,
    text: u64,
    coverage: u64,
    strides: [u32; 3],
    count: u32,
    glyph_width: u32,
    glyph_height: u32,
}

/// `Copy` of the kernel, in units of 16 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Fetch {
    from: u64,
    to: u64,
    count: u32,
    unused: u32,
}

const _: () = assert!(size_of::<Mark>() == 64 && size_of::<Parameters>() == 72 && size_of::<Fetch>() == 24);

impl Overlay {
    pub fn new(context: &Context, format: PixelFormat) -> Result<Self> {
        let module = context.module(OVERLAY)?;
        let name = match format {
            PixelFormat::Nv12 => "overlay_nv12",
            PixelFormat::P010 => "overlay_p010",
            PixelFormat::I420 => "overlay_i420",
            PixelFormat::Gray8 => "overlay_packed1",
            PixelFormat::Rgb | PixelFormat::Bgr => "overlay_packed3",
            PixelFormat::Rgba | PixelFormat::Bgra | PixelFormat::Rgbx | PixelFormat::Bgrx => "overlay_packed4",
        };
        Ok(Overlay {
            paint: module.function(name)?,
            fetch: module.function("overlay_fetch")?,
            format,
            pool: DevicePool::new(context),
            plan: None,
            font: None,
            pending: None,
            patience: Patience::default(),
        })
    }

    /// Queues the painting of a plan that was made for `target`. The plan is copied during the call.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame like `target`, whose format is the one given to [`Overlay::new`], and nobody else
    /// touches them until the work is done.
    pub unsafe fn launch(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        target: &Target,
        plan: &Plan,
    ) -> Result<()> {
        assert_eq!(target.format, self.format);
        check_planes(planes, self.format, target.width as usize, target.height as usize)?;
        if plan.marks.is_empty() {
            return Ok(());
        }
        // The memory for the plan is in use until then.
        self.wait()?;
        let coverage = self.coverage(plan.font)?;
        let (marks, text): (&[u8], &[u8]) = (cast_slice(plan.marks), cast_slice(plan.text));
        let memory = self.memory(marks.len() + text.len())?;
        let (to_marks, to_text) = memory.staging.host_mut().split_at_mut(marks.len());
        to_marks.copy_from_slice(marks);
        to_text[..text.len()].copy_from_slice(text);

        let count = (marks.len() + text.len()).div_ceil(16) as u32;
        let (from, to) = (memory.staging.address(), memory.device.address());
        let plane = |i: usize| planes.get(i).copied().unwrap_or_default();
        let parameters = Parameters {
            planes: [0, 1, 2].map(|i| plane(i).address),
            marks: to,
            text: to + marks.len() as u64,
            coverage,
            strides: [0, 1, 2].map(|i| plane(i).stride as u32),
            count: plan.marks.len() as u32,
            glyph_width: plan.font.width,
            glyph_height: plan.font.height,
        };
        let fetch = Launch { grid: (count.div_ceil(THREADS), 1, 1), block: (THREADS, 1, 1), shared: 0 };
        let grid = (parameters.count, PARTS, plan.marks.iter().map(|mark| self.pieces(mark)).max().unwrap_or(1));
        // SAFETY: the kernels take these parameters; the plan's memory and the font's live until the fence below is passed,
        // which the next launch and drop wait for; the planes are as the caller says.
        unsafe {
            stream.launch(&self.fetch, fetch, &Fetch { from, to, count, unused: 0 })?;
            stream.launch(&self.paint, Launch { grid, block: (THREADS, 1, 1), shared: 0 }, &parameters)?;
        }
        stats::uploaded(marks.len() + text.len());
        self.pending = Some(stream.record_awaited()?);
        Ok(())
    }

    /// Waits for what was launched.
    ///
    /// # Errors
    /// `Run`, where work on the GPU failed.
    pub fn wait(&mut self) -> Result<()> {
        self.pending.take().map_or(Ok(()), |fence| fence.wait_again(&mut self.patience))
    }

    /// How many blocks the greatest part of a mark takes.
    fn pieces(&self, mark: &Mark) -> u32 {
        let halved = matches!(self.format, PixelFormat::Nv12 | PixelFormat::P010 | PixelFormat::I420);
        let cells = |part: &Rect| {
            let Rect { left, top, right, bottom } = if halved { part.halved() } else { *part };
            right.saturating_sub(left) * bottom.saturating_sub(top)
        };
        let parts = mark.sides().into_iter().chain([mark.tag]);
        parts.map(|part| cells(&part).div_ceil(PIECE)).max().unwrap_or(0).max(1)
    }

    /// Where the font lies on the GPU.
    fn coverage(&mut self, font: &Font) -> Result<u64> {
        self.font.take_if(|atlas| atlas.height != font.height);
        if self.font.is_none() {
            let mut coverage = self.pool.take(font.coverage.len())?;
            coverage.write(&font.coverage)?;
            self.font = Some(Atlas { height: font.height, coverage });
        }
        Ok(self.font.as_ref().expect("just put there").coverage.address())
    }

    /// Memory for so many bytes and more.
    fn memory(&mut self, bytes: usize) -> Result<&mut Memory> {
        self.plan.take_if(|memory| memory.staging.bytes() < bytes);
        if self.plan.is_none() {
            let bytes = bytes.next_power_of_two().max(4096);
            let staging = Mapped::new(self.pool.context(), bytes)?;
            self.plan = Some(Memory { staging, device: self.pool.take(bytes)? });
        }
        Ok(self.plan.as_mut().expect("just put there"))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = self.wait(); // whoever waits for the frame hears of it
    }
}
