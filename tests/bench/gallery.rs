// SPDX-License-Identifier: MPL-2.0
//! Milliseconds in which the objects of a frame are compared with a gallery, on one core: as trtmatch does it (`find`), without the copy in
//! bytes that large galleries have (`floats`), and those in which all numbers of the gallery are read from memory once (`read`): 4 bytes
//! each, whatever is read to compare them. `ratio` is find by read.
//!
//! `strangers` are like nobody. `people` have five looks each in the gallery, and the objects are further looks of them.
//!
//! `cargo bench --bench gallery`

#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/random.rs"]
mod random;

use std::hint::black_box;
use std::time::Instant;

use gsttrt_core::gallery::{Gallery, GalleryEntry};
use gsttrt_core::vector::normalise;
use random::Random;

const RUNS: usize = 15;

/// Looks of a person in a gallery.
const LOOKS: usize = 5;

/// What trtmatch is to take at most: so many times reading the gallery once, of that size and with so many objects.
const WANTED: (f64, [usize; 3]) = (1.5, [100_000, 512, 20]);

/// The median of some runs, in milliseconds.
fn median(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn noise(dims: usize, random: &mut Random) -> Vec<f32> {
    (0..dims).map(|_| random.unit() - 0.5).collect()
}

/// A look of somebody: the cosine of two is about 0.5, as of faces.
fn look(person: &[f32], random: &mut Random) -> Vec<f32> {
    let noise = noise(person.len(), random);
    unit(person.iter().zip(noise).map(|(person, noise)| person + noise).collect())
}

fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    assert!(normalise(&mut vector));
    vector
}

fn main() {
    println!(
        "{:<10}{:>8}{:>6}{:>9}{:>11}{:>11}{:>11}{:>8}",
        "kind", "vectors", "dims", "objects", "find ms", "floats ms", "read ms", "ratio"
    );
    let mut judged = Vec::new();
    for (kind, count, dims) in [
        ("strangers", 1_000, 512),
        ("strangers", 2_500, 512),
        ("strangers", 10_000, 512),
        ("strangers", 100_000, 128),
        ("strangers", 100_000, 512),
        ("people", 100_000, 512),
    ] {
        let mut random = Random(5);
        let people: Vec<Vec<f32>> = match kind {
            "people" => (0..count / LOOKS).map(|_| noise(dims, &mut random)).collect(),
            _ => Vec::new(),
        };
        let mut make = |at: usize| match people.get(at / LOOKS) {
            Some(person) => look(person, &mut random),
            None => unit(noise(dims, &mut random)),
        };
        let entry = |at: usize| GalleryEntry { name: (at / LOOKS).to_string(), vector: make(at) };
        let gallery = Gallery::new((0..count).map(entry));
        let memory = vec![1u32; count * dims];
        let read = median(|| {
            black_box(black_box(&memory).iter().fold(0u32, |sum, &number| sum.wrapping_add(number)));
        });
        for objects in [1, 4, 20] {
            let queries: Vec<Vec<f32>> = (0..objects).map(|at| make(at * count / objects)).collect();
            let queries: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            let find = median(|| {
                black_box(gallery.find(black_box(&queries), 2));
            });
            let floats = median(|| {
                black_box(gallery.find_without_copy(black_box(&queries), 2));
            });
            assert!(gallery.find(&queries, 2) == gallery.find_without_copy(&queries, 2), "another answer");
            let ratio = find / read;
            println!("{kind:<10}{count:>8}{dims:>6}{objects:>9}{find:>11.3}{floats:>11.3}{read:>11.3}{ratio:>8.2}");
            if [count, dims, objects] == WANTED.1 {
                judged.push((kind, ratio));
            }
        }
    }
    let (most, [count, dims, objects]) = WANTED;
    for (kind, ratio) in judged {
        let verdict = if ratio <= most { "met" } else { "missed" };
        println!(
            "{kind}: {objects} objects with {count} vectors of {dims} numbers take {ratio:.2} times reading the {:.1} MB once: \
             at most {most} is {verdict}",
            (count * dims * size_of::<f32>()) as f64 / 1e6
        );
    }
}
