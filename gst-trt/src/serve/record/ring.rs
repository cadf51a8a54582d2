// SPDX-License-Identifier: MPL-2.0
//! The newest packets of a source, from a key frame on. Times are in nanoseconds of running time.

use std::collections::VecDeque;
use std::time::Instant;

use crate::source::tap::{Medium, Packet};

/// A video whose time goes back by so much begins again. Within it packets may change places.
const SLACK: i64 = 1_000_000_000;
/// Between a sound and the first frame: a file is read as fast as it goes, and its frames may have to be encoded.
const LONGEST_WAIT: i64 = 120_000_000_000;

pub struct Ring {
    /// Frames, in the order in which they are decoded.
    frames: VecDeque<Packet>,
    /// The number of the first one. They are numbered as they come.
    first: u64,
    /// Sound, which may come before its frames or after them. That which begins again before the frames do so, as those of a
    /// file that is played again, is a cut: it is for the frames that come then.
    sound: VecDeque<Packet>,
    bytes: usize,
    /// More bytes are not kept.
    limit: usize,
}

/// What stays as it is as long as a file can go on.
fn format(packet: &Packet) -> Option<gst::Structure> {
    let caps = packet.caps.structure(0)?;
    let mut format = gst::Structure::new_empty(caps.name());
    for field in ["width", "height", "stream-format", "codec_data"] {
        if let Ok(value) = caps.value(field) {
            format.set_value(field, value.clone());
        }
    }
    Some(format)
}

impl Ring {
    pub fn new(limit: usize) -> Self {
        Ring { frames: VecDeque::new(), first: 0, sound: VecDeque::new(), bytes: 0, limit }
    }

    /// Whether a packet does not go on from those before: time begins again, or it is of another format.
    pub fn is_cut_by(&self, packet: &Packet) -> bool {
        packet.medium == Medium::Video
            && self.frames.back().is_some_and(|last| {
                let is_other = || last.caps.as_ptr() != packet.caps.as_ptr() && format(last) != format(packet);
                self.begins_again(packet) || is_other()
            })
    }

    /// Whether time begins again with a frame.
    pub fn begins_again(&self, packet: &Packet) -> bool {
        packet.is_cut || self.newest().is_some_and(|newest| packet.time() + SLACK < newest)
    }

    /// Adds a packet, and drops those that are no longer needed: all before the last key frame that is not after that time.
    pub fn push(&mut self, packet: Packet, oldest: i64) {
        if packet.medium == Medium::Audio {
            let packet = self.begin_sound(packet);
            // Without a frame, what is heard long before one comes is of no use.
            let begin = self.frames.front().map_or(packet.pts - LONGEST_WAIT, |first| first.pts);
            self.bytes += packet.buffer.size();
            self.sound.push_back(packet);
            self.drop_sound_before(begin);
        } else if packet.is_key || !self.frames.is_empty() {
            self.bytes += packet.buffer.size();
            self.frames.push_back(packet);
            self.drop_before(self.begin(oldest).unwrap_or(0));
        }
    }

    /// Whether there are more bytes than may be kept.
    pub fn is_full(&self) -> bool {
        self.bytes > self.limit
    }

    /// Drops the oldest groups beyond the limit. Returns true where a group is larger alone: of that only the newest frame is
    /// left, and nothing can begin before the next key frame.
    pub fn shrink(&mut self) -> bool {
        let mut is_large = false;
        while self.is_full() && self.frames.len() > 1 {
            let next = (1..self.frames.len()).find(|index| self.frames[*index].is_key);
            is_large |= next.is_none();
            self.drop_before(next.unwrap_or(self.frames.len() - 1));
        }
        if self.is_full() {
            self.drop_sound(self.sound.len());
        }
        is_large
    }

    /// Tells what begins again before the frames do, or after.
    fn begin_sound(&mut self, packet: Packet) -> Packet {
        let is_before = |last: Option<i64>| last.is_some_and(|last| packet.pts.saturating_add(SLACK) < last);
        let begins = packet.is_cut || is_before(self.sound.back().map(|last| last.pts));
        let is_cut = begins && is_before(self.newest());
        if begins && !is_cut {
            self.drop_sound(self.sound.len()); // it was of the frames before
        }
        Packet { is_cut, ..packet }
    }

    fn drop_sound(&mut self, count: usize) {
        self.bytes -= self.sound.drain(..count).map(|packet| packet.buffer.size()).sum::<usize>();
    }

