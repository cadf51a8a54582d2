// SPDX-License-Identifier: MPL-2.0
//! All objects that are known, the cameras that see them, and which object a track is.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::known::{IdentityRules, KnownIdentity, Sighting, TrackKey};
use super::links::{self, CameraPassages};
use super::looks::{BestLooks, MAX_DIMS};
use super::{IdentityChange, IdentityCounts, IdentityEntry, IdentityOptions, ObjectLook, SeenFrame, SeenObject};
use crate::error::{Error, ErrorKind, Result};
use crate::vector::product;

/// Times of a camera that go back by more than that are those of another part of its stream. A little is jitter.
const JITTER: u64 = 1_000_000_000;
/// A camera that gives no frame for so long has nothing in sight.
const STALLED: Duration = Duration::from_secs(2);
/// How often it is looked whether objects are too old.
const PURGED_EVERY: Duration = Duration::from_secs(1);
/// Frames for which a track is kept that is not in sight.
const KEPT_FRAMES: u64 = 300;
/// Tracks of a camera, for a tracker that gives each object a new id in each frame.
const MOST_TRACKS: usize = 2048;
/// Tracks of a frame that are asked about. The others are in the next frames.
const MOST_ASKED: usize = 32;
/// Known objects that these are compared with, all together: other cameras wait meanwhile.
const MOST_COMPARED: usize = 32_000;
/// After so many frames whose vectors are all of another model, a camera has that model.
const MODEL_CHANGED: u32 = 10;
/// A camera without vectors for so long does not keep the others from another model.
const MODEL_KEPT: Duration = Duration::from_secs(60);

/// Vectors of one model can be compared.
#[derive(Clone, Debug)]
struct VectorModel {
    /// Empty where it is not known.
    name: String,
    dims: usize,
}

#[derive(Debug)]
struct CameraStream {
    camera: Arc<str>,
    /// The time of the last frame.
    now: Option<u64>,
    /// Frames so far.
    frame: u64,
    arrived: Option<Instant>,
    /// When it has last given a vector of the table's model, unless it has another one since.
    given: Option<Instant>,
    /// Frames in a row with vectors of another model alone.
    others: u32,
    tracks: HashMap<u64, SeenTrack>,
}

#[derive(Debug)]
struct SeenTrack {
    /// Nanoseconds: since when it may be the object that it is.
    first: u64,
    /// The number of the frame, and the call of the table, in which it was last seen.
    frame: u64,
    turn: u64,
    looks: BestLooks,
    identity: Option<u64>,
    /// The id that was last told.
    told: Option<u64>,
    /// It is asked about which object it is.
    asks: bool,
}

/// A track in a frame.
struct TrackInFrame {
    /// The number of the object.
    object: usize,
    track: u64,
    /// The call of the table in which it was seen before; 0 if it was not.
    since: u64,
    /// It has a better vector than before.
    is_better: bool,
}

/// A track that is asked about.
struct AskingTrack {
    object: usize,
    track: u64,
    vector: Vec<f32>,
    /// The objects that it may be, with their similarity, the most similar first.
    found: Vec<(u64, f32)>,
}

#[derive(Debug)]
pub struct IdentityTable {
    options: IdentityOptions,
    passages: CameraPassages,
    model: Option<VectorModel>,
    streams: HashMap<u64, CameraStream>,
    streams_so_far: u64,
    identities: BTreeMap<u64, KnownIdentity>,
    counts: IdentityCounts,
    /// Calls so far.
    turn: u64,
    purged: Option<Instant>,
}

impl VectorModel {
    fn of(look: &ObjectLook) -> Self {
        VectorModel { name: look.model.into(), dims: look.values.len() }
    }

    fn gives(&self, look: &ObjectLook) -> bool {
        let is_named = !self.name.is_empty() && !look.model.is_empty();
        self.dims == look.values.len() && (!is_named || self.name == look.model)
    }
}

impl fmt::Display for VectorModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "a model without a name ({} numbers)", self.dims),
            name => write!(f, "{name} ({} numbers)", self.dims),
        }
    }
}

