// SPDX-License-Identifier: MPL-2.0
//! Masks, as a tint over the picture: they are mixed with the frame. Integers only, as in the kernel.
//!
//! Each sample is mixed once, with the colour of the most important object whose mask touches it. So the order of the
//! work does not matter, and where masks overlap the picture is still visible.

use super::Target;
use super::color::Sample;
use super::paint::{blend, row};
use crate::image::frame::{FrameMut, PixelFormat, PlaneMut};
use crate::image::geometry::Rect;
use crate::image::masks::Mask;

/// Which samples of a frame are already mixed: rows of whole words, a bit for each pixel, and for each sample of chroma.
#[derive(Debug, Default)]
pub(super) struct Tint {
    pixels: Vec<u32>,
    chroma: Vec<u32>,
}

impl Tint {
    /// For a frame on which nothing is mixed yet.
    pub fn begin(&mut self, target: &Target) {
        for (bits, (width, height)) in [
            (&mut self.pixels, (target.width, target.height)),
            (&mut self.chroma, (target.width.div_ceil(2), target.height.div_ceil(2))),
        ] {
            bits.clear();
            bits.resize(width.div_ceil(u32::BITS) as usize * height as usize, 0);
        }
    }

    /// Mixes a mask in where no earlier one was: `weight` of 255 parts are its colour.
    pub fn blend(&mut self, frame: &mut FrameMut, mask: &Mask, color: &Sample, weight: u32) {
        let Target { width, height, .. } = Target::of(frame);
        let Rect { left, top, bottom, .. } = mask.rect();
        let words = |width: u32| width.div_ceil(u32::BITS) as usize;
        for y in top..bottom.min(height) {
            for run in mask.runs(y - top) {
                let [start, end] = run.map(|x| (left + x).min(width));
                let bits = &mut self.pixels[y as usize * words(width)..][..words(width)];
                take(bits, [start, end], |run| mix_pixels(frame, y, run, color, weight));
                let (y, run) = (y / 2, [start / 2, end.div_ceil(2)]);
                let words = words(width.div_ceil(2));
                if is_subsampled(frame.format) && start < end {
                    let bits = &mut self.chroma[y as usize * words..][..words];
                    take(bits, run, |run| mix_chroma(frame, y, run, color, weight));
                }
            }
        }
    }
}

/// Sets the bits from one to before another, and calls `found` for each piece of them that was not set.
fn take(bits: &mut [u32], [start, end]: [u32; 2], mut found: impl FnMut([u32; 2])) {
    let mut first = start;
    for at in start..end {
        let word = &mut bits[(at / u32::BITS) as usize];
        let bit = 1 << (at % u32::BITS);
        if *word & bit != 0 {
            if first < at {
                found([first, at]);
            }
            first = at + 1;
        }
        *word |= bit;
    }
    if first < end {
        found([first, end]);
    }
}

/// Whether a sample of chroma is that of four pixels.
pub(super) fn is_subsampled(format: PixelFormat) -> bool {
    matches!(format, PixelFormat::Nv12 | PixelFormat::P010 | PixelFormat::I420)
}

pub(super) fn mix_pixels(frame: &mut FrameMut, y: u32, run: [u32; 2], &[a, b, c, d]: &Sample, weight: u32) {
    let plane = &mut frame.planes[0];
    match frame.format {
        PixelFormat::P010 => mix_wide(plane, y, run, [a], weight),
        PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8 => mix(plane, y, run, [a], weight),
        PixelFormat::Rgb | PixelFormat::Bgr => mix(plane, y, run, [a, b, c], weight),
        PixelFormat::Rgba | PixelFormat::Bgra | PixelFormat::Rgbx | PixelFormat::Bgrx => {
            mix(plane, y, run, [a, b, c, d], weight);
        }
    }
}

pub(super) fn mix_chroma(frame: &mut FrameMut, y: u32, run: [u32; 2], &[_, u, v, _]: &Sample, weight: u32) {
    match (frame.format, &mut frame.planes[1..]) {
        (PixelFormat::P010, [plane]) => mix_wide(plane, y, run, [u, v], weight),
        (PixelFormat::Nv12, [plane]) => mix(plane, y, run, [u, v], weight),
        (PixelFormat::I420, [u_plane, v_plane]) => {
            mix(u_plane, y, run, [u], weight);
            mix(v_plane, y, run, [v], weight);
        }
        (format, planes) => unreachable!("{} has not {} planes of chroma", format.name(), planes.len()),
    }
}

fn mix<const N: usize>(plane: &mut PlaneMut, y: u32, [start, end]: [u32; 2], color: [u8; N], weight: u32) {
    for pixel in row::<N>(plane, start, y, (end - start) as usize) {
        for (sample, color) in pixel.iter_mut().zip(color) {
            *sample = blend(*sample, color, weight);
        }
    }
}

