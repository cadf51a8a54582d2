// SPDX-License-Identifier: MPL-2.0
//! What exporters write about a model in its file: class names, stride, size, keypoints.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::heads::{HeadFormat, check_task, layout_file};
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::literal;

/// Characters of a class name. It is drawn, and copied for each object.
pub(super) const MAX_LABEL: usize = 1024;

/// An entry of the metadata.
#[derive(Clone, Copy)]
pub(super) struct MetadataKey {
    key: &'static str,
    /// What it is called in errors.
    what: &'static str,
    /// How it is written.
    expected: &'static str,
}

pub(super) const NAMES: MetadataKey = MetadataKey {
    key: "names",
    what: "class names",
    expected: "a Python dictionary like {0: 'person', 1: 'car'}, without gaps",
};
pub(super) const STRIDE: MetadataKey =
    MetadataKey { key: "stride", what: "stride", expected: "a positive whole number like 32" };
pub(super) const IMAGE_SIZE: MetadataKey =
    MetadataKey { key: "imgsz", what: "input size", expected: "height and width, like [480, 640]" };
pub(super) const KEYPOINTS: MetadataKey = MetadataKey {
    key: "kpt_shape",
    what: "shape of keypoints",
    expected: "the number of keypoints and 2 or 3 numbers for each, like [17, 3]",
};

impl MetadataKey {
    /// Its value, if there is one.
    fn read<T>(
        &self,
        metadata: &BTreeMap<String, String>,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>> {
        // Python's str(None) is no value, as nothing is.
        let is_value = |text: &&String| !matches!(text.trim(), "" | "None" | "null");
        let Some(text) = metadata.get(self.key).filter(is_value) else { return Ok(None) };
        // In place of bytes that are no UTF-8. Which characters they were cannot be known.
        let is_text = !text.contains(char::REPLACEMENT_CHARACTER);
        let value = Some(text).filter(|_| is_text).and_then(|text| literal::parse(text));
        value.and_then(parse).map(Some).ok_or_else(|| {
            let why = if is_text { "" } else { ", which is not UTF-8" };
            Error::new(ErrorKind::Model, format!("the {} in its metadata cannot be read", self.what))
                .cause(format!("{} = “{}”{why}", self.key, text.chars().take(80).collect::<String>()))
                .remedy(format!("Export it again with {}", self.form()))
        })
    }

    /// What is said of a model that is used without this entry, which cannot be read for that reason.
    pub fn is_unread(&self, model: &Path, error: &Error) -> Error {
        let what = format!("{} has no {} that can be read: {}", model.display(), self.what, error.cause_text());
        let remedy = format!("It is used without; export it again with {}", self.form());
        Error::new(ErrorKind::Model, what).remedy(remedy)
    }

    /// The entry as it should be.
    pub fn form(&self) -> String {
        format!("{} as {}", self.key, self.expected)
    }
}

/// The head that the metadata describe as a layout file does.
pub(super) fn layout(metadata: &BTreeMap<String, String>) -> Option<Result<&'static HeadFormat>> {
    let text = metadata.get(layout_file::METADATA_KEY).filter(|text| !text.trim().is_empty())?;
    Some(layout_file::of_text(layout_file::OF_METADATA, text))
}

/// Whether Ultralytics exported the model.
pub(super) fn is_ultralytics(metadata: &BTreeMap<String, String>) -> bool {
    metadata.get("author").is_some_and(|author| author == "Ultralytics")
}

/// What the model is for, in Ultralytics' words. Others write words of their own there, which say nothing of its outputs.
pub(super) fn task(metadata: &BTreeMap<String, String>) -> Option<String> {
    metadata.get("task").filter(|task| is_ultralytics(metadata) || check_task(task).is_ok()).cloned()
}

/// The names in the metadata; empty where there are none.
pub(super) fn class_names(metadata: &BTreeMap<String, String>) -> Result<Vec<String>> {
    NAMES.read(metadata, parse_names).map(Option::unwrap_or_default)
}

/// The key with the characters that a text may have, as PaddleOCR's models have it when they become ONNX.
const CHARACTERS: &str = "character";

/// The dictionary of a model that reads text: a character a line; empty where there is none. A space is a character too.
pub(super) fn characters(metadata: &BTreeMap<String, String>) -> Vec<String> {
    let text = metadata.get(CHARACTERS).map_or("", String::as_str).trim_end_matches(['\r', '\n']);
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    // A single line may be anything.
    if lines.len() < 2 { Vec::new() } else { lines }
}

