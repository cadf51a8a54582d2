// SPDX-License-Identifier: MPL-2.0
//! The model swapped while streams play, or its words changed: no frame may be lost or doubled, and no stream may wait for long.
//!
//! `cargo bench --bench swap -- [CLIP [MODEL [OTHER]]] [streams=16] [batch=16] [swaps=100] [every=30] [live=0]
//! [batch-timeout=-1] [words=false] [json=FILE] [PROPERTY=VALUE…]`
//!
//! Other properties are those of trtinfer. H.264 of the clip is held in memory and goes round and round, flat out or at `live`
//! frames a second, through `appsrc ! DECODER ! trtpreprocess ! trtinfer ! queue ! trtnms ! fakesink` for each stream. All streams
//! share a model that takes batches of `batch`; with `batch=0` each has its own, and all are swapped at once. A swap begins where
//! `model-file` is set to the other model, and ends where each stream has had the frames that were under way when it was loaded,
//! and some more. Then all streams go on for `every` frames, and the next swap brings the former model back.
//!
//! With `words=true` the model is one that finds the words of a file (swap/words.rs), and in place of `model-file` it is `input-values`
//! that is set. Such a swap ends where each stream has had a frame with the new words. Live streams come one after the other then, as
//! cameras do that know nothing of each other.
//!
//! * lost, doubled: frames that a decoder gave and that did not come to the sink, or came twice, by their PTS. Either ends the
//!   bench with status 1.
//! * gap: the time between two frames of a stream at the sink, the longest at a swap, and the longest without one. fps: of all
//!   streams together during swaps, and between them with each model. load: from the setting to the message that it is loaded.
//!   first: from the setting of words to the first frame of any stream that comes to the sink with what is found by them.
//! * GPU MiB, KiB on the heap, threads, files: the least behind the first quarter of the swaps and behind the last, each with
//!   the first model. What was loaded once by the first swaps is in both. TensorRT 8.6 keeps 92 kB of the heap for each load of an
//!   engine with a Softmax, as YOLOv8 has, and nothing of other ones; a captured graph more or less is 340 kB.
//!
//! Engines are built before. A model whose batch is fixed to 1 gets an open one, as by the bench streams.

#[allow(dead_code)] // the other bench uses more of it
#[path = "streams/clip.rs"]
mod clip;
#[path = "../../core/tests/common/heap.rs"]
mod heap;
#[allow(dead_code)] // the other bench uses more of it
#[path = "streams/machine.rs"]
mod machine;
#[path = "streams/open_batch.rs"]
mod open_batch;
#[path = "../../core/tests/common/wait.rs"]
mod wait;
#[path = "swap/words.rs"]
mod words;

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clip::{Clip, Held, queue};
use gst::prelude::*;
use gst_app::AppSrc;
use hdrhistogram::Histogram;
use serde_json::json;
use words::Words;

/// Swaps that bring what is loaded once; they are not counted. The first model is back behind them.
const WARM_UP: usize = 4;
/// Engines may have to be built.
const BUILD: Duration = Duration::from_secs(1800);
/// What takes longer is a hang.
const TIMEOUT: Duration = Duration::from_secs(120);

struct Bench {
    clip: Clip,
    clip_name: String,
    models: [String; 2],
    /// Where these are swapped, and both models are one.
    words: Option<Words>,
    streams: usize,
    /// 0 where each stream has a model of its own.
    batch: usize,
    timeout: i32,
    swaps: usize,
    every: u64,
    pace: u32,
    properties: String,
}

/// Microseconds up to ten minutes.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("these bounds are allowed")
}

/// A stream's frames between decoder and sink, and when they come there.
struct Stream {
    under_way: VecDeque<Option<gst::ClockTime>>,
    came: u64,
    lost: u64,
    doubled: u64,
    /// When the last frame came, and whether that was at a swap.
    last: Option<(Instant, bool)>,
    /// In µs: without a swap, and at one.
    gaps: [Histogram<u64>; 2],
    /// Which words a frame is waited for with, and when it came.
    wanted: Option<usize>,
    found: Option<Instant>,
}

impl Stream {
    fn new() -> Self {
        let gaps = [times(), times()];
        Stream { under_way: VecDeque::new(), came: 0, lost: 0, doubled: 0, last: None, gaps, wanted: None, found: None }
    }

