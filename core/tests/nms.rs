// SPDX-License-Identifier: MPL-2.0
//! Suppression against the plain way: compare all pairs.

use gsttrt_core::image::Candidate;
use gsttrt_core::image::geometry::BBox;
use gsttrt_core::postprocess::suppress::Nms;
use proptest::prelude::*;

/// What [`Nms`] promises, in as few words as possible.
fn plain(nms: &Nms, mut detections: Vec<Candidate>) -> Vec<Candidate> {
    detections.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)).then(a.class.cmp(&b.class)) // stable
    });
    let mut kept: Vec<Candidate> = Vec::new();
    for detection in detections {
        let repeats = |better: &Candidate| {
            (nms.class_agnostic || better.class == detection.class)
                && detection.bbox.iou(&better.bbox) > nms.iou_threshold
        };
        if kept.len() < nms.max_detections && !kept.iter().any(repeats) {
            kept.push(detection);
        }
    }
    kept
}

/// So that they can be compared: all NaN are the same, and 0 is not -0.
fn numbers(Candidate { bbox: BBox { x1, y1, x2, y2 }, score, class, row, angle }: &Candidate) -> ([u32; 6], u32, u32) {
    let bits = |number: f32| if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() };
    ([*x1, *y1, *x2, *y2, *score, *angle].map(bits), *class, *row)
}

fn compare(nms: &mut Nms, detections: Vec<Candidate>) {
    let wanted = plain(nms, detections.clone());
    let mut have = detections;
    nms.suppress(&mut have);
    let all = |found: &[Candidate]| found.iter().map(numbers).collect::<Vec<_>>();
    assert!(all(&have) == all(&wanted), "{have:?}, expected {wanted:?}");
}

/// Few different scores, rows and coordinates, so that ties, identical boxes and IoUs right at the threshold happen.
fn coarse() -> impl Strategy<Value = Candidate> {
    (0..8u8, 0..8u8, 0..6u8, 0..6u8, 0..4u8, 0..3u32, 0..4u32).prop_map(|(x, y, w, h, score, class, row)| {
        let [x, y, w, h] = [x, y, w, h].map(|v| f32::from(v) * 10.0);
        Candidate { bbox: BBox::new(x, y, x + w, y + h), score: f32::from(score) * 0.25, class, row, angle: 0.0 }
    })
}

/// A crowd: sizes from small to wide, all over a picture.
fn crowd() -> impl Strategy<Value = Candidate> {
    (-50.0..700f32, -50.0..700f32, 0.1..6f32, 0.1..6f32, 0.0..1f32, 0..2u32, 0..20_000u32).prop_map(
        |(cx, cy, w, h, score, class, row)| Candidate {
            bbox: BBox::from_center(cx, cy, w.exp(), h.exp()),
            score,
            class,
            row,
            angle: 0.0,
        },
    )
}

/// Any bits at all.
fn wild() -> impl Strategy<Value = Candidate> {
    let number = any::<u32>().prop_map(f32::from_bits);
    let number = prop_oneof![number, -4.0..4f32, Just(0.0), Just(f32::MAX), Just(f32::MIN_POSITIVE)];
    ([number.clone(), number.clone(), number.clone(), number.clone(), number], 0..2u32, 0..4u32).prop_map(
        |([x1, y1, x2, y2, score], class, row)| Candidate {
            bbox: BBox { x1, y1, x2, y2 },
            score,
            class,
            row,
            angle: 0.0,
        },
    )
}

