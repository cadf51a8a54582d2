// SPDX-License-Identifier: MPL-2.0
//! What elements that follow objects from frame to frame must know of their stream: where it is, and where it begins again.

use std::sync::LazyLock;

use gsttrt_core::error::{Error, ErrorKind, Result};

/// The segment of an element's stream, as its events tell. The base class has it too, but behind the lock of the sink pad,
/// which the streaming thread holds while it waits for room downstream: a flush would wait for the thread that it is to
/// free.
#[derive(Debug, Default)]
pub struct CurrentSegment {
    segment: Option<gst::Segment>,
    stream_id: String,
}

impl CurrentSegment {
    /// Takes an event in, and tells whether another part of the stream, or another stream, follows.
    pub fn is_cut(&mut self, event: &gst::EventRef) -> bool {
        match event.view() {
            gst::EventView::FlushStop(_) => {
                self.segment = None;
                true
            }
            gst::EventView::Segment(new) => {
                let old = self.segment.replace(new.segment().clone());
                old.is_none_or(|old| !continues(&old, new.segment()))
            }
            gst::EventView::StreamStart(start) => {
                let stream_id = start.stream_id();
                std::mem::replace(&mut self.stream_id, stream_id.to_string()) != stream_id
            }
            _ => false,
        }
    }

    fn times(&self) -> Option<&gst::FormattedSegment<gst::ClockTime>> {
        self.segment.as_ref()?.downcast_ref()
    }

    pub fn stream_time(&self, pts: Option<gst::ClockTime>) -> Option<gst::ClockTime> {
        self.times()?.to_stream_time(pts)
    }

    pub fn running_time(&self, pts: Option<gst::ClockTime>) -> Option<gst::ClockTime> {
        self.times()?.to_running_time(pts)
    }

    /// How fast stream times pass, in running time. Below 0 they go back from frame to frame.
    fn speed(&self) -> f64 {
        self.times().map_or(1.0, |segment| segment.rate() * segment.applied_rate())
    }
}

/// Whether the frames of the new segment come behind those of the old one: demuxers and live sources send a segment
/// again to say where they are, or when its end is known.
fn continues(old: &gst::Segment, new: &gst::Segment) -> bool {
    let place =
        |segment: &gst::Segment| (segment.format(), segment.start(), segment.time(), segment.base(), segment.offset());
    let rates = |segment: &gst::Segment| (segment.rate(), segment.applied_rate());
    place(old) == place(new) && rates(old) == rates(new)
}

/// The stream of an element that takes frames in any memory.
#[derive(Debug, Default)]
pub struct VideoStream {
    /// The size of the frames; 0x0 before the first caps.
    pub size: (u32, u32),
    /// Whether the frames are encoded, for an element that takes such too.
    pub is_encoded: bool,
    /// Nanoseconds; 0 if the caps have no frame rate.
    pub frame_duration: u64,
    /// The running time of the last frame.
    pub now: u64,
    /// The time of the scene in the last frame, since any point. It passes as the stream times do, faster or slower than the
    /// running time where an application plays at another rate, and forwards where that plays backwards.
    pub scene: u64,
    frames: u64,
    /// The last running time that a frame had, and how many frames have come since that had no other one.
    told: Option<u64>,
    still: u32,
    segment: CurrentSegment,
}

/// A frame of the stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFrame {
    /// Counted from 0 over all frames.
    pub number: u64,
    pub stream_time: Option<gst::ClockTime>,
    /// Stream times go back from frame to frame.
    pub is_backwards: bool,
    /// Time goes back by more than a second: another part of the stream begins, and no event says so.
    pub is_cut: bool,
}

/// No stream time is later: it is after 146 years.
const LATEST: u64 = 1 << 62;

/// So long is a frame of a stream without times and without a rate, as an application may give it. Else time would stand still there: objects
/// that are gone would be kept without end, and none would stay anywhere for any time.
const UNKNOWN_DURATION: u64 = 33_333_333;

/// After so many frames with one time they tell nothing: an application gives all the same.
const STILL: u32 = 300;

/// Frames of an application, or of a camera whose clock was set, may go back in a segment. A little is jitter.
const JITTER: u64 = 1_000_000_000;

impl VideoStream {
    /// Takes in the next frame's time.
    pub fn advance(&mut self, pts: Option<gst::ClockTime>) -> StreamFrame {
        let number = self.frames;
        self.frames += 1;
        let (stream_time, running_time) = (self.segment.stream_time(pts), self.segment.running_time(pts));
        let is_backwards = self.segment.speed() < 0.0;
        let running_time = running_time.map(gst::ClockTime::nseconds);
        let passes = running_time.is_some() && running_time != self.told;
        self.told = running_time.or(self.told);
        self.still = if passes { 0 } else { self.still.saturating_add(1) };
        let stands = self.still > STILL;
        let is_unknown = self.frame_duration == 0 && (stands || self.told.is_none());
        let duration = if is_unknown { UNKNOWN_DURATION } else { self.frame_duration };
        let guessed = |before: u64| before.saturating_add(duration);
        let before = self.now;
        let of_scene = stream_time.map(gst::ClockTime::nseconds).map(|time| match is_backwards {
            true => LATEST.saturating_sub(time),
            false => time,
        });
        let (of_scene, running_time) = (of_scene.filter(|_| !stands), running_time.filter(|_| !stands));
        self.scene = of_scene.or(running_time).unwrap_or_else(|| guessed(self.scene));
        self.now = running_time.unwrap_or_else(|| guessed(before));
        let is_cut = self.now.saturating_add(JITTER) < before;
        StreamFrame { number, stream_time, is_backwards, is_cut }
    }

