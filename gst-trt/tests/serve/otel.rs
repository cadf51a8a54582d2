// SPDX-License-Identifier: MPL-2.0
//! What `gst-trt serve` tells an OpenTelemetry collector, and collectors that do all but what they should.

#[path = "../common/collector.rs"]
mod collector;

use std::collections::BTreeSet;

use prost::Message;

use self::collector::otlp::{ExportResponse, MetricData, PartialSuccess, TraceSpan};
use self::collector::{Collector, attribute, points, texts};
use crate::common::hostile_peer::{Act, HostilePeer};
use crate::common::service::{Service, ask, free_address};
use crate::common::{command, path, sample, scratch, text};
use crate::{endless, expect_no_gap, head, source};

const TOKEN: &str = "hush-0123456789";

fn otel(keys: &str) -> String {
    format!("[otel]\nmetric-export-interval = 0.1\ntraces-sampling-ratio = 1\n{keys}\n\n")
}

/// The spans of a frame that has been through.
fn frame(collector: &Collector) -> Vec<TraceSpan> {
    let mut spans: Vec<TraceSpan> = Vec::new();
    loop {
        spans.extend(collector.spans());
        if let Some(root) = spans.iter().find(|span| span.name == "frame" && span.status.is_none()) {
            let id = root.trace_id.clone();
            return spans.into_iter().filter(|span| span.trace_id == id).collect();
        }
    }
}

#[test]
fn a_collector_is_told_metrics_logs_and_traces() {
    let folder = scratch("serve-otel");
    let (address, collector) = (free_address(), Collector::start());
    let config = head()
        + &otel("headers = {Authorization = \"Bearer ${OTLP_TOKEN}\"}\nresource-attributes = {site = \"north\"}")
        + &format!("[track]\n\n[http]\nlisten = \"{address}\"\n\n")
        + &endless("gate");
    let variables = [
        ("OTLP_TOKEN", TOKEN),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
        ("OTEL_SERVICE_NAME", "hall"),
        ("OTEL_TRACES_SAMPLER", "always_off"), // the file says something else
    ];
    let service = Service::with(&folder, &config, &variables);

    // Before there was a thread to send it.
    let loaded = collector.record("Loaded shapes-160.onnx");
    assert_eq!((loaded.severity_number, loaded.severity_text.as_str()), (9, "INFO"));
    assert_eq!(attribute(&loaded.attributes, "name").as_deref(), Some("shapes"));
    assert!(loaded.time_unix_nano > 1_600_000_000_000_000_000);

    let spans = frame(&collector);
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["frame", "queue", "preprocess", "infer", "postprocess", "track", "publish"]);
    let [root, stages @ ..] = &spans[..] else { panic!("no spans") };
    assert_eq!((root.trace_id.len(), root.span_id.len(), root.parent_span_id.len()), (16, 8, 0));
    assert!(stages.iter().all(|stage| stage.parent_span_id == root.span_id));
    assert!(stages.windows(2).all(|pair| pair[0].end_time_unix_nano == pair[1].start_time_unix_nano));
    assert_eq!(root.start_time_unix_nano, stages[0].start_time_unix_nano);
    assert!(root.end_time_unix_nano >= stages[5].end_time_unix_nano);
    assert_eq!(attribute(&root.attributes, "source").as_deref(), Some("gate"));
    assert_eq!(attribute(&stages[2].attributes, "model").as_deref(), Some("shapes"));

    // The same families as /metrics has, and what they count.
    let export = collector.next("metrics");
    assert!(export.head.contains("content-type: application/x-protobuf"), "{}", export.head);
    assert!(export.head.contains(&format!("authorization: bearer {TOKEN}")), "{}", export.head);
    let resource = ["service.name", "site", "service.version"].map(|key| export.resource(key).unwrap());
    assert_eq!(resource, ["hall", "north", env!("CARGO_PKG_VERSION")]);
    let (_, page) = ask(&address, "GET", "/metrics", "", "");
    let page = text(&page).to_string();
    let families: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .map(|name| ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name))
        .collect();
    let metrics = collector.metrics();
    let told: BTreeSet<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(told, families);
    assert!(metrics.iter().all(|metric| points(metric) > 0 && !metric.description.is_empty()));
    let data = |name: &str| metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.data.clone());
    let Some(MetricData::Sum(frames)) = data("gst_trt_frames_total") else { panic!("frames are a sum") };
    assert!(frames.is_monotonic && frames.data_points[0].start_time_unix_nano > 0);
    assert_eq!(attribute(&frames.data_points[0].attributes, "source").as_deref(), Some("gate"));
    let Some(MetricData::Histogram(latency)) = data("gst_trt_latency_seconds") else { panic!("a histogram") };
    let latency = &latency.data_points[0];
    assert_eq!(latency.bucket_counts.iter().sum::<u64>(), latency.count);
    assert_eq!(latency.bucket_counts.len(), latency.explicit_bounds.len() + 1);

    let (ended, journal) = service.end();
    assert_eq!(ended.code(), Some(0), "{journal}");
    let rest = collector.rest();
    assert!(texts(&rest).iter().any(|text| text == "Ending."), "the end is told, too");
    let counted = rest.iter().any(|exported| exported.head.starts_with("post /v1/metrics "));
    assert!(counted, "the last counts are sent at the end");
    assert!(!format!("{page}{journal}{:?}", texts(&rest)).contains(TOKEN), "{journal}");
}

