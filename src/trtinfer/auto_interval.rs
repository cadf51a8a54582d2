// SPDX-License-Identifier: MPL-2.0
//! `interval=0`: which frames of a stream are inferred, so that it keeps up however slow the model is, or however many
//! streams share it.
//!
//! A frame is passed over in two cases:
//!
//! * The model still works on the last frame of this stream. So each stream has one frame in the model's queue at most, and
//!   those that share a model have an equal part of it.
//! * The frame has waited for this element, since the thread was held up by the last run: against its time stamp it is later
//!   than one that did not wait, by half of the time between two frames or more. But not if the thread has waited for the
//!   frame: that one is only late, by the network or for good.

use std::time::Duration;

/// A stream whose frames come one after another. Times are those since any point.
#[derive(Debug, Default)]
pub struct AutoInterval {
    /// How late a frame that did not wait is, against its time stamp, in nanoseconds.
    lag: Option<i64>,
    before: Option<PassedFrame>,
}

/// The frame before.
#[derive(Clone, Copy, Debug)]
struct PassedFrame {
    pts: u64,
    /// When the thread was free for the next one.
    left: Duration,
    was_inferred: bool,
}

impl AutoInterval {
    /// Whether a frame of that time stamp that comes now is to be inferred. `is_running`: the model works on the last one.
    pub fn is_due(&self, pts: Option<u64>, now: Duration, is_running: bool) -> bool {
        !is_running && !self.has_waited(pts, now)
    }

    fn has_waited(&self, pts: Option<u64>, now: Duration) -> bool {
        let (Some(pts), Some(lag)) = (pts, self.lag) else { return false };
        let late = |half: u64| lag_of(pts, now) - lag >= half as i64;
        self.half_period(pts).is_some_and(late) && !self.was_awaited(pts, now)
    }

    /// Half of the time since the frame before; `None` for time stamps that go back.
    fn half_period(&self, pts: u64) -> Option<u64> {
        pts.checked_sub(self.before?.pts).filter(|period| *period > 0).map(|period| period / 2)
    }

    /// Whether the thread has waited for the frame, as far as that is known: what comes behind this element may have held it
    /// up with a frame that was inferred.
    fn was_awaited(&self, pts: u64, now: Duration) -> bool {
        let Some(before) = self.before.filter(|before| !before.was_inferred) else { return false };
        self.half_period(pts).is_some_and(|half| now.saturating_sub(before.left) >= Duration::from_nanos(half))
    }

    /// A frame that came then has been inferred or passed over, and the thread is free now.
    pub fn left(&mut self, pts: Option<u64>, (came, now): (Duration, Duration), was_inferred: bool) {
        if let Some(pts) = pts.filter(|_| was_inferred) {
            let lag = lag_of(pts, came);
            self.lag = Some(match self.lag {
                Some(least) if self.half_period(pts).is_some() && !self.was_awaited(pts, came) => least.min(lag),
                _ => lag,
            });
        }
        self.before = pts.map(|pts| PassedFrame { pts, left: now, was_inferred });
    }
}

