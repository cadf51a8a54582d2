// SPDX-License-Identifier: MPL-2.0
use std::sync::{Arc, LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::gallery::{Gallery, Likeness, Votes, WatchedGallery, recognised};
use gsttrt_core::postprocess::RankedClass;
use gsttrt_core::track::History;
use gsttrt_core::vector::normalise;

use super::settings::{MatchSettings, PROPERTIES};
use crate::gst::element::Properties;
use crate::gst::meta::read::{self, MetaObjects};
use crate::gst::meta::tensor::ObjectRegion;
use crate::gst::meta::vector::AttachedVector;
use crate::gst::meta::{attributes, vector};
use crate::gst::meta_filter::{MetaFilter, meta_filter};
use crate::gst::report::Report;
use crate::gst::stats;
use crate::gst::stream::{StreamFrame, VideoStream, any_video_templates};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trtmatch", gst::DebugColorFlags::empty(), Some("Names for vectors")));

/// After so many frames with objects and without a single vector, a model may be missing.
const FRAMES_WITHOUT_VECTORS: u32 = 60;

/// State since start() and set_caps().
pub struct MatchState {
    watched: WatchedGallery,
    /// The file's name without its ending, which is that of the attributes.
    name: String,
    /// What the numbers of names in `tracks` are of.
    gallery: Arc<Gallery>,
    tracks: History<TrackName>,
    stream: VideoStream,
    /// Frames with objects so far, until one has a vector, or that is said.
    frames_without_vectors: Option<u32>,
    has_told_of_dims: bool,
}

/// What is known of an object with an id.
#[derive(Debug, Default)]
struct TrackName {
    votes: Votes,
    /// The number of the name that was told.
    told: Option<u32>,
}

/// Lock order: settings before state; settings are copied, and never locked while a frame is handled.
#[derive(Default)]
pub struct TrtMatch {
    settings: Mutex<MatchSettings>,
    state: Mutex<Option<MatchState>>,
    stats: Stats,
}

impl MatchState {
    /// Another part of the stream, or another stream, follows.
    fn reset(&mut self) {
        self.tracks = History::default();
    }

    /// Takes over another gallery. Numbers of names are of the one before, and whoever was removed from it is forgotten.
    fn follow_gallery(&mut self) {
        let now = self.watched.get();
        if !Arc::ptr_eq(&now, &self.gallery) {
            (self.gallery, self.has_told_of_dims) = (now, false);
            self.reset();
        }
    }

    /// For each region of the frame its last vector that may be one of the gallery's, and of vectors that may not, the numbers
    /// that one has.
    fn vectors(&self, frame: &gst::BufferRef) -> (Vec<Option<AttachedVector>>, Option<usize>) {
        let mut other = None;
        let vector = |region: gst::MetaRef<VideoRegionOfInterestMeta>| {
            let mut all = vector::of_region(&region);
            let place = all.iter().rposition(|vector| vector.values.len() == self.gallery.dims());
            if place.is_none() {
                other = other.or(all.first().map(|vector| vector.values.len()));
            }
            place.map(|place| all.swap_remove(place)).filter(|_| !self.gallery.is_empty())
        };
        let vectors = frame.iter_meta::<VideoRegionOfInterestMeta>().map(vector).collect();
        (vectors, other)
    }

    /// For each region whose vector is looked at, the names that it is most like: those of this frame, and those kept of an earlier
    /// one where its object is not known yet.
    fn look(
        &mut self,
        objects: &MetaObjects,
        vectors: Vec<Option<AttachedVector>>,
        most: usize,
    ) -> Vec<Option<Vec<Likeness>>> {
        let mut found = vec![None; vectors.len()];
        let mut looks: Vec<(usize, Vec<f32>)> = Vec::new();
        for (at, vector) in vectors.into_iter().enumerate() {
            let Some(AttachedVector { mut values, is_held, .. }) = vector else { continue };
            let is_known = |id| self.tracks.of(id).is_some();
            let is_old = is_held && objects.annotations[at].track_id.is_some_and(is_known);
            // That of a foreign element may have any length.
            if !is_old && normalise(&mut values) {
                looks.push((at, values));
            }
        }
        let compared: Vec<&[f32]> = looks.iter().map(|(_, values)| values.as_slice()).collect();
        for (names, (at, _)) in self.gallery.find(&compared, most).into_iter().zip(&looks) {
            found[*at] = Some(names);
        }
        found
    }

    /// Names the objects of a frame. Returns how many have a name, what is told of those that have another one than before, and a
    /// warning.
    fn name_objects(
        &mut self,
        settings: &MatchSettings,
        frame: &mut gst::Buffer,
        at: &StreamFrame,
    ) -> (usize, Vec<gst::Structure>, Option<Error>) {
        let objects = read::objects(frame, self.stream.size);
        let (vectors, other) = self.vectors(frame);
        let warning = self.missing(&vectors, other);
        let options = &settings.options;
        let looks = self.look(&objects, vectors, (options.top_k as usize).max(2));
        self.tracks.advance();
        let (mut count, mut told) = (0, Vec::new());
        for (region, look) in looks.iter().enumerate() {
            let annotation = &objects.annotations[region];
            let names = look.as_ref().map(|found| recognised(found, options));
            let decided: Vec<Likeness> = match (annotation.track_id, names) {
                (None, names) => names.unwrap_or_default().to_vec(),
                (Some(id), None) if self.tracks.of(id).is_none() => continue,
                (Some(id), names) => {
                    let track = self.tracks.entry(id);
                    names.into_iter().for_each(|names| track.votes.add(names, options.threshold));
                    let decided: Vec<Likeness> = track.votes.decision().take(options.top_k as usize).collect();
                    let name = decided.first().map(|found| found.name);
                    let before = std::mem::replace(&mut track.told, name);
                    if before != name {
                        told.push(message(at, id, &annotation.label, decided.first(), before, &self.gallery));
                    }
                    decided
                }
            };
            let object = ObjectRegion {
                region: Some(region),
                analytics: objects.analytics[region],
                track_id: annotation.track_id,
                input: None,
            };
            let class = |found: &Likeness| RankedClass { class: found.name, score: found.similarity.clamp(0.0, 1.0) };
            let classes: Vec<RankedClass> = decided.iter().map(class).collect();
            if !classes.is_empty() {
                count += 1;
                let (names, is_held) = (self.gallery.names(), look.is_none());
                attributes::attach(frame.make_mut(), &object, &classes, names, &self.name, is_held);
            }
        }
        (count, told, warning)
    }

    /// A warning where nobody can be recognised: objects have no vectors, or those of another model than the gallery.
    fn missing(&mut self, vectors: &[Option<AttachedVector>], other: Option<usize>) -> Option<Error> {
        if let Some(numbers) = other.filter(|_| !self.gallery.is_empty() && !self.has_told_of_dims) {
            (self.has_told_of_dims, self.frames_without_vectors) = (true, None);
            return Some(of_another_model(&self.name, self.gallery.dims(), numbers));
        }
        if other.is_some() || vectors.iter().any(Option::is_some) {
            self.frames_without_vectors = None;
        } else if let Some(frames) = self.frames_without_vectors.as_mut().filter(|_| !vectors.is_empty()) {
            *frames += 1;
        }
        self.frames_without_vectors.take_if(|frames| *frames >= FRAMES_WITHOUT_VECTORS).map(|_| no_vectors())
    }
}

fn no_vectors() -> Error {
    let what = format!("Nobody is recognised: no object of the first {FRAMES_WITHOUT_VECTORS} frames has a vector");
    Error::new(ErrorKind::Settings, what).remedy(
        "Before trtmatch put trtpreprocess regions=objects ! trtinfer ! trtnms, with a model that gives vectors. If \
         they are there, set a smaller min-object-size on trtpreprocess",
    )
}

fn of_another_model(gallery: &str, known: usize, other: usize) -> Error {
    let what = format!("The vectors of the gallery {gallery} have {known} numbers, and those of objects have {other}");
    Error::new(ErrorKind::Settings, what)
        .remedy("Make the gallery with the model of this pipeline: gst-trt enrol --model. These objects stay unknown")
}

/// The element message about an object that has another name than before.
fn message(
    frame: &StreamFrame,
    id: u64,
    label: &str,
    found: Option<&Likeness>,
    before: Option<u32>,
    gallery: &Gallery,
) -> gst::Structure {
    let name = |number: u32| gallery.names()[number as usize].as_str();
    let mut content = gst::Structure::builder("trt-match")
        .field("stream-time", frame.stream_time)
        .field("frame", frame.number)
        .field("track-id", id)
        .field("label", label)
        .build();
    if let Some(found) = found {
        content.set("name", name(found.name));
        content.set("confidence", f64::from(found.similarity.clamp(0.0, 1.0)));
    }
    if let Some(before) = before {
        content.set("before", name(before));
    }
    content
}

impl Properties for TrtMatch {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property("Frames, objects with a name, and the time that finding the names takes")]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| {
            let totals = self.stats.read();
            stats::structure(&totals, [("frames", totals.done), ("objects", totals.objects)]).to_value()
        })
    }
}