impl CameraStream {
    fn new(camera: &str) -> Self {
        CameraStream {
            camera: camera.into(),
            now: None,
            frame: 0,
            arrived: None,
            given: None,
            others: 0,
            tracks: HashMap::new(),
        }
    }

    /// Whether a track is in the newest frame, and that is not long ago.
    fn is_in_sight(&self, track: u64, now: Instant) -> bool {
        let is_playing = self.arrived.is_some_and(|at| now.saturating_duration_since(at) <= STALLED);
        is_playing && self.tracks.get(&track).is_some_and(|track| track.frame == self.frame)
    }

    /// Takes in the objects of a frame, and returns which tracks they are, each once.
    fn see(
        &mut self,
        objects: &[SeenObject],
        turn: u64,
        model: Option<&VectorModel>,
        needed: u32,
    ) -> Vec<TrackInFrame> {
        let (now, frame) = (self.now.unwrap_or_default(), self.frame);
        let mut seen = Vec::with_capacity(objects.len());
        for (object, &SeenObject { track: id, quality, looks, .. }) in objects.iter().enumerate() {
            if self.tracks.len() >= MOST_TRACKS && !self.tracks.contains_key(&id) {
                continue;
            }
            let track = self.tracks.entry(id).or_insert_with(|| SeenTrack::new(now));
            if track.frame == frame {
                continue; // another object has this id, too
            }
            let since = std::mem::replace(&mut track.turn, turn);
            track.frame = frame;
            let look = looks.iter().rev().find(|look| model.is_some_and(|model| model.gives(look)));
            let added = look.and_then(|look| track.looks.add(look.values, quality));
            if added.is_some() {
                track.asks = track.identity.is_none() && track.looks.count() >= needed;
            }
            seen.push(TrackInFrame { object, track: id, since, is_better: added.unwrap_or(false) });
        }
        seen
    }

    /// Drops tracks that are out of sight for long, or at once where there are too many. Returns those that are known objects, each
    /// with its id.
    fn drop_tracks(&mut self) -> Vec<(u64, u64)> {
        let (frame, is_full) = (self.frame, self.tracks.len() >= MOST_TRACKS);
        if !is_full && !frame.is_multiple_of(KEPT_FRAMES) {
            return Vec::new();
        }
        // Those of the frame before are in sight.
        let kept = if is_full { 1 } else { KEPT_FRAMES };
        let gone = self.tracks.extract_if(|_, track| track.frame + kept < frame);
        gone.filter_map(|(id, track)| Some((id, track.identity?))).collect()
    }

    /// Forgets what tracks look like, and that they are objects, where their ids are meant.
    fn forget(&mut self, is_meant: impl Fn(Option<u64>) -> bool) {
        for track in self.tracks.values_mut().filter(|track| is_meant(track.identity)) {
            (track.looks, track.identity, track.asks) = (BestLooks::default(), None, false);
        }
    }

    /// Its clock was set back: what it has seen was no later than that.
    fn set_back(&mut self, latest: u64) {
        self.tracks.values_mut().for_each(|track| track.first = track.first.min(latest));
    }
}

impl SeenTrack {
    fn new(now: u64) -> Self {
        SeenTrack {
            first: now,
            frame: 0,
            turn: 0,
            looks: BestLooks::default(),
            identity: None,
            told: None,
            asks: false,
        }
    }

    fn is(&mut self, identity: u64) {
        (self.identity, self.asks) = (Some(identity), false);
    }
}

/// Whether a track is in sight, `own` being the stream whose frame is looked at.
fn is_in_sight(streams: &HashMap<u64, CameraStream>, own: (u64, &CameraStream), key: TrackKey, now: Instant) -> bool {
    let stream = if key.stream == own.0 { Some(own.1) } else { streams.get(&key.stream) };
    stream.is_some_and(|stream| stream.is_in_sight(key.track, now))
}

