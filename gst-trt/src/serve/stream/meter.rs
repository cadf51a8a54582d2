// SPDX-License-Identifier: MPL-2.0
//! What is counted and measured of a source, over all its restarts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gst::prelude::*;
use gsttrt_core::redact::redacted;

use super::super::control::{
    LineStatus, Published, Quantiles, SnapshotCounts, SourceStatus, State, Summary, ZoneStatus,
};
use super::super::histogram::{Histogram, LATENCIES, STAYS};
use super::super::record::{Disk, Recorder};
use super::counted::{objects_in, structures};
use super::dropped::FrameCounts;
use crate::cause::{Cause, SourceFailure};
use crate::serve::config::{PublishConfig, SourceConfig};

/// The newest frames that latency and rate are taken of; and how many may be under way.
const KEPT: usize = 1024;
/// The rate is that of so long.
const RATE_OVER: Duration = Duration::from_secs(5);

/// As trtanalytics calls them.
const DIRECTIONS: [&str; 2] = ["forward", "backward"];

/// Shared by the threads of a source and those that ask for its status.
#[derive(Default)]
pub struct Meter(Mutex<MeterState>);

struct MeterState {
    state: Option<State>,
    failure: Option<SourceFailure>,
    /// How often it has failed, by the cause.
    failures: BTreeMap<Cause, u64>,
    /// Since when there are no frames because of a failure.
    failing: Option<Instant>,
    restarts: u64,
    /// Pipelines that do not stop.
    left_behind: usize,
    frames: u64,
    dropped: u64,
    objects: u64,
    events: BTreeMap<String, u64>,
    /// Crossings of lines, forward and backward.
    lines: BTreeMap<String, [u64; 2]>,
    zones: BTreeMap<String, ZonePassage>,
    latency: Histogram,
    from_camera: Histogram,
    last_frame: Option<SystemTime>,
    /// Of destinations, before this run.
    published: BTreeMap<DestinationKey, SentCounts>,
    left: VecDeque<Left>,
    run: Option<MeteredRun>,
    disk: Option<Disk>,
    /// Of disks before this one.
    failed_recordings: u64,
}

impl Default for MeterState {
    fn default() -> Self {
        MeterState {
            state: None,
            failure: None,
            failures: BTreeMap::new(),
            failing: None,
            restarts: 0,
            left_behind: 0,
            frames: 0,
            dropped: 0,
            objects: 0,
            events: BTreeMap::new(),
            lines: BTreeMap::new(),
            zones: BTreeMap::new(),
            latency: Histogram::new(LATENCIES),
            from_camera: Histogram::new(LATENCIES),
            last_frame: None,
            published: BTreeMap::new(),
            left: VecDeque::new(),
            run: None,
            disk: None,
            failed_recordings: 0,
        }
    }
}

/// A destination over all runs: its name, its location as it is shown, and its number among those that share both.
pub type DestinationKey = (Option<String>, String, usize);

/// The destinations of a source, in order.
pub fn destination_keys(publish: &[PublishConfig]) -> Vec<DestinationKey> {
    let mut keys = Vec::<DestinationKey>::new();
    for PublishConfig { name, properties, .. } in publish {
        let location = redacted(properties.get("location").unwrap_or_default());
        let number = keys.iter().filter(|(other, at, _)| other == name && *at == location).count();
        keys.push((name.clone(), location, number));
    }
    keys
}

/// What a destination has taken.
#[derive(Clone, Copy, Default)]
struct SentCounts {
    sent: u64,
    dropped: u64,
    is_connected: bool,
}

/// What has passed through a zone.
struct ZonePassage {
    entered: u64,
    left: u64,
    dwell: Histogram,
}

impl Default for ZonePassage {
    fn default() -> Self {
        ZonePassage { entered: 0, left: 0, dwell: Histogram::new(STAYS) }
    }
}

/// A frame that has its results.
struct Left {
    at: Instant,
    /// Seconds since it came from the decoder, where that is known.
    latency: Option<f64>,
    /// Seconds since the camera captured it, where it says when that was.
    from_camera: Option<f64>,
}

