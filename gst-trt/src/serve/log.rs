// SPDX-License-Identifier: MPL-2.0
//! Lines for the journal, on stderr.

use crate::terminal::print_error;

/// A line about a source, a model or the service.
pub fn log(what: &str, text: &str) {
    print_error(&format!("{what}: {text}"));
}
