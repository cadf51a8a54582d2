// SPDX-License-Identifier: MPL-2.0
//! ONNX Runtime compared with rten: the same outputs and boxes, what only one of them takes, and what is said where something
//! is missing.

use gst::prelude::*;
use gsttrt_core::backends::LoadContext;
use gsttrt_core::error::ErrorKind;
use gsttrt_core::session::{Session, parse_options};
use gsttrt_core::tensor::Tensor;

use crate::common::compared::{RTEN, difference, load, numbers, picture, request, run};
use crate::common::onnx::{BF16, F32, Graph, I64, int};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{libraries, ort, path, quantise, scratch, shapes};

#[test]
fn both_backends_compute_the_same() {
    let options = |library| Some((library, ort::options(library)?.to_vec()));
    let found: Vec<_> = [ort::NEWEST, ort::OLDEST].into_iter().map_while(options).collect();
    libraries::models_are_computed_like_by_rten(&found, 2e-5);
}

/// `verify=always` has the outputs compared with rten's when a model is loaded.
#[test]
fn verified_models_are_right() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let files = ["shapes-320", "shapes-e2e", "shapes-seg", "rooms-depth"];
    for file in files.map(|name| path(&format!("tests/models/{name}.onnx"))) {
        for verify in [None, Some("verify=always")] {
            let texts = options.iter().map(AsRef::as_ref).chain(verify);
            let (options, _) = parse_options(texts).unwrap();
            let session = Session::open(&file, &options).unwrap();
            let Some(verdict) = session.verdict() else {
                assert_eq!(verify, None, "{file}");
                continue;
            };
            assert!(verify.is_some() && verdict.passed(), "{file}: {verdict}");
            assert_eq!(verdict.reference.as_deref(), Ok("the CPU (rten)"));
            assert!(verdict.worst().is_some_and(|(_, error)| error < 1e-3), "{file}: {verdict}");
            assert!(verdict.results.is_some_and(|(sought, found)| sought > 0 && sought == found), "{file}: {verdict}");
        }
    }
}

/// While it plays, rten runs a frame each second too.
#[test]
fn frames_that_play_are_compared() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let line = format!(
        "videotestsrc pattern=ball ! video/x-raw,format=RGB,width=320,height=240 ! trtpreprocess ! trtinfer name=infer \
         model-file={} verify-every=1 {} ! trtnms ! fakesink",
        shapes(),
        options.join(" ")
    );
    crate::common::init();
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let infer = pipeline.by_name("infer").unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let count = |name| infer.property::<gst::Structure>("stats").get::<u64>(name).unwrap();
    wait_until("two frames are compared", LIMIT, || count("compared") >= 2);
    assert_eq!(count("differing"), 0);
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn outputs_stay() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    libraries::outputs_stay(&scratch("ort-outputs"), &options, &["Identity", "Abs"]);
}

/// A graph may name its input as an output: ONNX Runtime then gives back the memory that it was given.
#[test]
fn inputs_that_are_outputs_are_copied() {
    for version in [ort::NEWEST, ort::OLDEST] {
        let Some(options) = ort::options(version) else { return };
        let folder = scratch("ort-inputs");
        let dims = &["1", "3", "2", "4"];
        let graph = Graph::new().input("images", F32, dims).output("images", F32, dims).output("other", F32, dims);
        let model = graph.node("Relu", &["images"], &["other"], vec![]).save(&folder.join("direct.onnx"));
        let request = request(&model, &options, 1).unwrap();
        let mut instance = request.load(&LoadContext::silent()).unwrap();
        let expected = picture(&request, 1)[0].bytes().unwrap().to_vec();
        let first = instance.run(&[picture(&request, 1)]).unwrap().remove(0).into_ready().unwrap();
        for seed in 2..9 {
            drop(instance.run(&[picture(&request, seed)]).unwrap());
        }
        assert_eq!(first[0].bytes().unwrap(), expected, "{version}");
    }
}

#[test]
fn batches_and_open_sizes_are_taken() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    libraries::batches_and_open_sizes_are_taken(&scratch("ort-batches"), &options);
}

