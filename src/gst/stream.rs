// SPDX-License-Identifier: MPL-2.0
//! What elements that follow objects from frame to frame must know of their stream: where it is, and where it begins again.

use std::sync::LazyLock;

use gsttrt_core::error::{Error, ErrorKind, Result};

use super::element::continues;

/// The stream of an element that takes frames in any memory.
#[derive(Debug, Default)]
pub struct VideoStream {
    /// The size of the frames; 0x0 before the first caps.
    pub size: (u32, u32),
    /// Nanoseconds; 0 if the caps have no frame rate.
    pub frame_duration: u64,
    /// The running time of the last frame.
    pub now: u64,
    frames: u64,
    stream_id: String,
}

/// A frame of the stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFrame {
    /// Counted from 0 over all frames.
    pub number: u64,
    pub stream_time: Option<gst::ClockTime>,
}

impl VideoStream {
    /// Takes in the next frame's time. `segment` is the element's.
    pub fn advance(&mut self, segment: &gst::Segment, pts: Option<gst::ClockTime>) -> StreamFrame {
        let number = self.frames;
        self.frames += 1;
        let segment = segment.downcast_ref::<gst::ClockTime>();
        let running_time = segment.and_then(|segment| segment.to_running_time(pts));
        let guessed = self.now.saturating_add(self.frame_duration);
        self.now = running_time.map_or(guessed, gst::ClockTime::nseconds);
        StreamFrame { number, stream_time: segment.and_then(|segment| segment.to_stream_time(pts)) }
    }

    /// Whether another part of the stream, or another stream, follows an event. `segment` is the element's.
    pub fn is_cut(&mut self, event: &gst::Event, segment: &gst::Segment) -> bool {
        match event.view() {
            gst::EventView::FlushStop(_) => true,
            gst::EventView::StreamStart(start) => {
                let stream_id = start.stream_id();
                std::mem::replace(&mut self.stream_id, stream_id.to_string()) != stream_id
            }
            gst::EventView::Segment(new) => !continues(segment, new.segment()),
            _ => false,
        }
    }

    /// Takes in size and rate of the frames, and returns whether the size is another one than before.
    ///
    /// # Errors
    /// `Negotiation`, where the caps have no size.
    pub fn set_caps(&mut self, caps: &gst::CapsRef, element: &str) -> Result<bool> {
        let fields = caps.structure(0).expect("fixed caps have one structure");
        let side =
            |name| fields.get::<i32>(name).ok().and_then(|side| u32::try_from(side).ok()).filter(|&side| side > 0);
        let (Some(width), Some(height)) = (side("width"), side("height")) else {
            return Err(Error::new(ErrorKind::Negotiation, "The caps of the frames have no width and height")
                .cause(caps)
                .remedy(format!("Put a capsfilter with width and height before {element}")));
        };
        let rate = fields.get::<gst::Fraction>("framerate").ok().filter(|rate| rate.numer() > 0 && rate.denom() > 0);
        let duration = |rate: gst::Fraction| 1_000_000_000 * rate.denom() as u64 / rate.numer() as u64;
        self.frame_duration = rate.map_or(0, duration);
        Ok(std::mem::replace(&mut self.size, (width, height)) != (width, height))
    }
}

/// Pads for raw video in any memory.
pub fn any_video_templates() -> &'static [gst::PadTemplate] {
    static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(|| {
        let caps = gst::Caps::builder("video/x-raw").any_features().build();
        [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)].map(|(name, direction)| {
            gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps).expect("valid template")
        })
    });
    &*TEMPLATES
}
