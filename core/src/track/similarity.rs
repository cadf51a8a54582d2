// SPDX-License-Identifier: MPL-2.0
//! How alike a predicted and a detected box are, from 0 to 1, in addition to their overlap: the measures of BoostTrack (Stanojević and
//! Todorović, Machine Vision and Applications 35, 2024) and of BoostTrack++ (the same, arXiv:2408.13003, 2024).

use super::overlap::{Edges, iou};

/// The squared Mahalanobis distance within which 99 % of the boxes of an object are: the quantile of the chi-squared distribution
/// with four degrees of freedom.
pub const FARTHEST: f64 = 13.2767;

/// By how much of their sides a detected and a predicted box are enlarged where nothing is sure.
const ENLARGED: [f64; 2] = [0.25, 0.5];

/// By shape: less, the more the widths and the heights differ. As in the paper each difference is a share of the larger side; the
/// authors' program divides both by the larger width, unless it is told to do otherwise.
pub fn of_shapes(detected: &Edges, predicted: &Edges) -> f64 {
    let side = |edges: &Edges, axis: usize| edges[axis + 2] - edges[axis];
    let difference = |axis: usize| {
        let (a, b) = (side(detected, axis), side(predicted, axis));
        (a - b).abs() / a.max(b)
    };
    (-(difference(0) + difference(1))).exp()
}

/// Soft BIoU: the intersection over union of both boxes, which are larger the less sure the track is.
pub fn soft_biou(detected: &Edges, predicted: &Edges, confidence: f64) -> f64 {
    let [of_detected, of_predicted] = ENLARGED.map(|most| most * (1.0 - confidence));
    iou(&enlarged(detected, of_detected), &enlarged(predicted, of_predicted))
}

/// The box with that share of its width and its height on each side.
fn enlarged(&[left, top, right, bottom]: &Edges, share: f64) -> Edges {
    let (across, down) = ((right - left) * share, (bottom - top) * share);
    [left - across, top - down, right + across, bottom + down]
}

/// Where soft BIoU looks for detected boxes: the predicted box as large as it becomes, and as far again on each side. For boxes that are
/// much larger than the predicted one, that is not all, and those are not alike.
pub fn soft_reach(predicted: &Edges, confidence: f64) -> Edges {
    enlarged(predicted, 2.0 * ENLARGED[1] * (1.0 - confidence))
}

/// How near a box is, by its squared Mahalanobis distance: at least 1, and 0 where it is too far. What share it has of the sum
/// over all boxes is the similarity. Those that are too far count 1 each in this sum.
pub fn nearness(distance: f64) -> f64 {
    if distance <= FARTHEST { (FARTHEST - distance).exp() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: Edges = [100.0, 200.0, 140.0, 280.0];

    #[test]
    fn equal_shapes_are_alike_wherever_they_are() {
        assert_eq!(of_shapes(&BOX, &BOX), 1.0);
        assert_eq!(of_shapes(&BOX, &[0.0, 0.0, 40.0, 80.0]), 1.0);
        // Half the width, and three quarters of the height.
        let other = [0.0, 0.0, 20.0, 60.0];
        let wanted = (-0.75f64).exp();
        assert!((of_shapes(&BOX, &other) - wanted).abs() < 1e-12);
        assert!((of_shapes(&other, &BOX) - wanted).abs() < 1e-12);
        for no_box in [[0.0; 4], [0.0, 0.0, 0.0, -1e9], [5.0, 5.0, 5.0, 5.0]] {
            let similarity = of_shapes(&BOX, &no_box);
            assert!((0.0..0.14).contains(&similarity), "{no_box:?}: {similarity}");
        }
    }

    #[test]
    fn boxes_of_unsure_tracks_are_enlarged() {
        let aside = BOX.map(|edge| edge + 20.0);
        assert_eq!(soft_biou(&aside, &BOX, 1.0), iou(&aside, &BOX));
        let mut last = soft_biou(&aside, &BOX, 1.0);
        for confidence in [0.8, 0.5, 0.2] {
            let next = soft_biou(&aside, &BOX, confidence);
            assert!(next > last, "{confidence}: {next} {last}");
            last = next;
        }
        // They do not overlap, and by a quarter and a half of their width they do: 60 by 120 and 80 by 160 pixels.
        let next = [150.0, 200.0, 190.0, 280.0];
        assert_eq!(iou(&next, &BOX), 0.0);
        let (width, height) = (160.0 - 140.0, 300.0 - 180.0);
        let common = width * height;
        assert!((soft_biou(&next, &BOX, 0.0) - common / (60.0 * 120.0 + 80.0 * 160.0 - common)).abs() < 1e-12);
        let reach = soft_reach(&BOX, 0.0);
        assert!(
            reach[0] < 100.0 - 20.0 && reach[2] > 140.0 + 20.0 && reach[1] < 160.0 && reach[3] > 320.0,
            "{reach:?}"
        );
        assert_eq!(soft_reach(&BOX, 1.0), BOX);
    }

    #[test]
    fn nearness_ends_at_the_limit() {
        assert_eq!(nearness(FARTHEST), 1.0);
        assert_eq!(nearness(FARTHEST + 1e-9), 0.0);
        assert_eq!(nearness(f64::INFINITY), 0.0);
        assert!(nearness(0.0) > nearness(1.0) && nearness(1.0) > 1e5);
    }
}
