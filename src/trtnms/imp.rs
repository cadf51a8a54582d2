// SPDX-License-Identifier: MPL-2.0
mod classes;
mod postprocessor;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::CancelToken;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::image::map::MapKind;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::postprocess::Postprocessor;
use gsttrt_core::tensor::Tensors;

use super::drawing::{self, GpuDrawing};
use super::objects::{ObjectResults, places_are_lost, report_passed};
use super::settings::{NmsSettings, PROPERTIES};
use super::spans::{span_of, spans_of};
use crate::gst::caps;
use crate::gst::classes_event::{self, ClassesOfModels};
use crate::gst::classes_query;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{DrawRefusal, Properties, VideoFilter, video_filter};
use crate::gst::layout_query;
use crate::gst::memory_wait::MemoryWait;
use crate::gst::meta::detection::Held;
use crate::gst::meta::frame_mark::NOTHING_HELD;
use crate::gst::meta::tensor::{ObjectRegions, Payload, StillFrames, TensorMeta, Tiles};
use crate::gst::meta::{detection, read, track, unseen};
use crate::gst::overlay::{OverlayRenderer, is_drawable};
use crate::gst::path::{PathCheck, lost_tensors};
use crate::gst::report::{Report, error_message};
use crate::gst::stats;
use crate::gst::stream::CurrentSegment;

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trtnms", gst::DebugColorFlags::empty(), Some("Model outputs to boxes")));

/// State since set_caps() and the first frame.
struct NmsState {
    postprocessor: Option<Postprocessor>,
    /// The quarks of the postprocessor's labels.
    names: detection::LabelQuarks,
    renderer: OverlayRenderer,
    path: PathCheck,
    /// Frames since the start, including those without objects and those that trtinfer skipped.
    frames: u64,
    /// Whether the finder has detections of a frame of these caps, this segment and this stream.
    can_hold: bool,
    /// Of objects of another model.
    of_objects: ObjectResults,
    /// The last warning of properties without effect: frames of another size need another postprocessor.
    without_effect: Option<Error>,
    /// What was said of the numbers of each model. Its file may be that of a former one, with other content.
    told: Vec<(Weak<ModelInfo>, ToldOfModel)>,
    /// Whether those of the last frame that a model saw were not, so that objects of it may be missing.
    lacks_objects: bool,
    /// Of the models before this one, where there are any.
    classes_before: Option<ClassesOfModels>,
    /// Whether downstream is still to be told of others.
    has_new_classes: bool,
    has_told_of_classes: bool,
    /// What was told before the model has run.
    told_before_run: Option<ClassesOfModels>,
}

/// What was said of a model, each once.
#[derive(Default)]
struct ToldOfModel {
    /// That numbers are not finite.
    of_scores: bool,
    /// That scores are above 1.
    of_large_scores: bool,
    /// That class ids are not known.
    of_ids: bool,
}

/// No two of these are locked at a time, and none while a frame is handled.
#[derive(Default)]
pub struct TrtNms {
    settings: Mutex<NmsSettings>,
    /// Of the streaming thread, which takes it out for each frame.
    state: Mutex<Option<NmsState>>,
    segment: Mutex<CurrentSegment>,
    refusal: DrawRefusal,
    cuda: CudaContextSlot,
    stats: Stats,
    /// Frames with scores, or boxes that pass, that are not finite.
    not_finite: AtomicU64,
    /// Ends the wait of the streaming thread for outputs, and for memory.
    waits: CancelToken,
    memory_wait: MemoryWait,
}

