// SPDX-License-Identifier: MPL-2.0
//! `gst-trt detect` on images, several sources, pipes; with trackers and slices; and its end by signals.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use gst::prelude::*;

use common::{
    command, expect_failure, files, launch, lines, picture, pixels, run, sample, scratch, shapes, succeed, text,
};
use serde_json::Value;

/// `detect … --model` the detector of shapes, in that folder, where it works.
fn detect(folder: &Path, args: &[&str]) -> Output {
    succeed(folder, &[&["detect", "--model", &shapes(), "--backend", "cpu"], args].concat())
}

fn labels(line: &Value) -> BTreeSet<&str> {
    line["detections"].as_array().unwrap().iter().map(|object| object["label"].as_str().unwrap()).collect()
}

#[test]
fn images_of_any_size_and_kind_become_images() {
    let folder = scratch("images");
    let photos = folder.join("photos");
    std::fs::create_dir(&photos).unwrap();
    for (name, width, height) in
        [("10.jpg", 640, 360), ("9.png", 320, 180), ("2.JPEG.jpg", 201, 333), ("x.ppm", 97, 51)]
    {
        picture(&photos.join(name), width, height);
    }
    std::fs::write(photos.join("notes.txt"), "no image").unwrap();
    let output = detect(&folder, &["photos/"]);
    assert_eq!(files(&folder), ["photos", "photos-boxes", "photos-boxes.jsonl"]);
    assert_eq!(files(&folder.join("photos-boxes")), ["10.jpg", "2.JPEG.jpg", "9.png", "x.ppm.png"]);
    let lines = lines(&folder.join("photos-boxes.jsonl"));
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            (line["source"].as_str().unwrap(), line["width"].as_u64().unwrap(), line["height"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("photos/2.JPEG.jpg", 201, 333),
            ("photos/9.png", 320, 180),
            ("photos/10.jpg", 640, 360),
            ("photos/x.ppm", 97, 51)
        ]
    );
    assert!(lines[1..3].iter().all(|line| labels(line) == BTreeSet::from(["box", "disc"])), "{lines:?}");
    assert!(text(&output.stdout).contains("frames      4\n"), "{}", text(&output.stdout));
    // Boxes are drawn, on an image of the same size.
    let drawn = folder.join("photos-boxes/10.jpg");
    launch(&format!(
        "filesrc location={} ! jpegdec ! videoconvert ! video/x-raw,format=GRAY8,width=640,height=360 ! fakesink",
        drawn.display()
    ));
    assert_ne!(std::fs::read(drawn).unwrap(), std::fs::read(photos.join("10.jpg")).unwrap());
}

/// As cameras write them.
#[test]
fn endings_may_be_in_capital_letters() {
    let folder = scratch("images-capitals");
    std::fs::create_dir(folder.join("DCIM")).unwrap();
    picture(&folder.join("DCIM/P1.JPG"), 64, 48);
    detect(&folder, &["DCIM"]);
    assert_eq!(files(&folder.join("DCIM-boxes")), ["P1.JPG"]);
    detect(&folder, &["DCIM/P1.JPG", "--output", "ONE.JPG"]);
    assert!(folder.join("ONE.JPG").is_file());
}

#[test]
fn pictures_of_phones_are_upright_and_other_kinds_are_read() {
    let folder = scratch("images-kinds");
    let sample = sample();
    let write = |encoder: &str, name: &str| {
        launch(&format!(
            "filesrc location={sample} ! decodebin ! identity eos-after=2 ! videoconvert ! {encoder} ! filesink location={}",
            folder.join(name).display()
        ));
    };
    write("jpegenc ! taginject tags=image-orientation=rotate-90 ! jifmux", "phone.jpg");
    write("jpegenc", "100%d.jpg");
    write("avenc_bmp", "a.bmp");
    write("avenc_tiff", "a.tif");
    for (name, size) in
        [("phone.jpg", (360, 640)), ("100%d.jpg", (640, 360)), ("a.bmp", (640, 360)), ("a.tif", (640, 360))]
    {
        let output = detect(&folder, &[name, "--output", "one.jpg", "--json", "one.jsonl"]);
        let lines = lines(&folder.join("one.jsonl"));
        let seen: Vec<_> = lines.iter().map(|line| (line["width"].as_u64(), line["height"].as_u64())).collect();
        assert_eq!(seen, [(Some(size.0), Some(size.1))], "{name}");
        assert!(!lines[0]["detections"].as_array().unwrap().is_empty(), "{name}");
        // Of the first frame there is no time.
        let words: Vec<_> = text(&output.stdout).lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(words, ["frames", "detections", "wrote", "wrote"], "{name}");
        let drawn = format!("filesrc location={} ! jpegdec ! video/x-raw", folder.join("one.jpg").display());
        launch(&format!("{drawn},width={},height={} ! fakesink", size.0, size.1));
    }
}

