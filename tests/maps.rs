// SPDX-License-Identifier: MPL-2.0
//! Maps of classes, depths and objects: their values, where they can be read, and how they are drawn.

use std::path::Path;

use gst::meta::CustomMeta;
use gst::prelude::*;
use gst_video::{VideoFormat, VideoMeta};
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, MapKind, PixelMap, parse_options};

use crate::common::boxes::{GREY, Line, SIDE, drawn, grey};
use crate::common::onnx::{F32, Graph, I32, I64, U8};
use crate::common::{launch, scratch};

const NAMES: &str = "{0: 'road', 1: 'car', 2: 'sky'}";

/// A model over 64x64 with one output that is always the same.
fn model(elem_type: i32, dims: &[i64], raw: Vec<u8>) -> Graph {
    let texts: Vec<String> = dims.iter().map(i64::to_string).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .weight("value", elem_type, dims, raw)
        .node("Identity", &["value"], &["output0"], Vec::new())
        .output("output0", elem_type, &texts)
}

fn floats(dims: &[i64], values: &[f32]) -> Graph {
    model(F32, dims, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// Ids of an 8x8 map: sky above, road below, a car of 2x2 on it.
fn ids() -> Vec<u8> {
    let is_car = |x: usize, y: usize| (2..4).contains(&x) && (5..7).contains(&y);
    (0..64).map(|at| if at < 32 { 2 } else { is_car(at % 8, at / 8).into() }).collect()
}

/// As Ultralytics exports it.
fn semantic() -> Graph {
    model(U8, &[1, 8, 8], ids()).metadata("task", "semantic").metadata("names", NAMES)
}

/// The same classes as logits, which have no metadata.
fn logits() -> Graph {
    let ids = ids();
    let values: Vec<f32> =
        (0..3u8).flat_map(|class| ids.iter().map(move |&id| if id == class { 4.0 } else { -4.0 })).collect();
    floats(&[1, 3, 8, 8], &values).metadata("task", "semantic").metadata("names", NAMES)
}

/// Rises from 1 on the left to 8 on the right.
fn depth() -> Graph {
    floats(&[1, 1, 8, 8], &(0..64).map(|at| (at % 8 + 1) as f32).collect::<Vec<_>>()).metadata("task", "depth")
}

/// What a structure of a map holds.
#[derive(Clone, Debug, PartialEq)]
struct Read {
    kind: String,
    size: (u32, u32),
    /// Left, top, width and height.
    place: [f64; 4],
    /// Id, label, class and share.
    regions: Vec<(u32, String, u32, f64)>,
    range: Option<(f64, f64)>,
}

fn read(map: &gst::StructureRef) -> Read {
    let region = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().unwrap();
        let number = |name| region.get::<u32>(name).unwrap();
        (number("id"), region.get("label").unwrap(), number("class-id"), region.get("share").unwrap())
    };
    Read {
        kind: map.get("kind").unwrap(),
        size: (map.get("map-width").unwrap(), map.get("map-height").unwrap()),
        place: ["x", "y", "w", "h"].map(|name| map.get(name).unwrap()),
        regions: map.get::<gst::Array>("regions").unwrap_or_default().iter().map(region).collect(),
        range: map.get("minimum").ok().map(|minimum| (minimum, map.get("maximum").unwrap())),
    }
}

/// The structures of the maps on a frame.
fn structures(buffer: &gst::BufferRef) -> Vec<gst::Structure> {
    let Ok(meta) = CustomMeta::from_buffer(buffer, "GstTrtMapMeta") else { return Vec::new() };
    meta.structure().get::<gst::Array>("maps").unwrap().iter().map(|map| map.get().unwrap()).collect()
}

/// The pixels of a map's picture, and its format.
fn picture(map: &gst::StructureRef) -> (VideoFormat, Vec<u16>) {
    let picture = map.get::<gst::Buffer>("picture").unwrap();
    let meta = picture.meta::<VideoMeta>().unwrap();
    let bytes = picture.map_readable().unwrap();
    let pixels: Vec<u16> = match meta.format() {
        VideoFormat::Gray8 => bytes.iter().map(|&value| value.into()).collect(),
        _ => bytes.as_chunks().0.iter().map(|&value| u16::from_le_bytes(value)).collect(),
    };
    assert_eq!(pixels.len(), (meta.width() * meta.height()) as usize);
    (meta.format(), pixels)
}

fn regions(list: &[(u32, &str, f64)]) -> Vec<(u32, String, u32, f64)> {
    list.iter().map(|&(id, label, share)| (id, label.to_string(), id, share)).collect()
}

fn frame() -> gst::Buffer {
    grey(SIDE * SIDE * 3)
}

#[test]
fn classes_are_attached_and_posted() {
    let folder = scratch("maps-classes");
    let all = regions(&[(0, "road", 28.0 / 64.0), (1, "car", 4.0 / 64.0), (2, "sky", 0.5)]);
    let wide = |bytes: usize| ids().into_iter().flat_map(move |id| [vec![id], vec![0; bytes - 1]].concat()).collect();
    let labelled = |graph: Graph| graph.metadata("task", "semantic").metadata("names", NAMES);
    for (name, graph) in [
        ("u8", semantic()),
        ("i32", labelled(model(I32, &[1, 8, 8], wide(4)))),
        ("i64", labelled(model(I64, &[1, 1, 8, 8], wide(8)))),
        ("unnamed", model(U8, &[1, 8, 8], ids()).metadata("names", NAMES)),
    ] {
        let model = graph.save(&folder.join(format!("{name}.onnx")));
        let mut line = Line::new(&model, "post-messages=true");
        let buffer = line.push(frame());
        let maps = structures(&buffer);
        let expected = Read {
            kind: "classes".into(),
            size: (64, 64),
            place: [0.0, 0.0, 64.0, 64.0],
            regions: all.clone(),
            range: None,
        };
        assert_eq!(maps.iter().map(|map| read(map)).collect::<Vec<_>>(), std::slice::from_ref(&expected), "{name}");
        let (format, pixels) = picture(&maps[0]);
        let ids = ids();
        let scaled: Vec<u16> = (0..64 * 64).map(|at| ids[at / 64 / 8 * 8 + at % 64 / 8].into()).collect();
        assert!((format, &pixels) == (VideoFormat::Gray8, &scaled), "{name}");
        let message = &line.messages()[0];
        assert_eq!(read(&message.get::<gst::Structure>("map").unwrap()), expected);
        assert!(!message.to_string().contains("picture"), "{message}");
        assert_eq!(message.to_string().parse::<gst::Structure>().unwrap(), *message, "its text can be read back");
        assert_eq!(line.said(), [] as [String; 0]);
    }
}

#[test]
fn logits_are_scaled_before_the_class_is_chosen() {
    let folder = scratch("maps-logits");
    let mut line = Line::new(&logits().save(&folder.join("logits.onnx")), "draw=false");
    let map = structures(&line.push(frame())).remove(0);
    let (_, pixels) = picture(&map);
    // In the middle of each it is the same; between three classes corners are rounded.
    let ids = ids();
    let middle = |at: usize| pixels[(at / 8 * 8 + 4) * 64 + at % 8 * 8 + 4];
    assert!((0..64).all(|at| middle(at) == u16::from(ids[at])), "{pixels:?}");
    let car = read(&map).regions[1].3 * 4096.0;
    assert!(car > 220.0 && car < 256.0, "{car} pixels of 256");
    // Names of outputs say it too, without metadata; and torchvision's second one is not taken.
    let values = [vec![0.0f32; 64], vec![1.0; 64]].concat();
    for (names, is_taken) in [(&["out", "aux"][..], true), (&["logits"], true), (&["heatmap"], false)] {
        let mut graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]);
        for name in names {
            graph = graph.constant(name, &[1, 2, 8, 8], &values);
        }
        let model = graph.save(&folder.join("named.onnx"));
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms ! fakesink"
        ));
        if is_taken {
            outcome.expect_success()
        } else {
            assert!(outcome.error_text().contains("semantic-logits"), "{}", outcome.error_text())
        }
    }
}

