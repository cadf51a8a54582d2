// SPDX-License-Identifier: MPL-2.0
//! `gst-trt quantize`: what a copy costs, which copies are kept, and what is said where something is missing.

mod common;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::npy::save_floats;
use common::onnx::{F32, Graph, int, ints};
use common::terminal::signal;
use common::wait::{LIMIT, wait_until};
use common::{command, expect_failure, files, path, picture, quantizer, run, scratch, shapes, succeed, text};
use serde_json::{Value, json};

/// A Python that has ONNX Runtime's quantizer: that of the zoo, or the one that is named.
fn python() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let named = std::env::var_os("QUANTIZE_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| cache.join("gst-plugin-trt/zoo/venv/bin/python"));
    if python.exists() {
        return Some(python);
    }
    println!("SKIP: no Python with ONNX Runtime; tests/zoo/run.sh installs one, QUANTIZE_PYTHON names one");
    None
}

/// Frames of the sample, as pictures in a folder.
fn frames(folder: &Path) {
    std::fs::create_dir(folder.join("photos")).unwrap();
    let line = "decodebin ! videorate ! video/x-raw,framerate=1/1 ! videoconvert ! jpegenc ! multifilesink location=photos/%03d.jpg";
    let sample = format!("location={}", path("tests/data/sample.mp4"));
    let words = ["--quiet", "filesrc", &sample, "!"].into_iter().chain(line.split(' '));
    assert!(Command::new("gst-launch-1.0").current_dir(folder).args(words).status().unwrap().success());
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_copy_is_made_and_compared() {
    let Some(python) = python() else { return };
    let folder = scratch("quantize");
    frames(&folder);
    std::os::unix::fs::symlink(shapes(), folder.join("m.onnx")).unwrap();
    let python = python.display().to_string();
    let quantize = |more: &[&str]| {
        let args = [&["quantize", "m.onnx", "photos", "--python", &python, "--json"], more].concat();
        succeed(&folder, &args)
    };
    let found = json_of(&quantize(&[]));
    println!("{found:#}");
    let (quantized, products) = (found["quantized"].as_u64().unwrap(), found["products"].as_u64().unwrap());
    assert!(products - quantized >= 4 && quantized > 30, "first and last layers stay: {found}");
    assert!(found["loss"].as_f64().unwrap() < 0.05 && found["has-results"] == true, "{found}");
    let classes = found["classes"].as_array().unwrap();
    let labels: Vec<_> = classes.iter().map(|class| class["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["disc", "box"]);
    assert!(classes.iter().all(|class| class["wanted"].as_u64().unwrap() > 10), "{found}");
    assert_eq!(found["output"], "m-int8.onnx");
    let info: Value = serde_json::from_slice(&succeed(&folder, &["info", "m-int8.onnx", "--json"]).stdout).unwrap();
    assert_eq!(info["labels"], json!(["disc", "box"]), "the metadata are there");
    for (device, calibration) in [("gpu", "entropy"), ("cpu", "minmax")] {
        let more = ["--device", device, "--calibration", calibration, "--output", "other.onnx"];
        let found = json_of(&quantize(&more));
        assert_eq!(
            (&found["device"], &found["calibration"], &found["output"]),
            (&json!(device), &json!(calibration), &json!("other.onnx"))
        );
        assert!(found["loss"].as_f64().unwrap() < 0.05, "{found}");
        // TensorRT 8 takes no weights that are in 8 bits already.
        let copy = Graph::load(folder.join("other.onnx").to_str().unwrap());
        let pairs = ["QuantizeLinear", "DequantizeLinear"].map(|kind| copy.inputs_of(kind, 0).len());
        assert_eq!(pairs[0] == pairs[1], device == "gpu", "{device}: {pairs:?}");
    }
    assert_eq!(files(&folder), ["m-int8.onnx", "m.onnx", "other.onnx", "photos"], "nothing is left over");
}

/// The detector with other weights in one layer.
fn spoiled(file: &Path) -> String {
    let graph = Graph::load(&shapes());
    let name = graph.inputs_of("Conv", 1)[20].clone();
    let (dims, values) = graph.floats(&name);
    let values = values.iter().flat_map(|value| (value * -0.5).to_le_bytes()).collect();
    graph.without_weight(&name).weight(&name, F32, &dims, values).save(file)
}

#[test]
fn a_copy_that_costs_too_much_is_not_written() {
    let folder = scratch("quantize-loss");
    frames(&folder);
    let python = folder.join("python3").display().to_string();
    let model = shapes();
    let args = ["quantize", &model, "photos", "--output", "copy.onnx", "--python", &python];
    quantizer(Path::new(&python), &shapes());
    let same = succeed(&folder, &args);
    let shown = text(&same.stdout);
    for part in [
        "3 of 5 with weights in int8",
        "output0     differs by 0.00 %",
        "disc        0 of ",
        "loss        0.00 %",
        "written     copy.onnx",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    std::fs::remove_file(folder.join("copy.onnx")).unwrap();

    quantizer(Path::new(&python), &spoiled(&folder.join("spoiled.onnx")));
    let strict = [&args[..], &["--max-loss", "1"]].concat();
    let output = run(&folder, &strict);
    expect_failure(
        &output,
        &strict,
        &["other results, and --max-loss is 1 %: nothing is written", "Give more pictures"],
    );
    assert!(text(&output.stdout).contains("loss        "), "the report is there all the same");
    assert_eq!(files(&folder), ["photos", "python3", "spoiled.onnx"]);
    // Whoever wants it has it.
    succeed(&folder, &args);
    assert_eq!(files(&folder), ["copy.onnx", "photos", "python3", "spoiled.onnx"]);
}

/// A model of pictures of 16x16 and of words, with layers in between that can be quantized.
fn with_words(file: &Path) -> String {
    let weight = |count: usize| (0..count).flat_map(|at| ((at % 7) as f32 * 0.1 - 0.2).to_le_bytes()).collect();
    let conv = |pads: i64, side: i64| vec![ints("pads", &[pads; 4]), ints("kernel_shape", &[side; 2])];
    Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .input("words", F32, &["1", "count", "4"])
        .weight("first", F32, &[4, 3, 3, 3], weight(108))
        .weight("middle", F32, &[4, 4, 3, 3], weight(144))
        .weight("last", F32, &[4, 4, 1, 1], weight(16))
        .node("Conv", &["images", "first"], &["seen"], conv(1, 3))
        .node("Relu", &["seen"], &["bright"], vec![])
        .node("Conv", &["bright", "middle"], &["sharp"], conv(1, 3))
        .node("Relu", &["sharp"], &["clear"], vec![])
        .node("Conv", &["clear", "last"], &["known"], conv(0, 1))
        .node("ReduceMean", &["known"], &["mean"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .node("ReduceMean", &["words"], &["word"], vec![ints("axes", &[1]), int("keepdims", 0)])
        .node("Add", &["mean", "word"], &["vector"], vec![])
        .output("vector", F32, &["1", "4"])
        .save(file)
}

/// The quantizer gets them as the model takes them, and the comparison has them, too.
#[test]
fn inputs_besides_the_picture_have_values_of_files() {
    let folder = scratch("quantize-values");
    picture(&folder.join("1.jpg"), 64, 64);
    let model = with_words(&folder.join("words.onnx"));
    save_floats(&folder.join("words.npy"), &[2, 4], &[0.5; 8]);
    let script = format!(
        "#!/usr/bin/python3\nimport json, shutil, sys\nsettings = json.loads(sys.argv[-1])\n\
         shutil.copy({model:?}, settings['output'])\n\
         sizes = [[each['name'], each['type'], each['shape'], len(open(each['file'], 'rb').read())] for each in settings['others']]\n\
         open('sizes.json', 'w').write(json.dumps(sizes))\nprint(json.dumps({{'quantized': 1, 'products': 3}}))\n"
    );
    let python = program(&folder, "python3", &script);
    let args = ["quantize", "words.onnx", "1.jpg", "--output", "copy.onnx", "--python", &python];
    let says = ["an input whose content is not known, words f32 1x?x4", "input-values=words=words.npy"];
    expect_failure(&run(&folder, &args), &args, &says);
    let with = |infer| [&args[..], &["--infer", infer]].concat();
    for (infer, says) in [
        ("threads=2", "threads has no effect in gst-trt quantize, which runs the model on the CPU"),
        ("input-values=word=words.npy", "it has no such input; did you mean “words”?"),
        ("input-values=words=none.npy", "There is no file none.npy for the input words"),
    ] {
        expect_failure(&run(&folder, &with(infer)), &with(infer), &[says]);
    }
    assert!(!folder.join("sizes.json").exists(), "that is said before the quantizer runs");
    succeed(&folder, &with("input-values=words=words.npy"));
    let sizes: Value = serde_json::from_slice(&std::fs::read(folder.join("sizes.json")).unwrap()).unwrap();
    assert_eq!(sizes, json!([["words", "f32", [1, 2, 4], 32]]));
    assert_eq!(files(&folder), ["1.jpg", "copy.onnx", "python3", "sizes.json", "words.npy", "words.onnx"]);
}

#[test]
fn a_copy_of_a_model_with_other_inputs_is_made() {
    let Some(python) = python() else { return };
    let folder = scratch("quantize-words");
    picture(&folder.join("1.jpg"), 64, 64);
    with_words(&folder.join("words.onnx"));
    save_floats(&folder.join("words.npy"), &[1, 4], &[0.5; 4]);
    let python = python.display().to_string();
    for device in ["cpu", "gpu"] {
        let args = ["quantize", "words.onnx", "1.jpg", "--python", &python, "--device", device, "--json"];
        let more = ["--infer", "input-values=words=words.npy", "--max-loss", "100", "--output", "copy.onnx"];
        let found = json_of(&succeed(&folder, &[&args[..], &more].concat()));
        assert_eq!((&found["quantized"], &found["products"]), (&json!(1), &json!(3)), "{device}: {found}");
    }
}

/// A script that is to be run in the place of Python.
fn program(folder: &Path, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(folder.join(name), script).unwrap();
    std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder.join(name).display().to_string()
}

/// The quantizer itself would go on without an end.
#[test]
fn ctrl_c_ends_the_quantizer() {
    let folder = scratch("quantize-stopped");
    picture(&folder.join("1.jpg"), 320, 180);
    assert!(Command::new("mkfifo").arg(folder.join("held")).status().unwrap().success());
    let python = program(&folder, "python3", "#!/bin/sh\n: > begun\nread line < held\n");
    let args = ["quantize", &shapes(), "1.jpg", "--output", "copy.onnx", "--python", &python];
    let child = command(&folder).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the quantizer has begun", LIMIT, || folder.join("begun").exists());
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("It was stopped; nothing is written."), "{}", text(&output.stderr));
    assert_eq!(files(&folder), ["1.jpg", "begun", "held", "python3"], "nothing is left over");
}

#[test]
fn what_is_missing_is_said() {
    let folder = scratch("quantize-missing");
    std::fs::create_dir(folder.join("photos")).unwrap();
    std::fs::create_dir(folder.join("none")).unwrap();
    picture(&folder.join("photos/1.jpg"), 320, 180);
    std::fs::write(folder.join("photos/2.jpg"), "no picture").unwrap();
    let program = |name: &str, script: &str| program(&folder, name, script);
    let model = shapes();
    let bare = program("bare", "#!/bin/sh\necho '{\"missing\": \"onnxruntime\"}'\n");
    let broken = program("broken", "#!/bin/sh\necho 'a library is broken' >&2\nexit 3\n");
    let failing = program("failing", "#!/bin/sh\necho '{\"error\": \"ValueError: such nodes\"}'\n");
    for (more, parts) in [
        (
            vec!["photos", "--python", "/nowhere/python"],
            vec!["Cannot run /nowhere/python", "-m pip install onnx onnxruntime"],
        ),
        (vec!["photos", "--python", &bare], vec!["has no onnxruntime", "-m pip install onnx onnxruntime", "--python"]),
        (vec!["photos", "--python", &broken], vec!["failed (exit status: 3): a library is broken"]),
        (vec!["photos", "--python", &failing], vec!["cannot quantize the model: ValueError: such nodes."]),
        (vec!["photos", "--output", &model], vec!["shapes-160.onnx would be overwritten", "--output"]),
        (vec!["photos/1.jpg", "--output", "photos/1.jpg"], vec!["photos/1.jpg would be overwritten"]),
        (vec!["photos", "--output", "/dev/null"], vec!["Cannot write /dev/null: it is a device or a pipe"]),
        (vec!["none"], vec!["The folder none is empty"]),
        (vec!["photos/3.jpg"], vec!["There is no file photos/3.jpg"]),
        (vec!["photos/2.jpg"], vec!["None of the pictures can be read"]),
        (vec!["photos", "--max-loss", "101"], vec!["--max-loss is 0 to 100"]),
        (vec!["photos", "--percentile", "49"], vec!["--percentile is 50 to 100"]),
        (
            vec!["photos", "--percentile", "99"],
            vec!["no effect with --calibration entropy", "--calibration percentile"],
        ),
        (vec!["photos", "--format", "fp8", "--device", "cpu"], vec!["No CPU computes in fp8"]),
        (vec!["photos", "--output", "/nowhere/copy.onnx"], vec!["Cannot make the folder /nowhere/.copy.onnx"]),
    ] {
        let output: &[&str] = if more.contains(&"--output") { &[] } else { &["--output", "copy.onnx"] };
        let args = [&["quantize", &model], output, &more].concat();
        expect_failure(&run(&folder, &args), &args, &parts);
    }
    // A name of other days.
    let caf = std::ffi::OsStr::from_bytes(b"caf\xe9.onnx");
    std::os::unix::fs::symlink(&model, folder.join(caf)).unwrap();
    let mut program = command(&folder);
    let output = program.arg("quantize").arg(caf).args(["photos", "--output", "copy.onnx"]).output().unwrap();
    expect_failure(&output, &["quantize", "caf"], &["it is no text in UTF-8. Give it another name."]);
    std::fs::remove_file(folder.join(caf)).unwrap();
    let half = path("tests/models/shapes-f16.onnx");
    let args = ["quantize", &half, "photos"];
    let output = command(&folder).args(args).output().unwrap();
    expect_failure(&output, &args, &["Give a model in 32-bit floats"]);
    let clips =
        Graph::new().input("clip", F32, &["1", "3", "8", "16", "16"]).node("Relu", &["clip"], &["seen"], vec![]);
    let clips =
        clips.output("seen", F32, &["1", "3", "8", "16", "16"]).save(&scratch("quantize-clips").join("clips.onnx"));
    let args = ["quantize", &clips, "photos"];
    let output = command(&folder).args(args).output().unwrap();
    expect_failure(&output, &args, &["sees several pictures or vectors at once (clip f32 1x3x8x16x16)"]);
    assert_eq!(files(&folder), ["bare", "broken", "failing", "none", "photos"]);
}
