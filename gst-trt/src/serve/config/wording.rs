// SPDX-License-Identifier: MPL-2.0
//! What is said about a wrong key or value, and where it is.

use gsttrt_core::words::nearest;

pub fn unknown_key(key: &str, known: &[&str]) -> String {
    unknown("key", key, known)
}

pub fn unknown_value(value: &str, known: &[&str]) -> String {
    unknown("value", value, known)
}

fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let hint = nearest(word, known).map_or(String::new(), |near| format!("; did you mean “{near}”?"));
    let end = if hint.is_empty() { "." } else { "" };
    let shown: String = word.chars().take(64).collect();
    format!("there is no {what} “{shown}” here{hint}{end} The {what}s are: {}", known.join(", "))
}

/// A name that is used and not defined.
pub fn unknown_name<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let hint = match (nearest(name, &known), known.is_empty()) {
        (Some(near), _) => format!("; did you mean “{near}”?"),
        (None, true) => format!(", as there is no [[{what}]]."),
        (None, false) => format!(". There are: {}.", known.join(", ")),
    };
    format!("there is no {what} “{name}”{hint}")
}

/// What serde says, in the words of this program.
pub fn of_serde(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let quoted = |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_string).collect() };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = quoted(rest);
        if let Some((key, known)) = names.split_first() {
            return unknown_key(key, &known.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    if let Some(rest) = message.strip_prefix("missing field ")
        && let [key, ..] = &quoted(rest)[..]
    {
        return format!("the key {key} is missing");
    }
    message.into()
}

/// An error of a file, with its line and the key on it.
pub fn in_file(file: &std::path::Path, text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map(|span| 1 + text.as_bytes()[..span.start.min(text.len())].iter().filter(|c| **c == b'\n').count());
    at_line(file, text, line, &of_serde(error.message()))
}

pub fn at_line(file: &std::path::Path, text: &str, line: Option<usize>, problem: &str) -> String {
    let key = line.and_then(|line| text.lines().nth(line - 1)?.split_once('=')).map(|(key, _)| key.trim());
    let key = key.filter(|key| !key.is_empty() && key.len() <= 64 && !problem.contains(*key));
    let place = match (line, key) {
        (Some(line), Some(key)) => format!("line {line}, {key}: "),
        (Some(line), None) => format!("line {line}: "),
        (None, _) => String::new(),
    };
    let end = if problem.ends_with(['.', '?']) { "" } else { "." };
    format!("Cannot use {}: {place}{problem}{end}", file.display())
}

/// The line of a key, or of the header, of a table: the one of that number where there are several.
pub fn line_of(text: &str, table: &str, number: usize, key: &str) -> Option<usize> {
    let headers = [format!("[{table}]"), format!("[[{table}]]")];
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let (header, _) =
        lines.by_ref().filter(|(_, line)| headers.iter().any(|header| line.trim() == header)).nth(number)?;
    let found = lines
        .take_while(|(_, line)| !is_header(line))
        .find(|(_, line)| line.split('=').next().is_some_and(|name| name.trim() == key));
    Some(found.map_or(header, |(line, _)| line))
}
