// SPDX-License-Identifier: MPL-2.0
//! A request that finds no server is tried again until its time is over, so a server may be started again while frames wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client::{CallError, GrpcClient};
use super::messages::*;
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

    /// Whether there is memory in common with the server, as the last request had it.
    fn has_region(&self) -> bool;

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
    while !control.is_interrupted() {
        let (was_connected, had_region) = (caller.client().is_connected(), caller.has_region());
        let error = match attempt(caller, deadline) {
            Ok(answered) => {
                if model.is_away.swap(false, Ordering::Relaxed) {
                    log(Level::Info, &format!("{} answers again", model.address));
                }
                return answered.inspect_err(|_| caller.forget());
            }
            Err(error) => error,
        };
        caller.forget();
        let error = match error {
            // Any client may have told the server to give up all memory, so it is tried once with new memory.
            CallError::Refused(..) if had_region => continue,
            CallError::Refused(..) if last.is_some() => unless_it_loads(caller.client(), &model, error, deadline),
            error => error,
        };
        let CallError::Lost(why) = &error else { return Err(model.failed(&error, last.as_deref())) };
        let is_first = last.replace(why.clone()).is_none();
        if is_first && was_connected && !caller.client().is_connected() {
            continue; // the connection has ended since the last request
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left < BACKOFF.0 {
            return Err(model.failed(&error, None));
        }
        if !model.is_away.swap(true, Ordering::Relaxed) {
            log(Level::Warning, &format!("{} is not there, and is tried again: {why}", model.address));
        }
        control.pause(pause.min(left - BACKOFF.0 / 2)); // the last attempt has time for an answer
        pause = (pause * 2).min(BACKOFF.1);
    }
    Err(model.failed(&CallError::Interrupted, None))
}

/// What a refusal means where the server was away before: it may answer before it has loaded its models.
fn unless_it_loads(client: &mut GrpcClient, model: &RemoteModel, refusal: CallError, deadline: Instant) -> CallError {
    let name = ModelName { name: model.address.model.clone(), version: model.address.version.clone() };
    match client.describe::<ModelReadyResponse>("ModelReady", &name, deadline) {
        Ok(ModelReadyResponse { ready: true }) => refusal,
        Ok(_) | Err(CallError::Refused(..)) => CallError::Lost("it does not serve the model yet".into()),
        Err(error) => error,
    }
}
