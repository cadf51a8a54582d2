// SPDX-License-Identifier: MPL-2.0
//! The galleries that models have their names from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::gallery::{GalleryEntry, file, read_shared};

use super::changes::Stamp;
use super::config::ModelConfig;
use super::control::{EnrolledVector, GalleryStatus, Refused};

/// Files are read and changed here: each takes memory for all vectors, and so it is one at a time.
static WORK: GalleryWork = GalleryWork::new();

/// What files had when they were read last.
static KNOWN: Mutex<BTreeMap<PathBuf, KnownGallery>> = Mutex::new(BTreeMap::new());

/// How long a change by another program is waited for. It is less than the service has to end.
const CHANGE_WAIT: Duration = Duration::from_secs(3);

#[derive(Clone)]
struct KnownGallery {
    stamp: Stamp,
    names: Vec<String>,
    vectors: usize,
    error: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that is done one at a time, and whose end is waited for.
struct GalleryWork {
    state: Mutex<WorkState>,
    has_ended: Condvar,
}

struct WorkState {
    is_running: bool,
    /// What runs, and what waits for that.
    count: usize,
}

/// Belongs to what runs, until it is dropped.
struct RunningWork<'a>(&'a GalleryWork);

impl GalleryWork {
    const fn new() -> Self {
        let state = WorkState { is_running: false, count: 0 };
        GalleryWork { state: Mutex::new(state), has_ended: Condvar::new() }
    }

    /// Waits for what runs.
    fn begin(&self) -> RunningWork<'_> {
        let mut state = lock(&self.state);
        state.count += 1;
        let waited = self.has_ended.wait_while(state, |state| state.is_running);
        waited.unwrap_or_else(PoisonError::into_inner).is_running = true;
        RunningWork(self)
    }

    /// Waits until nothing runs or waits any more, or until then.
    fn wait(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        drop(self.has_ended.wait_timeout_while(lock(&self.state), left, |state| state.count > 0));
    }
}

impl Drop for RunningWork<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_running = false;
        state.count -= 1;
        drop(state);
        self.0.has_ended.notify_all();
    }
}

/// Waits for the end of all changes that were asked for, until then.
pub fn wait_for_changes(until: Instant) {
    WORK.wait(until);
}

/// What a file had when it was as it is now.
fn known(path: &Path) -> Option<KnownGallery> {
    let now = Stamp::of(path)?;
    lock(&KNOWN).get(path).filter(|known| known.stamp == now).cloned()
}

/// Names, how many vectors there are, and what is wrong. A file is read again when it has changed, unless a source has read it.
fn contents(path: &Path) -> (Vec<String>, usize, Option<String>) {
    let parts = |known: KnownGallery| (known.names, known.vectors, known.error);
    if let Some(known) = known(path) {
        return parts(known);
    }
    let _running = WORK.begin();
    // Another request may have read it meanwhile.
    if let Some(known) = known(path) {
        return parts(known);
    }
    // Before it is read: a change that comes between is seen later.
    let stamp = Stamp::of(path);
    let (names, vectors, error) = match read_shared(path) {
        Ok(gallery) => (gallery.names().to_vec(), gallery.len(), None),
        Err(error) if error.kind() == ErrorKind::Settings => (Vec::new(), 0, Some(error.message())),
        // The next time it may be there.
        Err(error) => return (Vec::new(), 0, Some(error.message())),
    };
    if let Some(stamp) = stamp {
        let read = KnownGallery { stamp, names: names.clone(), vectors, error: error.clone() };
        lock(&KNOWN).insert(path.into(), read);
    }
    (names, vectors, error)
}

/// Why a change was not made.
fn refused(error: Error) -> Refused {
    match error.kind() {
        ErrorKind::Run => Refused::Failed(error.message()),
        _ => Refused::Invalid(error.message()),
    }
}

/// Changes a file that is there. One that is gone is not made again: all other names would be lost.
fn change(path: &Path, keeps: impl Fn(&str) -> bool, added: &[GalleryEntry]) -> Result<file::GalleryChange, Refused> {
    change_within(path, keeps, added, CHANGE_WAIT)
}

fn change_within(
    path: &Path,
    keeps: impl Fn(&str) -> bool,
    added: &[GalleryEntry],
    wait: Duration,
) -> Result<file::GalleryChange, Refused> {
    let _running = WORK.begin();
    if !path.exists() {
        // It tells why.
        file::read(path).map_err(refused)?;
    }
    let changed = file::change_within(path, keeps, added, wait).map_err(refused)?;
    changed.ok_or_else(|| Refused::Busy(file::busy(path).message()))
}

/// Where the gallery of a model is.
fn path_of<'a>(models: &'a [ModelConfig], gallery: &str) -> Result<&'a Path, Refused> {
    let found = models.iter().find(|model| model.name == gallery).and_then(ModelConfig::gallery);
    found.ok_or_else(|| Refused::Unknown(format!("There is no gallery “{gallery}”. GET /galleries lists them.")))
}

/// Those of these models, as their files are now.
pub fn all(models: &[ModelConfig]) -> Vec<GalleryStatus> {
    lock(&KNOWN).retain(|path, _| models.iter().any(|model| model.gallery() == Some(path.as_path())));
    let status = |model: &ModelConfig| {
        let path = model.gallery()?;
        let (names, vectors, error) = contents(path);
        Some(GalleryStatus { name: model.name.clone(), file: path.into(), names, vectors, error })
    };
    models.iter().filter_map(status).collect()
}

