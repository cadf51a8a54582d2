// SPDX-License-Identifier: MPL-2.0
//! `gst-trt bench`: throughput and latency of the model alone, as trtexec reports them, and of the chain on frames in
//! memory. `streams`: how many streams the service takes.

mod streams;

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use gsttrt_core::backends::{BACKENDS, BackendPreference};
use gsttrt_core::error::{Error, Result as TrtResult};
use gsttrt_core::frame::{Colorimetry, DevicePlane, Frame, Matrix, PixelFormat, Plane};
use gsttrt_core::memory::Buffer;
use gsttrt_core::session::{Detector, DeviceFrame, PostprocessOptions, Session, SessionOptions};
use gsttrt_core::tensor::Tensors;
use serde_json::{Value, json};

use crate::chain;
use crate::failure::{Failure, Status};
use crate::model_options::{backend_words, check_model, is_on_server, parse_size, session_options};
use crate::serve::TrialModel;
use crate::signals::Signals;
use crate::terminal::{print, print_error};
use crate::threads::Threads;
use streams::StreamGoal;

/// Runs before the first that counts, at least; as trtexec does by time.
const WARM_UP: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct BenchArgs {
    /// The ONNX model or the TensorRT engine
    model: PathBuf,
    /// What runs the model; all is one after the other
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backends())]
    backend: String,
    /// Width and height of the frames; may be repeated
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "1920x1080", value_parser = parse_size)]
    frame: Vec<(u32, u32)>,
    /// Format of the frames
    #[arg(long, value_name = "NAME", default_value = "NV12", value_parser = formats(), ignore_case = true)]
    format: String,
    /// Seconds for each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    duration: f64,
    /// Leave the chain out, and with it frames and what trtnms does
    #[arg(long, conflicts_with_all = ["frame", "format", "nms"])]
    model_only: bool,
    /// Properties of trtinfer and trtpreprocess, such as "precision=fp16 input-size=640x640"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    infer: String,
    /// Properties of trtnms, such as "score-threshold=0.5"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    nms: String,
    /// How many streams of a video the service takes on this machine, so that each has these frames a second, and this latency
    #[arg(long, value_name = "GOAL", num_args = 0..=2, value_parser = streams::goal, requires = "video",
          conflicts_with_all = ["frame", "format", "model_only"])]
    max_streams: Option<Vec<StreamGoal>>,
    /// The video of the streams, which are read at its own pace
    #[arg(long, value_name = "FILE", requires = "max_streams")]
    video: Option<PathBuf>,
    /// Frames of several streams in one run of the model
    #[arg(long, value_name = "FRAMES", default_value_t = 1, requires = "max_streams")]
    batch_size: u32,
    /// The same as JSON
    #[arg(long)]
    json: bool,
}

fn backends() -> PossibleValuesParser {
    PossibleValuesParser::new(backend_words().chain(["all"]))
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(PixelFormat::ALL.map(PixelFormat::name))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds.filter(|seconds| (0.01..=3600.0).contains(seconds)).ok_or_else(|| "give seconds from 0.01 to 3600".into())
}

pub fn run(args: &BenchArgs, threads: &Threads) -> Result<Status, Failure> {
    check_model(&args.model)?;
    if let (Some(goals), Some(video)) = (&args.max_streams, &args.video) {
        return max_streams(args, goals, video, threads);
    }
    let (options, postprocess) = session_options(&[], &[&args.infer, &args.nms])?;
    let clock = Clock { duration: Duration::from_secs_f64(args.duration), signals: Signals::listen_for_engines()? };
    let chosen: Vec<BackendPreference> = match args.backend.as_str() {
        "auto" => vec![options.backend],
        // One runs models on servers, and no files; the others run files.
        "all" => {
            let for_it = |name: &&str| (*name == "kserve") == is_on_server(&args.model);
            BACKENDS.iter().map(|backend| backend.name()).filter(for_it).map(BackendPreference::Named).collect()
        }
        name => backend_words().filter(|word| *word == name).map(BackendPreference::from).collect(),
    };
    let mut measured = Vec::new();
    for backend in chosen {
        let mut options = options.clone();
        options.backend = backend;
        let outcome = measure(args, &options, &postprocess, &clock);
        if let Some(signal) = clock.signals.signal() {
            // They would be those of the few runs until then.
            let name = if let BackendPreference::Named(name) = backend { name } else { "the model" };
            print_error(&format!("The measurement of {name} was stopped; its figures are left out."));
            return Ok(Status::Interrupted(signal));
        }
        match outcome {
            Ok(found) => {
                if !args.json {
                    print(&text(&found))?;
                }
                measured.push(found);
            }
            // Of all, those that are not there are left out.
            Err(failure) if args.backend == "all" => print_error(&format!("Warning: {failure}")),
            Err(failure) => return Err(failure),
        }
    }
    if measured.is_empty() {
        return Err(format!("No backend runs {}; the reasons are above.", args.model.display()).into());
    }
    if args.json {
        print(&format!("{:#}", json!({ "model": args.model.display().to_string(), "backends": measured })))?;
    }
    Ok(Status::Done)
}

