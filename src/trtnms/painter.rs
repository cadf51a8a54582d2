//! Drawing on frames in GPU memory.

use crate::cuda::driver::{Context, Purpose, Stream};
use crate::cuda::kernels::overlay::Overlay;
use crate::error::Result;
use crate::video::{Format, FramePool, GpuFrame};
use crate::vision::overlay::{Plan, Target};

/// Made for one format and one context.
pub struct GpuPainter {
    // Drop order: the stream first, which waits for the work that uses the rest.
    stream: Stream,
    overlay: Overlay,
    target: Target,
}

impl GpuPainter {
    pub fn new(context: &Context, format: &Format) -> Result<Self> {
        let (stream, overlay) = (Stream::of(context, Purpose::Paint)?, Overlay::new(context, format.pixels)?);
        Ok(GpuPainter { stream, overlay, target: format.target() })
    }

    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    /// A copy of a frame to paint on, which is there by the time of that, or once this has settled.
    pub fn copy(&self, buffer: &gst::BufferRef, pool: &FramePool) -> Result<gst::Buffer> {
        // SAFETY: the base class keeps both until the frame is painted on, or this has settled.
        unsafe { pool.queue_copy(buffer, &self.stream) }
    }

    /// Waits for all that is queued: what failed midway may leave something.
    pub fn settle(&self) {
        let _ = self.stream.synchronize(); // the failure is known
    }

    /// Paints and waits, so that the frame can go to whoever wants it next: before GStreamer 1.24 memory has no stream to say
    /// that somebody is still at work on it.
    pub fn paint(&mut self, frame: &GpuFrame, plan: &Plan) -> Result<()> {
        frame.order(&self.stream)?;
        let begin = self.stream.begin_timing();
        // SAFETY: the planes were checked against their memory, which is mapped for writing until the work is done.
        unsafe { self.overlay.launch(&self.stream, &frame.planes, &self.target, plan) }?;
        self.stream.end_timing(begin);
        match plan.marks.is_empty() {
            true => self.stream.synchronize(), // there may still be a copy
            false => self.overlay.wait(),
        }
    }
}
