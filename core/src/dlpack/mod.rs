// SPDX-License-Identifier: MPL-2.0
//! Tensors to and from other frameworks (PyTorch, CuPy, NumPy, JAX) without a copy, by
//! [DLPack](https://dmlc.github.io/dlpack).
//!
//! An exported tensor is kept until its consumer calls its deleter. An imported one is given back by its own deleter,
//! when the last [`Tensor`] of it is dropped. Both ways the memory is shared.

#[doc(hidden)]
pub mod exporter;

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::driver::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBlock, HostBlock};
use crate::tensor::{DType, Dims, Tensor, TensorDesc, Tensors};

/// `DLDevice`
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlDevice {
    /// `DLDeviceType`
    pub kind: c_int,
    pub id: c_int,
}

/// `kDLCPU`
#[doc(hidden)]
pub const CPU: c_int = 1;
/// `kDLCUDA`
#[doc(hidden)]
pub const CUDA: c_int = 2;
/// `kDLCUDAHost`: pinned memory, which is the host's all the same.
#[doc(hidden)]
pub const CUDA_HOST: c_int = 3;

/// `DLDataType`
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DlDataType {
    /// `DLDataTypeCode`
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor`
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DlTensor {
    pub data: *mut c_void,
    pub device: DlDevice,
    pub rank: c_int,
    pub dtype: DlDataType,
    pub shape: *mut i64,
    /// In elements; NULL where the last dimension is innermost and nothing is between elements.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// `DLManagedTensor`
#[derive(Debug)]
#[repr(C)]
pub struct Managed {
    #[doc(hidden)]
    pub view: DlTensor,
    /// The exporter's own.
    #[doc(hidden)]
    pub context: *mut c_void,
    #[doc(hidden)]
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

fn data_type(dtype: DType) -> DlDataType {
    let (code, bits) = match dtype {
        DType::I8 => (0, 8),
        DType::I32 => (0, 32),
        DType::I64 => (0, 64),
        DType::U8 => (1, 8),
        DType::F16 => (2, 16),
        DType::F32 => (2, 32),
        DType::Bool => (6, 8),
    };
    DlDataType { code, bits, lanes: 1 }
}

/// `DLManagedTensorVersioned` of DLPack 1.0 and later
#[derive(Debug)]
#[repr(C)]
pub struct DlManagedVersioned {
    /// `DLPackVersion`: the major number, which determines the layout of this structure, and the minor one.
    #[doc(hidden)]
    pub version: [u32; 2],
    /// The exporter's own.
    #[doc(hidden)]
    pub context: *mut c_void,
    #[doc(hidden)]
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedVersioned)>,
    #[doc(hidden)]
    pub flags: u64,
    #[doc(hidden)]
    pub view: DlTensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`
#[doc(hidden)]
pub const READ_ONLY: u64 = 1;

/// One of DLPack's two structures, around a view.
trait Manager: Sized {
    fn new(view: DlTensor, read_only: bool) -> Self;
    fn set_context(&mut self, context: *mut c_void);
}

impl Manager for Managed {
    fn new(view: DlTensor, _: bool) -> Self {
        Managed { view, context: ptr::null_mut(), deleter: Some(free) }
    }

    fn set_context(&mut self, context: *mut c_void) {
        self.context = context;
    }
}

impl Manager for DlManagedVersioned {
    fn new(view: DlTensor, read_only: bool) -> Self {
        let flags = if read_only { READ_ONLY } else { 0 };
        DlManagedVersioned { version: [1, 0], context: ptr::null_mut(), deleter: Some(free_versioned), flags, view }
    }

    fn set_context(&mut self, context: *mut c_void) {
        self.context = context;
    }
}

/// Where the consumer of a tensor enqueues its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// On this stream of CUDA; NULL is the default one.
    Stream(*mut c_void),
    /// That is not known, so the host waits for all work of the context once the tensor is deleted.
    Unknown,
}

impl Consumer {
    /// From DLPack's protocol: a stream, or -1 where it is not known.
    pub fn from_raw(stream: *mut c_void) -> Self {
        if stream.addr() == usize::MAX { Consumer::Unknown } else { Consumer::Stream(stream) }
    }

