// SPDX-License-Identifier: MPL-2.0
//! TensorRT on a GPU: engines are built, loaded, run, and compute what the CPU computes.
//!
//! Skipped where there is no GPU or no TensorRT, unless REQUIRE_GPU=1. `TRT_LIBRARY` names a library as the property
//! `trt-library` does, and `TRT_LEAN` the files or folders of lean runtimes, with colons between them. The engines that
//! are built stay in the scratch folder tensorrt-plans, and are taken from the folder `TRT_PLANS` where they are there.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::tensorrt::builder::{self, BuildOptions, Built, Precision, Shape};
use gsttrt_core::backends::tensorrt::engine::{Engine, ExecutionContext, RuntimeOptions, TensorBinding};
use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::backends::tensorrt::interfaces::Level;
use gsttrt_core::backends::tensorrt::library::Library;
use gsttrt_core::backends::tensorrt::onnx::Onnx;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest};
use gsttrt_core::cuda::driver::{self, Stream};
use gsttrt_core::device::Device;
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::memory::{DeviceBlock, DevicePool, Pool};
use gsttrt_core::model::{InputValues, ModelInfo};
use gsttrt_core::session::parse_options;
use gsttrt_core::tensor::{DType, Dims, Tensor, Tensors};

use crate::common::npy::save_floats;
use crate::common::onnx::{F32, Graph, I64};

/// The GPU and the TensorRT to test, or the reason why not.
fn gpu() -> Option<(driver::Context, &'static Library)> {
    gsttrt_core::backends::tensorrt::interfaces::set_hook(|level, line| {
        if matches!(level, Level::Error | Level::Warning) {
            println!("TensorRT, {level:?}: {line}");
        }
    });
    let chosen = std::env::var_os("TRT_LIBRARY").map(PathBuf::from);
    let found = driver::Context::primary(0).and_then(|cuda| Ok((cuda, Library::open(chosen.as_deref(), None)?)));
    found.map_err(crate::common::gpu::skip).ok()
}

/// Pseudo-random numbers of 0 to 1.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// Elements of f32 or f16 as f32.
fn floats(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        DType::F16 => bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        other => panic!("{other}"),
    }
}

fn of_floats(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => bytemuck::cast_slice(values).to_vec(),
        DType::F16 => values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect(),
        other => panic!("{other}"),
    }
}

fn build(library: &'static Library, onnx: &Onnx, options: &BuildOptions) -> Result<Built> {
    builder::build(library, onnx, options, None, &|_| (), &AtomicBool::new(false))
}

fn quick() -> BuildOptions {
    BuildOptions { level: Some(0), ..Default::default() }
}

fn load(cuda: &driver::Context, library: &'static Library, file: &[u8], allow_host_code: bool) -> Result<Arc<Engine>> {
    let options = RuntimeOptions { allow_host_code, dla_core: None };
    Engine::load(cuda, library, file, &Header::read(file)?, &options)
}

/// A context with memory for all tensors.
struct Run {
    context: ExecutionContext,
    blocks: Vec<(TensorBinding, DeviceBlock)>,
    stream: Stream,
}

impl Run {
    fn new(cuda: &driver::Context, engine: &Arc<Engine>, dims: &Dims) -> Result<Self> {
        let (mut context, stream) = (engine.context()?, Stream::new(cuda)?);
        let input = engine.inputs()[0].clone();
        if !input.desc.dims.is_static() {
            context.use_profile(0, &stream)?;
        }
        context.set_input(&input, dims)?;
        let pool = DevicePool::new(cuda);
        let mut blocks = Vec::new();
        for io in engine.inputs().iter().chain(engine.outputs()).cloned() {
            let dims = if io == input { dims.clone() } else { context.output_dims(&io)? };
            let block = pool.take(dims.elements().unwrap() * io.desc.dtype.size())?;
            // SAFETY: the block has the tensor's size and lives as long as the context.
            unsafe { context.set_address(&io, block.address()) }?;
            blocks.push((io, block));
        }
        Ok(Run { context, blocks, stream })
    }

    /// Bytes of all outputs.
    fn run(&mut self, input: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.blocks[0].1.write(input)?;
        // SAFETY: all is set, and stays.
        unsafe { self.context.enqueue(&self.stream) }?;
        self.stream.synchronize()?;
        self.blocks[1..].iter().map(|(_, block)| block.read()).collect()
    }
}

