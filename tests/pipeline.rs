//! Whole lines on the sample clip, and every launch line in the documentation.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::boxes::{Found, found};
use common::onnx::Graph;
use common::{path, run, scratch, shapes};
use gst::prelude::*;

/// The clip, decoded, stopped a little after so many frames.
fn clip(frames: usize) -> String {
    let clip = path("tests/data/sample.mp4");
    format!("filesrc location={clip} ! qtdemux ! h264parse ! avdec_h264 ! identity eos-after={frames}")
}

fn pipeline(line: &str) -> gst::Pipeline {
    common::init();
    let pipeline = gst::parse::launch(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    pipeline.downcast().expect("several elements")
}

/// What comes to the sink called `name`: time stamp and objects of each frame.
fn frames(pipeline: &gst::Pipeline, name: &str) -> Receiver<(gst::ClockTime, Vec<Found>)> {
    let (send, receive) = channel();
    let pad = pipeline.by_name(name).unwrap().static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let buffer = info.buffer().unwrap();
        let _ = send.send((buffer.pts().unwrap(), found(buffer)));
        gst::PadProbeReturn::Ok
    });
    receive
}

/// The objects in the first frames of the clip, by a line of our elements with these properties.
fn detect(frame_count: usize, infer: &str, nms: &str) -> Vec<Vec<Found>> {
    let line = format!(
        "{} ! trtpreprocess ! trtinfer {infer} ! trtnms {nms} ! fakesink name=sink sync=false",
        clip(frame_count)
    );
    let pipeline = pipeline(&line);
    let frames = frames(&pipeline, "sink");
    run(&pipeline).expect_success();
    frames.try_iter().map(|(_, objects)| objects).take(frame_count).collect()
}

/// Waits for a frame; a minute is a hang.
#[track_caller]
fn next<T>(frames: &Receiver<T>) -> T {
    frames.recv_timeout(Duration::from_secs(60)).expect("the pipeline goes on")
}

// ------------------------------------------------------------------------------------------- boxes of the sample

#[test]
fn all_exports_of_a_model_find_the_same() {
    let file = |name: &str| format!("model-file={}", path(&format!("tests/models/{name}.onnx")));
    // Three rows for each cell are no sign of yolov8, so that has to be said.
    let expected = detect(3, &file("shapes"), "");
    assert_eq!(expected.len(), 3);
    assert!(expected.iter().all(|objects| objects.len() > 5), "{expected:?}");
    for (name, nms, pixels, confidence) in
        [("shapes-f16", "", 2.0, 0.02), ("shapes-v8", "", 0.01, 1e-5), ("shapes-e2e", "", 0.01, 1e-5)]
    {
        let found = detect(3, &file(name), nms);
        assert_eq!(found.len(), 3);
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert_eq!((found.id, &found.label, found.class), (expected.id, &expected.label, expected.class), "{name}");
            let near = |(a, b): (f64, f64)| (a - b).abs() * 640.0 <= pixels;
            assert!(found.corners.into_iter().zip(expected.corners).all(near), "{name}: {found:?}, {expected:?}");
            assert!((found.confidence - expected.confidence).abs() < confidence, "{name}: {found:?}, {expected:?}");
        }
        assert_eq!(found.iter().flatten().count(), expected.iter().flatten().count(), "{name}");
    }
}

#[test]
fn interval_leaves_frames_out() {
    let found = detect(7, &format!("model-file={} interval=3", shapes()), "");
    assert_eq!(found.iter().map(Vec::is_empty).collect::<Vec<_>>(), [false, true, true, false, true, true, false]);
}

