// SPDX-License-Identifier: MPL-2.0
//! A recording in its own thread, which makes the folder, opens the file, writes and completes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::file::RecordingFile;
use super::format::FileFormat;
use crate::failure::Failure;
use crate::output::cannot_make_folder;
use crate::serve::archive::{Archive, Kind};
use crate::serve::log::{log, log_error, warn};
use crate::source::tap::Packet;
use crate::threads::Threads;

/// Bytes of packets that wait for the disk: a minute and more of a camera.
const MAX_WAITING: usize = 64 << 20;
/// Recordings of a source that are written at the same time: around events and all the time one each, with the one before it. Each
/// has its thread until the disk has all of it.
const MAX_FILES: usize = 6;
/// Between two messages about recordings that fail one after the other.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// How a file is made, by its first packet.
type Create = dyn Fn(&Path, &str, Kind, &FileFormat, &Packet) -> Result<RecordingFile, Failure> + Send + Sync;

/// Where the recordings of a source go, over all its restarts: what is said, and how many files wait, is not of one run.
#[derive(Clone)]
pub struct Disk {
    target: Arc<DiskTarget>,
    threads: Threads,
}

struct DiskTarget {
    archive: Archive,
    source: String,
    create: Box<Create>,
    files: AtomicUsize,
    /// Recordings that failed, or lack frames.
    failed: AtomicU64,
    /// When it was said that nothing can be written.
    broken: Mutex<Option<Instant>>,
    /// What is said once.
    said: Mutex<BTreeSet<String>>,
}

impl DiskTarget {
    /// Says that nothing can be written, and again after some time, until a file is whole: on a full disk each can be opened.
    fn fail(&self, failure: &Failure) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.is_none_or(|said| said.elapsed() >= SAID_AGAIN) {
            *broken = Some(Instant::now());
            log_error(&self.source, &failure.to_string());
        }
    }

    fn is_slow(&self) -> Failure {
        let remedy = "Use a faster disk, or record fewer sources on it";
        let folder = self.archive.folder().display();
        format!("Cannot write to {folder}: the disk takes too long. Frames are lost. {remedy}.").into()
    }
}

impl Disk {
    pub fn new(archive: &Archive, source: &str, threads: &Threads) -> Self {
        Self::by(archive, source, threads, |folder, source, kind, format, first| {
            std::fs::create_dir_all(folder).map_err(|error| cannot_make_folder(folder, &error))?;
            RecordingFile::create(folder, source, kind, format, first)
        })
    }

    /// How many recordings failed, or lack frames.
    pub fn failed(&self) -> u64 {
        self.target.failed.load(Ordering::Relaxed)
    }

    /// Whether it is that folder.
    pub fn is_at(&self, folder: &Path) -> bool {
        self.target.archive.folder() == folder
    }

    pub fn by(
        archive: &Archive,
        source: &str,
        threads: &Threads,
        create: impl Fn(&Path, &str, Kind, &FileFormat, &Packet) -> Result<RecordingFile, Failure> + Send + Sync + 'static,
    ) -> Self {
        let target = DiskTarget {
            archive: archive.clone(),
            source: source.into(),
            create: Box::new(create),
            files: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            broken: Mutex::default(),
            said: Mutex::default(),
        };
        Disk { target: Arc::new(target), threads: threads.clone() }
    }

    /// Says something about the source's recordings once, over all its restarts.
    pub fn say_once(&self, text: &str) {
        let mut said = self.target.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.insert(text.into()) {
            warn(&self.target.source, text);
        }
    }

    /// A file, whose first frame is of that time; `None` where too many wait for the disk, which is said.
    pub fn open(&self, format: FileFormat, kind: Kind, begun: i64) -> Option<FileWriter> {
        let target = self.target.clone();
        if target.files.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
            target.files.fetch_sub(1, Ordering::Relaxed);
            target.fail(&target.is_slow());
            return None;
        }
        let (sender, given) = channel();
        let waiting = Arc::new(WaitingBytes::default());
        let writer = FileWriter { given: sender, waiting: waiting.clone(), target: target.clone(), begun };
        let subject = format!("a recording of {}", target.source);
        let work = move || {
            write(&target, kind, &format, &given, &waiting);
            target.files.fetch_sub(1, Ordering::Relaxed);
        };
        match self.threads.spawn("record".into(), &subject, work) {
            Ok(()) => Some(writer),
            Err(failure) => {
                self.target.files.fetch_sub(1, Ordering::Relaxed);
                self.target.fail(&failure);
                None
            }
        }
    }
}

/// Bytes of packets that the disk does not have yet.
#[derive(Default)]
struct WaitingBytes {
    for_thread: AtomicUsize,
    for_disk: AtomicUsize,
}

/// What a file is given.
enum Given {
    Packets(Vec<Packet>),
    Event(Map<String, Value>),
}

/// A file that is being written. Dropped, it is completed with the packets that it was given.
pub struct FileWriter {
    given: Sender<Given>,
    waiting: Arc<WaitingBytes>,
    target: Arc<DiskTarget>,
    begun: i64,
}

fn bytes(packets: &[Packet]) -> usize {
    packets.iter().map(|packet| packet.buffer.size()).sum()
}

impl FileWriter {
    /// Never waits. Returns false where the file takes no more packets, which was said.
    pub fn write(&self, packets: Vec<Packet>) -> bool {
        let size = bytes(&packets);
        let for_thread = self.waiting.for_thread.fetch_add(size, Ordering::Relaxed) + size;
        if for_thread + self.waiting.for_disk.load(Ordering::Relaxed) > MAX_WAITING {
            self.target.fail(&self.target.is_slow());
            return false;
        }
        self.given.send(Given::Packets(packets)).is_ok()
    }

    /// Something that happened in its time.
    pub fn note(&self, event: &Map<String, Value>) {
        let _ = self.given.send(Given::Event(event.clone())); // it has failed, which the next packets find out
    }

    /// The time of the first frame.
    pub fn begun(&self) -> i64 {
        self.begun
    }
}

/// The thread of a file.
fn write(target: &DiskTarget, kind: Kind, format: &FileFormat, given: &Receiver<Given>, waiting: &WaitingBytes) {
    let Ok(Given::Packets(packets)) = given.recv() else { return };
    let Some(first) = packets.first() else { return };
    let mut file = match (target.create)(target.archive.folder(), &target.source, kind, format, first) {
        Ok(file) => file,
        Err(failure) => return target.fail(&failure),
    };
    target.archive.begun(&file.name());
    for given in std::iter::once(Given::Packets(packets)).chain(given.iter()) {
        let packets = match given {
            Given::Packets(packets) => packets,
            Given::Event(event) => {
                file.note(event);
                continue;
            }
        };
        if let Err(failure) = packets.iter().try_for_each(|packet| file.write(packet)) {
            target.fail(&failure);
            file.discard();
            return target.archive.ended(&file.name(), None);
        }
        file.look_after_sound();
        waiting.for_thread.fetch_sub(bytes(&packets), Ordering::Relaxed);
        waiting.for_disk.store(file.waiting(), Ordering::Relaxed);
    }
    let recording = match file.complete() {
        Ok(recording) => {
            *target.broken.lock().unwrap_or_else(PoisonError::into_inner) = None;
            log(&target.source, &format!("Recorded {}.", file.path().display()));
            Some(recording)
        }
        Err(failure) => {
            target.fail(&failure);
            file.discard();
            None
        }
    };
    target.archive.ended(&file.name(), recording);
}
