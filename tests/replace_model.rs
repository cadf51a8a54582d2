// SPDX-License-Identifier: MPL-2.0
//! `model-file` set while frames pass: the other model is loaded in the background, and takes over between two frames.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::boxes::{Line, SIDE, classifier, found, grey};
use crate::common::brokers::until;
use crate::common::onnx::{F32, Graph, brightness, endless};
use crate::common::{heap, path, scratch, shapes};
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind};

/// A model over pictures of that side that finds one box of a class with that label everywhere.
fn finds(folder: &Path, label: &str, side: u32) -> String {
    let name = format!("{label}-{side}.onnx");
    let side = side.to_string();
    Graph::new()
        .input("images", F32, &["1", "3", &side, &side])
        .constant("output0", &[1, 1, 6], &[2.0, 2.0, 10.0, 12.0, 0.9, 0.0])
        .metadata("names", &format!("{{0: '{label}'}}"))
        .save(&folder.join(name))
}

fn line(model: &str, more: &str) -> Line {
    Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} {more} ! trtnms"))
}

/// Sets the model, and returns once the next frame would find it.
#[track_caller]
fn replace(line: &mut Line, model: &str) {
    line.element("trtinfer").set_property("model-file", model);
    let said = line.wait_for_model(model);
    assert!(said.iter().any(|text| text.starts_with("Loading ")), "{said:?}");
}

/// Pushes frames until one has that label, and checks that all before have the other.
#[track_caller]
fn frames_until(line: &mut Line, former: &str, label: &str) -> usize {
    for frame in 0..3 {
        let labels = line.labels();
        if labels == [label] {
            return frame;
        }
        assert_eq!(labels, [former]);
    }
    panic!("no frame has {label}: {:?}", line.said());
}

#[test]
fn the_next_frame_goes_to_the_new_model_where_both_want_the_same_tensors() {
    let folder = scratch("replace-same");
    let (cat, dog) = (finds(&folder, "cat", 64), finds(&folder, "dog", 64));
    let mut line = line(&cat, "");
    assert_eq!(line.labels(), ["cat"]);
    replace(&mut line, &dog);
    assert_eq!(line.labels(), ["dog"]);
    let infer = line.element("trtinfer");
    let info: gst::Structure = infer.property("model-info");
    assert_eq!(info.get::<String>("file").unwrap(), dog);
    assert_eq!(infer.property::<String>("model-file"), dog);
    // The same file may have been written again.
    std::fs::copy(&cat, &dog).unwrap();
    replace(&mut line, &dog);
    assert_eq!(line.labels(), ["cat"]);
    assert_eq!(line.said(), <[&str; 0]>::default());
}

#[test]
fn tensors_of_another_size_follow() {
    let folder = scratch("replace-size");
    let mut line = line(&finds(&folder, "cat", 64), "");
    assert_eq!(line.found()[0].rect, (2, 2, 8, 10));
    line.upstream_events("reconfigure");
    replace(&mut line, &finds(&folder, "dog", 32));
    assert_eq!(frames_until(&mut line, "cat", "dog"), 1, "the first one brings the new caps");
    assert_eq!(line.upstream_events("reconfigure"), 0, "a decoder would allocate all its frames again");
    assert_eq!(line.found()[0].rect, (4, 4, 16, 20));
    // Back again, with frames of another size meanwhile.
    replace(&mut line, &finds(&folder, "cat", 64));
    line.caps("RGB", 128, 128);
    let frame = || grey(128 * 128 * 3);
    let rects: Vec<_> = (0..2).map(|_| found(&line.push(frame()))[0].rect).collect();
    assert_eq!(rects.last(), Some(&(4, 4, 16, 20)));
    assert_eq!(line.said(), <[&str; 0]>::default());
}

#[test]
fn the_smallest_rectangle_of_an_open_input_is_loaded() {
    let folder = scratch("replace-open");
    let mut line = line(&finds(&folder, "cat", 64), "");
    line.caps("RGB", 128, 64);
    line.push(grey(128 * 64 * 3));
    replace(&mut line, &shapes());
    let tensor = |line: &mut Line| {
        line.push(grey(128 * 64 * 3));
        line.element("trtinfer").property::<gst::Structure>("model-info").get::<String>("tensor").unwrap()
    };
    tensor(&mut line);
    let expected = {
        let mut fresh = Line::parse(&format!("trtpreprocess ! trtinfer model-file={} ! trtnms", shapes()));
        fresh.caps("RGB", 128, 64);
        tensor(&mut fresh)
    };
    assert_eq!(tensor(&mut line), expected);
}

