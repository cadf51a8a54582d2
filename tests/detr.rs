// SPDX-License-Identifier: MPL-2.0
//! Boxes next to logits: RF-DETR and the transformers without their post-processing.

use std::path::Path;

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::geometry::Rect;
use gsttrt_core::image::masks::Mask;

use crate::common::boxes::{Line, SIDE, grey};
use crate::common::onnx::{F32, Graph};
use crate::common::scratch;

/// Left, top, width and height in pixels.
type Place = (u32, u32, u32, u32);

/// Centre and size of two boxes in shares of the input.
const BOXES: [f32; 8] = [0.5, 0.5, 0.5, 0.25, 0.25, 0.75, 0.125, 0.125];
/// The logits of both for three slots: scores of 0.5, 0.75 and none; none, none and 0.9.
const LOGITS: [f32; 6] = [0.0, 1.098_612_3, -9.0, -9.0, -9.0, 2.197_224_6];

fn graph(names: [&str; 2], slots: i64, logits: &[f32]) -> Graph {
    let queries = logits.len() as i64 / slots;
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant(names[0], &[1, BOXES.len() as i64 / 4, 4], &BOXES)
        .constant(names[1], &[1, queries, slots], logits)
}

fn rf_detr(folder: &Path) -> String {
    graph(["dets", "labels"], 3, &LOGITS).save(&folder.join("rf-detr.onnx"))
}

fn labels(folder: &Path, text: &str) -> String {
    let path = folder.join(format!("{}.txt", text.replace('\n', "-")));
    std::fs::write(&path, text).unwrap();
    format!("label-file={}", path.display())
}

/// Label, confidence in percent, and left, top, width and height of what is found in a frame.
fn found(line: &mut Line) -> Vec<(String, i32, Place)> {
    let found = line.found().into_iter();
    found.map(|found| (found.label, (found.confidence * 100.0).round() as i32, found.rect)).collect()
}

/// The boxes of the two queries in pixels.
const FIRST: Place = (16, 24, 32, 16);
const SECOND: Place = (12, 44, 8, 8);

#[track_caller]
fn expect(line: &mut Line, wanted: &[(&str, i32, Place)]) {
    let wanted: Vec<_> = wanted.iter().map(|&(label, percent, rect)| (label.to_string(), percent, rect)).collect();
    assert_eq!(found(line), wanted);
}

#[test]
fn each_class_of_a_query_that_passes_is_an_object() {
    let folder = scratch("detr-classes");
    let model = rf_detr(&folder);
    let mut line = Line::new(&model, &labels(&folder, "cat\ndog\nbird"));
    // There are no more objects than queries.
    expect(&mut line, &[("bird", 90, SECOND), ("dog", 75, FIRST)]);
    line.nms().set_property_from_str("classes", "cat,dog");
    expect(&mut line, &[("dog", 75, FIRST), ("cat", 50, FIRST)]);
    line.nms().set_property_from_str("class-thresholds", "dog=0.8");
    expect(&mut line, &[("cat", 50, FIRST)]);
    assert_eq!(line.said(), [] as [String; 0]);
    assert_eq!(line.notes(), [] as [String; 0], "labels and layout leave nothing open");
}

#[test]
fn the_background_is_no_class() {
    let folder = scratch("detr-background");
    let model = rf_detr(&folder);
    let two = labels(&folder, "cat\ndog");
    for (properties, wanted) in [
        ("", &[("#1", 75, FIRST), ("#0", 50, FIRST)][..]),
        (&two, &[("dog", 75, FIRST), ("cat", 50, FIRST)]),
        ("background-class=last", &[("#1", 75, FIRST), ("#0", 50, FIRST)]),
        ("background-class=none", &[("#2", 90, SECOND), ("#1", 75, FIRST)]),
        ("background-class=first", &[("#1", 90, SECOND), ("#0", 75, FIRST)]),
    ] {
        let mut line = Line::new(&model, properties);
        expect(&mut line, wanted);
        let notes = line.notes();
        // Only where neither the user nor the labels decide.
        assert_eq!(notes.len(), usize::from(properties.is_empty()), "{notes:?}");
        assert!(
            notes.iter().all(|note| note.contains("background-class") && note.contains("the last of 3")),
            "{notes:?}"
        );
    }
}

