// SPDX-License-Identifier: MPL-2.0
//! What the bench swap takes in place of two models: one whose words are an input, and two files of words.

#[path = "../../../core/tests/common/npy.rs"]
mod npy;

use std::error::Error;
use std::path::PathBuf;

use gst_video::VideoRegionOfInterestMeta;

use crate::open_batch::onnx::{F32, Graph, int, ints};

/// What is found with each of the files.
const FOUND: [&str; 2] = ["first", "second"];

/// Cells of a grid over 64x64 pixels.
const CELLS: usize = 84;

pub struct Words {
    pub model: String,
    /// Values of `input-values`.
    pub values: [String; 2],
}

impl Words {
    /// Files below target/: a model that finds one box of each word whose vector begins with a score that passes.
    pub fn write() -> Result<Self, Box<dyn Error>> {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("swap-words");
        std::fs::create_dir_all(&folder)?;
        let mut values = FOUND.map(String::from);
        for name in &mut values {
            std::fs::write(folder.join(&*name).with_extension("txt"), format!("nothing\n{name}\n"))?;
            let file = folder.join(&*name).with_extension("npy");
            *name = format!("tpe={}", npy::save_floats(&file, &[1, 2, 2], &[0.1, 0.0, 0.9, 0.0]));
        }
        Ok(Words { model: graph().save(&folder.join("words.onnx")), values })
    }

    /// Whether a frame has what is found with the words of that place.
    pub fn are_of(place: usize, frame: &gst::BufferRef) -> bool {
        frame.iter_meta::<VideoRegionOfInterestMeta>().any(|meta| meta.roi_type() == FOUND[place])
    }
}

fn graph() -> Graph {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let boxes = [32.0, 32.0, 20.0, 20.0].map(|number| [number; CELLS]);
    let first = [[1.0; CELLS], [0.0; CELLS]];
    Graph::new()
        .input("images", F32, &["n", "3", "64", "64"])
        .input("tpe", F32, &["n", "words", "2"])
        .weight("zero", F32, &[1], floats(&[0.0]))
        .weight("boxes", F32, &[1, 4, CELLS as i64], floats(boxes.as_flattened()))
        .weight("first", F32, &[2, CELLS as i64], floats(first.as_flattened()))
        .node("ReduceMean", &["images"], &["rows"], vec![ints("axes", &[2]), int("keepdims", 0)])
        .node("ReduceMean", &["rows"], &["mean"], vec![ints("axes", &[1, 2]), int("keepdims", 1)])
        .node("Mul", &["mean", "zero"], &["nothing"], vec![])
        .node("Add", &["nothing", "boxes"], &["found"], vec![])
        .node("MatMul", &["tpe", "first"], &["scores"], vec![])
        .node("Concat", &["found", "scores"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &["n", "columns", "84"])
        .metadata("author", "Ultralytics")
        .metadata("task", "detect")
}
