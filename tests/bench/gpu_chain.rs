//! Tensors that go through the host against those that stay in GPU memory, with the same engine:
//!
//! `cargo bench --bench gpu_chain -- ENGINE [LIBRARY]`
//!
//! A time is that from the first call to results, the median of many, one frame at a time. Regular: the tensor lies on the host
//! and is copied to the GPU, the model runs, its outputs are copied back. Zero-copy: the tensor is there and the outputs stay.
//! The complete chain begins with a decoded 1080p frame in GPU memory and ends with boxes on the host.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::result;
use gsttrt::cuda::driver::{self, Stream};
use gsttrt::cuda::kernels::boxes::Boxes;
use gsttrt::cuda::kernels::preprocess::Preprocess;
use gsttrt::cuda::kernels::{DevicePlane, DevicePlanes};
use gsttrt::cuda::memory::{DeviceBlock, DevicePool, Mapped};
use gsttrt::error::Result;
use gsttrt::tensor::{Dims, Tensor, TensorDesc};
use gsttrt::tensorrt::engine::{Context, Engine, Options};
use gsttrt::tensorrt::header::Header;
use gsttrt::tensorrt::library::Library;
use gsttrt::vision::frame::{Colorimetry, Matrix, PixelFormat};
use gsttrt::vision::layout::{Decoder, Hints, Thresholds};
use gsttrt::vision::nms::Nms;
use gsttrt::vision::recipe::InputSpec;

const REPEATS: usize = 501;
const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
/// How much faster zero-copy inference must be.
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
    run: Context,
    stream: Stream,
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
        Ok((Bench { run, stream: Stream::new(cuda)?, input, outputs }, tensors))
    }

    fn infer(&mut self) -> Result<()> {
        // SAFETY: all addresses are set, and stay.
        unsafe { self.run.enqueue(&self.stream) }
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
    let file = std::fs::read(engine).expect("the engine can be read");
    let header = Header::read(&file)?;
    let chosen = arguments.get(1).filter(|path| !path.is_empty()).map(Path::new);
    let library = Library::open(chosen, Some(&header))?;
    let engine = Engine::load(&cuda, library, &file, &header, &Options { allow_host_code: true, dla_core: None })?;
    let (mut bench, tensors) = Bench::new(&cuda, &engine)?;
    let _entered = cuda.enter()?;

    // A decoded frame, as nvh264dec lays it out.
    let desc = bench.input.0.clone();
    let spec: InputSpec =
        format!("cuda {} {} nchw rgb letterbox:114 scale:0.003921569 images", desc.dtype, desc.dims).parse()?;
    let color = Colorimetry { matrix: Matrix::Bt709, chroma_left: true, ..Colorimetry::default() };
    let preprocess = Preprocess::new(&cuda, PixelFormat::Nv12, (WIDTH, HEIGHT), color, &spec)?;
    let stride = 2048;
    let mut frame = DevicePool::new(&cuda).take(stride * HEIGHT * 3 / 2)?;
    frame.write(&(0..stride * HEIGHT * 3 / 2).map(|i| (i * 7 % 256) as u8).collect::<Vec<_>>())?;
    let planes: DevicePlanes = [0, stride * HEIGHT]
        .map(|start| DevicePlane { address: frame.address() + start as u64, stride })
        .into_iter()
        .collect();
    let descs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
    let [.., height, width] = desc.dims[..] else { panic!("a picture has two dimensions") };
    let hints = Hints { input: Some((width as u32, height as u32)), ..Hints::default() };
    let decoder = Decoder::new(None, &descs, &hints)?;
    let mut boxes = Boxes::new(&cuda, &decoder)?;
    let (thresholds, nms) = (Thresholds::uniform(0.25), Nms::new(0.45, 300, false));

    let regular = time(|| {
        bench.copy_in()?;
        bench.infer()?;
        bench.copy_out()?;
        bench.stream.synchronize()
    })?;
    let zero_copy = time(|| {
        bench.infer()?;
        bench.stream.synchronize()
    })?;
    let copies = time(|| {
        bench.copy_in()?;
        bench.copy_out()?;
        bench.stream.synchronize()
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
    println!(
        "{}, {library}, {desc}, {:.2} MB moved by the regular path from and to pinned memory",
        cuda.device_name()?,
        moved as f64 / 1e6
    );
    println!("regular               {regular:>8.1} µs");
    println!("zero-copy inference   {zero_copy:>8.1} µs");
    println!("copies                {copies:>8.1} µs");
    println!("complete chain        {chain:>8.1} µs   from the decoded frame to boxes");
    let ratio = regular / zero_copy;
    println!(
        "zero-copy inference is {ratio:.2}x as fast as the regular path; regular {regular:.0}, zero-copy {zero_copy:.0}, copies {copies:.0}, chain {chain:.0} µs"
    );
    std::process::exit(i32::from(ratio < BAR))
}
