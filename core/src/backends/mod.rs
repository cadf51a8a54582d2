// SPDX-License-Identifier: MPL-2.0
//! Backends, which run models. A backend is one file or folder behind the traits [`Backend`], [`OpenedModel`] and
//! [`ModelInstance`], and one line in [`BACKENDS`].
//!
//! ```text
//! Placement::new       probe → the first backend that can run the file
//! Placement::describe  describe → OpenedModel: what the file says, and the input that it wants
//! LoadRequest::load    OpenedModel::load → ModelInstance, which a Batcher runs
//! TensorModel::load    load_for_tensors → TensorNet, of models without pictures
//! ```

pub mod batcher;
mod context_pool;
pub mod effect;
mod exit;
mod foreign;
mod host;
pub mod kserve;
pub mod loader;
pub mod log;
pub mod onnxruntime;
pub mod openvino;
pub mod options;
mod request;
pub mod rten;
pub mod tensorrt;
mod tensors;
pub mod verify;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use crate::cuda::driver::{Context, Fence};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::image::transform::InputSpec;
use crate::memory::BatchPool;
use crate::model::{InputValues, ModelFile, ModelInfo};
use crate::options::{Choice, OptionKind, OptionSpec, OptionValue, SettingField};
use crate::redact::redacted;
use crate::tensor::{Dims, TensorDesc, Tensors};
use options::{BackendOption, Options};
pub use request::{LoadRequest, Placement, loading_process};
pub use tensors::{TensorModel, TensorNet, floats};

/// All backends, the ones that are preferred first.
pub static BACKENDS: &[&dyn Backend] =
    &[&tensorrt::TensorRt, &openvino::OpenVino, &onnxruntime::OnnxRuntime, &rten::Rten, &kserve::KServe];

/// A library that runs models.
pub trait Backend: Sync {
    /// As in the property `backend`.
    fn name(&self) -> &'static str;

    /// Its name in messages.
    fn title(&self) -> &'static str;

    /// What it is, for the property `backend`.
    fn blurb(&self) -> &'static str;

    /// The device where it takes tensors and gives them, with these options.
    fn device(&self, options: &Options) -> Device;

    /// The options that the user may set.
    fn options(&self) -> &'static [&'static BackendOption] {
        &[]
    }

    /// Whether it can run that file on this machine, found without loading the model.
    fn probe(&self, file: &ModelFile, options: &Options) -> std::result::Result<(), Unsupported>;

    /// Reads the description of the model. `cuda` is there where its [device](Backend::device) is a GPU.
    fn describe(&self, file: &ModelFile, options: &Options, cuda: Option<&Context>) -> Result<Arc<dyn OpenedModel>>;

    /// Whether [`describe`](Backend::describe) loads that file to know what it says, which may take long.
    fn loads_to_describe(&self, _file: &ModelFile) -> bool {
        false
    }

    /// Loads a model without pictures: each of its inputs gets a tensor of the caller, of these dimensions.
    ///
    /// # Errors
    /// `Library`, where it runs models of pictures only.
    fn load_for_tensors(
        &self,
        _info: &Arc<ModelInfo>,
        _file: &ModelFile,
        _dims: &[Dims],
        _options: &Options,
    ) -> Result<Box<dyn TensorNet>> {
        let what = format!("{} runs models of pictures only", self.title());
        Err(Error::new(ErrorKind::Library, what).remedy("Use backend=cpu, openvino, onnxruntime or rten"))
    }

    /// Whether a model that is loaded takes one size of input after the other, where the file leaves it open.
    fn takes_any_size(&self) -> bool;

    /// Whether it is chosen where the user names none.
    fn is_automatic(&self) -> bool {
        true
    }

    /// Whether it computes in 32-bit floats, where it is on the CPU, so that others are compared with it.
    fn is_exact(&self) -> bool {
        true
    }

    /// A run of one of its models was given up, and may never end.
    fn run_was_abandoned(&self) {}
}

/// Why a backend does not run a file.
pub enum Unsupported {
    /// It never will: the file is of a kind for others.
    Kind(Error),
    /// Something is missing on this machine.
    Missing(Error),
}

/// A model whose description was read.
pub trait OpenedModel: Send + Sync {
    fn info(&self) -> &Arc<ModelInfo>;

