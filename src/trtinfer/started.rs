// SPDX-License-Identifier: MPL-2.0
//! A model that an element has, from its start to its stop.

use std::sync::{Arc, PoisonError};

use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::backends::{LoadRequest, Placement};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::device::Device;
use gsttrt_core::error::Result;
use gsttrt_core::image::options::parse_input_size;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::tensor::{Dims, TensorDesc};

use super::messages;
use super::settings::Settings;
use super::sharing::{self, SharedHandle, SharedModel, Successor};
use crate::gst::meta::gst_tensor::PublishedOutputs;

/// What was read of a model; does not change until stop(), unless another CUDA context takes the place of this one.
/// Each frame takes a copy.
#[derive(Clone)]
pub struct StartedModel {
    pub model: Arc<SharedModel>,
    pub handle: Arc<ModelHandle>,
    /// Whether this element read the model, and reports where it runs.
    pub is_reader: bool,
    /// Whether it still has to: for tensors whose size is known only with the first frame.
    pub waits: bool,
    /// What frames become, as far as is known yet.
    pub tensor: Arc<InputSpec>,
    /// How outputs are published, where `tensor-meta` asks for it.
    pub published: Option<Arc<PublishedOutputs>>,
}

/// What start() knows when it returns.
pub enum StartOutcome {
    /// Everything is known.
    Open(StartedModel),
    /// The model is still to be read, which takes long.
    Unread(UnreadModel),
}

/// A model of which only is known where it will run.
pub struct UnreadModel {
    settings: Settings,
    size: Option<(u32, u32)>,
    placement: Placement,
}

impl UnreadModel {
    /// Decides where the model runs. `cuda` is asked for a context where a backend on a GPU is to run it.
    pub fn new(settings: &Settings, cuda: impl FnOnce() -> Result<Context>) -> Result<Self> {
        let path = settings.model_file.as_deref().ok_or_else(messages::no_model)?;
        let size = parse_input_size(&settings.input_size)?;
        let placement = Placement::new(path, settings.backend, settings.options.clone(), cuda)?;
        Ok(UnreadModel { settings: settings.clone(), size, placement })
    }

    /// Reads the description.
    pub fn describe(self) -> Result<LoadRequest> {
        let UnreadModel { settings, size, placement } = self;
        let request = placement.describe(size, settings.batch_size as usize)?;
        let request = request.with_parallel_runs(settings.parallel_runs as usize);
        // Frames of several streams are batched, so their tensors have one size whatever the frames have.
        Ok(if settings.shared_model.is_empty() { request } else { request.with_one_size() })
    }

    fn read(self) -> Result<StartedModel> {
        let (settings, device) = (self.settings.clone(), self.placement.gpu());
        StartedModel::joined(&settings, sharing::join_or_open(&settings, device, || self.describe())?)
    }

    /// Reads the description, unless another element that shares the model does so first; nothing, where it is not
    /// wanted any more once that one is done.
    pub fn read_in_turn(self, is_wanted: impl FnOnce() -> bool) -> Option<Result<StartedModel>> {
        let turn = sharing::turn(&self.settings);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        is_wanted().then(|| self.read())
    }
}

impl StartedModel {
    /// Reads the model however long that takes; nothing, where it is not wanted any more.
    pub fn read(
        settings: &Settings,
        cuda: impl Fn() -> Result<Context>,
        is_wanted: impl FnOnce() -> bool,
    ) -> Option<Result<Self>> {
        match StartedModel::begin(settings, cuda) {
            Ok(StartOutcome::Open(session)) => Some(Ok(session)),
            Ok(StartOutcome::Unread(model)) => model.read_in_turn(is_wanted),
            Err(error) => Some(Err(error)),
        }
    }

    /// Decides where the model runs, and reads its description where that is quick. `cuda` is asked for a context where
    /// a backend on a GPU is to run it.
    pub fn begin(settings: &Settings, cuda: impl Fn() -> Result<Context>) -> Result<StartOutcome> {
        if settings.model_file.is_none() {
            return Err(messages::no_model());
        }
        parse_input_size(&settings.input_size)?;
        // One that is on a GPU is joined where the frames are.
        let is_on_gpu = sharing::find(settings, None).is_some_and(|model| model.request.cuda.is_some());
        let device = if is_on_gpu { Some(cuda()?.device()) } else { None };
        if let Some(joined) = sharing::join(settings, device)? {
            return StartedModel::joined(settings, joined).map(StartOutcome::Open);
        }
        let model = UnreadModel::new(settings, cuda)?;
        let takes_long = model.placement.loads_to_describe();
        if takes_long { Ok(StartOutcome::Unread(model)) } else { model.read().map(StartOutcome::Open) }
    }

