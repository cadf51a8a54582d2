//! The CUDA driver API as this crate uses it: contexts, streams, fences, modules.
//!
//! Small safe types on cudarc's `sys` and `result` floors. cudarc's own safe types do not do, because they make contexts of
//! their own, and ours must be the one that GStreamer's decoder works in. Every function makes its context current for as
//! long as it needs it; only foreign code that wants a current context (TensorRT) asks for [`Context::enter`].
//!
//! Nothing here may be called before [`available`] has said yes; [`Context`] sees to it.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::{DriverError, result, sys};

use crate::error::{Error, Kind, Result};
use crate::memory::DeviceBlock;
use crate::stats;

/// What there is of CUDA on this machine.
///
/// ```
/// use gsttrt::cuda::driver::GpuStatus;
///
/// match GpuStatus::detect() {
///     GpuStatus::Available(count) => println!("{count} GPUs"),
///     missing => println!("the CPU it is: {missing}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuStatus {
    /// There is no driver, or it does not start, and why.
    NoDriver(String),
    /// The driver finds no GPU.
    NoDevices,
    /// As many GPUs.
    Available(u32),
}

impl GpuStatus {
    /// Looks once in a process, for the driver does not change its mind.
    pub fn detect() -> Self {
        static FOUND: OnceLock<GpuStatus> = OnceLock::new();
        let look = || {
            // SAFETY: looks for the library by its names, nothing else.
            if !unsafe { sys::is_culib_present() } {
                let missing = "libcuda.so.1, which comes with NVIDIA's driver, is not on this machine";
                return GpuStatus::NoDriver(missing.into());
            }
            match result::init().and_then(|()| result::device::get_count()) {
                Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => GpuStatus::NoDevices,
                Err(error) => GpuStatus::NoDriver(format!("the driver does not start: {}", describe(error))),
                Ok(count) => u32::try_from(count)
                    .ok()
                    .filter(|&count| count > 0)
                    .map_or(GpuStatus::NoDevices, GpuStatus::Available),
            }
        };
        FOUND.get_or_init(look).clone()
    }
}

impl fmt::Display for GpuStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuStatus::NoDriver(why) => f.write_str(why),
            GpuStatus::NoDevices => f.write_str("the driver finds no GPU"),
            GpuStatus::Available(1) => f.write_str("there is 1 GPU"),
            GpuStatus::Available(count) => write!(f, "there are {count} GPUs"),
        }
    }
}

/// Whether there is a driver with a device.
///
/// # Errors
/// `Library`, with what is missing.
pub fn available() -> Result<()> {
    match GpuStatus::detect() {
        GpuStatus::Available(_) => Ok(()),
        missing => Err(Error::new(Kind::Library, "Cannot use CUDA").cause(missing).remedy(
            "Install NVIDIA's driver and make the GPU visible to this process, or use system memory and backend=cpu",
        )),
    }
}

/// CUDA's name and words for an error.
fn describe(error: DriverError) -> String {
    let text = |text: std::result::Result<&CStr, DriverError>| text.map(|t| t.to_string_lossy().into_owned());
    match (text(error.error_name()), text(error.error_string())) {
        (Ok(name), Ok(words)) => format!("{name} ({words})"),
        _ => format!("error {}", error.0 as u32),
    }
}

/// Makes our error of CUDA's: `what` is what failed.
pub(crate) trait Check<T> {
    fn or_fail(self, what: &str) -> Result<T>;
}

impl<T> Check<T> for std::result::Result<T, DriverError> {
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T> {
        // Not `map_err`, whose closure would be the place that the error names.
        match self {
            Ok(value) => Ok(value),
            Err(error) => {
                let remedy = match error.0 {
                    sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                        "Free memory of the GPU: end other programs, or use a smaller model, fewer streams or shorter queues"
                    }
                    sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION | sys::CUresult::CUDA_ERROR_INVALID_PTX => {
                        "Update NVIDIA's driver to 535 or later"
                    }
                    sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => "Use a GPU of the Turing generation or later",
                    _ => "Look into the kernel's log for messages of the NVIDIA driver",
                };
                Err(Error::new(Kind::Run, what).cause(describe(error)).remedy(remedy))
            }
        }
    }
}

