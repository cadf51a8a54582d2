// SPDX-License-Identifier: MPL-2.0
//! trtanalytics: events of objects with ids in zones and across lines, on the bus, on frames and drawn; metas only.

mod drawing;
mod who;

use crate::common::boxes::{Line, SIDE, grey, model};
use crate::common::random::Random;
use crate::common::scratch;
use gst::meta::CustomMeta;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;

const WIDTH: u32 = 640;
const HEIGHT: u32 = 480;
const FRAME: u64 = 33_333_333;

const BOTH: &str = r#"{
    "zones": [{"id": "room", "points": [[100, 100], [300, 100], [300, 300], [100, 300]], "dwell-time": 0.5, "crowd-threshold": 2}],
    "tripwires": [{"id": "door", "points": [[320, 0], [320, 480]]}],
    "directions": [{"id": "east", "points": [[0, 0], [1, 0]]}]
}"#;

/// Pushes frames one after another.
struct Clip {
    line: Line,
    frames: u64,
}

/// An object: its id, and the middle of its lower edge; 40 pixels wide and 80 high.
type Seen = (i32, [f64; 2]);

impl Clip {
    fn new(test: &str, config: &str, properties: &str) -> Self {
        Clip::of(&format!("trtanalytics config-file={} {properties}", file(test, config)))
    }

    fn of(elements: &str) -> Self {
        let mut line = Line::parse(elements);
        line.caps("NV12", WIDTH, HEIGHT);
        line.said(); // of the first size
        Clip { line, frames: 0 }
    }

    fn push(&mut self, mut buffer: gst::Buffer) -> gst::Buffer {
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(self.frames * FRAME));
        self.frames += 1;
        self.line.push(buffer)
    }

    fn see(&mut self, seen: &[Seen]) -> gst::Buffer {
        self.push(frame(seen))
    }

    fn hold(&mut self, frames: usize, seen: &[Seen]) -> gst::Buffer {
        (0..frames).map(|_| self.see(seen)).last().unwrap()
    }

    /// The events posted since the last call.
    fn events(&self) -> Vec<gst::Structure> {
        self.line.messages().into_iter().inspect(|event| assert_eq!(event.name(), "trt-event")).collect()
    }

    /// Their names.
    fn names(&self) -> Vec<String> {
        self.events().iter().map(|event| event.get("event").unwrap()).collect()
    }

    fn element(&mut self) -> gst::Element {
        self.line.element("trtanalytics")
    }

    /// A number of the zone, the tripwire or the direction of that name in the property `counts`.
    fn count(&mut self, list: &str, name: &str, field: &str) -> u64 {
        let counts = self.element().property::<gst::Structure>("counts");
        let found = structures(&counts, list).into_iter().find(|one| one.get::<&str>("name") == Ok(name)).unwrap();
        found.get::<u64>(field).or_else(|_| found.get::<u32>(field).map(u64::from)).unwrap()
    }
}

/// A file with that text.
fn file(test: &str, text: &str) -> String {
    let file = scratch(&format!("analytics-{test}")).join("config");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// A frame without a picture: no element may read it.
fn frame(seen: &[Seen]) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    for &(id, [x, y]) in seen {
        let edges = [x - 20.0, y - 80.0, x + 20.0, y];
        region(&mut buffer, edges, 0.9, (id >= 0).then_some(id));
    }
    buffer
}

/// Adds a person of that box.
fn region(buffer: &mut gst::Buffer, [x1, y1, x2, y2]: [f64; 4], confidence: f64, id: Option<i32>) {
    let pixel = |at: f64| at.max(0.0) as u32;
    let rect = (pixel(x1), pixel(y1), pixel(x2) - pixel(x1), pixel(y2) - pixel(y1));
    let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "person", rect);
    let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
    let detection = gst::Structure::builder("detection")
        .field("label_id", 0i32)
        .field("confidence", confidence)
        .field("x_min", x1 / width)
        .field("y_min", y1 / height)
        .field("x_max", x2 / width)
        .field("y_max", y2 / height);
    region.add_param(detection.build());
    if let Some(id) = id {
        region.add_param(gst::Structure::builder("object_id").field("id", id).build());
    }
}

