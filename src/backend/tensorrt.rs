//! Models on an NVIDIA GPU, by TensorRT.
//!
//! An ONNX file becomes an engine first: found in the cache, or built, which takes seconds to minutes. Tensors go in and come
//! out in GPU memory, and nothing here waits for the GPU once the model is loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::recordings::Recordings;
use super::{Backend, Event, Loading, Outputs};
use crate::cuda::driver::{Context, Fence, Stream};
use crate::cuda::memory::{DeviceBlock, DevicePool};
use crate::error::{Error, Kind, Result};
use crate::model::{self, Model};
use crate::tensor::{Tensor, TensorDesc};
use crate::tensorrt::builder::{self, BuildOptions, Shape};
use crate::tensorrt::cache::{Cache, Lookup};
use crate::tensorrt::engine::{self, Engine, Io};
use crate::tensorrt::exit::Inside;
use crate::tensorrt::header::Header;
use crate::tensorrt::interfaces;
use crate::tensorrt::library::Library;
use crate::tensorrt::onnx::Onnx;
use crate::vision::recipe::InputSpec;

/// What the user says about TensorRT.
#[derive(Clone, Debug)]
pub struct Options {
    /// File or folder; the newest that is found by default.
    pub library: Option<PathBuf>,
    pub engine: engine::Options,
    /// Shapes are the model's matter.
    pub build: BuildOptions,
    /// Take engines from the cache, and build none.
    pub never_build: bool,
    /// The user's own by default.
    pub cache: Option<PathBuf>,
    pub graphs: Graphs,
}

/// Whether runs are recorded as CUDA graphs, which cost the host one call each instead of one for each kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graphs {
    /// Where the engine can be recorded.
    #[default]
    Auto,
    /// It is an error where it cannot.
    On,
    Off,
}

impl Options {
    /// How long TensorRT looks for fast kernels, unless the user says otherwise. It is part of an engine's key, so elements and
    /// sessions must agree on it to find each other's engines.
    pub const LEVEL: u8 = 3;
}

impl Default for Options {
    fn default() -> Self {
        Options {
            library: None,
            engine: engine::Options::default(),
            build: BuildOptions { level: Some(Options::LEVEL), ..BuildOptions::default() },
            never_build: false,
            cache: None,
            graphs: Graphs::default(),
        }
    }
}

/// Whether a model file is an engine rather than ONNX.
pub fn is_engine(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "engine" || extension == "plan")
}

/// Opens the TensorRT that can run the file.
///
/// # Errors
/// `Library`, with what is missing.
pub fn library_for(path: &Path, options: &Options) -> Result<&'static Library> {
    let header = match is_engine(path) {
        true => Some(header(path, &model::contents(path)?)?),
        false => None,
    };
    crate::cuda::driver::available()?;
    let library = Library::open(options.library.as_deref(), header.as_ref())?;
    if header.is_none() && !library.has_builder() {
        return Err(Error::new(Kind::Library, format!("{} cannot build engines", library.name()))
            .cause(format!("{} is a lean runtime", library.path().display()))
            .remedy("Set trt-library to the full TensorRT, or model-file to a version-compatible engine"));
    }
    Ok(library)
}

fn header(path: &Path, file: &[u8]) -> Result<Header> {
    Header::read(file).map_err(|error| error.about(&format!("Cannot use the engine {}", path.display())))
}

/// Loads an engine file, for it says what it takes and gives only then.
pub fn load_engine(
    path: &Path,
    library: &'static Library,
    options: &Options,
    cuda: &Context,
) -> Result<(Model, Arc<Engine>)> {
    let _inside = Inside::enter();
    let file = model::contents(path)?;
    let header = header(path, &file)?;
    let engine = Engine::load(cuda, library, &file, &header, &options.engine)
        .map_err(|error| error.about(&format!("Cannot load the engine {}", path.display())))?;
    let descs = |tensors: &[Io]| tensors.iter().map(|io| io.desc.clone()).collect();
    let model = Model::of_engine(path, descs(engine.inputs()), descs(engine.outputs()), header.metadata.as_deref())?;
    Ok((model, engine))
}

