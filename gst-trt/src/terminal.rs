// SPDX-License-Identifier: MPL-2.0
//! What is written to a terminal: names and labels come from files of others, and no text of theirs moves the cursor,
//! changes colours or hides what stands before it.

pub mod screen;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::failure::Failure;
use crate::output::cannot_write;

/// Whether a terminal does something else than to show it.
fn is_command(c: char) -> bool {
    let turns_text = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns_text || c.is_control() && c != '\n' && c != '\t'
}

/// The text with such characters by their numbers.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_command) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_command(c) {
            true => {
                let _ = write!(plain, "\\u{:04x}", u32::from(c)); // as JSON has it
            }
            false => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// Prints on stdout. A reader that has gone, such as `head`, is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{}", plain(text)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write("the output", &error)),
        _ => Ok(()),
    }
}

/// Prints a line on stderr. A reader that has gone is no failure.
pub fn print_error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert!(matches!(plain("a\tb\nä 日"), Cow::Borrowed(_)));
        assert_eq!(plain("\u{1b}[2Ja\u{7f}\u{9b}\r\u{202e}b"), "\\u001b[2Ja\\u007f\\u009b\\u000d\\u202eb");
        // Of JSON it stays JSON.
        let text = plain("{\"label\":\"\u{9b}\"}").into_owned();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["label"], "\u{9b}");
    }
}