/// What the file needs and rten lacks.
#[test]
fn more_types_and_operators_run() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let folder = scratch("ort-more");
    let picture =
        || Graph::new().input("images", F32, &["1", "3", "8", "8"]).output("output0", F32, &["1", "3", "8", "8"]);
    for (name, graph) in [
        (
            "bf16",
            picture().node("Cast", &["images"], &["short"], vec![int("to", BF16.into())]).node(
                "Cast",
                &["short"],
                &["output0"],
                vec![int("to", F32.into())],
            ),
        ),
        ("operator", picture().node("Celu", &["images"], &["output0"], vec![])),
    ] {
        let model = graph.save(&folder.join(format!("{name}.onnx")));
        assert!(run(&model, RTEN).is_err(), "rten takes {name} by now");
        assert_eq!(run(&model, &options).unwrap()[0].desc().to_string(), "output0 f32 1x3x8x8");
    }
}

/// A detector whose convolutions are in INT8 runs on both, and finds nearly the same.
#[test]
fn int8_models_run_on_both() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let folder = scratch("ort-int8");
    let (observed, names) = quantise::observed(&shapes());
    let outputs = run(&observed.save(&folder.join("observed.onnx")), &options).unwrap();
    let mut ranges = vec![("images".to_string(), 0.0, 1.0)];
    for output in outputs.iter().filter(|output| names.contains(&output.desc().name)) {
        let values = output.as_slice::<f32>().unwrap();
        let range = |pick: fn(f32, f32) -> f32| values.iter().copied().fold(0.0, pick);
        ranges.push((output.desc().name.clone(), range(f32::min), range(f32::max)));
    }
    assert_eq!(ranges.len(), names.len() + 1);
    let int8 = quantise::quantised(&shapes(), &ranges).save(&folder.join("int8.onnx"));
    let (plain, by_rten, by_ort) =
        (run(&shapes(), RTEN).unwrap(), run(&int8, RTEN).unwrap(), run(&int8, &options).unwrap());
    let mean = |one: &Tensor, other: &Tensor| {
        let (one, other) = (numbers(one), numbers(other));
        one.iter().zip(&other).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / one.len() as f64
    };
    let (rten, ort, between) =
        (mean(&plain[0], &by_rten[0]), mean(&plain[0], &by_ort[0]), mean(&by_rten[0], &by_ort[0]));
    println!("mean difference to f32: rten {rten:.4}, onnxruntime {ort:.4}; between them {between:.4}");
    assert!(rten < 1.0 && ort < 1.0 && between < 0.5, "pixels");
    assert!(std::fs::metadata(&int8).unwrap().len() < std::fs::metadata(shapes()).unwrap().len() / 2);
}

#[test]
fn weights_in_other_files_are_read_here() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    libraries::weights_in_other_files_are_read_here(&scratch("ort-external"), &options);
}

#[test]
fn models_that_cannot_be_used_are_refused() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let folder = scratch("ort-refused");
    let graph = |from: &str| libraries::square().node("Relu", &[from], &["output0"], vec![]);
    let more = vec![("dangling", graph("nothing"), "nothing"), ("cycle", graph("output0"), "not acyclic")];
    libraries::models_that_cannot_be_used_are_refused(&folder, &options, more);
    let shape = [7i64, 7].iter().flat_map(|dim| dim.to_le_bytes()).collect();
    let reshaped = Graph::new()
        .input("images", F32, &["n", "3", "h", "w"])
        .weight("shape", I64, &[2], shape)
        .node("Reshape", &["images", "shape"], &["output0"], vec![])
        .output("output0", F32, &["7", "7"]);
    let texts = [&options[..], &["input-size=16x16".into()]].concat();
    let error = run(&reshaped.save(&folder.join("reshape.onnx")), &texts).unwrap_err();
    assert!(error.kind() == ErrorKind::Run && error.message().contains("node_output0"), "{error}");
}

/// On a stack that is smaller than that of any thread.
#[test]
fn long_paths_run() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let mut graph = Graph::new().input("images", F32, &["1", "3", "8", "8"]);
    for i in 0..15_000 {
        let from = if i == 0 { "images".to_string() } else { format!("v{i}") };
        graph = graph.node("Abs", &[&from], &[&format!("v{}", i + 1)], vec![]);
    }
    let graph = graph.node("Relu", &["v15000"], &["output0"], vec![]).output("output0", F32, &["1", "3", "8", "8"]);
    let model = graph.save(&scratch("ort-long").join("long.onnx"));
    let small = std::thread::Builder::new().stack_size(256 << 10);
    small.spawn(move || assert_eq!(run(&model, &options).unwrap().len(), 1)).unwrap().join().unwrap();
}

