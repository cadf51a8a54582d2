// SPDX-License-Identifier: MPL-2.0
//! The paths of objects with ids.

use std::collections::{HashMap, VecDeque};

use super::Annotation;

/// The positions of an object: the middle of its box's lower edge, the latest last.
#[derive(Clone, Debug, Default)]
struct Trail {
    points: VecDeque<[f32; 2]>,
    last_seen: u64,
}

/// Trails by the ids of their objects.
#[derive(Clone, Debug, Default)]
pub struct Trails {
    trails: HashMap<u64, Trail>,
    frames: u64,
}

impl Trails {
    pub fn clear(&mut self) {
        self.trails.clear();
    }

    /// Adds the positions of the objects of the next frame. Trails cover `length` frames. An object that was not seen
    /// for as long has none.
    pub fn follow(&mut self, annotations: &[Annotation], length: u32) {
        self.frames += 1;
        let (frames, length) = (self.frames, length as usize);
        if length == 0 {
            return self.clear();
        }
        for annotation in annotations.iter().filter(|annotation| annotation.bbox.is_valid()) {
            let Some(id) = annotation.track_id else { continue };
            let trail = self.trails.entry(id).or_default();
            // Of two objects with the same id, the first is followed.
            if trail.last_seen != frames {
                trail.points.push_back([annotation.bbox.center().0, annotation.bbox.y2]);
                trail.last_seen = frames;
            }
            let old = trail.points.len().saturating_sub(length + 1);
            trail.points.drain(..old);
        }
        self.trails.retain(|_, trail| frames - trail.last_seen <= length as u64);
    }

    /// The pieces of the trail of an object.
    pub(super) fn pieces(&self, id: Option<u64>) -> impl Iterator<Item = [[f32; 2]; 2]> {
        let trail = id.and_then(|id| self.trails.get(&id)).map(|trail| &trail.points);
        let points = || trail.into_iter().flatten().copied();
        points().zip(points().skip(1)).map(|(from, to)| [from, to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::BBox;

    fn at(x: f32, id: u64) -> Annotation<'static> {
        Annotation {
            bbox: BBox::from_center(x, 10.0, 4.0, 4.0),
            corners: None,
            class: None,
            label: "".into(),
            confidence: None,
            track_id: Some(id),
            keypoints: None,
            mask: None,
            attributes: Vec::new(),
            notes: Vec::new(),
            of_frame: false,
        }
    }

    #[test]
    fn a_trail_is_as_long_as_it_may_be() {
        let mut trails = Trails::default();
        for x in 0..10 {
            trails.follow(&[at(x as f32, 7), at(50.0, 7)], 3);
        }
        let pieces = |trails: &Trails| trails.pieces(Some(7)).map(|[from, to]| (from[0], to[0])).collect::<Vec<_>>();
        assert_eq!(pieces(&trails), [(6.0, 7.0), (7.0, 8.0), (8.0, 9.0)]);
        assert_eq!(trails.pieces(Some(8)).chain(trails.pieces(None)).count(), 0);
        trails.follow(&[at(10.0, 7)], 1);
        assert_eq!(pieces(&trails), [(9.0, 10.0)]);
        trails.follow(&[], 1);
        assert_eq!(pieces(&trails).len(), 1);
        trails.follow(&[], 1);
        assert!(pieces(&trails).is_empty());
        trails.follow(&[at(1.0, 7)], 9);
        trails.follow(&[at(2.0, 7)], 9);
        trails.follow(&[at(3.0, 7)], 0);
        assert!(pieces(&trails).is_empty());
    }
}
