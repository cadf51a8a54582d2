// SPDX-License-Identifier: MPL-2.0
//! A frame's objects in, its events out.

use super::config::AnalyticsConfig;
use super::geometry::Point;
use super::rules::{Course, Crowd, CrowdChange, Passage, Visit};
use super::tally::{ClassTable, CrossingCount, SeenClass, ZoneCount};
use super::text::TextMatches;
use super::tracks::{EventObject, TrackTable, WatchedObject};
use super::watched::{Heading, Tripwire, Zone, cosine};
use super::{AnalyticsEvent, AnalyticsEventKind};
use crate::image::geometry::BBox;
use crate::image::overlay::Attribute;

/// The point of an object that is in a zone or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvaluationPoint {
    /// Where a standing object touches the ground.
    #[default]
    BottomCenter,
    Center,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnalyticsOptions {
    pub evaluation_point: EvaluationPoint,
    /// Nanoseconds after which an object that is not seen has left.
    pub lost_after: u64,
}

impl Default for AnalyticsOptions {
    fn default() -> Self {
        AnalyticsOptions { evaluation_point: EvaluationPoint::default(), lost_after: 1_000_000_000 }
    }
}

/// An object with an id, in pixels of the frame.
#[derive(Clone, Copy, Debug)]
pub struct AnalyticsInput<'a> {
    pub id: u64,
    pub bbox: BBox,
    pub label: &'a str,
    pub class: Option<u32>,
    pub confidence: Option<f32>,
    /// The texts among them are those that `text-matches` asks for.
    pub attributes: &'a [Attribute],
}

/// Watches the objects of one stream.
#[derive(Debug)]
pub struct Analytics {
    config: AnalyticsConfig,
    /// Of the frames, in pixels.
    height: f32,
    pub zones: Vec<Zone>,
    pub tripwires: Vec<Tripwire>,
    pub headings: Vec<Heading>,
    classes: ClassTable,
    tracks: TrackTable,
    /// The places of the objects of the last frame.
    places: Vec<Option<usize>>,
    events: Vec<AnalyticsEvent>,
    now: u64,
    frame: u64,
    /// Grows whenever a count changes.
    version: u64,
}

impl Analytics {
    /// Nothing is counted before [`Analytics::set_size`].
    pub fn new(config: AnalyticsConfig) -> Self {
        let tracks = TrackTable::new(config.zones.len(), config.tripwires.len());
        Analytics {
            config,
            height: 0.0,
            zones: Vec::new(),
            tripwires: Vec::new(),
            headings: Vec::new(),
            classes: ClassTable::default(),
            tracks,
            places: Vec::new(),
            events: Vec::new(),
            now: 0,
            frame: 0,
            version: 0,
        }
    }

    /// The frames have another size: all objects end, counts since the start stay. Returns the names of zones and
    /// tripwires that lie outside the frame.
    pub fn set_size(&mut self, size: (u32, u32)) -> Vec<String> {
        self.reset();
        self.height = size.1 as f32;
        let Analytics { config, zones, tripwires, headings, .. } = self;
        let mut before = std::mem::take(zones).into_iter();
        zones.extend(config.zones.iter().map(|zone| Zone::new(config, zone, size, before.next())));
        let mut before = std::mem::take(tripwires).into_iter();
        tripwires.extend(config.tripwires.iter().map(|tripwire| Tripwire::new(config, tripwire, size, before.next())));
        let mut before = std::mem::take(headings).into_iter();
        headings.extend(config.directions.iter().map(|direction| Heading::new(config, direction, size, before.next())));
        self.outside(size)
    }

    fn outside(&self, (width, height): (u32, u32)) -> Vec<String> {
        let size = [width as f32, height as f32];
        let is_outside = |points: &[Point]| {
            (0..2).any(|axis| {
                points.iter().all(|point| point[axis] < 0.0) || points.iter().all(|point| point[axis] > size[axis])
            })
        };
        let zones = self.zones.iter().filter(|zone| is_outside(&zone.area.corners()));
        let lines = self.tripwires.iter().filter(|tripwire| {
            !tripwire.config.is_extended && is_outside(&[tripwire.segment.from, tripwire.segment.to])
        });
        zones.map(|zone| zone.config.name.clone()).chain(lines.map(|line| line.config.name.clone())).collect()
    }

