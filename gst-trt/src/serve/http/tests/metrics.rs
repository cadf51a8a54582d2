// SPDX-License-Identifier: MPL-2.0
//! `/metrics`: the format, the values, and what a scrape costs.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use super::*;

/// The samples of each family, and its type. The format is checked as strictly as Prometheus' own tools do.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let mut families: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let (mut name, mut seen) = (String::new(), BTreeSet::new());
    let mut lines = text.split_terminator('\n');
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            name = help.split_once(' ').unwrap().0.into();
            let (typed, kind) = lines.next().unwrap().strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
            assert_eq!(typed, name);
            assert!(["gauge", "counter", "summary"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(families.insert(name.clone(), (kind.into(), Vec::new())).is_none(), "{name} comes twice");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let of_family = series.split('{').next().unwrap().trim_end_matches("_sum").trim_end_matches("_count");
        assert_eq!(of_family, name, "a sample is with its family");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(series.to_string()), "{series} comes twice");
        families.get_mut(&name).unwrap().1.push(line.into());
    }
    families
}

#[test]
fn metrics_tell_what_the_service_does() {
    let service = FakeService::new(&["door"]);
    service.change("door", |status| {
        status.latency = None;
        status.cause = Some(Cause::Tls);
        let again = Published { sent: 1, dropped: 2, connected: false, ..status.published[0].clone() };
        status.published.extend([again, published(Some("lines"), "mqtt://me@broker/t")]);
    });
    let server = serve(&service);
    let answer = get(&server, "/metrics").expect(200);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    let families = parse(answer.text());
    for (family, kind, samples) in [
        ("build_info", "gauge", &[concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1")][..]),
        ("ready", "gauge", &[" 1"]),
        ("cuda_contexts", "gauge", &[" 0"]),
        ("model_loaded", "gauge", &["{model=\"yolo\"} 1"]),
        ("model_build_progress", "gauge", &[]),
        ("model_verified", "gauge", &["{model=\"yolo\"} 1"]),
        ("model_failed", "gauge", &["{model=\"yolo\"} 0"]),
        ("model_info", "gauge", &["{model=\"yolo\",file=\"yolo11n.onnx\",backend=\"tensorrt\"} 1"]),
        ("source_info", "gauge", &["{source=\"door\",model=\"yolo\"} 1"]),
        (
            "source_state",
            "gauge",
            &[
                "{source=\"door\",state=\"connecting\"} 0",
                "{source=\"door\",state=\"running\"} 1",
                "{source=\"door\",state=\"waiting\"} 0",
                "{source=\"door\",state=\"ended\"} 0",
            ],
        ),
        ("source_failing", "gauge", &["{source=\"door\",cause=\"tls\"} 1"]),
        ("source_failures_total", "counter", &["{source=\"door\",cause=\"unreachable\"} 4"]),
        ("frames_per_second", "gauge", &["{source=\"door\"} 29.97"]),
        ("frames_total", "counter", &["{source=\"door\"} 12345"]),
        ("dropped_frames_total", "counter", &["{source=\"door\"} 6"]),
        ("queued_frames", "gauge", &["{source=\"door\"} 2"]),
        ("objects", "gauge", &["{source=\"door\"} 3"]),
        ("restarts_total", "counter", &["{source=\"door\"} 1"]),
        ("left_behind_pipelines", "gauge", &["{source=\"door\"} 0"]),
        ("recording", "gauge", &["{source=\"door\"} 0"]),
        ("last_frame_timestamp_seconds", "gauge", &["{source=\"door\"} 1700000000.25"]),
        ("latency_seconds", "summary", &[]),
        (
            "camera_latency_seconds",
            "summary",
            &[
                "{source=\"door\",quantile=\"0.5\"} 0.112",
                "{source=\"door\",quantile=\"0.95\"} 0.02",
                "{source=\"door\",quantile=\"0.99\"} 0.031",
                "_sum{source=\"door\"} 150.5",
                "_count{source=\"door\"} 12345",
            ],
        ),
        (
            "gpu_seconds",
            "summary",
            &[
                "{source=\"door\",quantile=\"0.5\"} 0.0021",
                "{source=\"door\",quantile=\"0.95\"} 0.02",
                "{source=\"door\",quantile=\"0.99\"} 0.031",
            ],
        ),
        ("events_total", "counter", &["{source=\"door\",kind=\"crossed\"} 17", "{source=\"door\",kind=\"entered\"} 4"]),
        ("zone_objects", "gauge", &["{source=\"door\",zone=\"hall\",class=\"disc\"} 3"]),
        (
            "crossings_total",
            "counter",
            &[
                "{source=\"door\",line=\"gate\",direction=\"forward\"} 5",
                "{source=\"door\",line=\"gate\",direction=\"backward\"} 2",
            ],
        ),
        (
            "published_total",
            "counter",
            &["{source=\"door\",destination=\"lines\"} 99", "{source=\"door\",destination=\"mqtt://broker/t\"} 100"],
        ),
        (
            "publish_dropped_total",
            "counter",
            &["{source=\"door\",destination=\"lines\"} 1", "{source=\"door\",destination=\"mqtt://broker/t\"} 3"],
        ),
        (
            "publish_connected",
            "gauge",
            &["{source=\"door\",destination=\"lines\"} 1", "{source=\"door\",destination=\"mqtt://broker/t\"} 0"],
        ),
    ] {
        let expected: Vec<_> = samples.iter().map(|sample| format!("gst_trt_{family}{sample}")).collect();
        assert_eq!(families[&format!("gst_trt_{family}")], (kind.to_string(), expected), "{family}");
    }
    let (ours, process): (Vec<_>, Vec<_>) = families.keys().partition(|name| name.starts_with("gst_trt_"));
    assert_eq!(ours.len(), 30, "each is in the table above: {ours:?}");
    assert!(process.len() == 7 && process.iter().all(|name| name.starts_with("process_")), "{process:?}");
}

/// Names with what the format escapes, read by Prometheus' own library.
#[test]
fn labels_are_escaped() {
    const NAME: &str = "a \"quoted\\name\"\nin two lines}, ä {";
    let has_library = Command::new("python3").args(["-c", "import prometheus_client"]).stderr(Stdio::null()).status();
    if !has_library.is_ok_and(|status| status.success()) {
        return println!("SKIP: the Python module prometheus_client is not installed.");
    }
    let service = FakeService::new(&[NAME, "door"]);
    let server = serve(&service);
    let script = "
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        print(family.type, sample.name, ascii(sample.labels.get('source')), sample.value)
";
    let mut python =
        Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(&get(&server, "/metrics").body).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let quoted = r#"'a "quoted\\name"\nin two lines}, \xe4 {'"#;
    for line in [
        format!("counter gst_trt_frames_total {quoted} 12345.0"),
        "counter gst_trt_frames_total 'door' 12345.0".into(),
        format!("summary gst_trt_latency_seconds {quoted} 0.012"),
        format!("gauge gst_trt_frames_per_second {quoted} 29.97"),
    ] {
        assert!(lines.lines().any(|found| found == line), "{line}\n{lines}");
    }
}

/// Nanoseconds that the server's thread was on a core.
fn busy() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let mut threads =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "http\n"));
    let thread = threads.next().expect("the server has a thread");
    std::fs::read_to_string(thread.join("schedstat")).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement"]
fn a_scrape_of_24_sources_costs() {
    const SCRAPES: u64 = 500;
    let names: Vec<_> = (0..24).map(|number| format!("camera-{number}")).collect();
    let server = serve(&FakeService::new(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    let size = get(&server, "/metrics").expect(200).body.len();
    let before = busy();
    for _ in 0..SCRAPES {
        get(&server, "/metrics");
    }
    let each = (busy() - before) as f64 / SCRAPES as f64 / 1e9;
    println!(
        "{size} bytes, {:.0} µs of the thread for a scrape: {:.4} % of a core at one in a second",
        each * 1e6,
        each * 100.0
    );
}
