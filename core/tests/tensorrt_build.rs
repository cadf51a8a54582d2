// SPDX-License-Identifier: MPL-2.0
//! Engines from ONNX. TensorRT-RTX needs no GPU for that: tests/tensorrt/fetch.sh brings it, and without these tests
//! are skipped, but not in continuous integration. With `TRT_LIBRARY`, which is as the property `trt-library`, they
//! test that library on this machine's GPU.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gsttrt_core::backends::tensorrt::abi::AbiVersion;
use gsttrt_core::backends::tensorrt::builder::{self, BuildOptions, ExactLayers, Half, Precision, Shape};
use gsttrt_core::backends::tensorrt::cache::{Cache, EngineFile, Lookup};
use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::backends::tensorrt::library::Library;
use gsttrt_core::backends::tensorrt::onnx::Onnx;
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::tensor::Dims;

use crate::common::onnx::{F16, F32, Graph, I8, ints};

/// What is there to be tested.
pub fn libraries() -> Vec<&'static Library> {
    if let Some(chosen) = std::env::var_os("TRT_LIBRARY") {
        return vec![Library::open(Some(Path::new(&chosen)), None).unwrap()];
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    let folders = ["tensorrt-rtx-cu13-libs-1.4.0.76", "tensorrt-rtx-cu13-libs-1.7.1.116"]
        .map(|name| cache.join("gst-plugin-trt/tensorrt").join(name));
    if !folders.iter().all(|folder| folder.is_dir()) {
        assert!(std::env::var_os("CI").is_none(), "no TensorRT-RTX: run tests/tensorrt/fetch.sh");
        crate::common::gpu::skip("no TensorRT-RTX, tests/tensorrt/fetch.sh brings it");
        return Vec::new();
    }
    folders.iter().map(|folder| Library::open(Some(folder), None).unwrap()).collect()
}

/// For a GPU that need not be here, where the library can do so. Quickly.
pub fn options(library: &Library) -> BuildOptions {
    let capabilities = if library.abi().is_rtx() { vec![120] } else { Vec::new() };
    BuildOptions { capabilities, level: Some(1), ..Default::default() }
}

fn build(library: &'static Library, onnx: &Onnx, options: &BuildOptions) -> Result<Vec<u8>> {
    let built = builder::build(library, onnx, options, None, &|_| (), &AtomicBool::new(false))?;
    assert_eq!(built.timing.is_none(), library.abi().is_rtx(), "RTX measures nothing");
    Ok(built.engine)
}

fn file(relative: &str) -> Onnx {
    Onnx::read(Path::new(&crate::common::path(relative))).unwrap()
}

fn graph(graph: &Graph) -> Onnx {
    Onnx::new(Path::new("graph.onnx"), graph.bytes())
}

/// Two convolutions: small, but built like a large one.
fn network(dims: &[&str]) -> Graph {
    let weight = |count: usize| vec![0x3c; 4 * count];
    Graph::new()
        .input("images", F32, dims)
        .weight("first", F32, &[8, 3, 3, 3], weight(8 * 27))
        .weight("second", F32, &[4, 8, 3, 3], weight(4 * 72))
        .node("Conv", &["images", "first"], &["middle"], vec![ints("pads", &[1, 1, 1, 1])])
        .node("Relu", &["middle"], &["positive"], Vec::new())
        .node("Conv", &["positive", "second"], &["output0"], vec![ints("pads", &[1, 1, 1, 1])])
        .output("output0", F32, &[dims[0], "4", dims[2], dims[3]])
}

#[test]
fn models_become_engines_for_the_gpu_chosen() {
    for library in libraries() {
        for model in ["shapes.onnx", "shapes-v8.onnx", "shapes-f16.onnx"] {
            let onnx = file(&format!("tests/models/{model}"));
            let options = options(library);
            let engine = build(library, &onnx, &options).unwrap_or_else(|error| panic!("{model}: {error}"));
            let header = Header::read(&engine).unwrap();
            // 8 has no function for its build number, but its plans have it.
            assert!(header.builder().starts_with(&library.name()), "{model}: {}", header.builder());
            let capabilities: Vec<i32> =
                header.compute_capabilities.iter().map(|&capability| capability as i32).collect();
            assert_eq!(capabilities, options.capabilities, "{model}");
        }
        let both = BuildOptions { capabilities: vec![86, 120], ..options(library) };
        let built = build(library, &graph(&network(&["1", "3", "32", "32"])), &both);
        if library.abi().is_rtx() {
            assert_eq!(Header::read(&built.unwrap()).unwrap().compute_capabilities, [86, 120]);
        } else {
            assert!(built.unwrap_err().message().contains("other libraries for this machine's GPU only"));
        }
    }
}

