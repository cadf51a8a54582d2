// SPDX-License-Identifier: MPL-2.0
//! What a service tells of itself in numbers: families of metrics, by the names and the rules of Prometheus. `/metrics` writes them
//! as text, and OpenTelemetry as messages of its own.
//!
//! * `process`, `gpu`: what is told of the machine; `outside`: where that does not answer.

pub mod gpu;
mod outside;
pub mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use MetricKind::{Counter, Gauge};
use gpu::GpuReading;
use gsttrt_core::identity::IdentityCounts;
use tokio::sync::Mutex;

use super::config::RunsOn;
use super::control::{
    AskCounts, Batches, Control, ModelStatus, Published, Quantiles, SnapshotCounts, SourceStatus, State as SourceState,
    Summary,
};
use super::disk::{self, DiskReading};
use super::histogram::Histogram;

/// Classes that a zone has a sample for. The objects of all others are one, so that a model of ten thousand classes does not
/// fill a database.
const MOST_CLASSES: usize = 100;
const OTHER_CLASSES: &str = gsttrt_core::analytics::tally::OTHERS;

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Gauge,
    /// It only grows.
    Counter,
    Histogram,
    /// Quantiles, without a count and a sum.
    Summary,
}

impl MetricKind {
    /// As Prometheus calls it.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    Whole(u64),
    Real(f64),
}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricValue::Whole(value) => value.fmt(f),
            MetricValue::Real(value) => value.fmt(f),
        }
    }
}

macro_rules! metric_values {
    ($($kind:ty => $value:ident),*) => {
        $(impl From<$kind> for MetricValue {
            fn from(value: $kind) -> Self {
                MetricValue::$value(value.into())
            }
        })*
    };
}

metric_values!(bool => Whole, u32 => Whole, u64 => Whole, f64 => Real);

/// Whoever writes families down. The samples of a family come behind it.
pub trait MetricSink {
    /// By its name, which the program's own comes before.
    fn family(&mut self, name: &str, kind: MetricKind, help: &str);

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Into<MetricValue>);

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], found: &Histogram);

    /// A metric of another family of names, without labels.
    fn whole(&mut self, name: &str, kind: MetricKind, help: &str, value: f64);
}

/// What is told of the machine.
#[derive(Default)]
pub struct MachineReading {
    gpus: Vec<GpuReading>,
    disks: Vec<DiskReading>,
}

fn folders(sources: &[SourceStatus]) -> BTreeSet<PathBuf> {
    sources.iter().flat_map(|source| source.folders.clone()).collect()
}

/// The machine, with the disks of those sources. What does not answer is left out.
pub async fn read_machine(sources: &[SourceStatus]) -> MachineReading {
    static GPUS: Mutex<()> = Mutex::const_new(());
    static DISKS: Mutex<()> = Mutex::const_new(());
    let folders = folders(sources);
    let (gpus, disks) = (outside::read(&GPUS, gpu::read), outside::read(&DISKS, || disk::read(folders)));
    let (gpus, disks) = futures_util::future::join(gpus, disks).await;
    MachineReading { gpus, disks }
}

/// The same for a thread that may wait.
#[cfg(feature = "otel")]
pub fn wait_for_machine(sources: &[SourceStatus]) -> MachineReading {
    static GPUS: Mutex<()> = Mutex::const_new(());
    static DISKS: Mutex<()> = Mutex::const_new(());
    let folders = folders(sources);
    let gpus = outside::wait(&GPUS, gpu::read);
    MachineReading { gpus, disks: outside::wait(&DISKS, || disk::read(folders)) }
}

/// Everything about a service, its sources as they are given.
pub fn tell<S: MetricSink>(text: &mut S, service: &dyn Control, sources: &[SourceStatus], machine: &MachineReading) {
    text.family("build_info", Gauge, "1, with the version of the program.");
    text.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1u64);
    text.family("ready", Gauge, "1 when all models are loaded and each source has given a frame or was found to fail.");
    text.sample("ready", &[], service.is_ready());
    text.family(
        "configuration_refused",
        Gauge,
        "1 while the file has a mistake since it was read again: what was before goes on.",
    );
    text.sample("configuration_refused", &[], service.is_outdated());
    text.family("cuda_contexts", Gauge, "CUDA contexts in use; more than one for each GPU are slow.");
    text.sample("cuda_contexts", &[], gsttrt::gst::cuda::registry::count() as u64);
    write_models(text, &service.models());
    write_sources(text, sources);
    write_counted(text, sources);
    write_published(text, sources);
    write_asks(text, sources);
    write_snapshots(text, sources);
    write_identities(text, service.identities().counts());
    write_gpus(text, &machine.gpus);
    write_disks(text, &machine.disks);
    for (name, kind, help, value) in process::metrics() {
        text.whole(name, kind, help, value);
    }
}

