// SPDX-License-Identifier: MPL-2.0
//! What is in use is used again: streams with a model each have one engine in GPU memory, in which each has its own context, and streams
//! with a gallery each have one copy of it.
//!
//! That also saves the time to load it, and what a load leaves behind: TensorRT 8.6 does not unload all that it loads with
//! an engine that has a Softmax, which is 92 kB of the heap each time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, TryLockError, Weak};

/// Things by what they were made from, as long as they are used.
pub(crate) struct InUse<K, T>(LazyLock<Mutex<HashMap<K, Arc<Slot<T>>>>>);

/// Locked while its thing is made, so that others who need the same wait for it instead of making another.
type Slot<T> = Mutex<Weak<T>>;

impl<K: Eq + Hash, T> InUse<K, T> {
    pub const fn new() -> Self {
        InUse(LazyLock::new(Mutex::default))
    }

    /// What is in use by this key, else what `make` returns. If that is an error, the next call makes it again.
    pub fn get<E>(&self, key: K, make: impl FnOnce() -> Result<Arc<T>, E>) -> Result<Arc<T>, E> {
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|_, slot| is_needed(slot));
            slots.entry(key).or_default().clone()
        };
        // After a panic in `make` there is nothing in it.
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = known.upgrade() {
            return Ok(used);
        }
        let made = make()?;
        *known = Arc::downgrade(&made);
        Ok(made)
    }
}

/// Whether something is in it, or a thread is about to make it.
fn is_needed<T>(slot: &Arc<Slot<T>>) -> bool {
    Arc::strong_count(slot) > 1
        || match slot.try_lock() {
            Ok(known) => known.strong_count() > 0,
            Err(TryLockError::Poisoned(_)) => false,
            Err(TryLockError::WouldBlock) => true,
        }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn get(all: &InUse<u32, u32>, key: u32, value: u32) -> Arc<u32> {
        all.get(key, || Ok::<_, Infallible>(Arc::new(value))).unwrap()
    }

    #[test]
    fn what_is_in_use_is_used_again() {
        let all = InUse::new();
        let first = get(&all, 1, 10);
        assert_eq!((*get(&all, 1, 11), *get(&all, 2, 20)), (10, 20));
        drop(first);
        assert_eq!(*get(&all, 1, 12), 12, "nobody used it any more");
        assert_eq!(all.0.lock().unwrap().len(), 1, "what nobody uses is forgotten");
    }

    #[test]
    fn an_error_and_a_panic_leave_nothing_behind() {
        let all: InUse<u32, u32> = InUse::new();
        assert_eq!(all.get(1, || Err("no memory")), Err("no memory"));
        let panicked =
            thread::scope(|scope| scope.spawn(|| all.get(1, || -> Result<_, ()> { panic!("a test") })).join());
        assert!(panicked.is_err());
        assert_eq!(*get(&all, 1, 10), 10);
    }

    #[test]
    fn it_is_made_once_for_all_threads() {
        const THREADS: usize = 8;
        let (all, made, start) = (InUse::new(), AtomicUsize::new(0), Barrier::new(THREADS));
        let used: Vec<Arc<usize>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        all.get(1, || Ok::<_, Infallible>(Arc::new(made.fetch_add(1, Ordering::SeqCst)))).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(used.iter().all(|one| Arc::ptr_eq(one, &used[0])));
        assert_eq!(made.into_inner(), 1);
    }
}
