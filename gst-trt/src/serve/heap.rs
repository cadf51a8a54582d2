// SPDX-License-Identifier: MPL-2.0
//! What glibc does with memory that is freed. Each source has a dozen threads, which come and go with it. What a thread frees
//! stays in its arena, of which there may be eight for each core, so a service whose sources come and go would grow for hours.

/// No more arenas than cores: threads share them. Called before there are threads.
#[cfg(target_env = "gnu")]
pub fn limit_arenas() {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    // SAFETY: it takes two numbers, and where it fails, nothing is limited.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, cores.try_into().unwrap_or(libc::c_int::MAX)) };
}

/// Gives the pages that have become free back to the system.
#[cfg(target_env = "gnu")]
pub fn trim() {
    // SAFETY: it may be called at any time, from any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Bytes of the heap that are in use, and those that it holds: what is freed stays with it until a whole page is free.
#[cfg(target_env = "gnu")]
pub fn sizes() -> Option<(f64, f64)> {
    // SAFETY: it may be called at any time, from any thread. It counts every arena.
    let info = unsafe { libc::mallinfo2() };
    let (in_use, held) = (info.uordblks + info.hblkhd, info.arena + info.hblkhd);
    Some((in_use as f64, held as f64))
}

#[cfg(not(target_env = "gnu"))]
pub fn limit_arenas() {}

#[cfg(not(target_env = "gnu"))]
pub fn trim() {}

#[cfg(not(target_env = "gnu"))]
pub fn sizes() -> Option<(f64, f64)> {
    None
}