#[test]
fn a_missing_library_says_what_to_install() {
    let wrong = ["backend=onnxruntime", "ort-library=/nowhere/libonnxruntime.so"];
    let error = run(&shapes(), &wrong).unwrap_err();
    assert!(error.kind() == ErrorKind::Library && error.message().contains("pip install onnxruntime"), "{error}");
    assert!(error.message().contains("activate the virtual environment that has it"), "{error}");
    let session = |options: &[&str]| {
        let (options, _) = parse_options(options.iter().copied()).unwrap();
        Session::open(shapes(), &options).map(|session| (session.backend(), session.reason().map(str::to_string)))
    };
    // backend=cpu gets the CPU; with backend=auto the reason is given.
    assert_eq!(session(&["backend=cpu", wrong[1]]).unwrap(), ("rten", None));
    if crate::common::gpu::is_hidden("onnxruntime::a_missing_library_says_what_to_install") {
        let (backend, reason) = session(&[wrong[1]]).unwrap();
        let reason = reason.unwrap();
        assert!(backend == "rten" && reason.contains("driver") && reason.contains("/nowhere"), "{reason}");
    }
    let Some([_, library]) = ort::options(ort::NEWEST) else { return };
    assert_eq!(session(&["backend=cpu", &library]).unwrap(), ("onnxruntime", None));
    if crate::common::gpu::is_hidden("onnxruntime::a_missing_library_says_what_to_install") {
        assert_eq!(session(&[&library]).unwrap().0, "onnxruntime");
    }
}

#[test]
fn execution_providers_are_those_of_the_library() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let with = |providers: &str| {
        let texts = [&options[..], &[format!("execution-providers={providers}")]].concat();
        run(&shapes(), &texts)
    };
    assert_eq!(with("cpu").unwrap().len(), 1);
    for (providers, part) in [
        ("openvino,cpu", "there is no “openvino”"),
        ("cuda", "there is no “cuda”"),
        ("tensorrt", "backend=tensorrt"),
        ("cpu:fast", "key=value"),
    ] {
        let error = with(providers).unwrap_err();
        assert!(error.kind() == ErrorKind::Settings && error.message().contains(part), "{error}");
        assert!(error.message().contains("ONNX Runtime 1.32.0 here has") && error.message().contains("cpu"), "{error}");
    }
}

#[test]
fn openvino_computes_the_same() {
    let Some(_) = ort::find(ort::OPENVINO) else {
        println!("SKIP: tests/onnxruntime/fetch.sh openvino brings {}", ort::OPENVINO);
        return;
    };
    let options = ort::options(ort::OPENVINO).unwrap();
    for providers in ["openvino", "openvino:device_type=CPU,cpu"] {
        let texts = [&options[..], &[format!("execution-providers={providers}")]].concat();
        let (found, expected) = (run(&shapes(), &texts).unwrap(), run(&shapes(), RTEN).unwrap());
        assert!(difference(&expected[0], &found[0]) < 1e-4, "{providers}");
    }
    let texts = [&options[..], &["execution-providers=openvino:colour=red".into()]].concat();
    let error = run(&shapes(), &texts).unwrap_err();
    assert!(error.kind() == ErrorKind::Library && error.message().contains("openvino does not start"), "{error}");
}

#[test]
fn as_many_threads_as_asked_for() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    for backend in [&options[..], &["backend=rten".to_string()][..]] {
        for count in [1, 3] {
            let (mut instance, picture) = load(&shapes(), &[backend, &[format!("threads={count}")]].concat()).unwrap();
            let outputs = instance.run(std::slice::from_ref(&picture)).unwrap().remove(0).into_ready().unwrap();
            assert!(difference(&outputs[0], &run(&shapes(), RTEN).unwrap()[0]) < 2e-5);
        }
    }
    // Sessions have threads of their own, one fewer than compute.
    let before = threads();
    let (_one, _) = load(&shapes(), &[&options[..], &["threads=1".into()]].concat()).unwrap();
    let (_five, _) = load(&shapes(), &[&options[..], &["threads=5".into()]].concat()).unwrap();
    assert!(threads() >= before + 4, "{before}, then {}", threads());
}

