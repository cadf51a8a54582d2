// SPDX-License-Identifier: MPL-2.0
//! When GPU work is done, and how long it took.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use super::{Check, Context, lost};
use crate::counters;
use crate::error::{ErrorKind, Result};

/// Waits that take longer sleep until an interrupt. It wakes the thread 0.1 to 0.2 ms late, which does not matter then,
/// and pauses would take more of the CPU.
const LONG: Duration = Duration::from_millis(2);

/// An event of CUDA, as it lies in a context's pool.
pub(super) struct Event {
    pub(super) raw: sys::CUevent,
    kind: EventKind,
}

/// What an event is for, as CUDA's flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(super) enum EventKind {
    /// To order work, and to query whether it is done.
    Ordering = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32,
    /// To sleep until work is done. Each one interrupts the host, waited for or not: with such events only, the
    /// throughput of 16 streams was a tenth lower.
    Await = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32,
    /// To take the time.
    Time = sys::CUevent_flags::CU_EVENT_DEFAULT as u32,
}

// SAFETY: CUDA events may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Context {
    /// The fence that is passed once all work is done that is enqueued so far on a caller's stream; NULL is the default one.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub unsafe fn fence_on(&self, stream: *mut c_void) -> Result<Fence> {
        // SAFETY: the stream is of this context, and alive.
        unsafe { self.record(EventKind::Ordering, stream) }.map(|event| Fence(Arc::new(event)))
    }

    /// The same for a wait on the host. `history` is the history of earlier waits for such work.
    ///
    /// # Safety
    /// As for [`Context::fence_on`].
    pub(super) unsafe fn awaited_on(&self, stream: *mut c_void, history: &WaitHistory) -> Result<Fence> {
        // A wait for an interrupt has no limit.
        let sleeps = history.longest() > LONG && self.wait_limit().is_none();
        let kind = if sleeps { EventKind::Await } else { EventKind::Ordering };
        // SAFETY: the stream is of this context, and alive.
        unsafe { self.record(kind, stream) }.map(|event| Fence(Arc::new(event)))
    }

    /// What is queued after this on a caller's stream starts only once the fence is passed.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub unsafe fn hold(&self, stream: *mut c_void, fence: &Fence) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the stream is of this context, and alive; so is the event. It may be recorded again before the stream gets
        // there: the stream waits for what it stood for at this call.
        unsafe {
            result::stream::wait_event(stream.cast(), fence.0.event.raw, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
        .or_fail("Cannot order GPU work")
    }

    /// Waits on the host until all is done that is enqueued so far on a stream; NULL is the default one.
    ///
    /// # Safety
    /// As for [`Context::fence_on`].
    pub(crate) unsafe fn finish(&self, stream: *mut c_void) -> Result<()> {
        if self.wait_limit().is_some() {
            // SAFETY: the stream is of this context, and alive.
            match unsafe { self.fence_on(stream) } {
                Ok(fence) => return fence.wait(),
                Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                // It is waited for all the same, without the limit: what its work uses may be freed next.
                Err(_) => {}
            }
        }
        let _entered = self.enter()?;
        // SAFETY: as above.
        unsafe { result::stream::synchronize(stream.cast()) }.or_fail("GPU work failed")
    }

    /// Marks a point whose time will be known.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub(super) unsafe fn mark(&self, stream: *mut c_void) -> Result<TimedEvent> {
        // SAFETY: the stream is of this context, and alive.
        unsafe { self.record(EventKind::Time, stream) }.map(TimedEvent)
    }

    /// # Safety
    /// `stream` is a stream of this context and alive.
    unsafe fn record(&self, kind: EventKind, stream: *mut c_void) -> Result<Recorded> {
        #[cfg(test)]
        super::faults::check("record")?;
        let recorded = Recorded { event: self.event(kind)?, context: self.clone() };
        let _entered = self.enter()?;
        // SAFETY: both are of this context and alive, and nothing else uses the event.
        unsafe { result::event::record(recorded.event.raw, stream.cast()) }.or_fail("Cannot mark GPU work")?;
        Ok(recorded)
    }

    fn event(&self, kind: EventKind) -> Result<Event> {
        if let Some(event) = self.0.events.lock().unwrap().entry(kind).or_default().pop() {
            return Ok(event);
        }
        let _entered = self.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle.
        unsafe { sys::cuEventCreate(&mut raw, kind as u32) }.result().or_fail("Cannot make a CUDA event")?;
        Ok(Event { raw, kind })
    }
}

/// A point in a stream: passed once everything queued before it is done.
#[derive(Clone)]
pub struct Fence(Arc<Recorded>);