/// As of DBNet and Anomalib, whose outputs no name tells from depths.
#[test]
fn probabilities_of_a_single_class_have_a_threshold() {
    let values: Vec<f32> = (0..64).map(|at| (at % 8) as f32 / 8.0).collect();
    let model = floats(&[1, 1, 8, 8], &values).save(&scratch("maps-threshold").join("model.onnx"));
    let mut line = Line::new(&model, "layout=semantic-logits draw=false map-threshold=0.3125");
    let share = |line: &mut Line| -> f64 {
        read(&structures(&line.push(frame()))[0]).regions.iter().map(|region| region.3).sum()
    };
    // Halfway from the third column to the fourth.
    assert_eq!(share(&mut line), 5.0 / 8.0);
    line.nms().set_property("map-threshold", 0.5625f32);
    assert_eq!(share(&mut line), 3.0 / 8.0);
    line.nms().set_property("map-threshold", 2.0f32);
    assert_eq!(share(&mut line), 0.0);
}

#[test]
fn depths_are_attached_and_posted() {
    let folder = scratch("maps-depth");
    let plain = |dims: &[i64]| floats(dims, &(0..64).map(|at| (at % 8 + 1) as f32).collect::<Vec<_>>());
    for (name, graph, properties) in [
        ("ultralytics", depth(), ""),
        ("depth-anything", plain(&[1, 8, 8]), "layout=depth"),
        ("midas", plain(&[1, 1, 8, 8]), "layout=depth"),
    ] {
        let model = graph.save(&folder.join(format!("{name}.onnx")));
        let mut line = Line::new(&model, &format!("post-messages=true {properties}"));
        let maps = structures(&line.push(frame()));
        let found = read(&maps[0]);
        assert_eq!((found.kind.as_str(), found.range, found.regions.len()), ("depth", Some((1.0, 8.0)), 0), "{name}");
        let (format, pixels) = picture(&maps[0]);
        assert_eq!(format, VideoFormat::Gray16Le);
        assert_eq!((pixels[0], pixels[63]), (0, u16::MAX));
        assert!(pixels[..64].is_sorted() && pixels.chunks(64).all(|row| row == &pixels[..64]), "{name}");
        let message = line.messages().remove(0);
        assert_eq!(read(&message.get::<gst::Structure>("map").unwrap()), found);
        assert_eq!(message.to_string().parse::<gst::Structure>().unwrap(), message);
    }
    // What it is is in neither file nor properties.
    let model = plain(&[1, 8, 8]).save(&folder.join("unknown.onnx"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={model} ! trtnms ! fakesink"
    ));
    assert!(outcome.error_text().contains("depth"), "{}", outcome.error_text());
}

