// SPDX-License-Identifier: MPL-2.0
//! `gst-trt embed-text`: galleries and arrays of words.

mod common;
#[path = "../../core/tests/common/openvino.rs"]
#[allow(dead_code)] // others want older releases
mod openvino;
#[path = "../../core/tests/common/ort.rs"]
#[allow(dead_code)]
mod ort;

use std::path::Path;

use common::models::{END, LETTERS, START, TOKENS, embedder, texts, token, tokenizer};
use common::onnx::{F16, F32, Graph, I32, I64, int, ints};
use common::{expect_failure, files, run, scratch, succeed, text};
use gsttrt_core::gallery::{Gallery, file};
use gsttrt_core::vector::normalise;

/// The vector of a text of small letters, by the tokens that it has.
fn vector(text: &str) -> Vec<f32> {
    let letters = text.split_whitespace().flat_map(|word| {
        let end = word.len() - 1;
        let id = move |(at, letter): (usize, u8)| usize::from(letter - b'a') + if at == end { LETTERS } else { 0 };
        word.bytes().enumerate().map(id)
    });
    let mut sum = vec![0.0; 3];
    for id in std::iter::once(START).chain(letters).chain([END]) {
        sum.iter_mut().zip(token(id)).for_each(|(sum, number)| *sum += number);
    }
    assert!(normalise(&mut sum));
    sum
}

/// The name that is most like a vector, and is the same.
fn name_of(gallery: &Gallery, vector: &[f32]) -> String {
    let best = gallery.find(&[vector], 1)[0][0];
    assert!(best.similarity > 0.999_999, "{best:?}");
    gallery.names()[best.name as usize].clone()
}

fn words(folder: &Path) -> Gallery {
    file::read(&folder.join("words.jsonl")).unwrap()
}

#[test]
fn words_become_a_gallery() {
    let folder = scratch("embed-text");
    texts("n", "24", I64, TOKENS).save(&folder.join("text.onnx"));
    tokenizer(&folder);
    let shown = succeed(&folder, &["embed-text", "text.onnx", "a red car", "dog=A  Dog", "-o", "words.jsonl"]);
    assert_eq!(text(&shown.stdout), "2 vectors of 3 numbers written to words.jsonl, which has 2 vectors of 2 names\n");
    let found = words(&folder);
    assert_eq!(found.names(), ["a red car", "dog"]);
    assert_eq!([vector("a red car"), vector("a dog")].map(|vector| name_of(&found, &vector)), ["a red car", "dog"]);

    // Names that are given again have new vectors, and several phrases may have one.
    let again = ["embed-text", "text.onnx", "dog=puppy", "dog=hound", "cat", "--output", "words.jsonl"];
    let shown = succeed(&folder, &again);
    assert_eq!(text(&shown.stdout), "3 vectors of 3 numbers written to words.jsonl, which has 4 vectors of 3 names\n");
    let found = words(&folder);
    assert_eq!(found.names(), ["a red car", "dog", "cat"]);
    let names = ["a red car", "puppy", "hound", "cat"].map(|phrase| name_of(&found, &vector(phrase)));
    assert_eq!(names, ["a red car", "dog", "dog", "cat"]);

    // The mean of two vectors of the length 1.
    let templates = ["--template", "the {}", "--template", "a {} at night"];
    succeed(&folder, &[&["embed-text", "text.onnx", "cat", "-o", "words.jsonl"][..], &templates].concat());
    let (one, other) = (vector("the cat"), vector("a cat at night"));
    let mut mean: Vec<f32> = one.iter().zip(&other).map(|(one, other)| one + other).collect();
    assert!(normalise(&mut mean));
    assert_eq!(name_of(&words(&folder), &mean), "cat");
    assert_eq!(files(&folder), ["text.onnx", "tokenizer.json", "words.jsonl"], "nothing is left over");
}

