// SPDX-License-Identifier: MPL-2.0
use std::sync::Arc;

use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::keypoints::{KeypointShape, ObjectKeypoints};
use gsttrt_core::image::masks::Mask;
use gsttrt_core::image::overlay::{Annotation, Attribute};
use serde_json::json;

use super::*;
use crate::record::{FrameTimes, ObjectRecord, TrackRecord, TracksInSight};

fn object(label: &'static str, edges: [f32; 4]) -> ObjectRecord {
    let [x1, y1, x2, y2] = edges;
    ObjectRecord {
        annotation: Annotation {
            bbox: BBox::new(x1, y1, x2, y2),
            class: Some(3),
            confidence: Some(0.75),
            of_frame: false,
            ..Annotation::of_frame(label.into())
        },
        rotation: None,
        region: None,
        parent: None,
        is_predicted: false,
        identity: None,
        vectors: Vec::new(),
    }
}

fn frame() -> FrameRecord {
    let mut car = object("car", [10.0, 20.5, 50.0, 60.0]);
    car.annotation.track_id = Some(7);
    car.region = Some(4);
    let mut plate = object("a|b", [20.0, 30.0, 30.0, 35.0]);
    (plate.region, plate.parent) = (Some(5), Some(4));
    let attribute = |label: &str| Attribute {
        label: label.into(),
        class: Some(1),
        confidence: Some(0.5),
        is_text: false,
        span: None,
    };
    plate.annotation.attributes = vec![attribute("red"), attribute("big")];
    FrameRecord {
        times: FrameTimes {
            stream_time: Some(40),
            wall_clock: Some(1_523_422_799_828_000_000),
            ntp_time: Some(1_523_422_798_000_000_000),
        },
        number: 2,
        size: (100, 200),
        objects: vec![car, plate],
        ..FrameRecord::default()
    }
}

fn source() -> PublishSource {
    let tags = json!({ "floor": 2 });
    PublishSource { id: Some("cam".into()), tags: tags.as_object().unwrap().clone() }
}

fn line(format: PublishFormat) -> Value {
    serde_json::from_str(&message(format, &Record::Frame(frame()), &source())).unwrap()
}

#[test]
fn gst_trt_has_all() {
    assert_eq!(
        line(PublishFormat::GstTrt),
        json!({
            "stream-time": 40, "frame": 2, "width": 100, "height": 200, "held": false,
            "detections": [
                { "label": "car", "class-id": 3, "confidence": 0.75, "x": 10.0, "y": 20.5, "w": 40.0, "h": 39.5, "track-id": 7 },
                { "label": "a|b", "class-id": 3, "confidence": 0.75, "x": 20.0, "y": 30.0, "w": 10.0, "h": 5.0, "parent": 0,
                  "attributes": [{ "label": "red", "class-id": 1, "confidence": 0.5 }, { "label": "big", "class-id": 1, "confidence": 0.5 }] },
            ],
            "wall-clock": "2018-04-11T04:59:59.828000Z", "ntp-time": "2018-04-11T04:59:58.000000Z",
            "source-id": "cam", "tags": { "floor": 2 },
        })
    );
    // What is not known is not there.
    let bare = FrameRecord { size: (4, 4), ..FrameRecord::default() };
    assert_eq!(
        message(PublishFormat::GstTrt, &Record::Frame(bare), &PublishSource::default()),
        r#"{"stream-time":null,"frame":0,"width":4,"height":4,"held":false,"detections":[]}"#
    );
}

