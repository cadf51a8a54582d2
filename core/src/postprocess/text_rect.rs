// SPDX-License-Identifier: MPL-2.0
//! The rectangles of texts, as PP-OCR makes them of the pixels of a region.
//!
//! Around the pixels lies the rectangle of the smallest area. Its corners are cut off to whole pixels, towards 0. Each side moves outwards
//! by the area of the rectangle times a factor, divided by its perimeter, and each corner becomes an arc. Points of the arc are rounded to
//! whole pixels. Around all of them lies the rectangle of the smallest area again. So an upright text has whole pixels for corners.
//!
//! PP-OCR moves the sides by Clipper, with round joins and its usual arc tolerance: the documentation of `ClipperOffset` says how many
//! points an arc has. Rectangles are OpenCV's, whose single precision matters where corners are cut off.
//!
//! Places are indexes of pixels, as PP-OCR counts them: 0 is the middle of the first one.

use std::f64::consts::{PI, TAU};

use crate::image::Candidate;
use crate::image::geometry::BBox;

/// How far the sides between the points of an arc may be from it, in pixels. Of arcs with a radius below 1 it is that part of the radius.
const ARC_TOLERANCE: f64 = 0.25;

/// What rounding may take off a number.
const ROUNDING: f64 = 1e-9;

/// A rectangle around its centre, whose width lies along a direction of the length 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TextRect {
    center: [f64; 2],
    width: f64,
    height: f64,
    along: [f64; 2],
    /// Clockwise in the picture, as OpenCV has them.
    corners: [[f64; 2]; 4],
}

impl TextRect {
    /// The one of the smallest area around points in the order of their rows, and in each row from the left; `None` where these lie on
    /// a line.
    pub fn around(points: &[[f64; 2]]) -> Option<Self> {
        smallest(&hull(points))
    }

    fn area(&self) -> f64 {
        self.width * self.height
    }

    pub fn shorter_side(&self) -> f64 {
        self.width.min(self.height)
    }

    /// The mean of the pixels of a map that are in it. Those that are not finite count as 0.
    pub fn mean(&self, map: &[f32], (width, height): (usize, usize)) -> f32 {
        let [x, y] = self.center;
        let [cos, sin] = self.along.map(f64::abs);
        let (half_width, half_height) = (self.width / 2.0 + ROUNDING, self.height / 2.0 + ROUNDING);
        let (across, down) = (half_width * cos + half_height * sin, half_width * sin + half_height * cos);
        // Rows and columns with a pixel in it, and some more.
        let range = |middle: f64, half: f64, side: usize| {
            ((middle - half).floor().max(0.0) as usize)..((middle + half).floor() as usize + 1).min(side)
        };
        let (mut sum, mut count) = (0.0, 0u32);
        for row in range(y, down, height) {
            for column in range(x, across, width) {
                let (dx, dy) = (column as f64 - x, row as f64 - y);
                let along = dx * self.along[0] + dy * self.along[1];
                let beyond = dy * self.along[0] - dx * self.along[1];
                if along.abs() <= half_width && beyond.abs() <= half_height {
                    let value = f64::from(map[row * width + column]);
                    sum += if value.is_finite() { value } else { 0.0 };
                    count += 1;
                }
            }
        }
        if count == 0 { 0.0 } else { (sum / f64::from(count)) as f32 }
    }

    /// The larger one around it, by that factor.
    pub fn grown(&self, growth: f64) -> Option<Self> {
        let [first, second, third, _] = self.corners;
        let side = |from: [f64; 2], to: [f64; 2]| (to[0] - from[0]).hypot(to[1] - from[1]);
        let (width, height) = (side(first, second), side(second, third));
        let by = width * height * growth / (2.0 * (width + height));
        let whole = |at: f64| (at + ROUNDING.copysign(at)) as i64;
        let mut points = offset(&self.corners.map(|corner| corner.map(whole)), by);
        points.sort_unstable_by_key(|&[x, y]| [y, x]);
        points.dedup();
        let points: Vec<[f64; 2]> = points.into_iter().map(|point| point.map(|at| at as f64)).collect();
        TextRect::around(&points)
    }