fn write_models<S: MetricSink>(text: &mut S, models: &[ModelStatus]) {
    let mut each = |name, help, value: &dyn Fn(&ModelStatus) -> Option<f64>| {
        text.family(name, Gauge, help);
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
    counters("model_batch_size", Gauge, "Frames that one run of the model takes at most.", &|found| found.size.into());
    counters("model_runs_total", Counter, "Runs of the model that is loaded.", &|found| found.runs);
    counters("model_frames_total", Counter, "Frames in these runs.", &|found| found.frames);
    let late = "Runs that were not full when their time had come.";
    counters("model_late_runs_total", Counter, late, &|found| found.late);
    text.family("model_info", Gauge, "1, with the file and what runs it.");
    for model in models {
        let (file, backend) = (model.file.to_string_lossy(), model.backend.as_deref().unwrap_or_default());
        let on = match model.on {
            RunsOn::Frames => "frames",
            RunsOn::Objects => "objects",
        };
        text.sample("model_info", &[("model", &model.name), ("file", &file), ("backend", backend), ("on", on)], 1u64);
    }
}

fn write_sources<S: MetricSink>(text: &mut S, sources: &[SourceStatus]) {
    text.family("source_info", Gauge, "1, with the model of the source.");
    for source in sources {
        text.sample("source_info", &[("source", &source.name), ("model", &source.model)], 1u64);
    }
    text.family(
        "source_gpu",
        Gauge,
        "The GPU of the source, as CUDA counts them, where sources are spread over several.",
    );
    for source in sources {
        if let Some(gpu) = source.cuda_device_id {
            text.sample("source_gpu", &[("source", &source.name)], f64::from(gpu));
        }
    }
    text.family("source_state", Gauge, "1 for the state that the source is in, 0 for the others.");
    for source in sources {
        for (state, name) in [
            (SourceState::Connecting, "connecting"),
            (SourceState::Running, "running"),
            (SourceState::Waiting, "waiting"),
            (SourceState::Ended, "ended"),
            (SourceState::Resting, "resting"),
        ] {
            let labels = [("source", source.name.as_str()), ("state", name)];
            text.sample("source_state", &labels, source.state == state);
        }
    }
    text.family("source_failing", Gauge, "1, with the cause, for a source that gives no frames since a failure.");
    for source in sources {
        if let Some(cause) = source.cause {
            text.sample("source_failing", &[("source", &source.name), ("cause", cause.name())], 1u64);
        }
    }
    text.family("source_failures_total", Counter, "Failures by their cause.");
    for source in sources {
        for (cause, number) in &source.failures {
            text.sample("source_failures_total", &[("source", &source.name), ("cause", cause.name())], *number);
        }
    }
    let mut each = |name, kind, help, value: &dyn Fn(&SourceStatus) -> f64| {
        text.family(name, kind, help);
        for source in sources {
            text.sample(name, &[("source", &source.name)], value(source));
        }
    };
    each("frames_per_second", Gauge, "Frames with results of the last seconds, for each second.", &|source| source.fps);
    each("frames_total", Counter, "Frames with results.", &|source| source.frames as f64);
    each("dropped_frames_total", Counter, "Frames that the model was too slow for.", &|source| source.dropped as f64);
    each("queued_frames", Gauge, "Frames that wait for the model.", &|source| source.queued as f64);
    each("objects", Gauge, "Objects in the last frame.", &|source| source.objects as f64);
    each("restarts_total", Counter, "Starts after a failure.", &|source| source.restarts as f64);
    each("left_behind_pipelines", Gauge, "Earlier attempts that do not end.", &|source| source.left_behind as f64);
    each("recording", Gauge, "1 while events are recorded to a file.", &|source| f64::from(source.recording));
    each("failed_recordings_total", Counter, "Recordings that failed, or lack frames.", &|source| {
        source.failed_recordings as f64
    });

    text.family("last_frame_timestamp_seconds", Gauge, "When the last frame had its results, in seconds since 1970.");
    for source in sources {
        if let Some(time) = source.last_frame {
            text.sample("last_frame_timestamp_seconds", &[("source", &source.name)], time.as_secs_f64());
        }
    }
    let mut histograms = |name: &str, help, value: &dyn Fn(&SourceStatus) -> Option<&Summary>| {
        text.family(name, MetricKind::Histogram, help);
        for source in sources {
            value(source).iter().for_each(|found| text.histogram(name, &[("source", &source.name)], &found.all));
        }
    };
    histograms("latency_seconds", "From the decoder to a frame's results.", &|source| source.latency.as_ref());
    let from_camera = "From the capture of a frame, where the camera says when that was, to its results.";
    histograms("camera_latency_seconds", from_camera, &|source| source.latency_from_camera.as_ref());
    // The element knows no sum of it.
    text.family("gpu_seconds", MetricKind::Summary, "The GPU's time for a frame's inference.");
    for source in sources {
        if let Some(found) = source.gpu {
            write_quantiles(text, "gpu_seconds", source, found);
        }
    }
}

fn write_quantiles<S: MetricSink>(text: &mut S, name: &str, source: &SourceStatus, found: Quantiles) {
    for (quantile, value) in [("0.5", found.p50), ("0.95", found.p95), ("0.99", found.p99)] {
        text.sample(name, &[("source", &source.name), ("quantile", quantile)], value);
    }
}

/// What trtanalytics counts.
fn write_counted<S: MetricSink>(text: &mut S, sources: &[SourceStatus]) {
    text.family("events_total", Counter, "Events of zones and lines by their kind.");
    for source in sources {
        for (kind, number) in &source.events {
            text.sample("events_total", &[("source", &source.name), ("kind", kind)], *number);
        }
    }
    text.family("zone_objects", Gauge, "Objects in a zone now, of the classes that have been in it.");
    let each_zone = || sources.iter().flat_map(|source| source.zones.iter().map(move |zone| (source, zone)));
    for (source, zone) in each_zone() {
        let sample = |text: &mut S, class: &str, number: u32| {
            let labels = [("source", source.name.as_str()), ("zone", &zone.name), ("class", class)];
            text.sample("zone_objects", &labels, number);
        };
        let mut named = zone.objects.iter().filter(|(class, _)| *class != OTHER_CLASSES);
        named.by_ref().take(MOST_CLASSES).for_each(|(class, number)| sample(text, class, *number));
        // With those that trtanalytics counts together.
        let others = zone.objects.get(OTHER_CLASSES).into_iter().chain(named.map(|(_, number)| number));
        let others: Vec<u32> = others.copied().collect();
        if !others.is_empty() {
            sample(text, OTHER_CLASSES, others.iter().sum());
        }
    }
    text.family("zone_passages_total", Counter, "Objects that have come into a zone, and that have left it.");
    for (source, zone) in each_zone() {
        for (direction, number) in [("in", zone.entered), ("out", zone.left)] {
            let labels = [("source", source.name.as_str()), ("zone", &zone.name), ("direction", direction)];
            text.sample("zone_passages_total", &labels, number);
        }
    }
    text.family("zone_dwell_seconds", MetricKind::Histogram, "How long objects that have left a zone were in it.");
    for (source, zone) in each_zone() {
        text.histogram("zone_dwell_seconds", &[("source", &source.name), ("zone", &zone.name)], &zone.dwell);
    }
    text.family("crossings_total", Counter, "Objects that have crossed a line.");
    for source in sources {
        for line in &source.lines {
            for (direction, number) in [("forward", line.forward), ("backward", line.backward)] {
                let labels = [("source", source.name.as_str()), ("line", &line.name), ("direction", direction)];
                text.sample("crossings_total", &labels, number);
            }
        }
    }
}

fn write_published<S: MetricSink>(text: &mut S, sources: &[SourceStatus]) {
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
    each("published_total", Counter, "Messages that a destination has taken.", &|published| published.sent);
    each("publish_dropped_total", Counter, "Messages that were dropped.", &|published| published.dropped);
    each("publish_connected", Gauge, "1 while the destination is connected.", &|published| published.connected as u64);
}

fn write_snapshots<S: MetricSink>(text: &mut S, sources: &[SourceStatus]) {
    let mut each = |name, help, value: &dyn Fn(&SnapshotCounts) -> u64| {
        text.family(name, Counter, help);
        for source in sources {
            text.sample(name, &[("source", &source.name)], value(&source.snapshots));
        }
    };
    each("snapshots_total", "Snapshots of objects that were written.", &|counts| counts.written);
    each(
        "snapshots_dropped_total",
        "Objects without one: the encoder or the disk was too slow, or it could not be written.",
        &|counts| counts.dropped,
    );
    each("snapshots_limited_total", "Objects beyond at-most, of which there is none.", &|counts| counts.limited);
}

/// Objects that have one id on all sources, where there are such.
fn write_identities<S: MetricSink>(text: &mut S, counts: Option<IdentityCounts>) {
    let mut one = |name, kind, help, value: &dyn Fn(&IdentityCounts) -> u64| {
        text.family(name, kind, help);
        counts.iter().for_each(|counts| text.sample(name, &[], value(counts)));
    };
    one("known_identities", Gauge, "Objects of all sources that are known.", &|counts| counts.known);
    one("identities_total", Counter, "Ids that objects were given.", &|counts| counts.given);
    let matched = "Tracks that were recognised as an object that was seen before.";
    one("identity_matches_total", Counter, matched, &|counts| counts.matched);
    let corrected = "Tracks that have lost their id, because another one is that object.";
    one("identity_corrections_total", Counter, corrected, &|counts| counts.corrected);
    let mut by_reason = |name, help, reasons: &[(&str, u64)]| {
        text.family(name, Counter, help);
        reasons.iter().for_each(|(reason, number)| text.sample(name, &[("reason", reason)], *number));
    };
    let [forgotten, refused] = [
        counts.map(|counts| {
            let IdentityCounts { aged, crowded_out, deleted, replaced, .. } = counts;
            vec![("age", aged), ("room", crowded_out), ("deleted", deleted), ("model", replaced)]
        }),
        counts.map(|counts| vec![("room", counts.refused_for_room), ("model", counts.refused_for_model)]),
    ];
    by_reason("identities_forgotten_total", "Objects that were forgotten.", &forgotten.unwrap_or_default());
    let without = "Times that there was no room for an object, and frames with vectors of another model.";
    by_reason("identity_refusals_total", without, &refused.unwrap_or_default());
}

/// What models that see were asked.
fn write_asks<S: MetricSink>(text: &mut S, sources: &[SourceStatus]) {
    let mut each = |name, help, value: &dyn Fn(&AskCounts) -> u64| {
        text.family(name, Counter, help);
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

fn write_gpus<S: MetricSink>(text: &mut S, gpus: &[GpuReading]) {
    text.family("gpu_info", Gauge, "1, with the name of the GPU.");
    for gpu in gpus {
        let index = gpu.index.to_string();
        text.sample("gpu_info", &[("gpu", &index), ("name", &gpu.name), ("uuid", &gpu.uuid)], 1u64);
    }
    let mut each = |name, help, value: &dyn Fn(&GpuReading) -> Option<f64>| {
        text.family(name, Gauge, help);
        for gpu in gpus {
            let index = gpu.index.to_string();
            value(gpu).into_iter().for_each(|value| text.sample(name, &[("gpu", &index)], value));
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
fn write_disks<S: MetricSink>(text: &mut S, disks: &[DiskReading]) {
    let mut each = |name, help, value: &dyn Fn(&DiskReading) -> f64| {
        text.family(name, Gauge, help);
        disks.iter().for_each(|disk| text.sample(name, &[("folder", &disk.folder)], value(disk)));
    };
    each("disk_free_bytes", "Bytes that may be written where recordings are.", &|disk| disk.free as f64);
    each("disk_size_bytes", "All bytes there.", &|disk| disk.size as f64);
}
