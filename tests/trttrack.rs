// SPDX-License-Identifier: MPL-2.0
//! trttrack: ids on the metas of trtnms and of other elements, the same from frame to frame; metas only.

use crate::allocations;
use crate::common::boxes::{Line, SIDE, grey, model};
use crate::common::scratch;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::geometry::Rect;
use gsttrt_core::image::masks::Mask;

mod properties;

const WIDTH: u32 = 640;
const HEIGHT: u32 = 480;
const FRAME: u64 = 33_333_333;

/// Pushes frames one after another.
struct Clip {
    line: Line,
    frames: u64,
}

/// A detection: label, score, centre; of 40x80 pixels.
type Seen<'a> = (&'a str, f64, [f64; 2]);

impl Clip {
    fn new(properties: &str) -> Self {
        let mut line = Line::parse(&format!("trttrack {properties}"));
        line.caps("NV12", WIDTH, HEIGHT);
        Clip { line, frames: 0 }
    }

    fn push(&mut self, mut buffer: gst::Buffer) -> gst::Buffer {
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(self.frames * FRAME));
        self.frames += 1;
        self.line.push(buffer)
    }

    /// The id of each object, 0 for none.
    fn ids(&mut self, seen: &[Seen]) -> Vec<i32> {
        ids(&self.push(frame(seen, false)))
    }
}

/// A frame without a picture: no element may read it.
fn frame(seen: &[Seen], is_held: bool) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    for (label, score, [x, y]) in seen {
        let (left, top) = (x - 20.0, y - 40.0);
        let pixel = |at: f64| at.max(0.0) as u32;
        let rect = (pixel(left), pixel(top), 40, 80);
        let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
        let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
        let mut detection = gst::Structure::builder("detection")
            .field("label_id", label.len() as i32)
            .field("confidence", *score)
            .field("x_min", left / width)
            .field("y_min", top / height)
            .field("x_max", (left + 40.0) / width)
            .field("y_max", (top + 80.0) / height);
        if is_held {
            detection = detection.field("held", true);
        }
        region.add_param(detection.build());
    }
    buffer
}

fn ids(buffer: &gst::BufferRef) -> Vec<i32> {
    let id = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        meta.param("object_id").map_or(0, |param| param.get::<i32>("id").unwrap())
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(id).collect()
}

/// The field that marks the box of each object.
fn marks(buffer: &gst::BufferRef) -> Vec<&'static str> {
    let mark = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let detection = meta.param("detection").unwrap();
        match ["held", "predicted"].map(|name| detection.get::<bool>(name).unwrap_or(false)) {
            [false, false] => "",
            [true, false] => "held",
            [false, true] => "predicted",
            [true, true] => panic!("{detection}"),
        }
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(mark).collect()
}

// ------------------------------------------------------------------------------------------- ids

#[test]
fn objects_keep_their_ids_in_any_order() {
    for tracker in ["bytetrack", "botsort-iou", "ocsort", "iou", "boosttrack"] {
        let mut clip = Clip::new(&format!("tracker={tracker}"));
        for at in (0..100).map(f64::from) {
            let (a, b) = (("cat", 0.9, [100.0 + at, 100.0]), ("cat", 0.8, [500.0 - at, 300.0]));
            let (seen, wanted) = if at % 2.0 == 0.0 { ([a, b], [1, 2]) } else { ([b, a], [2, 1]) };
            assert_eq!(clip.ids(&seen), wanted, "{tracker}, {at}");
        }
        if ["ocsort", "boosttrack"].contains(&tracker) {
            continue;
        }
        // A new object has an id from its second frame on.
        let known = ("cat", 0.9, [200.0, 100.0]);
        assert_eq!(clip.ids(&[("cat", 0.9, [400.0, 400.0]), known]), [0, 1]);
        assert_eq!(clip.ids(&[("cat", 0.9, [400.0, 400.0]), known]), [3, 1]);
        assert_eq!(clip.line.said(), [""; 0]);
    }
}

