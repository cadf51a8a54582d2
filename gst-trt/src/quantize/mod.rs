// SPDX-License-Identifier: MPL-2.0
//! `gst-trt quantize`: a copy of a model in 8 bits, and what that costs.
//!
//! The pictures are read and prepared here, as pipelines do it. ONNX Runtime's quantizer makes the copy, by a script of Python that
//! is in this program. Both models are then run on the pictures and compared; a copy that costs too much is not kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use gsttrt_core::backends::verify::{ClassDrift, Drift, drift};
use gsttrt_core::backends::{LoadContext, LoadRequest};
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::image::frame::Colorimetry;
use gsttrt_core::image::geometry::Letterbox;
use gsttrt_core::image::preprocess::Preprocessor;
use gsttrt_core::memory::Pool;
use gsttrt_core::tensor::{DType, Tensor, TensorDesc, Tensors};
use serde_json::{Value, json};

use crate::chain::start_gstreamer;
use crate::failure::{Failure, Status};
use crate::model_options::{HeededOptions, check_file, parse_size};
use crate::output::{cannot_make_folder, cannot_write, replaceable};
use crate::progress::Display;
use crate::signals::Signals;
use crate::source::{pictures_in, still};
use crate::terminal::{print, print_error};
use crate::threads::Threads;

/// The quantizer.
const SCRIPT: &str = include_str!("quantize.py");

/// More take longer and show no other values; of more, so many are taken, spread over all.
const MOST: usize = 300;
/// Fewer tell little of the values that occur.
const FEW: usize = 20;
/// Of the values, where it is not said, in percent.
const PERCENTILE: f64 = 99.99;

#[derive(clap::Args)]
#[command(after_help = "\
A hundred pictures of what the model will see do. They show which values occur, and what the copy costs: its results on them \
are compared with those of the original. The first layer, the last ones and what follows them stay in 32 bits.\n\n\
It runs python3 with onnx and onnxruntime: python3 -m pip install onnx onnxruntime")]
pub struct QuantizeArgs {
    /// The ONNX model, in 32-bit floats
    model: PathBuf,
    /// Pictures, folders of them, and patterns such as 'photos/*.png'
    #[arg(required = true)]
    pictures: Vec<PathBuf>,
    /// Where to write the copy [default: MODEL-int8.onnx next to the model]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Numbers of the copy; fp8 is for TensorRT 10 and later, and compute capability 8.9 and later
    #[arg(long, value_name = "NAME", default_value = "int8", value_parser = ["int8", "fp8"])]
    format: String,
    /// What will run the copy: TensorRT has no zero points, which make it more exact on a CPU [default: cpu, of fp8 gpu]
    #[arg(long, value_name = "NAME", value_parser = ["cpu", "gpu"])]
    device: Option<String>,
    /// How the ranges of values are chosen
    #[arg(long, value_name = "NAME", default_value = "entropy", value_parser = ["entropy", "percentile", "minmax"])]
    calibration: String,
    /// The part of the values that a range by percentile holds, in percent [default: 99.99]
    #[arg(long, value_name = "PERCENT")]
    percentile: Option<f64>,
    /// The part of the results that may be others, in percent; above, nothing is written
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    max_loss: f64,
    /// Width and height of the model's input, where the file leaves them open
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    input_size: Option<(u32, u32)>,
    /// What goes into inputs besides the picture, as a property of trtinfer: "input-values=txt_feats=words.npy"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    infer: String,
    /// The Python that has ONNX Runtime
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// The report as JSON
    #[arg(long)]
    json: bool,
}

const HEEDED: HeededOptions = HeededOptions {
    subcommand: "quantize",
    which: "runs the model on the CPU, and takes the size and the values of its inputs alone",
    heeds: |name| ["input-size", "input-values"].contains(&name),
};

