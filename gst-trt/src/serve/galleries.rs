// SPDX-License-Identifier: MPL-2.0
//! The galleries that models have their names from.

use gsttrt_core::error::Error;
use gsttrt_core::gallery::file;

use super::config::ModelConfig;
use super::control::{GalleryStatus, Refused};

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

/// Removes a name, with all of its vectors, from the file of a gallery. Its sources take that over within a second.
pub fn forget(models: &[ModelConfig], gallery: &str, name: &str) -> Result<(), Refused> {
    let Some(path) = models.iter().find(|model| model.name == gallery).and_then(ModelConfig::gallery) else {
        return Err(Refused::Unknown(format!("There is no gallery “{gallery}”. GET /galleries lists them.")));
    };
    let invalid = |error: Error| Refused::Invalid(error.message());
    if !file::read(path).map_err(invalid)?.names().iter().any(|known| known == name) {
        let text = format!("There is no “{name}” in the gallery “{gallery}”. GET /galleries lists the names.");
        return Err(Refused::Unknown(text));
    }
    file::change(path, |known| known != name, &[]).map_err(invalid)?;
    Ok(())
}
