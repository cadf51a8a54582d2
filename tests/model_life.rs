// SPDX-License-Identifier: MPL-2.0
//! The life of trtinfer's model in whole pipelines: branches that come and go, other files, flushes and states, in any order.

mod scripts;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use crate::common::boxes::{Line, SIDE, found, grey};
use crate::common::onnx::{F32, Graph, int, ints};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{init, scratch};
use gst::prelude::*;

/// A model that finds one box of that label, for batches of any size.
fn finds(folder: &Path, label: &str, side: u32) -> String {
    let side = side.to_string();
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &["n", "3", &side, &side])
        .weight("zero", F32, &[1, 1, 1], floats(&[0.0]))
        .weight("box", F32, &[1, 1, 6], floats(&[2.0, 2.0, 10.0, 12.0, 0.9, 0.0]))
        .node("ReduceMean", &["images"], &["rows"], vec![ints("axes", &[3]), int("keepdims", 0)])
        .node("ReduceMean", &["rows"], &["mean"], vec![ints("axes", &[1, 2]), int("keepdims", 1)])
        .node("Mul", &["mean", "zero"], &["nothing"], Vec::new())
        .node("Add", &["nothing", "box"], &["output0"], Vec::new())
        .output("output0", F32, &["n", "1", "6"])
        .metadata("names", &format!("{{0: '{label}'}}"))
        .metadata("end2end", "True")
        .save(&folder.join(format!("{label}-{side}.onnx")))
}

#[track_caller]
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(LIMIT).expect("it hangs")
}

/// A branch behind a tee, which counts its frames.
struct Branch {
    bin: gst::Bin,
    from_tee: gst::Pad,
    /// At its end.
    tally: Arc<Tally>,
    /// Frames that have come to trtnms.
    entered: Arc<Tally>,
}

impl Branch {
    /// `made` counts the frames that the source makes, where all of them are to come out.
    fn add(pipeline: &gst::Pipeline, made: Option<&Arc<Tally>>) -> Self {
        let line = "queue max-size-buffers=4 ! trtnms name=nms draw=false ! fakesink name=end sync=false async=false";
        let bin = gst::parse::bin_from_description(line, true).unwrap();
        let at = |name: &str| bin.by_name(name).unwrap().static_pad("sink").unwrap();
        let (tally, entered) = (Tally::at(&at("end"), made.cloned()), Tally::at(&at("nms"), None));
        pipeline.add(&bin).unwrap();
        bin.sync_state_with_parent().unwrap();
        let from_tee = pipeline.by_name("tee").unwrap().request_pad_simple("src_%u").unwrap();
        from_tee.link(&bin.static_pad("sink").unwrap()).unwrap();
        Branch { bin, from_tee, tally, entered }
    }

    /// As an application takes a branch out: between two frames, and then to NULL.
    fn remove(self, pipeline: &gst::Pipeline) {
        let (sender, unlinked) = mpsc::channel();
        let sink = self.bin.static_pad("sink").unwrap();
        self.from_tee.add_probe(gst::PadProbeType::IDLE, move |pad, _| {
            let _ = pad.unlink(&sink);
            let _ = sender.send(());
            gst::PadProbeReturn::Remove
        });
        unlinked.recv_timeout(LIMIT).expect("a moment between two frames");
        let bin = self.bin.clone();
        in_time(move || bin.set_state(gst::State::Null)).unwrap();
        pipeline.remove(&self.bin).unwrap();
        pipeline.by_name("tee").unwrap().release_request_pad(&self.from_tee);
    }

    fn frames(&self) -> u64 {
        self.tally.frames()
    }
}

fn launch(line: &str) -> gst::Pipeline {
    init();
    gst::parse::launch(line).unwrap().downcast().unwrap()
}

fn problems(pipeline: &gst::Pipeline) -> Vec<String> {
    let bus = pipeline.bus().unwrap();
    let pop = || bus.pop_filtered(&[gst::MessageType::Error, gst::MessageType::Warning]);
    let text = |message: gst::Message| match message.view() {
        gst::MessageView::Error(error) => error.error().to_string(),
        gst::MessageView::Warning(warning) => warning.error().to_string(),
        _ => unreachable!("filtered"),
    };
    std::iter::from_fn(pop).map(text).collect()
}

