// SPDX-License-Identifier: MPL-2.0
//! The mask of one object on the frame.

use super::bits::{is_set, runs, words};
use super::{edge, project};
use crate::image::geometry::{BBox, Rect};

/// The pixels of a frame that belong to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// In pixels of the frame; none outside it belongs to the object.
    pub(super) rect: Rect,
    /// Rows of whole words, the left pixel in the lowest bit.
    pub(super) bits: Vec<u32>,
}

impl Mask {
    pub(super) fn new(rect: Rect) -> Self {
        Mask { rect, bits: vec![0; words(rect.width()) * rect.height() as usize] }
    }

    /// From a value for each pixel of the rectangle, row by row.
    #[doc(hidden)]
    pub fn of(rect: Rect, pixels: &[bool]) -> Self {
        let mut mask = Mask::new(rect);
        let (width, stride) = (rect.width() as usize, words(rect.width()));
        for at in (0..pixels.len()).filter(|&at| pixels[at]) {
            mask.bits[at / width * stride + at % width / 32] |= 1 << (at % width % 32);
        }
        mask
    }

    /// A rectangle of the frame; no pixel outside it belongs to the object.
    #[doc(hidden)]
    pub fn rect(&self) -> Rect {
        self.rect
    }

    /// The mask of a picture of size `from`, where that picture fills `place` on a frame of size `to`.
    #[doc(hidden)]
    pub fn placed(&self, from: (u32, u32), place: &BBox, to: (u32, u32)) -> Self {
        let Rect { left, top, right, bottom } = self.rect;
        let edges = |[first, last]: [u32; 2], scale: f32, place: [f32; 2], end: u32| -> Vec<u32> {
            (first..=last).map(|at| edge(at, scale, place[0], place[1]).min(end)).collect()
        };
        let columns = edges([left, right], place.width() / from.0 as f32, [place.x1, place.x2], to.0);
        let rows = edges([top, bottom], place.height() / from.1 as f32, [place.y1, place.y2], to.1);
        project(self.rect, &self.bits, &columns, &rows)
    }

    /// Whether a pixel of the frame belongs to the object.
    #[doc(hidden)]
    pub fn contains(&self, x: u32, y: u32) -> bool {
        let Rect { left, top, right, bottom } = self.rect;
        let inside = (left..right).contains(&x) && (top..bottom).contains(&y);
        inside && is_set(self.row(y - top), x - left)
    }

    /// The number of the object's pixels.
    #[doc(hidden)]
    pub fn area(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Left, top, width and height of a rectangle of the frame, and a byte for each of its pixels, row by row: 255 for
    /// those of the object, 0 for others. No pixel outside the rectangle belongs to the object.
    pub fn pixels(&self) -> ([u32; 4], Vec<u8>) {
        let Rect { left, top, .. } = self.rect;
        ([left, top, self.rect.width(), self.rect.height()], self.to_bytes())
    }

    /// The bytes alone.
    #[doc(hidden)]
    pub fn to_bytes(&self) -> Vec<u8> {
        let width = self.rect.width() as usize;
        let mut bytes = vec![0; width * self.rect.height() as usize];
        for (y, row) in bytes.chunks_exact_mut(width.max(1)).enumerate() {
            for [start, end] in self.runs(y as u32) {
                row[start as usize..end as usize].fill(255);
            }
        }
        bytes
    }

    /// Rows of whole words, the left pixel of the rectangle in the lowest bit.
    pub(crate) fn bits(&self) -> &[u32] {
        &self.bits
    }

    /// The ranges of the object's pixels in a row of the rectangle, from its left on.
    pub(crate) fn runs(&self, y: u32) -> impl Iterator<Item = [u32; 2]> {
        runs(self.row(y), self.rect.width())
    }

    /// The words of a row of the rectangle.
    pub(super) fn row(&self, y: u32) -> &[u32] {
        let stride = words(self.rect.width());
        &self.bits[y as usize * stride..][..stride]
    }
}
