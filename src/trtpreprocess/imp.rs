// SPDX-License-Identifier: MPL-2.0
mod clip_flow;
mod sequences;
mod warnings;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::CancelToken;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::cuda::driver::{self, Context};
use gsttrt_core::device::Device;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::align::Crop;
use gsttrt_core::image::preprocess::Preprocessor;
use gsttrt_core::image::text_lines;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::memory::{BatchPool, DevicePool};
use gsttrt_core::tensor::Tensors;
use smallvec::SmallVec;

use super::clips::{self, StreamClips};
use super::counts::{ClipCounts, ObjectCounts};
use super::motion::MotionFilter;
use super::objects::{ObjectOptions, ObjectSelection, ObjectSelector};
use super::overrides::{Overrides, Tiling};
use super::settings::{PROPERTIES, PreprocessSettings};
use crate::gst::batch_pool;
use crate::gst::caps;
use crate::gst::classes_event::CheckedClasses;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{Properties, VideoFilter, video_filter};
use crate::gst::held_frame::HeldFrames;
use crate::gst::memory_wait::MemoryWait;
use crate::gst::meta::geometry::{self, TensorSource};
use crate::gst::meta::read;
use crate::gst::meta::tensor::{ModelInput, ModelInputs, Payload, TensorMeta, Tiles};
use crate::gst::report::{Report, error_message};
use crate::gst::stats;
use crate::gst::stream::VideoStream;
use crate::gst::video::{Format, FrameLocation};
use crate::gst::{layout_query, model_query};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtpreprocess", gst::DebugColorFlags::empty(), Some("Frames to tensors"))
});

/// What set_caps() made.
struct PreprocessState {
    format: Format,
    /// Of a picture; of a clip, that of one frame.
    spec: InputSpec,
    /// Whether the user has set its mean or std.
    is_normalised: bool,
    /// For a model that sees clips, of the stream or of each object.
    clips: Option<StreamClips>,
    tiling: Tiling,
    /// Those that are the same in each frame.
    fixed: Option<Vec<Crop>>,
    selector: ObjectSelector,
    motion: Option<MotionFilter>,
    /// That of a GPU is made with the first frame, in its context. None for models of vectors.
    preprocessor: Option<Preprocessor>,
    /// Of vectors for a model on a GPU.
    uploads: Option<DevicePool>,
}

impl PreprocessState {
    fn is_on_gpu(&self) -> bool {
        self.spec.device == Device::Cuda
    }
}

/// No two of these are locked at a time, and none while downstream is asked or a message is posted.
#[derive(Default)]
pub struct TrtPreprocess {
    settings: Mutex<PreprocessSettings>,
    /// The settings as start() found them. Those that change later wait for the next start, so that a tensor is never
    /// half of each.
    overrides: Mutex<Option<Overrides>>,
    /// Of the streaming thread, which takes it out for each frame.
    state: Mutex<Option<PreprocessState>>,
    /// Downstream has no model: frames pass without tensors.
    passthrough: AtomicBool,
    originals: Mutex<HeldFrames>,
    cuda: CudaContextSlot,
    stats: Stats,
    counts: Mutex<ObjectCounts>,
    clips: Mutex<ClipCounts>,
    /// Where clips begin again.
    stream: Mutex<VideoStream>,
    /// Frames without motion.
    still: AtomicU64,
    has_warned_of_upload: AtomicBool,
    has_warned_of_effect: AtomicBool,
    checked_classes: Mutex<CheckedClasses>,
    /// The error about caps that was posted last. Upstream tries caps again with each event and frame; it is posted once.
    last_caps_error: Mutex<Option<String>>,
    memory_wait: MemoryWait,
    /// Ends the wait of the streaming thread for memory.
    waits: CancelToken,
}

impl TrtPreprocess {
    fn overrides(&self) -> Option<Overrides> {
        self.overrides.lock().unwrap().clone()
    }

