// SPDX-License-Identifier: MPL-2.0
//! Files with groups and keys, as GLib reads them, and which of their keys have been used.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::failure::Failure;

/// `[name]`, and the lines below it.
#[derive(Debug, Default)]
pub struct IniGroup {
    pub name: String,
    /// What is before the line in an error: the file, where it is not the one that is imported.
    place: String,
    keys: Vec<IniKey>,
    used: RefCell<BTreeSet<usize>>,
}

#[derive(Debug)]
pub struct IniKey {
    /// Of the file, from 1 on.
    pub line: usize,
    pub name: String,
    pub value: String,
}

/// All groups, in their order. A group that comes again goes on. `place` is what errors begin with: the file, or nothing.
///
/// # Errors
/// A line is neither a group, nor a key, nor a comment.
pub fn parse(text: &str, place: &str) -> Result<Vec<IniGroup>, Failure> {
    let mut groups: Vec<IniGroup> = Vec::new();
    let mut current = None;
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split_once(']')).map(|(name, _)| name.trim()) {
            current = groups.iter().position(|group| group.name == name).or_else(|| {
                groups.push(IniGroup { name: name.into(), place: place.into(), ..IniGroup::default() });
                Some(groups.len() - 1)
            });
            continue;
        }
        if line.starts_with('[') && !line.contains('=') {
            return Err(format!("{place}line {number} begins a group, and its ] is missing").into());
        }
        let (Some(group), Some((name, value))) = (current, line.split_once('=')) else {
            let what = if current.is_none() { "before the first group" } else { "neither a group nor a key with =" };
            return Err(format!("{place}line {number} is {what}").into());
        };
        groups[group].keys.push(IniKey { line: number, name: name.trim().into(), value: value.trim().into() });
    }
    Ok(groups)
}

impl IniGroup {
    /// The value of a key, of several the last. It is used then.
    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.keys.iter().enumerate().filter(|(_, key)| key.name == name).inspect(|(index, _)| {
            self.used.borrow_mut().insert(*index);
        });
        found.last().map(|(_, key)| key.value.as_str())
    }

    /// # Errors
    /// It is no number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = || {
            let shown: String = text.chars().take(64).collect();
            Failure::from(format!("{} is “{shown}”, which is no such number", self.place_of(name)))
        };
        text.trim_end_matches(';').parse().map(Some).map_err(|_| wrong())
    }

    /// Where a key is, of several the last, for errors.
    pub fn place_of(&self, name: &str) -> String {
        let line = self.keys.iter().rfind(|key| key.name == name).map_or(0, |key| key.line);
        format!("{}line {line}: {name}", self.place)
    }

    pub fn is_on(&self, name: &str) -> Option<bool> {
        self.text(name).map(|value| !["0", "false"].contains(&value))
    }

    /// The values of a list, between semicolons.
    pub fn list(&self, name: &str) -> Option<Vec<&str>> {
        let parts = self.text(name)?.split(';').map(str::trim);
        Some(parts.filter(|part| !part.is_empty()).collect())
    }

    /// What nobody has asked for.
    pub fn unused(&self) -> impl Iterator<Item = &IniKey> {
        let used = self.used.borrow().clone();
        self.keys.iter().enumerate().filter(move |(index, _)| !used.contains(index)).map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keys_and_comments_are_told_apart() {
        let groups = parse("# a\n[one]\na = 1;2; \nb=\n\n;c=3\n[two]\nb=x=y\n[one]\na=5\n", "").unwrap();
        let [one, two] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((one.list("a"), one.text("b"), two.text("b")), (Some(vec!["5"]), Some(""), Some("x=y")));
        assert_eq!(one.unused().count(), 0);
        assert_eq!(parse("[a]\nb = 0.5;\nc = x\n", "").unwrap()[0].number::<f64>("b").unwrap(), Some(0.5));
        let said = |text: &str| parse(text, "").unwrap()[0].number::<u32>("c").unwrap_err().to_string();
        assert_eq!(said("[a]\n\nc = x\n"), "line 3: c is “x”, which is no such number");
        let nested = parse("[a]\nc = x\n", "b.txt: ").unwrap()[0].number::<u32>("c").unwrap_err().to_string();
        assert_eq!(nested, "b.txt: line 2: c is “x”, which is no such number");
        for (text, said) in [
            ("a=1", "line 1 is before"),
            ("[a]\nb", "line 2 is neither"),
            ("# a\n[source0\na=1", "line 2 begins a group, and its ] is missing"),
        ] {
            let failure = parse(text, "").map(drop).unwrap_err().to_string();
            assert!(failure.starts_with(said), "{failure}");
        }
        assert_eq!(parse("[a]\nb=1\nc=2\n", "").unwrap()[0].unused().map(|key| key.line).collect::<Vec<_>>(), [2, 3]);
    }
}
