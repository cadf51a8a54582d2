// SPDX-License-Identifier: MPL-2.0
//! Of which objects there are snapshots, and what is kept of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::keys::SnapshotKeys;
use super::super::rate::Rate;
use super::super::wording;
use super::super::wording::{KeyError, problem};
use super::{Config, SourceConfig};
use crate::serve::archive::KeepLimits;

#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotConfig {
    pub folder: PathBuf,
    /// Empty for all.
    pub classes: Vec<String>,
    pub min_confidence: f32,
    /// Pixels of the longer side.
    pub max_size: u32,
    pub at_most: Rate,
    pub keep: KeepLimits,
}

impl Config {
    pub(super) fn snapshots(&self, keys: &SnapshotKeys) -> Result<SnapshotConfig, KeyError> {
        if !(32..=4096).contains(&keys.max_size) {
            return Err(problem("max-size", "the longer side of a picture has 32 to 4096 pixels"));
        }
        if !(0.0..=1.0).contains(&keys.min_confidence) {
            return Err(problem("min-confidence", "a confidence is 0 to 1"));
        }
        wording::check_list("classes", "class", keys.classes.as_deref())?;
        let keep = KeepLimits {
            age: keys.keep.map(|age| age.0),
            bytes: keys.keep_bytes.map(|bytes| bytes.0),
            total_bytes: keys.total_bytes.map(|bytes| bytes.0),
            free_bytes: keys.free_bytes.map(|bytes| bytes.0),
        };
        if keep == KeepLimits::default() {
            let text = "snapshots of all objects fill each disk. Say what is kept: keep, keep-bytes, total-bytes or \
                        free-bytes";
            return Err(problem("folder", text));
        }
        Ok(SnapshotConfig {
            folder: self.folder_for(&keys.folder)?,
            classes: keys.classes.clone().unwrap_or_default(),
            min_confidence: keys.min_confidence,
            max_size: keys.max_size,
            at_most: keys.at_most,
            keep,
        })
    }

    /// Checks that the model has the classes, where they are known.
    pub(super) fn check_snapshots(
        &self,
        snapshots: &SnapshotConfig,
        model: &str,
        on_objects: &[String],
    ) -> Result<(), KeyError> {
        let models = std::iter::once(model).chain(on_objects.iter().map(String::as_str));
        let Some(classes) = self.classes_of_objects(models) else { return Ok(()) };
        match snapshots.classes.iter().find(|class| !classes.contains(&class.as_str())) {
            Some(unknown) => {
                let text = format!("model “{model}”: {}", wording::unknown_name("class", unknown, classes.into_iter()));
                Err(problem("classes", text))
            }
            None => Ok(()),
        }
    }
}

/// Recordings and snapshots have limits of their own, so they have folders of their own.
pub fn check_folders<'a>(sources: impl Iterator<Item = &'a SourceConfig> + Clone) -> Result<(), KeyError> {
    check_by(sources, Path::to_path_buf)
}

/// The same of folders by whatever name, such as that of a link. Looks at the disk.
pub(super) fn check_places<'a>(sources: impl Iterator<Item = &'a SourceConfig> + Clone) -> Result<(), KeyError> {
    check_by(sources, place)
}

fn check_by<'a>(
    sources: impl Iterator<Item = &'a SourceConfig> + Clone,
    place: impl Fn(&Path) -> PathBuf,
) -> Result<(), KeyError> {
    let recorded = sources.clone().filter_map(|source| source.record.as_ref()).map(|record| &record.folder);
    // Thousands of sources share a few.
    let recorded: BTreeSet<&PathBuf> = recorded.collect();
    let recorded: BTreeSet<PathBuf> = recorded.into_iter().map(|folder| place(folder)).collect();
    let kept = sources.filter_map(|source| source.snapshots.as_ref()).map(|snapshots| &snapshots.folder);
    let kept: BTreeSet<&PathBuf> = kept.collect();
    match kept.into_iter().find(|folder| recorded.contains(&place(folder))) {
        Some(folder) => {
            let shown = folder.display();
            Err(problem("folder", format!("recordings go to {shown}, too. Write another folder for snapshots")))
        }
        None => Ok(()),
    }
}

/// A folder as it is on the disk. One that is to be made is in one that is there.
fn place(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find_map(|path| Some((path, path.canonicalize().ok()?)));
    there.map_or_else(|| folder.into(), |(path, place)| place.join(folder.strip_prefix(path).unwrap_or(folder)))
}
