// SPDX-License-Identifier: MPL-2.0
//! Models on an NVIDIA GPU, by TensorRT.
//!
//! An ONNX file becomes an engine first: found in the cache, or built, which takes seconds to minutes.

pub mod abi;
pub mod builder;
pub mod cache;
pub mod engine;
mod exact;
mod executor;
mod graph_cache;
pub mod header;
pub mod interfaces;
mod kept;
pub mod library;
pub mod onnx;
mod options;
mod repair;
mod turn;
pub mod version;

use std::ptr;
use std::sync::Arc;

use self::builder::{BuildOptions, Half, Precision, Shape};
use self::cache::{Cache, EngineFile, Lookup, VerdictFile};
use self::engine::{Engine, RuntimeOptions, TensorBinding};
use self::executor::TrtExecutor;
use self::header::Header;
use self::library::Library;
use self::onnx::{Onnx, WeightType};
use self::repair::{Case, OneByOne, Step};
use super::context_pool::ContextPool;
use super::exit::ExitGuard;
use super::options::{BackendOption, Options};
use super::verify::{self, Tolerance, Verdict, Verification};
use super::{Backend, LoadContext, LoadEvent, LoadRequest, ModelInstance, OpenedModel, Unsupported, refuse_address};
use crate::cuda::driver::Context;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::image::transform::InputSpec;
use crate::in_use::InUse;
use crate::model::{FileContents, ModelFile, ModelInfo};
use crate::tensor::Dims;
#[doc(hidden)]
pub use kept::EngineKeeper;
pub(super) use options::{ENGINE_CACHE, PRECISION};
pub use options::{GraphMode, TrtOptions};

/// The backend.
pub struct TensorRt;

impl Backend for TensorRt {
    fn name(&self) -> &'static str {
        "tensorrt"
    }

    fn title(&self) -> &'static str {
        "TensorRT"
    }

    fn blurb(&self) -> &'static str {
        "TensorRT on an NVIDIA GPU"
    }

    fn device(&self, _: &Options) -> Device {
        Device::Cuda
    }

    fn options(&self) -> &'static [&'static BackendOption] {
        &options::OPTIONS
    }

    fn probe(&self, file: &ModelFile, options: &Options) -> std::result::Result<(), Unsupported> {
        refuse_address(file, self.title())?;
        library_for(file, &options.into()).map(drop).map_err(Unsupported::Missing)
    }

    /// Engines say what goes in and comes out only once they are loaded onto the GPU, so that is done here for them,
    /// and takes some time.
    fn describe(&self, file: &ModelFile, options: &Options, cuda: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
        let options = TrtOptions::from(options);
        let library = library_for(file, &options)?;
        let (info, engine, sha256) = if file.is_engine() {
            let cuda = cuda.expect("a backend on a GPU is given its context");
            let is_verified = options.verification != Verification::Off;
            let sha256 = is_verified.then(|| file.contents().map(|file| cache::sha256(file.bytes()))).transpose()?;
            let (info, engine) = load_engine(file, library, &options, cuda)?;
            file.release(); // the engine has all of it
            (info, Some(engine), sha256)
        } else {
            (ModelInfo::of_onnx(&*file.contents()?)?, None, None)
        };
        Ok(Arc::new(TrtModel { info: Arc::new(info), library, options, engine, sha256 }))
    }

    fn loads_to_describe(&self, file: &ModelFile) -> bool {
        file.is_engine()
    }

    /// An engine may, but where it is built, the size is wanted before.
    fn takes_any_size(&self) -> bool {
        false
    }
}

/// A model that is described, and the engine where the file is one.
struct TrtModel {
    info: Arc<ModelInfo>,
    library: &'static Library,
    options: TrtOptions,
    engine: Option<Arc<Engine>>,
    /// Of that file, where its verdict is looked for.
    sha256: Option<String>,
}

impl OpenedModel for TrtModel {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.info
    }

    /// Engines are for the sizes that they were built for.
    fn takes(&self, spec: &InputSpec, batch: usize) -> bool {
        let Some(engine) = &self.engine else { return true };
        let input = engine.inputs().iter().find(|input| input.desc.name == spec.desc.name);
        input.is_some_and(|input| engine.profile_for(input, &with_rows(&spec.desc.dims, batch)).is_some())
    }

    fn tolerance(&self, request: &LoadRequest) -> Result<&'static Tolerance> {
        self.tolerance_of(&self.options.build, request)
    }

    fn load(&self, request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let _inside = ExitGuard::enter();
        let cuda = request.cuda.as_ref().expect("a backend on a GPU is given its context");
        match &self.engine {
            Some(engine) => {
                let verdict = self.verdict_file(request, cuda)?;
                let entry = LoadedEngine { engine: engine.clone(), verdict };
                let verdict = self.verdict(&entry, request, &self.options.build, cuda, loading)?;
                // Nothing can be built instead: the file is an engine.
                let file = self.info.path.display().to_string();
                let loaded = |_| Ok((self.open(request, &entry.engine, cuda, loading)?, verdict.clone()));
                repair::settle(&[Step::Wanted], true, &file, loading, loaded)
            }
            None => self.load_onnx(request, cuda, loading),
        }
    }
}

