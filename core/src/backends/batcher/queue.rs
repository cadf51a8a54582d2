// SPDX-License-Identifier: MPL-2.0
//! Which frames wait for a model, which are run next, and which are being run. All of it is changed under the lock of
//! the batcher.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::cancel::CancelToken;
use super::pace::BatchPace;
use crate::backends::Interrupted;
use crate::cuda::driver::Fence;
use crate::error::{Error, Result};
use crate::model::InputValues;
use crate::tensor::{Dims, Tensors};

#[derive(Default)]
pub(super) struct BatchQueueState {
    /// In the order of arrival.
    pub(super) waiting: Vec<QueuedRequest>,
    /// The batch that each runner runs; empty if there is none. Apart from this, only those that want its outputs keep its frames.
    pub(super) running: Vec<RunningBatch>,
    /// What is passed when the last runs on the GPU have ended, the oldest first: one more than there may be at the same time. Empty
    /// where frames wait for others.
    pub(super) queued: VecDeque<Option<Fence>>,
    /// A thread waits for one of them.
    pub(super) is_awaited: bool,
    /// What tells whether it pays to wait for more frames, where that is asked for.
    pub(super) pace: Option<BatchPace>,
    /// When the last run on the GPU was begun, and its frames, if it was alone there.
    last_alone: Option<(Instant, usize)>,
    /// A thread waits for more frames.
    pub(super) is_gathering: bool,
    /// Since when the model could run the frames that wait, as far as a thread has seen it.
    free_since: Option<Instant>,
    /// What a frame that could join them, or those before, goes into the model with, and the size of its pictures.
    open_to: Option<(Arc<InputValues>, Dims)>,
    /// Frames that were submitted.
    pub(super) submitted: u64,
    /// Batches that were begun.
    pub(super) begun: u64,
    pub(super) counts: Counts,
    /// The last run found no memory.
    pub(super) pause: Option<Pause>,
    /// How long a run may take.
    pub(super) limit: Option<Duration>,
    /// The run that took longer.
    pub(super) given_up: Option<Error>,
    /// What the owner is still to be told, without a lock.
    pub(super) untold: Vec<Error>,
}

/// No batch is due until then.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) until: Instant,
    pub(super) length: Duration,
}

/// A batch that is to be run.
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) pictures: Vec<Arc<Tensors>>,
    /// What goes into the model besides them.
    pub(super) values: Arc<InputValues>,
    /// Whether it is of no frames.
    pub(super) is_trial: bool,
}

/// A batch that is being run.
#[derive(Default)]
pub(super) struct RunningBatch {
    pub(super) number: u64,
    pub(super) since: Option<Instant>,
    pub(super) requests: Vec<Arc<Request>>,
    /// No run before it was still on the GPU: the time that it takes is its own.
    is_alone: bool,
}

/// A frame that waits for its batch. It is not kept, for a frame that ends under the lock of the queue may wait for the GPU there.
pub(super) struct QueuedRequest {
    pub(super) stream: u64,
    /// The number of the frame that its picture is of.
    pub(super) frame: u64,
    pub(super) values: Arc<InputValues>,
    /// Of its picture.
    pub(super) dims: Dims,
    submitted: Instant,
    pub(super) request: Weak<Request>,
}

/// What was run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub batches: u64,
    pub frames: u64,
    /// Batches that were run for a frame whose timeout had expired, and were not full.
    pub late: u64,
    /// Runs that found no memory, and were tried again.
    pub out_of_memory: u64,
}

/// A picture of a frame that is to be run.
pub(super) struct Request {
    pub(super) stream: u64,
    /// The number of the frame that its picture is of.
    pub(super) frame: u64,
    pub(super) submitted: Instant,
    pub(super) picture: Arc<Tensors>,
    /// What goes into the model besides the picture.
    pub(super) values: Arc<InputValues>,
    /// Whether it is of no frame: the model is tried out.
    pub(super) is_trial: bool,
    pub(super) outcome: OnceLock<std::result::Result<Tensors, Interrupted>>,
}

/// Which batches are run.
#[derive(Clone, Copy)]
pub(super) enum FlushReason<'a> {
    /// Full ones, as long as this frame waits.
    Full(&'a Request),
    /// Those that are not full, too, until the one who waits may not do so any more.
    Late(&'a Request, &'a CancelToken),
    /// All, as long as frames of this stream wait.
    Last(u64),
}

impl BatchQueueState {
    /// The pictures of a frame wait from now on.
    pub(super) fn add(&mut self, requests: &[Arc<Request>]) {
        self.waiting.extend(requests.iter().map(QueuedRequest::of));
        let last = self.waiting.last().filter(|_| !requests.is_empty());
        if let (Some(pace), Some(last)) = (&mut self.pace, last) {
            let joins = self.open_to.as_ref().is_none_or(|(values, dims)| last.goes_with(values, dims));
            pace.came(last.submitted, requests.len(), joins);
        }
    }