#[test]
fn gst_trt_has_masks_keypoints_and_rotations() {
    let mut found = object("a", [0.0, 0.0, 4.0, 4.0]);
    found.rotation = Some((0.1234567, vec![0.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.00004]));
    let shape = KeypointShape { count: 2, dims: 2 };
    found.annotation.keypoints = Some(ObjectKeypoints { shape, values: vec![1.0, 2.0, 3.0, 4.00001].into() });
    let mask = Mask::of(Rect { left: 1, top: 1, right: 3, bottom: 2 }, &[true, false]);
    found.annotation.mask = Some(Arc::new(mask));
    found.is_predicted = true;
    let record = FrameRecord { size: (4, 3), objects: vec![found], ..FrameRecord::default() };
    let detection = &gst_trt::frame(&record, &PublishSource::default())["detections"][0];
    assert_eq!(detection["angle"], 0.123457);
    assert_eq!(detection["corners"], json!([0.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
    assert_eq!((&detection["keypoints"], &detection["keypoint-dims"]), (&json!([1.0, 2.0, 3.0, 4.0]), &json!(2)));
    assert_eq!(
        (&detection["mask-x"], &detection["mask-width"], &detection["mask-counts"]),
        (&json!(1), &json!(2), &json!("011"))
    );
    assert_eq!(detection["predicted"], true);

    let result = &coco::frame(&record, &PublishSource::default())[0];
    assert_eq!(result["keypoints"], json!([1.0, 2.0, 1.0, 3.0, 4.0, 1.0]));
    // Column by column of 4x3: the fifth pixel is set.
    assert_eq!(result["segmentation"], json!({ "size": [3, 4], "counts": "417" }));
}

#[test]
fn dlstreamer_is_that_of_gvametaconvert() {
    let mut record = frame();
    let event = |event: &str| {
        let event = json!({ "event": event, "name": "gate", "track-id": 7, "direction": "in" });
        event.as_object().unwrap().clone()
    };
    record.events = vec![event("crossed"), event("entered"), event("left")];
    let line = dlstreamer::frame(&record, &source());
    assert_eq!(
        line,
        json!({
            "resolution": { "width": 100, "height": 200 }, "source": "cam", "timestamp": 40, "tags": { "floor": 2 },
            "system_timestamp": "2018-04-11T04:59:59.828000Z", "rtp": { "sender_ntp_unix_timestamp_ns": 1_523_422_798_000_000_000u64 },
            "objects": [
                { "x": 10, "y": 21, "w": 40, "h": 40, "region_id": 4, "id": 7, "roi_type": "car",
                  "detection": { "bounding_box": { "x_min": 0.1, "y_min": 0.1025, "x_max": 0.5, "y_max": 0.3 },
                                 "confidence": 0.75, "label_id": 3, "label": "car" },
                  "zone_violations": ["gate"], "tripwire_crossings": [{ "tripwire_id": "gate", "direction": "in" }] },
                { "x": 20, "y": 30, "w": 10, "h": 5, "region_id": 5, "parent_id": 4, "roi_type": "a|b",
                  "detection": { "bounding_box": { "x_min": 0.2, "y_min": 0.15, "x_max": 0.3, "y_max": 0.175 },
                                 "confidence": 0.75, "label_id": 3, "label": "a|b" },
                  "classification": { "confidence": 0.5, "label_id": 1, "label": "red" },
                  "classification_2": { "confidence": 0.5, "label_id": 1, "label": "big" } },
            ],
        })
    );
}

#[test]
fn deepstream_minimal_is_that_of_nvmsgconv() {
    assert_eq!(
        line(PublishFormat::DeepStreamMinimal),
        json!({
            "version": "4.0", "id": "2", "@timestamp": "2018-04-11T04:59:58.000Z", "sensorId": "cam",
            "objects": ["7|10|20.5|50|60|car", "18446744073709551615|20|30|30|35|a/b|#|red|big|0.5"],
        })
    );
}

/// A bar divides the fields, so none may be in one.
#[test]
fn no_label_of_deepstream_minimal_has_bars() {
    let mut record = frame();
    record.objects[1].annotation.attributes[1].label = "b|ig".into();
    let line = deepstream::frame(&record, &source());
    assert_eq!(line["objects"][1], "18446744073709551615|20|30|30|35|a/b|#|red|b/ig|0.5");
}

#[test]
fn coco_has_results() {
    assert_eq!(
        line(PublishFormat::Coco),
        json!([
            { "image_id": 2, "category_id": 3, "bbox": [10.0, 20.5, 40.0, 39.5], "score": 0.75 },
            { "image_id": 2, "category_id": 3, "bbox": [20.0, 30.0, 10.0, 5.0], "score": 0.75 },
        ])
    );
}

#[test]
fn events_and_tracks_have_their_times() {
    let event = json!({ "event": "crossed", "name": "gate", "event-time": null, "confidence": 0.7, "x": 1.5 });
    // Time and number are those of the message, and a float has no more digits than those of detections.
    let mut of_meta = event.clone();
    of_meta["stream-time"] = 40.into();
    of_meta["frame"] = 9.into();
    of_meta["confidence"] = f64::from(0.7f32).into();
    of_meta["x"] = 1.500_01.into();
    let mut with_events = FrameRecord { events: vec![of_meta.as_object().unwrap().clone()], ..frame() };
    let of_class = json!({ "label": "a", "class-id": 1, "confidence": f64::from(0.1f32) });
    with_events.classes = Some(vec![of_class]);
    with_events.texts = vec![json!({ "text": "AB 12", "confidence": f64::from(0.1f32) }), json!({ "text": "x" })];
    let line = gst_trt::frame(&with_events, &source());
    assert_eq!(line["texts"], json!([{ "text": "AB 12", "confidence": 0.1 }, { "text": "x" }]));
    assert!(gst_trt::frame(&frame(), &source()).get("texts").is_none(), "nothing was read");
    assert_eq!((&line["events"], &line["classes"][0]["confidence"]), (&json!([event]), &json!(0.1)));
    let record = Record::Event { times: frame().times, number: 9, event: of_meta.as_object().unwrap().clone() };
    let line: Value = serde_json::from_str(&message(PublishFormat::GstTrt, &record, &source())).unwrap();
    assert_eq!((&line["event"], &line["frame"], &line["stream-time"]), (&event, &json!(9), &json!(40)));
    assert_eq!((&line["source-id"], &line["wall-clock"]), (&json!("cam"), &json!("2018-04-11T04:59:59.828000Z")));

    let mut tracks = TracksInSight::default();
    tracks.see(&frame(), 0, 0);
    let track = tracks.end_all().remove(0);
    let line = gst_trt::track(&track, &source());
    assert_eq!(
        line["object"],
        json!({ "track-id": 7, "label": "car", "class-id": 3, "confidence": 0.75, "first-stream-time": 40, "last-stream-time": 40,
                "frames": 1, "first-box": [10.0, 20.5, 40.0, 39.5], "last-box": [10.0, 20.5, 40.0, 39.5] })
    );
}

#[test]
fn ids_over_cameras_are_of_objects_and_tracks() {
    let mut found = frame();
    found.objects[0].identity = Some(u64::MAX);
    let line = gst_trt::frame(&found, &source());
    let detections = &line["detections"];
    assert_eq!((&detections[0]["identity"], detections[1].get("identity")), (&json!(u64::MAX), None));
    let mut tracks = TracksInSight::default();
    tracks.see(&found, 0, 9);
    tracks.see(&frame(), 1, 9);
    let track = tracks.end_all().remove(0);
    assert_eq!(gst_trt::track(&track, &source())["object"]["identity"], u64::MAX, "it stays");
}

#[test]
fn each_format_has_ids_over_cameras() {
    let mut found = frame();
    found.objects.iter_mut().zip([8, 9]).for_each(|(object, id)| object.identity = Some(id));
    let of =
        |format| -> Value { serde_json::from_str(&message(format, &Record::Frame(found.clone()), &source())).unwrap() };
    let all =
        |objects: &Value| objects.as_array().unwrap().iter().map(|one| one["identity"].clone()).collect::<Vec<_>>();
    assert_eq!(all(&of(PublishFormat::GstTrt)["detections"]), [8, 9]);
    assert_eq!(all(&of(PublishFormat::DlStreamer)["objects"]), [8, 9]);
    assert_eq!(all(&of(PublishFormat::Coco)), [8, 9]);
    assert_eq!(
        of(PublishFormat::DeepStreamMinimal)["objects"],
        json!(["7|10|20.5|50|60|car|#|identity=8|1", "18446744073709551615|20|30|30|35|a/b|#|red|big|identity=9|0.5"])
    );
}

#[test]
fn attributes_by_clips_have_their_time() {
    let mut found = frame();
    found.objects[1].annotation.attributes[0].span = Some([80, u64::MAX]);
    let line: Value = serde_json::from_str(&message(PublishFormat::GstTrt, &Record::Frame(found), &source())).unwrap();
    let [first, second] = [0, 1].map(|at| line["detections"][1]["attributes"][at].clone());
    assert_eq!((&first["start-stream-time"], &first["end-stream-time"]), (&json!(80), &json!(u64::MAX)));
    assert!(second.get("start-stream-time").is_none(), "{second}");
}

#[test]
fn objects_that_are_gone_have_their_attributes() {
    let mut found = frame();
    found.objects[1].annotation.track_id = Some(8);
    let mut tracks = TracksInSight::default();
    tracks.see(&found, 0, 0);
    let gone = tracks.end_all();
    let of = |track: &TrackRecord| gst_trt::track(track, &source())["object"].get("attributes").cloned();
    let attribute = |label: &str| json!({ "label": label, "class-id": 1, "confidence": 0.5 });
    assert_eq!(gone.iter().map(of).collect::<Vec<_>>(), [None, Some(json!([attribute("red"), attribute("big")]))]);
}
