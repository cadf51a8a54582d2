// SPDX-License-Identifier: MPL-2.0
//! `input-values`: a model looks for the words of a file, and for others while frames pass.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::boxes::{Line, found};
use crate::common::brokers::until;
use crate::common::endless::{give_way, runs};
use crate::common::npy::{npy, save_floats};
use crate::common::onnx::{AttributeProto, F32, Graph, I64, endless, int, ints};
use crate::common::{launch, scratch};
use gst::prelude::*;
use gsttrt_core::session::{Session, parse_options};

/// A model over pictures of 64x64 that finds one box, of each word with the score that is the first number of its vector.
fn model(folder: &Path) -> String {
    model_of(folder, "2")
}

/// Cells of a grid over the picture.
const CELLS: usize = 84;

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The same, whose file says that vectors have so many numbers.
fn model_of(folder: &Path, numbers: &str) -> String {
    let first = [[1.0; CELLS], [0.0; CELLS]];
    let graph = boxes()
        .input("tpe", F32, &["n", "words", numbers])
        .weight("first", F32, &[2, CELLS as i64], floats(first.as_flattened()))
        .node("MatMul", &["tpe", "first"], &["scores"], vec![]);
    saved(graph, &folder.join("words.onnx"))
}

/// A model like that of the classes a and b, which finds a. An operator makes its scores, with the numbers of the input `pick`.
fn picking(file: &Path, operator: &str, attributes: Vec<AttributeProto>, count: &str) -> String {
    let scores = [[0.9; CELLS], [0.1; CELLS]];
    let graph = boxes()
        .input("pick", I64, &[count])
        .weight("both", F32, &[1, 2, CELLS as i64], floats(scores.as_flattened()))
        .node("Add", &["nothing", "both"], &["all"], vec![])
        .node(operator, &["all", "pick"], &["scores"], attributes)
        .metadata("names", "{0: 'a', 1: 'b'}");
    saved(graph, file)
}

/// The value of the property for that input.
fn pick(file: &Path, numbers: &[i64]) -> String {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    std::fs::write(file, npy("<i8", &format!("({},)", numbers.len()), &bytes)).unwrap();
    format!("pick={}", file.display())
}

/// One box in each picture.
fn boxes() -> Graph {
    let boxes = [32.0, 32.0, 20.0, 20.0].map(|number| [number; CELLS]);
    Graph::new()
        .input("images", F32, &["n", "3", "64", "64"])
        .weight("zero", F32, &[1], floats(&[0.0]))
        .weight("boxes", F32, &[1, 4, CELLS as i64], floats(boxes.as_flattened()))
        .node("ReduceMean", &["images"], &["rows"], vec![ints("axes", &[2]), int("keepdims", 0)])
        .node("ReduceMean", &["rows"], &["mean"], vec![ints("axes", &[1, 2]), int("keepdims", 1)])
        .node("Mul", &["mean", "zero"], &["nothing"], vec![])
        .node("Add", &["nothing", "boxes"], &["found"], vec![])
}

