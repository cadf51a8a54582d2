// SPDX-License-Identifier: MPL-2.0
//! What is said about a wrong key or value, and where it is.

use gsttrt_core::redact::is_secret;
use gsttrt_core::words::nearest;

use super::places::Places;

/// Where an element's remedy is written in a configuration. Of trtinfer, remedies name `batch-size`, which is a key itself.
const ELEMENT_KEYS: [(&str, &str); 4] = [
    ("label-file on trtnms (labels in gst-trt serve)", "labels in [[model]]"),
    (" on trtnms", " in nms of [[model]]"),
    (" on trtpreprocess", " in preprocess of [[model]]"),
    (" on trtinfer", " in [[model]]"),
];

/// Tables of which there is one.
const SINGLE_TABLES: [&str; 11] =
    ["track", "identities", "analytics", "privacy", "record", "snapshots", "http", "rtsp", "webrtc", "log", "otel"];

/// What is wrong, and with which key of the table.
pub struct KeyError {
    pub key: &'static str,
    pub text: String,
    /// The table of all sources that has the key, where it is not the table that is read.
    pub table: Option<&'static str>,
}

impl KeyError {
    pub fn of_table(self, table: &'static str) -> Self {
        KeyError { table: Some(table), ..self }
    }

    /// What elements say of a model, with the keys of `[[model]]` in place of elements.
    pub fn of_model(self) -> Self {
        let with_key = |text: String, (element, key): &(&str, &str)| text.replace(element, key);
        KeyError { text: ELEMENT_KEYS.iter().fold(self.text, with_key), ..self }
    }
}

pub fn problem(key: &'static str, text: impl Into<String>) -> KeyError {
    KeyError { key, text: text.into(), table: None }
}

/// A list of what is wanted, with nothing in it. It would be taken for one that was left out, which is all.
pub fn check_list(key: &'static str, what: &str, list: Option<&[String]>) -> Result<(), KeyError> {
    match list {
        Some([]) => Err(problem(key, format!("there is no {what} in it. Leave it out for all"))),
        _ => Ok(()),
    }
}

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
    let all = || match known.get(..12) {
        Some(first) if known.len() > 12 => format!("{} and {} more", first.join(", "), known.len() - 12),
        _ => known.join(", "),
    };
    let hint = match (nearest(name, &known), known.is_empty()) {
        (Some(near), _) => format!("; did you mean “{near}”?"),
        (None, true) => format!(", as there is no [[{what}]]."),
        (None, false) => format!(". There are: {}.", all()),
    };
    format!("there is no {what} “{name}”{hint}")
}

/// What serde says, in the words of this program.
pub fn of_serde(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    if message == "duplicate key" {
        let several = "Tables of which there can be several are in double brackets, all of them, such as [[source]]";
        return format!("the key or the table is there twice. Write it once. {several}");
    }
    let quoted = |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_string).collect() };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = quoted(rest);
        if let Some((key, known)) = names.split_first() {
            return unknown_key(key, &known.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    if let Some(rest) = message.strip_prefix("unknown variant ")
        && let Some((value, known)) = quoted(rest).split_first()
    {
        return unknown_value(value, &known.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if let Some(rest) = message.strip_prefix("missing field ")
        && let [key, ..] = &quoted(rest)[..]
    {
        return format!("the key {key} is missing");
    }
    for (found, kind) in [("invalid type: ", "it is"), ("invalid value: ", "it cannot be")] {
        if let Some((is, wanted)) = message.strip_prefix(found).and_then(|rest| rest.rsplit_once(", expected ")) {
            if is == "map" && wanted == "a sequence" {
                return "there can be several of these tables. Write it in double brackets, such as [[source]]".into();
            }
            return format!("{kind} {}. Write {}", written(is), in_words(wanted));
        }
    }
    message.into()
}

/// A value as serde names it.
fn written(value: &str) -> String {
    let value = value.replace('`', "");
    // Of whole numbers that are too large for a key, serde names a type of Rust, too.
    let value = value.trim_end_matches(" as i128").trim_end_matches(" as u128");
    match value.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "floating", number)) => {
            format!("the number {}", number.trim_start_matches("point ").trim_end_matches(".0"))
        }
        Some(("boolean", word)) => word.into(),
        _ if value == "sequence" => "a list".into(),
        _ if value == "map" => "a table".into(),
        _ => value.into(),
    }
}

/// What serde expects.
fn in_words(wanted: &str) -> String {
    match wanted {
        "a string" => "a text in quotes".into(),
        "path string" => "a path in quotes".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list, such as [\"a\", \"b\"]".into(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number, such as 0.001".into(),
        "variant identifier" | "string or table" => "one of its words in quotes".into(),
        wanted if wanted.starts_with("enum ") => "one of its words in quotes".into(),
        wanted if wanted.starts_with("struct ") || wanted == "a map" => "a table with keys".into(),
        wanted => wanted.into(),
    }
}

/// An error of a file, with its line and the key on it.
pub fn in_file(file: &std::path::Path, places: &Places, error: &toml::de::Error) -> String {
    let byte = error.span().map(|span| span.start);
    let key = byte.and_then(|byte| places.key_at(byte));
    let line = byte.map(|byte| places.line(byte));
    let repeated = line.and_then(|line| places.repeated_at(line)).filter(|name| SINGLE_TABLES.contains(name));
    let problem = match repeated {
        Some(name) => format!("there is one table of that name. Write it in single brackets, as [{name}]"),
        None => of_serde(error.message()),
    };
    // The value may be a secret, of whatever kind it is.
    let is_header = |key: &str| places.line_of("otel.headers", 0, key) == line.map(|line| (line, true));
    let is_hidden = key.is_some_and(|key| is_secret(key) || key == "headers" || is_header(key));
    let wanted = problem.rfind("Write ").filter(|_| is_hidden);
    at_line(file, line, key, &problem[wanted.unwrap_or(0)..])
}

/// Where a text of TOML or JSON writes a NUL character, which GStreamer's texts cannot hold.
pub fn nul(text: &str) -> Option<usize> {
    [r"\u0000", r"\U00000000", r"\x00"].iter().filter_map(|escape| text.find(escape)).min()
}

/// The file, the place in it, and what is wrong there.
pub fn at_line(file: &std::path::Path, line: Option<usize>, key: Option<&str>, problem: &str) -> String {
    let key = key.filter(|key| !key.is_empty() && key.len() <= 64 && !problem.contains(*key));
    let place = match (line, key) {
        (Some(line), Some(key)) => format!("line {line}, {key}: "),
        (Some(line), None) => format!("line {line}: "),
        (None, _) => String::new(),
    };
    ended(format!("{}: {place}{problem}", file.display()))
}

/// As a sentence.
pub fn ended(mut text: String) -> String {
    if !text.ends_with(['.', '?']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_type_of_rust_is_named() {
        let types = [
            "u8",
            "u16",
            "u32",
            "u64",
            "usize",
            "i8",
            "i16",
            "i32",
            "i64",
            "isize",
            "f32",
            "f64",
            "enum Container",
            "struct RecordKeys",
            "variant identifier",
            "string or table",
        ];
        for wanted in types {
            let said = of_serde(&format!("invalid type: string \"1%\", expected {wanted}"));
            assert!(said.starts_with("it is the text \"1%\". Write ") && !said.ends_with(wanted), "{said}");
        }
    }
}
