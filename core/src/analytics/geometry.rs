// SPDX-License-Identifier: MPL-2.0
//! Areas that hold points, and segments that paths cross.

/// Across and down, in pixels of the frame.
pub type Point = [f32; 2];

/// An area of the frame. A point on an edge belongs to one of two areas that share the edge.
#[derive(Clone, Debug, PartialEq)]
pub enum Area {
    Polygon { points: Vec<Point>, bounds: [Point; 2] },
    Ellipse { center: Point, radii: Point },
}

/// Corners of the polygon that stands for an ellipse.
const ELLIPSE_CORNERS: usize = 48;

impl Area {
    pub fn polygon(points: Vec<Point>) -> Self {
        let edge = |axis: usize, pick: fn(f32, f32) -> f32| points.iter().map(|point| point[axis]).reduce(pick);
        let corner = |pick: fn(f32, f32) -> f32| [0, 1].map(|axis| edge(axis, pick).unwrap_or_default());
        let bounds = [corner(f32::min), corner(f32::max)];
        Area::Polygon { points, bounds }
    }

    /// Whether a point is inside, by the parity of the edges on its right.
    pub fn contains(&self, [x, y]: Point) -> bool {
        match self {
            Area::Polygon { points, bounds: [low, high] } => {
                if x < low[0] || x > high[0] || y < low[1] || y > high[1] {
                    return false;
                }
                let mut is_inside = false;
                let mut before = points[points.len() - 1];
                for &after in points {
                    if (after[1] > y) != (before[1] > y)
                        && x < (before[0] - after[0]) * (y - after[1]) / (before[1] - after[1]) + after[0]
                    {
                        is_inside = !is_inside;
                    }
                    before = after;
                }
                is_inside
            }
            Area::Ellipse { center, radii } => {
                let part = |at: f32, axis: usize| (at - center[axis]) / radii[axis];
                let (across, down) = (part(x, 0), part(y, 1));
                across * across + down * down < 1.0
            }
        }
    }

    /// The corners of its outline.
    pub fn corners(&self) -> Vec<Point> {
        match self {
            Area::Polygon { points, .. } => points.clone(),
            Area::Ellipse { center, radii } => {
                let corner = |number: usize| {
                    let (sin, cos) = (number as f32 / ELLIPSE_CORNERS as f32 * std::f32::consts::TAU).sin_cos();
                    [center[0] + radii[0] * cos, center[1] + radii[1] * sin]
                };
                (0..ELLIPSE_CORNERS).map(corner).collect()
            }
        }
    }
}

/// The way in which a line is crossed. Of a line from top to bottom, forward is from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossingDirection {
    Forward,
    Backward,
}

/// A line from one point to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    pub from: Point,
    pub to: Point,
}

/// Beyond all frames, in pixels.
const FAR: f64 = 1e6;

impl Segment {
    /// The direction in which the path from one point to another crosses the segment. Where segments share a point, a
    /// path through it crosses one of them; what only touches the segment has not crossed it.
    pub fn crossing(&self, before: Point, after: Point) -> Option<CrossingDirection> {
        let apart = |axis: usize| {
            before[axis].max(after[axis]) < self.from[axis].min(self.to[axis])
                || before[axis].min(after[axis]) > self.from[axis].max(self.to[axis])
        };
        if apart(0) || apart(1) {
            return None;
        }
        let is_left = |point| side(self.from, self.to, point) >= 0.0;
        let is_beyond = |point| side(before, after, point) >= 0.0;
        if is_left(before) == is_left(after) || is_beyond(self.from) == is_beyond(self.to) {
            return None;
        }
        Some(if is_left(before) { CrossingDirection::Forward } else { CrossingDirection::Backward })
    }

    /// The same line without ends.
    pub fn extended(&self) -> Self {
        let along = [0, 1].map(|axis| f64::from(self.to[axis]) - f64::from(self.from[axis]));
        let length = along[0].hypot(along[1]).max(f64::MIN_POSITIVE);
        let moved =
            |point: Point, by: f64| [0, 1].map(|axis| (f64::from(point[axis]) + along[axis] / length * by) as f32);
        Segment { from: moved(self.from, -FAR), to: moved(self.to, FAR) }
    }
}

