// SPDX-License-Identifier: MPL-2.0
//! Detections as GstAnalyticsODMtd, which GStreamer has since 1.24.
#![cfg(feature = "v1_24")]

use crate::common::boxes::{GREY, Line, SIDE, found, grey, model};
use crate::common::scratch;
use gst::prelude::*;
use gst_analytics::prelude::*;
use gst_analytics::{AnalyticsODMtd, AnalyticsRelationMeta};

const ROWS: [[f32; 6]; 2] = [[20.4, 24.0, 43.5, 40.0, 0.9, 0.0], [4.0, 4.0, 12.0, 16.0, 0.5, 2.0]];

/// Label, left, top, width, height and confidence of each object, as the relation metas say.
fn objects(buffer: &gst::BufferRef) -> Vec<(String, [i32; 4], f32)> {
    let mut objects = Vec::new();
    for relations in buffer.iter_meta::<AnalyticsRelationMeta>() {
        for object in relations.iter::<AnalyticsODMtd>() {
            let place = object.location().unwrap();
            let label = object.obj_type().unwrap().as_str().to_string();
            objects.push((label, [place.x, place.y, place.w, place.h], place.loc_conf_lvl));
        }
    }
    objects
}

#[test]
fn objects_become_analytics_metas() {
    let mut line = Line::new(&model(&scratch("analytics"), &ROWS), "");
    let buffer = line.push(grey(SIDE * SIDE * 3));
    assert_eq!(objects(&buffer), [("a".into(), [20, 24, 24, 16], 0.9), ("c".into(), [4, 4, 8, 12], 0.5)]);
    // And as before.
    let regions: Vec<_> = found(&buffer).into_iter().map(|found| (found.label, found.rect)).collect();
    assert_eq!(regions, [("a".into(), (20, 24, 24, 16)), ("c".into(), (4, 4, 8, 12))]);

    line.nms().set_property("score-threshold", 1.0f32);
    let buffer = line.push(grey(SIDE * SIDE * 3));
    assert_eq!(objects(&buffer), []);
    assert_eq!(buffer.iter_meta::<AnalyticsRelationMeta>().count(), 1, "nothing found is also said");
}

/// A box that is rotated, as GStreamer has it from 1.26 on.
#[cfg(feature = "v1_26")]
#[test]
fn rotated_boxes_are_oriented() {
    use crate::common::onnx::{F32, Graph};

    // Its sides change places in the range of angles that results have.
    let angle = 0.5 + std::f32::consts::FRAC_PI_2;
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 7], &[32.0, 30.0, 8.0, 24.0, 0.9, 0.0, angle])
        .metadata("task", "obb")
        .save(&scratch("analytics-oriented").join("model.onnx"));
    let elements = format!("trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false layout=obb-end-to-end");
    let buffer = Line::parse(&elements).push(grey(SIDE * SIDE * 3));
    let relations = buffer.meta::<AnalyticsRelationMeta>().unwrap();
    let place = relations.iter::<AnalyticsODMtd>().next().unwrap().oriented_location().unwrap();
    assert_eq!([place.x, place.y, place.w, place.h], [20, 26, 24, 8]);
    assert!((place.r - 0.5).abs() < 1e-5, "{}", place.r);
    // Read back, region and object are one: both are drawn as one box.
    let style = "draw-labels=false line-width=2";
    let bytes = |elements: &str| {
        let buffer = Line::parse(elements).push(grey(SIDE * SIDE * 3));
        buffer.map_readable().unwrap().to_vec()
    };
    let fused = bytes(&format!("{elements} draw=true {style}"));
    assert!(fused == bytes(&format!("{elements} ! trtoverlay {style}")));
}

#[test]
fn two_models_share_one_relation_meta() {
    let model = model(&scratch("analytics-two"), &ROWS);
    let elements = format!("trtpreprocess ! trtinfer model-file={model} ! trtnms");
    let buffer = Line::parse(&format!("{elements} classes=a ! {elements} classes=c")).push(grey(SIDE * SIDE * 3));
    assert_eq!(buffer.iter_meta::<AnalyticsRelationMeta>().count(), 1);
    assert_eq!(objects(&buffer).into_iter().map(|(label, ..)| label).collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn gstreamers_overlay_draws_them() {
    crate::common::init();
    if gst::ElementFactory::find("objectdetectionoverlay").is_none() {
        println!("not run here: there is no objectdetectionoverlay");
        return;
    }
    let model = model(&scratch("analytics-overlay"), &ROWS);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! objectdetectionoverlay draw-labels=false"
    ));
    line.caps("BGRA", SIDE, SIDE);
    let mut changed = |score: f32| -> Vec<(u32, u32)> {
        line.nms().set_property("score-threshold", score);
        let buffer = line.push(grey(SIDE * SIDE * 4));
        let bytes = buffer.map_readable().unwrap();
        let pixels = bytes.chunks(4).zip(0..).filter(|(pixel, _)| *pixel != [GREY; 4]);
        pixels.map(|(_, place)| (place % SIDE, place / SIDE)).collect()
    };
    let pixels = changed(0.7);
    let near = |&(x, y): &(u32, u32)| (17..48).contains(&x) && (21..44).contains(&y);
    assert!(pixels.len() > 40 && pixels.iter().all(near), "around the only box: {pixels:?}");
    assert_eq!(changed(1.0), [], "nothing found clears what was shown");
}

