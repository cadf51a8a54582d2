// SPDX-License-Identifier: MPL-2.0
//! trtnms: what each property does, where boxes land, what is drawn and what is copied.

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoFrameRef, VideoInfo};
use gsttrt_core::image::frame::PixelFormat;

use crate::common::boxes::{Found, GREY, Line, SIDE, address, found, graph, grey, model};
use crate::common::onnx::{F32, Graph, U8};
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
        ("".into(), "a a b c"),
        ("score-threshold=0.65".into(), "a a"),
        ("score-threshold=1".into(), ""),
        ("class-thresholds=a=0.8,2=0.5".into(), "a b"),
        ("class-thresholds=b=0.1 score-threshold=0.65".into(), "a a b"),
        ("classes=c,b".into(), "b c"),
        ("classes=0".into(), "a a"),
        ("max-detections=2".into(), "a a"),
        ("layout=deepstream-yolo".into(), "a b c"),
        ("layout=deepstream-yolo iou-threshold=0.7".into(), "a a b c"),
        ("layout=deepstream-yolo class-agnostic=true".into(), "a c"),
        ("layout=deepstream-yolo max-detections=1".into(), "a"),
        // The third class has an empty line at the end of the file, which is none: its boxes have no class.
        (format!("label-file={}", labels.display()), "ant ant bee"),
    ] {
        let mut line = Line::new(&model, &format!("draw=false {nms}"));
        assert_eq!(line.labels().join(" "), expected, "{nms}");
        assert_eq!(line.said(), [""; 0], "{nms}");
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
fn a_forced_layout_doubts_another_input() {
    let folder = scratch("doubt");
    let model = model(&folder, &ROWS);
    let bytes = Graph::new()
        .input("images", U8, &["1", "1", "64", "64"])
        .constant("output0", &[1, 1, 6], &[0.0; 6])
        .save(&folder.join("bytes.onnx"));
    let cells = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output", &[1, 84, 6], &[0.0; 84 * 6])
        .save(&folder.join("cells.onnx"));
    for (model, nms, warnings) in [
        (&model, "layout=auto", 0),
        (&model, "layout=end-to-end", 0),
        (&model, "layout=detr-topk", 1),  // stretched, and the model got a letterbox
        (&bytes, "layout=end-to-end", 0), // grey bytes are this model's own wish
    ] {
        let outcome = outcome(model, nms);
        outcome.expect_success();
        assert_eq!(outcome.warnings.len(), warnings, "{nms}: {outcome:?}");
        assert!(
            outcome.warnings.iter().all(|text| text.contains("detr-topk") && text.contains("set resize=stretch on")),
            "{outcome:?}"
        );
    }
    // The properties that the warning names are those that it wants.
    let with = |settings: &str| {
        let line = format!("trtpreprocess {settings} ! trtinfer model-file={cells} ! trtnms layout=yolox ! fakesink");
        launch(&format!("videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=32 ! {line}")).warnings
    };
    let settings = "tensor-colors=bgr scale=1 resize=letterbox-top-left";
    let said = with("");
    assert!(said.len() == 1 && said[0].contains(&format!("set {settings} on trtpreprocess")), "{said:?}");
    assert_eq!(with(settings), [""; 0]);
    assert!(with("tensor-colors=bgr scale=1")[0].contains("set resize=letterbox-top-left on"));
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
fn classes_without_a_name_have_their_number() {
    let nameless = graph("output0", &ROWS).save(&scratch("nameless").join("boxes.onnx"));
    let mut line = Line::new(&nameless, "draw=false classes=0,2");
    assert_eq!(line.labels().join(" "), "#0 #0 #2");
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

// ------------------------------------------------------------------------------------------- what is drawn

/// Whether a pixel lies on the outline of [`ONE`], `width` pixels wide, inside the box.
fn on_outline(x: u32, y: u32, width: u32) -> bool {
    let inside = |by: u32| (20 + by..44 - by).contains(&x) && (24 + by..40 - by).contains(&y);
    inside(0) && !inside(width)
}

fn bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    buffer.map_readable().unwrap().to_vec()
}

/// For each component, the pixels that differ from [`GREY`], in pixels of the component.
fn changed(info: &VideoInfo, bytes: &[u8]) -> Vec<Vec<(u32, u32)>> {
    let component = |c: u8| {
        let pixels = (0..info.comp_height(c)).flat_map(|y| (0..info.comp_width(c)).map(move |x| (x, y)));
        let place = |x: u32, y: u32| {
            info.comp_offset(c) + y as usize * info.comp_stride(c) as usize + x as usize * info.comp_pstride(c) as usize
        };
        pixels.filter(|&(x, y)| bytes[place(x, y)] != GREY).collect()
    };
    (0..info.n_components() as u8).map(component).collect()
}

#[test]
fn the_outline_and_nothing_else_is_drawn_in_every_format() {
    let model = model(&scratch("outline"), &ONE);
    for (format, line_width) in PixelFormat::ALL.into_iter().zip([2, 4].into_iter().cycle()) {
        let mut line = Line::new(&model, &format!("draw-labels=false line-width={line_width}"));
        line.caps(format.name(), SIDE, SIDE);
        let info = VideoInfo::builder(VideoFormat::from_string(format.name()), SIDE, SIDE).build().unwrap();
        let drawn = line.push(grey(info.size() as u32));
        for (c, changed) in changed(&info, &bytes(&drawn)).into_iter().enumerate() {
            let step = SIDE / info.comp_width(c as u8);
            let all = (0..SIDE / step).flat_map(|y| (0..SIDE / step).map(move |x| (x, y)));
            let expected: Vec<_> = all.filter(|&(x, y)| on_outline(x * step, y * step, line_width)).collect();
            assert_eq!(changed, expected, "{} component {c}", format.name());
        }
    }
}

#[test]
fn drawing_changes_while_playing() {
    let mut line = Line::new(&model(&scratch("live-draw"), &ONE), "draw-labels=false line-width=2");
    let info = VideoInfo::builder(VideoFormat::Gray8, SIDE, SIDE).build().unwrap();
    line.caps("GRAY8", SIDE, SIDE);
    let mut off_the_outline = |property: &str, value: &str, width: u32| -> (usize, usize) {
        line.nms().set_property_from_str(property, value);
        let changed = changed(&info, &bytes(&line.push(grey(SIDE * SIDE)))).remove(0);
        let on = changed.iter().filter(|&&(x, y)| on_outline(x, y, width)).count();
        (on, changed.len() - on)
    };
    let outline = |width: usize| 24 * 16 - (24 - 2 * width) * (16 - 2 * width);
    assert_eq!(off_the_outline("line-width", "2", 2), (outline(2), 0));
    assert_eq!(off_the_outline("line-width", "5", 5), (outline(5), 0));
    assert_eq!(off_the_outline("line-width", "0", 2), (outline(2), 0), "0 is by the size of the frame");
    let (on, labels) = off_the_outline("draw-labels", "true", 2);
    assert!(on == outline(2) && labels > 50, "{on} {labels}");
    assert_eq!(off_the_outline("draw", "false", 2), (0, 0));
    assert_eq!(off_the_outline("draw", "true", 2), (on, labels));
}

// ------------------------------------------------------------------------------------------- what is copied

/// A frame that another element still references, in the ways that happen.
fn shared_frames() -> [(&'static str, gst::Buffer, gst::Buffer); 2] {
    let (tee, decoder) = (grey(SIDE * SIDE * 3), grey(SIDE * SIDE * 3));
    [("the buffer has two owners", tee.clone(), tee), ("its memory has two owners", decoder.copy(), decoder)]
}

#[test]
fn shared_frames_are_copied_before_drawing() {
    let mut line = Line::new(&model(&scratch("shared"), &ONE), "");
    for (how, ours, theirs) in shared_frames() {
        let drawn = line.push(ours);
        assert!(bytes(&drawn).iter().any(|&byte| byte != GREY), "{how}");
        assert!(bytes(&theirs).iter().all(|&byte| byte == GREY), "{how}");
        assert_ne!(address(&drawn), address(&theirs), "{how}");
    }
}

#[test]
fn frames_are_not_copied_without_need() {
    let model = model(&scratch("no-copy"), &ONE);
    for nms in ["draw=false", "score-threshold=1", "classes=b"] {
        let mut line = Line::new(&model, nms);
        for (how, ours, theirs) in shared_frames() {
            assert_eq!(address(&line.push(ours)), address(&theirs), "{nms}: {how}");
        }
    }
    let mut line = Line::new(&model, "");
    let ours = grey(SIDE * SIDE * 3);
    let place = address(&ours);
    let drawn = line.push(ours);
    assert_eq!(address(&drawn), place, "nothing else references it");
    assert!(bytes(&drawn).iter().any(|&byte| byte != GREY));
}

#[test]
fn frames_without_inference_pass_untouched() {
    let model = model(&scratch("interval"), &ONE);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms post-messages=true hold-detections=false"
    ));
    for number in 0..7 {
        let theirs = grey(SIDE * SIDE * 3);
        let ours = line.push(theirs.clone());
        assert_eq!(found(&ours).len(), usize::from(number % 3 == 0), "{number}");
        assert_eq!(address(&ours) == address(&theirs), number % 3 != 0, "{number}");
        assert_eq!(ours.iter_meta::<gst::Meta>().count() == 0, number % 3 != 0, "{number}");
    }
    let numbers: Vec<u64> = line.messages().iter().map(|message| message.get("frame").unwrap()).collect();
    assert_eq!(numbers, [0, 3, 6]);
}

/// Demuxers and live sources send a segment again with what they learn on the way.
#[test]
fn boxes_are_held_until_another_part_of_the_stream_begins() {
    let model = model(&scratch("held"), &ONE);
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=100 ! trtnms"));
    assert_eq!((line.found().len(), line.found().len()), (1, 1));
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_stop(gst::ClockTime::from_seconds(9));
    line.push_event(gst::event::Segment::new(&segment));
    assert_eq!(line.found().len(), 1, "its end is known now");
    segment.set_time(gst::ClockTime::from_seconds(3));
    line.push_event(gst::event::Segment::new(&segment));
    assert_eq!(line.found().len(), 0, "it is another part");
}

#[test]
fn a_label_file_that_replaces_the_models_names_is_reported() {
    let folder = scratch("renamed");
    let model = model(&folder, &ONE);
    for (labels, count) in [("ant\nbee\ncat\n", 1), ("a\nb\nc\n", 0)] {
        let file = folder.join("labels.txt");
        std::fs::write(&file, labels).unwrap();
        let mut line = Line::new(&model, &format!("label-file={}", file.display()));
        line.found();
        let notes = line.notes();
        let reported = notes.iter().filter(|note| note.contains("labels.txt") && note.contains("boxes.onnx"));
        assert_eq!(reported.count(), count, "{notes:?}");
    }
}

/// Metadata as real files have it. What cannot be read costs the names, not the model, and a label file brings them.
#[test]
fn names_that_cannot_be_read_are_said_and_replaced() {
    let folder = scratch("unread-names");
    let file = folder.join("labels.txt");
    std::fs::write(&file, "ant\nbee\ncat\n").unwrap();
    let long = format!("['{}']", "x".repeat(100_000));
    let nested = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    for (names, label, is_said) in [
        ("None", "#0", false),
        ("", "#0", false),
        ("{}", "#0", false),
        ("[]", "#0", false),
        ("{0: 7, 1: 8, 2: 9}", "7", false),
        ("{0: False, 1: True, 2: 'c'}", "False", false),
        ("{0: 'a', 5: 'b'}", "#0", true),
        ("{1: 'a', 2: 'b'}", "#0", true),
        ("{0: 'a', 1: ", "#0", true),
        ("{0: None}", "#0", true),
        ("person", "#0", true),
        (&long, "#0", true),
        (&nested, "#0", true),
    ] {
        let model = graph("output0", &ONE).metadata("names", names).save(&folder.join("named.onnx"));
        let said = |line: &Line| {
            let mut notes = line.notes();
            notes.retain(|note| note.contains("has no class names that can be read: names = “"));
            assert!(notes.iter().all(|note| note.contains("named.onnx") && note.contains("Set label-file on trtnms")));
            notes.len()
        };
        let start: String = names.chars().take(30).collect();
        let mut line = Line::new(&model, "draw=false");
        assert_eq!(line.labels(), [label], "{start}");
        assert_eq!((said(&line), line.said().len()), (usize::from(is_said), 0), "{start}");
        let mut line = Line::new(&model, &format!("draw=false label-file={}", file.display()));
        assert_eq!(line.labels(), ["ant"], "{start}");
        assert_eq!((said(&line), line.said().len()), (0, 0), "{start}");
    }
}

#[test]
fn copies_come_from_a_pool_that_stays_small() {
    let mut line = Line::new(&model(&scratch("pool"), &ONE), "");
    let mut places: Vec<usize> = Vec::new();
    for number in 0..20 {
        let theirs = match number % 2 {
            0 => grey(SIDE * SIDE * 3),
            _ => gst::Buffer::from_slice([GREY; (SIDE * SIDE * 3) as usize]), // read-only memory
        };
        places.push(address(&line.push(theirs.clone())));
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() <= 2, "{places:?}");
}

#[test]
fn copies_keep_times_flags_and_metas() {
    let mut line = Line::new(&model(&scratch("metadata"), &ONE), "");
    let mut theirs = grey(SIDE * SIDE * 3);
    {
        let buffer = theirs.get_mut().unwrap();
        buffer.set_pts(gst::ClockTime::from_mseconds(40));
        buffer.set_dts(gst::ClockTime::from_mseconds(20));
        buffer.set_duration(gst::ClockTime::from_mseconds(33));
        buffer.set_offset(7);
        buffer.set_flags(gst::BufferFlags::MARKER | gst::BufferFlags::DISCONT);
        let caps = gst::Caps::builder("timestamp/x-unix").build();
        gst::ReferenceTimestampMeta::add(buffer, &caps, gst::ClockTime::from_seconds(5), None);
        gst_video::VideoRegionOfInterestMeta::add(buffer, "elsewhere", (1, 2, 3, 4)).set_id(9);
    }
    let ours = line.push(theirs.clone());
    assert_ne!(address(&ours), address(&theirs));
    assert_eq!((ours.pts(), ours.dts(), ours.duration()), (theirs.pts(), theirs.dts(), theirs.duration()));
    assert_eq!(ours.offset(), 7);
    assert!(ours.flags().contains(gst::BufferFlags::MARKER | gst::BufferFlags::DISCONT));
    assert_eq!(ours.meta::<gst::ReferenceTimestampMeta>().unwrap().timestamp(), gst::ClockTime::from_seconds(5));
    let ids: Vec<_> =
        ours.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|meta| (meta.roi_type(), meta.id())).collect();
    assert_eq!(ids, [("elsewhere", 9), ("a", 10)], "ids stay distinct");
}

