// SPDX-License-Identifier: MPL-2.0
//! Clips: models that see several frames of a stream at once. The model of these tests gives the brightness of each frame of a clip
//! as the confidence of a class, so that results tell which frames it has seen, and in which order.

use std::path::Path;

use gst::meta::CustomMeta;
use gst::prelude::*;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, Session, SessionOptions, parse_options};
use serde_json::Value;

use crate::common::boxes::Line;
use crate::common::onnx::{F32, Graph, int, ints};
use crate::common::{launch, scratch};

const MS: u64 = 1_000_000;
/// From a frame to the next one.
const PERIOD: u64 = 40 * MS;

/// A model of clips of these dimensions, of which `axes` are all but the batch and the frames.
fn model_of(folder: &Path, name: &str, dims: &[&str], axes: &[i64]) -> String {
    let frames = (1..5).find(|axis| !axes.contains(&(*axis as i64))).expect("one is left");
    Graph::new()
        .input("clip", F32, dims)
        .node("ReduceMean", &["clip"], &["output0"], vec![ints("axes", axes), int("keepdims", 0)])
        .output("output0", F32, &[dims[0], dims[frames]])
        .metadata("task", "classify")
        .save(&folder.join(name))
}

/// One of clips of so many frames; any number, where that is no number.
fn model(test: &str, frames: &str) -> String {
    model_of(&scratch(&format!("clips-{test}")), "clip.onnx", &["1", "3", frames, "8", "8"], &[1, 3, 4])
}

/// A stream of frames that have one brightness each.
struct Stream {
    line: Line,
    size: (u32, u32),
    /// Of the next one.
    number: u64,
}

impl Stream {
    fn new(model: &str, preprocess: &str, infer: &str, nms: &str) -> Self {
        let line = Line::parse(&format!(
            "trtpreprocess {preprocess} ! trtinfer model-file={model} {infer} ! trtnms class-scores=probabilities score-threshold=0 \
             top-k=100 draw=false {nms}"
        ));
        Stream { line, size: (64, 64), number: 0 }
    }

    /// The next frame, of that brightness.
    #[track_caller]
    fn push(&mut self, brightness: u8) -> gst::Buffer {
        let mut frame = gst::Buffer::from_mut_slice(vec![brightness; (self.size.0 * self.size.1 * 3) as usize]);
        let buffer = frame.get_mut().unwrap();
        buffer.set_pts(gst::ClockTime::from_nseconds(self.number * PERIOD));
        buffer.set_duration(gst::ClockTime::from_nseconds(PERIOD));
        self.number += 1;
        self.line.push(frame)
    }

    /// The next frames, the first of which has that brightness, and each further one 10 more. Gives what is new with each of them.
    #[track_caller]
    fn new_clips(&mut self, first: u8, count: u8) -> Vec<Vec<u8>> {
        (0..count)
            .map(|at| of_clip(&self.push(first + 10 * at)).filter(|(_, held)| !held).unwrap_or_default().0)
            .collect()
    }

    fn count(&mut self, element: &str, name: &str) -> u64 {
        self.line.element(element).property::<gst::Structure>("stats").get(name).unwrap()
    }
}

fn classes(buffer: &gst::BufferRef) -> Option<(Vec<gst::Structure>, bool)> {
    let meta = CustomMeta::from_buffer(buffer, "GstTrtClassificationMeta").ok()?;
    let classes = meta.structure().get::<gst::Array>("classes").unwrap();
    let classes = classes.iter().map(|class| class.get::<gst::Structure>().unwrap()).collect();
    Some((classes, meta.structure().get::<bool>("held").is_ok()))
}

/// The brightness of the frames that the model has seen, in their order, and whether that was with an earlier frame.
fn of_clip(buffer: &gst::BufferRef) -> Option<(Vec<u8>, bool)> {
    let (classes, held) = classes(buffer)?;
    let mut frames = vec![0; classes.len()];
    for class in classes {
        let confidence: f64 = class.get("confidence").unwrap();
        frames[class.get::<u32>("class-id").unwrap() as usize] = (confidence * 255.0).round() as u8;
    }
    Some((frames, held))
}

/// The first and the last time of each class, in periods.
fn spans(classes: &[gst::Structure]) -> Vec<(u64, u64)> {
    let time = |class: &gst::Structure, name: &str| class.get::<u64>(name).unwrap() / PERIOD;
    classes.iter().map(|class| (time(class, "start-stream-time"), time(class, "end-stream-time"))).collect()
}