    /// Whether it can be loaded for such a tensor of a frame, and so many frames at once.
    fn takes(&self, _spec: &InputSpec, _batch: usize) -> bool {
        true
    }

    /// How much its outputs may differ from those of another backend in 32-bit floats.
    #[doc(hidden)]
    fn tolerance(&self, _request: &LoadRequest) -> Result<&'static verify::Tolerance> {
        Ok(&verify::Tolerance::HALF)
    }

    /// Loads it; this is the slow part.
    fn load(&self, request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>>;
}

/// A loaded model. One batch at a time; another thread needs another one.
pub trait ModelInstance: Send {
    /// Runs the model on the pictures' tensors, at most as many as it was opened for: one tensor each, as the specification
    /// says. Returns all outputs of each picture, in the model's order, each in its own type; they keep the picture.
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>>;

    /// Takes other values for inputs besides the picture, from the next run on, as [`LoadRequest::with_values`] allows; at first
    /// it has those of its request. A model without such inputs takes any.
    ///
    /// # Errors
    /// Where the GPU cannot take them. Then some have to be set before the next run.
    fn set_values(&mut self, _values: &Arc<InputValues>) -> Result<()> {
        Ok(())
    }

    /// Runs the model with other values to find out whether it can: nothing is made of the outputs. Those of the next run are set
    /// before that.
    ///
    /// # Errors
    /// As [`set_values`](ModelInstance::set_values) and [`run`](ModelInstance::run).
    #[doc(hidden)]
    fn try_values(&mut self, values: &Arc<InputValues>, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        self.set_values(values)?;
        self.run(pictures)
    }

    /// Whether [`run`](ModelInstance::run) only queues work and returns at once, so that it may be called where a wait
    /// must be short. Else it computes until it is done, which may be never.
    fn only_queues(&self) -> bool {
        false
    }

    /// How many runs are on the GPU at the same time, where they are only queued there. Further ones wait there.
    fn runs_at_once(&self) -> usize {
        1
    }

    /// Queues a run on a picture and outputs at the addresses given: behind what is queued on the caller's `stream`, if
    /// there is one, and before what is queued there later. Returns the fence that is passed when it is done.
    ///
    /// # Safety
    /// The stream is of the backend's context, and alive. The memory is the GPU's, has the tensors' sizes, begins at
    /// multiples of 256, and stays until the fence is passed.
    ///
    /// # Errors
    /// `Library`, where this backend does not run on a GPU; `Run`, where running failed.
    unsafe fn run_at(&mut self, _picture: u64, _outputs: &[u64], _stream: Option<*mut c_void>) -> Result<Fence> {
        Err(Error::new(ErrorKind::Library, "The model does not run on a GPU"))
    }

    /// GPU memory that its runs work in, tensors included, in addition to the model's own.
    fn working_bytes(&self) -> u64 {
        0
    }

    /// What was found in frames that are compared while they play, where some are.
    #[doc(hidden)]
    fn watch(&self) -> Option<&Arc<verify::Watch>> {
        None
    }

    /// What ends the run that is in progress, with an error; `None` where it cannot be ended.
    fn interrupter(&self) -> Option<Interrupter> {
        None
    }

    /// Takes out of it the others of the same model that it was loaded with, whose runs go on at the same time as its own.
    fn take_others(&mut self) -> Vec<Box<dyn ModelInstance>> {
        Vec::new()
    }
}

/// Ends a run, from any thread. Later runs are not affected.
pub type Interrupter = Arc<dyn Fn() + Send + Sync>;

/// Why a frame has no outputs, or there is no model for it.
#[derive(Clone, Debug)]
pub enum Interrupted {
    /// Loading the model or running it failed. All that wait for it get a copy of the one error.
    Failed(Error),
    /// The stream was flushed or stopped.
    Flushing,
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Interrupted::Failed(error)
    }
}

/// Which backend the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendPreference {
    /// The first of `BACKENDS` that can run the model.
    #[default]
    Auto,
    /// The one of this name; `cpu` is the first of those that take tensors in the host's memory.
    Named(&'static str),
}

const AUTO: &str = "auto";
/// All backends that take tensors in the host's memory.
const CPU: &str = "cpu";

