//! Programs that end while another thread is inside TensorRT, such as a build that cannot be stopped: destructors of its libraries
//! would run beneath that thread, and the program crash at its very end.

#[cfg(target_env = "gnu")]
use std::{
    ffi::{c_int, c_void},
    ptr,
};

use std::sync::atomic::{AtomicUsize, Ordering};

static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// As long as it lives, this thread is inside TensorRT.
pub struct ExitGuard;

impl ExitGuard {
    /// The library is loaded: what runs at the end runs in the opposite order. It is registered again each time, for what
    /// TensorRT has set up meanwhile must come after it too.
    pub fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        #[cfg(target_env = "gnu")]
        // SAFETY: the function takes what it is called with and lives as long as the program: plugins are never unloaded.
        unsafe {
            on_exit(leave, ptr::null_mut());
        }
        ExitGuard
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Ends the program at once, with its own status, if destructors are not safe to run.
#[cfg(target_env = "gnu")]
extern "C" fn leave(status: c_int, _: *mut c_void) {
    if INSIDE.load(Ordering::SeqCst) > 0 {
        // SAFETY: these take no memory of ours; what was printed is written before the end.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(status);
        }
    }
}
