// SPDX-License-Identifier: MPL-2.0
//! No client takes what the others need.

use super::*;

const SHORT: Duration = Duration::from_millis(50);
const HALF: &[u8] = b"GET /sources HTTP/1.1\r\nHost: loc";

#[test]
fn half_a_request_ends_after_a_time() {
    let server =
        serve_within(ClientLimits { head: SHORT, body: SHORT, ..ClientLimits::default() }, &FakeService::new(&[]));
    for half in [&b""[..], b"G", HALF] {
        let answer = exchange(server.address(), half, false);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    }
    // A connection that was used, and is left open.
    let answer = exchange(server.address(), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", false);
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let head = format!("POST /sources HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    for body in ["Content-Length: 100\r\n\r\n{\"name\"", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"na"] {
        let answer = exchange(server.address(), format!("{head}{body}").as_bytes(), false);
        HttpAnswer::parse(&answer).unwrap().expect_error(408, &["did not come within"]);
    }
}

/// It says itself that it is too long.
#[test]
fn a_body_that_is_to_be_too_long_is_not_waited_for() {
    let hour = Duration::from_secs(3600);
    let server = serve_within(ClientLimits { body: hour, ..ClientLimits::default() }, &FakeService::new(&[]));
    for length in [65_537, 99_999_999_999_u64] {
        let head = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}");
        let answer = exchange(server.address(), format!("POST /sources HTTP/1.1\r\n{head}\r\n\r\n").as_bytes(), false);
        HttpAnswer::parse(&answer).unwrap().expect_error(413, &["65536 bytes"]);
    }
}

#[test]
fn connections_are_limited_and_others_wait() {
    let server =
        serve_within(ClientLimits { connections: 3, head: SHORT, ..ClientLimits::default() }, &FakeService::new(&[]));
    for _ in 0..3 {
        let held: Vec<_> = (0..6)
            .map(|_| {
                let mut stream = connect(server.address());
                stream.write_all(HALF).unwrap();
                stream
            })
            .collect();
        get(&server, "/healthz").expect(200);
        drop(held);
    }
}

/// Who holds more than half of the connections, with half requests or with answers that are not read, does not keep
/// others out for long.
#[test]
fn a_crowd_is_given_less_time() {
    let hour = Duration::from_secs(3600);
    let crowded = Duration::from_millis(200);
    let limits = ClientLimits { connections: 4, head: hour, stalled: hour, crowded, ..ClientLimits::default() };
    let server = serve_within(limits, &FakeService::new(&[]));
    let unread = b"GET /status.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    for request in [HALF, &unread] {
        let held: Vec<_> = (0..10)
            .map(|_| {
                let mut stream = connect(server.address());
                stream.set_nonblocking(true).unwrap();
                let _ = stream.write(request); // all of it, or what the server takes
                stream
            })
            .collect();
        for _ in 0..3 {
            get(&server, "/healthz").expect(200);
        }
        drop(held);
    }
}

/// Who asks again and again on one connection, or sends a body slowly, leaves its place, too.
#[test]
fn a_crowd_that_goes_on_asking_leaves_room() {
    let hour = Duration::from_secs(3600);
    let limits = ClientLimits { connections: 4, body: hour, crowded: SHORT, ..ClientLimits::default() };
    let server = serve_within(limits, &FakeService::new(&[]));
    let ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut held: Vec<_> = (0..3).map(|_| connect(server.address())).collect();
    for stream in &mut held {
        stream.write_all(ask).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
    }
    let answer = exchange(server.address(), ask, false);
    assert!(HttpAnswer::parse(&answer).unwrap().head.contains("connection: close"), "{answer:?}");
    drop(held);
    let body = format!(
        "POST /sources HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n{{"
    );
    let held: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = connect(server.address());
            stream.write_all(body.as_bytes()).unwrap();
            stream
        })
        .collect();
    // The first two were no crowd.
    let answers = held[2..].iter().map(|mut stream| {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        answer
    });
    assert!(answers.into_iter().all(|answer| answer == *b"HTTP/1.1 408"));
    drop(held);
    get(&server, "/healthz").expect(200);
}