#[test]
fn another_task_and_another_batch_follow() {
    let folder = scratch("replace-task");
    let mut line = line(&finds(&folder, "cat", 64), "");
    assert_eq!(line.labels(), ["cat"]);
    line.element("trtinfer").set_property("batch-size", 2u32);
    replace(&mut line, &classifier(&folder, "n"));
    let classes = |line: &mut Line| {
        let buffer = line.push(grey(SIDE * SIDE * 3));
        usize::from(gst::meta::CustomMeta::from_buffer(&buffer, "GstTrtClassificationMeta").is_ok())
    };
    let found: Vec<usize> = (0..3).map(|_| classes(&mut line)).collect();
    assert_eq!(found, [0, 1, 1]);
    line.element("trtinfer").set_property("batch-size", 1u32);
    replace(&mut line, &finds(&folder, "dog", 32));
    assert_eq!((0..3).map(|_| classes(&mut line)).last(), Some(0));
    assert_eq!(line.labels(), ["dog"]);
    assert_eq!(line.said(), <[&str; 0]>::default());
}

#[test]
fn layout_and_labels_that_were_set_before_count_for_the_new_model() {
    let folder = scratch("replace-labels");
    let mut line = line(&finds(&folder, "cat", 64), "");
    assert_eq!(line.labels(), ["cat"]);
    let names = folder.join("names.txt");
    std::fs::write(&names, "bird\n").unwrap();
    line.nms().set_property("label-file", names.to_str().unwrap());
    line.nms().set_property("layout", "end-to-end");
    assert_eq!(line.labels(), ["cat"], "not for the one in use");
    line.nms().set_property("score-threshold", 0.95f32);
    assert_eq!(line.labels(), <[&str; 0]>::default(), "which follows other properties");
    line.nms().set_property("score-threshold", 0.25f32);
    replace(&mut line, &finds(&folder, "dog", 64));
    assert_eq!(line.labels(), ["bird"]);
}

#[test]
fn a_model_that_cannot_be_loaded_changes_nothing() {
    let folder = scratch("replace-failed");
    let cat = finds(&folder, "cat", 64);
    let mut line = line(&cat, "");
    assert_eq!(line.labels(), ["cat"]);
    let broken = folder.join("broken.onnx");
    std::fs::write(&broken, "not a model").unwrap();
    let missing = folder.join("missing.onnx");
    for file in [broken.to_str().unwrap(), missing.to_str().unwrap(), &path("tests/data/sample.mp4")] {
        let infer = line.element("trtinfer");
        infer.set_property("model-file", file);
        let warning = line.wait_for_warning();
        assert!(warning.ends_with(&format!("{cat} stays in use.")), "{warning}");
        assert_eq!(line.labels(), ["cat"]);
        assert_eq!(infer.property::<String>("model-file"), cat);
    }
    // A property that must have its effect, and would have none.
    line.element("trtinfer").set_property_from_str("cuda-graph", "on");
    line.element("trtinfer").set_property("model-file", finds(&folder, "dog", 64));
    let warning = line.wait_for_warning();
    assert!(warning.contains("cuda-graph=on") && warning.contains("stays in use"), "{warning}");
    assert_eq!(line.labels(), ["cat"]);
    line.element("trtinfer").set_property_from_str("cuda-graph", "auto");
    replace(&mut line, &finds(&folder, "dog", 64));
    assert_eq!(line.labels(), ["dog"]);
}

#[test]
fn the_last_of_several_models_counts() {
    let folder = scratch("replace-last");
    let mut line = line(&finds(&folder, "cat", 64), "");
    let infer = line.element("trtinfer");
    assert_eq!(line.labels(), ["cat"]);
    // This one is never loaded.
    infer.set_property("model-file", endless("1", "64", true).save(&folder.join("endless.onnx")));
    assert_eq!(line.labels(), ["cat"]);
    replace(&mut line, &finds(&folder, "dog", 64));
    assert_eq!(line.labels(), ["dog"]);
    // Two that take over without a frame between them.
    replace(&mut line, &finds(&folder, "bird", 64));
    replace(&mut line, &finds(&folder, "fish", 64));
    assert_eq!(line.labels(), ["fish"]);
}