/// What belongs to the pipeline that runs.
struct MeteredRun {
    elements: MeteredElements,
    /// Frames that have come and have not left the queue where old ones are dropped.
    waiting: VecDeque<Arrival>,
    /// Those between that queue and their results.
    under_way: VecDeque<Arrival>,
    arrived: u64,
    frames: u64,
    begun: Instant,
    last_arrival: Option<Instant>,
}

/// A frame by its time stamp, and when it came.
type Arrival = (Option<gst::ClockTime>, Instant);

/// The elements that know a part of it.
pub struct MeteredElements {
    /// The queue where frames come in.
    pub frames: gst::Element,
    pub infer: gst::Element,
    pub analytics: Option<gst::Element>,
    pub publish: Vec<(DestinationKey, gst::Element)>,
    pub recorder: Option<Recorder>,
}

impl Meter {
    fn lock(&self) -> MutexGuard<'_, MeterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pipeline is started.
    pub fn begin(&self, elements: MeteredElements) {
        let mut counts = self.lock();
        counts.state = Some(State::Connecting);
        counts.run = Some(MeteredRun {
            elements,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            arrived: 0,
            frames: 0,
            begun: Instant::now(),
            last_arrival: None,
        });
    }

    /// Where its recordings go from now on, over all its runs.
    pub fn record_to(&self, disk: &Disk) {
        let mut counts = self.lock();
        let former = counts.disk.replace(disk.clone());
        counts.failed_recordings += former.as_ref().map_or(0, Disk::failed);
    }

    /// It has ended: what it has counted stays.
    pub fn end(&self, state: State, failure: Option<SourceFailure>) {
        let mut counts = self.lock();
        counts.state = Some(state);
        if state == State::Resting {
            (counts.failure, counts.failing) = (None, None);
        }
        if let Some(failure) = failure {
            *counts.failures.entry(failure.cause).or_default() += 1;
            counts.failure = Some(failure);
            counts.failing = counts.failing.or(Some(Instant::now()));
        }
        counts.left.clear();
        let Some(run) = counts.run.take() else { return };
        for (destination, now) in run.published() {
            let all = counts.published.entry(destination).or_default();
            (all.sent, all.dropped) = (all.sent + now.sent, all.dropped + now.dropped);
        }
    }

    pub fn restart(&self) {
        self.lock().restarts += 1;
    }

    /// A frame comes from the decoder.
    pub fn arrive(&self, time: Option<gst::ClockTime>) {
        let mut counts = self.lock();
        let Some(run) = &mut counts.run else { return };
        let now = Instant::now();
        run.last_arrival = Some(now);
        run.arrived += 1;
        run.waiting.push_back((time, now));
        if run.waiting.len() > KEPT {
            run.waiting.pop_front();
            counts.dropped += 1;
        }
    }

    /// A frame leaves the queue where old ones are dropped: those that came before it have been.
    pub fn enter(&self, time: Option<gst::ClockTime>) {
        let mut counts = self.lock();
        let Some(run) = &mut counts.run else { return };
        let position = run.waiting.iter().position(|(came, _)| *came == time).unwrap_or(0);
        let entered = run.waiting.drain(..(position + 1).min(run.waiting.len())).next_back();
        run.under_way.extend(entered);
        if run.under_way.len() > KEPT {
            run.under_way.pop_front();
        }
        counts.dropped += position as u64;
    }

    pub fn leave_behind(&self, pipelines: usize) {
        self.lock().left_behind = pipelines;
    }

