// SPDX-License-Identifier: MPL-2.0
//! Objects that were lost, and are found by distance and size where their boxes do not overlap.

use super::*;

/// All that find them so.
fn kinds() -> impl Iterator<Item = TrackerKind> {
    TrackerKind::ALL.into_iter().filter(|&kind| kind != TrackerKind::Iou)
}

/// The id of an object that is seen for four frames, after another one has walked to 217 and was then hidden for some frames.
fn id_after_hiding(
    kind: TrackerKind,
    change: impl Fn(&mut TrackOptions),
    hidden: u64,
    seen: impl Fn(u8) -> TrackInput<'static>,
) -> u64 {
    let mut clip = Clip::new(kind);
    change(&mut clip.options);
    for frame in 0..40u8 {
        assert_eq!(clip.push(&[at(100.0 + 3.0 * f32::from(frame), 300.0)]), [1], "{kind:?}");
    }
    (0..hidden).for_each(|_| assert!(clip.push(&[]).is_empty()));
    (0..4).map(|frame| clip.push(&[seen(frame)])[0]).last().unwrap()
}

/// After twelve frames it is looked for at 256, and is where it would be if it had turned at once.
fn turned(frame: u8) -> TrackInput<'static> {
    at(178.0 - 3.0 * f32::from(frame), 300.0)
}

#[test]
fn objects_that_turn_while_they_are_hidden_keep_their_ids() {
    let off = |options: &mut TrackOptions| options.reassociate = false;
    for kind in kinds() {
        assert_eq!(id_after_hiding(kind, |_| (), 12, turned), 1, "{kind:?}");
        assert_eq!(id_after_hiding(kind, off, 12, turned), 2, "{kind:?}");
        assert_eq!(id_after_hiding(kind, |_| (), 40, turned), 2, "{kind:?}: it comes too late");
        assert_eq!(id_after_hiding(kind, |_| (), 12, |_| at(900.0, 300.0)), 2, "{kind:?}: so far it cannot have gone");
        let larger = TrackInput { bbox: BBox::from_center(178.0, 300.0, 60.0, 120.0), ..at(178.0, 300.0) };
        assert_eq!(id_after_hiding(kind, |_| (), 12, |_| larger), 2, "{kind:?}: another size");
        let other_class = TrackInput { class: 1, ..at(178.0, 300.0) };
        assert_eq!(id_after_hiding(kind, |_| (), 12, |_| other_class), 2, "{kind:?}");
    }
}

#[test]
fn objects_that_were_lost_for_long_are_found_by_overlap_alone() {
    let patient = |options: &mut TrackOptions| options.lost_after = 10_000_000_000;
    for kind in kinds() {
        assert_eq!(id_after_hiding(kind, patient, 30, turned), 1, "{kind:?}");
        assert_eq!(id_after_hiding(kind, patient, 31, turned), 2, "{kind:?}: by then it can be anywhere");
        // 61 frames later, it has walked on.
        let on = |frame: u8| at(400.0 + 3.0 * f32::from(frame), 300.0);
        assert_eq!(id_after_hiding(kind, patient, 60, on), 1, "{kind:?}");
    }
}

#[test]
fn what_never_got_an_id_is_not_kept_for_long() {
    for kind in TrackerKind::ALL {
        let mut clip = Clip::new(kind);
        clip.options.lost_after = u64::MAX;
        // Each frame has something else, so that none of it is seen twice.
        let mut see = |frames: std::ops::Range<u16>| {
            let before = allocations::so_far();
            for frame in frames {
                clip.now += FRAME;
                clip.tracker.update(&clip.options, &[at(1000.0 * f32::from(frame), 300.0)], clip.now, FRAME);
            }
            allocations::so_far() - before
        };
        see(0..100);
        assert_eq!(see(100..400), 0, "{kind:?}");
    }
}
