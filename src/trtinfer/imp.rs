use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::prelude::*;

use super::CudaGraph;
use super::settings::Settings;
use super::sharing::{self, SharedModel};
use crate::backends::batcher::{Batcher, Counts, Usage};
use crate::backends::loader::ModelHandle;
use crate::backends::tensorrt::interfaces;
use crate::backends::{Backend, Interrupted, LoadContext, LoadEvent, LoadRequest};
use crate::core::counters::{Span, Stats};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{Dims, Tensor};
use crate::gst::batch_pool;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{Properties, VideoFilter, video_filter};
use crate::gst::meta::gst_tensor::PublishedOutputs;
use crate::gst::meta::tensor::{Payload, TensorMeta};
use crate::gst::report::{Report, error_message};
use crate::gst::stats;
use crate::gst::video;
use crate::image::transform::{InputSpec, parse_input_size};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trtinfer", gst::DebugColorFlags::empty(), Some("Models on tensors")));

/// TensorRT's own log.
static TENSORRT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trt-log", gst::DebugColorFlags::empty(), Some("What TensorRT says")));

fn log(level: interfaces::Level, line: &str) {
    match level {
        interfaces::Level::Error => gst::error!(TENSORRT, "{line}"),
        interfaces::Level::Warning => gst::warning!(TENSORRT, "{line}"),
        interfaces::Level::Info => gst::info!(TENSORRT, "{line}"),
        interfaces::Level::Verbose => gst::log!(TENSORRT, "{line}"),
    }
}

/// How long stop() waits for a run that is not finished. It is far more than any detector takes for a batch.
const RUN_LIMIT: Duration = Duration::from_secs(5);

/// What start() read; does not change until stop(), save that another CUDA context takes the place of this one. Each frame
/// takes a copy.
#[derive(Clone)]
struct Session {
    model: Arc<SharedModel>,
    seat: Arc<ModelHandle>,
    /// Whether this element loads the model, and tells of it.
    loads: bool,
    /// Whether it still has to: for tensors of a size that only frames tell.
    waits: bool,
    /// What frames become, as far as is known yet.
    tensor: Arc<InputSpec>,
    /// How outputs are published, where `tensor-meta` asks for it.
    published: Option<Arc<PublishedOutputs>>,
}

/// What the streaming thread works with.
#[derive(Default)]
struct Running {
    batcher: Option<Arc<Batcher>>,
    /// Frames since the last one that was inferred.
    passed: Option<u32>,
    /// Whether somebody was told that batches do not fill.
    told_of_batches: bool,
    /// Whether outputs of this element are read by an element behind it.
    usage: Arc<Usage>,
    /// Whether somebody was told that tensors are copied from one CUDA context to another.
    told_of_copies: bool,
}

/// Lock order: running, then any one of the others. Only `running` is held while a model runs.
#[derive(Default)]
pub struct TrtInfer {
    settings: Mutex<Settings>,
    cuda: CudaContextSlot,
    session: Mutex<Option<Session>>,
    running: Mutex<Running>,
    stats: Stats,
}

impl TrtInfer {
    fn session(&self) -> Option<Session> {
        self.session.lock().unwrap().clone()
    }

