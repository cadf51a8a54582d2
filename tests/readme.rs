// SPDX-License-Identifier: MPL-2.0
//! What README.md and docs say: launch lines run, examples are shown as they are, links lead somewhere, every page is
//! in the book, and the figures are those of tests/bench/figures.json. tests/reference.rs has the pages in docs/reference.
//! And what forges run and ask.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::boxes::{actions, embedder, open_embedder, reader, steps, text_map};
use crate::common::elements::ELEMENTS;
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, path, quick_shapes, run, scratch};
use gst::prelude::*;

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

/// The pages in docs.
fn book() -> Vec<PathBuf> {
    ["docs", "docs/elements", "docs/tasks", "docs/reference"]
        .into_iter()
        .flat_map(|folder| files(folder, "md"))
        .collect()
}

/// README.md, the other pages next to it, and those in docs.
fn pages() -> Vec<PathBuf> {
    files(".", "md").into_iter().chain(book()).collect()
}

// ------------------------------------------------------------------------------------------- examples

/// Lines without their common indentation.
fn dedented(text: &str) -> String {
    let indent =
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len()).min();
    text.lines().map(|line| line.get(indent.unwrap_or(0)..).unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Where the n-th block of code of a language lies in a page.
fn block(text: &str, language: &str, n: usize) -> std::ops::Range<usize> {
    let fence = format!("```{language}\n");
    let begin =
        text.match_indices(&fence).nth(n).unwrap_or_else(|| panic!("no block {n} of {language}")).0 + fence.len();
    begin..begin + text[begin..].find("```").unwrap()
}

/// `UPDATE_SNAPSHOT=1` takes the examples over into the pages.
#[test]
fn pages_show_the_examples_as_they_are() {
    for (page, language, n, example, comment) in [
        ("docs/library.md", "python", 0, "examples/detections.py", "#"),
        ("docs/library.md", "python", 1, "examples/events.py", "#"),
        ("docs/library.md", "rust", 0, "examples/detections.rs", "//"),
        ("docs/library.md", "c", 0, "examples/detections.c", "/*"),
        ("docs/library.md", "rust", 1, "examples/session.rs", "//"),
        ("docs/library.md", "c", 1, "examples/session.c", "/*"),
        ("docs/tasks/results.md", "python", 0, "examples/crops.py", "#"),
        ("docs/extending.md", "rust", 0, "core/src/heads/yolo_nas.rs", "//"),
    ] {
        let mut text = std::fs::read_to_string(path(page)).unwrap();
        let source = std::fs::read_to_string(path(example)).unwrap();
        // What stands between two marks, else the whole file.
        let shown = source.split_once(&format!("{comment} README: begin")).map_or(&*source, |(_, rest)| {
            let (shown, _) = rest.split_once(&format!("{comment} README: end")).unwrap();
            shown.split_once('\n').unwrap().1
        });
        let shown = format!("{}\n", dedented(shown).trim_end());
        let block = block(&text, language, n);
        if std::env::var_os("UPDATE_SNAPSHOT").is_some() {
            text.replace_range(block, &shown);
            std::fs::write(path(page), text).unwrap();
        } else {
            assert_eq!(text[block], shown, "{page} does not show {example} as it is");
        }
    }
}

/// The page has each function of C and each item of Rust in code.
#[test]
fn the_page_on_the_library_names_all_of_it() {
    let page = std::fs::read_to_string(path("docs/library.md")).unwrap();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = page.split('`').skip(1).step_by(2).flat_map(|code| code.split(|c| !is_part(c)));
    let named: HashSet<&str> = code.collect();
    let header = std::fs::read_to_string(path("capi/include/gsttrt.h")).unwrap();
    let functions = header.split(|c| !is_part(c)).filter(|word| word.starts_with("gst_trt_"));
    let api = std::fs::read_to_string(path("tests/api.txt")).unwrap();
    let items = api.lines().filter_map(|line| line.split_once(": ")).map(|(path, _)| path);
    let items = items.filter(|path| path.starts_with("gsttrt_core::") || path.starts_with("gsttrt::"));
    let all: HashSet<&str> = functions.chain(items.filter_map(|path| path.rsplit("::").next())).collect();
    let mut missing: Vec<&&str> = all.difference(&named).collect();
    missing.sort();
    assert!(all.len() > 120 && missing.is_empty(), "docs/library.md does not name {missing:?}, of {}", all.len());
}

// ------------------------------------------------------------------------------------------- pages

/// Targets of links to files of this repository, without those in code.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|prose| prose.split("](").skip(1)).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_string()).filter(|target| !target.contains("://")).collect()
}