/// The picture row by row, wherever its rows lie.
fn picture(buffer: &gst::BufferRef, info: &VideoInfo) -> Vec<u8> {
    let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
    let rows = |plane: u32| {
        let (stride, data) = (frame.plane_stride()[plane as usize] as usize, frame.plane_data(plane).unwrap());
        data.chunks(stride).take((SIDE >> plane) as usize).flat_map(|row| row[..SIDE as usize].to_vec())
    };
    (0..2).flat_map(rows).collect()
}

#[test]
fn padded_frames_are_drawn_on_and_copied_alike() {
    let mut line = Line::new(&model(&scratch("padded"), &ONE), "");
    line.caps("NV12", SIDE, SIDE);
    let info = VideoInfo::builder(VideoFormat::Nv12, SIDE, SIDE).build().unwrap();
    let expected = picture(&line.push(grey(SIDE * SIDE * 3 / 2)), &info);

    // 16 bytes before the picture, 32 after each row and between the planes, all of them no grey.
    let (stride, start, rows) = (SIDE as usize + 32, 16, SIDE as usize);
    let chroma = start + rows * stride + 32;
    let mut padded = vec![200; chroma + rows / 2 * stride];
    for row in (0..rows).map(|y| start + y * stride).chain((0..rows / 2).map(|y| chroma + y * stride)) {
        padded[row..row + SIDE as usize].fill(GREY);
    }
    for (copied, mut buffer) in
        [(false, gst::Buffer::from_mut_slice(padded.clone())), (true, gst::Buffer::from_slice(padded))]
    {
        let place = address(&buffer);
        gst_video::VideoMeta::add_full(
            buffer.get_mut().unwrap(),
            gst_video::VideoFrameFlags::empty(),
            VideoFormat::Nv12,
            SIDE,
            SIDE,
            &[start, chroma],
            &[stride as i32; 2],
        )
        .unwrap();
        let drawn = line.push(buffer);
        assert!(picture(&drawn, &info) == expected, "copied: {copied}");
        assert_eq!(address(&drawn) != place, copied);
        assert_eq!(drawn.size() == info.size(), copied, "copies are laid out as the caps say");
    }
    let next = line.push(gst::Buffer::from_slice([GREY; (SIDE * SIDE * 3 / 2) as usize]));
    assert!(picture(&next, &info) == expected, "and the next without padding");
}

