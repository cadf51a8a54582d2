// SPDX-License-Identifier: MPL-2.0
//! Tables of which the numbers of an input choose rows, such as the embedding of tokens in a model of texts.

use std::collections::HashMap;

use super::{GraphProto, NodeProto, TensorProto};

/// Operators whose output has the numbers of their first input.
const SAME_NUMBERS: [&str; 6] = ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

/// Operators whose output has as many rows as their first input.
const SAME_ROWS: [&str; 3] = ["Cast", "DequantizeLinear", "Identity"];

/// Nodes that may stand between a weight and where it is indexed. Exporters write one or two.
const MOST_BETWEEN: usize = 16;

/// For each of these inputs, the rows of the smallest table that is indexed by its numbers; none where the graph shows none.
pub fn rows<'a>(graph: &'a GraphProto, inputs: impl Iterator<Item = &'a str>) -> HashMap<&'a str, u64> {
    let weights: HashMap<&str, &TensorProto> =
        graph.initializer.iter().map(|weight| (weight.name.as_str(), weight)).collect();
    let makers: HashMap<&str, &NodeProto> =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node))).collect();
    // What has the numbers of which input.
    let mut numbers: HashMap<&str, &str> = inputs.map(|input| (input, input)).collect();
    let mut least: HashMap<&str, u64> = HashMap::new();
    // In the order of a graph each node stands behind those that it uses.
    for node in &graph.node {
        let place = |at: usize| node.input.get(at).map_or("", String::as_str);
        if SAME_NUMBERS.contains(&node.op_type.as_str())
            && let Some(&input) = numbers.get(place(0))
        {
            numbers.extend(node.output.iter().map(|name| (name.as_str(), input)));
        }
        let is_by_rows =
            node.attribute.iter().all(|attribute| attribute.name != "axis" || attribute.i.unwrap_or(0) == 0);
        if node.op_type == "Gather"
            && is_by_rows
            && let Some(&input) = numbers.get(place(1))
            && let Some(found) = rows_of(&weights, &makers, place(0))
        {
            let known = least.entry(input).or_insert(found);
            *known = found.min(*known);
        }
    }
    least
}

/// The rows of a constant, which other nodes may make of a weight.
fn rows_of(weights: &HashMap<&str, &TensorProto>, makers: &HashMap<&str, &NodeProto>, name: &str) -> Option<u64> {
    let mut name = name;
    // A file may have a long way back for each of many nodes, or one that never ends.
    for _ in 0..=MOST_BETWEEN {
        if let Some(weight) = weights.get(name) {
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
    use crate::onnx::AttributeProto;

    fn node(op_type: &str, inputs: &[&str], output: &str) -> NodeProto {
        let input = inputs.iter().map(|name| name.to_string()).collect();
        NodeProto { op_type: op_type.into(), input, output: vec![output.into()], ..Default::default() }
    }

    fn weight(name: &str, dims: &[i64]) -> TensorProto {
        TensorProto { name: name.into(), dims: dims.to_vec(), ..Default::default() }
    }

    fn rows(graph: &GraphProto, input: &str) -> Option<u64> {
        super::rows(graph, ["ids", "mask"].into_iter()).get(input).copied()
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

    /// A file may be made so. The way back is not walked to its end for each of the tables.
    #[test]
    fn long_ways_to_many_tables_take_no_long_time() {
        const COUNT: usize = 10_000;
        let way = (0..COUNT).map(|at| node("Identity", &[format!("w{at}").as_str()], &format!("w{}", at + 1)));
        let last = format!("w{COUNT}");
        let uses = (0..COUNT).map(|at| node("Gather", &[last.as_str(), "ids"], &format!("x{at}")));
        let graph = GraphProto { node: way.chain(uses).collect(), ..Default::default() };
        assert_eq!(rows(&graph, "ids"), None);
    }
}
