// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use gst::glib;
use gst::prelude::*;

use super::TrackAlgorithm;
use crate::gst::stats;
use crate::image::overlay::Annotation;
use crate::track::TrackOptions;
use crate::track::ocsort::MAX_DELTA_T;

#[derive(Clone, Debug, Default)]
pub struct TrackSettings {
    pub tracker: TrackAlgorithm,
    pub options: TrackOptions,
    /// Names or ids of classes; empty for all.
    pub classes: String,
    pub post_messages: bool,
}

impl TrackSettings {
    /// Whether objects of that class are followed.
    pub fn wants(&self, annotation: &Annotation) -> bool {
        let mut words = self.classes.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
        let is_it =
            |word: &str| word == annotation.label || annotation.class.is_some_and(|class| word.parse() == Ok(class));
        words.peek().is_none() || words.any(is_it)
    }
}

fn share(name: &str, nick: &str, blurb: &str, default: f32) -> glib::ParamSpec {
    glib::ParamSpecFloat::builder(name)
        .nick(nick)
        .blurb(blurb)
        .minimum(0.0)
        .maximum(1.0)
        .default_value(default)
        .mutable_playing()
        .build()
}

fn flag(name: &str, nick: &str, blurb: &str, default: bool) -> glib::ParamSpec {
    glib::ParamSpecBoolean::builder(name).nick(nick).blurb(blurb).default_value(default).mutable_playing().build()
}

fn count(name: &str, nick: &str, blurb: &str, (least, largest): (u32, u32), default: u32) -> glib::ParamSpec {
    glib::ParamSpecUInt::builder(name)
        .nick(nick)
        .blurb(blurb)
        .minimum(least)
        .maximum(largest)
        .default_value(default)
        .mutable_playing()
        .build()
}

pub fn list() -> Vec<glib::ParamSpec> {
    let default = TrackOptions::default();
    vec![
        glib::ParamSpecEnum::builder::<TrackAlgorithm>("tracker")
            .nick("Tracker")
            .blurb("The tracking algorithm")
            .mutable_ready()
            .build(),
        share(
            "track-thresh",
            "Track threshold",
            "Detections with at least that score are matched first",
            default.track_thresh,
        ),
        share(
            "low-thresh",
            "Low threshold",
            "Detections between this score and track-thresh keep tracks alive, but begin none",
            default.low_thresh,
        ),
        share(
            "det-thresh",
            "Detection threshold",
            "Score from which on a detection begins a track",
            default.det_thresh,
        ),
        share(
            "match-thresh",
            "Match threshold",
            "Largest cost of a match: 1 less the intersection over union of the boxes, with fuse-score times the score",
            default.match_thresh,
        ),
        flag("fuse-score", "Fuse score", "Weigh overlaps with the scores of the detections", default.fuse_score),
        share(
            "iou-thresh",
            "IoU threshold",
            "OC-SORT and iou: pairs of boxes that overlap less are no match",
            default.iou_thresh,
        ),
        count(
            "min-hits",
            "Minimum hits",
            "OC-SORT: frames in a row in which an object must be seen",
            (1, 1000),
            default.min_hits,
        ),
        share("inertia", "Inertia", "OC-SORT: weight of the direction of an object", default.inertia),
        count(
            "delta-t",
            "Delta t",
            "OC-SORT: frames over which the direction of an object is taken",
            (1, MAX_DELTA_T),
            default.delta_t,
        ),
        flag("use-byte", "Use BYTE", "OC-SORT: low scores keep tracks alive, as with ByteTrack", default.use_byte),
        flag("per-class", "Per class", "Objects of different classes are different objects", default.per_class),
        glib::ParamSpecString::builder("classes")
            .nick("Classes")
            .blurb("Names or ids of the classes to follow, like person,car (unset = all)")
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt64::builder("lost-after")
            .nick("Lost after")
            .blurb("How long an object may be out of sight and keep its id (in nanoseconds)")
            .default_value(default.lost_after)
            .mutable_playing()
            .build(),
        flag(
            "post-messages",
            "Post messages",
            "Post an element message trt-detections for each frame, as trtnms does, with the track-id of each object",
            false,
        ),
        stats::property("Frames, objects with an id, and the time that following them takes"),
    ]
}

pub fn set(settings: &mut TrackSettings, name: &str, value: &glib::Value) {
    const CHECKED: &str = "checked by GObject";
    let TrackSettings { tracker, options, classes, post_messages } = settings;
    match name {
        "tracker" => *tracker = value.get().expect(CHECKED),
        "track-thresh" => options.track_thresh = value.get().expect(CHECKED),
        "low-thresh" => options.low_thresh = value.get().expect(CHECKED),
        "det-thresh" => options.det_thresh = value.get().expect(CHECKED),
        "match-thresh" => options.match_thresh = value.get().expect(CHECKED),
        "fuse-score" => options.fuse_score = value.get().expect(CHECKED),
        "iou-thresh" => options.iou_thresh = value.get().expect(CHECKED),
        "min-hits" => options.min_hits = value.get().expect(CHECKED),
        "inertia" => options.inertia = value.get().expect(CHECKED),
        "delta-t" => options.delta_t = value.get().expect(CHECKED),
        "use-byte" => options.use_byte = value.get().expect(CHECKED),
        "per-class" => options.per_class = value.get().expect(CHECKED),
        "classes" => *classes = value.get::<Option<String>>().expect(CHECKED).unwrap_or_default(),
        "lost-after" => options.lost_after = value.get().expect(CHECKED),
        "post-messages" => *post_messages = value.get().expect(CHECKED),
        other => unreachable!("property {other}"),
    }
}

pub fn get(settings: &TrackSettings, name: &str) -> glib::Value {
    let TrackSettings { tracker, options, classes, post_messages } = settings;
    match name {
        "tracker" => tracker.to_value(),
        "track-thresh" => options.track_thresh.to_value(),
        "low-thresh" => options.low_thresh.to_value(),
        "det-thresh" => options.det_thresh.to_value(),
        "match-thresh" => options.match_thresh.to_value(),
        "fuse-score" => options.fuse_score.to_value(),
        "iou-thresh" => options.iou_thresh.to_value(),
        "min-hits" => options.min_hits.to_value(),
        "inertia" => options.inertia.to_value(),
        "delta-t" => options.delta_t.to_value(),
        "use-byte" => options.use_byte.to_value(),
        "per-class" => options.per_class.to_value(),
        "classes" => (!classes.is_empty()).then_some(classes.as_str()).to_value(),
        "lost-after" => options.lost_after.to_value(),
        "post-messages" => post_messages.to_value(),
        other => unreachable!("property {other}"),
    }
}
