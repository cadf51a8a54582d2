// SPDX-License-Identifier: MPL-2.0
//! ByteTrack: detections of high scores are matched with the tracks, then those of low scores with the remaining tracks.
//!
//! With vectors it is BoT-SORT (Aharon et al., 2022). Where scores are high, a pair costs what its boxes cost, or half the cosine
//! distance of its vectors, if that is less and both distances are small. Low scores tell little of how an object looks. What is not
//! in the paper: tracks that are then still lost are found by their vectors alone, where the filter says that they can be.
//!
//! Three things differ from the program of its authors: boxes have no extra pixel of width and height, as in the programs
//! that came after it; a track that has expired is not matched once more; and with `reassociate` tracks that were lost are also
//! found by distance and size where boxes do not overlap, because objects turn while they are hidden.

use super::appearance::Appearances;
use super::camera::{self, CommonMotion};
use super::kalman::{BoxFilter, BoxState, FRAMES_LOST, GATES};
use super::matching::{FrameMatching, MatchedTrack};
use super::overlap::{Edges, iou};
use super::{Moment, TrackInput, TrackOptions, TrackedObject};

/// Largest costs of the second match and of the match of unconfirmed tracks.
const SECOND_LIMIT: f64 = 0.5;
const UNCONFIRMED_LIMIT: f64 = 0.7;
/// Largest cost of a match by overlap where frames were skipped.
const SKIPPED_LIMIT: f64 = 0.5;
/// Weight of what a track looked like before, when it is seen again: BoT-SORT's.
const MEAN_WEIGHT: f32 = 0.9;
/// Tracks that overlap by more are duplicates.
const SAME: f64 = 1.0 - 0.15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackState {
    /// Seen once.
    Unconfirmed,
    /// Seen in the last frame.
    Tracked,
    Lost,
    Removed,
}

#[derive(Clone, Debug)]
struct Track {
    filter: BoxFilter,
    edges: Edges,
    state: TrackState,
    class: u32,
    /// 0 until it is confirmed.
    id: u64,
    first_seen: u64,
    last_seen: u64,
    /// The index of its detection when it was seen last.
    detection: u32,
    /// The place of its mean vector, if it has one.
    look: Option<u32>,
    /// Frames with detections since it was seen.
    missed: u32,
    /// Whether the filter has predicted since then.
    is_predicted: bool,
}

impl Track {
    fn predict(&mut self, steps: u32, may_turn: bool) {
        self.filter.advance(steps, self.state != TrackState::Lost, may_turn);
        self.edges = self.filter.edges();
    }

    fn see(&mut self, detection: u32, seen: &TrackInput, now: u64, last_id: &mut u64) {
        self.filter.update(&seen.bbox);
        self.edges = self.filter.edges();
        self.state = TrackState::Tracked;
        (self.class, self.detection, self.last_seen, self.is_predicted) = (seen.class, detection, now, false);
        self.missed = 0;
        self.confirm(last_id);
    }

    fn confirm(&mut self, last_id: &mut u64) {
        if self.id == 0 {
            *last_id += 1;
            self.id = *last_id;
        }
    }

    fn age(&self) -> u64 {
        self.last_seen.saturating_sub(self.first_seen) // time may go back a little
    }
}

impl MatchedTrack for Track {
    fn coasting(&self) -> &BoxFilter {
        &self.filter
    }

    fn class(&self) -> u32 {
        self.class
    }

    fn look(&self) -> Option<u32> {
        self.look
    }
}

/// The tracks of a stream. It keeps its memory.
#[derive(Debug)]
pub struct ByteTrack {
    state: BoxState,
    tracks: Vec<Track>,
    /// Frames since the start.
    frames: u64,
    matching: FrameMatching,
    motion: CommonMotion,
    appearances: Appearances,
}

