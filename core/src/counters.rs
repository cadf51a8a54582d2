// SPDX-License-Identifier: MPL-2.0
//! What frames cost: counts, times and traffic, as the elements' `stats` report them.
//!
//! Counters are thread-local: [`waiting`], [`uploaded`] and the others add to those of the calling thread. A [`Span`]
//! is the work on one frame or batch on one thread, and [`Stats`] takes the difference. So no counter is handed down to
//! pools and fences, and work of other threads, such as loading a model, is not counted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Counters of a thread. They only grow.
#[derive(Clone, Copy, Default)]
pub struct ThreadCounters {
    waited: Duration,
    pub uploaded: u64,
    pub downloaded: u64,
    pub pool_hits: u64,
    pub pool_misses: u64,
}

impl ThreadCounters {
    pub fn add(&mut self, other: ThreadCounters) {
        self.waited += other.waited;
        self.uploaded += other.uploaded;
        self.downloaded += other.downloaded;
        self.pool_hits += other.pool_hits;
        self.pool_misses += other.pool_misses;
    }
}

thread_local! {
    static COUNTERS: Cell<ThreadCounters> = const {
        Cell::new(ThreadCounters { waited: Duration::ZERO, uploaded: 0, downloaded: 0, pool_hits: 0, pool_misses: 0 })
    };
}

thread_local! {
    /// What the GPU does for this thread's stage, if that is measured.
    static TIMINGS: RefCell<Option<Vec<Box<dyn GpuTime>>>> = const { RefCell::new(None) };
}

/// A time on the GPU that may not be known yet.
pub trait GpuTime: Send {
    /// `None` until the GPU is done.
    fn elapsed(&self) -> Option<Duration>;
}

/// Whether the current span measures how long the GPU takes for this thread's work.
pub fn is_measuring() -> bool {
    TIMINGS.with_borrow(Option::is_some)
}

/// The GPU is at work for this thread's stage.
pub fn measured(time: Box<dyn GpuTime>) {
    TIMINGS.with_borrow_mut(|timings| timings.as_mut().map(|timings| timings.push(time)));
}

fn count(change: impl FnOnce(&mut ThreadCounters)) {
    let mut counters = COUNTERS.get();
    change(&mut counters);
    COUNTERS.set(counters);
}

/// Does some work, and returns what it has added to the counters of this thread.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, ThreadCounters) {
    let before = COUNTERS.get();
    let outcome = work();
    let now = COUNTERS.get();
    let added = ThreadCounters {
        waited: now.waited - before.waited,
        uploaded: now.uploaded - before.uploaded,
        downloaded: now.downloaded - before.downloaded,
        pool_hits: now.pool_hits - before.pool_hits,
        pool_misses: now.pool_misses - before.pool_misses,
    };
    (outcome, added)
}

/// Counts for this thread what another one has counted while it worked for this one.
pub fn add(counted: ThreadCounters) {
    count(|counters| counters.add(counted));
}

/// Lets the host wait for the GPU.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let outcome = wait();
    count(|counters| counters.waited += begun.elapsed());
    outcome
}

/// So many bytes go to the GPU.
pub fn uploaded(bytes: usize) {
    count(|counters| counters.uploaded += bytes as u64);
}

/// So many bytes came from the GPU.
pub fn downloaded(bytes: usize) {
    count(|counters| counters.downloaded += bytes as u64);
}

/// A pool gave memory that it had, or had to allocate it.
pub fn pooled(is_hit: bool) {
    count(|counters| {
        if is_hit {
            counters.pool_hits += 1;
        } else {
            counters.pool_misses += 1;
        }
    });
}

/// The work on one frame or batch, on one thread, from here until [`Stats::add`].
pub struct Span {
    begun: Instant,
    counters: ThreadCounters,
    /// Timings of the stage within which this one lies, until it ends.
    outer: Option<Option<Vec<Box<dyn GpuTime>>>>,
}

impl Span {
    /// `measure` also takes the GPU's time for it, which costs a few µs.
    pub fn begin(measure: bool) -> Self {
        let outer = Some(TIMINGS.replace(measure.then(Vec::new)));
        Span { begun: Instant::now(), counters: COUNTERS.get(), outer }
    }

