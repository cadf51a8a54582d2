// SPDX-License-Identifier: MPL-2.0
//! Lines for the journal, on stderr.

use std::io::Write;

/// A line about a source, a model or the service. A reader that has gone is no failure.
pub fn log(what: &str, text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{what}: {text}");
}