/// With scores, it is a detector.
fn saved(graph: Graph, file: &Path) -> String {
    graph
        .node("Concat", &["found", "scores"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &["n", "columns", "84"])
        .metadata("author", "Ultralytics")
        .metadata("task", "detect")
        .save(file)
}

/// A file of words with these scores, and their names next to it; the value of the property.
fn words(folder: &Path, name: &str, words: &[(&str, f32)]) -> String {
    let names: String = words.iter().map(|(word, _)| format!("{word}\n")).collect();
    std::fs::write(folder.join(name).with_extension("txt"), names).unwrap();
    let numbers: Vec<f32> = words.iter().flat_map(|&(_, score)| [score, 0.0]).collect();
    let file = save_floats(&folder.join(name).with_extension("npy"), &[1, words.len(), 2], &numbers);
    format!("tpe={file}")
}

/// On a backend that takes any number of words.
fn line(model: &str, values: &str, more: &str) -> Line {
    gated("", model, values, more)
}

fn gated(gate: &str, model: &str, values: &str, more: &str) -> Line {
    let infer = format!("trtinfer backend=rten model-file={model} input-values={values} {more}");
    Line::parse(&format!("trtpreprocess {gate} ! {infer} ! trtnms"))
}

fn set(line: &mut Line, values: &str) {
    line.element("trtinfer").set_property("input-values", values);
}

fn values(line: &mut Line) -> String {
    line.element("trtinfer").property("input-values")
}

#[test]
fn the_next_frame_is_searched_for_other_words() {
    let folder = scratch("values-change");
    let cars = words(&folder, "cars", &[("red car", 0.9), ("bus", 0.1)]);
    let pets = words(&folder, "pets", &[("fish", 0.1), ("cat", 0.1), ("dog", 0.9)]);
    let model = model(&folder);
    let mut line = line(&model, &cars, "");
    let rects: Vec<_> = line.found().into_iter().map(|found| (found.label, found.rect)).collect();
    assert_eq!(rects, [("red car".to_string(), (22, 22, 20, 20))]);
    line.wait_for_model(&model);
    for (values, label, class) in [(&pets, "dog", 2), (&cars, "red car", 0), (&pets, "dog", 2)] {
        set(&mut line, values);
        let classes: Vec<_> = line.found().into_iter().map(|found| (found.label, found.class)).collect();
        assert_eq!(classes, [(label.to_string(), class)]);
    }
    assert!(line.messages_of(gst::MessageType::Progress).is_empty(), "it is not loaded again");
    // The same file may have been written again.
    words(&folder, "pets", &[("fish", 0.9), ("cat", 0.1), ("dog", 0.1)]);
    assert_eq!(line.labels(), ["dog"]);
    set(&mut line, &pets);
    assert_eq!((line.labels(), values(&mut line)), (vec!["fish".to_string()], pets));
    let info: gst::Structure = line.element("trtinfer").property("model-info");
    let labels = info.get::<gst::Array>("labels").unwrap();
    let labels: Vec<String> = labels.iter().map(|label| label.get().unwrap()).collect();
    assert_eq!(labels, ["fish", "cat", "dog"]);
    assert_eq!(line.said(), <[&str; 0]>::default());
}

#[test]
fn frames_that_need_not_be_inferred_are_searched_for_other_words() {
    let folder = scratch("values-still");
    let model = model(&folder);
    let [cat, dog] = ["cat", "dog"].map(|name| words(&folder, name, &[("mouse", 0.1), (name, 0.9)]));
    let mut rare = line(&model, &cat, "interval=100");
    assert_eq!([rare.labels(), rare.labels()].concat(), ["cat", "cat"]);
    set(&mut rare, &dog);
    assert_eq!(rare.labels(), ["dog"]);
    let mut still = gated("motion-gate=0.001 motion-refresh=0", &model, &cat, "");
    assert_eq!([still.labels(), still.labels()].concat(), ["cat", "cat"]);
    set(&mut still, &dog);
    still.labels(); // it may have the former ones: nothing is made of it
    assert_eq!(still.labels(), ["dog"]);
}

#[test]
fn values_that_do_not_fit_change_nothing() {
    let folder = scratch("values-wrong");
    let cars = words(&folder, "cars", &[("red car", 0.9), ("bus", 0.1)]);
    let mut line = line(&model(&folder), &cars, "");
    assert_eq!(line.labels(), ["red car"]);
    let file = cars.strip_prefix("tpe=").unwrap();
    let wide = save_floats(&folder.join("wide.npy"), &[1, 2, 3], &[0.5; 6]);
    let unnamed = words(&folder, "unnamed", &[("dog", 0.9), ("cat", 0.1)]);
    std::fs::write(folder.join("unnamed.txt"), "dog\n").unwrap();
    for (text, says) in [
        (format!("tpe={wide}"), "wide.npy does not fit its input tpe f32 ?x?x2: it is f32 1x2x3"),
        (format!("tqe={file}"), "it has no such input; did you mean “tpe”? Name one of its inputs"),
        (format!("images={file}"), "which is the input of the picture"),
        (format!("tpe={}", folder.join("none.npy").display()), "There is no file"),
        (unnamed, "unnamed.txt has 1 names"),
        ("words.npy".into(), "cannot be read"),
        (String::new(), "it has an input whose content is not known, tpe f32 ?x?x2"),
    ] {
        set(&mut line, &text);
        let warning = line.wait_for_warning();
        assert!(warning.contains(says) && warning.ends_with("The values in use stay."), "{warning}");
        assert_eq!((line.labels(), values(&mut line)), (vec!["red car".to_string()], cars.clone()));
    }
}

/// The file leaves open what the graph does not.
#[test]
fn values_that_the_model_cannot_run_change_nothing() {
    let folder = scratch("values-unrun");
    let cars = words(&folder, "cars", &[("red car", 0.9), ("bus", 0.1)]);
    let model = model_of(&folder, "k");
    let mut line = line(&model, &cars, "");
    assert_eq!(line.labels(), ["red car"]);
    line.wait_for_model(&model);
    let wide = save_floats(&folder.join("wide.npy"), &[1, 2, 3], &[0.5; 6]);
    set(&mut line, &format!("tpe={wide}"));
    let warning = line.wait_for_warning();
    assert!(warning.contains("does not run with input-values=tpe=") && warning.contains("wide.npy"), "{warning}");
    assert!(warning.ends_with("The values in use stay."), "{warning}");
    assert_eq!((line.labels(), values(&mut line)), (vec!["red car".to_string()], cars));
}

/// They fit its inputs. A trial is in no count.
#[test]
fn numbers_that_the_model_cannot_compute_with_change_nothing() {
    let folder = scratch("values-numbers");
    let numbers = |name: &str, numbers: &[i64]| pick(&folder.join(name).with_extension("npy"), numbers);
    let gather = picking(&folder.join("gather.onnx"), "Gather", vec![int("axis", 1)], "k");
    let reshape = picking(&folder.join("reshape.onnx"), "Reshape", vec![], "3");
    let (both, shape) = (numbers("both", &[0, 1]), numbers("shape", &[1, 2, CELLS as i64]));
    for (model, good, bad, says) in [
        (&gather, &both, numbers("beyond", &[0, 9]), "does not run with input-values=pick="),
        (&gather, &both, numbers("wide", &[0, 1 << 40]), "The input pick has a number beyond 32 bits"),
        (&reshape, &shape, numbers("negative", &[1, -2, CELLS as i64]), "does not run with input-values=pick="),
    ] {
        let mut line = line(model, good, "");
        assert_eq!(line.labels(), ["a"]);
        line.wait_for_model(model);
        set(&mut line, &bad);
        let warning = line.wait_for_warning();
        assert!(warning.contains(says) && warning.ends_with("The values in use stay."), "{warning}");
        assert_eq!((line.labels(), values(&mut line)), (vec!["a".to_string()], good.clone()));
        let stats: gst::Structure = line.element("trtinfer").property("stats");
        assert_eq!(["batches", "batched", "inferred"].map(|name| stats.get::<u64>(name).unwrap()), [2; 3]);
    }
}

/// rten computes in 32 bits, and would cut them off.
#[test]
fn numbers_beyond_32_bits_are_an_error_on_rten() {
    let folder = scratch("values-wide");
    let model = picking(&folder.join("gather.onnx"), "Gather", vec![int("axis", 1)], "k");
    let wide = pick(&folder.join("wide.npy"), &[0, (1 << 32) + 1]);
    let infer = format!("trtinfer backend=rten model-file={model} input-values={wide}");
    launch(&format!("videotestsrc num-buffers=1 ! trtpreprocess ! {infer} ! trtnms ! fakesink"))
        .expect_error("ResourceError::Settings", &["The input pick has a number beyond 32 bits", "ONNX Runtime"]);
}

#[test]
fn arrays_that_do_not_go_together_change_nothing() {
    let folder = scratch("values-together");
    let graph = boxes()
        .input("tpe", F32, &["n", "words", "2"])
        .input("bias", F32, &["words", "84"])
        .weight("first", F32, &[2, CELLS as i64], vec![0; 8 * CELLS])
        .node("MatMul", &["tpe", "first"], &["none"], vec![])
        .node("Add", &["none", "bias"], &["scores"], vec![])
        .metadata("names", "{0: 'a', 1: 'b'}");
    let model = saved(graph, &folder.join("both.onnx"));
    let array = |name: &str, shape: &[usize], values: &[f32]| {
        save_floats(&folder.join(name).with_extension("npy"), shape, values)
    };
    let words = array("words", &[1, 2, 2], &[0.5; 4]);
    let good = array("good", &[2, CELLS], [[0.9; CELLS], [0.1; CELLS]].as_flattened());
    // One row would do for all words, if the file did not say otherwise.
    let bad = array("bad", &[1, CELLS], &[0.9; CELLS]);
    let text = |bias: &str| format!("tpe={words},bias={bias}");
    let mut line = line(&model, &text(&good), "");
    assert_eq!(line.labels(), ["a"]);
    set(&mut line, &text(&bad));
    let warning = line.wait_for_warning();
    assert!(warning.contains("the dimension “words” in tpe and in bias"), "{warning}");
    assert!(warning.ends_with("The values in use stay."), "{warning}");
    assert_eq!((line.labels(), values(&mut line)), (vec!["a".to_string()], text(&good)));
}

/// A name that is missing would be an error with the next frame.
#[test]
fn words_that_trtnms_cannot_name_change_nothing() {
    let folder = scratch("values-names");
    let cars = words(&folder, "cars", &[("car", 0.9), ("bus", 0.1)]);
    let pets = words(&folder, "pets", &[("fish", 0.1), ("cat", 0.1), ("dog", 0.9)]);
    let trains = words(&folder, "trains", &[("bus", 0.1), ("tram", 0.9)]);
    let (model, labels) = (model(&folder), folder.join("labels.txt").display().to_string());
    std::fs::write(&labels, "first\nsecond\n").unwrap();
    let with = |nms: &str| {
        let infer = format!("trtinfer backend=rten model-file={model} input-values={cars}");
        Line::parse(&format!("trtpreprocess ! {infer} ! trtnms {nms}"))
    };
    for (nms, label, says) in [
        (format!("label-file={labels}"), "first", "has 2 names, and the array is for 3 words"),
        ("classes=car".into(), "car", "classes: the model has no class “car”: its classes are fish, cat, dog"),
        ("class-thresholds=car=0.5".into(), "car", "class-thresholds: the model has no class “car”"),
    ] {
        let mut line = with(&nms);
        assert_eq!(line.labels(), [label]);
        set(&mut line, &pets);
        let warning = line.wait_for_warning();
        assert!(warning.contains(says) && warning.ends_with("The values in use stay."), "{warning}");
        assert_eq!((line.labels(), values(&mut line)), (vec![label.to_string()], cars.clone()));
    }
    for (nms, label) in [(format!("label-file={labels}"), "second"), ("classes=bus,1".into(), "tram")] {
        let mut line = with(&nms);
        line.labels();
        set(&mut line, &trains);
        assert_eq!(line.labels(), [label], "{nms}");
        assert_eq!(line.said(), <[&str; 0]>::default());
    }
}

#[test]
fn a_model_without_its_values_is_refused() {
    let folder = scratch("values-missing");
    let model = model(&folder);
    launch(&format!("videotestsrc num-buffers=1 ! trtpreprocess ! trtinfer model-file={model} ! fakesink"))
        .expect_error("LibraryError::Init", &["tpe f32 ?x?x2", "like input-values=tpe=words.npy"]);
}

/// Frames in batches, in queues and in parallel runs have the names of the words that they went in with, and none is lost.
#[test]
fn each_frame_has_the_names_of_its_words() {
    crate::common::init();
    let folder = scratch("values-stream");
    let model = model(&folder);
    let both = [
        words(&folder, "a", &[("a", 0.9), ("wrong", 0.1)]),
        words(&folder, "b", &[("wrong", 0.1), ("wrong", 0.1), ("b", 0.9)]),
    ];
    for properties in ["", "batch-size=4", "parallel-runs=3"] {
        let pipeline = gst::parse::launch(&format!(
            "videotestsrc num-buffers=400 ! video/x-raw,format=RGB,width=64,height=64,framerate=100/1 ! trtpreprocess name=first \
             ! queue ! trtinfer name=infer backend=rten model-file={model} input-values={} {properties} ! queue ! trtnms \
             ! appsink name=sink sync=false",
            both[0]
        ));
        let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
        let seen: Arc<Mutex<Vec<(u64, String)>>> = Arc::default();
        let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
        let into = seen.clone();
        sink.set_callbacks(
            gst_app::AppSinkCallbacks::builder()
                .new_sample(move |sink| {
                    let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
                    let buffer = sample.buffer().unwrap();
                    let labels: Vec<String> = found(buffer).into_iter().map(|found| found.label).collect();
                    into.lock().unwrap().push((buffer.offset(), labels.join(" ")));
                    Ok(gst::FlowSuccess::Ok)
                })
                .build(),
        );
        let infer = pipeline.by_name("infer").unwrap();
        let pad = pipeline.by_name("first").unwrap().static_pad("sink").unwrap();
        let (count, texts) = (Mutex::new(0usize), both.clone());
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            let mut count = count.lock().unwrap();
            *count += 1;
            if count.is_multiple_of(4) {
                infer.set_property("input-values", &texts[*count / 4 % 2]);
            }
            gst::PadProbeReturn::Ok
        });
        let outcome = crate::common::run(&pipeline);
        assert!(outcome.error.is_none() && outcome.warnings.is_empty(), "{outcome:?}");
        let seen = seen.lock().unwrap();
        let offsets: Vec<u64> = seen.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..400).collect::<Vec<u64>>());
        assert!(seen.iter().all(|(_, label)| label == "a" || label == "b"), "{properties}: {seen:?}");
        assert!(seen.iter().any(|(_, label)| label == "b"), "{properties}: they never changed");
    }
}

