// SPDX-License-Identifier: MPL-2.0
//! `/metrics`: the format, the values, and what a scrape costs.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use super::*;
use crate::serve::identities::tests::served;

/// A sample: its name, its labels, its value.
type Sample<'a> = (&'a str, Vec<(&'a str, String)>, f64);

/// A line, by the grammar of the text format, version 0.0.4.
fn sample(line: &str) -> Sample<'_> {
    let is_name = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(begun) = rest.strip_prefix('{') {
        rest = begun;
        loop {
            let (label, behind) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label) && !label.starts_with("__"), "{line}");
            let (mut value, mut characters) = (String::new(), behind.char_indices());
            let end = loop {
                match characters.next().unwrap_or_else(|| panic!("{line}")) {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next() {
                        Some((_, 'n')) => '\n',
                        Some((_, c @ ('\\' | '"'))) => c,
                        other => panic!("{other:?} behind a backslash: {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.iter().all(|(other, _)| *other != label), "{line}");
            labels.push((label, value));
            match behind[end + 1..].strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = behind[end + 1..].strip_prefix('}').unwrap_or_else(|| panic!("{line}"));
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    (name, labels, value)
}

/// The samples of each family, and its type. The format is checked as strictly as Prometheus' own tools do.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let mut families: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let (mut name, mut seen) = (String::new(), BTreeSet::new());
    assert!(text.ends_with('\n'));
    let mut lines = text.split_terminator('\n');
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            name = help.split_once(' ').unwrap().0.into();
            let (typed, kind) = lines.next().unwrap().strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
            assert_eq!(typed, name);
            assert!(["gauge", "counter", "summary", "histogram"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(families.insert(name.clone(), (kind.into(), Vec::new())).is_none(), "{name} comes twice");
            continue;
        }
        let (series, labels, value) = sample(line);
        let (kind, samples) = families.get_mut(&name).unwrap();
        let suffixes: &[&str] = match kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            _ => &[""],
        };
        let suffix = series.strip_prefix(name.as_str()).expect("a sample is with its family");
        assert!(suffixes.contains(&suffix), "{line}");
        assert_eq!(suffix == "_bucket", labels.iter().any(|(label, _)| *label == "le"), "{line}");
        assert!(!["counter", "histogram"].contains(&kind.as_str()) || value >= 0.0, "{line}");
        assert!(seen.insert((series.to_string(), labels)), "{line} comes twice");
        samples.push(line.into());
    }
    for (name, (_, samples)) in families.iter().filter(|(_, (kind, _))| kind == "histogram") {
        check_histogram(name, samples);
    }
    families
}

/// The labels of a series, but for the bound of a bucket.
type SeriesLabels<'a> = Vec<(&'a str, String)>;
/// Bounds with counts, and totals.
type SeriesValues = (Vec<(f64, f64)>, Vec<f64>);

/// Buckets of each series grow, and the last one is the count.
fn check_histogram(name: &str, samples: &[String]) {
    let mut series: BTreeMap<SeriesLabels, SeriesValues> = BTreeMap::new();
    for line in samples {
        let (of, labels, value) = sample(line);
        let (bounds, others): (Vec<_>, Vec<_>) = labels.into_iter().partition(|(label, _)| *label == "le");
        let (buckets, totals) = series.entry(others).or_default();
        match bounds.first() {
            Some((_, bound)) => buckets.push((bound.replace("+Inf", "inf").parse().unwrap(), value)),
            None => totals.extend(of.ends_with("_count").then_some(value)),
        }
    }
    for (buckets, totals) in series.values() {
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{name}: {buckets:?}");
        assert_eq!(buckets.last().map(|(bound, count)| (*bound, *count)), Some((f64::INFINITY, totals[0])), "{name}");
    }
}

#[test]
fn metrics_tell_what_the_service_does() {
    let service = FakeService::new(&["door"]);
    service.change("door", |status| {
        status.latency = None;
        status.asks.push(asked("A van."));
        status.cause = Some(Cause::Tls);
        let again = Published { sent: 1, dropped: 2, connected: false, ..status.published[0].clone() };
        status.published.extend([again, published(Some("lines"), "mqtt://me@broker/t")]);
    });
    *service.identities.lock().unwrap() = served().0;
    let server = serve(&service);
    let answer = get(&server, "/metrics").expect(200);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    let mut families = parse(answer.text());
    for (family, kind, samples) in [
        ("build_info", "gauge", &[concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1")][..]),
        ("ready", "gauge", &[" 1"]),
        ("configuration_refused", "gauge", &[" 0"]),
        ("cuda_contexts", "gauge", &[" 0"]),
        ("model_loaded", "gauge", &["{model=\"yolo\"} 1"]),
        ("model_build_progress", "gauge", &[]),
        ("model_verified", "gauge", &["{model=\"yolo\"} 1"]),
        ("model_failed", "gauge", &["{model=\"yolo\"} 0"]),
        ("model_batch_size", "gauge", &["{model=\"yolo\"} 8"]),
        ("model_runs_total", "counter", &["{model=\"yolo\"} 100"]),
        ("model_frames_total", "counter", &["{model=\"yolo\"} 650"]),
        ("model_late_runs_total", "counter", &["{model=\"yolo\"} 40"]),
        ("model_info", "gauge", &["{model=\"yolo\",file=\"yolo11n.onnx\",backend=\"tensorrt\",on=\"frames\"} 1"]),
        ("source_info", "gauge", &["{source=\"door\",model=\"yolo\"} 1"]),
        ("source_gpu", "gauge", &["{source=\"door\"} 1"]),
        (
            "source_state",
            "gauge",
            &[
                "{source=\"door\",state=\"connecting\"} 0",
                "{source=\"door\",state=\"running\"} 1",
                "{source=\"door\",state=\"waiting\"} 0",
                "{source=\"door\",state=\"ended\"} 0",
                "{source=\"door\",state=\"resting\"} 0",
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
        ("failed_recordings_total", "counter", &["{source=\"door\"} 2"]),
        ("last_frame_timestamp_seconds", "gauge", &["{source=\"door\"} 1700000000.25"]),
        ("latency_seconds", "histogram", &[]),
        (
            "camera_latency_seconds",
            "histogram",
            &[
                "_bucket{source=\"door\",le=\"0.001\"} 0",
                "_bucket{source=\"door\",le=\"0.0025\"} 0",
                "_bucket{source=\"door\",le=\"0.005\"} 0",
                "_bucket{source=\"door\",le=\"0.01\"} 1",
                "_bucket{source=\"door\",le=\"0.025\"} 2",
                "_bucket{source=\"door\",le=\"0.05\"} 3",
                "_bucket{source=\"door\",le=\"0.1\"} 3",
                "_bucket{source=\"door\",le=\"0.25\"} 3",
                "_bucket{source=\"door\",le=\"0.5\"} 3",
                "_bucket{source=\"door\",le=\"1\"} 3",
                "_bucket{source=\"door\",le=\"2.5\"} 3",
                "_bucket{source=\"door\",le=\"10\"} 3",
                "_bucket{source=\"door\",le=\"+Inf\"} 4",
                "_sum{source=\"door\"} 16.0546875",
                "_count{source=\"door\"} 4",
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
            "zone_passages_total",
            "counter",
            &[
                "{source=\"door\",zone=\"hall\",direction=\"in\"} 4",
                "{source=\"door\",zone=\"hall\",direction=\"out\"} 1",
            ],
        ),
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
        ("snapshots_total", "counter", &["{source=\"door\"} 7"]),
        ("snapshots_dropped_total", "counter", &["{source=\"door\"} 2"]),
        ("snapshots_limited_total", "counter", &["{source=\"door\"} 1"]),
        ("known_identities", "gauge", &[" 2"]),
        ("identities_total", "counter", &[" 2"]),
        ("identity_matches_total", "counter", &[" 1"]),
        ("identity_corrections_total", "counter", &[" 0"]),
        (
            "identities_forgotten_total",
            "counter",
            &["{reason=\"age\"} 0", "{reason=\"room\"} 0", "{reason=\"deleted\"} 0", "{reason=\"model\"} 0"],
        ),
        ("identity_refusals_total", "counter", &["{reason=\"room\"} 0", "{reason=\"model\"} 0"]),
        ("asked_total", "counter", &["{source=\"door\",ask=\"what\"} 9"]),
        ("answered_total", "counter", &["{source=\"door\",ask=\"what\"} 5"]),
        ("ask_failed_total", "counter", &["{source=\"door\",ask=\"what\"} 2"]),
        ("ask_dropped_total", "counter", &["{source=\"door\",ask=\"what\"} 1"]),
        ("ask_limited_total", "counter", &["{source=\"door\",ask=\"what\"} 30"]),
    ] {
        let expected: Vec<_> = samples.iter().map(|sample| format!("gst_trt_{family}{sample}")).collect();
        assert_eq!(families[&format!("gst_trt_{family}")], (kind.to_string(), expected), "{family}");
    }
    let dwell = &families["gst_trt_zone_dwell_seconds"].1;
    assert!(
        dwell.contains(&"gst_trt_zone_dwell_seconds_bucket{source=\"door\",zone=\"hall\",le=\"10\"} 1".to_string())
    );
    if cfg!(target_env = "gnu") {
        for family in ["gst_trt_heap_bytes", "gst_trt_heap_in_use_bytes"] {
            let (kind, samples) = families.remove(family).unwrap();
            assert!(kind == "gauge" && samples.len() == 1, "{family} {kind} {samples:?}");
        }
    }
    let (ours, process): (Vec<_>, Vec<_>) = families.keys().partition(|name| name.starts_with("gst_trt_"));
    assert_eq!(ours.len(), 63, "each is in the table above: {ours:?}");
    assert!(process.len() == 7 && process.iter().all(|name| name.starts_with("process_")), "{process:?}");
}

/// However many classes a model has, a zone has few samples, and no object is lost.
#[test]
fn classes_beyond_a_hundred_are_one() {
    let service = FakeService::new(&["door"]);
    service.change("door", |status| {
        status.zones[0].objects = (0..1000).map(|class| (format!("class-{class:04}"), 2)).collect();
        // What trtanalytics counts together is of them.
        status.zones[0].objects.insert("(others)".into(), 5);
    });
    let families = parse(get(&serve(&service), "/metrics").expect(200).text());
    let samples = &families["gst_trt_zone_objects"].1;
    assert_eq!(samples.len(), 101);
    assert_eq!(samples[100], "gst_trt_zone_objects{source=\"door\",zone=\"hall\",class=\"(others)\"} 1805");
}

/// Where it is installed, Prometheus' own tool reads all of it, and has nothing against a name or a text.
#[test]
fn promtool_finds_nothing_wrong() {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = promtool.spawn() else { return println!("SKIP: promtool is not installed.") };
    let server = serve(&FakeService::new(&["door", "a \"quoted\\name\"\nin two lines}, ä {"]));
    promtool.stdin.take().unwrap().write_all(&get(&server, "/metrics").body).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
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
        format!("histogram gst_trt_latency_seconds_count {quoted} 4.0"),
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
