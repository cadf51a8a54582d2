//! Bilinear resampling of one plane, row by row.

use smallvec::SmallVec;

use crate::vision::frame::{Colorimetry, Frame, PixelFormat};
use crate::vision::geometry::Letterbox;
use crate::vision::recipe::Colors;

/// `(s, c)` of the module's arithmetic: how many pixels one sample stands for, and where among them it lies.
type Siting = (u32, u32);
const FULL: Siting = (1, 1);

const fn chroma(on_first: bool) -> Siting {
    if on_first { (2, 1) } else { (2, 2) }
}

/// The two samples on either side of each position along one axis, and how much the farther one counts.
struct Axis {
    near: Vec<u32>,
    far: Vec<u32>,
    weight: Vec<f32>,
}

impl Axis {
    /// `scaled` positions over `samples` samples of an axis where the frame has `frame` pixels.
    fn new(frame: u32, scaled: u32, samples: u32, (s, c): Siting) -> Self {
        let mut axis = Axis { near: Vec::new(), far: Vec::new(), weight: Vec::new() };
        let den = 2 * s * scaled;
        for i in 0..scaled {
            let num = ((2 * i + 1) * frame).saturating_sub(c * scaled);
            let near = (num / den).min(samples - 1);
            let far = (near + 1).min(samples - 1);
            axis.near.push(near);
            axis.far.push(far);
            axis.weight.push(if near == far { 0.0 } else { (num % den) as f32 / den as f32 });
        }
        axis
    }
}

/// A row of a plane, resampled to the scaled width: one line per channel.
struct Line {
    row: u32,
    samples: Vec<f32>,
}

const NO_ROW: u32 = u32::MAX;

/// Resamples one plane.
pub(super) struct Sampler {
    plane: usize,
    /// Bytes of one pixel of the plane, and where its channels lie in it.
    pixel: usize,
    offsets: SmallVec<[usize; 3]>,
    row_bytes: usize,
    /// Byte offsets in a row.
    columns: Axis,
    rows: Axis,
    /// Pixels next to each column, as little-endian words.
    near: Vec<u32>,
    far: Vec<u32>,
    /// The rows next to the position, kept because the next position often needs one of them.
    lines: [Line; 2],
}

impl Sampler {
    /// Those that `colors` need of `format`, in the order of their channels.
    pub fn all(format: PixelFormat, color: Colorimetry, colors: Colors, letterbox: &Letterbox) -> Vec<Sampler> {
        let new = |plane, pixel, offsets: &[usize], x, y| Sampler::new(format, letterbox, plane, pixel, offsets, x, y);
        let (x, y) = (chroma(color.chroma_left), chroma(color.chroma_top));
        let luma = || new(0, 1, &[0], FULL, FULL);
        match (format, format.rgb_offsets()) {
            (_, Some(offsets)) => vec![new(0, format.pixel_bytes(), &offsets, FULL, FULL)],
            (PixelFormat::I420, _) if colors != Colors::Gray => {
                vec![luma(), new(1, 1, &[0], x, y), new(2, 1, &[0], x, y)]
            }
            (PixelFormat::Nv12, _) if colors != Colors::Gray => vec![luma(), new(1, 2, &[0, 1], x, y)],
            _ => vec![luma()],
        }
    }

    fn new(
        format: PixelFormat,
        letterbox: &Letterbox,
        plane: usize,
        pixel: usize,
        offsets: &[usize],
        x: Siting,
        y: Siting,
    ) -> Self {
        let &Letterbox { frame_width, frame_height, width, height, .. } = letterbox;
        let (row_bytes, rows) = format.planes(frame_width as usize, frame_height as usize)[plane];
        let mut columns = Axis::new(frame_width, width, (row_bytes / pixel) as u32, x);
        columns.near.iter_mut().chain(&mut columns.far).for_each(|column| *column *= pixel as u32);
        let line = || Line { row: NO_ROW, samples: vec![0.0; offsets.len() * width as usize] };
        Sampler {
            plane,
            pixel,
            offsets: offsets.into(),
            row_bytes,
            columns,
            rows: Axis::new(frame_height, height, rows as u32, y),
            near: vec![0; width as usize],
            far: vec![0; width as usize],
            lines: [line(), line()],
        }
    }

    pub fn channels(&self) -> usize {
        self.offsets.len()
    }

    /// Forgets the rows of the frame before.
    pub fn begin(&mut self) {
        self.lines.iter_mut().for_each(|line| line.row = NO_ROW);
    }

    /// Row `j` of the scaled frame into `samples`, one line per channel.
    #[inline(always)]
    pub fn sample(&mut self, frame: &Frame, j: usize, samples: &mut [f32]) {
        let (near, far, weight) = (self.rows.near[j], self.rows.far[j], self.rows.weight[j]);
        if self.lines[1].row == near {
            self.lines.swap(0, 1);
        }
        self.fill(0, frame, near);
        if weight == 0.0 {
            // The blend would be the near row again, in every bit.
            return samples.copy_from_slice(&self.lines[0].samples);
        }
        self.fill(1, frame, far);
        let [near, far] = &self.lines;
        for ((sample, &a), &b) in samples.iter_mut().zip(&near.samples).zip(&far.samples) {
            *sample = lerp(a, b, weight);
        }
    }

    /// Makes line `i` hold `row`.
    #[inline(always)]
    fn fill(&mut self, i: usize, frame: &Frame, row: u32) {
        if self.lines[i].row == row {
            return;
        }
        let plane = &frame.planes[self.plane];
        let bytes = &plane.data[row as usize * plane.stride..][..self.row_bytes];
        for (words, columns) in [(&mut self.near, &self.columns.near), (&mut self.far, &self.columns.far)] {
            match self.pixel {
                1 => gather::<1>(bytes, columns, words),
                2 => gather::<2>(bytes, columns, words),
                3 => gather::<3>(bytes, columns, words),
                _ => gather::<4>(bytes, columns, words),
            }
        }
        let line = &mut self.lines[i];
        line.row = row;
        for (samples, &offset) in line.samples.chunks_exact_mut(self.near.len()).zip(&self.offsets) {
            let channel = |word: u32| (word >> (8 * offset)) as u8 as f32;
            let pairs = self.near.iter().zip(&self.far).zip(&self.columns.weight);
            for (sample, ((&near, &far), &weight)) in samples.iter_mut().zip(pairs) {
                *sample = lerp(channel(near), channel(far), weight);
            }
        }
    }
}

#[inline(always)]
fn lerp(a: f32, b: f32, weight: f32) -> f32 {
    a + (b - a) * weight
}

/// The pixels that begin at `columns`. Apart from the arithmetic, because this loop of loads is the only one that does not
/// vectorise.
#[inline(always)]
fn gather<const PIXEL: usize>(bytes: &[u8], columns: &[u32], words: &mut [u32]) {
    for (word, &column) in words.iter_mut().zip(columns) {
        let mut pixel = [0; 4];
        pixel[..PIXEL].copy_from_slice(&bytes[column as usize..][..PIXEL]);
        *word = u32::from_le_bytes(pixel);
    }
}
