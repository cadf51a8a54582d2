// SPDX-License-Identifier: MPL-2.0
//! SIGINT (Ctrl+C) and SIGTERM: the first one asks for a clean end, the second one ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
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
        for signal in [SIGINT, SIGTERM] {
            // First what looks at the flag, then what sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, signals.seen.clone())
                .and_then(|_| flag::register_usize(signal, signals.number.clone(), signal as usize))
                .and_then(|_| flag::register(signal, signals.seen.clone()))
                .map_err(no_signals)?;
        }
        Ok(signals)
    }

    /// The same for work that may not notice: some seconds after the first signal the program ends as it does at the second.
    pub fn listen_for_engines() -> Result<Self, Failure> {
        let signals = Self::listen()?;
        let mut seen = iterator::Signals::new([SIGINT, SIGTERM]).map_err(no_signals)?;
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

fn no_signals(error: std::io::Error) -> Failure {
    format!("Cannot listen to signals: {error}.").into()
}
