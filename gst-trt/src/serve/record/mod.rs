// SPDX-License-Identifier: MPL-2.0
//! Recordings: around events, and all the time. The stream of a source is copied as the camera sends it, with its sound; the newest packets are kept in
//! memory, so that a file begins before the event that it is written for.
//!
//! * `format`: containers and what they take. `ring`: the packets in memory. `encode`: what encodes where nothing can be
//!   copied. `writer`: the thread of a file. `file`: the file.
//!
//! No thread of the pipeline touches the disk: each file has a thread of its own, and a disk that does not answer costs the
//! recording and nothing else.

mod encode;
mod file;
mod format;
mod ring;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::ClockTime;
use gst::prelude::*;
use gsttrt::gst::meta::record;
use serde_json::{Map, Value};

use self::format::FileFormat;
use self::ring::Ring;
use self::writer::FileWriter;
use super::archive::Kind;
use super::ask::ANSWER;
use super::config::{Container, RecordConfig};
use crate::chain::element;
use crate::failure::Failure;
use crate::source::tap::{Medium, Packet, PacketSink, Tap};

pub use self::writer::Disk;

/// Packets of this time together go to the thread of a file, so that it wakes up seldom. Nanoseconds.
const BATCH: i64 = 500_000_000;
/// The same by the clock, for those whose time stands still.
const BATCH_BY_CLOCK: Duration = Duration::from_secs(1);
/// Sound that was heard so long ago is not waited for. Nanoseconds.
const SOUND_GONE: i64 = 2_000_000_000;
/// A file of the first frames waits so long for the first sound. Nanoseconds.
const SOUND_WAIT: i64 = 5_000_000_000;
/// Events that wait for a file.
const MAX_NOTES: usize = 1000;
/// An event is told so long after it has happened: an object is to be clearly beyond a line. Nanoseconds.
const NEWS_WAIT: i64 = 2_000_000_000;
/// Of what is kept of a source, no file is larger than one of so many parts: the others can be removed for it.
const PARTS: u64 = 4;
/// Bytes that each file may have.
const SMALLEST_PART: u64 = 64 << 10;
/// A camera's time may be slower than the clock by so much.
const SLOWEST: u32 = 2;
/// By the clock, the post-roll of an event that an encoder is behind with has so much more.
const LONGEST_LAG: Duration = Duration::from_secs(10);

const LARGE: &str = "Its files would be larger than a quarter of keep-bytes or total-bytes, and are shorter than [record] \
                     says. Give it more of them, or shorter files.";
const LATE: &str = "The time of its frames stands still, or is slower than the clock: recordings are cut by the clock.";
const ENDLESS: &str = "From key frame to key frame it needs half of keep-bytes or total-bytes: the rest is not recorded. \
                       Give it more of them, or the camera a shorter interval of key frames.";

/// Records one run of a source.
#[derive(Clone)]
pub struct Recorder(Arc<RecorderState>);

struct RecorderState {
    config: RecordConfig,
    is_live: bool,
    disk: Disk,
    recording: Mutex<RecordedStream>,
}

struct RecordedStream {
    config: RecordConfig,
    disk: Disk,
    container: Container,
    ring: Ring,
    /// The running time of the newest frame with results: events before it are known.
    seen: Option<i64>,
    /// The caps of the sound that is recorded, and when it was heard last.
    sound: Option<(gst::Caps, i64)>,
    /// The caps of a sound that was found, and of which nothing has come yet.
    awaited: Option<gst::Caps>,
    /// Around events, and all the time: each has files of its own.
    reels: Vec<Reel>,
    /// The run has ended: what still comes is of no file.
    is_over: bool,
}

/// Files that follow each other.
struct Reel {
    kind: Kind,
    limits: FileLimits,
    /// The running time up to which packets are to be in a file.
    wanted: Option<WantedRange>,
    /// The same by the clock, where frames come as they are taken.
    wanted_until: Option<Instant>,
    file: Option<FileWriter>,
    /// The file before it, as long as it may be told of more that has happened in its time.
    former: Option<FormerFile>,
    /// The number of the first frame that the file has not been given, and the times of the last frame and the last sound that it has.
    next: u64,
    given: i64,
    heard: i64,
    /// When the first frame of the file came, and the bytes that it has.
    came: Option<Instant>,
    bytes: u64,
    /// What has happened, and when, of which no file was told yet.
    notes: Vec<(i64, Map<String, Value>)>,
}

