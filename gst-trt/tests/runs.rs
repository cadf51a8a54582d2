// SPDX-License-Identifier: MPL-2.0
//! What a run says of itself: its status, its warnings and its figures, also where it is ended early.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use common::service::Service;
use common::terminal::{in_terminal, in_terminal_with, signal, wait_for_handlers};
use common::{command, expect_failure, files, lines, path, picture, run, sample, scratch, shapes, succeed, text};

/// It waits for whoever reads its lines, and has begun nothing then.
#[test]
fn ctrl_c_before_anything_is_begun_is_no_success() {
    for (number, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let folder = scratch(&format!("run-early-{number}"));
        assert!(Command::new("mkfifo").arg(folder.join("lines")).status().unwrap().success());
        let args = ["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--json", "lines"];
        let child = command(&folder).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_handlers(&child);
        signal(&child, number);
        let mut read = String::new();
        File::open(folder.join("lines")).unwrap().read_to_string(&mut read).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        let said = format!("Error: {} was stopped before its first frame was done.\n", sample());
        assert!(text(&output.stderr).ends_with(&said), "{}", text(&output.stderr));
        assert_eq!((read.as_str(), files(&folder)), ("", vec!["lines".to_string()]));
    }
}

/// Those that were done before stay.
#[test]
fn ctrl_c_before_the_last_source_is_no_success() {
    let folder = scratch("run-second");
    assert!(Command::new("mkfifo").arg(folder.join("b.ts")).status().unwrap().success());
    picture(&folder.join("a.jpg"), 320, 180);
    let args = ["detect", "a.jpg", "b.ts", "--model", &shapes(), "--backend", "cpu", "--no-video", "--json", "-"];
    let mut child = command(&folder).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    out.next().unwrap().unwrap();
    signal(&child, libc::SIGINT);
    assert_eq!(out.count(), 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
}

/// What the decoder makes nothing of, and what the parser before it leaves out.
#[test]
fn frames_that_are_damaged_are_counted() {
    let folder = scratch("run-damaged");
    let whole = std::fs::read(sample()).unwrap();
    let data = whole.windows(4).position(|four| four == b"mdat").unwrap() + 4;
    for (name, count) in [("much.mp4", 20_000), ("little.mp4", 300)] {
        let mut bytes = whole.clone();
        let room = &mut bytes[data + 20_000..];
        let step = room.len() / 2 / count;
        let mut state = 1u32;
        for number in 0..count {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            room[number * step] ^= (state >> 24) as u8 | 1;
        }
        std::fs::write(folder.join(name), bytes).unwrap();
        let args = ["detect", name, "--model", &shapes(), "--backend", "cpu", "--infer", "interval=300", "--no-video"];
        let output = succeed(&folder, &args);
        let found = lines(&folder.join(name.replace(".mp4", "-boxes.jsonl"))).len();
        let missing = 300 - found;
        assert!(missing > 0, "{name}");
        let last = text(&output.stderr).lines().rfind(|line| line.starts_with("Warning: "));
        let said = last.unwrap_or_else(|| panic!("{name}, {missing} missing: {}", text(&output.stderr)));
        let counted = said.split(' ').nth(1).unwrap().replace("A", "1").parse::<usize>().unwrap();
        // Some are there, and damaged.
        assert!(counted >= missing && said.contains(&format!(" of {name} cannot be decoded")), "{missing}: {said}");
    }
    let args = ["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--infer", "interval=300", "--no-video"];
    let output = succeed(&folder, &args);
    assert!(!text(&output.stderr).contains("Warning"), "{}", text(&output.stderr));
}

/// A folder and a pattern are one source, with many; an image that is named is a source of its own.
#[test]
fn the_number_of_frames_is_that_of_each_source() {
    let folder = scratch("run-frames");
    std::fs::create_dir(folder.join("photos")).unwrap();
    for name in ["1.jpg", "2.jpg", "photos/3.jpg", "photos/4.jpg", "photos/5.jpg"] {
        picture(&folder.join(name), 160, 90);
    }
    let clip = sample();
    for (sources, names) in [
        (&["1.jpg", "2.jpg"][..], &["1.jpg", "2.jpg"][..]),
        (&["1.jpg", &clip, "2.jpg"], &["1.jpg", &clip, "2.jpg"]),
        (&["photos", "1.jpg"], &["photos/3.jpg", "1.jpg"]),
        (&["1.jpg", "photos/*.jpg", "2.jpg"], &["1.jpg", "photos/3.jpg", "2.jpg"]),
        (&["photos"], &["photos/3.jpg"]),
    ] {
        let args = ["--model", &shapes(), "--backend", "cpu", "--no-video", "--frames", "1", "--json", "all.jsonl"];
        succeed(&folder, &[&["detect"], sources, &args].concat());
        let found = lines(&folder.join("all.jsonl"));
        let found: Vec<_> = found.iter().map(|line| line["source"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{sources:?}");
    }
}

#[test]
fn a_tracker_without_its_equals_sign_is_understood() {
    let folder = scratch("run-equals");
    for (option, value) in [("--track", "ocsort"), ("--show", "window")] {
        let args = ["detect", &sample(), "--model", &shapes(), option, value];
        expect_failure(
            &run(&folder, &args),
            &args,
            &[&format!("There is no file {value}"), &format!("write {option}={value}")],
        );
    }
    // It is a source where there is such a file.
    std::fs::copy(sample(), folder.join("iou")).unwrap();
    let args = ["detect", "--model", &shapes(), "--backend", "cpu", "--no-video", "--frames", "1", "--track", "iou"];
    succeed(&folder, &args);
}

/// The first ones are in work at the same time: how soon they come after each other tells nothing.
#[test]
fn of_few_frames_no_rate_is_told() {
    let folder = scratch("run-rate");
    let words = |frames: &str| -> Vec<String> {
        let args = ["detect", &sample(), "--model", &shapes(), "--backend", "rten", "--no-video", "--frames", frames];
        let output = succeed(&folder, &args);
        text(&output.stdout).lines().filter_map(|line| line.split_whitespace().next().map(String::from)).collect()
    };
    assert_eq!(words("3"), ["frames", "preprocess", "infer", "nms", "detections", "wrote"]);
    assert_eq!(words("60"), ["frames", "fps", "preprocess", "infer", "nms", "detections", "wrote"]);
}

#[test]
fn an_interrupted_measurement_is_none() {
    let folder = scratch("run-bench");
    for json in [&[][..], &["--json"]] {
        let args = ["bench", &shapes(), "--backend", "rten", "--duration", "600", "--frame", "64x64"];
        let child =
            command(&folder).args(args).args(json).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_handlers(&child);
        signal(&child, libc::SIGINT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
        let said = "The measurement of rten was stopped; its figures are left out.\n";
        assert!(text(&output.stderr).ends_with(said), "{}", text(&output.stderr));
    }
}

/// That is said first: nothing is loaded, and nothing is lost.
#[test]
fn an_address_that_is_taken_is_said_before_anything_is_loaded() {
    let folder = scratch("run-taken");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for table in ["http", "rtsp"] {
        let config = format!(
            "[[model]]\nname = \"m\"\nfile = \"{}\"\nbackend = \"rten\"\n\n[[source]]\nname = \"b\"\naddress = \"{}\"\n\
             loop = true\n\n[{table}]\nlisten = \"{address}\"\n",
            shapes(),
            sample()
        );
        let (status, journal) = Service::start(&folder, &config).ended();
        assert_eq!(status.code(), Some(1), "{journal}");
        let lines: Vec<_> = journal.lines().collect();
        assert!(matches!(lines[..], [error] if error.starts_with("Error: Cannot serve ")), "{journal}");
        assert!(journal.contains("Address already in use"), "{journal}");
    }
}

#[test]
fn maps_are_told_in_the_summary() {
    let folder = scratch("run-maps");
    for (clip, model, kind) in
        [("rooms.mp4", "rooms-depth.onnx", "depth 3"), ("shapes.mp4", "shapes-sem.onnx", "classes 3")]
    {
        let (clip, model) = (path(&format!("tests/data/{clip}")), path(&format!("tests/models/{model}")));
        let args = ["detect", &clip, "--model", &model, "--backend", "cpu", "--no-video", "--frames", "3"];
        let output = succeed(&folder, &args);
        let summary = text(&output.stdout);
        assert!(summary.lines().any(|line| line == format!("maps        {kind}")), "{summary}");
        assert!(!summary.contains("detections"), "{summary}");
        // The share of a class is in the lines.
        assert_eq!(summary.contains("regions     "), kind.starts_with("classes"), "{summary}");
    }
}

/// Pictures that come too soon for a terminal are left out, which is no fault.
#[test]
fn gstreamer_has_nothing_to_say_of_pictures_that_are_left_out() {
    let folder = scratch("run-critical");
    let (clip, model) = (sample(), shapes());
    let args = [&clip, "--model", &model, "--backend", "rten", "--frames", "10", "--infer", "interval=20", "--show"];
    let (status, drawn) = in_terminal(&folder, &args, 20, 10);
    assert!(status == Some(0) && drawn.contains('▀') && !drawn.contains("CRITICAL"), "{drawn}");
}

/// Sinks that no display has are not tried: some of them end the program.
#[test]
fn a_display_that_cannot_be_used_is_none() {
    let folder = scratch("run-display");
    let (clip, model) = (sample(), shapes());
    let args = [&clip, "--model", &model, "--backend", "rten", "--frames", "3", "--infer", "interval=20"];
    for (variable, display) in
        [("DISPLAY", ":7654"), ("DISPLAY", "localhost:10.0"), ("WAYLAND_DISPLAY", "wayland-7654")]
    {
        let mut command = command(&folder);
        command.args(["detect"]).args(args).arg("--show=window").env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        let output = command.env(variable, display).output().unwrap();
        expect_failure(&output, &[display], &["Cannot open a window: ", variable, "--show=terminal"]);
        let there = [&args[..], &["--show"]].concat();
        let (status, drawn) = in_terminal_with(&folder, &there, &[(variable, display)], (20, 10));
        assert!(status == Some(0) && drawn.contains('▀') && drawn.contains("Warning: No window: "), "{drawn}");
    }
    assert_eq!(files(&folder), [""; 0]);
}

/// A camera has a dozen, and a shell or systemd give a program 1024 unless it asks for more.
#[test]
fn a_service_may_open_as_many_files_as_its_user() {
    let folder = scratch("run-open-files");
    let config = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let service = Service::by_shell(&folder, config, "ulimit -S -n 256; exec \"$@\"");
    service.said("Started.");
    let limits = std::fs::read_to_string(service.proc("limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [soft, hard] = numbers[..] else { panic!("{line}") };
    assert_eq!(soft, hard.min(1 << 18), "{line}");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}
