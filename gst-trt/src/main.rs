// SPDX-License-Identifier: MPL-2.0
//! `gst-trt`: detection without a launch line.
//!
//! * `detect`, `enrol`: one file for each subcommand; `detect`, `embed_text`, `import`, `quantize` and `serve` are folders.
//! * `source`, `chain`, `model_options`, `launch_text`, `assignments`: what is read, and what runs on it, for every subcommand that has a pipeline.
//!   `cause`: why it cannot be read.
//! * `tls_sessions`: no certificate goes unseen. `open_files`: how many there may be.
//! * `threads`, `running`, `connections`: what a source, a model or a disk can hold up, and what is left behind at the end.
//! * `progress`, `signals`, `failure`, `terminal`: the program and its terminal.

mod assignments;
mod bench;
mod build;
mod bus;
mod cause;
mod chain;
mod completions;
mod connections;
mod detect;
mod doctor;
mod embed_text;
mod enrol;
mod failure;
mod frame_times;
mod import;
mod info;
mod init;
mod launch_text;
mod local;
mod model_options;
#[cfg(test)]
#[path = "../../core/tests/common/npy.rs"]
mod npy_files;
#[cfg(test)]
#[path = "../../core/tests/common/onnx.rs"]
#[allow(dead_code)] // other tests use more of it
mod onnx_files;
mod open_files;
mod output;
mod progress;
mod quantize;
mod running;
#[cfg(test)]
#[path = "../../core/tests/common/scratch.rs"]
mod scratch;
mod serve;
mod signals;
mod source;
mod terminal;
mod threads;
mod tls_sessions;
mod verify;
#[cfg(test)]
#[path = "../../core/tests/common/wait.rs"]
mod wait;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use gsttrt::gst::cuda::registry;
use gsttrt_core::cuda::driver;

use failure::{Failure, Status};
use threads::{Threads, listed};

/// Objects, masks, poses, classes and maps in videos, cameras and images, with TensorRT or on the CPU.
#[derive(Parser)]
#[command(name = "gst-trt", version, arg_required_else_help = true, after_help = STATUS)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const STATUS: &str = "\
Exit status: 0 done; 1 failed, and the last line on stderr says why; 2 the command line is wrong; 75 the GPU is lost to this
process, start it again; 129, 130 and 143 ended by SIGHUP, Ctrl+C and SIGTERM before the end of a file, what was found until then is
written; 141 the reader of --json - has left.";

#[derive(Subcommand)]
enum Command {
    /// Find objects in files, images, cameras and streams
    Detect(detect::DetectArgs),
    /// Tell what a model file says, and what is missing
    Info(info::InfoArgs),
    /// Build the TensorRT engine of a model ahead of time
    Build(build::BuildArgs),
    /// Compare what runs a model with the CPU, number by number and result by result
    Verify(verify::VerifyArgs),
    /// Make a copy of a model in 8 bits, and tell what that costs
    Quantize(quantize::QuantizeArgs),
    /// Measure throughput and latency of a model
    Bench(bench::BenchArgs),
    /// Add a name with vectors of pictures to a gallery, or remove one
    Enrol(enrol::EnrolArgs),
    /// Make a gallery of words, or an array of them, by the text side of CLIP
    EmbedText(embed_text::EmbedTextArgs),
    /// Run many cameras and files by a configuration, for months
    Serve(serve::ServeArgs),
    /// Write a first configuration, by three questions
    Init(init::InitArgs),
    /// Make a configuration of one of DeepStream
    Import(import::ImportArgs),
    /// Tell what is on this machine, and what each missing piece costs
    Doctor(doctor::DoctorArgs),
    /// Print a script that completes command lines in a shell
    Completions(completions::CompletionsArgs),
}

/// How long the threads of pipelines that have stopped may take to end.
const LAST_THREADS: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    tls_sessions::refuse_to_resume();
    open_files::raise_limit();
    open_files::outlive_size_limit();
    let threads = Threads::default();
    let command = Program::parse().command;
    let tell = if matches!(command, Command::Serve(_)) { serve::log_left } else { terminal::print_error };
    let outcome: Result<Status, Failure> = match command {
        Command::Detect(args) => detect::run(&args, &threads),
        Command::Info(args) => info::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Quantize(args) => quantize::run(&args, &threads),
        Command::Bench(args) => bench::run(&args, &threads),
        Command::Enrol(args) => enrol::run(&args, &threads),
        Command::EmbedText(args) => embed_text::run(&args),
        Command::Serve(args) => serve::run(&args, &threads),
        Command::Init(args) => init::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args, Program::command()),
    };
    let left = threads.wait(LAST_THREADS);
    if !left.is_empty() {
        tell(&format!("Left behind, as it does not end: {}. What it had not written is lost.", listed(&left)));
    }
    let status = outcome.unwrap_or_else(|failure| {
        terminal::print_error(&format!("Error: {failure}"));
        Status::Failed
    });
    let is_lost = status == Status::GpuLost || status == Status::Failed && registry::lost().is_some();
    let status = if is_lost { Status::GpuLost } else { status };
    if left.is_empty() && !driver::is_started() {
        return ExitCode::from(status.code());
    }
    let _ = std::io::stdout().flush(); // nobody reads it
    // SAFETY: it takes a number, and does not return. Destructors must not run beneath threads that are left, which those of
    // CUDA's libraries always are, and would free what they have on a GPU that may be lost.
    unsafe { libc::_exit(status.code().into()) }
}
