//! Streams of one clip beside each other, against their two ceilings: decoding alone, and the engine alone.
//!
//! `cargo bench --bench streams -- CLIP MODEL [streams=1,4,16,32] [seconds=4] [live=30] [json=FILE] [PROPERTY=VALUE…]`
//!
//! Properties are those of trtinfer. H.264 of the clip is held in memory and goes round and round. One pipeline has all streams,
//! each with `appsrc ! DECODER ! trtpreprocess ! trtinfer ! queue ! trtnms ! fakesink`; DECODER is nvh264dec, where that is not
//! there avdec_h264. Frames count between the moment when all streams have warmed up and the end.
//!
//! * decode: the same without our elements. engine: the model's runs on one tensor, the best of 1, 2 and 4 threads, each with an
//!   engine of its own and two runs in flight. of ceiling: fps of the chain over the smaller of both.
//! * CPU: seconds of the whole process for 1,000 frames, and those beyond decoding.
//! * live: each stream at that many frames a second, and how long a frame takes from the decoder to trtnms' source pad.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_app::{AppSink, AppSrc};
use gsttrt::backend::{Event, Loading, Plan};
use gsttrt::cuda::driver::Context;
use gsttrt::error::Result;
use gsttrt::memory::{DevicePool, Pool};
use gsttrt::session::{SessionOptions, parse_options};
use gsttrt::tensor::{Tensor, Tensors};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Frames of each stream that are not counted: pools fill, kernels are loaded.
const WARM_UP: u64 = 30;

/// Microseconds up to a minute.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("these bounds are allowed")
}

struct Clip {
    caps: gst::Caps,
    units: Vec<gst::Buffer>,
    frame: gst::ClockTime,
}

impl Clip {
    /// The access units of an MP4 of H.264.
    fn read(path: &str) -> Self {
        let line = "filesrc name=file ! qtdemux ! h264parse ! video/x-h264,stream-format=byte-stream,alignment=au ! appsink name=out sync=false";
        let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
        pipeline.by_name("file").unwrap().set_property("location", path);
        let out = pipeline.by_name("out").unwrap().downcast::<AppSink>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let mut units = Vec::new();
        let mut caps = None;
        while let Ok(sample) = out.pull_sample() {
            caps = sample.caps_owned();
            units.push(sample.buffer_owned().unwrap());
        }
        pipeline.set_state(gst::State::Null).unwrap();
        let caps = caps.unwrap_or_else(|| panic!("{path} is no MP4 of H.264"));
        Clip { caps, units, frame: gst::ClockTime::from_nseconds(33_333_333) }
    }

    /// Goes round until `stop`, at `pace` frames a second if that is not 0.
    fn feed(&self, source: &AppSrc, pace: u32, stop: &AtomicBool) {
        let begun = Instant::now();
        for (i, unit) in self.units.iter().cycle().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if pace > 0 {
                let due = begun + Duration::from_secs(1) * i as u32 / pace;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let mut unit = unit.copy();
            let at = self.frame * i as u64;
            let fields = unit.make_mut();
            fields.set_pts(at);
            fields.set_dts(at);
            fields.set_duration(self.frame);
            if source.push_buffer(unit).is_err() {
                break;
            }
        }
        let _ = source.end_of_stream();
    }
}

/// What a run of some streams came to.
struct Figures {
    fps: f64,
    /// CPU seconds for 1,000 frames.
    cpu: f64,
    gpu_mib: f64,
    /// Microseconds from the decoder to the end.
    latency: Histogram<u64>,
}

fn cpu_seconds() -> f64 {
    // SAFETY: writes a plain struct.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn gpu_mib() -> f64 {
    Context::primary(0)
        .and_then(|cuda| cuda.memory())
        .map_or(0.0, |(free, all)| (all - free) as f64 / f64::from(1 << 20))
}

