// SPDX-License-Identifier: MPL-2.0
//! Recording on events: frames are encoded all the time, and the newest ones are kept in memory, so that a file begins
//! before the event that it is written for.
//!
//! No thread of the pipeline touches the disk: each file has a thread of its own, and a disk that does not answer costs the
//! recording and nothing else.

mod file;
mod ring;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::ClockTime;
use gst::prelude::*;
use gsttrt::gst::meta::events;

use self::ring::{Encoded, Ring};
use self::writer::FileWriter;
use super::config::RecordConfig;
use crate::chain::element;

pub use self::writer::Disk;

/// Records one run of a source.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Recording>>);

struct Recording {
    config: RecordConfig,
    disk: Disk,
    ring: Ring,
    /// The running time up to which frames are to be in a file.
    wanted: Option<WantedRange>,
    file: Option<FileWriter>,
}

#[derive(Clone, Copy)]
struct WantedRange {
    from: ClockTime,
    until: ClockTime,
}

/// A branch of the tee `out`.
pub fn launch_line(config: &RecordConfig, is_live: bool, download: &str) -> String {
    // A camera does not wait for the encoder.
    let leaky = if is_live { "leaky=downstream" } else { "" };
    let draw = if config.draw { "trtoverlay !" } else { "" };
    // One thread each: there are many sources. Key frames are where a file can begin.
    let encoder = match gst::ElementFactory::find("nvh264enc") {
        Some(_) => "nvh264enc gop-size=30 bframes=0",
        None => "x264enc speed-preset=veryfast tune=zerolatency key-int-max=30 threads=1",
    };
    format!(
        "out. ! queue name=record {leaky} max-size-buffers=30 max-size-bytes=0 max-size-time=0 ! {draw} {download} \
         videoconvert ! videoscale add-borders=false ! video/x-raw,format=I420,width=[2,16384,2],height=[2,16384,2] \
         ! {encoder} \
         ! h264parse config-interval=-1 ! video/x-h264,stream-format=avc,alignment=au \
         ! appsink name=encoded sync=false async=false"
    )
}

impl Recorder {
    pub fn new(disk: Disk, config: &RecordConfig) -> Self {
        Recorder(Arc::new(Mutex::new(Recording {
            config: config.clone(),
            disk,
            ring: Ring::default(),
            wanted: None,
            file: None,
        })))
    }

    /// What is locked is memory: nobody waits for a disk with it.
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches for events on frames, and takes the encoded ones.
    pub fn connect(&self, pipeline: &gst::Pipeline) {
        let recorder = self.clone();
        let input = element(pipeline, "record").static_pad("sink").expect("an always pad");
        input.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            let mut recording = recorder.lock();
            if let Some(buffer) = info.buffer()
                && has_event(buffer, &recording.config.events)
                && let Some(time) = running_time(pad, buffer.pts())
            {
                recording.trigger(time);
            }
            gst::PadProbeReturn::Ok
        });
        let recorder = self.clone();
        let take = move |sink: &gst_app::AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            if let Some(frame) = Encoded::new(&sample) {
                recorder.lock().take(frame, sample.caps());
            }
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = element(pipeline, "encoded").downcast::<gst_app::AppSink>().expect("it is an appsink");
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
    }

    pub fn is_recording(&self) -> bool {
        self.lock().file.is_some()
    }

    /// No frame comes any more. Files are completed in the background.
    pub fn finish(&self) {
        let mut recording = self.lock();
        recording.wanted = None;
        recording.file = None;
    }
}

impl Recording {
    /// There is an event on the frame of that time.
    fn trigger(&mut self, time: ClockTime) {
        let (before, after) = (clock_time(self.config.pre_roll), clock_time(self.config.post_roll));
        let until = time + after;
        self.wanted = Some(match self.wanted {
            Some(wanted) => WantedRange { until: wanted.until.max(until), ..wanted },
            None => WantedRange { from: time.saturating_sub(before), until },
        });
    }

    fn take(&mut self, frame: Encoded, caps: Option<&gst::CapsRef>) {
        if self.ring.is_cut_by(&frame) {
            self.file = None;
            self.wanted = None;
            self.ring.clear();
        }
        let time = frame.time;
        self.ring.push(frame.clone(), clock_time(self.config.pre_roll));
        let Some(wanted) = self.wanted else { return };
        if time > wanted.until {
            self.wanted = None;
            self.file = None;
            return;
        }
        match &self.file {
            Some(file) if file.length(time) >= clock_time(self.config.max_length) && frame.is_key => {
                // Goes on in another one, whose first frame is this.
                self.wanted = Some(WantedRange { from: time, ..wanted });
                self.open(time, caps);
            }
            Some(file) => {
                if !file.write(frame) {
                    self.abandon();
                }
            }
            // Where the encoder is behind, the key frame to begin with may still come.
            None if time < wanted.from => {}
            None => self.open(wanted.from, caps),
        }
    }

    /// Begins a file with the frames from that time on.
    fn open(&mut self, from: ClockTime, caps: Option<&gst::CapsRef>) {
        let frames = self.ring.since(from);
        let (Some(caps), Some(first)) = (caps, frames.first()) else { return };
        self.file = self.disk.open(caps.to_owned(), first.time);
        let is_written = self.file.as_ref().is_some_and(|file| frames.into_iter().all(|frame| file.write(frame)));
        if !is_written {
            self.abandon();
        }
    }

    /// The next event begins a file again. Why there is none was said by who found out.
    fn abandon(&mut self) {
        self.wanted = None;
        self.file = None;
    }
}

fn clock_time(time: std::time::Duration) -> ClockTime {
    ClockTime::from_nseconds(time.as_nanos() as u64)
}

fn running_time(pad: &gst::Pad, time: Option<ClockTime>) -> Option<ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<ClockTime>()?.to_running_time(time)
}

/// Whether one of these kinds is on the frame; any, where none is named.
fn has_event(buffer: &gst::BufferRef, kinds: &[String]) -> bool {
    let Ok(meta) = gst::meta::CustomMeta::from_buffer(buffer, events::NAME) else { return false };
    let Ok(events) = meta.structure().get::<gst::Array>("events") else { return false };
    let kind = |value: &gst::glib::SendValue| value.get::<gst::Structure>().ok()?.get::<String>("event").ok();
    kinds.is_empty() && !events.is_empty() || events.iter().filter_map(kind).any(|kind| kinds.contains(&kind))
}