    /// The tensor to name in the source's caps: what downstream asks for, else what the properties say by themselves. If
    /// they do not say enough, set_caps() complains.
    fn tensor(&self, caps: &Caps) -> Option<String> {
        // A model that takes tensors of several sizes is asked for the one of a part.
        let mut asked = caps.clone();
        if let (Some(overrides), Ok(info)) = (self.overrides(), gst_video::VideoInfo::from_caps(caps)) {
            let (width, height) = overrides.tiling.size((info.width(), info.height()));
            asked.make_mut().set("width", width as i32);
            asked.make_mut().set("height", height as i32);
        }
        let peer = self.obj().static_pad("src")?.peer_query_caps(Some(&asked));
        let wanted = peer.iter().find_map(|structure| structure.get::<String>(caps::TENSOR_FIELD).ok());
        wanted.or_else(|| Some(self.overrides().unwrap_or_default().apply(None, device_of(caps)).ok()?.to_string()))
    }

    fn configure(&self, incaps: &Caps, outcaps: &Caps) -> Result<PreprocessState> {
        let format = Format::from_caps(incaps)?;
        format.check_readable()?;
        let mut wanted = caps::tensor_of(outcaps)?;
        if let (Some(wanted), Some(pad)) = (&mut wanted, self.obj().static_pad("src"))
            && let Some(layout) = layout_query::ask(&pad)
        {
            wanted.transform = layout.input.of_tensor(wanted.desc.dtype, wanted.chw().0);
        }
        let mut overrides = self.overrides().unwrap_or_default();
        let spec = overrides.apply(wanted.as_ref(), device_of(incaps))?;
        gst::info!(CAT, imp = self, "{} of {incaps} into {spec}", format.pixels.name());
        let objects = match &mut overrides.tiling {
            Tiling::Objects(options) if spec.frames().is_some() => {
                options.limit = clips::most_objects(&spec, options.limit, None);
                Some(options.limit)
            }
            _ => None,
        };
        let clips = StreamClips::new(&spec, overrides.frame_step, objects);
        let spec = spec.of_frame();
        let fixed = overrides.tiling.fixed(format.size())?;
        let fixed = fixed.map(|list| list.into_iter().map(Crop::from).collect());
        // Refuses what cannot be made, wherever that is.
        let on_host = || Preprocessor::new(None, format.pixels, size_of_frames(&format), format.color, &spec);
        let on_host = (!spec.is_of_vectors()).then(on_host).transpose()?;
        let preprocessor = match (spec.device == Device::Cuda, caps::is_cuda(incaps)) {
            (true, _) => None,
            (false, true) => return Err(cuda_for_the_cpu()),
            (false, false) => on_host,
        };
        Ok(PreprocessState {
            format,
            spec,
            is_normalised: overrides.is_normalised(),
            clips,
            motion: overrides.motion.filter(|_| !matches!(overrides.tiling, Tiling::Objects(_))).map(MotionFilter::new),
            tiling: overrides.tiling,
            fixed,
            selector: ObjectSelector::default(),
            preprocessor,
            uploads: None,
        })
    }

    fn preprocessor(&self, context: Option<&Context>, format: &Format, spec: &InputSpec) -> Result<Preprocessor> {
        let mut preprocessor = Preprocessor::new(context, format.pixels, size_of_frames(format), format.color, spec)?;
        if let Preprocessor::Device(device) = &mut preprocessor {
            device.set_upload(self.settings.lock().unwrap().upload);
            self.slots().into_iter().for_each(|slots| device.use_slots(slots));
        }
        Ok(preprocessor)
    }

