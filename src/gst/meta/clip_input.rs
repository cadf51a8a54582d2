// SPDX-License-Identifier: MPL-2.0
//! What rides on a frame for a model that sees several frames at once.

use gsttrt_core::image::clip::Clip;
use gsttrt_core::tensor::TensorDesc;
use smallvec::SmallVec;

/// What a model that sees clips gets of a frame.
#[derive(Debug)]
pub struct ClipInput {
    /// The tensor of a clip.
    pub desc: TensorDesc,
    /// The clip that ends with this frame, or those of its objects; none where none does, and the results of an earlier frame hold.
    pub full: SmallVec<[FullClip; 1]>,
}

/// All frames of a clip are there.
#[derive(Debug)]
pub struct FullClip {
    pub clip: Clip,
    /// The index of the input that is its last picture.
    pub input: usize,
    /// The time stamp of the earliest frame, and when the latest one ends, where they are known.
    pub begin: Option<gst::ClockTime>,
    pub end: Option<gst::ClockTime>,
}
