// SPDX-License-Identifier: MPL-2.0
//! A recording: all that is told of one, and what is known of it without the disk.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::moment::UtcTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Around events.
    Event,
    /// All the time.
    Continuous,
    /// The best picture of an object.
    Snapshot,
}

/// A recording that is whole: a line of the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Recording {
    /// Its name in the folder.
    pub file: String,
    pub source: String,
    pub kind: Kind,
    pub begin: UtcTime,
    pub end: UtcTime,
    pub bytes: u64,
    /// What happened in that time.
    #[serde(default)]
    pub events: Vec<Map<String, Value>>,
    /// The object of a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Map<String, Value>>,
}

/// What is known of a recording without the disk: what has happened in those of a month would fill the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordingEntry {
    pub file: String,
    pub source: String,
    pub kind: Kind,
    pub begin: UtcTime,
    pub end: UtcTime,
    pub bytes: u64,
    /// The kinds of its events, each once.
    pub events: Vec<String>,
    /// The class of a snapshot's object.
    pub label: Option<String>,
    /// The ids over cameras of its objects, each once.
    pub identities: Vec<u64>,
    /// Its place among those of its folder, in the order in which they became whole. Their times are of a clock that may be
    /// set.
    pub made: u64,
    /// Where all of it is.
    pub line: IndexLine,
}

/// Where a recording is described.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexLine {
    /// In the index, so many bytes from there on.
    Written { at: u64, length: usize },
    /// The index does not have it yet.
    Waiting(Arc<Recording>),
}

impl IndexLine {
    /// Bytes of it, as far as they are known.
    pub fn length(&self) -> usize {
        match self {
            IndexLine::Written { length, .. } => *length,
            IndexLine::Waiting(recording) => 64 * recording.events.len(),
        }
    }
}

fn text(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key)?.as_str().map(String::from)
}

impl RecordingEntry {
    pub fn new(recording: &Recording, made: u64, line: IndexLine) -> Self {
        let Recording { file, source, kind, begin, end, bytes, events, object } = recording;
        let objects = events.iter().chain(object);
        let mut identities: Vec<u64> = objects.filter_map(|object| object.get("identity")?.as_u64()).collect();
        identities.sort_unstable();
        identities.dedup();
        identities.shrink_to_fit();
        let mut events: Vec<String> = events.iter().filter_map(|event| text(event, "event")).collect();
        events.sort();
        events.dedup();
        events.shrink_to_fit();
        RecordingEntry {
            file: file.clone(),
            source: source.clone(),
            kind: *kind,
            begin: *begin,
            end: *end,
            bytes: *bytes,
            events,
            label: object.as_ref().and_then(|object| text(object, "label")),
            identities,
            made,
            line,
        }
    }

    /// One that is not in the index yet.
    pub fn waiting(recording: Recording, made: u64) -> Self {
        let recording = Arc::new(recording);
        RecordingEntry::new(&recording, made, IndexLine::Waiting(recording.clone()))
    }

    /// The recording, as far as it is known.
    pub fn bare(&self) -> Recording {
        Recording {
            file: self.file.clone(),
            source: self.source.clone(),
            kind: self.kind,
            begin: self.begin,
            end: self.end,
            bytes: self.bytes,
            events: Vec::new(),
            object: None,
        }
    }
}
