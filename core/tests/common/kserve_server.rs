// SPDX-License-Identifier: MPL-2.0
//! A server of KServe v2 for tests, with HTTP/2 of its own, that answers as a test wants: right, late, never, or something else.
#![allow(dead_code)] // each test program uses a part

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest};
use gsttrt_core::tensor::{DType, Tensor, TensorDesc, Tensors};
use prost::Message;

use messages::*;

/// As the client has them.
#[path = "../../src/backends/kserve/messages.rs"]
pub mod messages;

/// What a server answers to a call.
pub enum Reply {
    Message(Vec<u8>),
    /// One of gRPC's codes, and a text.
    Status(u32, &'static str),
    /// Nothing, and it goes on.
    Never,
    /// It ends the connection.
    Close,
    /// It tells that it will, and does.
    GoAway,
    /// These bytes in place of frames, and then it ends the connection.
    Bytes(Vec<u8>),
    /// An answer of HTTP without gRPC.
    Http(&'static str),
}

/// What it does with the name of a method and a message.
pub type Handler = Arc<dyn Fn(&str, &[u8]) -> Reply + Send + Sync>;

pub struct FakeServer {
    pub port: u16,
    accepting: Option<thread::JoinHandle<()>>,
    connections: Arc<Mutex<FakeConnections>>,
}

#[derive(Default)]
struct FakeConnections {
    has_ended: bool,
    open: Vec<TcpStream>,
}

impl FakeServer {
    pub fn start(handler: Handler) -> Self {
        FakeServer::at(0, handler)
    }

    /// At that port, where one was before.
    pub fn at(port: u16, handler: Handler) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<FakeConnections>>::default();
        let known = connections.clone();
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), handler) = (stream, handler.clone()) else { return };
                let mut known = known.lock().unwrap();
                if known.has_ended {
                    return;
                }
                known.open.push(stream.try_clone().unwrap());
                // As servers of gRPC do: else the end of an answer waits 40 ms for the client's acknowledgement.
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || {
                    let _ = FakeConnection { stream, streams: HashMap::new() }.serve(&handler); // until it ends
                });
            }
        });
        FakeServer { port, accepting: Some(accepting), connections }
    }

    pub fn address(&self, model: &str) -> String {
        format!("grpc://127.0.0.1:{}/{model}", self.port)
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().open.len()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        let mut connections = self.connections.lock().unwrap();
        connections.has_ended = true;
        for stream in &connections.open {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(connections);
        // For the thread that waits for another one.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.accepting.take().unwrap().join(); // then its port is free
    }
}

struct FakeConnection {
    stream: TcpStream,
    /// The method and the body so far of each stream.
    streams: HashMap<u32, (String, Vec<u8>)>,
}

