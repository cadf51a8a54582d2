// SPDX-License-Identifier: MPL-2.0
//! One picture out of a file.

use std::path::Path;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::prelude::*;
use gsttrt_core::image::frame::{Frame, PixelFormat, Plane};

use super::{ReadOptions, VideoAddress};
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::signals::Signals;
use crate::threads::Threads;

/// No file takes so long to read.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often a picture that does not come is looked after.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The picture in a file, upright, in a format that trtpreprocess takes. A pipe is given up after `pipe_limit`, which users set by
/// --timeout; zero is never. Without one it is given up as a file is.
pub fn decode(
    file: &Path,
    formats: &gst::Caps,
    pipe_limit: Option<Duration>,
    threads: &Threads,
    signals: &Signals,
) -> Result<gst::Sample, Failure> {
    let address = VideoAddress::File(file.into());
    address.check()?;
    let pipeline = gst::Pipeline::new();
    let out = gst_app::AppSink::builder().name("out").caps(formats).sync(false).max_buffers(1).build();
    out.set_property("enable-last-sample", false);
    pipeline.add(&out)?;
    let input = out.static_pad("sink").expect("an always pad");
    address.connect(&pipeline, input.clone(), &ReadOptions::default())?;
    let running = RunningPipeline::new(pipeline, threads, address.shown());
    let pipe_limit = pipe_limit.filter(|_| address.may_be_silent());
    let sample = picture(&running, &address, (&out, &input), pipe_limit, signals);
    running.stop_in_time(); // one that does not is named at the end
    sample
}

/// Calls a function with the picture in a file, upright, in RGB.
pub fn see<T>(
    file: &Path,
    threads: &Threads,
    signals: &Signals,
    see: impl FnOnce(&Frame) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let rgb = gst_video::VideoCapsBuilder::new().format(gst_video::VideoFormat::Rgb).build();
    let sample = decode(file, &rgb, None, threads, signals)?;
    let unreadable = || Failure::from(format!("Cannot read {}: its pixels cannot be had.", file.display()));
    let info = sample.caps().and_then(|caps| gst_video::VideoInfo::from_caps(caps).ok()).ok_or_else(unreadable)?;
    let buffer = sample.buffer().ok_or_else(unreadable)?;
    let mapped = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &info).map_err(|_| unreadable())?;
    let plane =
        Plane { data: mapped.plane_data(0).map_err(|_| unreadable())?, stride: mapped.plane_stride()[0] as usize };
    let (width, height) = (info.width() as usize, info.height() as usize);
    see(&Frame { format: PixelFormat::Rgb, width, height, planes: [plane].into_iter().collect() })
}

fn picture(
    running: &RunningPipeline,
    address: &VideoAddress,
    (out, input): (&gst_app::AppSink, &gst::Pad),
    pipe_limit: Option<Duration>,
    signals: &Signals,
) -> Result<gst::Sample, Failure> {
    let RunningPipeline { pipeline, .. } = running;
    let bus = pipeline.bus().expect("a pipeline has a bus");
    let mut starting = running.starting();
    let (begun, mut quiet) = (Instant::now(), 0);
    loop {
        // Before the bus, on which the reason is.
        let started = starting.outcome(POLL_INTERVAL);
        let sample = out.try_pull_sample(gst::ClockTime::try_from(POLL_INTERVAL).ok());
        if let Some(sample) = sample {
            return Ok(sample);
        }
        while let Some(message) = bus.pop() {
            if let gst::MessageView::Error(error) = message.view() {
                return Err(address.sentence(error).into());
            }
        }
        let what = |why: &str| Failure::from(format!("Cannot read {}: {why}.", address.shown()));
        if signals.signal().is_some() {
            return Err(what("it was stopped"));
        }
        quiet = if started == Some(true) && address.gave_up(pipeline, input) { quiet + 1 } else { 0 };
        if started == Some(false) || quiet > 2 {
            return Err(what("it is damaged, or cut off"));
        }
        // Before it is started it says so, too.
        if started.is_some() && out.is_eos() {
            return Err(what("there is no picture in it"));
        }
        match pipe_limit {
            Some(limit) if !limit.is_zero() && begun.elapsed() > limit => {
                let seconds = limit.as_secs_f64();
                let why = format!("no frame came for {seconds} s. Check what sends it; --timeout gives it more time");
                return Err(what(&why));
            }
            None if begun.elapsed() > TIMEOUT => {
                return Err(what(&format!("no picture came of it within {} s", TIMEOUT.as_secs())));
            }
            _ => {}
        }
    }
}
