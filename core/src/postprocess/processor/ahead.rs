// SPDX-License-Identifier: MPL-2.0
//! What is in several frames, one after the other.

use std::mem::swap;

use super::Postprocessor;
use crate::cuda::driver::Context;
use crate::error::Result;
use crate::image::geometry::Letterbox;
use crate::postprocess::suppress::device::DeviceDecoder;
use crate::tensor::{Tensor, Tensors};

/// A frame whose outputs are in GPU memory: these, where it lies in the tensor, and their context.
type FrameOnGpu<'a> = (&'a Tensors, &'a Letterbox, &'a Context);

impl Postprocessor {
    /// Finds what is in several frames. `found` is called with the number of each as soon as its results are here.
    ///
    /// For boxes from a GPU the search in the next frame is queued before the host waits for one, so the GPU does not wait for the host.
    ///
    /// # Errors
    /// As [`Postprocessor::find`]. Then no work uses the outputs any more.
    pub fn find_each(
        &mut self,
        frames: &[(&Tensors, &Letterbox)],
        mut found: impl FnMut(&mut Self, usize),
    ) -> Result<()> {
        let on_gpu: Option<Vec<FrameOnGpu>> = (frames.iter())
            .map(|&(tensors, letterbox)| {
                Some((tensors, letterbox, tensors.first().and_then(Tensor::device)?.context()))
            })
            .collect();
        let is_queued = frames.len() > 1 && self.has_boxes() && !self.finds_text();
        let Some(queued) = on_gpu.filter(|_| is_queued) else {
            for (number, (tensors, letterbox)) in frames.iter().enumerate() {
                self.find(tensors, letterbox)?;
                found(self, number);
            }
            return Ok(());
        };
        let outcome = self.find_ahead(&queued, &mut found);
        if outcome.is_err() {
            for device in [&mut self.device, &mut self.other_device].into_iter().flatten() {
                let _ = device.finish(); // the first error is the one to tell
            }
        }
        outcome
    }

    fn find_ahead(&mut self, frames: &[FrameOnGpu], found: &mut impl FnMut(&mut Self, usize)) -> Result<()> {
        frames.first().map_or(Ok(()), |first| self.queue_marked(first))?;
        for (number, (_, letterbox, _)) in frames.iter().enumerate() {
            let next = frames.get(number + 1);
            if let Some(next) = next {
                swap(&mut self.device, &mut self.other_device);
                let queued = self.queue_marked(next);
                swap(&mut self.device, &mut self.other_device);
                queued?;
            }
            self.finish(letterbox)?;
            found(self, number);
            if next.is_some() {
                swap(&mut self.device, &mut self.other_device);
            }
        }
        Ok(())
    }

    /// Queues the search, for which the host will wait, but not for what is queued behind it.
    fn queue_marked(&mut self, (tensors, _, context): &FrameOnGpu) -> Result<()> {
        let stream = self.stream(tensors, context)?;
        self.queue(tensors, &stream)?;
        self.device.as_mut().map_or(Ok(()), DeviceDecoder::mark)
    }
}
