// SPDX-License-Identifier: MPL-2.0
//! The options of trackers: texts of applications, and properties of trttrack.

use super::ocsort::MAX_DELTA_T;
use super::{TrackOptions, TrackerKind};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Choices, OptionKind, OptionSpec, Setting, name_and_value, setting};

/// The algorithm.
pub static TRACKER: OptionSpec =
    OptionSpec { name: "tracker", nick: "Tracker", blurb: "The tracking algorithm", kind: TrackerKind::KIND };

/// The parameters.
pub static SETTINGS: [Setting<TrackOptions>; 27] = [
    setting!(
        "track-thresh",
        "Track threshold",
        "Detections with at least that score are matched first",
        OptionKind::Float(0.0..=1.0),
        track_thresh
    ),
    setting!(
        "low-thresh",
        "Low threshold",
        "Detections between this score and track-thresh keep tracks alive, but begin none",
        OptionKind::Float(0.0..=1.0),
        low_thresh
    ),
    setting!(
        "det-thresh",
        "Detection threshold",
        "Score from which on a detection begins a track; with BoostTrack, as tracks have raised it",
        OptionKind::Float(0.0..=1.0),
        det_thresh
    ),
    setting!(
        "match-thresh",
        "Match threshold",
        "Largest cost of a match: 1 less the intersection over union of the boxes, with fuse-score times the score",
        OptionKind::Float(0.0..=1.0),
        match_thresh
    ),
    setting!(
        "fuse-score",
        "Fuse score",
        "Weigh overlaps with the scores of the detections",
        OptionKind::Flag,
        fuse_score
    ),
    setting!(
        "iou-thresh",
        "IoU threshold",
        "OC-SORT, BoostTrack and iou: pairs of boxes that overlap less are no match",
        OptionKind::Float(0.0..=1.0),
        iou_thresh
    ),
    setting!(
        "min-hits",
        "Minimum hits",
        "OC-SORT and BoostTrack: frames in a row in which an object must be seen",
        OptionKind::UInt(1..=1000),
        min_hits
    ),
    setting!(
        "inertia",
        "Inertia",
        "OC-SORT: weight of the direction of an object",
        OptionKind::Float(0.0..=1.0),
        inertia
    ),
    setting!(
        "delta-t",
        "Delta t",
        "OC-SORT: frames over which the direction of an object is taken",
        OptionKind::UInt(1..=MAX_DELTA_T),
        delta_t
    ),
    setting!(
        "use-byte",
        "Use BYTE",
        "OC-SORT: low scores keep tracks alive, as with ByteTrack",
        OptionKind::Flag,
        use_byte
    ),
    setting!(
        "appearance-thresh",
        "Appearance threshold",
        "BoT-SORT, Deep OC-SORT, BoostTrack: vectors of at least that cosine distance (1 less the cosine) are no match",
        OptionKind::Float(0.0..=2.0),
        appearance_thresh
    ),
    setting!(
        "proximity-thresh",
        "Proximity threshold",
        "BoT-SORT: pairs count by their vectors if 1 less the intersection over union of their boxes is below that",
        OptionKind::Float(0.0..=1.0),
        proximity_thresh
    ),
    setting!(
        "w-association-emb",
        "Weight of appearance",
        "Deep OC-SORT: weight of the similarity of vectors, where that of overlaps is 1",
        OptionKind::Float(0.0..=10.0),
        w_association_emb
    ),
    setting!(
        "aw-param",
        "Adaptive weight",
        "Deep OC-SORT: most that is added to w-association-emb where the similarity of vectors tells objects apart",
        OptionKind::Float(0.0..=10.0),
        aw_param
    ),
    setting!(
        "lambda-iou",
        "Weight of confidence",
        "BoostTrack: how much overlaps count more where detection and track are certain",
        OptionKind::Float(0.0..=10.0),
        lambda_iou
    ),
    setting!(
        "lambda-mhd",
        "Weight of distance",
        "BoostTrack: weight of the Mahalanobis distance, where that of overlaps is 1",
        OptionKind::Float(0.0..=10.0),
        lambda_mhd
    ),
    setting!(
        "lambda-shape",
        "Weight of shape",
        "BoostTrack: weight of the likeness of widths and heights, where that of overlaps is 1",
        OptionKind::Float(0.0..=10.0),
        lambda_shape
    ),
    setting!(
        "lambda-emb",
        "Weight of vectors",
        "BoostTrack: weight of the similarity of vectors, where that of all else together is 1",
        OptionKind::Float(0.0..=10.0),
        lambda_emb
    ),
    setting!(
        "use-dlo-boost",
        "Use DLO boost",
        "BoostTrack: raise the scores of detections that are like the predicted box of a track",
        OptionKind::Flag,
        use_dlo_boost
    ),
    setting!(
        "use-duo-boost",
        "Use DUO boost",
        "BoostTrack: raise the scores of detections that are far from all tracks, so they begin tracks",
        OptionKind::Flag,
        use_duo_boost
    ),
    setting!(
        "dlo-boost-coef",
        "DLO boost coefficient",
        "BoostTrack without use-sb and use-vt: a score is at least that times the similarity",
        OptionKind::Float(0.0..=1.0),
        dlo_boost_coef
    ),
    setting!(
        "use-rich-s",
        "Use rich similarity",
        "BoostTrack++: distance and shape count too where scores are raised, not overlap alone",
        OptionKind::Flag,
        use_rich_s
    ),
    setting!(
        "use-sb",
        "Use soft boost",
        "BoostTrack++: raise a score gradually with the similarity",
        OptionKind::Flag,
        use_sb
    ),
    setting!(
        "use-vt",
        "Use varying threshold",
        "BoostTrack++: raise a score to det-thresh where the similarity is above 0.95, or 0.8 if the track was long unseen",
        OptionKind::Flag,
        use_vt
    ),
    setting!(
        "reassociate",
        "Reassociate",
        "All but iou: find lost objects by distance and size too, where boxes do not overlap; the papers' programs do not",
        OptionKind::Flag,
        reassociate
    ),
    setting!(
        "per-class",
        "Per class",
        "Objects of different classes are different objects",
        OptionKind::Flag,
        per_class
    ),
    setting!(
        "lost-after",
        "Lost after",
        "How long an object may be out of sight and keep its id (in nanoseconds)",
        OptionKind::UInt64,
        lost_after
    ),
];

