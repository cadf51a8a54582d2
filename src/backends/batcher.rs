//! Frames of one stream or of several, run together.
//!
//! A frame that joins gets a [`PendingOutput`] at once, and goes on downstream with it; whoever wants its outputs waits there. A
//! batch is run by whoever makes it full, or by whoever waits when the patience with its frame is over, so there is no thread
//! here and nothing to be drained: what is asked for is computed, and what nobody wants any more is not.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::{ModelInstance, contained};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::Tensors;
use crate::gst::stats::{Span, Stats};

/// The queue before a model. Lock order: backend, then line.
pub struct Batcher {
    /// Locked while a batch is run, or queued where a GPU runs it.
    backend: Mutex<Box<dyn ModelInstance>>,
    size: usize,
    batch_timeout: Duration,
    line: Mutex<Queue>,
    /// Of batches.
    stats: Stats,
    measure: AtomicBool,
    /// Batches have been run, or frames have left.
    moved: Condvar,
}

#[derive(Default)]
struct Queue {
    /// In the order of arrival.
    waiting: Vec<Weak<Request>>,
    counts: Counts,
}

/// What was run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub batches: u64,
    pub frames: u64,
    /// Batches that were not full when the patience with a frame was over.
    pub late: u64,
}

/// A frame's claim to its outputs.
pub struct PendingOutput(Arc<Request>);

struct Request {
    /// Not kept: who keeps a frame should not keep the model.
    batcher: Weak<Batcher>,
    stream: u64,
    joined: Instant,
    picture: Arc<Tensors>,
    outcome: OnceLock<std::result::Result<Tensors, Lost>>,
}

/// Why a frame has no outputs.
#[derive(Clone, Debug)]
pub enum Lost {
    /// Running the model failed.
    Failed(Error),
    /// Its stream was flushed or stopped.
    Left,
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Lost::Failed(error)
    }
}

/// Which batches are run.
#[derive(Clone, Copy)]
enum FlushReason<'a> {
    Full,
    /// And those that are not, as long as this frame waits.
    Late(&'a Request),
    /// And those that are not, as long as frames of this stream wait.
    Last(u64),
}

impl Batcher {
    /// Runs up to `size` frames at once. A frame that is waited for is run after `batch_timeout` even if there are fewer.
    pub fn new(backend: Box<dyn ModelInstance>, size: usize, batch_timeout: Duration) -> Self {
        let (line, stats, measure, moved) = Default::default();
        Batcher { backend: Mutex::new(backend), size: size.max(1), batch_timeout, line, stats, measure, moved }
    }

    /// Takes the GPU's time for each batch from now on.
    pub fn measure(&self) {
        self.measure.store(true, Ordering::Relaxed);
    }

    /// What batches have cost.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Puts a frame of a stream, which has a number of its own, behind those that wait.
    ///
    /// # Errors
    /// As [`ModelInstance::run`], where this made a batch full whose running failed.
    pub fn join(self: &Arc<Self>, stream: u64, picture: Arc<Tensors>) -> Result<PendingOutput> {
        let (batcher, joined) = (Arc::downgrade(self), Instant::now());
        let place = Arc::new(Request { batcher, stream, joined, picture, outcome: OnceLock::new() });
        self.line.lock().unwrap().waiting.push(Arc::downgrade(&place));
        self.run(FlushReason::Full);
        match place.outcome.get() {
            Some(Err(Lost::Failed(error))) => Err(error.clone()),
            _ => Ok(PendingOutput(place)),
        }
    }

    /// Runs the frames of this stream now, with those of others that wait: no more will come.
    pub fn finish(&self, stream: u64) {
        while self.run(FlushReason::Last(stream)) {}
    }

    /// Takes the frames of this stream out of the line. Who waits for them is woken.
    pub fn leave(&self, stream: u64) {
        let line = self.line.lock().unwrap();
        let waiting = line.waiting.iter().filter_map(Weak::upgrade);
        waiting.filter(|place| place.stream == stream).for_each(|place| place.lose());
        drop(line);
        self.moved.notify_all();
    }

    pub fn counts(&self) -> Counts {
        self.line.lock().unwrap().counts
    }

