// SPDX-License-Identifier: MPL-2.0
//! Gives objects ids that stay the same from frame to frame, by their boxes, and by vectors of what they look like.
//!
//! | file | |
//! |---|---|
//! | [`bytetrack`] | ByteTrack (Zhang et al., ECCV 2022), and with another filter BoT-SORT |
//! | [`ocsort`] | OC-SORT (Cao et al., CVPR 2023), and with vectors Deep OC-SORT |
//! | [`boosttrack`] | BoostTrack and BoostTrack++ (Stanojević and Todorović, 2024), with vectors and without |
//! | [`iou`] | the largest overlaps first |
//! | [`kalman`] | predicts boxes |
//! | `life` | what else OC-SORT and BoostTrack know of a track |
//! | `appearance` | what objects look like |
//! | `camera` | what a camera that shakes adds to them |
//! | `boost`, `similarity` | scores that tracks raise, and how alike boxes are |
//! | `detections`, [`overlap`], [`assignment`], `matching` | match boxes |
//! | `text_votes` | the text of an object by several reads |
//!
//! Once the busiest frame has passed, nothing is allocated.

mod appearance;
pub mod assignment;
mod boost;
pub mod boosttrack;
pub mod bytetrack;
mod camera;
mod detections;
mod history;
pub mod iou;
pub mod kalman;
mod life;
mod matching;
pub mod ocsort;
pub mod options;
pub mod overlap;
mod similarity;
mod text_votes;

use appearance::Appearances;
pub use appearance::ObjectVector;
use boosttrack::BoostTrack;
use bytetrack::ByteTrack;
pub use history::History;
use iou::IouTracker;
use kalman::BoxState;
use ocsort::OcSort;
pub use text_votes::TextVotes;

use crate::image::geometry::BBox;
use crate::options::{Choices, choices};

/// An algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackerKind {
    #[default]
    ByteTrack,
    BotSortIou,
    OcSort,
    Iou,
    BotSort,
    DeepOcSort,
    BoostTrack,
}

choices! {
    TrackerKind, "GstTrtTracker":
    TrackerKind::ByteTrack => "bytetrack" "ByteTrack: detections of high scores first, then those of low scores"
    TrackerKind::BotSortIou => "botsort-iou" "BoT-SORT without pixels: ByteTrack with a filter of width and height"
    TrackerKind::OcSort => "ocsort" "OC-SORT: by the direction and the place in which objects were seen"
    TrackerKind::Iou => "iou" "The largest overlaps with the last boxes first"
    TrackerKind::BotSort => "botsort" "BoT-SORT: botsort-iou, and by what objects look like where they have vectors"
    TrackerKind::DeepOcSort => "deepocsort" "Deep OC-SORT: ocsort, and by what objects look like where they have vectors"
    TrackerKind::BoostTrack => "boosttrack" "BoostTrack++: by overlap, distance, shape and vectors at once; tracks raise low scores"
}

impl TrackerKind {
    pub const ALL: [TrackerKind; 7] = [
        TrackerKind::ByteTrack,
        TrackerKind::BotSortIou,
        TrackerKind::OcSort,
        TrackerKind::Iou,
        TrackerKind::BotSort,
        TrackerKind::DeepOcSort,
        TrackerKind::BoostTrack,
    ];

    pub fn name(self) -> &'static str {
        self.word()
    }
}

