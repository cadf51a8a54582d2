// SPDX-License-Identifier: MPL-2.0
//! What trtinfer's properties of TensorRT do, each through the element.
//!
//! Needs a GPU and a TensorRT that builds, which `TRT_LIBRARY` names as the property `trt-library`; prints SKIP where one is
//! missing, and fails instead with `REQUIRE_GPU=1`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::prelude::*;
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::memory::DevicePool;

use crate::common::onnx::{F32, Graph, ints};
use crate::common::{Outcome, launch, scratch};

/// A folder and a model in it that is built in a moment, where a GPU and TensorRT are.
struct Bench {
    library: String,
    folder: std::path::PathBuf,
    model: String,
}

impl Bench {
    fn new(name: &str) -> Option<Self> {
        crate::common::gpu::context()?;
        let Ok(library) = std::env::var("TRT_LIBRARY") else {
            crate::common::gpu::skip("TRT_LIBRARY is not set");
            return None;
        };
        let folder = scratch(name);
        let weight = 0.01f32.to_le_bytes().repeat(4 * 27);
        let model = Graph::new()
            .input("images", F32, &["1", "3", "32", "32"])
            .weight("weight", F32, &[4, 3, 3, 3], weight)
            .node("Conv", &["images", "weight"], &["output0"], vec![ints("pads", &[1, 1, 1, 1])])
            .output("output0", F32, &["1", "4", "32", "32"])
            .save(&folder.join("model.onnx"));
        Some(Bench { library, folder, model })
    }

    fn cache(&self) -> String {
        self.folder.join("engines").display().to_string()
    }

    fn line(&self, model: &str, properties: &str) -> String {
        format!(
            "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=32,height=32 ! trtpreprocess ! trtinfer name=infer \
             backend=tensorrt trt-library={} engine-cache={} model-file={model} {properties} ! fakesink",
            self.library,
            self.cache()
        )
    }

    fn infer(&self, properties: &str) -> Outcome {
        launch(&self.line(&self.model, properties))
    }

    /// Why an engine was built, if one was.
    #[track_caller]
    fn built(&self, properties: &str) -> Option<String> {
        let outcome = self.infer(properties);
        outcome.expect_success();
        outcome.progress.into_iter().find(|text| text.contains("building an engine"))
    }
}

fn files(folder: &str, extension: &str) -> usize {
    let entries = Path::new(folder).read_dir().into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|found| found == extension)).count()
}

#[test]
fn engines_are_built_once_and_kept_in_the_folder_named() {
    let Some(bench) = Bench::new("properties-cache") else { return };
    bench
        .infer("engine-build=never")
        .expect_error("ResourceError::Settings", &["There is no engine for", "model.onnx", "engine-build=auto"]);
    assert_eq!(files(&bench.cache(), "engine"), 0);
    let why = bench.built("").expect("it has to be");
    println!("{why}");
    assert_eq!(files(&bench.cache(), "engine"), 1);
    let mode = std::fs::metadata(bench.cache()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "engines are programs");
    assert_eq!(bench.built("engine-build=never"), None, "the engine of the first start");

    // Half a file is no engine.
    let engine = Path::new(&bench.cache()).read_dir().unwrap().flatten().map(|entry| entry.path());
    let engine = engine.into_iter().find(|path| path.extension().is_some_and(|found| found == "engine")).unwrap();
    let half = std::fs::read(&engine).unwrap();
    std::fs::write(&engine, &half[..half.len() / 2]).unwrap();
    let why = bench.built("").expect("it is built again");
    assert!(why.contains("is broken: it has"), "{why}");
    assert_eq!(bench.built(""), None);
}

#[test]
fn each_way_to_build_gives_another_engine() {
    let Some(bench) = Bench::new("properties-build") else { return };
    assert!(bench.built("precision=fp32").is_some());
    for (properties, words) in [
        ("precision=fp16", "built with precision “fp32”, and wanted is “fp16, head in fp32”"),
        ("precision=fp32 optimization-level=0", "wanted is “optimization level 0"),
        ("precision=fp32 workspace-mib=64", "64 MiB workspace"),
    ] {
        let why = bench.built(properties).expect("another engine");
        assert!(why.contains(words), "{why}");
        assert_eq!(bench.built(properties), None, "{properties}");
    }
    bench
        .infer("precision=int8 int8-calibration-cache=/nowhere/table")
        .expect_error("ResourceError::NotFound", &["Cannot read the calibration /nowhere/table"]);
    let outcome = bench.infer("precision=int8");
    assert!(outcome.error_text().contains("int8-calibration-cache"), "{outcome:?}");
    // No GPU of a workstation or server has one.
    let outcome = bench.infer("dla-core=0");
    assert!(outcome.error_text().contains("DLA"), "{outcome:?}");
}

