// SPDX-License-Identifier: MPL-2.0
//! Queues of GPU work.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Weak};

use cudarc::driver::{result, sys};

use super::fence::{Fence, TimedEvent, Timing, WaitHistory};
use super::{Check, Context, Function};
use crate::counters;
use crate::error::Result;

/// What a shared stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamRole {
    /// Frames to tensors.
    Preprocess,
    /// Outputs to boxes, where that is not queued behind the model.
    Boxes,
    /// Drawing boxes that the host found.
    Paint,
    /// Vectors to names.
    Match,
}

/// A queue of GPU work. Not ordered with the legacy default stream.
pub struct Stream {
    context: Context,
    shared: Arc<RawStream>,
}

/// A CUDA stream; destroyed with the last reference.
pub(crate) struct RawStream {
    raw: sys::CUstream,
    /// The priority that our kernels have on any stream.
    ours: i32,
    context: Context,
}

// SAFETY: CUDA streams may be used by any thread.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl Drop for RawStream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the handle is ours, and not used after this.
            let _ = unsafe { result::stream::destroy(self.raw) }.or_fail("Cannot end a CUDA stream");
        }
    }
}

impl Stream {
    /// A stream of its own, which is not shared.
    pub fn new(context: &Context) -> Result<Self> {
        Stream::make(context, |(least, _)| least)
    }

    /// The same with the highest priority, for batches, which fill a GPU. A kernel ends with its last block, so other
    /// work in between delays it by more than that work takes. Each kernel leaves some multiprocessors idle at its end,
    /// so ours do not wait for long.
    pub fn of_batches(context: &Context) -> Result<Self> {
        Stream::make(context, |(_, greatest)| greatest)
    }

