// SPDX-License-Identifier: MPL-2.0
//! A recording: an MP4 file that gets its name once it is whole.

use std::path::{Path, PathBuf};

use gst::ClockTime;
use gst::prelude::*;
use gsttrt_publish::clock;

use super::ring::Encoded;
use crate::chain::{self, element};
use crate::failure::Failure;

/// For the last bytes, on a slow disk.
const EOS_TIMEOUT: ClockTime = ClockTime::from_seconds(30);

pub struct RecordingFile {
    path: PathBuf,
    pipeline: gst::Pipeline,
    input: gst_app::AppSrc,
    /// The time stamp that becomes 0.
    origin: ClockTime,
}

impl RecordingFile {
    /// A file named after the source and the time of the day.
    pub fn create(folder: &Path, source: &str, caps: &gst::Caps, first: &Encoded) -> Result<Self, Failure> {
        let path = free_name(folder, source);
        let pipeline =
            chain::parse("appsrc name=in format=time max-bytes=0 ! mux.video_0 mp4mux name=mux ! filesink name=out")?;
        element(&pipeline, "out").set_property("location", part(&path));
        let input = element(&pipeline, "in").downcast::<gst_app::AppSrc>().expect("it is an appsrc");
        input.set_caps(Some(caps));
        let times = [first.buffer.dts(), first.buffer.pts()];
        let origin = times.into_iter().flatten().min().unwrap_or(ClockTime::ZERO);
        let file = RecordingFile { path, pipeline, input, origin };
        if file.pipeline.set_state(gst::State::Playing).is_err() {
            let failure = file.failure();
            file.discard();
            return Err(failure);
        }
        Ok(file)
    }

    pub fn write(&self, frame: &Encoded) -> Result<(), Failure> {
        let mut buffer = frame.buffer.clone();
        let writable = buffer.make_mut();
        let since_origin = |time: Option<ClockTime>| time.map(|time| time.saturating_sub(self.origin));
        let (pts, dts) = (since_origin(writable.pts()), since_origin(writable.dts()));
        writable.set_pts(pts);
        writable.set_dts(dts);
        self.input.push_buffer(buffer).map(drop).map_err(|_| self.failure())
    }

    /// Bytes that the disk has not taken yet.
    pub fn waiting(&self) -> usize {
        self.input.current_level_bytes() as usize
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failure(&self) -> Failure {
        let bus = self.pipeline.bus().expect("a pipeline has a bus");
        let error = bus.pop_filtered(&[gst::MessageType::Error]);
        let cause = error.as_ref().and_then(|message| match message.view() {
            gst::MessageView::Error(error) => Some(error.error().to_string()),
            _ => None,
        });
        let cause = cause.unwrap_or_else(|| "it cannot be opened.".into());
        format!("Cannot write {}: {cause}", part(&self.path).display()).into()
    }

    /// Writes what is missing, and gives the file its name.
    pub fn complete(&self) -> Result<(), Failure> {
        let _ = self.input.end_of_stream(); // where it has failed, the error is on the bus
        let bus = self.pipeline.bus().expect("a pipeline has a bus");
        let last = bus.timed_pop_filtered(EOS_TIMEOUT, &[gst::MessageType::Eos, gst::MessageType::Error]);
        let _ = self.pipeline.set_state(gst::State::Null);
        let shown = self.path.display();
        match last.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => std::fs::rename(part(&self.path), &self.path)
                .map_err(|error| format!("Cannot write {shown}: {error}.").into()),
            Some(gst::MessageView::Error(error)) => Err(format!("Cannot write {shown}: {}", error.error()).into()),
            _ => Err(format!("Cannot write {shown}: the disk takes too long.").into()),
        }
    }

    /// What was written is no video.
    pub fn discard(&self) {
        let _ = self.pipeline.set_state(gst::State::Null);
        let _ = std::fs::remove_file(part(&self.path));
    }
}

fn part(path: &Path) -> PathBuf {
    path.with_added_extension("part")
}

/// Two recordings of a second have different names.
fn free_name(folder: &Path, source: &str) -> PathBuf {
    let now = clock::rfc3339(clock::now(), 3);
    let time: String = now.chars().filter(|c| !"-:".contains(*c)).collect();
    let name = |number: u32| match number {
        1 => folder.join(format!("{source}-{time}.mp4")),
        number => folder.join(format!("{source}-{time}-{number}.mp4")),
    };
    let is_free = |path: &PathBuf| !path.exists() && !part(path).exists();
    (1..).map(name).find(is_free).expect("numbers do not end")
}
