// SPDX-License-Identifier: MPL-2.0
//! Models that suppress boxes in their graph, and so have as many rows as objects: other ones in each frame, and those of a
//! batch in one tensor.

use std::sync::mpsc::{Receiver, channel};

use gst::prelude::*;
use gsttrt_core::image::frame::{Frame, PixelFormat, Plane};
use gsttrt_core::session::Detector;

use crate::common::boxes::{Found, Line, SIDE, found};
use crate::common::onnx::{F32, Graph, I64, int, ints};
use crate::common::{init, path, run, scratch, shapes};

const ROOM: &str = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=0";

fn bytes<const N: usize, T: Copy>(values: &[T], to: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to(value)).collect()
}

fn floats(graph: Graph, name: &str, dims: &[i64], values: &[f32]) -> Graph {
    graph.weight(name, F32, dims, bytes(values, f32::to_le_bytes))
}

/// One number for each axis.
fn numbers(graph: Graph, name: &str, values: &[i64]) -> Graph {
    graph.weight(name, I64, &[values.len() as i64], bytes(values, i64::to_le_bytes))
}

/// Elements `from..to` of the last axis but `axes` before it.
fn part(graph: Graph, of: &str, name: &str, axis: i64, from: i64, to: i64) -> Graph {
    let [start, end, along] = ["from", "to", "along"].map(|what| format!("{name}_{what}"));
    let graph = numbers(numbers(numbers(graph, &start, &[from]), &end, &[to]), &along, &[axis]);
    graph.node("Slice", &[of, &start, &end, &along], &[name], vec![])
}

/// Behind `boxes` [n, a, 4], `best` [n, a, 1] and `class` [n, a, 1], as YOLOv7's export for ONNX Runtime: suppression of boxes
/// that `apart` moves by class, and rows of picture, box, class and score.
fn suppressed(graph: Graph, apart: &str, [iou, score]: [f32; 2]) -> Graph {
    let graph = numbers(graph, "most", &[100]);
    let graph = floats(floats(graph, "iou", &[1], &[iou]), "least", &[1], &[score]);
    let graph = graph.node("Transpose", &["best"], &["by_class"], vec![ints("perm", &[0, 2, 1])]).node(
        "NonMaxSuppression",
        &[apart, "by_class", "most", "iou", "least"],
        &["selected"],
        vec![],
    );
    let graph = part(part(graph, "selected", "picture", 1, 0, 1), "selected", "row", 1, 2, 3)
        .node("Concat", &["picture", "row"], &["indices"], vec![int("axis", 1)])
        .node("Cast", &["picture"], &["of_picture"], vec![int("to", F32.into())]);
    let chosen = [("boxes", "of_box"), ("class", "of_class"), ("best", "of_score")];
    let graph = chosen
        .into_iter()
        .fold(graph, |graph, (all, own)| graph.node("GatherND", &[all, "indices"], &[own], vec![int("batch_dims", 0)]));
    graph.node("Concat", &["of_picture", "of_box", "of_class", "of_score"], &["output"], vec![int("axis", 1)]).output(
        "output",
        F32,
        &["rows", "7"],
    )
}

/// The trained detector with YOLOv7's end.
fn end_to_end(batch: Option<&str>) -> Graph {
    let graph = Graph::load(&shapes());
    let graph = batch.into_iter().fold(graph, Graph::with_batch).without_outputs();
    let graph = part(graph, "output0", "centers", 2, 0, 4);
    let graph = part(part(graph, "output0", "objectness", 2, 4, 5), "output0", "of_classes", 2, 5, 7);
    #[rustfmt::skip]
    let matrix = [
        1.0, 0.0, 1.0, 0.0,
        0.0, 1.0, 0.0, 1.0,
        -0.5, 0.0, 0.5, 0.0,
        0.0, -0.5, 0.0, 0.5,
    ];
    let graph = floats(floats(graph, "corners", &[4, 4], &matrix), "width", &[1], &[640.0]);
    let graph = graph
        .node("MatMul", &["centers", "corners"], &["boxes"], vec![])
        .node("Mul", &["of_classes", "objectness"], &["scores"], vec![])
        .node("ReduceMax", &["scores"], &["best"], vec![ints("axes", &[2]), int("keepdims", 1)])
        .node("ArgMax", &["scores"], &["index"], vec![int("axis", 2), int("keepdims", 1)])
        .node("Cast", &["index"], &["class"], vec![int("to", F32.into())])
        .node("Mul", &["class", "width"], &["away"], vec![])
        .node("Add", &["boxes", "away"], &["apart"], vec![]);
    suppressed(graph, "apart", [0.45, 0.25])
}

