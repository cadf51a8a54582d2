// SPDX-License-Identifier: MPL-2.0
//! What glibc does with memory that is freed. Each source has a dozen threads, which come and go with it. What a thread frees
//! stays in its arena, of which there may be eight for each core, so a service whose sources come and go would grow for hours.

#[cfg(target_env = "gnu")]
use std::ffi::{CString, OsStr, OsString, c_char};
#[cfg(target_env = "gnu")]
use std::mem::MaybeUninit;
#[cfg(target_env = "gnu")]
use std::os::unix::ffi::OsStringExt;
#[cfg(target_env = "gnu")]
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
#[cfg(target_env = "gnu")]
use std::{env, process, ptr};

use crate::failure::Failure;
use crate::threads::Threads;

/// Of 24 cameras, 15 MiB of pages become free in some minutes, between blocks that are in use. Giving them back takes 10 ms for each
/// arena of 125 MiB, for which its threads wait: no shorter interval is worth that.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(target_env = "gnu")]
const TUNABLES: &str = "GLIBC_TUNABLES";
/// What says how large caches of threads are.
#[cfg(target_env = "gnu")]
const OF_CACHES: &str = "glibc.malloc.tcache";
/// What a thread keeps for itself are blocks of at most so many bytes.
#[cfg(target_env = "gnu")]
const SMALL_CACHES: &str = "glibc.malloc.tcache_max=128";
/// Has the number of the process that has begun once more. It stays the same then: whatever takes the tunables away, there is no third
/// time.
#[cfg(target_env = "gnu")]
const BEGUN: &str = "GST_TRT_BEGUN_AGAIN";

/// Begins the program once more, with small caches of its threads. A thread keeps seven blocks of each size up to a kibibyte that it has
/// freed: with the 300 threads of 24 cameras these fill for half an hour, and never become less. glibc reads how large they may be
/// when a process begins, and nowhere else. Whoever has set a cache has a reason, and where it fails, nothing is limited.
#[cfg(target_env = "gnu")]
pub fn limit_caches() {
    let tunables = with_small_caches(&env::var_os(TUNABLES).unwrap_or_default());
    // SAFETY: it takes a number. With capabilities of its file, or as another user, a program gets no tunables from glibc.
    let gets_none = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let (Some(name), Ok(program)) = (env::args_os().next(), env::current_exe()) else { return };
    // Else it was begun by a loader, which would take these arguments for its own.
    let is_itself = Path::new(&name).file_name() == program.file_name();
    let Some(tunables) = tunables.filter(|_| is_itself && !has_begun() && !gets_none) else { return };
    let others = env::vars_os().filter(|(name, _)| name != TUNABLES && name != BEGUN);
    let number = OsString::from(process::id().to_string());
    let variables = others.chain([(TUNABLES.into(), tunables), (BEGUN.into(), number)]).map(|(mut text, value)| {
        text.push("=");
        text.push(value);
        text
    });
    let (program, arguments, variables) = (c_texts([program.into()]), c_texts(env::args_os()), c_texts(variables));
    let [program, arguments, variables] = [&program, &arguments, &variables].map(|texts| pointers(texts));
    hold_signals(libc::SIG_BLOCK);
    // Not by `std::process::Command`: where that fails, SIGPIPE ends the process from then on.
    // SAFETY: the lists end with NULL, and their texts are there until the call ends, which returns only where it fails.
    unsafe { libc::execve(program[0], arguments.as_ptr(), variables.as_ptr()) };
    hold_signals(libc::SIG_UNBLOCK);
}

#[cfg(target_env = "gnu")]
fn has_begun() -> bool {
    let own = process::id().to_string();
    env::var_os(BEGUN).is_some_and(|number| number == own.as_str())
}

/// Holds back signals that a service has handlers for, or no longer does. Without handlers they end a process, and a process 1 never
/// gets them.
#[cfg(target_env = "gnu")]
fn hold_signals(how: libc::c_int) {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call makes the set that the others are given, and the last one only reads it.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, signals.as_ptr(), ptr::null_mut());
    }
}

/// There are handlers: signals come now that were held back while the program began once more.
#[cfg(target_env = "gnu")]
pub fn release_signals() {
    if has_begun() {
        hold_signals(libc::SIG_UNBLOCK);
    }
}

/// The tunables with that of small caches; `None` where one of them is of caches.
#[cfg(target_env = "gnu")]
fn with_small_caches(tunables: &OsStr) -> Option<OsString> {
    if tunables.to_string_lossy().contains(OF_CACHES) {
        return None;
    }
    let mut all = tunables.to_os_string();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(SMALL_CACHES);
    Some(all)
}

/// Those of the system have no NUL.
#[cfg(target_env = "gnu")]
fn c_texts(texts: impl IntoIterator<Item = OsString>) -> Vec<CString> {
    texts.into_iter().filter_map(|text| CString::new(text.into_vec()).ok()).collect()
}

/// As C has a list of texts.
#[cfg(target_env = "gnu")]
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
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

/// Gives such pages back at each interval until it is dropped: glibc itself gives back only what is free at the end of an arena.
pub struct Trimming {
    /// Only to be dropped.
    _end: Sender<()>,
}

impl Trimming {
    pub fn start(threads: &Threads) -> Result<Self, Failure> {
        Self::every(TRIM_INTERVAL, threads)
    }

    fn every(interval: Duration, threads: &Threads) -> Result<Self, Failure> {
        let (end, ended) = channel();
        threads.spawn("trim".into(), "free memory", move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                trim();
            }
        })?;
        Ok(Trimming { _end: end })
    }
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
pub fn release_signals() {}

#[cfg(not(target_env = "gnu"))]
pub fn limit_arenas() {}

#[cfg(not(target_env = "gnu"))]
pub fn trim() {}

#[cfg(not(target_env = "gnu"))]
pub fn sizes() -> Option<(f64, f64)> {
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::wait::{LIMIT, wait_until};

    /// MiB of the process that are in memory and not of files.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim_end_matches("kB").trim().parse::<usize>().unwrap() >> 10
    }

    #[test]
    fn pages_between_blocks_in_use_are_given_back() {
        let block = || vec![1_u8; 1000].into_boxed_slice();
        // What is in use at both ends keeps glibc from giving back what is between.
        let first = block();
        let between: Vec<_> = (0..100 << 10).map(|_| block()).collect();
        let last = block();
        drop(between);
        let before = resident();
        assert!(before >= 90, "{before} MiB");
        let trimming = Trimming::every(Duration::from_millis(1), &Threads::default()).unwrap();
        wait_until("less memory", LIMIT, || resident() < before - 80);
        drop((trimming, first, last));
    }

    #[test]
    fn tunables_that_are_set_stay() {
        let nothing: &[u8] = b"";
        for (set, wanted) in [
            (nothing, &b"glibc.malloc.tcache_max=128"[..]),
            (b"glibc.malloc.perturb=0", b"glibc.malloc.perturb=0:glibc.malloc.tcache_max=128"),
            (b"glibc.malloc.perturb=0:\xff", b"glibc.malloc.perturb=0:\xff:glibc.malloc.tcache_max=128"),
            (b"glibc.malloc.perturb=0:glibc.malloc.tcache_count=0", nothing),
            (b"\xff:glibc.malloc.tcache_max=64", nothing),
        ] {
            let found = with_small_caches(OsStr::from_bytes(set)).unwrap_or_default();
            assert_eq!(found.as_bytes(), wanted);
        }
    }
}
