// SPDX-License-Identifier: MPL-2.0
//! Structures that the program fills, and that may have more fields in later versions.

use std::mem::MaybeUninit;

use gsttrt_core::error::Result;

use crate::error::{null, wrong};

/// A structure of `gsttrt.h`, whose first field `struct_size` is its size in the program.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, has no padding, and zeros are valid for all its fields.
pub(crate) unsafe trait Input: Copy {
    const NAME: &'static str;
    /// Its size in the first version.
    const FIRST_SIZE: usize;
}

/// No version has this size.
const TOO_LARGE: usize = 4096;

/// Copies a structure. Fields that the program does not know become zero. Fields that this library does not know must
/// be zero.
///
/// # Safety
/// `pointer` is NULL or points to a `usize`. If that number is at least `T::FIRST_SIZE` and less than
/// [`TOO_LARGE`], that many initialised bytes begin there.
pub(crate) unsafe fn read<T: Input>(argument: &str, pointer: *const T) -> Result<T> {
    if pointer.is_null() {
        return Err(null(argument));
    }
    // SAFETY: `pointer` is not NULL, so it points to a `usize`, perhaps an unaligned one.
    let given = unsafe { pointer.cast::<usize>().read_unaligned() };
    let (name, known) = (T::NAME, size_of::<T>());
    if given < T::FIRST_SIZE || given >= TOO_LARGE {
        return Err(wrong(format!("The argument {argument} has struct_size {given}"))
            .cause(format!("{name} has {known} bytes, and never less than {}", T::FIRST_SIZE))
            .remedy(format!("Set struct_size to sizeof ({name})")));
    }
    // SAFETY: `given` is in the range of possible sizes, which was checked, so that many initialised bytes exist.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), given) };
    let (common, more) = bytes.split_at(given.min(known));
    if more.iter().any(|&byte| byte != 0) {
        return Err(wrong(format!("The argument {argument} uses fields that this library does not know"))
            .cause(format!("its struct_size is {given}, and {name} has {known} bytes here"))
            .remedy("Install the library that the program was built for"));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `common` is no longer than `T`. Fields behind it stay zero, which `Input` promises to be valid. For the
    // copied bytes all values are valid, because the fields are numbers and pointers.
    unsafe {
        std::ptr::copy_nonoverlapping(common.as_ptr(), value.as_mut_ptr().cast(), common.len());
        Ok(value.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct First {
        struct_size: usize,
        width: usize,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Second {
        struct_size: usize,
        width: usize,
        angle: usize,
    }

    // SAFETY: `repr(C)`, two `usize`: no padding, and zeros are valid.
    unsafe impl Input for First {
        const NAME: &'static str = "Size";
        const FIRST_SIZE: usize = size_of::<First>();
    }
    // SAFETY: the same with three.
    unsafe impl Input for Second {
        const NAME: &'static str = "Size";
        const FIRST_SIZE: usize = size_of::<First>();
    }

    /// Reads a program's structure with a library that knows it as `T`.
    fn read_as<T: Input, P>(program: &P) -> Result<T> {
        // SAFETY: `program` is a reference, and the tests set `struct_size` to its size, or to an impossible one.
        unsafe { read("size", (&raw const *program).cast()) }
    }

    #[test]
    fn fields_can_be_appended() {
        let first = First { struct_size: size_of::<First>(), width: 7 };
        assert_eq!(read_as::<Second, _>(&first).unwrap(), Second { struct_size: 16, width: 7, angle: 0 });
        let mut second = Second { struct_size: size_of::<Second>(), width: 7, angle: 0 };
        assert_eq!(read_as::<First, _>(&second).unwrap(), First { struct_size: 24, width: 7 });
        second.angle = 1;
        let error = read_as::<First, _>(&second).unwrap_err().message();
        assert!(error.contains("fields that this library does not know"), "{error}");
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for size in [0, 15, TOO_LARGE, usize::MAX] {
            let error = read_as::<First, _>(&First { struct_size: size, width: 7 }).unwrap_err().message();
            assert!(
                error.contains(&format!("size has struct_size {size}")) && error.contains("sizeof (Size)"),
                "{error}"
            );
        }
        // SAFETY: NULL is refused before it is read.
        assert!(unsafe { read::<First>("size", std::ptr::null()) }.unwrap_err().message().contains("size is NULL"));
    }
}