/// The same frame, where each region has a vector of that model.
fn with_vectors(mut buffer: gst::Buffer, vectors: &[[f32; 2]], model: &str, is_held: bool) -> gst::Buffer {
    let regions = buffer.get_mut().unwrap().iter_meta_mut::<VideoRegionOfInterestMeta>();
    for (mut region, vector) in regions.zip(vectors) {
        let values: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut param = gst::Structure::builder("vector")
            .field("dims", vector.len() as u32)
            .field("values", gst::Buffer::from_slice(values))
            .field("model", model);
        if is_held {
            param = param.field("held", true);
        }
        region.add_param(param.build());
    }
    buffer
}

#[test]
fn vectors_that_are_missing_or_of_another_model_are_told_once() {
    let seen: &[Seen] = &[("a", 0.9, [100.0, 100.0])];
    let mut clip = Clip::new("tracker=botsort");
    for _ in 0..120 {
        // Those of earlier frames are not looked at again.
        clip.push(with_vectors(frame(seen, false), &[[1.0, 0.0]], "reid", true));
    }
    let messages = clip.line.said();
    assert!(messages.len() == 1 && messages[0].contains("no object of the first 60 frames"), "{messages:?}");
    assert!(messages[0].contains("set a smaller min-object-size"), "they may be too small: {messages:?}");
    for model in ["reid", "reid", "other", "other", "reid"] {
        assert_eq!(ids(&clip.push(with_vectors(frame(seen, false), &[[1.0, 0.0]], model, false))), [1]);
    }
    let messages = clip.line.said();
    assert!(messages.len() == 1 && messages[0].contains("another model than before"), "{messages:?}");
    for needs_none in ["", "tracker=boosttrack"] {
        let mut clip = Clip::new(needs_none);
        (0..70).for_each(|_| drop(clip.ids(seen)));
        assert_eq!(clip.line.said(), [""; 0], "it needs no vectors: {needs_none}");
    }
}

/// Of this thread, in which the element works, once there is memory for all objects. GStreamer's own allocations, such as those of metas,
/// are not counted.
#[test]
fn nothing_is_allocated_for_the_frames_of_a_crowd() {
    const OBJECTS: usize = 40;
    const WARM: usize = 60;
    let vectors: Vec<[f32; 2]> = (0..OBJECTS).map(|at| (at as f32).sin_cos()).map(|(sin, cos)| [sin, cos]).collect();
    for tracker in ["bytetrack", "botsort-iou", "ocsort", "iou", "botsort", "deepocsort", "boosttrack"] {
        let mut clip = Clip::new(&format!("tracker={tracker} classes=cat,dog"));
        let mut allocated = Vec::with_capacity(2 * WARM);
        for at in 0..2 * WARM {
            let object = |number: usize| -> Seen {
                let (column, row) = ((number % 8) as f64, (number / 8) as f64);
                ("cat", 0.9, [40.0 + 70.0 * column + 0.5 * at as f64, 45.0 + 90.0 * row])
            };
            let seen: Vec<Seen> = (0..OBJECTS).map(object).collect();
            let buffer = with_vectors(frame(&seen, false), &vectors, "reid", false);
            let before = allocations::so_far();
            let buffer = clip.push(buffer);
            allocated.push(allocations::so_far() - before);
            assert!(at < WARM || ids(&buffer).iter().all(|&id| id > 0), "{tracker}: all are followed");
        }
        assert!(allocated[0] > 0, "they are counted");
        assert_eq!(allocated[WARM..], [0; WARM], "{tracker}");
        assert_eq!(clip.line.said(), [""; 0]);
    }
}

#[test]
fn properties_change_while_playing() {
    let mut clip = Clip::new("");
    let weak = ("a", 0.3, [100.0, 100.0]);
    assert_eq!(clip.ids(&[weak]), [0]);
    let element = clip.line.element("trttrack");
    for property in ["track-thresh", "det-thresh"] {
        element.set_property(property, 0.2f32);
    }
    clip.ids(&[weak]);
    assert_eq!(clip.ids(&[weak]), [1]);
    element.set_property("classes", "other");
    assert_eq!(clip.ids(&[weak]), [0]);
}