/// As of cameras that count their pictures from 1 on.
#[test]
fn images_of_one_name_in_several_folders_are_all_written() {
    let folder = scratch("images-of-one-name");
    let given = [("a/1.png", 320), ("b/1.png", 160)];
    for (name, width) in given {
        std::fs::create_dir(folder.join(name).parent().unwrap()).unwrap();
        picture(&folder.join(name), width, 90);
    }
    let args = ["detect", "--model", &shapes(), "--backend", "cpu", "--output", "found", "a/1.png", "b/1.png"];
    succeed(&folder, &args);
    assert_eq!(files(&folder.join("found")), ["1-2.png", "1.png"]);
    for (name, width) in [("found/1.png", 320), ("found/1-2.png", 160)] {
        assert_eq!(pixels(&folder.join(name)).0, width, "{name}");
    }
    // None takes the place of another source.
    let args = ["detect", "--model", &shapes(), "--backend", "cpu", "--output", "b", "a/1.png", "b/1.png"];
    expect_failure(&run(&folder, &args), &args, &["b/1.png would be overwritten"]);
    assert_eq!(pixels(&folder.join("b/1.png")).0, 160);
}

/// As `gst-trt detect *` in a folder with the results of before.
#[test]
fn a_folder_of_pictures_is_no_place_for_the_results_of_another_one() {
    let folder = scratch("images-among-others");
    for (name, width) in [("a/1.png", 320), ("a-boxes/1.png", 160), ("a-boxes/2.png", 160)] {
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        picture(&folder.join(name), width, 90);
    }
    let args = ["detect", "--model", &shapes(), "--backend", "cpu", "a", "a-boxes"];
    let parts = ["The images of a would be written to a-boxes, where those of another source are", "--output"];
    expect_failure(&run(&folder, &args), &args, &parts);
    assert_eq!(files(&folder), ["a", "a-boxes"]);
    assert_eq!((files(&folder.join("a-boxes")).len(), pixels(&folder.join("a-boxes/1.png")).0), (2, 160));
    succeed(&folder, &[&args[..], &["--output", "found"]].concat());
    assert_eq!(files(&folder.join("found")), ["a-boxes", "a-boxes-boxes"]);
    assert_eq!(pixels(&folder.join("a-boxes/1.png")).0, 160);
}

#[test]
fn broken_images_are_named_and_left_out() {
    let folder = scratch("images-broken");
    for name in ["a.jpg", "c.png"] {
        picture(&folder.join(name), 320, 180);
    }
    std::fs::write(folder.join("b.jpg"), "no image").unwrap();
    let cut = std::fs::read(folder.join("c.png")).unwrap();
    std::fs::write(folder.join("d.png"), &cut[..60]).unwrap();
    std::fs::write(folder.join("e.jpg"), "").unwrap();
    let args =
        ["detect", "--model", &shapes(), "--backend", "cpu", "--output", "found", "--json", "found.jsonl", "*.[jp]*g"];
    let output = run(&folder, &args);
    expect_failure(&output, &args, &["3 of 5 images cannot be read"]);
    for name in ["b.jpg", "d.png", "e.jpg"] {
        assert!(text(&output.stderr).contains(&format!("Warning: Cannot read {name}: ")), "{}", text(&output.stderr));
    }
    assert_eq!(files(&folder.join("found")), ["a.jpg", "c.png"]);
    assert_eq!(lines(&folder.join("found.jsonl")).len(), 2);
    // Images are not written over.
    let args = ["detect", "--model", &shapes(), "--backend", "cpu", "--output", ".", "a.jpg"];
    expect_failure(&run(&folder, &args), &args, &["a.jpg would be overwritten"]);
    assert_eq!(lines(&folder.join("found.jsonl")).len(), 2);
}

