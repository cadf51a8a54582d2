// SPDX-License-Identifier: MPL-2.0
//! What can be known of a model without loading it.

use std::path::Path;

use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::device::Device;
use gsttrt_core::error::Error;
use gsttrt_core::files::read_regular;
use gsttrt_core::heads;
use gsttrt_core::image::options::parse_input_size;
use gsttrt_core::model::{ModelFile, ModelInfo};

use super::wording::{KeyError, problem};

/// Bytes of a label file.
const MAX_LABELS: u64 = 16 << 20;

/// The file, and what its elements are told in addition.
pub struct ModelSettings<'a> {
    pub file: &'a Path,
    pub labels: Option<&'a Path>,
    pub batch_size: usize,
    pub input_size: String,
    pub layout: String,
}

/// What a model gives, as far as its file tells.
#[derive(Clone, Debug)]
pub struct ModelOutcome {
    /// The names of its classes; empty where they are not known.
    pub classes: Vec<String>,
    /// False where its results are known to be no objects.
    pub may_give_objects: bool,
    /// Its results are known to be of each pixel.
    pub is_map: bool,
}

impl Default for ModelOutcome {
    fn default() -> Self {
        ModelOutcome { classes: Vec::new(), may_give_objects: true, is_map: false }
    }
}

impl ModelSettings<'_> {
    /// Reads the description of the model. Returns what it gives, and as warnings what may still be right where it runs.
    pub fn check(&self) -> Result<(ModelOutcome, Vec<KeyError>), KeyError> {
        let of_file = |error: Error| problem("file", error.message());
        let file = ModelFile::new(self.file);
        let contents = file.contents().map_err(of_file)?;
        if file.is_engine() {
            Header::read(contents.bytes())
                .map_err(|error| of_file(error.about(&format!("Cannot use the engine {}", self.file.display()))))?;
            return Ok(Default::default()); // only TensorRT can read the rest
        }
        let info = ModelInfo::of_onnx(&contents).map_err(of_file)?;
        let mut warnings = Vec::new();
        let size = parse_input_size(&self.input_size).map_err(|error| problem("infer", error.message()))?;
        let mut hints = info.hints(info.image_size.unwrap_or_default());
        match info.input_spec(size, self.batch_size, Device::Host) {
            Ok(spec) => {
                let (_, height, width) = spec.chw();
                hints.input = Some((width as u32, height as u32));
            }
            Err(error) if error.message().contains("batch-size is ") => {
                return Err(problem("batch-size", error.message()));
            }
            // What is left open may become known by the frames.
            Err(error) => {
                hints.input = info.image_size;
                warnings.push(problem("infer", error.message()));
            }
        }
        let labels = self.labels.and_then(|labels| read_regular(labels, MAX_LABELS).ok());
        let names = labels.map(|text| -> Vec<String> {
            String::from_utf8_lossy(&text).trim_end().lines().map(|line| line.trim().into()).collect()
        });
        let lines = names.as_ref().map(Vec::len);
        let mut outcome = ModelOutcome::default();
        if self.layout == "auto" {
            let of_file = hints.clone();
            hints.classes = lines.or(hints.classes);
            match info.check_task().and_then(|()| heads::explain(&info.outputs, &hints)) {
                Ok(found) => {
                    outcome.may_give_objects = !found.format.is_classifier() && !found.format.is_map();
                    outcome.is_map = found.format.is_map();
                }
                // Without them it would do: each of its sources would fail.
                Err(error) if lines.is_some() && heads::explain(&info.outputs, &of_file).is_ok() => {
                    return Err(problem("labels", error.message()));
                }
                Err(error) => warnings.push(problem(if lines.is_some() { "labels" } else { "file" }, error.message())),
            }
        }
        outcome.classes = names.unwrap_or(info.labels);
        Ok((outcome, warnings))
    }
}
