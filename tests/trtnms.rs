// SPDX-License-Identifier: MPL-2.0
//! trtnms: what each property does, where boxes land, and what is posted.

use gst::prelude::*;

use crate::common::boxes::{Found, Line, SIDE, found, grey, model};
use crate::common::onnx::{F32, Graph};
use crate::common::{Outcome, launch, scratch};

/// An a at the upper left, a weaker a that overlaps it by three quarters (IoU 0.6), a b of the same place, a c elsewhere.
const ROWS: [[f32; 6]; 4] = [
    [8.0, 8.0, 24.0, 24.0, 0.9, 0.0],
    [12.0, 8.0, 28.0, 24.0, 0.7, 0.0],
    [8.0, 8.0, 24.0, 24.0, 0.6, 1.0],
    [40.0, 40.0, 56.0, 48.0, 0.3, 2.0],
];

/// One box on even pixels.
const ONE: [[f32; 6]; 1] = [[20.0, 24.0, 44.0, 40.0, 0.9, 0.0]];

/// A line over [`ROWS`], whose layout does no suppression unless `nms` sets it.
fn line(test: &str, nms: &str) -> Line {
    Line::new(&model(&scratch(test), &ROWS), &format!("draw=false {nms}"))
}

/// What ends a line of one frame with that model and those properties.
fn outcome(model: &str, nms: &str) -> Outcome {
    launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 \
         ! trtpreprocess ! trtinfer model-file={model} ! trtnms {nms} ! fakesink"
    ))
}

// ------------------------------------------------------------------------------------------- which boxes

#[test]
fn properties_choose_boxes() {
    let folder = scratch("choose");
    let model = model(&folder, &ROWS);
    let labels = folder.join("labels.txt");
    std::fs::write(&labels, "\u{feff}ant\r\nbee\r\n\r\n\r\n").unwrap();
    for (nms, expected) in [
        ("", "a a b c"),
        ("score-threshold=0.65", "a a"),
        ("score-threshold=1", ""),
        ("class-thresholds=a=0.8,2=0.5", "a b"),
        ("class-thresholds=b=0.1 score-threshold=0.65", "a a b"),
        ("classes=c,b", "b c"),
        ("classes=0", "a a"),
        ("max-detections=2", "a a"),
        ("layout=deepstream-yolo", "a b c"),
        ("layout=deepstream-yolo iou-threshold=0.7", "a a b c"),
        ("layout=deepstream-yolo class-agnostic=true", "a c"),
        ("layout=deepstream-yolo max-detections=1", "a"),
    ] {
        let mut line = Line::new(&model, &format!("draw=false {nms}"));
        assert_eq!(line.labels().join(" "), expected, "{nms}");
        assert_eq!(line.said(), [""; 0], "{nms}");
    }
    // The third class has an empty line at the end of the file, which is none: its boxes have no class, and are told.
    let mut line = Line::new(&model, &format!("draw=false label-file={}", labels.display()));
    assert_eq!(line.labels().join(" "), "ant ant bee");
    let said = line.said();
    assert_eq!(said.len(), 1, "{said:?}");
    for words in
        ["finds class 2, which is not known", "1 box of a frame is left out", "there are 2 labels", "Set label-file"]
    {
        assert!(said[0].contains(words), "{said:?}");
    }
}

