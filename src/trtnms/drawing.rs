//! Drawing on frames, in whatever memory they are, and on copies of those that others share.

use super::painter::GpuPainter;
use crate::core::cuda::driver::Context;
use crate::core::error::Result;
use crate::core::tensor::{Tensor, Tensors};
use crate::gst::cuda;
use crate::gst::video::{Format, FramePool};
use crate::image::geometry::Letterbox;
use crate::image::overlay::{Overlay, Style};
use crate::postprocess::{Instances, Postprocessor};

/// Made for one format.
pub struct Drawing {
    format: Format,
    overlay: Overlay,
    painter: Option<GpuPainter>,
    /// Made when the first frame has to be copied.
    pool: Option<FramePool>,
}

/// Whether a frame's objects were painted while they were sought.
pub enum Painted {
    No,
    /// On the copy, if there is one; else on the frame, if there are any.
    Yes(Option<gst::Buffer>),
}

impl Drawing {
    pub fn new(format: Format) -> Self {
        Drawing { format, overlay: Overlay::default(), painter: None, pool: None }
    }

    pub fn size(&self) -> (u32, u32) {
        self.format.size()
    }

    /// Classes are called something else from now on.
    pub fn labels_change(&mut self) {
        self.painter = None;
    }

    /// Finds a frame's objects. Where that and the frame are on the GPU they are painted, if there is a style, and the host waits
    /// once for both: on the frame if it is `ours`, else on a copy.
    pub fn find(
        &mut self,
        processor: &mut Postprocessor,
        tensors: &Tensors,
        letterbox: &Letterbox,
        buffer: &gst::BufferRef,
        ours: bool,
        style: Option<&Style>,
    ) -> Result<Painted> {
        let context = shared_context(buffer, tensors)?;
        let (Some(context), Some(style)) = (context, style) else {
            return processor.find(tensors, letterbox).map(|()| Painted::No);
        };
        let Drawing { format, painter, pool, .. } = self;
        let painter = painter_in(painter, &context, format, &processor.labels, processor.instances())?;
        let stream = processor.stream(tensors, &context)?;
        let mut copy = None;
        let mut find_and_paint = || {
            if !ours {
                // Before the model's outputs are waited for. SAFETY: the caller keeps the frame until this returns, and then
                // nothing is queued.
                copy = Some(unsafe { pool_in(pool, Some(&context), format)?.queue_copy(buffer, &stream) }?);
            }
            let frame = format.on_gpu(copy.as_deref().unwrap_or(buffer), true)?.expect("it is in CUDA memory");
            let found = processor.queue(tensors, &stream)?;
            painter.queue(&stream, &frame, found, letterbox, style)?;
            processor.finish(letterbox)
        };
        if let Err(error) = find_and_paint() {
            let _ = stream.synchronize(); // nobody may be at work on frames that go back to their pools
            return Err(error);
        }
        Ok(Painted::Yes(copy.filter(|_| !processor.instances().is_empty())))
    }

    /// A copy of a frame in memory of the same kind.
    pub fn copy(&mut self, buffer: &gst::BufferRef, processor: &Postprocessor) -> Result<gst::Buffer> {
        let Drawing { format, pool, painter, .. } = self;
        let context = context_of(buffer)?;
        let pool = pool_in(pool, context.as_ref(), format)?;
        match &context {
            // By who paints on it, so that the host waits once for both.
            Some(context) => {
                painter_in(painter, context, format, &processor.labels, processor.instances())?.copy(buffer, pool)
            }
            None => pool.copy(buffer),
        }
    }

    /// Draws what the host has found.
    pub fn draw(
        &mut self,
        buffer: &mut gst::BufferRef,
        instances: &Instances,
        labels: &[String],
        style: &Style,
    ) -> Result<()> {
        let Drawing { format, overlay, painter, .. } = self;
        match format.on_gpu(buffer, true)? {
            Some(frame) => {
                painter_in(painter, &frame.context, format, labels, instances)?.paint(&frame, instances, style)
            }
            None => format.draw(buffer, |frame| {
                overlay.draw(frame, &instances.boxes, instances.keypoints.as_ref(), labels, style)
            }),
        }
    }

    /// Frames go back to their pools after a failure; nobody may be at work on them then.
    pub fn settle(&self) {
        self.painter.iter().for_each(GpuPainter::settle);
    }
}

/// Whether nobody else sees what is written to the buffer's memory, and it may be written at all.
pub fn is_drawable(buffer: &gst::BufferRef) -> bool {
    let read_only = |memory: &gst::MemoryRef| memory.flags().contains(gst::MemoryFlags::READONLY);
    buffer.is_all_memory_writable() && !buffer.iter_memories().any(read_only)
}

/// The context of a frame in GPU memory.
fn context_of(buffer: &gst::BufferRef) -> Result<Option<Context>> {
    cuda::memory(buffer).map(|memory| memory.context()).transpose()
}

/// That of both the frame and the model's outputs, where it is one.
fn shared_context(buffer: &gst::BufferRef, tensors: &[Tensor]) -> Result<Option<Context>> {
    let Some(memory) = tensors.first().and_then(Tensor::device) else { return Ok(None) };
    Ok(context_of(buffer)?.filter(|context| context == memory.context()))
}

/// The pool for copies, made where there is none for that memory.
fn pool_in<'a>(
    pool: &'a mut Option<FramePool>,
    context: Option<&Context>,
    format: &Format,
) -> Result<&'a mut FramePool> {
    pool.take_if(|pool| pool.context() != context);
    match pool {
        Some(pool) => Ok(pool),
        none => Ok(none.insert(match context {
            Some(context) => FramePool::on_gpu(format, context)?,
            None => FramePool::new(format)?,
        })),
    }
}

/// The painter, made where there is none for that context.
fn painter_in<'a>(
    painter: &'a mut Option<GpuPainter>,
    context: &Context,
    format: &Format,
    labels: &[String],
    instances: &Instances,
) -> Result<&'a mut GpuPainter> {
    painter.take_if(|painter| painter.context() != context);
    match painter {
        Some(painter) => Ok(painter),
        none => Ok(none.insert(GpuPainter::new(
            context,
            format,
            labels,
            instances.keypoints.as_ref().map(|keypoints| &*keypoints.model),
        )?)),
    }
}
