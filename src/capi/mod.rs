//! [`session`] for C: what `include/gsttrt.h` declares, and documents.
//!
//! A session's pointer is no address but a number that is never given twice, so one that is closed, or that never was one,
//! is an error like any other. Nothing unwinds into C.

mod device;
mod tensors;
mod types;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::TensorDesc;
use crate::session::{self, Detector, Session, parse_options};
pub use device::*;
pub use tensors::*;
use types::array;
pub use types::{Frame, Object, Tensor};

/// `GstTrtSession`, of which only pointers exist.
pub enum SessionHandle {}

/// What a handle stands for.
struct Open {
    backend: CString,
    reason: Option<CString>,
    input: (CString, TensorDesc),
    outputs: Vec<(CString, TensorDesc)>,
    working: Mutex<Working>,
}

struct Working {
    detector: Detector,
    /// By class id; C has pointers to them.
    labels: HashMap<u32, CString>,
    /// Of the objects in the last frame.
    keypoints: Vec<Vec<session::Keypoint>>,
}

impl Open {
    fn working(&self) -> MutexGuard<'_, Working> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_count(&self, count: usize) -> Result<()> {
        match count == self.outputs.len() {
            true => Ok(()),
            false => Err(wrong(format!("The model has {} outputs, and {count} are given", self.outputs.len()))),
        }
    }
}

static SESSIONS: RwLock<BTreeMap<usize, Arc<Open>>> = RwLock::new(BTreeMap::new());

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// `GST_TRT_OK`
const OK: c_int = 0;
/// `GST_TRT_PANIC`
const PANIC: c_int = 9;

fn status(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Settings => 1,
        ErrorKind::NotFound => 2,
        ErrorKind::Read => 3,
        ErrorKind::Model => 4,
        ErrorKind::Library => 5,
        ErrorKind::Run => 6,
        ErrorKind::WrongType => 7,
        ErrorKind::Negotiation => 8,
    }
}

/// Does the work of a function, and keeps what went wrong for `gst_trt_last_error`.
fn contained<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, c_int> {
    let (code, text) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => (status(error.kind()), error.message()),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            (PANIC, format!("This is a bug of the library: {}.", said.unwrap_or("it panicked")))
        }
    };
    // Gone only in a thread that is ending.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = c_string(&text));
    Err(code)
}

fn done(outcome: std::result::Result<(), c_int>) -> c_int {
    outcome.err().unwrap_or(OK)
}

/// For C, whose texts end at the first zero.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("there are no zeros")
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::WrongType, what)
}

fn null(name: &str) -> Error {
    wrong(format!("The argument {name} is NULL"))
}

/// # Safety
/// A pointer that is not NULL is to a text that ends with zero and stays for `'a`.
unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so it is a text that ends with zero and stays for `'a`.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| wrong(format!("The argument {name} is no UTF-8")))
}

/// Writes a result.
///
/// # Safety
/// A pointer that is not NULL is to memory for a `T`.
unsafe fn give<T>(name: &str, to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so there is room for a `T`.
    unsafe { to.write(value) };
    Ok(())
}