#[test]
fn properties_change_while_playing() {
    let mut line = line("live", "layout=deepstream-yolo");
    for (property, value, expected) in [
        ("score-threshold", "0.5", "a b"),
        ("class-thresholds", "c=0.1", "a b c"),
        ("classes", "c", "c"),
        ("classes", "", "a b c"),
        ("class-thresholds", "", "a b"),
        ("iou-threshold", "0.9", "a a b"),
        ("class-agnostic", "true", "a a"),
        ("max-detections", "1", "a"),
    ] {
        line.nms().set_property_from_str(property, value);
        assert_eq!(line.labels().join(" "), expected, "{property}={value}");
    }
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn bad_values_while_playing_are_reverted() {
    let mut line = line("taken-back", "classes=a,c");
    assert_eq!(line.labels().join(" "), "a a c");
    for (property, bad, good, expected_text) in [
        ("classes", "zebra", Some("a,c"), "no class “zebra”: its classes are a, b, c"),
        ("class-thresholds", "a=7", None, "“a=7” cannot be read"),
    ] {
        line.nms().set_property(property, bad);
        assert_eq!(line.labels().join(" "), "a a c", "{property}");
        assert_eq!(line.labels().join(" "), "a a c", "{property}");
        let said = line.said();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(expected_text) && said[0].ends_with("The settings stay as they were."), "{said:?}");
        assert_eq!(line.nms().property::<Option<String>>(property).as_deref(), good);
    }
}

#[test]
fn mistakes_end_the_pipeline_with_a_remedy() {
    let folder = scratch("mistakes");
    let named = model(&folder, &ROWS);
    // An output that cells, names and labels do not determine has three readings.
    let dense = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("out", &[1, 84, 84], &[0.0; 84 * 84])
        .save(&folder.join("dense.onnx"));
    for (file, bytes) in [("empty", &b" \n"[..]), ("latin1", b"caf\xe9\n"), ("two", b"ant\nbee\n")] {
        std::fs::write(folder.join(file), bytes).unwrap();
    }
    let file = |name: &str| format!("label-file={}", folder.join(name).display());
    let (settings, not_found) = ("ResourceError::Settings", "ResourceError::NotFound");
    for (model, nms, domain, parts) in [
        (&named, "classes=zebra".into(), settings, &["classes: ", "“zebra”", "a, b, c"][..]),
        (&named, "class-thresholds=a".into(), settings, &["“a” cannot be read", "person=0.5"]),
        (&named, "layout=efficientnms".into(), settings, &["layout=efficientnms", "num_dets", "output0 f32 1x4x6"]),
        (
            &named,
            "layout=yolov5".into(),
            settings,
            &["output0 f32 1x4x6", "1 class as yolov5", "3 labels", "layout=auto"],
        ),
        (&named, "layout=cubist".into(), settings, &["no layout “cubist”", "auto, yolov5, yolov8"]),
        (&named, file("missing"), not_found, &["/missing", "label-file"]),
        (&named, file("empty"), settings, &["/empty is empty", "one label a line"]),
        (&named, file("latin1"), settings, &["/latin1 is not UTF-8", "line 1"]),
        (&dense, file("two"), settings, &["80 classes", "2 labels"]),
        (&dense, "".into(), settings, &["out f32 1x84x84", "layout="]),
    ] {
        outcome(model, &nms).expect_error(domain, parts);
    }
}

#[test]
fn a_missing_element_is_named() {
    let source = "videotestsrc ! video/x-raw,format=RGB,width=64,height=64";
    let (order, wrong) = ("trtpreprocess ! trtinfer ! trtnms", "StreamError::WrongType");
    launch(&format!("{source} ! trtnms ! fakesink"))
        .expect_error(wrong, &["trtpreprocess ! trtinfer is missing", order]);
    launch(&format!("{source} ! trtpreprocess tensor-size=64x64 ! trtnms ! fakesink"))
        .expect_error(wrong, &["trtinfer is missing", order]);
    // Without a size, trtpreprocess is the first to notice.
    let outcome = launch(&format!("{source} ! trtpreprocess ! trtnms ! fakesink"));
    assert!(outcome.error_text().contains("trtinfer"), "{outcome:?}");
}

// ------------------------------------------------------------------------------------------- metas and messages

