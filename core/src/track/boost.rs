// SPDX-License-Identifier: MPL-2.0
//! Scores of detections that what is known of the tracks raises, by BoostTrack (Stanojević and Todorović, Machine Vision and
//! Applications 35, 2024) and BoostTrack++ (the same, arXiv:2408.13003, 2024), so that one match takes in detections of low scores.
//!
//! * Detections of likely objects (DLO): those that are like a predicted box.
//! * Detections of unlikely objects (DUO): those that are far from all predicted boxes, so they may be new objects.
//!
//! With `s` the largest similarity of a detection of the score `c`, its new score is as follows. In BoostTrack `s` is the overlap, in
//! BoostTrack++ the mean of soft BIoU, of the likeness of shapes and of the share that it has of what is near (`similarity`).
//!
//! | | at least |
//! |---|---|
//! | BoostTrack, DLO | `dlo_boost_coef` s |
//! | BoostTrack++, DLO, soft boost | 0.65 c + 0.35 s^1.5 |
//! | BoostTrack++, DLO, varying threshold | `det_thresh`, where s is beyond a threshold: 0.95, and 0.0075 less for each frame in which the track was not seen, down to 0.8 |
//! | DUO | `det_thresh`, where the nearest predicted box is beyond the distance of 99 % of the boxes of an object |
//!
//! Two things differ from the program of the authors. Pairs that neither overlap once enlarged nor are near are left out: that
//! changes scores below a third alone. And of equal detections in one place, DUO takes the first, not all.

use super::assignment::{MAX_PAIRS, NONE};
use super::detections::FrameDetections;
use super::kalman::HeightFilter;
use super::overlap::{Edges, Neighbours, iou};
use super::similarity::{FARTHEST, nearness, of_shapes, soft_biou, soft_reach};
use super::{TrackInput, TrackOptions};

/// Soft boost: the part that remains of a score, and the exponent of the similarity.
const KEPT_SCORE: f64 = 0.65;
const EXPONENT: f64 = 1.5;
/// Varying threshold: at first, at last, and how many frames are between.
const THRESHOLDS: [f64; 2] = [0.95, 0.8];
const THRESHOLD_FRAMES: f64 = 20.0;
/// DUO: of detections that overlap by more, that of the highest score is one.
const SAME: f64 = 0.3;

/// A track's box in this frame, before the detections are known.
#[derive(Clone, Copy, Debug)]
pub struct PredictedBox<'a> {
    pub filter: &'a HeightFilter,
    pub edges: Edges,
    pub class: u32,
    /// From 0 to 1: how sure it is that the object is there.
    pub confidence: f64,
    /// Frames with detections in which it was not seen before this one.
    pub unseen: u32,
}

/// A predicted box and a detection that may be of one object.
#[derive(Clone, Copy, Debug)]
pub struct BoostPair {
    detection: u32,
    /// The place of the detection among those that are kept.
    pub column: u32,
    distance: f64,
    /// 0 where it is too far. Of pairs that are kept, the share of it in the sum over all detections that are kept.
    pub nearness: f64,
    pub overlap: f64,
    soft_overlap: f64,
    pub shape: f64,
}

/// The pairs of a predicted box.
#[derive(Clone, Copy, Debug)]
pub struct BoostRow {
    end: u32,
    class: u32,
    pub confidence: f64,
    unseen: u32,
}

impl BoostRow {
    /// The similarity from which on a detection is of that object.
    fn threshold(&self) -> f64 {
        let [first, last] = THRESHOLDS;
        (first - f64::from(self.unseen) * (first - last) / THRESHOLD_FRAMES).max(last)
    }
}

/// How many detections there are of each class.
#[derive(Debug, Default)]
struct ClassCounts {
    classes: Vec<u32>,
}

impl ClassCounts {
    fn fill(&mut self, detections: &[TrackInput], columns: &[u32]) {
        self.classes.clear();
        self.classes.extend(columns.iter().map(|&detection| detections[detection as usize].class));
        self.classes.sort_unstable();
    }

