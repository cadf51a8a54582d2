// SPDX-License-Identifier: MPL-2.0
//! TensorRT engines that are loaded from plans, and their execution contexts.
//!
//! Each context has its own copy of what a run changes, so several may run at once, each in one stream at a time. Errors
//! carry what TensorRT logged.

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::abi::{self, IoMode, OptProfileSelector};
use super::header::Header;
use super::interfaces::ErrorListener;
use super::library::Library;
use super::version::Product;
use crate::backends::exit::ExitGuard;
use crate::cuda::driver::{self, Stream};
use crate::cuda::graph::Graph;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Dims, TensorDesc};

/// What the user allows a plan to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RuntimeOptions {
    /// Version-compatible plans carry the runtime of the release that built them, and run it on the host.
    pub allow_host_code: bool,
    /// The DLA core that plans built for DLA run on.
    pub dla_core: Option<i32>,
}

/// What TensorRT made of a plan, in the CUDA context that is current then, if any.
pub struct Loaded {
    // Drop order: the engine, then the runtime that made it.
    engine: abi::Engine,
    _runtime: abi::Runtime,
}

impl Loaded {
    /// Loads an engine file, of which `header` was read.
    ///
    /// Plans are code, for the GPU and where that is allowed for the host, and TensorRT does not check them: a file
    /// that was made to do harm can do anything. This function is not `unsafe`, because a caller could not check that;
    /// but the file must come from a source that is trusted like that of a program.
    ///
    /// # Errors
    /// `Library` where TensorRT does not start, `Model` where it does not take the plan.
    pub fn new(library: &'static Library, file: &[u8], header: &Header, options: &RuntimeOptions) -> Result<Self> {
        let what = format!("{} cannot run this engine", library.name());
        let built = format!("built by {}, found {}", header.builder(), library.name());
        if (header.product == Product::Rtx) != library.abi().is_rtx() {
            return Err(Error::new(ErrorKind::Model, what).cause(built).remedy(format!(
                "Build the engine again with {}, or give the .onnx file, or point trt-library to {}",
                library.product(),
                header.product
            )));
        }
        let mut runtime = library.runtime()?;
        if options.allow_host_code {
            runtime.set_engine_host_code_allowed(true);
        }
        if let Some(core) = options.dla_core {
            runtime.set_dla_core(core);
        }
        let heard = ErrorListener::listen();
        // SAFETY: fields of `Loaded` are dropped in the right order; the user is responsible for a trusted plan.
        match unsafe { runtime.deserialize(&file[header.plan.clone()]) } {
            Some(engine) => Ok(Loaded { engine, _runtime: runtime }),
            None => Err(refused(library, header, options, &what, &built, &heard)),
        }
    }
}

/// Why TensorRT does not take a plan, and what helps.
fn refused(
    library: &Library,
    header: &Header,
    options: &RuntimeOptions,
    what: &str,
    built: &str,
    heard: &ErrorListener,
) -> Error {
    if let Err(missing) = driver::available() {
        return missing.about(what);
    }
    let (theirs, ours) = (header.version, library.version());
    let exact = (theirs.major, theirs.minor, theirs.patch) == (ours.major, ours.minor, ours.patch);
    let remedy = if header.carries_runtime && !options.allow_host_code {
        "It is version-compatible, and runs code that it carries: set allow-host-code=true if you trust it"
    } else if !library.has_builder() {
        "Lean runtimes take engines only that were built version-compatible, by the same or an earlier release"
    } else if exact {
        "Build it again on this GPU, or give the .onnx file: it was built for another GPU, or the file is damaged"
    } else {
        "Build it again with this release, or give the .onnx file; later releases take engines only that were built \
         version-compatible"
    };
    let words = heard.words();
    let cause = if words.is_empty() { built.to_string() } else { format!("{built}; {words}") };
    Error::new(ErrorKind::Model, what).cause(cause).remedy(remedy).out_of_memory(heard.is_out_of_memory())
}

/// An input or output of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorBinding {
    /// Dimensions are open where a profile decides.
    pub desc: TensorDesc,
    name: CString,
}

/// A plan that is loaded onto a GPU. Shared by all contexts that run it.
pub struct Engine {
    loaded: InContext<Loaded>,
    library: &'static Library,
    cuda: driver::Context,
    inputs: Vec<TensorBinding>,
    outputs: Vec<TensorBinding>,
}