#[test]
fn metas_have_the_detections() {
    let found = line("metas", "classes=a,c").found();
    let expected = |id, label: &str, class, confidence: f32, rect, corners: [f64; 4]| Found {
        id,
        label: label.into(),
        class,
        confidence: confidence.into(),
        rect,
        corners: corners.map(|corner| corner / f64::from(SIDE)),
    };
    assert_eq!(
        found,
        [
            expected(0, "a", 0, 0.9, (8, 8, 16, 16), [8.0, 8.0, 24.0, 24.0]),
            expected(1, "a", 0, 0.7, (12, 8, 16, 16), [12.0, 8.0, 28.0, 24.0]),
            expected(2, "c", 2, 0.3, (40, 40, 16, 8), [40.0, 40.0, 56.0, 48.0]),
        ]
    );
}

#[test]
fn messages_have_the_detections() {
    let mut line = line("messages", "post-messages=true classes=c");
    let mut buffer = grey(SIDE * SIDE * 3);
    buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(40));
    line.push(buffer);
    line.nms().set_property("score-threshold", 1.0f32);
    line.push(grey(SIDE * SIDE * 3));
    line.nms().set_property("post-messages", false);
    line.push(grey(SIDE * SIDE * 3));
    line.nms().set_property("post-messages", true);
    line.caps("RGB", 32, 32);
    line.push(grey(32 * 32 * 3));

    let messages = line.messages();
    assert_eq!(messages.len(), 3, "{messages:?}");
    let detections = |message: &gst::Structure| message.get::<gst::Array>("detections").unwrap();
    let first = &messages[0];
    assert_eq!(first.name(), "trt-detections");
    assert_eq!(first.get::<gst::ClockTime>("stream-time").unwrap().mseconds(), 40);
    assert_eq!(first.get::<u64>("frame").unwrap(), 0);
    assert_eq!((first.get::<u32>("count").unwrap(), first.get::<bool>("held").unwrap()), (1, false));
    assert_eq!((first.get::<u32>("width").unwrap(), first.get::<u32>("height").unwrap()), (SIDE, SIDE));
    let detection = detections(first)[0].get::<gst::Structure>().unwrap();
    assert_eq!(detection.get::<&str>("label").unwrap(), "c");
    assert_eq!(detection.get::<u32>("class-id").unwrap(), 2);
    assert_eq!(detection.get::<f64>("confidence").unwrap(), f64::from(0.3f32));
    assert_eq!(["x", "y", "w", "h"].map(|field| detection.get::<f64>(field).unwrap()), [40.0, 40.0, 16.0, 8.0]);
    assert_eq!(first.to_string().parse::<gst::Structure>().unwrap(), *first, "its text can be read back");

    assert_eq!(messages[1].get::<u64>("frame").unwrap(), 1);
    assert_eq!(messages[1].get::<Option<gst::ClockTime>>("stream-time").unwrap(), None);
    assert_eq!(messages[1].get::<u32>("count"), Ok(0));
    assert!(!messages[1].has_field("detections"), "an empty array would be printed as one of integers");
    assert_eq!(messages[2].get::<u64>("frame"), Ok(3), "of all frames, whatever their size");
}

#[test]
fn boxes_are_mapped_back_through_the_letterbox() {
    // Frame, box in the 64x64 input, left, top, right and bottom in the frame.
    for ((width, height), input, expected) in [
        ((128, 64), [16.0, 24.0, 32.0, 40.0], [32.0, 16.0, 64.0, 48.0]), // half the size, 16 rows of padding above
        ((32, 64), [20.0, 8.0, 40.0, 40.0], [4.0, 8.0, 24.0, 40.0]),     // 16 columns of padding at the left
        ((97, 51), [8.0, 18.0, 24.0, 30.0], [12.125, 4.5, 36.375, 22.5]), // 64x34 at 0,15
        ((128, 64), [-9.0, 8.0, 32.0, 24.0], [0.0, 0.0, 64.0, 16.0]),    // clipped
        ((1, 64), [0.0, 0.0, 64.0, 64.0], [0.0, 0.0, 1.0, 64.0]),        // a line
    ] {
        let [x1, y1, x2, y2] = input;
        let rows = [[x1, y1, x2, y2, 0.9, 0.0], [0.0, 0.0, 15.0, 15.0, 0.8, 1.0]];
        let mut line = Line::new(&model(&scratch("letterbox"), &rows), "draw=false classes=a");
        line.caps("GRAY8", width, height);
        let found = found(&line.push(grey(width.next_multiple_of(4) * height)));
        let (w, h) = (f64::from(width), f64::from(height));
        let [left, top, right, bottom] = expected;
        let close = |a: f64, b: f64| (a - b).abs() < 1e-5;
        let [x_min, y_min, x_max, y_max] = found[0].corners;
        assert!(
            close(x_min * w, left) && close(y_min * h, top) && close(x_max * w, right) && close(y_max * h, bottom),
            "{width}x{height}: {found:?}"
        );
        let cover = |from: f64, to: f64| (from.floor() as u32, (to.ceil() - from.floor()) as u32);
        let ((x, w), (y, h)) = (cover(left, right), cover(top, bottom));
        assert_eq!(found[0].rect, (x, y, w, h), "{width}x{height}");
    }
}

