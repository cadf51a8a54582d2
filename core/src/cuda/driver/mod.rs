// SPDX-License-Identifier: MPL-2.0
//! The CUDA driver API as this crate uses it: contexts and modules, [streams](Stream), [fences](Fence).
//!
//! Small safe types on cudarc's `sys` and `result` modules. cudarc's own safe types cannot be used, because they make
//! contexts of their own, and ours must be the one of GStreamer's decoder. Every function makes its context current for as
//! long as it needs it; only foreign code that wants a current context (TensorRT) is called within [`Context::with`].
//!
//! Nothing here may be called before [`available`] has returned `Ok`; [`Context`] ensures that.

mod egl;
#[cfg(test)]
pub(crate) mod faults;
mod fence;
mod ipc;
mod lost;
mod pointers;
mod queued;
mod shared;
mod stream;

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use cudarc::driver::{DriverError, result, sys};

use crate::counters;
use crate::error::{Error, ErrorKind, Result};
pub use egl::EglPicture;
use fence::{Event, EventKind};
pub use fence::{Fence, TimedEvent, Timing, WaitHistory};
use lost::OnGpu;
pub use lost::{WaitLimit, check, lost, when_lost};
pub use shared::{ContextFinder, find_contexts_by};
use stream::RawStream;
pub use stream::{Launch, Stream, StreamRole};

/// Whether CUDA can be used on this machine.
///
/// ```
/// use gsttrt_core::session::GpuStatus;
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
    /// The number of GPUs.
    Available(u32),
}

static FOUND: OnceLock<GpuStatus> = OnceLock::new();

/// Whether this process has started the driver: threads of it, and of the libraries above it, stay until the end.
pub fn is_started() -> bool {
    matches!(FOUND.get(), Some(GpuStatus::Available(_)))
}

impl GpuStatus {
    /// Checked once in a process, because the driver keeps its answer.
    pub fn detect() -> Self {
        let look = || {
            // SAFETY: looks for the library by its names, nothing else. Miri cannot.
            if cfg!(miri) || !unsafe { sys::is_culib_present() } {
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
        missing => Err(Error::new(ErrorKind::Library, "Cannot use CUDA").cause(missing).remedy(
            "Install NVIDIA's driver and make the GPU visible to this process, or use system memory and backend=cpu",
        )),
    }
}

/// CUDA's name and text of an error.
fn describe(error: DriverError) -> String {
    let text = |text: std::result::Result<&CStr, DriverError>| text.map(|t| t.to_string_lossy().into_owned());
    match (text(error.error_name()), text(error.error_string())) {
        (Ok(name), Ok(words)) => format!("{name} ({words})"),
        _ => format!("error {}", error.0 as u32),
    }
}

/// Converts CUDA's error to ours: `what` is what failed. Every result of the driver passes here, so that one after which the
/// GPU is [`lost`] is noticed wherever it comes first.
pub(crate) trait Check<T> {
    fn or_fail(self, what: &str) -> Result<T>;
}

impl<T> Check<T> for std::result::Result<T, DriverError> {
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T> {
        // Not `map_err`, whose closure would be the location in the error.
        match self {
            Ok(value) => Ok(value),
            Err(error) => {
                if let Some(lost) = lost::note(error, what) {
                    return Err(lost);
                }
                let is_out_of_memory = error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
                let remedy = match error.0 {
                    _ if is_out_of_memory => {
                        "Free memory of the GPU: end other programs, or use a smaller model, fewer streams or shorter queues"
                    }
                    sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION | sys::CUresult::CUDA_ERROR_INVALID_PTX => {
                        "Update NVIDIA's driver to 535 or later"
                    }
                    sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => "Use a GPU of the Turing generation or later",
                    _ => "Look into the kernel's log for messages of the NVIDIA driver",
                };
                let error = Error::new(ErrorKind::Run, what).cause(describe(error)).remedy(remedy);
                Err(error.out_of_memory(is_out_of_memory))
            }
        }
    }
}

/// A CUDA context, shared. Streams, events and modules in it keep it alive.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    raw: sys::CUcontext,
    device: i32,
    owner: Owner,
    /// Idle events. Creating one takes longer than recording it.
    events: Mutex<HashMap<EventKind, Vec<Event>>>,
    /// By the address of their text.
    modules: Mutex<HashMap<usize, RawModule>>,
    /// Those that are shared.
    streams: Mutex<HashMap<StreamRole, Vec<Weak<RawStream>>>>,
}

/// What keeps the context alive.
enum Owner {
    /// We do, by a reference to the device's primary context.
    Primary(sys::CUdevice),
    /// This value, while it lives.
    Foreign(Box<dyn Any + Send + Sync>),
    /// The GPU is lost.
    Nobody,
}

// SAFETY: CUDA contexts, events and modules may be used by any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Context {
    /// The primary context of a device, which cudart and PyTorch use too.
    pub fn primary(device: i32) -> Result<Self> {
        const START: &str = "Cannot start CUDA on the GPU";
        let count = device_count()?;
        if !(0..count).contains(&device) {
            return Err(no_device(device, count));
        }
        let _on_gpu = lost::check(device).map(|()| OnGpu::enter(device))?;
        let handle = result::device::get(device).or_fail("Cannot open the GPU")?;
        // SAFETY: the handle is a device; the reference taken here is given back when the context is dropped.
        let raw = unsafe { result::primary_ctx::retain(handle) };
        // Of a context that is there this error says that it is lost. Here there is none yet, and there may be one later.
        if let Err(error) = raw
            && error.0 == sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
        {
            return Err(Error::new(ErrorKind::Run, START).cause(describe(error)).remedy(
                "Another program has the GPU for itself: end it, or let several programs use the GPU: nvidia-smi --compute-mode=0",
            ));
        }
        let raw = raw.or_fail(START)?;
        let context = Context::new(raw, device, Owner::Primary(handle));
        shared::note_primary(&context);
        Ok(context)
    }

