// SPDX-License-Identifier: MPL-2.0
//! Tensors that stay on a real GPU, for a model on a server in another process. The server is this program again: it opens regions by
//! their handles, and runs the model with TensorRT.
//!
//! Needs a GPU and TensorRT: `TRT_PROPERTIES` are the options of its session, such as `trt-library=… engine-cache=…`, and `GPU_ONNX`
//! is the model, by default shapes.onnx.
//!
//! As a server alone, until its standard input ends: `KSERVE_MODEL=FILE core --exact kserve_gpu::serve --nocapture`

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cudarc::driver::sys;
use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::error::Result;
use gsttrt_core::memory::DeviceBlock;
use gsttrt_core::session::{Session, SessionOptions, parse_options};
use gsttrt_core::tensor::{Tensor, TensorDesc, Tensors};

use crate::common::gpu::{context, setting, skip};
use crate::common::path;
use crate::kserve_server::messages::TensorMetadata;
use crate::kserve_server::*;

/// Before the address, in a line of the server.
const READY: &str = "The server is at ";
const NAME: &str = "model";

/// The options of TensorRT, and some more.
fn trt_options(more: &[&str]) -> SessionOptions {
    let words = setting("TRT_PROPERTIES").unwrap_or_default();
    parse_options(words.split_whitespace().chain(more.iter().copied())).unwrap().0
}

/// What the server has of the GPU.
struct ServedGpu {
    context: Context,
    stream: Stream,
    session: Arc<Mutex<Session>>,
}

impl ServedGpu {
    /// Memory of a client.
    fn block(&self, address: u64, bytes: usize) -> DeviceBlock {
        // SAFETY: the client has so many bytes there, until it has its answer.
        unsafe { DeviceBlock::foreign(&self.context, address, bytes, Arc::new(())) }
    }

    fn infer(&self, input: u64, outputs: &[u64]) -> Result<Vec<TensorDesc>> {
        let mut session = self.session.lock().unwrap();
        let desc = session.input().clone();
        let block = self.block(input, desc.bytes().unwrap());
        let picture = Tensors::new(vec![Tensor::on_device(desc, block)], None, None);
        let tensors = session.infer(&[Arc::new(picture)])?.remove(0).into_ready()?;
        for (tensor, &to) in tensors.iter().zip(outputs) {
            let block = tensor.device().expect("TensorRT's are on the GPU");
            // SAFETY: both have the output's bytes, and stay until this has waited.
            unsafe { self.stream.copy((block.context(), block.address()), to, tensor.desc().bytes().unwrap()) }?;
        }
        self.stream.record()?.wait()?;
        Ok(tensors.iter().map(|tensor| tensor.desc().clone()).collect())
    }
}

impl ServerGpu for ServedGpu {
    fn open(&self, handle: &[u8], device: i64) -> Option<u64> {
        let handle = sys::CUipcMemHandle { reserved: <[u8; 64]>::try_from(handle).ok()?.map(|byte| byte as _) };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut address = 0;
        // SAFETY: writes an address.
        let opened = self.context.with(|| unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags) });
        let opened = opened.ok()?.result().inspect_err(|error| println!("The handle is refused: {error:?}"));
        opened.ok().filter(|()| device == i64::from(self.context.device()))?;
        Some(address)
    }

    fn close(&self, address: u64) {
        // SAFETY: it was opened, and is no longer used.
        let closed = self.context.with(|| unsafe { sys::cuIpcCloseMemHandle(address) });
        assert!(closed.is_ok_and(|closed| closed.result().is_ok()));
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.block(address, bytes.len()).read_into(bytes).ok()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        self.block(address, bytes.len()).write(bytes).ok()
    }

    fn run(&self, inputs: &[u64], outputs: &[u64]) -> Option<Vec<TensorDesc>> {
        self.infer(inputs[0], outputs).inspect_err(|error| println!("{error}")).ok()
    }
}

