// SPDX-License-Identifier: MPL-2.0
//! Random steps: after each of them the pipeline plays, or has said why not.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// One of the files: three models, one that is never loaded, and one that is no model.
    File(usize),
    Play,
    Pause,
    Ready,
    /// A flushing seek to the start.
    Seek,
    BranchIn,
    BranchOut,
    /// Until so many more frames have come out of a branch, or the pipeline has said why not.
    Frames(u64),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..5usize).prop_map(Step::File),
        3 => Just(Step::Play),
        1 => Just(Step::Pause),
        1 => Just(Step::Ready),
        3 => Just(Step::Seek),
        2 => Just(Step::BranchIn),
        2 => Just(Step::BranchOut),
        3 => (1..8u64).prop_map(Step::Frames),
        1 => Just(Step::End),
    ]
}

struct Script {
    pipeline: gst::Pipeline,
    /// At the source.
    made: Arc<Tally>,
    branches: Vec<Branch>,
    /// Of branches that were taken out.
    former: Vec<Arc<Tally>>,
    /// It has been sent the end of the stream, or has failed: only a start from READY brings more frames.
    has_ended: bool,
    /// Its first model is the one that is never loaded, and no frame has come since.
    began_held: bool,
    /// No other model is on its way, or the last one that was set has taken the place of that too, and is no model.
    is_held: bool,
    state: gst::State,
    /// Frames that were not inferred, before the last start.
    skipped: u64,
    _held: HeldLoads,
}

impl Script {
    fn new(file: &str) -> Self {
        let pipeline = launch(&format!(
            "videotestsrc name=source ! video/x-raw,format=RGB,width=64,height=64,framerate=30/1 ! trtpreprocess \
             ! trtinfer name=infer model-file={file} batch-size=2 batch-timeout=2000 ! tee name=tee allow-not-linked=true"
        ));
        let made = Tally::at(&pipeline.by_name("source").unwrap().static_pad("src").unwrap(), None);
        let branches = vec![Branch::add(&pipeline, Some(&made))];
        let (_held, state) = (HeldLoads::of(&pipeline.bus().unwrap(), made.clone()), gst::State::Null);
        Script {
            pipeline,
            made,
            branches,
            former: Vec::new(),
            has_ended: false,
            began_held: false,
            is_held: false,
            state,
            skipped: 0,
            _held,
        }
    }

    fn infer(&self) -> gst::Element {
        self.pipeline.by_name("infer").unwrap()
    }

    fn skipped_now(&self) -> u64 {
        self.infer().property::<gst::Structure>("stats").get("skipped").unwrap()
    }

    fn set_state(&mut self, state: gst::State) {
        if self.state <= gst::State::Ready && state > gst::State::Ready {
            self.skipped += self.skipped_now(); // which a start sets back
            let file: String = self.infer().property("model-file");
            self.began_held = file.ends_with("held.onnx");
            self.is_held = self.began_held;
        }
        self.state = state;
        let pipeline = self.pipeline.clone();
        // A failure to start is said on the bus.
        let changed = in_time(move || pipeline.set_state(state));
        if state == gst::State::Ready {
            while self.failed() {}
        }
        self.has_ended = changed.is_err() || self.has_ended && state > gst::State::Ready;
    }

    fn is_playing(&self) -> bool {
        self.state == gst::State::Playing
    }

