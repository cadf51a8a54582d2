// SPDX-License-Identifier: MPL-2.0
//! Bilinear resampling of one plane, row by row.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use smallvec::SmallVec;

use crate::image::frame::{Colorimetry, Frame, PixelFormat};
use crate::image::geometry::Letterbox;
use crate::image::transform::{Chroma, Colors, InputTransform};

/// How the samples of an axis belong to the frame's pixels.
#[derive(Clone, Copy)]
pub(crate) enum Siting {
    /// `(s, c)` of the module's arithmetic: how many pixels a sample stands for, and where among them it lies.
    Between(u32, u32),
    /// Two pixels have one sample in common, and are interpolated as if each had its own.
    InCommon,
}

/// Along a row and down the rows, for planes with a sample for each pixel.
const FULL: [Siting; 2] = [Siting::Between(1, 1); 2];

/// The same for chroma.
fn chroma(sampling: Chroma, color: Colorimetry) -> [Siting; 2] {
    [color.chroma_left, color.chroma_top].map(|on_first| match sampling {
        Chroma::Nearest => Siting::InCommon,
        Chroma::Sited if on_first => Siting::Between(2, 1),
        Chroma::Sited => Siting::Between(2, 2),
    })
}

/// Where one axis is sampled: between `near` and the sample after it, which counts `weight`; 0 at the last.
pub(crate) struct SampleAxis {
    pub near: Vec<u32>,
    pub weight: Vec<f32>,
}

impl SampleAxis {
    /// `scaled` positions over the frame's pixels from `start` to before `end`.
    pub(super) fn new((start, end): (u32, u32), scaled: u32, siting: Siting) -> Self {
        let (s, c) = match siting {
            Siting::Between(s, c) => (s, c),
            Siting::InCommon => return SampleAxis::new((start, end), scaled, Siting::Between(1, 1)).in_pairs(),
        };
        let (den, first, last) = (2 * s * scaled, start / s, (end - 1) / s);
        let (near, weight) = (0..scaled)
            .map(|i| ((2 * i + 1) * (end - start) + 2 * start * scaled).saturating_sub(c * scaled).max(first * den))
            .map(|num| if num / den < last { (num / den, (num % den) as f32 / den as f32) } else { (last, 0.0) })
            .unzip();
        SampleAxis { near, weight }
    }

    /// The positions between pixels in samples that pairs of them have in common. Within a pair there is nothing to
    /// interpolate.
    fn in_pairs(mut self) -> Self {
        for (near, weight) in self.near.iter_mut().zip(&mut self.weight) {
            if near.is_multiple_of(2) {
                *weight = 0.0;
            }
            *near /= 2;
        }
        self
    }

    /// The same positions for a row of `samples` pixels of `pixel` bytes, whose pairs must lie in the row: at the last pixel
    /// the pair begins one pixel before and its second counts all, which is equal in every bit as differences of
    /// samples are exact.
    fn in_bytes(mut self, samples: u32, pixel: u32) -> Self {
        for (near, weight) in self.near.iter_mut().zip(&mut self.weight) {
            if *near > 0 && *near == samples - 1 {
                (*near, *weight) = (*near - 1, 1.0);
            }
            *near *= pixel;
        }
        self
    }
}

/// Two neighbouring pixels of a row, of `PIXEL` bytes each, in words that vectorise.
trait Pair<const PIXEL: usize>: Pod {
    /// From 2 × `PIXEL` bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Sample `i` of either pixel.
    fn samples(self, i: usize) -> (f32, f32);
}

impl Pair<1> for u16 {
    #[inline(always)]
    fn read(bytes: &[u8]) -> Self {
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    #[inline(always)]
    fn samples(self, _: usize) -> (f32, f32) {
        (byte(self), byte(self >> 8))
    }
}

impl Pair<2> for u32 {
    #[inline(always)]
    fn read(bytes: &[u8]) -> Self {
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    #[inline(always)]
    fn samples(self, i: usize) -> (f32, f32) {
        (byte((self >> (8 * i)) as u16), byte((self >> (8 * i + 16)) as u16))
    }
}

/// Pixels of 3 or 4 bytes: a word each.
impl<const PIXEL: usize> Pair<PIXEL> for [u32; 2] {
    #[inline(always)]
    fn read(bytes: &[u8]) -> Self {
        // Whole words that overlap; a load of three bytes would be two.
        let word = |at| <u32 as Pair<2>>::read(&bytes[at..]);
        [word(0), word(2 * PIXEL - 4) >> (8 * (4 - PIXEL))]
    }

