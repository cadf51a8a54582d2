// SPDX-License-Identifier: MPL-2.0
//! A gallery whose file may change.
//!
//! All who give a file the same path have one watch of it: a thread that looks at the file, and reads it for all of them. Each has a
//! place of its own for the gallery and for what is wrong with it, so each takes over another one between two frames, and has it on its
//! own GPU or on none. The memory is that of all: what is in these places are readings and copies that others have, too, also those
//! who name the file by a link.
//!
//! ```text
//! WatchedGallery ─┐                        ┌─ FoundGallery, by the file
//! WatchedGallery ─┼─ GalleryWatch, by path ┤
//! WatchedGallery ─┘                        └─ DeviceGallery, by the gallery and the context
//! ```

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::readings::{FileMark, FoundGallery};
use super::{DeviceGallery, Gallery, file};
use crate::cuda::driver::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::in_use::InUse;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// So many looks are waited for the end of a change. A file that still changes is read as it is.
const MOST_WAITED: u32 = 3;

/// A gallery as one user of a file has it, and the watch of that file. Who compares never waits for it.
pub struct WatchedGallery {
    watch: Arc<GalleryWatch>,
    user: Arc<GalleryUser>,
}

/// A gallery, and where a user's GPU has a copy of it. Who has this keeps both in memory.
pub struct GalleryInUse {
    /// Another one has another address.
    pub gallery: Arc<Gallery>,
    pub on_gpu: Option<Arc<DeviceGallery>>,
}

/// A file that is looked at, for all who have given it the same path. The thread ends with the last of them.
struct GalleryWatch {
    path: PathBuf,
    users: Mutex<GalleryUsers>,
    /// Wakes the thread to copy galleries to GPUs, and ends it when it is dropped.
    wake: SyncSender<()>,
}

struct GalleryUsers {
    /// What was read last, by whomever: who comes has it, unless that one has found a later one.
    latest: CheckedGallery,
    all: Vec<Weak<GalleryUser>>,
}

/// A gallery that was read, and what is wrong with it.
#[derive(Clone)]
struct CheckedGallery {
    found: FoundGallery,
    warning: Option<Error>,
}

struct GalleryUser {
    /// Locked while a gallery is copied there for this user, and while the user is given another one.
    gpu: Mutex<Option<GalleryGpu>>,
    /// Never locked for long.
    has: Mutex<UserGallery>,
}

struct UserGallery {
    found: FoundGallery,
    on_gpu: Option<Arc<DeviceGallery>>,
    warning: Option<Error>,
}

/// The GPU that a user's galleries are copied to.
struct GalleryGpu {
    context: Context,
    /// Also those for which that does not pay.
    takes_all: bool,
    /// The gallery that the user has was copied, or that has failed, or it does not pay.
    is_tried: bool,
}

impl WatchedGallery {
    /// The gallery as the file is now, which is read unless others have read it. From now on its file is watched.
    ///
    /// # Errors
    /// As [`file::read`]; `Run`, where there is no thread for it.
    pub fn open(path: &Path) -> Result<WatchedGallery> {
        WatchedGallery::open_every(path, EVERY)
    }

    fn open_every(path: &Path, every: Duration) -> Result<WatchedGallery> {
        /// By the path as it is given: what a link leads to may change.
        static WATCHES: InUse<PathBuf, GalleryWatch> = InUse::new();
        let seen = FileMark::of(path);
        let found = FoundGallery::read(path)?;
        let watch = WATCHES.get(path.to_path_buf(), || GalleryWatch::start(path, every, seen, found.clone()))?;
        let user = watch.join(found);
        Ok(WatchedGallery { watch, user })
    }

    /// From now on galleries are copied to a GPU before they are had, if that pays or the GPU is to take all; this one now, and one that
    /// pays by the thread. Where the GPU has no room for one, that is a warning.
    pub fn use_gpu(&self, context: &Context, takes_all: bool) {
        let gpu = GalleryGpu { context: context.clone(), takes_all, is_tried: false };
        let former = self.user.gpu.lock().unwrap().replace(gpu);
        drop(former); // no longer under the lock
        if takes_all {
            self.user.upload();
        } else {
            // Where it is full, the thread has not been woken yet.
            let _ = self.watch.wake.try_send(());
        }
    }

    /// The gallery as it is now.
    pub fn get(&self) -> GalleryInUse {
        let has = self.user.has.lock().unwrap();
        GalleryInUse { gallery: has.found.gallery.clone(), on_gpu: has.on_gpu.clone() }
    }

