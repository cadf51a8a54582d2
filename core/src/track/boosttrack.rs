// SPDX-License-Identifier: MPL-2.0
//! BoostTrack (Stanojević and Todorović, Machine Vision and Applications 35, 2024) and BoostTrack++ (the same, arXiv:2408.13003,
//! 2024): SORT with one match of all detections, those of low scores too where what is known of the tracks raises them (`boost`).
//!
//! What a pair of a track and a detection gains is the sum of these, with `c` the product of the detection's score and the track's
//! confidence, which counts where they overlap by `iou_thresh`:
//!
//! | | weight |
//! |---|---|
//! | intersection over union | 1 + `lambda_iou` c |
//! | share of what is near, by the Mahalanobis distance (`similarity`) | `lambda_mhd` |
//! | likeness of shapes (`similarity`) | `lambda_shape` c |
//! | cosine of the vectors, with those | `lambda_emb` (1 + `lambda_iou` + `lambda_mhd` + `lambda_shape`) |
//!
//! The confidence of a track rises with its first seven frames: 0.9 to the power of how many of these are missing. Then it falls by a
//! tenth with each frame with detections in which it is not seen.
//!
//! A pair must overlap by `iou_thresh`, or by half of it where the vectors are nearer than `appearance_thresh`. As with OC-SORT, others
//! are left out before the assignment, where the authors' program leaves them out after it. What is not in the papers: tracks that are
//! then still lost are found by their vectors alone, and with `reassociate` by distance and size, where the filter says that they can
//! be. And an object that has an id has it whenever it is seen: the authors' program wants it to be seen `min_hits` times in a row
//! each time, and fills the gaps later, when it knows the whole video.

use super::appearance::{Appearances, MEAN_WEIGHT, mean_weight};
use super::boost::{PredictedBox, ScoreBoost};
use super::camera::{self, CommonMotion};
use super::kalman::{BoxFilter, BoxState, GATES, HeightFilter};
use super::life::TrackLife;
use super::matching::{FrameMatching, MatchedTrack};
use super::overlap::Edges;
use super::{Moment, TrackInput, TrackOptions, TrackedObject};

/// Frames until the confidence of a track is whole, and what remains of it with each frame that it lacks.
const YOUNG: u64 = 7;
const CONFIDENCE: f64 = 0.9;

#[derive(Clone, Debug)]
struct BoostTracklet {
    filter: HeightFilter,
    /// ByteTrack's filter, for frames that were skipped, and for objects that were lost. The variances of the other one are pixels,
    /// whatever the size of the object, and tell too little of where it may be.
    coasting: BoxFilter,
    edges: Edges,
    life: TrackLife,
}

impl BoostTracklet {
    fn predict(&mut self, steps: u32) {
        (0..steps).for_each(|_| self.filter.predict());
        self.edges = self.filter.edges();
    }

    fn see(&mut self, detection: u32, seen: &Edges, found: &TrackInput, moment: Moment) {
        self.filter.update(seen);
        self.coasting.update(&found.bbox);
        self.edges = self.filter.edges();
        self.life.see(detection, found, moment);
    }

    /// What is known of it before it is matched with the detections of a frame.
    fn predicted(&self) -> PredictedBox<'_> {
        let unseen = self.life.missed.saturating_sub(1);
        let lacking = YOUNG.saturating_sub(self.life.age);
        let power = if lacking > 0 { lacking as i32 } else { unseen.min(i32::MAX as u32) as i32 };
        PredictedBox {
            filter: &self.filter,
            edges: self.edges,
            class: self.life.class,
            confidence: CONFIDENCE.powi(power),
            unseen,
        }
    }
}

impl MatchedTrack for BoostTracklet {
    fn coasting(&self) -> &BoxFilter {
        &self.coasting
    }

    fn class(&self) -> u32 {
        self.life.class
    }

    fn look(&self) -> Option<u32> {
        self.life.look
    }
}

