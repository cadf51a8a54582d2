// SPDX-License-Identifier: MPL-2.0
//! Results in the video itself: each frame of H.264 has a message of supplemental enhancement information (SEI) with what was
//! found in it, as JSON. Decoders that do not know it pass over it.
//!
//! Encoders drop the metas that results are in. So the text of a frame waits under its running time until the encoded frame comes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;
use gsttrt::gst::meta::record;
use gsttrt::gst::sei;
use gsttrt_publish::clock;
use gsttrt_publish::formats::{self, PublishFormat};
use gsttrt_publish::record::{PublishSource, Record};

/// Texts that wait for their frames: an encoder keeps a few of these, and may drop some.
const MOST_WAITING: usize = 32;

/// Texts with the running times of their frames.
#[derive(Clone, Default)]
struct WaitingTexts(Arc<Mutex<VecDeque<(gst::ClockTime, String)>>>);

impl WaitingTexts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(gst::ClockTime, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, time: gst::ClockTime, text: String) {
        let mut waiting = self.lock();
        if waiting.len() == MOST_WAITING {
            waiting.pop_front();
        }
        waiting.push_back((time, text));
    }

    fn take(&self, time: gst::ClockTime) -> Option<String> {
        let mut waiting = self.lock();
        let position = waiting.iter().position(|(other, _)| *other == time)?;
        waiting.remove(position).map(|(_, text)| text)
    }
}

/// What was found in the frames of a pad is told in what comes out of another one: H.264 as a byte stream, a frame in each buffer.
pub fn tell(source: &str, frames: &gst::Pad, encoded: &gst::Pad) {
    let (waiting, number) = (WaitingTexts::default(), AtomicU64::new(0));
    let source = PublishSource { id: Some(source.into()), ..PublishSource::default() };
    let texts = waiting.clone();
    frames.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let info_of = |caps: gst::Caps| gst_video::VideoInfo::from_caps(&caps).ok();
        if let Some(buffer) = info.buffer()
            && let Some(time) = running_time(pad, buffer)
            && let Some(info) = pad.current_caps().and_then(info_of)
        {
            let mut frame = record::frame(buffer, (info.width(), info.height()));
            frame.number = number.fetch_add(1, Ordering::Relaxed);
            frame.times.wall_clock = Some(clock::now());
            texts.push(time, formats::message(PublishFormat::GstTrt, &Record::Frame(frame), &source));
        }
        gst::PadProbeReturn::Ok
    });
    encoded.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        if let Some(gst::PadProbeData::Buffer(buffer)) = &mut info.data
            && let Some(text) = running_time(pad, buffer).and_then(|time| waiting.take(time))
            && let Some(told) = sei::with_messages(buffer, &[text])
        {
            *buffer = told;
        }
        gst::PadProbeReturn::Ok
    });
}

fn running_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<gst::ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<gst::ClockTime>()?.to_running_time(buffer.pts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_wait_for_their_frames_and_no_longer() {
        let waiting = WaitingTexts::default();
        (0..100u64).for_each(|time| waiting.push(gst::ClockTime::from_nseconds(time), time.to_string()));
        assert_eq!(waiting.lock().len(), MOST_WAITING);
        assert_eq!(waiting.take(gst::ClockTime::from_nseconds(99)).as_deref(), Some("99"));
        assert_eq!(waiting.take(gst::ClockTime::from_nseconds(99)), None);
        assert_eq!(waiting.take(gst::ClockTime::from_nseconds(1)), None, "it was dropped");
    }
}
