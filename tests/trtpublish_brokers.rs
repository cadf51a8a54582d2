// SPDX-License-Identifier: MPL-2.0
//! trtpublish to real servers: mosquitto, redis-server and nats-server here, RabbitMQ and web servers in rooms of their own.
#![cfg_attr(not(all(feature = "mqtt", feature = "redis", feature = "http")), allow(dead_code, unused_imports))]

#[cfg(feature = "kafka")]
mod kafka;
mod rabbitmq;
#[cfg(feature = "http")]
mod web;

use std::path::Path;

use crate::common::brokers::{self, LIMIT, WebAnswer, is_installed, until};
use crate::common::scratch;
use gst::prelude::*;
use serde_json::Value;

/// Pushes frames without results into a trtpublish that publishes each, and hears what it says from the start on.
struct Stream {
    pipeline: gst::Pipeline,
    source: gst_app::AppSrc,
    publish: gst::Element,
    frames: u64,
}

impl Stream {
    fn new(location: &str, properties: &str) -> Self {
        crate::common::init();
        let line = format!(
            "appsrc name=source format=time caps=video/x-raw,format=NV12,width=64,height=48,framerate=30/1 \
             ! trtpublish name=publish add-empty-results=true {properties} ! fakesink sync=false"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let publish = pipeline.by_name("publish").unwrap();
        publish.set_property("location", location);
        let source = pipeline.by_name("source").unwrap().downcast().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        Stream { pipeline, source, publish, frames: 0 }
    }

    fn push(&mut self, count: u64) {
        for _ in 0..count {
            let mut buffer = gst::Buffer::new();
            buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(self.frames * 33));
            self.frames += 1;
            self.source.push_buffer(buffer).unwrap();
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.publish.property::<gst::Structure>("stats").get(name).unwrap()
    }

    fn wait_for(&self, name: &str, count: u64) {
        until(&format!("{name} is {count}"), || self.count(name) >= count);
    }

    /// The next warning or note.
    #[track_caller]
    fn told(&self) -> String {
        let kinds = [gst::MessageType::Warning, gst::MessageType::Info, gst::MessageType::Error];
        let limit = gst::ClockTime::from_seconds(LIMIT.as_secs());
        let message = self.pipeline.bus().unwrap().timed_pop_filtered(limit, &kinds).expect("something is told");
        match message.view() {
            gst::MessageView::Warning(told) => told.error().message().to_string(),
            gst::MessageView::Info(told) => told.error().message().to_string(),
            gst::MessageView::Error(told) => told.error().message().to_string(),
            _ => unreachable!("filtered"),
        }
    }

    /// The end of the stream; all is sent then.
    fn end(&self) {
        self.source.end_of_stream().unwrap();
        let limit = gst::ClockTime::from_seconds(LIMIT.as_secs());
        self.pipeline.bus().unwrap().timed_pop_filtered(limit, &[gst::MessageType::Eos]).expect("the end");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

/// The numbers of the frames in messages.
fn frames(messages: &[String]) -> Vec<u64> {
    let number = |text: &String| {
        serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"))["frame"].as_u64().unwrap()
    };
    messages.iter().map(number).collect()
}

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

const OFTEN: &str = "max-reconnect-interval=200000000";

// ------------------------------------------------------------------------------------------- MQTT

fn has_mosquitto() -> bool {
    cfg!(feature = "mqtt") && is_installed("mosquitto") && is_installed("mosquitto_sub")
}

#[test]
fn mosquitto_gets_messages_of_each_quality() {
    if !has_mosquitto() {
        return;
    }
    let folder = scratch("publish-mosquitto");
    let server = brokers::mosquitto(&folder, "allow_anonymous true");
    for qos in 0..3 {
        let topic = format!("cameras/{qos}");
        let subscriber = brokers::mosquitto_sub(server.port, &topic, &[]);
        let location = format!("mqtt://localhost:{}/{topic}?qos={qos}&keep-alive=1", server.port);
        let mut stream = Stream::new(&location, "");
        stream.push(200);
        assert_eq!(frames(&subscriber.take(200)), numbers(0..200), "qos {qos}");
        stream.end();
        assert_eq!((stream.count("published"), stream.count("dropped"), stream.count("connections")), (200, 0, 1));
    }
    // The last message is kept for later clients.
    let mut stream = Stream::new(&format!("mqtt://localhost:{}/kept?retain=true", server.port), "");
    stream.push(3);
    stream.end();
    assert_eq!(frames(&brokers::mosquitto_sub(server.port, "kept", &[]).take(1)), [2]);
}

#[test]
fn mosquitto_is_killed_and_started_again() {
    if !has_mosquitto() {
        return;
    }
    for parameters in ["qos=1", "qos=2&clean-session=false&client-id=camera"] {
        let folder = scratch("publish-mosquitto-killed");
        let mut server = brokers::mosquitto(&folder, "allow_anonymous true");
        let subscriber = brokers::mosquitto_sub(server.port, "t", &[]);
        let location = format!("mqtt://localhost:{}/t?{parameters}", server.port);
        let mut stream = Stream::new(&location, &format!("max-queued=100 {OFTEN}"));
        stream.push(50);
        assert_eq!(frames(&subscriber.take(50)), numbers(0..50));
        stream.wait_for("published", 50);
        server.kill();
        stream.push(150);
        stream.wait_for("frames", 200);
        // A batch may be on its way; the rest of the newest 100 wait.
        let (queued, dropped) = (stream.count("queued"), stream.count("dropped"));
        assert_eq!((queued, queued + dropped), (100, 150));
        let mut told = [stream.told(), stream.told()];
        told.sort();
        assert!(told[0].starts_with("Messages are dropped") || told[1].starts_with("Messages are dropped"), "{told:?}");
        assert!(told.iter().any(|told| told.contains(" to mqtt://localhost")), "{told:?}");
        server.start();
        let told = stream.told();
        assert!(told.contains("again, after"), "{told}");
        stream.end();
        let mut received = Vec::new();
        while received.last() != Some(&199) {
            received.extend(frames(&subscriber.take(1)));
        }
        // What the server had not saved when it was killed it delivers again.
        received.retain(|frame| *frame >= 50);
        assert!(received.len() == 100 && received.is_sorted_by(|a, b| a < b), "in order, once: {received:?}");
        assert_eq!((stream.count("published"), stream.count("dropped")), (150, 50));
        assert_eq!(subscriber.now(), [""; 0]);
    }
}

#[test]
fn mosquitto_checks_certificates_and_passwords() {
    if !has_mosquitto() || !is_installed("openssl") {
        return;
    }
    let folder = scratch("publish-mosquitto-tls");
    brokers::make_certificates(&folder);
    let passwords = folder.join("passwords");
    let made = std::process::Command::new("mosquitto_passwd")
        .args(["-c", "-b"])
        .arg(&passwords)
        .args(["me", "hunter2"])
        .status();
    assert!(made.unwrap().success());
    let file = |name: &str| folder.join(name).display().to_string();
    let lines = format!(
        "cafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\npassword_file {}\nallow_anonymous false",
        file("ca.pem"),
        file("server.pem"),
        file("server.key"),
        passwords.display()
    );
    let server = brokers::mosquitto(&folder, &lines);
    let login = [
        "--cafile",
        &file("ca.pem"),
        "--cert",
        &file("client.pem"),
        "--key",
        &file("client.key"),
        "-u",
        "me",
        "-P",
        "hunter2",
    ];
    let subscriber = brokers::mosquitto_sub(server.port, "t", &login);
    std::fs::write(folder.join("secret"), "hunter2\n").unwrap();
    std::fs::write(folder.join("wrong"), "hunter3\n").unwrap();
    let location = format!("mqtts://me@localhost:{}/t", server.port);
    let certificates =
        format!("ca-file={} cert-file={} key-file={} {OFTEN}", file("ca.pem"), file("client.pem"), file("client.key"));
    let mut stream = Stream::new(&location, &format!("{certificates} password-file={}", file("secret")));
    stream.push(20);
    assert_eq!(frames(&subscriber.take(20)), numbers(0..20));
    stream.end();

    for (properties, part) in [
        (format!("{certificates} password-file={}", file("wrong")), "user and password"),
        (certificates.replace("ca-file", "flush-timeout=1 ca-file").replace("ca.pem", "client.pem"), "certificate"),
        (format!("ca-file={} password-file={} {OFTEN}", file("ca.pem"), file("secret")), "ertificate"),
    ] {
        let mut stream = Stream::new(&location, &format!("{properties} flush-timeout=1"));
        stream.push(1);
        let told = stream.told();
        assert!(told.contains("mqtts://localhost") && told.contains(part) && !told.contains("hunter"), "{told}");
    }
}

/// `openssl req -x509` makes certificates of authorities; mosquitto_pub takes such a one, too, where it is the ca-file.
#[test]
fn a_server_with_a_certificate_of_its_own_is_taken() {
    if !has_mosquitto() || !is_installed("openssl") {
        return;
    }
    let folder = scratch("publish-self-signed");
    for name in ["own", "other"] {
        brokers::make_own_certificate(&folder, name);
    }
    let file = |name: &str| folder.join(name).display().to_string();
    let lines = format!("certfile {}\nkeyfile {}\nallow_anonymous true", file("own.pem"), file("own.key"));
    let server = brokers::mosquitto(&folder, &lines);
    let mut stream =
        Stream::new(&format!("mqtts://localhost:{}/t", server.port), &format!("{OFTEN} ca-file={}", file("own.pem")));
    stream.push(5);
    stream.wait_for("published", 5);
    // Neither another server nor another name is taken for it.
    for (host, ca_file) in [("localhost", "other.pem"), ("127.0.0.1", "own.pem")] {
        let properties = format!("{OFTEN} flush-timeout=1 ca-file={}", file(ca_file));
        let mut stream = Stream::new(&format!("mqtts://{host}:{}/t", server.port), &properties);
        stream.push(1);
        let told = stream.told();
        assert!(told.contains("certificate"), "{told}");
    }
}

#[test]
fn mosquitto_publishes_the_last_will() {
    if !has_mosquitto() {
        return;
    }
    let folder = scratch("publish-mosquitto-will");
    let server = brokers::mosquitto(&folder, "allow_anonymous true");
    let subscriber = brokers::mosquitto_sub(server.port, "will", &[]);
    let connect = |id: &str| {
        let location = format!(
            "mqtt://localhost:{}/t?client-id={id}&will-topic=will&will-message=gone%20{id}&will-qos=1",
            server.port
        );
        let mut stream = Stream::new(&location, OFTEN);
        assert_eq!(stream.count("connections"), 0, "a stream without a frame needs no connection");
        stream.push(1);
        stream.wait_for("connections", 1);
        stream
    };
    // A client that says goodbye has none; one that takes its id ends the connection of the other one.
    drop(connect("a"));
    let first = connect("b");
    let second = connect("b");
    assert_eq!(subscriber.next(), "gone b");
    drop((first, second));
}

// ------------------------------------------------------------------------------------------- Redis

fn has_redis() -> bool {
    cfg!(feature = "redis") && is_installed("redis-server") && is_installed("redis-cli")
}

/// The messages of a stream.
fn entries(port: u16, key: &str) -> Vec<String> {
    let found: Value = serde_json::from_str(&brokers::redis_cli(port, &["XRANGE", key, "-", "+"])).unwrap();
    let text = |entry: &Value| {
        assert_eq!(entry[1][0], "metadata");
        entry[1][1].as_str().unwrap().to_string()
    };
    found.as_array().unwrap().iter().map(text).collect()
}

#[test]
fn redis_gets_streams_and_channels() {
    if !has_redis() {
        return;
    }
    let server = brokers::redis(&scratch("publish-redis"), "");
    let location = |rest: &str| format!("redis://localhost:{}/{rest}", server.port);
    for (rest, kept) in [("a", 250), ("b?maxlen=100", 100), ("c?maxlen=0&type=stream", 250)] {
        let mut stream = Stream::new(&location(rest), "");
        stream.push(250);
        stream.end();
        let received = frames(&entries(server.port, &rest[..1]));
        // The server cuts streams in whole pieces.
        assert!(
            received.len() >= kept && received == numbers(250 - received.len() as u64..250),
            "{rest}: {received:?}"
        );
    }
    let subscriber = brokers::redis_subscribe(server.port, "news");
    let mut stream = Stream::new(&location("news?type=channel"), "");
    stream.push(10);
    stream.end();
    let messages: Vec<String> = subscriber.take(30).chunks(3).map(|message| message[2].clone()).collect();
    assert_eq!(frames(&messages), numbers(0..10));

    let mut stream = Stream::new(&location("key?db=3"), "");
    stream.push(1);
    stream.end();
    assert_eq!(brokers::redis_cli(server.port, &["-n", "3", "XLEN", "key"]), "1");
}

#[test]
fn redis_is_killed_and_started_again() {
    if !has_redis() {
        return;
    }
    let mut server = brokers::redis(&scratch("publish-redis-killed"), "");
    let mut stream = Stream::new(&format!("redis://localhost:{}/key", server.port), OFTEN);
    stream.push(100);
    stream.wait_for("published", 1);
    server.kill();
    stream.push(100);
    let told = stream.told();
    assert!(told.contains("redis://localhost"), "{told}");
    server.start();
    stream.end();
    assert_eq!(frames(&entries(server.port, "key")), numbers(0..200), "nothing twice, nothing lost");
    assert_eq!((stream.count("published"), stream.count("dropped")), (200, 0));
}

#[test]
fn redis_checks_certificates_and_passwords() {
    if !has_redis() || !is_installed("openssl") {
        return;
    }
    let folder = scratch("publish-redis-tls");
    brokers::make_certificates(&folder);
    let file = |name: &str| folder.join(name).display().to_string();
    let arguments = format!(
        "--tls-port 1 --requirepass hunter2 --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    );
    let server = brokers::redis(&folder, &arguments.replace("--tls-port 1 ", "--tls-auth-clients yes "));
    // Without the port for TLS this one speaks plain Redis, with a password.
    for (password, is_right) in [("hunter2", true), ("hunter3", false)] {
        let mut stream = Stream::new(&format!("redis://:{password}@localhost:{}/key", server.port), "flush-timeout=1");
        stream.push(1);
        if is_right {
            stream.wait_for("published", 1)
        } else {
            let told = stream.told();
            assert!(told.contains("Cannot connect to redis://localhost") && !told.contains("hunter"), "{told}");
        }
    }
    drop(server);
    let folder = scratch("publish-redis-tls-2");
    let server = brokers::redis(&folder, &arguments);
    let certificates =
        format!("ca-file={} cert-file={} key-file={}", file("ca.pem"), file("client.pem"), file("client.key"));
    let location = format!("rediss://:hunter2@localhost:{}/key", server.port);
    let mut stream = Stream::new(&location, &certificates);
    stream.push(5);
    stream.wait_for("published", 5);
    let mut stream = Stream::new(&location, "flush-timeout=1");
    stream.push(1);
    let told = stream.told();
    assert!(told.contains("rediss://localhost") && !told.contains("hunter"), "{told}");
}

// ------------------------------------------------------------------------------------------- NATS

#[test]
#[cfg(feature = "nats")]
fn nats_gets_messages() {
    if !is_installed("nats-server") {
        return;
    }
    let mut server = brokers::nats(&scratch("publish-nats"), "--user me --pass hunter2");
    let login = r#","user":"me","pass":"hunter2""#;
    let mut subscriber = brokers::NatsSubscriber::new(server.port, "a.b", login);
    let location = format!("nats://me:hunter2@localhost:{}/a.b", server.port);
    let mut stream = Stream::new(&location, OFTEN);
    stream.push(100);
    let received: Vec<String> = (0..100).map(|_| subscriber.next()).collect();
    assert_eq!(frames(&received), numbers(0..100));
    stream.wait_for("published", 100);
    server.kill();
    until("it is noticed", || !stream.publish.property::<gst::Structure>("stats").get::<bool>("connected").unwrap());
    stream.push(50);
    stream.wait_for("frames", 150);
    assert_eq!(stream.count("queued"), 50);
    server.start();
    stream.end();
    assert_eq!((stream.count("published"), stream.count("dropped")), (150, 0));

    let mut stream = Stream::new(&location.replace("hunter2", "hunter3"), "flush-timeout=1");
    stream.push(1);
    let told = stream.told();
    assert!(told.contains("Authorization Violation") && !told.contains("hunter"), "{told}");
}

#[test]
#[cfg(feature = "nats")]
fn nats_is_encrypted_where_the_server_wants_it() {
    if !is_installed("nats-server") || !is_installed("openssl") {
        return;
    }
    let folder = scratch("publish-nats-tls");
    brokers::make_certificates(&folder);
    let file = |name: &str| folder.join(name).display().to_string();
    let tls = format!(
        "--auth token --tlsverify --tlscert {} --tlskey {} --tlscacert {}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    );
    let server = brokers::nats(&folder, &tls);
    let certificates =
        format!("ca-file={} cert-file={} key-file={}", file("ca.pem"), file("client.pem"), file("client.key"));
    let mut stream = Stream::new(&format!("nats://token@localhost:{}/a", server.port), &certificates);
    stream.push(5);
    stream.wait_for("published", 5);
}