    /// Until when the run that is to be given up first may take; `None`, where all may take as long as they want.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let limit = self.limit.filter(|_| self.given_up.is_none())?;
        let running = self.running.iter().filter(|batch| !batch.requests.is_empty());
        running.filter_map(|batch| Some(limit.saturating_sub(batch.since?.elapsed()))).min()
    }

    /// How long no batch is run, because the last one found no memory.
    pub(super) fn pause_left(&self) -> Duration {
        self.pause.map_or(Duration::ZERO, |pause| pause.until.saturating_duration_since(Instant::now()))
    }

    /// Takes the next batch for a runner. `None` if its frames have just ended.
    pub(super) fn begin(&mut self, runner: usize, size: usize, due: FlushReason) -> Option<Batch> {
        let requests = self.next(size);
        let values = requests.first()?.values.clone();
        let pictures = requests.iter().map(|request| request.picture.clone()).collect();
        self.counts.batches += 1;
        self.counts.frames += requests.len() as u64;
        self.counts.late += u64::from(requests.len() < size && matches!(due, FlushReason::Late(..)));
        self.begun += 1;
        let number = self.begun;
        let is_alone = self.pace.is_some() && self.run_before().is_none_or(Fence::is_passed);
        self.free_since = None;
        self.running[runner] = RunningBatch { number, since: Some(Instant::now()), requests, is_alone };
        Some(Batch { number, pictures, values, is_trial: false })
    }

    /// Begins to try the model out with a free runner. It does not count as a batch, nor as a run that is timed.
    ///
    /// # Errors
    /// Where the model was given up.
    pub(super) fn begin_trial(&mut self, runner: usize, request: &Arc<Request>) -> Result<Batch> {
        if let Some(error) = &self.given_up {
            return Err(error.clone());
        }
        self.begun += 1;
        self.free_since = None;
        let (number, requests) = (self.begun, vec![request.clone()]);
        self.running[runner] = RunningBatch { number, since: Some(Instant::now()), requests, is_alone: false };
        let (pictures, values) = (vec![request.picture.clone()], request.values.clone());
        Ok(Batch { number, pictures, values, is_trial: true })
    }

    /// Whether what a runner runs is of no frames.
    pub(super) fn is_trial(&self, runner: usize) -> bool {
        self.running[runner].requests.iter().any(|request| request.is_trial)
    }

    /// Whether frames of that stream wait for their run.
    pub(super) fn has_frames_of(&self, stream: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.stream == stream && waiting.is_there())
    }

    pub(super) fn free_runner(&self) -> Option<usize> {
        self.running.iter().position(|batch| batch.requests.is_empty())
    }

    /// A run was queued on the GPU.
    pub(super) fn add_queued(&mut self, run: Option<Fence>) {
        if self.queued.pop_front().is_some() {
            self.queued.push_back(run);
        }
    }

    /// A runner is done with its batch. Where that was only queued on the GPU, the run ends later.
    pub(super) fn time_run(&mut self, runner: usize) {
        let RunningBatch { since, requests, is_alone, .. } = &self.running[runner];
        let timed = since.filter(|_| *is_alone).map(|since| (since, requests.len()));
        if !self.queued.is_empty() {
            self.last_alone = timed;
        } else if let (Some(pace), Some((since, frames))) = (&mut self.pace, timed) {
            pace.ran(frames, since.elapsed());
        }
    }

    /// When that run was begun and with how many frames, if it is the last one, and nothing else was on the GPU before it.
    pub(super) fn timed_run(&self, run: &Fence) -> Option<(Instant, usize)> {
        self.last_alone.filter(|_| self.run_before().is_some_and(|last| last.is_same(run)))
    }

    /// How long more frames are waited for while the model is free; `None`, where that does not pay, or it is not free.
    pub(super) fn time_to_gather(&mut self, size: usize) -> Option<Duration> {
        if self.given_up.is_some() || self.pause.is_some() || self.free_runner().is_none() || self.is_busy() {
            return None;
        }
        self.waiting.retain(QueuedRequest::is_there);
        let (frames, now) = (self.waiting.len(), Instant::now());
        let first = self.waiting.first().filter(|_| frames < size)?;
        // Those that cannot be in its batch would only wait for it.
        if self.waiting.iter().any(|waiting| !waiting.goes_with(&first.values, &first.dims)) {
            return None;
        }
        let (since, pace) = (first.submitted.max(*self.free_since.get_or_insert(now)), self.pace.as_mut()?);
        if self.open_to.as_ref().is_none_or(|(values, dims)| !first.goes_with(values, dims)) {
            pace.turned();
            self.open_to = Some((first.values.clone(), first.dims.clone()));
        }
        let time = pace.wait(now, frames, now.saturating_duration_since(since));
        Some(time).filter(|time| !time.is_zero())
    }

    /// As long as it has not ended, a further run would wait on the GPU.
    pub(super) fn run_before(&self) -> Option<&Fence> {
        self.queued.get(1)?.as_ref()
    }

    /// Whether one would.
    pub(super) fn is_busy(&self) -> bool {
        self.run_before().is_some_and(|run| !run.is_passed())
    }

    /// Whether enough frames wait for a run that the GPU begins as soon as the one before it has ended. Small runs would cost more than
    /// the pause between two. Where a thread waits for more frames the GPU is free, and that thread decides.
    fn can_go_on(&self, size: usize) -> bool {
        let is_next = |run: &Option<Fence>| run.as_ref().is_none_or(Fence::is_passed);
        !self.is_gathering
            && 2 * self.waiting.len() >= size
            && !self.comes_in_pauses()
            && self.queued.front().is_some_and(is_next)
    }

    /// Whether more frames come as soon as there is a pause between two runs. Few streams with many frames here may have no room for more
    /// until some of these are done: a pause brings none of them.
    fn comes_in_pauses(&self) -> bool {
        let streams = || self.waiting.iter().map(|waiting| waiting.stream).collect::<HashSet<u64>>().len();
        self.pace.as_ref().is_some_and(BatchPace::comes_in_bursts) && 2 * streams() > self.waiting.len()
    }

    /// Frames whose batch is being run.
    pub(super) fn running_requests(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.running.iter().flat_map(|batch| &batch.requests)
    }

    pub(super) fn is_due(&mut self, due: FlushReason, size: usize) -> bool {
        self.waiting.retain(QueuedRequest::is_there);
        if !self.pause_left().is_zero() || self.given_up.is_some() {
            return false;
        }
        match due {
            FlushReason::Full(request) => {
                request.outcome.get().is_none() && (self.waiting.len() >= size || self.can_go_on(size))
            }
            FlushReason::Late(request, token) => {
                !token.is_cancelled() && request.outcome.get().is_none() && !self.waiting.is_empty()
            }
            FlushReason::Last(stream) => self.waiting.iter().any(|waiting| waiting.stream == stream),
        }
    }

    /// Whether batches that are being run are still waited for.
    pub(super) fn is_wanted(&self, due: FlushReason) -> bool {
        match due {
            FlushReason::Full(request) => request.outcome.get().is_none(),
            FlushReason::Late(request, token) => !token.is_cancelled() && request.outcome.get().is_none(),
            FlushReason::Last(stream) => {
                self.running_requests().any(|request| request.stream == stream && request.outcome.get().is_none())
            }
        }
    }

    /// Takes the next batch from the queue: each stream's first frame before any stream's second, so that a fast one does not
    /// delay the others. The pictures of a frame stay together, for it waits for the last of them. All pictures of a batch have one
    /// size, and go in with the same values.
    pub(super) fn next(&mut self, size: usize) -> Vec<Arc<Request>> {
        let mut seen: HashMap<u64, (usize, u64)> = HashMap::new();
        let turn = |(at, waiting): (usize, &QueuedRequest)| {
            let (turn, frame) = seen.entry(waiting.stream).or_default();
            *turn += usize::from(std::mem::replace(frame, waiting.frame) != waiting.frame);
            (*turn, at)
        };
        let mut turns: Vec<(usize, usize)> = self.waiting.iter().enumerate().map(turn).collect();
        turns.sort_unstable();
        let mut first: Option<(Arc<InputValues>, Dims)> = None;
        let next = turns.into_iter().filter_map(|(_, at)| {
            let waiting = &mut self.waiting[at];
            if let Some((values, dims)) = &first
                && !waiting.goes_with(values, dims)
            {
                return None;
            }
            let request = std::mem::take(&mut waiting.request).upgrade()?;
            first.get_or_insert_with(|| (waiting.values.clone(), waiting.dims.clone()));
            Some(request)
        });
        let batch = next.take(size).collect();
        self.waiting.retain(QueuedRequest::is_there);
        batch
    }
}

impl QueuedRequest {
    pub(super) fn of(request: &Arc<Request>) -> Self {
        let Request { stream, frame, values, picture, submitted, .. } = &**request;
        let dims = picture.first().map(|tensor| tensor.desc().dims.clone()).unwrap_or_default();
        let (values, request) = (values.clone(), Arc::downgrade(request));
        QueuedRequest { stream: *stream, frame: *frame, values, dims, submitted: *submitted, request }
    }

    /// Whether it can be in a batch of frames with these values, whose pictures have that size.
    fn goes_with(&self, values: &Arc<InputValues>, dims: &Dims) -> bool {
        Arc::ptr_eq(&self.values, values) && self.dims == *dims
    }

    /// Whether the frame has not ended, and was not taken.
    pub(super) fn is_there(&self) -> bool {
        self.request.strong_count() > 0
    }
}

impl Request {
    pub(super) fn cancel(&self) {
        let _ = self.outcome.set(Err(Interrupted::Flushing)); // unless it has an outcome
    }
}
