// SPDX-License-Identifier: MPL-2.0
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::gallery::MatchDevice;
use gsttrt_core::identity::Identities;

use super::identities::CameraIdentities;
use super::names::ObjectNames;
use super::settings::{MatchSettings, PROPERTIES};
use crate::gst::awaited::{Awaited, FRAMES_WITHOUT};
use crate::gst::classes_event::{self, CheckedClasses};
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::Properties;
use crate::gst::meta::vector::{self, AttachedVector};
use crate::gst::meta::{read, unseen};
use crate::gst::meta_filter::{MetaFilter, meta_filter};
use crate::gst::overlay::context_of;
use crate::gst::report::Report;
use crate::gst::stats;
use crate::gst::stream::{VideoStream, any_video_templates};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trtmatch", gst::DebugColorFlags::empty(), Some("Names for vectors")));

/// State since start() and set_caps().
pub struct MatchState {
    names: Option<ObjectNames>,
    identities: Option<CameraIdentities>,
    stream: VideoStream,
    /// Vectors of objects.
    awaited: Awaited,
    checked: CheckedClasses,
}

/// Lock order: settings before state; settings are copied, and never locked while a frame is handled.
#[derive(Default)]
pub struct TrtMatch {
    settings: Mutex<MatchSettings>,
    state: Mutex<Option<MatchState>>,
    /// Since the start, for its counts.
    identities: Mutex<Option<Arc<Identities>>>,
    cuda: CudaContextSlot,
    stats: Stats,
    /// Vectors that a GPU has compared with the gallery.
    on_gpu: AtomicU64,
}

/// What was found in a frame.
#[derive(Default)]
struct MatchedFrame {
    /// Objects with a name, or with an id over cameras.
    count: usize,
    /// Vectors that a GPU has compared with the gallery.
    on_gpu: usize,
    told: Vec<gst::Structure>,
    warnings: Vec<Error>,
}

impl MatchState {
    /// Another part of the stream, or another stream, follows.
    fn reset(&mut self) {
        self.names.iter_mut().for_each(ObjectNames::reset);
        self.identities.iter_mut().for_each(CameraIdentities::reset);
    }

    /// Finds the names and the ids of a frame. `base` is the time on the clock of the pipeline at which the stream begins, if it plays;
    /// `find_gpu` finds the GPU that the pipeline works on.
    ///
    /// # Errors
    /// `DeviceLost`, where the GPU cannot be used any more.
    fn process(
        &mut self,
        settings: &MatchSettings,
        frame: &mut gst::Buffer,
        base: Option<u64>,
        find_gpu: impl Fn(&gst::BufferRef) -> Option<Context>,
    ) -> Result<MatchedFrame> {
        let at = self.stream.advance(frame.pts());
        if at.is_cut {
            self.reset();
        }
        let objects = read::objects(frame, self.stream.size);
        let of_region = |region: gst::MetaRef<VideoRegionOfInterestMeta>| vector::of_region(&region);
        let vectors: Vec<Vec<AttachedVector>> = frame.iter_meta::<VideoRegionOfInterestMeta>().map(of_region).collect();
        let mut found = MatchedFrame::default();
        let mut are_found = vec![false; vectors.len()];
        if let Some(names) = &mut self.names {
            // By then the elements before have found theirs.
            if vectors.iter().any(|of_region| !of_region.is_empty()) {
                names.find_gpu(|| find_gpu(frame));
            }
            let named = names.name_objects(&settings.options, frame, &at, (&objects, vectors.as_slice()))?;
            are_found = named.are_named;
            (found.told, found.on_gpu) = (named.told, named.on_gpu);
            found.warnings.extend(names.take_warning().into_iter().chain(named.warnings));
        }
        // A frame that no model has looked at, and where nothing is repeated, does not tell that nobody is there.
        let is_seen = !vectors.is_empty() || !unseen::is_marked(frame);
        if let (Some(identities), Some(base)) = (&mut self.identities, base.filter(|_| is_seen)) {
            let now = base.saturating_add(self.stream.now);
            let identified = identities.identify(frame, &at, now, (&objects, vectors.as_slice()));
            are_found.iter_mut().zip(identified.have_ids).for_each(|(is_found, has_id)| *is_found |= has_id);
            found.told.extend(identified.told);
            found.warnings.extend(identified.warning);
        }
        found.warnings.extend(self.missing(&vectors));
        found.count = are_found.into_iter().filter(|is_found| *is_found).count();
        Ok(found)
    }

    /// A warning where nobody can be recognised, as objects have no vectors.
    fn missing(&mut self, vectors: &[Vec<AttachedVector>]) -> Option<Error> {
        self.awaited.see(vectors.iter().any(|of_region| !of_region.is_empty()), !vectors.is_empty());
        self.awaited.take_overdue().then(no_vectors)
    }
}

fn no_vectors() -> Error {
    let what = format!("Nobody is recognised: no object of the first {FRAMES_WITHOUT} frames has a vector");
    Error::new(ErrorKind::Settings, what).remedy(
        "Before trtmatch put trtpreprocess regions=objects ! trtinfer ! trtnms, with a model that gives vectors. If \
         they are there, set a smaller min-object-size on trtpreprocess",
    )
}

