// SPDX-License-Identifier: MPL-2.0
//! What each library that runs ONNX files must do, whatever its name.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};

use gst::prelude::*;
use gsttrt_core::backends::{LoadContext, LoadRequest, ModelInstance};
use gsttrt_core::error::ErrorKind;
use gsttrt_core::tensor::{Tensor, Tensors};

use super::compared::{MODELS, RTEN, difference, picture, request, run};
use super::onnx::{BOOL, F16, F32, Graph, I8, I32, I64, U8, int, ints};
use super::{init, launch, path, shapes};

/// A graph from a picture of 8x8 to an output of the same size, without what computes it.
pub fn square() -> Graph {
    let dims = &["1", "3", "8", "8"];
    Graph::new().input("images", F32, dims).output("output0", F32, dims)
}

/// All models give what rten gives, within a limit for those in 32 bits.
pub fn models_are_computed_like_by_rten(libraries: &[(&str, Vec<String>)], limit: f32) {
    for name in MODELS.iter().filter(|_| !libraries.is_empty()) {
        let model = path(&format!("tests/models/{name}.onnx"));
        let expected = run(&model, RTEN).unwrap();
        for (library, options) in libraries {
            let found = run(&model, options).unwrap();
            assert_eq!(found.len(), expected.len());
            // Rows that are sorted by score change places where scores are equal up to rounding.
            let limit = if name.contains("f16") { 5e-3 } else { limit };
            for (expected, found) in expected.iter().zip(&found).filter(|_| *name != "shapes-e2e") {
                let difference = difference(expected, found);
                println!("{library} {name} {}: {difference:e}", expected.desc());
                assert!(difference < limit, "{name} {}: {difference:e}", expected.desc());
            }
        }
    }
}

/// Outputs that are memory of the input are copied, and others stay as they are when the model runs again.
pub fn outputs_stay(folder: &Path, options: &[String], operators: &[&str]) {
    let dims = &["1", "3", "2", "4"];
    for &operator in operators {
        for dtype in [F32, F16, U8] {
            let graph = Graph::new().input("images", dtype, dims).output("same", dtype, dims);
            let operator = if dtype == U8 { "Identity" } else { operator };
            let graph = graph.node(operator, &["images"], &["same"], vec![]);
            let model = graph.save(&folder.join(format!("{operator}-{dtype}.onnx")));
            let request = request(&model, options, 1).unwrap();
            let mut instance = request.load(&LoadContext::silent()).unwrap();
            let expected = picture(&request, 1)[0].bytes().unwrap().to_vec();
            let first = instance.run(&[picture(&request, 1)]).unwrap().remove(0).into_ready().unwrap();
            for seed in 2..9 {
                drop(instance.run(&[picture(&request, seed)]).unwrap());
            }
            drop(instance);
            if operator == "Identity" {
                assert_eq!(first[0].bytes().unwrap(), expected, "{dtype}");
            } else {
                assert_eq!(first[0].bytes().unwrap().len(), expected.len());
            }
        }
    }
}

/// Batches that are not full, and sizes that `input-size` says.
pub fn batches_and_open_sizes_are_taken(folder: &Path, options: &[String]) {
    let open = Graph::load(&shapes()).with_batch("n").save(&folder.join("open.onnx"));
    let request = request(&open, options, 4).unwrap();
    let mut instance = request.load(&LoadContext::silent()).unwrap();
    for count in [4, 1, 3] {
        let pictures: Vec<_> = (0..count).map(|seed| picture(&request, seed)).collect();
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
    let texts = [options, &["input-size=48x32".into()]].concat();
    let outputs = run(&sized, &texts).unwrap();
    assert_eq!(outputs[1].as_slice::<f32>().unwrap(), [32.0, 48.0]);
    // The channels, too, as Hugging Face's packages export them.
    let floats = (0..12).flat_map(|at| (at as f32 / 8.0).to_le_bytes()).collect();
    let all = Graph::new()
        .input("pixel_values", F32, &["batch_size", "num_channels", "height", "width"])
        .weight("w", F32, &[4, 3, 1, 1], floats)
        .node(
            "Conv",
            &["pixel_values", "w"],
            &["maps"],
            vec![ints("strides", &[1, 1]), ints("dilations", &[1, 1]), ints("pads", &[0, 0, 0, 0])],
        )
        .output("maps", F32, &["batch_size", "4", "height", "width"])
        .save(&folder.join("channels.onnx"));
    let expected = run(&all, &["backend=rten", "input-size=48x32"]).unwrap();
    assert_eq!(expected[0].desc().to_string(), "maps f32 1x4x32x48");
    let verified = [&texts[..], &["verify=always".into()]].concat();
    for texts in [texts, verified] {
        assert!(difference(&run(&all, &texts).unwrap()[0], &expected[0]) < 1e-4, "{texts:?}");
    }
}

/// They lie in the model's folder, and nowhere else.
pub fn weights_in_other_files_are_read_here(folder: &Path, options: &[String]) {
    let graph = |file: &str| square().external_weight("w", file).node("Mul", &["images", "w"], &["output0"], vec![]);
    std::fs::write(folder.join("w.data"), 2.0f32.to_le_bytes()).unwrap();
    let model = graph("w.data").save(&folder.join("good.onnx"));
    let (found, expected) = (run(&model, options).unwrap(), run(&model, RTEN).unwrap());
    assert!(difference(&found[0], &expected[0]) == 0.0);
    std::fs::write(folder.join("short.data"), [0; 2]).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe.data")).status().unwrap().success());
    for file in ["missing.data", "../w.data", "/etc/passwd", "w.bin", "pipe.data", "short.data"] {
        let error = run(&graph(file).save(&folder.join("bad.onnx")), options).unwrap_err();
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Model, "{error}");
    }
}