    /// A context made by other code.
    ///
    /// # Safety
    /// `raw` is a context on that device and lives as long as `owner`.
    pub unsafe fn wrap(raw: *mut c_void, device: i32, owner: Box<dyn Any + Send + Sync>) -> Result<Self> {
        available()?;
        lost::check(device)?;
        Ok(Context::new(raw.cast(), device, Owner::Foreign(owner)))
    }

    fn new(raw: sys::CUcontext, device: i32, owner: Owner) -> Self {
        Context(Arc::new(Inner {
            raw,
            device,
            owner,
            events: Mutex::default(),
            modules: Mutex::default(),
            streams: Mutex::default(),
        }))
    }

    /// What was given to [`Context::wrap`], if it is a `T`.
    pub fn owner<T: Any>(&self) -> Option<&T> {
        match &self.0.owner {
            Owner::Primary(_) | Owner::Nobody => None,
            Owner::Foreign(owner) => owner.downcast_ref(),
        }
    }

    /// Whether it is the primary context of its GPU.
    pub fn is_primary(&self) -> bool {
        matches!(self.0.owner, Owner::Primary(_))
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

    /// Does some work with this as the calling thread's context.
    ///
    /// # Errors
    /// `Run`, where the context cannot be used any more; the work is not done then.
    pub fn with<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _entered = self.enter()?;
        Ok(work())
    }