#[test]
fn what_is_drawn_does_not_reach_the_decoder() {
    // The decoder predicts frames from those that it has given away, and they are drawn on.
    let decoded = |elements: &str| {
        let pipeline = pipeline(&format!("{} ! identity name=decoded {elements} ! fakesink sync=false", clip(20)));
        let (send, receive) = channel();
        let pad = pipeline.by_name("decoded").unwrap().static_pad("src").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let _ = send.send(info.buffer().unwrap().map_readable().unwrap().to_vec());
            gst::PadProbeReturn::Ok
        });
        run(&pipeline).expect_success();
        receive.try_iter().take(20).collect::<Vec<_>>()
    };
    let plain = decoded("");
    let drawn =
        decoded(&format!("! trtpreprocess ! trtinfer interval=2 model-file={} ! trtnms line-width=9", shapes()));
    assert_eq!(plain.len(), 20);
    assert!(plain == drawn);
}

// ------------------------------------------------------------------------------------------- life of a pipeline

/// Our elements between queues, on the whole clip; few frames are inferred, so that tests are quick.
fn queued() -> gst::Pipeline {
    pipeline(&format!(
        "filesrc location={} ! decodebin ! videoconvert ! queue ! trtpreprocess ! queue ! trtinfer model-file={} interval=30 \
         ! queue ! trtnms ! queue ! fakesink name=sink sync=false",
        path("tests/data/sample.mp4"),
        shapes()
    ))
}

#[test]
fn every_frame_leaves_the_queues() {
    let pipeline = queued();
    let frames = frames(&pipeline, "sink");
    run(&pipeline).expect_success();
    let frames: Vec<_> = frames.try_iter().collect();
    assert_eq!(frames.len(), 300);
    assert!(frames.is_sorted_by_key(|(pts, _)| *pts));
    assert_eq!(frames.iter().filter(|(_, objects)| !objects.is_empty()).count(), 10);
}

#[test]
fn seeks_flush_and_go_on() {
    let pipeline = queued();
    let frames = frames(&pipeline, "sink");
    pipeline.set_state(gst::State::Playing).unwrap();
    for seconds in [5, 2, 9, 0, 8] {
        next(&frames);
        let target = gst::ClockTime::from_seconds(seconds);
        pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, target).unwrap();
        // Those from before the flush are gone when seek_simple returns.
        while frames.try_recv().is_ok_and(|(pts, _)| pts.absdiff(target) > gst::ClockTime::SECOND) {}
    }
    run(&pipeline).expect_success();
    let rest: Vec<_> = frames.try_iter().collect();
    assert!(rest.len() < 70 && rest.iter().all(|(pts, _)| pts.seconds() >= 8), "{rest:?}");
}

#[test]
fn a_pipeline_can_pause_stop_and_start_again() {
    // Launch lines with a demuxer start only once, so this has none.
    let pipeline = pipeline(&format!(
        "videotestsrc num-buffers=60 ! queue ! trtpreprocess ! queue ! trtinfer model-file={} interval=30 \
         ! queue ! trtnms ! queue ! fakesink name=sink sync=false",
        shapes()
    ));
    let frames = frames(&pipeline, "sink");
    for state in [gst::State::Paused, gst::State::Playing, gst::State::Paused, gst::State::Ready] {
        pipeline.set_state(state).unwrap();
        let (reached, current, _) = pipeline.state(gst::ClockTime::from_seconds(60));
        assert!(reached.is_ok() && current == state, "{reached:?} {current:?}");
        if state == gst::State::Playing {
            next(&frames);
        }
    }
    while frames.try_recv().is_ok() {}
    run(&pipeline).expect_success();
    assert_eq!(frames.try_iter().count(), 60);
}

#[test]
fn a_pipeline_can_stop_while_the_model_loads() {
    for _ in 0..5 {
        let pipeline = queued();
        pipeline.set_state(gst::State::Playing).unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn two_pipelines_run_beside_each_other() {
    let infer = format!("model-file={}", shapes());
    let alone = detect(3, &infer, "");
    let beside = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| detect(3, &infer, "")));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(beside.iter().all(|found| *found == alone), "{beside:?}");
}

