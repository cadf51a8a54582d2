// SPDX-License-Identifier: MPL-2.0
//! trtinfer loads its model in the background: its messages on the bus, and that no thread waits forever.
//!
//! Its loader posts a message before it begins, and a handler on the bus holds it there until the test lets it go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, mpsc};
use std::time::Duration;

use crate::common::endless::give_way;
use crate::common::onnx::{F32, Graph};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{init, run, scratch};
use gst::prelude::*;

/// Far longer than anything here takes: a wait of this length is a hang.
const HANG: Duration = Duration::from_secs(30);

struct SlowModel {
    path: String,
    released: Arc<(Mutex<bool>, Condvar)>,
}

impl SlowModel {
    /// Its weights are missing, so that in the end loading fails.
    fn new(test: &str) -> Self {
        let graph = Graph::new()
            .input("images", F32, &["1", "3", "8", "8"])
            .external_weight("weight", "weights.data")
            .node("Mul", &["images", "weight"], &["output0"], Vec::new())
            .output("output0", F32, &["1", "3", "8", "8"]);
        SlowModel::of(test, graph)
    }

    fn of(test: &str, graph: Graph) -> Self {
        SlowModel { path: graph.save(&scratch(test).join("slow.onnx")), released: Arc::default() }
    }

    /// Lets the loader go on.
    fn release(&self) {
        *self.released.0.lock().unwrap() = true;
        self.released.1.notify_all();
    }

    /// Blocks the thread that posts that this model is being loaded, once the message is on the bus.
    fn hold(&self, bus: &gst::Bus) {
        let (released, reported) = (self.released.clone(), AtomicBool::new(false));
        bus.set_sync_handler(move |bus, message| {
            let gst::MessageView::Progress(progress) = message.view() else { return gst::BusSyncReply::Pass };
            let text: String = progress.structure().unwrap().get("text").unwrap();
            if !text.starts_with("Loading slow.onnx for") || reported.swap(false, Ordering::SeqCst) {
                return gst::BusSyncReply::Pass;
            }
            reported.store(true, Ordering::SeqCst);
            let _ = bus.post(message.copy()); // comes here again, and passes
            let (open, opened) = &*released;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            gst::BusSyncReply::Drop
        });
    }

    /// A pipeline with this model, and a message for each frame that reaches it.
    fn pipeline(&self, source: &str) -> (gst::Pipeline, mpsc::Receiver<()>) {
        init();
        let line = format!(
            "{source} ! video/x-raw,format=RGB,width=8,height=8 ! trtpreprocess ! trtinfer name=infer model-file={} ! fakesink",
            self.path
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        self.hold(&pipeline.bus().unwrap());
        let (sender, frames) = mpsc::channel();
        let pad = pipeline.by_name("infer").unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            let _ = sender.send(());
            gst::PadProbeReturn::Ok
        });
        (pipeline, frames)
    }
}

#[track_caller]
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(HANG).expect("it hangs")
}

#[track_caller]
fn set_state(pipeline: &gst::Pipeline, state: gst::State) {
    let pipeline = pipeline.clone();
    in_time(move || pipeline.set_state(state)).unwrap();
}

/// The next message of that type from the element `infer`.
#[track_caller]
fn message(pipeline: &gst::Pipeline, kind: gst::MessageType) -> gst::Message {
    let timeout = gst::ClockTime::try_from(HANG).unwrap();
    let bus = pipeline.bus().unwrap();
    loop {
        let message = bus.timed_pop_filtered(timeout, &[kind]).unwrap_or_else(|| panic!("no {kind:?}"));
        if message.src().is_some_and(|element| element.name() == "infer") {
            return message;
        }
    }
}

#[track_caller]
fn progress(pipeline: &gst::Pipeline) -> (gst::ProgressType, String) {
    let message = message(pipeline, gst::MessageType::Progress);
    let gst::MessageView::Progress(progress) = message.view() else { unreachable!() };
    let (kind, code, text) = progress.get();
    assert_eq!(code, "model-load");
    (kind, text.to_string())
}