pub fn run(args: &QuantizeArgs, threads: &Threads) -> Result<Status, Failure> {
    check(args)?;
    start_gstreamer()?;
    let signals = Signals::listen_for_engines()?;
    let device = args.device.clone().unwrap_or_else(|| if args.format == "fp8" { "gpu" } else { "cpu" }.into());
    let output = replaceable(&args.output.clone().unwrap_or_else(|| default_output(&args.model, &args.format)))?;
    let is_output =
        |path: &PathBuf| path.canonicalize().is_ok_and(|path| output.canonicalize().is_ok_and(|output| path == output));
    if let Some(path) = args.pictures.iter().chain([&args.model]).find(|path| is_output(path)) {
        return Err(format!("{} would be overwritten; choose another name with --output.", path.display()).into());
    }
    let original = request(&args.model, args)?;
    if original.spec.desc.dtype != DType::F32 {
        return Err(format!(
            "{} takes {} pictures. Give a model in 32-bit floats.",
            args.model.display(),
            original.spec.desc.dtype
        )
        .into());
    }
    if original.spec.frames().is_some() {
        let (model, input) = (args.model.display(), &original.spec.desc);
        return Err(format!(
            "{model} sees several pictures or vectors at once ({input}), and gets single pictures here. Give a model of single pictures."
        )
        .into());
    }
    let is_quantized = |name: &String| name == "QuantizeLinear" || name == "DequantizeLinear";
    if original.model().operators.iter().any(is_quantized) {
        return Err(format!("{} is quantized already. Give the model from before that.", args.model.display()).into());
    }
    let folder = WorkFolder::new(&output)?;
    let model = absolute(&args.model);
    [&model, &folder.0].into_iter().try_for_each(|path| check_text(path))?;
    let display = Display::default();
    let Some(inputs) = PictureInputs::read(args, &original, &folder.inputs(), (threads, &signals), &display)? else {
        return Ok(stopped(&signals));
    };
    let count = inputs.letterboxes.len();
    let copy_file = folder.0.join("copy.onnx");
    let others = other_inputs(&original, &folder)?;
    let settings = json!({
        "model": model, "output": copy_file, "folder": folder.0, "pictures": folder.inputs(),
        "input": original.spec.desc.name, "shape": original.spec.desc.dims.to_vec(), "others": others,
        "format": args.format, "device": device,
        "calibration": args.calibration, "percentile": args.percentile.unwrap_or(PERCENTILE),
    });
    let task = display.task("quantizing");
    let Some(made) = run_script(&args.python, &settings, &signals)? else { return Ok(stopped(&signals)) };
    drop(task);
    let copy = request(&copy_file, args)?;
    let mut task = display.task("comparing");
    task.show(None, || format!("{count} pictures"));
    let loading = LoadContext { report: &|_| {}, cancelled: signals.flag(), slots: None, contexts: 1 };
    let found = drift(&copy, &original, (0..count).map(|number| inputs.get(number)), &loading);
    if signals.signal().is_some() {
        return Ok(stopped(&signals));
    }
    let found = found?;
    let times = times(&copy, &original, &inputs.get(0)?.0, &loading)?;
    drop(task);
    let report = QuantizeReport {
        args,
        output: &output,
        made: &made,
        device: &device,
        drift: &found,
        times,
        original: &original,
    };
    let loss = f64::from(100.0 * report.drift.loss());
    let is_kept = loss <= args.max_loss;
    if is_kept {
        let write = fs::rename(&copy_file, &output);
        write.map_err(|error| cannot_write(output.display(), &error))?;
    }
    print(&if args.json { format!("{:#}", report.json(is_kept)) } else { report.text() })?;
    match is_kept {
        true => Ok(Status::Done),
        false => Err(format!(
            "{} in {} has {loss:.2} % other results{}, and --max-loss is {} %: nothing is written. Give more pictures, or another \
             --calibration.",
            args.model.display(), args.format, report.of_lost_class(), args.max_loss
        )
        .into()),
    }
}

fn check(args: &QuantizeArgs) -> Result<(), Failure> {
    check_file(&args.model)?;
    if args.percentile.is_some_and(|percentile| !(50.0..=100.0).contains(&percentile)) {
        return Err("--percentile is 50 to 100.".into());
    }
    if args.percentile.is_some() && args.calibration != "percentile" {
        let calibration = &args.calibration;
        let text =
            format!("--percentile has no effect with --calibration {calibration}. Add --calibration percentile.");
        return Err(text.into());
    }
    if !(0.0..=100.0).contains(&args.max_loss) {
        return Err("--max-loss is 0 to 100.".into());
    }
    if args.format == "fp8" && args.device.as_deref() == Some("cpu") {
        return Err("No CPU computes in fp8. Use --format int8, or --device gpu.".into());
    }
    Ok(())
}

