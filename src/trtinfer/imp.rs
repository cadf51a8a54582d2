// SPDX-License-Identifier: MPL-2.0
mod frames;
mod opening;
mod takeover;
mod values;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::{Batcher, CancelToken, Counts, PendingOutput, RunProbe, Usage};
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;

use super::auto_interval::AutoInterval;
use super::life::ModelLife;
use super::messages;
use super::model::SharedModel;
use super::qos::Qos;
use super::settings::{PROPERTIES, Settings};
use super::sharing;
use super::started::StartedModel;
use super::trial::INTERRUPT_LIMIT;
use crate::gst::batch_pool;
use crate::gst::caps;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{Properties, VideoFilter, video_filter};
use crate::gst::log;
use crate::gst::memory_wait::MemoryWait;
use crate::gst::meta::tensor::{ModelInputs, Payload, TensorMeta};
use crate::gst::missing_frames::MissingFrames;
use crate::gst::model_query;
use crate::gst::report::{Report, error_message};
use crate::gst::stats;

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trtinfer", gst::DebugColorFlags::empty(), Some("Models on tensors")));

/// How long stop() waits for a run that is not finished. It is far more than any detector takes for a batch.
const RUN_LIMIT: Duration = Duration::from_secs(5);

/// What the streaming thread works with.
#[derive(Default)]
pub struct Running {
    pub batcher: Option<Arc<Batcher>>,
    /// Frames since the last one that was inferred; none was, at first and where another part of the stream begins.
    passed: Option<u32>,
    /// Frames that were dropped before this element since then.
    lost: u32,
    missing: MissingFrames,
    /// Whether this model was given a frame of this stream.
    has_seen: bool,
    auto: AutoInterval,
    /// Of the last frame that was inferred.
    run: Option<RunProbe>,
    /// Whether the warning that batches do not fill was posted.
    pub warned_starved: bool,
    /// Whether outputs of this element are read by an element behind it.
    usage: Arc<Usage>,
    /// Whether the warning that tensors are copied from one CUDA context to another was posted.
    warned_copied: bool,
}

/// Lock order: `running`, then `life` or `settings`, one at a time and each for a moment. `running` is of the streaming thread: it
/// alone is held while a model runs.
#[derive(Default)]
pub struct TrtInfer {
    settings: Mutex<Settings>,
    cuda: CudaContextSlot,
    pub(super) life: ModelLife<StartedModel>,
    running: Mutex<Running>,
    /// Ends the wait for outputs that are published, and for memory.
    waits: CancelToken,
    /// Ends the wait of a thread that tries other values. A flush does not: they are for the frames behind it.
    trial: CancelToken,
    /// For memory for clips.
    memory_wait: MemoryWait,
    qos: Qos,
    stats: Stats,
    /// From one frame that is inferred to the next, lately.
    interval: AtomicU32,
    /// Frames that were dropped before this element.
    missing: AtomicU64,
    clock: ElementClock,
}

/// Since the element was made.
struct ElementClock(Instant);

impl Default for ElementClock {
    fn default() -> Self {
        ElementClock(Instant::now())
    }
}

impl Running {
    /// What follows does not go on from the frames before. Its first frame is inferred, whether or not it is its turn: trtnms has
    /// nothing to repeat on it. The time between both is none of frames that were dropped.
    fn begin_again(&mut self) {
        (self.passed, self.lost) = (None, 0);
        (self.missing, self.auto) = Default::default();
    }

    /// The streaming thread lets a model go: frames that wait for it are run, for no more will come to fill their batch.
    fn let_go(&mut self, session: &StartedModel) {
        if let Some(batcher) = self.batcher.take() {
            batcher.flush(session.handle.stream());
        }
    }
}

impl TrtInfer {
    /// What was read of the model, if that is done.
    fn session(&self) -> Option<StartedModel> {
        self.life.get()
    }

    /// The CUDA context that the pipeline has.
    pub(super) fn context(&self) -> Result<Context> {
        self.cuda.ensure(&*self.obj(), self.settings.lock().unwrap().cuda_device_id)
    }

    /// How long a frame may wait for others: in the model that is running, whatever the next one is to have.
    fn latency(&self) -> Duration {
        match self.session() {
            Some(session) => session.model.latency(),
            None => self.settings.lock().unwrap().latency(),
        }
    }

    /// The latency is another than it was: the pipeline asks for it again.
    fn post_latency(&self) {
        let _ = self.obj().post_message(gst::message::Latency::builder().src(&*self.obj()).build());
    }

