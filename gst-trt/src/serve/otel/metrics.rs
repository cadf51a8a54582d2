// SPDX-License-Identifier: MPL-2.0
//! The families of metrics as messages: by the same names as `/metrics` has them, so that dashboards and alerts serve for both.

use prost::Message;

use super::otlp::{
    CUMULATIVE, HistogramDataPoint, KeyValue, MetricData, NumberDataPoint, OtlpGauge, OtlpHistogram, OtlpMetric,
    OtlpSum, PointValue,
};
use crate::serve::histogram::Histogram;
use crate::serve::metrics::{MetricKind, MetricSink, MetricValue};

/// Families as they come.
pub struct MetricMessages {
    started: u64,
    now: u64,
    /// The family that samples are of, which is the last one.
    found: Vec<OtlpMetric>,
}

impl MetricMessages {
    /// Of a service that counts since that time, and has counted so much now: nanoseconds since 1970.
    pub fn new(started: u64, now: u64) -> Self {
        MetricMessages { started, now, found: Vec::new() }
    }

    /// Each encoded, without families that have no sample.
    pub fn encoded(self) -> Vec<Vec<u8>> {
        let has_points = |metric: &&OtlpMetric| match &metric.data {
            Some(MetricData::Gauge(gauge)) => !gauge.data_points.is_empty(),
            Some(MetricData::Sum(sum)) => !sum.data_points.is_empty(),
            Some(MetricData::Histogram(histogram)) => !histogram.data_points.is_empty(),
            None => false,
        };
        self.found.iter().filter(has_points).map(Message::encode_to_vec).collect()
    }

    fn begin(&mut self, name: String, kind: MetricKind, help: &str) {
        let data = match kind {
            // A summary without a count and a sum is no summary in OTLP: its quantiles are values like others.
            MetricKind::Gauge | MetricKind::Summary => MetricData::Gauge(OtlpGauge::default()),
            MetricKind::Counter => MetricData::Sum(OtlpSum {
                data_points: Vec::new(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            MetricKind::Histogram => {
                MetricData::Histogram(OtlpHistogram { data_points: Vec::new(), aggregation_temporality: CUMULATIVE })
            }
        };
        let unit = unit(&name).to_string();
        self.found.push(OtlpMetric { name, description: help.into(), unit, data: Some(data) });
    }

    fn add(&mut self, labels: &[(&str, &str)], value: MetricValue) {
        let (started, now) = (self.started, self.now);
        let value = match value {
            MetricValue::Whole(value) => i64::try_from(value).map_or(PointValue::Double(value as f64), PointValue::Int),
            MetricValue::Real(value) => PointValue::Double(value),
        };
        let point = |start_time_unix_nano| NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano,
            time_unix_nano: now,
            value: Some(value),
        };
        match self.data() {
            Some(MetricData::Gauge(gauge)) => gauge.data_points.push(point(0)),
            Some(MetricData::Sum(sum)) => sum.data_points.push(point(started)),
            _ => {}
        }
    }

    fn data(&mut self) -> Option<&mut MetricData> {
        self.found.last_mut()?.data.as_mut()
    }
}

impl MetricSink for MetricMessages {
    fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        self.begin(format!("gst_trt_{name}"), kind, help);
    }

    fn sample(&mut self, _: &str, labels: &[(&str, &str)], value: impl Into<MetricValue>) {
        self.add(labels, value.into());
    }

    fn histogram(&mut self, _: &str, labels: &[(&str, &str)], found: &Histogram) {
        let (start_time_unix_nano, time_unix_nano) = (self.started, self.now);
        // There, each bucket counts those below it as well.
        let mut below = 0;
        let (explicit_bounds, mut bucket_counts): (Vec<f64>, Vec<u64>) =
            found.buckets().map(|(bound, count)| (bound, count - std::mem::replace(&mut below, count))).unzip();
        bucket_counts.push(found.count - below);
        if let Some(MetricData::Histogram(histogram)) = self.data() {
            histogram.data_points.push(HistogramDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano,
                time_unix_nano,
                count: found.count,
                sum: Some(found.sum),
                bucket_counts,
                explicit_bounds,
            });
        }
    }

    fn whole(&mut self, name: &str, kind: MetricKind, help: &str, value: f64) {
        self.begin(name.into(), kind, help);
        self.add(&[], value.into());
    }
}

fn attributes(labels: &[(&str, &str)]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| KeyValue::new(name, *value)).collect()
}

/// As UCUM writes it. The names tell it, as those of Prometheus do.
fn unit(name: &str) -> &'static str {
    match name.trim_end_matches("_total").rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        Some("celsius") => "Cel",
        Some("watts") => "W",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_is_what_it_is_for_prometheus() {
        let mut messages = MetricMessages::new(1, 2);
        let mut stays = Histogram::new(&[1.0, 5.0]);
        [0.5, 1.0, 1.5, 7.0].into_iter().for_each(|value| stays.add(value));
        let gate = [("source", "gate")];
        messages.family("ready", MetricKind::Gauge, "Ready.");
        messages.sample("ready", &[], true);
        messages.family("empty_total", MetricKind::Counter, "Nothing.");
        messages.family("frames_total", MetricKind::Counter, "Frames.");
        messages.sample("frames_total", &gate, 3u64);
        messages.sample("frames_total", &[("source", "hall")], 4u64);
        messages.family("stay_seconds", MetricKind::Histogram, "Stays.");
        messages.histogram("stay_seconds", &gate, &stays);
        messages.family("gpu_seconds", MetricKind::Summary, "Times.");
        messages.sample("gpu_seconds", &[("quantile", "0.5")], 0.25);
        messages.whole("process_cpu_seconds_total", MetricKind::Counter, "Seconds.", 1.5);
        let found: Vec<OtlpMetric> =
            messages.encoded().iter().map(|bytes| OtlpMetric::decode(&bytes[..]).unwrap()).collect();
        let heads: Vec<_> = found.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        let expected = [
            ("gst_trt_ready", ""),
            ("gst_trt_frames_total", ""),
            ("gst_trt_stay_seconds", "s"),
            ("gst_trt_gpu_seconds", "s"),
            ("process_cpu_seconds_total", "s"),
        ];
        assert_eq!(heads, expected);
        let point = |labels: &[(&str, &str)], start, value| NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: start,
            time_unix_nano: 2,
            value: Some(value),
        };
        let sum = |data_points| {
            Some(MetricData::Sum(OtlpSum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true }))
        };
        let gauge = |data_points| Some(MetricData::Gauge(OtlpGauge { data_points }));
        assert_eq!(found[0].data, gauge(vec![point(&[], 0, PointValue::Int(1))]));
        let frames =
            [("gate", 3), ("hall", 4)].map(|(name, count)| point(&[("source", name)], 1, PointValue::Int(count)));
        assert_eq!(found[1].data, sum(frames.to_vec()));
        let stay = HistogramDataPoint {
            attributes: attributes(&gate),
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            count: 4,
            sum: Some(10.0),
            bucket_counts: vec![2, 1, 1],
            explicit_bounds: vec![1.0, 5.0],
        };
        let histogram = OtlpHistogram { data_points: vec![stay], aggregation_temporality: CUMULATIVE };
        assert_eq!(found[2].data, Some(MetricData::Histogram(histogram)));
        assert_eq!(found[3].data, gauge(vec![point(&[("quantile", "0.5")], 0, PointValue::Double(0.25))]));
        assert_eq!(found[4].data, sum(vec![point(&[], 1, PointValue::Double(1.5))]));
    }
}
