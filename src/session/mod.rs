// SPDX-License-Identifier: MPL-2.0
//! The elements' chain without a pipeline: [`Session`] runs a model on host data, [`Detector`] finds objects in frames.
//!
//! The elements are thin users of the same parts, so boxes and errors are the same. Errors name properties of the
//! elements, which are the fields of [`SessionOptions`] and [`PostprocessOptions`] under the same names. `gst::init()` is not needed.

mod detector;
mod device;
#[cfg(test)]
mod fault_tests;
mod options;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::backends::{LoadRequest, ModelInstance};
use crate::core::cuda::driver::Context;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::memory::{DevicePool, Pool};
use crate::core::tensor::{Element, Tensor, TensorDesc, Tensors, list};
use crate::image::transform::InputSpec;

pub use crate::backends::options::Options;
pub use crate::backends::{BackendPreference, LoadContext, LoadEvent};
pub use crate::core::cuda::driver::{Fence, GpuStatus};
pub use crate::image::geometry::ResizeMode;
pub use crate::image::keypoints::{KeypointModel, KeypointShape};
pub use crate::image::preprocess::device::Upload;
pub use crate::image::transform::{Chroma, Colors, InputTransform};
pub use crate::model::ModelInfo;
pub use crate::postprocess::PostprocessOptions;
pub use detector::{Detections, Detector, DeviceFrame, Keypoint, Object};
pub use device::Buffers;
pub use options::parse_options;

/// What to run a model with; the default is what trtinfer does by default.
///
/// ```
/// use gsttrt::session::{BackendPreference, SessionOptions};
///
/// let mut options = SessionOptions::default();
/// options.backend = BackendPreference::Named("cpu");
/// options.input_size = Some((640, 480));
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "internals"), non_exhaustive)]
pub struct SessionOptions {
    /// `Auto` takes TensorRT where it is and can run the model, else the CPU; [`Session::reason`] then says why.
    pub backend: BackendPreference,
    /// Width and height in pixels, for models that leave them open. Without, a [`Session`] takes the size that the file says, and
    /// a [`Detector`] the smallest rectangle within it that a frame needs, where the model allows that.
    pub input_size: Option<(u32, u32)>,
    /// The GPU to use, as CUDA counts them.
    pub cuda_device_id: i32,
    /// How a [`Detector`]'s frames in 4:2:0 formats are read.
    pub chroma_sampling: Chroma,
    /// How a [`Detector`]'s frames come to the GPU.
    pub upload: Upload,
    /// What is said to backends, under the names of trtinfer's properties; see [`parse_options`].
    pub options: Options,
}

/// A loaded model, to be run on host data, on buffers of its own ([`Session::buffers`]), or on a caller's GPU memory
/// ([`Session::run_device`]).
///
/// Its input is the tensor of one picture: `f32`, `f16` or `u8`, see [`Session::input`]. Inputs beside it, such as the
/// picture's size, are filled by the session. It may move between threads and runs one thing at a time; other threads
/// open sessions of their own.
///
/// ```
/// use gsttrt::session::{Session, SessionOptions};
///
/// # fn main() -> gsttrt::error::Result<()> {
/// let mut session = Session::open("tests/models/shapes.onnx", &SessionOptions::default())?;
/// assert_eq!(session.input().to_string(), "images f32 1x3x512x512");
/// assert_eq!(session.outputs()[0].to_string(), "output0 f32 1x16128x7");
///
/// let picture = vec![0.5f32; 3 * 512 * 512];
/// let mut rows = vec![0f32; 16128 * 7];
/// session.run(&picture, &mut rows)?;
///
/// let error = session.run(&picture[1..], &mut rows).unwrap_err();
/// assert!(error.message().contains("786431") && error.message().contains("786432"));
/// # Ok(())
/// # }
/// ```
pub struct Session {
    // Drop order: the backend first, which waits for the work that uses the rest.
    backend: Box<dyn ModelInstance>,
    plan: LoadRequest,
    outputs: Vec<TensorDesc>,
    warnings: Vec<Error>,
    pool: Pool,
    /// Where inputs go that the model takes from GPU memory.
    device: Option<DevicePool>,
    upload: Upload,
    /// Made when they are asked for.
    buffers: Option<Buffers>,
    /// Memory of a caller that was found to do.
    checked: Vec<u64>,
}

