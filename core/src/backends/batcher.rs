// SPDX-License-Identifier: MPL-2.0
//! Frames of one stream or of several, run together.
//!
//! A frame that is submitted gets a [`PendingOutput`] at once, and goes on downstream with it; its outputs are waited for there. A
//! batch is run for the frame that makes it full, or for one that is waited for when its timeout expires. Where that is 0 or
//! automatic, it waits until the model is free: behind another run it would only wait, and here others join it; but half a batch is
//! queued there, so that the GPU goes on at once. Where it is automatic, it then waits as long as that pays, and half a batch waits for
//! the other half where that comes in the pause between two runs. Nothing has to be drained: outputs that are waited for are computed,
//! and dropped ones are not. Behind a `tee` several elements wait for the outputs of one frame; one that may not wait any longer ends
//! its own wait alone, by its [`CancelToken`].
//!
//! Where a run only queues work on a GPU, the calling thread does that. Where it computes, a thread of its own does it: a model
//! may have a loop that never ends, and then that thread is abandoned while the others go on. A model that was loaded for
//! several runs at the same time has a thread for each; a frame that makes a batch full then waits only until one of them is free.
//!
//! A run that finds no memory on the GPU is no failure of its frames: they wait, and it is tried again. A run that takes longer than
//! it may is one: its frames fail, and the model is given up, since nothing else can be run with it.

mod cancel;
mod pace;
mod pending;
mod queue;
mod trial;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

pub use cancel::CancelToken;
use cancel::Wake;
use pace::BatchPace;
pub use pace::BatchTimeout;
pub use pending::{PendingOutput, RunProbe, Usage};
pub use queue::Counts;
use queue::{Batch, BatchQueueState, FlushReason, Pause, QueuedRequest, Request, RunningBatch};

use super::verify::{Verdict, Watch};
use super::{Interrupted, Interrupter, ModelInstance, contained};
use crate::counters::{self, Span, Stats, ThreadCounters};
use crate::cuda::driver::{Context, Fence, WaitHistory, WaitLimit};
use crate::error::{Error, ErrorKind, Result};
use crate::model::InputValues;
use crate::tensor::Tensors;

/// How long a run that found no memory waits before it is tried again: at first, and at most.
pub const MEMORY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long frames that found no memory are waited for before their model is let go.
const MEMORY_LIMIT: Duration = Duration::from_secs(2);

/// The queue before a model.
pub struct Batcher {
    queue: Arc<BatchQueue>,
    runner: BatchRunner,
    size: usize,
    batch_timeout: BatchTimeout,
    /// How long waits for runs on the GPU have lasted.
    waits: Mutex<WaitHistory>,
    verdict: Option<Verdict>,
    watch: Option<Arc<Watch>>,
    /// Dropped behind the model, whose end waits for its runs.
    wait_limit: Mutex<Option<WaitLimit>>,
}

/// What runs batches.
enum BatchRunner {
    /// The calling thread, since the run only queues work. One batch at a time.
    Caller(Mutex<Box<dyn ModelInstance>>),
    /// One batch in each thread.
    Threads(Vec<RunnerThread>),
}

/// A thread that waits for batches. It ends with the batcher, or where a run does not end, with the process.
struct RunnerThread {
    batches: Sender<Batch>,
    interrupter: Option<Interrupter>,
}

/// What the threads of a batcher share.
#[derive(Default)]
struct BatchQueue {
    state: Mutex<BatchQueueState>,
    /// A batch was run, or frames have left.
    moved: Condvar,
    /// The same, or a frame has come: for the thread that waits for one.
    gathered: Condvar,
    /// Of batches.
    stats: Stats,
    measure: AtomicBool,
    /// What runs have counted in the thread of the model, until the thread that asked for them takes it over.
    counted: Mutex<ThreadCounters>,
    /// The name of the model, and who is told what it does not survive or waits for.
    owner: OnceLock<(String, Notify)>,
    #[cfg(test)]
    waiters: crate::test::Waiters,
}

type Notify = Box<dyn Fn(&Error) + Send + Sync>;