#[test]
fn outputs_are_those_of_the_cpu() {
    let Some((cuda, library)) = gpu() else { return };
    println!("{library} on {}", cuda.device_name().unwrap());
    let plans = crate::common::scratch("tensorrt-plans");
    let kept = PathBuf::from(std::env::var_os("TRT_PLANS").unwrap_or_default());
    for (file, precision, compatible, tolerance) in [
        ("shapes.onnx", Precision::Fp32, false, 1e-4),
        ("shapes.onnx", Precision::Fp32, true, 1e-4),
        ("shapes.onnx", Precision::Fp16, false, 2e-2),
        ("shapes-v8.onnx", Precision::Fp32, false, 1e-4),
        ("shapes-f16.onnx", Precision::Auto, false, 2e-2),
        ("shapes-e2e.onnx", Precision::Fp32, false, 1e-4),
    ] {
        let path = PathBuf::from(crate::common::path(&format!("tests/models/{file}")));
        let cpu = BackendPreference::Named("rten");
        let request =
            LoadRequest::new(&path, cpu, None, 1, Options::default(), || unreachable!("it is no GPU")).unwrap();
        let (model, spec) = (request.model(), &request.spec);
        let (dtype, dims) = (spec.desc.dtype, spec.desc.dims.clone());
        let input = of_floats(dtype, &noise(dims.elements().unwrap()));
        let picture = Tensor::fill(&Pool::default(), spec.desc.clone(), |bytes| {
            bytes.copy_from_slice(&input);
            Ok(())
        });
        let mut cpu = request.load(&LoadContext::silent()).unwrap();
        let expected = cpu
            .run(&[Arc::new(Tensors::new(vec![picture.unwrap()], None, None))])
            .unwrap()
            .remove(0)
            .into_ready()
            .unwrap();

        let options = BuildOptions {
            precision,
            version_compatible: compatible,
            shapes: vec![Shape::fixed(&model.image_input().name, &dims)],
            ..quick()
        };
        let name = format!("{file}-{precision}{}.engine", if compatible { "-compatible" } else { "" });
        let begun = Instant::now();
        let bytes = match std::fs::read(kept.join(&name)) {
            Ok(bytes) => bytes,
            Err(_) if library.has_builder() => {
                let built = build(library, &Onnx::read(&path).unwrap(), &options);
                built.unwrap_or_else(|error| panic!("{name}: {error}")).engine
            }
            Err(_) => continue,
        };
        println!("{name}: {} bytes in {:.1?}", bytes.len(), begun.elapsed());
        std::fs::write(plans.join(&name), &bytes).unwrap();
        if !library.has_builder() && !compatible {
            continue;
        }

        if compatible && library.has_builder() {
            // Such plans run their own code on the host, which has to be allowed.
            let error = load(&cuda, library, &bytes, false).err();
            let error = error.expect("a refusal").message();
            assert!(error.contains("set allow-host-code=true"), "{error}");
        }
        let begun = Instant::now();
        let engine = load(&cuda, library, &bytes, compatible).unwrap_or_else(|error| panic!("{name}: {error}"));
        let loaded = begun.elapsed();
        let outputs: Vec<String> = engine.outputs().iter().map(|io| io.desc.to_string()).collect();
        println!(
            "{name}: {} -> {}; {} MiB, {} streams, loaded in {loaded:.1?}",
            engine.inputs()[0].desc,
            outputs.join(", "),
            engine.device_memory() >> 20,
            engine.auxiliary_streams()
        );
        let mut run = Run::new(&cuda, &engine, &dims).unwrap();
        let found = run.run(&input).unwrap();
        assert_eq!(found.len(), expected.len());
        for ((bytes, expected), io) in found.iter().zip(&expected).zip(engine.outputs()) {
            assert_eq!(io.desc.name, expected.desc().name);
            let found = floats(io.desc.dtype, bytes);
            let expected = floats(expected.desc().dtype, expected.bytes().unwrap());
            let scale = expected.iter().fold(1.0f32, |max, value| max.max(value.abs()));
            let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale;
            println!("{name}: {} differs by at most {worst:.2e} of the largest value", io.desc.name);
            assert_eq!(found.len(), expected.len());
            match file.contains("e2e") {
                // Rows of boxes that are about as good may change places, so they are looked for.
                true => assert_same_boxes(&name, &found, &expected, tolerance),
                false => assert!(worst < tolerance, "{name}: {worst}"),
            }
        }
        assert_eq!(run.run(&input).unwrap(), found, "the same again");

        // How long a run takes when the host does not wait for each.
        let begun = Instant::now();
        for _ in 0..200 {
            // SAFETY: as in `run`.
            unsafe { run.context.enqueue(&run.stream) }.unwrap();
        }
        let queued = begun.elapsed() / 200;
        run.stream.synchronize().unwrap();
        println!("{name}: {:.1?} each, {queued:.1?} of it to enqueue", begun.elapsed() / 200);
        // SAFETY: as in `run`, and nothing else uses the context.
        let mut graph = match unsafe { run.context.capture(&run.stream) } {
            Ok(graph) => graph,
            // How many boxes suppression leaves, TensorRT 8 asks the GPU while it queues.
            Err(error) if file.contains("e2e") && library.version().major == 8 => {
                println!("{name} is not captured: {error}");
                assert_eq!(run.run(&input).unwrap(), found, "and runs on");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let begun = Instant::now();
        for _ in 0..200 {
            // SAFETY: as above.
            unsafe { graph.launch(&run.stream) }.unwrap();
        }
        let queued = begun.elapsed() / 200;
        run.stream.synchronize().unwrap();
        println!("{name}, captured: {:.1?} each, {queued:.1?} of it to enqueue", begun.elapsed() / 200);
        let again: Vec<_> = run.blocks[1..].iter().map(|(_, block)| block.read().unwrap()).collect();
        assert_eq!(again, found, "captured, the same");
    }

    // What was built version-compatible runs in lean runtimes, and what was not is refused.
    let lean = std::env::var("TRT_LEAN").unwrap_or_default();
    for place in lean.split(':').filter(|place| !place.is_empty()) {
        let runtime = Library::open(Some(Path::new(place)), None).unwrap();
        for (name, works) in [("shapes.onnx-fp32-compatible.engine", true), ("shapes.onnx-fp32.engine", false)] {
            let Ok(plan) = std::fs::read(plans.join(name)) else { continue };
            match load(&cuda, runtime, &plan, true) {
                Ok(engine) => {
                    let dims = engine.inputs()[0].desc.dims.clone();
                    let input = of_floats(DType::F32, &noise(dims.elements().unwrap()));
                    let own = load(&cuda, library, &plan, true).unwrap();
                    let here = Run::new(&cuda, &own, &dims).unwrap().run(&input).unwrap();
                    let there = Run::new(&cuda, &engine, &dims).unwrap().run(&input).unwrap();
                    println!("{}: {name} runs, same bits: {}", runtime.name(), here == there);
                    assert!(works);
                }
                Err(error) => {
                    println!("{}: {name}: {error}", runtime.name());
                    assert!(!works || runtime.version().major == 11, "{error}");
                }
            }
        }
    }
}

/// Boxes of an end-to-end model, rows of corners, score and class: each of the fifty that score best is found again,
/// and no others are.
fn assert_same_boxes(name: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    let mut scores: Vec<f32> = expected.chunks_exact(6).map(|row| row[4]).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    let least = scores[50];
    let rows = |values: &[f32]| -> Vec<[f32; 6]> {
        values.chunks_exact(6).map(|row| row.try_into().expect("six")).filter(|row: &[f32; 6]| row[4] > least).collect()
    };
    let (mut found, expected) = (rows(found), rows(expected));
    assert!(!expected.is_empty(), "{name}: there is something to compare");
    let scale = expected.iter().flat_map(|row| &row[..4]).fold(1.0f32, |max, value| max.max(value.abs()));
    for row in &expected {
        let is_same = |other: &[f32; 6]| {
            other[5] == row[5]
                && (other[4] - row[4]).abs() < tolerance
                && (0..4).all(|i| (other[i] - row[i]).abs() < tolerance * scale)
        };
        match found.iter().position(is_same) {
            Some(at) => drop(found.swap_remove(at)),
            None => assert!(row[4] < least + tolerance, "{name}: {row:?} is missing"),
        }
    }
    assert!(found.iter().all(|row| row[4] < least + tolerance), "{name}: {found:?} are too many");
}

/// images [N,3,H,W] -> twice that, from 1x3x32x32 to 4x3x64x64.
fn doubled() -> Onnx {
    let dims = ["N", "3", "H", "W"];
    let graph = Graph::new()
        .input("images", F32, &dims)
        .node("Add", &["images", "images"], &["output0"], Vec::new())
        .output("output0", F32, &dims);
    Onnx::new(Path::new("doubled.onnx"), graph.bytes())
}

fn doubling(library: &'static Library) -> Built {
    let dims = |n, side| Dims::new(&[n, 3, side, side]);
    let shape = Shape { input: "images".into(), smallest: dims(1, 32), usual: dims(1, 64), largest: dims(4, 64) };
    build(library, &doubled(), &BuildOptions { shapes: vec![shape], ..quick() }).unwrap()
}

fn doubles(cuda: &driver::Context, engine: &Arc<Engine>, dims: &Dims) {
    let values = noise(dims.elements().unwrap());
    let outputs = Run::new(cuda, engine, dims).unwrap().run(bytemuck::cast_slice(&values)).unwrap();
    let expected: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
    assert_eq!(floats(DType::F32, &outputs[0]), expected);
}

#[test]
fn profiles_hold_what_they_were_built_for() {
    let Some((cuda, library)) = gpu() else { return };
    let engine = load(&cuda, library, &doubling(library).engine, false).unwrap();
    let input = &engine.inputs()[0];
    assert_eq!(input.desc.to_string(), "images f32 ?x3x?x?");
    assert_eq!(engine.profiles(), 1);
    let [min, usual, max] = engine.profile(input, 0).unwrap().map(|dims| dims.to_string());
    assert_eq!((min.as_str(), usual.as_str(), max.as_str()), ("1x3x32x32", "1x3x64x64", "4x3x64x64"));
    assert_eq!(engine.profile(input, 1), None);
    for dims in ["1x3x32x32", "2x3x48x64", "4x3x64x64"] {
        let dims: Dims = dims.parse().unwrap();
        assert_eq!(engine.profile_for(input, &dims), Some(0));
        doubles(&cuda, &engine, &dims);
    }
    let mut context = engine.context().unwrap();
    let stream = Stream::new(&cuda).unwrap();
    context.use_profile(0, &stream).unwrap();
    for wrong in ["5x3x64x64", "1x3x65x64", "1x4x64x64", "1x3x64"] {
        let dims: Dims = wrong.parse().unwrap();
        assert_eq!(engine.profile_for(input, &dims), None);
        let error = context.set_input(input, &dims).unwrap_err();
        println!("{error}");
        assert!(error.message().contains("1x3x32x32 to 4x3x64x64"), "{error}");
    }
    println!("{}", context.use_profile(1, &stream).unwrap_err());
    context.set_input(input, &"1x3x64x64".parse().unwrap()).unwrap();
    // SAFETY: TensorRT looks for the addresses that are missing.
    let error = unsafe { context.enqueue(&stream) }.unwrap_err();
    println!("{error}");
    assert!(error.kind() == ErrorKind::Run && error.message().contains("Error Code 3"), "{error}");
}

#[test]
fn broken_plans_are_refused() {
    let Some((cuda, library)) = gpu() else { return };
    let plan = doubling(library).engine;
    for end in [plan.len() / 2, plan.len() - 1, 64] {
        println!("{end} of {}: {}", plan.len(), load(&cuda, library, &plan[..end], false).err().unwrap());
    }
    let mut garbage = plan.clone();
    garbage[64..].fill(0xa5);
    println!("garbage: {}", load(&cuda, library, &garbage, false).err().unwrap());
    load(&cuda, library, &plan, false).unwrap();
}

#[test]
fn threads_share_an_engine() {
    let Some((cuda, library)) = gpu() else { return };
    let plan = doubling(library).engine;
    let fixed = build(library, &doubled_fixed(), &quick()).unwrap().engine;
    // Of open dimensions, contexts have the engine's one profile in common.
    let open: fn(i64) -> Dims = |thread| Dims::new(&[1 + thread, 3, 64, 64]);
    for (plan, dims) in [(&fixed, (|_| Dims::new(&[1, 3, 8, 8])) as fn(i64) -> Dims), (&plan, open)] {
        let engine = load(&cuda, library, plan, false).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (cuda, engine) = (&cuda, &engine);
                scope.spawn(move || (0..20).for_each(|_| doubles(cuda, engine, &dims(thread))));
            }
        });
    }
    // All memory comes back.
    let free = || cuda.memory().unwrap().0 >> 20;
    let before = free();
    for _ in 0..50 {
        doubles(&cuda, &load(&cuda, library, &plan, false).unwrap(), &Dims::new(&[1, 3, 32, 32]));
    }
    println!("free before {before} MiB, after {} MiB", free());
    assert!(free() + 16 >= before);
}