fn stopped(signals: &Signals) -> Status {
    print_error("It was stopped; nothing is written.");
    Status::Interrupted(signals.signal().unwrap_or(libc::SIGINT))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// The quantizer is told paths in JSON, which is UTF-8.
fn check_text(path: &Path) -> Result<(), Failure> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => {
            let shown = path.display();
            Err(format!("Python cannot be given the path {shown}: it is no text in UTF-8. Give it another name.")
                .into())
        }
    }
}

fn default_output(model: &Path, format: &str) -> PathBuf {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("{stem}-{format}.onnx"))
}

/// Of a CPU: what the copy costs does not depend on the machine then.
fn request(model: &Path, args: &QuantizeArgs) -> Result<LoadRequest, Failure> {
    let size = args.input_size.map(|(width, height)| format!("input-size={width}x{height}"));
    let own: Vec<String> = ["backend=cpu".to_string()].into_iter().chain(size).collect();
    let options = HEEDED.read(&own, &args.infer)?;
    let no_gpu = || unreachable!("a backend on the CPU was asked for");
    Ok(LoadRequest::new(model, options.backend, options.input_size, 1, options.options, no_gpu)?)
}

/// What goes into the inputs besides the picture, each in a file: the quantizer runs the model, too.
fn other_inputs(original: &LoadRequest, folder: &WorkFolder) -> Result<Vec<Value>, Failure> {
    let tensors = original.model().side_inputs(&original.spec, original.batch, original.values())?;
    let written = |(number, tensor): (usize, &Tensor)| -> Result<Value, Failure> {
        let (desc, path) = (tensor.desc(), folder.0.join(format!("input-{number}")));
        let write = fs::write(&path, tensor.bytes().unwrap_or_default());
        write.map_err(|error| cannot_write(path.display(), &error))?;
        Ok(json!({ "name": desc.name, "type": desc.dtype.name(), "shape": desc.dims.to_vec(), "file": path }))
    };
    tensors.iter().flatten().enumerate().map(written).collect()
}

