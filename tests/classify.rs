// SPDX-License-Identifier: MPL-2.0
//! Classifiers: classes and confidences, where they can be read, and how they are drawn.

use std::path::Path;

use gst::meta::CustomMeta;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, PostprocessOptions, SessionOptions, parse_options};

use crate::common::boxes::{Line, SIDE, grey};
use crate::common::onnx::{F32, Graph, int};
use crate::common::{launch, scratch};

/// Logits of cat, dog and bird: probabilities of 1/8, 5/8 and 1/4.
const LOGITS: [f32; 3] = [0.0, 1.609_438, std::f32::consts::LN_2];
const EXPECTED: [(&str, u32, f64); 3] = [("dog", 1, 0.625), ("bird", 2, 0.25), ("cat", 0, 0.125)];

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// As torchvision exports it: no metadata, and no softmax.
fn logits(values: &[f32]) -> Graph {
    Graph::new().input("input", F32, &["1", "3", "64", "64"]).constant("output", &[1, values.len() as i64], values)
}

/// As Ultralytics exports it: the task, names, and a softmax at the end.
fn probabilities(values: &[f32]) -> Graph {
    let count = values.len();
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .weight("logits", F32, &[1, count as i64], bytes(values))
        .node("Softmax", &["logits"], &["shares"], vec![int("axis", 1)])
        .node("Identity", &["shares"], &["output0"], Vec::new())
        .output("output0", F32, &["1", &count.to_string()])
        .metadata("author", "Ultralytics")
        .metadata("task", "classify")
        .metadata("names", "{0: 'cat', 1: 'dog', 2: 'bird'}")
}

fn labels(folder: &Path) -> String {
    let path = folder.join("labels.txt");
    std::fs::write(&path, "cat\ndog\nbird\n").unwrap();
    path.display().to_string()
}

fn read(array: &gst::Array) -> Vec<(String, u32, f64)> {
    let class = |value: &gst::glib::SendValue| {
        let class = value.get::<gst::Structure>().unwrap();
        (class.get("label").unwrap(), class.get("class-id").unwrap(), class.get("confidence").unwrap())
    };
    array.iter().map(class).collect()
}

/// The classes attached to a frame; nothing else is attached.
fn classes(buffer: &gst::BufferRef) -> Vec<(String, u32, f64)> {
    assert_eq!(buffer.iter_meta::<VideoRegionOfInterestMeta>().count(), 0);
    let meta = CustomMeta::from_buffer(buffer, "GstTrtClassificationMeta").unwrap();
    meta.structure().get::<gst::Array>("classes").map(|array| read(&array)).unwrap_or_default()
}

#[track_caller]
fn assert_classes(found: &[(String, u32, f64)], expected: &[(&str, u32, f64)]) {
    let is_near =
        |(a, b): (&(String, u32, f64), &(&str, u32, f64))| a.0 == b.0 && a.1 == b.1 && (a.2 - b.2).abs() < 1e-6;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}");
}

fn frame() -> gst::Buffer {
    grey(SIDE * SIDE * 3)
}

#[test]
fn classes_are_attached_to_the_frame_and_posted() {
    let folder = scratch("classify-posted");
    let named = format!("label-file={}", labels(&folder));
    let ours = probabilities(&LOGITS).save(&folder.join("ultralytics.onnx"));
    let theirs = logits(&LOGITS).save(&folder.join("torchvision.onnx"));
    for (model, properties) in [(&ours, ""), (&theirs, named.as_str())] {
        let mut line = Line::new(model, &format!("score-threshold=0 post-messages=true {properties}"));
        assert_classes(&classes(&line.push(frame())), &EXPECTED);
        let message = &line.messages()[0];
        assert_classes(&read(&message.get::<gst::Array>("classes").unwrap()), &EXPECTED);
        assert_eq!(message.get::<u32>("count").unwrap(), 0);
        assert_eq!(message.to_string().parse::<gst::Structure>().unwrap(), *message, "its text can be read back");
        // How the input is normalised is in neither file, but Ultralytics' is known.
        let mut line = Line::new(model, properties);
        line.push(frame());
        let hints: Vec<_> = line.notes().into_iter().filter(|note| note.contains("mean=0.485")).collect();
        assert_eq!(hints.len(), usize::from(model == &theirs), "{hints:?}");
    }
    // What the usual values are, too, if the user says so.
    for properties in ["mean=0.5 std=0.5", "mean=0 std=1", "mean=0", "std=1"] {
        let mut line = Line::parse(&format!(
            "trtpreprocess {properties} ! trtinfer model-file={theirs} ! trtnms score-threshold=0"
        ));
        assert_classes(&classes(&line.push(frame())), &[("#1", 1, 0.625), ("#2", 2, 0.25), ("#0", 0, 0.125)]);
        assert!(!line.notes().iter().any(|note| note.contains("mean=0.485")), "the user knows: {properties}");
    }
}