fn structures(structure: &gst::StructureRef, field: &str) -> Vec<gst::Structure> {
    structure.get::<gst::Array>(field).unwrap().iter().map(|value| value.get().unwrap()).collect()
}

/// The events in a frame's meta.
fn attached(buffer: &gst::BufferRef) -> Vec<gst::Structure> {
    let meta = CustomMeta::from_buffer(buffer, "GstTrtEventMeta").ok();
    meta.map(|meta| structures(meta.structure(), "events")).unwrap_or_default()
}

fn params(buffer: &gst::BufferRef) -> Vec<Option<gst::Structure>> {
    let param = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| meta.param("analytics").map(|param| param.to_owned());
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(param).collect()
}

// ------------------------------------------------------------------------------------------- events

/// A frame has one time in everything that is told of it: its stream time, which is what an application seeks to. Buffers of this
/// segment begin 7 s later.
#[test]
fn all_that_is_told_of_a_frame_has_its_stream_time() {
    const LATER: u64 = 7_000_000_000;
    let zones = r#"{"zones": [{"id": "all", "points": [[0, 0], [64, 0], [64, 64], [0, 64]]}]}"#;
    let published = scratch("one-clock-published").join("out.jsonl");
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={} ! trtnms draw=false post-messages=true ! trttrack post-messages=true \
         ! trtanalytics config-file={} ! trtpublish location={}",
        model(&scratch("one-clock"), &[[20.0, 24.0, 44.0, 40.0, 0.9, 0.0]]),
        file("one-clock-zones", zones),
        published.display()
    ));
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_start(gst::ClockTime::from_nseconds(LATER));
    segment.set_time(gst::ClockTime::ZERO);
    line.push_event(gst::event::Segment::new(&segment));
    for number in 0..20 {
        let mut buffer = grey(SIDE * SIDE * 3);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(LATER + number * FRAME));
        line.push(buffer);
    }
    line.push_event(gst::event::Eos::new());

    let messages = line.messages();
    for message in &messages {
        let time = message.get::<Option<gst::ClockTime>>("stream-time").unwrap().map(gst::ClockTime::nseconds);
        assert_eq!(time, Some(message.get::<u64>("frame").unwrap() * FRAME), "{message}");
    }
    let count = |name: &str| messages.iter().filter(|message| message.name() == name).count();
    assert_eq!((count("trt-detections"), count("trt-event")), (40, 1), "of trtnms and trttrack, and of the zone");
    let lines = std::fs::read_to_string(&published).unwrap();
    let times = lines.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        (line["frame"].as_u64(), line["stream-time"].as_u64())
    });
    assert!(times.eq((0..20).map(|number| (Some(number), Some(number * FRAME)))), "{lines}");
}

#[test]
fn events_are_on_the_bus_and_on_the_frame() {
    let mut clip =
        Clip::new("events", &BOTH.replace("\"id\": \"east\"", "\"classes\": [\"car\"], \"id\": \"east\""), "");
    clip.hold(10, &[(7, [200.0, 200.0])]);
    let events = clip.events();
    let [entered] = &events[..] else { panic!("{events:?}") };
    assert_eq!(entered.get::<&str>("event"), Ok("entered"));
    assert_eq!(entered.get::<&str>("name"), Ok("room"));
    assert_eq!(entered.get::<&str>("label"), Ok("person"));
    assert_eq!((entered.get::<u64>("track-id"), entered.get::<u32>("class-id")), (Ok(7), Ok(0)));
    assert_eq!((entered.get::<u64>("frame"), entered.get::<u64>("count")), (Ok(7), Ok(1)));
    assert_eq!(["width", "height"].map(|name| entered.get::<u32>(name).unwrap()), [WIDTH, HEIGHT]);
    let time = |name| entered.get::<Option<gst::ClockTime>>(name).unwrap().unwrap().nseconds();
    assert_eq!(["stream-time", "event-time"].map(time), [7 * FRAME, 0]);
    assert_eq!(entered.get::<f64>("confidence").map(|value| value as f32), Ok(0.9));
    let bbox = ["x", "y", "w", "h"].map(|name| entered.get::<f64>(name).unwrap());
    assert!(bbox.iter().zip([180.0, 120.0, 40.0, 80.0]).all(|(a, b)| (a - b).abs() < 0.01), "{bbox:?}");
    assert!(!entered.has_field("dwell") && !entered.has_field("direction"));

    clip.hold(10, &[(7, [200.0, 200.0])]);
    clip.hold(30, &[(7, [400.0, 200.0])]);
    let events = clip.events();
    let names: Vec<_> = events.iter().map(|event| event.get::<&str>("event").unwrap()).collect();
    assert_eq!(names, ["dwelled", "left", "crossed"]);
    assert_eq!(events[1].get::<u64>("dwell"), Ok(19 * FRAME));
    assert_eq!((events[2].get::<&str>("direction"), events[2].get::<&str>("name")), (Ok("forward"), Ok("door")));
}