impl Engine {
    /// Loads an engine file, of which `header` was read, onto the GPU. As of [`Loaded::new`], the file must be trusted
    /// like a program.
    ///
    /// # Errors
    /// `Library` where TensorRT does not start, `Model` where it does not take the plan or we cannot serve its tensors. The
    /// caller adds the file's name.
    pub fn load(
        cuda: &driver::Context,
        library: &'static Library,
        file: &[u8],
        header: &Header,
        options: &RuntimeOptions,
    ) -> Result<Arc<Self>> {
        let (major, minor) = cuda.compute_capability()?;
        let here = (major * 10 + minor) as u32;
        let capabilities = &header.compute_capabilities;
        if !capabilities.is_empty() && !capabilities.contains(&here) {
            let dotted = |capability: u32| format!("{}.{}", capability / 10, capability % 10);
            let theirs: Vec<String> = capabilities.iter().map(|&capability| dotted(capability)).collect();
            return Err(Error::new(ErrorKind::Model, "The engine was not built for this GPU")
                .cause(format!(
                    "it is for compute capability {}, and {} has {}",
                    theirs.join(", "),
                    cuda.device_name()?,
                    dotted(here)
                ))
                .remedy("Build it again for this GPU, or give the .onnx file"));
        }
        let entered = cuda.enter()?;
        let loaded = Loaded::new(library, file, header, options).map_err(|error| cuda.or_lost(error))?;
        let loaded = InContext::new(loaded, cuda);
        drop(entered);
        let (inputs, outputs) = tensors(&loaded.engine)?;
        Ok(Arc::new(Engine { loaded, library, cuda: cuda.clone(), inputs, outputs }))
    }

    pub fn library(&self) -> &'static Library {
        self.library
    }

    pub fn inputs(&self) -> &[TensorBinding] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[TensorBinding] {
        &self.outputs
    }

    /// How many ranges of input dimensions it was built for; at least one.
    pub fn profiles(&self) -> i32 {
        self.raw().optimization_profiles()
    }

    /// Smallest, usual and largest dimensions of an input in a profile.
    pub fn profile(&self, input: &TensorBinding, profile: i32) -> Option<[Dims; 3]> {
        let known = (0..self.profiles()).contains(&profile); // TensorRT would log an error
        let dims = |extent| known.then(|| self.raw().profile_shape(&input.name, profile, extent)).flatten();
        Some([
            dims(OptProfileSelector::Smallest)?,
            dims(OptProfileSelector::Usual)?,
            dims(OptProfileSelector::Largest)?,
        ])
    }

    /// The first profile that takes an input of these dimensions.
    pub fn profile_for(&self, input: &TensorBinding, dims: &Dims) -> Option<i32> {
        (0..self.profiles()).find(|&profile| self.takes(input, profile, dims))
    }

    /// Whether a profile takes an input of these dimensions.
    pub fn takes(&self, input: &TensorBinding, profile: i32, dims: &Dims) -> bool {
        self.profile(input, profile).is_some_and(|[min, _, max]| {
            let within = |i: usize| (min[i]..=max[i]).contains(&dims[i]);
            [min.len(), max.len()] == [dims.len(); 2] && (0..dims.len()).all(within)
        })
    }

    /// Bytes of GPU memory that each context takes, in addition to the weights.
    pub fn device_memory(&self) -> u64 {
        self.raw().device_memory()
    }

    /// Streams of its own that a run uses in addition to the one that it is given.
    pub fn auxiliary_streams(&self) -> i32 {
        self.raw().auxiliary_streams()
    }

    /// A context to run in; several threads may make some at the same time. In TensorRT 8 only the first one starts with
    /// profile 0, and others may use the same only where the engine was built for that, as ours are.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left.
    pub fn context(self: &Arc<Self>) -> Result<ExecutionContext> {
        let _entered = self.cuda.enter()?;
        let heard = ErrorListener::listen();
        // SAFETY: the context holds the engine, which holds the CUDA context.
        let raw = unsafe { self.raw().create_context() }.ok_or_else(|| {
            let mebibytes = self.device_memory().div_ceil(1 << 20);
            let failed = heard.error(ErrorKind::Run, format!("{} cannot make ready for running", self.library.name()));
            let remedy = format!("Free memory of the GPU, {mebibytes} MiB are needed, or use a smaller model");
            self.cuda.or_lost(failed.remedy(remedy))
        })?;
        Ok(ExecutionContext { raw: InContext::new(raw, &self.cuda), engine: self.clone() })
    }

    fn raw(&self) -> &abi::Engine {
        &self.loaded.engine
    }
}

