// SPDX-License-Identifier: MPL-2.0
//! What can be asked of a running service, and what can be done to it. HTTP, RTSP and WebRTC know the service by
//! this alone, and HTTP knows WebRTC so.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use gsttrt_core::gallery::GalleryEntry;
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use super::archive::{Kind, Recording, RecordingEntry, UtcTime};
use super::config::RunsOn;
use super::histogram::Histogram;
use super::identities::ServedIdentities;
use super::output::Output;
use crate::cause::Cause;
use crate::source::path_text;

/// A running service. Loading a model and connecting to a source go on in the background, and their outcome is in the
/// status. Calls return at once, but for those that say that they look at files.
pub trait Control: Send + Sync {
    /// In the order in which they were added.
    fn sources(&self) -> Vec<SourceStatus>;

    /// Adds a source, described by the keys that `[[source]]` has in the configuration. Looks at the files that they name.
    fn add_source(&self, source: &serde_json::Value) -> Result<(), Refused>;

    fn remove_source(&self, name: &str) -> Result<(), Refused>;

    fn models(&self) -> Vec<ModelStatus>;

    /// Loads another file for a model, which takes over between two frames of its sources. Looks whether it is there.
    fn replace_model(&self, name: &str, file: &Path) -> Result<(), Refused>;

    /// The galleries that models have their names from. Looks at their files.
    fn galleries(&self) -> Vec<GalleryStatus>;

    /// Adds a vector to a name of the gallery of a model, and the name where it has none. Changes its file.
    fn enrol(&self, gallery: &str, entry: &GalleryEntry) -> Result<EnrolledVector, Refused>;

    /// Removes a name with all of its vectors from the gallery of a model. Changes its file.
    fn forget(&self, gallery: &str, name: &str) -> Result<(), Refused>;

    /// Objects that have one id on all sources.
    fn identities(&self) -> ServedIdentities;

    /// The frames of a source with what was found in them, each a JPEG picture. Frames are encoded only as long as
    /// there is a receiver, which sees the newest one. The channel closes when the source is removed.
    fn watch(&self, source: &str) -> Result<watch::Receiver<Option<Bytes>>, Refused>;

    /// What was recorded, the newest first.
    fn recordings(&self, filter: &RecordingFilter) -> Vec<Recording>;

    /// Where a recording is.
    fn recording(&self, file: &str) -> Result<PathBuf, Refused>;

    /// Whether the file was read again and refused, so that something older goes on.
    fn is_outdated(&self) -> bool {
        false
    }

    /// Whether all models are loaded, and each source has given a frame or was found to fail.
    fn is_ready(&self) -> bool;

    /// Why this process can use a GPU no more. It ends then.
    fn lost_gpu(&self) -> Option<String>;
}

/// What can be watched of a running service. Calls return at once.
pub trait OutputControl: Send + Sync {
    /// The frames of a source, or of several in one picture, with what was found in them, as video.
    fn output(&self, name: &str) -> Option<Output>;
}

/// Videos in browsers. Calls return at once.
pub trait VideoControl: Send + Sync {
    /// Answers the offer of a viewer for a source, or for several in one picture. The viewer has connected to that address of this
    /// machine.
    fn accept(&self, name: &str, offer: &str, local: IpAddr) -> Result<AcceptedOffer, OfferRefused>;

    /// Ends the video of a viewer. Returns whether there was one.
    fn end(&self, session: &str) -> bool;

    /// Where the packets of all viewers come and go.
    fn address(&self) -> SocketAddr;
}

/// What a viewer is answered, in SDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedOffer {
    /// A name that nobody else knows.
    pub session: String,
    pub answer: String,
}

/// Why an offer is not accepted: what failed, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "webrtc"), allow(dead_code))]
pub enum OfferRefused {
    /// There is no video of that name.
    Unknown(String),
    /// It is no offer.
    Malformed(String),
    /// It asks for something that there is not.
    Unsupported(String),
    /// There is no room for one more now.
    Crowded(String),
}

/// Of the lines of recordings in an answer, for thousands of events are a gigabyte in memory. One is there in any case.
const MOST_BYTES: usize = 4 << 20;

/// Which recordings are asked for.
#[derive(Clone, Debug, Default)]
pub struct RecordingFilter {
    pub source: Option<String>,
    /// A kind of event that has happened in it.
    pub event: Option<String>,
    /// The class of a snapshot's object.
    pub label: Option<String>,
    /// The id over cameras of an object of an event in it, or of a snapshot.
    pub identity: Option<u64>,
    /// Snapshots alone, or all but them.
    pub is_snapshot: bool,
    /// A part of it is not before, and not after that.
    pub from: Option<UtcTime>,
    pub to: Option<UtcTime>,
    pub limit: usize,
}