/// What the sides of the input must be multiples of.
pub(super) fn stride(metadata: &BTreeMap<String, String>) -> Result<Option<u32>> {
    STRIDE.read(metadata, parse_stride)
}

/// Width and height that the model was trained or exported for.
pub(super) fn image_size(metadata: &BTreeMap<String, String>) -> Result<Option<(u32, u32)>> {
    IMAGE_SIZE.read(metadata, parse_size)
}

fn as_u32(value: &Value) -> Option<u32> {
    let whole = || value.as_f64().filter(|value| value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(value));
    value.as_u64().and_then(|integer| integer.try_into().ok()).or_else(|| whole().map(|value| value as u32))
}

/// One number, or one for each level of the head: the largest counts. 0 means that there is none.
fn parse_stride(value: Value) -> Option<u32> {
    match value {
        Value::Array(strides) => strides.iter().map(as_u32).collect::<Option<Vec<_>>>()?.into_iter().max(),
        value => as_u32(&value),
    }
}

/// Width and height. Ultralytics writes [height, width], or one number for both.
fn parse_size(value: Value) -> Option<(u32, u32)> {
    match value {
        Value::Array(sides) => match &sides[..] {
            [height, width] => Some((as_u32(width)?, as_u32(height)?)),
            [side] => as_u32(side).map(|side| (side, side)),
            _ => None,
        },
        value => as_u32(&value).map(|side| (side, side)),
    }
}

/// Class names as Ultralytics writes them: `{0: 'person', 1: 'bicycle'}`, ids from 0 without gaps; or a list. Names that
/// YAML takes for numbers and truth values are written as Python writes these.
fn parse_names(value: Value) -> Option<Vec<String>> {
    let names = match value {
        Value::Object(entries) => {
            let named = |(id, name): (String, Value)| Some((id.parse::<u32>().ok()?, name));
            let mut names = entries.into_iter().map(named).collect::<Option<Vec<_>>>()?;
            names.sort_by_key(|(id, _)| *id);
            let gapless = names.iter().enumerate().all(|(i, (id, _))| i as u32 == *id);
            gapless.then(|| names.into_iter().map(|(_, name)| name).collect())?
        }
        Value::Array(names) => names,
        _ => return None,
    };
    let name = |name| match name {
        Value::String(name) => (name.len() <= MAX_LABEL).then_some(name),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("True".into()),
        Value::Bool(false) => Some("False".into()),
        _ => None,
    };
    names.into_iter().map(name).collect()
}

