// SPDX-License-Identifier: MPL-2.0
//! What nobody is to see of a frame: [`HiddenArea`]s that are blurred or pixelated, and polygons that are black.
//!
//! All of it is counted in quads, 2 × 2 pixels, which 4:2:0 has a sample of chroma for. Areas and polygons are rounded
//! outwards to whole quads, in each format: so chroma never shows what luma hides.
//!
//! An area has at most [`CELLS`] cells across and down, however large it is. The mean of each cell is taken of the frame as
//! it came. Where it is pixelated, samples become the mean of their cell; where it is blurred, they lie between the means
//! of the four nearest. Nothing else is left of the picture, so there is nothing for an eye to find.
//!
//! **No sample is read again once the means are there, and each takes its value from the last area that has it.** So areas
//! may overlap, and kernels give the same bits in any order of computation. All of it is in integers.

mod host;
pub mod kernel;
mod polygons;
#[cfg(test)]
mod tests;

use bytemuck::{Pod, Zeroable};
use smallvec::SmallVec;

use super::frame::PixelFormat;
use super::geometry::{BBox, Rect};
use super::overlay::{Annotation, Sample, Target};
use super::rotated;

pub use host::hide;
pub use polygons::{PolygonList, QuadMask};

/// Cells of an area, across and down, at most: of a face, a number for each eye, and none for its parts.
pub const CELLS: u32 = 8;
/// The side of a cell in quads, at least: small areas have fewer cells.
const SMALLEST_CELL: u32 = 4;

/// How an area is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Blur,
    Pixelate,
}

/// A part of a frame that is hidden: 32 bytes, the same for the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct HiddenArea {
    /// In the frame, and not empty.
    quads: Rect,
    /// The side of a cell in quads.
    cell: u32,
    is_smooth: u32,
    unused: [u32; 2],
}

const _: () = assert!(size_of::<HiddenArea>() == 32);

impl HiddenArea {
    /// The quads of a frame of that size that a box touches; `None` where it touches none. An edge that is no number is
    /// that of the frame: rather too much is hidden than too little.
    pub fn new(bbox: BBox, effect: Effect, size: (u32, u32)) -> Option<Self> {
        let along = |from: f32, to: f32, size: u32| {
            // The greater of NaN and 0 is 0, and so for the less.
            let (from, to) = (from.max(0.0), to.min(size as f32));
            ((from / 2.0).floor() as u32, (to / 2.0).ceil() as u32)
        };
        let ((left, right), (top, bottom)) = (along(bbox.x1, bbox.x2, size.0), along(bbox.y1, bbox.y2, size.1));
        let quads = Rect { left, top, right, bottom };
        if quads.is_empty() {
            return None;
        }
        let cell = quads.width().max(quads.height()).div_ceil(CELLS).max(SMALLEST_CELL);
        Some(HiddenArea { quads, cell, is_smooth: (effect == Effect::Blur).into(), unused: [0; 2] })
    }

    /// The same of an object: of its box, what of a rotated one is beyond that, and its mask.
    pub fn of(object: &Annotation, effect: Effect, size: (u32, u32)) -> Option<Self> {
        let mask = object.mask.as_ref().map(|mask| mask.rect()).filter(|rect| !rect.is_empty()).map(BBox::from);
        let parts = [object.corners.as_ref().map(rotated::hull), mask];
        let all = parts.into_iter().flatten().fold(object.bbox, |all, part| {
            BBox::new(all.x1.min(part.x1), all.y1.min(part.y1), all.x2.max(part.x2), all.y2.max(part.y2))
        });
        HiddenArea::new(all, effect, size)
    }
}

/// What a plane is, besides where it lies.
struct PlaneShape {
    /// Samples across and down.
    width: u32,
    height: u32,
    /// Numbers of a sample.
    channels: usize,
    /// Samples of a quad across and down: 2 or 1.
    per_quad: u32,
    black: Sample,
}

impl PlaneShape {
    fn all(target: &Target) -> SmallVec<[PlaneShape; 3]> {
        let black = super::overlay::sample([0; 3], target);
        let of = |channels: usize, per_quad: u32, first: usize| {
            let mut parts = Sample::default();
            parts[..channels].copy_from_slice(&black[first..first + channels]);
            let along = |side: u32| if per_quad == 2 { side } else { side.div_ceil(2) };
            PlaneShape { width: along(target.width), height: along(target.height), channels, per_quad, black: parts }
        };
        match target.format {
            PixelFormat::Nv12 | PixelFormat::P010 => [of(1, 2, 0), of(2, 1, 1)].into_iter().collect(),
            PixelFormat::I420 => [of(1, 2, 0), of(1, 1, 1), of(1, 1, 2)].into_iter().collect(),
            packed => [of(packed.pixel_bytes(), 2, 0)].into_iter().collect(),
        }
    }

    /// The samples of a rectangle of quads that the plane has.
    fn samples(&self, quads: &Rect) -> Rect {
        let k = self.per_quad;
        Rect {
            left: quads.left * k,
            top: quads.top * k,
            right: (quads.right * k).min(self.width),
            bottom: (quads.bottom * k).min(self.height),
        }
    }
}