    fn end(&mut self) -> Vec<Box<dyn GpuTime>> {
        self.outer.take().and_then(|outer| TIMINGS.replace(outer)).unwrap_or_default()
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an element's frames have cost since its last start. Read and written on different threads; a reader
/// blocks the writer only while it copies.
#[derive(Default)]
pub struct Stats {
    totals: Mutex<Snapshot>,
    /// What the GPU was doing when last looked, oldest first, in pieces for each frame.
    pending: Mutex<VecDeque<Vec<Box<dyn GpuTime>>>>,
}

impl Stats {
    /// Begins at zero again.
    pub fn reset(&self) {
        self.pending.lock().unwrap().clear();
        *self.totals.lock().unwrap() = Snapshot::default();
    }

    /// A frame is done, and so many objects are on it. Returns the time that it took.
    pub fn add(&self, mut stage: Span, objects: usize) -> Duration {
        let (time, before, now, timings) = (stage.begun.elapsed(), stage.counters, COUNTERS.get(), stage.end());
        let mut totals = self.totals.lock().unwrap();
        totals.done += 1;
        totals.objects += objects as u64;
        totals.busy.record(time);
        totals.waits.record(now.waited - before.waited);
        totals.counters.uploaded += now.uploaded - before.uploaded;
        totals.counters.downloaded += now.downloaded - before.downloaded;
        totals.counters.pool_hits += now.pool_hits - before.pool_hits;
        totals.counters.pool_misses += now.pool_misses - before.pool_misses;
        drop(totals);
        if !timings.is_empty() {
            self.pending.lock().unwrap().push_back(timings);
            self.harvest();
        }
        time
    }

    /// A frame has passed with nothing done to it.
    pub fn skip(&self) {
        self.totals.lock().unwrap().skipped += 1;
    }

    pub fn read(&self) -> Snapshot {
        self.harvest();
        self.totals.lock().unwrap().clone()
    }

    /// Takes the GPU's times that are known by now.
    fn harvest(&self) {
        /// Frames in flight; where the GPU never gets there, older ones are forgotten.
        const MAXIMUM: usize = 256;
        let mut pending = self.pending.lock().unwrap();
        while let Some(first) = pending.front() {
            let time: Option<Duration> = first.iter().map(|time| time.elapsed()).sum();
            match time {
                Some(time) => self.totals.lock().unwrap().gpu.record(time),
                None if pending.len() <= MAXIMUM => break,
                None => {}
            }
            pending.pop_front();
        }
    }
}

/// A copy of [`Stats`].
#[derive(Clone, Default)]
pub struct Snapshot {
    pub done: u64,
    pub skipped: u64,
    pub objects: u64,
    pub busy: Times,
    pub waits: Times,
    /// Of those that were measured.
    pub gpu: Times,
    /// Of the frames that are done.
    pub counters: ThreadCounters,
}

impl Snapshot {
    /// The same with the GPU's times of `other`.
    pub fn with_gpu_of(self, other: Snapshot) -> Snapshot {
        Snapshot { gpu: other.gpu, ..self }
    }
}

/// How long something took, again and again.
#[derive(Clone)]
pub struct Times {
    /// Nanoseconds.
    histogram: Histogram<u64>,
    total: Duration,
    pub last: Duration,
    pub max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        // Quantiles to within a hundredth, in 35 KiB that never grow; what is beyond the bound counts as the bound.
        const MAXIMUM: Duration = Duration::from_mins(10);
        let histogram = Histogram::new_with_max(MAXIMUM.as_nanos() as u64, 2).expect("bounds that hdrhistogram takes");
        Times { histogram, total: Duration::ZERO, last: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Times {
    fn record(&mut self, time: Duration) {
        self.histogram.saturating_record(time.as_nanos() as u64);
        self.total += time;
        self.last = time;
        self.max = self.max.max(time);
    }

    pub fn mean(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { ms(self.total) / self.histogram.len() as f64 }
    }

    pub fn quantile(&self, quantile: f64) -> f64 {
        // The histogram returns the upper end of the class that a time fell into, which may be beyond all of them.
        ms(Duration::from_nanos(self.histogram.value_at_quantile(quantile)).min(self.max))
    }
}

pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_recorded_times() {
        let mut times = Times::default();
        assert_eq!([times.mean(), times.quantile(0.99)], [0.0, 0.0]);
        (1..=1000).map(Duration::from_micros).for_each(|time| times.record(time));
        for (quantile, expected) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (1.0, 1.0)] {
            let found = times.quantile(quantile);
            assert!((found / expected - 1.0).abs() < 0.01, "{quantile}: {found}");
        }
        assert!((times.mean() - 0.5005).abs() < 1e-9);
        assert_eq!([times.last, times.max], [Duration::from_millis(1); 2]);
    }

    #[test]
    fn any_time_fits() {
        let mut times = Times::default();
        times.record(Duration::ZERO);
        times.record(Duration::from_nanos(1));
        times.record(Duration::from_hours(1));
        assert_eq!(times.quantile(0.0), 0.0);
        assert!((times.quantile(1.0) / 600e3 - 1.0).abs() < 0.01, "the bound");
        assert_eq!(ms(times.max), 3600e3);
    }

    #[test]
    fn nested_stages_are_measured_separately() {
        assert!(!is_measuring());
        let outer = Span::begin(true);
        assert!(is_measuring());
        drop(Span::begin(false));
        let inner = Span::begin(false);
        assert!(!is_measuring());
        Stats::default().add(inner, 0);
        assert!(is_measuring());
        drop(outer);
        assert!(!is_measuring());
    }

    #[test]
    fn gpu_time_is_taken_in_spans_that_measure() {
        use crate::cuda::driver::Stream;
        let Some(context) = crate::test::gpu() else { return };
        let (stats, stream) = (Stats::default(), Stream::new(&context).unwrap());
        for measure in [true, false, true] {
            let stage = Span::begin(measure);
            let begin = stream.begin_timing();
            assert_eq!(begin.is_some(), measure);
            stream.end_timing(begin);
            stats.add(stage, 0);
        }
        stream.synchronize().unwrap();
        assert_eq!(stats.read().gpu.histogram.len(), 2);
    }
}
