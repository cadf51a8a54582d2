// SPDX-License-Identifier: MPL-2.0
//! Which layers of a network stay in f32 where others may be in f16.

use std::collections::HashMap;

use super::abi::{DataType, Layer, LayerKind, Network};
use crate::tensor::DType;

/// The layers of a network, and which of them makes a tensor.
pub struct Layers<'a> {
    all: Vec<Layer<'a>>,
    producers: HashMap<usize, usize>,
}

impl<'a> Layers<'a> {
    pub fn of(network: &'a Network) -> Self {
        let all: Vec<Layer<'_>> = network.steps().collect();
        let tensors = all
            .iter()
            .enumerate()
            .flat_map(|(producer, layer)| layer.outputs().map(move |tensor| (tensor.identity(), producer)));
        let producers = tensors.collect();
        Layers { all, producers }
    }

    /// Those that make what goes into a layer.
    fn before(&self, index: usize) -> Vec<usize> {
        self.all[index].inputs().filter_map(|tensor| self.producers.get(&tensor.identity()).copied()).collect()
    }

    /// It computes in f32, unless the numbers of the file itself are others.
    fn keep_exact(&mut self, index: usize) {
        let layer = &mut self.all[index];
        if layer.outputs().all(|tensor| tensor.data_type() == DataType::from(DType::F32)) {
            layer.prefer(DType::F32);
        }
    }

    /// What follows the last convolutions makes boxes and scores of their results. In f16, scores near 1 are 1/2048 apart,
    /// so that neighbours become equal and suppression keeps another one, and corners move by up to a quarter of a pixel.
    /// It is a small part of the work, so it is done in f32; a model whose own numbers are f16 keeps them.
    pub fn keep_head_exact(&mut self, network: &Network) {
        let mut seen = vec![false; self.all.len()];
        let mut left: Vec<usize> =
            network.outputs().filter_map(|tensor| self.producers.get(&tensor.identity()).copied()).collect();
        while let Some(index) = left.pop() {
            if seen[index] || self.all[index].kind() == LayerKind::Heavy {
                continue;
            }
            seen[index] = true;
            left.extend(self.before(index));
            if self.all[index].kind() == LayerKind::Light {
                self.keep_exact(index);
            }
        }
    }

    /// Sums of many numbers, their squares and exponentials leave the range of f16, or its 11 bits. What is next to them is a part
    /// of the same function, such as the differences and products of a normalisation, or the product that makes attention scores.
    pub fn keep_sensitive_exact(&mut self) {
        let mut wanted = vec![false; self.all.len()];
        for index in 0..self.all.len() {
            let before = self.before(index);
            if self.all[index].is_sensitive() {
                wanted[index] = true;
                before.iter().for_each(|&before| wanted[before] = true);
                // The scores may be scaled and masked before the softmax.
                let scaled = before.iter().filter(|&&before| self.all[before].kind() == LayerKind::Light);
                let products: Vec<usize> = scaled.flat_map(|&scaled| self.before(scaled)).collect();
                products.into_iter().for_each(|product| wanted[product] = true);
            } else if self.all[index].kind() == LayerKind::Light {
                wanted[index] |= before.iter().any(|&before| self.all[before].is_sensitive());
            }
        }
        let is_wanted = |(index, wanted): (usize, bool)| wanted.then_some(index);
        for index in wanted.into_iter().enumerate().filter_map(is_wanted).collect::<Vec<_>>() {
            if self.all[index].kind() != LayerKind::Other || self.all[index].is_sensitive() {
                self.keep_exact(index);
            }
        }
    }
}
