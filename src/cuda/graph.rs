//! Work that is queued again and again: recorded once, then queued by one call instead of one for each kernel.

use std::ptr;

use cudarc::driver::{result, sys};

use super::driver::{Check, Context, Stream};
use crate::error::Result;

/// What a stream was given once, to be given again. Addresses are those of then.
pub struct Graph {
    context: Context,
    raw: sys::CUgraphExec,
}

// SAFETY: CUDA graphs may be used by any thread, one at a time; launching takes the exclusive reference that says so.
unsafe impl Send for Graph {}

impl Stream {
    /// Records what `queue` queues on this stream, and runs none of it.
    ///
    /// # Errors
    /// `queue`'s own, or `Run` where something in it cannot be recorded: memory that is allocated, a wait of the host. The
    /// stream is as before then.
    pub fn capture(&self, queue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        const WHAT: &str = "Cannot record GPU work";
        let context = self.context().clone();
        let _entered = context.enter()?;
        let stream = self.raw().cast();
        // Thread-local: what other threads do meanwhile is no matter of ours.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive. A capture that was begun is ended, whatever `queue` does but panic, after which nobody
        // uses the stream.
        let (queued, graph) = unsafe {
            result::stream::begin_capture(stream, mode).or_fail(WHAT)?;
            (queue(), result::stream::end_capture(stream))
        };
        let graph = queued.and_then(|()| graph.or_fail(WHAT))?;
        let mut raw = ptr::null_mut();
        // SAFETY: the graph was made just now, and is not needed once it is instantiated.
        let instantiated = unsafe {
            let instantiated = sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0).result();
            let _ = sys::cuGraphDestroy(graph);
            instantiated
        };
        instantiated.or_fail(WHAT)?;
        Ok(Graph { context: context.clone(), raw })
    }
}

impl Graph {
    /// Queues all of it.
    ///
    /// # Safety
    /// Everything that it was recorded with is still there, and stays until it is done.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: graph and stream are alive; the rest says the caller.
        unsafe { sys::cuGraphLaunch(self.raw, stream.raw().cast()) }.result().or_fail("Cannot start recorded GPU work")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: ours, and not used after this; work of it that is still queued is not affected.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}
