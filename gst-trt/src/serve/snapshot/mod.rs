// SPDX-License-Identifier: MPL-2.0
//! Snapshots of objects: of each track its best picture, the largest and surest one that the edge of the frame does not cut,
//! written when the object is gone.
//!
//! * `writer`: the thread that writes the files of a source.
//!
//! Pictures are cut out by `cut`, and lie in memory until then. No frame waits for a picture or a disk: what is too much is
//! dropped and counted.

mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use gsttrt::gst::meta::record;
use gsttrt_core::image::geometry::BBox;
use gsttrt_publish::clock;
use gsttrt_publish::formats::gst_trt;
use gsttrt_publish::record::{ObjectRecord, PublishSource, TrackRecord, TracksInSight};
use serde_json::{Map, Value, json};

use self::writer::ObjectSnapshot;
use super::archive::{Archives, UtcTime};
use super::config::SnapshotConfig;
use super::config::rate::RateCount;
use super::control::SnapshotCounts;
use super::cut::{Cut, Region};
use super::log::log_error;
use crate::threads::Threads;

/// An object that was not seen for so long is gone, in nanoseconds.
const GONE_AFTER: u64 = 1_000_000_000;
/// Another picture is made where it is better by that.
const BETTER: f64 = 1.2;
/// What a picture is worth whose object the edge of the frame cuts.
const CUT_WORTH: f64 = 0.1;
/// An object so near the edge is cut by it: a part of the frame's sides.
const EDGE: f32 = 0.005;
/// Objects in sight that have pictures in memory.
const MAX_SHOTS: usize = 256;
/// What is shown around an object, as a part of its sides.
const MARGIN: f64 = 0.05;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The snapshots of a source, over all its restarts.
pub struct SourceSnapshots {
    source: String,
    archives: Archives,
    threads: Threads,
    state: Arc<Mutex<SnapshotState>>,
    /// Where they go.
    writer: Mutex<Option<(PathBuf, SyncSender<ObjectSnapshot>)>>,
}

#[derive(Default)]
struct SnapshotState {
    rate: RateCount,
    counts: SnapshotCounts,
}

impl SourceSnapshots {
    pub fn new(source: &str, archives: &Archives, threads: &Threads) -> Self {
        SourceSnapshots {
            source: source.into(),
            archives: archives.clone(),
            threads: threads.clone(),
            state: Arc::default(),
            writer: Mutex::default(),
        }
    }

    /// A run of the source begins.
    pub fn begin(&self, config: Option<&SnapshotConfig>) -> Option<SnapshotTaker> {
        let mut writer = lock(&self.writer);
        let Some(config) = config else {
            *writer = None;
            return None;
        };
        let archive = self.archives.at(&config.folder);
        let known = writer.take().filter(|(folder, _)| *folder == config.folder);
        let started = known
            .map_or_else(|| writer::start(&archive, &self.source, &self.state, &self.threads), |(_, known)| Ok(known));
        match started {
            Ok(sender) => {
                *writer = Some((config.folder.clone(), sender.clone()));
                Some(SnapshotTaker::new(config, &self.state, sender))
            }
            Err(failure) => {
                log_error(&self.source, &format!("{failure} There are no snapshots."));
                None
            }
        }
    }

    pub fn counts(&self) -> SnapshotCounts {
        lock(&self.state).counts
    }
}

/// Takes those of one run.
#[derive(Clone)]
pub struct SnapshotTaker(Arc<Mutex<TakerState>>);

struct TakerState {
    config: SnapshotConfig,
    state: Arc<Mutex<SnapshotState>>,
    /// Until the end of the run.
    writer: Option<SyncSender<ObjectSnapshot>>,
    tracks: TracksInSight,
    shots: HashMap<u64, Arc<Mutex<BestShot>>>,
    begun: Instant,
}

/// The best picture of an object so far.
#[derive(Default)]
struct BestShot {
    worth: f64,
    picture: Option<Bytes>,
    /// What is shown.
    object: Map<String, Value>,
    /// Another one is being made.
    is_pending: bool,
}

impl SnapshotTaker {
    fn new(config: &SnapshotConfig, state: &Arc<Mutex<SnapshotState>>, writer: SyncSender<ObjectSnapshot>) -> Self {
        SnapshotTaker(Arc::new(Mutex::new(TakerState {
            config: config.clone(),
            state: state.clone(),
            writer: Some(writer),
            tracks: TracksInSight::default(),
            shots: HashMap::new(),
            begun: Instant::now(),
        })))
    }

