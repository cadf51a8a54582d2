// SPDX-License-Identifier: MPL-2.0
//! Frames of a file at their own pace. They wait before they are counted and inferred: what waits for the clock behind the
//! model holds frames back that have their results, and that is no latency of anything.
//!
//! The first frame goes through alone, at the start and after each seek, and starts the clock with its result: no frame is
//! late because a model was loaded meanwhile.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;

#[derive(Default)]
pub struct Pace {
    state: Mutex<PaceState>,
    changed: Condvar,
}

#[derive(Default)]
struct PaceState {
    /// The time stamp of the first frame.
    first: Option<gst::ClockTime>,
    /// When it had its result.
    begun: Option<Instant>,
    /// No frame may wait.
    open: bool,
    /// Nor may one after a flush.
    is_over: bool,
    /// A frame waits.
    is_waiting: bool,
}

impl PaceState {
    /// When it is time for the frame; unknown before the first one has its result.
    fn due(&self, time: gst::ClockTime) -> Option<Instant> {
        let since = time.saturating_sub(self.first?);
        Some(self.begun? + Duration::from_nanos(since.nseconds()))
    }
}

impl Pace {
    /// Lets frames wait that enter by `entry`; those that have their results come to `exit`.
    pub fn keep(entry: &gst::Pad, exit: &gst::Pad) -> Arc<Self> {
        let pace = Arc::new(Pace::default());
        let (frames, flushes, results) = (pace.clone(), pace.clone(), pace.clone());
        entry.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            if let Some(time) = info.buffer().and_then(|buffer| buffer.pts()) {
                frames.wait(time);
            }
            gst::PadProbeReturn::Ok
        });
        entry.add_probe(gst::PadProbeType::EVENT_FLUSH, move |_, info| {
            match info.event().map(|event| event.type_()) {
                Some(gst::EventType::FlushStart) => flushes.set(PaceState { open: true, ..PaceState::default() }),
                Some(gst::EventType::FlushStop) => flushes.set(PaceState::default()),
                _ => {}
            }
            gst::PadProbeReturn::Ok
        });
        exit.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            results.begin();
            gst::PadProbeReturn::Ok
        });
        pace
    }

    /// From now on no frame waits, also behind a seek that has begun before.
    pub fn end(&self) {
        self.set(PaceState { is_over: true, ..PaceState::default() });
    }

    fn set(&self, to: PaceState) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = PaceState { is_over: state.is_over || to.is_over, ..to };
        drop(state);
        self.changed.notify_all();
    }

    /// A frame has its result.
    fn begin(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.begun.is_none() && state.first.is_some() {
            state.begun = Some(Instant::now());
            self.changed.notify_all();
        }
    }

    /// Returns when it is time for the frame.
    fn wait(&self, time: gst::ClockTime) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a seek, time goes back only where a file has another one behind it.
        if state.first.is_none_or(|first| time < first) {
            let begun = state.first.and(state.begun).map(|_| Instant::now());
            (state.first, state.begun) = (Some(time), begun);
            return;
        }
        state.is_waiting = true;
        while !state.open && !state.is_over {
            let Some(due) = state.due(time) else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_waiting = false;
    }

    /// Whether a frame waits until it is time for it.
    pub fn is_waiting(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_waiting
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::wait::{LIMIT, wait_until};

    fn at(milliseconds: u64) -> gst::ClockTime {
        gst::ClockTime::from_mseconds(milliseconds)
    }

    #[test]
    fn frames_come_at_their_time_once_the_first_has_its_result() {
        let pace = Arc::new(Pace::default());
        pace.wait(at(1000));
        let waiting = pace.clone();
        let due = |time| pace.state.lock().unwrap().due(at(time));
        assert_eq!((due(1040), pace.is_waiting()), (None, false), "a model is loaded");
        let second = thread::spawn(move || waiting.wait(at(1040)));
        wait_until("the frame waits", LIMIT, || pace.is_waiting());
        pace.begin();
        let begun = due(1000).unwrap();
        pace.begin(); // later results change nothing
        assert_eq!(due(1040), Some(begun + Duration::from_millis(40)));
        second.join().unwrap();
        assert!(!pace.is_waiting());
        pace.wait(at(1000)); // it is late, and does not wait
    }

    #[test]
    fn a_flush_ends_the_wait_and_the_next_frame_is_a_first_one() {
        let pace = Arc::new(Pace::default());
        pace.wait(at(0));
        pace.begin();
        let waiting = pace.clone();
        let hour = thread::spawn(move || waiting.wait(at(3_600_000)));
        pace.set(PaceState { open: true, ..PaceState::default() });
        hour.join().unwrap();
        pace.set(PaceState::default());
        pace.wait(at(7_200_000));
        pace.end();
        pace.wait(at(9_200_000));
        // The source is stopped while it seeks to its beginning.
        pace.set(PaceState::default());
        [0, 40].into_iter().for_each(|time| pace.wait(at(time)));
    }
}