/// The tracks of a stream. It keeps its memory.
#[derive(Debug, Default)]
pub struct BoostTrack {
    tracks: Vec<BoostTracklet>,
    frames: u64,
    matching: FrameMatching,
    boost: ScoreBoost,
    motion: CommonMotion,
    appearances: Appearances,
}

impl BoostTrack {
    pub fn new(appearances: Appearances) -> Self {
        BoostTrack { appearances, ..BoostTrack::default() }
    }

    pub(crate) fn appearances(&self) -> &Appearances {
        &self.appearances
    }

    pub fn reset(&mut self) {
        self.tracks.clear();
        self.motion.reset();
        self.frames = 0;
    }

    pub(crate) fn update(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        moment: Moment,
        last_id: &mut u64,
    ) {
        let Moment { now, steps, gap } = moment;
        self.frames += u64::from(gap);
        self.remove_old(options, now);
        self.matching.found.fill(options, detections);
        let may_turn = options.reassociate && !moment.has_skipped();
        for track in &mut self.tracks {
            track.predict(steps);
            track.coasting.advance(steps, track.life.missed == 0, may_turn);
            track.life.advance(gap);
        }
        self.tracks.retain(|track| track.edges.iter().all(|edge| edge.is_finite()));
        self.appearances.free_all_but(self.tracks.iter().filter_map(|track| track.life.look));

        if moment.has_skipped() {
            self.compensate_camera(options, detections);
        }
        self.boost_scores(options, detections);
        self.matching.rows.clear();
        self.matching.rows.extend(0..self.tracks.len() as u32);
        self.assign(options, detections);
        self.see_matches(options, detections, moment);
        if self.appearances.is_used() && options.lambda_emb > 0.0 {
            // What overlaps did not match is matched by appearance.
            self.matching.assign_appearances(options, detections, &self.tracks, &self.appearances);
            self.see_matches(options, detections, moment);
        }
        if may_turn {
            let tracks = &self.tracks;
            self.matching.rows.retain(|&row| tracks[row as usize].life.was_lost());
        }
        if may_turn || moment.has_skipped() {
            for gate in GATES {
                self.assign_distances(options, detections, gate);
                self.see_matches(options, detections, moment);
            }
        }

        for at in 0..self.matching.found.columns.len() {
            let detection = self.matching.found.columns[at];
            self.begin(detection, &detections[detection as usize], now);
        }
        let is_early = self.frames <= u64::from(options.min_hits);
        for track in &mut self.tracks {
            let is_known = track.life.id != 0 || track.life.streak >= options.min_hits || is_early;
            track.life.set_out(track.life.missed == 0 && is_known, last_id);
        }
    }

    pub(crate) fn predict(&mut self, options: &TrackOptions, Moment { now, steps, .. }: Moment) {
        for track in &mut self.tracks {
            track.predict(steps);
            (0..steps).for_each(|_| track.coasting.coast());
            track.edges = track.coasting.edges();
        }
        self.remove_old(options, now);
    }

    /// Leaves in `columns` the detections of high scores, after what is known of the tracks has raised them.
    fn boost_scores(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        let BoostTrack { tracks, matching: FrameMatching { found, .. }, boost, .. } = self;
        found.columns.append(&mut found.low);
        found.columns.sort_unstable();
        boost.fill(options, detections, found, tracks.iter().map(BoostTracklet::predicted));
        boost.raise(options, detections, found);
        found.columns.retain(|&detection| boost.score(detection) >= f64::from(options.det_thresh));
        boost.keep(options, detections, &found.columns);
    }

