// SPDX-License-Identifier: MPL-2.0
//! examples/streaming as a program: what was sent in chunks is what the model sees.

use std::process::{Command, Output, Stdio};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");

/// `cargo test` and `cargo nextest` build examples along with the tests; a run of this file alone may have to make it first.
fn program() -> Command {
    let program = std::env::current_exe().unwrap().parent().unwrap().join("../examples/streaming");
    if !program.exists() {
        let built =
            Command::new(env!("CARGO")).args(["build", "--package=gsttrt-streaming", "--example=streaming"]).status();
        assert!(built.unwrap().success());
    }
    Command::new(program)
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

#[test]
fn the_example_finds_the_disc_in_every_tensor() {
    let output = run(&[MODEL]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 5, "{text}");
    for (sequence, line) in text.lines().enumerate() {
        let found = line.strip_prefix(&format!("tensor {sequence}: images f32 1x3x512x512, disc 0."));
        let place =
            found.and_then(|found| found.split_once(" at (")?.1.strip_suffix(')')?.split_once(", ")).expect(line);
        let (x, y): (i32, i32) = (place.0.parse().unwrap(), place.1.parse().unwrap());
        let right = 128 + 51 * sequence as i32; // as the sender draws it
        assert!((x - right).abs() < 4 && (y - 256).abs() < 4, "{line}");
    }
}

/// As with `| head -n 1`, whose reader leaves first.
#[test]
fn the_example_ends_silently_without_a_reader() {
    let mut child = program().arg(MODEL).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn the_example_says_what_is_wrong() {
    let output = run(&["/nowhere.onnx"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("There is no model file /nowhere.onnx"), "{error}");
}
