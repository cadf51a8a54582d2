// SPDX-License-Identifier: MPL-2.0
//! Lines of text, upright as PP-OCR cuts them out.
//!
//! PP-OCR takes the corners of a line as whole pixels inside the frame. The two at the left are the beginning of the line. It cuts out as
//! many columns and rows as the longer one of both opposite sides has whole pixels, and turns that where the line runs down. Then it
//! resizes it to the height of the tensor, and to as many columns as keep its aspect, rounded up. Here both are one step. Rounded corners
//! are those of no rectangle; the line is laid by the means of its opposite sides, where PP-OCR has the perspective of all four.

use super::{Alignment, RUNS_DOWN};
use crate::image::geometry::BBox;
use crate::image::rotated::Corners;

/// How far corners may be from those of a parallelogram along an axis, in pixels: each is rounded by half a pixel at most.
const MOST_APART: f32 = 2.0;

/// The corners of a line on whole pixels of a frame, and inside it. Where that would lay the line askew, they stay outside.
pub(super) fn on_pixels(corners: &Corners, frame: &BBox) -> Corners {
    let rounded = corners.map(|point| point.map(f32::round_ties_even));
    let last = [frame.x2, frame.y2].map(|side| (side - 1.0).max(0.0));
    let inside = rounded.map(|point| [0, 1].map(|axis| point[axis].clamp(0.0, last[axis])));
    let [first, second, third, fourth] = inside;
    let fits = |axis: usize| (first[axis] - second[axis] + third[axis] - fourth[axis]).abs() <= MOST_APART;
    if fits(0) && fits(1) { inside } else { rounded }
}

/// How a line lies in the frame.
pub(super) struct LineSides {
    middle: [f64; 2],
    /// From its beginning to its end, and from its upper to its lower edge.
    across: [f64; 2],
    down: [f64; 2],
    /// How many pixels PP-OCR cuts out along both.
    columns: f64,
    rows: f64,
    /// From the corner to the middle of the first of these pixels.
    to_middle: [f64; 2],
}

impl LineSides {
    /// `None` where the line is smaller than a pixel, or is none.
    pub fn of(corners: &Corners) -> Option<Self> {
        let mut sorted = corners.map(|point| point.map(f64::from));
        sorted.sort_by(|a, b| a[0].total_cmp(&b[0]));
        sorted[..2].sort_by(|a, b| a[1].total_cmp(&b[1]));
        sorted[2..].sort_by(|a, b| a[1].total_cmp(&b[1]));
        let [upper_left, lower_left, upper_right, lower_right] = sorted;
        let way = |from: [f64; 2], to: [f64; 2]| [0, 1].map(|axis| to[axis] - from[axis]);
        let mean = |one: [f64; 2], other: [f64; 2]| [0, 1].map(|axis| (one[axis] + other[axis]) / 2.0);
        // Of whole numbers that is exact, as long as the root is one.
        let length = |[x, y]: [f64; 2]| (x * x + y * y).sqrt();
        let pixels = |one: [f64; 2], other: [f64; 2]| length(one).max(length(other)).floor();
        let (top, bottom) = (way(upper_left, upper_right), way(lower_left, lower_right));
        let (start, end) = (way(upper_left, lower_left), way(upper_right, lower_right));
        let (columns, rows) = (pixels(top, bottom), pixels(start, end));
        if !(columns >= 1.0 && rows >= 1.0) {
            return None;
        }
        let middle = mean(mean(upper_left, lower_right), mean(upper_right, lower_left));
        let (across, down) = (mean(top, bottom), mean(start, end));
        let to_middle = [0, 1].map(|axis| (across[axis] / columns + down[axis] / rows) / 2.0);
        Some(if rows >= RUNS_DOWN * columns {
            // A quarter turn: what is at the right is above then.
            let above = across.map(|along| -along);
            LineSides { middle, across: down, down: above, columns: rows, rows: columns, to_middle }
        } else {
            LineSides { middle, across, down, columns, rows, to_middle }
        })
    }

    /// Columns for one row.
    pub fn aspect(&self) -> f64 {
        self.columns / self.rows
    }

