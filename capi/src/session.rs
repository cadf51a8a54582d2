//! `GstTrtSession`, on memory of the host.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsttrt::core::error::Result;
use gsttrt::session::{Detections, Detector, Session, parse_options};

use crate::error::{c_string, contained, done, null, wrong};
use crate::frame::GstTrtFrame;
use crate::handles::Handles;
use crate::input;
use crate::memory::{array, give, text};
use crate::results::{GstTrtResults, RESULTS, Results};
use crate::tensor::{GstTrtTensorInfo, TENSORS, TensorInfo};

/// Of which only pointers exist.
pub enum GstTrtSession {}

pub(crate) static SESSIONS: Handles<Open> = Handles::new("session", "gst_trt_session_open");

/// What a handle stands for.
pub(crate) struct Open {
    backend: CString,
    reason: Option<CString>,
    /// Handles of tensors: the input and then the outputs.
    tensors: Vec<usize>,
    detector: Mutex<Detector>,
}

impl Open {
    fn new(session: Session, detector: impl FnOnce(Session) -> Detector) -> Self {
        let info = |desc| TENSORS.add::<GstTrtTensorInfo>(TensorInfo::new(desc)).addr();
        Open {
            backend: c_string(session.backend()),
            reason: session.reason().map(c_string),
            tensors: std::iter::once(session.input()).chain(session.outputs()).map(info).collect(),
            detector: Mutex::new(detector(session)),
        }
    }

    /// To be used by this thread alone.
    pub fn detector(&self) -> MutexGuard<'_, Detector> {
        self.detector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn output_count(&self) -> usize {
        self.tensors.len() - 1
    }

    pub fn check_count(&self, count: usize) -> Result<()> {
        match count == self.output_count() {
            true => Ok(()),
            false => Err(wrong(format!("The model has {} outputs, and {count} are given", self.output_count()))),
        }
    }
}

/// What is found in a frame becomes the program's.
///
/// # Safety
/// `results`, if not NULL, has room for a pointer.
pub(crate) unsafe fn detect(
    session: *mut GstTrtSession,
    results: *mut *mut GstTrtResults,
    detect: impl FnOnce(&mut Detector) -> Result<Detections<'_>>,
) -> c_int {
    done(contained(|| {
        // SAFETY: as the caller says.
        unsafe { give("results", results, ptr::null_mut())? };
        let open = SESSIONS.find(session)?;
        let mut detector = open.detector();
        detector.session().model().check_task()?;
        let found = Results::new(detect(&mut detector)?);
        // SAFETY: as the caller says.
        unsafe { give("results", results, RESULTS.add(found)) }
    }))
}

impl Drop for Open {
    fn drop(&mut self) {
        for &tensor in &self.tensors {
            TENSORS.remove(ptr::without_provenance::<GstTrtTensorInfo>(tensor));
        }
    }
}

/// See `gsttrt.h`.
///
/// # Safety
/// `model` and `options`, if not NULL, are such texts, and `session` has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_open(
    model: *const c_char,
    options: *const *const c_char,
    session: *mut *mut GstTrtSession,
) -> c_int {
    done(contained(|| {
        // SAFETY: as the caller says.
        unsafe {
            give("session", session, ptr::null_mut())?;
            let model = text("model", model)?;
            let mut texts = Vec::new();
            while !options.is_null() && !(*options.add(texts.len())).is_null() {
                texts.push(text("options", *options.add(texts.len()))?);
            }
            let (options, postprocess) = parse_options(texts)?;
            let opened = Session::open(model, &options)?;
            let opened = Open::new(opened, |session| Detector::unchecked(session, postprocess));
            give("session", session, SESSIONS.add(opened))
        }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_close(session: *mut GstTrtSession) {
    let _ = contained(|| {
        let closed = SESSIONS.remove(session);
        drop(closed); // no longer under the lock, for it may take a while
        Ok(())
    });
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_backend(session: *mut GstTrtSession) -> *const c_char {
    contained(|| Ok(SESSIONS.find(session)?.backend.as_ptr())).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_reason(session: *mut GstTrtSession) -> *const c_char {
    let reason = contained(|| Ok(SESSIONS.find(session)?.reason.as_ref().map(|reason| reason.as_ptr())));
    reason.ok().flatten().unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_input(session: *mut GstTrtSession) -> *const GstTrtTensorInfo {
    contained(|| Ok(ptr::without_provenance(SESSIONS.find(session)?.tensors[0]))).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_output_count(session: *mut GstTrtSession) -> usize {
    contained(|| Ok(SESSIONS.find(session)?.output_count())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_output(session: *mut GstTrtSession, index: usize) -> *const GstTrtTensorInfo {
    let output = contained(|| {
        let open = SESSIONS.find(session)?;
        let found = open.tensors[1..].get(index).copied();
        let found =
            found.ok_or_else(|| wrong(format!("There is no output {index}: the model has {}", open.output_count())))?;
        Ok(ptr::without_provenance(found))
    });
    output.unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_run(
    session: *mut GstTrtSession,
    input: *const c_void,
    bytes: usize,
    outputs: *const *mut c_void,
    output_bytes: *const usize,
    count: usize,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        open.check_count(count)?;
        // SAFETY: as the caller says.
        let (outputs, sizes) =
            unsafe { (array("outputs", outputs, count)?, array("output_bytes", output_bytes, count)?) };
        if outputs.contains(&ptr::null_mut()) {
            return Err(null("outputs"));
        }
        let mut detector = open.detector();
        let session = detector.session_mut();
        session.check_input(bytes)?;
        // SAFETY: as the caller says.
        let tensors = session.run_bytes(unsafe { array("input", input.cast(), bytes)? })?;
        let results = || tensors.iter().map(|tensor| tensor.bytes().expect("they are on the host"));
        for ((tensor, bytes), &size) in tensors.iter().zip(results()).zip(sizes) {
            if bytes.len() != size {
                let (desc, has) = (tensor.desc(), bytes.len());
                return Err(wrong(format!("The output {desc} has {has} bytes, and there is room for {size}")));
            }
        }
        for (bytes, &to) in results().zip(outputs) {
            // SAFETY: as the caller says; the size was checked, and the tensors are our own memory.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
        }
        Ok(())
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// As the header says of the frame; `results`, if not NULL, has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect(
    session: *mut GstTrtSession,
    frame: *const GstTrtFrame,
    results: *mut *mut GstTrtResults,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        detect(session, results, |detector| {
            let (frame, color) = input::read("frame", frame)?.on_host()?;
            detector.detect_instances(&frame, color)
        })
    }
}