#[test]
fn hundreds_of_half_requests_leave_room() {
    let server = serve(&FakeService::new(&[]));
    let held: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = connect(server.address());
            stream.write_all(HALF).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        get(&server, "/sources").expect(200);
    }
    drop(held);
}

#[test]
fn live_views_are_limited() {
    let service = FakeService::new(&["door"]);
    let server = serve_within(ClientLimits { watchers: 2, ..ClientLimits::default() }, &service);
    let frames = service.frames("door");
    let open = || {
        let mut stream = connect(server.address());
        stream.write_all(b"GET /sources/door/live.mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    };
    let (one, _other) = (open(), open());
    until("watched", || frames.receiver_count() == 2);
    get(&server, "/sources/door/live.mjpeg").expect_error(503, &["2 of them", "snapshot.jpg"]);
    get(&server, "/sources/door/snapshot.jpg").expect_error(503, &["2 views and pictures"]);
    drop(one);
    until("freed", || frames.receiver_count() == 1);
    let _third = open();
    until("watched again", || frames.receiver_count() == 2);
}

/// A client that takes nothing any more, and does not close.
#[test]
fn a_stalled_live_view_is_ended() {
    let service = FakeService::new(&["door"]);
    let server =
        serve_within(ClientLimits { stalled: Duration::from_millis(200), ..ClientLimits::default() }, &service);
    let frames = service.frames("door");
    let mut stream = connect(server.address());
    stream.write_all(b"GET /sources/door/live.mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    until("watched", || frames.receiver_count() == 1);
    let large = Bytes::from(vec![0; 1 << 20]);
    let _camera = Camera::new(frames.clone(), move |_| large.clone());
    until("freed", || frames.receiver_count() == 0);
    drop(stream);
}

/// A source is added whose file is on a disk that does not answer.
#[test]
fn a_disk_that_does_not_answer_holds_up_no_other_request() {
    let service = FakeService::new(&["door"]);
    let (answers, disk) = std::sync::mpsc::channel();
    *service.disk.lock().unwrap() = Some(disk);
    let server = serve(&service);
    thread::scope(|scope| {
        let held = scope.spawn(|| {
            let body = r#"{"name": "yard", "address": "yard.mp4"}"#;
            change(&server, "POST", "/sources", body).expect(201);
        });
        until("the disk is asked", || service.disk.lock().unwrap().is_none());
        for path in ["/healthz", "/readyz", "/sources", "/sources/door", "/models", "/metrics"] {
            get(&server, path).expect(200);
        }
        assert!(!held.is_finished());
        assert_eq!(service.names(), ["door"]);
        drop(answers);
    });
    assert_eq!(service.names(), ["door", "yard"]);
    // Neither does it hold up the end.
    let (answers, disk) = std::sync::mpsc::channel();
    *service.disk.lock().unwrap() = Some(disk);
    let body = r#"{"name": "hall", "address": "hall.mp4"}"#;
    let head = "POST /sources HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
    let text = format!("{head} {TOKEN}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut client = connect(server.address());
    client.write_all(text.as_bytes()).unwrap();
    until("the disk is asked", || service.disk.lock().unwrap().is_none());
    drop(server);
    drop(answers);
}

/// A model that is sent in place of its path, for one. Who sends it would else see the connection break, and not why.
#[test]
fn a_body_that_is_refused_is_heard_out() {
    const SIZE: usize = 16 << 20;
    let server = serve(&FakeService::new(&[]));
    for (token, status) in [("", 401), (TOKEN, 413)] {
        let mut stream = connect(server.address());
        let head = format!(
            "PUT /models/yolo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {SIZE}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        (0..SIZE >> 16).for_each(|_| stream.write_all(&[0; 1 << 16]).unwrap());
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}