/// An event in use; goes back to its context when dropped.
struct Recorded {
    context: Context,
    event: Event,
}

impl Fence {
    /// Whether both are the same point of the same stream.
    pub(crate) fn is_same(&self, other: &Fence) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn is_passed(&self) -> bool {
        let Ok(_entered) = self.0.context.enter() else { return true };
        // SAFETY: the event is alive and was recorded.
        match unsafe { sys::cuEventQuery(self.0.event.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => false,
            outcome => {
                let _ = outcome.result().or_fail("GPU work failed"); // whoever waits for it is told
                true
            }
        }
    }

    /// Waits on the host.
    ///
    /// # Errors
    /// `Run`, also for work queued earlier that failed only now; `DeviceLost`, where it takes longer than
    /// [`Context::limit_waits`] allows, too.
    pub fn wait(&self) -> Result<()> {
        self.wait_again(&mut WaitHistory::default())
    }

    /// The same for repeated waits. `history` decides how to wait.
    ///
    /// # Errors
    /// As [`Fence::wait`].
    #[doc(hidden)]
    pub fn wait_again(&self, history: &mut WaitHistory) -> Result<()> {
        let begun = Instant::now();
        let outcome = counters::waiting(|| self.pass(begun, history));
        history.waited(begun.elapsed());
        outcome
    }

    /// Does not spin for long: with a stream per core, that would leave nothing for decoders and encoders.
    fn pass(&self, begun: Instant, history: &WaitHistory) -> Result<()> {
        /// Falling asleep and waking up takes nearly as long, so shorter waits spin.
        const SHORT: Duration = Duration::from_micros(80);
        let event = &self.0.event;
        let _entered = self.0.context.enter()?;
        let limit = self.0.context.wait_limit();
        loop {
            // SAFETY: the event is alive and was recorded.
            match unsafe { sys::cuEventQuery(event.raw) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => {}
                outcome => return outcome.result().or_fail("GPU work failed"),
            }
            let waited = begun.elapsed();
            if let Some(limit) = limit.filter(|limit| waited > *limit) {
                return Err(lost::abandon(self.0.context.device(), limit));
            }
            if waited.max(history.longest()) < SHORT {
                std::hint::spin_loop();
            } else if event.kind == EventKind::Await && limit.is_none() {
                // SAFETY: as above.
                return unsafe { sys::cuEventSynchronize(event.raw) }.result().or_fail("GPU work failed");
            } else {
                pause(next_poll(waited, history.shortest()));
            }
        }
    }
}

/// How long to sleep before the next query, after a wait of `waited`: first until shortly before the expected end, if
/// there is one, then longer each time.
fn next_poll(waited: Duration, expected: Duration) -> Duration {
    const NAPS: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];
    match expected.checked_sub(waited) {
        Some(left) if left > 6 * NAPS[0] => left * 7 / 8,
        _ => (waited / 16).clamp(NAPS[0], NAPS[1]),
    }
}

/// Sleeps as long as that. By default Linux ends a sleep up to 50 µs late, to wake up for several timers at once; that
/// slack is taken away for this sleep only, and the thread then has its own again: it may be the application's, which
/// chose another one.
#[cfg(target_os = "linux")]
fn pause(time: Duration) {
    // SAFETY: these read and write a number that the thread has.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    if slack > 0 {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    }
    thread::sleep(time);
    if slack > 0 {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack as libc::c_ulong) };
    }
}

#[cfg(not(target_os = "linux"))]
fn pause(time: Duration) {
    thread::sleep(time);
}

/// How long earlier waits lasted, which decides whether the next one sleeps.
#[derive(Default)]
pub struct WaitHistory {
    last: [Duration; 4],
}

impl WaitHistory {
    fn longest(&self) -> Duration {
        self.last.into_iter().max().unwrap_or_default()
    }

    fn shortest(&self) -> Duration {
        self.last.into_iter().min().unwrap_or_default()
    }

    fn waited(&mut self, time: Duration) {
        self.last.rotate_left(1);
        self.last[3] = time;
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_passed() { "Fence(passed)" } else { "Fence(pending)" })
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let Event { raw, kind } = self.event;
        self.context.0.events.lock().unwrap().entry(kind).or_default().push(Event { raw, kind });
    }
}

/// An event that knows when it was passed.
pub struct TimedEvent(Recorded);

/// How long the GPU took for something, once it is done.
pub struct Timing {
    pub(super) begin: TimedEvent,
    pub(super) end: TimedEvent,
}