    /// The same in pixels of the model's input. Its width is scaled as it is across, as those of other rotated boxes are.
    pub fn candidate(&self, [across, down]: [f64; 2], score: f32, row: u32) -> Candidate {
        let [x, y] = self.center;
        let sizes = [x * across, y * down, self.width * across, self.height * down].map(|number| number as f32);
        let [x, y, width, height] = sizes;
        let angle = self.along[1].atan2(self.along[0]) as f32;
        Candidate { bbox: BBox::from_center(x, y, width, height), score, class: 0, row, angle }
    }
}

/// Points of the polygon at that distance around another one, whose corners go clockwise in the picture. The arc of a corner begins at the
/// side before it, has points at equal angles from there, and one at the side behind it.
fn offset(corners: &[[i64; 2]; 4], by: f64) -> Vec<[i64; 2]> {
    if by <= 0.0 {
        return corners.to_vec();
    }
    // The angle between two points whose connecting line is that far from the arc.
    let tolerance = ARC_TOLERANCE.min(by * ARC_TOLERANCE);
    let points_of_turn = (PI / (1.0 - tolerance / by).acos()).min(by * PI);
    let normals = [0, 1, 2, 3].map(|side| {
        let ([x, y], [to_x, to_y]) = (corners[side], corners[(side + 1) % 4]);
        let (dx, dy) = ((to_x - x) as f64, (to_y - y) as f64);
        let length = dx.hypot(dy);
        [dy / length, -dx / length]
    });
    let mut points = Vec::new();
    for (at, corner) in corners.iter().enumerate() {
        let (before @ [x, y], behind @ [u, v]) = (normals[(at + 3) % 4], normals[at]);
        let turn = (x * v - y * u).atan2(x * u + y * v);
        let count = ((points_of_turn * turn.abs() / TAU).round() as u32).max(1);
        let turned = |number: u32| {
            let (sin, cos) = (f64::from(number) * TAU / points_of_turn).sin_cos();
            [before[0] * cos - before[1] * sin, before[0] * sin + before[1] * cos]
        };
        let directions = (0..count).map(turned).chain([behind]);
        points.extend(directions.map(|to| [0, 1].map(|axis| (corner[axis] as f64 + to[axis] * by).round() as i64)));
    }
    points
}

/// Whether the way from a by b to c turns: above 0 to one side, below 0 to the other.
fn turn(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// The corners of the smallest convex polygon around points in the order of their rows, and in each row from the left.
fn hull(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut corners = half_hull(points.iter().copied());
    corners.extend(half_hull(points.iter().rev().copied()));
    corners
}

/// Those of one side, from the first point to before the last.
fn half_hull(points: impl Iterator<Item = [f64; 2]>) -> Vec<[f64; 2]> {
    let mut corners: Vec<[f64; 2]> = Vec::new();
    for point in points {
        while let [.., a, b] = corners[..]
            && turn(a, b, point) <= 0.0
        {
            corners.pop();
        }
        corners.push(point);
    }
    corners.pop();
    corners
}

/// The least and the greatest of some numbers.
fn ends(numbers: impl Iterator<Item = f64>) -> [f64; 2] {
    numbers.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], number| [least.min(number), most.max(number)])
}

/// The rectangle of the smallest area around a convex polygon: one of its sides lies along a side of that. `None` without an area.
fn smallest(hull: &[[f64; 2]]) -> Option<TextRect> {
    let sides = hull.iter().zip(hull.iter().cycle().skip(1));
    let rects = sides.filter_map(|(a, b)| {
        let (x, y) = (b[0] - a[0], b[1] - a[1]);
        let length = x.hypot(y);
        let along = [x / length, y / length];
        let range = |[x, y]: [f64; 2]| ends(hull.iter().map(|point| point[0] * x + point[1] * y));
        let ([left, right], [top, bottom]) = (range(along), range([-along[1], along[0]]));
        let (middle, down) = ((left + right) / 2.0, (top + bottom) / 2.0);
        let center = [middle * along[0] - down * along[1], middle * along[1] + down * along[0]];
        let rect = TextRect { center, width: right - left, height: bottom - top, along, corners: [[0.0; 2]; 4] };
        (length > 0.0).then_some(rect)
    });
    let rect = rects.min_by(|a, b| a.area().total_cmp(&b.area())).filter(|rect| rect.area() > 0.0)?;
    let is_upright = rect.along.contains(&0.0);
    Some(TextRect { corners: if is_upright { upright_corners(hull) } else { turned_corners(&rect) }, ..rect })
}

