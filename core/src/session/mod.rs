// SPDX-License-Identifier: MPL-2.0
//! The elements' chain without a pipeline: [`Session`] runs a model on host data, [`Detector`] finds objects in frames.
//!
//! The elements use the same parts, so results and errors are the same. Errors name properties of the elements, which
//! are the fields of [`SessionOptions`] and [`PostprocessOptions`] under the same names. `gst::init()` is not needed.

mod crops;
mod detector;
mod device;
mod options;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::backends::effect::without_effect;
use crate::backends::verify::Verdict;
use crate::backends::{LoadRequest, ModelInstance};
use crate::cuda::driver::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{HeadFormat, recognise};
use crate::image::clip::no_clips;
use crate::image::options::{FRAME_STEP, PAD_VALUE, SHORTEST_EDGE};
use crate::image::transform::InputSpec;
use crate::memory::{DevicePool, Pool};
use crate::tensor::{Element, Tensor, TensorDesc, Tensors, list};

pub use crate::backends::options::Options;
pub use crate::backends::{BackendPreference, LoadContext, LoadEvent};
pub use crate::cuda::driver::{Fence, GpuStatus};
#[doc(hidden)]
pub use crate::heads::BackgroundClass;
pub use crate::image::geometry::ResizeMode;
pub use crate::image::keypoints::{KeypointModel, KeypointShape};
pub use crate::image::map::{MapKind, MapRegion, PixelMap};
pub use crate::image::preprocess::device::Upload;
pub use crate::image::transform::{Chroma, Colors, InputTransform};
pub use crate::model::ModelInfo;
pub use crate::postprocess::{ClassScores, PostprocessOptions};
pub use detector::{Detections, Detector, DeviceFrame, FrameClass, FrameResults, Keypoint, Object};
pub use device::Buffers;
use options::INTERVAL;
pub use options::parse_options;

/// How to load and run a model; the defaults are those of trtinfer.
///
/// ```
/// use gsttrt_core::session::{BackendPreference, SessionOptions};
///
/// let mut options = SessionOptions::default();
/// options.backend = BackendPreference::Named("cpu");
/// options.input_size = Some((640, 480));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionOptions {
    /// `Auto` selects TensorRT if it is installed and can run the model, else OpenVINO on x86 or ONNX Runtime if they are
    /// installed, else rten; then [`Session::reason`] has the reason. `Named("cpu")` selects among the last three.
    pub backend: BackendPreference,
    /// Width and height in pixels, for models with dynamic dimensions. If unset, a [`Session`] takes the size in the
    /// file, and a [`Detector`] the smallest rectangle within it that a frame needs, if the model allows that.
    pub input_size: Option<(u32, u32)>,
    /// Pictures that are run at once, at most, by [`Session::run_batch`] and [`Detector::detect_batch`]: for models with a
    /// dynamic batch. 0 takes as many as the model fixes, else 1.
    pub batch_size: u32,
    /// The index of the CUDA device; by default 0.
    pub cuda_device_id: Option<i32>,
    /// How a [`Detector`] samples the chroma of 4:2:0 formats.
    pub chroma_sampling: Chroma,
    /// What a [`Detector`] subtracts from samples in 0..1 and divides them by, for models whose file does not say it,
    /// such as ImageNet classifiers; see [`InputTransform`].
    pub mean: Option<[f32; 3]>,
    pub std: Option<[f32; 3]>,
    /// [`InputTransform::shortest_edge`], if not 0.
    pub shortest_edge: u32,
    /// How a [`Detector`] lays frames into the tensor; `None` for as the model wants it, as of colors.
    #[doc(hidden)]
    pub resize: Option<ResizeMode>,
    #[doc(hidden)]
    pub tensor_colors: Option<Colors>,
    /// The factor of samples in 0..255; 0 for as the model wants it.
    #[doc(hidden)]
    pub scale: f32,
    /// The sample value of the padding; none, or -1, for as the model wants it.
    #[doc(hidden)]
    pub pad_value: Option<i32>,
    /// How a [`Detector`] transfers frames to the GPU.
    pub upload: Upload,
    /// Frames of a clip, for models that see several frames at once; 0 for as many as the model takes, else 16.
    #[doc(hidden)]
    pub frames: u32,
    /// Of which frames a [`Detector`] makes clips: every n-th, each with 0 or 1.
    #[doc(hidden)]
    pub frame_step: u32,
    /// Frames from one clip that the model of a [`Detector`] sees to the next, at least; 0 is 1.
    #[doc(hidden)]
    pub interval: u32,
    /// Options of backends, under the names of trtinfer's properties; see [`parse_options`].
    pub options: Options,
}

