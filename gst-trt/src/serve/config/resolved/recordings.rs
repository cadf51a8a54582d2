// SPDX-License-Identifier: MPL-2.0
//! What is recorded of a source, and what is kept of that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::keys::{Container, Override, RecordKeys, SourceKeys};
use super::super::wording;
use super::super::wording::{KeyError, problem};
use super::{Config, SourceConfig};
use crate::serve::archive::{FolderLimits, KeepLimits};

/// The length of files where all is recorded, if none is given.
const SEGMENT: Duration = Duration::from_mins(5);

/// What trtanalytics calls what happens.
pub(super) const EVENTS: [&str; 7] = ["crossed", "entered", "left", "dwelled", "crowded", "uncrowded", "headed"];

#[derive(Clone, Debug, PartialEq)]
pub struct RecordConfig {
    pub folder: PathBuf,
    /// Kinds, empty for all. `None` where events are not recorded.
    pub events: Option<Vec<String>>,
    /// The length of files where all is recorded.
    pub segment: Option<Duration>,
    pub keep: KeepLimits,
    pub pre_roll: Duration,
    pub post_roll: Duration,
    /// Bytes in memory for it.
    pub pre_roll_bytes: usize,
    pub max_length: Duration,
    pub container: Container,
    pub audio: bool,
    /// Whether objects are drawn.
    pub draw: bool,
    /// Whether the source's own stream is written: not where it shows other things than the frames.
    pub copies: bool,
}

impl Config {
    /// A folder that files are written to, which is made where it is not there.
    pub(super) fn folder_for(&self, written: &Path) -> Result<PathBuf, KeyError> {
        let folder = self.folder.join(written);
        let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if written.as_os_str().is_empty() || !there.is_dir() {
            return Err(problem("folder", format!("{} is no folder", there.display())));
        }
        Ok(folder)
    }

    /// What is kept in each folder of the sources. In a common one the common limits hold for what no source writes any more.
    pub fn kept<'a>(&self, sources: impl Iterator<Item = &'a SourceConfig>) -> BTreeMap<PathBuf, FolderLimits> {
        let mut folders = BTreeMap::<PathBuf, FolderLimits>::new();
        let recorded = self.record.iter().map(|record| (&record.folder, &record.keep));
        let snapshots = self.snapshots.iter().map(|snapshots| (&snapshots.folder, &snapshots.keep));
        for (folder, keep) in recorded.chain(snapshots) {
            folders.entry(folder.clone()).or_default().of_others = keep.clone();
        }
        for source in sources {
            let recorded = source.record.iter().map(|record| (&record.folder, &record.keep));
            let snapshots = source.snapshots.iter().map(|snapshots| (&snapshots.folder, &snapshots.keep));
            for (folder, keep) in recorded.chain(snapshots) {
                let limits = folders.entry(folder.clone()).or_default();
                limits.of_sources.insert(source.name.clone(), keep.clone());
            }
        }
        folders
    }

    /// Kinds of events that are to be recorded, where no zones tell of any. What is recorded all the time goes on.
    pub(super) fn doubtful_events(&self) -> Vec<(&'static str, usize, KeyError)> {
        let doubt = || problem("events", "no event is recorded without [analytics]: add it, or leave events out");
        let lists = |record: &RecordKeys| record.events.as_ref().is_some_and(|events| !events.is_empty());
        let has_none = |source: &SourceKeys| source.analytics.or(&self.keys.analytics).is_none();
        let sources = || self.keys.source.iter();
        let own = sources()
            .enumerate()
            .filter(|(_, source)| matches!(&source.record, Override::Own(record) if lists(record)) && has_none(source));
        let mut doubts: Vec<_> = own.map(|(number, _)| ("source", number, doubt())).collect();
        let mut of_all = sources().filter(|source| source.record.is_common()).map(has_none).peekable();
        if self.keys.record.as_ref().is_some_and(lists) && of_all.peek().is_some() && of_all.all(|has_none| has_none) {
            doubts.push(("record", 0, doubt()));
        }
        doubts
    }

    /// The length of files of which there are none.
    pub(super) fn doubtful_segments(&self) -> Vec<(&'static str, usize, KeyError)> {
        let own = self.keys.source.iter().enumerate().filter_map(|(number, source)| match &source.record {
            Override::Own(record) => Some(("source", number, record)),
            _ => None,
        });
        let tables = self.keys.record.iter().map(|record| ("record", 0, record)).chain(own);
        let doubtful = tables.filter(|(_, _, record)| record.segment.is_some() && !record.continuous);
        let text =
            "it is the length of files with continuous = true, which is not set. Those of events have max-length";
        doubtful.map(|(table, number, _)| (table, number, problem("segment", text))).collect()
    }

    pub(super) fn record(&self, keys: &RecordKeys) -> Result<RecordConfig, KeyError> {
        if !keys.continuous {
            wording::check_list("events", "event", keys.events.as_deref())?;
        }
        let events = keys.events.clone().unwrap_or_default();
        if let Some(unknown) = events.iter().find(|event| !EVENTS.contains(&event.as_str())) {
            return Err(problem("events", wording::unknown_name("event", unknown, EVENTS.into_iter())));
        }
        if keys.max_length.0 < Duration::from_secs(1) {
            return Err(problem("max-length", "a recording has at least 1 second"));
        }
        if !(1 << 20..=1 << 32).contains(&keys.pre_roll_bytes.0) {
            return Err(problem("pre-roll-bytes", "1MiB to 4GiB of a source are kept in memory"));
        }
        let folder = self.folder_for(&keys.folder)?;
        let segment = keys.segment.map_or(SEGMENT, |segment| segment.0);
        if segment < Duration::from_secs(1) {
            return Err(problem("segment", "a segment has at least 1 second"));
        }
        let keep = KeepLimits {
            age: keys.keep.map(|age| age.0),
            bytes: keys.keep_bytes.map(|bytes| bytes.0),
            total_bytes: keys.total_bytes.map(|bytes| bytes.0),
            free_bytes: keys.free_bytes.map(|bytes| bytes.0),
        };
        if keys.continuous && keep == KeepLimits::default() {
            let text = "what is recorded all the time fills each disk. Say what is kept: keep, keep-bytes, total-bytes \
                        or free-bytes";
            return Err(problem("continuous", text));
        }
        // A list without events, in addition to what is recorded all the time.
        let is_none = keys.continuous && keys.events.as_ref().is_some_and(Vec::is_empty);
        Ok(RecordConfig {
            folder,
            events: (!is_none).then_some(events),
            segment: keys.continuous.then_some(segment),
            keep,
            pre_roll: keys.pre_roll.0,
            post_roll: keys.post_roll.0,
            pre_roll_bytes: keys.pre_roll_bytes.0 as usize,
            max_length: keys.max_length.0,
            container: keys.container,
            audio: keys.audio,
            draw: keys.draw,
            copies: !keys.draw,
        })
    }
}