/// A CUDA context, shared. What is made in it keeps it alive.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    raw: sys::CUcontext,
    device: i32,
    owner: Owner,
    /// Events that nobody uses; making one takes longer than recording it.
    events: Mutex<Vec<Event>>,
    /// And those that know when they are passed.
    timed: Mutex<Vec<Event>>,
    /// By the address of their text.
    modules: Mutex<HashMap<usize, Arc<Module>>>,
    /// Those that are shared.
    streams: Mutex<HashMap<Purpose, Vec<Weak<RawStream>>>>,
}

/// Who keeps the context.
enum Owner {
    /// We do, by a reference to the device's primary context.
    Primary(sys::CUdevice),
    /// Whatever is in here.
    Foreign(Box<dyn Any + Send + Sync>),
}

// SAFETY: CUDA contexts, events and modules may be used by any thread.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

/// An event of CUDA, as it lies in a context's pool.
struct Event(sys::CUevent);

// SAFETY: CUDA events may be used by any thread.
unsafe impl Send for Event {}
unsafe impl Sync for Event {}

impl Context {
    /// The primary context of a device, which cudart and PyTorch use too.
    pub fn primary(device: i32) -> Result<Self> {
        let count = device_count()?;
        if !(0..count).contains(&device) {
            return Err(no_device(device, count));
        }
        let handle = result::device::get(device).or_fail("Cannot open the GPU")?;
        // SAFETY: the handle is a device; the reference taken here is given back when the context is dropped.
        let raw = unsafe { result::primary_ctx::retain(handle) }.or_fail("Cannot start CUDA on the GPU")?;
        Ok(Context::new(raw, device, Owner::Primary(handle)))
    }

    /// A context that somebody else made.
    ///
    /// # Safety
    /// `raw` is a context on that device and lives as long as `owner`.
    pub unsafe fn wrap(raw: *mut c_void, device: i32, owner: Box<dyn Any + Send + Sync>) -> Result<Self> {
        available()?;
        Ok(Context::new(raw.cast(), device, Owner::Foreign(owner)))
    }

    fn new(raw: sys::CUcontext, device: i32, owner: Owner) -> Self {
        Context(Arc::new(Inner {
            raw,
            device,
            owner,
            events: Mutex::default(),
            timed: Mutex::default(),
            modules: Mutex::default(),
            streams: Mutex::default(),
        }))
    }

    /// What was given to [`Context::wrap`], if it is a `T`.
    pub fn owner<T: Any>(&self) -> Option<&T> {
        match &self.0.owner {
            Owner::Primary(_) => None,
            Owner::Foreign(owner) => owner.downcast_ref(),
        }
    }

