// SPDX-License-Identifier: MPL-2.0
//! The fields of ONNX files that are read here, decoded once for all that ask for them; all others are skipped. Numbers
//! of weights stay in the bytes of the file.
//!
//! [`limits`] refuses files that would end the process, [`weights`] reads what lies in files next to the model, [`cut`] cuts
//! a graph where a backend cannot go on, [`defaults`] writes out what files leave open, [`cast`] makes a model compute in 16 bits, but for
//! what [`exact`] names. [`tables`] are what numbers of an input choose rows from.
//!
//! Names and field numbers are those of onnx.proto3 (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3>).

pub mod cast;
pub mod channels;
pub mod cut;
pub mod defaults;
pub mod exact;
pub mod limits;
mod numbers;
mod operators;
mod raw;
pub mod tables;
pub mod weights;

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use prost::Message;

use crate::error::{Error, ErrorKind, Result};

/// A file next to a model that holds weights of it.
pub struct ExternalFile<'a> {
    /// The model's text.
    pub name: &'a str,
    pub path: PathBuf,
}

/// The files that these entries of a model's weights name, each once.
///
/// # Errors
/// `Model`, where one could be any file of the user's: only plain names next to the model are followed, with the endings that
/// exporters use. This is the rule of rten.
pub fn external_files<'a>(
    model: &Path,
    entries: impl Iterator<Item = &'a StringStringEntryProto>,
) -> Result<Vec<ExternalFile<'a>>> {
    let names: BTreeSet<&str> =
        entries.filter(|entry| entry.key == "location").map(|entry| entry.value.as_str()).collect();
    let file = |name: &'a str| {
        let mut parts = Path::new(name).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
        let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if plain && (ending.starts_with("data") || ending.starts_with("onnx_data")) {
            return Ok(ExternalFile { name, path: model.with_file_name(name) });
        }
        Err(Error::new(ErrorKind::Model, format!("the file “{name}”, which holds weights, may not be read"))
            .cause("weights must be in a file next to the model, whose name ends in .data or .onnx_data")
            .remedy("Export the model as one file, or with a name like model.onnx_data for its weights"))
    };
    names.into_iter().map(file).collect()
}

/// Weights of a model that are not there, or cannot be read.
pub fn unreadable(file: &Path, model: &Path, error: io::Error) -> Error {
    let what = format!("Cannot read {}, which holds weights of {}", file.display(), model.display());
    Error::new(ErrorKind::Model, what).cause(error).remedy("Copy it next to the model, or export the model as one file")
}

/// `TensorProto.DataType`.
pub const FLOAT: i32 = 1;
pub const FLOAT16: i32 = 10;
pub const BFLOAT16: i32 = 16;

#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<MetadataEntry>,
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// An operator that the model itself defines.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    #[prost(string, tag = "10")]
    pub domain: String,
}

/// The version of a set of operators; the domain of ONNX's own is empty.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// `StringStringEntryProto` of the metadata. Whoever wrote it may have known nothing of UTF-8, and the model is none the worse.
#[derive(Clone, PartialEq, Message)]
pub struct MetadataEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl MetadataEntry {
    /// Key and value, with U+FFFD in place of what is no text.
    pub fn texts(&self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&self.key), text(&self.value))
    }

    pub fn is_text(&self) -> bool {
        [&self.key, &self.value].iter().all(|bytes| std::str::from_utf8(bytes).is_ok())
    }
}

/// A file without its metadata, for readers that refuse metadata that are no text.
pub fn without_metadata(file: Bytes) -> Vec<u8> {
    /// `ModelProto`, whose parts stay the bytes that they are.
    #[derive(Clone, PartialEq, Message)]
    struct BareModel {
        #[prost(int64, tag = "1")]
        ir_version: i64,
        #[prost(bytes = "bytes", tag = "7")]
        graph: Bytes,
        #[prost(bytes = "bytes", repeated, tag = "8")]
        opset_import: Vec<Bytes>,
        #[prost(bytes = "bytes", repeated, tag = "25")]
        functions: Vec<Bytes>,
    }
    BareModel::decode(file).unwrap_or_default().encode_to_vec()
}

#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    #[prost(bytes = "bytes", repeated, tag = "15")]
    pub sparse_initializer: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    #[prost(string, tag = "7")]
    pub domain: String,
}

impl NodeProto {
    /// The graphs of its branches and loops.
    pub fn graphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    #[prost(bytes = "bytes", optional, tag = "22")]
    pub sparse_tensor: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "23")]
    pub sparse_tensors: Vec<Bytes>,
}

/// A weight or another constant.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// Its name, where it is open. It may be no text.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub dim_param: Option<Bytes>,
}