#[test]
fn the_padding_is_cut_off() {
    let folder = scratch("maps-padding");
    let mut line = Line::new(&semantic().save(&folder.join("semantic.onnx")), "draw=false");
    // Of 64 rows of the input, 16 above and 16 below are padding.
    line.caps("RGB", 128, 64);
    let map = structures(&line.push(grey(128 * 64 * 3))).remove(0);
    let found = read(&map);
    assert_eq!((found.size, found.place), ((64, 32), [0.0, 0.0, 128.0, 64.0]));
    assert_eq!(found.regions, regions(&[(0, "road", 7.0 / 16.0), (1, "car", 1.0 / 16.0), (2, "sky", 0.5)]));
    // Depth models get the whole frame stretched.
    let mut line = Line::new(&depth().save(&folder.join("depth.onnx")), "draw=false");
    line.caps("RGB", 128, 64);
    assert_eq!(read(&structures(&line.push(grey(128 * 64 * 3)))[0]).size, (64, 64));
}

#[test]
fn properties_choose_classes_and_output() {
    let model = semantic().save(&scratch("maps-properties").join("model.onnx"));
    let mut line = Line::new(&model, "classes=car,sky post-messages=true draw-labels=false");
    let buffer = line.push(frame());
    let map = structures(&buffer).remove(0);
    assert_eq!(read(&map).regions, regions(&[(1, "car", 4.0 / 64.0), (2, "sky", 0.5)]));
    assert_eq!(picture(&map).1[63 * 64], 255, "a class that is not wanted is none");
    let pixel =
        |buffer: &gst::BufferRef, x: usize, y: usize| buffer.map_readable().unwrap()[(y * 64 + x) * 3..][..3].to_vec();
    assert_eq!(pixel(&buffer, 0, 63), [GREY; 3], "and is not drawn");
    assert_ne!(pixel(&buffer, 0, 0), [GREY; 3]);
    line.messages();
    line.nms().set_property_from_str("mask-output", "none");
    let hidden = line.push(frame());
    assert!(structures(&hidden).is_empty(), "only drawn");
    assert_eq!(pixel(&hidden, 0, 0), pixel(&buffer, 0, 0));
    assert_eq!(read(&line.messages()[0].get::<gst::Structure>("map").unwrap()), read(&map), "sizes and shares");
    line.nms().set_property("mask-alpha", 0.0f32);
    assert_eq!(pixel(&line.push(frame()), 0, 0), [GREY; 3]);
    line.nms().set_property("mask-alpha", 1.0f32);
    let full = pixel(&line.push(frame()), 0, 0);
    assert!(
        full.iter().zip(pixel(&buffer, 0, 0)).all(|(full, half)| half.abs_diff(GREY) <= full.abs_diff(GREY)),
        "{full:?}"
    );
}

