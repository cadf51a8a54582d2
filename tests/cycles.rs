// SPDX-License-Identifier: MPL-2.0
//! Starting and stopping for a long time: no memory and no thread may stay behind. A process of its own, since it
//! counts both.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::heap::{NO_CACHES, allocated, settled};
use crate::common::onnx::{F32, Graph};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{init, quick_shapes, run, scratch};
use gst::prelude::*;

fn pipeline(model: &str, frames: u32) -> gst::Pipeline {
    init();
    let line = format!(
        "videotestsrc num-buffers={frames} pattern=black ! video/x-raw,format=RGB,width=32,height=16 ! trtpreprocess ! \
         trtinfer model-file={model} ! trtnms ! fakesink sync=false"
    );
    gst::parse::launch(&line).unwrap().downcast().unwrap()
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits for threads that load or run a model: they go on for a moment after a pipeline that was stopped, and have the
/// model. Until such a thread runs, it has the name of the one that began it, which is this one.
fn wait_for_models() {
    let name = |task: std::path::PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    let this = std::fs::canonicalize("/proc/thread-self").unwrap();
    let begun = name(this.clone());
    let is_ours = |task: std::io::Result<std::fs::DirEntry>| {
        let Ok(task) = task.map(|task| task.path()) else { return false };
        let is_this = task.file_name() == this.file_name();
        let name = name(task);
        !is_this && ["trt-load\n", "trt-run\n", &begun].contains(&name.as_str())
    };
    wait_until("the end of threads", LIMIT, || !std::fs::read_dir("/proc/self/task").unwrap().any(is_ours));
}

/// Runs a test of this file in a process of its own, whose threads keep no freed memory.
#[track_caller]
fn without_caches(test: &str, body: fn()) {
    if std::env::var(NO_CACHES.0).is_ok_and(|tunables| tunables == NO_CACHES.1) {
        return body();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let status = again.args(["--exact", &format!("cycles::{test}"), "--nocapture"]).envs([NO_CACHES]).status().unwrap();
    assert!(status.success(), "{test} failed, see above");
}

#[test]
fn nothing_stays_behind() {
    without_caches("nothing_stays_behind", count_over_200_cycles);
}

/// A model that computes nothing, with one object.
fn constant(folder: &str) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .constant("output0", &[1, 1, 6], &[2.0, 2.0, 8.0, 8.0, 0.9, 0.0])
        .metadata("end2end", "True")
        .save(&scratch(folder).join("constant.onnx"))
}

fn count_over_200_cycles() {
    // What is started again needs no real model: that of the new pipelines is one.
    let again = pipeline(&constant("cycles"), 1);
    let cycle = |i: u32| match i % 4 {
        0 => run(&pipeline(&quick_shapes(), 2)).expect_success(), // a new pipeline, its elements freed
        1 | 2 => run(&again).expect_success(),
        _ => {
            // Stopped before the model is there.
            again.set_state(gst::State::Playing).unwrap();
            again.set_state(gst::State::Null).unwrap();
        }
    };
    (0..50).for_each(cycle);
    wait_for_models();
    let (bytes, tasks) = (settled(allocated), settled(threads));
    (0..200).for_each(cycle);
    wait_for_models();
    let (bytes_after, tasks_after) = (settled(allocated), settled(threads));
    println!("allocated {bytes}, then {bytes_after}; threads {tasks}, then {tasks_after}");
    // Three `identity` in place of our elements leave 3 to 17 KiB.
    assert!(bytes_after < bytes + (64 << 10), "{} KiB stay behind 200 cycles", (bytes_after - bytes) / 1024);
    // Threads of GStreamer's and GLib's pools stay for some time.
    assert!(tasks_after <= tasks + 2, "{tasks_after} threads, {tasks} before");
}

#[test]
fn two_models_run_at_the_same_time() {
    let (sender, done) = mpsc::channel();
    for model in [quick_shapes(), constant("two-models")] {
        let sender = sender.clone();
        std::thread::spawn(move || sender.send(run(&pipeline(&model, 8)).error));
    }
    for _ in 0..2 {
        assert_eq!(done.recv_timeout(Duration::from_secs(60)).expect("it hangs"), None);
    }
}