#[test]
fn properties_choose_classes() {
    let folder = scratch("classify-properties");
    let model = probabilities(&LOGITS).save(&folder.join("model.onnx"));
    for (properties, expected) in [
        ("", &EXPECTED[..2]),
        ("score-threshold=0.5", &EXPECTED[..1]),
        ("score-threshold=0.7", &[]),
        ("score-threshold=0 top-k=2", &EXPECTED[..2]),
        ("score-threshold=0 top-k=1", &EXPECTED[..1]),
        ("classes=bird,cat", &EXPECTED[1..2]),
        ("class-thresholds=cat=0.1", &EXPECTED),
        ("layout=classify", &EXPECTED[..2]),
        ("class-scores=probabilities", &EXPECTED[..2]),
    ] {
        let mut line = Line::new(&model, properties);
        assert_classes(&classes(&line.push(frame())), expected);
        assert_eq!(line.said(), [] as [String; 0], "{properties}");
    }
    // The softmax of a softmax.
    let mut line = Line::new(&model, "class-scores=logits top-k=1");
    assert_classes(&classes(&line.push(frame())), &[("dog", 1, 0.435_954)]);
    let mut line = Line::new(&logits(&[0.25, 0.75]).save(&folder.join("logits.onnx")), "top-k=1");
    assert_classes(&classes(&line.push(frame())), &[("#1", 1, 0.622_459_3)]);
    line.nms().set_property_from_str("class-scores", "probabilities");
    assert_classes(&classes(&line.push(frame())), &[("#1", 1, 0.75)]);
}

#[test]
fn classes_of_two_models_follow_each_other() {
    let folder = scratch("classify-two");
    let first = probabilities(&LOGITS).save(&folder.join("first.onnx"));
    let second = logits(&[0.0, 9.0]).save(&folder.join("second.onnx"));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms top-k=1 \
         ! trtpreprocess ! trtinfer model-file={second} ! trtnms top-k=1"
    ));
    let found = classes(&line.push(frame()));
    assert_eq!(found.iter().map(|found| found.0.as_str()).collect::<Vec<_>>(), ["dog", "#1"]);
}

#[test]
fn skipped_frames_repeat_the_classes() {
    let model = probabilities(&LOGITS).save(&scratch("classify-held").join("model.onnx"));
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=2 ! trtnms"));
    for is_held in [false, true] {
        let buffer = line.push(frame());
        assert_classes(&classes(&buffer), &EXPECTED[..2]);
        let meta = CustomMeta::from_buffer(&buffer, "GstTrtClassificationMeta").unwrap();
        assert_eq!(meta.structure().get::<bool>("held").is_ok(), is_held);
    }
}

