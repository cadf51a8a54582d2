// SPDX-License-Identifier: MPL-2.0
//! A recording: an MP4 file that gets its name once it is whole.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gst::ClockTime;
use gst::prelude::*;
use serde_json::{Map, Value};

use super::format::{self, FileFormat};
use crate::cause;
use crate::chain::{self, element};
use crate::failure::Failure;
use crate::output::cannot_write;
use crate::serve::archive::{Kind, Recording, UtcTime, create_free, part};
use crate::source::tap::{Medium, Packet};

/// For the last bytes, on a slow disk.
const EOS_TIMEOUT: ClockTime = ClockTime::from_seconds(30);
/// Sound that is so far behind the frames has ended: the file goes on without it. Nanoseconds.
const SOUND_LAG: i64 = 2_000_000_000;

/// Events that are noted with a file.
const MAX_EVENTS: usize = 10_000;

pub struct RecordingFile {
    path: PathBuf,
    /// What the index says of it once it is whole.
    recording: Recording,
    /// Locked as long as it is being written: so no other program takes it for one that was left.
    _lock: File,
    pipeline: gst::Pipeline,
    video: FileStream,
    audio: Option<FileStream>,
    /// The running time that becomes 0, and when its frame came.
    origin: i64,
    came: Instant,
}

/// One of its streams.
struct FileStream {
    input: gst_app::AppSrc,
    /// Of its newest packet.
    time: i64,
    shown: ShownTimes,
    has_ended: bool,
}

/// When the newest packets are shown, which no other one is. A parser gives no time to a packet that has that of the one before, and
/// MP4 takes none without; two B-frames of a camera that is heard late may have the same, with others in between.
#[derive(Default)]
struct ShownTimes(VecDeque<i64>);

impl ShownTimes {
    /// Matroska counts milliseconds.
    const STEP: i64 = 1_000_000;
    /// More than a decoder keeps back.
    const KEPT: usize = 17;

    /// That time, or the next one that is free.
    fn take(&mut self, pts: i64) -> i64 {
        let mut free = pts;
        while let Some(taken) = self.0.iter().find(|taken| taken.abs_diff(free) < Self::STEP as u64) {
            free = taken + Self::STEP;
        }
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back(free);
        free
    }
}

impl RecordingFile {
    /// A file named after the source and the time of the day at which its first frame came.
    pub fn create(
        folder: &Path,
        source: &str,
        kind: Kind,
        format: &FileFormat,
        first: &Packet,
    ) -> Result<Self, Failure> {
        let begin = UtcTime(first.arrived);
        let (name, lock) = create_free(folder, source, kind, begin, format.container.ending())?;
        let path = folder.join(&name);
        let recording = Recording {
            file: name,
            source: source.into(),
            kind,
            begin,
            end: begin,
            bytes: 0,
            events: Vec::new(),
            object: None,
        };
        // Written at once: what lies in memory is lost where the program is killed.
        let mut line = format!("{} ! filesink name=out buffer-mode=unbuffered", format.container.muxer());
        let streams = [("video", Some(&format.video)), ("audio", format.audio.as_ref())];
        for (name, caps) in streams.into_iter().filter_map(|(name, caps)| Some((name, caps?))) {
            let parser = format::parser(caps, name == "audio" || first.dts.is_some());
            line +=
                &format!(" appsrc name={name} format=time max-bytes=0 emit-signals=false ! {parser} ! mux.{name}_0");
        }
        let pipeline = chain::parse(&line)?;
        element(&pipeline, "out").set_property("location", part(&path));
        end_with_frames(&element(&pipeline, "mux").static_pad("video_0").expect("it was asked for"));
        let origin = first.time().min(first.pts);
        let stream = |name: &str, caps: &gst::Caps| {
            let input = element(&pipeline, name).downcast::<gst_app::AppSrc>().expect("it is an appsrc");
            input.set_caps(Some(caps));
            FileStream { input, time: origin, shown: ShownTimes::default(), has_ended: false }
        };
        let video = stream("video", &format.video);
        let audio = format.audio.as_ref().map(|caps| stream("audio", caps));
        let file = RecordingFile { path, recording, _lock: lock, pipeline, video, audio, origin, came: first.came };
        if file.pipeline.set_state(gst::State::Playing).is_err() {
            let failure = file.failure();
            file.discard();
            return Err(failure);
        }
        Ok(file)
    }

    pub fn write(&mut self, packet: &Packet) -> Result<(), Failure> {
        let origin = self.origin;
        let stream = match packet.medium {
            Medium::Video => &mut self.video,
            Medium::Audio => match &mut self.audio {
                Some(audio) if packet.pts >= origin && !audio.has_ended => audio,
                _ => return Ok(()),
            },
        };
        stream.time = stream.time.max(packet.time());
        // The time of the day may be set meanwhile.
        let length = packet.came.saturating_duration_since(self.came).as_nanos() as u64;
        self.recording.end = self.recording.end.max(UtcTime(self.recording.begin.0.saturating_add(length)));
        let since_origin = |time: i64| ClockTime::from_nseconds(time.saturating_sub(origin).max(0) as u64);
        let mut buffer = packet.buffer.clone();
        let writable = buffer.make_mut();
        let pts = stream.shown.take(packet.pts);
        writable.set_pts(since_origin(pts));
        // Those that are written do not go back.
        writable.set_dts(packet.dts.map(|dts| since_origin(dts.max(stream.time))));
        if stream.input.push_buffer(buffer).is_err() {
            return Err(self.failure());
        }
        Ok(())
    }

