// SPDX-License-Identifier: MPL-2.0
//! A model that an element has, from its start to its stop.

use std::sync::Arc;

use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::backends::verify::Verdict;
use gsttrt_core::backends::{LoadRequest, Placement};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::device::Device;
use gsttrt_core::error::Result;
use gsttrt_core::image::options::parse_input_size;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::tensor::{Dims, TensorDesc};

use super::life::{OpenModel, OpeningTicket};
use super::messages;
use super::model::{SharedHandle, SharedModel};
use super::settings::Settings;
use super::sharing;
use crate::gst::meta::gst_tensor::PublishedOutputs;
use crate::gst::model_check;

/// What was read of a model; does not change until stop(), unless another CUDA context takes the place of this one.
/// Each frame takes a copy.
#[derive(Clone)]
pub struct StartedModel {
    pub model: Arc<SharedModel>,
    pub handle: Arc<ModelHandle>,
    /// As for [`SharedHandle`].
    pub is_reporter: bool,
    /// Whether it still has to: for tensors whose size is known only with the first frame.
    pub waits: bool,
    /// What frames become, as far as is known yet.
    pub tensor: Arc<InputSpec>,
    /// How outputs are published, where `tensor-meta` asks for it.
    pub published: Option<Arc<PublishedOutputs>>,
}

impl OpenModel for StartedModel {
    type Next = SharedHandle;

    fn set_flushing(&self, flushing: bool) {
        self.handle.set_flushing(flushing);
    }

    fn leave(&self) {
        self.handle.leave();
    }
}

/// What comes of reading a model.
pub enum ReadOutcome {
    Read(StartedModel),
    /// That takes long, and is for a thread of its own.
    TakesLong,
    /// The element does not want it any more.
    Unwanted,
}

/// Decides where the model runs. `cuda` is asked for a context where a backend on a GPU is to run it.
pub fn place(settings: &Settings, cuda: impl FnOnce() -> Result<Context>) -> Result<Placement> {
    let path = settings.model_file.as_deref().ok_or_else(messages::no_model)?;
    Placement::new(path, settings.backend, settings.options.clone(), cuda)
}

/// Reads the description.
pub fn describe(settings: &Settings, placement: Placement) -> Result<LoadRequest> {
    let size = parse_input_size(&settings.input_size)?;
    let request = placement.describe(size, settings.batch_size as usize)?;
    model_check::check(&settings.shared_model, request.model())?;
    let request = request.with_parallel_runs(settings.parallel_runs as usize);
    // Frames of several streams are batched, so their tensors have one size whatever the frames have.
    Ok(if settings.is_shared() { request.with_one_size() } else { request })
}

impl StartedModel {
    /// Decides where the model runs, and reads its description, unless another element that shares it has done so. `may_take_long`
    /// says whether this thread is there for that.
    pub fn read(
        settings: &Settings,
        cuda: &impl Fn() -> Result<Context>,
        ticket: &OpeningTicket,
        may_take_long: bool,
    ) -> Result<ReadOutcome> {
        loop {
            // Another model may have taken the place of the one that the element was made with.
            let settings = sharing::current(settings);
            if settings.model_file.is_none() {
                return Err(messages::no_model());
            }
            parse_input_size(&settings.input_size)?;
            // One that is on a GPU is joined where the frames are.
            let is_on_gpu = sharing::find(&settings, None).is_some_and(|model| model.request.cuda.is_some());
            let gpu = if is_on_gpu { Some(cuda()?.device()) } else { None };
            if let Some(joined) = sharing::join(&settings, gpu)? {
                return StartedModel::joined(&settings, joined).map(ReadOutcome::Read);
            }
            let placement = place(&settings, cuda)?;
            let takes_long = placement.loads_to_describe();
            if takes_long && !may_take_long {
                sharing::want(&settings, ticket)?;
                return Ok(ReadOutcome::TakesLong);
            }
            let (gpu, of) = (placement.gpu(), settings.clone());
            let open = move || describe(&of, placement);
            let joined = match takes_long {
                true => sharing::join_or_read(&settings, gpu, ticket, open)?,
                false => sharing::join_or_open(&settings, gpu, ticket, open)?,
            };
            match joined {
                Some(joined) => return StartedModel::joined(&settings, joined).map(ReadOutcome::Read),
                None if ticket.is_wanted() => {}
                None => return Ok(ReadOutcome::Unwanted),
            }
        }
    }

