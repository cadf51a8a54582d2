// SPDX-License-Identifier: MPL-2.0
//! Batches: of one stream, and of streams that share a model.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::boxes::{SIDE, found};
use crate::common::onnx::{F32, Graph, I64, brightness};
use crate::common::wait::wait_until;
use crate::common::{init, launch, path, run, scratch, shapes};
use gst::prelude::*;

const ROOM: &str = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=0";
const LONG: &str = "batch-timeout=10000000";

/// `trtpreprocess ! trtinfer ! queue ! trtnms` that frames of one brightness are pushed through.
struct Stream {
    pipeline: gst::Pipeline,
    out: Receiver<(u64, Option<u8>)>,
    /// A word for each frame that trtnms gets, and so waits for, if it has no outputs.
    at_nms: Receiver<()>,
    pushed: u64,
}

impl Stream {
    fn new(model: &str, infer: &str) -> Self {
        Stream::parse(&format!("trtinfer name=infer model-file={model} {infer} ! {ROOM}"))
    }

    fn parse(infer: &str) -> Self {
        init();
        let caps = format!("video/x-raw,format=RGB,width={SIDE},height={SIDE},framerate=30/1");
        let line = format!(
            "appsrc name=src format=time caps={caps} ! trtpreprocess ! {infer} \
             ! trtnms name=nms score-threshold=0 draw=false ! fakesink name=sink sync=false async=false"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let (send, out) = channel();
        let pad = pipeline.by_name("sink").unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let buffer = info.buffer().unwrap();
            let level = found(buffer).first().map(|found| (found.confidence * 255.0).round() as u8);
            let _ = send.send((buffer.pts().unwrap().seconds(), level));
            gst::PadProbeReturn::Ok
        });
        let (sender, at_nms) = channel();
        let pad = pipeline.by_name("nms").unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            let _ = sender.send(());
            gst::PadProbeReturn::Ok
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        Stream { pipeline, out, at_nms, pushed: 0 }
    }

    fn src(&self) -> gst::Element {
        self.pipeline.by_name("src").unwrap()
    }

    fn infer(&self) -> gst::Element {
        self.pipeline.by_name("infer").unwrap()
    }

    /// Frames are numbered by their second.
    fn push(&mut self, level: u8) {
        let mut buffer = gst::Buffer::from_slice(vec![level; (SIDE * SIDE * 3) as usize]);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_seconds(self.pushed));
        self.pushed += 1;
        let flow = self.src().emit_by_name::<gst::FlowReturn>("push-buffer", &[&buffer]);
        assert_eq!(flow, gst::FlowReturn::Ok);
    }

    /// Returns once so many more frames have left trtinfer and come to trtnms.
    #[track_caller]
    fn wait_for_nms(&self, frames: usize) {
        (0..frames).for_each(|_| self.at_nms.recv_timeout(Duration::from_secs(60)).expect("a frame at trtnms"));
    }

    fn end(&self) {
        let _ = self.src().emit_by_name::<gst::FlowReturn>("end-of-stream", &[]);
    }

    /// The next frame's number and brightness; a minute is a hang.
    #[track_caller]
    fn next(&self) -> (u64, Option<u8>) {
        self.out.recv_timeout(Duration::from_secs(60)).expect("a frame")
    }

    #[track_caller]
    fn expect(&self, frames: impl IntoIterator<Item = (u64, u8)>) {
        frames.into_iter().for_each(|(number, level)| assert_eq!(self.next(), (number, Some(level))));
    }

    /// Batches, frames of them, and those that were run before they were full; of all streams that share the model.
    fn batches(&self) -> [u64; 3] {
        let stats = self.infer().property::<gst::Structure>("stats");
        ["batches", "batched", "batches-late"].map(|field| stats.get(field).unwrap())
    }

    /// The first error or warning.
    #[track_caller]
    fn said(&self) -> String {
        let wanted = [gst::MessageType::Error, gst::MessageType::Warning];
        let message = self.pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &wanted);
        match message.expect("a message").view() {
            gst::MessageView::Error(error) => error.error().to_string(),
            gst::MessageView::Warning(warning) => warning.error().to_string(),
            _ => unreachable!(),
        }
    }

    fn progress(&self) -> usize {
        let pop = || self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Progress]);
        std::iter::from_fn(pop).count()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