#[test]
fn rf_detr_is_normalised_and_others_may_have_to_be() {
    let folder = scratch("detr-input");
    let raw = graph(["pred_boxes", "logits"], 3, &LOGITS).save(&folder.join("raw.onnx"));
    let mut line = Line::new(&raw, "layout=detr-logits");
    expect(&mut line, &[("#2", 90, SECOND), ("#1", 75, FIRST)]);
    let notes = line.notes();
    assert!(notes.len() == 1 && notes[0].contains("DEIMv2") && notes[0].contains("mean=0.485"), "{notes:?}");
    let properties = "mean=0.485,0.456,0.406 std=0.229,0.224,0.225 resize=stretch";
    let elements =
        |model: &str, nms: &str| format!("trtpreprocess {properties} ! trtinfer model-file={model} ! trtnms {nms}");
    let mut line = Line::parse(&elements(&raw, "layout=detr-logits"));
    line.found();
    assert_eq!((line.notes(), line.said()), (vec![], vec![]), "the user knows");
    // What trtinfer asks for.
    let mut line = Line::new(&rf_detr(&folder), "background-class=none");
    line.found();
    let caps = line.element("trtinfer").static_pad("sink").unwrap().current_caps().unwrap().to_string();
    assert!(caps.contains("stretch") && caps.contains("mean:0.485/0.456/0.406"), "{caps}");
}

