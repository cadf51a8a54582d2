// SPDX-License-Identifier: MPL-2.0
//! Cameras of the network that send pictures over HTTP, and those that answer without an end.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use common::service::Service;
use common::wait::LIMIT;
use common::{command, expect_failure, files, picture, run, sample, scratch, shapes, text};
use serde_json::Value;

/// A server that answers each connection in a thread, one after the other. Its port.
fn serve(mut answer: impl FnMut(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(&mut answer));
    port
}

/// What is asked, up to the empty line.
fn request(connection: &TcpStream) -> String {
    let lines = BufReader::new(connection.try_clone().unwrap()).lines();
    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

/// A camera that sends the next of its pictures each time it is told to, and ends when nobody can tell it to any more.
/// Its port.
fn camera(pictures: Vec<Vec<u8>>, boundary: &'static str, has_length: bool, next: Receiver<()>) -> u16 {
    serve(move |mut connection| {
        request(&connection);
        let mut send = |bytes: &[u8]| connection.write_all(bytes).is_ok();
        send(
            format!("HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary={boundary}\r\n\r\n")
                .as_bytes(),
        );
        send(format!("--{boundary}\r\n").as_bytes());
        for picture in pictures.iter().cycle() {
            if next.recv().is_err() {
                return;
            }
            let length = if has_length { format!("Content-Length: {}\r\n", picture.len()) } else { String::new() };
            send(format!("Content-Type: image/jpeg\r\n{length}\r\n").as_bytes());
            if !send(picture) || !send(format!("\r\n--{boundary}\r\n").as_bytes()) {
                return;
            }
        }
    })
}

fn pictures(folder: &Path, sizes: &[(u32, u32)]) -> Vec<Vec<u8>> {
    let file = folder.join("picture.jpg");
    let pictures = sizes.iter().map(|&(width, height)| {
        picture(&file, width, height);
        std::fs::read(&file).unwrap()
    });
    let pictures = pictures.collect();
    std::fs::remove_file(&file).unwrap();
    pictures
}

fn detect(folder: &Path, address: &str, more: &[&str]) -> Child {
    let mut command = command(folder);
    command.args(["detect", address, "--model", &shapes(), "--backend", "cpu"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: it is our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn pictures_over_http_come_at_once_and_have_times() {
    let folder = scratch("camera-http");
    for (boundary, has_length, sizes) in [
        ("frame", true, &[(320, 180)][..]),
        ("--dashes--", false, &[(320, 180)]),
        ("frame", true, &[(320, 180), (640, 360), (160, 90)]),
    ] {
        let (next, told) = channel();
        let port = camera(pictures(&folder, sizes), boundary, has_length, told);
        let child = detect(&folder, &format!("http://127.0.0.1:{port}/"), &["--no-video", "--json", "-"]);
        let mut child = child;
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = None;
        for number in 0..6 {
            // The next picture is sent only when the one before has its result.
            next.send(()).unwrap();
            let line: Value = serde_json::from_str(&out.next().expect("a line").unwrap()).unwrap();
            let (width, height) = sizes[number % sizes.len()];
            assert_eq!(
                (&line["frame"], &line["width"], &line["height"]),
                (&number.into(), &width.into(), &height.into())
            );
            let time = line["stream-time"].as_u64().expect("it has a time");
            assert!(number < 2 || last < Some(time), "{line}");
            last = Some(time);
        }
        drop(next);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn a_camera_over_http_that_breaks_off_is_started_again() {
    let folder = scratch("camera-restart");
    let picture = pictures(&folder, &[(320, 180)]).remove(0);
    // Each connection has three pictures.
    let port = serve(move |mut connection| {
        request(&connection);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=a\r\n\r\n";
        let mut bytes = head.as_bytes().to_vec();
        for _ in 0..3 {
            let part = format!("--a\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", picture.len());
            bytes.extend([part.as_bytes(), &picture, b"\r\n"].concat());
        }
        let _ = connection.write_all(&bytes); // it has gone
    });
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\n\n[[publish]]\nlocation = \"-\"\n\
         add-empty-results = true\n\n[[source]]\nname = \"gate\"\naddress = \"HTTP://127.0.0.1:{port}/\"\n\
         backoff-min = 0.1\nbackoff-max = 0.1\n",
        shapes()
    );
    let service = Service::start(&folder, &config);
    service.result("gate");
    service.said("has ended.");
    service.said("has ended.");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}

#[test]
fn a_picture_without_an_end_is_refused() {
    let folder = scratch("camera-large");
    let port = serve(|mut connection| {
        request(&connection);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=a\r\n\r\n--a\r\n\
                    Content-Type: image/jpeg\r\nContent-Length: 2000000000\r\n\r\n";
        let _ = connection.write_all(head.as_bytes());
        while connection.write_all(&[7; 1 << 16]).is_ok() {}
    });
    let address = format!("http://127.0.0.1:{port}/");
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(&run(&folder, &args), &args, &["Cannot read http://127.0.0.1:", "more than 64 MiB"]);
}

/// What is limited are the bytes of one picture, not those of all.
#[test]
fn a_camera_sends_as_many_pictures_as_it_likes() {
    let folder = scratch("camera-long");
    let picture = pictures(&folder, &[(320, 180)]).remove(0);
    // Behind its first marker, comments of 16 MiB.
    let comment = [&[0xFF, 0xFE, 0xFF, 0xFF][..], &[0; 0xFFFD]].concat();
    let large = [&picture[..2], &comment.repeat(256), &picture[2..]].concat();
    let (next, told) = channel();
    let port = camera(vec![large], "frame", true, told);
    let mut child = detect(&folder, &format!("http://127.0.0.1:{port}/"), &["--no-video", "--json", "-"]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 0..6 {
        next.send(()).unwrap();
        let line: Value = serde_json::from_str(&out.next().expect("a line").unwrap()).unwrap();
        assert_eq!(line["frame"], number);
    }
    drop(next);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_playlist_of_the_network_reads_no_file() {
    let folder = scratch("camera-playlist");
    let list = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{}\n#EXT-X-ENDLIST\n", sample());
    let port = serve(move |mut connection| {
        request(&connection);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.apple.mpegurl\r\nConnection: close\r\n\r\n";
        let _ = connection.write_all((head.to_string() + &list).as_bytes());
    });
    let address = format!("http://127.0.0.1:{port}/v");
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(&run(&folder, &args), &args, &["it leads to file://", "only to http:// and https://"]);
    assert_eq!(files(&folder), [""; 0]);
}

/// An RTSP server whose answer has a header without an end. It says when it was asked for it.
fn endless(asked_for: Sender<()>) -> u16 {
    serve(move |mut connection| {
        let asked_for = asked_for.clone();
        thread::spawn(move || {
            loop {
                let asked = request(&connection);
                let number = asked.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
                let mut answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n");
                answer +=
                    if asked.starts_with("OPTIONS") { "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n\r\n" } else { "X: " };
                if connection.write_all(answer.as_bytes()).is_err() || asked.is_empty() {
                    return;
                }
                if asked.starts_with("DESCRIBE") {
                    let _ = asked_for.send(()); // only the first one is waited for
                    while connection.write_all(&[b'a'; 1 << 16]).is_ok() {}
                    return;
                }
            }
        });
    })
}

#[test]
fn ctrl_c_ends_a_camera_whose_answer_has_no_end() {
    let folder = scratch("camera-endless");
    let (asked_for, is_asked_for) = channel();
    let port = endless(asked_for);
    let child = detect(&folder, &format!("rtspt://127.0.0.1:{port}/v"), &["--no-video"]);
    is_asked_for.recv_timeout(LIMIT).unwrap();
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("was stopped before its first frame"), "{}", text(&output.stderr));
    assert_eq!(files(&folder), [""; 0]);
}

#[test]
fn ctrl_c_ends_a_pipe_that_nobody_writes_to() {
    for name in ["a.ts", "a.jpg"] {
        let folder = scratch(&format!("camera-pipe-{name}"));
        assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
        let mut child = detect(&folder, name, &["--no-video"]);
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(errors.any(|line| line.starts_with("Loaded shapes.onnx")), "it waits for its input now");
        signal(&child, libc::SIGINT);
        let rest: Vec<String> = errors.collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(out, "");
        assert_eq!(files(&folder), [name]);
    }
}

/// Cameras that answer without an end, or with what they must not, next to a source that loses nothing by them.
#[test]
fn hostile_cameras_take_nothing_from_others() {
    let folder = scratch("camera-hostile");
    let (asked_for, is_asked_for) = channel();
    let endless = endless(asked_for);
    let silent = serve(|connection| {
        request(&connection);
        let _ = (&connection).read(&mut [0]); // until it goes
    });
    let large = serve(|mut connection| {
        thread::spawn(move || {
            request(&connection);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=a\r\n\r\n--a\r\n\
                        Content-Type: image/jpeg\r\nContent-Length: 2147483647\r\n\r\n";
            let _ = connection.write_all(head.as_bytes());
            while connection.write_all(&[7; 1 << 16]).is_ok() {}
        });
    });
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n\
         [[source]]\nname = \"good\"\naddress = \"{}\"\nloop = true\nsync = true\n\n",
        shapes(),
        sample()
    );
    for (name, address) in [
        ("endless", format!("rtspt://127.0.0.1:{endless}/v")),
        ("silent", format!("http://127.0.0.1:{silent}/")),
        ("large", format!("http://127.0.0.1:{large}/")),
    ] {
        config +=
            &format!("[[source]]\nname = \"{name}\"\naddress = \"{address}\"\ntimeout = 1\nbackoff-min = 0.1\n\n");
    }
    let service = Service::start(&folder, &config);
    is_asked_for.recv_timeout(LIMIT).unwrap();
    service.said("endless: rtspt://127.0.0.1");
    service.said("more than 64 MiB");
    for number in 0..60 {
        assert_eq!(service.result("good")["frame"], number);
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("CRITICAL"), "{journal}");
}