/// Refuses a vector that the model cannot have made, as the first one of a gallery: it would say how many numbers all others have, and
/// vectors of the model would be refused.
fn check_first(path: &Path, model: &str, length: Option<usize>, entry: &GalleryEntry) -> Result<(), Refused> {
    let other = length.filter(|&length| length != entry.vector.len());
    let Some(length) = other.filter(|_| matches!(contents(path), (_, 0, None))) else { return Ok(()) };
    let (name, numbers) = (&entry.name, entry.vector.len());
    let what = format!("The vector of “{name}” has {numbers} numbers, and the model “{model}” gives {length}");
    Err(Refused::Invalid(format!("{what}. Send one that this model has made.")))
}

/// Adds a vector to the file of a gallery. Its sources take that over within a second. `length` are the numbers of a vector of the
/// model, where that is known.
pub fn enrol(
    models: &[ModelConfig],
    gallery: &str,
    length: Option<usize>,
    entry: &GalleryEntry,
) -> Result<EnrolledVector, Refused> {
    let path = path_of(models, gallery)?;
    check_first(path, gallery, length, entry)?;
    let all = change(path, |_| true, slice::from_ref(entry))?.gallery;
    let warning = file::shared_vector_of(path, &all, |name| name == entry.name).map(|warning| warning.message());
    Ok(EnrolledVector { name: entry.name.clone(), vectors: all.len(), warning })
}

/// Removes a name, with all of its vectors, from the file of a gallery. Its sources take that over within a second.
pub fn forget(models: &[ModelConfig], gallery: &str, name: &str) -> Result<(), Refused> {
    let path = path_of(models, gallery)?;
    if change(path, |known| known != name, &[])?.left_out == 0 {
        let text = format!("There is no “{name}” in the gallery “{gallery}”. GET /galleries lists the names.");
        return Err(Refused::Unknown(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    #[test]
    fn a_file_is_known_until_it_changes_and_refusals_tell_who_is_to_blame() {
        let folder = crate::scratch::scratch("galleries");
        let path = folder.join("g.jsonl");
        let entry = |name: &str| GalleryEntry::new(name, &[1.0, 0.0]).unwrap();
        assert!(matches!(change(&path, |_| true, &[entry("Ada")]), Err(Refused::Invalid(_))), "it is not made again");
        file::change(&path, |_| true, &[entry("Ada")]).unwrap();
        assert!(known(&path).is_none());
        assert_eq!(contents(&path), (vec!["Ada".to_string()], 1, None));
        assert!(known(&path).is_some());
        change(&path, |_| true, &[entry("Bob")]).unwrap();
        assert!(known(&path).is_none());
        assert_eq!(contents(&path).1, 2);
        // Another program changes it for longer than is waited.
        let new = folder.join("g.jsonl.new");
        let other = fs::File::create(&new).unwrap();
        other.lock().unwrap();
        let refused = change_within(&path, |_| true, &[entry("Eve")], Duration::from_millis(1)).err();
        let is_busy = |refused: &Refused| matches!(refused, Refused::Busy(text) if text.contains("another program"));
        assert!(refused.as_ref().is_some_and(is_busy), "{refused:?}");
        fs::remove_file(&new).unwrap();
        // A folder in the place of the new file.
        fs::create_dir(&new).unwrap();
        assert!(matches!(change(&path, |_| true, &[entry("Eve")]), Err(Refused::Failed(_))));
    }

    /// Else no vector of the model could be added any more.
    #[test]
    fn the_first_vector_has_the_length_of_those_of_the_model() {
        let path = crate::scratch::scratch("galleries-first").join("g.jsonl");
        fs::write(&path, "").unwrap();
        let entry = GalleryEntry::new("Ada", &[1.0, 0.0]).unwrap();
        let refused = check_first(&path, "faces", Some(3), &entry).err();
        let says =
            "The vector of “Ada” has 2 numbers, and the model “faces” gives 3. Send one that this model has made.";
        assert!(matches!(&refused, Some(Refused::Invalid(text)) if text == says), "{refused:?}");
        for length in [None, Some(2)] {
            assert!(check_first(&path, "faces", length, &entry).is_ok(), "{length:?}");
        }
        // The file has others, and tells of what does not fit them.
        file::change(&path, |_| true, slice::from_ref(&entry)).unwrap();
        assert!(check_first(&path, "faces", Some(3), &entry).is_ok());
        fs::remove_file(&path).unwrap();
        assert!(check_first(&path, "faces", Some(3), &entry).is_ok(), "what reads it tells that it is gone");
    }

    /// It is woken when the last one has ended, and waits for nothing where none runs.
    #[test]
    fn the_end_waits_for_all_changes_and_no_longer() {
        let hour = || Instant::now() + Duration::from_secs(3600);
        let work = GalleryWork::new();
        work.wait(hour());
        let running = work.begin();
        work.wait(Instant::now()); // the time of the service has passed
        thread::scope(|scope| {
            let next = scope.spawn(|| drop(work.begin()));
            let end = scope.spawn(|| work.wait(hour()));
            drop(running);
            next.join().unwrap();
            end.join().unwrap();
        });
        work.wait(hour());
    }
}