#[test]
fn a_tee_behind_the_model_leaves_the_other_branch_alone() {
    let model = model(&scratch("tee"), &ONE);
    crate::common::init();
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers=10 pattern=solid-color foreground-color=0xff555555 ! video/x-raw,format=GRAY8,width=64,height=64 \
         ! trtpreprocess ! trtinfer model-file={model} ! tee name=t \
         t. ! queue ! trtnms ! appsink name=drawn sync=false t. ! queue ! appsink name=plain sync=false"
    ));
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    let pictures = ["drawn", "plain"].map(|name| {
        let pictures = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = pipeline.by_name(name).unwrap().downcast::<gst_app::AppSink>().unwrap();
        let kept = pictures.clone();
        let new_sample = move |sink: &gst_app::AppSink| {
            kept.lock().unwrap().push(bytes(sink.pull_sample().unwrap().buffer().unwrap()));
            Ok(gst::FlowSuccess::Ok)
        };
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(new_sample).build());
        pictures
    });
    crate::common::run(&pipeline).expect_success();
    let [drawn, plain] = pictures.map(|pictures| std::mem::take(&mut *pictures.lock().unwrap()));
    assert_eq!((drawn.len(), plain.len()), (10, 10));
    let uniform = |picture: &Vec<u8>| picture.iter().all(|byte| byte == &picture[0]);
    assert!(plain.iter().all(uniform));
    assert!(drawn.iter().all(|picture| !uniform(picture) && picture == &drawn[0]));
}