impl TrtNms {
    /// Handles a frame: its objects are found, drawn, attached and posted.
    ///
    /// A frame that others share is copied before it is drawn on, into a pool of our own: software decoders keep the
    /// frames that they predict from, so this is usual and must not allocate. Frames that trtinfer skipped show the
    /// last objects, or pass unchanged.
    fn process(
        &self,
        state: &mut NmsState,
        settings: NmsSettings,
        mut frame: gst::Buffer,
    ) -> Result<gst::Buffer, Interrupted> {
        if settings.draw
            && let Some(original) = take_back(&mut frame)
        {
            frame = original;
        }
        let style = settings.draw.then_some(settings.style);
        let stage = Span::begin(settings.measure);
        state.frames += 1;
        let payload = TensorMeta::outputs(&frame).ok_or_else(|| match TensorMeta::input(&frame) {
            Some(_) => not_inferred(),
            None => lost_tensors(self.obj().sink_pad()).unwrap_or_else(missing_tensors),
        })?;
        if settings.draw {
            TensorMeta::wait_for_readers(&frame, Some(&payload));
        }
        if let Tiles::Objects(objects) = &payload.inputs().tiles {
            self.retry(|| self.prepare_outputs(state, &settings, &payload, &frame).map(drop))?;
            let found = self.find_in_objects(state, &settings, &payload, objects, &mut frame)?;
            let is_skipped = matches!(*payload, Payload::Skipped { .. });
            let is_lost = self.lacks_scores(state, &payload) || is_skipped;
            if state.may_have_boxes() {
                if !objects.unseen.is_empty() {
                    unseen::mark_regions(frame.make_mut(), &objects.unseen);
                }
                if is_lost {
                    unseen::mark(frame.make_mut());
                }
            }
            self.tell_classes(state.classes_before.is_none(), state);
            self.tell_before_run(&settings, &payload, &frame, state);
            self.stats.add(stage, found);
            return Ok(frame);
        }
        let drawing = self.retry(|| self.find(state, &settings, &payload, &frame))?;
        let is_held = drawing.is_none();
        let lacks_scores = self.lacks_scores(state, &payload);
        if !is_held {
            state.lacks_objects = lacks_scores;
        }
        self.tell_classes(state.classes_before.is_none() && has_objects_of_others(&frame), state);
        let has_objects = !is_held || settings.hold_detections && state.can_hold;
        let may_have_boxes = state.may_have_boxes();
        let NmsState { postprocessor, names, renderer, lacks_objects, .. } = state;
        let still = payload.inputs().still.as_ref();
        still.filter(|_| !has_objects).into_iter().for_each(StillFrames::ask_for_next);
        let Some(postprocessor) = postprocessor.as_mut().filter(|_| has_objects) else {
            TensorMeta::remove(frame.make_mut(), &payload);
            if may_have_boxes {
                unseen::mark(frame.make_mut());
            }
            return Ok(frame);
        };
        if style.is_some() && matches!(drawing, None | Some(GpuDrawing::NotDrawn)) {
            postprocessor.fetch_masks()?;
        }
        let (instances, labels, size) = (postprocessor.instances(), &postprocessor.labels, renderer.size());
        let number = state.frames - 1;
        gst::trace!(CAT, imp = self, "frame {number}: {} objects", instances.len());
        let is_drawn = matches!(drawing, Some(GpuDrawing::InPlace | GpuDrawing::OnCopy(_)));
        match (drawing, style) {
            (Some(GpuDrawing::OnCopy(copy)), _) => frame = copy,
            (None | Some(GpuDrawing::NotDrawn), Some(style))
                if !instances.is_empty()
                    || !instances.frame_classes().is_empty()
                    || instances.frame_text().is_some()
                    || instances.frame_map().is_some() =>
            {
                // A map of objects shows what their masks show.
                let map = instances.frame_map().filter(|map| map.kind() != MapKind::Objects);
                renderer.draw_maps(&mut frame, map.into_iter(), &style)?;
                renderer.draw(&mut frame, instances, labels, &style)?;
            }
            _ => {}
        }
        // The class of a frame that has a map too is known only now.
        if let Some(style) = style.filter(|_| is_drawn && !instances.frame_classes().is_empty()) {
            renderer.draw(&mut frame, instances, labels, &style)?;
        }
        let buffer = frame.make_mut();
        TensorMeta::remove(buffer, &payload);
        let held = match (is_held, still) {
            (false, _) => Held::No,
            (true, None) => Held::Skipped,
            (true, Some(_)) => Held::Still,
        };
        detection::attach(buffer, instances, labels, names, size, held);
        if held == Held::Skipped && instances.is_empty() {
            NOTHING_HELD.set(buffer);
        }
        let is_overdue = matches!(*payload, Payload::Skipped { is_overdue: true, .. });
        if (*lacks_objects || is_overdue) && may_have_boxes {
            unseen::mark(buffer);
        }
        if settings.post_messages {
            self.post(detection::message(self.stream_time(buffer), number, size, instances, labels, is_held));
        }
        if !is_held {
            self.stats.add(stage, instances.len());
        }
        Ok(frame)
    }