    /// A handle that does not keep the context.
    pub fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.0))
    }

    /// The ordinal of its GPU, as CUDA counts.
    pub fn device(&self) -> i32 {
        self.0.device
    }

    /// CUDA's own handle.
    pub fn raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }

    /// Makes this the calling thread's context until the guard is dropped. Guards nest.
    pub fn enter(&self) -> Result<Entered<'_>> {
        // SAFETY: the context is alive.
        unsafe { sys::cuCtxPushCurrent_v2(self.0.raw) }.result().or_fail("Cannot enter the CUDA context")?;
        Ok(Entered { _context: self, _of_this_thread: PhantomData })
    }

    /// Bytes of GPU memory that are free, and all there are.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        result::mem_get_info().or_fail("Cannot ask for the GPU's memory")
    }

    /// "NVIDIA H200"
    pub fn device_name(&self) -> Result<String> {
        let device = result::device::get(self.0.device).or_fail("Cannot open the GPU")?;
        result::device::get_name(device).or_fail("Cannot ask for the GPU's name")
    }

    /// Major and minor, like (9, 0).
    pub fn compute_capability(&self) -> Result<(i32, i32)> {
        use sys::CUdevice_attribute::*;
        Ok((
            self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Whether the GPU reads host memory as fast as its own: it shares it (Jetson), or a coherent link (Grace Hopper, GB10).
    pub fn reads_host_memory_well(&self) -> Result<bool> {
        use sys::CUdevice_attribute::*;
        let asked = [CU_DEVICE_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES];
        asked.into_iter().try_fold(false, |found, attribute| Ok(found || self.attribute(attribute)? != 0))
    }

    /// Where the GPU finds memory of the host; `None` where it does not see it: ordinary memory is seen only by some.
    pub fn address_of(&self, host: *const u8) -> Result<Option<u64>> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
        let _entered = self.enter()?;
        let mut address = 0u64;
        // SAFETY: writes an address; any may be asked for.
        let known = unsafe {
            sys::cuPointerGetAttribute(
                (&raw mut address).cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                host as u64,
            )
        };
        match known {
            sys::CUresult::CUDA_SUCCESS if address != 0 => Ok(Some(address)),
            _ if self.attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0 => Ok(Some(host as u64)),
            _ => Ok(None),
        }
    }

    /// What CUDA says of the GPU.
    pub(crate) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32> {
        let device = result::device::get(self.0.device).or_fail("Cannot open the GPU")?;
        // SAFETY: the device was just opened.
        unsafe { result::device::get_attribute(device, attribute) }.or_fail("Cannot ask what the GPU can do")
    }

    /// The module of that PTX, loaded on the first call; the driver compiles it then, and keeps the outcome on disk.
    pub fn module(&self, ptx: &'static CStr) -> Result<Arc<Module>> {
        let mut modules = self.0.modules.lock().unwrap();
        if let Some(module) = modules.get(&(ptx.as_ptr() as usize)) {
            return Ok(module.clone());
        }
        let _entered = self.enter()?;
        // SAFETY: PTX is text that ends with NUL.
        let raw = unsafe { result::module::load_data(ptx.as_ptr().cast()) }.or_fail("Cannot load GPU kernels")?;
        let module = Arc::new(Module { raw });
        modules.insert(ptx.as_ptr() as usize, module.clone());
        Ok(module)
    }

    fn event(&self) -> Result<Event> {
        if let Some(event) = self.0.events.lock().unwrap().pop() {
            return Ok(event);
        }
        // Waiting for it sleeps: with a stream per core, spinning would leave nothing for decoders and encoders.
        self.new_event(
            sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32,
        )
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

/// See [`Context::downgrade`].
pub struct WeakContext(Weak<Inner>);

impl WeakContext {
    pub fn upgrade(&self) -> Option<Context> {
        self.0.upgrade().map(Context)
    }
}

/// How many GPUs there are.
pub fn device_count() -> Result<i32> {
    available()?;
    result::device::get_count().or_fail("Cannot count the GPUs")
}

/// What a wrong `cuda-device-id` is answered.
pub fn no_device(device: i32, count: i32) -> Error {
    let remedy = match count {
        1 => "Set cuda-device-id to 0 or -1".to_string(),
        count => format!("Set cuda-device-id to a number from 0 to {}, or to -1", count - 1),
    };
    Error::new(Kind::Settings, format!("There is no CUDA device {device}")).remedy(remedy)
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({:?} on device {})", self.0.raw, self.0.device)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: nobody else has a share of this context, so its events and modules are not in use; errors on the way out
        // (a context that its process is about to lose) have nobody to hear them.
        unsafe {
            if sys::cuCtxPushCurrent_v2(self.raw).result().is_err() {
                return;
            }
            let events = self.events.get_mut().unwrap().drain(..).chain(self.timed.get_mut().unwrap().drain(..));
            for Event(event) in events {
                let _ = result::event::destroy(event);
            }
            for (_, module) in self.modules.get_mut().unwrap().drain() {
                let _ = result::module::unload(module.raw);
            }
            let mut popped = ptr::null_mut();
            let _ = sys::cuCtxPopCurrent_v2(&mut popped);
            if let Owner::Primary(device) = self.owner {
                let _ = result::primary_ctx::release(device);
            }
        }
    }
}

/// The calling thread works in a context.
pub struct Entered<'a> {
    _context: &'a Context,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: pops what `enter` pushed; guards are dropped in the reverse order of a thread's entering.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}

/// What a shared stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Frames to tensors.
    Preprocess,
    /// Outputs to boxes.
    Boxes,
    /// Boxes on frames.
    Paint,
}

/// A queue of GPU work. Not ordered with the legacy default stream.
pub struct Stream {
    context: Context,
    shared: Arc<RawStream>,
}

/// A stream of CUDA; gone with the last who shares it.
struct RawStream {
    raw: sys::CUstream,
    context: Context,
}

// SAFETY: CUDA streams may be used by any thread.
unsafe impl Send for RawStream {}
unsafe impl Sync for RawStream {}