    pub fn joined(settings: &Settings, joined: SharedHandle) -> Result<Self> {
        let SharedHandle { model, handle, is_reporter } = joined;
        let (waits, tensor) = (model.request.waits_for_frames(), Arc::new(model.request.wanted()));
        let published = if settings.own.tensor_meta {
            let (_, height, width) = tensor.chw();
            Some(Arc::new(PublishedOutputs::new(model.request.model(), (width as u32, height as u32))?))
        } else {
            None
        };
        Ok(StartedModel { model, handle, is_reporter, waits, tensor, published })
    }

    /// The same model in another CUDA context, to be loaded there.
    pub fn in_context(&self, cuda: &Context) -> Result<Self> {
        self.model.request.in_context(cuda).map(|request| self.of(request))
    }

    /// The same model on another GPU, shared with all that have it there.
    pub fn shared_on_gpu_of(&self, cuda: &Context, settings: &Settings, ticket: &OpeningTicket) -> Result<ReadOutcome> {
        let (request, context) = (self.model.request.clone(), cuda.clone());
        let open = move || request.in_context(&context);
        match sharing::join_or_read(settings, Some(cuda.device()), ticket, open)? {
            Some(SharedHandle { model, handle, is_reporter }) => {
                Ok(ReadOutcome::Read(StartedModel { model, handle, is_reporter, ..self.clone() }))
            }
            None => StartedModel::read(settings, &|| Ok(cuda.clone()), ticket, true),
        }
    }

    /// The same model for tensors of that size, to be loaded for them; `None` where it need not be, or cannot.
    pub fn fitted(&self, dims: &Dims) -> Option<Self> {
        let request = &self.model.request;
        let is_loaded = !self.waits && request.spec.desc.dims == *dims;
        // How many frames a clip has is known with the first one.
        if !request.waits_for_frames() || self.handle.is_left() || is_loaded || !dims.is_static() {
            return None;
        }
        let mut open = request.model().image_input().dims.clone();
        open.0[0] = 1;
        if !dims.fits(&open) {
            return None; // the first frame brings an error
        }
        let mut spec = request.spec.clone();
        spec.desc.dims = dims.clone();
        Some(StartedModel { is_reporter: true, waits: false, ..self.of(request.for_tensor(spec)) })
    }

    /// The model that takes the place of this one, for such tensors.
    pub fn succeeded(by: SharedHandle, settings: &Settings, tensor: Arc<InputSpec>) -> Result<Self> {
        let joined = StartedModel::joined(settings, by)?;
        Ok(StartedModel { waits: false, tensor, ..joined })
    }

    /// The same with a model of this element alone.
    fn of(&self, request: LoadRequest) -> Self {
        let model = Arc::new(SharedModel::new(request, &self.model.settings).inherit(&self.model));
        let handle = ModelHandle::take(&model.loader).expect("it is new");
        StartedModel { model, handle: Arc::new(handle), ..self.clone() }
    }

    pub fn is_on_host(&self) -> bool {
        self.model.request.device() == Device::Host
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
            .field("backend", request.running().name())
            .field("task", model.task.as_deref())
            .field("stride", model.stride.unwrap_or(0))
            .field("labels", gst::Array::new(&model.labels))
            .field("inputs", descs(&model.inputs))
            .field("outputs", descs(&model.outputs))
            .field("tensor", self.tensor.to_string())
            .field("metadata", metadata)
            .field_if_some("verified", self.handle.batcher().and_then(|batcher| batcher.verdict().map(verified)))
            .build()
    }
}

/// What was found out about the outputs of a model.
fn verified(verdict: &Verdict) -> gst::Structure {
    let count = |count: usize| count as u32;
    gst::Structure::builder("verified")
        .field("passed", verdict.passed())
        .field("faults", gst::Array::new(&verdict.faults))
        .field("precision", &verdict.precision)
        .field("pictures", count(verdict.pictures))
        .field("runs", count(verdict.runs))
        .field("largest-batch", count(verdict.largest_batch))
        .field("milliseconds", verdict.milliseconds)
        .field_if_some("reference", verdict.reference.as_ref().ok())
        .field_if_some("not-compared", verdict.reference.as_ref().err())
        .field_if_some("error", verdict.worst().map(|(_, error)| error))
        .field_if_some("results-sought", verdict.results.map(|(sought, _)| count(sought)))
        .field_if_some("results-found", verdict.results.map(|(_, found)| count(found)))
        .field_if_some("repair", verdict.repair.as_ref())
        .build()
}
