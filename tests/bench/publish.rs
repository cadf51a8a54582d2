// SPDX-License-Identifier: MPL-2.0
//! Streams that publish to mosquitto and to redis-server, which both stop for a while.
//!
//! `cargo bench --bench publish -- [streams=16] [seconds=300] [outage=30] [objects=10]`
//!
//! Each stream has 30 frames a second, and each frame goes through two trtpublish, one for each server. A third into the run
//! mosquitto is told to stop, redis-server is killed, and both are started again after the outage. Every second stream may
//! queue all messages of the outage, the others a third of them: those have to drop, and to count what they drop.
//!
//! What is checked: all that was not dropped has arrived once and in order; what is missing is what `stats` counts; the heap
//! is no larger at the end than when the outage was made up for, and hardly larger than before it, since queues keep some of
//! their room. What is printed besides: how much later frames come out than they went in. Exit status 1 where a check fails,
//! or a frame is later than 1 ms by the processor time that publishing takes; each of these is printed, with its page faults,
//! and at the same time a computation of about the same length.
//!
//! Needs Debian's mosquitto, redis-server, redis-tools and python3-paho-mqtt.

#[path = "../common/brokers.rs"]
#[allow(dead_code)] // the tests use more of it
mod brokers;
#[path = "../../core/tests/common/heap.rs"]
mod heap;
#[path = "../../core/tests/common/port.rs"]
mod port;
#[path = "../../core/tests/common/wait.rs"]
mod wait;

use std::collections::HashMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brokers::Printed;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use serde_json::Value;

const FPS: u64 = 30;
const LATEST: Duration = Duration::from_millis(1);

struct Arguments(HashMap<String, u64>);

impl Arguments {
    fn read() -> Self {
        let pair = |argument: String| {
            let (name, value) = argument.split_once('=')?;
            Some((name.to_string(), value.parse().ok()?))
        };
        Arguments(std::env::args().skip(1).filter_map(pair).collect())
    }

    fn get(&self, name: &str, default: u64) -> u64 {
        self.0.get(name).copied().unwrap_or(default)
    }
}

/// Of all frames, by the clock and by the processor.
#[derive(Default)]
struct Delays {
    wall: Vec<Duration>,
    processor: Vec<Duration>,
    /// Those that took the processor too long.
    late: Vec<String>,
    /// Processor time of [`compute`] behind each frame.
    control: Vec<Duration>,
}

/// Takes about as long as publishing a frame, and calls nothing: where this takes the processor more than 1 ms now and then, so does
/// anything on that machine. Virtual ones count time that the host has taken away.
fn compute() -> u64 {
    let next = |state: u64, step: u64| black_box(state.wrapping_mul(6_364_136_223_846_793_005) % (step + 3) + step);
    (0..black_box(11_000)).fold(1, next)
}

/// What a thread has taken.
#[derive(Clone, Copy)]
struct Taken {
    at: Instant,
    processor: Duration,
    page_faults: i64,
    /// How often it was interrupted for another.
    interruptions: i64,
}

impl Taken {
    /// By this thread so far.
    fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a structure of numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the clock and the counters exist for each thread, and the structures are ours.
        unsafe {
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        }
        let processor = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        Taken { at: Instant::now(), processor, page_faults: usage.ru_minflt, interruptions: usage.ru_nivcsw }
    }
}

struct Stream {
    pipeline: gst::Pipeline,
    source: gst_app::AppSrc,
    publishers: [gst::Element; 2],
}

impl Stream {
    fn new(number: u64, ports: [u16; 2], max_queued: u64, delays: &Arc<Mutex<Delays>>) -> Self {
        let line = format!(
            "appsrc name=source format=time is-live=true caps=video/x-raw,format=NV12,width=640,height=480,framerate=30/1 \
             ! trtpublish name=mqtt source-id={number} max-queued={max_queued} \
             location=\"mqtt://localhost:{}/bench/{number}?qos=2&clean-session=false&client-id=bench-{number}\" \
             ! trtpublish name=redis source-id={number} max-queued={max_queued} location=\"redis://localhost:{}/{number}?maxlen=0\" \
             ! fakesink sync=false",
            ports[0], ports[1]
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let [source, mqtt, redis] = ["source", "mqtt", "redis"].map(|name| pipeline.by_name(name).unwrap());
        let entered = Arc::new(Mutex::new(Taken::now()));
        let begin = entered.clone();
        mqtt.static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            *begin.lock().unwrap() = Taken::now();
            gst::PadProbeReturn::Ok
        });
        let delays = delays.clone();
        redis.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let (before, after) = (*entered.lock().unwrap(), Taken::now());
            let (wall, processor) = (after.at - before.at, after.processor - before.processor);
            black_box(compute());
            let control = Taken::now().processor - after.processor;
            let mut delays = delays.lock().unwrap();
            delays.control.push(control);
            delays.wall.push(wall);
            delays.processor.push(processor);
            if processor > LATEST {
                let at = info.buffer().and_then(|buffer| buffer.pts()).unwrap_or_default();
                delays.late.push(format!(
                    "stream {number}, frame at {at:.1}: {processor:?}, {} page faults, {} interruptions",
                    after.page_faults - before.page_faults,
                    after.interruptions - before.interruptions
                ));
            }
            gst::PadProbeReturn::Ok
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        Stream { pipeline, source: source.downcast().unwrap(), publishers: [mqtt, redis] }
    }

    fn count(&self, publisher: usize, name: &str) -> u64 {
        self.publishers[publisher].property::<gst::Structure>("stats").get(name).unwrap()
    }
}