    /// Those that may be of an object of that class.
    fn of(&self, options: &TrackOptions, class: u32) -> usize {
        if !options.per_class {
            return self.classes.len();
        }
        let classes = &self.classes;
        classes.partition_point(|&other| other <= class) - classes.partition_point(|&other| other < class)
    }
}

/// Pairs of predicted boxes and detections, and the scores of the latter. It keeps its memory.
#[derive(Debug, Default)]
pub struct ScoreBoost {
    scores: Vec<f64>,
    pairs: Vec<BoostPair>,
    rows: Vec<BoostRow>,
    counts: ClassCounts,
    neighbours: Neighbours,
    /// For each detection the least distance from a predicted box, and the largest similarity to one.
    nearest: Vec<f64>,
    best: Vec<f64>,
    /// Whether a similarity is beyond the threshold of its predicted box.
    is_sure: Vec<bool>,
    /// Detections that are far from all predicted boxes.
    lone: Vec<u32>,
    /// For each detection its place among those that are kept.
    column_of: Vec<u32>,
}

impl ScoreBoost {
    /// The scores of the detections.
    pub fn score(&self, detection: u32) -> f64 {
        self.scores[detection as usize]
    }

    /// The pairs of each predicted box, in the order of these.
    pub fn rows(&self) -> impl Iterator<Item = (&BoostRow, &[BoostPair])> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let pairs = &self.pairs[start..row.end as usize];
            start = row.end as usize;
            (row, pairs)
        })
    }

    /// Compares the detections of `columns` with predicted boxes, and forgets what was before.
    pub fn fill<'a>(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        found: &FrameDetections,
        predicted: impl Iterator<Item = PredictedBox<'a>>,
    ) {
        let ScoreBoost { scores, pairs, rows, neighbours, nearest, .. } = self;
        scores.clear();
        scores.extend(detections.iter().map(TrackInput::certainty));
        pairs.clear();
        rows.clear();
        nearest.clear();
        nearest.resize(detections.len(), f64::INFINITY);
        neighbours.fill(found.columns.iter().map(|&detection| (detection, found.edges[detection as usize])));
        for PredictedBox { filter, edges, class, confidence, unseen } in predicted {
            let start = pairs.len();
            let reach = union(&filter.reach(FARTHEST), &soft_reach(&edges, confidence));
            for detection in neighbours.near(&reach) {
                let seen = &found.edges[detection as usize];
                // Neighbours are found across alone. In a crowd most of them are above or below.
                let is_in_reach = seen[1] < reach[3] && seen[3] > reach[1];
                let is_other_class = options.per_class && detections[detection as usize].class != class;
                if !is_in_reach || is_other_class {
                    continue;
                }
                let distance = filter.distance(seen);
                nearest[detection as usize] = f64::min(nearest[detection as usize], distance);
                let soft_overlap = soft_biou(seen, &edges, confidence);
                if distance <= FARTHEST || soft_overlap > 0.0 {
                    let (nearness, overlap, shape) = (0.0, 0.0, 0.0); // of those that stay
                    pairs.push(BoostPair { detection, column: NONE, distance, nearness, overlap, soft_overlap, shape });
                }
            }
            let row = &mut pairs[start..];
            if row.len() > MAX_PAIRS {
                let order = |a: &BoostPair, b: &BoostPair| {
                    a.distance.total_cmp(&b.distance).then(a.detection.cmp(&b.detection))
                };
                row.select_nth_unstable_by(MAX_PAIRS, order);
                pairs.truncate(start + MAX_PAIRS);
            }
            for pair in &mut pairs[start..] {
                let seen = &found.edges[pair.detection as usize];
                pair.nearness = nearness(pair.distance);
                pair.overlap = iou(&edges, seen);
                pair.shape = of_shapes(seen, &edges);
            }
            rows.push(BoostRow { end: pairs.len() as u32, class, confidence, unseen });
        }
    }

    /// Raises the scores of the detections of `columns`, as the options have it.
    pub fn raise(&mut self, options: &TrackOptions, detections: &[TrackInput], found: &FrameDetections) {
        if options.use_dlo_boost {
            self.raise_likely(options, detections, &found.columns);
        }
        // Where nothing is known, nothing is far from it.
        if options.use_duo_boost && !self.rows.is_empty() {
            self.raise_lone(options, detections, found);
        }
    }

    fn raise_likely(&mut self, options: &TrackOptions, detections: &[TrackInput], columns: &[u32]) {
        self.counts.fill(detections, columns);
        let ScoreBoost { scores, pairs, rows, counts, best, is_sure, .. } = self;
        best.clear();
        best.resize(detections.len(), 0.0);
        is_sure.clear();
        is_sure.resize(detections.len(), false);
        let mut start = 0;
        for row in &*rows {
            let of_row = &pairs[start..row.end as usize];
            start = row.end as usize;
            let total = total_nearness(of_row, counts.of(options, row.class));
            let threshold = row.threshold();
            for pair in of_row {
                let similarity = if options.use_rich_s {
                    (pair.nearness / total + pair.shape + pair.soft_overlap) / 3.0
                } else {
                    pair.overlap
                };
                let detection = pair.detection as usize;
                best[detection] = f64::max(best[detection], similarity);
                is_sure[detection] |= similarity > threshold;
            }
        }
        let det_thresh = f64::from(options.det_thresh);
        for detection in columns.iter().map(|&detection| detection as usize) {
            let (mut score, best) = (scores[detection], best[detection]);
            if !options.use_sb && !options.use_vt {
                score = score.max(f64::from(options.dlo_boost_coef) * best);
            }
            if options.use_sb {
                score = score.max(KEPT_SCORE * score + (1.0 - KEPT_SCORE) * best.powf(EXPONENT));
            }
            if options.use_vt && is_sure[detection] {
                score = score.max(det_thresh);
            }
            scores[detection] = score;
        }
    }

    fn raise_lone(&mut self, options: &TrackOptions, detections: &[TrackInput], found: &FrameDetections) {
        let ScoreBoost { scores, neighbours, nearest, lone, .. } = self;
        let det_thresh = f64::from(options.det_thresh);
        lone.clear();
        let is_lone = |&number: &u32| nearest[number as usize] > FARTHEST && scores[number as usize] < det_thresh;
        lone.extend(found.columns.iter().copied().filter(is_lone));
        let edges = |number: u32| found.edges[number as usize];
        neighbours.fill(lone.iter().map(|&number| (number, edges(number))));
        lone.retain(|&number| {
            let is_same = |other: u32| {
                let is_same_class = detections[number as usize].class == detections[other as usize].class;
                (is_same_class || !options.per_class) && iou(&edges(number), &edges(other)) > SAME
            };
            let is_before = |other: u32| {
                let (of_other, of_this) = (scores[other as usize], scores[number as usize]);
                of_other > of_this || (of_other == of_this && other < number)
            };
            !neighbours.near(&edges(number)).any(|other| is_before(other) && is_same(other))
        });
        for &number in &*lone {
            scores[number as usize] = det_thresh;
        }
    }

    /// Keeps the pairs of the detections of `columns`, and forgets the others.
    pub fn keep(&mut self, options: &TrackOptions, detections: &[TrackInput], columns: &[u32]) {
        self.counts.fill(detections, columns);
        let ScoreBoost { pairs, rows, counts, column_of, .. } = self;
        column_of.clear();
        column_of.resize(detections.len(), NONE);
        for (column, &detection) in (0..).zip(columns) {
            column_of[detection as usize] = column;
        }
        let (mut start, mut end) = (0, 0);
        for row in rows {
            let first = end;
            for at in start..row.end as usize {
                let column = column_of[pairs[at].detection as usize];
                if column != NONE {
                    pairs[end] = BoostPair { column, ..pairs[at] };
                    end += 1;
                }
            }
            (start, row.end) = (row.end as usize, end as u32);
            let of_row = &mut pairs[first..end];
            let total = total_nearness(of_row, counts.of(options, row.class));
            of_row.iter_mut().for_each(|pair| pair.nearness /= total);
        }
        pairs.truncate(end);
    }
}

