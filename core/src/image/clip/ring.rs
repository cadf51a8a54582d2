// SPDX-License-Identifier: MPL-2.0
//! The last frames of a stream, as many as a clip has.

use std::collections::VecDeque;

/// Keeps every n-th frame of a stream, and lets the oldest one go once there are as many as a clip has.
#[derive(Debug)]
pub struct ClipRing<T> {
    kept: VecDeque<T>,
    /// Frames of a clip.
    count: usize,
    /// From one of them to the next in the stream.
    step: u64,
    /// So many frames of the stream pass before the next one is kept.
    ahead: u64,
    /// Whether there was a whole clip since it was empty.
    was_full: bool,
}

impl<T> ClipRing<T> {
    pub fn new(count: usize, step: u32) -> Self {
        let (count, step) = (count.max(1), u64::from(step.max(1)));
        ClipRing { kept: VecDeque::with_capacity(count), count, step, ahead: 0, was_full: false }
    }

    /// A frame comes, and so many are missing before it: they were dropped on the way. Says what becomes of it.
    ///
    /// Where as many are missing as a clip spans, what is kept is of another time: a clip begins again.
    pub fn comes(&mut self, missing: u32) -> FrameArrival {
        let missing = u64::from(missing);
        let span = self.step * self.count as u64;
        let ended = if missing >= span { self.clear() } else { None };
        self.ahead = self.ahead.saturating_sub(missing);
        let is_wanted = self.ahead == 0;
        self.ahead = if is_wanted { self.step - 1 } else { self.ahead - 1 };
        FrameArrival { is_wanted, ended }
    }

    /// Keeps a frame that is wanted. Returns whether there is a whole clip, which ends with it.
    pub fn push(&mut self, frame: T) -> bool {
        if self.kept.len() == self.count {
            self.kept.pop_front();
        }
        self.kept.push_back(frame);
        self.was_full |= self.kept.len() == self.count;
        self.kept.len() == self.count
    }

    /// Whether a clip ends with the next frame that is kept.
    pub fn is_next_full(&self) -> bool {
        self.kept.len() + 1 >= self.count
    }

    /// Those that are kept, in the order in which they came.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.kept.iter()
    }

    /// Lets all frames go: the next one that comes is the first of a clip. Says how many were kept where they never became a clip.
    pub fn clear(&mut self) -> Option<usize> {
        self.ahead = 0;
        self.let_go()
    }

    /// The same where the first of a clip has come, and is about to be kept.
    pub fn let_go(&mut self) -> Option<usize> {
        let unfinished = (!self.was_full && !self.kept.is_empty()).then_some(self.kept.len());
        self.kept.clear();
        self.was_full = false;
        unfinished
    }
}

/// What becomes of a frame that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameArrival {
    /// It is one of a clip.
    pub is_wanted: bool,
    /// A clip of so many frames was given up because of it.
    pub ended: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of the clips that end with each frame of a stream, by their numbers, of which some are missing.
    fn clips(count: usize, step: u32, frames: &[u32]) -> Vec<Vec<u32>> {
        let mut ring = ClipRing::new(count, step);
        let mut before = None;
        let mut come = |&frame: &u32| {
            let missing = before.replace(frame).map_or(0, |before| frame - before - 1);
            let is_whole = ring.comes(missing).is_wanted && ring.push(frame);
            if is_whole { ring.frames().copied().collect() } else { Vec::new() }
        };
        frames.iter().map(&mut come).collect()
    }

    #[test]
    fn a_clip_ends_with_each_frame_that_is_kept() {
        let none = Vec::new;
        assert_eq!(clips(3, 1, &[0, 1, 2, 3]), [none(), none(), vec![0, 1, 2], vec![1, 2, 3]]);
        let wanted = [none(), none(), none(), none(), vec![0, 2, 4], none(), vec![2, 4, 6]];
        assert_eq!(clips(3, 2, &[0, 1, 2, 3, 4, 5, 6]), wanted);
        assert_eq!(clips(1, 1, &[0, 1]), [[0], [1]]);
    }

    #[test]
    fn missing_frames_count() {
        // The frame 2 would have been kept, and the next one takes its place.
        assert_eq!(clips(2, 2, &[0, 1, 3, 4, 5]), [vec![], vec![], vec![0, 3], vec![], vec![3, 5]]);
        // As many as the clip spans: it begins again.
        assert_eq!(clips(2, 2, &[0, 5, 6, 7]), [vec![], vec![], vec![], vec![5, 7]]);
        assert_eq!(clips(2, 2, &[0, 4, 5, 6]), [vec![], vec![0, 4], vec![], vec![4, 6]]);
    }

    #[test]
    fn a_frame_that_has_come_may_be_the_first_of_a_clip() {
        let mut ring = ClipRing::new(2, 2);
        let mut come = |frame: u32, is_first: bool| {
            let is_wanted = ring.comes(0).is_wanted;
            if is_first {
                ring.let_go();
            }
            (is_wanted && ring.push(frame)).then(|| ring.frames().copied().collect::<Vec<_>>())
        };
        assert_eq!([come(0, true), come(1, false), come(2, false)], [None, None, Some(vec![0, 2])]);
        assert_eq!([come(3, false), come(4, true), come(5, false)], [None, None, None]);
        assert_eq!(come(6, false), Some(vec![4, 6]));
    }

    #[test]
    fn what_never_became_a_clip_is_told_once() {
        let mut ring = ClipRing::new(3, 1);
        assert_eq!(ring.clear(), None);
        for _ in 0..2 {
            assert!(ring.comes(0).is_wanted && !ring.push(()));
        }
        assert_eq!((ring.clear(), ring.clear()), (Some(2), None));
        for number in 0..5 {
            ring.comes(0);
            assert_eq!(ring.push(()), number >= 2);
        }
        assert_eq!(ring.clear(), None, "there were clips");
        ring.push(());
        assert_eq!(ring.comes(3), FrameArrival { is_wanted: true, ended: Some(1) });
    }
}
