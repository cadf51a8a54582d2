// SPDX-License-Identifier: MPL-2.0
//! Areas and polygons that are hidden, on the GPU: `kernels/privacy.cu`. The reference implementation is
//! [`hide`](super::hide).

use std::sync::Arc;

use bytemuck::cast_slice;

use super::{CELLS, HiddenArea, PlaneShape, QuadMask};
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::PRIVACY;
use crate::error::Result;
use crate::image::device::{DevicePlane, check_planes};
use crate::image::frame::PixelFormat;
use crate::image::geometry::Rect;
use crate::image::overlay::{Sample, Target};
use crate::memory::{DeviceBlock, DevicePool, Mapped};

/// Threads of a block, as in the kernels.
const THREADS: u32 = 128;
const MEAN_THREADS: u32 = 64;
/// Samples that a thread paints, about.
const SAMPLES: u32 = 4;
/// Blocks of an area at most.
const MAX_PIECES: u32 = 1024;

/// Of `privacy.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct HiddenPlane {
    address: u64,
    stride: u32,
    width: u32,
    height: u32,
    channels: u32,
    per_quad: u32,
    black: Sample,
}

/// Of `privacy.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct HideParameters {
    planes: [HiddenPlane; 3],
    areas: u64,
    means: u64,
    count: u32,
    unused: u32,
}

/// Of `privacy.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MaskParameters {
    planes: [HiddenPlane; 3],
    quads: Rect,
    bits: u64,
    unused: u64,
}

const _: () =
    assert!(size_of::<HiddenPlane>() == 32 && size_of::<HideParameters>() == 120 && size_of::<MaskParameters>() == 128);

/// Hides parts of frames of one format and size. It keeps its memory, so that nothing is allocated once the greatest
/// number of areas is known.
pub struct PrivacyKernel {
    means: Function,
    paint: Function,
    blacken: Function,
    target: Target,
    pool: DevicePool,
    /// The areas on the host, and on the GPU with the means behind them.
    areas: Option<(Mapped, DeviceBlock)>,
    /// The last mask, and its bits on the GPU.
    mask: Option<(Arc<QuadMask>, DeviceBlock)>,
}

impl PrivacyKernel {
    /// # Errors
    /// `Run`, where the GPU cannot load the kernels.
    pub fn new(context: &Context, target: Target) -> Result<Self> {
        let bits = if target.format == PixelFormat::P010 { 16 } else { 8 };
        let module = context.module(PRIVACY)?;
        Ok(PrivacyKernel {
            means: module.function(&format!("hide_means_{bits}"))?,
            paint: module.function(&format!("hide_{bits}"))?,
            blacken: module.function(&format!("hide_mask_{bits}"))?,
            target,
            pool: DevicePool::new(context),
            areas: None,
            mask: None,
        })
    }

    /// Queues it, as [`hide`](super::hide) does it.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`PrivacyKernel::new`], and nothing else accesses them until the
    /// work is done. `self` lives until then too, and earlier launches are done.
    pub unsafe fn launch(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        areas: &[HiddenArea],
        mask: Option<&Arc<QuadMask>>,
    ) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        check_planes(planes, format, width as usize, height as usize)?;
        let shapes = PlaneShape::all(&self.target);
        let count = shapes.len() as u32;
        let mut described = [HiddenPlane::default(); 3];
        for (plane, (shape, at)) in described.iter_mut().zip(shapes.iter().zip(planes)) {
            *plane = HiddenPlane {
                address: at.address,
                stride: at.stride as u32,
                width: shape.width,
                height: shape.height,
                channels: shape.channels as u32,
                per_quad: shape.per_quad,
                black: shape.black,
            };
        }
        // SAFETY: the planes are valid until the work is done, and earlier launches are done: this function requires both.
        unsafe {
            if !areas.is_empty() {
                self.hide(stream, described, count, areas)?;
            }
            match mask.filter(|mask| !mask.rect.is_empty()) {
                Some(mask) => self.blacken(stream, described, count, mask),
                None => Ok(()),
            }
        }
    }

    /// # Safety
    /// As [`PrivacyKernel::launch`].
    unsafe fn hide(
        &mut self,
        stream: &Stream,
        planes: [HiddenPlane; 3],
        plane_count: u32,
        areas: &[HiddenArea],
    ) -> Result<()> {
        let bytes: &[u8] = cast_slice(areas);
        let means = planes.len() * areas.len() * (CELLS * CELLS * 4) as usize * size_of::<u16>();
        let needed = bytes.len() + means;
        self.areas.take_if(|(staging, block)| staging.bytes() < bytes.len() || block.bytes() < needed);
        let (staging, block) = match &mut self.areas {
            Some(there) => there,
            none => {
                let room = areas.len().next_power_of_two();
                let (staged, all) = (room * size_of::<HiddenArea>(), room * needed / areas.len());
                none.insert((Mapped::new(stream.context(), staged)?, self.pool.take(all)?))
            }
        };
        staging.host_mut()[..bytes.len()].copy_from_slice(bytes);
        let count = areas.len() as u32;
        let means = block.address() + bytes.len() as u64;
        let parameters = HideParameters { planes, areas: block.address(), means, count, unused: 0 };
        let largest = areas.iter().map(|area| 4 * area.quads.width() * area.quads.height()).max().unwrap_or(1);
        let pieces = largest.div_ceil(THREADS * SAMPLES).clamp(1, MAX_PIECES);
        let shape = |y, threads| Launch { grid: (count, y, plane_count), block: (threads, 1, 1), shared: 0 };
        // SAFETY: both sides have that many bytes and live as long as `self`; earlier launches, which use them, are done.
        // The kernels take these parameters, the areas lie in the frame, and the planes are valid until the work is done:
        // this function requires that.
        unsafe {
            stream.upload(&staging.host()[..bytes.len()], block.address())?;
            stream.launch(&self.means, shape(CELLS * CELLS, MEAN_THREADS), &parameters)?;
            stream.launch(&self.paint, shape(pieces, THREADS), &parameters)
        }
    }

    /// # Safety
    /// As [`PrivacyKernel::launch`].
    unsafe fn blacken(
        &mut self,
        stream: &Stream,
        planes: [HiddenPlane; 3],
        plane_count: u32,
        mask: &Arc<QuadMask>,
    ) -> Result<()> {
        self.mask.take_if(|(of, _)| !Arc::ptr_eq(of, mask));
        let (_, block) = match &mut self.mask {
            Some(there) => there,
            none => {
                let mut block = self.pool.take(size_of_val(&mask.bits[..]))?;
                block.write(cast_slice(&mask.bits))?;
                none.insert((mask.clone(), block))
            }
        };
        let parameters = MaskParameters { planes, quads: mask.rect, bits: block.address(), unused: 0 };
        let grid = (mask.rect.width().div_ceil(THREADS), mask.rect.height(), plane_count);
        // SAFETY: the kernel takes these parameters; the bits live as long as `self`, and the planes are valid until the
        // work is done: this function requires that.
        unsafe { stream.launch(&self.blacken, Launch { grid, block: (THREADS, 1, 1), shared: 0 }, &parameters) }
    }
}