/// An outcome that was not taken, and a frame that nothing else keeps.
type EndedRequest = (Option<std::result::Result<Tensors, Interrupted>>, Option<Request>);

impl Batcher {
    /// Runs up to `size` frames at once. A frame that is waited for is run after `batch_timeout` even if there are fewer; if that is
    /// 0, once the model is free; if it is automatic, once waiting no longer pays.
    ///
    /// # Errors
    /// `Library`, where a thread cannot be started to run it.
    pub fn new(mut model: Box<dyn ModelInstance>, size: usize, batch_timeout: impl Into<BatchTimeout>) -> Result<Self> {
        let batch_timeout: BatchTimeout = batch_timeout.into();
        let (queue, size) = (Arc::<BatchQueue>::default(), size.max(1));
        let watch = model.watch().cloned();
        let (on_gpu, mut runs) = (model.only_queues(), model.runs_at_once());
        let waits_for_model = matches!(batch_timeout, BatchTimeout::Auto | BatchTimeout::Fixed(Duration::ZERO));
        if on_gpu && waits_for_model && size > 1 {
            queue.state.lock().unwrap().queued.resize_with(1 + runs, || None);
        }
        let runner = if on_gpu {
            BatchRunner::Caller(Mutex::new(model))
        } else {
            let others = model.take_others();
            runs = 1 + others.len();
            let models = std::iter::once(model).chain(others).enumerate();
            BatchRunner::Threads(
                models.map(|(at, model)| RunnerThread::start(model, at, &queue)).collect::<Result<_>>()?,
            )
        };
        let runners = match &runner {
            BatchRunner::Caller(_) => 1,
            BatchRunner::Threads(threads) => threads.len(),
        };
        let mut state = queue.state.lock().unwrap();
        state.running.resize_with(runners, RunningBatch::default);
        // Several runs at the same time fill the GPU, and none of them can be timed alone.
        state.pace = (batch_timeout == BatchTimeout::Auto && size > 1 && runs == 1).then(|| BatchPace::new(size));
        drop(state);
        let (waits, wait_limit) = (Mutex::default(), Mutex::default());
        Ok(Batcher { queue, runner, size, batch_timeout, waits, verdict: None, watch, wait_limit })
    }

    /// What was found out about the model when it was loaded.
    pub fn with_verdict(self, verdict: Option<Verdict>) -> Self {
        Batcher { verdict, ..self }
    }

    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// What is found in frames that are compared while they play.
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// The name of the model, and who is told, once, that runs wait for memory, or that the model is given up.
    pub fn with_owner(self, name: String, notify: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        let _ = self.queue.owner.set((name, Box::new(notify))); // the first one
        self
    }

    /// A run that takes longer is given up from now on, and the model with it. Of several limits the shortest counts.
    pub fn limit_runs(&self, limit: Duration) {
        let mut queue = self.queue.state.lock().unwrap();
        if queue.limit.is_none_or(|before| limit < before) {
            queue.limit = Some(limit);
            drop(queue);
            self.queue.notify_all();
        }
    }

    /// The same for waits on the host, of whoever uses that GPU, as long as this model is there.
    pub fn limit_waits(&self, cuda: &Context, limit: Duration) {
        let mut known = self.wait_limit.lock().unwrap();
        if known.as_ref().is_none_or(|known| limit < known.length()) {
            *known = Some(cuda.limit_waits(limit));
        }
    }

    /// Why nothing is run any more, where a run did not end.
    pub fn given_up(&self) -> Option<Error> {
        self.queue.state.lock().unwrap().given_up.clone()
    }

    /// Takes the GPU's time for each batch from now on.
    pub fn measure(&self) {
        self.queue.measure.store(true, Ordering::Relaxed);
    }

    /// What batches have cost.
    pub fn stats(&self) -> &Stats {
        &self.queue.stats
    }

