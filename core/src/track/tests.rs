// SPDX-License-Identifier: MPL-2.0
use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::test::random::Random;

#[path = "../../tests/common/allocations.rs"]
mod allocations;
mod appearance;
mod boosttrack;
mod lost;

const FRAME: u64 = 33_333_333;

/// A frame of `tests/gold/tracks`: the detections, and the ids that the papers' programs gave; 0 is none.
#[derive(Default)]
struct GoldFrame {
    found: Vec<TrackInput<'static>>,
    bytetrack: Vec<u64>,
    ocsort: Vec<u64>,
}

fn gold(scene: &str) -> Vec<GoldFrame> {
    let path = format!("{}/../tests/gold/tracks/{scene}.txt", env!("CARGO_MANIFEST_DIR"));
    let mut frames: Vec<GoldFrame> = Vec::new();
    for line in fs::read_to_string(path).unwrap().lines().filter(|line| !line.starts_with('#')) {
        let values: Vec<f32> = line.split(' ').map(|value| value.parse().unwrap()).collect();
        frames.resize_with(values[0] as usize + 1, GoldFrame::default);
        let frame = frames.last_mut().unwrap();
        if let [_, x1, y1, x2, y2, score, bytetrack, ocsort] = values[..] {
            frame.found.push(TrackInput { bbox: BBox::new(x1, y1, x2, y2), score, class: 0, vector: None });
            frame.bytetrack.push(bytetrack as u64);
            frame.ocsort.push(ocsort as u64);
        }
    }
    frames
}

const SCENES: [&str; 4] = ["5", "20", "60", "300"];

/// The parameters of the papers' programs. They count frames; a track may come back up to one frame after the limit.
fn of_paper() -> TrackOptions {
    TrackOptions { lost_after: 31 * FRAME + FRAME / 2, reassociate: false, ..TrackOptions::default() }
}

/// The ids of one are those of the other in each frame, except for a renaming.
fn assert_same(scene: &str, wanted: impl Iterator<Item = Vec<u64>>, have: impl Iterator<Item = Vec<u64>>) {
    let (mut forward, mut back) = (BTreeMap::new(), BTreeMap::new());
    for (frame, (wanted, have)) in wanted.zip(have).enumerate() {
        for (number, (&wanted, &have)) in wanted.iter().zip(&have).enumerate() {
            let place = format!("scene {scene}, frame {frame}, detection {number}");
            assert_eq!(wanted == 0, have == 0, "{place}: {wanted} {have}");
            assert_eq!(*forward.entry(wanted).or_insert(have), have, "{place}: {wanted} was another one");
            assert_eq!(*back.entry(have).or_insert(wanted), wanted, "{place}: {have} was another one");
        }
    }
    assert!(forward.len() > 5);
}

fn ids(objects: &[Option<TrackedObject>]) -> Vec<u64> {
    objects.iter().map(|object| object.map_or(0, |object| object.id)).collect()
}

fn run(tracker: &mut Tracker, options: &TrackOptions, frames: &[GoldFrame]) -> Vec<Vec<u64>> {
    let times = (0..).map(|frame| frame * FRAME);
    frames.iter().zip(times).map(|(frame, now)| ids(tracker.update(options, &frame.found, now, FRAME))).collect()
}

#[test]
fn bytetrack_gives_the_ids_of_its_authors_program() {
    for scene in SCENES {
        let frames = gold(scene);
        let have = run(&mut Tracker::new(TrackerKind::ByteTrack), &of_paper(), &frames);
        assert_same(scene, frames.iter().map(|frame| frame.bytetrack.clone()), have.into_iter());
    }
}

