// SPDX-License-Identifier: MPL-2.0
//! Objects that are turned upright. Faces are laid upon each other by their landmarks: turned and scaled until eyes, nose and mouth are
//! where models of faces were trained to see them. Rotated boxes are laid with their longer side across.

mod line;

use line::LineSides;

use super::geometry::{BBox, Rect};
use super::keypoints::ObjectKeypoints;
use super::rotated::Corners;
use super::transform::InputSpec;
use crate::options::choices;

/// How objects become pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    #[default]
    None,
    Face,
    Box,
    Line,
}

choices! {
    Align, "GstTrtAlign":
    Align::None => "none" "By their boxes"
    Align::Face => "face" "Faces by their five landmarks, upright, as ArcFace wants them; other objects by their boxes"
    Align::Box => "box" "By their boxes, rotated ones upright, with the longer side across, at the left of the tensor"
    Align::Line => "line" "As boxes, but what is longer than the tensor is squeezed into it, as PP-OCR does; for lines of text"
}

/// Both eyes, the nose and both corners of the mouth, the left ones in the picture first, in pixels of the frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaceLandmarks(pub [[f32; 2]; 5]);

/// Where they are in a picture of ArcFace, whose sides have [`TEMPLATE_SIDE`] pixels.
const TEMPLATE: [[f64; 2]; 5] =
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]];

const TEMPLATE_SIDE: f64 = 112.0;

/// The sum of the squares of the landmarks' distances from their middle, in pixels. With less they are in one place.
const LEAST_SPREAD: f64 = 1.0;

/// Both sides of a box, in pixels. What is smaller is cut by its rectangle.
const LEAST_SIDE: f64 = 1.0;

/// An upright box that is so many times as high as wide is a text that runs down, as PP-OCR has it.
const RUNS_DOWN: f64 = 1.5;

/// Turns, scales and moves what is in a tensor to where it is in the frame. Both count from the middle of their first pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alignment {
    /// How far one column to the right goes in the frame: to the right, and down.
    pub across: [f32; 2],
    /// And one row down.
    pub below: [f32; 2],
    /// Where the first pixel is.
    pub origin: [f32; 2],
    /// How many columns and rows of the tensor show it. The others are padding.
    pub extent: [u32; 2],
}

/// A part of a frame that becomes a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crop {
    pub source: Rect,
    /// It is cut by this, and not by the rectangle.
    pub shape: Option<CropShape>,
    /// Of a box: it is known to be upside down.
    pub is_turned: bool,
    /// Of a box: the width of its tensor, where that is not the width of the others.
    pub width: Option<u32>,
}

/// What is turned upright.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CropShape {
    Face(FaceLandmarks),
    /// A box that may be rotated, by its corners in pixels of the frame.
    Box(Corners),
    /// The same with a line of text in it, which is as high as the tensor. Of [`CropShape::line`] the corners are whole pixels.
    Line(Corners),
}

impl From<Rect> for Crop {
    fn from(source: Rect) -> Self {
        Crop { source, shape: None, is_turned: false, width: None }
    }
}

impl Crop {
    /// How it is laid into the tensor by its shape; `None` where it is cut by its rectangle.
    pub fn alignment(&self, spec: &InputSpec) -> Option<Alignment> {
        let (_, height, width) = spec.chw();
        let (width, height) = (width as u32, height as u32);
        match &self.shape? {
            CropShape::Face(landmarks) => Alignment::of_face(landmarks, (width, height)),
            CropShape::Box(corners) => Alignment::of_box(corners, self.size_of(width, height), self.is_turned),
            CropShape::Line(corners) => Alignment::of_line(corners, self.size_of(width, height), self.is_turned),
        }
    }

    /// Width and height of its tensor.
    pub fn size(&self, spec: &InputSpec) -> (u32, u32) {
        let (_, height, width) = spec.chw();
        let is_box =
            self.shape.as_ref().is_some_and(|shape| shape.corners().is_some()) && self.alignment(spec).is_some();
        (self.width.filter(|_| is_box).unwrap_or(width as u32), height as u32)
    }

