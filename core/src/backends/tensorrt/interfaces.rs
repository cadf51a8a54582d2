// SPDX-License-Identifier: MPL-2.0
//! The C++ objects that we make for TensorRT to call: its loggers, the monitor of a build, and a calibrator that only reads.
//!
//! TensorRT gives reasons to its logger alone; functions only return that they failed. So the loggers keep the errors
//! that they get, and [`ErrorListener`] returns them to the code that makes an [`Error`] of them.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use std::thread::ThreadId;

use super::super::log;
pub use super::super::log::{Level, set_hook};
use super::abi::AbiVersion;
use crate::error::{Error, ErrorKind, Result};

// ---------------------------------------------------------------------------- layout of objects

/// A table of virtual functions as C++ compilers lay it out. Objects point at `functions`; what comes before is for
/// `dynamic_cast`, which TensorRT does not use on objects of others.
#[repr(C)]
struct Table<F> {
    offset_to_top: isize,
    type_info: usize,
    functions: F,
}

impl<F> Table<F> {
    const fn new(functions: F) -> Self {
        Table { offset_to_top: 0, type_info: 0, functions }
    }
}

/// Both destructors: that of the object, and that which also frees it. Our objects are freed by Rust.
type Destructors = [unsafe extern "C" fn(*mut c_void); 2];

unsafe extern "C" fn no_destructor(_this: *mut c_void) {}

const DESTRUCTORS: Destructors = [no_destructor; 2];

/// First functions of a versioned interface.
#[repr(C)]
struct Versioned {
    language: unsafe extern "C" fn(*mut c_void) -> i32,
    info: unsafe extern "C" fn(*mut c_void) -> InterfaceInfo,
    destructors: Destructors,
}

#[repr(C)]
struct InterfaceInfo {
    kind: *const c_char,
    major: i32,
    minor: i32,
}

unsafe extern "C" fn cpp(_this: *mut c_void) -> i32 {
    0
}

/// A versioned interface of that name, version 1.0.
macro_rules! versioned {
    ($name:literal) => {{
        unsafe extern "C" fn info(_this: *mut c_void) -> InterfaceInfo {
            InterfaceInfo { kind: $name.as_ptr(), major: 1, minor: 0 }
        }
        Versioned { language: cpp, info, destructors: DESTRUCTORS }
    }};
}

