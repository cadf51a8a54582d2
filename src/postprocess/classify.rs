// SPDX-License-Identifier: MPL-2.0
//! Classes of the whole frame: from a classifier's output to the best of them.

use crate::core::cuda::driver::{Stream, WaitHistory};
use crate::core::error::Result;
use crate::core::memory::Mapped;
use crate::core::options::choices;
use crate::core::tensor::{DType, Tensor};
use crate::heads::{Thresholds, number};

use super::suppress::device::address;

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
    /// The values of the pictures that were read last, one after another.
    scores: Vec<f32>,
    /// Values per picture.
    count: usize,
    /// Where the GPU copies outputs to.
    staging: Option<Mapped>,
    waits: WaitHistory,
}

impl Classifier {
    /// `count`: classes of the output.
    pub fn new(has_probabilities: Option<bool>, count: usize) -> Self {
        let (scores, waits) = (Vec::new(), WaitHistory::default());
        Classifier { has_probabilities, saw_logits: false, scores, count, staging: None, waits }
    }

    /// Reads outputs on the host, each the one of a picture.
    pub fn read(&mut self, outputs: &[&Tensor]) {
        let count = self.count;
        self.scores.clear();
        self.scores.extend(outputs.iter().flat_map(|output| (0..count).map(|class| number(output, class))));
    }

    /// The same in GPU memory, behind what was queued on the stream. Waits once for all of them.
    ///
    /// # Errors
    /// `Run`, where the GPU fails.
    pub fn read_on(&mut self, stream: &Stream, outputs: &[&Tensor]) -> Result<()> {
        let Some(dtype) = outputs.first().map(|output| output.desc().dtype) else {
            self.scores.clear();
            return Ok(());
        };
        let size = self.count * dtype.size();
        let all = size * outputs.len();
        let staging = match self.staging.take().filter(|staging| staging.bytes() >= all) {
            Some(staging) if staging.context() == stream.context() => staging,
            _ => Mapped::new(stream.context(), all)?,
        };
        let staging = self.staging.insert(staging);
        let queued = stream.queuing();
        let mut outputs = outputs.iter().peekable();
        let mut room = &mut staging.host_mut()[..all];
        while let Some(output) = outputs.next() {
            let from = address(output, stream.context())?;
            // Pictures of a batch are neighbours in one block, so they are one copy.
            let mut bytes = size;
            let is_neighbour = |next: &Tensor, bytes: usize| match (output.device(), next.device()) {
                (Some(block), Some(next)) => block.is_followed_by(next, bytes),
                _ => false,
            };
            while outputs.next_if(|next| is_neighbour(next, bytes)).is_some() {
                bytes += size;
            }
            let (to, rest) = room.split_at_mut(bytes);
            // SAFETY: the outputs have as many bytes. They and the staging memory stay until `queued` has ended.
            unsafe { stream.download(from, to) }?;
            room = rest;
        }
        queued.record_awaited(&self.waits)?.wait_again(&mut self.waits)?;
        let bytes = &staging.host()[..all];
        self.scores.clear();
        match dtype {
            DType::F16 => {
                let halves = bytes.as_chunks().0.iter().map(|&bytes| half::f16::from_ne_bytes(bytes).to_f32());
                self.scores.extend(halves);
            }
            // A classifier's output is one of these two.
            _ => self.scores.extend(bytes.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes))),
        }
        Ok(())
    }

    /// The classes of each picture that was read last whose probability reaches their threshold, at most `top_k`: the best first, and
    /// of equals the one with the lower id. Values that are not finite are left out.
    pub fn rank(
        &mut self,
        kind: ClassScores,
        thresholds: &Thresholds,
        top_k: usize,
        found: &mut Vec<Vec<RankedClass>>,
    ) {
        let Classifier { has_probabilities, saw_logits, scores, count, .. } = self;
        found.clear();
        for scores in scores.chunks_exact_mut((*count).max(1)) {
            if are_logits(scores, kind, *has_probabilities, saw_logits) {
                to_probabilities(scores);
            }
            let ranked = (0..).zip(&*scores).map(|(class, &score)| RankedClass { class, score });
            let mut classes: Vec<RankedClass> =
                ranked.filter(|found| found.score.is_finite() && found.score >= thresholds.of(found.class)).collect();
            classes.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.class.cmp(&b.class)));
            classes.truncate(top_k);
            found.push(classes);
        }
    }
}

