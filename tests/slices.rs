// SPDX-License-Identifier: MPL-2.0
//! Slices: their tensors, where their objects are in the frame, what is merged, batches of them, and how much more they
//! find.

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::geometry::Rect;
use gsttrt_core::image::preprocess::HostPreprocessor;
use gsttrt_core::image::transform::InputSpec;

use crate::common::boxes::{Line, found, grey, model};
use crate::common::onnx::{F32, Graph, I32, I64, brightness, int};
use crate::common::preprocess::{Bench, info, video};
use crate::common::random::Random;
use crate::common::{launch, path, scratch};

type Place = (u32, u32, u32, u32);

/// Labels and places of what a line finds in a grey frame of that size.
fn places(line: &mut Line, (width, height): (u32, u32)) -> Vec<(String, Place)> {
    line.caps("RGB", width, height);
    let objects = found(&line.push(grey(width.next_multiple_of(4) * height * 3)));
    objects.into_iter().map(|found| (found.label, found.rect)).collect()
}

fn named(objects: &[(&str, Place)]) -> Vec<(String, Place)> {
    objects.iter().map(|&(label, place)| (label.to_string(), place)).collect()
}

/// Each tensor has the bytes that preprocessing of that part alone gives.
#[test]
fn tensors_of_slices_are_those_of_parts_of_the_frame() {
    let (width, height) = (50, 38);
    let mut random = Random(3);
    for (properties, wanted) in [
        ("slices=2x1 slice-overlap=0 slice-frame=false", vec![[0, 0, 25, 38], [25, 0, 50, 38]]),
        ("slices=1x2 slice-overlap=0.5", vec![[0, 0, 50, 26], [0, 12, 50, 38], [0, 0, 50, 38]]),
        ("slice-size=30x38", vec![[0, 0, 30, 38], [20, 0, 50, 38], [0, 0, 50, 38]]),
        (
            "slice-size=30x38 slice-overlap=0.6 slice-frame=false",
            vec![[0, 0, 30, 38], [12, 0, 42, 38], [20, 0, 50, 38]],
        ),
    ] {
        for format in [PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420] {
            let caps = video(format.name(), width, height, ",colorimetry=bt601");
            let info = info(&caps);
            let bytes: Vec<u8> = (0..info.size()).map(|_| random.next() as u8).collect();
            let mut bench = Bench::with_caps(&format!("tensor-size=24x16 {properties}"), &caps);
            let input = bench.tensor(gst::Buffer::from_slice(bytes.clone()));
            let list = &input.0.inputs().list;
            let sources: Vec<[u32; 4]> = (list.iter().map(|picture| picture.letterbox.source))
                .map(|Rect { left, top, right, bottom }| [left, top, right, bottom])
                .collect();
            assert_eq!(sources, wanted, "{properties}");
            let spec: InputSpec = "cpu f32 1x3x16x24 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
            let planes = (0..info.n_planes() as usize)
                .map(|plane| Plane { data: &bytes[info.offset()[plane]..], stride: info.stride()[plane] as usize });
            let (columns, rows) = (width as usize, height as usize);
            let frame = Frame { format, width: columns, height: rows, planes: planes.collect() };
            for picture in list {
                let mut tensor = vec![0; spec.desc.bytes().unwrap()];
                let (size, source) = ((columns, rows), picture.letterbox.source);
                let mut host =
                    HostPreprocessor::of_region(format, size, source, Colorimetry::default(), &spec).unwrap();
                host.run(&frame, &mut tensor).unwrap();
                assert_eq!(*host.letterbox(), picture.letterbox);
                assert!(picture.tensors[0].bytes() == Some(&tensor[..]), "{properties} {source:?} {}", format.name());
            }
        }
    }
}

/// One box in each slice of 64x64, which a model over 64x64 always finds.
fn line(test: &str, rows: &[[f32; 6]], preprocess: &str, nms: &str) -> Line {
    let model = model(&scratch(test), rows);
    Line::parse(&format!("trtpreprocess {preprocess} ! trtinfer model-file={model} ! trtnms draw=false {nms}"))
}

#[test]
fn objects_are_where_their_slices_are() {
    let row = [8.0, 16.0, 24.0, 32.0, 0.9, 1.0];
    let mut line = line("slices-places", &[row], "slices=2x2 slice-overlap=0 slice-frame=false", "");
    let at = |x: u32, y: u32| ("b", (x + 8, y + 16, 16, 16));
    assert_eq!(places(&mut line, (128, 128)), named(&[at(0, 0), at(64, 0), at(0, 64), at(64, 64)]));
    // Slices of 32x64 are scaled by 1, between 16 columns of padding.
    let at = |x: u32, y: u32| ("b", (x, y + 16, 8, 16));
    assert_eq!(places(&mut line, (64, 128)), named(&[at(0, 0), at(32, 0), at(0, 64), at(32, 64)]));
}