const NONE: Vec<u8> = Vec::new();

#[test]
fn a_model_sees_the_last_frames_in_their_order() {
    let folder = scratch("clips-orders");
    for (dims, axes) in [
        (["1", "3", "4", "8", "8"], [1, 3, 4]),
        (["1", "4", "3", "8", "8"], [2, 3, 4]),
        (["1", "4", "8", "8", "3"], [2, 3, 4]),
        (["1", "1", "4", "8", "8"], [1, 3, 4]),
    ] {
        let mut stream = Stream::new(&model_of(&folder, "clip.onnx", &dims, &axes), "", "", "post-messages=true");
        for at in 0..3 {
            assert!(classes(&stream.push(10 + 10 * at)).is_none(), "no clip is full");
        }
        for first in 0..3 {
            let frame = stream.push(40 + 10 * first as u8);
            let wanted = [1, 2, 3, 4].map(|at| 10 * (at + first as u8));
            assert_eq!(of_clip(&frame), Some((wanted.to_vec(), false)), "{dims:?}");
            assert_eq!(spans(&classes(&frame).unwrap().0), [(first, first + 4); 4], "{dims:?}");
            let message = stream.line.messages().pop().unwrap();
            let array = message.get::<gst::Array>("classes").unwrap();
            let told: Vec<gst::Structure> = array.iter().map(|class| class.get().unwrap()).collect();
            assert_eq!(spans(&told), [(first, first + 4); 4]);
        }
        assert_eq!(stream.line.said(), [""; 0], "{dims:?}");
        let counts = ["clips", "unfinished-clips"].map(|name| stream.count("trtpreprocess", name));
        assert_eq!(counts, [3, 0]);
        assert_eq!((stream.count("trtinfer", "inferred"), stream.count("trtinfer", "skipped")), (3, 3));
    }
}

#[test]
fn frame_step_leaves_frames_out() {
    let mut stream = Stream::new(&model("step", "3"), "frames=3 frame-step=2", "", "");
    let clips = stream.new_clips(10, 8);
    let none = || NONE;
    let wanted = [none(), none(), none(), none(), vec![10, 30, 50], none(), vec![30, 50, 70], none()];
    assert_eq!(clips, wanted);
    // Between, the results of the clip before hold, with the time of that clip.
    let frame = stream.push(90);
    assert_eq!(
        (of_clip(&frame), spans(&classes(&frame).unwrap().0)),
        (Some((vec![50, 70, 90], false)), vec![(4, 9); 3])
    );
    let frame = stream.push(100);
    assert_eq!(
        (of_clip(&frame), spans(&classes(&frame).unwrap().0)),
        (Some((vec![50, 70, 90], true)), vec![(4, 9); 3])
    );
    assert_eq!(stream.count("trtpreprocess", "clips"), 3);
}

#[test]
fn interval_says_how_often_the_model_sees_a_clip() {
    let mut stream = Stream::new(&model("interval", "2"), "", "interval=3", "");
    let clips = stream.new_clips(10, 8);
    let seen: Vec<usize> = (0..8).filter(|at| !clips[*at].is_empty()).collect();
    assert_eq!((seen, &clips[4][..]), (vec![1, 4, 7], &[40, 50][..]));
    assert_eq!([stream.count("trtpreprocess", "clips"), stream.count("trtinfer", "inferred")], [7, 3]);
}

#[test]
fn the_number_of_frames_is_the_users_where_the_model_leaves_it_open() {
    let file = model("open", "t");
    for (preprocess, frames) in [("frames=3", 3), ("frames=1", 1), ("", 16)] {
        let mut stream = Stream::new(&file, preprocess, "", "");
        let clips = stream.new_clips(10, 20);
        let lengths: Vec<usize> = clips.iter().map(Vec::len).collect();
        let wanted: Vec<usize> = (1..=20).map(|count| if count < frames { 0 } else { frames }).collect();
        assert_eq!(lengths, wanted, "{preprocess}");
        assert_eq!(stream.line.said(), [""; 0], "{preprocess}");
    }
}