/// A decoder's context is no primary one, and what is in it may be freed by a thread that never used it.
#[test]
fn engines_live_in_foreign_contexts() {
    use cudarc::driver::{result, sys};
    let Some((primary, library)) = gpu() else { return };
    let plan = doubling(library).engine;
    drop(primary);
    let mut raw = std::ptr::null_mut();
    // SAFETY: writes a handle; it is popped from this thread again.
    unsafe {
        let device = result::device::get(0).unwrap();
        sys::cuCtxCreate_v2(&mut raw, 0, device).result().unwrap();
        sys::cuCtxPopCurrent_v2(&mut std::ptr::null_mut()).result().unwrap();
    }
    // SAFETY: the context is never destroyed.
    let cuda = unsafe { driver::Context::wrap(raw.cast::<c_void>(), 0, Box::new(())) }.unwrap();
    let free = || cuda.memory().unwrap().0 >> 20;
    let engine = load(&cuda, library, &plan, false).unwrap();
    doubles(&cuda, &engine, &Dims::new(&[2, 3, 64, 64]));
    let before = free();
    for _ in 0..20 {
        let engine = load(&cuda, library, &plan, false).unwrap();
        doubles(&cuda, &engine, &Dims::new(&[2, 3, 64, 64]));
        std::thread::spawn(move || drop(engine)).join().unwrap();
    }
    println!("free before {before} MiB, after {} MiB", free());
    assert!(free() + 16 >= before);
}

