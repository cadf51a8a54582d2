// SPDX-License-Identifier: MPL-2.0
//! OC-SORT (Cao et al., CVPR 2023): SORT that trusts observations more than its filter.
//!
//! * Observation-centric momentum: matches in which an object keeps its direction cost less.
//! * Observation-centric recovery: the remaining detections are matched with the last observations of objects.
//! * Observation-centric re-update: once an object is seen again, its filter is run along the line between both
//!   observations.
//!
//! With vectors it is Deep OC-SORT (Maggiolino et al., ICIP 2023): overlaps count together with the likeness of a pair, which counts
//! more where it tells pairs apart (`appearance`), and what a track looks like changes more where its detection is certain. What
//! is not in the paper: vectors count in recovery too, and tracks that are then still lost are found by their vectors alone, where
//! the filter says that they can be.
//!
//! Two things differ from the program of its authors: pairs that overlap less than `iou_thresh` are left out before the
//! assignment, not after it; and with `reassociate` tracks that were lost are also found by distance and size where boxes do not
//! overlap, because objects turn while they are hidden.

use std::f64::consts::{FRAC_PI_2, PI};

use super::appearance::{Appearances, MEAN_WEIGHT, WeighedPairs, mean_weight};
use super::camera::{self, CommonMotion};
use super::detections::FrameDetections;
use super::kalman::{BoxFilter, BoxState, Estimate, GATES};
use super::life::TrackLife;
use super::matching::{FrameMatching, MatchedTrack};
use super::overlap::{Edges, center, iou};
use super::{Moment, TrackInput, TrackOptions, TrackedObject};

/// SORT's filter: centre, area and ratio, of which the ratio has no velocity.
#[derive(Clone, Copy, Debug)]
struct AreaFilter([Estimate; 4]);

impl AreaFilter {
    fn new(edges: &Edges) -> Self {
        let [x, y, area, ratio] = measure(edges);
        let moving = |value| Estimate::new(value, 10.0, 10_000.0);
        AreaFilter([moving(x), moving(y), moving(area), Estimate::new(ratio, 10.0, 0.0)])
    }

    fn predict(&mut self) {
        let area = &mut self.0[2];
        if area.value + area.velocity <= 0.0 {
            area.velocity = 0.0;
        }
        let noise = [(1.0, 0.01), (1.0, 0.01), (1.0, 0.0001), (1.0, 0.0)];
        for (number, (place, velocity)) in self.0.iter_mut().zip(noise) {
            number.predict(place, velocity);
        }
    }

    fn update(&mut self, edges: &Edges) {
        let noise = [1.0, 1.0, 10.0, 10.0];
        for ((number, measured), noise) in self.0.iter_mut().zip(measure(edges)).zip(noise) {
            number.update(measured, noise);
        }
    }

    fn shift(&mut self, by: [f64; 2]) {
        self.0.iter_mut().zip(by).for_each(|(number, by)| number.value += by);
    }

    fn edges(&self) -> Edges {
        let [x, y, area, ratio] = self.0.map(|number| number.value);
        let width = (area * ratio).sqrt();
        around([x, y], width, area / width)
    }
}

fn measure(edges: &Edges) -> [f64; 4] {
    let (width, height) = (edges[2] - edges[0], edges[3] - edges[1]);
    [edges[0] + width / 2.0, edges[1] + height / 2.0, width * height, width / (height + 1e-6)]
}