    /// `priority` chooses one out of CUDA's range: between the least and the greatest, which is a lower number.
    fn make(context: &Context, priority: impl FnOnce((i32, i32)) -> i32) -> Result<Self> {
        const WHAT: &str = "Cannot make a CUDA stream";
        let _entered = context.enter()?;
        let (mut raw, mut least, mut greatest) = (ptr::null_mut(), 0, 0);
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: these write numbers and a handle.
        unsafe {
            sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest).result().or_fail(WHAT)?;
            sys::cuStreamCreateWithPriority(&mut raw, flags, priority((least, greatest))).result().or_fail(WHAT)?;
        }
        let shared = Arc::new(RawStream { raw, ours: ours((least, greatest)), context: context.clone() });
        Ok(Stream { context: context.clone(), shared })
    }

    /// A stream for such work, which is short, and goes before models that are run at the same time. The first
    /// [`Stream::MAX_OF_A_ROLE`] of a context are alone on theirs; further ones share them, so a process with any number of
    /// pipelines has so many, which is about as many as a GPU runs at once.
    pub fn of(context: &Context, purpose: StreamRole) -> Result<Self> {
        let mut streams = context.0.streams.lock().unwrap();
        let known = streams.entry(purpose).or_default();
        known.retain(|stream| stream.strong_count() > 0);
        let shared = if known.len() < Stream::MAX_OF_A_ROLE {
            None
        } else {
            known.iter().min_by_key(|stream| stream.strong_count()).and_then(Weak::upgrade)
        };
        let stream = match shared {
            Some(shared) => Stream { context: context.clone(), shared },
            None => Stream::make(context, ours)?,
        };
        if !known.iter().any(|known| known.as_ptr() == Arc::as_ptr(&stream.shared)) {
            known.push(Arc::downgrade(&stream.shared));
        }
        Ok(stream)
    }

    /// See [`Stream::of`].
    pub const MAX_OF_A_ROLE: usize = 16;

    pub(super) fn shared(&self) -> Arc<RawStream> {
        self.shared.clone()
    }

    fn handle(&self) -> sys::CUstream {
        self.shared.raw
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// CUDA's own handle, for TensorRT.
    pub fn raw(&self) -> *mut c_void {
        self.handle().cast()
    }

    /// The fence that is passed once all that was queued so far is done.
    pub fn record(&self) -> Result<Fence> {
        // SAFETY: this stream's handle is alive.
        unsafe { self.context.fence_on(self.raw()) }
    }

    /// The same for a wait on the host. `history` is the history of earlier waits for such work.
    pub fn record_awaited(&self, history: &WaitHistory) -> Result<Fence> {
        // SAFETY: this stream's handle is alive.
        unsafe { self.context.awaited_on(self.raw(), history) }
    }

    /// Begins to take the GPU's time for what is queued from now on, if a [span](counters::Span)
    /// measures(counters::Span) this thread's work. If a time cannot be taken, the work goes on without it.
    pub fn begin_timing(&self) -> Option<TimedEvent> {
        counters::is_measuring().then(|| self.mark().ok()).flatten()
    }

    /// Ends what [`Stream::begin_timing`] began.
    pub fn end_timing(&self, begin: Option<TimedEvent>) {
        if let Some(begin) = begin
            && let Ok(end) = self.mark()
        {
            counters::measured(Box::new(Timing { begin, end }));
        }
    }

    fn mark(&self) -> Result<TimedEvent> {
        // SAFETY: this stream's handle is alive.
        unsafe { self.context.mark(self.raw()) }
    }

    /// What is queued after this starts only once the fence is passed. The host does not wait.
    pub fn wait(&self, fence: &Fence) -> Result<()> {
        // SAFETY: this stream's handle is alive.
        unsafe { self.context.hold(self.raw(), fence) }
    }

    /// The same for several. Where the same one comes again at once, as that of pictures of one frame does, it is
    /// waited for once.
    pub fn wait_for_all<'a>(&self, fences: impl Iterator<Item = &'a Fence>) -> Result<()> {
        let mut last: Option<&Fence> = None;
        for fence in fences {
            if last.replace(fence).is_none_or(|last| !last.is_same(fence)) {
                self.wait(fence)?;
            }
        }
        Ok(())
    }

    /// As [`Stream::wait`], for all work that is enqueued so far on a caller's stream.
    ///
    /// # Safety
    /// `other` is a stream of this context and alive.
    pub unsafe fn wait_for(&self, other: *mut c_void) -> Result<()> {
        // SAFETY: the other stream is of this context, and alive.
        self.wait(&unsafe { self.context.fence_on(other) }?)
    }

    /// Waits on the host until all that was queued is done.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        counters::waiting(|| unsafe { self.context.finish(self.raw()) })
    }

    /// Queues setting bytes to 0.
    ///
    /// # Safety
    /// There are so many bytes at that address. Until the work is done they stay, and nothing else uses them.
    pub unsafe fn clear(&self, address: u64, bytes: usize) -> Result<()> {
        #[cfg(test)]
        super::faults::check("clear")?;
        let _entered = self.context.enter()?;
        // SAFETY: so many bytes are there, and used by nothing else until the work is done.
        unsafe { result::memset_d8_async(address, 0, bytes, self.handle()) }.or_fail("Cannot clear GPU memory")
    }

    /// Queues a copy from the host. From pageable memory it is read during the call, from pinned memory later.
    ///
    /// # Safety
    /// There is as much memory at `to`. Until the copy is done it stays, and nothing else uses it. Pinned bytes stay
    /// until then too, and nothing writes them.
    pub unsafe fn upload(&self, bytes: &[u8], to: u64) -> Result<()> {
        #[cfg(test)]
        super::faults::check("upload")?;
        let _entered = self.context.enter()?;
        counters::uploaded(bytes.len());
        // SAFETY: there is room at `to`, and both ends stay until the copy is done.
        unsafe { result::memcpy_htod_async(to, bytes, self.handle()) }.or_fail("Cannot copy to the GPU")
    }

    /// Queues a copy to page-locked memory of the host.
    ///
    /// # Safety
    /// There are as many bytes at `from`, which stay until the copy is done. So do those of the host, which nothing
    /// else uses.
    pub unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        #[cfg(test)]
        super::faults::check("download")?;
        let _entered = self.context.enter()?;
        counters::downloaded(bytes.len());
        // SAFETY: as many bytes are at `from`, and both ends stay until the copy is done.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.handle()) }.or_fail("Cannot copy from the GPU")
    }

    /// Queues a copy from an address of a context, this one or another, to one of this.
    ///
    /// # Safety
    /// There are so many bytes at both addresses. Until the copy is done they stay, and nothing else uses them.
    pub unsafe fn copy(&self, (owner, from): (&Context, u64), to: u64, bytes: usize) -> Result<()> {
        #[cfg(test)]
        super::faults::check("copy")?;
        let _entered = self.context.enter()?;
        let (theirs, ours) = (owner.0.raw, self.context.0.raw);
        if theirs == ours {
            // SAFETY: so many bytes are at both addresses, and stay until the copy is done.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle()) }
        } else {
            // SAFETY: as above. Each address is of the context that it is passed with.
            unsafe { sys::cuMemcpyPeerAsync(to, ours, from, theirs, bytes, self.handle()) }
        }
        .result()
        .or_fail("Cannot copy on the GPU")
    }

    /// Queues a copy of `rows` rows of `row` bytes within the GPU's memory: addresses and strides.
    ///
    /// # Safety
    /// There are such rows at both addresses. Until the copy is done they stay, and nothing else uses them.
    pub unsafe fn copy_rows(&self, from: (u64, usize), to: (u64, usize), row: usize, rows: usize) -> Result<()> {
        let _entered = self.context.enter()?;
        let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: device,
            srcDevice: from.0,
            srcPitch: from.1,
            srcXInBytes: 0,
            srcY: 0,
            srcHost: ptr::null(),
            srcArray: ptr::null_mut(),
            dstMemoryType: device,
            dstDevice: to.0,
            dstPitch: to.1,
            dstXInBytes: 0,
            dstY: 0,
            dstHost: ptr::null_mut(),
            dstArray: ptr::null_mut(),
            WidthInBytes: row,
            Height: rows,
        };
        // SAFETY: both addresses have such rows, which stay until the copy is done.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.handle()) }.result().or_fail("Cannot copy on the GPU")
    }

    /// The priority that kernels have on it.
    pub(in crate::cuda) fn priority(&self) -> sys::CUlaunchAttributeValue {
        sys::CUlaunchAttributeValue { priority: self.shared.ours }
    }

    /// Queues a kernel. `parameters` is the one structure that it takes by value. It goes before models that run at the
    /// same time, but for [batches](Stream::of_batches): it is short, and one that waited for them would keep others
    /// waiting.
    ///
    /// # Safety
    /// The kernel takes exactly a `P`. Until it is done every address in it stays valid, nothing else writes what it
    /// reads, and nothing else uses what it writes.
    pub unsafe fn launch<P: Copy>(&self, function: &Function, shape: Launch, parameters: &P) -> Result<()> {
        #[cfg(test)]
        super::faults::check("launch")?;
        let _entered = self.context.enter()?;
        let Launch { grid: (gx, gy, gz), block: (bx, by, bz), shared } = shape;
        let mut pointers = [ptr::from_ref(parameters).cast_mut().cast::<c_void>()];
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
        let mut priority = sys::CUlaunchAttribute { id, pad: [0; 4], value: self.priority() };
        let config = sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: shared,
            hStream: self.handle(),
            attrs: &raw mut priority,
            numAttrs: 1,
        };
        // SAFETY: the kernel takes a `P`, and its addresses stay valid until it is done. CUDA copies the `P` during the
        // call.
        unsafe { sys::cuLaunchKernelEx(&config, function.raw, pointers.as_mut_ptr(), ptr::null_mut()) }
            .result()
            .or_fail("Cannot start a GPU kernel")
    }
}

