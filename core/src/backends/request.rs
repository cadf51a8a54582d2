// SPDX-License-Identifier: MPL-2.0
//! The steps before the slow part of loading a model: its description and backend.

use std::iter;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::onnxruntime::PROVIDERS;
use super::options::{BackendOption, INPUT_VALUES, MAX_INPUT_WIDTH, Options};
use super::verify::{Tolerance, VERIFY, VERIFY_EVERY, watched};
use super::{
    BACKENDS, Backend, BackendPreference, LoadContext, LoadEvent, ModelInstance, OpenedModel, Selection, Unsupported,
    choose, contained,
};
use crate::cuda::driver::{self, Context};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::image::clip::{frames_of, no_clips};
use crate::image::geometry::{Letterbox, ResizeMode};
use crate::image::transform::InputSpec;
use crate::model::{InputValues, ModelFile, ModelInfo};
use crate::tensor::Dims;

/// The id of the process that began to load a model first; 0 if none has.
static LOADING_PROCESS: AtomicU32 = AtomicU32::new(0);

/// The id of the process that began to load a model first, if one has, whatever became of that: threads of the backends are there from
/// then on, and a process that is forked from it has none of them, but waits for them.
pub fn loading_process() -> Option<u32> {
    Some(LOADING_PROCESS.load(Ordering::Relaxed)).filter(|&id| id != 0)
}

/// A model that is known, and where it will run.
#[derive(Clone)]
pub struct LoadRequest {
    /// In memory from the description to the end of loading.
    pub(super) file: Arc<ModelFile>,
    opened: Arc<dyn OpenedModel>,
    /// Its description, with the names of classes that come with the values.
    info: Arc<ModelInfo>,
    /// What goes into it besides pictures.
    pub(super) values: Arc<InputValues>,
    pub backend: &'static dyn Backend,
    /// Those that are next, should it fail to load the model.
    alternatives: Vec<&'static dyn Backend>,
    /// The one among them that runs it, for this request and its copies.
    instead: Arc<OnceLock<&'static dyn Backend>>,
    /// Why [`BackendPreference::Auto`] did not select a better backend.
    pub reason: Option<String>,
    options: Options,
    /// The CUDA context for backends on a GPU.
    pub cuda: Option<Context>,
    /// The tensor that the model wants for a frame.
    pub spec: InputSpec,
    /// Maximum number of frames that are run at once.
    pub batch: usize,
    /// Runs that a backend on the CPU makes at the same time; 0 for as many as fill it.
    pub(super) parallel_runs: usize,
    /// Where the input has the smallest size that frames need: its stride, and the size within which it stays.
    adaptive: Option<Adaptive>,
    /// Whether clips may have any number of frames.
    opens_frames: bool,
    /// Another model is compared with it, and has the same file.
    is_reference: bool,
    /// The same for other backends, where this one fails.
    others: Vec<LoadRequest>,
}

#[derive(Clone, Copy)]
struct Adaptive {
    stride: u32,
    largest: (u32, u32),
}

/// Where a model will run, decided before its description is read.
pub struct Placement {
    file: Arc<ModelFile>,
    pub backend: &'static dyn Backend,
    alternatives: Vec<&'static dyn Backend>,
    reason: Option<String>,
    options: Options,
    cuda: Option<Context>,
}

impl Placement {
    /// `cuda` is asked for a context where a backend on a GPU is to run the model.
    pub fn new(
        path: &Path,
        preference: BackendPreference,
        options: Options,
        cuda: impl FnOnce() -> Result<Context>,
    ) -> Result<Self> {
        let file = Arc::new(ModelFile::new(path));
        let Selection { backend, reason, others: alternatives } = choose(preference, &file, &options)?;
        let cuda = match backend.device(&options) {
            Device::Host => None,
            Device::Cuda => Some(cuda()?),
        };
        Ok(Placement { file, backend, alternatives, reason, options, cuda })
    }

