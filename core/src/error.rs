// SPDX-License-Identifier: MPL-2.0
//! One error type: what failed, why, and what to do about it.
//!
//! The first and the last are for people and end up in the part of a GStreamer error that `gst-launch-1.0` prints; the
//! cause (often another library's words) goes to the debug part. [`ErrorKind`] chooses the GStreamer error domain, here and
//! nowhere else.

use std::fmt::{self, Write as _};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

/// What sort of thing went wrong, with domain and code of the GStreamer error. The numbers are those of `GstTrtStatus` in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A property or combination of properties makes no sense: `resource/settings`.
    Settings = 1,
    /// A file is not there: `resource/not-found`.
    NotFound = 2,
    /// A file is there but cannot be read: `resource/open-read`.
    Read = 3,
    /// A model file is broken, or not one that can be used here: `library/init`.
    Model = 4,
    /// A library that is needed is missing or refuses to start: `library/init`.
    Library = 5,
    /// A backend failed on a frame: `library/failed`.
    Run = 6,
    /// A buffer carries the wrong thing, or lacks something: `stream/wrong-type`.
    WrongType = 7,
    /// Formats that cannot go together: `core/negotiation`.
    Negotiation = 8,
    /// This process can use the GPU no more, and no call that needs it will succeed: start the program again. Other failures
    /// are of one call. `resource/failed`.
    DeviceLost = 10,
}

/// What failed, the cause, and the remedy.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    remedy: String,
    cause: String,
    /// For the debug part, where that is not the cause.
    debug: Option<String>,
    /// Distinguishes this failure from others with the same text.
    id: u64,
    /// Whether there is too little memory. The same call may succeed later.
    is_out_of_memory: bool,
    /// Where in our code it was noticed; goes to the debug part.
    location: &'static Location<'static>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `what` is a sentence without its full stop: "Cannot read the model x.onnx".
    #[track_caller]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        static FAILURES: AtomicU64 = AtomicU64::new(0);
        Error {
            kind,
            what: bounded(what.into()),
            remedy: String::new(),
            cause: String::new(),
            debug: None,
            id: FAILURES.fetch_add(1, Ordering::Relaxed),
            is_out_of_memory: false,
            location: Location::caller(),
        }
    }

    /// What the user can do, as a sentence without its full stop.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = bounded(remedy.into());
        self
    }

    /// A sentence behind the remedy, without its full stop.
    #[doc(hidden)]
    pub fn and_remedy(mut self, more: &str) -> Self {
        if !self.remedy.is_empty() {
            self.remedy.push_str(". ");
        }
        self.remedy.push_str(more);
        self
    }

    /// Why it failed.
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = bounded(cause.to_string());
        self
    }

    /// Sets whether the cause is too little memory.
    pub(crate) fn out_of_memory(mut self, is_out_of_memory: bool) -> Self {
        self.is_out_of_memory = is_out_of_memory;
        self
    }

    /// Whether the cause is too little memory.
    #[doc(hidden)]
    pub fn is_out_of_memory(&self) -> bool {
        self.is_out_of_memory
    }

    /// Text for the debug part of a message, instead of the cause.
    #[doc(hidden)]
    pub fn with_debug(mut self, debug: impl Into<String>) -> Self {
        self.debug = Some(debug.into());
        self
    }

    /// The debug part of a message, if there is one.
    #[doc(hidden)]
    pub fn debug_text(&self) -> Option<&str> {
        self.debug.as_deref().or((!self.cause.is_empty()).then_some(self.cause.as_str()))
    }

    /// The same for all copies of this error, and for no other one.
    #[doc(hidden)]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where in our code it was noticed.
    #[doc(hidden)]
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }

    /// The same failure seen from further out: `what` becomes the headline, what it was so far the cause.
    #[doc(hidden)]
    pub fn about(self, what: &str) -> Self {
        let cause = if self.cause.is_empty() { self.what } else { format!("{}: {}", self.what, self.cause) };
        Error { what: bounded(what.to_string()), cause: bounded(cause), ..self }
    }

    /// What failed, alone.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The cause alone, where a message puts it into words of its own.
    #[doc(hidden)]
    pub fn cause_text(&self) -> &str {
        &self.cause
    }

    /// What is wrong in a clause: the cause where it is one line, else what failed.
    #[doc(hidden)]
    pub fn as_clause(&self) -> String {
        if self.cause.is_empty() || self.cause.contains('\n') { self.what.clone() } else { self.cause.clone() }
    }

    /// What failed and what to do: the text for people.
    pub fn message(&self) -> String {
        let mut text = self.what.clone();
        // A cause of one line reads as part of the sentence; longer ones only go to the debug part.
        if !self.cause.is_empty() && !self.cause.contains('\n') {
            text = format!("{text}: {}", self.cause.trim_end_matches('.'));
        }
        end_sentence(&mut text);
        if !self.remedy.is_empty() {
            text = format!("{text} {}", self.remedy);
            end_sentence(&mut text);
        }
        text
    }
}