#[test]
fn the_whole_frame_is_a_slice_too() {
    let row = [8.0, 16.0, 24.0, 32.0, 0.9, 1.0];
    for (with_frame, more) in [("true", Some(("b", (16, 0, 32, 32)))), ("false", None)] {
        let mut line = line(
            "slices-frame",
            &[row],
            &format!("slices=2x1 slice-overlap=0 slice-frame={with_frame}"),
            "merge-threshold=1",
        );
        let slices = [("b", (8, 16, 16, 16)), ("b", (72, 16, 16, 16))];
        let all: Vec<_> = slices.into_iter().chain(more).collect();
        assert_eq!(places(&mut line, (128, 64)), named(&all), "{with_frame}");
    }
}

#[test]
fn each_property_of_merging_shows() {
    // Slices begin at 0 and 32: boxes from 0 to 64, and from 32 to 96, of which a half is common.
    let rows = [[0.0, 16.0, 64.0, 48.0, 0.9, 1.0], [0.0, 0.0, 8.0, 8.0, 0.8, 0.0]];
    let slices = "slice-size=64x64 slice-overlap=0.5 slice-frame=false";
    let (first, second) = (("b", (0, 16, 64, 32)), ("b", (32, 16, 64, 32)));
    let small = [("a", (0, 0, 8, 8)), ("a", (32, 0, 8, 8))];
    for (nms, wanted) in [
        ("", vec![("b", (0, 16, 96, 32))]),
        ("merge=nms", vec![first]),
        ("merge-metric=iou", vec![first, second]),
        ("merge-metric=iou merge-threshold=0.3", vec![("b", (0, 16, 96, 32))]),
        ("merge-threshold=0.51", vec![first, second]),
        ("max-detections=1", vec![("b", (0, 16, 96, 32))]),
    ] {
        let mut line = line("slices-merge", &rows, slices, nms);
        let few = if nms.starts_with("max") { 0 } else { 2 };
        let all: Vec<_> = wanted.into_iter().chain(small.into_iter().take(few)).collect();
        assert_eq!(places(&mut line, (96, 64)), named(&all), "{nms}");
    }
    // Of another class, unless classes do not matter.
    let rows = [[0.0, 16.0, 64.0, 48.0, 0.9, 1.0], [0.0, 18.0, 64.0, 46.0, 0.8, 0.0]];
    for (nms, count) in [("iou-threshold=0.9", 2), ("iou-threshold=0.9 class-agnostic=true", 1)] {
        assert_eq!(places(&mut line("slices-classes", &rows, slices, nms), (96, 64)).len(), count, "{nms}");
    }
}

/// The structures of that name of all objects.
fn structures(buffer: &gst::BufferRef, name: &str) -> Vec<gst::Structure> {
    let metas = buffer.iter_meta::<VideoRegionOfInterestMeta>();
    metas.map(|meta| meta.param(name).expect("each object has one").to_owned()).collect()
}

fn numbers(structure: &gst::Structure, field: &str) -> Vec<f64> {
    structure.get::<gst::Array>(field).unwrap().iter().map(|value| value.get().unwrap()).collect()
}

/// A model that is end to end, with one row.
fn one_row(test: &str, task: &str, row: &[f32], more: impl FnOnce(Graph) -> Graph) -> String {
    let mut values = vec![0.0; 300 * row.len()];
    values[..row.len()].copy_from_slice(row);
    let graph = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 300, row.len() as i64], &values)
        .metadata("task", task)
        .metadata("end2end", "True")
        .metadata("names", "{0: 'cat', 1: 'dog'}");
    more(graph).save(&scratch(test).join("model.onnx"))
}

