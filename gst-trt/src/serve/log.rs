// SPDX-License-Identifier: MPL-2.0
//! Lines for the journal, on stderr: an event each, with its level, and as its reader wants it. A terminal and a file get the
//! time, journald gets a priority instead, and programs get JSON.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
#[cfg(feature = "otel")]
use std::sync::Arc;
use std::sync::{OnceLock, PoisonError, RwLock};

use gsttrt_publish::clock;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, SourceFailure};
use crate::terminal::plain;

/// How much an event matters: the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    #[default]
    Info,
    /// Something is missing or slow, and it goes on.
    Warning,
    /// A source, a model or a recording does not work.
    Error,
}

impl LogLevel {
    /// As lines of text have it.
    pub fn shown(self) -> &'static str {
        match self {
            LogLevel::Info => "INFO",
            LogLevel::Warning => "WARN",
            LogLevel::Error => "ERROR",
        }
    }

    /// Of syslog, in the form that journald reads: sd-daemon(3).
    fn priority(self) -> &'static str {
        match self {
            LogLevel::Info => "<6>",
            LogLevel::Warning => "<4>",
            LogLevel::Error => "<3>",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogSettings {
    #[serde(default)]
    pub format: LogFormat,
    /// Events below it are left out.
    #[serde(default)]
    pub level: LogLevel,
}

static SETTINGS: RwLock<LogSettings> = RwLock::new(LogSettings { format: LogFormat::Text, level: LogLevel::Info });

/// From now on.
pub fn configure(settings: LogSettings) {
    *SETTINGS.write().unwrap_or_else(PoisonError::into_inner) = settings;
}

/// What goes well, of a source, a model or the service.
pub fn log(name: &str, text: &str) {
    write(&LogEvent { level: LogLevel::Info, name, cause: None, text });
}

pub fn warn(name: &str, text: &str) {
    write(&LogEvent { level: LogLevel::Warning, name, cause: None, text });
}

pub fn log_error(name: &str, text: &str) {
    write(&LogEvent { level: LogLevel::Error, name, cause: None, text });
}

/// Why a source has no frames.
pub fn log_failure(name: &str, failure: &SourceFailure) {
    write(&LogEvent { level: LogLevel::Error, name, cause: Some(failure.cause), text: &failure.text });
}

pub struct LogEvent<'a> {
    pub level: LogLevel,
    /// Of the source, or the model; `serve` for the service.
    pub name: &'a str,
    pub cause: Option<Cause>,
    pub text: &'a str,
}

/// Whoever is told each event that is logged, with its time in nanoseconds since 1970. It must not wait, and must not log.
#[cfg(feature = "otel")]
pub type LogListener = Arc<dyn Fn(&LogEvent, u64) + Send + Sync>;

#[cfg(feature = "otel")]
static LISTENER: RwLock<Option<LogListener>> = RwLock::new(None);

/// Tells it every event from now on, in place of the one before.
#[cfg(feature = "otel")]
pub fn tell(listener: Option<LogListener>) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = listener;
}

fn write(event: &LogEvent) {
    static HAS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let settings = *SETTINGS.read().unwrap_or_else(PoisonError::into_inner);
    if event.level >= settings.level {
        let now = clock::now();
        #[cfg(feature = "otel")]
        if let Some(listener) = &*LISTENER.read().unwrap_or_else(PoisonError::into_inner) {
            listener(event, now);
        }
        let line = event.line(settings.format, now, *HAS_JOURNAL.get_or_init(is_journal));
        let _ = writeln!(std::io::stderr().lock(), "{line}"); // its reader has gone
    }
}

impl LogEvent<'_> {
    fn line(&self, format: LogFormat, now: u64, is_journal: bool) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            time: &'a str,
            level: LogLevel,
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            cause: Option<Cause>,
            message: &'a str,
        }
        let LogEvent { level, name, cause, text } = *self;
        let priority = if is_journal { level.priority() } else { "" };
        let time = clock::rfc3339(now, 3);
        let line = match format {
            LogFormat::Json => serde_json::to_string(&Line { time: &time, level, name, cause, message: text })
                .expect("texts and words have a form in JSON"),
            LogFormat::Text => {
                // journald has both itself.
                let begin = if is_journal { String::new() } else { format!("{time} {} ", level.shown()) };
                let cause = cause.map_or(String::new(), |cause| format!(" [{}]", cause.name()));
                format!("{begin}{name}: {}{cause}", text.replace('\n', " "))
            }
        };
        format!("{priority}{}", plain(&line))
    }
}

/// Whether journald reads stderr: then `JOURNAL_STREAM` has its device and its inode. Programs that a service starts inherit
/// the variable, and may have another stderr.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let of_stderr = std::fs::metadata("/proc/self/fd/2").map(|stderr| format!("{}:{}", stderr.dev(), stderr.ino()));
    of_stderr.is_ok_and(|of_stderr| of_stderr == stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_523_422_799_828_765_432;

    #[test]
    fn each_event_is_one_line_for_its_reader() {
        let text = "Cannot read \"a\u{1b}\":\nit is gone.";
        let event = LogEvent { level: LogLevel::Error, name: "gate", cause: Some(Cause::NotFound), text };
        let said = "gate: Cannot read \"a\\u001b\": it is gone. [not-found]";
        assert_eq!(event.line(LogFormat::Text, NOW, false), format!("2018-04-11T04:59:59.828Z ERROR {said}"));
        assert_eq!(event.line(LogFormat::Text, NOW, true), format!("<3>{said}"));
        for is_journal in [false, true] {
            let line = event.line(LogFormat::Json, NOW, is_journal);
            let json = line.strip_prefix(if is_journal { "<3>" } else { "" }).unwrap();
            let expected = serde_json::json!({
                "time": "2018-04-11T04:59:59.828Z", "level": "error", "name": "gate", "cause": "not-found", "message": text
            });
            assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap(), expected);
            assert!(!json.contains('\n'), "{json}");
        }
        let event = LogEvent { level: LogLevel::Warning, name: "serve", cause: None, text: "It is late." };
        assert_eq!(event.line(LogFormat::Text, NOW, true), "<4>serve: It is late.");
        assert!(!event.line(LogFormat::Json, NOW, true).contains("cause"));
    }

    #[test]
    fn levels_are_in_their_order() {
        assert!(LogLevel::Info < LogLevel::Warning && LogLevel::Warning < LogLevel::Error);
    }
}
