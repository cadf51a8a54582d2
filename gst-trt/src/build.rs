// SPDX-License-Identifier: MPL-2.0
//! `gst-trt build`: a TensorRT engine into the cache, before a pipeline needs it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::tensorrt::cache;
use gsttrt_core::backends::{BACKENDS, BackendPreference, LoadContext, LoadEvent, LoadRequest, all_options};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::model::{ModelFile, ModelInfo};
use gsttrt_core::options::OptionValue;

use crate::failure::{Failure, Status};
use crate::model_options::{HeededOptions, check_file, parse_size};
use crate::progress::Display;
use crate::signals::Signals;
use crate::terminal::{print, print_error};

#[derive(clap::Args)]
#[command(
    after_help = "The options must be those of the pipelines: another precision or batch size is another engine."
)]
pub struct BuildArgs {
    /// The ONNX model
    model: PathBuf,
    /// Precision of the layers [default: auto]
    #[arg(long, value_name = "NAME", value_parser = ["auto", "fp32", "fp16", "int8"])]
    precision: Option<String>,
    /// Maximum frames per run, as batch-size of trtinfer [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch_size: Option<u32>,
    /// Width and height of the model's input, where the file leaves them open, as input-size of trtinfer
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size, conflicts_with = "frame")]
    input_size: Option<(u32, u32)>,
    /// Width and height of the frames, where the model takes the smallest input that frames need
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    frame: Option<(u32, u32)>,
    /// How long TensorRT looks for faster kernels, 0 to 5 [default: 3]
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(0..=5))]
    optimization_level: Option<u32>,
    /// Folder of built engines [default: gst-plugin-trt/engines in the user's cache]
    #[arg(long, value_name = "FOLDER")]
    engine_cache: Option<String>,
    /// File or folder of the TensorRT library [default: the newest that is found]
    #[arg(long, value_name = "PATH")]
    trt_library: Option<String>,
    /// The GPU, as CUDA counts them [default: 0]
    #[arg(long, value_name = "INDEX")]
    cuda_device_id: Option<u16>,
    /// Further properties of trtinfer, such as "workspace-mib=4096"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    infer: String,
}

/// What runs the model.
const TENSORRT: &str = "tensorrt";

const HEEDED: HeededOptions = HeededOptions {
    subcommand: "build",
    which: "builds an engine of TensorRT, and runs nothing but the comparison by verify",
    heeds: |name| {
        let is_one_of_its_own = || {
            let option = all_options().find(|option| option.spec.name == name);
            let has = |option| BACKENDS.iter().any(|backend| backend.name() == TENSORRT && backend.has(option));
            option.is_some_and(has)
        };
        match name {
            "input-size" | "batch-size" | "cuda-device-id" | "frames" => true,
            "verify-every" => false,
            _ => is_one_of_its_own(),
        }
    },
};

pub fn run(args: &BuildArgs) -> Result<Status, Failure> {
    check_file(&args.model)?;
    let file = ModelFile::new(&args.model);
    if file.is_engine() {
        return Err(format!("{} is an engine already. Give an ONNX model.", args.model.display()).into());
    }
    ModelInfo::of_onnx(&*file.contents()?)?; // what is wrong with the file comes before what is wrong with the machine
    let own = [
        args.precision.as_ref().map(|value| format!("precision={value}")),
        args.optimization_level.map(|value| format!("optimization-level={value}")),
        args.engine_cache.as_ref().map(|value| format!("engine-cache={value}")),
        args.trt_library.as_ref().map(|value| format!("trt-library={value}")),
        args.input_size.map(|(width, height)| format!("input-size={width}x{height}")),
    ];
    let own: Vec<String> = own.into_iter().flatten().collect();
    let options = HEEDED.read(&own, &args.infer)?;
    let signals = Signals::listen_for_engines()?;
    let tensorrt = BackendPreference::Named(TENSORRT);
    let device = args.cuda_device_id.map(i32::from).or(options.cuda_device_id).unwrap_or(0);
    let cuda = || Context::primary(device);
    let batch = args.batch_size.unwrap_or(options.batch_size.max(1)) as usize;
    let folder = cache_folder(&options.options);
    let request = LoadRequest::new(&args.model, tensorrt, options.input_size, batch, options.options, cuda)?;
    let mut request = request.with_frames(options.frames)?;
    // An engine for lines of text is for all their widths, whatever the frame is.
    if let Some(frame) = args.frame.filter(|_| request.waits_for_frames()) {
        request = request.for_tensor(request.spec_for(frame));
    }
    let display = Display::default();
    let task = Mutex::new((display.task("building"), false, None));
    let report = |event: LoadEvent<'_>| {
        let mut task = task.lock().expect("nothing panics with it");
        match event {
            LoadEvent::Warning(warning) => task.0.line(&format!("Warning: {}", warning.message())),
            LoadEvent::Progress(step, percent) => {
                if step.starts_with("building") {
                    task.1 = true;
                    task.0.line(step);
                }
                task.0.show(percent.map(|percent| f64::from(percent) / 100.0), || step.to_string());
            }
            LoadEvent::Verified(verdict) => task.2 = Some(verdict.to_string()),
            // What later releases of the core may add.
            _ => {}
        }
    };
    let begun = Instant::now();
    let loaded = request.load(&LoadContext { report: &report, cancelled: signals.flag(), slots: None, contexts: 1 });
    if let Some(signal) = signals.signal() {
        print_error("The build was stopped; nothing is in the cache.");
        return Ok(Status::Interrupted(signal));
    }
    loaded?;
    let (bar, is_built, verdict) = task.into_inner().expect("nothing panics with it");
    drop(bar);
    let what = if is_built { "built" } else { "found in the cache and loaded" };
    print(&format!("engine      {what} in {:.1} s", begun.elapsed().as_secs_f64()))?;
    print(&format!("input       {}, batches of {batch}", request.spec))?;
    print(&format!("verified    {}", verdict.as_deref().unwrap_or("no, verify=off or it could not be")))?;
    print(&format!("cache       {}", folder.display()))?;
    Ok(Status::Done)
}

/// Where the engine is, by whichever option says it.
fn cache_folder(options: &Options) -> PathBuf {
    let option = all_options().find(|option| option.spec.name == "engine-cache");
    match option.map(|option| options.get(option)) {
        Some(OptionValue::Path(Some(folder))) => folder,
        _ => cache::default_folder().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_cache_is_where_the_options_say() {
        let folder = |own: &[String], infer: &str| cache_folder(&HEEDED.read(own, infer).unwrap().options);
        assert_eq!(folder(&["engine-cache=/a".into()], ""), Path::new("/a"));
        assert_eq!(folder(&[], "engine-cache=/b"), Path::new("/b"));
        assert_eq!(folder(&[], ""), cache::default_folder().unwrap_or_default());
    }
}
