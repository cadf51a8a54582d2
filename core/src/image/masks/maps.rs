// SPDX-License-Identifier: MPL-2.0
//! Masks of models that give a map for each row.

use super::{Masks, Prototypes, Scratch, pixels_of};
use crate::image::Candidate;
use crate::image::bilinear::SourceRange;
use crate::image::geometry::Rect;

/// What a row's map covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapOver {
    /// The model's input; of logits, those above 0 belong to the object. It is not cut to the box.
    Input,
    /// The row's box; of probabilities, those above 0.5 belong to the object.
    Box,
}

/// Pixels of the longer side of masks whose maps cover the input. On a frame of full HD their edges are then within a pixel.
const FINE: u32 = 960;
/// The finest detail: maps are a quarter as wide as the input or less, and memory is for all objects.
const MAX_DETAIL: u32 = 2;

impl MapOver {
    /// The detail of masks for an input of that size: see [`Letterbox::finer`](crate::image::geometry::Letterbox::finer).
    pub(crate) fn detail(self, (width, height): (u32, u32)) -> u32 {
        match self {
            MapOver::Box => 0,
            MapOver::Input => (0..MAX_DETAIL).find(|&detail| width.max(height) << detail >= FINE).unwrap_or(MAX_DETAIL),
        }
    }
}

impl Masks {
    /// Appends the masks of objects with boxes in pixels of a model's input of that size, from the map of each one's row.
    pub fn find_maps(&mut self, over: MapOver, maps: &Prototypes, objects: &[Candidate], input: (u32, u32)) {
        let mut scratch = Scratch::default();
        self.detail = over.detail(input);
        let size = (input.0 << self.detail, input.1 << self.detail);
        for object in objects {
            let row = object.row as usize;
            let bbox = &object.bbox;
            let (rect, ranges, level) = match over {
                MapOver::Input => (maps.bounds(row, size), [size.0, size.1].map(SourceRange::whole), 0.0),
                MapOver::Box => {
                    let across = SourceRange { origin: bbox.x1, length: bbox.width() };
                    (pixels_of(bbox, size), [across, SourceRange { origin: bbox.y1, length: bbox.height() }], 0.5)
                }
            };
            self.add(&mut scratch, rect, level, |scratch| {
                scratch.sum(maps, std::iter::once((row, 1.0)), rect, ranges);
            });
        }
    }
}

impl Prototypes<'_> {
    /// A rectangle of a picture of that size outside which no pixel is above 0 once a map is scaled to it.
    fn bounds(&self, map: usize, (width, height): (u32, u32)) -> Rect {
        let shape = self.shape;
        let mut seen = Rect { left: u32::MAX, top: u32::MAX, right: 0, bottom: 0 };
        let mut row = vec![0.0; shape.width];
        for y in 0..shape.height {
            row.fill(0.0);
            self.add_row((map, y), 0, 1.0, &mut row);
            let is_above = |value: &f32| *value > 0.0;
            if let (Some(first), Some(last)) = (row.iter().position(is_above), row.iter().rposition(is_above)) {
                seen.left = seen.left.min(first as u32);
                seen.right = seen.right.max(last as u32);
                seen.top = seen.top.min(y as u32);
                seen.bottom = y as u32;
            }
        }
        if seen.left > seen.right {
            return Rect::default();
        }
        let (left, right) = reach(seen.left, seen.right, shape.width as u32, width);
        let (top, bottom) = reach(seen.top, seen.bottom, shape.height as u32, height);
        Rect { left, top, right, bottom }
    }
}

