// SPDX-License-Identifier: MPL-2.0
//! What the ways to run a model without a pipeline cost, on one machine with one model:
//!
//! `cargo bench --bench session -- MODEL [PROPERTY=VALUE…]`
//!
//! Properties are those of trtinfer and trtnms. A time is that from the call to results, the median of many, one at a time. Where
//! the model does not run on a GPU, only what works there is timed.
//!
//! An engine file is compared with a session around it, and without one, in a CUDA graph and by enqueueV3. These runs take turns on the
//! same tensors, for the GPU is faster at one time than at another, by more than a session costs. And they are waited for awake:
//! a fence's own wait mostly naps, by a sixteenth too long and more.

#[path = "../common/awake.rs"]
mod awake;

use std::path::Path;
use std::time::Instant;

use awake::wait_awake;
use gsttrt_core::backends::tensorrt::engine::ExecutionContext;
use gsttrt_core::backends::tensorrt::{self, TrtOptions};
use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::cuda::graph::Graph;
use gsttrt_core::device::Device;
use gsttrt_core::error::Result;
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, Frame, Matrix, PixelFormat, Plane};
use gsttrt_core::memory::Buffer;
use gsttrt_core::model::ModelFile;
use gsttrt_core::session::{Detector, DeviceFrame, Session, SessionOptions, parse_options};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
const STRIDE: usize = 2048;

/// Median microseconds; fewer repeats of what takes long.
fn time(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    times([&mut run]).map(|[time]| time)
}

/// The same of several that take turns, each behind a run of its own that is not timed, for caches are as the last run left them.
fn times<const N: usize>(mut runs: [&mut dyn FnMut() -> Result<()>; N]) -> Result<[f64; N]> {
    let mut turn = || -> Result<[f64; N]> {
        let mut took = [0.0; N];
        for (run, took) in runs.iter_mut().zip(&mut took) {
            run()?;
            let begun = Instant::now();
            run()?;
            *took = begun.elapsed().as_secs_f64() * 1e6;
        }
        Ok(took)
    };
    let longest = |took: [f64; N]| took.into_iter().fold(0.0, f64::max);
    let first = longest(turn()?).max(longest(turn()?));
    let repeats = (5e6 / first).clamp(11.0, 501.0) as usize;
    let turns = (0..repeats).map(|_| turn()).collect::<Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|i| {
        let mut times: Vec<f64> = turns.iter().map(|turn| turn[i]).collect();
        times.sort_by(f64::total_cmp);
        times[repeats / 2]
    }))
}

fn row(what: &str, time: f64, base: f64) {
    println!("{what:<44} {time:>9.1} µs {:>7.2}x", base / time);
}

/// An engine of one input without a session around it.
struct Alone {
    graph: Graph,
    context: ExecutionContext,
}

impl Alone {
    /// On tensors that stay, the input's and those of the outputs.
    fn new(path: &Path, options: &SessionOptions, stream: &Stream, input: u64, outputs: &[u64]) -> Result<Self> {
        let (file, trt) = (ModelFile::new(path), TrtOptions::from(&options.options));
        let library = tensorrt::library_for(&file, &trt)?;
        let (model, engine) = tensorrt::load_engine(&file, library, &trt, stream.context())?;
        let spec = model.input_spec(options.input_size, 1, Device::Cuda)?;
        let mut context = engine.context()?;
        context.set_input(&engine.inputs()[0], &spec.desc.dims)?;
        let all = engine.inputs().iter().chain(engine.outputs());
        for (io, &address) in all.zip(std::iter::once(&input).chain(outputs)) {
            // SAFETY: these are of such sizes, and stay.
            unsafe { context.set_address(io, address) }?;
        }
        // SAFETY: all is set, and stays.
        unsafe {
            context.enqueue(stream)?;
            stream.synchronize()?;
            Ok(Alone { graph: context.capture(stream)?, context })
        }
    }
}