    fn size_of(&self, width: u32, height: u32) -> (u32, u32) {
        (self.width.unwrap_or(width), height)
    }
}

impl CropShape {
    /// The line of text with these corners in a frame, on whole pixels inside it, as PP-OCR takes them.
    pub fn line(corners: &Corners, frame: &BBox) -> Self {
        CropShape::Line(line::on_pixels(corners, frame))
    }

    /// How many columns a box needs for each row of its tensor, to keep its aspect.
    pub fn aspect(&self) -> Option<f64> {
        match self {
            CropShape::Box(corners) => TextSides::of(corners).map(|sides| sides.length / sides.down),
            CropShape::Line(corners) => LineSides::of(corners).map(|sides| sides.aspect()),
            CropShape::Face(_) => None,
        }
    }

    /// Of a box.
    pub fn corners(&self) -> Option<&Corners> {
        match self {
            CropShape::Box(corners) | CropShape::Line(corners) => Some(corners),
            CropShape::Face(_) => None,
        }
    }
}

impl FaceLandmarks {
    /// The keypoints of an object that has five, if all are known.
    pub fn of(keypoints: &ObjectKeypoints) -> Option<Self> {
        let dims = usize::from(keypoints.shape.dims);
        if keypoints.shape.count != 5 || dims < 2 || keypoints.values.len() != keypoints.shape.numbers() {
            return None;
        }
        let point = |number: usize| [keypoints.values[number * dims], keypoints.values[number * dims + 1]];
        let points = [0, 1, 2, 3, 4].map(point);
        let is_known = |[x, y]: &[f32; 2]| x.is_finite() && y.is_finite() && (*x, *y) != (0.0, 0.0);
        points.iter().all(is_known).then_some(FaceLandmarks(points))
    }
}

impl Alignment {
    /// The one that lays the landmarks upon those of ArcFace with the least squares of distances in the tensor, whose width and
    /// height these are. The template is as high as the tensor, and in the middle of its width. `None` where all landmarks are in
    /// one place, or are so far apart that `f32` does not hold the numbers.
    ///
    /// That is Umeyama's estimate without reflection. With points as complex numbers it is a division: the tensor's points are
    /// `z` times those of the frame, and `z` is the mean of `conj(frame) × tensor` over that of `|frame|²`, both from their means.
    pub fn of_face(FaceLandmarks(points): &FaceLandmarks, (width, height): (u32, u32)) -> Option<Self> {
        let scale = f64::from(height) / TEMPLATE_SIDE;
        let left = (f64::from(width) - f64::from(height)) / 2.0;
        let wanted = TEMPLATE.map(|[x, y]| [x * scale + left, y * scale]);
        let points = points.map(|point| point.map(f64::from));
        let (middle, wanted_middle) = (mean(&points), mean(&wanted));
        let (mut real, mut imaginary, mut squares) = (0.0, 0.0, 0.0);
        for (point, wanted) in points.iter().zip(&wanted) {
            let [x, y] = [point[0] - middle[0], point[1] - middle[1]];
            let [u, v] = [wanted[0] - wanted_middle[0], wanted[1] - wanted_middle[1]];
            real += x * u + y * v;
            imaginary += x * v - y * u;
            squares += x * x + y * y;
        }
        // From the tensor to the frame it is 1/z.
        let size = real * real + imaginary * imaginary;
        let [a, b] = [squares * real / size, -squares * imaginary / size];
        let [u, v] = wanted_middle;
        let origin = [middle[0] - (a * u - b * v), middle[1] - (b * u + a * v)];
        let found = Alignment::new([a, b], [-b, a], origin, [width, height])?;
        (squares >= LEAST_SPREAD).then_some(found)
    }

