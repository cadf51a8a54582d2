// SPDX-License-Identifier: MPL-2.0
//! The galleries that models have their names from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::gallery::{GalleryEntry, file};

use super::changes::Stamp;
use super::config::ModelConfig;
use super::control::{EnrolledVector, GalleryStatus, Refused};

/// Locked while a file is read or changed: each takes memory for all vectors, and so it is one at a time.
static WORK: Mutex<()> = Mutex::new(());

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

/// Waits for the end of a change that is running, until then.
pub fn wait_for_change(until: Instant) {
    while matches!(WORK.try_lock(), Err(TryLockError::WouldBlock)) && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
}

/// What a file had when it was as it is now.
fn known(path: &Path) -> Option<KnownGallery> {
    let now = Stamp::of(path)?;
    lock(&KNOWN).get(path).filter(|known| known.stamp == now).cloned()
}

/// Names, how many vectors there are, and what is wrong. A file is read again when it has changed.
fn contents(path: &Path) -> (Vec<String>, usize, Option<String>) {
    let parts = |known: KnownGallery| (known.names, known.vectors, known.error);
    if let Some(known) = known(path) {
        return parts(known);
    }
    let _locked = lock(&WORK);
    // Another request may have read it meanwhile.
    if let Some(known) = known(path) {
        return parts(known);
    }
    // Before it is read: a change that comes between is seen later.
    let stamp = Stamp::of(path);
    let (names, vectors, error) = match file::read(path) {
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
    let _locked = lock(&WORK);
    if !path.exists() {
        // It tells why.
        file::read(path).map_err(refused)?;
    }
    let changed = file::change_within(path, keeps, added, CHANGE_WAIT).map_err(refused)?;
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

/// Adds a vector to the file of a gallery. Its sources take that over within a second.
pub fn enrol(models: &[ModelConfig], gallery: &str, entry: &GalleryEntry) -> Result<EnrolledVector, Refused> {
    let path = path_of(models, gallery)?;
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
    use std::fs;

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
        // A folder in the place of the new file.
        fs::create_dir(folder.join("g.jsonl.new")).unwrap();
        assert!(matches!(change(&path, |_| true, &[entry("Eve")]), Err(Refused::Failed(_))));
    }
}
