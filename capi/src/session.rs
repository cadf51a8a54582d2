// SPDX-License-Identifier: MPL-2.0
//! `GstTrtSession`, on memory of the host.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use gsttrt_core::error::{Error, Result};
use gsttrt_core::session::{Detections, Detector, Session, parse_options};
use gsttrt_core::tensor::Tensor;

use crate::error::{c_string, contained, done, null, wrong};
use crate::frame::GstTrtFrame;
use crate::handles::Handles;
use crate::input;
use crate::memory::{array, give, path, room, text};
use crate::process;
use crate::results::{GstTrtResults, RESULTS, Results};
use crate::tensor::{GstTrtTensorInfo, TENSORS, TensorInfo};

/// Opaque: only pointers to it exist.
pub enum GstTrtSession {}

pub(crate) static SESSIONS: Handles<Open> = Handles::new("session", "gst_trt_session_open");

/// The object of a handle.
pub(crate) struct Open {
    backend: CString,
    reason: Option<CString>,
    batch_size: usize,
    warnings: Told,
    notes: Told,
    /// The names of all classes, by id; empty if they have none.
    class_labels: Vec<CString>,
    /// Handles of tensors: the input and then the outputs.
    tensors: Vec<usize>,
    detector: Mutex<Detector>,
}

/// Texts that were told; more may come, and each stays where it is.
#[derive(Default)]
struct Told(Mutex<Vec<CString>>);

impl Told {
    fn texts(&self) -> MutexGuard<'_, Vec<CString>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what is new of all that there are now.
    fn add(&self, all: &[Error]) {
        let mut texts = self.texts();
        let new = all.get(texts.len()..).unwrap_or_default();
        texts.extend(new.iter().map(|each| c_string(&each.message())));
    }

    fn get(&self, index: usize) -> Option<*const c_char> {
        self.texts().get(index).map(|text| text.as_ptr())
    }
}

impl Open {
    fn new(session: Session, labels: &[String], detector: impl FnOnce(Session) -> Detector) -> Self {
        let info = |desc| TENSORS.add::<GstTrtTensorInfo>(TensorInfo::new(desc)).addr();
        Open {
            backend: c_string(session.backend()),
            reason: session.reason().map(c_string),
            batch_size: session.batch_size(),
            warnings: Told::default(),
            notes: Told::default(),
            class_labels: labels.iter().map(|label| c_string(label)).collect(),
            tensors: std::iter::once(session.input()).chain(session.outputs()).map(info).collect(),
            detector: Mutex::new(detector(session)),
        }
    }

    /// Locks the detector for this thread.
    ///
    /// # Errors
    /// `Library`, in a process that was forked since.
    pub fn detector(&self) -> Result<MutexGuard<'_, Detector>> {
        process::check()?;
        Ok(self.detector.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps what a run has told.
    fn keep_told(&self, session: &Session) {
        self.warnings.add(session.warnings());
        self.notes.add(session.notes());
    }

    /// The same of all runs that have ended. Does not wait for one that goes on.
    fn ask_told(&self) -> Result<()> {
        process::check()?;
        match self.detector.try_lock() {
            Ok(detector) => self.keep_told(detector.session()),
            Err(TryLockError::Poisoned(detector)) => self.keep_told(detector.into_inner().session()),
            Err(TryLockError::WouldBlock) => {}
        }
        Ok(())
    }

    fn output_count(&self) -> usize {
        self.tensors.len() - 1
    }

    pub fn check_count(&self, count: usize) -> Result<()> {
        if count == self.output_count() {
            Ok(())
        } else {
            Err(wrong(format!("The model has {} outputs, and {count} are given", self.output_count())))
        }
    }
}

/// What [`detect`] is told of a frame: its number, and what is in it.
pub(crate) type Found<'a> = dyn FnMut(usize, Detections<'_>) + 'a;

/// Detects in `count` frames, and gives their results to the program.
///
/// # Safety
/// `results` is NULL or room for `count` pointers.
pub(crate) unsafe fn detect(
    session: *mut GstTrtSession,
    results: *mut *mut GstTrtResults,
    count: usize,
    detect: impl FnOnce(&mut Detector, &mut Found) -> Result<()>,
) -> c_int {
    done(contained(|| {
        // SAFETY: `results` is NULL, which `room` refuses, or room for as many pointers.
        let results = unsafe { room("results", results, count) }?;
        let open = SESSIONS.find(session)?;
        let mut detector = open.detector()?;
        detector.session().model().check_task()?;
        let mut found: Vec<Option<Results>> = std::iter::repeat_with(|| None).take(count).collect();
        let outcome = detect(&mut detector, &mut |index, detections| found[index] = Some(Results::new(detections)));
        open.keep_told(detector.session()); // who asks next does not wait for the next run
        outcome?;
        for (to, found) in results.iter_mut().zip(found.into_iter().flatten()) {
            *to = RESULTS.add(found);
        }
        Ok(())
    }))
}