#[test]
fn the_last_words_count_for_all_that_share_a_model() {
    let folder = scratch("values-shared");
    let model = model(&folder);
    let [cat, dog] = ["cat", "dog"].map(|name| words(&folder, name, &[("mouse", 0.1), (name, 0.9)]));
    let share = || line(&model, &cat, "shared-model=values-shared");
    let (mut one, mut other) = (share(), share());
    assert_eq!([one.labels(), other.labels()].concat(), ["cat", "cat"]);
    set(&mut one, &dog);
    assert_eq!([other.labels(), one.labels()].concat(), ["dog", "dog"]);
    assert_eq!([values(&mut other), values(&mut one)], [&*dog, &*dog]);
    // It was made with the former words, and starts now.
    let mut third = share();
    assert_eq!((third.labels(), values(&mut third)), (vec!["dog".to_string()], dog));
    drop(one); // the one that has set them
    set(&mut third, &cat);
    assert_eq!([other.labels(), third.labels()].concat(), ["cat", "cat"]);
    assert_eq!([other.said(), third.said()].concat(), <[&str; 0]>::default());
}

/// Another model, and other words for it: the new one has them from its first frame on.
#[test]
fn another_model_has_the_last_words() {
    let folder = scratch("values-model");
    let first = model(&folder);
    let second = folder.join("second.onnx").display().to_string();
    std::fs::copy(&first, &second).unwrap();
    let [cat, dog] = ["cat", "dog"].map(|name| words(&folder, name, &[("mouse", 0.1), (name, 0.9)]));
    let mut line = line(&first, &cat, "");
    assert_eq!(line.labels(), ["cat"]);
    let infer = line.element("trtinfer");
    infer.set_property("model-file", &second);
    infer.set_property("input-values", &dog);
    line.wait_for_model(&second);
    assert_eq!((line.labels(), values(&mut line)), (vec!["dog".to_string()], dog));
    // Words for the model in use, and then another model with them.
    set(&mut line, &cat);
    infer.set_property("model-file", &first);
    line.wait_for_model(&first);
    assert_eq!(line.labels(), ["cat"]);
    assert_eq!(line.said(), <[&str; 0]>::default());
}

