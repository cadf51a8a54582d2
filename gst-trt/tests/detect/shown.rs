// SPDX-License-Identifier: MPL-2.0
//! `gst-trt detect --show`: frames in a terminal and in a window.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

use super::*;
use crate::common::terminal::signal;
use crate::common::wait::{LIMIT, wait_until};

#[test]
fn frames_are_shown_in_the_terminal() {
    let folder = scratch("detect-show");
    let (clip, model) = (sample(), shapes());
    let args = [&clip, "--model", &model, "--backend", "rten", "--frames", "20", "--infer", "interval=20", "--show"];
    let (status, drawn) = in_terminal(&folder, &args, 60, 20);
    assert_eq!(status, Some(0), "{drawn}");
    assert_eq!(files(&folder), [""; 0], "nothing is written unless that is asked for");
    let lines: Vec<&str> = drawn.lines().filter(|line| line.contains('▀')).collect();
    // 640x360 in 60 columns and 18 rows: 17 rows of 34 pixels, and two pictures at least in two thirds of a second.
    assert!(lines.len() >= 2 * 17 && lines.len().is_multiple_of(17), "{}", lines.len());
    assert!(lines.iter().all(|line| line.matches('▀').count() == 60 && line.contains("\u{1b}[0m")), "{drawn}");
    let colours = lines[0].matches("\u{1b}[38;2;").count();
    assert!(colours > 10, "it is a picture: {}", lines[0]);
    assert!(drawn.contains("\u{1b}[18A"), "the second goes over the first: {drawn}");
    assert!(drawn.contains("frames      20"), "{drawn}");
    // Both, where both are asked for.
    let files_too = [&args[..], &["--output", "x.mkv", "--json", "x.jsonl"]].concat();
    let (status, drawn) = in_terminal(&folder, &files_too, 60, 20);
    assert!(status == Some(0) && drawn.contains('▀'), "{drawn}");
    assert_eq!(files(&folder), ["x.jsonl", "x.mkv"]);
    assert_eq!(lines_of(&folder.join("x.jsonl")), 20);
    launch(&format!("filesrc location={} ! decodebin ! fakesink", folder.join("x.mkv").display()));
}

fn lines_of(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap().lines().count()
}

#[test]
fn images_are_shown_one_below_the_other() {
    let folder = scratch("detect-show-images");
    std::fs::create_dir(folder.join("photos")).unwrap();
    common::picture(&folder.join("photos/1.png"), 320, 180);
    common::picture(&folder.join("photos/2.jpg"), 200, 200);
    let (status, drawn) = in_terminal(&folder, &["photos", "--model", &shapes(), "--show=terminal"], 64, 34);
    assert_eq!(status, Some(0), "{drawn}");
    let widths: Vec<usize> = drawn.lines().map(|line| line.matches('▀').count()).filter(|count| *count > 0).collect();
    assert_eq!(widths, [[64; 18].to_vec(), [64; 32].to_vec()].concat());
    assert!(!drawn.contains("\u{1b}[33A") && !drawn.contains("\u{1b}[19A"), "each stays: {drawn}");
    assert_eq!(files(&folder), ["photos"]);
}

#[test]
fn where_nothing_can_be_shown_is_an_error() {
    let folder = scratch("detect-show-nowhere");
    let (clip, model) = (sample(), shapes());
    let run = |args: &[&str]| {
        let mut command = command(&folder);
        command.args(["detect", &clip, "--model", &model]).args(args).env_remove("DISPLAY");
        command.env_remove("WAYLAND_DISPLAY").output().unwrap()
    };
    for (args, parts) in [
        (
            &["--show"][..],
            &["neither DISPLAY nor WAYLAND_DISPLAY is set", "standard output is no terminal", "Leave --show out"][..],
        ),
        (&["--show=terminal"], &["standard output is no terminal"]),
        (&["--show", "--vectors"], &["Frames that are shown have no vectors: add --json FILE"]),
        (&["--show=window"], &["Cannot open a window", "--show=terminal"]),
        (&["--show", "--json", "-"], &["standard output takes the lines of --json -"]),
    ] {
        expect_failure(&run(args), args, parts);
    }
    let (status, drawn) = in_terminal(&folder, &[&clip, "--model", &model, "--show", "--json", "-"], 80, 24);
    assert!(status == Some(1) && drawn.contains("standard output takes the lines"), "{drawn}");
    let two = ["rtsp://127.0.0.1:1/a", "rtsp://127.0.0.1:1/b", "--model", &model, "--show"];
    let (status, drawn) = in_terminal(&folder, &two, 80, 24);
    assert!(status == Some(1) && drawn.contains("one camera or stream at a time"), "{drawn}");
    assert_eq!(files(&folder), [""; 0]);
}

/// A display without a screen.
struct Display {
    server: Child,
    number: String,
}

impl Display {
    const WIDTH: usize = 800;
    const HEIGHT: usize = 600;

    /// Its pixels are in a file of that folder. `None` where there is no such server.
    fn start(folder: &Path) -> Option<Display> {
        let screen = format!("{}x{}x24", Display::WIDTH, Display::HEIGHT);
        let started = Command::new("Xvfb")
            // Or it refuses clients for a moment after the last one has gone, such as between two sinks that are tried.
            .args(["-noreset", "-displayfd", "1", "-nolisten", "tcp", "-screen", "0", &screen, "-fbdir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut server = started.ok()?;
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        Some(Display { server, number: format!(":{}", number.trim()) })
    }

    /// How many colours it shows.
    fn colours(folder: &Path) -> usize {
        let data = std::fs::read(folder.join("Xvfb_screen0")).unwrap();
        let pixels = &data[data.len() - Display::WIDTH * Display::HEIGHT * 4..];
        pixels.chunks_exact(4).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect::<HashSet<_>>().len()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn frames_are_shown_in_a_window() {
    let (folder, pixels) = (scratch("detect-window"), scratch("detect-window-pixels"));
    let Some(display) = Display::start(&pixels) else {
        return println!("SKIP: there is no Xvfb; install xvfb");
    };
    assert!(Display::colours(&pixels) <= 2, "nothing is shown yet");
    let mut shows = command(&folder)
        .args(["detect", &sample(), "--model", &shapes(), "--infer", "interval=30", "--show"])
        .env("DISPLAY", &display.number)
        .env_remove("WAYLAND_DISPLAY")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("a frame is shown, or it has ended", LIMIT, || {
        Display::colours(&pixels) > 1000 || shows.try_wait().unwrap().is_some()
    });
    if shows.try_wait().unwrap().is_none() {
        signal(&shows, libc::SIGINT);
    }
    let output = shows.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().filter(|line| line.contains("Warning")).count(), 0);
    assert_eq!(files(&folder), [""; 0]);
}
