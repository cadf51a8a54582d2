// SPDX-License-Identifier: MPL-2.0
//! The vectors of a track.

use crate::vector::normalise;

/// So many of the best ones are kept.
const BEST: usize = 5;

/// Numbers of a vector.
pub const MAX_DIMS: usize = 4096;

/// The best vectors of a track, all of one model.
#[derive(Debug, Default)]
pub struct BestLooks {
    /// Each of the length 1, with its quality.
    kept: Vec<(f32, Vec<f32>)>,
    count: u32,
}

impl BestLooks {
    /// Takes a vector in. Returns whether it is one of the best; nothing where it is none.
    pub fn add(&mut self, values: &[f32], quality: f32) -> Option<bool> {
        let mut values = values.to_vec();
        if values.len() > MAX_DIMS || !normalise(&mut values) {
            return None;
        }
        self.count = self.count.saturating_add(1);
        let quality = if quality.is_nan() { 0.0 } else { quality };
        let worst = self.kept.iter().enumerate().min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
        match worst.map(|(place, (worst, _))| (place, *worst)) {
            Some((place, worst)) if self.kept.len() >= BEST => {
                if worst >= quality {
                    return Some(false);
                }
                self.kept[place] = (quality, values);
            }
            _ => self.kept.push((quality, values)),
        }
        Some(true)
    }

    /// How many vectors there were.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The mean of the best ones, of the length 1. Where they have none, as they cancel each other, it is the best one.
    pub fn mean(&self) -> Vec<f32> {
        let Some((_, best)) = self.kept.iter().max_by(|(a, _), (b, _)| a.total_cmp(b)) else { return Vec::new() };
        let mut sum = vec![0.0; best.len()];
        for (_, values) in &self.kept {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        if normalise(&mut sum) { sum } else { best.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_vectors_have_a_mean() {
        let mut looks = BestLooks::default();
        assert!(looks.mean().is_empty());
        for _ in 0..BEST {
            assert_eq!(looks.add(&[0.0, 2.0], 1.0), Some(true));
        }
        assert_eq!(looks.mean(), [0.0, 1.0]);
        assert_eq!(looks.add(&[1.0, 0.0], 1.0), Some(false), "it is no better");
        for _ in 0..BEST {
            assert_eq!(looks.add(&[3.0, 0.0], 2.0), Some(true));
        }
        assert_eq!((looks.mean(), looks.count()), (vec![1.0, 0.0], 11));
    }

    #[test]
    fn what_is_no_vector_is_left_out() {
        let mut looks = BestLooks::default();
        for none in [&[f32::NAN, 1.0][..], &[f32::INFINITY, 0.0], &[0.0, 0.0], &[], &[1.0; MAX_DIMS + 1]] {
            assert_eq!(looks.add(none, 1.0), None);
        }
        assert_eq!(looks.count(), 0);
        assert_eq!(looks.add(&[1.0, 0.0], f32::NAN), Some(true));
        assert_eq!(looks.add(&[-1.0, 0.0], 1.0), Some(true));
        assert_eq!(looks.mean(), [-1.0, 0.0], "they cancel each other");
    }
}