#[test]
fn calibrations_are_read() {
    let Some((cuda, library)) = gpu() else { return };
    // Full scale 2.0 for both tensors: 2/127, as the bits of a big-endian f32.
    let scale = (2.0f32 / 127.0).to_bits();
    let folder = crate::common::scratch("calibration");
    for (algorithm, name) in [("EntropyCalibration2", "entropy"), ("MinMaxCalibration", "minmax")] {
        let table = folder.join(name);
        let text = format!("TRT-{}-{algorithm}\nimages: {scale:x}\noutput0: {scale:x}\n", 8600);
        std::fs::write(&table, text).unwrap();
        let options = BuildOptions {
            precision: Precision::Int8,
            calibration: Some(table),
            shapes: vec![Shape::fixed("images", &Dims::new(&[1, 3, 64, 64]))],
            ..quick()
        };
        let built = build(library, &doubled(), &options);
        if library.abi().is_strongly_typed() {
            // It computes in the types that the model has, and calibrates nothing.
            assert!(built.err().unwrap().message().contains("Q/DQ nodes"));
            continue;
        }
        let built = built.unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        let engine = load(&cuda, library, &built.engine, false).unwrap();
        doubles_roughly(&cuda, &engine);
    }
}

fn doubles_roughly(cuda: &driver::Context, engine: &Arc<Engine>) {
    let dims = Dims::new(&[1, 3, 64, 64]);
    let values = noise(dims.elements().unwrap());
    let outputs = Run::new(cuda, engine, &dims).unwrap().run(bytemuck::cast_slice(&values)).unwrap();
    let found = floats(DType::F32, &outputs[0]);
    let worst = found.iter().zip(&values).map(|(found, value)| (found - 2.0 * value).abs()).fold(0.0, f32::max);
    println!("int8: off by at most {worst}");
    assert!(worst < 0.1, "{worst}");
}

