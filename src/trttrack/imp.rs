// SPDX-License-Identifier: MPL-2.0
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;

use super::settings::{PROPERTIES, TrackSettings};
use crate::core::counters::{Span, Stats};
use crate::core::error::{Error, ErrorKind};
use crate::gst::meta::read::{self, MetaObjects};
use crate::gst::meta::track::{self, RegionFacts, Tracking};
use crate::gst::report::{Report, may_set};
use crate::gst::stats;
use crate::gst::stream::{VideoStream, any_video_templates};
use crate::image::geometry::BBox;
use crate::track::{TrackInput, Tracker};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trttrack", gst::DebugColorFlags::empty(), Some("Ids for objects")));

/// State since start() and set_caps().
struct TrackingState {
    tracker: Tracker,
    stream: VideoStream,
    has_warned: bool,
    inputs: Vec<TrackInput>,
    /// Indices of the frame's objects that are followed.
    followed: Vec<usize>,
    /// The tracker's input in the last frame that a model has seen: the types and boxes.
    seen: Vec<(u32, BBox)>,
    facts: Vec<RegionFacts>,
    trackings: Vec<Tracking>,
}

/// Lock order: settings before state; settings are copied, and never locked while a frame is handled.
#[derive(Default)]
pub struct TrtTrack {
    settings: Mutex<TrackSettings>,
    state: Mutex<Option<TrackingState>>,
    stats: Stats,
}

impl TrackingState {
    fn new(tracker: Tracker) -> Self {
        TrackingState {
            tracker,
            stream: VideoStream::default(),
            has_warned: false,
            inputs: Vec::new(),
            followed: Vec::new(),
            seen: Vec::new(),
            facts: Vec::new(),
            trackings: Vec::new(),
        }
    }

    /// Another part of the stream, or another stream, follows.
    fn reset(&mut self) {
        self.tracker.reset();
        self.seen.clear();
    }

    /// Finds the tracking of each object, and returns whether the objects are only predicted.
    fn follow(&mut self, settings: &TrackSettings, objects: &MetaObjects) -> bool {
        let TrackingState { tracker, inputs, followed, seen, facts, trackings, .. } = self;
        trackings.clear();
        trackings.resize(objects.annotations.len(), Tracking::default());
        let wanted = |(number, annotation): &(usize, &_)| settings.wants(annotation) && !has_id(objects, *number);
        followed.clear();
        followed.extend(objects.annotations.iter().enumerate().filter(wanted).map(|(number, _)| number));
        let name = |number: usize| match facts.get(number) {
            Some(facts) => facts.name,
            None => track::name_of(&objects.annotations[number].label),
        };
        let is_held = |&number: &usize| facts.get(number).is_some_and(|facts| facts.is_held);
        let VideoStream { now, frame_duration, .. } = self.stream;
        if !followed.is_empty() && followed.iter().all(is_held) {
            let tracked = tracker.predict(&settings.options, now, frame_duration);
            for (place, &number) in followed.iter().enumerate() {
                let this = (name(number), objects.annotations[number].bbox);
                // Usually they are in the order in which they were seen.
                let is_same = |at: &usize| seen.get(*at) == Some(&this);
                let Some(at) = Some(place).filter(is_same).or_else(|| (0..seen.len()).find(is_same)) else { continue };
                if let Some(object) = tracked[at] {
                    trackings[number] = Tracking { object: Some(object), place: Some(object.bbox) };
                }
            }
            return true;
        }
        inputs.clear();
        seen.clear();
        for &number in &*followed {
            let annotation = &objects.annotations[number];
            let score = annotation.confidence.unwrap_or(1.0);
            inputs.push(TrackInput { bbox: annotation.bbox, score, class: name(number) });
            seen.push((name(number), annotation.bbox));
        }
        let tracked = tracker.update(&settings.options, inputs, now, frame_duration);
        for (&number, &object) in followed.iter().zip(tracked) {
            trackings[number].object = object;
        }
        false
    }
}

/// Whether another tracker has given an object an id.
fn has_id(objects: &MetaObjects, number: usize) -> bool {
    objects.annotations[number].track_id.is_some()
}