#[test]
fn each_signal_can_be_left_out() {
    let collector = Collector::start();
    let config = |keys: &str| {
        let otel = format!("[otel]\nendpoint = \"{}\"\nmetric-export-interval = 0.1\n{keys}\n\n", collector.url);
        head() + &otel + &endless("gate")
    };
    let only_metrics = "logs = false\ntraces-sampling-ratio = 0";
    let service = Service::start(&scratch("serve-otel-signals"), &config(only_metrics));
    service.result("gate");
    (0..3).for_each(|_| drop(collector.metrics()));
    // Sent at once: what was to be sent before is there by then.
    service.reload(&config("metrics = false\ntraces-sampling-ratio = 0\nservice-name = \"second\""));
    let first = loop {
        let exported = collector.next("logs");
        if exported.resource("service.name").as_deref() == Some("second") {
            break exported;
        }
    };
    assert!(texts(&[first]).iter().any(|text| text.contains("was read again")));
    service.reload(&config("metrics = false\nlogs = false\ntraces-sampling-ratio = 1\nservice-name = \"third\""));
    drop(frame(&collector));
    let (ended, journal) = service.end();
    assert_eq!(ended.code(), Some(0), "{journal}");
    let pairs = [("gst-trt", "metrics"), ("second", "logs"), ("third", "traces")];
    assert_eq!(collector.senders(), pairs.map(|(name, signal)| (name.to_string(), format!("/v1/{signal}"))));
}

/// Neither frames nor HTTP wait for a collector, whatever it does, and neither does the end.
#[test]
fn collectors_that_fail_cost_nothing_but_what_they_are_told() {
    let folder = scratch("serve-otel-failing");
    let address = free_address();
    let said =
        |head: &str| Act::Say(format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into());
    let endless_answer = |act: fn(Vec<u8>) -> Act| {
        vec![Act::Hear, Act::Say(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), act(b"hush ".to_vec())]
    };
    let peer = |name, acts| HostilePeer::new(name, "http://127.0.0.1:PORT", acts);
    let elsewhere = peer("elsewhere", vec![Act::Hear, Act::Hang]);
    let redirect = format!("307 Temporary Redirect\r\nLocation: {}/", elsewhere.location);
    let mut refused = peer("refused", Vec::new());
    refused.location = format!("http://{}", free_address());
    let peers = [
        (refused, "connection refused. Check endpoint in [otel]"),
        (peer("fault", vec![Act::Hear, said("500 Oops"), Act::Hang]), "it answers 500 Internal Server Error"),
        (peer("key", vec![Act::Hear, said("401 No"), Act::Hang]), "401 Unauthorized. Check headers in [otel]"),
        (peer("redirect", vec![Act::Hear, said(&redirect), Act::Hang]), "Redirections are not followed"),
        (peer("flood", endless_answer(Act::Flood)), "the answer has more than 65536 bytes"),
        (peer("drip", endless_answer(Act::Drip)), "no answer within 0.5 s"),
        (peer("reset", vec![Act::Hear, Act::Reset]), "Check endpoint in [otel]"),
        (
            peer("garbage", vec![Act::Hear, Act::Say(b"\x1b[2J\r\n\r\n".to_vec()), Act::Hang]),
            "Check endpoint in [otel]",
        ),
        (peer("silent", vec![Act::Hear, Act::Hang]), "no answer within 0.5 s"),
    ];
    let config = |url: &str| {
        let keys = format!("endpoint = \"{url}\"\ntimeout = 0.5\nheaders = {{Authorization = \"Bearer {TOKEN}\"}}");
        head() + &otel(&keys) + &format!("[http]\nlisten = \"{address}\"\n\n") + &endless("gate")
    };
    let service = Service::start(&folder, &config(&peers[0].0.location));
    let mut last = None;
    for (number, (peer, problem)) in peers.iter().enumerate() {
        if number > 0 {
            service.reload(&config(&peer.location));
            service.said("was read again");
        }
        let line = service.said(&format!(" to {}: ", peer.location));
        assert!(line.contains("WARN otel: Cannot send ") && line.contains(problem), "{}: {line}", peer.name);
        expect_no_gap(&service, "gate", &mut last, 5);
        assert_eq!(ask(&address, "GET", "/sources", "", "").0, 200, "{}", peer.name);
    }
    let (ended, journal) = service.end();
    assert_eq!(ended.code(), Some(0), "{journal}");
    // Each is said once, for all three signals.
    for (peer, _) in peers.iter().filter(|(peer, _)| !["reset", "garbage"].contains(&peer.name)) {
        assert!(!journal.contains(&format!(" to {}: ", peer.location)), "{}: {journal}", peer.name);
    }
    assert_eq!(elsewhere.connections(), 0, "no secret goes elsewhere");
    assert!(!journal.contains("left behind") && !journal.contains(TOKEN) && !journal.contains('\u{1b}'), "{journal}");
}

