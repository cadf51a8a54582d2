// SPDX-License-Identifier: MPL-2.0
//! What trackers that descend from SORT know of a track in addition to its filters.

use super::kalman::FRAMES_LOST;
use super::overlap::Edges;
use super::{Moment, TrackInput, TrackOptions, TrackedObject};

#[derive(Clone, Debug)]
pub struct TrackLife {
    pub class: u32,
    /// 0 until it is confirmed.
    pub id: u64,
    pub first_seen: u64,
    pub last_seen: u64,
    detection: u32,
    /// The place of its mean vector, if it has one.
    pub look: Option<u32>,
    /// Frames since it began, and those in which it was seen without a break, skipped ones included.
    pub age: u64,
    pub streak: u32,
    /// Frames with detections since it was seen.
    pub missed: u32,
    is_out: bool,
}

impl TrackLife {
    pub fn new(detection: u32, found: &TrackInput, look: Option<u32>, now: u64) -> Self {
        TrackLife {
            class: found.class,
            id: 0,
            first_seen: now,
            last_seen: now,
            detection,
            look,
            age: 0,
            streak: 0,
            missed: 0,
            is_out: false,
        }
    }

    /// A frame with detections comes, so many frames after the last one.
    pub fn advance(&mut self, gap: u32) {
        self.age += u64::from(gap);
        if self.missed > 0 {
            self.streak = 0;
        }
        self.missed = self.missed.saturating_add(1);
    }

    pub fn see(&mut self, detection: u32, found: &TrackInput, Moment { now, gap, .. }: Moment) {
        (self.class, self.detection, self.last_seen) = (found.class, detection, now);
        self.missed = 0;
        self.streak = self.streak.saturating_add(gap);
    }

    /// Whether it is lost, and may be found by distance.
    pub fn was_lost(&self) -> bool {
        self.id != 0 && FRAMES_LOST.contains(&self.missed)
    }

    /// Whether it is still looked for.
    pub fn is_kept(&self, options: &TrackOptions, now: u64) -> bool {
        // Of things that were seen once or twice there may be many, and those without an id have none to keep.
        let may_return = self.id != 0 || FRAMES_LOST.contains(&(self.missed + 1));
        self.missed == 0 || (may_return && !options.is_lost(self.last_seen, now))
    }

    /// Whether the object is one of the frame, which gives it an id.
    pub fn set_out(&mut self, is_out: bool, last_id: &mut u64) {
        self.is_out = is_out;
        if is_out && self.id == 0 {
            *last_id += 1;
            self.id = *last_id;
        }
    }

    /// Writes `objects`, which has room, if the object is one of the frame.
    pub fn publish(&self, edges: Edges, objects: &mut [Option<TrackedObject>]) {
        if self.is_out {
            objects[self.detection as usize] = Some(TrackedObject::at(edges, self.id, self.first_seen, self.last_seen));
        }
    }
}