    /// A frame has its results, so long after it was captured, where that is known. Returns how long the source has failed,
    /// with the first one after a failure.
    pub fn leave(&self, time: Option<gst::ClockTime>, objects: u64, from_camera: Option<Duration>) -> Option<Duration> {
        let mut counts = self.lock();
        let now = Instant::now();
        let run = counts.run.as_mut()?;
        run.frames += 1;
        // Frames are in their order, so those before it were lost on the way.
        let position = run.under_way.iter().position(|(came, _)| *came == time && time.is_some());
        let latency = position.and_then(|position| run.under_way.drain(..=position).next_back());
        let latency = latency.map(|(_, came)| (now - came).as_secs_f64());
        counts.state = Some(State::Running);
        counts.failure = None;
        counts.frames += 1;
        counts.objects = objects;
        if counts.left.len() == KEPT {
            counts.left.pop_front();
        }
        let from_camera = from_camera.map(|time| time.as_secs_f64());
        latency.into_iter().for_each(|latency| counts.latency.add(latency));
        from_camera.into_iter().for_each(|latency| counts.from_camera.add(latency));
        counts.last_frame = Some(SystemTime::now());
        counts.left.push_back(Left { at: now, latency, from_camera });
        counts.failing.take().map(|failing| now - failing)
    }

    /// The latency of each frame that has had its results since then, as far back as they are kept, in seconds.
    pub fn latencies_since(&self, since: Instant) -> Vec<f64> {
        self.lock().left.iter().filter(|left| left.at >= since).filter_map(|left| left.latency).collect()
    }

    /// Something that trtanalytics has seen.
    pub fn event(&self, event: &gst::StructureRef) {
        let Ok(kind) = event.get::<String>("event") else { return };
        let mut counts = self.lock();
        let name = event.get::<String>("name").unwrap_or_default();
        let direction = event.get::<&str>("direction").ok();
        if let Some(direction) = direction.and_then(|way| DIRECTIONS.iter().position(|name| *name == way)) {
            counts.lines.entry(name.clone()).or_default()[direction] += 1;
        }
        match kind.as_str() {
            "entered" => counts.zones.entry(name).or_default().entered += 1,
            "left" => {
                let zone = counts.zones.entry(name).or_default();
                zone.left += 1;
                let dwell = event.get::<u64>("dwell").ok().map(Duration::from_nanos);
                dwell.into_iter().for_each(|dwell| zone.dwell.add(dwell.as_secs_f64()));
            }
            _ => {}
        }
        *counts.events.entry(kind).or_default() += 1;
    }

    /// Frames with results in this run.
    pub fn frames_of_run(&self) -> u64 {
        self.lock().run.as_ref().map_or(0, |run| run.frames)
    }

    pub fn frame_counts(&self) -> FrameCounts {
        let counts = self.lock();
        FrameCounts { with_results: counts.frames, dropped: counts.dropped }
    }

    /// How long messages that still wait may take at the end of the run.
    pub fn flush_timeout(&self) -> Duration {
        let counts = self.lock();
        let elements = counts.run.iter().flat_map(|run| &run.elements.publish).map(|(_, element)| element);
        let waits = |element: &&gst::Element| {
            element.property::<gst::Structure>("stats").get::<u64>("queued").is_ok_and(|queued| queued > 0)
        };
        let time = |element: &gst::Element| Duration::from_nanos(element.property("flush-timeout"));
        elements.filter(waits).map(time).max().unwrap_or_default()
    }

    /// Whether frames that have come do not have their results: what reads a file waits for them then.
    pub fn is_busy(&self) -> bool {
        self.lock().run.as_ref().is_some_and(|run| run.arrived > run.frames)
    }

    /// How long no frame has come.
    pub fn silence(&self) -> Duration {
        let counts = self.lock();
        counts.run.as_ref().map_or(Duration::ZERO, |run| run.last_arrival.unwrap_or(run.begun).elapsed())
    }

    /// Whether a frame has come, or it is known that none comes.
    pub fn is_settled(&self) -> bool {
        let counts = self.lock();
        counts.frames > 0
            || counts.failure.is_some()
            || matches!(counts.state, Some(State::Waiting | State::Ended | State::Resting))
    }