/// Two branches behind a model that runs four frames at once, and no fewer for a long time. Plays.
fn two_branches(folder: &str) -> (gst::Pipeline, [Branch; 2]) {
    let model = finds(&scratch(folder), "cat", 64);
    let pipeline = launch(&format!(
        "appsrc name=source format=time caps=video/x-raw,format=RGB,width=64,height=64,framerate=30/1 ! trtpreprocess \
         ! trtinfer model-file={model} batch-size=4 batch-timeout=10000000 ! tee name=tee"
    ));
    let branches = [(); 2].map(|()| Branch::add(&pipeline, None));
    pipeline.set_state(gst::State::Playing).unwrap();
    (pipeline, branches)
}

fn push(pipeline: &gst::Pipeline, count: usize) {
    let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    (0..count).for_each(|_| assert!(source.push_buffer(grey(SIDE * SIDE * 3)).is_ok()));
}

/// The branch that leaves waits for the same outputs as the one that stays.
#[test]
fn a_branch_that_leaves_does_not_end_the_other_one() {
    let (pipeline, [leaves, stays]) = two_branches("life-tee");
    let push = |count: usize| push(&pipeline, count);
    push(2);
    for branch in [&leaves, &stays] {
        wait_until("the first frame at trtnms", LIMIT, || branch.entered.frames() > 0);
    }
    leaves.remove(&pipeline);
    push(2);
    wait_until("the frames of the batch", LIMIT, || stays.frames() == 4);
    push(4);
    wait_until("the next batch", LIMIT, || stays.frames() == 8);
    assert_eq!(problems(&pipeline), <[&str; 0]>::default());
    pipeline.set_state(gst::State::Null).unwrap();
}

/// A flush of the branch alone, as when an application seeks in what is behind it.
#[test]
fn a_flush_of_a_branch_ends_its_wait() {
    let (pipeline, [flushed, stays]) = two_branches("life-branch-flush");
    let push = |count: usize| push(&pipeline, count);
    push(1);
    for branch in [&flushed, &stays] {
        wait_until("the first frame at trtnms", LIMIT, || branch.entered.frames() > 0);
    }
    let sink = flushed.bin.static_pad("sink").unwrap();
    in_time(move || {
        assert!(sink.send_event(gst::event::FlushStart::new()));
        assert!(sink.send_event(gst::event::FlushStop::new(false)));
    });
    push(3);
    wait_until("the frames of the batch", LIMIT, || stays.frames() == 4);
    pipeline.set_state(gst::State::Null).unwrap();
}

