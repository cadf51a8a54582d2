// SPDX-License-Identifier: MPL-2.0
//! `gst-trt info`, `build` and `bench`: what they say of models.

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::endless::{give_way, runs};
use common::kserve_server::{FakeServer, answers, served};
use common::onnx::{F32, Graph, brightness, int, ints};
use common::wait::wait_until;
use common::{command, expect_failure, files, path, run, sample, scratch, shapes, succeed, text};
use serde_json::{Value, json};

fn info(model: &str) -> Value {
    let output = succeed(&scratch("info"), &["info", "--json", model]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_file_says_what_it_is() {
    let found = info(&shapes());
    assert_eq!(
        [&found["kind"], &found["task"], &found["stride"], &found["image-size"], &found["labels"], &found["opset"]],
        [
            &json!("onnx"),
            &json!("detect"),
            &json!(32),
            &json!([160, 160]),
            &json!(["disc", "box"]),
            &json!({"ai.onnx": 17})
        ]
    );
    assert_eq!(found["inputs"], json!([{"name": "images", "type": "f32", "dims": [1, 3, 160, 160]}]));
    assert_eq!((&found["layout"]["name"], &found["layout"]["classes"]), (&json!("yolov5"), &json!(2)));
    let why = found["layout"]["why"].as_str().unwrap();
    for part in ["output0 f32 1x1575x7 fits only this layout", "“detect”", "2 names for 2 classes"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(found["missing"], json!([]));
    let shown = succeed(&scratch("info-text"), &["info", &shapes()]);
    for part in
        ["opset ai.onnx 17", "images f32 1x3x160x160", "2: disc, box", "yolov5: ", "because: ", "missing     nothing"]
    {
        assert!(text(&shown.stdout).contains(part), "{part}: {}", text(&shown.stdout));
    }
}

#[test]
fn a_model_on_a_server_is_used_as_a_file_is() {
    let server = FakeServer::start(answers(served("shapes", &shapes())));
    let address = server.address("shapes");
    let (found, file) = (info(&address), info(&shapes()));
    assert_eq!((&found["kind"], &found["file"]), (&json!("server"), &json!(address)));
    for key in
        ["producer", "inputs", "outputs", "labels", "task", "stride", "image-size", "metadata", "missing", "input"]
    {
        assert_eq!(found[key], file[key], "{key}");
    }
    let shown = succeed(&scratch("info-server"), &["info", &address]);
    assert!(text(&shown.stdout).starts_with(&format!("model       {address}, by ")), "{}", text(&shown.stdout));
    let folder = scratch("detect-server");
    let objects = |model: &str, more: &[&str]| {
        let detect = ["detect", &sample(), "--model", model, "--no-video", "--json", "-", "--frames", "5"];
        let output = succeed(&folder, &[&detect[..], more].concat());
        let lines = text(&output.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["detections"].clone()).collect::<Vec<_>>()
    };
    let wanted = objects(&shapes(), &["--backend", "rten"]);
    assert!(wanted.len() == 5 && wanted.iter().any(|found| !found.as_array().unwrap().is_empty()), "{wanted:?}");
    assert_eq!(objects(&address, &[]), wanted);
    assert_eq!(objects(&address, &["--backend", "kserve", "--infer", "parallel-runs=2"]), wanted);
    assert!(server.connections() > 2);
    for (model, parts) in [
        (server.address("other"), ["does not serve the model other", "Check the model's name"]),
        ("grpc://me:Zq9@triton/m".into(), ["Cannot use the address grpc://***@triton/m", "Leave it out"]),
        ("grpc://triton".into(), ["it has no model", "grpc://host:8001/model"]),
    ] {
        let args = ["detect", &sample(), "--model", &model, "--no-video"];
        let output = run(&folder, &args);
        expect_failure(&output, &args, &parts);
        assert!(!text(&output.stderr).contains("Zq9"), "{}", text(&output.stderr));
    }
}

#[test]
fn each_of_our_models_is_recognised() {
    for (model, layout) in [
        ("shapes-v8", "yolov8"),
        ("shapes-e2e", "end-to-end"),
        ("shapes-seg", "segment"),
        ("shapes-obb", "obb"),
        ("shapes-cls", "classify"),
        ("shapes-sem", "semantic-logits"),
        ("rooms-depth", "depth"),
        ("figures-pose", "pose"),
    ] {
        let found = info(&path(&format!("tests/models/{model}.onnx")));
        assert_eq!(found["layout"]["name"], layout, "{found:#}");
    }
}

#[test]
fn what_is_missing_names_the_property() {
    let folder = scratch("info-missing");
    let save = |name: &str, graph: Graph| graph.save(&folder.join(name));
    let unnamed =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 300, 6], &[0.0; 1800]);
    let open =
        Graph::new().input("images", F32, &["1", "3", "h", "w"]).constant("output0", &[1, 6, 84], &[0.0; 6 * 84]);
    let strange =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("volumes", &[1, 2, 2, 2, 2], &[0.0; 16]);
    let words = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .input("txt_feats", F32, &["1", "words", "512"])
        .input("scale_factor", F32, &["1", "2"])
        .constant("output0", &[1, 300, 6], &[0.0; 1800]);
    let numbers = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("vector", &[1, 80], &[0.5; 80]);
    for (file, property, says) in [
        (save("numbers.onnx", numbers), "label-file", "set layout=embed"),
        (save("words.onnx", words), "input-values=txt_feats=words.npy", "what goes into txt_feats f32 1x?x512"),
        (save("unnamed.onnx", unnamed), "label-file", "class names"),
        (save("open.onnx", open), "input-size", "leaves the size of its input open"),
        (save("strange.onnx", strange), "layout", "volumes f32 1x2x2x2x2"),
    ] {
        let found = info(&file);
        let missing = found["missing"].as_array().unwrap();
        let named = |gap: &Value| {
            gap["property"].as_str().unwrap().contains(property) && gap["what"].as_str().unwrap().contains(says)
        };
        assert!(missing.iter().any(named), "{file}: {found:#}");
        assert!(!found["missing"].to_string().contains("scale_factor"), "{found:#}");
        succeed(&folder, &["info", &file]);
    }
    let vectors = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("vector", &[1, 8], &[0.5; 8])
        .metadata("task", "embed");
    let found = info(&save("vectors.onnx", vectors));
    assert_eq!(found["layout"]["name"], "embed", "{found:#}");
    assert!(!found["missing"].to_string().contains("class names"), "{found:#}");
}

/// Of texts it is the dictionary: the model may have its layout in the file, or only its task.
#[test]
fn a_missing_dictionary_is_called_one() {
    let folder = scratch("info-dictionary");
    let layout = "name = \"reader\"\ntask = \"text\"\n[[output]]\ndims = [\"batch\", \"rows\", \"columns\"]\n\
                  columns = [{ column = \"characters\", blank = \"first\", space = true }]\n";
    let of = |metadata: &[(&str, &str)]| {
        let graph =
            Graph::new().input("images", F32, &["1", "3", "16", "64"]).constant("text", &[1, 3, 4], &[0.25; 12]);
        let graph = metadata.iter().fold(graph, |graph, (key, value)| graph.metadata(key, value));
        graph.save(&folder.join("reader.onnx"))
    };
    for metadata in [&[("gsttrt", layout)][..], &[("task", "text")]] {
        let missing = info(&of(metadata))["missing"].clone();
        let is_dictionary = |gap: &Value| {
            let what = gap["what"].as_str().unwrap();
            what.starts_with("the dictionary") && gap["property"].as_str().unwrap().contains("label-file")
        };
        assert!(missing.as_array().unwrap().iter().any(is_dictionary), "{missing:#}");
        assert!(!missing.to_string().contains("class names"), "{missing:#}");
    }
    let whole = of(&[("gsttrt", layout), ("character", "H\ni")]);
    assert!(!info(&whole)["missing"].to_string().contains("dictionary"));
    let shown = succeed(&folder, &["info", &whole]);
    assert!(text(&shown.stdout).contains("characters  2: H, i"), "{}", text(&shown.stdout));
}

#[test]
fn wrong_files_are_told_apart() {
    let folder = scratch("models-wrong");
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).unwrap();
        folder.join(name).display().to_string()
    };
    let whole = std::fs::read(shapes()).unwrap();
    let (junk, empty, cut) = (file("junk.onnx", b"junk"), file("empty.onnx", b""), file("cut.onnx", &whole[..9000]));
    let (engine, weights) = (file("junk.engine", b"junk"), file("m.pt", b"PK"));
    let before = files(&folder);
    let folder_name = folder.display().to_string();
    for command in ["info", "build", "bench", "verify"] {
        for (file, says) in [
            ("/nowhere.onnx", &["There is no file /nowhere.onnx"][..]),
            (&folder_name, &["is a folder"]),
            ("https://example.org/m.onnx", &["is a URI"]),
            ("/dev/null", &["/dev/null is a device"]),
            (&junk, &["junk.onnx", "not a whole ONNX model"]),
            (&empty, &["empty.onnx", "empty"]),
            (&cut, &["cut.onnx", "not a whole ONNX model"]),
            (&sample(), &["sample.mp4"]),
            (&engine, if command == "build" { &["is an engine already"][..] } else { &["junk.engine"] }),
            (&weights, &["m.pt", "Export it to ONNX"]),
        ] {
            let args = [command, file];
            expect_failure(&run(&folder, &args), &args, says);
        }
    }
    assert_eq!(files(&folder), before);
}

