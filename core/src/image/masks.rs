// SPDX-License-Identifier: MPL-2.0
//! Masks of objects: the pixels of each object.
//!
//! A model gives prototypes, maps that all objects share, and for each object a coefficient per prototype. Its mask is
//! where the weighted sum of the prototypes is above 0, scaled to the size of the model's input by bilinear
//! interpolation, and cut to the object's box: a pixel belongs to the box if its left upper corner does. Other models
//! give a map for each row (`maps`).
//!
//! Arithmetic is f32, each operation rounded once in the order written here, and never a fused multiply-add.

mod bits;
mod mask;
mod run_lengths;
mod union;

use half::slice::HalfFloatSliceExt;

pub(crate) mod maps;

pub(crate) use bits::words;
use bits::{fill, runs};
pub use mask::Mask;

use super::Candidate;
use super::bilinear::{Between, Floats, SourceRange};
use super::detections::MaskEntry;
use super::geometry::{BBox, Letterbox, Rect};
use crate::options::choices;
use crate::tensor::Tensor;

/// The number and size of the prototypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrototypeShape {
    pub count: usize,
    pub width: usize,
    pub height: usize,
}

/// `[count][height][width]`, of the first item of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Prototypes<'a> {
    shape: PrototypeShape,
    values: Floats<'a>,
}

impl<'a> Prototypes<'a> {
    /// `None` for a tensor that is not in host memory, or does not hold so many floats.
    pub fn new(shape: PrototypeShape, tensor: &'a Tensor) -> Option<Self> {
        let values = Floats::of(tensor)?;
        let PrototypeShape { count, width, height } = shape;
        let wanted = count.checked_mul(width)?.checked_mul(height)?;
        (wanted > 0 && values.len() >= wanted).then_some(Prototypes { shape, values })
    }

    /// Adds a part of a row of one prototype, times a factor.
    fn add_row(&self, (prototype, y): (usize, usize), first: usize, factor: f32, sums: &mut [f32]) {
        const BLOCK: usize = 64;
        let start = (prototype * self.shape.height + y) * self.shape.width + first;
        let add = |sums: &mut [f32], values: &[f32]| {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
        };
        match self.values {
            Floats::Full(values) => add(sums, &values[start..start + sums.len()]),
            Floats::Half(values) => {
                let mut buffer = [0.0; BLOCK];
                let values = &values[start..start + sums.len()];
                for (sums, values) in sums.chunks_mut(BLOCK).zip(values.chunks(BLOCK)) {
                    let buffer = &mut buffer[..values.len()];
                    values.convert_to_f32_slice(buffer);
                    add(sums, buffer);
                }
            }
        }
    }
}

/// The masks of a frame's objects. They keep the resolution of the model's input, and are scaled to the frame where
/// they are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Masks {
    entries: Vec<HostMask>,
    /// The pixels of all masks: rows of whole words, the left pixel in the lowest bit.
    bits: Vec<u32>,
    /// A pixel of the model's input is as wide and high as 2 to the power of this of theirs.
    detail: u32,
    /// Whether they are only drawn.
    pub(crate) is_hidden: bool,
}

/// What results contain of masks. They are drawn in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskOutput {
    None,
    #[default]
    Objects,
    Map,
}

choices! {
    MaskOutput, "GstTrtMaskOutput":
    MaskOutput::None => "none" "Nothing: masks are only drawn"
    MaskOutput::Objects => "objects" "The mask of each object, with the object"
    MaskOutput::Map => "map" "One map of the frame, with the number of an object for each pixel"
}

/// Where a mask is, on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct HostMask {
    /// In pixels of the model's input, or of that detail.
    rect: Rect,
    /// The index of its first word.
    first: usize,
    is_empty: bool,
    /// Where the model's input lies on the frame, once that is known.
    letterbox: Option<Letterbox>,
}