impl TrtTrack {
    fn process(&self, state: &mut TrackingState, settings: &TrackSettings, frame: &mut gst::Buffer) {
        let stage = Span::begin(false);
        let at = state.stream.advance(&self.obj().segment(), frame.pts());
        let (number, size) = (at.number, state.stream.size);

        let mut objects = read::objects(frame, size);
        state.facts.clear();
        state.facts.extend(track::region_facts(frame));
        if !state.has_warned && (0..objects.annotations.len()).any(|number| has_id(&objects, number)) {
            state.has_warned = true;
            self.obj().post_warning(&foreign_ids());
        }
        let is_predicted = state.follow(settings, &objects);
        let count = state.trackings.iter().filter(|tracking| tracking.object.is_some()).count();
        if count > 0 {
            track::write(frame.make_mut(), &mut objects, &state.trackings, size);
        }
        gst::trace!(CAT, imp = self, "frame {number}: {count} of {} objects", objects.annotations.len());
        if settings.post_messages {
            let content = track::message(at.stream_time, number, size, &objects.annotations, is_predicted);
            let _ = self.obj().post_message(gst::message::Element::builder(content).src(&*self.obj()).build());
        }
        self.stats.add(stage, count);
    }
}

fn foreign_ids() -> Error {
    Error::new(ErrorKind::Settings, "Objects have ids of another tracker")
        .cause("an element before trttrack gives them, such as gvatrack, ioutracker or another trttrack")
        .remedy("Those objects keep their ids and are not followed here; use one tracker")
}

#[glib::object_subclass]
impl ObjectSubclass for TrtTrack {
    const NAME: &'static str = "GstTrtTrack";
    type Type = super::TrtTrack;
    type ParentType = gst_base::BaseTransform;
}

impl ObjectImpl for TrtTrack {
    fn properties() -> &'static [glib::ParamSpec] {
        static SPECS: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let stats = stats::property("Frames, objects with an id, and the time that following them takes");
            PROPERTIES.specs().chain([stats]).collect()
        });
        &SPECS
    }

    fn set_property(&self, _id: usize, value: &glib::Value, property: &glib::ParamSpec) {
        if may_set(&*self.obj(), property) {
            gst::info!(CAT, imp = self, "{} = {value:?}", property.name());
            PROPERTIES.set(&mut self.settings.lock().unwrap(), property.name(), value);
        }
    }

    fn property(&self, _id: usize, property: &glib::ParamSpec) -> glib::Value {
        if property.name() == "stats" {
            let totals = self.stats.read();
            return stats::structure(&totals, [("frames", totals.done), ("objects", totals.objects)]).to_value();
        }
        PROPERTIES.get(&self.settings.lock().unwrap(), property.name())
    }
}

impl GstObjectImpl for TrtTrack {}

impl ElementImpl for TrtTrack {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Object detection: tracker",
                "Filter/Analyzer/Video",
                "Gives the objects of metas ids that stay the same from frame to frame",
                env!("CARGO_PKG_AUTHORS"),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(any_video_templates);
        &*TEMPLATES
    }
}

impl BaseTransformImpl for TrtTrack {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        self.stats.reset();
        let tracker = Tracker::new(self.settings.lock().unwrap().tracker);
        *self.state.lock().unwrap() = Some(TrackingState::new(tracker));
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = None;
        Ok(())
    }

    /// Buffers pass as they are, so those of downstream's pool do too.
    fn propose_allocation(
        &self,
        _decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> Result<(), gst::LoggableError> {
        self.parent_propose_allocation(None, query)
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        if let Some(state) = self.state.lock().unwrap().as_mut()
            && state.stream.is_cut(&event, &self.obj().segment())
        {
            state.reset();
        }
        self.parent_sink_event(event)
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let taken = match self.state.lock().unwrap().as_mut() {
            Some(state) => state.stream.set_caps(incaps, "trttrack").map(|is_another| {
                if is_another {
                    state.reset();
                }
            }),
            None => return Err(gst::loggable_error!(CAT, "caps before the start")),
        };
        taken.map_err(|error| {
            self.obj().post_error(&error);
            gst::loggable_error!(CAT, "{error}")
        })
    }

    fn generate_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(mut frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
        let settings = self.settings.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        let state = state.as_mut().filter(|state| state.stream.size.0 > 0).ok_or(gst::FlowError::NotNegotiated)?;
        self.process(state, &settings, &mut frame);
        Ok(GenerateOutputSuccess::Buffer(frame))
    }
}
