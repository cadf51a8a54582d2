// SPDX-License-Identifier: MPL-2.0
//! Zones, tripwires and directions on frames of one size, with their counts.

use super::config::{AnalyticsConfig, DirectionConfig, TripwireConfig, WantedDirection, ZoneConfig};
use super::geometry::{Area, CrossingDirection, Point, Segment};
use super::rules::{Crowd, Visit, VisitChange};
use super::tally::{CrossingCount, WantedClasses, ZoneCount};
use super::tracks::WatchedObject;
use super::{AnalyticsEvent, AnalyticsEventKind};

/// A zone of the stream, with its counts.
#[derive(Clone, Debug)]
pub struct Zone {
    pub config: ZoneConfig,
    pub area: Area,
    pub(super) crowd: Crowd,
    pub(super) wanted: WantedClasses,
    /// By class.
    pub counts: Vec<ZoneCount>,
    pub(super) current: u32,
}

/// A tripwire of the stream, with its counts.
#[derive(Clone, Debug)]
pub struct Tripwire {
    pub config: TripwireConfig,
    /// As far as it is configured, for drawing.
    pub segment: Segment,
    /// The line that is crossed.
    pub(super) line: Segment,
    /// The unit vector along which objects must move, and the direction that this is.
    motion: Option<(Point, CrossingDirection)>,
    pub(super) wanted: WantedClasses,
    /// By class.
    pub counts: Vec<CrossingCount>,
}

/// A direction of the stream, with its counts.
#[derive(Clone, Debug)]
pub struct Heading {
    pub config: DirectionConfig,
    pub(super) vector: Point,
    pub(super) wanted: WantedClasses,
    /// By class.
    pub counts: Vec<u64>,
}

impl Zone {
    /// On frames of that size; of the same zone on other frames the counts since the start stay.
    pub(super) fn new(all: &AnalyticsConfig, config: &ZoneConfig, size: (u32, u32), before: Option<Zone>) -> Self {
        let (counts, wanted) = before.map(|before| (before.counts, before.wanted)).unwrap_or_default();
        let (area, crowd) = (all.area(config, size), Crowd::default());
        Zone { config: config.clone(), area, crowd, wanted, counts, current: 0 }
    }

    pub fn total(&self) -> ZoneCount {
        self.counts.iter().copied().fold(ZoneCount::default(), |sum, count| sum + count)
    }

    pub fn is_crowded(&self) -> bool {
        self.crowd.is_crowded()
    }
}

impl Tripwire {
    /// As [`Zone::new`].
    pub(super) fn new(
        all: &AnalyticsConfig,
        config: &TripwireConfig,
        size: (u32, u32),
        before: Option<Tripwire>,
    ) -> Self {
        let (counts, wanted) = before.map(|before| (before.counts, before.wanted)).unwrap_or_default();
        let segment = all.segment(config, size);
        let line = if config.is_extended { segment.extended() } else { segment };
        let motion = config.motion.as_ref().map(|motion| {
            let vector = all.vector(motion, size);
            (vector, along(&segment, vector))
        });
        Tripwire { config: config.clone(), segment, line, motion, wanted, counts }
    }

    pub fn total(&self) -> CrossingCount {
        self.counts.iter().copied().fold(CrossingCount::default(), |sum, count| sum + count)
    }

    /// The only direction that is counted, if there is one.
    pub fn one_way(&self) -> Option<CrossingDirection> {
        match self.config.wanted {
            WantedDirection::Both => None,
            WantedDirection::Forward => Some(CrossingDirection::Forward),
            WantedDirection::Backward => Some(CrossingDirection::Backward),
            WantedDirection::AlongMotion => self.motion.map(|(_, direction)| direction),
        }
    }
}

impl Heading {
    /// As [`Zone::new`].
    pub(super) fn new(
        all: &AnalyticsConfig,
        config: &DirectionConfig,
        size: (u32, u32),
        before: Option<Heading>,
    ) -> Self {
        let (counts, wanted) = before.map(|before| (before.counts, before.wanted)).unwrap_or_default();
        Heading { config: config.clone(), vector: all.vector(&config.motion, size), wanted, counts }
    }
}

impl Zone {
    /// Counts a change of a visit, and makes an event of it.
    pub(super) fn take(
        &mut self,
        number: usize,
        visit: &mut Visit,
        track: &WatchedObject,
        change: Option<VisitChange>,
    ) -> Option<AnalyticsEvent> {
        let (kind, happened, dwell) = match change? {
            VisitChange::Entered { at } => {
                visit.class = track.object.class;
                let count = &mut self.counts[usize::from(visit.class)];
                (count.current, count.entered) = (count.current + 1, count.entered + 1);
                self.current += 1;
                (AnalyticsEventKind::Entered { zone: number }, at, None)
            }
            VisitChange::Left { at, dwell, class } => {
                let count = &mut self.counts[usize::from(class)];
                (count.current, count.left) = (count.current - 1, count.left + 1);
                self.current -= 1;
                (AnalyticsEventKind::Left { zone: number }, at, Some(dwell))
            }
        };
        Some(AnalyticsEvent { kind, happened, count: self.current.into(), dwell, object: Some(track.object) })
    }
}

impl Tripwire {
    /// Whether an object moves as it must to be counted.
    pub(super) fn is_along(&self, track: &WatchedObject) -> bool {
        let (Some((vector, _)), Some(config)) = (self.motion, &self.config.motion) else { return true };
        let motion = track.course.motion(track.point, 0.0);
        motion.is_none_or(|motion| cosine(vector, motion) >= config.min_cosine)
    }
}

/// The direction in which a path along a vector crosses a segment.
fn along(segment: &Segment, vector: Point) -> CrossingDirection {
    let [x, y] = [0, 1].map(|axis| segment.to[axis] - segment.from[axis]);
    if x * vector[1] - y * vector[0] < 0.0 { CrossingDirection::Forward } else { CrossingDirection::Backward }
}

/// Of the angle between unit vectors.
pub(super) fn cosine(a: Point, b: Point) -> f32 {
    a[0] * b[0] + a[1] * b[1]
}