    /// Waits on the host until all is done that was queued in this context, on any stream.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the context is current.
        counters::waiting(|| unsafe { sys::cuCtxSynchronize() }).result().or_fail("GPU work failed")
    }

    /// Makes this the calling thread's context until the guard is dropped. Guards nest, and each must be dropped before
    /// the one that was made before it. So they are only ever local variables, and for this crate alone; others have
    /// [`Context::with`].
    ///
    /// # Errors
    /// `DeviceLost`, where the GPU cannot be used any more. So what frees something there leaves it instead.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let on_gpu = self.on_gpu()?;
        // SAFETY: the context is alive.
        unsafe { sys::cuCtxPushCurrent_v2(self.0.raw) }.result().or_fail("Cannot enter the CUDA context")?;
        Ok(Entered { context: self, _on_gpu: on_gpu, _of_this_thread: PhantomData })
    }

    /// The driver is asked about the GPU, and what it says is of that one.
    fn on_gpu(&self) -> Result<OnGpu> {
        lost::check(self.0.device).map(|()| OnGpu::enter(self.0.device))
    }

    /// Until the result is dropped, the host waits no longer than that for work on this GPU, and takes the GPU for [lost](lost()) then.
    /// Of several limits the shortest counts.
    pub fn limit_waits(&self, limit: Duration) -> WaitLimit {
        WaitLimit::new(self.0.device, limit)
    }

    fn wait_limit(&self) -> Option<Duration> {
        lost::wait_limit(self.0.device)
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// `DeviceLost`, where the GPU cannot be used any more; `Run`, where the context alone cannot. `what` is what has failed.
    pub fn check(&self, what: &str) -> Result<()> {
        let _entered = self.enter()?;
        // After a failed kernel every call fails, this one too.
        result::mem_get_info().or_fail(what).map(drop)
    }

    /// What has failed in code that is not ours, such as TensorRT or a decoder, which does not tell when the GPU is lost:
    /// then it is that.
    pub fn or_lost(&self, error: Error) -> Error {
        let lost = self.check(error.what()).err().filter(|lost| lost.kind() == ErrorKind::DeviceLost);
        lost.unwrap_or(error)
    }

    /// Lets threads sleep while they wait for this context's work, unless the application has chosen another way.
    /// CUDA's default is to spin: the threads of 16 decoders did little else while the GPU was busy, 1.5 CPU seconds
    /// for 1,000 frames.
    pub fn use_blocking_sync(&self) -> Result<()> {
        use sys::CUctx_flags_enum::*;
        let mut version = 0;
        // SAFETY: writes a number.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().or_fail("Cannot ask for the driver's version")?;
        if version < 12010 {
            return Ok(()); // it has no such function
        }
        let _entered = self.enter()?;
        let mut flags = 0;
        // SAFETY: the context is current.
        unsafe { sys::cuCtxGetFlags(&mut flags) }.result().or_fail("Cannot ask how threads wait for the GPU")?;
        if flags & CU_CTX_SCHED_MASK as u32 != CU_CTX_SCHED_AUTO as u32 {
            return Ok(());
        }
        // SAFETY: the context is current.
        unsafe { sys::cuCtxSetFlags(flags | CU_CTX_SCHED_BLOCKING_SYNC as u32) }
            .result()
            .or_fail("Cannot choose how threads wait for the GPU")
    }

    /// Bytes of GPU memory that are free, and all there are.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        result::mem_get_info().or_fail("Cannot ask for the GPU's memory")
    }

    /// "NVIDIA H200"
    pub fn device_name(&self) -> Result<String> {
        let _on_gpu = self.on_gpu()?;
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

    /// An attribute of the GPU, from CUDA.
    pub(crate) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32> {
        let _on_gpu = self.on_gpu()?;
        let device = result::device::get(self.0.device).or_fail("Cannot open the GPU")?;
        // SAFETY: the device was just opened.
        unsafe { result::device::get_attribute(device, attribute) }.or_fail("Cannot ask what the GPU can do")
    }

    /// The module of that PTX, which ends with NUL, loaded on the first call; the driver compiles it then, and keeps the outcome on disk.
    pub fn module(&self, ptx: &'static str) -> Result<Module> {
        let mut modules = self.0.modules.lock().unwrap();
        if let Some(module) = modules.get(&(ptx.as_ptr() as usize)) {
            return Ok(Module { raw: module.0, context: self.clone() });
        }
        let _entered = self.enter()?;
        assert!(ptx.ends_with('\0'), "PTX ends with NUL");
        // SAFETY: it is text that ends with NUL.
        let raw = unsafe { result::module::load_data(ptx.as_ptr().cast()) }.or_fail("Cannot load GPU kernels")?;
        modules.insert(ptx.as_ptr() as usize, RawModule(raw));
        Ok(Module { raw, context: self.clone() })
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

/// The error for a wrong `cuda-device-id`.
pub fn no_device(device: i32, count: i32) -> Error {
    let remedy = match count {
        1 => "Set cuda-device-id to 0 or -1".to_string(),
        count => format!("Set cuda-device-id to a number from 0 to {}, or to -1", count - 1),
    };
    Error::new(ErrorKind::Settings, format!("There is no CUDA device {device}")).remedy(remedy)
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

impl Inner {
    /// What has the context of a GPU that is lost would free it.
    fn leave_owner(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.owner, Owner::Nobody));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Ok(_on_gpu) = lost::check(self.device).map(|()| OnGpu::enter(self.device)) else {
            return self.leave_owner();
        };
        // SAFETY: this is the last reference to the context, so its events and modules are not in use. Errors are
        // ignored: they only come while the process ends.
        unsafe {
            if sys::cuCtxPushCurrent_v2(self.raw).result().is_err() {
                return;
            }
            for event in self.events.get_mut().unwrap().drain().flat_map(|(_, events)| events) {
                let _ = result::event::destroy(event.raw);
            }
            for (_, module) in self.modules.get_mut().unwrap().drain() {
                let _ = result::module::unload(module.0);
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
pub(crate) struct Entered<'a> {
    context: &'a Context,
    _on_gpu: OnGpu,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: takes the thread's current context off its stack, and writes which one it was.
        let done = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }.result();
        debug_assert!(done.is_err() || popped == self.context.0.raw, "guards are dropped in the reverse order");
    }
}

/// As a context keeps it, until it is dropped itself.
struct RawModule(sys::CUmodule);

/// Kernels that were loaded into a context, which this keeps alive.
#[derive(Clone)]
pub struct Module {
    raw: sys::CUmodule,
    context: Context,
}

// SAFETY: CUDA modules may be used by any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub fn function(&self, name: &str) -> Result<Function> {
        let symbol = CString::new(name).expect("kernel names are ours");
        // SAFETY: the module stays loaded as long as its context is there, which this keeps.
        let raw = unsafe { result::module::get_function(self.raw, symbol) };
        let raw = raw.or_fail(&format!("Cannot find the GPU kernel {name}"))?;
        Ok(Function { raw, _context: self.context.clone() })
    }
}

