// SPDX-License-Identifier: MPL-2.0
//! trttrack ! trtanalytics on crowds whose crossings and dwell times are known: a tenth of the detections is missing,
//! and the edges of the others are off by 3 pixels (standard deviation). Walkers pass and hide each other.

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::analytics::geometry::{Area, CrossingDirection, Point, Segment};

use crate::common::boxes::Line;
use crate::common::random::Random;
use crate::common::scratch;

const WIDTH: u32 = 1280;
const HEIGHT: u32 = 720;
const FRAME: u64 = 33_333_333;
const CLIPS: u64 = 20;
const FRAMES: usize = 900;
const WALKERS: usize = 14;

const CONFIG: &str = r#"{
    "zones": [
        {"id": "hall", "points": [[300, 200], [700, 160], [760, 420], [520, 520], [280, 460]]},
        {"id": "desk", "type": "circle", "center": [960, 400], "radius": 140}
    ],
    "tripwires": [
        {"id": "gate", "points": [[640, 120], [640, 620]]},
        {"id": "steps", "points": [[250, 560], [900, 300]]}
    ]
}"#;

fn zones() -> [Area; 2] {
    let hall = vec![[300.0, 200.0], [700.0, 160.0], [760.0, 420.0], [520.0, 520.0], [280.0, 460.0]];
    [Area::polygon(hall), Area::Ellipse { center: [960.0, 400.0], radii: [140.0; 2] }]
}

const TRIPWIRES: [Segment; 2] =
    [Segment { from: [640.0, 120.0], to: [640.0, 620.0] }, Segment { from: [250.0, 560.0], to: [900.0, 300.0] }];

/// A figure that comes from an edge of the picture, goes to a few places, stands there, and leaves.
struct Walker {
    begin: usize,
    size: [f32; 2],
    /// The middle of the box's lower edge, in each frame from the first on.
    path: Vec<Point>,
}

/// What is to be counted.
#[derive(Debug, Default, PartialEq)]
struct Truth {
    /// Forward and backward, of each tripwire.
    crossings: [[u64; 2]; 2],
    /// Of each zone: the frame of leaving, and the frames inside.
    visits: [Vec<(usize, usize)>; 2],
}

fn walker(random: &mut Random) -> Walker {
    let (width, height) = (WIDTH as f32, HEIGHT as f32);
    let edge = |random: &mut Random| match random.below(3) {
        0 => [-30.0, random.between(150.0, height - 20.0)],
        1 => [width + 30.0, random.between(150.0, height - 20.0)],
        _ => [random.between(50.0, width - 50.0), height + 120.0],
    };
    let mut places = vec![edge(random)];
    for _ in 0..random.below(3) {
        places.push([random.between(200.0, width - 150.0), random.between(180.0, height - 60.0)]);
    }
    places.push(edge(random));
    let speed = random.between(3.0, 7.0);
    let mut path = vec![places[0]];
    for pair in places.windows(2) {
        let way = [pair[1][0] - pair[0][0], pair[1][1] - pair[0][1]];
        let length = way[0].hypot(way[1]);
        let mut gone = 0.0f32;
        // It starts and stops within half a second.
        while gone < length {
            let part = (gone / speed + 1.0).min((length - gone) / speed + 1.0) / 8.0;
            gone = (gone + speed * part.min(1.0)).min(length);
            path.push([0, 1].map(|axis| pair[0][axis] + way[axis] * gone / length));
        }
        let here = *path.last().unwrap();
        path.extend(vec![here; if random.below(2) == 0 { 0 } else { 20 + random.below(60) }]);
    }
    let tall = random.between(80.0, 120.0);
    Walker { begin: random.below(FRAMES - 250), size: [tall * 0.4, tall], path }
}

impl Walker {
    fn place(&self, frame: usize) -> Option<Point> {
        self.path.get(frame.checked_sub(self.begin)?).copied()
    }

    fn bbox(&self, frame: usize) -> Option<[f32; 4]> {
        let [x, y] = self.place(frame)?;
        let [width, height] = self.size;
        Some([x - width / 2.0, y - height, x + width / 2.0, y])
    }