impl RecordingFilter {
    pub fn is_wanted(&self, entry: &RecordingEntry) -> bool {
        self.is_snapshot == (entry.kind == Kind::Snapshot)
            && self.label.as_ref().is_none_or(|label| entry.label.as_ref() == Some(label))
            && self.identity.is_none_or(|id| entry.identities.contains(&id))
            && self.source.as_ref().is_none_or(|source| *source == entry.source)
            && self.event.as_ref().is_none_or(|kind| entry.events.contains(kind))
            && self.from.is_none_or(|from| entry.end >= from)
            && self.to.is_none_or(|to| entry.begin <= to)
    }

    /// As many of those that are wanted as one answer has, the newest first.
    pub fn newest<T>(&self, mut found: Vec<T>, entry: impl Fn(&T) -> &RecordingEntry) -> Vec<T> {
        found.sort_by(|one, other| {
            let (one, other) = (entry(one), entry(other));
            (other.begin, &one.file).cmp(&(one.begin, &other.file))
        });
        found.truncate(self.limit);
        let mut bytes = 0;
        let fits = |found: &&T| {
            let is_first = bytes == 0;
            bytes += entry(found).line.length();
            is_first || bytes <= MOST_BYTES
        };
        let count = found.iter().take_while(fits).count();
        found.truncate(count.max(1));
        found
    }
}

