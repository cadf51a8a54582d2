// SPDX-License-Identifier: MPL-2.0
//! The threads that models compute in. Each run has those of a pool, which runs with as many threads share, until a run that
//! never ends keeps some of them: later ones then get others, so that such a model stops no other one.
//!
//! rten has a pool of its own, the only one that it loads models in. Nothing here takes threads of that for longer than a load does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rten::{RunOptions, ThreadPool};

use crate::backends::host::usual_threads;

/// By the number that is asked for.
static POOLS: Mutex<BTreeMap<Option<usize>, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// For a run that begins now, with that many threads, or one for each core.
pub fn options(count: Option<usize>) -> RunOptions {
    let new = || Arc::new(pool(count.unwrap_or_else(one_for_each_core)));
    let pool = POOLS.lock().unwrap().entry(count).or_insert_with(new).clone();
    RunOptions::default().with_thread_pool(Some(pool))
}

/// For work that may never end, and that nobody else is to wait for.
pub fn own() -> RunOptions {
    RunOptions::default().with_thread_pool(Some(Arc::new(pool(1))))
}

/// As many as rten takes. It counts the cores of the machine, of which a container, or a program with an affinity, may have few.
fn one_for_each_core() -> usize {
    rten::thread_pool().run(rayon::current_num_threads).min(usual_threads())
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPool::with_num_threads(threads)
}

/// Lets runs that begin later have new threads.
pub fn replace() {
    let old = std::mem::take(&mut *POOLS.lock().unwrap());
    drop(old); // without the lock; threads that are at work go on
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn there_are_no_more_threads_than_cores_that_may_be_used() {
        let threads = thread::spawn(|| {
            // SAFETY: these read and write sets of cores, of this thread alone.
            unsafe {
                let (mut all, mut one): (libc::cpu_set_t, libc::cpu_set_t) = (std::mem::zeroed(), std::mem::zeroed());
                assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &mut all), 0);
                let first = (0..libc::CPU_SETSIZE as usize).find(|&core| libc::CPU_ISSET(core, &all));
                libc::CPU_SET(first.expect("it runs on one"), &mut one);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            }
            one_for_each_core()
        });
        assert_eq!(threads.join().unwrap(), 1);
    }
}