    /// The running time at which the scene had that time, since the last cut.
    pub fn running_time_at(&self, scene: u64) -> u64 {
        let ago = self.scene.saturating_sub(scene) as f64 / self.segment.speed().abs();
        self.now.saturating_sub(ago as u64)
    }

    /// As [`CurrentSegment::is_cut`].
    pub fn is_cut(&mut self, event: &gst::EventRef) -> bool {
        self.segment.is_cut(event)
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
        self.is_encoded = fields.name() != "video/x-raw";
        let rate = fields.get::<gst::Fraction>("framerate").ok().filter(|rate| rate.numer() > 0 && rate.denom() > 0);
        let duration = |rate: gst::Fraction| 1_000_000_000 * rate.denom() as u64 / rate.numer() as u64;
        self.frame_duration = rate.map_or(0, duration);
        Ok(std::mem::replace(&mut self.size, (width, height)) != (width, height))
    }
}

fn templates(caps: &gst::Caps) -> [gst::PadTemplate; 2] {
    [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)].map(|(name, direction)| {
        gst::PadTemplate::new(name, direction, gst::PadPresence::Always, caps).expect("valid template")
    })
}

fn any_raw_video() -> gst::Caps {
    gst::Caps::builder("video/x-raw").any_features().build()
}

/// Pads for raw video in any memory.
pub fn any_video_templates() -> &'static [gst::PadTemplate] {
    static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(|| templates(&any_raw_video()));
    &*TEMPLATES
}

/// Pads for that, and for H.264 with a frame in each buffer.
pub fn any_video_and_h264_templates() -> &'static [gst::PadTemplate] {
    static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(|| {
        let mut caps = any_raw_video();
        let h264 = gst::Caps::builder("video/x-h264").field("stream-format", "byte-stream").field("alignment", "au");
        caps.get_mut().expect("it is new").append(h264.build());
        templates(&caps)
    });
    &*TEMPLATES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of so many frames a second; 0 if that is not known.
    fn stream(rate: i32) -> VideoStream {
        gst::init().unwrap();
        let caps = gst::Caps::builder("video/x-raw")
            .field("width", 64)
            .field("height", 48)
            .field("framerate", gst::Fraction::new(rate, 1))
            .build();
        let mut stream = VideoStream::default();
        stream.set_caps(&caps, "it").unwrap();
        stream
    }

    #[test]
    fn time_passes_where_frames_have_no_times() {
        for (rate, duration) in [(0, UNKNOWN_DURATION), (10, 100_000_000)] {
            let mut stream = stream(rate);
            for number in 1..=3u64 {
                assert!(!stream.advance(None).is_cut);
                assert_eq!((stream.now, stream.scene), (number * duration, number * duration), "{rate}");
            }
        }
    }

    /// At a rate that varies, nobody knows how much later it is. Where none is ever later, it is as without times.
    #[test]
    fn a_frame_without_a_time_of_its_own_is_no_later_than_the_one_before() {
        let second = gst::ClockTime::SECOND;
        for (time, rate, duration) in [(None, 0, UNKNOWN_DURATION), (Some(second), 10, 100_000_000)] {
            let mut stream = stream(rate);
            stream.is_cut(&gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
            for _ in 0..=STILL {
                stream.advance(Some(second));
            }
            assert_eq!((stream.now, stream.scene), (1_000_000_000, 1_000_000_000));
            for number in 1..=3 {
                assert!(!stream.advance(time).is_cut);
                let wanted = 1_000_000_000 + number * duration;
                assert_eq!((stream.now, stream.scene), (wanted, wanted));
            }
            stream.advance(Some(second * 2));
            assert_eq!((stream.now, stream.scene), (2_000_000_000, 2_000_000_000), "they tell it again");
            if rate == 0 {
                stream.advance(None);
                assert_eq!((stream.now, stream.scene), (2_000_000_000, 2_000_000_000));
            }
        }
    }

    /// Behind a seek, and at any rate.
    #[test]
    fn a_time_of_the_scene_was_a_running_time() {
        let [start, stop] = [50, 60].map(gst::ClockTime::from_seconds);
        for rate in [1.0, -1.0, 2.0, -0.5] {
            let mut stream = stream(10);
            let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
            segment.set_rate(rate);
            segment.set_start(start);
            segment.set_time(start);
            segment.set_stop(stop);
            stream.is_cut(&gst::event::Segment::new(&segment));
            let times = [0, 3, 4].map(|seconds| {
                let passed = gst::ClockTime::from_seconds(seconds);
                stream.advance(Some(if rate < 0.0 { stop - passed } else { start + passed }));
                (stream.scene, stream.now)
            });
            for (scene, now) in times {
                assert_eq!(stream.running_time_at(scene), now, "{rate}");
            }
        }
    }
}
