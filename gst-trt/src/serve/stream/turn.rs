// SPDX-License-Identifier: MPL-2.0
//! Decoders are started in turn. A GPU's driver sets up one at a time, for tens of milliseconds, while the others spin: where
//! hundreds began at once, they would keep all processors busy, sources would count as stalled before their first frame, be
//! started again, and never come to it. Frames of sources that play wait for the driver meanwhile, so few are enough.
//!
//! The turn begins with the first key frame, so that a camera that does not answer, or begins between two, holds up nobody. It is
//! over when the decoder takes what comes next: for a picture it may wait for more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;

use crate::source::decodes_video;

/// Of all sources of the process.
static TURNS: StartTurns = StartTurns::new(4);
/// A decoder that does not go on has its turn for so long.
const LIMIT: Duration = Duration::from_secs(2);

/// So many at a time, in the order in which they came.
struct StartTurns {
    most: usize,
    state: Mutex<StartTurnsState>,
}

struct StartTurnsState {
    taken: usize,
    waiting: VecDeque<Arc<StartTurn>>,
}

/// The turn of a run of a source.
pub struct StartTurn {
    turns: &'static StartTurns,
    /// Locked after that of all turns.
    phase: Mutex<StartPhase>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum StartPhase {
    Before,
    Waiting,
    Taken(Instant),
    Over,
}

impl StartTurns {
    const fn new(most: usize) -> Self {
        StartTurns { most, state: Mutex::new(StartTurnsState { taken: 0, waiting: VecDeque::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, StartTurnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&'static self) -> Arc<StartTurn> {
        Arc::new(StartTurn { turns: self, phase: Mutex::new(StartPhase::Before), changed: Condvar::new() })
    }
}

impl StartTurn {
    /// Lets the decoders that come into the pipeline wait for it. It is over at the latest with the first frame that comes to the pad.
    pub fn keep(pipeline: &gst::Pipeline, frames: &gst::Pad) -> Arc<Self> {
        TURNS.turn().of(pipeline, frames)
    }

    fn of(self: Arc<Self>, pipeline: &gst::Pipeline, frames: &gst::Pad) -> Arc<Self> {
        let turn = self.clone();
        pipeline.connect_deep_element_added(move |_, _, element| {
            let turn = turn.clone();
            if let Some(input) = element.static_pad("sink").filter(|_| decodes_video(element)) {
                let has_taken = AtomicBool::new(false);
                input.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
                    if has_taken.load(Ordering::Relaxed) {
                        turn.end();
                        return gst::PadProbeReturn::Remove;
                    }
                    if info.buffer().is_some_and(|buffer| !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT)) {
                        turn.take();
                        has_taken.store(true, Ordering::Relaxed);
                    }
                    gst::PadProbeReturn::Ok
                });
            }
        });
        let turn = self.clone();
        frames.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            turn.end();
            gst::PadProbeReturn::Remove
        });
        self
    }

    fn phase(&self) -> MutexGuard<'_, StartPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when it has come, or is over.
    fn take(self: &Arc<Self>) {
        let mut turns = self.turns.lock();
        let mut phase = self.phase();
        if *phase != StartPhase::Before {
            return; // of a second decoder, as the first one failed
        }
        if turns.taken < self.turns.most {
            turns.taken += 1;
            *phase = StartPhase::Taken(Instant::now());
            return;
        }
        *phase = StartPhase::Waiting;
        turns.waiting.push_back(self.clone());
        drop(turns);
        while *phase == StartPhase::Waiting {
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whoever waits for it goes on. The next one has it.
    pub fn end(&self) {
        let mut turns = self.turns.lock();
        match std::mem::replace(&mut *self.phase(), StartPhase::Over) {
            StartPhase::Before | StartPhase::Over => return,
            StartPhase::Waiting => {
                turns.waiting.retain(|turn| !std::ptr::eq(&**turn, self));
                return self.changed.notify_all();
            }
            StartPhase::Taken(_) => turns.taken -= 1,
        }
        if let Some(next) = turns.waiting.pop_front() {
            turns.taken += 1;
            *next.phase() = StartPhase::Taken(Instant::now());
            next.changed.notify_all();
        }
    }

    /// Ends it where it has taken too long.
    pub fn end_in_time(&self) {
        let is_late = matches!(*self.phase(), StartPhase::Taken(since) if since.elapsed() > LIMIT);
        if is_late {
            self.end();
        }
    }

    /// Whether a decoder waits for it.
    pub fn is_waiting(&self) -> bool {
        *self.phase() == StartPhase::Waiting
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::wait::{LIMIT, wait_until};

    #[test]
    fn so_many_have_their_turn_at_a_time_and_the_others_in_their_order() {
        static TWO: StartTurns = StartTurns::new(2);
        let turns: Vec<_> = (0..5).map(|_| TWO.turn()).collect();
        turns[0].take();
        turns[0].take(); // a second decoder of the same source
        turns[1].take();
        let threads: Vec<_> = (2..5)
            .map(|number| {
                let turn = turns[number].clone();
                let thread = thread::spawn(move || turn.take());
                wait_until("it waits", LIMIT, || turns[number].is_waiting());
                thread
            })
            .collect();
        turns[3].end(); // its source is removed
        turns[0].end();
        turns[0].end();
        let waiting = || turns.iter().map(|turn| turn.is_waiting()).collect::<Vec<_>>();
        assert_eq!(waiting(), [false, false, false, false, true]);
        turns[1].end_in_time(); // it has only begun
        assert!(turns[4].is_waiting());
        turns[1].end();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        turns.iter().for_each(|turn| turn.end());
        assert_eq!(TWO.lock().taken, 0);
    }

    #[test]
    fn the_first_key_frame_waits_and_the_first_picture_ends_the_turn() {
        static ONE: StartTurns = StartTurns::new(1);
        gst::init().unwrap();
        let other = ONE.turn();
        other.take();
        let line = "videotestsrc num-buffers=3 ! jpegenc ! identity name=in ! decodebin ! fakesink name=out";
        let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let count = |name: &str| {
            let count = Arc::new(AtomicU32::new(0));
            let pad = pipeline.by_name(name).unwrap().static_pad("sink").unwrap();
            let counter = count.clone();
            pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
                counter.fetch_add(1, Ordering::Relaxed);
                gst::PadProbeReturn::Ok
            });
            (pad, count)
        };
        let ((_, encoded), (pad, pictures)) = (count("in"), count("out"));
        let turn = ONE.turn().of(&pipeline, &pad);
        pipeline.set_state(gst::State::Playing).unwrap();
        wait_until("it waits", LIMIT, || turn.is_waiting());
        assert_eq!((encoded.load(Ordering::Relaxed), pictures.load(Ordering::Relaxed)), (1, 0));
        other.end();
        let end =
            pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Eos]);
        assert!(end.is_some());
        assert_eq!((pictures.load(Ordering::Relaxed), ONE.lock().taken), (3, 0));
        pipeline.set_state(gst::State::Null).unwrap();
    }
}
