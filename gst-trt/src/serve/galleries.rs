// SPDX-License-Identifier: MPL-2.0
//! The galleries that models have their names from.

use std::path::Path;
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsttrt_core::error::Error;
use gsttrt_core::gallery::{GalleryEntry, file};

use super::config::ModelConfig;
use super::control::{EnrolledVector, GalleryStatus, Refused};

/// Locked while a file is changed: of two changes at the same time the second one would be refused.
static CHANGE: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(error: Error) -> Refused {
    Refused::Invalid(error.message())
}

/// Where the gallery of a model is.
fn path_of<'a>(models: &'a [ModelConfig], gallery: &str) -> Result<&'a Path, Refused> {
    let found = models.iter().find(|model| model.name == gallery).and_then(ModelConfig::gallery);
    found.ok_or_else(|| Refused::Unknown(format!("There is no gallery “{gallery}”. GET /galleries lists them.")))
}

/// Those of these models, as their files are now.
pub fn all(models: &[ModelConfig]) -> Vec<GalleryStatus> {
    let status = |model: &ModelConfig| {
        let path = model.gallery()?;
        let (names, vectors, error) = match file::read(path) {
            Ok(gallery) => (gallery.names().to_vec(), gallery.len(), None),
            Err(error) => (Vec::new(), 0, Some(error.message())),
        };
        Some(GalleryStatus { name: model.name.clone(), file: path.into(), names, vectors, error })
    };
    models.iter().filter_map(status).collect()
}

/// Adds a vector to the file of a gallery. Its sources take that over within a second.
pub fn enrol(models: &[ModelConfig], gallery: &str, entry: &GalleryEntry) -> Result<EnrolledVector, Refused> {
    let path = path_of(models, gallery)?;
    let _locked = lock();
    // One that is gone is not made again: all other names would be lost.
    file::read(path).map_err(invalid)?;
    file::change(path, |_| true, slice::from_ref(entry)).map_err(invalid)?;
    let all = file::read(path).map_err(invalid)?;
    let warning = file::shared_vector(path, &all).map(|warning| warning.message());
    Ok(EnrolledVector { name: entry.name.clone(), vectors: all.len(), warning })
}

/// Removes a name, with all of its vectors, from the file of a gallery. Its sources take that over within a second.
pub fn forget(models: &[ModelConfig], gallery: &str, name: &str) -> Result<(), Refused> {
    let path = path_of(models, gallery)?;
    let _locked = lock();
    if !file::read(path).map_err(invalid)?.names().iter().any(|known| known == name) {
        let text = format!("There is no “{name}” in the gallery “{gallery}”. GET /galleries lists the names.");
        return Err(Refused::Unknown(text));
    }
    file::change(path, |known| known != name, &[]).map_err(invalid)?;
    Ok(())
}
