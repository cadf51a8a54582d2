// SPDX-License-Identifier: MPL-2.0
//! When the clips were that a model has seen.

use gsttrt_core::postprocess::ClipSpan;

use crate::gst::meta::clip_input::FullClip;
use crate::gst::meta::tensor::ModelInputs;
use crate::gst::stream::CurrentSegment;

/// In stream time; `None` for a model that sees pictures, and for frames without time stamps.
pub fn span_of(inputs: &ModelInputs, segment: &CurrentSegment) -> Option<ClipSpan> {
    span(inputs.clip.as_ref()?.full.first()?, segment)
}

/// The same of each clip that ends with a frame; none for a model that sees pictures.
pub fn spans_of(inputs: &ModelInputs, segment: &CurrentSegment) -> Vec<Option<ClipSpan>> {
    inputs.clip.iter().flat_map(|clip| &clip.full).map(|full| span(full, segment)).collect()
}

fn span(FullClip { begin, end, .. }: &FullClip, segment: &CurrentSegment) -> Option<ClipSpan> {
    let start = segment.stream_time(*begin)?;
    // The last frame may end behind the segment.
    let end = segment.stream_time(*end).or_else(|| start.checked_add(end.as_ref()?.checked_sub(*begin.as_ref()?)?));
    Some(ClipSpan { start: start.nseconds(), end: end?.nseconds() })
}
