// SPDX-License-Identifier: MPL-2.0
//! Which rotated boxes repeat each other, as in Ultralytics: by the probabilistic IoU of arXiv 2106.06072. Each box is
//! represented by a normal distribution of its width and height. The IoU of two is 1 less their Hellinger distance.
//!
//! Arithmetic is f32, each operation rounded once in the order written here: `kernels/rotated.cu` gives the same bits.

use crate::image::Candidate;
use crate::image::rotated::sin_cos;

/// Ultralytics adds this to avoid a division by 0.
const TINY: f32 = 1e-7;

/// The normal distribution of a rotated box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaussian {
    /// Its mean.
    x: f32,
    y: f32,
    /// Its covariance: [[a, c], [c, b]].
    a: f32,
    b: f32,
    c: f32,
}

impl Gaussian {
    pub fn of(candidate: &Candidate) -> Self {
        let rotated = candidate.rotated().regular();
        let ((x, y), (sin, cos)) = (rotated.bbox.center(), sin_cos(rotated.angle));
        let (width, height) = (rotated.bbox.width(), rotated.bbox.height());
        let (along, across) = (width * width / 12.0, height * height / 12.0);
        let (sin2, cos2) = (sin * sin, cos * cos);
        let (a, b) = (along * cos2 + across * sin2, along * sin2 + across * cos2);
        Gaussian { x, y, a, b, c: (along - across) * cos * sin }
    }

    /// The Bhattacharyya distance of two. NaN where f32 overflows.
    fn distance(&self, other: &Gaussian) -> f32 {
        let (a, b, c) = (self.a + other.a, self.b + other.b, self.c + other.c);
        let (dx, dy) = (other.x - self.x, self.y - other.y);
        let determinant = a * b - c * c;
        let own = |of: &Gaussian| (of.a * of.b - of.c * of.c).max(0.0);
        let means = (a * (dy * dy) + b * (dx * dx)) / (determinant + TINY) * 0.25;
        let slant = c * dx * dy / (determinant + TINY) * 0.5;
        let sizes = ln(determinant / (4.0 * (own(self) * own(other)).sqrt() + TINY) + TINY) * 0.5;
        means + slant + sizes
    }

    pub fn center(&self) -> (f32, f32) {
        (self.x, self.y)
    }

    /// Whether [`farthest`] says how far it reaches: others are too thin, too small or too large for the precision.
    pub fn is_bounded(&self) -> bool {
        let (product, determinant) = (self.a * self.b, self.a * self.b - self.c * self.c);
        self.x.abs().max(self.y.abs()) <= MAX_COORDINATE
            && self.x.is_finite()
            && self.y.is_finite()
            && self.a.max(self.b) <= MAX_VARIANCE
            && determinant >= MIN_DETERMINANT
            && determinant >= product * MIN_PART
    }

    /// How far it reaches along both axes, if that is so many standard deviations.
    pub fn extents(&self, farthest: f32) -> (f32, f32) {
        (self.a.sqrt() * farthest, self.b.sqrt() * farthest)
    }

    /// Whether their probabilistic IoU is above the threshold of this reach.
    pub fn repeats(&self, better: &Gaussian, reach: f32) -> bool {
        let distance = self.distance(better);
        (if distance < TINY { TINY } else { distance }) < reach
    }
}

/// Numbers of a normal distribution up to which no product in a distance overflows.
const MAX_COORDINATE: f32 = 1e6;
const MAX_VARIANCE: f32 = 1e9;
/// The least determinant of a covariance to which [`TINY`] adds nothing that counts, and the least part of the product of both variances
/// that it is, so that rounding takes a small part of it.
const MIN_DETERMINANT: f32 = 1e-3;
const MIN_PART: f32 = 1e-4;

/// How far two bounded boxes reach, in standard deviations along an axis, whose distance may be below that reach.
///
/// The covariance S of both is the sum of theirs. Where they are d apart along an axis with the variance v, means and slant are a
/// quarter of D'S⁻¹D, and that is at least d² / 4v. Sizes are at least 0. So d² is below 4v times the reach, and the root of v is at
/// most the sum of both deviations. What rounding does to bounded boxes, and so to their sums, is less than the margins here.
pub(super) fn farthest(reach: f32) -> f32 {
    2.0 * ((reach + 0.05).max(0.0) / 0.9).sqrt() * 1.01
}

/// The distance below which the probabilistic IoU of two boxes, 1 − √(1 − e^−distance + 1e-7), is above a threshold.
/// NaN, below which nothing is, for NaN.
pub(super) fn reach(iou_threshold: f32) -> f32 {
    let beyond = 1.0 - f64::from(iou_threshold);
    match 1.0 + 1e-7 - beyond * beyond {
        _ if beyond < 0.0 => f32::NEG_INFINITY, // nothing is above it
        left if left <= 0.0 => f32::INFINITY,   // all are
        left => -left.ln() as f32,
    }
}