#[test]
fn one_video_can_go_to_two_models() {
    let pipeline = pipeline(&format!(
        "{} ! tee name=t \
         t. ! queue ! trtpreprocess ! trtinfer model-file={} ! trtnms ! fakesink name=all sync=false \
         t. ! queue ! trtpreprocess ! trtinfer model-file={} ! trtnms classes=disc ! fakesink name=discs sync=false",
        clip(3),
        shapes(),
        path("tests/models/shapes-v8.onnx")
    ));
    let sinks = ["all", "discs"].map(|name| frames(&pipeline, name));
    run(&pipeline).expect_success();
    let [all, discs] = sinks.map(|sink| sink.try_iter().take(3).collect::<Vec<_>>());
    assert_eq!((all.len(), discs.len()), (3, 3));
    for ((_, all), (_, discs)) in all.iter().zip(&discs) {
        let count = all.iter().filter(|object| object.label == "disc").count();
        assert!(count > 0 && discs.len() == count && all.len() > count, "{all:?} {discs:?}");
    }
}

#[test]
fn properties_may_change_at_any_time() {
    let pipeline = queued();
    let frames = frames(&pipeline, "sink");
    let element = |factory: &str| {
        let is = |element: &gst::Element| element.factory().is_some_and(|found| found.name() == factory);
        pipeline.iterate_elements().into_iter().flatten().find(is).unwrap()
    };
    let (infer, nms) = (element("trtinfer"), element("trtnms"));
    pipeline.set_state(gst::State::Playing).unwrap();
    for round in 0..20u32 {
        infer.set_property("interval", 20 + round);
        nms.set_property("score-threshold", round as f32 / 40.0);
        nms.set_property("classes", ["", "disc", "box", "0,1"][round as usize % 4]);
        nms.set_property("class-thresholds", ["", "disc=0.9"][round as usize % 2]);
        nms.set_property("iou-threshold", round as f32 / 20.0);
        nms.set_property("max-detections", 1 + round);
        nms.set_property("class-agnostic", round % 2 == 0);
        nms.set_property("draw", round % 3 > 0);
        nms.set_property("draw-labels", round % 2 > 0);
        nms.set_property("line-width", round % 7);
        nms.set_property("post-messages", round % 2 > 0);
        next(&frames);
    }
    let outcome = run(&pipeline);
    outcome.expect_success();
    assert_eq!(outcome.warnings, [""; 0]);
}

// ------------------------------------------------------------------------------------------- documentation

/// The launch lines in README.md, in docs, in the documentation of the elements and in the scripts, each with its file.
fn documented() -> Vec<(String, String)> {
    let source = |folder: &str| std::fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().path());
    let modules = source("src").map(|path| path.join("mod.rs"));
    let scripts = source("pipelines").filter(|path| path.extension().is_some_and(|extension| extension == "sh"));
    let pages = source("docs").filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut lines = Vec::new();
    for file in modules.chain(scripts).chain(pages).chain([path("README.md").into()]).filter(|file| file.is_file()) {
        let text = std::fs::read_to_string(&file).unwrap().replace("\\\n", " ");
        let plain = |line: &str| line.trim_start_matches("//!").trim_start_matches(['#', '$', ' ']).to_string();
        let found = text.lines().map(|line| plain(line.trim())).filter(|line| line.starts_with("gst-launch-1.0 "));
        lines.extend(found.map(|line| (file.display().to_string(), line)));
    }
    lines
}

