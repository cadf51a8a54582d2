// SPDX-License-Identifier: MPL-2.0
//! The channels of inputs that leave their number open: how many a graph takes, and the same file with that number. Convolutions of
//! TensorRT have to know it when an engine is built.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use super::raw::{RawModel, RawValueInfo};
use super::{Dimension, GraphProto, NodeProto, TensorProto, TensorShapeProto};

/// For each of these inputs, the channels of the first convolution of pictures that takes its numbers as they are; none where the graph
/// shows none.
pub fn of_convolutions<'a>(graph: &'a GraphProto, inputs: impl Iterator<Item = &'a str>) -> HashMap<&'a str, i64> {
    // What has the numbers of which input.
    let mut numbers: HashMap<&str, &str> = inputs.map(|input| (input, input)).collect();
    let mut first: HashMap<&str, &NodeProto> = HashMap::new();
    // In the order of a graph each node stands behind those that it uses.
    for node in &graph.node {
        let Some(&input) = node.input.first().and_then(|name| numbers.get(name.as_str())) else { continue };
        match node.op_type.as_str() {
            "Cast" | "Identity" => numbers.extend(node.output.iter().map(|name| (name.as_str(), input))),
            "Conv" => {
                first.entry(input).or_insert(node);
            }
            _ => {}
        }
    }
    if first.is_empty() {
        return HashMap::new();
    }
    let weights: HashMap<&str, &TensorProto> =
        graph.initializer.iter().map(|weight| (weight.name.as_str(), weight)).collect();
    first.into_iter().filter_map(|(input, node)| Some((input, taken(node, &weights)?))).collect()
}

/// The channels that a convolution of pictures takes: each of its groups has as many as the weights.
fn taken(node: &NodeProto, weights: &HashMap<&str, &TensorProto>) -> Option<i64> {
    let weight = weights.get(node.input.get(1)?.as_str())?;
    let [_, channels, _, _] = weight.dims[..] else { return None };
    let groups = node.attribute.iter().find(|attribute| attribute.name == "group").and_then(|group| group.i);
    channels.checked_mul(groups.unwrap_or(1)).filter(|&channels| channels > 0)
}

/// The file with that size in place of what a dimension of one of its inputs is; `None` where it has no such input, or where there is no
/// memory for it.
pub fn with_size(file: Bytes, input: &str, place: usize, size: i64) -> Option<Vec<u8>> {
    let mut model = RawModel::decode(file).ok()?;
    let inputs = &mut model.graph.as_mut()?.input;
    let (at, mut value) = inputs.iter().enumerate().find_map(|(at, bytes)| {
        let value = RawValueInfo::decode(bytes.clone()).ok()?;
        (value.name == input).then_some((at, value))
    })?;
    let shape = value.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()?;
    let mut dims = TensorShapeProto::decode(shape.clone()).ok()?;
    *dims.dim.get_mut(place)? = Dimension { dim_value: Some(size), dim_param: None };
    *shape = dims.encode_to_vec().into();
    inputs[at] = value.encode_to_vec().into();
    let mut file = Vec::new();
    file.try_reserve_exact(model.encoded_len()).ok()?;
    model.encode(&mut file).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{AttributeProto, ModelProto};
    use crate::onnx_files::{F32, Graph, int};

    fn node(op_type: &str, inputs: &[&str], output: &str) -> NodeProto {
        let input = inputs.iter().map(|name| name.to_string()).collect();
        NodeProto { op_type: op_type.into(), input, output: vec![output.into()], ..Default::default() }
    }

    fn weight(name: &str, dims: &[i64]) -> TensorProto {
        TensorProto { name: name.into(), dims: dims.to_vec(), ..Default::default() }
    }

    #[test]
    fn the_first_convolution_tells_the_channels() {
        let of = |nodes: Vec<NodeProto>, dims: &[i64]| {
            let graph = GraphProto { node: nodes, initializer: vec![weight("w", dims)], ..Default::default() };
            of_convolutions(&graph, ["x", "mask"].into_iter()).get("x").copied()
        };
        let conv = |input: &str| node("Conv", &[input, "w"], "y");
        let group = |i: i64| AttributeProto { name: "group".into(), i: Some(i), ..Default::default() };
        let grouped = |i: i64| NodeProto { attribute: vec![group(i)], ..conv("x") };
        let far = vec![node("Shape", &["x"], "s"), node("Cast", &["x"], "a"), node("Identity", &["a"], "b"), conv("b")];
        for (nodes, dims, wanted) in [
            (vec![conv("x")], &[16, 3, 7, 7][..], Some(3)),
            (far, &[16, 3, 7, 7], Some(3)),
            (vec![grouped(3)], &[3, 1, 7, 7], Some(3)),
            (vec![conv("z")], &[16, 3, 7, 7], None),
            (vec![node("Conv", &["x"], "y")], &[16, 3, 7, 7], None),
            (vec![node("Conv", &["x", "made"], "y")], &[16, 3, 7, 7], None),
            (vec![conv("x")], &[16, 3, 7], None),
            (vec![conv("x")], &[], None),
            (vec![conv("x")], &[16, -3, 7, 7], None),
            (vec![grouped(i64::MAX)], &[16, 3, 7, 7], None),
            (vec![node("Relu", &["x"], "y"), conv("y")], &[16, 3, 7, 7], None),
        ] {
            assert_eq!(of(nodes.clone(), dims), wanted, "{nodes:?} {dims:?}");
        }
    }

    #[test]
    fn a_file_gets_the_size_of_one_dimension_and_stays_the_same_otherwise() {
        let graph = |channels: &str| {
            Graph::new()
                .input("mask", F32, &["n", "c"])
                .input("x", F32, &["n", channels, "h", "w"])
                .weight("w", F32, &[4, 3, 1, 1], vec![7; 48])
                .node("Conv", &["x", "w"], &["y"], vec![int("group", 1)])
                .output("y", F32, &["n", "4", "h", "w"])
                .metadata("author", "me")
                .bytes()
        };
        let decoded = |file: Vec<u8>| ModelProto::decode(&file[..]).unwrap();
        let file = Bytes::from(graph("c"));
        let closed = with_size(file.clone(), "x", 1, 3).unwrap();
        assert_eq!(decoded(closed), decoded(graph("3")));
        assert_eq!(with_size(file.clone(), "z", 1, 3), None);
        assert_eq!(with_size(file.clone(), "x", 4, 3), None);
        assert_eq!(with_size(Bytes::from_static(b"no model"), "x", 1, 3), None);
    }
}
