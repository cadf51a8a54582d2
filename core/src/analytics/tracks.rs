// SPDX-License-Identifier: MPL-2.0
//! The state of each object.

use std::collections::HashMap;

use super::geometry::Point;
use super::rules::{Course, Passage, Visit};
use super::text::TextMatches;
use crate::image::geometry::BBox;

/// An object as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventObject {
    pub id: u64,
    /// Index in the table of classes.
    pub class: u16,
    pub bbox: BBox,
    pub confidence: Option<f32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedObject {
    pub object: EventObject,
    pub point: Point,
    pub course: Course,
    pub texts: TextMatches,
    pub last_seen: u64,
    /// The frame in which it was last seen.
    pub frame: u64,
    /// Whether a crossing waits until it is certain.
    pub is_crossing: bool,
}

/// All objects, each at a place that stays its own. The states for zones and tripwires are in lists of their own.
#[derive(Debug, Default)]
pub(super) struct TrackTable {
    by_id: HashMap<u64, usize>,
    pub tracks: Vec<Option<WatchedObject>>,
    free: Vec<usize>,
    visits: Vec<Visit>,
    passages: Vec<Passage>,
    zones: usize,
    tripwires: usize,
}

impl TrackTable {
    pub fn new(zones: usize, tripwires: usize) -> Self {
        TrackTable { zones, tripwires, ..TrackTable::default() }
    }

    pub fn clear(&mut self) {
        self.by_id.clear();
        self.tracks.clear();
        self.free.clear();
        self.visits.clear();
        self.passages.clear();
    }

    pub fn find(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub fn add(&mut self, track: WatchedObject) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            let place = self.tracks.len();
            self.tracks.push(None);
            // Half empty, so that ids that come and go never let it grow.
            self.by_id.reserve(2 * self.tracks.len() - self.by_id.len());
            self.visits.resize((place + 1) * self.zones, Visit::default());
            self.passages.resize((place + 1) * self.tripwires, Passage::default());
            place
        });
        self.by_id.insert(track.object.id, place);
        self.tracks[place] = Some(track);
        place
    }

    /// Its visits and passages must have ended.
    pub fn remove(&mut self, place: usize) {
        if let Some(track) = self.tracks[place].take() {
            self.by_id.remove(&track.object.id);
            self.free.push(place);
        }
    }

    pub fn visits(&self, place: usize) -> &[Visit] {
        &self.visits[place * self.zones..][..self.zones]
    }

    /// A track with its states.
    pub fn parts(&mut self, place: usize) -> Option<(&mut WatchedObject, &mut [Visit], &mut [Passage])> {
        let track = self.tracks[place].as_mut()?;
        let visits = &mut self.visits[place * self.zones..][..self.zones];
        Some((track, visits, &mut self.passages[place * self.tripwires..][..self.tripwires]))
    }
}
