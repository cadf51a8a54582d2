// SPDX-License-Identifier: MPL-2.0
//! Streams that join and leave for a long time. No frame may be lost or reordered, and no memory may be leaked.
//!
//! `cargo bench --bench soak -- [CLIP [MODEL…]] [streams=16] [seconds=600] [batch=4] [seed=1]
//! [kind=detect] [second=MODEL] [second-batch=32] [stay=false] [nms=PROPERTY=VALUE,…] [PROPERTY=VALUE…]`
//!
//! Other properties are those of trtinfer. `kind=segment` takes a model with masks, and `kind=track+second` has trttrack and a
//! second model on the objects behind it, each object once in streams that share it and at each frame in the others;
//! `kind=decode` has decoders alone, which tells what is theirs. With several kinds, as in `kind=segment,track+second`, each has
//! that many streams, and its MODEL in the same order. At any time that many streams run, each in a pipeline of its own: every
//! second one has a model of its own, the others share one that takes batches of `batch`. A stream lives for some seconds and
//! comes at some pace, as `seed` has it; then it ends, or is stopped with frames under way, and another one replaces it. Every
//! minute all of them leave, so that what is still there then can be compared: bytes in use on the heap, GPU memory, threads and
//! open files may never be more than they were after the first one, but for what libraries keep. Without GPU, frames are decoded
//! and models run on the CPU.
//!
//! The models are loaded again each minute then, of which TensorRT 8.6 keeps 92 kB for each load of one with a Softmax. With `stay=true`
//! two more streams of each kind wait after their first frames, and stay to the end, and with them the engines.
//!
//! Each frame that a decoder gives must come to the sink, with the same PTS, in the same order; of a stream that is stopped,
//! those that had come so far. A line is printed each minute, which separates memory that grows from memory that grew once. Exit
//! status 1 where anything is wrong; a frame that is ends it.

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
#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/random.rs"]
mod random;
#[path = "../../core/tests/common/wait.rs"]
mod wait;

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clip::{Clip, Held, queue};
use gst::prelude::*;
use gst_app::AppSrc;
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::memory::Buffer;
use gsttrt_core::session::Session;
use gsttrt_core::tensor::TensorDesc;
use random::Random;

/// What is compared, and how much of it libraries may keep. A leak of a few bytes a frame, or of some hundred a stream, comes to a
/// MiB within minutes; GStreamer and GLib keep less. The driver gives memory in pieces of 2 MiB, and keeps some.
const KEPT: [(&str, usize); 4] = [("KiB on the heap", 1024), ("MiB on the GPU", 16), ("threads", 2), ("files", 4)];

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// Engines may have to be built. No stream is stopped, for that would stop the build of an engine too.
    WarmUp,
    Counted,
}

impl Phase {
    /// What streams do at their end takes moments, and a build minutes.
    fn timeout(self) -> Duration {
        Duration::from_secs(if self == Phase::WarmUp { 1800 } else { 120 })
    }
}

struct Soak {
    clip: Clip,
    /// What is between decoder and sink, for each kind: with a shared model, and with one of its own.
    elements: Vec<[String; 2]>,
    /// Streams that have lived, and frames that came through.
    streams: AtomicU64,
    frames: AtomicU64,
}

/// A stream's frames between decoder and sink, and what is wrong with them.
#[derive(Default)]
struct Path {
    under_way: VecDeque<Option<gst::ClockTime>>,
    wrong: Option<String>,
}

/// How a stream lives.
struct Life {
    length: Duration,
    /// Frames a second, 0 for as many as there can be.
    pace: u32,
    /// Whether it is stopped with frames under way; else it ends.
    is_stopped: bool,
}