#[test]
fn masks_are_where_their_slices_are_and_become_one() {
    // The left half of each slice.
    let side = 16;
    let prototype: Vec<f32> = (0..side * side).map(|at| if at % side < side / 2 { 1.0 } else { -1.0 }).collect();
    let model = one_row("slices-masks", "segment", &[0.0, 16.0, 64.0, 48.0, 0.9, 1.0, 1.0], |graph| {
        graph.constant("output1", &[1, 1, side as i64, side as i64], &prototype)
    });
    for (overlap, nms, wanted) in [
        // Apart, at 0 and 64.
        (0.0, "", vec![[0, 32], [64, 96]]),
        // From 0 to 32, and from 32 to 64.
        (0.5, "", vec![[0, 64]]),
        (0.5, "merge=nms", vec![[0, 32]]),
    ] {
        let slices = format!("slice-size=64x64 slice-overlap={overlap} slice-frame=false");
        let mut line =
            Line::parse(&format!("trtpreprocess {slices} ! trtinfer model-file={model} ! trtnms draw=true {nms}"));
        let width = if overlap == 0.0 { 128 } else { 96 };
        line.caps("RGB", width, 64);
        let buffer = line.push(grey(width * 64 * 3));
        let masks: Vec<[u32; 2]> = structures(&buffer, "mask")
            .iter()
            .map(|mask| {
                let number = |name| mask.get::<u32>(name).unwrap();
                let rect = Rect {
                    left: number("mask-x"),
                    top: number("mask-y"),
                    right: number("mask-x") + number("mask-width"),
                    bottom: number("mask-y") + number("mask-height"),
                };
                let mask =
                    gsttrt_core::image::masks::Mask::from_counts(rect, mask.get("mask-counts").unwrap()).unwrap();
                let columns: Vec<u32> = (0..width).filter(|&x| mask.contains(x, 20)).collect();
                assert_eq!(mask.area(), columns.len() as u64 * 32, "{nms}");
                [columns[0], columns[columns.len() - 1] + 1]
            })
            .collect();
        assert_eq!(masks, wanted, "{overlap} {nms}");
    }
}

#[test]
fn keypoints_and_rotated_boxes_are_where_their_slices_are() {
    let slices = "trtpreprocess slices=2x1 slice-overlap=0 slice-frame=false";
    let pose =
        one_row("slices-pose", "pose", &[8.0, 8.0, 24.0, 24.0, 0.9, 0.0, 10.0, 12.0, 0.5, 20.0, 22.0, 1.0], |graph| {
            graph.metadata("kpt_shape", "[2, 3]")
        });
    let obb = one_row("slices-obb", "obb", &[32.0, 32.0, 20.0, 10.0, 0.9, 1.0, 0.0], |graph| graph);
    for (model, structure, field, wanted) in [
        (
            pose,
            "keypoints",
            "keypoints",
            [vec![10.0, 12.0, 0.5, 20.0, 22.0, 1.0], vec![74.0, 12.0, 0.5, 84.0, 22.0, 1.0]],
        ),
        (
            obb,
            "rotation",
            "corners",
            [
                vec![42.0, 37.0, 42.0, 27.0, 22.0, 27.0, 22.0, 37.0],
                vec![106.0, 37.0, 106.0, 27.0, 86.0, 27.0, 86.0, 37.0],
            ],
        ),
    ] {
        let mut line = Line::parse(&format!("{slices} ! trtinfer model-file={model} ! trtnms"));
        line.caps("RGB", 128, 64);
        let buffer = line.push(grey(128 * 64 * 3));
        let have: Vec<Vec<f64>> = structures(&buffer, structure).iter().map(|found| numbers(found, field)).collect();
        assert_eq!(have, wanted, "{structure}");
    }
}

/// A frame of three slices of 64x64, with a grey of its own in each.
fn three_greys(greys: [u8; 3]) -> gst::Buffer {
    let row: Vec<u8> = greys.iter().flat_map(|&grey| [grey; 64 * 3]).collect();
    gst::Buffer::from_mut_slice(row.repeat(64))
}

/// The brightness found in each slice, from left to right.
fn levels(buffer: &gst::BufferRef) -> Vec<(u32, u8)> {
    let mut levels: Vec<_> =
        found(buffer).iter().map(|found| (found.rect.0, (found.confidence * 255.0).round() as u8)).collect();
    levels.sort_unstable();
    levels
}

