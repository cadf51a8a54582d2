// SPDX-License-Identifier: MPL-2.0
//! ONNX files whose parts stay the bytes that they are, to be written again with some of them changed. Whatever is in such a
//! part is kept, also what this crate knows nothing of.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::error::{Error, ErrorKind, Result};

/// `ModelProto`.
#[derive(Clone, PartialEq, Message)]
pub struct RawModel {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(bytes = "bytes", tag = "2")]
    pub producer_name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub producer_version: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub domain: Bytes,
    #[prost(int64, tag = "5")]
    pub model_version: i64,
    #[prost(bytes = "bytes", tag = "6")]
    pub doc_string: Bytes,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<RawGraph>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub opset_import: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "14")]
    pub metadata_props: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "25")]
    pub functions: Vec<Bytes>,
}

/// `GraphProto`.
#[derive(Clone, PartialEq, Message)]
pub struct RawGraph {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub node: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "2")]
    pub name: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub initializer: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub input: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "12")]
    pub output: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "13")]
    pub value_info: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "15")]
    pub sparse_initializer: Vec<Bytes>,
}

/// `NodeProto`.
#[derive(Clone, PartialEq, Message)]
pub struct RawNode {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(bytes = "bytes", tag = "3")]
    pub name: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub op_type: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub attribute: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "7")]
    pub domain: Bytes,
}

/// `ValueInfoProto` of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct RawValueInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<RawType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RawType {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<RawTensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RawTensorType {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub shape: Option<Bytes>,
}

/// A part of a graph that is written.
pub enum Part<T> {
    /// A message as it is.
    Message(u32, Bytes),
    /// A weight: its message without the numbers, how many bytes these are, and what makes them.
    Weight(Vec<u8>, usize, T),
}

/// Fields of `ModelProto`, `GraphProto` and `TensorProto`.
const GRAPH: u32 = 7;
const INITIALIZER: u32 = 5;
const RAW_DATA: u32 = 9;

/// How long a field is whose contents have that length.
fn field_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

fn begin_field(tag: u32, length: usize, file: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, file);
    encode_varint(length as u64, file);
}

/// Writes a file with that graph. `write` appends the numbers of a weight, so many as it said.
///
/// # Errors
/// `Model`, where it is larger than `limit`; of `write`.
pub fn write<T>(
    model: &RawModel,
    graph: Vec<Part<T>>,
    limit: usize,
    mut write: impl FnMut(&T, &mut Vec<u8>) -> Result<()>,
) -> Result<Vec<u8>> {
    let weight_len = |header: &[u8], bytes: usize| header.len().saturating_add(field_len(RAW_DATA, bytes));
    let lengths = graph.iter().map(|part| match part {
        Part::Message(tag, message) => field_len(*tag, message.len()),
        Part::Weight(header, bytes, _) => field_len(INITIALIZER, weight_len(header, *bytes)),
    });
    let length = lengths.fold(0, usize::saturating_add);
    let whole = model.encoded_len().saturating_add(field_len(GRAPH, length));
    let mut file = Vec::new();
    if whole > limit || file.try_reserve_exact(whole).is_err() {
        let what = format!(
            "it would be a file of {} MiB, and ONNX files with their weights have at most {}",
            whole >> 20,
            limit >> 20
        );
        return Err(Error::new(ErrorKind::Model, what).remedy("Use precision=fp32, or a smaller model"));
    }
    model.encode(&mut file).expect("a vector grows");
    begin_field(GRAPH, length, &mut file);
    for part in &graph {
        match part {
            Part::Message(tag, message) => {
                begin_field(*tag, message.len(), &mut file);
                file.extend_from_slice(message);
            }
            Part::Weight(header, bytes, numbers) => {
                begin_field(INITIALIZER, weight_len(header, *bytes), &mut file);
                file.extend_from_slice(header);
                begin_field(RAW_DATA, *bytes, &mut file);
                let end = file.len() + bytes;
                write(numbers, &mut file)?;
                assert_eq!(file.len(), end, "as many numbers as it said");
            }
        }
    }
    Ok(file)
}