#[test]
fn words_become_an_array() {
    let folder = scratch("embed-text-array-of-words");
    texts("n", "24", I64, TOKENS).save(&folder.join("text.onnx"));
    tokenizer(&folder);
    let with_two = ["embed-text", "text.onnx", "red car", "dog=a dog", "--output", "words.npy"];
    let shown = succeed(&folder, &with_two);
    assert_eq!(text(&shown.stdout), "2 vectors of 3 numbers written to words.npy, and their names to words.txt\n");
    let filled = [&with_two[..], &["--count", "4", "--template", "one {}"]].concat();
    let shown = succeed(&folder, &filled);
    let said = "2 vectors of 3 numbers, filled up to 4, written to words.npy, and their names to words.txt\n";
    assert_eq!(text(&shown.stdout), said);
    assert_eq!(std::fs::read_to_string(folder.join("words.txt")).unwrap(), "red car\ndog\n-\n-\n");
    let bytes = std::fs::read(folder.join("words.npy")).unwrap();
    let (header, numbers) = bytes.split_at(128);
    assert!(String::from_utf8_lossy(header).contains("'shape': (1, 4, 3)"));
    let numbers: Vec<f32> = numbers.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    // What fills it up is nothing, also within a sentence.
    for (row, phrase) in numbers.chunks(3).zip(["one red car", "one a dog", "", ""]) {
        let wanted = vector(phrase);
        assert!(
            row.iter().zip(&wanted).all(|(row, wanted)| (row - wanted).abs() < 1e-6),
            "{phrase}: {row:?}, {wanted:?}"
        );
    }
    assert_eq!(files(&folder), ["text.onnx", "tokenizer.json", "words.npy", "words.txt"], "nothing is left over");
}

#[test]
fn models_of_each_form_give_the_same_vectors() {
    let folder = scratch("embed-text-forms");
    tokenizer(&folder);
    let halves = |rows: &str| {
        texts(rows, "24", I64, TOKENS)
            .without_outputs()
            .node("Cast", &["text_embeds"], &["short"], vec![int("to", F16.into())])
            .output("last_hidden_state", F32, &[rows, "24", "3"])
            .output("short", F16, &[rows, "3"])
    };
    let pooled = texts("n", "24", I64, TOKENS)
        .without_outputs()
        .node("Identity", &["text_embeds"], &["pooler_output"], vec![])
        .output("pooler_output", F32, &["n", "3"]);
    for (number, (graph, warns)) in [
        (texts("n", "n", I64, TOKENS), false),
        (texts("2", "24", I32, TOKENS), false),
        (texts("1", "24", I32, TOKENS), false),
        (halves("n"), false),
        (pooled, true),
    ]
    .into_iter()
    .enumerate()
    {
        graph.save(&folder.join("text.onnx"));
        let shown = succeed(&folder, &["embed-text", "text.onnx", "red", "green", "blue", "-o", "words.jsonl"]);
        assert_eq!(text(&shown.stderr).contains("Warning: text.onnx gives pooler_output alone"), warns, "{number}");
        let found = words(&folder);
        let names = ["red", "green", "blue"].map(|phrase| name_of(&found, &vector(phrase)));
        assert_eq!(names, ["red", "green", "blue"], "{number}");
    }
}

#[test]
fn other_backends_give_the_same_vectors() {
    let libraries = [ort::options(ort::NEWEST).map(Vec::from), openvino::options(openvino::NEWEST).map(Vec::from)];
    for options in libraries.into_iter().flatten() {
        let folder = scratch("embed-text-backends");
        tokenizer(&folder);
        for graph in [texts("n", "24", I64, TOKENS), texts("2", "24", I32, TOKENS)] {
            graph.save(&folder.join("text.onnx"));
            let infer = options.join(" ");
            let args = ["embed-text", "text.onnx", "red", "green", "blue", "-o", "words.jsonl", "--infer", &infer];
            succeed(&folder, &args);
            let found = words(&folder);
            let names = ["red", "green", "blue"].map(|phrase| name_of(&found, &vector(phrase)));
            assert_eq!(names, ["red", "green", "blue"], "{options:?}");
        }
    }
}