fn find(handle: *mut SessionHandle) -> Result<Arc<Open>> {
    let sessions = SESSIONS.read().unwrap_or_else(PoisonError::into_inner);
    sessions.get(&handle.addr()).cloned().ok_or_else(|| {
        let cause = if handle.is_null() { "it is NULL" } else { "it is closed already, or never was one" };
        wrong("The argument session is no open session").cause(cause).remedy("Open one with gst_trt_session_open")
    })
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `model` and `options`, if not NULL, are such texts, and `session` has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_open(
    model: *const c_char,
    options: *const *const c_char,
    session: *mut *mut SessionHandle,
) -> c_int {
    done(contained(|| {
        // SAFETY: `session` is NULL or has room for a pointer, `model` is NULL or a C string, `options` is NULL or an array of C
        // strings that ends with NULL.
        unsafe {
            give("session", session, ptr::null_mut())?;
            let model = text("model", model)?;
            let mut texts = Vec::new();
            while !options.is_null() && !(*options.add(texts.len())).is_null() {
                texts.push(text("options", *options.add(texts.len()))?);
            }
            give("session", session, open(model, &texts)?)
        }
    }))
}

fn open(model: &str, options: &[&str]) -> Result<*mut SessionHandle> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let (options, wishes) = parse_options(options.iter().copied())?;
    let session = Session::open(model, &options)?;
    let named = |desc: &TensorDesc| (c_string(&desc.name), desc.clone());
    let open = Open {
        backend: c_string(session.backend()),
        reason: session.reason().map(c_string),
        input: named(session.input()),
        outputs: session.outputs().iter().map(named).collect(),
        working: Mutex::new(Working {
            detector: Detector::unchecked(session, wishes),
            labels: HashMap::new(),
            keypoints: Vec::new(),
        }),
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    SESSIONS.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(open));
    Ok(ptr::without_provenance_mut(number))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_close(session: *mut SessionHandle) {
    let _ = contained(|| {
        let closed = SESSIONS.write().unwrap_or_else(PoisonError::into_inner).remove(&session.addr());
        drop(closed); // no longer under the lock, for it may take a while
        Ok(())
    });
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_backend(session: *mut SessionHandle) -> *const c_char {
    contained(|| Ok(find(session)?.backend.as_ptr())).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_reason(session: *mut SessionHandle) -> *const c_char {
    let reason = contained(|| Ok(find(session)?.reason.as_ref().map(|reason| reason.as_ptr())));
    reason.ok().flatten().unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `input`, if not NULL, has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_input(session: *mut SessionHandle, input: *mut Tensor) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        // SAFETY: `input` is NULL or has room for a tensor.
        unsafe { give("input", input, Tensor::new(&open.input)?) }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_output_count(session: *mut SessionHandle) -> usize {
    contained(|| Ok(find(session)?.outputs.len())).unwrap_or(0)
}

/// See `gsttrt.h`.
///
/// # Safety
/// `output`, if not NULL, has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_output(
    session: *mut SessionHandle,
    index: usize,
    output: *mut Tensor,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        let count = open.outputs.len();
        let found = open.outputs.get(index);
        let found = found.ok_or_else(|| wrong(format!("There is no output {index}: the model has {count}")))?;
        // SAFETY: `output` is NULL or has room for a tensor.
        unsafe { give("output", output, Tensor::new(found)?) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_run(
    session: *mut SessionHandle,
    input: *const c_void,
    bytes: usize,
    outputs: *const *mut c_void,
    output_bytes: *const usize,
    count: usize,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        open.check_count(count)?;
        // SAFETY: both are NULL or arrays of `count` elements.
        let (outputs, sizes) =
            unsafe { (array("outputs", outputs, count)?, array("output_bytes", output_bytes, count)?) };
        if outputs.contains(&ptr::null_mut()) {
            return Err(null("outputs"));
        }
        let mut working = open.working();
        let session = working.detector.session_mut();
        session.check(bytes)?;
        // SAFETY: `input` is NULL or points to so many bytes, which stay during the call.
        let tensors = session.run_bytes(unsafe { array("input", input.cast(), bytes)? })?;
        let results = || tensors.iter().map(|tensor| tensor.bytes().expect("they are on the host"));
        for ((tensor, bytes), &size) in tensors.iter().zip(results()).zip(sizes) {
            if bytes.len() != size {
                let (desc, has) = (tensor.desc(), bytes.len());
                return Err(wrong(format!("The output {desc} has {has} bytes, and there is room for {size}")));
            }
        }
        for (bytes, &to) in results().zip(outputs) {
            // SAFETY: the output has room for so many bytes, which was checked. The tensor is our own memory, so they do not overlap.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
        }
        Ok(())
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect(
    session: *mut SessionHandle,
    frame: *const Frame,
    objects: *mut Object,
    capacity: usize,
    found: *mut usize,
) -> c_int {
    // SAFETY: `frame` is NULL or a frame whose planes have as many bytes as it says. There is room for `capacity` objects and
    // their number.
    unsafe {
        detect(session, objects, capacity, found, |detector| {
            let (frame, color) = frame.as_ref().ok_or_else(|| null("frame"))?.read()?;
            detector.detect(&frame, color)
        })
    }
}

/// # Safety
/// There is room for `capacity` objects, and for their number.
unsafe fn detect(
    session: *mut SessionHandle,
    objects: *mut Object,
    capacity: usize,
    found: *mut usize,
    detect: impl FnOnce(&mut Detector) -> Result<Vec<session::Object>>,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        if objects.is_null() && capacity > 0 {
            return Err(null("objects"));
        }
        if found.is_null() {
            return Err(null("found"));
        }
        let mut working = open.working();
        let Working { detector, labels, keypoints } = &mut *working;
        keypoints.clear();
        detector.session().model().check_task()?;
        let detected = detect(detector)?;
        for (i, object) in detected.iter().take(capacity).enumerate() {
            let label = labels.entry(object.class_id).or_insert_with(|| c_string(&object.label));
            // SAFETY: `i` is below `capacity`, for which there is room.
            unsafe { objects.add(i).write(Object::new(object, label)) };
        }
        let count = detected.len();
        keypoints.extend(detected.into_iter().map(|object| object.keypoints));
        // SAFETY: it is not NULL, so there is room for a number.
        unsafe { give("found", found, count) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_keypoints(
    session: *mut SessionHandle,
    object: usize,
    points: *mut f32,
    capacity: usize,
    found: *mut usize,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        if points.is_null() && capacity > 0 {
            return Err(null("points"));
        }
        let working = open.working();
        let keypoints = working.keypoints.get(object).ok_or_else(|| {
            let count = working.keypoints.len();
            wrong(format!("There is no object {object}; {count} were found in the last frame")).remedy("Count from 0")
        })?;
        for (i, point) in keypoints.iter().take(capacity).enumerate() {
            let numbers = [point.x, point.y, point.visibility.unwrap_or(-1.0)];
            // SAFETY: `i` is below `capacity`, and there is room for that many points of three numbers.
            unsafe { points.add(3 * i).cast::<[f32; 3]>().write_unaligned(numbers) };
        }
        // SAFETY: `found` is NULL or has room for a number.
        unsafe { give("found", found, keypoints.len()) }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors() {
        assert_eq!(contained::<()>(|| panic!("of {}", 7)), Err(PANIC));
        // SAFETY: a text of this thread.
        let text = unsafe { CStr::from_ptr(gst_trt_last_error()) };
        assert_eq!(text, c"This is a bug of the library: of 7.");
        assert_eq!(done(contained(|| Err(wrong("a\0b")))), 7);
        // SAFETY: as above.
        assert_eq!(unsafe { CStr::from_ptr(gst_trt_last_error()) }, c"a\\u{0}b.");
    }
}