/// A model over 64x64 that finds up to three objects, of the classes a, b and c: their scores are the brightness of the
/// picture, a half and a quarter of it, and must be above 0.2.
fn brightness(batch: &str) -> Graph {
    let graph = Graph::new().input("images", F32, &[batch, "3", "64", "64"]);
    let boxes = [[8.0, 8.0, 24.0, 24.0], [30.0, 8.0, 46.0, 24.0], [8.0, 30.0, 24.0, 46.0]];
    let graph = floats(floats(graph, "places", &[1, 3, 4], boxes.as_flattened()), "no", &[1], &[0.0]);
    let graph = floats(floats(graph, "parts", &[1, 3, 1], &[1.0, 0.5, 0.25]), "classes", &[1, 3, 1], &[0.0, 1.0, 2.0]);
    let graph = numbers(graph, "one", &[-1, 1, 1])
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "one"], &["level"], vec![])
        .node("Mul", &["level", "parts"], &["best"], vec![])
        .node("Mul", &["level", "no"], &["nothing"], vec![])
        .node("Add", &["places", "nothing"], &["boxes"], vec![])
        .node("Add", &["classes", "nothing"], &["class"], vec![]);
    suppressed(graph, "boxes", [0.5, 0.2]).metadata("names", "{0: 'a', 1: 'b', 2: 'c'}")
}

/// Labels of what is found, and its confidences.
fn levels(found: Vec<Found>) -> (String, Vec<f64>) {
    (found.iter().map(|found| &*found.label).collect(), found.iter().map(|found| found.confidence).collect())
}

/// What [`brightness`] gives for a picture of that level.
fn expected(level: u8) -> (String, Vec<f64>) {
    let scores = [1.0, 0.5, 0.25].map(|part| f64::from(level) / 255.0 * part);
    let found = scores.into_iter().zip(["a", "b", "c"]).filter(|(score, _)| *score > 0.2);
    let (scores, labels): (Vec<f64>, Vec<&str>) = found.unzip();
    (labels.concat(), scores)
}

#[track_caller]
fn expect(found: Vec<Found>, level: u8) {
    let ((labels, scores), (wanted, wanted_scores)) = (levels(found), expected(level));
    assert_eq!(labels, wanted, "{level}");
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
    assert!(scores.iter().zip(&wanted_scores).all(near), "{level}: {scores:?}, {wanted_scores:?}");
}

#[test]
fn each_frame_has_the_rows_that_it_has() {
    let model = brightness("1").save(&scratch("open-rows").join("brightness.onnx"));
    for first in [0, 255, 60] {
        let mut line = Line::new(&model, "score-threshold=0");
        for level in [first, 255, 0, 130, 60, 0, 255] {
            let frame = gst::Buffer::from_slice(vec![level; (SIDE * SIDE * 3) as usize]);
            expect(found(&line.push(frame)), level);
        }
        assert_eq!((line.said(), line.notes()), (vec![], vec![]));
    }
}

#[test]
fn a_session_reads_them_too() {
    let model = brightness("1").save(&scratch("open-rows-session").join("brightness.onnx"));
    let mut detector = Detector::open(&model, &Default::default(), Default::default()).unwrap();
    for (level, wanted) in [(0, 0), (255, 3), (130, 2)] {
        let pixels = vec![level; (SIDE * SIDE * 3) as usize];
        let planes = [Plane { data: &pixels, stride: SIDE as usize * 3 }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width: SIDE as usize, height: SIDE as usize, planes };
        assert_eq!(detector.detect(&frame, Default::default()).unwrap().len(), wanted, "{level}");
    }
}