/// Pairs whose IoU is the threshold but for rounding, in the two ways that put their centres farthest apart: equal
/// boxes side by side, and a box in the corner of a greater one. Specks make the grid fine.
fn edges() -> impl Strategy<Value = (f32, Vec<Candidate>)> {
    let pair = (0.0..640f32, 0.0..640f32, 1.0..50f32, -3i32..4, any::<bool>(), any::<bool>());
    (0.01..0.99f32, prop::collection::vec(pair, 1..20)).prop_map(|(iou, pairs)| {
        let mut detections = Vec::new();
        for (x, y, size, ulps, nested, weaker_first) in pairs {
            let (shift, other) = if nested { (0.0, size / iou) } else { (size * (1.0 - iou) / (1.0 + iou), size) };
            let other = f32::from_bits(other.to_bits().wrapping_add_signed(ulps));
            let (a, b) = (BBox::new(x, y, x + size, y + size), BBox::new(x + shift, y, x + shift + other, y + size));
            let speck = BBox::new(x, y, x + 0.1, y + 0.1);
            let (a, b) = if weaker_first { (b, a) } else { (a, b) };
            for bbox in [a, b, speck, speck.clip(&BBox::new(0.0, 0.0, 1.0, 1.0))] {
                let row = detections.len() as u32;
                detections.push(Candidate { bbox, score: 0.5, class: 0, row, angle: 0.0 });
            }
        }
        (iou, detections)
    })
}

fn settings() -> impl Strategy<Value = Nms> {
    let iou = prop_oneof![Just(0.0), Just(1.0), Just(0.5), Just(0.25), 0.0..1f32];
    let limit = prop_oneof![Just(0), Just(1), 0..20usize, Just(usize::MAX)];
    (iou, limit, any::<bool>()).prop_map(|(iou, limit, agnostic)| Nms::new(iou, limit, agnostic))
}

proptest! {
    #![proptest_config(crate::cases::cases(1000))]

    #[test]
    fn ties_and_identical_boxes(mut nms in settings(), detections in prop::collection::vec(coarse(), 0..60)) {
        compare(&mut nms, detections);
    }

    #[test]
    fn crowds(mut nms in settings(), detections in prop::collection::vec(crowd(), 0..200)) {
        compare(&mut nms, detections);
    }

    #[test]
    fn numbers_that_no_head_writes(mut nms in settings(), detections in prop::collection::vec(wild(), 0..40)) {
        compare(&mut nms, detections);
    }

    #[test]
    fn right_at_the_threshold((iou, detections) in edges()) {
        compare(&mut Nms::new(iou, usize::MAX, false), detections);
    }

    #[test]
    fn ranking_is_order_and_limit(mut nms in settings(), mut detections in prop::collection::vec(coarse(), 0..30)) {
        let nothing_repeats = Nms::new(2.0, nms.max_detections, false);
        let wanted = plain(&nothing_repeats, detections.clone());
        nms.rank(&mut detections);
        prop_assert_eq!(detections, wanted);
    }

    /// Scratch memory of one call is no concern of the next.
    #[test]
    fn calls_are_independent(mut nms in settings(), calls in prop::collection::vec(prop::collection::vec(coarse(), 0..30), 2..5)) {
        for detections in calls {
            compare(&mut nms, detections);
        }
    }
}

#[test]
fn only_above_the_threshold_and_of_the_same_class() {
    // Their IoU is a third.
    let given = [(0.0, 0, 0.9), (1.0, 0, 0.8), (1.0, 1, 0.7)].map(|(x, class, score)| Candidate {
        bbox: BBox::new(x, 0.0, x + 2.0, 1.0),
        score,
        class,
        row: 0,
        angle: 0.0,
    });
    let left = |iou, limit, agnostic| {
        let mut detections = given.to_vec();
        Nms::new(iou, limit, agnostic).suppress(&mut detections);
        detections.iter().map(|detection| detection.score).collect::<Vec<_>>()
    };
    assert_eq!(left(1.0 / 3.0, 10, false), [0.9, 0.8, 0.7]);
    assert_eq!(left(0.33, 10, false), [0.9, 0.7]);
    assert_eq!(left(0.33, 10, true), [0.9]);
    assert_eq!(left(0.33, 1, false), [0.9]);
    assert_eq!(left(0.33, 0, false), [0.0f32; 0]);
}