#[test]
fn a_clip_begins_again_where_the_stream_does() {
    let file = model("again", "3");
    let flush = |stream: &mut Stream| {
        stream.line.push_event(gst::event::FlushStart::new());
        stream.line.push_event(gst::event::FlushStop::new(true));
        stream.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    };
    let segment = |stream: &mut Stream| {
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_start(gst::ClockTime::from_mseconds(stream.number));
        stream.line.push_event(gst::event::Segment::new(&segment));
    };
    let gap = |stream: &mut Stream| stream.line.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
    let missing = |stream: &mut Stream| stream.number += 100;
    type Cut<'a> = (&'a str, &'a dyn Fn(&mut Stream));
    let cuts: [Cut; 4] =
        [("a flush", &flush), ("another segment", &segment), ("a gap", &gap), ("time that is missing", &missing)];
    for (what, cut) in cuts {
        let mut stream = Stream::new(&file, "", "", "");
        assert_eq!(stream.new_clips(10, 2), [NONE, NONE], "{what}");
        cut(&mut stream);
        assert_eq!(stream.new_clips(110, 4), [NONE, NONE, vec![110, 120, 130], vec![120, 130, 140]], "{what}");
        assert_eq!(stream.count("trtpreprocess", "unfinished-clips"), 1, "{what}");
        cut(&mut stream);
        assert_eq!(stream.new_clips(10, 3), [NONE, NONE, vec![10, 20, 30]], "{what}");
        assert_eq!(stream.count("trtpreprocess", "unfinished-clips"), 1, "there were whole ones, {what}");
        assert_eq!(stream.line.said(), [""; 0], "{what}");
    }
}

#[test]
fn a_clip_goes_on_with_frames_of_another_size() {
    let mut stream = Stream::new(&model("size", "3"), "", "", "");
    assert_eq!(stream.new_clips(10, 2), [NONE, NONE]);
    stream.size = (32, 16);
    stream.line.caps("RGB", 32, 16);
    assert_eq!(stream.new_clips(30, 2), [vec![10, 20, 30], vec![20, 30, 40]]);
    assert_eq!(stream.count("trtpreprocess", "unfinished-clips"), 0);
}

#[test]
fn frames_that_are_missing_count() {
    let mut stream = Stream::new(&model("missing", "3"), "frame-step=2", "", "");
    // The frames 0 to 3.
    assert_eq!(stream.new_clips(10, 4), [NONE; 4]);
    stream.number += 1;
    // The frame 4 would have been one of the clip; the next one takes its place.
    assert_eq!(stream.new_clips(60, 3), [vec![10, 30, 60], NONE, vec![30, 60, 80]]);
}

/// A camera sends one for each packet that is lost.
#[test]
fn a_gap_that_is_shorter_than_a_clip_is_frames_that_are_missing() {
    let mut stream = Stream::new(&model("gap", "3"), "", "", "");
    let gap = |stream: &mut Stream, frames: u64| {
        let [begin, length] = [stream.number, frames].map(|frames| gst::ClockTime::from_nseconds(frames * PERIOD));
        stream.number += frames;
        stream.line.push_event(gst::event::Gap::new(begin, length));
    };
    assert_eq!(stream.new_clips(10, 3), [NONE, NONE, vec![10, 20, 30]]);
    gap(&mut stream, 2);
    assert_eq!(stream.new_clips(60, 1), [vec![20, 30, 60]]);
    gap(&mut stream, 3);
    assert_eq!(stream.new_clips(100, 3), [NONE, NONE, vec![100, 110, 120]]);
}

#[test]
fn a_stream_that_is_too_short_is_told() {
    let file = model("short", "4");
    let run = |frames: u32, preprocess: &str| {
        let outcome = launch(&format!(
            "videotestsrc num-buffers={frames} ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess {preprocess} \
             ! trtinfer model-file={file} ! trtnms ! fakesink"
        ));
        outcome.expect_success();
        outcome.warnings
    };
    let said = run(3, "");
    let wanted = "it sees clips of 4 frames, and the stream has ended after 3 of them";
    assert!(said.len() == 1 && said[0].contains(wanted), "{said:?}");
    assert!(run(7, "frame-step=4").iter().any(|said| said.contains("after 2 of them")));
    assert_eq!(run(4, ""), [""; 0]);
}