/// Samples of 16 bits, of which the upper 10 count. Colours have 8 bits.
fn mix_wide<const N: usize>(plane: &mut PlaneMut, y: u32, [start, end]: [u32; 2], color: [u8; N], weight: u32) {
    let samples = row::<2>(plane, start * N as u32, y, (end - start) as usize * N);
    for (sample, color) in samples.iter_mut().zip(color.into_iter().cycle()) {
        let (have, color) = (u32::from(u16::from_le_bytes(*sample)), u32::from(color) << 8);
        let mixed = (have * (255 - weight) + color * weight + 127) / 255;
        *sample = ((mixed & 0xFFC0) as u16).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::image::frame::Colorimetry;

    const COLORS: [Sample; 3] = [[200, 10, 90, 255], [0, 255, 128, 30], [77, 3, 250, 7]];

    /// Any mask of a rectangle of a frame, which may reach beyond it.
    fn mask() -> impl Strategy<Value = Mask> {
        let side = || (0..9u32, 1..12u32);
        (side(), side(), prop::collection::vec(0..5i64, 0..40)).prop_map(|((left, width), (top, height), lengths)| {
            let rect = Rect { left, top, right: left + width, bottom: top + height };
            let mut bits = vec![false; (width * height) as usize];
            let mut at = 0;
            for (i, length) in lengths.into_iter().enumerate() {
                let end = (at + length as usize).min(bits.len());
                bits[at..end].fill(i % 2 == 1);
                at = end;
            }
            Mask::of(rect, &bits)
        })
    }

    proptest! {
        /// Each sample is mixed with the colour of the first mask that touches it, or stays.
        #[test]
        fn samples_have_the_color_of_the_first_mask(
            format in prop::sample::select(PixelFormat::ALL.to_vec()),
            (width, height) in (1..14u32, 1..14u32),
            masks in prop::collection::vec(mask(), 0..4),
            weight in prop::sample::select(vec![0u32, 1, 128, 254, 255]),
            noise in prop::collection::vec(any::<u8>(), 97),
        ) {
            let color = Colorimetry::default();
            let target = Target { format, width, height, color };
            let before: Vec<(Vec<u8>, usize)> = format.planes(width as usize, height as usize).into_iter()
                .map(|(row, rows)| (noise.iter().copied().cycle().take((row + 3) * rows).collect(), row + 3))
                .collect();
            let mut after = before.clone();
            let planes = after.iter_mut().map(|(data, stride)| PlaneMut { data, stride: *stride }).collect();
            let (frame_width, frame_height) = (width as usize, height as usize);
            let mut frame = FrameMut { format, width: frame_width, height: frame_height, color, planes };
            let mut tint = Tint::default();
            tint.begin(&target);
            for (mask, color) in masks.iter().zip(COLORS.iter().cycle()) {
                tint.blend(&mut frame, mask, color, weight);
            }
            drop(frame);
            let paper_at = |touches: &dyn Fn(&Mask) -> bool| {
                masks.iter().zip(COLORS.iter().cycle()).find(|(mask, _)| touches(mask)).map(|(_, color)| *color)
            };
            for (plane, ((before, stride), (after, _))) in before.iter().zip(&after).enumerate() {
                // For each sample of this plane: its bytes, and which components of a colour these are.
                let (parts, half): (&[usize], bool) = match (format, plane) {
                    (PixelFormat::I420, 1) => (&[1], true),
                    (PixelFormat::I420, _) if plane == 2 => (&[2], true),
                    (PixelFormat::Nv12 | PixelFormat::P010, 1) => (&[1, 2], true),
                    _ => (&[0, 1, 2, 3], false),
                };
                let wide = format == PixelFormat::P010;
                let count = if half { parts.len() } else { format.pixel_bytes() / if wide { 2 } else { 1 } };
                let size = count * if wide { 2 } else { 1 };
                for (at, (&was, &is)) in before.iter().zip(after).enumerate() {
                    let (x, y) = ((at % stride) / size, at / stride);
                    let columns = if half { width.div_ceil(2) } else { width } as usize;
                    let (px, py) = (x as u32, y as u32);
                    let color = match half {
                        _ if x >= columns => None, // padding
                        true => paper_at(&|mask| {
                            [0, 1, 2, 3].into_iter().any(|k| {
                                let (x, y) = (px * 2 + k % 2, py * 2 + k / 2);
                                x < width && y < height && mask.contains(x, y)
                            })
                        }),
                        false => paper_at(&|mask| mask.contains(px, py)),
                    };
                    let Some(color) = color else {
                        prop_assert_eq!(was, is);
                        continue;
                    };
                    if wide {
                        let low = at - at % stride % 2;
                        let of = |data: &[u8]| u32::from(u16::from_le_bytes([data[low], data[low + 1]]));
                        let color = u32::from(color[parts[(low % stride) % size / 2]]) << 8;
                        prop_assert_eq!(of(after), ((of(before) * (255 - weight) + color * weight + 127) / 255) & 0xFFC0);
                    } else {
                        let color = u32::from(color[parts[(at % stride) % size]]);
                        prop_assert_eq!(u32::from(is), (u32::from(was) * (255 - weight) + color * weight + 127) / 255);
                    }
                }
            }
        }
    }

    #[test]
    fn an_alpha_is_a_weight() {
        let weight = |mask_alpha| crate::image::overlay::Style { mask_alpha, ..Default::default() }.mask_weight();
        assert_eq!([0.0, 0.5, 1.0, 9.0, -1.0, f32::NAN].map(weight), [0, 128, 255, 255, 0, 0]);
    }
}