/// Without settings and metadata, values are logits from the first one on that is not a probability.
fn are_logits(scores: &[f32], kind: ClassScores, has_probabilities: Option<bool>, saw_logits: &mut bool) -> bool {
    match (kind, has_probabilities) {
        (ClassScores::Probabilities, _) | (ClassScores::Auto, Some(true)) => false,
        (ClassScores::Logits, _) | (ClassScores::Auto, Some(false)) => true,
        (ClassScores::Auto, None) => {
            let sum: f64 = scores.iter().map(|&score| f64::from(score)).sum();
            let are_shares = scores.iter().all(|score| (0.0..=1.0).contains(score));
            let is_known = scores.iter().all(|score| score.is_finite());
            *saw_logits |= is_known && (!are_shares || (sum - 1.0).abs() > TOLERANCE);
            *saw_logits
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
    use crate::core::memory::DevicePool;
    use crate::core::tensor::TensorDesc;

    fn classes(
        values: &[f32],
        has_probabilities: Option<bool>,
        kind: ClassScores,
        thresholds: &Thresholds,
        top_k: usize,
    ) -> Vec<(u32, f32)> {
        let mut classifier = Classifier::new(has_probabilities, values.len());
        let tensor = Tensor::from_slice("output0", &[1, values.len() as i64], values);
        let mut found = Vec::new();
        classifier.read(&[&tensor]);
        classifier.rank(kind, thresholds, top_k, &mut found);
        found.remove(0).into_iter().map(|found| (found.class, found.score)).collect()
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
        let mut classifier = Classifier::new(None, 2);
        let pictures =
            [[0.25, 0.75], [-4.0f32, 4.0], [0.25, 0.75]].map(|values| Tensor::from_slice("o", &[1, 2], &values));
        let mut found = Vec::new();
        classifier.read(&pictures.each_ref());
        classifier.rank(ClassScores::Auto, &all(), 1, &mut found);
        let scores: Vec<f32> = found.iter().map(|classes| classes[0].score).collect();
        assert_eq!(scores[0], 0.75);
        assert!(scores[1] > 0.999);
        assert!((scores[2] - 0.622_459_3).abs() < 1e-6);
    }

    #[test]
    fn pictures_on_the_gpu_have_the_classes_of_those_on_the_host() {
        let Some(context) = crate::test::gpu() else { return };
        let stream = Stream::new(&context).unwrap();
        let values: Vec<f32> = (0..6 * 5).map(|i| (i * 7 % 11) as f32 / 4.0).collect();
        let halves: Vec<half::f16> = values.iter().map(|&value| half::f16::from_f32(value)).collect();
        let check = |dtype: DType, bytes: &[u8], host: Vec<Tensor>| {
            let mut block = DevicePool::new(&context).take(bytes.len()).unwrap();
            block.write(bytes).unwrap();
            let batch = Tensor::on_device(TensorDesc::new("output0", dtype, &[6, 5]), block);
            // Neighbours in order, others not, and the last of the block.
            let rows = [1, 2, 3, 0, 5, 4];
            let device = rows.map(|row| batch.row(row));
            let host = rows.map(|row| &host[row]);
            let found = [false, true].map(|on_gpu| {
                let (mut classifier, mut found) = (Classifier::new(None, 5), Vec::new());
                if on_gpu {
                    classifier.read_on(&stream, &device.each_ref()).unwrap();
                } else {
                    classifier.read(&host);
                }
                classifier.rank(ClassScores::Auto, &all(), 3, &mut found);
                found
            });
            assert_eq!(found[0].len(), 6);
            assert_eq!(found[0], found[1], "{dtype:?}");
        };
        let f32s = values.chunks(5).map(|row| Tensor::from_slice("output0", &[1, 5], row)).collect();
        check(DType::F32, bytemuck::cast_slice(&values), f32s);
        let f16s = halves.chunks(5).map(|row| Tensor::from_slice("output0", &[1, 5], row)).collect();
        check(DType::F16, bytemuck::cast_slice(&halves), f16s);
    }
}