/// As when an application stops while it seeks: the flush-stop never comes, and pads know no flush once they start again.
#[test]
fn a_flush_that_does_not_end_is_over_with_the_next_start() {
    let model = finds(&scratch("life-flush-start"), "cat", 64);
    let pipeline = launch(&format!(
        "appsrc name=source format=time caps=video/x-raw,format=RGB,width=64,height=64,framerate=30/1 \
         ! trtpreprocess name=first ! trtinfer model-file={model} ! trtnms draw=false ! fakesink name=end sync=false async=false"
    ));
    let sink = |element: &str| pipeline.by_name(element).unwrap().static_pad("sink").unwrap();
    let ended = Tally::at(&sink("end"), None);
    for frames in 1..3 {
        pipeline.set_state(gst::State::Playing).unwrap();
        push(&pipeline, 1);
        wait_until("the frame", LIMIT, || ended.frames() == frames);
        assert!(sink("first").send_event(gst::event::FlushStart::new()));
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn latency_is_that_of_the_running_model_and_a_change_is_told() {
    let folder = scratch("life-latency");
    let (cat, dog) = (finds(&folder, "cat", 64), finds(&folder, "dog", 64));
    let pipeline = launch(&format!(
        "appsrc name=source format=time is-live=true caps=video/x-raw,format=RGB,width=64,height=64,framerate=30/1 \
         ! trtpreprocess ! trtinfer name=infer model-file={cat} batch-size=2 batch-timeout=7000 ! queue ! trtnms ! fakesink sync=false"
    ));
    pipeline.set_state(gst::State::Playing).unwrap();
    let (infer, bus) = (pipeline.by_name("infer").unwrap(), pipeline.bus().unwrap());
    let latency = || {
        let mut query = gst::query::Latency::new();
        assert!(infer.static_pad("src").unwrap().query(&mut query));
        query.result().1.useconds()
    };
    let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    let before = latency();
    infer.set_property("batch-timeout", 9000i32);
    infer.set_property("batch-size", 1u32);
    assert_eq!(latency(), before, "these are for the next model");
    infer.set_property("model-file", &dog);
    let told = || {
        let message = bus.pop_filtered(&[gst::MessageType::Latency]);
        message.is_some_and(|message| message.src() == Some(infer.upcast_ref()))
    };
    wait_until("the model takes over", LIMIT, || {
        source.push_buffer(grey(SIDE * SIDE * 3)).unwrap();
        told()
    });
    assert_eq!(latency() + 7000, before);
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn an_element_with_the_former_file_of_a_shared_model_has_the_new_one() {
    let folder = scratch("life-former");
    let (cat, dog) = (finds(&folder, "cat", 64), finds(&folder, "dog", 64));
    let line = |model: &str| {
        Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} shared-model=life-former ! trtnms"))
    };
    let mut first = line(&cat);
    assert_eq!(first.labels(), ["cat"]);
    first.element("trtinfer").set_property("model-file", &dog);
    first.wait_for_model(&dog);
    let mut late = line(&cat);
    assert_eq!(late.labels(), ["dog"]);
    assert_eq!(late.element("trtinfer").property::<String>("model-file"), dog);
    assert_eq!((first.labels(), late.said()), (vec!["dog".to_string()], Vec::<String>::new()));
}

#[test]
fn late_frames_are_not_inferred_where_qos_is_on() {
    let model = finds(&scratch("life-late"), "cat", 64);
    for (qos, expected) in [(false, (4, 0, 0)), (true, (2, 2, 2))] {
        let mut line = Line::parse(&format!("trtpreprocess ! trtinfer qos={qos} model-file={model} ! trtnms"));
        let frame = |line: &mut Line, seconds: u64| {
            let mut buffer = grey(SIDE * SIDE * 3);
            buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_seconds(seconds));
            assert_eq!(crate::common::boxes::found(&line.push(buffer)).len(), 1, "held or found");
        };
        frame(&mut line, 0);
        let nms = line.nms();
        // The sink has shown the frame of the first second two seconds late.
        let second = gst::ClockTime::SECOND;
        let late = gst::event::Qos::builder(gst::QOSType::Underflow, 3.0, 2_000_000_000).timestamp(second).build();
        nms.static_pad("src").unwrap().send_event(late);
        for seconds in [2, 3, 4] {
            frame(&mut line, seconds);
        }
        // As elements that drop late frames say it, though these are only not inferred.
        let said = line.messages_of(gst::MessageType::Qos);
        assert_eq!(said.len(), if qos { 2 } else { 0 }, "{said:?}");
        for (message, (seconds, dropped)) in said.iter().zip([(2, 1), (3, 2)]) {
            let gst::MessageView::Qos(qos) = message.view() else { unreachable!("filtered") };
            assert_eq!(message.src(), Some(line.element("trtinfer").upcast_ref()));
            let (_, running, _, timestamp, _) = qos.get();
            assert_eq!([running, timestamp], [Some(gst::ClockTime::from_seconds(seconds)); 2]);
            let (jitter, proportion, _) = qos.values();
            assert_eq!((jitter, proportion), ((3 - seconds as i64) * 1_000_000_000, 3.0));
            let (processed, not_inferred) = qos.stats();
            assert_eq!((processed.value(), not_inferred.value()), (1, dropped));
        }
        let stats: gst::Structure = line.element("trtinfer").property("stats");
        let count = |name: &str| stats.get::<u64>(name).unwrap();
        assert_eq!((count("inferred"), count("skipped"), count("late")), expected, "qos={qos}");
    }
}

/// What was late before a seek says nothing of the frames behind it.
#[test]
fn lateness_ends_with_a_flush() {
    let model = finds(&scratch("life-late-flush"), "cat", 64);
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer qos=true model-file={model} ! trtnms"));
    line.push(grey(SIDE * SIDE * 3));
    let second = gst::ClockTime::SECOND;
    let late = gst::event::Qos::builder(gst::QOSType::Underflow, 3.0, 9_000_000_000).timestamp(second).build();
    line.nms().static_pad("src").unwrap().send_event(late);
    line.push_event(gst::event::FlushStart::new());
    line.push_event(gst::event::FlushStop::new(true));
    line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    let mut buffer = grey(SIDE * SIDE * 3);
    buffer.get_mut().unwrap().set_pts(second);
    line.push(buffer);
    let stats: gst::Structure = line.element("trtinfer").property("stats");
    assert_eq!(["inferred", "late"].map(|name| stats.get::<u64>(name).unwrap()), [2, 0]);
}

/// A first model that is never loaded, in the thread that frames wait for it in.
#[test]
fn frames_that_wait_for_a_model_go_to_the_one_that_takes_its_place() {
    let folder = scratch("life-superseded");
    let held = folder.join("held.onnx");
    std::fs::copy(finds(&folder, "cat", 64), &held).unwrap();
    for (side, shared) in
        [(64, ""), (32, ""), (64, "shared-model=life-superseded"), (32, "shared-model=life-superseded")]
    {
        let pipeline = launch(&format!(
            "videotestsrc name=source ! video/x-raw,format=RGB,width=64,height=64,framerate=30/1 ! trtpreprocess \
             ! queue ! trtinfer name=infer model-file={} {shared} ! trtnms ! fakesink name=end",
            held.display()
        ));
        let pad = |element: &str, pad: &str| pipeline.by_name(element).unwrap().static_pad(pad).unwrap();
        let made = Tally::at(&pad("source", "src"), None);
        let (entered, ended) =
            (Tally::at(&pad("infer", "sink"), None), Tally::at(&pad("end", "sink"), Some(made.clone())));
        let _held = HeldLoads::of(&pipeline.bus().unwrap(), made);
        pipeline.set_state(gst::State::Playing).unwrap();
        wait_until("a frame that waits", LIMIT, || entered.frames() > 0);
        let infer = pipeline.by_name("infer").unwrap();
        infer.set_property("model-file", finds(&folder, "dog", side));
        let unseen = || ended.unseen.load(Ordering::SeqCst);
        wait_until("frames with the other model", LIMIT, || ended.frames() > unseen() + 3);
        let skipped: u64 = infer.property::<gst::Structure>("stats").get("skipped").unwrap();
        assert_eq!(unseen(), skipped, "those whose tensors were for the first model");
        assert!(side == 64 || skipped > 0);
        assert_eq!(*ended.faults.lock().unwrap(), <[&str; 0]>::default());
        assert_eq!(problems(&pipeline), <[&str; 0]>::default());
        pipeline.set_state(gst::State::Null).unwrap();
        // The name is free, whatever the thread does that still loads the first model.
        let other = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={} {shared} ! trtnms",
            finds(&folder, "bird", 64)
        ));
        assert_eq!({ other }.labels(), ["bird"]);
        assert!(entered.frames() - ended.frames() <= 1, "{} frames came, {} went on", entered.frames(), ended.frames());
    }
}

