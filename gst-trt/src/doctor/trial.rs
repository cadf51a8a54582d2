// SPDX-License-Identifier: MPL-2.0
//! The chain on a red picture, with a model that tells red, green and blue.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt::gst::meta::record;

use crate::chain;
use crate::failure::Failure;

/// The mean of each channel and a softmax; tests/doctor.rs makes it.
static COLORS: &[u8] = include_bytes!("colors.onnx");

/// Building an engine of three layers takes seconds; a driver may compile kernels before.
const TIMEOUT: Duration = Duration::from_secs(300);

pub fn on_cpu() -> Result<String, Failure> {
    try_chain("", "backend=cpu", None, "")
}

pub fn on_gpu(library: Option<&Path>) -> Result<String, Failure> {
    if gst::ElementFactory::find("cudaupload").is_none() {
        return Err("GStreamer's element cudaupload is missing.".into());
    }
    try_chain("! cudaupload", "backend=tensorrt optimization-level=0", library, "! cudadownload")
}

fn try_chain(before: &str, infer: &str, library: Option<&Path>, behind: &str) -> Result<String, Failure> {
    let model = TemporaryModel::write()?;
    let pipeline = chain::parse(&format!(
        "videotestsrc pattern=red num-buffers=3 ! video/x-raw,format=RGBA,width=64,height=64 {before} \
         ! trtpreprocess name=preprocess ! trtinfer name=infer {infer} ! trtnms name=nms draw=false {behind} \
         ! appsink name=out sync=false"
    ))?;
    chain::element(&pipeline, "infer").set_property("model-file", &model.0);
    if let Some(library) = library {
        chain::element(&pipeline, "infer").set_property("trt-library", library);
    }
    let begun = Instant::now();
    let outcome = wait(&pipeline, begun);
    pipeline.set_state(gst::State::Null)?;
    outcome.map(|found| format!("{found}, in {:.1} s", begun.elapsed().as_secs_f64()))
}

fn wait(pipeline: &gst::Pipeline, begun: Instant) -> Result<String, Failure> {
    let out = chain::element(pipeline, "out").downcast::<gst_app::AppSink>().expect("it is an appsink");
    let bus = pipeline.bus().expect("a pipeline has a bus");
    let started = pipeline.set_state(gst::State::Playing);
    while begun.elapsed() < TIMEOUT {
        let sample = out.try_pull_sample(gst::ClockTime::from_mseconds(100));
        while let Some(message) = bus.pop() {
            if let gst::MessageView::Error(error) = message.view() {
                return Err(chain::sentence(error).into());
            }
        }
        if started.is_err() {
            return Err("The pipeline does not start.".into());
        }
        let Some(sample) = sample else { continue };
        let found = sample.buffer().and_then(|buffer| record::frame(buffer, (1, 1)).classes).unwrap_or_default();
        return match found.first() {
            Some(best) if best["label"] == "red" => Ok("it finds a red picture red".into()),
            other => Err(format!("A red picture is not found red, but {other:?}.").into()),
        };
    }
    Err("There is no result after minutes.".into())
}

/// A file for the time of the trial.
struct TemporaryModel(PathBuf);

impl TemporaryModel {
    fn write() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("gst-trt-doctor-{}.onnx", std::process::id()));
        let write = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path)?.write_all(COLORS);
        write(&path).map_err(|error| format!("Cannot write {}: {error}.", path.display()))?;
        Ok(TemporaryModel(path))
    }
}

impl Drop for TemporaryModel {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
