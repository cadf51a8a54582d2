// SPDX-License-Identifier: MPL-2.0
//! `gst-trt init`: a first configuration of `gst-trt serve`, by three questions.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Status};
use crate::import::{quoted, write_new};
use crate::model_options::check_model;
use crate::serve;
use crate::source::{VideoAddress, path_text};
use crate::terminal::{print, print_error};

const EXAMPLES: &str = "\
Examples:
  gst-trt init
  gst-trt init --source rtsp://camera.local/stream --model yolo11n.onnx --results {source}.jsonl

What no option says is asked for.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct InitArgs {
    /// A camera, a stream or a video; several times for several
    #[arg(long, value_name = "ADDRESS")]
    source: Vec<String>,
    /// The ONNX model or the TensorRT engine
    #[arg(long, value_name = "FILE")]
    model: Option<String>,
    /// Where results go: a file, or an address such as mqtt://broker.local/cameras/{source}
    #[arg(long, value_name = "LOCATION")]
    results: Option<String>,
    /// Where to write
    #[arg(short, long, value_name = "FILE", default_value = "config.toml")]
    output: PathBuf,
}

pub fn run(args: &InitArgs) -> Result<Status, Failure> {
    let output = &args.output;
    if output.exists() {
        return Err(format!("{} is there already. Give another --output.", output.display()).into());
    }
    let here = std::env::current_dir().map_err(|error| format!("Cannot find the current folder: {error}."))?;
    crate::chain::start_gstreamer()?;
    let is_source = |text: &str| VideoAddress::parse(text, &here).map(drop);
    let mut sources = args.source.clone();
    if sources.is_empty() {
        let question = "Which camera, stream or video, such as rtsp://user:password@camera.local/stream or street.mp4?";
        sources.push(answer(question, "--source", None, is_source)?);
    }
    sources.iter().try_for_each(|source| is_source(source))?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => answer("Which model, such as yolo11n.onnx?", "--model", None, |text| check_model(Path::new(text)))?,
    };
    check_model(Path::new(&model))?;
    let results = match &args.results {
        Some(results) => results.clone(),
        None => {
            let question = "Where do results go: a file, or an address such as mqtt://broker.local/cameras/{source}?";
            let is_of_each = |text: &str| match sources.len() > 1 && is_one_file(text) {
                true => Err(several_in_one(text).into()),
                false => Ok(()),
            };
            answer(question, "--results", Some("{source}.jsonl"), is_of_each)?
        }
    };
    if sources.len() > 1 && is_one_file(&results) {
        return Err(several_in_one(&results).into());
    }
    write_new(output, &config(&sources, &model, &results, &here))?;
    match serve::warnings(output) {
        Ok(warnings) => warnings.iter().for_each(|warning| print_error(&format!("Warning: {warning}"))),
        Err(failure) => {
            let _ = std::fs::remove_file(output); // it was made here
            let shown = output.display();
            return Err(format!("{failure} {shown} was not written: change --source, --model or --results.").into());
        }
    }
    print(&format!("Wrote {0}. Next: gst-trt serve {0}", output.display()))?;
    Ok(Status::Done)
}

/// Each source has a file of its own, or they would write over each other's lines.
fn several_in_one(results: &str) -> String {
    let path = Path::new(results);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map_or(String::new(), |ending| format!(".{}", ending.to_string_lossy()));
    let own = path.with_file_name(format!("{stem}-{{source}}{ending}"));
    format!(
        "{results} cannot be the file of several sources. Give --results with their names in it: {}.",
        own.display()
    )
}

/// Asks until the answer is right. Without one, the proposal counts.
fn answer(
    question: &str,
    option: &str,
    proposal: Option<&str>,
    check: impl Fn(&str) -> Result<(), Failure>,
) -> Result<String, Failure> {
    loop {
        let proposed = proposal.map_or(String::new(), |proposal| format!(" [{proposal}]"));
        let _ = write!(std::io::stderr(), "{question}{proposed} "); // without a reader there is no answer either
        let mut line = String::new();
        let count =
            std::io::stdin().lock().read_line(&mut line).map_err(|error| format!("Cannot read an answer: {error}."))?;
        let text = line.trim();
        let text = if text.is_empty() { proposal.filter(|_| count > 0).unwrap_or_default() } else { text };
        if text.is_empty() && count == 0 {
            return Err(format!("There is no answer. Give it with {option}.").into());
        }
        if text.is_empty() {
            print_error("An answer is needed.");
            continue;
        }
        match check(text) {
            Ok(()) => return Ok(text.into()),
            Err(failure) => print_error(&failure.to_string()),
        }
    }
}

/// Whether it is the path of a file, not an address.
fn is_file(text: &str) -> bool {
    !(text.contains("://") || text == "-" || text.starts_with("unix:") || text.starts_with("file:"))
}

/// Whether it is one file, whatever the source is called.
fn is_one_file(text: &str) -> bool {
    (is_file(text) || text.starts_with("file:")) && !text.contains("{source}")
}

/// A path as it is from the folder of any file.
fn absolute(text: &str, here: &Path) -> String {
    if is_file(text) { here.join(text).to_string_lossy().into_owned() } else { text.into() }
}

fn config(sources: &[String], model: &str, results: &str, here: &Path) -> String {
    let mut text = format!(
        "# What gst-trt serve runs. All keys: docs/serve.md. After a change: gst-trt serve --check FILE, then SIGHUP.\n\n\
         [[model]]\nname = \"detector\"\nfile = {}\n\
         # backend = \"cpu\"                # else the GPU, if there is one\n\
         # batch-size = 4                 # frames of several sources in one run, for models that take batches\n\
         # infer = \"interval=2\"           # every second frame\n\
         # nms = \"score-threshold=0.4\"\n\n\
         # Ids of objects, and what is counted by them:\n\
         # [track]\n\n\
         # [analytics]\n\
         # config-file = \"zones.json\"\n\n\
         # Videos of what happens in zones and at lines:\n\
         # [record]\n\
         # folder = \"events\"\n\
         # keep = \"30d\"\n\n\
         [[publish]]\nname = \"results\"\nlocation = {}\n{}\n\
         # The page, metrics and changes: http://127.0.0.1:8090\n\
         [http]\nlisten = \"127.0.0.1:8090\"\n\
         # token-file = \"token\"           # for changes; openssl rand -hex 32 > token\n\n\
         [log]\nformat = \"text\"             # or \"json\"\n",
        quoted(&absolute(model, here)),
        quoted(&absolute(results, here).replace("${", "$${")),
        if is_file(results) { "max-file-size = \"100MB\"        # full files become NAME.1 to NAME.9\n" } else { "" },
    );
    let mut has_file = false;
    for (source, number) in sources.iter().zip(1..) {
        let parsed = VideoAddress::parse(source, here);
        // The number of a camera is no file.
        let address = match &parsed {
            Ok(VideoAddress::Camera(path)) => path_text(path),
            _ => absolute(source, here),
        };
        let address = quoted(&address.replace("${", "$${"));
        text += &format!("\n[[source]]\nname = \"source{number}\"\naddress = {address}\n");
        if number == 1 {
            text += "# password-file = \"password\"     # of the user in the address\n\
                     # timeout = \"10s\"              # time without a frame after which it is started again\n";
        }
        // A service that is tried with a file has nothing to show after it.
        if matches!(parsed, Ok(VideoAddress::File(_))) && !std::mem::replace(&mut has_file, true) {
            text += "# loop = true                  # files: begin again at the end\n\
                     # sync = true                  # files: frames at their own time, not as fast as the model can\n";
        }
    }
    text
}
