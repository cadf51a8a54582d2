// SPDX-License-Identifier: MPL-2.0
//! Maps, as a tint over the whole picture, below masks and marks. Integers only, as in the kernel.
//!
//! A sample of chroma takes the lowest entry of the palette that its pixels have: of objects the most important, as
//! masks do.

use super::color::{Rgb, Sample, class_color, sample};
use super::tint::{is_subsampled, mix_chroma, mix_pixels};
use super::{Style, Target};
use crate::image::frame::FrameMut;
use crate::image::map::{MapKind, PixelMap};
use crate::image::masks::NEVER;

/// Of a pixel that is not drawn.
pub(super) const NOTHING: u16 = u16::MAX;

/// The colours of a map, and which of its pixels covers each of a frame.
#[derive(Clone, Debug)]
pub struct MapTint<'a> {
    /// Empty where they are only on a GPU.
    pub(super) values: &'a [u16],
    /// Of the map.
    pub(super) width: u32,
    /// For each column and row of the frame that of the map, or [`NEVER`].
    pub(super) tables: [Vec<u32>; 2],
    /// The entry of a value is `(value - first) >> shift`; beyond the palette it is not drawn.
    pub(super) first: u16,
    pub(super) shift: u16,
    pub(super) palette: Vec<Sample>,
}

impl<'a> MapTint<'a> {
    /// For such frames. `None` where nothing is drawn.
    pub fn new(map: &'a PixelMap, target: &Target) -> Option<Self> {
        let (first, shift) = match map.kind() {
            MapKind::Classes => (0, 0),
            MapKind::Depth { .. } => (0, 8),
            MapKind::Objects => (1, 0),
        };
        let palette: Vec<Sample> = match map.kind() {
            MapKind::Depth { .. } => (0..=255).map(|step| sample(ramp(step), target)).collect(),
            MapKind::Classes | MapKind::Objects => {
                let entries = map.regions().iter().map(|region| usize::from(region.id) + 1 - usize::from(first));
                let mut palette = vec![Sample::default(); entries.max()?];
                for region in map.regions() {
                    palette[usize::from(region.id - first)] = sample(class_color(region.class), target);
                }
                palette
            }
        };
        let tables = map.covering((target.width, target.height));
        (!map.values().is_empty()).then_some(MapTint {
            values: map.values(),
            width: map.width(),
            tables,
            first,
            shift,
            palette,
        })
    }

    /// The same for a map whose place and size are known, and whose values are only on a GPU.
    pub fn planned(map: &PixelMap, classes: u32, target: &Target) -> MapTint<'static> {
        let (shift, palette) = match map.kind() {
            MapKind::Depth { .. } => (8, (0..=255).map(|step| sample(ramp(step), target)).collect()),
            MapKind::Classes | MapKind::Objects => {
                (0, (0..classes).map(|class| sample(class_color(class), target)).collect())
            }
        };
        let tables = map.covering((target.width, target.height));
        MapTint { values: &[], width: map.width(), tables, first: 0, shift, palette }
    }

    /// The entries of a row of the frame.
    fn entries(&self, y: usize, entries: &mut [u16]) {
        let [columns, rows] = &self.tables;
        let row = match rows[y] {
            NEVER => return entries.fill(NOTHING),
            row => &self.values[row as usize * self.width as usize..][..self.width as usize],
        };
        for (entry, &column) in entries.iter_mut().zip(columns) {
            let value = if column == NEVER { NOTHING } else { row[column as usize] };
            let found = value.wrapping_sub(self.first) >> self.shift;
            *entry = if column != NEVER && usize::from(found) < self.palette.len() { found } else { NOTHING };
        }
    }

    /// Mixes it into a frame.
    pub fn blend(&self, frame: &mut FrameMut, style: &Style) {
        let weight = style.mask_weight();
        let mut entries = vec![NOTHING; frame.width];
        let mut chroma = vec![NOTHING; frame.width.div_ceil(2)];
        for y in 0..frame.height {
            self.entries(y, &mut entries);
            runs(&entries, |run, entry| mix_pixels(frame, y as u32, run, &self.palette[entry], weight));
            if !is_subsampled(frame.format) {
                continue;
            }
            for (lowest, pixels) in chroma.iter_mut().zip(entries.chunks(2)) {
                *lowest = pixels.iter().fold(*lowest, |lowest, &entry| lowest.min(entry));
            }
            if y % 2 == 1 || y + 1 == frame.height {
                runs(&chroma, |run, entry| mix_chroma(frame, y as u32 / 2, run, &self.palette[entry], weight));
                chroma.fill(NOTHING);
            }
        }
    }
}