/// Calls `read` with each frame; errors name it.
///
/// # Safety
/// `frames` is NULL or `count` pointers, each NULL or a `GstTrtFrame` of `struct_size` bytes.
pub(crate) unsafe fn read_frames<T>(
    frames: *const *const GstTrtFrame,
    count: usize,
    read: impl Fn(GstTrtFrame) -> Result<T>,
) -> Result<Vec<T>> {
    // SAFETY: `array` refuses NULL, so there are `count` pointers; they are used here only.
    let frames = unsafe { array("frames", frames, count) }?;
    let read = |(index, &frame): (usize, &*const GstTrtFrame)| {
        // SAFETY: it is NULL, which `input::read` refuses, or as many bytes as its `struct_size`.
        let frame = unsafe { input::read("frame", frame) }.and_then(&read);
        frame.map_err(|error| error.about(&format!("frames[{index}]")))
    };
    frames.iter().enumerate().map(read).collect()
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
/// * `model` is NULL or a C string.
/// * `options` is NULL or an array of C strings with NULL at its end.
/// * `session` is NULL or room for a pointer.
///
/// They stay until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_open(
    model: *const c_char,
    options: *const *const c_char,
    session: *mut *mut GstTrtSession,
) -> c_int {
    done(contained(|| {
        // SAFETY: `give`, `path` and `text` refuse NULL, so there is room for a pointer, and the texts are C strings. The
        // loop ends at the NULL that ends `options`, so it reads nothing behind it. All stays until this function
        // returns, and the texts are not used later.
        unsafe {
            give("session", session, ptr::null_mut())?;
            process::check()?;
            let model = path("model", model)?;
            let mut texts = Vec::new();
            while !options.is_null() && !(*options.add(texts.len())).is_null() {
                texts.push(text("options", *options.add(texts.len()))?);
            }
            let (options, postprocess) = parse_options(texts)?;
            let file = postprocess.labels()?;
            let opened = Session::open(model, &options)?;
            let labels = file.unwrap_or_else(|| opened.model().labels.clone());
            let opened = Open::new(opened, &labels, |session| Detector::unchecked(session, postprocess));
            give("session", session, SESSIONS.add(opened))
        }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_close(session: *mut GstTrtSession) {
    let _ = contained(|| {
        process::check()?; // a fork has no threads that could end
        let closed = SESSIONS.remove(session);
        drop(closed); // without the lock, because it may take long
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
pub extern "C" fn gst_trt_session_warning(session: *mut GstTrtSession, index: usize) -> *const c_char {
    let warning = || {
        let open = SESSIONS.find(session)?;
        open.ask_told()?;
        Ok(open.warnings.get(index))
    };
    contained(warning).ok().flatten().unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_note(session: *mut GstTrtSession, index: usize) -> *const c_char {
    let note = || {
        let open = SESSIONS.find(session)?;
        open.ask_told()?;
        Ok(open.notes.get(index))
    };
    contained(note).ok().flatten().unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_batch_size(session: *mut GstTrtSession) -> usize {
    contained(|| Ok(SESSIONS.find(session)?.batch_size)).unwrap_or(0)
}

/// See `gsttrt.h`.
///
/// # Safety
/// As `gsttrt.h` says of the arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_input_size(
    session: *mut GstTrtSession,
    width: u32,
    height: u32,
    input_width: *mut u32,
    input_height: *mut u32,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        let (width, height) = open.detector()?.input_size_for((width as usize, height as usize));
        // SAFETY: the caller gives room for each.
        unsafe {
            give("input_width", input_width, width as u32)?;
            give("input_height", input_height, height as u32)
        }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_begin_clip(session: *mut GstTrtSession) -> c_int {
    done(contained(|| {
        SESSIONS.find(session)?.detector()?.begin_clip();
        Ok(())
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_class_count(session: *mut GstTrtSession) -> usize {
    contained(|| Ok(SESSIONS.find(session)?.class_labels.len())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_class_label(session: *mut GstTrtSession, class_id: u32) -> *const c_char {
    let label = || {
        let open = SESSIONS.find(session)?;
        let count = open.class_labels.len();
        let label = open.class_labels.get(class_id as usize).map(|label| label.as_ptr());
        label.ok_or_else(|| wrong(format!("There is no class {class_id}: {count} have names")).remedy("Count from 0"))
    };
    contained(label).unwrap_or(ptr::null())
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
/// * `input` is NULL or `bytes` initialised bytes.
/// * `outputs` is NULL or `count` pointers, `output_bytes` NULL or `count` numbers.
/// * Each of `outputs` is NULL or room for as many bytes as its number in `output_bytes`.
///
/// They stay until this returns, and nothing else writes them until then. No two outputs overlap.
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
        // SAFETY: `array` refuses NULL, so each has `count` values, which stay until this function returns.
        let (outputs, sizes) =
            unsafe { (array("outputs", outputs, count)?, array("output_bytes", output_bytes, count)?) };
        if outputs.contains(&ptr::null_mut()) {
            return Err(null("outputs"));
        }
        let mut detector = open.detector()?;
        let session = detector.session_mut();
        let one = session.input().bytes().unwrap_or(bytes);
        if bytes == 0 || !bytes.is_multiple_of(one) {
            session.check_input(bytes)?;
        }
        // SAFETY: `input` is NULL, which `array` refuses, or `bytes` initialised bytes. The run has read them when it
        // returns.
        let inputs: Vec<&[u8]> = unsafe { array("input", input.cast(), bytes)? }.chunks(one).collect();
        let pictures = session.run_batch(&inputs)?;
        let bytes_of = |tensor: &Tensor| tensor.bytes().expect("they are on the host").len();
        for (output, &size) in sizes.iter().enumerate() {
            let has: usize = pictures.iter().map(|tensors| bytes_of(&tensors[output])).sum();
            if has != size {
                let desc = pictures[0][output].desc();
                let of = if pictures.len() > 1 { format!(" of {} pictures", pictures.len()) } else { String::new() };
                let what = format!("The output {desc}{of} has {has} bytes, and there is room for {size}");
                return Err(wrong(what).remedy(
                    "Give room for as many. Where the size of an output depends on the picture, Python takes only what a black one gives: \
                     export the model with outputs of one size",
                ));
            }
        }
        for (output, &to) in outputs.iter().enumerate() {
            let mut to = to.cast::<u8>();
            for bytes in pictures.iter().filter_map(|tensors| tensors[output].bytes()) {
                // SAFETY: `to` is not NULL, so it has room for its number in `output_bytes`, and that is the sum of these
                // lengths: both were checked. The source is memory of this library, so they do not overlap.
                unsafe {
                    ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    to = to.add(bytes.len());
                }
            }
        }
        Ok(())
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `frame` is NULL or a `GstTrtFrame` of `struct_size` bytes, whose `format` is NULL or a C string.
/// * Each plane is NULL or as many initialised bytes as its entry in the frame's `bytes`, which nothing writes until this
///   returns.
/// * `results` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect(
    session: *mut GstTrtSession,
    frame: *const GstTrtFrame,
    results: *mut *mut GstTrtResults,
) -> c_int {
    // SAFETY: `frame` is NULL, which `read` refuses, or as many bytes as its `struct_size`. Its format and planes are
    // as `on_host` requires, and stay until this function returns; the detector keeps none of them. `results` is
    // NULL, which `detect` refuses, or room for a pointer.
    unsafe {
        detect(session, results, 1, |detector, found| {
            let (frame, color) = input::read("frame", frame)?.on_host()?;
            detector.detect_instances(&frame, color).map(|detections| found(0, detections))
        })
    }
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `frames` is NULL or `count` pointers, each as for [`gst_trt_session_detect`].
/// * `results` is NULL or room for `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect_batch(
    session: *mut GstTrtSession,
    frames: *const *const GstTrtFrame,
    count: usize,
    results: *mut *mut GstTrtResults,
) -> c_int {
    // SAFETY: as above, for each frame.
    unsafe {
        detect(session, results, count, |detector, found| {
            let frames = read_frames(frames, count, |frame| frame.on_host())?;
            detector.detect_batch_instances(&frames, found)
        })
    }
}