#[test]
fn maps_look_the_same_whoever_draws_them() {
    crate::common::init();
    let folder = scratch("maps-drawn");
    for (name, graph) in [("semantic", semantic()), ("depth", depth())] {
        let model = graph.save(&folder.join(format!("{name}.onnx")));
        let infer = format!("trtpreprocess ! trtinfer model-file={model}");
        for format in PixelFormat::ALL.map(PixelFormat::name) {
            for (style, size) in [("", (64, 64)), ("mask-alpha=0.8", (131, 51))] {
                let drawn = |elements: String| drawn(&elements, format, size);
                let fused = drawn(format!("{infer} ! trtnms draw=true {style}"));
                let apart = drawn(format!("{infer} ! trtnms draw=false ! trtoverlay {style}"));
                let without = drawn(format!("{infer} ! trtnms draw=false ! trtoverlay mask-alpha=0"));
                assert!(fused == apart && apart != without, "{name} {format} {style}");
            }
        }
    }
}

#[test]
fn a_scaled_frame_shows_the_map_where_it_was() {
    let model = semantic().save(&scratch("maps-scaled").join("model.onnx"));
    let drawn = |scale: &str| {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false {scale} ! trtoverlay"
        ));
        line.push(frame()).map_readable().unwrap().to_vec()
    };
    let (plain, scaled) = (drawn(""), drawn("! videoscale ! video/x-raw,width=128,height=32"));
    for (x, y) in [(3, 3), (20, 44), (60, 60), (12, 50)] {
        let at = |pixels: &[u8], x: usize, y: usize, width: usize| pixels[(y * width + x) * 3..][..3].to_vec();
        assert_eq!(at(&scaled, x * 2, y / 2, 128), at(&plain, x, y, 64), "{x} {y}");
    }
}

#[test]
fn skipped_frames_repeat_the_map() {
    let model = semantic().save(&scratch("maps-held").join("model.onnx"));
    for (properties, expected) in [("", [Some(false), Some(true)]), ("hold-detections=false", [Some(false), None])] {
        let mut line =
            Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=2 ! trtnms {properties}"));
        for expected in expected {
            let buffer = line.push(frame());
            let maps = structures(&buffer);
            assert_eq!(maps.first().map(|map| map.get::<bool>("held").is_ok()), expected);
            let is_drawn = buffer.map_readable().unwrap()[0] != GREY;
            assert_eq!(is_drawn, expected.is_some(), "{properties}");
        }
    }
}

