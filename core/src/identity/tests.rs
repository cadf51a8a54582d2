// SPDX-License-Identifier: MPL-2.0
//! Which object a track is: by what it looks like, by time and by place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use super::*;
use crate::error::ErrorKind;
use crate::test::random::Random;

const SECOND: u64 = 1_000_000_000;
const FRAME: u64 = SECOND / 25;

const ADA: &[f32] = &[1.0, 0.0, 0.0];
const BOB: &[f32] = &[0.0, 1.0, 0.0];
const EVE: &[f32] = &[0.0, 0.0, 1.0];
const LIKE_ADA: &[f32] = &[0.8, 0.6, 0.0];
const BETWEEN: &[f32] = &[0.72, 0.694, 0.0];
/// No model has looked at it in this frame.
const UNSEEN: &[f32] = &[];

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn at(now: u64) -> Instant {
    *BEGUN + Duration::from_nanos(now)
}

/// With one vector a track is asked about.
fn at_once() -> IdentityOptions {
    IdentityOptions { looks: 1, ..IdentityOptions::default() }
}

fn linked(text: &str) -> IdentityOptions {
    IdentityOptions { links: links::parse(text).unwrap(), ..at_once() }
}

fn table(options: IdentityOptions) -> Arc<Identities> {
    Identities::new(options).unwrap()
}

fn cameras<const N: usize>(table: &Arc<Identities>, names: [&str; N]) -> [JoinedCamera; N] {
    names.map(|name| table.join(name))
}

fn look<'a>(values: &'a [f32], model: &'a str) -> Option<ObjectLook<'a>> {
    (!values.is_empty()).then_some(ObjectLook { values, model })
}