    /// Adds the pictures of a frame to the queue. Its stream has a number of its own. The values go into the model with them: frames
    /// with others are run in batches of their own. The token is of the element: what is set there before [`Batcher::leave`] holds for
    /// a frame that comes only after that.
    ///
    /// # Errors
    /// As [`ModelInstance::run`], where this made a batch full whose running failed; or the element may not wait.
    pub fn submit(
        self: &Arc<Self>,
        stream: u64,
        pictures: impl Iterator<Item = Arc<Tensors>>,
        values: &Arc<InputValues>,
        usage: &Arc<Usage>,
        token: &CancelToken,
    ) -> std::result::Result<SmallVec<[PendingOutput; 1]>, Interrupted> {
        let submitted = Instant::now();
        let pictures: SmallVec<[Arc<Tensors>; 1]> = pictures.collect();
        let mut queue = self.queue.state.lock().unwrap();
        if token.is_cancelled() {
            return Err(Interrupted::Flushing);
        }
        if let Some(error) = &queue.given_up {
            return Err(error.clone().into());
        }
        queue.submitted += 1;
        let frame = queue.submitted;
        let request = |picture| {
            let (values, outcome) = (values.clone(), OnceLock::new());
            Arc::new(Request { stream, frame, submitted, picture, values, is_trial: false, outcome })
        };
        let requests: SmallVec<[Arc<Request>; 1]> = pictures.into_iter().map(request).collect();
        queue.add(&requests);
        let is_gathering = queue.is_gathering;
        drop(queue);
        if is_gathering {
            self.queue.gathered.notify_one();
        }
        if let Some(last) = requests.last() {
            while self.run(FlushReason::Full(last)) {}
        }
        let pending = |request: Arc<Request>| match request.outcome.get() {
            Some(Err(Interrupted::Failed(error))) => Err(error.clone().into()),
            _ => Ok(PendingOutput { batcher: Arc::downgrade(self), request, usage: usage.clone() }),
        };
        requests.into_iter().map(pending).collect()
    }

    /// Runs the waiting frames of this stream now, with those of others: no more will come.
    pub fn flush(&self, stream: u64) {
        let end = Instant::now() + MEMORY_LIMIT;
        loop {
            while self.run(FlushReason::Last(stream)) {}
            // Another thread may be running the last of them.
            let queue = self.queue.wait_while(|queue| queue.is_wanted(FlushReason::Last(stream)));
            // Those that wait for memory would be lost with the model.
            let waits = |queue: &BatchQueueState| queue.given_up.is_none() && queue.has_frames_of(stream);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !waits(&queue) {
                return;
            }
            let pause = queue.pause_left().min(left);
            drop(self.queue.moved.wait_timeout_while(queue, pause, |queue| waits(queue)).unwrap());
        }
    }

    /// Removes the frames of this stream from the queue. Waits for them and for their runs end.
    pub fn leave(&self, stream: u64) {
        let mut queue = self.queue.state.lock().unwrap();
        queue.running_requests().filter(|request| request.stream == stream).for_each(|request| request.cancel());
        let own = queue.waiting.extract_if(.., |waiting| waiting.stream == stream);
        let own: Vec<Arc<Request>> = own.filter_map(|waiting| waiting.request.upgrade()).collect();
        // Under the lock, or a thread that is about to wait would miss it.
        own.iter().for_each(|request| request.cancel());
        drop(queue);
        self.queue.notify_all();
    }

    /// Waits until the model no longer works on frames of this stream, but not longer than `limit`. Returns whether that is the case.
    pub fn is_idle_within(&self, stream: u64, limit: Duration) -> bool {
        let queue = self.queue.state.lock().unwrap();
        #[cfg(test)]
        let _waiting = self.queue.waiters.enter();
        let works = |queue: &mut BatchQueueState| queue.running_requests().any(|request| request.stream == stream);
        !self.queue.moved.wait_timeout_while(queue, limit, works).unwrap().1.timed_out()
    }