fn frame(number: u64, objects: u64) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    let writable = buffer.get_mut().unwrap();
    writable.set_pts(gst::ClockTime::from_nseconds(number * 1_000_000_000 / FPS));
    for object in 0..objects {
        let x = object * 60 + number % 50;
        let mut region = VideoRegionOfInterestMeta::add(writable, "person", (x as u32, 100, 50, 120));
        let detection = gst::Structure::builder("detection").field("label_id", 0).field("confidence", 0.9);
        let share = |at: u64, side: u64| at as f64 / side as f64;
        let detection = detection.field("x_min", share(x, 640)).field("y_min", share(100, 480));
        region.add_param(detection.field("x_max", share(x + 50, 640)).field("y_max", share(220, 480)).build());
        region.add_param(gst::Structure::builder("object_id").field("id", object as i32 + 1).build());
    }
    buffer
}

/// What has come of a stream.
#[derive(Default)]
struct Arrived {
    count: u64,
    last: Option<u64>,
    /// Not newer than the one before.
    wrong: u64,
}

impl Arrived {
    fn add(&mut self, frame: u64) {
        self.wrong += u64::from(self.last.is_some_and(|last| frame <= last));
        (self.count, self.last) = (self.count + 1, Some(frame));
    }
}

fn add(arrived: &mut [Arrived], line: &str) {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let stream: usize = line["source-id"].as_str().unwrap().parse().unwrap();
    arrived[stream].add(line["frame"].as_u64().unwrap());
}

fn quantile(sorted: &[Duration], share: f64) -> f64 {
    sorted
        .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
        .map_or(0.0, Duration::as_secs_f64)
        * 1e3
}

fn print_delays(what: &str, delays: &mut [Duration]) -> u64 {
    delays.sort();
    let late = delays.iter().filter(|delay| **delay > LATEST).count() as u64;
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| quantile(delays, share));
    println!(
        "{what:<24} p50 {p50:.3} ms, p99 {p99:.3} ms, longest {max:.3} ms, {late} of {} beyond 1 ms",
        delays.len()
    );
    late
}

