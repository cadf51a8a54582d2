// SPDX-License-Identifier: MPL-2.0
//! Microseconds and allocations of a frame in zones and across lines, on one core: crowds with ids that walk in Full HD.
//!
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev --bench analytics`

#[path = "../../core/tests/common/allocations.rs"]
mod allocations;
#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/random.rs"]
mod random;

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gsttrt_core::analytics::{Analytics, AnalyticsInput, AnalyticsOptions, parse};
use gsttrt_core::image::geometry::BBox;
use random::Random;

const FRAME: u64 = 33_333_333;
const FRAMES: usize = 3000;
/// After so many no frame is busier than one before.
const WARM: usize = 1500;
const SIZE: [f32; 2] = [1920.0, 1080.0];

/// So many zones of twelve corners, and as many lines.
fn config(zones: usize, tripwires: usize) -> String {
    let mut random = Random(3);
    let mut text = String::from("{\"zones\": [");
    for zone in 0..zones {
        let (x, y, radius) = (random.between(200.0, 1700.0), random.between(200.0, 900.0), random.between(80.0, 200.0));
        let corners = (0..12).map(|corner| {
            let (sin, cos) = (corner as f32 / 12.0 * std::f32::consts::TAU).sin_cos();
            format!("[{}, {}]", x + radius * cos, y + radius * sin)
        });
        let corners = corners.collect::<Vec<_>>().join(", ");
        let comma = if zone > 0 { "," } else { "" };
        write!(
            text,
            "{comma}{{\"id\": \"z{zone}\", \"points\": [{corners}], \"dwell-time\": 5, \"crowd-threshold\": 9}}"
        )
        .unwrap();
    }
    text.push_str("], \"tripwires\": [");
    for line in 0..tripwires {
        let [x, y, to_x, to_y] = [1920.0, 1080.0, 1920.0, 1080.0].map(|size| random.between(0.0, size));
        let comma = if line > 0 { "," } else { "" };
        write!(text, "{comma}{{\"id\": \"l{line}\", \"points\": [[{x}, {y}], [{to_x}, {to_y}]]}}").unwrap();
    }
    text + "]}"
}

/// Walkers that tremble, are missed in every twentieth frame, and get another id when they leave on one side and come back on the other.
struct Crowd {
    random: Random,
    walkers: Vec<([f32; 4], u64)>,
    last_id: u64,
}

impl Crowd {
    fn new(count: usize) -> Self {
        let mut random = Random(11);
        let walker = |id| {
            let place = [random.between(0.0, SIZE[0]), random.between(0.0, SIZE[1])];
            ([place[0], place[1], random.between(-4.0, 4.0), random.between(-2.0, 2.0)], id)
        };
        let walkers = (1..=count as u64).map(walker).collect();
        Crowd { random, walkers, last_id: count as u64 }
    }

    fn step(&mut self, seen: &mut Vec<AnalyticsInput<'static>>) {
        seen.clear();
        for ([x, y, across, down], id) in &mut self.walkers {
            (*x, *y) = (*x + *across, *y + *down);
            if !(0.0..SIZE[0]).contains(x) || !(0.0..SIZE[1]).contains(y) {
                (*x, *y) = (x.rem_euclid(SIZE[0]), y.rem_euclid(SIZE[1]));
                self.last_id += 1;
                *id = self.last_id;
            }
            if self.random.below(20) == 0 {
                continue;
            }
            let [dx, dy] = [(); 2].map(|()| self.random.between(-1.5, 1.5));
            let bbox = BBox::from_center(*x + dx, *y + dy, 40.0, 80.0);
            let (label, class) = ("person", Some(0));
            seen.push(AnalyticsInput { id: *id, bbox, label, class, confidence: Some(0.8), attributes: &[] });
        }
    }
}

fn main() {
    println!(
        "{:<8}{:>8}{:>12}{:>12}{:>12}{:>14}{:>10}",
        "objects", "zones", "lines", "median µs", "p99 µs", "allocations", "events"
    );
    for (count, zones, tripwires) in [(20, 2, 2), (300, 10, 10), (300, 20, 20)] {
        let mut analytics = Analytics::new(parse::parse(&config(zones, tripwires), 0).expect("a configuration"));
        analytics.set_size((1920, 1080));
        let (mut crowd, mut seen, options) =
            (Crowd::new(count), Vec::with_capacity(count), AnalyticsOptions::default());
        let mut times: Vec<Duration> = Vec::with_capacity(FRAMES);
        let (mut allocations, mut events) = (0, 0);
        for number in 0..FRAMES {
            crowd.step(&mut seen);
            let (before, begun) = (allocations::so_far(), Instant::now());
            let found = black_box(analytics.update(&options, seen.iter().copied(), number as u64 * FRAME).len());
            times.push(begun.elapsed());
            if number >= WARM {
                allocations += allocations::so_far() - before;
                events += found;
            }
        }
        times.drain(..WARM);
        times.sort();
        let [median, p99] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at].as_secs_f64() * 1e6);
        println!("{count:<8}{zones:>8}{tripwires:>12}{median:>12.1}{p99:>12.1}{allocations:>14}{events:>10}");
    }
}