/// Parameters, with the names of the papers' programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackOptions {
    /// Detections with at least that score are matched first.
    pub track_thresh: f32,
    /// Those with a higher score than that keep tracks alive.
    pub low_thresh: f32,
    /// Those with at least that score begin tracks. BoostTrack: scores below that count where tracks raise them to it.
    pub det_thresh: f32,
    /// Largest cost of a match: 1 less the intersection over union, with `fuse_score` times the score.
    pub match_thresh: f32,
    pub fuse_score: bool,
    /// OC-SORT and BoostTrack: pairs that overlap less are not matched.
    pub iou_thresh: f32,
    /// OC-SORT and BoostTrack: frames in a row in which an object must be seen; with BoostTrack until it has an id. Frames that were
    /// skipped in between count.
    pub min_hits: u32,
    /// OC-SORT: weight of the direction.
    pub inertia: f32,
    /// OC-SORT: frames over which the direction is taken; at most [`ocsort::MAX_DELTA_T`].
    pub delta_t: u32,
    /// OC-SORT: low scores keep tracks alive, as in ByteTrack.
    pub use_byte: bool,
    /// BoT-SORT, Deep OC-SORT and BoostTrack: pairs of vectors with at least that cosine distance are no match by appearance.
    pub appearance_thresh: f32,
    /// BoT-SORT: the same of 1 less the intersection over union, where boxes overlap.
    pub proximity_thresh: f32,
    /// Deep OC-SORT: weight of the cosine.
    pub w_association_emb: f32,
    /// Deep OC-SORT: the most that is added to this weight.
    pub aw_param: f32,
    /// BoostTrack: weight of the confidence of a pair, for its overlap.
    pub lambda_iou: f32,
    /// BoostTrack: weight of the Mahalanobis distance.
    pub lambda_mhd: f32,
    /// BoostTrack: weight of the likeness of shapes.
    pub lambda_shape: f32,
    /// BoostTrack: weight of the cosine, where that of all else together is 1.
    pub lambda_emb: f32,
    /// BoostTrack: tracks raise the scores of detections that are like their predicted boxes.
    pub use_dlo_boost: bool,
    /// BoostTrack: scores of detections that are far from all tracks are raised.
    pub use_duo_boost: bool,
    /// BoostTrack without `use_sb` and `use_vt`: a score is at least that times the similarity.
    pub dlo_boost_coef: f32,
    /// BoostTrack++: the similarity that raises scores is that of overlap, distance and shape, not of the overlap alone.
    pub use_rich_s: bool,
    /// BoostTrack++: a score rises gradually with the similarity.
    pub use_sb: bool,
    /// BoostTrack++: a score is high enough beyond a similarity that is less for tracks that were not seen.
    pub use_vt: bool,
    /// Objects that were lost for a few frames ([`kalman::FRAMES_LOST`]) are also found by distance and size, where their boxes do not
    /// overlap.
    pub reassociate: bool,
    /// Objects of different classes are different objects.
    pub per_class: bool,
    /// Nanoseconds for which a track that is not seen is kept.
    pub lost_after: u64,
}

impl Default for TrackOptions {
    fn default() -> Self {
        TrackOptions {
            track_thresh: 0.5,
            low_thresh: 0.1,
            det_thresh: 0.6,
            match_thresh: 0.8,
            fuse_score: true,
            iou_thresh: 0.3,
            min_hits: 3,
            inertia: 0.2,
            delta_t: 3,
            use_byte: false,
            appearance_thresh: 0.25,
            proximity_thresh: 0.5,
            w_association_emb: 0.75,
            aw_param: 0.5,
            lambda_iou: 0.5,
            lambda_mhd: 0.25,
            lambda_shape: 0.25,
            lambda_emb: 1.5,
            use_dlo_boost: true,
            use_duo_boost: true,
            dlo_boost_coef: 0.65,
            use_rich_s: true,
            use_sb: true,
            use_vt: true,
            reassociate: true,
            per_class: true,
            lost_after: 1_000_000_000,
        }
    }
}

impl TrackOptions {
    /// Whether an object that was last seen at that time has been out of sight for too long.
    fn is_lost(&self, last_seen: u64, now: u64) -> bool {
        now.saturating_sub(last_seen) > self.lost_after
    }
}

/// A detection: its box in pixels, its score, an id of its class, and what it looks like, if that is known.
#[derive(Clone, Copy, Debug)]
pub struct TrackInput<'a> {
    pub bbox: BBox,
    pub score: f32,
    pub class: u32,
    pub vector: Option<ObjectVector<'a>>,
}

impl TrackInput<'_> {
    /// The score as a weight: those of foreign elements may be beyond 1, or infinite.
    fn certainty(&self) -> f64 {
        f64::from(self.score).clamp(0.0, 1.0)
    }
}

/// An object that has an id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackedObject {
    /// From 1 on.
    pub id: u64,
    /// The box of the filter.
    pub bbox: BBox,
    /// Nanoseconds, like the times of the frames.
    pub first_seen: u64,
    pub last_seen: u64,
}

impl TrackedObject {
    fn at(edges: overlap::Edges, id: u64, first_seen: u64, last_seen: u64) -> Self {
        let [x1, y1, x2, y2] = edges.map(|edge| edge as f32);
        TrackedObject { id, bbox: BBox::new(x1, y1, x2, y2), first_seen, last_seen }
    }
}

/// The time of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    now: u64,
    /// Frames since the last one, missing ones included.
    steps: u32,
    /// Frames since the last detections, missing and predicted ones included.
    gap: u32,
}

impl Moment {
    /// Whether there were frames without detections before this one.
    fn has_skipped(&self) -> bool {
        self.gap > 1
    }
}

#[derive(Debug)]
enum Algorithm {
    Byte(ByteTrack),
    OcSort(OcSort),
    Boost(BoostTrack),
    Iou(IouTracker),
}

/// The same for each algorithm.
macro_rules! each {
    ($algorithm:expr, $it:ident => $work:expr) => {
        match $algorithm {
            Algorithm::Byte($it) => $work,
            Algorithm::OcSort($it) => $work,
            Algorithm::Boost($it) => $work,
            Algorithm::Iou($it) => $work,
        }
    };
}