    /// The pictures that are needed of a frame of that size.
    pub fn cuts(&self, frame: &gst::BufferRef, size: (u32, u32)) -> Vec<Cut> {
        lock(&self.0).see(frame, size)
    }

    /// No frame comes any more: all that were in sight are gone.
    pub fn finish(&self) {
        let mut taker = lock(&self.0);
        let gone = taker.tracks.end_all();
        taker.write(gone);
        taker.writer = None;
    }
}

impl TakerState {
    fn see(&mut self, frame: &gst::BufferRef, size: (u32, u32)) -> Vec<Cut> {
        let mut found = record::frame(frame, size);
        found.times.wall_clock = Some(clock::now());
        found.objects.retain(|object| self.is_wanted(object));
        let now = self.begun.elapsed().as_nanos() as u64;
        let gone = self.tracks.see(&found, now, GONE_AFTER);
        self.write(gone);
        if found.is_held {
            return Vec::new(); // boxes are those of an earlier frame
        }
        found.objects.iter().filter(|object| !object.is_predicted).filter_map(|object| self.cut(object, size)).collect()
    }

    fn is_wanted(&self, object: &ObjectRecord) -> bool {
        let SnapshotConfig { classes, min_confidence, .. } = &self.config;
        let annotation = &object.annotation;
        annotation.track_id.is_some()
            && (classes.is_empty() || classes.iter().any(|class| *class == annotation.label))
            && annotation.confidence.is_none_or(|confidence| confidence >= *min_confidence)
    }

    /// Where it is better than the ones before.
    fn cut(&mut self, object: &ObjectRecord, size: (u32, u32)) -> Option<Cut> {
        let id = object.annotation.track_id?;
        let worth = worth(&object.annotation.bbox, object.annotation.confidence, size);
        if !self.shots.contains_key(&id) && self.shots.len() >= MAX_SHOTS {
            return None;
        }
        let shot = self.shots.entry(id).or_default().clone();
        {
            let mut best = lock(&shot);
            if best.is_pending || worth <= best.worth * BETTER {
                return None;
            }
            best.is_pending = true;
        }
        let bbox = &object.annotation.bbox;
        let [x, y, w, h] = [bbox.x1, bbox.y1, bbox.width(), bbox.height()].map(f64::from);
        let pending = PendingShot { shot, worth, object: described(object) };
        Some(Cut {
            region: Some(Region { x, y, w, h }),
            margin: MARGIN,
            max_side: self.config.max_size,
            give: Box::new(move |picture| pending.give(picture)),
        })
    }

    fn write(&mut self, gone: Vec<TrackRecord>) {
        for track in gone {
            let Some(shot) = self.shots.remove(&track.id) else { continue };
            let (picture, mut object) = {
                let mut best = lock(&shot);
                (best.picture.take(), std::mem::take(&mut best.object))
            };
            let mut state = lock(&self.state);
            let Some(picture) = picture else {
                state.counts.dropped += 1;
                continue;
            };
            if !state.rate.admit(self.config.at_most, Instant::now()) {
                state.counts.limited += 1;
                continue;
            }
            object.extend(recognised(&track));
            let time = |wall_clock: Option<u64>| UtcTime(wall_clock.unwrap_or_default());
            let (begin, end) = (time(track.first_times.wall_clock), time(track.last_times.wall_clock));
            let snapshot = ObjectSnapshot { picture, object, begin, end };
            if self.writer.as_ref().is_none_or(|writer| writer.try_send(snapshot).is_err()) {
                state.counts.dropped += 1; // the disk is too slow
            }
        }
    }
}

/// How good a picture of the object is.
fn worth(bbox: &BBox, confidence: Option<f32>, (width, height): (u32, u32)) -> f64 {
    let (width, height) = (width as f32, height as f32);
    let (across, down) = (width * EDGE, height * EDGE);
    let is_cut = bbox.x1 <= across || bbox.y1 <= down || bbox.x2 >= width - across || bbox.y2 >= height - down;
    let area = f64::from(bbox.width().max(0.0)) * f64::from(bbox.height().max(0.0));
    area * f64::from(confidence.unwrap_or(1.0)) * if is_cut { CUT_WORTH } else { 1.0 }
}

