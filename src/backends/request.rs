//! What is decided and read of a model before the slow part of loading it.

use std::path::Path;
use std::sync::Arc;

use super::tensorrt::{self, Options};
use super::{
    Backend, BackendPreference, LoadContext, ModelInstance, OpenedModel, Selection, choose, describe, open_on_cpu,
};
use crate::core::cuda::driver::Context;
use crate::core::error::Result;
use crate::image::transform::InputSpec;
use crate::model::ModelInfo;

/// A model that is known, and where it will run.
#[derive(Clone)]
pub struct LoadRequest {
    pub(super) described: OpenedModel,
    pub runner: Backend,
    /// Why [`BackendPreference::Auto`] came to the CPU, if it did.
    pub reason: Option<String>,
    pub(super) options: Options,
    /// What TensorRT works in.
    pub cuda: Option<Context>,
    /// The tensor that the model wants for a frame.
    pub spec: InputSpec,
    /// The most frames that are run at once.
    pub batch: usize,
}

impl LoadRequest {
    /// Reads the model's description and decides where it runs. `size` is the wish for the width and height of an input
    /// that leaves them open; `batch` the most frames that are to be run at once; `cuda` is asked for a context where TensorRT
    /// is to run it.
    pub fn new(
        path: &Path,
        choice: BackendPreference,
        size: Option<(u32, u32)>,
        batch: usize,
        options: Options,
        cuda: impl FnOnce() -> Result<Context>,
    ) -> Result<Self> {
        let Selection { runner, reason } = choose(choice, path, &options)?;
        let cuda = match runner {
            Backend::Cpu => None,
            Backend::TensorRt(_) => Some(cuda()?),
        };
        let described = describe(runner, path, &options, cuda.as_ref())?;
        let spec = described.model.input_spec(size, batch, runner.place())?;
        described.model.side_inputs(&spec, batch)?; // made by the backend; what cannot be filled is better said before the slow part
        Ok(LoadRequest { described, runner, reason, options, cuda, spec, batch })
    }

    pub fn model(&self) -> &Arc<ModelInfo> {
        &self.described.model
    }

    /// The same in another context, where an engine has to be loaded anew.
    pub fn in_context(&self, cuda: &Context) -> Result<Self> {
        let mut plan = LoadRequest { cuda: Some(cuda.clone()), ..self.clone() };
        if plan.described.engine.is_some() {
            plan.described.engine = describe(self.runner, &self.model().path, &self.options, Some(cuda))?.engine;
        }
        Ok(plan)
    }

    /// Loads the model; this is the slow part.
    pub fn load(&self, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        Ok(match (self.runner, &self.cuda) {
            (Backend::TensorRt(library), Some(cuda)) => tensorrt::open(self, library, cuda, loading)?,
            _ => open_on_cpu(self.model().clone(), &self.spec, self.batch)?,
        })
    }
}
