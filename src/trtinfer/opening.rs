//! A backend on its way: one thread loads it, the streaming thread waits for it, and a flush or a state change ends the wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use crate::backend::Backend;

#[derive(Default)]
pub struct Opening {
    state: Mutex<State>,
    changed: Condvar,
    /// Apart, because TensorRT asks for it while it builds.
    cancelled: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What loading came to; `Err` was reported by whoever loaded.
    outcome: Option<Result<Box<dyn Backend>, ()>>,
    flushing: bool,
}

impl Opening {
    /// Hands in what loading came to.
    pub fn finish(&self, outcome: Result<Box<dyn Backend>, ()>) {
        self.state.lock().unwrap().outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// Nobody wants the backend any more.
    pub fn cancel(&self) {
        // Under the lock, or who is about to wait would miss it.
        let _state = self.state.lock().unwrap();
        self.cancelled.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The same for whoever looks again and again.
    pub fn cancelled(&self) -> &AtomicBool {
        &self.cancelled
    }

    /// Between flush-start and flush-stop nobody may wait.
    pub fn set_flushing(&self, flushing: bool) {
        self.state.lock().unwrap().flushing = flushing;
        self.changed.notify_all();
    }

    /// Waits for the backend and takes it.
    pub fn wait(&self) -> Result<Box<dyn Backend>, gst::FlowError> {
        let state = self.state.lock().unwrap();
        let waiting = |state: &mut State| state.outcome.is_none() && !state.flushing && !self.is_cancelled();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::backend::Outputs;
    use crate::cuda::driver::Fence;
    use crate::error::Result as CrateResult;
    use crate::tensor::Tensor;

    struct Nothing;

    impl Backend for Nothing {
        fn run(&mut self, _picture: &Tensor, _after: Option<&Fence>) -> CrateResult<Outputs> {
            Ok(Outputs { tensors: Vec::new(), ready: None })
        }
    }

    fn ends_with(opening: &Opening) -> Result<(), gst::FlowError> {
        opening.wait().map(drop)
    }

    #[test]
    fn the_backend_is_handed_over_once() {
        let opening = Opening::default();
        opening.finish(Ok(Box::new(Nothing)));
        assert_eq!(ends_with(&opening), Ok(()));
        opening.cancel();
        assert_eq!(ends_with(&opening), Err(gst::FlowError::Flushing));
    }

    #[test]
    fn a_failure_stays() {
        let opening = Opening::default();
        opening.finish(Err(()));
        for _ in 0..2 {
            assert_eq!(ends_with(&opening), Err(gst::FlowError::Error));
        }
    }

    #[test]
    fn a_flush_ends_the_wait_until_it_stops() {
        let opening = Opening::default();
        opening.set_flushing(true);
        assert_eq!(ends_with(&opening), Err(gst::FlowError::Flushing));
        opening.set_flushing(false);
        opening.finish(Ok(Box::new(Nothing)));
        assert_eq!(ends_with(&opening), Ok(()));
    }

    #[test]
    fn each_change_wakes_who_waits() {
        let changes: [(fn(&Opening), _); 4] = [
            (|opening| opening.finish(Ok(Box::new(Nothing))), Ok(())),
            (|opening| opening.finish(Err(())), Err(gst::FlowError::Error)),
            (|opening| opening.set_flushing(true), Err(gst::FlowError::Flushing)),
            (Opening::cancel, Err(gst::FlowError::Flushing)),
        ];
        for (change, end) in changes {
            let opening = Arc::new(Opening::default());
            let waiting = thread::spawn({
                let opening = opening.clone();
                move || ends_with(&opening)
            });
            thread::sleep(std::time::Duration::from_millis(20)); // most likely it waits by now
            change(&opening);
            assert_eq!(waiting.join().unwrap(), end);
        }
    }
}
