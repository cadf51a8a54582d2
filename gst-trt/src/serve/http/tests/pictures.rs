// SPDX-License-Identifier: MPL-2.0
//! Snapshots and live views.

use super::*;

/// A request whose answer is read in parts.
fn open(server: &HttpServer, path: &str) -> TcpStream {
    let mut stream = connect(server.address());
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    stream
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> String {
    let mut read = Vec::new();
    let mut part = [0; 1 << 16];
    let mut seen = 0;
    while !read[seen..].windows(end.len()).any(|window| window == end) {
        seen = read.len().saturating_sub(end.len());
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&read));
        read.extend(&part[..length]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

fn numbered(number: u64) -> Bytes {
    format!("picture {number};").into()
}

#[test]
fn a_snapshot_is_the_next_picture() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let frames = service.frames("door");
    frames.send_replace(Some("an old one".into()));
    let camera = Camera::new(frames.clone(), numbered);
    let answer = get(&server, "/sources/door/snapshot.jpg").expect(200);
    assert!(answer.head.contains("content-type: image/jpeg"), "{}", answer.head);
    assert!(answer.text().starts_with("picture "), "{}", answer.text());
    until("freed", || frames.receiver_count() == 0);
    drop(camera);
    get(&server, "/sources/none/snapshot.jpg").expect_error(404, &["none"]);
    service.change("door", |status| status.state = State::Ended);
    get(&server, "/sources/door/snapshot.jpg").expect_error(409, &["read to its end"]);
}

#[test]
fn a_snapshot_does_not_wait_for_ever() {
    let service = FakeService::new(&["door"]);
    let server = serve_within(ClientLimits { frame: Duration::from_millis(30), ..ClientLimits::default() }, &service);
    let frames = service.frames("door");
    frames.send_replace(Some("an old one".into()));
    get(&server, "/sources/door/snapshot.jpg").expect_error(504, &["door", "no frame came within 0.03 s"]);
    until("freed", || frames.receiver_count() == 0);
}

#[test]
fn a_snapshot_ends_when_the_source_is_removed() {
    let service = FakeService::new(&["door"]);
    let server = serve_within(ClientLimits { frame: LIMIT, ..ClientLimits::default() }, &service);
    let mut stream = open(&server, "/sources/door/snapshot.jpg");
    let frames = service.frames("door");
    until("watched", || frames.receiver_count() == 1);
    service.remove_source("door").unwrap();
    drop(frames);
    let answer = read_until(&mut stream, b".\"}");
    assert!(answer.contains("404 Not Found"), "{answer}");
}

#[test]
fn a_live_view_has_all_pictures_until_the_client_goes() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let frames = service.frames("door");
    let mut stream = open(&server, "/sources/door/live.mjpeg");
    let head = read_until(&mut stream, b"\r\n\r\n");
    assert!(head.contains("content-type: multipart/x-mixed-replace; boundary=gst-trt-frame"), "{head}");
    for number in 0..3 {
        // Each is sent when the one before has arrived, with the boundary that ends it.
        frames.send_replace(Some(numbered(number)));
        let part = read_until(&mut stream, b";\r\n--gst-trt-frame\r\n");
        assert!(part.contains("Content-Type: image/jpeg\r\nContent-Length: 10\r\n\r\n"), "{part}");
        assert!(part.contains(&format!("\r\npicture {number};\r\n--gst-trt-frame\r\n")), "{part}");
        assert_eq!(part.starts_with("--") || part.contains("\r\n--gst-trt-frame\r\nContent"), number == 0, "{part}");
    }
    drop(stream);
    // Without any further frame.
    until("freed", || frames.receiver_count() == 0);
}

#[test]
fn a_live_view_ends_when_the_source_is_removed() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let mut stream = open(&server, "/sources/door/live.mjpeg");
    read_until(&mut stream, b"\r\n\r\n");
    service.remove_source("door").unwrap();
    assert_eq!(read_until(&mut stream, b"0\r\n\r\n"), "0\r\n\r\n");
}

/// One reads nothing for a time, the other all: the slow one has gaps, and ends with the newest.
#[test]
fn slow_clients_skip_pictures() {
    const PICTURES: u64 = 300;
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let frames = service.frames("door");
    let mut slow = open(&server, "/sources/door/live.mjpeg");
    read_until(&mut slow, b"\r\n\r\n");
    let mut fast = open(&server, "/sources/door/live.mjpeg");
    read_until(&mut fast, b"\r\n\r\n");
    let large = |number: u64| -> Bytes { format!("[{number}]{}", " ".repeat(100_000)).into() };
    for number in 0..PICTURES {
        frames.send_replace(Some(large(number)));
        read_until(&mut fast, format!("[{number}]").as_bytes());
        read_until(&mut fast, b"\r\n--gst-trt-frame\r\n");
    }
    let read = read_until(&mut slow, format!("[{}]", PICTURES - 1).as_bytes());
    let numbers: Vec<u64> =
        read.split('[').skip(1).map(|rest| rest.split(']').next().unwrap().parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    assert!(numbers.len() < PICTURES as usize, "{} of {PICTURES}: nothing was skipped", numbers.len());
}
