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
    let is_probability = |output: &&ValueInfoProto| {
        let mut name = output.name.as_str();
        // No way back is longer than that, but for circles.
        for _ in 0..graph.node.len() {
            match makers.get(name) {
                Some(node) if ACTIVATIONS.contains(&node.op_type.as_str()) => return true,
                Some(node) if UNCHANGED.contains(&node.op_type.as_str()) && !node.input.is_empty() => {
                    name = &node.input[0];
                }
                _ => return false,
            }
        }
        false
    };
    graph.output.iter().filter(is_probability).map(|output| output.name.clone()).collect()
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
