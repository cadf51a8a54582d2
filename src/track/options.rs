// SPDX-License-Identifier: MPL-2.0
//! Parameters as texts, for applications without GStreamer.

use super::ocsort::MAX_DELTA_T;
use super::{TrackOptions, TrackerKind};
use crate::core::error::{Error, ErrorKind, Result};

/// Reads `name=value`, with the names, ranges and defaults of the properties of trttrack.
///
/// # Errors
/// Contains the wrong text and the allowed values.
pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<(TrackerKind, TrackOptions)> {
    let (mut kind, mut options) = (TrackerKind::default(), TrackOptions::default());
    for text in texts {
        let (name, value) =
            text.split_once('=').ok_or_else(|| unreadable(text, "name=value, such as tracker=ocsort"))?;
        let share = || {
            let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or_else(|| unreadable(text, "a number from 0 to 1"))
        };
        let flag = || value.parse().map_err(|_| unreadable(text, "true or false"));
        let count = |largest: u32| {
            let count = value.parse().ok().filter(|count| (1..=largest).contains(count));
            count.ok_or_else(|| unreadable(text, &format!("a number from 1 to {largest}")))
        };
        match name {
            "tracker" => {
                let found = TrackerKind::ALL.into_iter().find(|kind| kind.name() == value);
                let all = || TrackerKind::ALL.map(TrackerKind::name).join(", ");
                kind = found.ok_or_else(|| unreadable(text, &all()))?;
            }
            "track-thresh" => options.track_thresh = share()?,
            "low-thresh" => options.low_thresh = share()?,
            "det-thresh" => options.det_thresh = share()?,
            "match-thresh" => options.match_thresh = share()?,
            "fuse-score" => options.fuse_score = flag()?,
            "iou-thresh" => options.iou_thresh = share()?,
            "min-hits" => options.min_hits = count(1000)?,
            "inertia" => options.inertia = share()?,
            "delta-t" => options.delta_t = count(MAX_DELTA_T)?,
            "use-byte" => options.use_byte = flag()?,
            "per-class" => options.per_class = flag()?,
            "lost-after" => {
                options.lost_after = value.parse().map_err(|_| unreadable(text, "a number of nanoseconds"))?;
            }
            _ => return Err(unreadable(text, "an option of trttrack")),
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