    /// What it does on the path that is moved so far; `None` where that depends on moments: a short visit, or one soon
    /// after another.
    fn truth(&self, by: Point) -> Option<Truth> {
        const SHORTEST: usize = 15;
        const BETWEEN: usize = 25;
        let mut truth = Truth::default();
        let end = self.path.len().min(FRAMES - self.begin);
        let path: Vec<Point> = self.path[..end].iter().map(|place| [place[0] + by[0], place[1] + by[1]]).collect();
        let mut last_crossing = [None; 2];
        for (at, pair) in path.windows(2).enumerate() {
            for ((tripwire, counts), last) in TRIPWIRES.iter().zip(&mut truth.crossings).zip(&mut last_crossing) {
                let Some(direction) = tripwire.crossing(pair[0], pair[1]) else { continue };
                counts[usize::from(direction == CrossingDirection::Backward)] += 1;
                if last.replace(at).is_some_and(|last| at - last < BETWEEN) || at + SHORTEST > path.len() {
                    return None;
                }
            }
        }
        for (zone, visits) in zones().iter().zip(&mut truth.visits) {
            let mut since = None;
            let mut left: Option<usize> = None;
            for (at, &place) in path.iter().enumerate() {
                match (since, zone.contains(place)) {
                    (None, true) if left.is_some_and(|left| at - left < BETWEEN) => return None,
                    (None, true) => since = Some(at),
                    (Some(begin), false) if at - begin < SHORTEST => return None,
                    (Some(begin), false) => {
                        visits.push((self.begin + at, at - begin));
                        (since, left) = (None, Some(at));
                    }
                    _ => {}
                }
            }
            // Those who are inside at the end have not left.
            if since.is_some() || left.is_some_and(|left| left + BETWEEN > path.len()) {
                return None;
            }
        }
        Some(truth)
    }

    /// Whether nothing that is counted depends on a few pixels: 10 of them change no count, and no dwell time by more
    /// than a third of a second.
    fn is_clear(&self) -> bool {
        const APART: f32 = 10.0;
        const FRAMES_APART: usize = 10;
        let Some(truth) = self.truth([0.0; 2]) else { return false };
        let is_same = |moved: &Truth| {
            let visits = moved.visits.iter().zip(&truth.visits);
            moved.crossings == truth.crossings
                && visits.clone().all(|(moved, own)| moved.len() == own.len())
                && visits.flat_map(|(moved, own)| moved.iter().zip(own)).all(|(a, b)| a.1.abs_diff(b.1) <= FRAMES_APART)
        };
        let moved = |turn: u8| {
            let (sin, cos) = (f32::from(turn) / 8.0 * std::f32::consts::TAU).sin_cos();
            self.truth([cos * APART, sin * APART])
        };
        (0..8).all(|turn| moved(turn).is_some_and(|moved| is_same(&moved)))
    }
}

/// A normal deviate.
fn normal(random: &mut Random) -> f32 {
    (-2.0 * random.unit().max(1e-7).ln()).sqrt() * (std::f32::consts::TAU * random.unit()).cos()
}

/// What a detector sees of them.
fn frame(walkers: &[Walker], number: usize, random: &mut Random) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(number as u64 * FRAME));
    for edges in walkers.iter().filter_map(|walker| walker.bbox(number)) {
        if random.below(10) == 0 {
            continue;
        }
        let sizes = [WIDTH, HEIGHT, WIDTH, HEIGHT].map(|size| size as f32);
        let mut seen = edges;
        for (edge, size) in seen.iter_mut().zip(sizes) {
            *edge = (*edge + 3.0 * normal(random)).clamp(0.0, size);
        }
        let [x1, y1, x2, y2] = seen;
        if x2 - x1 < 4.0 || y2 - y1 < 4.0 {
            continue;
        }
        let rect = (x1 as u32, y1 as u32, (x2.ceil() - x1.floor()) as u32, (y2.ceil() - y1.floor()) as u32);
        let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "person", rect);
        let share = |at: usize| f64::from(seen[at] / sizes[at]);
        let detection = gst::Structure::builder("detection")
            .field("label_id", 0i32)
            .field("confidence", f64::from(random.between(0.65, 0.95)))
            .field("x_min", share(0))
            .field("y_min", share(1))
            .field("x_max", share(2))
            .field("y_max", share(3));
        region.add_param(detection.build());
    }
    buffer
}