/// An engine for an ONNX file: from the cache, else built.
fn engine_of_onnx(
    model: &Model,
    spec: &InputSpec,
    library: &'static Library,
    options: &Options,
    cuda: &Context,
    loading: &Loading,
) -> Result<Arc<Engine>> {
    let onnx = Onnx::new(&model.path, model::contents(&model.path)?);
    let build = BuildOptions { shapes: shapes(model, spec)?, ..options.build.clone() };
    let (major, minor) = cuda.compute_capability()?;
    let gpu = format!("{}, compute capability {major}.{minor}", cuda.device_name()?);
    let key = build.key(library, &onnx, &gpu)?;
    let cache = Cache::open(options.cache.as_deref()).map_err(|error| (loading.tell)(Event::Warning(error))).ok();

    let waiting = || (loading.tell)(Event::Step("another process builds this engine", None));
    let find = |cache: &Cache| cache.find(&key, loading.cancelled, waiting);
    let slot = match cache.as_ref().map(|cache| Ok((cache, find(cache)?))).transpose()? {
        Some((cache, Lookup::Hit(file))) => match load(&file, model, library, options, cuda) {
            Ok(engine) => return Ok(engine),
            // It was good once; something has changed that the key does not know, like the driver.
            Err(error) if error.kind() == Kind::Model && !error.cause_text().contains("memory") => {
                (loading.tell)(Event::Warning(error));
                cache.forget(&key);
                match find(cache)? {
                    Lookup::Hit(file) => return load(&file, model, library, options, cuda),
                    Lookup::Miss(slot) => Some(slot),
                }
            }
            Err(error) => return Err(error),
        },
        Some((_, Lookup::Miss(slot))) => Some(slot),
        None => None,
    };
    let why = slot.as_ref().map_or("there is no cache", |slot| slot.why());
    if options.never_build {
        return Err(Error::new(Kind::Settings, format!("There is no engine for {}", model.path.display()))
            .cause(why)
            .remedy("Set engine-build=auto to have it built, or model-file to an engine"));
    }
    (loading.tell)(Event::Step(&format!("building an engine with {}, because {why}", library.name()), Some(0)));
    let timing = cache.as_ref().filter(|_| !library.family().is_rtx()).map(|cache| cache.timing(&library.name(), &gpu));
    let known = timing.as_ref().and_then(|timing| timing.load());
    let progress = |progress: interfaces::Progress<'_>| {
        (loading.tell)(Event::Step(progress.phase, Some((progress.fraction * 100.0) as u32)));
    };
    let _entered = cuda.enter()?;
    let built = builder::build(library, &onnx, &build, known.as_deref(), &progress, loading.cancelled)?;
    if let (Some(timing), Some(measured)) = (timing, &built.timing) {
        let _ = timing.save(measured); // the next build only takes longer
    }
    if let Some(Err(error)) = slot.map(|slot| slot.store(&built.engine)) {
        (loading.tell)(Event::Warning(error));
    }
    load(&built.engine, model, library, options, cuda)
}

fn load(
    file: &[u8],
    model: &Model,
    library: &'static Library,
    options: &Options,
    cuda: &Context,
) -> Result<Arc<Engine>> {
    Header::read(file)
        .and_then(|header| Engine::load(cuda, library, file, &header, &options.engine))
        .map_err(|error| error.about(&format!("Cannot load the engine of {}", model.path.display())))
}

/// The dimensions of all inputs that the file leaves open.
fn shapes(model: &Model, spec: &InputSpec) -> Result<Vec<Shape>> {
    let sides = model.side_inputs(spec)?;
    let shape = |(input, side): (&TensorDesc, &Option<Tensor>)| {
        let desc = side.as_ref().map_or(&spec.desc, |side| side.desc());
        (!input.dims.is_static()).then(|| Shape::fixed(&input.name, &desc.dims))
    };
    Ok(model.inputs.iter().zip(&sides).filter_map(shape).collect())
}

pub struct TensorRt {
    // Drop order: the stream first, which waits for the runs that use the rest.
    stream: Stream,
    recorded: Option<Recordings>,
    /// Why a run could not be recorded, until somebody is told.
    refused: Option<Error>,
    context: engine::Context,
    pool: DevicePool,
    /// The tensors of a run, in the order of the picture and the outputs.
    addresses: Vec<u64>,
    /// Which of the engine's inputs takes the picture, and what it was told the picture is.
    image: Io,
    wanted: TensorDesc,
    outputs: Vec<(Io, TensorDesc)>,
    /// What goes in beside the picture; the context has their addresses.
    _side_inputs: Vec<DeviceBlock>,
}

