// SPDX-License-Identifier: MPL-2.0
//! Frames that reach the sink too late, as its QoS events tell: they are not inferred, which is the dearest step of a pipeline.

use std::sync::Mutex;

use gst::format::Buffers;

use super::TrtInfer;
use crate::gst::stream::CurrentSegment;

/// What is known of late frames. A lock of its own: events come in other threads.
#[derive(Default)]
pub struct Qos(Mutex<QosState>);

#[derive(Default)]
struct QosState {
    segment: CurrentSegment,
    /// Frames of an earlier running time are too late already.
    earliest: Option<gst::ClockTime>,
    /// How much slower the stream is than it has to be.
    proportion: f64,
    late: u64,
}

impl Qos {
    /// The element starts.
    pub fn start(&self) {
        *self.0.lock().unwrap() = QosState::default();
    }

    /// Takes in an event of the stream, and tells whether another part of it, or another stream, follows.
    pub fn see(&self, event: &gst::EventRef) -> bool {
        let mut state = self.0.lock().unwrap();
        if event.type_() == gst::EventType::FlushStop {
            (state.earliest, state.proportion) = Default::default();
        }
        state.segment.is_cut(event)
    }

    /// Takes in what a sink says, as the base class does, which would drop late frames.
    pub fn learn(&self, event: &gst::event::Qos) {
        let (_, proportion, jitter, timestamp) = event.get();
        let earliest = timestamp.map(|timestamp| timestamp.nseconds().saturating_add_signed(jitter));
        let mut state = self.0.lock().unwrap();
        state.earliest = earliest.map(gst::ClockTime::from_nseconds);
        state.proportion = proportion;
    }

    /// How many frames were late.
    pub fn late(&self) -> u64 {
        self.0.lock().unwrap().late
    }

    /// Counts a frame that is late, and gives the message that says so, with how many were inferred until then.
    pub fn late_frame(
        &self,
        element: &TrtInfer,
        frame: &gst::BufferRef,
        inferred: impl Fn() -> u64,
    ) -> Option<gst::Message> {
        const FULL_QUALITY: i32 = 1_000_000;
        let mut state = self.0.lock().unwrap();
        let running_time = state.segment.running_time(frame.pts())?;
        let earliest = state.earliest.filter(|earliest| running_time <= *earliest)?;
        state.late += 1;
        let jitter = (earliest - running_time).nseconds().try_into().unwrap_or(i64::MAX);
        let message = gst::message::Qos::builder(false)
            .running_time(running_time)
            .stream_time(state.segment.stream_time(frame.pts()))
            .timestamp(frame.pts())
            .duration(frame.duration())
            .values(jitter, state.proportion, FULL_QUALITY)
            .stats(Buffers::from_u64(inferred()), Buffers::from_u64(state.late));
        Some(message.src(element).build())
    }
}