    /// What was wrong with the file since this was last asked for.
    pub fn take_warning(&self) -> Option<Error> {
        self.user.has.lock().unwrap().warning.take()
    }
}

/// Nothing is copied any more for this user then, and what is being copied is there.
impl Drop for WatchedGallery {
    fn drop(&mut self) {
        let gpu = self.user.gpu.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread may have the user for a while.
        let on_gpu = self.user.has.lock().unwrap_or_else(PoisonError::into_inner).on_gpu.take();
        drop((on_gpu, gpu)); // no longer under the locks
    }
}

/// What can be used, but is hardly wanted: a gallery without vectors, and names that nobody can tell apart.
fn warning(path: &Path, gallery: &Gallery) -> Option<Error> {
    if !gallery.is_empty() {
        return file::shared_vector(path, gallery);
    }
    let what = format!("The gallery {} has no vectors, and all objects are unknown", path.display());
    let remedy = "Add names with gst-trt enrol, or write the file of numpy.savez with some; it is read again then";
    Some(Error::new(ErrorKind::Settings, what).remedy(remedy))
}

impl GalleryGpu {
    /// Copies a gallery there, or finds the copy of others, if it pays. Also why that failed.
    fn copy(&mut self, gallery: &Gallery) -> (Option<Arc<DeviceGallery>>, Option<Error>) {
        self.is_tried = true;
        if !self.takes_all && !gallery.is_worth_a_gpu() {
            return (None, None);
        }
        match gallery.upload(&self.context) {
            Ok(on_gpu) => (on_gpu, None),
            Err(failed) => {
                (None, Some(failed.and_remedy("Until the gallery changes, the CPU compares vectors with it")))
            }
        }
    }
}

impl GalleryUser {
    fn new(CheckedGallery { found, warning }: CheckedGallery) -> Self {
        GalleryUser { gpu: Mutex::default(), has: Mutex::new(UserGallery { found, on_gpu: None, warning }) }
    }

    /// Copies the gallery that is there to the GPU, where that was not tried yet.
    fn upload(&self) {
        let mut gpu = self.gpu.lock().unwrap();
        let Some(untried) = gpu.as_mut().filter(|gpu| !gpu.is_tried) else { return };
        let gallery = self.has.lock().unwrap().found.gallery.clone();
        let (on_gpu, failed) = untried.copy(&gallery);
        let mut has = self.has.lock().unwrap();
        let former = mem::replace(&mut has.on_gpu, on_gpu);
        if failed.is_some() {
            has.warning = failed;
        }
        drop(has);
        drop(former); // no longer under that lock, which frames take
    }

    /// Gives the user another gallery, which is on the user's GPU by then, and returns the one before. Nothing, where the user has it
    /// already, or a later one.
    fn take_over(&self, new: &CheckedGallery) -> Option<UserGallery> {
        let mut gpu = self.gpu.lock().unwrap();
        {
            let mut has = self.has.lock().unwrap();
            if has.found.at > new.found.at {
                return None;
            }
            if Arc::ptr_eq(&has.found.gallery, &new.found.gallery) {
                has.found.at = new.found.at;
                return None;
            }
        }
        let (on_gpu, failed) = gpu.as_mut().map(|gpu| gpu.copy(&new.found.gallery)).unwrap_or_default();
        // Whoever has the gallery finds its warning.
        let warning = new.warning.clone().or(failed);
        let has = UserGallery { found: new.found.clone(), on_gpu, warning };
        Some(mem::replace(&mut *self.has.lock().unwrap(), has))
    }

    /// Tells the user of what was wrong with the file then, unless the user has a later gallery.
    fn warn(&self, at: Instant, warning: &Error) {
        let mut has = self.has.lock().unwrap();
        if has.found.at <= at {
            has.warning = Some(warning.clone());
        }
    }
}

impl GalleryUsers {
    /// Notes what was read, and returns what was noted before, to be dropped after the lock.
    fn note(&mut self, new: &CheckedGallery) -> Option<CheckedGallery> {
        (self.latest.found.at <= new.found.at).then(|| mem::replace(&mut self.latest, new.clone()))
    }
}

