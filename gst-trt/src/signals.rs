// SPDX-License-Identifier: MPL-2.0
//! SIGINT (Ctrl+C), SIGTERM and SIGHUP, which the end of a terminal sends: the first one asks for a clean end. A second one
//! ends the program at once, but for SIGHUP: shell and kernel both send it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use signal_hook::{flag, iterator, low_level};

use crate::failure::Failure;
use crate::terminal::print_error;

/// How long work of an engine may take to notice a signal. A build of TensorRT looks after each step, and a run not at all.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether one of the signals has come.
#[derive(Clone)]
pub struct Signals {
    seen: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
    /// Has something to read from the first signal on, which is never read: it wakes whoever waits.
    woken: Arc<UnixStream>,
}

impl Signals {
    pub fn listen() -> Result<Self, Failure> {
        let (woken, wake) = UnixStream::pair().map_err(no_signals)?;
        let signals = Signals { seen: Arc::default(), number: Arc::default(), woken: Arc::new(woken) };
        // Those that tests wait for come last.
        for signal in listened_to() {
            // First what looks at the flag, then what sets it.
            let ends =
                |signal| flag::register_conditional_shutdown(signal, 128 + signal, signals.seen.clone()).map(drop);
            let shut_down = if signal == SIGHUP { Ok(()) } else { ends(signal) };
            shut_down
                .and_then(|()| flag::register_usize(signal, signals.number.clone(), signal as usize))
                .and_then(|_| flag::register(signal, signals.seen.clone()))
                .and_then(|_| pipe::register(signal, wake.try_clone()?))
                .map_err(no_signals)?;
        }
        Ok(signals)
    }

    /// The same for work that may not notice: some seconds after the first signal the program ends as it does at the second.
    pub fn listen_for_engines() -> Result<Self, Failure> {
        let signals = Self::listen()?;
        let mut seen = iterator::Signals::new(listened_to()).map_err(no_signals)?;
        let end = move || {
            let Some(signal) = seen.forever().next() else { return };
            thread::sleep(LIMIT); // the end of the program ends this, too
            print_error("Error: the engine does not stop; the program ends without it.");
            low_level::exit(128 + signal);
        };
        thread::Builder::new().name("signals".into()).spawn(end).map_err(no_signals)?;
        Ok(signals)
    }

    /// The signal, once it has come.
    pub fn signal(&self) -> Option<i32> {
        if self.seen.load(Ordering::SeqCst) { Some(self.number.load(Ordering::SeqCst) as i32) } else { None }
    }

    /// Waits so long, or until the first signal, which it returns.
    pub fn wait(&self, time: Duration) -> Option<i32> {
        self.poll(&[self.woken.as_fd()], Some(time))
    }

    /// Waits until there is something to read of the other one, or its end, or until the first signal, which it returns.
    pub fn wait_for(&self, other: &impl AsFd) -> Option<i32> {
        self.poll(&[self.woken.as_fd(), other.as_fd()], None)
    }

    fn poll(&self, all: &[BorrowedFd<'_>], limit: Option<Duration>) -> Option<i32> {
        let begun = Instant::now();
        let of = |one: &BorrowedFd<'_>| libc::pollfd { fd: one.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> = all.iter().map(of).collect();
        // One that came while the handlers were made has written nothing.
        while self.signal().is_none() {
            let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()).as_micros().div_ceil(1000));
            let left = left.map_or(-1, |milliseconds| milliseconds.min(i32::MAX as u128) as i32);
            // SAFETY: so many structures, which live during the call, of descriptors that are open.
            let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, left) };
            // A signal interrupts it.
            if count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        self.signal()
    }

    /// Set from the first signal on, for work that asks for it.
    pub fn flag(&self) -> &AtomicBool {
        &self.seen
    }
}

/// SIGHUP is left alone where it is ignored: `nohup` has started the program, which is to go on.
fn listened_to() -> Vec<i32> {
    // SAFETY: it is made of numbers, and written to; no handler is changed.
    let is_ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(SIGHUP, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    let hangup = (!is_ignored).then_some(SIGHUP);
    hangup.into_iter().chain([SIGINT, SIGTERM]).collect()
}

fn no_signals(error: io::Error) -> Failure {
    format!("Cannot listen to signals: {error}.").into()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_wait_ends_at_its_limit_at_the_other_end_and_at_a_signal() {
        const HOUR: Duration = Duration::from_secs(3600);
        let (woken, mut wake) = UnixStream::pair().unwrap();
        let signals = Signals { seen: Arc::default(), number: Arc::default(), woken: Arc::new(woken) };
        assert_eq!([Duration::ZERO, Duration::from_micros(1)].map(|time| signals.wait(time)), [None; 2]);
        let (other, end) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| signals.wait_for(&other));
            drop(end);
            assert_eq!(waiting.join().unwrap(), None);
        });
        let (other, _end) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let waiting = [scope.spawn(|| signals.wait(HOUR)), scope.spawn(|| signals.wait_for(&other))];
            // As the handler of a signal does it.
            signals.number.store(SIGTERM as usize, Ordering::SeqCst);
            signals.seen.store(true, Ordering::SeqCst);
            wake.write_all(b"X").unwrap();
            assert_eq!(waiting.map(|waiting| waiting.join().unwrap()), [Some(SIGTERM); 2]);
        });
        assert_eq!(signals.wait(HOUR), Some(SIGTERM), "nothing is waited for any more");
    }
}
