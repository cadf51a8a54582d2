// SPDX-License-Identifier: MPL-2.0
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gsttrt_core::error::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::test::cases;

#[derive(Default)]
struct Flags {
    flushing: AtomicBool,
    left: AtomicBool,
}

#[derive(Clone, Default)]
struct FakeModel(Arc<Flags>);

impl OpenModel for FakeModel {
    type Next = ();

    fn set_flushing(&self, flushing: bool) {
        self.0.flushing.store(flushing, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.0.left.store(true, Ordering::SeqCst);
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Model, "It is broken")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    /// One of the threads that read a model is done, whether it is the last one or not.
    Read(usize, bool),
    /// `model-file` is set, or a model is to be read in another context.
    Reopen,
    /// Another one that is loaded takes its place.
    Replace,
    Flush(bool),
    /// A frame comes, in a thread of its own.
    Frame,
    /// PAUSED to READY.
    Leave,
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Start),
        4 => (0..4usize, any::<bool>()).prop_map(|(at, fails)| Step::Read(at, fails)),
        3 => Just(Step::Reopen),
        2 => Just(Step::Replace),
        4 => any::<bool>().prop_map(Step::Flush),
        4 => Just(Step::Frame),
        1 => Just(Step::Leave),
        1 => Just(Step::Stop),
    ]
}

/// An element that takes these steps, and what is true of it whatever they are.
#[derive(Default)]
struct Element {
    life: Arc<ModelLife<FakeModel>>,
    reading: Vec<OpeningTicket>,
    models: Vec<Weak<Flags>>,
    is_started: bool,
    is_flushing: bool,
    has_left: bool,
    /// Threads of frames that have not gone on yet.
    waiting: Vec<thread::JoinHandle<FrameOutcome>>,
    frames: usize,
    outcomes: [usize; 4],
}

/// What becomes of a frame.
#[derive(Clone, Copy)]
enum FrameOutcome {
    HasModel,
    NotStarted,
    Flushed,
    Failed,
}

impl Element {
    /// Frames that wait no longer, each with what became of it.
    fn count_frames(&mut self) {
        for frame in self.waiting.drain(..) {
            self.outcomes[frame.join().unwrap() as usize] += 1;
        }
        assert_eq!(self.outcomes.iter().sum::<usize>(), self.frames, "a frame is lost without a word");
    }

    fn model(&mut self) -> FakeModel {
        let model = FakeModel::default();
        self.models.push(Arc::downgrade(&model.0));
        model
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Start if !self.is_started => {
                self.reading.push(self.life.start());
                (self.is_started, self.is_flushing, self.has_left) = (true, false, false);
            }
            Step::Read(at, fails) if !self.reading.is_empty() => {
                let ticket = self.reading.remove(at % self.reading.len());
                let outcome = if fails { Err(failed()) } else { Ok(self.model()) };
                let is_taken = self.life.finish(&ticket, outcome);
                assert!(!is_taken || self.is_started && !self.has_left, "an element that does not run gets a model");
            }
            Step::Reopen => self.reading.extend(self.life.reopen()),
            Step::Replace => {
                let model = self.model();
                if let Some((former, _)) = self.life.replace(|_| Some(model)) {
                    former.leave();
                }
            }
            Step::Flush(flushing) if self.is_started => {
                self.life.set_flushing(flushing);
                self.is_flushing = flushing;
            }
            Step::Frame => {
                let (life, waiting) = (self.life.clone(), self.life.waiters.count());
                self.frames += 1;
                self.waiting.push(thread::spawn(move || match life.wait() {
                    Ok(Some(_)) => FrameOutcome::HasModel,
                    Ok(None) => FrameOutcome::NotStarted,
                    Err(Interrupted::Flushing) => FrameOutcome::Flushed,
                    Err(Interrupted::Failed(_)) => FrameOutcome::Failed,
                }));
                // Where it waits, it does before the next step.
                if self.life.state.lock().unwrap().waits() {
                    self.life.waiters.wait_for(waiting + 1);
                }
            }
            Step::Leave if self.is_started => {
                self.life.leave();
                self.has_left = true;
            }
            Step::Stop => {
                drop(self.life.stop());
                (self.is_started, self.is_flushing, self.has_left) = (false, false, false);
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        if !self.life.state.lock().unwrap().waits() {
            self.count_frames();
        }
        let state = self.life.state.lock().unwrap();
        let waits = state.waits();
        assert!(!waits || self.is_started && !self.is_flushing && !self.has_left, "a thread waits that may not");
        assert!(!waits || self.reading.iter().any(OpeningTicket::is_wanted), "it waits for a model that nobody reads");
        let open = match &state.phase {
            LifePhase::Open(model) => Some(model.clone()),
            _ => None,
        };
        drop(state);
        if let Some(FakeModel(flags)) = &open {
            let has = [&flags.flushing, &flags.left].map(|flag| flag.load(Ordering::SeqCst));
            assert_eq!(has, [self.is_flushing, self.has_left], "flushing, left");
        }
        for model in self.models.iter().filter_map(Weak::upgrade) {
            let is_open = open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.0, &model));
            assert!(is_open || model.left.load(Ordering::SeqCst), "a former model stays loaded");
        }
        assert_eq!(self.life.is_started(), self.is_started);
    }

    /// What each script comes to: once all files are read, the element has a model or an error, or it does not run.
    fn end(mut self) {
        self.take(Step::Flush(false));
        while !self.reading.is_empty() {
            self.take(Step::Read(0, false));
        }
        self.check();
        match self.life.wait() {
            Ok(model) => assert_eq!(model.is_some(), self.is_started),
            Err(Interrupted::Failed(_)) => {}
            Err(Interrupted::Flushing) => assert!(self.has_left, "it says nothing"),
        }
        self.take(Step::Stop);
        self.check();
    }
}