/// As a shell writes the names of an archive into the command line: one that is no text, and a link that leads nowhere.
#[test]
fn what_a_shell_names_may_be_no_text_and_lead_nowhere() {
    let folder = scratch("names-of-a-shell");
    let sample = std::fs::canonicalize(sample()).unwrap();
    let caf = OsStr::from_bytes(b"caf\xe9.mp4");
    symlink(&sample, folder.join(caf)).unwrap();
    symlink(&sample, folder.join("good.mp4")).unwrap();
    symlink("nowhere", folder.join("gone.mp4")).unwrap();
    std::fs::create_dir(folder.join("photos")).unwrap();
    picture(&folder.join("photos/a.jpg"), 64, 48);
    symlink("nowhere", folder.join("photos/b.jpg")).unwrap();
    let mut program = command(&folder);
    program.args([
        "detect",
        "--model",
        &shapes(),
        "--backend",
        "cpu",
        "--frames",
        "2",
        "--no-video",
        "--json",
        "all.jsonl",
    ]);
    program.arg(caf).args(["gone.mp4", "good.mp4", "photos", "file:caf"]);
    let output = program.output().unwrap();
    // What is not there at all is probably a slip of the keyboard.
    assert!(text(&output.stderr).contains("file:caf"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    let mut program = command(&folder);
    program.args([
        "detect",
        "--model",
        &shapes(),
        "--backend",
        "cpu",
        "--frames",
        "2",
        "--no-video",
        "--json",
        "all.jsonl",
    ]);
    program.arg(caf).args(["gone.mp4", "good.mp4", "photos"]);
    program.arg(format!("file://{}/caf%E9.mp4", folder.display()));
    let output = program.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Warning: Cannot read gone.mp4: it is a link to a file that is not there."), "{said}");
    assert!(said.contains("Warning: Cannot read photos/b.jpg: it is a link to a file that is not there."), "{said}");
    assert!(said.contains("1 of 5 sources have no results; the others are done."), "{said}");
    let lines = lines(&folder.join("all.jsonl"));
    let sources: Vec<&str> = lines.iter().filter_map(|line| line["source"].as_str()).collect();
    let (whole, short) = (format!("{}/caf\\xe9.mp4", folder.display()), "caf\\xe9.mp4");
    assert_eq!(sources, [short, short, "good.mp4", "good.mp4", "photos/a.jpg", &whole, &whole]);
}

#[test]
fn a_video_that_is_cut_off_is_said() {
    let folder = scratch("cut-off");
    launch(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! mp4mux faststart=true ! filesink location={}",
        sample(),
        folder.join("whole.mp4").display()
    ));
    let whole = std::fs::read(folder.join("whole.mp4")).unwrap();
    let there = whole.len() / 2;
    std::fs::write(folder.join("half.mp4"), &whole[..there]).unwrap();
    let output = detect(&folder, &["half.mp4", "--no-video", "--infer", "interval=100"]);
    let said = format!("Warning: half.mp4 is cut off: {there} of {} bytes are there.", whole.len());
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    let count = lines(&folder.join("half-boxes.jsonl")).len();
    assert!((100..300).contains(&count), "{count}");
    let output = detect(&folder, &["whole.mp4", "--no-video", "--infer", "interval=100"]);
    assert!(!text(&output.stderr).contains("Warning"), "{}", text(&output.stderr));
}

#[test]
fn frames_of_another_size_are_scaled_to_that_of_the_first() {
    let folder = scratch("sizes");
    let sizes = [(640, 360), (320, 180), (642, 358)];
    let parts: String = sizes
        .iter()
        .map(|(width, height)| {
            format!("videotestsrc num-buffers=15 ! video/x-raw,width={width},height={height},framerate=15/1 ! c. ")
        })
        .collect();
    let file = folder.join("sizes.ts");
    launch(&format!(
        "concat name=c ! x264enc speed-preset=ultrafast bframes=0 ! mpegtsmux ! filesink location={} {parts}",
        file.display()
    ));
    for output in ["a.mp4", "b.mkv"] {
        detect(&folder, &["sizes.ts", "--output", output, "--json", "found.jsonl", "--infer", "interval=15"]);
        let lines = lines(&folder.join("found.jsonl"));
        let seen: BTreeSet<_> = lines.iter().map(|line| (line["width"].as_u64(), line["height"].as_u64())).collect();
        assert_eq!(seen, BTreeSet::from(sizes.map(|(width, height)| (Some(width), Some(height)))), "{output}");
        let video = folder.join(output);
        let frames = video.with_extension("jsonl");
        launch(&format!(
            "filesrc location={} ! decodebin ! video/x-raw,width=640,height=360 ! trtpublish location={} \
             add-empty-results=true ! fakesink",
            video.display(),
            frames.display()
        ));
        assert_eq!(std::fs::read_to_string(frames).unwrap().lines().count(), lines.len(), "{output}");
    }
}

/// The first is read. Each takes a decoder.
#[test]
fn a_file_has_so_many_videos_and_no_more() {
    let folder = scratch("videos");
    for (count, is_read) in [(3, true), (40, false)] {
        let file = folder.join(format!("{count}.mkv"));
        let size = |number: usize| if number == 0 { "width=320,height=180" } else { "width=64,height=48" };
        let videos = (0..count).map(|number| {
            format!("videotestsrc num-buffers=5 ! video/x-raw,{} ! jpegenc ! m.video_{number} ", size(number))
        });
        launch(&format!("matroskamux name=m ! filesink location={} {}", file.display(), videos.collect::<String>()));
        let file = file.display().to_string();
        let args = ["detect", &file, "--model", &shapes(), "--backend", "cpu", "--no-video", "--json", "out.jsonl"];
        let output = run(&folder, &args);
        if is_read {
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(lines(&folder.join("out.jsonl")).iter().all(|line| line["width"] == 320));
        } else {
            expect_failure(&output, &args, &["it has more than 16 videos."]);
        }
    }
}

#[test]
fn several_sources_have_results_of_their_own() {
    let folder = scratch("several");
    for name in ["one", "two"] {
        std::fs::create_dir(folder.join(name)).unwrap();
        std::os::unix::fs::symlink(sample(), folder.join(name).join("clip.mp4")).unwrap();
    }
    let clips = ["one/clip.mp4", "two/clip.mp4", "--frames", "3"];
    detect(&folder, &[&clips[..], &["--output", "out"]].concat());
    assert_eq!(files(&folder.join("out")), ["sample-2-boxes.mp4", "sample-boxes.mp4"]);
    assert_eq!(files(&folder), ["one", "out", "sample-2-boxes.jsonl", "sample-boxes.jsonl", "two"]);
    let output = detect(&folder, &[&clips[..], &["--no-video", "--json", "all.jsonl", "--nms", "top-k=3"]].concat());
    for text_of_model in ["Loading shapes-160.onnx", "Loaded shapes-160.onnx", "Warning: top-k has no effect"] {
        let count = text(&output.stderr).lines().filter(|line| line.starts_with(text_of_model)).count();
        assert_eq!(count, 1, "{text_of_model}: {}", text(&output.stderr));
    }
    for source in ["one/clip.mp4", "two/clip.mp4"] {
        let begin = format!("source      {source}\nframes      3\n");
        assert!(text(&output.stdout).contains(&begin), "{}", text(&output.stdout));
    }
    let all = lines(&folder.join("all.jsonl"));
    let sources: Vec<&str> = all.iter().map(|line| line["source"].as_str().unwrap()).collect();
    assert_eq!(
        sources,
        ["one/clip.mp4", "one/clip.mp4", "one/clip.mp4", "two/clip.mp4", "two/clip.mp4", "two/clip.mp4"]
    );
    // A source that cannot be read does not keep others from it.
    std::fs::write(folder.join("broken.mp4"), "no video").unwrap();
    let args = [
        "detect",
        "--model",
        &shapes(),
        "--backend",
        "cpu",
        "--no-video",
        "--frames",
        "2",
        "broken.mp4",
        "one/clip.mp4",
    ];
    let output = run(&folder, &args);
    expect_failure(&output, &args, &["1 of 2 sources have no results; the others are done"]);
    assert!(text(&output.stderr).contains("Warning: Cannot read broken.mp4: "), "{}", text(&output.stderr));
    assert_eq!(lines(&folder.join("sample-boxes.jsonl")).len(), 2);
    // A wrong model is said once.
    let args = ["detect", "--model", "broken.onnx", "--no-video", "one/clip.mp4", "two/clip.mp4"];
    std::fs::write(folder.join("broken.onnx"), "no model").unwrap();
    let output = run(&folder, &args);
    expect_failure(&output, &args, &["broken.onnx"]);
    assert!(!text(&output.stderr).contains("Warning: Cannot"), "{}", text(&output.stderr));
}

#[test]
fn objects_get_ids_and_slices_are_looked_at() {
    let folder = scratch("tracked");
    let output =
        detect(&folder, &[&sample(), "--track=ocsort", "--slices", "2x1", "--frames", "8", "--infer", "interval=4"]);
    assert_eq!(files(&folder), ["sample-boxes.jsonl", "sample-boxes.mp4"], "{}", text(&output.stderr));
    let tracked = lines(&folder.join("sample-boxes.jsonl"));
    assert_eq!(tracked.len(), 8);
    assert!(tracked.iter().all(|line| line["predicted"].is_boolean()));
    detect(&folder, &[&sample(), "--track", "--frames", "4", "--no-video"]);
    for line in &lines(&folder.join("sample-boxes.jsonl"))[2..] {
        let objects = line["detections"].as_array().unwrap();
        let ids: BTreeSet<u64> = objects.iter().filter_map(|object| object["track-id"].as_u64()).collect();
        assert!(ids.len() > 3 && ids.len() <= objects.len(), "{line}");
    }
    // One tensor for each slice and one for the frame: small objects are larger in slices.
    detect(&folder, &[&sample(), "--frames", "1", "--no-video", "--slices", "3x2", "--nms", "score-threshold=0.1"]);
    assert!(labels(&lines(&folder.join("sample-boxes.jsonl"))[0]).contains("disc"));
}

#[test]
fn a_video_comes_in_and_lines_go_out_by_pipes() {
    let folder = scratch("piped");
    // As a stream that cannot be sought in.
    launch(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! mpegtsmux ! filesink location={}",
        sample(),
        folder.join("clip.ts").display()
    ));
    let args = [
        "detect",
        "-",
        "--model",
        &shapes(),
        "--backend",
        "cpu",
        "--no-video",
        "--json",
        "-",
        "--infer",
        "interval=100",
    ];
    let mut program = command(&folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, clip) = (program.stdin.take().unwrap(), std::fs::read(folder.join("clip.ts")).unwrap());
    let writer = std::thread::spawn(move || input.write_all(&clip));
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    writer.join().unwrap().unwrap();
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 290, "{}", lines.len());
    assert!(text(&output.stderr).contains("frames      "), "the summary is no line: {}", text(&output.stderr));
    assert_eq!(files(&folder), ["clip.ts"]);
}