#[test]
fn a_tokenizer_may_lie_elsewhere() {
    let folder = scratch("embed-text-tokenizer");
    std::fs::create_dir_all(folder.join("clip/onnx")).unwrap();
    texts("n", "24", I64, TOKENS).save(&folder.join("clip/onnx/text.onnx"));
    texts("n", "24", I64, TOKENS).save(&folder.join("text.onnx"));
    tokenizer(&folder.join("clip"));
    succeed(&folder, &["embed-text", "clip/onnx/text.onnx", "cat", "-o", "words.jsonl"]);
    let named = ["embed-text", "text.onnx", "dog", "-o", "words.jsonl", "--tokenizer", "clip/tokenizer.json"];
    succeed(&folder, &named);
    assert_eq!(words(&folder).names(), ["cat", "dog"]);
    let args = ["embed-text", "text.onnx", "dog", "-o", "words.jsonl"];
    expect_failure(&run(&folder, &args), &args, &["There is no tokenizer.json next to text.onnx", "--tokenizer FILE"]);
}

/// A model whose vectors are no numbers. So many it says that they have.
fn wild(numbers: &str) -> Graph {
    texts("n", "12", I64, TOKENS)
        .without_outputs()
        .node("Log", &["last_hidden_state"], &["logs"], vec![])
        .node("Mul", &["logs", "masked"], &["products"], vec![])
        .node("ReduceMean", &["products"], &["wild"], vec![ints("axes", &[1]), int("keepdims", 0)])
        .output("wild", F32, &["n", numbers])
}

/// It is told before the model runs, as this one would give no vector. Names that are given again say nothing.
#[test]
fn a_gallery_of_another_model_is_told_before_the_work() {
    let folder = scratch("embed-text-other");
    tokenizer(&folder);
    wild("3").save(&folder.join("wild.onnx"));
    wild("numbers").save(&folder.join("open.onnx"));
    texts("n", "12", I64, TOKENS).save(&folder.join("text.onnx"));
    let other = "{\"name\": \"Ada\", \"vector\": [1, 0]}\n";
    std::fs::write(folder.join("other.jsonl"), other).unwrap();
    for (model, says) in
        [("wild.onnx", "have 2 numbers, and the new ones 3"), ("open.onnx", "open.onnx gives no vector of “dog”")]
    {
        let args = ["embed-text", model, "dog", "-o", "other.jsonl"];
        expect_failure(&run(&folder, &args), &args, &[says]);
    }
    assert_eq!(std::fs::read_to_string(folder.join("other.jsonl")).unwrap(), other);
    let shown = succeed(&folder, &["embed-text", "text.onnx", "Ada=dog", "-o", "other.jsonl"]);
    assert_eq!(text(&shown.stdout), "1 vector of 3 numbers written to other.jsonl, which has 1 vector of 1 name\n");
}

