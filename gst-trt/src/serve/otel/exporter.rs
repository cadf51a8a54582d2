// SPDX-License-Identifier: MPL-2.0
//! The thread that sends: one request at a time, by OTLP over HTTP. It alone waits for the collector.
//!
//! A collector that fails is said once, and that it answers again. In between it is asked again after a time that doubles. Records and
//! spans wait for it in the outbox, which is bounded; metrics are read when they are sent.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gsttrt_core::redact::printable;
use gsttrt_publish::address::Secret;
use gsttrt_publish::backoff::Backoff;
use gsttrt_publish::clock;
use gsttrt_publish::web::{self, WebClient};
use prost::Message;

use super::metrics::MetricMessages;
use super::otlp::{ExportRequest, ExportResponse, InstrumentationScope, KeyValue, Resource, ResourceItems, ScopeItems};
use super::outbox::{Outbox, OutboxWork, TelemetrySignal};
use crate::serve::config::OtelConfig;
use crate::serve::control::Control;
use crate::serve::log::{log, warn};
use crate::serve::metrics;

/// Bytes of an answer, which says at most what was not taken.
const MAX_ANSWER: u64 = 64 << 10;
/// Between two attempts.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Who says it in the log.
const NAME: &str = "otel";

/// How it is said that a collector takes a part alone.
const REJECTED: &str = "it has rejected";

/// Why a request has failed.
#[derive(Debug, PartialEq)]
struct ExportFailure {
    text: String,
    /// Whether the same may be taken later, and when at the earliest.
    is_passing: bool,
    retry_after: Option<Duration>,
}

impl ExportFailure {
    fn passing(text: String) -> Self {
        ExportFailure { text, is_passing: true, retry_after: None }
    }
}

pub struct Exporter {
    config: OtelConfig,
    outbox: Arc<Outbox>,
    service: Arc<dyn Control>,
    resource: Resource,
    /// When the service was started, in nanoseconds since 1970.
    started: u64,
    routes: BTreeMap<TelemetrySignal, SignalRoute>,
    next_metrics: Option<Instant>,
    /// The last ones, encoded.
    last_metrics: Vec<Vec<u8>>,
}

/// How one signal fares.
struct SignalRoute {
    client: Option<WebClient>,
    backoff: Backoff,
    /// Not before.
    held: Option<Instant>,
    /// Why it fails, since it did so first.
    failure: Option<String>,
}

impl Exporter {
    pub fn new(config: OtelConfig, outbox: Arc<Outbox>, service: Arc<dyn Control>, started: u64) -> Self {
        let route = |signal| {
            let backoff = Backoff::between(SHORTEST_WAIT, LONGEST_WAIT);
            (signal, SignalRoute { client: None, backoff, held: None, failure: None })
        };
        let signals = [TelemetrySignal::Metrics, TelemetrySignal::Logs, TelemetrySignal::Traces];
        Exporter {
            resource: resource(&config.resource),
            next_metrics: config.metric_export_interval.map(|interval| Instant::now() + interval),
            config,
            outbox,
            service,
            started,
            routes: signals.into_iter().map(route).collect(),
            last_metrics: Vec::new(),
        }
    }

    pub fn work(mut self) {
        loop {
            let outbox = self.outbox.clone();
            match outbox.wait(self.next_metrics, |signal| self.routes[&signal].held) {
                OutboxWork::Look => self.look(),
                OutboxWork::LastMetrics => {
                    if self.next_metrics.take().is_some() {
                        self.last_metrics = self.read_metrics();
                    }
                    outbox.have_last_metrics();
                }
                OutboxWork::End => break,
            }
        }
        self.end();
    }

    /// Sends what is due.
    fn look(&mut self) {
        let now = Instant::now();
        if let Some(interval) =
            self.config.metric_export_interval.filter(|_| self.next_metrics.is_some_and(|next| next <= now))
        {
            let metrics = self.read_metrics();
            let is_sent = self.send(TelemetrySignal::Metrics, &metrics).is_ok();
            // They grow meanwhile, so that none is lost.
            let held = self.routes[&TelemetrySignal::Metrics].held.filter(|_| !is_sent);
            self.next_metrics = Some(next_export(now + interval, held).max(Instant::now()));
        }
        for signal in [TelemetrySignal::Logs, TelemetrySignal::Traces] {
            while self.outbox.is_due(signal) && self.routes[&signal].held.is_none_or(|held| held <= Instant::now()) {
                self.send_batch(signal);
            }
        }
    }