/// A question has its end.
fn end_sentence(text: &mut String) {
    if !text.ends_with('?') {
        text.push('.');
    }
}

/// Characters of a text at its beginning, and as many at its end, that are kept.
const KEPT: usize = 1000;

/// Files choose names that end up in errors, of any length and with any characters: what is too long loses its middle, and
/// control characters are escaped, since a NUL would end the text for C. Line ends stay.
fn bounded(text: String) -> String {
    let plain = |c: char| !c.is_control() || c == '\n';
    if text.len() <= 2 * KEPT && text.chars().all(plain) {
        return text;
    }
    let mut out = String::new();
    let mut add = |part: &str| {
        part.chars().for_each(|c| {
            if plain(c) {
                out.push(c)
            } else {
                let _ = write!(out, "{}", c.escape_default());
            }
        })
    };
    let start = text.char_indices().nth(KEPT).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().rev().nth(KEPT - 1).map_or(0, |(at, _)| at);
    if start < end {
        add(&text[..start]);
        add(" … ");
        add(&text[end..]);
    } else {
        add(&text);
    }
    out
}

/// Equal where they say the same, wherever they were noticed.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        let said = |error: &Error| (error.kind, error.what.clone(), error.remedy.clone(), error.cause.clone());
        said(self) == said(other)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_failure_cause_and_remedy() {
        let error = Error::new(ErrorKind::Read, "Cannot read the model a.onnx")
            .cause("permission denied")
            .remedy("Make it readable for this user");
        let message = "Cannot read the model a.onnx: permission denied. Make it readable for this user.";
        assert_eq!(error.message(), message);
        assert_eq!(error.cause("permission denied.").message(), message, "a cause may end as a sentence does");
        let error = Error::new(ErrorKind::Settings, "There is no tqe; did you mean “tpe”?");
        let error = error.remedy("Name one of tpe, mask");
        assert_eq!(error.message(), "There is no tqe; did you mean “tpe”? Name one of tpe, mask.");
    }

    #[test]
    fn texts_are_bounded_and_plain() {
        let name = "é".repeat(1 << 20);
        let error = Error::new(ErrorKind::Model, format!("There is no operator {name}"))
            .cause("a\0b\u{1b}[31m\tc")
            .remedy("Export the model again")
            .about(&format!("Cannot use {name}"));
        let message = error.message();
        assert!(message.len() < 10_000 && message.starts_with("Cannot use éé"), "{}", message.len());
        assert!(
            message.ends_with(r"éé: a\u{0}b\u{1b}[31m\tc. Export the model again."),
            "{}",
            &message[message.len() - 99..]
        );
        // Nothing is lost where nothing is too long.
        let text = "é".repeat(2 * KEPT);
        assert_eq!(Error::new(ErrorKind::Run, text.clone()).message(), format!("{text}."));
    }

    #[test]
    fn long_causes_stay_out_of_the_message() {
        let error = Error::new(ErrorKind::Run, "Inference failed").cause("line 1\nline 2");
        assert_eq!(error.message(), "Inference failed.");
    }
}