/// Where the work is, next to the result, so that a rename moves it; removed at the end.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new(output: &Path) -> Result<Self, Failure> {
        let name = output.file_name().ok_or("--output names no file.")?.to_string_lossy();
        let folder = absolute(output).with_file_name(format!(".{name}.{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| cannot_make_folder(&folder, &error))?;
        Ok(WorkFolder(folder))
    }

    fn inputs(&self) -> PathBuf {
        self.0.join("inputs.f32")
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The model's input for each picture, in a file, from which the quantizer takes it too.
struct PictureInputs {
    file: File,
    desc: TensorDesc,
    letterboxes: Vec<Letterbox>,
}

impl PictureInputs {
    /// Nothing, where it was stopped.
    fn read(
        args: &QuantizeArgs,
        original: &LoadRequest,
        path: &Path,
        (threads, signals): (&Threads, &Signals),
        display: &Display,
    ) -> Result<Option<Self>, Failure> {
        let files = pictures_in(&args.pictures)?;
        let unwritten = |error: std::io::Error| cannot_write(path.display(), &error);
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(unwritten)?;
        let mut letterboxes = Vec::new();
        let taken: Vec<&PathBuf> = files.iter().step_by(files.len().div_ceil(MOST)).collect();
        let mut task = display.task("reading");
        for (number, picture) in taken.iter().enumerate() {
            task.show(Some(number as f64 / taken.len() as f64), || format!("{number} pictures"));
            let read = tensor_of(picture, original, threads, signals);
            if signals.signal().is_some() {
                return Ok(None);
            }
            match read {
                Ok((tensor, letterbox)) => {
                    file.write_all(tensor.bytes().unwrap_or_default()).map_err(unwritten)?;
                    letterboxes.push(letterbox);
                }
                Err(failure) => task.line(&format!("Warning: {failure}")),
            }
        }
        match letterboxes.len() {
            0 => return Err("None of the pictures can be read.".into()),
            count if count < FEW => {
                task.line(&format!("Warning: {count} pictures show few of the values that occur. A hundred do."));
            }
            _ => {}
        }
        Ok(Some(PictureInputs { file, desc: original.spec.desc.clone(), letterboxes }))
    }

    fn get(&self, number: usize) -> gsttrt_core::error::Result<(Tensor, Letterbox)> {
        let offset = number * self.desc.bytes().unwrap_or_default();
        let tensor = Tensor::fill(&Pool::default(), self.desc.clone(), |bytes| {
            let unread = |error| Error::new(ErrorKind::Read, "Cannot read the pictures again").cause(error);
            self.file.read_exact_at(bytes, offset as u64).map_err(unread)
        });
        Ok((tensor?, self.letterboxes[number]))
    }
}

fn tensor_of(
    file: &Path,
    request: &LoadRequest,
    threads: &Threads,
    signals: &Signals,
) -> Result<(Tensor, Letterbox), Failure> {
    still::see(file, threads, signals, |frame| {
        let size = (frame.width, frame.height);
        let mut preprocessor = Preprocessor::new(None, frame.format, size, Colorimetry::default(), &request.spec)?;
        let tensor = preprocessor.of_host(frame)?.into_ready()?.pop();
        let tensor = tensor.ok_or_else(|| format!("Cannot read {}: it becomes no tensor.", file.display()))?;
        Ok((tensor, *preprocessor.letterbox()))
    })
}

/// Runs the quantizer; what it found. Nothing, where it was stopped.
fn run_script(python: &Path, settings: &Value, signals: &Signals) -> Result<Option<Value>, Failure> {
    let shown = python.display();
    let cannot_wait = |error: io::Error| Failure::from(format!("Cannot wait for {shown}: {error}."));
    let (told, tells) = UnixStream::pair().map_err(cannot_wait)?;
    let mut command = Command::new(python);
    command.args(["-W", "ignore", "-c", SCRIPT]).arg(settings.to_string());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let install = format!("{shown} -m pip install onnx onnxruntime");
    let mut child = child.map_err(|error| {
        format!("Cannot run {shown}: {error}. Install Python, then: {install}; or name another one by --python.")
    })?;
    // Both pipes are emptied, or it would wait.
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let said = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let complained = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let id = child.id();
    std::thread::spawn(move || {
        wait_for_end(id);
        drop(tells);
    });
    if signals.wait_for(&told).is_some() {
        let _ = child.kill(); // it may have ended
        let _ = child.wait();
        return Ok(None);
    }
    let ended = child.wait().map_err(cannot_wait)?;
    let (said, complained) = (said.join().unwrap_or_default(), complained.join().unwrap_or_default());
    let found: Value = said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    if let Some(module) = found["missing"].as_str() {
        return Err(format!(
            "{shown} has no {module}. Install what it needs: {install}; or name another Python by --python."
        )
        .into());
    }
    if let Some(error) = found["error"].as_str() {
        return Err(format!("ONNX Runtime cannot quantize the model: {}.", error.trim_end_matches('.')).into());
    }
    if !ended.success() || found.is_null() {
        let last = complained.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        return Err(format!("{shown} failed ({ended}): {last}.").into());
    }
    Ok(Some(found))
}

/// Returns when a child has ended. It stays to be waited for, so that its number is its own until then.
fn wait_for_end(id: u32) {
    loop {
        let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a structure that lives during the call, which fills it.
        let waited = unsafe { libc::waitid(libc::P_PID, id, found.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
        if waited == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Medians of runs of one picture, the copy's and the original's, in milliseconds.
fn times(
    copy: &LoadRequest,
    original: &LoadRequest,
    picture: &Tensor,
    loading: &LoadContext,
) -> Result<(f64, f64), Failure> {
    const RUNS: usize = 15;
    let picture = [Arc::new(Tensors::new(vec![picture.row(0)], None, None))];
    let mut models = [copy.load(loading)?, original.load(loading)?];
    let mut taken = [Vec::new(), Vec::new()];
    for run in 0..=RUNS {
        for (model, taken) in models.iter_mut().zip(&mut taken) {
            let begun = Instant::now();
            model.run(&picture)?.pop().map(|outputs| outputs.into_ready()).transpose()?;
            taken.extend((run > 0).then(|| begun.elapsed().as_secs_f64() * 1e3));
        }
    }
    let median = |taken: &mut Vec<f64>| {
        taken.sort_by(f64::total_cmp);
        taken[taken.len() / 2]
    };
    let [copy, original] = &mut taken;
    Ok((median(copy), median(original)))
}

struct QuantizeReport<'a> {
    args: &'a QuantizeArgs,
    output: &'a Path,
    made: &'a Value,
    device: &'a str,
    drift: &'a Drift,
    /// Of a run, in milliseconds: of the copy, and of the original.
    times: (f64, f64),
    original: &'a LoadRequest,
}

impl QuantizeReport<'_> {
    fn label(&self, class: u32) -> String {
        let label = self.original.model().labels.get(class as usize);
        label.map_or_else(|| class.to_string(), |label| label.escape_debug().to_string())
    }

    /// Whose results the loss is of, where not of all.
    fn of_lost_class(&self) -> String {
        self.drift.lost_class().map_or(String::new(), |(class, _)| format!(" of {}", self.label(class)))
    }

    fn text(&self) -> String {
        let QuantizeReport { args, made, drift, times: (copy, original), .. } = self;
        let percent = |part: f32| format!("{:.2} %", 100.0 * part);
        let mut lines = vec![
            format!("model       {}", args.model.display()),
            format!(
                "layers      {} of {} with weights in {}, for a {}",
                made["quantized"], made["products"], args.format, self.device
            ),
            format!("compared    {} pictures by {}", drift.pictures, self.original.backend.title()),
        ];
        let outputs = drift.outputs.iter();
        lines
            .extend(outputs.map(|(name, error)| {
                format!("{:<11} differs by {}", name.escape_debug().to_string(), percent(*error))
            }));
        let line = |name: &str, class: &ClassDrift| {
            format!(
                "{name:<11} {} of {} lost, {} of {} new: {}",
                class.lost,
                class.wanted,
                class.new,
                class.found,
                percent(class.loss())
            )
        };
        lines.extend(drift.classes.iter().map(|(class, drift)| line(&self.label(*class), drift)));
        lines.push(match drift.has_results() {
            true => format!("loss        {} of the results{} are others", percent(drift.loss()), self.of_lost_class()),
            false => format!("loss        {}: the results cannot be read, so the outputs count", percent(drift.loss())),
        });
        lines.push(format!(
            "time        {copy:.1} ms a picture on this CPU, {original:.1} ms before: {:.2} times as fast",
            original / copy
        ));
        if f64::from(100.0 * drift.loss()) <= args.max_loss {
            lines.push(format!("written     {}", self.output.display()));
        }
        lines.join("\n")
    }

    fn json(&self, is_kept: bool) -> Value {
        let QuantizeReport { args, made, drift, times: (copy, original), .. } = self;
        // JSON has no infinity.
        let number = |part: f32| if part.is_finite() { json!(part) } else { json!("infinite") };
        let classes = drift.classes.iter().map(|(class, drift)| {
            json!({
                "class": class, "label": self.label(*class), "wanted": drift.wanted, "lost": drift.lost,
                "found": drift.found, "new": drift.new, "loss": number(drift.loss()),
            })
        });
        json!({
            "model": args.model.display().to_string(),
            "output": is_kept.then(|| self.output.display().to_string()),
            "format": args.format, "device": self.device, "calibration": args.calibration,
            "quantized": made["quantized"], "products": made["products"],
            "pictures": drift.pictures,
            "outputs": drift.outputs.iter().map(|(name, error)| (name.clone(), number(*error))).collect::<serde_json::Map<_, _>>(),
            "classes": classes.collect::<Vec<_>>(),
            "loss": number(drift.loss()), "has-results": drift.has_results(),
            "milliseconds": copy, "milliseconds-before": original,
        })
    }
}