    /// The one that lays a box with its longer side across, as large as it fits into the tensor, whose width and height these are, and at
    /// its upper left. A text reads from left to right then, or from top to bottom where the box stands upright. `None` where the box
    /// is smaller than a pixel, or is none. One that `is_turned` is upside down, and so reads the other way.
    pub fn of_box(corners: &Corners, size: (u32, u32), is_turned: bool) -> Option<Self> {
        TextSides::of(corners)?.lie_in(size, is_turned)
    }

    /// The same for a line of text, which is always as high as the tensor. A line that is longer is squeezed, as PP-OCR does.
    pub fn of_line(corners: &Corners, size: (u32, u32), is_turned: bool) -> Option<Self> {
        LineSides::of(corners)?.lie_in(size, is_turned)
    }

    /// `None` where `f32` does not hold the numbers.
    fn new(across: [f64; 2], below: [f64; 2], origin: [f64; 2], extent: [u32; 2]) -> Option<Self> {
        let [across, below, origin] = [across, below, origin].map(|pair| pair.map(|number| number as f32));
        let is_finite = [across, below, origin].iter().flatten().all(|number| number.is_finite());
        is_finite.then_some(Alignment { across, below, origin, extent })
    }

    /// Where the middle of a pixel of the tensor is in the frame. `f32`, each operation rounded by itself, in this order.
    #[inline(always)]
    pub fn at(&self, column: f32, row: f32) -> [f32; 2] {
        let ([a, b], [c, d], [x, y]) = (self.across, self.below, self.origin);
        [(a * column + c * row) + x, (b * column + d * row) + y]
    }
}

/// How a text lies in its box.
struct TextSides {
    middle: [f64; 2],
    /// The direction in which it reads, of the length 1.
    across: [f64; 2],
    /// The side in that direction, and the other one.
    length: f64,
    down: f64,
}

impl TextSides {
    /// `None` where the box is smaller than a pixel, or is none.
    fn of(corners: &Corners) -> Option<Self> {
        // They go around the box, so two sides and their turns are all.
        let [first, second, third, _] = corners.map(|point| point.map(f64::from));
        let middle = [0, 1].map(|axis| (first[axis] + third[axis]) / 2.0);
        let sides = [(second, first), (third, second)].map(|(from, to)| [to[0] - from[0], to[1] - from[1]]);
        let length = |[x, y]: [f64; 2]| x.hypot(y);
        let [long, short] = if length(sides[0]) > length(sides[1]) { sides } else { [sides[1], sides[0]] };
        // As PP-OCR sorts corners: the two at the left are of one long side where the box stands.
        let stands = long[0].abs() < short[0].abs();
        let runs_down = stands && length(long) >= RUNS_DOWN * length(short);
        let (across, down) = if stands && !runs_down { (short, length(long)) } else { (long, length(short)) };
        let is_backwards = if runs_down { across[1] < 0.0 } else { across[0] < 0.0 };
        let length = length(across);
        if !(length >= LEAST_SIDE && down >= LEAST_SIDE) {
            return None;
        }
        let across = across.map(|along| if is_backwards { -along / length } else { along / length });
        Some(TextSides { middle, across, length, down })
    }

    /// In a tensor of that width and height, turned upside down or not.
    fn lie_in(&self, (width, height): (u32, u32), is_turned: bool) -> Option<Alignment> {
        let TextSides { middle, across, length, down } = *self;
        let [x, y] = if is_turned { across.map(|along| -along) } else { across };
        let step = (length / f64::from(width)).max(down / f64::from(height));
        let pixels = |side: f64, most: u32| ((side / step).round() as u32).clamp(1, most);
        // From the corner to the middle of the first pixel; a quarter turn on from (x, y) is (-y, x).
        let (along, below) = ((step - length) / 2.0, (step - down) / 2.0);
        let origin = [middle[0] + x * along - y * below - 0.5, middle[1] + y * along + x * below - 0.5];
        let extent = [pixels(length, width), pixels(down, height)];
        Alignment::new([x * step, y * step], [-y * step, x * step], origin, extent)
    }
}

