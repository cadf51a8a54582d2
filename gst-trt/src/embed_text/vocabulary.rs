// SPDX-License-Identifier: MPL-2.0
//! The files of a tokenizer, as exporters write them next to a model: `tokenizer.json`, or `vocab.json` with `merges.txt`.
//!
//! A file may be that of any tokenizer. All that makes tokens of a text is compared with what CLIP has, so that none is read as
//! something else than it is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gsttrt_core::files::read_regular;
use serde_json::{Map, Value};

use super::tokenizer::{END, END_OF_WORD, START, Tokenizer};
use crate::failure::Failure;

/// Bytes of a file: that of CLIP has 2 to 4 MiB.
const MAX_FILE: u64 = 64 << 20;

/// Entries of a vocabulary: CLIP has 49,408.
const MAX_ENTRIES: usize = 1_000_000;

/// Tokens of a text. What says more says that there is no limit.
pub const MAX_CONTEXT: usize = 4096;

const TOKENIZER: &str = "tokenizer.json";
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// How CLIP divides a text into words, as the file spells it, at its end: some have special tokens before it.
const PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
const SPECIAL_PATTERN: &str = r"<\|startoftext\|>|<\|endoftext\|>|";

/// The file of the tokenizer of a model: next to it, or above, where models are in a folder `onnx` as on Hugging Face.
pub fn find(model: &Path) -> Result<PathBuf, Failure> {
    let folder = model.parent().unwrap_or(Path::new(""));
    let is_below =
        std::path::absolute(model).is_ok_and(|model| model.parent().is_some_and(|own| own.ends_with("onnx")));
    let above = is_below.then(|| folder.join(".."));
    let folders = || [Some(folder.to_path_buf()), above.clone()].into_iter().flatten();
    let is_there = |file: &PathBuf| file.is_file();
    let whole = folders().map(|folder| folder.join(TOKENIZER)).find(is_there);
    let parts = || folders().find(|folder| folder.join(MERGES).is_file()).map(|folder| folder.join(VOCABULARY));
    whole.or_else(|| parts().filter(is_there)).ok_or_else(|| {
        let shown = model.display();
        let remedy = "Copy it from where the model is from, or name it by --tokenizer FILE";
        format!("There is no {TOKENIZER} next to {shown}. {remedy}.").into()
    })
}

/// Reads a tokenizer.
///
/// # Errors
/// Where it cannot be read, or is not CLIP's.
pub fn read(path: &Path) -> Result<Tokenizer, Failure> {
    let shown = path.display();
    let text = read_text(path)?;
    let unusable = |why: String| -> Failure {
        let remedy = "Give the tokenizer of CLIP, tokenizer.json or vocab.json, that belongs to the model. For other models of \
                      texts examples/words.py makes arrays";
        format!("Cannot use the tokenizer {shown}: {why}. {remedy}.").into()
    };
    let file: Value = serde_json::from_str(&text).map_err(|error| unusable(format!("it is not JSON, {error}")))?;
    let tokenizer = match file.get("model") {
        Some(model) if model.is_object() => check(&file, model).and_then(|()| {
            let model = model.as_object().ok_or("it has no model")?;
            let merges = model.get("merges").and_then(Value::as_array).ok_or("it has no merges")?;
            let merges = merges.iter().map(|entry| merge(entry).ok_or_else(|| format!("{} is no merge", short(entry))));
            of(&file, model.get("vocab").and_then(Value::as_object).ok_or("it has no vocab")?, merges)
        }),
        _ if path.ends_with(TOKENIZER) && !path.with_file_name(MERGES).exists() => Err("it has no model".to_string()),
        _ => {
            let list = read_text(&path.with_file_name(MERGES))?;
            let lines = list.lines().filter(|line| !line.starts_with("#version") && !line.trim().is_empty());
            let merges =
                lines.map(|line| pair(line).ok_or_else(|| format!("“{}” of {MERGES} is no merge", beginning(line))));
            file.as_object()
                .ok_or("it is no vocabulary".to_string())
                .and_then(|vocabulary| of(&file, vocabulary, merges))
        }
    };
    let mut tokenizer = tokenizer.map_err(unusable)?;
    settle(&mut tokenizer, path, &file).map_err(unusable)?;
    Ok(tokenizer)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let bytes = read_regular(path, MAX_FILE).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::from(format!(
            "There is no file {shown}. Name the tokenizer by --tokenizer FILE: tokenizer.json, or vocab.json with merges.txt next \
             to it."
        )),
        _ => format!("Cannot read {shown}: {error}. Give a tokenizer that this user may read.").into(),
    })?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| format!("Cannot use the tokenizer {shown}: it is not UTF-8. Copy it again.").into())
}