fn model(test: &str, batch: &str) -> String {
    brightness(batch).save(&scratch(test).join("brightness.onnx"))
}

// ------------------------------------------------------------------------------------------------- of one stream

#[test]
fn frames_are_run_together_and_the_last_ones_at_the_end() {
    let mut stream = Stream::new(&model("batch-end", "n"), &format!("batch-size=4 {LONG}"));
    let levels = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
    levels.into_iter().for_each(|level| stream.push(level));
    stream.end();
    stream.expect((0..).zip(levels));
    assert_eq!(stream.batches(), [3, 10, 0]);
}

#[test]
fn a_batch_of_a_fixed_size_is_filled_up() {
    let mut stream = Stream::new(&model("batch-fixed", "4"), &format!("batch-size=4 {LONG}"));
    let levels = [10, 20, 30, 40, 50];
    levels.into_iter().for_each(|level| stream.push(level));
    stream.end();
    stream.expect((0..).zip(levels));
    assert_eq!(stream.batches(), [2, 5, 0]);
}

#[test]
fn batches_of_the_detector_find_what_single_frames_show() {
    let folder = scratch("batch-detector");
    let batched = Graph::load(&shapes()).with_batch("n").save(&folder.join("shapes.onnx"));
    let detect = |infer: &str| -> Vec<_> {
        let clip = format!("filesrc location={} ! qtdemux ! h264parse ! avdec_h264", path("tests/data/sample.mp4"));
        let line = format!(
            "{clip} ! identity eos-after=7 ! trtpreprocess ! trtinfer {infer} ! {ROOM} ! trtnms ! fakesink name=sink"
        );
        init();
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let (send, out) = channel();
        let pad = pipeline.by_name("sink").unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let buffer = info.buffer().unwrap();
            let _ = send.send((buffer.pts(), found(buffer)));
            gst::PadProbeReturn::Ok
        });
        run(&pipeline).expect_success();
        out.try_iter().take(6).collect()
    };
    let expected = detect(&format!("model-file={}", shapes()));
    let found = detect(&format!("model-file={batched} batch-size=3 {LONG}"));
    assert!(expected.len() == 6 && expected.iter().all(|(_, objects)| objects.len() > 5));
    assert_eq!(found.len(), 6);
    for ((at, found), (expected_at, expected)) in found.iter().zip(&expected) {
        assert_eq!((at, found.len()), (expected_at, expected.len()));
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!((found.id, found.class), (expected.id, expected.class));
            assert!((found.confidence - expected.confidence).abs() < 1e-5, "{found:?}, {expected:?}");
            let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-5;
            assert!(found.corners.into_iter().zip(expected.corners).all(near), "{found:?}, {expected:?}");
        }
    }
}

#[test]
fn a_frame_does_not_wait_longer_than_the_timeout() {
    let mut stream = Stream::new(&model("batch-timeout", "n"), "batch-size=4 batch-timeout=1000");
    stream.push(50);
    stream.expect([(0, 50)]);
    assert_eq!(stream.batches(), [1, 1, 1]);
}

/// By default none waits before it is known that this pays.
#[test]
fn a_frame_does_not_wait_for_others_by_default() {
    let mut stream = Stream::new(&model("batch-default", "n"), "batch-size=4");
    for level in [50, 60] {
        stream.push(level);
        stream.expect([(u64::from(level / 10 - 5), level)]);
    }
    assert_eq!(stream.batches(), [2, 2, 2]);
}