impl Drop for RawStream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the handle is ours, and not used after this.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

impl Stream {
    /// A stream that nobody else queues on.
    pub fn new(context: &Context) -> Result<Self> {
        let _entered = context.enter()?;
        let raw =
            result::stream::create(result::stream::StreamKind::NonBlocking).or_fail("Cannot make a CUDA stream")?;
        let shared = Arc::new(RawStream { raw, context: context.clone() });
        Ok(Stream { context: context.clone(), shared })
    }

    /// A stream for such work. The first [`Stream::MOST_OF_A_PURPOSE`] of a context are alone on theirs; further ones share
    /// them, so a process with any number of pipelines has so many, which is about what a GPU works on at once.
    pub fn of(context: &Context, purpose: Purpose) -> Result<Self> {
        let mut streams = context.0.streams.lock().unwrap();
        let known = streams.entry(purpose).or_default();
        known.retain(|stream| stream.strong_count() > 0);
        let shared = match known.len() < Stream::MOST_OF_A_PURPOSE {
            true => None,
            false => known.iter().min_by_key(|stream| stream.strong_count()).and_then(Weak::upgrade),
        };
        let stream = match shared {
            Some(shared) => Stream { context: context.clone(), shared },
            None => Stream::new(context)?,
        };
        if !known.iter().any(|known| known.as_ptr() == Arc::as_ptr(&stream.shared)) {
            known.push(Arc::downgrade(&stream.shared));
        }
        Ok(stream)
    }