/// As forges make it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut seen = 0;
    let ledger = PathBuf::from(path("tests/bench/FIGURES.md"));
    for page in pages().into_iter().chain([ledger]) {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in links(&text) {
            let (file, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(file.exists(), "{}: there is no {target}", page.display());
            if !fragment.is_empty() {
                let text = std::fs::read_to_string(&file).unwrap();
                let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
                assert!(headings.any(|heading| heading == fragment), "{}: there is no {target}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn the_readme_is_short() {
    let text = std::fs::read_to_string(path("README.md")).unwrap();
    assert!(text.lines().count() <= 200, "what is longer belongs in docs: {}", text.lines().count());
    assert_eq!(text.matches(".svg)").count(), 1, "one plot");
    let figures = text.lines().skip_while(|line| !line.starts_with("| figure |")).skip(2);
    let figures = figures.take_while(|line| line.starts_with("| ")).count();
    assert!((1..=8).contains(&figures), "{figures} figures");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = std::fs::read_to_string(path("docs/SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    let mut there: Vec<String> =
        book().iter().map(|page| page.display().to_string().replace(&path("docs/"), "")).collect();
    there.retain(|page| page != "SUMMARY.md");
    listed.sort();
    there.sort();
    assert_eq!(listed, there);
}

#[test]
fn pictures_are_small_and_shown() {
    let text: String = pages().iter().map(|page| std::fs::read_to_string(page).unwrap()).collect();
    for picture in files("docs/images", "jpg").into_iter().chain(files("docs/images", "svg")) {
        let name = picture.file_name().unwrap().to_str().unwrap();
        assert!(std::fs::metadata(&picture).unwrap().len() <= 60 * 1024, "{name} is above 60 KiB");
        assert!(text.contains(&format!("images/{name})")), "no page shows {name}");
    }
}

/// Each line that a reader is told to type is run by a test, or is listed here with the reason why not.
#[test]
fn commands_are_run_by_tests() {
    let known = [
        "gst-launch-1.0 ",                      // below
        "gst-trt ",                             // gst-trt/tests/docs.rs and serve.rs
        "curl --fail",                          // gst-trt/src/serve/http/tests/pages.rs
        "/usr/bin/python3 examples/crops.py",   // tests/examples.rs
        "python3 examples/words.py",            // the same
        "/usr/bin/python3 examples/events.py",  // the same
        "/usr/bin/python3 examples/session.py", // tests/capi
        "pipelines/detect.sh",                  // tests/run.sh
        "tests/",
        "python3 tests/bench/endure", // takes two hours
        "gst-inspect-1.0 trt",        // tests/install.sh
        "cargo ",                     // tests/run.sh and tests/install.sh, with other folders
        "packaging/arm64.sh",         // tests/run.sh
        "packaging/deb.sh",           // tests/packages.sh
        "packaging/man.sh ",          // gst-trt/tests/packaging.rs
        "packaging/release.sh",       // tests/run.sh, and tests/release.py without a build
        "packaging/versions.py",      // tests/release.py
        "GST_TRT_DEB=",               // tests/packages.sh, which builds it else
        "GST_TRT_WHEEL=",             // python/test.sh, likewise
        "python/build.sh",            // python/test.sh
        "python -m gsttrt ",          // python/tests, by module
        "python -m gsttrt.ray ",      // python/tests/test_ray.py
        "ray start ",                 // needs more machines
        "eval \"$(python -m gsttrt env)\"",
        "cc session.c",
        "cc examples/session.c ",           // tests/capi, with other folders
        "sudo apt install",                 // tests/packages.sh
        "sudo gst-trt serve --check /etc/", // the same
        // They need systemd, and change the machine.
        "sudo install ",
        "sudo systemctl ",
        "sudo systemd-sysusers ",
        "journalctl ",
        "podman ",    // needs a network
        "helm ",      // needs a cluster; tests/kubernetes renders the chart with the values of the page
        "kubectl ",   // the same
        "git clone ", // the same
        "git tag ",   // the same
        "git push ",  // the same
        "mkdir -p ~/",
        "pip install", // the same
        "yolo ",       // the same; tests/zoo exports
        "export GST_PLUGIN_PATH=",
        "while true; do",
        "sleep 2",
        "done",
        "rustup target add ", // needs a network
        "python3 -m venv ",
        ". ~/trt/bin/activate",
        // CONTRIBUTING.md: for the machines and the hours that these take.
        "REQUIRE_GPU=1 ",
        "FUZZ_SECONDS=",
        "HOSTILE_FILES=",
        "LIFE_SCRIPTS=",
        "LIFE_PIPELINES=",
        "MIRIFLAGS=",
        "TSAN_OPTIONS=",
        "export RUSTFLAGS=",
    ];
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        for block in text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            for line in block.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let is_known = known.iter().any(|known| line.starts_with(known));
                assert!(is_known, "{}: no test runs this: {line}", page.display());
            }
        }
    }
}

#[test]
fn the_figures_are_those_of_the_file() {
    let output = Command::new("python3").args([&path("tests/bench/figures.py"), "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn coding_agents_read_what_the_pages_say() {
    let output = Command::new("python3").args([&path("docs/agents.py"), "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

// ------------------------------------------------------------------------------------------- forges

/// What a forge runs, anybody can run: of the files here, its workflows name these commands and no others.
#[test]
fn forges_run_what_anybody_can_run() {
    let known: [(&str, &[&str]); 3] = [
        (".github/workflows/ci.yml", &[".ci/run"]),
        (".github/workflows/full.yml", &["tests/run.sh full"]),
        (".gitlab-ci.yml", &[".ci/run", "tests/run.sh full"]),
    ];
    for (workflow, expected) in known {
        let text = std::fs::read_to_string(path(workflow)).unwrap();
        let lines = text.lines().map(|line| line.trim().trim_start_matches("- ").trim_start_matches("run: "));
        let is_ours = |word: &str| word.contains('/') && Path::new(&path(word)).is_file();
        let runs = |line: &&str| {
            !line.starts_with('#') && (line.starts_with("cargo ") || line.split_whitespace().any(is_ours))
        };
        assert_eq!(lines.filter(runs).collect::<Vec<_>>(), expected, "{workflow}");
    }
    assert_eq!(files(".github/workflows", "yml").len(), 2, "a workflow that is not in the list above");
}

#[test]
fn forges_ask_the_same_of_a_change() {
    let [github, gitlab] = [".github/pull_request_template.md", ".gitlab/merge_request_templates/Default.md"]
        .map(|template| std::fs::read_to_string(path(template)).unwrap());
    assert_eq!(github, gitlab);
}

// ------------------------------------------------------------------------------------------- launch lines

/// The launch lines in the pages, in the documentation of the elements and in the scripts, each with its file.
fn documented() -> Vec<(String, String)> {
    let modules = ELEMENTS.map(|element| path(&format!("src/{element}/mod.rs")).into());
    let mut lines = Vec::new();
    for file in pages().into_iter().chain(modules).chain(files("pipelines", "sh")) {
        let text = std::fs::read_to_string(&file).unwrap().replace("\\\n", " ");
        let plain = |line: &str| line.trim_start_matches("//!").trim_start_matches(['#', '$', ' ']).to_string();
        let found = text.lines().map(|line| plain(line.trim())).filter(|line| line.starts_with("gst-launch-1.0 "));
        lines.extend(found.map(|line| (file.display().to_string(), line)));
    }
    lines
}

/// The words behind gst-launch-1.0 and its options.
fn words(line: &str) -> Vec<String> {
    let words = gst::glib::shell_parse_argv(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let words = words.into_iter().map(|word| word.into_string().unwrap()).skip(1);
    words.filter(|word| !word.starts_with('-')).collect()
}

/// What stands here for an element of nvcodec: it takes the same place, and the same pads and properties where those
/// are set.
fn stand_in(element: &str) -> Option<&'static str> {
    Some(match element {
        "nvh264dec" => "avdec_h264",
        "nvh264enc" => "x264enc",
        "cudacompositor" => "compositor",
        "cudaupload" | "cudadownload" => "identity",
        _ => return None,
    })
}

/// What stands for what the reader has, made in that folder: any file and any RTSP camera is the sample clip, any model
/// the one in tests/models with its labels, but `reid.onnx`, `arcface.onnx` and `vision_model.onnx` ones that give vectors,
/// `lines.onnx`, `turns.onnx` and `reader.onnx` such that find, turn and read text, `actions.onnx` one of clips, `steps.onnx` one of
/// vectors, any gallery one of two names, any
/// configuration of zones that of the page, any other camera a test picture; any screen and any file to write is a fakesink. Five frames are enough. Where batches are asked for, the
/// detector takes them. Elements of a GPU are those of the CPU.
fn substituted(line: &str, folder: &Path) -> Vec<String> {
    let words = words(line);
    let batches = words.iter().any(|word| word.starts_with("batch-size="));
    let model = if batches { batched(folder) } else { quick_shapes() };
    let mut out: Vec<String> = Vec::new();
    let mut element = String::new();
    for word in words {
        if out.last().is_none_or(|last| last == "!") || !word.contains('=') {
            element.clone_from(&word);
        }
        let (name, value) = word.split_once('=').unwrap_or((&word, ""));
        match (element.as_str(), name) {
            (_, "!") => out.push(word),
            (gpu, name) if gpu == name && (gpu.starts_with("nv") || gpu.starts_with("cuda")) => {
                out.push(stand_in(gpu).unwrap_or_else(|| panic!("{gpu} has no stand-in: {line}")).into());
            }
            (_, "autovideosink" | "filesink" | "multifilesink") => out.push("fakesink".into()),
            ("autovideosink", "sync") => out.push(word),
            ("filesink" | "multifilesink", _) => {}
            ("v4l2src", "v4l2src") => out.push("videotestsrc".into()),
            ("v4l2src", _) => {}
            ("rtspsrc", "rtspsrc") => {
                out.extend(["filesrc".into(), format!("location={}", path("tests/data/sample.mp4"))]);
            }
            ("rtspsrc", _) => {}
            ("multifilesrc", "location") => out.push(format!("location={}", images(folder))),
            ("filesrc", "location") => out.push(format!("location={}", path("tests/data/sample.mp4"))),
            (_, "uri") => out.push(format!("uri=file://{}", path("tests/data/sample.mp4"))),
            ("trtpreprocess", "trtpreprocess") => {
                out.extend(["identity", "eos-after=6", "!", "trtpreprocess"].map(String::from));
            }
            ("trtinfer", "input-values") => {} // the model has no other input
            ("trtinfer", "model-file") if ["reid.onnx", "arcface.onnx"].contains(&value) => {
                out.push(format!("model-file={}", embedder(folder, "1")));
            }
            ("trtinfer", "model-file") if value == "vision_model.onnx" => {
                out.push(format!("model-file={}", open_embedder(folder)));
            }
            ("trtinfer", "model-file") if value == "lines.onnx" => {
                out.push(format!("model-file={}", text_map(0.25).save(&folder.join("lines.onnx"))));
            }
            ("trtinfer", "model-file") if value == "turns.onnx" => {
                let graph = Graph::new().input("images", F32, &["1", "3", "16", "64"]);
                let file = graph.constant("turns", &[1, 2], &[-4.0, 4.0]).save(&folder.join("turns.onnx"));
                out.push(format!("model-file={file}"));
            }
            ("trtinfer", "model-file") if value == "actions.onnx" => {
                out.push(format!("model-file={}", actions(folder)));
            }
            ("trtinfer", "model-file") if value == "steps.onnx" => {
                out.push(format!("model-file={}", steps(folder, ["1", "2", "3"])));
            }
            ("trtinfer", "model-file") if value == "reader.onnx" => {
                out.push(format!("model-file={}", reader(folder)));
            }
            ("trtinfer", "model-file") => out.push(format!("model-file={model}")),
            // Another line may run at the same time, and has files of its own.
            ("trtinfer", "shared-model") => out.push(format!("{word}-{}", folder.display())),
            ("trtpublish", "location") if value == "sei:" => out.push(word),
            ("trtpublish", "location") => out.push(format!("location={}", folder.join("results.jsonl").display())),
            ("trtpublish", "password-file") => {}
            ("trtnms", "layout-file") => out.push(format!("layout-file={}", path("tests/layouts/yolov5.toml"))),
            ("trtnms", "label-file") => out.push(format!("label-file={}", labels(folder))),
            ("trtmatch", "gallery") => out.push(format!("gallery={}", gallery(folder))),
            ("trtanalytics", "config-file") => out.push(format!("config-file={}", zones(folder, value))),
            ("trtnms", "classes" | "class-thresholds") | ("trtoverlay", "blur" | "pixelate") => {
                let value = value.replace("person", "disc").replace("car", "box").replace("face", "box");
                out.push(format!("{name}={value}"));
            }
            _ => out.push(word),
        }
    }
    out
}

fn batched(folder: &Path) -> String {
    Graph::load(&quick_shapes()).with_batch("n").save(&folder.join("shapes.onnx"))
}

fn labels(folder: &Path) -> String {
    let file = folder.join("labels.txt");
    std::fs::write(&file, "disc\nbox\n").unwrap();
    file.display().to_string()
}

fn gallery(folder: &Path) -> String {
    let file = folder.join("people.jsonl");
    let line = |name: &str, vector: &str| format!("{{\"name\": \"{name}\", \"vector\": {vector}}}\n");
    std::fs::write(&file, line("Ada", "[1, 0, 0]") + &line("Bob", "[0, 1, 1]")).unwrap();
    file.display().to_string()
}

/// The configuration of zones that docs/elements/trtanalytics.md shows, or a file for DeepStream's nvdsanalytics.
fn zones(folder: &Path, name: &str) -> String {
    let text = if name.ends_with(".json") {
        let page = std::fs::read_to_string(path("docs/elements/trtanalytics.md")).unwrap();
        page[block(&page, "json", 0)].replace("\"person\"", "\"disc\"")
    } else {
        "[property]\nconfig-width=640\nconfig-height=480\n\
                  [line-crossing-stream-0]\nenable=1\nline-crossing-Exit=100;100;200;100;150;50;150;300\n"
            .into()
    };
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// A folder of pictures with numbers from 1.
fn images(folder: &Path) -> String {
    let pattern = folder.join("%04d.jpg").display().to_string();
    launch(&format!("videotestsrc num-buffers=3 ! jpegenc ! multifilesink index=1 location={pattern}"))
        .expect_success();
    pattern
}

/// Runs every second launch line, so that two tests share them. Lines that come to the same are run once.
fn run_half(half: usize) {
    crate::common::init();
    let lines = documented();
    assert!(lines.len() >= 40, "README.md and docs have more: {lines:?}");
    let mut seen = HashSet::new();
    for (number, (file, line)) in lines.into_iter().enumerate() {
        if line.contains("onvif") && gst::ElementFactory::find("relationmeta2onvifmeta").is_none() {
            println!("SKIP: there is no relationmeta2onvifmeta, which tests/compat.sh builds, for {line}");
            continue;
        }
        // One sends to the other: tests/unixfd.rs runs both.
        if line.contains("unixfd") {
            continue;
        }
        let folder = scratch(&format!("readme-{half}-{number}"));
        let substituted = substituted(&line, &folder);
        let parse = |words: &[String]| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            gst::parse::launchv(&words).unwrap_or_else(|error| panic!("{file}: {line}: {error}"))
        };
        // As it stands, too: what stands for a camera does not have its properties. Nvcodec's elements are there only
        // with a GPU.
        let words = words(&line);
        if number % 2 == half && !words.iter().any(|word| stand_in(word).is_some()) {
            parse(&words);
        }
        let is_new = seen.insert(substituted.join(" ").replace(&folder.display().to_string(), ""));
        if is_new && seen.len() % 2 == half {
            println!("{file}: {}", substituted.join(" "));
            // How well five frames are compressed is nobody's concern.
            let quick = |word: String| {
                let preset = (word == "x264enc").then(|| "speed-preset=ultrafast".to_string());
                [Some(word), preset].into_iter().flatten()
            };
            let words: Vec<String> = substituted.into_iter().flat_map(quick).collect();
            run(&parse(&words).downcast().unwrap()).expect_success();
        }
    }
}

#[test]
fn launch_lines_in_the_documentation_run() {
    run_half(0);
}

#[test]
fn the_other_launch_lines_in_the_documentation_run() {
    run_half(1);
}

#[test]
fn launch_lines_are_substituted_as_documented() {
    crate::common::init();
    let folder = scratch("readme-substituted");
    let (sample, model) = (path("tests/data/sample.mp4"), quick_shapes());
    let batched = folder.join("shapes.onnx").display().to_string();
    for (line, expected) in [
        (
            "gst-launch-1.0 -e filesrc location=street.mp4 ! decodebin ! trtpreprocess resize=stretch ! trtinfer model-file=yolo11n.onnx \
             ! trtnms 'classes=person, car' ! x264enc ! filesink location=out.mp4",
            format!(
                "filesrc location={sample} ! decodebin ! identity eos-after=6 ! trtpreprocess resize=stretch ! trtinfer model-file={model} \
                 ! trtnms classes=disc, box ! x264enc ! fakesink"
            ),
        ),
        (
            "gst-launch-1.0 v4l2src device=/dev/video0 ! autovideosink sync=false",
            "videotestsrc ! fakesink sync=false".into(),
        ),
        (
            "gst-launch-1.0 rtspsrc location=rtsp://a latency=100 ! decodebin ! multifilesink location=%d.jpg",
            format!("filesrc location={sample} ! decodebin ! fakesink"),
        ),
        (
            "gst-launch-1.0 multifilesrc location=b/%d.jpg start-index=1 ! jpegdec ! fakesink",
            format!("multifilesrc location={}/%04d.jpg start-index=1 ! jpegdec ! fakesink", folder.display()),
        ),
        (
            "gst-launch-1.0 cudacompositor name=c sink_1::xpos=9 ! nvh264enc ! fakesink videotestsrc ! c.sink_1",
            "compositor name=c sink_1::xpos=9 ! x264enc ! fakesink videotestsrc ! c.sink_1".into(),
        ),
        (
            "gst-launch-1.0 videotestsrc ! trtinfer batch-size=2 model-file=m.onnx ! filesink location=a v4l2src device=b ! fakesink",
            format!("videotestsrc ! trtinfer batch-size=2 model-file={batched} ! fakesink videotestsrc ! fakesink"),
        ),
    ] {
        assert_eq!(substituted(line, &folder).join(" "), expected);
    }
}
