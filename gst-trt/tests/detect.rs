// SPDX-License-Identifier: MPL-2.0
//! `gst-trt detect`: what it writes, what it prints, and its errors.

mod common;
#[path = "detect/parquet_tables.rs"]
mod parquet_tables;
#[path = "detect/shown.rs"]
mod shown;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::models::{classifier, embedder, inner, reader};
use common::onnx::{F32, Graph, int, ints};
use common::terminal::in_terminal;
use common::{command, expect_failure, files, launch, lines, picture, pixels, sample, scratch, shapes, succeed, text};
use gst::prelude::*;
use serde_json::{Value, json};

/// `detect SOURCE --model MODEL …` in that folder.
fn detect(folder: &Path, source: &str, model: &str, more: &[&str]) -> Output {
    command(folder).args(["detect", source, "--model", model]).args(more).output().unwrap()
}

#[test]
fn boxes_become_lines_and_a_video() {
    let folder = scratch("detect");
    // Every 50th frame is enough here; tests/run.sh scores all of them.
    let output = detect(&folder, &sample(), &shapes(), &["--infer", "interval=50"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(files(&folder), ["sample-boxes.jsonl", "sample-boxes.mp4"]);

    let lines = lines(&folder.join("sample-boxes.jsonl"));
    assert_eq!(lines.len(), 300);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let mut objects = 0;
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(keys(line), "stream-time frame width height held detections");
        assert_eq!(line["frame"], number);
        let seconds = line["stream-time"].as_u64().unwrap() as f64 / 1e9;
        assert!((seconds - number as f64 / 30.0).abs() < 1e-3, "{line}");
        assert_eq!((&line["width"], &line["height"]), (&640.into(), &360.into()));
        let detections = line["detections"].as_array().unwrap();
        assert!(!detections.is_empty(), "{line}");
        assert_eq!(line["held"], number % 50 != 0, "{line}");
        for detection in detections {
            assert_eq!(keys(detection), "label class-id confidence x y w h");
            let number = |key: &str| detection[key].as_f64().unwrap();
            assert_eq!(detection["label"], ["disc", "box"][number("class-id") as usize]);
            assert!((0.25..=1.0).contains(&number("confidence")), "{detection}");
            assert!(number("x") >= 0.0 && number("x") + number("w") <= 640.001, "{detection}");
            assert!(number("y") >= 0.0 && number("y") + number("h") <= 360.001, "{detection}");
        }
        objects += detections.len();
    }
    assert!(objects > 30, "{objects}");

    let summary = text(&output.stdout);
    let words: Vec<_> = summary.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(words, ["frames", "fps", "preprocess", "infer", "nms", "detections", "wrote", "wrote"], "{summary}");
    assert!(summary.contains("frames      300\n") && summary.contains("disc "), "{summary}");

    let video = folder.join("sample-boxes.mp4");
    launch(&format!("filesrc location={} ! decodebin ! fakesink", video.display()));
}

/// As with `| head -n 1`. The video is not whole then, so it is not kept.
#[test]
fn a_reader_of_lines_that_leaves_ends_the_program() {
    let folder = scratch("detect-reader");
    for sources in [vec![sample()], vec![sample(), sample()]] {
        let mut detecting = command(&folder);
        detecting.arg("detect").args(&sources).args(["--model", &shapes(), "--json", "-"]);
        let mut child = detecting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + 13), "as if SIGPIPE had ended it: {said}");
        assert!(!said.contains("Error") && !said.contains("JSON lines"), "{said}");
        assert!(!files(&folder).iter().any(|file| file.ends_with(".mp4")), "{:?}", files(&folder));
    }
}

