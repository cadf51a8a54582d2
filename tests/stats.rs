// SPDX-License-Identifier: MPL-2.0
//! What the elements say of frames: their `stats`, latency, and GStreamer's tracers. Times are compared with each other
//! only.

use std::process::Command;

use crate::common::boxes::{Line, SIDE, grey, model};
use crate::common::{init, registry, run, scratch};
use gst::prelude::*;

const ELEMENTS: [&str; 3] = ["trtpreprocess", "trtinfer", "trtnms"];
const ROWS: [[f32; 6]; 2] = [[4.0, 4.0, 20.0, 20.0, 0.9, 0.0], [30.0, 30.0, 60.0, 60.0, 0.8, 2.0]];

fn stats(element: &gst::Element) -> gst::Structure {
    element.property("stats")
}

fn count(stats: &gst::Structure, field: &str) -> u64 {
    stats.get(field).unwrap_or_else(|error| panic!("{error} in {stats}"))
}

fn counts<const N: usize>(line: &mut Line, element: &str, fields: [&str; N]) -> [u64; N] {
    let stats = stats(&line.element(element));
    fields.map(|field| count(&stats, field))
}

fn frame() -> gst::Buffer {
    grey(SIDE * SIDE * 3)
}

#[test]
fn frames_and_objects_are_counted() {
    let model = model(&scratch("stats-counts"), &ROWS);
    let mut line =
        Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms hold-detections=false"));
    let found: usize = (0..7).map(|_| line.found().len()).sum();
    assert_eq!(found, 6, "frames 0, 3 and 6 have two each");
    assert_eq!(counts(&mut line, "trtpreprocess", ["frames"]), [7]);
    assert_eq!(counts(&mut line, "trtinfer", ["frames", "inferred", "skipped"]), [7, 3, 4]);
    assert_eq!(counts(&mut line, "trtnms", ["frames", "skipped", "objects"]), [7, 4, 6]);

    line.nms().set_property("score-threshold", 0.85f32);
    let more: usize = (0..3).map(|_| line.found().len()).sum();
    assert_eq!(more, 1, "the other is too weak");
    assert_eq!(counts(&mut line, "trtnms", ["frames", "skipped", "objects"]), [10, 6, 7]);
}

#[test]
fn times_are_in_order() {
    let mut line = Line::new(&model(&scratch("stats-times"), &ROWS), "");
    for _ in 0..50 {
        line.found();
    }
    for element in ELEMENTS {
        let stats = stats(&line.element(element));
        let time = |field: &str| stats.get::<f64>(field).unwrap();
        let quantiles = ["p50-ms", "p95-ms", "p99-ms", "max-ms"].map(time);
        assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{element}: {stats}");
        let within = |field| time(field) > 0.0 && time(field) <= time("max-ms");
        assert!(within("mean-ms") && within("last-ms"), "{element}: {stats}");
    }
}

#[test]
fn on_the_cpu_nothing_waits_for_a_gpu_or_goes_there() {
    let mut line = Line::new(&model(&scratch("stats-cpu"), &ROWS), "");
    line.found();
    for element in ELEMENTS {
        assert_eq!(counts(&mut line, element, ["bytes-uploaded", "bytes-downloaded"]), [0, 0], "{element}");
        let stats = stats(&line.element(element));
        assert_eq!(["wait-mean-ms", "wait-p99-ms"].map(|field| stats.get::<f64>(field).unwrap()), [0.0, 0.0]);
    }
}

#[test]
fn a_running_line_takes_its_tensors_from_the_pool() {
    let mut line = Line::new(&model(&scratch("stats-pool"), &ROWS), "");
    for frames in 1..=20 {
        line.found();
        for element in ["trtpreprocess", "trtinfer"] {
            let [hits, misses] = counts(&mut line, element, ["pool-hits", "pool-misses"]);
            assert_eq!([hits, misses], [frames - 1, 1], "one tensor a frame, back in the pool before the next");
        }
    }
}

#[test]
fn tensors_that_are_kept_are_missing_in_the_pool() {
    let mut line = Line::parse("trtpreprocess tensor-size=64x64");
    let kept: Vec<_> = (0..4).map(|_| line.push(frame())).collect();
    assert_eq!(counts(&mut line, "trtpreprocess", ["pool-hits", "pool-misses"]), [0, 4]);
    drop(kept);
    let _kept: Vec<_> = (0..5).map(|_| line.push(frame())).collect();
    assert_eq!(counts(&mut line, "trtpreprocess", ["pool-hits", "pool-misses"]), [4, 5]);
}