    fn send_batch(&mut self, signal: TelemetrySignal) {
        let batch = self.outbox.take(signal);
        match self.send(signal, &batch) {
            Ok(()) => {}
            Err(true) => self.outbox.put_back(signal, batch),
            Err(false) => self.outbox.lose(signal, batch.len()),
        }
    }

    /// Each that waits is sent once. Whoever waits for that does not wait long.
    fn end(mut self) {
        let metrics = std::mem::take(&mut self.last_metrics);
        if !metrics.is_empty() {
            let _ = self.send(TelemetrySignal::Metrics, &metrics); // it was said
        }
        for signal in [TelemetrySignal::Logs, TelemetrySignal::Traces] {
            loop {
                let batch = self.outbox.take(signal);
                if batch.is_empty() || self.send(signal, &batch).is_err() {
                    break;
                }
            }
        }
        self.outbox.done();
    }

    fn read_metrics(&self) -> Vec<Vec<u8>> {
        let sources = self.service.sources();
        let machine = metrics::wait_for_machine(&sources);
        let mut messages = MetricMessages::new(self.started, clock::now());
        metrics::tell(&mut messages, &*self.service, &sources, &machine);
        messages.encoded()
    }

    /// On an error, whether the same may be taken later.
    fn send(&mut self, signal: TelemetrySignal, items: &[Vec<u8>]) -> Result<(), bool> {
        let request = self.request(items);
        match self.post(signal, &request) {
            Ok(response) => {
                self.has_worked(signal, response);
                Ok(())
            }
            Err(failure) => {
                let is_passing = failure.is_passing;
                self.has_failed(signal, failure);
                Err(is_passing)
            }
        }
    }

    fn request(&self, items: &[Vec<u8>]) -> Vec<u8> {
        let scope = InstrumentationScope { name: "gst-trt".into(), version: env!("CARGO_PKG_VERSION").into() };
        let scopes = vec![ScopeItems { scope: Some(scope), items: items.to_vec() }];
        let resources = vec![ResourceItems { resource: Some(self.resource.clone()), scopes }];
        ExportRequest { resources }.encode_to_vec()
    }

    fn post(&mut self, signal: TelemetrySignal, request: &[u8]) -> Result<ExportResponse, ExportFailure> {
        let route = self.routes.get_mut(&signal).expect("each signal has one");
        let client = match &mut route.client {
            Some(client) => client,
            none => {
                let client = self.config.client(signal.name());
                let client = client.map_err(|error| ExportFailure::passing(unended(&error.message())))?;
                none.insert(client)
            }
        };
        let agent = ("User-Agent".to_string(), Secret::new(concat!("gst-trt/", env!("CARGO_PKG_VERSION"))));
        let headers: Vec<_> = self.config.headers.iter().cloned().chain([agent]).collect();
        let answer =
            client.post_as("application/x-protobuf", &headers, request).map_err(|error| self.unheard(&error))?;
        let (status, retry_after) = (answer.status(), answer.retry_after());
        let body = answer.read(MAX_ANSWER);
        match status {
            // Collectors of others answer with nothing, or with JSON.
            200..300 => body
                .map_err(|error| self.unheard(&error))
                .map(|body| ExportResponse::decode(&body[..]).unwrap_or_default()),
            _ => Err(ExportFailure {
                text: format!("it answers {}{}", web::shown(status), self.reason(status)),
                is_passing: matches!(status, 429 | 502..=504),
                retry_after,
            }),
        }
    }

    /// Why there is no answer.
    fn unheard(&self, error: &io::Error) -> ExportFailure {
        ExportFailure::passing(match error.kind() {
            io::ErrorKind::TimedOut => {
                format!("no answer within {} s. Check that the collector runs", self.config.timeout.as_secs_f64())
            }
            io::ErrorKind::ConnectionRefused => {
                "connection refused. Check endpoint in [otel], and that the collector runs".into()
            }
            _ => format!("{}. Check endpoint in [otel]", self.without_secrets(&unended(&error.to_string()))),
        })
    }

