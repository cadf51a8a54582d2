// SPDX-License-Identifier: MPL-2.0
//! Frames, tensors made of them, and drawing: no GStreamer, no files.
//!
//! [`preprocess`] makes the model's input of a [`frame`], by a [`transform`]; [`clip`] puts those of several frames together. [`geometry`] maps boxes
//! back to the frame, [`overlay`] draws them, and [`privacy`] hides what nobody is to see. Host code and kernel of one thing lie side by side, and their results are
//! equal in every bit.

pub mod align;
pub mod bilinear;
pub mod clip;
pub mod detections;
pub mod device;
pub mod frame;
pub mod geometry;
pub mod keypoints;
pub mod map;
pub mod masks;
pub mod motion;
pub mod options;
pub mod overlay;
pub mod preprocess;
pub mod privacy;
pub mod region_list;
pub mod rotated;
pub mod slices;
pub mod text_lines;
pub mod transform;

use std::borrow::Cow;

use geometry::BBox;
use rotated::RotatedBox;

/// One object: first in pixels of the model's input, then, mapped, in pixels of the frame.
///
/// Plain memory of eight words, as GPU kernels write it.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Candidate {
    pub bbox: BBox,
    pub score: f32,
    pub class: u32,
    /// Index of the head's row it came from: breaks ties between equal scores, and leads to the other numbers of the row.
    pub row: u32,
    /// Radians, clockwise, about the centre; 0 where boxes are upright.
    pub angle: f32,
}

const _: () = assert!(size_of::<Candidate>() == 32);

impl Candidate {
    /// Its rotated box.
    pub fn rotated(&self) -> RotatedBox {
        RotatedBox { bbox: self.bbox, angle: self.angle }
    }
}

/// Name of a class, or its number where it has none: `person`, `#7`.
pub fn label_text(labels: &[String], class: u32) -> Cow<'_, str> {
    match labels.get(class as usize) {
        Some(label) if !label.is_empty() => label.into(),
        _ => format!("#{class}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_without_a_name_are_numbers() {
        let labels = ["person".to_string(), String::new()];
        assert_eq!([0, 1, 2].map(|class| label_text(&labels, class)), ["person", "#1", "#2"]);
    }
}