/// Detections without an id in one of them, and those whose ids differ, as fractions of all.
fn difference(wanted: &[Vec<u64>], have: &[Vec<u64>]) -> f64 {
    let mut pairs: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let (mut all, mut wrong) = (0, 0);
    for (&wanted, &have) in wanted.iter().flatten().zip(have.iter().flatten()) {
        match (wanted, have) {
            (0, 0) => continue,
            (0, _) | (_, 0) => wrong += 1,
            pair => *pairs.entry(pair).or_default() += 1,
        }
        all += 1;
    }
    // Each id is paired with the id that it coincides with most often.
    let mut best: BTreeMap<u64, usize> = BTreeMap::new();
    for (&(wanted, _), &count) in &pairs {
        let most = best.entry(wanted).or_default();
        *most = count.max(*most);
    }
    wrong += pairs.values().sum::<usize>() - best.values().sum::<usize>();
    wrong as f64 / all as f64
}

#[test]
fn ocsort_gives_nearly_the_ids_of_its_authors_program() {
    let options = TrackOptions { track_thresh: 0.6, ..of_paper() };
    for scene in SCENES {
        let frames = gold(scene);
        let have = run(&mut Tracker::new(TrackerKind::OcSort), &options, &frames);
        let wanted: Vec<Vec<u64>> = frames.iter().map(|frame| frame.ocsort.clone()).collect();
        let difference = difference(&wanted, &have);
        assert!(difference < 0.02, "scene {scene}: {difference}");
    }
}

#[test]
fn nothing_is_allocated_once_the_busiest_frame_has_passed() {
    let frames = gold("60");
    // Lost objects are looked for in other ways where frames are skipped.
    for (kind, has_skipped) in TrackerKind::ALL.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let (mut tracker, options) = (Tracker::new(kind), TrackOptions::default());
        let mut now = 0;
        let mut round = || {
            let before = allocations::so_far();
            for frame in &frames {
                now += FRAME;
                tracker.update(&options, &frame.found, now, FRAME);
                if has_skipped {
                    now += FRAME;
                    tracker.predict(&options, now, FRAME);
                }
            }
            allocations::so_far() - before
        };
        assert!(round() > 0);
        round();
        round();
        assert_eq!(round(), 0, "{kind:?}, with skipped frames: {has_skipped}");
    }
}

// ------------------------------------------------------------------------------------------- small scenes

/// A detection of 40x80 around a point.
fn at(x: f32, y: f32) -> TrackInput<'static> {
    TrackInput { bbox: BBox::from_center(x, y, 40.0, 80.0), score: 0.9, class: 0, vector: None }
}

/// In how many frames in a row an object is seen without an id: a new one after its first frame, and one that comes back.
fn frames_without_id(kind: TrackerKind) -> [u64; 2] {
    match kind {
        TrackerKind::OcSort | TrackerKind::DeepOcSort => [2, 2],
        TrackerKind::BoostTrack => [2, 0],
        _ => [0, 0],
    }
}

/// Pushes frames one after another.
struct Clip {
    tracker: Tracker,
    options: TrackOptions,
    now: u64,
}

impl Clip {
    fn new(kind: TrackerKind) -> Self {
        Clip { tracker: Tracker::new(kind), options: TrackOptions::default(), now: 0 }
    }

    fn push(&mut self, found: &[TrackInput]) -> Vec<u64> {
        self.now += FRAME;
        ids(self.tracker.update(&self.options, found, self.now, FRAME))
    }
}

#[test]
fn objects_that_cross_keep_their_ids() {
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        for frame in 0..200 {
            let x = 4.0 * frame as f32;
            // Two pairs walk through each other. Their order in the list alternates.
            let mut found = [at(x, 300.0), at(800.0 - x, 310.0), at(x, 700.0), at(800.0 - x, 740.0)];
            let mut wanted = [1, 2, 3, 4];
            if frame % 2 == 1 {
                found.reverse();
                wanted.reverse();
            }
            assert_eq!(clip.push(&found), wanted, "{kind:?}, frame {frame}");
        }
    }
}