impl Soak {
    /// One stream, from its start to its end.
    fn live(&self, slot: usize, life: &Life, phase: Phase, goes_on: impl Fn() -> bool + Sync) -> Result<(), String> {
        let line = self.clip.branch(0, 0, false, &self.elements[slot / 2 % self.elements.len()][slot % 2]);
        let pipeline = gst::parse::launch(&line).map_err(|error| format!("{line}: {error}"))?;
        let pipeline = pipeline.downcast::<gst::Pipeline>().expect("several elements");
        let path = Arc::new(Mutex::new(Path::default()));
        let pad = |element: &str, pad: &str| pipeline.by_name(element).unwrap().static_pad(pad).unwrap();
        let begun = path.clone();
        pad("decoder0", "src").add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            begun.lock().unwrap().under_way.push_back(info.buffer().expect("asked for").pts());
            gst::PadProbeReturn::Ok
        });
        let ended = path.clone();
        let frames = Arc::new(AtomicU64::new(0));
        let came = frames.clone();
        pad("sink0", "sink").add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let (mut path, found) = (ended.lock().unwrap(), info.buffer().expect("asked for").pts());
            let wanted = path.under_way.pop_front();
            if wanted != Some(found) && path.wrong.is_none() {
                path.wrong = Some(format!(
                    "the frame at {} came where that at {} should have",
                    found.display(),
                    wanted.flatten().display()
                ));
            }
            came.fetch_add(1, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        let bus = pipeline.bus().expect("a pipeline has one");
        // Looking for one kind of message throws away all others, and where a GPU is the end may come before the feeder is seen to
        // have finished.
        let listen = |timeout: Duration| -> Option<Result<(), String>> {
            let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
            let limit = gst::ClockTime::try_from(timeout).expect("it is not that long");
            Some(match bus.timed_pop_filtered(limit, &wanted)?.view() {
                gst::MessageView::Error(error) => Err(format!("{} ({:?})", error.error(), error.debug())),
                _ => Ok(()),
            })
        };

        let source = pipeline.by_name("source0").unwrap().downcast::<AppSrc>().unwrap();
        let &Life { length, pace, is_stopped } = life;
        let started = Instant::now();
        let _ = pipeline.set_state(gst::State::Playing); // what fails is on the bus
        let mut said = None;
        let pushed = thread::scope(|scope| {
            let fed = scope
                .spawn(|| self.clip.feed(&source, pace, Duration::ZERO, || goes_on() && started.elapsed() < length));
            // A stream that has failed takes no more, and its feeder would wait forever.
            while !fed.is_finished() {
                if said.is_some() {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                }
                said = listen(Duration::from_millis(5));
                if matches!(said, Some(Err(_))) {
                    let _ = pipeline.set_state(gst::State::Null);
                }
            }
            fed.join().expect("it does not panic")
        });
        if !is_stopped && said.is_none() {
            let timeout = phase.timeout();
            let late = || Err(format!("it did not end within {} s", timeout.as_secs()));
            said = Some(listen(timeout).unwrap_or_else(late));
        }
        let has_ended = matches!(said, Some(Ok(())));
        let _ = pipeline.set_state(gst::State::Null);
        let path = path.lock().unwrap();
        let came = frames.load(Ordering::Relaxed);
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.frames.fetch_add(came, Ordering::Relaxed);
        match said.and_then(Result::err).or(path.wrong.clone()) {
            Some(wrong) => Err(wrong),
            None if has_ended && !path.under_way.is_empty() => {
                Err(format!("{} of {pushed} frames have not come to the sink", path.under_way.len()))
            }
            None if has_ended && came != pushed => Err(format!("{pushed} frames went in, and {came} came out")),
            None => Ok(()),
        }
    }

    /// So many streams at a time for so long, until all have left.
    fn crowd(self: &Arc<Self>, streams: usize, length: Duration, seed: u64, phase: Phase) -> Result<(), String> {
        let (leave, timeout) = (Arc::new(AtomicBool::new(false)), phase.timeout());
        let (sender, outcomes) = channel();
        let live = |slot: usize, sender: Sender<Result<(), String>>| {
            let (soak, leave) = (self.clone(), leave.clone());
            let mut random = Random(seed.wrapping_mul(1009).wrapping_add(slot as u64));
            thread::spawn(move || {
                let goes_on = || !leave.load(Ordering::Relaxed);
                let mut outcome = Ok(());
                while goes_on() && outcome.is_ok() {
                    let life = Life {
                        length: Duration::from_secs_f32(random.between(0.5, 8.0)),
                        pace: random.one_of(&[0, 5, 15, 30]),
                        is_stopped: random.below(3) == 0 && phase != Phase::WarmUp,
                    };
                    outcome = soak.live(slot, &life, phase, goes_on);
                }
                let _ = sender.send(outcome.map_err(|wrong| format!("Stream {slot}: {wrong}.")));
            })
        };
        let threads: Vec<_> = (0..streams).map(|slot| live(slot, sender.clone())).collect();
        drop(sender);
        let (mut end, mut left) = (Instant::now() + length, 0);
        while left < streams {
            match outcomes.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(outcome) => outcome.map(|()| left += 1)?,
                Err(RecvTimeoutError::Timeout) if !leave.swap(true, Ordering::Relaxed) => {
                    end = Instant::now() + timeout
                }
                Err(_) => {
                    return Err(format!("{} streams have not left within {} s.", streams - left, timeout.as_secs()));
                }
            }
        }
        threads.into_iter().for_each(|thread| thread.join().expect("its end was received"));
        Ok(())
    }
}

