// SPDX-License-Identifier: MPL-2.0
//! A recording in its own thread, which makes the folder, opens the file, writes and completes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use gst::ClockTime;

use super::file::RecordingFile;
use super::ring::Encoded;
use crate::failure::Failure;
use crate::serve::log::{log, log_error};
use crate::threads::Threads;

/// Bytes of encoded frames that wait for the disk: a minute and more of a camera.
const MAX_WAITING: usize = 64 << 20;
/// Recordings of a source that are written at the same time. Each has its thread until the disk has all of it.
const MAX_FILES: usize = 4;

/// How a file is made, by its first frame.
type Create = dyn Fn(&Path, &str, &gst::Caps, &Encoded) -> Result<RecordingFile, Failure> + Send + Sync;

/// Where the recordings of a source go, over all its restarts: what is said, and how many files wait, is not of one run.
#[derive(Clone)]
pub struct Disk {
    target: Arc<DiskTarget>,
    threads: Threads,
}

struct DiskTarget {
    folder: PathBuf,
    source: String,
    create: Box<Create>,
    files: AtomicUsize,
    /// Whether it was said that nothing can be written.
    is_broken: AtomicBool,
}

impl DiskTarget {
    /// Says once that nothing can be written, until a file is whole: on a full disk each can be opened.
    fn fail(&self, failure: &Failure) {
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            log_error(&self.source, &failure.to_string());
        }
    }

    fn is_slow(&self) -> Failure {
        format!("Cannot write to {}: the disk takes too long. Frames are lost.", self.folder.display()).into()
    }
}

impl Disk {
    pub fn new(folder: &Path, source: &str, threads: &Threads) -> Self {
        Self::by(folder, source, threads, |folder, source, caps, first| {
            let shown = folder.display();
            std::fs::create_dir_all(folder).map_err(|error| format!("Cannot make the folder {shown}: {error}."))?;
            RecordingFile::create(folder, source, caps, first)
        })
    }

    /// Whether it is that folder.
    pub fn is_at(&self, folder: &Path) -> bool {
        self.target.folder == folder
    }

    pub fn by(
        folder: &Path,
        source: &str,
        threads: &Threads,
        create: impl Fn(&Path, &str, &gst::Caps, &Encoded) -> Result<RecordingFile, Failure> + Send + Sync + 'static,
    ) -> Self {
        let target = DiskTarget {
            folder: folder.into(),
            source: source.into(),
            create: Box::new(create),
            files: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        };
        Disk { target: Arc::new(target), threads: threads.clone() }
    }

    /// A file, whose first frame is of that time; `None` where too many wait for the disk, which is said.
    pub fn open(&self, caps: gst::Caps, begun: ClockTime) -> Option<FileWriter> {
        let target = self.target.clone();
        if target.files.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
            target.files.fetch_sub(1, Ordering::Relaxed);
            target.fail(&target.is_slow());
            return None;
        }
        let (frames, given) = channel();
        let waiting = Arc::new(WaitingBytes::default());
        let writer = FileWriter { frames, waiting: waiting.clone(), target: target.clone(), begun };
        let subject = format!("a recording of {}", target.source);
        let work = move || {
            write(&target, &caps, &given, &waiting);
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

/// Bytes of frames that the disk does not have yet.
#[derive(Default)]
struct WaitingBytes {
    for_thread: AtomicUsize,
    for_disk: AtomicUsize,
}

/// A file that is being written. Dropped, it is completed with the frames that it was given.
pub struct FileWriter {
    frames: Sender<Encoded>,
    waiting: Arc<WaitingBytes>,
    target: Arc<DiskTarget>,
    begun: ClockTime,
}

impl FileWriter {
    /// Never waits. Returns false where the file takes no more frames, which was said.
    pub fn write(&self, frame: Encoded) -> bool {
        let size = frame.buffer.size();
        let for_thread = self.waiting.for_thread.fetch_add(size, Ordering::Relaxed) + size;
        if for_thread + self.waiting.for_disk.load(Ordering::Relaxed) > MAX_WAITING {
            self.target.fail(&self.target.is_slow());
            return false;
        }
        self.frames.send(frame).is_ok()
    }

    /// How long it is with a frame of that time.
    pub fn length(&self, time: ClockTime) -> ClockTime {
        time.saturating_sub(self.begun)
    }
}

/// The thread of a file.
fn write(target: &DiskTarget, caps: &gst::Caps, frames: &Receiver<Encoded>, waiting: &WaitingBytes) {
    let Ok(first) = frames.recv() else { return };
    let file = match (target.create)(&target.folder, &target.source, caps, &first) {
        Ok(file) => file,
        Err(failure) => return target.fail(&failure),
    };
    for frame in std::iter::once(first).chain(frames.iter()) {
        if let Err(failure) = file.write(&frame) {
            target.fail(&failure);
            return file.discard();
        }
        waiting.for_thread.fetch_sub(frame.buffer.size(), Ordering::Relaxed);
        waiting.for_disk.store(file.waiting(), Ordering::Relaxed);
    }
    match file.complete() {
        Ok(()) => {
            target.is_broken.store(false, Ordering::Relaxed);
            log(&target.source, &format!("Recorded {}.", file.path().display()));
        }
        Err(failure) => {
            target.fail(&failure);
            file.discard();
        }
    }
}