#[test]
fn a_failure_reaches_the_bus_once() {
    let model = SlowModel::new("loading-fails");
    let (pipeline, frames) = model.pipeline("videotestsrc");
    set_state(&pipeline, gst::State::Playing);
    assert_eq!(progress(&pipeline), (gst::ProgressType::Start, "Loading slow.onnx for the rten backend".into()));
    frames.recv_timeout(HANG).unwrap();
    model.release();
    assert_eq!(progress(&pipeline), (gst::ProgressType::Error, "Loading slow.onnx failed".into()));

    // The source's own error comes last, when the frame has come back to it.
    let mut errors = Vec::new();
    let bus = pipeline.bus().unwrap();
    while !errors.iter().any(|name: &String| name.starts_with("videotestsrc")) {
        let timeout = gst::ClockTime::try_from(HANG).unwrap();
        let message = bus.timed_pop_filtered(timeout, &[gst::MessageType::Error]).expect("the source stops");
        errors.push(message.src().unwrap().name().to_string());
    }
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(errors[0], "infer");
    set_state(&pipeline, gst::State::Null);
}

#[test]
fn no_thread_waits_for_a_model_that_is_not_needed() {
    let model = SlowModel::new("loading-null");
    let (pipeline, frames) = model.pipeline("videotestsrc");
    for _ in 0..2 {
        set_state(&pipeline, gst::State::Playing);
        frames.recv_timeout(HANG).unwrap();
        set_state(&pipeline, gst::State::Null);
        while frames.try_recv().is_ok() {}
    }

    // The loaders that were left behind do not disturb the next one.
    let good = Graph::new()
        .input("images", F32, &["1", "3", "8", "8"])
        .constant("output0", &[1, 1, 6], &[0.0; 6])
        .save(&scratch("loading-good").join("good.onnx"));
    pipeline.by_name("infer").unwrap().set_property("model-file", good);
    set_state(&pipeline, gst::State::Playing);
    model.release();
    while !progress(&pipeline).1.starts_with("Loaded good.onnx") {} // the others may still say that they were cancelled
    frames.recv_timeout(HANG).unwrap();
    frames.recv_timeout(HANG).expect("the first frame has passed");
    set_state(&pipeline, gst::State::Null);
}

#[test]
fn a_cancelled_load_only_reports_that() {
    let model = SlowModel::new("loading-cancelled");
    let (pipeline, frames) = model.pipeline("videotestsrc");
    set_state(&pipeline, gst::State::Playing);
    assert_eq!(progress(&pipeline).0, gst::ProgressType::Start);
    frames.recv_timeout(HANG).unwrap();
    set_state(&pipeline, gst::State::Ready);
    model.release();
    assert_eq!(progress(&pipeline).0, gst::ProgressType::Canceled);
    let error = pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]);
    assert!(error.is_none(), "{error:?}");
    set_state(&pipeline, gst::State::Null);
}

#[test]
fn a_flushing_seek_does_not_wait_for_the_model() {
    let model = SlowModel::new("loading-flush");
    let (pipeline, frames) = model.pipeline("videotestsrc");
    set_state(&pipeline, gst::State::Playing);
    for _ in 0..3 {
        frames.recv_timeout(HANG).expect("a frame after each flush");
        let source = pipeline.clone();
        let sought = in_time(move || source.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO));
        sought.expect("the source can seek");
    }
    frames.recv_timeout(HANG).unwrap();
    set_state(&pipeline, gst::State::Null);
    model.release();
}

/// Nothing is left of the flush: what comes after it is inferred.
#[test]
fn frames_after_a_seek_are_inferred_once_the_model_is_there() {
    let graph = Graph::new().input("images", F32, &["1", "3", "8", "8"]).constant("output0", &[1, 1, 6], &[0.0; 6]);
    let model = SlowModel::of("loading-seek", graph);
    let (pipeline, frames) = model.pipeline("videotestsrc");
    let (sender, inferred) = mpsc::channel();
    let pad = pipeline.by_name("infer").unwrap().static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let _ = sender.send(());
        gst::PadProbeReturn::Ok
    });
    set_state(&pipeline, gst::State::Playing);
    frames.recv_timeout(HANG).unwrap();
    let source = pipeline.clone();
    in_time(move || source.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO)).unwrap();
    assert!(inferred.try_recv().is_err(), "there is no model yet");
    model.release();
    inferred.recv_timeout(HANG).expect("a frame with its outputs");
    set_state(&pipeline, gst::State::Null);
}

