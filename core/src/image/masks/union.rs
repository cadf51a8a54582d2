// SPDX-License-Identifier: MPL-2.0
//! Masks of several regions of a frame together, and masks that become one.

use super::{HostMask, Mask, Masks, fill, words};
use crate::image::geometry::{Letterbox, Rect, ResizeMode};

impl Masks {
    /// Appends those of another region of the frame.
    pub(crate) fn append(&mut self, other: &Masks) {
        let before = self.bits.len();
        self.entries.extend(other.entries.iter().map(|entry| HostMask { first: entry.first + before, ..*entry }));
        self.bits.extend_from_slice(&other.bits);
    }

    /// Keeps the masks of these objects, in this order.
    pub(crate) fn select(&mut self, objects: &[u32]) {
        self.entries = objects.iter().map(|&object| self.entries[object as usize]).collect();
    }

    /// The mask of the first of these objects becomes all pixels of the frame that belong to any of them.
    pub(crate) fn unite(&mut self, objects: &[u32]) {
        let [first, _, ..] = objects else { return };
        let all: Vec<Mask> = objects.iter().map(|&object| self.on_frame(object as usize)).collect();
        let rects = all.iter().map(|mask| mask.rect).filter(|rect| !rect.is_empty());
        let Some(rect) = rects.reduce(|a, b| Rect {
            left: a.left.min(b.left),
            top: a.top.min(b.top),
            right: a.right.max(b.right),
            bottom: a.bottom.max(b.bottom),
        }) else {
            return;
        };
        let (begin, stride) = (self.bits.len(), words(rect.width()));
        self.bits.resize(begin + stride * rect.height() as usize, 0);
        for mask in &all {
            for y in 0..mask.rect.height() {
                let row = begin + (mask.rect.top - rect.top + y) as usize * stride;
                let across = mask.rect.left.wrapping_sub(rect.left);
                mask.runs(y).for_each(|run| fill(&mut self.bits[row..][..stride], run.map(|at| at + across)));
            }
        }
        // Of the frame's own size, so that its pixels are those of the frame.
        let size = (rect.right, rect.bottom);
        let letterbox = Some(Letterbox::new(size, size, ResizeMode::Stretch));
        let is_empty = self.bits[begin..].iter().all(|&word| word == 0);
        self.entries[*first as usize] = HostMask { rect, first: begin, is_empty, letterbox };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn square()(left in 0..70u32, top in 0..20u32, side in 1..40u32, pixels in prop::collection::vec(any::<bool>(), 1600)) -> (Rect, Vec<bool>) {
            (Rect { left, top, right: left + side, bottom: top + side }, pixels[..(side * side) as usize].to_vec())
        }
    }

    proptest! {
        /// A pixel is in the union if it is in one of the masks, and other masks stay as they are.
        #[test]
        fn a_union_has_the_pixels_of_all(squares in prop::collection::vec(square(), 2..5)) {
            let size = Some(Letterbox::new((110, 60), (110, 60), ResizeMode::Stretch));
            let mut masks = Masks::default();
            let wanted: Vec<Mask> = squares.iter().map(|(rect, pixels)| Mask::of(*rect, pixels)).collect();
            for mask in &wanted {
                let is_empty = mask.area() == 0;
                masks.entries.push(HostMask { rect: mask.rect, first: masks.bits.len(), is_empty, letterbox: size });
                masks.bits.extend_from_slice(&mask.bits);
            }
            let objects: Vec<u32> = (0..squares.len() as u32 - 1).collect();
            masks.unite(&objects);
            let united = masks.on_frame(0);
            for (x, y) in (0..60).flat_map(|y| (0..110).map(move |x| (x, y))) {
                let is_in = wanted[..objects.len()].iter().any(|mask| mask.contains(x, y));
                prop_assert_eq!(united.contains(x, y), is_in, "{} {}", x, y);
            }
            let last = squares.len() - 1;
            prop_assert_eq!(&masks.on_frame(last), &wanted[last]);
            masks.select(&[last as u32, 0]);
            prop_assert_eq!(masks.on_frame(1), united);
        }
    }
}