/// The sum over so many detections, of which those without a pair are too far.
fn total_nearness(pairs: &[BoostPair], count: usize) -> f64 {
    let near = pairs.iter().filter(|pair| pair.nearness > 0.0);
    let (sum, near) = near.fold((0.0, 0), |(sum, near), pair| (sum + pair.nearness, near + 1));
    sum + count.saturating_sub(near) as f64
}

/// The smallest box around both.
fn union(a: &Edges, b: &Edges) -> Edges {
    [a[0].min(b[0]), a[1].min(b[1]), a[2].max(b[2]), a[3].max(b[3])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::BBox;

    fn at(x: f32, score: f32, class: u32) -> TrackInput<'static> {
        TrackInput { bbox: BBox::from_center(x, 300.0, 40.0, 80.0), score, class, vector: None }
    }

    /// The scores after one object of the class 0 has been seen often at 100, and not in the last `unseen` frames.
    fn raised(change: &dyn Fn(&mut TrackOptions), detections: &[TrackInput], unseen: u32) -> Vec<f64> {
        let mut options = TrackOptions::default();
        change(&mut options);
        let mut found = FrameDetections::default();
        found.fill(&TrackOptions { track_thresh: 0.0, ..options }, detections);
        let edges = [80.0, 260.0, 120.0, 340.0];
        let mut filter = HeightFilter::new(&edges);
        for _ in 0..20 {
            filter.predict();
            filter.update(&edges);
        }
        filter.predict();
        let predicted = PredictedBox { filter: &filter, edges: filter.edges(), class: 0, confidence: 1.0, unseen };
        let mut boost = ScoreBoost::default();
        boost.fill(&options, detections, &found, [predicted].into_iter());
        boost.raise(&options, detections, &found);
        (0..detections.len() as u32).map(|detection| boost.score(detection)).collect()
    }

    const ENOUGH: f64 = 0.6f32 as f64;

    fn assert_near(have: &[f64], wanted: &[f64]) {
        let is_near = have.len() == wanted.len() && have.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(is_near, "{have:?} {wanted:?}");
    }

    #[test]
    fn scores_of_likely_objects_rise() {
        let wider = TrackInput { bbox: BBox::from_center(100.0, 300.0, 50.0, 80.0), ..at(100.0, 0.3, 0) };
        // Four fifths of the overlap and of the width, and nothing else is near.
        let similarity: f64 = (0.8 + (-0.2f64).exp() + 1.0) / 3.0;
        let soft = 0.65 * 0.3 + 0.35 * similarity.powf(1.5);
        for (unseen, wanted) in [(0, soft), (10, soft), (11, ENOUGH), (100, ENOUGH)] {
            assert_near(&raised(&|_| (), &[wider], unseen), &[wanted]);
        }
        assert_near(&raised(&|options| options.use_sb = false, &[wider], 10), &[0.3]);
        assert_near(&raised(&|options| options.use_vt = false, &[wider], 100), &[soft]);
        assert_near(&raised(&|options| options.use_dlo_boost = false, &[wider], 100), &[0.3]);
        let of_first_paper = |options: &mut TrackOptions| {
            (options.use_sb, options.use_vt, options.use_rich_s) = (false, false, false);
        };
        assert_near(&raised(&of_first_paper, &[wider], 0), &[0.65 * 0.8]);
        let half = |options: &mut TrackOptions| {
            (options.use_sb, options.use_vt, options.dlo_boost_coef) = (false, false, 0.5);
        };
        assert_near(&raised(&half, &[wider], 0), &[0.5 * similarity]);
        let other_class = TrackInput { class: 1, ..wider };
        let without_duo = |options: &mut TrackOptions| options.use_duo_boost = false;
        assert_near(&raised(&without_duo, &[other_class], 100), &[0.3]);
        // High scores stay, and two detections share what is near.
        let sure = at(100.0, 0.97, 0);
        let [high, low] = raised(&|options| options.use_vt = false, &[sure, wider], 0)[..] else { panic!("two") };
        assert!((high - 0.97).abs() < 0.01 && low < soft - 0.01 && low > 0.3, "{high} {low} {soft}");
    }

    #[test]
    fn scores_of_far_objects_rise_once_in_each_place() {
        let far = [at(600.0, 0.3, 0), at(604.0, 0.25, 0), at(900.0, 0.2, 0), at(900.0, 0.2, 0), at(602.0, 0.15, 1)];
        assert_near(&raised(&|_| (), &far, 0), &[ENOUGH, 0.25, ENOUGH, 0.2, ENOUGH]);
        assert_near(&raised(&|options| options.per_class = false, &far, 0), &[ENOUGH, 0.25, ENOUGH, 0.2, 0.15]);
        assert_near(&raised(&|options| options.use_duo_boost = false, &far, 0), &[0.3, 0.25, 0.2, 0.2, 0.15]);
        let below = |y: f32| TrackInput { bbox: BBox::from_center(100.0, y, 40.0, 80.0), ..at(100.0, 0.2, 0) };
        assert_near(&raised(&|_| (), &[below(900.0), below(330.0)], 0), &[ENOUGH; 2]);
        let [score] = raised(&|options| options.use_vt = false, &[below(304.0)], 0)[..] else { panic!("one") };
        assert!(score > 0.2 && score < ENOUGH, "it is likely, and not far: {score}");
        // What an object of that class may be is not far, and another class is none of it.
        let [same, other] = raised(&|_| (), &[at(104.0, 0.2, 0), at(104.0, 0.2, 1)], 0)[..] else { panic!("two") };
        assert!(same < ENOUGH && other == ENOUGH, "{same} {other}");
        // Without tracks nothing is known.
        let mut found = FrameDetections::default();
        let options = TrackOptions::default();
        found.fill(&TrackOptions { track_thresh: 0.0, ..options }, &far);
        let mut boost = ScoreBoost::default();
        boost.fill(&options, &far, &found, std::iter::empty());
        boost.raise(&options, &far, &found);
        assert_eq!(boost.score(0), f64::from(0.3f32));
    }

    #[test]
    fn what_is_kept_has_its_share_of_what_is_near() {
        let (options, mut found) = (TrackOptions::default(), FrameDetections::default());
        let detections = [at(100.0, 0.9, 0), at(101.0, 0.9, 0), at(900.0, 0.9, 0), at(100.0, 0.9, 1)];
        found.fill(&options, &detections);
        let mut filter = HeightFilter::new(&[80.0, 260.0, 120.0, 340.0]);
        filter.predict();
        let edges = filter.edges();
        let predicted = PredictedBox { filter: &filter, edges, class: 0, confidence: 1.0, unseen: 0 };
        let mut boost = ScoreBoost::default();
        boost.fill(&options, &detections, &found, [predicted].into_iter());
        boost.keep(&options, &detections, &[1, 2, 3]);
        let rows: Vec<_> = boost.rows().collect();
        let [(row, [pair])] = rows[..] else { panic!("one pair: {rows:?}") };
        assert_eq!((row.confidence, pair.column), (1.0, 0));
        assert!(pair.nearness > 0.9999 && pair.nearness < 1.0, "another one of the class is far: {pair:?}");
        assert!((pair.overlap - 39.0 / 41.0).abs() < 1e-6 && (pair.shape - 1.0).abs() < 1e-6, "{pair:?}");
    }
}
