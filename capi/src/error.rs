// SPDX-License-Identifier: MPL-2.0
//! Errors and panics of functions, for the program to read.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gsttrt_core::dlpack::exporter::PANIC;
use gsttrt_core::error::{Error, ErrorKind, Result};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// `GST_TRT_OK`
const OK: c_int = 0;

/// A value, or the status that the function returns.
pub(crate) type Outcome<T> = std::result::Result<T, c_int>;

/// Does the work of a function. Keeps the text of an error or panic for [`gst_trt_last_error`].
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T>) -> Outcome<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(error.kind() as c_int, &error.message())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(failed(PANIC, &format!("This is a bug of the library: {}.", text.unwrap_or("it panicked"))))
        }
    }
}

/// Keeps a text for [`gst_trt_last_error`].
pub(crate) fn failed(code: c_int, text: &str) -> c_int {
    // Fails only in a thread that is ending.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = c_string(text));
    code
}

pub(crate) fn done(outcome: Outcome<()>) -> c_int {
    outcome.err().unwrap_or(OK)
}

/// A C string. Zeros inside become spaces.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("there are no zeros")
}

pub(crate) fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::WrongType, what)
}

pub(crate) fn null(name: &str) -> Error {
    wrong(format!("The argument {name} is NULL"))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn panics_become_errors() {
        assert_eq!(contained::<()>(|| panic!("of {}", 7)), Err(PANIC));
        // SAFETY: a C string that stays until this thread's next error, and that comes after its last use.
        let text = unsafe { CStr::from_ptr(gst_trt_last_error()) };
        assert_eq!(text, c"This is a bug of the library: of 7.");
        assert_eq!(done(contained(|| Err(wrong("a\0b")))), 7);
        // SAFETY: as above; no error follows.
        assert_eq!(unsafe { CStr::from_ptr(gst_trt_last_error()) }, c"a\\u{0}b.");
    }
}
