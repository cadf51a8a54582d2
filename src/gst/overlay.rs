// SPDX-License-Identifier: MPL-2.0
//! Drawing on frames in system memory or CUDA memory, and on copies of frames that others share.

use std::sync::{Arc, LazyLock};

use gst::glib;
use gst::prelude::*;
use gsttrt_core::cuda::driver::{Context, Stream, StreamRole};
use gsttrt_core::error::Result;
use gsttrt_core::image::detections::DeviceDetections;
use gsttrt_core::image::geometry::Letterbox;
use gsttrt_core::image::keypoints::KeypointModel;
use gsttrt_core::image::map::PixelMap;
use gsttrt_core::image::masks::Mask;
use gsttrt_core::image::overlay::kernel::OverlayKernel;
use gsttrt_core::image::overlay::{
    Annotation, Boundary, MapTint, Overlay, Plan, Sample, Style, annotated_tints, found_tints,
};
use gsttrt_core::image::privacy::kernel::PrivacyKernel;
use gsttrt_core::image::privacy::{self, HiddenArea, QuadMask};
use gsttrt_core::postprocess::{FoundText, Instances, RankedClass};

use crate::gst::cuda;
use crate::gst::video::{Format, FramePool, GpuFrame};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trt-draw", gst::DebugColorFlags::empty(), Some("What is drawn on, and by what"))
});

/// The property of [`Style::labels`]; `blurb` names what is written.
pub fn draw_labels_property(blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecBoolean::builder("draw-labels")
        .nick("Draw labels")
        .blurb(blurb)
        .default_value(Style::default().labels)
        .mutable_playing()
        .build()
}

/// The property of [`Style::line_width`].
pub fn line_width_property() -> glib::ParamSpec {
    glib::ParamSpecUInt::builder("line-width")
        .nick("Line width")
        .blurb("Width of the outlines in pixels (0 = by the size of the frame)")
        .maximum(64)
        .default_value(Style::default().line_width)
        .mutable_playing()
        .build()
}

/// The property of [`Style::mask_alpha`].
pub fn mask_alpha_property() -> glib::ParamSpec {
    glib::ParamSpecFloat::builder("mask-alpha")
        .nick("Mask alpha")
        .blurb("How much drawn masks cover the picture: 0 draws none, 1 hides what is below")
        .minimum(0.0)
        .maximum(1.0)
        .default_value(Style::default().mask_alpha)
        .mutable_playing()
        .build()
}

/// Made for one format.
pub struct OverlayRenderer {
    format: Format,
    host: Overlay,
    gpu: Option<GpuPainter>,
    /// The colours of maps of that letterbox, which are only on the GPU.
    planned: Option<(Letterbox, MapTint<'static>)>,
    /// Made when the first frame has to be copied.
    pool: Option<FramePool>,
}

impl OverlayRenderer {
    pub fn new(format: Format) -> Self {
        OverlayRenderer { format, host: Overlay::default(), gpu: None, planned: None, pool: None }
    }

    pub fn size(&self) -> (u32, u32) {
        self.format.size()
    }

    /// What the caps say of the frames.
    pub fn info(&self) -> &gst_video::VideoInfo {
        &self.format.info
    }

    /// The names of the classes change.
    pub fn labels_change(&mut self) {
        (self.gpu, self.planned) = (None, None);
    }

    /// Draws detections, whose classes have those names.
    ///
    /// # Errors
    /// Where the picture cannot be read or written. The frame is there as it was, but may be drawn on in part.
    pub fn draw(
        &mut self,
        frame: &mut gst::Buffer,
        instances: &Instances,
        labels: &[String],
        style: &Style,
    ) -> Result<()> {
        let of_class = |found: &RankedClass| Annotation {
            class: Some(found.class),
            confidence: Some(found.score),
            ..Annotation::of_frame(labels.get(found.class as usize).map_or("", String::as_str).into())
        };
        let of_text = |found: &FoundText| Annotation {
            confidence: Some(found.confidence),
            ..Annotation::of_frame(found.text.clone().into())
        };
        let mut banners: Vec<Annotation> = instances.frame_classes().iter().map(of_class).collect();
        banners.extend(instances.frame_text().map(of_text));
        if !banners.is_empty() {
            return self.annotate(frame, &banners, style);
        }
        let model = keypoint_model(instances);
        self.change(frame, labels, model, |OverlayRenderer { format, host, gpu, .. }, buffer| {
            if let Some(frame) = format.on_gpu(buffer, true)? {
                let target = format.target();
                let tints =
                    found_tints(&target, instances.drawn(), instances.masks.as_ref(), style).collect::<Vec<_>>();
                let painter = painter_in(gpu, &frame.context, format, labels, model)?;
                return painter.paint(&frame, instances, &tints, style);
            }
            let Instances { keypoints, masks, .. } = instances;
            format.draw(buffer, |frame| {
                host.draw(frame, instances.drawn(), keypoints.as_ref(), masks.as_ref(), labels, style);
            })
        })
    }

