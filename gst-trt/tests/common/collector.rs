// SPDX-License-Identifier: MPL-2.0
//! A collector of OpenTelemetry: it takes what it is sent by OTLP over HTTP, and answers as a test wants it.

#[path = "../../src/serve/otel/otlp.rs"]
pub mod otlp;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use prost::Message;

use crate::common::wait::LIMIT;
use otlp::{AttributeValue, ExportRequest, KeyValue, LogRecord, MetricData, OtlpMetric, TraceSpan};

/// A request, and what is in it.
pub struct Exported {
    /// The first line and the headers, in small letters.
    pub head: String,
    pub request: ExportRequest,
}

impl Exported {
    fn items<T: Message + Default>(&self) -> Vec<T> {
        let scopes = self.request.resources.iter().flat_map(|resource| &resource.scopes);
        scopes.flat_map(|scope| &scope.items).map(|item| T::decode(&item[..]).unwrap()).collect()
    }

    fn is(&self, signal: &str) -> bool {
        self.head.starts_with(&format!("post /v1/{signal} "))
    }

    /// What the sender says of itself.
    pub fn resource(&self, key: &str) -> Option<String> {
        attribute(&self.request.resources[0].resource.as_ref().unwrap().attributes, key)
    }
}

/// An attribute as text.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::Bool(value) => value.to_string(),
        AttributeValue::Int(value) => value.to_string(),
        AttributeValue::Double(value) => value.to_string(),
    })
}

/// How many points a metric has.
pub fn points(metric: &OtlpMetric) -> usize {
    match metric.data.as_ref().unwrap() {
        MetricData::Gauge(gauge) => gauge.data_points.len(),
        MetricData::Sum(sum) => sum.data_points.len(),
        MetricData::Histogram(histogram) => histogram.data_points.len(),
    }
}

pub struct Collector {
    pub url: String,
    exported: Receiver<Exported>,
    answer: Arc<Mutex<Vec<u8>>>,
    senders: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Collector {
    pub fn start() -> Self {
        Self::at("127.0.0.1:0")
    }

    /// Where it was said to be.
    pub fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, exported) = channel();
        let answer = Arc::new(Mutex::new(response("200 OK", b"")));
        let said = answer.clone();
        let senders = Arc::<Mutex<BTreeSet<_>>>::default();
        let heard = senders.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (sender, said, heard) = (sender.clone(), said.clone(), heard.clone());
                thread::spawn(move || {
                    while let Some(exported) = hear(&stream) {
                        let path = exported.head.split(' ').nth(1).unwrap().to_string();
                        heard.lock().unwrap().insert((exported.resource("service.name").unwrap(), path));
                        // Nobody may listen any more.
                        let _ = sender.send(exported);
                        let answer = said.lock().unwrap().clone();
                        (&stream).write_all(&answer).ok()?;
                    }
                    Some(())
                });
            }
        });
        Collector { url, exported, answer, senders }
    }

    /// What it says from now on.
    pub fn answer(&self, status: &str, body: &[u8]) {
        *self.answer.lock().unwrap() = response(status, body);
    }

    /// The next request of a signal. Others are passed by.
    pub fn next(&self, signal: &str) -> Exported {
        loop {
            let exported = self.exported.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("no {signal}: {error}"));
            if exported.is(signal) {
                return exported;
            }
        }
    }

    pub fn metrics(&self) -> Vec<OtlpMetric> {
        self.next("metrics").items()
    }

    /// The next log record with that text.
    pub fn record(&self, text: &str) -> LogRecord {
        loop {
            let records: Vec<LogRecord> = self.next("logs").items();
            if let Some(found) = records.into_iter().find(|record| body(record).contains(text)) {
                return found;
            }
        }
    }

    pub fn spans(&self) -> Vec<TraceSpan> {
        self.next("traces").items()
    }

    /// Names of all services that have sent something, and the paths of that.
    pub fn senders(&self) -> Vec<(String, String)> {
        self.senders.lock().unwrap().iter().cloned().collect()
    }

    /// All that has come and was not asked for.
    pub fn rest(&self) -> Vec<Exported> {
        self.exported.try_iter().collect()
    }
}

/// The texts of the log records of requests.
pub fn texts(exported: &[Exported]) -> Vec<String> {
    let records = exported.iter().filter(|exported| exported.is("logs")).flat_map(Exported::items::<LogRecord>);
    records.map(|record| body(&record)).collect()
}

fn body(record: &LogRecord) -> String {
    match record.body.as_ref().and_then(|body| body.value.clone()) {
        Some(AttributeValue::Text(text)) => text,
        other => panic!("the text of a record: {other:?}"),
    }
}

fn response(status: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The next request of a connection.
fn hear(mut stream: &TcpStream) -> Option<Exported> {
    let mut read = Vec::new();
    let mut part = [0; 1 << 16];
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = std::str::from_utf8(&read[..end]).unwrap().to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
            let length: usize = length.parse().unwrap();
            if read.len() >= end + 4 + length {
                return Some(Exported { request: ExportRequest::decode(&read[end + 4..]).unwrap(), head });
            }
        }
        match stream.read(&mut part) {
            Ok(count) if count > 0 => read.extend(&part[..count]),
            _ => return None,
        }
    }
}