#[test]
fn what_does_not_fit_is_named() {
    let folder = scratch("detr-errors");
    let model = |name: &str, names, slots, logits: &[f32]| graph(names, slots, logits).save(&folder.join(name));
    let good = rf_detr(&folder);
    let shorter = model("shorter.onnx", ["dets", "labels"], 3, &LOGITS[..3]);
    let single = model("single.onnx", ["dets", "labels"], 1, &LOGITS[..2]);
    let detr = model("detr.onnx", ["pred_boxes", "logits"], 3, &LOGITS);
    for (model, properties, parts) in [
        (&shorter, "", &["No layout fits", "dets f32 1x2x4", "labels f32 1x1x3"][..]),
        (&shorter, "layout=rf-detr", &["do not fit layout=rf-detr", "labels f32 or f16 NxAxclasses"]),
        (&single, "background-class=last", &["leaves no class of 1 logit", "background-class=none"]),
        (&good, &labels(&folder, "a\nb\nc\nd"), &["2 classes and the background", "4 labels", "background-class"]),
        (&detr, "", &["No layout fits", "detr-logits"]),
    ] {
        let mut line = Line::new(model, properties);
        assert!(line.try_push(grey(SIDE * SIDE * 3)).is_err(), "{properties}");
        let said = line.said().concat();
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let odd =
        model("nan.onnx", ["dets", "labels"], 3, &[f32::NAN, f32::NEG_INFINITY, 0.0, f32::NAN, f32::NAN, f32::NAN]);
    let mut line = Line::new(&odd, "background-class=none score-threshold=0.1");
    expect(&mut line, &[("#2", 50, FIRST)]);
}

/// The rectangle of set pixels of each object's mask on the frame: left, top, width, height, and how many they are.
fn masks(buffer: &gst::BufferRef) -> Vec<([usize; 4], usize)> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let params = meta.param("mask").expect("a structure called mask");
        let [left, top, width, height] =
            ["mask-x", "mask-y", "mask-width", "mask-height"].map(|name| params.get::<u32>(name).unwrap());
        let rect = Rect { left, top, right: left + width, bottom: top + height };
        let mask = Mask::from_counts(rect, params.get("mask-counts").unwrap()).expect("run lengths of that rectangle");
        let pixels = mask.to_bytes();
        let set = (0..pixels.len()).filter(|&at| pixels[at] != 0);
        let places: Vec<_> =
            set.map(|at| (left as usize + at % width as usize, top as usize + at / width as usize)).collect();
        let (xs, ys) = (places.iter().map(|place| place.0), places.iter().map(|place| place.1));
        let (x, y) = (xs.clone().min().unwrap(), ys.clone().min().unwrap());
        ([x, y, xs.max().unwrap() + 1 - x, ys.max().unwrap() + 1 - y], places.len())
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

#[test]
fn masks_over_the_input_reach_beyond_their_box() {
    let folder = scratch("detr-masks");
    // The first map is above 0 in the left quarter of the input, the second in its lower half.
    let over =
        |is_seen: fn(usize, usize) -> bool| (0..256).map(move |at| if is_seen(at % 16, at / 16) { 4.0 } else { -4.0 });
    let maps: Vec<f32> = over(|x, _| x < 4).chain(over(|_, y| y >= 8)).collect();
    let model =
        graph(["dets", "labels"], 3, &LOGITS).constant("masks", &[1, 2, 16, 16], &maps).save(&folder.join("m.onnx"));
    let properties = "draw=false background-class=none class-thresholds=0=0.9";
    let mut line = Line::new(&model, properties);
    let buffer = line.push(grey(SIDE * SIDE * 3));
    assert_eq!(masks(&buffer), [([0, 32, 64, 32], 64 * 32), ([0, 0, 16, 64], 16 * 64)]);
    assert_eq!(line.said(), [] as [String; 0]);
    // On a frame of another size and shape the edges are as fine as the frame: the mask is not that of 64 pixels.
    line.caps("RGB", 200, 100);
    let buffer = line.push(grey(200 * 100 * 3));
    assert_eq!(masks(&buffer), [([0, 50, 200, 50], 200 * 50), ([0, 0, 50, 100], 50 * 100)]);
    // An object whose mask is nowhere is none.
    let nowhere: Vec<f32> = over(|_, _| false).chain(over(|_, y| y >= 8)).collect();
    let model =
        graph(["dets", "labels"], 3, &LOGITS).constant("masks", &[1, 2, 16, 16], &nowhere).save(&folder.join("n.onnx"));
    assert_eq!(masks(&Line::new(&model, properties).push(grey(SIDE * SIDE * 3))).len(), 1);
}

#[test]
fn masks_over_boxes_are_cut_to_them() {
    let folder = scratch("detr-box-masks");
    // The right half of the first box, and all of the second.
    let maps: Vec<f32> = (0..16).map(|at| if at % 4 >= 2 { 0.9 } else { 0.1 }).chain([0.7; 16]).collect();
    let model = Graph::new()
        .input("input", F32, &["1", "3", "64", "64"])
        .constant("boxes", &[1, 2, 4], &[16.0, 24.0, 48.0, 40.0, 4.0, 8.0, 12.0, 16.0])
        .constant("scores", &[1, 2, 1], &[0.9, 0.8])
        .constant("classes", &[1, 2, 1], &[0.0, 1.0])
        .constant("masks", &[1, 2, 4, 4], &maps);
    let file = model.save(&folder.join("m.onnx"));
    let buffer = Line::new(&file, "draw=false").push(grey(SIDE * SIDE * 3));
    assert_eq!(masks(&buffer), [([32, 24, 16, 16], 16 * 16), ([4, 8, 8, 8], 8 * 8)]);
}

#[test]
fn masks_that_are_missing_are_named() {
    let folder = scratch("detr-no-masks");
    let model = |name: &str, graph: Graph| graph.save(&folder.join(name));
    let bare = rf_detr(&folder);
    let fewer = graph(["dets", "labels"], 3, &LOGITS).constant("masks", &[1, 1, 4, 4], &[1.0; 16]);
    for model in [bare, model("fewer.onnx", fewer)] {
        let mut line = Line::new(&model, "layout=rf-detr-seg");
        assert!(line.try_push(grey(SIDE * SIDE * 3)).is_err());
        let said = line.said().concat();
        assert!(said.contains("do not fit layout=rf-detr-seg") && said.contains("masks f32 or f16 NxAxHxW"), "{said}");
    }
}