/// The object of a picture, for the index.
fn described(object: &ObjectRecord) -> Map<String, Value> {
    let annotation = &object.annotation;
    let bbox = &annotation.bbox;
    let number = |number: f32, digits: f64| (f64::from(number) * digits).round() / digits;
    let mut found = Map::from_iter([
        ("track-id".to_string(), json!(annotation.track_id)),
        ("label".to_string(), json!(annotation.label)),
    ]);
    found.extend(annotation.class.map(|class| ("class-id".to_string(), class.into())));
    found.extend(annotation.confidence.map(|value| ("confidence".to_string(), number(value, 1e6).into())));
    for (name, value) in [("x", bbox.x1), ("y", bbox.y1), ("w", bbox.width()), ("h", bbox.height())] {
        found.insert(name.into(), number(value, 1e3).into());
    }
    found
}

/// Who the object is: what was known when it was last seen. Names and ids over cameras may come later than the best picture.
fn recognised(track: &TrackRecord) -> Map<String, Value> {
    let mut line = gst_trt::track(track, &PublishSource::default());
    let known = |name: &str| Some((name.to_string(), line["object"].as_object_mut()?.remove(name)?));
    ["identity", "attributes"].into_iter().filter_map(known).collect()
}

/// A picture that is being made.
struct PendingShot {
    shot: Arc<Mutex<BestShot>>,
    worth: f64,
    object: Map<String, Value>,
}

impl PendingShot {
    fn give(mut self, picture: Bytes) {
        let mut best = lock(&self.shot);
        (best.worth, best.picture) = (self.worth, Some(picture));
        best.object = std::mem::take(&mut self.object);
        drop(best);
    }
}