#[test]
fn a_frame_has_its_own_events_after_those_of_others() {
    let config = file("meta", BOTH);
    let mut clip =
        Clip::of(&format!("trtanalytics config-file={config} ! trtanalytics config-file={config} name=second"));
    let mut seen = 0;
    for _ in 0..20 {
        let buffer = clip.see(&[(1, [200.0, 200.0]), (2, [250.0, 200.0])]);
        let posted: Vec<String> = clip.events().iter().map(|event| event.to_string()).collect();
        let attached: Vec<String> = attached(&buffer).iter().map(|event| event.to_string()).collect();
        assert_eq!(attached, posted);
        assert_eq!(CustomMeta::from_buffer(&buffer, "GstTrtEventMeta").is_ok(), !posted.is_empty());
        seen += posted.len();
    }
    assert_eq!(seen, 2 * 5, "entered, crowded and dwelled, of two objects, twice");
}

/// The plates of two cars are read behind the line, by any reader, and one of them is on the list.
#[test]
fn only_objects_whose_text_matches_count() {
    let gate =
        r#"{"tripwires": [{"id": "gate", "points": [[320, 0], [320, 480]], "text-matches": "^(AB ?12|CD ?34)$"}]}"#;
    let mut clip = Clip::new("texts", gate, "");
    for x in [200.0, 440.0] {
        clip.hold(20, &[(1, [x, 200.0]), (2, [x, 400.0])]);
    }
    assert_eq!(clip.names(), [""; 0]);
    let mut buffer = frame(&[(1, [440.0, 200.0]), (2, [440.0, 400.0])]);
    let regions = buffer.get_mut().unwrap().iter_meta_mut::<VideoRegionOfInterestMeta>();
    for (mut region, read) in regions.zip(["XY 12", "AB 12"]) {
        let text = gst::Structure::builder("classification").field("label", read).field("confidence", 0.75f64);
        region.add_param(text.field("text", true).build());
    }
    let buffer = clip.push(buffer);
    let events = clip.events();
    let [crossed] = &events[..] else { panic!("{events:?}") };
    assert_eq!((crossed.get::<&str>("event"), crossed.get::<u64>("track-id")), (Ok("crossed"), Ok(2)));
    let time = crossed.get::<Option<gst::ClockTime>>("event-time").unwrap().unwrap();
    assert_eq!(time.nseconds(), 20 * FRAME, "it tells when it crossed");
    assert_eq!(attached(&buffer).len(), 1);
    assert_eq!(clip.count("tripwires", "gate", "forward"), 1);
}

