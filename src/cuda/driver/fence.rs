//! When GPU work is done, and how long it took.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use super::{Check, Context};
use crate::error::Result;
use crate::stats;

/// An event of CUDA, as it lies in a context's pool.
pub(super) struct Event(pub(super) sys::CUevent);

// SAFETY: CUDA events may be used by any thread.
unsafe impl Send for Event {}
unsafe impl Sync for Event {}

impl Context {
    /// The fence that is passed once all is done that was queued so far on a stream that somebody else made; NULL is the
    /// default one.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub unsafe fn fence_on(&self, stream: *mut c_void) -> Result<Fence> {
        let event = self.event()?;
        let fence = Fence(Arc::new(Recorded { context: self.clone(), event }));
        let _entered = self.enter()?;
        // SAFETY: the event is of this context and nobody else's; the stream is as the caller says.
        unsafe { result::event::record(fence.0.event.0, stream.cast()) }.or_fail("Cannot mark GPU work")?;
        Ok(fence)
    }

    /// What is queued after this on a stream that somebody else made starts only once the fence is passed.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub unsafe fn hold(&self, stream: *mut c_void, fence: &Fence) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: as the caller says; the event is alive. That it may be recorded anew before the stream gets there is no
        // matter: the stream waits for what it stood for at this call.
        unsafe {
            result::stream::wait_event(stream.cast(), fence.0.event.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
        .or_fail("Cannot order GPU work")
    }

    /// Marks a point whose time will be known.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub(super) unsafe fn mark(&self, stream: sys::CUstream) -> Result<TimedEvent> {
        let event = TimedEvent { event: self.timed_event()?, context: self.clone() };
        let _entered = self.enter()?;
        // SAFETY: as above.
        unsafe { result::event::record(event.event.0, stream) }.or_fail("Cannot mark GPU work")?;
        Ok(event)
    }

    fn event(&self) -> Result<Event> {
        if let Some(event) = self.0.events.lock().unwrap().pop() {
            return Ok(event);
        }
        // Not such as the driver can sleep on: of those each one, waited for or not, interrupts the host and wakes all who sleep,
        // and 16 streams lost a tenth of their frames by it.
        self.new_event(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)
    }

    fn timed_event(&self) -> Result<Event> {
        let known = self.0.timed.lock().unwrap().pop();
        known.map_or_else(|| self.new_event(sys::CUevent_flags::CU_EVENT_DEFAULT as u32), Ok)
    }

    fn new_event(&self, flags: u32) -> Result<Event> {
        let _entered = self.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: writes a handle.
        unsafe { sys::cuEventCreate(&mut event, flags) }.result().or_fail("Cannot make a CUDA event")?;
        Ok(Event(event))
    }
}

/// A point in a stream: passed once everything queued before it is done.
#[derive(Clone)]
pub struct Fence(Arc<Recorded>);

struct Recorded {
    context: Context,
    event: Event,
}

impl Fence {
    pub fn is_passed(&self) -> bool {
        let Ok(_entered) = self.0.context.enter() else { return true };
        // SAFETY: the event is alive and was recorded.
        !matches!(unsafe { sys::cuEventQuery(self.0.event.0) }, sys::CUresult::CUDA_ERROR_NOT_READY)
    }

    /// Waits on the host.
    ///
    /// # Errors
    /// `Run`, also for work queued earlier that failed only now.
    pub fn wait(&self) -> Result<()> {
        self.wait_again(&mut Patience::default())
    }

    /// The same for who waits for such work again and again.
    ///
    /// # Errors
    /// As [`Fence::wait`].
    pub fn wait_again(&self, patience: &mut Patience) -> Result<()> {
        let begun = Instant::now();
        let outcome = stats::waiting(|| self.pass(begun, patience));
        patience.waited(begun.elapsed());
        outcome
    }

    /// Looks again and again, and sleeps in between: with a stream per core, spinning would leave nothing for decoders and
    /// encoders.
    fn pass(&self, begun: Instant, patience: &Patience) -> Result<()> {
        /// Falling asleep and waking up takes half of that, so what never takes longer is waited for awake.
        const SHORT: Duration = Duration::from_micros(120);
        /// Linux makes some 60 µs of the shortest. What takes long is looked at more rarely.
        const NAPS: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];
        let (least, most) = patience.range();
        let _entered = self.0.context.enter()?;
        loop {
            // SAFETY: the event is alive and was recorded.
            match unsafe { sys::cuEventQuery(self.0.event.0) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => {}
                outcome => return outcome.result().or_fail("GPU work failed"),
            }
            let waited = begun.elapsed();
            match waited.max(most) < SHORT {
                true => std::hint::spin_loop(),
                false => {
                    let nap = (waited / 8).clamp(NAPS[0], NAPS[1]);
                    thread::sleep((least * 3 / 4).saturating_sub(waited).max(nap));
                }
            }
        }
    }
}

/// How long somebody's waits last, so that most of the next one can be slept through.
#[derive(Default)]
pub struct Patience {
    last: [Duration; 4],
}

impl Patience {
    /// The shortest and the longest of the last ones.
    fn range(&self) -> (Duration, Duration) {
        let mut sorted = self.last;
        sorted.sort_unstable();
        (sorted[0], sorted[3])
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
        let event = Event(self.event.0);
        self.context.0.events.lock().unwrap().push(event);
    }
}

/// An event that knows when it was passed; goes back to its context when dropped.
pub struct TimedEvent {
    event: Event,
    context: Context,
}

impl Drop for TimedEvent {
    fn drop(&mut self) {
        self.context.0.timed.lock().unwrap().push(Event(self.event.0));
    }
}

/// How long the GPU took for something, once it is done.
pub struct Timing {
    pub(super) begin: TimedEvent,
    pub(super) end: TimedEvent,
}

impl Timing {
    /// `None` where it is not done yet, or never will be.
    pub fn elapsed(&self) -> Option<Duration> {
        let _entered = self.end.context.enter().ok()?;
        // SAFETY: both events are alive and were recorded.
        let ms = unsafe { result::event::elapsed(self.begin.event.0, self.end.event.0) }.ok()?;
        Some(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_waits_say_what_the_next_may_be() {
        let mut patience = Patience::default();
        let ranges = [4, 5, 4, 5, 90, 80, 70, 3, 60, 7, 8, 9].map(|time| {
            patience.waited(Duration::from_millis(time));
            let (least, most) = patience.range();
            (least.as_millis(), most.as_millis())
        });
        let learning = [(0, 4), (0, 5), (0, 5), (4, 5)];
        assert_eq!(ranges[..4], learning);
        assert_eq!(ranges[4..], [(4, 90), (4, 90), (5, 90), (3, 90), (3, 80), (3, 70), (3, 60), (7, 60)]);
    }
}