    fn payload(&self, state: &mut PreprocessState, buffer: &mut gst::BufferRef) -> Result<Payload> {
        let size = state.format.size();
        let source = TensorSource::new(self.obj().as_ptr().addr(), &state.format.info);
        if state.spec.is_of_vectors()
            && let Some(payload) = self.sequences(state, buffer, source)?
        {
            return Ok(payload);
        }
        if let Some(clips) = &mut state.clips
            && !self.is_of_clip(clips, buffer)
        {
            let original = self.originals.lock().unwrap().of(buffer);
            let none = ModelInputs::none(Tiles::Frame, source, state.spec.transform, original);
            return Ok(Payload::Input(Arc::new(ModelInputs { clip: Some(clips.pass()), ..none })));
        }
        let mut selected = match &state.tiling {
            Tiling::Objects(options) => {
                let found = read::objects(buffer, size);
                let mut selection = match &mut state.clips {
                    Some(clips) => {
                        let (selection, given_up) = clips.select(&mut state.selector, &found, size, options);
                        self.note_unfinished(given_up);
                        selection
                    }
                    None => state.selector.select(&found, size, options),
                };
                text_lines::choose_widths(&mut selection.sources, &state.spec);
                self.note_objects(&selection, options);
                Some(selection)
            }
            _ => None,
        };
        if let Some(mut selection) = selected.take_if(|selection| selection.sources.is_empty()) {
            let clip = state.clips.as_mut().map(|clips| {
                selection.note_unseen();
                clips.pass()
            });
            let tiles = Tiles::Objects(selection.objects);
            let original = self.originals.lock().unwrap().of(buffer);
            let none = ModelInputs::none(tiles, source, state.spec.transform, original);
            return Ok(Payload::Input(Arc::new(ModelInputs { clip, ..none })));
        }
        let location = state.format.locate(buffer)?;
        let context = if state.is_on_gpu() { Some(self.context_for(&location)?) } else { None };
        let is_normalised = state.is_normalised;
        let PreprocessState { format, spec, clips, fixed, motion, preprocessor, tiling, selector, .. } = state;
        let preprocessor = match preprocessor.take().filter(|preprocessor| preprocessor.context() == context.as_ref()) {
            Some(made) => preprocessor.insert(made),
            None => preprocessor.insert(self.preprocessor(context.as_ref(), format, spec)?),
        };
        let on_gpu = match preprocessor {
            Preprocessor::Device(device) => format.read_on_gpu(buffer, &location, device.context())?,
            Preprocessor::Host { .. } => None,
        };
        let sources = selected.as_ref().map(|selected| &selected.sources[..]).or(fixed.as_deref());
        if let Some(motion) = motion {
            let opens = motion.opens(|gate| match (&on_gpu, &*preprocessor) {
                (Some(frame), Preprocessor::Device(device)) => {
                    frame.order(device.stream())?;
                    let (width, height) = size_of_frames(format);
                    // SAFETY: `Format` checked the planes against their memory, and the frame is mapped until this is done.
                    unsafe { gate.opens_on_gpu(device.stream(), &frame.planes, (format.pixels, width, height)) }
                }
                _ => format.read(buffer, &location, |frame| Ok(gate.opens_for(frame))),
            })?;
            if !opens {
                let still = Some(motion.pass());
                on_gpu.map_or(Ok(()), |frame| frame.end(None))?;
                drop(location);
                self.still.fetch_add(1, Ordering::Relaxed);
                let tiles = if sources.is_none() { Tiles::Frame } else { Tiles::Slices };
                let original = self.originals.lock().unwrap().of(buffer);
                let none = ModelInputs::none(tiles, source, spec.transform, original);
                return Ok(Payload::Input(Arc::new(ModelInputs { still, ..none })));
            }
        }
        let tensors: SmallVec<[Tensors; 1]> = match (on_gpu, &mut *preprocessor) {
            (Some(frame), Preprocessor::Device(device)) => {
                frame.order(device.stream())?;
                // SAFETY: `Format` checked the planes against their memory, and the buffer keeps it until its TensorMeta is
                // freed, which waits for the fence. What the buffer does not keep is waited for by `end`.
                let tensors: SmallVec<[Tensors; 1]> = unsafe {
                    match sources {
                        Some(crops) => device.regions_of_gpu(&frame.planes, crops)?.into(),
                        None => [device.of_gpu(&frame.planes)?].into_iter().collect(),
                    }
                };
                frame.end(tensors.first().and_then(Tensors::ready))?;
                tensors
            }
            (_, preprocessor) => format.read(buffer, &location, |frame| match sources {
                Some(crops) => Ok(preprocessor.regions_of_host(frame, crops)?.into()),
                None => Ok([preprocessor.of_host(frame)?].into_iter().collect()),
            })?,
        };
        drop(location);
        motion.iter_mut().for_each(MotionFilter::done);
        let letterbox = |index: usize| match sources {
            Some(crops) => spec.letterbox(crops[index].source),
            None => *preprocessor.letterbox(),
        };
        let input = |(index, tensors)| ModelInput { tensors: Arc::new(tensors), letterbox: letterbox(index) };
        let list: SmallVec<[ModelInput; 1]> = tensors.into_iter().enumerate().map(input).collect();
        let is_whole = sources.is_none();
        let clip = match (clips, list.first()) {
            (Some(clips), Some(frame)) => {
                self.note_unfinished(clips.follow(context.as_ref()));
                let times = clips::times(buffer, &format.info);
                let clip = match (&mut selected, &*tiling) {
                    (Some(selection), Tiling::Objects(ObjectOptions { interval, .. })) => {
                        clips.take_objects(&list, (selection, selector), times, *interval, || self.slots())?
                    }
                    _ => clips.take(&frame.tensors, times, || self.slots())?,
                };
                self.clips.lock().unwrap().full += clip.full.len() as u64;
                Some(clip)
            }
            _ => None,
        };
        let tiles = match selected {
            Some(ObjectSelection { objects, .. }) => Tiles::Objects(objects),
            None if is_whole => Tiles::Frame,
            None => Tiles::Slices,
        };
        let original = self.originals.lock().unwrap().of(buffer);
        let none = ModelInputs::none(tiles, source, spec.transform, original);
        Ok(Payload::Input(Arc::new(ModelInputs { list, clip, is_normalised, ..none })))
    }

