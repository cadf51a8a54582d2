// SPDX-License-Identifier: MPL-2.0
//! The logs of the libraries that run models, and lines of our own about them.

use std::sync::OnceLock;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
    Info,
    Verbose,
}

/// Takes the lines, from any thread.
pub type Hook = fn(Level, &str);

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Where the lines go, for this process; the first call counts.
pub fn set_hook(hook: Hook) {
    let _ = HOOK.set(hook);
}

pub fn log(level: Level, line: &str) {
    if let Some(hook) = HOOK.get() {
        hook(level, line);
    }
}
