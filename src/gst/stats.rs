//! What frames cost: counts, times and traffic, as the elements' `stats` say them.
//!
//! What happens deep inside, in a pool or at a fence, is noted by the thread that it happens on ([`waiting`], [`uploaded`]
//! and so on), and [`Stats`] takes what a [`Span`] added to those notes. So nothing is handed down to where it happens, and what
//! others do at the same time, such as loading a model, is not in it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use hdrhistogram::Histogram;

use crate::core::cuda::driver::Timing;

/// Notes of a thread. They only grow.
#[derive(Clone, Copy, Default)]
struct ThreadCounters {
    waited: Duration,
    uploaded: u64,
    downloaded: u64,
    pool_hits: u64,
    pool_misses: u64,
}

thread_local! {
    static NOTES: Cell<ThreadCounters> = const {
        Cell::new(ThreadCounters { waited: Duration::ZERO, uploaded: 0, downloaded: 0, pool_hits: 0, pool_misses: 0 })
    };
}

thread_local! {
    /// What the GPU does for this thread's stage, if that is measured.
    static TIMINGS: RefCell<Option<Vec<Timing>>> = const { RefCell::new(None) };
}

/// Whether somebody wants to know how long the GPU takes for this thread's work.
pub fn is_measuring() -> bool {
    TIMINGS.with_borrow(Option::is_some)
}

/// The GPU is at work for this thread's stage.
pub fn measured(timing: Timing) {
    TIMINGS.with_borrow_mut(|timings| timings.as_mut().map(|timings| timings.push(timing)));
}

fn note(change: impl FnOnce(&mut ThreadCounters)) {
    let mut notes = NOTES.get();
    change(&mut notes);
    NOTES.set(notes);
}

/// Lets the host wait for the GPU.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let outcome = wait();
    note(|notes| notes.waited += begun.elapsed());
    outcome
}

/// So many bytes go to the GPU.
pub fn uploaded(bytes: usize) {
    note(|notes| notes.uploaded += bytes as u64);
}

/// So many bytes came from the GPU.
pub fn downloaded(bytes: usize) {
    note(|notes| notes.downloaded += bytes as u64);
}

/// A pool gave memory that it had, or had to allocate it.
pub fn pooled(is_hit: bool) {
    note(|notes| match is_hit {
        true => notes.pool_hits += 1,
        false => notes.pool_misses += 1,
    });
}

/// Somebody's work on one frame or batch, on one thread, from here until [`Stats::add`].
pub struct Span {
    begun: Instant,
    notes: ThreadCounters,
    /// Timings of the stage within which this one lies, until it ends.
    outer: Option<Option<Vec<Timing>>>,
}

impl Span {
    /// `measure` also takes the GPU's time for it, which costs a few µs.
    pub fn begin(measure: bool) -> Self {
        let outer = Some(TIMINGS.replace(measure.then(Vec::new)));
        Span { begun: Instant::now(), notes: NOTES.get(), outer }
    }