/// Another model that does not run with its values takes no place.
#[test]
fn another_model_is_tried_with_its_values() {
    let folder = scratch("values-other-model");
    let first = picking(&folder.join("first.onnx"), "Gather", vec![int("axis", 1)], "k");
    let second = folder.join("second.onnx").display().to_string();
    std::fs::copy(&first, &second).unwrap();
    let (good, bad) = (pick(&folder.join("good.npy"), &[0, 1]), pick(&folder.join("bad.npy"), &[0, 9]));
    let mut line = line(&first, &good, "");
    assert_eq!(line.labels(), ["a"]);
    let infer = line.element("trtinfer");
    infer.set_property("model-file", &second);
    infer.set_property("input-values", &bad);
    let warning = line.wait_for_warning();
    assert!(warning.contains("does not run with input-values=pick=") && warning.contains("bad.npy"), "{warning}");
    assert_eq!((line.labels(), values(&mut line)), (vec!["a".to_string()], good));
}

/// A line with a model in its folder, and another model there that never ends with the same values.
fn line_and_endless(folder: &Path, more: &str) -> (Line, String) {
    give_way(std::process::id());
    let first = picking(&folder.join("first.onnx"), "Gather", vec![int("axis", 1)], "k");
    let mut line = line(&first, &pick(&folder.join("good.npy"), &[0, 1]), more);
    assert_eq!(line.labels(), ["a"]);
    let endless = endless("n", "64", false)
        .input("pick", I64, &["k"])
        .node("Cast", &["pick"], &["numbers"], vec![int("to", F32.into())])
        .node("ReduceMean", &["numbers"], &["shift"], vec![ints("axes", &[0]), int("keepdims", 0)])
        .node("Add", &["output0", "shift"], &["shifted"], vec![])
        .output("shifted", F32, &["n", "1", "6"]);
    (line, endless.save(&folder.join("endless.onnx")))
}

