// SPDX-License-Identifier: MPL-2.0
//! Names for vectors: which of the known ones a vector is most like.
//!
//! A [`Gallery`] is read from a [`file`](mod@file) of JSON lines or of `numpy.savez`, and read again when that changes
//! ([`WatchedGallery`]), once for all in the process who have it. It compares each vector with all that it has, exactly, in one pass over
//! its memory for all objects of a frame. A [`DeviceMatcher`] does so on a GPU, with the same results. [`Votes`] decide for an object that
//! is seen in several frames.
//!
//! | file | |
//! |---|---|
//! | [`file`](mod@file) | the file, read and changed |
//! | `lock` | the new file, which one program at a time writes |
//! | `entry` | what it has of a vector, and its limits |
//! | `npz` | a file of `numpy.savez` |
//! | `archive` | the members of such a file |
//! | `readings` | galleries that are in use, by their file: it is read once for all who want it |
//! | `watched` | reads it again |
//! | [`options`] | when a vector shows somebody who is known |
//! | `coarse` | which vectors of a large gallery can be the most similar ones, by a copy in bytes |
//! | `dot` | products of bytes |
//! | `device` | the comparison on a GPU |
//! | `votes` | several looks at an object |
//!
//! The copy takes a quarter of the memory of the vectors in addition. It is read in place of them.

mod archive;
mod coarse;
mod device;
mod dot;
mod entry;
pub mod file;
mod lock;
mod npz;
pub mod options;
mod readings;
mod votes;
mod watched;

pub use device::{DeviceGallery, DeviceMatcher};
pub use entry::GalleryEntry;
pub use options::{MatchDevice, MatchOptions, recognised};
pub use readings::read_shared;
pub use votes::Votes;
pub use watched::{GalleryInUse, WatchedGallery};

use std::collections::HashMap;

use coarse::CoarseCopy;
use device::DeviceCopies;

use crate::vector::{LANES, Lanes, added, normalise, product};

/// Vectors that are compared with a known one at a time: so many sums fit into the registers.
const TOGETHER: usize = 4;

/// Known vectors, and whom they show. Several may have one name.
#[derive(Debug, Default)]
pub struct Gallery {
    names: Vec<String>,
    /// Numbers of a vector; 0 where there is none.
    dims: usize,
    /// For each vector the number of its name.
    owners: Vec<u32>,
    /// The vectors one after the other, of the length 1.
    vectors: Vec<Lanes>,
    /// In bytes, of many vectors.
    coarse: Option<CoarseCopy>,
    on_gpus: DeviceCopies,
}

/// How like a vector is to the most similar one of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likeness {
    /// Its number in [`Gallery::names`].
    pub name: u32,
    /// The cosine of the angle between them: 1 where they are the same, 0 where they have nothing in common.
    pub similarity: f32,
}

impl Gallery {
    /// Of entries that have vectors of one model.
    pub fn new(entries: impl IntoIterator<Item = GalleryEntry>) -> Gallery {
        let (mut gallery, mut numbers) = (Gallery::default(), HashMap::new());
        entries.into_iter().for_each(|entry| gallery.add(entry, &mut numbers));
        gallery.coarse = CoarseCopy::of(gallery.dims(), &gallery.vectors);
        gallery
    }

