// SPDX-License-Identifier: MPL-2.0
//! One build at a time: two would spoil each other's measurements of kernels, and TensorRT-RTX 1.7 mixes up the GPUs that they are
//! for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::cache::CANCEL_INTERVAL;

static BUILDS: BuildTurns = BuildTurns::new();

struct BuildTurns {
    is_taken: Mutex<bool>,
    has_ended: Condvar,
}

/// The turn of one build, until it is dropped.
pub struct BuildTurn<'a>(&'a BuildTurns);

/// Waits until no other engine is built. Calls `waiting` once if it has to wait; `None` when it was cancelled meanwhile.
pub fn turn(cancelled: &AtomicBool, waiting: impl FnOnce()) -> Option<BuildTurn<'static>> {
    BUILDS.take(cancelled, waiting)
}

impl BuildTurns {
    const fn new() -> Self {
        BuildTurns { is_taken: Mutex::new(false), has_ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, cancelled: &AtomicBool, waiting: impl FnOnce()) -> Option<BuildTurn<'_>> {
        let has_to_wait = *self.lock();
        if has_to_wait && !cancelled.load(Ordering::Relaxed) {
            waiting();
        }
        let mut is_taken = self.lock();
        while !cancelled.load(Ordering::Relaxed) {
            if !*is_taken {
                *is_taken = true;
                return Some(BuildTurn(self));
            }
            let woken = self.has_ended.wait_timeout(is_taken, CANCEL_INTERVAL);
            is_taken = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

impl Drop for BuildTurn<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.has_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn the_next_build_has_its_turn_when_the_one_before_ends() {
        let turns = BuildTurns::new();
        let first = turns.take(&GO_ON, || panic!("nothing else is built")).unwrap();
        let (sender, waits) = channel();
        thread::scope(|scope| {
            let second = scope.spawn(|| turns.take(&GO_ON, || sender.send(()).unwrap()).is_some());
            waits.recv().unwrap();
            drop(first);
            assert!(second.join().unwrap());
        });
        drop(turns.take(&GO_ON, || panic!("all have ended")).unwrap());
    }

    #[test]
    fn a_wait_that_is_cancelled_has_no_turn() {
        let turns = BuildTurns::new();
        let _first = turns.take(&GO_ON, || panic!("nothing else is built")).unwrap();
        let cancelled = AtomicBool::new(false);
        assert!(turns.take(&cancelled, || cancelled.store(true, Ordering::Relaxed)).is_none());
        assert!(turns.take(&cancelled, || panic!("it does not even begin to wait")).is_none());
    }
}