/// The natural logarithm, right to about one unit in the last place; NaN for values that are not above 0, not finite or
/// not normal.
fn ln(x: f32) -> f32 {
    if !(f32::MIN_POSITIVE..=f32::MAX).contains(&x) {
        return f32::NAN;
    }
    // x = mantissa × 2^exponent, the mantissa from √½ to √2.
    const HALF_ROOT: u32 = 0x3f35_04f3;
    let bits = x.to_bits().wrapping_sub(HALF_ROOT);
    let exponent = (bits as i32) >> 23;
    let mantissa = f32::from_bits((bits & 0x007f_ffff) + HALF_ROOT);
    // ln m = 2 artanh((m − 1) / (m + 1)), of which these are the first terms.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let z = s * s;
    let series = 1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0)));
    exponent as f32 * std::f32::consts::LN_2 + 2.0 * (s + s * z * series)
}

#[cfg(test)]
mod tests {
    use super::super::Nms;
    use super::*;
    use crate::image::geometry::BBox;
    use proptest::prelude::*;

    fn rotated([x, y, width, height, angle]: [f32; 5]) -> Candidate {
        Candidate { bbox: BBox::from_center(x, y, width, height), score: 0.5, class: 0, row: 0, angle }
    }

    /// The IoU of a distance, by the formula.
    fn iou(distance: f64) -> f64 {
        1.0 - (1.0 - (-distance.clamp(1e-7, 100.0)).exp() + 1e-7).sqrt()
    }

    /// Pairs and their IoU by batch_probiou of Ultralytics 8.4.190.
    const PAIRS: [([f32; 5], [f32; 5], f64); 8] = [
        ([100.0, 100.0, 40.0, 20.0, 0.3], [104.0, 103.0, 44.0, 18.0, 0.5], 0.789919),
        ([100.0, 100.0, 40.0, 20.0, 0.0], [100.0, 100.0, 40.0, 20.0, 1.5], 0.553594),
        ([300.0, 200.0, 120.0, 12.0, 0.7], [310.0, 208.0, 118.0, 14.0, 0.75], 0.775967),
        ([300.0, 200.0, 120.0, 12.0, 0.7], [300.0, 200.0, 12.0, 120.0, 2.2708], 0.999532),
        ([50.0, 60.0, 30.0, 30.0, 0.2], [55.0, 60.0, 30.0, 30.0, 1.0], 0.797983),
        ([512.5, 300.25, 200.0, 40.0, 2.5], [540.0, 280.0, 180.0, 60.0, -0.5], 0.661818),
        ([10.0, 10.0, 8.0, 4.0, 5.0], [12.0, 11.0, 8.0, 5.0, 7.3], 0.464950),
        ([640.0, 640.0, 300.0, 5.0, 0.8], [645.0, 644.0, 310.0, 6.0, 0.82], 0.604218),
    ];

    #[test]
    fn pairs_are_as_alike_as_ultralytics_says() {
        for (a, b, wanted) in PAIRS {
            let [a, b] = [a, b].map(|numbers| Gaussian::of(&rotated(numbers)));
            let have = iou(a.distance(&b).into());
            assert!((have - wanted).abs() < 2e-4, "{have} is not {wanted}");
            assert_eq!(a.distance(&b).to_bits(), b.distance(&a).to_bits());
            for (step, repeats) in [(-1e-3, true), (1e-3, false)] {
                assert_eq!(a.repeats(&b, reach((wanted + step) as f32)), repeats, "{wanted} {step}");
            }
        }
    }

    #[test]
    fn thresholds_have_a_reach() {
        let far = Gaussian::of(&rotated([0.0, 0.0, 2.0, 2.0, 0.0]));
        let away = Gaussian::of(&rotated([500.0, 0.0, 2.0, 2.0, 0.0]));
        assert!(far.repeats(&away, reach(-0.1)), "all are above it");
        assert!(!far.repeats(&away, reach(0.0)) && far.repeats(&far, reach(0.0)));
        for never in [1.0, 2.0, f32::NAN] {
            assert!(!far.repeats(&far, reach(never)), "{never}");
        }
        assert!(far.repeats(&far, reach(0.999)));
    }