/// How many scripts are tried: `LIFE_SCRIPTS`, or as many as take a moment.
fn scripts() -> ProptestConfig {
    let asked = std::env::var("LIFE_SCRIPTS").ok().and_then(|count| count.parse().ok());
    ProptestConfig { failure_persistence: None, ..asked.map_or_else(|| cases(3000), ProptestConfig::with_cases) }
}

proptest! {
    #![proptest_config(scripts())]

    #[test]
    fn whatever_comes_no_thread_waits_in_vain_and_no_model_is_forgotten(
        steps in proptest::collection::vec(step(), 0..24),
    ) {
        let mut element = Element::default();
        for step in steps {
            element.take(step);
            element.check();
        }
        element.end();
    }
}

/// `model-file` is set between flush-start and flush-stop, or once the element goes back to READY.
#[test]
fn another_file_does_not_make_an_element_wait_that_may_not() {
    let life = ModelLife::<FakeModel>::default();
    let first = life.start();
    life.set_flushing(true);
    let second = life.reopen().expect("it has started");
    assert!(!first.is_wanted() && matches!(life.wait(), Err(Interrupted::Flushing)));
    let model = FakeModel::default();
    assert!(life.finish(&second, Ok(model.clone())));
    assert!(model.0.flushing.load(Ordering::SeqCst));
    life.leave();
    assert!(life.reopen().is_none(), "a model for an element that stops");
    drop(life.stop());
    assert!(life.reopen().is_none() && !life.is_started());
}

#[test]
fn what_is_known_of_a_model_holds_while_it_is_read_again() {
    let life = ModelLife::<FakeModel>::default();
    assert!(matches!(life.now(), Some(Ok(None))));
    let ticket = life.start();
    assert!(life.now().is_none());
    assert!(life.finish(&ticket, Ok(FakeModel::default())));
    let again = life.reopen().unwrap();
    assert!(matches!(life.now(), Some(Ok(Some(_)))) && life.get().is_some());
    assert!(life.finish(&again, Err(failed())));
    assert!(matches!(life.now(), Some(Err(Interrupted::Failed(_)))));
}

#[test]
fn a_model_is_replaced_as_long_as_a_thread_loads_another() {
    let life = ModelLife::<FakeModel>::default();
    let ticket = life.start();
    assert!(life.finish(&ticket, Ok(FakeModel::default())) && !life.is_replacing());
    let replacement = Replacement::default();
    let of_thread = Arc::downgrade(&replacement);
    life.set_replacements(vec![replacement]);
    assert!(life.is_replacing());
    drop(of_thread);
    assert!(!life.is_replacing());
}