/// A handler of the bus may do anything with the element that posts, in the thread of the stream.
#[test]
fn nothing_is_locked_when_a_message_is_posted() {
    let model = finds(&scratch("life-posted"), "cat", 64);
    let pipeline = launch(&format!(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=64,framerate=30/1 ! trtpreprocess \
         ! trtinfer model-file={model} ! trtnms post-messages=true ! trttrack post-messages=true ! fakesink"
    ));
    let posted = Arc::<AtomicU64>::default();
    let into = posted.clone();
    pipeline.bus().unwrap().set_sync_handler(move |_, message| {
        if let gst::MessageView::Element(element) = message.view() {
            let element = element.src().unwrap().downcast_ref::<gst::Element>().unwrap();
            let segment = gst::FormattedSegment::<gst::ClockTime>::new();
            let pad = element.static_pad("sink").unwrap();
            assert!(pad.send_event(gst::event::Segment::new(&segment)));
            into.fetch_add(1, Ordering::SeqCst);
        }
        gst::BusSyncReply::Pass
    });
    let outcome = in_time({
        let pipeline = pipeline.clone();
        move || crate::common::run(&pipeline)
    });
    outcome.expect_success();
    assert_eq!(posted.load(Ordering::SeqCst), 6);
}

/// Frames by their numbers, which begin at 0 with each start and each seek, from where they are made to the end of a branch.
#[derive(Default)]
struct Tally {
    /// Of the last frame, until the stream begins again.
    last: Mutex<Option<u64>>,
    frames: AtomicU64,
    /// Those without a result.
    unseen: AtomicU64,
    /// The pipeline has said why frames do not go on.
    has_failed: AtomicBool,
    /// What must not be.
    faults: Mutex<Vec<String>>,
}