impl GalleryWatch {
    fn start(path: &Path, every: Duration, seen: Option<FileMark>, found: FoundGallery) -> Result<Arc<Self>> {
        let (wake, woken) = mpsc::sync_channel::<()>(1);
        let warning = warning(path, &found.gallery);
        let users = GalleryUsers { latest: CheckedGallery { found, warning }, all: Vec::new() };
        let watch = Arc::new(GalleryWatch { path: path.into(), users: Mutex::new(users), wake });
        let watched = Arc::downgrade(&watch);
        let run = move || {
            let mut seen = SeenFile::new(seen);
            loop {
                let event = woken.recv_timeout(every);
                // The last user has gone.
                let Some(watch) = watched.upgrade() else { break };
                match event {
                    Ok(()) => watch.all_users().iter().for_each(|user| user.upload()),
                    Err(RecvTimeoutError::Timeout) => watch.look(&mut seen),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        thread::Builder::new().name("trt-gallery".into()).spawn(run).map_err(|error| {
            Error::new(ErrorKind::Run, "Cannot start a thread that watches the gallery")
                .cause(error)
                .remedy("Allow this user more threads")
        })?;
        Ok(watch)
    }

    fn users(&self) -> MutexGuard<'_, GalleryUsers> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who are there now.
    fn all_users(&self) -> Vec<Arc<GalleryUser>> {
        self.users().all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Looks for what is wrong with a gallery, unless that was done for others: it takes a while for a large one.
    fn checked(&self, found: FoundGallery) -> CheckedGallery {
        let latest = self.users().latest.clone();
        let warning = match Arc::ptr_eq(&latest.found.gallery, &found.gallery) {
            true => latest.warning,
            false => warning(&self.path, &found.gallery),
        };
        CheckedGallery { found, warning }
    }

    /// Somebody has come, and has found this gallery. The thread gives all that follow.
    fn join(&self, found: FoundGallery) -> Arc<GalleryUser> {
        let new = self.checked(found);
        let mut users = self.users();
        let former = users.note(&new);
        let user = Arc::new(GalleryUser::new(users.latest.clone()));
        users.all.retain(|user| user.strong_count() > 0);
        users.all.push(Arc::downgrade(&user));
        drop(users);
        drop(former); // no longer under the lock
        user
    }

    /// Reads the file again if it has changed, and gives it to all.
    fn look(&self, seen: &mut SeenFile) {
        seen.former.clear();
        if !seen.is_due(FileMark::of(&self.path)) && seen.unreadable.is_none() {
            return;
        }
        let at = Instant::now();
        match FoundGallery::read(&self.path) {
            Ok(found) => {
                seen.unreadable = None;
                let new = self.checked(found);
                // Who comes after this has it, or a later one.
                let former = self.users().note(&new);
                drop(former); // no longer under the lock
                let given = self.all_users().into_iter().filter_map(|user| user.take_over(&new));
                seen.former.extend(given);
            }
            Err(error) => {
                let said = (error.kind() == ErrorKind::Read).then(|| error.message());
                if said.is_some() && said == seen.unreadable {
                    return;
                }
                seen.unreadable = said;
                let warning = error.and_remedy("The former gallery stays until then");
                self.all_users().iter().for_each(|user| user.warn(at, &warning));
            }
        }
    }
}

/// The file as it was read, and as it was at the last look.
struct SeenFile {
    read: Option<FileMark>,
    last: Option<FileMark>,
    /// How many looks have waited for the end of a change.
    waited: u32,
    /// The galleries that were replaced at the last look. By the next one no frame is compared with them any more, whose thread would
    /// have to free them.
    former: Vec<UserGallery>,
    /// What was said of a file that could not be read. It is tried again at each look: rights of a folder, or a server that is away,
    /// are not seen at the file.
    unreadable: Option<String>,
}

impl SeenFile {
    /// The file as it was before it was read.
    fn new(read: Option<FileMark>) -> Self {
        SeenFile { read, last: read, waited: 0, former: Vec::new(), unreadable: None }
    }

    /// Whether the file is to be read again, as it is now. One that is being written changes from look to look: it is waited for, but
    /// not without an end, since a name that was removed is to be forgotten. Whoever puts another file in its place has written that
    /// before.
    fn is_due(&mut self, now: Option<FileMark>) -> bool {
        let is_settled = std::mem::replace(&mut self.last, now) == now;
        if now == self.read {
            self.waited = 0;
            return false;
        }
        let is_replaced =
            self.read.zip(now).is_some_and(|(read, now)| (read.device, read.inode) != (now.device, now.inode));
        if !is_settled && !is_replaced && self.waited < MOST_WAITED {
            self.waited += 1;
            return false;
        }
        (self.read, self.waited) = (now, 0);
        true
    }
}

#[cfg(test)]
mod tests;
