//! What is decided and read of a model before the slow part of loading it.

use std::path::Path;
use std::sync::Arc;

use super::tensorrt::{self, Options};
use super::{
    Backend, BackendPreference, LoadContext, ModelInstance, OpenedModel, Selection, choose, describe, open_on_cpu,
};
use crate::core::cuda::driver::Context;
use crate::core::error::Result;
use crate::image::geometry::{Letterbox, ResizeMode};
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
    /// Where the input has the smallest size that frames need: its stride, and the size within which it stays.
    adaptive: Option<Adaptive>,
}

#[derive(Clone, Copy)]
struct Adaptive {
    stride: u32,
    largest: (u32, u32),
}

impl LoadRequest {
    /// Reads the model's description and decides where it runs. `size` is the wish for the width and height of an input
    /// that leaves them open, by default the smallest that frames need where the model allows that; `batch` the most frames that are to be run at once; `cuda` is asked for a context where TensorRT
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
        let stride = described.model.adaptive_stride().filter(|_| size.is_none());
        let (_, height, width) = spec.chw();
        let adaptive = stride.map(|stride| Adaptive { stride, largest: (width as u32, height as u32) });
        Ok(LoadRequest { described, runner, reason, options, cuda, spec, batch, adaptive })
    }

    /// The tensor that the model wants for frames of that width and height.
    pub fn spec_for(&self, frame: (u32, u32)) -> InputSpec {
        // What is stretched fills any size.
        let adaptive = self.adaptive.filter(|_| self.spec.recipe.fit == ResizeMode::Letterbox);
        let Some(Adaptive { stride, largest }) = adaptive else { return self.spec.clone() };
        let size = |size| self.spec.resized(size);
        let spec = size(Letterbox::smallest_tensor(frame, largest, stride));
        if self.engine_takes(&spec) { spec } else { size(largest) }
    }

    /// Whether an engine that is there already was built for such a tensor.
    fn engine_takes(&self, spec: &InputSpec) -> bool {
        let Some(engine) = &self.described.engine else { return true };
        let mut dims = spec.desc.dims.clone();
        dims.0[0] = self.batch as i64;
        let input = engine.inputs().iter().find(|input| input.desc.name == spec.desc.name);
        input.is_some_and(|input| engine.profile_for(input, &dims).is_some())
    }

    /// Whether it is loaded for a size that is known with the frames only. The CPU takes one size after the other.
    pub fn waits_for_frames(&self) -> bool {
        self.adaptive.is_some() && matches!(self.runner, Backend::TensorRt(_))
    }

    /// The same for that tensor of one frame.
    pub fn for_tensor(&self, spec: InputSpec) -> Self {
        LoadRequest { spec, ..self.clone() }
    }

    /// The same for frames of any size, which all come to one size of the tensor.
    pub fn with_one_size(self) -> Self {
        LoadRequest { adaptive: None, ..self }
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