    fn drop_before(&mut self, index: usize) {
        self.bytes -= self.frames.drain(..index).map(|packet| packet.buffer.size()).sum::<usize>();
        self.first += index as u64;
        if let Some(begin) = self.frames.front().map(|first| first.pts).filter(|_| index > 0) {
            self.drop_sound_before(begin);
        }
    }

    fn drop_sound_before(&mut self, time: i64) {
        let kept = self.sound.iter().position(|sound| sound.is_cut || sound.pts >= time);
        self.drop_sound(kept.unwrap_or(self.sound.len()));
    }

    /// The index of the last key frame that is not after that time.
    fn begin(&self, time: i64) -> Option<usize> {
        self.frames.iter().rposition(|frame| frame.is_key && frame.time() <= time)
    }

    /// The number of the key frame to begin with for that time: the last one that is not after it, or the first.
    pub fn since(&self, time: i64) -> Option<u64> {
        let index = self.begin(time).or_else(|| self.frames.iter().position(|frame| frame.is_key))?;
        Some(self.first + index as u64)
    }

    /// The frames from that number on, with their numbers.
    pub fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Packet)> {
        let begin = number.max(self.first);
        let index = ((begin - self.first) as usize).min(self.frames.len());
        (begin..).zip(self.frames.range(index..))
    }

    /// The sound after one time, and before another one.
    pub fn sound(&self, after: i64, before: i64) -> impl Iterator<Item = &Packet> {
        let sound = self.sound.iter().take_while(|sound| !sound.is_cut);
        sound.filter(move |sound| (after.saturating_add(1)..before).contains(&sound.pts))
    }

    /// The time of the newest frame.
    pub fn newest(&self) -> Option<i64> {
        self.frames.back().map(Packet::time)
    }

    /// When the newest frame came.
    pub fn came(&self) -> Option<Instant> {
        self.frames.back().map(|frame| frame.came)
    }

    /// The time of the oldest frame.
    pub fn oldest(&self) -> Option<i64> {
        self.frames.front().map(Packet::time)
    }

    /// The first key frame from that number on.
    pub fn key_from(&self, number: u64) -> Option<u64> {
        self.from(number).find(|(_, frame)| frame.is_key).map(|(number, _)| number)
    }

    /// What comes does not go on from what is there.
    pub fn clear(&mut self) {
        self.drop_before(self.frames.len());
        self.drop_sound_before(i64::MAX);
        if let Some(first) = self.sound.front_mut() {
            first.is_cut = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn packet(medium: Medium, seconds: i64, is_key: bool) -> Packet {
        let caps = gst::Caps::new_empty_simple("video/x-h264");
        let buffer = gst::Buffer::from_slice([0; 1000]);
        Packet {
            medium,
            caps,
            buffer,
            pts: seconds * SECOND,
            dts: None,
            is_key,
            is_cut: false,
            arrived: 0,
            came: Instant::now(),
        }
    }

    fn frame(seconds: i64, is_key: bool) -> Packet {
        packet(Medium::Video, seconds, is_key)
    }

    fn times(ring: &Ring, since: i64) -> Vec<i64> {
        let from = ring.since(since * SECOND);
        from.into_iter().flat_map(|from| ring.from(from)).map(|(_, packet)| packet.pts / SECOND).collect()
    }

    #[test]
    fn it_keeps_whole_groups_and_no_more() {
        gst::init().unwrap();
        let mut ring = Ring::new(1 << 20);
        ring.push(packet(Medium::Audio, 0, true), 0);
        ring.push(frame(0, false), 0);
        assert!(ring.since(0).is_none(), "nothing can be shown without a key frame");
        for second in 1..=10 {
            ring.push(frame(second, second % 4 == 1), (second - 3) * SECOND);
        }
        assert_eq!(times(&ring, 0), [5, 6, 7, 8, 9, 10]);
        assert_eq!(times(&ring, 8), [5, 6, 7, 8, 9, 10]);
        assert_eq!(times(&ring, 9), [9, 10]);
        assert!(ring.is_cut_by(&frame(2, true)) && !ring.is_cut_by(&frame(11, false)));
        assert!(ring.is_cut_by(&Packet { is_cut: true, ..frame(11, true) }));
        let caps = gst::Caps::builder("video/x-h264").field("width", 1280).build();
        let larger = Packet { caps, ..frame(11, true) };
        assert!(ring.is_cut_by(&larger) && !ring.begins_again(&larger), "of another size");
        let caps = gst::Caps::builder("video/x-h264").field("framerate", gst::Fraction::new(25, 1)).build();
        assert!(!ring.is_cut_by(&Packet { caps, ..frame(11, true) }), "a rate that is found out later is no cut");
    }

    /// Of a camera with many bits, or whose results stay away.
    #[test]
    fn it_keeps_no_more_bytes_than_it_may() {
        gst::init().unwrap();
        let mut ring = Ring::new(5000);
        let push = |ring: &mut Ring, second, is_key| {
            ring.push(frame(second, is_key), 0);
            ring.is_full() && ring.shrink()
        };
        assert!(!(0..=6).any(|second| push(&mut ring, second, second % 3 == 0)));
        assert_eq!(times(&ring, 0), [3, 4, 5, 6], "the oldest group made room");
        assert_eq!(ring.since(0), Some(3), "the others have their numbers");
        assert!(!(7..=8).any(|second| push(&mut ring, second, false)));
        assert_eq!(times(&ring, 0), [6, 7, 8]);
        let large: Vec<_> = (9..=16).filter(|second| push(&mut ring, *second, false)).collect();
        assert_eq!(large, [11, 16], "a group that is too large is not kept");
        assert!(ring.since(0).is_none(), "nor is what cannot be shown without it a beginning");
        assert_eq!(ring.from(12).map(|(number, _)| number).collect::<Vec<_>>(), [16], "the rest is in the files");
        assert!(ring.is_cut_by(&frame(2, true)) && !ring.is_cut_by(&frame(17, false)));
        push(&mut ring, 17, true);
        assert_eq!(times(&ring, 0), [17]);
    }

    #[test]
    fn sound_is_kept_as_long_as_its_frames() {
        gst::init().unwrap();
        let mut ring = Ring::new(1 << 20);
        // It comes before its frames, and after them.
        (0..8).for_each(|second| ring.push(packet(Medium::Audio, second, true), 0));
        (0..4).for_each(|second| ring.push(frame(second, second % 2 == 0), 0));
        (8..10).for_each(|second| ring.push(packet(Medium::Audio, second, true), 0));
        let sound = |ring: &Ring, after, before| {
            ring.sound(after, before * SECOND).map(|packet| packet.pts / SECOND).collect::<Vec<_>>()
        };
        assert_eq!(sound(&ring, -1, 100), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(sound(&ring, 2 * SECOND, 5), [3, 4]);
        assert_eq!(ring.newest(), Some(3 * SECOND));
        ring.push(frame(4, true), 3 * SECOND);
        assert_eq!((times(&ring, 0), sound(&ring, -1, 5)), (vec![2, 3, 4], vec![2, 3, 4]));
        ring.clear();
        assert!(sound(&ring, -1, 100).is_empty() && ring.bytes == 0);
        // Without a frame.
        (0..200).for_each(|second| ring.push(packet(Medium::Audio, second, true), 0));
        assert_eq!(sound(&ring, -1, 82), [79, 80, 81]);
    }

    /// As of a file that is played again: its sound is read before its frames are encoded, or after.
    #[test]
    fn sound_that_begins_again_is_of_the_frames_that_come() {
        gst::init().unwrap();
        let mut ring = Ring::new(1 << 20);
        let sound = |ring: &Ring| ring.sound(-1, 100 * SECOND).map(|packet| packet.pts / SECOND).collect::<Vec<_>>();
        (0..9).for_each(|second| ring.push(frame(second, second == 0), 0));
        (0..9).for_each(|second| ring.push(packet(Medium::Audio, second, true), 0));
        (0..3).for_each(|second| ring.push(packet(Medium::Audio, second, true), 0));
        assert_eq!(sound(&ring), [0, 1, 2, 3, 4, 5, 6, 7, 8], "that of the frames that are there");
        ring.clear();
        ring.push(frame(0, true), 0);
        assert_eq!(sound(&ring), [0, 1, 2]);
        // A flush says so where the times do not.
        (1..3).for_each(|second| ring.push(frame(second, false), 0));
        ring.push(Packet { is_cut: true, ..packet(Medium::Audio, 0, true) }, 0);
        ring.clear();
        ring.push(frame(0, true), 0);
        assert_eq!(sound(&ring), [0]);
        // Behind its frames.
        ring.push(Packet { is_cut: true, ..packet(Medium::Audio, 0, true) }, 0);
        ring.push(packet(Medium::Audio, 1, true), 0);
        assert_eq!(sound(&ring), [0, 1]);
        ring.clear();
        assert!(sound(&ring).is_empty() && ring.bytes == 0);
    }
}