    fn end(&mut self) -> Vec<Timing> {
        self.outer.take().and_then(|outer| TIMINGS.replace(outer)).unwrap_or_default()
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an element's frames have cost since its last start. Read and written on different threads; who reads keeps the
/// writer waiting for no more than a copy.
#[derive(Default)]
pub struct Stats {
    totals: Mutex<Snapshot>,
    /// What the GPU was doing when last looked, oldest first, in pieces for each frame.
    pending: Mutex<VecDeque<Vec<Timing>>>,
}

impl Stats {
    /// Begins anew.
    pub fn reset(&self) {
        self.pending.lock().unwrap().clear();
        *self.totals.lock().unwrap() = Snapshot::default();
    }

    /// A frame is done, and so many objects are on it. Returns the time that it took.
    pub fn add(&self, mut stage: Span, objects: usize) -> Duration {
        let (time, before, now, timings) = (stage.begun.elapsed(), stage.notes, NOTES.get(), stage.end());
        let mut totals = self.totals.lock().unwrap();
        totals.done += 1;
        totals.objects += objects as u64;
        totals.busy.record(time);
        totals.waits.record(now.waited - before.waited);
        totals.notes.uploaded += now.uploaded - before.uploaded;
        totals.notes.downloaded += now.downloaded - before.downloaded;
        totals.notes.pool_hits += now.pool_hits - before.pool_hits;
        totals.notes.pool_misses += now.pool_misses - before.pool_misses;
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
        const MOST: usize = 256;
        let mut pending = self.pending.lock().unwrap();
        while let Some(first) = pending.front() {
            let time: Option<Duration> = first.iter().map(Timing::elapsed).sum();
            match time {
                Some(time) => self.totals.lock().unwrap().gpu.record(time),
                None if pending.len() <= MOST => break,
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
    busy: Times,
    waits: Times,
    /// Of those that were measured.
    gpu: Times,
    /// Of the frames that are done.
    notes: ThreadCounters,
}

impl Snapshot {
    /// These counts of the element's own, then what all elements say alike.
    pub fn structure<const N: usize>(&self, counts: [(&str, u64); N]) -> gst::Structure {
        let Snapshot { busy, waits, gpu, notes, .. } = self;
        let counts = counts.into_iter().fold(gst::Structure::builder("stats"), |built, (name, n)| built.field(name, n));
        counts
            .field("mean-ms", busy.mean())
            .field("last-ms", ms(busy.last))
            .field("p50-ms", busy.quantile(0.50))
            .field("p95-ms", busy.quantile(0.95))
            .field("p99-ms", busy.quantile(0.99))
            .field("max-ms", ms(busy.max))
            .field("wait-mean-ms", waits.mean())
            .field("wait-p99-ms", waits.quantile(0.99))
            .field("gpu-mean-ms", gpu.mean())
            .field("gpu-p50-ms", gpu.quantile(0.50))
            .field("gpu-p99-ms", gpu.quantile(0.99))
            .field("bytes-uploaded", notes.uploaded)
            .field("bytes-downloaded", notes.downloaded)
            .field("pool-hits", notes.pool_hits)
            .field("pool-misses", notes.pool_misses)
            .build()
    }
}

impl Snapshot {
    /// The same with the GPU's times of somebody else.
    pub fn with_gpu_of(self, other: Snapshot) -> Snapshot {
        Snapshot { gpu: other.gpu, ..self }
    }
}

/// The property by which the GPU's times are asked for.
pub fn measure_property() -> glib::ParamSpec {
    glib::ParamSpecBoolean::builder("measure")
        .nick("Measure")
        .blurb("Take the GPU's time for each frame too, for stats; costs some microseconds a frame")
        .mutable_playing()
        .build()
}

/// The property that all elements have.
pub fn property(blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecBoxed::builder::<gst::Structure>("stats").nick("Statistics").blurb(blurb).read_only().build()
}

/// How long something took, again and again.
#[derive(Clone)]
struct Times {
    /// Nanoseconds.
    histogram: Histogram<u64>,
    total: Duration,
    last: Duration,
    max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        // Quantiles to within a hundredth, in 35 KiB that never grow; what is beyond the bound counts as the bound.
        const MOST: Duration = Duration::from_mins(10);
        let histogram = Histogram::new_with_max(MOST.as_nanos() as u64, 2).expect("bounds that hdrhistogram takes");
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

    fn mean(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { ms(self.total) / self.histogram.len() as f64 }
    }

    fn quantile(&self, quantile: f64) -> f64 {
        // The histogram tells the upper end of the class that a time fell into, which may be beyond all of them.
        ms(Duration::from_nanos(self.histogram.value_at_quantile(quantile)).min(self.max))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
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
    fn stages_within_stages_are_measured_by_themselves() {
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

    /// Nothing to see without a GPU; the GPU machine runs this too.
    #[test]
    fn the_gpus_time_is_taken_where_somebody_measures() {
        use crate::core::cuda::driver::{Context, Stream};
        let Ok(context) = Context::primary(0).map_err(|error| println!("SKIP: {error}")) else { return };
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

    #[test]
    fn a_stage_has_what_its_thread_noted_meanwhile() {
        gst::init().unwrap();
        let stats = Stats::default();
        uploaded(1000); // before it
        let stage = Span::begin(false);
        uploaded(20);
        downloaded(3);
        waiting(|| std::thread::sleep(Duration::from_millis(4)));
        pooled(false);
        pooled(true);
        pooled(true);
        std::thread::scope(|scope| drop(scope.spawn(|| uploaded(1000)))); // beside it
        stats.add(stage, 5);
        uploaded(1000); // after it
        stats.skip();

        let totals = stats.read();
        assert_eq!([totals.done, totals.skipped, totals.objects], [1, 1, 5]);
        let said = totals.structure([("frames", 7)]);
        let count = |name| said.get::<u64>(name).unwrap();
        assert_eq!(
            ["frames", "bytes-uploaded", "bytes-downloaded", "pool-hits", "pool-misses"].map(count),
            [7, 20, 3, 2, 1]
        );
        assert!(
            ["wait-mean-ms", "wait-p99-ms"].into_iter().all(|name| said.get::<f64>(name).unwrap() >= 4.0),
            "{said}"
        );

        assert_eq!(said.get::<f64>("gpu-mean-ms"), Ok(0.0), "nothing was measured");

        stats.reset();
        let totals = stats.read();
        assert_eq!([totals.done, totals.skipped, totals.objects], [0, 0, 0]);
        assert_eq!(totals.structure([]).get::<f64>("max-ms"), Ok(0.0));
    }
}