    /// Lets what the consumer queues after this see the tensors.
    ///
    /// # Safety
    /// The stream is of the tensors' context, and alive, if they are on a GPU.
    ///
    /// # Errors
    /// `Run`, where the GPU fails.
    pub unsafe fn wait_for(self, tensors: &Tensors) -> Result<()> {
        match (self, tensors.ready(), tensors.first().and_then(Tensor::device)) {
            (Consumer::Unknown, ..) => tensors.wait(),
            // SAFETY: the stream is of this context and alive, as this function requires.
            (Consumer::Stream(stream), Some(ready), Some(block)) => unsafe { block.context().hold(stream, ready) },
            (Consumer::Stream(_), ..) => Ok(()),
        }
    }
}

/// `CU_STREAM_PER_THREAD`, by which each thread has another stream.
const PER_THREAD: usize = 2;

/// What an export needs to be freed.
struct Exported<M> {
    // The structure that others have a pointer to comes first.
    managed: M,
    _shape: Vec<i64>,
    used: Option<(DeviceBlock, Consumer)>,
    /// The thread that it was given to.
    thread: usize,
    _keep: Box<dyn Send + Sync>,
}

/// A number of this thread, which no later one gets.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // It needs no drop, so it is there also where the thread is about to end.
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// A tensor for another framework, to be freed by its deleter. `keep` holds its memory. The consumer reads it behind
/// the tensor's fence. The deleter gives the memory back once the work is done that the consumer has enqueued until then.
///
/// The structure has no flag for read-only memory, so the caller has to document it.
///
/// # Safety
/// A consumer's stream is of the tensor's context, and alive until the deleter has been called.
pub unsafe fn export(tensor: &Tensor, keep: Box<dyn Send + Sync>, consumer: Consumer) -> NonNull<Managed> {
    give_away(tensor, keep, consumer, false)
}

/// The same in the structure of DLPack 1.0, which has a flag for read-only memory.
///
/// # Safety
/// As for [`export`].
pub unsafe fn export_versioned(
    tensor: &Tensor,
    keep: Box<dyn Send + Sync>,
    consumer: Consumer,
    read_only: bool,
) -> NonNull<DlManagedVersioned> {
    give_away(tensor, keep, consumer, read_only)
}

fn give_away<M: Manager>(
    tensor: &Tensor,
    keep: Box<dyn Send + Sync>,
    consumer: Consumer,
    read_only: bool,
) -> NonNull<M> {
    let (data, device) = match (tensor.bytes(), tensor.device()) {
        (Some(bytes), _) => (bytes.as_ptr().cast_mut().cast(), DlDevice { kind: CPU, id: 0 }),
        (_, Some(block)) => {
            let device = DlDevice { kind: CUDA, id: block.context().device() };
            (ptr::without_provenance_mut(block.address() as usize), device)
        }
        (None, None) => unreachable!("a tensor is somewhere"),
    };
    let mut shape = tensor.desc().dims.to_vec();
    let view = DlTensor {
        data,
        device,
        rank: shape.len() as c_int,
        dtype: data_type(tensor.desc().dtype),
        shape: shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let used = tensor.device().map(|block| (block.share(), consumer));
    let managed = M::new(view, read_only);
    let exported = Exported { managed, _shape: shape, used, thread: this_thread(), _keep: keep };
    let exported = Box::into_raw(Box::new(exported));
    // SAFETY: just allocated.
    unsafe {
        (*exported).managed.set_context(exported.cast());
        NonNull::new_unchecked(&raw mut (*exported).managed)
    }
}

impl<M> Drop for Exported<M> {
    fn drop(&mut self) {
        let Some((block, consumer)) = &self.used else { return };
        let queued = match *consumer {
            Consumer::Stream(stream) if stream.addr() == PER_THREAD && self.thread != this_thread() => {
                Err(Error::new(ErrorKind::Run, "The consumer's stream is that of another thread"))
            }
            Consumer::Stream(stream) => {
                // SAFETY: `export` asks for a stream of this context that is alive until the deleter has been called.
                unsafe { block.context().fence_on(stream) }.map(|fence| block.release_after(fence))
            }
            Consumer::Unknown => Err(Error::new(ErrorKind::Run, "The consumer's stream is not known")),
        };
        if queued.is_err() {
            let _ = block.context().synchronize(); // if the GPU failed, its next call returns the error
        }
    }
}

/// The deleter of what [`export`] gave away.
unsafe extern "C" fn free(managed: *mut Managed) {
    if !managed.is_null() {
        // SAFETY: DLPack calls this once, with what `export` made.
        drop(unsafe { Box::from_raw((*managed).context.cast::<Exported<Managed>>()) });
    }
}

/// The deleter of what [`export_versioned`] gave away.
unsafe extern "C" fn free_versioned(managed: *mut DlManagedVersioned) {
    if !managed.is_null() {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw((*managed).context.cast::<Exported<DlManagedVersioned>>()) });
    }
}

