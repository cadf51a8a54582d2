// SPDX-License-Identifier: MPL-2.0
//! Real TensorRT libraries on a machine without a GPU: TensorRT-RTX, both families of it, builds engines here; the lean
//! runtimes of TensorRT 10 and 11 load, and say that a driver is missing.
//!
//! tests/tensorrt/fetch.sh brings them. Where they are not, these tests are skipped, but not in continuous integration.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gsttrt_core::backends::tensorrt::abi::{AbiVersion, BuilderFlag, OptProfileSelector};
use gsttrt_core::backends::tensorrt::engine::{Loaded, RuntimeOptions};
use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::backends::tensorrt::interfaces::{self, Calibrator, ErrorListener, Level, Monitor};
use gsttrt_core::backends::tensorrt::library::Library;
use gsttrt_core::backends::tensorrt::version::Product;
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::tensor::{DType, Dims};

use crate::common::onnx::{F32, Graph};

const RTX_OLD: &str = "tensorrt-rtx-cu13-libs-1.4.0.76";
const RTX_NEW: &str = "tensorrt-rtx-cu13-libs-1.7.1.116";
const LEAN_10: &str = "tensorrt-lean-cu13-libs-10.16.1.11";
const LEAN_11: &str = "tensorrt-lean-cu13-libs-11.4.0.106";

/// The folder of a fetched library.
fn fetched(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    let folder = cache.join("gst-plugin-trt/tensorrt").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let text = format!("{} is not there; tests/tensorrt/fetch.sh brings it", folder.display());
    assert!(std::env::var_os("CI").is_none(), "{text}");
    crate::common::gpu::skip(text);
    None
}

fn no_gpu() -> bool {
    gsttrt_core::cuda::driver::available().is_err()
}

/// images [N,3,H,W] -> Relu -> output0, from 1x3x32x32 to 4x3x64x64.
fn relu() -> Vec<u8> {
    let dims = ["N", "3", "H", "W"];
    Graph::new()
        .input("images", F32, &dims)
        .node("Relu", &["images"], &["output0"], Vec::new())
        .output("output0", F32, &dims)
        .bytes()
}

/// Builds `onnx` for those GPU generations, which RTX does without any.
fn build(library: &'static Library, onnx: &[u8], capabilities: &[i32], monitor: &Monitor) -> Option<Vec<u8>> {
    let mut builder = library.builder().unwrap();
    // SAFETY: they are dropped before the builder, and the monitor later.
    let (mut network, mut config) = unsafe { (builder.network(true).unwrap(), builder.config().unwrap()) };
    // SAFETY: it is dropped after the build and before the network.
    let mut parser = unsafe { library.parser(&network) }.unwrap();
    assert!(parser.parse(onnx, c""), "{:?}", parser.errors().map(|error| error.description()).collect::<Vec<_>>());
    {
        let mut profile = builder.profile().unwrap();
        for (extent, dims) in [
            (OptProfileSelector::Smallest, [1, 3, 32, 32]),
            (OptProfileSelector::Usual, [1, 3, 64, 64]),
            (OptProfileSelector::Largest, [4, 3, 64, 64]),
        ] {
            assert!(profile.set(c"images", extent, &dims));
        }
        assert!(profile.is_valid());
        assert_eq!(config.add_profile(&profile), Some(0));
    }
    config.set_workspace(64 << 20);
    assert_eq!(config.workspace(), 64 << 20);
    assert!(config.set_compute_capabilities(capabilities));
    // SAFETY: the monitor outlives this function.
    assert!(unsafe { config.set_progress_monitor(monitor.as_raw()) });
    let plan = builder.build(&mut network, &mut config);
    drop(parser);
    plan.map(|plan| plan.bytes().to_vec())
}

