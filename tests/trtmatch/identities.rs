// SPDX-License-Identifier: MPL-2.0
//! One id for the same object on several cameras: elements of a process share a table by its name.

use super::{ADA, BETWEEN, BOB, STRANGER, add, names, people};
use crate::common::boxes::{Line, SIDE, embedder, grey, model};
use crate::common::{launch, scratch};
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt::gst::meta::unseen;

/// An object: its id of the camera's tracker, and its vector; an empty one, where no model has looked.
type TrackedObject<'a> = (i32, &'a [f32]);

/// Pushes frames of a camera.
struct Camera {
    line: Line,
    /// The model that gives the vectors.
    model: &'static str,
}

impl Camera {
    fn new(table: &str, name: &str, properties: &str) -> Self {
        let line = format!("trtmatch identities={table} camera={name} identity-looks=1 {properties}");
        let mut line = Line::parse(&line);
        line.caps("NV12", 640, 480);
        Camera { line, model: "reid" }
    }

    fn pair(table: &str, properties: &str) -> [Self; 2] {
        ["gate", "hall"].map(|name| Camera::new(table, name, properties))
    }

    /// A frame at that time, in milliseconds, without a picture.
    fn push(&mut self, time: u64, objects: &[TrackedObject]) -> gst::Buffer {
        let mut buffer = timed(time);
        let content = buffer.get_mut().unwrap();
        for &(id, vector) in objects {
            let mut region = VideoRegionOfInterestMeta::add(content, "person", (0, 0, 40, 80));
            region.add_param(gst::Structure::builder("object_id").field("id", id).build());
            if !vector.is_empty() {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                let param = gst::Structure::builder("vector")
                    .field("dims", vector.len() as u32)
                    .field("values", gst::Buffer::from_slice(bytes))
                    .field("model", self.model);
                region.add_param(param.build());
            }
        }
        self.line.push(buffer)
    }

    /// The id of each object; 0 for none.
    fn ids(&mut self, time: u64, objects: &[TrackedObject]) -> Vec<u64> {
        ids(&self.push(time, objects))
    }

    fn id(&mut self, time: u64, track: i32, vector: &[f32]) -> u64 {
        self.ids(time, &[(track, vector)])[0]
    }

    /// Nothing is in sight.
    fn empty(&mut self, time: u64) {
        self.push(time, &[]);
    }

    /// No model has looked.
    fn skipped(&mut self, time: u64) {
        let mut buffer = timed(time);
        unseen::register();
        unseen::mark(buffer.get_mut().unwrap());
        self.line.push(buffer);
    }

    /// What was told since the last call: the track, its id and the one before.
    fn told(&self) -> Vec<(u64, Option<u64>, Option<u64>)> {
        let read = |message: gst::Structure| {
            assert_eq!((message.name().as_str(), message.get::<&str>("label")), ("trt-identity", Ok("person")));
            (message.get("track-id").unwrap(), message.get("identity").ok(), message.get("before").ok())
        };
        self.line.messages().into_iter().map(read).collect()
    }
}

fn timed(time: u64) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(time));
    buffer
}

fn ids(buffer: &gst::BufferRef) -> Vec<u64> {
    let id = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        meta.param("identity").map(|param| param.get::<u64>("id").unwrap()).unwrap_or_default()
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(id).collect()
}

fn count(camera: &mut Camera, field: &str) -> u64 {
    camera.line.element("trtmatch").property::<gst::Structure>("stats").get(field).unwrap()
}

