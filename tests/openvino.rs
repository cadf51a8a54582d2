// SPDX-License-Identifier: MPL-2.0
//! OpenVINO compared with rten: the same outputs, what is computed in 16 bits, what is kept, and what runs a model that it
//! does not.

use std::process::Command;
use std::sync::{Arc, Barrier};

use gst::prelude::*;
use gsttrt_core::backends::{LoadContext, ModelInstance};
use gsttrt_core::error::ErrorKind;
use gsttrt_core::session::{Session, parse_options};
use gsttrt_core::tensor::{Tensor, Tensors};

use crate::common::compared::{MODELS, RTEN, difference, load, picture, request, run};
use crate::common::onnx::{BOOL, F16, F32, Graph, I8, I32, I64, U8, int, ints};
use crate::common::{openvino, path, scratch, shapes};

/// Options with others, and 32 bits whatever the CPU prefers.
fn exact(options: &[String], more: &[&str]) -> Vec<String> {
    let more = more.iter().map(|text| text.to_string());
    options.iter().cloned().chain(["precision=fp32".to_string()]).chain(more).collect()
}

#[test]
fn both_backends_compute_the_same() {
    for library in [openvino::NEWEST, openvino::OLDEST] {
        let Some(options) = openvino::options(library) else { return };
        for name in MODELS {
            let model = path(&format!("tests/models/{name}.onnx"));
            let (expected, found) = (run(&model, RTEN).unwrap(), run(&model, &exact(&options, &[])).unwrap());
            assert_eq!(found.len(), expected.len());
            // Rows that are sorted by score change places where scores are equal up to rounding.
            let limit = if name.contains("f16") { 5e-3 } else { 1e-4 };
            for (expected, found) in expected.iter().zip(&found).filter(|_| name != "shapes-e2e") {
                let difference = difference(expected, found);
                println!("{library} {name} {}: {difference:e}", expected.desc());
                assert!(difference < limit, "{name} {}: {difference:e}", expected.desc());
            }
        }
    }
}

/// In what the CPU prefers, and in 32 bits.
#[test]
fn verified_models_are_right() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let files = ["shapes-320", "shapes-e2e", "shapes-seg", "rooms-depth"];
    for file in files.map(|name| path(&format!("tests/models/{name}.onnx"))) {
        for precision in ["precision=auto", "precision=fp32"] {
            let texts = options.iter().map(String::as_str).chain(["verify=always", precision]);
            let (options, _) = parse_options(texts).unwrap();
            let session = Session::open(&file, &options).unwrap();
            let verdict = session.verdict().unwrap();
            println!("{file} {precision}: {verdict}");
            assert!(verdict.passed(), "{file}: {verdict}");
            assert_eq!(verdict.reference.as_deref(), Ok("the CPU (rten)"));
            assert!(verdict.results.is_some_and(|(sought, _)| sought > 0), "{file}: {verdict}");
            if precision == "precision=fp32" {
                assert!(verdict.worst().is_some_and(|(_, error)| error < 1e-3), "{file}: {verdict}");
            }
        }
    }
}

/// Compiled models, and the verdict on what is computed in 16 bits, which is found out once.
#[test]
fn what_was_compiled_and_found_out_is_kept() {
    let Some([backend, library, _]) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-kept");
    let cache = format!("engine-cache={}", folder.display());
    let names = |of: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(of).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    };
    let open = |more: &str| {
        let (options, _) = parse_options([backend.as_str(), library.as_str(), cache.as_str(), more]).unwrap();
        Session::open(shapes(), &options).unwrap()
    };
    assert!(open("precision=fp32").verdict().is_none(), "32 bits are not verified unasked");
    assert_eq!(names(&folder.join("openvino")).iter().filter(|name| name.ends_with(".blob")).count(), 1);
    let first = open("precision=auto").verdict().cloned();
    let Some(first) = first else {
        println!("SKIP: this CPU has no BF16");
        return;
    };
    assert_eq!(names(&folder).iter().filter(|name| name.ends_with(".verdict")).count(), 1);
    assert_eq!(open("precision=auto").verdict(), Some(&first), "as it was kept, with its time");
}

