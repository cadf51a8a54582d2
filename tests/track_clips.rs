// SPDX-License-Identifier: MPL-2.0
//! Clips of objects: a second model sees the last pictures of each object with an id. The model of these tests gives the brightness of
//! each picture of a clip as the confidence of a class, so that results tell which pictures it has seen, and in which order.

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;

use crate::common::boxes::{Line, SIDE};
use crate::common::onnx::{F32, Graph, int, ints};
use crate::common::scratch;

const MS: u64 = 1_000_000;
/// From a frame to the next one.
const PERIOD: u64 = 40 * MS;
/// Of an object, which fills a quarter of the frame.
const HALF: u32 = SIDE / 2;

/// A model of clips of these dimensions, of which `axes` are all but the batch and the pictures.
fn model(test: &str, dims: &[&str], axes: &[i64]) -> String {
    let pictures = (1..5).find(|axis| !axes.contains(&(*axis as i64))).expect("one is left");
    Graph::new()
        .input("clip", F32, dims)
        .node("ReduceMean", &["clip"], &["output0"], vec![ints("axes", axes), int("keepdims", 0)])
        .output("output0", F32, &[dims[0], dims[pictures]])
        .metadata("task", "classify")
        .save(&scratch(&format!("track-clips-{test}")).join("actions.onnx"))
}

/// One of clips of so many pictures.
fn usual(test: &str, pictures: &str) -> String {
    model(test, &["1", "3", pictures, "8", "8"], &[1, 3, 4])
}

/// The id of an object, the quarter of the frame that it is in, and its brightness.
type Seen = (Option<i32>, u32, u8);

/// What is known of an object: the brightness of the pictures that the model has seen, whether that was with an earlier frame, and the
/// time of the clip in periods.
type Known = Option<(Vec<u8>, bool, (u64, u64))>;

struct Stream {
    line: Line,
    /// Of the next frame.
    number: u64,
    /// Width and height of the next frame.
    size: u32,
}

impl Stream {
    fn new(model: &str, preprocess: &str, infer: &str, nms: &str) -> Self {
        let line = Line::parse(&format!(
            "trtpreprocess regions=objects {preprocess} ! trtinfer model-file={model} {infer} ! trtnms class-scores=probabilities \
             score-threshold=0 top-k=100 draw=false {nms}"
        ));
        Stream { line, number: 0, size: SIDE }
    }

    /// Frames are squares of that side from now on.
    fn resize(&mut self, side: u32) {
        self.line.caps("RGB", side, side);
        self.size = side;
    }

    /// The next frame, with these objects.
    #[track_caller]
    fn push(&mut self, objects: &[Seen]) -> Vec<Known> {
        let (side, half) = (self.size, self.size / 2);
        let place = |quarter: u32| (quarter % 2 * half, quarter / 2 * half);
        let mut pixels = vec![0u8; (side * side * 3) as usize];
        for &(_, quarter, brightness) in objects {
            let (left, top) = place(quarter);
            for y in top..top + half {
                pixels[((y * side + left) * 3) as usize..][..(half * 3) as usize].fill(brightness);
            }
        }
        let mut frame = gst::Buffer::from_mut_slice(pixels);
        let buffer = frame.get_mut().unwrap();
        buffer.set_pts(gst::ClockTime::from_nseconds(self.number * PERIOD));
        buffer.set_duration(gst::ClockTime::from_nseconds(PERIOD));
        for &(id, quarter, _) in objects {
            let (left, top) = place(quarter);
            let mut region = VideoRegionOfInterestMeta::add(buffer, "person", (left, top, half, half));
            if let Some(id) = id {
                region.add_param(gst::Structure::builder("object_id").field("id", id).build());
            }
        }
        self.number += 1;
        let buffer = self.line.push(frame);
        buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|region| known(&region)).collect()
    }

    /// The same of one object in each of the frames, the first of which has that brightness, and each further one 10 more.
    #[track_caller]
    fn push_one(&mut self, first: u8, count: u8) -> Vec<Option<(Vec<u8>, bool)>> {
        let push = |at: u8| self.push(&[(Some(7), 0, first + 10 * at)]).remove(0).map(|(seen, held, _)| (seen, held));
        (0..count).map(push).collect()
    }

    fn count(&mut self, element: &str, name: &str) -> u64 {
        self.line.element(element).property::<gst::Structure>("stats").get(name).unwrap()
    }

    fn end(&mut self) -> Vec<String> {
        self.line.push_event(gst::event::Eos::new());
        self.line.said()
    }
}