#[test]
fn batches_that_cannot_fill_are_reported() {
    let model = model("batch-starved", "n");
    let infer = format!("trtinfer name=infer model-file={model} batch-size=2 batch-timeout=10");
    let mut stream = Stream::parse(&infer); // no queue
    (0..40).for_each(|level| stream.push(level));
    stream.expect((0..).zip(0..40));
    let said = stream.said();
    assert!(said.contains("one frame each") && said.contains("Put a queue behind trtinfer"), "{said}");
    assert_eq!(stream.batches(), [40, 40, 40]);
}

#[test]
fn new_caps_end_a_batch() {
    let mut stream = Stream::new(&model("batch-caps", "n"), &format!("batch-size=4 {LONG}"));
    stream.push(10);
    let caps = format!("video/x-raw,format=BGR,width={SIDE},height={SIDE},framerate=30/1");
    stream.src().set_property("caps", caps.parse::<gst::Caps>().unwrap());
    stream.push(20);
    stream.expect([(0, 10)]);
    stream.end();
    stream.expect([(1, 20)]);
    assert_eq!(stream.batches(), [2, 2, 0]);
}

/// As where an application plays a part of a file again and again.
#[test]
fn the_end_of_a_segment_ends_a_batch() {
    let mut stream = Stream::new(&model("batch-segment", "n"), &format!("batch-size=4 {LONG}"));
    stream.push(10);
    stream.wait_for_nms(1);
    let done = gst::event::SegmentDone::new(gst::ClockTime::from_seconds(1));
    assert!(stream.src().static_pad("src").unwrap().push_event(done));
    stream.expect([(0, 10)]);
    assert_eq!(stream.batches(), [1, 1, 0]);
}

#[test]
fn a_flush_drops_what_waits_and_the_stream_goes_on() {
    let mut stream = Stream::new(&model("batch-flush", "n"), &format!("batch-size=2 {LONG}"));
    for round in 0..5 {
        stream.push(10);
        stream.push(20);
        stream.expect([(3 * round, 10), (3 * round + 1, 20)]);
        stream.push(30); // trtnms waits for it, or soon will
        stream.wait_for_nms(if round % 2 == 0 { 3 } else { 2 });
        assert!(stream.src().send_event(gst::event::FlushStart::new()));
        assert!(stream.src().send_event(gst::event::FlushStop::new(false)));
        while stream.at_nms.try_recv().is_ok() {}
    }
    assert_eq!(stream.batches(), [5, 10, 0]);
}

#[test]
fn stopping_does_not_wait_for_a_batch() {
    let model = model("batch-stop", "n");
    let shared = format!("trtinfer name=infer model-file={model} batch-size=2 {LONG} shared-model=stopping");
    let other = Stream::parse(&shared);
    for queue in [ROOM, "identity"] {
        let mut stream = Stream::parse(&format!("{shared} ! {queue}"));
        stream.push(10);
        stream.wait_for_nms(1);
        drop(stream);
        assert_eq!(other.batches(), [0; 3], "no frame has waited for the timeout");
    }
}

#[test]
fn the_wait_for_a_batch_is_latency() {
    let latency = |model: &str, infer: &str| {
        let line = format!(
            "videotestsrc is-live=true ! video/x-raw,format=RGB,width=64,height=64,framerate=30/1 \
             ! trtpreprocess ! trtinfer model-file={model} {infer} ! {ROOM} ! trtnms ! fakesink sync=true"
        );
        init();
        let pipeline = gst::parse::launch(&line).unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        assert_eq!(pipeline.state(gst::ClockTime::from_seconds(60)).1, gst::State::Playing);
        let mut query = gst::query::Latency::new();
        assert!(pipeline.query(&mut query));
        pipeline.set_state(gst::State::Null).unwrap();
        query.result()
    };
    let model = model("batch-latency", "n");
    let single = latency(&model, "batch-timeout=7000"); // means nothing to batches of one
    let batched = latency(&model, "batch-size=4 batch-timeout=7000");
    let automatic = latency(&model, "batch-size=4");
    assert!(single.0 && batched.0 && automatic.0);
    assert_eq!(batched.1, single.1 + gst::ClockTime::from_mseconds(7));
    assert_eq!(automatic.1, single.1 + gst::ClockTime::from_mseconds(5), "what it takes at most");
}