fn max_streams(args: &BenchArgs, goals: &[StreamGoal], video: &Path, threads: &Threads) -> Result<Status, Failure> {
    if args.backend == "all" {
        return Err("Streams are counted for one backend. Give its name with --backend.".into());
    }
    chain::start_gstreamer()?;
    chain::prefer_gpu_decoders();
    let (backend, batch_size) = (args.backend.as_str(), args.batch_size);
    let model = TrialModel { file: &args.model, backend, batch_size, infer: &args.infer, nms: &args.nms };
    let duration = Duration::from_secs_f64(args.duration);
    streams::run(&model, video, goals, duration, args.json, &Signals::listen()?, threads)
}

/// All of one backend.
fn measure(
    args: &BenchArgs,
    options: &SessionOptions,
    postprocess: &PostprocessOptions,
    clock: &Clock,
) -> Result<Value, Failure> {
    let begun = Instant::now();
    let mut session = Session::open(&args.model, options)?;
    let warn = |warnings: &[Error]| {
        warnings.iter().for_each(|warning| print_error(&format!("Warning: {}", warning.message())));
    };
    warn(session.warnings());
    let told = session.warnings().len();
    if let Some(reason) = session.reason() {
        print_error(&format!("Running the model on the CPU: {reason}."));
    }
    let mut found = json!({
        "backend": session.backend(),
        "input": session.input().to_string(),
        "load-ms": begun.elapsed().as_secs_f64() * 1e3,
    });
    found["model"] = model_alone(&mut session, clock)?;
    if args.model_only {
        return Ok(found);
    }
    let mut detector = Detector::new(session, postprocess.clone())?;
    let format = PixelFormat::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(&args.format));
    let format = format.expect("one of the names");
    let mut chains = Vec::new();
    for &size in &args.frame {
        chains.extend(chain(&mut detector, format, size, clock)?);
    }
    warn(&detector.session().warnings()[told..]); // what the first frame has shown
    found["chain"] = chains.into();
    Ok(found)
}

/// The model with nothing around it, in whole batches: host to host, and, where it runs on a GPU, on tensors that stay there.
fn model_alone(session: &mut Session, clock: &Clock) -> Result<Value, Failure> {
    let batch = session.batch_size();
    let bytes = vec![0u8; session.input().bytes().unwrap_or_default()];
    let host = clock.measure(|| session.run_batch(&vec![&bytes[..]; batch]).map(drop))?;
    let pictures = |runs: &Measured| round(runs.throughput() * batch as f64);
    let mut found = json!({ "batch": batch, "throughput": pictures(&host), "latency-ms": host.figures() });
    if session.cuda().is_ok() {
        let on_gpu = (0..batch).map(|_| session.picture(&bytes)).collect::<TrtResult<Vec<_>>>()?;
        let ready = |outputs: Vec<Tensors>| outputs.into_iter().try_for_each(|each| each.into_ready().map(drop));
        let compute = clock.measure(|| session.infer(&on_gpu).and_then(ready))?;
        found["compute-ms"] = compute.figures();
        // One run is queued while another one is on the GPU.
        let mut last = Vec::new();
        let queued = clock.measure(|| {
            let outputs = session.infer(&on_gpu)?;
            ready(std::mem::replace(&mut last, outputs))
        })?;
        found["throughput"] = pictures(&queued).into();
    }
    Ok(found)
}

