// SPDX-License-Identifier: MPL-2.0
//! Cameras of the network that send pictures over HTTP, and in a room of their own those that answer without an end.

#[path = "cameras/endless.rs"]
mod answers_without_end;
#[path = "cameras/causes.rs"]
mod causes;
mod common;
#[path = "cameras/ends.rs"]
mod ends;
#[path = "cameras/silent.rs"]
mod silent;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::hostile_cameras::{self, HostileCamera};
use common::hostile_peer::{Act, HostilePeer};
use common::models::inner;
use common::service::{RtspServer, Service, ask, free_address};
use common::wait::{LIMIT, wait_until};
use common::{command, expect_failure, files, jpeg, launch, lines, path, run, sample, scratch, shapes, succeed, text};
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
    sizes.iter().map(|&(width, height)| jpeg::of(folder, width, height)).collect()
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
        assert!(text(&output.stderr).contains("has ended"), "it is lost: {}", text(&output.stderr));
    }
}

/// A camera that sends its picture again and again, as fast as it is read. Its port.
fn sender(head: String, mut part: Vec<u8>, has_chunks: bool) -> u16 {
    if has_chunks {
        part = [format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat();
    }
    serve(move |mut connection| {
        request(&connection);
        let _ = connection.write_all(head.as_bytes()); // it has gone
        while connection.write_all(&part).is_ok() {}
    })
}

#[test]
fn cameras_over_http_of_many_makes_are_understood() {
    const OK: &str = "HTTP/1.1 200 OK\r\n";
    const KIND: &str = "Content-Type: multipart/x-mixed-replace";
    let folder = scratch("camera-makes");
    let picture = jpeg::of(&folder, 320, 180);
    let whole = |before: &str, picture: &[u8], behind: &str| [before.as_bytes(), picture, behind.as_bytes()].concat();
    let length = picture.len();
    let plain =
        || whole(&format!("--a\r\nContent-Type: image/jpeg\r\nContent-Length: {length}\r\n\r\n"), &picture, "\r\n");
    let made = |name: &str| std::fs::read(path(&format!("gst-trt/tests/data/pictures/{name}"))).unwrap();
    let of_picture =
        |kind: &str, picture: &[u8]| whole(&format!("--a\r\nContent-Type: {kind}\r\n\r\n"), picture, "\r\n");
    let thumbnail =
        [&picture[..2], &[0xFF, 0xE1, 0, 8, 0xFF, 0xD8, 0xFF, 0xD9, 1, 2], &picture[2..], &[0; 64]].concat();
    let cases = [
        ("quotes", format!("{OK}{KIND}; boundary=\"a\"\r\n\r\n"), plain(), 320),
        ("capitals", format!("{OK}{}; Boundary=a\r\n\r\n", KIND.to_uppercase()), plain(), 320),
        ("more parameters", format!("{OK}{KIND}; boundary=a; charset=utf-8\r\n\r\n"), plain(), 320),
        ("mixed", format!("{OK}Content-Type: multipart/mixed; boundary=a\r\n\r\n"), plain(), 320),
        ("HTTP/1.0", format!("HTTP/1.0 200 OK\r\n{KIND};boundary=a\r\n\r\n"), plain(), 320),
        ("chunks", format!("{OK}Transfer-Encoding: chunked\r\n{KIND};boundary=a\r\n\r\n"), plain(), 320),
        (
            "line feeds",
            format!("{OK}{KIND};boundary=a\r\n\r\n"),
            whole(&format!("--a\nContent-Type: image/jpeg\nContent-Length: {length}\n\n"), &picture, "\n"),
            320,
        ),
        (
            "further headers",
            format!("{OK}Server: c\r\nCache-Control: no-cache\r\n{KIND};boundary=a\r\n\r\n"),
            whole(
                &format!("--a\r\nX-Time: 1.5\r\ncontent-type: image/jpeg\r\ncontent-length: {length}\r\n\r\n"),
                &picture,
                "\r\n",
            ),
            320,
        ),
        (
            "no length, a thumbnail and zeros",
            format!("{OK}{KIND};boundary=a\r\n\r\n"),
            of_picture("image/jpeg", &thumbnail),
            320,
        ),
        ("grey", format!("{OK}{KIND};boundary=a\r\n\r\n"), of_picture("image/jpeg", &made("grey.jpg")), 64),
        (
            "progressive",
            format!("{OK}{KIND};boundary=a\r\n\r\n"),
            of_picture("image/jpeg", &made("colour-progressive.jpg")),
            64,
        ),
        ("PNG", format!("{OK}{KIND};boundary=a\r\n\r\n"), of_picture("image/png", &made("colour-alpha.png")), 64),
        (
            "one picture",
            format!("{OK}Content-Type: image/jpeg\r\nContent-Length: {length}\r\n\r\n"),
            picture.clone(),
            320,
        ),
    ];
    let mut wrong = Vec::new();
    for (name, head, part, width) in cases {
        let port = sender(head, part, name == "chunks");
        let child =
            detect(&folder, &format!("http://127.0.0.1:{port}/"), &["--no-video", "--json", "-", "--frames", "3"]);
        let output = child.wait_with_output().unwrap();
        let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // How often one picture is sent depends on when the connection is closed.
        let is_enough = if name == "one picture" { !lines.is_empty() } else { lines.len() == 3 };
        if !is_enough || lines.iter().any(|line| line["width"] != width) || !output.status.success() {
            wrong.push(format!("{name}: {} lines: {}", lines.len(), text(&output.stderr)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // GStreamer looks at the first bytes alone.
    let port = sender(format!("{OK}{KIND};boundary=a\r\n\r\nThis is a camera.\r\n"), plain(), false);
    let address = format!("http://127.0.0.1:{port}/");
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(
        &run(&folder, &args),
        &args,
        &["Cannot read http://127.0.0.1:", "Could not determine type of stream"],
    );
}

#[test]
fn pictures_that_cannot_be_decoded_are_said() {
    let folder = scratch("camera-damaged");
    let (next, told) = channel();
    let pictures = vec![jpeg::of(&folder, 320, 180), b"no picture".to_vec()];
    let port = camera(pictures, "frame", true, told);
    let mut child = detect(&folder, &format!("http://127.0.0.1:{port}/"), &["--no-video", "--json", "-"]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        // Good ones have a result, the others have none.
        next.send(()).unwrap();
        out.next().expect("a line").unwrap();
        next.send(()).unwrap();
    }
    drop(next);
    assert_eq!(out.count(), 0);
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("has ended"), "it is lost: {}", text(&output.stderr));
    let said = format!("Warning: A frame of http://127.0.0.1:{port}/ cannot be decoded, or is damaged.");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
}

/// Of HTTP only the answer tells that it is no camera.
#[test]
fn a_file_of_the_network_that_stalls_is_started_again() {
    let folder = scratch("camera-stalls");
    let clip = folder.join("clip.ts");
    launch(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! mpegtsmux ! filesink location={}",
        sample(),
        clip.display()
    ));
    let clip = std::fs::read(clip).unwrap();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\nConnection: close\r\n\r\n";
    let acts = vec![Act::Hear, Act::Say([head, &clip[..clip.len() / 2]].concat()), Act::Hang];
    let peer = HostilePeer::new("stalls", "http://127.0.0.1:PORT/", acts);
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n\
         [[source]]\nname = \"held\"\naddress = \"{}\"\ntimeout = 1\nbackoff-min = 0.1\n",
        shapes(),
        peer.location
    );
    let service = Service::start(&folder, &config);
    service.result("held");
    service.said("gave no frame for 1 s.");
    wait_until("it is read again", LIMIT, || peer.connections() > 1);
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}

#[test]
fn why_a_camera_is_not_reached_is_said() {
    let folder = scratch("camera-unreached");
    for scheme in ["rtspt", "http", "https"] {
        let address = format!("{scheme}://{}/x", free_address());
        let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
        let output = run(&folder, &args);
        expect_failure(
            &output,
            &args,
            &["Cannot read ", "(connection refused: nothing listens at port ", " of 127.0.0.1)."],
        );
    }
}

#[test]
fn of_two_videos_of_a_camera_the_first_is_read() {
    let folder = scratch("camera-two");
    let server = RtspServer::start(0, &["two"]);
    for _ in 0..3 {
        let address = format!("rtspt://127.0.0.1:{}/two", server.port);
        let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video", "--frames", "2"];
        succeed(&folder, &[&args[..], &["--json", "out.jsonl"]].concat());
        let lines = lines(&folder.join("out.jsonl"));
        assert!(lines.iter().all(|line| line["width"] == 640), "{lines:?}");
    }
}

/// A camera over HTTP that breaks off after a few pictures, each time. Its port.
fn breaking_off(folder: &Path) -> u16 {
    let picture = pictures(folder, &[(320, 180)]).remove(0);
    serve(move |mut connection| {
        request(&connection);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=a\r\n\r\n";
        let mut bytes = head.as_bytes().to_vec();
        for _ in 0..3 {
            let part = format!("--a\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", picture.len());
            bytes.extend([part.as_bytes(), &picture, b"\r\n"].concat());
        }
        let _ = connection.write_all(&bytes); // it has gone
    })
}

#[test]
fn a_camera_over_http_that_breaks_off_is_started_again() {
    let folder = scratch("camera-restart");
    let port = breaking_off(&folder);
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

/// Each run of the camera has an event that is to be recorded. That nothing can be is said once, as long as it is so.
#[test]
fn a_source_that_starts_again_does_not_tell_of_its_disk_again() {
    let folder = scratch("camera-disk");
    let port = breaking_off(&folder);
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\n\n[track]\n\n[analytics]\n\
         config = '{{\"zones\": [{{\"id\": \"all\", \"points\": [[0,0],[1,0],[1,1],[0,1]], \"hysteresis\": 0}}]}}'\n\n\
         [record]\nfolder = \"events\"\npre-roll = 0\npost-roll = 0.1\n\n\
         [[source]]\nname = \"gate\"\naddress = \"http://127.0.0.1:{port}/\"\nbackoff-min = 0.1\nbackoff-max = 0.1\n",
        shapes()
    );
    // In one step, so that nothing is written in between.
    let point_to = |target: &str| {
        std::os::unix::fs::symlink(target, folder.join("next")).unwrap();
        std::fs::rename(folder.join("next"), folder.join("events")).unwrap();
    };
    std::fs::create_dir(folder.join("good")).unwrap();
    std::fs::write(folder.join("bad"), "no folder").unwrap();
    point_to("good");
    let service = Service::start(&folder, &config);
    for _ in 0..2 {
        service.said("gate: Recorded ");
        point_to("bad");
        service.said("gate: Cannot ");
        (0..4).for_each(|_| drop(service.said("has ended.")));
        point_to("good");
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    // What was waited for is not in the rest.
    assert!(!journal.contains("gate: Cannot "), "{journal}");
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
    expect_failure(&run(&folder, &args), &args, &["Cannot read http://127.0.0.1:", "more than 16 MiB"]);
}

/// What is limited are the bytes of one picture, not those of all.
#[test]
fn a_camera_sends_as_many_pictures_as_it_likes() {
    let folder = scratch("camera-long");
    let picture = pictures(&folder, &[(320, 180)]).remove(0);
    // Behind its first marker, comments of 4 MiB: all pictures have more than one may have.
    let comment = [&[0xFF, 0xFE, 0xFF, 0xFF][..], &[0; 0xFFFD]].concat();
    let large = [&picture[..2], &comment.repeat(64), &picture[2..]].concat();
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
    assert!(text(&output.stderr).contains("has ended"), "it is lost: {}", text(&output.stderr));
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
    for scheme in ["http", "HTTP", "icy"] {
        let address = format!("{scheme}://127.0.0.1:{port}/v");
        let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
        expect_failure(&run(&folder, &args), &args, &["it leads to file://", "only to http:// and https://"]);
        assert_eq!(files(&folder), [""; 0]);
    }
}

/// Such as one that only this machine can reach.
#[test]
fn a_playlist_of_the_network_asks_no_server_of_this_machine() {
    let folder = scratch("camera-playlist-here");
    let (asked, is_asked) = channel();
    let inside = serve(move |connection| {
        let request = request(&connection);
        if !request.is_empty() {
            let _ = asked.send(request);
        }
    });
    let list =
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://localhost:{inside}/internal\n#EXT-X-ENDLIST\n");
    let port = serve(move |mut connection| {
        request(&connection);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.apple.mpegurl\r\nConnection: close\r\n\r\n";
        let _ = connection.write_all((head.to_string() + &list).as_bytes());
    });
    let address = format!("http://127.0.0.1:{port}/v");
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(&run(&folder, &args), &args, &["Cannot read http://127.0.0.1:"]);
    assert!(is_asked.try_recv().is_err(), "it was asked");
}

/// Lists are read by elements of which GStreamer tells nothing.
#[test]
fn a_playlist_of_the_network_leads_to_no_playlist_of_this_machine() {
    let folder = scratch("camera-playlists");
    let clip = folder.join("clip.ts");
    launch(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! mpegtsmux ! filesink location={}",
        sample(),
        clip.display()
    ));
    let (clip, list) = (std::fs::read(clip).unwrap(), folder.join("list.m3u8"));
    let variant = |list: &str| format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\n{list}\n");
    let here = variant(&format!("file://{}", list.display()));
    let segments = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n/clip.ts\n#EXT-X-ENDLIST\n";
    let port = serve(move |mut connection| {
        let (_, path) =
            request(&connection).split_once(' ').map(|(_, rest)| ((), rest.to_string())).unwrap_or_default();
        let (kind, body) = match path.split(' ').next().unwrap_or_default() {
            "/clip.ts" => ("video/mp2t", clip.clone()),
            "/list.m3u8" => ("application/vnd.apple.mpegurl", segments.into()),
            "/there" => ("application/vnd.apple.mpegurl", variant("/list.m3u8").into_bytes()),
            _ => ("application/vnd.apple.mpegurl", here.clone().into_bytes()),
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        let _ = connection.write_all(&[head.as_bytes(), &body].concat());
    });
    std::fs::write(&list, segments.replace("/clip", &format!("http://127.0.0.1:{port}/clip"))).unwrap();
    let args = |path: &str| {
        let more = ["--no-video", "--frames", "2", "--json", "out.jsonl"].map(String::from);
        let args = ["detect", &format!("http://127.0.0.1:{port}/{path}"), "--model", &shapes(), "--backend", "cpu"];
        args.map(String::from).into_iter().chain(more).collect::<Vec<_>>()
    };
    let there = args("there");
    succeed(&folder, &there.iter().map(String::as_str).collect::<Vec<_>>());
    let here = args("here");
    let here: Vec<_> = here.iter().map(String::as_str).collect();
    expect_failure(&run(&folder, &here), &here, &["Cannot read http://127.0.0.1:"]);
}

/// A server of a file of which `ranges` says whether it gives parts. Having sent half of it, it waits whether somebody hangs up
/// to ask for another part. Its port.
fn file_server(file: Vec<u8>, ranges: &'static str) -> u16 {
    serve(move |mut connection| {
        let asked = request(&connection).to_ascii_lowercase();
        let begin = asked.split_once("range: bytes=").and_then(|(_, range)| range.split_once('-'));
        let begin: usize =
            begin.and_then(|(begin, _)| begin.parse().ok()).filter(|_| ranges.contains("bytes")).unwrap_or(0);
        let (length, left) = (file.len(), file.len() - begin);
        let part = format!("206 Partial Content\r\nContent-Range: bytes {begin}-{}/{length}", length - 1);
        let status = if begin == 0 { "200 OK" } else { &part };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: video/mp4\r\n{ranges}Content-Length: {left}\r\nConnection: close\r\n\r\n"
        );
        let (first, second) = file[begin..].split_at(left / 2);
        let _ = connection.write_all(&[head.as_bytes(), first].concat());
        connection.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = connection.read(&mut [0]);
        let _ = connection.write_all(second);
    })
}

#[test]
fn a_file_of_the_web_has_all_its_frames() {
    let folder = scratch("web-file");
    let clip = std::fs::read(path("tests/data/shapes.mp4")).unwrap();
    let model = inner(&folder.join("inner.onnx"), "disc"); // frames are counted
    let args = ["--model", &model, "--backend", "rten", "--infer", "interval=30", "--no-video", "--json", "-"];
    let frames = |address: &str| {
        let args = [&["detect", address][..], &args].concat();
        text(&succeed(&folder, &args).stdout).lines().count()
    };
    let expected = frames(&path("tests/data/shapes.mp4"));
    // The tables of this file are at its end.
    for ranges in ["", "Accept-Ranges: none\r\n", "accept-ranges: bytes\r\n"] {
        let address = format!("http://127.0.0.1:{}/shapes.mp4", file_server(clip.clone(), ranges));
        assert_eq!(frames(&address), expected, "{ranges:?}");
    }
    // What comes through a pipe cannot be read twice. The frames may be there all the same, with another GStreamer.
    let clip = std::fs::File::open(path("tests/data/shapes.mp4")).unwrap();
    let piped = |clip: std::fs::File| {
        let mut cat = Command::new("cat").stdin(clip).stdout(Stdio::piped()).spawn().unwrap();
        let output =
            command(&folder).args(["detect", "-"]).args(args).stdin(cat.stdout.take().unwrap()).output().unwrap();
        cat.wait().unwrap();
        output
    };
    let output = piped(clip);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("standard input is an MP4 that cannot be read twice"),
        "{}",
        text(&output.stderr)
    );
}
