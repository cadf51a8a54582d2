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

use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

use gst::glib::translate::*;
use gst::prelude::*;
use gst::{ffi, glib};
use gsttrt_core::cuda::driver::{self, Context, WeakContext};
use gsttrt_core::error::{Error, ErrorKind, Result};

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
    LIBRARY.get_or_init(open).as_ref().map_err(|cause| {
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

/// A GstCudaContext, as the owner of our [`Context`].
struct ContextOwner(gst::Object);

/// Contexts that stand for GstCudaContexts.
static KNOWN: Mutex<Vec<WeakContext>> = Mutex::new(Vec::new());

/// The context that stands for a GstCudaContext; all elements get the same one, so that they share modules and events.
fn context_of(object: &gst::Object) -> Result<Context> {
    let library = library()?;
    let mut known = KNOWN.lock().unwrap();
    known.retain(|context| context.upgrade().is_some());
    let same = |context: &Context| context.owner::<ContextOwner>().is_some_and(|owner| owner.0 == *object);
    if let Some(context) = known.iter().filter_map(WeakContext::upgrade).find(same) {
        return Ok(context);
    }
    let device = object.property::<u32>(DEVICE_FIELD) as i32;
    // SAFETY: the object is a GstCudaContext, whose CUcontext lives as long as the object, which the owner keeps.
    let context = unsafe {
        let raw = (library.context_get_handle)(object.as_ptr());
        Context::wrap(raw, device, Box::new(ContextOwner(object.clone())))?
    };
    let _ = context.use_blocking_sync(); // all works without it
    known.push(context.downgrade());
    Ok(context)
}

/// A context on that device which some pipeline of this process works in.
fn known(device: i32) -> Option<Context> {
    let known: Vec<Context> = KNOWN.lock().unwrap().iter().filter_map(WeakContext::upgrade).collect();
    // After a failed kernel every call in a context fails, this one too; a new pipeline then gets a new context.
    known.into_iter().find(|context| context.device() == device && context.memory().is_ok())
}

/// A new one.
fn make(library: &GstCudaLibrary, device: i32) -> Result<Context> {
    // A wrong number would only be logged.
    let count = driver::device_count()?;
    if device >= count {
        return Err(driver::no_device(device, count));
    }
    // SAFETY: the library is loaded and the device exists; the object becomes ours.
    let object = unsafe { (library.context_new)(device.max(0) as c_uint) };
    if object.is_null() {
        return Err(Error::new(ErrorKind::Library, format!("Cannot start CUDA on device {}", device.max(0)))
            .cause("gst_cuda_context_new failed")
            .remedy("Look at GST_DEBUG=cuda*:5; the GPU may be in exclusive use or out of memory"));
    }
    // SAFETY: a new object, ours alone.
    let object: gst::Object = unsafe { from_glib_full(object) };
    context_of(&object)
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

/// Holds the context that an element shares with the others of its pipeline, and those of other pipelines: contexts take
/// turns on a GPU, and work in one of them runs in parallel.
#[derive(Default)]
pub struct CudaContextSlot(Mutex<Option<Context>>);

impl CudaContextSlot {
    /// The context to work in: the one that is here already, the neighbours', the application's, another pipeline's, or
    /// a new one that is then shared with all of them. `device` is the user's choice, -1 for none.
    ///
    /// # Errors
    /// `GstCudaLibrary` without CUDA, `Settings` for a device that is not there.
    pub fn ensure(&self, element: &impl IsA<gst::Element>, device: i32) -> Result<Context> {
        driver::available()?;
        if let Some(context) = self.fitting(device) {
            return Ok(context);
        }
        let Ok(library) = library() else {
            // No CUDA memory can arrive then, so no context has to be shared.
            return self.put(Context::primary(device.max(0))?);
        };
        let element = element.upcast_ref();
        // Upstream first: elements downstream may have joined any context.
        for pad in element.sink_pads().into_iter().chain(element.src_pads()) {
            let mut query = gst::query::Context::new(CONTEXT_TYPE);
            if pad.peer_query(&mut query)
                && let Some(context) = query.context_owned()
            {
                self.set(&context, device);
            }
            if let Some(context) = self.fitting(device) {
                return Ok(context);
            }
        }
        self.given(element, device).map_or_else(|| self.join_or_make(library, element, device), Ok)
    }

    /// The one that is here already, or the application's.
    fn given(&self, element: &gst::Element, device: i32) -> Option<Context> {
        self.fitting(device).or_else(|| {
            // Answers, if any, come by way of the element's set_context.
            let _ = element.post_message(gst::message::NeedContext::builder(CONTEXT_TYPE).src(element).build());
            self.fitting(device)
        })
    }

    /// Another pipeline's, or a new one.
    fn join_or_make(&self, library: &GstCudaLibrary, element: &gst::Element, device: i32) -> Result<Context> {
        let context = match known(device.max(0)) {
            Some(context) => context,
            None => make(library, device)?,
        };
        if let Some(shared) = share(&context) {
            let _ = element.post_message(gst::message::HaveContext::builder(shared).src(element).build());
        }
        self.put(context)
    }

    fn fitting(&self, device: i32) -> Option<Context> {
        self.0.lock().unwrap().clone().filter(|context| device < 0 || context.device() == device)
    }

    fn put(&self, context: Context) -> Result<Context> {
        *self.0.lock().unwrap() = Some(context.clone());
        Ok(context)
    }

    /// What an element's `set_context` does: [`CudaContextSlot::offer`] with what is in there.
    pub fn set(&self, context: &gst::ContextRef, device: i32) {
        if context.context_type() != CONTEXT_TYPE {
            return;
        }
        let object = context.structure().get::<gst::Object>(CONTEXT_TYPE).ok();
        // Any application can make a context of that type with any content.
        let object = object.filter(|object| object.type_().name() == "GstCudaContext");
        let Some(Ok(context)) = object.map(|object| context_of(&object)) else { return };
        self.offer(&context, device);
    }

    /// Takes the context over if there is none yet and it is of the chosen device.
    pub fn offer(&self, context: &Context, device: i32) {
        if self.fitting(device).is_none() && (device < 0 || context.device() == device) {
            let _ = self.put(context.clone());
        }
    }

    /// Answers a neighbour's query for the context, which came to a pad of that direction; false where it is another
    /// query or there is none. Decoders ask when they open, before other elements have one: so those of one device
    /// share it, though a pipeline knows only one context for all devices.
    pub fn answer(
        &self,
        element: &impl IsA<gst::Element>,
        device: i32,
        direction: gst::PadDirection,
        query: &mut gst::QueryRef,
    ) -> bool {
        let gst::QueryViewMut::Context(query) = query.view_mut() else { return false };
        if query.context_type() != CONTEXT_TYPE {
            return false;
        }
        let Ok(library) = library() else { return false };
        // Neighbours are not queried here, because they would query back.
        let element = element.upcast_ref();
        let context = self.given(element, device).or_else(|| match direction {
            _ if device >= 0 => self.join_or_make(library, element, device).ok(),
            // It is not known yet where frames will come from. A decoder on another GPU does not take it.
            gst::PadDirection::Sink => known(0),
            // Elements upstream know it.
            _ => None,
        });
        let Some(shared) = context.as_ref().and_then(share) else { return false };
        query.set_context(&shared);
        true
    }

    /// Proposes a pool in CUDA memory in answer to an allocation query for CUDA memory. If it cannot be made, upstream
    /// makes its own. A pool that downstream has proposed stays, with enough buffers.
    pub fn propose(&self, element: &impl IsA<gst::Element>, device: i32, query: &mut gst::query::Allocation) {
        // Decoders that hand out their own surfaces have as many as the pool has buffers. Those in flight between here and
        // trtnms, and in the queues of a usual pipeline, must not be all there are.
        const IN_FLIGHT: u32 = 8;
        let (Some(caps), _) = query.get_owned() else { return };
        let is_cuda = caps.features(0).is_some_and(|features| features.contains(MEMORY_FEATURE));
        let Some(info) = is_cuda.then(|| gst_video::VideoInfo::from_caps(&caps).ok()).flatten() else { return };
        if let Some((Some(pool), size, min, max)) = query.allocation_pools().next() {
            let max = if max == 0 { 0 } else { max.max(IN_FLIGHT) };
            query.set_nth_allocation_pool(0, Some(&pool), size, min.max(IN_FLIGHT), max);
            return;
        }
        let made =
            self.ensure(element, device).and_then(|context| pool(&context, &caps, info.size() as u32, IN_FLIGHT));
        if let Ok((pool, size)) = made {
            query.add_allocation_pool(Some(&pool), size, IN_FLIGHT, 0);
            query.add_allocation_meta::<gst_video::VideoMeta>(None);
        }
    }

    /// From now on works in the context of the frames that arrive.
    ///
    /// # Errors
    /// `Settings`, if the user wants another device.
    pub fn follow(&self, context: &Context, device: i32) -> Result<()> {
        if device >= 0 && device != context.device() {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("cuda-device-id is {device}, and frames come from GPU {}", context.device()),
            )
            .remedy(
                "Set the same cuda-device-id on all elements, or -1; between two GPUs put cudadownload ! cudaupload",
            ));
        }
        self.put(context.clone()).map(drop)
    }

    /// Takes over the primary context of a GPU, in which NVIDIA's own elements work, by their number of the GPU.
    ///
    /// # Errors
    /// `Settings`, if the user wants another device, or there is no such GPU.
    pub fn follow_primary(&self, gpu: i32, device: i32) -> Result<Context> {
        if device >= 0 && device != gpu {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("cuda-device-id is {device}, and frames come from GPU {gpu}"),
            )
            .remedy("Set the same cuda-device-id on all elements, or -1, and the same gpu-id on those before"));
        }
        if let Some(context) = self.fitting(gpu).filter(Context::is_primary) {
            return Ok(context);
        }
        let count = driver::device_count()?;
        if gpu >= count {
            let what = format!("Frames come from GPU {gpu}, and this process sees {count}");
            return Err(Error::new(ErrorKind::Settings, what)
                .remedy("Set gpu-id of the elements before to one of them, or make the GPU visible to this process"));
        }
        let context = Context::primary(gpu)?;
        self.put(context)
    }

    /// Forgets the context; another start may find another one.
    pub fn clear(&self) {
        *self.0.lock().unwrap() = None;
    }
}

/// As others take it over; `None` for contexts that are not GStreamer's.
fn share(context: &Context) -> Option<gst::Context> {
    let ContextOwner(object) = context.owner()?;
    // SAFETY: the object is a GstCudaContext; the result is ours.
    library().ok().map(|library| unsafe { from_glib_full((library.context_new_cuda_context)(object.as_ptr())) })
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
        context_of(&object)
    }

    /// Maps it for the GPU. `write` needs memory that is not shared.
    pub fn map(&self, write: bool) -> Result<MappedCudaMemory<'a>> {
        let flags = MAP_CUDA | if write { ffi::GST_MAP_READ | ffi::GST_MAP_WRITE } else { ffi::GST_MAP_READ };
        let mut info = std::mem::MaybeUninit::<ffi::GstMapInfo>::zeroed();
        // SAFETY: known to be CUDA memory; `info` is written on success.
        let mapped = unsafe { ffi::gst_memory_map(self.memory.as_mut_ptr(), info.as_mut_ptr(), flags) };
        if mapped == glib::ffi::GFALSE {
            return Err(Error::new(ErrorKind::Run, "Cannot map a frame in CUDA memory")
                .remedy("Look at GST_DEBUG=cuda*:5 for the reason"));
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