    pub fn status(&self, config: &SourceConfig) -> SourceStatus {
        let counts = self.lock();
        let run = counts.run.as_ref();
        let of_run = run.map(MeteredRun::published).unwrap_or_default();
        let published = destination_keys(&config.publish).into_iter().map(|destination| {
            let of = |all: &BTreeMap<DestinationKey, SentCounts>| all.get(&destination).copied().unwrap_or_default();
            let (before, now) = (of(&counts.published), of(&of_run));
            let (sent, dropped) = (before.sent + now.sent, before.dropped + now.dropped);
            let (name, location, _) = destination;
            Published { name, location, sent, dropped, connected: now.is_connected }
        });
        let published = published.collect();
        SourceStatus {
            name: config.name.clone(),
            address: config.address.shown(),
            model: config.model.clone(),
            on_objects: config.on_objects.clone(),
            cuda_device_id: None,
            state: counts.state.unwrap_or(State::Connecting),
            error: counts.failure.as_ref().map(|failure| failure.text.clone()),
            cause: counts.failure.as_ref().map(|failure| failure.cause),
            failures: counts.failures.clone(),
            restarts: counts.restarts,
            left_behind: counts.left_behind,
            failed_recordings: counts.failed_recordings + counts.disk.as_ref().map_or(0, Disk::failed),
            recording: run.and_then(|run| run.elements.recorder.as_ref()).is_some_and(Recorder::is_recording),
            frames: counts.frames,
            dropped: counts.dropped,
            queued: run.map_or(0, MeteredRun::queued),
            fps: fps(&counts.left),
            last_frame: counts.last_frame.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()),
            latency: summary(counts.left.iter().filter_map(|left| left.latency), &counts.latency),
            latency_from_camera: summary(counts.left.iter().filter_map(|left| left.from_camera), &counts.from_camera),
            gpu: run.and_then(MeteredRun::gpu),
            objects: counts.objects,
            events: counts.events.clone(),
            zones: zones(run, &counts.zones),
            lines: lines(run, &counts.lines),
            published,
            asks: Vec::new(),
            snapshots: SnapshotCounts::default(),
            folders: config.folders(),
        }
    }
}

impl MeteredRun {
    fn queued(&self) -> u64 {
        self.elements.frames.property::<u32>("current-level-buffers").into()
    }

    fn published(&self) -> BTreeMap<DestinationKey, SentCounts> {
        let of = |(destination, element): &(DestinationKey, gst::Element)| {
            let stats = element.property::<gst::Structure>("stats");
            let count = |name| stats.get::<u64>(name).unwrap_or_default();
            let (sent, dropped) = (count("published"), count("dropped") + count("rejected"));
            let is_connected = stats.get::<bool>("connected").unwrap_or_default();
            (destination.clone(), SentCounts { sent, dropped, is_connected })
        };
        self.elements.publish.iter().map(of).collect()
    }

    /// Structures that trtanalytics has, by the name of their list.
    fn counted(&self, list: &str) -> Vec<gst::Structure> {
        let Some(analytics) = &self.elements.analytics else { return Vec::new() };
        let counts = analytics.property::<gst::Structure>("counts");
        structures(&counts, list)
    }

    /// The objects in each zone, by their class.
    fn zones(&self) -> Vec<(String, BTreeMap<String, u32>)> {
        let zone = |zone: gst::Structure| (zone.get("name").unwrap_or_default(), objects_in(&zone));
        self.counted("zones").into_iter().map(zone).collect()
    }

    /// `measure=true` of trtinfer takes these times.
    fn gpu(&self) -> Option<Quantiles> {
        let stats = self.elements.infer.property::<gst::Structure>("stats");
        let seconds = |name| stats.get::<f64>(name).ok().map(|milliseconds| milliseconds / 1e3);
        let (p50, p95, p99) = (seconds("gpu-p50-ms")?, seconds("gpu-p95-ms")?, seconds("gpu-p99-ms")?);
        (p99 > 0.0).then_some(Quantiles { p50, p95, p99 })
    }
}

