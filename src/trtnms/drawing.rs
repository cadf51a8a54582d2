// SPDX-License-Identifier: MPL-2.0
//! Finding a frame's objects, and drawing them where all of that is done on the GPU.

use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::image::geometry::{Letterbox, Rect};
use gsttrt_core::image::overlay::Style;
use gsttrt_core::postprocess::Postprocessor;
use gsttrt_core::tensor::{Tensor, Tensors};

use crate::gst::overlay::{OverlayRenderer, context_of, is_drawable, keypoint_model};

/// Whether a frame's objects were drawn together with the search.
pub enum GpuDrawing {
    NotDrawn,
    /// On the frame itself, or there are no objects.
    InPlace,
    /// On this copy, which replaces the frame.
    OnCopy(gst::Buffer),
}

/// Finds a frame's objects. Where that and the frame are on the GPU they are drawn, if there is a style, and the host waits
/// once for both: on the frame if it is not shared, else on a copy.
pub fn find(
    renderer: &mut OverlayRenderer,
    postprocessor: &mut Postprocessor,
    tensors: &Tensors,
    letterbox: &Letterbox,
    frame: &gst::Buffer,
    style: Option<&Style>,
) -> Result<GpuDrawing> {
    // Drawing there takes boxes of the whole frame, or a map.
    let is_whole = letterbox.place == Rect::from(renderer.size()).into();
    let has_queue = postprocessor.has_boxes() && !postprocessor.finds_text();
    let can_draw = is_whole && has_queue || postprocessor.has_map();
    let context = shared_context(frame, tensors)?.filter(|_| can_draw);
    let (Some(context), Some(style)) = (context, style) else {
        return postprocessor.find(tensors, letterbox).map(|()| GpuDrawing::NotDrawn);
    };
    let stream = postprocessor.stream(tensors, &context)?;
    let mut copy = None;
    let mut find_and_draw = || {
        if !frame.is_writable() || !is_drawable(frame) {
            // Before the model's outputs are waited for. SAFETY: the caller keeps the frame until this returns, and then
            // nothing is queued.
            copy = Some(unsafe { renderer.queue_copy(frame, &context, &stream) }?);
        }
        let target = copy.as_ref().unwrap_or(frame);
        if let Some(values) = postprocessor.queue_map(tensors, letterbox, &stream)? {
            let classes = postprocessor.map_classes();
            if let Some(map) = postprocessor.instances().frame_map() {
                renderer.queue_map(target, &stream, (map, values), classes, (letterbox, style))?;
            }
            stream.record()?.wait()?;
            postprocessor.finish_map();
            return Ok(());
        }
        let found = postprocessor.queue(tensors, &stream)?;
        let keypoints = keypoint_model(postprocessor.instances());
        renderer.queue(target, &postprocessor.labels, keypoints, &stream, found, letterbox, style)?;
        postprocessor.finish(letterbox)
    };
    if let Err(error) = find_and_draw() {
        let _ = stream.synchronize(); // no work on frames may be queued when they go back to their pools
        return Err(error);
    }
    let copy = copy.filter(|_| !postprocessor.instances().is_empty() || postprocessor.has_map());
    Ok(copy.map_or(GpuDrawing::InPlace, GpuDrawing::OnCopy))
}

/// The context of both the frame and the model's outputs, where it is one.
fn shared_context(buffer: &gst::BufferRef, tensors: &[Tensor]) -> Result<Option<Context>> {
    let Some(memory) = tensors.first().and_then(Tensor::device) else { return Ok(None) };
    Ok(context_of(buffer)?.filter(|context| context == memory.context()))
}
