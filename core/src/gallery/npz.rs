// SPDX-License-Identifier: MPL-2.0
//! Galleries that `numpy.savez` wrote.
//!
//! ```text
//! numpy.savez("people.npz", names=["Ada", "Ada", "Bob"], vectors=array)    # a row of the array for each name
//! numpy.savez("people.npz", Ada=array, Bob=vector)                         # one or several vectors of each name
//! ```
//!
//! Other arrays next to `names` and `vectors` are not read, as other keys of a line are not.

use half::f16;

use super::archive::{StoredMember, members};
use super::entry::{GalleryEntry, MAX_DIMS, MAX_VECTORS, check_name, check_vector};
use crate::npy::NpyArray;

/// An array of the archive, and its name there.
struct NamedArray<'a> {
    name: &'a str,
    array: NpyArray<'a>,
}

/// The entries of a gallery.
///
/// # Errors
/// What is wrong with the archive.
pub fn entries(file: &[u8]) -> Result<Vec<GalleryEntry>, String> {
    let members = members(file)?;
    // One header after the other: a header takes more memory than its bytes in the file.
    let array =
        |file_name: &str| members.iter().find(|member| member.name == file_name).map(NamedArray::of).transpose();
    let names = array("names.npy")?.filter(NamedArray::may_be_texts);
    match (names, array("vectors.npy")?) {
        (Some(names), Some(vectors)) => columns(&names, &vectors),
        (None, Some(_)) if members.len() == 1 => {
            Err("it has an array “vectors” and no names: give numpy.savez names=names with it, a name for each row"
                .into())
        }
        _ => of_each_name(&members),
    }
}

/// A name and a vector in each place.
fn columns(names: &NamedArray, vectors: &NamedArray) -> Result<Vec<GalleryEntry>, String> {
    let (texts, rows) = (names.texts()?, vectors.rows()?);
    if texts.len() != rows.len() {
        return Err(format!("it has {} names and {} vectors", texts.len(), rows.len()));
    }
    let pairs = texts.into_iter().zip(rows);
    Ok(pairs.map(|(name, vector)| GalleryEntry { name, vector }).collect())
}

/// An array for each name.
fn of_each_name(members: &[StoredMember]) -> Result<Vec<GalleryEntry>, String> {
    let mut found: Vec<GalleryEntry> = Vec::new();
    for member in members {
        let one = NamedArray::of(member)?;
        // What numpy.savez calls arrays that are given without names.
        if one.name.strip_prefix("arr_").is_some_and(|number| number.parse::<u32>().is_ok()) {
            return Err(one.about("it has no name of its own: give numpy.savez names=names and vectors=vectors"));
        }
        check_name(one.name).map_err(|why| one.about(&why))?;
        let rows = one.rows()?;
        if found.len() + rows.len() > MAX_VECTORS {
            return Err(too_many());
        }
        if let (Some(before), Some(row)) = (found.first(), rows.first())
            && before.vector.len() != row.len()
        {
            let (numbers, known) = (row.len(), before.vector.len());
            return Err(one.about(&format!("its vectors have {numbers} numbers, and those before have {known}")));
        }
        found.extend(rows.into_iter().map(|vector| GalleryEntry { name: one.name.into(), vector }));
    }
    Ok(found)
}

fn too_many() -> String {
    format!("a gallery has at most {MAX_VECTORS} vectors")
}

impl<'a> NamedArray<'a> {
    fn of(member: &StoredMember<'a>) -> Result<Self, String> {
        let StoredMember { name, bytes } = *member;
        let name = name.strip_suffix(".npy").ok_or_else(|| format!("“{name}” in it is no array of numpy.savez"))?;
        let array = NpyArray::parse(bytes).map_err(|why| format!("the array “{name}”: {why}"))?;
        Ok(NamedArray { name, array })
    }

    fn about(&self, why: &str) -> String {
        format!("the array “{}”: {why}", self.name)
    }

    /// What numpy makes of no names is an array of no numbers.
    fn may_be_texts(&self) -> bool {
        let is_text = |descr: &str| descr.starts_with("<U") || descr.starts_with("|S");
        self.array.descr().is_some_and(is_text) || self.array.values.is_empty()
    }