/// Pixels of a line of length `to` in which samples of a line of length `from` have a part, from one to another.
fn reach(first: u32, last: u32, from: u32, to: u32) -> (u32, u32) {
    let along = |twice: u64| (twice * u64::from(to) / (2 * u64::from(from))) as u32;
    let start = if first == 0 { 0 } else { along(2 * u64::from(first) - 1).saturating_sub(1) };
    let end = if last + 1 >= from { to } else { (along(2 * u64::from(last) + 3) + 1).min(to) };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::BBox;
    use crate::image::masks::PrototypeShape;
    use crate::tensor::Tensor;
    use proptest::prelude::*;

    fn of_row(row: u32, bbox: [f32; 4]) -> Candidate {
        let [x1, y1, x2, y2] = bbox;
        Candidate { bbox: BBox::new(x1, y1, x2, y2), score: 0.5, class: 0, row, angle: 0.0 }
    }

    proptest! {
        /// All of a map counts, whatever the box; and nothing of it lies outside the rectangle.
        #[test]
        fn maps_over_the_input_are_as_the_formula_says(
            (width, height) in (1..9usize, 1..9usize),
            values in prop::collection::vec(-2i8..3, 2 * 8 * 8),
            input in (1..20u32, 1..20u32),
        ) {
            let values: Vec<f32> = values.iter().map(|&value| value.into()).collect();
            let shape = PrototypeShape { count: 2, width, height };
            let tensor = Tensor::from_slice("masks", &[1, 2, height as i64, width as i64], &values[..2 * width * height]);
            let mut masks = Masks::default();
            masks.find_maps(MapOver::Input, &Prototypes::new(shape, &tensor).unwrap(), &[of_row(1, [0.0, 0.0, 1.0, 1.0])], input);
            let (columns, rows) = (input.0 << MAX_DETAIL, input.1 << MAX_DETAIL);
            let map = &values[width * height..];
            let along = |at: u32, from: usize, to: u32| {
                let place = ((at as f32 + 0.5) * (from as f32 / to as f32) - 0.5).max(0.0);
                (place as usize, (place as usize + 1).min(from - 1), place.fract())
            };
            let entry = masks.entries[0];
            for y in 0..rows {
                for x in 0..columns {
                    let ((x0, x1, u), (y0, y1, v)) = (along(x, width, columns), along(y, height, rows));
                    let at = |x: usize, y: usize| map[y * width + x];
                    let value = (1.0 - v) * ((1.0 - u) * at(x0, y0) + u * at(x1, y0)) + v * ((1.0 - u) * at(x0, y1) + u * at(x1, y1));
                    let is_inside = (entry.rect.left..entry.rect.right).contains(&x) && (entry.rect.top..entry.rect.bottom).contains(&y);
                    let is_set = is_inside && {
                        let stride = entry.rect.width().div_ceil(32) as usize;
                        let bits = &masks.bits[entry.first + (y - entry.rect.top) as usize * stride..];
                        bits[((x - entry.rect.left) / 32) as usize] >> ((x - entry.rect.left) % 32) & 1 == 1
                    };
                    prop_assert_eq!(is_set, value > 0.0, "{} {} of {:?}", x, y, entry);
                }
            }
        }
    }

    #[test]
    fn maps_over_boxes_are_stretched_to_them() {
        // The left half of the box, and a map of another row that is everywhere.
        let values = [1.0f32, 1.0, 1.0, 1.0, 0.9, 0.1, 0.9, 0.1];
        let tensor = Tensor::from_slice("masks", &[1, 2, 2, 2], &values);
        let maps = Prototypes::new(PrototypeShape { count: 2, width: 2, height: 2 }, &tensor).unwrap();
        let mut masks = Masks::default();
        masks.find_maps(
            MapOver::Box,
            &maps,
            &[of_row(1, [2.0, 1.0, 10.0, 4.0]), of_row(0, [-3.0, 1.0, 2.0, 2.0])],
            (16, 16),
        );
        let [half, full] = [0, 1].map(|object| masks.entries[object]);
        assert_eq!(half.rect, Rect { left: 2, top: 1, right: 10, bottom: 4 });
        assert_eq!(masks.bits[half.first..half.first + 3], [0b1111; 3]);
        assert_eq!((full.rect, masks.bits[full.first]), (Rect { left: 0, top: 1, right: 2, bottom: 2 }, 0b11));
        assert_eq!(masks.detail, 0);
    }

    #[test]
    fn small_inputs_get_fine_masks() {
        let detail = |side| MapOver::Input.detail((side, side / 2));
        assert_eq!([64, 312, 432, 504, 768, 960, 1280].map(detail), [2, 2, 2, 1, 1, 0, 0]);
    }
}