    /// Ends a run on frames of this stream, where the backend can: other frames of that batch fail. Returns whether it has ended within
    /// the limit.
    pub fn interrupt_within(&self, stream: u64, limit: Duration) -> bool {
        let BatchRunner::Threads(threads) = &self.runner else { return false };
        if threads.iter().any(|thread| thread.interrupter.is_none()) {
            return false;
        }
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let queue = self.queue.state.lock().unwrap();
            for (thread, batch) in threads.iter().zip(&queue.running) {
                if let Some(interrupt) = &thread.interrupter
                    && batch.requests.iter().any(|request| request.stream == stream)
                {
                    interrupt();
                }
            }
            drop(queue);
            // A run that has only just begun does not notice it.
            if self.is_idle_within(stream, Duration::from_millis(20)) {
                return true;
            }
        }
        false
    }

    pub fn counts(&self) -> Counts {
        self.queue.state.lock().unwrap().counts
    }

    /// Waits until a run on the GPU has ended. One thread waits for the GPU, and the others for that one, as long as they want.
    fn await_run(&self, run: &Fence, waits: impl Fn(&BatchQueueState) -> bool) {
        let mut queue = self.queue.state.lock().unwrap();
        if queue.is_awaited {
            drop(queue);
            drop(self.queue.wait_while(|queue| queue.is_awaited && waits(queue)));
            return;
        }
        queue.is_awaited = true;
        let timed = queue.timed_run(run);
        drop(queue);
        #[cfg(test)]
        let _waiting = self.queue.waiters.enter();
        let _ = run.wait_again(&mut self.waits.lock().unwrap()); // whoever has its outputs is told what is wrong with it
        let mut queue = self.queue.state.lock().unwrap();
        queue.is_awaited = false;
        if let (Some(pace), Some((since, frames))) = (&mut queue.pace, timed) {
            pace.ran(frames, since.elapsed());
        }
        drop(queue);
        self.queue.notify_all();
    }

    /// Waits for more frames as long as that pays, where the batch timeout is automatic and the model is free. One thread does so, and
    /// the others wait for that one. Returns whether it has waited, or has to wait for a run, so that all may be otherwise.
    fn gather(&self, waits: impl Fn(&BatchQueueState) -> bool) -> bool {
        let mut queue = self.queue.state.lock().unwrap();
        if queue.pace.is_none() {
            return false;
        }
        if queue.is_gathering {
            drop(queue);
            drop(self.queue.wait_while(|queue| queue.is_gathering && waits(queue)));
            return true;
        }
        if queue.free_runner().is_none() {
            // A thread is about to queue a run on the GPU: behind it another one would be too small. A run on the CPU ends later.
            let is_queuing = matches!(self.runner, BatchRunner::Caller(_));
            drop(queue);
            if is_queuing {
                drop(self.queue.wait_while(|queue| queue.free_runner().is_none() && waits(queue)));
            }
            return is_queuing;
        }
        if queue.is_busy() {
            return true; // another thread has just queued a run
        }
        let mut has_waited = false;
        while waits(&queue)
            && let Some(time) = queue.time_to_gather(self.size)
        {
            let frames = queue.submitted;
            (queue.is_gathering, has_waited) = (true, true);
            #[cfg(test)]
            let _waiting = self.queue.waiters.enter();
            let still = |queue: &mut BatchQueueState| queue.submitted == frames && waits(queue);
            let (now, outcome) = self.queue.gathered.wait_timeout_while(queue, time, still).unwrap();
            queue = now;
            if outcome.timed_out() {
                queue.pace.iter_mut().for_each(BatchPace::missed);
            }
        }
        queue.is_gathering = false;
        drop(queue);
        if has_waited {
            self.queue.notify_all();
        }
        has_waited
    }

    /// Runs one batch, if one is due once a runner is free. Returns early where the frames that this is for have left.
    fn run(&self, due: FlushReason) -> bool {
        match &self.runner {
            BatchRunner::Caller(model) => {
                if !self.queue.state.lock().unwrap().is_due(due, self.size) {
                    return false;
                }
                // Threads queue for the model. If they waited for a free runner, each run would wake all of them.
                let mut model = model.lock().unwrap();
                let mut queue = self.queue.state.lock().unwrap();
                if !queue.is_due(due, self.size) {
                    return false; // another thread has run it meanwhile
                }
                let Some(batch) = queue.begin(0, self.size, due) else { return true };
                drop(queue);
                let outcome = self.queue.execute(&mut **model, batch);
                let ended = self.queue.complete(0, outcome);
                drop(model); // before frames that may wait for the GPU
                drop(ended);
                self.queue.tell();
            }
            BatchRunner::Threads(threads) => {
                let mut queue =
                    self.queue.wait_while(|queue| queue.free_runner().is_none() && queue.is_due(due, self.size));
                let Some(runner) = queue.free_runner().filter(|_| queue.is_due(due, self.size)) else {
                    return false; // as above
                };
                let Some(batch) = queue.begin(runner, self.size, due) else { return true };
                let number = batch.number;
                drop(queue);
                threads[runner].batches.send(batch).expect("it goes on as long as this sender is there");
                if threads.len() == 1 || matches!(due, FlushReason::Late(..)) {
                    let runs = |queue: &BatchQueueState| {
                        let RunningBatch { number: now, requests, .. } = &queue.running[runner];
                        *now == number && !requests.is_empty()
                    };
                    drop(self.queue.wait_while(|queue| runs(queue) && queue.is_wanted(due)));
                }
                counters::add(std::mem::take(&mut *self.queue.counted.lock().unwrap()));
            }
        }
        true
    }
}

