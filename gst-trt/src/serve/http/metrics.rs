// SPDX-License-Identifier: MPL-2.0
//! `/metrics`: the text format of Prometheus, version 0.0.4.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::ServerState;
use crate::serve::histogram::Histogram;
use crate::serve::metrics::{self, MetricKind, MetricSink, MetricValue};

pub async fn metrics(State(context): State<Arc<ServerState>>) -> impl IntoResponse {
    let sources = context.service.sources();
    let machine = metrics::read_machine(&sources).await;
    let mut text = Exposition(String::with_capacity(1 << 16));
    metrics::tell(&mut text, &*context.service, &sources, &machine);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.0)
}

struct Exposition(String);

/// Writing to a string does not fail.
impl MetricSink for Exposition {
    fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = kind.name();
        let _ = write!(self.0, "# HELP gst_trt_{name} {help}\n# TYPE gst_trt_{name} {kind}\n");
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], found: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut sample = |bound: &str, number: u64| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            self.sample(&bucket, &labels, number);
        };
        found.buckets().for_each(|(bound, number)| sample(&bound.to_string(), number));
        sample("+Inf", found.count);
        self.sample(&format!("{name}_sum"), labels, found.sum);
        self.sample(&format!("{name}_count"), labels, found.count);
    }

    fn whole(&mut self, name: &str, kind: MetricKind, help: &str, value: f64) {
        let kind = kind.name();
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Into<MetricValue>) {
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
        let value: MetricValue = value.into();
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}