fn run(clip: &Arc<Clip>, streams: usize, elements: &str, pace: u32, length: Duration) -> Figures {
    let decoder = if gst::ElementFactory::find("nvh264dec").is_some() { "nvh264dec" } else { "avdec_h264" };
    let branch = |i: usize| {
        format!(
            "appsrc name=source{i} format=time block=true max-buffers=8 max-bytes=0 ! {decoder} name=decoder{i} ! {elements} \
             fakesink name=sink{i} sync=false async=false "
        )
    };
    let line: String = (0..streams).map(branch).collect();
    let before = gpu_mib();
    let pipeline = gst::parse::launch(&line)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .downcast::<gst::Pipeline>()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Vec<Arc<AtomicU64>> = (0..streams).map(|_| Arc::default()).collect();
    let latency = Arc::new(Mutex::new(times()));
    let mut feeders = Vec::new();
    for (i, count) in counts.iter().enumerate() {
        let element = |name: &str| pipeline.by_name(&format!("{name}{i}")).unwrap();
        let under_way = Arc::new(Mutex::new(VecDeque::new()));
        let (begun, ended, count, latency) = (under_way.clone(), under_way, count.clone(), latency.clone());
        element("decoder").static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            begun.lock().unwrap().push_back(Instant::now());
            gst::PadProbeReturn::Ok
        });
        element("sink").static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            let begun = ended.lock().unwrap().pop_front().expect("each frame comes from the decoder");
            if count.fetch_add(1, Ordering::Relaxed) >= WARM_UP {
                latency.lock().unwrap().saturating_record(begun.elapsed().as_micros() as u64);
            }
            gst::PadProbeReturn::Ok
        });
        let source = element("source").downcast::<AppSrc>().unwrap();
        source.set_caps(Some(&clip.caps));
        let (clip, stop) = (clip.clone(), stop.clone());
        feeders.push(thread::spawn(move || clip.feed(&source, pace, &stop)));
    }
    pipeline.set_state(gst::State::Playing).unwrap();
    let bus = pipeline.bus().unwrap();
    let look = || {
        if let Some(message) = bus.timed_pop_filtered(gst::ClockTime::from_mseconds(1), &[gst::MessageType::Error]) {
            let gst::MessageView::Error(error) = message.view() else { unreachable!() };
            panic!("{} ({:?})", error.error(), error.debug());
        }
    };
    let all = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    while counts.iter().any(|count| count.load(Ordering::Relaxed) < WARM_UP) {
        look();
    }
    let (begun, frames, cpu) = (Instant::now(), all(), cpu_seconds());
    while begun.elapsed() < length {
        look();
    }
    let (seconds, frames, cpu) = (begun.elapsed().as_secs_f64(), (all() - frames) as f64, cpu_seconds() - cpu);
    let gpu_mib = gpu_mib() - before;
    stop.store(true, Ordering::Relaxed);
    pipeline.set_state(gst::State::Null).unwrap();
    feeders.into_iter().for_each(|feeder| feeder.join().unwrap());
    drop(pipeline);
    let latency = latency.lock().unwrap().clone();
    Figures { fps: frames / seconds, cpu: cpu / frames * 1e3, gpu_mib, latency }
}

/// Runs a second in each of some threads, and how long one takes from its queueing to its end, in µs.
fn engine_alone(
    model: &str,
    options: &SessionOptions,
    threads: usize,
    length: Duration,
) -> Result<(f64, Histogram<u64>)> {
    let tell = |event: Event<'_>| {
        if let Event::Warning(warning) = event {
            eprintln!("{warning}");
        }
    };
    let never = AtomicBool::new(false);
    let loading = Loading { tell: &tell, cancelled: &never };
    let SessionOptions { backend, input_size, cuda_device_id, tensorrt, .. } = options;
    let plan =
        Plan::new(Path::new(model), *backend, *input_size, 1, tensorrt.clone(), || Context::primary(*cuda_device_id))?;
    let mut workers = Vec::new();
    for _ in 0..threads {
        let desc = plan.spec.desc.clone();
        let bytes = desc.bytes().expect("fixed dimensions");
        let tensor = match &plan.cuda {
            Some(cuda) => {
                let mut block = DevicePool::new(cuda).take(bytes)?;
                block.write(&vec![0; bytes])?;
                Tensor::on_device(desc, block)
            }
            None => Tensor::fill(&Pool::default(), desc, |bytes| {
                bytes.fill(0);
                Ok(())
            })
            .unwrap(),
        };
        let pictures = [Arc::new(Tensors::new(vec![tensor], None, None))];
        let mut backend = plan.load(&loading)?;
        workers.push(thread::spawn(move || -> Result<(u64, Histogram<u64>)> {
            let (mut runs, mut took) = (0, times());
            let mut before = None;
            let begun = Instant::now();
            while begun.elapsed() < length {
                let queued = Instant::now();
                let outputs = backend.run(&pictures)?.remove(0);
                // The one before, while this one is queued.
                if let Some((queued, outputs)) = before.replace((queued, outputs)) {
                    let (queued, outputs): (Instant, Tensors) = (queued, outputs);
                    outputs.into_ready()?;
                    took.saturating_record(queued.elapsed().as_micros() as u64);
                    runs += 1;
                }
            }
            Ok((runs, took))
        }));
    }
    let (mut runs, mut took) = (0, times());
    for worker in workers {
        let (more, theirs) = worker.join().expect("it does not panic")?;
        runs += more;
        took.add(theirs).expect("of the same bounds");
    }
    Ok((runs as f64 / length.as_secs_f64(), took))
}