#[test]
fn slices_of_a_frame_are_run_in_batches() {
    for (batch, infer, batches) in [
        ("1", "", [3, 3]),
        ("n", "batch-size=3", [1, 3]),
        ("n", "batch-size=2", [2, 3]),
        ("n", "batch-size=8 batch-timeout=10000000", [1, 3]),
        ("2", "batch-size=2", [2, 3]),
    ] {
        let model = brightness(batch).save(&scratch(&format!("slices-batch-{batch}")).join("brightness.onnx"));
        let mut line = Line::parse(&format!(
            "trtpreprocess slices=3x1 slice-overlap=0 slice-frame=false ! trtinfer model-file={model} {infer} \
             ! trtnms score-threshold=0 draw=false"
        ));
        line.caps("RGB", 192, 64);
        for greys in [[10, 20, 30], [200, 100, 50]] {
            let buffer = line.push(three_greys(greys));
            assert_eq!(levels(&buffer), [(8, greys[0]), (72, greys[1]), (136, greys[2])], "{batch} {infer}");
        }
        let stats = line.element("trtinfer").property::<gst::Structure>("stats");
        let counts = ["batches", "batched"].map(|name| stats.get::<u64>(name).unwrap());
        assert_eq!(counts, batches.map(|count| 2 * count), "{batch} {infer}");
        assert_eq!(line.said(), [""; 0]);
    }
}

/// Two streams of slices in common batches: each frame has the objects of its own slices.
#[test]
fn streams_share_a_model_for_their_slices() {
    let model = brightness("n").save(&scratch("slices-shared").join("brightness.onnx"));
    let infer = format!("trtinfer model-file={model} shared-model=slices batch-size=6 batch-timeout=1000");
    let slices = "trtpreprocess slices=3x1 slice-overlap=0 slice-frame=false";
    let lines: Vec<_> = (0..2u8)
        .map(|stream| {
            let line = format!("{slices} ! {infer} ! queue ! trtnms score-threshold=0 draw=false");
            std::thread::spawn(move || {
                let mut line = Line::parse(&line);
                line.caps("RGB", 192, 64);
                for frame in 0..12u8 {
                    let grey = 100 * stream + 6 * frame + 10;
                    let buffer = line.push(three_greys([grey, grey + 2, grey + 4]));
                    assert_eq!(levels(&buffer), [(8, grey), (72, grey + 2), (136, grey + 4)]);
                }
            })
        })
        .collect();
    lines.into_iter().for_each(|line| line.join().unwrap());
}

#[test]
fn an_open_model_is_asked_for_the_size_of_slices() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "h", "w"])
        .constant("output0", &[1, 1, 6], &[0.0, 0.0, 16.0, 16.0, 0.9, 0.0])
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32")
        .save(&scratch("slices-open").join("open.onnx"));
    // The frame is twice as wide as high, and slices are twice as high as wide.
    for (slices, tensor) in [("", "1x3x32x64"), ("slices=4x1 slice-overlap=0", "1x3x64x32")] {
        let mut line = Line::parse(&format!("trtpreprocess {slices} ! trtinfer model-file={model} ! trtnms"));
        line.caps("RGB", 256, 128);
        line.push(grey(256 * 128 * 3));
        let info = line.element("trtinfer").property::<gst::Structure>("model-info");
        assert!(info.get::<&str>("tensor").unwrap().contains(tensor), "{slices}: {info}");
    }
}

#[test]
fn what_cannot_be_sliced_is_refused() {
    let folder = scratch("slices-refused");
    let detector = model(&folder, &[[8.0, 8.0, 24.0, 24.0, 0.9, 0.0]]);
    let classifier = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 3], &[0.5, 0.25, 0.25])
        .metadata("task", "classify")
        .save(&folder.join("classifier.onnx"));
    for (slices, infer, domain, parts) in [
        (
            "slice-size=128x64",
            "",
            "CoreError::Negotiation",
            &["Slices are larger than the frame", "128x64 pixels, the frame 64x64"][..],
        ),
        ("slices=8x8", "", "CoreError::Negotiation", &["at most 64", "65"]),
        ("slices=2x2 slice-overlap=1", "", "LibraryError::Settings", &["slice-overlap=1", "below 1"]),
        ("slices=2", "", "LibraryError::Settings", &["slices=2"]),
        ("slices=2x2 slice-size=32x32", "", "LibraryError::Settings", &["exclude each other"]),
    ] {
        let line = format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess {slices} \
             ! trtinfer model-file={detector} {infer} ! trtnms ! fakesink"
        );
        let outcome = launch(&line);
        let text = outcome.error_text().to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{slices}: {text} ({domain})");
    }
    let line = format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess slices=2x2 \
         ! trtinfer model-file={classifier} ! trtnms ! fakesink"
    );
    let outcome = launch(&line);
    assert!(outcome.error_text().contains("classifies pictures"), "{}", outcome.error_text());
}