#[test]
fn what_does_not_suit_the_model_is_an_error() {
    let (clip, picture) = (model("errors", "4"), crate::common::boxes::model(&scratch("clips-picture"), &[[0.0; 6]]));
    for (file, preprocess, parts) in [
        (&clip, "frames=8", &["frames=8, and the model takes clips of 4 frames", "set frames=4"][..]),
        (&picture, "frames=8", &["frames=8 is for models that see several frames", "5 dimensions"]),
        (&picture, "frame-step=2", &["frame-step=2 is for models", "Leave frame-step unset"]),
        (&clip, "tensor-order=nchw", &["tensor-order=nchw does not suit the model", "ncthw, ntchw or nthwc"]),
        (&clip, "slices=2x1", &["Clips are made of whole frames", "slices or slice-size is set"]),
        (&clip, "regions=list region-list=0,0,1,1", &["Clips are made of whole frames", "regions=list is set"]),
        (&clip, "motion-gate=0.01", &["Clips are made of whole frames", "motion-gate is set"]),
        (&clip, "tensor-size=16x16", &["clip f32 1x3x4x16x16", "clip f32 1x3x4x8x8"]),
    ] {
        let outcome = launch(&format!(
            "videotestsrc num-buffers=2 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess {preprocess} \
             ! trtinfer model-file={file} ! trtnms ! fakesink"
        ));
        for part in parts {
            assert!(outcome.error_text().contains(part), "{preprocess}: {}", outcome.error_text());
        }
    }
}

/// rten is always there, and has windows of two dimensions at most.
#[test]
fn windows_over_frames_are_refused_by_name() {
    let weights: Vec<u8> = [0.1f32; 81].iter().flat_map(|weight| weight.to_le_bytes()).collect();
    let options = parse_options(["backend=rten"]).unwrap().0;
    // The shape of windows is that of the weights, whether it is an attribute too or not.
    for attributes in [vec![ints("kernel_shape", &[3, 3, 3])], vec![]] {
        let file = Graph::new()
            .input("clip", F32, &["1", "3", "4", "8", "8"])
            .weight("windows", F32, &[1, 3, 3, 3, 3], weights.clone())
            .node("Conv", &["clip", "windows"], &["found"], attributes)
            .node("ReduceMean", &["found"], &["output0"], vec![ints("axes", &[3, 4]), int("keepdims", 0)])
            .output("output0", F32, &["1", "1", "2"])
            .save(&scratch("clips-windows").join("clip.onnx"));
        let said = Session::open(&file, &options).expect_err("rten has no such Conv").message();
        assert!(said.contains("it has a Conv of three dimensions. Install ONNX Runtime or OpenVINO"), "{said}");
    }
}

#[test]
fn streams_that_share_a_model_have_clips_of_their_own() {
    let file = model("shared", "2");
    let mut streams = [(); 2].map(|()| Stream::new(&file, "", "shared-model=clips-shared", ""));
    let mut push = |at: usize, brightness: u8| of_clip(&streams[at].push(brightness)).unwrap_or_default().0;
    assert_eq!([push(0, 10), push(1, 100), push(0, 20)], [NONE, NONE, vec![10, 20]]);
    assert_eq!([push(1, 110), push(1, 120), push(0, 30)], [vec![100, 110], vec![110, 120], vec![20, 30]]);
}

#[test]
fn messages_have_the_time_span() {
    let folder = scratch("clips-published");
    let lines = folder.join("clips.jsonl");
    let outcome = launch(&format!(
        "videotestsrc num-buffers=5 ! video/x-raw,format=RGB,width=64,height=64,framerate=25/1 ! trtpreprocess \
         ! trtinfer model-file={} ! trtnms class-scores=probabilities score-threshold=0 draw=false \
         ! trtpublish location={} ! fakesink",
        model_of(&folder, "clip.onnx", &["1", "3", "4", "8", "8"], &[1, 3, 4]),
        lines.display()
    ));
    outcome.expect_success();
    let text = std::fs::read_to_string(lines).unwrap();
    let frames: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let time = |frame: &Value, name: &str| frame["classes"][0][name].as_u64().map(|time| time / PERIOD);
    let spans: Vec<_> = frames
        .iter()
        .filter(|frame| frame.get("classes").is_some())
        .map(|frame| (time(frame, "start-stream-time"), time(frame, "end-stream-time")))
        .collect();
    assert_eq!(spans, [(Some(0), Some(4)), (Some(1), Some(5))], "{text}");
}

/// A detector, and what it says of frames of one brightness.
struct Calls(Detector);

impl Calls {
    fn new(model: &str, options: &[&str]) -> Self {
        let options = options.iter().copied().chain(["class-scores=probabilities", "score-threshold=0"]);
        let (options, postprocess) = parse_options(options).unwrap();
        Calls(Detector::open(model, &options, postprocess).unwrap())
    }