#[test]
fn an_object_that_comes_back_in_time_keeps_its_id() {
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        let place = |frame: u64| at(100.0 + frame as f32, 300.0);
        let [of_new, of_known] = frames_without_id(kind);
        (0..40).for_each(|frame| assert_eq!(clip.push(&[place(frame)]), [1]));
        (40..55).for_each(|_| assert!(clip.push(&[]).is_empty()));
        for frame in 55..60 {
            let wanted = if frame < 55 + of_known { 0 } else { 1 };
            assert_eq!(clip.push(&[place(frame)]), [wanted], "{kind:?}, {frame}");
        }
        (60..100).for_each(|_| drop(clip.push(&[])));
        // Too late; and a new object has no id in its first frame.
        for frame in 100..105 {
            let wanted = if frame < 101 + of_new { 0 } else { 2 };
            assert_eq!(clip.push(&[place(frame)]), [wanted], "{kind:?}, {frame}");
        }
    }
}

#[test]
fn parameters_of_ocsort_count() {
    let numbers = |change: &dyn Fn(&mut TrackOptions), frames: &[&[TrackInput]]| {
        let mut clip = Clip::new(TrackerKind::OcSort);
        change(&mut clip.options);
        frames.iter().map(|found| clip.push(found)).last().unwrap()
    };
    let here = at(100.0, 300.0);
    let low = TrackInput { score: 0.3, ..here };
    assert_eq!(numbers(&|_| (), &[&[here], &[here], &[here], &[here], &[low]]), [0]);
    assert_eq!(numbers(&|options| options.use_byte = true, &[&[here], &[here], &[here], &[here], &[low]]), [1]);
    let late: &[&[TrackInput]] = &[&[], &[], &[], &[here], &[here], &[here]];
    assert_eq!(numbers(&|_| (), late), [0]);
    assert_eq!(numbers(&|options| options.min_hits = 2, late), [1]);
    let far = at(115.0, 300.0);
    assert_eq!(numbers(&|_| (), &[&[here], &[far]]), [1]);
    assert_eq!(numbers(&|options| options.iou_thresh = 0.6, &[&[here], &[far]]), [2]);
    // Of two boxes that overlap about as much, the one in its direction.
    let fork_after = |walk: &[(f32, f32)], fork: [TrackInput; 2], change: &dyn Fn(&mut TrackOptions)| {
        let walk: Vec<TrackInput> = walk.iter().map(|&(x, y)| at(x, y)).collect();
        let mut frames: Vec<&[TrackInput]> = walk.iter().map(std::slice::from_ref).collect();
        frames.push(&fork);
        numbers(change, &frames)
    };
    let straight = [0.0, 6.0, 12.0, 18.0, 24.0, 30.0].map(|x| (100.0 + x, 300.0));
    let fork = [at(136.0, 310.0), at(130.5, 300.0)];
    assert_eq!(fork_after(&straight, fork, &|options| options.inertia = 0.0), [1, 0]);
    assert_eq!(fork_after(&straight, fork, &|options| options.inertia = 1.0), [0, 1]);
    // Of an object that has just turned, the direction depends on how far one looks back.
    let turn = [(100.0, 300.0), (100.0, 308.0), (100.0, 316.0), (100.0, 324.0), (108.0, 324.0)];
    let forks: Vec<[TrackInput; 2]> = (0..12).map(|y| [at(114.0, 324.0), at(110.0, 324.0 + y as f32)]).collect();
    let looking_back = |delta_t: u32| -> Vec<Vec<u64>> {
        let change = |options: &mut TrackOptions| (options.delta_t, options.inertia) = (delta_t, 1.0);
        forks.iter().map(|&fork| fork_after(&turn, fork, &change)).collect()
    };
    assert_ne!(looking_back(1), looking_back(3));
}

