// SPDX-License-Identifier: MPL-2.0
//! Options of backends. Each option is declared once, by the backend that has it, and what all of them have is declared here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::options::{OptionKind, OptionSpec, OptionValue};

/// An option of a backend.
#[derive(Debug)]
pub struct BackendOption {
    pub spec: OptionSpec,
    pub default: OptionValue,
    /// Whether engines that were built with another value are other engines: it is part of the key in the engine cache.
    pub is_in_key: bool,
    /// The values that are errors where the option has no effect; all others are then ignored, with a warning.
    pub insists: &'static [&'static str],
}

/// What goes into the inputs besides the picture.
pub static INPUT_VALUES: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "input-values",
        nick: "Input values",
        blurb: "Files of numpy.save for inputs of the model besides the picture, like txt_feats=words.npy, several with commas between \
                them. Names of classes come from words.txt next to the file. Set while playing, they count from the next frame on (unset = none)",
        kind: OptionKind::Text,
    },
    default: OptionValue::Text(String::new()),
    is_in_key: false, // the key has the dimensions
    insists: &[],
};

/// The widest picture of a line of text.
pub static MAX_INPUT_WIDTH: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "max-input-width",
        nick: "Maximum input width",
        blurb: "Maximum width of the input in pixels, for models that read lines of text and take any width: a line keeps its aspect, and \
                becomes a tensor as wide as it needs from the width of input-size on (0 = all have the width of input-size)",
        kind: OptionKind::UInt(0..=16384),
    },
    default: OptionValue::UInt(0),
    is_in_key: false, // the key has the dimensions
    insists: &[],
};

/// The options that are not as they are by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options(BTreeMap<&'static str, OptionValue>);

impl Options {
    #[doc(hidden)]
    pub fn get(&self, option: &BackendOption) -> OptionValue {
        self.0.get(option.spec.name).unwrap_or(&option.default).clone()
    }

    /// Sets a value of the option's kind.
    #[doc(hidden)]
    pub fn set(&mut self, option: &BackendOption, value: OptionValue) {
        if value == option.default {
            self.0.remove(option.spec.name);
        } else {
            self.0.insert(option.spec.name, value);
        }
    }

    /// Whether the option is not as it is by default.
    #[doc(hidden)]
    pub fn has(&self, option: &BackendOption) -> bool {
        self.0.contains_key(option.spec.name)
    }

    pub(super) fn flag(&self, option: &BackendOption) -> bool {
        matches!(self.get(option), OptionValue::Flag(true))
    }

    /// A number; 0 for options that are none.
    pub(super) fn number(&self, option: &BackendOption) -> i64 {
        match self.get(option) {
            OptionValue::Int(number) => number.into(),
            OptionValue::UInt(number) => number.into(),
            _ => 0,
        }
    }

    /// A word; nothing for options that are none.
    pub(super) fn word(&self, option: &BackendOption) -> &'static str {
        match self.get(option) {
            OptionValue::Choice(word) => word,
            _ => "",
        }
    }

    /// A text; empty for options that are none.
    pub(super) fn text(&self, option: &BackendOption) -> String {
        match self.get(option) {
            OptionValue::Text(text) => text,
            _ => String::new(),
        }
    }

    pub(super) fn path(&self, option: &BackendOption) -> Option<PathBuf> {
        match self.get(option) {
            OptionValue::Path(path) => path,
            _ => None,
        }
    }
}