#[test]
fn objects_outside_the_frame_are_left_out() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let rows = [
        [0.0, 0.0, 64.0, 15.0, 0.9, 0.0],   // padding above
        [10.0, 50.0, 20.0, 64.0, 0.9, 0.0], // padding below
        [NAN, 20.0, 40.0, 40.0, 0.9, 0.0],
        [10.0, 20.0, INF, 40.0, 0.9, 0.0],
        [-INF, 20.0, INF, 40.0, 0.9, 0.0],
        [10.0, 20.0, 40.0, 40.0, NAN, 0.0],
        [10.0, 20.0, 40.0, 40.0, INF, 0.0],
        [10.0, 20.0, 40.0, 40.0, 0.9, NAN],
        [10.0, 20.0, 40.0, 40.0, 0.9, 3.0], // there are three classes
        [10.0, 20.0, 40.0, 40.0, 0.9, -1.0],
        [10.0, 20.0, 10.0, 40.0, 0.9, 0.0], // no width
        [40.0, 20.0, 10.0, 40.0, 0.9, 0.0], // inside out
        [10.0, 20.0, 20.0, 40.0, 0.4, 1.0], // this is one
    ];
    let mut line = Line::new(&model(&scratch("no-objects"), &rows), "");
    line.caps("RGB", 128, 64);
    let found = found(&line.push(grey(128 * 64 * 3)));
    assert_eq!(found.iter().map(|found| found.rect).collect::<Vec<_>>(), [(20, 8, 20, 40)]);
}

#[test]
fn frames_may_change_their_size() {
    let mut line = Line::new(&model(&scratch("new-caps"), &ONE), "draw=true");
    for (width, height, expected) in [
        (64, 64, (20, 24, 24, 16)),
        (128, 64, (40, 16, 48, 32)),
        (64, 128, (8, 48, 48, 32)),
        (64, 64, (20, 24, 24, 16)),
    ] {
        line.caps("BGRA", width, height);
        let buffer = line.push(grey(width * height * 4));
        assert_eq!(found(&buffer)[0].rect, expected, "{width}x{height}");
        assert_eq!(buffer.size() as u32, width * height * 4);
    }
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn two_models_in_a_pipeline_both_post() {
    let folder = scratch("two-models");
    let first = model(&folder, &ROWS);
    let second = Graph::new()
        .input("images", F32, &["1", "3", "32", "32"])
        .constant("output0", &[1, 1, 6], &[8.0, 8.0, 16.0, 16.0, 0.5, 0.0])
        .metadata("names", "{0: 'second'}")
        .save(&folder.join("second.onnx"));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms classes=a \
         ! trtpreprocess ! trtinfer model-file={second} ! trtnms"
    ));
    let found = line.found();
    let said: Vec<_> = found.iter().map(|found| (found.id, found.label.as_str(), found.rect)).collect();
    assert_eq!(said, [(0, "a", (8, 8, 16, 16)), (1, "a", (12, 8, 16, 16)), (2, "second", (16, 16, 16, 16))]);
    assert_eq!(line.said(), [""; 0]);
}
