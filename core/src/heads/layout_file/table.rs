// SPDX-License-Identifier: MPL-2.0
//! Tables of TOML, read key by key: each error has the line, and for an unknown word the nearest one that is known.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::error::{Error, ErrorKind, Result};
use crate::words::nearest;

/// Characters of a wrong value that errors show.
const SHOWN: usize = 64;

/// The text of a layout file, and what errors call it.
#[derive(Clone, Copy)]
pub(super) struct LayoutText<'a> {
    pub source: &'a str,
    pub text: &'a str,
}

impl LayoutText<'_> {
    /// What is wrong at that byte.
    pub fn error(&self, at: usize, problem: impl Display) -> Error {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        Error::new(ErrorKind::Settings, format!("Cannot use {}", self.source))
            .cause(format!("line {line}: {problem}"))
            .remedy("The page “A head from a file” (docs/layout-file.md) has all keys and words")
    }
}

/// A table, and where it begins in the text.
#[derive(Clone, Copy)]
pub(super) struct KeyReader<'a> {
    pub text: LayoutText<'a>,
    pub at: usize,
    table: &'a DeTable<'a>,
}

impl<'a> KeyReader<'a> {
    /// # Errors
    /// The table has a key that is not known.
    pub fn new(text: LayoutText<'a>, at: usize, table: &'a DeTable<'a>, known: &[&str]) -> Result<Self> {
        let is_unknown = |key: &&Spanned<DeString>| !known.contains(&&**key.get_ref());
        match table.keys().filter(is_unknown).min_by_key(|key| key.span().start) {
            Some(key) => Err(text.error(key.span().start, unknown("key", key.get_ref(), known))),
            None => Ok(KeyReader { text, at, table }),
        }
    }

    /// A value, and where it is.
    pub fn value(&self, key: &str) -> Option<(usize, &'a DeValue<'a>)> {
        self.table.get(key).map(|value| (value.span().start, value.get_ref()))
    }

    pub fn place(&self, key: &str) -> usize {
        self.value(key).map_or(self.at, |(at, _)| at)
    }

    /// That a key is missing without which nothing is known.
    pub fn missing(&self, key: &str, what: &str) -> Error {
        self.text.error(self.at, format!("the key {key} is missing: {what}"))
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.text.error(at, must_be(key, value, "a text in quotes")))?;
        if text.contains('\0') {
            return Err(self.text.error(at, format!("{key} has a NUL character")));
        }
        Ok(Some(text))
    }

    /// One of these words.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        word(self.text, self.place(key), key, text, words).map(Some)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.text.error(at, must_be(key, value, "true or false")))
    }

    pub fn whole(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        whole(self.text, at, key, value, range).map(Some)
    }

    pub fn number(&self, key: &str) -> Result<Option<f32>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        number(value).map(Some).ok_or_else(|| self.text.error(at, must_be(key, value, wanted_number(value))))
    }

    /// Three numbers.
    pub fn triple(&self, key: &str) -> Result<Option<[f32; 3]>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        let mut numbers = [0.0; 3];
        let Some(list) = value.as_array().filter(|list| list.len() == numbers.len()) else {
            return Err(self.text.error(at, must_be(key, value, "three numbers, like [0.485, 0.456, 0.406]")));
        };
        for (place, each) in numbers.iter_mut().zip(list.iter()) {
            let value = each.get_ref();
            let wrong = || must_be(&format!("a number of {key}"), value, wanted_number(value));
            *place = number(value).ok_or_else(|| self.text.error(each.span().start, wrong()))?;
        }
        Ok(Some(numbers))
    }

    /// A list of at most `limit` values, each with its place.
    pub fn list(&self, key: &str, limit: usize) -> Result<Option<Vec<(usize, &'a DeValue<'a>)>>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.text.error(at, must_be(key, value, "a list in brackets")))?;
        if list.len() > limit {
            return Err(self.text.error(at, format!("{key} has {} entries, and may have {limit}", list.len())));
        }
        Ok(Some(list.iter().map(|value| (value.span().start, value.get_ref())).collect()))
    }

    /// A table of its own.
    pub fn table(&self, key: &str, known: &[&str]) -> Result<Option<KeyReader<'a>>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        let table = value.as_table();
        let table = table.ok_or_else(|| self.text.error(at, must_be(key, value, &format!("a table: [{key}]"))))?;
        KeyReader::new(self.text, at, table, known).map(Some)
    }
}

/// The value of a word among these.
pub(super) fn word<T: Copy>(
    text: LayoutText,
    at: usize,
    key: &str,
    word: &str,
    words: &[(&'static str, T)],
) -> Result<T> {
    let found = words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
        text.error(at, unknown(&format!("{key} word"), word, &known))
    })
}

/// A whole number in a range.
pub(super) fn whole(
    text: LayoutText,
    at: usize,
    key: &str,
    value: &DeValue,
    range: RangeInclusive<i64>,
) -> Result<i64> {
    let number = value.as_integer().and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok());
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        text.error(at, must_be(key, value, &wanted))
    })
}

pub(super) fn number(value: &DeValue) -> Option<f32> {
    let text = match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        _ => None,
    };
    text.filter(|number: &f32| number.is_finite())
}

/// What a value has to be that [`number`] does not take.
fn wanted_number(value: &DeValue) -> &'static str {
    let text = match value {
        DeValue::Float(number) => number.as_str(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Integer(_) => return "a decimal number",
        _ => return "a number",
    };
    if ["inf", "nan"].iter().any(|word| text.contains(word)) {
        return "a finite number";
    }
    "a number from -3.4e38 to 3.4e38"
}

pub(super) fn must_be(key: &str, value: &DeValue, wanted: &str) -> String {
    let is = match value {
        DeValue::String(text) => format!("the text “{}”", cut(text)),
        DeValue::Integer(number) => cut(number.as_str()),
        DeValue::Float(number) => cut(number.as_str()),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
        _ => "a date".into(),
    };
    format!("{key} is {is}, and must be {wanted}")
}

fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let near = nearest(word, known).map_or(String::new(), |near| format!("; did you mean “{near}”?"));
    let end = if near.is_empty() { "." } else { "" };
    format!("there is no {what} “{}”{near}{end} There are: {}", cut(word), known.join(", "))
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
