//! Drawing on frames in GPU memory.

use crate::core::cuda::driver::{Context, Stream, StreamRole};
use crate::core::error::Result;
use crate::gst::video::{Format, FramePool, GpuFrame};
use crate::image::geometry::Letterbox;
use crate::image::keypoints::KeypointModel;
use crate::image::overlay::Style;
use crate::image::overlay::kernel::Overlay;
use crate::postprocess::Instances;
use crate::postprocess::suppress::device::DeviceDetections;

/// Made for one format, one context, and the names of the classes.
pub struct GpuPainter {
    context: Context,
    // Drop order: the stream first, which waits for the work that uses the rest.
    /// For what the host found; else the search's own stream does.
    stream: Option<Stream>,
    overlay: Overlay,
}

impl GpuPainter {
    pub fn new(
        context: &Context,
        format: &Format,
        labels: &[String],
        keypoints: Option<&KeypointModel>,
    ) -> Result<Self> {
        let overlay = Overlay::new(context, format.target(), labels, keypoints)?;
        Ok(GpuPainter { context: context.clone(), overlay, stream: None })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Queues the painting of what is being sought on a stream behind the search. The frame may go to whoever wants it next
    /// once that stream is waited for: before GStreamer 1.24 memory has no stream to say that somebody is still at work on it.
    pub fn queue(
        &mut self,
        stream: &Stream,
        frame: &GpuFrame,
        found: DeviceDetections,
        letterbox: &Letterbox,
        style: &Style,
    ) -> Result<()> {
        frame.order(stream)?;
        let begin = stream.begin_timing();
        // SAFETY: the planes were checked against their memory, which is mapped for writing until the work is done.
        unsafe { self.overlay.launch(stream, &frame.planes, found, Some(letterbox), style) }?;
        stream.end_timing(begin);
        Ok(())
    }

    /// Paints what the host found on a frame, or on a copy of it, and waits for that.
    pub fn paint(&mut self, frame: &GpuFrame, instances: &Instances, style: &Style) -> Result<()> {
        let stream = stream_in(&mut self.stream, &self.context)?;
        frame.order(stream)?;
        let begin = stream.begin_timing();
        // SAFETY: as above; what was launched before was waited for.
        unsafe {
            self.overlay.launch_for(stream, &frame.planes, &instances.boxes, instances.keypoints.as_ref(), style)
        }?;
        stream.end_timing(begin);
        stream.record()?.wait()
    }

    /// A copy of a frame to paint on, which is there by the time of that, or once this has settled.
    pub fn copy(&mut self, buffer: &gst::BufferRef, pool: &FramePool) -> Result<gst::Buffer> {
        let stream = stream_in(&mut self.stream, &self.context)?;
        // SAFETY: the base class keeps both until the frame is painted on, or this has settled.
        unsafe { pool.queue_copy(buffer, stream) }
    }

    /// Waits for all that is queued: what failed midway may leave something.
    pub fn settle(&self) {
        self.stream.iter().for_each(|stream| drop(stream.synchronize())); // the failure is known
    }
}

fn stream_in<'a>(stream: &'a mut Option<Stream>, context: &Context) -> Result<&'a Stream> {
    match stream {
        Some(stream) => Ok(stream),
        none => Ok(none.insert(Stream::of(context, StreamRole::Paint)?)),
    }
}
