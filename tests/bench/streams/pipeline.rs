// SPDX-License-Identifier: MPL-2.0
//! One run of some streams at the same time, in one pipeline.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_app::AppSrc;
use hdrhistogram::Histogram;

use crate::clip::Clip;
use crate::engine::times;
use crate::machine::{cpu_seconds, gpu_mib, thread_cpu, threads};
use crate::random::Random;
use crate::together::Gate;

/// Frames of each stream that are not counted: pools fill, kernels are loaded.
const WARM_UP: u64 = 30;

/// Nothing is built here any more, so what takes longer to warm up is a hang.
const TIMEOUT: Duration = Duration::from_secs(120);

/// When a stream's first frame comes: cameras do not take their pictures at the same moment.
pub fn phase(stream: usize, pace: u32) -> Duration {
    let period = Duration::from_secs(1).checked_div(pace).unwrap_or_default();
    period.mul_f32(Random(stream as u64).unit())
}

#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub clip: &'a Clip,
    pub streams: usize,
    /// The streams are dealt out to so many.
    pub gpus: usize,
    /// What is between decoder and sink, with the exclamation mark before it.
    pub elements: &'a str,
    /// Frames a second of each stream, 0 for as many as there can be.
    pub pace: u32,
    pub length: Duration,
    /// What decoded frames go through.
    pub gate: Option<&'a Arc<Gate>>,
}

/// What a run came to.
pub struct Figures {
    pub fps: f64,
    /// CPU seconds for 1,000 frames.
    pub cpu: f64,
    pub gpu_mib: f64,
    /// Microseconds from the decoder to each of [`STAGES`].
    pub latency: [Histogram<u64>; STAGES.len()],
    /// The share of frames that came from the decoder less than half a period after the one before.
    pub close: f64,
    /// Batches, frames in them, and batches that were run before they were full.
    pub batches: [u64; 3],
    /// Pictures in those batches for a frame: more than one where frames are sliced.
    pub pictures: f64,
    /// Of these seconds, those in each of [`OURS`], from its sink pad to its source pad.
    pub ours: [f64; 3],
    /// Buffers that pools had, and those that had to be allocated.
    pub pools: [u64; 2],
    /// Bytes to the GPU and from it, for a frame.
    pub bytes: [f64; 2],
    /// Objects that a second model may look at, and pictures that it has looked at, for a frame.
    pub objects: [f64; 2],
    /// Of the process, without those that feed the streams.
    pub threads: f64,
    /// CUDA contexts that our elements work in or have seen; 0 without them.
    pub contexts: f64,
}

pub const OURS: [&str; 3] = ["trtpreprocess", "trtinfer", "trtnms"];

/// What the elements of a second model are called, before their kind and number; in lines the number is `{i}`.
pub const SECOND: &str = "second-";

/// Where frames are timed behind the decoder: names of elements without their number, and their pads. The last one is the end.
pub const STAGES: [(&str, &str); 4] =
    [("trtpreprocess", "src"), ("trtinfer", "src"), ("trtnms", "sink"), ("sink", "sink")];

impl Figures {
    /// Frames in a batch.
    pub fn fill(&self) -> f64 {
        self.batches[1] as f64 / self.batches[0] as f64
    }

    /// The share of batches that were run before they were full.
    pub fn late(&self) -> f64 {
        self.batches[2] as f64 / self.batches[0] as f64
    }
}

/// Of all first models: elements that share one all have its counts.
fn batches(pipeline: &gst::Pipeline) -> [u64; 3] {
    let mut sum = [0; 3];
    let infers = pipeline.iterate_all_by_element_factory_name("trtinfer").into_iter().flatten();
    for infer in infers.filter(|infer| !infer.name().starts_with(SECOND)) {
        let stats = infer.property::<gst::Structure>("stats");
        let counts = ["batches", "batched", "batches-late"].map(|field| stats.get::<u64>(field).unwrap());
        if infer.property::<Option<String>>("shared-model").is_some() {
            return counts;
        }
        sum = std::array::from_fn(|i| sum[i] + counts[i]);
    }
    sum
}

/// `stats` of all elements of a kind.
fn stats(pipeline: &gst::Pipeline, factory: &str) -> Vec<gst::Structure> {
    let elements = pipeline.iterate_all_by_element_factory_name(factory).into_iter().flatten();
    elements.map(|element| element.property("stats")).collect()
}

/// Sums of all our elements.
fn sums<const N: usize>(pipeline: &gst::Pipeline, names: [&str; N]) -> [u64; N] {
    let all: Vec<gst::Structure> = OURS.iter().flat_map(|factory| stats(pipeline, factory)).collect();
    names.map(|name| all.iter().map(|of| of.get::<u64>(name).unwrap()).sum())
}

