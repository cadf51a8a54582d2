// SPDX-License-Identifier: MPL-2.0
//! Sequences: a second model sees the last vectors that a first one has made, of frames or of objects. The second model of these tests
//! gives the first number of each vector as the confidence of a class, so that results tell which vectors it has seen, in which order.

use std::path::Path;

use gst::meta::CustomMeta;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, Session, SessionOptions};

use crate::common::boxes::{Line, SIDE, embedder, steps};
use crate::common::scratch;

const MS: u64 = 1_000_000;
const PERIOD: u64 = 40 * MS;
const HALF: u32 = SIDE / 2;

/// Red, green and blue whose vectors begin with 1, 0.8, 0.6 and 0.
const FIRST: [[u8; 3]; 4] = [[200, 0, 0], [160, 120, 0], [120, 160, 0], [0, 200, 0]];
const NUMBERS: [f64; 4] = [1.0, 0.8, 0.6, 0.0];

/// The confidences of classes by their ids, and the time of the sequence in periods.
type Steps = (Vec<f64>, (u64, u64));

fn read(classes: &gst::Array) -> Steps {
    let classes: Vec<gst::Structure> = classes.iter().map(|class| class.get().unwrap()).collect();
    let mut steps = vec![0.0; classes.len()];
    for class in &classes {
        steps[class.get::<u32>("class-id").unwrap() as usize] = class.get::<f64>("confidence").unwrap();
    }
    let time = |name: &str| classes[0].get::<u64>(name).unwrap_or(0) / PERIOD;
    (steps, (time("start-stream-time"), time("end-stream-time")))
}

fn near(found: &[f64], wanted: &[f64]) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-3)
}

/// The second model behind the first one.
fn line(folder: &Path, model: &str, first: (&str, &str), second: &str) -> Line {
    let (regions, infer) = first;
    Line::parse(&format!(
        "trtpreprocess {regions} ! trtinfer model-file={} {infer} ! trtnms draw=false ! trtpreprocess name=second {regions} {second} \
         ! trtinfer model-file={model} ! trtnms class-scores=probabilities score-threshold=0 top-k=100 draw=false",
        embedder(folder, "1")
    ))
}

/// A frame of one colour, as the how many-th of a stream.
fn frame(number: u64, color: [u8; 3]) -> gst::Buffer {
    let mut frame = gst::Buffer::from_mut_slice(color.repeat((SIDE * SIDE) as usize));
    let buffer = frame.get_mut().unwrap();
    buffer.set_pts(gst::ClockTime::from_nseconds(number * PERIOD));
    buffer.set_duration(gst::ClockTime::from_nseconds(PERIOD));
    frame
}

/// What the second model has seen with a frame, if that is new.
fn new_steps(buffer: &gst::BufferRef) -> Option<Steps> {
    let meta = CustomMeta::from_buffer(buffer, "GstTrtClassificationMeta").ok()?;
    let is_held = meta.structure().get::<bool>("held").is_ok();
    let classes = meta.structure().get::<gst::Array>("classes").unwrap();
    (!is_held).then(|| read(&classes))
}

#[test]
fn a_model_sees_the_vectors_of_the_last_frames() {
    let folder = scratch("sequences-frames");
    for (dims, second) in [(["1", "3", "3"], ""), (["1", "t", "3"], "frames=3")] {
        let mut line = line(&folder, &steps(&folder, dims), ("", ""), second);
        for (number, color) in FIRST.iter().enumerate() {
            let found = new_steps(&line.push(frame(number as u64, *color)));
            let Some(first) = number.checked_sub(2) else {
                assert_eq!(found, None, "{dims:?} {number}");
                continue;
            };
            let (steps, times) = found.unwrap();
            assert!(near(&steps, &NUMBERS[first..=number]), "{dims:?}: {steps:?}");
            assert_eq!(times, (first as u64, number as u64 + 1));
        }
        assert_eq!(line.said(), [""; 0], "{dims:?}");
        let stats = line.by_name("second").property::<gst::Structure>("stats");
        assert_eq!(stats.get::<u64>("clips"), Ok(2));
    }
}