#[test]
fn a_collector_that_comes_back_is_told_what_waited() {
    let address = free_address();
    let config = head() + &otel(&format!("endpoint = \"http://{address}\"")) + &endless("gate");
    let service = Service::start(&scratch("serve-otel-again"), &config);
    service.said("Cannot send ");
    let collector = Collector::at(&address);
    // Said while nobody listened.
    assert_eq!(attribute(&collector.record("Started.").attributes, "name").as_deref(), Some("serve"));
    service.said(&format!("otel: http://{address} takes "));
    drop(frame(&collector));
    assert_eq!(service.end().0.code(), Some(0));
}

/// What a collector says is not trusted, and may be what it was sent.
#[test]
fn what_a_collector_rejects_is_said_once_and_without_secrets() {
    let collector = Collector::start();
    let keys = format!("endpoint = \"{}\"\nlogs = false\nheaders = {{api-key = \"{TOKEN}\"}}", collector.url);
    let config = head() + &otel(&keys).replace("ratio = 1", "ratio = 0") + &endless("gate");
    let partial = PartialSuccess { rejected: 3, error_message: format!("{TOKEN} is \u{1b}[2J too old.") };
    collector.answer("200 OK", &ExportResponse { partial_success: Some(partial) }.encode_to_vec());
    let service = Service::start(&scratch("serve-otel-rejected"), &config);
    let line = service.said("takes not all metrics: it has rejected 3 of them: *** is");
    assert!(!line.contains('\u{1b}') && line.contains("WARN otel: "), "{line}");
    (0..5).for_each(|_| drop(collector.metrics()));
    // Other servers answer with nothing, or with JSON, and take all the same.
    collector.answer("202 Accepted", b"{\"partialSuccess\": {}}");
    service.said("takes metrics again.");
    collector.answer("429 Slow down", b"");
    service.said("it answers 429 Too Many Requests");
    let (ended, journal) = service.end();
    assert_eq!(ended.code(), Some(0), "{journal}");
    assert!(!journal.contains("has rejected") && !journal.contains(TOKEN), "{journal}");
}

#[test]
fn the_page_has_a_table_that_is_right() {
    let folder = scratch("serve-otel-docs");
    let page = std::fs::read_to_string(path("docs/otel.md")).unwrap();
    for table in page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        let config = head() + &source("gate", &sample(), "") + table;
        std::fs::write(folder.join("config.toml"), config).unwrap();
        let mut check = command(&folder);
        check.args(["serve", "--check", "config.toml"]).env("OTLP_TOKEN", TOKEN);
        let output = check.output().unwrap();
        assert!(output.status.success(), "{table}: {}", text(&output.stderr));
    }
    // Variables that cannot be used are said, and not shown.
    let config = head() + &source("gate", &sample(), "") + "[otel]\n";
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let mut check = command(&folder);
    check.args(["serve", "--check", "config.toml"]).env("OTEL_EXPORTER_OTLP_HEADERS", TOKEN);
    let output = check.output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("OTEL_EXPORTER_OTLP_HEADERS is left out"), "{said}");
    assert!(!said.contains(TOKEN), "{said}");
}
