// SPDX-License-Identifier: MPL-2.0
//! ByteTrack: detections of high scores are matched with the tracks, then those of low scores with the remaining tracks.
//!
//! Two things differ from the program of its authors: boxes have no extra pixel of width and height, as in the programs that came
//! after it; and a track that has expired is not matched once more.

use super::assignment::Assignment;
use super::kalman::{BoxFilter, BoxState};
use super::overlap::{Edges, Neighbours, iou};
use super::{Moment, TrackInput, TrackOptions, TrackedObject};
use crate::image::geometry::BBox;

/// Largest costs of the second match and of the match of unconfirmed tracks.
const SECOND_LIMIT: f64 = 0.5;
const UNCONFIRMED_LIMIT: f64 = 0.7;
/// Part of its width and height by which a box is made larger on each side where frames were skipped.
const BUFFER: f64 = 0.5;
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
    /// Whether the filter has predicted since then.
    is_predicted: bool,
}

impl Track {
    fn predict(&mut self, steps: u32) {
        (0..steps).for_each(|_| self.filter.predict(self.state != TrackState::Lost));
        self.edges = self.filter.edges();
    }

    fn see(&mut self, detection: u32, seen: &TrackInput, now: u64, last_id: &mut u64) {
        self.filter.update(&seen.bbox);
        self.edges = self.filter.edges();
        self.state = TrackState::Tracked;
        (self.class, self.detection, self.last_seen, self.is_predicted) = (seen.class, detection, now, false);
        self.confirm(last_id);
    }

    fn confirm(&mut self, last_id: &mut u64) {
        if self.id == 0 {
            *last_id += 1;
            self.id = *last_id;
        }
    }

    fn age(&self) -> u64 {
        self.last_seen - self.first_seen
    }
}

/// The tracks of a stream. It keeps its memory.
#[derive(Debug)]
pub struct ByteTrack {
    state: BoxState,
    tracks: Vec<Track>,
    /// Frames since the start.
    frames: u64,
    /// The time of the last detections.
    last_update: u64,
    /// Whether objects were predicted since.
    has_predicted: bool,
    /// For each detection of the last update, its object.
    objects: Vec<Option<TrackedObject>>,
    edges: Vec<Edges>,
    /// Indices of the tracks and detections to match.
    rows: Vec<u32>,
    columns: Vec<u32>,
    low: Vec<u32>,
    neighbours: Neighbours,
    assignment: Assignment,
}

impl ByteTrack {
    pub fn new(state: BoxState) -> Self {
        ByteTrack {
            state,
            tracks: Vec::new(),
            frames: 0,
            last_update: 0,
            has_predicted: false,
            objects: Vec::new(),
            edges: Vec::new(),
            rows: Vec::new(),
            columns: Vec::new(),
            low: Vec::new(),
            neighbours: Neighbours::default(),
            assignment: Assignment::default(),
        }
    }

    pub fn reset(&mut self) {
        self.tracks.clear();
        self.objects.clear();
        self.frames = 0;
    }

    pub fn objects(&self) -> &[Option<TrackedObject>] {
        &self.objects
    }

    pub(crate) fn update(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        Moment { now, steps }: Moment,
        last_id: &mut u64,
    ) {
        self.frames += 1;
        self.remove_old(options, now);
        self.split(options, detections);
        for track in &mut self.tracks {
            // In the paper the filter of a new track does not predict between the first two frames.
            if track.state != TrackState::Unconfirmed || track.is_predicted || steps > 1 {
                track.predict(steps);
            }
        }

        let is_known = |track: &Track| track.state != TrackState::Unconfirmed;
        select(&mut self.rows, &self.tracks, is_known);
        self.assign(options, detections, options.fuse_score, f64::from(options.match_thresh));
        self.see_matches(detections, now, last_id);
        let assignment = &self.assignment;
        let mut row = 0..;
        self.rows.retain(|_| assignment.column(row.next().expect("endless")).is_none());
        let mut column = 0..;
        self.columns.retain(|_| assignment.row(column.next().expect("endless")).is_none());

        // The remaining high scores are matched with the unconfirmed tracks below.
        let tracks = &self.tracks;
        self.rows.retain(|&row| tracks[row as usize].state == TrackState::Tracked);
        std::mem::swap(&mut self.columns, &mut self.low);
        self.assign(options, detections, false, SECOND_LIMIT);
        self.see_matches(detections, now, last_id);
        self.lose_others();
        std::mem::swap(&mut self.columns, &mut self.low);

        let is_unconfirmed = |track: &Track| track.state == TrackState::Unconfirmed;
        select(&mut self.rows, &self.tracks, is_unconfirmed);
        self.assign(options, detections, options.fuse_score, UNCONFIRMED_LIMIT);
        self.see_matches(detections, now, last_id);
        if std::mem::take(&mut self.has_predicted) || steps > 1 {
            self.match_buffered(options, detections, now, last_id);
        }
        self.tracks.retain(|track| track.state != TrackState::Unconfirmed);
        self.last_update = now;

        for column in 0..self.columns.len() {
            let detection = self.columns[column];
            let seen = &detections[detection as usize];
            if self.assignment.row(column).is_none() && seen.score >= options.det_thresh {
                self.begin(detection, seen, now, last_id);
            }
        }
        self.remove_doubles(options);
        self.objects.clear();
        self.objects.resize(detections.len(), None);
        self.publish();
    }

