//! What an ONNX file says goes in and out, and which operators there are.

use std::collections::HashSet;

use prost::Message;

use super::Header;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, Dims, TensorDesc};
use crate::onnx::{BFLOAT16, FLOAT16, ModelProto, ValueInfoProto};

/// Reads the header from the bytes of a whole file. Errors carry a cause; the caller says which file.
pub fn read(bytes: &[u8]) -> Result<Header> {
    let broken = |cause: String| {
        Error::new(ErrorKind::Model, "this is not a whole ONNX model")
            .cause(cause)
            .remedy("Check that it is an ONNX file and was copied or exported completely")
    };
    let model = ModelProto::decode(bytes)
        .map_err(|error| broken(error.to_string().replace("failed to decode Protobuf message: ", "")))?;
    // Random bytes may well be valid protobuf; a model has at least these.
    let graph = model.graph.filter(|_| model.ir_version > 0).ok_or_else(|| broken("it has no graph".into()))?;
    if graph.output.is_empty() {
        return Err(broken("its graph has no outputs".into()));
    }

    // Files before IR version 4 list the weights among the inputs.
    let weights: HashSet<String> = graph.initializer.into_iter().map(|weight| weight.name).collect();
    let inputs = graph.input.into_iter().filter(|input| !weights.contains(&input.name));
    Ok(Header {
        producer: format!("{} {}", model.producer_name, model.producer_version).trim().to_string(),
        inputs: inputs.map(describe).collect::<Result<_>>()?,
        outputs: graph.output.into_iter().map(describe).collect::<Result<_>>()?,
        metadata: model.metadata_props.into_iter().map(|entry| (entry.key, entry.value)).collect(),
        operators: graph.node.into_iter().map(|node| node.op_type).collect(),
    })
}

fn describe(value: ValueInfoProto) -> Result<TensorDesc> {
    let tensor = value.r#type.and_then(|t| t.tensor_type).ok_or_else(|| {
        Error::new(ErrorKind::Model, format!("{} is no tensor", value.name))
            .remedy("Export it without sequences, maps and optional values at its inputs and outputs")
    })?;
    let dtype = dtype(tensor.elem_type).map_err(|other| {
        Error::new(ErrorKind::Model, format!("the elements of its tensor {} are of the type {other}", value.name))
            .remedy("Export it with f32, f16, u8, i8, i32, i64 or bool at its inputs and outputs")
    })?;
    let dims = tensor.shape.unwrap_or_default().dim.into_iter();
    // A dimension with a name instead of a value is open; some exporters write -1.
    let dims = dims.map(|dim| dim.dim_value.filter(|&dim| dim >= 0).unwrap_or(Dims::DYNAMIC)).collect();
    Ok(TensorDesc { name: value.name, dtype, dims: Dims(dims) })
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
