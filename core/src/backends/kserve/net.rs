// SPDX-License-Identifier: MPL-2.0
//! A model on a server as a network: tensors out, tensors back. A request that finds no server is tried again until its time is
//! over, so a server may be started again while frames wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::address::ServerAddress;
use super::answer::{self, AnswerOutput, InferAnswer};
use super::client::{CallError, GrpcClient, PREFIX};
use super::messages::*;
use super::shared_memory::SharedRegion;
use super::{SharedMemoryUse, datatype};
use crate::backends::Interrupter;
use crate::backends::host::HostNet;
use crate::backends::log::{Level, log};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Pool;
use crate::model::ModelInfo;
use crate::tensor::{Dims, Tensor, TensorDesc};

/// How long to wait before a server that was not there is tried again: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Bytes of an answer besides its tensors.
const SLACK: usize = 1 << 20;
/// Bytes of tensors whose size is known only with the answer.
const MAX_ANSWER: usize = 1 << 30;
/// Tensors in shared memory begin at multiples of this.
const ALIGNMENT: usize = 64;

/// What is known of a model on a server, and how it is called.
pub struct RemoteModel {
    pub info: Arc<ModelInfo>,
    pub address: Arc<ServerAddress>,
    /// For a request with all attempts.
    pub timeout: Duration,
    /// The pictures of a request that its configuration allows; 0 where it says nothing of batches.
    pub max_batch: usize,
    pub shared_memory: SharedMemoryUse,
    /// Whether the server has the extension.
    pub has_shared_memory: bool,
}

/// The same for one of the threads that call it.
pub struct ServerNet {
    model: Arc<RemoteModel>,
    client: GrpcClient,
    region: RegionState,
    /// Names of regions that the server may still have, of connections that were lost.
    stale: Vec<String>,
    pool: Pool,
}

/// The memory in common with the server.
enum RegionState {
    /// Not tried yet on this connection, or too small.
    None,
    /// On the connection of this number.
    Registered(u64, SharedRegion),
    /// It cannot be had.
    Refused,
}

/// A request's tensors: where they lie in shared memory, if they do.
struct Layout {
    inputs: Vec<(usize, usize)>,
    /// Empty where outputs come with the answer.
    outputs: Vec<(usize, usize)>,
    bytes: usize,
}

impl ServerNet {
    pub fn new(model: Arc<RemoteModel>) -> Self {
        let client = GrpcClient::new(model.address.clone());
        ServerNet { model, client, region: RegionState::None, stale: Vec::new(), pool: Pool::default() }
    }

    /// One attempt.
    fn attempt(
        &mut self,
        inputs: &[&Tensor],
        rows: usize,
        deadline: Instant,
    ) -> std::result::Result<Result<Vec<Tensor>>, CallError> {
        let layout = self.layout(inputs, rows, deadline)?;
        let mut message = self.head(inputs, layout.as_ref()).encode_to_vec();
        let mut heads = Vec::new();
        match (&layout, &mut self.region) {
            (Some(layout), RegionState::Registered(_, region)) => {
                for (tensor, &(at, _)) in inputs.iter().zip(&layout.inputs) {
                    region.write(at, tensor.bytes().unwrap_or_default());
                }
            }
            _ => {
                for tensor in inputs {
                    encode_key(RAW_INPUT_CONTENTS, WireType::LengthDelimited, &mut message);
                    encode_varint(tensor.bytes().unwrap_or_default().len() as u64, &mut message);
                    heads.push(std::mem::take(&mut message));
                }
            }
        }
        let parts: Vec<&[u8]> = match layout {
            Some(_) => vec![&message],
            None => {
                let bytes = inputs.iter().map(|tensor| tensor.bytes().unwrap_or_default());
                heads.iter().zip(bytes).flat_map(|(head, bytes)| [&head[..], bytes]).collect()
            }
        };
        let limit = self.expected(rows).map_or(MAX_ANSWER, |bytes| bytes.min(MAX_ANSWER)) + SLACK;
        let answer = self.client.call("ModelInfer", &parts, limit, deadline)?;
        let Some(read) = InferAnswer::read(&answer[PREFIX..]) else {
            return Err(CallError::Garbage("its answer is not the protocol's, or was cut".into()));
        };
        let outputs = self.model.info.outputs.iter().enumerate();
        Ok(outputs.map(|(at, declared)| self.output(at, declared, &read, layout.as_ref())).collect())
    }