/// # Safety
/// `text` is null or a C string that lives at least as long as `'a`.
unsafe fn text<'a>(text: *const c_char) -> std::borrow::Cow<'a, str> {
    if text.is_null() {
        return "".into();
    }
    // SAFETY: it is not null, so it is a C string that lives as long as `'a`.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

// ---------------------------------------------------------------------------- loggers

pub(crate) fn log(level: Level, line: &str) {
    if level == Level::Error {
        ERRORS.lock().unwrap().push(line);
    }
    log::log(level, line);
}

/// The last errors that TensorRT logged.
static ERRORS: Mutex<Errors> = Mutex::new(Errors { lines: VecDeque::new(), said: 0 });

struct Errors {
    lines: VecDeque<(ThreadId, String)>,
    /// How many there were in all.
    said: u64,
}

impl Errors {
    const KEPT: usize = 64;

    fn push(&mut self, line: &str) {
        if self.lines.len() == Errors::KEPT {
            self.lines.pop_front();
        }
        // Some messages are spread over lines for no reason.
        let line = line.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        self.lines.push_back((std::thread::current().id(), line));
        self.said += 1;
    }
}

/// Collects what TensorRT logs as errors after this is made.
pub struct ErrorListener {
    from: u64,
}

impl ErrorListener {
    pub fn listen() -> Self {
        ErrorListener { from: ERRORS.lock().unwrap().said }
    }

    /// The errors of this thread's calls; without any, those of other threads, because a builder uses several.
    pub fn words(&self) -> String {
        let errors = ERRORS.lock().unwrap();
        let new = usize::try_from(errors.said - self.from).unwrap_or(usize::MAX).min(errors.lines.len());
        let new = errors.lines.range(errors.lines.len() - new..);
        let here = std::thread::current().id();
        let of = |own: bool| {
            let lines = new.clone().filter(|(thread, _)| !own || *thread == here).map(|(_, line)| line.as_str());
            let mut lines: Vec<&str> = lines.collect();
            lines.dedup();
            // The first is the cause, what follows are its consequences.
            lines.truncate(4);
            lines.join("; ")
        };
        Some(of(true)).filter(|own| !own.is_empty()).unwrap_or_else(|| of(false))
    }

    /// Whether TensorRT had too little memory. It reports that in the text of its log only.
    pub fn is_out_of_memory(&self) -> bool {
        self.words().split("; ").any(is_out_of_memory)
    }

    /// An error whose cause is what TensorRT logged since.
    #[track_caller]
    pub fn error(&self, kind: ErrorKind, what: impl Into<String>) -> Error {
        let words = self.words();
        let cause = if words.is_empty() { "TensorRT gives no reason".to_string() } else { words };
        Error::new(kind, what).cause(cause).out_of_memory(self.is_out_of_memory())
    }
}

/// Whether a line says that memory could not be had. Others speak of memory too, such as of an illegal memory access, and
/// then a retry with less of it changes nothing.
fn is_out_of_memory(line: &str) -> bool {
    let line = line.to_lowercase();
    let says = |words: &str| line.contains(words);
    ["out of memory", "outofmemory", "out_of_memory", "insufficient memory", "not enough memory"].into_iter().any(says)
        || says("memory") && says("allocat")
}

unsafe extern "C" fn log_line(_this: *mut c_void, severity: i32, message: *const c_char) {
    let level = match severity {
        ..=1 => Level::Error, // internal errors are 0
        2 => Level::Warning,
        3 => Level::Info,
        _ => Level::Verbose,
    };
    // SAFETY: TensorRT's messages are C strings that live as long as this call.
    log(level, unsafe { text(message) }.trim_end());
}

type Log = unsafe extern "C" fn(*mut c_void, i32, *const c_char);

#[repr(C)]
struct OldLogger {
    log: Log,
    destructors: Destructors,
}

#[repr(C)]
struct NewLogger {
    versioned: Versioned,
    log: Log,
}

static OLD_LOGGER: Table<OldLogger> = Table::new(OldLogger { log: log_line, destructors: DESTRUCTORS });
static NEW_LOGGER: Table<NewLogger> = Table::new(NewLogger { versioned: versioned!(c"ILogger"), log: log_line });

/// An object without data: a pointer to its functions.
struct Bare(#[allow(dead_code, reason = "TensorRT reads it")] *const c_void);

// SAFETY: it points at a table that never changes.
unsafe impl Sync for Bare {}

static OLD: Bare = Bare((&raw const OLD_LOGGER.functions).cast());
static NEW: Bare = Bare((&raw const NEW_LOGGER.functions).cast());

/// The process's ILogger, as that ABI version calls it. TensorRT keeps one for good, so it is never freed.
pub fn logger(abi: AbiVersion) -> *mut c_void {
    let logger = if abi.has_versioned_logger() { &NEW } else { &OLD };
    std::ptr::from_ref(logger).cast_mut().cast()
}

// ---------------------------------------------------------------------------- progress of a build

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildProgress<'a> {
    /// TensorRT's name of the phase, which changes from version to version.
    pub phase: &'a str,
    /// 0 to 1, never falling.
    pub fraction: f64,
}

/// An IProgressMonitor that asks a closure whether to go on.
#[repr(C)]
pub struct Monitor<'a> {
    functions: *const c_void,
    phases: Mutex<Phases>,
    /// False ends the build at its next step.
    go_on: Box<dyn Fn(BuildProgress<'_>) -> bool + Send + Sync + 'a>,
}

#[repr(C)]
struct MonitorFunctions {
    versioned: Versioned,
    phase_start: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, i32),
    step_complete: unsafe extern "C" fn(*mut c_void, *const c_char, i32) -> bool,
    phase_finish: unsafe extern "C" fn(*mut c_void, *const c_char),
}

static MONITOR: Table<MonitorFunctions> = Table::new(MonitorFunctions {
    versioned: versioned!(c"IProgressMonitor"),
    phase_start,
    step_complete,
    phase_finish,
});