#[test]
fn wrong_options_are_named() {
    let (folder, shapes) = (scratch("models-usage"), shapes());
    let model = shapes.as_str();
    for (args, status, says) in [
        (&["info"][..], 2, &["<MODEL>"][..]),
        (&["info", model, model], 2, &["unexpected argument"]),
        (&["build", model, "--precision", "fp8"], 2, &["fp8", "fp16"]),
        (&["build", model, "--batch-size", "0"], 2, &["--batch-size"]),
        (&["build", model, "--optimization-level", "9"], 2, &["--optimization-level"]),
        (&["verify", model, "--batch-size", "0"], 2, &["--batch-size"]),
        (&["verify", model, "--batch-size", "2"], 1, &["batch-size is 2", "batches of 1"]),
        (&["verify", model, "--infer", "precision=fp7"], 1, &["fp7", "fp16"]),
        (
            &["verify", model, "--infer", "frames=5"],
            1,
            &["frames=5 is for models that see several", "Leave frames unset"],
        ),
        (
            &["verify", model, "--infer", "interval=2 mean=0.5 verify=off"],
            1,
            &["interval, mean, verify have no effect in gst-trt verify", "Leave them out"],
        ),
        (
            &["build", model, "--infer", "backend=rten threads=2"],
            1,
            &["backend, threads have no effect in gst-trt build", "Leave them out"],
        ),
        (&["build", model, "--infer", "top-k=3"], 1, &["top-k has no effect in gst-trt build", "Leave it out"]),
        (&["build", model, "--input-size", "640"], 2, &["--input-size", "1920x1080"]),
        (&["build", model, "--frame", "0x0"], 2, &["--frame"]),
        (&["build", model, "--frame", "64x64", "--input-size", "64x64"], 2, &["--frame", "--input-size"]),
        (&["build", model, "--infer", "colour=red"], 1, &["colour"]),
        (&["bench", model, "--backend", "abacus"], 2, &["abacus", "all"]),
        (&["bench", model, "--frame", "big"], 2, &["--frame"]),
        (&["bench", model, "--format", "YUV9"], 2, &["YUV9", "NV12"]),
        (&["bench", model, "--model-only", "--nms", "top-k=3"], 2, &["--model-only", "--nms"]),
        (&["bench", model, "--duration", "0"], 2, &["--duration"]),
        (&["bench", model, "--duration", "nan"], 2, &["--duration"]),
        (&["bench", model, "--nms", "score-threshold=lots"], 1, &["score-threshold", "lots"]),
        (&["bench", model, "--infer", "input-size=64x64"], 1, &["input-size is 64x64", "fixed"]),
        (&["bench", model, "--infer", "'"], 1, &["Cannot read the options"]),
        (&["bench", model, "--max-streams", "fps=30"], 2, &["--video"]),
        (&["bench", model, "--max-streams", "p99=50", "--video", "x.mp4"], 2, &["write fps=30, or p99=50ms", "unit"]),
        (&["bench", model, "--max-streams", "--video", "x.mp4"], 1, &["There is no file x.mp4"]),
        (&["bench", model, "--max-streams", "--video", model, "--frame", "64x64"], 2, &["--max-streams", "--frame"]),
        (&["bench", model, "--max-streams", "--video", model, "--format", "RGB"], 2, &["--max-streams", "--format"]),
        (&["bench", model, "--max-streams", "--video", model, "--model-only"], 2, &["--max-streams", "--model-only"]),
        (&["bench", model, "--max-streams", "--video", model, "--backend", "all"], 1, &["for one backend"]),
        (&["bench", model, "--max-streams", "--video", model, "--infer", "name=x"], 1, &["name"]),
        (&["doctor", "x"], 2, &["unexpected argument"]),
    ] {
        let output = run(&folder, args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
        assert!(says.iter().all(|part| stderr.contains(part)) && !stderr.contains("panicked"), "{args:?}: {stderr}");
    }
}

/// No stream has such a latency, so one is tried.
#[test]
fn streams_are_counted() {
    let (folder, shapes, sample) = (scratch("bench-streams"), shapes(), sample());
    let args = [
        "bench",
        &shapes,
        "--backend",
        "rten",
        "--infer",
        "interval=30 threads=1",
        "--max-streams",
        "fps=100",
        "p99=0.01ms",
        "--video",
        &sample,
        "--duration",
        "0.5",
    ];
    let shown = succeed(&folder, &args);
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("    1 streams: ") && shown.contains(" frames/s of the slowest, "), "{shown}");
    assert!(shown.contains("0 streams of ") && shown.contains(" with a 99 % latency of 0.01 ms at most."), "{shown}");
    let output = succeed(&folder, &[&args[..], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["max-streams"], &found["goal"]), (&json!(0), &json!({"fps": 100.0, "p99-ms": 0.01})));
    let tried = &found["tried"][0];
    assert!(tried["fps-least"].as_f64() > Some(0.0) && tried["used"]["cpu"].is_number(), "{found:#}");
    assert_eq!((&tried["streams"], &tried["enough"]), (&json!(1), &json!(false)));
    // What the source itself lacks is an error.
    let args = ["bench", &shapes, "--max-streams", "--video", &shapes];
    expect_failure(&run(&folder, &args), &args, &["shapes"]);
}

