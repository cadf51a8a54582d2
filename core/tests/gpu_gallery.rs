// SPDX-License-Identifier: MPL-2.0
//! Names of a gallery by the GPU against the reference implementation on the CPU: the same names with the same bits.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use gsttrt_core::cuda::driver::Context;
use gsttrt_core::gallery::{DeviceMatcher, Gallery, GalleryEntry, Likeness};
use gsttrt_core::vector::normalise;

use crate::common::gpu;
use crate::common::random::Random;

/// How the vectors of a gallery are like each other.
#[derive(Clone, Copy, Debug)]
enum Likenesses {
    /// As chance has it.
    Random,
    /// A few vectors, each many times.
    Equal,
    /// The same, and each number off by a bit or so.
    NearlyEqual,
    /// The more like the first of the others the later they come, so that each is better than all before.
    Rising,
}

fn vector(random: &mut Random, dims: usize) -> Vec<f32> {
    let mut vector: Vec<f32> = (0..dims).map(|_| random.unit() - 0.5).collect();
    if !normalise(&mut vector) {
        vector[0] = 1.0;
    }
    vector
}

/// So many known vectors of so many names, and others, some of which are known.
fn made(
    random: &mut Random,
    kind: Likenesses,
    (dims, count, names): (usize, usize, usize),
    others: usize,
) -> (Gallery, Vec<Vec<f32>>) {
    let few: Vec<Vec<f32>> = (0..7).map(|_| vector(random, dims)).collect();
    let goal = vector(random, dims);
    let mut known: Vec<Vec<f32>> = (0..count)
        .map(|at| match kind {
            Likenesses::Random => vector(random, dims),
            Likenesses::Equal => few[random.below(few.len())].clone(),
            Likenesses::NearlyEqual => {
                let mut one = few[random.below(few.len())].clone();
                one.iter_mut().for_each(|number| *number *= 1.0 + (random.unit() - 0.5) * 1e-6);
                one
            }
            Likenesses::Rising => {
                let share = (at + 1) as f32 / count as f32;
                let other = vector(random, dims);
                goal.iter().zip(other).map(|(goal, other)| goal * share + other * (1.0 - share) * 0.5).collect()
            }
        })
        .collect();
    // What has no length is no entry.
    known.iter_mut().filter(|known| known.iter().all(|number| *number == 0.0)).for_each(|known| known[0] = 1.0);
    let mut looks: Vec<Vec<f32>> = (0..others)
        .map(|at| match at % 3 {
            0 => goal.clone(),
            1 => known[random.below(count)].clone(),
            _ => vector(random, dims),
        })
        .collect();
    looks.iter_mut().for_each(|look| assert!(normalise(look)));
    let name = |at: usize| format!("n{}", (at * 7919) % names);
    let entries = known.into_iter().enumerate().map(|(at, vector)| GalleryEntry { name: name(at), vector });
    (Gallery::new(entries), looks)
}

fn bits(found: &[Vec<Likeness>]) -> Vec<Vec<(u32, u32)>> {
    let bits = |found: &Likeness| (found.name, found.similarity.to_bits());
    found.iter().map(|of_one| of_one.iter().map(bits).collect()).collect()
}

#[track_caller]
fn compare(
    context: &Context,
    matcher: &mut DeviceMatcher,
    gallery: &Gallery,
    looks: &[Vec<f32>],
    most: usize,
    what: &str,
) {
    let on_gpu = gallery.upload(context).unwrap();
    assert!(on_gpu.is_some() && gallery.on_gpu(context).is_some());
    let looks: Vec<&[f32]> = looks.iter().map(Vec::as_slice).collect();
    let have = matcher.find(gallery, &looks, most).unwrap();
    assert_eq!(bits(&have), bits(&gallery.find(&looks, most)), "{what}");
}

