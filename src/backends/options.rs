// SPDX-License-Identifier: MPL-2.0
//! Options of backends. Each option is declared once, by the backend that has it. The properties of trtinfer, the options of sessions
//! and their checks are derived from the declarations.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::core::error::{Error, ErrorKind, Result};

/// An option of a backend.
#[derive(Debug)]
pub struct OptionSpec {
    /// The name of the property, and of the option of a session.
    pub name: &'static str,
    /// The same, to be shown.
    pub nick: &'static str,
    pub blurb: &'static str,
    pub kind: OptionKind,
    /// Whether engines that were built with another value are other engines: it is part of the key in the engine cache.
    pub is_in_key: bool,
    /// The value that is an error where the option has no effect; all others are then ignored, with a warning.
    pub insists: Option<&'static str>,
}

/// The values that an option takes.
#[derive(Debug)]
pub enum OptionKind {
    /// Off by default.
    Flag,
    Int {
        min: i32,
        max: i32,
        default: i32,
    },
    UInt {
        max: u32,
        default: u32,
    },
    /// One of these words, the first by default. The enumeration of GObject has this name.
    Choice {
        type_name: &'static str,
        choices: &'static [Choice],
    },
    /// A file or a folder, unset by default.
    Path,
    /// Any text, empty by default.
    Text,
}

/// A word that an option takes.
#[derive(Debug)]
pub struct Choice {
    pub word: &'static str,
    pub blurb: &'static str,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    Flag(bool),
    Int(i32),
    UInt(u32),
    /// One of the words of the option.
    Choice(&'static str),
    Path(Option<PathBuf>),
    Text(String),
}

/// The options that are not as they are by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<&'static str, OptionValue>);

impl Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Flag(flag) => write!(f, "{flag}"),
            OptionValue::Int(number) => write!(f, "{number}"),
            OptionValue::UInt(number) => write!(f, "{number}"),
            OptionValue::Choice(word) => f.write_str(word),
            OptionValue::Text(text) => f.write_str(text),
            OptionValue::Path(path) => write!(f, "{}", path.as_deref().unwrap_or(Path::new("")).display()),
        }
    }
}

impl OptionSpec {
    pub fn default(&self) -> OptionValue {
        match &self.kind {
            OptionKind::Flag => OptionValue::Flag(false),
            OptionKind::Int { default, .. } => OptionValue::Int(*default),
            OptionKind::UInt { default, .. } => OptionValue::UInt(*default),
            OptionKind::Choice { choices, .. } => OptionValue::Choice(choices[0].word),
            OptionKind::Path => OptionValue::Path(None),
            OptionKind::Text => OptionValue::Text(String::new()),
        }
    }

    /// Reads a value from a text like `fp16`.
    ///
    /// # Errors
    /// `Settings`, where it cannot be read or is out of range.
    pub fn parse(&self, text: &str) -> Result<OptionValue> {
        Ok(match &self.kind {
            OptionKind::Flag => OptionValue::Flag(boolean(self.name, text)?),
            OptionKind::Int { min, max, .. } => OptionValue::Int(number(self.name, text, *min, *max)?),
            OptionKind::UInt { max, .. } => OptionValue::UInt(number(self.name, text, 0, *max)?),
            OptionKind::Choice { choices, .. } => {
                let words: Vec<&'static str> = choices.iter().map(|choice| choice.word).collect();
                OptionValue::Choice(one_of(self.name, text, &words, &words)?)
            }
            OptionKind::Path => OptionValue::Path(path(text)),
            OptionKind::Text => OptionValue::Text(text.into()),
        })
    }
}

impl Options {
    #[doc(hidden)]
    pub fn get(&self, option: &OptionSpec) -> OptionValue {
        self.0.get(option.name).cloned().unwrap_or_else(|| option.default())
    }

    /// Sets a value of the option's kind.
    #[doc(hidden)]
    pub fn set(&mut self, option: &OptionSpec, value: OptionValue) {
        if value == option.default() {
            self.0.remove(option.name);
        } else {
            self.0.insert(option.name, value);
        }
    }

    /// Whether the option is not as it is by default.
    #[doc(hidden)]
    pub fn has(&self, option: &OptionSpec) -> bool {
        self.0.contains_key(option.name)
    }

    pub(super) fn flag(&self, option: &OptionSpec) -> bool {
        matches!(self.get(option), OptionValue::Flag(true))
    }

    /// A number; 0 for options that are none.
    pub(super) fn number(&self, option: &OptionSpec) -> i64 {
        match self.get(option) {
            OptionValue::Int(number) => number.into(),
            OptionValue::UInt(number) => number.into(),
            _ => 0,
        }
    }

    /// A word; nothing for options that are none.
    pub(super) fn word(&self, option: &OptionSpec) -> &'static str {
        match self.get(option) {
            OptionValue::Choice(word) => word,
            _ => "",
        }
    }

    /// A text; empty for options that are none.
    pub(super) fn text(&self, option: &OptionSpec) -> String {
        match self.get(option) {
            OptionValue::Text(text) => text,
            _ => String::new(),
        }
    }

    pub(super) fn path(&self, option: &OptionSpec) -> Option<PathBuf> {
        match self.get(option) {
            OptionValue::Path(path) => path,
            _ => None,
        }
    }
}

/// A path; nothing is as good as unset.
pub(crate) fn path(text: impl AsRef<Path>) -> Option<PathBuf> {
    Some(text.as_ref().to_path_buf()).filter(|path| !path.as_os_str().is_empty())
}

pub(crate) fn one_of<T: Copy>(name: &str, value: &str, names: &[&str], values: &[T]) -> Result<T> {
    let found = names.iter().position(|&known| known == value);
    found.map(|i| values[i]).ok_or_else(|| unreadable(name, value, format!("Use one of {}", names.join(", "))))
}

pub(crate) fn boolean(name: &str, value: &str) -> Result<bool> {
    one_of(name, value, &["true", "false"], &[true, false])
}

pub(crate) fn number<T: FromStr + PartialOrd + Display>(name: &str, value: &str, min: T, max: T) -> Result<T> {
    let parsed = value.parse().ok().filter(|number| (&min..=&max).contains(&number));
    parsed.ok_or_else(|| unreadable(name, value, format!("Use a number from {min} to {max}")))
}

fn unreadable(name: &str, value: &str, remedy: String) -> Error {
    Error::new(ErrorKind::Settings, format!("The option {name}={value} cannot be read")).remedy(remedy)
}
