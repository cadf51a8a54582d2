// SPDX-License-Identifier: MPL-2.0
//! Bad input of every kind: each has a clear error, and the server goes on.

use super::*;

/// What the answer to a case must be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// Not HTTP, or cut off: the connection ends, with an error of 4xx if any.
    End,
    /// One of these states, with an error in JSON.
    Error(&'static [u16]),
}

struct Case {
    name: String,
    bytes: Vec<u8>,
    expected: Expected,
}

/// xorshift
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

fn head(method: &str, path: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n"
    )
}

fn with_body(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = head(method, path, &format!("Content-Length: {}\r\n", body.len()));
    [head.as_bytes(), body].concat()
}

fn random(cases: &mut Vec<Case>) {
    let mut random = Random(0x5eed);
    for number in 0..40 {
        let length = 1 + random.next() as usize % 3000;
        let bytes = random.bytes(length);
        cases.push(Case { name: format!("random bytes {number}"), bytes, expected: Expected::End });
        let path = if number % 2 == 0 { ("POST", "/sources") } else { ("PUT", "/models/yolo") };
        let bytes = with_body(path.0, path.1, &random.bytes(length));
        cases.push(Case { name: format!("random body {number}"), bytes, expected: Expected::Error(&[400]) });
    }
    // A good request with some bytes changed, which may stay a good one.
    for number in 0..30 {
        let mut bytes = with_body("POST", "/nothing", br#"{"name": "gate", "address": "rtsp://gate/1"}"#);
        for _ in 0..3 {
            let place = random.next() as usize % bytes.len();
            bytes[place] = random.next() as u8;
        }
        cases.push(Case { name: format!("changed bytes {number}"), bytes, expected: Expected::End });
    }
}

fn bodies(cases: &mut Vec<Case>) {
    let deep = "[".repeat(50_000);
    let deep_key = format!("{{\"name\": {}", "{\"a\":".repeat(9_000));
    let odd = [
        "",
        " ",
        "null",
        "true",
        "0",
        "1e999",
        "\"text\"",
        "[]",
        "[{}]",
        "{",
        "}",
        "{}}",
        "{\"name\"}",
        "{name: 1}",
        "{'a': 1}",
        "{\"name\": \"a\",}",
        "{\"name\": NaN}",
        "{\"a\": \"\\ud800\"}",
        "\u{feff}{}",
        "{}",
        "{\"name\": 1, \"address\": \"x\"}",
        "{\"name\": null}",
        "{\"name\": \"a\", \"address\": []}",
        "{\"name\": {}, \"address\": {}}",
        "{\"nmae\": \"a\"}",
        "{\"name\": \"a\", \"address\": \"b\", \"adress\": \"c\"}",
        "<xml/>",
        "name=a&address=b",
        "--x\r\n\r\n",
        &deep,
        &deep_key,
    ];
    for body in odd {
        for (method, path) in [("POST", "/sources"), ("PUT", "/models/yolo"), ("POST", "/galleries/faces/Ada")] {
            let name = format!("{method} {:.40}", body);
            let bytes = with_body(method, path, body.as_bytes());
            cases.push(Case { name, bytes, expected: Expected::Error(&[400]) });
        }
    }
    for size in [65_537, 1 << 20, 20 << 20] {
        let body = format!("{{\"name\": \"{}\"}}", "x".repeat(size));
        let bytes = with_body("POST", "/sources", body.as_bytes());
        cases.push(Case { name: format!("{size} bytes"), bytes, expected: Expected::Error(&[413]) });
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let bytes = [head("POST", "/sources", "Transfer-Encoding: chunked\r\n"), chunk].concat().into_bytes();
        cases.push(Case { name: format!("{size} bytes, chunked"), bytes, expected: Expected::Error(&[413]) });
    }
    for (method, path, body) in [
        ("POST", "/sources", r#"{"name": "gate", "address": "rtsp://gate/1", "address": "rtsp://gate/2"}"#),
        ("PUT", "/models/yolo", r#"{"file": "a.onnx", "file": "b.onnx"}"#),
    ] {
        let bytes = with_body(method, path, body.as_bytes());
        cases.push(Case { name: format!("{method} with a key twice"), bytes, expected: Expected::Error(&[400]) });
    }
    let bytes = with_body("PUT", "/models/none", br#"{"file": "a.onnx"}"#);
    cases.push(Case { name: "unknown model".into(), bytes, expected: Expected::Error(&[404]) });
}

fn names(cases: &mut Vec<Case>) {
    let long = "x".repeat(5000);
    let odd = [
        "%00",
        "%ff",
        "%c3%28",
        "%",
        "%zz",
        "%2e%2e",
        "..",
        ".",
        "%2F",
        "..%2f..%2fetc%2fpasswd",
        "%252e",
        "a%20b",
        "a+b",
        "ä",
        "%F0%9F%93%B7",
        "door%00",
        "DOOR",
        "door%20",
        "{name}",
        "*",
        "<script>",
        "door;x",
        "%5c",
        "~",
        long.as_str(),
    ];
    for name in odd {
        for (method, end) in [("GET", ""), ("DELETE", ""), ("GET", "/snapshot.jpg"), ("GET", "/live.mjpeg")] {
            let bytes = head(method, &format!("/sources/{name}{end}"), "").into_bytes();
            // What may not be in an address is answered by hyper, without a body.
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%+;*".contains(&byte));
            let expected = if is_plain { Expected::Error(&[400, 404]) } else { Expected::End };
            cases.push(Case { name: format!("{method} {name:.20}{end}"), bytes, expected });
        }
    }
}

fn protocol(cases: &mut Vec<Case>) {
    let many = "X: y\r\n".repeat(500);
    let long = format!("X: {}\r\n", "y".repeat(100_000));
    let address = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    let get = |more: &str| head("GET", "/nothing", more);
    let post = |more: &str| head("POST", "/sources", more);
    let ends = [
        ("HTTP 0.9", "GET /\r\n\r\n".into()),
        ("HTTP 3", "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n".into()),
        ("HTTP 2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}".into()),
        ("no headers", "GET / HTTP/1.1".into()),
        ("empty lines", "\r\n".repeat(3000)),
        ("no method", " / HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("header without a colon", get("broken\r\n")),
        ("header with a zero", get("X: a\0b\r\n")),
        ("folded header", get("X: a\r\n b\r\n")),
        ("500 headers", get(&many)),
        ("long header", get(&long)),
        ("long address", address),
        ("negative length", post("Content-Length: -1\r\n")),
        ("length in words", post("Content-Length: five\r\n")),
        ("length beyond 64 bits", post("Content-Length: 99999999999999999999999\r\n")),
        ("two lengths", post("Content-Length: 1\r\nContent-Length: 2\r\n")),
        ("length and chunks", post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")),
        ("unknown encoding", post("Transfer-Encoding: pigeon\r\n")),
        ("no number of a chunk", post("Transfer-Encoding: chunked\r\n") + "xyz\r\n"),
        ("chunk beyond 64 bits", post("Transfer-Encoding: chunked\r\n") + "ffffffffffffffffff\r\n"),
        ("chunk without an end", post("Transfer-Encoding: chunked\r\n") + "5\r\nhello"),
        ("less than its length", post("Content-Length: 50\r\n") + "{\"name\""),
        ("upgrade", get("Upgrade: websocket\r\nConnection: Upgrade\r\n")),
        ("expectation", post("Expect: 200-please\r\nContent-Length: 2\r\n") + "{}"),
    ];
    for (name, text) in ends {
        cases.push(Case { name: name.into(), bytes: text.into_bytes(), expected: Expected::End });
    }
    for (method, status) in [("BREW", &[405][..]), ("TRACE", &[405]), ("OPTIONS", &[405]), ("get", &[405])] {
        let bytes = head(method, "/sources", "").into_bytes();
        cases.push(Case { name: method.into(), bytes, expected: Expected::Error(status) });
    }
    let whole = with_body("POST", "/nothing", b"{\"name\": \"gate\"}");
    for end in (1..whole.len() - 16).step_by(7) {
        cases.push(Case {
            name: format!("the first {end} bytes"),
            bytes: whole[..end].into(),
            expected: Expected::End,
        });
    }
}

#[test]
fn bad_input_has_clear_errors_and_stops_nothing() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let before = serde_json::to_string(&service.sources()).unwrap();
    let mut cases = Vec::new();
    random(&mut cases);
    bodies(&mut cases);
    names(&mut cases);
    protocol(&mut cases);
    assert!(cases.len() >= 200, "{}", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        // A client that has sent all of a request waits for its answer.
        let bytes = exchange(server.address(), &case.bytes, case.expected == Expected::End);
        let answer = HttpAnswer::parse(&bytes);
        let is_right = match (case.expected, &answer) {
            (Expected::End, None) => bytes.is_empty(),
            (Expected::End, Some(answer)) => (400..500).contains(&answer.status),
            (Expected::Error(_), None) => false,
            (Expected::Error(states), Some(answer)) => states.contains(&answer.status) && answer.is_error(),
        };
        if !is_right || String::from_utf8_lossy(&bytes).contains(TOKEN) {
            wrong.push(format!("{}: {}", case.name, String::from_utf8_lossy(&bytes)));
        }
        get(&server, "/healthz").expect(200);
    }
    assert!(wrong.is_empty(), "{} cases: {wrong:#?}", wrong.len());
    assert_eq!(serde_json::to_string(&service.sources()).unwrap(), before);
    assert_eq!(service.models()[0].file, Path::new("yolo11n.onnx"));
    until("freed", || service.frames("door").receiver_count() == 0);
}