    /// Whether the scores of a frame are not all finite, or objects are left out for their class ids. Each is said once of a model, and
    /// the former is counted. Scores above 1 are said once, too.
    fn lacks_scores(&self, state: &mut NmsState, payload: &Payload) -> bool {
        let (Some(postprocessor), Payload::Output { model, .. }) = (&mut state.postprocessor, payload) else {
            return false;
        };
        let (large, beyond) = (postprocessor.above_one(), postprocessor.beyond_classes());
        let not_finite = postprocessor.not_finite();
        if large.is_none() && beyond.is_none() && not_finite.is_none() {
            return false;
        }
        let told = state.told_of(model);
        let lacks_objects = beyond.is_some() || not_finite.is_some();
        if let Some(warning) = large.filter(|_| !std::mem::replace(&mut told.of_large_scores, true)) {
            self.obj().post_warning(&warning.and_remedy("It is said once"));
        }
        if let Some(warning) = beyond.filter(|_| !std::mem::replace(&mut told.of_ids, true)) {
            self.obj().post_warning(&warning.and_remedy("It is said once"));
        }
        if let Some(warning) = not_finite {
            self.not_finite.fetch_add(1, Ordering::Relaxed);
            if !std::mem::replace(&mut told.of_scores, true) {
                self.obj().post_warning(&warning.and_remedy("It is said once; not-finite in stats counts the frames"));
            }
        }
        lacks_objects
    }

    /// Does something again until the GPU has memory for it.
    fn retry<T>(&self, work: impl FnMut() -> Result<T, Interrupted>) -> Result<T, Interrupted> {
        self.memory_wait.retry(&*self.obj(), &self.waits, work)
    }

    /// Finds a frame's objects, and paints them where all of that is done on the GPU. If trtinfer skipped the
    /// frame, there are none to find.
    fn find(
        &self,
        state: &mut NmsState,
        settings: &NmsSettings,
        payload: &Arc<Payload>,
        frame: &gst::Buffer,
    ) -> Result<Option<GpuDrawing>, Interrupted> {
        let Payload::Output { inputs, .. } = &**payload else {
            self.stats.skip();
            return Ok(None);
        };
        let found = self.prepare_outputs(state, settings, payload, frame)?;
        let NmsState { postprocessor, renderer, .. } = state;
        let ([(first, letterbox), ..], Some(postprocessor)) = (&found[..], postprocessor) else { return Ok(None) };
        let style = settings.draw.then_some(settings.style);
        let drawing = match &inputs.tiles {
            Tiles::Frame => drawing::find(renderer, postprocessor, first, letterbox, frame, style.as_ref())?,
            _ => {
                postprocessor.find_in_regions(found.iter().map(|(tensors, letterbox)| (*tensors, letterbox)))?;
                GpuDrawing::NotDrawn
            }
        };
        postprocessor.set_span(span_of(inputs, &self.segment.lock().unwrap()));
        state.can_hold = true;
        Ok(Some(drawing))
    }

    /// Finds what the model has found in objects of another model, attaches and posts it, and returns how many objects
    /// that is.
    fn find_in_objects(
        &self,
        state: &mut NmsState,
        settings: &NmsSettings,
        payload: &Arc<Payload>,
        objects: &ObjectRegions,
        frame: &mut gst::Buffer,
    ) -> Result<usize, Interrupted> {
        let found = self.prepare_outputs(state, settings, payload, frame)?;
        report_passed(objects, found.len());
        let (number, NmsState { postprocessor, names, renderer, of_objects, .. }) = (state.frames - 1, state);
        let size = renderer.size();
        let (mut count, mut content) = (0, None);
        match postprocessor {
            None => TensorMeta::remove(frame.make_mut(), payload),
            Some(other) if other.is_classifier() || other.is_embedding() || other.reads_text() => {
                let inputs: Vec<&Tensors> = found.iter().map(|(tensors, _)| *tensors).collect();
                let spans = spans_of(payload.inputs(), &self.segment.lock().unwrap());
                self.retry(|| of_objects.find(other, &inputs, &spans).map_err(Interrupted::from))?;
                let buffer = frame.make_mut();
                TensorMeta::remove(buffer, payload);
                count = of_objects.attach(buffer, objects, other);
            }
            Some(detector) if objects.are_aligned => {
                return Err(places_are_lost(detector.decoder.format().name).into());
            }
            Some(detector) => {
                let ids: Vec<i32> =
                    frame.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|meta| meta.id()).collect();
                let parent = |input: usize| {
                    let object = objects.list.iter().find(|object| object.input == Some(input));
                    object.and_then(|object| ids.get(object.region?).copied()).unwrap_or(detection::NO_PARENT)
                };
                self.retry(|| {
                    let inputs = found.iter().enumerate();
                    let inputs = inputs.map(|(i, (tensors, letterbox))| (*tensors, letterbox, parent(i)));
                    detector.find_in_objects(inputs).map_err(Interrupted::from)
                })?;
                let (instances, labels) = (detector.instances(), &detector.labels);
                if settings.draw && !instances.is_empty() {
                    renderer.draw(frame, instances, labels, &settings.style)?;
                }
                let buffer = frame.make_mut();
                TensorMeta::remove(buffer, payload);
                detection::attach(buffer, instances, labels, names, size, Held::No);
                count = instances.len();
                let stream_time = self.stream_time(buffer);
                content = Some(detection::message(stream_time, number, size, instances, labels, false));
            }
        }
        if settings.post_messages {
            self.post(content.unwrap_or_else(|| {
                let annotations = read::objects(frame, size).annotations;
                track::message(frame, self.stream_time(frame), number, size, &annotations, false)
            }));
        }
        Ok(count)
    }

    fn stream_time(&self, buffer: &gst::BufferRef) -> Option<gst::ClockTime> {
        self.segment.lock().unwrap().stream_time(buffer.pts())
    }

    fn post(&self, content: gst::Structure) {
        let _ = self.obj().post_message(gst::message::Element::builder(content).src(&*self.obj()).build());
    }

    fn report(&self, error: Error) -> gst::FlowError {
        self.obj().post_error(&error);
        gst::FlowError::Error
    }

    fn prepare_state(&self, transition: gst::StateChange) {
        VideoFilter::prepare_state(self, transition);
        // The pads are deactivated once the streaming thread has returned, so it must not go on waiting for a batch.
        if transition == gst::StateChange::PausedToReady {
            self.waits.set_stopped(true);
        }
    }
}

