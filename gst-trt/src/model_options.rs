// SPDX-License-Identifier: MPL-2.0
//! The model, and what is known of it beside its file.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::failure::Failure;

/// The names of `backend`, as of trtinfer.
pub fn backends() -> PossibleValuesParser {
    let names = gsttrt::backends::BACKENDS.iter().map(|backend| backend.name());
    PossibleValuesParser::new(["auto"].into_iter().chain(names))
}

#[derive(Args, Clone, Debug, Default)]
pub struct ModelOptions {
    /// The ONNX model or the TensorRT engine
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// Class names, one a line [default: names in the model file]
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// What runs the model [default: auto, the GPU if it can]
    #[arg(long, value_name = "NAME", value_parser = backends())]
    pub backend: Option<String>,
}

impl ModelOptions {
    /// Looks for the files before anything is started.
    pub fn check(&self) -> Result<(), Failure> {
        check_file(&self.model)?;
        self.labels.iter().try_for_each(|labels| check_file(labels))
    }
}

/// A path that is no file has an error of its own.
pub fn check_file(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_file() {
        Ok(())
    } else if path.is_dir() {
        Err(format!("{shown} is a folder. Give a file.").into())
    } else if path.to_string_lossy().contains("://") {
        Err(format!("{shown} is a URI. Give a file.").into())
    } else if path.exists() {
        Err(format!("{shown} is a device or a pipe. Give a file.").into())
    } else {
        Err(format!("There is no file {shown}.").into())
    }
}
