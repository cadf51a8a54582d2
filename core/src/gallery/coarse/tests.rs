// SPDX-License-Identifier: MPL-2.0
use super::*;
use crate::gallery::{Gallery, GalleryEntry};
use crate::test::random::Random;
use crate::vector::{normalise, product};

/// What the vectors of a test are like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Any,
    /// About one of three directions.
    Clusters,
    /// One of five.
    Copies,
    /// One of five, or its opposite.
    Opposites,
    /// Their squares have few bits, so their lengths are not quite 1.
    Tiny,
    Constant,
    /// Bytes have nothing but the largest number.
    Spikes,
}

const KINDS: [Kind; 7] =
    [Kind::Any, Kind::Clusters, Kind::Copies, Kind::Opposites, Kind::Tiny, Kind::Constant, Kind::Spikes];

fn noise(dims: usize, spread: f32, random: &mut Random) -> Vec<f32> {
    (0..dims).map(|_| random.between(-spread, spread)).collect()
}

fn make(kind: Kind, dims: usize, random: &mut Random) -> Vec<f32> {
    match kind {
        Kind::Any => noise(dims, 1.0, random),
        Kind::Clusters => {
            let direction = random.below(3) % dims;
            let mut vector = noise(dims, 0.02, random);
            vector[direction] += 1.0;
            vector
        }
        Kind::Copies => noise(dims, 1.0, &mut Random(random.below(5) as u64)),
        Kind::Opposites => {
            let sign = random.one_of(&[-1.0f32, 1.0]);
            let mut vector = noise(dims, 1.0, &mut Random(random.below(5) as u64));
            vector.iter_mut().for_each(|value| *value *= sign);
            vector
        }
        Kind::Tiny => noise(dims, 1e-21, random),
        Kind::Constant => vec![0.25; dims],
        Kind::Spikes => {
            let place = random.below(dims);
            let mut vector = noise(dims, 1e-3, random);
            vector[place] = 1.0;
            vector
        }
    }
}

/// Of so many vectors, whose names are told by their numbers.
fn gallery(count: usize, mut make: impl FnMut() -> Vec<f32>, name: impl Fn(usize) -> usize) -> Gallery {
    Gallery::new((0..count).map(|at| GalleryEntry { name: name(at).to_string(), vector: make() }))
}

fn bits(found: Vec<Vec<Likeness>>) -> Vec<Vec<(u32, u32)>> {
    let bits = |&Likeness { name, similarity }: &Likeness| {
        let similarity = if similarity.is_nan() { f32::NAN } else { similarity };
        (name, similarity.to_bits())
    };
    found.iter().map(|of_one| of_one.iter().map(bits).collect()).collect()
}

/// Blocks that are full and one that is not, names of one vector and of several, ties, and vectors that no bound is known for.
#[test]
fn the_same_is_found_with_a_copy_and_without() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        for dims in [1, 3, 16, 511, 512] {
            let mut random = Random((number * 1000 + dims) as u64);
            let names = if number % 2 == 0 { 203 } else { 40 };
            let mut gallery = gallery(203, || make(kind, dims, &mut random), |at| at % names);
            let mut vectors: Vec<Vec<f32>> = (0..5).map(|_| make(kind, dims, &mut random)).collect();
            vectors.push(make(Kind::Any, dims, &mut random));
            for vector in &mut vectors {
                normalise(vector); // what has no length stays as it is
            }
            let with = |value: f32| {
                let mut vector = vec![0.5; dims];
                vector[dims / 2] = value;
                vector
            };
            let far = vectors[0].iter().map(|value| value * 3.0).collect();
            vectors.extend([with(f32::NAN), with(f32::INFINITY), with(1e-30), vec![0.0; dims], far]);
            vectors.push(vec![0.5; dims + 1]);
            let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            let wanted = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|most| bits(gallery.find_without_copy(&vectors, most)));
            for method in DotMethod::all() {
                gallery.coarse = Some(CoarseCopy::with_method(method, dims, &gallery.vectors));
                for (most, wanted) in wanted.iter().enumerate() {
                    assert_eq!(bits(gallery.find(&vectors, most)), *wanted, "{kind:?} {dims} {most} {method:?}");
                }
            }
        }
    }
}

#[test]
fn no_similarity_is_beyond_its_bound() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (kind, other) = (random.one_of(&KINDS), random.one_of(&KINDS));
        let dims = random.one_of(&[1, 2, 3, 16, 17, 64, 511, 512, 1000]);
        let gallery = gallery(20, || make(kind, dims, &mut random), |at| at);
        let mut vector = make(other, dims, &mut random);
        normalise(&mut vector);
        let factor = random.between(0.5, 2.0);
        vector.iter_mut().for_each(|value| *value *= factor);
        let rounded = RoundedVector::of(&vector);
        if gallery.is_empty() || !LENGTHS.contains(&rounded.length) {
            continue;
        }
        let copy = CoarseCopy::with_method(DotMethod::Plain, dims, &gallery.vectors);
        let (bounds, factors) = (rounded.bounds(), Factors::one_by_one(&[rounded.numbers]));
        let mut known = gallery.vectors.chunks_exact(dims.div_ceil(LANES));
        for (rows, of_rows) in copy.rows.chunks_exact(copy.steps).zip(&copy.bounds) {
            let mut products = [[0; ROWS]];
            dot::plain(rows, &factors, &mut products);
            for ((middle, reach), known) in of_rows.similarities(&products[0], bounds).zip(&mut known) {
                let similarity = product(known.as_flattened(), &vector);
                assert!(middle - reach <= similarity, "{seed}: {middle} - {reach} {similarity}");
                assert!(middle + reach >= similarity, "{seed}: {middle} + {reach} {similarity}");
                // It is not that nothing is left out.
                assert!(reach <= 0.25 * factor, "{seed}: {kind:?} {other:?} {dims} {reach}");
            }
        }
        assert!(known.next().is_none());
    }
}

#[test]
fn few_vectors_remain_unless_all_are_alike() {
    let mut random = Random(9);
    let mut of_kind = |kind| {
        let gallery = gallery(4001, || make(kind, 128, &mut random), |at| at);
        let mut vector = make(kind, 128, &mut random);
        assert!(normalise(&mut vector));
        let copy = CoarseCopy::with_method(DotMethod::of_this_processor(), 128, &gallery.vectors);
        copy.candidates(&[vector.as_slice(), &[f32::NAN; 128]], 2, &gallery.owners)
    };
    let found = of_kind(Kind::Any);
    let rows = found[0].as_ref().unwrap();
    assert!(rows.len() >= 2 && rows.len() < 200 && rows.is_sorted(), "{rows:?}");
    assert_eq!(found[1], None, "nothing is known of it");
    assert_eq!(of_kind(Kind::Constant)[0], None, "any two may be wanted");
}

#[test]
fn small_galleries_have_no_copy() {
    let has_copy = |dims: usize, rows: usize| {
        CoarseCopy::of(dims, &vec![[0.25; LANES]; rows * dims.div_ceil(LANES)]).is_some_and(|copy| copy.steps > 0)
    };
    assert!(!has_copy(0, 0) && !has_copy(512, LEAST_ROWS - 1) && !has_copy(16, LEAST_ROWS));
    assert_eq!(has_copy(512, LEAST_ROWS), DotMethod::of_this_processor().is_faster_than_floats());
}