    /// Objects whose velocity is not yet known move far between detections where frames were skipped. Unmatched tracks that were
    /// seen in the last detected frame are matched once more by larger boxes, as in C-BIoU (Yang et al., WACV 2023).
    fn match_buffered(&mut self, options: &TrackOptions, detections: &[TrackInput], now: u64, last_id: &mut u64) {
        let ByteTrack { assignment, tracks, edges, columns, .. } = self;
        let mut column = 0..;
        columns.retain(|_| assignment.row(column.next().expect("endless")).is_none());
        columns.iter().for_each(|&detection| edges[detection as usize] = buffered(&edges[detection as usize]));
        let last_update = self.last_update;
        let was_just_seen = |track: &Track| {
            track.state == TrackState::Unconfirmed || track.state == TrackState::Lost && track.last_seen == last_update
        };
        select(&mut self.rows, tracks, was_just_seen);
        self.rows.iter().for_each(|&row| tracks[row as usize].edges = buffered(&tracks[row as usize].edges));
        self.assign(options, detections, false, f64::from(options.match_thresh));
        let ByteTrack { tracks, rows, .. } = self;
        rows.iter().for_each(|&row| tracks[row as usize].edges = tracks[row as usize].filter.edges());
        self.see_matches(detections, now, last_id);
    }

    pub(crate) fn predict(&mut self, options: &TrackOptions, Moment { now, steps }: Moment) {
        self.has_predicted = true;
        for track in &mut self.tracks {
            (0..steps).for_each(|_| track.filter.coast());
            track.edges = track.filter.edges();
            track.is_predicted = true;
        }
        self.remove_old(options, now);
        self.objects.fill(None);
        self.publish();
    }

    /// Puts detections of high scores into `columns`, those of low scores into `low`.
    fn split(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        self.edges.clear();
        self.columns.clear();
        self.low.clear();
        for (number, TrackInput { bbox, score, .. }) in (0..).zip(detections) {
            self.edges.push([bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from));
            if !bbox.is_valid() {
                continue;
            }
            if *score >= options.track_thresh {
                self.columns.push(number);
            } else if *score > options.low_thresh {
                self.low.push(number);
            }
        }
    }

    /// Matches the tracks of `rows` with the detections of `columns`.
    fn assign(&mut self, options: &TrackOptions, detections: &[TrackInput], fuse_score: bool, limit: f64) {
        let ByteTrack { tracks, edges, rows, columns, neighbours, assignment, .. } = self;
        assignment.begin(columns.len(), limit);
        if !rows.is_empty() {
            neighbours.fill((0..).zip(columns.iter().map(|&detection| edges[detection as usize])));
        }
        for &row in &*rows {
            let track = &tracks[row as usize];
            for column in neighbours.near(&track.edges) {
                let detection = columns[column as usize] as usize;
                let TrackInput { score, class, .. } = detections[detection];
                if options.per_class && class != track.class {
                    continue;
                }
                let overlap = iou(&track.edges, &edges[detection]);
                if overlap > 0.0 {
                    assignment.pair(column, 1.0 - if fuse_score { overlap * f64::from(score) } else { overlap });
                }
            }
            assignment.end_row();
        }
        assignment.solve();
    }

    fn see_matches(&mut self, detections: &[TrackInput], now: u64, last_id: &mut u64) {
        for (row, &track) in self.rows.iter().enumerate() {
            if let Some(column) = self.assignment.column(row) {
                let detection = self.columns[column];
                self.tracks[track as usize].see(detection, &detections[detection as usize], now, last_id);
            }
        }
    }

    /// Keeps in `rows` the tracks that were not matched.
    fn lose_others(&mut self) {
        for (row, &track) in self.rows.iter().enumerate() {
            if self.assignment.column(row).is_none() {
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
            is_predicted: false,
        };
        // In the first frame, tracks are confirmed at once.
        if self.frames == 1 {
            track.state = TrackState::Tracked;
            track.confirm(last_id);
        }
        self.tracks.push(track);
    }

    fn remove_old(&mut self, options: &TrackOptions, now: u64) {
        let is_old = |track: &Track| now.saturating_sub(track.last_seen) > options.lost_after;
        self.tracks.retain(|track| track.state != TrackState::Lost || !is_old(track));
    }

    /// Of a seen track and a lost one that overlap, the younger is removed.
    fn remove_doubles(&mut self, options: &TrackOptions) {
        self.tracks.retain(|track| track.state != TrackState::Removed);
        let ByteTrack { tracks, rows, neighbours, .. } = self;
        select(rows, tracks, |track| track.state == TrackState::Lost);
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
    fn publish(&mut self) {
        for track in self.tracks.iter().filter(|track| track.state == TrackState::Tracked) {
            let [x1, y1, x2, y2] = track.edges.map(|edge| edge as f32);
            let &Track { id, first_seen, last_seen, .. } = track;
            let bbox = BBox::new(x1, y1, x2, y2);
            self.objects[track.detection as usize] = Some(TrackedObject { id, bbox, first_seen, last_seen });
        }
    }
}

fn buffered(edges: &Edges) -> Edges {
    let [left, top, right, bottom] = *edges;
    let (across, down) = (BUFFER * (right - left), BUFFER * (bottom - top));
    [left - across, top - down, right + across, bottom + down]
}

/// Writes the indices of the tracks for which `is_it` is true.
fn select(rows: &mut Vec<u32>, tracks: &[Track], is_it: impl Fn(&Track) -> bool) {
    rows.clear();
    rows.extend((0..).zip(tracks).filter(|(_, track)| is_it(track)).map(|(number, _)| number));
}