/// GLib keeps threads of GStreamer's tasks that have ended for others: half a second in their pool, then 15 s for all pools. How many
/// there are is chance.
fn end_idle_threads() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        gst::glib::ThreadPool::stop_unused_threads();
        thread::sleep(Duration::from_millis(20));
    }
}

/// Has more captured graphs live at once than streams ever will. CUDA keeps 237 KiB on the heap of each that lived at the same time as
/// others, for the next ones, and how many of them do in a minute is chance. What each takes besides, some 135 KiB, it gives back, so
/// one that is never dropped is still found.
fn record_runs(model: &str, properties: &[String], streams: u64) -> gsttrt_core::error::Result<Vec<Session>> {
    /// As many as a model keeps graphs of.
    const INPUTS: usize = 16;
    let (options, _) = gsttrt_core::session::parse_options(properties.iter().map(String::as_str))?;
    let mut sessions = vec![Session::open(model, &options)?];
    if sessions[0].backend() != "tensorrt" {
        return Ok(sessions);
    }
    // Every second stream has a model of its own.
    for _ in 1..streams {
        sessions.push(Session::open(model, &options)?);
    }
    let cuda = Context::primary(options.cuda_device_id.unwrap_or_default())?;
    let memory =
        |desc: &TensorDesc| Buffer::device(&cuda, desc.bytes().expect("a session's tensors have fixed dimensions"));
    let inputs = (0..INPUTS).map(|_| memory(sessions[0].input())).collect::<gsttrt_core::error::Result<Vec<_>>>()?;
    let outputs = sessions[0].outputs().iter().map(memory).collect::<gsttrt_core::error::Result<Vec<_>>>()?;
    let results: Vec<u64> = outputs.iter().filter_map(Buffer::address).collect();
    for session in &mut sessions {
        // The second time they are captured.
        for input in inputs.iter().chain(&inputs).filter_map(Buffer::address) {
            // SAFETY: all memory stays, and what is queued is waited for.
            unsafe { session.run_device(input, &results, std::ptr::null_mut()) }?.wait()?;
        }
    }
    Ok(sessions)
}

/// Streams that stay until they are asked to leave.
struct Stayers {
    leave: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Result<(), String>>>,
}