impl Tally {
    /// Counts what passes a pad. Frames must follow each other, and before the end of the stream the last one that was made.
    fn at(pad: &gst::Pad, made: Option<Arc<Tally>>) -> Arc<Self> {
        let tally = Arc::<Tally>::default();
        let into = tally.clone();
        let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM | gst::PadProbeType::EVENT_FLUSH;
        pad.add_probe(kinds, move |_, info| {
            match &info.data {
                Some(gst::PadProbeData::Buffer(buffer)) => into.frame(buffer, made.is_some()),
                Some(gst::PadProbeData::Event(event)) => into.event(event, made.as_deref()),
                _ => {}
            }
            gst::PadProbeReturn::Ok
        });
        tally
    }

    fn frame(&self, buffer: &gst::BufferRef, has_result: bool) {
        let number = buffer.offset();
        let last = self.last.lock().unwrap().replace(number);
        if last.is_some_and(|last| has_result && number != last + 1) {
            self.faults.lock().unwrap().push(format!("frame {number} after {last:?}"));
        }
        self.frames.fetch_add(1, Ordering::SeqCst);
        let found = if has_result { found(buffer).len() } else { 1 };
        self.unseen.fetch_add((found == 0).into(), Ordering::SeqCst);
        if found > 1 {
            self.faults.lock().unwrap().push(format!("frame {number} has {found} results"));
        }
    }

    fn event(&self, event: &gst::EventRef, made: Option<&Tally>) {
        match event.type_() {
            gst::EventType::FlushStop | gst::EventType::StreamStart => {
                *self.last.lock().unwrap() = None;
                self.has_failed.store(false, Ordering::SeqCst);
            }
            gst::EventType::Eos if made.is_some_and(|made| !made.has_failed.load(Ordering::SeqCst)) => {
                let (last, made) = (*self.last.lock().unwrap(), made.and_then(|made| *made.last.lock().unwrap()));
                if let (Some(made), true) = (made, last.is_some())
                    && last != Some(made)
                {
                    self.faults.lock().unwrap().push(format!("the end after frame {last:?} of {made}"));
                }
            }
            _ => {}
        }
    }

    fn frames(&self) -> u64 {
        self.frames.load(Ordering::SeqCst)
    }
}

/// Loads of a file called `held.onnx`, which wait until this is dropped.
struct HeldLoads(Arc<(Mutex<bool>, Condvar)>);

impl HeldLoads {
    /// The loader says that it begins, in its own thread.
    fn of(bus: &gst::Bus, made: Arc<Tally>) -> Self {
        let released = Arc::<(Mutex<bool>, Condvar)>::default();
        let held = HeldLoads(released.clone());
        bus.set_sync_handler(move |_, message| {
            if message.type_() == gst::MessageType::Error {
                made.has_failed.store(true, Ordering::SeqCst);
            }
            if let gst::MessageView::Progress(progress) = message.view()
                && progress.structure().unwrap().get::<&str>("text").unwrap().starts_with("Loading held.onnx for")
            {
                let (is_released, changed) = &*released;
                drop(changed.wait_while(is_released.lock().unwrap(), |released| !*released).unwrap());
            }
            gst::BusSyncReply::Pass
        });
        held
    }
}

impl Drop for HeldLoads {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}