#[test]
fn another_model_that_never_ends_with_its_values_takes_no_place() {
    let (mut line, endless) = line_and_endless(&scratch("values-endless"), "run-timeout=1000000000");
    line.element("trtinfer").set_property("model-file", &endless);
    let mut said = Vec::new();
    until("a warning", || {
        said.extend(line.said());
        !said.is_empty()
    });
    assert_eq!(line.labels(), ["a"]);
    said.extend(line.said());
    let [warning] = &said[..] else { panic!("{said:?}") };
    assert!(warning.contains("has not ended within 1 s") && warning.ends_with("first.onnx stays in use."), "{warning}");
}

#[test]
fn the_trial_of_a_model_that_is_not_wanted_any_more_is_given_up() {
    let folder = scratch("values-endless-left");
    let (mut line, endless) = line_and_endless(&folder, "run-timeout=0");
    let infer = line.element("trtinfer");
    infer.set_property("model-file", &endless);
    until("the trial", || runs(std::process::id()));
    infer.set_property("model-file", folder.join("first.onnx").to_str());
    let is_end = |message: &gst::Message| {
        let text = message.structure().and_then(|structure| structure.get::<String>("text").ok());
        text.is_some_and(|text| text == "Loading endless.onnx was cancelled")
    };
    until("its end", || line.messages_of(gst::MessageType::Progress).iter().any(is_end));
    assert_eq!(line.labels(), ["a"]);
    assert_eq!(line.said(), <[&str; 0]>::default());
}

#[test]
fn a_session_has_values_too() {
    let folder = scratch("values-session");
    let cars = words(&folder, "cars", &[("red car", 0.75), ("bus", 0.25)]);
    let (options, _) = parse_options([&*format!("input-values={cars}"), "backend=rten"]).unwrap();
    let mut session = Session::open(model(&folder), &options).unwrap();
    assert_eq!(session.model().labels, ["red car", "bus"]);
    let outputs = session.run_bytes(&vec![0; session.input().bytes().unwrap()]).unwrap();
    assert_eq!(outputs[0].desc().to_string(), "output0 f32 1x6x84");
    let numbers = outputs[0].as_slice::<f32>().unwrap();
    assert_eq!([numbers[4 * 84], numbers[5 * 84]], [0.75, 0.25]);
}
