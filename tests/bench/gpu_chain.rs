// SPDX-License-Identifier: MPL-2.0
//! Tensors that go through the host against those that stay in GPU memory, with the same engine:
//!
//! `cargo bench --bench gpu_chain -- ENGINE [LIBRARY]`
//!
//! A time is that from the first call to results, the median of many, one frame at a time, waited for as trtnms waits. Regular: the
//! tensor lies on the host and is copied to the GPU, the model runs, its outputs are copied back; from and to memory as a program has
//! it, or pinned. Zero-copy: the tensor is there and the outputs stay. The complete chain begins with a decoded 1080p frame in GPU
//! memory and ends with boxes on the host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::result;
use gsttrt_core::backends::tensorrt::engine::{Engine, ExecutionContext, RuntimeOptions};
use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::backends::tensorrt::{self, TrtOptions};
use gsttrt_core::cuda::driver::{self, Stream, WaitHistory};
use gsttrt_core::cuda::graph::Graph;
use gsttrt_core::error::Result;
use gsttrt_core::heads::{Decoder, ModelHints, Thresholds};
use gsttrt_core::image::device::{DevicePlane, DevicePlanes};
use gsttrt_core::image::frame::{Colorimetry, Matrix, PixelFormat};
use gsttrt_core::image::preprocess::kernel::PreprocessKernel;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::memory::{DeviceBlock, DevicePool, Mapped};
use gsttrt_core::model::ModelFile;
use gsttrt_core::postprocess::suppress::Nms;
use gsttrt_core::postprocess::suppress::device::DeviceDecoder;
use gsttrt_core::tensor::{Dims, Tensor, TensorDesc};

const REPEATS: usize = 501;
const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
/// How much faster zero-copy inference must be than the regular path from and to pinned memory, the faster of the two.
const BAR: f64 = 1.25;

