//! A backend on its way: one thread loads it, the streaming thread waits for it, and a flush or a state change ends the wait.

use std::sync::{Condvar, Mutex};

use crate::backend::Backend;

#[derive(Default)]
pub struct Opening {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What loading came to; `Err` was reported by whoever loaded.
    outcome: Option<Result<Box<dyn Backend>, ()>>,
    flushing: bool,
    cancelled: bool,
}

impl Opening {
    /// Hands in what loading came to.
    pub fn finish(&self, outcome: Result<Box<dyn Backend>, ()>) {
        self.state.lock().unwrap().outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// Nobody wants the backend any more.
    pub fn cancel(&self) {
        self.state.lock().unwrap().cancelled = true;
        self.changed.notify_all();
    }

    pub fn is_cancelled(&self) -> bool {
        self.state.lock().unwrap().cancelled
    }

    /// Between flush-start and flush-stop nobody may wait.
    pub fn set_flushing(&self, flushing: bool) {
        self.state.lock().unwrap().flushing = flushing;
        self.changed.notify_all();
    }

    /// Waits for the backend and takes it.
    pub fn wait(&self) -> Result<Box<dyn Backend>, gst::FlowError> {
        let state = self.state.lock().unwrap();
        let waiting = |state: &mut State| state.outcome.is_none() && !state.flushing && !state.cancelled;
        let mut state = self.changed.wait_while(state, waiting).unwrap();
        match state.outcome.take() {
            Some(Ok(backend)) => Ok(backend),
            Some(Err(())) => {
                state.outcome = Some(Err(()));
                Err(gst::FlowError::Error)
            }
            None => Err(gst::FlowError::Flushing),
        }
    }
}