    fn failed(&self) -> bool {
        self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]).is_some()
    }

    fn frames(&mut self, count: u64) {
        let Some(branch) = self.branches.last() else { return };
        if self.has_ended || self.is_held || !self.is_playing() {
            return;
        }
        let (tally, until) = (branch.tally.clone(), branch.frames() + count);
        let mut failed = false;
        wait_until("frames, or why there are none", LIMIT, || {
            failed = failed || self.failed();
            failed || tally.frames() >= until
        });
        self.has_ended = failed;
        self.began_held = false;
    }

    /// Each frame came out, in its order and once, unless a flush, a change of state, an error or the end of its branch took it,
    /// and has a result, unless it is counted as one that was not inferred.
    fn check(&self) {
        for tally in self.branches.iter().map(|branch| &branch.tally).chain(&self.former).chain([&self.made]) {
            let faults = tally.faults.lock().unwrap();
            assert!(faults.is_empty(), "{faults:?}");
            let unseen = tally.unseen.load(Ordering::SeqCst);
            let skipped = self.skipped + self.skipped_now();
            assert!(unseen <= skipped, "{unseen} frames without a result, and {skipped} were not inferred");
        }
    }

    fn take(&mut self, step: Step, files: &[String]) {
        match step {
            Step::File(at) => {
                self.infer().set_property("model-file", &files[at]);
                self.is_held = self.began_held && at > 2;
            }
            Step::Play => self.set_state(gst::State::Playing),
            Step::Pause => self.set_state(gst::State::Paused),
            Step::Ready => self.set_state(gst::State::Ready),
            Step::Seek if !self.has_ended => {
                let pipeline = self.pipeline.clone();
                drop(in_time(move || pipeline.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO)));
            }
            Step::BranchIn if self.branches.len() < 3 && self.is_playing() && !self.has_ended => {
                self.branches.push(Branch::add(&self.pipeline, Some(&self.made)));
            }
            // While it is paused the sink holds a frame, and there is no moment between two.
            Step::BranchOut if self.branches.len() > 1 && self.is_playing() && !self.has_ended => {
                let branch = self.branches.remove(0);
                self.former.push(branch.tally.clone());
                branch.remove(&self.pipeline);
            }
            Step::Frames(count) => self.frames(count),
            // A source that does not run would keep it for its next start.
            Step::End if self.is_playing() && !self.has_ended && !self.is_held => {
                self.pipeline.by_name("source").unwrap().send_event(gst::event::Eos::new());
                self.has_ended = true;
            }
            _ => {}
        }
    }

    /// Whatever came before, a start from READY with a good model plays. Gives how many frames came out of branches.
    fn end(mut self, good: &str) -> u64 {
        self.set_state(gst::State::Ready);
        self.has_ended = false;
        self.infer().set_property("model-file", good);
        self.set_state(gst::State::Playing);
        self.frames(3);
        assert!(!self.has_ended, "it plays no more: {:?}", problems(&self.pipeline));
        self.check();
        self.set_state(gst::State::Null);
        let tallies = self.branches.iter().map(|branch| &branch.tally).chain(&self.former);
        tallies.map(|tally| tally.frames()).sum()
    }
}

/// How many scripts are tried: `LIFE_PIPELINES`, or as many as take seconds.
fn scripts() -> u32 {
    std::env::var("LIFE_PIPELINES").ok().and_then(|count| count.parse().ok()).unwrap_or(24)
}

#[test]
fn whatever_comes_a_pipeline_plays_or_says_why_not() {
    let folder = scratch("life-scripts");
    let broken = folder.join("broken.onnx");
    std::fs::write(&broken, "not a model").unwrap();
    let files = [finds(&folder, "cat", 64), finds(&folder, "dog", 64), finds(&folder, "bird", 32)];
    let held = folder.join("held.onnx");
    std::fs::copy(&files[1], &held).unwrap();
    let files = [&files[..], &[held, broken].map(|file| file.to_str().unwrap().to_string())].concat();
    // A shorter script that hangs would take a minute each time it is tried.
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::with_cases(scripts()) };
    let steps = proptest::collection::vec(step(), 1..14);
    let frames = Cell::new(0);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        let mut script = Script::new(&files[0]);
        for step in steps {
            script.take(step, &files);
            script.check();
        }
        frames.set(frames.get() + script.end(&files[1]));
        Ok(())
    });
    println!("{} frames in {} scripts", frames.get(), scripts());
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
