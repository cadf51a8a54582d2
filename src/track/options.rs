// SPDX-License-Identifier: MPL-2.0
//! The parameters of trackers, each declared once: applications write them as texts, and the properties of trttrack are made of them.

use super::ocsort::MAX_DELTA_T;
use super::{TrackOptions, TrackerKind};
use crate::core::error::{Error, ErrorKind, Result};

/// A parameter. Its default is that of [`TrackOptions`].
pub struct TrackParameter {
    pub name: &'static str,
    /// The same, to be shown.
    pub nick: &'static str,
    pub blurb: &'static str,
    pub field: TrackField,
}

/// What a parameter takes, and its place.
pub enum TrackField {
    /// From 0 to 1.
    Share(fn(&mut TrackOptions) -> &mut f32),
    Flag(fn(&mut TrackOptions) -> &mut bool),
    /// From 1 to that number.
    Count(u32, fn(&mut TrackOptions) -> &mut u32),
    Nanoseconds(fn(&mut TrackOptions) -> &mut u64),
}

/// All parameters.
pub const PARAMETERS: [TrackParameter; 12] = [
    TrackParameter {
        name: "track-thresh",
        nick: "Track threshold",
        blurb: "Detections with at least that score are matched first",
        field: TrackField::Share(|options| &mut options.track_thresh),
    },
    TrackParameter {
        name: "low-thresh",
        nick: "Low threshold",
        blurb: "Detections between this score and track-thresh keep tracks alive, but begin none",
        field: TrackField::Share(|options| &mut options.low_thresh),
    },
    TrackParameter {
        name: "det-thresh",
        nick: "Detection threshold",
        blurb: "Score from which on a detection begins a track",
        field: TrackField::Share(|options| &mut options.det_thresh),
    },
    TrackParameter {
        name: "match-thresh",
        nick: "Match threshold",
        blurb: "Largest cost of a match: 1 less the intersection over union of the boxes, with fuse-score times the score",
        field: TrackField::Share(|options| &mut options.match_thresh),
    },
    TrackParameter {
        name: "fuse-score",
        nick: "Fuse score",
        blurb: "Weigh overlaps with the scores of the detections",
        field: TrackField::Flag(|options| &mut options.fuse_score),
    },
    TrackParameter {
        name: "iou-thresh",
        nick: "IoU threshold",
        blurb: "OC-SORT and iou: pairs of boxes that overlap less are no match",
        field: TrackField::Share(|options| &mut options.iou_thresh),
    },
    TrackParameter {
        name: "min-hits",
        nick: "Minimum hits",
        blurb: "OC-SORT: frames in a row in which an object must be seen",
        field: TrackField::Count(1000, |options| &mut options.min_hits),
    },
    TrackParameter {
        name: "inertia",
        nick: "Inertia",
        blurb: "OC-SORT: weight of the direction of an object",
        field: TrackField::Share(|options| &mut options.inertia),
    },
    TrackParameter {
        name: "delta-t",
        nick: "Delta t",
        blurb: "OC-SORT: frames over which the direction of an object is taken",
        field: TrackField::Count(MAX_DELTA_T, |options| &mut options.delta_t),
    },
    TrackParameter {
        name: "use-byte",
        nick: "Use BYTE",
        blurb: "OC-SORT: low scores keep tracks alive, as with ByteTrack",
        field: TrackField::Flag(|options| &mut options.use_byte),
    },
    TrackParameter {
        name: "per-class",
        nick: "Per class",
        blurb: "Objects of different classes are different objects",
        field: TrackField::Flag(|options| &mut options.per_class),
    },
    TrackParameter {
        name: "lost-after",
        nick: "Lost after",
        blurb: "How long an object may be out of sight and keep its id (in nanoseconds)",
        field: TrackField::Nanoseconds(|options| &mut options.lost_after),
    },
];

/// Reads `name=value`, with the names, ranges and defaults of the properties of trttrack.
///
/// # Errors
/// Contains the wrong text and the allowed values.
pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<(TrackerKind, TrackOptions)> {
    let (mut kind, mut options) = (TrackerKind::default(), TrackOptions::default());
    for text in texts {
        let (name, value) =
            text.split_once('=').ok_or_else(|| unreadable(text, "name=value, such as tracker=ocsort"))?;
        if name == "tracker" {
            let found = TrackerKind::ALL.into_iter().find(|kind| kind.name() == value);
            kind = found.ok_or_else(|| unreadable(text, &TrackerKind::ALL.map(TrackerKind::name).join(", ")))?;
            continue;
        }
        let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name);
        match parameter.ok_or_else(|| unreadable(text, "an option of trttrack"))?.field {
            TrackField::Share(place) => {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                *place(&mut options) = share.ok_or_else(|| unreadable(text, "a number from 0 to 1"))?;
            }
            TrackField::Flag(place) => {
                *place(&mut options) = value.parse().map_err(|_| unreadable(text, "true or false"))?;
            }
            TrackField::Count(largest, place) => {
                let count = value.parse().ok().filter(|count| (1..=largest).contains(count));
                *place(&mut options) =
                    count.ok_or_else(|| unreadable(text, &format!("a number from 1 to {largest}")))?;
            }
            TrackField::Nanoseconds(place) => {
                *place(&mut options) = value.parse().map_err(|_| unreadable(text, "a number of nanoseconds"))?;
            }
        }
    }
    Ok((kind, options))
}

fn unreadable(text: &str, wanted: &str) -> Error {
    Error::new(ErrorKind::Settings, format!("The option {text} cannot be read")).remedy(format!("Write {wanted}"))
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
            ("use-byte=1", "true or false"),
            ("lost-after=-1", "nanoseconds"),
            ("speed=1", "an option of trttrack"),
        ] {
            let error = parse([text]).unwrap_err().message();
            assert!(error.contains(text) && error.contains(part), "{error}");
        }
    }
}
