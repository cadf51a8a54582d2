// SPDX-License-Identifier: MPL-2.0
//! Videos of cameras, and cameras that are lost while they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::prelude::*;

use super::*;

/// The frames in the file of a video.
fn frames_in(file: &Path) -> usize {
    let demuxer = if file.extension().unwrap() == "mp4" { "qtdemux" } else { "matroskademux" };
    let line = format!("filesrc location={} ! {demuxer} ! fakesink name=out sync=false async=false", file.display());
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let input = pipeline.by_name("out").unwrap().static_pad("sink").unwrap();
    input.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &wanted);
    pipeline.set_state(gst::State::Null).unwrap();
    assert!(end.is_some_and(|end| end.type_() == gst::MessageType::Eos), "{}", file.display());
    count.load(Ordering::Relaxed)
}

/// Its pictures have times of which none is that of another, from the first on.
#[test]
fn a_camera_over_http_becomes_a_video() {
    let folder = scratch("camera-video");
    let picture = jpeg::of(&folder, 320, 180);
    let part = format!("--a\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", picture.len());
    let part = [part.as_bytes(), &picture, b"\r\n"].concat();
    for ending in ["mp4", "mkv"] {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=a\r\n\r\n".to_string();
        let address = format!("http://127.0.0.1:{}/", sender(head, part.clone(), false));
        let (video, json) = (format!("found.{ending}"), format!("{ending}.jsonl"));
        let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--frames", "12", "--output", &video];
        succeed(&folder, &[&args[..], &["--json", &json]].concat());
        let times: Vec<_> =
            lines(&folder.join(json)).iter().map(|line| line["stream-time"].as_u64().unwrap()).collect();
        assert!(times.len() == 12 && times.is_sorted_by(|one, next| one < next), "{times:?}");
        assert_eq!(frames_in(&folder.join(video)), 12, "{ending}");
    }
}

/// As other programs write them to a pipe: without times.
#[test]
fn pictures_that_follow_each_other_become_a_video() {
    let folder = scratch("camera-pictures");
    std::fs::write(folder.join("all.mjpeg"), jpeg::of(&folder, 320, 180).repeat(12)).unwrap();
    succeed(&folder, &["detect", "all.mjpeg", "--model", &shapes(), "--backend", "cpu"]);
    assert_eq!(frames_in(&folder.join("all-boxes.mp4")), lines(&folder.join("all-boxes.jsonl")).len());
}

/// What was found until then is kept, and is whole.
#[test]
fn a_camera_that_is_lost_is_an_error() {
    let folder = scratch("camera-lost");
    let (next, told) = channel();
    let port = camera(pictures(&folder, &[(320, 180)]), "frame", true, told);
    let address = format!("http://127.0.0.1:{port}/gate");
    let args = ["--json", "-", "--output", "gate.mp4"];
    let mut child = detect(&folder, &address, &args);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..4 {
        next.send(()).unwrap();
        out.next().expect("a line").unwrap();
    }
    drop(next);
    assert_eq!(out.count(), 0);
    let output = child.wait_with_output().unwrap();
    expect_failure(&output, &args, &[&format!("{address} has ended"), "What was found until then is written"]);
    assert!(text(&output.stderr).contains("\nframes      4\n"), "{}", text(&output.stderr));
    assert_eq!(files(&folder), ["gate.mp4"]);
    assert_eq!(frames_in(&folder.join("gate.mp4")), 4);

    let server = RtspServer::start(0, &["v"]);
    let address = format!("rtspt://127.0.0.1:{}/v", server.port);
    let mut child = detect(&folder, &address, &["--json", "-", "--output", "v.mkv"]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    out.next().expect("a line").unwrap();
    drop(server);
    let frames = 1 + out.count();
    let output = child.wait_with_output().unwrap();
    expect_failure(&output, &args, &[&format!("{address} has ended")]);
    assert_eq!(frames_in(&folder.join("v.mkv")), frames);
}

/// The others go on to their end.
#[test]
fn a_camera_that_is_lost_among_others_is_named() {
    let folder = scratch("camera-lost-among");
    let address = format!("http://127.0.0.1:{}/gate", breaking_off(&folder));
    let args = ["detect", &address, &sample(), "--model", &shapes(), "--backend", "cpu", "--infer", "interval=300"];
    let args = [&args[..], &["--no-video"]].concat();
    let output = run(&folder, &args);
    expect_failure(&output, &args, &["1 of 2 sources was lost", "what was found until then is written"]);
    let said = format!("Warning: {address} has ended");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    assert_eq!(lines(&folder.join("sample-boxes.jsonl")).len(), 300);
}
