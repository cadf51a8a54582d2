// SPDX-License-Identifier: MPL-2.0
//! Pipelines are started and stopped in threads of their own. A source can hold up both without an end: a camera whose
//! answer never ends, a named pipe that nobody writes to.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gst::prelude::*;

/// No pipeline that stops at all takes so long.
const LIMIT: Duration = Duration::from_secs(3);

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

/// Starts it in the background.
pub fn start(pipeline: &gst::Pipeline) -> Starting {
    Starting { ended: change(pipeline, gst::State::Playing), outcome: None }
}

/// Stops it. `false` where it does not stop within the limit: then it is left behind, with its threads.
pub fn stop(pipeline: &gst::Pipeline) -> bool {
    change(pipeline, gst::State::Null).recv_timeout(LIMIT).unwrap_or(false)
}

fn change(pipeline: &gst::Pipeline, state: gst::State) -> Receiver<bool> {
    let (sender, ended) = channel();
    let pipeline = pipeline.clone();
    let work = move || {
        let _ = sender.send(pipeline.set_state(state).is_ok()); // nobody waits for one that is left behind
    };
    // Without a thread the sender is dropped, which the receiver sees.
    let _ = thread::Builder::new().name("state".into()).spawn(work);
    ended
}
