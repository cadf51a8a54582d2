// SPDX-License-Identifier: MPL-2.0
//! An object that is known: where it was seen, and what it looked like there.

use std::sync::Arc;
use std::time::Instant;

use super::links::{CameraPassage, CameraPassages};
use crate::vector::product;

/// Tracks of an object that are kept. Older ones are forgotten.
const SIGHTINGS: usize = 8;

/// A track, of all streams that share the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackKey {
    /// From 1 on.
    pub stream: u64,
    pub track: u64,
}

impl TrackKey {
    /// That of no track.
    const NONE: TrackKey = TrackKey { stream: 0, track: 0 };
}

/// A track that an object was seen as.
#[derive(Debug)]
pub struct Sighting {
    pub key: TrackKey,
    pub camera: Arc<str>,
    /// Nanoseconds, like the times of frames: when it was last seen.
    pub last: u64,
    /// The call of the table in which it was last seen.
    pub turn: u64,
    /// The mean of its best ones; empty where that is not known.
    pub vector: Vec<f32>,
}

/// What a track must keep to.
pub struct IdentityRules<'a> {
    pub passages: &'a CameraPassages,
    pub max_age: u64,
    /// Whether a track is in the newest frame of its stream.
    pub is_in_sight: &'a dyn Fn(TrackKey) -> bool,
}

#[derive(Debug)]
pub struct KnownIdentity {
    pub label: String,
    pub first_arrived: Instant,
    pub last_arrived: Instant,
    sightings: Vec<Sighting>,
}

impl IdentityRules<'_> {
    /// The rule for an object that was seen there, at this camera.
    fn passage(&self, sighting: &Sighting, camera: &str) -> CameraPassage {
        let is_same = *sighting.camera == *camera;
        if is_same { CameraPassage::default() } else { self.passages.between(&sighting.camera, camera) }
    }

    /// Whether an object that was seen there may be at this camera from that time on.
    fn allow(&self, sighting: &Sighting, camera: &str, from: u64) -> bool {
        let passage = self.passage(sighting, camera);
        let gap = from.checked_sub(sighting.last).filter(|gap| *gap > 0);
        passage.overlap || gap.is_some_and(|gap| gap >= passage.min_travel) && !(self.is_in_sight)(sighting.key)
    }
}

impl KnownIdentity {
    pub fn new(label: &str, arrived: Instant) -> Self {
        KnownIdentity {
            label: label.into(),
            first_arrived: arrived,
            last_arrived: arrived,
            sightings: Vec::with_capacity(1),
        }
    }

    /// Whether a track may be this object that is at a camera since then.
    pub fn may_be(&self, camera: &str, first: u64, rules: &IdentityRules) -> bool {
        let Some(latest) = self.sightings.iter().max_by_key(|sighting| sighting.last) else { return false };
        let longest = rules.passage(latest, camera).max_travel.unwrap_or(u64::MAX).min(rules.max_age);
        first.saturating_sub(latest.last) <= longest
            && self.sightings.iter().all(|sighting| rules.allow(sighting, camera, first))
            && (self.sightings.len() < SIGHTINGS || self.oldest(rules.is_in_sight).is_some())
    }

    /// Whether a track of this object cannot be it any more: another one was seen since that turn, where this one cannot be by now.
    pub fn is_elsewhere(&self, key: TrackKey, since: u64, camera: &str, now: u64, rules: &IdentityRules) -> bool {
        let is_new = |sighting: &&Sighting| sighting.key != key && sighting.turn > since;
        self.sightings.iter().filter(is_new).any(|sighting| !rules.allow(sighting, camera, now))
    }

    /// The cosine to the most similar of its tracks.
    pub fn similarity(&self, vector: &[f32]) -> f32 {
        self.sightings.iter().map(|sighting| product(&sighting.vector, vector)).fold(-1.0, f32::max)
    }

    /// It is in sight as that track. Without a vector, that of before stays.
    pub fn see(&mut self, seen: Sighting, arrived: Instant, is_in_sight: &dyn Fn(TrackKey) -> bool) {
        self.last_arrived = self.last_arrived.max(arrived);
        if let Some(known) = self.sightings.iter_mut().find(|sighting| sighting.key == seen.key) {
            (known.last, known.turn) = (seen.last, seen.turn);
            if !seen.vector.is_empty() {
                known.vector = seen.vector;
            }
            return;
        }
        if self.sightings.len() >= SIGHTINGS {
            let Some(oldest) = self.oldest(is_in_sight) else { return };
            self.sightings.swap_remove(oldest);
        }
        self.sightings.push(seen);
    }

    /// Which track may be forgotten.
    fn oldest(&self, is_in_sight: &dyn Fn(TrackKey) -> bool) -> Option<usize> {
        let gone = self.sightings.iter().enumerate().filter(|(_, sighting)| !is_in_sight(sighting.key));
        gone.min_by_key(|(_, sighting)| sighting.turn).map(|(place, _)| place)
    }

    /// That track is not followed any more. What it looked like stays known.
    pub fn end(&mut self, key: TrackKey) {
        let own = self.sightings.iter_mut().filter(|sighting| sighting.key == key);
        own.for_each(|sighting| sighting.key = TrackKey::NONE);
    }

    /// That track is another object. What it looked like is that object's: else neither could be told from the other again.
    pub fn lose(&mut self, key: TrackKey) {
        self.sightings.retain(|sighting| sighting.key != key);
    }

    pub fn is_in_sight(&self, is_in_sight: &dyn Fn(TrackKey) -> bool) -> bool {
        self.sightings.iter().any(|sighting| is_in_sight(sighting.key))
    }

    /// The clock of a camera was set back: what it has seen was no later than that.
    pub fn set_back(&mut self, camera: &str, latest: u64) {
        for sighting in self.sightings.iter_mut().filter(|sighting| *sighting.camera == *camera) {
            sighting.last = sighting.last.min(latest);
        }
    }

    /// Those that have seen it, the last one first.
    pub fn cameras(&self) -> Vec<String> {
        let mut sightings: Vec<&Sighting> = self.sightings.iter().collect();
        sightings.sort_by_key(|sighting| std::cmp::Reverse(sighting.turn));
        let mut names: Vec<String> = Vec::new();
        for sighting in sightings {
            if !names.iter().any(|name| **name == *sighting.camera) {
                names.push(sighting.camera.to_string());
            }
        }
        names
    }
}