/// Opens the TensorRT that can run the file.
///
/// # Errors
/// `Library`, with what is missing.
pub fn library_for(file: &ModelFile, options: &TrtOptions) -> Result<&'static Library> {
    let header = if file.is_engine() { Some(header(&*file.contents()?)?) } else { None };
    crate::cuda::driver::available()?;
    let library = Library::open(options.library.as_deref(), header.as_ref())?;
    if header.is_none() && !library.has_builder() {
        return Err(Error::new(ErrorKind::Library, format!("{} cannot build engines", library.name()))
            .cause(format!("{} is a lean runtime", library.path().display()))
            .remedy("Set trt-library to the full TensorRT, or give a version-compatible engine"));
    }
    Ok(library)
}

fn header(file: &FileContents) -> Result<Header> {
    Header::read(file.bytes()).map_err(|error| error.about(&format!("Cannot use the engine {}", file.path().display())))
}

/// Loads an engine file, whose inputs and outputs are known only then.
pub fn load_engine(
    file: &ModelFile,
    library: &'static Library,
    options: &TrtOptions,
    cuda: &Context,
) -> Result<(ModelInfo, Arc<Engine>)> {
    let _inside = ExitGuard::enter();
    let (path, file) = (file.path(), file.contents()?);
    let header = header(&file)?;
    let engine = Engine::load(cuda, library, file.bytes(), &header, &options.runtime)
        .map_err(|error| error.about(&format!("Cannot load the engine {}", path.display())))?;
    let descs = |tensors: &[TensorBinding]| tensors.iter().map(|io| io.desc.clone()).collect();
    let model =
        ModelInfo::of_engine(path, descs(engine.inputs()), descs(engine.outputs()), header.metadata.as_deref())?;
    Ok((model, engine))
}

/// An engine, and where the verdict on it is kept, if it can be.
struct LoadedEngine {
    engine: Arc<Engine>,
    verdict: Option<VerdictFile>,
}

impl TrtModel {
    /// With as many execution contexts as asked for, if there is memory for them.
    fn open(
        &self,
        request: &LoadRequest,
        engine: &Arc<Engine>,
        cuda: &Context,
        loading: &LoadContext,
    ) -> Result<Box<dyn ModelInstance>> {
        let what = format!("Cannot run {} with {}", self.info.path.display(), self.library.name());
        let open = || TrtExecutor::open(request, engine, cuda, self.options.graphs, loading, &what);
        let mut contexts = vec![open()?];
        while contexts.len() < loading.contexts {
            match open() {
                Ok(context) => contexts.push(context),
                // It runs all the same, only less fast.
                Err(error) => {
                    let runs = format!("{} runs of it are on the GPU side by side", contexts.len());
                    interfaces::log(interfaces::Level::Warning, &format!("{}; so {runs}", error.as_clause()));
                    break;
                }
            }
        }
        Ok(ContextPool::of(contexts))
    }

    /// The model of an ONNX file, by the first engine that computes what it says.
    fn load_onnx(
        &self,
        request: &LoadRequest,
        cuda: &Context,
        loading: &LoadContext,
    ) -> Result<Box<dyn ModelInstance>> {
        let numbers = Onnx::from(request.file.contents()?).numbers();
        let has_bf16 = cuda.compute_capability()? >= (8, 0);
        let case = Case { abi: self.library.abi(), has_bf16, numbers, batch: request.batch };
        let steps = Step::of(&self.options.build, case);
        let make = |step: Step| {
            let build = step.options(&self.options.build, numbers);
            let one_by_one = step == Step::OneByOne && self.info.fixed_batch().is_none();
            let request = if one_by_one { request.with_batch(1) } else { request.clone() };
            let entry = self.engine_of_onnx(&request, &build, cuda, loading)?;
            let mut verdict = self.verdict(&entry, &request, &build, cuda, loading)?;
            if let Some(verdict) = &mut verdict {
                verdict.repair = step.repair().map(str::to_string);
            }
            let model = self.open(&request, &entry.engine, cuda, loading)?;
            Ok((if one_by_one { Box::new(OneByOne(model)) } else { model }, verdict))
        };
        let is_chosen = matches!(self.options.build.precision, Precision::Fp16 | Precision::Int8);
        repair::settle(&steps, is_chosen, &self.info.path.display().to_string(), loading, make)
    }

