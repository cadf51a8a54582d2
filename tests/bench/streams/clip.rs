// SPDX-License-Identifier: MPL-2.0
//! A clip held in memory and fed round and round: its H.264, or some of its frames.

use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_app::{AppSink, AppSrc};

pub struct Clip {
    held: Held,
    caps: gst::Caps,
    units: Vec<gst::Buffer>,
    /// How long all of it lasts by its timestamps, at any pace.
    length: gst::ClockTime,
    /// That of CUDA which frames are in.
    context: Option<gst::Context>,
    /// Properties of the decoders.
    decoder: String,
}

/// What is held of a clip.
#[derive(Clone, Copy)]
pub enum Held {
    /// Access units of its H.264.
    Coded,
    /// So many frames, where the decoder leaves them: on the GPU, if there is one.
    Frames(usize),
}

impl Clip {
    /// Of an MP4 with H.264, for decoders with these properties.
    pub fn read(path: &str, held: Held, decoder_properties: &str) -> Result<Self, String> {
        let (kind, max_samples) = match held {
            Held::Coded => ("video/x-h264,stream-format=byte-stream,alignment=au".to_string(), usize::MAX),
            Held::Frames(count) => (format!("{} {decoder_properties}", decoder(0)), count),
        };
        let line = format!("filesrc name=file ! qtdemux ! h264parse ! {kind} ! appsink name=out sync=false");
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        pipeline.by_name("file").unwrap().set_property("location", path);
        let out = pipeline.by_name("out").unwrap().downcast::<AppSink>().unwrap();
        let bus = pipeline.bus().expect("a pipeline has one");
        let _ = pipeline.set_state(gst::State::Playing); // what fails is on the bus
        let mut samples = Vec::new();
        let (mut wrong, mut context) = (None, None);
        while wrong.is_none() && !out.is_eos() && samples.len() < max_samples {
            samples.extend(out.try_pull_sample(gst::ClockTime::from_mseconds(100)));
            let message = bus.pop_filtered(&[gst::MessageType::Error, gst::MessageType::HaveContext]);
            match message.as_ref().map(|message| message.view()) {
                Some(gst::MessageView::HaveContext(have)) if have.context().context_type() == "gst.cuda.context" => {
                    context = Some(have.context());
                }
                Some(gst::MessageView::HaveContext(_)) => {} // of OpenGL, which it then does without
                _ => wrong = message,
            }
        }
        pipeline.set_state(gst::State::Null).unwrap();
        let caps = samples.first().and_then(|sample| sample.caps_owned()).filter(|_| wrong.is_none());
        let caps = caps.ok_or_else(|| format!("{path} is no MP4 of H.264 that can be read."))?;
        let units: Vec<gst::Buffer> = samples.iter().filter_map(|sample| sample.buffer_owned()).collect();
        let length = units.iter().filter_map(|unit| unit.duration()).sum();
        Ok(Clip { held, caps, units, length, context, decoder: decoder_properties.into() })
    }

    /// Pushes frames after `phase`, as long as `goes_on`, and then the end of the stream: `pace` of them a second, or, if that is
    /// 0, as fast as they are taken. As with a camera, what was not taken in time is lost, and never made up for. Returns how
    /// many there were.
    pub fn feed(&self, source: &AppSrc, pace: u32, phase: Duration, goes_on: impl Fn() -> bool) -> u64 {
        source.set_caps(Some(&self.caps));
        let begun = Instant::now() + phase;
        let (mut pushed, mut pictures) = (0, 0);
        for unit in self.units.iter().cycle() {
            if pace > 0 {
                let due = |picture: u32| begun + Duration::from_secs(1) * picture / pace;
                while due(pictures + 1) < Instant::now() {
                    pictures += 1;
                }
                thread::sleep(due(pictures).saturating_duration_since(Instant::now()));
                pictures += 1;
            }
            if !goes_on() {
                break;
            }
            let mut unit = unit.copy();
            let before = self.length * (pushed / self.units.len() as u64);
            let (pts, dts) = (unit.pts().map(|pts| pts + before), unit.dts().map(|dts| dts + before));
            let fields = unit.make_mut();
            fields.set_pts(pts);
            fields.set_dts(dts);
            if source.push_buffer(unit).is_err() {
                break;
            }
            pushed += 1;
        }
        let _ = source.end_of_stream();
        pushed
    }

    /// The CUDA context that a pipeline must work in for these frames.
    pub fn context(&self) -> Option<&gst::Context> {
        self.context.as_ref()
    }

    /// A stream from `source{i}` by `decoder{i}` on that GPU and what is between to `sink{i}`, as a part of a launch line. Where a
    /// source is live, decoders give each frame at once, unless B-frames make them give two; else nvh264dec keeps some back, and
    /// gives them together at key frames.
    pub fn branch(&self, i: usize, gpu: usize, is_live: bool, elements: &str) -> String {
        let decoder = match self.held {
            Held::Coded => format!("{} {}", decoder(gpu), self.decoder),
            Held::Frames(_) => "identity".into(),
        };
        format!(
            "appsrc name=source{i} is-live={is_live} format=time block=true max-buffers=8 max-bytes=0 \
             ! {decoder} name=decoder{i} {elements} ! fakesink name=sink{i} sync=false async=false "
        )
    }
}

fn decoder(gpu: usize) -> String {
    match gpu {
        0 if gst::ElementFactory::find("nvh264dec").is_none() => "avdec_h264".into(),
        0 => "nvh264dec".into(),
        gpu => format!("nvh264device{gpu}dec"),
    }
}

/// A queue that has room for so many frames, of any size.
pub fn queue(frames: usize) -> String {
    format!("queue max-size-buffers={frames} max-size-bytes=0 max-size-time=0")
}
