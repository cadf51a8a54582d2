// SPDX-License-Identifier: MPL-2.0
//! What goes on downstream with a frame, and waits there for its outputs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::cancel::CancelToken;
use super::pace::BatchTimeout;
use super::queue::{BatchQueueState, FlushReason, Request};
use super::{Batcher, Interrupted};
use crate::tensor::Tensors;

/// A frame's claim to its outputs.
pub struct PendingOutput {
    /// Not kept: a frame should not keep the model.
    pub(super) batcher: Weak<Batcher>,
    pub(super) request: Arc<Request>,
    pub(super) usage: Arc<Usage>,
}

/// Whether the outputs of a stream are used.
#[derive(Debug, Default)]
pub struct Usage {
    is_read: AtomicBool,
    is_dropped: AtomicBool,
}

impl Usage {
    /// Whether outputs were dropped, and none was ever waited for.
    pub fn is_none(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed) && !self.is_read.load(Ordering::Relaxed)
    }
}

impl PendingOutput {
    pub fn probe(&self) -> RunProbe {
        RunProbe(Arc::downgrade(&self.request))
    }

    /// Waits for the outputs of the frame: until its batch was run, or queued where a GPU runs it.
    ///
    /// # Errors
    /// Where it never will be, or the one who waits may not wait.
    pub fn wait(&self, token: &CancelToken) -> std::result::Result<&Tensors, Interrupted> {
        self.usage.is_read.store(true, Ordering::Relaxed);
        let request = &*self.request;
        let waits = |_: &BatchQueueState| request.outcome.get().is_none() && !token.is_cancelled();
        loop {
            if let Some(outcome) = request.outcome.get() {
                // The thread that hands it out holds the frame until it gives up the lock.
                if Arc::strong_count(&self.request) > 1
                    && let Some(batcher) = self.batcher.upgrade()
                {
                    drop(batcher.queue.state.lock().unwrap());
                }
                return outcome.as_ref().map_err(Interrupted::clone);
            }
            let batcher = self.batcher.upgrade().ok_or(Interrupted::Flushing)?;
            let _wait = token.waits_at(batcher.queue.clone());
            if token.is_cancelled() {
                return Err(Interrupted::Flushing);
            }
            let queue = batcher.queue.state.lock().unwrap();
            let pause = queue.pause.map(|pause| pause.until);
            // A batch that found no memory was due already.
            let left = match pause {
                Some(_) => queue.pause_left(),
                None => match batcher.batch_timeout {
                    BatchTimeout::Fixed(time) => time.saturating_sub(request.submitted.elapsed()),
                    BatchTimeout::Auto => Duration::ZERO, // it is decided once the model is free
                },
            };
            let waits = |queue: &BatchQueueState| waits(queue) && queue.pause.map(|pause| pause.until) == pause;
            if !left.is_zero() {
                #[cfg(test)]
                let _waiting = batcher.queue.waiters.enter();
                drop(batcher.queue.moved.wait_timeout_while(queue, left, |queue| waits(queue)).unwrap());
                continue;
            }
            let before = queue.run_before().cloned();
            drop(queue);
            if let Some(run) = before.filter(|run| !run.is_passed()) {
                batcher.await_run(&run, waits);
                continue;
            }
            if batcher.gather(waits) {
                continue;
            }
            if !batcher.run(FlushReason::Late(request, token)) {
                drop(batcher.queue.wait_while(|queue| waits(queue))); // it is just being run
            }
        }
    }
}

/// Sees whether a frame was run. It keeps nothing of it.
#[derive(Debug)]
pub struct RunProbe(Weak<Request>);

impl RunProbe {
    /// Whether the outputs are there, or are no longer wanted.
    pub fn is_done(&self) -> bool {
        let Some(request) = self.0.upgrade() else { return true };
        match request.outcome.get() {
            None => false,
            Some(Ok(tensors)) => tensors.ready().is_none_or(|ready| ready.is_passed()),
            Some(Err(_)) => true,
        }
    }
}

impl Drop for PendingOutput {
    fn drop(&mut self) {
        self.usage.is_dropped.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for PendingOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.request.outcome.get() {
            Some(outcome) => write!(f, "PendingOutput({outcome:?})"),
            None => write!(f, "PendingOutput(waiting)"),
        }
    }
}
