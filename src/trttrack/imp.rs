// SPDX-License-Identifier: MPL-2.0
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::geometry::BBox;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::track::{History, TextVotes, TrackInput, Tracker};

use super::settings::{PROPERTIES, TrackSettings};
use super::vectors::{FrameVectors, recycled};
use crate::gst::awaited::{Awaited, FRAMES_WITHOUT};
use crate::gst::classes_event::{self, ClassesOfModels};
use crate::gst::element::Properties;
use crate::gst::meta::attributes::{self, ReadText};
use crate::gst::meta::frame_mark::NOTHING_HELD;
use crate::gst::meta::read::{MetaObjects, ObjectReader};
use crate::gst::meta::track::{self, RegionFacts, Tracking};
use crate::gst::meta_filter::{MetaFilter, meta_filter};
use crate::gst::report::Report;
use crate::gst::stats;
use crate::gst::stream::{VideoStream, any_video_templates};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trttrack", gst::DebugColorFlags::empty(), Some("Ids for objects")));

/// State since start() and set_caps(). Once the busiest frame has passed, boxes and vectors have their memory here, and none is allocated
/// for them; GStreamer allocates the metas of ids.
pub struct TrackingState {
    /// As they were when the frame came.
    settings: TrackSettings,
    /// The classes that objects can have, where that is known, and whether those of the settings were looked up in them.
    known: Option<ClassesOfModels>,
    are_checked: bool,
    tracker: Tracker,
    stream: VideoStream,
    /// Of ids of another tracker, or there is a reason for them.
    has_warned: bool,
    /// Vectors of objects, of trackers that are meant for them.
    awaited: Awaited,
    has_told_of_mixed_vectors: bool,
    reader: ObjectReader,
    objects: MetaObjects,
    /// Indices of the frame's objects that are followed.
    followed: Vec<usize>,
    /// The tracker's input in the last frame that a model has seen: the types and boxes.
    seen: Vec<(u32, BBox)>,
    facts: Vec<RegionFacts>,
    /// What the object of each region looks like in this frame.
    vectors: FrameVectors,
    /// Empty between frames.
    inputs: Vec<TrackInput<'static>>,
    trackings: Vec<Tracking>,
    /// What was read of each object, one for each of its texts.
    texts: History<Vec<TextVotes>>,
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
            awaited: if tracker.needs_vectors() { Awaited::default() } else { Awaited::nothing() },
            has_told_of_mixed_vectors: false,
            settings: TrackSettings::default(),
            known: None,
            are_checked: false,
            tracker,
            stream: VideoStream::default(),
            has_warned: false,
            reader: ObjectReader::default(),
            objects: MetaObjects::default(),
            followed: Vec::new(),
            seen: Vec::new(),
            facts: Vec::new(),
            vectors: FrameVectors::default(),
            inputs: Vec::new(),
            trackings: Vec::new(),
            texts: History::default(),
        }
    }

    /// Another part of the stream, or another stream, follows.
    fn reset(&mut self) {
        self.tracker.reset();
        self.seen.clear();
        self.texts = History::default();
    }

    /// Finds the tracking of each object, and returns whether the objects are only predicted. `is_held_without`: the model has not
    /// looked at the frame, and repeats nothing.
    fn follow(&mut self, objects: &MetaObjects, is_held_without: bool) -> bool {
        let TrackingState { settings, tracker, followed, seen, facts, vectors, trackings, .. } = self;
        trackings.clear();
        trackings.resize(objects.annotations.len(), Tracking::default());
        let wanted = |(number, annotation): &(usize, &_)| settings.wants(annotation) && !has_id(objects, *number);
        followed.clear();
        followed.extend(objects.annotations.iter().enumerate().filter(wanted).map(|(number, _)| number));
        let name = |number: usize| match facts.get(number) {
            Some(facts) => facts.name,
            None => track::name_of(&objects.annotations[number].label),
        };
        // Where nothing moves, objects are seen in their places again.
        let is_skipped = |facts: &RegionFacts| facts.is_held && !facts.is_still;
        let is_held = |&number: &usize| facts.get(number).is_some_and(is_skipped);
        let VideoStream { scene, frame_duration, .. } = self.stream;
        if followed.iter().all(is_held) && (is_held_without || facts.iter().any(is_skipped)) {
            let tracked = tracker.predict(&settings.options, scene, frame_duration);
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
        seen.clear();
        seen.extend(followed.iter().map(|&number| (name(number), objects.annotations[number].bbox)));
        let input = |(&number, &(class, bbox)): (&usize, &(u32, BBox))| {
            let score = objects.annotations[number].confidence.unwrap_or(1.0);
            TrackInput { bbox, score, class, vector: vectors.of(number) }
        };
        let mut inputs = recycled(std::mem::take(&mut self.inputs));
        inputs.extend(followed.iter().zip(&*seen).map(input));
        let tracked = tracker.update(&settings.options, &inputs, scene, frame_duration);
        for (&number, &object) in followed.iter().zip(tracked) {
            trackings[number].object = object;
        }
        self.inputs = recycled(inputs);
        false
    }

    /// Warnings of classes to follow that no object can have, once these are known.
    fn unknown_classes(&mut self) -> Vec<Error> {
        let Some(known) = self.known.as_ref().filter(|_| !self.are_checked) else { return Vec::new() };
        self.are_checked = true;
        known.warnings("classes", &self.settings.classes, "Nothing of that class is followed")
    }

    /// A warning where objects cannot be told apart by vectors as it was wanted.
    fn missing(&mut self) -> Option<Error> {
        self.awaited.see(self.vectors.has_any(), self.vectors.regions() > 0);
        if self.awaited.take_overdue() {
            return Some(no_vectors());
        }
        let is_new = self.tracker.has_mixed_vectors() && !self.has_told_of_mixed_vectors;
        self.has_told_of_mixed_vectors |= is_new;
        is_new.then(mixed_vectors)
    }
}

