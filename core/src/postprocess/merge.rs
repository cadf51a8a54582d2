// SPDX-License-Identifier: MPL-2.0
//! Objects of several regions of a frame that are one object: regions overlap, and an edge may cut an object in two.
//!
//! The rules are those of SAHI. Objects are taken by confidence, the best first, equals in the order of their regions.
//! One that overlaps it by the threshold or more, and is of the same class, is the same object. NMS drops it. NMM
//! (greedy non-maximum merging) makes the box of the better one the smallest box around both, and its mask the pixels
//! of both, as long as the box that has grown so still overlaps the next by the threshold. Rotated boxes and keypoints
//! stay those of the best one.
//!
//! It runs on the host, on the few boxes that suppression has kept in each region, wherever these were found. So
//! results do not depend on that.

use super::Instances;
use crate::image::geometry::BBox;
use crate::image::rotated::Corners;
use crate::options::choices;

/// How objects of several regions become those of the frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergeOptions {
    pub method: MergeMethod,
    pub metric: MergeMetric,
    /// 0..1
    pub threshold: f32,
}

impl Default for MergeOptions {
    fn default() -> Self {
        MergeOptions { method: MergeMethod::Nmm, metric: MergeMetric::Ios, threshold: 0.5 }
    }
}

/// What becomes of an object that is the same as a better one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeMethod {
    Nms,
    #[default]
    Nmm,
}

choices! {
    MergeMethod, "GstTrtMerge":
    MergeMethod::Nms => "nms" "It is dropped"
    MergeMethod::Nmm => "nmm" "It becomes part of the better one"
}

/// How the overlap of two boxes is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeMetric {
    Iou,
    #[default]
    Ios,
}

choices! {
    MergeMetric, "GstTrtMergeMetric":
    MergeMetric::Iou => "iou" "Intersection over union"
    MergeMetric::Ios => "ios" "Intersection over the smaller box"
}

impl MergeMetric {
    fn ratio(self, intersection: f32, a: f32, b: f32) -> f32 {
        match self {
            MergeMetric::Iou => intersection / (a + b - intersection),
            MergeMetric::Ios => intersection / a.min(b),
        }
    }

    fn of_boxes(self, a: &BBox, b: &BBox) -> f32 {
        let (width, height) = (a.x2.min(b.x2) - a.x1.max(b.x1), a.y2.min(b.y2) - a.y1.max(b.y1));
        if width <= 0.0 || height <= 0.0 { 0.0 } else { self.ratio(width * height, a.area(), b.area()) }
    }

    fn of_corners(self, a: &Corners, b: &Corners) -> f32 {
        let (a, b) = (a.as_slice(), b.as_slice());
        self.ratio(area(&intersection(a, b)), area(a), area(b))
    }
}

/// Merges, with its scratch memory.
#[derive(Debug, Default)]
pub(super) struct Merger {
    /// The objects that are not part of a better one yet, the best first.
    open: Vec<u32>,
    rest: Vec<u32>,
    kept: Vec<u32>,
    /// The objects that become one, the best first.
    same: Vec<u32>,
    corners: Vec<Corners>,
}

impl Merger {
    /// Merges the objects of all regions, in pixels of the frame, and keeps the best ones up to that limit.
    pub fn merge(&mut self, instances: &mut Instances, options: &MergeOptions, is_class_agnostic: bool, limit: usize) {
        let MergeOptions { method, metric, threshold } = *options;
        let Merger { open, rest, kept, same, corners } = self;
        open.clear();
        open.extend(0..instances.len() as u32);
        let score = |object: &u32| instances.boxes[*object as usize].score;
        open.sort_by(|a, b| score(b).total_cmp(&score(a)));
        corners.clear();
        corners.extend(instances.rotated.iter().flatten().map(|candidate| candidate.rotated().corners()));
        let is_rotated = instances.rotated.is_some();
        kept.clear();
        while let Some(&best) = open.first().filter(|_| kept.len() < limit) {
            kept.push(best);
            same.clear();
            same.push(best);
            rest.clear();
            let candidate = instances.boxes[best as usize];
            for &other in &open[1..] {
                let rival = &instances.boxes[other as usize];
                let overlap = if !is_class_agnostic && rival.class != candidate.class {
                    0.0
                } else if is_rotated {
                    metric.of_corners(&corners[best as usize], &corners[other as usize])
                } else {
                    metric.of_boxes(&candidate.bbox, &rival.bbox)
                };
                let is_same = overlap > 0.0 && overlap >= threshold;
                if is_same { same.push(other) } else { rest.push(other) }
            }
            std::mem::swap(open, rest);
            if method == MergeMethod::Nmm && !is_rotated {
                let mut grown = candidate.bbox;
                same.retain(|&object| {
                    let bbox = &instances.boxes[object as usize].bbox;
                    let is_part = object == best || metric.of_boxes(&grown, bbox) >= threshold;
                    if is_part {
                        grown = hull(&grown, bbox);
                    }
                    is_part
                });
                instances.boxes[best as usize].bbox = grown;
                if let Some(masks) = &mut instances.masks {
                    masks.unite(same);
                }
            }
        }
        instances.select(kept);
    }
}

