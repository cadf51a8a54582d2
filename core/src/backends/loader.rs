// SPDX-License-Identifier: MPL-2.0
//! A model that is being loaded: one thread loads it, streaming threads wait for it, and a flush or a state change ends
//! their wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::backends::Interrupted;
use crate::backends::batcher::{Batcher, CancelToken};
use crate::error::Error;

/// The result of loading a model, for one element or for several that share it.
#[derive(Default)]
pub struct ModelLoader {
    state: Mutex<LoadState>,
    changed: Condvar,
    #[cfg(test)]
    waiters: crate::test::Waiters,
    /// Apart, because TensorRT asks for it while it builds.
    cancelled: AtomicBool,
    waits: CancelToken,
}

#[derive(Default)]
struct LoadState {
    outcome: Option<Result<Arc<Batcher>, Error>>,
    handles: usize,
    has_begun: bool,
    /// Another model takes its place.
    is_superseded: bool,
}

/// An element's share in a model.
pub struct ModelHandle {
    loader: Arc<ModelLoader>,
    /// The number of the element's stream, which its frames carry.
    stream: u64,
    flushing: AtomicBool,
    left: AtomicBool,
}

impl ModelLoader {
    /// Whether the caller is the one to load it. This need not be the element that read it, which may have stopped since.
    pub fn begin(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().unwrap().has_begun, true)
    }

    /// Stores the result of loading.
    pub fn finish(&self, outcome: Result<Arc<Batcher>, Error>) {
        self.state.lock().unwrap().outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// Set once the model is no longer needed.
    pub fn cancelled(&self) -> &AtomicBool {
        &self.cancelled
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Ends waits of the thread that loads it, once the model is no longer needed.
    pub fn waits(&self) -> &CancelToken {
        &self.waits
    }

    /// Whether a run of it did not end.
    pub fn is_given_up(&self) -> bool {
        let state = self.state.lock().unwrap();
        let Some(Ok(batcher)) = &state.outcome else { return false };
        batcher.given_up().is_some()
    }

    /// Another model, which is loaded, takes its place: threads that wait for this one go to that.
    pub fn supersede(&self) {
        self.state.lock().unwrap().is_superseded = true;
        self.changed.notify_all();
    }

    /// Waits until all handles have left, and takes the model, if it was loaded: it is the caller's to free.
    pub fn take_once_left(&self) -> Option<Arc<Batcher>> {
        let state = self.state.lock().unwrap();
        #[cfg(test)]
        let _waiting = self.waiters.enter();
        let mut state = self.changed.wait_while(state, |state| state.handles > 0).unwrap();
        state.outcome.take()?.ok()
    }
}

impl ModelHandle {
    /// A model is loaded as long as one of its handles is in use. Once all have left, loading is cancelled, and no handle is
    /// given any more.
    pub fn take(loader: &Arc<ModelLoader>) -> Option<Self> {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let mut state = loader.state.lock().unwrap();
        if loader.is_cancelled() {
            return None;
        }
        state.handles += 1;
        let (flushing, left) = Default::default();
        Some(ModelHandle { loader: loader.clone(), stream: STREAMS.fetch_add(1, Ordering::Relaxed), flushing, left })
    }

    pub fn stream(&self) -> u64 {
        self.stream
    }

    pub fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// The model, if it is loaded.
    pub fn batcher(&self) -> Option<Arc<Batcher>> {
        self.loader.state.lock().unwrap().outcome.as_ref()?.as_ref().ok().cloned()
    }

    /// Waits for the model; nothing, where another takes its place before it is loaded.
    pub fn wait(&self) -> Result<Option<Arc<Batcher>>, Interrupted> {
        let may_not_wait = || self.flushing.load(Ordering::Relaxed) || self.left.load(Ordering::Relaxed);
        let state = self.loader.state.lock().unwrap();
        #[cfg(test)]
        let _waiting = self.loader.waiters.enter();
        let waiting = |state: &mut LoadState| state.outcome.is_none() && !state.is_superseded && !may_not_wait();
        let state = self.loader.changed.wait_while(state, waiting).unwrap();
        match &state.outcome {
            _ if may_not_wait() => Err(Interrupted::Flushing),
            Some(Ok(batcher)) => Ok(Some(batcher.clone())),
            _ if state.is_superseded => Ok(None),
            Some(Err(error)) => Err(Interrupted::Failed(error.clone())),
            None => Err(Interrupted::Flushing),
        }
    }

    /// Between flush-start and flush-stop no thread may wait, for the model or for outputs.
    pub fn set_flushing(&self, flushing: bool) {
        self.change(&self.flushing, flushing);
    }

    /// The element no longer needs the model. Frames of it that wait for their outputs get none.
    pub fn leave(&self) {
        self.change(&self.left, true);
    }

    /// Sets one of the flags that end waiting.
    fn change(&self, flag: &AtomicBool, value: bool) {
        // Under the lock, or a thread that is about to wait would miss it.
        let mut state = self.loader.state.lock().unwrap();
        let was = flag.swap(value, Ordering::Relaxed);
        if std::ptr::eq(flag, &self.left) && !was {
            state.handles -= 1;
            self.loader.cancelled.store(state.handles == 0, Ordering::Relaxed);
        }
        let batcher = state.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok()).cloned();
        drop(state);
        if let Some(batcher) = batcher.filter(|_| value) {
            batcher.leave(self.stream);
        } // given up here: the thread that waits for the last handle frees the model
        if self.loader.is_cancelled() {
            self.loader.waits.set_stopped(true);
        }
        self.loader.changed.notify_all();
    }
}

