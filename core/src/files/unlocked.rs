// SPDX-License-Identifier: MPL-2.0
//! Waiting, with a limit, for the end of a lock that another one has on a file.
//!
//! `flock` has no limit of time, so a thread waits in it: one for each file, however many wait and come back. After the limit it
//! stays until the file is unlocked, lets the lock go at once, and ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The files that are waited for, by their device and their number on it.
static AWAITED: Mutex<BTreeMap<(u64, u64), Arc<AwaitedFile>>> = Mutex::new(BTreeMap::new());

/// A file that a thread waits for.
#[derive(Default)]
struct AwaitedFile {
    /// Once the thread has its lock; an error of the system by its number.
    outcome: Mutex<Option<Result<(), i32>>>,
    has_come: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true once nobody has locked the file, and false where somebody has for longer than `limit`. The caller does not have the
/// lock then: it tries to take it, and another one may be faster.
pub(crate) fn wait_until_unlocked(file: File, limit: Duration) -> io::Result<bool> {
    let awaited = awaited(file)?;
    let waited = awaited.has_come.wait_timeout_while(lock(&awaited.outcome), limit, |outcome| outcome.is_none());
    let (outcome, _) = waited.unwrap_or_else(PoisonError::into_inner);
    match *outcome {
        None => Ok(false),
        Some(Ok(())) => Ok(true),
        Some(Err(number)) => Err(io::Error::from_raw_os_error(number)),
    }
}

/// The wait for a file: that of a thread which is there, or of a new one.
fn awaited(file: File) -> io::Result<Arc<AwaitedFile>> {
    let found = file.metadata()?;
    let id = (found.dev(), found.ino());
    let mut all = lock(&AWAITED);
    if let Some(awaited) = all.get(&id) {
        return Ok(awaited.clone());
    }
    let awaited = Arc::<AwaitedFile>::default();
    let told = awaited.clone();
    let wait = move || {
        let outcome = wait_without_limit(&file);
        // While the file is open, no other one has its number.
        lock(&AWAITED).remove(&id);
        // Also where a child of this process has not yet closed its copy of the file.
        let _ = file.unlock();
        drop(file);
        *lock(&told.outcome) = Some(outcome);
        told.has_come.notify_all();
    };
    thread::Builder::new().name("trt-lock".into()).spawn(wait)?;
    all.insert(id, awaited.clone());
    Ok(awaited)
}

fn wait_without_limit(file: &File) -> Result<(), i32> {
    loop {
        match file.lock() {
            Ok(()) => return Ok(()),
            // A signal came to this thread.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::test::{LIMIT, scratch};

    /// A file that nobody else has, and its lock.
    fn locked(path: &Path) -> File {
        let file = File::create(path).unwrap();
        file.lock().unwrap();
        file
    }

    fn wait(path: &Path, limit: Duration) -> bool {
        wait_until_unlocked(File::open(path).unwrap(), limit).unwrap()
    }

    fn thread_of(file: &File) -> Option<Arc<AwaitedFile>> {
        let found = file.metadata().unwrap();
        lock(&AWAITED).get(&(found.dev(), found.ino())).cloned()
    }

    #[test]
    fn all_that_wait_are_woken_when_the_lock_ends() {
        let path = scratch("files-unlocked").join("file");
        let holder = locked(&path);
        thread::scope(|scope| {
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| wait(&path, LIMIT))).collect();
            holder.unlock().unwrap();
            assert!(waits.into_iter().all(|wait| wait.join().unwrap()));
        });
        assert!(wait(&path, LIMIT), "nobody has locked it");
    }

    #[test]
    fn what_waits_after_the_limit_is_one_thread_that_keeps_no_lock() {
        let path = scratch("files-locked").join("file");
        let holder = locked(&path);
        assert!(!wait(&path, Duration::ZERO));
        let first = thread_of(&holder).unwrap();
        assert!(!wait(&path, Duration::from_millis(1)));
        assert!(Arc::ptr_eq(&first, &thread_of(&holder).unwrap()), "those that come back wait with it");
        holder.unlock().unwrap();
        // Once it is told, the thread has let the lock go.
        let outcome = lock(&first.outcome);
        drop(first.has_come.wait_timeout_while(outcome, LIMIT, |outcome| outcome.is_none()).unwrap());
        assert_eq!(*lock(&first.outcome), Some(Ok(())));
        assert!(thread_of(&holder).is_none());
        File::open(&path).unwrap().try_lock().unwrap();
    }
}