    /// The request without bytes of tensors.
    fn head(&self, inputs: &[&Tensor], layout: Option<&Layout>) -> ModelInferRequest {
        let RemoteModel { info, address, .. } = &*self.model;
        let place = |&(at, bytes): &(usize, usize)| match &self.region {
            RegionState::Registered(_, region) => parameters(&region.key, at, bytes),
            _ => HashMap::new(),
        };
        let places = |of: fn(&Layout) -> &[(usize, usize)], index: usize| {
            layout.and_then(|layout| of(layout).get(index)).map(place).unwrap_or_default()
        };
        let input = |(index, (declared, tensor)): (usize, (&TensorDesc, &&Tensor))| InferInputTensor {
            name: declared.name.clone(),
            datatype: datatype::name(declared.dtype).into(),
            shape: tensor.desc().dims.to_vec(),
            parameters: places(|layout| &layout.inputs, index),
        };
        let output = |(index, declared): (usize, &TensorDesc)| InferRequestedOutputTensor {
            name: declared.name.clone(),
            parameters: places(|layout| &layout.outputs, index),
        };
        ModelInferRequest {
            model_name: address.model.clone(),
            model_version: address.version.clone(),
            inputs: info.inputs.iter().zip(inputs).enumerate().map(input).collect(),
            outputs: info.outputs.iter().enumerate().map(output).collect(),
        }
    }

    /// The bytes of all outputs for so many pictures, where they are known.
    fn expected(&self, rows: usize) -> Option<usize> {
        let mut sizes = self.model.info.outputs.iter().map(|output| self.model.output_bytes(output, rows));
        sizes.try_fold(0usize, |sum, size| sum.checked_add(size?))
    }

    /// The tensor of an output that is wanted.
    fn output(
        &self,
        at: usize,
        declared: &TensorDesc,
        answer: &InferAnswer,
        layout: Option<&Layout>,
    ) -> Result<Tensor> {
        let place = answer.outputs.iter().position(|output| output.name == declared.name);
        let Some(place) = place else { return Err(self.wrong(format!("output {} is missing", declared.name))) };
        let AnswerOutput { datatype, shape, contents, .. } = &answer.outputs[place];
        let desc = TensorDesc::new(declared.name.as_str(), declared.dtype, shape);
        if *datatype != datatype::name(declared.dtype) || !desc.dims.is_static() || !desc.dims.fits(&declared.dims) {
            let datatype = crate::redact::printable(datatype, 20);
            return Err(self.wrong(format!("output {declared} comes as {datatype} {}", desc.dims)));
        }
        let wanted = desc.bytes().ok_or_else(|| self.wrong(format!("output {desc} is too large")))?;
        let of_length = |have: usize| match have == wanted {
            true => Ok(()),
            false => Err(self.wrong(format!("output {desc} has {have} bytes in place of {wanted}"))),
        };
        let raw = answer.raw.get(place).copied();
        let is_sent = contents.is_some() || raw.is_some_and(|raw| !raw.is_empty());
        let shared = layout.and_then(|layout| layout.outputs.get(at)).filter(|_| !is_sent);
        if let (Some(&(start, length)), RegionState::Registered(_, region)) = (shared, &self.region) {
            of_length(length)?;
            return Tensor::fill(&self.pool, desc, |bytes| {
                region.read(start, bytes);
                Ok(())
            });
        }
        if let Some(raw) = raw {
            of_length(raw.len())?;
            return Tensor::fill(&self.pool, desc, |bytes| {
                bytes.copy_from_slice(raw);
                Ok(())
            });
        }
        let elements = contents.and_then(|contents| answer::elements(contents, &desc));
        let elements = elements.ok_or_else(|| self.wrong(format!("output {desc} has no bytes, or not as many")))?;
        Tensor::fill(&self.pool, desc, |bytes| {
            bytes.copy_from_slice(&elements);
            Ok(())
        })
    }