impl ByteTrack {
    pub fn new(state: BoxState, appearances: Appearances) -> Self {
        ByteTrack {
            state,
            tracks: Vec::new(),
            frames: 0,
            matching: FrameMatching::default(),
            motion: CommonMotion::default(),
            appearances,
        }
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
        let (Moment { now, steps, .. }, has_skipped) = (moment, moment.has_skipped());
        self.frames += 1;
        self.remove_old(options, now);
        self.appearances.free_all_but(self.tracks.iter().filter_map(|track| track.look));
        self.matching.found.fill(options, detections);
        let limit = |limit: f64| if has_skipped { limit.min(SKIPPED_LIMIT) } else { limit };
        let may_turn = options.reassociate && !has_skipped;
        for track in &mut self.tracks {
            track.missed = track.missed.saturating_add(1);
            // In the paper the filter of a new track does not predict between the first two frames.
            if track.state != TrackState::Unconfirmed || track.is_predicted || steps > 1 {
                track.predict(steps, may_turn);
            }
        }

        if has_skipped {
            self.compensate_camera(options, detections);
        }
        let is_known = |track: &Track| track.state != TrackState::Unconfirmed;
        self.matching.select(&self.tracks, is_known);
        self.assign_overlaps(options, detections, true, limit(f64::from(options.match_thresh)));
        self.see_matches(options, detections, now, last_id);
        self.matching.keep_unmatched();

        // The remaining high scores are matched with the unconfirmed tracks below.
        let tracks = &self.tracks;
        self.matching.rows.retain(|&row| tracks[row as usize].state == TrackState::Tracked);
        std::mem::swap(&mut self.matching.found.columns, &mut self.matching.found.low);
        self.assign_overlaps(options, detections, false, SECOND_LIMIT);
        self.see_matches(options, detections, now, last_id);
        self.mark_others_lost();
        self.matching.keep_unmatched();
        std::mem::swap(&mut self.matching.found.columns, &mut self.matching.found.low);

        let is_unconfirmed = |track: &Track| track.state == TrackState::Unconfirmed;
        self.matching.select(&self.tracks, is_unconfirmed);
        self.assign_overlaps(options, detections, true, limit(UNCONFIRMED_LIMIT));
        self.see_matches(options, detections, now, last_id);
        self.matching.keep_unmatched();
        let is_free = |track: &Track| matches!(track.state, TrackState::Unconfirmed | TrackState::Lost);
        if self.appearances.is_used() {
            self.match_appearances(options, detections, is_free, now, last_id);
        }
        if has_skipped {
            GATES.iter().for_each(|&gate| self.match_distances(options, detections, gate, is_free, now, last_id));
            // In so many frames, more objects hide each other, and low scores are what is seen of them.
            std::mem::swap(&mut self.matching.found.columns, &mut self.matching.found.low);
            let is_lost = |track: &Track| track.state == TrackState::Lost;
            self.match_distances(options, detections, GATES[0], is_lost, now, last_id);
            std::mem::swap(&mut self.matching.found.columns, &mut self.matching.found.low);
        } else if options.reassociate {
            let was_lost = |track: &Track| track.state == TrackState::Lost && FRAMES_LOST.contains(&track.missed);
            GATES.iter().for_each(|&gate| self.match_distances(options, detections, gate, was_lost, now, last_id));
        }
        self.tracks.retain(|track| track.state != TrackState::Unconfirmed);

        for at in 0..self.matching.found.columns.len() {
            let detection = self.matching.found.columns[at];
            let seen = &detections[detection as usize];
            if seen.score >= options.det_thresh {
                self.begin(detection, seen, now, last_id);
            }
        }
        self.remove_doubles(options);
    }

    /// Moves the tracks as far as the camera has shaken them.
    fn compensate_camera(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        let has_velocity = |track: &Track| track.state == TrackState::Tracked && track.first_seen != track.last_seen;
        self.matching.select(&self.tracks, has_velocity);
        self.matching.rows.truncate(camera::MOST);
        self.matching.assign_distances(options, detections, &self.tracks, Some(&self.appearances), GATES[1]);
        let ByteTrack { tracks, matching, motion, .. } = self;
        let edges = &matching.found.edges;
        let boxes = |(track, detection): (u32, u32)| [tracks[track as usize].edges, edges[detection as usize]];
        let shake = motion.shake(matching.matches().map(boxes));
        for track in tracks {
            track.filter.shift(shake);
            track.edges = track.filter.edges();
        }
    }

    /// Where frames were skipped, objects whose velocity is not yet known, and those that turn, are far from their
    /// predicted boxes; so are those that turned while they were lost. What overlaps did not match is matched by how probable
    /// the positions and sizes are. Keeps in `columns` what was not matched.
    fn match_distances(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        gate: f64,
        is_it: impl Fn(&Track) -> bool,
        now: u64,
        last_id: &mut u64,
    ) {
        self.matching.select(&self.tracks, is_it);
        self.matching.assign_distances(options, detections, &self.tracks, Some(&self.appearances), gate);
        self.see_matches(options, detections, now, last_id);
        self.matching.keep_unmatched();
    }

    /// Matches what overlaps did not match by appearance, within the distance that the filter allows. Keeps in `columns` what was
    /// not matched.
    fn match_appearances(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        is_it: impl Fn(&Track) -> bool,
        now: u64,
        last_id: &mut u64,
    ) {
        self.matching.select(&self.tracks, |track| track.look.is_some() && is_it(track));
        self.matching.assign_appearances(options, detections, &self.tracks, &self.appearances);
        self.see_matches(options, detections, now, last_id);
        self.matching.keep_unmatched();
    }

