//! The image side of detection, pure: no GPU, no GStreamer, no files.
//!
//! A [`frame`] goes through [`preprocess`] as a [`recipe`] says and becomes the model's input; a [`layout`] reads the
//! model's outputs as [`Detection`]s, [`nms`] drops the repeated ones, [`geometry`] maps the rest back to the frame, and
//! [`overlay`] draws them. This is the CPU path, and the gold twin that each CUDA kernel is compared with.

pub mod frame;
pub mod geometry;
pub mod layout;
pub mod nms;
pub mod overlay;
pub mod preprocess;
pub mod recipe;

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
