// SPDX-License-Identifier: MPL-2.0
//! Waits of an element that end when it is flushed or stops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Where threads wait.
pub(super) trait Wake: Send + Sync {
    /// All of them look again. One that has just seen no flag waits by then.
    fn wake(&self);
}

/// Ends the waits of one element, which may not wait while it is flushed or once it stops. Others that wait for the same outputs
/// get them.
#[derive(Default)]
pub struct CancelToken {
    flushing: AtomicBool,
    stopped: AtomicBool,
    /// Where threads of the element wait.
    waits: Mutex<Vec<Arc<dyn Wake>>>,
    changed: Condvar,
}

impl CancelToken {
    /// Between flush-start and flush-stop the element may not wait.
    pub fn set_flushing(&self, flushing: bool) {
        self.set(&self.flushing, flushing);
    }

    /// Nor may it once it stops, until it starts again.
    pub fn set_stopped(&self, stopped: bool) {
        self.set(&self.stopped, stopped);
    }

    pub fn is_cancelled(&self) -> bool {
        [&self.flushing, &self.stopped].iter().any(|flag| flag.load(Ordering::SeqCst))
    }

    /// Waits so long; false, where the element may not.
    pub fn pause(&self, time: Duration) -> bool {
        let waits = self.waits.lock().unwrap();
        drop(self.changed.wait_timeout_while(waits, time, |_| !self.is_cancelled()).unwrap());
        !self.is_cancelled()
    }

    /// Whether a thread of the element waits.
    #[cfg(test)]
    pub(super) fn is_waiting(&self) -> bool {
        !self.waits.lock().unwrap().is_empty()
    }

    fn set(&self, flag: &AtomicBool, value: bool) {
        flag.store(value, Ordering::SeqCst);
        let waits = self.waits.lock().unwrap().clone();
        self.changed.notify_all();
        for queue in waits {
            queue.wake();
        }
    }

    /// Threads of the element wait there until the result is dropped.
    pub(super) fn waits_at<'a>(&'a self, queue: Arc<dyn Wake>) -> impl Drop + use<'a> {
        struct Wait<'a>(&'a CancelToken, Arc<dyn Wake>);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                let mut waits = self.0.waits.lock().unwrap();
                let at = waits.iter().position(|queue| Arc::ptr_eq(queue, &self.1));
                waits.swap_remove(at.expect("it is there until now"));
            }
        }
        self.waits.lock().unwrap().push(queue.clone());
        Wait(self, queue)
    }
}
