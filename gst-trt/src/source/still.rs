// SPDX-License-Identifier: MPL-2.0
//! One picture out of a file.

use std::path::Path;
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::{ReadOptions, VideoAddress};
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::signals::Signals;
use crate::threads::Threads;

/// No image takes so long to read.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often a picture that does not come is looked after.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The picture in a file, upright, in a format that trtpreprocess takes.
pub fn decode(file: &Path, formats: &gst::Caps, threads: &Threads, signals: &Signals) -> Result<gst::Sample, Failure> {
    let address = VideoAddress::File(file.into());
    address.check()?;
    let pipeline = gst::Pipeline::new();
    let out = gst_app::AppSink::builder().name("out").caps(formats).sync(false).max_buffers(1).build();
    out.set_property("enable-last-sample", false);
    pipeline.add(&out)?;
    let input = out.static_pad("sink").expect("an always pad");
    address.connect(&pipeline, input.clone(), &ReadOptions::default())?;
    let running = RunningPipeline::new(pipeline, threads, address.shown());
    let sample = picture(&running, &address, &out, &input, signals);
    running.stop_in_time(); // one that does not is named at the end
    sample
}

fn picture(
    running: &RunningPipeline,
    address: &VideoAddress,
    out: &gst_app::AppSink,
    input: &gst::Pad,
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
        if begun.elapsed() > TIMEOUT {
            return Err(what(&format!("no picture came of it within {} s", TIMEOUT.as_secs())));
        }
    }
}
