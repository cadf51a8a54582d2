// SPDX-License-Identifier: MPL-2.0
//! Milliseconds in which the objects of a frame are compared with a gallery, on one core, and those in which its memory is read once.
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

fn main() {
    println!("{:>8} {:>5} {:>8} {:>10} {:>10}", "vectors", "dims", "objects", "find ms", "read ms");
    for (count, dims) in [(1_000, 512), (10_000, 512), (100_000, 128), (100_000, 512)] {
        let mut random = Random(5);
        let mut make = || {
            let mut vector: Vec<f32> = (0..dims).map(|_| random.unit() - 0.5).collect();
            assert!(normalise(&mut vector));
            vector
        };
        let gallery = Gallery::new((0..count).map(|at| GalleryEntry { name: at.to_string(), vector: make() }));
        let memory = vec![1u32; count * dims];
        let read = median(|| {
            black_box(black_box(&memory).iter().fold(0u32, |sum, &number| sum.wrapping_add(number)));
        });
        for objects in [1, 4, 20] {
            let queries: Vec<Vec<f32>> = (0..objects).map(|_| make()).collect();
            let queries: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            let find = median(|| {
                black_box(gallery.find(black_box(&queries), 2));
            });
            println!("{count:>8} {dims:>5} {objects:>8} {find:>10.3} {read:>10.3}");
        }
    }
}
