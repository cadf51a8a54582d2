// SPDX-License-Identifier: MPL-2.0
//! A source that gives nothing: after a while that is said, and after a longer one it is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;

/// How long a source may give no frame until that is said.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// As many bytes of a file of the web count like a frame: one byte from time to time would hold everything up.
const STEP: u64 = 64 << 10;

/// The bytes of files of the web that have come: some servers give no parts, and a file is read once it is here to its end.
#[derive(Clone, Default)]
pub struct ReceivedBytes(Arc<AtomicU64>);

impl ReceivedBytes {
    /// Those that sources of this pipeline will get. Of an answer whose length is not known, such as a camera's, only frames
    /// tell that it is a video.
    pub fn of(pipeline: &gst::Pipeline) -> Self {
        let received = ReceivedBytes::default();
        let bytes = received.0.clone();
        pipeline.connect_deep_element_added(move |_, _, element| {
            let handler = element.dynamic_cast_ref::<gst::URIHandler>();
            if handler.is_none_or(|handler| handler.uri_type() != gst::URIType::Src) {
                return;
            }
            for pad in element.src_pads() {
                let bytes = bytes.clone();
                pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
                    if let Some(buffer) = info.buffer()
                        && pad.query_duration::<gst::format::Bytes>().is_some()
                    {
                        bytes.fetch_add(buffer.size() as u64, Ordering::Relaxed);
                    }
                    gst::PadProbeReturn::Ok
                });
            }
        });
        received
    }

    /// How much has come, in steps.
    pub fn steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / STEP
    }
}

/// Since when nothing more has come.
pub struct Silence {
    /// Frames, and steps of bytes.
    given: (u64, u64),
    since: Instant,
    silent: Duration,
    is_said: bool,
}

impl Silence {
    pub fn new(now: Instant) -> Self {
        Silence { given: (0, 0), since: now, silent: Duration::ZERO, is_said: false }
    }

    /// What has come until now, and whether it is the source that is waited for. Returns for how long nothing has come.
    pub fn note(&mut self, given: (u64, u64), waits: bool, now: Instant) -> Duration {
        if self.given != given || !waits {
            *self = Silence { given, ..Silence::new(now) };
        }
        self.silent = now.saturating_duration_since(self.since);
        self.silent
    }

    /// Whether it has lasted so long that it is said now, once.
    pub fn is_to_be_said(&mut self) -> bool {
        let is_long = self.silent > SILENCE_LIMIT;
        is_long && !std::mem::replace(&mut self.is_said, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_bytes_end_a_silence_and_so_does_what_is_still_at_work() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut silence = Silence::new(begin);
        assert_eq!(silence.note((0, 0), true, at(9)), Duration::from_secs(9));
        assert!(!silence.is_to_be_said());
        assert_eq!(silence.note((0, 0), true, at(30)), Duration::from_secs(30));
        assert!(silence.is_to_be_said() && !silence.is_to_be_said(), "once");
        assert_eq!(silence.note((0, 1), true, at(31)), Duration::ZERO, "bytes have come");
        assert_eq!(silence.note((0, 1), true, at(41)), Duration::from_secs(10));
        assert_eq!(silence.note((1, 1), true, at(42)), Duration::ZERO, "a frame has come");
        assert_eq!(silence.note((1, 1), false, at(99)), Duration::ZERO, "frames are under way");
        assert_eq!(silence.note((1, 1), true, at(119)), Duration::from_secs(20));
        assert!(silence.is_to_be_said(), "it is another silence");
    }
}
