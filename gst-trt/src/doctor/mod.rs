// SPDX-License-Identifier: MPL-2.0
//! `gst-trt doctor`: what is on this machine, what each missing piece costs, and whether the chain works.

mod cameras;
mod gpu;
mod gstreamer;
mod trial;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::chain;
use crate::failure::{Failure, Status};
use crate::terminal::print;

const ABOUT: &str = "\
Exit status: 0 where the chain works on the CPU, with --gpu on the GPU; else 1. Missing pieces alone are no failure.";

#[derive(clap::Args)]
#[command(after_help = ABOUT)]
pub struct DoctorArgs {
    /// Try the chain on the GPU too; the first time an engine is built, which takes seconds
    #[arg(long)]
    gpu: bool,
    /// File or folder of the TensorRT library for the trial [default: the newest that is found]
    #[arg(long, value_name = "PATH", requires = "gpu")]
    trt_library: Option<PathBuf>,
    /// The same as JSON
    #[arg(long)]
    json: bool,
}

/// A piece that was looked for.
struct Component {
    group: &'static str,
    name: String,
    is_there: bool,
    /// What was found, or why it is not there.
    found: String,
    /// What its lack costs, and what to do.
    costs: String,
}

impl Component {
    fn there(group: &'static str, name: impl Into<String>, found: impl Into<String>) -> Self {
        Component { group, name: name.into(), is_there: true, found: found.into(), costs: String::new() }
    }

    fn missing(
        group: &'static str,
        name: impl Into<String>,
        found: impl Into<String>,
        costs: impl Into<String>,
    ) -> Self {
        Component { group, name: name.into(), is_there: false, found: found.into(), costs: costs.into() }
    }
}

pub fn run(args: &DoctorArgs) -> Result<Status, Failure> {
    chain::start_gstreamer()?;
    let mut checks = vec![Component::there("program", "gst-trt", env!("CARGO_PKG_VERSION"))];
    checks.extend(gstreamer::checks());
    checks.extend(gpu::checks());
    checks.extend(cameras::checks());
    let cpu = trial::on_cpu();
    let gpu = args.gpu.then(|| trial::on_gpu(args.trt_library.as_deref()));
    checks.push(of_trial("chain on the CPU", &cpu, "nothing works here"));
    if let Some(gpu) = &gpu {
        checks.push(of_trial("chain on the GPU", gpu, "models run on the CPU, which is far slower"));
    }
    let works = gpu.as_ref().unwrap_or(&cpu).is_ok();
    let shown = if args.json { format!("{:#}", as_json(&checks, works)) } else { as_text(&checks) };
    print(&shown)?;
    Ok(if works { Status::Done } else { Status::Failed })
}

fn of_trial(name: &str, outcome: &Result<String, Failure>, costs: &str) -> Component {
    match outcome {
        Ok(found) => Component::there("trial", name, found),
        Err(failure) => Component::missing("trial", name, failure.to_string(), costs),
    }
}

fn as_json(checks: &[Component], works: bool) -> Value {
    let check = |check: &Component| {
        let costs = if check.costs.is_empty() { Value::Null } else { check.costs.clone().into() };
        json!({ "group": check.group, "name": check.name, "there": check.is_there, "found": check.found, "costs": costs })
    };
    json!({ "works": works, "checks": checks.iter().map(check).collect::<Value>() })
}

fn as_text(checks: &[Component]) -> String {
    let mut lines = Vec::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = check.group;
            lines.push(format!("{}{group}", if lines.is_empty() { "" } else { "\n" }));
        }
        let sign = if check.is_there { "ok" } else { "--" };
        lines.push(format!("  {sign}  {:<22} {}", check.name, check.found));
        if !check.costs.is_empty() {
            lines.push(format!("      {:<22} {}", "", check.costs));
        }
    }
    lines.join("\n")
}
