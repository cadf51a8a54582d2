// SPDX-License-Identifier: MPL-2.0
//! trtpublish without a server: files, sockets, what messages hold, what waits and what is dropped, what is told and
//! what is not.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::boxes::Line;
use crate::common::brokers::until;
use crate::common::{launch, registry, scratch};
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use serde_json::{Value, json};

const FRAME: u64 = 33_333_333;

/// Frames through a trtpublish.
struct Feed {
    line: Line,
    frames: u64,
}

impl Feed {
    fn new(properties: &str) -> Self {
        let mut line = Line::parse(&format!("trtpublish {properties}"));
        line.caps("NV12", 640, 480);
        Feed { line, frames: 0 }
    }

    fn to(path: &Path, properties: &str) -> Self {
        Feed::new(&format!("location={} {properties}", path.display()))
    }

    fn push(&mut self, mut buffer: gst::Buffer) -> gst::Buffer {
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(self.frames * FRAME));
        self.frames += 1;
        self.line.push(buffer)
    }

    /// A frame with objects of these ids, 0 for none.
    fn objects(&mut self, ids: &[i32]) {
        self.push(frame(ids));
    }

    fn end(&mut self) {
        self.line.push_event(gst::event::Eos::new());
    }

    fn element(&mut self) -> gst::Element {
        self.line.element("trtpublish")
    }

    fn count(&mut self, name: &str) -> u64 {
        self.element().property::<gst::Structure>("stats").get(name).unwrap()
    }
}

/// A frame without a picture: no element may read it.
pub fn frame(ids: &[i32]) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    for (number, &id) in ids.iter().enumerate() {
        let x = 100.0 * (number + 1) as f64;
        let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "cat", (x as u32, 48, 64, 96));
        region.add_param(
            gst::Structure::builder("detection")
                .field("label_id", 5)
                .field("confidence", 0.5)
                .field("x_min", x / 640.0)
                .field("y_min", 0.1)
                .field("x_max", (x + 64.0) / 640.0)
                .field("y_max", 0.3)
                .build(),
        );
        if id > 0 {
            region.add_param(gst::Structure::builder("object_id").field("id", id).build());
        }
    }
    buffer
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The lines that so many frames give with these properties.
fn published(test: &str, properties: &str, frames: &[&[i32]]) -> Vec<Value> {
    let path = scratch(test).join("out.jsonl");
    let mut feed = Feed::to(&path, properties);
    frames.iter().for_each(|ids| feed.objects(ids));
    feed.end();
    assert_eq!(feed.line.said(), [""; 0]);
    lines(&path)
}

// ------------------------------------------------------------------------------------------- messages

