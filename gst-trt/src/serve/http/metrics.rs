// SPDX-License-Identifier: MPL-2.0
//! `/metrics`: the text format of Prometheus, version 0.0.4.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::gpu::{self, GpuReading};
use super::{ServerState, outside, process};
use crate::serve::config::RunsOn;
use crate::serve::control::{
    AskCounts, Batches, Control, ModelStatus, Published, Quantiles, SnapshotCounts, SourceStatus, State as SourceState,
    Summary,
};
use crate::serve::disk::{self, DiskReading};
use crate::serve::histogram::Histogram;

/// Classes that a zone has a sample for. The objects of all others are one, so that a model of ten thousand classes does not
/// fill a database.
const MOST_CLASSES: usize = 100;
const OTHER_CLASSES: &str = "(others)";

pub async fn metrics(State(context): State<Arc<ServerState>>) -> impl IntoResponse {
    static GPUS: AtomicBool = AtomicBool::new(false);
    static DISKS: AtomicBool = AtomicBool::new(false);
    let sources = context.service.sources();
    let folders: BTreeSet<PathBuf> = sources.iter().flat_map(|source| source.folders.clone()).collect();
    let (gpus, disks) = (outside::read(&GPUS, gpu::read), outside::read(&DISKS, || disk::read(folders)));
    let text = exposition(&*context.service, &sources, &gpus.await, &disks.await);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

fn exposition(service: &dyn Control, sources: &[SourceStatus], gpus: &[GpuReading], disks: &[DiskReading]) -> String {
    let mut text = Exposition(String::with_capacity(1 << 16));
    text.family("build_info", "gauge", "1, with the version of the program.");
    text.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(
        "ready",
        "gauge",
        "1 when all models are loaded and each source has given a frame or was found to fail.",
    );
    text.sample("ready", &[], service.is_ready() as u8);
    text.family("cuda_contexts", "gauge", "CUDA contexts in use; more than one for each GPU are slow.");
    text.sample("cuda_contexts", &[], gsttrt::gst::cuda::registry::count());
    write_models(&mut text, &service.models());
    write_sources(&mut text, sources);
    write_counted(&mut text, sources);
    write_published(&mut text, sources);
    write_asks(&mut text, sources);
    write_snapshots(&mut text, sources);
    write_gpus(&mut text, gpus);
    write_disks(&mut text, disks);
    for (name, kind, help, value) in process::metrics() {
        text.whole(name, kind, help, value);
    }
    text.0
}

fn write_models(text: &mut Exposition, models: &[ModelStatus]) {
    let mut each = |name, help, value: &dyn Fn(&ModelStatus) -> Option<f64>| {
        text.family(name, "gauge", help);
        for model in models {
            if let Some(value) = value(model) {
                text.sample(name, &[("model", &model.name)], value);
            }
        }
    };
    each("model_loaded", "1 when the model is loaded.", &|model| Some(f64::from(model.loaded)));
    each("model_build_progress", "Share of the engine that is built, 0 to 1, while one is built.", &|model| {
        model.progress
    });
    each("model_failed", "1 when the last replacement failed.", &|model| Some(f64::from(model.error.is_some())));
    let help = "1 when the outputs of the loaded model were compared with the CPU's and are right, 0 when they differ.";
    each("model_verified", help, &|model| model.verified.map(f64::from));
    let mut counters = |name, kind, help, value: &dyn Fn(&Batches) -> u64| {
        text.family(name, kind, help);
        for model in models {
            model.batches.iter().for_each(|found| text.sample(name, &[("model", &model.name)], value(found)));
        }
    };
    counters("model_batch_size", "gauge", "Frames that one run of the model takes at most.", &|found| {
        found.size.into()
    });
    counters("model_runs_total", "counter", "Runs of the model that is loaded.", &|found| found.runs);
    counters("model_frames_total", "counter", "Frames in these runs.", &|found| found.frames);
    let late = "Runs that were not full when their time had come.";
    counters("model_late_runs_total", "counter", late, &|found| found.late);
    text.family("model_info", "gauge", "1, with the file and what runs it.");
    for model in models {
        let (file, backend) = (model.file.to_string_lossy(), model.backend.as_deref().unwrap_or_default());
        let on = match model.on {
            RunsOn::Frames => "frames",
            RunsOn::Objects => "objects",
        };
        text.sample("model_info", &[("model", &model.name), ("file", &file), ("backend", backend), ("on", on)], 1);
    }
}

fn write_sources(text: &mut Exposition, sources: &[SourceStatus]) {
    text.family("source_info", "gauge", "1, with the model of the source.");
    for source in sources {
        text.sample("source_info", &[("source", &source.name), ("model", &source.model)], 1);
    }
    text.family("source_state", "gauge", "1 for the state that the source is in, 0 for the others.");
    for source in sources {
        for (state, name) in [
            (SourceState::Connecting, "connecting"),
            (SourceState::Running, "running"),
            (SourceState::Waiting, "waiting"),
            (SourceState::Ended, "ended"),
            (SourceState::Resting, "resting"),
        ] {
            let labels = [("source", source.name.as_str()), ("state", name)];
            text.sample("source_state", &labels, (source.state == state) as u8);
        }
    }
    text.family("source_failing", "gauge", "1, with the cause, for a source that gives no frames since a failure.");
    for source in sources {
        if let Some(cause) = source.cause {
            text.sample("source_failing", &[("source", &source.name), ("cause", cause.name())], 1);
        }
    }
    text.family("source_failures_total", "counter", "Failures by their cause.");
    for source in sources {
        for (cause, number) in &source.failures {
            text.sample("source_failures_total", &[("source", &source.name), ("cause", cause.name())], number);
        }
    }
    let mut each = |name, kind, help, value: &dyn Fn(&SourceStatus) -> f64| {
        text.family(name, kind, help);
        for source in sources {
            text.sample(name, &[("source", &source.name)], value(source));
        }
    };
    each("frames_per_second", "gauge", "Frames with results of the last seconds, for each second.", &|source| {
        source.fps
    });
    each("frames_total", "counter", "Frames with results.", &|source| source.frames as f64);
    each("dropped_frames_total", "counter", "Frames that the model was too slow for.", &|source| source.dropped as f64);
    each("queued_frames", "gauge", "Frames that wait for the model.", &|source| source.queued as f64);
    each("objects", "gauge", "Objects in the last frame.", &|source| source.objects as f64);
    each("restarts_total", "counter", "Starts after a failure.", &|source| source.restarts as f64);
    each("left_behind_pipelines", "gauge", "Earlier attempts that do not end.", &|source| source.left_behind as f64);
    each("recording", "gauge", "1 while events are recorded to a file.", &|source| f64::from(source.recording));
    each("failed_recordings_total", "counter", "Recordings that failed, or lack frames.", &|source| {
        source.failed_recordings as f64
    });

    text.family("last_frame_timestamp_seconds", "gauge", "When the last frame had its results, in seconds since 1970.");
    for source in sources {
        if let Some(time) = source.last_frame {
            text.sample("last_frame_timestamp_seconds", &[("source", &source.name)], time.as_secs_f64());
        }
    }
    let mut histograms = |name: &str, help, value: &dyn Fn(&SourceStatus) -> Option<&Summary>| {
        text.family(name, "histogram", help);
        for source in sources {
            value(source).iter().for_each(|found| text.histogram(name, &[("source", &source.name)], &found.all));
        }
    };
    histograms("latency_seconds", "From the decoder to a frame's results.", &|source| source.latency.as_ref());
    let from_camera = "From the capture of a frame, where the camera says when that was, to its results.";
    histograms("camera_latency_seconds", from_camera, &|source| source.latency_from_camera.as_ref());
    // The element knows no sum of it.
    text.family("gpu_seconds", "summary", "The GPU's time for a frame's inference.");
    for source in sources {
        if let Some(found) = source.gpu {
            write_quantiles(text, "gpu_seconds", source, found);
        }
    }
}

fn write_quantiles(text: &mut Exposition, name: &str, source: &SourceStatus, found: Quantiles) {
    for (quantile, value) in [("0.5", found.p50), ("0.95", found.p95), ("0.99", found.p99)] {
        text.sample(name, &[("source", &source.name), ("quantile", quantile)], value);
    }
}

/// What trtanalytics counts.
fn write_counted(text: &mut Exposition, sources: &[SourceStatus]) {
    text.family("events_total", "counter", "Events of zones and lines by their kind.");
    for source in sources {
        for (kind, number) in &source.events {
            text.sample("events_total", &[("source", &source.name), ("kind", kind)], number);
        }
    }
    text.family("zone_objects", "gauge", "Objects in a zone now, of the classes that have been in it.");
    let each_zone = || sources.iter().flat_map(|source| source.zones.iter().map(move |zone| (source, zone)));
    for (source, zone) in each_zone() {
        let sample = |text: &mut Exposition, class: &str, number| {
            let labels = [("source", source.name.as_str()), ("zone", &zone.name), ("class", class)];
            text.sample("zone_objects", &labels, number);
        };
        zone.objects.iter().take(MOST_CLASSES).for_each(|(class, number)| sample(text, class, *number));
        if zone.objects.len() > MOST_CLASSES {
            sample(text, OTHER_CLASSES, zone.objects.values().skip(MOST_CLASSES).sum());
        }
    }
    text.family("zone_passages_total", "counter", "Objects that have come into a zone, and that have left it.");
    for (source, zone) in each_zone() {
        for (direction, number) in [("in", zone.entered), ("out", zone.left)] {
            let labels = [("source", source.name.as_str()), ("zone", &zone.name), ("direction", direction)];
            text.sample("zone_passages_total", &labels, number);
        }
    }
    text.family("zone_dwell_seconds", "histogram", "How long objects that have left a zone were in it.");
    for (source, zone) in each_zone() {
        text.histogram("zone_dwell_seconds", &[("source", &source.name), ("zone", &zone.name)], &zone.dwell);
    }
    text.family("crossings_total", "counter", "Objects that have crossed a line.");
    for source in sources {
        for line in &source.lines {
            for (direction, number) in [("forward", line.forward), ("backward", line.backward)] {
                let labels = [("source", source.name.as_str()), ("line", &line.name), ("direction", direction)];
                text.sample("crossings_total", &labels, number);
            }
        }
    }
}

fn write_published(text: &mut Exposition, sources: &[SourceStatus]) {
    let each_source = sources.iter().map(|source| (source, destinations(&source.published)));
    let all: Vec<_> = each_source.collect();
    let mut each = |name, kind, help, value: &dyn Fn(&Published) -> u64| {
        text.family(name, kind, help);
        for (source, destinations) in &all {
            for (destination, published) in destinations {
                text.sample(name, &[("source", &source.name), ("destination", destination)], value(published));
            }
        }
    };
    each("published_total", "counter", "Messages that a destination has taken.", &|published| published.sent);
    each("publish_dropped_total", "counter", "Messages that were dropped.", &|published| published.dropped);
    each("publish_connected", "gauge", "1 while the destination is connected.", &|published| {
        published.connected as u64
    });
}

fn write_snapshots(text: &mut Exposition, sources: &[SourceStatus]) {
    let mut each = |name, help, value: &dyn Fn(&SnapshotCounts) -> u64| {
        text.family(name, "counter", help);
        for source in sources {
            text.sample(name, &[("source", &source.name)], value(&source.snapshots));
        }
    };
    each("snapshots_total", "Snapshots of objects that were written.", &|counts| counts.written);
    each("snapshots_dropped_total", "Objects without one, as the encoder or the disk was too slow.", &|counts| {
        counts.dropped
    });
    each("snapshots_limited_total", "Objects beyond at-most, of which there is none.", &|counts| counts.limited);
}

/// What models that see were asked.
fn write_asks(text: &mut Exposition, sources: &[SourceStatus]) {
    let mut each = |name, help, value: &dyn Fn(&AskCounts) -> u64| {
        text.family(name, "counter", help);
        for source in sources {
            for ask in &source.asks {
                text.sample(name, &[("source", &source.name), ("ask", &ask.name)], value(&ask.counts));
            }
        }
    };
    each("asked_total", "Questions about events.", &|counts| counts.asked);
    each("answered_total", "Questions that were answered.", &|counts| counts.answered);
    each("ask_failed_total", "Questions that a server did not answer.", &|counts| counts.failed);
    each("ask_dropped_total", "Questions that were dropped, as the server is slow.", &|counts| counts.dropped);
    each("ask_limited_total", "Events beyond at-most, which were not asked about.", &|counts| counts.limited);
}

/// By their names, and where they have none by their locations, of which each can be there once: two publishers to one place
/// count together.
fn destinations(published: &[Published]) -> BTreeMap<&str, Published> {
    let mut found = BTreeMap::new();
    for one in published {
        let sum = found.entry(one.name.as_ref().unwrap_or(&one.location).as_str()).or_insert_with(|| Published {
            sent: 0,
            dropped: 0,
            ..one.clone()
        });
        sum.sent += one.sent;
        sum.dropped += one.dropped;
        sum.connected &= one.connected;
    }
    found
}

fn write_gpus(text: &mut Exposition, gpus: &[GpuReading]) {
    text.family("gpu_info", "gauge", "1, with the name of the GPU.");
    for gpu in gpus {
        let index = gpu.index.to_string();
        text.sample("gpu_info", &[("gpu", &index), ("name", &gpu.name), ("uuid", &gpu.uuid)], 1);
    }
    let mut each = |name, help, value: &dyn Fn(&GpuReading) -> Option<f64>| {
        text.family(name, "gauge", help);
        for gpu in gpus {
            let index = gpu.index.to_string();
            value(gpu).iter().for_each(|value| text.sample(name, &[("gpu", &index)], value));
        }
    };
    each("gpu_busy_ratio", "Share of the time in which the GPU computes, 0 to 1.", &|gpu| gpu.busy);
    each("gpu_decoder_busy_ratio", "Share of the time in which its decoders work, 0 to 1.", &|gpu| gpu.decoder_busy);
    each("gpu_encoder_busy_ratio", "Share of the time in which its encoders work, 0 to 1.", &|gpu| gpu.encoder_busy);
    each("gpu_memory_used_bytes", "Memory of the GPU that is in use.", &|gpu| gpu.memory_used);
    each("gpu_memory_size_bytes", "All memory of the GPU.", &|gpu| gpu.memory);
    each("gpu_temperature_celsius", "Temperature of the GPU.", &|gpu| gpu.celsius);
    each("gpu_power_watts", "Power that the GPU takes.", &|gpu| gpu.watts);
}

/// Of the folders that recordings are written to.
fn write_disks(text: &mut Exposition, disks: &[DiskReading]) {
    let mut each = |name, help, value: &dyn Fn(&DiskReading) -> f64| {
        text.family(name, "gauge", help);
        disks.iter().for_each(|disk| text.sample(name, &[("folder", &disk.folder)], value(disk)));
    };
    each("disk_free_bytes", "Bytes that may be written where recordings are.", &|disk| disk.free as f64);
    each("disk_size_bytes", "All bytes there.", &|disk| disk.size as f64);
}

struct Exposition(String);

/// Writing to a string does not fail.
impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP gst_trt_{name} {help}\n# TYPE gst_trt_{name} {kind}\n");
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], found: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut sample = |bound: &str, number| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            self.sample(&bucket, &labels, number);
        };
        found.buckets().for_each(|(bound, number)| sample(&bound.to_string(), number));
        sample("+Inf", found.count);
        self.sample(&format!("{name}_sum"), labels, found.sum);
        self.sample(&format!("{name}_count"), labels, found.count);
    }

    /// A metric of another family of names, without labels.
    fn whole(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "gst_trt_{name}");
        for (number, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if number == 0 { '{' } else { ',' });
            for character in value.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}