/// A writer that opens a pipe once, writes to it and closes it, as `ffmpeg … pipe.h264` does, is read from its first byte to
/// its last.
#[test]
fn a_named_pipe_gives_all_that_is_written_to_it_once() {
    let folder = scratch("named-pipe");
    let frames = format!("filesrc location={} ! qtdemux ! h264parse config-interval=-1", sample());
    for (kind, chain) in [
        ("h264", "video/x-h264,stream-format=byte-stream,alignment=au"),
        ("ts", "mpegtsmux"),
        ("mjpeg", "avdec_h264 ! videoscale ! video/x-raw,width=64,height=48 ! jpegenc"),
    ] {
        let (clip, pipe) = (folder.join("clip").with_extension(kind), folder.join("pipe").with_extension(kind));
        launch(&format!("{frames} ! {chain} ! filesink location={}", clip.display()));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let bytes = std::fs::read(&clip).unwrap();
        let to = pipe.clone();
        let writer = std::thread::spawn(move || std::fs::write(to, bytes));
        let pipe = pipe.file_name().unwrap().to_str().unwrap();
        detect(&folder, &[pipe, "--no-video", "--json", "out.jsonl", "--infer", "interval=300"]);
        writer.join().unwrap().unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(lines(&folder.join("out.jsonl")).len(), 300, "{kind}");
    }
}