/// The choice among [`BACKENDS`], as an option.
pub static PREFERENCE: LazyLock<OptionSpec> = LazyLock::new(|| {
    let auto = Choice {
        word: AUTO,
        blurb: "A server for an address like grpc://host:8001/model. Of files TensorRT where it can run the model, else as cpu",
    };
    let cpu = Choice {
        word: CPU,
        blurb: "OpenVINO where it is found, on x86, else ONNX Runtime where it is found, else rten",
    };
    let named = BACKENDS.iter().map(|backend| Choice { word: backend.name(), blurb: backend.blurb() });
    OptionSpec {
        name: "backend",
        nick: "Backend",
        blurb: "What runs the model",
        kind: OptionKind::Choice {
            type_name: "GstTrtBackend",
            choices: [auto, cpu].into_iter().chain(named).collect::<Vec<_>>().leak(),
        },
    }
});

impl From<&'static str> for BackendPreference {
    fn from(word: &'static str) -> Self {
        if word == AUTO { BackendPreference::Auto } else { BackendPreference::Named(word) }
    }
}

impl SettingField for BackendPreference {
    fn value(&self) -> OptionValue {
        OptionValue::Choice(match self {
            BackendPreference::Auto => AUTO,
            BackendPreference::Named(name) => name,
        })
    }

    fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        let OptionValue::Choice(word) = value else { panic!("{name} has another type: {value:?}") };
        *self = word.into();
        Ok(())
    }
}

/// The options of all backends, each once.
pub fn all_options() -> impl Iterator<Item = &'static BackendOption> {
    let before = |at: usize, option: &BackendOption| BACKENDS[..at].iter().any(|backend| backend.has(option));
    let own = move |(at, backend): (usize, &&'static dyn Backend)| {
        backend.options().iter().copied().filter(move |option| !before(at, option)).collect::<Vec<_>>()
    };
    BACKENDS.iter().enumerate().flat_map(own)
}

impl dyn Backend + '_ {
    /// Whether it heeds that option.
    pub fn has(&self, option: &BackendOption) -> bool {
        self.options().iter().any(|own| own.spec.name == option.spec.name)
    }
}

/// The backend for a [`BackendPreference`] on this machine, and for `auto`, why it is not a better one.
struct Selection {
    backend: &'static dyn Backend,
    reason: Option<String>,
    /// Those on the host that are next, should it fail to load the model.
    others: Vec<&'static dyn Backend>,
}

/// Decides without loading the model.
fn choose(preference: BackendPreference, file: &ModelFile, options: &Options) -> Result<Selection> {
    choose_among(BACKENDS, preference, file, options)
}

fn choose_among(
    backends: &'static [&'static dyn Backend],
    preference: BackendPreference,
    file: &ModelFile,
    options: &Options,
) -> Result<Selection> {
    let is_on_host = |backend: &&'static dyn Backend| backend.device(options) == Device::Host;
    let is_wanted = |backend: &&'static dyn Backend| match preference {
        BackendPreference::Auto => backend.is_automatic(),
        BackendPreference::Named(CPU) => backend.is_automatic() && is_on_host(backend),
        BackendPreference::Named(name) => backend.name() == name,
    };
    let wanted: Vec<&'static dyn Backend> = backends.iter().copied().filter(is_wanted).collect();
    let (mut missing, mut of_other_kind) = (Vec::new(), Vec::new());
    let reasons = |missing: &[Error]| missing.iter().map(Error::as_clause).collect::<Vec<_>>().join("; ");
    for (at, &backend) in wanted.iter().enumerate() {
        match backend.probe(file, options) {
            Ok(()) => {
                let is_fallback = preference == BackendPreference::Auto && !missing.is_empty();
                let is_next = |other: &&'static dyn Backend| is_on_host(&backend) && is_on_host(other);
                let others = wanted[at + 1..].iter().copied().filter(is_next).collect();
                return Ok(Selection { backend, reason: is_fallback.then(|| reasons(&missing)), others });
            }
            Err(Unsupported::Missing(error)) => missing.push(error),
            Err(Unsupported::Kind(error)) => of_other_kind.push(error),
        }
    }
    if missing.len() > 1 {
        return Err(Error::new(ErrorKind::Library, format!("Nothing here can run {}", file.path().display()))
            .cause(reasons(&missing))
            .remedy("Install one of what is missing, or set backend to see all that is said of one"));
    }
    Err(missing.into_iter().chain(of_other_kind).next().unwrap_or_else(|| {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
        Error::new(ErrorKind::Settings, format!("There is no backend “{}”", preference.value()))
            .remedy(format!("Use auto, {CPU}, {}", names.join(", ")))
    }))
}

