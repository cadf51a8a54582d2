// SPDX-License-Identifier: MPL-2.0
//! trtpublish to web servers that do not behave.

use super::*;

fn bodies(requests: &std::sync::mpsc::Receiver<brokers::WebRequest>, count: usize) -> Vec<brokers::WebRequest> {
    (0..count).map(|_| requests.recv_timeout(LIMIT).expect("another request")).collect()
}

#[test]
fn requests_have_messages() {
    let (port, requests) = brokers::web_server(&[WebAnswer::Status(204)]);
    let mut stream = Stream::new(&format!("http://me:p%40ss@localhost:{port}/hook?key=1"), "max-batch=1");
    stream.push(3);
    stream.end();
    for (number, request) in bodies(&requests, 3).iter().enumerate() {
        assert!(request.head.starts_with("POST /hook?key=1 HTTP/1.1"), "{}", request.head);
        let head = request.head.to_lowercase();
        assert!(
            head.contains("content-type: application/json") && request.head.contains("Basic bWU6cEBzcw=="),
            "{head}"
        );
        assert_eq!(frames(std::slice::from_ref(&request.body)), [number as u64]);
    }
    drop(stream);
    // Together they are an array, and no more than max-batch.
    let (port, requests) = brokers::web_server(&[WebAnswer::Status(500), WebAnswer::Status(200)]);
    std::fs::write(scratch("publish-token").join("token"), "abc\n").unwrap();
    let token = Path::new(env!("CARGO_TARGET_TMPDIR")).join("publish-token/token");
    let properties = format!("max-batch=7 {OFTEN} password-file={}", token.display());
    let mut stream = Stream::new(&format!("http://localhost:{port}"), &properties);
    stream.push(50);
    stream.end();
    let mut received = Vec::new();
    for request in requests.try_iter().skip(1) {
        assert!(request.head.starts_with("POST / ") && request.head.contains("Bearer abc"), "{}", request.head);
        let array: Vec<Value> = serde_json::from_str(&request.body).unwrap();
        assert!(array.len() <= 7);
        received.extend(array.iter().map(Value::to_string));
    }
    assert_eq!(frames(&received), numbers(0..50));
}

#[test]
fn a_server_that_misbehaves_loses_nothing() {
    let answers = [
        WebAnswer::Status(500),
        WebAnswer::Close,
        WebAnswer::Status(503),
        WebAnswer::Hang,
        WebAnswer::Status(429),
        WebAnswer::Status(200),
    ];
    let (port, requests) = brokers::web_server(&answers);
    let mut stream =
        Stream::new(&format!("http://localhost:{port}/x"), &format!("max-batch=1 timeout=300000000 {OFTEN}"));
    stream.push(5);
    let told = stream.told();
    assert!(told.contains("http://localhost") && told.contains("500"), "{told}");
    stream.end();
    let bodies: Vec<String> = bodies(&requests, 10).into_iter().map(|request| request.body).collect();
    assert_eq!(frames(&bodies), [0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!((stream.count("published"), stream.count("rejected")), (5, 0));
}

#[test]
fn what_a_server_refuses_is_counted_and_not_repeated() {
    let (port, requests) =
        brokers::web_server(&[WebAnswer::Status(200), WebAnswer::Status(422), WebAnswer::Status(200)]);
    let mut stream = Stream::new(&format!("http://localhost:{port}/x"), "max-batch=1");
    stream.push(3);
    let told = stream.told();
    assert!(told.starts_with("A message is refused by http://localhost"), "{told}");
    stream.end();
    let bodies: Vec<String> = bodies(&requests, 3).into_iter().map(|request| request.body).collect();
    assert_eq!(frames(&bodies), [0, 1, 2]);
    assert_eq!((stream.count("published"), stream.count("rejected"), stream.count("dropped")), (2, 1, 0));
}

/// Whoever adds up the counts of many runs would see fewer in between.
#[test]
fn counts_do_not_go_back_while_it_stops() {
    let (port, requests) = brokers::web_server(&[WebAnswer::Status(200), WebAnswer::Hang]);
    let mut stream = Stream::new(&format!("http://localhost:{port}/x"), "max-batch=1 flush-timeout=300000000");
    stream.push(1);
    stream.wait_for("published", 1);
    stream.push(1);
    bodies(&requests, 2);
    let pipeline = stream.pipeline.clone();
    let stopping = std::thread::spawn(move || pipeline.set_state(gst::State::Null).is_ok());
    until("it is stopped", || {
        assert_eq!(stream.count("published"), 1);
        stopping.is_finished()
    });
    assert!(stopping.join().unwrap());
    assert_eq!((stream.count("published"), stream.count("dropped")), (1, 1));
}

#[test]
fn https_checks_certificates() {
    if !is_installed("openssl") {
        return;
    }
    let folder = scratch("publish-https");
    brokers::make_certificates(&folder);
    for name in ["own", "other"] {
        brokers::make_own_certificate(&folder, name);
    }
    let file = |name: &str| folder.join(name).display().to_string();
    let server = |name: &str, authority: &[&str]| {
        let files = [file(&format!("{name}.pem")), file(&format!("{name}.key"))];
        let files: Vec<&str> = files.iter().map(String::as_str).chain(authority.iter().copied()).collect();
        let server = brokers::Printed::of_script("common/https_server.py", &files);
        let port: u16 = server.next().parse().unwrap();
        (server, port)
    };
    let ca = file("ca.pem");
    let (of_authority, its_port) = server("server", &[]);
    let (wants_client, wants_client_port) = server("server", &[&ca]);
    let (own, own_port) = server("own", &[]);
    let client = format!("ca-file={ca} cert-file={} key-file={}", file("client.pem"), file("client.key"));
    for (server, host, port, certificates) in [
        (&of_authority, "localhost", its_port, format!("ca-file={ca}")),
        (&of_authority, "127.0.0.1", its_port, format!("ca-file={ca}")),
        (&wants_client, "localhost", wants_client_port, client),
        // What `openssl req -x509` makes is of an authority and of a server at once; curl --cacert takes it, too.
        (&own, "localhost", own_port, format!("ca-file={}", file("own.pem"))),
    ] {
        let mut stream = Stream::new(&format!("https://{host}:{port}/x"), &format!("max-batch=1 {certificates}"));
        stream.push(3);
        stream.end();
        assert_eq!(frames(&server.take(3)), [0, 1, 2], "{certificates}");
    }
    for (host, port, certificates, part) in [
        ("localhost", its_port, format!("ca-file={}", file("other.pem")), "UnknownIssuer"),
        ("localhost", wants_client_port, format!("ca-file={ca}"), "ertificate"),
        ("127.0.0.1", own_port, format!("ca-file={}", file("own.pem")), "not valid for name"),
        ("localhost", own_port, format!("ca-file={}", file("other.pem")), "certificate"),
    ] {
        let properties = format!("{OFTEN} flush-timeout=1 {certificates}");
        let mut stream = Stream::new(&format!("https://{host}:{port}/x"), &properties);
        stream.push(1);
        let told = stream.told();
        assert!(told.contains(&format!("https://{host}")) && told.contains(part), "{certificates}: {told}");
    }
    assert!([of_authority, wants_client, own].iter().all(|server| server.now().is_empty()));
}