/// Where the file decides, it is cast: each precision is another engine, and another key.
#[test]
fn files_are_cast_where_no_flag_does_it() {
    for library in libraries().into_iter().filter(|library| library.abi().is_strongly_typed()) {
        let onnx = file("tests/models/shapes.onnx");
        let built = |precision, half, exact| {
            let options = BuildOptions { precision, half, exact, ..options(library) };
            let key = options.key(library, &onnx, "a GPU", &AtomicBool::new(false)).unwrap();
            (build(library, &onnx, &options).unwrap().len(), key.precision)
        };
        let single = built(Precision::Fp32, Half::F16, ExactLayers::Head);
        let half = built(Precision::Auto, Half::F16, ExactLayers::Head);
        let products = built(Precision::Auto, Half::F16, ExactLayers::AllButWeighted);
        let short = built(Precision::Fp16, Half::Bf16, ExactLayers::Head);
        println!("{}: {single:?}, {half:?}, {products:?}, {short:?}", library.name());
        // Kernels are in it too, so that its size says only that it is another one.
        assert!(half.0 != single.0 && short.0 != single.0);
        assert_eq!(single.1, "fp32");
        assert_eq!(half.1, "auto, head, softmax, normalisations and reductions in fp32, the file cast to fp16");
        assert_eq!(short.1, "fp16, head, softmax, normalisations and reductions in fp32, the file cast to bf16");
        assert_ne!(products.1, half.1);
        // What is in the file may contradict itself.
        let broken = network(&["1", "3", "32", "32"]).weight("first", F32, &[1], vec![0; 4]);
        let half = BuildOptions { precision: Precision::Fp16, ..options(library) };
        let error = build(library, &graph(&broken), &half).unwrap_err();
        assert!(
            error.message().starts_with("Cannot convert graph.onnx to fp16: the value “first” is made twice"),
            "{error}"
        );
    }
}

/// RTX parses NonMaxSuppression, and then has nothing that runs it.
#[test]
fn errors_name_what_cannot_be_built() {
    for library in libraries() {
        let built = build(library, &file("tests/models/shapes-e2e.onnx"), &options(library));
        if !library.abi().is_rtx() {
            built.unwrap();
            continue;
        }
        let error = built.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Library);
        assert!(error.message().contains("NonMaxSuppression"), "{error}");
    }
}

#[test]
fn options_are_taken() {
    for library in libraries() {
        let onnx = graph(&network(&["1", "3", "32", "32"]));
        let small = BuildOptions {
            level: Some(0),
            workspace_mib: Some(64),
            precision: Precision::Fp32,
            version_compatible: false,
            ..options(library)
        };
        build(library, &onnx, &small).unwrap();
        let wrong = BuildOptions { level: Some(6), ..options(library) };
        assert_eq!(build(library, &onnx, &wrong).unwrap_err().message(), "The optimization level is 0 to 5.");
        if library.abi() == AbiVersion::V8 {
            let anywhere = BuildOptions { hardware_compatible: true, ..options(library) };
            build(library, &onnx, &anywhere).unwrap();
        }
        let h200 = BuildOptions { capabilities: vec![90], ..Default::default() };
        let error = build(library, &onnx, &h200).unwrap_err();
        assert!(error.message().contains(&library.name()), "{error}");
    }
}

#[test]
fn errors_name_what_cannot_be_parsed() {
    for library in libraries() {
        let unknown = network(&["1", "3", "32", "32"]).node("Flurb", &["output0"], &["output1"], Vec::new());
        let error = build(library, &graph(&unknown.output("output1", F32, &["1"])), &options(library)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Model);
        assert!(
            error.message().contains("the operator Flurb of the node “node_output1” in the model graph.onnx"),
            "{error}"
        );

        // Channels that do not agree.
        let wrong = Graph::new()
            .input("images", F32, &["1", "3", "8", "8"])
            .weight("weight", F32, &[4, 5, 1, 1], vec![0; 80])
            .node("Conv", &["images", "weight"], &["output0"], Vec::new())
            .output("output0", F32, &["1", "4", "8", "8"]);
        let error = build(library, &graph(&wrong), &options(library)).unwrap_err();
        assert!(error.message().contains("Conv"), "{error}");

        let whole = network(&["1", "3", "32", "32"]).bytes();
        for bytes in [b"not a model".to_vec(), whole[..whole.len() / 2].to_vec(), Vec::new()] {
            let error = build(library, &Onnx::new(Path::new("broken.onnx"), bytes), &options(library)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Model, "{error}");
            assert!(error.message().contains("TensorRT cannot read the model broken.onnx"), "{error}");
        }
    }
}