fn known(region: &gst::MetaRef<VideoRegionOfInterestMeta>) -> Known {
    let param = region.param("classification")?;
    let classes = param.get::<gst::Array>("classes").unwrap();
    let mut pictures = vec![0; classes.len()];
    for class in classes.iter() {
        let class = class.get::<gst::Structure>().unwrap();
        let confidence: f64 = class.get("confidence").unwrap();
        let place = class.get::<u32>("class-id").unwrap() as usize;
        // top-k of a test may leave classes before it out.
        pictures.resize(pictures.len().max(place + 1), 0);
        pictures[place] = (confidence * 255.0).round() as u8;
    }
    let time = |name: &str| param.get::<u64>(name).unwrap() / PERIOD;
    Some((pictures, param.get::<bool>("held").is_ok(), (time("start-stream-time"), time("end-stream-time"))))
}

#[test]
fn each_object_has_a_clip_of_its_own() {
    for (number, (batch, axes, preprocess, infer)) in
        [("1", [1, 3, 4], "", ""), ("1", [2, 3, 4], "tensor-order=ntchw", ""), ("n", [1, 3, 4], "", "batch-size=2")]
            .into_iter()
            .enumerate()
    {
        let file = model(&format!("own-{number}"), &[batch, "3", "3", "8", "8"], &axes);
        let mut stream = Stream::new(&file, preprocess, infer, "");
        let (one, other) = (Some(1), Some(2));
        assert_eq!(stream.push(&[(one, 0, 10)]), [None], "{batch} {preprocess}");
        assert_eq!(stream.push(&[(one, 0, 20), (other, 3, 110)]), [None, None]);
        let first = Some((vec![10, 20, 30], false, (0, 3)));
        assert_eq!(stream.push(&[(one, 0, 30), (other, 3, 120)]), [first, None]);
        // In another order, and in other places.
        let both = [Some((vec![110, 120, 130], false, (1, 4))), Some((vec![20, 30, 40], false, (1, 4)))];
        assert_eq!(stream.push(&[(other, 2, 130), (one, 1, 40)]), both);
        assert_eq!(stream.push(&[]), []);
        // One was away in the frame before.
        assert_eq!(stream.push(&[(one, 1, 60)]), [Some((vec![30, 40, 60], false, (2, 6)))]);
        assert_eq!(stream.end(), [""; 0], "{batch} {preprocess}");
        assert_eq!(["clips", "unfinished-clips"].map(|name| stream.count("trtpreprocess", name)), [4, 0]);
    }
}

#[test]
fn frame_step_leaves_pictures_out_and_their_results_hold() {
    let mut stream = Stream::new(&usual("step", "2"), "frames=2 frame-step=2", "", "");
    let seen = |pictures: [u8; 2], held: bool| Some((pictures.to_vec(), held));
    let wanted = [None, None, seen([10, 30], false), seen([10, 30], true), seen([30, 50], false)];
    assert_eq!(stream.push_one(10, 5), wanted);
    // The step counts from the first picture of each object.
    let both = stream.push(&[(Some(7), 0, 60), (Some(8), 1, 100)]);
    assert_eq!(both, [Some((vec![30, 50], true, (2, 5))), None]);
    let both = stream.push(&[(Some(7), 0, 70), (Some(8), 1, 110)]);
    assert_eq!(both, [Some((vec![50, 70], false, (4, 7))), None]);
    let both = stream.push(&[(Some(7), 0, 80), (Some(8), 1, 120)]);
    assert_eq!(both, [Some((vec![50, 70], true, (4, 7))), Some((vec![100, 120], false, (5, 8)))]);
}

#[test]
fn reclassify_interval_says_how_often_an_object_is_looked_at() {
    let file = usual("interval", "2");
    for (interval, seen_in) in [("1", &[1, 2, 3, 4, 5, 6][..]), ("2", &[1, 3, 5]), ("3", &[1, 4]), ("0", &[1])] {
        let mut stream = Stream::new(&file, &format!("reclassify-interval={interval}"), "", "");
        let found = stream.push_one(10, 7);
        let seen: Vec<usize> = (0..7).filter(|at| found[*at].as_ref().is_some_and(|(_, held)| !held)).collect();
        assert_eq!(seen, seen_in, "{interval}");
        // All pictures are kept, whether the model sees the clip or not.
        for at in seen {
            let last = 10 + 10 * at as u8;
            assert_eq!(found[at], Some((vec![last - 10, last], false)), "{interval}");
        }
        assert!(found[1..].iter().all(Option::is_some), "results hold");
    }
}

