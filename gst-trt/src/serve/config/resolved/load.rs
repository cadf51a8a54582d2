// SPDX-License-Identifier: MPL-2.0
//! From a file to a configuration, or to what is wrong in it and where.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gsttrt_core::files::{endless_key, read_regular};

use super::super::keys::ConfigKeys;
use super::super::places::{Places, line_at};
use super::super::wording;
use super::{Config, MAX_LENGTH, TableError};
use crate::failure::Failure;

/// More than all replicas of a service together have, and each takes its time to be checked.
const MOST_SOURCES: usize = 10_000;

impl Config {
    /// Reads and checks a file. GStreamer must have been started.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong.
    pub fn load(file: &Path) -> Result<Self, Failure> {
        Self::load_unless(file, &AtomicBool::new(false))
    }

    /// The same, until it is given up: what is returned then is of no use.
    ///
    /// # Errors
    /// As of [`Config::load`], and where it was given up.
    pub fn load_unless(file: &Path, is_given_up: &AtomicBool) -> Result<Self, Failure> {
        let shown = file.display();
        let bytes = read_regular(file, MAX_LENGTH)
            .map_err(|error| format!("Cannot read {shown}: {error}. Check its path and permissions."))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let byte = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..byte].iter().filter(|c| **c == b'\n').count();
            format!("Cannot use {shown}: line {line}: it is not a text in UTF-8. Save it as one.")
        })?;
        Self::parse_unless(file, &text, is_given_up)
    }

    /// The same of a text. Relative paths in it begin at the folder of the file.
    ///
    /// # Errors
    /// Something in it is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Failure> {
        Self::parse_unless(file, text, &AtomicBool::new(false))
    }

    fn parse_unless(file: &Path, text: &str, is_given_up: &AtomicBool) -> Result<Self, Failure> {
        let unusable = |text: String| Failure::from(format!("Cannot use {text}"));
        if let Some((at, problem)) = refused(text) {
            return Err(unusable(wording::at_line(file, Some(line_at(text, at)), None, &problem)));
        }
        let places = Places::new(text);
        let keys: ConfigKeys =
            toml::from_str(text).map_err(|error| unusable(wording::in_file(file, &places, &error)))?;
        let folder = std::path::absolute(file).ok().and_then(|path| Some(path.parent()?.to_path_buf()));
        let in_file = |(table, number, problem): TableError| {
            let (table, number) = problem.table.map_or((table, number), |common| (common, 0));
            let found = places.line_of(table, number, problem.key);
            let key = found.filter(|(_, is_there)| *is_there).map(|_| problem.key);
            wording::at_line(file, found.map(|(line, _)| line), key, &problem.text)
        };
        let (mut config, warnings) =
            Self::of(keys, folder.unwrap_or_default(), is_given_up).map_err(|problem| unusable(in_file(problem)))?;
        config.warnings = warnings.into_iter().map(in_file).collect();
        Ok(config)
    }
}

/// Why a text is not parsed at all, and the byte at which that is.
fn refused(text: &str) -> Option<(usize, String)> {
    let nul = wording::nul(text).map(|at| (at, "a text has a NUL character".to_string()));
    let endless = || endless_key(text).map(|at| (at, "a key has more parts than any here".to_string()));
    let crowded = || {
        let (at, _) = text.match_indices("[[source]]").nth(MOST_SOURCES)?;
        Some((at, format!("it has more than {MOST_SOURCES} sources. Give some of them to another service")))
    };
    nul.or_else(endless).or_else(crowded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    fn refusal(text: &str) -> String {
        Config::parse(Path::new("c.toml"), text).map(drop).unwrap_err().to_string()
    }

    /// A parser would go down into it until the stack has an end.
    #[test]
    fn a_key_without_an_end_is_refused_and_so_are_sources_without_one() {
        let deep = format!("[http]\na{} = 1\n", ".a".repeat(1 << 20));
        let said = refusal(&deep);
        assert!(said.starts_with("Cannot use c.toml: line 2: a key has more parts"), "{said}");
        let said = refusal(&"[[source]]\n".repeat(MOST_SOURCES + 1));
        assert_eq!(
            said,
            "Cannot use c.toml: line 10001: it has more than 10000 sources. Give some of them to another service."
        );
        assert!(refusal(&"[[source]]\n".repeat(MOST_SOURCES)).contains("line 1: the key name is missing"));
    }

    #[test]
    fn what_is_given_up_is_not_read_to_its_end() {
        chain::start_gstreamer().unwrap();
        let text = "[[source]]\nname = \"a\"\naddress = \"a.mp4\"\nmodel = \"none\"\n";
        assert!(refusal(text).contains("there is no model “none”"));
        let given_up = Config::parse_unless(Path::new("c.toml"), text, &AtomicBool::new(true));
        assert!(given_up.map(drop).unwrap_err().to_string().contains("it is not read on"));
    }
}