/// What a file may have: with more, another one is begun, at a key frame.
struct FileLimits {
    /// By the time of the frames, in nanoseconds.
    length: i64,
    /// By the clock, where frames come as they are taken: the time of some cameras stands still.
    clock: Option<Duration>,
    bytes: u64,
}

impl FileLimits {
    fn new(config: &RecordConfig, length: Duration, is_live: bool) -> Self {
        let kept = [config.keep.bytes, config.keep.total_bytes].into_iter().flatten().min();
        FileLimits {
            length: nanoseconds(length),
            clock: is_live.then(|| length.saturating_mul(SLOWEST)),
            bytes: kept.map_or(u64::MAX, |kept| (kept / PARTS).max(SMALLEST_PART)),
        }
    }

    fn is_late(&self, begun: Option<Instant>, now: Instant) -> bool {
        self.clock.zip(begun).is_some_and(|(clock, begun)| now.saturating_duration_since(begun) >= clock)
    }
}

/// A file that has all its frames.
struct FormerFile {
    file: FileWriter,
    /// The time of the first frame that is not in it.
    end: i64,
}

#[derive(Clone, Copy)]
struct WantedRange {
    from: i64,
    until: i64,
}

impl WantedRange {
    const ALWAYS: WantedRange = WantedRange { from: i64::MIN, until: i64::MAX };
}

impl Recorder {
    pub fn new(disk: Disk, config: &RecordConfig, is_live: bool) -> Self {
        let reel = |kind, length: Duration, wanted| Reel {
            kind,
            limits: FileLimits::new(config, length, is_live),
            wanted,
            wanted_until: None,
            file: None,
            former: None,
            next: 0,
            given: 0,
            heard: 0,
            came: None,
            bytes: 0,
            notes: Vec::new(),
        };
        let events = config.events.is_some().then(|| reel(Kind::Event, config.max_length, None));
        let all = config.segment.map(|length| reel(Kind::Continuous, length, Some(WantedRange::ALWAYS)));
        let recording = RecordedStream {
            config: config.clone(),
            disk: disk.clone(),
            container: config.container,
            ring: Ring::new(config.pre_roll_bytes),
            seen: None,
            sound: None,
            awaited: None,
            reels: events.into_iter().chain(all).collect(),
            is_over: false,
        };
        let (config, recording) = (config.clone(), Mutex::new(recording));
        Recorder(Arc::new(RecorderState { config, is_live, disk, recording }))
    }

    /// What is locked is memory: nobody waits for a disk with it.
    fn lock(&self) -> MutexGuard<'_, RecordedStream> {
        self.0.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches for events on the frames of the tee `out`.
    pub fn connect(&self, pipeline: &gst::Pipeline) -> Result<(), Failure> {
        let recorder = self.clone();
        let input = element(pipeline, "out").static_pad("sink").expect("an always pad");
        input.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let Some(buffer) = info.buffer() {
                let time = running_time(pad, buffer.pts());
                recorder.lock().frame_done(time, record::events(buffer));
            }
            gst::PadProbeReturn::Ok
        });
        if self.0.config.copies { Ok(()) } else { self.encode(pipeline) }
    }

    /// What it needs of the source.
    pub fn tap(&self) -> Tap {
        Tap { sink: Arc::new(self.clone()), video: self.0.config.copies, audio: self.0.config.audio }
    }

    fn encode(&self, pipeline: &gst::Pipeline) -> Result<(), Failure> {
        encode::add(pipeline, self.0.config.draw, self.0.is_live, Arc::new(self.clone()))
    }

    pub fn is_recording(&self) -> bool {
        self.lock().reels.iter().any(|reel| reel.file.is_some())
    }

    /// No frame counts any more. Files are completed in the background.
    pub fn finish(&self) {
        let mut recording = self.lock();
        if !std::mem::replace(&mut recording.is_over, true) {
            recording.close(None);
            recording.ring.clear();
        }
    }
}