#[test]
fn low_scores_keep_tracks_and_begin_none() {
    let mut clip = Clip::new(TrackerKind::ByteTrack);
    clip.options.reassociate = false; // a detection in the same place would be near enough
    let low = |x: f32| TrackInput { score: 0.2, ..at(x, 300.0) };
    assert_eq!(clip.push(&[at(100.0, 300.0), low(600.0)]), [1, 0]);
    for frame in 1..20 {
        let x = frame as f32;
        assert_eq!(clip.push(&[low(600.0), low(100.0 + x)]), [0, 1]);
    }
    clip.options.low_thresh = 0.3;
    assert_eq!(clip.push(&[low(120.0)]), [0]);
    clip.options.track_thresh = 0.15;
    assert_eq!(clip.push(&[low(120.0)]), [0], "fused with the score, it costs more than match_thresh");
    clip.options.fuse_score = false;
    assert_eq!(clip.push(&[low(120.0)]), [1]);
    clip.options.det_thresh = 0.15;
    assert_eq!(clip.push(&[low(120.0), low(600.0)]), [1, 0]);
    assert_eq!(clip.push(&[low(120.0), low(600.0)]), [1, 2]);
    clip.options.match_thresh = 0.1;
    assert_eq!(clip.push(&[low(125.0), low(600.0)]), [0, 2]);
}

#[test]
fn classes_are_kept_apart_if_wanted() {
    let mut clip = Clip::new(TrackerKind::ByteTrack);
    let other = TrackInput { class: 7, ..at(100.0, 300.0) };
    assert_eq!(clip.push(&[at(100.0, 300.0)]), [1]);
    assert_eq!(clip.push(&[other]), [0]);
    assert_eq!(clip.push(&[other]), [2]);
    let mut clip = Clip::new(TrackerKind::ByteTrack);
    clip.options.per_class = false;
    assert_eq!([clip.push(&[at(100.0, 300.0)]), clip.push(&[other])], [[1], [1]]);
}

#[test]
fn a_reset_ends_all_tracks_and_gives_no_id_twice() {
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        assert_eq!(clip.push(&[at(100.0, 300.0), at(500.0, 300.0)]), [1, 2]);
        clip.tracker.reset();
        clip.now = 0;
        assert_eq!(clip.push(&[at(100.0, 300.0)]), [3], "what is there at the start is confirmed");
    }
}

#[test]
fn time_counts_and_not_frames() {
    let mut clip = Clip::new(TrackerKind::ByteTrack);
    clip.options.lost_after = 10 * FRAME;
    let place = |now: u64| at(100.0 + 3.0 * (now / FRAME) as f32, 300.0);
    for _ in 0..30 {
        clip.push(&[place(clip.now + FRAME)]);
    }
    // Frames that the source has left out: the object has moved on meanwhile.
    clip.now += 9 * FRAME;
    assert_eq!(clip.push(&[place(clip.now + FRAME)]), [1]);
    clip.push(&[]);
    clip.now += 10 * FRAME;
    assert_eq!(clip.push(&[place(clip.now + FRAME)]), [0]);
    // Times that go back, stand still or are far away harm no tracker.
    for mut clip in TrackerKind::ALL.map(Clip::new) {
        for now in [0, 0, u64::MAX, 0, u64::MAX / 2] {
            for duration in [0, 1, FRAME, u64::MAX] {
                clip.tracker.update(&clip.options, &[at(100.0, 300.0)], now, duration);
                clip.tracker.predict(&clip.options, now, duration);
            }
        }
    }
}

#[test]
fn what_is_no_score_and_no_box_harms_nothing() {
    let here = at(100.0, 300.0);
    let scored = |score: f32| TrackInput { score, ..here };
    let sized = |width: f32, height: f32| TrackInput { bbox: BBox::from_center(100.0, 300.0, width, height), ..here };
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        for score in [0.9, f32::INFINITY, f32::MAX, f32::INFINITY, 0.9] {
            assert_eq!(clip.push(&[scored(score)]), [1], "{kind:?}: {score}");
        }
        for score in [f32::NAN, f32::NEG_INFINITY, -1.0] {
            assert_eq!(clip.push(&[scored(score)]), [0], "{kind:?}: {score}");
        }
        for [width, height] in [[0.0, 80.0], [40.0, 0.0], [-40.0, 80.0], [f32::NAN, 80.0], [40.0, f32::INFINITY]] {
            assert_eq!(clip.push(&[sized(width, height)]), [0], "{kind:?}: {width}x{height}");
        }
        assert!(clip.push(&[]).is_empty());
        let [_, of_known] = frames_without_id(kind);
        (0..of_known).for_each(|_| assert_eq!(clip.push(&[here]), [0], "{kind:?}"));
        assert_eq!(clip.push(&[here]), [1], "{kind:?}: it was lost");
    }
}