#[test]
fn frames_that_the_first_model_has_not_seen_are_no_steps() {
    let folder = scratch("sequences-interval");
    let mut line = line(&folder, &steps(&folder, ["1", "2", "3"]), ("", "interval=2"), "");
    let mut seen = Vec::new();
    for number in 0..6u64 {
        // Of the frames between, the vectors are those of the frame before.
        let color = FIRST[if number.is_multiple_of(2) { number as usize / 2 } else { 3 }];
        seen.extend(new_steps(&line.push(frame(number, color))).map(|(steps, times)| (number, steps, times)));
    }
    let [(2, first, (0, 3)), (4, second, (2, 5))] = &seen[..] else { panic!("{seen:?}") };
    assert!(near(first, &NUMBERS[..2]) && near(second, &NUMBERS[1..3]), "{seen:?}");
}

/// The next frame of a line, with these objects: the id of each, the quarter of the frame that it is in, and which of the colours it has.
/// Gives what the second model has seen of each.
#[track_caller]
fn push_objects(line: &mut Line, number: u64, objects: &[(i32, u32, usize)]) -> Vec<Option<Vec<f64>>> {
    let mut pixels = vec![0u8; (SIDE * SIDE * 3) as usize];
    for &(_, quarter, color) in objects {
        let (left, top) = (quarter % 2 * HALF, quarter / 2 * HALF);
        for y in top..top + HALF {
            let row = &mut pixels[((y * SIDE + left) * 3) as usize..][..(HALF * 3) as usize];
            row.copy_from_slice(&FIRST[color].repeat(HALF as usize));
        }
    }
    let mut frame = gst::Buffer::from_mut_slice(pixels);
    {
        let buffer = frame.get_mut().unwrap();
        buffer.set_pts(gst::ClockTime::from_nseconds(number * PERIOD));
        buffer.set_duration(gst::ClockTime::from_nseconds(PERIOD));
        for &(id, quarter, _) in objects {
            let (left, top) = (quarter % 2 * HALF, quarter / 2 * HALF);
            let mut region = VideoRegionOfInterestMeta::add(buffer, "person", (left, top, HALF, HALF));
            region.add_param(gst::Structure::builder("object_id").field("id", id).build());
        }
    }
    let buffer = line.push(frame);
    let steps = |region: gst::MetaRef<VideoRegionOfInterestMeta>| {
        Some(read(&region.param("classification")?.get::<gst::Array>("classes").unwrap()).0)
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(steps).collect()
}

#[test]
fn each_object_has_a_sequence_of_its_own() {
    let folder = scratch("sequences-objects");
    let mut line = line(&folder, &steps(&folder, ["1", "2", "3"]), ("regions=objects", ""), "");
    let mut push = |number: u64, objects: &[(i32, u32, usize)]| push_objects(&mut line, number, objects);
    assert_eq!(push(0, &[(1, 0, 0)]), [None]);
    let found = push(1, &[(1, 1, 1), (2, 3, 3)]);
    assert!(found[1].is_none() && near(found[0].as_ref().unwrap(), &[1.0, 0.8]), "{found:?}");
    let found = push(2, &[(2, 3, 2), (1, 1, 3)]);
    assert!(near(found[0].as_ref().unwrap(), &[0.0, 0.6]), "{found:?}");
    assert!(near(found[1].as_ref().unwrap(), &[0.8, 0.0]), "{found:?}");
    assert_eq!(line.said(), [""; 0]);
}

/// The first model looks at the object in each second frame, and of its vectors each second one is a step.
#[test]
fn the_step_counts_the_vectors_of_an_object() {
    let folder = scratch("sequences-objects-step");
    let first = ("regions=objects reclassify-interval=2", "");
    let second = "reclassify-interval=1 frame-step=2";
    let mut line = line(&folder, &steps(&folder, ["1", "2", "3"]), first, second);
    let mut found = Vec::new();
    for number in 0..9u64 {
        let color = if number.is_multiple_of(2) { number as usize / 2 % 4 } else { 3 };
        found.push(push_objects(&mut line, number, &[(1, 0, color)]).remove(0));
    }
    assert!(found[..4].iter().all(Option::is_none), "{found:?}");
    // The vectors of the frames 0, 4 and 8.
    for (at, wanted) in [(4, [1.0, 0.6]), (7, [1.0, 0.6]), (8, [0.6, 1.0])] {
        assert!(found[at].as_ref().is_some_and(|steps| near(steps, &wanted)), "{at}: {found:?}");
    }
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn what_is_missing_is_told() {
    let folder = scratch("sequences-missing");
    let file = steps(&folder, ["1", "2", "4"]);
    let mut other = line(&folder, &file, ("", ""), "");
    let mut none = Line::parse(&format!("trtpreprocess ! trtinfer model-file={file} ! trtnms draw=false"));
    for (line, cause) in [(&mut other, "those that come have 3"), (&mut none, "there are none")] {
        for number in 0..3 {
            line.push(frame(number, FIRST[0]));
        }
        line.push_event(gst::event::Eos::new());
        let said = line.said();
        let parts = ["has seen no vectors of 4 numbers", cause, "trtnms layout=embed"];
        assert!(said.len() == 1 && parts.iter().all(|part| said[0].contains(part)), "{said:?}");
    }
}

#[test]
fn streams_that_are_too_short_are_told() {
    for (regions, wanted) in [
        ("", "it sees sequences of 4 vectors, and the stream has ended after 3 of them"),
        ("regions=objects", "it sees sequences of 4 vectors of an object, and none had more than 3 of them"),
    ] {
        let folder = scratch(&format!("sequences-short-{}", regions.len()));
        let mut line = line(&folder, &steps(&folder, ["1", "4", "3"]), (regions, ""), "");
        for number in 0..3 {
            match regions.is_empty() {
                true => drop(line.push(frame(number, FIRST[0]))),
                false => drop(push_objects(&mut line, number, &[(1, 0, 0)])),
            }
        }
        line.push_event(gst::event::Eos::new());
        let said = line.said();
        assert!(said.len() == 1 && said[0].contains(wanted), "{said:?}");
    }
}

#[test]
fn what_is_for_pictures_is_an_error() {
    let folder = scratch("sequences-errors");
    let file = steps(&folder, ["1", "2", "3"]);
    for (preprocess, says) in [
        ("mean=0.5", "mean is for pictures, and the model takes vectors"),
        ("frames=5", "frames=5, and the model takes clips of 2 frames"),
        ("slices=2x1", "slices or slice-size is set"),
    ] {
        let outcome = crate::common::launch(&format!(
            "videotestsrc num-buffers=2 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess {preprocess} \
             ! trtinfer model-file={file} ! trtnms ! fakesink"
        ));
        assert!(outcome.error_text().contains(says), "{preprocess}: {}", outcome.error_text());
    }
}

#[test]
fn a_session_runs_a_sequence_and_a_detector_refuses_it() {
    let file = steps(&scratch("sequences-session"), ["1", "2", "3"]);
    let mut session = Session::open(&file, &SessionOptions::default()).unwrap();
    assert_eq!(session.input().to_string(), "steps f32 1x2x3");
    let mut first = [0f32; 2];
    session.run(&[0.5f32, 9.0, 9.0, -0.25, 9.0, 9.0][..], &mut first).unwrap();
    assert!(near(&first.map(f64::from), &[0.5, -0.25]), "{first:?}");
    let mut detector = Detector::open(&file, &SessionOptions::default(), Default::default()).unwrap();
    let pixels = [77; 16 * 16 * 3];
    let planes = [Plane { data: &pixels[..], stride: 16 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 16, height: 16, planes };
    let said = detector.detect(&frame, Colorimetry::default()).unwrap_err().message();
    assert!(said.contains("its dimensions are not one image"), "{said}");
}

/// Vectors are copied to a GPU, and put together there as on the CPU.
#[test]
fn gpu_sequences_are_those_of_the_cpu() {
    let library = crate::common::gpu::context().and_then(|_| crate::common::gpu::setting("TRT_LIBRARY"));
    let Some(library) = library else {
        crate::common::gpu::skip("there is no GPU, or TRT_LIBRARY is not set");
        return;
    };
    let folder = scratch("sequences-gpu");
    let file = steps(&folder, ["1", "3", "3"]);
    let cache = folder.display().to_string();
    let run = |infer: &str| {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={} backend=rten ! trtnms draw=false ! trtpreprocess ! trtinfer model-file={file} {infer} \
             ! trtnms class-scores=probabilities score-threshold=0 top-k=100 draw=false",
            embedder(&folder, "1")
        ));
        let found = (0..4u64).filter_map(|number| new_steps(&line.push(frame(number, FIRST[number as usize]))));
        found.collect::<Vec<_>>()
    };
    let on_gpu = run(&format!("backend=tensorrt trt-library={library} engine-cache={cache} optimization-level=0"));
    let wanted = run("backend=rten");
    assert_eq!((on_gpu.len(), wanted.len()), (2, 2));
    let is_same = |(found, wanted): (&Steps, &Steps)| found.1 == wanted.1 && near(&found.0, &wanted.0);
    assert!(on_gpu.iter().zip(&wanted).all(is_same), "{on_gpu:?}, not {wanted:?}");
}