/// An operator that nobody knows, an output that has no room, and more graphs with what is said of them.
pub fn models_that_cannot_be_used_are_refused(
    folder: &Path,
    options: &[String],
    more: Vec<(&'static str, Graph, &'static str)>,
) {
    let huge = (26i64 << 40).to_le_bytes().to_vec();
    let large = Graph::new().input("images", F32, &["1", "3", "8", "8"]).weight("shape", I64, &[1], huge);
    let large = large.node("ConstantOfShape", &["shape"], &["output0"], vec![]).output("output0", F32, &["n"]);
    let usual = [
        ("operator", square().node("Frobnicate", &["images"], &["output0"], vec![]), "Frobnicate"),
        ("alloc", large, "more memory"),
    ];
    for (name, graph, part) in usual.into_iter().chain(more) {
        let error = run(&graph.save(&folder.join(format!("{name}.onnx"))), options).unwrap_err();
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Model, "{error}");
        assert!(error.message().contains(part) && error.message().contains(&format!("{name}.onnx")), "{error}");
    }
}

/// One network, loaded once, in three threads. `alone` is another one of the same file.
pub fn runs_at_the_same_time_compute_the_same(request: &LoadRequest, mut alone: Box<dyn ModelInstance>, limit: f32) {
    let output = |instance: &mut dyn ModelInstance, picture: &Arc<Tensors>| -> Tensor {
        instance.run(std::slice::from_ref(picture)).unwrap().remove(0).into_ready().unwrap().remove(0)
    };
    assert!(alone.take_others().is_empty());
    let mut first = request.with_parallel_runs(3).load(&LoadContext::silent()).unwrap();
    let others = first.take_others();
    assert_eq!((others.len(), first.take_others().len()), (2, 0));
    let begin = Barrier::new(3);
    std::thread::scope(|scope| {
        for (seed, mut instance) in std::iter::once(first).chain(others).enumerate() {
            let picture = picture(request, seed);
            let wanted = output(&mut *alone, &picture);
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                for _ in 0..2 {
                    assert!(difference(&output(&mut *instance, &picture), &wanted) < limit, "{seed}");
                }
            });
        }
    });
}

pub fn messages_and_model_info_name_it(backend: &str, options: &[String]) {
    init();
    let line = format!(
        "videotestsrc num-buffers=2 ! video/x-raw,width=64,height=64 ! trtpreprocess ! trtinfer name=infer model-file={} {} \
         threads=1 ! trtnms ! fakesink",
        shapes(),
        options.join(" ")
    );
    let outcome = launch(&line);
    outcome.expect_success();
    assert!(outcome.progress[0].contains(&format!("for the {backend} backend")), "{:?}", outcome.progress);
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    let info = pipeline.by_name("infer").unwrap().property::<gst::Structure>("model-info");
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(info.get::<&str>("backend").unwrap(), backend);
}

/// Types that tensors of models have.
pub fn types_pass(library: &str, folder: &Path, options: &[String]) {
    for (dtype, name) in [(I64, "i64"), (BOOL, "bool"), (U8, "u8"), (F16, "f16"), (I32, "i32"), (I8, "i8")] {
        let model = Graph::new()
            .input("images", F32, &["1", "3", "2", "2"])
            .node("Cast", &["images"], &["output0"], vec![int("to", dtype.into())])
            .output("output0", dtype, &["1", "3", "2", "2"])
            .save(&folder.join(format!("{name}.onnx")));
        let outputs = run(&model, options).unwrap();
        assert_eq!(outputs[0].desc().to_string(), format!("output0 {name} 1x3x2x2"), "{library}");
    }
}