#[test]
fn boxes_between_detections_are_predicted() {
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        let place = |frame: u64| at(100.0 + 3.0 * frame as f32, 300.0 + frame as f32);
        for frame in 0..100u64 {
            clip.now += FRAME;
            let wanted = place(frame);
            let detected = [TrackInput { bbox: BBox::default(), ..wanted }, wanted];
            let objects = match frame % 5 {
                0 => clip.tracker.update(&clip.options, &detected, clip.now, FRAME),
                _ => clip.tracker.predict(&clip.options, clip.now, FRAME),
            };
            let [None, Some(object)] = objects else { panic!("{kind:?}, frame {frame}: {objects:?}") };
            assert_eq!((object.id, object.last_seen), (1, (frame / 5 * 5 + 1) * FRAME));
            if frame > 30 && kind != TrackerKind::Iou {
                let off = |a: f32, b: f32| (a - b).abs();
                let (have, wanted) = (object.bbox.center(), wanted.bbox.center());
                assert!(off(have.0, wanted.0) < 2.0 && off(have.1, wanted.1) < 2.0, "{frame}: {have:?} {wanted:?}");
            }
        }
        // No object is predicted forever.
        clip.now += FRAME;
        clip.tracker.update(&clip.options, &[], clip.now, FRAME);
        (0..40).for_each(|_| {
            clip.now += FRAME;
            assert!(clip.tracker.predict(&clip.options, clip.now, FRAME).is_empty());
        });
        assert_eq!(clip.push(&[place(140)]), [0]);
    }
}

/// The ids in each `interval`-th frame, of objects that are somewhere in each frame; the others are predicted.
fn ids_with_interval(
    kind: TrackerKind,
    interval: u64,
    frames: u64,
    place: impl Fn(u64) -> Vec<TrackInput<'static>>,
) -> Vec<Vec<u64>> {
    let mut clip = Clip::new(kind);
    let mut given = Vec::new();
    for frame in 0..frames {
        if frame % interval == 0 {
            given.push(clip.push(&place(frame)));
        } else {
            clip.now += FRAME;
            clip.tracker.predict(&clip.options, clip.now, FRAME);
        }
    }
    given
}

#[test]
fn objects_far_from_their_predicted_boxes_keep_their_ids_where_frames_were_skipped() {
    let small = |x: f32, y: f32| TrackInput { bbox: BBox::from_center(x, y, 20.0, 40.0), ..at(x, y) };
    for kind in [TrackerKind::ByteTrack, TrackerKind::BotSortIou] {
        // It is 70 pixels away in the next detection, and its velocity is not yet known.
        let fast = ids_with_interval(kind, 5, 30, |frame| vec![at(100.0 + 14.0 * frame as f32, 300.0)]);
        assert_eq!(fast, vec![[1]; 6], "{kind:?}");
        // It turns about between two detections.
        let turning = |frame: u64| vec![at(100.0 + 5.0 * (47 - frame.abs_diff(47)) as f32, 300.0)];
        assert_eq!(ids_with_interval(kind, 5, 80, turning), vec![[1]; 16], "{kind:?}");
        // It hides for a while, and turns meanwhile.
        let hiding = |frame: u64| if (45..60).contains(&frame) { vec![] } else { turning(frame) };
        let given = ids_with_interval(kind, 5, 80, hiding);
        assert_eq!(given.into_iter().flatten().collect::<Vec<_>>(), [1; 13], "{kind:?}");
        // Each is nearer to where the other one was. Their sizes tell them apart.
        let swapping = |frame: u64| {
            let (one, other) = if frame < 5 { (100.0, 130.0) } else { (130.0, 100.0) };
            vec![at(one, 300.0), small(other, 320.0)]
        };
        assert_eq!(ids_with_interval(kind, 5, 10, swapping), vec![[1, 2]; 2], "{kind:?}");
        // It is another object where it cannot have gone so far.
        let jumping = |frame: u64| vec![at(if frame < 50 { 100.0 } else { 700.0 }, 300.0)];
        assert_eq!(ids_with_interval(kind, 5, 60, jumping).last(), Some(&vec![2]), "{kind:?}");
    }
}