/// Reads texts like `tracker=ocsort`, with the names, ranges and defaults of the properties of trttrack.
///
/// # Errors
/// Contains the wrong text and the allowed values.
pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<(TrackerKind, TrackOptions)> {
    let (mut kind, mut options) = (TrackerKind::default(), TrackOptions::default());
    let tracker = Setting { spec: &TRACKER, field: |kind: &mut TrackerKind| kind };
    for text in texts {
        let (name, value) = name_and_value(text)?;
        if name == TRACKER.name {
            tracker.parse(&mut kind, value)?;
        } else if let Some(setting) = SETTINGS.iter().find(|setting| setting.spec.name == name) {
            setting.parse(&mut options, value)?;
        } else {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.spec.name).collect();
            return Err(Error::new(ErrorKind::Settings, format!("There is no option “{name}”")).remedy(format!(
                "Use {}, {}",
                TRACKER.name,
                names.join(", ")
            )));
        }
    }
    Ok((kind, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_it_is_said_what_may_be_there() {
        assert_eq!(parse([]).unwrap(), (TrackerKind::ByteTrack, TrackOptions::default()));
        let all = [
            "tracker=ocsort",
            "track-thresh=0.25",
            "low-thresh=0.5",
            "det-thresh=1",
            "match-thresh=0.75",
            "fuse-score=false",
            "iou-thresh=0.125",
            "min-hits=7",
            "inertia=0",
            "delta-t=16",
            "use-byte=true",
            "appearance-thresh=2",
            "proximity-thresh=0.75",
            "w-association-emb=1.5",
            "aw-param=0",
            "lambda-iou=1",
            "lambda-mhd=0.5",
            "lambda-shape=0.125",
            "lambda-emb=0",
            "use-dlo-boost=false",
            "use-duo-boost=false",
            "dlo-boost-coef=0.5",
            "use-rich-s=false",
            "use-sb=false",
            "use-vt=false",
            "reassociate=false",
            "per-class=false",
            "lost-after=5",
        ];
        let wanted = TrackOptions {
            track_thresh: 0.25,
            low_thresh: 0.5,
            det_thresh: 1.0,
            match_thresh: 0.75,
            fuse_score: false,
            iou_thresh: 0.125,
            min_hits: 7,
            inertia: 0.0,
            delta_t: 16,
            use_byte: true,
            appearance_thresh: 2.0,
            proximity_thresh: 0.75,
            w_association_emb: 1.5,
            aw_param: 0.0,
            lambda_iou: 1.0,
            lambda_mhd: 0.5,
            lambda_shape: 0.125,
            lambda_emb: 0.0,
            use_dlo_boost: false,
            use_duo_boost: false,
            dlo_boost_coef: 0.5,
            use_rich_s: false,
            use_sb: false,
            use_vt: false,
            reassociate: false,
            per_class: false,
            lost_after: 5,
        };
        assert_eq!(parse(all).unwrap(), (TrackerKind::OcSort, wanted));
        for (text, part) in [
            ("tracker", "name=value"),
            ("tracker=sort", "bytetrack, botsort-iou, ocsort, iou"),
            ("track-thresh=1.5", "from 0 to 1"),
            ("inertia=NaN", "from 0 to 1"),
            ("delta-t=17", "from 1 to 16"),
            ("min-hits=0", "from 1 to 1000"),
            ("use-byte=1", "true, false"),
            ("appearance-thresh=2.5", "from 0 to 2"),
            ("lambda-emb=11", "from 0 to 10"),
            ("dlo-boost-coef=-1", "from 0 to 1"),
            ("lost-after=-1", "from 0 to 18446744073709551615"),
            ("speed", "no value"),
            ("speed=1", "tracker, track-thresh"),
        ] {
            let error = parse([text]).unwrap_err().message();
            let name = text.split('=').next().unwrap();
            assert!(error.contains(name) && error.contains(part), "{error}");
        }
    }
}
