// SPDX-License-Identifier: MPL-2.0
//! Readings of files that are in use: who wants a file that somebody in the process has as it is now gets the gallery of that one.
//!
//! A file is known by where it is behind links and by what the system says of it once it is open. So a link and its target are one
//! file, and a link that leads elsewhere since is another one.

use std::convert::Infallible;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::{Gallery, file};
use crate::error::Result;
use crate::in_use::InUse;

/// By what a file is another than before, also in who may read it. A change within the time of the file system's clock is told by the
/// length, or by the file that has come in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileMark {
    pub seconds: i64,
    pub nanoseconds: i64,
    /// When its content or its rights changed.
    pub changed: (i64, i64),
    pub length: u64,
    pub device: u64,
    pub inode: u64,
}

impl FileMark {
    /// `None` while there is no such file.
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(FileMark::from)
    }
}

impl From<&Metadata> for FileMark {
    fn from(file: &Metadata) -> Self {
        FileMark {
            seconds: file.mtime(),
            nanoseconds: file.mtime_nsec(),
            changed: (file.ctime(), file.ctime_nsec()),
            length: file.len(),
            device: file.dev(),
            inode: file.ino(),
        }
    }
}

/// A file as it was, read once by the first who wants it; the others wait for that. An error is that of all who wait, and whoever comes
/// later reads the file again.
#[derive(Default)]
struct GalleryReading(OnceLock<Result<Arc<Gallery>>>);

/// A gallery as a file was at some time.
#[derive(Clone)]
pub(super) struct FoundGallery {
    pub gallery: Arc<Gallery>,
    /// Before the file was opened: of two, the later one is what the file is now.
    pub at: Instant,
    /// By this others find it.
    _reading: Arc<GalleryReading>,
}

impl FoundGallery {
    /// # Errors
    /// As [`file::read`].
    pub fn read(path: &Path) -> Result<Self> {
        static READINGS: InUse<(PathBuf, FileMark), GalleryReading> = InUse::new();
        let at = Instant::now();
        let (file, metadata) = file::open_known(path)?;
        // The mark is of what is read, whatever a link leads to meanwhile; the place tells files apart whose marks are equal by chance.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let Ok(reading) = READINGS.get((place, FileMark::from(&metadata)), || Ok::<_, Infallible>(Arc::default()));
        let gallery = reading.0.get_or_init(|| file::read_open(path, file).map(Arc::new)).clone()?;
        Ok(FoundGallery { gallery, at, _reading: reading })
    }
}

/// The gallery of a file, which is read unless somebody in the process has it as it is now.
///
/// # Errors
/// As [`file::read`].
pub fn read_shared(path: &Path) -> Result<Arc<Gallery>> {
    FoundGallery::read(path).map(|found| found.gallery)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::error::ErrorKind;
    use crate::gallery::GalleryEntry;
    use crate::test::scratch;

    fn add(path: &Path, name: &str) {
        file::change(path, |_| true, &[GalleryEntry::new(name, &[1.0, 0.0]).unwrap()]).unwrap();
    }

    fn is_one(a: &FoundGallery, b: &FoundGallery) -> bool {
        Arc::ptr_eq(&a.gallery, &b.gallery)
    }

    #[test]
    fn a_file_is_read_once_while_somebody_has_it_as_it_is() {
        let folder = scratch("gallery-readings");
        let (path, other, link) = (folder.join("g.jsonl"), folder.join("other.jsonl"), folder.join("link.jsonl"));
        add(&path, "ada");
        fs::copy(&path, &other).unwrap();
        symlink("g.jsonl", &link).unwrap();
        let read = |path: &Path| FoundGallery::read(path).unwrap();
        let first = read(&path);
        assert!(is_one(&first, &read(&path)) && is_one(&first, &read(&link)));
        assert!(is_one(&first, &read(&folder.join("../gallery-readings/g.jsonl"))));
        assert!(!is_one(&first, &read(&other)), "another file");
        add(&path, "bob");
        let second = read(&link);
        assert!(!is_one(&first, &second) && is_one(&second, &read(&path)));
        assert_eq!((first.gallery.names().len(), second.gallery.names().len()), (1, 2));
        // The link leads elsewhere.
        fs::remove_file(&link).unwrap();
        symlink("other.jsonl", &link).unwrap();
        let third = read(&link);
        assert!(!is_one(&second, &third) && is_one(&third, &read(&other)));
        // The last one frees it.
        let gallery = Arc::downgrade(&second.gallery);
        let clone = second.clone();
        drop(second);
        assert!(gallery.upgrade().is_some());
        drop(clone);
        assert!(gallery.upgrade().is_none());
    }

    #[test]
    fn all_who_want_it_at_once_have_one_reading() {
        const THREADS: usize = 8;
        let (path, start) = (scratch("gallery-readings-once").join("g.jsonl"), Barrier::new(THREADS));
        add(&path, "ada");
        let found: Vec<FoundGallery> = thread::scope(|scope| {
            let read = || {
                start.wait();
                FoundGallery::read(&path).unwrap()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|one| is_one(one, &found[0])));
    }

    #[test]
    fn an_error_leaves_nothing_behind() {
        let path = scratch("gallery-readings-error").join("g.jsonl");
        assert_eq!(FoundGallery::read(&path).err().unwrap().kind(), ErrorKind::NotFound);
        fs::write(&path, "name,vector\n").unwrap();
        let fail = || FoundGallery::read(&path).err().unwrap();
        let (first, second) = (fail(), fail());
        assert!(first.message().contains("line 1 of the gallery") && first.id() != second.id(), "{first}");
        fs::write(&path, "").unwrap();
        assert!(read_shared(&path).unwrap().is_empty());
    }
}
