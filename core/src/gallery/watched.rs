// SPDX-License-Identifier: MPL-2.0
//! A gallery whose file may change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Gallery, file};
use crate::cuda::driver::Context;
use crate::error::{Error, ErrorKind, Result};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// So many looks are waited for the end of a change. A file that still changes is read as it is.
const MOST_WAITED: u32 = 3;

/// A gallery, and a thread that reads its file again when that changes. Who compares never waits for it.
pub struct WatchedGallery {
    current: Arc<Current>,
    /// Wakes the thread to copy the gallery to the GPU, and ends it when it is dropped.
    wake: SyncSender<()>,
}

struct Current {
    gallery: Mutex<Arc<Gallery>>,
    warning: Mutex<Option<Error>>,
    /// Locked while a gallery is copied there.
    gpu: Mutex<Option<GalleryGpu>>,
}

/// The GPU that galleries are copied to.
struct GalleryGpu {
    context: Context,
    /// Also those for which that does not pay.
    takes_all: bool,
}

/// By what a file is another than before, also in who may read it. A change within the time of the file system's clock is told by the length, or by the file
/// that has come in its place.
#[derive(Clone, Copy, PartialEq)]
struct FileMark {
    seconds: i64,
    nanoseconds: i64,
    /// When its content or its rights changed.
    changed: (i64, i64),
    length: u64,
    inode: u64,
}

fn mark(path: &Path) -> Option<FileMark> {
    let file = fs::metadata(path).ok()?;
    Some(FileMark {
        seconds: file.mtime(),
        nanoseconds: file.mtime_nsec(),
        changed: (file.ctime(), file.ctime_nsec()),
        length: file.len(),
        inode: file.ino(),
    })
}

impl WatchedGallery {
    /// Reads the gallery, and watches its file.
    ///
    /// # Errors
    /// As [`file::read`]; `Run`, where there is no thread for it.
    pub fn open(path: &Path) -> Result<WatchedGallery> {
        WatchedGallery::open_every(path, EVERY)
    }