    /// Adds an entry. What has no length, or other dimensions than the first, is left out: files are checked before.
    fn add(&mut self, GalleryEntry { name, mut vector }: GalleryEntry, numbers: &mut HashMap<String, u32>) {
        if self.owners.is_empty() {
            self.dims = vector.len();
        }
        if vector.len() != self.dims || !normalise(&mut vector) {
            return;
        }
        let next = self.names.len() as u32;
        let number = *numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        });
        self.owners.push(number);
        self.vectors.extend(vector.chunks(LANES).map(|part| {
            let mut lanes = [0.0; LANES];
            lanes[..part.len()].copy_from_slice(part);
            lanes
        }));
    }

    /// In the order in which they first come.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Numbers of a vector; 0 where there is none.
    pub fn dims(&self) -> usize {
        if self.owners.is_empty() { 0 } else { self.dims }
    }

    /// How many vectors there are.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The first two names that have one vector, and how many other vectors have another name, too. Of such a vector nobody can tell
    /// whom it shows: [`Gallery::find`] gives the first name.
    pub fn shared_vector(&self) -> Option<(&str, &str, usize)> {
        self.shared_vector_of(|_| true)
    }

    /// The same, of the first two names of which one is preferred, if there are such.
    pub(crate) fn shared_vector_of(&self, is_preferred: impl Fn(&str) -> bool) -> Option<(&str, &str, usize)> {
        let name = |at: usize| self.names[self.owners[at] as usize].as_str();
        let size = self.dims().div_ceil(LANES).max(1);
        let mut first: HashMap<u64, usize> = HashMap::with_capacity(self.len());
        let (mut pair, mut others) = (None::<(usize, usize, bool)>, 0);
        for (at, vector) in self.vectors.chunks_exact(size).enumerate() {
            let known = *first.entry(bits_hash(vector)).or_insert(at);
            if self.owners[known] == self.owners[at] || self.vectors[known * size..][..size] != *vector {
                continue;
            }
            others += usize::from(pair.is_some());
            if pair.is_none_or(|(_, _, had)| !had) {
                let is_preferred = is_preferred(name(known)) || is_preferred(name(at));
                if pair.is_none() || is_preferred {
                    pair = Some((known, at, is_preferred));
                }
            }
        }
        pair.map(|(known, at, _)| (name(known), name(at), others))
    }

    /// For each vector, all of the length 1, the names that it is most like: at most `most`, the most similar first, of equals
    /// the one that comes first in the gallery. Those of other dimensions are like nobody.
    pub fn find(&self, vectors: &[&[f32]], most: usize) -> Vec<Vec<Likeness>> {
        // Where all names are wanted, none can be left out.
        let coarse = self.coarse.as_ref().filter(|_| (1..self.names.len()).contains(&most));
        let Some(coarse) = coarse else { return self.find_without_copy(vectors, most) };
        let mut found = vec![Vec::new(); vectors.len()];
        let fitting = self.fitting(vectors);
        let of_fitting: Vec<&[f32]> = fitting.iter().map(|&at| vectors[at]).collect();
        let mut left = Vec::new();
        for (at, rows) in fitting.into_iter().zip(coarse.candidates(&of_fitting, most, &self.owners)) {
            match rows {
                Some(rows) => self.compare_rows(&rows, vectors[at], most, &mut found[at]),
                None => left.push(at),
            }
        }
        self.compare_with_all(vectors, left, most, &mut found);
        found
    }

    /// The same, and each number of the gallery is read: for figures and tests.
    pub fn find_without_copy(&self, vectors: &[&[f32]], most: usize) -> Vec<Vec<Likeness>> {
        let mut found = vec![Vec::new(); vectors.len()];
        self.compare_with_all(vectors, self.fitting(vectors), most, &mut found);
        found
    }

    /// Which vectors have the gallery's dimensions.
    fn fitting(&self, vectors: &[&[f32]]) -> Vec<usize> {
        let dims = self.dims();
        (0..vectors.len()).filter(|&at| dims > 0 && vectors[at].len() == dims).collect()
    }

    /// Compares a vector with some of those that are known, in their order.
    fn compare_rows(&self, rows: &[u32], vector: &[f32], most: usize, found: &mut Vec<Likeness>) {
        let size = self.dims.div_ceil(LANES);
        for row in rows.iter().map(|&row| row as usize) {
            // It ends where the vector does: what is filled up with zeros changes no sum.
            let similarity = product(self.vectors[row * size..][..size].as_flattened(), vector);
            enter(found, Likeness { name: self.owners[row], similarity }, most);
        }
    }

    /// Compares the vectors in these places with all that are known.
    fn compare_with_all(&self, vectors: &[&[f32]], places: Vec<usize>, most: usize, found: &mut [Vec<Likeness>]) {
        if places.is_empty() {
            return;
        }
        let size = self.dims.div_ceil(LANES);
        let mut queries = vec![[[0.0; LANES]; TOGETHER]; places.len().div_ceil(TOGETHER) * size];
        for (number, &at) in places.iter().enumerate() {
            let group = &mut queries[number / TOGETHER * size..][..size];
            for (lanes, part) in group.iter_mut().zip(vectors[at].chunks(LANES)) {
                lanes[number % TOGETHER][..part.len()].copy_from_slice(part);
            }
        }
        let mut of_places = vec![Vec::new(); places.len()];
        self.compare(&queries, size, most, &mut of_places);
        for (at, of_one) in places.into_iter().zip(of_places) {
            found[at] = of_one;
        }
    }

    fn compare(&self, queries: &[[Lanes; TOGETHER]], size: usize, most: usize, found: &mut [Vec<Likeness>]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { self.compare_avx2(queries, size, most, found) };
            return;
        }
        self.compare_all(queries, size, most, found);
    }

    /// [`Gallery::compare_all`], with its loops compiled for AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn compare_avx2(&self, queries: &[[Lanes; TOGETHER]], size: usize, most: usize, found: &mut [Vec<Likeness>]) {
        self.compare_all(queries, size, most, found);
    }

    /// Each known vector is read from memory once.
    #[inline(always)]
    fn compare_all(&self, queries: &[[Lanes; TOGETHER]], size: usize, most: usize, found: &mut [Vec<Likeness>]) {
        for (known, &name) in self.vectors.chunks_exact(size).zip(&self.owners) {
            for (group, found) in queries.chunks_exact(size).zip(found.chunks_mut(TOGETHER)) {
                for (similarity, found) in products(known, group).into_iter().zip(found) {
                    enter(found, Likeness { name, similarity }, most);
                }
            }
        }
    }
}