fn lag_of(pts: u64, now: Duration) -> i64 {
    now.as_nanos() as i64 - pts as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A stream of a camera in a thread of its own, before a model that serves one frame at a time, in their order.
    struct Stream {
        auto: AutoInterval,
        period: u64,
        /// How late each frame comes, at most.
        jitter: u64,
        next: u64,
        /// When its thread is free.
        free: u64,
        /// When the last run ends.
        run: u64,
        inferred: u64,
        /// The longest time that a frame has waited for the thread.
        waited: u64,
    }

    impl Stream {
        fn new(period: u64, jitter: u64) -> Self {
            let auto = AutoInterval::default();
            Stream { auto, period, jitter, next: 0, free: 0, run: 0, inferred: 0, waited: 0 }
        }

        fn pts(&self) -> u64 {
            self.next * self.period
        }

        /// When the thread can take the next frame.
        fn comes(&self) -> u64 {
            let late = if self.jitter == 0 { 0 } else { self.next * 7919 % self.jitter };
            (self.pts() + late).max(self.free)
        }

        /// Takes it. `server` is when the model is free; `blocks` whether the thread waits for its run.
        fn step(&mut self, server: &mut u64, run: u64, blocks: bool) {
            let (pts, comes) = (self.pts(), self.comes());
            self.waited = self.waited.max(comes - pts);
            let now = Duration::from_nanos(comes);
            let is_due = self.auto.is_due(Some(pts), now, self.run > comes);
            let mut left = comes + MS / 10;
            if is_due {
                *server = (*server).max(comes) + run;
                self.run = *server;
                self.inferred += 1;
                if blocks {
                    left = self.run;
                }
            }
            self.free = left;
            self.auto.left(Some(pts), (now, Duration::from_nanos(left)), is_due);
            self.next += 1;
        }
    }

    /// Runs them for that time, each frame in its order.
    fn play(streams: &mut [Stream], run: u64, blocks: bool, time: u64) -> u64 {
        let mut server = 0;
        while let Some(stream) =
            streams.iter_mut().filter(|stream| stream.pts() < time).min_by_key(|stream| stream.comes())
        {
            stream.step(&mut server, run, blocks);
        }
        server
    }

    #[test]
    fn a_model_that_is_fast_enough_sees_each_frame() {
        for blocks in [false, true] {
            for jitter in [0, 15 * MS] {
                let mut streams = [Stream::new(40 * MS, jitter)];
                play(&mut streams, 10 * MS, blocks, 40_000 * MS);
                assert_eq!(streams[0].inferred, 1000, "blocks: {blocks}, jitter: {jitter}");
            }
        }
    }

    #[test]
    fn a_slow_model_is_always_at_work_and_no_frame_waits_long() {
        for (blocks, run) in [(false, 100), (true, 100), (true, 41), (false, 1000), (true, 1000)] {
            let mut streams = [Stream::new(40 * MS, 0)];
            play(&mut streams, run * MS, blocks, 60_000 * MS);
            let (inferred, most) = (streams[0].inferred, 60_000 / run + 1);
            // The next one begins with the next frame.
            assert!(inferred <= most && inferred >= 60_000 / (run + 45), "{run} {blocks}: {inferred} of {most}");
            assert!(streams[0].waited <= (run + 45) * MS, "{run} {blocks}: {}", streams[0].waited);
        }
    }

    #[test]
    fn streams_have_equal_parts_of_a_model() {
        for blocks in [false, true] {
            // Of 25, 30 and 15 frames a second, and one that jitters.
            let mut streams = [
                Stream::new(40 * MS, 0),
                Stream::new(33 * MS, 0),
                Stream::new(66 * MS, 0),
                Stream::new(40 * MS, 30 * MS),
                Stream::new(40 * MS, 0),
                Stream::new(33 * MS, 0),
            ];
            play(&mut streams, 25 * MS, blocks, 120_000 * MS);
            let counts: Vec<u64> = streams.iter().map(|stream| stream.inferred).collect();
            let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
            assert!(least * 4 >= most * 3, "blocks: {blocks}: {counts:?}");
            // 40 runs a second, of which most are used.
            assert!(counts.iter().sum::<u64>() > 120 * 30, "blocks: {blocks}: {counts:?}");
            assert!(streams.iter().all(|stream| stream.waited < 400 * MS), "blocks: {blocks}");
        }
    }

    #[test]
    fn a_camera_whose_clock_is_set_goes_on() {
        for by in [-5_000_000_000i64, 5_000_000_000] {
            let mut auto = AutoInterval::default();
            let mut inferred = 0;
            for number in 0..200u64 {
                let now = Duration::from_millis(number * 40 + 6000);
                let shift = if number < 100 { 0 } else { by };
                let pts = Some((number * 40 * MS + 6_000 * MS).saturating_add_signed(shift));
                let is_due = auto.is_due(pts, now, false);
                inferred += u32::from(is_due);
                auto.left(pts, (now, now + Duration::from_millis(1)), is_due);
            }
            assert!(inferred >= 198, "{by}: {inferred}");
        }
    }

    #[test]
    fn a_file_that_begins_again_goes_on() {
        let mut auto = AutoInterval::default();
        let mut inferred = 0;
        // Read as fast as the model can, a frame in a millisecond.
        for number in 0..300u64 {
            let (now, pts) = (Duration::from_millis(number), Some(number % 100 * 40 * MS));
            let is_due = auto.is_due(pts, now, false);
            inferred += u32::from(is_due);
            auto.left(pts, (now, now + Duration::from_micros(900)), is_due);
        }
        assert_eq!(inferred, 300);
    }

    #[test]
    fn frames_without_time_stamps_are_inferred_unless_the_model_is_at_work() {
        let mut auto = AutoInterval::default();
        for is_running in [false, true, false] {
            let now = Duration::from_millis(7);
            assert_eq!(auto.is_due(None, now, is_running), !is_running);
            auto.left(None, (now, now), !is_running);
        }
    }
}
