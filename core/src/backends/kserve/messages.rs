// SPDX-License-Identifier: MPL-2.0
//! The messages of the Open Inference Protocol, version 2, and of Triton's extensions: the fields that are used here. Names and
//! numbers are those of grpc_service.proto and model_config.proto
//! (<https://github.com/triton-inference-server/common/tree/main/protobuf>).

use std::collections::HashMap;

use prost::Message;

/// `ModelReadyRequest`, `ModelMetadataRequest`, `ModelConfigRequest`: all name a model alike.
#[derive(Clone, PartialEq, Message)]
pub struct ModelName {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `ServerMetadataRequest`, and what has no answer.
#[derive(Clone, PartialEq, Message)]
pub struct EmptyMessage {}

#[derive(Clone, PartialEq, Message)]
pub struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub platform: String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
    /// Texts to some servers, [`InferParameter`] to others.
    #[prost(map = "string, bytes", tag = "6")]
    pub properties: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ServedConfig>,
}

/// `ModelConfig`.
#[derive(Clone, PartialEq, Message)]
pub struct ServedConfig {
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(map = "string, message", tag = "14")]
    pub parameters: HashMap<String, ConfigParameter>,
}

/// `ModelParameter`.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigParameter {
    #[prost(string, tag = "1")]
    pub string_value: String,
}

/// Of the kinds that are used here.
#[derive(Clone, PartialEq, Message)]
pub struct InferParameter {
    #[prost(int64, optional, tag = "2")]
    pub int64_param: Option<i64>,
    #[prost(string, optional, tag = "3")]
    pub string_param: Option<String>,
}

/// What is inferred, without the tensors' bytes, which follow it.
#[derive(Clone, PartialEq, Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferInputTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutputTensor>,
}

/// The field `raw_input_contents` of a request.
pub const RAW_INPUT_CONTENTS: u32 = 7;

#[derive(Clone, PartialEq, Message)]
pub struct InferInputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: HashMap<String, InferParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InferRequestedOutputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(map = "string, message", tag = "2")]
    pub parameters: HashMap<String, InferParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SystemSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct CudaSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    /// A `CUipcMemHandle`.
    #[prost(bytes = "vec", tag = "2")]
    pub raw_handle: Vec<u8>,
    /// The server's number of the GPU.
    #[prost(int64, tag = "3")]
    pub device_id: i64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

/// `SystemSharedMemoryUnregisterRequest` and `SystemSharedMemoryStatusRequest`, and the same of CUDA's memory. Without a name they
/// are of all regions.
#[derive(Clone, PartialEq, Message)]
pub struct RegionName {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `SystemSharedMemoryStatusResponse` and `CudaSharedMemoryStatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct SharedMemoryStatusResponse {
    /// By their names. What else is said of them is not used here.
    #[prost(map = "string, message", tag = "1")]
    pub regions: HashMap<String, EmptyMessage>,
}