#[test]
fn results_go_to_the_files_named() {
    let folder = scratch("detect-names");
    // An odd size, which H.264 in 4:2:0 does not take.
    launch(&format!(
        "videotestsrc num-buffers=3 ! video/x-raw,width=97,height=51 ! jpegenc ! avimux ! filesink location={}",
        folder.join("odd.avi").display()
    ));
    std::fs::write(folder.join("names"), "round\nangular\n").unwrap();
    let all = ["--labels", "names", "--nms", "score-threshold=0.1", "--backend", "cpu"];
    for (args, written) in [
        (&["--output", "a.mp4", "--json", "a.jsonl"][..], &["a.jsonl", "a.mp4", "names", "odd.avi"][..]),
        (&["--no-video", "--json", "b.jsonl"], &["a.jsonl", "a.mp4", "b.jsonl", "names", "odd.avi"]),
        (&["--output", "c.MKV", "--json", "b.jsonl"], &["a.jsonl", "a.mp4", "b.jsonl", "c.MKV", "names", "odd.avi"]),
    ] {
        let output = detect(&folder, "odd.avi", &shapes(), &[&all[..], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(files(&folder), written);
        assert!(!text(&output.stdout).contains(" disc "), "{}", text(&output.stdout));
    }
    let kind = |name: &str| std::fs::read(folder.join(name)).unwrap()[..8].to_vec();
    assert_eq!((&kind("a.mp4")[4..], &kind("c.MKV")[..4]), (&b"ftyp"[..], &b"\x1a\x45\xdf\xa3"[..]));
}

/// The sample with the matrix of a phone held upright: turn a quarter to the right to show it.
fn rotated(folder: &Path) -> String {
    let mut bytes = std::fs::read(sample()).unwrap();
    let header = bytes.windows(4).position(|word| word == b"tkhd").unwrap();
    // Version 0 has 40 bytes before the matrix, of 16.16 numbers but for each third, which is 2.30.
    assert_eq!(bytes[header + 4], 0);
    let upright = [0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x4000_0000u32].map(u32::to_be_bytes);
    let quarter = [0, 0x10000, 0, 0xffff_0000, 0, 0, 360 << 16, 0, 0x4000_0000u32].map(u32::to_be_bytes);
    let matrix = &mut bytes[header + 44..][..36];
    assert_eq!(matrix, upright.as_flattened());
    matrix.copy_from_slice(quarter.as_flattened());
    let clip = folder.join("phone.mp4");
    std::fs::write(&clip, bytes).unwrap();
    clip.display().to_string()
}

/// The orientation tag of a file, unless it is upright.
fn orientation(file: &str) -> Option<String> {
    common::init();
    let pipeline = gst::parse::launch(&format!("filesrc location={file} ! decodebin ! fakesink name=out")).unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.state(gst::ClockTime::from_seconds(60)).0.unwrap();
    let pad = pipeline.downcast_ref::<gst::Bin>().unwrap().by_name("out").unwrap().static_pad("sink").unwrap();
    let tags = (0..).map_while(|index| pad.sticky_event::<gst::event::Tag>(index));
    let found = tags
        .filter_map(|tags| Some(tags.tag().get::<gst::tags::ImageOrientation>()?.get().to_string()))
        .filter(|orientation| orientation != "rotate-0")
        .last();
    pipeline.set_state(gst::State::Null).unwrap();
    found
}

#[test]
fn videos_of_phones_run_upright() {
    let folder = scratch("detect-rotated");
    let clip = rotated(&folder);
    assert_eq!(orientation(&clip).as_deref(), Some("rotate-90"));
    let output = detect(&folder, &clip, &shapes(), &["--backend", "cpu", "--infer", "interval=10", "--frames", "100"]);
    assert!(output.status.success(), "{}", text(&output.stderr));

    let lines = lines(&folder.join("phone-boxes.jsonl"));
    // The same as of frames that videoflip rotates.
    let by_hand = launch(&format!(
        "filesrc location={} ! decodebin ! identity eos-after=101 ! videoflip video-direction=90r ! trtpreprocess \
         ! trtinfer backend=cpu interval=10 model-file={} ! trtnms post-messages=true hold-detections=false ! fakesink",
        sample(),
        shapes()
    ));
    let by_hand: Vec<_> = by_hand.into_iter().filter(|message| message.name() == "trt-detections").collect();
    assert_eq!(lines.len(), 100);
    let seen: Vec<&Value> = lines.iter().step_by(10).collect();
    assert!(by_hand.len() >= seen.len(), "some frames more come before the end");
    let mut objects = 0;
    for (line, message) in seen.into_iter().zip(&by_hand) {
        assert_eq!((&line["width"], &line["height"]), (&360.into(), &640.into()));
        let expected = message.get::<gst::Array>("detections").unwrap();
        let detections = line["detections"].as_array().unwrap();
        assert_eq!(detections.len(), expected.len(), "{line}\n{message}");
        for (detection, expected) in detections.iter().zip(expected.iter()) {
            let expected = expected.get::<gst::Structure>().unwrap();
            assert_eq!(detection["label"], expected.get::<&str>("label").unwrap());
            for field in ["x", "y", "w", "h"] {
                let off = detection[field].as_f64().unwrap() - expected.get::<f64>(field).unwrap();
                assert!(off.abs() < 2e-3, "{field}: {detection} {expected}");
            }
        }
        objects += detections.len();
    }
    assert!(objects > 20, "{objects}");

    // The video that was written is upright, and has no tag that would rotate it again.
    assert_eq!(orientation(&folder.join("phone-boxes.mp4").display().to_string()), None);
}

/// A GStreamer of few plugins has no videoflip. Only videos that have to be rotated need it, and then the error names it.
#[test]
fn a_missing_videoflip_is_named() {
    common::init();
    let folder = scratch("detect-videoflip");
    let (clip, plugins) = (rotated(&folder), folder.join("plugins"));
    std::fs::create_dir(&plugins).unwrap();
    let installed = gst::Registry::get().find_plugin("coreelements").unwrap().filename().unwrap();
    for name in
        ["coreelements", "typefindfunctions", "playback", "isomp4", "videoparsersbad", "libav", "videoconvertscale"]
    {
        let file = format!("libgst{name}.so");
        std::os::unix::fs::symlink(installed.with_file_name(&file), plugins.join(&file)).unwrap();
    }
    let detect = |clip: &str| {
        let mut program = command(&folder);
        program.args([
            "detect",
            clip,
            "--model",
            &shapes(),
            "--backend",
            "cpu",
            "--no-video",
            "--infer",
            "interval=100",
        ]);
        program.env("GST_PLUGIN_SYSTEM_PATH_1_0", &plugins).env("GST_REGISTRY", folder.join("registry"));
        program.output().unwrap()
    };
    let output = detect(&sample());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = detect(&clip);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("videoflip"), "{}", text(&output.stderr));
}

#[test]
fn frames_without_objects_are_held_like_others() {
    let folder = scratch("detect-nothing");
    // The JSON needs the messages, so they cannot be turned off.
    let properties = "score-threshold=1 post-messages=false";
    let nothing = ["--no-video", "--backend", "cpu", "--infer", "interval=50", "--nms", properties];
    let output = detect(&folder, &sample(), &shapes(), &nothing);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (number, line) in lines(&folder.join("sample-boxes.jsonl")).into_iter().enumerate() {
        assert_eq!((line["held"] == true, &line["detections"]), (number % 50 != 0, &serde_json::json!([])), "{line}");
    }
}

/// What a pipeline publishes says the same of each frame: whether its results are those of an earlier one.
#[test]
fn lines_of_a_pipeline_hold_the_same_frames() {
    const FRAMES: usize = 7;
    let folder = scratch("detect-held");
    let clip = folder.join("clip.avi");
    launch(&format!(
        "videotestsrc num-buffers={FRAMES} ! video/x-raw,width=64,height=64,framerate=30/1 ! jpegenc ! avimux ! filesink location={}",
        clip.display()
    ));
    let depth = Graph::new()
        .input("images", F32, &["1", "3", "16", "16"])
        .node("ReduceMean", &["images"], &["depth"], vec![ints("axes", &[1]), int("keepdims", 1)])
        .output("depth", F32, &["1", "1", "16", "16"])
        .save(&folder.join("depth.onnx"));
    let [program, pipeline] = ["program.jsonl", "pipeline.jsonl"].map(|name| folder.join(name));
    let held = |file: &Path| lines(file).iter().map(|line| line["held"].as_bool().unwrap()).collect::<Vec<_>>();
    for (model, nms) in [
        (inner(&folder.join("box.onnx"), "cup"), ""),
        (classifier(&folder.join("classes.onnx"), "bright", "dark"), ""),
        (embedder(&folder.join("vector.onnx")), "layout=embed"),
        (reader(&folder.join("reader.onnx")), ""),
        (depth, "layout=depth"),
    ] {
        let more =
            ["--no-video", "--backend", "rten", "--infer", "interval=3", "--nms", nms, "--json", "program.jsonl"];
        let output = detect(&folder, "clip.avi", &model, &more);
        assert!(output.status.success(), "{model}: {}", text(&output.stderr));
        let _ = std::fs::remove_file(&pipeline); // lines are added to a file that is there
        launch(&format!(
            "filesrc location={} ! decodebin ! videoconvert ! trtpreprocess ! trtinfer backend=rten interval=3 model-file={model} \
             ! trtnms {nms} ! trtpublish location={} add-empty-results=true ! fakesink",
            clip.display(),
            pipeline.display()
        ));
        let wanted: Vec<bool> = (0..FRAMES).map(|frame| frame % 3 != 0).collect();
        assert_eq!([held(&program), held(&pipeline)], [wanted.clone(), wanted], "{model}");
    }
}

#[test]
fn help_is_no_failure() {
    for args in [&["--help"][..], &["detect", "--help"], &["help", "detect"], &["--version"]] {
        let output = common::run(&scratch("detect-help"), args);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn failures_are_one_sentence_and_leave_nothing() {
    let inputs = scratch("detect-inputs");
    let file = |name: &str, bytes: &[u8]| -> String {
        let path: PathBuf = inputs.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let (sample, shapes) = (sample(), shapes());
    let (sample, model) = (sample.as_str(), shapes.as_str());
    let notes = file("notes.txt", b"no video, only words\n");
    let empty = file("empty.mp4", b"");
    let cut = file("cut.mp4", &std::fs::read(sample).unwrap()[..20_000]);
    let junk = file("junk.onnx", b"junk");
    let latin1 = file("latin1.txt", b"caf\xe9\n");
    let three = file("three.txt", b"a\nb\nc\n");
    let broken = file("broken.jpg", b"no image");
    let empty_image = file("empty.png", b"");
    let folders = inputs.display().to_string();
    let hollow = inputs.join("hollow").display().to_string();
    std::fs::create_dir(&hollow).unwrap();
    let words = inputs.join("words").display().to_string();
    std::fs::create_dir(&words).unwrap();
    std::fs::write(inputs.join("words/a.txt"), "words").unwrap();
    let all_broken = inputs.join("all-broken").display().to_string();
    std::fs::create_dir(&all_broken).unwrap();
    for name in ["a.jpg", "b.png"] {
        std::fs::write(inputs.join("all-broken").join(name), "no image").unwrap();
    }
    let sound = inputs.join("sound.wav").display().to_string();
    launch(&format!("audiotestsrc num-buffers=10 ! wavenc ! filesink location={sound}"));
    let volumes =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("volumes", &[1, 2, 2, 2, 2], &[0.0; 16]);
    let volumes = volumes.save(&inputs.join("volumes.onnx"));
    let pattern = format!("{folders}/*.nothing");

    let folder = scratch("detect-failures");
    for (source, model, more, says) in [
        ("/nowhere.mp4", model, &[][..], &["There is no file /nowhere.mp4"][..]),
        (sample, "/nowhere.onnx", &[], &["There is no file /nowhere.onnx"]),
        (&hollow, model, &[], &["hollow is empty"]),
        (&words, model, &[], &["There is no image", "words", "jpg, jpeg"]),
        (&all_broken, model, &[], &["None of 2 images can be read"]),
        (&broken, model, &[], &["Cannot read", "broken.jpg"]),
        (&empty_image, model, &[], &["Cannot read", "empty.png"]),
        (&pattern, model, &[], &["No file matches the pattern", "*.nothing"]),
        ("a[.jpg", model, &[], &["Cannot use the pattern a[.jpg"]),
        ("", model, &[], &["There is no file"]),
        (sample, &folders, &[], &[&folders, "is a folder"]),
        (sample, "http://127.0.0.1/m.onnx", &[], &["is a URI"]),
        ("nothing://127.0.0.1/a", model, &[], &["nothing://127.0.0.1/a", "no element"]),
        ("rtsp://me:secret@127.0.0.1:9/a", model, &[], &["Cannot read rtsp://***@127.0.0.1:9/a"]),
        ("file:///nowhere.mp4", model, &[], &["There is no file /nowhere.mp4"]),
        ("/dev/null", model, &[], &["/dev/null", "is a device", "/dev/video0"]),
        (sample, model, &["--labels", "/nowhere.txt"], &["There is no file /nowhere.txt"]),
        (&notes, model, &[], &["Cannot read", "notes.txt"]),
        (&empty, model, &[], &["Cannot read", "empty.mp4"]),
        (&cut, model, &[], &["Cannot read", "cut.mp4: it is cut off, 20000 of ", "Copy or record it again"]),
        (&sound, model, &[], &["Cannot read", "sound.wav", "there is no video in it"]),
        (sample, &junk, &[], &["junk.onnx", "ONNX"]),
        (sample, &volumes, &[], &["volumes f32 1x2x2x2x2"]),
        (sample, sample, &[], &["sample.mp4", "ONNX"]),
        (sample, model, &["--labels", &latin1], &["latin1.txt is not UTF-8"]),
        (sample, model, &["--labels", &three], &["2 classes", "3 labels"]),
        (sample, model, &["--slices", "3"], &["slices=3 is not columns and rows. Write them like 3x2"]),
        (sample, model, &["--slices", "0x2"], &["slices=0x2", "like 3x2"]),
        (sample, model, &["--nms", "score-threshold=lots"], &["score-threshold", "lots"]),
        (sample, model, &["--infer", "colour=red"], &["colour"]),
        (sample, model, &["--infer", "intervall=2"], &["intervall", "did you mean “interval”?"]),
        (sample, model, &["--infer", "!"], &["Cannot make the pipeline"]),
        (sample, model, &["--nms", "layout-file="], &["--nms: layout-file has no value: write layout-file=VALUE"]),
        (sample, model, &["--infer", "interval=2 engine-cache= "], &["--infer: engine-cache has no value"]),
        (sample, model, &["--preprocess", "slices='2x2"], &["--preprocess: the value of slices has no end: '2x2"]),
        (sample, model, &["--nms", "layout-file=a\\"], &["--nms: the value of layout-file has no end: a\\"]),
        (sample, model, &["--output", "/nowhere/x.mp4"], &["Cannot write /nowhere/x.mp4: its folder is not there"]),
        (sample, model, &["--output", "x.avi"], &["Cannot write x.avi", ".mp4 or .mkv"]),
        (sample, model, &["--output", "x.jpg"], &["Cannot write x.jpg", ".mp4 or .mkv"]),
        (&broken, model, &["--output", "x.mp4"], &["Cannot write images to the video x.mp4: give a folder"]),
        (&all_broken, model, &["--output", "x.jpg"], &["Cannot write 2 images to the file x.jpg: give a folder"]),
        (&broken, model, &["--output", "x.webp"], &["Cannot write x.webp: images are written as .jpg or .png"]),
        (&broken, model, &[sample, "--output", "x.mp4"], &["several sources to the file x.mp4: give a folder"]),
        (&broken, model, &["--output", "/nowhere/x.jpg"], &["/nowhere/x.jpg", "its folder is not there"]),
        ("fd://0", model, &[], &["Cannot read fd://0", "fd:// is on this machine"]),
        ("77", model, &[], &["There is no camera /dev/video77", "Cameras are /dev/video0"]),
        ("/dev/video99", model, &[], &["There is no file /dev/video99", "Cameras are /dev/video0"]),
        (sample, model, &["--json", "/nowhere/x.jsonl"], &["/nowhere/x.jsonl"]),
        (sample, model, &["--output", sample], &["sample.mp4 would be overwritten"]),
        (sample, model, &["--json", model], &["shapes-160.onnx would be overwritten"]),
        (sample, model, &["--output", "x.mkv", "--json", "x.mkv"], &["Two results would be written to x.mkv"]),
    ] {
        let output = detect(&folder, source, model, more);
        let args = [&[source, model], more].concat();
        expect_failure(&output, &args, says);
        assert!(!text(&output.stderr).contains("secret"), "{}", text(&output.stderr));
        assert_eq!(output.stdout, b"", "{args:?}");
        assert_eq!(files(&folder), [""; 0], "{args:?}");
    }
    assert!(std::fs::metadata(sample).unwrap().len() > 900_000);
}

/// A device or a pipe gets the lines; a file that is moved to its place would be the end of it.
#[test]
fn devices_and_pipes_get_the_lines() {
    use std::os::unix::fs::FileTypeExt;
    let folder = scratch("detect-devices");
    let (sample, shapes) = (sample(), shapes());
    let args =
        |json: &'static str| ["detect", &sample, "--model", &shapes, "--frames", "3", "--no-video", "--json", json];
    succeed(&folder, &args("/dev/null"));
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let output = succeed(&folder, &args("/dev/stdout"));
    let lines = text(&output.stdout).lines().filter(|line| line.starts_with('{')).count();
    assert_eq!((lines, files(&folder)), (3, Vec::<String>::new()));
}

/// Those that are in the decoder when no more are wanted do not come out of it, and are as they should be.
#[test]
fn frames_that_nobody_wants_are_not_damaged() {
    let folder = scratch("detect-few-frames");
    for frames in 1..=8 {
        let count = frames.to_string();
        let output = succeed(
            &folder,
            &["detect", &sample(), "--model", &shapes(), "--infer", "interval=8", "--no-video", "--frames", &count],
        );
        assert!(!text(&output.stderr).contains("Warning"), "{frames} frames: {}", text(&output.stderr));
    }
}

#[test]
fn wrong_command_lines_have_a_status_of_their_own() {
    let folder = scratch("detect-usage");
    let (sample, shapes) = (sample(), shapes());
    for (args, says) in [
        (&[][..], &["Usage: gst-trt"][..]),
        (&["detekt"], &["detekt", "detect"]),
        (&["detect"], &["--model", "SOURCE"]),
        (&["detect", &sample], &["--model"]),
        (&["detect", "--model", &shapes], &["SOURCE"]),
        (&["detect", &sample, "--model", &shapes, "--bogus"], &["--bogus"]),
        (&["detect", &sample, "--model", &shapes, "--outpt", "x"], &["--outpt", "--output"]),
        (&["detect", &sample, "--model", &shapes, "--backend", "abacus"], &["abacus", "tensorrt"]),
        (&["detect", &sample, "--model", &shapes, "--track=abacus"], &["abacus", "bytetrack"]),
        (&["detect", &sample, "--model", &shapes, "--frames", "0"], &["--frames"]),
        (&["detect", &sample, "--model", &shapes, "--timeout", "few"], &["--timeout", "few", "give seconds"]),
        (&["detect", &sample, "--model", &shapes, "--timeout=-1"], &["--timeout", "give seconds"]),
        (&["detect", &sample, "--model", &shapes, "--timeout", "nan"], &["--timeout", "give seconds"]),
        (&["detect", &sample, "--model", &shapes, "--frames", "few"], &["--frames", "few"]),
        (&["detect", &sample, "--model", &shapes, "--no-video", "--output", "x"], &["--no-video", "--output"]),
    ] {
        let output = common::run(&folder, args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(says.iter().all(|part| stderr.contains(part)) && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert_eq!(files(&folder), [""; 0], "{args:?}");
    }
}

#[test]
fn further_models_see_the_objects() {
    let folder = scratch("detect-on-objects");
    let kinds = classifier(&folder.join("kinds.onnx"), "bright", "dark");
    let plates = inner(&folder.join("plates.onnx"), "plate");
    let first = ["--backend", "rten", "--frames", "40", "--infer", "interval=20", "--track"];
    let on_objects = [
        ["--on-objects", &kinds, "--object-options", "object-classes=disc reclassify-interval=30"],
        ["--on-objects", &plates, "--object-options", "object-classes=box score-threshold=0.5"],
    ];
    let output = detect(&folder, &sample(), &shapes(), &[&first[..], &on_objects.concat()].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = lines(&folder.join("sample-boxes.jsonl"));
    assert_eq!(lines.len(), 40);
    let (mut attributes, mut plates) = (0, 0);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["predicted"], number % 20 != 0, "{line}");
        let detections = line["detections"].as_array().unwrap();
        for object in detections {
            let found = object["attributes"].as_array().map_or(0, Vec::len);
            match object["label"].as_str().unwrap() {
                "disc" => attributes += found,
                "plate" => {
                    plates += 1;
                    let parent = &detections[object["parent"].as_u64().unwrap() as usize];
                    assert_eq!(parent["label"], "box", "{line}");
                }
                _ => assert_eq!(found, 0, "{line}"),
            }
        }
    }
    assert!(attributes > 30 && plates > 30, "{attributes} {plates}");
    let summary = text(&output.stdout);
    let words: Vec<_> = summary.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let stages = ["preprocess", "infer", "nms", "preprocess2", "infer2", "nms2", "preprocess3", "infer3", "nms3"];
    assert_eq!(
        words,
        [&["frames", "fps"], &stages[..], &["detections", "attributes", "wrote", "wrote"]].concat(),
        "{summary}"
    );
    assert!(summary.contains("plate "), "{summary}");
    assert!(files(&folder).contains(&"sample-boxes.mp4".into()));
}

/// A text has neither a box nor an object, like a class of a frame.
#[test]
fn texts_of_whole_frames_are_written() {
    let folder = scratch("detect-texts");
    let model = reader(&folder.join("reader.onnx"));
    picture(&folder.join("line.png"), 320, 240);
    let files = ["--output", "drawn.png", "--json", "found.jsonl", "--parquet", "found.parquet"];
    let more = [&["--backend", "rten"][..], &files].concat();
    let output = detect(&folder, "line.png", &model, &more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("Warning"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("detections  Hi 1"), "{}", text(&output.stdout));
    let lines = lines(&folder.join("found.jsonl"));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["texts"], json!([{ "text": "Hi", "confidence": 0.875 }]));
    assert_eq!(lines[0]["detections"], json!([]));
    let (plain, drawn) = (pixels(&folder.join("line.png")), pixels(&folder.join("drawn.png")));
    assert_ne!(plain.2[..3], drawn.2[..3], "it is written in the corner");
    let rows = parquet_tables::rows(&folder.join("found.parquet"));
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((&row["label"], &row["confidence"], &row["frame"]), (&json!("Hi"), &json!(0.875), &json!(0)));
    assert!(row["class_id"].is_null() && row["x"].is_null() && row["error"].is_null(), "{row}");
    let unread = ["--backend", "rten", "--no-video", "--json", "none.jsonl", "--nms", "score-threshold=0.9"];
    let output = detect(&folder, "line.png", &model, &unread);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(common::lines(&folder.join("none.jsonl"))[0].get("texts").is_none(), "nothing was read");
}

#[test]
fn vectors_are_written_where_they_are_wanted() {
    for (more, wanted) in [(&[][..], false), (&["--vectors"], true)] {
        let folder = scratch(&format!("detect-vectors-{wanted}"));
        let vectors = embedder(&folder.join("reid.onnx"));
        let options = ["--no-video", "--frames", "8", "--on-objects", &vectors, "--object-options", "layout=embed"];
        let output = detect(&folder, &sample(), &shapes(), &[&options[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let is_warned =
            text(&output.stderr).contains("reid.onnx gives vectors, and nothing is done with them: --vectors");
        assert_eq!(is_warned, !wanted, "{}", text(&output.stderr));
        let lines = lines(&folder.join("sample-boxes.jsonl"));
        let objects: Vec<_> = lines.iter().flat_map(|line| line["detections"].as_array().unwrap()).collect();
        // Three numbers of four bytes each.
        let is_one = |vector: &str| vector.len() == 16;
        let found = objects.iter().filter(|object| object["vectors"][0].as_str().is_some_and(is_one)).count();
        assert!(!objects.is_empty() && (found > 0) == wanted, "{found} of {}", objects.len());
        // Those of whole frames.
        let options = ["--no-video", "--frames", "2", "--nms", "layout=embed"];
        let output = detect(&folder, &sample(), &vectors, &[&options[..], more].concat());
        let (summary, how) = (text(&output.stdout), if wanted { "" } else { ": --vectors writes them" });
        assert!(summary.contains(&format!("vectors     2{how}\n")) && !summary.contains("detections"), "{summary}");
    }
}

#[test]
fn what_is_wrong_with_a_further_model_is_said_before_anything_is_written() {
    let folder = scratch("detect-on-objects-wrong");
    let kinds = classifier(&folder.join("kinds.onnx"), "bright", "dark");
    let reader = reader(&folder.join("reader.onnx"));
    let vectors = embedder(&folder.join("reid.onnx"));
    let before = files(&folder);
    for (more, parts) in [
        (&["--on-objects", "none.onnx"][..], &["There is no file none.onnx"][..]),
        (&["--on-objects", &kinds, "--object-options", "regions=list"], &["--object-options", "They are the objects"]),
        (&["--on-objects", &kinds, "--object-options", "model-file=x"], &["Use --on-objects"]),
        (&["--on-objects", &kinds, "--object-options", "label-file="], &["--object-options: label-file has no value"]),
        (&["--on-objects", &kinds, "--object-options", "object-clases=disc"], &["did you mean “object-classes”?"]),
        (&["--on-objects", &kinds, "--object-options", "x", "--object-options", "y"], &["more --object-options than"]),
        (&["--on-objects", &kinds, "--json", &kinds], &["would be overwritten"]),
        (
            &["--on-objects", &vectors, "--object-options", "layout=embed", "--parquet", "found.parquet"],
            &["reid.onnx says has no column", "add --vectors", "leave --on-objects out"],
        ),
        (
            &["--parquet", "found.parquet", "--rows", "tracks", "--vectors"],
            &["Rows of tracks have no vectors", "--rows objects"],
        ),
    ] {
        expect_failure(&detect(&folder, &sample(), &shapes(), more), more, parts);
        assert_eq!(files(&folder), before, "{more:?}");
    }
    // Nobody would see that it has no effect.
    for (first, name) in [(&kinds, "kinds.onnx"), (&reader, "reader.onnx")] {
        let more = ["--on-objects", &kinds];
        let none = format!("{name} finds no objects");
        let parts = [none.as_str(), "kinds.onnx is to see them", "give --model a detector"];
        expect_failure(&detect(&folder, &sample(), first, &more), &more, &parts);
        assert_eq!(files(&folder), before, "{name}");
    }
    let alone = detect(&folder, &sample(), &shapes(), &["--object-options", "object-classes=disc"]);
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stderr));
}
