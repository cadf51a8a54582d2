//! Models on an NVIDIA GPU, by TensorRT.
//!
//! An ONNX file becomes an engine first: found in the cache, or built, which takes seconds to minutes. Tensors go in and come
//! out in GPU memory, and nothing here waits for the GPU once the model is loaded.

use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lanes::Lanes;
use super::recordings::Recordings;
use super::{Backend, Event, Loading, Plan, check_rows};
use crate::cuda::driver::{Context, Fence, Stream};
use crate::error::{Error, Kind, Result};
use crate::memory::{DeviceBlock, DevicePool, Slots};
use crate::model::{self, Model};
use crate::tensor::{Dims, Tensor, TensorDesc, Tensors};
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
fn engine_of_onnx(plan: &Plan, library: &'static Library, cuda: &Context, loading: &Loading) -> Result<Arc<Engine>> {
    let Plan { options, spec, batch, .. } = plan;
    let model = plan.model();
    let onnx = Onnx::new(&model.path, model::contents(&model.path)?);
    let build = BuildOptions { shapes: shapes(model, spec, *batch)?, ..options.build.clone() };
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

/// The dimensions of all inputs that the file leaves open, fastest where batches are full.
fn shapes(model: &Model, spec: &InputSpec, batch: usize) -> Result<Vec<Shape>> {
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

fn with_rows(dims: &Dims, rows: usize) -> Dims {
    let mut dims = dims.clone();
    dims.0[0] = rows as i64;
    dims
}

pub struct TensorRt {
    /// Others may queue what is done with the outputs here.
    stream: Arc<Stream>,
    /// Passed when the last run is done, where that was queued for a caller's stream.
    elsewhere: Option<Fence>,
    /// Where runs are recorded, for what others queue meanwhile must not be.
    recorder: Stream,
    recorded: Option<Recordings>,
    /// Why a run could not be recorded, until somebody is told.
    refused: Option<Error>,
    context: engine::Context,
    pool: DevicePool,
    /// The tensors of a run, in the order of the pictures and the outputs.
    addresses: Vec<u64>,
    /// Which of the engine's inputs takes the pictures, and what each of them is.
    image: Io,
    wanted: TensorDesc,
    /// The fewest and the most pictures of a run, and how many the context was told.
    rows: RangeInclusive<usize>,
    told: usize,
    /// As large as a full batch makes them.
    outputs: Vec<(Io, TensorDesc)>,
    /// What goes in beside the pictures; the context has their addresses.
    side_inputs: Vec<(Io, Dims, DeviceBlock)>,
    /// Where pictures are brought together that do not lie so. One will do: the next batch is copied behind the run that
    /// reads this one.
    gathered: Option<DeviceBlock>,
}

impl TensorRt {
    /// Loads the model of a plan.
    pub fn open(plan: &Plan, library: &'static Library, cuda: &Context, loading: &Loading) -> Result<Box<dyn Backend>> {
        let _inside = Inside::enter();
        let engine = match &plan.described.engine {
            Some(engine) => engine.clone(),
            None => engine_of_onnx(plan, library, cuda, loading)?,
        };
        let what = format!("Cannot run {} with {}", plan.model().path.display(), library.name());
        let mut lanes = vec![TensorRt::lane(plan, &engine, cuda, loading, &what)?];
        while lanes.len() < loading.lanes {
            match TensorRt::lane(plan, &engine, cuda, loading, &what) {
                Ok(lane) => lanes.push(lane),
                // It runs all the same, only less fast.
                Err(error) => {
                    let runs = format!("{} runs of it are on the GPU side by side", lanes.len());
                    interfaces::log(interfaces::Level::Warning, &format!("{}; so {runs}", error.as_clause()));
                    break;
                }
            }
        }
        Ok(Lanes::of(lanes))
    }

    /// What runs one run at a time.
    fn lane(plan: &Plan, engine: &Arc<Engine>, cuda: &Context, loading: &Loading, what: &str) -> Result<Self> {
        let options = &plan.options;
        let mut backend = TensorRt::prepare(plan.model(), &plan.spec, plan.batch, engine.clone(), cuda)
            .map_err(|error| error.about(what))?;
        match backend.try_recording(options.graphs, loading) {
            Err(error) if options.graphs == Graphs::On => {
                Err(error.about(what).remedy("Set cuda-graph=auto, which then runs it without"))
            }
            // It runs all the same, only less fast.
            Err(error) => {
                interfaces::log(interfaces::Level::Warning, &format!("{what} as a CUDA graph: {}", error.as_clause()));
                Ok(backend)
            }
            Ok(()) => Ok(backend),
        }
    }

    fn prepare(model: &Model, spec: &InputSpec, batch: usize, engine: Arc<Engine>, cuda: &Context) -> Result<Self> {
        let stream = if batch == 1 { Stream::new(cuda) } else { Stream::of_batches(cuda) };
        let (stream, pool) = (Arc::new(stream?), DevicePool::new(cuda));
        let mut context = engine.context()?;
        let image = input(&engine, &spec.desc)?.clone();
        let full = with_rows(&spec.desc.dims, batch);
        let profile =
            engine.profile_for(&image, &full).ok_or_else(|| no_profile(&engine, &image, &spec.desc, batch))?;
        if !image.desc.dims.is_static() {
            context.use_profile(profile, &stream)?;
        }
        let fewest = engine.profile(&image, profile).and_then(|[least, ..]| usize::try_from(least[0]).ok());
        context.set_input(&image, &full)?;
        let mut side_inputs = Vec::new();
        for side in model.side_inputs(spec, batch)?.iter().flatten() {
            let io = input(&engine, side.desc())?;
            let bytes = side.bytes().expect("side inputs are made on the host");
            let mut block = pool.take(bytes.len())?;
            block.write(bytes)?;
            context.set_input(io, &side.desc().dims)?;
            // SAFETY: the block is large enough, and stays as long as the context.
            unsafe { context.set_address(io, block.address()) }?;
            side_inputs.push((io.clone(), side.desc().dims.clone(), block));
        }
        let outputs = engine.outputs().iter().map(|io| {
            let desc = TensorDesc { dims: context.output_dims(io)?, ..io.desc.clone() };
            check_rows(&desc, batch)?;
            Ok((io.clone(), desc))
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let mut backend = TensorRt {
            context,
            stream,
            elsewhere: None,
            recorder: Stream::new(cuda)?,
            recorded: None,
            refused: None,
            pool,
            addresses: Vec::new(),
            image,
            wanted: spec.desc.clone(),
            rows: fewest.unwrap_or(batch).clamp(1, batch)..=batch,
            told: batch,
            outputs,
            side_inputs,
            gathered: None,
        };
        // Kernels are loaded at their first use; and what fails should fail before the first frame.
        let zeros = backend.zeros(&Slots::new(cuda, backend.picture_bytes(), batch))?;
        backend.run_to_end(&zeros[..1])?;
        backend.run_to_end(&zeros)?;
        Ok(backend)
    }

    fn picture_bytes(&self) -> usize {
        self.wanted.bytes().expect("the specification has fixed dimensions")
    }

    /// A batch to try out the engine with.
    fn zeros(&self, slots: &Slots) -> Result<Vec<Arc<Tensors>>> {
        let picture = |_| {
            let mut block = slots.take()?;
            block.write(&vec![0; slots.bytes()])?;
            Ok(Arc::new(Tensors::new(vec![Tensor::on_device(self.wanted.clone(), block)], None, None)))
        };
        (0..*self.rows.end()).map(picture).collect()
    }

    /// Runs, and waits until it is done.
    fn run_to_end(&mut self, pictures: &[Arc<Tensors>]) -> Result<()> {
        self.run(pictures)?.into_iter().try_for_each(|outputs| outputs.into_ready().map(drop))
    }

    /// Records a run, and runs what was recorded: what cannot be recorded shows now, and not at some frame. Recording takes
    /// milliseconds, so where it is known where pictures will lie, that is done for as many batches as are mostly under way.
    fn try_recording(&mut self, graphs: Graphs, loading: &Loading) -> Result<()> {
        if graphs == Graphs::Off {
            return Ok(());
        }
        self.recorded = Some(Recordings::default());
        let tried = self.record_places(loading);
        if tried.is_err() {
            self.recorded = None;
        }
        tried
    }

    fn record_places(&mut self, loading: &Loading) -> Result<()> {
        let batch = *self.rows.end();
        let own = Slots::new(self.stream.context(), self.picture_bytes(), batch);
        let zeros = self.zeros(&own)?;
        self.run_recorded(&zeros)?;
        // Batches differ in their rows, and soon come to lie where others lay.
        if batch == 1
            && let Some(recorded) = &mut self.recorded
        {
            let memory = zeros[0][0].device().expect("it was made there");
            recorded.share(&self.addresses, memory.again());
            if loading.lanes > 1 {
                recorded.record_no_more();
                return Ok(());
            }
        }
        let batches = if batch == 1 { 4 } else { 2 };
        let zeros = loading.slots.into_iter().flat_map(|slots| (0..batches).map(|_| self.zeros(slots)));
        let zeros = zeros.collect::<Result<Vec<_>>>()?;
        zeros.iter().try_for_each(|batch| self.run_recorded(batch))
    }

    /// The first run is seen, the second one recorded, the third one launched.
    fn run_recorded(&mut self, pictures: &[Arc<Tensors>]) -> Result<()> {
        (0..3).try_for_each(|_| {
            self.run_to_end(pictures)?;
            self.refused.take().map_or(Ok(()), Err)
        })
    }

    /// Prepares for runs on that many pictures.
    fn tell(&mut self, rows: usize) -> Result<()> {
        if self.told != rows {
            // What was recorded may read dimensions that TensorRT keeps on the GPU, and is about to change.
            self.recorded = self.recorded.take().map(|_| Recordings::after_a_change());
            self.context.set_input(&self.image, &with_rows(&self.wanted.dims, rows))?;
            for (io, dims, _) in &self.side_inputs {
                self.context.set_input(io, &with_rows(dims, rows))?;
            }
            self.told = rows;
        }
        Ok(())
    }

    /// Queues a run on the tensors of `addresses`; `blocks` are those of the outputs, if they are ours.
    ///
    /// # Safety
    /// They have the sizes that they should, and stay until the run is done.
    unsafe fn start(&mut self, blocks: &[DeviceBlock]) -> Result<()> {
        self.elsewhere.take().map_or(Ok(()), |last| self.stream.wait(&last))?;
        // SAFETY: what was recorded works on these addresses; the rest says the caller.
        match self.recorded.as_mut().and_then(|runs| runs.next(&self.addresses)) {
            Some(graph) => unsafe { graph.launch(&self.stream) },
            None => unsafe { self.enqueue(blocks) },
        }
    }

    /// The same for a caller's stream, behind and before whatever else is there. A recorded run is queued right on it: two events
    /// and two waits between streams are microseconds.
    ///
    /// # Safety
    /// As for [`TensorRt::start`]; the stream is of our context, and alive.
    unsafe fn start_on(&mut self, callers: *mut c_void) -> Result<Fence> {
        let TensorRt { stream, elsewhere, recorded, addresses, .. } = self;
        // Runs share the memory that they work in.
        let last = elsewhere.clone().map_or_else(|| stream.record(), Ok)?;
        // SAFETY: as above.
        unsafe {
            stream.context().hold(callers, &last)?;
            match recorded.as_mut().and_then(|runs| runs.next(addresses)) {
                Some(graph) => graph.launch_on(callers)?,
                None => {
                    stream.wait_for(callers)?;
                    self.enqueue(&[])?;
                    self.stream.context().hold(callers, &self.stream.record()?)?;
                }
            }
            let done = self.stream.context().fence_on(callers)?;
            self.elsewhere = Some(done.clone());
            Ok(done)
        }
    }

    /// Queues a run that has no recording, and makes one where that is due.
    ///
    /// # Safety
    /// As for [`TensorRt::start`].
    unsafe fn enqueue(&mut self, blocks: &[DeviceBlock]) -> Result<()> {
        let TensorRt { stream, recorder, recorded, refused, context, addresses, image, outputs, .. } = self;
        if let Some(error) = refused.take() {
            let what = format!("Runs are no longer recorded as CUDA graphs: {}", error.as_clause());
            interfaces::log(interfaces::Level::Warning, &what);
        }
        // SAFETY: `prepare` gave all inputs their dimensions; the rest says the caller.
        unsafe {
            let to_record = recorded.as_mut().is_some_and(|runs| runs.note(addresses, blocks));
            if !to_record && let Some(done) = recorded.as_mut().and_then(|runs| runs.launch_common(addresses, stream)) {
                return done;
            }
            let tensors = [&*image].into_iter().chain(outputs.iter().map(|(io, _)| io));
            tensors.zip(&*addresses).try_for_each(|(io, &address)| context.set_address(io, address))?;
            context.enqueue(stream)?;
            let Some(runs) = recorded.as_mut().filter(|_| to_record) else { return Ok(()) };
            if let Err(error) = runs.record(addresses, context, recorder) {
                // This run is queued all the same, and so can the next ones be.
                *recorded = None;
                *refused = Some(error);
            }
            Ok(())
        }
    }

    /// The memory of a picture that can be run on.
    fn memory<'a>(&self, picture: &'a Tensor) -> Result<&'a DeviceBlock> {
        let device = self.stream.context().device();
        let Some(memory) = picture.device().filter(|memory| memory.context().device() == device) else {
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
        Ok(memory)
    }

    /// Where the pictures lie as one batch of so many rows, and the row of each. They are copied there unless they are parts of
    /// one memory, in whatever order, as those from [`Slots`](crate::memory::Slots) mostly are.
    fn bring_together(&mut self, pictures: &[&DeviceBlock], rows: usize) -> Result<(u64, Vec<usize>)> {
        let size = self.picture_bytes();
        let first = pictures.iter().map(|memory| memory.address()).min().unwrap_or_default();
        let row = |memory: &&DeviceBlock| (memory.address() - first) as usize / size;
        let mut seen = vec![false; rows];
        let lie_together = pictures.len() == rows
            && first.is_multiple_of(Slots::ALIGN as u64)
            && pictures[0].context() == self.stream.context()
            && pictures.iter().all(|memory| {
                let row = row(memory);
                memory.is_of_one_with(pictures[0])
                    && memory.address() == first + (row * size) as u64
                    && seen.get_mut(row).is_some_and(|seen| !std::mem::replace(seen, true))
            });
        if lie_together {
            return Ok((first, pictures.iter().map(row).collect()));
        }
        let block = match &self.gathered {
            Some(block) => block,
            None => self.gathered.insert(self.pool.take(size * self.rows.end())?),
        };
        for (row, memory) in pictures.iter().enumerate() {
            let from = (memory.context(), memory.address());
            // SAFETY: both have the size of a picture; they stay until the outputs are dropped, and with `self`.
            unsafe { self.stream.copy(from, block.address() + (row * size) as u64, size) }?;
        }
        Ok((block.address(), (0..pictures.len()).collect()))
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

fn no_profile(engine: &Engine, image: &Io, wanted: &TensorDesc, batch: usize) -> Error {
    let ranges: Vec<String> = (0..engine.profiles())
        .filter_map(|profile| engine.profile(image, profile))
        .map(|[least, _, most]| format!("{least} to {most}"))
        .collect();
    let wanted = TensorDesc { dims: with_rows(&wanted.dims, batch), ..wanted.clone() };
    Error::new(Kind::Settings, format!("The engine does not take an input of {wanted}"))
        .cause(format!("it was built for {}", ranges.join(", and ")))
        .remedy("Set batch-size and input-size to what is in that range, or build the engine for it")
}

impl Drop for TensorRt {
    fn drop(&mut self) {
        // Runs use what is about to be freed.
        let _ = self.elsewhere.take().map_or(Ok(()), |last| last.wait());
        let _ = self.stream.synchronize();
    }
}

impl Backend for TensorRt {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let memories = pictures.iter().map(|picture| self.memory(&picture[0])).collect::<Result<Vec<_>>>()?;
        let rows = pictures.len().max(*self.rows.start());
        self.tell(rows)?;
        pictures.iter().filter_map(|picture| picture.ready()).try_for_each(|ready| self.stream.wait(ready))?;
        let begin = self.stream.begin_timing();
        let (address, row_of) = self.bring_together(&memories, rows)?;
        let one = |(_, full): &(Io, TensorDesc)| match *self.rows.end() {
            1 => full.clone(),
            _ => TensorDesc { dims: with_rows(&full.dims, rows), ..full.clone() },
        };
        let descs: Vec<TensorDesc> = self.outputs.iter().map(one).collect();
        let take = |desc: &TensorDesc| self.pool.take(desc.bytes().expect("checked by output_dims"));
        let blocks = match self.recorded.as_mut().and_then(|recorded| recorded.outputs(address)) {
            Some(blocks) => blocks,
            None => descs.iter().map(take).collect::<Result<_>>()?,
        };
        self.addresses.clear();
        self.addresses.push(address);
        self.addresses.extend(blocks.iter().map(DeviceBlock::address));
        // SAFETY: the pictures' sizes were just checked, and they stay until the outputs are dropped, which keep them; their
        // blocks are large enough, and return to the pool when they are dropped, after their fence.
        if let Err(error) = unsafe { self.start(&blocks) } {
            let _ = self.stream.synchronize(); // nobody waits for the copies
            return Err(error);
        }
        self.stream.end_timing(begin);
        let ready = self.stream.record()?;
        let tensors: Vec<Tensor> =
            descs.into_iter().zip(blocks).map(|(desc, block)| Tensor::on_device(desc, block)).collect();
        if *self.rows.end() == 1 {
            let outputs = Tensors::new(tensors, Some(ready), Some(pictures[0].clone()));
            return Ok(vec![outputs.on(self.stream.clone())]);
        }
        // What is done with the pictures of a batch is done side by side, so not here.
        let frame = |(picture, &row): (&Arc<Tensors>, &usize)| {
            let rows = tensors.iter().map(|tensor| tensor.row(row)).collect();
            Tensors::new(rows, Some(ready.clone()), Some(picture.clone()))
        };
        Ok(pictures.iter().zip(&row_of).map(frame).collect())
    }

    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], stream: Option<*mut c_void>) -> Result<Fence> {
        self.tell(1)?;
        self.addresses.clear();
        self.addresses.push(picture);
        self.addresses.extend_from_slice(outputs);
        // SAFETY: as the caller says.
        unsafe {
            match stream {
                Some(stream) => self.start_on(stream),
                None => self.start(&[]).and_then(|()| self.stream.record()),
            }
        }
    }

    fn working_bytes(&self) -> u64 {
        let tensors = self.pool.bytes() + self.recorded.as_ref().map_or(0, Recordings::bytes);
        self.context.engine().device_memory() + tensors as u64
    }
}
