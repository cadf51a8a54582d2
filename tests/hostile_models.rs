// SPDX-License-Identifier: MPL-2.0
//! Model files that are damaged or made to do harm, each played in a pipeline: in all cases it gets to NULL.
//!
//! `HOSTILE_FILES=11000 HOSTILE_SEED=7 cargo test --test hostile_models -- --nocapture` plays so many. Seed and number
//! name a file, and `HOSTILE_FIRST=123 HOSTILE_FILES=1` plays the one of that number again. A file that ends the
//! process or hangs it is kept.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use common::random::Random;
use common::{hostile, init, ort, scratch};
use gst::prelude::*;

/// Any step of a pipeline that takes longer hangs.
const HANG: Duration = Duration::from_secs(10);
/// Models that take longer to load or to run are stopped while they do.
const PLAY: gst::ClockTime = gst::ClockTime::from_seconds(2);
/// Address space of a process that plays them, so that it does not depend on the machine which allocations fail.
const MEMORY: u64 = 6 << 30;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// File `number` of those with that seed.
fn file(seed: u64, number: u64) -> Vec<u8> {
    hostile::model(&mut Random(seed << 32 ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d)))
}

/// Plays a model. Returns how that ended, and whether the model still computes.
fn play(model: &Path, said: impl Fn(&str)) -> (&'static str, bool) {
    let backend = std::env::var("HOSTILE_BACKEND").unwrap();
    let line = format!(
        "videotestsrc num-buffers=2 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer {backend} model-file={} ! trtnms ! fakesink",
        model.display()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let bus = pipeline.bus().unwrap();
    said("play");
    let started = pipeline.set_state(gst::State::Playing);
    let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = bus.timed_pop_filtered(PLAY, &ends).map(|message| message.type_());
    said("null");
    pipeline.set_state(gst::State::Null).unwrap();
    match end {
        Some(gst::MessageType::Eos) => ("ran", false),
        Some(_) => ("refused", false),
        None => {
            assert!(started.is_ok(), "an element that does not start posts why");
            ("stopped", true)
        }
    }
}

/// The process that plays files, from the number in the environment, until one of them still computes at its end.
#[test]
fn files_numbered_in_the_environment() {
    let (Ok(folder), count) = (std::env::var("HOSTILE_FOLDER"), setting("HOSTILE_FILES", 0)) else { return };
    init();
    let (seed, first) = (setting("HOSTILE_SEED", 1), setting("HOSTILE_FIRST", 0));
    let path = Path::new(&folder).join("hostile.onnx");
    for number in first..first + count {
        let say = |what: &str| {
            println!("@ {number} {what}");
            std::io::stdout().flush().unwrap();
        };
        std::fs::write(&path, file(seed, number)).unwrap();
        let (outcome, computes) = play(&path, say);
        say(outcome);
        if computes {
            break;
        }
    }
}

fn player(folder: &Path, backend: &str, first: u64, count: u64) -> Child {
    Command::new("prlimit")
        .arg(format!("--as={MEMORY}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "files_numbered_in_the_environment", "--nocapture"])
        .env("HOSTILE_FOLDER", folder)
        .env("HOSTILE_BACKEND", backend)
        .env("HOSTILE_FIRST", first.to_string())
        .env("HOSTILE_FILES", count.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn pipelines_get_to_null() {
    play_all("rten", "backend=rten", setting("HOSTILE_FILES", 300));
}

#[test]
fn pipelines_with_onnxruntime_get_to_null() {
    let Some(options) = ort::options(ort::NEWEST) else { return };
    play_all("ort", &options.join(" "), setting("HOSTILE_FILES", 150));
}

/// Plays files with these properties of trtinfer.
fn play_all(name: &str, backend: &str, count: u64) {
    let first = setting("HOSTILE_FIRST", 0);
    let folder = scratch(&format!("hostile-{name}-{}-{first}-{count}", setting("HOSTILE_SEED", 1)));
    assert!(Command::new("mkfifo").arg(folder.join("pipe.data")).status().unwrap().success());
    std::fs::File::create(folder.join("hole.data")).unwrap().set_len(1 << 40).unwrap();
    let mut outcomes = BTreeMap::<String, u64>::new();
    let mut bad = Vec::new();
    let mut next = first;
    while next < first + count {
        let mut child = player(&folder, backend, next, first + count - next);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut step = "start".to_string();
        let fault = loop {
            match lines.recv_timeout(HANG) {
                Ok(line) => {
                    // The test runner's own words come before the first.
                    let Some((_, said)) = line.split_once("@ ") else { continue };
                    let (number, what) = said.split_once(' ').unwrap();
                    step = what.into();
                    if !["play", "null"].contains(&what) {
                        *outcomes.entry(step.clone()).or_default() += 1;
                        next = number.parse::<u64>().unwrap() + 1;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    child.kill().unwrap();
                    break Some("hangs");
                }
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let status = child.wait().unwrap();
        let ended = match status.signal() {
            _ if status.success() => None,
            Some(_) => Some("aborts"),
            None => Some("panics"),
        };
        if let Some(fault) = fault.or(ended) {
            let kept = folder.join(format!("{fault}-{next}.onnx"));
            std::fs::write(&kept, file(setting("HOSTILE_SEED", 1), next)).unwrap();
            bad.push(format!("{} {fault} in step “{step}” ({status})", kept.display()));
            println!("{}", bad.last().unwrap());
            next += 1;
        }
    }
    println!("{count} files: {outcomes:?}, {} faults", bad.len());
    assert!(bad.is_empty(), "{bad:#?}");
}