    /// What a verdict is of: other runs may be wrong.
    fn runs(&self, request: &LoadRequest) -> String {
        let LoadRequest { spec, batch, values, .. } = request;
        let (dims, values) = (&spec.desc.dims, values.shapes());
        let dims = if spec.has_widths() { format!("{dims} to {}", spec.largest_dims()) } else { dims.to_string() };
        format!("{dims}{values} in batches of {batch}, cuda-graph {:?}", self.options.graphs)
    }

    /// Where the verdict on the engine is that came as a file.
    fn verdict_file(&self, request: &LoadRequest, cuda: &Context) -> Result<Option<VerdictFile>> {
        let (Ok(cache), Some(sha256)) = (Cache::open(self.options.cache.as_deref()), &self.sha256) else {
            return Ok(None);
        };
        let (library, gpu) = (self.library.name(), gpu_name(cuda)?);
        Ok(Some(cache.verdict_of_file(sha256, &library, &gpu, &self.runs(request))))
    }

    /// What is known of an engine, or what its runs show now. Nothing where it is not wanted, or cannot be found out.
    fn verdict(
        &self,
        entry: &LoadedEngine,
        request: &LoadRequest,
        build: &BuildOptions,
        cuda: &Context,
        loading: &LoadContext,
    ) -> Result<Option<Verdict>> {
        match self.options.verification {
            Verification::Off => return Ok(None),
            Verification::Auto => match entry.verdict.as_ref().and_then(|file| file.load(|| request.references())) {
                None => {}
                known => return Ok(known),
            },
            Verification::Always => {}
        }
        let what = format!("Cannot verify {} with {}", self.info.path.display(), self.library.name());
        let alone = LoadContext { slots: None, contexts: 1, ..*loading };
        let tried = TrtExecutor::open(request, &entry.engine, cuda, self.options.graphs, &alone, &what).and_then(
            |mut model| {
                verify::verify(request, &mut model, request.on_cpu(), self.tolerance_of(build, request)?, loading)
            },
        );
        match tried {
            Ok(verdict) => {
                if let Some(file) = &entry.verdict {
                    let _ = file.save(&verdict, &request.references()); // it is only verified again
                }
                Ok(Some(verdict))
            }
            Err(error) if loading.is_cancelled() => Err(error),
            Err(error) => {
                (loading.report)(LoadEvent::Warning(error.about(&what)));
                Ok(None)
            }
        }
    }

    /// By the types in which the engine computes.
    fn tolerance_of(&self, build: &BuildOptions, request: &LoadRequest) -> Result<&'static Tolerance> {
        if self.engine.is_some() {
            return Ok(&Tolerance::HALF); // which it has is not to be seen
        }
        let numbers = Onnx::from(request.file.contents()?).numbers();
        Ok(match (build.precision, numbers) {
            (Precision::Int8, _) | (_, WeightType::Quantized) => &Tolerance::EIGHT,
            (Precision::Fp32, WeightType::F32) => &Tolerance::SINGLE,
            (_, WeightType::F32) if build.half == Half::Bf16 => &Tolerance::BFLOAT,
            _ => &Tolerance::HALF,
        })
    }

    /// An engine for an ONNX file: from the cache, else built.
    fn engine_of_onnx(
        &self,
        request: &LoadRequest,
        build: &BuildOptions,
        cuda: &Context,
        loading: &LoadContext,
    ) -> Result<LoadedEngine> {
        let TrtModel { info: model, library, options, .. } = self;
        let onnx = Onnx::from(request.file.contents()?);
        let build = BuildOptions { shapes: shapes(request)?, ..build.clone() };
        let gpu = gpu_name(cuda)?;
        let key = build.key(library, &onnx, &gpu, loading.cancelled)?;
        let cache =
            Cache::open(options.cache.as_deref()).map_err(|error| (loading.report)(LoadEvent::Warning(error))).ok();

        let waiting = || (loading.report)(LoadEvent::Progress("another process builds this engine", None));
        let find = |cache: &Cache| cache.find(&key, loading.cancelled, waiting);
        let entry = |engine, file: &EngineFile| LoadedEngine {
            engine,
            verdict: cache.as_ref().map(|cache| cache.verdict(&key, &file.sha256, &self.runs(request))),
        };
        let slot = match cache.as_ref().map(|cache| Ok((cache, find(cache)?))).transpose()? {
            Some((cache, Lookup::Hit(file))) => match load(&file, model, library, options, cuda) {
                Ok(engine) => return Ok(entry(engine, &file)),
                // It was valid once; something has changed that the key does not include, such as the driver.
                Err(error) if error.kind() == ErrorKind::Model && !error.is_out_of_memory() => {
                    if options.never_build {
                        // Nothing would take its place, and what has changed may change back.
                        return Err(error.and_remedy("With engine-build=auto it is built again"));
                    }
                    (loading.report)(LoadEvent::Warning(error));
                    cache.forget(&key);
                    match find(cache)? {
                        Lookup::Hit(file) => {
                            return load(&file, model, library, options, cuda).map(|engine| entry(engine, &file));
                        }
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
                .remedy("Set engine-build=auto to have it built, or give an engine"));
        }
        (loading.report)(LoadEvent::Progress(
            &format!("building an engine with {}, because {why}", library.name()),
            Some(0),
        ));
        let timing =
            cache.as_ref().filter(|_| !library.abi().is_rtx()).map(|cache| cache.timing(&library.name(), &gpu));
        let known = timing.as_ref().and_then(|timing| timing.load());
        let progress = |progress: interfaces::BuildProgress<'_>| {
            (loading.report)(LoadEvent::Progress(progress.phase, Some((progress.fraction * 100.0) as u32)));
        };
        let _entered = cuda.enter()?;
        let built = builder::build(library, &onnx, &build, known.as_deref(), &progress, loading.cancelled)
            .map_err(|error| cuda.or_lost(error))?;
        onnx.check_unchanged(&key.contents, loading.cancelled)?;
        build.check_unchanged(&key, library, &onnx)?;
        if let (Some(timing), Some(measured)) = (timing, &built.timing) {
            let _ = timing.save(measured); // the next build only takes longer
        }
        let file = EngineFile::new(built.engine);
        if let Some(Err(error)) = slot.map(|slot| slot.store(&file)) {
            (loading.report)(LoadEvent::Warning(error));
        }
        load(&file, model, library, options, cuda).map(|engine| entry(engine, &file))
    }
}