/// What the reads of an object say in total, once it has an id.
fn decide(texts: &mut History<Vec<TextVotes>>, read: ReadText) -> Option<(String, f32)> {
    let of_object = texts.entry(read.id);
    if of_object.len() <= read.number {
        of_object.resize(read.number + 1, TextVotes::default());
    }
    let votes = &mut of_object[read.number];
    if !read.is_held {
        votes.add(read.text, read.confidence);
    }
    votes.decision()
}

/// Whether another tracker has given an object an id.
fn has_id(objects: &MetaObjects, number: usize) -> bool {
    objects.annotations[number].track_id.is_some()
}

impl TrtTrack {
    fn track(&self, state: &mut TrackingState, frame: &mut gst::Buffer) {
        let stage = Span::begin(false);
        let at = state.stream.advance(frame.pts());
        if at.is_cut {
            state.reset();
        }
        let (number, size) = (at.number, state.stream.size);
        state.unknown_classes().iter().for_each(|warning| self.obj().post_warning(warning));

        let mut objects = std::mem::take(&mut state.objects);
        state.reader.read(&mut objects, frame, size);
        state.facts.clear();
        state.facts.extend(track::region_facts(frame));
        state.vectors.clear();
        if state.tracker.uses_vectors() {
            state.vectors.read(frame);
        }
        // Behind a reader it may be there for the votes on texts alone.
        state.has_warned |= objects.annotations.iter().any(attributes::has_texts);
        if !state.has_warned && (0..objects.annotations.len()).any(|number| has_id(&objects, number)) {
            state.has_warned = true;
            self.obj().post_warning(&foreign_ids());
        }
        let is_predicted = state.follow(&objects, NOTHING_HELD.is_on(frame));
        state.missing().into_iter().for_each(|warning| self.obj().post_warning(&warning));
        let count = state.trackings.iter().filter(|tracking| tracking.object.is_some()).count();
        if count > 0 {
            let TrackingState { trackings, stream, .. } = &mut *state;
            // Ages are of the scene; metas have the clock of the pipeline.
            for object in trackings.iter_mut().filter_map(|tracking| tracking.object.as_mut()) {
                object.first_seen = stream.running_time_at(object.first_seen);
                object.last_seen = stream.running_time_at(object.last_seen);
            }
            track::write(frame.make_mut(), &mut objects, &state.trackings, size);
        }
        state.texts.advance();
        let has_texts = |annotation: &Annotation| annotation.track_id.is_some() && attributes::has_texts(annotation);
        if objects.annotations.iter().any(has_texts) {
            let texts = &mut state.texts;
            attributes::replace_texts(frame.make_mut(), &mut objects.annotations, |read| decide(texts, read));
        }
        gst::trace!(CAT, imp = self, "frame {number}: {count} of {} objects", objects.annotations.len());
        if state.settings.post_messages {
            let content = track::message(frame, at.stream_time, number, size, &objects.annotations, is_predicted);
            let _ = self.obj().post_message(gst::message::Element::builder(content).src(&*self.obj()).build());
        }
        state.objects = objects;
        self.stats.add(stage, count);
    }
}