impl PacketSink for Recorder {
    fn found(&self, pipeline: &gst::Pipeline, encoded: Option<&gst::CapsRef>) -> bool {
        let RecorderState { config, disk, .. } = &*self.0;
        match encoded.and_then(|caps| format::container_for(caps, config.container)) {
            Some(container) => {
                if container != config.container {
                    disk.say_once(&format!(
                        "Its stream is {}, which {} does not take: recordings are {}.",
                        encoded.map_or_else(String::new, format::shown),
                        config.container.name(),
                        container.name()
                    ));
                }
                self.lock().container = container;
                true
            }
            None => {
                let what = encoded.map_or_else(
                    || "Its stream is not encoded".into(),
                    |caps| format!("Its stream is {}, which is not copied", format::shown(caps)),
                );
                disk.say_once(&format!(
                    "{what}: its frames are encoded for recordings, which takes time of the CPU or the GPU."
                ));
                if let Err(failure) = self.encode(pipeline) {
                    disk.say_once(&format!("Cannot record: {failure}"));
                }
                false
            }
        }
    }

    fn heard(&self, sound: &gst::CapsRef) -> bool {
        let is_known = format::is_known(sound);
        if is_known {
            self.lock().awaited = Some(sound.to_owned());
        } else {
            self.0
                .disk
                .say_once(&format!("Its sound is {}, which is not recorded: it is left out.", format::shown(sound)));
        }
        is_known
    }

    fn take(&self, packet: Packet) {
        self.lock().take(packet);
    }
}

impl RecordedStream {
    /// A frame of that time has its results. One without a time is taken for the newest that has come: what has happened in it is
    /// recorded, if not to the frame.
    fn frame_done(&mut self, time: Option<ClockTime>, events: Vec<Map<String, Value>>) {
        if self.is_over {
            return;
        }
        let Some(time) = time.map(|time| time.nseconds() as i64).or(self.ring.newest()) else { return };
        self.seen = Some(time);
        let kinds = self.config.events.as_deref().unwrap_or_default();
        // An answer is about something that was recorded when it happened.
        let is_wanted = |event: &Map<String, Value>| {
            let kind = event["event"].as_str().unwrap_or_default();
            if kinds.is_empty() { kind != ANSWER } else { kinds.iter().any(|wanted| wanted == kind) }
        };
        if events.iter().any(is_wanted) {
            let (before, after) = (nanoseconds(self.config.pre_roll), nanoseconds(self.config.post_roll));
            for reel in self.reels.iter_mut().filter(|reel| reel.kind == Kind::Event) {
                let until = time.saturating_add(after);
                let by_clock = self.config.post_roll.saturating_mul(SLOWEST).saturating_add(LONGEST_LAG);
                reel.wanted_until = reel.limits.clock.and_then(|_| Instant::now().checked_add(by_clock));
                reel.wanted = Some(match reel.wanted {
                    Some(wanted) => WantedRange { until: wanted.until.max(until), ..wanted },
                    None => WantedRange { from: time - before, until },
                });
            }
        }
        for reel in self.reels.iter_mut().filter(|reel| reel.wanted.is_some()) {
            let room = MAX_NOTES.saturating_sub(reel.notes.len());
            reel.notes.extend(events.iter().take(room).map(|event| (happened(event, time), event.clone())));
        }
        self.proceed(false);
    }

    /// Whether the first file waits for its sound, which comes later than its frames.
    fn waits_for_sound(&mut self) -> bool {
        let is_to_come =
            self.sound.is_none() && self.awaited.as_ref().is_some_and(|caps| format::takes_sound(self.container, caps));
        let waited = self.ring.newest().zip(self.ring.oldest()).map_or(0, |(newest, oldest)| newest - oldest);
        if !is_to_come || waited >= SOUND_WAIT || self.ring.is_full() {
            self.awaited = None;
        }
        self.awaited.is_some()
    }

    fn take(&mut self, packet: Packet) {
        if self.is_over {
            return;
        }
        if packet.medium == Medium::Audio {
            if !format::takes_sound(self.container, &packet.caps) {
                return self.disk.say_once(&format!(
                    "Its sound is {}, which {} does not take: it is left out. Write container = \"mkv\" in [record] to have it.",
                    format::shown(&packet.caps),
                    self.container.name()
                ));
            }
            self.sound = Some((packet.caps.clone(), packet.pts));
        }
        if self.ring.is_cut_by(&packet) {
            self.close((!self.ring.begins_again(&packet)).then(|| packet.time()));
            self.ring.clear();
            self.seen = None;
        }
        // Events before that are known. Where results stay away, the limit on bytes holds.
        let known = self.seen.unwrap_or(i64::MIN).min(packet.time());
        let is_waiting = self.waits_for_sound();
        let oldest = match self.config.events {
            _ if is_waiting => i64::MIN,
            Some(_) => known.saturating_sub(nanoseconds(self.config.pre_roll)),
            None => packet.time(),
        };
        self.ring.push(packet, oldest.saturating_sub(2 * BATCH)); // what the files do not have yet
        let is_full = self.ring.is_full();
        self.proceed(is_full); // files get all before it is dropped
        if is_full && self.ring.shrink() {
            self.disk.say_once(
                "From key frame to key frame it needs more than pre-roll-bytes: a recording begins with the key frame \
                 after the event. Give it more pre-roll-bytes in [record], or the camera a shorter interval of key frames.",
            );
        }
    }