#[test]
fn maps_of_two_models_follow_each_other() {
    let folder = scratch("maps-two");
    let (first, second) = (semantic().save(&folder.join("first.onnx")), depth().save(&folder.join("second.onnx")));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms ! trtpreprocess ! trtinfer model-file={second} ! trtnms"
    ));
    let kinds: Vec<String> = structures(&line.push(frame())).iter().map(|map| read(map).kind).collect();
    assert_eq!(kinds, ["classes", "depth"]);
}

#[test]
fn odd_maps_are_right_or_an_error() {
    let folder = scratch("maps-odd");
    let found = |graph: Graph, properties: &str| {
        let mut line = Line::new(&graph.save(&folder.join("model.onnx")), properties);
        let map = structures(&line.push(frame())).remove(0);
        // What is no number is told, and nothing else.
        assert!(line.said().iter().all(|text| text.contains("not finite")));
        (read(&map), picture(&map).1)
    };
    // One class: where a logit is above 0, or an id is 1.
    let half: Vec<f32> = (0..64).map(|at| if at < 32 { 1.0 } else { -1.0 }).collect();
    let one = floats(&[1, 1, 8, 8], &half).metadata("task", "semantic").metadata("names", "{0: 'car'}");
    assert_eq!(found(one, "").0.regions, regions(&[(0, "car", 0.5)]));
    let bytes = half.iter().map(|&value| u8::from(value > 0.0)).collect();
    let one = model(U8, &[1, 8, 8], bytes).metadata("task", "semantic").metadata("names", "{0: 'car'}");
    assert_eq!(found(one, "").0.regions, regions(&[(0, "car", 0.5)]));
    // Ids above the labels belong to no class.
    let above = model(U8, &[1, 8, 8], vec![7; 64]).metadata("task", "semantic").metadata("names", NAMES);
    let (read_above, pixels) = found(above, "");
    assert!(read_above.regions.is_empty() && pixels.iter().all(|&pixel| pixel == 255));
    // Without labels they are numbers.
    let unnamed = model(U8, &[1, 8, 8], vec![7; 64]).metadata("task", "semantic");
    assert_eq!(found(unnamed, "").0.regions, regions(&[(7, "#7", 1.0)]));
    // More classes than a byte has values.
    let ids = [[44u8, 1, 0, 0].repeat(32), [0u8, 0, 0, 0].repeat(32)].concat();
    let names: Vec<String> = (0..301).map(|class| format!("{class}: 'c{class}'")).collect();
    let many = model(I32, &[1, 8, 8], ids)
        .metadata("task", "semantic")
        .metadata("names", &format!("{{{}}}", names.join(", ")));
    let (read_many, pixels) = found(many, "");
    assert_eq!(read_many.regions, regions(&[(0, "c0", 0.5), (300, "c300", 0.5)]));
    assert_eq!((pixels[0], pixels[4095]), (300, 0));
    // What is no number has no class; a single pixel fills the frame.
    let nothing = floats(&[1, 2, 8, 8], &[f32::NAN; 128]).metadata("task", "semantic");
    assert!(found(nothing, "").0.regions.is_empty());
    let single = floats(&[1, 2, 1, 1], &[0.0, 1.0]).metadata("task", "semantic");
    assert_eq!(found(single, "").0.regions, regions(&[(1, "#1", 1.0)]));
    let single = model(U8, &[1, 1, 1], vec![1]).metadata("task", "semantic").metadata("names", NAMES);
    assert_eq!(found(single, "").0.regions, regions(&[(1, "car", 1.0)]));
    let single = floats(&[1, 1, 1, 1], &[2.5]).metadata("task", "depth");
    let (single, pixels) = found(single, "");
    assert!(single.range == Some((2.5, 2.5)) && pixels.iter().all(|&pixel| pixel == 0), "{single:?}");
    // One pixel of 8x8, away from whose neighbours the others keep their depth.
    for (odd, value) in [(f32::INFINITY, u16::MAX), (f32::NEG_INFINITY, 0), (f32::NAN, 0)] {
        let depths: Vec<f32> = (0..64).map(|at| if at == 0 { odd } else { (at % 8 + 1) as f32 }).collect();
        let (odd, pixels) = found(floats(&[1, 1, 8, 8], &depths).metadata("task", "depth"), "");
        assert_eq!(odd.range, Some((1.0, 8.0)));
        assert_eq!((pixels[0], pixels[60 * 64], pixels[60 * 64 + 63]), (value, 0, u16::MAX));
    }
    for (value, range) in [(3.5, (3.5, 3.5)), (f32::NAN, (0.0, 0.0)), (f32::INFINITY, (0.0, 0.0))] {
        let (constant, pixels) = found(floats(&[1, 1, 8, 8], &[value; 64]).metadata("task", "depth"), "");
        assert_eq!(constant.range, Some(range));
        assert!(pixels.iter().all(|&pixel| pixel == 0));
    }
    for (graph, properties, says) in [
        (logits(), "classes=train", "no class “train”"),
        (floats(&[1, 2, 8, 8], &[0.0; 128]).metadata("task", "semantic").metadata("names", NAMES), "", "2 classes"),
        (floats(&[1, 64], &[0.0; 64]).metadata("task", "semantic"), "", "No layout fits"),
        (floats(&[1, 3, 8, 8], &[0.0; 192]).metadata("task", "depth"), "", "No layout fits"),
        (semantic(), "layout=depth", "the model's is “semantic”"),
        (floats(&[1, 70000, 1, 1], &[0.0; 70000]).metadata("task", "semantic"), "", "65535"),
    ] {
        let model = graph.save(&folder.join("wrong.onnx"));
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms {properties} ! fakesink"
        ));
        assert!(outcome.error_text().contains(says), "{says}: {}", outcome.error_text());
    }
}