impl counters::GpuTime for Timing {
    fn elapsed(&self) -> Option<Duration> {
        let (begin, end) = (&self.begin.0, &self.end.0);
        let _entered = end.context.enter().ok()?;
        // SAFETY: both events are alive and were recorded.
        let ms = unsafe { result::event::elapsed(begin.event.raw, end.event.raw) };
        let ms = ms.or_fail("Cannot take the GPU's time").ok()?;
        Some(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each frame has fences of its own.
    #[test]
    fn events_are_used_again() {
        use crate::cuda::driver::Stream;
        use crate::fakes::Fakes;
        let Some(fakes) = Fakes::of(module_path!(), "events_are_used_again") else { return };
        let context = fakes.context();
        let stream = Stream::new(&context).unwrap();
        for _ in 0..50 {
            let [one, other] = [stream.record().unwrap(), stream.record().unwrap()];
            [one, other].iter().for_each(|fence| fence.wait().unwrap());
        }
        assert_eq!(fakes.count(c"fake_events"), 2);
        drop((stream, context));
        assert_eq!(fakes.count(c"fake_events"), 0, "they end with their context");
    }

    /// Whoever frees next what the work uses waits for it in any case.
    #[test]
    fn a_stream_is_waited_for_where_its_work_gets_no_fence() {
        use crate::cuda::driver::Stream;
        use crate::fakes::Fakes;
        use crate::memory::DevicePool;
        let Some(fakes) = Fakes::of(module_path!(), "a_stream_is_waited_for_where_its_work_gets_no_fence") else {
            return;
        };
        let context = fakes.context();
        let _limit = context.limit_waits(Duration::from_secs(3600));
        let (stream, block) = (Stream::new(&context).unwrap(), DevicePool::new(&context).take(16).unwrap());
        // SAFETY: the block has so many bytes, and stays until the stream is idle.
        unsafe { stream.clear(block.address(), 16) }.unwrap();
        assert_eq!(fakes.count(c"fake_pending"), 1);
        fakes.fail(0);
        stream.synchronize().unwrap();
        assert!(fakes.has_failed());
        assert_eq!(fakes.count(c"fake_pending"), 0);
    }

    /// The limit may come with a model that is loaded later.
    #[test]
    fn a_wait_has_the_limit_that_came_behind_its_fence() {
        use crate::cuda::driver::Stream;
        use crate::fakes::Fakes;
        use crate::memory::DevicePool;
        let Some(fakes) = Fakes::of(module_path!(), "a_wait_has_the_limit_that_came_behind_its_fence") else { return };
        let context = fakes.context();
        let (stream, block) = (Stream::new(&context).unwrap(), DevicePool::new(&context).take(16).unwrap());
        let mut history = WaitHistory::default();
        history.waited(2 * LONG);
        fakes.stick(true);
        // SAFETY: the block has so many bytes, and stays.
        unsafe { stream.clear(block.address(), 16) }.unwrap();
        let fence = stream.record_awaited(&history).unwrap();
        let _limit = context.limit_waits(Duration::from_millis(20));
        assert_eq!(fence.wait_again(&mut history).unwrap_err().kind(), ErrorKind::DeviceLost);
    }

    #[test]
    fn pauses_end_shortly_before_the_expected_time() {
        let micros = Duration::from_micros;
        let pauses = |expected, takes: u64| {
            let mut polls = vec![0];
            while polls.last().is_some_and(|&poll| poll < takes) {
                let waited = polls[polls.len() - 1];
                polls.push(waited + next_poll(micros(waited), micros(expected)).as_micros() as u64);
            }
            polls
        };
        assert_eq!(pauses(800, 800), [0, 700, 787, 836]);
        assert_eq!(pauses(800, 900), [0, 700, 787, 836, 888, 943]);
        assert_eq!(pauses(0, 40), [0, 10, 20, 30, 40], "nothing is known");
        assert_eq!(next_poll(Duration::from_secs(1), micros(800)), Duration::from_millis(1), "something hangs");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_keeps_the_timer_slack_that_it_chose() {
        // SAFETY: these read and write a number that the thread has.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 123_456 as libc::c_ulong) };
        pause(Duration::from_nanos(1));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }, 123_456);
    }

    #[test]
    fn the_last_waits_decide_the_next() {
        let mut history = WaitHistory::default();
        let longest = [4, 5, 4, 5, 90, 80, 70, 3, 60, 7, 8, 9].map(|time| {
            history.waited(Duration::from_millis(time));
            history.longest().as_millis()
        });
        assert_eq!(longest, [4, 5, 5, 5, 90, 90, 90, 90, 80, 70, 60, 60]);
    }
}
