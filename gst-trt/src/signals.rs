// SPDX-License-Identifier: MPL-2.0
//! SIGINT (Ctrl+C), SIGTERM and SIGHUP, which the end of a terminal sends: the first one asks for a clean end. A second one
//! ends the program at once, but for SIGHUP: shell and kernel both send it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, iterator, low_level};

use crate::failure::Failure;

/// How long work of an engine may take to notice a signal. A build of TensorRT looks after each step, and a run not at all.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether one of the signals has come.
#[derive(Clone)]
pub struct Signals {
    seen: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    pub fn listen() -> Result<Self, Failure> {
        let signals = Signals { seen: Arc::default(), number: Arc::default() };
        // Those that tests wait for come last.
        for signal in listened_to() {
            // First what looks at the flag, then what sets it.
            let ends =
                |signal| flag::register_conditional_shutdown(signal, 128 + signal, signals.seen.clone()).map(drop);
            let shut_down = if signal == SIGHUP { Ok(()) } else { ends(signal) };
            shut_down
                .and_then(|()| flag::register_usize(signal, signals.number.clone(), signal as usize))
                .and_then(|_| flag::register(signal, signals.seen.clone()))
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
            thread::sleep(LIMIT);
            eprintln!("Error: the engine does not stop; the program ends without it.");
            low_level::exit(128 + signal);
        };
        thread::Builder::new().name("signals".into()).spawn(end).map_err(no_signals)?;
        Ok(signals)
    }

    /// The signal, once it has come.
    pub fn signal(&self) -> Option<i32> {
        if self.seen.load(Ordering::SeqCst) { Some(self.number.load(Ordering::SeqCst) as i32) } else { None }
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

fn no_signals(error: std::io::Error) -> Failure {
    format!("Cannot listen to signals: {error}.").into()
}
