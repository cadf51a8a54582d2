// SPDX-License-Identifier: MPL-2.0
//! The service with more and more sources of one video, for those who want to know how many a machine takes.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::config::Config;
use super::control::{Control, SourceStatus, State};
use super::gpus::Gpus;
use super::log;
use super::metrics::gpu::{self, GpuReading};
use super::metrics::process;
use super::service::{END, Service};
use super::stream::meter::quantiles;
use crate::failure::Failure;
use crate::threads::{Threads, listed};

/// The model as in the configuration of the service.
pub struct TrialModel<'a> {
    pub file: &'a Path,
    pub backend: &'a str,
    pub batch_size: u32,
    pub infer: &'a str,
    pub nms: &'a str,
}

pub struct StreamTrial {
    service: Service,
    video: String,
    count: usize,
}

/// How far it is, and what it takes.
pub struct TrialReading {
    /// Frames with results of each source so far.
    pub frames: Vec<u64>,
    /// Seconds of the processor so far.
    pub cpu_seconds: f64,
    pub gpus: Vec<GpuReading>,
}

impl StreamTrial {
    /// One source, on all GPUs that CUDA shows, with the settings of the service as they are without a configuration. A file is
    /// read at its own pace, again and again.
    pub fn start(model: &TrialModel<'_>, video: &Path, threads: &Threads) -> Result<Self, Failure> {
        // Both are found from the current folder on, as in a file that is there.
        let (file, video) = (model.file.to_string_lossy(), video.to_string_lossy().into_owned());
        let mut text = String::from("gpus = \"all\"\n[log]\nlevel = \"error\"\n[[model]]\nname = \"model\"\n");
        // A text of JSON is one of TOML.
        for (key, value) in [("file", &*file), ("backend", model.backend), ("infer", model.infer), ("nms", model.nms)] {
            let _ = writeln!(text, "{key} = {}", json!(value)); // a text takes all
        }
        let _ = writeln!(text, "batch-size = {}", model.batch_size);
        let _ = writeln!(text, "[[source]]\nname = \"s0\"\naddress = {}\nloop = true\nsync = true", json!(video));
        let config = Config::parse(Path::new("the trial"), &text)?;
        log::configure(config.log);
        let (gpus, _) = Gpus::find(config.gpus.as_ref());
        Ok(StreamTrial { service: Service::start(config, gpus, threads)?, video, count: 1 })
    }

    /// From now on it has so many sources.
    pub fn set(&mut self, count: usize) -> Result<(), Failure> {
        while self.count < count {
            let keys = json!({"name": format!("s{}", self.count), "address": self.video, "loop": true, "sync": true});
            self.service.add_source(&keys).map_err(|refused| refused.to_string())?;
            self.count += 1;
        }
        while self.count > count {
            self.count -= 1;
            self.service.remove_source(&format!("s{}", self.count)).map_err(|refused| refused.to_string())?;
        }
        Ok(())
    }

    /// Whether all have given a frame; an error, where one of them or the model fails.
    pub fn all_run(&self) -> Result<bool, Failure> {
        if let Some(error) = self.service.models().into_iter().find_map(|model| model.error) {
            return Err(error.into());
        }
        let sources = self.service.sources();
        if let Some(error) = sources.iter().find_map(|source| source.error.clone()) {
            return Err(error.into());
        }
        let is_running = |source: &SourceStatus| source.state == State::Running && source.frames > 0;
        Ok(sources.iter().all(is_running))
    }

    pub fn read(&self) -> TrialReading {
        let sources = self.service.sources();
        TrialReading {
            frames: sources.iter().map(|source| source.frames).collect(),
            cpu_seconds: process::cpu_seconds().unwrap_or(0.0),
            gpus: gpu::read(),
        }
    }

    /// The latency that 99 % of the frames since then keep to, in seconds, of the slowest source.
    pub fn p99_since(&self, since: Instant) -> Option<f64> {
        let sources = self.service.latencies_since(since).into_iter();
        sources.filter_map(|values| Some(quantiles(values)?.p99)).reduce(f64::max)
    }

    pub fn stop(self) {
        let left = self.service.stop(Instant::now() + END);
        if !left.is_empty() {
            log::log_error("serve", &format!("Left behind: {}.", listed(&left)));
        }
    }
}