fn foreign_ids() -> Error {
    Error::new(ErrorKind::Settings, "Objects have ids of another tracker")
        .cause("an element before trttrack gives them, such as gvatrack, ioutracker or another trttrack")
        .remedy("Those objects keep their ids and are not followed here; use one tracker")
}

fn no_vectors() -> Error {
    let what = format!("Boxes alone are compared: no object of the first {FRAMES_WITHOUT} frames has a vector");
    Error::new(ErrorKind::Settings, what).remedy(
        "Before trttrack put trtpreprocess regions=objects ! trtinfer ! trtnms, with a model that gives vectors, or \
         set tracker=botsort-iou or ocsort. If they are there, set a smaller min-object-size on trtpreprocess",
    )
}

fn mixed_vectors() -> Error {
    Error::new(ErrorKind::Settings, "Objects have vectors of another model than before")
        .cause("the name of the model or the number of values is another one")
        .remedy("They keep their ids, and what they looked like is forgotten; use one model for all objects of a class")
}

impl Properties for TrtTrack {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property("Frames, objects with an id, and the time that following them takes")]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| {
            let totals = self.stats.read();
            stats::structure(&totals, [("frames", totals.done), ("objects", totals.objects)]).to_value()
        })
    }
}

meta_filter! {
    TrtTrack: "GstTrtTrack",
    factory: "trttrack",
    name: "Object detection: tracker",
    classification: "Filter/Analyzer/Video",
    description: "Gives the objects of metas ids that stay the same from frame to frame",
    pads: any_video_templates(),
}

impl MetaFilter for TrtTrack {
    type State = TrackingState;

    fn open(&self) -> Result<TrackingState> {
        Ok(TrackingState::new(Tracker::new(self.settings.lock().unwrap().tracker)))
    }

    fn resized(state: &mut TrackingState) -> Option<Error> {
        state.reset();
        None
    }

    fn see_event(&self, event: &gst::Event, is_cut: bool) {
        let classes = classes_event::read(event);
        if !is_cut && classes.is_none() {
            return;
        }
        let mut state = self.state.lock().unwrap();
        let Some(state) = state.as_mut() else { return };
        if is_cut {
            state.reset();
        }
        // It comes again where elements are linked again.
        if classes.is_some() && state.known != classes {
            (state.known, state.are_checked) = (classes, false);
        }
    }

    fn process(&self, frame: &mut gst::Buffer) -> std::result::Result<(), gst::FlowError> {
        let settings = self.settings.lock().unwrap();
        // Taken out, so that it is not locked when messages are posted: a handler of the bus may do anything.
        let has_caps = |state: &mut TrackingState| state.stream.size.0 > 0;
        let mut state = self.state.lock().unwrap().take_if(has_caps).ok_or(gst::FlowError::NotNegotiated)?;
        if state.settings != *settings {
            state.are_checked &= state.settings.classes == settings.classes;
            state.settings = settings.clone();
        }
        drop(settings);
        self.track(&mut state, frame);
        *self.state.lock().unwrap() = Some(state);
        Ok(())
    }
}