/// CUDA contexts of the process, as each of our elements tells.
fn contexts(pipeline: &gst::Pipeline) -> u64 {
    let counts = stats(pipeline, "trtinfer").into_iter().map(|stats| stats.get::<u64>("cuda-contexts").unwrap());
    counts.max().unwrap_or_default()
}

const POOLS: [&str; 2] = ["pool-hits", "pool-misses"];
const BYTES: [&str; 2] = ["bytes-uploaded", "bytes-downloaded"];

struct Running<'a> {
    setup: Setup<'a>,
    pipeline: gst::Pipeline,
    /// Frames that came out of each stream.
    counts: Vec<Arc<AtomicU64>>,
    latency: [Arc<Mutex<Histogram<u64>>>; STAGES.len()],
    /// Frames from the decoders, and those that came less than half a period after the one before.
    decoded: [Arc<AtomicU64>; 2],
    /// Nanoseconds on the CPU in each of [`OURS`].
    ours: [Arc<AtomicU64>; 3],
}

/// Takes the time on the CPU that a thread has between an element's pads.
fn watch_cpu(element: &gst::Element, spent: &Arc<AtomicU64>) {
    let (entered, left) = (Arc::new(AtomicU64::new(0)), spent.clone());
    let came = entered.clone();
    element.static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        came.store(thread_cpu(), Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
    element.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        left.fetch_add(thread_cpu() - entered.load(Ordering::Relaxed), Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
}

impl<'a> Running<'a> {
    fn new(setup: Setup<'a>) -> Result<Self, String> {
        let part = |i: usize| {
            let gpu = i % setup.gpus;
            let device = match setup.gpus {
                1 => String::new(), // wherever the decoder is
                _ => format!("cuda-device-id={gpu}"),
            };
            let elements = OURS.iter().fold(setup.elements.to_string(), |elements, element| {
                // The first of a kind: a second model has names.
                elements.replacen(&format!("! {element}"), &format!("! {element} name={element}{i} {device}"), 1)
            });
            setup.clip.branch(i, gpu, setup.pace > 0, &elements.replace("{i}", &i.to_string()))
        };
        let line: String = (0..setup.streams).map(part).collect();
        let pipeline = gst::parse::launch(&line).map_err(|error| format!("{line}: {error}"))?;
        let pipeline = pipeline.downcast::<gst::Pipeline>().expect("several elements");
        setup.clip.context().into_iter().for_each(|context| pipeline.set_context(context));
        let latency = std::array::from_fn(|_| Arc::new(Mutex::new(times())));
        let counts = (0..setup.streams).map(|_| Arc::default()).collect();
        let (decoded, ours) = Default::default();
        let running = Running { setup, pipeline, counts, latency, decoded, ours };
        for i in 0..setup.streams {
            running.watch(i);
            let ours = OURS.iter().filter_map(|name| running.element(name, i)).zip(&running.ours);
            ours.for_each(|(element, spent)| watch_cpu(&element, spent));
        }
        Ok(running)
    }

    /// One of the stream's. Ours are missing where nothing but decoding is measured.
    fn element(&self, name: &str, i: usize) -> Option<gst::Element> {
        self.pipeline.by_name(&format!("{name}{i}"))
    }

    /// Counts a stream's frames, and takes the time that each is under way. Frames keep their order.
    fn watch(&self, i: usize) {
        let mut under_way = Vec::new();
        for (&(name, pad), latency) in STAGES.iter().zip(&self.latency) {
            let Some(element) = self.element(name, i) else { continue };
            let begun = Arc::new(Mutex::new(VecDeque::new()));
            under_way.push(begun.clone());
            let latency = latency.clone();
            let count = self.counts[i].clone();
            element.static_pad(pad).unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
                let begun: Instant = begun.lock().unwrap().pop_front().expect("each frame comes from the decoder");
                latency.lock().unwrap().saturating_record(begun.elapsed().as_micros() as u64);
                if name == "sink" {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                gst::PadProbeReturn::Ok
            });
        }
        let ([all, close], before) = (self.decoded.clone(), Mutex::new(None::<Instant>));
        let half = Duration::from_secs(1).checked_div(2 * self.setup.pace).unwrap_or_default();
        let gate = self.setup.gate.cloned();
        let decoder = self.element("decoder", i).expect("it is in the line");
        decoder.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            let now = Instant::now();
            let is_close = before.lock().unwrap().replace(now).is_some_and(|before| now - before < half);
            all.fetch_add(1, Ordering::Relaxed);
            close.fetch_add(is_close.into(), Ordering::Relaxed);
            under_way.iter().for_each(|begun| begun.lock().unwrap().push_back(now));
            gate.iter().for_each(|gate| gate.frame());
            gst::PadProbeReturn::Ok
        });
    }

    /// Waits a moment, which an error cuts short. A warning may be the reason for a figure.
    fn look(&self) -> Result<(), String> {
        let bus = self.pipeline.bus().expect("a pipeline has one");
        let wanted = [gst::MessageType::Error, gst::MessageType::Warning];
        let Some(message) = bus.timed_pop_filtered(gst::ClockTime::from_mseconds(1), &wanted) else { return Ok(()) };
        match message.view() {
            gst::MessageView::Error(error) => Err(format!("{} ({:?})", error.error(), error.debug())),
            gst::MessageView::Warning(warning) => {
                println!("{:>14}{}", "", warning.error());
                Ok(())
            }
            _ => unreachable!("filtered"),
        }
    }

    fn ours(&self) -> [u64; 3] {
        std::array::from_fn(|i| self.ours[i].load(Ordering::Relaxed))
    }

    /// Objects that second models may look at in all streams, and pictures of the one that all share.
    fn objects(&self) -> [u64; 2] {
        let count = |element: &str, i, field| {
            let element = self.element(&format!("{SECOND}{element}"), i)?;
            Some(element.property::<gst::Structure>("stats").get::<u64>(field).unwrap())
        };
        let objects = (0..self.setup.streams).filter_map(|i| count("trtpreprocess", i, "objects")).sum();
        [objects, count("trtinfer", 0, "batched").unwrap_or_default()]
    }

    fn frames(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Figures of the time between the moment when all streams are warm and the end.
    fn measure(&self) -> Result<Figures, String> {
        let begun = Instant::now();
        while self.counts.iter().any(|count| count.load(Ordering::Relaxed) < WARM_UP) {
            self.look()?;
            if begun.elapsed() > TIMEOUT {
                return Err(format!("After {} s some stream has not had {WARM_UP} frames", TIMEOUT.as_secs()));
            }
        }
        let (begun, frames, cpu, before) = (Instant::now(), self.frames(), cpu_seconds(), batches(&self.pipeline));
        let (taken, spent, seen) = (sums(&self.pipeline, POOLS), self.ours(), self.objects());
        let moved = sums(&self.pipeline, BYTES);
        // What came before had models loaded at the same time.
        self.latency.iter().for_each(|latency| latency.lock().unwrap().reset());
        self.decoded.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        while begun.elapsed() < self.setup.length {
            self.look()?;
        }
        let (seconds, frames) = (begun.elapsed().as_secs_f64(), (self.frames() - frames) as f64);
        let (cpu, after) = (cpu_seconds() - cpu, batches(&self.pipeline));
        let (pools, ours, objects) = (sums(&self.pipeline, POOLS), self.ours(), self.objects());
        let bytes = sums(&self.pipeline, BYTES);
        Ok(Figures {
            fps: frames / seconds,
            cpu: cpu / frames * 1e3,
            gpu_mib: gpu_mib(),
            latency: std::array::from_fn(|stage| self.latency[stage].lock().unwrap().clone()),
            close: self.decoded[1].load(Ordering::Relaxed) as f64 / self.decoded[0].load(Ordering::Relaxed) as f64,
            batches: std::array::from_fn(|i| after[i] - before[i]),
            pictures: (after[1] - before[1]) as f64 / frames,
            ours: std::array::from_fn(|i| (ours[i] - spent[i]) as f64 / 1e9 / frames * 1e3),
            pools: std::array::from_fn(|i| pools[i] - taken[i]),
            bytes: std::array::from_fn(|i| (bytes[i] - moved[i]) as f64 / frames),
            objects: std::array::from_fn(|i| (objects[i] - seen[i]) as f64 / frames),
            threads: threads() as f64 - self.setup.streams as f64,
            contexts: contexts(&self.pipeline) as f64,
        })
    }
}

pub fn run(setup: Setup) -> Result<Figures, String> {
    let before = gpu_mib();
    let running = Running::new(setup)?;
    let stop = AtomicBool::new(false);
    let figures = thread::scope(|scope| {
        for i in 0..setup.streams {
            let source = running.element("source", i).expect("it is in the line").downcast::<AppSrc>().unwrap();
            let phase = phase(i, setup.pace);
            let goes_on = || !stop.load(Ordering::Relaxed);
            scope.spawn(move || setup.clip.feed(&source, setup.pace, phase, goes_on));
        }
        let started = running.pipeline.set_state(gst::State::Playing);
        let figures = running.measure();
        stop.store(true, Ordering::Relaxed);
        setup.gate.into_iter().for_each(|gate| gate.close());
        // All waits of its feeders end with it.
        let _ = running.pipeline.set_state(gst::State::Null);
        // The messages on the bus are more specific than that it did not start.
        figures.and_then(|figures| started.map(|_| figures).map_err(|error| error.to_string()))
    })?;
    Ok(Figures { gpu_mib: figures.gpu_mib - before, ..figures })
}
