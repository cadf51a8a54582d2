// SPDX-License-Identifier: MPL-2.0
//! Objects that are told apart by what they look like.

use super::*;
use crate::vector::normalise;

/// Each tracker that takes vectors, and the same by boxes alone, with their `lambda_emb`.
const KINDS: [[(TrackerKind, f32); 2]; 3] = [
    [(TrackerKind::BotSort, 1.5), (TrackerKind::BotSortIou, 1.5)],
    [(TrackerKind::DeepOcSort, 1.5), (TrackerKind::OcSort, 1.5)],
    [(TrackerKind::BoostTrack, 1.5), (TrackerKind::BoostTrack, 0.0)],
];

fn clip((kind, lambda_emb): (TrackerKind, f32)) -> Clip {
    let mut clip = Clip::new(kind);
    (clip.options.lambda_emb, clip.options.reassociate) = (lambda_emb, false);
    clip
}

const RED: [f32; 2] = [1.0, 0.0];
const BLUE: [f32; 2] = [0.0, 1.0];

fn looking<'a>(seen: TrackInput<'a>, values: &'a [f32]) -> TrackInput<'a> {
    TrackInput { vector: Some(ObjectVector { values, model: 1 }), ..seen }
}

#[test]
fn without_vectors_boxes_alone_count() {
    for [with, without] in KINDS {
        for scene in SCENES {
            let frames = gold(scene);
            let [have, wanted] = [with, without].map(|(kind, lambda_emb)| {
                run(&mut Tracker::new(kind), &TrackOptions { lambda_emb, ..of_paper() }, &frames)
            });
            assert_eq!(have, wanted, "{with:?}, scene {scene}");
        }
    }
}

/// The ids of two objects that walk towards each other, turn where they meet, and walk back.
fn ids_after_turning(kind: (TrackerKind, f32), change: &dyn Fn(&mut TrackOptions)) -> Vec<u64> {
    let mut clip = clip(kind);
    change(&mut clip.options);
    let mut given = Vec::new();
    for frame in -50i16..=40 {
        let apart = 4.0 * f32::from(frame.abs());
        given = clip.push(&[looking(at(300.0 - apart, 300.0), &RED), looking(at(300.0 + apart, 304.0), &BLUE)]);
    }
    given
}

#[test]
fn objects_that_turn_where_they_meet_keep_their_ids() {
    for [with, without] in KINDS {
        assert_eq!(ids_after_turning(with, &|_| ()), [1, 2], "{with:?}");
        assert_eq!(ids_after_turning(without, &|_| ()), [2, 1], "{without:?} believes that they walk on");
    }
}

#[test]
fn parameters_of_appearance_count() {
    let [[bot, _], [deep, _], [boost, _]] = KINDS;
    let bot = |change: &dyn Fn(&mut TrackOptions)| ids_after_turning(bot, change);
    assert_eq!(bot(&|options| options.proximity_thresh = 0.2), [2, 1], "predicted and true boxes overlap by less");
    assert_eq!(bot(&|options| options.appearance_thresh = 0.0), [2, 1]);
    let weighed = |w_association_emb: f32, aw_param: f32| {
        let change = |options: &mut TrackOptions| {
            (options.w_association_emb, options.aw_param) = (w_association_emb, aw_param);
        };
        ids_after_turning(deep, &change)
    };
    assert_eq!(weighed(0.0, 0.0), [2, 1]);
    assert_eq!(weighed(1.0, 0.0), [1, 2]);
    assert_eq!(weighed(0.1, 0.0), [2, 1]);
    assert_eq!(weighed(0.1, 1.0), [1, 2]);
    for (lambda_emb, wanted) in [(0.1, [2, 1]), (0.6, [1, 2]), (10.0, [1, 2])] {
        let change = |options: &mut TrackOptions| options.lambda_emb = lambda_emb;
        assert_eq!(ids_after_turning(boost, &change), wanted, "{lambda_emb}");
    }
}

