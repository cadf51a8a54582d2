// SPDX-License-Identifier: MPL-2.0
//! What can be known of a model without loading it.

use std::path::Path;
use std::sync::Arc;

use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::device::Device;
use gsttrt_core::error::Error;
use gsttrt_core::image::options::parse_input_size;
use gsttrt_core::model::{InputValues, ModelFile, ModelInfo, read_labels};

use super::head::HeadSettings;
use super::wording::{KeyError, problem};

/// The file, and what its elements are told in addition.
pub struct ModelSettings<'a> {
    pub file: &'a Path,
    pub labels: Option<&'a Path>,
    pub batch_size: usize,
    pub input_size: String,
    /// The property of trtinfer, with paths that can be opened here.
    pub input_values: String,
    pub head: HeadSettings,
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
    /// Its results are known to be vectors.
    pub is_vector: bool,
}

impl Default for ModelOutcome {
    fn default() -> Self {
        ModelOutcome { classes: Vec::new(), may_give_objects: true, is_map: false, is_vector: false }
    }
}

impl ModelSettings<'_> {
    /// Reads the description of the model. Returns what it gives, and as warnings what may still be right where it runs.
    pub fn check(&self) -> Result<(ModelOutcome, Vec<KeyError>), KeyError> {
        let names = self.labels.map(read_labels).transpose();
        let names = names.map_err(|error| problem("labels", error.message()))?;
        let [of_file, of_infer] = ["file", "infer"].map(|key| move |error: Error| problem(key, error.message()));
        let values = InputValues::read(&self.input_values).map_err(of_infer)?;
        let file = ModelFile::new(self.file);
        if file.is_on_server() {
            return Ok(Default::default()); // the server says the rest where it is there
        }
        let contents = file.contents().map_err(of_file)?;
        if file.is_engine() {
            Header::read(contents.bytes())
                .map_err(|error| of_file(error.about(&format!("Cannot use the engine {}", self.file.display()))))?;
            return Ok(Default::default()); // only TensorRT can read the rest
        }
        let info = Arc::new(ModelInfo::of_onnx(&contents).map_err(of_file)?);
        info.with_values(&values).map_err(of_infer)?;
        let mut warnings = Vec::new();
        let size = parse_input_size(&self.input_size).map_err(of_infer)?;
        let mut hints = info.hints(info.image_size.unwrap_or_default());
        match info.input_spec(size, self.batch_size, Device::Host) {
            Ok(spec) => {
                // As trtinfer does before it loads the model.
                info.side_inputs(&spec, self.batch_size, &values).map_err(of_infer)?;
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
        let mut outcome = ModelOutcome::default();
        match self.head.find(&info, hints, names.as_ref().map(Vec::len)) {
            Ok((format, _)) => {
                outcome.may_give_objects = format.has_boxes();
                outcome.is_map = format.is_map();
                outcome.is_vector = format.is_embedding();
            }
            // Each of its sources would fail.
            Err(unfit) if unfit.is_certain => return Err(problem(unfit.key, unfit.text)),
            Err(unfit) => warnings.push(problem(unfit.key, unfit.text)),
        }
        outcome.classes = names.unwrap_or_else(|| info.labels.clone());
        Ok((outcome, warnings))
    }
}