#[test]
fn interval_of_trtinfer_leaves_frames_out() {
    let mut stream = Stream::new(&usual("infer", "2"), "", "interval=3", "");
    let found = stream.push_one(10, 7);
    let seen: Vec<usize> = (0..7).filter(|at| found[*at].as_ref().is_some_and(|(_, held)| !held)).collect();
    assert_eq!((seen, &found[4]), (vec![1, 4], &Some((vec![40, 50], false))), "a frame without a clip takes no turn");
}

/// Each second frame is inferred, and a clip ends with each second one: it is the same one.
#[test]
fn interval_of_trtinfer_does_not_miss_the_clips_of_a_step() {
    let mut stream = Stream::new(&usual("infer-step", "2"), "frame-step=2", "interval=2", "");
    assert_eq!(stream.push(&[]), []);
    let found = stream.push_one(10, 7);
    let seen = |pictures: [u8; 2], held: bool| Some((pictures.to_vec(), held));
    let wanted = [None, None, seen([10, 30], false), seen([10, 30], true), seen([30, 50], false)];
    assert_eq!(found[..5], wanted);
}

#[test]
fn an_object_that_was_away_for_as_long_as_a_clip_begins_again() {
    let mut stream = Stream::new(&usual("away", "2"), "", "", "");
    stream.push(&[(Some(7), 0, 10)]);
    stream.push(&[]);
    assert_eq!(stream.push(&[(Some(7), 0, 30)]), [Some((vec![10, 30], false, (0, 3)))]);
    stream.push(&[(Some(8), 0, 40)]);
    for _ in 0..3 {
        stream.push(&[]);
    }
    assert_eq!(stream.count("trtpreprocess", "unfinished-clips"), 1, "of the other one");
    let found = stream.push_one(80, 2);
    assert!(found[0].as_ref().is_none_or(|(seen, held)| *held && *seen == [10, 30]), "{found:?}");
    assert_eq!(found[1], Some((vec![80, 90], false)));
}

#[test]
fn clips_of_objects_begin_again_where_the_stream_does() {
    let mut stream = Stream::new(&usual("flush", "3"), "", "", "");
    assert_eq!(stream.push_one(10, 2), [None, None]);
    stream.line.push_event(gst::event::FlushStart::new());
    stream.line.push_event(gst::event::FlushStop::new(true));
    stream.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    assert_eq!(stream.push_one(110, 3), [None, None, Some((vec![110, 120, 130], false))]);
    assert_eq!(stream.count("trtpreprocess", "unfinished-clips"), 1);
    // Frames of another size go on with them.
    stream.line.caps("RGB", SIDE, SIDE / 2);
    let mut frame = gst::Buffer::from_mut_slice(vec![140u8; (SIDE * SIDE / 2 * 3) as usize]);
    {
        let buffer = frame.get_mut().unwrap();
        buffer.set_pts(gst::ClockTime::from_nseconds(stream.number * PERIOD));
        let mut region = VideoRegionOfInterestMeta::add(buffer, "person", (0, 0, HALF, HALF));
        region.add_param(gst::Structure::builder("object_id").field("id", 7i32).build());
    }
    let buffer = stream.line.push(frame);
    let region = buffer.iter_meta::<VideoRegionOfInterestMeta>().next().unwrap();
    let classes = region.param("classification").unwrap().get::<gst::Array>("classes").unwrap();
    let best = classes.as_slice()[0].get::<gst::Structure>().unwrap();
    assert_eq!((best.get::<u32>("class-id"), classes.as_slice().len()), (Ok(2), 3), "the newest is the brightest");
}

/// Pictures are scaled to the model's input, whatever size their frames have.
#[test]
fn clips_of_objects_go_on_with_frames_of_another_size() {
    let mut stream = Stream::new(&usual("size", "4"), "", "", "");
    let (one, other) = (Some(7), Some(8));
    assert_eq!(stream.push(&[(one, 0, 10), (other, 3, 110)]), [None, None]);
    stream.resize(96);
    assert_eq!(stream.push(&[(one, 1, 20), (other, 2, 120)]), [None, None]);
    stream.resize(32);
    assert_eq!(stream.push(&[(one, 3, 30), (other, 0, 130)]), [None, None]);
    stream.resize(SIDE);
    let both = [Some((vec![10, 20, 30, 40], false, (0, 4))), Some((vec![110, 120, 130, 140], false, (0, 4)))];
    assert_eq!(stream.push(&[(one, 2, 40), (other, 1, 140)]), both);
    assert_eq!(stream.end(), [""; 0]);
    assert_eq!(["clips", "unfinished-clips"].map(|name| stream.count("trtpreprocess", name)), [2, 0]);
}

