//! What README.md shows of the examples is what the examples say, and they run.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{launch, path, scratch, shapes};

/// Lines without their common indentation.
fn dedented(text: &str) -> String {
    let indent =
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len()).min();
    text.lines().map(|line| line.get(indent.unwrap_or(0)..).unwrap_or("")).collect::<Vec<_>>().join("\n")
}

#[test]
fn readme_shows_the_examples_as_they_are() {
    let readme = std::fs::read_to_string(path("README.md")).unwrap();
    for (example, begin, end) in [
        ("examples/detections.rs", "    // README: begin\n", "    // README: end"),
        ("examples/detections.py", "# README: begin\n", "# README: end"),
        ("examples/detections.c", "  /* README: begin */\n", "  /* README: end */"),
        ("examples/session.rs", "    // README: begin\n", "    // README: end"),
        ("examples/session.py", "# README: begin\n", "# README: end"),
        ("examples/session.c", "  /* README: begin */\n", "  /* README: end */"),
    ] {
        let source = std::fs::read_to_string(path(example)).unwrap();
        let shown = source.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).unwrap().0;
        assert!(readme.contains(dedented(shown).trim_end()), "README.md does not show {example} as it is");
    }
}

/// Runs an example on the sample clip with our plugin, as built beside this test.
fn run(language: &str, program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    let target = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_path_buf();
    let folder = scratch(&format!("readme-{language}"));
    let clip = folder.join("clip.mp4").display().to_string();
    launch(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! identity eos-after=30 ! mp4mux ! filesink location={clip}",
        path("tests/data/sample.mp4")
    ))
    .expect_success();
    Command::new(program.as_ref())
        .args(arguments)
        .args([clip, shapes()])
        .env("GST_PLUGIN_PATH", &target)
        .env("GST_REGISTRY", folder.join("registry.bin"))
        .output()
        .unwrap()
}

#[track_caller]
fn expect_detections(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() > 60, "each of 30 frames has several objects: {text}");
    assert!(lines.iter().all(|line| line.starts_with("disc 0.") || line.starts_with("box 0.")), "{text}");
}

#[test]
fn the_python_example_runs() {
    // Debian's own interpreter is the one that has GStreamer's bindings.
    expect_detections(&run("python", "/usr/bin/python3", &[&path("examples/detections.py")]));
}

#[test]
fn the_c_example_runs() {
    let program = scratch("readme-c-program").join("detections");
    let flags =
        Command::new("pkg-config").args(["--cflags", "--libs", "gstreamer-app-1.0", "gstreamer-video-1.0"]).output();
    let flags = String::from_utf8(flags.unwrap().stdout).unwrap();
    let built = Command::new("cc")
        .arg(path("examples/detections.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    expect_detections(&run("c", program, &[]));
}

#[test]
fn the_rust_example_runs() {
    let target = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_path_buf();
    expect_detections(&run("rust", target.join("examples/detections"), &[]));
}
