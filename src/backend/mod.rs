//! What runs models. A backend is one file behind the [`Backend`] trait and one arm of [`open`].

mod cpu;
mod plan;
mod recordings;
pub mod tensorrt;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gst::glib;

use crate::cuda::driver::{Context, Fence};
use crate::error::{Error, Kind, Result};
use crate::model::Model;
use crate::tensor::Tensor;
use crate::tensorrt::engine::Engine;
use crate::tensorrt::library::Library;
use crate::vision::recipe::InputSpec;
pub use plan::Plan;
use tensorrt::TensorRt;

/// A loaded model. One frame at a time; another thread needs another one.
pub trait Backend: Send {
    /// Runs the model on the picture's tensor, which may be read once `after` is passed.
    fn run(&mut self, picture: &Tensor, after: Option<&Fence>) -> Result<Outputs>;
}

/// What a model computes.
#[derive(Debug)]
pub struct Outputs {
    /// All outputs, in the model's order, each in its own type.
    pub tensors: Vec<Tensor>,
    /// Passed once they are there; `None` where they already are.
    pub ready: Option<Fence>,
}

/// Which backend the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtBackend")]
pub enum Choice {
    #[default]
    #[enum_value(name = "TensorRT where it can run the model, else the CPU", nick = "auto")]
    Auto,
    #[enum_value(name = "TensorRT on an NVIDIA GPU", nick = "tensorrt")]
    TensorRt,
    #[enum_value(name = "CPU, without further libraries", nick = "cpu")]
    Cpu,
}

/// What runs models on this machine.
#[derive(Clone, Copy)]
pub enum Runner {
    Cpu,
    TensorRt(&'static Library),
}

impl Runner {
    pub fn name(self) -> &'static str {
        match self {
            Runner::Cpu => "cpu",
            Runner::TensorRt(_) => "tensorrt",
        }
    }

    /// The memory where it wants tensors, as in [`InputSpec::place`].
    pub fn place(self) -> &'static str {
        match self {
            Runner::Cpu => "cpu",
            Runner::TensorRt(_) => "cuda",
        }
    }
}

/// What [`Choice`] comes to on this machine, and for `auto`, why it was not the better one.
#[derive(Clone)]
pub struct Chosen {
    pub runner: Runner,
    pub reason: Option<String>,
}

/// Decides without loading the model.
pub fn choose(choice: Choice, path: &Path, options: &tensorrt::Options) -> Result<Chosen> {
    let is_engine = tensorrt::is_engine(path);
    let chosen = |runner, reason| Ok(Chosen { runner, reason });
    match choice {
        Choice::Cpu if is_engine => Err(Error::new(
            Kind::Settings,
            format!("{} is a TensorRT engine, which the CPU cannot run", path.display()),
        )
        .remedy("Give the .onnx file that the engine was built from, or use backend=tensorrt")),
        Choice::Cpu => chosen(Runner::Cpu, None),
        Choice::Auto | Choice::TensorRt => match tensorrt::library_for(path, options) {
            Ok(library) => chosen(Runner::TensorRt(library), None),
            Err(missing) if choice == Choice::Auto && !is_engine => chosen(Runner::Cpu, Some(missing.as_clause())),
            Err(missing) => Err(missing),
        },
    }
}

/// A model whose description was read, and the engine where the file is one.
#[derive(Clone)]
pub struct Described {
    pub model: Arc<Model>,
    pub engine: Option<Arc<Engine>>,
}

/// Reads what the model says about itself. Engines say it only once they are loaded onto a GPU, so for them this needs a
/// `cuda` context, and takes some time.
pub fn describe(runner: Runner, path: &Path, options: &tensorrt::Options, cuda: Option<&Context>) -> Result<Described> {
    match (runner, cuda) {
        (Runner::TensorRt(library), Some(cuda)) if tensorrt::is_engine(path) => {
            let (model, engine) = tensorrt::load_engine(path, library, options, cuda)?;
            Ok(Described { model: Arc::new(model), engine: Some(engine) })
        }
        _ => Ok(Described { model: Arc::new(Model::read(path)?), engine: None }),
    }
}

/// What loading has to say on the way.
pub enum Event<'a> {
    /// What is being done, and how much of it is, in percent.
    Step(&'a str, Option<u32>),
    /// It goes on all the same.
    Warning(Error),
}

/// Whoever waits for a model.
pub struct Loading<'a> {
    /// May be called from any thread.
    pub tell: &'a (dyn Fn(Event<'_>) + Send + Sync),
    /// Set once nobody waits any more.
    pub cancelled: &'a AtomicBool,
}

/// Loads the model; this is the slow part. TensorRT needs a `cuda` context.
pub fn open(
    runner: Runner,
    described: &Described,
    spec: &InputSpec,
    options: &tensorrt::Options,
    cuda: Option<&Context>,
    loading: &Loading,
) -> Result<Box<dyn Backend>> {
    let model = &described.model;
    Ok(match (runner, cuda) {
        (Runner::TensorRt(library), Some(cuda)) => {
            let engine = described.engine.clone();
            Box::new(TensorRt::open(model, spec, library, options, cuda, engine, loading)?)
        }
        _ => open_on_cpu(model.clone(), spec)?,
    })
}

/// The same on the CPU, which asks for nothing more.
pub fn open_on_cpu(model: Arc<Model>, spec: &InputSpec) -> Result<Box<dyn Backend>> {
    Ok(Box::new(cpu::Cpu::open(model, spec)?))
}

/// Runs a backend's foreign code and makes an error of its panic, which in the thread that loads would end the application.
fn contained<T>(kind: Kind, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::new(kind, what).cause(format!("the library panicked, {}", said.unwrap_or("saying nothing"))).remedy(
            "This is a bug of that library; exporting the model with other options or another opset may avoid it",
        ))
    })
}
