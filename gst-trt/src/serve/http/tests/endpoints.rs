// SPDX-License-Identifier: MPL-2.0
//! What each path answers.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::*;
use crate::serve::identities::tests::served;

#[test]
fn sources_are_listed_added_and_removed() {
    let service = FakeService::new(&["door", "yard"]);
    let server = serve(&service);
    let answer = get(&server, "/sources").expect(200);
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    let sources = answer.json();
    assert_eq!(sources.as_array().unwrap().len(), 2);
    assert_eq!(sources[0], get(&server, "/sources/door").expect(200).json());
    let latency = json!({"p50": 0.012, "p95": 0.02, "p99": 0.031, "sum": 16.0546875, "count": 4});
    let published = json!([{"name": null, "location": "mqtt://broker/t", "sent": 99, "dropped": 1, "connected": true}]);
    for (key, value) in [
        ("name", json!("door")),
        ("state", json!("running")),
        ("error", json!(null)),
        ("cause", json!(null)),
        ("failures", json!({"unreachable": 4})),
        ("latency", latency),
        ("events", json!({"crossed": 17, "entered": 4})),
        ("last-frame", json!(1_700_000_000.25)),
        (
            "zones",
            json!([{"name": "hall", "objects": {"disc": 3}, "entered": 4, "left": 1, "dwell": {"sum": 7.5, "count": 1}}]),
        ),
        ("lines", json!([{"name": "gate", "forward": 5, "backward": 2}])),
        ("published", published),
    ] {
        assert_eq!(sources[0][key], value, "{key}");
    }

    let body = json!({"name": "gate & co", "address": "rtsp://gate/1"}).to_string();
    let answer = change(&server, "POST", "/sources", &body).expect(201);
    assert!(answer.head.contains("location: /sources/gate%20%26%20co"), "{}", answer.head);
    assert_eq!(answer.json()["address"], "rtsp://gate/1");
    change(&server, "POST", "/sources", &body).expect_error(409, &["gate & co", "already"]);
    assert_eq!(service.names(), ["door", "yard", "gate & co"]);

    assert!(change(&server, "DELETE", "/sources/gate%20%26%20co", "").expect(204).body.is_empty());
    change(&server, "DELETE", "/sources/gate%20%26%20co", "").expect_error(404, &["gate & co", "GET /sources"]);
    get(&server, "/sources/gate").expect_error(404, &["no source “gate”", "GET /sources"]);
    assert_eq!(service.names(), ["door", "yard"]);
}

