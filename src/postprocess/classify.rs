// SPDX-License-Identifier: MPL-2.0
//! Classes of the whole frame: from a classifier's output to the best of them.

use crate::core::error::Result;
use crate::core::options::choices;
use crate::core::tensor::{DType, Tensor};
use crate::heads::{Thresholds, number};
use crate::model::ModelInfo;

/// A class that the frame as a whole belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedClass {
    pub class: u32,
    /// 0..1
    pub score: f32,
}

/// What a classifier's output holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassScores {
    /// From the model file: probabilities if its graph ends in a softmax or a sigmoid.
    #[default]
    Auto,
    /// Taken as they are.
    Probabilities,
    /// Converted to probabilities by a softmax; a single one by a sigmoid.
    Logits,
}

choices! {
    ClassScores, "GstTrtClassScores":
    ClassScores::Auto => "auto" "From the model file, else by the values"
    ClassScores::Probabilities => "probabilities" "Probabilities, taken as they are"
    ClassScores::Logits => "logits" "Logits, to which a softmax is applied; to one alone a sigmoid"
}

/// By how much the sum of probabilities may differ from 1: those of f16 are rounded to 1 in 2048 each.
const TOLERANCE: f64 = 0.01;

/// Reads the output of one classifier.
pub(super) struct Classifier {
    /// What the file contains about the output.
    has_probabilities: Option<bool>,
    /// Some values were not probabilities.
    saw_logits: bool,
    bytes: Vec<u8>,
    scores: Vec<f32>,
}

impl Classifier {
    pub fn new(model: &ModelInfo, output: &str) -> Self {
        let has_probabilities = model.has_probabilities(output);
        Classifier { has_probabilities, saw_logits: false, bytes: Vec::new(), scores: Vec::new() }
    }

    /// The classes of the batch's first frame whose probability reaches their threshold, at most `top_k`: the best first, and of
    /// equals the one with the lower id. Values that are not finite are left out. The tensor exists.
    ///
    /// # Errors
    /// `Run`, where the GPU fails.
    pub fn classify(
        &mut self,
        output: &Tensor,
        count: usize,
        kind: ClassScores,
        thresholds: &Thresholds,
        top_k: usize,
        classes: &mut Vec<RankedClass>,
    ) -> Result<()> {
        self.read(output, count)?;
        if self.are_logits(kind) {
            to_probabilities(&mut self.scores);
        }
        let ranked = (0..).zip(&self.scores).map(|(class, &score)| RankedClass { class, score });
        classes.clear();
        classes.extend(ranked.filter(|found| found.score.is_finite() && found.score >= thresholds.of(found.class)));
        classes.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.class.cmp(&b.class)));
        classes.truncate(top_k);
        Ok(())
    }

    /// The first frame's values, as f32.
    fn read(&mut self, output: &Tensor, count: usize) -> Result<()> {
        self.scores.clear();
        let Some(block) = output.device() else {
            self.scores.extend((0..count).map(|class| number(output, class)));
            return Ok(());
        };
        self.bytes.resize(count * output.desc().dtype.size(), 0);
        block.read_into(&mut self.bytes)?;
        match output.desc().dtype {
            DType::F16 => {
                let halves = self.bytes.as_chunks().0.iter().map(|&bytes| half::f16::from_ne_bytes(bytes).to_f32());
                self.scores.extend(halves);
            }
            // A classifier's output is one of these two.
            _ => self.scores.extend(self.bytes.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes))),
        }
        Ok(())
    }

    /// Without settings and metadata, values are logits from the first one on that is not a probability.
    fn are_logits(&mut self, kind: ClassScores) -> bool {
        match (kind, self.has_probabilities) {
            (ClassScores::Probabilities, _) | (ClassScores::Auto, Some(true)) => false,
            (ClassScores::Logits, _) | (ClassScores::Auto, Some(false)) => true,
            (ClassScores::Auto, None) => {
                let sum: f64 = self.scores.iter().map(|&score| f64::from(score)).sum();
                let are_shares = self.scores.iter().all(|score| (0.0..=1.0).contains(score));
                let is_known = self.scores.iter().all(|score| score.is_finite());
                self.saw_logits |= is_known && (!are_shares || (sum - 1.0).abs() > TOLERANCE);
                self.saw_logits
            }
        }
    }
}