    /// Reads the model's description and decides where it runs.
    fn open_session(&self) -> Result<Session> {
        let settings = self.settings.lock().unwrap().clone();
        let path = settings.model_file.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::Settings, "trtinfer has no model")
                .remedy("Set model-file to an ONNX file or a TensorRT engine of a detector")
        })?;
        let size = parse_input_size(&settings.input_size)?;
        let open = || {
            let cuda = || self.cuda.ensure(&*self.obj(), settings.cuda_device_id);
            let batch = settings.batch_size as usize;
            let plan = LoadRequest::new(path, settings.backend, size, batch, settings.tensorrt(), cuda)?;
            // Frames of several streams are batched, so their tensors have one size whatever the frames have.
            Ok(if settings.shared_model.is_empty() { plan } else { plan.with_one_size() })
        };
        let (model, seat, loads) = sharing::join(&settings, open)?;
        self.share_context(&model, &settings);
        let (waits, tensor) = (model.plan.waits_for_frames(), Arc::new(model.plan.spec.clone()));
        let published = if settings.tensor_meta {
            let (_, height, width) = tensor.chw();
            Some(Arc::new(PublishedOutputs::new(model.plan.model(), (width as u32, height as u32))?))
        } else {
            None
        };
        Ok(Session { model, seat: Arc::new(seat), loads, waits, tensor, published })
    }

    /// Says which properties have no effect on the CPU; one that asks for an error where it cannot be had is an error.
    fn refuse_what_needs_tensorrt(&self) -> Result<()> {
        let settings = self.settings.lock().unwrap().clone();
        let without_effect = settings.only_for_tensorrt();
        if without_effect.is_empty() {
            return Ok(());
        }
        let names = without_effect.join(", ");
        if settings.cuda_graph == CudaGraph::On {
            return Err(Error::new(ErrorKind::Settings, "cuda-graph=on needs TensorRT, and the model runs on the CPU")
                .remedy("Set cuda-graph=auto, or backend=tensorrt to see why TensorRT does not run"));
        }
        let one = without_effect.len() == 1;
        let (has, belongs) = if one { ("has", "belongs") } else { ("have", "belong") };
        let warning = Error::new(ErrorKind::Settings, format!("{names} {has} no effect"))
            .cause(format!("the model runs on the CPU, and {} {belongs} to TensorRT", if one { "it" } else { "they" }))
            .remedy("Set backend=tensorrt to see why TensorRT does not run, or leave what is named here unset");
        self.obj().post_warning(&warning);
        Ok(())
    }

    /// Where nobody has a CUDA context yet, that of a shared model will do for this pipeline too.
    fn share_context(&self, model: &SharedModel, settings: &Settings) {
        if let Some(context) = &model.plan.cuda {
            self.cuda.offer(context, settings.cuda_device_id);
        }
    }

    /// Loads the model in a thread of its own, so that the application stays responsive. It is not one of GStreamer's pool, which
    /// `gst_deinit()` waits for: a model may have constants that take for ever to compute.
    fn load(&self, Session { model, .. }: Session) {
        let batch_timeout = Duration::from_micros(self.settings.lock().unwrap().batch_timeout.into());
        let (element, opening) = (self.obj().downgrade(), model.opening.clone());
        let load = move || {
            let SharedModel { plan, opening, slots, lanes } = &*model;
            // Only for a moment each, lest a load without end keeps the element.
            let tell_with = |tell: &dyn Fn(&super::TrtInfer)| drop(element.upgrade().inspect(tell));
            let name = plan.model().path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let progress = |kind, text: &str| {
                tell_with(&|element| {
                    let message = gst::message::Progress::builder(kind, "model-load", text).src(element).build();
                    let _ = element.post_message(message);
                });
            };
            progress(gst::ProgressType::Start, &format!("Loading {name} for the {} backend", plan.runner.name()));
            let begun = Instant::now();
            let told = Mutex::new(String::new());
            let tell = |event: LoadEvent<'_>| match event {
                LoadEvent::Warning(warning) => tell_with(&|element| element.post_warning(&warning)),
                LoadEvent::Progress(what, percent) => {
                    let percent = percent.map_or(String::new(), |percent| format!(" ({percent} %)"));
                    let text = format!("Loading {name}: {what}{percent}");
                    // TensorRT steps many times within a percent.
                    if *told.lock().unwrap() != text {
                        progress(gst::ProgressType::Continue, &text);
                        *told.lock().unwrap() = text;
                    }
                }
            };
            let loading =
                LoadContext { tell: &tell, cancelled: opening.cancelled(), slots: slots.as_ref(), lanes: *lanes };
            let outcome =
                plan.load(&loading).and_then(|model| Batcher::new(model, plan.batch, batch_timeout).map(Arc::new));
            if opening.is_cancelled() {
                progress(gst::ProgressType::Canceled, &format!("Loading {name} was cancelled"));
                return;
            }
            match &outcome {
                Ok(_) => progress(
                    gst::ProgressType::Complete,
                    &format!("Loaded {name} in {} ms", begun.elapsed().as_millis()),
                ),
                Err(error) => {
                    progress(gst::ProgressType::Error, &format!("Loading {name} failed"));
                    tell_with(&|element| element.post_error(error));
                }
            }
            opening.finish(outcome);
        };
        if let Err(error) = thread::Builder::new().name("trt-load".into()).spawn(load) {
            let error = Error::new(ErrorKind::Library, "There is no thread to load the model in").cause(error);
            self.obj().post_error(&error);
            opening.finish(Err(error));
        }
    }

    /// Lets go of a model of which a run may never end.
    fn abandon(&self, session: &Session, batcher: &Batcher) {
        if batcher.is_idle_within(session.seat.stream(), RUN_LIMIT) {
            return;
        }
        let name = session.model.plan.model().path.display().to_string();
        let warning = Error::new(ErrorKind::Run, format!("{name} has not finished its run"))
            .cause(format!(
                "it was given {} s after the stream was stopped, and there is no way to end it; its thread and its memory stay in \
                 use until it ends by itself or the process does",
                RUN_LIMIT.as_secs()
            ))
            .remedy("A model with a loop may run for ever: check the model");
        self.obj().post_warning(&warning);
    }

    /// Where the tensor lies in another CUDA context than the model, the model is loaded there: that context is the
    /// decoder's, and the others must follow. To a model that others use too, the tensor is copied.
    fn follow(&self, tensor: &Tensor, running: &mut Running) -> Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let (Some(have), Some(memory)) = (&session.model.plan.cuda, tensor.device()) else { return Ok(()) };
        let settings = self.settings.lock().unwrap().clone();
        if have == memory.context() {
            return Ok(());
        }
        if !settings.shared_model.is_empty() {
            // From one GPU to another they are not, and that is an error of its own.
            let copied = have.device() == memory.context().device();
            if copied && !std::mem::replace(&mut running.told_of_copies, true) {
                let copied = Error::new(ErrorKind::Settings, "Frames are in another CUDA context than the shared model")
                    .cause("each tensor is copied, and the GPU works for one context at a time, which is slow")
                    .remedy(
                        "Give all pipelines one GstCudaContext, with gst_element_set_context() and the context that the first \
                         decoder posts as have-context (gst.cuda.context)",
                    );
                self.obj().post_warning(&copied);
            }
            return Ok(());
        }
        self.cuda.follow(memory.context(), settings.cuda_device_id)?;
        gst::info!(CAT, imp = self, "loading the model again, in the context of its tensors");
        session.seat.leave();
        running.batcher = None;
        let model = Arc::new(SharedModel::new(session.model.plan.in_context(memory.context())?));
        let seat = ModelHandle::take(&model.opening).expect("nobody has left it");
        let session = Session { model, seat: Arc::new(seat), ..session };
        *self.session.lock().unwrap() = Some(session.clone());
        self.load(session);
        Ok(())
    }

    /// Whether outputs were thrown away, and none was ever read.
    fn is_unread(&self) -> bool {
        !self.settings.lock().unwrap().tensor_meta && self.running.lock().unwrap().usage.is_none()
    }

    /// Loads the model for tensors of that size, where that was left to the frames.
    fn fit(&self, dims: &Dims, running: &mut Running) {
        let mut current = self.session.lock().unwrap();
        let Some(session) = current.as_mut().filter(|session| session.model.plan.waits_for_frames()) else { return };
        let plan = &session.model.plan;
        if session.seat.is_left() || !session.waits && plan.spec.desc.dims == *dims {
            return;
        }
        let mut open = plan.model().image_input().dims.clone();
        open.0[0] = 1;
        if !dims.fits(&open) {
            return; // the first frame brings an error
        }
        gst::info!(CAT, imp = self, "loading the model for {dims}");
        let mut spec = plan.spec.clone();
        spec.desc.dims = dims.clone();
        let model = Arc::new(SharedModel::new(plan.for_tensor(spec)));
        let seat = ModelHandle::take(&model.opening).expect("nobody has left it");
        session.seat.leave();
        running.batcher = None;
        *session = Session { model, seat: Arc::new(seat), loads: true, waits: false, ..session.clone() };
        let session = session.clone();
        drop(current);
        self.load(session);
    }

    fn infer(&self, buffer: &mut gst::BufferRef) -> std::result::Result<(), Interrupted> {
        let mut running = self.running.lock().unwrap();
        // It stays on the buffer until another takes its place: the GPU may still read the frame.
        let Some(payload) = TensorMeta::input(buffer) else {
            let is_inferred = TensorMeta::outputs(buffer).is_some();
            return Err(if is_inferred { inferred_before() } else { missing_tensor() }.into());
        };
        let Payload::Input { tensors, origin, letterbox, recipe, original } = &*payload else {
            unreachable!("it is an input")
        };
        let tensor = &tensors[0];

        self.fit(&tensor.desc().dims, &mut running);
        self.follow(tensor, &mut running)?;
        let Session { model, seat, published, .. } = self.session().ok_or(Interrupted::Flushing)?;
        let (interval, measure) = {
            let settings = self.settings.lock().unwrap();
            (settings.interval, settings.measure)
        };
        let passed = running.passed.map_or(interval, |passed| passed + 1);
        if passed < interval {
            running.passed = Some(passed);
            self.stats.skip();
            TensorMeta::set(buffer, Arc::new(Payload::Skipped { input: tensors.clone() }));
            return Ok(());
        }
        running.passed = Some(0);

        let wanted = model.plan.model().image_input();
        let (mut dims, desc) = (wanted.dims.clone(), tensor.desc());
        dims.0[0] = 1;
        if desc.dtype != wanted.dtype || !desc.dims.fits(&dims) {
            let error = Error::new(ErrorKind::WrongType, "The tensor does not fit the model")
                .cause(format!("it is {desc}, and the model wants {wanted}"))
                .remedy("Leave the tensor-… properties of trtpreprocess unset");
            return Err(error.into());
        }

        let batcher = match &running.batcher {
            Some(batcher) => batcher.clone(),
            None => running.batcher.insert(seat.wait()?).clone(),
        };
        if measure {
            batcher.measure();
        }
        let stage = Span::begin(false); // batches are measured, by whichever thread they are run
        let outputs = batcher.join(seat.stream(), tensors.clone(), &running.usage)?;
        if let Some(published) = &published {
            published.attach(buffer, outputs.wait()?)?;
        }
        let took = self.stats.add(stage, 0);
        gst::trace!(CAT, imp = self, "inferred in {took:?}");
        if !running.told_of_batches && starves(&batcher.counts()) {
            running.told_of_batches = true;
            let starved = Error::new(ErrorKind::Settings, "Batches are run with one frame each, after batch-timeout")
                .cause("frames come too slowly, or too few at once")
                .remedy(
                    "Put a queue behind trtinfer that has room for batch-size frames (max-size-buffers, with max-size-bytes=0 \
                     max-size-time=0), or set a longer batch-timeout",
                );
            self.obj().post_warning(&starved);
        }

        let (origin, letterbox, recipe) = (*origin, *letterbox, *recipe);
        let (model, original) = (model.plan.model().clone(), original.clone());
        TensorMeta::set(buffer, Arc::new(Payload::Output { outputs, origin, letterbox, recipe, model, original }));
        Ok(())
    }

    fn prepare_state(&self, transition: gst::StateChange) {
        match transition {
            gst::StateChange::NullToReady => {
                // Decoders ask for a context now.
                let settings = self.settings.lock().unwrap().clone();
                if let Some(model) = sharing::find(&settings) {
                    self.share_context(&model, &settings);
                }
            }
            gst::StateChange::PausedToReady => {
                // The pads are deactivated once the streaming thread has returned, so it must not go on waiting for the model.
                // Locked, lest another takes its place meanwhile.
                if let Some(session) = &*self.session.lock().unwrap() {
                    session.seat.leave();
                }
            }
            _ => {}
        }
    }
}