/// What a backend that runs files says to an address.
fn refuse_address(file: &ModelFile, title: &str) -> std::result::Result<(), Unsupported> {
    if !file.is_on_server() {
        return Ok(());
    }
    let what = format!("{} is on a server, and {title} runs files", redacted(&file.path().to_string_lossy()));
    Err(Unsupported::Kind(Error::new(ErrorKind::Settings, what).remedy("Use backend=kserve, or give a file")))
}

/// What a backend that runs ONNX says to all else.
fn refuse_others(file: &ModelFile, title: &str) -> std::result::Result<(), Unsupported> {
    refuse_address(file, title)?;
    if !file.is_engine() {
        return Ok(());
    }
    let what = format!("{} is a TensorRT engine, which {title} cannot run", file.path().display());
    Err(Unsupported::Kind(
        Error::new(ErrorKind::Settings, what)
            .remedy("Give the .onnx file that the engine was built from, or use backend=tensorrt"),
    ))
}

/// Events while a model is loaded.
#[non_exhaustive]
pub enum LoadEvent<'a> {
    /// The current step, and how much of it is done, in percent.
    Progress(&'a str, Option<u32>),
    /// Loading goes on.
    Warning(Error),
    /// What was found out about the model that is loaded, now or earlier.
    #[doc(hidden)]
    Verified(&'a verify::Verdict),
}

/// How and for whom a model is loaded.
pub struct LoadContext<'a> {
    /// May be called from any thread.
    pub report: &'a (dyn Fn(LoadEvent<'_>) + Send + Sync),
    /// Set once the model is no longer needed.
    pub cancelled: &'a AtomicBool,
    /// The memory that pictures will be in, if that is known, so that graphs for it can be captured before the first frame.
    #[doc(hidden)]
    pub slots: Option<&'a BatchPool>,
    /// How many runs are to be on the GPU in parallel, if it has the memory.
    #[doc(hidden)]
    pub contexts: usize,
}

impl LoadContext<'static> {
    /// For a caller that waits for the model itself: nothing is reported, and nothing cancels it.
    pub fn silent() -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        LoadContext { report: &|_| {}, cancelled: &NEVER, slots: None, contexts: 1 }
    }
}

impl LoadContext<'_> {
    /// Execution contexts of a model that many streams give one picture each. So many runs fill an H200, and each
    /// context takes memory to work in.
    #[doc(hidden)]
    pub const SHARED_CONTEXTS: usize = 4;

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Outputs without a row for each picture of a batch cannot be divided among the pictures.
fn check_rows(output: &TensorDesc, rows: usize) -> Result<()> {
    if rows == 1 || output.dims.first() == Some(&(rows as i64)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Model, "The model's outputs cannot be divided by frame")
        .cause(format!("of a batch of {rows} it makes {output}"))
        .remedy("Set batch-size=1, or export the model with outputs whose first dimension is the batch"))
}