fn fps(left: &VecDeque<Left>) -> f64 {
    let now = Instant::now();
    let recent = || left.iter().map(|left| now - left.at).filter(|ago| *ago <= RATE_OVER);
    match recent().next() {
        // All that there are may be of a shorter time.
        Some(oldest) if recent().count() > 1 => (recent().count() - 1) as f64 / oldest.as_secs_f64().max(1e-3),
        _ => 0.0,
    }
}

/// All lines, also those that nothing has crossed.
fn lines(run: Option<&MeteredRun>, crossed: &BTreeMap<String, [u64; 2]>) -> Vec<LineStatus> {
    let names = run.map(|run| run.counted("tripwires")).unwrap_or_default();
    let names = names.into_iter().filter_map(|line| line.get::<String>("name").ok());
    let mut lines: BTreeMap<String, [u64; 2]> = names.map(|name| (name, [0; 2])).collect();
    lines.extend(crossed.iter().map(|(name, counts)| (name.clone(), *counts)));
    lines.into_iter().map(|(name, [forward, backward])| LineStatus { name, forward, backward }).collect()
}

/// All zones, also those that nothing has been in, and those that are no longer there.
fn zones(run: Option<&MeteredRun>, passed: &BTreeMap<String, ZonePassage>) -> Vec<ZoneStatus> {
    let mut objects: BTreeMap<String, BTreeMap<String, u32>> = run.into_iter().flat_map(MeteredRun::zones).collect();
    for name in passed.keys() {
        objects.entry(name.clone()).or_default();
    }
    let status = |(name, objects): (String, _)| {
        let nothing = ZonePassage::default();
        let ZonePassage { entered, left, dwell } = passed.get(&name).unwrap_or(&nothing);
        ZoneStatus { objects, entered: *entered, left: *left, dwell: dwell.clone(), name }
    };
    objects.into_iter().map(status).collect()
}

fn summary(values: impl Iterator<Item = f64>, all: &Histogram) -> Option<Summary> {
    Some(Summary { newest: quantiles(values.collect())?, all: all.clone() })
}

