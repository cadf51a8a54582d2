//! Frames, tensors made of them, and drawing: no GStreamer, no files.
//!
//! A [`frame`] goes through [`preprocess`] as a [`transform`] says and becomes the model's input. [`geometry`] maps boxes
//! back to the frame, and [`overlay`] draws them. Host code and kernel of one thing lie side by side, and their results are
//! equal in every bit.

pub mod device;
pub mod frame;
pub mod geometry;
pub mod overlay;
pub mod preprocess;
pub mod transform;

use geometry::BBox;

/// One object: first in pixels of the model's input, then, mapped, in pixels of the frame.
///
/// Plain memory of seven words, as GPU kernels write it.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Detection {
    pub bbox: BBox,
    pub score: f32,
    pub class: u32,
    /// Index of the head's row it came from; breaks ties between equal scores.
    pub anchor: u32,
}
