//! What runs models. A backend is one file behind the [`Backend`] trait and one arm of [`open`].

mod cpu;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gst::glib;

use crate::cuda::driver::Fence;
use crate::error::{Error, Kind, Result};
use crate::model::Model;
use crate::tensor::Tensor;
use crate::vision::recipe::InputSpec;

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

/// The backend that [`Choice`] comes to on this machine: its name, the place where it wants tensors (as in
/// [`InputSpec::place`]), and for `auto`, why it was not the better one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub name: &'static str,
    pub place: &'static str,
    pub reason: Option<String>,
}

/// Decides without loading anything.
pub fn choose(choice: Choice) -> Result<Chosen> {
    let cpu = |reason| Ok(Chosen { name: "cpu", place: "cpu", reason });
    match (choice, tensorrt_available()) {
        (Choice::Cpu, _) => cpu(None),
        (Choice::Auto, Err(missing)) => cpu(Some(missing.cause_text().to_string())),
        (Choice::TensorRt, Err(missing)) => Err(missing),
        (Choice::Auto | Choice::TensorRt, Ok(never)) => match never {},
    }
}

/// Loads the model; this is the slow part.
pub fn open(_chosen: &Chosen, model: Arc<Model>, spec: &InputSpec) -> Result<Box<dyn Backend>> {
    cpu::Cpu::open(model, spec).map(|cpu| Box::new(cpu) as Box<dyn Backend>)
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

/// TensorRT comes in here.
fn tensorrt_available() -> Result<std::convert::Infallible> {
    Err(Error::new(Kind::Library, "Cannot run models with TensorRT")
        .cause("this version of the plugin has no TensorRT backend")
        .remedy("Use backend=cpu or backend=auto"))
}
