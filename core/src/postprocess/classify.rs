// SPDX-License-Identifier: MPL-2.0
//! Classes of the whole frame: from a classifier's output to the best of them.

mod device;
mod host;

use crate::cuda::driver::Stream;
use crate::error::Result;
use crate::heads::{Thresholds, number};
use crate::options::choices;
use crate::tensor::Tensor;
use device::DeviceClassFinder;
pub use host::RankedClass;
use host::{RowKind, best};
pub(super) use host::{are_logits, to_probabilities};

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

/// Which classes of a picture are given.
pub(super) struct ClassSelection<'a> {
    pub scores: ClassScores,
    pub thresholds: &'a Thresholds,
    /// The maximum number of classes of a picture.
    pub top_k: usize,
}

/// Reads the outputs of one classifier, each the one of a picture.
///
/// Of each picture it gives the classes whose probability reaches their threshold: the best first, and of equals the one
/// with the lower id. Values that are not finite are left out.
pub(super) struct Classifier {
    /// What the file contains about the output.
    has_probabilities: Option<bool>,
    /// Some values were not probabilities.
    saw_logits: bool,
    /// Values per picture.
    count: usize,
    /// Pictures with a value that is not finite, since this was last asked for.
    not_finite: usize,
    /// The values of a picture on the host.
    scores: Vec<f32>,
    device: Option<DeviceClassFinder>,
}

impl Classifier {
    /// `count`: classes of the output.
    pub fn new(has_probabilities: Option<bool>, count: usize) -> Self {
        Classifier { has_probabilities, saw_logits: false, count, not_finite: 0, scores: Vec::new(), device: None }
    }

    /// Of outputs on the host.
    pub fn find(&mut self, outputs: &[&Tensor], selection: &ClassSelection, found: &mut Vec<Vec<RankedClass>>) {
        found.clear();
        for output in outputs {
            let kind = self.kind(selection.scores);
            self.scores.clear();
            self.scores.extend((0..self.count).map(|class| number(output, class)));
            let scores = &mut self.scores[..];
            self.not_finite += usize::from(!scores.iter().all(|score| score.is_finite()));
            self.saw_logits |= kind == RowKind::ByValues && are_logits(scores);
            if kind == RowKind::Logits || (kind == RowKind::ByValues && self.saw_logits) {
                to_probabilities(scores);
            }
            found.push(best(scores, selection.thresholds, selection.top_k));
        }
    }

    /// Of outputs in GPU memory, behind what was queued on the stream. Waits once for all of them.
    ///
    /// # Errors
    /// As [`DeviceClassFinder::find`].
    pub fn find_on(
        &mut self,
        stream: &Stream,
        outputs: &[&Tensor],
        selection: &ClassSelection,
        found: &mut Vec<Vec<RankedClass>>,
    ) -> Result<()> {
        found.clear();
        let kind = self.kind(selection.scores);
        let device = match &mut self.device {
            Some(device) if device.context() == stream.context() => device,
            other => other.insert(DeviceClassFinder::new(stream.context(), self.count)?),
        };
        let seen = device.find(stream, outputs, kind, selection.thresholds, selection.top_k, found)?;
        self.saw_logits |= seen.logits;
        self.not_finite += seen.not_finite;
        Ok(())
    }

    /// In how many pictures a value was not finite, since this was last asked for.
    pub fn take_not_finite(&mut self) -> usize {
        std::mem::take(&mut self.not_finite)
    }

