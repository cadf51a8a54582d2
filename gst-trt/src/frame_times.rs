// SPDX-License-Identifier: MPL-2.0
//! Times of frames on their way into a file.

use std::sync::{Mutex, PoisonError};

use gst::prelude::*;

/// A file wants a time of each frame, later than that of the one before. Pictures that just follow each other have none, and
/// decoders give two frames the same where times go back.
pub fn keep_order(out: &gst::Pad) {
    /// Of frames without a time, and the shortest one that a file counts.
    const STEP: gst::ClockTime = gst::ClockTime::from_mseconds(40);
    const SHORTEST: gst::ClockTime = gst::ClockTime::from_mseconds(1);
    let last = Mutex::new(None::<gst::ClockTime>);
    out.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut info.data {
            Some(gst::PadProbeData::Event(event)) if event.type_() == gst::EventType::Segment => *last = None,
            Some(gst::PadProbeData::Buffer(buffer)) => {
                let time = match (buffer.pts(), *last) {
                    (Some(time), Some(last)) => time.max(last + SHORTEST),
                    (Some(time), None) => time,
                    (None, last) => last.map_or(gst::ClockTime::ZERO, |last| last + STEP),
                };
                if buffer.pts() != Some(time) {
                    buffer.make_mut().set_pts(time);
                }
                *last = Some(time);
            }
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
}