impl Stayers {
    fn new(soak: &Arc<Soak>, streams: usize) -> Self {
        let leave = Arc::new(AtomicBool::new(false));
        let live = |slot| {
            let (soak, leave) = (soak.clone(), leave.clone());
            let life = Life { length: Duration::MAX, pace: 5, is_stopped: false };
            let begun = Instant::now();
            // Frames on their way would change what is compared.
            let goes_on = move || {
                while begun.elapsed() > Duration::from_secs(2) && !leave.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(50));
                }
                !leave.load(Ordering::Relaxed)
            };
            thread::spawn(move || soak.live(slot, &life, Phase::WarmUp, goes_on))
        };
        Stayers { threads: (0..streams).map(live).collect(), leave }
    }

    fn leave(self) -> Result<(), String> {
        self.leave.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    }
}

/// A kind of streams, and their model.
struct Kind {
    name: String,
    model: String,
}

impl Kind {
    const DECODE: &str = "decode";
    const SECOND: &str = "track+second";
}

struct Arguments {
    clip: String,
    kinds: Vec<Kind>,
    /// A second model, on the objects of the first.
    second: Option<String>,
    second_batch: u64,
    streams: u64,
    seconds: u64,
    batch: u64,
    seed: u64,
    /// Whether some streams stay to the end.
    stay: bool,
    /// Of trtnms.
    nms: String,
    /// Of trtinfer.
    properties: Vec<String>,
}

impl Arguments {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let (mut streams, mut seconds, mut batch, mut second_batch, mut seed) = (16, 600, 4, 32, 1);
        let (mut files, mut properties) = (Vec::new(), Vec::new());
        let (mut kinds, mut second, mut nms, mut stay) = ("detect".to_string(), None, String::new(), false);
        for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
            let number =
                |text: &str| text.parse::<u64>().map_err(|error| format!("{argument} cannot be read: {error}."));
            match argument.split_once('=') {
                None => files.push(argument),
                Some(("streams", text)) => streams = number(text)?.max(1),
                Some(("seconds", text)) => seconds = number(text)?,
                Some(("batch", text)) => batch = number(text)?.max(1),
                Some(("seed", text)) => seed = number(text)?,
                Some(("kind", text)) => kinds = text.into(),
                Some(("stay", text)) => {
                    stay = text.parse().map_err(|error| format!("{argument} cannot be read: {error}."))?;
                }
                Some(("second", text)) => second = Some(text.to_string()),
                Some(("second-batch", text)) => second_batch = number(text)?.max(1),
                Some(("nms", text)) => nms = text.replace(',', " "),
                Some(_) => properties.push(argument),
            }
        }
        let sample = |name: &str| format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
        // A model that takes one picture at a time is one for batches of 1.
        let open = |model: String, batch| if batch > 1 { open_batch::of(&model) } else { Ok(model) };
        let kind = |(i, name): (usize, &str)| -> Result<Kind, Box<dyn Error>> {
            let model = match name {
                Kind::DECODE | "detect" | Kind::SECOND => "models/shapes.onnx",
                "segment" => "models/shapes-seg.onnx",
                _ => return Err(format!("kind={name} is none of decode, detect, segment and track+second.").into()),
            };
            let model = files.get(1 + i).cloned().unwrap_or_else(|| sample(model));
            Ok(Kind { name: name.into(), model: open(model, batch)? })
        };
        let kinds = kinds.split(',').enumerate().map(kind).collect::<Result<Vec<_>, _>>()?;
        if kinds.iter().any(|kind| kind.name == Kind::SECOND) {
            second.get_or_insert_with(|| sample("models/shapes-cls.onnx"));
        }
        Ok(Arguments {
            clip: files.first().cloned().unwrap_or_else(|| sample("data/sample.mp4")),
            kinds,
            second: second.map(|second| open(second, second_batch)).transpose()?,
            second_batch,
            streams,
            seconds,
            batch,
            seed,
            stay,
            nms,
            properties,
        })
    }

    /// What is between decoder and sink, with models that streams share, or with those of one stream.
    fn elements(&self, kind: &Kind, shared: bool) -> String {
        if kind.name == Kind::DECODE {
            return String::new();
        }
        let properties = self.properties.join(" ");
        let room = queue(self.batch.max(4) as usize);
        let infer = |model: &str, name: &str, batch: u64| {
            let sharing = if shared { format!("shared-model={name} batch-size={batch}") } else { String::new() };
            format!("trtinfer model-file={model} {sharing} {properties} ! {room} ! trtnms {}", self.nms)
        };
        let first = format!("! trtpreprocess ! {}", infer(&kind.model, &kind.name, self.batch));
        let Some(second) = self.second.as_ref().filter(|_| kind.name == Kind::SECOND) else { return first };
        // 0 is once.
        let interval = u32::from(!shared);
        let second = infer(second, "soak-objects", self.second_batch);
        format!("{first} ! trttrack ! trtpreprocess regions=objects reclassify-interval={interval} ! {second}")
    }
}