    /// Draws maps, below what is drawn later.
    ///
    /// # Errors
    /// As [`OverlayRenderer::draw`].
    pub fn draw_maps<'a>(
        &mut self,
        frame: &mut gst::Buffer,
        maps: impl Iterator<Item = &'a PixelMap>,
        style: &Style,
    ) -> Result<()> {
        let target = self.format.target();
        let tints: Vec<MapTint> = match style.mask_weight() {
            0 => Vec::new(),
            _ => maps.filter_map(|map| MapTint::new(map, &target)).collect(),
        };
        if tints.is_empty() {
            return Ok(());
        }
        self.change(frame, &[], None, |OverlayRenderer { format, gpu, .. }, buffer| {
            if let Some(frame) = format.on_gpu(buffer, true)? {
                return painter_in(gpu, &frame.context, format, &[], None)?.paint_maps(&frame, &tints, style);
            }
            format.draw(buffer, |frame| tints.iter().for_each(|tint| tint.blend(frame, style)))
        })
    }

    /// Hides parts of a frame, the last area on top of all, and what a mask has.
    ///
    /// # Errors
    /// As [`OverlayRenderer::draw`].
    pub fn hide(&mut self, frame: &mut gst::Buffer, areas: &[HiddenArea], mask: Option<&Arc<QuadMask>>) -> Result<()> {
        self.change(frame, &[], None, |OverlayRenderer { format, gpu, .. }, buffer| {
            if let Some(frame) = format.on_gpu(buffer, true)? {
                return painter_in(gpu, &frame.context, format, &[], None)?.hide(&frame, format, areas, mask);
            }
            format.draw(buffer, |frame| privacy::hide(frame, areas, mask.map(|mask| &**mask)))
        })
    }

    /// Lets objects draw trails of so many frames behind them, and says whether tags have their numbers.
    pub fn follow(&mut self, annotations: &[Annotation], trail_length: u32, with_ids: bool) {
        self.host.trails.follow(annotations, trail_length);
        self.host.hides_ids = !with_ids;
    }

    /// Lets zones and tripwires be drawn with the annotations of the next frame.
    pub fn bound(&mut self, boundaries: Vec<Boundary>) {
        self.host.boundaries = boundaries;
    }

    pub fn has_boundaries(&self) -> bool {
        !self.host.boundaries.is_empty()
    }

    /// What comes next is another part of the stream.
    pub fn end_trails(&mut self) {
        self.host.trails.clear();
    }

    /// Draws annotations of any source on a frame, the most important first.
    ///
    /// # Errors
    /// As [`OverlayRenderer::draw`].
    pub fn annotate(&mut self, frame: &mut gst::Buffer, annotations: &[Annotation], style: &Style) -> Result<()> {
        self.change(frame, &[], None, |OverlayRenderer { format, host, gpu, .. }, buffer| {
            let annotations = annotations.iter().cloned();
            if let Some(frame) = format.on_gpu(buffer, true)? {
                let tints: Vec<_> = annotated_tints(&format.target(), annotations.clone(), style).collect();
                let plan = host.plan_annotations(format.target(), annotations, style);
                return painter_in(gpu, &frame.context, format, &[], None)?.paint_plan(&frame, &plan, &tints, style);
            }
            format.draw(buffer, |frame| host.annotate(frame, annotations, style))
        })
    }

    /// Changes a frame if it is not shared, else replaces it by a changed copy.
    fn change(
        &mut self,
        frame: &mut gst::Buffer,
        labels: &[String],
        keypoints: Option<&KeypointModel>,
        change: impl FnOnce(&mut Self, &mut gst::BufferRef) -> Result<()>,
    ) -> Result<()> {
        self.format.check_drawable()?;
        let mut copy = None;
        gst::trace!(CAT, "drawing on the frame of {:?}, or on a copy if it is shared", frame.pts());
        let changed = match frame.get_mut().filter(|buffer| is_drawable(buffer)) {
            Some(buffer) => change(self, buffer),
            None => self
                .copy(frame, labels, keypoints)
                .and_then(|made| change(self, copy.insert(made).get_mut().expect("it was just made"))),
        };
        if let Err(error) = changed {
            // No work on the copy may be queued when it goes back to its pool.
            self.gpu.iter().for_each(GpuPainter::synchronize);
            return Err(error);
        }
        copy.into_iter().for_each(|copy| *frame = copy);
        Ok(())
    }

