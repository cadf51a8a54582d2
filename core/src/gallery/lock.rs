// SPDX-License-Identifier: MPL-2.0
//! The new file of a gallery, which takes the place of the old one. It is locked, so that one program at a time changes a gallery.
//!
//! The lock ends with the process that has it, however that ends. What such a process leaves locks nothing, and the next change
//! removes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::files::{open_to_lock, wait_until_unlocked};

/// An empty file that only this user may read. It is removed when it is dropped, unless it was put in its place.
pub struct NewGalleryFile {
    pub file: File,
    path: PathBuf,
    is_in_place: bool,
}

impl NewGalleryFile {
    /// Makes the file; `None` where another change has it for longer than `wait`.
    pub fn take(path: &Path, wait: Duration) -> io::Result<Option<Self>> {
        let end = Instant::now() + wait;
        loop {
            let (file, is_new) = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
                Ok(file) => (file, true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match open_to_lock(path) {
                        Ok(file) => (file, false),
                        // Its change has just ended.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            let left = end.saturating_duration_since(Instant::now());
            let goes_on = match file.try_lock() {
                Ok(()) if is_at(&file, path) && is_new => {
                    return Ok(Some(NewGalleryFile { file, path: path.into(), is_in_place: false }));
                }
                // Nobody writes it any more. It may belong to somebody else, and is not used.
                Ok(()) if is_at(&file, path) => fs::remove_file(path).map(|()| true)?,
                // Its change has just ended.
                Ok(()) => !left.is_zero(),
                // Whoever ends that change moves or removes the file, and so all begins again.
                Err(TryLockError::WouldBlock) => !left.is_zero() && wait_until_unlocked(file, left)?,
                Err(TryLockError::Error(error)) => return Err(error),
            };
            if !goes_on {
                return Ok(None);
            }
        }
    }

    /// Puts it in the place of another file.
    pub fn put(mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.path, place)?;
        self.is_in_place = true;
        Ok(())
    }
}

/// While the lock is held.
impl Drop for NewGalleryFile {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the file is still there: whoever had the lock before may have moved or removed it.
fn is_at(file: &File, path: &Path) -> bool {
    let there = fs::symlink_metadata(path);
    file.metadata().is_ok_and(|own| there.is_ok_and(|there| (own.dev(), own.ino()) == (there.dev(), there.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scratch;

    fn take(path: &Path) -> Option<NewGalleryFile> {
        NewGalleryFile::take(path, Duration::ZERO).unwrap()
    }

    #[test]
    fn one_at_a_time_has_it_and_what_is_left_locks_nothing() {
        let folder = scratch("gallery-lock");
        let (path, place) = (folder.join("g.new"), folder.join("g"));
        fs::write(&path, "of a process that was killed").unwrap();
        let first = take(&path).unwrap();
        assert_eq!((first.file.metadata().unwrap().len(), first.file.metadata().unwrap().mode() & 0o777), (0, 0o600));
        assert!(take(&path).is_none());
        // What waits beyond the limit holds up no later change.
        assert!(NewGalleryFile::take(&path, Duration::from_millis(1)).unwrap().is_none());
        drop(first);
        assert!(!fs::exists(&path).unwrap());
        take(&path).unwrap().put(&place).unwrap();
        assert!(fs::exists(&place).unwrap() && !fs::exists(&path).unwrap());
        // One that waits has it when the other one ends.
        let first = take(&path).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| NewGalleryFile::take(&path, crate::test::LIMIT).unwrap().is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
        std::os::unix::fs::symlink(&place, &path).unwrap();
        assert!(NewGalleryFile::take(&path, Duration::ZERO).is_err(), "what a link points to is not removed");
        assert!(fs::exists(&place).unwrap());
    }
}
