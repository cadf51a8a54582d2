// SPDX-License-Identifier: MPL-2.0
//! What `gst-trt serve` asks a model that sees: the request, the event with its answer, and servers that fail.

use crate::common::chat_server::ChatServer;
use crate::common::hostile_peer::{Act, HostilePeer};
use crate::common::jpeg::picture_of;
use crate::common::service::{Service, ask, free_address};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{path, run, sample, scratch, shapes, text};
use crate::{endless, expect_no_gap, head, source};

const KEY: &str = "sk-hush-0123456789";

/// A zone of the whole picture.
const ZONE: &str = "[track]\n\n[analytics]\n\
                    config = '{\"zones\": [{\"id\": \"all\", \"points\": [[0,0],[1,0],[1,1],[0,1]]}]}'\n\n";

fn asks(name: &str, url: &str, keys: &str) -> String {
    format!(
        "[[ask]]\nname = \"{name}\"\nurl = \"{url}\"\nmodel = \"seer\"\nquestion = \"What is “it”?\"\nat-most = \"1000/s\"\n{keys}\n\n"
    )
}

fn every_frame() -> String {
    head().replace("interval=30", "interval=1") + ZONE
}

/// The next answer among the events of a source.
fn answer(service: &Service, source: &str) -> serde_json::Value {
    loop {
        let line = service.result(source);
        let events = line["events"].as_array().cloned().unwrap_or_default();
        if let Some(answer) = events.into_iter().find(|event| event["event"] == "answer") {
            return answer;
        }
    }
}

