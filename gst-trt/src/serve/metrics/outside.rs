// SPDX-License-Identifier: MPL-2.0
//! Reading what may not answer, such as a driver and a disk, for those that do not wait for it long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(1);

/// What is read within a second, or nothing. What hangs is not asked again until it has come back, of which the flag knows.
pub async fn read<T: Default + Send + 'static>(
    is_reading: &'static AtomicBool,
    read: impl FnOnce() -> T + Send + 'static,
) -> T {
    if is_reading.swap(true, Ordering::Acquire) {
        return T::default();
    }
    let reading = tokio::task::spawn_blocking(move || {
        let found = read();
        is_reading.store(false, Ordering::Release);
        found
    });
    tokio::time::timeout(TIMEOUT, reading).await.ok().and_then(Result::ok).unwrap_or_default()
}

/// The same in a thread that may wait so long.
#[cfg(feature = "otel")]
pub fn wait<T: Default + Send + 'static>(
    is_reading: &'static AtomicBool,
    read: impl FnOnce() -> T + Send + 'static,
) -> T {
    if is_reading.swap(true, Ordering::Acquire) {
        return T::default();
    }
    let (sender, found) = std::sync::mpsc::channel();
    let work = move || {
        let read = read();
        is_reading.store(false, Ordering::Release);
        let _ = sender.send(read); // nobody waits any longer
    };
    if std::thread::Builder::new().name("machine".into()).spawn(work).is_err() {
        is_reading.store(false, Ordering::Release);
    }
    found.recv_timeout(TIMEOUT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::wait::{LIMIT, wait_until};

    #[test]
    fn what_hangs_is_left_out_and_not_asked_again() {
        static IS_READING: AtomicBool = AtomicBool::new(false);
        let (answer, waits) = channel::<u32>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let hangs = read(&IS_READING, move || waits.recv().unwrap());
        assert_eq!(runtime.block_on(hangs), 0);
        assert_eq!(runtime.block_on(read(&IS_READING, || 7)), 0);
        answer.send(1).unwrap();
        wait_until("it has come back", LIMIT, || !IS_READING.load(Ordering::Acquire));
        assert_eq!(runtime.block_on(read(&IS_READING, || 7)), 7);
    }

    #[cfg(feature = "otel")]
    #[test]
    fn a_thread_does_not_wait_for_what_hangs() {
        static IS_READING: AtomicBool = AtomicBool::new(false);
        let (answer, waits) = channel::<u32>();
        assert_eq!(wait(&IS_READING, move || waits.recv().unwrap()), 0);
        assert_eq!(wait(&IS_READING, || 7), 0);
        answer.send(1).unwrap();
        wait_until("it has come back", LIMIT, || !IS_READING.load(Ordering::Acquire));
        assert_eq!(wait(&IS_READING, || 7), 7);
    }
}