/// Frees a tensor that is not imported.
///
/// # Safety
/// As for [`import`].
pub unsafe fn delete(managed: NonNull<Managed>) {
    drop(Imported(managed));
}

/// Calls the deleter of what was imported.
struct Imported(NonNull<Managed>);

// SAFETY: DLPack's tensors may be used and deleted by any thread.
unsafe impl Send for Imported {}
// SAFETY: as above.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: `import` asks for a tensor that nothing else has consumed; it is deleted once, here.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// A tensor of another framework, under a name of ours. It is taken over if this succeeds, and else left alone.
///
/// # Safety
/// It is a `DLManagedTensor` that nothing else has consumed, and its memory is not written as long as the tensor is
/// there. On a GPU, work that writes it is done, or [`Tensors`] made of it are given the
/// fence of that work.
///
/// # Errors
/// `WrongType`, where it is on another kind of device, of elements that we do not have, not contiguous, or not aligned;
/// `Library`, where it is on a GPU and CUDA is not there.
pub unsafe fn import(managed: NonNull<Managed>, name: &str) -> Result<Tensor> {
    let wrong = |cause: String| {
        Error::new(ErrorKind::WrongType, "Cannot take the DLPack tensor")
            .cause(cause)
            .remedy("Make it contiguous, of f32, f16, u8, i8, i32, i64 or bool, on the CPU or an NVIDIA GPU")
    };
    // SAFETY: it is a `DLManagedTensor`, which nothing else has consumed.
    let view = unsafe { managed.as_ref().view };
    let rank = usize::try_from(view.rank).map_err(|_| wrong(format!("it has {} dimensions", view.rank)))?;
    if rank > 0 && view.shape.is_null() {
        return Err(wrong("its shape is NULL".into()));
    }
    let list = |pointer: *mut i64| match rank {
        0 => Vec::new(),
        // SAFETY: `shape` and, where they are there, `strides` have as many numbers as the rank says.
        _ => unsafe { std::slice::from_raw_parts(pointer, rank) }.to_vec(),
    };
    let shape = list(view.shape);
    let dtype = DType::ALL.into_iter().find(|&dtype| data_type(dtype) == view.dtype);
    let dtype = dtype.ok_or_else(|| wrong(format!("its elements are of {:?}", view.dtype)))?;
    let desc = TensorDesc { name: name.into(), dtype, dims: Dims::new(&shape) };
    let bytes = desc.bytes().filter(|&bytes| isize::try_from(bytes).is_ok());
    let bytes = bytes.ok_or_else(|| wrong(format!("its dimensions are {shape:?}")))?;
    if !view.strides.is_null() && bytes > 0 {
        let mut dense = 1;
        for (&stride, &dim) in list(view.strides).iter().zip(&shape).rev() {
            if dim != 1 && stride != dense {
                return Err(wrong(format!("its strides are {:?}, its dimensions {shape:?}", list(view.strides))));
            }
            dense *= dim;
        }
    }
    let address = view.data.addr() as u64;
    let address = address.checked_add(view.byte_offset).filter(|address| address.is_multiple_of(dtype.size() as u64));
    let address = address.ok_or_else(|| wrong(format!("it is at {:p}, not aligned to its elements", view.data)))?;
    if view.data.is_null() && bytes > 0 {
        return Err(wrong("its data is NULL".into()));
    }
    let take = || Arc::new(Imported(managed));
    match view.device.kind {
        CPU | CUDA_HOST => {
            // The pointer that was given, moved: it may reach what an address alone may not.
            let begin = NonNull::new(view.data.cast::<u8>().wrapping_add(view.byte_offset as usize));
            let begin = begin.unwrap_or(NonNull::<u128>::dangling().cast());
            // SAFETY: so many bytes are there, and stay unwritten until `Imported` is dropped.
            Ok(Tensor::on_host(desc, unsafe { HostBlock::foreign(begin, bytes, take()) }))
        }
        CUDA => {
            let context = Context::primary(view.device.id)?;
            context.check_memory(address, bytes)?;
            // SAFETY: the driver knows so many bytes there, and they stay unwritten until `Imported` is dropped.
            Ok(Tensor::on_device(desc, unsafe { DeviceBlock::foreign(&context, address, bytes, take()) }))
        }
        kind => Err(wrong(format!("it is on a device of DLPack's type {kind}"))),
    }
}

#[cfg(test)]
mod tests;
