// SPDX-License-Identifier: MPL-2.0
//! Every command of the program in the pages runs.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::kserve_server::{FakeServer, answers, served};
use common::models::{TOKENS, embedder, inner, open_embedder, texts, tokenizer};
use common::onnx::I64;
use common::{command, path, picture, quantizer, sample, scratch, shapes, text};

/// The pages that show how to call it.
const PAGES: [&str; 14] = [
    "README.md",
    "docs/archives.md",
    "docs/install.md",
    "docs/kserve.md",
    "docs/layout-file.md",
    "docs/models.md",
    "docs/program.md",
    "docs/ultralytics.md",
    "docs/tasks/anything.md",
    "docs/tasks/own-model.md",
    "docs/tasks/precision.md",
    "docs/tasks/results.md",
    "docs/tasks/sources.md",
    "docs/tasks/who.md",
];

/// Their commands are run by tests/serve.rs, with the configurations that they show.
const SERVICE: [&str; 2] = ["docs/serve.md", "docs/tasks/service.md"];

fn before<'a>(line: &'a str, end: &str) -> &'a str {
    line.split_once(end).map_or(line, |(line, _)| line)
}

/// The lines that call the program, without what a comment adds, and without redirections. What several pages show is there once.
fn documented() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for page in PAGES {
        let page = std::fs::read_to_string(path(page)).unwrap().replace("\\\n", " ");
        for block in page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            let lines = block.lines().map(|line| [" #", " > "].iter().fold(line, |line, end| before(line, end)).trim());
            for line in lines.filter(|line| line.starts_with("gst-trt ")) {
                let words = gst::glib::shell_parse_argv(line).unwrap();
                let words = words.into_iter().skip(1).map(|word| word.into_string().unwrap()).collect();
                found.insert(line.to_string(), words);
            }
        }
    }
    found
}

/// What the reader has: a video, a folder of photos, a model.
fn furnish(folder: &Path) {
    std::os::unix::fs::symlink(sample(), folder.join("street.mp4")).unwrap();
    for model in ["yolo11n.onnx", "mine.onnx", "best.onnx", "best-int8.onnx"] {
        std::fs::copy(shapes(), folder.join(model)).unwrap(); // a copy of it may be written over
    }
    std::os::unix::fs::symlink(path("tests/models/shapes-cls.onnx"), folder.join("colors.onnx")).unwrap();
    embedder(&folder.join("reid.onnx"));
    embedder(&folder.join("arcface.onnx"));
    open_embedder(&folder.join("vision_model.onnx"));
    inner(&folder.join("faces.onnx"), "face");
    texts("n", "77", I64, TOKENS).save(&folder.join("text_model.onnx"));
    tokenizer(folder);
    std::fs::write(folder.join("people.jsonl"), "{\"name\": \"Ada\", \"vector\": [1, 0, 0]}\n").unwrap();
    std::fs::create_dir_all(folder.join("archive/hall")).unwrap();
    std::os::unix::fs::symlink(sample(), folder.join("archive/hall/1.mp4")).unwrap();
    std::fs::create_dir(folder.join("photos")).unwrap();
    picture(&folder.join("photos/1.jpg"), 320, 180);
    picture(&folder.join("photos/2.jpg"), 200, 200);
    std::fs::create_dir_all(folder.join("people/Ada")).unwrap();
    picture(&folder.join("people/Ada/1.jpg"), 320, 180);
    picture(&folder.join("people/Bob.jpg"), 200, 200);
    std::fs::write(
        folder.join("deepstream_app_config.txt"),
        "[source0]\nuri=rtsp://camera/1\n[primary-gie]\nconfig-file=config_infer.txt\n",
    )
    .unwrap();
    std::fs::write(folder.join("config_infer.txt"), "[property]\nonnx-file=best.onnx\n").unwrap();
    std::fs::create_dir(folder.join("bin")).unwrap();
    quantizer(&folder.join("bin/python3"), &shapes());
}

/// No page that shows how to call it is left out above.
#[test]
fn pages_with_commands_are_known() {
    for folder in ["docs", "docs/elements", "docs/tasks"] {
        for page in std::fs::read_dir(path(folder)).unwrap().map(|page| page.unwrap().path()) {
            let shown = page.display().to_string().replace(&path(""), "");
            let is_run = SERVICE.iter().chain(&PAGES).any(|page| *page == shown);
            if page.extension().is_some_and(|ending| ending == "md") && !is_run {
                let text = std::fs::read_to_string(&page).unwrap();
                assert!(
                    !text.lines().any(|line| line.starts_with("gst-trt ")),
                    "{shown} shows commands: add it to PAGES"
                );
            }
        }
    }
}

#[test]
fn commands_in_the_pages_run() {
    let commands = documented();
    for name in ["detect", "info", "build", "quantize", "bench", "enrol", "embed-text", "init", "import", "doctor"] {
        assert!(commands.values().any(|words| words.first().is_some_and(|word| word == name)), "{name}: {commands:?}");
    }
    let furnished = scratch("docs-furnished");
    furnish(&furnished);
    let server = FakeServer::start(answers(served("yolo11n", &shapes())));
    for (number, (line, mut words)) in commands.into_iter().enumerate() {
        let folder = scratch(&format!("docs-{number}"));
        assert!(Command::new("cp").arg("-a").arg(furnished.join(".")).arg(&folder).status().unwrap().success());
        // What needs a GPU or a screen fails here as documented; the others in a short time.
        let needs_gpu = words[0] == "build" || words.iter().any(|word| word == "--gpu");
        let needs_screen = words.iter().any(|word| word.starts_with("--show"));
        match words[0].as_str() {
            "detect" if !words.iter().any(|word| word == "--frames") => {
                words.extend(["--frames", "2"].map(String::from))
            }
            "bench" => {
                words.retain(|word| word != "--duration" && word != "10");
                // Which no stream keeps to, so that one is tried.
                words.iter_mut().filter(|word| word.starts_with("p99=")).for_each(|word| *word = "p99=0.01ms".into());
                words.extend(["--duration", "0.1"].map(String::from));
            }
            _ => {}
        }
        for word in &mut words {
            if word.starts_with("grpc://") {
                *word = server.address("yolo11n");
            }
            if word.starts_with("score-threshold=") {
                *word = word.replace("person", "disc");
            }
        }
        // Where the quantizer is not installed, one that copies the model takes its place; quantize.rs tests what it makes.
        let search = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
        let output =
            command(&folder).args(&words).env("CUDA_VISIBLE_DEVICES", "").env("PATH", search).output().unwrap();
        let status = if needs_gpu || needs_screen { Some(1) } else { Some(0) };
        assert_eq!(output.status.code(), status, "{line}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}
