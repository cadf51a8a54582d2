// SPDX-License-Identifier: MPL-2.0
//! Reading what may not answer, such as a driver and a disk, for those that do not wait for it long.

use std::time::Duration;

use tokio::sync::Mutex;

const TIMEOUT: Duration = Duration::from_secs(1);

/// What is read within a second, or nothing. Whoever asks meanwhile has a turn behind that. What hangs keeps its turn, so that it is
/// not asked again until it has come back.
pub async fn read<T: Default + Send + 'static>(
    turns: &'static Mutex<()>,
    read: impl FnOnce() -> T + Send + 'static,
) -> T {
    let reading = async {
        let turn = turns.lock().await;
        let work = move || {
            let found = read();
            drop(turn);
            found
        };
        tokio::task::spawn_blocking(work).await.ok()
    };
    tokio::time::timeout(TIMEOUT, reading).await.ok().flatten().unwrap_or_default()
}

/// The same in a thread that may wait so long, and is the only one that asks.
#[cfg(feature = "otel")]
pub fn wait<T: Default + Send + 'static>(turns: &'static Mutex<()>, read: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(turn) = turns.try_lock() else { return T::default() };
    let (sender, found) = std::sync::mpsc::channel();
    let work = move || {
        let read = read();
        drop(turn);
        let _ = sender.send(read); // nobody waits any longer
    };
    // A thread that cannot begin drops its work, and with it the turn and the sender.
    let _ = std::thread::Builder::new().name("machine".into()).spawn(work);
    found.recv_timeout(TIMEOUT).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::wait::{LIMIT, wait_until};

    #[test]
    fn what_hangs_is_left_out_and_not_asked_again() {
        static TURNS: Mutex<()> = Mutex::const_new(());
        let (answer, waits) = channel::<u32>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let hangs = read(&TURNS, move || waits.recv().unwrap());
        assert_eq!(runtime.block_on(hangs), 0);
        assert_eq!(runtime.block_on(read(&TURNS, || 7)), 0);
        answer.send(1).unwrap();
        wait_until("it has come back", LIMIT, || TURNS.try_lock().is_ok());
        assert_eq!(runtime.block_on(read(&TURNS, || 7)), 7);
    }

    /// Such as two Prometheus of which each one is for the other.
    #[test]
    fn all_who_ask_at_the_same_time_are_answered() {
        static TURNS: Mutex<()> = Mutex::const_new(());
        let (answer, waits) = channel::<u32>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let first = runtime.spawn(read(&TURNS, move || waits.recv().unwrap()));
        let second = runtime.spawn(read(&TURNS, || 7));
        // It comes behind them.
        let answering = runtime.spawn(async move { answer.send(1).unwrap() });
        let found = runtime.block_on(async { (answering.await.unwrap(), first.await.unwrap(), second.await.unwrap()) });
        assert_eq!(found, ((), 1, 7));
    }

    #[test]
    fn after_a_panic_it_is_asked_again() {
        static TURNS: Mutex<()> = Mutex::const_new(());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(read(&TURNS, || -> u32 { panic!("as a test wants it") })), 0);
        assert_eq!(runtime.block_on(read(&TURNS, || 7)), 7);
    }

    #[cfg(feature = "otel")]
    #[test]
    fn a_thread_does_not_wait_for_what_hangs() {
        static TURNS: Mutex<()> = Mutex::const_new(());
        let (answer, waits) = channel::<u32>();
        assert_eq!(wait(&TURNS, move || waits.recv().unwrap()), 0);
        assert_eq!(wait(&TURNS, || 7), 0);
        answer.send(1).unwrap();
        wait_until("it has come back", LIMIT, || TURNS.try_lock().is_ok());
        assert_eq!(wait(&TURNS, || 7), 7);
    }
}