fn turned_corners(&TextRect { center: [x, y], width, height, along: [cos, sin], .. }: &TextRect) -> [[f64; 2]; 4] {
    [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]].map(|[right, down]| {
        let (across, below) = (right * width, down * height);
        [x + across * cos - below * sin, y + across * sin + below * cos]
    })
}

/// The corners of the upright rectangle around a convex polygon whose corners are whole pixels, as `minAreaRect` and `boxPoints` of
/// OpenCV 5 have them, in single precision and in that order.
///
/// OpenCV turns the rectangle by a quarter, from side to side of the polygon, and takes the last one of the smallest area. The first ones
/// lie along the right, lower and left side, if the polygon has these. If it has an upper side, the last one has turned by a quarter, and
/// is that along the first of these four sides. A side is divided by its length. Of some lengths, such as 41, a bit less than 1 is
/// left. Then the area comes out less too, and corners as a bit less than whole numbers, or not, as rounding has it. As they are cut off,
/// one in several texts has a corner one pixel less.
fn upright_corners(hull: &[[f64; 2]]) -> [[f64; 2]; 4] {
    let along = |axis: usize| ends(hull.iter().map(|point| point[axis]));
    let ([left, right], [top, bottom]) = (along(0), along(1));
    // What is left of 1, of the side of the polygon on that edge, if it has one.
    let unit = |axis: usize, edge: f64| {
        let on_edge = hull.iter().filter(|point| point[axis] == edge);
        let [first, last] = ends(on_edge.map(|point| point[1 - axis]));
        let length = (last - first) as f32;
        (length > 0.0).then(|| length * (1.0 / f64::from(length)) as f32)
    };
    let first_ones = [unit(0, right), unit(1, bottom), unit(0, left)];
    let of_last = unit(1, top).map_or(1.0, |of_top| first_ones.into_iter().flatten().next().unwrap_or(of_top));
    let factor = first_ones.into_iter().flatten().fold(of_last, f32::min);
    let corner = |place: f64| (place as f32 * factor * factor) * (1.0 / (factor * factor));
    let half = |from: f64, to: f64| (to - from) as f32 * factor * factor * 0.5;
    let (half_width, half_height) = (half(left, right), half(top, bottom));
    let x = if of_last < 1.0 { corner(right) - half_width } else { corner(left) + half_width };
    let y = corner(top) + half_height;
    let (first_x, second_x, lower) = (x + half_width, x - half_width, y + half_height);
    let (third_x, fourth_x, upper) = (2.0 * x - first_x, 2.0 * x - second_x, 2.0 * y - lower);
    [[first_x, lower], [second_x, lower], [third_x, upper], [fourth_x, upper]].map(|corner| corner.map(f64::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upright, from the first column and row to the last ones.
    fn upright([left, top]: [f64; 2], [right, bottom]: [f64; 2]) -> TextRect {
        TextRect::around(&[[left, top], [right, top], [left, bottom], [right, bottom]]).unwrap()
    }

    /// Left, top, right and bottom of one that is upright.
    #[track_caller]
    fn edges(rect: &TextRect) -> [f64; 4] {
        let corners = turned_corners(rect);
        let [xs, ys] = [0, 1].map(|axis| corners.map(|corner| corner[axis]));
        let least = |places: [f64; 4]| places.into_iter().fold(f64::INFINITY, f64::min);
        let most = |places: [f64; 4]| places.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let edges = [least(xs), least(ys), most(xs), most(ys)];
        assert!(corners.iter().all(|[x, y]| edges.contains(x) && edges.contains(y)), "{rect:?} is not upright");
        edges
    }

    #[test]
    fn upright_texts_have_whole_pixels_for_corners() {
        for (first, last, growth, wanted) in [
            // 400 · 1.5 / 100 = 6.
            ([20.0, 25.0], [60.0, 35.0], 1.5, [14.0, 19.0, 66.0, 41.0]),
            // 273 · 1.5 / 92 = 4.45: 12 - 4.45 is rounded up, 51 + 4.45 down.
            ([12.0, 28.0], [51.0, 35.0], 1.5, [8.0, 24.0, 55.0, 39.0]),
            // 625 · 2 / 100 = 12.5: halves go away from 0, on both sides.
            ([100.0, 5.0], [125.0, 30.0], 2.0, [88.0, -8.0, 138.0, 43.0]),
            ([20.0, 25.0], [60.0, 35.0], 0.0, [20.0, 25.0, 60.0, 35.0]),
            ([259.0, 64.0], [299.0, 75.0], 0.0, [259.0, 64.0, 299.0, 75.0]),
            // 41 divided by 41 is less than 1, and so are corners than whole numbers, but not all of them.
            ([259.0, 64.0], [300.0, 75.0], 0.0, [258.0, 64.0, 299.0, 75.0]),
            ([20.0, 25.0], [61.0, 36.0], 0.0, [19.0, 25.0, 60.0, 36.0]),
        ] {
            assert_eq!(edges(&upright(first, last).grown(growth).unwrap()), wanted, "{first:?} {growth}");
        }
    }

    #[test]
    fn corners_of_turned_texts_are_cut_off_first() {
        // A square on its corner. Nothing is added, so that its corners alone are seen: 9.9 is 9, and -0.9 is 0.
        let side = 8.0;
        let along = [0.5f64.sqrt(); 2];
        let rect = TextRect { center: [9.9, 4.75], width: side, height: side, along, corners: [[0.0; 2]; 4] };
        let rect = TextRect { corners: turned_corners(&rect), ..rect };
        let corners = rect.corners.map(|corner| corner.map(|at| (at * 100.0).round() / 100.0));
        assert_eq!(corners, [[9.9, -0.91], [15.56, 4.75], [9.9, 10.41], [4.24, 4.75]]);
        let grown = rect.grown(0.0).unwrap();
        // The rectangle around (9, 0), (15, 4), (9, 10) and (4, 4): each corner is in it, and one side lies on two of them.
        let half = [grown.width / 2.0 + 1e-9, grown.height / 2.0 + 1e-9];
        let beyond = [[9.0, 0.0], [15.0, 4.0], [9.0, 10.0], [4.0, 4.0]].map(|[x, y]: [f64; 2]| {
            let (dx, dy) = (x - grown.center[0], y - grown.center[1]);
            let [cos, sin] = grown.along;
            [(dx * cos + dy * sin).abs() - half[0], (dy * cos - dx * sin).abs() - half[1]]
        });
        assert!(beyond.as_flattened().iter().all(|&beyond| beyond <= 0.0), "{grown:?} {beyond:?}");
        let on_edge = beyond.as_flattened().iter().filter(|&&beyond| beyond > -1e-6).count();
        assert!(on_edge >= 5, "{grown:?} {beyond:?}");
    }

    #[test]
    fn arcs_have_as_many_points_as_their_radius_needs() {
        let square = [[0, 0], [100, 0], [100, 100], [0, 100]];
        // A side of a polygon in an arc of 60 pixels that is a quarter pixel from it: an angle of 2 · acos(1 - 0.25 / 60).
        let [small, large] = [offset(&square, 1.0), offset(&square, 60.0)];
        assert_eq!((small.len(), large.len()), (8, 4 * 10));
        // The first corner: from the left side to the upper one.
        assert_eq!((&large[..2], large[9]), (&[[-60, 0], [-59, -11]][..], [0, -60]));
        assert!(large[..10].iter().all(|&[x, y]| ((x as f64).hypot(y as f64) - 60.0).abs() < 0.75), "{large:?}");
        assert_eq!(small[..2], [[-1, 0], [0, -1]]);
    }

    #[test]
    fn the_mean_is_that_of_the_pixels_inside() {
        let map: Vec<f32> = (0..64).map(|at| if at % 8 < 4 { 1.0 } else { 0.0 }).collect();
        let mean = |first: [f64; 2], last: [f64; 2]| upright(first, last).mean(&map, (8, 8));
        assert_eq!([mean([0.0, 0.0], [3.0, 7.0]), mean([0.0, 0.0], [7.0, 7.0])], [1.0, 0.5]);
        assert_eq!([mean([3.0, 1.0], [4.0, 2.0]), mean([-9.0, -9.0], [3.0, 20.0])], [0.5, 1.0]);
        assert_eq!(mean([20.0, 20.0], [30.0, 30.0]), 0.0, "outside");
    }

    #[test]
    fn points_on_a_line_have_no_rectangle() {
        assert_eq!(TextRect::around(&[[4.0, 2.0]]), None);
        assert_eq!(TextRect::around(&[[4.0, 2.0], [5.0, 3.0], [6.0, 4.0]]), None);
        assert_eq!(TextRect::around(&[]), None);
    }
}