    /// Whether a GPU is to run that model, as far as can be told without reading the file or making a context.
    pub fn is_for_gpu(path: &Path, preference: BackendPreference, options: &Options) -> bool {
        let file = ModelFile::new(path);
        if driver::available().is_err() {
            return false;
        }
        if file.is_engine() {
            // It runs there or not at all, and its header is in the file.
            let is_wanted = |backend: &&dyn Backend| preference == BackendPreference::Named(backend.name());
            return preference == BackendPreference::Auto
                || BACKENDS.iter().any(|backend| is_wanted(backend) && backend.device(options) == Device::Cuda);
        }
        choose(preference, &file, options).is_ok_and(|selection| selection.backend.device(options) == Device::Cuda)
    }

    /// The number of the GPU, where it is one.
    pub fn gpu(&self) -> Option<i32> {
        self.cuda.as_ref().map(Context::device)
    }

    /// The model's description, whatever it can be used for.
    #[doc(hidden)]
    pub fn info(&self) -> Result<Arc<ModelInfo>> {
        let opened = self.backend.describe(&self.file, &self.options, self.cuda.as_ref())?;
        Ok(opened.info().clone())
    }

    /// Whether the description is known only once the model is loaded, which may take long.
    pub fn loads_to_describe(&self) -> bool {
        self.backend.loads_to_describe(&self.file)
    }

    /// Reads the model's description. `size` is the wish for the width and height of an input that leaves them open, by
    /// default the smallest that frames need where the model allows that; `batch` the maximum of frames that are to be
    /// run at once, 0 for as many as the file fixes, or else one.
    pub fn describe(self, size: Option<(u32, u32)>, batch: usize) -> Result<LoadRequest> {
        let Placement { file, backend, alternatives, reason, options, cuda } = self;
        let what = format!("Cannot read the model {}", file.path().display());
        let opened = contained(ErrorKind::Model, &what, || backend.describe(&file, &options, cuda.as_ref()))?;
        let values = Arc::new(InputValues::read(&options.text(&INPUT_VALUES))?);
        let info = opened.info().with_values(&values)?;
        let batch = if batch == 0 { info.fixed_batch().unwrap_or(1) } else { batch };
        let spec = info.input_spec(size, batch, backend.device(&options))?;
        let widest = u32::try_from(options.number(&MAX_INPUT_WIDTH)).unwrap_or_default();
        let spec = info.with_widths(spec, widest)?;
        info.side_inputs(&spec, batch, &values)?; // checked here, before the slow part; the backend makes them again
        let stride = info.adaptive_stride().filter(|_| size.is_none() && widest == 0);
        let (_, height, width) = spec.chw();
        let adaptive = stride.map(|stride| Adaptive { stride, largest: (width as u32, height as u32) });
        let opens_frames = info.has_open_frames();
        Ok(LoadRequest {
            file,
            opened,
            info,
            values,
            backend,
            alternatives,
            instead: Arc::default(),
            reason,
            options,
            cuda,
            spec,
            batch,
            parallel_runs: 1,
            adaptive,
            opens_frames,
            is_reference: false,
            others: Vec::new(),
        })
    }
}

impl LoadRequest {
    /// Decides where the model runs, as [`Placement::new`], and reads its description, as [`Placement::describe`].
    pub fn new(
        path: &Path,
        preference: BackendPreference,
        size: Option<(u32, u32)>,
        batch: usize,
        options: Options,
        cuda: impl FnOnce() -> Result<Context>,
    ) -> Result<Self> {
        Placement::new(path, preference, options, cuda)?.describe(size, batch)
    }

    /// The tensor that the model wants for a frame. Where clips may have any number of frames, that is open.
    pub fn wanted(&self) -> InputSpec {
        if self.opens_frames { self.spec.with_frames(Dims::DYNAMIC) } else { self.spec.clone() }
    }