fn hull(a: &BBox, b: &BBox) -> BBox {
    BBox::new(a.x1.min(b.x1), a.y1.min(b.y1), a.x2.max(b.x2), a.y2.max(b.y2))
}

/// Twice the area to the left of the line from `a` to `b` that a triangle with `point` has.
fn side([ax, ay]: [f32; 2], [bx, by]: [f32; 2], [x, y]: [f32; 2]) -> f32 {
    (bx - ax) * (y - ay) - (by - ay) * (x - ax)
}

/// The polygon that two convex ones, whose corners go around in the same direction, have in common: the first one, cut
/// at each edge of the second (Sutherland and Hodgman).
fn intersection(a: &[[f32; 2]], b: &[[f32; 2]]) -> Vec<[f32; 2]> {
    let direction = if signed_area(b) < 0.0 { -1.0 } else { 1.0 };
    let mut polygon = a.to_vec();
    for (from, to) in around(b) {
        let uncut = std::mem::take(&mut polygon);
        for (start, end) in around(&uncut) {
            let (before, after) = (direction * side(from, to, start), direction * side(from, to, end));
            if before >= 0.0 {
                polygon.push(start);
            }
            if (before < 0.0 && after > 0.0) || (before > 0.0 && after < 0.0) {
                let part = before / (before - after);
                polygon.push([0, 1].map(|axis| start[axis] + (end[axis] - start[axis]) * part));
            }
        }
    }
    polygon
}

/// The edges of a polygon.
fn around(corners: &[[f32; 2]]) -> impl Iterator<Item = ([f32; 2], [f32; 2])> {
    corners.iter().copied().zip(corners.iter().copied().cycle().skip(1))
}

fn signed_area(corners: &[[f32; 2]]) -> f32 {
    // Around the first corner, since coordinates of a frame are large and areas small.
    let Some(&first) = corners.first() else { return 0.0 };
    around(corners).map(|(a, b)| side(first, a, b)).sum::<f32>() * 0.5
}

fn area(corners: &[[f32; 2]]) -> f32 {
    signed_area(corners).abs()
}

#[cfg(test)]
mod tests {
    use std::f32::consts::FRAC_PI_4;

    use proptest::prelude::*;

    use super::*;
    use crate::image::Candidate;

    fn candidate([x1, y1, x2, y2]: [f32; 4], score: f32, class: u32) -> Candidate {
        Candidate { bbox: BBox::new(x1, y1, x2, y2), score, class, row: 0, angle: 0.0 }
    }

    fn merged(boxes: &[Candidate], options: MergeOptions) -> Vec<([f32; 4], f32)> {
        let mut instances = Instances { boxes: boxes.to_vec(), ..Instances::default() };
        Merger::default().merge(&mut instances, &options, false, 300);
        let read = |found: &Candidate| {
            let BBox { x1, y1, x2, y2 } = found.bbox;
            ([x1, y1, x2, y2], found.score)
        };
        instances.boxes.iter().map(read).collect()
    }

    /// An object that an edge cuts: the right slice sees a part of it, the left one all but a little.
    const CUT: [[f32; 4]; 2] = [[100.0, 100.0, 140.0, 120.0], [120.0, 100.0, 144.0, 120.0]];

    #[test]
    fn each_option_shows() {
        let boxes = [candidate(CUT[1], 0.7, 0), candidate(CUT[0], 0.9, 0), candidate(CUT[0], 0.8, 1)];
        let (first, other) = ((CUT[0], 0.9), (CUT[0], 0.8));
        let all = [first, other, (CUT[1], 0.7)];
        let grown = ([100.0, 100.0, 144.0, 120.0], 0.9);
        let (nms, nmm) = (MergeMethod::Nms, MergeMethod::Nmm);
        let (iou, ios) = (MergeMetric::Iou, MergeMetric::Ios);
        for (method, metric, threshold, wanted) in [
            (nmm, ios, 0.5, &[grown, other][..]),
            (nms, ios, 0.5, &[first, other]),
            (nmm, ios, 0.84, &all),
            (nmm, iou, 0.5, &all),
            (nmm, iou, 0.45, &[grown, other]),
            (nms, iou, 0.45, &[first, other]),
        ] {
            let found = merged(&boxes, MergeOptions { method, metric, threshold });
            assert_eq!(found, wanted, "{method:?} {metric:?} {threshold}");
        }
        let mut agnostic = Instances { boxes: boxes.to_vec(), ..Instances::default() };
        Merger::default().merge(&mut agnostic, &MergeOptions::default(), true, 300);
        assert_eq!(agnostic.len(), 1);
        let mut few = Instances { boxes: boxes.to_vec(), ..Instances::default() };
        Merger::default().merge(&mut few, &MergeOptions::default(), false, 1);
        assert_eq!(few.boxes[0].score, 0.9);
    }