fn detect(folder: &Path, graph: Graph, options: &[&str], run: impl FnOnce(Option<&PixelMap>)) {
    let (options, postprocess) = parse_options(options.iter().copied()).unwrap();
    let mut detector = Detector::open(graph.save(&folder.join("model.onnx")), &options, postprocess).unwrap();
    assert_eq!(detector.map(), None, "before the first frame");
    let pixels = vec![77; 128 * 64 * 3];
    let planes = [Plane { data: &pixels[..], stride: 128 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 128, height: 64, planes };
    assert_eq!(detector.detect(&frame, Colorimetry::default()).unwrap(), []);
    run(detector.map());
}

#[test]
fn a_detector_gives_maps() {
    let folder = scratch("maps-detector");
    detect(&folder, semantic(), &[], |map| {
        let map = map.unwrap();
        assert_eq!((map.kind(), map.width(), map.height()), (MapKind::Classes, 64, 32));
        let on_frame = map.on_frame((128, 64));
        assert_eq!((on_frame.len(), on_frame[0], on_frame[127 * 64]), (128 * 64, 2, 0));
        assert_eq!(map.regions().iter().map(|region| region.pixels).sum::<u32>(), 64 * 32);
    });
    detect(&folder, depth(), &[], |map| {
        let MapKind::Depth { minimum, maximum } = map.unwrap().kind() else { panic!("{map:?}") };
        let depth = |value: u16| minimum + (maximum - minimum) * f32::from(value) / 65535.0;
        let row: Vec<f32> = map.unwrap().values()[..64].iter().map(|&value| depth(value)).collect();
        assert_eq!((row[0], row[63]), (1.0, 8.0));
        assert!((row[28] - 4.0625).abs() < 1e-3, "{}", row[28]);
    });
    detect(&folder, semantic(), &["mask-output=none"], |map| assert_eq!(map, None));
}