fn object<'a>(track: u64, looks: &'a [ObjectLook<'a>]) -> SeenObject<'a> {
    SeenObject { track, label: "person", quality: 1.0, looks }
}

/// A frame with these tracks that comes at that time.
fn frame_at(camera: &mut JoinedCamera, now: u64, arrived: Instant, objects: &[(u64, &[f32])]) -> SeenFrame {
    let looks: Vec<Option<ObjectLook>> = objects.iter().map(|(_, values)| look(values, "reid")).collect();
    let both = objects.iter().zip(&looks);
    let objects: Vec<SeenObject> = both.map(|((track, _), look)| object(*track, look.as_slice())).collect();
    camera.see(&objects, now, arrived)
}

fn frame(camera: &mut JoinedCamera, now: u64, objects: &[(u64, &[f32])]) -> SeenFrame {
    frame_at(camera, now, at(now), objects)
}

/// The id of each object; 0 for none.
fn ids(camera: &mut JoinedCamera, now: u64, objects: &[(u64, &[f32])]) -> Vec<u64> {
    frame(camera, now, objects).ids.into_iter().map(Option::unwrap_or_default).collect()
}

fn id(camera: &mut JoinedCamera, now: u64, track: u64, values: &[f32]) -> u64 {
    ids(camera, now, &[(track, values)])[0]
}

/// Nothing is in sight.
fn empty(camera: &mut JoinedCamera, now: u64) {
    assert!(frame(camera, now, &[]).ids.is_empty());
}

// ------------------------------------------------------------------------------------------- what they look like

#[test]
fn an_object_has_one_id_on_all_cameras() {
    let table = table(at_once());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(ids(&mut gate, 0, &[(1, ADA), (2, BOB)]), [1, 2]);
    empty(&mut gate, SECOND);
    let found = frame(&mut hall, 2 * SECOND, &[(1, BOB), (7, LIKE_ADA), (9, EVE)]);
    assert_eq!(found.ids, [Some(2), Some(1), Some(3)]);
    let similarities: Vec<_> = found.changes.iter().map(|change| change.similarity).collect();
    assert!(similarities[0] == Some(1.0) && similarities[2].is_none(), "{similarities:?}");
    assert!(similarities[1].is_some_and(|similarity| (similarity - 0.8).abs() < 1e-6), "{similarities:?}");
    let again = frame(&mut hall, 2 * SECOND + FRAME, &[(1, UNSEEN), (7, EVE), (9, ADA)]);
    assert_eq!((again.ids, again.changes.len()), (vec![Some(2), Some(1), Some(3)], 0), "an id stays");
    let counts = table.counts();
    assert_eq!((counts.known, counts.given, counts.matched, counts.corrected), (3, 3, 2, 0));
    let listed = table.list(10, at(2 * SECOND + FRAME));
    let places: Vec<_> = listed.iter().map(|entry| (entry.id, entry.cameras.join(" "), entry.is_in_sight)).collect();
    assert_eq!(places, [(1, "hall gate".into(), true), (2, "hall gate".into(), true), (3, "hall".into(), true)]);
    assert_eq!((listed[0].label.as_str(), listed[0].first_seen), ("person", at(0)));
    assert_eq!(table.list(2, at(3 * SECOND)).len(), 2);
}

#[test]
fn who_is_not_similar_enough_or_may_be_two_is_another_one() {
    for (options, values, wanted) in [
        (at_once(), LIKE_ADA, 1),
        (IdentityOptions { threshold: 0.81, ..at_once() }, LIKE_ADA, 3),
        (at_once(), BETWEEN, 3),
        (IdentityOptions { margin: 0.01, ..at_once() }, BETWEEN, 1),
        (IdentityOptions { margin: 0.0, threshold: 0.0, ..at_once() }, &[0.1, 0.0, 0.99], 1),
        (at_once(), EVE, 3),
    ] {
        let table = table(options.clone());
        let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
        ids(&mut gate, 0, &[(1, ADA), (2, BOB)]);
        empty(&mut gate, SECOND);
        assert_eq!(id(&mut hall, 2 * SECOND, 1, values), wanted, "{options:?} {values:?}");
    }
}

#[test]
fn a_track_is_asked_about_by_the_mean_of_its_best_vectors() {
    let table = table(IdentityOptions::default());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    let looks = [ADA, UNSEEN, ADA, ADA];
    let found = (0..).zip(looks).map(|(number, look)| id(&mut gate, number * FRAME, 5, look));
    assert_eq!(found.collect::<Vec<_>>(), [0, 0, 0, 1], "it has three vectors then");
    empty(&mut gate, SECOND);
    // Small ones in the distance, which look like somebody else, then near ones.
    let mut see = |number: u64, values, quality| {
        let looks = [ObjectLook { values, model: "reid" }];
        let now = 2 * SECOND + number * FRAME;
        hall.see(&[SeenObject { quality, ..object(1, &looks) }], now, at(now)).ids[0]
    };
    assert_eq!([see(0, EVE, 1.0), see(1, EVE, 1.0)], [None; 2]);
    table.set_options(IdentityOptions { looks: 7, ..IdentityOptions::default() }).unwrap();
    assert!((2..6).all(|number| see(number, ADA, 100.0).is_none()));
    assert_eq!(see(6, ADA, 100.0), Some(1));
}

// ------------------------------------------------------------------------------------------- times and places

#[test]
fn two_in_sight_are_two() {
    let table = table(at_once());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(ids(&mut gate, 0, &[(1, ADA), (2, ADA)]), [1, 2], "twins");
    assert_eq!(ids(&mut gate, FRAME, &[(1, UNSEEN), (3, ADA)]), [1, 2], "the second one has another track");
    assert_eq!(ids(&mut hall, FRAME, &[(1, ADA)]), [3], "both are at the gate");
    // They were seen together, so the one is not the other when that has gone.
    assert_eq!(ids(&mut gate, 2 * FRAME, &[(1, UNSEEN), (3, UNSEEN), (4, UNSEEN)]), [1, 2, 0]);
    assert_eq!(ids(&mut gate, 3 * FRAME, &[(4, ADA)]), [4]);
    // A camera that gives nothing any more shows nobody.
    assert_eq!(id(&mut gate, 4 * FRAME, 9, EVE), 5);
    let later = frame_at(&mut hall, 5 * FRAME, at(10 * SECOND), &[(5, EVE)]);
    assert_eq!(later.ids, [Some(5)]);
}

#[test]
fn cameras_that_overlap_may_see_one_object() {
    let table = table(linked("gate,hall:overlap"));
    let [mut gate, mut hall, mut yard] = cameras(&table, ["gate", "hall", "yard"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    assert_eq!(id(&mut hall, 0, 1, ADA), 1);
    assert_eq!(ids(&mut hall, FRAME, &[(1, UNSEEN), (2, ADA)]), [1, 2], "not twice on one of them");
    assert_eq!(id(&mut yard, FRAME, 1, ADA), 3);
    assert_eq!([id(&mut gate, 2 * FRAME, 1, ADA), id(&mut hall, 2 * FRAME, 1, ADA)], [1, 1]);
    assert_eq!(table.counts().corrected, 0);
}

#[test]
fn the_way_from_one_camera_to_another_takes_time() {
    let way = "gate,hall:5-60";
    for (camera, after, wanted) in [
        ("hall", 4, 2),
        ("hall", 6, 1),
        ("hall", 59, 1),
        ("hall", 61, 2),
        ("gate", 1, 1),
        ("gate", 90, 1),
        ("yard", 1, 1),
    ] {
        let table = table(linked(way));
        let [mut gate, mut other] = cameras(&table, ["gate", camera]);
        assert_eq!(id(&mut gate, SECOND, 1, ADA), 1);
        empty(&mut gate, SECOND + FRAME);
        assert_eq!(id(&mut other, SECOND + after * SECOND, 9, ADA), wanted, "{camera} after {after} s");
    }
    // By way of another camera it cannot be faster either.
    let table = table(linked(way));
    let [mut gate, mut yard, mut hall] = cameras(&table, ["gate", "yard", "hall"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    empty(&mut gate, FRAME);
    assert_eq!(id(&mut yard, SECOND, 1, ADA), 1);
    empty(&mut yard, SECOND + FRAME);
    assert_eq!(id(&mut hall, 3 * SECOND, 1, ADA), 2);
}

#[test]
fn who_comes_back_while_another_one_is_there_is_asked_about_again() {
    let table = table(at_once());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    empty(&mut gate, FRAME);
    assert_eq!(id(&mut hall, SECOND, 1, ADA), 1);
    // The gate's tracker has found its track again.
    let back = frame(&mut gate, SECOND + FRAME, &[(1, UNSEEN)]);
    assert_eq!(back.ids, [Some(2)], "by the vectors that it has");
    assert_eq!(back.changes, [IdentityChange { object: 0, id: Some(2), before: Some(1), similarity: None }]);
    assert_eq!(id(&mut hall, SECOND + FRAME, 1, ADA), 1);
    assert_eq!(table.counts().corrected, 1);
    // Without another one it keeps its id.
    empty(&mut hall, 2 * SECOND);
    empty(&mut hall, 9 * SECOND);
    assert_eq!(id(&mut hall, 9 * SECOND + FRAME, 1, UNSEEN), 1);
    assert_eq!(table.counts().corrected, 1);
}

#[test]
fn a_track_that_is_another_object_takes_its_vectors_along() {
    let table = table(at_once());
    let [mut gate, mut hall, mut yard] = cameras(&table, ["gate", "hall", "yard"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    empty(&mut gate, FRAME);
    assert_eq!(id(&mut hall, SECOND, 1, LIKE_ADA), 1);
    assert_eq!(id(&mut gate, SECOND + FRAME, 1, UNSEEN), 2);
    empty(&mut gate, SECOND + 2 * FRAME);
    empty(&mut hall, SECOND + 2 * FRAME);
    assert_eq!(id(&mut yard, 2 * SECOND, 1, ADA), 2, "the first one looks otherwise");
    assert_eq!(id(&mut yard, 2 * SECOND + FRAME, 2, LIKE_ADA), 1);
}

#[test]
fn clocks_that_jump_change_no_ids() {
    const LATE: u64 = 1000 * SECOND;
    let table = table(at_once());
    let mut gate = table.join("gate");
    assert_eq!(ids(&mut gate, LATE, &[(1, ADA), (2, BOB)]), [1, 2]);
    let arrived = at(LATE + FRAME);
    let mut see = |now, objects: &[(u64, &[f32])]| frame_at(&mut gate, now, arrived, objects).ids;
    assert_eq!(see(LATE - FRAME, &[(1, UNSEEN), (2, UNSEEN)]), [Some(1), Some(2)], "jitter");
    assert_eq!(see(5 * SECOND, &[(1, UNSEEN)]), [Some(1)], "back");
    assert_eq!(see(5 * SECOND + FRAME, &[(1, UNSEEN), (9, BOB)]), [Some(1), Some(2)], "with another track");
    assert_eq!(see(0, &[(1, UNSEEN), (9, UNSEEN)]), [Some(1), Some(2)], "to the beginning");
    assert_eq!(see(500 * SECOND, &[(1, UNSEEN), (9, UNSEEN)]), [Some(1), Some(2)], "ahead");
    assert_eq!(see(u64::MAX, &[(1, UNSEEN)]), [Some(1)], "as far as it goes");
    assert_eq!(see(u64::MAX, &[(1, UNSEEN)]), [Some(1)]);
    assert_eq!(table.counts().corrected, 0);
    // Frames without times.
    let mut hall = table.join("hall");
    let mut see = |track, values| frame_at(&mut hall, 0, arrived, &[(track, values)]).ids[0];
    assert_eq!([see(1, EVE), see(2, EVE), see(3, EVE)], [Some(3); 3]);
}

#[test]
fn a_camera_that_begins_again_knows_what_it_has_seen() {
    let table = table(at_once());
    let mut gate = table.join("gate");
    assert_eq!(id(&mut gate, 100 * SECOND, 1, ADA), 1);
    gate.cut();
    assert_eq!(id(&mut gate, 100 * SECOND + FRAME, 1, BOB), 2, "another part of the stream has other tracks");
    drop(gate);
    // A file begins again, and a pipeline that was started again has an earlier time.
    let mut gate = table.join("gate");
    assert_eq!(ids(&mut gate, 3 * SECOND, &[(1, BOB), (2, ADA)]), [2, 1]);
}

// ------------------------------------------------------------------------------------------- what is forgotten

#[test]
fn objects_out_of_sight_are_forgotten() {
    let table = table(IdentityOptions { max_age: 60 * SECOND, ..at_once() });
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    // Who is in sight is not.
    for second in (0..200).step_by(10) {
        assert_eq!(id(&mut gate, second * SECOND, 1, UNSEEN), 1);
    }
    empty(&mut gate, 200 * SECOND);
    assert_eq!(id(&mut hall, 240 * SECOND, 1, ADA), 1);
    empty(&mut hall, 241 * SECOND);
    assert_eq!(id(&mut gate, 302 * SECOND, 5, ADA), 2);
    assert_eq!((table.counts().aged, table.counts().known), (1, 1));
    // By the clock of this machine alone, whatever cameras say.
    assert_eq!(table.list(9, at(400 * SECOND)).len(), 0);
    assert_eq!((table.counts().aged, table.counts().known), (2, 0));
    // A camera whose clock is ahead makes none of the others forget.
    assert_eq!(id(&mut gate, 400 * SECOND, 7, BOB), 3);
    empty(&mut gate, 401 * SECOND);
    hall.see(&[], 100_000 * SECOND, at(402 * SECOND));
    assert_eq!(id(&mut gate, 402 * SECOND, 8, BOB), 3);
}

#[test]
fn tracks_of_forgotten_objects_have_no_vectors() {
    let table = table(IdentityOptions { max_age: 60 * SECOND, ..at_once() });
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    empty(&mut gate, 40 * SECOND);
    empty(&mut gate, 62 * SECOND);
    assert_eq!(id(&mut gate, 62 * SECOND + FRAME, 1, UNSEEN), 0, "it would be another object by them");
    assert_eq!(id(&mut gate, 63 * SECOND, 2, BOB), 2);
    // A camera that gives nothing any more.
    empty(&mut hall, 124 * SECOND);
    assert_eq!(table.lock().tracks(), 0);
    // Of those that have made room, too.
    table.set_options(IdentityOptions { max_identities: 1, ..at_once() }).unwrap();
    assert_eq!(ids(&mut hall, 125 * SECOND, &[(1, ADA)]), [3]);
    empty(&mut hall, 126 * SECOND);
    assert_eq!(id(&mut gate, 127 * SECOND, 3, BOB), 4);
    assert!(!table.forget(3));
    empty(&mut gate, 128 * SECOND);
    assert_eq!(id(&mut hall, 129 * SECOND, 1, UNSEEN), 0);
}

#[test]
fn the_oldest_go_where_there_is_no_room() {
    let table = table(IdentityOptions { max_identities: 2, ..at_once() });
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(ids(&mut gate, 0, &[(1, ADA), (2, BOB)]), [1, 2]);
    assert_eq!(ids(&mut gate, FRAME, &[(1, UNSEEN), (2, UNSEEN), (3, EVE)]), [1, 2, 0], "all are in sight");
    assert_eq!((table.counts().refused_for_room, table.counts().known), (1, 2));
    assert_eq!(ids(&mut gate, 2 * FRAME, &[(1, UNSEEN), (3, UNSEEN)]), [1, 0], "it is asked about with a vector");
    assert_eq!(ids(&mut gate, 3 * FRAME, &[(1, UNSEEN), (3, EVE)]), [1, 3], "Bob has gone");
    assert_eq!((table.counts().crowded_out, table.counts().known), (1, 2));
    empty(&mut gate, 4 * FRAME);
    assert_eq!(id(&mut hall, SECOND, 1, BOB), 4, "and is another one when he comes back");
    assert_eq!(id(&mut gate, SECOND, 1, UNSEEN), 5, "so is Ada's track, whose object has made room");
    table.set_options(IdentityOptions { max_identities: 1, ..at_once() }).unwrap();
    assert_eq!((table.counts().known, table.counts().given), (1, 5));
}

/// Those for whom there is no room ask in each frame, and leave the others their turn.
#[test]
fn a_crowd_without_room_hides_nobody() {
    let table = table(IdentityOptions { max_identities: 1, ..linked("gate,hall:overlap") });
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    let strangers = (1..41).map(|track| (track, EVE));
    let crowd: Vec<(u64, &[f32])> = strangers.chain([(41, ADA)]).collect();
    assert!((0..3).any(|number| ids(&mut hall, number * FRAME, &crowd)[40] == 1));
}

#[test]
fn who_is_removed_is_not_known_any_more() {
    let table = table(IdentityOptions { looks: 2, ..IdentityOptions::default() });
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    id(&mut gate, 0, 1, ADA);
    assert_eq!(id(&mut gate, FRAME, 1, ADA), 1);
    assert!(table.forget(1) && !table.forget(1) && !table.forget(9));
    let gone = frame(&mut gate, 2 * FRAME, &[(1, UNSEEN)]);
    assert_eq!(gone.changes, [IdentityChange { object: 0, id: None, before: Some(1), similarity: None }]);
    assert_eq!(id(&mut gate, 3 * FRAME, 1, ADA), 0, "its vectors are forgotten, too");
    assert_eq!(id(&mut gate, 4 * FRAME, 1, ADA), 2, "a number is given once");
    id(&mut hall, SECOND, 1, BOB);
    assert_eq!(id(&mut hall, 2 * SECOND, 1, BOB), 3);
    assert_eq!(table.forget_all(), 2);
    let counts = table.counts();
    assert_eq!((counts.known, counts.deleted, counts.given), (0, 3, 3));
    assert_eq!(ids(&mut hall, 3 * SECOND, &[(1, UNSEEN), (2, ADA)]), [0, 0]);
}

// ------------------------------------------------------------------------------------------- bad input

#[test]
fn what_is_no_vector_counts_for_nothing() {
    let table = table(at_once());
    let mut gate = table.join("gate");
    let none = [f32::NAN, 1.0, 0.0];
    for (number, values) in (0..).zip([&none[..], &[f32::INFINITY, 0.0, 0.0], &[0.0; 3], &[1.0; 5000]]) {
        let found = frame(&mut gate, number * FRAME, &[(1, values)]);
        assert!(found.ids == [None] && found.warning.is_none(), "{values:?}");
    }
    // None of them has said how many numbers there are.
    assert_eq!(ids(&mut gate, SECOND, &[(1, &[1.0, 0.0]), (2, &none)]), [1, 0]);
    let looks = [ObjectLook { values: &[0.0, 1.0], model: "reid" }];
    let odd = SeenObject { quality: f32::NAN, ..object(3, &looks) };
    assert_eq!(gate.see(&[odd], 2 * SECOND, at(2 * SECOND)).ids, [Some(2)]);
}

#[test]
fn vectors_of_another_model_are_refused_until_all_cameras_have_it() {
    let table = table(at_once());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    let see = |camera: &mut JoinedCamera, now: u64, values: &[f32], model: &str| {
        camera.see(&[object(1, &[ObjectLook { values, model }])], now, at(now))
    };
    assert_eq!(see(&mut gate, 0, ADA, "reid").ids, [Some(1)]);
    let mut warnings = Vec::new();
    for number in 1..40 {
        assert_eq!(see(&mut gate, number * FRAME, ADA, "reid").ids, [Some(1)]);
        let found = see(&mut hall, number * FRAME, &[0.0, 1.0], "clip");
        assert_eq!(found.ids, [None]);
        warnings.extend(found.warning);
    }
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(warning.kind(), ErrorKind::Settings);
    let said = warning.message();
    assert!(said.contains("hall has vectors of clip (2 numbers)") && said.contains("reid (3 numbers)"), "{said}");
    assert!(table.counts().refused_for_model > 0);
    // As many numbers of another model cannot be compared either; a model without a name may be the same.
    assert_eq!(see(&mut hall, 2 * SECOND, BOB, "other").ids, [None]);
    assert_eq!(see(&mut hall, 2 * SECOND + FRAME, BOB, "").ids, [Some(2)]);
    // A second model that has looked at all objects, or at some, changes nothing.
    let [bob, face] = [ObjectLook { values: BOB, model: "reid" }, ObjectLook { values: &[1.0; 7], model: "face" }];
    let looks = [bob, face];
    let both = [object(1, &looks), object(2, &looks[1..])];
    for number in 1..40 {
        let now = 3 * SECOND + number * FRAME;
        assert_eq!(hall.see(&both, now, at(now)).ids, [Some(2), None]);
    }
    // All cameras have another model now: those that were known cannot be compared any more.
    for number in 0..20 {
        let now = 6 * SECOND + number * FRAME;
        let found = [see(&mut gate, now, &[1.0; 7], "face"), see(&mut hall, now, &[1.0; 7], "face")];
        assert!(found.iter().all(|found| found.warning.is_none() || number == 9), "{number}");
    }
    let counts = table.counts();
    assert_eq!((counts.replaced, counts.known), (2, 2));
    assert_eq!(see(&mut gate, 9 * SECOND, &[1.0; 7], "face").ids, [Some(4)]);
}

#[test]
fn a_model_without_a_name_is_the_first_one_with_a_name() {
    let table = table(at_once());
    let [mut gate, mut hall, mut yard] = cameras(&table, ["gate", "hall", "yard"]);
    let see = |camera: &mut JoinedCamera, now: u64, values: &[f32], model: &str| {
        camera.see(&[object(1, &[ObjectLook { values, model }])], now, at(now)).ids[0]
    };
    assert_eq!(see(&mut gate, 0, ADA, ""), Some(1));
    assert_eq!(see(&mut hall, FRAME, BOB, "reid"), Some(2));
    assert_eq!(see(&mut yard, 2 * FRAME, EVE, "clip"), None, "it has as many numbers, which mean something else");
    assert_eq!(see(&mut gate, 3 * FRAME, ADA, ""), Some(1));
}

/// A camera where nobody walks does not keep the others from a new model forever.
#[test]
fn a_quiet_camera_does_not_keep_its_model() {
    let table = table(at_once());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    assert_eq!(id(&mut gate, 0, 1, ADA), 1);
    let looks = [ObjectLook { values: &[1.0; 7], model: "face" }];
    let mut see = |now: u64| hall.see(&[object(1, &looks)], now, at(now)).ids[0];
    assert!((0..100).all(|number| see(number * FRAME).is_none()));
    empty(&mut gate, 60 * SECOND);
    assert_eq!(see(61 * SECOND), Some(2));
    assert_eq!(table.counts().replaced, 1);
}

#[test]
fn ids_of_a_foreign_tracker_are_any_numbers() {
    let table = table(at_once());
    let mut gate = table.join("gate");
    assert_eq!(ids(&mut gate, 0, &[(u64::MAX, ADA), (0, BOB), (u64::MAX, EVE)]), [1, 2, 0], "one id is one object");
    // A new id for each object in each frame.
    let mut hall = table.join("hall");
    table.forget_all();
    for number in 0..200 {
        let objects: Vec<(u64, &[f32])> = (0..50).map(|place| (1000 + number * 50 + place, UNSEEN)).collect();
        frame(&mut hall, number * FRAME, &objects);
    }
    let tracks = table.lock().tracks();
    assert!(tracks < 3000, "{tracks}");
    // An id that comes back for another object after a long time.
    let mut yard = table.join("yard");
    let begin = 100 * SECOND;
    let first = id(&mut yard, begin, 1, ADA);
    (1..700).for_each(|number| empty(&mut yard, begin + number * FRAME));
    let other = id(&mut yard, begin + 700 * FRAME, 1, BOB);
    assert!(first > 0 && other > first, "{first} {other}");
    assert_eq!(id(&mut yard, begin + 701 * FRAME, 2, ADA), first);
}

#[test]
fn a_thousand_objects_have_their_ids() {
    const DIMS: usize = 64;
    const NEAR: usize = 150;
    let mut random = Random(5);
    let people: Vec<Vec<f32>> = (0..NEAR).map(|_| (0..DIMS).map(|_| random.unit() - 0.5).collect()).collect();
    let table = table(at_once());
    let [mut gate, mut hall] = cameras(&table, ["gate", "hall"]);
    // The others are too small for a vector.
    let far = std::iter::repeat_n(UNSEEN, 1000 - NEAR);
    let crowd = |first: u64| -> Vec<(u64, &[f32])> {
        (first..).zip(people.iter().map(Vec::as_slice).chain(far.clone())).collect()
    };
    let mut found = Vec::new();
    // Some of them are asked about in each frame.
    for number in 0..8 {
        found = ids(&mut gate, number * FRAME, &crowd(1));
    }
    assert_eq!(found[..NEAR].iter().collect::<BTreeSet<_>>().len(), NEAR);
    assert!(found.len() == 1000 && found.iter().enumerate().all(|(at, id)| (*id > 0) == (at < NEAR)));
    empty(&mut gate, 10 * SECOND);
    let mut other = Vec::new();
    for number in 0..8 {
        other = ids(&mut hall, 20 * SECOND + number * FRAME, &crowd(5001));
    }
    assert_eq!(other, found);
    assert_eq!(table.counts().matched, NEAR as u64);
}

/// Whatever comes, an id is one object at a time.
#[test]
fn no_id_is_at_two_places_at_once() {
    let look = |number: usize| -> Vec<f32> { (0..4).map(|at| f32::from(u8::from(at == number))).collect() };
    let looks: Vec<Vec<f32>> = (0..4).map(look).collect();
    for seed in 0..20 {
        let mut random = Random(seed);
        let table = table(IdentityOptions { margin: 0.0, ..linked("a,b:overlap;b,c:0.2-") });
        let mut all = cameras(&table, ["a", "b", "c"]);
        let mut in_sight: [BTreeSet<u64>; 3] = Default::default();
        let mut owners: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        for number in 0..600 {
            let camera = random.below(3);
            if random.below(10) == 0 {
                all[camera].cut();
                in_sight[camera].clear();
                owners.retain(|(of, _), _| *of != camera);
            }
            let count = random.below(4);
            let tracks: BTreeSet<u64> = (0..count).map(|_| random.next() % 6).collect();
            let object = |track| {
                let is_seen = random.below(3) > 0;
                (track, if is_seen { looks[random.below(4)].as_slice() } else { UNSEEN })
            };
            let objects: Vec<(u64, &[f32])> = tracks.into_iter().map(object).collect();
            let found = frame(&mut all[camera], number * FRAME, &objects);
            let given: Vec<u64> = found.ids.iter().flatten().copied().collect();
            in_sight[camera] = given.iter().copied().collect();
            assert_eq!(in_sight[camera].len(), given.len(), "{seed} {number}: twice in a frame");
            let [a, b, c] = &in_sight;
            assert!(a.is_disjoint(c) && b.is_disjoint(c), "{seed} {number}: {in_sight:?}");
            // A track has its id until a change is told.
            for (object, &(track, _)) in objects.iter().enumerate() {
                let before = owners.get(&(camera, track)).copied();
                let is_told = found.changes.iter().any(|change| change.object == object && change.before == before);
                assert!(found.ids[object] == before || is_told, "{seed} {number}");
                match found.ids[object] {
                    Some(id) => owners.insert((camera, track), id),
                    None => owners.remove(&(camera, track)),
                };
            }
        }
        assert!(table.counts().matched > 10, "{seed}: {:?}", table.counts());
    }
}