/// Whether batches only ever come to one frame.
fn starves(counts: &Counts) -> bool {
    counts.late >= 32 && counts.late == counts.batches && counts.frames == counts.batches
}

fn missing_tensor() -> Error {
    Error::new(ErrorKind::WrongType, "trtinfer got a frame without a tensor")
        .cause("trtpreprocess is missing before it, or an element between them, such as compositor, makes new frames without tensors")
        .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …; put elements that make new frames before trtpreprocess or behind trtnms")
}

fn inferred_before() -> Error {
    Error::new(ErrorKind::WrongType, "trtinfer got a frame that another trtinfer has already handled")
        .cause("there is no trtpreprocess between the two")
        .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …, once each for a model")
}

impl Session {
    /// What was read from the file, for applications and for `gst-launch-1.0 -v`.
    fn info(&self) -> gst::Structure {
        let LoadRequest { runner, .. } = &self.model.plan;
        let model = self.model.plan.model();
        let descs =
            |descs: &[crate::core::tensor::TensorDesc]| gst::Array::new(descs.iter().map(|desc| desc.to_string()));
        let mut metadata = gst::Structure::new_empty("metadata");
        for (key, value) in model.metadata.iter().filter(|(_, value)| value.len() < 4096) {
            metadata.set(key.replace(|c: char| !c.is_ascii_alphanumeric(), "-"), value);
        }
        gst::Structure::builder("model-info")
            .field("file", model.path.display().to_string())
            .field("producer", &model.producer)
            .field("backend", runner.name())
            .field("task", model.task.as_deref())
            .field("stride", model.stride.unwrap_or(0))
            .field("labels", gst::Array::new(&model.labels))
            .field("inputs", descs(&model.inputs))
            .field("outputs", descs(&model.outputs))
            .field("tensor", self.tensor.to_string())
            .field("metadata", metadata)
            .build()
    }
}