/// A loaded model. It runs on host data, on its own buffers ([`Session::buffers`]), or on the caller's GPU memory
/// ([`Session::run_device`]).
///
/// Its input is the tensor of one picture: `f32`, `f16` or `u8`, see [`Session::input`]. The session fills
/// other inputs, such as the picture's size. A session may move between threads, and runs one call at a time. To run in
/// parallel, open several sessions.
///
/// ```
/// use gsttrt_core::session::{Session, SessionOptions};
///
/// # fn main() -> gsttrt_core::error::Result<()> {
/// let mut session = Session::open("../tests/models/shapes.onnx", &SessionOptions::default())?;
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
    // Drop order: the backend first, because it waits for the work that uses the other fields.
    backend: Box<dyn ModelInstance>,
    request: LoadRequest,
    wishes: InputWishes,
    outputs: Vec<TensorDesc>,
    warnings: Vec<Error>,
    verdict: Option<Verdict>,
    notes: Vec<Error>,
    pool: Pool,
    /// Memory for inputs of a model on a GPU.
    device: Option<DevicePool>,
    upload: Upload,
    /// Allocated at the first use.
    buffers: Option<Buffers>,
    /// The caller's addresses that passed the last check.
    checked: Vec<u64>,
}

/// What the options say of how pictures are prepared.
#[derive(Clone, Copy)]
struct InputWishes {
    chroma: Chroma,
    mean: Option<[f32; 3]>,
    std: Option<[f32; 3]>,
    shortest_edge: u32,
    fit: Option<ResizeMode>,
    colors: Option<Colors>,
    scale: Option<f32>,
    pad: Option<u8>,
    /// Of clips.
    frame_step: u32,
    interval: u32,
}

impl InputWishes {
    fn apply(&self, transform: &mut InputTransform) {
        transform.chroma = self.chroma;
        transform.mean = self.mean.unwrap_or(transform.mean);
        transform.std = self.std.unwrap_or(transform.std);
        transform.fit = self.fit.unwrap_or(transform.fit);
        transform.colors = self.colors.unwrap_or(transform.colors);
        transform.scale = self.scale.unwrap_or(transform.scale);
        transform.pad = self.pad.unwrap_or(transform.pad);
        if self.shortest_edge != 0 {
            transform.shortest_edge = self.shortest_edge;
        }
    }

    /// Whether mean or std is set, whatever to.
    fn is_normalised(&self) -> bool {
        self.mean.is_some() || self.std.is_some()
    }

    /// Warnings that name the options without effect on pictures that are prepared so. Parts of frames may be cut out upright, with
    /// padding on any side.
    fn without_effect(&self, transform: &InputTransform, takes_parts: bool) -> impl Iterator<Item = Error> {
        let is_padded = takes_parts || matches!(transform.fit, ResizeMode::Letterbox | ResizeMode::LetterboxTopLeft);
        let useless = [
            (self.shortest_edge != 0 && transform.fit != ResizeMode::CenterCrop, SHORTEST_EDGE.name, "center-crop"),
            (self.pad.is_some() && !is_padded, PAD_VALUE.name, "letterbox and letterbox-top-left"),
        ];
        let fit = transform.fit.name();
        useless.into_iter().filter(|(is_useless, ..)| *is_useless).map(move |(_, name, what)| {
            Error::new(ErrorKind::Settings, format!("{name} has no effect"))
                .cause(format!("it is for {what}, and pictures are prepared by {fit}"))
                .remedy("Leave it unset")
        })
    }
}

