// SPDX-License-Identifier: MPL-2.0
//! Tells the journal that frames are dropped because the model is too slow for them, and when that is over.

use std::time::{Duration, Instant};

/// Frames are counted for so long before the journal is told of them.
const WINDOW: Duration = Duration::from_secs(60);
/// Fewer are not worth a line: a camera that connects and a model that is replaced cost some.
const LEAST: f64 = 0.05;

/// Frames of a source, over all its runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCounts {
    pub with_results: u64,
    pub dropped: u64,
}

/// Looks at the counts again and again.
pub struct DroppedFrames {
    since: Instant,
    counts: FrameCounts,
    is_told: bool,
}

/// What the journal is told.
#[derive(Debug, PartialEq, Eq)]
pub enum DropNotice {
    Begun(String),
    Over,
}

impl DroppedFrames {
    pub fn since(now: Instant) -> Self {
        DroppedFrames { since: now, counts: FrameCounts::default(), is_told: false }
    }

    pub fn look(&mut self, now: Instant, counts: FrameCounts) -> Option<DropNotice> {
        let elapsed = now - self.since;
        if elapsed < WINDOW {
            return None;
        }
        let before = std::mem::replace(&mut self.counts, counts);
        self.since = now;
        let dropped = counts.dropped - before.dropped;
        let all = dropped + counts.with_results - before.with_results;
        let is_much = dropped as f64 > all as f64 * LEAST;
        if is_much && !self.is_told {
            self.is_told = true;
            return Some(DropNotice::Begun(format!(
                "{dropped} of {all} frames were dropped in {} s: the model is too slow for them. A smaller model, a GPU, \
                 precision=fp16 or interval in its infer, or batch-size for several sources make it faster.",
                elapsed.as_secs()
            )));
        }
        (self.is_told && dropped == 0 && all > 0).then(|| {
            self.is_told = false;
            DropNotice::Over
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_dropped_frames_are_told_once_until_none_is() {
        let begin = Instant::now();
        let mut dropped = DroppedFrames::since(begin);
        let mut look = |minutes: f64, with_results, dropped_until_now| {
            let counts = FrameCounts { with_results, dropped: dropped_until_now };
            dropped.look(begin + WINDOW.mul_f64(minutes), counts)
        };
        assert_eq!(look(0.9, 500, 500), None, "a minute is not over");
        assert_eq!(look(1.0, 1450, 50), None, "as when a camera connects");
        let Some(DropNotice::Begun(text)) = look(2.0, 2650, 350) else { panic!("a fifth of them is worth a line") };
        assert!(text.starts_with("300 of 1500 frames were dropped in 60 s"), "{text}");
        assert_eq!(look(3.0, 3850, 650), None, "the same again");
        assert_eq!(look(4.0, 3850, 650), None, "without frames nothing is known");
        assert_eq!(look(5.0, 5350, 650), Some(DropNotice::Over));
        assert_eq!(look(6.0, 6850, 650), None);
        assert!(matches!(look(7.5, 7000, 3000), Some(DropNotice::Begun(_))));
    }
}