/// An object as GStreamer's own elements attach it, with a tracking where it has one.
fn add(buffer: &mut gst::BufferRef, label: &str, [x, y, w, h]: [i32; 4], track: Option<u64>) {
    if buffer.meta::<AnalyticsRelationMeta>().is_none() {
        AnalyticsRelationMeta::add(buffer);
    }
    let mut meta = buffer.meta_mut::<AnalyticsRelationMeta>().unwrap();
    let object = meta.add_od_mtd(gst::glib::Quark::from_str(label), x, y, w, h, 0.5).unwrap().id();
    if let Some(track) = track {
        let tracking = meta.add_tracking_mtd(track, gst::ClockTime::ZERO).unwrap().id();
        meta.set_relation(gst_analytics::RelTypes::RELATE_TO, object, tracking).unwrap();
    }
}

#[test]
fn objects_of_other_elements_are_read_once_each() {
    use gst_video::VideoRegionOfInterestMeta;
    crate::common::init();
    let mut buffer = grey(SIDE * SIDE);
    let buffer = buffer.get_mut().unwrap();
    VideoRegionOfInterestMeta::add(buffer, "cat", (4, 6, 20, 12));
    add(buffer, "cat", [4, 6, 20, 12], Some(12)); // that one
    add(buffer, "dog", [4, 6, 20, 12], None);
    add(buffer, "cat", [30, 6, 20, 12], Some(13));
    add(buffer, "", [i32::MAX, i32::MIN, -1, i32::MAX], Some(u64::MAX));
    let read = gsttrt::gst::meta::read::annotations(buffer, (SIDE, SIDE));
    let said: Vec<_> = read.iter().map(|read| (&*read.label, read.bbox.x1, read.confidence, read.track_id)).collect();
    assert_eq!(
        said,
        [
            ("cat", 4.0, Some(0.5), Some(12)),
            ("dog", 4.0, Some(0.5), None),
            ("cat", 30.0, Some(0.5), Some(13)),
            ("", i32::MAX as f32, Some(0.5), Some(u64::MAX)),
        ]
    );
}

/// Id, and the times when the object was seen first and last.
type Tracking = (u64, u64, u64);

/// Label, left edge, and the number and times of the tracking, of each object.
fn tracked(buffer: &gst::BufferRef) -> Vec<(String, i32, Option<Tracking>)> {
    use gst_analytics::{AnalyticsTrackingMtd, RelTypes};
    let relations = buffer.meta::<AnalyticsRelationMeta>().unwrap();
    let mut objects = Vec::new();
    for object in relations.iter::<AnalyticsODMtd>() {
        let mut trackings = relations.iter_direct_related::<AnalyticsTrackingMtd>(object.id(), RelTypes::RELATE_TO);
        let tracking = trackings.next().map(|tracking| {
            let (id, first, last, is_lost) = tracking.info();
            assert!(!is_lost);
            (id, first.nseconds(), last.nseconds())
        });
        objects.push((object.obj_type().unwrap().as_str().to_string(), object.location().unwrap().x, tracking));
    }
    objects
}

#[test]
fn trttrack_relates_objects_to_trackings() {
    crate::common::init();
    const FRAME: u64 = 33_333_333;
    // Objects of others, and those of trtnms with those that it held.
    let mut line = Line::parse("trttrack");
    for at in 0..3u64 {
        let mut buffer = grey(SIDE * SIDE * 3);
        let writable = buffer.get_mut().unwrap();
        writable.set_pts(gst::ClockTime::from_nseconds(at * FRAME));
        add(writable, "cat", [4 + at as i32, 6, 20, 12], None);
        let wanted = ("cat".to_string(), 4 + at as i32, None);
        // The confidence of these is that of what begins no track.
        assert_eq!(tracked(&line.push(buffer)), [wanted]);
    }
    let model = model(&scratch("analytics-track"), &ROWS);
    let elements = format!("trtpreprocess ! trtinfer model-file={model} interval=2 ! trtnms draw=false");
    let mut line = Line::parse(&format!("{elements} ! trttrack track-thresh=0.4 det-thresh=0.4"));
    for at in 0..4u64 {
        let mut buffer = grey(SIDE * SIDE * 3);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(at * FRAME));
        let buffer = line.push(buffer);
        assert_eq!(buffer.iter_meta::<AnalyticsRelationMeta>().count(), 1);
        let seen = at / 2 * 2 * FRAME;
        let wanted = [("a".to_string(), 20, Some((1, 0, seen))), ("c".to_string(), 4, Some((2, 0, seen)))];
        assert_eq!(tracked(&buffer), wanted, "{at}");
    }
}

/// Also behind a seek, and at any rate.
#[test]
fn times_of_trackings_are_running_times() {
    const FRAME: u64 = 40_000_000;
    let model = model(&scratch("analytics-rates"), &ROWS);
    let elements = format!("trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false");
    let [start, stop] = [50_000_000_000, 50_000_000_000 + 4 * FRAME].map(gst::ClockTime::from_nseconds);
    for (rate, frame) in [(1.0, FRAME), (-1.0, FRAME), (2.0, FRAME / 2)] {
        let mut line = Line::parse(&format!("{elements} ! trttrack track-thresh=0.4 det-thresh=0.4"));
        let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
        segment.set_rate(rate);
        segment.set_start(start);
        segment.set_time(start);
        segment.set_stop(stop);
        line.push_event(gst::event::Segment::new(&segment));
        for at in 0..4u64 {
            let passed = gst::ClockTime::from_nseconds(at * FRAME);
            let mut buffer = grey(SIDE * SIDE * 3);
            buffer.get_mut().unwrap().set_pts(if rate < 0.0 { stop - passed } else { start + passed });
            let seen = at * frame;
            let wanted = [("a".to_string(), 20, Some((1, 0, seen))), ("c".to_string(), 4, Some((2, 0, seen)))];
            assert_eq!(tracked(&line.push(buffer)), wanted, "{rate}: {at}");
        }
    }
}
