// SPDX-License-Identifier: MPL-2.0
//! Work that is queued and has no fence yet.

use std::ffi::c_void;
use std::sync::Arc;

use super::stream::RawStream;
use super::{Context, Fence, Stream, WaitHistory};
use crate::error::Result;

/// Work is being queued on a stream. Before there is a [`Fence`] for it, it is not known when the memory that it uses
/// is free. Where a function leaves before, by an error or a panic, dropping this waits on the host until the stream is
/// idle.
///
/// Declare it after what the work uses: variables are dropped in the reverse order, so the wait comes first.
#[must_use]
pub(crate) struct Queued<Q: WorkQueue = OnStream>(Option<Q>);

/// What [`Queued`] needs of a stream.
pub(crate) trait WorkQueue {
    /// Waits until it is idle. If the GPU fails, the next call returns the error.
    fn finish(&self);
}

/// A stream, ours or a caller's.
pub(crate) struct OnStream {
    context: Context,
    raw: *mut c_void,
    /// Keeps it, where it is ours.
    _ours: Option<Arc<RawStream>>,
}

impl WorkQueue for OnStream {
    fn finish(&self) {
        #[cfg(test)]
        super::faults::synchronized();
        // SAFETY: the stream is ours and kept, or alive as the caller of `Context::queuing_on` said.
        let _ = unsafe { self.context.finish(self.raw) };
    }
}

impl Stream {
    /// Work is going to be queued here, from now until a fence is recorded.
    pub(crate) fn queuing(&self) -> Queued {
        let (context, raw) = (self.context().clone(), self.raw());
        Queued(Some(OnStream { context, raw, _ours: Some(self.shared()) }))
    }
}

impl Context {
    /// The same for a stream that is the caller's; NULL is the default one.
    ///
    /// # Safety
    /// `stream` is a stream of this context, and alive until the result is dropped or recorded.
    pub(crate) unsafe fn queuing_on(&self, stream: *mut c_void) -> Queued {
        Queued(Some(OnStream { context: self.clone(), raw: stream, _ours: None }))
    }
}

impl Queued {
    /// The fence that is passed once all that was queued so far is done.
    pub fn record(self) -> Result<Fence> {
        // SAFETY: the stream is ours and kept, or alive as the caller of `Context::queuing_on` said.
        self.end(|stream| unsafe { stream.context.fence_on(stream.raw) })
    }

    /// As [`Stream::record_awaited`].
    pub fn record_awaited(self, history: &WaitHistory) -> Result<Fence> {
        // SAFETY: as above.
        self.end(|stream| unsafe { stream.context.awaited_on(stream.raw, history) })
    }
}

impl<Q: WorkQueue> Queued<Q> {
    /// If this succeeds, the fence covers the work, and the drop does not wait.
    fn end<T>(mut self, record: impl FnOnce(&Q) -> Result<T>) -> Result<T> {
        let recorded = record(self.0.as_ref().expect("until drop"))?;
        self.0 = None;
        Ok(recorded)
    }
}

impl<Q: WorkQueue> Drop for Queued<Q> {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::error::{Error, ErrorKind};

    /// Writes down what happens.
    struct Log<'a>(&'a RefCell<Vec<&'static str>>);

    impl WorkQueue for Log<'_> {
        fn finish(&self) {
            self.0.borrow_mut().push("wait");
        }
    }

    struct Block<'a>(&'a RefCell<Vec<&'static str>>);

    impl Drop for Block<'_> {
        fn drop(&mut self) {
            self.0.borrow_mut().push("free");
        }
    }

    fn failure<T>() -> Result<T> {
        Err(Error::new(ErrorKind::Run, "It fails"))
    }

    #[test]
    fn memory_comes_back_after_the_wait_unless_there_is_a_fence() {
        let log = RefCell::default();
        let run = |queue: fn() -> Result<()>, record: fn() -> Result<()>| {
            let _block = Block(&log);
            let queued = Queued(Some(Log(&log)));
            queue()?;
            queued.end(|_| record())
        };
        run(|| Ok(()), || Ok(())).unwrap();
        assert_eq!(log.take(), ["free"]);
        run(failure, || Ok(())).unwrap_err();
        assert_eq!(log.take(), ["wait", "free"]);
        run(|| Ok(()), failure).unwrap_err();
        assert_eq!(log.take(), ["wait", "free"]);
        catch_unwind(AssertUnwindSafe(|| run(|| panic!("it panics"), || Ok(())))).unwrap_err();
        assert_eq!(log.take(), ["wait", "free"]);
    }

    #[test]
    fn a_stream_whose_work_has_no_fence_is_waited_for() {
        use super::super::faults;
        let Some(context) = crate::test::gpu() else { return };
        let stream = Stream::new(&context).unwrap();
        stream.queuing().record().unwrap();
        assert_eq!(faults::take_synchronized(), 0);
        faults::fail("record", 0);
        assert!(stream.queuing().record().unwrap_err().message().contains("lets record fail"));
        assert_eq!(faults::take_synchronized(), 1);
    }
}
