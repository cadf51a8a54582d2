// SPDX-License-Identifier: MPL-2.0
//! Results in the video itself: each frame of H.264 has a message of supplemental enhancement information (SEI) with what was
//! found in it, as JSON. Decoders that do not know it pass over it.
//!
//! Encoders drop metas. So the text of a frame waits under its running time until the encoded frame comes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;
use gsttrt::gst::meta::record;
use gsttrt_publish::clock;
use gsttrt_publish::formats::{self, PublishFormat};
use gsttrt_publish::record::{PublishSource, Record};

/// What tells our messages from those of others: a UUID of version 4, drawn for them.
pub const UUID: [u8; 16] =
    [0x5b, 0x1f, 0x3c, 0x6e, 0x0a, 0x7d, 0x4e, 0x52, 0x9d, 0x63, 0x27, 0xc1, 0x84, 0xee, 0x1a, 0x90];
/// Texts that wait for their frames: an encoder keeps a few of these, and may drop some.
const MOST_WAITING: usize = 32;
/// Bytes of a text. Beyond them a frame has none.
const LONGEST: usize = 64 << 10;
/// The kind of a message that is user data without registration, and the kind of the unit that has messages.
const USER_DATA_UNREGISTERED: u8 = 5;
const SEI: u8 = 6;
/// Kinds of units that have parts of the picture.
const SLICES: std::ops::RangeInclusive<u8> = 1..=5;

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
            && let Some(told) = with_message(buffer, &text)
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

/// A frame with one unit more. `None` if it is no frame of H.264, or the text is too long.
fn with_message(buffer: &gst::BufferRef, text: &str) -> Option<gst::Buffer> {
    let map = buffer.map_readable().ok()?;
    let position = first_slice(&map).filter(|_| text.len() <= LONGEST)?;
    let bytes = [&map[..position], &unit(text), &map[position..]].concat();
    let mut told = gst::Buffer::from_mut_slice(bytes);
    let own = told.get_mut().expect("it is new");
    buffer
        .copy_into(own, gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::META, ..)
        .ok()?;
    Some(told)
}

/// Where the first part of the picture begins, with its start code.
fn first_slice(bytes: &[u8]) -> Option<usize> {
    let start = |four: &[u8]| four[..3] == [0, 0, 1] && SLICES.contains(&(four[3] & 0x1f));
    let code = bytes.windows(4).position(start)?;
    // A start code may have one zero more.
    Some(if code > 0 && bytes[code - 1] == 0 { code - 1 } else { code })
}

/// A unit of the stream with one message.
fn unit(text: &str) -> Vec<u8> {
    let mut message = vec![USER_DATA_UNREGISTERED];
    let mut size = UUID.len() + text.len();
    while size >= 255 {
        message.push(255);
        size -= 255;
    }
    message.push(size as u8);
    message.extend(UUID);
    message.extend(text.as_bytes());
    message.push(0x80); // where it ends
    let mut unit = vec![0, 0, 0, 1, SEI];
    // No three bytes of it may look like a start code.
    let mut zeros = 0;
    for byte in message {
        if zeros == 2 && byte <= 3 {
            unit.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        unit.push(byte);
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_the_standard_has_it() {
        let short = unit("{}");
        assert_eq!(short[..7], [0, 0, 0, 1, 6, 5, 18]);
        assert_eq!((&short[7..23], &short[23..]), (&UUID[..], &b"{}\x80"[..]));
        let long = unit(&"x".repeat(600 - UUID.len()));
        assert_eq!(long[5..9], [5, 255, 255, 90], "600 = 255 + 255 + 90");
        let zeros = unit("\0\0\0\0\x01");
        assert_eq!(zeros[23..], *b"\0\0\x03\0\0\x03\x01\x80", "no start code is in it");
    }

    #[test]
    fn the_page_has_the_uuid() {
        let page = include_str!("../../../../docs/serve.md");
        let uuid: String = UUID.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
        assert!(page.contains(&format!("`{}`", parts.join("-"))), "{parts:?}");
    }

    #[test]
    fn it_comes_before_the_picture() {
        let frame = b"\0\0\0\x01\x09\xf0\0\0\0\x01\x67ab\0\0\x01\x68c\0\0\0\x01\x65slice\0\0\x01\x65more";
        assert_eq!(first_slice(frame), Some(18));
        assert_eq!(first_slice(&frame[..18]), None);
        assert_eq!(first_slice(b"\0\0\x01\x41x"), Some(0));
        assert_eq!(first_slice(b""), None);
    }

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