/// Ctrl+C in the middle of a video, after its first lines.
fn interrupt(name: &str, signal: i32, status: i32) {
    let folder = scratch(name);
    let args = ["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--json", "-"];
    let mut program = command(&folder).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        out.next().unwrap().unwrap();
    }
    // SAFETY: it is our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, signal) }, 0);
    let more = out.count();
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    assert!(more < 290, "{more}");
    assert_eq!(files(&folder), ["sample-boxes.mp4"]);
    // It is a whole video, of as many frames as there are lines.
    let video = folder.join("sample-boxes.mp4");
    launch(&format!("filesrc location={} ! decodebin ! fakesink", video.display()));
}

/// Two streams, which are read side by side until Ctrl+C.
#[test]
fn streams_are_read_until_ctrl_c() {
    let folder = scratch("live");
    common::init();
    let port = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports = [port(), port()];
    let senders = ports.map(|port| {
        let line = format!(
            "videotestsrc is-live=true ! video/x-raw,width=320,height=180,framerate=15/1 ! x264enc speed-preset=ultrafast tune=zerolatency key-int-max=5 \
             ! mpegtsmux ! udpsink host=127.0.0.1 port={port}"
        );
        let pipeline = gst::parse::launch(&line).unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        pipeline
    });
    let uris = ports.map(|port| format!("udp://127.0.0.1:{port}"));
    let args = ["detect", &uris[0], &uris[1], "--model", &shapes(), "--backend", "cpu", "--json", "-"];
    let mut program = command(&folder).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let line: Value = serde_json::from_str(&out.next().unwrap().unwrap()).unwrap();
        seen.insert(line["source"].as_str().unwrap().to_string());
    }
    // SAFETY: it is our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGINT) }, 0);
    let _rest = out.count();
    let output = program.wait_with_output().unwrap();
    for sender in &senders {
        sender.set_state(gst::State::Null).unwrap();
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(seen, BTreeSet::from(uris));
    let videos = files(&folder);
    assert_eq!(videos.len(), 2, "{videos:?}");
    for video in videos {
        launch(&format!("filesrc location={} ! decodebin ! fakesink", folder.join(video).display()));
    }
}

