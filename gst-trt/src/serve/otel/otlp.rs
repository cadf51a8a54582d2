// SPDX-License-Identifier: MPL-2.0
//! Messages of OTLP, the protocol of OpenTelemetry, version 1: what this program sends of them. Their fields and numbers are
//! those of opentelemetry/proto, which never change within version 1.
//!
//! Metrics, log records and spans travel in the same envelope. In it each is the bytes that it is encoded to.

use prost::{Message, Oneof};

/// `ExportMetricsServiceRequest`, `ExportLogsServiceRequest` and `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<ResourceItems>,
}

/// `ResourceMetrics`, `ResourceLogs` and `ResourceSpans`.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceItems {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scopes: Vec<ScopeItems>,
}

/// `ScopeMetrics`, `ScopeLogs` and `ScopeSpans`.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeItems {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Each an [`OtlpMetric`], a [`LogRecord`] or a [`TraceSpan`].
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub items: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

impl KeyValue {
    pub fn new(key: &str, value: impl Into<AttributeValue>) -> Self {
        KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value.into()) }) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "AttributeValue", tags = "1, 2, 3, 4")]
    pub value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum AttributeValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        AttributeValue::Text(text.into())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        AttributeValue::Int(number.try_into().unwrap_or(i64::MAX))
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        AttributeValue::Double(number)
    }
}

