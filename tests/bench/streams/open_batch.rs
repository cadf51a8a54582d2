// SPDX-License-Identifier: MPL-2.0
//! Models that take one picture, made to take batches.

#[allow(dead_code)] // the tests use more of it
#[path = "../../../core/tests/common/onnx.rs"]
pub mod onnx;

use std::error::Error;
use std::path::{Path, PathBuf};

use gsttrt_core::model::ModelInfo;

/// The same model with an open batch where it is fixed to 1: a copy below target/, of a graph as plain as those of tests/models.
pub fn of(model: &str) -> Result<String, Box<dyn Error>> {
    let path = Path::new(model);
    if path.extension().is_none_or(|extension| extension != "onnx") || ModelInfo::read(path)?.image_input().dims[0] != 1
    {
        return Ok(model.into());
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("open-batch");
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join(path.file_name().expect("it was read"));
    Ok(onnx::Graph::load(model).with_batch("n").save(&copy))
}
