//! Starting and stopping for a long time: no memory and no thread may stay behind. A process of its own, since it counts both.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use common::onnx::{F32, Graph};
use common::{init, run, scratch, shapes};
use gst::prelude::*;

fn pipeline(model: &str, frames: u32) -> gst::Pipeline {
    init();
    let line = format!(
        "videotestsrc num-buffers={frames} pattern=black ! video/x-raw,format=RGB,width=32,height=16 ! trtpreprocess ! \
         trtinfer model-file={model} ! trtnms ! fakesink sync=false"
    );
    gst::parse::launch(&line).unwrap().downcast().unwrap()
}

/// A number of /proc/self/status, such as `Threads` or `VmRSS` in KiB.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A leak shows in every stretch of cycles. The allocator's own steps, one for each thread that happens to load a model, and
/// its giving back show in a few: so what counts is the median.
#[test]
fn nothing_stays_behind() {
    const STRETCH: u32 = 25;
    let again = pipeline(&shapes(), 1);
    let cycle = |i: u32| match i % 4 {
        0 => run(&pipeline(&shapes(), 2)).expect_success(), // a new pipeline, its elements freed
        1 | 2 => run(&again).expect_success(),
        _ => {
            // Stopped before the model is there.
            again.set_state(gst::State::Playing).unwrap();
            again.set_state(gst::State::Null).unwrap();
        }
    };
    (0..2 * STRETCH).for_each(cycle);
    let threads = status("Threads");
    let mut memory = status("VmRSS");
    let mut growth = [0; 8].map(|_| {
        (0..STRETCH).for_each(cycle);
        let before = std::mem::replace(&mut memory, status("VmRSS"));
        memory as i64 - before as i64
    });
    println!("memory grew by {growth:?} KiB; threads {threads}, then {}", status("Threads"));
    growth.sort_unstable();
    assert!(growth[growth.len() / 2] < 1024, "{growth:?} KiB in each {STRETCH} cycles");
    // Threads of GStreamer's and GLib's pools stay for some time.
    assert!(status("Threads") <= threads + 2, "{} threads, {threads} before", status("Threads"));
}

#[test]
fn two_models_run_beside_each_other() {
    let other = Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .constant("output0", &[1, 1, 6], &[2.0, 2.0, 8.0, 8.0, 0.9, 0.0])
        .metadata("end2end", "True")
        .save(&scratch("two-models").join("other.onnx"));
    let (sender, done) = mpsc::channel();
    for model in [shapes(), other] {
        let sender = sender.clone();
        std::thread::spawn(move || sender.send(run(&pipeline(&model, 8)).error));
    }
    for _ in 0..2 {
        assert_eq!(done.recv_timeout(Duration::from_secs(60)).expect("it hangs"), None);
    }
}
