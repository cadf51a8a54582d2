// SPDX-License-Identifier: MPL-2.0
//! The recordings, or the snapshots, in a folder: what there is, what is kept, and what is removed.
//!
//! * `recording`: what is known of one, with `moment`: times of the day, and `name`: those of files. `catalogue`: what there
//!   is, in memory. `index`: on the disk, by what is in the files: `content`. `keep`: what is removed. `clock`: whether ages
//!   are known.
//!
//! Each folder has a thread, which alone writes its index and removes files: no camera waits for the disk. Memory has what is
//! looked for; what has happened is read from the index by those who ask for it.

mod catalogue;
mod clock;
mod content;
mod index;
mod keep;
mod moment;
mod name;
mod recording;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gsttrt_publish::clock::now;

use self::catalogue::{Catalogue, in_order};
use self::clock::SteadyClock;
use self::index::Index;
use super::disk;
use super::log::{log_error, warn};
use crate::threads::Threads;

pub use self::catalogue::FoundRecording;
pub use self::keep::{FolderLimits, KeepLimits};
pub use self::moment::UtcTime;
pub use self::name::{create_free, part};
#[cfg(test)]
pub use self::recording::IndexLine;
pub use self::recording::{Kind, Recording, RecordingEntry};

/// How often ages and the free space are looked at while no file becomes whole.
const LOOK_INTERVAL: Duration = Duration::from_secs(20);
/// Between two messages about recordings that are removed as soon as they are whole.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// The folders of a service.
#[derive(Clone)]
pub struct Archives {
    folders: Arc<Mutex<BTreeMap<PathBuf, Archive>>>,
    is_closed: Arc<AtomicBool>,
    threads: Threads,
}

/// A folder.
#[derive(Clone)]
pub struct Archive {
    folder: PathBuf,
    notes: Sender<Note>,
    catalogue: Catalogue,
}