    /// Gives the files what there is for them; all of it at once, or when it is worth while.
    fn proceed(&mut self, at_once: bool) {
        if self.waits_for_sound() {
            return;
        }
        let RecordedStream { disk, container, ring, seen, sound, reels, .. } = self;
        let source = StreamSoFar { disk, container: *container, ring, seen: *seen, sound: sound.as_ref() };
        reels.iter_mut().for_each(|reel| reel.proceed(&source, at_once));
    }

    /// No packet goes on from those that are there. Time does, where it is known when.
    fn close(&mut self, goes_on: Option<i64>) {
        self.awaited = None;
        self.proceed(true);
        let RecordedStream { disk, container, ring, seen, sound, reels, .. } = self;
        let source = StreamSoFar { disk, container: *container, ring, seen: *seen, sound: sound.as_ref() };
        reels.iter_mut().for_each(|reel| reel.close(&source, goes_on));
    }
}

/// What reels are written from.
struct StreamSoFar<'a> {
    disk: &'a Disk,
    container: Container,
    ring: &'a Ring,
    seen: Option<i64>,
    sound: Option<&'a (gst::Caps, i64)>,
}

impl Reel {
    /// Writes what is wanted and there.
    fn proceed(&mut self, source: &StreamSoFar, at_once: bool) {
        self.former.take_if(|former| source.seen.is_some_and(|seen| seen > former.end + NEWS_WAIT));
        let (Some(wanted), Some(newest)) = (self.wanted, source.ring.newest()) else { return };
        // A frame whose results are still to come may have another event.
        let is_late = self.wanted_until.zip(source.ring.came()).is_some_and(|(until, came)| came > until);
        let is_over = is_late || newest > wanted.until && source.seen.is_some_and(|seen| seen > wanted.until);
        let following = source.ring.from(self.next).next();
        let is_hole = |(number, frame): (u64, &Packet)| number > self.next && frame.time() <= wanted.until;
        if self.file.is_some() && following.is_some_and(is_hole) {
            source.disk.say_once(
                "Results come so late that pre-roll-bytes do not hold the frames until then: a recording is in two files, \
                 with a gap between them. Give it more pre-roll-bytes in [record].",
            );
            self.file = None;
        }
        if self.file.is_none() {
            if newest < wanted.from {
                return; // where an encoder is behind, the key frame to begin with may still come
            }
            let first = if self.kind == Kind::Continuous {
                source.ring.key_from(self.next) // what is older was in a file, or could not be written
            } else {
                source.ring.since(wanted.from)
            };
            match first {
                Some(first) => self.open(source, first),
                None if is_over => {
                    source.disk.say_once("No key frame came in the time of an event: it is not recorded.")
                }
                None => return,
            }
        }
        self.write(source, wanted.until, is_over || at_once);
        self.tell(is_over);
        if is_over {
            self.end();
        }
    }

    /// Tells the files what has happened in their time. What is of frames that are still to come may be of the next file: it waits,
    /// unless there is none.
    fn tell(&mut self, is_last: bool) {
        let Reel { file, former, given, notes, .. } = self;
        notes.retain(|(time, event)| {
            let former = former.as_ref().filter(|former| *time < former.end).map(|former| &former.file);
            let current = file.as_ref().filter(|_| is_last || *time <= *given);
            let Some(file) = former.or(current) else { return true };
            file.note(event);
            false
        });
    }