    /// The same for frames of that width and height.
    pub fn spec_for(&self, frame: (u32, u32)) -> InputSpec {
        if self.spec.has_widths() {
            let ((width, height), (_, rows, _)) = (frame, self.spec.chw());
            let columns = (rows as u64 * u64::from(width)).div_ceil(u64::from(height.max(1)));
            let columns = u32::try_from(columns).unwrap_or(u32::MAX);
            return self.spec.resized((self.spec.width_for(columns), rows as u32));
        }
        let wanted = self.wanted();
        // What is stretched fills any size.
        let adaptive = self.adaptive.filter(|_| self.spec.transform.fit == ResizeMode::Letterbox);
        let Some(Adaptive { stride, largest }) = adaptive else { return wanted };
        let smallest = Letterbox::smallest_tensor(frame, largest, stride);
        let is_taken = self.opened.takes(&self.spec.resized(smallest), self.batch);
        wanted.resized(if is_taken { smallest } else { largest })
    }

    /// The same for a model that is loaded for one size, where each size takes minutes to build: that size, or the largest one, to
    /// which frames of any size can be scaled. So two are built at most, whatever pictures come.
    pub fn next_spec_for(&self, frame: (u32, u32)) -> InputSpec {
        let (spec, wanted) = (self.spec_for(frame), self.wanted());
        match self.adaptive.filter(|_| self.waits_for_frames() && spec != wanted) {
            Some(Adaptive { largest, .. }) => wanted.resized(largest),
            None => spec,
        }
    }

    /// Whether that is the tensor that the model wants, for frames of some size.
    pub fn wants(&self, tensor: &InputSpec) -> bool {
        let ((_, height, width), wanted) = (tensor.chw(), self.wanted());
        let resized = || wanted.resized((width as u32, height as u32));
        if self.spec.has_widths() {
            let (_, rows, least) = self.spec.chw();
            let is_within = height == rows && (least..=self.spec.widest as usize).contains(&width);
            return is_within && resized() == *tensor;
        }
        match self.adaptive {
            None => wanted == *tensor,
            Some(_) => resized() == *tensor,
        }
    }

    /// Whether it is loaded for a size, or for a number of frames, that is known with the frames only.
    pub fn waits_for_frames(&self) -> bool {
        (self.adaptive.is_some() || self.opens_frames) && !self.backend.takes_any_size()
    }

    /// The same for clips of so many frames, 0 for as many as there are in any case.
    ///
    /// # Errors
    /// `Settings`, where the model takes others.
    pub fn with_frames(self, frames: u32) -> Result<Self> {
        let Some(wanted) = self.wanted().frames() else {
            return if frames == 0 { Ok(self) } else { Err(no_clips("frames", frames, &self.spec)) };
        };
        let frames = frames_of(wanted, frames, &self.spec)?;
        Ok(LoadRequest { spec: self.spec.with_frames(frames), opens_frames: false, ..self })
    }

    /// The same with other values for its inputs besides pictures. Nothing, where the model has to be loaded for them: an engine is for
    /// arrays of one size.
    ///
    /// # Errors
    /// `Settings`, where they do not fit the model.
    pub fn with_values(&self, values: &Arc<InputValues>) -> Result<Option<Self>> {
        let info = self.model_with(values)?;
        let sizes = |values: &InputValues| -> Result<Vec<Option<Dims>>> {
            let inputs = info.side_inputs(&self.spec, self.batch, values)?;
            Ok(inputs.iter().map(|input| input.as_ref().map(|tensor| tensor.desc().dims.clone())).collect())
        };
        let are_alike = sizes(values)? == sizes(&self.values)?;
        let values = values.clone();
        Ok((are_alike || self.backend.takes_any_size()).then(|| LoadRequest { info, values, ..self.clone() }))
    }

    /// The same for that tensor of one frame, or of a clip: of as many frames as this one's, where it leaves that open.
    pub fn for_tensor(&self, spec: InputSpec) -> Self {
        let frames = self.spec.frames().filter(|_| spec.frames() == Some(Dims::DYNAMIC));
        let spec = frames.map_or(spec.clone(), |frames| spec.with_frames(frames));
        LoadRequest { spec, ..self.clone() }
    }

