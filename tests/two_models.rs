// SPDX-License-Identifier: MPL-2.0
//! Two models in one line: each of them sees the frame, and each trtnms takes what one model has found.

use crate::common::boxes::{Line, found, grey, model};
use crate::common::onnx::{F32, Graph};
use crate::common::scratch;

/// A line of these elements. A stands for a model over 64x64 that finds one object of class a, B for one over 32x32
/// that finds one of class dog.
fn line(name: &str, elements: &str) -> Line {
    let folder = scratch(name);
    let first = model(&folder, &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let second = Graph::new()
        .input("images", F32, &["1", "3", "32", "32"])
        .constant("output0", &[1, 1, 6], &[4.0, 20.0, 12.0, 28.0, 0.75, 1.0])
        .metadata("names", "{0: 'cat', 1: 'dog'}")
        .save(&folder.join("second.onnx"));
    let infer = |model: &str| format!("trtinfer model-file={model}");
    Line::parse(
        &elements.replace("! A", &format!("! {}", infer(&first))).replace("! B", &format!("! {}", infer(&second))),
    )
}

type Rect = (u32, u32, u32, u32);

/// What each finds in a frame of 64x64.
const BOTH: [(&str, Rect); 2] = [("a", (16, 8, 32, 16)), ("dog", (8, 40, 16, 16))];

fn objects(frame: &gst::BufferRef) -> Vec<(String, Rect)> {
    found(frame).into_iter().map(|found| (found.label, found.rect)).collect()
}

fn named(objects: &[(&str, Rect)]) -> Vec<(String, Rect)> {
    objects.iter().map(|&(label, rect)| (label.to_string(), rect)).collect()
}

#[test]
fn models_follow_one_another() {
    for draw in ["true", "false"] {
        let nms = format!("trtnms draw={draw}");
        for (i, order) in
            ["trtpreprocess ! A ! NMS ! trtpreprocess ! B ! NMS", "trtpreprocess ! A ! trtpreprocess ! B ! NMS ! NMS"]
                .into_iter()
                .enumerate()
        {
            let mut line = line(&format!("two-models-{i}-{draw}"), &order.replace("NMS", &nms));
            for _ in 0..3 {
                let mut found = objects(&line.push(grey(64 * 64 * 3)));
                found.sort();
                assert_eq!(found, named(&BOTH), "{order}");
            }
            assert_eq!(line.said(), [""; 0], "{order}");
        }
    }
}

/// The first trtnms has the properties of the first model.
#[test]
fn the_first_trtnms_takes_the_first_models_outputs() {
    for (classes, expected) in [("classes=a", &BOTH[..]), ("classes=b", &BOTH[1..])] {
        let nms = format!("trtnms {classes} ! trtnms classes=dog");
        let mut line = line("first-nms", &format!("trtpreprocess ! A ! trtpreprocess ! B ! {nms}"));
        assert_eq!(objects(&line.push(grey(64 * 64 * 3))), named(expected));
    }
}

#[test]
fn each_model_may_skip_frames_of_its_own() {
    let elements = "trtpreprocess ! A interval=2 ! trtpreprocess ! B ! trtnms hold-detections=false ! trtnms";
    let mut line = line("interval", elements);
    for expected in [&BOTH[..], &BOTH[1..], &BOTH[..]] {
        assert_eq!(objects(&line.push(grey(64 * 64 * 3))), named(expected));
    }
}

/// What is between the models changes the picture for the first alone.
#[test]
fn each_model_has_its_own_letterbox() {
    let ways = |between: &str| format!("trtpreprocess ! A ! {between} ! trtpreprocess ! B ! trtnms ! trtnms");
    let mut scaled = line("scaled-between", &ways("videoscale ! video/x-raw,width=128,height=32"));
    // What the second finds lies in the padding of the wide picture that it sees.
    assert_eq!(objects(&scaled.push(grey(64 * 64 * 3))), named(&[("a", (32, 4, 64, 8))]));
    for between in ["videocrop left=16", "videocrop left=16 ! videoscale ! video/x-raw,width=64,height=64"] {
        let mut cropped = line("cropped-between", &ways(between));
        assert_eq!(cropped.try_push(grey(64 * 64 * 3)), Err(gst::FlowError::Error), "{between}");
        let said = cropped.said();
        assert!(said[0].contains("videocrop") && said[0].contains("before trtpreprocess"), "{said:?}");
    }
}

#[test]
fn an_element_missing_between_two_models_is_reported() {
    for (elements, expected) in [
        ("trtpreprocess ! A ! B ! trtnms ! trtnms", "no trtpreprocess between the two"),
        ("trtpreprocess ! A ! trtnms ! B ! trtnms", "trtpreprocess is missing"),
        ("trtpreprocess ! A ! trtnms ! trtpreprocess tensor-size=8x8 ! trtnms", "trtinfer is missing"),
        ("trtpreprocess ! A ! trtnms ! trtnms", "without tensors"),
    ] {
        let mut line = line("missing", elements);
        assert_eq!(line.try_push(grey(64 * 64 * 3)), Err(gst::FlowError::Error), "{elements}");
        let said = line.said();
        assert!(said.len() == 1 && said[0].contains(expected), "{elements}: {said:?}");
    }
}