/// On a machine with one backend there is nothing to compare with but the model itself.
#[test]
fn a_model_is_verified() {
    let folder = scratch("verify");
    let args = ["verify", &shapes(), "--backend", "rten"];
    let shown = succeed(&folder, &args);
    let shown = text(&shown.stdout);
    for part in [
        "runs on     rten",
        "with itself only",
        "output0     from run to run by 0.000 %",
        "verdict     not compared; the same",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    let output = succeed(&folder, &[&args[..], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["passed"], &found["backend"], &found["faults"]), (&json!(true), &json!("rten"), &json!([])));
    assert!(found["runs"].as_u64() >= Some(12) && found["not-compared"].is_string(), "{found:#}");

    // A warning whose reader has gone is no failure.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let warned = [&args[..], &["--infer", "optimization-level=5"]].concat();
    let output = command(&folder).args(warned).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));

    let graph = Graph::new().input("images", F32, &["1", "3", "32", "32"]);
    let graph = graph.node("Sub", &["images", "images"], &["zero"], vec![]);
    let graph = graph.node("Div", &["zero", "zero"], &["output0"], vec![]);
    let file = graph.output("output0", F32, &["1", "3", "32", "32"]).save(&folder.join("none.onnx"));
    let output = run(&folder, &["verify", &file, "--backend", "rten"]);
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in
        ["verdict     wrong", "output0 has 3072 numbers that are not finite", "none.onnx computes something else"]
    {
        assert!(said.contains(part), "{said}");
    }
}

