// SPDX-License-Identifier: MPL-2.0
//! The motion that all objects have in common, of a camera that shakes.
//!
//! Such a camera moves all boxes to and fro. Where frames are skipped, each filter would take that for the velocity of
//! its object, and predict that it goes on. So the tracks are moved along before detections are matched, and keep their
//! velocities. A camera that pans is not compensated: its motion does go on.

use super::overlap::{Edges, center};

/// So many objects tell the motion of a camera. More take time.
pub const MOST: usize = 64;
/// Fewer objects do not tell the motion of a camera from their own.
const FEWEST: usize = 5;
/// The weight of the last motion among those before it.
const WEIGHT: f64 = 0.05;

/// It keeps its memory.
#[derive(Debug, Default)]
pub struct CommonMotion {
    /// How far objects are from their predicted positions, across and down.
    offsets: [Vec<f64>; 2],
    axes: [AxisMotion; 2],
}

impl CommonMotion {
    pub fn reset(&mut self) {
        self.axes = Default::default();
    }

    /// How far the camera has shaken the boxes since the last detections: of objects that have a velocity, the predicted
    /// and the detected boxes.
    pub fn shake(&mut self, objects: impl Iterator<Item = [Edges; 2]>) -> [f64; 2] {
        self.offsets.iter_mut().for_each(Vec::clear);
        for [predicted, detected] in objects {
            let (from, to) = (center(&predicted), center(&detected));
            (0..2).for_each(|axis| self.offsets[axis].push(to[axis] - from[axis]));
        }
        [0, 1].map(|axis| match median(&mut self.offsets[axis]) {
            Some(offset) => self.axes[axis].shake(offset),
            None => 0.0,
        })
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    (values.len() >= FEWEST).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[derive(Clone, Copy, Debug, Default)]
struct AxisMotion {
    last: f64,
    /// Means of the product of two offsets that follow each other, and of their squares.
    product: f64,
    square: f64,
}

impl AxisMotion {
    /// The part of an offset that will not go on.
    fn shake(&mut self, offset: f64) -> f64 {
        self.product += WEIGHT * (offset * self.last - self.product);
        self.square += WEIGHT * (offset * offset - self.square);
        self.last = offset;
        let correlation = if self.square > 0.0 { self.product / self.square } else { 0.0 };
        // The differences of positions that are random each time have a correlation of -1/2.
        offset * (-2.0 * correlation).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last shake after these motions of 7 objects, each of which also moves a little by itself.
    fn shake(offsets: &[f64]) -> f64 {
        let mut motion = CommonMotion::default();
        let mut last = [0.0; 2];
        for offset in offsets {
            last = motion.shake((0..7).map(|own| {
                let at = 100.0 * f64::from(own);
                let to = at + offset + f64::from(own - 3);
                [[at, 0.0, at + 20.0, 40.0], [to, 0.0, to + 20.0, 40.0]]
            }));
        }
        assert_eq!(last[1], 0.0, "nothing moves down");
        last[0]
    }

    #[test]
    fn what_goes_to_and_fro_is_a_shake_and_what_goes_on_is_none() {
        let (to_and_fro, on) = ([8.0, -8.0].repeat(10), [8.0; 20]);
        assert_eq!(shake(&to_and_fro), -8.0);
        assert_eq!(shake(&on), 0.0);
        assert_eq!(shake(&[8.0]), 0.0, "nothing is known yet");
        assert_eq!(shake(&[0.0; 9]), 0.0);
    }

    #[test]
    fn few_objects_tell_nothing() {
        let mut motion = CommonMotion::default();
        for offset in [8.0, -8.0].repeat(10) {
            let object = [[0.0, 0.0, 20.0, 40.0], [offset, 0.0, 20.0 + offset, 40.0]];
            assert_eq!(motion.shake((1..FEWEST).map(|_| object)), [0.0; 2]);
        }
    }
}
