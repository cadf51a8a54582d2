// SPDX-License-Identifier: MPL-2.0
//! Models that see objects, and one of texts.

use std::path::Path;

use super::onnx::{F32, Graph, I64, int, ints};

/// A classifier of pictures of 16x16 by their mean: the first class is of bright ones.
pub fn classifier(file: &Path, bright: &str, dark: &str) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .weight("factor", F32, &[1, 2], floats(&[8.0, -8.0]))
        .weight("addend", F32, &[1, 2], floats(&[-4.0, 4.0]))
        .weight("rows", I64, &[2], [1i64, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "factor"], &["scaled"], vec![])
        .node("Add", &["scaled", "addend"], &["logits"], vec![])
        .node("Softmax", &["logits"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &["1", "2"])
        .metadata("author", "Ultralytics")
        .metadata("task", "classify")
        .metadata("names", &format!("{{0: '{bright}', 1: '{dark}'}}"))
        .save(file)
}

/// A model that reads the same text in each picture, "Hi" with a mean probability of 0.875. Its steps have scores of the blank, of two
/// characters and of a space.
pub fn reader(file: &Path) -> String {
    let steps: [[f32; 4]; 3] = [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.75, 0.25]];
    Graph::new()
        .input("images", F32, &["1", "3", "16", "64"])
        .constant("text", &[1, 3, 4], steps.as_flattened())
        .metadata("character", "H\ni")
        .save(file)
}

/// A model of pictures of 16x16 whose vector is the mean of their red, green and blue. The file does not say that it is a vector.
pub fn embedder(file: &Path) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .node("ReduceMean", &["images"], &["vector"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .output("vector", F32, &["1", "3"])
        .save(file)
}

/// The same of pictures of any size, with the names of an export of Hugging Face's packages: the channels are open, too.
pub fn open_embedder(file: &Path) -> String {
    Graph::new()
        .input("pixel_values", F32, &["batch_size", "num_channels", "height", "width"])
        .node("ReduceMean", &["pixel_values"], &["image_embeds"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .output("image_embeds", F32, &["batch_size", "3"])
        .save(file)
}

/// A model of pictures of 16x16 that gives the same vector for all.
pub fn vector(file: &Path, numbers: &[f32]) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .constant("vector", &[1, numbers.len() as i64], numbers)
        .save(file)
}

/// A detector of faces with five landmarks each, in pixels of its input of 64x64.
pub fn faces(file: &Path, rows: &[[f32; 16]]) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, rows.len() as i64, 16], rows.as_flattened())
        .metadata("task", "pose")
        .metadata("kpt_shape", "[5, 2]")
        .metadata("names", "{0: 'face'}")
        .save(file)
}

/// A detector that finds one object of a class in the middle of each picture.
pub fn inner(file: &Path, class: &str) -> String {
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 6], &[16.0, 16.0, 48.0, 48.0, 0.75, 0.0])
        .metadata("names", &format!("{{0: '{class}'}}"))
        .save(file)
}

/// The text side of CLIP in small: the vector of a text is the mean of those of its tokens, without what fills it up. The dimensions of
/// its inputs may be open.
pub fn texts(rows: &str, length: &str, ids: i32, tokens: usize) -> Graph {
    let table = (0..tokens).flat_map(token).flat_map(f32::to_le_bytes).collect();
    Graph::new()
        .input("input_ids", ids, &[rows, length])
        .input("attention_mask", I64, &[rows, length])
        .weight("table", F32, &[tokens as i64, 3], table)
        .weight("last", I64, &[1], 2i64.to_le_bytes().to_vec())
        .node("Gather", &["table", "input_ids"], &["last_hidden_state"], vec![])
        .node("Cast", &["attention_mask"], &["kept"], vec![int("to", F32.into())])
        .node("Unsqueeze", &["kept", "last"], &["column"], vec![])
        .node("Mul", &["last_hidden_state", "column"], &["masked"], vec![])
        .node("ReduceMean", &["masked"], &["text_embeds"], vec![ints("axes", &[1]), int("keepdims", 0)])
        .output("text_embeds", F32, &[rows, "3"])
}

/// The vector of a token of that model.
pub fn token(id: usize) -> [f32; 3] {
    [(id % 5) as f32, (id % 7) as f32, 1.0]
}

/// Tokens of the tokenizer below: each letter, each letter that ends a word, the start and the end.
pub const LETTERS: usize = 26;
pub const START: usize = 2 * LETTERS;
pub const END: usize = START + 1;
pub const TOKENS: usize = END + 1;

/// Writes its tokenizer, which is CLIP's for words of small letters.
pub fn tokenizer(folder: &Path) {
    let endings = ["", "</w>"].into_iter();
    let letters = endings.flat_map(|ending| ('a'..='z').map(move |letter| format!("{letter}{ending}")));
    let specials = ["<|startoftext|>", "<|endoftext|>"].map(String::from);
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        letters.chain(specials).zip((0u32..).map(serde_json::Value::from)).collect();
    let pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
    let file = serde_json::json!({
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        ]},
        "model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": vocabulary, "merges": []},
    });
    std::fs::write(folder.join("tokenizer.json"), file.to_string()).unwrap();
}