    /// Names, which are filled up with zeros to one length.
    fn texts(&self) -> Result<Vec<String>, String> {
        self.all_texts().map_err(|why| self.about(&why))
    }

    fn all_texts(&self) -> Result<Vec<String>, String> {
        let count = match self.array.dims()?[..] {
            [0] => return Ok(Vec::new()),
            [count] => count as usize,
            _ => return Err(self.array.wrong_shape()),
        };
        if count > MAX_VECTORS {
            return Err(too_many());
        }
        // The bytes of a letter, and how many letters there are.
        let (size, letters) = match self.array.descr().and_then(|descr| descr.split_at_checked(2)) {
            Some(("<U", letters)) => (4, letters),
            Some(("|S", letters)) => (1, letters),
            _ => return Err(self.array.wrong_type()),
        };
        let width = letters.parse::<usize>().ok().and_then(|letters| letters.checked_mul(size));
        let width = width.ok_or_else(|| self.array.wrong_type())?;
        self.check_bytes(count, width)?;
        if width == 0 {
            return Err("the names are empty".into());
        }
        let text = |bytes: &[u8]| match size {
            1 => String::from_utf8(bytes.to_vec()).ok(),
            _ => bytes.as_chunks::<4>().0.iter().map(|&letter| char::from_u32(u32::from_le_bytes(letter))).collect(),
        };
        let names = self.array.values.chunks_exact(width).enumerate().map(|(at, bytes)| -> Result<String, String> {
            let name = text(bytes).ok_or_else(|| format!("element {at}, from 0, is not Unicode"))?;
            let name = name.trim_end_matches('\0');
            check_name(name).map_err(|why| format!("element {at}, from 0: {why}"))?;
            Ok(name.to_string())
        });
        names.collect()
    }

    /// Vectors: each row of two dimensions, or one of one dimension.
    fn rows(&self) -> Result<Vec<Vec<f32>>, String> {
        self.all_rows().map_err(|why| self.about(&why))
    }

    fn all_rows(&self) -> Result<Vec<Vec<f32>>, String> {
        let (count, numbers) = match self.array.dims()?[..] {
            [0] | [0, _] => return Ok(Vec::new()),
            [numbers] => (1, numbers as usize),
            [count, numbers] => (count as usize, numbers as usize),
            _ => return Err(self.array.wrong_shape()),
        };
        if count > MAX_VECTORS {
            return Err(too_many());
        }
        if !(1..=MAX_DIMS).contains(&numbers) {
            return Err(format!("a vector has {numbers} numbers, and must have 1 to {MAX_DIMS}"));
        }
        let size = match self.array.descr() {
            Some("<f2") => 2,
            Some("<f4") => 4,
            Some("<f8") => 8,
            _ => return Err(self.array.wrong_type()),
        };
        self.check_bytes(count, numbers * size)?;
        let vector = |row: &[u8]| -> Vec<f32> {
            match size {
                2 => row.as_chunks::<2>().0.iter().map(|&number| f16::from_le_bytes(number).to_f32()).collect(),
                4 => row.as_chunks::<4>().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
                _ => row.as_chunks::<8>().0.iter().map(|&number| f64::from_le_bytes(number) as f32).collect(),
            }
        };
        let rows = self.array.values.chunks_exact(numbers * size).enumerate();
        let rows = rows.map(|(at, row)| -> Result<Vec<f32>, String> {
            let vector = vector(row);
            check_vector(&vector).map_err(|why| format!("row {at}, from 0: {why}"))?;
            Ok(vector)
        });
        rows.collect()
    }