/// Follows the objects of one stream.
#[derive(Debug)]
pub struct Tracker {
    algorithm: Algorithm,
    needs_vectors: bool,
    /// For each detection of the last update, its object.
    objects: Vec<Option<TrackedObject>>,
    /// The last id that was given.
    last_id: u64,
    /// The time of the last frame.
    last: Option<u64>,
    /// Frames since the last detections.
    gap: u32,
}

/// At most this many missing frames are counted.
const MAX_STEPS: u64 = 32;

impl Tracker {
    pub fn new(kind: TrackerKind) -> Self {
        let needs_vectors = matches!(kind, TrackerKind::BotSort | TrackerKind::DeepOcSort);
        let appearances = Appearances::new(needs_vectors || kind == TrackerKind::BoostTrack);
        let algorithm = match kind {
            TrackerKind::ByteTrack => Algorithm::Byte(ByteTrack::new(BoxState::Xyah, appearances)),
            TrackerKind::BotSortIou | TrackerKind::BotSort => {
                Algorithm::Byte(ByteTrack::new(BoxState::Xywh, appearances))
            }
            TrackerKind::OcSort | TrackerKind::DeepOcSort => Algorithm::OcSort(OcSort::new(appearances)),
            TrackerKind::BoostTrack => Algorithm::Boost(BoostTrack::new(appearances)),
            TrackerKind::Iou => Algorithm::Iou(IouTracker::default()),
        };
        Tracker { algorithm, needs_vectors, objects: Vec::new(), last_id: 0, last: None, gap: 0 }
    }

    /// The next frame does not follow the last one: all tracks end. No id is given twice.
    pub fn reset(&mut self) {
        each!(&mut self.algorithm, it => it.reset());
        self.objects.clear();
        (self.last, self.gap) = (None, 0);
    }

    /// Takes in the detections of a frame at `now`; `frame_duration` is the time between frames if none is missing, and 0 if
    /// that is not known. Invalid boxes are left out.
    pub fn update(
        &mut self,
        options: &TrackOptions,
        detections: &[TrackInput],
        now: u64,
        frame_duration: u64,
    ) -> &[Option<TrackedObject>] {
        let moment = self.moment(now, frame_duration);
        self.gap = 0;
        each!(&mut self.algorithm, it => it.update(options, detections, moment, &mut self.last_id));
        self.objects.clear();
        self.objects.resize(detections.len(), None);
        self.publish()
    }

    /// Predicts the objects of the last detections at `now`, in a frame that no detector has seen.
    pub fn predict(&mut self, options: &TrackOptions, now: u64, frame_duration: u64) -> &[Option<TrackedObject>] {
        let moment = self.moment(now, frame_duration);
        each!(&mut self.algorithm, it => it.predict(options, moment));
        self.objects.fill(None);
        self.publish()
    }

    /// Whether it takes vectors; other trackers ignore them.
    pub fn uses_vectors(&self) -> bool {
        self.appearances().is_some_and(Appearances::is_used)
    }

    /// Whether objects should have vectors: without any, there is another tracker that does the same.
    pub fn needs_vectors(&self) -> bool {
        self.needs_vectors
    }

    /// Whether objects had vectors of different models one after the other. What they looked like before was forgotten.
    pub fn has_mixed_vectors(&self) -> bool {
        self.appearances().is_some_and(Appearances::has_restarted)
    }

    fn appearances(&self) -> Option<&Appearances> {
        match &self.algorithm {
            Algorithm::Byte(it) => Some(it.appearances()),
            Algorithm::OcSort(it) => Some(it.appearances()),
            Algorithm::Boost(it) => Some(it.appearances()),
            Algorithm::Iou(_) => None,
        }
    }

    /// The object of each detection of the last update; `None` for those without a confirmed track.
    pub fn objects(&self) -> &[Option<TrackedObject>] {
        &self.objects
    }

    fn publish(&mut self) -> &[Option<TrackedObject>] {
        each!(&self.algorithm, it => it.publish(&mut self.objects));
        &self.objects
    }

    fn moment(&mut self, now: u64, frame_duration: u64) -> Moment {
        let passed = self.last.map_or(0, |last| now.saturating_sub(last));
        self.last = Some(now);
        // A frame that comes a little late is still the next one.
        let steps = passed.saturating_add(frame_duration / 2).checked_div(frame_duration).unwrap_or(1);
        let steps = steps.clamp(1, MAX_STEPS) as u32;
        self.gap = self.gap.saturating_add(steps);
        Moment { now, steps, gap: self.gap }
    }
}

#[cfg(test)]
mod tests;