#[test]
fn outputs_stay() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-outputs");
    let dims = &["1", "3", "2", "4"];
    for dtype in [F32, F16, U8] {
        let graph = Graph::new().input("images", dtype, dims).output("same", dtype, dims);
        let graph = graph.node("Identity", &["images"], &["same"], vec![]);
        let model = graph.save(&folder.join(format!("echo-{dtype}.onnx")));
        let request = request(&model, &exact(&options, &[]), 1).unwrap();
        let mut instance = request.load(&LoadContext::silent()).unwrap();
        let expected = picture(&request, 1)[0].bytes().unwrap().to_vec();
        let first = instance.run(&[picture(&request, 1)]).unwrap().remove(0).into_ready().unwrap();
        for seed in 2..9 {
            drop(instance.run(&[picture(&request, seed)]).unwrap());
        }
        drop(instance);
        assert_eq!(first[0].bytes().unwrap(), expected, "{dtype}");
    }
}

/// OpenVINO fills such outputs with zeros, and its input too.
#[test]
fn inputs_that_are_outputs_are_for_others() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-inputs");
    let dims = &["1", "3", "2", "4"];
    let graph = Graph::new().input("images", F32, dims).output("images", F32, dims).output("other", F32, dims);
    let model = graph.node("Relu", &["images"], &["other"], vec![]).save(&folder.join("direct.onnx"));
    let error = run(&model, &options).unwrap_err();
    assert!(error.kind() == ErrorKind::Model && error.message().contains("images is an input"), "{error}");
    // Where it is not named, the next one runs the model, and says so once.
    let (cpu, _) = parse_options(["backend=cpu", options[1].as_str(), options[2].as_str()]).unwrap();
    let session = Session::open(&model, &cpu).unwrap();
    assert_eq!(session.backend(), "rten");
    let [warning] = session.warnings() else { panic!("{:?}", session.warnings()) };
    assert!(warning.message().contains("in place of OpenVINO"), "{warning}");
}

#[test]
fn batches_and_open_sizes_are_taken() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-batches");
    let open = Graph::load(&shapes()).with_batch("n").save(&folder.join("open.onnx"));
    let batches = request(&open, &exact(&options, &[]), 4).unwrap();
    let mut instance = batches.load(&LoadContext::silent()).unwrap();
    for count in [4, 1, 3] {
        let pictures: Vec<_> = (0..count).map(|seed| picture(&batches, seed)).collect();
        let together = instance.run(&pictures).unwrap();
        assert_eq!(together.len(), count);
        for (picture, outputs) in pictures.iter().zip(together) {
            let alone = instance.run(std::slice::from_ref(picture)).unwrap().remove(0).into_ready().unwrap();
            assert!(difference(&alone[0], &outputs.into_ready().unwrap()[0]) < 1e-5);
        }
    }
    let dims = &["n", "3", "h", "w"];
    let sized = Graph::new()
        .input("images", F32, dims)
        .input("im_shape", F32, &["n", "2"])
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Identity", &["im_shape"], &["size"], vec![])
        .output("mean", F32, &["n"])
        .output("size", F32, &["n", "2"])
        .save(&folder.join("sized.onnx"));
    let outputs = run(&sized, &exact(&options, &["input-size=48x32"])).unwrap();
    assert_eq!(outputs[1].as_slice::<f32>().unwrap(), [32.0, 48.0]);
}

#[test]
fn weights_in_other_files_are_read_here() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-external");
    let graph = |file: &str| {
        Graph::new()
            .input("images", F32, &["1", "3", "8", "8"])
            .external_weight("w", file)
            .node("Mul", &["images", "w"], &["output0"], vec![])
            .output("output0", F32, &["1", "3", "8", "8"])
    };
    std::fs::write(folder.join("w.data"), 2.0f32.to_le_bytes()).unwrap();
    let model = graph("w.data").save(&folder.join("good.onnx"));
    let (found, expected) = (run(&model, &exact(&options, &[])).unwrap(), run(&model, RTEN).unwrap());
    assert!(difference(&found[0], &expected[0]) == 0.0);
    std::fs::write(folder.join("short.data"), [0; 2]).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe.data")).status().unwrap().success());
    for file in ["missing.data", "../w.data", "/etc/passwd", "w.bin", "pipe.data", "short.data"] {
        let error = run(&graph(file).save(&folder.join("bad.onnx")), &options).unwrap_err();
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Model, "{error}");
    }
}