/// What a session adds to its engine.
fn compare(
    path: &Path,
    options: &SessionOptions,
    session: &mut Session,
    stream: &Stream,
    (input, outputs): (u64, &[u64]),
    base: f64,
) -> Result<()> {
    let Alone { mut context, mut graph } = Alone::new(path, options, stream, input, outputs)?;
    // SAFETY: the tensors stay, and all that is queued is waited for.
    let [within, by_graph, by_enqueue] = times([
        &mut || wait_awake(&unsafe { session.run_device(input, outputs, stream.raw()) }?),
        &mut || unsafe { graph.launch(stream) }.and_then(|()| wait_awake(&stream.record()?)),
        &mut || unsafe { context.enqueue(stream) }.and_then(|()| wait_awake(&stream.record()?)),
    ])?;
    row("awake: run_device", within, base);
    row("awake: the engine alone, in a CUDA graph", by_graph, base);
    row("awake: the engine alone, by enqueueV3", by_enqueue, base);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/shapes.onnx").to_string();
    let (model, properties) = arguments.split_first().map_or((sample, &[][..]), |(model, more)| (model.clone(), more));
    let (options, postprocess) = parse_options(properties.iter().map(String::as_str))?;
    let mut session = Session::open(&model, &options)?;
    let (bytes, outputs) = (session.input().bytes().expect("fixed"), session.outputs().to_vec());
    println!("{model}, {} by {}", session.input(), session.backend());

    let picture = vec![0u8; bytes];
    let mut result = vec![0u8; outputs[0].bytes().expect("fixed")];
    let run = time(|| session.run_bytes(&picture).map(drop))?;
    row("run: host data in and out", run, run);
    let copied = time(|| session.copy_bytes_to_device(&picture))?;
    let mut on_buffers = || session.run_buffers()?.map_or(Ok(()), |fence| fence.wait());
    let own = time(&mut on_buffers)?;
    let read = time(|| session.copy_bytes_to_host(0, &mut result))?;
    row("run_buffers: its own memory", own, run);
    row("copy_input_to_device", copied, run);
    row("copy_output_to_host", read, run);

    let cuda = if session.backend() == "tensorrt" {
        Some(Context::primary(options.cuda_device_id.unwrap_or_default())?)
    } else {
        None
    };
    if let Some(cuda) = &cuda {
        let (stream, input) = (Stream::new(cuda)?, Buffer::device(cuda, bytes)?);
        let results = outputs.iter().map(|desc| Buffer::device(cuda, desc.bytes().expect("fixed")));
        let results = results.collect::<Result<Vec<_>>>()?;
        let addresses: Vec<u64> = results.iter().filter_map(Buffer::address).collect();
        let at = input.address().expect("on the device");
        // SAFETY: all of it stays until the end.
        let device = time(|| unsafe { session.run_device(at, &addresses, stream.raw()) }?.wait())?;
        row("run_device: the caller's GPU memory", device, run);
        if ModelFile::new(Path::new(&model)).is_engine() {
            compare(Path::new(&model), &options, &mut session, &stream, (at, &addresses), run)?;
        }
    }

    // A decoded frame, as nvh264dec lays it out.
    let color = Colorimetry { matrix: Matrix::Bt709, chroma_left: true, ..Colorimetry::default() };
    let pixels: Vec<u8> = (0..STRIDE * HEIGHT * 3 / 2).map(|i| (i * 7 % 256) as u8).collect();
    let (luma, chroma) = pixels.split_at(STRIDE * HEIGHT);
    let planes = [luma, chroma].map(|data| Plane { data, stride: STRIDE }).into_iter().collect();
    let frame = Frame { format: PixelFormat::Nv12, width: WIDTH, height: HEIGHT, planes };
    let mut detector = Detector::new(session, postprocess)?;
    let chain = time(|| detector.detect(&frame, color).map(drop))?;
    row("detect: from a 1080p frame on the host", chain, run);
    if let Some(cuda) = &cuda {
        let mut copy = Buffer::device(cuda, pixels.len())?;
        copy.write(0, &pixels)?;
        let address = copy.address().expect("on the device");
        let planes = [0, STRIDE * HEIGHT].map(|start| DevicePlane { address: address + start as u64, stride: STRIDE });
        let planes = planes.into_iter().collect();
        let frame = DeviceFrame { format: PixelFormat::Nv12, width: WIDTH, height: HEIGHT, planes };
        // SAFETY: the frame is not shared.
        let chain = time(|| unsafe { detector.detect_device(&frame, color, std::ptr::null_mut()) }.map(drop))?;
        row("detect_device: from one on the GPU", chain, run);
    }
    Ok(())
}