/// Our elements behind a test source.
fn pipeline(source: &str, elements: &str) -> gst::Pipeline {
    init();
    let line = format!(
        "videotestsrc {source} ! video/x-raw,format=RGB,width=64,height=64,framerate=20/1 ! {elements} ! fakesink sync=true"
    );
    gst::parse::launch(&line).unwrap().downcast().unwrap()
}

fn ours(model: &str) -> String {
    format!("trtpreprocess name=trtpreprocess ! trtinfer name=trtinfer model-file={model} ! trtnms name=trtnms")
}

#[test]
fn all_counts_start_at_zero() {
    let model = model(&scratch("stats-restart"), &ROWS);
    let pipeline = pipeline("num-buffers=2", &ours(&model));
    let elements = ELEMENTS.map(|element| pipeline.by_name(element).unwrap());
    let seen = || elements.each_ref().map(|element| count(&stats(element), "frames"));
    assert_eq!(seen(), [0; 3]);
    for _ in 0..2 {
        run(&pipeline).expect_success();
        assert_eq!(seen(), [2; 3], "to be read after the end");
        assert_eq!(count(&stats(&elements[2]), "objects"), 4);
    }
}

/// What a pipeline with a live source and these elements answers: whether it is live, its least and its greatest latency.
fn latency(elements: &str) -> (bool, gst::ClockTime, Option<gst::ClockTime>) {
    let pipeline = pipeline("is-live=true", elements);
    pipeline.set_state(gst::State::Playing).unwrap();
    let playing = pipeline.state(gst::ClockTime::from_seconds(60));
    assert_eq!(playing.1, gst::State::Playing, "{playing:?}");
    let mut query = gst::query::Latency::new();
    assert!(pipeline.query(&mut query));
    pipeline.set_state(gst::State::Null).unwrap();
    query.result()
}

#[test]
fn latency_is_that_of_the_others() {
    let model = model(&scratch("stats-latency"), &ROWS);
    let (before, after) = ("queue min-threshold-time=100000000", "queue min-threshold-time=50000000");
    let others = latency(&format!("{before} ! {after}"));
    assert!(others.0 && others.1 >= gst::ClockTime::from_mseconds(150), "{others:?}");
    assert_eq!(latency(&format!("{before} ! {} ! {after}", ours(&model))), others);
}

/// What the tracers log of a launch line; `None` where it does not come to its end in so many seconds.
fn traced(tracers: &str, seconds: u32, line: &str) -> Option<String> {
    let output = Command::new("timeout")
        .args([&seconds.to_string(), "gst-launch-1.0"])
        .args(line.split_whitespace())
        .env("GST_PLUGIN_PATH", std::env::current_exe().unwrap().ancestors().nth(2).unwrap())
        .env("GST_REGISTRY", registry())
        .envs([("GST_TRACERS", tracers), ("GST_DEBUG", "GST_TRACER:7"), ("GST_DEBUG_NO_COLOR", "1")])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(124) => None,
        Some(0) => Some(log),
        _ => panic!("{log}"),
    }
}

#[test]
fn tracers_of_gstreamer_see_the_elements() {
    let folder = scratch("stats-tracers");
    let model = model(&folder, &ROWS);
    let line = format!(
        "videotestsrc num-buffers=5 ! video/x-raw,format=RGB,width=64,height=64 ! {} ! fakesink name=end",
        ours(&model)
    );
    let lines =
        |log: &str, parts: &[&str]| log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
    let log = traced("stats", 60, &line).expect("an end");
    assert!(lines(&log, &[" buffer, "]) >= 4 * 5, "five frames on four links: {log}");

    let latency = "latency(flags=pipeline+element)";
    if traced(latency, 10, "videotestsrc num-buffers=1 ! fakesink").is_none() {
        // That of 1.26.2 waits for a lock that its own thread holds.
        println!("SKIP: the latency tracer of {} ends no pipeline at all", gst::version_string());
        return;
    }
    let log = traced(latency, 60, &line).expect("an end");
    assert_eq!(lines(&log, &[" latency, ", "sink-element=(string)end"]), 5, "{log}");
    for element in ELEMENTS {
        let element = format!("element=(string){element},");
        assert!(lines(&log, &[" element-latency, ", &element]) >= 4, "{log}");
    }
}
