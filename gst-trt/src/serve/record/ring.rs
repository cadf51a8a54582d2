// SPDX-License-Identifier: MPL-2.0
//! The newest encoded frames, from a key frame on.

use std::collections::VecDeque;

use gst::ClockTime;

/// A frame as the encoder gives it.
#[derive(Clone)]
pub struct Encoded {
    pub buffer: gst::Buffer,
    /// Running time at which it is shown.
    pub time: ClockTime,
    pub is_key: bool,
}

impl Encoded {
    /// `None` for one without a time.
    pub fn new(sample: &gst::Sample) -> Option<Self> {
        let buffer = sample.buffer_owned()?;
        let time = sample.segment()?.downcast_ref::<ClockTime>()?.to_running_time(buffer.pts())?;
        let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        Some(Encoded { buffer, time, is_key })
    }
}

#[derive(Default)]
pub struct Ring(VecDeque<Encoded>);

impl Ring {
    /// Whether the frame does not go on from the last one: time begins again.
    pub fn is_cut_by(&self, frame: &Encoded) -> bool {
        self.0.back().is_some_and(|last| frame.time < last.time)
    }

    /// Adds a frame, and drops those that are no longer needed: all before the last key frame that is so much older.
    pub fn push(&mut self, frame: Encoded, kept: ClockTime) {
        if self.0.is_empty() && !frame.is_key {
            return;
        }
        let oldest = frame.time.saturating_sub(kept);
        self.0.push_back(frame);
        self.0.drain(..self.begin(oldest));
    }

    /// The frames from the last key frame at or before that time; all, where there is none.
    pub fn since(&self, time: ClockTime) -> Vec<Encoded> {
        self.0.range(self.begin(time)..).cloned().collect()
    }

    fn begin(&self, time: ClockTime) -> usize {
        self.0.iter().rposition(|frame| frame.is_key && frame.time <= time).unwrap_or(0)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seconds: u64, is_key: bool) -> Encoded {
        Encoded { buffer: gst::Buffer::new(), time: ClockTime::from_seconds(seconds), is_key }
    }

    fn times(frames: &[Encoded]) -> Vec<u64> {
        frames.iter().map(|frame| frame.time.seconds()).collect()
    }

    #[test]
    fn it_keeps_whole_groups_and_no_more() {
        gst::init().unwrap();
        let mut ring = Ring::default();
        ring.push(frame(0, false), ClockTime::from_seconds(3));
        assert!(ring.since(ClockTime::ZERO).is_empty(), "nothing can be shown without a key frame");
        for second in 1..=10 {
            ring.push(frame(second, second % 4 == 1), ClockTime::from_seconds(3));
        }
        assert_eq!(times(&ring.since(ClockTime::ZERO)), [5, 6, 7, 8, 9, 10]);
        assert_eq!(times(&ring.since(ClockTime::from_seconds(8))), [5, 6, 7, 8, 9, 10]);
        assert_eq!(times(&ring.since(ClockTime::from_seconds(9))), [9, 10]);
        assert!(ring.is_cut_by(&frame(2, true)) && !ring.is_cut_by(&frame(11, false)));
    }
}