/// From a frame to its objects: from host memory, and on a GPU from there too.
fn chain(detector: &mut Detector, format: PixelFormat, size: (u32, u32), clock: &Clock) -> Result<Vec<Value>, Failure> {
    let (width, height) = (size.0 as usize, size.1 as usize);
    let shape = format.planes(width, height);
    // Noise without a pattern that a model could know.
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let pixels: Vec<Vec<u8>> = shape.iter().map(|&(row, rows)| (0..row * rows).map(|_| noise()).collect()).collect();
    let planes = pixels.iter().zip(&shape).map(|(data, &(stride, _))| Plane { data, stride }).collect();
    let frame = Frame { format, width, height, planes };
    let color = Colorimetry { matrix: Matrix::Bt709, ..Colorimetry::default() };
    let row = |memory: &str, run: &Measured| {
        json!({ "frame": format!("{width}x{height}"), "format": format.name(), "memory": memory,
                "throughput": run.throughput(), "latency-ms": run.figures() })
    };
    let mut rows = vec![row("system", &clock.measure(|| detector.detect(&frame, color).map(drop))?)];
    let Ok(cuda) = detector.session().cuda().cloned() else { return Ok(rows) };
    // Formats that no frame in CUDA memory has are refused; that is no failure of the others.
    let copies: Vec<Buffer> =
        pixels.iter().map(|plane| Buffer::device(&cuda, plane.len())).collect::<TrtResult<_>>()?;
    let mut planes = Vec::new();
    for ((mut copy, plane), &(stride, _)) in copies.into_iter().zip(&pixels).zip(&shape) {
        copy.write(0, plane)?;
        planes.push((copy, stride));
    }
    let address = |(copy, stride): &(Buffer, usize)| Some(DevicePlane { address: copy.address()?, stride: *stride });
    let frame = DeviceFrame { format, width, height, planes: planes.iter().filter_map(address).collect() };
    let null: *mut c_void = std::ptr::null_mut();
    // SAFETY: the default stream stays, the planes live until the end of this function, and nothing else writes them.
    let run = clock.measure(|| unsafe { detector.detect_device(&frame, color, null) }.map(drop));
    match run {
        Ok(run) => rows.push(row("gpu", &run)),
        Err(failure) => print_error(&format!("Warning: frames in GPU memory: {failure}")),
    }
    Ok(rows)
}

// ------------------------------------------------------------------------------------------- time

struct Clock {
    duration: Duration,
    signals: Signals,
}

/// Times of runs in milliseconds, from the shortest to the longest, and of all of them together.
struct Measured {
    times: Vec<f64>,
    wall: f64,
}

impl Clock {
    /// Runs it for that time, and once at least. Ends early at a signal.
    fn measure(&self, mut work: impl FnMut() -> TrtResult<()>) -> Result<Measured, Failure> {
        let is_over = |begun: Instant, time: Duration| begun.elapsed() >= time || self.signals.signal().is_some();
        let begun = Instant::now();
        loop {
            work()?;
            if is_over(begun, WARM_UP.min(self.duration)) {
                break;
            }
        }
        let (mut times, begun) = (Vec::new(), Instant::now());
        while times.is_empty() || !is_over(begun, self.duration) {
            let before = Instant::now();
            work()?;
            times.push(before.elapsed().as_secs_f64() * 1e3);
        }
        let wall = begun.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        Ok(Measured { times, wall })
    }
}

impl Measured {
    /// How often a second.
    fn throughput(&self) -> f64 {
        round(self.times.len() as f64 / self.wall)
    }

    fn quantile(&self, part: f64) -> f64 {
        let rank = (part * self.times.len() as f64).ceil() as usize;
        round(self.times[rank.clamp(1, self.times.len()) - 1])
    }

    fn figures(&self) -> Value {
        let mean = self.times.iter().sum::<f64>() / self.times.len() as f64;
        json!({
            "runs": self.times.len(),
            "min": self.quantile(0.0),
            "mean": round(mean),
            "median": self.quantile(0.5),
            "p90": self.quantile(0.9),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
            "max": self.quantile(1.0),
        })
    }
}

/// To three digits, below which nothing repeats.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

// ------------------------------------------------------------------------------------------- text

fn text(found: &Value) -> String {
    const FIGURES: [&str; 7] = ["min", "mean", "median", "p90", "p95", "p99", "max"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut lines = vec![
        format!(
            "{}: {}, loaded in {:.0} ms",
            word(&found["backend"]),
            word(&found["input"]),
            found["load-ms"].as_f64().unwrap_or(0.0)
        ),
        format!("{:<33} {:>10}{}", "", "pictures/s", FIGURES.map(|name| format!("{name:>9}")).concat()),
    ];
    let mut row = |name: &str, throughput: &Value, figures: &Value| {
        let number = |value: &Value| value.as_f64().map_or(" ".repeat(9), |value| format!("{value:>9.2}"));
        let figures = FIGURES.map(|name| number(&figures[name])).concat();
        lines.push(format!("{name:<34} {}{figures} ms", number(throughput)));
    };
    let model = &found["model"];
    let batches = match model["batch"].as_u64() {
        Some(batch) if batch > 1 => format!(", batches of {batch}"),
        _ => String::new(),
    };
    row(
        &format!("model, host to host{batches}"),
        if model["compute-ms"].is_null() { &model["throughput"] } else { &Value::Null },
        &model["latency-ms"],
    );
    if !model["compute-ms"].is_null() {
        row(&format!("model, on the GPU{batches}"), &model["throughput"], &model["compute-ms"]);
    }
    for chain in found["chain"].as_array().into_iter().flatten() {
        let name = format!("chain, {} {} in {}", word(&chain["frame"]), word(&chain["format"]), word(&chain["memory"]));
        row(&name, &chain["throughput"], &chain["latency-ms"]);
    }
    lines.join("\n")
}