#[test]
fn ctrl_c_ends_the_file_cleanly() {
    interrupt("interrupted", libc::SIGINT, 130);
}

#[test]
fn ctrl_c_before_the_first_frame_leaves_nothing() {
    let folder = scratch("interrupted-early");
    let args = ["detect", "-", "--model", &shapes(), "--backend", "cpu"];
    let streams = || Stdio::piped();
    let mut program = command(&folder).args(args).stdin(streams()).stdout(streams()).stderr(streams()).spawn().unwrap();
    let mut errors = BufReader::new(program.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(errors.any(|line| line.starts_with("Loaded shapes-160.onnx")), "it waits for its input now");
    // SAFETY: it is our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGINT) }, 0);
    let last = errors.last().unwrap_or_default();
    assert_eq!(program.wait().unwrap().code(), Some(130), "{last}");
    assert_eq!(last, "Error: standard input was stopped before its first frame was done.");
    assert_eq!(files(&folder), [""; 0]);
}

#[test]
fn sigterm_ends_the_file_cleanly() {
    interrupt("terminated", libc::SIGTERM, 143);
}

#[test]
fn the_end_of_the_terminal_ends_the_file_cleanly() {
    interrupt("hung-up", libc::SIGHUP, 129);
}

/// It is there so that the program goes on.
#[test]
fn nohup_keeps_its_meaning() {
    let folder = scratch("nohup");
    let mut program = command(&folder);
    program.args(["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--no-video", "--json", "-"]);
    program.args(["--infer", "interval=300"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: it is one call of the system, which may come between fork and exec.
    unsafe {
        program.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_IGN) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut program = program.spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap()).lines();
    out.next().unwrap().unwrap();
    // SAFETY: it is our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGHUP) }, 0);
    assert_eq!(1 + out.count(), 300);
    assert_eq!(program.wait().unwrap().code(), Some(0));
}
