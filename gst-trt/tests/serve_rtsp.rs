// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve` over RTSP: videos of a service that runs, for players and for clients that misbehave.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};

use common::service::{Service, ask, free_address};
use common::wait::{LIMIT, wait_until};
use common::{init, sample, scratch, shapes};
use gst::prelude::*;
use serde_json::json;

const PASSWORD: &str = "hush-hush-hush-1";
const TOKEN: &str = "0123456789abcdef-test";

/// What rtspsrc plays.
struct Player {
    pipeline: gst::Pipeline,
    sizes: Receiver<(i32, i32)>,
}

impl Player {
    fn new(address: &str, name: &str) -> Self {
        init();
        let line = format!(
            "rtspsrc location=rtsp://{address}/{name} user-id=viewer user-pw={PASSWORD} latency=0 ! decodebin \
             ! appsink name=out sync=false"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let (sender, sizes) = channel();
        let take = move |sink: &gst_app::AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            let caps = sample.caps().unwrap().structure(0).unwrap();
            let _ = sender.send((caps.get("width").unwrap(), caps.get("height").unwrap()));
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
        pipeline.set_state(gst::State::Playing).unwrap();
        Player { pipeline, sizes }
    }

    /// The size of the next picture.
    #[track_caller]
    fn picture(&self) -> (i32, i32) {
        self.sizes.recv_timeout(LIMIT).expect("a picture")
    }

    /// The error with which it ends; none at the end of the stream.
    fn end(&self) -> Option<String> {
        let wait = gst::ClockTime::from_seconds(LIMIT.as_secs());
        let kinds = [gst::MessageType::Error, gst::MessageType::Eos];
        let message = self.pipeline.bus().unwrap().timed_pop_filtered(wait, &kinds).expect("it ends");
        match message.view() {
            gst::MessageView::Error(error) => Some(error.error().to_string()),
            _ => None,
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// A request of a client that knows no password.
fn request(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn sources_are_watched_over_rtsp() {
    let folder = scratch("serve-rtsp");
    std::fs::write(folder.join("password"), PASSWORD).unwrap();
    let (http, rtsp) = (free_address(), free_address());
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [http]\nlisten = \"{http}\"\ntoken = \"{TOKEN}\"\n\n[rtsp]\nlisten = \"{rtsp}\"\npassword-file = \"password\"\n\n\
         [[source]]\nname = \"gate\"\naddress = \"{}\"\nloop = true\nsync = true\n",
        shapes(),
        sample()
    );
    let service = Service::start(&folder, &config);
    let started = service.said("Started.");
    assert!(started.ends_with(&format!("Started. http://{http}/ rtsp://{rtsp}/")), "{started}");
    let gate = Player::new(&rtsp, "gate");
    let size = gate.picture();
    service.said("gate: is watched: its video is encoded.");

    // One that is added later is there at once, and again after it has begun again with another file.
    let street = json!({"name": "street", "address": sample(), "loop": true, "sync": true}).to_string();
    assert_eq!(ask(&http, "POST", "/sources", TOKEN, &street).0, 201);
    let street = Player::new(&rtsp, "street");
    assert_eq!(street.picture(), size);

    // Clients that misbehave, at the end too: they hold up neither frames nor the end.
    let mut flood = request(&rtsp, &"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".repeat(100));
    let hanging: Vec<_> = ["", "DESCRIBE rtsp://h/gate RTSP/1.0\r\nCSeq:", "$\0\u{7f}"]
        .into_iter()
        .flat_map(|text| (0..8).map(move |_| text))
        .map(|text| request(&rtsp, text))
        .collect();
    let mut garbage = request(&rtsp, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut answer = String::new();
    garbage.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("RTSP/1.0 400 "), "{answer}");
    flood.read_exact(&mut [0; 100]).unwrap();
    let frames = || {
        let (_, body) = ask(&http, "GET", "/sources/gate", TOKEN, "");
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()["frames"].as_u64().unwrap()
    };
    let before = frames();
    wait_until("the source goes on", LIMIT, || frames() > before + 30);
    gate.picture();

    // A source that is removed ends its clients, and no others.
    assert_eq!(ask(&http, "DELETE", "/sources/street", TOKEN, "").0, 204);
    assert_eq!(street.end(), None);
    service.said("street: is not watched any more.");
    gate.picture();
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(
        !journal.contains("left behind") && !journal.contains("CRITICAL") && !journal.contains("hush"),
        "{journal}"
    );
    gate.end();
    drop(hanging);
}

/// Nothing is encoded where nobody watches, and a source that comes back is shown to those who have waited.
#[test]
fn a_source_that_comes_back_goes_on_in_the_same_connection() {
    let folder = scratch("serve-rtsp-back");
    let clip = folder.join("clip.mp4");
    let rtsp = free_address();
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [rtsp]\nlisten = \"{rtsp}\"\npassword = \"{PASSWORD}\"\n\n\
         [[source]]\nname = \"gate\"\naddress = \"clip.mp4\"\nloop = true\nsync = true\nbackoff-max = 1\n",
        shapes()
    );
    let service = Service::start(&folder, &config);
    service.said("there is no file");
    let player = Player::new(&rtsp, "gate");
    service.said("gate: is watched: its video is encoded.");
    std::fs::copy(sample(), clip).unwrap();
    player.picture();
    drop(player);
    service.said("gate: is not watched any more.");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("is watched"), "once: {journal}");
}

/// The player of a picture of many sources goes on whatever sources come and go, and SIGHUP gives other pictures.
#[test]
fn many_sources_are_watched_in_one_picture() {
    let folder = scratch("serve-rtsp-tiles");
    let (http, rtsp) = (free_address(), free_address());
    let config = |tiles: &str| {
        format!(
            "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
             [http]\nlisten = \"{http}\"\ntoken = \"{TOKEN}\"\n\n[rtsp]\nlisten = \"{rtsp}\"\npassword = \"{PASSWORD}\"\n{tiles}\n\
             [[source]]\nname = \"gate\"\naddress = \"{}\"\nloop = true\nsync = true\n\n\
             [[source]]\nname = \"gone\"\naddress = \"none.mp4\"\n",
            shapes(),
            sample()
        )
    };
    let service = Service::start(&folder, &config("[[rtsp.tiles]]\nname = \"wall\"\nsize = \"640x360\"\n"));
    service.said("Started.");
    let wall = Player::new(&rtsp, "wall");
    assert_eq!(wall.picture(), (640, 360));
    service.said("wall: is watched: its video is encoded.");
    let street = json!({"name": "street", "address": sample(), "loop": true, "sync": true}).to_string();
    assert_eq!(ask(&http, "POST", "/sources", TOKEN, &street).0, 201);
    let named_so = json!({"name": "wall", "address": sample()}).to_string();
    let (status, answer) = ask(&http, "POST", "/sources", TOKEN, &named_so);
    let answer = String::from_utf8(answer).unwrap();
    assert!(status == 409 && answer.contains("There is a picture of many sources “wall” already"), "{status} {answer}");
    for _ in 0..30 {
        assert_eq!(wall.picture(), (640, 360));
    }
    assert_eq!(ask(&http, "DELETE", "/sources/street", TOKEN, "").0, 204);
    for _ in 0..30 {
        wall.picture();
    }
    service.reload(&config("[[rtsp.tiles]]\nname = \"other\"\nsources = [\"gone\", \"gate\"]\nsize = \"320x128\"\n"));
    service.said("was read again");
    assert_eq!(wall.end(), None);
    let other = Player::new(&rtsp, "other");
    assert_eq!(other.picture(), (320, 128));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("left behind") && !journal.contains("CRITICAL"), "{journal}");
    other.end();
}

/// What a browser offers that decodes H.264.
#[cfg(feature = "webrtc")]
const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 103\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789abcdef01234567\r\n\
    a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\n\
    a=setup:actpass\r\na=mid:0\r\na=recvonly\r\na=rtcp-mux\r\na=rtpmap:103 H264/90000\r\na=rtcp-fb:103 nack pli\r\n\
    a=fmtp:103 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42001f\r\n";

/// The port for browsers is that of the configuration, and what they ask for is answered and ended. How a video is shown, the unit
/// tests see.
#[cfg(feature = "webrtc")]
#[test]
fn browsers_are_answered() {
    let folder = scratch("serve-webrtc");
    let (http, webrtc) = (free_address(), free_address());
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [http]\nlisten = \"{http}\"\n\n[webrtc]\nlisten = \"{webrtc}\"\naddresses = [\"203.0.113.7\"]\n\n\
         [[source]]\nname = \"gate\"\naddress = \"{}\"\nloop = true\nsync = true\n",
        shapes(),
        sample()
    );
    let service = Service::start(&folder, &config);
    let started = service.said("Started.");
    assert!(started.ends_with(&format!("Started. http://{http}/ WebRTC on UDP {webrtc}")), "{started}");
    let send = |method: &str, path: &str, body: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let kind = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut answer = String::new();
        request(&http, &(head + &kind + body)).read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = send("POST", "/sources/gate/whep", OFFER);
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("a=sendonly"), "{answer}");
    assert!(answer.contains(&format!("203.0.113.7 {} typ host", webrtc.rsplit(':').next().unwrap())), "{answer}");
    let session = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_string();
    let without = OFFER.replace("H264", "VP8");
    assert!(send("POST", "/sources/gate/whep", &without).starts_with("HTTP/1.1 422 "));
    assert!(send("POST", "/sources/gate/whep", "v=0").starts_with("HTTP/1.1 400 "));
    assert!(send("POST", "/tiles/wall/whep", OFFER).starts_with("HTTP/1.1 404 "));
    assert!(send("DELETE", &session, "").starts_with("HTTP/1.1 200 "));
    assert!(send("DELETE", &session, "").starts_with("HTTP/1.1 404 "));
    // One that has not connected holds up no end.
    assert!(send("POST", "/sources/gate/whep", OFFER).starts_with("HTTP/1.1 201 "));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("left behind") && !journal.contains("is watched"), "{journal}");
}
