// SPDX-License-Identifier: MPL-2.0
//! Which vectors of a gallery can be among the most similar ones, by a copy of it in bytes, which is a quarter as long.
//!
//! All others are left out, and those that remain are compared as without the copy: what is found is the same in each bit, on each
//! processor.
//!
//! # Why nothing is lost
//!
//! Let `r` be a vector of the gallery and `x` one that is looked for; `r'` and `x'` what they are in bytes, whole numbers times
//! a scale; and `|v|` the length of `v`. What rounding takes away is known exactly: `|r - r'|` and `|x - x'|`.
//!
//! ```text
//! r·x - r'·x' = (r - r')·x + r'·(x - x')
//! |r·x - r'·x'| ≤ |r - r'| |x| + |r'| |x - x'|                     (1) Cauchy-Schwarz, for both products
//! ```
//!
//! The similarity that counts is not `r·x` but `s`, its sum in f32. Each of its terms is rounded once as a product and at most
//! `n - 1` times in sums, where `n = dims / 16, rounded up, + 5` is more than there are: see [`crate::vector`]. With `u = 2^-24`
//! (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1):
//!
//! ```text
//! |s - r·x| ≤ γ |r| |x| ≤ γ (|r'| + |r - r'|) |x|,   γ = n u / (1 - n u)      (2)
//! ```
//!
//! What is computed here is computed in f32, too. The product of whole numbers is exact. Its conversion, the product of the
//! scales, and the product of both are off by less than `4 u` of `|r'·x'|`, and the last sum or difference by `u` of itself: together by
//! less than `16 u |r'| |x'|` and a small part of the bound, and `|x'| ≤ |x| + |x - x'|`. So
//!
//! ```text
//! reach = |r - r'| A + |r'| B
//! A = (1 + γ) |x|
//! B = |x - x'| + (γ + 16 u) (|x| + |x - x'|)                        (3) (1), (2) and this
//! ```
//!
//! Each of the four numbers is rounded up by `2^-16` of itself, which is more than all roundings of the bound take away. What is
//! lost where products are too small for f32 is less than `16 u |r'| |x'|` leaves over, for lengths are about 1: vectors of other lengths
//! are not looked for here.
//!
//! So `s` is between `middle - reach` and `middle + reach`. As soon as there are as many names as are wanted of which each has a vector
//! whose `middle - reach` is at least `least`, a vector whose `middle + reach` is less cannot be among them; and it cannot be the most
//! similar one of its name where that is less than `middle - reach` of another one of it. Both are strict, so that of equals the first
//! stays.

use std::ops::RangeInclusive;

use super::Likeness;
use super::dot::{self, DotMethod, Factors, ROWS, RowStep, STEP};
use super::entry::MAX_DIMS;
use crate::vector::{LANES, Lanes};

/// Galleries of fewer vectors are compared as they are: there most vectors are candidates.
const LEAST_ROWS: usize = 2048;

/// So are those of fewer numbers, which the second cache holds. `cargo bench --bench gallery` shows where the copy begins to pay.
const LEAST_NUMBERS: usize = 1 << 20;

/// With more candidates than this a vector is compared with all: one after the other they take as long.
const MOST_CANDIDATES: usize = 4096;

/// Of vectors with other lengths the bound is not known. All that trtmatch looks for have the length 1.
const LENGTHS: RangeInclusive<f64> = 0.5..=2.0;

/// `u`: half of the distance from 1 to the next f32.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// More than roundings of a bound take away.
const UP: f64 = 1.0 + 1.0 / 65536.0;

/// The vectors of a gallery, rounded to bytes.
#[derive(Debug)]
pub struct CoarseCopy {
    method: DotMethod,
    /// Steps of a block.
    steps: usize,
    /// One block after the other. Rows that are missing in the last one are 0.
    rows: Vec<RowStep>,
    /// Of each block.
    bounds: Vec<RowBounds>,
}

/// What is known of the rows of a block.
#[derive(Clone, Debug, Default)]
struct RowBounds {
    scales: [f32; ROWS],
    /// `|r - r'|`
    errors: [f32; ROWS],
    /// `|r'|`
    lengths: [f32; ROWS],
}

/// What is known of a vector that is looked for.
#[derive(Clone, Copy, Debug)]
struct VectorBounds {
    scale: f32,
    /// `A`
    of_errors: f32,
    /// `B`
    of_lengths: f32,
}

/// A vector in bytes: numbers that a scale makes what they were, but for an error.
struct RoundedVector {
    numbers: Vec<i8>,
    scale: f32,
    /// Of the vector itself.
    length: f64,
    rounded_length: f64,
    error: f64,
}

impl RoundedVector {
    fn of(values: &[f32]) -> RoundedVector {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let scale = largest / f32::from(i8::MAX);
        // The nearest whole number, at most 127; without a call for each, as `round` is where processors may lack it.
        let nearest = |value: &f32| (value / scale + 0.5f32.copysign(*value)) as i8;
        let numbers: Vec<i8> = values.iter().map(nearest).collect();
        // In f64 the square of an f32, and the product of one with a byte, are exact.
        let rounded = |number: &i8| f64::from(*number) * f64::from(scale);
        let errors = values.iter().zip(&numbers).map(|(&value, number)| f64::from(value) - rounded(number));
        RoundedVector {
            length: length(values.iter().map(|&value| f64::from(value))),
            rounded_length: length(numbers.iter().map(rounded)),
            error: length(errors),
            scale,
            numbers,
        }
    }

