// SPDX-License-Identifier: MPL-2.0
//! All use of libgstcuda: the CUDA context that pipelines share, frames in CUDA memory, pools of them.
//!
//! The library is opened at run time, so that one plugin serves GStreamer 1.22 to 1.28 and machines without CUDA. Of its
//! structures only what its public headers show is read: `GstCudaMemory.context`. From 1.24 on, memory has a stream, on
//! which work that writes it may still be queued; before, memory that arrives is complete.
//!
//! Rules of mapping: memory must be known to be CUDA memory before it is mapped so (the flag means other things to other
//! memory); mapping never waits, so order the work after it; to write, map for writing, or the next CPU map gets a stale
//! copy.

pub mod registry;
mod slot;
#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{LazyLock, OnceLock};

use gst::glib::translate::*;
use gst::prelude::*;
use gst::{ffi, glib};
use gsttrt_core::cuda::driver::{self, Context};
use gsttrt_core::error::{Error, ErrorKind, Result};
use registry::ContextOwner;
pub use slot::CudaContextSlot;

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trt-cuda", gst::DebugColorFlags::empty(), Some("CUDA contexts of our elements"))
});

/// The type of context that CUDA elements share, and the field of it that holds the GstCudaContext.
const CONTEXT_TYPE: &str = "gst.cuda.context";
const DEVICE_FIELD: &str = "cuda-device-id";
/// The feature of caps whose frames lie in CUDA memory.
pub const MEMORY_FEATURE: &str = "memory:CUDAMemory";
/// `GST_MAP_CUDA`
const MAP_CUDA: ffi::GstMapFlags = 0x20000;

/// The functions of libgstcuda that are used.
struct GstCudaLibrary {
    context_new: unsafe extern "C" fn(device: c_uint) -> *mut ffi::GstObject,
    context_new_wrapped: unsafe extern "C" fn(context: *mut c_void, device: c_int) -> *mut ffi::GstObject,
    context_get_handle: unsafe extern "C" fn(context: *mut ffi::GstObject) -> *mut c_void,
    context_new_cuda_context: unsafe extern "C" fn(context: *mut ffi::GstObject) -> *mut ffi::GstContext,
    is_cuda_memory: unsafe extern "C" fn(memory: *mut ffi::GstMemory) -> glib::ffi::gboolean,
    buffer_pool_new: unsafe extern "C" fn(context: *mut ffi::GstObject) -> *mut ffi::GstBufferPool,
    /// Since 1.24: the memory's stream, and its handle.
    streams: Option<Streams>,
}

struct Streams {
    memory_get_stream: unsafe extern "C" fn(memory: *mut ffi::GstMemory) -> *mut c_void,
    stream_get_handle: unsafe extern "C" fn(stream: *mut c_void) -> *mut c_void,
}

/// Opens it, once. Where it fails nothing of it may be called: it would end the process.
fn library() -> Result<&'static GstCudaLibrary> {
    static LIBRARY: OnceLock<std::result::Result<GstCudaLibrary, String>> = OnceLock::new();
    driver::available()?;
    let opened = LIBRARY
        .get_or_init(|| open().inspect_err(|cause| gst::info!(CAT, "frames in CUDA memory cannot be used: {cause}")));
    opened.as_ref().map_err(|cause| {
        Error::new(ErrorKind::Library, "Cannot use CUDA memory of GStreamer")
            .cause(cause)
            .remedy("Install GStreamer's “bad” plugins with nvcodec, or put cudadownload before this element")
    })
}