    fn frame(pixels: &[u8]) -> Frame<'_> {
        let planes = [Plane { data: pixels, stride: 16 * 3 }].into_iter().collect();
        Frame { format: PixelFormat::Rgb, width: 16, height: 16, planes }
    }

    /// The frames that the model has seen, in their order.
    fn seen(classes: Vec<gsttrt_core::session::FrameClass>) -> Vec<u8> {
        let mut frames = vec![0; classes.len()];
        for class in classes {
            frames[class.class_id as usize] = (class.confidence * 255.0).round() as u8;
        }
        frames
    }

    fn detect(&mut self, brightness: u8) -> Vec<u8> {
        let pixels = vec![brightness; 16 * 16 * 3];
        let objects = self.0.detect(&Calls::frame(&pixels), Colorimetry::default()).unwrap();
        assert!(objects.is_empty());
        Calls::seen(self.0.classes())
    }
}

#[test]
fn a_detector_sees_clips_of_its_calls() {
    let file = model("session", "3");
    let mut calls = Calls::new(&file, &[]);
    assert_eq!([10, 20, 30, 40].map(|at| calls.detect(at)), [NONE, NONE, vec![10, 20, 30], vec![20, 30, 40]]);
    assert_eq!(calls.0.clip_frames(), Some((1, 3)));
    calls.0.begin_clip();
    assert_eq!([50, 60, 70].map(|at| calls.detect(at)), [NONE, NONE, vec![50, 60, 70]]);
    assert_eq!(calls.0.clip_frames(), Some((0, 2)));

    let mut calls = Calls::new(&file, &["frames=3", "frame-step=2", "interval=3"]);
    let seen: Vec<Vec<u8>> = (1..=10).map(|at| calls.detect(10 * at)).collect();
    let wanted = [(4, vec![10, 30, 50]), (8, vec![50, 70, 90])];
    for (at, seen) in seen.iter().enumerate() {
        let wanted = wanted.iter().find(|(frame, _)| *frame == at).map(|(_, clip)| clip.clone());
        assert_eq!(*seen, wanted.unwrap_or_default(), "{at}");
    }
    assert_eq!(calls.0.clip_frames(), None, "the last frame ends no clip");

    let mut calls = Calls::new(&file, &[]);
    let pixels: Vec<Vec<u8>> = (1..=4).map(|at| vec![10 * at; 16 * 16 * 3]).collect();
    let frames: Vec<_> = pixels.iter().map(|pixels| (Calls::frame(pixels), Colorimetry::default())).collect();
    let results = calls.0.detect_batch(&frames).unwrap();
    let seen: Vec<Vec<u8>> = results.into_iter().map(|results| Calls::seen(results.classes)).collect();
    assert_eq!(seen, [NONE, NONE, vec![10, 20, 30], vec![20, 30, 40]]);
}

#[test]
fn a_session_has_as_many_frames_as_it_is_told() {
    let (open, fixed) = (model("session-open", "t"), model("session-fixed", "4"));
    let session = |file: &str, options: &[&str]| {
        let options = parse_options(options.iter().copied()).unwrap().0;
        Session::open(file, &options).map(|session| session.input().to_string()).map_err(|error| error.message())
    };
    assert_eq!(session(&open, &[]).unwrap(), "clip f32 1x3x16x8x8");
    assert_eq!(session(&open, &["frames=5"]).unwrap(), "clip f32 1x3x5x8x8");
    assert_eq!(session(&fixed, &["frames=4"]).unwrap(), "clip f32 1x3x4x8x8");
    assert!(session(&fixed, &["frames=5"]).unwrap_err().contains("takes clips of 4 frames"));
    let picture = crate::common::boxes::model(&scratch("clips-session-picture"), &[[0.0; 6]]);
    for option in ["frames=5", "frame-step=2", "interval=2"] {
        assert!(
            session(&picture, &[option]).unwrap_err().starts_with(&format!("{option} is for models that see several"))
        );
    }
    let mut session = Session::open(&fixed, &SessionOptions::default()).unwrap();
    let clip: Vec<f32> = (0..3 * 4 * 64).map(|at| (at / 64 % 4) as f32).collect();
    let mut brightness = [0f32; 4];
    session.run(&clip, &mut brightness).unwrap();
    assert_eq!(brightness, [0.0, 1.0, 2.0, 3.0]);
}