    fn bounds(&self) -> VectorBounds {
        let terms = (self.numbers.len().div_ceil(LANES) + LANES.ilog2() as usize + 1) as f64;
        let summing = terms * UNIT / (1.0 - terms * UNIT);
        let of_lengths = self.error + (summing + 16.0 * UNIT) * (self.length + self.error);
        VectorBounds { scale: self.scale, of_errors: up((1.0 + summing) * self.length), of_lengths: up(of_lengths) }
    }
}

fn length(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// As f32, and not less.
fn up(bound: f64) -> f32 {
    (bound * UP) as f32
}

impl RowBounds {
    /// For each row `middle` and `reach`, where its products with a vector are these.
    #[inline(always)]
    fn similarities(&self, products: &[i32; ROWS], of: VectorBounds) -> impl Iterator<Item = (f32, f32)> {
        let rows = self.scales.iter().zip(&self.errors).zip(&self.lengths);
        products.iter().zip(rows).map(move |(&product, ((scale, error), length))| {
            (product as f32 * (scale * of.scale), error * of.of_errors + length * of.of_lengths)
        })
    }
}

impl CoarseCopy {
    /// `None` where comparing without it takes less.
    pub fn of(dims: usize, vectors: &[Lanes]) -> Option<CoarseCopy> {
        let (method, rows) = (DotMethod::of_this_processor(), vectors.len() / dims.div_ceil(LANES).max(1));
        let is_large = rows >= LEAST_ROWS && rows * dims >= LEAST_NUMBERS;
        // Of more dimensions sums may be too large.
        let pays = is_large && dims <= MAX_DIMS && method.is_faster_than_floats();
        pays.then(|| CoarseCopy::with_method(method, dims, vectors))
    }

    /// A processor without the method must not look for anything in it.
    fn with_method(method: DotMethod, dims: usize, vectors: &[Lanes]) -> CoarseCopy {
        let (size, steps) = (dims.div_ceil(LANES), dims.div_ceil(STEP));
        let blocks = (vectors.len() / size).div_ceil(ROWS);
        let mut rows = vec![RowStep::default(); blocks * steps];
        let mut bounds = vec![RowBounds::default(); blocks];
        for (number, known) in vectors.chunks_exact(size).enumerate() {
            let known = RoundedVector::of(&known.as_flattened()[..dims]);
            let (block, row) = (number / ROWS, number % ROWS);
            for (step, part) in rows[block * steps..][..steps].iter_mut().zip(known.numbers.chunks(STEP)) {
                step.set(row, part);
            }
            let bounds = &mut bounds[block];
            bounds.scales[row] = known.scale;
            bounds.errors[row] = up(known.error);
            bounds.lengths[row] = up(known.rounded_length);
        }
        CoarseCopy { method, steps, rows, bounds }
    }

    /// For each vector, all of the dimensions of the gallery, the rows that can be among its `most` most similar names, in their order.
    /// `None` where these may be any. `owners` has the name of each row.
    pub fn candidates(&self, vectors: &[&[f32]], most: usize, owners: &[u32]) -> Vec<Option<Vec<u32>>> {
        let rounded = vectors.iter().map(|vector| RoundedVector::of(vector)).enumerate();
        let (places, rounded): (Vec<usize>, Vec<RoundedVector>) =
            rounded.filter(|(_, vector)| LENGTHS.contains(&vector.length)).unzip();
        let sought: Vec<SoughtVector> = rounded.iter().map(|vector| SoughtVector::new(vector.bounds())).collect();
        let numbers: Vec<Vec<i8>> = rounded.into_iter().map(|vector| vector.numbers).collect();
        let limit = (owners.len() / 8).min(MOST_CANDIDATES).max(4 * most);
        let mut search = CoarseSearch { copy: self, owners, most, limit, open: sought.len(), sought };
        match self.method {
            #[cfg(target_arch = "x86_64")]
            DotMethod::Vnni => {
                // SAFETY: the processor has the method of the copy.
                unsafe { search.scan_vnni(&Factors::for_vnni(&numbers)) }
            }
            #[cfg(target_arch = "x86_64")]
            DotMethod::Avx2 => {
                // SAFETY: as above.
                unsafe { search.scan_avx2(&Factors::for_avx2(&numbers)) }
            }
            #[cfg(target_arch = "aarch64")]
            DotMethod::Neon => {
                // SAFETY: as above.
                unsafe { search.scan_neon(&Factors::one_by_one(&numbers)) }
            }
            DotMethod::Plain => search.scan(&Factors::one_by_one(&numbers)),
        }
        let mut found = vec![None; vectors.len()];
        for (place, sought) in places.into_iter().zip(search.sought) {
            found[place] = sought.rows(owners);
        }
        found
    }
}

/// A vector that is looked for, and what has been found so far.
#[derive(Debug)]
struct SoughtVector {
    bounds: VectorBounds,
    /// The names that it is most like, by the least similarity that each has.
    best: Vec<Likeness>,
    /// The least of these, once there are as many as are wanted.
    least: f32,
    /// Rows, and the greatest similarity that each may have.
    candidates: Vec<(u32, f32)>,
    is_abandoned: bool,
}

impl SoughtVector {
    fn new(bounds: VectorBounds) -> Self {
        let (best, candidates) = (Vec::new(), Vec::new());
        SoughtVector { bounds, best, least: f32::NEG_INFINITY, candidates, is_abandoned: false }
    }

    /// Whether a row of that name and at most that similarity can be among those that are wanted.
    fn can_have(&self, name: u32, greatest: f32) -> bool {
        let mut known = self.best.iter().filter(|known| known.name == name);
        greatest >= self.least && known.all(|known| greatest >= known.similarity)
    }

    /// Leaves out rows that could have been among those that are wanted before others were seen.
    fn prune(&mut self, owners: &[u32]) {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|&(row, greatest)| self.can_have(owners[row as usize], greatest));
        self.candidates = candidates;
    }

    /// Nothing reaches that.
    fn abandon(&mut self) {
        (self.is_abandoned, self.least, self.candidates) = (true, f32::INFINITY, Vec::new());
    }

    fn rows(mut self, owners: &[u32]) -> Option<Vec<u32>> {
        self.prune(owners);
        (!self.is_abandoned).then(|| self.candidates.into_iter().map(|(row, _)| row).collect())
    }
}