impl IdentityTable {
    /// # Errors
    /// As [`CameraPassages::new`].
    pub fn new(options: IdentityOptions) -> Result<Self> {
        Ok(IdentityTable {
            passages: CameraPassages::new(&options.links, links::CAMERAS)?,
            options,
            model: None,
            streams: HashMap::new(),
            streams_so_far: 0,
            identities: BTreeMap::new(),
            counts: IdentityCounts::default(),
            turn: 0,
            purged: None,
        })
    }

    pub fn options(&self) -> &IdentityOptions {
        &self.options
    }

    /// `passages` are those of the links.
    pub fn set_options(&mut self, options: IdentityOptions, passages: CameraPassages) {
        (self.passages, self.options) = (passages, options);
        let excess = self.identities.len().saturating_sub(self.options.max_identities as usize);
        let mut all: Vec<(Instant, u64)> =
            self.identities.iter().map(|(id, known)| (known.last_arrived, *id)).collect();
        all.sort_unstable();
        for (_, id) in all.into_iter().take(excess) {
            self.identities.remove(&id);
            self.counts.crowded_out += 1;
        }
    }

    pub fn join(&mut self, camera: &str) -> u64 {
        self.streams_so_far += 1;
        self.streams.insert(self.streams_so_far, CameraStream::new(camera));
        self.streams_so_far
    }

    pub fn leave(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    /// The tracks of a stream have ended, and others may have their ids.
    pub fn end_tracks(&mut self, stream: u64) {
        let tracks = self.streams.get_mut(&stream).map(|own| std::mem::take(&mut own.tracks));
        for (track, seen) in tracks.into_iter().flatten() {
            seen.identity.into_iter().for_each(|id| self.end_sighting(id, TrackKey { stream, track }));
        }
    }

    /// A track that was that object is not followed any more.
    fn end_sighting(&mut self, id: u64, key: TrackKey) {
        if let Some(known) = self.identities.get_mut(&id) {
            known.end(key);
        }
    }

    pub fn counts(&self) -> IdentityCounts {
        IdentityCounts { known: self.identities.len() as u64, ..self.counts }
    }

    /// Tracks of all cameras that are kept.
    #[cfg(test)]
    pub fn tracks(&self) -> usize {
        self.streams.values().map(|stream| stream.tracks.len()).sum()
    }

    pub fn list(&mut self, most: usize, now: Instant) -> Vec<IdentityEntry> {
        self.purge(now);
        let is_in_sight =
            |key: TrackKey| self.streams.get(&key.stream).is_some_and(|stream| stream.is_in_sight(key.track, now));
        let mut all: Vec<(&u64, &KnownIdentity)> = self.identities.iter().collect();
        all.sort_by_key(|(id, known)| (std::cmp::Reverse(known.last_arrived), **id));
        let entry = |(&id, known): (&u64, &KnownIdentity)| IdentityEntry {
            id,
            label: known.label.clone(),
            cameras: known.cameras(),
            is_in_sight: known.is_in_sight(&is_in_sight),
            first_seen: known.first_arrived,
            last_seen: known.last_arrived,
        };
        all.into_iter().take(most).map(entry).collect()
    }

    pub fn forget(&mut self, id: u64) -> bool {
        // Also of one that has made room for others: its tracks may have vectors.
        self.streams.values_mut().for_each(|stream| stream.forget(|identity| identity == Some(id)));
        let is_there = self.identities.remove(&id).is_some();
        self.counts.deleted += u64::from(is_there);
        is_there
    }

    pub fn forget_all(&mut self) -> usize {
        let count = self.clear();
        self.counts.deleted += count as u64;
        count
    }

    /// Forgets all objects, and what tracks have looked like.
    fn clear(&mut self) -> usize {
        self.streams.values_mut().for_each(|stream| stream.forget(|_| true));
        std::mem::take(&mut self.identities).len()
    }

    /// Forgets objects that no camera has seen for so long, and what their tracks have looked like.
    fn purge(&mut self, now: Instant) {
        let is_early = |before: Instant| now.saturating_duration_since(before) < PURGED_EVERY;
        if self.purged.is_some_and(is_early) {
            return;
        }
        self.purged = Some(now);
        let before = self.identities.len();
        let longest = Duration::from_nanos(self.options.max_age).max(STALLED);
        let is_old = |at: Instant| now.saturating_duration_since(at) > longest;
        self.identities.retain(|_, known| !is_old(known.last_arrived));
        let aged = before - self.identities.len();
        self.counts.aged += aged as u64;
        if aged > 0 {
            let known = &self.identities;
            let is_gone = |id: Option<u64>| id.is_some_and(|id| !known.contains_key(&id));
            self.streams.values_mut().for_each(|stream| stream.forget(is_gone));
        }
        // Tracks of a camera that gives no frames would stay, also those that are no object yet.
        let is_silent = |stream: &CameraStream| stream.arrived.is_some_and(is_old);
        let silent: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| is_silent(stream)).map(|(stream, _)| *stream).collect();
        silent.into_iter().for_each(|stream| self.end_tracks(stream));
    }