impl Properties for TrtMatch {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property(
            "Frames, objects with a name or an id over cameras, vectors that a GPU has compared with the gallery, and what finding \
             names costs: time, waits for the GPU, bytes copied",
        )]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| {
            let totals = self.stats.read();
            let on_gpu = self.on_gpu.load(Ordering::Relaxed);
            let counts = [("frames", totals.done), ("objects", totals.objects), ("compared-on-gpu", on_gpu)];
            let mut built = stats::structure(&totals, counts);
            if let Some(identities) = &*self.identities.lock().unwrap() {
                let counts = identities.counts();
                built.set("identities", counts.known);
                built.set("identities-forgotten", counts.forgotten());
            }
            built.to_value()
        })
    }
}

meta_filter! {
    TrtMatch: "GstTrtMatch",
    factory: "trtmatch",
    name: "Object recognition: names by a gallery, ids over cameras",
    classification: "Filter/Analyzer/Video",
    description: "Gives objects names by their vectors, from a gallery of known ones, and one id on several cameras",
    pads: any_video_templates(),
}

impl MetaFilter for TrtMatch {
    type State = MatchState;

    fn open(&self) -> Result<MatchState> {
        let settings = self.settings.lock().unwrap().clone();
        let mut names = settings.gallery()?.map(ObjectNames::open).transpose()?;
        let identities = CameraIdentities::join(&settings, &self.obj().name())?;
        self.on_gpu.store(0, Ordering::Relaxed);
        if let Some(names) = &mut names {
            let gallery = names.gallery();
            gst::info!(CAT, imp = self, "{} names, {} vectors", gallery.names().len(), gallery.len());
            match settings.device {
                MatchDevice::Auto => names.seek_gpu(),
                MatchDevice::Cpu => {}
                MatchDevice::Cuda => {
                    let context = self.cuda.ensure(&*self.obj(), settings.cuda_device_id);
                    names
                        .use_gpu(&context.map_err(|error| error.and_remedy("With device=cpu, trtmatch needs no GPU"))?);
                }
            }
        }
        if let Some(warning) = settings.without_effect() {
            self.obj().post_warning(&warning);
        }
        *self.identities.lock().unwrap() = identities.as_ref().map(|identities| identities.table.clone());
        let (stream, awaited, checked) = Default::default();
        Ok(MatchState { names, identities, stream, awaited, checked })
    }

    fn close(&self) {
        *self.identities.lock().unwrap() = None;
        self.cuda.clear();
    }

    fn resized(state: &mut MatchState) -> Option<Error> {
        state.reset();
        None
    }

    fn see_event(&self, event: &gst::Event, is_cut: bool) {
        if is_cut && let Some(state) = self.state.lock().unwrap().as_mut() {
            state.reset();
        }
        let Some(classes) = classes_event::read(event) else { return };
        let MatchSettings { identities, identity_classes, .. } = self.settings.lock().unwrap().clone();
        let wanted = if identities.is_empty() { "" } else { identity_classes.as_str() };
        let consequence = "Nothing of that class gets an id over cameras";
        let mut state = self.state.lock().unwrap();
        let unknown =
            state.as_mut().map(|state| state.checked.warnings(classes, "identity-classes", wanted, consequence));
        drop(state); // a handler of the bus may do anything
        unknown.iter().flatten().for_each(|warning| self.obj().post_warning(warning));
    }

    fn process(&self, frame: &mut gst::Buffer) -> std::result::Result<(), gst::FlowError> {
        let stage = Span::begin(false);
        let settings = self.settings.lock().unwrap().clone();
        // Taken out, so that it is not locked when messages are posted: a handler of the bus may do anything.
        let has_caps = |state: &mut MatchState| state.stream.size.0 > 0;
        let mut state = self.state.lock().unwrap().take_if(has_caps).ok_or(gst::FlowError::NotNegotiated)?;
        let find_gpu = |frame: &gst::BufferRef| self.find_gpu(frame, settings.cuda_device_id);
        let found = state.process(&settings, frame, self.base_time(), find_gpu);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                *self.state.lock().unwrap() = Some(state);
                self.obj().post_error(&error);
                return Err(gst::FlowError::Error);
            }
        };
        found.warnings.iter().for_each(|warning| self.obj().post_warning(warning));
        gst::trace!(CAT, imp = self, "{} objects with names or ids", found.count);
        if settings.post_messages {
            for content in found.told {
                let _ = self.obj().post_message(gst::message::Element::builder(content).src(&*self.obj()).build());
            }
        }
        *self.state.lock().unwrap() = Some(state);
        self.on_gpu.fetch_add(found.on_gpu as u64, Ordering::Relaxed);
        self.stats.add(stage, found.count);
        Ok(())
    }
}

impl TrtMatch {
    /// The context of the frame, or that in which other elements work, if it is of the user's GPU.
    fn find_gpu(&self, frame: &gst::BufferRef, device: i32) -> Option<Context> {
        let of_frame = context_of(frame).ok().flatten().filter(|context| device < 0 || context.device() == device);
        of_frame.or_else(|| self.cuda.find(&*self.obj(), device))
    }

    /// When the stream begins, on the clock that pipelines have in common, in nanoseconds. Before the pipeline plays, nobody knows.
    fn base_time(&self) -> Option<u64> {
        let element = self.obj();
        let is_playing = element.current_state() == gst::State::Playing;
        is_playing.then(|| element.base_time().map_or(0, gst::ClockTime::nseconds))
    }
}
