// SPDX-License-Identifier: MPL-2.0
//! Inputs, outputs and operators of an ONNX file.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::file::broken;
use super::uses::InputUse;
use super::{FileContents, FileHeader};
use crate::error::{Error, ErrorKind, Result};
use crate::onnx::{BFLOAT16, FLOAT16, GraphProto, MetadataEntry, ValueInfoProto};
use crate::tensor::{DType, Dims, TensorDesc};

/// The header of an ONNX file. Errors have a cause; the caller adds the file's name.
pub fn header(file: &FileContents) -> Result<FileHeader> {
    let (model, graph) = (file.onnx()?, file.graph()?);
    if graph.output.is_empty() {
        return Err(broken("its graph has no outputs"));
    }
    // Files before IR version 4 list the weights among the inputs.
    let weights: HashSet<&String> = graph.initializer.iter().map(|weight| &weight.name).collect();
    let inputs: Vec<&ValueInfoProto> = graph.input.iter().filter(|input| !weights.contains(&input.name)).collect();
    Ok(FileHeader {
        producer: format!("{} {}", model.producer_name, model.producer_version).trim().to_string(),
        uses: InputUse::of_graph(graph, &inputs),
        inputs: inputs.into_iter().map(describe).collect::<Result<_>>()?,
        outputs: graph.output.iter().map(describe).collect::<Result<_>>()?,
        metadata: model.metadata_props.iter().map(MetadataEntry::texts).collect(),
        operators: graph.node.iter().map(|node| node.op_type.clone()).collect(),
        probabilities: Some(probabilities(graph)),
    })
}

/// The outputs that a softmax or a sigmoid makes.
fn probabilities(graph: &GraphProto) -> BTreeSet<String> {
    const ACTIVATIONS: [&str; 3] = ["Softmax", "Sigmoid", "HardSigmoid"];
    const UNCHANGED: [&str; 6] = ["Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"];
    let makers: HashMap<&str, _> =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node))).collect();
    // What is known of the values on the ways back. A file may have a long way for each of many outputs, or a circle.
    let mut known: HashMap<&str, bool> = HashMap::new();
    let mut probabilities = BTreeSet::new();
    for output in &graph.output {
        let (mut way, mut name) = (Vec::new(), output.name.as_str());
        let is_probability = loop {
            if let Some(&is_one) = known.get(name) {
                break is_one;
            }
            known.insert(name, false);
            way.push(name);
            match makers.get(name) {
                Some(node) if ACTIVATIONS.contains(&node.op_type.as_str()) => break true,
                Some(node) if UNCHANGED.contains(&node.op_type.as_str()) && !node.input.is_empty() => {
                    name = &node.input[0];
                }
                _ => break false,
            }
        };
        if is_probability {
            known.extend(way.into_iter().map(|name| (name, true)));
            probabilities.insert(output.name.clone());
        }
    }
    probabilities
}

fn describe(value: &ValueInfoProto) -> Result<TensorDesc> {
    let tensor = value.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).ok_or_else(|| {
        Error::new(ErrorKind::Model, format!("{} is not a tensor", value.name))
            .remedy("Export it without sequences, maps and optional values at its inputs and outputs")
    })?;
    let dtype = dtype(tensor.elem_type).map_err(|other| {
        Error::new(ErrorKind::Model, format!("the elements of its tensor {} are of the type {other}", value.name))
            .remedy("Export it with f32, f16, u8, i8, i32, i64 or bool at its inputs and outputs")
    })?;
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    // A dimension with a name instead of a value is open; some exporters write -1.
    let dims = dims.map(|dim| dim.dim_value.filter(|&dim| dim >= 0).unwrap_or(Dims::DYNAMIC)).collect();
    Ok(TensorDesc { name: value.name.clone(), dtype, dims: Dims(dims) })
}

/// `TensorProto.DataType`; those that we do not have by their names there.
fn dtype(code: i32) -> std::result::Result<DType, String> {
    Ok(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        FLOAT16 => DType::F16,
        4 => return Err("uint16".into()),
        5 => return Err("int16".into()),
        8 => return Err("string".into()),
        11 => return Err("double".into()),
        12 => return Err("uint32".into()),
        13 => return Err("uint64".into()),
        BFLOAT16 => return Err("bfloat16".into()),
        other => return Err(format!("number {other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::NodeProto;

    fn node(op_type: &str, input: &str, output: &str) -> NodeProto {
        let (input, output) = (vec![input.into()], vec![output.into()]);
        NodeProto { op_type: op_type.into(), input, output, ..Default::default() }
    }

    fn found(node: Vec<NodeProto>, outputs: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let output = outputs.into_iter().map(|name| ValueInfoProto { name, r#type: None }).collect();
        probabilities(&GraphProto { node, output, ..Default::default() })
    }

    #[test]
    fn outputs_behind_a_sigmoid_are_probabilities() {
        let nodes = vec![
            node("Reshape", "scores", "flat"), // not in the order of a graph
            node("Sigmoid", "x", "scores"),
            node("Conv", "scores", "boxes"),
            node("Identity", "a", "b"),
            node("Identity", "b", "a"),
        ];
        let names = ["flat", "scores", "boxes", "b", "a", "x"].map(String::from);
        assert_eq!(found(nodes, names), BTreeSet::from(["flat", "scores"].map(String::from)));
    }

    /// The way back is not walked to its end for each of the outputs.
    #[test]
    fn long_ways_to_many_outputs_take_no_long_time() {
        const COUNT: usize = 20_000;
        let way = (0..COUNT).map(|at| node("Identity", &format!("v{at}"), &format!("v{}", at + 1)));
        let nodes: Vec<NodeProto> = way.collect();
        assert_eq!(found(nodes.clone(), (0..COUNT).map(|at| format!("v{}", COUNT - at))).len(), 0);
        let circle = [nodes, vec![node("Identity", &format!("v{COUNT}"), "v0")]].concat();
        assert_eq!(found(circle, (0..COUNT).map(|at| format!("v{at}"))).len(), 0);
    }
}
