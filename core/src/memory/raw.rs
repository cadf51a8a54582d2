// SPDX-License-Identifier: MPL-2.0
//! Memory of each kind, as it is allocated and freed.
//!
//! On a GPU it is synchronous: memory is freed only when no enqueued work uses it.

use std::ptr::{self, NonNull};

use cudarc::driver::{result, sys};

use crate::counters;
use crate::cuda::driver::{Check, Context};
use crate::error::{Error, ErrorKind, Result};

/// A cache line: memory starts on one, so that every element type is aligned and SIMD loads never split.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// Ordinary memory.
pub(super) struct Host(Vec<CacheLine>);

impl Host {
    /// Zeroed.
    pub fn new(bytes: usize) -> Self {
        Host(vec![CacheLine([0; 64]); bytes.div_ceil(size_of::<CacheLine>())])
    }

    /// The same where there may be too little memory: elsewhere that ends the process.
    ///
    /// # Errors
    /// `Run`, where there is no more.
    pub fn try_new(bytes: usize) -> Result<Self> {
        let (mut memory, count) = (Vec::new(), bytes.div_ceil(size_of::<CacheLine>()));
        memory.try_reserve_exact(count).map_err(|error| {
            Error::new(ErrorKind::Run, format!("Cannot allocate {} MiB of memory", bytes.div_ceil(1 << 20)))
                .cause(error)
                .remedy("Use a smaller input or fewer buffers, or free memory")
        })?;
        memory.resize(count, CacheLine([0; 64]));
        Ok(Host(memory))
    }

    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Memory of a GPU.
pub(super) struct DeviceMemory {
    context: Context,
    address: u64,
}

impl DeviceMemory {
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let _entered = context.enter()?;
        // SAFETY: freed in drop, once.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = address.or_fail(&format!("Cannot allocate {} MiB of GPU memory", bytes.div_ceil(1 << 20)))?;
        Ok(DeviceMemory { context: context.clone(), address })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies from the host; the caller has checked that there is room.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: allocated, with as many bytes, as the caller has checked; borrowed alone.
        unsafe { write(&self.context, self.address + at as u64, bytes) }
    }

    /// Copies to the host; the caller has checked that there are as many.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: allocated, with as many bytes, as the caller has checked.
        unsafe { read(&self.context, self.address + at as u64, bytes) }
    }

    /// Copies from a GPU, this one or another; the caller has checked that both have as many.
    pub fn copy(&mut self, from: &DeviceMemory, bytes: usize) -> Result<()> {
        let _entered = self.context.enter()?;
        let (to_context, from_context) = (self.context.raw().cast(), from.context.raw().cast());
        // SAFETY: both are allocated, with that many bytes. The null stream is the one that copies.
        unsafe {
            match to_context == from_context {
                true => sys::cuMemcpyDtoD_v2(self.address, from.address, bytes),
                false => sys::cuMemcpyPeer(self.address, to_context, from.address, from_context, bytes),
            }
            .result()
            .or_fail("Cannot copy GPU memory")?;
            self.context.finish(ptr::null_mut())
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated in new, and idle.
            let _ = unsafe { result::free_sync(self.address) }.or_fail("Cannot free GPU memory");
        }
    }
}

/// Copies from the host to GPU memory, and waits for that.
///
/// # Safety
/// There are as many bytes of that context's GPU at the address, and nothing else uses them meanwhile.
pub(super) unsafe fn write(context: &Context, address: u64, bytes: &[u8]) -> Result<()> {
    let _entered = context.enter()?;
    counters::uploaded(bytes.len());
    // SAFETY: so many bytes are there, and used by nothing else. The copy is on the null stream; of pageable memory it
    // returns once all is staged, so that stream is waited for.
    unsafe {
        result::memcpy_htod_sync(address, bytes).or_fail("Cannot write GPU memory")?;
        context.finish(ptr::null_mut())
    }
}

