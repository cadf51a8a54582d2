// SPDX-License-Identifier: MPL-2.0
//! Frames that were dropped before they came to an element, as a queue that is full drops them. `interval` of trtinfer counts them like
//! those that come: what was found on the last frame that was inferred is repeated for no longer than if all frames had come. So does
//! `frame-step` of trtpreprocess.

/// Distances of frames that are known.
const KNOWN: usize = 15;

/// Time stamps of a stream, in nanoseconds.
#[derive(Debug, Default)]
pub struct MissingFrames {
    before: Option<u64>,
    /// From frame to frame, lately; the oldest is replaced.
    distances: [u64; KNOWN],
    count: usize,
}

impl MissingFrames {
    /// How many frames are missing before the one that comes. `is_cut`: it is marked as the first one after others were dropped.
    pub fn before(&mut self, pts: Option<u64>, is_cut: bool) -> u32 {
        let distance = pts.zip(self.before).and_then(|(pts, before)| pts.checked_sub(before)).filter(|time| *time > 0);
        self.before = pts;
        let Some(distance) = distance else { return 0 };
        let usual = self.usual();
        // A model that is too slow may have all frames before it dropped but some: these do not become the usual ones.
        if !is_cut || usual.is_none_or(|usual| distance < usual) {
            self.distances[self.count % KNOWN] = distance;
            self.count += 1;
        }
        let frames = usual.map_or(1, |usual| distance.saturating_add(usual / 4) / usual); // jitter is no gap
        u32::try_from(frames.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// From frame to frame, as far as that is known. The median: a few gaps that nothing marks do not become usual.
    pub fn usual(&self) -> Option<u64> {
        let mut known = self.distances;
        let known = &mut known[..self.count.min(KNOWN)];
        known.sort_unstable();
        known.get(known.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Those that are missing before each frame, of time stamps in milliseconds.
    fn missing(times: impl IntoIterator<Item = u64>, is_cut: bool) -> Vec<u32> {
        let mut frames = MissingFrames::default();
        times.into_iter().map(|time| frames.before(Some(time * MS), is_cut)).collect()
    }

    #[test]
    fn a_gap_has_as_many_frames_as_fit_in_it() {
        for is_cut in [false, true] {
            assert_eq!(missing([0, 40, 80, 2080, 2120, 2200, 2240], is_cut), [0, 0, 0, 49, 0, 1, 0], "{is_cut}");
        }
    }

    #[test]
    fn jitter_is_no_gap() {
        let jittered = |number: u64| number * 40 + number * 7919 % 19;
        assert_eq!(missing((0..200).map(jittered), false).iter().sum::<u32>(), 0);
    }

    /// A source that gives fewer frames from now on.
    #[test]
    fn another_rate_becomes_the_usual_one() {
        let times = (0..40).map(|number| number * 40).chain((0..40).map(|number| 1600 + number * 200));
        let missing = missing(times, false);
        assert!(missing[41] == 4 && missing[60..].iter().all(|missing| *missing == 0), "{missing:?}");
    }

    /// All frames that come are marked, for a queue drops others before each.
    #[test]
    fn dropping_does_not_become_usual() {
        let mut frames = MissingFrames::default();
        assert!((0..4).all(|number| frames.before(Some(number * 40 * MS), false) == 0));
        assert!((1..100).all(|number| frames.before(Some((120 + number * 2000) * MS), true) == 49));
    }

    #[test]
    fn time_stamps_that_are_missing_or_go_back_say_nothing() {
        let mut frames = MissingFrames::default();
        let times = [Some(0), Some(40), None, Some(9000), Some(9040), Some(0), Some(0), Some(40)];
        assert!(times.iter().all(|time| frames.before(time.map(|time| time * MS), false) == 0));
    }
}