/// Of CUDA's range, which is from the least priority to the greatest, a lower number: the one below the greatest, or
/// that where there are but two.
fn ours((least, greatest): (i32, i32)) -> i32 {
    (greatest + 1).min(least - 1).max(greatest)
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.raw())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Enqueued work uses memory that the owner of this stream is about to free. If the GPU fails, the next call returns the error.
        // SAFETY: the handle is alive.
        let _ = unsafe { self.context.finish(self.raw()) };
    }
}

/// Blocks of a grid, threads of a block, and bytes of dynamic shared memory of each.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_kernels_go_before_models_and_behind_batches() {
        assert_eq!([(0, -5), (0, -1), (0, 0)].map(ours), [-4, -1, 0]);
    }

    /// Nobody else may have waited for that work, such as a copy whose fence was dropped.
    #[test]
    fn a_stream_that_hangs_ends_with_the_limit() {
        use std::time::Duration;

        use crate::cuda::driver::lost;
        use crate::fakes::Fakes;
        use crate::memory::DevicePool;
        let Some(fakes) = Fakes::of(module_path!(), "a_stream_that_hangs_ends_with_the_limit") else { return };
        let context = fakes.context();
        let _limit = context.limit_waits(Duration::from_millis(20));
        let block = DevicePool::new(&context).take(16).unwrap();
        let stream = Stream::new(&context).unwrap();
        fakes.stick(true);
        // SAFETY: the block has so many bytes, and stays.
        unsafe { stream.clear(block.address(), 16) }.unwrap();
        drop(stream);
        assert!(lost().is_some_and(|error| error.message().starts_with("GPU work has not ended within 0.02 s")));
    }

    #[test]
    fn many_pipelines_share_some_streams() {
        let Some(context) = crate::test::gpu() else { return };
        let boxes: Vec<Stream> = (0..64).map(|_| Stream::of(&context, StreamRole::Boxes).unwrap()).collect();
        let paint = Stream::of(&context, StreamRole::Paint).unwrap();
        let count = |streams: &[Stream]| {
            let mut raw: Vec<_> = streams.iter().map(Stream::raw).collect();
            raw.sort();
            raw.dedup();
            raw.len()
        };
        assert_eq!(count(&boxes), Stream::MAX_OF_A_ROLE);
        assert_eq!(count(&boxes[..Stream::MAX_OF_A_ROLE]), Stream::MAX_OF_A_ROLE, "the first are alone");
        assert!(boxes.iter().all(|stream| stream.raw() != paint.raw()));
        drop(boxes);
        let alone = Stream::of(&context, StreamRole::Boxes).unwrap();
        assert_eq!(Arc::strong_count(&alone.shared), 1, "unused ones are destroyed");
    }
}