impl TensorRt {
    /// Loads the model; `engine` is what [`load_engine`] returned, if the file is one.
    pub fn open(
        model: &Model,
        spec: &InputSpec,
        library: &'static Library,
        options: &Options,
        cuda: &Context,
        engine: Option<Arc<Engine>>,
        loading: &Loading,
    ) -> Result<Self> {
        let _inside = Inside::enter();
        let engine = match engine {
            Some(engine) => engine,
            None => engine_of_onnx(model, spec, library, options, cuda, loading)?,
        };
        let what = format!("Cannot run {} with {}", model.path.display(), library.name());
        let mut backend = TensorRt::prepare(model, spec, engine, cuda).map_err(|error| error.about(&what))?;
        match backend.try_recording(options.graphs) {
            Err(error) if options.graphs == Graphs::On => {
                Err(error.about(&what).remedy("Set cuda-graph=auto, which then runs it without"))
            }
            // It runs all the same, only less fast.
            Err(error) => {
                interfaces::log(interfaces::Level::Warning, &format!("{what} as a CUDA graph: {}", error.as_clause()));
                Ok(backend)
            }
            Ok(()) => Ok(backend),
        }
    }

    fn prepare(model: &Model, spec: &InputSpec, engine: Arc<Engine>, cuda: &Context) -> Result<Self> {
        let (stream, pool) = (Stream::new(cuda)?, DevicePool::new(cuda));
        let mut context = engine.context()?;
        let image = input(&engine, &spec.desc)?.clone();
        match engine.profile_for(&image, &spec.desc.dims) {
            Some(0) => {}
            Some(profile) => context.use_profile(profile, &stream)?,
            None => return Err(no_profile(&engine, &image, &spec.desc)),
        }
        context.set_input(&image, &spec.desc.dims)?;
        let mut side_inputs = Vec::new();
        for side in model.side_inputs(spec)?.iter().flatten() {
            let io = input(&engine, side.desc())?;
            let bytes = side.bytes().expect("side inputs are made on the host");
            let mut block = pool.take(bytes.len())?;
            block.write(bytes)?;
            context.set_input(io, &side.desc().dims)?;
            // SAFETY: the block is large enough, and stays as long as the context.
            unsafe { context.set_address(io, block.address()) }?;
            side_inputs.push(block);
        }
        let outputs = engine.outputs().iter().map(|io| {
            let dims = context.output_dims(io)?;
            Ok((io.clone(), TensorDesc { dims, ..io.desc.clone() }))
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let mut backend = TensorRt {
            context,
            stream,
            recorded: None,
            refused: None,
            pool,
            addresses: Vec::new(),
            image,
            wanted: spec.desc.clone(),
            outputs,
            _side_inputs: side_inputs,
        };
        // Kernels are loaded at their first use; and what fails should fail before the first frame.
        backend.run_to_end(&backend.zeros()?)?;
        Ok(backend)
    }

    /// A picture to try out the engine with.
    fn zeros(&self) -> Result<Tensor> {
        let bytes = self.wanted.bytes().expect("the specification has fixed dimensions");
        let mut block = self.pool.take(bytes)?;
        block.write(&vec![0; bytes])?;
        Ok(Tensor::on_device(self.wanted.clone(), block))
    }

    /// Runs, and waits until it is done.
    fn run_to_end(&mut self, picture: &Tensor) -> Result<()> {
        let Outputs { tensors: _tensors, ready } = self.run(picture, None)?;
        ready.map_or(Ok(()), |ready| ready.wait())
    }

    /// Records a run, and runs what was recorded: what cannot be recorded shows now, and not at some frame.
    fn try_recording(&mut self, graphs: Graphs) -> Result<()> {
        if graphs == Graphs::Off {
            return Ok(());
        }
        let zeros = self.zeros()?;
        self.recorded = Some(Recordings::default());
        // Seen, recorded, launched.
        let tried = (0..3).try_for_each(|_| {
            self.run_to_end(&zeros)?;
            self.refused.take().map_or(Ok(()), Err)
        });
        if tried.is_err() {
            self.recorded = None;
        }
        tried
    }

    /// Queues a run on the tensors of `addresses`.
    ///
    /// # Safety
    /// They have the sizes that they should, and stay until the run is done.
    unsafe fn start(&mut self) -> Result<()> {
        let TensorRt { stream, recorded, refused, context, addresses, image, outputs, .. } = self;
        if let Some(error) = refused.take() {
            let what = format!("Runs are no longer recorded as CUDA graphs: {}", error.as_clause());
            interfaces::log(interfaces::Level::Warning, &what);
        }
        // SAFETY: `prepare` gave all inputs their dimensions; the rest says the caller.
        unsafe {
            if let Some(done) = recorded.as_mut().and_then(|recorded| recorded.launch(addresses, stream)) {
                return done;
            }
            let tensors = [&*image].into_iter().chain(outputs.iter().map(|(io, _)| io));
            tensors.zip(&*addresses).try_for_each(|(io, &address)| context.set_address(io, address))?;
            context.enqueue(stream)?;
            let Some(noted) = recorded.as_mut().map(|runs| runs.note(addresses, context, stream)) else {
                return Ok(());
            };
            if let Err(error) = noted {
                // This run is queued all the same, and so can the next ones be.
                *recorded = None;
                *refused = Some(error);
            }
            Ok(())
        }
    }
}

/// The engine's input of that name and type.
fn input<'a>(engine: &'a Engine, desc: &TensorDesc) -> Result<&'a Io> {
    let found = engine.inputs().iter().find(|io| io.desc.name == desc.name);
    found.filter(|io| io.desc.dtype == desc.dtype && desc.dims.fits(&io.desc.dims)).ok_or_else(|| {
        let has = found.map_or("no such input".to_string(), |io| io.desc.to_string());
        Error::new(Kind::Model, "The engine does not fit its model")
            .cause(format!("it has {has}, and the model {desc}"))
            .remedy("Delete the engine, or build it again")
    })
}