    /// The same for frames of that width and height, in the place of another model. Where both take clips of any number of frames, these
    /// are as many as those of the other one: the stream goes on with them.
    pub fn in_place_of(&self, former: Option<&LoadRequest>, frame: (u32, u32)) -> Self {
        let former = former.filter(|former| former.opens_frames && self.opens_frames);
        let (spec, frames) = (self.spec_for(frame), former.and_then(|former| former.spec.frames()));
        self.for_tensor(frames.map_or(spec.clone(), |frames| spec.with_frames(frames)))
    }

    /// The same for frames of any size, which all come to one size of the tensor, and for clips of one length.
    pub fn with_one_size(self) -> Self {
        LoadRequest { adaptive: None, opens_frames: false, ..self }
    }

    /// The same for so many runs at the same time.
    pub fn with_parallel_runs(&self, parallel_runs: usize) -> Self {
        LoadRequest { parallel_runs, ..self.clone() }
    }

    /// The same for that many pictures at once.
    pub(super) fn with_batch(&self, batch: usize) -> Self {
        LoadRequest { batch, ..self.clone() }
    }

    /// Execution contexts on a GPU: as many as runs are asked for. One picture seldom fills a GPU, so a model that streams share
    /// without batches has several in any case.
    pub fn contexts(&self, is_shared: bool) -> usize {
        match self.parallel_runs {
            0 => LoadContext::SHARED_CONTEXTS,
            1 if is_shared && self.batch == 1 => LoadContext::SHARED_CONTEXTS,
            runs => runs,
        }
    }

    pub fn model(&self) -> &Arc<ModelInfo> {
        &self.info
    }

    /// What is known of the model with other values for its inputs besides pictures.
    ///
    /// # Errors
    /// `Settings`, where it does not have such inputs.
    pub fn model_with(&self, values: &InputValues) -> Result<Arc<ModelInfo>> {
        self.opened.info().with_values(values)
    }

    /// What goes into it besides pictures.
    pub fn values(&self) -> &Arc<InputValues> {
        &self.values
    }

    /// Where the model takes tensors and gives them.
    pub fn device(&self) -> Device {
        self.spec.device
    }

    /// The tensor that the model wants for a frame, in host memory.
    pub(super) fn spec_on_host(&self) -> InputSpec {
        InputSpec { device: Device::Host, ..self.spec.clone() }
    }