impl<'a> Monitor<'a> {
    /// The box must stay until the build is done. `go_on` is called from threads of TensorRT.
    pub fn new(go_on: impl Fn(BuildProgress<'_>) -> bool + Send + Sync + 'a) -> Box<Self> {
        let functions = (&raw const MONITOR.functions).cast();
        Box::new(Monitor { functions, phases: Mutex::default(), go_on: Box::new(go_on) })
    }

    /// As [`Config::set_progress_monitor`](super::abi::Config::set_progress_monitor) takes it.
    pub fn as_raw(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Phases under way; each but the first is one step of another.
#[derive(Default)]
struct Phases {
    open: Vec<Phase>,
    reached: f64,
}

struct Phase {
    name: String,
    parent: String,
    steps: i32,
    done: i32,
}

impl Phases {
    /// Names are unique while their phases run.
    fn start(&mut self, name: &str, parent: &str, steps: i32) {
        self.open.push(Phase { name: name.to_string(), parent: parent.to_string(), steps, done: 0 });
    }

    fn step(&mut self, name: &str, step: i32) {
        if let Some(phase) = self.open.iter_mut().find(|phase| phase.name == name) {
            phase.done = step.saturating_add(1);
        }
    }

    fn finish(&mut self, name: &str) {
        self.open.retain(|phase| phase.name != name);
    }

    /// Of the outermost phase.
    fn fraction(&mut self) -> f64 {
        let now = self.open.iter().find(|phase| phase.parent.is_empty()).map_or(self.reached, |root| self.of(root, 0));
        self.reached = self.reached.max(now);
        self.reached
    }

    fn of(&self, phase: &Phase, depth: usize) -> f64 {
        let child = self.open.iter().find(|other| other.parent == phase.name && depth < self.open.len());
        let step = child.map_or(0.0, |child| self.of(child, depth + 1));
        ((f64::from(phase.done) + step) / f64::from(phase.steps.max(1))).clamp(0.0, 1.0)
    }
}

/// # Safety
/// `this` is a [`Monitor`] that lives as long as this call.
unsafe fn monitor<'a>(this: *mut c_void) -> &'a Monitor<'a> {
    // SAFETY: it points to a `Monitor`, which lives as long as this call.
    unsafe { &*this.cast::<Monitor>() }
}

unsafe extern "C" fn phase_start(this: *mut c_void, name: *const c_char, parent: *const c_char, steps: i32) {
    // SAFETY: TensorRT calls the monitor that it was given, with text of its own.
    let (monitor, name, parent) = unsafe { (monitor(this), text(name), text(parent)) };
    monitor.phases.lock().unwrap().start(&name, &parent, steps);
}

unsafe extern "C" fn step_complete(this: *mut c_void, name: *const c_char, step: i32) -> bool {
    // SAFETY: as above.
    let (monitor, name) = unsafe { (monitor(this), text(name)) };
    let fraction = {
        let mut phases = monitor.phases.lock().unwrap();
        phases.step(&name, step);
        phases.fraction()
    };
    (monitor.go_on)(BuildProgress { phase: &name, fraction })
}

unsafe extern "C" fn phase_finish(this: *mut c_void, name: *const c_char) {
    // SAFETY: as above.
    let (monitor, name) = unsafe { (monitor(this), text(name)) };
    monitor.phases.lock().unwrap().finish(&name);
}

// ---------------------------------------------------------------------------- calibration

/// An IInt8Calibrator that has a finished calibration and no pictures: that of the file which `trtexec --calib` or another
/// program wrote.
#[repr(C)]
pub struct Calibrator {
    functions: *const c_void,
    table: Vec<u8>,
    algorithm: i32,
}

#[repr(C)]
struct CalibratorFunctions {
    batch_size: unsafe extern "C" fn(*mut c_void) -> i32,
    batch: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const *const c_char, i32) -> bool,
    read: unsafe extern "C" fn(*mut c_void, *mut usize) -> *const u8,
    write: unsafe extern "C" fn(*mut c_void, *const u8, usize),
    algorithm: unsafe extern "C" fn(*mut c_void) -> i32,
}

#[repr(C)]
struct OldCalibrator {
    functions: CalibratorFunctions,
    destructors: Destructors,
}

#[repr(C)]
struct NewCalibrator {
    versioned: Versioned,
    functions: CalibratorFunctions,
}

const CALIBRATOR: CalibratorFunctions = CalibratorFunctions {
    batch_size: calibrator_batch_size,
    batch: calibrator_batch,
    read: calibrator_read,
    write: calibrator_write,
    algorithm: calibrator_algorithm,
};

static OLD_CALIBRATOR: Table<OldCalibrator> =
    Table::new(OldCalibrator { functions: CALIBRATOR, destructors: DESTRUCTORS });
static NEW_ENTROPY_CALIBRATOR: Table<NewCalibrator> =
    Table::new(NewCalibrator { versioned: versioned!(c"IInt8EntropyCalibrator2"), functions: CALIBRATOR });
static NEW_MIN_MAX_CALIBRATOR: Table<NewCalibrator> =
    Table::new(NewCalibrator { versioned: versioned!(c"IInt8MinMaxCalibrator"), functions: CALIBRATOR });

/// `CalibrationAlgoType`.
const ENTROPY_2: i32 = 2;
const MIN_MAX: i32 = 3;

impl Calibrator {
    /// `table` is the whole calibration file. The box must stay until the build is done.
    ///
    /// # Errors
    /// `Settings` for what is no calibration file, or one of another algorithm.
    pub fn new(abi: AbiVersion, table: Vec<u8>) -> Result<Box<Self>> {
        // "TRT-8600-EntropyCalibration2", then one line for each tensor.
        let first = table.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let first = String::from_utf8_lossy(first);
        let algorithm = match first.trim_end().rsplit('-').next() {
            Some("EntropyCalibration2") if first.starts_with("TRT-") => ENTROPY_2,
            Some("MinMaxCalibration") if first.starts_with("TRT-") => MIN_MAX,
            _ => {
                return Err(Error::new(ErrorKind::Settings, "The calibration file was not written by TensorRT")
                    .cause(format!("its first line is “{}”", first.chars().take(40).collect::<String>()))
                    .remedy(
                        "Give a file of the entropy-2 or min-max calibrator, whose first line is like \
                         TRT-8600-EntropyCalibration2",
                    ));
            }
        };
        let functions = match (abi, algorithm) {
            (AbiVersion::V8, _) => (&raw const OLD_CALIBRATOR.functions).cast(),
            (_, MIN_MAX) => (&raw const NEW_MIN_MAX_CALIBRATOR.functions).cast(),
            _ => (&raw const NEW_ENTROPY_CALIBRATOR.functions).cast(),
        };
        Ok(Box::new(Calibrator { functions, table, algorithm }))
    }