    fn come(&mut self, frame: &gst::BufferRef, at_swap: bool) {
        let now = Instant::now();
        if self.wanted.is_some_and(|words| Words::are_of(words, frame)) {
            (self.wanted, self.found) = (None, Some(now));
        }
        match self.under_way.iter().position(|wanted| *wanted == frame.pts()) {
            Some(before) => {
                self.under_way.drain(..=before);
                self.lost += before as u64;
            }
            None => self.doubled += 1,
        }
        self.came += 1;
        if let Some((last, began_at_swap)) = self.last.replace((now, at_swap)) {
            self.gaps[usize::from(at_swap || began_at_swap)].saturating_record((now - last).as_micros() as u64);
        }
    }
}

/// Frames and seconds.
#[derive(Clone, Copy, Default)]
struct Passed(u64, f64);

impl Passed {
    fn add(&mut self, more: Passed) {
        *self = Passed(self.0 + more.0, self.1 + more.1);
    }

    fn fps(self) -> f64 {
        self.0 as f64 / self.1
    }
}

/// MiB on the GPU, KiB on the heap, threads and open files of the process.
type Taken = [f64; 4];

fn taken() -> Taken {
    let heap = heap::allocated() >> 10;
    [machine::gpu_mib(), heap as f64, machine::threads() as f64, machine::files() as f64]
}

/// Of each figure the least: frames under way take memory too.
fn least(all: &[Taken]) -> Taken {
    std::array::from_fn(|i| all.iter().map(|taken| taken[i]).fold(f64::INFINITY, f64::min))
}

struct Playing<'a> {
    bench: &'a Bench,
    pipeline: gst::Pipeline,
    streams: Vec<Arc<Mutex<Stream>>>,
    is_swapping: Arc<AtomicBool>,
}