#[test]
fn crowds_are_counted_as_they_are() {
    let config = scratch("analytics-clips").join("zones.json");
    std::fs::write(&config, CONFIG).unwrap();
    let (mut crossings, mut visits, mut worst) = (0, 0, 0.0f64);
    for clip in 0..CLIPS {
        let mut random = Random(clip);
        let clear = std::iter::repeat_with(|| walker(&mut random)).filter(Walker::is_clear);
        let walkers: Vec<Walker> = clear.take(WALKERS).collect();
        let mut truth = Truth::default();
        for walker in &walkers {
            let own = walker.truth([0.0; 2]).unwrap();
            let counts = truth.crossings.as_flattened_mut().iter_mut().zip(own.crossings.as_flattened());
            counts.for_each(|(count, own)| *count += own);
            truth.visits.iter_mut().zip(own.visits).for_each(|(visits, own)| visits.extend(own));
        }

        let mut line = Line::parse(&format!("trttrack ! trtanalytics config-file={}", config.display()));
        line.caps("NV12", WIDTH, HEIGHT);
        line.said(); // of the first size
        for number in 0..FRAMES + 60 {
            line.push(frame(if number < FRAMES { &walkers } else { &[] }, number, &mut random));
        }
        let counts = line.element("trtanalytics").property::<gst::Structure>("counts");
        let list = |name: &str| -> Vec<gst::Structure> {
            counts.get::<gst::Array>(name).unwrap().iter().map(|value| value.get().unwrap()).collect()
        };
        let counted: Vec<[u64; 2]> =
            list("tripwires").iter().map(|one| ["forward", "backward"].map(|field| one.get(field).unwrap())).collect();
        assert_eq!(counted, truth.crossings, "clip {clip}");
        crossings += truth.crossings.as_flattened().iter().sum::<u64>();

        let events = line.messages();
        for (name, wanted) in ["hall", "desk"].into_iter().zip(&mut truth.visits) {
            let left = events.iter().filter(|event| event.get("event") == Ok("left") && event.get("name") == Ok(name));
            let mut found: Vec<(u64, u64)> = left
                .map(|event| {
                    let time = event.get::<Option<gst::ClockTime>>("event-time").unwrap().unwrap();
                    (time.nseconds(), event.get("dwell").unwrap())
                })
                .collect();
            assert_eq!(found.len(), wanted.len(), "clip {clip}, {name}: {found:?} {wanted:?}");
            found.sort();
            wanted.sort();
            // Of those who leave at about the same time, each has its own dwell time.
            for &(frame, frames) in &*wanted {
                let (at, dwell) = ((frame as u64 * FRAME) as f64 / 1e9, (frames as u64 * FRAME) as f64 / 1e9);
                let near = found.iter().enumerate().filter(|(_, (time, _))| (*time as f64 / 1e9 - at).abs() < 0.3);
                let off = |dwelled: u64| (dwelled as f64 / 1e9 - dwell).abs();
                let best = near.min_by(|a, b| off(a.1.1).total_cmp(&off(b.1.1)));
                let (number, &(_, dwelled)) =
                    best.unwrap_or_else(|| panic!("clip {clip}: nobody leaves {name} at {at}: {found:?}"));
                assert!(off(dwelled) <= 0.2, "clip {clip}, {name}: {} s instead of {dwell} s", dwelled as f64 / 1e9);
                worst = worst.max(off(dwelled));
                found.remove(number);
                visits += 1;
            }
        }
        assert_eq!(line.said(), [""; 0]);
    }
    println!("{CLIPS} clips: {crossings} crossings, {visits} visits, dwell times at most {worst:.3} s off");
    assert!(crossings > 200 && visits > 150, "{crossings} {visits}");
}
