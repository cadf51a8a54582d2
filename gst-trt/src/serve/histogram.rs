// SPDX-License-Identifier: MPL-2.0
//! Values counted by their size, as Prometheus has histograms: buckets whose bounds never change, a sum and a count.

use serde::Serialize;

/// Seconds between a frame and its results: from a GPU's millisecond to a queue that is full.
pub const LATENCIES: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Seconds that an object is in a zone.
pub const STAYS: &[f64] = &[1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    pub sum: f64,
    pub count: u64,
    #[serde(skip)]
    bounds: &'static [f64],
    /// Values up to each bound, and above the one before.
    #[serde(skip)]
    counts: Vec<u64>,
}

impl Histogram {
    /// With the upper bounds of its buckets, in their order.
    pub fn new(bounds: &'static [f64]) -> Self {
        Histogram { sum: 0.0, count: 0, bounds, counts: vec![0; bounds.len()] }
    }

    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        if let Some(bucket) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[bucket] += 1;
        }
    }

    /// Each bound, and how many values are not above it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        self.bounds.iter().copied().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_a_bound_are_in_its_bucket() {
        let mut stays = Histogram::new(&[1.0, 5.0]);
        [0.5, 1.0, 1.5, 5.0, 7.0].into_iter().for_each(|value| stays.add(value));
        assert_eq!(stays.buckets().collect::<Vec<_>>(), [(1.0, 2), (5.0, 4)]);
        assert_eq!((stays.sum, stays.count), (15.0, 5));
    }
}