/// The ids of an object that stands still, is hidden for some frames, and then is there at another place. It looks like the
/// first vector before, and like the second one after that.
fn ids_of_return(
    kind: (TrackerKind, f32),
    change: &dyn Fn(&mut TrackOptions),
    hidden: u64,
    x: f32,
    looks: [&[f32]; 2],
) -> Vec<u64> {
    let mut clip = clip(kind);
    change(&mut clip.options);
    for _ in 0..40 {
        assert_eq!(clip.push(&[looking(at(300.0, 300.0), looks[0])]), [1]);
    }
    (0..hidden).for_each(|_| assert!(clip.push(&[]).is_empty()));
    (0..4).flat_map(|_| clip.push(&[looking(at(x, 300.0), looks[1])])).collect()
}

#[test]
fn objects_that_were_lost_are_found_where_boxes_do_not_overlap() {
    for [with, without] in KINDS {
        let [of_new, of_known] = frames_without_id(with.0);
        let found = if of_known > 0 { [0, 0, 1, 1] } else { [1; 4] };
        let new = if of_new > 0 { [0, 0, 0, 2] } else { [0, 2, 2, 2] };
        let same: [&[f32]; 2] = [&RED, &RED];
        assert_eq!(ids_of_return(with, &|_| (), 20, 360.0, same), found, "{with:?}");
        assert_eq!(ids_of_return(without, &|_| (), 20, 360.0, same), new, "{without:?}");
        assert_eq!(ids_of_return(with, &|_| (), 20, 360.0, [&RED, &BLUE]), new, "{with:?}: it looks otherwise");
        assert_eq!(ids_of_return(with, &|_| (), 20, 900.0, same), new, "{with:?}: so far it cannot have gone");
        assert_eq!(ids_of_return(with, &|_| (), 40, 360.0, same), new, "{with:?}: it comes too late");
        // Their cosine is 0.7.
        let similar: [&[f32]; 2] = [&RED, &[0.7, 0.714_142_8]];
        assert_eq!(ids_of_return(with, &|_| (), 20, 360.0, similar), new, "{with:?}");
        let tolerant = |options: &mut TrackOptions| options.appearance_thresh = 0.4;
        assert_eq!(ids_of_return(with, &tolerant, 20, 360.0, similar), found, "{with:?}");
        // By distance and size they are found too, but for those that look otherwise.
        let reassociate = |options: &mut TrackOptions| options.reassociate = true;
        assert_eq!(ids_of_return(without, &reassociate, 20, 360.0, [&RED, &BLUE]), found, "{without:?}");
        assert_eq!(ids_of_return(with, &reassociate, 20, 360.0, [&RED, &BLUE]), new, "{with:?}");
    }
}

#[test]
fn vectors_come_and_go_and_change_their_model() {
    for [kind, _] in KINDS {
        let mut clip = clip(kind);
        let place = at(300.0, 300.0);
        for frame in 0..30 {
            let seen = if frame % 3 == 1 { looking(place, &RED) } else { place };
            assert_eq!(clip.push(&[seen]), [1], "{kind:?}");
        }
        assert!(!clip.tracker.has_mixed_vectors());
        for values in [&RED[..], &[1.0, 0.0, 0.0]] {
            let other = TrackInput { vector: Some(ObjectVector { values, model: 2 }), ..place };
            assert_eq!(clip.push(&[other]), [1], "{kind:?}: {values:?}");
            assert!(clip.tracker.has_mixed_vectors());
        }
    }
    for kind in TrackerKind::ALL {
        let uses_vectors = KINDS.iter().any(|[with, _]| with.0 == kind);
        let tracker = Tracker::new(kind);
        assert_eq!(tracker.uses_vectors(), uses_vectors, "{kind:?}");
        // BoostTrack is meant to be without them too.
        assert_eq!(tracker.needs_vectors(), uses_vectors && kind != TrackerKind::BoostTrack, "{kind:?}");
    }
}

// ------------------------------------------------------------------------------------------- crowds