/// What both families of RTX do alike.
fn rtx(folder: &str, abi: AbiVersion, version: &str, capabilities: &[i32]) {
    let Some(folder) = fetched(folder) else { return };
    let library = Library::open(Some(&folder), None).unwrap();
    assert_eq!(library.abi(), abi);
    assert_eq!(library.name(), format!("TensorRT-RTX {version}"));
    assert_eq!(library.path(), folder.join("libtensorrt_rtx.so.1").canonicalize().unwrap());
    assert!(library.has_builder());
    // By file, by folder, or again: the same.
    assert!(std::ptr::eq(library, Library::open(Some(&folder.join("libtensorrt_rtx.so.1")), None).unwrap()));

    // The network, as the parser makes it.
    let builder = library.builder().unwrap();
    // SAFETY: dropped before the builder.
    let network = unsafe { builder.network(true) }.unwrap();
    {
        // SAFETY: dropped before the network.
        let mut parser = unsafe { library.parser(&network) }.unwrap();
        assert!(parser.parse(&relu(), c""));
        assert_eq!(parser.error_count(), 0);
        assert_eq!((network.layers(), network.inputs().count(), network.outputs().count()), (1, 1, 1));
        let input = network.inputs().next().unwrap();
        assert_eq!(input.name().as_c_str(), c"images");
        assert_eq!(input.dims(), Some(Dims::new(&[-1, 3, -1, -1])));
        assert_eq!(input.data_type().dtype(), Some(DType::F32));
        assert!(!input.is_shape_tensor());
        let mut output = network.outputs().next().unwrap();
        assert_eq!(output.name().as_c_str(), c"output0");
        output.set_linear();
        assert_eq!(output.set_data_type(DType::F32), abi == AbiVersion::RtxOld);
    }
    drop(network);

    // Flags have numbers of their own in each ABI version.
    // SAFETY: dropped before the builder.
    let mut config = unsafe { builder.config() }.unwrap();
    for flag in [BuilderFlag::VersionCompatible, BuilderFlag::DirectIo, BuilderFlag::Tf32] {
        for on in [true, false] {
            assert!(config.set(flag, on));
            assert_eq!(config.is_set(flag), on, "{flag:?}");
        }
    }
    assert!(!config.set(BuilderFlag::Fp16, true), "networks are strongly typed");
    config.set_builder_optimization_level(2);
    config.set_max_aux_streams(0);
    drop(config);
    drop(builder);

    // Progress rises to its end.
    let seen = Mutex::new(Vec::new());
    let monitor = Monitor::new(|progress| {
        seen.lock().unwrap().push((progress.phase.to_string(), progress.fraction));
        true
    });
    let plan = build(library, &relu(), capabilities, &monitor).expect("a plan");
    let fractions: Vec<f64> = seen.lock().unwrap().iter().map(|(_, fraction)| *fraction).collect();
    assert!(fractions.is_sorted() && *fractions.last().unwrap() >= 0.8, "{:?}", seen.lock().unwrap());

    // A build ends early if the closure returns false, and the error has the reason.
    let monitor = Monitor::new(|_| false);
    let heard = ErrorListener::listen();
    assert!(build(library, &relu(), capabilities, &monitor).is_none());
    assert!(heard.words().contains("canceled by user"), "{}", heard.words());

    // The plan has the version that built it, and the GPU.
    let header = Header::read(&plan).unwrap();
    assert_eq!(header.product, Product::Rtx);
    assert_eq!(header.version.to_string(), version);
    let capabilities: Vec<u32> = capabilities.iter().map(|&capability| capability as u32).collect();
    assert_eq!(header.compute_capabilities, capabilities);

    // Without a GPU it cannot be loaded; what is broken is said to be broken, and nothing crashes.
    if no_gpu() {
        let error = load(library, &plan).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Library);
        assert!(error.message().contains("Install NVIDIA's driver"), "{error}");
    }
    for end in [plan.len() / 2, plan.len() - 1, 64] {
        let error = load(library, &plan[..end]).unwrap_err();
        let cause = format!("is cut short: there are {end} of {} bytes", plan.len());
        assert!(error.message().contains(&cause), "{error}");
    }
    let mut garbage = plan.clone();
    garbage[64..].fill(0xa5);
    let heard = ErrorListener::listen();
    load(library, &garbage).unwrap_err();
    assert!(!heard.words().is_empty(), "TensorRT logs what it refuses");

    // A plan of the other product is refused before anything reads it.
    let mut other = plan;
    other[..4].copy_from_slice(b"ftrt");
    other[24..28].copy_from_slice(&[8, 6, 0, 12]);
    let error = load(library, &other).unwrap_err();
    assert_eq!(
        error.message(),
        format!(
            "TensorRT-RTX {version} cannot run this engine: built by TensorRT 8.6.0.12, found TensorRT-RTX {version}. \
             Build the engine again with TensorRT-RTX, or give the .onnx file, or point trt-library to TensorRT."
        )
    );

    // The parser lists what it refuses.
    let builder = library.builder().unwrap();
    // SAFETY: dropped in the right order.
    let network = unsafe { builder.network(true) }.unwrap();
    // SAFETY: as above.
    let mut parser = unsafe { library.parser(&network) }.unwrap();
    let unknown = Graph::new()
        .input("images", F32, &["1", "3"])
        .node("NoSuchOperator", &["images"], &["output0"], Vec::new())
        .output("output0", F32, &["1", "3"]);
    assert!(!parser.parse(&unknown.bytes(), c""));
    let errors: Vec<(String, (String, String))> =
        parser.errors().map(|error| (error.description(), error.node_and_operator())).collect();
    assert!(!errors.is_empty() && errors.len() == parser.error_count() as usize);
    assert!(format!("{errors:?}").contains("NoSuchOperator"), "{errors:?}");
    drop(parser);
    // SAFETY: as above.
    let mut parser = unsafe { library.parser(&network) }.unwrap();
    assert!(!parser.parse(b"no model at all", c""));
}

