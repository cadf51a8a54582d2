// SPDX-License-Identifier: MPL-2.0
//! Which layers of a weakly typed network stay in f32 where others may be in f16.

use std::collections::HashMap;

use super::abi::{DataType, Layer, Network};
use crate::onnx::exact::{ExactLayers, Steps};
use crate::tensor::DType;

/// Has layers compute in f32, unless the numbers of the file itself are others.
pub fn keep_exact(network: &Network, layers: ExactLayers) {
    let mut all: Vec<Layer<'_>> = network.steps().collect();
    let tensors = all.iter().enumerate();
    let producers: HashMap<usize, usize> = tensors
        .flat_map(|(producer, layer)| layer.outputs().map(move |tensor| (tensor.identity(), producer)))
        .collect();
    let producer = |tensor: usize| producers.get(&tensor).copied();
    let steps = Steps {
        work: all.iter().map(Layer::work).collect(),
        before: all
            .iter()
            .map(|layer| layer.inputs().filter_map(|tensor| producer(tensor.identity())).collect())
            .collect(),
        last: network.outputs().filter_map(|tensor| producer(tensor.identity())).collect(),
    };
    for (layer, _) in all.iter_mut().zip(steps.exact(layers)).filter(|(_, exact)| *exact) {
        if layer.outputs().all(|tensor| tensor.data_type() == DataType::from(DType::F32)) {
            layer.prefer(DType::F32);
        }
    }
}
