// SPDX-License-Identifier: MPL-2.0
//! Microseconds and allocations of a frame in each tracker, on one core: crowds that walk through each other in Full HD.
//!
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev --bench track`
//!
//! With `run INTERVAL tracker=… [OPTION=VALUE…]`, the properties of trttrack, it follows what it reads instead, as tests/track/crowds.py asks:
//! lines of frame, left, top, right, bottom, score, and the numbers of a vector if there is one. Every INTERVAL-th frame is taken in. It writes
//! lines of frame, number, left, top, right and bottom.

#[path = "../../core/tests/common/allocations.rs"]
mod allocations;
#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/random.rs"]
mod random;

use std::hint::black_box;
use std::time::{Duration, Instant};

use gsttrt_core::image::geometry::BBox;
use gsttrt_core::track::{ObjectVector, TrackInput, TrackOptions, Tracker, TrackerKind, options};
use gsttrt_core::vector::normalise;
use random::Random;

const FRAME: u64 = 33_333_333;
const FRAMES: usize = 600;
/// After so many no frame is busier than one before.
const WARM: usize = 300;
/// Numbers of a vector.
const DIMS: usize = 512;

/// Detections of a frame, with the vectors that they have.
type FoundObjects = Vec<(TrackInput<'static>, Vec<f32>)>;

fn looking<'a>(found: &'a [(TrackInput<'static>, Vec<f32>)]) -> Vec<TrackInput<'a>> {
    let vector = |values: &'a Vec<f32>| Some(ObjectVector { values, model: 0 }).filter(|_| !values.is_empty());
    found.iter().map(|(seen, values)| TrackInput { vector: vector(values), ..*seen }).collect()
}

/// A vector about that one.
fn scattered(values: &[f32], random: &mut Random) -> Vec<f32> {
    let mut values: Vec<f32> = values.iter().map(|value| value + random.between(-0.02, 0.02)).collect();
    assert!(normalise(&mut values));
    values
}

/// What a detector finds of a crowd: each frame a few are missed, a few doubled, a few of low score.
fn crowd(count: usize, has_vectors: bool) -> Vec<FoundObjects> {
    let mut random = Random(11);
    let looks: Vec<Vec<f32>> = match has_vectors {
        true => (0..count).map(|_| scattered(&[0.0; DIMS], &mut random)).collect(),
        false => vec![Vec::new(); count],
    };
    let mut walkers: Vec<[f32; 5]> = (0..count)
        .map(|_| {
            let height = random.between(40.0, 120.0);
            let (x, y) = (random.between(0.0, 1920.0), random.between(0.0, 1080.0));
            [x, y, height, random.between(-4.0, 4.0), random.between(-2.0, 2.0)]
        })
        .collect();
    let frame = |_| {
        let mut found = Vec::new();
        for ([x, y, height, across, down], look) in walkers.iter_mut().zip(&looks) {
            (*x, *y) = ((*x + *across).rem_euclid(1920.0), (*y + *down).rem_euclid(1080.0));
            let copies = match random.between(0.0, 100.0) as u32 {
                0..4 => 0,
                4..6 => 2,
                _ => 1,
            };
            for copy in 0..copies {
                let score = if copy > 0 { 0.4 } else { random.between(0.3, 0.95) };
                let [dx, dy] = [(); 2].map(|()| random.between(-1.5, 1.5));
                let bbox = BBox::from_center(*x + dx, *y + dy, *height * 0.5, *height);
                let vector = if has_vectors { scattered(look, &mut random) } else { Vec::new() };
                found.push((TrackInput { bbox, score, class: 0, vector: None }, vector));
            }
        }
        found
    };
    (0..FRAMES).map(frame).collect()
}

/// Follows the detections that come in, and says where objects are.
fn follow(interval: u64, settings: &[String]) {
    let (kind, options) = options::parse(settings.iter().map(String::as_str)).expect("properties of trttrack");
    let options = TrackOptions { lost_after: 31 * FRAME + FRAME / 2, ..options };
    let mut frames: Vec<FoundObjects> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let values: Vec<f32> = line.split(' ').map(|value| value.parse().expect("a number")).collect();
        frames.resize_with(frames.len().max(values[0] as usize + 1), Vec::new);
        if let &[frame, x1, y1, x2, y2, score, ref vector @ ..] = &values[..] {
            let seen = TrackInput { bbox: BBox::new(x1, y1, x2, y2), score, class: 0, vector: None };
            let mut vector = vector.to_vec();
            assert!(vector.is_empty() || normalise(&mut vector), "{line}: it has no length");
            frames[frame as usize].push((seen, vector));
        }
    }
    let mut tracker = Tracker::new(kind);
    for (number, found) in (0..).zip(&frames) {
        let is_taken = number % interval == 0;
        let objects = match is_taken {
            true => tracker.update(&options, &looking(found), number * FRAME, FRAME),
            false => tracker.predict(&options, number * FRAME, FRAME),
        };
        for (place, object) in objects.iter().enumerate() {
            let Some(object) = object else { continue };
            // As the element leaves what was found where it was found.
            let BBox { x1, y1, x2, y2 } = if is_taken { found[place].0.bbox } else { object.bbox };
            println!("{number} {} {x1} {y1} {x2} {y2}", object.id);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [run, interval, settings @ ..] = &arguments[..]
        && run == "run"
    {
        return follow(interval.parse().expect("a number"), settings);
    }
    println!(
        "{:<14}{:>8}{:>8}{:>12}{:>12}{:>12}{:>14}",
        "tracker", "objects", "dims", "median µs", "p99 µs", "foresee µs", "allocations"
    );
    for (count, dims) in [(20, 0), (300, 0), (100, DIMS)] {
        let frames = crowd(count, dims > 0);
        let frames: Vec<Vec<TrackInput>> = frames.iter().map(|found| looking(found)).collect();
        let counts = |kind: &TrackerKind| dims == 0 || Tracker::new(*kind).uses_vectors();
        for kind in TrackerKind::ALL.into_iter().filter(counts) {
            let (mut tracker, options) = (Tracker::new(kind), TrackOptions::default());
            let (mut times, mut between) = (Vec::with_capacity(FRAMES), Vec::with_capacity(FRAMES));
            let mut allocations = 0;
            for (number, found) in frames.iter().enumerate() {
                let now = number as u64 * FRAME;
                let (before, begun) = (allocations::so_far(), Instant::now());
                black_box(tracker.update(&options, found, now, FRAME).len());
                times.push(begun.elapsed());
                let begun = Instant::now();
                black_box(tracker.predict(&options, now, 0).len());
                between.push(begun.elapsed());
                if number >= WARM {
                    allocations += allocations::so_far() - before;
                }
            }
            let sorted = |times: &mut Vec<Duration>| {
                times.drain(..WARM);
                times.sort();
                [times.len() / 2, times.len() * 99 / 100].map(|at| times[at].as_secs_f64() * 1e6)
            };
            let ([median, p99], [foresee, _]) = (sorted(&mut times), sorted(&mut between));
            println!(
                "{:<14}{count:>8}{dims:>8}{median:>12.1}{p99:>12.1}{foresee:>12.1}{allocations:>14}",
                format!("{kind:?}").to_lowercase()
            );
        }
    }
}