#[test]
fn a_pipeline_stops_while_a_model_is_loaded() {
    let folder = scratch("replace-stop");
    let mut line = line(&finds(&folder, "cat", 64), "");
    assert_eq!(line.labels(), ["cat"]);
    let endless = endless("1", "64", true).save(&folder.join("endless.onnx"));
    line.element("trtinfer").set_property("model-file", endless);
    assert_eq!(line.labels(), ["cat"]);
    drop(line);
}

#[test]
fn elements_that_share_a_model_come_to_the_new_one_together() {
    let folder = scratch("replace-shared");
    let (cat, dog) = (finds(&folder, "cat", 64), finds(&folder, "dog", 32));
    let shared = "shared-model=replace-shared";
    let mut one = line(&cat, shared);
    let mut other = line(&cat, shared);
    assert_eq!((one.labels(), other.labels()), (vec!["cat".to_string()], vec!["cat".to_string()]));
    replace(&mut one, &dog);
    assert_eq!(frames_until(&mut one, "cat", "dog"), 1);
    drop(one); // the one that has loaded it
    assert_eq!(frames_until(&mut other, "cat", "dog"), 1);
    assert_eq!(other.element("trtinfer").property::<String>("model-file"), dog);
    let mut third = line(&dog, shared);
    assert_eq!(third.labels(), ["dog"]);
    // The other way round.
    replace(&mut third, &cat);
    assert_eq!(frames_until(&mut other, "dog", "cat"), 1);
    assert_eq!(other.said(), <[&str; 0]>::default());
}

/// Properties of trtpreprocess count for the new model too.
#[test]
fn overrides_stay() {
    let folder = scratch("replace-overrides");
    let model = finds(&folder, "cat", 64);
    let mut line =
        Line::parse(&format!("trtpreprocess scale=1 tensor-size=64x64 ! trtinfer model-file={model} ! trtnms"));
    assert_eq!(line.labels(), ["cat"]);
    replace(&mut line, &finds(&folder, "dog", 64));
    assert_eq!(line.labels(), ["dog"]);
    replace(&mut line, &finds(&folder, "bird", 32));
    assert_eq!(line.labels(), ["dog"]);
    assert!(line.try_push(grey(SIDE * SIDE * 3)).is_err());
    let said = line.said();
    assert!(matches!(&said[..], [error, ..] if error.contains("The tensor does not fit the model")), "{said:?}");
}

/// Frames in queues go to the model that their tensors are for, and none is lost.
#[test]
fn no_frame_is_lost_or_doubled() {
    crate::common::init();
    let folder = scratch("replace-stream");
    let (cat, dog) = (finds(&folder, "cat", 64), finds(&folder, "dog", 32));
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers=400 ! video/x-raw,format=RGB,width=64,height=64,framerate=100/1 ! trtpreprocess name=first ! queue \
         ! trtinfer name=infer model-file={cat} ! queue ! trtnms ! trttrack ! appsink name=sink sync=false"
    ))
    .unwrap()
    .downcast::<gst::Pipeline>()
    .unwrap();
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
    // Every tenth frame the other one is set, whether the one before has been loaded or not.
    let infer = pipeline.by_name("infer").unwrap();
    let pad = pipeline.by_name("first").unwrap().static_pad("sink").unwrap();
    let count = Mutex::new(0);
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let mut count = count.lock().unwrap();
        *count += 1;
        if *count % 10 == 0 {
            infer.set_property("model-file", if *count % 20 == 0 { &cat } else { &dog });
        }
        gst::PadProbeReturn::Ok
    });
    let outcome = crate::common::run(&pipeline);
    assert!(outcome.error.is_none() && outcome.warnings.is_empty(), "{outcome:?}");
    let seen = seen.lock().unwrap();
    let offsets: Vec<u64> = seen.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (0..400).collect::<Vec<_>>());
    assert!(seen.iter().all(|(_, label)| label == "cat" || label == "dog"), "{seen:?}");
    assert!(seen.iter().any(|(_, label)| label == "dog"), "it never took over");
}

