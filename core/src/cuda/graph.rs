// SPDX-License-Identifier: MPL-2.0
//! CUDA graphs: work that is captured once, then launched by one call instead of one for each kernel.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::{result, sys};

use super::driver::{Check, Context, Stream};
use super::fill::replace_memsets;
pub use super::node::KernelNode;
use crate::error::Result;

/// A graph that was captured from a stream. It uses the addresses of that time.
pub struct Graph {
    context: Context,
    raw: sys::CUgraphExec,
}

// SAFETY: CUDA graphs may be used by any thread, one at a time; launching takes an exclusive reference.
unsafe impl Send for Graph {}

impl Stream {
    /// Captures what `queue` queues on this stream, and runs none of it.
    ///
    /// # Errors
    /// `queue`'s own, or `Run` where something in it cannot be captured: memory that is allocated, a wait on the host. The
    /// stream is as before then.
    pub fn capture(&self, queue: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let context = self.context().clone();
        let _entered = context.enter()?;
        let capture = Capture::begin(self)?;
        queue()?;
        let captured = capture.end()?;
        // SAFETY: the graph is alive and of this context, which is current.
        unsafe { replace_memsets(&context, captured.raw) }?;
        captured.instantiate(&context)
    }
}

const CAPTURING: &str = "Cannot capture GPU work";

/// A stream that captures, in the current context. Dropping this ends the capture, also after an error or a panic, and
/// destroys the graph.
struct Capture<'a>(&'a Stream);

/// The captured graph; destroyed when dropped.
struct Captured {
    context: Context,
    raw: sys::CUgraph,
}

impl<'a> Capture<'a> {
    fn begin(stream: &'a Stream) -> Result<Self> {
        // Thread-local: calls of other threads are not captured and do not end the capture.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive, as it is borrowed. The capture is ended by `end` or by the drop.
        unsafe { result::stream::begin_capture(stream.raw().cast(), mode) }.or_fail(CAPTURING)?;
        Ok(Capture(stream))
    }

    fn end(self) -> Result<Captured> {
        let stream = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: the stream is alive and captures; the graph is ours.
        unsafe { Captured::end(stream) }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `end`, which was not called. The error of the capture was returned already.
        let _ = unsafe { Captured::end(self.0) };
    }
}

impl Captured {
    /// Ends a capture.
    ///
    /// # Safety
    /// The stream captures.
    unsafe fn end(stream: &Stream) -> Result<Self> {
        let context = stream.context().clone();
        let _entered = context.enter()?;
        // SAFETY: the stream is alive and captures; the graph is ours.
        let raw = unsafe { result::stream::end_capture(stream.raw().cast()) }.or_fail(CAPTURING)?;
        Ok(Captured { context: stream.context().clone(), raw })
    }

    fn instantiate(&self, context: &Context) -> Result<Graph> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the captured graph is alive, and not needed once it is instantiated.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, self.raw, 0) }.result().or_fail(CAPTURING)?;
        Ok(Graph { context: context.clone(), raw })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        // SAFETY: it is ours. Where nothing was captured it is null, which CUDA refuses.
        let _ = unsafe { sys::cuGraphDestroy(self.raw) };
    }
}

impl Graph {
    /// Queues all of it.
    ///
    /// # Safety
    /// Everything that it was captured with is still there, and stays until it is done.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: the stream is alive, and so is all that the graph was captured with.
        unsafe { self.launch_on(stream.raw()) }
    }

    /// The same on a caller's stream; NULL is the default one.
    ///
    /// # Safety
    /// As for [`Graph::launch`]; `stream` is a stream of the graph's context, and alive.
    pub unsafe fn launch_on(&mut self, stream: *mut c_void) -> Result<()> {
        #[cfg(test)]
        super::driver::faults::check("launch")?;
        let _entered = self.context.enter()?;
        // SAFETY: graph and stream are alive and of one context. All that the graph was captured with stays until it is
        // done.
        unsafe { sys::cuGraphLaunch(self.raw, stream.cast()) }.result().or_fail("Cannot launch a CUDA graph")
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

/// Kernels that run one after the other. The parameters of each may be changed before the next launch, so unlike a captured
/// graph it does not depend on where tensors lie. They have the [priority](Stream::launch) that kernels have on a stream.
pub struct LaunchList {
    graph: Graph,
    /// What `graph` was made from, which the nodes belong to.
    template: sys::CUgraph,
    nodes: Vec<sys::CUgraphNode>,
}

// SAFETY: as for graphs.
unsafe impl Send for LaunchList {}

impl LaunchList {
    /// # Safety
    /// Each kernel takes exactly the parameters of its node.
    pub unsafe fn new<'a>(stream: &Stream, calls: impl IntoIterator<Item = KernelNode<'a>>) -> Result<Self> {
        const WHAT: &str = "Cannot make a CUDA graph of kernels";
        const BY_NODE: sys::CUgraphInstantiate_flags =
            sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        let (context, priority) = (stream.context(), stream.priority());
        let _entered = context.enter()?;
        let (mut template, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes a handle.
        unsafe { sys::cuGraphCreate(&mut template, 0) }.result().or_fail(WHAT)?;
        let mut nodes: Vec<sys::CUgraphNode> = Vec::new();
        let add = |call: KernelNode| {
            let (before, mut node) = (nodes.last().copied(), ptr::null_mut());
            let (first, count) = before.as_ref().map_or((ptr::null(), 0), |before| (ptr::from_ref(before), 1));
            // SAFETY: writes a handle. The graph and the node before are alive, and the kernel takes these parameters.
            call.with_raw(|raw_params| unsafe {
                sys::cuGraphAddKernelNode_v2(&mut node, template, first, count, raw_params)
            })?;
            nodes.push(node);
            let id = sys::CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
            // SAFETY: the node is alive, and the value that of this attribute.
            unsafe { sys::cuGraphKernelNodeSetAttribute(node, id, &priority) }.result().or_fail(WHAT)
        };
        let made = calls.into_iter().try_for_each(add).and_then(|()| {
            // SAFETY: writes a handle; the graph is alive.
            unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, template, BY_NODE.0.into()) }.result().or_fail(WHAT)
        });
        if made.is_err() {
            // SAFETY: it is ours, and not used after this.
            let _ = unsafe { sys::cuGraphDestroy(template) };
        }
        made.map(|()| LaunchList { graph: Graph { context: context.clone(), raw }, template, nodes })
    }

    /// Sets the parameters of one kernel, from the next launch on. It must be the same kernel.
    ///
    /// # Safety
    /// As for [`LaunchList::new`].
    pub unsafe fn set_params(&mut self, index: usize, call: &KernelNode) -> Result<()> {
        let _entered = self.graph.context.enter()?;
        let (raw, node) = (self.graph.raw, self.nodes[index]);
        // SAFETY: graph and node are alive, and the kernel takes these parameters. Launches before this keep their own.
        call.with_raw(|raw_params| unsafe { sys::cuGraphExecKernelNodeSetParams_v2(raw, node, raw_params) })
    }

    /// Queues all of them.
    ///
    /// # Safety
    /// Every address in the parameters stays valid until the kernels are done.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: all addresses in the nodes' parameters stay valid until the kernels are done.
        unsafe { self.graph.launch(stream) }
    }
}

