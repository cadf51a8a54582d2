// SPDX-License-Identifier: MPL-2.0
//! First configurations: `gst-trt init`, by answers, and `gst-trt import`, of DeepStream's files.

mod common;
#[path = "way_in/import.rs"]
mod import;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use common::{command, files, sample, scratch, shapes, succeed, text};

/// Runs `init`, with these lines as answers.
fn answered(folder: &Path, args: &[&str], answers: &str) -> std::process::Output {
    let mut command = command(folder);
    command.arg("init").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn three_answers_make_a_configuration_that_is_right() {
    let folder = scratch("init");
    std::os::unix::fs::symlink(shapes(), folder.join("m.onnx")).unwrap();
    std::os::unix::fs::symlink(sample(), folder.join("clip.mp4")).unwrap();
    // A wrong answer is asked for again, and none takes what is proposed.
    let output = answered(&folder, &[], "rtsp//camera\nclip.mp4\nno.onnx\nm.onnx\n\n");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("begins with rtsp://") && said.contains("There is no file no.onnx."), "{said}");
    assert!(text(&output.stdout).contains("Wrote config.toml."), "{}", text(&output.stdout));
    let written = std::fs::read_to_string(folder.join("config.toml")).unwrap();
    assert!(written.contains(&format!("location = \"{}\"", folder.join("{source}.jsonl").display())), "{written}");
    assert!(written.contains("\n# loop = true "), "{written}");
    succeed(&folder, &["serve", "--check", "config.toml"]);
    // All that it proposes is right, too.
    let proposed: String = written
        .lines()
        .map(|line| {
            line.strip_prefix("# ").filter(|rest| rest.starts_with('[') || rest.contains(" = ")).unwrap_or(line)
        })
        .filter(|line| ["password-file", "token-file", "batch-size"].iter().all(|key| !line.contains(key)))
        .map(|line| line.to_string() + "\n")
        .collect();
    let zones = r#"{"tripwires": [{"id": "gate", "points": [[0.5, 0], [0.5, 1]]}]}"#;
    std::fs::write(folder.join("zones.json"), zones).unwrap();
    std::fs::write(folder.join("all.toml"), &proposed).unwrap();
    succeed(&folder, &["serve", "--check", "all.toml"]);
    // For scripts.
    let args = [
        "--source",
        "rtsp://me:h${u}sh@camera/1",
        "--source",
        "clip.mp4",
        "--model",
        "m.onnx",
        "--results",
        "-",
        "--output",
        "b.toml",
    ];
    let output = answered(&folder, &args, "");
    assert!(output.status.success() && !text(&output.stderr).contains('?'), "{}", text(&output.stderr));
    succeed(&folder, &["serve", "--check", "b.toml"]);
    // A camera by its number, whether it is there or not.
    let args = ["--source", "99", "--model", "m.onnx", "--results", "-", "--output", "c.toml"];
    let output = answered(&folder, &args, "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(folder.join("c.toml")).unwrap();
    assert!(written.contains("address = \"/dev/video99\"") && !written.contains("# loop"), "{written}");
    assert_eq!(folder.join("b.toml").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_an_answer_nothing_is_written() {
    let folder = scratch("init-none");
    std::os::unix::fs::symlink(shapes(), folder.join("m.onnx")).unwrap();
    for (args, answers, said) in [
        (&[][..], "", "There is no answer. Give it with --source."),
        (&["--source", "a.mp4"], "\n", "There is no answer. Give it with --model."),
        (&["--source", "xyz://a", "--model", "m.onnx", "--results", "-"], "", "no element here for such an address"),
        (&["--source", "a.mp4", "--model", "m.onnx", "--results", "mqt://h/t"], "", "nothing is known about mqt://"),
        (
            &["--source", "a.mp4", "--model", "m.onnx", "--results", "mqt://h/t"],
            "",
            "config.toml was not written: change --source, --model or --results.",
        ),
        (
            &["--source", "a.mp4", "--source", "b.mp4", "--model", "m.onnx", "--results", "out/x.jsonl"],
            "",
            "out/x.jsonl cannot be the file of several sources. Give --results with their names in it: out/x-{source}.jsonl.",
        ),
        (
            &["--source", "a.mp4", "--source", "b.mp4", "--model", "m.onnx"],
            "x.jsonl\n",
            "Give --results with their names in it: x-{source}.jsonl.",
        ),
    ] {
        let output = answered(&folder, args, answers);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains(said), "{args:?}: {stderr}");
        assert_eq!(files(&folder), ["m.onnx"]);
    }
}