impl Playing<'_> {
    /// Counts a stream's frames.
    fn watch(&self, i: usize) {
        let pad = |element: &str, pad: &str| {
            let element = self.pipeline.by_name(&format!("{element}{i}")).expect("it is in the line");
            element.static_pad(pad).expect("it has one")
        };
        let stream = self.streams[i].clone();
        pad("decoder", "src").add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            stream.lock().unwrap().under_way.push_back(info.buffer().expect("asked for").pts());
            gst::PadProbeReturn::Ok
        });
        let (stream, is_swapping) = (self.streams[i].clone(), self.is_swapping.clone());
        pad("sink", "sink").add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let at_swap = is_swapping.load(Ordering::Relaxed);
            stream.lock().unwrap().come(info.buffer().expect("asked for"), at_swap);
            gst::PadProbeReturn::Ok
        });
    }

    fn infers(&self) -> impl Iterator<Item = gst::Element> {
        (0..self.streams.len()).map(|i| self.pipeline.by_name(&format!("infer{i}")).expect("it is in the line"))
    }

    /// The next message of a load's end or of an error, if one comes within a moment.
    fn listen(&self) -> Result<Option<gst::Message>, String> {
        let bus = self.pipeline.bus().expect("a pipeline has one");
        let wanted =
            [gst::MessageType::Progress, gst::MessageType::Error, gst::MessageType::Warning, gst::MessageType::Eos];
        let message = bus.timed_pop_filtered(gst::ClockTime::from_mseconds(1), &wanted);
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Error(error)) => Err(format!("{} ({:?})", error.error(), error.debug())),
            Some(gst::MessageView::Warning(warning)) => {
                let text = warning.error().to_string();
                // The model was not loaded, or the words were refused. Others may be the reason for a figure.
                if text.contains("stays in use") || text.contains("values in use stay") {
                    return Err(text);
                }
                println!("{text}");
                Ok(None)
            }
            _ => Ok(message),
        }
    }

    fn wait(
        &self,
        what: &str,
        limit: Duration,
        mut is_over: impl FnMut(Option<gst::Message>) -> bool,
    ) -> Result<(), String> {
        let begun = Instant::now();
        while !is_over(self.listen()?) {
            if begun.elapsed() > limit {
                return Err(format!("After {} s {what}", limit.as_secs()));
            }
        }
        Ok(())
    }

    fn came(&self) -> Vec<u64> {
        self.streams.iter().map(|stream| stream.lock().unwrap().came).collect()
    }

    /// Waits until each stream has had so many more frames; how many there were in all.
    fn frames(&self, count: u64, limit: Duration) -> Result<Passed, String> {
        let (begun, before) = (Instant::now(), self.came());
        let have_all = |_| self.came().iter().zip(&before).all(|(came, before)| came - before >= count);
        self.wait(&format!("some stream has not had {count} frames"), limit, have_all)?;
        let frames = self.came().iter().sum::<u64>() - before.iter().sum::<u64>();
        Ok(Passed(frames, begun.elapsed().as_secs_f64()))
    }

    /// From the setting until each stream has had a frame with these words; the time until the first of them came.
    fn change(&self, words: usize, values: &str) -> Result<(Duration, Passed), String> {
        let before = self.came();
        for stream in &self.streams {
            let mut stream = stream.lock().unwrap();
            (stream.wanted, stream.found) = (Some(words), None);
        }
        self.is_swapping.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        let count = if self.bench.batch > 0 { 1 } else { self.streams.len() };
        self.infers().take(count).for_each(|infer| infer.set_property("input-values", values));
        let found = || self.streams.iter().map(|stream| stream.lock().unwrap().found).collect::<Option<Vec<Instant>>>();
        self.wait("some stream has had no frame with the new words", TIMEOUT, |_| found().is_some())?;
        self.is_swapping.store(false, Ordering::Relaxed);
        if let Some(infer) = self.infers().find(|infer| infer.property::<String>("input-values") != values) {
            return Err(format!("{} has not come to {values}", infer.name()));
        }
        let first = found().and_then(|times| times.into_iter().min()).unwrap_or(begun);
        let frames = self.came().iter().sum::<u64>() - before.iter().sum::<u64>();
        Ok((first - begun, Passed(frames, begun.elapsed().as_secs_f64())))
    }

    /// From the setting until all frames go to the model of that place; how long it was loaded.
    fn swap(&self, place: usize) -> Result<(Duration, Passed), String> {
        if let Some(words) = &self.bench.words {
            return self.change(place, &words.values[place]);
        }
        let model = &self.bench.models[place];
        let (begun, before) = (Instant::now(), self.came());
        self.is_swapping.store(true, Ordering::Relaxed);
        // One that is shared is loaded by the first.
        let mut left = if self.bench.batch > 0 { 1 } else { self.streams.len() };
        self.infers().take(left).for_each(|infer| infer.set_property("model-file", model));
        self.wait(&format!("{model} has not been loaded"), TIMEOUT, |message| {
            // Not through the binding's getters, which leak both strings of the message.
            let kind = message.as_ref().and_then(|message| message.structure()?.get::<gst::ProgressType>("type").ok());
            left -= usize::from(kind == Some(gst::ProgressType::Complete));
            left == 0
        })?;
        let load = begun.elapsed();
        self.frames(self.bench.room() as u64 + 4, TIMEOUT)?;
        self.is_swapping.store(false, Ordering::Relaxed);
        if let Some(infer) = self.infers().find(|infer| infer.property::<String>("model-file") != *model) {
            return Err(format!("{} has not come to {model}", infer.name()));
        }
        let frames = self.came().iter().sum::<u64>() - before.iter().sum::<u64>();
        Ok((load, Passed(frames, begun.elapsed().as_secs_f64())))
    }

    /// All swaps, and what they come to.
    fn swaps(&self) -> Result<Figures, String> {
        let Bench { swaps, every, .. } = self.bench;
        self.frames(*every, TIMEOUT)?;
        for i in 1..=WARM_UP {
            self.swap(i % 2)?;
            self.frames(*every, TIMEOUT)?;
        }
        for stream in &self.streams {
            stream.lock().unwrap().gaps.iter_mut().for_each(Histogram::reset);
        }
        let mut figures = Figures::default();
        for i in 1..=*swaps {
            let (load, passed) = self.swap(i % 2)?;
            figures.loads.push(load.as_secs_f64() * 1e3);
            figures.swapping.add(passed);
            figures.between[i % 2].add(self.frames(*every, TIMEOUT)?);
            if i % 2 == 0 {
                figures.taken.push(taken());
            }
        }
        Ok(figures)
    }
}

#[derive(Default)]
struct Figures {
    /// Milliseconds: of loading, or until the first frame with new words.
    loads: Vec<f64>,
    swapping: Passed,
    /// With each model.
    between: [Passed; 2],
    /// With the first model.
    taken: Vec<Taken>,
}

impl Bench {
    /// Frames of a stream that the queue behind trtinfer has room for: of all streams together, one batch can wait for its end
    /// while the next one gathers.
    fn room(&self) -> usize {
        (2 * self.batch).div_ceil(self.streams).max(4)
    }

    /// When a live stream begins, so that those whose words change do not all have their frames at the same time.
    fn phase(&self, i: usize) -> Duration {
        match self.words {
            Some(_) if self.pace > 0 => Duration::from_secs(1) * i as u32 / self.pace / self.streams as u32,
            _ => Duration::ZERO,
        }
    }