meta_filter! {
    TrtMatch: "GstTrtMatch",
    factory: "trtmatch",
    name: "Object recognition: names by a gallery",
    classification: "Filter/Analyzer/Video",
    description: "Gives objects names by their vectors, from a gallery of known ones",
    pads: any_video_templates(),
}

impl MetaFilter for TrtMatch {
    type State = MatchState;

    fn open(&self) -> Result<MatchState> {
        let settings = self.settings.lock().unwrap().clone();
        let path = settings.gallery()?;
        let watched = WatchedGallery::open(path)?;
        let gallery = watched.get();
        gst::info!(CAT, imp = self, "{} names, {} vectors", gallery.names().len(), gallery.len());
        Ok(MatchState {
            watched,
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            gallery,
            tracks: History::default(),
            stream: VideoStream::default(),
            frames_without_vectors: Some(0),
            has_told_of_dims: false,
        })
    }

    fn resized(state: &mut MatchState) -> Option<Error> {
        state.reset();
        None
    }

    fn see_event(&self, _event: &gst::Event, is_cut: bool) {
        if is_cut && let Some(state) = self.state.lock().unwrap().as_mut() {
            state.reset();
        }
    }

    fn process(&self, frame: &mut gst::Buffer) -> std::result::Result<(), gst::FlowError> {
        let stage = Span::begin(false);
        let settings = self.settings.lock().unwrap().clone();
        // Taken out, so that it is not locked when messages are posted: a handler of the bus may do anything.
        let has_caps = |state: &mut MatchState| state.stream.size.0 > 0;
        let mut state = self.state.lock().unwrap().take_if(has_caps).ok_or(gst::FlowError::NotNegotiated)?;
        let at = state.stream.advance(frame.pts());
        if at.is_cut {
            state.reset();
        }
        state.follow_gallery();
        let (count, told, missing) = state.name_objects(&settings, frame, &at);
        let warnings = state.watched.take_warning().into_iter().chain(missing);
        warnings.for_each(|warning| self.obj().post_warning(&warning));
        gst::trace!(CAT, imp = self, "frame {}: {count} objects with names", at.number);
        if settings.post_messages {
            for content in told {
                let _ = self.obj().post_message(gst::message::Element::builder(content).src(&*self.obj()).build());
            }
        }
        *self.state.lock().unwrap() = Some(state);
        self.stats.add(stage, count);
        Ok(())
    }
}