    /// Matches all tracks with the detections of `columns`, by overlap, distance, shape and appearance.
    fn assign(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        let BoostTrack { tracks, matching: FrameMatching { found, assignment, .. }, boost, appearances, .. } = self;
        let [of_overlaps, of_distances, of_shapes, of_looks] =
            [options.lambda_iou, options.lambda_mhd, options.lambda_shape, options.lambda_emb].map(f64::from);
        let of_looks = of_looks * (1.0 + of_overlaps + of_distances + of_shapes);
        let (iou_thresh, farthest_look) = (f64::from(options.iou_thresh), f64::from(options.appearance_thresh));
        assignment.begin(found.columns.len(), 0.0);
        for (track, (row, pairs)) in tracks.iter().zip(boost.rows()) {
            for pair in pairs.iter().filter(|pair| pair.overlap > 0.0 && pair.overlap >= iou_thresh / 2.0) {
                let detection = found.columns[pair.column as usize];
                let vector = detections[detection as usize].vector.filter(|_| of_looks > 0.0);
                let likeness = appearances.similarity(track.life.look, vector).map(f64::from);
                let is_near = pair.overlap >= iou_thresh;
                if !is_near && likeness.is_none_or(|likeness| 1.0 - likeness >= farthest_look) {
                    continue;
                }
                let confidence = if is_near { boost.score(detection) * row.confidence } else { 0.0 };
                let gain = pair.overlap * (1.0 + of_overlaps * confidence)
                    + of_distances * pair.nearness
                    + of_shapes * confidence * pair.shape
                    + of_looks * likeness.unwrap_or(0.0);
                assignment.pair(pair.column, -gain);
            }
            assignment.end_row();
        }
        assignment.solve();
    }

    /// Moves the tracks as far as the camera has shaken them.
    fn compensate_camera(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        let has_velocity =
            |track: &BoostTracklet| track.life.missed == 1 && track.life.first_seen != track.life.last_seen;
        self.matching.select(&self.tracks, has_velocity);
        self.matching.rows.truncate(camera::MOST);
        self.assign_distances(options, detections, GATES[1]);
        let BoostTrack { tracks, matching, motion, .. } = self;
        let edges = &matching.found.edges;
        let boxes =
            |(track, detection): (u32, u32)| [tracks[track as usize].coasting.edges(), edges[detection as usize]];
        let shake = motion.shake(matching.matches().map(boxes));
        for track in tracks {
            track.coasting.shift(shake);
            track.filter.shift(shake);
            track.edges = track.filter.edges();
        }
    }

    /// Where frames were skipped, and where tracks were lost, what overlaps did not match is matched by how probable the positions
    /// and sizes are, but for those that do not look alike.
    fn assign_distances(&mut self, options: &TrackOptions, detections: &[TrackInput], gate: f64) {
        let appearances = Some(&self.appearances).filter(|_| options.lambda_emb > 0.0);
        self.matching.assign_distances(options, detections, &self.tracks, appearances, gate);
    }

    /// Keeps in `rows` and `columns` what was not matched.
    fn see_matches(&mut self, options: &TrackOptions, detections: &[TrackInput], moment: Moment) {
        let BoostTrack { tracks, matching, boost, appearances, .. } = self;
        for (track, detection) in matching.matches() {
            let (seen, found) = (&matching.found.edges[detection as usize], &detections[detection as usize]);
            let track = &mut tracks[track as usize];
            track.see(detection, seen, found, moment);
            let weight = mean_weight(boost.score(detection) as f32, options.det_thresh);
            appearances.see(&mut track.life.look, found.vector, weight);
        }
        matching.keep_unmatched();
    }

    fn begin(&mut self, detection: u32, found: &TrackInput, now: u64) {
        let filter = HeightFilter::new(&self.matching.found.edges[detection as usize]);
        let mut look = None;
        self.appearances.see(&mut look, found.vector, MEAN_WEIGHT);
        self.tracks.push(BoostTracklet {
            filter,
            coasting: BoxFilter::new(BoxState::Xyah, &found.bbox),
            edges: filter.edges(),
            life: TrackLife::new(detection, found, look, now),
        });
    }

    fn remove_old(&mut self, options: &TrackOptions, now: u64) {
        self.tracks.retain(|track| track.life.is_kept(options, now));
    }

    /// Writes `objects`, which has room.
    pub(crate) fn publish(&self, objects: &mut [Option<TrackedObject>]) {
        self.tracks.iter().for_each(|track| track.life.publish(track.edges, objects));
    }
}
