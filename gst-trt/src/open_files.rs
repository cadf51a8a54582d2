// SPDX-License-Identifier: MPL-2.0
//! How many files may be open. A camera has a dozen, and a process may have 1024 unless it asks for more: without a file for one more
//! pipeline, GLib ends the program.

/// For 20,000 cameras. Limits of containers are a billion, and who counts up to these takes minutes.
const MOST: libc::rlim_t = 1 << 18;

/// Takes as many as the user may have. Where that fails, the limit stays.
pub fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes to a structure of its own type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let wanted = limit.rlim_max.min(MOST);
    if limit.rlim_cur < wanted {
        limit.rlim_cur = wanted;
        // SAFETY: it reads a structure of its own type.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// What comes behind the largest size that the limits of the process allow a file (`ulimit -f`) is an error of whoever writes it. By
/// default the kernel ends the process there, without a word.
pub fn outlive_size_limit() {
    // SAFETY: a signal is ignored from now on, for which nothing here has a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
