// SPDX-License-Identifier: MPL-2.0
//! Whole lines on the sample clip.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::boxes::{Found, found};
use crate::common::{path, run, shapes};
use gst::prelude::*;

/// The clip, decoded, stopped a little after so many frames.
fn clip(frames: usize) -> String {
    let clip = path("tests/data/sample.mp4");
    format!("filesrc location={clip} ! qtdemux ! h264parse ! avdec_h264 ! identity eos-after={frames}")
}

fn pipeline(line: &str) -> gst::Pipeline {
    crate::common::init();
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
    let found = detect(7, &format!("model-file={} interval=3", shapes()), "hold-detections=false");
    assert_eq!(found.iter().map(Vec::is_empty).collect::<Vec<_>>(), [false, true, true, false, true, true, false]);
}

#[test]
fn drawing_does_not_reach_the_decoder() {
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
         ! queue ! trtnms hold-detections=false ! queue ! fakesink name=sink sync=false",
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
fn two_pipelines_run_at_the_same_time() {
    let infer = format!("model-file={}", shapes());
    let alone = detect(3, &infer, "");
    let together = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| detect(3, &infer, "")));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(together.iter().all(|found| *found == alone), "{together:?}");
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