    fn open_every(path: &Path, every: Duration) -> Result<WatchedGallery> {
        let seen = mark(path);
        let gallery = Arc::new(file::read(path)?);
        let warning = Mutex::new(warning(path, &gallery));
        let current = Arc::new(Current { gallery: Mutex::new(gallery), warning, gpu: Mutex::default() });
        let (wake, woken) = mpsc::sync_channel::<()>(1);
        let watch = {
            let (current, path) = (current.clone(), path.to_path_buf());
            let mut seen = SeenFile { read: seen, last: seen, waited: 0, former: None, unreadable: None };
            move || {
                loop {
                    match woken.recv_timeout(every) {
                        Ok(()) => current.upload(),
                        Err(RecvTimeoutError::Timeout) => current.look(&path, &mut seen),
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
            }
        };
        thread::Builder::new().name("trt-gallery".into()).spawn(watch).map_err(|error| {
            Error::new(ErrorKind::Run, "Cannot start a thread that watches the gallery")
                .cause(error)
                .remedy("Allow this user more threads")
        })?;
        Ok(WatchedGallery { current, wake })
    }

    /// From now on galleries are copied to a GPU when they are read, if that pays or the GPU is to take all; this one now, and one that
    /// pays by the thread. Where the GPU has no room for one, that is a warning.
    pub fn use_gpu(&self, context: &Context, takes_all: bool) {
        *self.current.gpu.lock().unwrap() = Some(GalleryGpu { context: context.clone(), takes_all });
        if takes_all {
            self.current.upload();
        } else {
            // Where it is full, the thread has not been woken yet.
            let _ = self.wake.try_send(());
        }
    }

    /// The gallery as it is now. Another one has another address.
    pub fn get(&self) -> Arc<Gallery> {
        self.current.gallery.lock().unwrap().clone()
    }

    /// What was wrong with the file since this was last asked for.
    pub fn take_warning(&self) -> Option<Error> {
        self.current.warning.lock().unwrap().take()
    }
}

/// Nothing is copied any more then, and what is being copied is there.
impl Drop for WatchedGallery {
    fn drop(&mut self) {
        let gpu = self.current.gpu.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(gpu); // no longer under the lock
    }
}

/// What can be used, but is hardly wanted: a gallery without vectors, and names that nobody can tell apart.
fn warning(path: &Path, gallery: &Gallery) -> Option<Error> {
    if !gallery.is_empty() {
        return file::shared_vector(path, gallery);
    }
    let what = format!("The gallery {} has no vectors, and all objects are unknown", path.display());
    Some(Error::new(ErrorKind::Settings, what).remedy("Add names with gst-trt enrol; the file is read again then"))
}

/// The file as it was read, and as it was at the last look.
struct SeenFile {
    read: Option<FileMark>,
    last: Option<FileMark>,
    /// How many looks have waited for the end of a change.
    waited: u32,
    /// The gallery that was replaced at the last look. By the next one no frame is compared with it any more, whose thread would have
    /// to free it.
    former: Option<Arc<Gallery>>,
    /// What was said of a file that could not be read. It is tried again at each look: rights of a folder, or a server that is away,
    /// are not seen at the file.
    unreadable: Option<String>,
}

impl SeenFile {
    /// Whether the file is to be read again, as it is now. One that is being written changes from look to look: it is waited for, but
    /// not without an end, since a name that was removed is to be forgotten. Whoever puts another file in its place has written that
    /// before.
    fn is_due(&mut self, now: Option<FileMark>) -> bool {
        let is_settled = std::mem::replace(&mut self.last, now) == now;
        if now == self.read {
            self.waited = 0;
            return false;
        }
        let is_replaced = self.read.zip(now).is_some_and(|(read, now)| read.inode != now.inode);
        if !is_settled && !is_replaced && self.waited < MOST_WAITED {
            self.waited += 1;
            return false;
        }
        (self.read, self.waited) = (now, 0);
        true
    }
}

impl Current {
    /// Copies the gallery that is there to the GPU.
    fn upload(&self) {
        let gallery = self.gallery.lock().unwrap().clone();
        if let Some(warning) = self.put_on_gpu(&gallery) {
            *self.warning.lock().unwrap() = Some(warning);
        }
    }

    /// Copies a gallery to the GPU, if there is one to be used and it pays. Returns why that failed.
    fn put_on_gpu(&self, gallery: &Gallery) -> Option<Error> {
        let gpu = self.gpu.lock().unwrap();
        let gpu = gpu.as_ref().filter(|gpu| gpu.takes_all || gallery.is_worth_a_gpu())?;
        let failed = gallery.upload(&gpu.context).err()?;
        Some(failed.and_remedy("Until the gallery changes, the CPU compares vectors with it"))
    }

    /// Reads the file again if it has changed.
    fn look(&self, path: &Path, seen: &mut SeenFile) {
        seen.former = None;
        if !seen.is_due(mark(path)) && seen.unreadable.is_none() {
            return;
        }
        let (gallery, warning) = match file::read(path) {
            Ok(gallery) => {
                // Before frames are compared with it.
                let warning = warning(path, &gallery).or_else(|| self.put_on_gpu(&gallery));
                seen.unreadable = None;
                (Some(Arc::new(gallery)), warning)
            }
            Err(error) => {
                let said = (error.kind() == ErrorKind::Read).then(|| error.message());
                if said.is_some() && said == seen.unreadable {
                    return;
                }
                seen.unreadable = said;
                (None, Some(error.and_remedy("The former gallery stays until then")))
            }
        };
        // Whoever has the gallery finds its warning.
        *self.warning.lock().unwrap() = warning;
        if let Some(gallery) = gallery {
            seen.former = Some(std::mem::replace(&mut *self.gallery.lock().unwrap(), gallery));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Fakes;
    use crate::gallery::GalleryEntry;
    use crate::test::{LIMIT, scratch, wait_until};

    /// Each name has a vector of its own.
    fn add(path: &Path, name: &str) {
        let vector = [1.0, f32::from(name.as_bytes()[0])];
        file::change(path, |_| true, &[GalleryEntry::new(name, &vector).unwrap()]).unwrap();
    }

    fn open(path: &Path) -> WatchedGallery {
        WatchedGallery::open_every(path, Duration::from_millis(1)).unwrap()
    }

    #[test]
    fn changes_of_the_file_are_taken_over() {
        let path = scratch("gallery-watched").join("g.jsonl");
        assert_eq!(WatchedGallery::open(&path).err().unwrap().kind(), ErrorKind::NotFound);
        add(&path, "ada");
        let watched = open(&path);
        let before = watched.get();
        assert_eq!(before.names(), ["ada"]);
        add(&path, "bob");
        wait_until("another gallery", LIMIT, || watched.get().names().len() == 2);
        assert!(!Arc::ptr_eq(&before, &watched.get()));
        assert_eq!(before.names(), ["ada"], "who has it may go on with it");
        assert!(watched.take_warning().is_none());
        file::change(&path, |_| false, &[]).unwrap();
        wait_until("an empty gallery", LIMIT, || watched.get().is_empty());
        let warning = || watched.take_warning().map(|warning| warning.message());
        let mut said = None;
        wait_until("a warning", LIMIT, || {
            said = warning();
            said.is_some()
        });
        assert!(said.as_ref().is_some_and(|said| said.contains("all objects are unknown")), "{said:?}");
    }

    #[test]
    fn galleries_are_copied_to_a_gpu_that_takes_them() {
        let Some(fakes) = Fakes::of(module_path!(), "galleries_are_copied_to_a_gpu_that_takes_them") else { return };
        let (path, context) = (scratch("gallery-on-gpu").join("g.jsonl"), fakes.context());
        add(&path, "ada");
        let watched = open(&path);
        watched.use_gpu(&context, false);
        add(&path, "bob");
        wait_until("another gallery", LIMIT, || watched.get().names().len() == 2);
        assert!(watched.get().on_gpu().is_none(), "it is too small");
        // The one that is there at once, and each that comes then before it is there.
        watched.use_gpu(&context, true);
        assert!(watched.get().on_gpu().is_some_and(|on_gpu| *on_gpu.context() == context));
        add(&path, "eve");
        wait_until("the next gallery", LIMIT, || watched.get().names().len() == 3);
        assert!(watched.get().on_gpu().is_some() && watched.take_warning().is_none());
        // One for which there is no room stays on the host, and the next one is tried again.
        fakes.lack(1);
        add(&path, "kim");
        wait_until("a gallery on the host", LIMIT, || watched.get().names().len() == 4);
        let warning = watched.take_warning().unwrap().message();
        assert!(watched.get().on_gpu().is_none() && warning.contains("the CPU compares vectors with it"), "{warning}");
        add(&path, "pat");
        wait_until("a gallery on the GPU", LIMIT, || watched.get().names().len() == 5);
        assert!(watched.get().on_gpu().is_some() && watched.take_warning().is_none());
        drop(watched);
        assert_eq!((fakes.count(c"fake_pending"), fakes.count(c"fake_busy_frees")), (0, 0));
    }

    #[test]
    fn a_file_is_read_when_it_is_whole_or_changes_without_an_end() {
        let at =
            |seconds: i64, inode: u64| Some(FileMark { seconds, nanoseconds: 0, changed: (0, 0), length: 1, inode });
        let mut seen = SeenFile { read: at(0, 1), last: at(0, 1), waited: 0, former: None, unreadable: None };
        let mut due = |now| seen.is_due(now);
        assert_eq!([at(0, 1), at(1, 1), at(1, 1), at(1, 1)].map(&mut due), [false, false, true, false]);
        let replaced = [at(2, 2), at(3, 3), at(3, 3)].map(&mut due);
        assert_eq!(replaced, [true, true, false], "each time another is in its place");
        let written = [4, 5, 6, 7, 8, 9, 10, 11].map(|seconds| due(at(seconds, 3)));
        assert_eq!(written, [false, false, false, true, false, false, false, true]);
        assert_eq!([None, None, None, at(11, 3), at(11, 3)].map(&mut due), [false, true, false, false, true]);
    }

    #[test]
    fn a_file_whose_rights_change_is_another() {
        let path = scratch("gallery-rights").join("g.jsonl");
        add(&path, "ada");
        let before = mark(&path).unwrap();
        // The clock of the file system may stand still for some milliseconds.
        wait_until("another time of change", LIMIT, || {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
            mark(&path).unwrap() != before
        });
    }

    /// A folder in the place of the file cannot be read.
    #[test]
    fn a_file_that_cannot_be_read_is_tried_again_and_said_once() {
        let path = scratch("gallery-again").join("g.jsonl");
        let current = Current { gallery: Mutex::default(), warning: Mutex::default(), gpu: Mutex::default() };
        fs::create_dir(&path).unwrap();
        let mut seen = SeenFile { read: None, last: mark(&path), waited: 0, former: None, unreadable: None };
        let mut look = || {
            current.look(&path, &mut seen);
            current.warning.lock().unwrap().take().map(|warning| warning.kind())
        };
        assert_eq!([look(), look(), look()], [Some(ErrorKind::Read), None, None]);
        fs::remove_dir(&path).unwrap();
        add(&path, "ada");
        // The mark of this very file may be known already: it is read nevertheless.
        seen.read = mark(&path);
        seen.last = seen.read;
        current.look(&path, &mut seen);
        assert_eq!(current.gallery.lock().unwrap().names(), ["ada"]);
        assert!(seen.unreadable.is_none());
    }

    #[test]
    fn the_former_gallery_stays_where_a_new_one_cannot_be_used() {
        let path = scratch("gallery-former").join("g.jsonl");
        add(&path, "ada");
        let watched = open(&path);
        let mut said = String::new();
        let mut is_said = |part: &str| {
            wait_until(part, LIMIT, || {
                said = watched.take_warning().map(|warning| warning.message()).unwrap_or_default();
                said.contains(part)
            });
            assert!(said.contains("The former gallery stays"), "{said}");
            assert_eq!(watched.get().names(), ["ada"]);
        };
        let other = path.with_extension("other");
        fs::write(&other, "name,vector\n").unwrap();
        fs::rename(&other, &path).unwrap();
        is_said("Cannot use line 1");
        fs::remove_file(&path).unwrap();
        is_said("There is no gallery");
        add(&path, "bob");
        wait_until("another gallery", LIMIT, || watched.get().names() == ["bob"]);
    }
}
