// SPDX-License-Identifier: MPL-2.0
//! Arguments that are pointers.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gsttrt_core::error::Result;

use crate::error::{null, wrong};

/// # Safety
/// `pointer` is NULL or a C string that stays unwritten for `'a`.
pub(crate) unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so it is a C string that stays for `'a`.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| wrong(format!("The argument {name} is no UTF-8")))
}

/// A path, which may have any bytes.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(name: &str, pointer: *const c_char) -> Result<&'a Path> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so it is a C string that stays for `'a`.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Writes a result.
///
/// # Safety
/// `to` is NULL or aligned room for a `T`.
pub(crate) unsafe fn give<T>(name: &str, to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so there is room for a `T`.
    unsafe { to.write(value) };
    Ok(())
}

/// An array of `count` values.
///
/// # Safety
/// If `count` is not 0, `pointer` is NULL or points to that many initialised values, which stay unwritten for `'a`.
pub(crate) unsafe fn array<'a, T>(name: &str, pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(name, pointer, count)?;
    // SAFETY: it is not NULL, so there are `count` initialised values for `'a`. That it is aligned and no larger than
    // a slice may be was checked.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Room for `count` pointers to results, which are NULL from now on.
///
/// # Safety
/// If `count` is not 0, `pointer` is NULL or points to room for that many, which nothing else uses for `'a`.
pub(crate) unsafe fn room<'a, T>(name: &str, pointer: *mut *mut T, count: usize) -> Result<&'a mut [*mut T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(name, pointer, count)?;
    // SAFETY: it is not NULL, so there is room for `count` pointers for `'a`, which are initialised before they become a
    // slice. That it is aligned and no larger than a slice may be was checked.
    unsafe {
        (0..count).for_each(|index| pointer.add(index).write(std::ptr::null_mut()));
        Ok(std::slice::from_raw_parts_mut(pointer, count))
    }
}

/// Writes an array, unless it is NULL.
///
/// # Safety
/// `to` is NULL or room for as many values, which nothing else uses.
pub(crate) unsafe fn fill<T>(name: &str, to: *mut T, values: impl ExactSizeIterator<Item = T>) -> Result<()> {
    if to.is_null() || values.len() == 0 {
        return Ok(());
    }
    check(name, to, values.len())?;
    for (index, value) in values.enumerate() {
        // SAFETY: it is not NULL, so there is room for as many values. That it is aligned was checked.
        unsafe { to.add(index).write(value) };
    }
    Ok(())
}

/// What can be known of an array.
fn check<T>(name: &str, pointer: *const T, count: usize) -> Result<()> {
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() || count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(wrong(format!("The argument {name} is no array of {count}")));
    }
    Ok(())
}
