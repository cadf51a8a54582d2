// SPDX-License-Identifier: MPL-2.0
//! INT8 twins of models, as quantising exporters write them: each convolution between a pair of QuantizeLinear and
//! DequantizeLinear.

use super::onnx::{F32, Graph, I8, U8, int};

/// The model with the inputs of its convolutions as outputs, to find their ranges; and their names.
pub fn observed(path: &str) -> (Graph, Vec<String>) {
    let graph = Graph::load(path);
    let mut names = graph.inputs_of("Conv", 0);
    names.sort();
    names.dedup();
    let observed = names.iter().filter(|name| *name != "images");
    let names: Vec<String> = observed.cloned().collect();
    (names.iter().fold(graph, |graph, name| graph.output(name, F32, &["n", "c", "h", "w"])), names)
}

/// The model with its convolutions in INT8: activations in u8 by the ranges given, weights in i8 by their own, channel
/// by channel.
pub fn quantised(path: &str, ranges: &[(String, f32, f32)]) -> Graph {
    let mut graph = Graph::load(path);
    for (name, low, high) in ranges {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = ((high - low) / 255.0).max(1e-8);
        let zero = (-low / scale).round().clamp(0.0, 255.0) as u8;
        let [s, z, q, d] = ["scale", "zero", "quantised", "back"].map(|part| format!("{name}_{part}"));
        graph = graph
            .renamed_inputs("Conv", 0, name, &d)
            .weight(&s, F32, &[], scale.to_le_bytes().into())
            .weight(&z, U8, &[], vec![zero])
            .node_behind(name, "QuantizeLinear", &[name, &s, &z], &q, vec![])
            .node_behind(&q, "DequantizeLinear", &[&q, &s, &z], &d, vec![]);
    }
    for name in graph.inputs_of("Conv", 1) {
        let (dims, values) = graph.floats(&name);
        let channels = dims[0] as usize;
        let per_channel = values.len() / channels;
        let scales: Vec<f32> = values
            .chunks(per_channel)
            .map(|channel| channel.iter().fold(1e-8f32, |most, value| most.max(value.abs())) / 127.0)
            .collect();
        let rounded = values.chunks(per_channel).zip(&scales);
        let bytes = rounded.flat_map(|(channel, scale)| {
            channel.iter().map(move |value| (value / scale).round().clamp(-127.0, 127.0) as i8 as u8)
        });
        let [s, z, q, d] = ["scale", "zero", "quantised", "back"].map(|part| format!("{name}_{part}"));
        let bytes = bytes.collect();
        graph = graph
            .renamed_inputs("Conv", 1, &name, &d)
            .without_weight(&name)
            .weight(&s, F32, &[dims[0]], scales.iter().flat_map(|scale| scale.to_le_bytes()).collect())
            .weight(&z, I8, &[dims[0]], vec![0; channels])
            .weight(&q, I8, &dims, bytes)
            .node_first("DequantizeLinear", &[&q, &s, &z], &d, vec![int("axis", 0)]);
    }
    graph
}