    /// Whether so many elements of that size take the bytes that there are.
    fn check_bytes(&self, count: usize, size: usize) -> Result<(), String> {
        let length = self.array.values.len();
        match count.checked_mul(size) == Some(length) {
            true => Ok(()),
            false => Err(format!("{}, and {length} bytes follow", self.array.wrong_shape())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test::npy::npy;
    use crate::test::{cases, npz};

    fn floats(shape: &str, values: &[f32]) -> Vec<u8> {
        npy("<f4", shape, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Texts of so many letters.
    fn texts(letters: usize, all: &[&str]) -> Vec<u8> {
        let letter = |text: &str, at: usize| text.chars().nth(at).map_or(0, u32::from);
        let text = |text: &str| (0..letters).flat_map(|at| letter(text, at).to_le_bytes()).collect::<Vec<u8>>();
        let values: Vec<u8> = all.iter().flat_map(|one| text(one)).collect();
        npy(&format!("<U{letters}"), &format!("({},)", all.len()), &values)
    }

    fn pairs(file: &[u8]) -> Result<Vec<(String, Vec<f32>)>, String> {
        Ok(entries(file)?.into_iter().map(|GalleryEntry { name, vector }| (name, vector)).collect())
    }

    /// Files that NumPy 2.4 has written.
    #[test]
    fn files_of_numpy_are_read() {
        let expected = [("Ada", [1.0, 0.5]), ("Zoë", [-0.25, 2.0]), ("Ada", [0.0, 3.0])];
        let expected = expected.map(|(name, vector)| (name.to_string(), vector.to_vec()));
        assert_eq!(pairs(include_bytes!("npz/columns.npz")).unwrap(), expected);
        let expected = [("Ada", [1.0, 0.5]), ("Ada", [0.0, 3.0]), ("Zoë", [-0.25, 2.0])];
        let expected = expected.map(|(name, vector)| (name.to_string(), vector.to_vec()));
        assert_eq!(pairs(include_bytes!("npz/names.npz")).unwrap(), expected);
        let why = pairs(include_bytes!("npz/compressed.npz")).unwrap_err();
        assert!(why.contains("is compressed, as by numpy.savez_compressed"), "{why}");
    }

    #[test]
    fn each_type_of_numbers_and_names_is_read() {
        let halves: Vec<u8> = [1.0, 0.5].iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        let doubles: Vec<u8> = [1.0f64, 0.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        for (descr, values) in [("<f2", halves), ("<f8", doubles)] {
            let file = npz(&[("%s ../a.npy", &npy(descr, "(2,)", &values))]);
            assert_eq!(pairs(&file).unwrap(), [("%s ../a".to_string(), vec![1.0, 0.5])], "{descr}");
        }
        let (names, vectors) = (npy("|S3", "(2,)", b"Adab\0\0"), floats("(2, 1)", &[1.0, 2.0]));
        let file = npz(&[("names.npy", &names), ("vectors.npy", &vectors), ("more.npy", &npy("|b1", "(1,)", &[1]))]);
        assert_eq!(pairs(&file).unwrap(), [("Ada".to_string(), vec![1.0]), ("b".to_string(), vec![2.0])]);
        // Somebody may have that name.
        let file = npz(&[("names.npy", &vectors), ("vectors.npy", &vectors)]);
        assert_eq!(pairs(&file).unwrap().len(), 4);
    }

    #[test]
    fn an_archive_may_have_nobody() {
        let none = npy("<f8", "(0,)", &[]);
        for file in [
            npz(&[]),
            npz(&[("names.npy", &none), ("vectors.npy", &floats("(0, 512)", &[]))]),
            npz(&[("Ada.npy", &none), ("Bob.npy", &floats("(0, 3)", &[]))]),
        ] {
            assert!(pairs(&file).unwrap().is_empty());
        }
    }

    #[test]
    fn what_is_wrong_with_a_gallery_is_said() {
        let (good, names) = (floats("(2, 2)", &[1.0; 4]), texts(3, &["Ada", "Bob"]));
        let columns = |names: &[u8], vectors: &[u8]| npz(&[("names.npy", names), ("vectors.npy", vectors)]);
        let one = |array: &[u8]| npz(&[("Ada.npy", array)]);
        for (file, says) in [
            (b"PK\x03\x04".to_vec(), "its end is missing"),
            (npz(&[("Ada.txt", b"")]), "“Ada.txt” in it is no array of numpy.savez"),
            (one(b"Ada"), "the array “Ada”: it is no file of numpy.save"),
            (one(&npy("|O", "(1,)", &[0; 8])), "the array “Ada”: its elements are of the type \"|O\""),
            (one(&npy("<i8", "(1, 2)", &[0; 16])), "of the type \"<i8\""),
            (one(&npy(">f4", "(1, 2)", &[0; 8])), "of the type \">f4\""),
            (one(&floats("()", &[1.0])), "its shape is []"),
            (one(&floats("(1, 2, 2)", &[1.0; 4])), "its shape is [1,2,2]"),
            (one(&floats("(2, 0)", &[])), "a vector has 0 numbers"),
            (one(&floats("(5000,)", &[1.0; 5000])), "must have 1 to 4096"),
            (one(&floats("(3, 2)", &[1.0; 4])), "its shape is [3,2], and 16 bytes follow"),
            (one(&floats("(9223372036854775807, 2)", &[1.0; 4])), "a gallery has at most 100000 vectors"),
            (one(&floats("(2, 2)", &[1.0, 0.0, f32::NAN, 0.0])), "row 1, from 0: the vector has no length"),
            (one(&floats("(2,)", &[0.0; 2])), "row 0, from 0: the vector has no length"),
            (
                npz(&[("Ada.npy", &good), ("Bob.npy", &floats("(3,)", &[1.0; 3]))]),
                "have 3 numbers, and those before have 2",
            ),
            (npz(&[("a\nb.npy", &good)]), "control characters"),
            (npz(&[(".npy", &good)]), "the name is empty"),
            (npz(&[("vectors.npy", &good)]), "“vectors” and no names: give numpy.savez names=names"),
            (npz(&[("arr_0.npy", &good)]), "“arr_0”: it has no name of its own"),
            (npz(&[("arr_0.npy", &names), ("arr_1.npy", &good)]), "“arr_0”: it has no name of its own"),
            (columns(&names, &floats("(3, 2)", &[1.0; 6])), "it has 2 names and 3 vectors"),
            (columns(&texts(3, &["Ada", ""]), &good), "“names”: element 1, from 0: the name is empty"),
            (columns(&npy("<U0", "(2,)", &[]), &good), "the names are empty"),
            (columns(&npy("<U1", "(2,)", &[0xff; 8]), &good), "element 0, from 0, is not Unicode"),
            (columns(&npy("|S1", "(2,)", &[0xff; 2]), &good), "element 0, from 0, is not Unicode"),
            (columns(&npy("<U1", "(2, 1)", &[65; 8]), &good), "its shape is [2,1]"),
            (columns(&npy("<U3", "(2,)", &[65; 4]), &good), "its shape is [2], and 4 bytes follow"),
            (columns(&npy("<U-1", "(2,)", &[65; 4]), &good), "of the type \"<U-1\""),
            (columns(&npy("|S1", "(100001,)", &[65; 100_001]), &good), "a gallery has at most 100000 vectors"),
            (columns(&names, &npy("<f4", "(2, 2)", &[0; 8])), "“vectors”: its shape is [2,2], and 8 bytes follow"),
        ] {
            let why = pairs(&file).unwrap_err();
            assert!(why.contains(says), "{why}, not: {says}");
        }
        let half = floats("(60000, 1)", &[1.0; 60_000]);
        let why = pairs(&npz(&[("Ada.npy", &half), ("Bob.npy", &half)])).unwrap_err();
        assert!(why.contains("a gallery has at most 100000 vectors"), "{why}");
    }

    proptest! {
        #![proptest_config(cases(2000))]

        /// Some bytes of an array, or of the archive around it, are other ones: what is found is what a gallery may have.
        #[test]
        fn no_bytes_panic(
            in_array in any::<bool>(),
            place in any::<u16>(),
            bytes in prop::collection::vec(any::<u8>(), 1..9),
        ) {
            let change = |mut file: Vec<u8>| {
                let at = usize::from(place) % (file.len() - bytes.len());
                file[at..at + bytes.len()].copy_from_slice(&bytes);
                file
            };
            let (names, vectors) = (texts(3, &["Ada", "Bob"]), floats("(2, 2)", &[1.0; 4]));
            let vectors = if in_array { change(vectors) } else { vectors };
            let file = npz(&[("names.npy", &names), ("vectors.npy", &vectors)]);
            let file = if in_array { file } else { change(file) };
            for GalleryEntry { name, vector } in entries(&file).unwrap_or_default() {
                prop_assert!(check_name(&name).is_ok() && check_vector(&vector).is_ok(), "{name} {vector:?}");
            }
        }
    }
}
