// SPDX-License-Identifier: MPL-2.0
//! SIGINT (Ctrl+C) and SIGTERM: the first one asks for a clean end, the second one ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

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
                .map_err(|error| format!("Cannot listen to signals: {error}."))?;
        }
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