#[test]
fn an_object_has_one_id_on_all_cameras() {
    let [mut gate, mut hall] = Camera::pair("match-one-id", "");
    assert_eq!(gate.ids(0, &[(1, &ADA), (2, &BOB)]), [1, 2]);
    gate.empty(40);
    let frame = hall.push(1000, &[(7, &BOB), (8, &STRANGER), (9, &[])]);
    assert_eq!(ids(&frame), [2, 3, 0]);
    let region = frame.iter_meta::<VideoRegionOfInterestMeta>().next().unwrap();
    assert_eq!(region.param("identity").unwrap().get::<&str>("identities"), Ok("match-one-id"));
    let messages = hall.line.messages();
    let [bob, stranger] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((bob.get::<&str>("camera"), bob.get::<u64>("track-id")), (Ok("hall"), Ok(7)));
    assert!(bob.get::<f64>("similarity").is_ok_and(|similarity| similarity > 0.999), "{bob}");
    assert!(stranger.get::<u64>("identity") == Ok(3) && !stranger.has_field("similarity"), "{stranger}");
    // It stays, whatever the next frame looks like, and where nobody looks.
    assert_eq!(hall.ids(1040, &[(7, &ADA), (8, &[])]), [2, 3]);
    assert_eq!((gate.told().len(), hall.told()), (2, vec![]));
    assert_eq!((count(&mut hall, "objects"), count(&mut hall, "identities")), (4, 3));
    assert_eq!(count(&mut gate, "identities-forgotten"), 0);
    assert_eq!((gate.line.said(), hall.line.said()), (vec![], vec![]));
    // Another table knows nobody.
    assert_eq!(Camera::new("match-one-id-other", "yard", "").id(2000, 1, &STRANGER), 1);
}