impl Drop for LaunchList {
    fn drop(&mut self) {
        if let Ok(_entered) = self.graph.context.enter() {
            // SAFETY: it is ours; `graph` does not need it.
            let _ = unsafe { sys::cuGraphDestroy(self.template) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::memory::DevicePool;

    #[test]
    fn a_stream_works_after_a_failed_capture() {
        let Some(context) = crate::test::gpu() else { return };
        let stream = Stream::new(&context).unwrap();
        let block = DevicePool::new(&context).take(16).unwrap();
        // SAFETY: the block has so many bytes, and stays until the stream is idle.
        let clear = || unsafe { stream.clear(block.address(), 16) };
        let failed = stream.capture(|| {
            clear()?;
            Err(Error::new(ErrorKind::Run, "It fails"))
        });
        assert_eq!(failed.err().unwrap().message(), "It fails.");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            stream.capture(|| {
                clear().unwrap();
                panic!("It panics")
            })
        }));
        assert!(panicked.is_err());
        // Neither a wait on the host nor another capture is possible while the stream still captures.
        stream.synchronize().unwrap();
        let mut graph = stream.capture(clear).unwrap();
        // SAFETY: the block stays until the stream is idle.
        unsafe { graph.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
    }

    const BYTES: usize = 1 << 20;

    /// Memsets of each element size, of which the last two are no rows of whole words, each over a part of the one before.
    fn fill(stream: &Stream, to: u64) -> Result<()> {
        let raw = stream.raw().cast();
        // SAFETY: all of it lies within the memory, which stays until the stream is idle.
        unsafe {
            sys::cuMemsetD32Async(to, 0x8765_4321, BYTES / 4, raw).result().or_fail("fill")?;
            sys::cuMemsetD16Async(to + 4, 0xabcd, 5000, raw).result().or_fail("fill")?;
            sys::cuMemsetD8Async(to + 8, 0x5a, 4096, raw).result().or_fail("fill")?;
            sys::cuMemsetD8Async(to + 16, 0, 4, raw).result().or_fail("fill")?;
            sys::cuMemsetD8Async(to + 21, 0x11, 7, raw).result().or_fail("fill")?;
            sys::cuMemsetD2D32Async(to + 64, 256, 0x1234, 8, 16, raw).result().or_fail("fill")
        }
    }

    #[test]
    fn a_graph_with_kernels_for_memsets_gives_the_same_bits() {
        let Some(context) = crate::test::gpu() else { return };
        let stream = Stream::new(&context).unwrap();
        let pool = DevicePool::new(&context);
        let blocks = [pool.take(BYTES).unwrap(), pool.take(BYTES).unwrap()];
        fill(&stream, blocks[0].address()).unwrap();
        let captured = {
            let _entered = context.enter().unwrap();
            let capture = Capture::begin(&stream).unwrap();
            fill(&stream, blocks[1].address()).unwrap();
            let captured = capture.end().unwrap();
            // SAFETY: the graph is alive and of this context, which is current.
            assert_eq!(unsafe { replace_memsets(&context, captured.raw) }.unwrap(), 4);
            // SAFETY: as above.
            assert_eq!(unsafe { replace_memsets(&context, captured.raw) }.unwrap(), 0);
            captured
        };
        let mut graph = captured.instantiate(&context).unwrap();
        // SAFETY: the memory stays until the stream is idle.
        unsafe { graph.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
        let [wanted, found] = blocks.map(|block| block.read().unwrap());
        assert!(wanted == found);
    }
}
