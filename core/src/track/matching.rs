// SPDX-License-Identifier: MPL-2.0
//! The tracks and the detections of a frame that are still to be matched, and the matches that trackers share.

use super::appearance::Appearances;
use super::assignment::Assignment;
use super::detections::FrameDetections;
use super::kalman::{BoxFilter, GATES};
use super::overlap::{Edges, Neighbours};
use super::{TrackInput, TrackOptions};

/// A track that detections are matched with.
pub trait MatchedTrack {
    /// The filter that says where the object may be once frames were skipped, or while it is lost.
    fn coasting(&self) -> &BoxFilter;

    fn class(&self) -> u32;

    /// The place of its mean vector, if it has one.
    fn look(&self) -> Option<u32>;
}

/// It keeps its memory.
#[derive(Debug, Default)]
pub struct FrameMatching {
    pub found: FrameDetections,
    /// Indices of the tracks to match.
    pub rows: Vec<u32>,
    pub neighbours: Neighbours,
    pub assignment: Assignment,
}

impl FrameMatching {
    /// Writes to `rows` the indices of the tracks for which `is_it` is true.
    pub fn select<T>(&mut self, tracks: &[T], is_it: impl Fn(&T) -> bool) {
        self.rows.clear();
        self.rows.extend((0..).zip(tracks).filter(|(_, track)| is_it(track)).map(|(number, _)| number));
    }

    /// Matches the tracks of `rows`, which are looked for at the given boxes, with the detections of `columns`. Pairs
    /// that cost as much as the limit are none.
    pub fn assign<T: MatchedTrack>(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        tracks: &[T],
        limit: f64,
        place: impl Fn(&T) -> Edges,
        cost: impl Fn(&T, &Edges, &TrackInput) -> f64,
    ) {
        let FrameMatching { found: FrameDetections { edges, columns, .. }, rows, neighbours, assignment } = self;
        assignment.begin(columns.len(), limit);
        if !rows.is_empty() {
            neighbours.fill((0..).zip(columns.iter().map(|&detection| edges[detection as usize])));
        }
        for &row in &*rows {
            let track = &tracks[row as usize];
            for column in neighbours.near(&place(track)) {
                let detection = columns[column as usize] as usize;
                let seen = &detections[detection];
                if !options.per_class || seen.class == track.class() {
                    assignment.pair(column, cost(track, &edges[detection], seen));
                }
            }
            assignment.end_row();
        }
        assignment.solve();
    }

    /// Matches them by how probable the positions and sizes are, but for those that do not look alike. Without `appearances` they may.
    pub fn assign_distances<T: MatchedTrack>(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        tracks: &[T],
        appearances: Option<&Appearances>,
        gate: f64,
    ) {
        let place = |track: &T| track.coasting().reach(gate);
        let differ = |track: &T, seen: &TrackInput| {
            appearances.is_some_and(|appearances| appearances.differ(options, track.look(), seen.vector))
        };
        let cost = |track: &T, _: &Edges, seen: &TrackInput| {
            let distance = track.coasting().distance(&seen.bbox);
            if distance < gate && differ(track, seen) { f64::INFINITY } else { distance }
        };
        self.assign(options, detections, tracks, gate, place, cost);
    }

    /// Matches them by appearance, within the distance that the filter allows.
    pub fn assign_appearances<T: MatchedTrack>(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        tracks: &[T],
        appearances: &Appearances,
    ) {
        let [.., gate] = GATES;
        let place = |track: &T| track.coasting().reach(gate);
        let cost = |track: &T, _: &Edges, seen: &TrackInput| {
            let is_near = track.coasting().distance(&seen.bbox) < gate;
            if is_near { appearances.distance(track.look(), seen.vector) } else { f64::INFINITY }
        };
        self.assign(options, detections, tracks, f64::from(options.appearance_thresh), place, cost);
    }

    /// The pairs of a track and a detection that are matched.
    pub fn matches(&self) -> impl Iterator<Item = (u32, u32)> {
        self.assignment.matches(&self.rows, &self.found.columns)
    }

    /// Keeps in `rows` and `columns` what was not matched.
    pub fn keep_unmatched(&mut self) {
        self.assignment.keep_unmatched(&mut self.rows, &mut self.found.columns);
    }
}