/// All vectors that are looked for at a time.
struct CoarseSearch<'a> {
    copy: &'a CoarseCopy,
    owners: &'a [u32],
    most: usize,
    /// So many candidates of a vector are too many.
    limit: usize,
    /// How many vectors are not abandoned.
    open: usize,
    sought: Vec<SoughtVector>,
}

impl CoarseSearch<'_> {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn scan_vnni(&mut self, factors: &Factors<i8>) {
        let (copy, mut products) = (self.copy, vec![[0; ROWS]; self.sought.len()]);
        for (block, rows) in copy.rows.chunks_exact(copy.steps).enumerate() {
            dot::vnni(rows, factors, &mut products);
            if !self.look(block, &products) {
                break;
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn scan_avx2(&mut self, factors: &Factors<i16>) {
        let (copy, mut products) = (self.copy, vec![[0; ROWS]; self.sought.len()]);
        for (block, rows) in copy.rows.chunks_exact(copy.steps).enumerate() {
            dot::avx2(rows, factors, &mut products);
            if !self.look(block, &products) {
                break;
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon")]
    fn scan_neon(&mut self, factors: &Factors<i16>) {
        let (copy, mut products) = (self.copy, vec![[0; ROWS]; self.sought.len()]);
        for (block, rows) in copy.rows.chunks_exact(copy.steps).enumerate() {
            dot::neon(rows, factors, &mut products);
            if !self.look(block, &products) {
                break;
            }
        }
    }

    fn scan(&mut self, factors: &Factors<i16>) {
        let (copy, mut products) = (self.copy, vec![[0; ROWS]; self.sought.len()]);
        for (block, rows) in copy.rows.chunks_exact(copy.steps).enumerate() {
            dot::plain(rows, factors, &mut products);
            if !self.look(block, &products) {
                break;
            }
        }
    }

    /// Takes in the products of a block with each vector. Returns whether any is still looked for.
    #[inline(always)]
    fn look(&mut self, block: usize, products: &[[i32; ROWS]]) -> bool {
        let copy = self.copy;
        for (number, products) in products.iter().enumerate() {
            let SoughtVector { bounds: of, least, .. } = self.sought[number];
            // All rows, for that takes a few instructions.
            let similarities = copy.bounds[block].similarities(products, of);
            if similarities.fold(false, |reaches, (middle, reach)| reaches | (middle + reach >= least)) {
                self.enter(number, block, products);
            }
        }
        self.open > 0
    }

    /// Takes in the rows of a block of which at least one can be among those that a vector wants.
    #[cold]
    #[inline(never)]
    fn enter(&mut self, number: usize, block: usize, products: &[i32; ROWS]) {
        let (copy, owners, sought) = (self.copy, self.owners, &mut self.sought[number]);
        let similarities = copy.bounds[block].similarities(products, sought.bounds);
        for (row, (middle, reach)) in (block * ROWS..).zip(similarities) {
            // The last block may have fewer.
            let Some(&name) = owners.get(row) else { break };
            let greatest = middle + reach;
            if !sought.can_have(name, greatest) {
                continue;
            }
            sought.candidates.push((row as u32, greatest));
            super::enter(&mut sought.best, Likeness { name, similarity: middle - reach }, self.most);
            if let Some(last) = sought.best.get(self.most - 1) {
                sought.least = last.similarity;
            }
            if sought.candidates.len() == self.limit {
                sought.prune(owners);
                if sought.candidates.len() > self.limit / 2 {
                    sought.abandon();
                    self.open -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