/// Of a vocabulary and its list of merges.
fn of(
    file: &Value,
    vocabulary: &Map<String, Value>,
    merges: impl Iterator<Item = Result<String, String>>,
) -> Result<Tokenizer, String> {
    if vocabulary.len() > MAX_ENTRIES {
        return Err(format!("it has {} entries, and {MAX_ENTRIES} are the most", vocabulary.len()));
    }
    let number = |value: &Value| value.as_u64().and_then(|number| i32::try_from(number).ok()).map(i32::cast_unsigned);
    let entry = |(part, value): (&String, &Value)| match number(value) {
        Some(id) => Ok((part.clone(), id)),
        None => Err(format!("the number of “{}” is {}", beginning(part), short(value))),
    };
    let mut ids: HashMap<String, u32> = vocabulary.iter().map(entry).collect::<Result<_, _>>()?;
    // Those that are not in the vocabulary itself.
    for added in file.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(part), Some(id)) = (added["content"].as_str(), number(&added["id"])) {
            ids.entry(part.into()).or_insert(id);
        }
    }
    let mut ranks = HashMap::new();
    for (merge, rank) in merges.zip(0..) {
        if ranks.len() >= MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} merges"));
        }
        ranks.entry(merge?).or_insert(rank);
    }
    let special =
        |token: &str| ids.get(token).copied().ok_or_else(|| format!("it has no {token}, which each text has"));
    let (start, end) = (special(START)?, special(END)?);
    if !ids.contains_key(&format!("a{END_OF_WORD}")) {
        return Err(format!("its words do not end with {END_OF_WORD}"));
    }
    Ok(Tokenizer { ids, ranks, start, end, padding: end, context: None })
}

/// Two parts, as a text with a space between them or as a list.
fn merge(entry: &Value) -> Option<String> {
    match entry {
        Value::String(text) => pair(text),
        Value::Array(parts) => match &parts[..] {
            [Value::String(left), Value::String(right)] => Some(format!("{left} {right}")),
            _ => None,
        },
        _ => None,
    }
}

fn pair(text: &str) -> Option<String> {
    let mut parts = text.split_whitespace();
    let (left, right) = (parts.next()?, parts.next()?);
    parts.next().is_none().then(|| format!("{left} {right}"))
}

/// Whether a tokenizer makes the tokens that CLIP's does.
fn check(file: &Value, model: &Value) -> Result<(), String> {
    let is_unset = |value: &Value| value.is_null() || value == "" || value == false || value.as_f64() == Some(0.0);
    let kind = model["type"].as_str().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(format!("it is of the type {}, and CLIP's is BPE", beginning(kind)));
    }
    if model["end_of_word_suffix"] != END_OF_WORD {
        let ending = short(&model["end_of_word_suffix"]);
        return Err(format!("the ending of its words is {ending}, and CLIP's {END_OF_WORD}"));
    }
    let unknown = ["continuing_subword_prefix", "dropout", "ignore_merges", "byte_fallback"];
    if let Some(key) = unknown.into_iter().find(|key| !is_unset(&model[key])) {
        return Err(format!("its {key} is {}, and CLIP's has none", short(&model[key])));
    }
    let mut is_lower = false;
    for step in steps(&file["normalizer"], "normalizers") {
        match step["type"].as_str().unwrap_or_default() {
            "NFC" => {}
            "Lowercase" => is_lower = true,
            "Replace" if step["pattern"]["Regex"] == r"\s+" && step["content"] == " " => {}
            _ => return Err(format!("it changes texts by {}, and CLIP's does not", short(step))),
        }
    }
    if !is_lower {
        return Err("it keeps capital letters, and CLIP's does not".into());
    }
    let mut is_divided = false;
    for step in steps(&file["pre_tokenizer"], "pretokenizers") {
        let pattern = step["pattern"]["Regex"].as_str().unwrap_or_default();
        let is_of_clip = pattern.strip_prefix(SPECIAL_PATTERN).unwrap_or(pattern) == PATTERN;
        match step["type"].as_str().unwrap_or_default() {
            "Split" if is_of_clip && step["behavior"] == "Removed" && step["invert"] == true => is_divided = true,
            "ByteLevel" if is_unset(&step["add_prefix_space"]) => {}
            _ => return Err(format!("it divides texts by {}, and CLIP's does not", short(step))),
        }
    }
    if !is_divided {
        return Err("it does not divide texts into words as CLIP's does".into());
    }
    Ok(())
}