/// What stands for what the reader has: any file is the sample clip, any model the one in tests/models with its labels, any
/// camera a test picture; any screen and any file to write is a fakesink. Five frames are enough. Where batches are asked for,
/// the detector takes them.
///
/// `None` where the line is for a GPU: it has elements of nvcodec or CUDA, or an engine.
fn substituted(line: &str) -> Option<Vec<String>> {
    let words = gst::glib::shell_parse_argv(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let words: Vec<String> = words.into_iter().map(|word| word.into_string().unwrap()).collect();
    let gpu = |word: &String| {
        word.starts_with("nv") || word.starts_with("cuda") || word.ends_with(".engine") || word.contains("CUDAMemory")
    };
    if words.iter().any(gpu) {
        return None;
    }
    let batches = words.iter().any(|word| word.starts_with("batch-size="));
    let model = if batches { batched() } else { shapes() };
    let mut out: Vec<String> = Vec::new();
    let mut element = String::new();
    for word in words.into_iter().skip(1).filter(|word| !word.starts_with('-')) {
        if out.last().is_none_or(|last| last == "!") || !word.contains('=') {
            element.clone_from(&word);
        }
        let (name, value) = word.split_once('=').unwrap_or((&word, ""));
        match (element.as_str(), name) {
            (_, "!") => out.push(word),
            (_, "autovideosink" | "ximagesink" | "xvimagesink" | "glimagesink" | "waylandsink" | "filesink") => {
                out.push("fakesink".into());
            }
            ("filesink" | "autovideosink" | "ximagesink" | "xvimagesink" | "glimagesink" | "waylandsink", "sync") => {
                out.push(word);
            }
            ("filesink", _) => {}
            ("v4l2src", "v4l2src") => out.push("videotestsrc".into()),
            ("v4l2src", _) => {}
            ("filesrc", "location") => out.push(format!("location={}", path("tests/data/sample.mp4"))),
            (_, "uri") => out.push(format!("uri=file://{}", path("tests/data/sample.mp4"))),
            ("trtpreprocess", "trtpreprocess") => {
                out.extend(["identity", "eos-after=6", "!", "trtpreprocess"].map(String::from));
            }
            ("trtinfer", "model-file") => out.push(format!("model-file={model}")),
            ("trtnms", "label-file") => out.push(format!("label-file={}", labels())),
            ("trtnms", "classes" | "class-thresholds") => {
                out.push(format!("{name}={}", value.replace("person", "disc").replace("car", "box")));
            }
            _ => out.push(word),
        }
    }
    Some(out)
}

fn batched() -> String {
    Graph::load(&shapes()).with_batch("n").save(&scratch("batched").join("shapes.onnx"))
}

fn labels() -> String {
    let file = scratch("labels").join("labels.txt");
    std::fs::write(&file, "disc\nbox\n").unwrap();
    file.display().to_string()
}

#[test]
fn launch_lines_in_the_documentation_run() {
    common::init();
    let lines = documented();
    assert!(lines.len() >= 3, "each element's documentation has one: {lines:?}");
    for (file, line) in lines {
        let Some(words) = substituted(&line) else {
            println!("not run here, needs a GPU: {file}: {line}");
            continue;
        };
        println!("{file}: {}", words.join(" "));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let element = gst::parse::launchv(&words).unwrap_or_else(|error| panic!("{file}: {line}: {error}"));
        run(&element.downcast().unwrap()).expect_success();
    }
}

#[test]
fn launch_lines_are_substituted_as_said() {
    for (line, expected) in [
        (
            "gst-launch-1.0 -e filesrc location=street.mp4 ! decodebin ! trtpreprocess resize=stretch ! trtinfer model-file=yolo11n.onnx \
             ! trtnms 'classes=person, car' ! x264enc ! filesink location=out.mp4",
            Some(format!(
                "filesrc location={} ! decodebin ! identity eos-after=6 ! trtpreprocess resize=stretch ! trtinfer model-file={} \
                 ! trtnms classes=disc, box ! x264enc ! fakesink",
                path("tests/data/sample.mp4"),
                shapes()
            )),
        ),
        (
            "gst-launch-1.0 v4l2src device=/dev/video0 ! autovideosink sync=false",
            Some("videotestsrc ! fakesink sync=false".into()),
        ),
        ("gst-launch-1.0 videotestsrc ! cudaupload ! fakesink", None),
        (
            "gst-launch-1.0 videotestsrc ! trtinfer batch-size=2 model-file=m.onnx ! filesink location=a v4l2src device=b ! fakesink",
            Some(format!(
                "videotestsrc ! trtinfer batch-size=2 model-file={} ! fakesink videotestsrc ! fakesink",
                batched()
            )),
        ),
    ] {
        assert_eq!(substituted(line).map(|words| words.join(" ")), expected);
    }
}