#[test]
fn models_that_cannot_be_batched_are_reported() {
    let folder = scratch("batch-refused");
    let one = brightness("1").save(&folder.join("one.onnx"));
    let four = brightness("4").save(&folder.join("four.onnx"));
    // Its output has the same single row for any batch.
    let constant =
        Graph::new().input("images", F32, &["n", "3", "64", "64"]).constant("output0", &[1, 1, 6], &[0.0; 6]);
    let constant = constant.save(&folder.join("constant.onnx"));
    let source = "videotestsrc num-buffers=4 ! video/x-raw,format=RGB,width=64,height=64";
    for (model, batch, domain, parts) in [
        (&one, 2, "ResourceError::Settings", ["one.onnx: batch-size is 2", "takes batches of 1", "Set batch-size=1"]),
        (&four, 2, "ResourceError::Settings", ["four.onnx: batch-size is 2", "takes batches of 4", "Set batch-size=4"]),
        (&four, 1, "ResourceError::Settings", ["four.onnx: batch-size is 1", "4x3x64x64", "dynamic batch"]),
        (&constant, 2, "LibraryError::Init", ["cannot be divided by frame", "output0 f32 1x1x6", "Set batch-size=1"]),
    ] {
        let line = format!("trtpreprocess ! trtinfer model-file={model} batch-size={batch} ! {ROOM} ! trtnms");
        launch(&format!("{source} ! {line} ! fakesink")).expect_error(domain, &parts);
    }
}

// ------------------------------------------------------------------------------------------- of several streams

#[test]
fn streams_fill_batches_together_and_get_their_own_results() {
    let model = model("shared", "n");
    let shared = format!("batch-size=3 {LONG} shared-model=shared");
    let mut streams: [Stream; 3] = std::array::from_fn(|_| Stream::new(&model, &shared));
    for round in 0..10u8 {
        for (stream, index) in streams.iter_mut().zip(0..) {
            stream.push(round * 10 + index);
        }
    }
    for (stream, index) in streams.iter().zip(0..) {
        stream.expect((0..10).map(|round| (round, round as u8 * 10 + index)));
    }
    assert_eq!(streams[0].batches(), [10, 30, 0]);
    assert_eq!(streams[0].batches(), streams[2].batches());
    let mut loaded = streams.each_ref().map(Stream::progress);
    loaded.sort();
    assert_eq!(loaded, [0, 0, 2], "one of them loads the model and posts the progress");
}

#[test]
fn a_stream_that_stops_or_fails_does_not_disturb_others() {
    let model = model("shared-stop", "n");
    let shared = format!("batch-size=2 {LONG} shared-model=stop");
    let new = || Stream::new(&model, &shared);
    let (mut first, mut second) = (new(), new());
    first.push(10);
    second.push(20);
    first.expect([(0, 10)]);
    second.expect([(0, 20)]);

    // The one that loaded the model goes, with a frame that waits.
    first.push(30);
    drop(first);
    second.push(40);
    second.push(50);
    second.expect([(1, 40), (2, 50)]);

    // One comes, and gets frames that are no frames.
    let third = new();
    let _ = third.src().emit_by_name::<gst::FlowReturn>("push-buffer", &[&gst::Buffer::from_slice([0u8; 5])]);
    assert!(third.said().contains("buffer"), "it fails");
    second.push(60);
    second.push(70);
    second.expect([(3, 60), (4, 70)]);

    // One comes and ends, with a frame of the other one that waits too.
    let mut fourth = new();
    second.push(80);
    second.wait_for_nms(6); // so it is in the line
    fourth.push(90);
    fourth.push(100);
    fourth.end();
    fourth.expect([(0, 90), (1, 100)]);
    second.expect([(5, 80)]);

    // All go, and one comes: the model is loaded again.
    drop((second, third, fourth));
    let mut last = new();
    last.push(110);
    last.end();
    last.expect([(0, 110)]);
    assert_eq!(last.batches(), [1, 1, 0]);
}

