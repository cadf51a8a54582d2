// SPDX-License-Identifier: MPL-2.0
//! The threads that runs compute in: rten's own, or a pool of as many as are asked for, until a run that never ends
//! keeps some of them. Later runs then get others, so that such a model stops no other one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rten::{RunOptions, ThreadPool};

use super::super::host::usual_threads;

/// By the number that is asked for.
static POOLS: Mutex<BTreeMap<Option<usize>, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// For a run that begins now, with that many threads, or as many as there are cores; `None` stands for rten's defaults.
pub fn options(count: Option<usize>) -> Option<RunOptions> {
    let mut pools = POOLS.lock().unwrap();
    let pool = match (pools.get(&count), count) {
        (Some(pool), _) => pool.clone(),
        (None, None) => return None,
        (None, Some(threads)) => {
            let pool = Arc::new(ThreadPool::with_num_threads(threads));
            pools.insert(count, pool.clone());
            pool
        }
    };
    Some(RunOptions::default().with_thread_pool(Some(pool)))
}

/// Lets runs that begin later have new threads.
pub fn replace() {
    let mut pools = POOLS.lock().unwrap();
    let new = |count: Option<usize>| Arc::new(ThreadPool::with_num_threads(count.unwrap_or_else(usual_threads)));
    let wanted: Vec<Option<usize>> = pools.keys().copied().chain([None]).collect();
    let old = std::mem::replace(&mut *pools, wanted.into_iter().map(|count| (count, new(count))).collect());
    drop(pools);
    drop(old); // without the lock; threads that are at work go on
}