impl Properties for TrtInfer {
    fn list() -> Vec<glib::ParamSpec> {
        let read_only = [
            glib::ParamSpecBoxed::builder::<gst::Structure>("model-info")
                .nick("Model information")
                .blurb("What was read from the model file; NULL until the element has started")
                .read_only()
                .build(),
            stats::property(
                "Frames inferred and skipped, and what inference costs: time on the host, waits for the GPU, bytes copied, use of the pool",
            ),
        ];
        super::settings::properties().into_iter().chain(read_only).collect()
    }

    fn set(&self, name: &str, value: &glib::Value) {
        self.settings.lock().unwrap().set(name, value);
    }

    fn get(&self, name: &str) -> glib::Value {
        match name {
            "model-info" => self.session().map(|session| session.info()).to_value(),
            "stats" => {
                let totals = self.stats.read();
                let (inferred, skipped) = (totals.done, totals.skipped);
                let batcher = self.session().and_then(|session| session.seat.batcher());
                let counts = batcher.as_ref().map(|batcher| batcher.counts());
                let Counts { batches, frames, late } = counts.unwrap_or_default();
                let totals = match batcher {
                    Some(batcher) => totals.with_gpu_of(batcher.stats().read()),
                    None => totals,
                };
                let counts = [
                    ("frames", inferred + skipped),
                    ("inferred", inferred),
                    ("skipped", skipped),
                    ("batches", batches),
                    ("batched", frames),
                    ("batches-late", late),
                ];
                stats::structure(&totals, counts).to_value()
            }
            name => self.settings.lock().unwrap().get(name),
        }
    }
}