/// Runs a backend's foreign code and converts a panic into an error. C++ exceptions are no panics: one that leaves
/// TensorRT would abort the process here, see `tensorrt::abi`.
fn contained<T>(kind: ErrorKind, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::new(kind, what).cause(format!("the library panicked, {}", said.unwrap_or("saying nothing"))).remedy(
            "This is a bug of that library; exporting the model with other options or another opset may avoid it",
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Runs files of one kind, where nothing is missing.
    struct Fake {
        name: &'static str,
        device: Device,
        engines: bool,
        missing: Option<&'static str>,
    }

    impl Backend for Fake {
        fn name(&self) -> &'static str {
            self.name
        }

        fn title(&self) -> &'static str {
            self.name
        }

        fn blurb(&self) -> &'static str {
            self.name
        }

        fn device(&self, _: &Options) -> Device {
            self.device
        }

        fn probe(&self, file: &ModelFile, _: &Options) -> std::result::Result<(), Unsupported> {
            if file.is_engine() != self.engines {
                return Err(Unsupported::Kind(Error::new(ErrorKind::Settings, format!("{} is for others", self.name))));
            }
            let missing = |why| Unsupported::Missing(Error::new(ErrorKind::Library, "Something is missing").cause(why));
            self.missing.map_or(Ok(()), |why| Err(missing(why)))
        }

        fn describe(&self, _: &ModelFile, _: &Options, _: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
            unreachable!("only chosen")
        }

        fn takes_any_size(&self) -> bool {
            true
        }
    }

    static FAST: Fake = Fake { name: "fast", device: Device::Cuda, engines: false, missing: Some("no driver") };
    static OTHER: Fake = Fake { name: "other", device: Device::Host, engines: false, missing: Some("no library") };
    static SLOW: Fake = Fake { name: "slow", device: Device::Host, engines: false, missing: None };
    static MIDDLE: Fake = Fake { name: "middle", device: Device::Cuda, engines: false, missing: None };
    static ENGINES: Fake = Fake { name: "engines", device: Device::Cuda, engines: true, missing: Some("no GPU") };

    /// The name of the choice and why it was not a better one, or the error.
    fn chosen(
        backends: &'static [&'static dyn Backend],
        preference: &'static str,
        file: &str,
    ) -> std::result::Result<(&'static str, Option<String>), String> {
        choose_among(backends, preference.into(), &ModelFile::new(Path::new(file)), &Options::default())
            .map(|Selection { backend, reason, .. }| (backend.name(), reason))
            .map_err(|error| error.message())
    }

    #[test]
    fn auto_selects_the_first_and_names_what_is_missing() {
        static ALL: [&dyn Backend; 4] = [&FAST, &OTHER, &SLOW, &ENGINES];
        assert_eq!(chosen(&ALL, "auto", "m.onnx"), Ok(("slow", Some("no driver; no library".into()))));
        static WHOLE: [&dyn Backend; 3] = [&MIDDLE, &SLOW, &ENGINES];
        assert_eq!(chosen(&WHOLE, "auto", "m.onnx"), Ok(("middle", None)));
        assert_eq!(chosen(&WHOLE, "slow", "m.onnx"), Ok(("slow", None)));
    }

    #[test]
    fn cpu_is_the_first_in_the_memory_of_the_host() {
        static ALL: [&dyn Backend; 3] = [&MIDDLE, &OTHER, &SLOW];
        assert_eq!(chosen(&ALL, "cpu", "m.onnx"), Ok(("slow", None)), "the user asks for no other one");
        assert_eq!(chosen(&ALL, "cpu", "m.engine").unwrap_err(), "other is for others.");
    }

    #[test]
    fn without_a_usable_backend_the_error_has_the_reasons() {
        static ALL: [&dyn Backend; 4] = [&FAST, &OTHER, &SLOW, &ENGINES];
        assert_eq!(
            chosen(&ALL, "auto", "m.engine").unwrap_err(),
            "Something is missing: no GPU.",
            "of the one for engines"
        );
        assert_eq!(chosen(&ALL, "slow", "m.engine").unwrap_err(), "slow is for others.");
        assert_eq!(chosen(&ALL, "fast", "m.onnx").unwrap_err(), "Something is missing: no driver.");
        static NONE: [&dyn Backend; 2] = [&FAST, &OTHER];
        let error = chosen(&NONE, "auto", "m.onnx").unwrap_err();
        assert!(error.starts_with("Nothing here can run m.onnx: no driver; no library."), "{error}");
        static OTHERS: [&dyn Backend; 1] = [&SLOW];
        assert_eq!(chosen(&OTHERS, "auto", "m.engine").unwrap_err(), "slow is for others.");
        let error = chosen(&ALL, "none", "m.onnx").unwrap_err();
        assert_eq!(error, "There is no backend “none”. Use auto, cpu, fast, other, slow, engines.");
    }

    #[test]
    fn names_are_used_once() {
        let mut names: Vec<&str> = all_options().map(|option| option.spec.name).collect();
        names.extend(BACKENDS.iter().map(|backend| backend.name()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }
}