/// As trtpreprocess does.
#[test]
fn verify_refuses_clips_that_the_model_does_not_take() {
    let folder = scratch("verify-clips");
    let file = Graph::new()
        .input("clip", F32, &["1", "3", "4", "8", "8"])
        .node("ReduceMean", &["clip"], &["output0"], vec![ints("axes", &[2, 3, 4]), int("keepdims", 0)])
        .output("output0", F32, &["1", "3"])
        .save(&folder.join("clips.onnx"));
    let args = ["verify", &file, "--backend", "rten", "--infer", "frames=8"];
    expect_failure(&run(&folder, &args), &args, &["frames=8, and the model takes clips of 4 frames", "set frames=4"]);
    succeed(&folder, &["verify", &file, "--backend", "rten", "--infer", "frames=4"]);
}

#[test]
fn an_engine_needs_a_gpu() {
    let (folder, shapes) = (scratch("build-no-gpu"), shapes());
    let output = common::command(&folder).args(["build", &shapes]).env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
    expect_failure(&output, &["build"], &["CUDA"]);
}

#[test]
fn figures_are_in_order() {
    let (folder, shapes) = (scratch("bench"), shapes());
    let args = [
        "bench",
        &shapes,
        "--backend",
        "rten",
        "--duration",
        "0.3",
        "--frame",
        "320x180",
        "--frame",
        "64x48",
        "--json",
    ];
    let output = succeed(&folder, &args);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cpu = &found["backends"][0];
    assert_eq!((&cpu["backend"], &cpu["input"]), (&json!("rten"), &json!("images f32 1x3x160x160")));
    let chains = cpu["chain"].as_array().unwrap();
    let frames: Vec<&Value> = chains.iter().map(|chain| &chain["frame"]).collect();
    assert_eq!(frames, [&json!("320x180"), &json!("64x48")]);
    for measured in std::iter::once(&cpu["model"]).chain(chains) {
        let figures =
            ["min", "median", "p90", "p95", "p99", "max"].map(|name| measured["latency-ms"][name].as_f64().unwrap());
        assert!(figures.is_sorted() && figures[0] > 0.0, "{measured}");
        assert!(measured["throughput"].as_f64().unwrap() > 0.0, "{measured}");
    }
    let shown = succeed(&folder, &["bench", &shapes, "--duration", "0.05", "--model-only"]);
    assert!(text(&shown.stdout).contains("model, host to host") && !text(&shown.stdout).contains("chain"));
    let shown = succeed(&folder, &["bench", &shapes, "--duration", "0.05", "--format", "rgb", "--frame", "65x33"]);
    assert!(text(&shown.stdout).contains("chain, 65x33 RGB in system"), "{}", text(&shown.stdout));
    // A model of open batches is measured in the batches that are asked for; pictures are counted.
    let open = brightness("n").save(&folder.join("open.onnx"));
    let measured = |batch: &str| -> Value {
        let batch = format!("batch-size={batch}");
        let args =
            ["bench", &open, "--backend", "rten", "--duration", "0.2", "--model-only", "--json", "--infer", &batch];
        serde_json::from_slice::<Value>(&succeed(&folder, &args).stdout).unwrap()["backends"][0]["model"].take()
    };
    for batch in [1, 4] {
        let model = measured(&batch.to_string());
        let runs = 1e3 / model["latency-ms"]["mean"].as_f64().unwrap();
        let pictures = model["throughput"].as_f64().unwrap() / runs;
        assert_eq!((model["batch"].as_u64(), pictures.round()), (Some(batch), batch as f64), "{model}");
    }
    let shown = succeed(&folder, &["bench", &open, "--duration", "0.05", "--model-only", "--infer", "batch-size=4"]);
    assert!(text(&shown.stdout).contains("model, host to host, batches of 4"));
    let wishes =
        ["bench", &shapes, "--backend", "rten", "--duration", "0.05", "--infer", "precision=fp16", "--nms", "top-k=3"];
    let output = succeed(&folder, &wishes);
    let said = text(&output.stderr);
    let warnings: Vec<&str> = said.lines().filter(|line| line.starts_with("Warning: ")).collect();
    assert!(
        matches!(warnings[..], [one, other] if one.contains("precision has no effect") && other.contains("top-k has no effect")),
        "{said}"
    );
}

