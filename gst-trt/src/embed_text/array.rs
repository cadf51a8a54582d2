// SPDX-License-Identifier: MPL-2.0
//! Vectors as an array of NumPy, and their names in a text file of the same name: what `input-values` of trtinfer takes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gsttrt_core::gallery::GalleryEntry;

use crate::failure::Failure;
use crate::output::{cannot_make, cannot_write, create_part, finish_part, part, replaceable};

/// Where the names are.
pub fn names_of(array: &Path) -> PathBuf {
    array.with_extension("txt")
}

/// Writes both files, or leaves what is there. All vectors have as many numbers.
pub fn write(path: &Path, entries: &[GalleryEntry]) -> Result<(), Failure> {
    let names: String = entries.iter().map(|entry| format!("{}\n", entry.name)).collect();
    let files = [(replaceable(path)?, array(entries)), (replaceable(&names_of(path))?, names.into_bytes())];
    let written = files.iter().try_for_each(|(file, bytes)| {
        let made = create_part(file).and_then(|mut made| made.write_all(bytes).and_then(|()| made.sync_all()));
        made.map_err(|error| cannot_make(file, &error))
    });
    let finished = written.and_then(|()| {
        files.iter().try_for_each(|(file, _)| finish_part(file).map_err(|error| cannot_write(file.display(), &error)))
    });
    finished.inspect_err(|_| {
        for (file, _) in &files {
            let _ = fs::remove_file(part(file));
        }
    })
}

/// [Version 1.0 of the format](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html) of `numpy.save`, with the
/// shape `(1, words, numbers)`.
fn array(entries: &[GalleryEntry]) -> Vec<u8> {
    /// The array begins at a multiple of that.
    const ALIGNMENT: usize = 64;
    /// Before the dictionary.
    const MAGIC: usize = 10;
    let numbers = entries.first().map_or(0, |entry| entry.vector.len());
    let shape = format!("(1, {}, {numbers})", entries.len());
    let dictionary = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let length = (MAGIC + dictionary.len() + 1).next_multiple_of(ALIGNMENT) - MAGIC;
    let header = format!("{dictionary:<width$}\n", width = length - 1);
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(entries.iter().flat_map(|entry| &entry.vector).flat_map(|number| number.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use gsttrt_core::model::InputValues;

    use super::*;
    use crate::scratch::scratch;

    fn entries(count: usize) -> Vec<GalleryEntry> {
        (0..count).map(|at| GalleryEntry::new(&format!("word {at}"), &[at as f32 + 0.5, -1.0]).unwrap()).collect()
    }

    #[test]
    fn an_array_is_what_input_values_takes() {
        let folder = scratch("embed-text-array");
        let path = folder.join("words.npy");
        for count in [3, 1] {
            write(&path, &entries(count)).unwrap();
            let bytes = fs::read(&path).unwrap();
            let (header, numbers) = bytes.split_at(128);
            assert!(header.ends_with(b"\n"), "it begins at a multiple of 64");
            assert_eq!(
                numbers,
                entries(count)
                    .iter()
                    .flat_map(|entry| entry.vector.clone())
                    .flat_map(f32::to_le_bytes)
                    .collect::<Vec<_>>()
            );
            let values = InputValues::read(&format!("txt_feats={}", path.display())).unwrap();
            let before = InputValues::read("").unwrap();
            assert!(!values.is_empty() && before.is_empty());
            let names: Vec<String> = fs::read_to_string(names_of(&path)).unwrap().lines().map(String::from).collect();
            assert_eq!(names, entries(count).iter().map(|entry| entry.name.clone()).collect::<Vec<_>>());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left over");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_is_there() {
        let folder = scratch("embed-text-array-kept");
        let path = folder.join("words.npy");
        fs::create_dir(names_of(&path)).unwrap();
        fs::write(&path, "old").unwrap();
        let said = write(&path, &entries(2)).unwrap_err().to_string();
        assert!(said.contains("words.txt: it is a folder"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let said = write(&folder.join("none/words.npy"), &entries(2)).unwrap_err().to_string();
        assert!(said.contains("Its folder is not there"), "{said}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left over");
    }
}