#[test]
fn a_stream_that_seeks_does_not_disturb_others() {
    let model = model("shared-flush", "n");
    let shared = format!("batch-size=3 {LONG} shared-model=flush");
    let mut streams: [Stream; 2] = std::array::from_fn(|_| Stream::new(&model, &shared));
    streams[0].push(10);
    streams[1].push(20);
    streams.iter().for_each(|stream| stream.wait_for_nms(1));
    assert!(streams[0].src().send_event(gst::event::FlushStart::new()));
    assert!(streams[0].src().send_event(gst::event::FlushStop::new(false)));
    streams[1].push(30);
    streams[0].push(40);
    streams[0].expect([(1, 40)]);
    streams[1].expect([(0, 20), (1, 30)]);
    assert_eq!(streams[0].batches(), [1, 3, 0]);
}

#[test]
fn a_slow_stream_is_served_next_to_a_fast_one() {
    let model = model("shared-fair", "n");
    let shared = "batch-size=4 batch-timeout=1000 shared-model=fair";
    let (mut fast, mut slow) = (Stream::new(&model, shared), Stream::new(&model, shared));
    for round in 0..20u64 {
        (0..10).for_each(|_| fast.push(round as u8));
        slow.push(200);
        slow.expect([(round, 200)]);
    }
    fast.end();
    fast.expect((0..200).map(|frame| (frame, (frame / 10) as u8)));
}

#[test]
fn elements_that_share_a_model_must_agree() {
    let model = model("shared-differ", "n");
    let _first = Stream::new(&model, "batch-size=2 shared-model=differ");
    let source = "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess";
    let join = |infer: &str| launch(&format!("{source} ! trtinfer model-file={model} {infer} ! trtnms ! fakesink"));
    join("batch-size=4 shared-model=differ").expect_error(
        "ResourceError::Settings",
        &["“differ”", "batch-size=2, not 4", "the same properties", "another name in shared-model"],
    );
    join("shared-model=differ batch-size=2 interval=3").expect_success();
    join("shared-model=other batch-size=4 batch-timeout=100").expect_success();
    join("batch-size=4 batch-timeout=100").expect_success();
}

/// Cameras send their frames at the same moments: were all inferred at every third of them, each would wait for all others.
#[test]
fn streams_that_share_a_model_take_turns() {
    let [model, other] = ["shared-turns", "shared-turns-other"].map(|test| model(test, "n"));
    for (batch, at_once) in [(1, 1), (2, 2)] {
        let infer = format!("shared-model=turns{batch} batch-size={batch} batch-timeout=0 interval=3");
        let mut streams: Vec<Stream> = (0..3 * at_once).map(|_| Stream::new(&model, &infer)).collect();
        let inferred = |streams: &[Stream]| -> Vec<u64> {
            let count =
                |stream: &Stream| stream.infer().property::<gst::Structure>("stats").get::<u64>("inferred").unwrap();
            streams.iter().map(count).collect()
        };
        let step = |streams: &mut [Stream]| -> usize {
            let before = inferred(streams);
            for stream in streams.iter_mut() {
                stream.push(100);
                stream.at_nms.recv().unwrap();
            }
            inferred(streams).iter().zip(before).map(|(after, before)| (after - before) as usize).sum()
        };
        assert_eq!(step(&mut streams), 3 * at_once, "the first frame of each");
        let (first, second) = (step(&mut streams), step(&mut streams));
        assert_eq!([first, second], [at_once; 2]);
        assert_eq!((0..6).map(|_| step(&mut streams)).collect::<Vec<_>>(), [at_once; 6]);
        // The next model does not bring all of them to the same frame either.
        streams[0].infer().set_property("model-file", &other);
        let is_replaced = |stream: &Stream| stream.infer().property::<String>("model-file") == other;
        wait_until("all streams have the other model", Duration::from_secs(60), || {
            assert_eq!(step(&mut streams), at_once);
            streams.iter().all(is_replaced)
        });
        assert_eq!((0..6).map(|_| step(&mut streams)).collect::<Vec<_>>(), [at_once; 6], "of another model");
    }
}

