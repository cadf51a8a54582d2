// SPDX-License-Identifier: MPL-2.0
//! The best classes of a picture, found on the host: the reference implementation of `kernels/classes.cu`.

use crate::heads::Thresholds;

/// A class that the frame as a whole belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedClass {
    pub class: u32,
    /// 0..1
    pub score: f32,
}

/// By how much the sum of probabilities may differ from 1: those of f16 are rounded to 1 in 2048 each.
const TOLERANCE: f64 = 0.01;

/// What the values of a picture are taken for; numbers as in `classes.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    Probabilities = 0,
    Logits = 1,
    /// Logits, from the first values on that are no probabilities.
    ByValues = 2,
}

/// Threads that a picture has on a GPU.
pub const THREADS: usize = 256;

/// The classes of a row of probabilities that reach their threshold: the best first, and of equals the one with the lower id.
/// Values that are not finite are left out.
pub fn best(scores: &[f32], thresholds: &Thresholds, top_k: usize) -> Vec<RankedClass> {
    let ranked = (0..).zip(scores).map(|(class, &score)| RankedClass { class, score });
    let passes = |found: &RankedClass| found.score.is_finite() && found.score >= thresholds.of(found.class);
    let mut classes: Vec<RankedClass> = ranked.filter(passes).collect();
    classes.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.class.cmp(&b.class)));
    classes.truncate(top_k);
    classes
}

/// Whether values cannot be probabilities. Those that are not finite tell nothing.
pub fn are_logits(scores: &[f32]) -> bool {
    let are_shares = scores.iter().all(|score| (0.0..=1.0).contains(score));
    let are_finite = scores.iter().all(|score| score.is_finite());
    are_finite && (!are_shares || (sum(scores.iter().map(|&score| f64::from(score))) - 1.0).abs() > TOLERANCE)
}

/// Softmax, in f64; of one value alone the sigmoid, as its softmax is always 1. Values that are not finite count as nothing.
pub fn to_probabilities(scores: &mut [f32]) {
    if let [logit] = scores {
        *logit = (1.0 / (1.0 + exp(-f64::from(*logit)))) as f32;
        return;
    }
    let greatest = scores.iter().copied().filter(|score| score.is_finite()).fold(f32::NEG_INFINITY, f32::max);
    let share = |score: f32| if score.is_finite() { exp(f64::from(score) - f64::from(greatest)) } else { 0.0 };
    let sum = sum(scores.iter().map(|&score| share(score)));
    for score in scores.iter_mut().filter(|score| score.is_finite()) {
        *score = (share(*score) / sum) as f32;
    }
}

/// The sum in the order of the GPU, where each thread adds every 256th value, and the threads' sums are added by halves.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let mut sums = [0.0; THREADS];
    for (i, value) in values.enumerate() {
        sums[i % THREADS] += value;
    }
    let mut half = THREADS / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    sums[0]
}

/// e to the power of x, to within 1e-15 of it, by operations that have the same bits on a GPU, which those of libraries have
/// not: x is a number of doublings and a rest of at most half of one, whose power is a Taylor series.
fn exp(x: f64) -> f64 {
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    const FACTORS: [f64; 13] = [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    if x > 709.0 {
        return f64::INFINITY;
    }
    if x < -708.0 {
        return 0.0;
    }
    let doublings = (x * std::f64::consts::LOG2_E).round_ties_even();
    let rest = x - doublings * LN_2[0] - doublings * LN_2[1];
    let power = FACTORS.iter().fold(1.0 / 6_227_020_800.0, |sum, factor| sum * rest + factor);
    power * f64::from_bits(((doublings as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_standard_library() {
        let mut x = -708.0;
        while x < 709.0 {
            assert!((exp(x) / f64::exp(x) - 1.0).abs() < 1e-15, "{x}");
            x += 0.0973;
        }
        assert_eq!([0.0, -709.0, f64::NEG_INFINITY, 710.0].map(exp), [1.0, 0.0, 0.0, f64::INFINITY]);
        assert!(exp(f64::NAN).is_nan());
    }
}
