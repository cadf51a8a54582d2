// SPDX-License-Identifier: MPL-2.0
//! Brokers that misbehave, all at once next to a good one: nothing is lost there, memory and threads stay few, and the
//! pipeline stops. `HOSTILE_SECONDS=60` goes on for so long, and prints figures.
#![cfg(all(feature = "mqtt", feature = "redis", feature = "http"))]

use std::time::{Duration, Instant};

use crate::common::brokers::{LIMIT, until};
use crate::common::hostile_brokers::{self, GoodBroker};
use crate::common::scratch;
use gst::prelude::*;
use serde_json::Value;

/// Bytes that all of them together may take: 64 MiB.
const MEMORY: u64 = 64 << 20;

/// A line of this process's status, in bytes.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Threads of publishers.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "trtpublish").count()
}

/// Processor time of this process, in seconds.
fn processor_time() -> f64 {
    // SAFETY: the structure lives during the call, and all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6).sum()
}

#[test]
fn hostile_brokers_harm_nobody_else() {
    crate::common::init();
    let seconds = std::env::var("HOSTILE_SECONDS").map_or(0, |text| text.parse().expect("a number of seconds"));
    let (good, brokers) = (GoodBroker::new(), hostile_brokers::all());
    let listener = std::os::unix::net::UnixListener::bind(scratch("publish-hostile").join("socket")).unwrap();
    let socket = listener.local_addr().unwrap().as_pathname().unwrap().display().to_string();
    let unix = format!("unix:{socket}");

    let mut line =
        "appsrc name=source format=time max-buffers=100 block=true caps=video/x-raw,format=NV12,width=64,height=48,framerate=30/1 \
         ! trtpublish name=good add-empty-results=true drop=block flush-timeout=30000000000 "
            .to_string();
    for number in 0..=brokers.len() {
        line.push_str(&format!(
            "! trtpublish name=hostile{number} add-empty-results=true max-queued=20 max-reconnect-interval=100000000 \
             timeout=300000000 flush-timeout=100000000 "
        ));
    }
    let pipeline = gst::parse::launch(&format!("{line} ! fakesink sync=false")).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let element = |name: &str| pipeline.by_name(name).unwrap();
    element("good").set_property("location", &good.location);
    let locations = brokers.iter().map(|broker| &broker.location).chain([&unix]);
    locations
        .enumerate()
        .for_each(|(at, location)| element(&format!("hostile{at}")).set_property("location", location));
    let source = element("source").downcast::<gst_app::AppSrc>().unwrap();

    let before = memory("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let begun = Instant::now();
    let mut frames = 0;
    let mut push = || {
        let mut buffer = gst::Buffer::new();
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(frames * 33));
        frames += 1;
        source.push_buffer(buffer).unwrap();
    };
    let limit = LIMIT * 2 + Duration::from_secs(seconds);
    crate::common::wait::wait_until("each broker is met again", limit, || {
        push();
        brokers.iter().all(|broker| broker.connections() > 1) && begun.elapsed().as_secs() >= seconds
    });
    source.end_of_stream().unwrap();
    let bus = pipeline.bus().unwrap();
    let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(120), &[gst::MessageType::Eos]);
    assert!(end.is_some(), "the end");
    let highest = memory("VmHWM").saturating_sub(before);
    let stopping = Instant::now();
    pipeline.set_state(gst::State::Null).unwrap();
    let stopped = stopping.elapsed();
    until("no thread is left", || threads() == 0);

    let number = |text: String| serde_json::from_str::<Value>(&text).unwrap()["frame"].as_u64().unwrap();
    let received: Vec<u64> = good.take().into_iter().map(number).collect();
    assert_eq!(received, (0..frames).collect::<Vec<_>>(), "the good one has all, once, in order");
    assert!(highest < MEMORY, "{} MiB more", highest >> 20);
    if seconds > 0 {
        for broker in &brokers {
            println!("{}: {} connections", broker.name, broker.connections());
        }
        println!(
            "{} brokers, {frames} frames in {:.1} s, {} MiB more at most, {:.2} s of the processor a second, NULL after {:.2} s",
            brokers.len() + 1,
            begun.elapsed().as_secs_f64(),
            highest >> 20,
            processor_time() / begun.elapsed().as_secs_f64(),
            stopped.as_secs_f64(),
        );
    }
}