#[test]
fn each_property_counts() {
    for (number, (properties, time, vector, wanted)) in [
        ("", 1000, &BETWEEN[..], 2),
        ("identity-margin=0.3", 1000, &BETWEEN, 3),
        ("identity-threshold=0.81", 1000, &BETWEEN, 3),
        ("identity-threshold=0.79", 1000, &BETWEEN, 2),
        ("identity-max-age=900000000", 1000, &BOB, 3),
        ("identity-max-age=990000000", 1000, &BOB, 2),
        ("max-identities=1", 1000, &BOB, 2),
        ("camera-links=gate,hall:2-5", 1000, &BOB, 3),
        ("camera-links=gate,hall:2-5", 3000, &BOB, 2),
        ("camera-links=gate,hall:2-5", 6000, &BOB, 3),
        ("identity-classes=car", 1000, &BOB, 0),
        ("identity-classes=car,person", 1000, &BOB, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let [mut gate, mut hall] = Camera::pair(&format!("match-each-{number}"), properties);
        gate.push(0, &[(1, &ADA), (2, &[])]);
        gate.push(20, &[(1, &[]), (2, &BOB)]);
        gate.empty(40);
        assert_eq!(hall.id(time, 9, vector), wanted, "{properties} {time}");
    }
    let mut quiet = Camera::new("match-quiet", "gate", "post-messages=false");
    assert_eq!((quiet.id(0, 1, &ADA), quiet.told()), (1, vec![]));
    // While it plays, it belongs to others too.
    let element = quiet.line.element("trtmatch");
    element.set_property("identity-threshold", 0.9f32);
    assert_eq!(element.property::<f32>("identity-threshold"), 0.7);
}

#[test]
fn one_object_is_at_one_place() {
    let [mut gate, mut hall] = Camera::pair("match-at-once", "");
    assert_eq!(gate.id(0, 1, &ADA), 1);
    assert_eq!(hall.id(0, 1, &ADA), 2);
    let [mut gate, mut hall] = Camera::pair("match-overlap", "camera-links=gate,hall:overlap");
    assert_eq!(gate.id(0, 1, &ADA), 1);
    assert_eq!(hall.ids(0, &[(1, &ADA), (2, &ADA)]), [1, 2]);
    // One that comes back while another one is it.
    let [mut gate, mut hall] = Camera::pair("match-back", "");
    assert_eq!(gate.id(0, 1, &ADA), 1);
    gate.empty(40);
    assert_eq!(hall.id(1000, 5, &ADA), 1);
    assert_eq!(gate.id(1020, 1, &[]), 2);
    assert_eq!(gate.told(), [(1, Some(1), None), (1, Some(2), Some(1))]);
    assert_eq!(hall.id(1040, 5, &[]), 1);
}

/// As with hold-detections=false of trtnms, where trtinfer skips frames.
#[test]
fn who_is_in_a_skipped_frame_is_not_known() {
    let [mut gate, mut hall] = Camera::pair("match-skipped", "");
    assert_eq!(gate.id(0, 1, &ADA), 1);
    gate.skipped(40);
    assert_eq!(hall.id(50, 5, &ADA), 2, "the other one may still be at the gate");
    assert_eq!(gate.id(80, 1, &[]), 1);
}

#[test]
fn another_part_of_a_stream_has_other_tracks() {
    let mut gate = Camera::new("match-parts", "gate", "");
    assert_eq!(gate.id(0, 1, &ADA), 1);
    gate.line.push_event(gst::event::FlushStart::new());
    gate.line.push_event(gst::event::FlushStop::new(true));
    gate.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    assert_eq!(gate.ids(5000, &[(1, &BOB), (2, &ADA)]), [2, 1]);
    // Times that go back.
    assert_eq!(gate.ids(100, &[(1, &ADA), (2, &BOB)]), [1, 2]);
}

#[test]
fn mistakes_are_told() {
    let _gate = Camera::new("match-mistakes", "gate", "");
    let line = |set: &str| launch(&format!("videotestsrc num-buffers=1 ! trtmatch {set} ! fakesink"));
    let long = format!("camera={}", "n".repeat(300));
    for (set, part) in [
        ("match-mistakes identity-looks=2", "“match-mistakes” are in use with identity-looks=1, not 2"),
        ("match-mistakes identity-looks=1 camera-links=a,b:5-", "with camera-links=, not a,b:5-"),
        ("match-links camera-links=a", "The link of the cameras a makes no sense: the number of cameras is 1"),
        ("match-links camera-links=a,b:x", "camera-links: “a,b:x” cannot be read: “x” is no time like 5-120"),
        (&format!("match-links {long}"), "camera has 300 bytes, and 256 is the most"),
    ] {
        line(&format!("identities={set}")).expect_error("ResourceError::Settings", &[part]);
    }
    line("camera=hall").expect_error("ResourceError::Settings", &["trtmatch has no gallery", "or identities"]);
    let gallery = people("match-without-identities");
    let without = line(&format!("gallery={} camera=hall identity-looks=9 camera-links=a,b", gallery.display()));
    without.expect_success();
    let [warning] = &without.warnings[..] else { panic!("{without:?}") };
    assert!(warning.contains("no effect of camera, camera-links, identity-looks"), "{warning}");
}

#[test]
fn vectors_that_cannot_be_compared_are_told() {
    let [mut gate, mut hall] = Camera::pair("match-models", "");
    hall.model = "clip";
    for number in 0..30 {
        assert_eq!((gate.id(number * 40, 1, &ADA), hall.id(number * 40, 1, &[0.0, 1.0])), (1, 0));
    }
    assert_eq!(gate.line.said(), [""; 0]);
    let said = hall.line.said();
    assert!(said.len() == 1 && said[0].contains("hall has vectors of clip (2 numbers)"), "{said:?}");
    assert!(said[0].contains("reid (3 numbers)"), "{said:?}");
    // Vectors that are none.
    let mut yard = Camera::new("match-models", "yard", "");
    for odd in [[f32::NAN; 3], [0.0; 3], [f32::INFINITY, 0.0, 0.0]] {
        assert_eq!(yard.id(2000, 1, &odd), 0);
    }
    // Ids of a foreign tracker, which has given one to two objects.
    assert_eq!(yard.ids(3000, &[(i32::MAX, &STRANGER), (i32::MAX, &BOB), (0, &BOB), (-1, &BOB)]), [2, 0, 3, 0]);
    assert_eq!(yard.line.said(), [""; 0]);
    let mut blind = Camera::new("match-models", "blind", "");
    (0..60).for_each(|number| assert_eq!(blind.id(number * 40, 1, &[]), 0));
    let said = blind.line.said();
    assert!(said.len() == 1 && said[0].contains("no object of the first 60 frames has a vector"), "{said:?}");
}

#[test]
fn objects_have_names_and_ids() {
    let gallery = people("match-names-and-ids");
    let mut gate = Camera::new("match-names-and-ids", "gate", &format!("gallery={}", gallery.display()));
    let frame = gate.push(0, &[(1, &ADA), (2, &STRANGER), (3, &[])]);
    assert_eq!((names(&frame), ids(&frame)), (vec!["Ada".into(), String::new(), String::new()], vec![1, 2, 0]));
    assert_eq!(count(&mut gate, "objects"), 2);
    let told = gate.line.messages();
    let kinds: Vec<&str> = told.iter().map(|message| message.name().as_str()).collect();
    assert_eq!(kinds, ["trt-match", "trt-identity", "trt-identity"]);
}

/// From pictures to lines of JSON, with two sources in one process.
#[test]
fn two_sources_share_ids() {
    let folder = scratch("match-two-sources");
    let first = model(&folder, &[[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [36.0, 0.0, 60.0, 20.0, 0.7, 1.0]]);
    let second = embedder(&folder, "n");
    let file = |camera: &str| folder.join(format!("{camera}.jsonl"));
    // Both objects are grey, so that each may be each.
    let line = |camera: &str| {
        Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trttrack ! trtpreprocess regions=objects \
             ! trtinfer model-file={second} ! trtnms ! trtmatch identities=match-sources camera={camera} identity-looks=2 \
             identity-margin=0 ! trtpublish location={}",
            file(camera).display()
        ))
    };
    let (mut gate, mut hall) = (line("gate"), line("hall"));
    let push = |line: &mut Line, number: u64| {
        let mut buffer = grey(SIDE * SIDE * 3);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(number * 40));
        ids(&line.push(buffer))
    };
    let found: Vec<Vec<u64>> = (0..6).map(|number| push(&mut gate, number)).collect();
    assert_eq!((&found[0], &found[5]), (&vec![0, 0], &vec![1, 2]), "{found:?}");
    assert_eq!(gate.said(), [""; 0]);
    drop(gate);
    let mut found = Vec::new();
    for number in 100..106 {
        found = push(&mut hall, number);
    }
    found.sort_unstable();
    assert_eq!((found, hall.said()), (vec![1, 2], vec![]));
    drop(hall);
    for camera in ["gate", "hall"] {
        let lines = std::fs::read_to_string(file(camera)).unwrap();
        let ids = [1, 2].map(|id| lines.matches(&format!("\"identity\":{id}")).count());
        assert!(ids[0] >= 4 && ids[0] == ids[1], "{ids:?}: {lines}");
    }
}