/// Why a request is not carried out: what failed, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no source or model of that name.
    Unknown(String),
    /// The name is taken already.
    Exists(String),
    /// The request itself is wrong.
    Invalid(String),
    /// Another program has it now; the same request may succeed later.
    Busy(String),
    /// The request is right, and a file cannot be written.
    Failed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refused::Unknown(text)
        | Refused::Exists(text)
        | Refused::Invalid(text)
        | Refused::Busy(text)
        | Refused::Failed(text)) = self;
        f.write_str(text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Started, without a frame so far.
    Connecting,
    Running,
    /// It failed, and is started again when the backoff time has passed.
    Waiting,
    /// A file that was read to its end.
    Ended,
    /// It is outside its hours.
    Resting,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceStatus {
    pub name: String,
    /// Without user and password.
    pub address: String,
    pub model: String,
    /// Models that see its objects.
    pub on_objects: Vec<String>,
    /// The GPU that it is on, where there are several.
    pub cuda_device_id: Option<i32>,
    pub state: State,
    /// Why it failed last, until it runs again.
    pub error: Option<String>,
    /// The kind of that failure.
    pub cause: Option<Cause>,
    /// How often it has failed since the start, by the cause.
    pub failures: BTreeMap<Cause, u64>,
    /// How often it was started again after a failure.
    pub restarts: u64,
    /// Pipelines of this source that do not stop, and are left behind.
    pub left_behind: usize,
    /// Whether events are being recorded to a file now.
    pub recording: bool,
    /// Recordings that failed, or lack frames, since the start.
    pub failed_recordings: u64,
    /// Frames with results since the service was started, over all restarts.
    pub frames: u64,
    /// Frames that were dropped because the model was too slow for a live source.
    pub dropped: u64,
    /// Frames that wait now.
    pub queued: u64,
    /// Frames of the last seconds for each second.
    pub fps: f64,
    /// When the last frame had its results, since 1970.
    #[serde(serialize_with = "seconds")]
    pub last_frame: Option<Duration>,
    /// From the decoder to the frame's results, in seconds; `None` before the first frame.
    pub latency: Option<Summary>,
    /// From the camera's capture of a frame to its results, in seconds, where the camera says when that was.
    pub latency_from_camera: Option<Summary>,
    /// The GPU's time for a frame's inference, in seconds, where it is measured.
    pub gpu: Option<Quantiles>,
    /// Objects in the last frame.
    pub objects: u64,
    /// Events since the start by their kind: `crossed`, `entered`, `left`, `crowded`.
    pub events: BTreeMap<String, u64>,
    /// What is in the zones now.
    pub zones: Vec<ZoneStatus>,
    /// What has crossed the lines since the start.
    pub lines: Vec<LineStatus>,
    /// What publishing has done, one for each destination.
    pub published: Vec<Published>,
    /// What models that see were asked about it, one for each `[[ask]]`.
    pub asks: Vec<AskStatus>,
    pub snapshots: SnapshotCounts,
    /// Where recordings and snapshots go to.
    #[serde(skip)]
    pub folders: Vec<PathBuf>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ZoneStatus {
    pub name: String,
    /// Objects in it by their class, of those that have been in it.
    pub objects: BTreeMap<String, u32>,
    /// Objects that have come in, and gone out again, since the start.
    pub entered: u64,
    pub left: u64,
    /// Seconds that those were in it that have left.
    pub dwell: Histogram,
}

#[derive(Clone, Debug, Serialize)]
pub struct LineStatus {
    pub name: String,
    pub forward: u64,
    pub backward: u64,
}

fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// In UTF-8, which not all paths are.
fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path_text(path).serialize(serializer)
}

/// Quantiles of the newest values, and all values since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    pub newest: Quantiles,
    #[serde(flatten)]
    pub all: Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Published {
    /// Of its `[[publish]]`.
    pub name: Option<String>,
    /// Without user and password.
    pub location: String,
    pub sent: u64,
    pub dropped: u64,
    pub connected: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct GalleryStatus {
    /// Of its model.
    pub name: String,
    #[serde(serialize_with = "path")]
    pub file: PathBuf,
    pub names: Vec<String>,
    /// Of all names together.
    pub vectors: usize,
    /// Why the file cannot be read. The sources have the names that it had before.
    pub error: Option<String>,
}

/// What has become of a gallery.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EnrolledVector {
    /// Whom the vector shows.
    pub name: String,
    /// Of all names together.
    pub vectors: usize,
    /// That names cannot be told apart.
    pub warning: Option<String>,
}

/// Since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SnapshotCounts {
    pub written: u64,
    /// Because the encoder or the disk was too slow.
    pub dropped: u64,
    /// As there were too many.
    pub limited: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AskStatus {
    pub name: String,
    /// Without what may be a secret.
    pub url: String,
    pub model: String,
    #[serde(flatten)]
    pub counts: AskCounts,
    /// Why the last question has failed.
    pub error: Option<String>,
    pub last_answer: Option<String>,
}

/// Since the start. Each question has one outcome: answered, failed or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AskCounts {
    pub asked: u64,
    pub answered: u64,
    pub failed: u64,
    /// Because others were newer, or the service had to go on.
    pub dropped: u64,
    /// Events that were not asked about, as there were too many.
    pub limited: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ModelStatus {
    pub name: String,
    #[serde(serialize_with = "path")]
    pub file: PathBuf,
    /// What it sees.
    pub on: RunsOn,
    /// `tensorrt`, `onnxruntime` or `rten`, once it is loaded.
    pub backend: Option<String>,
    pub loaded: bool,
    /// Whether its outputs are right; `null` where they were not compared with those of the model on the CPU.
    pub verified: Option<bool>,
    /// Share of the engine that is built, 0 to 1, while one is built.
    pub progress: Option<f64>,
    /// What the model that is loaded has run.
    pub batches: Option<Batches>,
    /// Why the last replacement failed.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Batches {
    /// Frames that one run takes at most.
    pub size: u32,
    pub runs: u64,
    pub frames: u64,
    /// Runs that were begun before they were full.
    pub late: u64,
}

impl Batches {
    /// The same of several GPUs.
    pub fn with(self, other: Self) -> Self {
        Batches {
            size: self.size,
            runs: self.runs + other.runs,
            frames: self.frames + other.frames,
            late: self.late + other.late,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::serve::archive::{IndexLine, Recording, UtcTime};

    /// As of a configuration in a folder with such a name.
    #[test]
    fn files_are_told_whose_paths_are_no_text() {
        let file = PathBuf::from(OsStr::from_bytes(b"/caf\xe9/m.onnx"));
        let (name, names) = (String::new(), Vec::new());
        let gallery = GalleryStatus { name, file: file.clone(), names, vectors: 0, error: None };
        let model = ModelStatus {
            name: String::new(),
            file,
            on: RunsOn::Frames,
            backend: None,
            loaded: true,
            verified: None,
            progress: None,
            batches: None,
            error: None,
        };
        let told = [serde_json::to_value(gallery).unwrap(), serde_json::to_value(model).unwrap()];
        assert!(told.iter().all(|status| status["file"] == "/caf\\xe9/m.onnx"), "{told:?}");
    }

    #[test]
    fn an_answer_has_room_for_so_many_events() {
        let one = |hour: u64, length| {
            let file = format!("gate-{hour}.mp4");
            let (begin, end) = (UtcTime(hour), UtcTime(hour + 1));
            let (kind, events, object) = (Kind::Event, Vec::new(), None);
            let recording = Recording { file, source: "gate".into(), kind, begin, end, bytes: 1, events, object };
            RecordingEntry::new(&recording, hour, IndexLine::Written { at: 0, length })
        };
        let filter = RecordingFilter { limit: 10, ..RecordingFilter::default() };
        for (length, count) in [(100, 10), (MOST_BYTES / 3, 3), (2 * MOST_BYTES, 1)] {
            let found = filter.newest((0..20).map(|hour| one(hour, length)).collect(), |entry| entry);
            assert_eq!(
                found.iter().map(|entry| entry.begin.0).collect::<Vec<_>>(),
                (20 - count..20).rev().collect::<Vec<_>>()
            );
        }
        assert!(filter.newest(Vec::<RecordingEntry>::new(), |entry| entry).is_empty());
    }
}