/// Equal vectors have the same: 0 is -0. FNV-1a, of whole numbers in place of bytes.
fn bits_hash(vector: &[Lanes]) -> u64 {
    let bits = vector.as_flattened().iter().map(|value| u64::from((value + 0.0).to_bits()));
    bits.fold(0xcbf2_9ce4_8422_2325, |hash: u64, bits| (hash ^ bits).wrapping_mul(0x0100_0000_01b3))
}

/// The products of a known vector with several others, as [`crate::vector::product`] adds them.
#[inline(always)]
fn products(known: &[Lanes], group: &[[Lanes; TOGETHER]]) -> [f32; TOGETHER] {
    let mut sums = [[0.0; LANES]; TOGETHER];
    for (known, others) in known.iter().zip(group) {
        for (sums, other) in sums.iter_mut().zip(others) {
            sums.iter_mut().zip(known.iter().zip(other)).for_each(|(sum, (a, b))| *sum += a * b);
        }
    }
    sums.map(added)
}

/// Keeps the best of each name, in their order.
fn enter(found: &mut Vec<Likeness>, new: Likeness, most: usize) {
    let is_less = |known: &Likeness| known.similarity < new.similarity;
    if found.len() == most && !found.last().is_some_and(is_less) {
        return;
    }
    match found.iter().position(|known| known.name == new.name) {
        Some(at) if is_less(&found[at]) => {
            found.remove(at);
        }
        Some(_) => return,
        None => found.truncate(most - 1),
    }
    let place = found.iter().position(is_less).unwrap_or(found.len());
    found.insert(place, new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::random::Random;
    use crate::vector;

    fn entry(name: &str, vector: &[f32]) -> GalleryEntry {
        GalleryEntry { name: name.into(), vector: vector.to_vec() }
    }

    fn names(gallery: &Gallery, vector: &[f32], most: usize) -> Vec<(String, f32)> {
        let found = gallery.find(&[vector], most).remove(0);
        found.iter().map(|found| (gallery.names()[found.name as usize].clone(), found.similarity)).collect()
    }

    #[test]
    fn the_most_similar_names_come_first_and_each_once() {
        let gallery = Gallery::new([
            entry("ada", &[1.0, 0.0]),
            entry("bob", &[0.0, 2.0]),
            entry("ada", &[3.0, 4.0]),
            entry("eve", &[0.0, 1.0]),
        ]);
        assert_eq!((gallery.names().len(), gallery.len(), gallery.dims()), (3, 4, 2));
        let all = [("ada".to_string(), 0.8), ("bob".into(), 1.0), ("eve".into(), 1.0)];
        assert_eq!(names(&gallery, &[0.0, 1.0], 9), [1, 2, 0].map(|at| all[at].clone()));
        assert_eq!(names(&gallery, &[0.0, 1.0], 2), [1, 2].map(|at| all[at].clone()));
        assert_eq!(names(&gallery, &[0.0, 1.0], 1), [all[1].clone()], "of equals the first");
        assert_eq!(names(&gallery, &[0.0, 1.0], 0), []);
        assert_eq!(names(&gallery, &[1.0, 0.0], 1), [("ada".to_string(), 1.0)]);
        assert_eq!(names(&gallery, &[1.0, 0.0, 0.0], 1), [], "other dimensions");
    }

    #[test]
    fn nothing_is_like_nobody() {
        let gallery = Gallery::new([]);
        assert!(gallery.is_empty() && gallery.dims() == 0);
        assert!(gallery.find(&[&[1.0, 0.0], &[]], 3).iter().all(Vec::is_empty));
        // What a file may not have.
        let odd = Gallery::new([entry("a", &[0.0; 3]), entry("b", &[1.0, f32::NAN, 0.0]), entry("c", &[1.0, 0.0])]);
        assert_eq!(odd.names(), ["c"]);
    }

    #[test]
    fn vectors_of_several_names_are_found() {
        let none = [entry("ada", &[1.0, 0.0]), entry("ada", &[2.0, 0.0]), entry("bob", &[0.0, 1.0])];
        assert_eq!(Gallery::new(none).shared_vector(), None, "one name may have a vector twice");
        assert_eq!(Gallery::new([]).shared_vector(), None);
        let long = |last: f32| [&[1.0; 39][..], &[last]].concat();
        let gallery = Gallery::new([
            entry("ada", &long(0.5)),
            entry("bob", &long(-0.5)),
            entry("eve", &long(0.0)),
            entry("bob", &long(0.5)),
            entry("ada", &long(-0.0)),
            entry("eve", &long(0.5)),
        ]);
        assert_eq!(gallery.shared_vector(), Some(("ada", "bob", 2)));
        assert_eq!(gallery.shared_vector_of(|name| name == "eve"), Some(("eve", "ada", 2)));
        assert_eq!(gallery.shared_vector_of(|_| false), Some(("ada", "bob", 2)));
    }

    /// Against one product after the other, with sizes that fill registers and groups, and that do not.
    #[test]
    fn all_are_compared_exactly() {
        let mut random = Random(7);
        for (dims, count, queries) in [(1, 3, 1), (16, 50, 4), (31, 50, 5), (128, 200, 9), (515, 30, 20)] {
            let mut make = |_| {
                let mut vector: Vec<f32> = (0..dims).map(|_| random.unit() - 0.5).collect();
                assert!(normalise(&mut vector));
                vector
            };
            let known: Vec<Vec<f32>> = (0..count).map(&mut make).collect();
            let vectors: Vec<Vec<f32>> = (0..queries).map(&mut make).collect();
            let name = |at: usize| format!("n{}", at % 7);
            let gallery = Gallery::new(known.iter().enumerate().map(|(at, vector)| entry(&name(at), vector)));
            let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            let found = gallery.find(&vectors, 3);
            for (vector, found) in vectors.iter().zip(found) {
                // Vectors of the length 1 are divided by their length once more, which may change a bit.
                let mut known = known.clone();
                known.iter_mut().for_each(|known| assert!(normalise(known)));
                let mut wanted: Vec<(f32, usize)> = Vec::new();
                for (at, known) in known.iter().enumerate() {
                    let similarity = vector::product(known, vector);
                    match wanted.iter_mut().find(|(_, name)| *name == at % 7) {
                        Some((best, _)) => *best = best.max(similarity),
                        None => wanted.push((similarity, at % 7)),
                    }
                }
                wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
                let wanted: Vec<f32> = wanted.iter().take(3).map(|(similarity, _)| *similarity).collect();
                let found: Vec<f32> = found.iter().map(|found| found.similarity).collect();
                assert_eq!(found, wanted, "{dims} {count} {queries}");
            }
        }
    }
}