/// How a camera moves the boxes of a frame.
type Camera = fn(frame: u64, random: &mut Random) -> [f32; 2];

/// About normal, with this deviation.
fn scatter(random: &mut Random, deviation: f32) -> f32 {
    deviation * ((0..12).map(|_| random.unit()).sum::<f32>() - 6.0)
}

/// The frames of a crowd in Full HD: of each object its true box, and of what is detected the number of the object and
/// the detection. Objects turn slowly, and at the edges at once. Detections are dropped and scattered, and more so in a
/// hard scene.
type CrowdFrame = (Vec<BBox>, Vec<(usize, TrackInput<'static>)>);

fn crowd(count: usize, frames: u64, is_hard: bool, camera: Camera) -> Vec<CrowdFrame> {
    let mut random = Random(count as u64);
    let mut walkers: Vec<[f32; 5]> = (0..count)
        .map(|_| {
            let (x, y) = (random.between(100.0, 1820.0), random.between(100.0, 980.0));
            [x, y, random.between(40.0, 140.0), scatter(&mut random, 5.0), scatter(&mut random, 2.5)]
        })
        .collect();
    let [dropped, doubled] = if is_hard { [0.2, 0.1] } else { [0.04, 0.02] };
    let frame = |number| {
        let [dx, dy] = camera(number, &mut random);
        let (mut truth, mut found) = (Vec::new(), Vec::new());
        for (number, [x, y, height, across, down]) in walkers.iter_mut().enumerate() {
            *across += scatter(&mut random, 0.3);
            *down += scatter(&mut random, 0.15);
            (*x, *y) = (*x + *across, *y + *down);
            if !(0.0..1920.0).contains(x) {
                *across = (960.0 - *x).signum() * across.abs();
            }
            if !(0.0..1080.0).contains(y) {
                *down = (540.0 - *y).signum() * down.abs();
            }
            let [cx, cy] = [*x + dx, *y + dy];
            truth.push(BBox::from_center(cx, cy, 0.45 * *height, *height));
            let copies = match random.unit() {
                below if below < dropped => 0,
                below if below < dropped + doubled => 2,
                _ => 1,
            };
            for copy in 0..copies {
                let [sx, sy, sw, sh] = [0.45, 1.0, 0.63, 1.4].map(|side| scatter(&mut random, 0.015 * side * *height));
                let bbox = BBox::from_center(cx + sx, cy + sy, 0.45 * *height + sw, *height + sh);
                let score = if copy > 0 { 0.5 } else { random.between(0.55, 0.95) };
                found.push((number, TrackInput { bbox, score, class: 0, vector: None }));
            }
        }
        (truth, found)
    };
    (0..frames).map(frame).collect()
}

/// Of all true boxes, the part that overlaps a box with the id that its object has most often by half; each
/// `interval`-th frame is detected.
fn followed(kind: TrackerKind, interval: u64, frames: &[CrowdFrame]) -> f64 {
    let mut clip = Clip::new(kind);
    clip.options.reassociate = false; // skipped frames have that in any case
    let mut hits: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    let mut last: &[(usize, TrackInput)] = &[];
    for (number, (truth, found)) in (0..).zip(frames) {
        clip.now += FRAME;
        let objects = if number % interval == 0 {
            last = found;
            let inputs: Vec<TrackInput> = found.iter().map(|&(_, seen)| seen).collect();
            clip.tracker.update(&clip.options, &inputs, clip.now, FRAME)
        } else {
            clip.tracker.predict(&clip.options, clip.now, FRAME)
        };
        for (&(walker, _), object) in last.iter().zip(objects) {
            if let Some(object) = object.filter(|object| object.bbox.iou(&truth[walker]) >= 0.5) {
                *hits.entry((walker, object.id)).or_default() += 1;
            }
        }
    }
    let all: usize = frames.iter().map(|(truth, _)| truth.len()).sum();
    let mut best: BTreeMap<usize, usize> = BTreeMap::new();
    for ((walker, _), count) in hits {
        let most = best.entry(walker).or_default();
        *most = count.max(*most);
    }
    best.values().sum::<usize>() as f64 / all as f64
}

#[test]
fn crowds_are_followed_where_frames_are_skipped() {
    let still: Camera = |_, _| [0.0; 2];
    let pans: Camera = |frame, _| [6.0 * (frame.clamp(50, 90) - 50) as f32, 0.0];
    // Where the boxes of the next four frames are, no detection tells.
    let shakes: Camera = |_, random| [scatter(random, 6.0), scatter(random, 6.0)];
    for (what, frames, bar) in [
        ("5 objects", crowd(5, 300, false, still), 0.97),
        ("20 objects", crowd(20, 200, false, still), 0.97),
        ("60 objects", crowd(60, 120, false, still), 0.95),
        ("300 objects", crowd(300, 60, false, still), 0.92),
        ("a fifth dropped, a tenth doubled", crowd(30, 200, true, still), 0.97),
        ("the camera pans", crowd(31, 150, false, pans), 0.95),
        ("the camera shakes", crowd(32, 200, false, shakes), 0.88),
    ] {
        for kind in [TrackerKind::ByteTrack, TrackerKind::BotSortIou, TrackerKind::OcSort] {
            let [each, fifth] = [1, 5].map(|interval| followed(kind, interval, &frames));
            assert!(fifth >= bar * each, "{what}, {kind:?}: {fifth} of {each}");
        }
    }
}

#[test]
fn thousands_of_boxes_at_one_place_take_no_time_without_end() {
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        let found: Vec<TrackInput> =
            (0..2000).map(|number| at(300.0 + (number % 7) as f32, 300.0 + (number % 11) as f32)).collect();
        for _ in 0..4 {
            let mut given = clip.push(&found);
            given.retain(|&id| id != 0);
            assert!(given.len() >= assignment::MAX_PAIRS, "{kind:?}: {}", given.len());
        }
    }
}

proptest! {
    #[test]
    fn any_detections_are_taken(frames in proptest::collection::vec(proptest::collection::vec(
        (any::<[f32; 4]>(), any::<f32>(), 0..2u32, proptest::option::of(any::<[f32; 3]>())), 0..12), 1..12))
    {
        for kind in TrackerKind::ALL {
            let mut clip = Clip::new(kind);
            for frame in &frames {
                let found: Vec<TrackInput> = frame
                    .iter()
                    .map(|&([x1, y1, x2, y2], score, class, ref values)| {
                        let vector = values.as_ref().map(|values| ObjectVector { values, model: class });
                        TrackInput { bbox: BBox { x1, y1, x2, y2 }, score, class, vector }
                    })
                    .collect();
                let given = clip.push(&found);
                let mut numbers: Vec<u64> = given.iter().copied().filter(|&id| id != 0).collect();
                let count = numbers.len();
                numbers.sort_unstable();
                numbers.dedup();
                prop_assert_eq!(numbers.len(), count, "no number twice in a frame: {:?}", given);
            }
        }
    }
}

/// Of a program that gives no times.
#[test]
fn objects_that_are_seen_again_at_the_same_time_have_ids() {
    let options = TrackOptions::default();
    for kind in TrackerKind::ALL {
        let mut tracker = Tracker::new(kind);
        tracker.update(&options, &[], 0, 0);
        let mut last = Vec::new();
        for _ in 0..5 {
            last = ids(tracker.update(&options, &[at(100.0, 300.0)], 0, 0));
        }
        assert_eq!(last, [1], "{kind:?}");
    }
}