#[test]
fn frames_are_lines() {
    let path = scratch("publish-lines").join("out.jsonl");
    let mut feed = Feed::to(&path, r#"source-id=gate tags="{\"floor\":2}""#);
    for ids in [&[7, 0][..], &[], &[7]] {
        let buffer = frame(ids);
        let metas = |buffer: &gst::Buffer| buffer.iter_meta::<VideoRegionOfInterestMeta>().count();
        assert_eq!(metas(&feed.push(buffer)), ids.len());
    }
    feed.end();
    let mut found = lines(&path);
    for line in &mut found {
        let clock = line.as_object_mut().unwrap().remove("wall-clock").unwrap();
        assert!(clock.as_str().unwrap().starts_with("20") && clock.as_str().unwrap().ends_with('Z'), "{clock}");
    }
    let cat =
        |x: f64| json!({ "label": "cat", "class-id": 5, "confidence": 0.5, "x": x, "y": 48.0, "w": 64.0, "h": 96.0 });
    let mut with_id = cat(100.0);
    with_id["track-id"] = 7.into();
    assert_eq!(
        found,
        [
            json!({ "stream-time": 0, "frame": 0, "width": 640, "height": 480, "held": false, "detections": [with_id, cat(200.0)],
                    "source-id": "gate", "tags": { "floor": 2 } }),
            json!({ "stream-time": 2 * FRAME, "frame": 2, "width": 640, "height": 480, "held": false, "detections": [with_id],
                    "source-id": "gate", "tags": { "floor": 2 } }),
        ]
    );
    assert_eq!(
        ["frames", "published", "dropped", "rejected", "queued", "connections"].map(|name| feed.count(name)),
        [3, 2, 0, 0, 0, 1]
    );
    assert!(feed.element().property::<gst::Structure>("stats").get::<bool>("connected").unwrap());
}

#[test]
fn each_property_of_messages_counts() {
    let frames: [&[i32]; 4] = [&[1], &[], &[1], &[1]];
    let numbers = |test, properties| -> Vec<u64> {
        published(test, properties, &frames).iter().map(|line| line["frame"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers("publish-empty-0", ""), [0, 2, 3]);
    assert_eq!(numbers("publish-empty-1", "add-empty-results=true"), [0, 1, 2, 3]);
    assert_eq!(numbers("publish-every-1", "publish-every=50000000 add-empty-results=true"), [0, 2]);
    assert_eq!(numbers("publish-every-2", "publish-every=30000000"), [0, 2, 3]);

    let dlstreamer = &published("publish-dlstreamer", "format=dlstreamer source-id=a", &frames)[0];
    assert_eq!((&dlstreamer["source"], &dlstreamer["objects"][0]["id"]), (&json!("a"), &json!(1)));
    let deepstream = &published("publish-deepstream", "format=deepstream-minimal source-id=a", &frames)[0];
    assert_eq!((&deepstream["sensorId"], &deepstream["objects"]), (&json!("a"), &json!(["1|100|48|164|144|cat"])));
    let coco = &published("publish-coco", "format=coco", &frames)[1];
    assert_eq!(coco, &json!([{ "image_id": 2, "category_id": 5, "bbox": [100.0, 48.0, 64.0, 96.0], "score": 0.5 }]));
}

#[test]
fn objects_are_published_when_they_are_gone() {
    // 7 is away for one frame; 8 goes and is back under the same id.
    let frames: [&[i32]; 6] = [&[7, 8], &[8], &[7], &[7], &[7], &[7, 8]];
    let objects = |test, properties: &str| -> Vec<(u64, u64)> {
        let found = published(test, &format!("per=object {properties}"), &frames);
        let number = |line: &Value, name: &str| line["object"][name].as_u64().unwrap();
        found.iter().map(|line| (number(line, "track-id"), number(line, "frames"))).collect()
    };
    assert_eq!(objects("publish-objects-0", ""), [(7, 5), (8, 3)]);
    assert_eq!(objects("publish-objects-1", "gone-after=70000000"), [(8, 2), (7, 5), (8, 1)]);

    let path = scratch("publish-objects-2").join("out.jsonl");
    let mut feed = Feed::to(&path, "per=object");
    feed.objects(&[1]);
    feed.line.push_event(gst::event::FlushStart::new());
    feed.line.push_event(gst::event::FlushStop::new(true));
    feed.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    feed.objects(&[2]);
    drop(feed); // without an end of the stream
    assert_eq!(lines(&path).iter().map(|line| line["object"]["track-id"].clone()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn what_no_frame_has_is_told_once() {
    let path = scratch("publish-no-subject").join("out.jsonl");
    let said = |per: &str, ids: &[i32], more: &str| {
        let caps = "video/x-raw,format=NV12,width=640,height=480,framerate=30/1";
        let line = format!(
            "appsrc name=source format=time caps={caps} {more} ! trtpublish location={} per={per} ! fakesink",
            path.display()
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        for number in 0..130 {
            let mut frame = frame(ids);
            frame.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(number * FRAME));
            source.push_buffer(frame).unwrap();
        }
        source.end_of_stream().unwrap();
        let bus = pipeline.bus().unwrap();
        let mut said = Vec::new();
        let kinds = [gst::MessageType::Warning, gst::MessageType::Error, gst::MessageType::Eos];
        while let Some(message) = bus.timed_pop_filtered(gst::ClockTime::from_seconds(120), &kinds) {
            match message.view() {
                gst::MessageView::Warning(warning) => said.push(warning.error().message().to_string()),
                gst::MessageView::Error(error) => panic!("{error:?}"),
                _ => break,
            }
        }
        pipeline.set_state(gst::State::Null).unwrap();
        said
    };
    crate::common::init();
    let without_analytics = said("event", &[1], "");
    let [warning] = &without_analytics[..] else { panic!("{without_analytics:?}") };
    assert!(warning.contains("the first 60 frames have no event"), "{warning}");
    assert!(warning.contains("Put trttrack ! trtanalytics before trtpublish"), "{warning}");
    let without_ids = said("object", &[0], "");
    let [warning] = &without_ids[..] else { panic!("{without_ids:?}") };
    assert!(warning.contains("have no ids") && warning.contains("Put trttrack"), "{warning}");
    // There may be none for long.
    assert_eq!(said("object", &[], ""), [""; 0]);
    assert_eq!(said("object", &[1], ""), [""; 0]);
    let zone = r#"! trtanalytics config="{\"zones\":[{\"id\":\"z\",\"points\":[[0.9,0.9],[1,0.9],[1,1]]}]}""#;
    assert_eq!(said("event", &[1], zone), [""; 0]);
    assert_eq!(said("frame", &[], ""), [""; 0]);
}

#[test]
fn events_are_published() {
    crate::common::init();
    if !gst::meta::CustomMeta::is_registered("GstTrtEventMeta") {
        gst::meta::CustomMeta::register_simple("GstTrtEventMeta");
    }
    let event = |name: &str| {
        let event = gst::Structure::builder("trt-event").field("event", "crossed").field("name", name);
        // The times of a frame without one.
        let event = event.field("stream-time", gst::ClockTime::NONE).field("event-time", gst::ClockTime::NONE);
        let name = gst::Structure::builder("attribute").field("label", "Tom").field("confidence", f64::from(0.9f32));
        let event = event.field("identity", 5u64).field("attributes", gst::Array::new([name.build()]));
        event.field("track-id", 7u64).field("label", "cat").field("confidence", f64::from(0.7f32)).build()
    };
    let with_events = || {
        let mut buffer = frame(&[7]);
        let mut meta = gst::meta::CustomMeta::add(buffer.get_mut().unwrap(), "GstTrtEventMeta").unwrap();
        meta.mut_structure().set("events", gst::Array::new([event("gate"), event("door")]));
        buffer
    };
    let crossed = |name: &str| {
        json!({ "event": "crossed", "name": name, "event-time": null, "track-id": 7, "label": "cat", "confidence": 0.7,
                "identity": 5, "attributes": [{ "label": "Tom", "confidence": 0.9 }] })
    };
    for (per, expected) in [
        ("event", vec![json!([crossed("gate")]), json!([crossed("door")])]),
        ("frame", vec![json!([crossed("gate"), crossed("door")])]),
    ] {
        let path = scratch(&format!("publish-events-{per}")).join("out.jsonl");
        let mut feed = Feed::to(&path, &format!("per={per}"));
        feed.push(with_events());
        if per == "event" {
            feed.objects(&[7]);
        }
        feed.end();
        let events = |line: &Value| line.get("events").cloned().unwrap_or_else(|| json!([line["event"]]));
        assert_eq!(lines(&path).iter().map(events).collect::<Vec<_>>(), expected);
        assert_eq!(lines(&path)[0]["frame"], 0);
    }
}

#[test]
fn the_cameras_clock_is_told() {
    for (reference, timestamp) in
        [("timestamp/x-ntp", 2_208_988_801_000_000_000u64), ("timestamp/x-unix", 1_000_000_000)]
    {
        let path = scratch("publish-ntp").join("out.jsonl");
        let mut feed = Feed::to(&path, "");
        let mut buffer = frame(&[1]);
        let reference = gst::Caps::new_empty_simple(reference);
        let time = gst::ClockTime::from_nseconds(timestamp);
        gst::ReferenceTimestampMeta::add(buffer.get_mut().unwrap(), &reference, time, gst::ClockTime::NONE);
        feed.push(buffer);
        feed.end();
        assert_eq!(lines(&path)[0]["ntp-time"], "1970-01-01T00:00:01.000000Z");
    }
}

// ------------------------------------------------------------------------------------------- destinations without a server

#[test]
fn full_files_are_renamed() {
    let path = scratch("publish-files").join("out.jsonl");
    let mut feed = Feed::to(&path, "max-file-size=700 max-files=2");
    (0..20).for_each(|_| feed.objects(&[1]));
    feed.end();
    let at = |number: u32| path.with_file_name(format!("out.jsonl.{number}"));
    let files = [at(2), at(1), path.clone()];
    let numbers: Vec<u64> =
        files.iter().flat_map(|file| lines(file)).map(|line| line["frame"].as_u64().unwrap()).collect();
    assert!(numbers.ends_with(&[18, 19]) && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert!(numbers[0] > 0 && !at(3).exists(), "older ones are removed");
    assert!(files.iter().all(|file| file.metadata().unwrap().len() <= 700));
}

#[test]
fn a_unix_socket_gets_lines() {
    let path = scratch("publish-unix").join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut feed = Feed::new(&format!("location=unix:{}", path.display()));
    (0..3).for_each(|_| feed.objects(&[1]));
    let mut reader = BufReader::new(listener.accept().unwrap().0);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["frame"].as_u64().unwrap()
    };
    assert_eq!([line(), line(), line()], [0, 1, 2]);
    drop(reader);
    // The reader is back after a while.
    let mut number = 3;
    until("the end of the connection is noticed", || {
        feed.objects(&[1]);
        number += 1;
        !feed.line.said().is_empty()
    });
    let mut reader = BufReader::new(listener.accept().unwrap().0);
    feed.end();
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();
    assert!(serde_json::from_str::<Value>(&text).unwrap()["frame"].as_u64().unwrap() >= 3, "whole lines");
    until("it is told", || feed.line.notes().iter().any(|note| note.contains("again")));
}

/// The plugin as gst-launch-1.0 loads it.
fn gst_launch(line: &str) -> (String, String) {
    let target = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let mut command = Command::new("gst-launch-1.0");
    command.env("GST_PLUGIN_PATH", &target).env("GST_REGISTRY", registry());
    command.env("GST_DEBUG", "trt*:7").env("GST_DEBUG_NO_COLOR", "1");
    let output = command.args(gst::glib::shell_parse_argv(line).unwrap()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn standard_output_gets_lines() {
    crate::common::init();
    let (out, _) =
        gst_launch("-q videotestsrc num-buffers=3 ! trtpublish location=- add-empty-results=true ! fakesink");
    let numbers: Vec<Value> = out
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {out}"))["frame"].clone()
        })
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
#[cfg(all(feature = "mqtt", feature = "http"))]
fn no_password_is_told() {
    crate::common::init();
    let port = crate::common::port::free_port();
    for location in [
        format!("mqtt://me:hunter2@localhost:{port}/t?qos=1"),
        format!("http://me:hunter2@localhost:{port}/t?token=hunter2"),
        "mqtt://me:hunter2@".into(),
        "mqtt://me:hunter2@host/t?password=hunter2".into(),
    ] {
        let line = format!(
            "-v videotestsrc num-buffers=3 ! trtpublish location={location} add-empty-results=true flush-timeout=0 ! fakesink"
        );
        let (out, log) = gst_launch(&line);
        assert!(log.contains("location ="), "the log is on: {log}");
        for text in [out, log] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
    let element = gst::ElementFactory::make("trtpublish").build().unwrap();
    element.connect_notify(Some("location"), |element, _| {
        assert_eq!(element.property::<String>("location"), "redis://***@host/key");
    });
    element.set_property("location", "redis://me:hunter2@host/key");
    element.set_property("password", "hunter2");
    for spec in element.list_properties().iter().filter(|spec| spec.flags().contains(gst::glib::ParamFlags::READABLE)) {
        let value = format!("{:?}", element.property_value(spec.name()));
        assert!(!value.contains("hunter2"), "{value}");
    }
}

/// What reads all properties and sets them, such as a preset, keeps the password; another element says what it lacks.
#[test]
#[cfg(feature = "redis")]
fn a_location_that_was_read_can_be_set() {
    crate::common::init();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for location in [format!("redis://me:hunter2@127.0.0.1:{port}/key"), format!("redis://me@127.0.0.1:{port}/key")] {
        let line =
            "videotestsrc num-buffers=1 ! trtpublish name=publish add-empty-results=true flush-timeout=0 ! fakesink";
        let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let element = pipeline.by_name("publish").unwrap();
        element.set_property("location", &location);
        if !location.contains("hunter2") {
            element.set_property("password", "hunter2");
        }
        let read = element.property::<String>("location");
        assert_eq!(read, format!("redis://***@127.0.0.1:{port}/key"));
        element.set_property("location", &read);
        pipeline.set_state(gst::State::Playing).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = Vec::new();
        until("the login", || {
            let mut bytes = [0; 512];
            let count = std::io::Read::read(&mut stream, &mut bytes).unwrap();
            said.extend_from_slice(&bytes[..count]);
            said.windows(7).any(|part| part == b"hunter2")
        });
        drop(stream);
        pipeline.set_state(gst::State::Null).unwrap();
        let outcome = launch(&format!("videotestsrc num-buffers=1 ! trtpublish location={read} ! fakesink"));
        let error = outcome.error_text();
        assert!(error.contains("***") && error.contains("password-file"), "{error}");
    }
}

// ------------------------------------------------------------------------------------------- what waits

#[test]
fn frames_go_on_without_a_reader() {
    let path = scratch("publish-nobody").join("socket");
    for (drop, kept) in [("oldest", 4..=4), ("newest", 4..=4)] {
        let mut feed =
            Feed::new(&format!("location=unix:{} max-queued=4 drop={drop} flush-timeout=1000000", path.display()));
        (0..20).for_each(|_| feed.objects(&[1]));
        let [queued, dropped] = ["queued", "dropped"].map(|name| feed.count(name));
        assert!(kept.contains(&queued) && queued + dropped == 20, "{drop}: {queued} {dropped}");
        // That there is no connection may be told before the test listens.
        let told: Vec<_> =
            feed.line.said().into_iter().filter(|text| text.starts_with("Messages are dropped: 4 wait")).collect();
        assert_eq!(told.len(), 1, "it is told once");
        // With the reader there, what waits arrives.
        let listener = UnixListener::bind(&path).unwrap();
        let reader = BufReader::new(listener.accept().unwrap().0);
        let numbers: Vec<u64> = reader
            .lines()
            .take(4)
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["frame"].as_u64().unwrap())
            .collect();
        // The batch that was on its way when it became full stays.
        assert!(numbers.is_sorted() && numbers.len() == 4, "{numbers:?}");
        assert_eq!(numbers, if drop == "newest" { [0, 1, 2, 3] } else { [16, 17, 18, 19] });
        until("all is sent", || feed.count("queued") == 0);
        assert_eq!((feed.count("published"), feed.count("dropped")), (4, 16));
        std::mem::drop(feed);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn with_block_frames_wait_for_room_but_not_for_ever() {
    let path = scratch("publish-block").join("socket");
    let line = format!(
        "videotestsrc num-buffers=50 ! video/x-raw,width=64,height=64 ! trtpublish name=publish location=unix:{} max-queued=2 drop=block \
         add-empty-results=true ! fakesink sync=false",
        path.display()
    );
    crate::common::init();
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let publish = pipeline.by_name("publish").unwrap();
    let count = |name: &str| publish.property::<gst::Structure>("stats").get::<u64>(name).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    until("the queue is full", || count("queued") == 2);
    // The change to NULL does not wait for the reader.
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(count("published"), 0);
    let listener = UnixListener::bind(&path).unwrap();
    let reading = std::thread::spawn(move || BufReader::new(listener.accept().unwrap().0).lines().count());
    crate::common::run(&pipeline).expect_success();
    assert_eq!(reading.join().unwrap(), 50, "nothing is dropped");
    assert_eq!((count("published"), count("dropped")), (50, 0));
}

/// While the stream is flushed, no frame waits; behind it they do again.
#[test]
fn with_block_frames_wait_for_room_again_after_a_flush() {
    let path = scratch("publish-block-flush").join("socket");
    let mut feed = Feed::new(&format!("location=unix:{} max-queued=2 drop=block", path.display()));
    feed.line.push_event(gst::event::FlushStart::new());
    feed.line.push_event(gst::event::FlushStop::new(true));
    feed.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    let element = feed.element();
    let reading = std::thread::spawn(move || {
        let queued = || element.property::<gst::Structure>("stats").get::<u64>("queued").unwrap();
        until("the queue is full", || queued() == 2);
        let listener = UnixListener::bind(&path).unwrap();
        BufReader::new(listener.accept().unwrap().0).lines().take(20).count()
    });
    (0..20).for_each(|_| feed.objects(&[1]));
    until("all are sent", || feed.count("queued") == 0);
    assert_eq!((feed.count("published"), feed.count("dropped")), (20, 0));
    assert_eq!(reading.join().unwrap(), 20);
}

#[test]
fn the_end_waits_for_what_is_queued_and_not_longer() {
    let path = scratch("publish-flush").join("socket");
    let mut feed = Feed::new(&format!("location=unix:{} flush-timeout=20000000", path.display()));
    (0..5).for_each(|_| feed.objects(&[1]));
    feed.end();
    let mut said = Vec::new();
    until("it is told", || {
        said.extend(feed.line.said());
        said.iter().any(|text| text.starts_with("5 messages are not sent at the end of the stream, to unix:"))
    });
    let element = feed.element();
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    drop(feed);
    let told = bus.pop_filtered(&[gst::MessageType::Warning]).expect("a warning");
    let gst::MessageView::Warning(told) = told.view() else { unreachable!("filtered") };
    assert!(told.error().message().starts_with("5 of 5 messages were not published to unix:"), "{told:?}");
}

// ------------------------------------------------------------------------------------------- errors

#[test]
fn what_makes_no_sense_ends_the_start_with_an_error() {
    let folder = scratch("publish-errors");
    let path = folder.join("out.jsonl").display().to_string();
    let missing = folder.join("none/out.jsonl").display().to_string();
    for (properties, parts) in [
        (String::new(), vec!["location is not set"]),
        (format!("location={missing}"), vec!["Cannot write to", "No such file"]),
        ("location=coap://host/x".into(), vec!["nothing is known about coap://", "mqtt://"]),
        (format!("location={path} tags=[1]"), vec!["tags is not a JSON object", "tags={"]),
        (
            format!(r#"location={path} tags="{{\"floor\":1,\"floor\":2}}""#),
            vec!["tags cannot be used: it has the key \"floor\" twice", "Write it once"],
        ),
        (format!("location={path} format=coco per=event"), vec!["Only format=gst-trt", "per=frame"]),
        (format!("location={path} cert-file=/x"), vec!["cert-file and key-file belong together"]),
        (format!("location={path} ca-file=/x"), vec!["is not encrypted"]),
        (format!("location={path} password-file=/x"), vec!["has no password"]),
    ] {
        let outcome = launch(&format!("videotestsrc num-buffers=1 ! trtpublish {properties} ! fakesink"));
        let text = outcome.error_text();
        assert!(parts.iter().all(|part| text.contains(part)), "{properties}: {text}");
    }
}

#[test]
fn frames_may_be_in_any_memory() {
    crate::common::init();
    let path = scratch("publish-memory").join("out.jsonl");
    let mut harness = gst_check::Harness::new_parse(&format!("trtpublish location={}", path.display()));
    harness.set_src_caps_str("video/x-raw(memory:Elsewhere),format=DMA_DRM,width=640,height=480");
    let mut buffer = frame(&[1]);
    buffer.get_mut().unwrap().append_memory(gst::Memory::with_size(16));
    let address = buffer.as_ptr();
    harness.push(buffer).unwrap();
    assert_eq!(harness.pull().unwrap().as_ptr(), address, "the buffer itself goes on");
    assert!(harness.push_event(gst::event::Eos::new()));
    assert_eq!(lines(&path).len(), 1);
}

#[test]
fn caps_without_a_size_are_refused() {
    crate::common::init();
    let path = scratch("publish-caps").join("out.jsonl");
    let (mut harness, bus) = crate::common::elements::harness(&format!("trtpublish location={}", path.display()));
    harness.set_src_caps_str("video/x-raw,format=NV12");
    assert!(harness.push(gst::Buffer::new()).is_err());
    let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
    assert!(error.error().to_string().contains("no width and height"), "{error:?}");
}