    /// An answer that is not what the server says of its model.
    #[track_caller]
    fn wrong(&self, cause: String) -> Error {
        Error::new(ErrorKind::Run, format!("{} answers something else than it says of itself", self.model.address))
            .cause(cause)
            .remedy("Check the model's configuration on the server. If it was changed, start the pipeline again")
    }

    /// Where tensors lie in memory that the server has too, which is made and registered here; `None` where they are sent.
    fn layout(
        &mut self,
        inputs: &[&Tensor],
        rows: usize,
        deadline: Instant,
    ) -> std::result::Result<Option<Layout>, CallError> {
        const MOST: usize = 256 << 20;
        let use_it = self.model.shared_memory;
        if use_it == SharedMemoryUse::Off || matches!(self.region, RegionState::Refused) {
            return Ok(None);
        }
        let number = self.client.connect(deadline)?;
        if let RegionState::Registered(of, _) = &self.region
            && *of != number
        {
            self.forget();
        }
        let mut layout = Layout { inputs: Vec::new(), outputs: Vec::new(), bytes: 0 };
        let mut place = |bytes: usize| {
            let at = layout.bytes;
            layout.bytes += bytes.next_multiple_of(ALIGNMENT);
            (at, bytes)
        };
        let in_front = inputs.iter().map(|tensor| place(tensor.bytes().unwrap_or_default().len())).collect();
        let outputs = &self.model.info.outputs;
        let sizes: Option<Vec<usize>> = outputs.iter().map(|output| self.model.output_bytes(output, rows)).collect();
        let sizes = sizes.filter(|sizes| {
            sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size)).is_some_and(|sum| sum <= MOST)
        });
        let behind = sizes.into_iter().flatten().map(place).collect();
        (layout.inputs, layout.outputs) = (in_front, behind);
        let refused = CallError::Refused;
        let why = if !self.model.has_shared_memory {
            Err(refused("the server does not have the extension system_shared_memory".into()))
        } else if !self.client.is_local() {
            Err(refused("the server is on another machine".into()))
        } else if layout.bytes > MOST {
            Err(refused(format!("tensors of {} bytes are too many", layout.bytes)))
        } else {
            self.register(layout.bytes, number, deadline)
        };
        match why {
            Ok(()) => Ok(Some(layout)),
            Err(CallError::Refused(why)) if use_it == SharedMemoryUse::Auto => {
                log(
                    Level::Info,
                    &format!("{} gets tensors by its connection, not by shared memory: {why}", self.model.address),
                );
                self.region = RegionState::Refused;
                Ok(None)
            }
            Err(CallError::Refused(why)) => Err(CallError::Refused(format!("shared-memory=on cannot be, {why}"))),
            Err(error) => Err(error),
        }
    }

    /// Memory of at least so many bytes that the server has.
    fn register(&mut self, bytes: usize, number: u64, deadline: Instant) -> std::result::Result<(), CallError> {
        if matches!(&self.region, RegionState::Registered(_, region) if region.bytes() >= bytes) {
            return Ok(());
        }
        self.forget();
        for name in std::mem::take(&mut self.stale) {
            self.unregister(name, deadline)?;
        }
        let region = SharedRegion::new(bytes)
            .map_err(|error| CallError::Refused(format!("no shared memory of {bytes} bytes can be had: {error}")))?;
        let (name, key) = (region.key.clone(), region.key.clone());
        let request = SystemSharedMemoryRegisterRequest { name, key, offset: 0, byte_size: region.bytes() as u64 };
        self.stale.push(region.key.clone());
        let done = self.client.describe::<EmptyMessage>("SystemSharedMemoryRegister", &request, deadline);
        region.hide();
        done?;
        self.stale.pop();
        self.region = RegionState::Registered(number, region);
        Ok(())
    }

    /// The server is to give up that memory. Whether it has it is not known.
    fn unregister(&mut self, name: String, deadline: Instant) -> std::result::Result<(), CallError> {
        let request = SystemSharedMemoryUnregisterRequest { name };
        match self.client.describe::<EmptyMessage>("SystemSharedMemoryUnregister", &request, deadline) {
            Err(CallError::Refused(..)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// EmptyMessage more is put into this memory: a request that had no answer may still use it.
    fn forget(&mut self) {
        if let RegionState::Registered(_, region) = std::mem::replace(&mut self.region, RegionState::None) {
            self.stale.push(region.key.clone());
        }
    }
}

impl RemoteModel {
    /// The bytes of an output for so many pictures, where they are known: an open dimension in front is that of pictures where
    /// the server makes batches, and else any number of rows.
    fn output_bytes(&self, output: &TensorDesc, rows: usize) -> Option<usize> {
        let mut desc = output.clone();
        if let Some(first) = desc.dims.0.first_mut().filter(|first| **first == Dims::DYNAMIC && self.max_batch > 0) {
            *first = rows as i64;
        }
        desc.bytes()
    }

    /// The error of a call whose time is over, or that is not worth another attempt.
    #[track_caller]
    pub fn failed(&self, error: &CallError, last: Option<&str>) -> Error {
        let (what, seconds) = (&self.address, self.timeout.as_secs_f64());
        match error {
            CallError::Late | CallError::Lost(_) => {
                let lost = match error {
                    CallError::Lost(why) => Some(why.as_str()),
                    _ => last,
                };
                Error::new(ErrorKind::Run, format!("{what} has not answered within {seconds} s"))
                    .cause(lost.unwrap_or("the request was sent, and no answer came"))
                    .remedy("Check that the server runs, and how much it has to do; or set request-timeout to more")
            }
            CallError::Interrupted => {
                Error::new(ErrorKind::Run, format!("A request of {what} was given up")).cause("its stream has stopped")
            }
            CallError::Refused(why) => Error::new(ErrorKind::Run, format!("{what} refuses a request"))
                .cause(why)
                .remedy("Check the model on the server, and its log"),
            CallError::Garbage(why) => {
                Error::new(ErrorKind::Run, format!("{what} gives no answer of the protocol KServe v2"))
                    .cause(why)
                    .remedy("Check that this is the server's port for gRPC, and what is between here and there")
            }
        }
    }
}

/// Where a tensor lies.
fn parameters(region: &str, at: usize, bytes: usize) -> HashMap<String, InferParameter> {
    let number = |number: usize| InferParameter { int64_param: Some(number as i64), string_param: None };
    let region = InferParameter { int64_param: None, string_param: Some(region.into()) };
    HashMap::from([
        ("shared_memory_region".into(), region),
        ("shared_memory_offset".into(), number(at)),
        ("shared_memory_byte_size".into(), number(bytes)),
    ])
}

impl HostNet for ServerNet {
    fn infer(&mut self, batch: &Tensor, sides: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        let inputs: Vec<&Tensor> = sides.iter().map(|side| side.as_ref().unwrap_or(batch)).collect();
        let rows = batch.desc().dims.first().map_or(1, |&rows| rows as usize);
        let control = self.client.control().clone();
        let _running = control.begin();
        let deadline = Instant::now() + self.model.timeout;
        let (mut pause, mut last) = (BACKOFF.0, None::<String>);
        loop {
            let was_connected = self.client.is_connected();
            let error = match self.attempt(&inputs, rows, deadline) {
                Ok(outputs) => {
                    if last.is_some() {
                        log(Level::Info, &format!("{} answers again", self.model.address));
                    }
                    return outputs.inspect_err(|_| self.forget());
                }
                Err(error) => error,
            };
            self.forget();
            let CallError::Lost(why) = &error else { return Err(self.model.failed(&error, last.as_deref())) };
            let is_first = last.replace(why.clone()).is_none();
            if is_first && was_connected && !self.client.is_connected() {
                continue; // the connection has ended since the last request
            }
            if Instant::now() + pause >= deadline {
                return Err(self.model.failed(&error, None));
            }
            if pause == BACKOFF.0 {
                log(Level::Warning, &format!("{} is not there, and is tried again: {why}", self.model.address));
            }
            control.pause(pause);
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    fn another(&self) -> Result<Self> {
        Ok(ServerNet::new(self.model.clone()))
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let control = self.client.control().clone();
        Some(Arc::new(move || control.interrupt()))
    }
}

impl Drop for ServerNet {
    fn drop(&mut self) {
        self.forget();
        if self.client.is_connected() {
            let deadline = Instant::now() + Duration::from_secs(1);
            for name in std::mem::take(&mut self.stale) {
                let _ = self.unregister(name, deadline); // it stays with the server until that ends
            }
        }
    }
}