/// Inputs and outputs, in the engine's order.
fn tensors(engine: &abi::Engine) -> Result<(Vec<TensorBinding>, Vec<TensorBinding>)> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for name in (0..engine.io_tensors()).filter_map(|index| engine.io_tensor_name(index)) {
        let (list, what) = match engine.tensor_io_mode(&name) {
            IoMode::Input => (&mut inputs, "input"),
            IoMode::Output => (&mut outputs, "output"),
            IoMode::None => continue,
        };
        let text = name.to_string_lossy().into_owned();
        let unusable = |cause: String, remedy: &str| {
            Err(Error::new(ErrorKind::Model, format!("The engine's {what} {text} cannot be used"))
                .cause(cause)
                .remedy(remedy))
        };
        if engine.is_on_host(&name) {
            return unusable(
                "its values are dimensions of other tensors, which lie on the host".into(),
                "Export the model with all of its dimensions taken from the picture's",
            );
        }
        if let Some(format) = engine.unusual_format(&name) {
            return unusable(
                format!("its elements are not in the order of its dimensions: {format}"),
                "Build the engine with linear inputs and outputs; for trtexec this is the default",
            );
        }
        let data_type = engine.tensor_data_type(&name);
        let Some(dtype) = data_type.dtype() else {
            return unusable(
                format!("its element type is {}", data_type.name()),
                "Build the engine with inputs and outputs of f32 or f16",
            );
        };
        let Some(dims) = engine.tensor_shape(&name) else {
            return unusable("TensorRT does not report its dimensions".into(), "Build the engine again");
        };
        list.push(TensorBinding { desc: TensorDesc { name: text, dtype, dims }, name });
    }
    Ok((inputs, outputs))
}

/// What one run at a time of an engine needs. Another thread may take it over, but not use it at the same time.
pub struct ExecutionContext {
    // Drop order: this, then the engine.
    raw: InContext<abi::Context>,
    engine: Arc<Engine>,
}

impl ExecutionContext {
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Chooses among the ranges of input dimensions; all inputs are then to be given again. Takes effect in `stream`.
    ///
    /// # Errors
    /// `Run`, where there is no such profile, or in TensorRT 8 where another context has it.
    pub fn use_profile(&mut self, profile: i32, stream: &Stream) -> Result<()> {
        let _entered = stream.context().enter()?;
        let heard = ErrorListener::listen();
        // SAFETY: the stream is alive, and its context is current.
        match self.is_in_own_context(stream) && unsafe { self.raw.set_profile(profile, stream.raw()) } {
            true => Ok(()),
            false => {
                let failed = heard.error(ErrorKind::Run, format!("Cannot choose the engine's profile {profile}"));
                let remedy = "Build the engine again, with one profile that holds all sizes of input";
                Err(self.engine.cuda.or_lost(failed.remedy(remedy)))
            }
        }
    }

    /// # Errors
    /// `Run`, where no profile holds these dimensions, or not the chosen one.
    pub fn set_input(&mut self, input: &TensorBinding, dims: &Dims) -> Result<()> {
        let heard = ErrorListener::listen();
        if self.raw.set_shape(&input.name, dims) {
            return Ok(());
        }
        let ranges: Vec<String> = (0..self.engine.profiles())
            .filter_map(|profile| self.engine.profile(input, profile))
            .map(|[min, _, max]| format!("{min} to {max}"))
            .collect();
        Err(heard.error(ErrorKind::Run, format!("The engine does not take {} of {dims}", input.desc)).remedy(format!(
            "Give it one of {}, or build it again for other sizes",
            if ranges.is_empty() { input.desc.dims.to_string() } else { ranges.join(" or ") }
        )))
    }