/// A model as TensorRT runs it.
fn served_by_tensorrt(file: &str) -> Handler {
    let session = Session::open(file, &trt_options(&["backend=tensorrt"])).unwrap();
    let context = session.cuda().unwrap().clone();
    let metadata = |desc: &TensorDesc| TensorMetadata {
        name: desc.name.clone(),
        datatype: datatype(desc.dtype).into(),
        shape: desc.dims.to_vec(),
    };
    let (inputs, outputs) =
        (vec![metadata(session.input())], session.outputs().iter().map(metadata).collect::<Vec<_>>());
    let parameters = session.model().metadata.iter();
    let parameters = parameters.map(|(key, value)| (key.clone().leak() as &str, value.clone())).collect();
    let session = Arc::new(Mutex::new(session));
    let on_host = session.clone();
    let run = move |inputs: &[PlainTensor]| {
        let outputs = on_host.lock().unwrap().run_bytes(&inputs[0].bytes).unwrap();
        plain(&Tensors::new(outputs, None, None))
    };
    let extensions = &["system_shared_memory", "cuda_shared_memory"];
    let model =
        FakeModel { name: NAME, inputs, outputs, parameters, max_batch_size: 0, extensions, run: Arc::new(run) };
    let stream = Stream::new(&context).unwrap();
    answers_with(model, Some(Arc::new(ServedGpu { context, stream, session })))
}

/// Numbers of the same engine, which may differ in their last digits.
fn assert_near(found: &[u8], wanted: &[u8], way: &str) {
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
    };
    let (found, wanted) = (numbers(found), numbers(wanted));
    assert_eq!(found.len(), wanted.len(), "{way}");
    let differ = |(a, b): &(&f32, &f32)| (**a - **b).abs() > 1e-3 * b.abs().max(1.0);
    let differing = found.iter().zip(&wanted).filter(differ).count();
    assert!(differing == 0 && found.iter().any(|&number| number != 0.0), "{way}: {differing} of {}", wanted.len());
}

#[test]
fn serve() {
    let Some(file) = setting("KSERVE_MODEL") else { return };
    let server = FakeServer::start(served_by_tensorrt(&file));
    println!("\n{READY}{}", server.address(NAME));
    let _ = std::io::stdin().read_to_end(&mut Vec::new()); // until who started it ends
}

#[test]
fn gpu_outputs_of_another_process_are_those_of_this_one() {
    if context().is_none() {
        return;
    }
    if setting("TRT_PROPERTIES").is_none() {
        return skip("TRT_PROPERTIES is not set.");
    }
    let file = setting("GPU_ONNX").unwrap_or_else(|| path("tests/models/shapes.onnx"));
    let mut own = Session::open(&file, &trt_options(&["backend=tensorrt"])).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--exact", "kserve_gpu::serve", "--nocapture"]).env("KSERVE_MODEL", &file);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(|line| line.ok());
    let address = lines.find_map(|line| line.strip_prefix(READY).map(String::from)).expect("the server starts");
    let input: Vec<u8> =
        (0..own.input().dims.elements().unwrap()).flat_map(|at| ((at % 251) as f32 / 251.0).to_le_bytes()).collect();
    let wanted: Vec<Vec<u8>> =
        own.run_bytes(&input).unwrap().iter().map(|tensor| tensor.bytes().unwrap().to_vec()).collect();
    for way in ["shared-memory=cuda", "shared-memory=on", "shared-memory=off"] {
        let mut session = Session::open(&address, &parse_options([way]).unwrap().0).unwrap();
        assert_eq!(session.cuda().is_ok(), way.ends_with("cuda"));
        let picture = session.picture(&input).unwrap();
        const RUNS: u32 = 200;
        let begun = Instant::now();
        for run in 0..RUNS {
            let outputs = session.infer(std::slice::from_ref(&picture)).unwrap().remove(0).into_ready().unwrap();
            if run == 0 {
                let bytes = |tensor: &Tensor| {
                    tensor.device().map_or_else(|| tensor.bytes().unwrap().to_vec(), |block| block.read().unwrap())
                };
                outputs.iter().map(bytes).zip(&wanted).for_each(|(found, wanted)| assert_near(&found, wanted, way));
            }
        }
        println!("{way}: {:.0} µs a request", begun.elapsed().as_secs_f64() * 1e6 / f64::from(RUNS));
    }
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}