    fn joined(settings: &Settings, (model, handle, is_reader): SharedHandle) -> Result<Self> {
        let (waits, tensor) = (model.request.waits_for_frames(), Arc::new(model.request.spec.clone()));
        let published = if settings.own.tensor_meta {
            let (_, height, width) = tensor.chw();
            Some(Arc::new(PublishedOutputs::new(model.request.model(), (width as u32, height as u32))?))
        } else {
            None
        };
        Ok(StartedModel { model, handle: Arc::new(handle), is_reader, waits, tensor, published })
    }

    /// The same model in another CUDA context, to be loaded there.
    pub fn in_context(&self, cuda: &Context) -> Result<Self> {
        self.model.request.in_context(cuda).map(|request| self.of(request))
    }

    /// The same model on another GPU, shared with all that have it there.
    pub fn shared_on_gpu_of(&self, cuda: &Context, settings: &Settings) -> Result<Self> {
        let open = || self.model.request.in_context(cuda);
        let (model, handle, is_reader) = sharing::join_or_open(settings, Some(cuda.device()), open)?;
        Ok(StartedModel { model, handle: Arc::new(handle), is_reader, ..self.clone() })
    }

    /// The same model for tensors of that size, to be loaded for them; `None` where it need not be, or cannot.
    pub fn fitted(&self, dims: &Dims) -> Option<Self> {
        let request = &self.model.request;
        let is_loaded = !self.waits && request.spec.desc.dims == *dims;
        if !request.waits_for_frames() || self.handle.is_left() || is_loaded {
            return None;
        }
        let mut open = request.model().image_input().dims.clone();
        open.0[0] = 1;
        if !dims.fits(&open) {
            return None; // the first frame brings an error
        }
        let mut spec = request.spec.clone();
        spec.desc.dims = dims.clone();
        Some(StartedModel { is_reader: true, waits: false, ..self.of(request.for_tensor(spec)) })
    }

    /// The model that takes the place of this one, for such tensors.
    pub fn succeeded(by: &Successor, settings: &Settings, tensor: Arc<InputSpec>) -> Result<Self> {
        let handle = ModelHandle::take(&by.model.loader).expect("its successor keeps it loaded");
        let joined = StartedModel::joined(settings, (by.model.clone(), handle, false))?;
        Ok(StartedModel { waits: false, tensor, ..joined })
    }

    /// The same with a model of this element alone.
    fn of(&self, request: LoadRequest) -> Self {
        let model = Arc::new(SharedModel::new(request, &self.model.settings).inherit(&self.model));
        let handle = ModelHandle::take(&model.loader).expect("it is new");
        StartedModel { model, handle: Arc::new(handle), ..self.clone() }
    }

    pub fn is_on_host(&self) -> bool {
        self.model.request.backend.device() == Device::Host
    }

    /// What was read from the file, for applications and for `gst-launch-1.0 -v`.
    pub fn info(&self) -> gst::Structure {
        let request = &self.model.request;
        let model = request.model();
        let descs = |descs: &[TensorDesc]| gst::Array::new(descs.iter().map(|desc| desc.to_string()));
        let mut metadata = gst::Structure::new_empty("metadata");
        for (key, value) in model.metadata.iter().filter(|(_, value)| value.len() < 4096) {
            metadata.set(key.replace(|c: char| !c.is_ascii_alphanumeric(), "-"), value);
        }
        gst::Structure::builder("model-info")
            .field("file", model.path.display().to_string())
            .field("producer", &model.producer)
            .field("backend", request.backend.name())
            .field("task", model.task.as_deref())
            .field("stride", model.stride.unwrap_or(0))
            .field("labels", gst::Array::new(&model.labels))
            .field("inputs", descs(&model.inputs))
            .field("outputs", descs(&model.outputs))
            .field("tensor", self.tensor.to_string())
            .field("metadata", metadata)
            .build()
    }
}