fn load(
    file: &EngineFile,
    model: &ModelInfo,
    library: &'static Library,
    options: &TrtOptions,
    cuda: &Context,
) -> Result<Arc<Engine>> {
    engine_in_use(file, library, options.runtime, cuda)
        .map_err(|error| error.about(&format!("Cannot load the engine of {}", model.path.display())))
}

/// Loads an engine of ours, unless a model in this process has it.
fn engine_in_use(
    file: &EngineFile,
    library: &'static Library,
    options: RuntimeOptions,
    cuda: &Context,
) -> Result<Arc<Engine>> {
    /// By library, CUDA context, options and digest. Neither of the first two can have gone while an engine is in use.
    type Source = (usize, usize, RuntimeOptions, String);
    static LOADED: InUse<Source, Engine> = InUse::new();
    let source = (ptr::from_ref(library) as usize, cuda.raw() as usize, options, file.sha256.clone());
    LOADED
        .get(source, || Engine::load(cuda, library, &file.bytes, &Header::read(&file.bytes)?, &options))
        .inspect(kept::note)
}

/// As in [`cache::Key::gpu`].
fn gpu_name(cuda: &Context) -> Result<String> {
    let (major, minor) = cuda.compute_capability()?;
    Ok(format!("{}, compute capability {major}.{minor}", cuda.device_name()?))
}

/// The dimensions of all inputs that the file leaves open, fastest where batches are full.
fn shapes(request: &LoadRequest) -> Result<Vec<Shape>> {
    let LoadRequest { spec, batch, values, .. } = request;
    let model = request.model();
    let sides = model.side_inputs(spec, *batch, values)?;
    let shapes = model.inputs.iter().zip(&sides).map(|(input, side)| {
        let of_side = side.as_ref().map(|side| side.desc().dims.clone());
        let usual = of_side.clone().unwrap_or_else(|| with_rows(&spec.desc.dims, *batch));
        let largest = of_side.unwrap_or_else(|| with_rows(&spec.largest_dims(), *batch));
        let smallest = if ModelInfo::follows_batch(input) { with_rows(&usual, 1) } else { usual.clone() };
        let shape = Shape { input: input.name.clone(), smallest, usual, largest };
        // Of a picture the file may leave open what is known here.
        let is_open = !input.dims.is_static() || model.open_channels().is_some() && side.is_none();
        is_open.then_some(shape)
    });
    Ok(shapes.flatten().collect())
}

/// Of a batch of so many.
fn with_rows(dims: &Dims, rows: usize) -> Dims {
    let mut dims = dims.clone();
    dims.0[0] = rows as i64;
    dims
}

#[cfg(test)]
mod tests;
