// SPDX-License-Identifier: MPL-2.0
//! Options, each declared once. The properties of elements, the options of sessions and programs, and their checks are
//! derived from the declarations.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::{Error, ErrorKind, Result};

/// What an option is called, and what it takes.
#[derive(Debug)]
pub struct OptionSpec {
    /// The name of the property, and of the option of a session.
    pub name: &'static str,
    /// The same, to be shown.
    pub nick: &'static str,
    pub blurb: &'static str,
    pub kind: OptionKind,
}

/// The values that an option takes.
#[derive(Clone, Debug)]
pub enum OptionKind {
    Flag,
    Int(RangeInclusive<i32>),
    UInt(RangeInclusive<u32>),
    UInt64,
    Float(RangeInclusive<f32>),
    /// One of these words. The enumeration of GObject has this name.
    Choice {
        type_name: &'static str,
        choices: &'static [Choice],
    },
    /// A file or a folder, or none.
    Path,
    /// Any text.
    Text,
}

/// A word that an option takes.
#[derive(Debug)]
pub struct Choice {
    pub word: &'static str,
    pub blurb: &'static str,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    Flag(bool),
    Int(i32),
    UInt(u32),
    UInt64(u64),
    Float(f32),
    /// One of the words of the option.
    Choice(&'static str),
    Path(Option<PathBuf>),
    Text(String),
}

/// An option of settings of the type `S`: its field has the value, and by default the value that the field has by default.
#[derive(Debug)]
pub struct Setting<S> {
    pub spec: &'static OptionSpec,
    pub field: fn(&mut S) -> &mut dyn SettingField,
}

/// The names of the settings that do not have their default.
pub fn names_of_set<S: Default>(settings: &'static [Setting<S>], mut set: S) -> impl Iterator<Item = &'static str> {
    let mut defaults = S::default();
    let differs =
        move |setting: &&Setting<S>| (setting.field)(&mut set).value() != (setting.field)(&mut defaults).value();
    settings.iter().filter(differs).map(|setting| setting.spec.name)
}

/// The type of a field that has an option's value.
pub trait SettingField {
    fn value(&self) -> OptionValue;

    /// Takes a value of the option's kind. `name` is that of the option, for errors.
    ///
    /// # Errors
    /// `Settings`, where the field holds more than a text and the text cannot be read.
    fn set(&mut self, name: &str, value: OptionValue) -> Result<()>;
}

/// An enumeration whose values an option takes as words.
pub trait Choices: Copy + PartialEq + 'static {
    const KIND: OptionKind;
    /// In the order of the words.
    const VALUES: &'static [Self];

    /// As options spell it.
    fn word(self) -> &'static str {
        let OptionKind::Choice { choices, .. } = Self::KIND else { unreachable!("it has words") };
        Self::VALUES.iter().zip(choices).find(|(value, _)| **value == self).map_or("", |(_, choice)| choice.word)
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.word() == word)
    }
}

/// The [`Choices`] of an enumeration: the name that it has in GObject; values, their words and what these mean.
#[doc(hidden)]
#[macro_export]
macro_rules! choices {
    ($type:ty, $type_name:literal: $($value:expr => $word:literal $blurb:literal)*) => {
        impl $crate::options::Choices for $type {
            const KIND: $crate::options::OptionKind = $crate::options::OptionKind::Choice {
                type_name: $type_name,
                choices: &[$($crate::options::Choice { word: $word, blurb: $blurb }),*],
            };
            const VALUES: &'static [Self] = &[$($value),*];
        }
    };
}

/// A [`Setting`] by name, nick, blurb and kind of the option, and the field.
#[doc(hidden)]
#[macro_export]
macro_rules! setting {
    ($name:literal, $nick:literal, $blurb:literal, $kind:expr, $($field:ident).+) => {
        $crate::options::Setting {
            spec: &$crate::options::OptionSpec { name: $name, nick: $nick, blurb: $blurb, kind: $kind },
            field: |settings| &mut settings.$($field).+,
        }
    };
}

pub use crate::{choices, setting};

/// Fields that hold values of a kind as they are.
macro_rules! field {
    ($($type:ty: $kind:ident)*) => {
        $(impl SettingField for $type {
            fn value(&self) -> OptionValue {
                OptionValue::$kind(self.clone())
            }

            fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
                let OptionValue::$kind(value) = value else { panic!("{name} has another type: {value:?}") };
                *self = value;
                Ok(())
            }
        })*
    };
}

field! { bool: Flag i32: Int u32: UInt u64: UInt64 f32: Float Option<PathBuf>: Path String: Text }