/// What is found in each frame that comes to the element called `sink`.
fn results(pipeline: &gst::Pipeline) -> Receiver<Vec<Found>> {
    let (send, out) = channel();
    let pad = pipeline.by_name("sink").unwrap().static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let _ = send.send(found(info.buffer().unwrap()));
        gst::PadProbeReturn::Ok
    });
    out
}

/// Frames of these levels through a model for batches of four, which are waited for.
fn batched(model: &str, levels: &[u8]) -> Vec<Vec<Found>> {
    init();
    let caps = format!("video/x-raw,format=RGB,width={SIDE},height={SIDE},framerate=30/1");
    let line = format!(
        "appsrc name=src format=time caps={caps} ! trtpreprocess ! trtinfer model-file={model} batch-size=4 \
         batch-timeout=10000000 ! {ROOM} ! trtnms score-threshold=0 ! fakesink name=sink sync=false"
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = results(&pipeline);
    let source = pipeline.by_name("src").unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    for (at, &level) in (0..).zip(levels) {
        let mut buffer = gst::Buffer::from_slice(vec![level; (SIDE * SIDE * 3) as usize]);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_seconds(at));
        assert_eq!(source.emit_by_name::<gst::FlowReturn>("push-buffer", &[&buffer]), gst::FlowReturn::Ok);
    }
    let _ = source.emit_by_name::<gst::FlowReturn>("end-of-stream", &[]);
    run(&pipeline).expect_success();
    out.try_iter().collect()
}

#[test]
fn rows_of_other_frames_of_a_batch_reach_no_frame() {
    let folder = scratch("open-rows-batch");
    for batch in ["n", "4"] {
        let model = brightness(batch).save(&folder.join(format!("{batch}.onnx")));
        // Four rows in a batch of four, none, and a batch that is not full.
        for levels in [[255, 0, 0, 100].as_slice(), &[0, 0, 0, 0], &[60, 130, 255, 0, 255, 70]] {
            let found = batched(&model, levels);
            assert_eq!(found.len(), levels.len());
            found.into_iter().zip(levels).for_each(|(found, &level)| expect(found, level));
        }
    }
}

/// YOLOv7's own end finds what trtnms finds behind the same network without it, alone and in batches.
#[test]
fn suppression_in_the_graph_finds_what_trtnms_finds() {
    let folder = scratch("open-rows-shapes");
    let detect = |infer: &str, nms: &str| -> Vec<_> {
        let clip = format!("filesrc location={} ! qtdemux ! h264parse ! avdec_h264", path("tests/data/sample.mp4"));
        let line = format!(
            "{clip} ! identity eos-after=7 ! trtpreprocess ! trtinfer {infer} ! {ROOM} ! trtnms {nms} ! fakesink name=sink"
        );
        init();
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let out = results(&pipeline);
        run(&pipeline).expect_success();
        out.try_iter().take(6).collect()
    };
    let same = "score-threshold=0.25 iou-threshold=0.45";
    let wanted = detect(&format!("model-file={}", shapes()), same);
    assert!(wanted.len() == 6 && wanted.iter().all(|objects| objects.len() > 5));
    let single = end_to_end(None).save(&folder.join("single.onnx"));
    let batched = end_to_end(Some("n")).save(&folder.join("batched.onnx"));
    for infer in [format!("model-file={single}"), format!("model-file={batched} batch-size=3 batch-timeout=10000000")] {
        let all = detect(&infer, "score-threshold=0");
        assert_eq!(all.len(), 6);
        for (found, wanted) in all.iter().zip(&wanted) {
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(wanted) {
                assert_eq!((&found.label, found.class), (&wanted.label, wanted.class));
                assert!((found.confidence - wanted.confidence).abs() < 1e-5, "{found:?}, {wanted:?}");
                let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-5;
                assert!(found.corners.into_iter().zip(wanted.corners).all(near), "{found:?}, {wanted:?}");
            }
        }
    }
}