    /// A run takes no longer than `run-timeout` from now on.
    pub(super) fn limit_runs(&self, batcher: &Batcher, model: &SharedModel) {
        let own = self.settings.lock().unwrap().own.clone();
        match &model.request.cuda {
            None => {
                if let Some(limit) = own.run_limit(|| self.is_live()) {
                    batcher.limit_runs(limit);
                }
            }
            // There a run is only queued, and elements behind wait for it. They look for its end then, in place of sleeping until
            // it comes, which takes of the CPU: so not unless that is asked for.
            Some(cuda) => {
                if let Some(limit) = own.run_limit(|| false) {
                    batcher.limit_runs(limit);
                    batcher.limit_waits(cuda, limit);
                }
            }
        }
    }

    /// Whether frames come from a live source.
    fn is_live(&self) -> bool {
        let mut query = gst::query::Latency::new();
        self.obj().sink_pad().peer_query(&mut query) && query.result().0
    }

    /// Releases a model of which a run may never end.
    fn abandon(&self, session: &StartedModel, batcher: &Batcher) {
        let stream = session.handle.stream();
        if batcher.given_up().is_some() {
            // That was said, and waited for.
            if !batcher.interrupt_within(stream, INTERRUPT_LIMIT) && !batcher.is_idle_within(stream, Duration::ZERO) {
                session.model.request.running().run_was_abandoned();
            }
            return;
        }
        if batcher.is_idle_within(stream, RUN_LIMIT) || batcher.interrupt_within(stream, INTERRUPT_LIMIT) {
            return;
        }
        session.model.request.running().run_was_abandoned();
        self.obj().post_warning(&messages::unfinished(&session.model.request.model().path, RUN_LIMIT));
    }

    /// Whether outputs were thrown away, and none was ever read.
    fn is_unread(&self) -> bool {
        !self.settings.lock().unwrap().own.tensor_meta && self.running.lock().unwrap().usage.is_none()
    }

