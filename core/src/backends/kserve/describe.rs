// SPDX-License-Identifier: MPL-2.0
//! What a server says of a model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;

use super::address::ServerAddress;
use super::client::{CallError, GrpcClient};
use super::datatype;
use super::messages::*;
use super::remote::Extensions;
use crate::error::{Error, ErrorKind, Result};
use crate::model::ModelInfo;
use crate::redact::printable;
use crate::tensor::{Dims, TensorDesc};

/// Bounds of what a server says.
const MAX_TENSORS: usize = 1024;
const MAX_RANK: usize = 16;
const MAX_NAME: usize = 1024;

/// What is known of a model before it is run.
pub struct ServedDescription {
    metadata: ModelMetadataResponse,
    parameters: BTreeMap<String, String>,
    pub max_batch: usize,
    pub extensions: Extensions,
}

/// Asks for it. What not every server has may be missing.
pub fn describe(address: &Arc<ServerAddress>, timeout: Duration) -> Result<ServedDescription> {
    let deadline = Instant::now() + timeout;
    let mut client = GrpcClient::new(address.clone());
    let name = ModelName { name: address.model.clone(), version: address.version.clone() };
    let unreachable = |error: CallError| failed(address, timeout, error);
    let ready = client.describe::<ModelReadyResponse>("ModelReady", &name, deadline);
    match ready {
        Ok(ModelReadyResponse { ready: true }) => {}
        Ok(_) => return Err(not_ready(address, "it is not ready")),
        Err(CallError::Refused(_, why)) => return Err(not_ready(address, &why)),
        Err(CallError::Lost(why)) if client.is_connected() => return Err(not_ready(address, &why)),
        Err(error) => return Err(unreachable(error)),
    }
    let metadata: ModelMetadataResponse = match client.describe("ModelMetadata", &name, deadline) {
        Ok(metadata) => metadata,
        Err(CallError::Refused(_, why)) => return Err(not_ready(address, &why)),
        Err(error) => return Err(unreachable(error)),
    };
    let config = match client.describe::<ModelConfigResponse>("ModelConfig", &name, deadline) {
        Ok(answer) => answer.config.unwrap_or_default(),
        Err(CallError::Refused(..)) => ServedConfig::default(), // Triton alone has it
        Err(error) => return Err(unreachable(error)),
    };
    let server = match client.describe::<ServerMetadataResponse>("ServerMetadata", &EmptyMessage {}, deadline) {
        Ok(server) => server,
        Err(CallError::Refused(..)) => ServerMetadataResponse::default(),
        Err(error) => return Err(unreachable(error)),
    };
    let of_metadata = metadata.properties.iter().filter_map(|(key, value)| Some((key.clone(), text_of(value)?)));
    let mut parameters: BTreeMap<String, String> = of_metadata.collect();
    parameters.extend(config.parameters.into_iter().map(|(key, value)| (key, value.string_value)));
    let has = |name: &str| server.extensions.iter().any(|extension| extension == name);
    Ok(ServedDescription {
        metadata,
        parameters,
        max_batch: usize::try_from(config.max_batch_size).unwrap_or(0),
        extensions: Extensions {
            system_shared_memory: has("system_shared_memory"),
            cuda_shared_memory: has("cuda_shared_memory"),
        },
    })
}

/// A property is a text to some servers, and a parameter to others.
fn text_of(value: &[u8]) -> Option<String> {
    let parameter = InferParameter::decode(value).ok().and_then(|parameter| parameter.string_param);
    parameter.or_else(|| String::from_utf8(value.to_vec()).ok())
}

impl ServedDescription {
    /// The description of the model, as a file has it.
    pub fn info(&self, path: &Path) -> Result<ModelInfo> {
        let ModelMetadataResponse { inputs, outputs, platform, .. } = &self.metadata;
        if outputs.is_empty() {
            return Err(unusable(
                path,
                "it says nothing of its outputs".into(),
                "Declare them in the server's configuration of the model",
            ));
        }
        let tensors = |list: &[TensorMetadata]| match list.len() {
            0..=MAX_TENSORS => list.iter().map(|tensor| desc(path, tensor)).collect(),
            count => Err(unusable(
                path,
                format!("it has {count} inputs or outputs"),
                "Check its configuration on the server",
            )),
        };
        ModelInfo::of_server(
            path,
            printable(platform, 100),
            tensors(inputs)?,
            tensors(outputs)?,
            self.parameters.clone(),
        )
    }
}

fn unusable(path: &Path, what: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Model, what).remedy(remedy).about(&format!("Cannot use the model {}", path.display()))
}

fn desc(path: &Path, tensor: &TensorMetadata) -> Result<TensorDesc> {
    let TensorMetadata { name, datatype, shape } = tensor;
    let Some(dtype) = datatype::of_name(datatype) else {
        let what = format!("the elements of its tensor {name} are of the type {}", printable(datatype, 40));
        return Err(unusable(
            path,
            what,
            "Serve it with FP32, FP16, UINT8, INT8, INT32, INT64 or BOOL at its inputs and outputs",
        ));
    };
    if name.is_empty() || name.len() > MAX_NAME || shape.len() > MAX_RANK {
        let what = format!("it has a tensor “{}” of {} dimensions", printable(name, 40), shape.len());
        return Err(unusable(path, what, "Check its configuration on the server"));
    }
    let dims = shape.iter().map(|&dim| if dim >= 0 { dim } else { Dims::DYNAMIC }).collect();
    Ok(TensorDesc { name: name.clone(), dtype, dims: Dims(dims) })
}

#[track_caller]
fn not_ready(address: &ServerAddress, why: &str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("The server at {} does not serve the model {}", address.authority(), address.model),
    )
    .cause(printable(why, 500))
    .remedy(
        "Check the model's name and version, and the server's log. A server that is still loading it serves it later",
    )
}

/// The server gives no description.
#[track_caller]
fn failed(address: &ServerAddress, timeout: Duration, error: CallError) -> Error {
    let host = address.authority();
    match error {
        CallError::Late => Error::new(ErrorKind::Run, format!("The server at {host} has not answered within {} s", timeout.as_secs_f64()))
            .remedy("Check that the server runs, and how much it has to do; or set request-timeout to more"),
        CallError::Lost(why) | CallError::Refused(_, why) => {
            Error::new(ErrorKind::NotFound, format!("There is no answer of a server at {host}")).cause(why).remedy(
                "Start the server, or check host and port. Servers have a port of their own for gRPC: Triton 8001, MLServer 8081. One that \
                 wants TLS hangs up, too: it needs a proxy on this machine",
            )
        }
        CallError::Interrupted => Error::new(ErrorKind::Run, format!("A request of {host} was given up")),
        CallError::Garbage(why) => {
            Error::new(ErrorKind::Run, format!("The server at {host} does not speak KServe v2 by gRPC")).cause(why).remedy(
                "Check the port. Servers have a port of their own for gRPC: Triton 8001, MLServer 8081",
            )
        }
    }
}