    /// Where tensors for the model are to lie.
    fn slots(&self) -> Option<BatchPool> {
        self.obj().static_pad("src").and_then(|pad| batch_pool::ask(&pad))
    }

    /// The next frame has nothing to do with those before: it is inferred.
    fn forget_motion(&self) {
        if let Some(motion) = self.state.lock().unwrap().as_mut().and_then(|state| state.motion.as_mut()) {
            motion.forget();
        }
    }

    /// Objects of the next frame may have ids that others had before: they are looked at again.
    fn forget_objects(&self) {
        if let Some(state) = self.state.lock().unwrap().as_mut() {
            state.selector = ObjectSelector::default();
        }
    }

    /// The context of the frame's memory, else the pipeline's.
    fn context_for(&self, location: &FrameLocation) -> Result<Context> {
        let device = self.settings.lock().unwrap().cuda_device_id;
        match location {
            FrameLocation::Nvmm(frame) => match frame.gpu() {
                Some(gpu) => self.cuda.follow_primary(gpu, device),
                None => self.cuda.ensure(&*self.obj(), device),
            },
            FrameLocation::Cuda(memory) => {
                let context = memory.context()?;
                self.cuda.follow(&context, device)?;
                Ok(context)
            }
            FrameLocation::Host => self.cuda.ensure(&*self.obj(), device),
        }
    }
}

/// Where tensors of such frames are made, unless downstream asks for another device. A GPU that is there reads NVMM memory
/// of any kind.
fn device_of(caps: &gst::CapsRef) -> Device {
    if caps::is_cuda(caps) || caps::is_nvmm(caps) && driver::available().is_ok() { Device::Cuda } else { Device::Host }
}

/// Width and height.
fn size_of_frames(format: &Format) -> (usize, usize) {
    (format.info.width() as usize, format.info.height() as usize)
}

fn cuda_for_the_cpu() -> Error {
    Error::new(ErrorKind::Negotiation, "Cannot use frames in CUDA memory")
        .cause("the model takes tensors of the CPU")
        .remedy(
            "Put cudadownload before trtpreprocess, or let the model run on the GPU with backend=tensorrt; for one on a server on \
             this machine set shared-memory=cuda",
        )
}