impl Masks {
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bits.clear();
        self.detail = 0;
    }

    /// Appends the masks of objects with boxes in pixels of a model's input of that size. `coefficients` are those of
    /// the first object, then those of the second, and so on.
    pub fn find(&mut self, prototypes: &Prototypes, coefficients: &[f32], objects: &[Candidate], input: (u32, u32)) {
        let mut scratch = Scratch::default();
        for (object, coefficients) in objects.iter().zip(coefficients.chunks_exact(prototypes.shape.count)) {
            let (rect, ranges) = (pixels_of(&object.bbox, input), [input.0, input.1].map(SourceRange::whole));
            self.add(&mut scratch, rect, 0.0, |scratch| {
                scratch.sum(prototypes, coefficients.iter().copied().enumerate(), rect, ranges);
            });
        }
    }

    /// Appends a mask: where the sums that `sum` computes for the rectangle are above `level`.
    fn add(&mut self, scratch: &mut Scratch, rect: Rect, level: f32, sum: impl FnOnce(&mut Scratch)) {
        let first = self.bits.len();
        if !rect.is_empty() {
            self.bits.resize(first + words(rect.width()) * rect.height() as usize, 0);
            sum(scratch);
            scratch.scale(rect, level, &mut self.bits[first..]);
        }
        let is_empty = self.bits[first..].iter().all(|&word| word == 0);
        self.entries.push(HostMask { rect, first, is_empty, letterbox: None });
    }

    /// Takes over the masks that a GPU found: the rectangle of each, the index of its first word, and whether any pixel
    /// is set; and their words, if these are on the host already.
    pub(crate) fn adopt(&mut self, entries: impl Iterator<Item = (Rect, usize, bool)>, bits: &[u32], detail: u32) {
        self.detail = detail;
        let entry =
            |(rect, first, is_seen): (Rect, usize, bool)| HostMask { rect, first, is_empty: !is_seen, letterbox: None };
        self.entries.extend(entries.map(entry));
        self.bits.extend_from_slice(bits);
    }

    /// Whether the words are still missing.
    pub(crate) fn lacks_bits(&self) -> bool {
        self.bits.is_empty() && self.entries.iter().any(|entry| !entry.is_empty)
    }

    pub(crate) fn set_bits(&mut self, bits: Vec<u32>) {
        self.bits = bits;
    }

    /// In the layout of the kernels: the entries, and the words.
    pub fn for_device(&self) -> (Vec<MaskEntry>, &[u32]) {
        let entry = |mask: &HostMask| MaskEntry {
            rect: mask.rect,
            first: mask.first as u64,
            is_seen: (!mask.is_empty).into(),
            unused: 0,
        };
        (self.entries.iter().map(entry).collect(), &self.bits)
    }

    /// Calls `found` for each row and range of an object's pixels in a part of the model's input.
    pub(crate) fn runs(&self, object: usize, part: Rect, mut found: impl FnMut(u32, [u32; 2])) {
        let HostMask { rect, first, .. } = self.entries[object];
        let Some(bits) = self.bits.get(first..).filter(|_| !rect.is_empty()) else { return };
        // Finer masks are read where the middle of each of the input's pixels is.
        let (size, middle) = (1 << self.detail, (1 << self.detail) / 2);
        let first_of = |at: u32| (at + size - 1 - middle) / size;
        let rows = first_of(rect.top).max(part.top)..first_of(rect.bottom).min(part.bottom);
        for y in rows {
            let row = (y * size + middle - rect.top) as usize * words(rect.width());
            for run in runs(&bits[row..][..words(rect.width())], rect.width()) {
                let [start, end] = run.map(|at| first_of(rect.left + at).clamp(part.left, part.right));
                if start < end {
                    found(y, [start, end]);
                }
            }
        }
    }

    /// Whether no pixel belongs to the object.
    pub fn is_empty(&self, object: usize) -> bool {
        self.entries[object].is_empty
    }

    /// The mask of object `from` becomes that of object `to`.
    pub(crate) fn keep(&mut self, from: usize, to: usize) {
        self.entries[to] = self.entries[from];
    }

    /// Keeps the first `kept` masks, and sets their letterbox.
    pub fn map_to_frame(&mut self, kept: usize, letterbox: &Letterbox) {
        self.entries.truncate(kept);
        let letterbox = letterbox.finer(self.detail);
        self.entries.iter_mut().for_each(|entry| entry.letterbox = Some(letterbox));
    }

    /// The mask of an object on the frame.
    pub fn on_frame(&self, object: usize) -> Mask {
        let HostMask { rect, first, letterbox, .. } = &self.entries[object];
        let (rect, first) = (*rect, *first);
        let Some(letterbox) = letterbox else { return Mask::default() };
        let edges = |from: u32, to: u32, edge: fn(&Letterbox, u32) -> u32| -> Vec<u32> {
            (from..=to).map(|at| edge(letterbox, at)).collect()
        };
        let columns = edges(rect.left, rect.right, column_edge);
        let rows = edges(rect.top, rect.bottom, row_edge);
        // There are no words if the host did not want them.
        project(rect, self.bits.get(first..).unwrap_or_default(), &columns, &rows)
    }
}

/// The mask of which a column lies between two of `columns`, and a row between two of `rows`; without words it is empty.
fn project(rect: Rect, bits: &[u32], columns: &[u32], rows: &[u32]) -> Mask {
    let to = Rect { left: columns[0], top: rows[0], right: columns[columns.len() - 1], bottom: rows[rows.len() - 1] };
    let mut mask = Mask::new(to);
    let (stride, from_stride) = (words(to.width()), words(rect.width()));
    if bits.is_empty() {
        return mask;
    }
    for (row, edges) in rows.windows(2).enumerate() {
        let copies = (edges[0] - to.top) as usize..(edges[1] - to.top) as usize;
        if copies.is_empty() {
            continue;
        }
        let line = &mut mask.bits[copies.start * stride..copies.end * stride];
        let (line, rest) = line.split_at_mut(stride);
        for [start, end] in runs(&bits[row * from_stride..][..from_stride], rect.width()) {
            fill(line, [start, end].map(|at| columns[at as usize] - to.left));
        }
        rest.chunks_exact_mut(stride.max(1)).for_each(|copy| copy.copy_from_slice(line));
    }
    mask
}