    /// In a tensor of that width and height, turned upside down or not.
    pub fn lie_in(&self, (width, height): (u32, u32), is_turned: bool) -> Option<Alignment> {
        let columns = ((f64::from(height) * self.aspect()).ceil() as u32).clamp(1, width.max(1));
        let step = |side: [f64; 2], pixels: u32| {
            let sign = if is_turned { -1.0 } else { 1.0 };
            side.map(|along| sign * along / f64::from(pixels))
        };
        let (across, below) = (step(self.across, columns), step(self.down, height));
        // From the middle of the line to that of the first element, in the pixels that are cut out.
        let [to_left, to_top] = [columns, height].map(|pixels| (f64::from(pixels) - 1.0) / 2.0);
        let origin =
            [0, 1].map(|axis| self.middle[axis] - across[axis] * to_left - below[axis] * to_top - self.to_middle[axis]);
        Alignment::new(across, below, origin, [columns, height])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::rotated::RotatedBox;

    const FRAME: BBox = BBox::new(0.0, 0.0, 640.0, 480.0);

    fn rotated(x: f32, y: f32, width: f32, height: f32, angle: f32) -> Corners {
        RotatedBox { bbox: BBox::from_center(x, y, width, height), angle }.corners()
    }

    fn lie(corners: &Corners, size: (u32, u32)) -> Alignment {
        LineSides::of(corners).unwrap().lie_in(size, false).unwrap()
    }

    #[test]
    fn corners_are_whole_pixels_inside_the_frame() {
        let edges = |x: f32, y: f32, width: f32, height: f32| {
            let [[right, bottom], _, [left, top], _] = on_pixels(&rotated(x, y, width, height, 0.0), &FRAME);
            [left, top, right, bottom]
        };
        assert_eq!(edges(100.2, 50.0, 80.0, 10.0), [60.0, 45.0, 140.0, 55.0]);
        assert_eq!(edges(100.5, 50.5, 80.0, 10.0), [60.0, 46.0, 140.0, 56.0], "halves are rounded to even");
        assert_eq!(edges(10.0, 470.0, 80.0, 40.0), [0.0, 450.0, 50.0, 479.0]);
        assert_eq!(edges(620.0, 5.0, 80.0, 40.0), [580.0, 0.0, 639.0, 25.0]);
        // One that is turned, of which one corner alone is outside: moved, it would bend the line.
        let turned = rotated(40.0, 200.0, 100.0, 40.0, 0.7);
        assert!(turned.iter().any(|point| point[0] < -8.0) && turned.iter().any(|point| point[0] > 80.0));
        assert_eq!(on_pixels(&turned, &FRAME), turned.map(|point| point.map(f32::round_ties_even)));
        let nothing = [[f32::NAN; 2]; 4];
        assert!(LineSides::of(&on_pixels(&nothing, &FRAME)).is_none());
    }

    #[test]
    fn upright_lines_fill_the_columns_that_they_need() {
        // 103x20 in 48 rows: 247.2 columns.
        let line = lie(&rotated(100.5, 50.0, 103.0, 20.0, 0.0), (320, 48));
        assert_eq!(line.extent, [248, 48]);
        let [first, last] = [line.at(0.0, 0.0), line.at(247.0, 47.0)];
        // The first element is in the middle of its part of the first pixel, whose middle is 49, 40.
        let part = [103.0 / 248.0, 20.0 / 48.0];
        for (have, wanted) in [
            (first[0], 48.5 + part[0] / 2.0),
            (first[1], 39.5 + part[1] / 2.0),
            (last[0], 151.5 - part[0] / 2.0),
            (last[1], 59.5 - part[1] / 2.0),
        ] {
            assert!((f64::from(have) - wanted).abs() < 1e-4, "{have} is not {wanted}");
        }
        // Squeezed where there are fewer, and at their own size they are the pixels of the frame.
        assert_eq!(lie(&rotated(100.5, 50.0, 103.0, 20.0, 0.0), (200, 48)).extent, [200, 48]);
        let same = lie(&rotated(101.0, 50.0, 90.0, 48.0, 0.0), (320, 48));
        assert_eq!((same.extent, same.at(0.0, 0.0), same.at(89.0, 47.0)), ([90, 48], [56.0, 26.0], [145.0, 73.0]));
    }

    #[test]
    fn sides_that_are_no_whole_pixels_are_cut_off() {
        // 30.9 x 10.9: 30 columns and 10 rows, over all of both sides.
        let line = lie(&rotated(100.0, 50.0, 30.9, 10.9, 0.0), (99, 10));
        assert_eq!(line.extent, [30, 10]);
        let wanted = [30.9 / 30.0, 1.09].map(|step: f64| step as f32);
        assert!((line.across[0] - wanted[0]).abs() < 1e-5 && (line.below[1] - wanted[1]).abs() < 1e-5, "{line:?}");
        for (width, height) in [(0.9, 20.0), (20.0, 0.9), (f32::NAN, 2.0)] {
            assert!(LineSides::of(&rotated(100.0, 50.0, width, height, 0.0)).is_none(), "{width} {height}");
        }
        let endless = LineSides::of(&rotated(100.0, 50.0, f32::INFINITY, 2.0, 0.0));
        assert_eq!(endless.and_then(|line| line.lie_in((320, 48), false)), None);
    }

    #[test]
    fn rounded_corners_are_laid_by_the_means_of_their_sides() {
        // Its right side is 1 pixel further down than the left one, and a pixel longer.
        let corners = [[60.0, 29.0], [60.0, 21.0], [10.0, 20.0], [10.0, 27.0]];
        let line = lie(&corners, (55, 8));
        assert_eq!((line.extent, line.below), ([50, 8], [0.0, 7.5 / 8.0]));
        assert!(line.across[0] == 1.0 && (line.across[1] - 1.5 / 50.0).abs() < 1e-6, "{line:?}");
        // The middle of the line. It is half a pixel of the cut less than the mean of the corners.
        let [x, y] = line.at(24.5, 3.5);
        let (wanted_x, wanted_y) = (35.0 - 0.5, 24.25 - (1.5 / 50.0 + 7.5 / 8.0) / 2.0);
        assert!((x - wanted_x).abs() < 1e-3 && (y - wanted_y).abs() < 1e-3, "{x} {y}");
    }

    #[test]
    fn lines_run_down_from_half_as_high_again_as_wide_on() {
        let along = |width: f32, height: f32| lie(&rotated(100.0, 50.0, width, height, 0.0), (320, 48)).across;
        assert!(along(20.0, 29.0)[0] > 0.0 && along(20.0, 29.0)[1] == 0.0);
        assert!(along(20.0, 30.0)[1] > 0.0 && along(20.0, 30.0)[0] == 0.0);
        // By the pixels that are cut out: 20.9 x 30.9 are 20 x 30.
        assert!(along(20.9, 30.9)[1] > 0.0);
    }
}
