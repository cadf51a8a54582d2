// SPDX-License-Identifier: MPL-2.0
//! When an object is in a zone, has crossed a line, and moves in a direction: one state for each object and rule.
//!
//! All of them wait until what is seen has lasted for some time, because boxes tremble and detections are missing.

use super::config::{CrowdConfig, ZoneConfig};
use super::geometry::{CrossingDirection, Point};

/// An object and a zone. Where its box trembles on the edge, it comes in and out in the middle of that time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Visit {
    /// When it was first seen inside, of this visit or this trembling.
    first: Option<u64>,
    /// Since when it has been seen nowhere else.
    streak: u64,
    /// When it was last seen inside.
    last_inside: u64,
    /// Whether it is inside where it was seen last.
    is_inside: bool,
    /// When it was last seen inside before it began to be outside too.
    edge: Option<u64>,
    /// When it has entered, if it has, and has not left.
    entered: Option<u64>,
    has_dwelled: bool,
    /// The class with which it has entered.
    pub class: u16,
}

/// A change of a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VisitChange {
    Entered { at: u64 },
    Left { at: u64, dwell: u64, class: u16 },
}

impl Visit {
    /// Takes in whether the object is inside; `None` where it is not seen.
    pub fn step(&mut self, zone: &ZoneConfig, sight: Option<bool>, now: u64) -> Option<VisitChange> {
        match sight {
            Some(true) => return self.be_inside(zone, now),
            Some(false) if self.is_inside => {
                self.is_inside = false;
                self.edge.get_or_insert(self.last_inside);
            }
            _ => {}
        }
        if !self.is_inside && now.saturating_sub(self.last_inside) >= zone.object_retention { self.end() } else { None }
    }

    fn be_inside(&mut self, zone: &ZoneConfig, now: u64) -> Option<VisitChange> {
        if !std::mem::replace(&mut self.is_inside, true) {
            self.streak = now;
        }
        let first = *self.first.get_or_insert(now);
        self.last_inside = now;
        if now.saturating_sub(self.streak) < zone.hysteresis {
            return None;
        }
        self.edge = None;
        if self.entered.is_some() {
            return None;
        }
        let at = *self.entered.insert(first.midpoint(self.streak));
        Some(VisitChange::Entered { at })
    }

    /// The object is gone.
    pub fn end(&mut self) -> Option<VisitChange> {
        let Visit { entered, last_inside, is_inside, edge, class, .. } = std::mem::take(self);
        let at = edge.filter(|_| !is_inside).unwrap_or(last_inside).midpoint(last_inside);
        Some(VisitChange::Left { at, dwell: at.saturating_sub(entered?), class })
    }

    /// Nanoseconds inside, of an object that has entered.
    pub fn dwell(&self) -> Option<u64> {
        Some(self.last_inside.saturating_sub(self.entered?))
    }

    /// The dwell time once it has been reached; then no more in this visit.
    pub fn dwells(&mut self, zone: &ZoneConfig) -> Option<u64> {
        let wanted = zone.dwell_time.filter(|_| !self.has_dwelled)?;
        let dwell = self.dwell().filter(|dwell| *dwell >= wanted)?;
        self.has_dwelled = true;
        Some(dwell)
    }
}

/// An object and a tripwire. Crossings forward and backward cancel each other until none has come for the tripwire's
/// hysteresis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passage {
    /// Crossings forward less those backward.
    net: i32,
    /// The time of the last one.
    last: u64,
    /// Crossings that are certain, the oldest first, of an object whose text is yet to match. Nothing cancels them.
    waiting: Vec<CertainCrossing>,
}

/// The direction and the time of a crossing that nothing undoes.
pub type CertainCrossing = (CrossingDirection, u64);

/// Crossings of an object and a tripwire that wait for a text. Of more, the latest stay.
pub const MAX_WAITING: usize = 16;

impl Passage {
    pub fn cross(&mut self, direction: CrossingDirection, now: u64) {
        self.net += if direction == CrossingDirection::Forward { 1 } else { -1 };
        self.last = now;
    }

    /// Whether there are crossings that are not certain, or that wait.
    pub fn is_open(&self) -> bool {
        self.net != 0 || !self.waiting.is_empty()
    }

    /// A crossing that is certain now.
    pub fn settle(&mut self, hysteresis: u64, now: u64) -> Option<CertainCrossing> {
        if self.net == 0 || now.saturating_sub(self.last) < hysteresis {
            return None;
        }
        let direction = if self.net > 0 { CrossingDirection::Forward } else { CrossingDirection::Backward };
        self.net = 0;
        Some((direction, self.last))
    }

    /// Keeps a crossing until [`Passage::waited`] or [`Passage::forget`].
    pub fn wait(&mut self, crossing: CertainCrossing) {
        if self.waiting.len() == MAX_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(crossing);
    }

    /// The crossings that have waited, which do so no more.
    pub fn waited(&mut self) -> impl Iterator<Item = CertainCrossing> {
        self.waiting.drain(..)
    }

    /// The object is gone, and what waits counts no more.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }
}

/// The way of an object over the last half to whole second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Course {
    /// The places half a second apart, the older first.
    places: [Point; 2],
    /// When the newer one was taken.
    taken: u64,
    /// The direction in which it moves.
    pub heading: Option<u16>,
    /// One in which it may move now, and since when.
    candidate: Option<(u16, u64)>,
}

const COURSE_TIME: u64 = 500_000_000;
/// An object that has moved less than this part of its height stands.
const STANDING: f32 = 0.2;

impl Course {
    pub fn begin(place: Point, now: u64) -> Self {
        Course { places: [place; 2], taken: now, heading: None, candidate: None }
    }

    pub fn step(&mut self, place: Point, now: u64) {
        if now.saturating_sub(self.taken) >= COURSE_TIME {
            self.places = [self.places[1], place];
            self.taken = now;
        }
    }

    /// The unit vector along which an object of that height has moved; `None` while it stands.
    pub fn motion(&self, place: Point, height: f32) -> Option<Point> {
        let [x, y] = [0, 1].map(|axis| place[axis] - self.places[0][axis]);
        let length = x.hypot(y);
        (length > height * STANDING).then(|| [x / length, y / length])
    }

    /// Takes in the direction in which it is seen to move, and returns it once it has done so for half a second and did
    /// not before.
    pub fn head(&mut self, direction: u16, now: u64) -> Option<u64> {
        if self.heading == Some(direction) {
            self.candidate = None;
            return None;
        }
        let since = match self.candidate {
            Some((candidate, since)) if candidate == direction => since,
            _ => self.candidate.insert((direction, now)).1,
        };
        if now.saturating_sub(since) < COURSE_TIME {
            return None;
        }
        (self.heading, self.candidate) = (Some(direction), None);
        Some(since)
    }
}

/// Whether a zone is crowded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crowd {
    since: Option<u64>,
    is_crowded: bool,
}

/// A change of a crowd.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CrowdChange {
    Begun { at: u64 },
    Ended { lasted: u64 },
}

impl Crowd {
    pub fn step(&mut self, config: &CrowdConfig, count: u32, now: u64) -> Option<CrowdChange> {
        if count < config.threshold {
            let Crowd { since, is_crowded } = std::mem::take(self);
            let since = since.filter(|_| is_crowded)?;
            return Some(CrowdChange::Ended { lasted: now.saturating_sub(since) });
        }
        let since = *self.since.get_or_insert(now);
        if self.is_crowded || now.saturating_sub(since) < config.time {
            return None;
        }
        self.is_crowded = true;
        Some(CrowdChange::Begun { at: since })
    }

    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }
}
