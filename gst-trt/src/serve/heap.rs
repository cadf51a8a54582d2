// SPDX-License-Identifier: MPL-2.0
//! What glibc does with memory that is freed. Each source has a dozen threads, which come and go with it. What a thread frees
//! stays in its arena, of which there may be eight for each core, so a service whose sources come and go would grow for hours.

#[cfg(target_env = "gnu")]
use std::os::unix::process::CommandExt;
#[cfg(target_env = "gnu")]
use std::path::Path;
#[cfg(target_env = "gnu")]
use std::process::Command;

#[cfg(target_env = "gnu")]
const TUNABLES: &str = "GLIBC_TUNABLES";
/// What a thread keeps for itself are blocks of at most so many bytes.
#[cfg(target_env = "gnu")]
const SMALL_CACHES: &str = "glibc.malloc.tcache_max=256";

/// Begins the program once more, with small caches of its threads. A thread keeps seven blocks of each size up to a kibibyte that it has
/// freed: with the 300 threads of 24 cameras these fill for half an hour, and never become less. glibc reads how large they may be
/// when a process begins, and nowhere else. Whoever has set a cache has a reason, and where it fails, nothing is limited.
#[cfg(target_env = "gnu")]
pub fn limit_caches() {
    let tunables = std::env::var(TUNABLES).unwrap_or_default();
    let mut arguments = std::env::args_os();
    let (Some(name), Ok(program)) = (arguments.next(), std::env::current_exe()) else { return };
    // Else it was begun by a loader, which would take these arguments for its own.
    let is_itself = Path::new(&name).file_name() == program.file_name();
    if tunables.contains("glibc.malloc.tcache") || !is_itself {
        return;
    }
    let all = [tunables.as_str(), SMALL_CACHES].join(":");
    // SAFETY: it takes two numbers. A SIGHUP that comes before there is a handler once more must not end it.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let _failed = Command::new(program).arg0(name).args(arguments).env(TUNABLES, all.trim_matches(':')).exec();
}

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
pub fn limit_caches() {}

#[cfg(not(target_env = "gnu"))]
pub fn limit_arenas() {}

#[cfg(not(target_env = "gnu"))]
pub fn trim() {}

#[cfg(not(target_env = "gnu"))]
pub fn sizes() -> Option<(f64, f64)> {
    None
}
