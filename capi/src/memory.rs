//! Arguments that are pointers.

use std::ffi::{CStr, c_char};

use gsttrt::core::error::Result;

use crate::error::{null, wrong};

/// # Safety
/// A pointer that is not NULL is to a text that ends with zero and stays for `'a`.
pub(crate) unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| wrong(format!("The argument {name} is no UTF-8")))
}

/// Writes a result.
///
/// # Safety
/// A pointer that is not NULL is to memory for a `T`.
pub(crate) unsafe fn give<T>(name: &str, to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(null(name));
    }
    // SAFETY: as the caller says.
    unsafe { to.write(value) };
    Ok(())
}

/// `count` values that C has.
///
/// # Safety
/// A pointer that is not NULL is to so many initialised values, which stay for `'a`.
pub(crate) unsafe fn array<'a, T>(name: &str, pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() || count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(wrong(format!("The argument {name} is no array of {count}")));
    }
    // SAFETY: as the caller says, and as was checked.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}
