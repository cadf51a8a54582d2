// SPDX-License-Identifier: MPL-2.0
//! Why a subcommand fails, and the exit status.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};

/// What is printed behind `Error: `: what failed, why, and what to do.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Failure(text.into())
    }
}

impl From<gsttrt_core::error::Error> for Failure {
    fn from(error: gsttrt_core::error::Error) -> Self {
        Failure(error.message())
    }
}

impl From<gst::glib::Error> for Failure {
    fn from(error: gst::glib::Error) -> Self {
        Failure(error.to_string())
    }
}

impl From<gst::glib::BoolError> for Failure {
    fn from(error: gst::glib::BoolError) -> Self {
        Failure(error.to_string())
    }
}

impl From<gst::StateChangeError> for Failure {
    fn from(error: gst::StateChangeError) -> Self {
        Failure(error.to_string())
    }
}

/// How a subcommand ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    /// What failed was printed.
    Failed,
    /// By that signal, before all was done.
    Interrupted(i32),
    /// This process can use a GPU no more, another one may.
    GpuLost,
}

impl Status {
    /// The exit status.
    pub fn code(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Interrupted(signal) => 128 + signal as u8, // as shells report it
            Status::GpuLost => 75,                             // EX_TEMPFAIL of sysexits.h: try again
        }
    }
}

/// Does something whose panic, which is a fault of the program, is a failure of that alone.
pub fn contain<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("This is a fault of gst-trt: {}. Please report it.", text.unwrap_or("a panic")).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        let failure = contain::<()>(|| panic!("number {}", 7)).unwrap_err();
        assert_eq!(failure.to_string(), "This is a fault of gst-trt: number 7. Please report it.");
        assert!(contain(|| Ok(3)).is_ok_and(|number| number == 3));
    }
}
