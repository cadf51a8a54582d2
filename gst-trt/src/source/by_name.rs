// SPDX-License-Identifier: MPL-2.0
//! A folder with pictures of several names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::arguments::{images_in, is_file};
use super::path_text;
use super::picture::{IMAGES, is_image};
use crate::failure::Failure;
use crate::terminal::print_error;

/// The names in a folder, each with its pictures: those of the folder NAME, and NAME.jpg. What begins with a dot is left out. A
/// folder without pictures is a warning, and its name has none; so is a name that is no text, which no gallery can have.
pub fn pictures_by_name(folder: &Path) -> Result<Vec<(String, Vec<PathBuf>)>, Failure> {
    let shown = folder.display();
    let failed = |error: io::Error| format!("Cannot read the folder {shown}: {error}.");
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>().map_err(failed)?;
    paths.sort();
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut without: Vec<Failure> = Vec::new();
    for path in paths {
        let is_folder = path.is_dir();
        let name = if is_folder { path.file_name() } else { path.file_stem() };
        let name = name.unwrap_or_default();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        let is_picture = is_image(&path) && is_file(&path);
        if is_hidden || !is_folder && !is_picture {
            continue;
        }
        let Some(name) = name.to_str() else {
            let text = format!("{} is left out: its name is not UTF-8. Rename it.", path_text(&path));
            without.push(text.into());
            continue;
        };
        let pictures = match is_folder {
            false => vec![path.clone()],
            // The other names do not wait for it.
            true => images_in(&path, false).unwrap_or_else(|failure| {
                without.push(failure);
                Vec::new()
            }),
        };
        found.entry(name.into()).or_default().extend(pictures);
    }
    if found.values().all(Vec::is_empty) && !without.is_empty() {
        return Err(without.swap_remove(0));
    }
    if found.is_empty() {
        let what = format!("There are neither images nor folders of them in {shown}");
        let remedy = format!("Give each name a folder, such as {shown}/Ada, or one image, such as {shown}/Ada.jpg");
        return Err(format!("{what}. {remedy}. Images end in {}.", IMAGES.join(", ")).into());
    }
    without.iter().for_each(|failure| print_error(&format!("Warning: {failure}")));
    Ok(found.into_iter().collect())
}