impl FakeConnection {
    fn serve(mut self, handler: &Handler) -> io::Result<()> {
        let mut preface = [0; 24];
        self.stream.read_exact(&mut preface)?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        self.frame(4, 0, 0, &[])?;
        self.frame(6, 0, 0, b"are you?")?;
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head)?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut payload)?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match head[3] {
                0 => {
                    if !payload.is_empty() {
                        for of in [0, stream] {
                            self.frame(8, 0, of, &(payload.len() as u32).to_be_bytes())?;
                        }
                    }
                    self.streams.entry(stream).or_default().1.extend(payload);
                    if head[4] & 1 != 0 {
                        let (method, body) = self.streams.remove(&stream).unwrap();
                        self.reply(stream, handler(&method, &body[5..]))?;
                    }
                }
                1 => {
                    let method = literals(&payload)[":path"].rsplit('/').next().unwrap().to_string();
                    self.streams.insert(stream, (method, Vec::new()));
                }
                4 if head[4] & 1 == 0 => self.frame(4, 1, 0, &[])?,
                6 => assert_eq!(payload, b"are you?"),
                _ => {}
            }
        }
    }

    fn reply(&mut self, stream: u32, reply: Reply) -> io::Result<()> {
        let begin = [&[0x88][..], &literal("content-type", "application/grpc")].concat();
        match reply {
            Reply::Message(message) => {
                let whole = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
                self.frame(1, 4, stream, &begin)?;
                // Padded, and in parts.
                for part in whole.chunks(100_000) {
                    self.frame(0, 8, stream, &[&[3], part, &[0; 3]].concat())?;
                }
                self.frame(1, 4 | 1, stream, &literal("grpc-status", "0"))
            }
            Reply::Status(code, text) => {
                let trailers =
                    [begin, literal("grpc-status", &code.to_string()), literal("grpc-message", text)].concat();
                let (first, rest) = trailers.split_at(5);
                self.frame(1, 1, stream, first)?;
                self.frame(9, 4, stream, rest)
            }
            Reply::Never => Ok(()),
            Reply::Close => Err(io::ErrorKind::ConnectionReset.into()),
            Reply::GoAway => {
                self.frame(7, 0, 0, &[0; 8])?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Reply::Bytes(bytes) => {
                self.stream.write_all(&bytes)?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Reply::Http(status) => self.frame(1, 4 | 1, stream, &literal(":status", status)),
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(kind, flags, stream, payload))
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        // The other handle of it would keep it open.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn literal(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127);
    [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// The headers of a client that sends literals only.
fn literals(mut block: &[u8]) -> HashMap<String, String> {
    let mut headers = HashMap::new();
    while !block.is_empty() {
        assert_eq!(block[0], 0, "literals");
        block = &block[1..];
        let mut text = || {
            let length = usize::from(block[0]);
            assert!(length < 127, "short ones");
            let text = String::from_utf8(block[1..=length].to_vec()).unwrap();
            block = &block[1 + length..];
            text
        };
        let name = text();
        headers.insert(name, text());
    }
    headers
}

/// `ModelInferRequest` with its bytes.
#[derive(Clone, PartialEq, Message)]
pub struct WholeInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferInputTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutputTensor>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub raw: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WholeInferResponse {
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InferOutputTensor>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub raw: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InferOutputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// `InferTensorContents`
    #[prost(bytes = "vec", optional, tag = "5")]
    pub contents: Option<Vec<u8>>,
}

/// A tensor's description and bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainTensor {
    pub name: String,
    pub datatype: String,
    pub shape: Vec<i64>,
    pub bytes: Vec<u8>,
}

pub type RunModel = dyn Fn(&[PlainTensor]) -> Vec<PlainTensor> + Send + Sync;

/// A model, and what the server says of it.
#[derive(Clone)]
pub struct FakeModel {
    pub name: &'static str,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
    pub parameters: Vec<(&'static str, String)>,
    pub max_batch_size: i32,
    pub extensions: &'static [&'static str],
    /// Gives the tensors of the outputs for those of the inputs.
    pub run: Arc<RunModel>,
}

/// A GPU that a server shares with its clients. `None` where something fails.
pub trait ServerGpu: Send + Sync {
    /// The address of the memory of a handle on the GPU of that number.
    fn open(&self, handle: &[u8], device: i64) -> Option<u64>;

    fn close(&self, address: u64);

    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()>;

    fn write(&self, address: u64, bytes: &[u8]) -> Option<()>;

    /// Runs the model on the tensors of one picture where they are, and says what the outputs are. `None` where it is run on the
    /// host.
    fn run(&self, _inputs: &[u64], _outputs: &[u64]) -> Option<Vec<TensorDesc>> {
        None
    }
}

/// Memory that a client has too.
enum SharedPart {
    System(File),
    /// An address.
    Cuda(u64),
}

type SharedParts = HashMap<String, SharedPart>;

/// Answers as Triton does, with shared memory, for one model.
pub fn answers(model: FakeModel) -> Handler {
    answers_with(model, None)
}

/// The same with a GPU.
pub fn answers_with(model: FakeModel, gpu: Option<Arc<dyn ServerGpu>>) -> Handler {
    let regions = Mutex::new(SharedParts::new());
    Arc::new(move |method, message| {
        let of = |name: &ModelName| name.name == model.name && matches!(name.version.as_str(), "" | "1");
        let named = || ModelName::decode(message).unwrap();
        match method {
            "ModelReady" => Reply::Message(ModelReadyResponse { ready: of(&named()) }.encode_to_vec()),
            "ModelMetadata" if of(&named()) => {
                let (inputs, outputs) = (model.inputs.clone(), model.outputs.clone());
                let (name, platform) = (model.name.to_string(), "fake".to_string());
                let answer = ModelMetadataResponse { name, platform, inputs, outputs, properties: HashMap::new() };
                Reply::Message(answer.encode_to_vec())
            }
            "ModelConfig" if of(&named()) => {
                let parameter =
                    |(key, value): &(&str, String)| (key.to_string(), ConfigParameter { string_value: value.clone() });
                let parameters = model.parameters.iter().map(parameter).collect();
                let config = Some(ServedConfig { max_batch_size: model.max_batch_size, parameters });
                Reply::Message(ModelConfigResponse { config }.encode_to_vec())
            }
            "ServerMetadata" => {
                let extensions = model.extensions.iter().map(|name| name.to_string()).collect();
                let (name, version) = ("fake".to_string(), "1".to_string());
                Reply::Message(ServerMetadataResponse { name, version, extensions }.encode_to_vec())
            }
            "SystemSharedMemoryRegister" => {
                let request = SystemSharedMemoryRegisterRequest::decode(message).unwrap();
                let path = format!("/dev/shm{}", request.key);
                match File::options().read(true).write(true).open(path) {
                    Ok(file) => {
                        regions.lock().unwrap().insert(request.name, SharedPart::System(file));
                        Reply::Message(Vec::new())
                    }
                    Err(_) => Reply::Status(3, "Unable to open shared memory region"),
                }
            }
            "SystemSharedMemoryUnregister" => {
                regions.lock().unwrap().remove(&RegionName::decode(message).unwrap().name);
                Reply::Message(Vec::new())
            }
            "SystemSharedMemoryStatus" => status(&regions.lock().unwrap(), message),
            "ModelInfer" => infer(&model, &regions.lock().unwrap(), gpu.as_deref(), message),
            _ => match &gpu {
                Some(gpu) => cuda_shared_memory(&mut regions.lock().unwrap(), &**gpu, method, message),
                None => Reply::Status(12, "unknown method"),
            },
        }
    })
}

/// What the extension `cuda_shared_memory` has.
fn cuda_shared_memory(regions: &mut SharedParts, gpu: &dyn ServerGpu, method: &str, message: &[u8]) -> Reply {
    match method {
        "CudaSharedMemoryRegister" => {
            let CudaSharedMemoryRegisterRequest { name, raw_handle, device_id, .. } =
                CudaSharedMemoryRegisterRequest::decode(message).unwrap();
            match gpu.open(&raw_handle, device_id) {
                Some(address) => {
                    assert!(regions.insert(name, SharedPart::Cuda(address)).is_none(), "each name is used once");
                    Reply::Message(Vec::new())
                }
                None => Reply::Status(3, "failed to open CUDA IPC handle"),
            }
        }
        "CudaSharedMemoryUnregister" => {
            if let Some(SharedPart::Cuda(address)) = regions.remove(&RegionName::decode(message).unwrap().name) {
                gpu.close(address);
            }
            Reply::Message(Vec::new())
        }
        "CudaSharedMemoryStatus" => status(regions, message),
        _ => Reply::Status(12, "unknown method"),
    }
}

/// Whether the server has a region.
fn status(regions: &SharedParts, message: &[u8]) -> Reply {
    match RegionName::decode(message).unwrap().name {
        name if regions.contains_key(&name) => {
            let regions = HashMap::from([(name, EmptyMessage {})]);
            Reply::Message(SharedMemoryStatusResponse { regions }.encode_to_vec())
        }
        _ => Reply::Status(5, "Unable to find shared memory region"),
    }
}

/// Where a tensor lies.
struct SharedPlace<'a> {
    part: &'a SharedPart,
    at: u64,
    length: usize,
}

impl<'a> SharedPlace<'a> {
    /// As parameters say.
    fn of(regions: &'a SharedParts, parameters: &HashMap<String, InferParameter>) -> Option<Self> {
        let number = |name: &str| parameters[name].int64_param.unwrap();
        let region = parameters.get("shared_memory_region")?.string_param.as_ref()?;
        let (at, length) = (number("shared_memory_offset") as u64, number("shared_memory_byte_size") as usize);
        Some(SharedPlace { part: &regions[region], at, length })
    }

    fn address(&self) -> Option<u64> {
        match self.part {
            SharedPart::System(_) => None,
            SharedPart::Cuda(address) => Some(address + self.at),
        }
    }

    fn read(&self, gpu: Option<&dyn ServerGpu>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.length];
        match (self.part, self.address()) {
            (SharedPart::System(file), _) => file.read_exact_at(&mut bytes, self.at).ok()?,
            (_, address) => gpu?.read(address?, &mut bytes)?,
        }
        Some(bytes)
    }

    fn write(&self, gpu: Option<&dyn ServerGpu>, bytes: &[u8]) -> Option<()> {
        assert_eq!(self.length, bytes.len());
        match (self.part, self.address()) {
            (SharedPart::System(file), _) => file.write_all_at(bytes, self.at).ok(),
            (_, address) => gpu?.write(address?, bytes),
        }
    }
}

fn infer(model: &FakeModel, regions: &SharedParts, gpu: Option<&dyn ServerGpu>, message: &[u8]) -> Reply {
    let request = WholeInferRequest::decode(message).unwrap();
    assert_eq!(request.model_name, model.name);
    let known = |parameters: &HashMap<String, InferParameter>| {
        parameters
            .get("shared_memory_region")
            .is_none_or(|region| regions.contains_key(region.string_param.as_ref().unwrap()))
    };
    let inputs = request.inputs.iter().map(|input| &input.parameters);
    if !inputs.chain(request.outputs.iter().map(|output| &output.parameters)).all(known) {
        return Reply::Status(3, "Unable to find shared memory region");
    }
    if let Some(answer) = gpu.and_then(|gpu| infer_in_place(&request, regions, gpu)) {
        return Reply::Message(answer.encode_to_vec());
    }
    match infer_on_host(model, request, regions, gpu) {
        Some(answer) => Reply::Message(answer.encode_to_vec()),
        None => Reply::Status(13, "the GPU fails"),
    }
}

/// The outputs are written where they are wanted, as those of one picture are by a server that computes on the GPU.
fn infer_in_place(
    request: &WholeInferRequest,
    regions: &SharedParts,
    gpu: &dyn ServerGpu,
) -> Option<WholeInferResponse> {
    let address = |parameters: &HashMap<String, InferParameter>| SharedPlace::of(regions, parameters)?.address();
    let is_one = request.inputs.iter().all(|input| input.shape[0] == 1);
    let inputs = request.inputs.iter().map(|input| address(&input.parameters)).collect::<Option<Vec<_>>>()?;
    let outputs = request.outputs.iter().map(|output| address(&output.parameters)).collect::<Option<Vec<_>>>()?;
    let descs = if is_one { gpu.run(&inputs, &outputs)? } else { return None };
    let output = |desc: TensorDesc| {
        let datatype = datatype(desc.dtype).into();
        InferOutputTensor { name: desc.name, datatype, shape: desc.dims.to_vec(), contents: None }
    };
    let outputs: Vec<_> = descs.into_iter().map(output).collect();
    Some(WholeInferResponse { raw: vec![Vec::new(); outputs.len()], outputs })
}

fn infer_on_host(
    model: &FakeModel,
    request: WholeInferRequest,
    regions: &SharedParts,
    gpu: Option<&dyn ServerGpu>,
) -> Option<WholeInferResponse> {
    let mut raw = request.raw.into_iter();
    let input = |input: InferInputTensor| {
        let bytes = match SharedPlace::of(regions, &input.parameters) {
            Some(place) => place.read(gpu)?,
            None => raw.next().unwrap(),
        };
        Some(PlainTensor { name: input.name, datatype: input.datatype, shape: input.shape, bytes })
    };
    let inputs: Vec<PlainTensor> = request.inputs.into_iter().map(input).collect::<Option<_>>()?;
    let mut answer = WholeInferResponse::default();
    for output in (model.run)(&inputs) {
        let asked = request.outputs.iter().find(|asked| asked.name == output.name).unwrap();
        let raw = match SharedPlace::of(regions, &asked.parameters) {
            Some(place) => {
                place.write(gpu, &output.bytes)?;
                Vec::new()
            }
            None => output.bytes,
        };
        let PlainTensor { name, datatype, shape, .. } = output;
        answer.outputs.push(InferOutputTensor { name, datatype, shape, contents: None });
        answer.raw.push(raw);
    }
    Some(answer)
}

/// How the protocol calls a type.
pub fn datatype(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "FP32",
        DType::I64 => "INT64",
        other => unreachable!("the models here have no {other}"),
    }
}