/// What Ultralytics' metadata say of keypoints: `kpt_shape` is `[17, 3]`, and `kpt_names` a list for each class, of
/// which the first counts.
pub(super) fn keypoints(metadata: &BTreeMap<String, String>) -> Result<Option<KeypointModel>> {
    let read = |value: Value| match value {
        Value::Array(list) => match list.iter().map(as_u32).collect::<Option<Vec<_>>>()?[..] {
            [count @ 1..=1000, dims @ 2..=3] => Some(KeypointShape { count: count as u16, dims: dims as u8 }),
            _ => None,
        },
        _ => None,
    };
    let Some(shape) = KEYPOINTS.read(metadata, read)? else { return Ok(None) };
    let texts =
        |list: &[Value]| list.iter().map(|value| value.as_str().map(str::to_string)).collect::<Option<Vec<_>>>();
    let of_class = |value: Value| match value {
        Value::Object(entries) => entries.into_iter().next().and_then(|(_, names)| texts(names.as_array()?)),
        Value::Array(names) => texts(&names),
        _ => None,
    };
    let names = metadata.get("kpt_names").and_then(|text| literal::parse(text)).and_then(of_class);
    // Names are only for people: without them, or with too many, points are numbers.
    let names = names.filter(|names| names.len() == usize::from(shape.count)).unwrap_or_default();
    Ok(Some(KeypointModel { shape, names }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_names(text: &str) -> Option<Vec<String>> {
        super::parse_names(literal::parse(text)?)
    }

    #[test]
    fn names_are_python() {
        assert_eq!(parse_names("{0: 'disc', 1: 'box'}").unwrap(), ["disc", "box"]);
        assert_eq!(parse_names(r#"{0: 'a, b', 1: "it's", 2: 'x{}:\'"'}"#).unwrap(), ["a, b", "it's", "x{}:'\""]);
        assert_eq!(parse_names("['a', 'b']").unwrap(), ["a", "b"]);
        assert_eq!(parse_names("{1: 'b', 0: 'ä'}").unwrap(), ["ä", "b"]);
        assert_eq!(parse_names(r#"{"0": "a", "1": "b"}"#).unwrap(), ["a", "b"]);
        assert_eq!(parse_names("{0: 0, 1: 1.5}").unwrap(), ["0", "1.5"]);
        assert_eq!(parse_names("{0: False, 1: True, 2: 'maybe'}").unwrap(), ["False", "True", "maybe"]);
        for text in ["", "{", "{1: 'gap'}", "{0: None}", "{0: [1]}", "7", "{-1: 'a'}", "{0: 'a', '00': 'b'}"] {
            assert_eq!(parse_names(text), None, "{text}");
        }
        assert_eq!(parse_names(&format!("['{}']", "x".repeat(MAX_LABEL + 1))), None);
    }

    #[test]
    fn a_dictionary_has_a_character_a_line() {
        let of = |text: &str| characters(&BTreeMap::from([("character".to_string(), text.to_string())]));
        assert_eq!(of("a\nb\n \n\u{3000}\n"), ["a", "b", " ", "\u{3000}"]);
        assert_eq!(of("a\r\n \r\n"), ["a", " "]);
        for text in ["", "\n", "Latin script"] {
            assert_eq!(of(text), [""; 0], "{text:?}");
        }
        assert_eq!(characters(&BTreeMap::new()), [""; 0]);
    }

    #[test]
    fn an_entry_without_a_value_is_none() {
        for text in ["", " ", "None", "null"] {
            let entries = ["names", "stride", "imgsz", "kpt_shape"].map(|key| (key.to_string(), text.to_string()));
            let metadata = BTreeMap::from(entries);
            assert_eq!(class_names(&metadata).unwrap(), [""; 0], "{text:?}");
            assert_eq!(stride(&metadata).unwrap(), None, "{text:?}");
            assert_eq!(image_size(&metadata).unwrap(), None, "{text:?}");
            assert_eq!(keypoints(&metadata).unwrap(), None, "{text:?}");
        }
    }

    #[test]
    fn tasks_are_words_of_ultralytics() {
        let of = |author: &str, text: &str| {
            let entries = [("author", author), ("task", text)].map(|(key, text)| (key.to_string(), text.to_string()));
            task(&BTreeMap::from(entries))
        };
        assert_eq!([of("", "detect"), of("me", "pose")], [Some("detect".into()), Some("pose".into())]);
        assert_eq!(of("me", "object-detection"), None, "another exporter's own word");
        assert_eq!(of("Ultralytics", "caption"), Some("caption".into()), "no head is for that: an error");
    }

    #[test]
    fn strides_and_sizes_are_numbers() {
        let stride = |text: &str| literal::parse(text).and_then(parse_stride);
        assert_eq!((stride("32"), stride("32.0"), stride("[8, 16, 32]")), (Some(32), Some(32), Some(32)));
        for text in ["-1", "nan", "'32'", "1+1+1", "0x20", "[]", "[8, -1]", "1.5", "[[[1]]]"] {
            assert_eq!(stride(text), None, "{text}");
        }
        let size = |text: &str| literal::parse(text).and_then(parse_size);
        assert_eq!(
            (size("[480, 640]"), size("640"), size("(640,)")),
            (Some((640, 480)), Some((640, 640)), Some((640, 640)))
        );
        assert_eq!((size("[1, 2, 3]"), size("-1"), size("[]")), (None, None, None));
    }

    #[test]
    fn keypoints_are_a_shape_and_names() {
        let of = |entries: &[(&str, &str)]| {
            keypoints(&entries.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect())
        };
        assert_eq!(of(&[]).unwrap(), None);
        let shape = KeypointShape { count: 2, dims: 3 };
        for (names, wanted) in [
            ("{0: ['nose', 'tail']}", &["nose", "tail"][..]),
            ("['nose', 'tail']", &["nose", "tail"]),
            ("{0: ['nose']}", &[]),
            ("{0: 7}", &[]),
            ("{", &[]),
        ] {
            let model = of(&[("kpt_shape", "[2, 3]"), ("kpt_names", names)]).unwrap().unwrap();
            assert_eq!(
                (model.shape, model.names),
                (shape, wanted.iter().map(|name| name.to_string()).collect()),
                "{names}"
            );
        }
        for text in ["[]", "[17]", "[0, 3]", "[17, 1]", "[17, 4]", "[1001, 3]", "[-1, 3]", "[17.5, 3]", "['a', 3]"] {
            let error = of(&[("kpt_shape", text)]).unwrap_err();
            assert!(error.message().contains("kpt_shape"), "{error}");
        }
    }
}
