// SPDX-License-Identifier: MPL-2.0
//! A folder with pictures of several names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::arguments::{images_in, is_file};
use super::picture::{IMAGES, is_image};
use crate::failure::Failure;

/// The names in a folder, each with its pictures: those of the folder NAME, and NAME.jpg. What begins with a dot is left out.
pub fn pictures_by_name(folder: &Path) -> Result<Vec<(String, Vec<PathBuf>)>, Failure> {
    let shown = folder.display();
    let failed = |error: io::Error| format!("Cannot read the folder {shown}: {error}.");
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>().map_err(failed)?;
    paths.sort();
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in paths {
        let is_folder = path.is_dir();
        let name = if is_folder { path.file_name() } else { path.file_stem() };
        let name = name.unwrap_or_default();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        let is_picture = is_image(&path) && is_file(&path);
        if is_hidden || !is_folder && !is_picture {
            continue;
        }
        let name = name.to_str().ok_or_else(|| format!("The name of {} is not UTF-8. Rename it.", path.display()))?;
        let pictures = if is_folder { images_in(&path, false)? } else { vec![path.clone()] };
        found.entry(name.into()).or_default().extend(pictures);
    }
    if found.is_empty() {
        let what = format!("There are neither images nor folders of them in {shown}");
        let remedy = format!("Give each name a folder, such as {shown}/Ada, or one image, such as {shown}/Ada.jpg");
        return Err(format!("{what}. {remedy}. Images end in {}.", IMAGES.join(", ")).into());
    }
    Ok(found.into_iter().collect())
}