#[test]
fn objects_have_their_zones() {
    let mut clip = Clip::new("params", BOTH, "");
    clip.hold(9, &[(7, [200.0, 200.0]), (8, [400.0, 200.0])]);
    let buffer = clip.see(&[(8, [400.0, 200.0]), (7, [200.0, 200.0]), (-1, [200.0, 200.0])]);
    let found = params(&buffer);
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
    let zones = structures(found[1].as_ref().unwrap(), "zones");
    assert_eq!((zones[0].get::<&str>("name"), zones[0].get::<u64>("dwell")), (Ok("room"), Ok(9 * FRAME)));
    for at in 0..60 {
        clip.see(&[(8, [400.0 - 2.0 * f64::from(at), 200.0]), (7, [310.0 + 3.0 * f64::from(at), 200.0])]);
    }
    let crossings = clip.events();
    assert!(crossings.iter().any(|event| event.get::<&str>("direction") == Ok("backward")));
    let buffer = clip.see(&[(7, [490.0, 200.0])]);
    assert_eq!(params(&buffer)[0].as_ref().unwrap().get::<&str>("heading"), Ok("east"));
    // Without dwell times.
    let mut clip =
        Clip::new("params-plain", &BOTH.replace("\"dwell-time\"", "\"track-dwell-time\": false, \"dwell-time\""), "");
    let buffer = clip.hold(10, &[(7, [200.0, 200.0])]);
    assert!(!structures(params(&buffer)[0].as_ref().unwrap(), "zones")[0].has_field("dwell"));
}

#[test]
fn the_end_of_the_stream_counts_what_was_not_yet_certain() {
    let mut clip = Clip::new("eos", BOTH, "");
    clip.hold(3, &[(7, [400.0, 400.0])]);
    clip.hold(3, &[(7, [300.0, 400.0])]);
    assert_eq!(clip.names(), [""; 0]);
    clip.line.push_event(gst::event::Eos::new());
    assert_eq!(clip.names(), ["crossed"]);
    assert_eq!(clip.count("tripwires", "door", "backward"), 1);
}

#[test]
fn frames_without_times_follow_each_other_by_their_rate() {
    let mut clip = Clip::new("no-times", BOTH, "");
    (0..10).for_each(|_| drop(clip.line.push(frame(&[(7, [200.0, 200.0])]))));
    assert_eq!(clip.names(), ["entered"]);
}

/// An application plays a file fast, slowly or backwards: what it shows takes as long as it did.
#[test]
fn times_are_those_of_the_scene_at_any_rate() {
    for rate in [1.0, 2.0, 0.5, -1.0, -2.0] {
        let config = BOTH.replace("\"id\": \"east\"", "\"classes\": [\"car\"], \"id\": \"east\"");
        let mut clip = Clip::new("rates", &config, "");
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_rate(rate);
        segment.set_stop(gst::ClockTime::from_nseconds(100 * FRAME));
        clip.line.push_event(gst::event::Segment::new(&segment));
        let stream_time = |number: u64| FRAME * if rate < 0.0 { 99 - number } else { number };
        for number in 0..50 {
            let x = if number < 20 { 200.0 } else { 400.0 };
            let mut buffer = frame(&[(7, [x, 200.0])]);
            buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(stream_time(number)));
            clip.line.push(buffer);
        }
        let events = clip.events();
        let names: Vec<_> = events.iter().map(|event| event.get::<&str>("event").unwrap()).collect();
        assert_eq!(names, ["entered", "dwelled", "left", "crossed"], "{rate}");
        let happened = |event: &gst::Structure| {
            event.get::<Option<gst::ClockTime>>("event-time").unwrap().map(gst::ClockTime::nseconds)
        };
        assert_eq!([0, 3].map(|at| happened(&events[at])), [0, 20].map(|number| Some(stream_time(number))), "{rate}");
        assert_eq!(events[2].get::<u64>("dwell"), Ok(19 * FRAME), "{rate}");
    }
}

/// supervision#2578: what has no id yet is nobody.
#[test]
fn objects_without_ids_count_nothing_and_that_is_said() {
    let mut clip = Clip::new("no-ids", BOTH, "");
    clip.hold(59, &[(-1, [200.0, 200.0])]);
    clip.hold(60, &[]);
    assert_eq!(clip.line.said(), [""; 0], "of frames without objects nothing is known");
    clip.hold(60, &[(-1, [400.0, 200.0])]);
    let said = clip.line.said();
    assert!(said.len() == 1 && said[0].contains("no ids") && said[0].contains("trttrack"), "{said:?}");
    assert_eq!(clip.names(), [""; 0]);
    assert!(["room"].iter().all(|name| clip.count("zones", name, "entered") == 0));
}