    /// See [`Stream::of`].
    pub const MOST_OF_A_PURPOSE: usize = 16;

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
        unsafe { self.context.record(self.handle()) }
    }

    /// Begins to take the GPU's time for what is queued from now on, if somebody [measures](stats::Stage) this thread's work.
    /// That a time cannot be taken is no reason not to work.
    pub fn begin_timing(&self) -> Option<TimedEvent> {
        stats::is_measuring().then(|| self.mark().ok()).flatten()
    }

    /// Ends what [`Stream::begin_timing`] began.
    pub fn end_timing(&self, begin: Option<TimedEvent>) {
        if let Some(begin) = begin
            && let Ok(end) = self.mark()
        {
            stats::measured(Timing { begin, end });
        }
    }

    fn mark(&self) -> Result<TimedEvent> {
        let event = TimedEvent { event: self.context.timed_event()?, context: self.context.clone() };
        let _entered = self.context.enter()?;
        // SAFETY: both handles are alive.
        unsafe { result::event::record(event.event.0, self.handle()) }.or_fail("Cannot mark GPU work")?;
        Ok(event)
    }

    /// What is queued after this starts only once the fence is passed. The host does not wait.
    pub fn wait(&self, fence: &Fence) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: both handles are alive. That the event may be recorded anew before the stream gets there is no matter: the
        // stream waits for what it stood for at this call.
        unsafe {
            result::stream::wait_event(self.handle(), fence.0.event.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
        .or_fail("Cannot order GPU work")
    }

    /// As [`Stream::wait`], for all that is queued so far on a stream that somebody else made.
    ///
    /// # Safety
    /// `other` is a stream of this context and alive.
    pub unsafe fn wait_for(&self, other: *mut c_void) -> Result<()> {
        // SAFETY: as the caller says.
        self.wait(&unsafe { self.context.record(other.cast()) }?)
    }

    /// Waits on the host until all that was queued is done.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle is alive.
        stats::waiting(|| unsafe { result::stream::synchronize(self.handle()) }).or_fail("GPU work failed")
    }

    /// Queues a copy from the host. From pageable memory it is read during the call, from pinned memory later.
    ///
    /// # Safety
    /// There is as much memory at `to`; it and pinned bytes stay so until the copy is done.
    pub unsafe fn upload(&self, bytes: &[u8], to: u64) -> Result<()> {
        let _entered = self.context.enter()?;
        stats::uploaded(bytes.len());
        // SAFETY: as the caller says.
        unsafe { result::memcpy_htod_async(to, bytes, self.handle()) }.or_fail("Cannot copy to the GPU")
    }

    /// Queues a copy from GPU memory, of this context or another one, to memory of this one.
    ///
    /// # Safety
    /// There are so many bytes at both places, which stay so until the copy is done.
    pub unsafe fn copy(&self, from: &DeviceBlock, to: u64, bytes: usize) -> Result<()> {
        let _entered = self.context.enter()?;
        let (source, theirs, ours) = (from.address(), from.context().0.raw, self.context.0.raw);
        // SAFETY: as the caller says.
        match theirs == ours {
            true => unsafe { sys::cuMemcpyDtoDAsync_v2(to, source, bytes, self.handle()) },
            false => unsafe { sys::cuMemcpyPeerAsync(to, ours, source, theirs, bytes, self.handle()) },
        }
        .result()
        .or_fail("Cannot copy on the GPU")
    }

    /// Queues a copy of `rows` rows of `row` bytes from one place of the GPU's memory to another: addresses and strides.
    ///
    /// # Safety
    /// Both places have such rows, and stay so until the copy is done.
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
        // SAFETY: as the caller says.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.handle()) }.result().or_fail("Cannot copy on the GPU")
    }

    /// Queues a kernel. `parameters` is the one structure that it takes by value.
    ///
    /// # Safety
    /// The kernel takes exactly a `P`, and every address in it stays valid until the kernel is done.
    pub unsafe fn launch<P: Copy>(&self, function: &Function, shape: Launch, parameters: &P) -> Result<()> {
        let _entered = self.context.enter()?;
        let Launch { grid: (gx, gy, gz), block: (bx, by, bz), shared } = shape;
        let mut pointers = [ptr::from_ref(parameters).cast_mut().cast::<c_void>()];
        // SAFETY: as the caller says; CUDA copies the parameters during the call.
        unsafe {
            sys::cuLaunchKernel(
                function.raw,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared,
                self.handle(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
        .result()
        .or_fail("Cannot start a GPU kernel")
    }
}

impl Context {
    /// The fence that is passed once all is done that was queued so far on a stream that somebody else made; NULL is the
    /// default one.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub unsafe fn fence_on(&self, stream: *mut c_void) -> Result<Fence> {
        // SAFETY: as the caller says.
        unsafe { self.record(stream.cast()) }
    }

    /// What is queued after this on a stream that somebody else made starts only once the fence is passed.
    ///
    /// # Safety
    /// `stream` is a stream of this context and alive.
    pub unsafe fn hold(&self, stream: *mut c_void, fence: &Fence) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: as the caller says; the event is alive.
        unsafe {
            result::stream::wait_event(stream.cast(), fence.0.event.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
        .or_fail("Cannot order GPU work")
    }

    /// Whether there are so many bytes of this GPU's memory.
    ///
    /// # Errors
    /// `WrongType`, with what is there instead.
    pub fn check_memory(&self, address: u64, bytes: usize) -> Result<()> {
        use sys::CUpointer_attribute::*;
        let _entered = self.enter()?;
        let end = address.saturating_add(bytes as u64);
        let mut at = address;
        // Memory that is mapped piece by piece is known piece by piece.
        while at < end {
            let (mut kind, mut device, mut start, mut size) = (0u32, -1i32, 0u64, 0usize);
            let mut asked = [
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            ];
            let mut answers: [*mut c_void; 4] =
                [(&raw mut kind).cast(), (&raw mut device).cast(), (&raw mut start).cast(), (&raw mut size).cast()];
            // SAFETY: as many places for answers of those types; any address may be asked for.
            unsafe { sys::cuPointerGetAttributes(4, asked.as_mut_ptr(), answers.as_mut_ptr(), at) }
                .result()
                .or_fail("Cannot ask what memory that is")?;
            let wrong = |cause: String| Err(Error::new(Kind::WrongType, "The memory cannot be used").cause(cause));
            if kind != sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 {
                return wrong(format!("{at:#x} is no memory of a GPU"));
            }
            if device != self.device() {
                return wrong(format!(
                    "{at:#x} is memory of GPU {device}, and the model runs on GPU {}",
                    self.device()
                ));
            }
            let piece = start.saturating_add(size as u64);
            if piece <= at {
                return wrong(format!(
                    "{} bytes are needed from {address:#x} on, and {} are there",
                    bytes,
                    at - address
                ));
            }
            at = piece;
        }
        Ok(())
    }

    /// # Safety
    /// `stream` is a stream of this context and alive.
    unsafe fn record(&self, stream: sys::CUstream) -> Result<Fence> {
        let event = self.event()?;
        let fence = Fence(Arc::new(Recorded { context: self.clone(), event }));
        let _entered = self.enter()?;
        // SAFETY: the event is of this context and nobody else's; the stream is as the caller says.
        unsafe { result::event::record(fence.0.event.0, stream) }.or_fail("Cannot mark GPU work")?;
        Ok(fence)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What is still queued runs on memory that is about to be freed by whoever owned this stream.
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the handle is alive.
            let _ = unsafe { result::stream::synchronize(self.handle()) };
        }
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
        stats::waiting(|| self.pass())
    }

    fn pass(&self) -> Result<()> {
        // Kernels of a frame take microseconds, waking up takes tens of them: look first, sleep then.
        const LOOK: Duration = Duration::from_micros(30);
        let _entered = self.0.context.enter()?;
        let begun = Instant::now();
        loop {
            // SAFETY: the event is alive and was recorded.
            match unsafe { sys::cuEventQuery(self.0.event.0) } {
                sys::CUresult::CUDA_ERROR_NOT_READY if begun.elapsed() < LOOK => std::hint::spin_loop(),
                sys::CUresult::CUDA_ERROR_NOT_READY => break,
                outcome => return outcome.result().or_fail("GPU work failed"),
            }
        }
        // SAFETY: as above.
        unsafe { result::event::synchronize(self.0.event.0) }.or_fail("GPU work failed")
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
    begin: TimedEvent,
    end: TimedEvent,
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

/// Kernels that were loaded into a context. Lives as long as the context does.
pub struct Module {
    raw: sys::CUmodule,
}

// SAFETY: CUDA modules may be used by any thread.
unsafe impl Send for Module {}
unsafe impl Sync for Module {}

impl Module {
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function> {
        let symbol = CString::new(name).expect("kernel names are ours");
        // SAFETY: the module is loaded.
        let raw = unsafe { result::module::get_function(self.raw, symbol) };
        let raw = raw.or_fail(&format!("Cannot find the GPU kernel {name}"))?;
        Ok(Function { raw, _module: self.clone() })
    }
}

/// A kernel, to be launched on streams of the context that its module was loaded into.
#[derive(Clone)]
pub struct Function {
    raw: sys::CUfunction,
    _module: Arc<Module>,
}

// SAFETY: CUDA functions may be used by any thread.
unsafe impl Send for Function {}
unsafe impl Sync for Function {}

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
    fn what_is_missing_is_said() {
        match (GpuStatus::detect(), available()) {
            (GpuStatus::Available(count), Ok(())) => assert!(count > 0 && Context::primary(0).is_ok()),
            (missing, Err(error)) => {
                assert_eq!(error.kind(), Kind::Library);
                assert!(error.message().starts_with(&format!("Cannot use CUDA: {missing}. ")), "{error}");
                assert!(Context::primary(0).is_err());
            }
            (status, Ok(())) => panic!("{status:?}"),
        }
    }

    /// Nothing to see without a GPU; the GPU machine runs this too.
    #[test]
    fn many_pipelines_share_some_streams() {
        let Ok(context) = Context::primary(0).map_err(|error| println!("SKIP: {error}")) else { return };
        let boxes: Vec<Stream> = (0..64).map(|_| Stream::of(&context, Purpose::Boxes).unwrap()).collect();
        let paint = Stream::of(&context, Purpose::Paint).unwrap();
        let count = |streams: &[Stream]| {
            let mut raw: Vec<_> = streams.iter().map(Stream::raw).collect();
            raw.sort();
            raw.dedup();
            raw.len()
        };
        assert_eq!(count(&boxes), Stream::MOST_OF_A_PURPOSE);
        assert_eq!(count(&boxes[..Stream::MOST_OF_A_PURPOSE]), Stream::MOST_OF_A_PURPOSE, "the first are alone");
        assert!(boxes.iter().all(|stream| stream.raw() != paint.raw()));
        drop(boxes);
        let alone = Stream::of(&context, Purpose::Boxes).unwrap();
        assert_eq!(Arc::strong_count(&alone.shared), 1, "those that nobody has are gone");
    }

    #[test]
    fn a_wrong_device_is_refused_with_those_there_are() {
        assert_eq!(no_device(3, 1).message(), "There is no CUDA device 3. Set cuda-device-id to 0 or -1.");
        assert!(no_device(9, 4).message().contains("from 0 to 3"));
    }
}