    /// What to do about a status.
    fn reason(&self, status: u16) -> &'static str {
        match status {
            300..=399 => ". Redirections are not followed: write the address that it names in endpoint of [otel]",
            401 | 403 => ". Check headers in [otel]",
            404 | 405 => ". Check the path of endpoint in [otel], and that it takes this signal",
            _ => "",
        }
    }

    fn has_worked(&mut self, signal: TelemetrySignal, response: ExportResponse) {
        let partial =
            response.partial_success.filter(|partial| partial.rejected > 0 || !partial.error_message.is_empty());
        let route = self.routes.get_mut(&signal).expect("each signal has one");
        route.backoff.reset();
        route.held = None;
        let before = route.failure.take();
        let Some(partial) = partial else {
            let is_over =
                before.is_some_and(|before| self.routes.values().all(|route| route.failure.as_ref() != Some(&before)));
            if is_over {
                log(NAME, &format!("{} takes {} again.{}", self.config.shown(), signal.name(), self.lost()));
            }
            return;
        };
        // It goes on, and may say so with each request.
        let said = self.without_secrets(&printable(&partial.error_message, 200));
        let text = format!("{REJECTED} {} of them: {}", partial.rejected, unended(&said));
        if before.is_none_or(|before| !before.starts_with(REJECTED)) {
            warn(NAME, &format!("{} takes not all {}: {text}.", self.config.shown(), signal.name()));
        }
        self.routes.get_mut(&signal).expect("each signal has one").failure = Some(text);
    }

    fn has_failed(&mut self, signal: TelemetrySignal, failure: ExportFailure) {
        let is_said = self.routes.values().any(|route| route.failure.as_ref() == Some(&failure.text));
        let route = self.routes.get_mut(&signal).expect("each signal has one");
        let patience = failure.retry_after.unwrap_or_default();
        route.held = Some(Instant::now() + route.backoff.wait().max(patience));
        if route.failure.is_none() {
            route.failure = Some(failure.text.clone());
            if !is_said {
                let text = format!("Cannot send {} to {}: {}.", signal.name(), self.config.shown(), failure.text);
                warn(NAME, &text);
            }
        }
    }

    /// What nobody has taken since it was told last.
    fn lost(&self) -> String {
        let of = |signal| self.outbox.take_lost(signal);
        match (of(TelemetrySignal::Logs), of(TelemetrySignal::Traces)) {
            (0, 0) => String::new(),
            (logs, spans) => format!(" Lost meanwhile: lines of the log {logs}, spans {spans}."),
        }
    }

    /// A server may repeat what it was sent.
    fn without_secrets(&self, text: &str) -> String {
        let values = self.config.headers.iter().map(|(_, value)| value.reveal()).filter(|value| !value.is_empty());
        // A token behind a word such as Bearer may come alone.
        let values = values.flat_map(|value| [Some(value), value.rsplit_once(' ').map(|(_, token)| token)]);
        values.flatten().filter(|value| !value.is_empty()).fold(text.into(), |text, value| text.replace(value, "***"))
    }
}

/// When metrics are sent again: with the next interval, but after a failure not before the collector is to be asked again.
fn next_export(next: Instant, held: Option<Instant>) -> Instant {
    held.unwrap_or(next)
}

fn unended(text: &str) -> String {
    text.trim_end_matches('.').into()
}

/// What the service is, and where.
fn resource(configured: &BTreeMap<String, String>) -> Resource {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let mut attributes: BTreeMap<&str, &str> = BTreeMap::from([
        ("service.name", "gst-trt"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        // The same after a restart, so that curves go on.
        ("service.instance.id", host),
        ("host.name", host),
    ]);
    attributes.extend(configured.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let attributes = attributes.into_iter().filter(|(_, value)| !value.is_empty());
    Resource { attributes: attributes.map(|(name, value)| KeyValue::new(name, value)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_wait_for_as_long_as_the_collector_asks() {
        let now = Instant::now();
        let after = |seconds: u64| now + Duration::from_secs(seconds);
        assert_eq!(next_export(after(60), None), after(60));
        assert_eq!(next_export(after(60), Some(after(1))), after(1), "the first attempts come soon");
        assert_eq!(next_export(after(60), Some(after(300))), after(300), "it has asked for 5 min");
    }
}