/// A random vector of the length 1.
fn random_vector(random: &mut Random, dims: usize) -> Vec<f32> {
    let mut values: Vec<f32> = (0..dims).map(|_| scatter(random, 1.0)).collect();
    assert!(normalise(&mut values));
    values
}

/// A vector of which that share is of the first, and the rest of the second one.
fn mixture(first: &[f32], second: &[f32], share: f32) -> Vec<f32> {
    let [of_first, of_second] = [share, 1.0 - share].map(f32::sqrt);
    let mut values: Vec<f32> = first.iter().zip(second).map(|(a, b)| of_first * a + of_second * b).collect();
    assert!(normalise(&mut values));
    values
}

struct Walker {
    place: [f32; 2],
    velocity: [f32; 2],
    height: f32,
    look: Vec<f32>,
    /// Frames until it is seen again.
    hidden: usize,
}

fn random_velocity(random: &mut Random) -> [f32; 2] {
    [scatter(random, 2.5), scatter(random, 1.2)]
}

/// The number of an object, its detection, and what it looks like.
type LookedAt = (usize, TrackInput<'static>, Vec<f32>);

/// Pairs of objects that look alike: the cosine of their vectors is about 0.6, and that of two vectors of one object 0.9. They hide
/// for half a second or more, and come out with another velocity.
fn look_alikes(frames: usize) -> Vec<Vec<LookedAt>> {
    const SIZE: [f32; 2] = [1200.0, 700.0];
    const DIMS: usize = 128;
    let mut random = Random(45);
    let mut walkers = Vec::new();
    for _ in 0..8 {
        let shared = random_vector(&mut random, DIMS);
        for _ in 0..2 {
            let look = mixture(&shared, &random_vector(&mut random, DIMS), 0.6);
            let place = SIZE.map(|side| random.between(0.0, side));
            let (velocity, height) = (random_velocity(&mut random), random.between(100.0, 160.0));
            walkers.push(Walker { place, velocity, height, look, hidden: 0 });
        }
    }
    let frame = |_| {
        let mut found = Vec::new();
        for (number, walker) in walkers.iter_mut().enumerate() {
            let Walker { place, velocity, height, .. } = walker;
            for ((at, velocity), side) in place.iter_mut().zip(velocity).zip(SIZE) {
                *at += *velocity;
                if !(0.0..side).contains(at) {
                    *velocity = (side / 2.0 - *at).signum() * velocity.abs();
                }
            }
            let ([at_x, at_y], height) = (*place, *height);
            if walker.hidden == 0 && random.unit() < 1.0 / 80.0 {
                (walker.hidden, walker.velocity) = (15 + random.below(10), random_velocity(&mut random));
            }
            walker.hidden = walker.hidden.saturating_sub(1);
            if walker.hidden > 0 || random.unit() < 0.04 {
                continue;
            }
            let [x, y, w, h] = [0.45, 1.0, 0.63, 1.4].map(|side| scatter(&mut random, 0.015 * side * height));
            let bbox = BBox::from_center(at_x + x, at_y + y, 0.45 * height + w, height + h);
            let seen = TrackInput { bbox, score: random.between(0.6, 0.95), class: 0, vector: None };
            let noise = random_vector(&mut random, DIMS);
            found.push((number, seen, mixture(&walker.look, &noise, 0.9)));
        }
        found
    };
    (0..frames).map(frame).collect()
}

/// How often an object has another id than before.
fn switches(kind: (TrackerKind, f32), frames: &[Vec<LookedAt>]) -> usize {
    let mut clip = clip(kind);
    let mut last: BTreeMap<usize, u64> = BTreeMap::new();
    let mut count = 0;
    for found in frames {
        let inputs: Vec<TrackInput> = found.iter().map(|(_, seen, look)| looking(*seen, look)).collect();
        for ((walker, ..), id) in found.iter().zip(clip.push(&inputs)) {
            if id != 0 && last.insert(*walker, id).is_some_and(|before| before != id) {
                count += 1;
            }
        }
    }
    count
}

#[test]
fn appearance_avoids_most_switches_of_look_alikes_that_return() {
    let frames = look_alikes(600);
    for [with, without] in KINDS {
        let [by_vectors, by_boxes] = [with, without].map(|kind| switches(kind, &frames));
        assert!(by_boxes > 20, "{without:?}: {by_boxes}");
        assert!(10 * by_vectors <= 4 * by_boxes, "{with:?}: {by_vectors} of {by_boxes}");
    }
}

/// Side by side; of every other object each third frame has no vector.
#[test]
fn a_thousand_objects_with_vectors_keep_their_ids() {
    let mut random = Random(12);
    let looks: Vec<Vec<f32>> = (0..1000).map(|_| random_vector(&mut random, 128)).collect();
    for [kind, _] in KINDS {
        let mut clip = clip(kind);
        let mut given = Vec::new();
        for frame in 0..8u16 {
            let seen = (0u16..).zip(&looks).map(|(number, look)| {
                let place = [number % 40, number / 40].map(f32::from);
                let seen = at(100.0 + 44.0 * place[0] + 3.0 * f32::from(frame), 100.0 + 88.0 * place[1]);
                let is_blind = frame % 3 == 2 && number % 2 == 0;
                if is_blind { seen } else { looking(seen, look) }
            });
            given.push(clip.push(&seen.collect::<Vec<_>>()));
        }
        let mut ids = given[4].clone();
        assert!(given[5..].iter().all(|later| *later == ids), "{kind:?}");
        ids.sort_unstable();
        ids.dedup();
        assert!(ids.len() == looks.len() && ids[0] > 0, "{kind:?}: {}", ids.len());
    }
}

/// None of them can be told from another one.
#[test]
fn a_thousand_that_look_alike_at_one_place_take_no_time_without_end() {
    let mut random = Random(13);
    let look = random_vector(&mut random, 16);
    for [kind, _] in KINDS {
        let mut clip = clip(kind);
        let place = |number: u16| at(300.0 + f32::from(number % 7), 300.0 + f32::from(number % 11));
        let found: Vec<TrackInput> = (0..1000).map(|number| looking(place(number), &look)).collect();
        for _ in 0..3 {
            let mut given = clip.push(&found);
            given.retain(|&id| id != 0);
            let count = given.len();
            given.sort_unstable();
            given.dedup();
            assert!(count > 0 && given.len() == count, "{kind:?}: {count}");
        }
    }
}

#[test]
fn nothing_is_allocated_with_vectors_either() {
    let mut random = Random(100);
    let looks: Vec<Vec<f32>> = (0..100).map(|_| random_vector(&mut random, 512)).collect();
    let frames = crowd(100, 60, false, |_, _| [0.0; 2]);
    let look = |&(walker, seen): &(usize, TrackInput<'static>)| looking(seen, &looks[walker]);
    let frames: Vec<Vec<TrackInput>> = frames.iter().map(|(_, found)| found.iter().map(look).collect()).collect();
    // More objects than the crowd ever has, with those that were lost.
    let grid = (0..400u16).map(|at| (f32::from(at % 20) * 100.0, f32::from(at / 20) * 100.0));
    let busiest = grid.zip(looks.iter().cycle()).map(|((x, y), look)| looking(at(x, y), look));
    let busiest: Vec<TrackInput> = busiest.collect();
    for ([kind, _], has_skipped) in KINDS.into_iter().flat_map(|kinds| [(kinds, true), (kinds, false)]) {
        let mut clip = clip(kind);
        clip.options.reassociate = true;
        clip.push(&busiest);
        let round = |clip: &mut Clip| {
            let before = allocations::so_far();
            for frame in &frames {
                clip.now += FRAME;
                clip.tracker.update(&clip.options, frame, clip.now, FRAME);
                if has_skipped {
                    clip.now += FRAME;
                    clip.tracker.predict(&clip.options, clip.now, FRAME);
                }
            }
            allocations::so_far() - before
        };
        round(&mut clip);
        round(&mut clip);
        assert_eq!(round(&mut clip), 0, "{kind:?}, with skipped frames: {has_skipped}");
    }
}