    #[test]
    fn logarithms() {
        for odd in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40] {
            assert!(ln(odd).is_nan(), "{odd}");
        }
        assert_eq!((ln(1.0), ln(2.0)), (0.0, std::f32::consts::LN_2));
    }

    #[test]
    fn dropped_boxes_drop_others() {
        // The second repeats the first, and the third the second only.
        let row = |x: f32, score: f32, class| Candidate { score, class, ..rotated([x, 0.0, 40.0, 10.0, 0.5]) };
        let left = |given: &[Candidate], limit, agnostic| {
            let mut detections = given.to_vec();
            Nms::new(0.5, limit, agnostic).suppress_rotated(&mut detections);
            detections.iter().map(|detection| detection.score).collect::<Vec<_>>()
        };
        let chain = [row(0.0, 0.9, 0), row(5.0, 0.8, 0), row(10.0, 0.7, 0)];
        let apart = [row(0.0, 0.9, 0), row(10.0, 0.7, 0)];
        assert_eq!(left(&chain, 9, false), [0.9]);
        assert_eq!(left(&apart, 9, false), [0.9, 0.7]);
        let classes = [row(0.0, 0.9, 0), row(0.0, 0.8, 1), row(0.0, 0.7, 0)];
        assert_eq!(left(&classes, 9, false), [0.9, 0.8]);
        assert_eq!(left(&classes, 9, true), [0.9]);
        assert_eq!((left(&apart, 1, false), left(&apart, 0, false)), (vec![0.9], vec![]));
    }

    proptest! {
        /// The kept boxes are those of f64, except where an IoU lies at the threshold.
        #[test]
        fn crowds_are_thinned_as_the_formula_says(
            boxes in prop::collection::vec(
                ([0.0..200f32, 0.0..200f32, 4.0..80f32, 4.0..80f32, -4.0..4f32], 1..100u8, 0..3u32), 0..60),
            threshold in 0.05..0.95f32,
        ) {
            let candidates: Vec<Candidate> = boxes
                .iter()
                .zip(0..)
                .map(|(&(numbers, score, class), row)| Candidate { score: score.into(), class, row, ..rotated(numbers) })
                .collect();
            let gaussian = |candidate: &Candidate| {
                let BBox { x1, y1, x2, y2 } = candidate.bbox;
                let [x1, y1, x2, y2, angle] = [x1, y1, x2, y2, candidate.angle].map(f64::from);
                let (sin, cos) = angle.sin_cos();
                let (along, across) = ((x2 - x1).powi(2) / 12.0, (y2 - y1).powi(2) / 12.0);
                let (a, b) = (along * cos * cos + across * sin * sin, along * sin * sin + across * cos * cos);
                [(x1 + x2) / 2.0, (y1 + y2) / 2.0, a, b, (along - across) * cos * sin]
            };
            let exact = |one: &Candidate, other: &Candidate| {
                let ([x1, y1, a1, b1, c1], [x2, y2, a2, b2, c2]) = (gaussian(one), gaussian(other));
                let (a, b, c) = (a1 + a2, b1 + b2, c1 + c2);
                let determinant = a * b - c * c;
                let means = (a * (y1 - y2).powi(2) + b * (x1 - x2).powi(2)) / determinant / 4.0;
                let slant = c * (x2 - x1) * (y1 - y2) / determinant / 2.0;
                let own = (a1 * b1 - c1 * c1) * (a2 * b2 - c2 * c2);
                iou(means + slant + (determinant / (4.0 * own.sqrt())).ln() / 2.0)
            };
            let mut kept = candidates.clone();
            Nms::new(threshold, usize::MAX, false).suppress_rotated(&mut kept);
            for candidate in &candidates {
                let is_better = |other: &&Candidate| {
                    other.class == candidate.class
                        && (other.score > candidate.score || other.score == candidate.score && other.row < candidate.row)
                };
                let most = candidates.iter().filter(is_better).map(|better| exact(candidate, better)).fold(0.0, f64::max);
                let is_kept = kept.iter().any(|other| other.row == candidate.row);
                if (most - f64::from(threshold)).abs() > 1e-3 {
                    prop_assert_eq!(is_kept, most < threshold.into(), "{:?} {}", candidate, most);
                }
            }
            prop_assert!(kept.is_sorted_by(|a, b| a.score > b.score || a.score == b.score && a.row < b.row));
        }

        #[test]
        fn logarithms_are_exact_enough(x in prop_oneof![1e-7..10f32, 0.0..1e30f32, f32::MIN_POSITIVE..1e-20]) {
            let exact = f64::from(x).ln();
            prop_assert!((f64::from(ln(x)) - exact).abs() <= 2e-7 * exact.abs().max(0.5), "{} {}", ln(x), exact);
        }

        /// Any bits: no panic, and the kept boxes are among the given ones.
        #[test]
        fn any_numbers(bits in prop::collection::vec(prop::array::uniform7(any::<u32>()), 0..20), threshold in any::<u32>()) {
            let mut candidates: Vec<Candidate> = bits.iter().map(|bits| {
                let [x1, y1, x2, y2, score, angle, class] = bits.map(f32::from_bits);
                Candidate { bbox: BBox::new(x1, y1, x2, y2), score, class: class.to_bits() % 2, row: 0, angle }
            }).collect();
            let count = candidates.len();
            Nms::new(f32::from_bits(threshold), 9, false).suppress_rotated(&mut candidates);
            prop_assert!(candidates.len() <= count.min(9));
        }
    }
}