fn main() -> ExitCode {
    if let Err(error) = heap::without_caches() {
        eprintln!("The program cannot be restarted without caches of threads, which would count as allocated: {error}");
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::read();
    let (streams, seconds) = (arguments.get("streams", 16), arguments.get("seconds", 300));
    let (outage, objects) = (arguments.get("outage", 30), arguments.get("objects", 10));
    if !["mosquitto", "redis-server", "redis-cli"].into_iter().all(brokers::is_installed) {
        return ExitCode::FAILURE;
    }
    gst::init().unwrap();
    gsttrt::plugin_register_static().unwrap();
    let folder = std::env::temp_dir().join(format!("gsttrt-publish-{}", std::process::id()));
    let [mqtt_folder, redis_folder] = ["mqtt", "redis"].map(|name| folder.join(name));
    [&mqtt_folder, &redis_folder].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    let mut mosquitto = brokers::mosquitto_that_saves(&mqtt_folder, "allow_anonymous true");
    let mut redis = brokers::redis(&redis_folder, "");
    let subscriber = Printed::of_script("bench/mqtt_subscriber.py", &[&mosquitto.port.to_string(), "bench/#"]);
    assert_eq!(subscriber.next(), "subscribed");

    let delays = Arc::new(Mutex::new(Delays::default()));
    let total = seconds * FPS;
    // Memory for what is measured is not to look like a leak.
    let mut reserved = delays.lock().unwrap();
    reserved.wall.reserve((total * streams) as usize);
    reserved.processor.reserve((total * streams) as usize);
    reserved.control.reserve((total * streams) as usize);
    drop(reserved);
    // Connecting again takes up to 10 s.
    let enough = (outage + 20) * FPS;
    let max_queued = |number: u64| if number.is_multiple_of(2) { enough } else { outage * FPS / 3 };
    let ports = [mosquitto.port, redis.port];
    let all: Vec<Stream> = (0..streams).map(|number| Stream::new(number, ports, max_queued(number), &delays)).collect();
    let (mut by_mqtt, mut by_redis) = ((0..streams).map(|_| Arrived::default()).collect::<Vec<_>>(), Vec::new());
    let begun = Instant::now();
    let (mut heap_before, mut heap_between) = (0, 0);
    for number in 0..total {
        if number == total / 3 {
            heap_before = heap::allocated();
            println!("{} s: the servers stop", begun.elapsed().as_secs());
            mosquitto.stop();
            redis.kill();
        }
        if number == total * 2 / 3 {
            heap_between = heap::allocated();
        }
        if number == total / 3 + outage * FPS {
            println!("{} s: the servers start again", begun.elapsed().as_secs());
            mosquitto.start();
            redis.start();
        }
        for stream in &all {
            stream.source.push_buffer(frame(number, objects)).unwrap();
        }
        subscriber.now().iter().for_each(|line| add(&mut by_mqtt, line));
        // The pace of a camera, whatever this thread takes itself.
        let due = Duration::from_nanos((number + 1) * 1_000_000_000 / FPS);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    for (publisher, name) in ["mosquitto", "redis"].iter().enumerate() {
        let is_done = || {
            all.iter()
                .all(|stream| stream.count(publisher, "queued") == 0 && stream.count(publisher, "frames") == total)
        };
        brokers::until(&format!("all is sent to {name}"), is_done);
    }
    let heap_after = heap::allocated();
    let dropped = |publisher: usize| all.iter().map(|stream| stream.count(publisher, "dropped")).collect::<Vec<_>>();
    let dropped = [dropped(0), dropped(1)];
    let missing = |arrived: &[Arrived]| {
        arrived.iter().zip(&dropped[0]).map(|(a, d)| total - d.min(&total) - a.count.min(total - d)).sum::<u64>()
    };
    let waited = Instant::now();
    while missing(&by_mqtt) > 0 && waited.elapsed() < brokers::LIMIT {
        subscriber.now().iter().for_each(|line| add(&mut by_mqtt, line));
        std::thread::sleep(Duration::from_millis(10));
    }
    for number in 0..streams {
        let found: Value =
            serde_json::from_str(&brokers::redis_cli(redis.port, &["XRANGE", &number.to_string(), "-", "+"])).unwrap();
        let mut arrived = Arrived::default();
        for entry in found.as_array().unwrap() {
            let line: Value = serde_json::from_str(entry[1][1].as_str().unwrap()).unwrap();
            arrived.add(line["frame"].as_u64().unwrap());
        }
        by_redis.push(arrived);
    }
    all.iter().for_each(|stream| assert!(stream.pipeline.set_state(gst::State::Null).is_ok()));

    let mut is_good = true;
    println!("{streams} streams, {total} frames each, {objects} objects a frame, servers away for {outage} s");
    for (name, arrived, dropped) in
        [("mosquitto, QoS 2", &by_mqtt, &dropped[0]), ("redis stream", &by_redis, &dropped[1])]
    {
        let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.sum::<u64>();
        let (came, wrong) = (sum(&mut arrived.iter().map(|a| a.count)), sum(&mut arrived.iter().map(|a| a.wrong)));
        let gone = sum(&mut dropped.iter().copied());
        let within = sum(&mut dropped.iter().copied().step_by(2));
        let unexplained = arrived.iter().zip(dropped).filter(|(a, d)| a.count + **d != total).count();
        println!(
            "{name:<24} {came} arrived, {wrong} twice or out of order, {gone} dropped ({within} where all fit), {unexplained} streams where these do not add up"
        );
        is_good &= wrong == 0 && unexplained == 0 && within == 0;
    }
    let mut delays = delays.lock().unwrap();
    print_delays("both elements, clock", &mut delays.wall);
    is_good &= print_delays("… processor time", &mut delays.processor) == 0;
    delays.late.iter().for_each(|late| println!("  {late}"));
    print_delays("… of a computation alone", &mut delays.control);
    println!(
        "heap                     {heap_before} bytes before the outage, {heap_between} at two thirds, {heap_after} at the end"
    );
    is_good &= heap_after < heap_before + (4 << 20) && heap_after < heap_between + (1 << 19);
    let _ = std::fs::remove_dir_all(&folder);
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