/// A number that may be left out; by default that is 0.
impl SettingField for Option<i32> {
    fn value(&self) -> OptionValue {
        OptionValue::Int(self.unwrap_or_default())
    }

    fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        let mut number = 0;
        number.set(name, value)?;
        *self = Some(number);
        Ok(())
    }
}

impl<T: Choices> SettingField for T {
    fn value(&self) -> OptionValue {
        OptionValue::Choice(self.word())
    }

    fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        let OptionValue::Choice(word) = value else { panic!("{name} has another type: {value:?}") };
        *self = T::of_word(word).expect("it is one of the words");
        Ok(())
    }
}

impl Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Flag(flag) => write!(f, "{flag}"),
            OptionValue::Int(number) => write!(f, "{number}"),
            OptionValue::UInt(number) => write!(f, "{number}"),
            OptionValue::UInt64(number) => write!(f, "{number}"),
            OptionValue::Float(number) => write!(f, "{number}"),
            OptionValue::Choice(word) => f.write_str(word),
            OptionValue::Text(text) => f.write_str(text),
            OptionValue::Path(path) => write!(f, "{}", path.as_deref().unwrap_or(Path::new("")).display()),
        }
    }
}

impl OptionSpec {
    /// Reads a value from a text like `fp16`.
    ///
    /// # Errors
    /// `Settings`, where it cannot be read or is out of range.
    pub fn parse(&self, text: &str) -> Result<OptionValue> {
        let name = self.name;
        Ok(match &self.kind {
            OptionKind::Flag => OptionValue::Flag(one_of(name, text, &[true, false])?),
            OptionKind::Int(range) => OptionValue::Int(number(name, text, range)?),
            OptionKind::UInt(range) => OptionValue::UInt(number(name, text, range)?),
            OptionKind::UInt64 => OptionValue::UInt64(number(name, text, &(0..=u64::MAX))?),
            OptionKind::Float(range) => OptionValue::Float(number(name, text, range)?),
            OptionKind::Choice { choices, .. } => {
                let words: Vec<&'static str> = choices.iter().map(|choice| choice.word).collect();
                OptionValue::Choice(one_of(name, text, &words)?)
            }
            OptionKind::Path => OptionValue::Path(path(text)),
            OptionKind::Text => OptionValue::Text(text.into()),
        })
    }
}

impl<S> Setting<S> {
    /// Sets the option from a text like `fp16`.
    ///
    /// # Errors
    /// As [`OptionSpec::parse`].
    pub fn parse(&self, settings: &mut S, text: &str) -> Result<()> {
        (self.field)(settings).set(self.spec.name, self.spec.parse(text)?)
    }
}

/// Checks the numbers that a program has set without texts. NaN is none: each comparison with it is false, so nothing would be found.
///
/// # Errors
/// `Settings`, where one is out of range.
pub fn check_numbers<S: Clone>(settings: &'static [Setting<S>], set: &S) -> Result<()> {
    let mut set = set.clone();
    for &Setting { spec, field } in settings {
        if let (OptionKind::Float(range), OptionValue::Float(number)) = (&spec.kind, field(&mut set).value())
            && !range.contains(&number)
        {
            return Err(out_of_range(spec.name, &number.to_string(), range));
        }
    }
    Ok(())
}

/// Name and value of a text like `backend=cpu`.
///
/// # Errors
/// `Settings`, where there is no value.
pub fn name_and_value(text: &str) -> Result<(&str, &str)> {
    text.split_once('=').ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("The option “{text}” has no value"))
            .remedy("Write name=value, like backend=cpu")
    })
}

/// A path; an empty one is unset.
pub fn path(text: impl AsRef<Path>) -> Option<PathBuf> {
    Some(text.as_ref().to_path_buf()).filter(|path| !path.as_os_str().is_empty())
}

fn one_of<T: Copy + Display>(name: &str, text: &str, values: &[T]) -> Result<T> {
    let words: Vec<String> = values.iter().map(T::to_string).collect();
    let found = words.iter().position(|word| word == text);
    found.map(|at| values[at]).ok_or_else(|| unreadable(name, text, format!("Use one of {}", words.join(", "))))
}

fn number<T: FromStr + PartialOrd + Display>(name: &str, text: &str, range: &RangeInclusive<T>) -> Result<T> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| out_of_range(name, text, range))
}

fn out_of_range<T: Display>(name: &str, text: &str, range: &RangeInclusive<T>) -> Error {
    unreadable(name, text, format!("Use a number from {} to {}", range.start(), range.end()))
}

fn unreadable(name: &str, text: &str, remedy: String) -> Error {
    Error::new(ErrorKind::Settings, format!("The option {name}={text} cannot be read")).remedy(remedy)
}