/// A second model on the objects of a first one.
#[test]
fn a_model_on_objects_is_replaced() {
    let folder = scratch("replace-objects");
    let kind = classifier(&folder, "n");
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={} ! trtnms ! trttrack ! trtpreprocess regions=objects reclassify-interval=0 min-object-size=1 \
         ! trtinfer name=second model-file={kind} batch-size=4 ! trtnms",
        finds(&folder, "cat", 64)
    ));
    let attribute = |line: &mut Line| {
        let buffer = line.push(grey(SIDE * SIDE * 3));
        let region = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().next().expect("an object");
        region.param("classification").map_or(String::new(), |param| param.to_string())
    };
    let seen: Vec<String> = (0..5).map(|_| attribute(&mut line)).collect();
    assert!(seen.last().unwrap().contains("label=(string)bright"), "{seen:?}");
    let other = Graph::load(&kind).metadata("names", "{0: 'day', 1: 'night'}").save(&folder.join("other.onnx"));
    let second = line.by_name("second");
    second.set_property("model-file", &other);
    line.wait_for_model(&other);
    let seen: Vec<String> = (0..5).map(|_| attribute(&mut line)).collect();
    assert!(seen.last().unwrap().contains("label=(string)day"), "{seen:?}");
}

/// An element that gets no frames switches to none of them.
#[test]
fn models_that_nobody_has_switched_to_do_not_stay_loaded() {
    let folder = scratch("replace-idle");
    let models = [finds(&folder, "cat", 64), finds(&folder, "dog", 64)];
    let shared = "shared-model=replace-idle";
    let [mut active, mut idle] = [(); 2].map(|()| line(&models[0], shared));
    let mut alone = line(&models[0], "");
    for line in [&mut active, &mut idle, &mut alone] {
        assert_eq!(line.labels(), ["cat"]);
    }
    for model in models.iter().cycle().skip(1).take(21) {
        replace(&mut active, model);
        active.labels();
        replace(&mut alone, model);
    }
    // Each of the two that wait has the first model and the one that it is to switch to.
    until("runners of models between", || heap::threads("trt-run") <= 4);
    until("threads that free former models", || heap::threads("trt-replace") <= 2);
    assert_eq!([active.labels(), idle.labels(), alone.labels()], [["dog"]; 3]);
    until("runners of former models", || heap::threads("trt-run") == 2);
}

#[test]
fn a_hundred_models_leave_nothing_behind() {
    if let Err(error) = heap::without_caches() {
        panic!("{error}");
    }
    let folder = scratch("replace-hundred");
    let models =
        [finds(&folder, "cat", 64), brightness("1").save(&folder.join("bright.onnx")), finds(&folder, "dog", 32)];
    let mut line = line(&models[0], "");
    let mut cycle = |count: usize| {
        for model in models.iter().cycle().skip(1).take(count) {
            replace(&mut line, model);
            (0..2).for_each(|_| drop(line.labels()));
            line.said();
            line.drop_events();
        }
        heap::wait_for_end_of("trt-replace");
        until("runners of former models have ended", || heap::threads("trt-run") == 1);
        (heap::allocated(), heap::threads(""))
    };
    cycle(12);
    let (before, threads_before) = cycle(12);
    let (after, threads_after) = cycle(99);
    assert!(after < before + 64 * 1024, "{before} bytes before, {after} after");
    assert_eq!(threads_after, threads_before);
}

/// A program may want something of the models that elements share, and knows all of one only once it is read.
#[test]
fn a_model_that_a_program_does_not_want_changes_nothing() {
    use gsttrt::gst::model_check::ModelCheck;
    let folder = scratch("replace-unwanted");
    let (cat, dog) = (finds(&folder, "cat", 64), finds(&folder, "dog", 64));
    let wanted = ModelCheck::new("pets", |model| match model.labels.iter().any(|label| label == "cat") {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Settings, "It has no cats")),
    });
    let mut line = line(&cat, "shared-model=pets");
    assert_eq!(line.labels(), ["cat"]);
    line.element("trtinfer").set_property("model-file", &dog);
    let said = line.wait_for_warning();
    assert!(said.contains("It has no cats"), "{said}");
    for _ in 0..3 {
        assert_eq!(line.labels(), ["cat"]);
    }
    assert_eq!(line.element("trtinfer").property::<String>("model-file"), cat);
    drop(wanted);
    replace(&mut line, &dog);
    frames_until(&mut line, "cat", "dog");
}