impl Drop for ModelHandle {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::backends::ModelInstance;
    use crate::error::{ErrorKind, Result as CrateResult};
    use crate::tensor::Tensors;

    struct Nothing;

    impl ModelInstance for Nothing {
        fn run(&mut self, _pictures: &[Arc<Tensors>]) -> CrateResult<Vec<Tensors>> {
            Ok(Vec::new())
        }
    }

    fn loaded() -> Result<Arc<Batcher>, Error> {
        Ok(Arc::new(Batcher::new(Box::new(Nothing), 1, Duration::ZERO)?))
    }

    fn failed() -> Result<Arc<Batcher>, Error> {
        Err(Error::new(ErrorKind::Model, "It is broken"))
    }

    fn handles<const N: usize>() -> [ModelHandle; N] {
        let loader = Arc::default();
        std::array::from_fn(|_| ModelHandle::take(&loader).expect("it is new"))
    }

    /// `model`, `flushing` or the error.
    fn end(handle: &ModelHandle) -> String {
        match handle.wait() {
            Ok(Some(_)) => "model".into(),
            Ok(None) => "superseded".into(),
            Err(Interrupted::Flushing) => "flushing".into(),
            Err(Interrupted::Failed(error)) => error.message(),
        }
    }

    #[test]
    fn all_handles_get_the_model_until_they_leave() {
        let [one, other] = handles();
        one.loader.finish(loaded());
        assert_eq!([end(&one), end(&other)], ["model"; 2]);
        assert_ne!(one.stream(), other.stream());
        one.leave();
        assert_eq!([end(&one), end(&other)], ["flushing", "model"]);
        assert!(!one.loader.is_cancelled());
        one.leave(); // again
        assert!(!one.loader.is_cancelled());
        let third = ModelHandle::take(&one.loader).unwrap();
        drop(other);
        assert_eq!(end(&third), "model");
        assert!(!one.loader.waits().is_cancelled());
        drop(third);
        assert!(one.loader.waits().is_cancelled());
        assert!(one.loader.is_cancelled() && ModelHandle::take(&one.loader).is_none(), "all have left");
    }

    #[test]
    fn a_model_that_all_have_left_can_be_taken() {
        let [one, other] = handles();
        one.loader.finish(loaded());
        one.leave();
        let waiting = thread::spawn({
            let loader = one.loader.clone();
            move || loader.take_once_left().and_then(Arc::into_inner).is_some()
        });
        one.loader.waiters.wait_for(1);
        drop(one.loader.state.lock().unwrap()); // it has given up the lock, so it waits
        assert!(!waiting.is_finished());
        drop(other);
        assert!(waiting.join().unwrap());
        let [alone] = handles();
        alone.loader.finish(failed());
        alone.leave();
        assert!(alone.loader.take_once_left().is_none());
    }

    /// One that fails after another has taken its place fails for nobody.
    #[test]
    fn a_model_whose_place_is_taken_is_not_waited_for() {
        let [failing] = handles();
        failing.loader.supersede();
        assert_eq!(end(&failing), "superseded");
        failing.loader.finish(failed());
        assert_eq!(end(&failing), "superseded");
        let [other] = handles();
        other.loader.finish(loaded());
        other.loader.supersede();
        assert_eq!(end(&other), "model", "frames whose tensors are for it");
    }

    #[test]
    fn one_of_all_loads_it() {
        let [one, other] = handles();
        assert_eq!([one.loader.begin(), other.loader.begin()], [true, false]);
    }

    #[test]
    fn a_failure_stays() {
        let [one, other] = handles();
        one.loader.finish(failed());
        assert_eq!([end(&one), end(&one), end(&other)], ["It is broken."; 3]);
    }

    #[test]
    fn a_flush_ends_the_wait_until_it_stops() {
        let [one, other] = handles();
        one.set_flushing(true);
        assert_eq!(end(&one), "flushing");
        one.set_flushing(false);
        one.loader.finish(loaded());
        assert_eq!([end(&one), end(&other)], ["model"; 2]);
    }

    #[test]
    fn each_change_wakes_the_waiters() {
        let changes: [(fn(&ModelHandle), _); 5] = [
            (|handle| handle.loader.finish(loaded()), "model"),
            (|handle| handle.loader.finish(failed()), "It is broken."),
            (|handle| handle.loader.supersede(), "superseded"),
            (|handle| handle.set_flushing(true), "flushing"),
            (ModelHandle::leave, "flushing"),
        ];
        for (change, expected) in changes {
            let [handle] = handles().map(Arc::new);
            let waiting = thread::spawn({
                let handle = handle.clone();
                move || end(&handle)
            });
            handle.loader.waiters.wait_for(1);
            drop(handle.loader.state.lock().unwrap()); // it has given up the lock, so it waits
            change(&handle);
            assert_eq!(waiting.join().unwrap(), expected);
        }
    }
}
