// SPDX-License-Identifier: MPL-2.0
//! The recordings of a folder as all threads see them. One thread writes them: that of the folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::recording::{IndexLine, Recording, RecordingEntry};

/// The recordings of a folder by their names, which begin with their sources.
pub type Entries = BTreeMap<String, Arc<RecordingEntry>>;

#[derive(Clone, Default)]
pub struct Catalogue(Arc<Mutex<Listed>>);

#[derive(Default)]
pub struct Listed {
    pub entries: Entries,
    /// The index whose lines they are. It can be read on where another one has taken its name.
    pub index: Option<Arc<File>>,
}

/// A recording that was found.
#[derive(Clone)]
pub struct FoundRecording {
    pub entry: Arc<RecordingEntry>,
    index: Option<Arc<File>>,
}

/// The recordings in the order in which they were made.
pub fn in_order(entries: &Entries) -> Vec<&Arc<RecordingEntry>> {
    let mut all: Vec<_> = entries.values().collect();
    all.sort_by_key(|entry| (entry.made, entry.begin));
    all
}

impl Catalogue {
    pub fn lock(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, is_wanted: impl Fn(&RecordingEntry) -> bool) -> Vec<FoundRecording> {
        let listed = self.lock();
        let wanted = listed.entries.values().filter(|entry| is_wanted(entry));
        wanted.map(|entry| FoundRecording { entry: entry.clone(), index: listed.index.clone() }).collect()
    }

    pub fn in_order(&self) -> Vec<FoundRecording> {
        let listed = self.lock();
        let all = in_order(&listed.entries).into_iter();
        all.map(|entry| FoundRecording { entry: entry.clone(), index: listed.index.clone() }).collect()
    }
}

impl FoundRecording {
    /// All of it, from the disk. Without what has happened where the index was changed by others.
    pub fn read(&self) -> Recording {
        let read = || {
            let (at, length) = match &self.entry.line {
                IndexLine::Written { at, length } => (*at, *length),
                IndexLine::Waiting(recording) => return Some(Recording::clone(recording)),
            };
            let mut line = vec![0; length];
            self.index.as_ref()?.read_exact_at(&mut line, at).ok()?;
            serde_json::from_slice(&line).ok().filter(|recording: &Recording| recording.file == self.entry.file)
        };
        read().unwrap_or_else(|| self.entry.bare())
    }
}
