// SPDX-License-Identifier: MPL-2.0
//! Boxes that are rotated about their centres.
//!
//! Arithmetic is f32, each operation rounded once in the order written here, those of sine and cosine too:
//! `kernels/rotated.cuh` gives the same results, bit for bit.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::geometry::{BBox, Letterbox};

/// x and y of the corners of a box that may be rotated, one after the other around it.
pub type Corners = [[f32; 2]; 4];

/// The smallest upright box around corners.
pub fn hull(corners: &Corners) -> BBox {
    let [first, rest @ ..] = corners;
    rest.iter().fold(BBox::new(first[0], first[1], first[0], first[1]), |hull, &[x, y]| {
        BBox::new(hull.x1.min(x), hull.y1.min(y), hull.x2.max(x), hull.y2.max(y))
    })
}

/// A box rotated about its centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatedBox {
    /// Before the rotation; it may reach beyond the frame.
    pub bbox: BBox,
    /// Radians, clockwise in the picture. In results 0 ≤ angle < π/2.
    pub angle: f32,
}

impl RotatedBox {
    /// The same box with an angle from 0 to below π/2, as Ultralytics regularises it: width and height are exchanged
    /// where the angle was a quarter turn more.
    #[doc(hidden)]
    pub fn regular(&self) -> Self {
        let half_turn = self.angle.rem_euclid(PI);
        // The remainder of a value just below 0 is rounded up to π.
        let half_turn = if half_turn >= PI { half_turn - PI } else { half_turn };
        if half_turn < FRAC_PI_2 {
            return RotatedBox { angle: half_turn, ..*self };
        }
        let (x, y) = self.bbox.center();
        let bbox = BBox::from_center(x, y, self.bbox.height(), self.bbox.width());
        RotatedBox { bbox, angle: half_turn - FRAC_PI_2 }
    }

    /// The first is the lower right one where the angle is 0.
    pub fn corners(&self) -> Corners {
        let RotatedBox { bbox, angle } = self.regular();
        let ((x, y), (sin, cos)) = (bbox.center(), sin_cos(angle));
        let (half_width, half_height) = (bbox.width() * 0.5, bbox.height() * 0.5);
        let (across, along) = ([half_width * cos, half_width * sin], [-(half_height * sin), half_height * cos]);
        [
            [x + across[0] + along[0], y + across[1] + along[1]],
            [x + across[0] - along[0], y + across[1] - along[1]],
            [x - across[0] - along[0], y - across[1] - along[1]],
            [x - across[0] + along[0], y - across[1] + along[1]],
        ]
    }

    /// The smallest upright box around it.
    #[doc(hidden)]
    pub fn hull(&self) -> BBox {
        hull(&self.corners())
    }

    /// From pixels of the tensor to pixels of the frame, not clipped to the source, and regular there.
    ///
    /// The rounding of a letterbox makes its scales differ a little across and down; as with Ultralytics, that of the
    /// width is the one across, whatever the rotation.
    #[doc(hidden)]
    pub fn to_frame(&self, letterbox: &Letterbox) -> Self {
        let ((scale_x, scale_y), (x, y)) = (letterbox.scale(), self.bbox.center());
        let (x, y) = (
            (x - letterbox.x as f32) * scale_x + letterbox.place.x1,
            (y - letterbox.y as f32) * scale_y + letterbox.place.y1,
        );
        let bbox = BBox::from_center(x, y, self.bbox.width() * scale_x, self.bbox.height() * scale_y);
        RotatedBox { bbox, angle: self.angle }.regular()
    }
}