/// Softmax, in f64; of one value alone the sigmoid, as its softmax is always 1. Values that are not finite count as nothing.
fn to_probabilities(scores: &mut [f32]) {
    if let [logit] = scores {
        *logit = (1.0 / (1.0 + (-f64::from(*logit)).exp())) as f32;
        return;
    }
    let greatest = scores.iter().copied().filter(|score| score.is_finite()).fold(f32::NEG_INFINITY, f32::max);
    let share = |score: f32| (f64::from(score) - f64::from(greatest)).exp();
    let sum: f64 = scores.iter().filter(|score| score.is_finite()).map(|&score| share(score)).sum();
    for score in scores.iter_mut().filter(|score| score.is_finite()) {
        *score = (share(*score) / sum) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(
        values: &[f32],
        has_probabilities: Option<bool>,
        kind: ClassScores,
        thresholds: &Thresholds,
        top_k: usize,
    ) -> Vec<(u32, f32)> {
        let mut classifier = Classifier { has_probabilities, saw_logits: false, bytes: Vec::new(), scores: Vec::new() };
        let tensor = Tensor::from_slice("output0", &[1, values.len() as i64], values);
        let mut found = Vec::new();
        classifier.classify(&tensor, values.len(), kind, thresholds, top_k, &mut found).unwrap();
        found.into_iter().map(|found| (found.class, found.score)).collect()
    }

    fn all() -> Thresholds {
        Thresholds::uniform(0.0)
    }

    #[test]
    fn the_best_come_first_and_of_equals_the_lower_id() {
        let values = [0.125, 0.25, 0.125, 0.5];
        let found = |thresholds, top_k| classes(&values, Some(true), ClassScores::Auto, &thresholds, top_k);
        assert_eq!(found(all(), 5), [(3, 0.5), (1, 0.25), (0, 0.125), (2, 0.125)]);
        assert_eq!(found(all(), 3), [(3, 0.5), (1, 0.25), (0, 0.125)]);
        assert_eq!(found(Thresholds::uniform(0.25), 5), [(3, 0.5), (1, 0.25)]);
        assert_eq!(found(Thresholds::only(&[0, 1], 0.125), 5), [(1, 0.25), (0, 0.125)]);
    }

    #[test]
    fn logits_become_probabilities() {
        let logits = [0.0f32, 2f32.ln(), f32::NEG_INFINITY, f32::NAN, 5f32.ln(), 1000.0];
        let found = classes(&logits[..5], Some(false), ClassScores::Auto, &all(), 9);
        let wanted = [(4, 0.625), (1, 0.25), (0, 0.125)];
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        assert!(found.iter().zip(wanted).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-6), "{found:?}");
        assert_eq!(classes(&logits, Some(false), ClassScores::Auto, &all(), 1), [(5, 1.0)], "nothing overflows");
        assert_eq!(classes(&[0.0], Some(false), ClassScores::Auto, &all(), 1), [(0, 0.5)], "a sigmoid");
        assert_eq!(classes(&[1.0], Some(true), ClassScores::Auto, &all(), 1), [(0, 1.0)]);
        for nothing in [&[f32::NAN][..], &[f32::NAN; 3], &[f32::INFINITY, f32::NEG_INFINITY], &[f32::NEG_INFINITY; 2]] {
            assert_eq!(classes(nothing, Some(false), ClassScores::Auto, &all(), 9), [], "{nothing:?}");
            assert_eq!(classes(nothing, Some(true), ClassScores::Auto, &all(), 9), [], "{nothing:?}");
            assert_eq!(classes(nothing, None, ClassScores::Auto, &all(), 9), [], "{nothing:?}");
        }
    }

    #[test]
    fn the_user_decides_before_the_file() {
        let values = [0.25, 0.75];
        let first = |file, kind| classes(&values, file, kind, &all(), 1)[0].1;
        assert_eq!(first(Some(false), ClassScores::Probabilities), 0.75);
        assert!((first(Some(true), ClassScores::Logits) - 0.622_459_3).abs() < 1e-6);
        assert_eq!(first(None, ClassScores::Auto), 0.75);
    }

    #[test]
    fn values_that_are_no_probabilities_once_are_logits_for_good() {
        let mut classifier =
            Classifier { has_probabilities: None, saw_logits: false, bytes: Vec::new(), scores: Vec::new() };
        let mut run = |values: &[f32]| {
            let (mut found, tensor) = (Vec::new(), Tensor::from_slice("output0", &[1, 2], values));
            classifier.classify(&tensor, 2, ClassScores::Auto, &all(), 1, &mut found).unwrap();
            found[0].score
        };
        assert_eq!(run(&[0.25, 0.75]), 0.75);
        assert!(run(&[-4.0, 4.0]) > 0.999);
        assert!((run(&[0.25, 0.75]) - 0.622_459_3).abs() < 1e-6);
    }
}