impl RunnerThread {
    /// `at` is its place among the runners.
    fn start(mut model: Box<dyn ModelInstance>, at: usize, queue: &Arc<BatchQueue>) -> Result<Self> {
        let (interrupter, queue) = (model.interrupter(), queue.clone());
        let (sender, batches) = channel::<Batch>();
        let run = move || {
            batches.into_iter().for_each(|batch| {
                let is_trial = batch.is_trial;
                let (outcome, counted) = counters::counted(|| queue.execute(&mut *model, batch));
                if !is_trial {
                    queue.counted.lock().unwrap().add(counted);
                }
                drop(queue.complete(at, outcome));
                queue.tell();
            });
        };
        thread::Builder::new().name("trt-run".into()).spawn(run).map_err(|error| {
            Error::new(ErrorKind::Library, "Cannot start a thread to run the model in").cause(error)
        })?;
        Ok(RunnerThread { batches: sender, interrupter })
    }
}

impl Wake for BatchQueue {
    fn wake(&self) {
        drop(self.state.lock().unwrap());
        self.notify_all();
    }
}

impl BatchQueue {
    /// All that wait look again.
    fn notify_all(&self) {
        self.moved.notify_all();
        self.gathered.notify_all();
    }

    /// Waits while the condition holds. Whoever waits sees where a run takes too long.
    fn wait_while(&self, mut condition: impl FnMut(&mut BatchQueueState) -> bool) -> MutexGuard<'_, BatchQueueState> {
        let mut queue = self.state.lock().unwrap();
        #[cfg(test)]
        let mut waiting = None;
        while condition(&mut queue) {
            #[cfg(test)]
            let _ = waiting.get_or_insert_with(|| self.waiters.enter());
            queue = match queue.time_left() {
                None => self.moved.wait(queue).unwrap(),
                Some(Duration::ZERO) => {
                    drop(queue);
                    self.abandon();
                    self.state.lock().unwrap()
                }
                Some(left) => self.moved.wait_timeout(queue, left).unwrap().0,
            };
        }
        queue
    }

    /// A run does not end: what waits for the model has failed.
    fn abandon(&self) {
        let mut queue = self.state.lock().unwrap();
        let Some(limit) = queue.limit.filter(|_| queue.time_left() == Some(Duration::ZERO)) else { return };
        let name = self.owner.get().map_or("the model", |(name, _)| name);
        let error = Error::new(ErrorKind::Run, format!("A run of {name} has not ended within {} s", limit.as_secs_f64()))
            .cause("the model is given up; there may be no way to end the run, and then its thread and its memory stay in use")
            .remedy(
                "Start the pipeline again, which loads the model again. A model with a loop may never end: check it. Where a run may \
                 take so long, set run-timeout to more, or to 0",
            );
        queue.given_up = Some(error.clone());
        queue.untold.push(error.clone());
        let waiting = std::mem::take(&mut queue.waiting);
        let failed: Vec<Arc<Request>> = waiting.iter().filter_map(|waiting| waiting.request.upgrade()).collect();
        queue.running_requests().chain(&failed).for_each(|request| {
            let _ = request.outcome.set(Err(Interrupted::Failed(error.clone()))); // unless it has an outcome
        });
        drop(queue);
        self.notify_all();
        drop(failed); // frames may wait for the GPU
        self.tell();
    }

    /// Tells the owner of the model what has come up. No lock of this queue is held.
    fn tell(&self) {
        let untold = std::mem::take(&mut self.state.lock().unwrap().untold);
        untold.iter().for_each(|error| self.owner.get().into_iter().for_each(|(_, notify)| notify(error)));
    }

    /// Runs the model on a batch, and drops its pictures.
    fn execute(&self, model: &mut dyn ModelInstance, batch: Batch) -> Result<Vec<Tensors>> {
        const WHAT: &str = "Running the model failed";
        let Batch { pictures, values, is_trial, .. } = batch;
        if is_trial {
            return contained(ErrorKind::Run, WHAT, || model.try_values(&values, &pictures));
        }
        let stage = Span::begin(self.measure.load(Ordering::Relaxed));
        let outcome = contained(ErrorKind::Run, WHAT, || {
            model.set_values(&values)?;
            model.run(&pictures)
        });
        self.stats.add(stage, 0);
        outcome
    }

    /// Hands out the outcomes of the batch that a runner has run. A frame goes on once this lock is free, and then has its tensors to itself.
    /// Returns what was cancelled in the meantime, to be dropped without a lock.
    fn complete(&self, runner: usize, outcome: Result<Vec<Tensors>>) -> Vec<EndedRequest> {
        let queued = outcome.as_ref().ok().and_then(|outputs| outputs.last()?.ready().cloned());
        let is_run = outcome.is_ok();
        let is_of_frames = || !self.state.lock().unwrap().is_trial(runner);
        let (mut outputs, error) = match outcome {
            Err(error) if error.is_out_of_memory() && is_of_frames() => return self.put_back(runner, error),
            Ok(outputs) => {
                (outputs.into_iter(), Error::new(ErrorKind::Run, "The model gave no outputs for this frame"))
            }
            Err(error) => (Vec::new().into_iter(), error),
        };
        let mut ended = Vec::new();
        let mut queue = self.state.lock().unwrap();
        if is_run || !queue.is_trial(runner) {
            queue.pause = None;
        }
        queue.add_queued(queued);
        if is_run {
            queue.time_run(runner);
        }
        for request in std::mem::take(&mut queue.running[runner].requests) {
            let outcome = outputs.next().ok_or_else(|| Interrupted::Failed(error.clone()));
            let refused = request.outcome.set(outcome).err();
            let last = Arc::into_inner(request);
            if refused.is_some() || last.is_some() {
                ended.push((refused, last));
            }
        }
        drop(queue);
        self.notify_all();
        ended
    }

    /// The frames of a batch that found no memory wait again, before those that came later.
    fn put_back(&self, runner: usize, error: Error) -> Vec<EndedRequest> {
        let mut queue = self.state.lock().unwrap();
        let requests = std::mem::take(&mut queue.running[runner].requests);
        let length = queue.pause.map_or(MEMORY_PAUSE.0, |pause| (2 * pause.length).min(MEMORY_PAUSE.1));
        queue.counts.batches -= 1;
        queue.counts.frames -= requests.len() as u64;
        queue.counts.out_of_memory += 1;
        if queue.pause.is_none() {
            queue.untold.push(error.about("Frames wait until the GPU has memory for a run of the model"));
        }
        queue.pause = Some(Pause { until: Instant::now() + length, length });
        if queue.given_up.is_none() {
            let unfinished = requests.iter().filter(|request| request.outcome.get().is_none());
            queue.waiting.splice(0..0, unfinished.map(QueuedRequest::of).collect::<Vec<_>>());
        }
        drop(queue);
        self.notify_all();
        requests.into_iter().map(|request| (None, Arc::into_inner(request))).collect()
    }
}

#[cfg(test)]
mod tests;