impl NmsState {
    /// Whether the model gives boxes, as far as that is known.
    fn may_have_boxes(&self) -> bool {
        self.postprocessor.as_ref().is_none_or(Postprocessor::has_boxes)
    }

    fn told_of(&mut self, model: &Arc<ModelInfo>) -> &mut ToldOfModel {
        let known = self.told.iter().position(|(of, _)| std::ptr::eq(of.as_ptr(), &**model));
        let at = known.unwrap_or_else(|| {
            self.told.retain(|(of, _)| of.strong_count() > 0);
            self.told.push((Arc::downgrade(model), ToldOfModel::default()));
            self.told.len() - 1
        });
        &mut self.told[at].1
    }
}

fn has_objects_of_others(frame: &gst::BufferRef) -> bool {
    frame.meta::<gst_video::VideoRegionOfInterestMeta>().is_some()
}

/// Replaces a frame by the original that it is a copy of, where that saves a copy of the picture.
fn take_back(frame: &mut gst::Buffer) -> Option<gst::Buffer> {
    let frame = frame.get_mut().filter(|frame| !is_drawable(frame))?;
    match &*TensorMeta::outputs(frame)? {
        Payload::Output { inputs, .. } => inputs.original.as_ref()?.take_back(frame),
        _ => None,
    }
}

fn missing_tensors() -> Error {
    Error::new(ErrorKind::WrongType, "trtnms got a frame without tensors")
        .cause(
            "trtpreprocess ! trtinfer is missing before trtnms in the launch line, or an element between them, \
             such as compositor, makes new frames without tensors",
        )
        .remedy(
            "The order is … ! trtpreprocess ! trtinfer ! trtnms ! …; put elements that make new frames before \
             trtpreprocess or behind trtnms",
        )
}

fn not_inferred() -> Error {
    Error::new(ErrorKind::WrongType, "trtnms got a frame that no model has seen")
        .cause("trtinfer is missing before trtnms in the launch line")
        .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …")
}

impl Properties for TrtNms {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property(
            "Frames, objects, frames with scores or boxes that are not finite, and what finding and drawing them costs: time on the \
             host, waits for the GPU, bytes copied, use of the pool",
        )]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| {
            let totals = self.stats.read();
            let (frames, skipped) = (totals.done + totals.skipped, totals.skipped);
            let (not_finite, lacked) = (self.not_finite.load(Ordering::Relaxed), self.memory_wait.count());
            let counts = [
                ("frames", frames),
                ("skipped", skipped),
                ("objects", totals.objects),
                ("not-finite", not_finite),
                ("out-of-memory", lacked),
            ];
            stats::structure(&totals, counts).to_value()
        })
    }

    /// Frames that cannot be drawn on are to come in other memory.
    fn was_set(&self, name: &str, _value: &glib::Value) {
        let is_nvmm = || self.obj().sink_pad().current_caps().is_some_and(|caps| caps::is_nvmm(&caps));
        if name == "draw" && self.settings.lock().unwrap().draw && is_nvmm() {
            self.obj().reconfigure_sink();
        }
    }
}

