// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve` goes on, answers and ends whatever a model, a source or a disk does. A named pipe without a writer
//! stands for what does not answer: whoever opens it waits.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::hostile_peer::{Act, HostilePeer};
use common::service::{Service, ask, free_address};
use common::wait::{LIMIT, wait_until};
use common::{path, sample, scratch, shapes};
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef-test";

fn pipe(folder: &Path, name: &str) -> PathBuf {
    let pipe = folder.join(name);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    pipe
}

/// A model, a source that plays, and HTTP.
fn config(address: &str) -> String {
    format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"rten\"\ninfer = \"interval=30\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n\
         [http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n\
         [[source]]\nname = \"street\"\naddress = \"{}\"\nmodel = \"shapes\"\nloop = true\nsync = true\n\n",
        shapes(),
        sample()
    )
}

/// The status and the body of an answer.
fn call(address: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = ask(address, method, path, TOKEN, &text);
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

fn get(address: &str, path: &str) -> Value {
    match call(address, "GET", path, &Value::Null) {
        (200, answer) => answer,
        (status, answer) => panic!("{path}: {status}: {answer}"),
    }
}

/// Its library is on a disk that does not answer, so each of these models is loaded as long as the service runs.
#[test]
fn http_answers_while_models_are_held_up() {
    let folder = scratch("serve-held-models");
    let address = free_address();
    let library = pipe(&folder, "libonnxruntime.so");
    let service = Service::start(&folder, &config(&address));
    service.result("street");
    let held: String = (0..5)
        .map(|number| {
            format!(
                "[[model]]\nname = \"held-{number}\"\nfile = \"{}\"\nbackend = \"onnxruntime\"\n\
                 infer = \"ort-library={}\"\n\n[[source]]\nname = \"waits-{number}\"\naddress = \"{}\"\n\
                 model = \"held-{number}\"\n\n",
                shapes(),
                library.display(),
                sample()
            )
        })
        .collect();
    service.reload(&(config(&address) + &held));
    service.said("was read again");
    let mut longest = Duration::ZERO;
    for path in ["/healthz", "/sources", "/models", "/metrics"].iter().cycle().take(1000) {
        let begun = Instant::now();
        let (status, _) = ask(&address, "GET", path, TOKEN, "");
        longest = longest.max(begun.elapsed());
        assert_eq!(status, 200, "{path}");
    }
    println!("the longest of 1,000 answers: {:.1} ms", longest.as_secs_f64() * 1e3);
    // All of them were answered while the models were held up.
    let models = get(&address, "/models");
    let loaded: Vec<_> = models.as_array().unwrap().iter().map(|model| model["loaded"].as_bool().unwrap()).collect();
    assert_eq!(loaded, [true, false, false, false, false, false], "{models}");
    assert_eq!(ask(&address, "GET", "/readyz", TOKEN, "").0, 503);
    service.result("street");
    // A source that waits for such a model goes at once.
    assert_eq!(call(&address, "DELETE", "/sources/waits-1", &Value::Null).0, 204);
    service.said("waits-1: Removed.");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(journal.contains("Left behind, as it does not end: the model held-0, "), "{journal}");
    assert!(!journal.contains("the source"), "{journal}");
}

/// It holds up nothing: it is said, and tried again.
#[test]
fn a_source_that_is_a_pipe_without_a_writer_ends() {
    let folder = scratch("serve-held-source");
    let address = free_address();
    let held = pipe(&folder, "held.ts");
    let service = Service::start(&folder, &config(&address));
    service.result("street");
    for (name, timeout) in [("one", 3600.0), ("two", 0.1)] {
        let keys = json!({"name": name, "address": held, "model": "shapes", "timeout": timeout});
        assert_eq!(call(&address, "POST", "/sources", &keys).0, 201);
    }
    service.said(&format!("two: {} gave no frame for 0.1 s.", held.display()));
    wait_until("it is tried again", LIMIT, || get(&address, "/sources/two")["restarts"].as_u64() > Some(1));
    assert_eq!(call(&address, "DELETE", "/sources/one", &Value::Null).0, 204);
    service.said("one: Removed.");
    service.result("street");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("eft behind"), "{journal}");
}

/// Each is cut off a second after it was asked to stop: one behind the other, they would take a minute.
#[test]
fn sources_that_are_held_up_end_together() {
    let folder = scratch("serve-held-sources");
    let address = free_address();
    let held = pipe(&folder, "held.ts");
    let source = |number: usize| {
        format!(
            "[[source]]\nname = \"held-{number}\"\naddress = \"{}\"\nmodel = \"shapes\"\ntimeout = \"1h\"\n\n",
            held.display()
        )
    };
    let sources: String = (0..60).map(source).collect();
    let service = Service::start(&folder, &(config(&address) + &sources));
    service.result("street");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("eft behind"), "{journal}");
}

/// They have one time together, and what others were to get has come.
#[test]
fn the_end_is_not_held_up_by_destinations_that_hang() {
    let folder = scratch("serve-held-destinations");
    let address = free_address();
    let peer = |_| HostilePeer::new("hangs", "mqtt://127.0.0.1:PORT/boxes", vec![Act::Hear, Act::Hang]);
    let peers: Vec<HostilePeer> = (0..10).map(peer).collect();
    let hanging: String = peers
        .iter()
        .map(|peer| format!("[[publish]]\nlocation = \"{}\"\nadd-empty-results = true\n\n", peer.location))
        .collect();
    let file = "[[publish]]\nlocation = \"all.jsonl\"\nadd-empty-results = true\n\n";
    let service = Service::start(&folder, &(hanging + file + &config(&address)));
    service.result("street");
    wait_until("all are connected to", LIMIT, || peers.iter().all(|peer| peer.connections() > 0));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("eft behind"), "{journal}");
    assert_eq!(journal.matches("messages are not sent at the end of the stream").count(), peers.len(), "{journal}");
    let lines = std::fs::read_to_string(folder.join("all.jsonl")).unwrap();
    let frames: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = frames.iter().map(|frame| frame["frame"].as_u64().unwrap()).collect();
    assert!(!numbers.is_empty() && numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
}

/// GStreamer's demuxer of GIF would read its end again and again.
#[test]
fn a_gif_file_ends() {
    let folder = scratch("serve-gif");
    let address = free_address();
    let file = path("gst-trt/tests/data/pictures/colour-animated.gif");
    let keys = format!("[[source]]\nname = \"moves\"\naddress = \"{file}\"\n\n");
    let service = Service::start(&folder, &(config(&address) + &keys));
    let state = || get(&address, "/sources")[1]["state"].clone();
    service.said("Started.");
    wait_until("it has ended", LIMIT, || state() == "ended");
    assert_eq!(get(&address, "/sources")[1]["frames"], 2);
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}