/// The beginning of a value, as JSON.
fn short(value: &Value) -> String {
    beginning(&value.to_string())
}

fn beginning(text: &str) -> String {
    const SHOWN: usize = 200;
    text.chars().take(SHOWN).collect()
}

/// The steps of a part of the file: several of a sequence, else one, or none.
fn steps<'a>(part: &'a Value, list: &str) -> Vec<&'a Value> {
    match part[list].as_array() {
        Some(steps) => steps.iter().collect(),
        None if part.is_null() => Vec::new(),
        None => vec![part],
    }
}

/// Sets what texts are filled up with, and how long they may be: as the file itself says, else those next to it.
fn settle(tokenizer: &mut Tokenizer, path: &Path, file: &Value) -> Result<(), String> {
    // They need not be there, and the tokenizer does without what cannot be read of them.
    let other = |name: &str| -> Value {
        let text = read_regular(&path.with_file_name(name), MAX_FILE).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    };
    let config = other("tokenizer_config.json");
    let length = |value: &Value| {
        value
            .as_u64()
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| (3..=MAX_CONTEXT).contains(length))
    };
    tokenizer.context = length(&file["truncation"]["max_length"]).or_else(|| length(&config["model_max_length"]));
    let named = |value: &Value| value.as_str().or(value["content"].as_str()).map(str::to_string);
    let token = named(&file["padding"]["pad_token"]).or_else(|| named(&config["pad_token"]));
    if let Some(token) = token.or_else(|| named(&other("special_tokens_map.json")["pad_token"])) {
        let id = tokenizer.ids.get(&token).copied();
        tokenizer.padding =
            id.ok_or_else(|| format!("texts are filled up with {}, which it does not have", beginning(&token)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::scratch::scratch;

    /// CLIP's file, but for its vocabulary.
    fn small() -> Value {
        json!({
            "truncation": null,
            "padding": null,
            "added_tokens": [{"id": 8, "content": START}, {"id": 9, "content": END}],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": format!("{SPECIAL_PATTERN}{PATTERN}")}, "behavior": "Removed", "invert": true},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
            ]},
            "model": {
                "type": "BPE",
                "dropout": null,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": END_OF_WORD,
                "fuse_unk": false,
                "vocab": {"a": 0, "b": 1, "a</w>": 2, "b</w>": 3, "ab</w>": 4, "!": 5},
                "merges": ["a b</w>"],
            },
        })
    }

    fn with(change: impl FnOnce(&mut Value)) -> Value {
        let mut file = small();
        change(&mut file);
        file
    }

    fn read_of(folder: &Path, file: &Value) -> Result<Tokenizer, String> {
        let path = folder.join(TOKENIZER);
        fs::write(&path, file.to_string()).unwrap();
        read(&path).map_err(|failure| failure.to_string())
    }

    #[test]
    fn both_forms_are_read() {
        let folder = scratch("tokenizer-forms");
        let as_lists = with(|file| file["model"]["merges"] = json!([["a", "b</w>"]]));
        let without_type = with(|file| drop(file["model"].as_object_mut().unwrap().remove("type")));
        for file in [small(), as_lists, without_type] {
            let tokenizer = read_of(&folder, &file).unwrap();
            assert_eq!(tokenizer.encode("Ab a").unwrap(), [8, 4, 2, 9]);
            assert_eq!((tokenizer.padding, tokenizer.context), (9, None));
        }
        let vocabulary = json!({"a": 0, "b</w>": 3, "a</w>": 2, "ab</w>": 4, START: 8, END: 9});
        fs::write(folder.join(VOCABULARY), vocabulary.to_string()).unwrap();
        fs::write(folder.join(MERGES), "#version: 0.2\na b</w>\n\n").unwrap();
        assert_eq!(read(&folder.join(VOCABULARY)).unwrap().encode("ab").unwrap(), [8, 4, 9]);
    }

    #[test]
    fn padding_and_length_are_those_of_the_files() {
        let folder = scratch("tokenizer-padding");
        let found = |file: &Value| read_of(&folder, file).map(|tokenizer| (tokenizer.padding, tokenizer.context));
        fs::write(folder.join("special_tokens_map.json"), json!({"pad_token": {"content": "!"}}).to_string()).unwrap();
        assert_eq!(found(&small()), Ok((5, None)));
        let config = json!({"pad_token": END, "model_max_length": 77});
        fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
        assert_eq!(found(&small()), Ok((9, Some(77))));
        let own = with(|file| {
            file["padding"] = json!({"strategy": "BatchLongest", "pad_id": 5, "pad_token": "!"});
            file["truncation"] = json!({"max_length": 64});
        });
        assert_eq!(found(&own), Ok((5, Some(64))));
        // What stands for no limit.
        fs::write(folder.join("tokenizer_config.json"), r#"{"model_max_length": 1000000000000000019884624838656}"#)
            .unwrap();
        assert_eq!(found(&small()), Ok((5, None)));
        let unknown = with(|file| file["padding"] = json!({"pad_token": "<pad>"}));
        assert!(found(&unknown).unwrap_err().contains("filled up with <pad>, which it does not have"));
    }

    #[test]
    fn other_tokenizers_are_refused() {
        let folder = scratch("tokenizer-others");
        let of_model = |key: &str, value: Value| with(|file| file["model"][key] = value);
        for (file, says) in [
            (of_model("type", "WordPiece".into()), "it is of the type WordPiece"),
            (of_model("end_of_word_suffix", Value::Null), "the ending of its words is null"),
            (of_model("continuing_subword_prefix", "##".into()), "its continuing_subword_prefix is \"##\""),
            (of_model("ignore_merges", true.into()), "its ignore_merges is true"),
            (of_model("merges", json!(["a"])), "\"a\" is no merge"),
            (of_model("merges", Value::Null), "it has no merges"),
            (of_model("vocab", Value::Null), "it has no vocab"),
            (of_model("vocab", json!({"a": -1})), "the number of “a” is -1"),
            (of_model("vocab", json!({"a": 1u64 << 31})), "the number of “a” is 2147483648"),
            (of_model("vocab", json!({"a": 1})), "its words do not end with </w>"),
            (with(|file| file["added_tokens"] = json!([])), "it has no <|startoftext|>"),
            (with(|file| file["normalizer"] = Value::Null), "it keeps capital letters"),
            (
                with(|file| file["normalizer"]["normalizers"][0]["type"] = "NFKC".into()),
                "it changes texts by {\"type\":\"NFKC\"}",
            ),
            (with(|file| file["pre_tokenizer"] = Value::Null), "it does not divide texts into words"),
            (
                with(|file| file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\w+".into()),
                "it divides texts by {\"type\":\"Split\"",
            ),
            (json!(["a"]), "it is no vocabulary"),
        ] {
            fs::write(folder.join(MERGES), "").unwrap();
            let said = read_of(&folder, &file).err().expect(says);
            assert!(said.contains(says) && said.contains("examples/words.py"), "{said}");
        }
        fs::remove_file(folder.join(MERGES)).unwrap();
        assert!(read_of(&folder, &json!({})).err().expect("it is empty").contains("tokenizer.json: it has no model"));
        fs::write(folder.join(TOKENIZER), "{").unwrap();
        let said = read(&folder.join(TOKENIZER)).err().expect("it is cut").to_string();
        assert!(said.contains("it is not JSON"), "{said}");
        fs::write(folder.join(TOKENIZER), [0xffu8]).unwrap();
        let said = read(&folder.join(TOKENIZER)).err().expect("it is no text").to_string();
        assert!(said.contains("it is not UTF-8"), "{said}");
        let said = read(&folder).err().expect("it is a folder").to_string();
        assert!(said.contains("it is a folder"), "{said}");
    }

    #[test]
    fn the_file_is_next_to_the_model_or_above() {
        let folder = scratch("tokenizer-found");
        let model = folder.join("onnx/text_model.onnx");
        fs::create_dir(folder.join("onnx")).unwrap();
        let said = find(&model).unwrap_err().to_string();
        assert!(said.starts_with("There is no tokenizer.json next to ") && said.contains("--tokenizer FILE"), "{said}");
        let is = |file: PathBuf| {
            find(&model).is_ok_and(|found| found.canonicalize().unwrap() == file.canonicalize().unwrap())
        };
        fs::write(folder.join(VOCABULARY), "").unwrap();
        assert!(find(&model).is_err(), "it has no merges");
        fs::write(folder.join(MERGES), "").unwrap();
        assert!(is(folder.join(VOCABULARY)));
        fs::write(folder.join(TOKENIZER), "").unwrap();
        assert!(is(folder.join(TOKENIZER)));
        fs::write(folder.join("onnx").join(TOKENIZER), "").unwrap();
        assert!(is(folder.join("onnx").join(TOKENIZER)));
        assert!(find(&folder.join("onnx/deep/text.onnx")).is_err(), "other folders are not searched");
    }
}