/// What is given for a picture.
pub fn plain(tensors: &Tensors) -> Vec<PlainTensor> {
    let plain = |tensor: &Tensor| PlainTensor {
        name: tensor.desc().name.clone(),
        datatype: datatype(tensor.desc().dtype).into(),
        shape: tensor.desc().dims.to_vec(),
        bytes: tensor.bytes().unwrap().to_vec(),
    };
    tensors.iter().map(plain).collect()
}

/// A file with a batch of 1 as a server has it, which rten runs.
pub fn served(name: &'static str, file: &str) -> FakeModel {
    let none = || unreachable!("it is no GPU");
    let rten = BackendPreference::Named("rten");
    let request = LoadRequest::new(Path::new(file), rten, None, 1, Options::default(), none).unwrap();
    let info = request.model().clone();
    let metadata = |tensors: &[TensorDesc]| {
        let of = |tensor: &TensorDesc| {
            let (name, datatype) = (tensor.name.clone(), datatype(tensor.dtype).into());
            TensorMetadata { name, datatype, shape: tensor.dims.to_vec() }
        };
        tensors.iter().map(of).collect()
    };
    let model = Mutex::new(request.load(&LoadContext::silent()).unwrap());
    let run = move |inputs: &[PlainTensor]| {
        let [PlainTensor { name, datatype, shape, bytes }] = inputs else { panic!("one input") };
        assert_eq!(datatype, "FP32");
        let values: Vec<f32> = bytes.chunks(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect();
        let picture = Arc::new(Tensors::new(vec![Tensor::from_slice(name, shape, &values)], None, None));
        plain(&model.lock().unwrap().run(&[picture]).unwrap()[0])
    };
    FakeModel {
        name,
        inputs: metadata(&info.inputs),
        outputs: metadata(&info.outputs),
        parameters: info.metadata.iter().map(|(key, value)| (key.clone().leak() as &str, value.clone())).collect(),
        max_batch_size: 0,
        extensions: &["classification", "system_shared_memory"],
        run: Arc::new(run),
    }
}