fn status(address: &str, source: &str) -> serde_json::Value {
    let (status, body) = ask(address, "GET", &format!("/sources/{source}"), "", "");
    assert_eq!(status, 200);
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn an_answer_is_an_event_of_its_source() {
    let folder = scratch("serve-ask");
    let (address, server) = (free_address(), ChatServer::answering(&format!("A \u{1b}[2J\u{9b}disc. {KEY}")));
    let other = ChatServer::answering("Here.");
    let config = every_frame()
        + &asks("what", &server.url, "api-key = \"${ASK_KEY}\"\nevents = [\"entered\"]\nmax-size = 64")
        + &asks("where", &format!("{}/v3", other.url), "picture = \"frame\"\nmax-size = 320\nmax-tokens = 0")
        + &format!("[http]\nlisten = \"{address}\"\n\n")
        + &endless("gate");
    let service = Service::with(&folder, &config, &[("ASK_KEY", KEY)]);
    let [object, frame] = [&server, &other].map(|server| server.asked.recv_timeout(LIMIT).expect("a question"));
    assert!(object.head.starts_with("POST /v1/chat/completions "), "{}", object.head);
    assert!(frame.head.starts_with("POST /v3/chat/completions "), "{}", frame.head);
    assert!(object.head.to_lowercase().contains(&format!("authorization: bearer {KEY}")), "{}", object.head);
    assert!(!frame.head.to_lowercase().contains("authorization"));
    assert_eq!((&object.body["model"], &object.body["max_tokens"]), (&"seer".into(), &200.into()));
    assert_eq!(object.body["messages"][0]["content"][0]["text"], "What is “it”?");
    assert!(frame.body.get("max_tokens").is_none());
    let ((width, height, _), whole) = (picture_of(&object.picture()), picture_of(&frame.picture()));
    assert!(width.max(height) <= 64 && width.min(height) >= 16, "{width}x{height}");
    assert_eq!((whole.0, whole.1), (320, 180));

    let event = loop {
        let event = answer(&service, "gate");
        if event["name"] == "what" {
            break event;
        }
    };
    // Of what a server says, nothing moves the cursor, and nothing is the key.
    assert_eq!(event["answer"], "A \\u001b[2J\\u009bdisc. ***");
    assert_eq!((&event["question"], &event["model"]), (&"What is “it”?".into(), &"seer".into()));
    assert_eq!((&event["about"]["event"], &event["about"]["name"]), (&"entered".into(), &"all".into()));
    assert!(event["took-ms"].is_u64() && event["label"].is_string(), "{event}");
    assert_eq!(
        (&event["track-id"], &event["event-time"]),
        (&event["about"]["track-id"], &event["about"]["stream-time"])
    );

    let gate = status(&address, "gate");
    let what = &gate["asks"][0];
    assert_eq!((&what["name"], &what["model"], &what["error"]), (&"what".into(), &"seer".into(), &().into()));
    assert!(what["answered"].as_u64().unwrap() > 0 && what["last-answer"].is_string(), "{what}");
    assert!(gate["events"]["answer"].as_u64().unwrap() > 0, "{gate}");
    let (_, metrics) = ask(&address, "GET", "/metrics", "", "");
    let metrics = text(&metrics).to_string();
    assert!(metrics.contains("gst_trt_answered_total{source=\"gate\",ask=\"what\"} "), "{metrics}");
    let (ended, journal) = service.end();
    assert_eq!(ended.code(), Some(0), "{journal}");
    let told = format!("{gate}{metrics}{journal}");
    assert!(!told.contains(KEY) && !told.contains('\u{1b}'), "{told}");
}

/// The frame that leaves is the one that is shown.
#[test]
fn pictures_that_leave_hide_what_they_are_to_hide() {
    let (hidden, seen) = (ChatServer::answering("No."), ChatServer::answering("Yes."));
    let config = every_frame()
        + &asks("hidden", &hidden.url, "picture = \"frame\"")
        + &asks("seen", &seen.url, "picture = \"frame\"")
        + "[privacy]\nmask = \"all\"\n\n"
        + &source("one", &sample(), "loop = true\nsync = true\nask = [\"hidden\"]")
        + &source("two", &sample(), "loop = true\nsync = true\nprivacy = false\nask = [\"seen\"]");
    let service = Service::start(&scratch("serve-ask-privacy"), &config);
    let [hidden, seen] =
        [hidden, seen].map(|server| picture_of(&server.asked.recv_timeout(LIMIT).unwrap().picture()).2);
    assert!(hidden < 20.0 && hidden * 2.0 < seen, "{hidden} and {seen}");
    assert_eq!(service.end().0.code(), Some(0));
}

/// No frame waits for a server, whatever it does, and neither does the end.
#[test]
fn servers_that_fail_cost_their_answers_alone() {
    let folder = scratch("serve-ask-failing");
    let (address, refused) = (free_address(), format!("http://{}", free_address()));
    let said = |status: &str, body: &str| {
        let length = body.len();
        Act::Say(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into())
    };
    let endless = |act: fn(Vec<u8>) -> Act| {
        vec![Act::Hear, Act::Say(b"HTTP/1.1 200 OK\r\n\r\n{\"choices\": [\"".to_vec()), act(b"hush ".to_vec())]
    };
    let peer = |name, acts| HostilePeer::new(name, "http://127.0.0.1:PORT", acts);
    let key = format!("{{\"error\": {{\"message\": \"no such key: {KEY}\\u001b[2J\"}}}}");
    let peers = [
        (peer("key", vec![Act::Hear, said("401 Unauthorized", &key), Act::Hang]), "401 Unauthorized: no such key: ***"),
        (peer("fault", vec![Act::Hear, said("500 Oops", ""), Act::Hang]), "500 Internal Server Error. The log of"),
        (peer("garbage", vec![Act::Hear, said("200 OK", "\u{1b}[2J"), Act::Hang]), "what it answers is no JSON"),
        (peer("empty", vec![Act::Hear, said("200 OK", "{\"choices\": [{\"message\": {}}]}"), Act::Hang]), "is empty"),
        (peer("flood", endless(Act::Flood)), "the answer has more than 65536 bytes"),
        (peer("drip", endless(Act::Drip)), "no answer within 0.5 s"),
        (peer("silent", vec![Act::Hear, Act::Hang]), "no answer within 0.5 s"),
        (peer("reset", vec![Act::Hear, Act::Reset]), "Check url in [[ask]]"),
    ];
    let keys = |timeout: &str| format!("timeout = \"{timeout}\"\napi-key = \"{KEY}\"\nmax-queued = 1");
    let mut config =
        every_frame() + &format!("[http]\nlisten = \"{address}\"\n\n") + &source("gate", &sample(), "loop = true");
    config += &asks("refused", &refused, &keys("60s"));
    for (peer, said) in &peers {
        let timeout = if said.starts_with("no answer within") { "500ms" } else { "60s" };
        config += &asks(peer.name, &peer.location, &keys(timeout));
    }
    let hanging = peer("hanging", vec![Act::Hear, Act::Hang]);
    config += &asks("hanging", &hanging.location, "timeout = \"10min\"\nmax-queued = 1");
    let service = Service::start(&folder, &config);
    let line = service.said("refused: Cannot ask ");
    assert!(line.contains("connection refused. Check url in [[ask]], and that the server runs."), "{line}");
    for (peer, said) in &peers {
        let line = service.said(&format!("{}: Cannot ask {}/v1/chat/completions: ", peer.name, peer.location));
        assert!(line.contains(said) && line.ends_with('.') && !line.contains('\u{1b}'), "{}: {line}", peer.name);
    }
    let mut last = None;
    expect_no_gap(&service, "gate", &mut last, 10);
    wait_until("dropped", LIMIT, || {
        let gate = status(&address, "gate");
        let asks = gate["asks"].as_array().unwrap();
        let of = |name: &str| asks.iter().find(|ask| ask["name"] == name).unwrap();
        of("hanging")["dropped"].as_u64().unwrap() > 1 && of("drip")["failed"].as_u64().unwrap() > 1
    });
    let gate = status(&address, "gate");
    assert_eq!(gate["restarts"], 0);
    assert!(gate["asks"][0]["error"].as_str().unwrap().contains("connection refused"), "{gate}");
    assert!(hanging.connections() > 0);
    let (ended, journal) = service.end();
    assert_eq!(ended.code(), Some(0), "{journal}");
    assert!(!journal.contains("left behind") && !format!("{gate}{journal}").contains(KEY), "{journal}");
}

/// A server that comes back is asked again, and a reload changes what is asked.
#[test]
fn a_server_that_comes_back_answers_again() {
    let server = ChatServer::answering("Yes.");
    let address = free_address();
    let config = |url: &str| every_frame() + &asks("what", url, "") + &source("gate", &sample(), "loop = true");
    let service = Service::start(&scratch("serve-ask-again"), &config(&format!("http://{address}")));
    service.said("what: Cannot ask");
    // On that port, it is passed on.
    let listener = std::net::TcpListener::bind(&address).unwrap();
    let to = server.url.strip_prefix("http://").unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = std::net::TcpStream::connect(&to) else { return };
            for (mut from, mut to) in
                [(client.try_clone(), server.try_clone()), (server.try_clone(), client.try_clone())]
                    .map(|(from, to)| (from.unwrap(), to.unwrap()))
            {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    service.said("what: Answers again.");
    assert_eq!(answer(&service, "gate")["answer"], "Yes.");
    let other = ChatServer::answering("No.");
    service.reload(&config(&other.url));
    service.said("was read again");
    while answer(&service, "gate")["answer"] != "No." {}
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn the_page_has_questions_that_are_right() {
    let folder = scratch("serve-ask-docs");
    let page = std::fs::read_to_string(path("docs/ask.md")).unwrap();
    let config = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    std::os::unix::fs::symlink(shapes(), folder.join("yolo11n.onnx")).unwrap();
    std::fs::write(folder.join("config.toml"), config.replace("\"person\"", "\"disc\"")).unwrap();
    let output = run(&folder, &["serve", "--check", "config.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
