//! Models on an NVIDIA GPU, by TensorRT.
//!
//! An ONNX file becomes an engine first: found in the cache, or built, which takes seconds to minutes.

pub mod abi;
pub mod builder;
pub mod cache;
pub mod engine;
mod executor;
pub mod exit;
mod graph_cache;
pub mod header;
pub mod interfaces;
pub mod library;
pub mod onnx;
pub mod version;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::builder::{BuildOptions, Shape};
use self::cache::{Cache, Lookup};
use self::engine::{Engine, TensorBinding};
use self::executor::TrtExecutor;
use self::exit::ExitGuard;
use self::header::Header;
use self::library::Library;
use self::onnx::Onnx;
use super::context_pool::ContextPool;
use super::{LoadContext, LoadEvent, LoadRequest, ModelInstance};
use crate::core::cuda::driver::Context;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::Dims;
use crate::image::transform::InputSpec;
use crate::model::{self, ModelInfo};

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
    pub graphs: GraphMode,
}

/// Whether runs are recorded as CUDA graphs, which cost the host one call each instead of one for each kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
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
            graphs: GraphMode::default(),
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
    crate::core::cuda::driver::available()?;
    let library = Library::open(options.library.as_deref(), header.as_ref())?;
    if header.is_none() && !library.has_builder() {
        return Err(Error::new(ErrorKind::Library, format!("{} cannot build engines", library.name()))
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
) -> Result<(ModelInfo, Arc<Engine>)> {
    let _inside = ExitGuard::enter();
    let file = model::contents(path)?;
    let header = header(path, &file)?;
    let engine = Engine::load(cuda, library, &file, &header, &options.engine)
        .map_err(|error| error.about(&format!("Cannot load the engine {}", path.display())))?;
    let descs = |tensors: &[TensorBinding]| tensors.iter().map(|io| io.desc.clone()).collect();
    let model =
        ModelInfo::of_engine(path, descs(engine.inputs()), descs(engine.outputs()), header.metadata.as_deref())?;
    Ok((model, engine))
}

/// An engine for an ONNX file: from the cache, else built.
fn engine_of_onnx(
    plan: &LoadRequest,
    library: &'static Library,
    cuda: &Context,
    loading: &LoadContext,
) -> Result<Arc<Engine>> {
    let LoadRequest { options, spec, batch, .. } = plan;
    let model = plan.model();
    let onnx = Onnx::new(&model.path, model::contents(&model.path)?);
    let build = BuildOptions { shapes: shapes(model, spec, *batch)?, ..options.build.clone() };
    let (major, minor) = cuda.compute_capability()?;
    let gpu = format!("{}, compute capability {major}.{minor}", cuda.device_name()?);
    let key = build.key(library, &onnx, &gpu, loading.cancelled)?;
    let cache = Cache::open(options.cache.as_deref()).map_err(|error| (loading.tell)(LoadEvent::Warning(error))).ok();

    let waiting = || (loading.tell)(LoadEvent::Progress("another process builds this engine", None));
    let find = |cache: &Cache| cache.find(&key, loading.cancelled, waiting);
    let slot = match cache.as_ref().map(|cache| Ok((cache, find(cache)?))).transpose()? {
        Some((cache, Lookup::Hit(file))) => match load(&file, model, library, options, cuda) {
            Ok(engine) => return Ok(engine),
            // It was good once; something has changed that the key does not know, like the driver.
            Err(error) if error.kind() == ErrorKind::Model && !error.cause_text().contains("memory") => {
                (loading.tell)(LoadEvent::Warning(error));
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
        return Err(Error::new(ErrorKind::Settings, format!("There is no engine for {}", model.path.display()))
            .cause(why)
            .remedy("Set engine-build=auto to have it built, or model-file to an engine"));
    }
    (loading.tell)(LoadEvent::Progress(&format!("building an engine with {}, because {why}", library.name()), Some(0)));
    let timing = cache.as_ref().filter(|_| !library.family().is_rtx()).map(|cache| cache.timing(&library.name(), &gpu));
    let known = timing.as_ref().and_then(|timing| timing.load());
    let progress = |progress: interfaces::Progress<'_>| {
        (loading.tell)(LoadEvent::Progress(progress.phase, Some((progress.fraction * 100.0) as u32)));
    };
    let _entered = cuda.enter()?;
    let built = builder::build(library, &onnx, &build, known.as_deref(), &progress, loading.cancelled)?;
    if let (Some(timing), Some(measured)) = (timing, &built.timing) {
        let _ = timing.save(measured); // the next build only takes longer
    }
    if let Some(Err(error)) = slot.map(|slot| slot.store(&built.engine)) {
        (loading.tell)(LoadEvent::Warning(error));
    }
    load(&built.engine, model, library, options, cuda)
}

fn load(
    file: &[u8],
    model: &ModelInfo,
    library: &'static Library,
    options: &Options,
    cuda: &Context,
) -> Result<Arc<Engine>> {
    Header::read(file)
        .and_then(|header| Engine::load(cuda, library, file, &header, &options.engine))
        .map_err(|error| error.about(&format!("Cannot load the engine of {}", model.path.display())))
}

/// The dimensions of all inputs that the file leaves open, fastest where batches are full.
fn shapes(model: &ModelInfo, spec: &InputSpec, batch: usize) -> Result<Vec<Shape>> {
    let (one, all) = (model.side_inputs(spec, 1)?, model.side_inputs(spec, batch)?);
    let shapes = model.inputs.iter().zip(one.iter().zip(&all)).map(|(input, (one, all))| {
        let largest = all.as_ref().map_or_else(|| with_rows(&spec.desc.dims, batch), |all| all.desc().dims.clone());
        let smallest = match input.dims.first() {
            Some(&Dims::DYNAMIC) => one.as_ref().map_or(&spec.desc, |one| one.desc()).dims.clone(),
            _ => largest.clone(),
        };
        let shape = Shape { input: input.name.clone(), smallest, usual: largest.clone(), largest };
        (!input.dims.is_static()).then_some(shape)
    });
    Ok(shapes.flatten().collect())
}

/// Of a batch of so many.
fn with_rows(dims: &Dims, rows: usize) -> Dims {
    let mut dims = dims.clone();
    dims.0[0] = rows as i64;
    dims
}

/// Loads the model of a plan, with as many lanes as there may be.
pub fn open(
    plan: &LoadRequest,
    library: &'static Library,
    cuda: &Context,
    loading: &LoadContext,
) -> Result<Box<dyn ModelInstance>> {
    let _inside = ExitGuard::enter();
    let engine = match &plan.described.engine {
        Some(engine) => engine.clone(),
        None => engine_of_onnx(plan, library, cuda, loading)?,
    };
    let what = format!("Cannot run {} with {}", plan.model().path.display(), library.name());
    let mut lanes = vec![TrtExecutor::open(plan, &engine, cuda, loading, &what)?];
    while lanes.len() < loading.lanes {
        match TrtExecutor::open(plan, &engine, cuda, loading, &what) {
            Ok(lane) => lanes.push(lane),
            // It runs all the same, only less fast.
            Err(error) => {
                let runs = format!("{} runs of it are on the GPU side by side", lanes.len());
                interfaces::log(interfaces::Level::Warning, &format!("{}; so {runs}", error.as_clause()));
                break;
            }
        }
    }
    Ok(ContextPool::of(lanes))
}
