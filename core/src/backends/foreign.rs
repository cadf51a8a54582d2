// SPDX-License-Identifier: MPL-2.0
//! Objects of C libraries, which a function of the library releases.

use std::ptr::NonNull;

use super::exit::ExitGuard;

/// An object of a library, released when it is dropped.
pub struct ForeignObject<T> {
    raw: NonNull<T>,
    release: unsafe extern "C" fn(*mut T),
}

// SAFETY: the objects may be used by any thread, and are changed only by functions that take turns by themselves, or here by their
// single owner.
unsafe impl<T> Send for ForeignObject<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for ForeignObject<T> {}

impl<T> ForeignObject<T> {
    /// # Safety
    /// The object is owned by the caller, any thread may use it, and `release` is that of such objects.
    pub unsafe fn from_raw(raw: NonNull<T>, release: unsafe extern "C" fn(*mut T)) -> Self {
        ForeignObject { raw, release }
    }

    pub fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for ForeignObject<T> {
    fn drop(&mut self) {
        let _inside = ExitGuard::enter(); // a load that was given up may end with the program
        // SAFETY: nothing uses it any more.
        unsafe { (self.release)(self.raw.as_ptr()) };
    }
}