    /// A copy of a frame in memory of the same kind.
    fn copy(
        &mut self,
        buffer: &gst::BufferRef,
        labels: &[String],
        keypoints: Option<&KeypointModel>,
    ) -> Result<gst::Buffer> {
        let OverlayRenderer { format, pool, gpu, .. } = self;
        let context = context_of(buffer)?;
        let pool = pool_in(pool, context.as_ref(), format)?;
        match &context {
            // By what paints on it, so that the host waits once for both.
            Some(context) => painter_in(gpu, context, format, labels, keypoints)?.copy(buffer, pool),
            None => pool.copy(buffer),
        }
    }

    /// A copy of a frame in GPU memory, which is there once what is queued on the stream is done.
    ///
    /// # Safety
    /// As [`FramePool::queue_copy`].
    pub unsafe fn queue_copy(
        &mut self,
        buffer: &gst::BufferRef,
        context: &Context,
        stream: &Stream,
    ) -> Result<gst::Buffer> {
        let pool = pool_in(&mut self.pool, Some(context), &self.format)?;
        // SAFETY: both buffers stay until what is queued on the stream is done.
        unsafe { pool.queue_copy(buffer, stream) }
    }

    /// Queues the painting of what is being sought on a stream behind the search. The frame may go on once that stream is
    /// waited for: before GStreamer 1.24 memory has no stream to say that something is still at work on it.
    #[expect(clippy::too_many_arguments)]
    pub fn queue(
        &mut self,
        buffer: &gst::BufferRef,
        labels: &[String],
        keypoints: Option<&KeypointModel>,
        stream: &Stream,
        found: DeviceDetections,
        letterbox: &Letterbox,
        style: &Style,
    ) -> Result<()> {
        let OverlayRenderer { format, gpu, .. } = self;
        let frame = format.on_gpu(buffer, true)?.expect("it is in CUDA memory");
        painter_in(gpu, &frame.context, format, labels, keypoints)?.queue(stream, &frame, found, letterbox, style)
    }

    /// The same for a map, which has so many classes; what is known of it is its place and size, and the address of its
    /// values. Earlier maps are drawn.
    pub fn queue_map(
        &mut self,
        buffer: &gst::BufferRef,
        stream: &Stream,
        (map, values): (&PixelMap, u64),
        classes: u32,
        (letterbox, style): (&Letterbox, &Style),
    ) -> Result<()> {
        let OverlayRenderer { format, gpu, planned, .. } = self;
        if style.mask_weight() == 0 {
            return Ok(());
        }
        planned.take_if(|(of, _)| of != letterbox);
        let (_, tint) = planned.get_or_insert_with(|| (*letterbox, MapTint::planned(map, classes, &format.target())));
        let frame = format.on_gpu(buffer, true)?.expect("it is in CUDA memory");
        painter_in(gpu, &frame.context, format, &[], None)?.queue_map(stream, &frame, (tint, values), style)
    }
}

/// What the keypoints of a frame's objects are.
pub fn keypoint_model(instances: &Instances) -> Option<&KeypointModel> {
    instances.keypoints.as_ref().map(|keypoints| &*keypoints.model)
}

/// Whether the buffer's memory is not shared, and may be written.
pub fn is_drawable(buffer: &gst::BufferRef) -> bool {
    let read_only = |memory: &gst::MemoryRef| memory.flags().contains(gst::MemoryFlags::READONLY);
    buffer.is_all_memory_writable() && !buffer.iter_memories().any(read_only)
}

/// The context of a frame in GPU memory.
pub fn context_of(buffer: &gst::BufferRef) -> Result<Option<Context>> {
    cuda::memory(buffer).map(|memory| memory.context()).transpose()
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
    keypoints: Option<&KeypointModel>,
) -> Result<&'a mut GpuPainter> {
    painter.take_if(|painter| painter.context != *context);
    match painter {
        Some(painter) => Ok(painter),
        none => Ok(none.insert(GpuPainter::new(context, format, labels, keypoints)?)),
    }
}

/// Made for one format, one context, and the names of the classes.
struct GpuPainter {
    context: Context,
    // Drop order: the stream first, which waits for the work that uses the rest.
    /// For what the host found; else the search's own stream does.
    stream: Option<Stream>,
    overlay: OverlayKernel,
    /// Made where something is hidden.
    privacy: Option<PrivacyKernel>,
}