/// `Metric`.
#[derive(Clone, PartialEq, Message)]
pub struct OtlpMetric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7, 9")]
    pub data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(OtlpGauge),
    #[prost(message, tag = "7")]
    Sum(OtlpSum),
    #[prost(message, tag = "9")]
    Histogram(OtlpHistogram),
}

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: counted since the start.
pub const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct OtlpGauge {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OtlpSum {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct OtlpHistogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramDataPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(oneof = "PointValue", tags = "4, 6")]
    pub value: Option<PointValue>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum PointValue {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct HistogramDataPoint {
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    /// Of each bucket alone, with one more than there are bounds.
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    #[prost(string, tag = "3")]
    pub severity_text: String,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
}

/// `Span`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceSpan {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Those of W3C's trace context, and that it is known whether the parent is of another process.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
}

/// `SPAN_KIND_INTERNAL`.
pub const INTERNAL: i32 = 1;
/// Sampled, and the parent is of this process.
pub const SAMPLED: u32 = 0x101;

/// `Status`.
#[derive(Clone, PartialEq, Message)]
pub struct SpanStatus {
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// `STATUS_CODE_ERROR`.
pub const ERROR: i32 = 2;

/// `ExportMetricsServiceResponse` and those of logs and traces.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn envelope(items: Vec<Vec<u8>>) -> ExportRequest {
        let scope = InstrumentationScope { name: "gst-trt".into(), version: "0.1.0".into() };
        let attributes = vec![
            KeyValue::new("service.name", "gst-trt"),
            KeyValue { key: "b".into(), value: Some(AnyValue { value: Some(AttributeValue::Bool(true)) }) },
            KeyValue::new("i", 7u64),
            KeyValue::new("d", 0.5),
        ];
        let scopes = vec![ScopeItems { scope: Some(scope), items }];
        ExportRequest { resources: vec![ResourceItems { resource: Some(Resource { attributes }), scopes }] }
    }

    /// The bytes were made by the crate opentelemetry-proto 0.33.1, which is generated of the protocol's own files.
    #[test]
    fn messages_are_those_of_the_protocol() {
        let metric = |name: &str, unit: &str, data| OtlpMetric {
            name: name.into(),
            description: "What it is.".into(),
            unit: unit.into(),
            data: Some(data),
        };
        let point = |value| NumberDataPoint {
            attributes: vec![KeyValue::new("source", "gate")],
            start_time_unix_nano: 1,
            time_unix_nano: 2,
            value: Some(value),
        };
        let metrics = [
            metric("gauge", "By", MetricData::Gauge(OtlpGauge { data_points: vec![point(PointValue::Double(0.25))] })),
            metric(
                "sum",
                "",
                MetricData::Sum(OtlpSum {
                    data_points: vec![point(PointValue::Int(3))],
                    aggregation_temporality: CUMULATIVE,
                    is_monotonic: true,
                }),
            ),
            metric(
                "histogram",
                "s",
                MetricData::Histogram(OtlpHistogram {
                    data_points: vec![HistogramDataPoint {
                        attributes: vec![KeyValue::new("source", "gate")],
                        start_time_unix_nano: 1,
                        time_unix_nano: 2,
                        count: 3,
                        sum: Some(4.5),
                        bucket_counts: vec![1, 0, 2],
                        explicit_bounds: vec![0.5, 1.0],
                    }],
                    aggregation_temporality: CUMULATIVE,
                }),
            ),
        ];
        let record = LogRecord {
            time_unix_nano: 1,
            observed_time_unix_nano: 2,
            severity_number: 13,
            severity_text: "WARN".into(),
            body: Some(AnyValue { value: Some("It is late.".into()) }),
            attributes: vec![KeyValue::new("name", "gate")],
        };
        let span = TraceSpan {
            trace_id: (1..=16).collect(),
            span_id: (1..=8).collect(),
            parent_span_id: (2..=9).collect(),
            flags: SAMPLED,
            name: "infer".into(),
            kind: INTERNAL,
            start_time_unix_nano: 1,
            end_time_unix_nano: 2,
            attributes: vec![KeyValue::new("model", "yolo")],
            status: Some(SpanStatus { message: "late".into(), code: ERROR }),
        };
        let metrics = metrics.iter().map(Message::encode_to_vec).collect();
        for (request, expected) in [
            (envelope(metrics), METRICS),
            (envelope(vec![record.encode_to_vec()]), LOGS),
            (envelope(vec![span.encode_to_vec()]), TRACES),
        ] {
            assert_eq!(request.encode_to_vec(), bytes(expected));
        }
        let partial = PartialSuccess { rejected: 3, error_message: "too old".into() };
        assert_eq!(ExportResponse::decode(&bytes(PARTIAL)[..]).unwrap().partial_success, Some(partial));
    }

    const METRICS: &str = "\
        0aee020a3d0a190a0c736572766963652e6e616d6512090a076773742d7472740a070a0162120210010a070a016912021807 \
        0a0e0a0164120921000000000000e03f12ac020a100a076773742d7472741205302e312e3012490a056761756765120b5768 \
        61742069742069732e1a0242792a2f0a2d11010000000000000019020000000000000021000000000000d03f3a100a06736f \
        7572636512060a046761746512470a0373756d120b576861742069742069732e3a330a2d1101000000000000001902000000 \
        000000003103000000000000003a100a06736f7572636512060a0467617465100218011283010a09686973746f6772616d12 \
        0b576861742069742069732e1a01734a660a6211010000000000000019020000000000000021030000000000000029000000 \
        000000124032180100000000000000000000000000000002000000000000003a10000000000000e03f000000000000f03f4a \
        100a06736f7572636512060a04676174651002";
    const LOGS: &str = "\
        0a8e010a3d0a190a0c736572766963652e6e616d6512090a076773742d7472740a070a0162120210010a070a016912021807 \
        0a0e0a0164120921000000000000e03f124d0a100a076773742d7472741205302e312e301239090100000000000000100d1a \
        045741524e2a0d0a0b4974206973206c6174652e320e0a046e616d6512060a0467617465590200000000000000";
    const TRACES: &str = "\
        0ab7010a3d0a190a0c736572766963652e6e616d6512090a076773742d7472740a070a0162120210010a070a016912021807 \
        0a0e0a0164120921000000000000e03f12760a100a076773742d7472741205302e312e3012620a100102030405060708090a \
        0b0c0d0e0f1012080102030405060708220802030405060708092a05696e6665723001390100000000000000410200000000 \
        0000004a0f0a056d6f64656c12060a04796f6c6f7a0812046c6174651802850101010000";
    const PARTIAL: &str = "\
        0a0b08031207746f6f206f6c64";
}