/// No model before trtanalytics reads text, or it reads other objects.
#[test]
fn patterns_without_any_text_are_said() {
    let gate = r#"{"tripwires": [{"id": "gate", "points": [[320, 0], [320, 480]], "text-matches": "^AB"}]}"#;
    for (config, wanted) in [(gate, 1), (BOTH, 0)] {
        let mut clip = Clip::new("no-texts", config, "");
        clip.hold(59, &[(7, [200.0, 200.0])]);
        clip.hold(60, &[]);
        assert_eq!(clip.line.said(), [""; 0], "of frames without objects nothing is known");
        clip.hold(60, &[(7, [200.0, 200.0])]);
        let said = clip.line.said();
        assert!(
            said.len() == wanted && said.iter().all(|text| text.starts_with("Nothing matches text-matches")),
            "{said:?}"
        );
    }
}

#[test]
fn another_part_of_the_stream_begins_with_nobody() {
    let mut clip = Clip::new("parts", BOTH, "");
    let seen: &[Seen] = &[(7, [200.0, 200.0])];
    let segment = |start: u64| {
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_start(gst::ClockTime::from_nseconds(start));
        gst::event::Segment::new(&segment)
    };
    let stream = |id| gst::event::StreamStart::new(id);
    let caps = |width: i32| {
        let caps = gst::Caps::builder("video/x-raw").field("width", width).field("height", HEIGHT as i32);
        gst::event::Caps::new(&caps.build())
    };
    let mut entered = |events: &[gst::Event]| {
        events.iter().for_each(|event| {
            assert!({
                clip.line.push_event(event.clone());
                true
            })
        });
        clip.hold(10, seen);
        clip.count("zones", "room", "entered")
    };
    assert_eq!(entered(&[]), 1);
    assert_eq!(entered(&[]), 1);
    assert_eq!(entered(&[gst::event::FlushStart::new(), gst::event::FlushStop::new(true), segment(0)]), 2, "a flush");
    assert_eq!(entered(&[segment(0)]), 2, "the same segment");
    assert_eq!(entered(&[segment(FRAME)]), 3, "another segment");
    assert_eq!(entered(&[stream("a")]), 4, "another stream");
    assert_eq!(entered(&[stream("a"), caps(WIDTH as i32)]), 4, "the same stream and size");
    assert_eq!(entered(&[caps(320)]), 5, "another size, of which the zone is a part");
    assert_eq!(clip.count("zones", "room", "current"), 1);
    // Back to the first frame of the segment: by two seconds and more.
    clip.frames = 1;
    clip.hold(1, &[]);
    assert_eq!(clip.count("zones", "room", "current"), 0, "of those who were there before, nobody stays until then");
}

// ------------------------------------------------------------------------------------------- counts

#[test]
fn counts_are_reset_by_name_or_all() {
    let mut clip = Clip::new("reset", BOTH, "");
    clip.hold(20, &[(7, [200.0, 200.0])]);
    clip.hold(30, &[(7, [400.0, 200.0])]);
    let all = |clip: &mut Clip| [clip.count("zones", "room", "left"), clip.count("tripwires", "door", "forward")];
    assert_eq!(all(&mut clip), [1, 1]);
    let reset = |clip: &mut Clip, name: Option<&str>| clip.element().emit_by_name::<()>("reset-counts", &[&name]);
    reset(&mut clip, Some("nobody"));
    let said = clip.line.said();
    assert!(said.len() == 1 && said[0].contains("\"nobody\""), "{said:?}");
    reset(&mut clip, Some("door"));
    assert_eq!(all(&mut clip), [1, 0]);
    reset(&mut clip, None);
    assert_eq!(all(&mut clip), [0, 0]);
    clip.element().set_state(gst::State::Null).unwrap();
    reset(&mut clip, None);
    assert!(structures(&clip.element().property::<gst::Structure>("counts"), "zones").is_empty());
}