#[test]
fn objects_that_are_too_many_have_no_clips() {
    let mut stream = Stream::new(&usual("many", "2"), "max-objects=2", "", "");
    for first in [10, 20] {
        let objects = [(Some(1), 0, first), (Some(2), 1, first + 100), (Some(3), 2, first)];
        let found = stream.push(&objects);
        let are_known: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(are_known, if first == 10 { [false; 3] } else { [true, true, false] });
    }
    // Two regions of one id are no more than one object.
    let found = stream.push(&[(Some(1), 0, 30), (Some(1), 1, 200)]);
    assert_eq!(found, [Some((vec![20, 30], false, (1, 3))), None]);
}

#[test]
fn objects_without_ids_are_told() {
    let mut stream = Stream::new(&usual("ids", "2"), "", "", "");
    for _ in 0..3 {
        assert_eq!(stream.push(&[(None, 0, 10)]), [None]);
    }
    let said = stream.end();
    let parts = ["makes no clips: no object has an id", "Put trttrack before it"];
    assert!(said.len() == 1 && parts.iter().all(|part| said[0].contains(part)), "{said:?}");
    // Of many objects it is told while playing.
    let mut stream = Stream::new(&usual("ids", "2"), "", "", "");
    for _ in 0..60 {
        stream.push(&[(None, 0, 10), (None, 1, 20)]);
    }
    let said = stream.line.said();
    assert!(said.len() == 1 && said[0].contains(parts[0]), "{said:?}");
    assert_eq!(stream.end(), [""; 0], "once");
}

#[test]
fn objects_that_are_gone_too_soon_are_told() {
    let mut stream = Stream::new(&usual("short", "4"), "", "", "");
    stream.push(&[(Some(1), 0, 10)]);
    stream.push(&[(Some(1), 0, 20), (Some(2), 1, 20)]);
    let said = stream.end();
    let wanted = "it sees clips of 4 pictures of an object, and none had more than 2 of them";
    assert!(said.len() == 1 && said[0].contains(wanted), "{said:?}");
}

#[test]
fn messages_have_the_time_of_the_clip() {
    let mut stream = Stream::new(&usual("messages", "2"), "", "", "post-messages=true top-k=1");
    for brightness in [10, 20] {
        stream.push(&[(Some(7), 0, brightness)]);
    }
    let message = stream.line.messages().pop().unwrap();
    let object = message.get::<gst::Array>("detections").unwrap().as_slice()[0].get::<gst::Structure>().unwrap();
    let attribute = object.get::<gst::Array>("attributes").unwrap().as_slice()[0].get::<gst::Structure>().unwrap();
    let time = |name: &str| attribute.get::<u64>(name).unwrap() / PERIOD;
    assert_eq!((time("start-stream-time"), time("end-stream-time")), (0, 2));
    assert_eq!(message.to_string().parse::<gst::Structure>().unwrap(), message, "its text can be read back");
}

/// Pictures are cut out and put together on a GPU as on the CPU.
#[test]
fn gpu_clips_of_objects_are_those_of_the_cpu() {
    let library = crate::common::gpu::context().and_then(|_| crate::common::gpu::setting("TRT_LIBRARY"));
    let Some(library) = library else {
        crate::common::gpu::skip("there is no GPU, or TRT_LIBRARY is not set");
        return;
    };
    let file = model("gpu", &["n", "3", "3", "8", "8"], &[1, 3, 4]);
    let cache = scratch("track-clips-gpu-cache");
    let on_gpu =
        format!("backend=tensorrt trt-library={library} engine-cache={} optimization-level=0", cache.display());
    let run = |infer: &str| {
        let mut stream = Stream::new(&file, "frame-step=2", &format!("{infer} batch-size=4"), "");
        let mut push = |at: u8| {
            let quarter = u32::from(at) % 4;
            stream.push(&[(Some(1), quarter, 10 + at), (Some(2), (quarter + 1) % 4, 100 + at)])
        };
        (0..12).map(&mut push).collect::<Vec<_>>()
    };
    let wanted = run("backend=rten");
    assert!(wanted[11].iter().all(Option::is_some));
    assert_eq!(run(&on_gpu), wanted);
}