impl Drop for PendingShot {
    fn drop(&mut self) {
        lock(&self.shot).is_pending = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::scratch;
    use crate::serve::archive::{KeepLimits, Kind, Recording};
    use crate::serve::config::rate::Rate;
    use crate::wait::{LIMIT, wait_until};

    const SIZE: (u32, u32) = (640, 360);

    fn config(test: &str) -> SnapshotConfig {
        SnapshotConfig {
            folder: scratch(&format!("snapshots-{test}")).join("pictures"),
            classes: vec!["disc".into()],
            min_confidence: 0.5,
            max_size: 320,
            at_most: Rate { number: 3, each: std::time::Duration::from_secs(3600) },
            keep: KeepLimits::default(),
        }
    }

    /// A frame with objects: their ids, labels, left edges, sides and confidences.
    fn frame(objects: &[(u64, &str, u32, u32, f64)]) -> gst::Buffer {
        gst::init().unwrap();
        let mut frame = gst::Buffer::new();
        for (id, label, x, side, confidence) in objects {
            let mut region =
                gst_video::VideoRegionOfInterestMeta::add(frame.make_mut(), label, (*x, 100, *side, *side));
            let detection =
                gst::Structure::builder("detection").field("confidence", confidence).field("label_id", 0i32);
            region.add_param(detection.build());
            region.add_param(gst::Structure::builder("object_id").field("id", *id as i32).build());
        }
        frame
    }

    fn give(cuts: Vec<Cut>, picture: &'static [u8]) -> usize {
        let count = cuts.len();
        cuts.into_iter().for_each(|cut| (cut.give)(Bytes::from_static(picture)));
        count
    }

    fn written(archives: &Archives, number: usize) -> Vec<Recording> {
        wait_until("they are written", LIMIT, || archives.recordings().len() >= number);
        archives.recordings()
    }

    #[test]
    fn the_best_picture_of_a_track_is_written_when_it_is_gone() {
        let (threads, config) = (Threads::default(), config("best"));
        let archives = Archives::new(&threads);
        let snapshots = SourceSnapshots::new("gate", &archives, &threads);
        assert!(snapshots.begin(None).is_none());
        let taker = snapshots.begin(Some(&config)).unwrap();
        let see = |objects: &[_]| taker.cuts(&frame(objects), SIZE);
        // At the edge, then whole; then not much larger, and much larger but less sure.
        assert_eq!(give(see(&[(1, "disc", 0, 100, 0.9)]), b"cut"), 1);
        assert_eq!(give(see(&[(1, "disc", 50, 60, 0.9)]), b"whole"), 1);
        assert_eq!(give(see(&[(1, "disc", 60, 62, 0.9)]), b"same"), 0);
        assert_eq!(give(see(&[(1, "disc", 70, 80, 0.4)]), b"unsure"), 0);
        assert_eq!(give(see(&[(2, "box", 300, 90, 0.9)]), b"box"), 0, "another class");
        // While one is made, no other; and one that is lost is made up for.
        let first = see(&[(1, "disc", 80, 100, 0.9)]);
        assert_eq!((first.len(), see(&[(1, "disc", 90, 150, 0.9)]).len()), (1, 0));
        assert_eq!(first[0].region, Some(Region { x: 80.0, y: 100.0, w: 100.0, h: 100.0 }));
        drop(first);
        assert_eq!(give(see(&[(1, "disc", 90, 99, 0.9)]), b"best"), 1);
        assert!(archives.recordings().is_empty(), "it is in sight");
        taker.finish();
        let [one] = &written(&archives, 1)[..] else { panic!() };
        assert_eq!((one.source.as_str(), one.kind, one.bytes), ("gate", Kind::Snapshot, 4));
        assert!(one.begin <= one.end && one.file.ends_with(".jpg"), "{one:?}");
        assert_eq!(std::fs::read(config.folder.join(&one.file)).unwrap(), b"best");
        let object = one.object.as_ref().unwrap();
        assert_eq!((&object["track-id"], &object["label"], &object["w"]), (&1.into(), &"disc".into(), &99.0.into()));
        assert_eq!(snapshots.counts(), SnapshotCounts { written: 1, ..SnapshotCounts::default() });
        // The service ends: what is under way is waited for, and the next start knows it.
        archives.close();
        drop((taker, snapshots));
        assert!(threads.wait(LIMIT).is_empty());
        let again = Archives::new(&threads);
        again.at(&config.folder);
        assert_eq!(written(&again, 1)[0].object, one.object);
    }

    /// It is found out behind the best picture, and is told of the object in the index.
    #[test]
    fn who_it_is_is_told_of_an_object() {
        let (threads, config) = (Threads::default(), config("who"));
        let archives = Archives::new(&threads);
        let snapshots = SourceSnapshots::new("gate", &archives, &threads);
        let taker = snapshots.begin(Some(&config)).unwrap();
        give(taker.cuts(&frame(&[(1, "disc", 100, 99, 0.9), (2, "disc", 300, 99, 0.9)]), SIZE), b"best");
        let mut later = frame(&[(1, "disc", 100, 60, 0.9), (2, "disc", 300, 60, 0.9)]);
        {
            let mut region = later.make_mut().iter_meta_mut::<gst_video::VideoRegionOfInterestMeta>().next().unwrap();
            region.add_param(gst::Structure::builder("identity").field("id", 5u64).build());
            let name = gst::Structure::builder("classification").field("label", "Ada").field("label_id", 0i32);
            region.add_param(name.field("confidence", 0.75).build());
        }
        assert_eq!(give(taker.cuts(&later, SIZE), b"small"), 0);
        taker.finish();
        let objects: Vec<_> = written(&archives, 2).into_iter().map(|one| one.object.unwrap()).collect();
        let of = |track: u64| objects.iter().find(|object| object["track-id"] == track).unwrap();
        let (ada, other) = (of(1), of(2));
        assert_eq!((&ada["identity"], &ada["w"]), (&5.into(), &99.0.into()));
        assert_eq!(ada["attributes"], json!([{ "label": "Ada", "class-id": 0, "confidence": 0.75 }]));
        assert!(!other.contains_key("identity") && !other.contains_key("attributes"), "{other:?}");
    }

    #[test]
    fn too_many_and_those_without_a_picture_are_counted() {
        let (threads, config) = (Threads::default(), config("many"));
        let archives = Archives::new(&threads);
        let snapshots = SourceSnapshots::new("gate", &archives, &threads);
        let taker = snapshots.begin(Some(&config)).unwrap();
        let all: Vec<_> = (0..5).map(|id| (id + 1, "disc", 100 + id as u32, 50, 0.9)).collect();
        assert_eq!(give(taker.cuts(&frame(&all), SIZE), b"jpeg"), 5);
        drop(taker.cuts(&frame(&[(9, "disc", 100, 50, 0.9)]), SIZE));
        taker.finish();
        assert_eq!(written(&archives, 3).len(), 3);
        let names: std::collections::BTreeSet<_> = written(&archives, 3).into_iter().map(|one| one.file).collect();
        assert_eq!(names.len(), 3, "of the same time");
        assert_eq!(snapshots.counts(), SnapshotCounts { written: 3, dropped: 1, limited: 2 });
        // Another run goes on counting, and a folder that cannot be written to is told of.
        std::fs::remove_dir_all(&config.folder).unwrap();
        std::fs::write(&config.folder, "a file").unwrap();
        let more = SnapshotConfig { at_most: Rate { number: 100, ..config.at_most }, ..config };
        let taker = snapshots.begin(Some(&more)).unwrap();
        give(taker.cuts(&frame(&[(1, "disc", 100, 50, 0.9)]), SIZE), b"jpeg");
        taker.finish();
        wait_until("it is dropped", LIMIT, || snapshots.counts().dropped == 2);
    }
}