    fn infer(&self, buffer: &mut gst::BufferRef) -> std::result::Result<(), Interrupted> {
        self.life.wait()?;
        let (pts, came) = (buffer.pts().map(gst::ClockTime::nseconds), self.clock.0.elapsed());
        // It stays on the buffer until another replaces it: the GPU may still read the frame.
        let Some(payload) = TensorMeta::input(buffer) else {
            let is_inferred = TensorMeta::outputs(buffer).is_some();
            return Err(if is_inferred { messages::inferred_before() } else { messages::missing_tensor() }.into());
        };
        let inputs = payload.inputs();
        if let Some(desc) = inputs.desc() {
            self.fit(&desc.dims);
        }
        if let Some(input) = inputs.list.first() {
            self.follow(&input.tensors[0])?;
        }
        let mut running = self.running.lock().unwrap();
        let StartedModel { model, handle, published, .. } = self.session().ok_or(Interrupted::Flushing)?;
        let (interval, measure, is_shared, batch) = {
            let settings = self.settings.lock().unwrap();
            (settings.own.interval, settings.own.measure, settings.is_shared(), settings.batch_size.max(1))
        };
        let passed = running.passed.map_or(interval, |passed| passed.saturating_add(1));
        let missing = running.missing.before(pts, buffer.flags().contains(gst::BufferFlags::DISCONT));
        running.lost = running.lost.saturating_add(missing);
        self.missing.fetch_add(missing.into(), Ordering::Relaxed);
        if let Some(still) = inputs.still.as_ref().filter(|_| !running.has_seen) {
            still.ask_for_next();
        }
        if let Some(desc) = inputs.clip.as_ref().map(|clip| &clip.desc)
            && let Some(wanted) = model.request.model().misfit(desc)
        {
            return Err(messages::misfit(desc, wanted).into()); // at once, and not with the first clip that is full
        }
        let is_due = inputs.still.is_none()
            && inputs.is_complete()
            && match interval {
                0 => {
                    let is_running = running.run.as_ref().is_some_and(|run| !run.is_done());
                    running.auto.is_due(pts, came, is_running)
                }
                _ => passed.saturating_add(running.lost) >= interval,
            };
        let heeds_qos = is_due && self.obj().property::<bool>("qos");
        let late = heeds_qos.then(|| self.qos.late_frame(&self.obj(), buffer, || self.stats.read().done)).flatten();
        if !is_due || late.is_some() {
            // Until a clip is full, streams that share a model have not begun to take turns.
            if inputs.is_complete() || running.passed.is_some() {
                running.passed = Some(passed);
            }
            running.auto.left(pts, (came, self.clock.0.elapsed()), false);
            drop(running); // a handler of the bus may do anything with this element
            self.pass(buffer, inputs.clone(), late.is_some());
            if let Some(late) = late {
                let _ = self.obj().post_message(late);
            }
            return Ok(());
        }

        if let Some(desc) = inputs.desc()
            && let Some(wanted) = model.request.model().misfit(desc)
        {
            return Err(messages::misfit(desc, wanted).into());
        }

        let batcher = match &running.batcher {
            Some(batcher) => batcher.clone(),
            None => match handle.wait()? {
                Some(batcher) => {
                    self.limit_runs(&batcher, &model);
                    running.batcher.insert(batcher).clone()
                }
                None => {
                    drop(running);
                    let inputs = inputs.clone();
                    return self.infer_with_successor(buffer, inputs);
                }
            },
        };
        // The frames of cameras come at the same moments. Streams that share a model take turns, as many as fill a batch at a time.
        let turn = || (handle.stream() / u64::from(batch) % u64::from(interval.max(1))) as u32;
        // Of clips of objects it is the turn of the next frame with which one ends.
        if inputs.clip.as_ref().is_none_or(|clip| !clip.full.is_empty()) {
            running.passed = Some(if is_shared && running.passed.is_none() { turn() } else { 0 });
            running.lost = 0;
            self.interval.store(passed.max(1), Ordering::Relaxed);
        } else if running.passed.is_some() {
            running.passed = Some(passed);
        }
        running.has_seen = true;
        if measure {
            batcher.measure();
        }
        let stage = Span::begin(false); // batches are measured, in the thread that runs them
        // Those of a clip are put together here.
        let pictures = || inputs.pictures().map_err(Interrupted::from);
        let pictures = self.memory_wait.retry(&*self.obj(), &self.waits, pictures)?;
        let (values, usage) = (model.request.values(), &running.usage);
        let outputs = batcher.submit(handle.stream(), pictures.into_iter(), values, usage, &self.waits)?;
        if outputs.len() > 1 && !is_shared {
            batcher.flush(handle.stream()); // the regions of a frame are a batch; no other stream fills it
        }
        if let Some(published) = &published {
            let [outputs] = &outputs[..] else { return Err(messages::published_regions(outputs.len()).into()) };
            published.attach(buffer, outputs.wait(&self.waits)?)?;
        }
        running.run = outputs.last().map(PendingOutput::probe);
        running.auto.left(pts, (came, self.clock.0.elapsed()), true);
        let took = self.stats.add(stage, 0);
        gst::trace!(CAT, imp = self, "inferred in {took:?}");
        let is_starved = !running.warned_starved && model.settings.waits_in_vain() && starves(&batcher.counts());
        running.warned_starved |= is_starved;
        drop(running); // a handler of the bus may do anything with this element
        if is_starved {
            self.obj().post_warning(&messages::starved());
        }
        if let Some(warning) = batcher.watch().and_then(|watch| watch.take_warning()) {
            self.obj().post_warning(&warning);
        }

        let (inputs, model) = (inputs.clone(), model.request.model().clone());
        TensorMeta::set(buffer, Arc::new(Payload::Output { outputs, inputs, model }));
        Ok(())
    }

    /// Lets a frame go on without being inferred. `is_overdue`: it was its turn.
    fn pass(&self, buffer: &mut gst::BufferRef, inputs: Arc<ModelInputs>, is_overdue: bool) {
        self.stats.skip();
        TensorMeta::set(buffer, Arc::new(Payload::Skipped { inputs, is_overdue }));
    }

    fn prepare_state(&self, transition: gst::StateChange) {
        match transition {
            gst::StateChange::NullToReady => {
                // Decoders ask for a context now, or once decodebin plugs them in.
                let settings = self.settings.lock().unwrap().clone();
                let shared = sharing::find(&settings, None);
                let needs_one = shared.as_ref().map_or_else(|| settings.is_for_gpu(), |model| model.gpu().is_some());
                if let Some(model) = shared {
                    self.share_context(&model, &settings);
                }
                self.cuda.hand_out(&*self.obj(), settings.cuda_device_id, needs_one);
            }
            gst::StateChange::PausedToReady => {
                // The pads are deactivated once the streaming thread has returned, so it must not go on waiting for the
                // model. A frame that comes only now may not begin to.
                self.waits.set_stopped(true);
                self.trial.set_stopped(true);
                self.life.leave();
            }
            _ => {}
        }
    }
}

/// Whether all batches so far had a single frame.
fn starves(counts: &Counts) -> bool {
    counts.late >= 32 && counts.late == counts.batches && counts.frames == counts.batches
}