    fn kind(&self, scores: ClassScores) -> RowKind {
        match (scores, self.has_probabilities) {
            (ClassScores::Probabilities, _) | (ClassScores::Auto, Some(true)) => RowKind::Probabilities,
            (ClassScores::Logits, _) | (ClassScores::Auto, Some(false)) => RowKind::Logits,
            (ClassScores::Auto, None) if self.saw_logits => RowKind::Logits,
            (ClassScores::Auto, None) => RowKind::ByValues,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DevicePool;
    use crate::tensor::{DType, TensorDesc};

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
        classifier.find(&[&tensor], &ClassSelection { scores: kind, thresholds, top_k }, &mut found);
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
        let expected = [(4, 0.625), (1, 0.25), (0, 0.125)];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-6), "{found:?}");
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
        let selection = ClassSelection { scores: ClassScores::Auto, thresholds: &all(), top_k: 1 };
        classifier.find(&pictures.each_ref(), &selection, &mut found);
        let scores: Vec<f32> = found.iter().map(|classes| classes[0].score).collect();
        assert_eq!(scores[0], 0.75);
        assert!(scores[1] > 0.999);
        assert!((scores[2] - 0.622_459_3).abs() < 1e-6);
        // Pictures of values that may be probabilities do not make it forget, in this call and in later ones.
        for _ in 0..2 {
            classifier.find(&[&pictures[0]; 3], &selection, &mut found);
            assert!(found.iter().all(|classes| (classes[0].score - 0.622_459_3).abs() < 1e-6), "{found:?}");
        }
    }

    #[test]
    fn pictures_on_the_gpu_have_the_classes_of_those_on_the_host() {
        let Some(context) = crate::test::gpu() else { return };
        let stream = Stream::new(&context).unwrap();
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let thresholds =
            [all(), Thresholds::uniform(0.125), Thresholds::only(&[0, 2, 300], 0.001), Thresholds::uniform(1.0)];
        let unusual = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 1.0, 1e-40, -60000.0, f32::MAX];
        for count in [1, 2, 5, 256, 257, 1000, 3001] {
            // Probabilities, then equal ones, logits, probabilities again, logits far apart, few of a kind, unusual ones.
            let mut values = Vec::new();
            for row in 0..7 {
                let shares: Vec<f32> = (0..count).map(|_| random()).collect();
                let sum: f32 = shares.iter().sum();
                values.extend(shares.iter().enumerate().map(|(i, share)| match row {
                    0 | 3 => share / sum,
                    1 => 1.0 / count as f32,
                    2 => share * 16.0 - 8.0,
                    4 => share * 4000.0 - 2000.0,
                    5 => (share * 4.0).floor(),
                    _ if i % 3 == 0 => unusual[i / 3 % unusual.len()],
                    _ => *share,
                }));
            }
            let halves: Vec<half::f16> = values.iter().map(|&value| half::f16::from_f32(value)).collect();
            let check = |dtype: DType, bytes: &[u8], host: Vec<Tensor>| {
                let mut block = DevicePool::new(&context).take(bytes.len()).unwrap();
                block.write(bytes).unwrap();
                let batch = Tensor::on_device(TensorDesc::new("output0", dtype, &[7, count as i64]), block);
                let device: Vec<Tensor> = (0..7).map(|row| batch.row(row)).collect();
                let kinds = [None, Some(true), Some(false)].map(|file| (file, ClassScores::Auto));
                for ((file, scores), top_k, thresholds) in kinds
                    .into_iter()
                    .chain([(None, ClassScores::Logits)])
                    .flat_map(|kind| [0, 5, 40].map(|top_k| (kind, top_k)))
                    .flat_map(|(kind, top_k)| thresholds.iter().map(move |of| (kind, top_k, of)))
                {
                    let selection = ClassSelection { scores, thresholds, top_k };
                    let mut classifiers = [false, true].map(|_| Classifier::new(file, count));
                    // Rows in another order, then each by itself: what was seen stays.
                    for rows in [&[3, 0, 1][..], &[2, 1, 0, 6], &[4], &[5], &[6], &[0, 5, 4, 3, 2]] {
                        let [on_host, on_gpu] =
                            [&host, &device].map(|all| rows.iter().map(|&row| &all[row]).collect::<Vec<_>>());
                        let [mut expected, mut found] = [Vec::new(), Vec::new()];
                        classifiers[0].find(&on_host, &selection, &mut expected);
                        classifiers[1].find_on(&stream, &on_gpu, &selection, &mut found).unwrap();
                        let bits = |found: &[Vec<RankedClass>]| -> Vec<Vec<(u32, u32)>> {
                            let of = |classes: &Vec<RankedClass>| {
                                classes.iter().map(|a| (a.class, a.score.to_bits())).collect()
                            };
                            found.iter().map(of).collect()
                        };
                        assert_eq!(
                            bits(&found),
                            bits(&expected),
                            "{dtype:?} {count} {file:?} {scores:?} {top_k} {rows:?}"
                        );
                        let [on_host, on_gpu] = [0, 1].map(|at: usize| classifiers[at].take_not_finite());
                        assert_eq!(on_gpu, on_host, "{dtype:?} {count} {rows:?}");
                    }
                    assert_eq!(classifiers[0].saw_logits, classifiers[1].saw_logits);
                }
            };
            let shape = [1, count as i64];
            let f32s = values.chunks(count).map(|row| Tensor::from_slice("output0", &shape, row)).collect();
            check(DType::F32, bytemuck::cast_slice(&values), f32s);
            let f16s = halves.chunks(count).map(|row| Tensor::from_slice("output0", &shape, row)).collect();
            check(DType::F16, bytemuck::cast_slice(&halves), f16s);
        }
    }
}