impl TrtPreprocess {
    fn prepare_state(&self, transition: gst::StateChange) {
        VideoFilter::prepare_state(self, transition);
        // The pads are deactivated once the streaming thread has returned.
        if transition == gst::StateChange::PausedToReady {
            self.waits.set_stopped(true);
        }
    }
}

impl Properties for TrtPreprocess {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property(
            "Frames, those without motion, clips, and what making their tensors costs: time on the host, waits for the GPU, bytes \
             copied, use of the pool",
        )]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| {
            let totals = self.stats.read();
            let ObjectCounts { objects, left_out, .. } = *self.counts.lock().unwrap();
            let ClipCounts { full, unfinished, .. } = *self.clips.lock().unwrap();
            let (lacked, still) = (self.memory_wait.count(), self.still.load(Ordering::Relaxed));
            let counts = [
                ("frames", totals.done),
                ("still", still),
                ("objects", objects),
                ("left-out", left_out),
                ("clips", full),
                ("unfinished-clips", unfinished),
                ("out-of-memory", lacked),
            ];
            stats::structure(&totals, counts).to_value()
        })
    }
}

video_filter! {
    TrtPreprocess: "GstTrtPreprocess",
    name: "Object detection: preprocessing (CUDA or CPU)",
    classification: "Filter/Converter/Video",
    description: "Turns each frame into the input tensor of a model",
}

impl BaseTransformImpl for TrtPreprocess {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    /// The picture's caps are the same on both sides; those of the source also name the tensor.
    ///
    /// The base class asks the peer only while caps are open, and fixed video caps are closed but for the tensor. So it is
    /// asked here.
    fn transform_caps(&self, direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        let mut caps = caps::without_tensor(&caps::usable(caps));
        if direction == PadDirection::Sink
            && caps.is_fixed()
            && let Some(tensor) = self.tensor(&caps)
        {
            caps.make_mut().set(caps::TENSOR_FIELD, tensor);
        }
        Some(caps::filtered(caps, filter))
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        if direction == PadDirection::Sink {
            match query.view() {
                gst::QueryView::Caps(query) => query.filter().into_iter().for_each(|caps| self.explain_refusal(caps)),
                gst::QueryView::AcceptCaps(query) => self.explain_refusal(query.caps()),
                _ => {}
            }
        }
        self.answer(direction, query)
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        let is_gap = match event.view() {
            gst::EventView::Gap(gap) => !self.is_in_clip(gap.duration()),
            _ => false,
        };
        let is_cut = self.stream.lock().unwrap().is_cut(&event);
        if is_cut || is_gap {
            self.end_clips();
        }
        if is_cut {
            self.forget_objects();
        }
        self.warn_of_classes(&event);
        match event.type_() {
            gst::EventType::Eos => {
                self.warn_of_lacks();
                let ended = self.end_clips();
                self.warn_of_short_stream(ended);
            }
            gst::EventType::FlushStart => self.waits.set_flushing(true),
            gst::EventType::FlushStop => {
                self.waits.set_flushing(false);
                self.forget_motion();
            }
            gst::EventType::Segment => self.forget_motion(),
            // Which tensor the model wants has to be known before caps are agreed on.
            gst::EventType::Caps => {
                if let Some(pad) = self.obj().static_pad("src") {
                    model_query::wait(&pad);
                }
            }
            _ => {}
        }
        self.parent_sink_event(event)
    }

    /// Other tensors of the same frames concern nothing upstream.
    fn src_event(&self, event: gst::Event) -> bool {
        caps::asks_for_other_tensors(&event) || self.parent_src_event(event)
    }

