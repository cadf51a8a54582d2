// SPDX-License-Identifier: MPL-2.0
//! Sees that a file has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::failure::Failure;
use crate::threads::Threads;

/// A file in a volume of Kubernetes or on a server tells of no change, so it is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks at a file until it is dropped.
pub struct FileWatch {
    /// Only to be dropped.
    _end: Sender<()>,
}

/// What tells one content of a file from another: where it is, behind links, when it was written, and when its rights changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    path: PathBuf,
    inode: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// `None` while there is no such file.
    pub fn of(file: &Path) -> Option<Self> {
        let path = file.canonicalize().ok()?;
        let data = fs::metadata(&path).ok()?;
        Some(Stamp {
            path,
            inode: (data.dev(), data.ino()),
            size: data.size(),
            written: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// Tells changes that are complete: what is being written looks different each time.
struct Changes {
    /// What was told last.
    known: Option<Stamp>,
    /// What was seen last.
    seen: Option<Stamp>,
}

impl Changes {
    /// Whether there is another content since, which has not changed between two looks.
    fn look(&mut self, now: Option<Stamp>) -> bool {
        let is_steady = now.is_some() && now == self.seen;
        self.seen = now;
        let is_new = is_steady && self.seen != self.known;
        if is_new {
            self.known = self.seen.clone();
        }
        is_new
    }
}

impl FileWatch {
    /// Calls whenever the file has another content than the one that is known, which was taken before the file was read.
    pub fn start(
        file: &Path,
        known: Option<Stamp>,
        threads: &Threads,
        changed: impl Fn() + Send + 'static,
    ) -> Result<Self, Failure> {
        let (end, ended) = channel();
        let file = file.to_path_buf();
        let subject = format!("changes of {}", file.display());
        threads.spawn("watch".into(), &subject, move || {
            let mut changes = Changes { seen: known.clone(), known };
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if changes.look(Stamp::of(&file)) {
                    changed();
                }
            }
        })?;
        Ok(FileWatch { _end: end })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::scratch;
    use crate::wait::LIMIT;

    /// A service needs seconds from reading its file until it watches it.
    #[test]
    fn a_change_before_the_watch_begins_is_told() {
        let file = scratch("changes-a_change_before_the_watch_begins_is_told").join("config.toml");
        fs::write(&file, "a").unwrap();
        let known = Stamp::of(&file);
        fs::write(&file, "bc").unwrap();
        let (tell, told) = channel();
        let changed = move || tell.send(()).unwrap();
        let watch = FileWatch::start(&file, known, &Threads::default(), changed).unwrap();
        told.recv_timeout(LIMIT).unwrap();
        drop(watch);
    }

    #[test]
    fn a_change_is_told_once_it_is_complete() {
        let folder = scratch("changes-a_change_is_told_once_it_is_complete");
        let file = folder.join("config.toml");
        fs::write(&file, "a").unwrap();
        let known = Stamp::of(&file);
        let mut changes = Changes { seen: known.clone(), known };
        let mut look = || changes.look(Stamp::of(&file));
        assert!(!look() && !look());
        // As it is written.
        fs::write(&file, "bc").unwrap();
        assert!(!look());
        fs::write(&file, "bcd").unwrap();
        assert!(!look());
        assert!(look());
        assert!(!look());
        // It may be away for a moment.
        fs::remove_file(&file).unwrap();
        assert!(!look() && !look());
        fs::write(&file, "e").unwrap();
        assert!(!look());
        assert!(look() && !look());
    }

    /// As Kubernetes puts another version in a volume: one link in the way changes.
    #[test]
    fn a_link_that_leads_elsewhere_is_a_change() {
        let folder = scratch("changes-a_link_that_leads_elsewhere_is_a_change");
        for version in ["1", "2"] {
            fs::create_dir(folder.join(version)).unwrap();
            fs::write(folder.join(version).join("config.toml"), "same").unwrap();
        }
        symlink("1", folder.join("data")).unwrap();
        symlink("data/config.toml", folder.join("config.toml")).unwrap();
        let file = folder.join("config.toml");
        let known = Stamp::of(&file);
        let mut changes = Changes { seen: known.clone(), known };
        assert!(!changes.look(Stamp::of(&file)));
        symlink("2", folder.join("next")).unwrap();
        fs::rename(folder.join("next"), folder.join("data")).unwrap();
        assert!(!changes.look(Stamp::of(&file)));
        assert!(changes.look(Stamp::of(&file)));
    }
}
