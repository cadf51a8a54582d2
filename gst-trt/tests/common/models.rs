// SPDX-License-Identifier: MPL-2.0
//! Models that see objects.

use std::path::Path;

use super::onnx::{F32, Graph, I64, int, ints};

/// A classifier of pictures of 16x16 by their mean: the first class is of bright ones.
pub fn classifier(file: &Path, bright: &str, dark: &str) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .weight("factor", F32, &[1, 2], floats(&[8.0, -8.0]))
        .weight("addend", F32, &[1, 2], floats(&[-4.0, 4.0]))
        .weight("rows", I64, &[2], [1i64, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "factor"], &["scaled"], vec![])
        .node("Add", &["scaled", "addend"], &["logits"], vec![])
        .node("Softmax", &["logits"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &["1", "2"])
        .metadata("author", "Ultralytics")
        .metadata("task", "classify")
        .metadata("names", &format!("{{0: '{bright}', 1: '{dark}'}}"))
        .save(file)
}

/// A model of pictures of 16x16 whose vector is the mean of their red, green and blue. The file does not say that it is a vector.
pub fn embedder(file: &Path) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .node("ReduceMean", &["images"], &["vector"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .output("vector", F32, &["1", "3"])
        .save(file)
}

/// A model of pictures of 16x16 that gives the same vector for all.
pub fn vector(file: &Path, numbers: &[f32]) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .constant("vector", &[1, numbers.len() as i64], numbers)
        .save(file)
}

/// A detector of faces with five landmarks each, in pixels of its input of 64x64.
pub fn faces(file: &Path, rows: &[[f32; 16]]) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, rows.len() as i64, 16], rows.as_flattened())
        .metadata("task", "pose")
        .metadata("kpt_shape", "[5, 2]")
        .metadata("names", "{0: 'face'}")
        .save(file)
}

/// A detector that finds one object of a class in the middle of each picture.
pub fn inner(file: &Path, class: &str) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 6], &[16.0, 16.0, 48.0, 48.0, 0.75, 0.0])
        .metadata("names", &format!("{{0: '{class}'}}"))
        .save(file)
}
