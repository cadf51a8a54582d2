// SPDX-License-Identifier: MPL-2.0
//! The steps before the slow part of loading a model: its description and backend.

use std::iter;
use std::path::Path;
use std::sync::Arc;

use super::onnxruntime::PROVIDERS;
use super::options::{BackendOption, INPUT_VALUES, Options};
use super::verify::{Tolerance, VERIFY, VERIFY_EVERY, watched};
use super::{
    BACKENDS, Backend, BackendPreference, LoadContext, ModelInstance, OpenedModel, Selection, Unsupported, choose,
    contained,
};
use crate::cuda::driver::{self, Context};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::image::geometry::{Letterbox, ResizeMode};
use crate::image::transform::InputSpec;
use crate::model::{InputValues, ModelFile, ModelInfo};
use crate::tensor::Dims;

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
        let Selection { backend, reason } = choose(preference, &file, &options)?;
        let cuda = match backend.device(&options) {
            Device::Host => None,
            Device::Cuda => Some(cuda()?),
        };
        Ok(Placement { file, backend, reason, options, cuda })
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
        let Placement { file, backend, reason, options, cuda } = self;
        let what = format!("Cannot read the model {}", file.path().display());
        let opened = contained(ErrorKind::Model, &what, || backend.describe(&file, &options, cuda.as_ref()))?;
        let values = Arc::new(InputValues::read(&options.text(&INPUT_VALUES))?);
        let info = opened.info().with_values(&values)?;
        let batch = if batch == 0 { info.fixed_batch().unwrap_or(1) } else { batch };
        let spec = info.input_spec(size, batch, backend.device(&options))?;
        info.side_inputs(&spec, batch, &values)?; // checked here, before the slow part; the backend makes them again
        let stride = info.adaptive_stride().filter(|_| size.is_none());
        let (_, height, width) = spec.chw();
        let adaptive = stride.map(|stride| Adaptive { stride, largest: (width as u32, height as u32) });
        Ok(LoadRequest {
            file,
            opened,
            info,
            values,
            backend,
            reason,
            options,
            cuda,
            spec,
            batch,
            parallel_runs: 1,
            adaptive,
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

    /// The tensor that the model wants for frames of that width and height.
    pub fn spec_for(&self, frame: (u32, u32)) -> InputSpec {
        // What is stretched fills any size.
        let adaptive = self.adaptive.filter(|_| self.spec.transform.fit == ResizeMode::Letterbox);
        let Some(Adaptive { stride, largest }) = adaptive else { return self.spec.clone() };
        let size = |size| self.spec.resized(size);
        let spec = size(Letterbox::smallest_tensor(frame, largest, stride));
        if self.opened.takes(&spec, self.batch) { spec } else { size(largest) }
    }

    /// The same for a model that is loaded for one size, where each size takes minutes to build: that size, or the largest one, to
    /// which frames of any size can be scaled. So two are built at most, whatever pictures come.
    pub fn next_spec_for(&self, frame: (u32, u32)) -> InputSpec {
        let spec = self.spec_for(frame);
        match self.adaptive.filter(|_| self.waits_for_frames() && spec != self.spec) {
            Some(Adaptive { largest, .. }) => self.spec.resized(largest),
            None => spec,
        }
    }

    /// Whether that is the tensor that the model wants, for frames of some size.
    pub fn wants(&self, tensor: &InputSpec) -> bool {
        let (_, height, width) = tensor.chw();
        match self.adaptive {
            Some(_) => self.spec.resized((width as u32, height as u32)) == *tensor,
            None => self.spec == *tensor,
        }
    }

    /// Whether it is loaded for a size that is known with the frames only.
    pub fn waits_for_frames(&self) -> bool {
        self.adaptive.is_some() && !self.backend.takes_any_size()
    }

    /// The same with other values for its inputs besides pictures. Nothing, where the model has to be loaded for them: an engine is for
    /// arrays of one size.
    ///
    /// # Errors
    /// `Settings`, where they do not fit the model.
    pub fn with_values(&self, values: &Arc<InputValues>) -> Result<Option<Self>> {
        let info = self.opened.info().with_values(values)?;
        let sizes = |values: &InputValues| -> Result<Vec<Option<Dims>>> {
            let inputs = info.side_inputs(&self.spec, self.batch, values)?;
            Ok(inputs.iter().map(|input| input.as_ref().map(|tensor| tensor.desc().dims.clone())).collect())
        };
        let are_alike = sizes(values)? == sizes(&self.values)?;
        let values = values.clone();
        Ok((are_alike || self.backend.takes_any_size()).then(|| LoadRequest { info, values, ..self.clone() }))
    }

    /// The same for that tensor of one frame.
    pub fn for_tensor(&self, spec: InputSpec) -> Self {
        LoadRequest { spec, ..self.clone() }
    }

    /// The same for frames of any size, which all come to one size of the tensor.
    pub fn with_one_size(self) -> Self {
        LoadRequest { adaptive: None, ..self }
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
            backend.device(&options) == Device::Host && backend.name() != self.backend.name()
        };
        let request_for = |backend: &'static dyn Backend| -> Result<Self> {
            let probed = backend.probe(&self.file, &options);
            probed.map_err(|(Unsupported::Kind(error) | Unsupported::Missing(error))| error)?;
            let opened = backend.describe(&self.file, &options, None)?;
            let batch = opened.info().fixed_batch().unwrap_or(1);
            Ok(LoadRequest {
                info: opened.info().with_values(&self.values)?,
                values: self.values.clone(),
                opened,
                backend,
                reason: None,
                options: options.clone(),
                cuda: None,
                spec: self.spec_on_host(),
                batch,
                parallel_runs: 1,
                adaptive: None,
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

    /// Loads the model; this is the slow part. The memory of the file is given back.
    pub fn load(&self, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let loaded = self.opened.load(self, loading).and_then(|model| watched(model, self, loading));
        self.release_file();
        loaded
    }

    /// Gives the memory of the file back, but not of a reference: the model that is compared with it may be built again.
    pub(super) fn release_file(&self) {
        if !self.is_reference {
            self.file.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::tensorrt::TensorRt;
    use crate::backends::verify::{Reference, verify};
    use crate::onnx_files::{F32, Graph};
    use crate::options::OptionValue;
    use crate::tensor::{Tensor, Tensors};
    use crate::test::npy::save_floats;
    use crate::test::scratch;

    /// A file that any size of input suits, and how it is loaded.
    struct Opened(Arc<ModelInfo>, fn(&LoadRequest, &LoadContext) -> Result<Box<dyn ModelInstance>>);

    impl OpenedModel for Opened {
        fn info(&self) -> &Arc<ModelInfo> {
            &self.0
        }

        fn load(&self, request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
            (self.1)(request, loading)
        }
    }

    const SHAPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");

    fn by_rten(path: &Path, options: Options) -> LoadRequest {
        let cpu = BackendPreference::Named("rten");
        LoadRequest::new(path, cpu, None, 1, options, || unreachable!("it is no GPU")).unwrap()
    }

    #[test]
    fn parallel_runs_are_execution_contexts_on_a_gpu() {
        let request = by_rten(SHAPES.as_ref(), Options::default());
        let contexts = |runs: usize, batch: usize| {
            let request = LoadRequest { batch, ..request.with_parallel_runs(runs) };
            [false, true].map(|is_shared| request.contexts(is_shared))
        };
        assert_eq!(contexts(1, 1), [1, 4], "streams that share a model give one picture each");
        assert_eq!(contexts(1, 16), [1, 1]);
        assert_eq!([contexts(0, 16), contexts(2, 1), contexts(3, 16)], [[4; 2], [2; 2], [3; 2]]);
    }

    /// A folder of mixed pictures does not build an engine for each size.
    #[test]
    fn a_backend_that_builds_for_one_size_builds_for_two_at_most() {
        let request = by_rten(SHAPES.as_ref(), Options::default());
        let sizes = [(640, 360), (360, 640), (640, 480), (1280, 720), (333, 500)];
        assert!(sizes.iter().all(|&size| request.next_spec_for(size) == request.spec_for(size)), "rten takes any size");
        let largest = (640, 640);
        let adaptive = Some(Adaptive { stride: 32, largest });
        let opened: Arc<dyn OpenedModel> =
            Arc::new(Opened(request.model().clone(), |_, _| unreachable!("it is not loaded here")));
        let mut loaded = LoadRequest { backend: &TensorRt, adaptive, opened, ..request.clone() };
        assert!(loaded.waits_for_frames() && loaded.spec_for(sizes[0]) != loaded.spec_for(sizes[1]));
        loaded = loaded.for_tensor(loaded.spec_for(sizes[0]));
        let first = loaded.spec.clone();
        let mut seen = vec![];
        for size in sizes {
            loaded = loaded.for_tensor(loaded.next_spec_for(size));
            seen.push(loaded.spec.chw());
        }
        assert_eq!(seen[0], first.chw());
        assert_eq!(seen[1..], [request.spec.resized(largest).chw(); 4]);
    }

    #[test]
    fn a_file_is_read_once_for_description_and_load_and_not_kept() {
        let path = scratch("request").join("model.onnx");
        std::fs::copy(SHAPES, &path).unwrap();
        let request = by_rten(&path, Options::default());
        std::fs::remove_file(&path).unwrap();
        assert!(request.load(&LoadContext::silent()).is_ok());
        let again = request.load(&LoadContext::silent()).err().map(|error| error.kind());
        assert_eq!(again, Some(ErrorKind::NotFound));
    }

    /// An engine that is wrong is built from it once more, after minutes, in which it may have become another one.
    #[test]
    fn a_file_is_kept_while_its_model_is_compared() {
        fn load(request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
            std::fs::remove_file(request.file.path()).unwrap();
            let reference = request.on_cpu()?;
            let model = reference.load(loading)?;
            Reference::load(request, reference, loading)?;
            request.file.contents()?;
            Ok(model)
        }
        let path = scratch("request-compared").join("model.onnx");
        std::fs::copy(SHAPES, &path).unwrap();
        let request = by_rten(&path, Options::default());
        let opened: Arc<dyn OpenedModel> = Arc::new(Opened(request.model().clone(), load));
        let request = LoadRequest { backend: &TensorRt, opened, ..request };
        request.load(&LoadContext::silent()).unwrap();
        assert_eq!(request.file.contents().err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }

    /// A backend that is there may lack an operator that the next one has.
    #[test]
    fn where_a_backend_fails_on_the_cpu_the_next_one_is_compared_with() {
        let (request, silent) = (by_rten(SHAPES.as_ref(), Options::default()), LoadContext::silent());
        let fails =
            Opened(request.model().clone(), |_, _| Err(Error::new(ErrorKind::Model, "It has no such operator")));
        let opened: Arc<dyn OpenedModel> = Arc::new(fails);
        let alone = LoadRequest { opened, ..request.clone() };
        let reference = LoadRequest { others: vec![request.clone()], ..alone.clone() };
        assert!(Reference::load(&request, reference.clone(), &silent).is_ok());
        let mut model = request.load(&silent).unwrap();
        let mut of = |reference| verify(&request, model.as_mut(), Ok(reference), &Tolerance::SINGLE, &silent).unwrap();
        assert_eq!(of(reference).reference, Ok("the CPU (rten)".into()));
        assert_eq!(of(alone).reference, Err("It has no such operator".into()));
    }

    /// An engine is for as many words as it was built for.
    #[test]
    fn a_loaded_model_takes_other_values_of_the_same_size_or_of_any() {
        let folder = scratch("request-values");
        let model = Graph::new()
            .input("images", F32, &["n", "3", "8", "8"])
            .input("tpe", F32, &["n", "words", "2"])
            .node("Identity", &["tpe"], &["output0"], Vec::new())
            .output("output0", F32, &["n", "words", "2"])
            .save(&folder.join("model.onnx"));
        let values = |name: &str, words: usize| {
            std::fs::write(folder.join(name).with_extension("txt"), format!("{name}\n").repeat(words)).unwrap();
            let numbers: Vec<f32> = (0..2 * words).map(|number| number as f32).collect();
            let file = save_floats(&folder.join(name).with_extension("npy"), &[words, 2], &numbers);
            format!("tpe={file}")
        };
        let read = |text: &str| Arc::new(InputValues::read(text).unwrap());
        let mut options = Options::default();
        options.set(&INPUT_VALUES, OptionValue::Text(values("cat", 2)));
        let request = by_rten(model.as_ref(), options);
        let (other, more) = (read(&values("dog", 2)), read(&values("bird", 3)));
        let built = LoadRequest { backend: &TensorRt, ..request.clone() };
        for (request, takes_more) in [(&request, true), (&built, false)] {
            let changed = request.with_values(&other).unwrap().expect("they are alike");
            assert_eq!(changed.model().labels, ["dog", "dog"]);
            assert_eq!(request.with_values(&more).unwrap().is_some(), takes_more);
        }

        let picture = Tensor::from_slice("images", &[1, 3, 8, 8], &[0f32; 3 * 8 * 8]);
        let picture = Arc::new(Tensors::new(vec![picture], None, None));
        let mut loaded = request.load(&LoadContext::silent()).unwrap();
        let mut run = |values: &Arc<InputValues>, pictures: usize| -> Vec<Vec<f32>> {
            loaded.set_values(values).unwrap();
            let outputs = loaded.run(&vec![picture.clone(); pictures]).unwrap();
            outputs.iter().map(|outputs| outputs[0].as_slice::<f32>().unwrap().to_vec()).collect()
        };
        for pictures in [1, 2] {
            assert_eq!(run(&request.values, pictures), vec![[0f32, 1.0, 2.0, 3.0]; pictures]);
            assert_eq!(run(&more, pictures), vec![[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]; pictures]);
        }
    }

    #[test]
    fn a_reference_computes_on_the_cpu() {
        let mut options = Options::default();
        options.set(&PROVIDERS, OptionValue::Text("openvino:device_type=GPU".into()));
        let request = LoadRequest { backend: &TensorRt, ..by_rten(SHAPES.as_ref(), options) };
        assert!(!request.on_cpu().unwrap().options.has(&PROVIDERS));
    }
}