#[test]
fn open_dimensions_take_a_profile() {
    for library in libraries() {
        let onnx = graph(&network(&["batch", "3", "height", "width"]));
        let error = build(library, &onnx, &options(library)).unwrap_err();
        assert!(error.message().contains("The input images of graph.onnx leaves dimensions open (?x3x?x?)"), "{error}");

        let with = |shape| build(library, &onnx, &BuildOptions { shapes: vec![shape], ..options(library) });
        let dims = |text: &str| text.parse::<Dims>().unwrap();
        let fixed = with(Shape::fixed("images", &dims("1x3x64x64"))).unwrap();
        assert!(Header::read(&fixed).is_ok());
        let range = |smallest, usual, largest| Shape {
            input: "images".into(),
            smallest: dims(smallest),
            usual: dims(usual),
            largest: dims(largest),
        };
        with(range("1x3x32x32", "1x3x64x64", "4x3x128x128")).unwrap();

        let error = with(Shape::fixed("images", &dims("1x4x64x64"))).unwrap_err();
        assert!(
            error.message().contains("The input images of graph.onnx is ?x3x?x? and cannot be 1x4x64x64"),
            "{error}"
        );
        let error = with(range("1x3x64x64", "1x3x32x32", "1x3x128x128")).unwrap_err();
        assert!(error.message().contains("grow from the smallest to the largest"), "{error}");

        // TensorRT itself takes no convolution whose channels are open.
        for channels in ["num_channels", "c"] {
            let onnx = graph(&network(&["batch", channels, "height", "width"]));
            let shapes = vec![Shape::fixed("images", &dims("1x3x64x64"))];
            build(library, &onnx, &BuildOptions { shapes, ..options(library) }).unwrap();
        }
    }
}

#[test]
fn progress_is_reported_and_rises() {
    for library in libraries() {
        let seen = Mutex::new(Vec::new());
        let progress = |progress: gsttrt_core::backends::tensorrt::interfaces::BuildProgress| {
            seen.lock().unwrap().push((progress.phase.to_string(), progress.fraction))
        };
        let onnx = file("tests/models/shapes.onnx");
        builder::build(library, &onnx, &options(library), None, &progress, &AtomicBool::new(false)).unwrap();
        let seen = seen.into_inner().unwrap();
        // 8 reports nothing while it builds.
        assert!(seen.len() > if library.abi() == AbiVersion::V8 { 2 } else { 4 }, "{seen:?}");
        assert!(seen.is_sorted_by(|a, b| a.1 <= b.1), "{seen:?}");
        assert!(seen.iter().any(|(phase, _)| phase == "reading the model"), "{seen:?}");
        assert_eq!(seen.last().unwrap().1, 1.0);
    }
}

#[test]
fn a_build_can_be_cancelled() {
    for library in libraries() {
        let onnx = file("tests/models/shapes.onnx");
        // At the first word, and in the middle of TensorRT's work. Before it, there may be word of waiting for other tests.
        for after in [1, if library.abi() == AbiVersion::V8 { 2 } else { 4 }] {
            let cancelled = AtomicBool::new(false);
            let steps = Mutex::new(0);
            let progress = |_: gsttrt_core::backends::tensorrt::interfaces::BuildProgress| {
                let mut steps = steps.lock().unwrap();
                *steps += 1;
                cancelled.store(*steps >= after, Ordering::Relaxed);
            };
            let Err(error) = builder::build(library, &onnx, &options(library), None, &progress, &cancelled) else {
                panic!("it was built all the same");
            };
            assert!(error.message().ends_with("shapes.onnx was cancelled."), "{error}");
            let steps = *steps.lock().unwrap();
            assert!(steps < after + 4, "{steps} steps after cancelling");
        }
        // The library is none the worse for it.
        build(library, &onnx, &options(library)).unwrap();
    }
}

#[test]
fn precisions_are_those_of_the_file() {
    for library in libraries() {
        let with = |onnx: &Onnx, precision| build(library, onnx, &BuildOptions { precision, ..options(library) });
        let refused = |onnx: &Onnx, precision, words: &str| {
            let error = with(onnx, precision).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Settings);
            assert!(error.message().contains(words), "{error}");
        };
        let single = graph(&network(&["1", "3", "32", "32"]));
        with(&single, Precision::Fp32).unwrap();
        refused(&single, Precision::Int8, "gst-trt quantize");
        with(&single, Precision::Fp16).unwrap();
        let strongly = library.abi().is_strongly_typed();
        if !strongly {
            let missing = BuildOptions {
                precision: Precision::Int8,
                calibration: Some("nowhere/table".into()),
                ..options(library)
            };
            let error = build(library, &single, &missing).unwrap_err();
            assert!(error.message().starts_with("Cannot read the calibration nowhere/table: "), "{error}");
        }
        let half = Graph::new()
            .input("images", F16, &["1", "3", "32", "32"])
            .weight("weight", F16, &[8, 3, 1, 1], vec![0x3c; 48])
            .node("Conv", &["images", "weight"], &["output0"], Vec::new())
            .output("output0", F16, &["1", "8", "32", "32"]);
        let half = graph(&half);
        with(&half, Precision::Fp16).unwrap();
        with(&half, Precision::Auto).unwrap();
        if strongly {
            refused(&half, Precision::Fp32, "Export the model in f32");
        }
        let quantized = graph(&quantized());
        for precision in [Precision::Int8, Precision::Auto] {
            // TensorRT-RTX asks the GPU about quantized networks; without one it is enough that it is asked at all.
            let error = with(&quantized, precision).err();
            assert!(error.is_none_or(|error| library.abi().is_rtx() && error.kind() == ErrorKind::Library));
        }
        refused(&quantized, Precision::Fp32, "is quantized");
    }
}