/// A run that does not end, which no engine is asked to leave: a signal ends the program all the same.
#[test]
fn a_signal_ends_what_never_ends() {
    let folder = scratch("models-endless");
    let model = common::onnx::endless("1", "8", false).save(&folder.join("endless.onnx"));
    let programs = [("verify", libc::SIGTERM, 143), ("bench", libc::SIGINT, 130)].map(|(name, signal, status)| {
        let program =
            command(&folder).args([name, "--backend", "rten", &model]).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("it runs", Duration::from_secs(60), || runs(program.id()));
        give_way(program.id());
        // SAFETY: it is our child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(program.id() as i32, signal) }, 0);
        (program, status)
    });
    for (program, status) in programs {
        let output = program.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("does not stop"), "{}", text(&output.stderr));
    }
}

/// Exports of Hugging Face's packages leave all dimensions of the picture open.
#[test]
fn a_model_of_open_channels_is_described() {
    let folder = scratch("info-channels");
    let save = |input: &str, dims: [&str; 4]| {
        let graph = Graph::new().input(input, F32, &dims).constant("logits", &[1, 9, 16, 16], &[0.0; 9 * 256]);
        graph.save(&folder.join(format!("{input}.onnx")))
    };
    let model = save("pixel_values", ["batch_size", "num_channels", "height", "width"]);
    let found = info(&model);
    assert_eq!(found["inputs"], json!([{"name": "pixel_values", "type": "f32", "dims": [null, 3, null, null]}]));
    let wanted = "leaves the size of its input open (pixel_values f32 ?x3x?x?)";
    let is_size = |gap: &Value| gap["property"] == "input-size" && gap["what"].as_str().unwrap().contains(wanted);
    assert!(found["missing"].as_array().unwrap().iter().any(is_size), "{found:#}");
    let draft = succeed(&folder, &["info", "--explain-layout", &model]);
    assert!(text(&draft.stdout).contains("logits"), "{}", text(&draft.stdout));
    let args = ["info", &save("x", ["n", "c", "h", "w"])];
    expect_failure(&run(&folder, &args), &args, &["only x f32 ?x?x?x?", "num_channels", "docs/models.md"]);
}