    /// Streams with a model, from their start to their end, and what is done meanwhile; with all that is known of their frames.
    fn play<T>(
        &self,
        model: &str,
        count: usize,
        during: impl FnOnce(&Playing) -> Result<T, String>,
    ) -> Result<(T, Vec<Stream>), String> {
        let sharing = match self.batch {
            0 => String::new(),
            batch => format!("shared-model=swap batch-size={batch} batch-timeout={}", self.timeout),
        };
        let (properties, room) = (&self.properties, queue(self.room()));
        let words = self.words.as_ref().map_or(String::new(), |words| format!("input-values={}", words.values[0]));
        let branch = |i: usize| {
            let elements = format!(
                "! trtpreprocess ! trtinfer name=infer{i} model-file={model} {words} {properties} {sharing} ! {room} ! trtnms"
            );
            self.clip.branch(i, 0, self.pace > 0, &elements)
        };
        let line: String = (0..count).map(branch).collect();
        let pipeline = gst::parse::launch(&line).map_err(|error| format!("{line}: {error}"))?;
        let pipeline = pipeline.downcast::<gst::Pipeline>().expect("several elements");
        let streams = (0..count).map(|_| Arc::new(Mutex::new(Stream::new()))).collect();
        let playing = Playing { bench: self, pipeline, streams, is_swapping: Arc::default() };
        (0..count).for_each(|i| playing.watch(i));

        let (stop, pipeline) = (AtomicBool::new(false), &playing.pipeline);
        let outcome = thread::scope(|scope| {
            for i in 0..count {
                let source = pipeline.by_name(&format!("source{i}")).unwrap().downcast::<AppSrc>().unwrap();
                let goes_on = || !stop.load(Ordering::Relaxed);
                let phase = self.phase(i);
                scope.spawn(move || self.clip.feed(&source, self.pace, phase, goes_on));
            }
            let _ = pipeline.set_state(gst::State::Playing); // what fails is on the bus
            let outcome = playing.frames(1, BUILD).and_then(|_| during(&playing));
            stop.store(true, Ordering::Relaxed);
            let outcome = outcome.and_then(|outcome| {
                let is_end =
                    |message: Option<gst::Message>| message.is_some_and(|it| it.type_() == gst::MessageType::Eos);
                playing.wait("streams have not ended", TIMEOUT, is_end)?;
                Ok(outcome)
            });
            // All waits of its feeders end with it.
            let _ = pipeline.set_state(gst::State::Null);
            outcome
        })?;
        let Playing { pipeline, streams, .. } = playing;
        drop(pipeline); // with its probes
        let own =
            |stream: Arc<Mutex<Stream>>| Arc::into_inner(stream).expect("the probes are gone").into_inner().unwrap();
        Ok((outcome, streams.into_iter().map(own).collect()))
    }

    /// Whether no frame was lost or doubled; with the line of JSON.
    fn measure(&self) -> Result<(bool, serde_json::Value), String> {
        // Engines are built, and the other model is seen to work, before anything is measured.
        let models = if self.words.is_some() { &self.models[..1] } else { &self.models[..] };
        for model in models.iter().rev() {
            self.play(model, 1, |_| Ok(()))?;
        }
        let (figures, streams) = self.play(&self.models[0], self.streams, |playing| playing.swaps())?;
        let Figures { mut loads, swapping, between, taken } = figures;
        loads.sort_by(f64::total_cmp);
        let sum = |of: fn(&Stream) -> u64| streams.iter().map(of).sum::<u64>();
        // What has not come by the end never will.
        let lost = sum(|stream| stream.lost + stream.under_way.len() as u64);
        let (came, doubled) = (sum(|stream| stream.came), sum(|stream| stream.doubled));
        let mut gaps = [times(), times()];
        for stream in &streams {
            gaps.iter_mut().zip(&stream.gaps).for_each(|(all, own)| all.add(own).expect("of the same bounds"));
        }
        let [quiet, at_swap] = gaps.map(|gaps| [gaps.value_at_quantile(0.5), gaps.max()].map(|gap| gap as f64 / 1e3));
        let quarter = taken.len().div_ceil(4);
        let (first, last) = (least(&taken[..quarter]), least(&taken[taken.len() - quarter..]));
        let fps = between.map(Passed::fps);
        let load = [loads[loads.len() / 2], loads[loads.len() - 1]];

        println!("{came} frames came to the sinks; {lost} were lost, and {doubled} came twice");
        println!("gap: at a swap {:.1} ms at most, without {:.1} (half of them {:.1})", at_swap[1], quiet[1], quiet[0]);
        match self.words {
            Some(_) => println!("first frame with new words: {:.2} ms, {:.2} at most", load[0], load[1]),
            None => println!("load: {:.0} ms, {:.0} at most", load[0], load[1]),
        }
        println!(
            "fps: {:.0} with the first model, {:.0} with the other, {:.0} during swaps",
            fps[0],
            fps[1],
            swapping.fps()
        );
        for (i, name) in ["MiB on the GPU", "KiB on the heap", "threads", "files"].into_iter().enumerate() {
            println!("{name}: {:.0} behind the first swaps, {:.0} behind the last", first[i], last[i]);
        }
        let (row, of_loads) =
            if self.words.is_some() { ("prompts", "first_p50_max_ms") } else { ("swap", "load_p50_max_ms") };
        let mut line = json!({
            "row": row, "model": self.models[0], "other": self.models[1], "clip": self.clip_name, "properties": self.properties,
            "streams": self.streams, "shared": self.batch > 0, "batch": self.batch.max(1), "live": self.pace, "swaps": self.swaps,
            "every": self.every, "frames": came, "lost": lost, "doubled": doubled, "gap_swap_p50_max_ms": at_swap,
            "gap_quiet_p50_max_ms": quiet, "fps_quiet": fps, "fps_swapping": swapping.fps(),
            "first_gpu_mib_heap_kib_threads_files": first, "last_gpu_mib_heap_kib_threads_files": last,
            "all_gpu_mib_heap_kib_threads_files": taken,
        });
        line[of_loads] = json!(load);
        Ok((lost + doubled == 0, line))
    }

