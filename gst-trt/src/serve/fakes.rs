// SPDX-License-Identifier: MPL-2.0
//! Cameras that are made up, as a service has them, for the tests of what shows their videos.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gst::prelude::*;

use super::control::OutputControl;
use super::output::{FrameHub, Output, TilesConfig};
use super::tiles::TileOutputs;
use crate::chain;
use crate::threads::Threads;
use crate::wait::LIMIT;

/// Frames of one pattern with an object in each.
pub struct FakeCamera {
    pub pipeline: gst::Pipeline,
    pub frames: FrameHub,
    pub output: Output,
}

impl FakeCamera {
    pub fn new(name: &str, pattern: &str, threads: &Threads) -> Self {
        FakeCamera::with(name, pattern, "I420", threads)
    }

    /// With frames of that format.
    pub fn with(name: &str, pattern: &str, format: &str, threads: &Threads) -> Self {
        let line = format!(
            "videotestsrc is-live=true pattern={pattern} \
             ! video/x-raw,format={format},width=320,height=240,framerate=30/1 ! tee name=out ! fakesink"
        );
        let pipeline = chain::parse(&line).unwrap();
        let pad = chain::element(&pipeline, "out").static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, |_, info| {
            let buffer = info.buffer_mut().unwrap().make_mut();
            gst_video::VideoRegionOfInterestMeta::add(buffer, "disc", (80, 60, 160, 120));
            gst::PadProbeReturn::Ok
        });
        let frames = FrameHub::default();
        frames.connect(&pipeline);
        let output = Output::new(name, frames.clone(), false, threads);
        pipeline.set_state(gst::State::Playing).unwrap();
        FakeCamera { pipeline, frames, output }
    }
}

impl Drop for FakeCamera {
    fn drop(&mut self) {
        self.output.close();
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// Cameras as a service has them.
#[derive(Default)]
pub struct FakeOutputs {
    pub cameras: Mutex<BTreeMap<String, FakeCamera>>,
    pub tiles: Mutex<TileOutputs>,
    pub threads: Threads,
}

impl FakeOutputs {
    pub fn new(names: &[&str]) -> Arc<Self> {
        chain::start_gstreamer().unwrap();
        let outputs = FakeOutputs::default();
        for name in names {
            outputs.cameras.lock().unwrap().insert(name.to_string(), FakeCamera::new(name, "black", &outputs.threads));
        }
        Arc::new(outputs)
    }

    pub fn receivers(&self, name: &str) -> usize {
        self.cameras.lock().unwrap()[name].frames.receivers()
    }

    pub fn end(&self) {
        self.cameras.lock().unwrap().clear();
        self.tiles.lock().unwrap().close();
        assert_eq!(self.threads.wait(LIMIT), Vec::<String>::new());
    }

    /// One more, which is seen where all are.
    pub fn add(&self, name: &str, pattern: &str) {
        self.cameras.lock().unwrap().insert(name.into(), FakeCamera::new(name, pattern, &self.threads));
        self.show();
    }

    pub fn remove(&self, name: &str) {
        let removed = self.cameras.lock().unwrap().remove(name);
        self.show();
        drop(removed);
    }

    /// As a service does when its sources have changed.
    pub fn show(&self) {
        let cameras = self.cameras.lock().unwrap();
        let sources = cameras.iter().map(|(name, camera)| (name.as_str(), &camera.frames));
        self.tiles.lock().unwrap().show(sources);
    }

    pub fn set(&self, configs: &[TilesConfig]) {
        self.tiles.lock().unwrap().set(configs, &self.threads);
        self.show();
    }
}

impl OutputControl for FakeOutputs {
    fn output(&self, name: &str) -> Option<Output> {
        let of_camera = self.cameras.lock().unwrap().get(name).map(|camera| camera.output.clone());
        of_camera.or_else(|| self.tiles.lock().unwrap().output(name))
    }
}