fn around([x, y]: [f64; 2], width: f64, height: f64) -> Edges {
    [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
}

/// The direction, of length 1, or 0 where both positions are the same.
fn direction(from: &Edges, to: &Edges) -> [f64; 2] {
    let ([from_x, from_y], [to_x, to_y]) = (center(from), center(to));
    let (x, y) = (to_x - from_x, to_y - from_y);
    let length = x.hypot(y) + 1e-6;
    [x / length, y / length]
}

/// The largest `delta_t`.
pub const MAX_DELTA_T: u32 = 16;

/// The last observations of an object: the edges at each age, at the index of the age's remainder.
#[derive(Clone, Copy, Debug, Default)]
struct Observations {
    edges: [Edges; MAX_DELTA_T as usize],
    ages: [Option<u64>; MAX_DELTA_T as usize],
    last: Option<Edges>,
}

impl Observations {
    fn add(&mut self, age: u64, edges: Edges) {
        let place = (age % u64::from(MAX_DELTA_T)) as usize;
        (self.edges[place], self.ages[place], self.last) = (edges, Some(age), Some(edges));
    }

    /// The oldest observation of the last `delta_t` ages before that one, else the last of all.
    fn before(&self, age: u64, delta_t: u32) -> Option<Edges> {
        let found = (1..=u64::from(delta_t)).rev().filter_map(|back| age.checked_sub(back)).find_map(|age| {
            let place = (age % u64::from(MAX_DELTA_T)) as usize;
            (self.ages[place] == Some(age)).then_some(self.edges[place])
        });
        found.or(self.last)
    }
}

#[derive(Clone, Debug)]
struct OcTrack {
    filter: AreaFilter,
    /// ByteTrack's filter, for frames that were skipped. The variances of SORT's are pixels, whatever the size of the
    /// object, and tell too little of where it may be.
    coasting: BoxFilter,
    /// The filter when the object was seen last, and the steps since then.
    seen_filter: AreaFilter,
    steps: u32,
    edges: Edges,
    life: TrackLife,
    observations: Observations,
    direction: Option<[f64; 2]>,
}

impl OcTrack {
    fn predict(&mut self, steps: u32) {
        (0..steps).for_each(|_| self.filter.predict());
        self.steps = self.steps.saturating_add(steps);
        self.edges = self.filter.edges();
    }

    fn see(&mut self, detection: u32, seen: Edges, found: &TrackInput, moment: Moment, delta_t: u32) {
        if let Some(last) = self.observations.last {
            self.direction = self.observations.before(self.life.age, delta_t).map(|before| direction(&before, &seen));
            if self.life.missed > 1 {
                self.update_again(&last, &seen);
            }
        }
        self.observations.add(self.life.age, seen);
        self.filter.update(&seen);
        self.coasting.update(&found.bbox);
        self.edges = self.filter.edges();
        (self.seen_filter, self.steps) = (self.filter, 0);
        self.life.see(detection, found, moment);
    }

    /// Updates the filter as if the object had been seen on the line between both positions.
    fn update_again(&mut self, from: &Edges, to: &Edges) {
        self.filter = self.seen_filter;
        let size = |edges: &Edges| [edges[2] - edges[0], edges[3] - edges[1]];
        let ([from_center, to_center], [from_size, to_size]) = ([from, to].map(center), [from, to].map(size));
        for step in 1..=self.steps {
            let share = f64::from(step) / f64::from(self.steps);
            let between =
                |from: [f64; 2], to: [f64; 2]| [0, 1].map(|axis| from[axis] + (to[axis] - from[axis]) * share);
            let [width, height] = between(from_size, to_size);
            self.filter.predict();
            self.filter.update(&around(between(from_center, to_center), width, height));
        }
    }

    /// How well the direction to a detection agrees with the direction so far: from -1/2 to 1/2.
    fn consistency(&self, to: &Edges, delta_t: u32) -> f64 {
        let (Some([x, y]), Some(before)) = (self.direction, self.observations.before(self.life.age, delta_t)) else {
            return 0.0;
        };
        let [to_x, to_y] = direction(&before, to);
        (FRAC_PI_2 - (x * to_x + y * to_y).clamp(-1.0, 1.0).acos()) / PI
    }
}

impl MatchedTrack for OcTrack {
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
pub struct OcSort {
    tracks: Vec<OcTrack>,
    frames: u64,
    matching: FrameMatching,
    pairs: WeighedPairs,
    motion: CommonMotion,
    appearances: Appearances,
}

impl OcSort {
    pub fn new(appearances: Appearances) -> Self {
        OcSort { appearances, ..OcSort::default() }
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
        self.matching.rows.clear();
        self.matching.rows.extend(0..self.tracks.len() as u32);
        let momentum = |track: &OcTrack, edges: &Edges, certainty: f64| {
            track.consistency(edges, options.delta_t) * f64::from(options.inertia) * certainty
        };
        self.assign(options, detections, |track| Some(track.edges), momentum);
        self.see_matches(options, detections, moment);
        if options.use_byte {
            std::mem::swap(&mut self.matching.found.columns, &mut self.matching.found.low);
            self.assign(options, detections, |track| Some(track.edges), |_, _, _| 0.0);
            self.see_matches(options, detections, moment);
            std::mem::swap(&mut self.matching.found.columns, &mut self.matching.found.low);
        }
        self.assign(options, detections, |track| track.observations.last, |_, _, _| 0.0);
        self.see_matches(options, detections, moment);
        if self.appearances.is_used() {
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
            let is_known = track.life.streak >= options.min_hits || is_early;
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

    /// Matches the tracks of `rows`, at the given boxes, with the detections of `columns`, by overlap and appearance. A bonus
    /// adds to the overlap of a pair.
    fn assign(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        place: impl Fn(&OcTrack) -> Option<Edges>,
        bonus: impl Fn(&OcTrack, &Edges, f64) -> f64,
    ) {
        let OcSort { tracks, matching, pairs, appearances, .. } = self;
        let FrameMatching { found: FrameDetections { edges, columns, .. }, rows, neighbours, assignment } = matching;
        pairs.begin(columns.len());
        neighbours.fill((0..).zip(columns.iter().map(|&detection| edges[detection as usize])));
        for &row in &*rows {
            let track = &tracks[row as usize];
            let at = place(track);
            for column in at.iter().flat_map(|at| neighbours.near(at)) {
                let detection = columns[column as usize] as usize;
                let seen = &detections[detection];
                let overlap = at.map_or(0.0, |at| iou(&at, &edges[detection]));
                if overlap >= f64::from(options.iou_thresh) && (!options.per_class || seen.class == track.class()) {
                    pairs.pair(column, overlap + bonus(track, &edges[detection], seen.certainty()));
                }
            }
            let vector = |column: u32| detections[columns[column as usize] as usize].vector;
            pairs.end_row(|column| appearances.similarity(track.life.look, vector(column)));
        }
        assignment.begin(columns.len(), 0.0);
        pairs.assign(options, assignment);
        assignment.solve();
    }

    /// Moves the tracks as far as the camera has shaken them.
    fn compensate_camera(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        let has_velocity = |track: &OcTrack| track.life.missed == 1 && track.observations.last.is_some();
        self.matching.select(&self.tracks, has_velocity);
        self.matching.rows.truncate(camera::MOST);
        self.assign_distances(options, detections, GATES[1]);
        let OcSort { tracks, matching, motion, .. } = self;
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
        self.matching.assign_distances(options, detections, &self.tracks, Some(&self.appearances), gate);
    }

    /// Keeps in `rows` and `columns` what was not matched.
    fn see_matches(&mut self, options: &TrackOptions, detections: &[TrackInput], moment: Moment) {
        let OcSort { tracks, matching, appearances, .. } = self;
        for (track, detection) in matching.matches() {
            let (seen, found) = (matching.found.edges[detection as usize], &detections[detection as usize]);
            let track = &mut tracks[track as usize];
            track.see(detection, seen, found, moment, options.delta_t);
            appearances.see(&mut track.life.look, found.vector, mean_weight(found.score, options.track_thresh));
        }
        matching.keep_unmatched();
    }

    fn begin(&mut self, detection: u32, found: &TrackInput, now: u64) {
        let edges = self.matching.found.edges[detection as usize];
        let filter = AreaFilter::new(&edges);
        let mut look = None;
        self.appearances.see(&mut look, found.vector, MEAN_WEIGHT);
        // As in the authors' program, the first detection of a track is not an observation.
        self.tracks.push(OcTrack {
            filter,
            coasting: BoxFilter::new(BoxState::Xyah, &found.bbox),
            seen_filter: filter,
            steps: 0,
            edges,
            life: TrackLife::new(detection, found, look, now),
            observations: Observations::default(),
            direction: None,
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