#[test]
fn the_same_names_are_found_on_both() {
    let Some(context) = gpu::context() else { return };
    let mut matcher = DeviceMatcher::new(&context).unwrap();
    let mut random = Random(11);
    for dims in [1, 3, 16, 33, 511, 512] {
        for (count, names) in [(1, 1), (2, 1), (31, 31), (33, 5), (500, 1), (700, 300), (4097, 4097), (9000, 40)] {
            for kind in [Likenesses::Random, Likenesses::Equal, Likenesses::NearlyEqual, Likenesses::Rising] {
                let others = random.one_of(&[1, 2, 4, 5, 8, 9, 20, 21, 40, 60, 61, 64]);
                let most = random.one_of(&[1, 2, 3, 5, 10]);
                // Those of many numbers in a part of the cases, which is a second of a CPU.
                if dims * count > 1 << 19 && !matches!(kind, Likenesses::Random | Likenesses::NearlyEqual) {
                    continue;
                }
                let (gallery, looks) = made(&mut random, kind, (dims, count, names), others);
                let what =
                    format!("{dims} numbers, {count} vectors, {names} names, {kind:?}, {others} others, {most} most");
                compare(&context, &mut matcher, &gallery, &looks, most, &what);
            }
        }
    }
}

/// More steps than the shared memory holds, and more slices than one.
#[test]
fn long_vectors_and_many_are_compared() {
    let Some(context) = gpu::context() else { return };
    let mut matcher = DeviceMatcher::new(&context).unwrap();
    let mut random = Random(12);
    for (shape, others, most) in [((4096, 700, 90), 21, 3), ((1030, 100, 100), 5, 100), ((16, 100_001, 30_000), 64, 10)]
    {
        let (gallery, looks) = made(&mut random, Likenesses::Random, shape, others);
        compare(&context, &mut matcher, &gallery, &looks, most, &format!("{shape:?}"));
    }
    // All names are asked for, and there are fewer.
    let (gallery, looks) = made(&mut random, Likenesses::Equal, (16, 20_000, 60), 4);
    compare(&context, &mut matcher, &gallery, &looks, 100, "fewer names than are asked for");
}

/// Also where their vectors differ, in numbers that are lost in the sums.
#[test]
fn equals_come_in_the_order_of_the_gallery() {
    let Some(context) = gpu::context() else { return };
    let mut matcher = DeviceMatcher::new(&context).unwrap();
    let look = vec![1.0, 0.0, 0.0];
    let vectors = (0..10_000usize).map(|at| vec![1.0, [0.0, 1e-4, 2e-4][at % 3], [0.0, 1e-4][at % 2]]);
    let entries = vectors.enumerate().map(|(at, vector)| GalleryEntry { name: at.to_string(), vector });
    let gallery = Gallery::new(entries);
    let _on_gpu = gallery.upload(&context).unwrap();
    let found = matcher.find(&gallery, &[&look], 3).unwrap().remove(0);
    assert_eq!(found.iter().map(|found| found.name).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(found.iter().all(|found| found.similarity == 1.0));
    compare(&context, &mut matcher, &gallery, &[look], 10, "equals");
}

/// Galleries of several sizes take turns, as a file changes, and vectors that are odd are compared, too.
#[test]
fn a_matcher_goes_from_gallery_to_gallery() {
    let Some(context) = gpu::context() else { return };
    let mut matcher = DeviceMatcher::new(&context).unwrap();
    let mut random = Random(13);
    let all: Vec<_> = [(64, 3000, 50), (8, 10, 10), (300, 500, 500)]
        .into_iter()
        .map(|shape| made(&mut random, Likenesses::Random, shape, 30))
        .collect();
    let _on_gpu: Vec<_> = all.iter().map(|(gallery, _)| gallery.upload(&context).unwrap()).collect();
    for round in 0..3 {
        for (gallery, looks) in &all {
            compare(&context, &mut matcher, gallery, looks, 2 + round, "in turns");
        }
    }
    let (gallery, looks) = &all[0];
    let long: Vec<f32> = looks[0].iter().map(|number| number * 3.0).collect();
    let odd: Vec<Vec<f32>> = vec![looks[0].clone(), long, vec![1.0; 5], looks[1].clone(), Vec::new()];
    compare(&context, &mut matcher, gallery, &odd, 3, "of other lengths");
    assert!(matcher.find(gallery, &[], 3).unwrap().is_empty());
    assert!(Gallery::default().upload(&context).unwrap().is_none());
    // One that is not there is compared on the host.
    let elsewhere = made(&mut random, Likenesses::Random, (64, 20, 20), 1);
    assert!(elsewhere.0.on_gpu(&context).is_none());
    let found = matcher.find(&elsewhere.0, &[&elsewhere.1[0]], 3).unwrap();
    assert_eq!(bits(&found), bits(&elsewhere.0.find(&[&elsewhere.1[0]], 3)));
}