    pub(crate) fn predict(&mut self, options: &TrackOptions, Moment { now, steps, .. }: Moment) {
        for track in &mut self.tracks {
            (0..steps).for_each(|_| track.filter.coast());
            track.edges = track.filter.edges();
            track.is_predicted = true;
        }
        self.remove_old(options, now);
    }

    /// Matches the tracks of `rows` with the detections of `columns` by their overlaps, and those of high scores by appearance too.
    fn assign_overlaps(&mut self, options: &TrackOptions, detections: &[TrackInput], is_high: bool, limit: f64) {
        let fuse_score = is_high && options.fuse_score;
        let appearances = &self.appearances;
        let cost = |track: &Track, edges: &Edges, seen: &TrackInput| {
            let overlap = iou(&track.edges, edges);
            let of_boxes = 1.0 - if fuse_score { overlap * seen.certainty() } else { overlap };
            if !is_high || 1.0 - overlap >= f64::from(options.proximity_thresh) {
                return of_boxes;
            }
            let distance = appearances.distance(track.look, seen.vector);
            if distance < f64::from(options.appearance_thresh) { of_boxes.min(distance / 2.0) } else { of_boxes }
        };
        self.matching.assign(options, detections, &self.tracks, limit, |track| track.edges, cost);
    }

    fn see_matches(&mut self, options: &TrackOptions, detections: &[TrackInput], now: u64, last_id: &mut u64) {
        for (track, detection) in self.matching.matches() {
            let (track, seen) = (&mut self.tracks[track as usize], &detections[detection as usize]);
            track.see(detection, seen, now, last_id);
            if seen.score >= options.track_thresh {
                self.appearances.see(&mut track.look, seen.vector, MEAN_WEIGHT);
            }
        }
    }

    /// Keeps in `rows` the tracks that were not matched.
    fn mark_others_lost(&mut self) {
        for (row, &track) in self.matching.rows.iter().enumerate() {
            if self.matching.assignment.column(row).is_none() {
                self.tracks[track as usize].state = TrackState::Lost;
            }
        }
    }

    fn begin(&mut self, detection: u32, seen: &TrackInput, now: u64, last_id: &mut u64) {
        let filter = BoxFilter::new(self.state, &seen.bbox);
        let mut track = Track {
            filter,
            edges: filter.edges(),
            state: TrackState::Unconfirmed,
            class: seen.class,
            id: 0,
            first_seen: now,
            last_seen: now,
            detection,
            look: None,
            missed: 0,
            is_predicted: false,
        };
        self.appearances.see(&mut track.look, seen.vector, MEAN_WEIGHT);
        // In the first frame, tracks are confirmed at once.
        if self.frames == 1 {
            track.state = TrackState::Tracked;
            track.confirm(last_id);
        }
        self.tracks.push(track);
    }

    fn remove_old(&mut self, options: &TrackOptions, now: u64) {
        self.tracks.retain(|track| track.state != TrackState::Lost || !options.is_lost(track.last_seen, now));
    }

    /// Of a seen track and a lost one that overlap, the younger is removed.
    fn remove_doubles(&mut self, options: &TrackOptions) {
        self.tracks.retain(|track| track.state != TrackState::Removed);
        let ByteTrack { tracks, matching, .. } = self;
        matching.select(tracks, |track| track.state == TrackState::Lost);
        let FrameMatching { rows, neighbours, .. } = matching;
        neighbours.fill(rows.iter().map(|&lost| (lost, tracks[lost as usize].edges)));
        // All pairs are compared before any track is removed.
        let is_seen = |track: &Track| matches!(track.state, TrackState::Tracked | TrackState::Unconfirmed);
        rows.clear();
        for (seen, track) in (0..).zip(&*tracks).filter(|(_, track)| is_seen(track)) {
            for lost in neighbours.near(&track.edges) {
                let other = &tracks[lost as usize];
                let is_same_class = !options.per_class || track.class == other.class;
                if is_same_class && iou(&track.edges, &other.edges) > SAME {
                    rows.push(if track.age() > other.age() { lost } else { seen });
                }
            }
        }
        rows.iter().for_each(|&removed| tracks[removed as usize].state = TrackState::Removed);
        tracks.retain(|track| track.state != TrackState::Removed);
    }

    /// Writes `objects`, which has room.
    pub(crate) fn publish(&self, objects: &mut [Option<TrackedObject>]) {
        for track in self.tracks.iter().filter(|track| track.state == TrackState::Tracked) {
            let &Track { id, edges, first_seen, last_seen, .. } = track;
            objects[track.detection as usize] = Some(TrackedObject::at(edges, id, first_seen, last_seen));
        }
    }
}
