// SPDX-License-Identifier: MPL-2.0
//! Lines of any direction: the sides of rotated boxes, and skeletons with their points. Pixels are chosen with integers
//! only, as in the kernel.

use bytemuck::{Pod, Zeroable};

use super::color::{Rgb, Sample, class_color, sample};
use super::{Style, Target};
use crate::image::geometry::Rect;
use crate::image::keypoints::ObjectKeypoints;
use crate::image::rotated::Corners;

/// A line with round ends, or a disc where both ends are one: 32 bytes, the same for the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Stroke {
    /// Pixels in the frame, across and down.
    pub from: [i32; 2],
    pub to: [i32; 2],
    /// Pixels whose centre is at most half of this from the line are painted; none where this is 0.
    pub width: u32,
    pub color: Sample,
    pub unused: [u32; 2],
}

/// The maximum width. Products stay within 64 bits.
const MAX_WIDTH: u32 = 256;
/// Points with a lower visibility are not drawn.
const VISIBLE: f32 = 0.25;

impl Stroke {
    /// Whether a pixel is painted.
    pub fn touches(&self, x: i32, y: i32) -> bool {
        let difference =
            |a: [i32; 2], b: [i32; 2]| [i64::from(a[0]) - i64::from(b[0]), i64::from(a[1]) - i64::from(b[1])];
        let squares = |[x, y]: [i64; 2]| (x * x + y * y) as u64;
        let (along, at) = (difference(self.to, self.from), difference([x, y], self.from));
        let (length, forward) = (squares(along), at[0] * along[0] + at[1] * along[1]);
        let width = u64::from(self.width) * u64::from(self.width);
        if self.width == 0 {
            false
        } else if forward <= 0 {
            4 * squares(at) <= width
        } else if forward as u64 >= length {
            4 * squares(difference([x, y], self.to)) <= width
        } else {
            let across = (at[0] * along[1] - at[1] * along[0]).unsigned_abs();
            4 * across * across <= width * length
        }
    }

    /// The painted pixels, row by row. The shape is convex, so each row has one piece, which is nearest to the line
    /// where the line crosses the row.
    pub fn rows(&self, target: &Target) -> impl Iterator<Item = Rect> {
        let Stroke { from, to, width, .. } = *self;
        let (upper, lower) = if from[1] <= to[1] { (from, to) } else { (to, from) };
        let reach = (width / 2) as i32;
        let rows = (upper[1] - reach).max(0)..(lower[1] + reach + 1).min(target.height as i32);
        let right_edge = target.width as i32;
        rows.filter_map(move |y| {
            let near = if y <= upper[1] {
                upper[0]
            } else if y >= lower[1] {
                lower[0]
            } else {
                let [across, down] = [0, 1].map(|i| i64::from(lower[i] - upper[i]));
                upper[0] + (across * i64::from(y - upper[1])).div_euclid(down) as i32
            };
            let inside = [near, near + 1].into_iter().find(|&x| self.touches(x, y))?;
            // The visible part of a piece that begins or ends beyond the frame begins or ends at its edge.
            let inside = inside.clamp(0, right_edge - 1);
            if !self.touches(inside, y) {
                return None;
            }
            let left = (0..inside).rev().take_while(|&x| self.touches(x, y)).last().unwrap_or(inside);
            let right = (inside + 1..right_edge).take_while(|&x| self.touches(x, y)).last().unwrap_or(inside);
            let (top, bottom) = (y as u32, y as u32 + 1);
            Some(Rect { left: left as u32, top, right: right as u32 + 1, bottom })
        })
    }
}

/// Adds a line.
pub(super) fn line(
    strokes: &mut Vec<Stroke>,
    target: &Target,
    from: [f32; 2],
    to: [f32; 2],
    style: &Style,
    color: Sample,
) {
    let (width, _) = widths(style.line(target));
    strokes.extend(seen(from, to, target).map(|[from, to]| Stroke { from, to, width, color, unused: [0; 2] }));
}

/// Adds the sides of a rotated box.
pub(super) fn outline(strokes: &mut Vec<Stroke>, target: &Target, corners: &Corners, style: &Style, color: Sample) {
    let (width, _) = widths(style.line(target));
    let sides = (0..4).filter_map(|side| seen(corners[side], corners[(side + 1) % 4], target));
    strokes.extend(sides.map(|[from, to]| Stroke { from, to, width, color, unused: [0; 2] }));
}

/// The part of a line that may be visible, in whole pixels: its ends are at most the maximum width away from the frame.
fn seen(from: [f32; 2], to: [f32; 2], target: &Target) -> Option<[[i32; 2]; 2]> {
    const MARGIN: f32 = MAX_WIDTH as f32;
    let highest = [target.width, target.height].map(|size| size as f32 + MARGIN);
    let along = [to[0] - from[0], to[1] - from[1]];
    let (mut start, mut end) = (0.0f32, 1.0f32);
    for axis in 0..2 {
        let (low, high) = (-MARGIN, highest[axis]);
        if !along[axis].is_finite() {
            return None;
        } else if along[axis] == 0.0 {
            if !(low..=high).contains(&from[axis]) {
                return None;
            }
        } else {
            let (a, b) = ((low - from[axis]) / along[axis], (high - from[axis]) / along[axis]);
            (start, end) = (start.max(a.min(b)), end.min(a.max(b)));
        }
    }
    let pixel = |axis: usize, at: f32| at.clamp(-MARGIN, highest[axis]).floor() as i32;
    let first = [0, 1].map(|axis| pixel(axis, from[axis] + along[axis] * start));
    let last = [0, 1].map(|axis| pixel(axis, if end == 1.0 { to[axis] } else { from[axis] + along[axis] * end }));
    (start <= end).then_some([first, last])
}

/// Adds the strokes of an object: the lines of its skeleton in its colour, then its points in colours of their own.
pub(super) fn plan(strokes: &mut Vec<Stroke>, target: &Target, keypoints: &ObjectKeypoints, color: Rgb, style: &Style) {
    let (line, point) = widths(style.line(target));
    let ObjectKeypoints { shape, values } = keypoints;
    let dims = usize::from(shape.dims);
    let place = |point: u16| place(&values[usize::from(point) * dims..][..dims], target);
    let mut stroke = |from, to, width, color| {
        strokes.push(Stroke { from, to, width, color: sample(color, target), unused: [0; 2] });
    };
    for &[from, to] in shape.edges() {
        if let (Some(from), Some(to)) = (place(from), place(to)) {
            stroke(from, to, line, color);
        }
    }
    for number in 0..shape.count {
        if let Some(at) = place(number) {
            stroke(at, at, point, class_color(number.into()));
        }
    }
}

/// The widths of lines and of points, for outlines of that width.
pub(crate) fn widths(line: u32) -> (u32, u32) {
    let line = line.min(MAX_WIDTH);
    (line, (2 * line + 1).min(MAX_WIDTH))
}

/// The pixel of a point, if it is visible. A point on the frame's edge was moved there, or is not known.
fn place(point: &[f32], target: &Target) -> Option<[i32; 2]> {
    let (x, y) = (point[0], point[1]);
    let inside = x > 0.0 && x < target.width as f32 && y > 0.0 && y < target.height as f32;
    let seen = point.get(2).is_none_or(|&visibility| visibility >= VISIBLE);
    (inside && seen).then_some([x as i32, y as i32])
}