#[test]
fn all_streams_report_a_shared_model_that_cannot_be_loaded() {
    let folder = scratch("shared-broken");
    let broken = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .node("NoSuchOperator", &["images"], &["output0"], vec![])
        .output("output0", F32, &["1", "1", "6"])
        .save(&folder.join("broken.onnx"));
    let mut streams: [Stream; 2] = std::array::from_fn(|_| Stream::new(&broken, "shared-model=broken"));
    for stream in &mut streams {
        let _ = stream.src().emit_by_name::<gst::FlowReturn>(
            "push-buffer",
            &[&gst::Buffer::from_slice(vec![0u8; (SIDE * SIDE * 3) as usize])],
        );
        let said = stream.said();
        assert!(said.contains("broken.onnx") && said.contains("NoSuchOperator"), "{said}");
    }
}

/// Two streams of one pipeline with a model in common.
fn two_streams(model: &str, infer: &str) -> gst::Pipeline {
    init();
    let stream = |name: &str| {
        format!(
            "appsrc name={name} format=time caps=video/x-raw,format=RGB,width={SIDE},height={SIDE},framerate=30/1 \
             ! trtpreprocess ! trtinfer model-file={model} {infer} ! trtnms ! fakesink sync=false async=false "
        )
    };
    gst::parse::launch(&format!("{} {}", stream("one"), stream("other"))).unwrap().downcast().unwrap()
}

#[test]
fn streams_of_one_pipeline_report_a_failure_once() {
    let folder = scratch("shared-once");
    let unknown = Graph::new()
        .input("images", F32, &["n", "3", "64", "64"])
        .node("NoSuchOperator", &["images"], &["output0"], vec![])
        .output("output0", F32, &["n", "1", "6"])
        .save(&folder.join("broken-load.onnx"));
    // 12,288 values are no multiple of 7.
    let uneven = Graph::new()
        .input("images", F32, &["n", "3", "64", "64"])
        .weight("shape", I64, &[2], [-1i64, 7].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("Reshape", &["images", "shape"], &["output0"], vec![])
        .output("output0", F32, &["n", "7"])
        .save(&folder.join("broken-run.onnx"));
    for (model, name) in [(unknown, "broken-load.onnx"), (uneven, "broken-run.onnx")] {
        let pipeline = two_streams(&model, &format!("batch-size=2 {LONG} shared-model=once-{name}"));
        let bus = pipeline.bus().unwrap();
        for round in 0..2 {
            pipeline.set_state(gst::State::Playing).unwrap();
            for name in ["one", "other"] {
                let mut frame = gst::Buffer::from_slice(vec![0u8; (SIDE * SIDE * 3) as usize]);
                frame.get_mut().unwrap().set_pts(gst::ClockTime::ZERO);
                let src = pipeline.by_name(name).unwrap();
                let _ = src.emit_by_name::<gst::FlowReturn>("push-buffer", &[&frame]);
            }
            // Each source posts that it stops, once the failure has come back to it.
            let (mut ours, mut stopped) = (Vec::new(), 0);
            while stopped < 2 {
                let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Error]);
                let message = message.expect("both sources stop");
                let gst::MessageView::Error(error) = message.view() else { unreachable!() };
                match message.src().unwrap().name().as_str() {
                    "one" | "other" => stopped += 1,
                    _ => ours.push(error.error().to_string()),
                }
            }
            assert!(ours.len() == 1 && ours[0].contains(name), "{round}: {ours:?}");
            pipeline.set_state(gst::State::Ready).unwrap();
            while bus.pop().is_some() {}
        }
        pipeline.set_state(gst::State::Null).unwrap();
    }
}