    /// Takes in the objects of a frame.
    pub fn see(&mut self, stream: u64, objects: &[SeenObject], now: u64, arrived: Instant) -> SeenFrame {
        let ids = vec![None; objects.len()];
        self.purge(arrived);
        let Some(mut own) = self.streams.remove(&stream) else { return SeenFrame { ids, ..SeenFrame::default() } };
        self.turn += 1;
        self.begin_frame(&mut own, now, arrived);
        let warning = self.check_model(&mut own, objects, arrived);
        for (track, id) in own.drop_tracks() {
            self.end_sighting(id, TrackKey { stream, track });
        }
        let seen = own.see(objects, self.turn, self.model.as_ref(), self.options.looks);
        self.follow(stream, &mut own, &seen, arrived);
        let matched = self.decide(stream, &mut own, &seen, objects, arrived);
        let mut frame = SeenFrame { ids, changes: Vec::new(), warning };
        for &TrackInFrame { object, track, .. } in &seen {
            let Some(track) = own.tracks.get_mut(&track) else { continue };
            let id = track.identity;
            frame.ids[object] = id;
            let before = std::mem::replace(&mut track.told, id);
            if before != id {
                let similarity = matched.iter().find(|(of, _)| *of == object).map(|(_, similarity)| *similarity);
                frame.changes.push(IdentityChange { object, id, before, similarity });
            }
        }
        self.streams.insert(stream, own);
        frame
    }

    /// Takes in the time of a frame.
    fn begin_frame(&mut self, own: &mut CameraStream, now: u64, arrived: Instant) {
        let now = now.saturating_add(1); // there is a time before the first one
        let is_back = own.now.is_none_or(|before| now.saturating_add(JITTER) < before);
        if is_back {
            // Of a camera that begins again, too.
            let camera = own.camera.clone();
            self.identities.values_mut().for_each(|known| known.set_back(&camera, now - 1));
            let others = self.streams.values_mut().filter(|stream| stream.camera == camera);
            others.for_each(|stream| stream.set_back(now - 1));
            own.set_back(now - 1);
        }
        // Each frame is later than the one before, also where there are no times.
        own.now = Some(if is_back { now } else { own.now.map_or(now, |before| now.max(before.saturating_add(1))) });
        own.frame += 1;
        own.arrived = Some(arrived);
    }

    /// Whether the vectors of a frame are of the model that all of them must be of. Returns a warning where they are not. A model
    /// that no camera has any more makes room for another one.
    fn check_model(&mut self, own: &mut CameraStream, objects: &[SeenObject], arrived: Instant) -> Option<Error> {
        let has_length = |values: &[f32]| {
            let squares = product(values, values);
            values.len() <= MAX_DIMS && squares.is_finite() && squares > 0.0
        };
        let all = objects.iter().flat_map(|object| object.looks.iter().rev());
        let mut looks = all.filter(|look| has_length(look.values));
        let first = looks.next()?;
        let model = self.model.get_or_insert_with(|| VectorModel::of(first));
        if let Some(fitting) = std::iter::once(first).chain(looks).find(|look| model.gives(look)) {
            if model.name.is_empty() {
                // Two models whose vectors have as many numbers are two from now on.
                model.name = fitting.model.into();
            }
            (own.given, own.others) = (Some(arrived), 0);
            return None;
        }
        own.others = own.others.saturating_add(1);
        if own.others < MODEL_CHANGED {
            return None; // such as of objects that another model has looked at, too
        }
        own.given = None;
        let is_recent = |at: Instant| arrived.saturating_duration_since(at) <= MODEL_KEPT;
        if self.streams.values().any(|stream| stream.given.is_some_and(is_recent)) {
            self.counts.refused_for_model += 1;
            return (own.others == MODEL_CHANGED).then(|| of_another_model(model, first, &own.camera));
        }
        *model = VectorModel::of(first);
        (own.given, own.others) = (Some(arrived), 0);
        own.forget(|_| true);
        self.counts.replaced += self.clear() as u64;
        None
    }

