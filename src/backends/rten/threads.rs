// SPDX-License-Identifier: MPL-2.0
//! The threads that runs compute in: rten's own, until a run that never ends keeps some of them. Later runs then get others, so that
//! such a model stops no other one.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::{env, thread};

use rten::{RunOptions, ThreadPool};

static POOL: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// For a run that begins now; `None` stands for rten's defaults.
pub fn options() -> Option<RunOptions> {
    let pool = POOL.lock().unwrap().clone()?;
    Some(RunOptions::default().with_thread_pool(Some(pool)))
}

/// Lets runs that begin later have new threads, as many as rten takes.
pub fn replace() {
    let wanted = env::var("RTEN_NUM_THREADS").ok().and_then(|count| count.parse().ok());
    let count = wanted.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let new = Arc::new(ThreadPool::with_num_threads(count));
    let old = POOL.lock().unwrap().replace(new);
    // Dropped without the lock. Threads that are at work go on.
    drop(old);
}