    /// Runs one batch, if one is due once it is this caller's turn.
    fn run(&self, due: FlushReason) -> bool {
        if !self.line.lock().unwrap().is_due(due, self.size) {
            return false;
        }
        let mut backend = self.backend.lock().unwrap();
        let mut line = self.line.lock().unwrap();
        if !line.is_due(due, self.size) {
            return false; // another thread has run it meanwhile
        }
        let batch = line.next(self.size);
        line.counts.batches += 1;
        line.counts.frames += batch.len() as u64;
        line.counts.late += u64::from(batch.len() < self.size && matches!(due, FlushReason::Late(_)));
        drop(line);

        let stage = Span::begin(self.measure.load(Ordering::Relaxed));
        let pictures: Vec<Arc<Tensors>> = batch.iter().map(|place| place.picture.clone()).collect();
        let outcome = contained(ErrorKind::Run, "Running the model failed", || backend.run(&pictures));
        let (mut outputs, error) = match outcome {
            Ok(outputs) => {
                (outputs.into_iter(), Error::new(ErrorKind::Run, "The model gave no outputs for this frame"))
            }
            Err(error) => (Vec::new().into_iter(), error),
        };
        for place in &batch {
            let outcome = outputs.next().ok_or_else(|| Lost::Failed(error.clone()));
            let _ = place.outcome.set(outcome); // unless it was given up meanwhile
        }
        drop(backend);
        self.stats.add(stage, 0);
        drop(self.line.lock().unwrap()); // who has just seen no outcome is waiting by now
        self.moved.notify_all();
        true
    }
}

impl Queue {
    fn is_due(&mut self, due: FlushReason, size: usize) -> bool {
        self.waiting.retain(|place| place.upgrade().is_some_and(|place| place.outcome.get().is_none()));
        let waits = |stream| self.waiting.iter().filter_map(Weak::upgrade).any(|place| place.stream == stream);
        self.waiting.len() >= size
            || match due {
                FlushReason::Full => false,
                FlushReason::Late(place) => place.outcome.get().is_none() && !self.waiting.is_empty(),
                FlushReason::Last(stream) => waits(stream),
            }
    }

    /// Takes the next batch out of the line: each stream's first frame before any stream's second, so that a fast one does not
    /// keep the others waiting.
    fn next(&mut self, size: usize) -> Vec<Arc<Request>> {
        let waiting = self.waiting.drain(..).filter_map(|place| place.upgrade());
        let mut seen: HashMap<u64, usize> = HashMap::new();
        let mut turns: Vec<(usize, Arc<Request>)> = waiting
            .map(|place| {
                let turn = seen.entry(place.stream).or_default();
                *turn += 1;
                (*turn, place)
            })
            .collect();
        turns.sort_by_key(|(turn, _)| *turn);
        let mut rest = turns.split_off(size.min(turns.len()));
        rest.sort_by_key(|(_, place)| place.joined);
        self.waiting.extend(rest.iter().map(|(_, place)| Arc::downgrade(place)));
        turns.into_iter().map(|(_, place)| place).collect()
    }
}

impl Request {
    fn lose(&self) {
        let _ = self.outcome.set(Err(Lost::Left)); // unless it has an outcome
    }
}

impl PendingOutput {
    /// Wants the outputs no more. Who waits for them is woken.
    pub fn give_up(&self) {
        self.0.lose();
        if let Some(batcher) = self.0.batcher.upgrade() {
            drop(batcher.line.lock().unwrap()); // who has just seen no outcome is waiting by now
            batcher.moved.notify_all();
        }
    }

    /// The outputs of the frame, once its batch was run, or queued where a GPU runs it. Waits for that.
    ///
    /// # Errors
    /// Where it never will be.
    pub fn wait(&self) -> std::result::Result<&Tensors, Lost> {
        let place = &*self.0;
        let waits = |_: &mut Queue| place.outcome.get().is_none();
        loop {
            if let Some(outcome) = place.outcome.get() {
                return outcome.as_ref().map_err(Lost::clone);
            }
            let batcher = place.batcher.upgrade().ok_or(Lost::Left)?;
            let left = batcher.batch_timeout.saturating_sub(place.joined.elapsed());
            if !left.is_zero() {
                drop(batcher.moved.wait_timeout_while(batcher.line.lock().unwrap(), left, waits).unwrap());
            } else if !batcher.run(FlushReason::Late(place)) {
                // It is just being run.
                drop(batcher.moved.wait_while(batcher.line.lock().unwrap(), waits).unwrap());
            }
        }
    }
}

impl fmt::Debug for PendingOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.outcome.get() {
            Some(outcome) => write!(f, "Ticket({outcome:?})"),
            None => write!(f, "Ticket(waiting)"),
        }
    }
}

#[cfg(test)]
mod tests;