#[test]
fn one_class_and_what_is_no_number() {
    let folder = scratch("classify-odd");
    let found = |graph: Graph, properties: &str| {
        let mut line = Line::new(&graph.save(&folder.join("model.onnx")), properties);
        let found = classes(&line.push(frame()));
        // What is no number is told, and nothing else.
        assert!(line.said().iter().all(|text| text.contains("not finite")));
        found
    };
    let one = logits(&[0.0]).metadata("task", "classify");
    assert_classes(&found(one, ""), &[("#0", 0, 0.5)]);
    // This one number is not known to be a class, but trtnms is told, and trtpreprocess asks it.
    let model = logits(&[0.0]).save(&folder.join("number.onnx"));
    let mut line = Line::new(&model, "layout=classify");
    assert_classes(&classes(&line.push(frame())), &[("#0", 0, 0.5)]);
    assert_eq!(line.said(), [] as [String; 0]);
    assert_classes(&found(logits(&[f32::NAN; 3]), "score-threshold=0"), &[]);
    assert_classes(&found(logits(&[f32::NAN, 2.0, f32::INFINITY]), ""), &[("#1", 1, 1.0)]);
    // Names for other classes, and one number that is not known to be a class.
    let line = |model: &str, properties: &str| {
        launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms {properties} ! fakesink"
        ))
    };
    let many = logits(&[0.0; 4]).save(&folder.join("many.onnx"));
    let outcome = line(&many, &format!("label-file={}", labels(&folder)));
    assert!(outcome.error_text().contains("4 classes as classify, against 3 labels"), "{}", outcome.error_text());
    let outcome = line(&model, "");
    assert!(outcome.error_text().contains("No layout fits"), "{}", outcome.error_text());
}

#[test]
fn classes_are_written_in_the_corner() {
    let model = probabilities(&LOGITS).save(&scratch("classify-drawn").join("model.onnx"));
    let pixels = |elements: &str| {
        let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! {elements}"));
        line.caps("RGB", 320, 240);
        let buffer = line.push(grey(320 * 240 * 3));
        buffer.map_readable().unwrap().to_vec()
    };
    let plain = pixels("trtnms draw=false");
    assert!(plain.iter().all(|&sample| sample == plain[0]));
    let drawn = pixels("trtnms");
    assert_eq!(drawn, pixels("trtnms draw=false ! trtoverlay"), "from the meta");
    assert_eq!(plain, pixels("trtnms draw-labels=false"));
    assert_eq!(plain, pixels("trtnms score-threshold=0.9"));
    let lines = |drawn: &[u8]| (0..240).filter(|y| drawn[y * 960..][..960] != plain[..960]).count();
    let one = pixels("trtnms top-k=1");
    assert!(lines(&one) > 8 && lines(&drawn) == 2 * lines(&one), "{} {}", lines(&one), lines(&drawn));
    assert_eq!(one[..960 * lines(&one)], drawn[..960 * lines(&one)], "the best is at the top");
    assert_ne!(drawn[..3], plain[..3], "from the corner on");
    assert_eq!(drawn[960 - 3..960], plain[..3]);
}