/// Above 0 on one side of the line through two points, below 0 on the other.
fn side(from: Point, to: Point, point: Point) -> f64 {
    let [from, to, point] = [from, to, point].map(|point| point.map(f64::from));
    (to[0] - from[0]) * (point[1] - from[1]) - (to[1] - from[1]) * (point[0] - from[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_in_polygons_of_any_shape() {
        let l_shape = [[0.0, 0.0], [30.0, 0.0], [30.0, 10.0], [10.0, 10.0], [10.0, 30.0], [0.0, 30.0]];
        let mut turned = l_shape;
        turned.reverse();
        for points in [l_shape, turned] {
            let area = Area::polygon(points.to_vec());
            for (point, expected) in [
                ([5.0, 5.0], true),
                ([25.0, 5.0], true),
                ([5.0, 25.0], true),
                ([20.0, 20.0], false),
                ([-1.0, 5.0], false),
                ([31.0, 5.0], false),
                ([5.0, 31.0], false),
                ([f32::NAN, 5.0], false),
                ([f32::INFINITY, 5.0], false),
            ] {
                assert_eq!(area.contains(point), expected, "{point:?}");
            }
        }
    }

    #[test]
    fn a_point_is_in_one_of_two_neighbours() {
        let zone = |left: f32| Area::polygon(vec![[left, 0.0], [left + 10.0, 0.0], [left + 10.0, 10.0], [left, 10.0]]);
        let (left, right) = (zone(0.0), zone(10.0));
        for y in [0.0, 5.0, 9.5] {
            assert!(left.contains([10.0, y]) != right.contains([10.0, y]), "{y}");
        }
    }

    #[test]
    fn an_ellipse_is_its_corners() {
        let area = Area::Ellipse { center: [50.0, 40.0], radii: [20.0, 10.0] };
        let polygon = Area::polygon(area.corners());
        for x in 0..100 {
            for y in 0..80 {
                let point = [x as f32, y as f32];
                let [inner, outer] =
                    [0.99, 1.01].map(|by| Area::Ellipse { center: [50.0, 40.0], radii: [20.0 * by, 10.0 * by] });
                assert!(!polygon.contains(point) || outer.contains(point), "{point:?}");
                assert!(polygon.contains(point) || !inner.contains(point), "{point:?}");
            }
        }
    }

    #[test]
    fn a_path_crosses_the_segment_and_not_the_line_through_it() {
        use CrossingDirection::{Backward, Forward};
        let door = Segment { from: [50.0, 20.0], to: [50.0, 60.0] };
        for (before, after, expected) in [
            ([40.0, 40.0], [60.0, 40.0], Some(Forward)),
            ([60.0, 40.0], [40.0, 40.0], Some(Backward)),
            ([40.0, 10.0], [60.0, 10.0], None),
            ([40.0, 70.0], [60.0, 70.0], None),
            ([40.0, 15.0], [60.0, 30.0], Some(Forward)),
            ([40.0, 5.0], [60.0, 30.0], None),
            ([40.0, 40.0], [49.0, 40.0], None),
            ([50.0, 10.0], [50.0, 90.0], None),
            ([50.0, 40.0], [50.0, 40.0], None),
            ([f32::NAN, 40.0], [60.0, 40.0], None),
        ] {
            assert_eq!(door.crossing(before, after), expected, "{before:?} {after:?}");
            let turned = Segment { from: door.to, to: door.from };
            let opposite = expected.map(|direction| if direction == Forward { Backward } else { Forward });
            assert_eq!(turned.crossing(before, after), opposite, "{before:?} {after:?}");
        }
        assert_eq!(door.extended().crossing([40.0, 900.0], [60.0, 900.0]), Some(Forward));
        assert_eq!(door.extended().crossing([60.0, -900.0], [40.0, -900.0]), Some(Backward));
    }

    #[test]
    fn a_path_that_stops_on_the_line_crosses_it_once() {
        let door = Segment { from: [50.0, 20.0], to: [50.0, 60.0] };
        let path = [[40.0, 40.0], [50.0, 40.0], [50.0, 41.0], [60.0, 40.0]];
        let crossings: Vec<_> = path.windows(2).filter_map(|pair| door.crossing(pair[0], pair[1])).collect();
        assert_eq!(crossings, [CrossingDirection::Forward]);
    }

    #[test]
    fn a_path_through_a_shared_point_crosses_one_of_two() {
        let halves =
            [Segment { from: [50.0, 0.0], to: [50.0, 40.0] }, Segment { from: [50.0, 40.0], to: [50.0, 80.0] }];
        for (before, after) in
            [([40.0, 40.0], [60.0, 40.0]), ([40.0, 30.0], [60.0, 50.0]), ([60.0, 30.0], [40.0, 50.0])]
        {
            let count = halves.iter().filter_map(|half| half.crossing(before, after)).count();
            assert_eq!(count, 1, "{before:?} {after:?}");
        }
    }
}
