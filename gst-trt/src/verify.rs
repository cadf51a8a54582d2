// SPDX-License-Identifier: MPL-2.0
//! `gst-trt verify`: whether a model's outputs are what its file says, wherever it runs.

use std::path::PathBuf;
use std::sync::Mutex;

use gsttrt_core::backends::effect::without_effect;
use gsttrt_core::backends::verify::{Tolerance, VERIFY, Verdict, verify};
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadEvent, LoadRequest, all_options};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::options::OptionValue;
use serde_json::{Value, json};

use crate::failure::{Failure, Status};
use crate::model_options::{HeededOptions, backend_words, backends, check_file, parse_size};
use crate::progress::Display;
use crate::signals::Signals;
use crate::terminal::{print, print_error};

#[derive(clap::Args)]
#[command(after_help = "\
Four pictures that are in the program are run by the backend, and by another backend on the CPU in 32-bit floats. Batches \
have each picture in several places, next to others, and are run several times. With another precision, batch size or GPU it \
is another engine. Exit status 1 where the results are others.")]
pub struct VerifyArgs {
    /// The ONNX model or the TensorRT engine
    model: PathBuf,
    /// What runs the model [default: auto, the GPU if it can]
    #[arg(long, value_name = "NAME", value_parser = backends())]
    backend: Option<String>,
    /// Maximum frames per run, as batch-size of trtinfer [default: as the model fixes it, else 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch_size: Option<u32>,
    /// Width and height of the model's input, where the file leaves them open, as input-size of trtinfer
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    input_size: Option<(u32, u32)>,
    /// The GPU, as CUDA counts them
    #[arg(long, value_name = "INDEX")]
    cuda_device_id: Option<u16>,
    /// Further properties of trtinfer, such as "precision=fp16"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    infer: String,
    /// The verdict as JSON
    #[arg(long)]
    json: bool,
}

/// What elements do around the model is left out, and when it is verified is now.
const HEEDED: HeededOptions = HeededOptions {
    subcommand: "verify",
    which: "gives the model pictures of its own, and compares its outputs as they are",
    heeds: |name| {
        let of_backends = || all_options().any(|option| option.spec.name == name);
        match name {
            "backend" | "input-size" | "batch-size" | "cuda-device-id" | "frames" => true,
            "verify" | "verify-every" => false,
            _ => of_backends(),
        }
    },
};

pub fn run(args: &VerifyArgs) -> Result<Status, Failure> {
    check_file(&args.model)?;
    let own: Vec<String> = args.input_size.map(|(w, h)| format!("input-size={w}x{h}")).into_iter().collect();
    let mut options = HEEDED.read(&own, &args.infer)?;
    let signals = Signals::listen_for_engines()?;
    let word = backend_words().find(|word| args.backend.as_deref() == Some(word));
    let backend = word.map_or(options.backend, BackendPreference::from);
    let device = args.cuda_device_id.map(i32::from).or(options.cuda_device_id);
    let cuda = || Context::primary(device.unwrap_or(0));
    let batch = args.batch_size.unwrap_or(options.batch_size) as usize;
    let set = options.options.clone();
    options.options.set(&VERIFY, OptionValue::Choice("always"));
    let request = LoadRequest::new(&args.model, backend, options.input_size, batch, options.options, cuda)?;
    let request = request.with_frames(options.frames)?;
    let display = Display::default();
    let for_gpus: &[&'static str] = if device.is_some() { &["cuda-device-id"] } else { &[] };
    if let Some(warning) = without_effect(&set, for_gpus, request.backend)? {
        print_error(&format!("Warning: {}", warning.message()));
    }
    let seen = Mutex::new((display.task("verifying"), None));
    let report = |event: LoadEvent<'_>| {
        let mut seen = seen.lock().expect("nothing panics with it");
        match event {
            LoadEvent::Warning(warning) => seen.0.line(&format!("Warning: {}", warning.message())),
            LoadEvent::Progress(step, percent) => {
                seen.0.show(percent.map(|percent| f64::from(percent) / 100.0), || step.to_string());
            }
            LoadEvent::Verified(verdict) => seen.1 = Some(verdict.clone()),
            // What later releases of the core may add.
            _ => {}
        }
    };
    let loading = LoadContext { report: &report, cancelled: signals.flag(), slots: None, contexts: 1 };
    let loaded = request.load(&loading).and_then(|mut model| match request.backend.has(&VERIFY) {
        true => Ok(None),
        false => verify(&request, model.as_mut(), request.on_cpu(), &Tolerance::SINGLE, &loading).map(Some),
    });
    if let Some(signal) = signals.signal() {
        print_error("The comparison was stopped before its verdict.");
        return Ok(Status::Interrupted(signal));
    }
    let (bar, seen) = seen.into_inner().expect("nothing panics with it");
    drop(bar);
    // Of one that no engine can run, the verdict says more than the error.
    let verdict = match (loaded, seen) {
        (Ok(Some(found)), _) => found,
        (_, Some(seen)) => seen,
        (Err(error), None) => return Err(error.into()),
        (Ok(None), None) => return Err(format!("{} could not be verified.", args.model.display()).into()),
    };
    let mut found = verdict.to_json();
    found["model"] = json!(args.model.display().to_string());
    found["backend"] = json!(request.running().name());
    match args.json {
        true => print(&format!("{found:#}"))?,
        false => print(&text(&verdict, &found))?,
    }
    match verdict.passed() {
        true => Ok(Status::Done),
        false => Err(format!("{} computes something else than its file says: {verdict}.", args.model.display()).into()),
    }
}

fn text(verdict: &Verdict, found: &Value) -> String {
    let word = |name: &str| found[name].as_str().unwrap_or_default().to_string();
    let compared = match &verdict.reference {
        Ok(reference) => format!("with {reference}: {} pictures", verdict.pictures),
        Err(why) => format!("with itself only, for lack of another backend on the CPU: {why}"),
    };
    let batches = match verdict.largest_batch {
        1 => String::new(),
        largest => format!(" of batches up to {largest}"),
    };
    let percent = |part: f32| format!("{:.3} %", 100.0 * part);
    let mut lines = vec![
        format!("model       {}", word("model")),
        format!("runs on     {}, with the tolerance of {}", word("backend"), verdict.precision),
        format!("compared    {compared}; {} runs{batches}", verdict.runs),
    ];
    for output in &verdict.outputs {
        let error = output.error.map_or(String::new(), |error| format!("differs by {}, ", percent(error)));
        let name = output.name.escape_debug().to_string();
        lines.push(format!("{name:<11} {error}from run to run by {}", percent(output.runs)));
    }
    if let Some((sought, same)) = verdict.results {
        lines.push(format!("results     {same} of {sought} are the same"));
    }
    lines.extend(verdict.repair.iter().map(|repair| format!("repaired    {repair}")));
    lines.extend(verdict.faults.iter().map(|fault| format!("wrong       {fault}")));
    let word = match (verdict.passed(), &verdict.reference) {
        (false, _) => "wrong",
        (true, Ok(_)) => "right",
        (true, Err(_)) => "not compared; the same in each run",
    };
    lines.push(format!("verdict     {word}, in {:.1} s", verdict.milliseconds as f64 / 1000.0));
    lines.join("\n")
}