    /// Tracks that are known objects are seen again, unless they cannot be them any more.
    fn follow(&mut self, stream: u64, own: &mut CameraStream, seen: &[TrackInFrame], arrived: Instant) {
        let (streams, passages, options, turn) = (&self.streams, &self.passages, &self.options, self.turn);
        let (identities, counts, now) = (&mut self.identities, &mut self.counts, own.now.unwrap_or_default());
        for &TrackInFrame { track, since, is_better, .. } in seen {
            let Some(known_track) = own.tracks.get(&track) else { continue };
            let Some(id) = known_track.identity else { continue };
            let key = TrackKey { stream, track };
            let is_in_sight = |key: TrackKey| is_in_sight(streams, (stream, &*own), key, arrived);
            let rules = IdentityRules { passages, max_age: options.max_age, is_in_sight: &is_in_sight };
            // Whether it was forgotten, or another track is it by now.
            let lost = match identities.get_mut(&id) {
                None => Some(false),
                Some(known) if known.is_elsewhere(key, since, &own.camera, now, &rules) => {
                    known.lose(key);
                    Some(true)
                }
                Some(known) => {
                    let vector = if is_better { known_track.looks.mean() } else { Vec::new() };
                    let seen = Sighting { key, camera: own.camera.clone(), last: now, turn, vector };
                    known.see(seen, arrived, &is_in_sight);
                    None
                }
            };
            if let (Some(is_corrected), Some(track)) = (lost, own.tracks.get_mut(&track)) {
                track.identity = None;
                track.asks = track.looks.count() >= options.looks;
                if is_corrected {
                    track.first = now;
                    counts.corrected += 1;
                }
            }
        }
    }

    /// Finds which object each track is that is asked about. Returns the similarity of those that were seen before, by the number of
    /// the object in the frame.
    fn decide(
        &mut self,
        stream: u64,
        own: &mut CameraStream,
        seen: &[TrackInFrame],
        objects: &[SeenObject],
        arrived: Instant,
    ) -> Vec<(usize, f32)> {
        let asks = |at: &&TrackInFrame| own.tracks.get(&at.track).is_some_and(|track| track.asks);
        let mut asked: Vec<&TrackInFrame> = seen.iter().filter(asks).collect();
        let most = (MOST_COMPARED / self.identities.len().max(1)).clamp(1, MOST_ASKED);
        if asked.len() > most {
            // Not the first ones each time: they ask again where there is no room for them.
            let first = own.frame.wrapping_mul(most as u64) % asked.len() as u64;
            asked.rotate_left(first as usize);
            asked.truncate(most);
        }
        let asked = asked.into_iter();
        let mut asking: Vec<AskingTrack> = asked.map(|at| self.candidates(stream, own, at, arrived)).collect();
        let mut matched = Vec::new();
        let mut taken: Vec<u64> = Vec::new();
        // The surest one first. What it takes is no other one's in this frame.
        while let Some((place, id, similarity)) = self.surest(&asking, &taken) {
            let track = asking.remove(place);
            taken.push(id);
            matched.push((track.object, similarity));
            self.counts.matched += 1;
            self.give(stream, own, &track, id, arrived);
        }
        for track in asking {
            if self.identities.len() < self.options.max_identities as usize || self.make_room(stream, own, arrived) {
                self.counts.given += 1;
                let id = self.counts.given;
                self.identities.insert(id, KnownIdentity::new(objects[track.object].label, arrived));
                self.give(stream, own, &track, id, arrived);
            } else if let Some(track) = own.tracks.get_mut(&track.track) {
                // It is asked about again at its next vector.
                track.asks = false;
                self.counts.refused_for_room += 1;
            }
        }
        matched
    }