    /// Gives the file what it has not got, up to that time.
    fn write(&mut self, source: &StreamSoFar, until: i64, at_once: bool) {
        while let Some(file) = &self.file {
            let (mut ready, mut following, mut is_cut_off) = (Vec::new(), None, false);
            let ring = source.ring;
            let mut waiting = ring.from(self.next).take_while(|(_, frame)| frame.time() <= until).peekable();
            let Some((_, first)) = waiting.peek() else { return };
            let is_new = ring.came().is_some_and(|came| came.saturating_duration_since(first.came) < BATCH_BY_CLOCK);
            if !at_once && is_new && ring.newest().is_some_and(|newest| newest - first.time() < BATCH) {
                return;
            }
            // Of the sound, what belongs to these frames. More of it may be there already, or still to come.
            let mut heard_until = if at_once { until.saturating_add(1) } else { first.pts };
            for (number, frame) in waiting {
                let is_long = frame.time() - file.begun() >= self.limits.length;
                let is_late = self.limits.is_late(self.came, frame.came);
                let is_large = self.bytes >= self.limits.bytes;
                if !frame.is_key && self.bytes / 2 >= self.limits.bytes {
                    is_cut_off = true; // a file without an end would fill the disk
                    heard_until = frame.pts;
                    break;
                }
                if frame.is_key && (is_long || is_late || is_large) {
                    if !is_long {
                        source.disk.say_once(if is_large { LARGE } else { LATE });
                    }
                    following = Some(number); // goes on in another file, whose first frame is this
                    heard_until = frame.pts;
                    break;
                }
                heard_until = heard_until.max(frame.pts);
                ready.push(frame.clone());
                self.bytes += frame.buffer.size() as u64;
                (self.next, self.given) = (number + 1, frame.time());
            }
            let sound: Vec<_> = ring.sound(self.heard, heard_until).cloned().collect();
            self.heard = sound.iter().map(|sound| sound.pts).fold(self.heard, i64::max);
            self.bytes += sound.iter().map(|sound| sound.buffer.size() as u64).sum::<u64>();
            ready.extend(sound);
            if !file.write(ready) {
                return self.abandon(source);
            }
            if is_cut_off {
                source.disk.say_once(ENDLESS);
                return self.abandon(source);
            }
            match following {
                Some(number) => self.open(source, number),
                None => return,
            }
        }
    }

    /// Begins a file with the key frame of that number.
    fn open(&mut self, source: &StreamSoFar, number: u64) {
        let before = self.file.take();
        let ring = source.ring;
        let Some((number, first)) = ring.from(number).next() else { return };
        let (video, begun) = (first.caps.clone(), first.time());
        if let Some(file) = before {
            self.former = Some(FormerFile { file, end: begun });
        }
        let newest = ring.newest().unwrap_or(begun);
        let audio = source.sound.filter(|(_, heard)| *heard + SOUND_GONE >= newest).map(|(caps, _)| caps.clone());
        let packets = vec![first.clone()];
        self.heard = first.pts - 1;
        (self.next, self.given) = (number + 1, begun);
        (self.came, self.bytes) = (Some(first.came), first.buffer.size() as u64);
        self.file = source.disk.open(FileFormat { container: source.container, video, audio }, self.kind, begun);
        if !self.file.as_ref().is_some_and(|file| file.write(packets)) {
            self.abandon(source);
        }
    }

    /// What follows does not go on from it. Another file has what is wanted from that time on, where time goes on.
    fn close(&mut self, source: &StreamSoFar, goes_on: Option<i64>) {
        if let Some(wanted) = self.wanted {
            self.write(source, wanted.until, true);
        }
        match goes_on.filter(|begin| self.wanted.is_some_and(|wanted| *begin < wanted.until)) {
            Some(end) => {
                if let Some(file) = self.file.take() {
                    self.former = Some(FormerFile { file, end });
                }
            }
            None => {
                self.tell(true);
                self.end();
            }
        }
    }

    fn end(&mut self) {
        self.wanted = self.wanted.filter(|_| self.kind == Kind::Continuous);
        self.wanted_until = None;
        (self.file, self.former) = (None, None);
        self.notes.clear();
    }

    /// The next event begins a file again, or the key frame after the next. Why there is none was said by who found out.
    fn abandon(&mut self, source: &StreamSoFar) {
        self.end();
        self.next = source.ring.from(self.next).last().map_or(self.next, |(number, _)| number + 1);
    }
}

/// The running time at which something has happened that is told by a frame of that time.
fn happened(event: &Map<String, Value>, time: i64) -> i64 {
    let of_stream = |key: &str| event.get(key).and_then(Value::as_u64);
    let ago = of_stream("stream-time").zip(of_stream("event-time")).map_or(0, |(now, then)| now.saturating_sub(then));
    time.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX))
}

fn nanoseconds(time: Duration) -> i64 {
    time.as_nanos() as i64
}

fn running_time(pad: &gst::Pad, time: Option<ClockTime>) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<ClockTime>()?.to_running_time(time)
}