impl Session {
    /// Loads an ONNX file or a TensorRT engine. Engines contain code: load only files you trust.
    ///
    /// For a new ONNX file TensorRT builds an engine, which takes seconds to minutes; [`Session::open_with`] reports the
    /// progress.
    ///
    /// # Errors
    /// * `NotFound`, `Read`: the file does not exist or cannot be read.
    /// * `Model`: the file is damaged or not supported.
    /// * `Library`: a library or driver is missing.
    /// * `Settings`: the options do not match the model.
    pub fn open(path: impl AsRef<Path>, options: &SessionOptions) -> Result<Self> {
        Session::with_warnings(|loading| Session::open_with(path, options, loading))
    }

    /// Keeps the warnings of loading it.
    fn with_warnings(load: impl FnOnce(&LoadContext) -> Result<Self>) -> Result<Self> {
        let warnings = Mutex::default();
        let report = |event: LoadEvent<'_>| match event {
            LoadEvent::Warning(warning) => Vec::push(&mut warnings.lock().unwrap(), warning),
            LoadEvent::Progress(..) | LoadEvent::Verified(_) => {}
        };
        let mut session = load(&LoadContext { report: &report, ..LoadContext::silent() })?;
        session.warnings = warnings.into_inner().unwrap();
        Ok(session)
    }

    /// The same with reports of progress and warnings. Ends with an error when it is cancelled.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &SessionOptions, loading: &LoadContext) -> Result<Self> {
        let for_gpus = options::for_gpus(options);
        let SessionOptions {
            backend,
            input_size,
            batch_size,
            chroma_sampling,
            mean,
            std,
            shortest_edge,
            resize,
            tensor_colors,
            scale,
            pad_value,
            cuda_device_id,
            upload,
            frames,
            frame_step,
            interval,
            options,
        } = options;
        let cuda = || Context::of_process(cuda_device_id.unwrap_or_default());
        let batch = *batch_size as usize;
        let request = LoadRequest::new(path.as_ref(), *backend, *input_size, batch, options.clone(), cuda)?;
        let mut request = request.with_frames(*frames)?;
        if request.spec.frames().is_none() {
            let set =
                [(FRAME_STEP.name, *frame_step), (INTERVAL.name, *interval)].into_iter().find(|(_, set)| *set > 1);
            set.map_or(Ok(()), |(name, value)| Err(no_clips(name, value, &request.spec)))?;
        }
        if let Some(warning) = without_effect(options, &for_gpus, request.backend)? {
            (loading.report)(LoadEvent::Warning(warning));
        }
        let wishes = InputWishes {
            chroma: *chroma_sampling,
            mean: *mean,
            std: *std,
            shortest_edge: *shortest_edge,
            fit: *resize,
            colors: *tensor_colors,
            scale: (*scale != 0.0).then_some(*scale),
            pad: pad_value.and_then(|value| u8::try_from(value).ok()),
            frame_step: *frame_step,
            interval: *interval,
        };
        wishes.apply(&mut request.spec.transform);
        Session::load(request, wishes, *upload, loading)
    }

    fn load(request: LoadRequest, wishes: InputWishes, upload: Upload, loading: &LoadContext) -> Result<Self> {
        let verdict = Mutex::default();
        let report = |event: LoadEvent<'_>| {
            if let LoadEvent::Verified(found) = &event {
                *verdict.lock().unwrap() = Some(Verdict::clone(found));
            }
            (loading.report)(event);
        };
        let backend = request.load(&LoadContext { report: &report, ..*loading })?;
        let device = request.cuda.as_ref().map(DevicePool::new);
        let mut outputs = request.model().outputs.clone();
        // They are those of one picture, also where the model fixes a batch.
        if let Some(batch) = request.model().fixed_batch() {
            let rows = outputs.iter_mut().filter_map(|output| output.dims.0.first_mut());
            rows.filter(|rows| **rows == batch as i64).for_each(|rows| *rows = 1);
        }
        let mut session = Session {
            backend,
            request,
            wishes,
            outputs,
            warnings: Vec::new(),
            verdict: verdict.into_inner().unwrap(),
            notes: Vec::new(),
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

    /// The same model for another input size.
    fn for_tensor(&self, spec: InputSpec) -> Result<Self> {
        Session::with_warnings(|loading| {
            Session::load(self.request.for_tensor(spec), self.wishes, self.upload, loading)
        })
    }

    /// Pictures are prepared as models of that layout want them, but for what the options say; without one as the file says.
    fn prepare_for(&mut self, layout: Option<&HeadFormat>) {
        let request = &mut self.request;
        let (_, height, width) = request.spec.chw();
        let model = request.model();
        let hints = model.hints((width as u32, height as u32));
        let layout = layout.or_else(|| recognise(None, &model.outputs, &hints).ok());
        let mut transform = model.transform(layout);
        self.wishes.apply(&mut transform);
        request.spec.transform = transform;
    }

    /// The description in the file: labels, task, metadata.
    pub fn model(&self) -> &ModelInfo {
        self.request.model()
    }

    /// `tensorrt`, `openvino`, `onnxruntime`, `rten` or `kserve`.
    pub fn backend(&self) -> &'static str {
        self.request.running().name()
    }

    /// Why [`BackendPreference::Auto`] did not select TensorRT; `None` if it did, or if a backend was named.
    pub fn reason(&self) -> Option<&str> {
        self.request.reason.as_deref()
    }

    /// Pictures that are run at once, at most.
    pub fn batch_size(&self) -> usize {
        self.request.batch
    }

    /// What [`Session::open`] found while it loaded the model, such as options without effect where that runs; after the first frame of a
    /// [`Detector`], options without effect on what the model gives; and after any run what is wrong with the numbers that it gave, such
    /// as those that are not finite. Each is told once.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    /// What was found out about the model's outputs, where the option `verify` had that found out.
    #[doc(hidden)]
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// What is guessed of the model because its file does not say it, after the first frame of a [`Detector`].
    pub fn notes(&self) -> &[Error] {
        &self.notes
    }

    /// Name, type and dimensions of the picture's tensor. No dimension is dynamic.
    pub fn input(&self) -> &TensorDesc {
        &self.request.spec.desc
    }

    /// Names, types and dimensions of the outputs, in the model's order. Dynamic dimensions have the values of a first
    /// run on zeros. If they depend on the picture, each run may have others.
    pub fn outputs(&self) -> &[TensorDesc] {
        &self.outputs
    }

    /// Runs a model with one output on the elements of its input, and writes all elements of the output.
    ///
    /// # Errors
    /// `WrongType`, if types or numbers of elements differ from the model's, or it has several outputs; `Run`, if
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

    /// Runs the model on the bytes of its input, which need no alignment, and returns all outputs in host memory.
    ///
    /// ```
    /// use gsttrt_core::session::{Session, SessionOptions};
    ///
    /// # fn main() -> gsttrt_core::error::Result<()> {
    /// let mut session = Session::open("../tests/models/shapes-f16.onnx", &SessionOptions::default())?;
    /// let picture = vec![0u8; session.input().bytes().unwrap()];
    /// for tensor in session.run_bytes(&picture)? {
    ///     println!("{}: {} bytes", tensor.desc(), tensor.bytes().unwrap().len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `WrongType`, if the number of bytes differs; `Run`, if running failed. The session stays usable.
    pub fn run_bytes(&mut self, input: &[u8]) -> Result<Vec<Tensor>> {
        self.check_input(input.len())?;
        self.run_on_bytes(&[input]).map(|mut outputs| outputs.remove(0))
    }

    /// The same for several pictures, which are run in batches of [`Session::batch_size`]. The outputs are in the order of the
    /// inputs.
    ///
    /// ```
    /// use gsttrt_core::session::{Session, SessionOptions};
    ///
    /// # fn main() -> gsttrt_core::error::Result<()> {
    /// let mut session = Session::open("../tests/models/shapes-cls.onnx", &SessionOptions::default())?;
    /// let picture = vec![0u8; session.input().bytes().unwrap()];
    /// let outputs = session.run_batch(&[&picture[..]; 3])?;
    /// assert_eq!(outputs.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::run_bytes`]; the text begins with `inputs[3]` where one of them is wrong.
    pub fn run_batch(&mut self, inputs: &[&[u8]]) -> Result<Vec<Vec<Tensor>>> {
        for (index, input) in inputs.iter().enumerate() {
            self.check_input(input.len()).map_err(|error| error.about(&format!("inputs[{index}]")))?;
        }
        let mut outputs = Vec::with_capacity(inputs.len());
        for batch in inputs.chunks(self.batch_size()) {
            outputs.extend(self.run_on_bytes(batch)?);
        }
        Ok(outputs)
    }

    /// Runs the model once.
    fn run_on_bytes(&mut self, inputs: &[&[u8]]) -> Result<Vec<Vec<Tensor>>> {
        let pictures = inputs.iter().map(|input| self.picture(input)).collect::<Result<Vec<_>>>()?;
        let outputs = self.infer(&pictures)?;
        // The copies are enqueued on another stream than the model, so they need the outputs to be ready.
        let on_host = |outputs: Tensors| outputs.into_ready()?.into_iter().map(|tensor| self.on_host(tensor)).collect();
        outputs.into_iter().map(on_host).collect()
    }

    /// The bytes of an input as a tensor where the backend takes it.
    #[doc(hidden)]
    pub fn picture(&self, input: &[u8]) -> Result<Arc<Tensors>> {
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
        Ok(Arc::new(Tensors::new(vec![picture], None, None)))
    }

    /// Runs the model on tensors in the backend's memory, no more than a batch. On a GPU the outputs may be ready later.
    #[doc(hidden)]
    pub fn infer(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let outputs = self.backend.run(pictures)?;
        tell(&mut self.warnings, self.backend.watch().and_then(|watch| watch.take_warning()));
        Ok(outputs)
    }

    /// Whether runs of the model are only queued, on a GPU.
    fn only_queues(&self) -> bool {
        self.backend.only_queues()
    }

    fn on_host(&self, tensor: Tensor) -> Result<Tensor> {
        match tensor.device() {
            Some(block) => Tensor::fill(&self.pool, tensor.desc().clone(), |bytes| block.read_into(bytes)),
            None => Ok(tensor),
        }
    }

    fn check_type<I: Element>(&self) -> Result<()> {
        if I::DTYPE == self.input().dtype {
            Ok(())
        } else {
            Err(wrong(format!("the input {} is given as {}", self.input(), I::DTYPE)))
        }
    }

    /// Checks the size of the input in bytes.
    ///
    /// # Errors
    /// `WrongType`, if it differs.
    #[doc(hidden)]
    pub fn check_input(&self, given: usize) -> Result<()> {
        let wanted = self.input().bytes().expect("an input has fixed dimensions");
        if given == wanted {
            return Ok(());
        }
        let (desc, size) = (self.input(), self.input().dtype.size());
        Err(wrong(if given.is_multiple_of(size) {
            format!("the input {desc} has {} elements, and {} are given", wanted / size, given / size)
        } else {
            format!("the input {desc} has {wanted} bytes, and {given} are given")
        }))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} on {}: {})", self.model().path.display(), self.backend(), self.request.spec)
    }
}

/// Takes over what is to be told once.
fn tell(told: &mut Vec<Error>, more: impl IntoIterator<Item = Error>) {
    for each in more {
        if !told.contains(&each) {
            told.push(each);
        }
    }
}

fn wrong(cause: String) -> Error {
    Error::new(ErrorKind::WrongType, "Cannot run the model")
        .cause(cause)
        .remedy("Ask the session for its input and outputs")
}