/// One network, loaded once, in several threads.
#[test]
fn runs_at_the_same_time_compute_the_same() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    for backend in [&options[..], &["backend=rten".to_string()][..]] {
        let request = request(&shapes(), &[backend, &["threads=2".into()]].concat(), 1).unwrap();
        let alone = request.load(&LoadContext::silent()).unwrap();
        libraries::runs_at_the_same_time_compute_the_same(&request, alone, 1e-6);
    }
}

mod pipelines {
    use super::*;
    use std::sync::{Arc, Mutex};

    use crate::common::boxes::{Found, found};

    /// The objects of each frame of a clip, of which every fifth is inferred.
    fn objects(infer: &str) -> Vec<Vec<Found>> {
        crate::common::init();
        let line = format!(
            "filesrc location={} ! decodebin ! trtpreprocess ! trtinfer model-file={} interval=5 {infer} \
             ! trtnms name=nms hold-detections=false ! fakesink",
            path("tests/data/sample.mp4"),
            shapes()
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let frames = Arc::new(Mutex::new(Vec::new()));
        let collected = frames.clone();
        pipeline.by_name("nms").unwrap().static_pad("src").unwrap().add_probe(
            gst::PadProbeType::BUFFER,
            move |_, info| {
                collected.lock().unwrap().push(found(info.buffer().unwrap()));
                gst::PadProbeReturn::Ok
            },
        );
        crate::common::run(&pipeline).expect_success();
        std::mem::take(&mut frames.lock().unwrap())
    }

    #[test]
    fn boxes_are_equal() {
        let Some(options) = ort::options(ort::NEWEST) else { return };
        let (expected, found) = (objects("backend=rten"), objects(&options.join(" ")));
        assert_eq!(expected.len(), found.len());
        let (mut boxes, mut furthest) = (0, 0.0f64);
        for (frame, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(expected.len(), found.len(), "frame {frame}");
            for a in expected {
                // In the order of their scores, which rounding may change.
                let same = found.iter().filter(|b| a.label == b.label);
                let apart = |b: &Found| {
                    let corners = a.corners.iter().zip(&b.corners).map(|(a, b)| (a - b).abs());
                    corners.fold((a.confidence - b.confidence).abs(), f64::max)
                };
                furthest = furthest.max(same.map(apart).fold(1.0, f64::min));
                boxes += 1;
            }
        }
        println!("{boxes} boxes, at most {furthest:e} apart");
        assert!(boxes > 200 && furthest < 1e-4, "{boxes}, {furthest}");
    }

    #[test]
    fn messages_and_model_info_name_it() {
        let Some(options) = ort::options(ort::NEWEST) else { return };
        libraries::messages_and_model_info_name_it("onnxruntime", &options);
    }

    /// A run that never ends is ended, so that there is nothing to warn of.
    #[test]
    fn a_run_that_never_ends_is_ended() {
        let Some(options) = ort::options(ort::NEWEST) else { return };
        crate::common::init();
        let model = crate::common::onnx::endless("1", "8", false).save(&scratch("ort-endless").join("endless.onnx"));
        let line = format!(
            "videotestsrc ! video/x-raw,format=RGB,width=8,height=8 ! trtpreprocess ! trtinfer name=infer model-file={model} {} \
             ! trtnms ! fakesink",
            options.join(" ")
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let bus = pipeline.bus().unwrap();
        let infer = pipeline.by_name("infer").unwrap();
        for _ in 0..2 {
            pipeline.set_state(gst::State::Playing).unwrap();
            wait_until("a batch", LIMIT, || {
                let failed = bus.pop_filtered(&[gst::MessageType::Error]);
                assert!(failed.is_none(), "{failed:?}");
                infer.property::<gst::Structure>("stats").get::<u64>("batches").unwrap() > 0
            });
            pipeline.set_state(gst::State::Ready).unwrap();
            let said = bus.pop_filtered(&[gst::MessageType::Warning, gst::MessageType::Error]);
            assert!(said.is_none(), "{said:?}");
        }
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// Types that tensors of models have.
#[test]
fn types_pass() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    libraries::types_pass(ort::NEWEST, &scratch("ort-types"), &options);
}
