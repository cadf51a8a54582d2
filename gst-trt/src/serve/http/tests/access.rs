// SPDX-License-Identifier: MPL-2.0
//! Tokens, hosts and origins.

use super::*;

const ADDED: &str = r#"{"name": "gate", "address": "rtsp://gate/1"}"#;

/// All that changes something.
const CHANGES: [(&str, &str, &str); 7] = [
    ("POST", "/sources", ADDED),
    ("DELETE", "/sources/door", ""),
    ("PUT", "/models/yolo", r#"{"file": "b.onnx"}"#),
    ("POST", "/galleries/faces/Ada", r#"{"vector": [1, 0, 0]}"#),
    ("DELETE", "/galleries/faces/Ada", ""),
    ("DELETE", "/identities", ""),
    ("DELETE", "/identities/1", ""),
];

fn refusal(listen: &str, token: Option<&str>) -> String {
    start_within(ClientLimits::default(), &settings(listen, token), FakeService::new(&[]))
        .err()
        .expect("refused")
        .to_string()
}

#[test]
fn changes_need_the_token() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let wrong = [
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic 0123456789abcdef-test",
        "0123456789abcdef-test",
        "Bearer 0123456789abcdef-tesT",
    ];
    for (method, path, body) in CHANGES {
        let answer = request(&server, method, path, &[], body);
        assert!(answer.head.contains("www-authenticate: bearer realm="), "{}", answer.head);
        answer.expect_error(401, &["needs the token", "Authorization: Bearer"]);
        for value in wrong {
            let answer = request(&server, method, path, &[("Authorization", value)], body);
            answer.expect_error(401, &["the token is wrong", "[http]"]);
        }
    }
    assert_eq!(service.names(), ["door"]);
    // The scheme is written in any case.
    request(&server, "DELETE", "/sources/door", &[("authorization", &format!("bearer {TOKEN}"))], "").expect(204);
}

#[test]
fn without_a_token_nothing_is_changed() {
    let service = FakeService::new(&["door"]);
    let server = start_within(ClientLimits::default(), &settings("127.0.0.1:0", None), service.clone()).unwrap();
    for (method, path, body) in CHANGES {
        for headers in [&[][..], &[("Authorization", "Bearer ")], &[("Authorization", "Bearer None")]] {
            request(&server, method, path, headers, body)
                .expect_error(403, &["there is no token", "Set token in [http]"]);
        }
    }
    assert_eq!(service.names(), ["door"]);
    get(&server, "/sources").expect(200);
}

/// A first line as proxies get it names a host, too, which servers are to take for the other one.
#[test]
fn a_request_for_two_hosts_is_refused() {
    let server = serve(&FakeService::new(&["door"]));
    let ask = |asked: &str, host: &str| {
        let text = format!("GET http://{asked}/sources HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        HttpAnswer::parse(&exchange(server.address(), text.as_bytes(), false)).unwrap()
    };
    for asked in ["evil.example", "localhost:1", "me@localhost"] {
        ask(asked, "localhost").expect_error(400, &["names two hosts"]);
    }
    ask("evil.example", "evil.example").expect_error(403, &["only for localhost"]);
    ask("LOCALHOST", "localhost").expect(200);
}

#[test]
fn beyond_localhost_all_needs_the_token() {
    let service = FakeService::new(&["door"]);
    let frames = service.frames("door");
    let _camera = Camera::new(frames, |_| Bytes::from_static(b"picture"));
    let server = start_within(ClientLimits::default(), &settings("0.0.0.0:0", Some(TOKEN)), service.clone()).unwrap();
    let port = server.address().port();
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("GET {path} HTTP/1.1\r\nHost: camera-server:{port}\r\nConnection: close\r\n{lines}\r\n");
        HttpAnswer::parse(&exchange(([127, 0, 0, 1], port).into(), text.as_bytes(), false)).unwrap()
    };
    let bearer = format!("Bearer {TOKEN}");
    for path in [
        "/sources",
        "/sources/door",
        "/sources/door/snapshot.jpg",
        "/sources/door/live.mjpeg",
        "/models",
        "/galleries",
        "/identities",
        "/metrics",
    ] {
        ask(path, &[]).expect_error(401, &["needs the token"]);
        ask(path, &[("Authorization", "Bearer no")]).expect_error(401, &["the token is wrong"]);
        if !path.ends_with("live.mjpeg") {
            ask(path, &[("Authorization", &bearer)]).expect(200);
        }
    }
    for path in ["/", "/status.js", "/video.js", "/status.css", "/healthz", "/readyz"] {
        ask(path, &[]).expect(200);
    }
    service.is_unready.store(true, Ordering::Relaxed);
    service.change("door", |status| status.state = State::Connecting);
    assert!(!ask("/readyz", &[]).expect(503).text().contains("door"));
    assert!(ask("/readyz", &[("Authorization", &bearer)]).expect(503).text().contains("door"));
}

#[test]
fn settings_that_are_not_safe_are_refused() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let error = refusal(listen, None);
        assert!(error.contains("without a token") && error.contains("127.0.0.1"), "{error}");
    }
    for token in ["", "short", "0123456789abcde", "0123456789abcdef with spaces", "0123456789äöü012345"] {
        let error = refusal("127.0.0.1:0", Some(token));
        assert!(error.contains("16 or more") && error.contains("openssl rand"), "{error}");
        assert!(token.is_empty() || !error.contains(token), "{error}");
    }
    assert!(!format!("{:?}", settings("127.0.0.1:0", Some(TOKEN))).contains(TOKEN));
}