/// The draft of a layout file is one, for models that are known and for those that are not.
#[test]
fn a_draft_of_a_layout_file_is_written() {
    let folder = scratch("info-draft");
    let draft = |model: &str| text(&succeed(&folder, &["info", "--explain-layout", model]).stdout).to_string();
    let known = draft(&shapes());
    assert!(known.starts_with("# As the layout yolov5: "), "{known}");
    std::fs::write(folder.join("head.toml"), &known).unwrap();
    let args = |nms| {
        [
            "detect",
            &sample(),
            "--model",
            &shapes(),
            "--no-video",
            "--json",
            "out.jsonl",
            "--infer",
            "interval=50",
            "--nms",
            nms,
        ]
        .map(String::from)
    };
    let results = |nms| {
        let args = args(nms);
        succeed(&folder, &args.iter().map(String::as_str).collect::<Vec<_>>());
        let lines = std::fs::read_to_string(folder.join("out.jsonl")).unwrap();
        let detections = |line: &str| serde_json::from_str::<Value>(line).unwrap()["detections"].clone();
        lines.lines().map(detections).collect::<Vec<_>>()
    };
    let (own, file) = (results("layout=yolov5"), results("layout-file=head.toml"));
    assert!(!own.is_empty() && own == file);
    let strange = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("found", &[1, 2, 9], &[0.0; 18]);
    let guessed = draft(&strange.save(&folder.join("strange.onnx")));
    assert!(guessed.contains("guessed from dimensions alone") && guessed.contains("name = \"found\""), "{guessed}");
    let both = run(&folder, &["info", "--json", "--explain-layout", &shapes()]);
    assert!(!both.status.success() && text(&both.stderr).contains("cannot be used with"), "{}", text(&both.stderr));
}
