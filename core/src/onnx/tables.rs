// SPDX-License-Identifier: MPL-2.0
//! Tables of which the numbers of an input choose rows, such as the embedding of tokens in a model of texts.

use std::collections::{HashMap, HashSet};

use super::{GraphProto, NodeProto};

/// Operators whose output has the numbers of their first input.
const SAME_NUMBERS: [&str; 6] = ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

/// Operators whose output has as many rows as their first input.
const SAME_ROWS: [&str; 3] = ["Cast", "DequantizeLinear", "Identity"];

/// The rows of the smallest table that is indexed by the numbers of an input; `None` where the graph shows none.
pub fn rows(graph: &GraphProto, input: &str) -> Option<u64> {
    let makers: HashMap<&str, &NodeProto> =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node))).collect();
    let mut same = HashSet::from([input]);
    let mut least = None;
    // In the order of a graph each node stands behind those that it uses.
    for node in &graph.node {
        let place = |at: usize| node.input.get(at).map_or("", String::as_str);
        if SAME_NUMBERS.contains(&node.op_type.as_str()) && same.contains(place(0)) {
            same.extend(node.output.iter().map(String::as_str));
        }
        let is_by_rows =
            node.attribute.iter().all(|attribute| attribute.name != "axis" || attribute.i.unwrap_or(0) == 0);
        if node.op_type == "Gather" && is_by_rows && same.contains(place(1)) {
            let found = rows_of(graph, &makers, place(0));
            least = least.into_iter().chain(found).min();
        }
    }
    least
}

/// The rows of a constant, which other nodes may make of a weight.
fn rows_of(graph: &GraphProto, makers: &HashMap<&str, &NodeProto>, name: &str) -> Option<u64> {
    let mut name = name;
    // No way back is longer than that, but for circles.
    for _ in 0..=graph.node.len() {
        if let Some(weight) = graph.initializer.iter().find(|weight| weight.name == name) {
            return first(&weight.dims);
        }
        let node = makers.get(name)?;
        match node.op_type.as_str() {
            "Constant" => return node.attribute.iter().find_map(|attribute| first(&attribute.t.as_ref()?.dims)),
            operator if SAME_ROWS.contains(&operator) => name = node.input.first()?,
            _ => return None,
        }
    }
    None
}

fn first(dims: &[i64]) -> Option<u64> {
    u64::try_from(*dims.first()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{AttributeProto, TensorProto};

    fn node(op_type: &str, inputs: &[&str], output: &str) -> NodeProto {
        let input = inputs.iter().map(|name| name.to_string()).collect();
        NodeProto { op_type: op_type.into(), input, output: vec![output.into()], ..Default::default() }
    }

    fn weight(name: &str, dims: &[i64]) -> TensorProto {
        TensorProto { name: name.into(), dims: dims.to_vec(), ..Default::default() }
    }

    #[test]
    fn the_table_of_tokens_is_found() {
        let weights = vec![weight("tokens", &[49408, 512]), weight("places", &[77, 512]), weight("few", &[9, 4])];
        let graph = |node: Vec<NodeProto>| GraphProto { node, initializer: weights.clone(), ..Default::default() };
        let plain = graph(vec![node("Gather", &["tokens", "ids"], "x"), node("Gather", &["places", "other"], "y")]);
        assert_eq!([rows(&plain, "ids"), rows(&plain, "mask")], [Some(49408), None]);
        let by_other_nodes = graph(vec![
            node("Cast", &["ids"], "short"),
            node("Reshape", &["short", "shape"], "flat"),
            node("DequantizeLinear", &["tokens", "scale"], "floats"),
            node("Gather", &["floats", "flat"], "x"),
        ]);
        assert_eq!(rows(&by_other_nodes, "ids"), Some(49408));
        let two = graph(vec![node("Gather", &["tokens", "ids"], "x"), node("Gather", &["few", "ids"], "y")]);
        assert_eq!(rows(&two, "ids"), Some(9), "each number has to be in both");
        let axis = AttributeProto { name: "axis".into(), i: Some(1), ..Default::default() };
        let columns = NodeProto { attribute: vec![axis], ..node("Gather", &["tokens", "ids"], "x") };
        assert_eq!(rows(&graph(vec![columns]), "ids"), None);
        let circle = graph(vec![
            node("Identity", &["a"], "b"),
            node("Identity", &["b"], "a"),
            node("Gather", &["a", "ids"], "x"),
        ]);
        assert_eq!(rows(&circle, "ids"), None);
    }
}