fn open() -> std::result::Result<GstCudaLibrary, String> {
    use libloading::os::unix;
    const NODELETE: c_int = 0x1000; // its types can never be taken back from GLib
    // SAFETY: GStreamer's own library, which registers types when loaded and no more.
    let library =
        unsafe { unix::Library::open(Some("libgstcuda-1.0.so.0"), unix::RTLD_NOW | unix::RTLD_LOCAL | NODELETE) };
    let library = std::mem::ManuallyDrop::new(library.map_err(|error| error.to_string())?);
    macro_rules! symbol {
        ($name:literal) => {
            // SAFETY: the types are those of the library's headers, the same from 1.22 (or as `Streams` has them) to 1.28.
            unsafe { library.get($name) }.map(|symbol| *symbol).map_err(|error: libloading::Error| error.to_string())
        };
    }
    let load: unsafe extern "C" fn() -> glib::ffi::gboolean = symbol!(b"gst_cuda_load_library\0")?;
    let init_memory: unsafe extern "C" fn() = symbol!(b"gst_cuda_memory_init_once\0")?;
    let found = GstCudaLibrary {
        context_new: symbol!(b"gst_cuda_context_new\0")?,
        context_new_wrapped: symbol!(b"gst_cuda_context_new_wrapped\0")?,
        context_get_handle: symbol!(b"gst_cuda_context_get_handle\0")?,
        context_new_cuda_context: symbol!(b"gst_context_new_cuda_context\0")?,
        is_cuda_memory: symbol!(b"gst_is_cuda_memory\0")?,
        buffer_pool_new: symbol!(b"gst_cuda_buffer_pool_new\0")?,
        streams: match (symbol!(b"gst_cuda_memory_get_stream\0"), symbol!(b"gst_cuda_stream_get_handle\0")) {
            (Ok(memory_get_stream), Ok(stream_get_handle)) => Some(Streams { memory_get_stream, stream_get_handle }),
            _ => None,
        },
    };
    // SAFETY: takes nothing; everything else in the library relies on its success.
    if unsafe { load() } == glib::ffi::GFALSE {
        return Err("it finds no NVIDIA driver that it can use".into());
    }
    // SAFETY: the driver is there. In 1.22 only nvcodec would register the allocator.
    unsafe { init_memory() };
    Ok(found)
}

/// Whether frames in CUDA memory can be used on this machine.
///
/// # Errors
/// `GstCudaLibrary`, with what is missing.
pub fn available() -> Result<()> {
    library().map(drop)
}

/// The `cuda-device-id` that every element has.
pub fn device_id_property() -> glib::ParamSpec {
    glib::ParamSpecInt::builder("cuda-device-id")
        .nick("CUDA device id")
        .blurb("The GPU to use, as CUDA counts them (-1 = the pipeline's)")
        .minimum(-1)
        .default_value(-1)
        .mutable_ready()
        .build()
}

/// The public head of GstCudaMemory.
#[repr(C)]
struct CudaMemory {
    memory: ffi::GstMemory,
    context: *mut ffi::GstObject,
}

/// The one CUDA memory that a buffer consists of, if it does. Never asks a machine without CUDA.
pub fn memory(buffer: &gst::BufferRef) -> Option<CudaMemoryRef<'_>> {
    let library = library().ok().filter(|_| buffer.n_memory() == 1)?;
    let memory = buffer.peek_memory(0);
    // SAFETY: any memory may be asked.
    let is_cuda = unsafe { (library.is_cuda_memory)(memory.as_mut_ptr()) } != glib::ffi::GFALSE;
    is_cuda.then_some(CudaMemoryRef { memory, library })
}

/// Memory on the GPU, of GStreamer.
pub struct CudaMemoryRef<'a> {
    memory: &'a gst::MemoryRef,
    library: &'static GstCudaLibrary,
}

impl<'a> CudaMemoryRef<'a> {
    pub fn context(&self) -> Result<Context> {
        // SAFETY: it is a GstCudaMemory, which keeps its context.
        let object: gst::Object = unsafe { from_glib_none((*self.memory.as_ptr().cast::<CudaMemory>()).context) };
        registry::of(&object)
    }