#[test]
fn models_are_listed_and_replaced() {
    let service = FakeService::new(&[]);
    let server = serve(&service);
    let models = get(&server, "/models").expect(200).json();
    let expected = json!([{
        "name": "yolo", "file": "yolo11n.onnx", "on": "frames", "backend": "tensorrt", "loaded": true, "verified": true, "progress": null,
        "error": null,
        "batches": {"size": 8, "runs": 100, "frames": 650, "late": 40},
    }]);
    assert_eq!(models, expected);
    let answer = change(&server, "PUT", "/models/yolo", r#"{"file": "other.onnx"}"#).expect(202);
    assert_eq!(answer.json()["file"], "other.onnx");
    assert_eq!(service.models()[0].file, Path::new("other.onnx"));
    change(&server, "PUT", "/models/x", r#"{"file": "other.onnx"}"#).expect_error(404, &["no model “x”"]);
    change(&server, "PUT", "/models/yolo", r#"{"file": "other"}"#).expect_error(400, &["no model file"]);
    for body in ["{}", r#"{"file": 1}"#, r#"{"file": ""}"#, r#"{"file": "a.onnx", "x": 1}"#] {
        change(&server, "PUT", "/models/yolo", body).expect_error(400, &["one key, file"]);
    }
}

#[test]
fn names_of_galleries_are_listed_and_removed() {
    let service = FakeService::new(&[]);
    let server = serve(&service);
    *service.people.lock().unwrap() = vec!["Ada".into(), "R/2 & co".into()];
    let galleries = get(&server, "/galleries").expect(200).json();
    let names = json!(["Ada", "R/2 & co"]);
    let expected = json!([{"name": "faces", "file": "people.jsonl", "names": names, "vectors": 4, "error": null}]);
    assert_eq!(galleries, expected);
    assert!(change(&server, "DELETE", "/galleries/faces/R%2F2%20%26%20co", "").expect(204).body.is_empty());
    change(&server, "DELETE", "/galleries/faces/Bob", "").expect_error(404, &["no “Bob”", "faces"]);
    change(&server, "DELETE", "/galleries/cars/Ada", "").expect_error(404, &["no gallery “cars”", "GET /galleries"]);
    change(&server, "DELETE", "/galleries/faces/%FF", "").expect_error(400, &["UTF-8"]);
    assert_eq!(*service.people.lock().unwrap(), ["Ada"]);
}

#[test]
fn vectors_are_added_to_galleries() {
    let service = FakeService::new(&[]);
    let server = serve(&service);
    let as_text = gsttrt_core::vector::to_text(&[0.5, 0.0, -2.0]);
    for (name, body) in [
        ("Ada", r#"{"vector": [0.5, 0, -2]}"#.to_string()),
        ("R%2F2%20%26%20co", format!(r#"{{"vector": "{as_text}"}}"#)),
    ] {
        let added = change(&server, "POST", &format!("/galleries/faces/{name}"), &body).expect(201).json();
        assert_eq!((&added["vectors"], &added["warning"]), (&json!(1), &json!("[0.5, 0.0, -2.0]")), "{added}");
    }
    assert_eq!(*service.people.lock().unwrap(), ["Ada", "R/2 & co"]);
    let many = vec!["1"; 4097].join(",");
    for (path, body, says) in [
        ("/galleries/faces/Ada", "{}", "one key, vector"),
        ("/galleries/faces/Ada", r#"{"vector": [1, 0, 0], "name": "Eve"}"#, "one key, vector"),
        ("/galleries/faces/Ada", r#"{"vector": 7}"#, "a list of numbers or base64"),
        ("/galleries/faces/Ada", r#"{"vector": [1, "0", 0]}"#, "something that is no number"),
        ("/galleries/faces/Ada", r#"{"vector": "people.jsonl"}"#, "not base64"),
        ("/galleries/faces/Ada", r#"{"vector": []}"#, "must have 1 to 4096"),
        ("/galleries/faces/Ada", &*format!(r#"{{"vector": [{many}]}}"#), "must have 1 to 4096"),
        ("/galleries/faces/Ada", r#"{"vector": [0, 0, 0]}"#, "no length"),
        ("/galleries/faces/Ada", r#"{"vector": [1e40, 0, 0]}"#, "no length"),
        ("/galleries/faces/Ada", r#"{"vector": [1, 0]}"#, "have 3 numbers"),
        ("/galleries/faces/a%0Ab", r#"{"vector": [1, 0, 0]}"#, "control characters"),
        ("/galleries/faces/%20", r#"{"vector": [1, 0, 0]}"#, "the name is empty"),
        (&*format!("/galleries/faces/{}", "x".repeat(257)), r#"{"vector": [1, 0, 0]}"#, "longer than 256 bytes"),
        ("/galleries/faces/%FF", r#"{"vector": [1, 0, 0]}"#, "UTF-8"),
    ] {
        change(&server, "POST", path, body).expect_error(400, &[says]);
    }
    let to_nobody = change(&server, "POST", "/galleries/cars/Ada", r#"{"vector": [1, 0, 0]}"#);
    to_nobody.expect_error(404, &["no gallery “cars”", "GET /galleries"]);
    let long = format!(r#"{{"vector": "{}"}}"#, "A".repeat(64 << 10));
    change(&server, "POST", "/galleries/faces/Ada", &long).expect_error(413, &["too long"]);
    assert_eq!(service.people.lock().unwrap().len(), 2);
}

#[test]
fn objects_of_several_sources_are_listed_and_removed() {
    let service = FakeService::new(&[]);
    let server = serve(&service);
    assert_eq!(get(&server, "/identities").expect(200).json(), json!([]), "there is no table");
    change(&server, "DELETE", "/identities/1", "").expect_error(404, &["id “1”", "GET /identities"]);
    *service.identities.lock().unwrap() = served().0;
    let listed = get(&server, "/identities").expect(200).json();
    let places: Vec<_> = listed.as_array().unwrap().iter().map(|found| (&found["id"], &found["sources"])).collect();
    assert_eq!(places, [(&json!(1), &json!(["yard", "door"])), (&json!(2), &json!(["yard"]))]);
    assert_eq!((&listed[0]["label"], &listed[0]["in-sight"]), (&json!("person"), &json!(false)));
    assert!(listed[0]["first-seen"].as_f64().unwrap() <= listed[0]["last-seen"].as_f64().unwrap());
    for path in ["/identities/1", "/identities"] {
        request(&server, "DELETE", path, &[], "").expect_error(401, &["needs the token"]);
    }
    assert!(change(&server, "DELETE", "/identities/1", "").expect(204).body.is_empty());
    for id in ["1", "-1", "x", "99999999999999999999", "%FF"] {
        let answer = change(&server, "DELETE", &format!("/identities/{id}"), "");
        answer.expect_error(if id == "%FF" { 400 } else { 404 }, &[]);
    }
    assert_eq!(service.identities().counts().unwrap().known, 1);
    assert!(change(&server, "DELETE", "/identities", "").expect(204).body.is_empty());
    assert_eq!(get(&server, "/identities").expect(200).json(), json!([]));
}

#[test]
fn health_is_told_and_why_it_is_not_ready() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    get(&server, "/healthz").expect(200);
    get(&server, "/readyz").expect(200);
    service.is_unready.store(true, Ordering::Relaxed);
    service.change("door", |status| status.state = State::Connecting);
    {
        let mut models = service.models.lock().unwrap();
        let unloaded = ModelStatus { loaded: false, ..models[0].clone() };
        models[0] = ModelStatus { progress: Some(0.4), ..unloaded.clone() };
        models.push(ModelStatus { name: "broken".into(), error: Some("No such file.".into()), ..unloaded.clone() });
        models.push(ModelStatus { name: "late".into(), ..unloaded });
    }
    get(&server, "/healthz").expect(200);
    let answer = get(&server, "/readyz").expect(503).json();
    let reasons = [
        "the engine of the model “yolo” is built to 40 %",
        "the model “broken” is not loaded: No such file",
        "the model “late” is being loaded",
        "the source “door” has given no frame yet",
    ];
    assert_eq!(answer["reasons"], json!(reasons));
    get(&server, "/readyz").expect_error(503, &reasons);
}

#[test]
fn what_is_not_there_is_said() {
    let server = serve(&FakeService::new(&["door"]));
    for path in ["/nothing", "/sources/", "/sources/door/", "/models/yolo/file", "//", "/sources/door/snapshot.png"] {
        get(&server, path).expect_error(404, &[path, "/sources"]);
    }
    for (method, path, allowed) in [
        ("PATCH", "/sources", "get,head,post"),
        ("PUT", "/sources/door", "get,head,delete"),
        ("POST", "/healthz", "get"),
    ] {
        let answer = change(&server, method, path, "{}");
        assert!(answer.head.contains(&format!("allow: {allowed}")), "{}", answer.head);
        answer.expect_error(405, &[method, path]);
    }
    // HEAD is as GET, without the body.
    assert!(request(&server, "HEAD", "/sources", &[], "").expect(200).body.is_empty());
}

#[test]
fn one_connection_takes_several_requests() {
    let server = serve(&FakeService::new(&[]));
    let request = |headers| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let requests = request("").repeat(2) + &request("Connection: close\r\n");
    // The client keeps its side open: a client that closes it is taken to have gone.
    let answer = exchange(server.address(), requests.as_bytes(), false);
    assert_eq!(String::from_utf8_lossy(&answer).matches("HTTP/1.1 200 OK").count(), 3);
}

#[test]
fn the_address_can_be_used_again_at_once() {
    let service = FakeService::new(&["door"]);
    let server = serve(&service);
    let address = server.address();
    // A connection in the middle of an answer does not hold up the end.
    let mut stream = connect(address);
    stream.write_all(b"GET /sources/door/live.mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let frames = service.frames("door");
    until("watched", || frames.receiver_count() == 1);
    let error =
        start_within(ClientLimits::default(), &settings(&address.to_string(), None), service.clone()).err().unwrap();
    assert!(error.to_string().contains(&format!("Cannot serve HTTP on {address}")), "{error}");
    drop(server);
    assert_eq!(frames.receiver_count(), 0);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let server = start_within(ClientLimits::default(), &settings(&address.to_string(), None), service.clone()).unwrap();
    get(&server, "/healthz").expect(200);
}