/// Sine and cosine of an angle from 0 to π/2, exact to about one unit in the last place: the first terms of both
/// series, up to π/4.
pub(crate) fn sin_cos(angle: f32) -> (f32, f32) {
    let is_steep = angle > FRAC_PI_4;
    let x = if is_steep { FRAC_PI_2 - angle } else { angle };
    let z = x * x;
    let sin = x + x * z * (-1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362_880.0))));
    let cos = 1.0 + z * (-0.5 + z * (1.0 / 24.0 + z * (-1.0 / 720.0 + z * (1.0 / 40_320.0))));
    if is_steep { (cos, sin) } else { (sin, cos) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::{Rect, ResizeMode};
    use proptest::prelude::*;

    fn rotated(x: f32, y: f32, width: f32, height: f32, angle: f32) -> RotatedBox {
        RotatedBox { bbox: BBox::from_center(x, y, width, height), angle }
    }

    #[track_caller]
    fn assert_near(have: &[f32], wanted: &[f32]) {
        let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
        assert!(have.len() == wanted.len() && have.iter().zip(wanted).all(is_near), "{have:?} is not {wanted:?}");
    }

    #[test]
    fn corners_go_around_the_box() {
        let corners = |angle| rotated(10.0, 20.0, 8.0, 4.0, angle).corners();
        assert_eq!(corners(0.0), [[14.0, 22.0], [14.0, 18.0], [6.0, 18.0], [6.0, 22.0]]);
        // Clockwise as y points down: the right end moves down.
        let (sin, cos) = (0.5f32, 0.75f32.sqrt());
        let lower_right = [10.0 + 4.0 * cos - 2.0 * sin, 20.0 + 4.0 * sin + 2.0 * cos];
        assert_near(&corners(std::f32::consts::FRAC_PI_6)[0], &lower_right);
    }

    #[test]
    fn angles_are_those_of_ultralytics() {
        // What regularize_rboxes of Ultralytics 8.4.190 gives for a box of 8x4.
        for (angle, wanted) in [
            (0.0, (8.0, 4.0, 0.0)),
            (0.5, (8.0, 4.0, 0.5)),
            (2.0, (4.0, 8.0, 0.429_203_7)),
            (3.0, (4.0, 8.0, 1.429_203_7)),
            (-0.25, (4.0, 8.0, 1.320_796_3)),
            (7.0, (8.0, 4.0, 0.716_814_7)),
            (-9.0, (8.0, 4.0, 0.424_778_22)),
        ] {
            let RotatedBox { bbox, angle: regular } = rotated(10.0, 20.0, 8.0, 4.0, angle).regular();
            assert_near(&[bbox.width(), bbox.height(), regular], &[wanted.0, wanted.1, wanted.2]);
        }
        assert_eq!(rotated(0.0, 0.0, 8.0, 4.0, -1e-30).regular().angle, 0.0);
    }

    #[test]
    fn boxes_follow_the_letterbox() {
        let letterbox = Letterbox::new((1920, 1080), (640, 640), ResizeMode::Letterbox);
        let on_frame = rotated(320.0, 320.0, 100.0, 50.0, 2.0).to_frame(&letterbox);
        assert_near(&[on_frame.bbox.width(), on_frame.bbox.height(), on_frame.angle], &[150.0, 300.0, 0.429_203_7]);
        assert_near(&[on_frame.bbox.center().0, on_frame.bbox.center().1], &[960.0, 540.0]);

        // The source is a part of the frame, scaled to a half.
        let source = Rect { left: 1000, top: 200, right: 1800, bottom: 1000 };
        let letterbox = Letterbox::new(source, (640, 640), ResizeMode::Letterbox).scaled((1920, 1080), (960, 540));
        let on_frame = rotated(320.0, 160.0, 64.0, 32.0, 0.5).to_frame(&letterbox);
        assert_near(&[on_frame.bbox.width(), on_frame.bbox.height(), on_frame.angle], &[40.0, 20.0, 0.5]);
        assert_near(&[on_frame.bbox.center().0, on_frame.bbox.center().1], &[700.0, 200.0]);
    }

    proptest! {
        /// In any form, a box has the corners that f64 gives, and its hull touches them.
        #[test]
        fn corners_are_those_of_the_turned_box(
            (x, y, width, height) in (-100.0..2000f32, -100.0..2000f32, 1.0..900f32, 1.0..900f32),
            angle in prop_oneof![0.0..1.6f32, -20.0..20f32],
        ) {
            let boxed = rotated(x, y, width, height, angle);
            let (sin, cos) = f64::from(angle).sin_cos();
            let corner = |right: f64, down: f64| {
                let (dx, dy) = (right * f64::from(width) / 2.0, down * f64::from(height) / 2.0);
                [f64::from(x) + dx * cos - dy * sin, f64::from(y) + dx * sin + dy * cos]
            };
            let wanted = [corner(1.0, 1.0), corner(1.0, -1.0), corner(-1.0, -1.0), corner(-1.0, 1.0)];
            let have = boxed.corners();
            // The regular form may begin at another corner.
            let far = |[x, y]: [f32; 2]| {
                let distance = |[a, b]: &[f64; 2]| (a - f64::from(x)).hypot(b - f64::from(y));
                wanted.iter().map(distance).fold(f64::INFINITY, f64::min)
            };
            for corner in have {
                prop_assert!(far(corner) < 0.01, "{have:?} {wanted:?}");
            }
            let RotatedBox { angle, .. } = boxed.regular();
            prop_assert!((0.0..FRAC_PI_2).contains(&angle));
            prop_assert_eq!(boxed.regular().regular(), boxed.regular());
            let hull = boxed.hull();
            for [x, y] in have {
                prop_assert!(hull.x1 <= x && x <= hull.x2 && hull.y1 <= y && y <= hull.y2);
            }
            prop_assert!(have.iter().any(|corner| corner[0] == hull.x1) && have.iter().any(|corner| corner[1] == hull.y2));
        }

        #[test]
        fn sine_and_cosine_are_exact_enough(angle in 0.0..=FRAC_PI_2) {
            let (sin, cos) = sin_cos(angle);
            let (exact_sin, exact_cos) = f64::from(angle).sin_cos();
            prop_assert!((f64::from(sin) - exact_sin).abs() < 1.2e-7 && (f64::from(cos) - exact_cos).abs() < 1.2e-7);
        }
    }
}