    #[inline(always)]
    fn samples(self, i: usize) -> (f32, f32) {
        (byte((self[0] >> (8 * i)) as u16), byte((self[1] >> (8 * i)) as u16))
    }
}

/// Pixels of one sample of 16 bits.
impl Pair<2> for [u16; 2] {
    #[inline(always)]
    fn read(bytes: &[u8]) -> Self {
        [0, 2].map(|at| <u16 as Pair<1>>::read(&bytes[at..]))
    }

    #[inline(always)]
    fn samples(self, _: usize) -> (f32, f32) {
        (wide(self[0]), wide(self[1]))
    }
}

/// Pixels of two samples of 16 bits.
impl Pair<4> for [u16; 4] {
    #[inline(always)]
    fn read(bytes: &[u8]) -> Self {
        [0, 2, 4, 6].map(|at| <u16 as Pair<1>>::read(&bytes[at..]))
    }

    #[inline(always)]
    fn samples(self, i: usize) -> (f32, f32) {
        (wide(self[i]), wide(self[2 + i]))
    }
}

/// The lower byte as a sample.
#[inline(always)]
fn byte(word: u16) -> f32 {
    f32::from(word as u8)
}

/// A word of P010 as a sample.
#[inline(always)]
fn wide(word: u16) -> f32 {
    f32::from(word) * (1.0 / 256.0)
}

/// A plane that is read.
pub(crate) struct SampledPlane {
    pub plane: usize,
    pub row_bytes: usize,
    pub rows: usize,
    /// Bytes of one pixel of the plane and of one of its samples, and which samples are its channels.
    pub pixel: usize,
    pub sample: usize,
    pub offsets: SmallVec<[usize; 3]>,
    /// Along a row and down the rows.
    pub sitings: [Siting; 2],
}

impl SampledPlane {
    /// Those that the transform's colours need of frames of `format` and `size`, in the order of their channels.
    pub fn all(
        format: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        transform: &InputTransform,
    ) -> SmallVec<[SampledPlane; 3]> {
        let colors = transform.colors;
        let planes = format.planes(size.0, size.1);
        let sample = if format == PixelFormat::P010 { 2 } else { 1 };
        let new = |plane: usize, count: usize, offsets: &[usize], sitings| {
            let (row_bytes, rows) = planes[plane];
            SampledPlane { plane, row_bytes, rows, pixel: count * sample, sample, offsets: offsets.into(), sitings }
        };
        let (luma, chroma) = (|| new(0, 1, &[0], FULL), chroma(transform.chroma, color));
        match (format, format.rgb_offsets()) {
            (_, Some(offsets)) => [new(0, format.pixel_bytes(), &offsets, FULL)].into_iter().collect(),
            (PixelFormat::I420, _) if colors != Colors::Gray => {
                [luma(), new(1, 1, &[0], chroma), new(2, 1, &[0], chroma)].into_iter().collect()
            }
            (PixelFormat::Nv12 | PixelFormat::P010, _) if colors != Colors::Gray => {
                [luma(), new(1, 2, &[0, 1], chroma)].into_iter().collect()
            }
            _ => [luma()].into_iter().collect(),
        }
    }
}

/// What the columns need of one row of a plane: a [`Pair`] each, in memory that fits the widest.
struct SampleRow {
    index: u32,
    pairs: Vec<u64>,
}

const NO_ROW: u32 = u32::MAX;

/// Resamples one plane.
pub(crate) struct Sampler {
    pub plane: usize,
    /// Bytes of one pixel of the plane and of one of its samples, and which samples are its channels.
    pub pixel: usize,
    pub sample: usize,
    pub offsets: SmallVec<[usize; 3]>,
    pub row_bytes: usize,
    pub plane_rows: usize,
    /// Indices are bytes.
    pub columns: SampleAxis,
    pub rows: SampleAxis,
    /// The rows next to the position, kept because the next position often needs one of them.
    around: [SampleRow; 2],
}

impl Sampler {
    pub fn new(layout: SampledPlane, letterbox: &Letterbox) -> Self {
        let &Letterbox { source, width, height, .. } = letterbox;
        let SampledPlane { plane, row_bytes, rows, pixel, sample, offsets, sitings: [x, y] } = layout;
        let samples = (row_bytes / pixel) as u32;
        let columns = SampleAxis::new((source.left, source.right), width, x).in_bytes(samples, pixel as u32);
        let row = || SampleRow { index: NO_ROW, pairs: vec![0; width as usize] };
        Sampler {
            plane,
            pixel,
            sample,
            offsets,
            row_bytes,
            plane_rows: rows,
            columns,
            rows: SampleAxis::new((source.top, source.bottom), height, y),
            around: [row(), row()],
        }
    }