fn classify(model: &str, options: &[&str]) -> Vec<(String, u32, f64)> {
    let (options, postprocess) = parse_options(options.iter().copied()).unwrap();
    let mut detector = Detector::open(model, &options, postprocess).unwrap();
    assert_eq!(detector.classes(), [], "before the first frame");
    let pixels = vec![77; 96 * 64 * 3];
    let planes = [Plane { data: &pixels[..], stride: 96 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 96, height: 64, planes };
    assert_eq!(detector.detect(&frame, Colorimetry::default()).unwrap(), []);
    let classes = detector.classes().into_iter();
    classes.map(|found| (found.label, found.class_id, f64::from(found.confidence))).collect()
}

#[test]
fn a_detector_gives_classes() {
    let folder = scratch("classify-detector");
    let model = probabilities(&LOGITS).save(&folder.join("model.onnx"));
    assert_classes(&classify(&model, &["score-threshold=0"]), &EXPECTED);
    assert_classes(&classify(&model, &["top-k=1"]), &EXPECTED[..1]);
    assert_classes(&classify(&model, &["class-scores=logits", "top-k=1"]), &[("dog", 1, 0.435_954)]);
    let boxes = crate::common::boxes::model(&folder, &[[0.0, 0.0, 32.0, 32.0, 0.9, 1.0]]);
    let mut detector = Detector::open(&boxes, &SessionOptions::default(), PostprocessOptions::default()).unwrap();
    let pixels = vec![77; 64 * 64 * 3];
    let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    assert_eq!(detector.detect(&frame, Colorimetry::default()).unwrap().len(), 1);
    assert_eq!(detector.classes(), [], "no classifier");
}

/// The model returns the means of its input's channels.
fn means(folder: &Path) -> String {
    let graph = Graph::new()
        .input("images", F32, &["1", "3", "8", "8"])
        .node(
            "ReduceMean",
            &["images"],
            &["output0"],
            vec![crate::common::onnx::ints("axes", &[2, 3]), int("keepdims", 0)],
        )
        .output("output0", F32, &["1", "3"])
        .metadata("task", "classify");
    graph.save(&folder.join("means.onnx"))
}

#[test]
fn options_of_a_session_normalise() {
    let model = means(&scratch("classify-normalise"));
    let sample = 77.0 / 255.0;
    for (option, expected) in
        [("top-k=1", sample), ("mean=0.25", sample - 0.25), ("std=0.5", sample / 0.5), ("shortest-edge=16", sample)]
    {
        let found = classify(&model, &["class-scores=probabilities", "score-threshold=0", option]);
        assert!((found[0].2 - expected).abs() < 1e-3, "{option}: {found:?}");
    }
    let (options, postprocess) = parse_options(["shortest-edge=7"]).unwrap();
    let mut detector = Detector::open(&model, &options, postprocess).unwrap();
    let pixels = vec![77; 64 * 64 * 3];
    let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    let error = detector.detect(&frame, Colorimetry::default()).unwrap_err();
    assert!(error.message().contains("shortest-edge=7 makes it 7x7"), "{error}");
}

#[test]
fn options_of_a_session_say_how_frames_become_tensors() {
    let model = means(&scratch("classify-tensors"));
    let pixels = [255u8, 0, 0].repeat(16 * 8);
    let planes = [Plane { data: &pixels[..], stride: 16 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 16, height: 8, planes };
    let seen = |options: &[&str]| {
        let usual = ["class-scores=probabilities", "score-threshold=0", "top-k=3"];
        let (options, postprocess) = parse_options([&usual[..], options].concat()).unwrap();
        let mut detector = Detector::open(&model, &options, postprocess).unwrap();
        detector.detect(&frame, Colorimetry::default())?;
        let mut means = [0.0f32; 3];
        detector.classes().iter().for_each(|class| means[class.class_id as usize] = class.confidence);
        Ok::<_, gsttrt_core::error::Error>(means)
    };
    for (options, wanted) in [
        (&[][..], [1.0, 0.0, 0.0]),
        (&["tensor-colors=bgr"], [0.0, 0.0, 1.0]),
        (&["scale=0.002"], [0.51, 0.0, 0.0]),
        (&["resize=stretch"], [1.0, 0.0, 0.0]),
        (&["resize=letterbox", "pad-value=0"], [0.5, 0.0, 0.0]),
        (&["resize=letterbox", "pad-value=255"], [1.0, 0.5, 0.5]),
        (&["resize=letterbox-top-left", "pad-value=51", "tensor-colors=bgr"], [0.1, 0.1, 0.6]),
        (&["resize=auto", "tensor-colors=auto", "scale=0", "pad-value=-1"], [1.0, 0.0, 0.0]),
    ] {
        let found = seen(options).unwrap();
        let is_near = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-3);
        assert!(is_near, "{options:?}: {found:?}");
    }
    let error = seen(&["tensor-colors=gray"]).unwrap_err();
    assert!(error.message().contains("gray has 1 channels, the tensor 3"), "{error}");
}

/// The middle of the frame, and not its sides.
#[test]
fn a_classifier_sees_the_middle_of_the_frame() {
    let model = means(&scratch("classify-middle"));
    let mut line = Line::new(&model, "class-scores=probabilities score-threshold=0.5");
    line.caps("RGB", 32, 16);
    // Blue in the middle 16 columns, red on both sides.
    let mut pixels = [255u8, 0, 0].repeat(32 * 16);
    for row in pixels.chunks_exact_mut(96) {
        row[24..72].copy_from_slice(&[0, 0, 255].repeat(16));
    }
    let found = classes(&line.push(gst::Buffer::from_mut_slice(pixels)));
    assert!(found.len() == 1 && found[0].1 == 2 && found[0].2 > 0.9, "{found:?}");
}
