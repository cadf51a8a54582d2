// SPDX-License-Identifier: MPL-2.0
//! Models whose outputs look like those of another layout: what is found is right, or an error says what to do. None of them may be
//! decoded wrongly without a word.

use std::path::Path;

use gst::prelude::*;
use gsttrt_core::image::frame::{Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, SessionOptions, parse_options};

use crate::common::boxes::{Found, Line, SIDE};
use crate::common::onnx::{F16, F32, Graph, I32, I64};
use crate::common::{launch, scratch};

/// Left, top, width and height in pixels of the frame.
type Place = (u32, u32, u32, u32);

/// A model over 64x64 in the making.
fn picture() -> Graph {
    Graph::new().input("images", F32, &["1", "3", "64", "64"])
}

/// An output that is always the same, of these declared dimensions.
fn declared(graph: Graph, name: &str, elem_type: i32, declared: &[&str], dims: &[i64], values: &[f32]) -> Graph {
    let weight = format!("{name}_value");
    let raw = values.iter().flat_map(|&value| match elem_type {
        I64 => (value as i64).to_le_bytes().to_vec(),
        I32 => (value as i32).to_le_bytes().to_vec(),
        F16 => half::f16::from_f32(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    });
    let graph = graph.weight(&weight, elem_type, dims, raw.collect());
    graph.node("Identity", &[&weight], &[name], vec![]).output(name, elem_type, declared)
}

fn floats(graph: Graph, name: &str, dims: &[i64], values: &[f32]) -> Graph {
    graph.constant(name, dims, values)
}

/// What is found in a frame of 64x64: class, confidence in percent, place.
fn found(folder: &Path, graph: Graph, nms: &str) -> Vec<(i32, i32, Place)> {
    let model = graph.save(&folder.join("model.onnx"));
    let mut line = Line::new(&model, nms);
    let of = |found: Found| (found.class, (found.confidence * 100.0).round() as i32, found.rect);
    let all = line.found().into_iter().map(of).collect();
    assert_eq!(line.said(), [""; 0]);
    all
}

/// The error for a frame.
fn error(folder: &Path, graph: Graph, nms: &str) -> String {
    let model = graph.save(&folder.join("model.onnx"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width={SIDE},height={SIDE} ! trtpreprocess ! \
         trtinfer model-file={model} ! trtnms {nms} ! fakesink"
    ));
    outcome.error_text().to_string()
}

/// Two objects for layouts whose rows are objects: (8, 8) to (24, 24) of class 1 with 0.9, (32, 32) to (64, 48) of class 2 with 0.5.
const FIRST: (i32, i32, Place) = (1, 90, (8, 8, 16, 16));
const SECOND: (i32, i32, Place) = (2, 50, (32, 32, 32, 16));

#[test]
fn seven_columns_of_three_kinds() {
    let folder = scratch("misread-seven");
    // YOLOv7's rows; as many labels as columns, and as few rows as pictures, do not make classes of them.
    let yolov7 = [[0.0, 8.0, 8.0, 24.0, 24.0, 1.0, 0.9], [0.0, 32.0, 32.0, 64.0, 48.0, 2.0, 0.5]];
    for rows in [1, 2] {
        let graph =
            declared(picture(), "output", F32, &["rows", "7"], &[rows, 7], &yolov7.concat()[..7 * rows as usize]);
        let names = "{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e', 5: 'f', 6: 'g'}";
        assert_eq!(found(&folder, graph.metadata("names", names), ""), [FIRST, SECOND][..rows as usize], "{rows}");
    }
    // DetectionOutput's, with the order of its own.
    let ssd = [[0.0, 1.0, 0.9, 0.125, 0.125, 0.375, 0.375], [0.0, 2.0, 0.5, 0.5, 0.5, 1.0, 0.75], [-1.0; 7]];
    let graph = floats(picture(), "detection_out", &[1, 1, 3, 7], &ssd.concat());
    assert_eq!(found(&folder, graph, ""), [FIRST, SECOND]);
    // Another one's order is in the name of the output.
    let pinto = [[0.0, 1.0, 0.9, 8.0, 8.0, 24.0, 24.0]];
    let name = "batchno_classid_score_x1y1x2y2";
    let text = error(&folder, declared(picture(), name, F32, &["rows", "7"], &[1, 7], &pinto.concat()), "");
    assert!(text.contains("No layout fits") && text.contains("take the export without it"), "{text}");
    // Classes, by their labels.
    let scores = [0.0, 0.1, 0.9, 0.2, 0.0, 0.0, 0.0];
    let graph = floats(picture(), "output", &[1, 7], &scores).metadata("names", "['a','b','c','d','e','f','g']");
    let model = graph.save(&folder.join("classes.onnx"));
    let postprocess = parse_options(["class-scores=probabilities", "score-threshold=0.5"]).unwrap().1;
    let mut detector = Detector::open(&model, &SessionOptions::default(), postprocess).unwrap();
    let pixels = [128; 64 * 64 * 3];
    let planes = [Plane { data: &pixels, stride: 64 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    assert_eq!(detector.detect(&frame, Default::default()).unwrap().len(), 0);
    assert_eq!(detector.classes().iter().map(|found| found.class_id).collect::<Vec<_>>(), [2]);
}

#[test]
fn boxes_labels_and_scores_of_one_picture() {
    let folder = scratch("misread-torchvision");
    let boxes = [8.0, 8.0, 24.0, 24.0, 32.0, 32.0, 64.0, 48.0];
    let graph = |names: [&str; 3]| {
        let graph = declared(picture(), names[0], F32, &["n", "4"], &[2, 4], &boxes);
        let graph = declared(graph, names[1], I64, &["n"], &[2], &[1.0, 2.0]);
        declared(graph, names[2], F32, &["n"], &[2], &[0.9, 0.5])
    };
    assert_eq!(found(&folder, graph(["boxes", "labels", "scores"]), ""), [FIRST, SECOND]);
    let unnamed = ["2628", "2631", "2630"];
    let text = error(&folder, graph(unnamed), "");
    assert!(text.contains("set layout=torchvision on trtnms"), "{text}");
    assert_eq!(found(&folder, graph(unnamed), "layout=torchvision"), [FIRST, SECOND]);
    // DETR's have the same names, and a batch.
    let graph = floats(floats(picture(), "boxes", &[1, 2, 4], &boxes), "scores", &[1, 2], &[0.9, 0.5]);
    let graph = declared(graph, "labels", I64, &["1", "2"], &[1, 2], &[1.0, 2.0]);
    assert_eq!(found(&folder, graph, ""), [FIRST, SECOND]);
}

#[test]
fn dets_and_labels_of_two_projects() {
    let folder = scratch("misread-dets");
    let mmdeploy = [[8.0, 8.0, 24.0, 24.0, 0.9], [32.0, 32.0, 64.0, 48.0, 0.5], [0.0, 0.0, 9.0, 9.0, 0.9]];
    let graph = declared(picture(), "dets", F32, &["1", "n", "5"], &[1, 3, 5], &mmdeploy.concat());
    let graph = declared(graph, "labels", I64, &["1", "n"], &[1, 3], &[1.0, 2.0, -1.0]); // -1 is padding
    assert_eq!(found(&folder, graph, ""), [FIRST, SECOND]);
    // RF-DETR: centres in 0..1, and logits.
    let graph = floats(picture(), "dets", &[1, 1, 4], &[0.25, 0.25, 0.25, 0.25]);
    let graph = floats(graph, "labels", &[1, 1, 3], &[-9.0, 2.197_224_6, -9.0]);
    assert_eq!(found(&folder, graph, "background-class=none"), [(1, 90, (8, 8, 16, 16))]);
}

#[test]
fn half_precision_and_whole_numbers_are_read_as_they_are() {
    let folder = scratch("misread-types");
    let yolov7 = [[0.0, 8.0, 8.0, 24.0, 24.0, 1.0, 0.9], [0.0, 32.0, 32.0, 64.0, 48.0, 2.0, 0.5]];
    let graph = declared(picture(), "output", F16, &["rows", "7"], &[2, 7], &yolov7.concat());
    assert_eq!(found(&folder, graph, ""), [FIRST, SECOND]);
    let graph = declared(picture(), "num_dets", I32, &["1", "1"], &[1, 1], &[1.0]);
    let graph = floats(graph, "det_boxes", &[1, 2, 4], &[8.0, 8.0, 24.0, 24.0, 32.0, 32.0, 64.0, 48.0]);
    let graph = floats(graph, "det_scores", &[1, 2], &[0.9, 0.5]);
    let graph = declared(graph, "det_classes", I32, &["1", "2"], &[1, 2], &[1.0, 2.0]);
    assert_eq!(found(&folder, graph, ""), [FIRST], "only as many rows count as num_dets says");
}

#[test]
fn rows_of_unknown_columns_are_refused() {
    let folder = scratch("misread-refused");
    for (name, dims, parts) in [
        // Paddle's suppression: class, score, box.
        ("multiclass_nms3_0.tmp_0", &[2, 6][..], &["exclude_nms=True"][..]),
        ("output", &[1, 2, 8], &["No layout fits"]),
        // A vector that tells faces apart.
        ("features", &[1, 128], &["No layout fits", "embedding"]),
        // Heat maps of CenterNet.
        ("hm", &[1, 80, 16, 16], &["No layout fits"]),
        // Three maps of YOLOv3, each with its anchors.
        ("output", &[1, 3, 8, 8, 85], &["No layout fits"]),
    ] {
        let values = vec![0.5; dims.iter().product::<i64>() as usize];
        let text = error(&folder, floats(picture(), name, dims, &values), "");
        assert!(parts.iter().all(|part| text.contains(part)), "{name}: {text}");
    }
}

/// With the labels of another model, objects without a class are left out. That is said once.
#[test]
fn class_ids_beyond_the_labels_are_told() {
    let folder = scratch("misread-ids");
    let rows = [[0.0, 8.0, 8.0, 24.0, 24.0, 85.0, 0.9], [0.0, 32.0, 32.0, 64.0, 48.0, 2.0, 0.5]];
    let graph = floats(picture(), "output", &[2, 7], rows.as_flattened());
    let graph = graph.metadata("names", "{0: 'ant', 1: 'bee', 2: 'cat', 3: 'dog', 4: 'elk'}");
    let model = graph.save(&folder.join("model.onnx"));
    for (nms, is_said) in [("", true), ("classes=cat", false), ("score-threshold=0.95", false)] {
        let mut line = Line::new(&model, nms);
        for frame in 0..2 {
            let found: Vec<i32> = line.found().into_iter().map(|found| found.class).collect();
            assert_eq!(found, if nms.contains("score") { vec![] } else { vec![2] }, "{nms}");
            let said = line.said();
            assert_eq!(said.len(), usize::from(is_said && frame == 0), "{nms}: {said:?}");
            for text in said {
                let parts =
                    ["finds class 85, which is not known: 1 box of a frame is left out", "5 labels", "label-file"];
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            }
        }
    }
}

/// A model that takes over may have the labels of another one, too. Each is told of once.
#[test]
fn class_ids_of_another_model_are_told() {
    let folder = scratch("misread-ids-other");
    let model = |name: &str, class: f32| {
        let rows = [[0.0, 8.0, 8.0, 24.0, 24.0, class, 0.9], [0.0, 32.0, 32.0, 64.0, 48.0, 2.0, 0.5]];
        let graph = floats(picture(), "output", &[2, 7], rows.as_flattened());
        let graph = graph.metadata("names", "{0: 'ant', 1: 'bee', 2: 'cat', 3: 'dog', 4: 'elk'}");
        graph.save(&folder.join(name))
    };
    let (first, second) = (model("first.onnx", 7.0), model("second.onnx", 8.0));
    let mut line = Line::new(&first, "");
    let told = |line: &mut Line| {
        assert_eq!(line.labels(), ["cat"]);
        line.said()
    };
    let said = told(&mut line);
    assert!(said.len() == 1 && said[0].contains("first.onnx finds class 7"), "{said:?}");
    let infer = line.element("trtinfer");
    infer.set_property("model-file", &second);
    line.wait_for_model(&second);
    let said = told(&mut line);
    assert!(said.len() == 1 && said[0].contains("second.onnx finds class 8"), "{said:?}");
    assert_eq!(told(&mut line), [""; 0]);
}

/// What overflows in half precision finds nothing. That is said once, and counted.
#[test]
fn numbers_that_are_not_finite_are_told() {
    let folder = scratch("misread-not-finite");
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let model = folder.join("model.onnx");
    // A row whose score is lost, and rows that have one, but no box.
    for lost in [[8.0, 8.0, 24.0, 24.0, 1.0, nan], [8.0, nan, 24.0, 24.0, 1.0, 0.5], [8.0, 8.0, inf, 24.0, 1.0, 0.5]] {
        let rows = [[0.0].iter().chain(&lost).copied().collect(), vec![0.0, 32.0, 32.0, 64.0, 48.0, 2.0, 0.5]];
        let model = floats(picture(), "output", &[2, 7], &rows.concat()).save(&model);
        let mut line = Line::new(&model, "");
        for frame in 0..3 {
            let found: Vec<i32> = line.found().into_iter().map(|found| found.class).collect();
            assert_eq!(found, [2], "the other row has no score or no box");
            let said = line.said();
            assert_eq!(said.len(), usize::from(frame == 0), "{lost:?}: {said:?}");
            for text in said {
                let parts = [
                    "model.onnx gives numbers that are not finite, in 1 rows of a frame",
                    "precision=fp32",
                    "gst-trt verify",
                ];
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            }
        }
        assert_eq!(line.nms().property::<gst::Structure>("stats").get::<u64>("not-finite"), Ok(3), "{lost:?}");
    }

    // Classes of a frame, maps of classes and of depths.
    let map = [&[f32::INFINITY, f32::NAN][..], &[0.5; 126]].concat();
    for (task, dims, values, said) in [
        ("classify", &[1, 5][..], &[0.1, 0.2, f32::NAN, 0.3, 0.4][..], "in 1 rows of a frame"),
        ("semantic", &[1, 2, 8, 8], &map, "values of a frame"),
        ("depth", &[1, 1, 8, 16], &map, "values of a frame"),
    ] {
        let graph = floats(picture(), "output0", dims, values).metadata("task", task);
        let model = graph.save(&folder.join(format!("{task}.onnx")));
        let mut line = Line::new(&model, "");
        for frame in 0..2 {
            line.found();
            let warnings = line.said();
            assert_eq!(warnings.len(), usize::from(frame == 0), "{task}: {warnings:?}");
            assert!(
                warnings.iter().all(|text| text.contains("not finite") && text.contains(said)),
                "{task}: {warnings:?}"
            );
        }
        assert_eq!(line.nms().property::<gst::Structure>("stats").get::<u64>("not-finite"), Ok(2), "{task}");
    }

    let mut detector = Detector::open(&model, &SessionOptions::default(), Default::default()).unwrap();
    let pixels = [128; 64 * 64 * 3];
    for _ in 0..2 {
        let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
        assert_eq!(detector.detect(&frame, Default::default()).unwrap().len(), 1);
    }
    let warnings: Vec<String> = detector.session().warnings().iter().map(|warning| warning.message()).collect();
    assert_eq!(warnings.iter().filter(|text| text.contains("not finite")).count(), 1, "{warnings:?}");
}

/// Logits or pixels, taken for scores by a layout file or by a head that was chosen: whatever passes the threshold is an object then.
#[test]
fn scores_above_1_are_told() {
    let folder = scratch("misread-large-scores");
    let rows = [8.0, 8.0, 24.0, 24.0, 1.0, 7.5, 32.0, 32.0, 64.0, 48.0, 0.5, 2.0];
    let model = floats(picture(), "output0", &[1, 2, 6], &rows).save(&folder.join("model.onnx"));
    let layout = folder.join("own.toml");
    let columns = "columns = [{ column = \"box\", encoding = \"corners\" }, \"classes\"]";
    let text = "name = \"own\"\ntask = \"detect\"\nsuppression = \"iou\"\n[[output]]\ndims = [\"batch\", \"rows\", \"columns\"]\n";
    std::fs::write(&layout, format!("{text}{columns}\n")).unwrap();
    let file = format!("layout-file={}", layout.display());
    for (nms, parts) in [
        (
            &*file,
            &[
                "as own reads it, such as 7.5",
                "logits, pixels",
                "Compare columns and encoding in the layout file ",
                "own.toml",
            ][..],
        ),
        ("layout=yolov5", &["as yolov5 reads it", "Set layout on trtnms", "--explain-layout"]),
    ] {
        let mut line = Line::new(&model, nms);
        for frame in 0..3 {
            assert!(!line.found().is_empty(), "{nms}");
            let said: Vec<String> = line.said().into_iter().filter(|text| text.contains("above 1")).collect();
            assert_eq!(said.len(), usize::from(frame == 0), "{nms}: {said:?}");
            assert!(said.iter().all(|text| parts.iter().all(|part| text.contains(part))), "{nms}: {said:?}");
        }
    }
    let postprocess = parse_options([&*file]).unwrap().1;
    let mut detector = Detector::open(&model, &SessionOptions::default(), postprocess).unwrap();
    let pixels = [128; 64 * 64 * 3];
    for _ in 0..2 {
        let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
        assert!(!detector.detect(&frame, Default::default()).unwrap().is_empty());
    }
    let warnings: Vec<String> = detector.session().warnings().iter().map(|warning| warning.message()).collect();
    assert_eq!(warnings.iter().filter(|text| text.contains("above 1")).count(), 1, "{warnings:?}");
}
