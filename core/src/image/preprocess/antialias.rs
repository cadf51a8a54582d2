// SPDX-License-Identifier: MPL-2.0
//! Antialiased bilinear resampling of one plane, row by row: each element is a weighted mean of all samples that it
//! stands for.
//!
//! Weights are those of Pillow's `BILINEAR`, which torchvision's `Resize` calls: a triangle about the position, as wide
//! as the frame is shrunk. They are computed once, in `f64`, for the frame's pixels; those of chroma are the sums over
//! the pixels that share a sample, or are interpolated from it, so that this equals the same filter over the frame in RGB.

use smallvec::SmallVec;

use super::sampler::{SampleAxis, SampledPlane, Siting};
use crate::image::frame::Frame;
use crate::image::geometry::Letterbox;

/// The samples that each position of an axis is made of.
pub(crate) struct TapAxis {
    /// The first sample of each.
    pub first: Vec<u32>,
    /// Where its weights begin, and behind the last where they end.
    pub start: Vec<u32>,
    pub weights: Vec<f32>,
}

impl TapAxis {
    /// `count` positions from `offset` on, of `scaled` over the frame's pixels from `start` to before `end`.
    fn new((start, end): (u32, u32), scaled: u32, (offset, count): (u32, u32), siting: Siting) -> Self {
        let pixels = end - start;
        // Of which samples each pixel is made.
        let own = SampleAxis::new((start, end), pixels, siting);
        let scale = f64::from(pixels) / f64::from(scaled);
        let reach = scale.max(1.0);
        let mut axis = TapAxis { first: Vec::new(), start: vec![0], weights: Vec::new() };
        let mut taps: Vec<f64> = Vec::new();
        for i in offset..offset + count {
            let center = (f64::from(i) + 0.5) * scale;
            // The casts take what is below 0 to 0.
            let low = ((center - reach + 0.5) as u32).min(pixels - 1);
            let high = ((center + reach + 0.5) as u32).min(pixels).max(low + 1);
            let triangle = |pixel: u32| (1.0 - ((f64::from(pixel) - center + 0.5) / reach).abs()).max(0.0);
            let sum: f64 = (low..high).map(triangle).sum();
            let first = own.near[low as usize];
            taps.clear();
            for pixel in low..high {
                let weight = triangle(pixel) / sum;
                let (near, share) = (own.near[pixel as usize] - first, f64::from(own.weight[pixel as usize]));
                let far = if share > 0.0 { near + 1 } else { near };
                taps.resize(taps.len().max(far as usize + 1), 0.0);
                taps[near as usize] += weight * (1.0 - share);
                taps[far as usize] += weight * share;
            }
            axis.first.push(first);
            axis.weights.extend(taps.iter().map(|&weight| weight as f32));
            axis.start.push(axis.weights.len() as u32);
        }
        axis
    }

    /// The first sample of a position, and the weights of that and the next ones.
    #[inline(always)]
    fn taps(&self, i: usize) -> (usize, &[f32]) {
        (self.first[i] as usize, &self.weights[self.start[i] as usize..self.start[i + 1] as usize])
    }

    /// Maximum number of weights of a position.
    #[cfg(test)]
    pub fn longest(&self) -> usize {
        (0..self.first.len()).map(|i| self.taps(i).1.len()).max().unwrap_or(0)
    }

    /// The first sample of all, and the one behind the last.
    pub fn span(&self) -> (usize, usize) {
        let all = || (0..self.first.len()).map(|i| self.taps(i));
        let begin = all().map(|(first, _)| first).min().unwrap_or(0);
        (begin, all().map(|(first, weights)| first + weights.len()).max().unwrap_or(0))
    }
}

/// Resamples one plane.
pub(crate) struct AntialiasSampler {
    plane: usize,
    /// Bytes of one pixel of the plane and of one of its samples, and which samples are its channels.
    pub pixel: usize,
    pub sample: usize,
    pub offsets: SmallVec<[usize; 3]>,
    pub row_bytes: usize,
    /// Indices are pixels of the plane.
    pub columns: TapAxis,
    pub rows: TapAxis,
    /// The pixels of a row that are read: the first, and the one behind the last.
    span: (usize, usize),
    /// Their samples, each the weighted sum of those in its column.
    sums: Vec<f32>,
}

impl AntialiasSampler {
    pub fn new(layout: SampledPlane, letterbox: &Letterbox) -> Self {
        let SampledPlane { plane, row_bytes, pixel, sample, offsets, sitings: [x, y], .. } = layout;
        let &Letterbox { source, width, height, whole, .. } = letterbox;
        let (left, top) = letterbox.crop_offset();
        let columns = TapAxis::new((source.left, source.right), whole.0, (left, width), x);
        let rows = TapAxis::new((source.top, source.bottom), whole.1, (top, height), y);
        let span = columns.span();
        let sums = vec![0.0; (span.1 - span.0) * (pixel / sample)];
        AntialiasSampler { plane, pixel, sample, offsets, row_bytes, columns, rows, span, sums }
    }

    pub fn channels(&self) -> usize {
        self.offsets.len()
    }

    /// Row `j` of the tensor into `samples`, one line per channel.
    #[inline(always)]
    pub fn sample(&mut self, frame: &Frame, j: usize, samples: &mut [f32]) {
        let plane = &frame.planes[self.plane];
        let (first, weights) = self.rows.taps(j);
        for (row, &weight) in (first..).zip(weights) {
            let bytes = &plane.data[row * plane.stride..][self.span.0 * self.pixel..self.span.1 * self.pixel];
            let is_first = row == first;
            if self.sample == 2 {
                let words = bytes.as_chunks().0.iter().map(|&word| f32::from(u16::from_le_bytes(word)) * (1.0 / 256.0));
                add(&mut self.sums, words, weight, is_first);
            } else {
                add(&mut self.sums, bytes.iter().map(|&byte| f32::from(byte)), weight, is_first);
            }
        }
        let stride = self.pixel / self.sample;
        let width = self.columns.first.len();
        for (line, &offset) in samples.chunks_exact_mut(width).zip(&self.offsets) {
            for (i, element) in line.iter_mut().enumerate() {
                let (first, weights) = self.columns.taps(i);
                let sums = &self.sums[(first - self.span.0) * stride + offset..];
                let products = sums.iter().step_by(stride).zip(weights).map(|(sum, weight)| sum * weight);
                *element = products.reduce(|total, product| total + product).unwrap_or(0.0);
            }
        }
    }
}

/// Adds a row to the sums, or begins them with it.
#[inline(always)]
fn add(sums: &mut [f32], samples: impl Iterator<Item = f32>, weight: f32, is_first: bool) {
    let pairs = sums.iter_mut().zip(samples);
    if is_first {
        pairs.for_each(|(sum, sample)| *sum = sample * weight);
    } else {
        pairs.for_each(|(sum, sample)| *sum += sample * weight);
    }
}
