// SPDX-License-Identifier: MPL-2.0
//! The bytes that a process has allocated and not freed.
#![allow(dead_code)] // each program uses a part

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs, io};

use super::wait::{LIMIT, wait_until};

/// In the environment of a process, lets its threads keep no freed memory for themselves, which would count as allocated.
pub const NO_CACHES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// Restarts the program with [`NO_CACHES`].
pub fn without_caches() -> io::Result<()> {
    let tunables = env::var(NO_CACHES.0).unwrap_or_default();
    if tunables.split(':').any(|tunable| tunable == NO_CACHES.1) {
        return Ok(());
    }
    // Others may be set for a reason.
    let all = [tunables.as_str(), NO_CACHES.1].join(":");
    Err(Command::new(env::current_exe()?).args(env::args_os().skip(1)).env(NO_CACHES.0, all.trim_matches(':')).exec())
}

/// Bytes in all of glibc's arenas. Resident memory would not do: it grows by megabytes whenever another thread happens to
/// allocate, and stays, without anything being lost.
pub fn allocated() -> usize {
    /// `struct mallinfo2` of malloc.h: ten counters.
    #[repr(C)]
    struct Counters([usize; 10]);
    const MAPPED: usize = 4; // hblkhd
    const IN_USE: usize = 7; // uordblks
    unsafe extern "C" {
        safe fn mallinfo2() -> Counters;
    }
    let Counters(counters) = mallinfo2();
    counters[MAPPED] + counters[IN_USE]
}

/// The count once no thread of ours is left: a pipeline that was stopped does not wait for the end of a load.
pub fn settled(count: fn() -> usize) -> usize {
    wait_for_end_of("trt-");
    count()
}

/// Waits until no thread has a name that begins so.
pub fn wait_for_end_of(name: &str) {
    wait_until("the end of threads", LIMIT, || threads(name) == 0);
}

/// How many threads have a name that begins so.
pub fn threads(name: &str) -> usize {
    let is_one = |task: &io::Result<fs::DirEntry>| {
        let comm = task.as_ref().ok().and_then(|task| fs::read_to_string(task.path().join("comm")).ok());
        comm.is_some_and(|of_thread| of_thread.starts_with(name))
    };
    fs::read_dir("/proc/self/task").expect("Linux has it").filter(is_one).count()
}
