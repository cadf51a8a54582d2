//! Work that is queued again and again: recorded once, then queued by one call instead of one for each kernel.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::{result, sys};

use super::driver::{Check, Context, Function, Launch, Stream};
use crate::core::error::Result;

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
        // SAFETY: the stream is alive; the rest says the caller.
        unsafe { self.launch_on(stream.raw()) }
    }

    /// The same on a stream that somebody else made; NULL is the default one.
    ///
    /// # Safety
    /// As for [`Graph::launch`]; `stream` is a stream of the graph's context, and alive.
    pub unsafe fn launch_on(&mut self, stream: *mut c_void) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the graph is alive; the rest says the caller.
        unsafe { sys::cuGraphLaunch(self.raw, stream.cast()) }.result().or_fail("Cannot start recorded GPU work")
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

/// A kernel with what it is told.
pub struct KernelNode<'a> {
    function: &'a Function,
    shape: Launch,
    parameters: *const c_void,
    told: PhantomData<&'a ()>,
}

impl<'a> KernelNode<'a> {
    /// `parameters` is the one structure that the kernel takes by value.
    pub fn new<P: Copy>(function: &'a Function, shape: Launch, parameters: &'a P) -> Self {
        KernelNode { function, shape, parameters: ptr::from_ref(parameters).cast(), told: PhantomData }
    }

    /// Has CUDA copy it all.
    fn tell(&self, take: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS) -> sys::CUresult) -> Result<()> {
        let Launch { grid, block, shared } = self.shape;
        let mut parameters = [self.parameters.cast_mut()];
        let node = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function.raw,
            gridDimX: grid.0,
            gridDimY: grid.1,
            gridDimZ: grid.2,
            blockDimX: block.0,
            blockDimY: block.1,
            blockDimZ: block.2,
            sharedMemBytes: shared,
            kernelParams: parameters.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        take(&node).result().or_fail("Cannot make a chain of GPU kernels")
    }
}

/// Kernels one after the other, of which each may be told something else before the next launch. Unlike a recording it does
/// not depend on where tensors lie. They have the [priority](Stream::launch) that kernels have on a stream.
pub struct LaunchList {
    graph: Graph,
    /// What `graph` was made from, which the nodes belong to.
    plan: sys::CUgraph,
    nodes: Vec<sys::CUgraphNode>,
}

// SAFETY: as for graphs.
unsafe impl Send for LaunchList {}

impl LaunchList {
    /// # Safety
    /// Each kernel takes exactly what it is told.
    pub unsafe fn new<'a>(stream: &Stream, calls: impl IntoIterator<Item = KernelNode<'a>>) -> Result<Self> {
        const WHAT: &str = "Cannot make a chain of GPU kernels";
        const BY_NODE: sys::CUgraphInstantiate_flags =
            sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        let (context, priority) = (stream.context(), stream.priority());
        let _entered = context.enter()?;
        let (mut plan, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes a handle.
        unsafe { sys::cuGraphCreate(&mut plan, 0) }.result().or_fail(WHAT)?;
        let mut nodes: Vec<sys::CUgraphNode> = Vec::new();
        let add = |call: KernelNode| {
            let (before, mut node) = (nodes.last().copied(), ptr::null_mut());
            let (first, count) = before.as_ref().map_or((ptr::null(), 0), |before| (ptr::from_ref(before), 1));
            // SAFETY: writes a handle; the graph and the node before are alive, the rest says the caller.
            call.tell(|told| unsafe { sys::cuGraphAddKernelNode_v2(&mut node, plan, first, count, told) })?;
            nodes.push(node);
            let id = sys::CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
            // SAFETY: the node is alive, and the value that of this attribute.
            unsafe { sys::cuGraphKernelNodeSetAttribute(node, id, &priority) }.result().or_fail(WHAT)
        };
        // SAFETY: as above.
        let made = calls.into_iter().try_for_each(add).and_then(|()| {
            unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, plan, BY_NODE.0.into()) }.result().or_fail(WHAT)
        });
        if made.is_err() {
            // SAFETY: it is ours, and nobody has seen it.
            let _ = unsafe { sys::cuGraphDestroy(plan) };
        }
        made.map(|()| LaunchList { graph: Graph { context: context.clone(), raw }, plan, nodes })
    }

    /// Tells one of the kernels something else, from the next launch on. It must be the same kernel.
    ///
    /// # Safety
    /// As for [`LaunchList::new`].
    pub unsafe fn tell(&mut self, index: usize, call: &KernelNode) -> Result<()> {
        let _entered = self.graph.context.enter()?;
        let (raw, node) = (self.graph.raw, self.nodes[index]);
        // SAFETY: graph and node are alive; what was launched before keeps what it was told. The rest says the caller.
        call.tell(|told| unsafe { sys::cuGraphExecKernelNodeSetParams_v2(raw, node, told) })
    }

    /// Queues all of them.
    ///
    /// # Safety
    /// Every address that they were told stays valid until they are done.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.graph.launch(stream) }
    }
}

impl Drop for LaunchList {
    fn drop(&mut self) {
        if let Ok(_entered) = self.graph.context.enter() {
            // SAFETY: it is ours; `graph` does not need it.
            let _ = unsafe { sys::cuGraphDestroy(self.plan) };
        }
    }
}
