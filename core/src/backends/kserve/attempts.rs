// SPDX-License-Identifier: MPL-2.0
//! A request that finds no server is tried again until its time is over, so a server may be started again while frames wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{CallError, GrpcClient};
use super::remote::RemoteModel;
use crate::backends::log::{Level, log};
use crate::error::Result;

/// How long to wait before a server that was not there is tried again: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What one attempt gives: a call that failed may be tried again, all else is the end.
pub type Attempt<T> = std::result::Result<Result<T>, CallError>;

/// Sends requests, one at a time.
pub trait Caller {
    fn model(&self) -> &Arc<RemoteModel>;

    fn client(&mut self) -> &mut GrpcClient;

    /// Nothing more is put into memory in common with the server: a request that had no answer may still use it.
    fn forget(&mut self);
}

/// Tries until there is an answer, or the time is over.
pub fn until_answered<C: Caller, T>(
    caller: &mut C,
    mut attempt: impl FnMut(&mut C, Instant) -> Attempt<T>,
) -> Result<T> {
    let model = caller.model().clone();
    let control = caller.client().control().clone();
    let _running = control.begin();
    let deadline = Instant::now() + model.timeout;
    let (mut pause, mut last) = (BACKOFF.0, None::<String>);
    loop {
        let was_connected = caller.client().is_connected();
        let error = match attempt(caller, deadline) {
            Ok(answered) => {
                if last.is_some() {
                    log(Level::Info, &format!("{} answers again", model.address));
                }
                return answered.inspect_err(|_| caller.forget());
            }
            Err(error) => error,
        };
        caller.forget();
        let CallError::Lost(why) = &error else { return Err(model.failed(&error, last.as_deref())) };
        let is_first = last.replace(why.clone()).is_none();
        if is_first && was_connected && !caller.client().is_connected() {
            continue; // the connection has ended since the last request
        }
        if Instant::now() + pause >= deadline {
            return Err(model.failed(&error, None));
        }
        if pause == BACKOFF.0 {
            log(Level::Warning, &format!("{} is not there, and is tried again: {why}", model.address));
        }
        control.pause(pause);
        pause = (pause * 2).min(BACKOFF.1);
    }
}
