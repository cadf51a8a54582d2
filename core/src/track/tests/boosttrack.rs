// SPDX-License-Identifier: MPL-2.0
//! What tells BoostTrack from the other trackers: low scores that tracks raise, and what a match is made of.

use super::*;

type Change<'a> = &'a dyn Fn(&mut TrackOptions);

/// The ids of the last frame, after an object has been seen for ten frames.
fn ids_after_ten_frames(change: Change, last: &[TrackInput]) -> Vec<u64> {
    let mut clip = Clip::new(TrackerKind::BoostTrack);
    change(&mut clip.options);
    for _ in 0..10 {
        assert_eq!(clip.push(&[at(100.0, 300.0)]), [1]);
    }
    clip.push(last)
}

#[test]
fn low_scores_that_tracks_raise_keep_ids() {
    let low = |x: f32| [TrackInput { score: 0.3, ..at(x, 300.0) }];
    let changes: [(u64, Change); 7] = [
        (1, &|_| ()),
        (0, &|options| options.use_dlo_boost = false),
        // 0.65 of the score and 0.35 of the similarity are less than 0.6.
        (0, &|options| options.use_vt = false),
        (1, &|options| (options.use_vt, options.det_thresh) = (false, 0.5)),
        (1, &|options| (options.use_vt, options.use_sb) = (false, false)),
        (0, &|options| (options.use_vt, options.use_sb, options.dlo_boost_coef) = (false, false, 0.5)),
        (0, &|options| options.low_thresh = 0.4),
    ];
    for (wanted, change) in changes {
        assert_eq!(ids_after_ten_frames(change, &low(100.0)), [wanted]);
    }
    // It overlaps by nine tenths, and has the same shape.
    for (use_rich_s, wanted) in [(true, 1), (false, 0)] {
        let change = |options: &mut TrackOptions| {
            (options.use_vt, options.use_sb, options.use_rich_s) = (false, false, use_rich_s);
        };
        assert_eq!(ids_after_ten_frames(&change, &low(102.0)), [wanted], "{use_rich_s}");
    }
}

#[test]
fn objects_of_low_scores_far_from_others_begin_tracks() {
    for (use_duo_boost, wanted) in [(true, [1, 2]), (false, [1, 0])] {
        let mut clip = Clip::new(TrackerKind::BoostTrack);
        clip.options.use_duo_boost = use_duo_boost;
        (0..5).for_each(|_| drop(clip.push(&[at(100.0, 300.0)])));
        // Three frames after the first look at it, it has an id.
        let mut given = Vec::new();
        for score in [0.3, 0.9, 0.9, 0.9] {
            given = clip.push(&[at(100.0, 300.0), TrackInput { score, ..at(600.0, 300.0) }]);
        }
        assert_eq!(given, wanted, "{use_duo_boost}");
    }
}

#[test]
fn shape_and_distance_decide_between_boxes_that_overlap_as_much() {
    let wider = |aside: f32| {
        let bbox = BBox::from_center(100.0, 300.0, 52.0, 80.0);
        [at(100.0 + aside, 300.0), TrackInput { bbox, ..at(100.0, 300.0) }]
    };
    let ids = |lambda_mhd: f32, lambda_shape: f32, aside: f32| {
        let change = |options: &mut TrackOptions| {
            (options.lambda_mhd, options.lambda_shape) = (lambda_mhd, lambda_shape);
        };
        ids_after_ten_frames(&change, &wider(aside))
    };
    // The wider box overlaps by 40 of 52 pixels; the other one by 34 of 46, or by 36 of 44.
    assert_eq!(ids(0.0, 0.0, 6.0), [0, 1]);
    assert_eq!(ids(0.0, 1.0, 6.0), [1, 0]);
    assert_eq!(ids(0.0, 0.0, 4.0), [1, 0]);
    assert_eq!(ids(1.0, 0.0, 4.0), [0, 1]);
}

#[test]
fn an_object_that_is_seen_goes_before_one_that_is_not() {
    for (lambda_iou, wanted) in [(0.0, 2), (2.0, 1)] {
        let mut clip = Clip::new(TrackerKind::BoostTrack);
        (clip.options.lambda_iou, clip.options.lambda_mhd, clip.options.lambda_shape) = (lambda_iou, 0.0, 0.0);
        for _ in 0..10 {
            assert_eq!(clip.push(&[at(100.0, 300.0), at(116.0, 300.0)]), [1, 2]);
        }
        for _ in 0..6 {
            assert_eq!(clip.push(&[at(100.0, 300.0)]), [1]);
        }
        // It is a little nearer to the one that was not seen.
        assert_eq!(clip.push(&[at(109.0, 300.0)]), [wanted], "{lambda_iou}");
    }
}

#[test]
fn thresholds_of_boosttrack_count() {
    let (here, aside) = (at(100.0, 300.0), at(115.0, 300.0));
    let ids = |change: Change, frames: &[&[TrackInput]]| {
        let mut clip = Clip::new(TrackerKind::BoostTrack);
        change(&mut clip.options);
        frames.iter().map(|found| clip.push(found)).last()
    };
    assert_eq!(ids(&|_| (), &[&[here], &[aside]]), Some(vec![1]));
    assert_eq!(ids(&|options| options.iou_thresh = 0.6, &[&[here], &[aside]]), Some(vec![2]));
    let late: &[&[TrackInput]] = &[&[], &[], &[], &[here], &[here], &[here]];
    assert_eq!(ids(&|_| (), late), Some(vec![0]));
    assert_eq!(ids(&|options| options.min_hits = 2, late), Some(vec![1]));
    assert_eq!(ids(&|options| options.det_thresh = 0.95, &[&[here]]), Some(vec![0]));
}