#[test]
fn the_end_comes_without_a_model() {
    let model = SlowModel::new("loading-eos");
    let (pipeline, _) = model.pipeline("videotestsrc num-buffers=0");
    let play = pipeline.clone();
    in_time(move || run(&play)).expect_success();
    model.release();
}

#[test]
fn a_failed_start_can_be_corrected() {
    let folder = scratch("loading-mended");
    let (missing, late) = (folder.join("late.onnx").display().to_string(), folder.join("late.onnx"));
    init();
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers=1 ! trtpreprocess ! trtinfer name=infer model-file={missing} ! fakesink"
    ));
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    run(&pipeline).expect_error("ResourceError::NotFound", &["late.onnx"]);
    Graph::new().input("images", F32, &["1", "3", "8", "8"]).constant("output0", &[1, 1, 6], &[0.0; 6]).save(&late);
    run(&pipeline).expect_success();
}

// ------------------------------------------------------------------------------------- models that never end

/// A pipeline with such a model, played until that is what it waits for.
fn endless_pipeline(test: &str, batch: &str, constant: bool, source: &str, infer: &str) -> gst::Pipeline {
    static GIVES_WAY: Once = Once::new();
    GIVES_WAY.call_once(|| give_way(std::process::id()));
    init();
    let path = crate::common::onnx::endless(batch, "8", constant).save(&scratch(test).join("endless.onnx"));
    let line = format!(
        "{source},format=RGB,width=8,height=8 ! trtpreprocess \
         ! trtinfer name=infer model-file={path} backend=rten {infer} ! trtnms ! fakesink"
    );
    gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap()
}

fn wait_for_batches(pipeline: &gst::Pipeline, count: u64) {
    let infer = pipeline.by_name("infer").unwrap();
    let batches = || infer.property::<gst::Structure>("stats").get::<u64>("batches").unwrap();
    wait_until("batches", LIMIT, || batches() >= count);
}

/// Returns once the model has been given a batch.
fn wait_for_a_run(pipeline: &gst::Pipeline) {
    wait_for_batches(pipeline, 1);
}

/// Warnings on the bus that say that a run has not ended.
fn abandoned(pipeline: &gst::Pipeline) -> Vec<String> {
    let bus = pipeline.bus().unwrap();
    let warnings = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Warning]));
    let texts = warnings.map(|message| match message.view() {
        gst::MessageView::Warning(warning) => warning.error().to_string(),
        _ => unreachable!(),
    });
    texts.filter(|text| text.contains("has not finished its run")).collect()
}

#[test]
fn a_run_that_never_ends_is_abandoned_with_one_warning() {
    let is_abandoned_twice = |test: &str, source: &str, infer: &str| {
        let pipeline = endless_pipeline(test, "n", false, source, infer);
        for _ in 0..2 {
            set_state(&pipeline, gst::State::Playing);
            wait_for_a_run(&pipeline);
            set_state(&pipeline, gst::State::Ready);
            let said = abandoned(&pipeline);
            assert!(
                said.len() == 1 && said[0].contains("endless.onnx") && said[0].contains("check the model"),
                "{said:?}"
            );
        }
        set_state(&pipeline, gst::State::Null);
    };
    let live = "videotestsrc is-live=true ! video/x-raw,framerate=1/10";
    // At the same time, as each waits for the limit twice.
    std::thread::scope(|scope| {
        // trtinfer runs it
        scope.spawn(|| is_abandoned_twice("loading-endless-run", "videotestsrc ! video/x-raw", ""));
        // trtnms does
        scope.spawn(|| is_abandoned_twice("loading-endless-batch", live, "batch-size=2 batch-timeout=1 ! queue"));
    });
}

