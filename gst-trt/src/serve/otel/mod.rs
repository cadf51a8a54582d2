// SPDX-License-Identifier: MPL-2.0
//! OpenTelemetry: metrics, logs, and the way of some frames through the stages, sent to a collector by OTLP.
//!
//! * `otlp`: the messages. `metrics`: families of metrics as such messages. `outbox`: what waits to be sent. `exporter`: the thread
//!   that sends it.
//!
//! The official SDK counts by itself, and takes no histogram that was counted elsewhere. So the messages are made here, of what
//! `/metrics` and the log have.

mod exporter;
mod metrics;
mod otlp;
mod outbox;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gsttrt_publish::clock;

#[cfg(test)]
pub use otlp::AttributeValue;
pub use otlp::{ERROR, INTERNAL, KeyValue, SAMPLED, SpanStatus, TraceSpan};
pub use outbox::{SampledTrace, new_span_id, sample, trace};

use super::config::OtelConfig;
use super::control::Control;
use super::log::log_error;
use crate::threads::Threads;
use exporter::Exporter;
use outbox::Outbox;

/// How long the last metrics may take to be read, while a collector may hang.
const LAST_METRICS: Duration = Duration::from_millis(150);
/// How long the last request may take at most, and at least where other ends have taken all the time.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);
const SHORTEST_FLUSH: Duration = Duration::from_millis(200);

/// What of this program is told to a collector.
pub struct Telemetry {
    threads: Threads,
    /// When the service was started, in nanoseconds since 1970.
    started: u64,
    running: Option<RunningExport>,
    /// When all is to be over.
    end: Option<Instant>,
}

struct RunningExport {
    config: OtelConfig,
    outbox: Arc<Outbox>,
}

impl Telemetry {
    /// Keeps what is told from now on, for the thread that sends it.
    pub fn new(config: Option<&OtelConfig>) -> Self {
        let mut telemetry = Telemetry { threads: Threads::default(), started: clock::now(), running: None, end: None };
        telemetry.begin(config);
        telemetry
    }

    fn begin(&mut self, config: Option<&OtelConfig>) {
        let Some(config) = config else { return };
        let outbox = Outbox::new(config.has_logs, config.traces_sampling_ratio);
        outbox.install();
        self.running = Some(RunningExport { config: config.clone(), outbox });
    }

    /// Sends it, with the metrics of that service.
    pub fn send(&self, service: Arc<dyn Control>) {
        let Some(RunningExport { config, outbox }) = &self.running else { return };
        let exporter = Exporter::new(config.clone(), outbox.clone(), service, self.started);
        let started = self.threads.spawn("otel".into(), "OpenTelemetry", move || exporter.work());
        if let Err(failure) = started {
            log_error("otel", &format!("{failure} Nothing is sent to {}.", config.shown()));
            Outbox::uninstall();
        }
    }

    /// Goes on as another configuration says. What waits for the collector of the old one is sent to it once.
    pub fn change(&mut self, config: Option<&OtelConfig>, service: Arc<dyn Control>) {
        // At the end nothing is begun any more.
        if self.end.is_some() || self.running.as_ref().map(|running| &running.config) == config {
            return;
        }
        Outbox::uninstall();
        if let Some(before) = self.running.take() {
            before.outbox.close();
        }
        self.begin(config);
        self.send(service);
    }

    /// The service is about to end, all of it until then: its last counts are kept.
    pub fn prepare_end(&mut self, until: Instant) {
        self.end = Some(until);
        if let Some(running) = &self.running {
            running.outbox.read_last_metrics(LAST_METRICS);
        }
    }

    /// Sends what waits, once, as long as there is time.
    pub fn end(&mut self) {
        Outbox::uninstall();
        if let Some(running) = self.running.take() {
            running.outbox.close();
            let left = self.end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
            running.outbox.wait_done(left.clamp(SHORTEST_FLUSH, LONGEST_FLUSH));
        }
    }
}
