// SPDX-License-Identifier: MPL-2.0
//! `motion-gate` of trtpreprocess: frames without motion are not inferred, and have the last objects; no motion is missed.

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;

use crate::common::boxes::{Line, SIDE, found, model};
use crate::common::scratch;
use crate::common::wait::{LIMIT, wait_until};

const ROW: [[f32; 6]; 1] = [[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]];

struct Scene {
    line: Line,
    frames: u64,
}

impl Scene {
    fn new(test: &str, preprocess: &str, infer: &str, more: &str) -> Self {
        let model = model(&scratch(&format!("motion-{test}")), &ROW);
        let mut line = Line::parse(&format!(
            "trtpreprocess motion-gate=0.001 {preprocess} ! trtinfer model-file={model} {infer} ! trtnms draw=false {more}"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        Scene { line, frames: 0 }
    }

    /// A frame of one brightness, where a square of another one may be.
    fn push(&mut self, square: Option<u32>) -> gst::Buffer {
        let mut bytes = vec![90u8; (SIDE * SIDE) as usize];
        if let Some(left) = square {
            (20..36).for_each(|y| bytes[(y * SIDE + left) as usize..][..16].fill(220));
        }
        let mut buffer = gst::Buffer::from_mut_slice(bytes);
        buffer.get_mut().unwrap().set_pts(self.frames * 40 * gst::ClockTime::MSECOND);
        self.frames += 1;
        self.line.push(buffer)
    }

    fn count(&mut self, element: &str, name: &str) -> u64 {
        self.line.element(element).property::<gst::Structure>("stats").get(name).unwrap()
    }

    fn inferred(&mut self) -> u64 {
        self.count("trtinfer", "inferred")
    }
}

/// Whether the objects of a frame are marked as held, and as still.
fn marks(buffer: &gst::BufferRef) -> (bool, bool) {
    let region = buffer.meta::<VideoRegionOfInterestMeta>().expect("an object");
    let params = region.param("detection").unwrap();
    let is = |field| params.get::<bool>(field) == Ok(true);
    (is("held"), is("still"))
}

#[test]
fn still_frames_keep_the_objects_of_the_first() {
    let mut scene = Scene::new("still", "", "", "");
    let first = scene.push(None);
    assert_eq!((found(&first).len(), marks(&first)), (1, (false, false)));
    for _ in 0..100 {
        let frame = scene.push(None);
        assert_eq!((found(&frame), marks(&frame)), (found(&first), (true, true)));
    }
    assert_eq!((scene.inferred(), scene.count("trtinfer", "skipped")), (1, 100));
    let counts = ["frames", "still"].map(|name| scene.count("trtpreprocess", name));
    assert_eq!(counts, [101, 100]);
    assert_eq!(scene.line.said(), [""; 0]);
}

#[test]
fn the_first_frame_with_motion_is_inferred() {
    for interval in ["", "interval=5"] {
        let mut scene = Scene::new("first", "", interval, "");
        (0..10).for_each(|_| drop(scene.push(None)));
        assert_eq!(scene.inferred(), 1);
        let frame = scene.push(Some(10));
        assert_eq!((scene.inferred(), marks(&frame)), (2, (false, false)), "{interval}");
    }
}

#[test]
fn the_threshold_and_the_gate_are_settings() {
    for (preprocess, expected) in [
        ("", 2),
        ("motion-threshold=200", 1),
        ("motion-threshold=120", 2),
        ("motion-gate=0.5", 1),
        ("motion-gate=0.0", 6),
    ] {
        let mut scene = Scene::new("settings", preprocess, "", "");
        (0..5).for_each(|_| drop(scene.push(None)));
        scene.push(Some(10));
        assert_eq!(scene.inferred(), expected, "{preprocess}");
    }
    let mut scene = Scene::new("refresh", "motion-refresh=4", "", "");
    (0..11).for_each(|_| drop(scene.push(None)));
    assert_eq!(scene.inferred(), 3, "the frames 0, 5 and 10");
}

#[test]
fn what_follows_a_flush_or_other_caps_is_inferred() {
    let mut scene = Scene::new("flush", "", "", "");
    (0..3).for_each(|_| drop(scene.push(None)));
    assert_eq!(scene.inferred(), 1);
    scene.line.push_event(gst::event::FlushStart::new());
    scene.line.push_event(gst::event::FlushStop::new(true));
    scene.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    let frame = scene.push(None);
    assert_eq!((scene.inferred(), marks(&frame)), (2, (false, false)));
    scene.push(None);
    assert_eq!(scene.inferred(), 2);
    scene.line.caps("GRAY8", 128, 96);
    let frame = scene.line.push(gst::Buffer::from_mut_slice(vec![90u8; 128 * 96]));
    assert_eq!((scene.inferred(), marks(&frame)), (3, (false, false)));
}

#[test]
fn another_model_sees_the_next_frame() {
    let mut scene = Scene::new("model", "motion-refresh=0", "", "");
    (0..3).for_each(|_| drop(scene.push(None)));
    let other = model(&scratch("motion-other"), &[[20.0, 20.0, 40.0, 40.0, 0.8, 1.0]]);
    scene.line.element("trtinfer").set_property("model-file", &other);
    // It is loaded in the background; the frame after that may still have the former objects.
    wait_until("objects of the other model", LIMIT, || found(&scene.push(None))[0].label == "b");
    let inferred = scene.inferred();
    scene.push(None);
    assert_eq!(scene.inferred(), inferred);
}

#[test]
fn objects_keep_their_ids_and_places_while_nothing_moves() {
    let mut scene = Scene::new("track", "", "", "! trttrack");
    let id = |frame: &gst::BufferRef| {
        let region = frame.meta::<VideoRegionOfInterestMeta>()?;
        Some((region.param("object_id")?.get::<i32>("id").ok()?, region.rect()))
    };
    let places: Vec<_> = (0..200).map(|_| id(&scene.push(None))).collect();
    let known = places.iter().flatten().next().copied().expect("an id");
    assert!(places[5..].iter().all(|place| *place == Some(known)), "{places:?}");
    assert_eq!(scene.inferred(), 1);
}

#[test]
fn slices_have_a_gate_and_objects_have_none() {
    let mut scene = Scene::new("slices", "slices=2x1", "", "");
    (0..5).for_each(|_| drop(scene.push(None)));
    assert_eq!((scene.inferred(), scene.count("trtpreprocess", "still")), (1, 4));
    let mut scene = Scene::new("objects", "regions=objects", "", "");
    scene.push(None);
    let said = scene.line.said().join(" ");
    assert!(said.contains("motion-gate") && said.contains("no effect"), "{said}");
}