#[test]
fn timings_are_used_again() {
    let Some((cuda, library)) = gpu() else { return };
    let onnx = Onnx::read(Path::new(&crate::common::shapes())).unwrap();
    let input = ModelInfo::read(Path::new(&crate::common::shapes())).unwrap();
    let dims = input.input_spec(None, 1, Device::Host).unwrap().desc.dims;
    let options = BuildOptions {
        shapes: vec![Shape::fixed(&input.image_input().name, &dims)],
        level: Some(3),
        ..Default::default()
    };
    let begun = Instant::now();
    let first = build(library, &onnx, &options).unwrap();
    let cold = begun.elapsed();
    let timing = first.timing.expect("a timing cache");
    let begun = Instant::now();
    let again = builder::build(library, &onnx, &options, Some(&timing), &|_| (), &AtomicBool::new(false)).unwrap();
    println!("built in {cold:.1?}, with {} bytes of timings in {:.1?}", timing.len(), begun.elapsed());
    load(&cuda, library, &again.engine, false).unwrap();
    // That of another GPU or version is not used, and does no harm.
    builder::build(library, &doubled_fixed(), &quick(), Some(b"garbage"), &|_| (), &AtomicBool::new(false)).unwrap();
}

fn doubled_fixed() -> Onnx {
    let dims = ["1", "3", "8", "8"];
    let graph = Graph::new()
        .input("images", F32, &dims)
        .node("Add", &["images", "images"], &["output0"], Vec::new())
        .output("output0", F32, &dims);
    Onnx::new(Path::new("doubled.onnx"), graph.bytes())
}