/// As `Engine::load` does it, without a GPU.
fn load(library: &'static Library, file: &[u8]) -> Result<()> {
    Loaded::new(library, file, &Header::read(file)?, &RuntimeOptions { allow_host_code: true, dla_core: None })
        .map(drop)
}

#[test]
fn rtx_1_4_builds_engines() {
    rtx(RTX_OLD, AbiVersion::RtxOld, "1.4.0.76", &[86, 120]);
}

#[test]
fn rtx_1_7_builds_engines() {
    rtx(RTX_NEW, AbiVersion::RtxNew, "1.7.1.116", &[75, 89, 121]);
}

#[test]
fn logs_arrive() {
    let Some(folder) = fetched(RTX_NEW) else { return };
    static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
    interfaces::set_hook(|level, line| LINES.lock().unwrap().push((level, line.to_string())));
    let library = Library::open(Some(&folder), None).unwrap();
    let builder = library.builder().unwrap();
    // SAFETY: dropped before the builder.
    let network = unsafe { builder.network(true) }.unwrap();
    // SAFETY: dropped before the network.
    let mut parser = unsafe { library.parser(&network) }.unwrap();
    parser.parse(&relu(), c"");
    let lines = LINES.lock().unwrap();
    assert!(lines.iter().any(|(_, line)| line.starts_with("Opened TensorRT-RTX 1.7.1")), "{lines:?}");
    assert!(lines.iter().any(|(level, _)| *level == Level::Verbose), "TensorRT's own: {lines:?}");
    assert!(lines.iter().all(|(_, line)| !line.ends_with('\n')));
}

#[test]
fn lean_runtimes_need_a_driver() {
    for (folder, file, abi, name) in [
        (LEAN_10, "libnvinfer_lean.so.10", AbiVersion::V10, "TensorRT 10.16.1.11 (lean)"),
        (LEAN_11, "libnvinfer_lean.so.11", AbiVersion::V11, "TensorRT 11.4.0.106 (lean)"),
    ] {
        let Some(folder) = fetched(folder) else { return };
        let library = Library::open(Some(&folder.join(file)), None).unwrap();
        assert_eq!((library.abi(), library.name().as_str(), library.has_builder()), (abi, name, false));
        assert!(std::ptr::eq(library, Library::open(Some(&folder), None).unwrap()), "found in its folder too");
        let error = library.builder().err().expect("no builder");
        assert!(error.message().contains("lean runtime"), "{error}");
        if no_gpu() {
            let error = library.runtime().err().expect("no driver");
            assert!(error.message().starts_with(&format!("Cannot start {name}: Cannot use CUDA")), "{error}");
        }
    }
}

#[test]
fn every_name_that_was_tried_is_listed() {
    let empty = crate::common::scratch("tensorrt-nowhere");
    let in_folder = Library::open(Some(&empty), None).unwrap_err();
    // On a machine with TensorRT, the loader finds it.
    for error in [Some(in_folder), Library::open(None, None).err()].into_iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::Library);
        for name in ["libnvinfer.so.11", "libnvinfer.so.10", "libnvinfer.so.8", "libtensorrt_rtx.so.1"] {
            let is_said = error.message().contains(name) && error.cause_text().contains(&format!("\n{name}: "));
            assert!(is_said, "{error:?}");
        }
    }
    // A parser is not the library itself.
    let Some(folder) = fetched(RTX_NEW) else { return };
    let parser = folder.join("libtensorrt_onnxparser_rtx.so.1");
    let error = Library::open(Some(&parser), None).unwrap_err();
    assert!(error.message().contains("it is not TensorRT's core library"), "{error}");
    // The error for a plan of another release still names the library.
    let error = Calibrator::new(AbiVersion::V10, Vec::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Settings);
}