/// Median microseconds.
fn time(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..REPEATS + 50 {
        let begun = Instant::now();
        run()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let times = &mut times[50..];
    times.sort_by(f64::total_cmp);
    Ok(times[REPEATS / 2])
}

/// An engine with its tensors in GPU memory, and a copy of each on the host.
struct Bench {
    /// Before what it was captured with.
    graph: Option<Graph>,
    run: ExecutionContext,
    stream: Arc<Stream>,
    history: WaitHistory,
    input: (TensorDesc, DeviceBlock, Mapped),
    outputs: Vec<(u64, Mapped)>,
}

impl Bench {
    /// With the outputs as tensors.
    fn new(cuda: &driver::Context, engine: &Arc<Engine>) -> Result<(Self, Vec<Tensor>)> {
        let mut run = engine.context()?;
        let pool = DevicePool::new(cuda);
        let input = engine.inputs()[0].clone();
        let dims = match input.desc.dims.is_static() {
            true => input.desc.dims.clone(),
            false => Dims::new(&[1, 3, 640, 640]),
        };
        run.set_input(&input, &dims)?;
        let desc = TensorDesc { dims, ..input.desc.clone() };
        let bytes = desc.bytes().expect("fixed dimensions");
        let block = pool.take(bytes)?;
        // SAFETY: blocks have their tensors' sizes and stay until the end.
        unsafe { run.set_address(&input, block.address()) }?;
        let input = (desc, block, Mapped::new(cuda, bytes)?);
        let (mut outputs, mut tensors) = (Vec::new(), Vec::new());
        for io in engine.outputs() {
            let desc = TensorDesc { dims: run.output_dims(io)?, ..io.desc.clone() };
            let bytes = desc.bytes().expect("fixed dimensions");
            let block = pool.take(bytes)?;
            let address = block.address();
            // SAFETY: as above.
            unsafe { run.set_address(io, address) }?;
            outputs.push((address, Mapped::new(cuda, bytes)?));
            tensors.push(Tensor::on_device(desc, block));
        }
        let (stream, history) = (Arc::new(Stream::new(cuda)?), WaitHistory::default());
        Ok((Bench { graph: None, run, stream, history, input, outputs }, tensors))
    }

    fn infer(&mut self) -> Result<()> {
        match &mut self.graph {
            // SAFETY: all addresses are set, and stay.
            Some(graph) => unsafe { graph.launch(&self.stream) },
            // SAFETY: as above.
            None => unsafe { self.run.enqueue(&self.stream) },
        }
    }

    /// As trtinfer does it with cuda-graph=on.
    fn capture(&mut self) -> Result<()> {
        self.infer()?;
        // SAFETY: as above.
        self.graph = Some(unsafe { self.run.capture(&self.stream) }?);
        self.stream.synchronize()
    }

    fn copy_in(&mut self) -> Result<()> {
        // SAFETY: both sides have the size, and stay.
        unsafe { self.stream.upload(self.input.2.host(), self.input.1.address()) }
    }

    fn copy_out(&mut self) -> Result<()> {
        for (address, host) in &mut self.outputs {
            // SAFETY: as above.
            unsafe { result::memcpy_dtoh_async(host.host_mut(), *address, self.stream.raw().cast()) }.expect("a copy");
        }
        Ok(())
    }

    /// From the first copy to the last, with tensors in memory that CUDA knows nothing of.
    fn regular(&mut self, input: &[u8], outputs: &mut [Vec<u8>]) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.stream.upload(input, self.input.1.address()) }?;
        self.infer()?;
        for ((address, _), host) in self.outputs.iter().zip(outputs) {
            // SAFETY: as above; such copies return once the host has the bytes.
            unsafe { result::memcpy_dtoh_async(host, *address, self.stream.raw().cast()) }.expect("a copy");
        }
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        self.stream.record_awaited(&self.history)?.wait_again(&mut self.history)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let missing = |what: &dyn std::fmt::Display| println!("SKIP: {what}");
    let (cuda, engine) = match (driver::Context::primary(0), arguments.first()) {
        (Ok(cuda), Some(engine)) => (cuda, engine),
        (Err(error), _) => {
            missing(&error);
            return Ok(());
        }
        (_, None) => {
            missing(&"no engine is named");
            return Ok(());
        }
    };
    let chosen = arguments.get(1).filter(|path| !path.is_empty()).map(PathBuf::from);
    let options = TrtOptions { library: chosen, ..TrtOptions::default() };
    let library = tensorrt::library_for(&ModelFile::new(Path::new(engine)), &options)?;
    let file = std::fs::read(engine).expect("the engine can be read");
    let header = Header::read(&file)?;
    let engine =
        Engine::load(&cuda, library, &file, &header, &RuntimeOptions { allow_host_code: true, dla_core: None })?;
    let (mut bench, tensors) = Bench::new(&cuda, &engine)?;
    cuda.with(|| -> Result<()> {

    // A decoded frame, as nvh264dec lays it out.
    let desc = bench.input.0.clone();
    let spec: InputSpec =
        format!("cuda {} {} nchw rgb letterbox:114 scale:0.003921569 images", desc.dtype, desc.dims).parse()?;
    let color = Colorimetry { matrix: Matrix::Bt709, chroma_left: true, ..Colorimetry::default() };
    let preprocess = PreprocessKernel::new(&cuda, PixelFormat::Nv12, (WIDTH, HEIGHT), color, &spec)?;
    let stride = 2048;
    let mut frame = DevicePool::new(&cuda).take(stride * HEIGHT * 3 / 2)?;
    frame.write(&(0..stride * HEIGHT * 3 / 2).map(|i| (i * 7 % 256) as u8).collect::<Vec<_>>())?;
    let planes: DevicePlanes = [0, stride * HEIGHT]
        .map(|start| DevicePlane { address: frame.address() + start as u64, stride })
        .into_iter()
        .collect();
    let descs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
    let [.., height, width] = desc.dims[..] else { panic!("a picture has two dimensions") };
    let hints = ModelHints { input: Some((width as u32, height as u32)), ..ModelHints::default() };
    let decoder = Decoder::new(None, &descs, &hints)?;
    let mut boxes = DeviceDecoder::new(&cuda, &decoder)?;
    let (thresholds, nms) = (Thresholds::uniform(0.25), Nms::new(0.45, 300, false));

    let enqueued = time(|| {
        bench.infer()?;
        bench.wait()
    })?;
    bench.capture()?;
    let input = vec![7; desc.bytes().expect("fixed dimensions")];
    let mut outputs: Vec<Vec<u8>> = bench.outputs.iter().map(|(_, host)| vec![0; host.host().len()]).collect();
    let pageable = time(|| bench.regular(&input, &mut outputs))?;
    let regular = time(|| {
        bench.copy_in()?;
        bench.infer()?;
        bench.copy_out()?;
        bench.wait()
    })?;
    let zero_copy = time(|| {
        bench.infer()?;
        bench.wait()
    })?;
    let copies = time(|| {
        bench.copy_in()?;
        bench.copy_out()?;
        bench.wait()
    })?;
    let address = bench.input.1.address();
    let chain = time(|| {
        // SAFETY: frame and tensor have their sizes and stay until the end.
        unsafe { preprocess.launch(&bench.stream, &planes, address) }?;
        bench.infer()?;
        boxes.launch(&bench.stream, &decoder.pick(&tensors)?, &thresholds, &nms)?;
        boxes.detections().map(drop)
    })?;
    let moved = desc.bytes().unwrap_or(0) + descs.iter().filter_map(TensorDesc::bytes).sum::<usize>();
    println!("{}, {library}, {desc}, {:.2} MB moved by the regular path", cuda.device_name()?, moved as f64 / 1e6);
    println!("regular               {pageable:>8.1} µs   from and to memory as a program has it");
    println!("regular, pinned       {regular:>8.1} µs");
    println!("zero-copy inference   {zero_copy:>8.1} µs");
    println!("… not captured        {enqueued:>8.1} µs");
    println!("copies, pinned        {copies:>8.1} µs");
    println!("complete chain        {chain:>8.1} µs   from the decoded frame to boxes");
    let ratio = regular / zero_copy;
    println!(
        "zero-copy inference is {ratio:.2}x as fast as the regular path from pinned memory, {:.2}x as fast as that from a program's; regular {regular:.0}, {pageable:.0}, zero-copy {zero_copy:.0}, copies {copies:.0}, chain {chain:.0} µs",
        pageable / zero_copy
    );
    std::process::exit(i32::from(ratio < BAR))
    })?
}
