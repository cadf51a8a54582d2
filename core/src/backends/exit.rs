// SPDX-License-Identifier: MPL-2.0
//! Programs that end while another thread is inside TensorRT, OpenVINO or ONNX Runtime, such as a build that cannot be
//! stopped: destructors of the libraries would run beneath that thread, and the program crash at its very end. So the program ends without
//! them. Where no thread is inside at that moment, threads that enter later are held up for longer than the end usually takes.

#[cfg(target_env = "gnu")]
use std::{
    ffi::{c_int, c_void},
    ptr, thread,
    time::Duration,
};

#[cfg(target_env = "gnu")]
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::sync::atomic::{AtomicUsize, Ordering};

static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// How long a thread that enters at the end is held up. Destructors take milliseconds.
#[cfg(target_env = "gnu")]
const HELD_UP: Duration = Duration::from_secs(2);

/// The thread that ends the program, by its number; 0 until then.
#[cfg(target_env = "gnu")]
static ENDING: AtomicI32 = AtomicI32::new(0);

/// As long as it lives, this thread is inside such a library.
pub struct ExitGuard;

impl ExitGuard {
    /// The library is loaded: what runs at the end runs in the opposite order. Waits in a thread that comes while another one ends
    /// the program, but not forever: that one may wait for this one, to stop a pipeline.
    pub fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        #[cfg(target_env = "gnu")]
        {
            register();
            // Either this thread sees that the program ends, or `leave` sees it inside.
            let ending = ENDING.load(Ordering::SeqCst);
            if ending != 0 && ending != this_thread() {
                thread::sleep(HELD_UP);
            }
        }
        ExitGuard
    }
}

/// How often `leave` was registered.
#[cfg(target_env = "gnu")]
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// Registers `leave`, once for all libraries that are loaded by now: it must run before their destructors. TensorRT
/// loads parts of itself when it first builds, so this is done again where libraries have come since, which has an end,
/// and not for every use.
#[cfg(target_env = "gnu")]
fn register() {
    static LOADED: AtomicU64 = AtomicU64::new(0);
    let mut loads = 0u64;
    // SAFETY: the function is called during this call, with a pointer to `loads`.
    unsafe { libc::dl_iterate_phdr(Some(count_loads), (&raw mut loads).cast()) };
    if LOADED.swap(loads, Ordering::SeqCst) != loads {
        run_leave_first();
    }
}

/// What is registered last runs first.
#[cfg(target_env = "gnu")]
fn run_leave_first() {
    REGISTERED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the function takes what it is called with, and lives as long as the program: this library is linked
    // so that it is never unloaded (build.rs).
    unsafe { on_exit(leave, ptr::null_mut()) };
}

/// A library makes some of its objects at their first use, and registers their destructors then. So `leave` is registered again
/// behind the first uses, of which there are no more than this many.
#[cfg(target_env = "gnu")]
const FIRST_USES: usize = 256;

/// How many libraries were ever loaded; at least 1.
#[cfg(target_env = "gnu")]
unsafe extern "C" fn count_loads(info: *mut libc::dl_phdr_info, _: usize, loads: *mut c_void) -> c_int {
    // SAFETY: the C library gives its information, and the pointer that `register` gave it.
    unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
    1 // no more of them
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        #[cfg(target_env = "gnu")]
        if REGISTERED.load(Ordering::SeqCst) < FIRST_USES {
            run_leave_first();
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

#[cfg(target_env = "gnu")]
fn this_thread() -> libc::pid_t {
    // SAFETY: it takes nothing, and cannot fail.
    unsafe { libc::gettid() }
}

/// Ends the program at once, with its own status, if destructors are not safe to run.
#[cfg(target_env = "gnu")]
extern "C" fn leave(status: c_int, _: *mut c_void) {
    ENDING.store(this_thread(), Ordering::SeqCst);
    if INSIDE.load(Ordering::SeqCst) > 0 {
        // SAFETY: these take no memory of ours; what was printed is written before the end.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(status);
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn the_exit_handler_is_registered_behind_first_uses_only() {
        (0..2 * FIRST_USES).for_each(|_| drop(ExitGuard::enter()));
        let before = REGISTERED.load(Ordering::SeqCst);
        assert!(before >= FIRST_USES);
        (0..100).for_each(|_| drop(ExitGuard::enter()));
        // Other tests of this process may load a library meanwhile.
        assert!(REGISTERED.load(Ordering::SeqCst) < before + 100);
        assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
    }
}
