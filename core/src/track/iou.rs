// SPDX-License-Identifier: MPL-2.0
//! The simplest tracker: it matches detections with the last boxes of objects, the largest overlaps first. For slow
//! objects, and as a baseline for other trackers.

use super::assignment::MAX_PAIRS;
use super::overlap::{Edges, Neighbours, iou};
use super::{Moment, TrackInput, TrackOptions, TrackedObject};

#[derive(Clone, Debug)]
struct IouTrack {
    edges: Edges,
    class: u32,
    /// 0 until it is seen twice.
    id: u64,
    first_seen: u64,
    last_seen: u64,
    /// The number of the frame in which it began: a time may be that of two frames.
    begun: u64,
    /// The index of its detection in the last frame, if it was seen there.
    detection: Option<u32>,
}

/// The tracks of a stream. It keeps its memory.
#[derive(Debug, Default)]
pub struct IouTracker {
    tracks: Vec<IouTrack>,
    frames: u64,
    edges: Vec<Edges>,
    /// Overlap, track, detection.
    pairs: Vec<(f64, u32, u32)>,
    is_taken: Vec<bool>,
    neighbours: Neighbours,
}

impl IouTracker {
    pub fn reset(&mut self) {
        self.tracks.clear();
        self.frames = 0;
    }

    pub(crate) fn update(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        Moment { now, .. }: Moment,
        last_id: &mut u64,
    ) {
        self.frames += 1;
        self.remove_old(options, now);
        let IouTracker { tracks, frames, edges, pairs, is_taken, neighbours } = self;
        edges.clear();
        edges.extend(
            detections.iter().map(|seen| [seen.bbox.x1, seen.bbox.y1, seen.bbox.x2, seen.bbox.y2].map(f64::from)),
        );
        let counts = |seen: &TrackInput| seen.bbox.is_valid() && seen.score >= options.track_thresh;
        let counting = (0..).zip(detections).filter(|(_, seen)| counts(seen)).map(|(number, _)| number);
        neighbours.fill(counting.map(|number: u32| (number, edges[number as usize])));
        pairs.clear();
        for (number, track) in (0..).zip(&mut *tracks) {
            track.detection = None;
            let start = pairs.len();
            for detection in neighbours.near(&track.edges) {
                let overlap = iou(&track.edges, &edges[detection as usize]);
                let is_same_class = !options.per_class || track.class == detections[detection as usize].class;
                if overlap > 0.0 && overlap >= f64::from(options.iou_thresh) && is_same_class {
                    pairs.push((overlap, number, detection));
                }
            }
            if pairs.len() - start > MAX_PAIRS {
                pairs[start..].select_nth_unstable_by(MAX_PAIRS, |a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
                pairs.truncate(start + MAX_PAIRS);
            }
        }
        pairs.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        is_taken.clear();
        is_taken.resize(detections.len(), false);
        for &(_, number, detection) in &*pairs {
            let track = &mut tracks[number as usize];
            if track.detection.is_none() && !is_taken[detection as usize] {
                is_taken[detection as usize] = true;
                (track.edges, track.class) = (edges[detection as usize], detections[detection as usize].class);
                (track.detection, track.last_seen) = (Some(detection), now);
            }
        }
        // A track that was seen once must be seen again in the next frame.
        tracks.retain(|track| track.id != 0 || track.detection.is_some());
        for (number, seen) in (0..).zip(detections) {
            if counts(seen) && seen.score >= options.det_thresh && !is_taken[number as usize] {
                tracks.push(IouTrack {
                    edges: edges[number as usize],
                    class: seen.class,
                    id: 0,
                    first_seen: now,
                    last_seen: now,
                    begun: *frames,
                    detection: Some(number),
                });
            }
        }
        for track in tracks.iter_mut().filter(|track| track.id == 0 && (*frames == 1 || track.begun != *frames)) {
            *last_id += 1;
            track.id = *last_id;
        }
    }

    /// Objects stay at their last boxes.
    pub(crate) fn predict(&mut self, options: &TrackOptions, Moment { now, .. }: Moment) {
        self.remove_old(options, now);
    }

    fn remove_old(&mut self, options: &TrackOptions, now: u64) {
        self.tracks.retain(|track| track.detection.is_some() || !options.is_lost(track.last_seen, now));
    }

    /// Writes `objects`, which has room.
    pub(crate) fn publish(&self, objects: &mut [Option<TrackedObject>]) {
        for track in self.tracks.iter().filter(|track| track.id != 0) {
            if let Some(detection) = track.detection {
                let &IouTrack { id, edges, first_seen, last_seen, .. } = track;
                objects[detection as usize] = Some(TrackedObject::at(edges, id, first_seen, last_seen));
            }
        }
    }
}