fn soak() -> Result<(), Box<dyn Error>> {
    heap::without_caches()?;
    gst::init()?;
    gsttrt::plugin_register_static()?;
    let arguments = Arguments::parse()?;
    let Arguments { streams, seconds, batch, seed, ref clip, ref kinds, .. } = arguments;
    let soak = Arc::new(Soak {
        clip: Clip::read(clip, Held::Coded, "")?,
        elements: kinds.iter().map(|kind| [true, false].map(|shared| arguments.elements(kind, shared))).collect(),
        streams: AtomicU64::default(),
        frames: AtomicU64::default(),
    });
    // Before anything counts engines are built, runs captured, and the context is made that looks at the GPU's memory: its 20 MiB on
    // the heap would be found behind the first minute only.
    machine::gpu_mib();
    soak.crowd(2 * kinds.len(), Duration::from_secs(1), seed, Phase::WarmUp)?;
    let first = kinds.iter().filter(|kind| kind.name != Kind::DECODE).map(|kind| &kind.model);
    let models = first.chain(&arguments.second);
    let recorded: Result<Vec<_>, _> = models.map(|model| record_runs(model, &arguments.properties, streams)).collect();
    drop(recorded?);
    let stayers = arguments.stay.then(|| Stayers::new(&soak, 2 * kinds.len()));

    for Kind { name, model } in kinds {
        println!(
            "{streams} streams of {clip} for {seconds} s, {name}; every second one shares {model} for batches of {batch}"
        );
    }
    let length = Duration::from_secs(seconds);
    let minute = (length / 4).min(Duration::from_secs(60));
    let begun = Instant::now();
    let mut minutes = Vec::new();
    for round in 1.. {
        soak.crowd(streams as usize * kinds.len(), minute, seed + round, Phase::Counted)?;
        if arguments.stay {
            // Those of models that run stay, too.
            ["trt-open", "trt-load"].into_iter().for_each(heap::wait_for_end_of);
        } else {
            heap::wait_for_end_of("trt-");
        }
        end_idle_threads();
        let (heap, gpu_mib) = (heap::allocated(), machine::gpu_mib());
        let (threads, files) = (machine::threads(), machine::files());
        println!(
            "{:>5.0} s: {} streams have lived, {} frames came through; {} KiB on the heap, {gpu_mib:.0} MiB on the GPU, \
             {threads} threads, {files} files",
            begun.elapsed().as_secs_f64(),
            soak.streams.load(Ordering::Relaxed),
            soak.frames.load(Ordering::Relaxed),
            heap >> 10,
        );
        minutes.push([heap >> 10, gpu_mib as usize, threads, files]);
        // There must be something to compare.
        if round > 1 && begun.elapsed() >= length {
            break;
        }
    }
    stayers.map_or(Ok(()), Stayers::leave)?;
    for (i, (what, allowed)) in KEPT.into_iter().enumerate() {
        let most = minutes.iter().map(|minute| minute[i]).max().expect("there are two at least");
        if most > minutes[0][i] + allowed {
            return Err(format!("There are {} {what} more than after the first minute.", most - minutes[0][i]).into());
        }
    }
    println!("Every frame came, once and in order, and no memory stayed behind.");
    Ok(())
}

fn main() -> ExitCode {
    match soak() {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}