    /// The same model for another backend, on the CPU in 32-bit floats, whose outputs are those that the file describes. It knows
    /// the others that could take its place.
    ///
    /// # Errors
    /// Where none can run it, as of an engine.
    pub fn on_cpu(&self) -> Result<Self> {
        let mut options = self.options.clone();
        for option in [&VERIFY, &VERIFY_EVERY, &PROVIDERS] {
            options.set(option, option.default.clone());
        }
        let is_other = |backend: &&&'static dyn Backend| {
            backend.device(&options) == Device::Host && backend.is_exact() && backend.name() != self.backend.name()
        };
        let request_for = |backend: &'static dyn Backend| -> Result<Self> {
            let opened = opened_by(backend, &self.file, &options)?;
            let batch = opened.info().fixed_batch().unwrap_or(1);
            Ok(LoadRequest {
                info: opened.info().with_values(&self.values)?,
                values: self.values.clone(),
                opened,
                backend,
                alternatives: Vec::new(),
                instead: Arc::default(),
                reason: None,
                options: options.clone(),
                cuda: None,
                spec: self.spec_on_host(),
                batch,
                parallel_runs: 1,
                adaptive: None,
                opens_frames: false,
                file: self.file.clone(),
                is_reference: true,
                others: Vec::new(),
            })
        };
        let (mut found, mut refused) = (Vec::new(), None);
        for &backend in BACKENDS.iter().filter(is_other) {
            match request_for(backend) {
                Ok(request) => found.push(request),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let mut found = found.into_iter();
        match found.next() {
            Some(first) => Ok(LoadRequest { others: found.collect(), ..first }),
            None => {
                Err(refused.unwrap_or_else(|| Error::new(ErrorKind::Library, "There is no other backend on the CPU")))
            }
        }
    }

    /// What `work` makes of it, or of the first of the others where it fails. The error is that of this one.
    pub(super) fn or_others<T>(&self, loading: &LoadContext, mut work: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        self.others.iter().fold(work(self), |made, other| match made {
            Err(error) if !loading.is_cancelled() => work(other).or(Err(error)),
            made => made,
        })
    }

    /// The names of its backend and of those that could take its place.
    pub(super) fn backends(&self) -> String {
        let names: Vec<&str> = iter::once(self).chain(&self.others).map(|request| request.backend.name()).collect();
        names.join(", ")
    }

    /// The same in another context, where an engine has to be loaded again.
    pub fn in_context(&self, cuda: &Context) -> Result<Self> {
        let opened = self.backend.describe(&self.file, &self.options, Some(cuda))?;
        let info = opened.info().with_values(&self.values)?;
        Ok(LoadRequest { opened, info, cuda: Some(cuda.clone()), ..self.clone() })
    }

    /// An option's number; 0 where the backend has no such option.
    pub(super) fn number(&self, option: &BackendOption) -> u32 {
        let number = if self.backend.has(option) { self.options.number(option) } else { 0 };
        u32::try_from(number).unwrap_or_default()
    }

    /// How much outputs may differ from those of another backend.
    pub(super) fn tolerance(&self) -> Result<&'static Tolerance> {
        self.opened.tolerance(self)
    }

    /// The backends that could compute the model on the CPU to compare with. With another release of ours, rten is another one.
    pub(super) fn references(&self) -> String {
        let names = |reference: LoadRequest| format!("{} of {}", reference.backends(), env!("CARGO_PKG_VERSION"));
        self.on_cpu().map(names).unwrap_or_default()
    }

    /// Loads the model; this is the slow part. The memory of the file is given back.
    ///
    /// Where the backend fails and the user has not named it, the next one takes its place, with a warning.
    pub fn load(&self, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        // Else there was one before.
        let _ = LOADING_PROCESS.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
        let loaded = match self.instead.get() {
            Some(&backend) => self.load_by(backend, loading),
            None => self.opened.load(self, loading).or_else(|error| self.load_by_next(error, loading)),
        };
        let loaded = loaded.and_then(|model| watched(model, self, loading));
        self.release_file();
        loaded
    }

    /// The backend, or the one that has taken its place.
    pub fn running(&self) -> &'static dyn Backend {
        self.instead.get().copied().unwrap_or(self.backend)
    }

    fn load_by(&self, backend: &'static dyn Backend, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let opened = opened_by(backend, &self.file, &self.options)?;
        let request = LoadRequest { backend, opened, alternatives: Vec::new(), ..self.clone() };
        request.opened.load(&request, loading)
    }

    /// By the first of the others that loads it. The error is that of the backend.
    fn load_by_next(&self, error: Error, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        if error.kind() != ErrorKind::Model {
            return Err(error);
        }
        for &backend in &self.alternatives {
            if loading.is_cancelled() {
                break;
            }
            if let Ok(model) = self.load_by(backend, loading) {
                let _ = self.instead.set(backend);
                let what = format!("Running the model on {} in place of {}", backend.title(), self.backend.title());
                let warning = Error::new(ErrorKind::Model, what).cause(error.as_clause());
                let remedy = format!("Set backend={} to have it there at once", backend.name());
                (loading.report)(LoadEvent::Warning(warning.remedy(remedy)));
                return Ok(model);
            }
        }
        Err(error)
    }

    /// Gives the memory of the file back, but not of a reference: the model that is compared with it may be built again.
    pub(super) fn release_file(&self) {
        if !self.is_reference {
            self.file.release();
        }
    }
}

/// The description of the model by a backend on the host, if that can run it.
fn opened_by(backend: &dyn Backend, file: &ModelFile, options: &Options) -> Result<Arc<dyn OpenedModel>> {
    let probed = backend.probe(file, options);
    probed.map_err(|(Unsupported::Kind(error) | Unsupported::Missing(error))| error)?;
    backend.describe(file, options, None)
}

#[cfg(test)]
mod tests;
