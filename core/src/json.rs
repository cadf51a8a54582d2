// SPDX-License-Identifier: MPL-2.0
//! JSON that people write. Of a key that an object has twice, serde_json takes the last value without a word.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

/// A key that an object has twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedKey {
    key: String,
    /// Of the object, such as `zones[0].color`; the outermost one has none.
    place: String,
}

impl RepeatedKey {
    /// What to do, as a sentence without its full stop.
    pub const REMEDY: &str = "Write it once";
}

impl fmt::Display for RepeatedKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        /// Characters of a key that are shown.
        const SHOWN: usize = 64;
        let place = if self.place.is_empty() { "it" } else { &self.place };
        let key = Value::from(self.key.chars().take(SHOWN).collect::<String>());
        write!(f, "{place} has the key {key} twice")
    }
}

/// What is open where a text is read.
enum OpenPart {
    /// An object, with its keys so far, and the key whose value is read now.
    Object { keys: HashSet<String>, key: Option<String> },
    /// A list, with the number of the value that is read now.
    List { number: usize },
}

/// The first key that is in its object twice, of a text that serde_json takes.
pub fn repeated_key(text: &[u8]) -> Option<RepeatedKey> {
    let mut open: Vec<OpenPart> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'{' => open.push(OpenPart::Object { keys: HashSet::new(), key: None }),
            b'[' => open.push(OpenPart::List { number: 0 }),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut()? {
                OpenPart::Object { key, .. } => *key = None,
                OpenPart::List { number } => *number += 1,
            },
            b'"' => {
                at = start + length_of_text(&text[start..])?;
                let Some(OpenPart::Object { keys, key }) = open.last_mut() else { continue };
                if key.is_some() {
                    continue; // it is the value
                }
                let name: String = serde_json::from_slice(&text[start..at]).ok()?;
                if !keys.insert(name.clone()) {
                    return Some(RepeatedKey { key: name, place: place(&open) });
                }
                *key = Some(name);
            }
            _ => {}
        }
    }
    None
}

/// The bytes of the text in quotes that this begins with, and of the quotes.
fn length_of_text(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Where the innermost object is.
fn place(open: &[OpenPart]) -> String {
    let mut place = String::new();
    for part in &open[..open.len() - 1] {
        match part {
            OpenPart::Object { key, .. } => {
                let dot = if place.is_empty() { "" } else { "." };
                place += dot;
                place += key.as_deref().unwrap_or_default();
            }
            OpenPart::List { number } => place += &format!("[{number}]"),
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_is_named_with_its_place() {
        let long = format!("{{\"{0}\": 1, \"{0}\": 2}}", "x".repeat(99));
        for (text, expected) in [
            (r#"{"a": 1, "a": 1}"#, r#"it has the key "a" twice"#),
            (
                r#"{"a": {"a": "a"}, "b": ["a", {"a": 1}, {"a": 1}], "c": "a", "a": null}"#,
                r#"it has the key "a" twice"#,
            ),
            (r#"{"zones": [{"id": "x"}, {"id": "a,{[", "id": 2}]}"#, r#"zones[1] has the key "id" twice"#),
            (r#"{"a": [[], [1, {"b": {"c": 1, "d": [], "c": 2}}]]}"#, r#"a[1][1].b has the key "c" twice"#),
            (r#"[{}, {"a\"b": 1, "a\u0022b": 2}]"#, r#"[1] has the key "a\"b" twice"#),
            (r#"{"a\\": 1, "ä": 2, "\u00e4": 3}"#, r#"it has the key "ä" twice"#),
            (r#"{"\u001b": 1, "\u001B": 2}"#, r#"it has the key "\u001b" twice"#),
            (&long, &format!("it has the key \"{}\" twice", "x".repeat(64))),
        ] {
            assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
            let found = repeated_key(text.as_bytes()).map(|found| found.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_have_none() {
        for text in [
            "null",
            "\"a\"",
            "[]",
            "{}",
            r#"["a", "a", {"a": "a", "b": "b"}, {"a": "a"}]"#,
            r#"{"a": "\"a\": 1, \"a\"", "b": "\\", "c": [{"a": {}}, {"b": 1}], "A": 1.5e3, "": true}"#,
            // No JSON.
            "",
            ",",
            "{\"a",
            "{\"a\\",
            "}]",
        ] {
            assert_eq!(repeated_key(text.as_bytes()), None, "{text}");
        }
        assert_eq!(repeated_key(b"{\"\xff\": 1, \"\xff\": 2}"), None);
    }
}