    /// The objects that a track may be.
    fn candidates(&self, stream: u64, own: &CameraStream, at: &TrackInFrame, arrived: Instant) -> AskingTrack {
        let track = own.tracks.get(&at.track);
        let (first, vector) = track.map(|track| (track.first, track.looks.mean())).unwrap_or_default();
        let is_in_sight = |key: TrackKey| is_in_sight(&self.streams, (stream, own), key, arrived);
        let IdentityOptions { threshold, margin, max_age, .. } = self.options;
        let rules = IdentityRules { passages: &self.passages, max_age, is_in_sight: &is_in_sight };
        let possible = self.identities.iter().filter(|(_, known)| known.may_be(&own.camera, first, &rules));
        let compared = possible.map(|(id, known)| (*id, known.similarity(&vector)));
        // Less similar ones count neither as the best nor as the second one.
        let mut found: Vec<(u64, f32)> = compared.filter(|(_, similarity)| *similarity >= threshold - margin).collect();
        found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        found.truncate(MOST_ASKED + 1); // the others of the frame take no more than that
        AskingTrack { object: at.object, track: at.track, vector, found }
    }

    /// Of the tracks that are recognised, the one that is most similar: its place, the object and how similar it is.
    fn surest(&self, asking: &[AskingTrack], taken: &[u64]) -> Option<(usize, u64, f32)> {
        let recognised = |(place, track): (usize, &AskingTrack)| {
            let mut free = track.found.iter().filter(|(id, _)| !taken.contains(id));
            let &(id, similarity) = free.next()?;
            let lead = free.next().map_or(f32::INFINITY, |(_, second)| similarity - second);
            let is_sure = similarity >= self.options.threshold && lead >= self.options.margin;
            is_sure.then_some((place, id, similarity))
        };
        // Of equals the first one.
        asking.iter().enumerate().rev().filter_map(recognised).max_by(|(.., a), (.., b)| a.total_cmp(b))
    }

    /// A track is that object.
    fn give(&mut self, stream: u64, own: &mut CameraStream, track: &AskingTrack, id: u64, arrived: Instant) {
        let AskingTrack { track, vector, .. } = track;
        let key = TrackKey { stream, track: *track };
        let (camera, last) = (own.camera.clone(), own.now.unwrap_or_default());
        if let Some(known) = self.identities.get_mut(&id) {
            let is_in_sight = |key: TrackKey| is_in_sight(&self.streams, (stream, &*own), key, arrived);
            let seen = Sighting { key, camera, last, turn: self.turn, vector: vector.clone() };
            known.see(seen, arrived, &is_in_sight);
        }
        own.tracks.get_mut(track).into_iter().for_each(|track| track.is(id));
    }

    /// Forgets the object that was not seen for the longest time. Returns false where all are in sight.
    fn make_room(&mut self, stream: u64, own: &CameraStream, arrived: Instant) -> bool {
        let is_in_sight = |key: TrackKey| is_in_sight(&self.streams, (stream, own), key, arrived);
        let gone = self.identities.iter().filter(|(_, known)| !known.is_in_sight(&is_in_sight));
        let oldest = gone.min_by_key(|(_, known)| known.last_arrived).map(|(id, _)| *id);
        let Some(id) = oldest else { return false };
        self.identities.remove(&id);
        self.counts.crowded_out += 1;
        true
    }
}

fn of_another_model(known: &VectorModel, other: &ObjectLook, camera: &str) -> Error {
    let other = VectorModel::of(other);
    let what = format!("The camera {camera} has vectors of {other}, and the others have those of {known}");
    Error::new(ErrorKind::Settings, what).remedy(
        "Run the same model for all cameras that share identities, or give this one another table. Its objects have no ids over \
         cameras until then",
    )
}