#[test]
fn counts_and_stats_can_be_read() {
    let mut clip = Clip::new("counts", BOTH, "");
    clip.hold(20, &[(7, [200.0, 200.0]), (8, [210.0, 200.0]), (-1, [0.0, 0.0])]);
    let counts = clip.element().property::<gst::Structure>("counts");
    let room = structures(&counts, "zones").remove(0);
    assert_eq!((room.get::<u32>("current"), room.get::<bool>("crowded")), (Ok(2), Ok(true)));
    let class = structures(&room, "classes").remove(0);
    assert_eq!(
        (class.get::<&str>("label"), class.get::<u32>("class-id"), class.get::<u64>("entered")),
        (Ok("person"), Ok(0), Ok(2))
    );
    let stats = clip.element().property::<gst::Structure>("stats");
    assert_eq!(["frames", "objects", "events"].map(|name| stats.get::<u64>(name).unwrap()), [20, 40, 5]);
}

#[test]
fn each_property_counts() {
    let mut clip = Clip::new("point", BOTH, "evaluation-point=center");
    clip.hold(10, &[(7, [200.0, 330.0])]);
    assert_eq!(clip.names(), ["entered"]);
    clip.element().set_property_from_str("evaluation-point", "bottom-center");
    clip.hold(30, &[(7, [200.0, 330.0])]);
    assert_eq!(clip.names(), ["left"]);

    for (properties, expected) in [("", 0), ("lost-after=100000000", 1)] {
        let mut clip = Clip::new("lost", BOTH, properties);
        clip.hold(10, &[(7, [200.0, 200.0])]);
        clip.hold(10, &[]);
        assert_eq!(clip.count("zones", "room", "left"), expected, "{properties}");
    }
    let mut clip = Clip::new("quiet", BOTH, "post-messages=false");
    let buffer = clip.hold(8, &[(7, [200.0, 200.0])]);
    assert_eq!((clip.names().len(), attached(&buffer).len()), (0, 1));

    let inline = BOTH.replace('"', "\\\"").replace('\n', " ");
    let mut clip = Clip::of(&format!("trtanalytics config=\"{inline}\""));
    clip.hold(10, &[(7, [200.0, 200.0])]);
    assert_eq!(clip.names(), ["entered"]);

    let nvds = "[property]\nconfig-width=1280\nconfig-height=960\n[roi-filtering-stream-3]\nenable=1\nroi-room=200;200;600;200;600;600;200;600\n";
    let mut clip = Clip::new("nvds", nvds, "config-stream=3");
    clip.hold(10, &[(7, [200.0, 200.0])]);
    assert_eq!(clip.names(), ["entered"]);
}

// ------------------------------------------------------------------------------------------- memory and errors

#[test]
fn frames_may_be_in_any_memory_and_are_not_copied() {
    crate::common::init();
    let mut harness = gst_check::Harness::new_parse(&format!("trtanalytics config-file={}", file("memory", BOTH)));
    harness.set_src_caps_str("video/x-raw(memory:Elsewhere),format=DMA_DRM,width=640,height=480");
    for _ in 0..10 {
        let mut buffer = frame(&[(7, [200.0, 200.0])]);
        buffer.get_mut().unwrap().append_memory(gst::Memory::with_size(16));
        let memory = buffer.peek_memory(0).as_ptr();
        let shared = buffer.clone();
        harness.push(buffer).unwrap();
        let buffer = harness.pull().unwrap();
        assert_eq!(buffer.peek_memory(0).as_ptr(), memory);
        assert!(CustomMeta::from_buffer(&buffer, "GstTrtZoneMeta").is_ok());
        assert!(CustomMeta::from_buffer(&shared, "GstTrtZoneMeta").is_err(), "others see what they had");
    }
}