fn main() -> Result<()> {
    gst::init().unwrap();
    gsttrt::plugin_register_static().unwrap();
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let sample = |path: &str| format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"));
    let (settings, files): (Vec<String>, Vec<String>) = arguments.into_iter().partition(|text| text.contains('='));
    let clip = files.first().cloned().unwrap_or_else(|| sample("data/sample.mp4"));
    let model = files.get(1).cloned().unwrap_or_else(|| sample("models/shapes.onnx"));
    let (mut counts, mut seconds, mut live, mut out) = (vec![1, 4, 16, 32], 4.0, 30, None);
    let mut properties = Vec::new();
    for setting in &settings {
        match setting.split_once('=').expect("partitioned by it") {
            ("streams", list) => counts = list.split(',').map(|count| count.parse().expect("a number")).collect(),
            ("seconds", text) => seconds = text.parse().expect("a number"),
            ("live", text) => live = text.parse().expect("a number"),
            ("json", path) => out = Some(std::fs::File::create(path).expect("a file can be made there")),
            _ => properties.push(setting.as_str()),
        }
    }
    let (options, _) = parse_options(properties.iter().copied())?;
    let length = Duration::from_secs_f64(seconds);
    let mut note = |line: Value| {
        if let Some(out) = &mut out {
            writeln!(out, "{line}").expect("the file can be written");
        }
    };

    let clip = Arc::new(Clip::read(&clip));
    let alone: Vec<_> = [1, 2, 4]
        .into_iter()
        .map(|threads| engine_alone(&model, &options, threads, length / 2))
        .collect::<Result<_>>()?;
    let engine = alone.iter().map(|(fps, _)| *fps).fold(0.0, f64::max);
    let fps: Vec<String> = alone.iter().map(|(fps, _)| format!("{fps:.0}")).collect();
    let took: Vec<u64> = alone.iter().map(|(_, took)| took.value_at_quantile(0.5)).collect();
    println!("{model}: {} fps in 1, 2, 4 threads; from queueing a run to its end {took:?} µs", fps.join(", "));
    note(json!({ "row": "engine", "fps": fps, "p50_us": took }));

    let chain = format!(
        "trtpreprocess ! trtinfer model-file={model} {} ! queue max-size-buffers=4 ! trtnms !",
        properties.join(" ")
    );
    println!(
        "{:>7}{:>9}{:>9}{:>12}{:>11}{:>8}{:>9}{:>8}{:>12}{:>9}",
        "streams", "decode", "chain", "of ceiling", "CPU s/1000", "beyond", "GPU MiB", "more", "live p50", "p99 µs"
    );
    for streams in counts {
        let decode = run(&clip, streams, "", 0, length);
        let whole = run(&clip, streams, &chain, 0, length);
        let share = whole.fps / decode.fps.min(engine);
        let paced = (live > 0).then(|| run(&clip, streams, &chain, live, length).latency);
        let quantile = |q: f64| paced.as_ref().map(|times| times.value_at_quantile(q));
        let shown = |q: f64| quantile(q).map_or("-".into(), |time| time.to_string());
        println!(
            "{streams:>7}{:>9.0}{:>9.0}{share:>12.3}{:>11.3}{:>8.3}{:>9.0}{:>8.0}{:>12}{:>9}",
            decode.fps,
            whole.fps,
            whole.cpu,
            whole.cpu - decode.cpu,
            whole.gpu_mib,
            whole.gpu_mib - decode.gpu_mib,
            shown(0.5),
            shown(0.99)
        );
        note(json!({
            "row": "streams", "streams": streams, "decode_fps": decode.fps, "chain_fps": whole.fps, "engine_fps": engine,
            "of_ceiling": share, "cpu_s_per_1000": whole.cpu, "cpu_decode_s_per_1000": decode.cpu,
            "gpu_mib": whole.gpu_mib, "gpu_decode_mib": decode.gpu_mib, "live_p50_us": quantile(0.5), "live_p99_us": quantile(0.99),
        }));
    }
    Ok(())
}