    /// What has become part of an object counts for what comes next.
    #[test]
    fn boxes_are_compared_with_what_the_object_has_become() {
        let (best, right, left) = ([8.0, 0.0, 18.0, 10.0], [8.0, 0.0, 26.0, 10.0], [0.0, 0.0, 18.0, 10.0]);
        let boxes = [candidate(best, 0.9, 0), candidate(right, 0.8, 0), candidate(left, 0.7, 0)];
        let options = MergeOptions { metric: MergeMetric::Iou, ..MergeOptions::default() };
        // Both share more than a half with the best one, and less with each other.
        assert_eq!(merged(&boxes, options), [(right, 0.9)]);
    }

    /// With a threshold of 0 only boxes that meet are one object.
    #[test]
    fn boxes_apart_stay_apart() {
        let boxes = [candidate([0.0, 0.0, 4.0, 4.0], 0.9, 0), candidate([8.0, 0.0, 12.0, 4.0], 0.8, 0)];
        assert_eq!(merged(&boxes, MergeOptions { threshold: 0.0, ..MergeOptions::default() }).len(), 2);
    }

    #[test]
    fn rotated_boxes_are_compared_as_they_lie() {
        // A square turned by an eighth lies in one that is upright: a half of it.
        let upright = candidate([0.0, 0.0, 20.0, 20.0], 0.9, 0);
        let side = 200f32.sqrt();
        let half = side * 0.5;
        let turned =
            Candidate { angle: FRAC_PI_4, ..candidate([10.0 - half, 10.0 - half, 10.0 + half, 10.0 + half], 0.8, 0) };
        let corners = [upright, turned].map(|candidate| candidate.rotated().corners());
        assert!((MergeMetric::Iou.of_corners(&corners[0], &corners[1]) - 0.5).abs() < 1e-3);
        assert!((MergeMetric::Ios.of_corners(&corners[1], &corners[0]) - 1.0).abs() < 1e-3);
        let far = Candidate { bbox: BBox::new(100.0, 0.0, 120.0, 20.0), ..turned }.rotated().corners();
        assert_eq!(MergeMetric::Ios.of_corners(&corners[0], &far), 0.0);
        let rotated = vec![upright, turned];
        let mut instances = Instances { boxes: rotated.clone(), rotated: Some(rotated), ..Instances::default() };
        Merger::default().merge(&mut instances, &MergeOptions::default(), false, 300);
        assert_eq!((instances.len(), instances.rotated.unwrap()), (1, vec![upright]));
    }

    proptest! {
        /// Upright boxes overlap alike as polygons.
        #[test]
        fn polygons_of_upright_boxes_are_boxes(a in edges(), b in edges()) {
            let corners = [a, b].map(|edges| candidate(edges, 0.5, 0).rotated().corners());
            let boxes = [a, b].map(|edges| candidate(edges, 0.5, 0).bbox);
            for metric in [MergeMetric::Iou, MergeMetric::Ios] {
                let (wanted, have) = (metric.of_boxes(&boxes[0], &boxes[1]), metric.of_corners(&corners[0], &corners[1]));
                prop_assert!((wanted - have).abs() < 1e-3, "{wanted} {have}");
            }
        }

        /// What greedy merging by comparing all pairs, written as in the paper, gives.
        #[test]
        fn no_kept_boxes_of_a_class_overlap_under_nms(boxes in prop::collection::vec((edges(), 0.0..1f32, 0..2u32), 0..30)) {
            let boxes: Vec<Candidate> = boxes.iter().map(|&(edges, score, class)| candidate(edges, score, class)).collect();
            let mut instances = Instances { boxes: boxes.clone(), ..Instances::default() };
            let options = MergeOptions { method: MergeMethod::Nms, ..MergeOptions::default() };
            Merger::default().merge(&mut instances, &options, false, 300);
            let overlaps = |a: &Candidate, b: &Candidate| a.class == b.class && MergeMetric::Ios.of_boxes(&a.bbox, &b.bbox) >= 0.5;
            let kept = &instances.boxes;
            prop_assert!(kept.windows(2).all(|pair| pair[0].score >= pair[1].score));
            for (i, a) in kept.iter().enumerate() {
                prop_assert!(kept[i + 1..].iter().all(|b| !overlaps(a, b)));
            }
            for dropped in boxes.iter().filter(|candidate| !kept.contains(candidate)) {
                prop_assert!(kept.iter().any(|better| better.score >= dropped.score && overlaps(better, dropped)));
            }
        }
    }

    fn edges() -> impl Strategy<Value = [f32; 4]> {
        (0.0..60f32, 0.0..60f32, 1.0..40f32, 1.0..40f32).prop_map(|(x, y, w, h)| [x, y, x + w, y + h])
    }
}