fn mean(points: &[[f64; 2]; 5]) -> [f64; 2] {
    [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::keypoints::KeypointShape;
    use proptest::prelude::*;

    /// The template, turned by an angle, scaled and moved.
    fn turned(angle: f64, scale: f64, [x, y]: [f64; 2]) -> FaceLandmarks {
        let (sin, cos) = angle.sin_cos();
        let place = |[u, v]: [f64; 2]| [scale * (cos * u - sin * v) + x, scale * (sin * u + cos * v) + y];
        FaceLandmarks(TEMPLATE.map(|point| place(point).map(|at| at as f32)))
    }

    #[track_caller]
    fn assert_near(have: [f32; 4], wanted: [f64; 4]) {
        let is_near = have.iter().zip(wanted).all(|(have, wanted)| (f64::from(*have) - wanted).abs() < 2e-3);
        assert!(is_near, "{have:?} is not {wanted:?}");
    }

    fn numbers(Alignment { across: [a, b], origin: [x, y], .. }: Alignment) -> [f32; 4] {
        [a, b, x, y]
    }

    #[test]
    fn a_face_like_the_template_is_found_as_it_lies() {
        let of = |landmarks: &FaceLandmarks, size| numbers(Alignment::of_face(landmarks, size).unwrap());
        let as_it_is = turned(0.0, 1.0, [0.0, 0.0]);
        assert_near(of(&as_it_is, (112, 112)), [1.0, 0.0, 0.0, 0.0]);
        // Half as many pixels are as far; the template is in the middle of the width.
        assert_near(of(&as_it_is, (56, 56)), [2.0, 0.0, 0.0, 0.0]);
        assert_near(of(&as_it_is, (96, 112)), [1.0, 0.0, 8.0, 0.0]);
        assert_near(of(&as_it_is, (132, 112)), [1.0, 0.0, -10.0, 0.0]);
        // Upside down, and by a quarter turn.
        assert_near(of(&turned(std::f64::consts::PI, 3.0, [500.0, 400.0]), (112, 112)), [-3.0, 0.0, 500.0, 400.0]);
        let quarter = turned(std::f64::consts::FRAC_PI_2, 2.0, [300.0, 10.0]);
        let quarter = Alignment::of_face(&quarter, (112, 112)).unwrap();
        assert_near(numbers(quarter), [0.0, 2.0, 300.0, 10.0]);
        let [x, y] = quarter.at(10.0, 5.0);
        assert!((x - 290.0).abs() < 1e-2 && (y - 30.0).abs() < 1e-2, "{x} {y}");
    }

    #[test]
    fn boxes_lie_with_their_longer_side_across() {
        use crate::image::rotated::RotatedBox;
        use std::f32::consts::{FRAC_PI_2, FRAC_PI_6};
        let of = |width: f32, height: f32, angle: f32, size| {
            let bbox = BBox::from_center(100.0, 50.0, width, height);
            let found = Alignment::of_box(&RotatedBox { bbox, angle }.corners(), size, false).unwrap();
            (numbers(found), found.extent)
        };
        let check = |(have, extent): ([f32; 4], [u32; 2]), wanted: [f64; 4], shown: [u32; 2]| {
            assert_near(have, wanted);
            assert_eq!(extent, shown);
        };
        // 40x20 in 64x16: as high as the tensor, and padded at the right. A pixel of the tensor is 1.25 pixels of the frame.
        check(of(40.0, 20.0, 0.0, (64, 16)), [1.25, 0.0, 80.125, 40.125], [32, 16]);
        // In 16x16 it is padded below.
        check(of(40.0, 20.0, 0.0, (16, 16)), [2.5, 0.0, 80.75, 40.75], [16, 8]);
        // One that stands runs down: the tensor's columns go down the frame, and its rows to the left.
        check(of(20.0, 40.0, 0.0, (64, 16)), [0.0, 1.25, 108.875, 30.125], [32, 16]);
        // But not if it is nearly square.
        check(of(20.0, 24.0, 0.0, (64, 16)), [1.5, 0.0, 90.25, 38.25], [13, 16]);
        // Turned by 30 degrees, in both ways to say it; and uphill, whose angle counts from the shorter side.
        let (sin, cos) = (0.5, 0.75_f64.sqrt());
        let turned = of(40.0, 20.0, FRAC_PI_6, (40, 20));
        check(turned, [cos, sin, 100.0 - 19.5 * cos + 9.5 * sin - 0.5, 50.0 - 19.5 * sin - 9.5 * cos - 0.5], [40, 20]);
        let other = of(20.0, 40.0, FRAC_PI_6 + FRAC_PI_2, (40, 20));
        check(other, turned.0.map(f64::from), [40, 20]);
        let uphill = of(20.0, 40.0, FRAC_PI_2 - FRAC_PI_6, (40, 20));
        check(uphill, [cos, -sin, 100.0 - 19.5 * cos - 9.5 * sin - 0.5, 50.0 + 19.5 * sin - 9.5 * cos - 0.5], [40, 20]);
        for (width, height) in [(0.0, 20.0), (20.0, 0.5), (f32::NAN, 2.0), (f32::INFINITY, 2.0)] {
            let bbox = BBox::from_center(100.0, 50.0, width, height);
            assert_eq!(
                Alignment::of_box(&RotatedBox { bbox, angle: 0.0 }.corners(), (8, 8), false),
                None,
                "{width} {height}"
            );
        }
    }

    #[test]
    fn lines_that_are_longer_than_the_tensor_are_squeezed() {
        use crate::image::rotated::RotatedBox;
        let bbox = BBox::from_center(100.0, 50.0, 80.0, 10.0);
        let corners = RotatedBox { bbox, angle: 0.0 }.corners();
        let [upright, turned] =
            [false, true].map(|is_turned| Alignment::of_line(&corners, (20, 5), is_turned).unwrap());
        assert_eq!((upright.across, upright.below, upright.extent), ([4.0, 0.0], [0.0, 2.0], [20, 5]));
        // The middles of the first and the last pixel, from the middles of the frame's.
        assert_eq!([upright.at(0.0, 0.0), upright.at(19.0, 4.0)], [[61.5, 45.5], [137.5, 53.5]]);
        assert_eq!([turned.at(0.0, 0.0), turned.at(19.0, 4.0)], [[137.5, 53.5], [61.5, 45.5]]);
        let stands = RotatedBox { bbox: BBox::from_center(100.0, 50.0, 10.0, 80.0), angle: 0.0 }.corners();
        let down = Alignment::of_line(&stands, (20, 5), false).unwrap();
        assert_eq!((down.across, down.below), ([0.0, 4.0], [-2.0, 0.0]));
        // What is short is a box.
        let wide = (200, 5);
        assert_eq!(Alignment::of_line(&corners, wide, true), Alignment::of_box(&corners, wide, true));
    }

    #[test]
    fn boxes_that_are_upside_down_read_from_the_other_end() {
        use crate::image::rotated::RotatedBox;
        for (width, height, angle) in [(40.0, 20.0, 0.0), (40.0, 20.0, 0.5), (20.0, 40.0, 0.0), (20.0, 40.0, 0.25)] {
            let corners = RotatedBox { bbox: BBox::from_center(100.0, 50.0, width, height), angle }.corners();
            let [upright, turned] =
                [false, true].map(|is_turned| Alignment::of_box(&corners, (64, 16), is_turned).unwrap());
            assert_eq!((turned.extent, turned.across), (upright.extent, upright.across.map(|along| -along)));
            // What is at the upper left of one is at the lower right of the other.
            let [columns, rows] = upright.extent.map(|pixels| pixels as f32 - 1.0);
            for [column, row] in [[0.0, 0.0], [3.0, 5.0], [columns, rows]] {
                let ([x, y], [u, v]) = (upright.at(column, row), turned.at(columns - column, rows - row));
                assert!((x - u).abs() < 1e-3 && (y - v).abs() < 1e-3, "{x},{y} is not {u},{v}");
            }
        }
    }

    #[test]
    fn points_in_one_place_are_no_face() {
        for point in [[0.0, 0.0], [17.0, 4.0]] {
            assert_eq!(Alignment::of_face(&FaceLandmarks([point; 5]), (112, 112)), None);
        }
        let far = FaceLandmarks([[f32::MAX, 0.0], [-f32::MAX, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0]]);
        let found = Alignment::of_face(&far, (112, 112));
        assert!(found.is_none_or(|found| numbers(found).iter().all(|number| number.is_finite())), "{found:?}");
    }

    #[test]
    fn landmarks_are_five_known_points() {
        let of = |count: u16, dims: u8, values: &[f32]| {
            FaceLandmarks::of(&ObjectKeypoints { shape: KeypointShape { count, dims }, values: values.into() })
        };
        let pairs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
        let points = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 10.0]];
        assert_eq!(of(5, 2, &pairs), Some(FaceLandmarks(points)));
        let seen: Vec<f32> = points.iter().flat_map(|&[x, y]| [x, y, 0.5]).collect();
        assert_eq!(of(5, 3, &seen), Some(FaceLandmarks(points)));
        let mut unknown = pairs;
        (unknown[4], unknown[5]) = (0.0, 0.0);
        let mut endless = pairs;
        endless[7] = f32::INFINITY;
        let body = [1.0; 34];
        let (few, all) = (&pairs[..8], &body[..]);
        for (count, values) in [(5, &unknown[..]), (5, &endless[..]), (5, few), (4, few), (17, all)] {
            assert_eq!(of(count, 2, values), None, "{values:?}");
        }
    }

    /// The sum of the squares of the distances in the tensor.
    fn distances(landmarks: &FaceLandmarks, [a, b, x, y]: [f64; 4]) -> f64 {
        let size = a * a + b * b;
        let in_tensor = |[u, v]: [f64; 2]| {
            let [u, v] = [u - x, v - y];
            [(a * u + b * v) / size, (a * v - b * u) / size]
        };
        let squares = landmarks.0.iter().zip(TEMPLATE).map(|(point, wanted)| {
            let [u, v] = in_tensor(point.map(f64::from));
            (u - wanted[0]).powi(2) + (v - wanted[1]).powi(2)
        });
        squares.sum()
    }

    proptest! {
        /// None near it that turns, scales and moves lays the landmarks nearer to those of the template.
        #[test]
        fn squares_are_least(
            (angle, scale, x, y) in (-3.2..3.2f64, 0.2..6.0f64, 0.0..4000.0f64, 0.0..2000.0f64),
            noise in prop::array::uniform10(-8.0..8.0f32),
        ) {
            let mut landmarks = turned(angle, scale, [x, y]);
            for (number, by) in landmarks.0.as_flattened_mut().iter_mut().zip(noise) {
                *number += by * scale as f32;
            }
            let found = Alignment::of_face(&landmarks, (112, 112)).unwrap();
            let numbers = numbers(found).map(f64::from);
            let least = distances(&landmarks, numbers);
            for (axis, step) in [(0, 0.05 * scale), (1, 0.05 * scale), (2, 2.0 * scale), (3, 2.0 * scale)] {
                for step in [step, -step] {
                    let mut other = numbers;
                    other[axis] += step;
                    prop_assert!(distances(&landmarks, other) >= least, "{:?} {} {}", found, axis, step);
                }
            }
        }
    }
}