/// The error of an element with these properties that does not start.
fn refused(properties: &[(&str, &str)]) -> String {
    crate::common::init();
    let element = gst::ElementFactory::make("trtanalytics").build().unwrap();
    properties.iter().for_each(|(name, value)| element.set_property(name, value));
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    assert!(element.set_state(gst::State::Paused).is_err(), "{properties:?}");
    let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    element.set_state(gst::State::Null).unwrap();
    let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
    error.error().message().to_string()
}

#[test]
fn what_cannot_be_used_is_an_error_with_a_remedy() {
    let folder = scratch("analytics-refused");
    let name = |file: &str| folder.join(file).display().to_string();
    std::fs::write(name("latin1"), b"{\"zones\": \"\xe9\"}").unwrap();
    std::fs::write(name("slip"), r#"{"zone": []}"#).unwrap();
    let both = [("config", BOTH), ("config-file", &name("slip"))];
    for (properties, parts) in [
        (&[][..], &["no configuration", "config-file"][..]),
        (&both, &["two configurations", "not both"]),
        (&[("config", "/etc/zones.json")], &["neither JSON", "config-file"]),
        (&[("config", r#"{"zone": []}"#)], &["unknown key \"zone\"", "Write zones"]),
        (
            &[("config", r#"{"directions": [{"id": "a", "points": [[0, 0], [1, 0]], "text-matches": "["}]}"#)],
            &["directions[0].text-matches is \"[\"", "Write a regular expression"],
        ),
        (&[("config-file", &name("none"))], &["Cannot read", "No such file"]),
        (&[("config-file", &folder.display().to_string())], &["Cannot read", "it is a folder"]),
        (&[("config-file", &name("latin1"))], &["not text in UTF-8"]),
        (
            &[("config-file", &name("slip"))],
            &["Cannot use the configuration", "slip", "unknown key \"zone\"", "Write zones"],
        ),
    ] {
        let message = refused(properties);
        assert!(parts.iter().all(|part| message.contains(part)), "{properties:?}: {message}");
    }
}

/// 200 damaged configurations: each is a clear error at the start, or a configuration that frames can be counted by.
#[test]
fn damaged_configurations_stop_nothing() {
    crate::common::init();
    let mut random = Random(5);
    let mut errors = 0;
    for case in 0..200 {
        let mut bytes = BOTH.as_bytes().to_vec();
        for _ in 0..1 + case % 5 {
            let at = random.below(bytes.len());
            match case % 4 {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = random.below(256) as u8,
                2 => drop(bytes.remove(at)),
                _ => (0..20).for_each(|_| bytes.insert(at, random.below(256) as u8)),
            }
        }
        let file = scratch("analytics-damaged").join("config");
        std::fs::write(&file, &bytes).unwrap();
        let element = gst::ElementFactory::make("trtanalytics").property("config-file", file.display().to_string());
        let (element, bus) = (element.build().unwrap(), gst::Bus::new());
        element.set_bus(Some(&bus));
        if element.set_state(gst::State::Paused).is_err() {
            let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
            let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
            let text = error.error().message().to_string();
            assert!(text.starts_with("Cannot ") && text.contains("config") && text.ends_with('.'), "{text}");
            errors += 1;
        }
        element.set_state(gst::State::Null).unwrap();
    }
    assert!(errors > 150, "{errors}");
}

#[test]
fn zones_outside_the_frame_are_named() {
    let mut line = Line::parse(&format!("trtanalytics config-file={}", file("outside", BOTH)));
    let said = line.said();
    assert!(
        said.len() == 1
            && said[0].contains("room, door")
            && said[0].contains("64x64")
            && said[0].contains("frame-width"),
        "{said:?}"
    );
    line.caps("NV12", WIDTH, HEIGHT);
    line.push(frame(&[]));
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn caps_without_a_size_are_refused() {
    crate::common::init();
    let (mut harness, bus) =
        crate::common::elements::harness(&format!("trtanalytics config-file={}", file("caps", BOTH)));
    harness.set_src_caps_str("video/x-raw,format=NV12");
    assert!(harness.push(gst::Buffer::new()).is_err());
    let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
    assert!(error.error().to_string().contains("no width and height"), "{error:?}");
}
