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

/// What it means that a key is not taken over, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// Something is missing, or is done in another way.
    Differs,
    /// It is there, and is set at another place.
    Elsewhere,
    /// Nothing is lost.
    NoEffect,
}

impl NoteKind {
    pub fn heading(self) -> &'static str {
        match self {
            NoteKind::Differs => "Changes results",
            NoteKind::Elsewhere => "Set elsewhere",
            NoteKind::NoEffect => "No effect here",
        }
    }
}

/// A key that is not taken over, what that means, and why.
pub type KnownKey = (&'static str, NoteKind, &'static str);

/// All that is written.
#[derive(Default)]
pub struct WrittenConfig {
    /// Keys above all tables.
    keys: Vec<String>,
    tables: Vec<TomlTable>,
    /// Keys that are not taken over: where they are, and why.
    notes: Vec<(NoteKind, String)>,
}

impl WrittenConfig {
    /// A key above all tables, such as a number.
    pub fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        self.keys.push(format!("{key} = {value}"));
    }

    pub fn push(&mut self, table: TomlTable) {
        self.tables.push(table);
    }

    pub fn note(&mut self, kind: NoteKind, file: &str, group: &str, what: &str, why: &str) {
        let note = format!("{file} [{group}] {what}: {why}");
        self.notes.push((kind, note.replace(|c: char| c.is_control(), " ")));
    }

    /// All keys of a group that were not used. `known` has the reasons.
    pub fn note_unused(&mut self, file: &str, group: &IniGroup, known: &[KnownKey]) {
        for key in group.unused() {
            let found = known.iter().find(|(name, ..)| *name == key.name);
            let (kind, why) = found.map_or((NoteKind::Differs, "is not known here"), |(_, kind, why)| (*kind, *why));
            self.note(kind, &format!("{file}:{}", key.line), &group.name, &key.name, why);
        }
    }

    /// What is not taken over, the worst first.
    pub fn notes(&self) -> impl Iterator<Item = (NoteKind, &str)> {
        [NoteKind::Differs, NoteKind::Elsewhere, NoteKind::NoEffect].into_iter().flat_map(move |kind| {
            self.notes.iter().filter(move |(of, _)| *of == kind).map(move |(_, note)| (kind, note.as_str()))
        })
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
        let mut last = None;
        for (kind, note) in self.notes() {
            if last.replace(kind) != Some(kind) {
                text += &format!("\n# {}:\n", kind.heading());
            }
            text += &format!("# {note}\n");
        }
        text
    }
}