/// A kernel, to be launched on streams of the context that its module was loaded into. Keeps that context, and so the
/// module.
#[derive(Clone)]
pub struct Function {
    pub(in crate::cuda) raw: sys::CUfunction,
    _context: Context,
}

// SAFETY: CUDA functions may be used by any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        match (GpuStatus::detect(), available()) {
            (GpuStatus::Available(count), Ok(())) => assert!(count > 0 && Context::primary(0).is_ok()),
            (missing, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Library);
                assert!(error.message().starts_with(&format!("Cannot use CUDA: {missing}. ")), "{error}");
                assert!(Context::primary(0).is_err());
            }
            (status, Ok(())) => panic!("{status:?}"),
        }
    }

    /// The module is unloaded with its context, and a kernel could be launched after that.
    #[test]
    fn a_kernel_keeps_its_context() {
        const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n\0";
        let Some(context) = crate::test::gpu() else { return };
        let weak = context.downgrade();
        let kernel = context.module(PTX).unwrap().function("nothing").unwrap();
        drop(context);
        assert!(weak.upgrade().is_some());
        drop(kernel);
        assert!(weak.upgrade().is_none(), "and no longer");
    }

    #[test]
    fn work_in_a_context_is_nested() {
        let Some(context) = crate::test::gpu() else { return };
        let current = || {
            let mut current = ptr::null_mut();
            // SAFETY: writes a handle.
            unsafe { sys::cuCtxGetCurrent(&mut current) }.result().unwrap();
            current
        };
        let before = current();
        let within = context.with(|| (current(), context.with(current).unwrap(), current())).unwrap();
        assert_eq!(within, (context.0.raw, context.0.raw, context.0.raw));
        assert_eq!(current(), before);
    }

    #[test]
    fn a_wrong_device_is_refused_and_the_others_are_listed() {
        assert_eq!(no_device(3, 1).message(), "There is no CUDA device 3. Set cuda-device-id to 0 or -1.");
        assert!(no_device(9, 4).message().contains("from 0 to 3"));
    }
}