video_filter! {
    TrtInfer: "GstTrtInfer",
    name: "Object detection: inference (TensorRT or CPU)",
    classification: "Filter/Analyzer/Video",
    description: "Runs a model on the tensor of each frame",
    before_state_change: prepare_state,
}

impl BaseTransformImpl for TrtInfer {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        interfaces::set_hook(log);
        let session = self.open_session().map_err(|error| error_message(&error))?;
        gst::info!(CAT, imp = self, "{}", session.info());
        let plan = &session.model.plan;
        if let Some(reason) = plan.reason.as_ref().filter(|_| session.loads) {
            let backend = plan.runner.name().to_uppercase();
            self.obj()
                .post_info(&Error::new(ErrorKind::Library, format!("Running the model on the {backend}: {reason}")));
        }
        if matches!(plan.runner, Backend::Cpu) {
            self.refuse_what_needs_tensorrt().map_err(|error| error_message(&error))?;
        }
        if let Some(warning) = session.published.as_ref().and_then(|published| published.warning()) {
            self.obj().post_warning(&warning);
        }
        self.stats.reset();
        *self.session.lock().unwrap() = Some(session.clone());
        if session.loads && !session.waits {
            self.load(session);
        }
        // Upstream may have negotiated with another model, of another input size.
        self.obj().reconfigure_sink();
        Ok(())
    }

    /// Frames of another size may have tensors of another size.
    fn set_caps(&self, incaps: &Caps, _outcaps: &Caps) -> std::result::Result<(), gst::LoggableError> {
        let tensor = video::tensor_of(incaps).map_err(|error| gst::loggable_error!(CAT, "{error}"))?;
        if let Some(tensor) = tensor {
            self.fit(&tensor.desc.dims, &mut self.running.lock().unwrap());
            if let Some(session) = &mut *self.session.lock().unwrap() {
                session.tensor = Arc::new(tensor);
            }
        }
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        if let Some(session) = self.session.lock().unwrap().take() {
            session.seat.leave();
            if let Some(batcher) = &running.batcher {
                self.abandon(&session, batcher);
            }
        }
        self.cuda.clear();
        self.obj().forget_errors();
        Ok(())
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        let session = self.session();
        let slots = session.as_ref().and_then(|session| session.model.slots.as_ref());
        if let Some(answered) = batch_pool::answer(query, slots) {
            return answered;
        }
        let answered = self.answer(direction, query);
        if let gst::QueryViewMut::Latency(latency) = query.view_mut()
            && answered
            && session.is_some_and(|session| session.model.plan.batch > 1)
        {
            // A frame waits that long for others, if need be.
            let waits = gst::ClockTime::from_useconds(self.settings.lock().unwrap().batch_timeout.into());
            let (live, min, max) = latency.result();
            latency.set(live, min + waits, max.map(|max| max + waits));
        }
        answered
    }

    /// The sink asks for the model's tensor by name, and the source names the outputs that it publishes; the picture's caps pass.
    fn transform_caps(&self, direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        let mut caps = video::without_tensor(&video::usable(caps));
        if self.session().is_some_and(|session| matches!(session.model.plan.runner, Backend::Cpu)) {
            caps = video::in_system_memory(&caps);
        }
        let caps = match self.session() {
            Some(Session { model, .. }) if direction == PadDirection::Src => {
                let plan = &model.plan;
                video::with_tensor(&caps, filter, |size| {
                    size.map_or_else(|| plan.spec.clone(), |size| plan.spec_for(size))
                })
            }
            Some(Session { published: Some(published), .. }) => published.describe(&caps),
            _ => caps,
        };
        Some(video::filtered(caps, filter))
    }

    /// Caps without a tensor come from a line without trtpreprocess. They are let in, because the error that their first
    /// frame brings says so, and a refusal here would only be "not negotiated".
    fn accept_caps(&self, direction: PadDirection, caps: &Caps) -> bool {
        match direction {
            PadDirection::Sink => video::usable(&video::template_caps()).can_intersect(&video::without_tensor(caps)),
            _ => self.parent_accept_caps(direction, caps),
        }
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        if let Some(session) = self.session() {
            match event.view() {
                gst::EventView::FlushStart(_) => session.seat.set_flushing(true),
                gst::EventView::FlushStop(_) => session.seat.set_flushing(false),
                // Nothing comes that would fill the batch.
                gst::EventView::Eos(_) | gst::EventView::Caps(_) | gst::EventView::Gap(_) => {
                    if matches!(event.view(), gst::EventView::Eos(_)) && self.is_unread() {
                        let unread = Error::new(ErrorKind::WrongType, "No element has read what the model found")
                            .cause("trtnms is missing behind trtinfer in the launch line")
                            .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …");
                        self.obj().post_warning(&unread);
                    }
                    if let Some(batcher) = session.seat.batcher() {
                        batcher.finish(session.seat.stream());
                    }
                }
                _ => {}
            }
        }
        self.parent_sink_event(event)
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        match self.infer(buffer) {
            Ok(()) => Ok(gst::FlowSuccess::Ok),
            Err(Interrupted::Flushing) => Err(gst::FlowError::Flushing),
            Err(Interrupted::Failed(error)) => {
                self.obj().post_error(&error);
                Err(gst::FlowError::Error)
            }
        }
    }
}