video_filter! {
    TrtNms: "GstTrtNms",
    name: "Object detection: decoder, NMS and overlay (CUDA or CPU)",
    classification: "Tensordecoder/Video",
    description: "Turns the outputs of a model into objects: decodes, suppresses, attaches, draws and posts them",
}

impl BaseTransformImpl for TrtNms {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        self.stats.reset();
        self.not_finite.store(0, Ordering::Relaxed);
        self.refusal.reset();
        self.memory_wait.reset();
        self.waits.set_stopped(false);
        self.waits.set_flushing(false); // pads forget a flush that was not ended, too
        self.settings.lock().unwrap().options_for_model().map(drop).map_err(|error| error_message(&error))
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = None;
        *self.segment.lock().unwrap() = CurrentSegment::default();
        self.cuda.clear();
        Ok(())
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        let layout = || {
            let settings = self.settings.lock().unwrap().clone();
            settings.head().ok().flatten()
        };
        let options = || self.settings.lock().unwrap().options.clone();
        if direction == PadDirection::Sink
            && (layout_query::answer(query, layout) || classes_query::answer(query, options))
        {
            return true;
        }
        if direction == PadDirection::Sink && self.settings.lock().unwrap().draw {
            self.refusal.explain(&*self.obj(), query);
        }
        self.answer(direction, query)
    }

    fn transform_caps(&self, _direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        let mut caps = caps::without_tensor(&caps::usable(caps));
        if self.settings.lock().unwrap().draw {
            caps = caps::drawable(&caps);
        }
        Some(caps::filtered(caps, filter))
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        match event.view() {
            gst::EventView::FlushStart(_) => self.waits.set_flushing(true),
            gst::EventView::FlushStop(_) => self.waits.set_flushing(false),
            _ => {}
        }
        let is_cut = self.segment.lock().unwrap().is_cut(&event);
        // It goes on with those of this model.
        if let Some(classes) = classes_event::read(&event) {
            if let Some(state) = self.state.lock().unwrap().as_mut() {
                (state.classes_before, state.has_new_classes) = (Some(classes), true);
            }
            return true;
        }
        // Caps are sent again where elements are linked again, also if they are the same.
        let is_linked = event.type_() == gst::EventType::Caps;
        if (is_cut || is_linked)
            && let Some(state) = self.state.lock().unwrap().as_mut()
        {
            state.can_hold &= !is_cut;
            state.path.forget();
            if is_cut {
                state.of_objects = ObjectResults::default(); // ids may be given again
            }
        }
        self.parent_sink_event(event)
    }

    fn set_caps(&self, incaps: &Caps, _outcaps: &Caps) -> Result<(), gst::LoggableError> {
        let draw = self.settings.lock().unwrap().draw;
        let format = self.format(*CAT, incaps, draw)?;
        let mut state = self.state.lock().unwrap();
        let (names, renderer) = (detection::LabelQuarks::default(), OverlayRenderer::new(format));
        let (path, of_objects) = (PathCheck::default(), ObjectResults::default());
        *state = Some(match state.take() {
            Some(old) => NmsState { names, renderer, path, can_hold: false, of_objects, ..old },
            None => NmsState {
                postprocessor: None,
                names,
                renderer,
                path,
                frames: 0,
                can_hold: false,
                of_objects,
                without_effect: None,
                told: Vec::new(),
                lacks_objects: false,
                classes_before: None,
                has_new_classes: false,
                has_told_of_classes: false,
                told_before_run: None,
            },
        });
        Ok(())
    }

    fn generate_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
        let settings = self.settings.lock().unwrap().clone();
        // Taken out, so that nothing is locked when messages are posted: a handler of the bus may do anything.
        let mut state = self.state.lock().unwrap().take().ok_or(gst::FlowError::NotNegotiated)?;
        let outcome = self.process(&mut state, settings, frame);
        *self.state.lock().unwrap() = Some(state);
        match outcome {
            Ok(frame) => Ok(GenerateOutputSuccess::Buffer(frame)),
            Err(Interrupted::Failed(error)) => Err(self.report(error)),
            Err(Interrupted::Flushing) if self.waits.is_cancelled() => Err(gst::FlowError::Flushing),
            Err(Interrupted::Flushing) => {
                // Its trtinfer was flushed or stopped. This element is not, and `queue` would never start again.
                gst::info!(
                    CAT,
                    imp = self,
                    "a frame is dropped: its trtinfer was flushed or stopped before the model had run"
                );
                Ok(GenerateOutputSuccess::NoOutput)
            }
        }
    }
}