#[test]
fn another_part_of_the_stream_has_other_ids() {
    let seen: &[Seen] = &[("a", 0.9, [100.0, 100.0])];
    let mut clip = Clip::new("");
    assert_eq!(clip.ids(seen), [1]);
    clip.line.push_event(gst::event::FlushStart::new());
    clip.line.push_event(gst::event::FlushStop::new(true));
    let segment = |start: u64| {
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_start(gst::ClockTime::from_nseconds(start));
        gst::event::Segment::new(&segment)
    };
    clip.line.push_event(segment(0));
    assert_eq!(clip.ids(seen), [2], "a flush");
    clip.line.push_event(segment(0));
    assert_eq!(clip.ids(seen), [2], "the same segment once more");
    clip.line.push_event(segment(FRAME));
    assert_eq!(clip.ids(seen), [3], "another segment");
    let stream = |id| gst::event::StreamStart::new(id);
    let caps = |width: i32| {
        let caps = gst::Caps::builder("video/x-raw").field("width", width).field("height", HEIGHT as i32);
        gst::event::Caps::new(&caps.build())
    };
    for (event, wanted, what) in [
        (stream("a"), 4, "another stream"),
        (stream("a"), 4, "the same stream"),
        (caps(WIDTH as i32), 4, "the same size"),
        (caps(320), 5, "another size"),
    ] {
        clip.line.push_event(event);
        assert_eq!(clip.ids(seen), [wanted], "{what}");
    }
    for (frames, wanted, what) in
        [(100, 5, "frames are missing"), (-20, 5, "time goes back a little"), (-60, 6, "time goes back")]
    {
        clip.frames = clip.frames.saturating_add_signed(frames);
        assert_eq!(clip.ids(seen), [wanted], "{what}");
    }
}

/// It may be so for a second of the scene, however fast an application plays it.
#[test]
fn an_object_out_of_sight_keeps_its_id_as_long_at_any_rate() {
    let seen: &[Seen] = &[("a", 0.9, [100.0, 100.0])];
    for rate in [1.0, 0.25, 4.0] {
        for (frames, wanted) in [(20, 1), (40, 2)] {
            let mut clip = Clip::new("");
            let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
            segment.set_rate(rate);
            clip.line.push_event(gst::event::Segment::new(&segment));
            (0..5).for_each(|_| assert_eq!(clip.ids(seen), [1], "{rate}"));
            (0..frames).for_each(|_| drop(clip.ids(&[])));
            clip.ids(seen);
            assert_eq!(clip.ids(seen), [wanted], "{rate}: after {frames} frames");
        }
    }
}

#[test]
fn each_stream_has_its_own_ids() {
    let seen: &[Seen] = &[("a", 0.9, [100.0, 100.0])];
    let mut clips = [Clip::new(""), Clip::new("")];
    for _ in 0..3 {
        assert_eq!(clips.each_mut().map(|clip| clip.ids(seen)), [[1], [1]]);
    }
}

// ------------------------------------------------------------------------------------------- frames between