pub fn quantiles(mut values: Vec<f64>) -> Option<Quantiles> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = |share: f64| values[(last as f64 * share).round() as usize];
    Some(Quantiles { p50: at(0.50), p95: at(0.95), p99: at(0.99) })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;

    use super::*;
    use crate::chain;
    use crate::scratch::scratch;
    use crate::serve::config::Config;
    use crate::wait::{LIMIT, wait_until};

    fn elements(publish: Vec<(DestinationKey, gst::Element)>) -> MeteredElements {
        MeteredElements {
            frames: gst::ElementFactory::make("queue").build().unwrap(),
            infer: gst::ElementFactory::make("trtinfer").build().unwrap(),
            analytics: None,
            publish,
            recorder: None,
        }
    }

    #[test]
    fn destinations_of_one_place_are_told_apart() {
        chain::start_gstreamer().unwrap();
        let folder = scratch("meter-destinations_of_one_place_are_told_apart");
        let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");
        let model = format!("[[model]]\nname = \"m\"\nfile = {shapes:?}\n");
        for (first, second) in [("name = \"frames\"", "name = \"events\""), ("", "")] {
            let table = |name: &str| format!("[[publish]]\n{name}\nlocation = \"mqtt://broker/t\"\n");
            let source = "[[source]]\nname = \"s\"\naddress = \"s.mp4\"\n";
            let text = model.clone() + &table(first) + &table(second) + source;
            let config = Config::parse(Path::new("config.toml"), &text).unwrap().sources.remove(0);
            let line = format!(
                "videotestsrc num-buffers=3 ! trtpublish name=first add-empty-results=true location={file} \
                 ! trtpublish name=second per=event location={file} ! fakesink",
                file = folder.join("out.jsonl").display()
            );
            let pipeline = chain::parse(&line).unwrap();
            pipeline.set_state(gst::State::Playing).unwrap();
            let limit = gst::ClockTime::from_seconds(LIMIT.as_secs());
            pipeline.bus().unwrap().timed_pop_filtered(limit, &[gst::MessageType::Eos]).expect("the end");
            let publish = ["first", "second"].map(|name| chain::element(&pipeline, name));
            let publish: Vec<_> = destination_keys(&config.publish).into_iter().zip(publish).collect();
            let meter = Meter::default();
            let sent = || meter.status(&config).published.iter().map(|to| (to.sent, to.connected)).collect::<Vec<_>>();
            meter.begin(elements(publish.clone()));
            wait_until("both are connected", LIMIT, || sent().iter().all(|(_, is_connected)| *is_connected));
            assert_eq!(sent(), [(3, true), (0, true)], "{first}");
            meter.end(State::Waiting, None);
            assert_eq!(sent(), [(3, false), (0, false)], "{first}");
            // As if they had taken as much again.
            meter.begin(elements(publish));
            assert_eq!(sent(), [(6, true), (0, true)], "{first}");
            pipeline.set_state(gst::State::Null).unwrap();
        }
    }

    /// A pipeline that stops takes so much longer, and does not hang.
    #[test]
    fn messages_that_wait_have_their_time() {
        chain::start_gstreamer().unwrap();
        // It takes connections, and answers nothing.
        let broker = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = format!(
            "videotestsrc is-live=true ! trtpublish name=publish add-empty-results=true flush-timeout=100000000 \
             location=mqtt://{}/t ! fakesink",
            broker.local_addr().unwrap()
        );
        let pipeline = chain::parse(&line).unwrap();
        let meter = Meter::default();
        meter.begin(elements(vec![((None, String::new(), 0), chain::element(&pipeline, "publish"))]));
        assert_eq!(meter.flush_timeout(), Duration::ZERO);
        pipeline.set_state(gst::State::Playing).unwrap();
        wait_until("a message waits", LIMIT, || meter.flush_timeout() == Duration::from_millis(100));
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(meter.flush_timeout(), Duration::ZERO);
    }

    #[test]
    fn frames_that_are_passed_by_were_dropped() {
        gst::init().unwrap();
        let meter = Meter::default();
        let element = gst::ElementFactory::make("queue").build().unwrap();
        let elements = MeteredElements {
            frames: element.clone(),
            infer: element,
            analytics: None,
            publish: Vec::new(),
            recorder: None,
        };
        meter.begin(elements);
        let time = |number| Some(gst::ClockTime::from_seconds(number));
        (0..5).for_each(|number| meter.arrive(time(number)));
        meter.enter(time(0));
        meter.enter(time(3));
        meter.leave(time(3), 2, None);
        meter.end(State::Ended, None);
        let event = |direction: &str| {
            let event = gst::Structure::builder("trt-event").field("event", "crossed").field("name", "gate");
            meter.event(&event.field("direction", direction).build());
        };
        ["forward", "backward", "forward"].into_iter().for_each(event);
        for (kind, dwell) in [("entered", None), ("entered", None), ("left", Some(3_500_000_000u64))] {
            let event = gst::Structure::builder("trt-event").field("event", kind).field("name", "hall");
            meter.event(&event.field_if_some("dwell", dwell).build());
        }
        let counts = meter.lock();
        let [hall] = &zones(None, &counts.zones)[..] else { panic!("one zone") };
        assert_eq!((hall.entered, hall.left, hall.dwell.sum, hall.dwell.count), (2, 1, 3.5, 1));
        assert_eq!((counts.lines["gate"], counts.events["crossed"]), ([2, 1], 3));
        assert!(counts.last_frame.is_some() && counts.latency.count == 1);
        assert_eq!((counts.frames, counts.dropped, counts.objects), (1, 2, 2));
    }

    #[test]
    fn quantiles_are_of_sorted_values() {
        assert_eq!(quantiles(Vec::new()), None);
        assert_eq!(quantiles(vec![2.0]), Some(Quantiles { p50: 2.0, p95: 2.0, p99: 2.0 }));
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantiles(values), Some(Quantiles { p50: 50.0, p95: 95.0, p99: 99.0 }));
    }
}