#[test]
fn models_that_cannot_be_used_are_refused() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-refused");
    let picture = || Graph::new().input("images", F32, &["1", "3", "8", "8"]);
    let output = |graph: Graph| graph.output("output0", F32, &["1", "3", "8", "8"]);
    let huge = (26i64 << 40).to_le_bytes().to_vec();
    for (name, graph, part) in [
        ("operator", output(picture().node("Frobnicate", &["images"], &["output0"], vec![])), "Frobnicate"),
        (
            "alloc",
            picture()
                .weight("shape", I64, &[1], huge)
                .node("ConstantOfShape", &["shape"], &["output0"], vec![])
                .output("output0", F32, &["n"]),
            "more memory",
        ),
    ] {
        let error = run(&graph.save(&folder.join(format!("{name}.onnx"))), &options).unwrap_err();
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Model, "{error}");
        assert!(error.message().contains(part) && error.message().contains(&format!("{name}.onnx")), "{error}");
    }
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let error = run(&shapes(), &exact(&options, &["openvino-device=fpga"])).unwrap_err();
    assert!(error.kind() == ErrorKind::Library && error.message().contains("there is no FPGA"), "{error}");
    assert!(error.message().contains("CPU"), "{error}");
    assert!(run(&shapes(), &exact(&options, &["openvino-device=cpu"])).is_ok());
}

#[test]
fn a_missing_library_says_what_to_install() {
    let wrong = ["backend=openvino", "openvino-library=/nowhere/libopenvino_c.so"];
    let error = run(&shapes(), &wrong).unwrap_err();
    assert!(error.kind() == ErrorKind::Library && error.message().contains("pip install openvino"), "{error}");
    let backend = |options: &[&str]| {
        let (options, _) = parse_options(options.iter().copied()).unwrap();
        Session::open(shapes(), &options).map(|session| session.backend())
    };
    assert_eq!(backend(&["backend=cpu", wrong[1]]).unwrap(), "rten");
    let Some([_, library, cache]) = openvino::options(openvino::NEWEST) else { return };
    assert_eq!(backend(&["backend=cpu", &library, &cache]).unwrap(), "openvino");
}

/// One network, compiled once, in several threads.
#[test]
fn runs_at_the_same_time_compute_the_same() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let output = |instance: &mut dyn ModelInstance, picture: &Arc<Tensors>| -> Tensor {
        instance.run(std::slice::from_ref(picture)).unwrap().remove(0).into_ready().unwrap().remove(0)
    };
    let request = request(&shapes(), &exact(&options, &["threads=2"]), 1).unwrap();
    let (mut alone, _) = load(&shapes(), &exact(&options, &["threads=1"])).unwrap();
    assert!(alone.take_others().is_empty());
    let mut first = request.with_parallel_runs(3).load(&LoadContext::silent()).unwrap();
    let others = first.take_others();
    assert_eq!((others.len(), first.take_others().len()), (2, 0));
    let begin = Barrier::new(3);
    std::thread::scope(|scope| {
        for (seed, mut instance) in std::iter::once(first).chain(others).enumerate() {
            let picture = picture(&request, seed);
            let wanted = output(&mut *alone, &picture);
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                for _ in 0..2 {
                    assert!(difference(&output(&mut *instance, &picture), &wanted) < 1e-5, "{seed}");
                }
            });
        }
    });
}

#[test]
fn messages_and_model_info_name_it() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    crate::common::init();
    let line = format!(
        "videotestsrc num-buffers=2 ! video/x-raw,width=64,height=64 ! trtpreprocess ! trtinfer name=infer model-file={} {} \
         ! trtnms ! fakesink",
        shapes(),
        exact(&options, &["threads=1"]).join(" ")
    );
    let outcome = crate::common::launch(&line);
    outcome.expect_success();
    assert!(outcome.progress[0].contains("for the openvino backend"), "{:?}", outcome.progress);
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    let info = pipeline.by_name("infer").unwrap().property::<gst::Structure>("model-info");
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(info.get::<&str>("backend").unwrap(), "openvino");
}

/// Types that tensors of models have.
#[test]
fn types_pass() {
    for library in [openvino::NEWEST, openvino::OLDEST] {
        let Some(options) = openvino::options(library) else { return };
        let folder = scratch("openvino-types");
        for (dtype, name) in [(I64, "i64"), (BOOL, "bool"), (U8, "u8"), (F16, "f16"), (I32, "i32"), (I8, "i8")] {
            let model = Graph::new()
                .input("images", F32, &["1", "3", "2", "2"])
                .node("Cast", &["images"], &["output0"], vec![int("to", dtype.into())])
                .output("output0", dtype, &["1", "3", "2", "2"])
                .save(&folder.join(format!("{name}.onnx")));
            let outputs = run(&model, &exact(&options, &[])).unwrap();
            assert_eq!(outputs[0].desc().to_string(), format!("output0 {name} 1x3x2x2"), "{library}");
        }
    }
}