impl Properties for TrtInfer {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![
            glib::ParamSpecBoxed::builder::<gst::Structure>("model-info")
                .nick("Model information")
                .blurb("What was read from the model file; NULL until it has been read")
                .read_only()
                .build(),
            stats::property(
                "Frames inferred and skipped, and what inference costs: time on the host, waits for the GPU, bytes \
                 copied, use of the pool",
            ),
        ]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        match name {
            "model-info" => Some(self.session().map(|session| session.info()).to_value()),
            "stats" => {
                let totals = self.stats.read();
                let (inferred, skipped) = (totals.done, totals.skipped);
                let batcher = self.session().and_then(|session| session.handle.batcher());
                let counts = batcher.as_ref().map(|batcher| batcher.counts());
                let Counts { batches, frames, late, out_of_memory } = counts.unwrap_or_default();
                let watch = batcher.as_ref().and_then(|batcher| batcher.watch());
                let (compared, differing) = watch.map_or((0, 0), |watch| (watch.compared(), watch.differing()));
                let totals = match batcher {
                    Some(batcher) => totals.with_gpu_of(batcher.stats().read()),
                    None => totals,
                };
                let counts = [
                    ("frames", inferred + skipped),
                    ("inferred", inferred),
                    ("skipped", skipped),
                    ("interval", self.interval.load(Ordering::Relaxed).into()),
                    ("missing", self.missing.load(Ordering::Relaxed)),
                    ("late", self.qos.late()),
                    ("batches", batches),
                    ("batched", frames),
                    ("batches-late", late),
                    ("compared", compared),
                    ("differing", differing),
                    ("out-of-memory", out_of_memory + self.memory_wait.count()),
                ];
                Some(stats::structure(&totals, counts).to_value())
            }
            _ => None,
        }
    }

    fn was_set(&self, name: &str, value: &glib::Value) {
        match name {
            "model-file" if self.life.is_started() => self.replace_model(),
            "input-values" if self.life.is_started() => {
                let text = value.get::<Option<String>>().expect("GObject has checked the type");
                self.change_values(&text.unwrap_or_default());
            }
            _ => {}
        }
    }
}

video_filter! {
    TrtInfer: "GstTrtInfer",
    name: "Object detection: inference (TensorRT or CPU)",
    classification: "Filter/Analyzer/Video",
    description: "Runs a model on the tensor of each frame",
}