    /// Goes on without sound where it has stayed away: a container waits for all its streams.
    pub fn look_after_sound(&mut self) {
        let newest = self.video.time;
        if let Some(audio) = self.audio.as_mut().filter(|audio| !audio.has_ended && audio.time + SOUND_LAG < newest) {
            audio.has_ended = true;
            let _ = audio.input.end_of_stream(); // where it has failed, the error is on the bus
        }
    }

    fn streams(&self) -> impl Iterator<Item = &FileStream> {
        std::iter::once(&self.video).chain(&self.audio)
    }

    /// Bytes that the disk has not taken yet.
    pub fn waiting(&self) -> usize {
        self.streams().map(|stream| stream.input.current_level_bytes() as usize).sum()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> String {
        self.recording.file.clone()
    }

    /// Something that happened in its time.
    pub fn note(&mut self, event: Map<String, Value>) {
        if self.recording.events.len() < MAX_EVENTS {
            self.recording.events.push(event);
        }
    }

    fn failure(&self) -> Failure {
        let bus = self.pipeline.bus().expect("a pipeline has a bus");
        let error = bus.pop_filtered(&[gst::MessageType::Error]);
        let cause = error.as_ref().and_then(|message| match message.view() {
            gst::MessageView::Error(error) => Some(text_of(error)),
            _ => None,
        });
        let cause = cause.unwrap_or_else(|| "it cannot be opened. Use a folder that this user may write to.".into());
        format!("Cannot write {}: {cause}", part(&self.path).display()).into()
    }

    /// Writes what is missing, and gives the file its name.
    pub fn complete(&self) -> Result<Recording, Failure> {
        for stream in self.streams().filter(|stream| !stream.has_ended) {
            let _ = stream.input.end_of_stream(); // where it has failed, the error is on the bus
        }
        let bus = self.pipeline.bus().expect("a pipeline has a bus");
        let last = bus.timed_pop_filtered(EOS_TIMEOUT, &[gst::MessageType::Eos, gst::MessageType::Error]);
        let _ = self.pipeline.set_state(gst::State::Null);
        let shown = self.path.display();
        match last.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => {
                let bytes = std::fs::metadata(part(&self.path)).map(|found| found.len());
                let renamed = bytes.and_then(|bytes| std::fs::rename(part(&self.path), &self.path).map(|()| bytes));
                let bytes = renamed.map_err(|error: io::Error| cannot_write(&shown, &error))?;
                Ok(Recording { bytes, ..self.recording.clone() })
            }
            Some(gst::MessageView::Error(error)) => Err(format!("Cannot write {shown}: {}", text_of(error)).into()),
            _ => Err(format!("Cannot write {shown}: the disk takes too long. Use a faster disk.").into()),
        }
    }

    /// What was written is no video.
    pub fn discard(&self) {
        let _ = self.pipeline.set_state(gst::State::Null);
        let _ = std::fs::remove_file(part(&self.path));
    }
}

/// What an element says, with what it says besides.
fn text_of(error: &gst::message::Error) -> String {
    let text = error.error().to_string();
    let room = if error.error().matches(gst::ResourceError::NoSpaceLeft) {
        " Make room on that disk, or write to another one."
    } else {
        ""
    };
    match cause::detail(error) {
        Some(detail) => format!("{} ({detail}).{room}", text.trim_end_matches('.')),
        None => text + room,
    }
}

/// Lets no end through to a container that has had no frame, of which it would make an error of the program. What found none
/// has said so on the bus.
fn end_with_frames(input: &gst::Pad) {
    let has_frames = AtomicBool::new(false);
    input.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        if matches!(info.data, Some(gst::PadProbeData::Buffer(_))) {
            has_frames.store(true, Ordering::Relaxed);
        }
        let is_end = info.event().is_some_and(|event| event.type_() == gst::EventType::Eos);
        if is_end && !has_frames.load(Ordering::Relaxed) {
            gst::PadProbeReturn::Handled
        } else {
            gst::PadProbeReturn::Ok
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_what_to_do() {
        chain::start_gstreamer().unwrap();
        let full = "No space left on the resource.";
        let message = gst::message::Error::builder(gst::ResourceError::NoSpaceLeft, full).build();
        let gst::MessageView::Error(error) = message.view() else { unreachable!("it is one") };
        assert_eq!(text_of(error), format!("{full} Make room on that disk, or write to another one."));
    }

    #[test]
    fn no_two_packets_are_shown_at_the_same_time() {
        const MS: i64 = ShownTimes::STEP;
        let mut times = ShownTimes::default();
        // In the order of decoding: B-frames come after the frame that they need.
        let given = [0, 100, 33, 66, 200, 133, 100, 166, 200, 200].map(|time| time * MS);
        let written = given.map(|pts| times.take(pts));
        assert_eq!(written, [0, 100, 33, 66, 200, 133, 101, 166, 201, 202].map(|time| time * MS));
        // Also where they are nearer than a container counts.
        assert_eq!(times.take(300 * MS), 300 * MS);
        assert_eq!(times.take(300 * MS + 1), 301 * MS);
        assert_eq!(times.take(299 * MS + 1), 302 * MS);
        // What is long past is free again.
        let later = (0..ShownTimes::KEPT as i64).map(|number| (1000 + 40 * number) * MS);
        assert!(later.into_iter().all(|pts| times.take(pts) == pts));
        assert_eq!(times.take(0), 0);
    }
}