#[test]
fn host_code_is_run_only_where_it_is_allowed() {
    let Some(bench) = Bench::new("properties-host-code") else { return };
    let Some(compatible) = std::env::var("ENGINE_COMPATIBLE").ok().filter(|path| Path::new(path).exists()) else {
        crate::common::gpu::skip("ENGINE_COMPATIBLE names no version-compatible engine");
        return;
    };
    let refused = launch(&bench.line(&compatible, ""));
    assert!(refused.error_text().contains("allow-host-code=true"), "{refused:?}");
    launch(&bench.line(&compatible, "allow-host-code=true")).expect_success();
}

#[test]
fn runs_are_captured_unless_that_is_off() {
    let Some(bench) = Bench::new("properties-graph") else { return };
    let captured = Arc::new(AtomicUsize::new(0));
    let count = captured.clone();
    gst::log::set_threshold_from_string("trt*:4", false);
    let function = gst::log::add_log_function(move |_, _, _, _, _, _, message| {
        let text = message.get().unwrap_or_default();
        count.fetch_add(usize::from(text.contains("captured as a CUDA graph")), Ordering::Relaxed);
    });
    for (setting, some) in [("auto", true), ("off", false), ("on", true)] {
        captured.store(0, Ordering::Relaxed);
        bench.infer(&format!("cuda-graph={setting}")).expect_success();
        let captured = captured.load(Ordering::Relaxed);
        println!("cuda-graph={setting}: {captured}");
        assert_eq!(captured > 0, some, "{setting}");
    }
    gst::log::remove_log_function(function);
}

#[test]
fn wrong_libraries_and_devices_are_named() {
    let Some(bench) = Bench::new("properties-wrong") else { return };
    let elsewhere = bench.line(&bench.model, "").replace(&bench.library, "/nowhere");
    launch(&elsewhere).expect_error("ResourceError::NotFound", &["There is no TensorRT library /nowhere"]);
    for element in ["trtpreprocess", "trtinfer"] {
        let wrong = bench.line(&bench.model, "").replace(element, &format!("{element} cuda-device-id=63"));
        let outcome = launch(&wrong);
        assert!(outcome.error_text().contains("63"), "{element}: {outcome:?}");
    }
}

/// Large models take minutes, and stopping must not wait for that. The file is a copy, for not every GStreamer sees the
/// project.
#[test]
fn a_pipeline_stops_while_its_engine_is_built() {
    crate::common::init();
    let Some(bench) = Bench::new("properties-cancel") else { return };
    let large = bench.folder.join("shapes.onnx").display().to_string();
    std::fs::write(&large, include_bytes!("models/shapes.onnx")).unwrap();
    let pipeline = gst::parse::launch(&bench.line(&large, "")).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let bus = pipeline.bus().unwrap();
    loop {
        let kinds = [gst::MessageType::Progress, gst::MessageType::Error, gst::MessageType::Eos];
        let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).expect("some word");
        let gst::MessageView::Progress(progress) = message.view() else { panic!("{message:?}") };
        let text: String = progress.structure().and_then(|fields| fields.get("text").ok()).unwrap_or_default();
        // TensorRT is at work once it reports its steps, which 8 never does.
        let is_building = text.contains("building an engine");
        if text.contains(" %)") && !is_building && !text.contains("waiting")
            || is_building && text.contains("TensorRT 8")
        {
            break;
        }
    }
    let begun = std::time::Instant::now();
    pipeline.set_state(gst::State::Null).unwrap();
    println!("stopped {:.1?} later", begun.elapsed());
    assert_eq!(files(&bench.cache(), "engine"), 0, "nothing half done is kept");
    // And the next start is none the worse for it.
    assert!(bench.built("").is_some());
}

#[test]
fn a_gpu_without_memory_is_an_error_not_a_crash() {
    let Some(bench) = Bench::new("properties-memory") else { return };
    assert!(bench.built("").is_some());
    let cuda = Context::primary(0).unwrap();
    let (free, _) = cuda.memory().unwrap();
    let pool = DevicePool::new(&cuda);
    // In pieces, down to a few MiB: other programs may have taken some of it meanwhile.
    let mut taken = Vec::new();
    for piece in (21..=free.ilog2()).rev().map(|bits| 1usize << bits) {
        while let Ok(block) = pool.take(piece) {
            taken.push(block);
        }
    }
    let outcome = bench.infer("");
    println!("{outcome:?}");
    assert!(outcome.error_text().contains("memory"), "{outcome:?}");
    drop((taken, pool));
    assert_eq!(bench.built(""), None, "it works again");
}
