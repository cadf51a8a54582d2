// SPDX-License-Identifier: MPL-2.0
//! The threads that models compute in. Each run has those of a pool, which runs with as many threads share, until a run that
//! never ends keeps some of them: later ones then get others, so that such a model stops no other one.
//!
//! rten has a pool of its own, the only one that it loads models in. Nothing here takes threads of that for longer than a load does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rten::{RunOptions, ThreadPool};

/// By the number that is asked for.
static POOLS: Mutex<BTreeMap<Option<usize>, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// For a run that begins now, with that many threads, or as many as rten takes, one for each core.
pub fn options(count: Option<usize>) -> RunOptions {
    let new = || Arc::new(pool(count.unwrap_or_else(|| rten::thread_pool().run(rayon::current_num_threads))));
    let pool = POOLS.lock().unwrap().entry(count).or_insert_with(new).clone();
    RunOptions::default().with_thread_pool(Some(pool))
}

/// For work that may never end, and that nobody else is to wait for.
pub fn own() -> RunOptions {
    RunOptions::default().with_thread_pool(Some(Arc::new(pool(1))))
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPool::with_num_threads(threads)
}

/// Lets runs that begin later have new threads.
pub fn replace() {
    let old = std::mem::take(&mut *POOLS.lock().unwrap());
    drop(old); // without the lock; threads that are at work go on
}