    pub fn channels(&self) -> usize {
        self.offsets.len()
    }

    /// Forgets the rows of the frame before.
    pub fn begin(&mut self) {
        self.around.iter_mut().for_each(|row| row.index = NO_ROW);
    }

    /// Row `j` of the scaled frame into `samples`, one line per channel.
    #[inline(always)]
    pub fn sample(&mut self, frame: &Frame, j: usize, samples: &mut [f32]) {
        match (self.pixel, self.sample) {
            (2, 2) => self.sample_pairs::<[u16; 2], 2>(frame, j, samples),
            (4, 2) => self.sample_pairs::<[u16; 4], 4>(frame, j, samples),
            (1, _) => self.sample_pairs::<u16, 1>(frame, j, samples),
            (2, _) => self.sample_pairs::<u32, 2>(frame, j, samples),
            (3, _) => self.sample_pairs::<[u32; 2], 3>(frame, j, samples),
            _ => self.sample_pairs::<[u32; 2], 4>(frame, j, samples),
        }
    }

    #[inline(always)]
    fn sample_pairs<P: Pair<PIXEL>, const PIXEL: usize>(&mut self, frame: &Frame, j: usize, samples: &mut [f32]) {
        let plane = &frame.planes[self.plane];
        let (near, down) = (self.rows.near[j], self.rows.weight[j]);
        if self.around[1].index == near {
            self.around.swap(0, 1);
        }
        // A far row without weight is not read; below the last there is none.
        let wanted = if down == 0.0 { 1 } else { 2 };
        for (row, index) in self.around.iter_mut().zip(near..).take(wanted).filter(|(row, index)| row.index != *index) {
            let bytes = &plane.data[index as usize * plane.stride..][..self.row_bytes];
            gather::<P, PIXEL>(bytes, &self.columns.near, cast_slice_mut(&mut row.pairs));
            row.index = index;
        }
        let width = self.columns.near.len();
        let [near, far] = self.around.each_ref().map(|row| &cast_slice::<u64, P>(&row.pairs)[..width]);
        for (line, &offset) in samples.chunks_exact_mut(width).zip(&self.offsets) {
            let along = |pair: P, weight: f32| {
                let (near, far) = pair.samples(offset);
                lerp(near, far, weight)
            };
            let columns = line.iter_mut().zip(&self.columns.weight).zip(near);
            if down == 0.0 {
                columns.for_each(|((sample, &across), &near)| *sample = along(near, across));
            } else {
                for (((sample, &across), &near), &far) in columns.zip(far) {
                    *sample = lerp(along(near, across), along(far, across), down);
                }
            }
        }
    }
}

#[inline(always)]
pub(super) fn lerp(a: f32, b: f32, weight: f32) -> f32 {
    a + (b - a) * weight
}

/// The pairs that begin at `columns`. Apart from the arithmetic, because this loop of loads does not vectorise.
#[inline(always)]
fn gather<P: Pair<PIXEL>, const PIXEL: usize>(row: &[u8], columns: &[u32], pairs: &mut [P]) {
    if let Ok(pixel) = <[u8; PIXEL]>::try_from(row) {
        // No pair lies in a row of one pixel: it is its own neighbour.
        return pairs.fill(P::read([pixel, pixel].as_flattened()));
    }
    // Checked once for all columns; a check at each load makes the whole frame take a quarter longer.
    let last = columns.iter().fold(0, |last, &column| column.max(last));
    assert!(last as usize + 2 * PIXEL <= row.len());
    for (pair, &column) in pairs.iter_mut().zip(columns) {
        // SAFETY: no column is greater than the greatest, from which a pair of pixels lies in the row.
        *pair = P::read(unsafe { row.get_unchecked(column as usize..column as usize + 2 * PIXEL) });
    }
}