    fn parse() -> Result<(Self, Option<File>), Box<dyn Error>> {
        let (mut streams, mut batch, mut swaps, mut every, mut pace, mut timeout) = (16, 16, 100, 30, 0, -1);
        let (mut files, mut properties, mut json, mut words) = (Vec::new(), Vec::new(), None, None);
        for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
            let number =
                |text: &str| text.parse::<u32>().map_err(|error| format!("{argument} cannot be read: {error}."));
            match argument.split_once('=') {
                None => files.push(argument),
                Some(("streams", text)) => streams = number(text)?.max(1),
                Some(("batch", text)) => batch = number(text)?,
                Some(("swaps", text)) => swaps = number(text)?.max(2),
                Some(("every", text)) => every = number(text)?.max(1),
                Some(("live", text)) => pace = number(text)?,
                Some(("words", "false")) => words = None,
                Some(("words", "true")) => words = Some(Words::write()?),
                Some(("batch-timeout", text)) => {
                    timeout = text.parse::<i32>().map_err(|error| format!("{argument} cannot be read: {error}."))?
                }
                Some(("json", text)) => {
                    json = Some(File::create(text).map_err(|error| format!("{argument}: {error}"))?)
                }
                Some(_) => properties.push(argument),
            }
        }
        let sample = |i: usize, name| {
            files.get(i).cloned().unwrap_or_else(|| format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR")))
        };
        let clip_name = sample(0, "data/sample.mp4");
        let models = match &words {
            Some(_) if files.len() > 1 => return Err("words=true has a model of its own: give a clip alone.".into()),
            Some(words) => [words.model.clone(), words.model.clone()],
            None => [
                open_batch::of(&sample(1, "models/shapes.onnx"))?,
                open_batch::of(&sample(2, "models/shapes-v8.onnx"))?,
            ],
        };
        let bench = Bench {
            words,
            clip: Clip::read(&clip_name, Held::Coded, "")?,
            clip_name,
            models,
            streams: streams as usize,
            batch: batch as usize,
            timeout,
            swaps: swaps as usize,
            every: every.into(),
            pace,
            properties: properties.join(" "),
        };
        Ok((bench, json))
    }
}

fn bench() -> Result<bool, Box<dyn Error>> {
    heap::without_caches()?;
    gst::init()?;
    gsttrt::plugin_register_static()?;
    machine::gpu_mib(); // the context that looks at the GPU's memory takes some itself
    let (bench, json) = Bench::parse()?;
    let (streams, swaps, [model, other]) = (bench.streams, bench.swaps, &bench.models);
    match &bench.words {
        Some(Words { values: [one, other], .. }) => {
            println!("{streams} streams of {}, {swaps} times other words: {one} and {other}", bench.clip_name);
        }
        None => println!("{streams} streams of {}, {swaps} swaps between {model} and {other}", bench.clip_name),
    }
    let (is_whole, line) = match bench.measure() {
        Ok(outcome) => outcome,
        Err(error) => (false, json!({ "row": "failed", "what": "swap", "error": error })),
    };
    if let Some(error) = line["error"].as_str() {
        println!("{error}");
    }
    json.map_or(Ok(()), |mut json| writeln!(json, "{line}"))?;
    Ok(is_whole)
}

fn main() -> ExitCode {
    match bench() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
