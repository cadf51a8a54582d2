// SPDX-License-Identifier: MPL-2.0
//! `interval=0` of trtinfer: a model that is too slow does not hold a stream up, and one that is fast sees all frames.

use std::ops::Range;

use gst::prelude::*;

use crate::common::boxes::{Line, SIDE, found};
use crate::common::onnx::{F32, Graph, int, ints};
use crate::common::scratch;

/// A model that finds one box, after a product of matrices of so many rows and columns.
fn model(test: &str, size: usize) -> String {
    let values: Vec<u8> = (0..size * size).flat_map(|at| ((at % 7) as f32 * 1e-3).to_le_bytes()).collect();
    let row = [8.0f32, 12.0, 32.0, 32.0, 0.9, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let zero = 0f32.to_le_bytes().to_vec();
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .weight("matrix", F32, &[size as i64, size as i64], values)
        .weight("row", F32, &[1, 1, 6], row)
        .weight("zero", F32, &[1], zero)
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Mul", &["matrix", "mean"], &["scaled"], vec![])
        .node("MatMul", &["scaled", "matrix"], &["product"], vec![])
        .node("ReduceMean", &["product"], &["work"], vec![ints("axes", &[0, 1]), int("keepdims", 0)])
        .node("Mul", &["work", "zero"], &["nothing"], vec![])
        .node("Add", &["row", "nothing"], &["output0"], vec![])
        .output("output0", F32, &["1", "1", "6"])
        .metadata("names", "{0: 'a'}")
        .save(&scratch(&format!("auto-interval-{test}")).join("work.onnx"))
}

/// Pushes frames of these numbers, which are so many milliseconds apart by their time stamps.
fn push(line: &mut Line, frames: Range<u64>, apart: u64) -> Vec<usize> {
    let mut push = |number: u64| {
        let mut buffer = gst::Buffer::from_mut_slice(vec![90u8; (SIDE * SIDE) as usize]);
        buffer.get_mut().unwrap().set_pts(number * apart * gst::ClockTime::MSECOND);
        found(&line.push(buffer)).len()
    };
    frames.map(&mut push).collect()
}

fn line(model: &str, interval: u32) -> Line {
    let mut line =
        Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval={interval} ! trtnms draw=false"));
    line.caps("GRAY8", SIDE, SIDE);
    line
}

fn counts(line: &mut Line) -> [u64; 3] {
    let stats = line.element("trtinfer").property::<gst::Structure>("stats");
    ["inferred", "skipped", "interval"].map(|name| stats.get(name).unwrap())
}

#[test]
fn a_model_that_is_slower_than_the_frames_sees_some_of_them() {
    let model = model("slow", 1200);
    let mut line = line(&model, 0);
    // A run takes tens of milliseconds at the least, and frames are 4 ms apart.
    let mut pushed = 0;
    // As many as a run takes on a busy machine.
    while pushed < 60 || counts(&mut line)[0] < 2 && pushed < 30_000 {
        assert_eq!(push(&mut line, pushed..pushed + 60, 4), [1; 60], "the others keep the last objects");
        pushed += 60;
    }
    let [inferred, skipped, interval] = counts(&mut line);
    assert_eq!(inferred + skipped, pushed);
    assert!(inferred >= 2 && skipped >= 20 && interval >= 2, "{inferred} {skipped} {interval}");
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn a_model_that_is_faster_sees_all_frames() {
    let model = model("fast", 2);
    let mut line = line(&model, 0);
    push(&mut line, 0..20, 60_000);
    assert_eq!(counts(&mut line), [20, 0, 1]);
}

#[test]
fn the_interval_is_told_where_it_is_set() {
    let model = model("set", 2);
    let mut line = line(&model, 3);
    push(&mut line, 0..7, 40);
    assert_eq!(counts(&mut line), [3, 4, 3]);
}