/// A site can give its own name the address 127.0.0.1, and read the answers.
#[test]
fn on_localhost_other_hosts_are_refused() {
    let server = serve(&FakeService::new(&["door"]));
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:8090"] {
        request(&server, "GET", "/sources", &[("Host", host)], "").expect(200);
    }
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "[::2]:1", "localhostx"]
    {
        for path in ["/sources", "/", "/nothing"] {
            request(&server, "GET", path, &[("Host", host)], "").expect_error(403, &["only for localhost"]);
        }
    }
    for hosts in [&[("Host", "")][..], &[("Host", "a b")], &[("Host", "localhost"), ("Host", "localhost")]] {
        request(&server, "GET", "/sources", hosts, "").expect_error(400, &["Host"]);
    }
}

#[test]
fn other_sites_change_nothing_even_with_the_token() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let bearer = format!("Bearer {TOKEN}");
    let own = format!("http://{}", server.address());
    let post = |headers: &[(&str, &str)]| {
        let all = [&[("Authorization", bearer.as_str())], headers].concat();
        request(&server, "POST", "/sources", &all, ADDED)
    };
    for foreign in [
        &[("Origin", "http://evil.example")][..],
        &[("Origin", "null")],
        &[("Origin", "http://localhost:1")],
        &[("Sec-Fetch-Site", "cross-site"), ("Origin", own.as_str())],
        &[("Sec-Fetch-Site", "same-site")],
    ] {
        post(foreign).expect_error(403, &["another web site"]);
    }
    assert_eq!(service.names(), ["door"]);
    post(&[("Sec-Fetch-Site", "same-origin"), ("Origin", "https://behind-a-proxy.example")]).expect(201);
    service.remove_source("gate").unwrap();
    post(&[("Origin", &own)]).expect(201);
    // No other site may read, or show, what is answered.
    let answer = request(&server, "GET", "/sources", &[("Origin", "http://evil.example")], "");
    assert!(!answer.head.contains("access-control-"), "{}", answer.head);
    for header in ["cross-origin-resource-policy: same-origin", "x-content-type-options: nosniff", "default-src 'none'"]
    {
        assert!(answer.head.contains(header), "{}", answer.head);
    }
    assert!(!answer.head.contains("unsafe"), "{}", answer.head);
}
