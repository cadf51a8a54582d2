// SPDX-License-Identifier: MPL-2.0
//! `gst-trt import`: a configuration of DeepStream as one of `gst-trt serve`.
//!
//! * `ini`: what is read. `written`: what is written. `infer`, `app`, `sources`: which key becomes which, for a model, for a
//!   whole application and for its sources. `classes`: which classes pass. `gpus`: which GPUs all needs.

mod app;
mod classes;
mod gpus;
mod infer;
mod ini;
mod sources;
mod written;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gsttrt_core::files::read_regular;

use crate::failure::{Failure, Status};
use crate::output::cannot_write;
use crate::terminal::{print, print_error};
use app::DeepStreamApp;
use gpus::NamedGpus;
use infer::NvInfer;
use written::{TomlTable, WrittenConfig};

pub use written::quoted;

/// Bytes of a configuration.
const MAX_LENGTH: u64 = 4 << 20;

const EXAMPLES: &str = "\
Examples:
  gst-trt import deepstream_app_config.txt --output config.toml
  gst-trt import config_infer_primary.txt

Keys that are not taken over are listed on stderr, and as comments at the end of what is written. Those that change results come
first.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// What deepstream-app or nvinfer reads
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write, instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Groups of a file for nvdsanalytics begin so.
const OF_ZONES: [&str; 4] =
    ["roi-filtering-stream-", "overcrowding-stream-", "line-crossing-stream-", "direction-detection-stream-"];

pub fn run(args: &ImportArgs) -> Result<Status, Failure> {
    let shown = args.file.display();
    let config = imported(&args.file).map_err(|failure| format!("Cannot import {shown}: {failure}."))?;
    let text = config.to_toml(&shown.to_string());
    match &args.output {
        None => print(text.trim_end())?,
        Some(output) => {
            write_new(output, &text)?;
            print(&format!("Wrote {0}. Next: gst-trt serve --check {0}", output.display()))?;
        }
    }
    config.notes().for_each(|(kind, note)| print_error(&format!("{}: {note}", kind.heading())));
    Ok(Status::Done)
}

fn imported(file: &Path) -> Result<WrittenConfig, Failure> {
    if is_yaml(file) {
        return Err("YAML is not read. Give the file with groups in brackets".into());
    }
    let text = read(file)?;
    let groups = ini::parse(&text, "")?;
    let shown = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Paths of what is written begin at another folder.
    let path = std::path::absolute(file).map_err(|error| error.to_string())?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut config = WrittenConfig::default();
    if app::is_app(&groups) {
        DeepStreamApp { file: &shown, folder, groups: &groups }.write(&mut config)?;
    } else if groups.iter().any(|group| OF_ZONES.iter().any(|word| group.name.starts_with(word))) {
        return Err(format!(
            "it has zones and lines of nvdsanalytics, and no model. They are read as they are: import the file of \
             deepstream-app that names them, or write them into a configuration: [analytics] with config-file = \"{shown}\", \
             and [track]"
        )
        .into());
    } else if groups.iter().any(|group| group.name == "property") {
        let mut gpus = NamedGpus::default();
        gpus.add(groups.iter().filter(|group| group.name == "property"))?;
        let infer = NvInfer { file: &shown, folder, groups: &groups, own: None, is_secondary: None };
        infer.write("primary", &mut config)?;
        gpus.write(&shown, "property", &mut config);
        let mut http = TomlTable::new("[http]");
        http.comment("By it, sources can be added; or write each as [[source]] with name and address.");
        config.push(http);
    } else {
        return Err("it has neither the groups of deepstream-app nor [property] of nvinfer".into());
    }
    Ok(config)
}

fn is_yaml(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "yml" || ending == "yaml")
}

fn read(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let bytes = read_regular(file, MAX_LENGTH).map_err(|error| format!("cannot read {shown}: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not a text in UTF-8").into())
}

/// A configuration may have passwords in it, so other users do not read it; one that is there is not lost.
pub fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    let shown = file.display();
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut opened| {
        // Half of it could be a configuration, too.
        opened.write_all(text.as_bytes()).inspect_err(|_| drop(std::fs::remove_file(file)))
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{shown} is there already. Give another --output.").into(),
        _ => cannot_write(shown, &error),
    })
}