/// The pixels of a picture of that size whose upper left corners are in a box.
fn pixels_of(bbox: &BBox, (width, height): (u32, u32)) -> Rect {
    let edge = |at: f32, size: u32| at.ceil().clamp(0.0, size as f32) as u32;
    let (x, y) = (|at| edge(at, width), |at| edge(at, height));
    let (left, top) = (x(bbox.x1), y(bbox.y1));
    Rect { left, top, right: x(bbox.x2).max(left), bottom: y(bbox.y2).max(top) }
}

/// The first column of the frame that a column of the model's input covers: the first whose centre is not left of it.
pub(crate) fn column_edge(letterbox: &Letterbox, at: u32) -> u32 {
    let inside = at.clamp(letterbox.x, letterbox.x + letterbox.width) - letterbox.x;
    edge(inside, letterbox.scale().0, letterbox.place.x1, letterbox.place.x2)
}

/// The same for rows.
pub(crate) fn row_edge(letterbox: &Letterbox, at: u32) -> u32 {
    let inside = at.clamp(letterbox.y, letterbox.y + letterbox.height) - letterbox.y;
    edge(inside, letterbox.scale().1, letterbox.place.y1, letterbox.place.y2)
}

fn edge(at: u32, scale: f32, first: f32, last: f32) -> u32 {
    let first_middle = |place: f32| (place - 0.5).ceil().max(0.0) as u32;
    first_middle(at as f32 * scale + first).clamp(first_middle(first), first_middle(last).max(first_middle(first)))
}

/// For each pixel of a line of the frame that of the masks that covers it, or `NEVER`; `edge` is one of the two above.
pub(crate) fn covering(size: u32, inside: std::ops::Range<u32>, edge: impl Fn(u32) -> u32) -> Vec<u32> {
    let mut table = vec![NEVER; size as usize];
    for at in inside {
        let [start, end] = [at, at + 1].map(|at| edge(at).min(size) as usize);
        table[start..end].fill(at);
    }
    table
}

/// In a table of [`covering`]: no mask covers that pixel.
pub(crate) const NEVER: u32 = u32::MAX;

/// Scratch memory for a mask.
#[derive(Default)]
struct Scratch {
    /// The weighted sums of each required prototype row.
    sums: Vec<f32>,
    columns: Vec<Between>,
    rows: Vec<Between>,
}

impl Scratch {
    /// Sums prototypes, each times its coefficient, where a rectangle of pixels needs them.
    fn sum(
        &mut self,
        prototypes: &Prototypes,
        coefficients: impl Iterator<Item = (usize, f32)> + Clone,
        rect: Rect,
        [across, down]: [SourceRange; 2],
    ) {
        let PrototypeShape { width, height, .. } = prototypes.shape;
        self.columns.clear();
        self.columns.extend((rect.left..rect.right).map(|at| Between::new(at, width, across)));
        self.rows.clear();
        self.rows.extend((rect.top..rect.bottom).map(|at| Between::new(at, height, down)));
        let span = |between: &[Between]| (between[0].samples[0], between[between.len() - 1].samples[1]);
        let ((left, right), (top, bottom)) = (span(&self.columns), span(&self.rows));
        let wide = right + 1 - left;
        self.sums.clear();
        self.sums.resize(wide * (bottom + 1 - top), 0.0);
        for (y, sums) in (top..).zip(self.sums.chunks_exact_mut(wide)) {
            for (prototype, coefficient) in coefficients.clone() {
                prototypes.add_row((prototype, y), left, coefficient, sums);
            }
        }
        for column in &mut self.columns {
            column.samples = column.samples.map(|at| at - left);
        }
        for row in &mut self.rows {
            row.samples = row.samples.map(|at| (at - top) * wide);
        }
    }

    /// Scales the sums to the rectangle, and sets the pixels above `level`.
    fn scale(&self, rect: Rect, level: f32, bits: &mut [u32]) {
        for (bits, row) in bits.chunks_exact_mut(words(rect.width())).zip(&self.rows) {
            let [upper, lower] = row.samples.map(|at| &self.sums[at..]);
            for (at, column) in self.columns.iter().enumerate() {
                let [left, right] = column.samples;
                let [a, b] = column.weights;
                let (above, below) = (a * upper[left] + b * upper[right], a * lower[left] + b * lower[right]);
                let value = row.weights[0] * above + row.weights[1] * below;
                bits[at / 32] |= u32::from(value > level) << (at % 32);
            }
        }
    }
}

#[cfg(test)]
mod tests;