fn quantized() -> Graph {
    let scale = 0.5f32.to_le_bytes().to_vec();
    Graph::new()
        .input("images", F32, &["1", "3", "32", "32"])
        .weight("scale", F32, &[], scale)
        .weight("zero", I8, &[], vec![0])
        .node("QuantizeLinear", &["images", "scale", "zero"], &["q"], Vec::new())
        .node("DequantizeLinear", &["q", "scale", "zero"], &["dq"], Vec::new())
        .node("Relu", &["dq"], &["output0"], Vec::new())
        .output("output0", F32, &["1", "3", "32", "32"])
}

#[test]
fn measurements_are_used_again() {
    for library in libraries().into_iter().filter(|library| !library.abi().is_rtx()) {
        let onnx = graph(&network(&["1", "3", "32", "32"]));
        let with = |timing: Option<&[u8]>| {
            let begun = std::time::Instant::now();
            let built = builder::build(library, &onnx, &options(library), timing, &|_| (), &AtomicBool::new(false));
            (built.unwrap().timing.unwrap(), begun.elapsed())
        };
        let (timing, first) = with(None);
        let (again, second) = with(Some(&timing));
        println!("{}: {first:.1?}, with {} bytes of measurements {second:.1?}", library.name(), timing.len());
        assert!(!timing.is_empty() && again.len() == timing.len(), "nothing is measured twice");
        // A file that TensorRT did not write is ignored.
        with(Some(b"measurements of another program"));
    }
}

#[test]
fn an_engine_is_built_once_for_each_key() {
    for library in libraries() {
        let cache = Cache::open(Some(&crate::common::scratch(&format!("engines-{}", library.version())))).unwrap();
        let onnx = graph(&network(&["1", "3", "32", "32"]));
        let not_cancelled = AtomicBool::new(false);
        let builds = |options: &BuildOptions| {
            let key = options.key(library, &onnx, "compute capability 12.0", &not_cancelled).unwrap();
            match cache.find(&key, &not_cancelled, || ()).unwrap() {
                Lookup::Hit(engine) => {
                    assert!(Header::read(&engine.bytes).is_ok());
                    None
                }
                Lookup::Miss(slot) => {
                    let why = slot.why().to_string();
                    slot.store(&EngineFile::new(build(library, &onnx, options).unwrap())).unwrap();
                    Some(why)
                }
            }
        };
        assert!(builds(&options(library)).is_some());
        assert_eq!(builds(&options(library)), None);
        let why = builds(&BuildOptions { level: Some(0), ..options(library) }).unwrap();
        assert!(why.contains("and wanted is “optimization level 0"), "{why}");
        assert_eq!(builds(&options(library)), None);
    }
}

/// Objects that were not deleted would be seen: a builder holds megabytes. In a process of its own, for other tests
/// build too.
#[test]
fn building_leaves_nothing_behind() {
    const ALONE: &str = "GST_TRT_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let run = alone
            .args(["--exact", "tensorrt_build::building_leaves_nothing_behind", "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        eprint!("{said}");
        assert!(run.status.success(), "{said}");
        return;
    }
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1024
    };
    for library in libraries() {
        let onnx = graph(&network(&["1", "3", "32", "32"]));
        let broken = Onnx::new(Path::new("broken.onnx"), b"nothing".into());
        let both = || {
            build(library, &onnx, &options(library)).unwrap();
            build(library, &broken, &options(library)).unwrap_err();
        };
        let some = if library.abi().is_rtx() { 10 } else { 4 };
        (0..3).for_each(|_| both());
        let before = resident();
        (0..some).for_each(|_| both());
        let after = resident();
        eprintln!("{}: {before} MiB, {some} builds later {after} MiB", library.name());
        assert!(after < before + 20, "{}: {before} MiB, {some} builds later {after} MiB", library.name());
    }
}
