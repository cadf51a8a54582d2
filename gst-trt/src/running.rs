// SPDX-License-Identifier: MPL-2.0
//! A pipeline that a camera or a disk can hold up without an end: whatever is asked of it is asked in a thread of its
//! own, and what does not come back is left behind.
//!
//! Where it is held up: in the change from PAUSED to READY, rtspsrc waits for the lock that its task holds while it reads an
//! answer. A pipeline that does not stop has its connections to cameras cut.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gst::prelude::*;

use crate::connections::Connections;
use crate::failure::Failure;
use crate::threads::Threads;

/// After this, a pipeline that is being stopped is left behind. No pipeline that stops at all takes so long, and with it a
/// program ends within 5 s of a signal.
const STOP_LIMIT: Duration = Duration::from_secs(4);
/// After this, the connections to cameras of a pipeline that is being stopped are cut. Until then a camera is told that it may
/// stop, too, which rtspsrc gives 0.1 s.
const CUT_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct RunningPipeline {
    pub pipeline: gst::Pipeline,
    threads: Threads,
    /// What it works for, as the end of the program names it.
    subject: String,
    /// Whether it has been stopped. Locked while it changes from and to NULL.
    is_stopped: Arc<Mutex<bool>>,
    is_started: Arc<AtomicBool>,
    pub connections: Connections,
}

impl RunningPipeline {
    pub fn new(pipeline: gst::Pipeline, threads: &Threads, subject: String) -> Self {
        RunningPipeline {
            connections: Connections::of(&pipeline),
            pipeline,
            threads: threads.clone(),
            subject,
            is_stopped: Arc::default(),
            is_started: Arc::default(),
        }
    }

    /// Asks something of it, in a thread of that name.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn ask(&self, thread: &str, ask: impl FnOnce(&gst::Pipeline) + Send + 'static) -> Result<(), Failure> {
        let pipeline = self.pipeline.clone();
        self.threads.spawn(thread.into(), &self.subject, move || ask(&pipeline))
    }

    /// Starts it, unless it has been stopped before that. `then` learns whether that succeeded; an error message on the
    /// bus is more specific, and has come before.
    pub fn start(&self, then: impl FnOnce(bool) + Send + 'static) -> Result<(), Failure> {
        let (is_stopped, started) = (self.is_stopped.clone(), self.is_started.clone());
        self.ask("start", move |pipeline| {
            let is_stopped = is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            let is_started = *is_stopped || pipeline.set_state(gst::State::Playing).is_ok();
            drop(is_stopped);
            started.store(is_started, Ordering::Relaxed);
            then(is_started);
        })
    }

    /// Whether the change of state has come back, and succeeded.
    pub fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// Stops all its threads.
    pub fn stop(&self, then: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let (stops, ended) = channel::<()>();
        let connections = self.connections.clone();
        // Without a thread it may stop all the same.
        let _ = self.threads.spawn("cut".into(), &self.subject, move || {
            if ended.recv_timeout(CUT_LIMIT) == Err(RecvTimeoutError::Timeout) {
                connections.cut();
            }
        });
        let is_stopped = self.is_stopped.clone();
        self.ask("stop", move |pipeline| {
            let mut is_stopped = is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            *is_stopped = true;
            let _ = pipeline.set_state(gst::State::Null);
            drop((is_stopped, stops));
            then();
        })
    }

    /// The same, for those who look at the outcome from time to time.
    pub fn starting(&self) -> Starting {
        let (sender, ended) = channel();
        // Without a thread the sender is dropped, which the receiver sees.
        let _ = self.start(move |is_started| {
            let _ = sender.send(is_started); // nobody waits for one that is left behind
        });
        Starting { ended, outcome: None }
    }

    /// Stops it, and returns once that is done, or the limit has passed.
    pub fn stop_in_time(&self) {
        let (sender, ended) = channel::<()>();
        // Dropped, the sender says it, too.
        if self.stop(move || drop(sender)).is_ok() {
            let _ = ended.recv_timeout(STOP_LIMIT);
        }
    }
}

/// A pipeline that is being started.
pub struct Starting {
    ended: Receiver<bool>,
    outcome: Option<bool>,
}

impl Starting {
    /// Whether the change of state has come back, and succeeded. `None` if it goes on after that time.
    pub fn outcome(&mut self, wait: Duration) -> Option<bool> {
        self.outcome = self.outcome.or_else(|| match self.ended.recv_timeout(wait) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(false), // there was no thread for it
        });
        self.outcome
    }
}