/// Runs that were captured as graphs read the memory of the values that are changed.
#[test]
fn values_of_other_inputs_change_between_runs() {
    let Some((cuda, library)) = gpu() else { return };
    if !library.has_builder() {
        return;
    }
    let folder = crate::common::scratch("tensorrt-values");
    let shape = [0i64, 3, 64].iter().flat_map(|dim| dim.to_le_bytes()).collect();
    let model = Graph::new()
        .input("images", F32, &["n", "3", "8", "8"])
        .input("tpe", F32, &["n", "words", "3"])
        .weight("shape", I64, &[3], shape)
        .node("Reshape", &["images", "shape"], &["cells"], Vec::new())
        .node("MatMul", &["tpe", "cells"], &["output0"], Vec::new())
        .output("output0", F32, &["n", "words", "64"])
        .save(&folder.join("words.onnx"));
    let numbers = noise(6 * 3);
    let words = |name: &str, numbers: &[f32]| {
        let file = save_floats(&folder.join(name), &[numbers.len() / 3, 3], numbers);
        format!("tpe={file}")
    };
    let read = |text: &str| Arc::new(InputValues::read(text).unwrap());
    let first = words("first.npy", &numbers[..9]);
    let (other, more) = (read(&words("other.npy", &numbers[9..])), read(&words("more.npy", &numbers)));
    let texts = [
        format!("input-values={first}"),
        format!("engine-cache={}", folder.display()),
        format!("trt-library={}", library.path().display()),
        "precision=fp32".into(),
    ];
    let options = parse_options(texts.iter().map(String::as_str)).unwrap().0.options;
    let tensorrt = BackendPreference::Named("tensorrt");
    let request = LoadRequest::new(Path::new(&model), tensorrt, None, 4, options, || Ok(cuda.clone())).unwrap();
    assert!(request.with_values(&more).unwrap().is_none(), "an engine is for so many words");
    assert!(request.with_values(&other).unwrap().is_some());

    let silent = LoadContext::silent();
    let (mut gpu, mut cpu) = (request.load(&silent).unwrap(), request.on_cpu().unwrap().load(&silent).unwrap());
    let pictures = noise(4 * 192);
    let on_host = |numbers: &[f32]| Tensor::from_slice("images", &[1, 3, 8, 8], numbers);
    let on_gpu = |numbers: &[f32]| {
        let mut block = DevicePool::new(&cuda).take(size_of_val(numbers)).unwrap();
        block.write(bytemuck::cast_slice(numbers)).unwrap();
        Tensor::on_device(request.spec.desc.clone(), block)
    };
    let all = |make: &dyn Fn(&[f32]) -> Tensor| -> Vec<Arc<Tensors>> {
        let tensors = pictures.chunks(192).map(|numbers| Tensors::new(vec![make(numbers)], None, None));
        tensors.map(Arc::new).collect()
    };
    let (of_gpu, of_host) = (all(&on_gpu), all(&on_host));
    // So often that graphs are captured, also behind a change of the size.
    for run in 0..120 {
        let (count, values) = ([4, 1, 3][run / 40], if run % 2 == 0 { request.values() } else { &other });
        gpu.set_values(values).unwrap();
        cpu.set_values(values).unwrap();
        let found = gpu.run(&of_gpu[..count]).unwrap();
        let expected = cpu.run(&of_host[..count]).unwrap();
        for (found, expected) in found.into_iter().zip(&expected) {
            let found = found.into_ready().unwrap()[0].device().unwrap().read().unwrap();
            let (found, expected) = (floats(DType::F32, &found), expected[0].as_slice::<f32>().unwrap());
            let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == expected.len() && worst < 1e-2, "run {run}: off by {worst}");
        }
    }
}