/// The ranges of equal entries.
fn runs(entries: &[u16], mut found: impl FnMut([u32; 2], usize)) {
    let mut start = 0;
    for run in entries.chunk_by(|a, b| a == b) {
        let end = start + run.len() as u32;
        if run[0] != NOTHING {
            found([start, end], run[0].into());
        }
        start = end;
    }
}

/// The colours of depths: matplotlib's “inferno”, from the minimum, dark, to the maximum, bright.
fn ramp(step: u32) -> Rgb {
    const INFERNO: [Rgb; 10] = [
        [0x00, 0x00, 0x04],
        [0x1B, 0x0C, 0x41],
        [0x4A, 0x0C, 0x6B],
        [0x78, 0x1C, 0x6D],
        [0xA5, 0x2C, 0x60],
        [0xCF, 0x44, 0x46],
        [0xED, 0x69, 0x25],
        [0xFB, 0x9B, 0x06],
        [0xF7, 0xD1, 0x3D],
        [0xFC, 0xFF, 0xA4],
    ];
    let at = step * (INFERNO.len() as u32 - 1);
    let (low, part) = ((at / 255) as usize, at % 255);
    let high = (low + 1).min(INFERNO.len() - 1);
    std::array::from_fn(|i| {
        let [low, high] = [low, high].map(|at| u32::from(INFERNO[at][i]));
        ((low * (255 - part) + high * part + 127) / 255) as u8
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::image::frame::{Colorimetry, PixelFormat, PlaneMut};
    use crate::image::geometry::{BBox, Rect};
    use crate::image::map::MapRegion;
    use crate::image::masks::Mask;
    use crate::image::overlay::tint::Tint;

    #[test]
    fn depths_are_dark_to_bright() {
        assert_eq!([0, 255].map(ramp), [[0, 0, 4], [0xFC, 0xFF, 0xA4]]);
        let lumas: Vec<u32> =
            (0..=255).map(|step| ramp(step).map(u32::from)).map(|[r, g, b]| 3 * r + 6 * g + b).collect();
        assert!(lumas.is_sorted(), "{lumas:?}");
    }

    proptest! {
        /// A map of objects is drawn as their masks are, on each format.
        #[test]
        fn objects_look_like_their_masks(
            format in prop::sample::select(PixelFormat::ALL.to_vec()),
            (width, height) in (1..14u32, 1..14u32),
            values in prop::collection::vec(0..4u16, 196),
            mask_alpha in prop::sample::select(vec![0.004f32, 0.5, 1.0]),
            noise in prop::collection::vec(any::<u8>(), 97),
        ) {
            let target = Target { format, width, height, color: Colorimetry::default() };
            let style = Style { mask_alpha, ..Style::default() };
            let drawn = |draw: &dyn Fn(&mut FrameMut)| {
                let mut planes: Vec<(Vec<u8>, usize)> = format.planes(width as usize, height as usize).into_iter()
                    .map(|(row, rows)| (noise.iter().copied().cycle().take((row + 3) * rows).collect(), row + 3))
                    .collect();
                let views = planes.iter_mut().map(|(data, stride)| PlaneMut { data, stride: *stride }).collect();
                let (frame_width, frame_height) = (width as usize, height as usize);
                draw(&mut FrameMut { format, width: frame_width, height: frame_height, color: target.color, planes: views });
                planes
            };
            let values = values[..(width * height) as usize].to_vec();
            let rect = Rect { left: 0, top: 0, right: width, bottom: height };
            let masks: Vec<Mask> = (1..4)
                .map(|object| Mask::of(rect, &values.iter().map(|&value| value == object).collect::<Vec<_>>()))
                .collect();
            let region = |id: u16| MapRegion { id, class: u32::from(id) * 7, pixels: 1 };
            let map = PixelMap::of(MapKind::Objects, (width, height), values, BBox::from(rect), (1..4).map(region).collect());
            let map = map.unwrap();
            let as_masks = drawn(&|frame| {
                let mut tint = Tint::default();
                tint.begin(&target);
                for (object, mask) in (1..4).zip(&masks) {
                    tint.blend(frame, mask, &sample(class_color(object * 7), &target), style.mask_weight());
                }
            });
            let as_map = drawn(&|frame| MapTint::new(&map, &target).unwrap().blend(frame, &style));
            prop_assert_eq!(as_map, as_masks);
        }
    }
}