#[test]
fn maps_are_of_whole_frames() {
    let folder = scratch("slices-map");
    let map = Graph::new()
        .input("images", F32, &["1", "1", "8", "8"])
        .node("Cast", &["images"], &["ids"], vec![int("to", I32.into())])
        .weight("plane", I64, &[3], [1i64, 8, 8].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("Reshape", &["ids", "plane"], &["output0"], vec![])
        .output("output0", I32, &["1", "8", "8"])
        .metadata("task", "semantic")
        .save(&folder.join("map.onnx"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess slices=2x2 \
         ! trtinfer model-file={map} ! trtnms ! fakesink"
    ));
    assert!(outcome.error_text().contains("gives a map of the whole picture"), "{}", outcome.error_text());
}

/// Discs of 12 pixels in a frame of 3840x2160, and their centres.
fn discs(count: usize) -> (Vec<u8>, Vec<(f32, f32)>) {
    let (width, height, radius) = (3840usize, 2160usize, 6.0f32);
    let mut random = Random(11);
    let across: Vec<f32> = (0..width).map(|x| 96.0 + 24.0 * (x as f32 / 700.0).sin()).collect();
    let mut pixels = vec![0u8; 3 * width * height];
    for (y, row) in pixels.chunks_exact_mut(3 * width).enumerate() {
        let down = 16.0 * (y as f32 / 450.0).cos();
        for (pixel, across) in row.chunks_exact_mut(3).zip(&across) {
            let grey = across + down + random.between(-2.0, 2.0);
            pixel[0] = grey as u8;
            pixel[1] = grey as u8;
            pixel[2] = (grey + 8.0) as u8;
        }
    }
    let mut centres: Vec<(f32, f32)> = Vec::new();
    while centres.len() < count {
        let (x, y) = (random.between(12.0, width as f32 - 12.0), random.between(12.0, height as f32 - 12.0));
        if centres.iter().any(|&(a, b)| (a - x).hypot(b - y) < 48.0) {
            continue;
        }
        centres.push((x, y));
        let color =
            random.one_of(&[[230.0, 60.0, 40.0], [250.0, 240.0, 230.0], [20.0, 30.0, 60.0], [250.0, 210.0, 20.0f32]]);
        for row in (y - radius - 1.0) as usize..=(y + radius + 1.0) as usize {
            for column in (x - radius - 1.0) as usize..=(x + radius + 1.0) as usize {
                let distance = (column as f32 + 0.5 - x).hypot(row as f32 + 0.5 - y);
                let cover = (radius + 0.5 - distance).clamp(0.0, 1.0);
                for (channel, color) in color.iter().enumerate() {
                    let pixel = &mut pixels[3 * (row * width + column) + channel];
                    *pixel = (f32::from(*pixel) * (1.0 - cover) + color * cover) as u8;
                }
            }
        }
    }
    (pixels, centres)
}

/// The part of the discs that are found in a frame, and how many objects more.
fn recall(preprocess: &str, pixels: Vec<u8>, centres: &[(f32, f32)]) -> (f32, usize) {
    let mut line = Line::parse(&format!(
        "trtpreprocess {preprocess} ! trtinfer model-file={} ! trtnms draw=false classes=disc",
        path("tests/models/shapes.onnx")
    ));
    line.caps("RGB", 3840, 2160);
    let objects = found(&line.push(gst::Buffer::from_slice(pixels)));
    let is_at = |&(x, y): &(f32, f32), object: &crate::common::boxes::Found| {
        let [left, top, right, bottom] = object.corners.map(|corner| corner as f32);
        let (left, right, top, bottom) = (left * 3840.0, right * 3840.0, top * 2160.0, bottom * 2160.0);
        let common =
            (right.min(x + 6.0) - left.max(x - 6.0)).max(0.0) * (bottom.min(y + 6.0) - top.max(y - 6.0)).max(0.0);
        common / (144.0 + (right - left) * (bottom - top) - common) > 0.5
    };
    let seen = centres.iter().filter(|centre| objects.iter().any(|object| is_at(centre, object))).count();
    (seen as f32 / centres.len() as f32, objects.len() - seen)
}

#[test]
fn small_objects_of_a_large_frame_are_found() {
    let (pixels, centres) = discs(120);
    let (plain, _) = recall("", pixels.clone(), &centres);
    assert!(plain <= 0.3, "{plain}");
    let (sliced, others) = recall("slice-size=512x512", pixels, &centres);
    println!("recall {sliced} in slices, {plain} without; {others} others");
    assert!(sliced >= 0.95 && others <= 6, "{sliced} {others}");
}
