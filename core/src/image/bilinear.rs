// SPDX-License-Identifier: MPL-2.0
//! Floats of a model's output, and bilinear interpolation of them with aligned borders, as PyTorch's `align_corners=False`.
//!
//! Arithmetic is f32, each operation rounded once in the order written here, and never a fused multiply-add: first
//! along the row, then between rows.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::tensor::Tensor;

/// Floats in host memory.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    Full(&'a [f32]),
    Half(&'a [f16]),
}

impl<'a> Floats<'a> {
    /// `None` for a tensor of other elements, or in GPU memory.
    pub fn of(tensor: &'a Tensor) -> Option<Self> {
        tensor.as_slice().map(Floats::Full).or_else(|| tensor.as_slice().map(Floats::Half))
    }

    pub fn len(&self) -> usize {
        match self {
            Floats::Full(values) => values.len(),
            Floats::Half(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// So many from `start` on, as f32; `buffer` is used for f16.
    fn row<'b>(&self, start: usize, count: usize, buffer: &'b mut Vec<f32>) -> &'b [f32]
    where
        'a: 'b,
    {
        match self {
            Floats::Full(values) => &values[start..start + count],
            Floats::Half(values) => {
                buffer.resize(count, 0.0);
                values[start..start + count].convert_to_f32_slice(buffer);
                buffer
            }
        }
    }
}

/// The part of a line of pixels that samples cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceRange {
    pub origin: f32,
    pub length: f32,
}

impl SourceRange {
    /// The whole line.
    pub fn whole(length: u32) -> Self {
        SourceRange { origin: 0.0, length: length as f32 }
    }
}

/// The two samples of a line of length `from` between which a sample of another line lies, and the weights of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    pub samples: [usize; 2],
    pub weights: [f32; 2],
}

impl Between {
    pub fn new(at: u32, from: usize, over: SourceRange) -> Self {
        let place = ((at as f32 + 0.5 - over.origin) * (from as f32 / over.length) - 0.5).max(0.0);
        let first = (place as usize).min(from - 1);
        let second = place - first as f32;
        Between { samples: [first, (first + 1).min(from - 1)], weights: [1.0 - second, second] }
    }
}

/// Scales planes of floats to the size of the model's input, and gives the rows of a part of it.
pub(super) struct Scaler {
    width: usize,
    height: usize,
    /// Left and top of the part, where planes already have the size of the input.
    as_they_are: Option<[usize; 2]>,
    columns: Vec<Between>,
    rows: Vec<Between>,
}

impl Scaler {
    /// For planes of `width` x `height`, and the part from `left`, `top` to before `right`, `bottom` of an input of
    /// that size.
    pub fn new([width, height]: [usize; 2], input: (u32, u32), [left, top, right, bottom]: [u32; 4]) -> Self {
        let is_same = (width, height) == (input.0 as usize, input.1 as usize);
        Scaler {
            width,
            height,
            as_they_are: is_same.then_some([left as usize, top as usize]),
            columns: (left..right).map(|at| Between::new(at, width, SourceRange::whole(input.0))).collect(),
            rows: (top..bottom).map(|at| Between::new(at, height, SourceRange::whole(input.1))).collect(),
        }
    }

    /// Calls `take` with each row of the part, from the top, of that plane.
    pub fn scale(&self, floats: &Floats, plane: usize, mut take: impl FnMut(usize, &[f32])) {
        let start = plane * self.width * self.height;
        let mut buffer = Vec::new();
        if let Some([left, top]) = self.as_they_are {
            for y in 0..self.rows.len() {
                take(y, floats.row(start + (top + y) * self.width + left, self.columns.len(), &mut buffer));
            }
            return;
        }
        // The upper and the lower row, scaled to the width, and which these are.
        let mut scaled = [(usize::MAX, Vec::new()), (usize::MAX, Vec::new())];
        let mut mixed = vec![0.0; self.columns.len()];
        for (y, row) in self.rows.iter().enumerate() {
            if scaled[1].0 == row.samples[0] {
                scaled.swap(0, 1);
            }
            for ((is, values), wanted) in scaled.iter_mut().zip(row.samples) {
                if *is != wanted {
                    let from = floats.row(start + wanted * self.width, self.width, &mut buffer);
                    let mix = |at: &Between| at.weights[0] * from[at.samples[0]] + at.weights[1] * from[at.samples[1]];
                    values.clear();
                    values.extend(self.columns.iter().map(mix));
                    *is = wanted;
                }
            }
            let [(_, above), (_, below)] = &scaled;
            for (mixed, (above, below)) in mixed.iter_mut().zip(above.iter().zip(below)) {
                *mixed = row.weights[0] * above + row.weights[1] * below;
            }
            take(y, &mixed);
        }
    }
}
