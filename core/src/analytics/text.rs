// SPDX-License-Identifier: MPL-2.0
//! What is written on objects, such as number plates, and the regular expressions that it must match.

use std::hash::{DefaultHasher, Hash, Hasher};

use regex_lite::{Regex, RegexBuilder};

use crate::image::overlay::Attribute;

/// Different patterns of a configuration: `TextMatches` has a bit for each.
pub const MAX_PATTERNS: usize = u64::BITS as usize;
/// Bytes of a pattern: some 400 number plates.
pub const MAX_PATTERN: usize = 4096;
/// Groups of a pattern. The memory that comparing takes grows with them.
pub const MAX_GROUPS: usize = 16;
/// Bytes of a text. Longer ones match nothing.
pub const MAX_TEXT: usize = 512;
/// Bytes of a pattern once it is compiled. The time that comparing takes grows with them.
const MAX_COMPILED: usize = 256 << 10;

/// A regular expression. A text matches it if a part of the text does.
#[derive(Clone, Debug)]
pub struct TextPattern(Regex);

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// Why a pattern cannot be used, and what can be written in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternFault {
    pub cause: String,
    pub remedy: String,
}

impl TextPattern {
    /// # Errors
    /// Where it is no regular expression, or more than one that is compared in little time and memory.
    pub fn new(pattern: &str) -> Result<Self, PatternFault> {
        let fault = |cause: String, remedy: String| PatternFault { cause, remedy };
        if pattern.is_empty() || pattern.len() > MAX_PATTERN {
            return Err(fault(
                format!("it has {} bytes", pattern.len()),
                format!("Write 1 to {MAX_PATTERN} bytes, or leave it out"),
            ));
        }
        let regex = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build().map_err(|error| {
            let remedy = "Write a regular expression such as ^(AB ?12|CD ?34)$, without look-around, without references \
                          back, without \\p, and with small numbers of repetitions";
            fault(error.to_string(), remedy.into())
        })?;
        // The whole match is one, too.
        let groups = regex.captures_len() - 1;
        if groups > MAX_GROUPS {
            return Err(fault(
                format!("it has {groups} groups"),
                format!("Write (?:…) for (…) where there are more than {MAX_GROUPS}"),
            ));
        }
        Ok(TextPattern(regex))
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub fn matches(&self, text: &str) -> bool {
        text.len() <= MAX_TEXT && self.0.is_match(text)
    }
}

/// Which patterns of the configuration the texts of an object match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextMatches {
    /// A bit for each pattern.
    bits: u64,
    /// The hash of the texts that were compared last, if there were some.
    compared: Option<u64>,
}

impl TextMatches {
    /// Takes in what is known of the object in a frame. In a frame without a text of it, the last ones count.
    pub fn see(&mut self, patterns: &[TextPattern], attributes: &[Attribute]) {
        if patterns.is_empty() {
            return;
        }
        let texts =
            || attributes.iter().filter(|attribute| attribute.is_text).map(|attribute| attribute.label.as_str());
        if texts().next().is_none() {
            return;
        }
        // Most texts are those of the frame before, and comparing takes time.
        let mut hasher = DefaultHasher::new();
        texts().for_each(|text| text.hash(&mut hasher));
        let hash = hasher.finish();
        if self.compared.replace(hash) == Some(hash) {
            return;
        }
        self.bits = 0;
        for (number, pattern) in patterns.iter().enumerate() {
            if texts().any(|text| pattern.matches(text)) {
                self.bits |= 1 << number;
            }
        }
    }

    /// Whether a text of the object matches the pattern of that number. Without a pattern, all objects do.
    pub fn has(&self, pattern: Option<usize>) -> bool {
        pattern.is_none_or(|number| self.bits & (1 << number) != 0)
    }
}