    /// As [`Config::set_int8_calibrator`](super::abi::Config::set_int8_calibrator) takes it.
    pub fn as_raw(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

unsafe extern "C" fn calibrator_batch_size(_this: *mut c_void) -> i32 {
    1
}

unsafe extern "C" fn calibrator_batch(
    _this: *mut c_void,
    _pictures: *mut *mut c_void,
    _names: *const *const c_char,
    _count: i32,
) -> bool {
    false // no pictures
}

unsafe extern "C" fn calibrator_read(this: *mut c_void, length: *mut usize) -> *const u8 {
    // SAFETY: TensorRT calls the calibrator that it was given, and passes a pointer for the length.
    unsafe {
        let calibrator = &*this.cast::<Calibrator>();
        *length = calibrator.table.len();
        calibrator.table.as_ptr()
    }
}

unsafe extern "C" fn calibrator_write(_this: *mut c_void, _table: *const u8, _length: usize) {}

unsafe extern "C" fn calibrator_algorithm(this: *mut c_void) -> i32 {
    // SAFETY: as above.
    unsafe { &*this.cast::<Calibrator>() }.algorithm
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls an object's virtual function as C++ would.
    macro_rules! virtual_call {
        ($object:expr, $number:expr, ($($type:ty),*) -> $result:ty, $($arg:expr),*) => {{
            let object: *mut c_void = $object;
            // SAFETY: the test passes the type of the function that the object has at that number.
            unsafe {
                let table = *object.cast::<*const *const c_void>();
                let function: unsafe extern "C" fn(*mut c_void, $($type),*) -> $result =
                    std::mem::transmute(*table.add($number));
                function(object, $($arg),*)
            }
        }};
    }

    #[test]
    fn both_loggers_keep_errors() {
        for (abi, number) in [
            (AbiVersion::V8, 0),
            (AbiVersion::V10, 0),
            (AbiVersion::V11, 4),
            (AbiVersion::RtxOld, 0),
            (AbiVersion::RtxNew, 4),
        ] {
            let heard = ErrorListener::listen();
            let say = |severity: i32, line: &CStr| virtual_call!(logger(abi), number, (i32, *const c_char) -> (), severity, line.as_ptr());
            say(2, c"a warning");
            assert!(!heard.words().contains("a warning"));
            say(1, c"first\n of two\n");
            say(0, c"second");
            std::thread::scope(|scope| drop(scope.spawn(|| ERRORS.lock().unwrap().push("of another thread"))));
            assert_eq!(heard.words(), "first of two; second");
            let error = heard.error(ErrorKind::Run, "It failed");
            assert_eq!(error.message(), "It failed: first of two; second.");
            assert!(!error.is_out_of_memory());
            let heard = ErrorListener::listen();
            say(1, c"Requested amount of GPU memory (4096 bytes) could not be allocated.");
            assert!(heard.error(ErrorKind::Model, "It failed").about("Further out").is_out_of_memory());
        }
        // SAFETY: returned in registers, as C++ does.
        let info = virtual_call!(logger(AbiVersion::V11), 1, () -> InterfaceInfo,);
        // SAFETY: the name is a literal.
        assert_eq!((unsafe { CStr::from_ptr(info.kind) }, info.major, info.minor), (c"ILogger", 1, 0));
    }

    #[test]
    fn memory_in_a_line_is_not_always_too_little_of_it() {
        for line in [
            "an illegal memory access was encountered",
            "Cannot use shared memory for this tactic",
            "Device memory pool is misaligned",
        ] {
            assert!(!is_out_of_memory(line), "{line}");
        }
        for line in [
            "Error Code 2: OutOfMemory (no further information)",
            "CUDA error 2: out of memory",
            "Requested amount of GPU memory (4096 bytes) could not be allocated.",
            "Tactic skipped due to insufficient memory on requested size",
            "Unable to allocate GPU memory",
        ] {
            assert!(is_out_of_memory(line), "{line}");
        }
    }

    #[test]
    fn errors_of_other_threads_are_used_if_there_are_no_others() {
        let heard = ErrorListener::listen();
        std::thread::spawn(|| ERRORS.lock().unwrap().push("said by a worker")).join().unwrap();
        assert!(heard.words().contains("said by a worker"));
        assert!(!ErrorListener::listen().words().contains("said by a worker"));
    }

    #[test]
    fn progress_nests_and_never_falls() {
        let seen = Mutex::new(Vec::new());
        let monitor = Monitor::new(|progress| {
            seen.lock().unwrap().push((progress.phase.to_string(), progress.fraction));
            progress.phase != "stop"
        });
        let start = |name: &CStr, parent: *const c_char, steps| virtual_call!(monitor.as_raw(), 4, (*const c_char, *const c_char, i32) -> (), name.as_ptr(), parent, steps);
        let step =
            |name: &CStr, step| virtual_call!(monitor.as_raw(), 5, (*const c_char, i32) -> bool, name.as_ptr(), step);
        let finish = |name: &CStr| virtual_call!(monitor.as_raw(), 6, (*const c_char) -> (), name.as_ptr());
        start(c"build", std::ptr::null(), 4);
        assert!(step(c"build", 0));
        start(c"search", c"build".as_ptr(), 2);
        assert!(step(c"search", 0));
        finish(c"search");
        assert!(step(c"build", 1));
        start(c"stop", c"build".as_ptr(), 1);
        assert!(!step(c"stop", 0));
        let fractions: Vec<f64> = seen.lock().unwrap().iter().map(|(_, fraction)| *fraction).collect();
        assert_eq!(fractions, [0.25, 0.375, 0.5, 0.75]);
    }

    #[test]
    fn calibrators_only_read() {
        let table = b"TRT-8600-EntropyCalibration2\nimages: 3c010a14\n";
        for (abi, first) in [(AbiVersion::V8, 0), (AbiVersion::V10, 4)] {
            let calibrator = Calibrator::new(abi, table.to_vec()).unwrap();
            let mut length = 0usize;
            let read = virtual_call!(calibrator.as_raw(), first + 2, (*mut usize) -> *const u8, &mut length);
            // SAFETY: that many bytes were read from the table.
            assert_eq!(unsafe { std::slice::from_raw_parts(read, length) }, table);
            assert_eq!(virtual_call!(calibrator.as_raw(), first + 4, () -> i32,), ENTROPY_2);
        }
        assert_eq!(Calibrator::new(AbiVersion::V8, b"TRT-1-MinMaxCalibration\n".to_vec()).unwrap().algorithm, MIN_MAX);
        for wrong in [&b""[..], b"TRT-1-LegacyCalibration\n", b"\x08\x08onnx"] {
            assert!(Calibrator::new(AbiVersion::V10, wrong.to_vec()).is_err());
        }
    }
}
