// SPDX-License-Identifier: MPL-2.0
//! The threads that a source, a model or a disk can hold up. Each is known by what it works for until it ends, so that the
//! end of the program waits for those that end, and says which it leaves behind.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

#[derive(Clone, Default)]
pub struct Threads(Arc<ThreadsState>);

#[derive(Default)]
struct ThreadsState {
    alive: Mutex<AliveThreads>,
    ended: Condvar,
}

#[derive(Default)]
struct AliveThreads {
    /// Of the thread that was started last.
    number: u64,
    /// What each works for.
    subjects: BTreeMap<u64, String>,
    /// No more than that many at a time.
    #[cfg(test)]
    limit: Option<usize>,
}

/// A thread that has not ended. Belongs to it, and is dropped at its end.
pub struct Alive {
    threads: Threads,
    number: u64,
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, AliveThreads> {
        self.0.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, subject: String) -> Alive {
        let mut alive = self.lock();
        alive.number += 1;
        let number = alive.number;
        alive.subjects.insert(number, subject);
        Alive { threads: self.clone(), number }
    }

    /// Starts one, which works for that subject, such as `the source gate`.
    pub fn spawn(&self, name: String, subject: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let failed = |cause: &dyn Display| Failure::from(format!("Cannot start a thread for {subject}: {cause}."));
        #[cfg(test)]
        if self.is_full() {
            return Err(failed(&"the limit of the test"));
        }
        let alive = self.enter(subject.into());
        let work = move || {
            let _alive = alive;
            work();
        };
        thread::Builder::new().name(name).spawn(work).map(drop).map_err(|error| failed(&error))
    }

    #[cfg(test)]
    fn is_full(&self) -> bool {
        let alive = self.lock();
        alive.limit.is_some_and(|limit| alive.subjects.len() >= limit)
    }

    #[cfg(test)]
    pub fn limit(&self, limit: Option<usize>) {
        self.lock().limit = limit;
    }

    /// Returns when all have ended, or the time has passed: then with what the others work for.
    pub fn wait(&self, time: Duration) -> Vec<String> {
        let has_some = |alive: &mut AliveThreads| !alive.subjects.is_empty();
        let waited = self.0.ended.wait_timeout_while(self.lock(), time, has_some);
        let (alive, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut subjects: Vec<String> = alive.subjects.values().cloned().collect();
        subjects.sort();
        subjects.dedup();
        subjects
    }
}

/// Those that are left, for a sentence.
pub fn listed(left: &[String]) -> String {
    const MOST: usize = 8;
    let more = left.len().saturating_sub(MOST);
    let named = left[..left.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.threads.lock().subjects.remove(&self.number);
        self.threads.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn those_that_do_not_end_are_named_once() {
        let threads = Threads::default();
        let (held, hold) = channel::<()>();
        let hold = Arc::new(Mutex::new(hold));
        for _ in 0..2 {
            let hold = hold.clone();
            threads
                .spawn("test".into(), "the source gate", move || {
                    let _ = hold.lock().unwrap().recv();
                })
                .unwrap();
        }
        threads.spawn("test".into(), "the model m", || {}).unwrap();
        while threads.wait(Duration::ZERO).len() > 1 {
            let _ = threads.wait(Duration::from_millis(1));
        }
        assert_eq!(threads.wait(Duration::ZERO), ["the source gate"]);
        drop(held);
        assert!(threads.wait(Duration::from_secs(60)).is_empty());
        let cameras: Vec<String> = (1..=10).map(|number| format!("c{number}")).collect();
        assert_eq!(listed(&cameras[..2]), "c1, c2");
        assert_eq!(listed(&cameras[..8]), "c1, c2, c3, c4, c5, c6, c7, c8");
        assert_eq!(listed(&cameras), "c1, c2, c3, c4, c5, c6, c7, c8 and 2 more");
        threads.limit(Some(0));
        let refused = threads.spawn("test".into(), "the model m", || {}).unwrap_err();
        assert!(refused.to_string().contains("Cannot start a thread for the model m: "), "{refused}");
    }
}
