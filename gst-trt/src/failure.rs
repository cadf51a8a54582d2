// SPDX-License-Identifier: MPL-2.0
//! Why a subcommand fails, and the exit status.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

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
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => ExitCode::SUCCESS,
            Status::Failed => ExitCode::FAILURE,
            // As shells report it.
            Status::Interrupted(signal) => ExitCode::from(128 + signal as u8),
        }
    }
}

/// Prints on stdout. A reader that has gone, such as `head`, is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("Cannot write the output: {error}.").into())
        }
        _ => Ok(()),
    }
}