#[test]
fn what_is_wrong_is_told_and_nothing_is_written() {
    let folder = scratch("embed-text-wrong");
    tokenizer(&folder);
    texts("n", "12", I64, TOKENS).save(&folder.join("text.onnx"));
    texts("n", "12", I64, END).save(&folder.join("few.onnx"));
    embedder(&folder.join("pictures.onnx"));
    texts("n", "12", I64, TOKENS)
        .without_outputs()
        .output("last_hidden_state", F32, &["n", "12", "3"])
        .save(&folder.join("tokens.onnx"));
    texts("n", "12", I64, TOKENS).input("pixel_values", F32, &["n", "3", "8", "8"]).save(&folder.join("both.onnx"));
    texts("n", "2", I64, TOKENS).save(&folder.join("short.onnx"));
    texts("n", "12", F32, TOKENS).save(&folder.join("floats.onnx"));
    wild("3").save(&folder.join("nan.onnx"));
    std::fs::write(folder.join("other.jsonl"), "{\"name\": \"Ada\", \"vector\": [1, 0]}\n").unwrap();
    std::fs::write(folder.join("broken.jsonl"), "Ada\n").unwrap();
    std::fs::write(folder.join("bad.json"), "{}").unwrap();
    let mut padded: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
    padded["padding"] = serde_json::json!({"pad_token": "<pad>"});
    padded["added_tokens"] = serde_json::json!([{"id": TOKENS, "content": "<pad>"}]);
    std::fs::write(folder.join("padded.json"), padded.to_string()).unwrap();
    let (before, long) = (files(&folder), "a".repeat(257));
    for (args, parts) in [
        (&["text.onnx", "a dog", "one red sports car"][..], &["“one red sports car” has 17 tokens", "takes 12"][..]),
        (&["text.onnx", "dog", "--template", "a very large {}"], &["“a very large dog” has 15 tokens"]),
        (&["text.onnx", "dog 7"], &["“dog 7”: the vocabulary of its tokenizer lacks “7</w>”", "Use other words"]),
        (&["text.onnx", "a <|endoftext|>"], &["which is a token of its own"]),
        (&["text.onnx", " "], &["The phrase “ ” says nothing"]),
        (&["text.onnx", "a\u{1b}=dog"], &["the name has control characters"]),
        (&["text.onnx", &long], &["the name is longer than 256 bytes"]),
        (&["text.onnx", "dog", "--template", "a photo"], &["The template “a photo” needs {} once"]),
        (&["few.onnx", "dog"], &["makes the token 53 of “dog”, and few.onnx knows 53", "--tokenizer"]),
        (
            &["text.onnx", "dog", "--tokenizer", "padded.json"],
            &["padded.json makes the token 54 to fill texts up, and text.onnx knows 54", "--tokenizer"],
        ),
        (&["pictures.onnx", "dog"], &["pictures.onnx takes no texts: its inputs are images f32 1x3x16x16"]),
        (&["tokens.onnx", "dog"], &["tokens.onnx gives a vector of each token", "CLIPTextModelWithProjection"]),
        (&["both.onnx", "dog"], &["both.onnx has the input pixel_values f32 ?x3x8x8"]),
        (&["short.onnx", "dog"], &["short.onnx takes input_ids i64 ?x2, and tokens of a text are 3 to 4096"]),
        (&["floats.onnx", "dog"], &["The input input_ids f32 ?x12 of floats.onnx is not i64 or i32"]),
        (&["nan.onnx", "dog"], &["nan.onnx gives no vector of “dog”: some of its numbers are infinite or NaN"]),
        (&["none.onnx", "dog"], &["There is no file none.onnx"]),
        (&["text.onnx", "dog", "--tokenizer", "bad.json"], &["There is no file merges.txt"]),
        (&["text.onnx", "dog", "--tokenizer", "none.json"], &["There is no file none.json", "--tokenizer FILE"]),
        (&["text.onnx", "dog", "--count", "2"], &["--count is for arrays"]),
        (
            &["text.onnx", "dog", "--infer", "max-input-width=640 threads=1 interval=2 batch-size=4"],
            &["max-input-width, interval, batch-size have no effect in gst-trt embed-text", "Leave them out"],
        ),
    ] {
        let args = [&["embed-text", "--output", "g.jsonl"][..], args].concat();
        expect_failure(&run(&folder, &args), &args, parts);
        assert_eq!(files(&folder), before, "{args:?}");
    }
    for (output, parts) in [
        ("words.npz", &["ends in .jsonl for a gallery, or in .npy for an array"][..]),
        ("other.jsonl", &["have 2 numbers, and the new ones 3"]),
        ("broken.jsonl", &["line 1 of the gallery broken.jsonl"]),
        ("none/g.jsonl", &["Cannot write the gallery none/g.jsonl"]),
        ("none/g.npy", &["Cannot write none/g.npy", "Its folder is not there"]),
    ] {
        let args = ["embed-text", "text.onnx", "dog", "-o", output];
        expect_failure(&run(&folder, &args), &args, parts);
        assert_eq!(files(&folder), before, "{args:?}");
    }
    let args = ["embed-text", "text.onnx", "cat", "dog", "-o", "w.npy", "--count", "1"];
    expect_failure(&run(&folder, &args), &args, &["2 phrases are given, and --count is 1"]);
    for args in
        [&["embed-text", "text.onnx", "-o", "g.jsonl"][..], &["embed-text", "text.onnx", "dog"], &["embed-text"]]
    {
        assert_eq!(run(&folder, args).status.code(), Some(2), "{args:?}");
    }
    let args = ["info", "text.onnx"];
    expect_failure(&run(&folder, &args), &args, &["it has no input for a picture", "gst-trt embed-text"]);
}
