//! What runs models. A backend is one file behind the [`ModelInstance`] trait and one arm of [`LoadRequest::load`].

pub mod batcher;
mod context_pool;
pub mod loader;
mod request;
mod rten;
pub mod tensorrt;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "gstreamer")]
use gst::glib;

use crate::backends::tensorrt::engine::Engine;
use crate::backends::tensorrt::library::Library;
use crate::core::cuda::driver::{Context, Fence};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::memory::BatchPool;
use crate::core::tensor::{TensorDesc, Tensors};
use crate::image::transform::InputSpec;
use crate::model::ModelInfo;
pub use request::LoadRequest;

/// A loaded model. One batch at a time; another thread needs another one.
pub trait ModelInstance: Send {
    /// Runs the model on the pictures' tensors, at most as many as it was opened for: one tensor each, as the specification
    /// says. Returns all outputs of each picture, in the model's order, each in its own type; they keep the picture.
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>>;

    /// Whether [`run`](ModelInstance::run) only queues work and returns at once, so that it may be called where a wait must be
    /// short. Else it computes until it is done, which may be never.
    fn only_queues(&self) -> bool {
        false
    }

    /// Queues a run on one picture and on outputs that lie where the caller says: behind what is queued on the caller's `stream`,
    /// if there is one, and before what is queued there later. Returns what is passed when it is done.
    ///
    /// # Safety
    /// The stream is of the backend's context, and alive. The memory is the GPU's, has the tensors' sizes, begins at multiples of
    /// 256, and stays until the fence is passed.
    ///
    /// # Errors
    /// `Library`, where this backend does not run on a GPU; `Run`, where running failed.
    unsafe fn run_at(&mut self, _picture: u64, _outputs: &[u64], _stream: Option<*mut c_void>) -> Result<Fence> {
        Err(Error::new(ErrorKind::Library, "The model does not run on a GPU"))
    }

    /// GPU memory that its runs work in, tensors included, beside the model's own.
    fn working_bytes(&self) -> u64 {
        0
    }
}

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
#[cfg_attr(feature = "gstreamer", derive(glib::Enum), enum_type(name = "GstTrtBackend"))]
pub enum BackendPreference {
    #[default]
    #[cfg_attr(
        feature = "gstreamer",
        enum_value(name = "TensorRT where it can run the model, else the CPU", nick = "auto")
    )]
    Auto,
    #[cfg_attr(feature = "gstreamer", enum_value(name = "TensorRT on an NVIDIA GPU", nick = "tensorrt"))]
    TensorRt,
    #[cfg_attr(feature = "gstreamer", enum_value(name = "CPU, without further libraries", nick = "cpu"))]
    Cpu,
}

/// What runs models on this machine.
#[derive(Clone, Copy)]
pub enum Backend {
    Cpu,
    TensorRt(&'static Library),
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::TensorRt(_) => "tensorrt",
        }
    }

    /// The memory where it wants tensors, as in [`InputSpec::place`].
    pub fn place(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::TensorRt(_) => "cuda",
        }
    }
}

/// What [`BackendPreference`] comes to on this machine, and for `auto`, why it was not the better one.
#[derive(Clone)]
pub struct Selection {
    pub runner: Backend,
    pub reason: Option<String>,
}

/// Decides without loading the model.
pub fn choose(choice: BackendPreference, path: &Path, options: &tensorrt::Options) -> Result<Selection> {
    let is_engine = tensorrt::is_engine(path);
    let chosen = |runner, reason| Ok(Selection { runner, reason });
    match choice {
        BackendPreference::Cpu if is_engine => Err(Error::new(
            ErrorKind::Settings,
            format!("{} is a TensorRT engine, which the CPU cannot run", path.display()),
        )
        .remedy("Give the .onnx file that the engine was built from, or use backend=tensorrt")),
        BackendPreference::Cpu => chosen(Backend::Cpu, None),
        BackendPreference::Auto | BackendPreference::TensorRt => match tensorrt::library_for(path, options) {
            Ok(library) => chosen(Backend::TensorRt(library), None),
            Err(missing) if choice == BackendPreference::Auto && !is_engine => {
                chosen(Backend::Cpu, Some(missing.as_clause()))
            }
            Err(missing) => Err(missing),
        },
    }
}

/// A model whose description was read, and the engine where the file is one.
#[derive(Clone)]
pub struct OpenedModel {
    pub model: Arc<ModelInfo>,
    pub engine: Option<Arc<Engine>>,
}

/// Reads what the model says about itself. Engines say it only once they are loaded onto a GPU, so for them this needs a
/// `cuda` context, and takes some time.
pub fn describe(
    runner: Backend,
    path: &Path,
    options: &tensorrt::Options,
    cuda: Option<&Context>,
) -> Result<OpenedModel> {
    match (runner, cuda) {
        (Backend::TensorRt(library), Some(cuda)) if tensorrt::is_engine(path) => {
            let (model, engine) = tensorrt::load_engine(path, library, options, cuda)?;
            Ok(OpenedModel { model: Arc::new(model), engine: Some(engine) })
        }
        _ => Ok(OpenedModel { model: Arc::new(ModelInfo::read(path)?), engine: None }),
    }
}

/// What loading has to say on the way.
pub enum LoadEvent<'a> {
    /// What is being done, and how much of it is, in percent.
    Progress(&'a str, Option<u32>),
    /// It goes on all the same.
    Warning(Error),
}

/// Whoever waits for a model.
pub struct LoadContext<'a> {
    /// May be called from any thread.
    pub tell: &'a (dyn Fn(LoadEvent<'_>) + Send + Sync),
    /// Set once nobody waits any more.
    pub cancelled: &'a AtomicBool,
    /// Where pictures will lie, if that is known: what is prepared for a place then is so before the first one comes.
    pub slots: Option<&'a BatchPool>,
    /// How many runs are to be on the GPU side by side, where it can run so many. A batch fills a GPU, one picture seldom does.
    pub lanes: usize,
}

impl LoadContext<'_> {
    /// Lanes of a model that many streams give one picture each. So many runs fill an H200, and each lane takes memory to work in.
    pub const SHARED_LANES: usize = 4;
}

/// Loads a model on the CPU, for up to `batch` pictures at once.
pub fn open_on_cpu(model: Arc<ModelInfo>, spec: &InputSpec, batch: usize) -> Result<Box<dyn ModelInstance>> {
    Ok(Box::new(rten::Cpu::open(model, spec, batch)?))
}

/// Outputs that do not have a row for each picture of a batch cannot be told apart.
fn check_rows(output: &TensorDesc, rows: usize) -> Result<()> {
    if rows == 1 || output.dims.first() == Some(&(rows as i64)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Model, "The model's outputs cannot be told apart by frame")
        .cause(format!("of a batch of {rows} it makes {output}"))
        .remedy("Set batch-size=1, or export the model with outputs whose first dimension is the batch"))
}

/// Runs a backend's foreign code and makes an error of its panic, which in the thread that loads would end the application. Exceptions of
/// C++ are no panics: one that TensorRT let out would abort the process here, see `tensorrt::abi`.
fn contained<T>(kind: ErrorKind, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::new(kind, what).cause(format!("the library panicked, {}", said.unwrap_or("saying nothing"))).remedy(
            "This is a bug of that library; exporting the model with other options or another opset may avoid it",
        ))
    })
}