impl GpuPainter {
    fn new(context: &Context, format: &Format, labels: &[String], keypoints: Option<&KeypointModel>) -> Result<Self> {
        let overlay = OverlayKernel::new(context, format.target(), labels, keypoints)?;
        Ok(GpuPainter { context: context.clone(), overlay, privacy: None, stream: None })
    }

    fn queue(
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

    fn queue_map(
        &mut self,
        stream: &Stream,
        frame: &GpuFrame,
        (tint, values): (&MapTint, u64),
        style: &Style,
    ) -> Result<()> {
        frame.order(stream)?;
        let begin = stream.begin_timing();
        // SAFETY: as above; the values are written before on this stream, and earlier maps are drawn.
        unsafe { self.overlay.launch_map(stream, &frame.planes, tint, Some(values), style) }?;
        stream.end_timing(begin);
        Ok(())
    }

    /// Paints what the host found on a frame, or on a copy of it, and waits for that.
    fn paint(
        &mut self,
        frame: &GpuFrame,
        instances: &Instances,
        tints: &[(Arc<Mask>, Sample)],
        style: &Style,
    ) -> Result<()> {
        // SAFETY: the planes were checked as above; what was launched before was waited for.
        self.wait_for(frame, |overlay, stream| unsafe {
            overlay.launch_tints(stream, &frame.planes, tints, style)?;
            overlay.launch_for(stream, &frame.planes, instances.drawn(), instances.keypoints.as_ref(), style)
        })
    }

    /// Paints maps on a frame, or on a copy of it, and waits for that.
    fn paint_maps(&mut self, frame: &GpuFrame, tints: &[MapTint], style: &Style) -> Result<()> {
        tints.iter().try_for_each(|tint| {
            // SAFETY: as above.
            self.wait_for(frame, |overlay, stream| unsafe {
                overlay.launch_map(stream, &frame.planes, tint, None, style)
            })
        })
    }

    /// The same for what the host has planned for such frames.
    fn paint_plan(
        &mut self,
        frame: &GpuFrame,
        plan: &Plan,
        tints: &[(Arc<Mask>, Sample)],
        style: &Style,
    ) -> Result<()> {
        // SAFETY: as above.
        self.wait_for(frame, |overlay, stream| unsafe {
            overlay.launch_tints(stream, &frame.planes, tints, style)?;
            overlay.launch_plan(stream, &frame.planes, plan)
        })
    }

    /// Hides parts of a frame, or of a copy of it, and waits for that.
    fn hide(
        &mut self,
        frame: &GpuFrame,
        format: &Format,
        areas: &[HiddenArea],
        mask: Option<&Arc<QuadMask>>,
    ) -> Result<()> {
        let mut kernel = match self.privacy.take() {
            Some(kernel) => kernel,
            None => PrivacyKernel::new(&self.context, format.target())?,
        };
        // SAFETY: as above.
        let hidden = self.wait_for(frame, |_, stream| unsafe { kernel.launch(stream, &frame.planes, areas, mask) });
        // Where that failed, something may still be queued that uses its memory.
        self.stream.iter().filter(|_| hidden.is_err()).for_each(|stream| drop(stream.synchronize()));
        self.privacy = Some(kernel);
        hidden
    }

    fn wait_for(
        &mut self,
        frame: &GpuFrame,
        launch: impl FnOnce(&mut OverlayKernel, &Stream) -> Result<()>,
    ) -> Result<()> {
        let stream = stream_in(&mut self.stream, &self.context)?;
        frame.order(stream)?;
        let begin = stream.begin_timing();
        launch(&mut self.overlay, stream)?;
        stream.end_timing(begin);
        stream.record()?.wait()
    }

    /// A copy of a frame to paint on, which is there by the time of that, or once this is synchronized.
    fn copy(&mut self, buffer: &gst::BufferRef, pool: &FramePool) -> Result<gst::Buffer> {
        let stream = stream_in(&mut self.stream, &self.context)?;
        // SAFETY: `OverlayRenderer::change` keeps both until the frame is painted on, or this is synchronized.
        unsafe { pool.queue_copy(buffer, stream) }
    }

    /// Waits for all that is queued: what failed midway may leave something.
    fn synchronize(&self) {
        self.stream.iter().for_each(|stream| drop(stream.synchronize())); // the failure is known
    }
}

fn stream_in<'a>(stream: &'a mut Option<Stream>, context: &Context) -> Result<&'a Stream> {
    match stream {
        Some(stream) => Ok(stream),
        none => Ok(none.insert(Stream::of(context, StreamRole::Paint)?)),
    }
}
