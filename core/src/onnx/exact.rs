// SPDX-License-Identifier: MPL-2.0
//! Which steps of a network stay in f32 where others may be in 16 bits: one rule for the nodes of ONNX files, and for the layers
//! that TensorRT makes of them.

/// What a step is to 16-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWork {
    /// A convolution or a product with weights: the bulk of the work.
    Weighted,
    /// A product whose factors are all computed, such as attention scores; or one of which that is not known.
    Product,
    /// Element by element, or along one axis.
    Light,
    /// It loses most: softmax, normalisations, reductions, unary functions such as exponentials and roots.
    Sensitive,
    /// Shapes, constants, plugins, control flow, and all that is not known.
    Other,
}

/// Which steps are in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExactLayers {
    /// Those behind the last convolutions and products of matrices.
    #[default]
    Head,
    /// And those that lose most in f16: softmax and the scores before it, normalisations, reductions, unary functions, and what is
    /// next to them.
    Sensitive,
    /// All but convolutions and products with weights.
    AllButWeighted,
}

impl ExactLayers {
    /// Where the types are those of the file, TensorRT keeps none of its steps in f32 by itself, as it may with flags.
    pub fn at_least_sensitive(self) -> Self {
        if self == ExactLayers::Head { ExactLayers::Sensitive } else { self }
    }
}

/// A network as far as this matters.
#[derive(Debug, Default)]
pub struct Steps {
    pub work: Vec<StepWork>,
    /// Those that make what goes into each.
    pub before: Vec<Vec<usize>>,
    /// Those that make the outputs of the network.
    pub last: Vec<usize>,
}

impl Steps {
    /// Whether each step stays in f32. Of those whose work is not known, nothing is said.
    pub fn exact(&self, layers: ExactLayers) -> Vec<bool> {
        let mut exact = self.head();
        match layers {
            ExactLayers::Head => {}
            ExactLayers::Sensitive => self.add_sensitive(&mut exact),
            ExactLayers::AllButWeighted => exact.iter_mut().zip(&self.work).for_each(|(exact, &work)| {
                *exact |= work != StepWork::Weighted;
            }),
        }
        exact.iter_mut().zip(&self.work).for_each(|(exact, &work)| *exact &= work != StepWork::Other);
        exact
    }

    /// What follows the last convolutions makes boxes and scores of their results. In f16, scores near 1 are 1/2048 apart,
    /// so that neighbours become equal and suppression keeps another one, and corners move by up to a quarter of a pixel.
    /// It is a small part of the work, so it is done in f32.
    fn head(&self) -> Vec<bool> {
        let mut head = vec![false; self.work.len()];
        let mut left = self.last.clone();
        while let Some(step) = left.pop() {
            if head[step] || matches!(self.work[step], StepWork::Weighted | StepWork::Product) {
                continue;
            }
            head[step] = true;
            left.extend(&self.before[step]);
        }
        head
    }

    /// Sums of many numbers, their squares and exponentials leave the range of f16, or its 11 bits. What is next to them is a part
    /// of the same function, such as the differences and products of a normalisation, or the product that makes attention scores.
    fn add_sensitive(&self, exact: &mut [bool]) {
        let is_part = |step: &usize| self.work[*step] != StepWork::Weighted;
        let mut seen = vec![false; self.work.len()];
        for (step, before) in self.before.iter().enumerate() {
            if self.work[step] == StepWork::Sensitive {
                exact[step] = true;
                before.iter().copied().filter(is_part).for_each(|before| exact[before] = true);
                // The scores may be scaled and masked before the softmax.
                for &scaled in
                    before.iter().filter(|&&step| matches!(self.work[step], StepWork::Light | StepWork::Sensitive))
                {
                    if !std::mem::replace(&mut seen[scaled], true) {
                        let products = self.before[scaled].iter().copied().filter(is_part);
                        products.for_each(|product| exact[product] = true);
                    }
                }
            } else if self.work[step] == StepWork::Light {
                exact[step] |= before.iter().any(|&before| self.work[before] == StepWork::Sensitive);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StepWork::{Light, Other, Product, Sensitive, Weighted};
    use super::*;

    /// Steps in a row, each behind the one before it.
    fn row(work: &[StepWork]) -> Steps {
        let before = (0..work.len()).map(|step| step.checked_sub(1).into_iter().collect()).collect();
        Steps { work: work.to_vec(), before, last: vec![work.len() - 1] }
    }

    fn exact(work: &[StepWork], layers: ExactLayers) -> Vec<usize> {
        let exact = row(work).exact(layers);
        (0..work.len()).filter(|&step| exact[step]).collect()
    }

    #[test]
    fn the_head_is_what_follows_the_last_product() {
        let work = [Light, Weighted, Light, Weighted, Light, Other, Light];
        assert_eq!(exact(&work, ExactLayers::Head), [4, 6]);
        assert!(exact(&[Light, Weighted], ExactLayers::Head).is_empty());
        assert_eq!(exact(&[Light, Product, Sensitive], ExactLayers::Head), [2]);
    }

    #[test]
    fn functions_that_lose_most_are_exact_with_what_belongs_to_them() {
        // Scores, scaled, softmax, values; a projection, and the end of the network.
        let attention = [Weighted, Product, Light, Sensitive, Product, Weighted, Light, Weighted];
        assert_eq!(exact(&attention, ExactLayers::Sensitive), [1, 2, 3]);
        let normalised = [Weighted, Light, Sensitive, Light, Weighted, Light, Light, Weighted];
        assert_eq!(exact(&normalised, ExactLayers::Sensitive), [1, 2, 3]);
    }

    #[test]
    fn only_what_has_weights_remains() {
        let work = [Light, Weighted, Light, Product, Other, Weighted];
        assert_eq!(exact(&work, ExactLayers::AllButWeighted), [0, 2, 3]);
    }

    #[test]
    fn circles_end() {
        let steps = Steps { work: vec![Light, Sensitive], before: vec![vec![1], vec![0]], last: vec![0] };
        assert_eq!(steps.exact(ExactLayers::Sensitive), [true, true]);
    }
}