/// All that is told behind it: messages of a model that follows, events, and the object that is gone.
#[test]
fn all_that_is_told_of_an_object_has_its_name_and_id() {
    let folder = scratch("match-told");
    let first = model(&folder, &[[0.0, 0.0, 32.0, 32.0, 0.9, 0.0]]);
    let second = embedder(&folder, "n");
    let (gallery, zones, out) = (folder.join("g.jsonl"), folder.join("zones.json"), folder.join("out.jsonl"));
    add(&gallery, &[("grey", [1.0, 1.0, 1.0])]);
    let zone = r#"{"zones": [{"id": "all", "points": [[0, 0], [64, 0], [64, 64], [0, 64]]}]}"#;
    std::fs::write(&zones, zone).unwrap();
    let embed = format!("trtpreprocess regions=objects ! trtinfer model-file={second} ! trtnms");
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trttrack ! {embed} \
         ! trtmatch identities=match-told identity-looks=1 post-messages=false gallery={} ! {embed} post-messages=true \
         ! trtanalytics config-file={} ! trtpublish location={} per=object",
        gallery.display(),
        zones.display(),
        out.display()
    ));
    for number in 0..20 {
        let mut buffer = grey(SIDE * SIDE * 3);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(number * 40));
        line.push(buffer);
    }
    let messages = line.messages();
    let last = |name: &str| messages.iter().rfind(|message| message.name() == name).unwrap();
    let object = last("trt-detections").get::<gst::Array>("detections").unwrap()[0].get::<gst::Structure>().unwrap();
    for told in [&object, last("trt-event")] {
        assert_eq!(told.get::<u64>("identity"), Ok(1), "{told}");
        let name = told.get::<gst::Array>("attributes").unwrap()[0].get::<gst::Structure>().unwrap();
        assert_eq!(name.get::<&str>("label"), Ok("grey"), "{told}");
    }
    line.push_event(gst::event::Eos::new());
    assert_eq!(line.said(), [""; 0]);
    drop(line);
    let gone: serde_json::Value = serde_json::from_str(std::fs::read_to_string(&out).unwrap().trim()).unwrap();
    let gone = &gone["object"];
    assert_eq!((&gone["identity"], &gone["attributes"][0]["label"]), (&1.into(), &"grey".into()), "{gone}");
}
