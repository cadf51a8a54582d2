//! Suppression against the plain way: compare all pairs.

use gsttrt::vision::Detection;
use gsttrt::vision::geometry::BBox;
use gsttrt::vision::nms::Nms;
use proptest::prelude::*;

/// What [`Nms`] promises, in as few words as possible.
fn plain(nms: &Nms, mut detections: Vec<Detection>) -> Vec<Detection> {
    detections.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then(a.anchor.cmp(&b.anchor)).then(a.class.cmp(&b.class)) // stable
    });
    let mut kept: Vec<Detection> = Vec::new();
    for detection in detections {
        let repeats = |better: &Detection| {
            (nms.class_agnostic || better.class == detection.class)
                && detection.bbox.iou(&better.bbox) > nms.iou_threshold
        };
        if kept.len() < nms.max_detections && !kept.iter().any(repeats) {
            kept.push(detection);
        }
    }
    kept
}

fn compare(nms: &mut Nms, detections: Vec<Detection>) {
    let wanted = plain(nms, detections.clone());
    let mut have = detections;
    nms.suppress(&mut have);
    assert_eq!(format!("{have:?}"), format!("{wanted:?}")); // as text, for NaN
}

/// Few different scores, anchors and coordinates, so that ties, identical boxes and IoUs right at the threshold happen.
fn coarse() -> impl Strategy<Value = Detection> {
    (0..8u8, 0..8u8, 0..6u8, 0..6u8, 0..4u8, 0..3u32, 0..4u32).prop_map(|(x, y, w, h, score, class, anchor)| {
        let [x, y, w, h] = [x, y, w, h].map(|v| f32::from(v) * 10.0);
        Detection { bbox: BBox::new(x, y, x + w, y + h), score: f32::from(score) * 0.25, class, anchor }
    })
}

/// A crowd: sizes from small to wide, all over a picture.
fn crowd() -> impl Strategy<Value = Detection> {
    (-50.0..700f32, -50.0..700f32, 0.1..6f32, 0.1..6f32, 0.0..1f32, 0..2u32, 0..20_000u32).prop_map(
        |(cx, cy, w, h, score, class, anchor)| Detection {
            bbox: BBox::from_center(cx, cy, w.exp(), h.exp()),
            score,
            class,
            anchor,
        },
    )
}

/// Any bits at all.
fn wild() -> impl Strategy<Value = Detection> {
    let number = any::<u32>().prop_map(f32::from_bits);
    let number = prop_oneof![number, -4.0..4f32, Just(0.0), Just(f32::MAX), Just(f32::MIN_POSITIVE)];
    ([number.clone(), number.clone(), number.clone(), number.clone(), number], 0..2u32, 0..4u32).prop_map(
        |([x1, y1, x2, y2, score], class, anchor)| Detection { bbox: BBox { x1, y1, x2, y2 }, score, class, anchor },
    )
}

fn settings() -> impl Strategy<Value = Nms> {
    let iou = prop_oneof![Just(0.0), Just(1.0), Just(0.5), Just(0.25), 0.0..1f32];
    let limit = prop_oneof![Just(0), Just(1), 0..20usize, Just(usize::MAX)];
    (iou, limit, any::<bool>()).prop_map(|(iou, limit, agnostic)| Nms::new(iou, limit, agnostic))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

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

    /// Scratch memory of one call is no concern of the next.
    #[test]
    fn calls_are_independent(mut nms in settings(), calls in prop::collection::vec(prop::collection::vec(coarse(), 0..30), 2..5)) {
        for detections in calls {
            compare(&mut nms, detections);
        }
    }
}