impl Session {
    /// Loads an ONNX file or a TensorRT engine. Engines are programs: only for files you trust.
    ///
    /// TensorRT builds an engine of an ONNX file that it sees for the first time, which takes seconds to minutes;
    /// [`Session::open_with`] shows how far it is.
    ///
    /// # Errors
    /// `NotFound` and `Read`, where the file is not there or not readable; `ModelInfo`, where it cannot be used; `Library`, where
    /// what is to run it is missing; `Settings`, where the options do not suit the model.
    pub fn open(path: impl AsRef<Path>, options: &SessionOptions) -> Result<Self> {
        let warnings = Mutex::default();
        let tell = |event: LoadEvent<'_>| match event {
            LoadEvent::Warning(warning) => Vec::push(&mut warnings.lock().unwrap(), warning),
            LoadEvent::Progress(..) => {}
        };
        let loading = LoadContext { tell: &tell, ..LoadContext::silent() };
        let mut session = Session::open_with(path, options, &loading)?;
        session.warnings = warnings.into_inner().unwrap();
        Ok(session)
    }

    /// The same, telling of steps and warnings on the way, and given up once it is cancelled.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &SessionOptions, loading: &LoadContext) -> Result<Self> {
        let SessionOptions { backend, input_size, chroma_sampling, cuda_device_id, upload, options } = options;
        let cuda = || Context::primary(*cuda_device_id);
        let mut plan = LoadRequest::new(path.as_ref(), *backend, *input_size, 1, options.clone(), cuda)?;
        plan.spec.recipe.chroma = *chroma_sampling;
        Session::load(plan, *upload, loading)
    }

    fn load(plan: LoadRequest, upload: Upload, loading: &LoadContext) -> Result<Self> {
        let backend = plan.load(loading)?;
        let device = plan.cuda.as_ref().map(DevicePool::new);
        let outputs = plan.model().outputs.clone();
        let mut session = Session {
            backend,
            plan,
            outputs,
            warnings: Vec::new(),
            pool: Pool::default(),
            device,
            upload,
            buffers: None,
            checked: Vec::new(),
        };
        if !session.outputs.iter().all(|desc| desc.dims.is_static()) {
            let bytes = session.input().bytes().expect("an input has fixed dimensions");
            let computed = session.run_bytes(&vec![0; bytes])?;
            session.outputs = computed.iter().map(|tensor| tensor.desc().clone()).collect();
        }
        Ok(session)
    }

    /// The same model for another size of its input; what has to be said of it was said before.
    fn for_tensor(&self, spec: InputSpec) -> Result<Self> {
        Session::load(self.plan.for_tensor(spec), self.upload, &LoadContext::silent())
    }

    /// What the file says about itself: labels, task, metadata.
    pub fn model(&self) -> &ModelInfo {
        self.plan.model()
    }

    /// `tensorrt` or `cpu`.
    pub fn backend(&self) -> &'static str {
        self.plan.backend.name()
    }

    /// Why [`BackendPreference::Auto`] came to the CPU; `None` where it did not, or was not asked.
    pub fn reason(&self) -> Option<&str> {
        self.plan.reason.as_deref()
    }

    /// What [`Session::open`] had to say, and went on all the same.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    /// Name, type and dimensions of the picture's tensor, all fixed.
    pub fn input(&self) -> &TensorDesc {
        &self.plan.spec.desc
    }

    /// Names, types and dimensions of the outputs, in the model's order. Dimensions that the file leaves open are those of a
    /// first run on zeros; of models that decide by the picture how much they give, each run may have others.
    pub fn outputs(&self) -> &[TensorDesc] {
        &self.outputs
    }

    /// Runs a model with one output on the elements of its input, and writes all elements of the output.
    ///
    /// # Errors
    /// `WrongType`, where types or numbers of elements are not the model's, or where it has several outputs; `Run`, where
    /// running failed. The session stays usable.
    pub fn run<I: Element, O: Element>(&mut self, input: &[I], output: &mut [O]) -> Result<()> {
        self.check_type::<I>()?;
        match &self.outputs[..] {
            [only] if only.dtype == O::DTYPE => {}
            [only] => return Err(wrong(format!("the output {only} is asked for as {}", O::DTYPE))),
            several => {
                let what = format!("it has {} outputs: {}", several.len(), list(several));
                return Err(wrong(what).remedy("Use run_bytes, which returns all of them"));
            }
        }
        self.check_input(size_of_val(input))?;
        let tensors = self.run_bytes(bytemuck::cast_slice(input))?;
        let computed = tensors[0].as_slice::<O>().expect("its type is what the model declares");
        if computed.len() != output.len() {
            let (desc, has, given) = (tensors[0].desc(), computed.len(), output.len());
            return Err(wrong(format!("the output {desc} has {has} elements, and there is room for {given}")));
        }
        output.copy_from_slice(computed);
        Ok(())
    }

    /// Runs the model on the bytes of its input, at any address, and returns all outputs, in host memory.
    ///
    /// ```
    /// use gsttrt::session::{Session, SessionOptions};
    ///
    /// # fn main() -> gsttrt::error::Result<()> {
    /// let mut session = Session::open("tests/models/shapes-f16.onnx", &SessionOptions::default())?;
    /// let picture = vec![0u8; session.input().bytes().unwrap()];
    /// for tensor in session.run_bytes(&picture)? {
    ///     println!("{}: {} bytes", tensor.desc(), tensor.bytes().unwrap().len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `WrongType`, where there are more or fewer bytes; `Run`, where running failed. The session stays usable.
    pub fn run_bytes(&mut self, input: &[u8]) -> Result<Vec<Tensor>> {
        self.check_input(input.len())?;
        let desc = self.input().clone();
        let picture = match &self.device {
            Some(device) => {
                let mut block = device.take(input.len())?;
                block.write(input)?;
                Tensor::on_device(desc, block)
            }
            None => Tensor::fill(&self.pool, desc, |bytes| {
                bytes.copy_from_slice(input);
                Ok::<_, Error>(())
            })?,
        };
        let outputs = self.infer(Arc::new(Tensors::new(vec![picture], None, None)))?;
        // The copies are not of the model's stream.
        outputs.into_ready()?.into_iter().map(|tensor| self.on_host(tensor)).collect()
    }

    /// Runs the model on a tensor where the backend wants it.
    fn infer(&mut self, picture: Arc<Tensors>) -> Result<Tensors> {
        self.backend.run(&[picture]).map(|mut outputs| outputs.remove(0))
    }

    fn on_host(&self, tensor: Tensor) -> Result<Tensor> {
        match tensor.device() {
            Some(block) => Tensor::fill(&self.pool, tensor.desc().clone(), |bytes| block.read_into(bytes)),
            None => Ok(tensor),
        }
    }

    fn check_type<I: Element>(&self) -> Result<()> {
        match I::DTYPE == self.input().dtype {
            true => Ok(()),
            false => Err(wrong(format!("the input {} is given as {}", self.input(), I::DTYPE))),
        }
    }

    /// Whether that many bytes are those of the input.
    ///
    /// # Errors
    /// `WrongType`, where they are not.
    #[doc(hidden)]
    pub fn check_input(&self, given: usize) -> Result<()> {
        let wanted = self.input().bytes().expect("an input has fixed dimensions");
        if given == wanted {
            return Ok(());
        }
        let (desc, size) = (self.input(), self.input().dtype.size());
        Err(wrong(match given.is_multiple_of(size) {
            true => format!("the input {desc} has {} elements, and {} are given", wanted / size, given / size),
            false => format!("the input {desc} has {wanted} bytes, and {given} are given"),
        }))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} on {}: {})", self.model().path.display(), self.backend(), self.plan.spec)
    }
}

fn wrong(cause: String) -> Error {
    Error::new(ErrorKind::WrongType, "Cannot run the model")
        .cause(cause)
        .remedy("Ask the session for its input and outputs")
}
