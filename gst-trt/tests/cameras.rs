// SPDX-License-Identifier: MPL-2.0
//! Cameras of the network that send pictures over HTTP, and those that answer without an end.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::hostile_cameras::{self, HostileCamera};
use common::hostile_peer::{Act, HostilePeer};
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
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
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
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
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
    for scheme in ["http", "HTTP", "icy"] {
        let address = format!("{scheme}://127.0.0.1:{port}/v");
        let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
        expect_failure(&run(&folder, &args), &args, &["it leads to file://", "only to http:// and https://"]);
        assert_eq!(files(&folder), [""; 0]);
    }
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

/// A camera with that many streams, the first of which is that one. It says how many it was asked for when they are to play.
fn of_streams(first: &'static str, count: usize, asked_for: Sender<usize>) -> u16 {
    let more = (0..count).map(|number| format!("m=audio 0 RTP/AVP 0\r\na=control:s{number}\r\n")).collect::<String>();
    let described = format!("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n{first}{more}");
    serve(move |mut connection| {
        let mut asked = 0;
        loop {
            let request = request(&connection);
            let number = request.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
            let (header, body) = match request.split(' ').next().unwrap_or_default() {
                "OPTIONS" => ("Public: OPTIONS, DESCRIBE, SETUP, PLAY".into(), ""),
                "DESCRIBE" => {
                    (format!("Content-Type: application/sdp\r\nContent-Length: {}", described.len()), &*described)
                }
                "SETUP" => {
                    asked += 1;
                    ("Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1".into(), "")
                }
                "PLAY" => {
                    let _ = asked_for.send(asked); // only the first one is waited for
                    ("Session: 1".into(), "")
                }
                _ => ("Session: 1".into(), ""),
            };
            let answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{header}\r\n\r\n{body}");
            if request.is_empty() || connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// Each stream would take a thread.
#[test]
fn a_camera_is_asked_for_one_stream_whatever_it_has() {
    let folder = scratch("camera-streams");
    let (asked_for, is_asked_for) = channel();
    let port = of_streams("m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:v\r\n", 100, asked_for.clone());
    let child = detect(&folder, &format!("rtspt://127.0.0.1:{port}/v"), &["--no-video"]);
    assert_eq!(is_asked_for.recv_timeout(LIMIT), Ok(1));
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    // One without a video has nothing to give.
    let address = format!("rtspt://127.0.0.1:{}/v", of_streams("", 2, asked_for));
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(&run(&folder, &args), &args, &["Cannot read rtspt://127.0.0.1:", "there is no video in it."]);
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
fn a_camera_whose_answer_has_no_end_is_left_behind() {
    const TOKEN: &str = "0123456789abcdef-test";
    let folder = scratch("camera-left-behind");
    let (address, (asked_for, is_asked_for)) = (free_address(), channel());
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n[http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n\
         [[source]]\nname = \"street\"\naddress = \"{}\"\nloop = true\nsync = true\n\n",
        shapes(),
        sample()
    );
    for name in ["one", "two"] {
        let port = endless(asked_for.clone());
        config += &format!("[[source]]\nname = \"{name}\"\naddress = \"rtspt://127.0.0.1:{port}/v\"\n\n");
    }
    let service = Service::start(&folder, &config);
    (0..2).for_each(|_| is_asked_for.recv_timeout(LIMIT).unwrap());
    assert_eq!(ask(&address, "DELETE", "/sources/one", TOKEN, "").0, 204);
    assert_eq!(ask(&address, "GET", "/sources/one", TOKEN, "").0, 404);
    service.result("street");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(journal.contains("Left behind, as it does not end: the source one, the source two."), "{journal}");
}

/// Of a video it is said after a while that it waits. Nothing of it is left behind.
#[test]
fn ctrl_c_ends_a_pipe_that_nobody_writes_to() {
    for (name, said) in [("a.ts", Some("Warning: a.ts has given no frame for 10 s.")), ("a.jpg", None)] {
        let folder = scratch(&format!("camera-pipe-{name}"));
        assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
        let mut child = detect(&folder, name, &["--no-video"]);
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(errors.any(|line| line.starts_with("Loaded shapes-320.onnx")), "it waits for its input now");
        assert!(said.is_none_or(|said| errors.any(|line| line == said)), "{said:?}");
        signal(&child, libc::SIGINT);
        let rest: Vec<String> = errors.collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
        let (last, before) = rest.split_last().unwrap();
        assert!(
            last.starts_with("Error: ") && last.ends_with(" was stopped before its first frame was done."),
            "{rest:?}"
        );
        assert!(!before.iter().any(|line| line.contains("eft behind")), "{rest:?}");
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(out, "");
        assert_eq!(files(&folder), [name]);
    }
}

/// Next to sources that lose nothing by them. `HOSTILE_SECONDS=60` goes on for so long, and prints figures.
#[test]
fn hostile_cameras_take_nothing_from_others() {
    const TOKEN: &str = "0123456789abcdef-test";
    /// Bytes that a source may take.
    const MEMORY: u64 = 64 << 20;
    let seconds = std::env::var("HOSTILE_SECONDS").map_or(0, |text| text.parse().expect("a number of seconds"));
    let folder = scratch("camera-hostile");
    let (address, server) = (free_address(), RtspServer::start(0, &["gate"]));
    let times: Vec<u64> = {
        let args = ["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--infer", "interval=300"];
        succeed(&folder, &[&args[..], &["--no-video", "--json", "times.jsonl"]].concat());
        lines(&folder.join("times.jsonl")).iter().map(|line| line["stream-time"].as_u64().unwrap()).collect()
    };
    // The queue of the camera has room for as long as the model may take.
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=300\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n\
         [http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n\
         [[source]]\nname = \"good-camera\"\naddress = \"rtspt://127.0.0.1:{}/gate\"\nmax-queued = 300\n\n",
        shapes(),
        server.port
    );
    let good = ["good-1", "good-2", "good-3"];
    for name in good {
        config += &format!("[[source]]\nname = \"{name}\"\naddress = \"{}\"\nloop = true\nsync = true\n\n", sample());
    }
    let service = Service::start(&folder, &config);
    let mut taken = 0;
    // The server goes on with the clip's frames without a gap, so that each has the time that its number gives, once GStreamer
    // knows how the clocks of both run: after some 40 frames.
    let step = (times[times.len() - 1] - times[0]) as f64 / (times.len() - 1) as f64;
    let first = (0..90).map(|_| service.result("good-camera")).last().unwrap()["stream-time"].as_u64().unwrap();
    let mut take = || {
        let line = service.result("good-camera");
        let sent = (line["stream-time"].as_u64().unwrap() - first) as f64 / step;
        assert_eq!(sent.round() as usize, taken + 1, "good-camera: frames were lost: {line}");

        for name in good {
            let line = service.result(name);
            assert_eq!(line["stream-time"], times[taken % times.len()], "{name}: frame {taken}: {line}");
        }
        taken += 1;
    };
    (0..30).for_each(|_| take());
    let memory = |name: &str| {
        let status = std::fs::read_to_string(service.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    let before = memory("VmRSS");
    std::fs::write(service.proc("clear_refs"), "5").unwrap();

    let cameras = hostile_cameras::all(&folder);
    for HostileCamera { name, address, .. } in &cameras {
        config += &format!(
            "[[source]]\nname = \"{name}\"\naddress = \"{address}\"\ntimeout = 1\nbackoff-min = 0.1\nbackoff-max = 1\n\n"
        );
    }
    service.reload(&config);
    service.said("was read again");
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    let mut sources = Value::Null;
    let limit = LIMIT * 2 + Duration::from_secs(seconds);
    let has_failed = |source: &Value| !source["error"].is_null() || source["restarts"] != 0;
    wait_until("each hostile camera fails", limit, || {
        (0..10).for_each(|_| take());
        let asked = Instant::now();
        let (status, body) = ask(&address, "GET", "/sources", TOKEN, "");
        longest = longest.max(asked.elapsed());
        assert_eq!(status, 200);
        sources = serde_json::from_slice(&body).unwrap();
        let hostile =
            || sources.as_array().unwrap().iter().filter(|source| cameras.iter().any(|c| source["name"] == *c.name));
        if begun.elapsed() > LIMIT {
            let well: Vec<_> = hostile().filter(|source| !has_failed(source)).collect();
            assert!(well.is_empty(), "{well:#?}");
        }
        hostile().count() == cameras.len() && hostile().all(has_failed) && begun.elapsed().as_secs() >= seconds
    });
    (0..30).for_each(|_| take());
    let status_of = |name: &str| sources.as_array().unwrap().iter().find(|source| source["name"] == name).unwrap();
    let camera = status_of("good-camera");
    assert_eq!(
        (&camera["state"], &camera["restarts"], &camera["dropped"]),
        (&"running".into(), &0.into(), &0.into()),
        "{camera}"
    );
    let highest = memory("VmHWM").saturating_sub(before);
    let ending = Instant::now();
    let (status, journal) = service.end();
    if seconds > 0 {
        for camera in &cameras {
            let source = status_of(&camera.name);
            println!(
                "{}: {} restarts, {} left behind, {}",
                camera.name, source["restarts"], source["left-behind"], source["error"]
            );
        }
        println!(
            "{} hostile cameras, {taken} frames of each good source in {:.1} s, {} MiB more at most, {} MiB for each; longest answer \
             {:.1} ms; ended after {:.2} s",
            cameras.len(),
            begun.elapsed().as_secs_f64(),
            highest >> 20,
            (highest >> 20) / cameras.len() as u64,
            longest.as_secs_f64() * 1e3,
            ending.elapsed().as_secs_f64(),
        );
        println!("{journal}");
    }
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("CRITICAL") && !journal.contains("panicked"), "{journal}");
    assert!(highest < MEMORY * cameras.len() as u64, "{} MiB more", highest >> 20);
}