fn no_profile(engine: &Engine, image: &Io, wanted: &TensorDesc) -> Error {
    let ranges: Vec<String> = (0..engine.profiles())
        .filter_map(|profile| engine.profile(image, profile))
        .map(|[least, _, most]| format!("{least} to {most}"))
        .collect();
    Error::new(Kind::Settings, format!("The engine does not take an input of {wanted}"))
        .cause(format!("it was built for {}", ranges.join(", and ")))
        .remedy("Set input-size to a size in that range, or build the engine for another one")
}

impl Backend for TensorRt {
    fn run(&mut self, picture: &Tensor, after: Option<&Fence>) -> Result<Outputs> {
        let Some(memory) = picture.device().filter(|memory| memory.context() == self.stream.context()) else {
            return Err(Error::new(
                Kind::WrongType,
                "The tensor is not in the memory of the GPU that the model runs on",
            )
            .cause(format!("it is {picture:?}"))
            .remedy("Set the same cuda-device-id on trtpreprocess and trtinfer"));
        };
        let desc = picture.desc();
        if (desc.dtype, &desc.dims) != (self.wanted.dtype, &self.wanted.dims) {
            return Err(Error::new(Kind::WrongType, "The tensor does not fit the engine")
                .cause(format!("it is {desc}, and the engine was prepared for {}", self.wanted))
                .remedy("Leave the tensor-… properties of trtpreprocess unset, and set input-size on trtinfer"));
        }
        after.map_or(Ok(()), |after| self.stream.wait(after))?;
        let mut tensors = Vec::with_capacity(self.outputs.len());
        self.addresses.clear();
        self.addresses.push(memory.address());
        for (_, desc) in &self.outputs {
            let block = self.pool.take(desc.bytes().expect("checked by output_dims"))?;
            self.addresses.push(block.address());
            tensors.push(Tensor::on_device(desc.clone(), block));
        }
        // SAFETY: the picture's size was just checked, and it stays until the outputs are dropped, which keep it; their blocks are
        // large enough, and return to the pool when they are dropped, after their fence.
        unsafe { self.start() }?;
        Ok(Outputs { tensors, ready: Some(self.stream.record()?) })
    }
}
