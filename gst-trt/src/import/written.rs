// SPDX-License-Identifier: MPL-2.0
//! The configuration that is written: tables of TOML, and what could not be taken over.

use super::ini::IniGroup;

/// A table: `[head]` or `[[head]]`, and its lines.
pub struct TomlTable {
    head: &'static str,
    lines: Vec<String>,
}

impl TomlTable {
    pub fn new(head: &'static str) -> Self {
        TomlTable { head, lines: Vec::new() }
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.lines.push(format!("{key} = {}", quoted(value)));
    }

    /// A number, a boolean, a table in braces.
    pub fn value(&mut self, key: &str, value: impl std::fmt::Display) {
        self.lines.push(format!("{key} = {value}"));
    }

    pub fn comment(&mut self, text: &str) {
        self.lines.push(format!("# {}", text.replace(|c: char| c.is_control(), " ")));
    }
}

/// As a text of TOML, of which JSON's are a part.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Properties of an element, as a launch line has them.
#[derive(Default)]
pub struct PropertyTexts(Vec<String>);

impl PropertyTexts {
    pub fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{name}={value}"));
    }

    /// A value that may have spaces.
    pub fn set_text(&mut self, name: &str, value: &str) {
        self.0.push(format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")));
    }

    pub fn write(self, table: &mut TomlTable, key: &str) {
        if !self.0.is_empty() {
            table.text(key, &self.0.join(" "));
        }
    }
}

/// All that is written.
#[derive(Default)]
pub struct WrittenConfig {
    /// Keys above all tables.
    keys: Vec<String>,
    tables: Vec<TomlTable>,
    /// Keys without a counterpart: where they are, and why.
    notes: Vec<String>,
}

impl WrittenConfig {
    /// A key above all tables, such as a number.
    pub fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        self.keys.push(format!("{key} = {value}"));
    }

    pub fn push(&mut self, table: TomlTable) {
        self.tables.push(table);
    }

    pub fn note(&mut self, file: &str, group: &str, what: &str, why: &str) {
        let note = format!("{file} [{group}] {what}: {why}");
        self.notes.push(note.replace(|c: char| c.is_control(), " "));
    }

    /// All keys of a group that were not used. `known` has the reasons.
    pub fn note_unused(&mut self, file: &str, group: &IniGroup, known: &[(&str, &str)]) {
        for key in group.unused() {
            let why = known.iter().find(|(name, _)| *name == key.name).map_or("is not known here", |(_, why)| why);
            self.note(&format!("{file}:{}", key.line), &group.name, &key.name, why);
        }
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// As a file, with the notes at its end.
    pub fn to_toml(&self, from: &str) -> String {
        let mut text = format!("# Made by gst-trt import from {}\n", from.replace(|c: char| c.is_control(), " "));
        if !self.keys.is_empty() {
            text += &format!("\n{}\n", self.keys.join("\n"));
        }
        for table in &self.tables {
            text += &format!("\n{}\n", table.head);
            table.lines.iter().for_each(|line| text += &format!("{line}\n"));
        }
        if !self.notes.is_empty() {
            text += "\n# Without a counterpart:\n";
            self.notes.iter().for_each(|note| text += &format!("# {note}\n"));
        }
        text
    }
}