impl BaseTransformImpl for TrtInfer {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        log::take_over();
        let settings = self.settings.lock().unwrap().clone();
        self.waits.set_stopped(false);
        self.trial.set_stopped(false);
        self.waits.set_flushing(false); // pads forget a flush that was not ended, too
        let opened = self.open_model(&settings, self.life.start());
        opened.inspect_err(|_| drop(self.life.stop())).map_err(|error| error_message(&error))?;
        self.stats.reset();
        self.memory_wait.reset();
        self.qos.start();
        self.missing.store(0, Ordering::Relaxed);
        // Upstream may have negotiated with another model, of another input size.
        self.obj().reconfigure_sink();
        Ok(())
    }

    /// Frames of another size may have tensors of another size.
    fn set_caps(&self, incaps: &Caps, _outcaps: &Caps) -> std::result::Result<(), gst::LoggableError> {
        let _ = self.life.wait(); // without a model, the first frame says why
        // For another model there are other caps, but not other frames.
        let before = self.obj().sink_pad().current_caps();
        if before.is_some_and(|before| caps::without_tensor(&before) != caps::without_tensor(incaps)) {
            self.running.lock().unwrap().begin_again();
        }
        let tensor = caps::tensor_of(incaps).map_err(|error| gst::loggable_error!(CAT, "{error}"))?;
        if let Some(tensor) = tensor {
            self.take_over_for(&tensor).map_err(|error| gst::loggable_error!(CAT, "{error}"))?;
            self.fit(&tensor.desc.dims);
            self.life.replace(|session| Some(StartedModel { tensor: Arc::new(tensor), ..session.clone() }));
        }
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        let session = self.life.stop();
        sharing::left();
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        if let (Some(session), Some(batcher)) = (&session, &running.batcher) {
            self.abandon(session, batcher);
        }
        self.cuda.clear();
        self.obj().forget_errors();
        Ok(())
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        if model_query::is_asked(query) {
            let _ = self.life.wait(); // what comes of it, the first frame says
            return true;
        }
        let answered = self.answer(direction, query);
        if let gst::QueryViewMut::Latency(latency) = query.view_mut()
            && answered
            && self.life.is_started()
            && let Ok(waits) = gst::ClockTime::try_from(self.latency())
        {
            let (live, min, max) = latency.result();
            latency.set(live, min + waits, max.map(|max| max + waits));
        }
        answered
    }

    /// trtpreprocess is told where tensors are to lie, and goes on at once: a queue behind would answer after its frames,
    /// which may wait for a batch. Others ask where frames are to lie.
    fn propose_allocation(
        &self,
        decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> std::result::Result<(), gst::LoggableError> {
        let is_for_tensors = query.get().0.is_some_and(|caps| matches!(caps::tensor_of(caps), Ok(Some(_))));
        if !is_for_tensors {
            return self.parent_propose_allocation(decide_query, query);
        }
        let model = self.session().map(|session| self.offered(&session.model));
        model.iter().filter_map(|model| model.slots.as_ref()).for_each(|pool| batch_pool::propose(query, pool));
        Ok(())
    }

    /// The sink asks for the model's tensor by name, and the source names the outputs that it publishes; the picture's
    /// caps pass.
    fn transform_caps(&self, direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        let mut caps = caps::without_tensor(&caps::usable(caps));
        let Some(session) = self.life.now() else {
            // Any tensor, until more is known. trtpreprocess waits for that before it agrees on caps.
            return Some(caps::filtered(caps, filter));
        };
        if session.as_ref().is_ok_and(|session| session.as_ref().is_some_and(StartedModel::is_on_host)) {
            caps = caps::without_cuda(&caps);
        }
        let caps = match session {
            Ok(Some(StartedModel { model, waits, .. })) if direction == PadDirection::Src => {
                let offered = self.offered(&model);
                let (request, waits) = (&offered.request, waits && Arc::ptr_eq(&offered, &model));
                caps::with_tensor(&caps, filter, |size| {
                    let Some(size) = size else { return request.wanted() };
                    self.life.set_frame(size);
                    if waits { request.spec_for(size) } else { request.next_spec_for(size) }
                })
            }
            Ok(Some(StartedModel { published: Some(published), .. })) => published.describe(&caps),
            // There is no model, or a flush: frames come without tensors, and the first one is told why.
            Err(_) if direction == PadDirection::Src => caps::with_no_tensor(&caps),
            _ => caps,
        };
        Some(caps::filtered(caps, filter))
    }

    /// Caps without a tensor come from a line without trtpreprocess. They are accepted, because the error that their first
    /// frame brings has the reason, and a refusal here would only be "not negotiated".
    fn accept_caps(&self, direction: PadDirection, caps: &Caps) -> bool {
        match direction {
            PadDirection::Sink => caps::usable(&caps::template_caps()).can_intersect(&caps::without_tensor(caps)),
            _ => self.parent_accept_caps(direction, caps),
        }
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        // No frame is in work then: these events come with the frames.
        if self.qos.see(&event) {
            self.running.lock().unwrap().begin_again();
        }
        match event.view() {
            gst::EventView::FlushStart(_) => {
                self.waits.set_flushing(true); // first, as above
                self.life.set_flushing(true);
            }
            gst::EventView::FlushStop(_) => {
                self.running.lock().unwrap().usage = Arc::default(); // what the flush has dropped could not be read
                self.life.set_flushing(false);
                self.waits.set_flushing(false);
            }
            // Nothing comes that would fill the batch. Behind the end of a segment an application seeks.
            gst::EventView::Eos(_)
            | gst::EventView::SegmentDone(_)
            | gst::EventView::Caps(_)
            | gst::EventView::Gap(_) => {
                if let Some(session) = self.session() {
                    if matches!(event.view(), gst::EventView::Eos(_)) && self.is_unread() {
                        self.obj().post_warning(&messages::unread());
                    }
                    if let Some(batcher) = session.handle.batcher() {
                        batcher.flush(session.handle.stream());
                    }
                }
            }
            _ => {}
        }
        self.parent_sink_event(event)
    }

    /// The base class is not told of late frames, or it would drop them: they pass without being inferred.
    fn src_event(&self, event: gst::Event) -> bool {
        let gst::EventView::Qos(qos) = event.view() else { return self.parent_src_event(event) };
        self.qos.learn(qos);
        self.obj().sink_pad().push_event(event)
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        match self.take_over().map_err(Interrupted::from).and_then(|()| self.infer(buffer)) {
            Ok(()) => Ok(gst::FlowSuccess::Ok),
            Err(Interrupted::Flushing) => Err(gst::FlowError::Flushing),
            Err(Interrupted::Failed(error)) => {
                self.obj().post_error(&error);
                Err(gst::FlowError::Error)
            }
        }
    }
}