    /// What follows is another part of the stream, or another stream: all objects end, without events.
    pub fn reset(&mut self) {
        self.tracks.clear();
        self.places.clear();
        for zone in &mut self.zones {
            zone.counts.iter_mut().for_each(|count| count.current = 0);
            (zone.crowd, zone.current) = (Crowd::default(), 0);
        }
        self.version += 1;
    }

    /// Lets the counts since the start begin at 0 again: all, or those of that name. Returns whether there is one of
    /// that name.
    pub fn reset_counts(&mut self, name: Option<&str>) -> bool {
        let is_it = |candidate: &str| name.is_none_or(|name| name == candidate);
        let mut found = name.is_none();
        for zone in self.zones.iter_mut().filter(|zone| is_it(&zone.config.name)) {
            zone.counts.iter_mut().for_each(|count| (count.entered, count.left) = (0, 0));
            found = true;
        }
        for tripwire in self.tripwires.iter_mut().filter(|tripwire| is_it(&tripwire.config.name)) {
            tripwire.counts.fill(CrossingCount::default());
            found = true;
        }
        for heading in self.headings.iter_mut().filter(|heading| is_it(&heading.config.name)) {
            heading.counts.fill(0);
            found = true;
        }
        self.version += 1;
        found
    }

    /// Takes in the objects of a frame at `now`. Objects with invalid boxes are left out, and so are further ones with
    /// the same id.
    pub fn update<'a>(
        &mut self,
        options: &AnalyticsOptions,
        objects: impl Iterator<Item = AnalyticsInput<'a>>,
        now: u64,
    ) -> &[AnalyticsEvent] {
        self.events.clear();
        self.places.clear();
        self.now = now;
        self.frame += 1;
        for object in objects {
            let place = self.see(options, &object);
            self.places.push(place);
        }
        for place in 0..self.tracks.tracks.len() {
            self.settle(place, options.lost_after);
        }
        self.watch_crowds();
        &self.events
    }

    /// The stream is at its end: crossings that nothing has undone count.
    pub fn finish(&mut self) -> &[AnalyticsEvent] {
        self.events.clear();
        for place in 0..self.tracks.tracks.len() {
            self.settle_crossings(place, true);
        }
        &self.events
    }

    /// Takes in an object, and returns its place.
    fn see(&mut self, options: &AnalyticsOptions, object: &AnalyticsInput) -> Option<usize> {
        if !object.bbox.is_valid() {
            return None;
        }
        let BBox { x1, y1, x2, y2 } = object.bbox;
        let across = (x1 + x2) * 0.5;
        let point = match options.evaluation_point {
            EvaluationPoint::BottomCenter => [across, y2],
            EvaluationPoint::Center => [across, (y1 + y2) * 0.5],
        };
        let place = match self.tracks.find(object.id) {
            Some(place) => place,
            None => self.begin(object, point),
        };
        let class = self.class_of(place, object);
        let (track, ..) = self.tracks.parts(place)?;
        // The first frame of an object is 0.
        if track.frame == self.frame {
            return None;
        }
        let before = std::mem::replace(&mut track.point, point);
        track.object = EventObject { id: object.id, class, bbox: object.bbox, confidence: object.confidence };
        (track.frame, track.last_seen) = (self.frame, self.now);
        track.course.step(point, self.now);
        track.texts.see(&self.config.text_patterns, object.attributes);
        self.visit(place, point);
        self.cross(place, before, point);
        self.head(place, point);
        Some(place)
    }

    fn begin(&mut self, object: &AnalyticsInput, point: Point) -> usize {
        let class = self.enter_class(object);
        self.tracks.add(WatchedObject {
            object: EventObject { id: object.id, class, bbox: object.bbox, confidence: object.confidence },
            point,
            course: Course::begin(point, self.now),
            texts: TextMatches::default(),
            last_seen: self.now,
            frame: 0,
            is_crossing: false,
        })
    }

    /// The index of the class of an object, which mostly is that of the last frame.
    fn class_of(&mut self, place: usize, object: &AnalyticsInput) -> u16 {
        let known = self.tracks.tracks[place].map(|track| track.object.class);
        let is_same = |class: u16| {
            let SeenClass { label, class } = self.classes.get(class);
            *class == object.class && label == object.label
        };
        known.filter(|class| is_same(*class)).unwrap_or_else(|| self.enter_class(object))
    }

    fn enter_class(&mut self, object: &AnalyticsInput) -> u16 {
        let Analytics { classes, config, .. } = self;
        let (index, is_new) = classes.enter(object.label, object.class, |label, class| config.names(label, class));
        if is_new {
            let class = self.classes.get(index);
            for zone in &mut self.zones {
                zone.wanted.enter(&zone.config.classes, class);
                zone.counts.push(ZoneCount::default());
            }
            for tripwire in &mut self.tripwires {
                tripwire.wanted.enter(&tripwire.config.classes, class);
                tripwire.counts.push(CrossingCount::default());
            }
            for heading in &mut self.headings {
                heading.wanted.enter(&heading.config.classes, class);
                heading.counts.push(0);
            }
        }
        index
    }

    fn visit(&mut self, place: usize, point: Point) {
        let point = on_frame(point, self.height);
        let Analytics { zones, tracks, events, now, version, .. } = self;
        let Some((track, visits, _)) = tracks.parts(place) else { return };
        for (number, (zone, visit)) in zones.iter_mut().zip(visits).enumerate() {
            let is_wanted = zone.wanted.has(track.object.class) && track.texts.has(zone.config.text_matches);
            let is_inside = is_wanted && zone.area.contains(point) != zone.config.is_inverse;
            if !is_inside && *visit == Visit::default() {
                continue;
            }
            let change = visit.step(&zone.config, Some(is_inside), *now);
            *version += u64::from(change.is_some());
            events.extend(zone.take(number, visit, track, change));
            if let Some(dwell) = visit.dwells(&zone.config) {
                let kind = AnalyticsEventKind::Dwelled { zone: number };
                let (happened, count) = (*now, zone.current.into());
                events.push(AnalyticsEvent { kind, happened, count, dwell: Some(dwell), object: Some(track.object) });
            }
        }
    }

    fn cross(&mut self, place: usize, before: Point, point: Point) {
        let Analytics { tripwires, tracks, now, .. } = self;
        let Some((track, _, passages)) = tracks.parts(place) else { return };
        for (tripwire, passage) in tripwires.iter().zip(passages) {
            let Some(direction) = tripwire.line.crossing(before, point) else { continue };
            if tripwire.wanted.has(track.object.class) {
                passage.cross(direction, *now);
                track.is_crossing = true;
            }
        }
    }

    fn head(&mut self, place: usize, point: Point) {
        let Analytics { headings, tracks, events, now, version, .. } = self;
        if headings.is_empty() {
            return;
        }
        let Some((track, ..)) = tracks.parts(place) else { return };
        let (object, texts, course) = (track.object, track.texts, &mut track.course);
        let Some(motion) = course.motion(point, object.bbox.height()) else { return };
        let likeness = |(number, heading): (usize, &Heading)| (cosine(heading.vector, motion), number);
        let is_wanted = |heading: &Heading| heading.wanted.has(object.class) && texts.has(heading.config.text_matches);
        let wanted = headings.iter().enumerate().filter(|(_, heading)| is_wanted(heading));
        let best = wanted.map(likeness).max_by(|a, b| a.0.total_cmp(&b.0));
        let best = best.filter(|(cosine, number)| *cosine >= headings[*number].config.motion.min_cosine);
        let Some((_, direction)) = best else { return };
        if let Some(happened) = course.head(direction as u16, *now) {
            let counts = &mut headings[direction].counts;
            counts[usize::from(object.class)] += 1;
            let kind = AnalyticsEventKind::Headed { direction };
            events.push(AnalyticsEvent {
                kind,
                happened,
                count: counts.iter().sum(),
                dwell: None,
                object: Some(object),
            });
            *version += 1;
        }
    }

    /// What time brings about: crossings become certain, objects leave or are lost.
    fn settle(&mut self, place: usize, lost_after: u64) {
        let Some(track) = self.tracks.tracks[place] else { return };
        let is_lost = self.now.saturating_sub(track.last_seen) > lost_after;
        if track.is_crossing {
            self.settle_crossings(place, is_lost);
        }
        if track.frame == self.frame {
            return;
        }
        let Analytics { zones, tracks, events, now, version, .. } = self;
        let Some((track, visits, _)) = tracks.parts(place) else { return };
        for (number, (zone, visit)) in zones.iter_mut().zip(visits).enumerate() {
            if *visit == Visit::default() {
                continue;
            }
            let change = if is_lost { visit.end() } else { visit.step(&zone.config, None, *now) };
            *version += u64::from(change.is_some());
            events.extend(zone.take(number, visit, track, change));
        }
        if is_lost {
            tracks.remove(place);
        }
    }

    /// Counts crossings that are certain, or all.
    fn settle_crossings(&mut self, place: usize, all: bool) {
        let Analytics { tripwires, tracks, events, now, version, .. } = self;
        let Some((track, _, passages)) = tracks.parts(place) else { return };
        for (number, (tripwire, passage)) in tripwires.iter_mut().zip(passages.iter_mut()).enumerate() {
            let hysteresis = if all { 0 } else { tripwire.config.hysteresis };
            let certain = passage.settle(hysteresis, *now).filter(|(direction, _)| {
                tripwire.one_way().is_none_or(|wanted| wanted == *direction) && tripwire.is_along(track)
            });
            if !track.texts.has(tripwire.config.text_matches) {
                // What is written on it may be read later. An object that is gone is not asked again.
                if all {
                    passage.forget();
                } else if let Some(crossing) = certain {
                    passage.wait(crossing);
                }
                continue;
            }
            for (direction, happened) in passage.waited().chain(certain) {
                tripwire.counts[usize::from(track.object.class)].add(direction);
                let kind = AnalyticsEventKind::Crossed { tripwire: number, direction };
                let count = tripwire.total().of(direction);
                events.push(AnalyticsEvent { kind, happened, count, dwell: None, object: Some(track.object) });
                *version += 1;
            }
        }
        track.is_crossing = passages.iter().any(Passage::is_open);
    }

    fn watch_crowds(&mut self) {
        let Analytics { zones, events, now, version, .. } = self;
        for (number, zone) in zones.iter_mut().enumerate() {
            let Some(config) = &zone.config.crowd else { continue };
            let (kind, happened, dwell) = match zone.crowd.step(config, zone.current, *now) {
                Some(CrowdChange::Begun { at }) => (AnalyticsEventKind::Crowded { zone: number }, at, None),
                Some(CrowdChange::Ended { lasted }) => {
                    (AnalyticsEventKind::Uncrowded { zone: number }, *now, Some(lasted))
                }
                None => continue,
            };
            events.push(AnalyticsEvent { kind, happened, count: zone.current.into(), dwell, object: None });
            *version += 1;
        }
    }

    /// The zones that an object of the last frame is in, by its number among them, and for how long in nanoseconds.
    pub fn zones_of(&self, number: usize) -> impl Iterator<Item = (&Zone, u64)> {
        let place = self.places.get(number).copied().flatten();
        let visits = place.map_or(&[][..], |place| self.tracks.visits(place));
        self.zones.iter().zip(visits).filter_map(|(zone, visit)| Some((zone, visit.dwell()?)))
    }

    /// The direction in which an object of the last frame moves.
    pub fn heading_of(&self, number: usize) -> Option<&Heading> {
        let place = self.places.get(number).copied().flatten()?;
        let heading = self.tracks.tracks[place]?.course.heading?;
        self.headings.get(usize::from(heading))
    }

    /// The id of an object of the last frame.
    pub fn id_of(&self, number: usize) -> Option<u64> {
        let place = self.places.get(number).copied().flatten()?;
        Some(self.tracks.tracks[place]?.object.id)
    }

    pub fn events(&self) -> &[AnalyticsEvent] {
        &self.events
    }

    /// The name of the zone, the tripwire or the direction of an event.
    pub fn name_of(&self, kind: &AnalyticsEventKind) -> &str {
        match *kind {
            AnalyticsEventKind::Crossed { tripwire, .. } => &self.tripwires[tripwire].config.name,
            AnalyticsEventKind::Headed { direction } => &self.headings[direction].config.name,
            AnalyticsEventKind::Entered { zone }
            | AnalyticsEventKind::Left { zone }
            | AnalyticsEventKind::Dwelled { zone }
            | AnalyticsEventKind::Crowded { zone }
            | AnalyticsEventKind::Uncrowded { zone } => &self.zones[zone].config.name,
        }
    }

    /// The classes that have been seen; counts are in their order.
    pub fn classes(&self) -> &[SeenClass] {
        self.classes.list()
    }

    /// The same as long as no count has changed.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// A point on the lower edge of the frame, where boxes end that the frame cuts off, is in the last row of pixels: a zone that reaches to
/// the edge has it.
fn on_frame([x, y]: Point, height: f32) -> Point {
    if y <= height { [x, y.min((height - 1.0).next_down())] } else { [x, y] }
}
