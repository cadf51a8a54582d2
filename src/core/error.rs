//! One error type: what failed, why, and what to do about it.
//!
//! The first and the last are for people and end up in the part of a GStreamer error that `gst-launch-1.0` prints; the
//! cause (often another library's words) goes to the debug part. [`ErrorKind`] chooses the GStreamer error domain, here and
//! nowhere else.

use std::fmt;
use std::panic::Location;

/// What sort of thing went wrong; decides domain and code of the GStreamer error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A property or combination of properties makes no sense: `resource/settings`.
    Settings,
    /// A file is not there: `resource/not-found`.
    NotFound,
    /// A file is there but cannot be read: `resource/open-read`.
    Read,
    /// A model file is broken, or not one that can be used here: `library/init`.
    Model,
    /// A library that is needed is missing or refuses to start: `library/init`.
    Library,
    /// A backend failed on a frame: `library/failed`.
    Run,
    /// A buffer carries the wrong thing, or lacks something: `stream/wrong-type`.
    WrongType,
    /// Formats that cannot go together: `core/negotiation`.
    Negotiation,
}

/// What failed, the cause, and the remedy.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    remedy: String,
    cause: String,
    /// Where in our code it was noticed; goes to the debug part.
    place: &'static Location<'static>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `what` is a sentence without its full stop: "Cannot read the model x.onnx".
    #[track_caller]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Error { kind, what: what.into(), remedy: String::new(), cause: String::new(), place: Location::caller() }
    }

    /// What the user can do, as a sentence without its full stop.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Why it failed, in the words of whoever noticed.
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = cause.to_string();
        self
    }

    /// The same failure seen from further out: `what` becomes the headline, what it was so far the cause.
    pub fn about(self, what: &str) -> Self {
        let cause = match self.cause.is_empty() {
            true => self.what,
            false => format!("{}: {}", self.what, self.cause),
        };
        Error { what: what.to_string(), cause, ..self }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The cause alone, where a message puts it into words of its own.
    pub fn cause_text(&self) -> &str {
        &self.cause
    }

    /// What is wrong in a clause: the cause where it is one line, else what failed.
    pub fn as_clause(&self) -> String {
        match self.cause.is_empty() || self.cause.contains('\n') {
            true => self.what.clone(),
            false => self.cause.clone(),
        }
    }

    /// What failed and what to do: the text for people.
    pub fn message(&self) -> String {
        let mut text = self.what.clone();
        // A cause of one line reads as part of the sentence; longer ones only go to the debug part.
        if !self.cause.is_empty() && !self.cause.contains('\n') {
            text = format!("{text}: {}", self.cause.trim_end_matches('.'));
        }
        text.push('.');
        if !self.remedy.is_empty() {
            text = format!("{text} {}.", self.remedy);
        }
        text
    }

    /// The message that an element posts, or returns from `start()`.
    pub fn to_gst(&self) -> gst::ErrorMessage {
        match self.kind {
            ErrorKind::Settings => self.in_domain(gst::ResourceError::Settings),
            ErrorKind::NotFound => self.in_domain(gst::ResourceError::NotFound),
            ErrorKind::Read => self.in_domain(gst::ResourceError::OpenRead),
            ErrorKind::Model | ErrorKind::Library => self.in_domain(gst::LibraryError::Init),
            ErrorKind::Run => self.in_domain(gst::LibraryError::Failed),
            ErrorKind::WrongType => self.in_domain(gst::StreamError::WrongType),
            ErrorKind::Negotiation => self.in_domain(gst::CoreError::Negotiation),
        }
    }

    fn in_domain(&self, code: impl gst::MessageErrorDomain) -> gst::ErrorMessage {
        let debug = (!self.cause.is_empty()).then_some(self.cause.as_str());
        gst::ErrorMessage::new(&code, Some(&self.message()), debug, self.place.file(), "", self.place.line())
    }
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
    fn message_has_what_cause_and_remedy() {
        let error = Error::new(ErrorKind::Read, "Cannot read the model a.onnx")
            .cause("permission denied")
            .remedy("Make it readable for this user");
        assert_eq!(error.message(), "Cannot read the model a.onnx: permission denied. Make it readable for this user.");
    }

    #[test]
    fn long_causes_stay_out_of_the_message() {
        let error = Error::new(ErrorKind::Run, "Inference failed").cause("line 1\nline 2");
        assert_eq!(error.message(), "Inference failed.");
    }
}
