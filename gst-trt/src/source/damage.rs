// SPDX-License-Identifier: MPL-2.0
//! Which frames of a source are damaged, or do not come out of its decoder at all. Decoders log it, and go on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;

/// Frames that a decoder keeps for their order, at most; H.264 and H.265 keep 16. Of one that gives other times than it is
/// given, no more than so many are kept here.
const MOST_PENDING: usize = 256;

/// A frame that has not come out with its time comes with another one, by so many frames later at most.
const MOST_LATE: u64 = 32;

/// Says how many frames are damaged, with the first, the tenth, and so on, and at the end how many it were.
pub(super) fn count_damaged(decode: &gst::Bin, decoder: &gst::Element, shown: &str) {
    let (Some(input), Some(output)) = (decoder.static_pad("sink"), decoder.static_pad("src")) else { return };
    let counts = Arc::new(DamageCounts { shown: shown.into(), decode: decode.downgrade(), state: Mutex::default() });
    follow(&input, &counts);
    let left = counts.clone();
    output.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |pad, info| {
        match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => left.leave(buffer),
            Some(gst::PadProbeData::Event(event)) if event.type_() == gst::EventType::Eos => {
                // Where no more frames are wanted, those in the decoder stay there.
                if pad.last_flow_result().is_err() {
                    left.forget();
                }
                left.end();
            }
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
}

/// Counts what comes into a decoder, and, of frames that come whole, into the parser before it: of one that is damaged it may
/// give nothing.
fn follow(input: &gst::Pad, counts: &Arc<DamageCounts>) {
    let counts = counts.clone();
    let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM | gst::PadProbeType::EVENT_FLUSH;
    input.add_probe(mask, move |pad, info| {
        match &info.data {
            Some(gst::PadProbeData::Buffer(_)) if is_jpeg(pad) && is_framed(pad) => counts.enter_picture(true),
            Some(gst::PadProbeData::Buffer(buffer)) if has_frames(pad) => counts.enter(pad, buffer),
            Some(gst::PadProbeData::Event(event)) => match event.view() {
                gst::EventView::Eos(_) if is_jpeg(pad) && is_framed(pad) => counts.enter_picture(false),
                gst::EventView::Caps(_) => {
                    if let Some(before) = parser_before(pad) {
                        follow_parser(&before, &counts);
                    }
                }
                // Another part of the video: what is under way has the times of the one before.
                gst::EventView::Segment(_) | gst::EventView::FlushStop(_) => counts.forget(),
                _ => {}
            },
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
}

fn follow_parser(parser: &gst::Element, counts: &Arc<DamageCounts>) {
    let Some(input) = parser.static_pad("sink").filter(has_whole_frames) else { return };
    let is_new = !std::mem::replace(&mut counts.lock().has_parser, true);
    let counts = counts.clone();
    if is_new {
        input.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let Some(buffer) = info.buffer() {
                counts.enter(pad, buffer);
            }
            gst::PadProbeReturn::Ok
        });
    }
}

/// The parser that gives a decoder its frames; a filter is between them.
fn parser_before(input: &gst::Pad) -> Option<gst::Element> {
    let before = |pad: &gst::Pad| pad.peer()?.parent_element();
    let elements = std::iter::successors(before(input), |element| before(&element.static_pad("sink")?));
    let is_parser = |element: &gst::Element| element.metadata("klass").is_some_and(|klass| klass.contains("Parser"));
    elements.take(3).find(is_parser)
}

/// Whether each buffer that comes in is a picture.
fn is_framed(pad: &gst::Pad) -> bool {
    let before = pad.peer().and_then(|peer| peer.parent_element()).and_then(|element| element.factory());
    before.is_some_and(|factory| factory.name() != "typefind")
}

fn is_jpeg(pad: &gst::Pad) -> bool {
    pad.current_caps().is_some_and(|caps| caps.structure(0).is_some_and(|caps| caps.name() == "image/jpeg"))
}

/// Whether each buffer with a time is a frame that is shown. Of other formats than these, some are only for others to refer
/// to; and of interlaced videos, some are half a frame.
fn has_frames(pad: &gst::Pad) -> bool {
    pad.current_caps().is_some_and(|caps| {
        caps.structure(0).is_some_and(|caps| {
            matches!(caps.name().as_str(), "video/x-h264" | "video/x-h265")
                && caps.get("alignment").is_ok_and(|alignment: &str| alignment == "au")
                && caps.get("interlace-mode").map_or(true, |mode: &str| mode == "progressive")
        })
    })
}

/// The same for what comes into a parser, which is not in pieces where a container has its frames.
fn has_whole_frames(pad: &gst::Pad) -> bool {
    const OF_CONTAINERS: [&str; 4] = ["avc", "avc3", "hvc1", "hev1"];
    let is_whole = |caps: gst::Caps| {
        caps.structure(0)?.get::<&str>("stream-format").ok().map(|format| OF_CONTAINERS.contains(&format))
    };
    pad.current_caps().and_then(is_whole).unwrap_or(false)
}

#[derive(Debug)]
struct DamageCounts {
    shown: String,
    decode: gst::glib::WeakRef<gst::Bin>,
    state: Mutex<DamageState>,
}

#[derive(Debug, Default)]
struct DamageState {
    damaged: u64,
    /// The number that was said last.
    said: u64,
    /// Pictures of JPEG that came in, and those that came out or were counted.
    entered: u64,
    left: u64,
    /// The time of the first frame that can be shown without others. Those that are shown before it need others.
    first: Option<gst::ClockTime>,
    /// Times of frames that are in the decoder. Frames come out in the order of their times.
    pending: BTreeSet<gst::ClockTime>,
    /// Whether the decoder gives frames the times that they came in with.
    keeps_times: bool,
    /// Frames that have not come out in their turn, and those that came out with a time that none had: a decoder changes times that
    /// go back, as those of B-frames of a camera may where packets are late. Of each, how many had come out then.
    missing: VecDeque<u64>,
    changed: VecDeque<u64>,
    has_parser: bool,
}

impl DamageState {
    /// Takes those for each other that are missing and that have another time, and counts the frames that stay away.
    fn pair(&mut self) -> u64 {
        let pairs = self.missing.len().min(self.changed.len());
        self.missing.drain(..pairs);
        self.changed.drain(..pairs);
        let longest_ago = self.left.saturating_sub(MOST_LATE);
        self.changed.retain(|number| *number >= longest_ago);
        let before = self.missing.len();
        self.missing.retain(|number| *number >= longest_ago);
        (before - self.missing.len()) as u64
    }
}

impl DamageCounts {
    fn lock(&self) -> MutexGuard<'_, DamageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A picture of JPEG comes, or the end. The one before has come out already, if it could be decoded.
    fn enter_picture(&self, is_picture: bool) {
        let mut state = self.lock();
        let before = state.entered;
        state.entered += u64::from(is_picture);
        if state.left < before {
            state.left = before;
            self.damage(state, 1);
        }
    }

    /// A frame of another format comes. It is known by its time.
    fn enter(&self, pad: &gst::Pad, buffer: &gst::BufferRef) {
        let segment = pad.sticky_event::<gst::event::Segment>(0);
        let is_shown = |time: &gst::ClockTime| {
            let segment = segment.as_ref().and_then(|event| event.segment().downcast_ref::<gst::ClockTime>());
            let end = buffer.duration().map(|duration| *time + duration);
            segment.is_none_or(|segment| segment.clip(*time, end).is_some())
        };
        let Some(time) = buffer.pts().filter(is_shown) else { return };
        let mut state = self.lock();
        if state.first.is_none() && !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT) {
            state.first = Some(time);
        }
        let is_wanted = !buffer.flags().contains(gst::BufferFlags::DECODE_ONLY);
        if is_wanted && state.first.is_some_and(|first| time >= first) && state.pending.len() < MOST_PENDING {
            state.pending.insert(time);
        }
    }

    /// A frame comes out: those that are to be shown before it do not come any more, but with another time.
    fn leave(&self, buffer: &gst::BufferRef) {
        let mut state = self.lock();
        state.left += 1;
        let number = state.left;
        if let Some(time) = buffer.pts() {
            if state.pending.contains(&time) {
                let later = state.pending.split_off(&time);
                let passed = std::mem::replace(&mut state.pending, later).len();
                state.pending.remove(&time);
                state.keeps_times = true;
                state.missing.extend(std::iter::repeat_n(number, passed));
            } else {
                state.changed.push_back(number);
            }
        }
        let damaged = state.pair() + u64::from(buffer.flags().contains(gst::BufferFlags::CORRUPTED));
        self.damage(state, damaged);
    }

    fn forget(&self) {
        let mut state = self.lock();
        let lost = std::mem::take(&mut state.missing).len() as u64;
        state.changed.clear();
        state.pending.clear();
        state.first = None;
        self.damage(state, lost);
    }

    /// The decoder gives nothing more.
    fn end(&self) {
        let mut state = self.lock();
        let missing = std::mem::take(&mut state.missing).len() as u64;
        let lost = std::mem::take(&mut state.pending).len() as u64;
        state.damaged += missing;
        if state.keeps_times {
            state.damaged += lost;
        }
        if state.damaged > state.said {
            self.say(state);
        }
    }

    fn damage(&self, mut state: MutexGuard<'_, DamageState>, count: u64) {
        let before = state.damaged;
        state.damaged += count;
        let digits = |count: u64| count.checked_ilog10().map_or(0, |digits| digits + 1);
        // One more digit is ten times as many.
        if digits(state.damaged) > digits(before) {
            self.say(state);
        }
    }

    fn say(&self, mut state: MutexGuard<'_, DamageState>) {
        let count = state.damaged;
        state.said = count;
        drop(state); // whoever takes the message may ask for another frame
        if let Some(decode) = self.decode.upgrade() {
            let (what, end) = match count {
                1 => ("A frame".to_string(), "cannot be decoded, or is damaged"),
                count => (format!("{count} frames"), "cannot be decoded, or are damaged"),
            };
            gst::element_warning!(decode, gst::StreamError::Decode, ("{what} of {} {end}.", self.shown));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(time: u64, is_key: bool) -> gst::Buffer {
        let mut buffer = gst::Buffer::with_size(1).unwrap();
        let frame = buffer.make_mut();
        frame.set_pts(gst::ClockTime::from_mseconds(time));
        if !is_key {
            frame.set_flags(gst::BufferFlags::DELTA_UNIT);
        }
        buffer
    }

    /// In the order of their decoding they come in, and in that of their times out.
    #[test]
    fn frames_that_do_not_come_out_are_counted() {
        gst::init().unwrap();
        let (bin, pad) = (gst::Bin::new(), gst::Pad::new(gst::PadDirection::Sink));
        let counts = DamageCounts { shown: "a.mp4".into(), decode: bin.downgrade(), state: Mutex::default() };
        let damaged = || counts.lock().damaged;
        // Before the first key frame, and shown before it.
        for (time, is_key) in [(0, false), (100, true), (60, false), (220, false), (140, false), (180, false)] {
            counts.enter(&pad, &frame(time, is_key));
        }
        for time in [100, 140, 220] {
            counts.leave(&frame(time, false));
            assert_eq!(damaged(), 0);
        }
        // One of them did not come out.
        counts.end();
        assert_eq!(damaged(), 1);
        // A time that nothing came in with tells nothing.
        counts.enter(&pad, &frame(260, false));
        counts.leave(&frame(261, false));
        assert_eq!(damaged(), 1);
        counts.forget();
        counts.end();
        assert_eq!(damaged(), 1);
        counts.enter(&pad, &frame(300, true));
        counts.enter(&pad, &frame(340, false));
        counts.leave(&frame(300, true));
        counts.end();
        assert_eq!(damaged(), 2);
    }

    #[test]
    fn a_frame_that_comes_out_with_another_time_is_there() {
        gst::init().unwrap();
        let (bin, pad) = (gst::Bin::new(), gst::Pad::new(gst::PadDirection::Sink));
        let counts = DamageCounts { shown: "a.mp4".into(), decode: bin.downgrade(), state: Mutex::default() };
        let damaged = || counts.lock().damaged;
        let play = |times: std::ops::Range<u64>| {
            for time in times {
                counts.enter(&pad, &frame(time, true));
                counts.leave(&frame(time, true));
            }
        };
        play(0..50);
        // Times that go back: known before the frame comes out, and after it.
        for (entering, leaving) in [([103, 101], [103, 103]), ([202, 201], [202, 202])] {
            for time in entering {
                counts.enter(&pad, &frame(time, false));
            }
            for time in leaving {
                counts.leave(&frame(time, false));
            }
        }
        counts.enter(&pad, &frame(300, false));
        counts.leave(&frame(300, false));
        counts.enter(&pad, &frame(299, false));
        counts.leave(&frame(300, false));
        play(400..500);
        assert_eq!(damaged(), 0);
        // This one does stay away, which is known some frames later.
        counts.enter(&pad, &frame(500, false));
        play(501..502 + MOST_LATE);
        assert_eq!(damaged(), 0);
        play(600..602);
        assert_eq!(damaged(), 1);
    }
}