    /// Maps it for the GPU. `write` needs memory that is not shared.
    pub fn map(&self, write: bool) -> Result<MappedCudaMemory<'a>> {
        let flags = MAP_CUDA | if write { ffi::GST_MAP_READ | ffi::GST_MAP_WRITE } else { ffi::GST_MAP_READ };
        let mut info = std::mem::MaybeUninit::<ffi::GstMapInfo>::zeroed();
        // SAFETY: known to be CUDA memory; `info` is written on success.
        let mapped = unsafe { ffi::gst_memory_map(self.memory.as_mut_ptr(), info.as_mut_ptr(), flags) };
        if mapped == glib::ffi::GFALSE {
            let failed = Error::new(ErrorKind::Run, "Cannot map a frame in CUDA memory")
                .remedy("Look at GST_DEBUG=cuda*:5 for the reason");
            return Err(self.context()?.or_lost(failed));
        }
        // SAFETY: mapping succeeded. The stream belongs to the memory.
        unsafe {
            let info = info.assume_init();
            let stream = self.library.streams.as_ref().and_then(|streams| {
                let stream = (streams.memory_get_stream)(self.memory.as_mut_ptr());
                (!stream.is_null()).then(|| (streams.stream_get_handle)(stream))
            });
            Ok(MappedCudaMemory {
                address: info.data as u64,
                stream: stream.and_then(NonNull::new),
                info,
                _memory: PhantomData,
            })
        }
    }
}

/// CUDA memory that is mapped for the GPU, until this is dropped. It cannot outlive its buffer:
///
/// ```compile_fail,E0505
/// fn outlives(buffer: gst::Buffer) -> gsttrt::error::Result<()> {
///     let mapped = gsttrt::gst::cuda::memory(&buffer).unwrap().map(false)?;
///     drop(buffer);
///     drop(mapped);
///     Ok(())
/// }
/// ```
pub struct MappedCudaMemory<'a> {
    pub address: u64,
    /// The stream on which work that writes it may still be queued.
    stream: Option<NonNull<c_void>>,
    info: ffi::GstMapInfo,
    /// What is mapped.
    _memory: PhantomData<&'a gst::MemoryRef>,
}

impl MappedCudaMemory<'_> {
    /// Lets `ours` wait until the work that writes the memory is done.
    pub fn order(&self, ours: &driver::Stream) -> Result<()> {
        match self.stream {
            // SAFETY: the memory, which is mapped, keeps its stream, and it is of the same context.
            Some(stream) => unsafe { ours.wait_for(stream.as_ptr()) },
            None => Ok(()),
        }
    }
}

impl Drop for MappedCudaMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: mapped in Memory::map; the memory is still borrowed.
        unsafe { ffi::gst_memory_unmap(self.info.memory, &mut self.info) }
    }
}

/// A pool of frames in CUDA memory, configured and inactive, and the size that its buffers really have.
pub fn pool(context: &Context, caps: &gst::Caps, size: u32, least: u32) -> Result<(gst::BufferPool, u32)> {
    let failed = |cause: String| {
        Error::new(ErrorKind::Negotiation, "Cannot make a pool of frames in CUDA memory")
            .cause(cause)
            .remedy("Check the size of the frames and the GPU's free memory")
    };
    let library = library()?;
    let Some(ContextOwner(object)) = context.owner() else {
        return Err(failed("the context is not GStreamer's".into()));
    };
    // SAFETY: the object is a GstCudaContext; the pool is ours.
    let pool: gst::BufferPool = unsafe { from_glib_full((library.buffer_pool_new)(object.as_ptr())) };
    let mut config = pool.config();
    config.set_params(Some(caps), size, least, 0);
    config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META.as_ref());
    pool.set_config(config).map_err(|error| failed(error.to_string()))?;
    let size = pool.config().params().map_or(size, |(_, size, _, _)| size);
    Ok((pool, size))
}

const _: () = assert!(size_of::<ffi::GstMemory>() == 112 && std::mem::offset_of!(CudaMemory, context) == 112);