/// What its thread is told.
enum Note {
    /// A file of that name is being written.
    Begun(String),
    /// It is whole, or nothing came of it.
    Ended(String, Option<Recording>),
    Limits(FolderLimits),
    /// The service ends. Files that are being written are waited for.
    Close,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Archives {
    pub fn new(threads: &Threads) -> Self {
        Archives { folders: Arc::default(), is_closed: Arc::default(), threads: threads.clone() }
    }

    /// The folder, whose thread is started where it is a new one.
    pub fn at(&self, folder: &Path) -> Archive {
        let mut folders = lock(&self.folders);
        // What comes so late is found by the next start.
        let threads = Some(&self.threads).filter(|_| !self.is_closed.load(Ordering::Relaxed));
        folders.entry(folder.into()).or_insert_with(|| Archive::open(folder, threads)).clone()
    }

    /// What is kept from now on. All of a folder at once: nothing is removed by limits of others, nor by former ones of a folder
    /// that is not among these any more.
    pub fn keep(&self, mut folders: BTreeMap<PathBuf, FolderLimits>) {
        for folder in lock(&self.folders).keys() {
            folders.entry(folder.clone()).or_default();
        }
        folders.into_iter().for_each(|(folder, limits)| self.at(&folder).tell(Note::Limits(limits)));
    }

    /// The recordings that are wanted.
    pub fn find(&self, is_wanted: impl Fn(&RecordingEntry) -> bool) -> Vec<FoundRecording> {
        let folders: Vec<Archive> = lock(&self.folders).values().cloned().collect();
        folders.iter().flat_map(|archive| archive.catalogue.find(&is_wanted)).collect()
    }

    /// All of them, from the disk.
    #[cfg(test)]
    pub fn recordings(&self) -> Vec<Recording> {
        self.find(|_| true).iter().map(FoundRecording::read).collect()
    }

    /// The path of a recording.
    pub fn path(&self, file: &str) -> Option<PathBuf> {
        let folders = lock(&self.folders);
        let archive = folders.values().find(|archive| archive.catalogue.lock().entries.contains_key(file))?;
        Some(archive.folder.join(file))
    }

    /// Lets the threads end once all that is being written is whole.
    pub fn close(&self) {
        let mut folders = lock(&self.folders);
        self.is_closed.store(true, Ordering::Relaxed);
        std::mem::take(&mut *folders).values().for_each(|archive| archive.tell(Note::Close));
    }
}

impl Archive {
    fn open(folder: &Path, threads: Option<&Threads>) -> Self {
        let (notes, told) = channel();
        let archive = Archive { folder: folder.into(), notes, catalogue: Catalogue::default() };
        let keeper = Keeper {
            folder: folder.into(),
            told,
            catalogue: archive.catalogue.clone(),
            limits: FolderLimits::default(),
            clock: None,
            is_clock_right: true,
            written: BTreeSet::new(),
            fresh: BTreeSet::new(),
            failures: SaidFailures::default(),
            told_of_fresh: None,
        };
        let subject = format!("the folder {}", folder.display());
        let started =
            threads.map_or(Ok(()), |threads| threads.spawn("archive".into(), &subject, move || keeper.work()));
        if let Err(failure) = started {
            log_error("serve", &failure.to_string());
        }
        archive
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn begun(&self, file: &str) {
        self.tell(Note::Begun(file.into()));
    }

    pub fn ended(&self, file: &str, recording: Option<Recording>) {
        self.tell(Note::Ended(file.into(), recording));
    }

    fn tell(&self, note: Note) {
        let _ = self.notes.send(note); // it has ended; the next start finds what is there
    }
}

/// The thread of a folder.
struct Keeper {
    folder: PathBuf,
    told: Receiver<Note>,
    catalogue: Catalogue,
    limits: FolderLimits,
    clock: Option<SteadyClock>,
    /// Whether ages are known, or it was said that they are not.
    is_clock_right: bool,
    /// The files that are being written.
    written: BTreeSet<String>,
    /// Those that have become whole since it was looked at what is too much.
    fresh: BTreeSet<String>,
    failures: SaidFailures,
    /// When it was said that one of those is removed.
    told_of_fresh: Option<Instant>,
}

/// What does not work, and was said.
#[derive(Default)]
struct SaidFailures(BTreeMap<&'static str, String>);

impl SaidFailures {
    /// Notes how something went. Returns whether it has failed in a way that was not said yet.
    fn is_news(&mut self, what: &'static str, failure: Option<&str>) -> bool {
        match failure {
            Some(failure) => self.0.insert(what, failure.into()).is_none_or(|said| said != failure),
            None => {
                self.0.remove(what);
                false
            }
        }
    }
}

impl Keeper {
    fn work(mut self) {
        let mut index = None;
        let mut is_closing = false;
        loop {
            if index.is_none() {
                index = self.open();
            }
            if let Some(index) = &mut index {
                self.remove_what_is_too_many(index);
                let settled = index.settle();
                self.say(settled, "write the index of");
            }
            if is_closing && self.written.is_empty() {
                return;
            }
            let mut note = self.told.recv_timeout(LOOK_INTERVAL);
            // All that has come meanwhile, before the disk is looked at again.
            loop {
                match note {
                    Ok(Note::Begun(file)) => drop(self.written.insert(file)),
                    Ok(Note::Ended(file, recording)) => {
                        self.written.remove(&file);
                        if let (Some(recording), Some(index)) = (recording, &mut index) {
                            self.fresh.insert(recording.file.clone());
                            let added = index.add(recording);
                            self.say(added, "write the index of");
                        }
                    }
                    Ok(Note::Limits(limits)) => self.limits = limits,
                    Ok(Note::Close) => is_closing = true,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                note = self.told.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            }
        }
    }

    fn open(&mut self) -> Option<Index> {
        let opened = Index::open(&self.folder, &self.catalogue);
        self.say(opened, "read the index of")
    }

    /// Says what has failed.
    fn say<T>(&mut self, outcome: io::Result<T>, what: &'static str) -> Option<T> {
        let failure = outcome.as_ref().err().map(io::Error::to_string);
        if self.failures.is_news(what, failure.as_deref()) {
            let text = failure.unwrap_or_default();
            let remedy = "index.jsonl there must be a file, this user must be able to write and remove files, and there \
                          must be room";
            log_error("serve", &format!("Cannot {what} {}: {text}. {remedy}.", self.folder.display()));
        }
        outcome.ok()
    }

    /// The time by which recordings have an age, if there is a clock to rely on.
    fn time(&mut self) -> Option<UtcTime> {
        let (now, at) = (UtcTime(now()), Instant::now());
        let newest = || in_order(&self.catalogue.lock().entries).last().map(|newest| newest.end);
        let clock = self.clock.get_or_insert_with(|| SteadyClock::new(newest(), now, at));
        let time = clock.read(now, at);
        let was_right = std::mem::replace(&mut self.is_clock_right, time.is_some() || !self.limits.has_age());
        if was_right && !self.is_clock_right {
            let text = "The newest recording is of another time than the clock says, or the clock was set: recordings \
                        are removed by their age once it has gone on without a jump for an hour.";
            warn("serve", text);
        }
        time
    }

    fn remove_what_is_too_many(&mut self, index: &mut Index) {
        let now = self.time();
        if !self.limits.has_any() {
            return;
        }
        let free = disk::reading(&self.folder).map(|disk| disk.free);
        let files = keep::too_many(&self.catalogue.lock().entries, &self.limits, now, free);
        let fresh = std::mem::take(&mut self.fresh);
        let mut removed = Ok(());
        for file in files {
            if fresh.contains(&file) && self.told_of_fresh.is_none_or(|told| told.elapsed() >= SAID_AGAIN) {
                self.told_of_fresh = Some(Instant::now());
                let (shown, why) = (self.folder.display(), self.limits.why_none_stays(free));
                log_error("serve", &format!("Cannot keep {file} in {shown}: {why}."));
            }
            match fs::remove_file(self.folder.join(&file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => removed = Err(error),
                _ => {
                    let noted = index.remove(&file);
                    self.say(noted, "write the index of");
                }
            }
        }
        self.say(removed, "remove a recording in");
    }
}

#[cfg(test)]
mod tests {
    use super::name::{PART, name_of};
    use super::*;
    use crate::scratch::scratch;
    use crate::wait::{LIMIT, wait_until};

    fn recording(second: u64) -> Recording {
        let begin = UtcTime((1_700_000_000 + second) * 1_000_000_000);
        let file = name_of("gate", Kind::Event, begin, 1, "mp4");
        Recording {
            file,
            source: "gate".into(),
            kind: Kind::Event,
            begin,
            end: begin,
            bytes: 10,
            events: Vec::new(),
            object: None,
        }
    }

    fn write(archive: &Archive, recording: &Recording) {
        archive.begun(&recording.file);
        fs::write(archive.folder().join(&recording.file), "0123456789").unwrap();
        archive.ended(&recording.file, Some(recording.clone()));
    }

    #[test]
    fn what_is_too_much_is_removed_and_what_is_being_written_is_not() {
        let folder = scratch("archive-removed");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("holiday.mp4"), "not ours").unwrap();
        let threads = Threads::default();
        let archives = Archives::new(&threads);
        let archive = archives.at(&folder);
        let limits = KeepLimits { bytes: Some(25), ..KeepLimits::default() };
        let of_sources = BTreeMap::from([("gate".to_string(), limits)]);
        archives.keep(BTreeMap::from([(folder.clone(), FolderLimits { of_sources, ..FolderLimits::default() })]));
        let part = folder.join(format!("{}.{PART}", recording(0).file));
        archive.begun(&recording(0).file);
        fs::write(&part, "a long time").unwrap();
        let written = fs::File::open(&part).unwrap();
        written.lock().unwrap();
        (1..5).for_each(|second| write(&archive, &recording(second)));
        let names = || archives.recordings().into_iter().map(|recording| recording.file).collect::<Vec<_>>();
        let kept = [recording(3).file, recording(4).file];
        wait_until("two are left", LIMIT, || names() == kept);
        assert!(kept.iter().all(|file| folder.join(file).exists()) && !folder.join(recording(2).file).exists());
        assert!(part.exists() && folder.join("holiday.mp4").exists());
        assert_eq!(archives.path(&kept[0]), Some(folder.join(&kept[0])));
        assert_eq!(archives.path("holiday.mp4"), None);
        // At the end of the service, what is being written is waited for.
        archives.close();
        assert_eq!(threads.wait(Duration::ZERO), [format!("the folder {}", folder.display())]);
        archive.ended(&recording(0).file, None);
        assert!(threads.wait(LIMIT).is_empty());
        // Another service finds the same.
        let archives = Archives::new(&threads);
        archives.at(&folder);
        wait_until("it is read", LIMIT, || archives.recordings().len() == 2);
    }

    /// As of a source that was removed, with a folder of its own.
    #[test]
    fn what_has_no_limits_any_more_stays() {
        let folder = scratch("archive-stays");
        fs::create_dir_all(&folder).unwrap();
        let threads = Threads::default();
        let archives = Archives::new(&threads);
        let archive = archives.at(&folder);
        let of_others = KeepLimits { total_bytes: Some(25), ..KeepLimits::default() };
        archives.keep(BTreeMap::from([(folder.clone(), FolderLimits { of_others, ..FolderLimits::default() })]));
        (0..3).for_each(|second| write(&archive, &recording(second)));
        wait_until("two are left", LIMIT, || !folder.join(recording(0).file).exists());
        archives.keep(BTreeMap::new());
        (3..6).for_each(|second| write(&archive, &recording(second)));
        archives.close();
        assert!(threads.wait(LIMIT).is_empty());
        assert!((1..6).all(|second| folder.join(recording(second).file).exists()));
    }

    #[test]
    fn a_failure_is_said_again_where_it_went_well_meanwhile() {
        let mut failures = SaidFailures::default();
        let mut is_news = |what, failure| failures.is_news(what, failure);
        assert!(!is_news("write", None) && is_news("write", Some("full")) && !is_news("write", Some("full")));
        // Two that go on at the same time.
        assert!(is_news("remove", Some("gone")) && !is_news("write", Some("full")) && !is_news("remove", Some("gone")));
        assert!(is_news("write", Some("broken")));
        assert!(!is_news("write", None) && is_news("write", Some("broken")) && !is_news("remove", Some("gone")));
    }

    /// Of a disk that is full when the service begins.
    #[test]
    fn what_is_too_much_is_removed_though_the_index_cannot_be_written() {
        let folder = scratch("archive-full");
        fs::create_dir_all(folder.join(format!("index.jsonl.{PART}"))).unwrap();
        let head = [&8u32.to_be_bytes()[..], b"ftyp", &8u32.to_be_bytes(), b"moov"].concat();
        (0..4).for_each(|second| fs::write(folder.join(recording(second).file), &head).unwrap());
        let threads = Threads::default();
        let archives = Archives::new(&threads);
        let of_others = KeepLimits { total_bytes: Some(40), ..KeepLimits::default() };
        archives.keep(BTreeMap::from([(folder.clone(), FolderLimits { of_others, ..FolderLimits::default() })]));
        let names = || archives.recordings().into_iter().map(|recording| recording.file).collect::<Vec<_>>();
        let kept = [recording(2).file, recording(3).file];
        wait_until("two are left", LIMIT, || names() == kept);
        assert!(kept.iter().all(|file| folder.join(file).exists()) && !folder.join(recording(1).file).exists());
        // Once it can be written it is, with what is new.
        fs::remove_dir(folder.join(format!("index.jsonl.{PART}"))).unwrap();
        write(&archives.at(&folder), &recording(9));
        let is_written =
            || fs::read_to_string(folder.join("index.jsonl")).is_ok_and(|text| text.contains(&recording(9).file));
        wait_until("the index is written", LIMIT, is_written);
        archives.close();
        assert!(threads.wait(LIMIT).is_empty());
    }
}