/// The state change that follows does not wait for it again, and the next start loads the model again.
#[test]
fn a_run_that_takes_too_long_is_an_error() {
    for (source, infer) in [
        ("videotestsrc ! video/x-raw", ""),
        ("videotestsrc ! video/x-raw", "parallel-runs=2 ! queue"),
        ("videotestsrc is-live=true ! video/x-raw,framerate=1/10", "batch-size=2 batch-timeout=1 ! queue"),
    ] {
        let infer = format!("run-timeout=50000000 {infer}");
        let pipeline = endless_pipeline("loading-run-timeout", "n", false, source, &infer);
        pipeline.set_auto_flush_bus(false);
        for _ in 0..2 {
            set_state(&pipeline, gst::State::Playing);
            let bus = pipeline.bus().unwrap();
            let limit = gst::ClockTime::try_from(LIMIT).unwrap();
            let message = bus.timed_pop_filtered(limit, &[gst::MessageType::Error]).expect("it hangs");
            let gst::MessageView::Error(error) = message.view() else { unreachable!() };
            let text = error.error().to_string();
            assert!(text.contains("endless.onnx has not ended within 0.05 s"), "{text}");
            assert!(text.contains("set run-timeout to more"), "{text}");
            assert!(error.error().matches(gst::LibraryError::Failed), "{text}");
            set_state(&pipeline, gst::State::Null);
            let again = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Error]));
            let again = again.filter(|message| format!("{message:?}").contains("has not ended"));
            assert_eq!(again.count(), 0, "it is said once");
            assert_eq!(abandoned(&pipeline), [""; 0], "that was said already");
        }
    }
}

/// The model never ends, so a batch for each runner is all that there can be.
#[test]
fn runs_on_the_cpu_go_on_at_the_same_time() {
    let (source, infer) = ("videotestsrc ! video/x-raw", "parallel-runs=3 ! queue");
    let pipeline = endless_pipeline("loading-parallel-runs", "1", false, source, infer);
    set_state(&pipeline, gst::State::Playing);
    wait_for_batches(&pipeline, 3);
    set_state(&pipeline, gst::State::Null);
}

#[test]
fn a_flush_does_not_wait_for_a_run_that_never_ends() {
    let pipeline = endless_pipeline("loading-endless-flush", "1", false, "videotestsrc ! video/x-raw", "");
    set_state(&pipeline, gst::State::Playing);
    wait_for_a_run(&pipeline);
    let source = pipeline.clone();
    in_time(move || source.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO)).unwrap();
    set_state(&pipeline, gst::State::Null);
}

#[test]
fn loading_that_never_ends_is_abandoned() {
    let pipeline = endless_pipeline("loading-endless-load", "1", true, "videotestsrc ! video/x-raw", "");
    for _ in 0..2 {
        set_state(&pipeline, gst::State::Playing);
        assert!(progress(&pipeline).1.starts_with("Loading"));
        set_state(&pipeline, gst::State::Null);
    }
    let gone = pipeline.by_name("infer").unwrap().downgrade();
    drop(pipeline);
    // The load does not keep its element: it has it only for the moment in which it posts a message.
    wait_until("the end of the element", LIMIT, || gone.upgrade().is_none());
}

/// rten loads all models in the same threads, as many as there are cores.
#[test]
fn models_that_never_end_keep_no_other_from_being_loaded() {
    let folder = scratch("loading-endless-good");
    let cores = std::thread::available_parallelism().unwrap().get();
    let good = Graph::new().input("images", F32, &["1", "3", "8", "8"]).constant("output0", &[1, 1, 6], &[0.0; 6]);
    let good = good.save(&folder.join("good.onnx"));
    let expect_good = || {
        let line = format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=8,height=8 ! trtpreprocess \
             ! trtinfer name=infer model-file={good} backend=rten ! trtnms ! fakesink"
        );
        run(&gst::parse::launch(&line).unwrap().downcast().unwrap()).expect_success();
    };
    let many = |constant: bool| -> Vec<gst::Pipeline> {
        let source = "videotestsrc ! video/x-raw";
        let pipelines = (0..=cores).map(|_| endless_pipeline("loading-endless-many", "1", constant, source, ""));
        pipelines.inspect(|pipeline| set_state(pipeline, gst::State::Playing)).collect()
    };
    let stop = |pipelines: Vec<gst::Pipeline>| {
        let each =
            pipelines.into_iter().map(|pipeline| std::thread::spawn(move || set_state(&pipeline, gst::State::Null)));
        each.collect::<Vec<_>>().into_iter().for_each(|stopped| stopped.join().unwrap());
    };
    let loading = many(true);
    loading.iter().for_each(|pipeline| assert!(progress(pipeline).1.starts_with("Loading")));
    expect_good();
    stop(loading);
    let running = many(false);
    running.iter().for_each(wait_for_a_run);
    stop(running);
    expect_good();
}