#[test]
fn held_boxes_move_to_where_their_objects_are() {
    for tracker in ["bytetrack", "botsort-iou", "ocsort", "boosttrack"] {
        let mut clip = Clip::new(&format!("tracker={tracker}"));
        let place = |at: u64| [100.0 + 3.0 * at as f64, 100.0 + at as f64];
        for at in 0..60 {
            let inferred = at / 5 * 5;
            let buffer = clip.push(frame(&[("a", 0.9, place(inferred))], at != inferred));
            assert_eq!(ids(&buffer), [1]);
            assert_eq!(marks(&buffer), [if at == inferred { "" } else { "predicted" }]);
            let region = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
            let (x, y, width, height) = region.rect();
            let detection = region.param("detection").unwrap();
            let edge = |name, whole: u32| detection.get::<f64>(name).unwrap() * f64::from(whole);
            let center = [
                (edge("x_min", WIDTH) + edge("x_max", WIDTH)) / 2.0,
                (edge("y_min", HEIGHT) + edge("y_max", HEIGHT)) / 2.0,
            ];
            let rounded = [f64::from(x) + f64::from(width) / 2.0, f64::from(y) + f64::from(height) / 2.0];
            if at > 20 {
                for (have, wanted) in center.iter().chain(&rounded).zip(place(at).iter().cycle()) {
                    assert!((have - wanted).abs() < 3.0, "{tracker}, {at}: {center:?} {rounded:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_yet_followed_stays_held_and_what_leaves_is_gone() {
    let mut clip = Clip::new("");
    let leaving = |at: f64| ("a", 0.9, [560.0 + 8.0 * at, 100.0]);
    for at in 0..10 {
        clip.ids(&[leaving(at.into())]);
    }
    let new = ("a", 0.9, [300.0, 300.0]);
    let seen = [leaving(10.0), new];
    assert_eq!(clip.ids(&seen), [1, 0]);
    let held = clip.push(frame(&seen, true));
    assert_eq!((ids(&held), marks(&held)), (vec![1, 0], vec!["predicted", "held"]));
    for _ in 0..6 {
        clip.push(frame(&seen, true));
    }
    let held = clip.push(frame(&seen, true));
    assert_eq!((ids(&held), marks(&held)), (vec![0], vec!["held"]), "it is beyond the edge");
    // An object that was never seen here cannot be predicted.
    let held = clip.push(frame(&[("a", 0.9, [50.0, 400.0])], true));
    assert_eq!((ids(&held), marks(&held)), (vec![0], vec!["held"]));
}

#[test]
fn rotated_boxes_and_points_move_with_their_objects() {
    let mut clip = Clip::new("");
    let push = |clip: &mut Clip, at: f64, is_held: bool| {
        let mut buffer = frame(&[("a", 0.9, [100.0 + at, 200.0])], is_held);
        let mut region = buffer.get_mut().unwrap().meta_mut::<VideoRegionOfInterestMeta>().unwrap();
        let (left, right, top, bottom) = (80.0 + at, 120.0 + at, 160.0, 240.0);
        let corners = [right, 200.0, 100.0 + at, top, left, 200.0, 100.0 + at, bottom];
        let sized =
            |name: &str| gst::Structure::builder(name).field("frame-width", WIDTH).field("frame-height", HEIGHT);
        region.add_param(sized("rotation").field("angle", 0.5f64).field("corners", gst::Array::new(corners)).build());
        let points = gst::Array::new([110.0 + at, 190.0, 0.9]);
        region.add_param(sized("keypoints").field("keypoints", points).field("keypoint-dims", 3u32).build());
        clip.push(buffer)
    };
    for at in 0..40 {
        push(&mut clip, f64::from(2 * at), false);
    }
    let moved = push(&mut clip, 78.0, true);
    let region = moved.meta::<VideoRegionOfInterestMeta>().unwrap();
    let numbers = |param: &str, field: &str| -> Vec<f64> {
        let array = region.param(param).unwrap().get::<gst::Array>(field).unwrap();
        array.iter().map(|value| value.get().unwrap()).collect()
    };
    let near = |have: &[f64], wanted: &[f64]| have.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 0.5);
    let corners = numbers("rotation", "corners");
    assert!(near(&corners, &[200.0, 200.0, 180.0, 160.0, 160.0, 200.0, 180.0, 240.0]), "{corners:?}");
    let points = numbers("keypoints", "keypoints");
    assert!(near(&points, &[190.0, 190.0, 0.9]), "{points:?}");
}

/// What is beyond the edge of the frame is cut off its box, and the rest of it does not move less for that.
#[test]
fn masks_and_points_move_with_objects_that_leave() {
    let mut clip = Clip::new("");
    let push = |clip: &mut Clip, x: u32, is_held: bool| {
        let mut buffer = frame(&[("a", 0.9, [f64::from(x), 200.0])], is_held);
        let mut region = buffer.get_mut().unwrap().meta_mut::<VideoRegionOfInterestMeta>().unwrap();
        let sized =
            |name: &str| gst::Structure::builder(name).field("frame-width", WIDTH).field("frame-height", HEIGHT);
        let points = gst::Array::new([f64::from(x) + 10.0, 190.0, 0.9]);
        region.add_param(sized("keypoints").field("keypoints", points).field("keypoint-dims", 3u32).build());
        let rect = Rect { left: x - 20, top: 160, right: x - 10, bottom: 240 };
        let place = sized("mask").field("mask-x", rect.left).field("mask-y", rect.top);
        let sides = place.field("mask-width", rect.width()).field("mask-height", rect.height());
        region.add_param(sides.field("mask-counts", Mask::of(rect, &[true; 800]).counts()).build());
        clip.push(buffer)
    };
    for at in 0..40 {
        push(&mut clip, 540 + 2 * at, false);
    }
    let mut moved = push(&mut clip, 618, true);
    for _ in 0..4 {
        moved = push(&mut clip, 618, true);
    }
    // Its middle is at 628, and 8 of its 40 pixels are beyond the edge.
    let region = moved.meta::<VideoRegionOfInterestMeta>().unwrap();
    assert!(region.rect().2.abs_diff(32) <= 2, "{:?}", region.rect());
    let points = region.param("keypoints").unwrap().get::<gst::Array>("keypoints").unwrap();
    let x = points[0].get::<f64>().unwrap();
    assert!((x - 638.0).abs() < 1.5, "{x}");
    let left = region.param("mask").unwrap().get::<u32>("mask-x").unwrap();
    assert!(left.abs_diff(608) <= 1, "{left}");
}

#[test]
fn every_frame_of_an_interval_has_ids() {
    let model = model(&scratch("track-interval"), &[[8.3, 20.6, 40.5, 60.2, 0.9, 0.0]]);
    let mut line =
        Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms draw=false ! trttrack"));
    for at in 0..9 {
        let mut buffer = grey(SIDE * SIDE * 3);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(at * FRAME));
        let buffer = line.push(buffer);
        assert_eq!(ids(&buffer), [1], "{at}");
        assert_eq!(marks(&buffer), [if at % 3 == 0 { "" } else { "predicted" }]);
    }
    assert_eq!(line.said(), [""; 0]);
}

// ------------------------------------------------------------------------------------------- messages and stats

#[test]
fn messages_contain_ids() {
    let mut clip = Clip::new("post-messages=true");
    let (known, new) = (("cat", 0.9, [100.0, 100.0]), ("dog", 0.75, [300.0, 200.0]));
    clip.ids(&[known]);
    clip.ids(&[known, new]);
    clip.push(frame(&[known, new], true));
    clip.ids(&[]);
    // A skipped frame that has nothing to repeat.
    let mut nothing = frame(&[], false);
    gst::meta::CustomMeta::add(nothing.get_mut().unwrap(), "GstTrtHeldMeta").unwrap();
    clip.push(nothing);
    let messages = clip.line.messages();
    assert_eq!(messages.len(), 5);
    let content = &messages[1];
    assert_eq!(content.name(), "trt-detections");
    assert_eq!(content.get::<u64>("frame"), Ok(1));
    assert_eq!(content.get::<Option<gst::ClockTime>>("stream-time"), Ok(Some(gst::ClockTime::from_nseconds(FRAME))));
    assert_eq!(["width", "height", "count"].map(|name| content.get::<u32>(name).unwrap()), [WIDTH, HEIGHT, 2]);
    let objects = |content: &gst::Structure| -> Vec<gst::Structure> {
        let array = content.get::<gst::Array>("detections").unwrap();
        array.iter().map(|value| value.get().unwrap()).collect()
    };
    let posted = objects(content);
    assert_eq!([0, 1].map(|object: usize| posted[object].get::<u64>("track-id").ok()), [Some(1), None]);
    assert_eq!([0, 1].map(|object: usize| posted[object].get::<String>("label").unwrap()), ["cat", "dog"]);
    assert_eq!(posted[1].get::<u32>("class-id"), Ok(3));
    assert_eq!(posted[1].get::<f64>("confidence"), Ok(0.75));
    let bbox = ["x", "y", "w", "h"].map(|name| posted[1].get::<f64>(name).unwrap());
    assert!(bbox.iter().zip([280.0, 160.0, 40.0, 80.0]).all(|(a, b)| (a - b).abs() < 0.01), "{bbox:?}");
    let predicted = |content: &gst::Structure| content.get::<bool>("predicted").unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|at: usize| predicted(&messages[at])), [false, false, true, false, true]);
    assert!(!messages[3].has_field("detections"));
    // An id over cameras, of an element before.
    let mut identified = frame(&[known, new], false);
    let mut region = identified.get_mut().unwrap().iter_meta_mut::<VideoRegionOfInterestMeta>().nth(1).unwrap();
    region.add_param(gst::Structure::builder("identity").field("id", 5u64).build());
    clip.push(identified);
    let posted = objects(&clip.line.messages()[0]);
    assert_eq!([0, 1].map(|object: usize| posted[object].get::<u64>("identity").ok()), [None, Some(5)]);
    clip.line.element("trttrack").set_property("post-messages", false);
    clip.ids(&[known]);
    assert!(clip.line.messages().is_empty());
}

#[test]
fn stats_count_frames_and_ids() {
    let mut clip = Clip::new("");
    let seen: &[Seen] = &[("a", 0.9, [100.0, 100.0]), ("a", 0.2, [300.0, 100.0])];
    (0..3).for_each(|_| drop(clip.ids(seen)));
    let stats = clip.line.element("trttrack").property::<gst::Structure>("stats");
    assert_eq!(["frames", "objects"].map(|name| stats.get::<u64>(name).unwrap()), [3, 3]);
}

#[test]
fn frames_may_be_in_any_memory_and_are_not_copied() {
    crate::common::init();
    let mut harness = gst_check::Harness::new("trttrack");
    harness.set_src_caps_str("video/x-raw(memory:Elsewhere),format=DMA_DRM,width=640,height=480");
    for _ in 0..2 {
        let mut buffer = frame(&[("a", 0.9, [100.0, 100.0])], false);
        buffer.get_mut().unwrap().append_memory(gst::Memory::with_size(16));
        let memory = buffer.peek_memory(0).as_ptr();
        let shared = buffer.clone();
        harness.push(buffer).unwrap();
        let buffer = harness.pull().unwrap();
        assert_eq!((ids(&buffer), buffer.peek_memory(0).as_ptr()), (vec![1], memory));
        assert_eq!(ids(&shared), [0], "others see what they had");
    }
}

// ------------------------------------------------------------------------------------------- errors and warnings

#[test]
fn ids_of_another_tracker_stay() {
    let mut clip = Clip::new("");
    for _ in 0..3 {
        let mut buffer = frame(&[("a", 0.9, [100.0, 100.0]), ("a", 0.9, [300.0, 100.0])], false);
        let id = gst::Structure::builder("object_id").field("id", 77i32).build();
        buffer.get_mut().unwrap().meta_mut::<VideoRegionOfInterestMeta>().unwrap().add_param(id);
        let buffer = clip.push(buffer);
        assert_eq!(ids(&buffer), [77, 1]);
        let params = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| meta.params().count();
        assert_eq!(buffer.iter_meta::<VideoRegionOfInterestMeta>().map(params).collect::<Vec<_>>(), [2, 2]);
    }
    let messages = clip.line.said();
    assert!(messages.len() == 1 && messages[0].contains("another tracker"), "{messages:?}");
}

#[test]
fn hostile_metas_end_nothing() {
    const MAX: u32 = u32::MAX;
    let mut clip = Clip::new("");
    for round in 0..3 {
        for rect in [(0, 0, 0, 0), (5, 5, 0, 9), (MAX, MAX, MAX, MAX), (0, 0, MAX, MAX), (MAX, 0, 1, 1)] {
            for value in [f64::NAN, f64::INFINITY, -1e300, 1e300, 0.0] {
                let mut buffer = gst::Buffer::new();
                let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "", rect);
                let detection = ["confidence", "x_min", "y_min", "x_max", "y_max"]
                    .into_iter()
                    .fold(gst::Structure::builder("detection"), |built, name| built.field(name, value));
                region.add_param(detection.field("held", round == 1).field("label_id", -5i32).build());
                region.add_param(gst::Structure::builder("rotation").field("corners", "none").build());
                clip.push(buffer);
            }
        }
    }
    // Many objects at the same position.
    let many = vec![("a", 0.9, [100.0, 100.0]); 400];
    (0..2).for_each(|_| assert_eq!(clip.ids(&many).len(), 400));
    assert_eq!(clip.line.said(), [""; 0]);
    // No times at all.
    for _ in 0..3 {
        clip.line.push(frame(&[("a", 0.9, [300.0, 300.0])], false));
    }
}

#[test]
fn caps_without_a_size_are_refused() {
    crate::common::init();
    let (mut harness, bus) = crate::common::elements::harness("trttrack");
    harness.set_src_caps_str("video/x-raw,format=NV12");
    assert!(harness.push(gst::Buffer::new()).is_err());
    let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
    assert!(error.error().to_string().contains("no width and height"), "{error:?}");
}
