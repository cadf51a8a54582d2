// SPDX-License-Identifier: MPL-2.0
//! Whether anything moves in a stream: so that a model need not look at frames that are like the one before.
//!
//! The mean luma of each cell of 8 × 8 pixels is compared with a running mean of the frames before, its background. The
//! noise of a camera is small in a mean of 64 pixels. What all cells have in common, up to `MAX_SHIFT`, is a change of the
//! light. A cell that differs by more than the threshold has changed; where enough of them have, there is motion.
//!
//! The background takes a 64th of each difference, so that an object which moves slowly is still far from it, and one that
//! stays becomes a part of it within seconds. Until then it counts as motion: the model sees how it came to rest.
//!
//! All of it is in integers, in parts of 256 of a luma step. A kernel does the same on a GPU, bit by bit.

mod host;
mod kernel;
#[cfg(test)]
mod tests;

use crate::cuda::driver::Stream;
use crate::error::Result;
use crate::image::device::DevicePlane;
use crate::image::frame::{Frame, PixelFormat};

pub use host::HostMotion;
pub use kernel::MotionKernel;

/// Pixels of a cell, across and down.
const CELL: usize = 8;
/// Parts of a luma step.
const STEP: i32 = 256;
/// The change of the light, at most.
const MAX_SHIFT: i32 = 16 * STEP;

/// What counts as motion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionOptions {
    /// Part of the picture that has changed, 0 to 1: at least one cell.
    pub gate: f32,
    /// Luma steps by which a cell has changed.
    pub threshold: u32,
    /// After so many frames without motion, the next one counts as if it had some; 0 never.
    pub refresh: u32,
}

/// The frames of a stream, one after another.
pub struct MotionGate {
    options: MotionOptions,
    background: Option<Background>,
    /// Frames since the last one that counted as motion.
    still: u32,
}

enum Background {
    Host(HostMotion),
    Device(MotionKernel),
}

impl MotionGate {
    pub fn new(options: MotionOptions) -> Self {
        MotionGate { options, background: None, still: 0 }
    }

    /// What comes next has nothing to do with the frames before.
    pub fn reset(&mut self) {
        self.background = None;
    }

    /// Whether there is motion in the next frame. There is in the first one.
    pub fn opens_for(&mut self, frame: &Frame) -> bool {
        let size = (frame.width, frame.height);
        if !matches!(&self.background, Some(Background::Host(host)) if host.size() == size) {
            self.background = Some(Background::Host(HostMotion::new(size)));
        }
        let Some(Background::Host(host)) = &mut self.background else { unreachable!("just put there") };
        let changed = host.changed(frame, self.options.threshold);
        let cells = host.cells();
        self.decide(changed, cells)
    }

    /// The same for a frame in GPU memory. It is waited for.
    ///
    /// # Errors
    /// `Run`, where the GPU fails.
    ///
    /// # Safety
    /// As [`MotionKernel::changed`].
    pub unsafe fn opens_on_gpu(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        (format, width, height): (PixelFormat, usize, usize),
    ) -> Result<bool> {
        let fits = |kernel: &MotionKernel| kernel.is_for(stream.context(), format, (width, height));
        if !matches!(&self.background, Some(Background::Device(kernel)) if fits(kernel)) {
            let kernel = MotionKernel::new(stream.context(), format, (width, height))?;
            self.background = Some(Background::Device(kernel));
        }
        let Some(Background::Device(kernel)) = &mut self.background else { unreachable!("just put there") };
        // SAFETY: this function requires the same.
        let changed = unsafe { kernel.changed(stream, planes, self.options.threshold) }?;
        let cells = kernel.cells();
        Ok(self.decide(changed, cells))
    }

    fn decide(&mut self, changed: Option<u32>, cells: usize) -> bool {
        let enough = (f64::from(self.options.gate) * cells as f64).ceil().max(1.0);
        let moves = changed.is_none_or(|changed| f64::from(changed) >= enough);
        let is_due = self.options.refresh > 0 && self.still >= self.options.refresh;
        self.still = if moves || is_due { 0 } else { self.still.saturating_add(1) };
        moves || is_due
    }
}