    /// An output's dimensions, once every input has been given its own.
    ///
    /// # Errors
    /// `Model` for outputs whose dimensions are known only after a run.
    pub fn output_dims(&self, output: &TensorBinding) -> Result<Dims> {
        let heard = ErrorListener::listen();
        match self.raw.shape(&output.name) {
            Some(dims) if dims.is_static() => Ok(dims),
            Some(dims) => Err(Error::new(
                ErrorKind::Model,
                format!("The engine's output {} cannot be used", output.desc.name),
            )
            .cause(format!("how large it is ({dims}) is only known after each run"))
            .remedy(
                "Export the model without suppression in its graph, which trtnms does, or with outputs of fixed size; or run it \
                 with backend=cpu",
            )),
            None => {
                Err(heard
                    .error(ErrorKind::Model, format!("The engine does not report the size of {}", output.desc.name)))
            }
        }
    }

    /// Sets the address of an input or output, for this run and later ones.
    ///
    /// # Safety
    /// The memory is large enough for the tensor, and stays its own until no queued run uses it.
    ///
    /// # Errors
    /// `Run`, for addresses that are not aligned to 256 bytes.
    pub unsafe fn set_address(&mut self, tensor: &TensorBinding, address: u64) -> Result<()> {
        let heard = ErrorListener::listen();
        // SAFETY: the memory is large enough, and belongs to the tensor alone until no queued run uses it.
        match unsafe { self.raw.set_address(&tensor.name, address) } {
            true => Ok(()),
            false => {
                Err(heard.error(ErrorKind::Run, format!("The engine does not take the memory for {}", tensor.desc)))
            }
        }
    }

    /// Queues one run, and returns at once.
    ///
    /// # Safety
    /// Every input has been given its dimensions, every input and output its memory, and each stays until the run is done.
    ///
    /// # Errors
    /// `Run`, with TensorRT's reason.
    pub unsafe fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let _entered = stream.context().enter()?;
        let heard = ErrorListener::listen();
        // SAFETY: the stream is alive, and its context is current. All inputs have dimensions, all tensors have memory
        // that stays.
        match self.is_in_own_context(stream) && unsafe { self.raw.enqueue(stream.raw()) } {
            true => Ok(()),
            false => {
                let what = format!("{} failed to run the engine", self.engine.library.name());
                let failed = heard.error(ErrorKind::Run, what);
                let remedy = "Build the engine again on this GPU; if that does not help, use backend=cpu";
                Err(self.engine.cuda.or_lost(failed.remedy(remedy)))
            }
        }
    }

    /// Captures one run as a graph, for as long as addresses and dimensions stay the same. A run with these dimensions
    /// must have been done before.
    ///
    /// # Safety
    /// As for [`ExecutionContext::enqueue`], for each launch of the graph; runs of this context are launched one at a time.
    ///
    /// # Errors
    /// `Run`, for engines that cannot be captured: those that wait for the GPU, to get the size of something.
    pub unsafe fn capture(&mut self, stream: &Stream) -> Result<Graph> {
        // SAFETY: this enqueues the same run under the same conditions, which hold for each launch of the graph.
        stream.capture(|| unsafe { self.enqueue(stream) })
    }

    /// Whether the stream is of the CUDA context that the engine lies in.
    fn is_in_own_context(&self, stream: &Stream) -> bool {
        let same = *stream.context() == self.engine.cuda;
        debug_assert!(same, "a stream of another CUDA context");
        same
    }
}

/// What was made in a CUDA context, and is to be freed in it.
struct InContext<T> {
    value: ManuallyDrop<T>,
    cuda: driver::Context,
}

impl<T> InContext<T> {
    fn new(value: T, cuda: &driver::Context) -> Self {
        InContext { value: ManuallyDrop::new(value), cuda: cuda.clone() }
    }
}

impl<T> Deref for InContext<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for InContext<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for InContext<T> {
    fn drop(&mut self) {
        // A context that cannot be entered is gone, and with it all that was in it.
        let _inside = ExitGuard::enter();
        if let Ok(_entered) = self.cuda.enter() {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contexts go from the thread that opens a model to the one that streams; engines are shared.
    #[test]
    fn threads() {
        fn send<T: Send>() {}
        fn sync<T: Sync>() {}
        send::<ExecutionContext>();
        send::<Arc<Engine>>();
        sync::<Engine>();
    }
}