/// Copies GPU memory to the host, and waits for that.
///
/// # Safety
/// There are as many bytes of that context's GPU at the address.
pub(super) unsafe fn read(context: &Context, address: u64, bytes: &mut [u8]) -> Result<()> {
    /// `CU_STREAM_PER_THREAD`. The null stream would wait for all streams of the context that are not made otherwise,
    /// as decoders' are not, and they for it.
    const OF_THREAD: sys::CUstream = ptr::without_provenance_mut(2);
    let _entered = context.enter()?;
    // SAFETY: so many bytes are there. The host's stay until the stream is waited for.
    unsafe {
        result::memcpy_dtoh_async(bytes, address, OF_THREAD).or_fail("Cannot read GPU memory")?;
        context.finish(OF_THREAD.cast())?;
    }
    counters::downloaded(bytes.len());
    Ok(())
}

/// Page-locked host memory that the device reads and writes in place.
pub struct Mapped {
    context: Context,
    host: NonNull<u8>,
    /// 0 where it is not mapped.
    address: u64,
    bytes: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Zeroed.
    ///
    /// # Errors
    /// `Run`, where no more memory can be pinned.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let mut memory = Mapped::allocate(context, bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP)?;
        let _entered = context.enter()?;
        // SAFETY: the memory was just allocated, for the device to map.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut memory.address, memory.host.as_ptr().cast(), 0) }
            .result()
            .or_fail("Cannot map pinned memory")?;
        Ok(memory)
    }

    /// The same without a device address, for copies only.
    pub(super) fn pinned(context: &Context, bytes: usize) -> Result<Self> {
        Mapped::allocate(context, bytes, 0)
    }

    fn allocate(context: &Context, bytes: usize, flags: u32) -> Result<Self> {
        let _entered = context.enter()?;
        // SAFETY: freed in drop, once.
        let host = unsafe { result::malloc_host(bytes.max(1), flags | sys::CU_MEMHOSTALLOC_PORTABLE) };
        let host = host.or_fail("Cannot allocate pinned memory")?.cast::<u8>();
        // SAFETY: just allocated with that size.
        unsafe { ptr::write_bytes(host, 0, bytes) };
        let host = NonNull::new(host).expect("CUDA returned memory");
        Ok(Mapped { context: context.clone(), host, address: 0, bytes })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Where the device finds it.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is there now. Only while no queued work writes it.
    pub fn host(&self) -> &[u8] {
        // SAFETY: allocated with that size. Callers have waited for GPU work that writes it.
        unsafe { std::slice::from_raw_parts(self.host.as_ptr(), self.bytes) }
    }

    /// To be written. Only while no queued work reads or writes it.
    pub fn host_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.host.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated in `allocate`.
            let _ = unsafe { result::free_host(self.host.as_ptr().cast()) }.or_fail("Cannot free pinned memory");
        }
    }
}

/// Managed memory, which moves to the host or the GPU as it is used.
pub(super) struct Unified {
    context: Context,
    address: u64,
    bytes: usize,
}

impl Unified {
    /// Zeroed.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
        // Elsewhere a look at it while any kernel runs ends the process.
        if context.attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)? == 0 {
            return Err(Error::new(ErrorKind::Library, "There is no unified memory")
                .cause("host and GPU cannot use it at the same time on this machine")
                .remedy("Use device memory, and copy"));
        }
        let _entered = context.enter()?;
        let mut address = 0;
        let flags = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
        // SAFETY: freed in drop, once.
        unsafe { sys::cuMemAllocManaged(&mut address, bytes.max(1), flags) }
            .result()
            .or_fail("Cannot allocate unified memory")?;
        let mut memory = Unified { context: context.clone(), address, bytes };
        memory.host_mut().fill(0);
        Ok(memory)
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn host(&self) -> &[u8] {
        // SAFETY: allocated with that size, at one address for both. Callers have waited for GPU work that writes it.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    pub fn host_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl Drop for Unified {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: allocated in new, and idle.
            let _ = unsafe { result::free_sync(self.address) }.or_fail("Cannot free GPU memory");
        }
    }
}