    fn set_caps(&self, incaps: &Caps, outcaps: &Caps) -> std::result::Result<(), gst::LoggableError> {
        let passthrough = caps::has_no_tensor(outcaps);
        self.passthrough.store(passthrough, Ordering::Relaxed);
        if passthrough {
            self.end_clips();
            *self.state.lock().unwrap() = None;
            return Ok(());
        }
        let state = self.configure(incaps, outcaps).map_err(|error| {
            // What downstream takes no frames of, it has refused with the reason.
            let is_refused = || self.obj().src_pad().peer_query_caps(Some(incaps)).is_empty();
            if !is_refused() && self.is_new_caps_error(&error) {
                self.obj().post_error(&error);
            }
            gst::loggable_error!(CAT, "{error}")
        })?;
        self.warn_of_upload(&state, incaps);
        self.warn_of_effect(&state);
        self.replace_state(state);
        *self.last_caps_error.lock().unwrap() = None;
        Ok(())
    }

    /// The picture here is the one that the caps describe, so upstream must not leave cropping to downstream.
    fn propose_allocation(
        &self,
        decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> std::result::Result<(), gst::LoggableError> {
        // Fails where downstream asks for nothing, which is no reason to have none here.
        let _ = self.parent_propose_allocation(decide_query, query);
        let device = self.settings.lock().unwrap().cuda_device_id;
        self.cuda.propose(&*self.obj(), device, query);
        let on_gpu = self.state.lock().unwrap().as_ref().is_some_and(PreprocessState::is_on_gpu);
        if on_gpu && let Ok(context) = self.cuda.ensure(&*self.obj(), device) {
            crate::gst::memory::pinned::propose(&context, query);
        }
        if let Some(index) = query.find_allocation_meta::<gst_video::VideoCropMeta>() {
            query.remove_nth_allocation_meta(index);
        }
        Ok(())
    }

    fn submit_input_buffer(
        &self,
        is_discont: bool,
        inbuf: gst::Buffer,
    ) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        self.originals.lock().unwrap().keep(&inbuf);
        self.parent_submit_input_buffer(is_discont, inbuf)
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        let stage = Span::begin(self.settings.lock().unwrap().measure);
        // Taken out, so that it is not locked when downstream is asked and messages are posted.
        let state = self.state.lock().unwrap().take();
        let payload = match state {
            Some(mut state) => {
                let make = || {
                    let made = self.payload(&mut state, buffer);
                    made.inspect_err(|_| state.selector.try_again()).map_err(Interrupted::from)
                };
                let payload = self.memory_wait.retry(&*self.obj(), &self.waits, make);
                *self.state.lock().unwrap() = Some(state);
                payload
            }
            None if self.passthrough.load(Ordering::Relaxed) => return Ok(gst::FlowSuccess::Ok),
            None => return Err(gst::FlowError::NotNegotiated),
        };
        let payload = payload.map_err(|interrupted| match interrupted {
            Interrupted::Flushing => gst::FlowError::Flushing,
            Interrupted::Failed(error) => {
                self.obj().post_error(&error);
                gst::FlowError::Error
            }
        })?;
        let source = payload.inputs().source;
        TensorMeta::set(buffer, Arc::new(payload));
        geometry::begin(buffer, &source);
        self.stats.add(stage, 0);
        Ok(gst::FlowSuccess::Ok)
    }

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        let overrides = self.settings.lock().unwrap().read().map_err(|error| error_message(&error))?;
        *self.overrides.lock().unwrap() = Some(overrides);
        self.stats.reset();
        self.still.store(0, Ordering::Relaxed);
        self.memory_wait.reset();
        self.waits.set_stopped(false);
        self.waits.set_flushing(false); // pads forget a flush that was not ended, too
        *self.counts.lock().unwrap() = ObjectCounts::default();
        *self.clips.lock().unwrap() = ClipCounts::default();
        *self.stream.lock().unwrap() = VideoStream::default();
        self.has_warned_of_upload.store(false, Ordering::Relaxed);
        self.has_warned_of_effect.store(false, Ordering::Relaxed);
        *self.checked_classes.lock().unwrap() = CheckedClasses::default();
        *self.last_caps_error.lock().unwrap() = None;
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        *self.overrides.lock().unwrap() = None;
        *self.state.lock().unwrap() = None;
        self.originals.lock().unwrap().clear();
        self.cuda.clear();
        Ok(())
    }
}
