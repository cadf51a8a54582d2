// SPDX-License-Identifier: MPL-2.0
//! Requests over real sockets, and players, of videos that are made up.

mod sei;
mod tiles;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gst::glib;
use gst::prelude::*;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::chain;
use crate::serve::fakes::{FakeCamera, FakeOutputs};
use crate::wait::{LIMIT, wait_until};

const PASSWORD: &str = "hush-hush-hush-1";

/// What is asked by those that wait for nothing.
const QUICK: RtspLimits = RtspLimits {
    connections: 8,
    watchers: 4,
    request: Duration::from_millis(200),
    stalled: Duration::from_millis(500),
    crowded: Duration::from_millis(100),
    unsent: 8 << 10,
};

fn serve(limits: RtspLimits, password: Option<&str>, outputs: &Arc<FakeOutputs>) -> RtspServer {
    let settings = RtspSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        user: "me".into(),
        password: password.map(String::from),
    };
    start_within(limits, &settings, listen(&settings).unwrap(), outputs.clone()).unwrap()
}

/// What a client gets, and how it ends: with `None` at the end of the stream, or with an error.
struct Player {
    pipeline: gst::Pipeline,
    pictures: Receiver<Vec<u8>>,
}

impl Player {
    fn new(server: &RtspServer, path: &str, more: &str) -> Self {
        let decode = "h264parse ! avdec_h264 ! videoconvert ! video/x-raw,format=GRAY8";
        Player::of(server, path, more, decode)
    }

    /// Of the frames in the stream, what those elements make of them.
    fn of(server: &RtspServer, path: &str, more: &str, elements: &str) -> Self {
        let line = format!(
            "rtspsrc location=rtsp://{}/{path} latency=0 {more} ! rtph264depay ! {elements} ! appsink name=out sync=false",
            server.address()
        );
        let pipeline = chain::parse(&line).unwrap();
        let (sender, pictures) = channel();
        let take = move |sink: &gst_app::AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            let _ = sender.send(sample.buffer().unwrap().map_readable().unwrap().to_vec());
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = chain::element(&pipeline, "out").downcast::<gst_app::AppSink>().unwrap();
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
        pipeline.set_state(gst::State::Playing).unwrap();
        Player { pipeline, pictures }
    }

    #[track_caller]
    fn picture(&self) -> Vec<u8> {
        self.pictures.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}: {:?}", self.error()))
    }

    fn error(&self) -> Option<glib::Error> {
        let bus = self.pipeline.bus().unwrap();
        let wait = gst::ClockTime::from_seconds(LIMIT.as_secs());
        let message = bus.timed_pop_filtered(wait, &[gst::MessageType::Error, gst::MessageType::Eos]);
        match message.expect("it ends").view() {
            gst::MessageView::Error(error) => Some(error.error()),
            _ => None,
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// A client that says what it wants.
struct Peer {
    stream: TcpStream,
    number: u32,
}

impl Peer {
    fn new(server: &RtspServer) -> Self {
        // What it does not read waits in the server, and not in the system for long.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(&server.address().into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Peer { stream, number: 0 }
    }

    /// The head of the answer.
    fn ask(&mut self, request: &str, headers: &str) -> String {
        self.number += 1;
        write!(self.stream, "{request} RTSP/1.0\r\nCSeq: {}\r\n{headers}\r\n", self.number).unwrap();
        let head = self.head();
        assert!(head.contains(&format!("CSeq: {}\r\n", self.number)), "{head}");
        head
    }

    fn head(&mut self) -> String {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// The name of the session that it was given.
    fn set_up(&mut self, path: &str) -> String {
        let answer = self.ask(
            &format!("SETUP rtsp://h/{path}/video"),
            "Transport: RTP/AVP;unicast;client_port=5000-5001,RTP/AVP/TCP;unicast;interleaved=4-5\r\n",
        );
        assert!(answer.contains("Transport: RTP/AVP/TCP;unicast;interleaved=4-5\r\n"), "{answer}");
        let session = answer.split("Session: ").nth(1).unwrap();
        session[..session.find(';').unwrap()].to_string()
    }

    fn play(path: &str, server: &RtspServer) -> Self {
        let mut peer = Peer::new(server);
        let session = peer.set_up(path);
        let answer = peer.ask(&format!("PLAY rtsp://h/{path}/"), &format!("Session: {session}\r\n"));
        assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
        peer
    }

    /// The next packet of the video.
    fn packet(&mut self) -> Vec<u8> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..2], [b'$', 4]);
        let mut packet = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]]))];
        self.stream.read_exact(&mut packet).unwrap();
        packet
    }

    /// All that comes until the server ends the connection.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("it is not ended: {error}"),
        }
    }
}

#[test]
fn a_player_sees_what_was_found_and_nothing_is_encoded_for_nobody() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(RtspLimits::default(), None, &outputs);
    assert_eq!(outputs.receivers("gate"), 0);
    let player = Player::new(&server, "gate", "");
    let picture = player.picture();
    assert_eq!(outputs.receivers("gate"), 1);
    let bright = |at: usize| picture[at].max(picture[at + 1]).max(picture[at + 320]);
    // The box is drawn around the object: its left side, but nothing far from it.
    let row = 120 * 320;
    assert!((70..90).any(|column| bright(row + column) > 60), "{:?}", &picture[row..row + 320]);
    assert!(bright(row + 10) < 40 && bright(row + 160) < 40);
    // Another one begins with a key frame of its own, of the same pipeline.
    let other = Player::new(&server, "gate", "protocols=tcp");
    other.picture();
    assert_eq!(outputs.receivers("gate"), 1);
    drop((player, other));
    wait_until("nobody watches", LIMIT, || outputs.receivers("gate") == 0);
    // And it can be watched again.
    Player::new(&server, "gate", "").picture();
    drop(server);
    outputs.end();
}

#[test]
fn the_password_is_asked_for_and_never_sent() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(RtspLimits::default(), Some(PASSWORD), &outputs);
    Player::new(&server, "gate", &format!("user-id=me user-pw={PASSWORD}")).picture();
    for wrong in ["", "user-id=me user-pw=wrong", &format!("user-id=you user-pw={PASSWORD}")] {
        let error = Player::new(&server, "gate", wrong).error().expect(wrong);
        assert!(error.matches(gst::ResourceError::NotAuthorized), "{wrong}: {error}");
    }
    let mut peer = Peer::new(&server);
    assert!(peer.ask("OPTIONS *", "").starts_with("RTSP/1.0 200 OK\r\n"));
    for request in ["DESCRIBE rtsp://h/gate", "SETUP rtsp://h/gate/video", "PLAY rtsp://h/gate", "GET_PARAMETER *"] {
        let answer = peer.ask(request, "");
        assert!(answer.starts_with("RTSP/1.0 401 ") && answer.contains("WWW-Authenticate: Digest realm="), "{answer}");
    }
    // Who guesses is to come again each time.
    let guess = "Authorization: Digest username=\"me\", realm=\"gst-trt\", nonce=\"0\", uri=\"/\", response=\"0\"\r\n";
    (0..3).for_each(|_| assert!(peer.ask("DESCRIBE rtsp://h/gate", guess).starts_with("RTSP/1.0 401 ")));
    assert!(peer.rest().is_empty());
    drop(server);
    outputs.end();
}

#[test]
fn requests_are_answered_as_the_standard_says() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(RtspLimits::default(), None, &outputs);
    let mut peer = Peer::new(&server);
    for (request, headers, status) in [
        ("DESCRIBE rtsp://h/street", "", "404 "),
        ("DESCRIBE rtsp://h/", "", "404 "),
        ("DESCRIBE gate", "", "404 "),
        ("SETUP rtsp://h/street/video", "Transport: RTP/AVP/TCP;interleaved=0-1\r\n", "404 "),
        ("SETUP rtsp://h/gate/video", "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n", "461 "),
        ("SETUP rtsp://h/gate/video", "Transport: RTP/AVP/TCP;interleaved=255-256\r\n", "461 "),
        ("SETUP rtsp://h/gate/video", "", "461 "),
        ("PLAY rtsp://h/gate", "", "455 "),
        ("RECORD rtsp://h/gate", "", "405 "),
    ] {
        let answer = peer.ask(request, headers);
        assert!(answer.starts_with(&format!("RTSP/1.0 {status}")), "{request} {headers}: {answer}");
    }
    let session = peer.set_up("gate");
    assert!(peer.ask("PLAY rtsp://h/gate", "Session: other\r\n").starts_with("RTSP/1.0 454 "));
    assert!(peer.ask("GET_PARAMETER rtsp://h/gate", "").contains(&format!("Session: {session};timeout=60")));
    assert!(peer.ask("TEARDOWN rtsp://h/gate", "").starts_with("RTSP/1.0 200 "));
    assert!(peer.rest().is_empty());
    // A browser that a web site has sent here: what follows its first line is read by nobody.
    let mut browser = Peer::new(&server);
    let inner = "SETUP rtsp://h/gate/video RTSP/1.0\r\nCSeq: 1\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n";
    write!(browser.stream, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{inner}", inner.len()).unwrap();
    let answer = String::from_utf8(browser.rest()).unwrap();
    assert!(answer.starts_with("RTSP/1.0 400 ") && !answer.contains("Transport"), "{answer}");
    drop(server);
    outputs.end();
}

#[test]
fn who_says_nothing_or_too_much_takes_nothing_from_others() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(QUICK, None, &outputs);
    let player = Player::new(&server, "gate", "");
    player.picture();
    // More of them than there are places, at the same time.
    let silent: Vec<Peer> = (0..2 * QUICK.connections).map(|_| Peer::new(&server)).collect();
    player.picture();
    silent.into_iter().for_each(|mut peer| assert!(peer.rest().is_empty()));
    for begun in [&b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n"[..], b"$\x00\xff\xff", b"$", b"\r\n\r\n\r\n"] {
        let mut peer = Peer::new(&server);
        peer.stream.write_all(begun).unwrap();
        assert!(peer.rest().is_empty(), "it hangs in the middle of {begun:?}");
    }
    for flood in [vec![b'A'; 1 << 20], b"OPTIONS * RTSP/1.0\r\nX: ".repeat(1 << 16), vec![0; 1 << 16]] {
        let mut peer = Peer::new(&server);
        let _ = peer.stream.write_all(&flood); // it is ended in the middle
        peer.rest();
    }
    // It asks again and again, and hears no answer.
    let peer = Peer::new(&server);
    let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".repeat(1000);
    let mut stream = &peer.stream;
    while stream.write_all(&request).is_ok() {}
    Player::new(&server, "gate", "").picture();
    player.picture();
    drop(server);
    outputs.end();
}

/// Here the packets of a connection are not lost, so none asks for a key frame with a reason.
#[test]
fn who_asks_for_key_frames_by_rtcp_gets_none_and_harms_nobody() {
    /// RTCP's packet for “picture loss indication”, between messages of RTSP.
    const ASK: [u8; 16] = [b'$', 5, 0, 12, 0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(RtspLimits::default(), None, &outputs);
    let (flooding, mut other) = (Peer::play("gate", &server), Peer::play("gate", &server));
    other.packet();
    let flood = {
        let (mut reading, mut writing) = (flooding.stream.try_clone().unwrap(), flooding.stream.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut reading, &mut std::io::sink()));
        std::thread::spawn(move || {
            let asks = ASK.repeat(100);
            (0u64..).take_while(|_| writing.write_all(&asks).is_ok()).count()
        })
    };
    let begun = std::time::Instant::now();
    let packets: Vec<Vec<u8>> = (0..150).map(|_| other.packet()).collect();
    let seconds = begun.elapsed().as_secs_f64();
    flooding.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(flood.join().unwrap() > 10);
    let number = |packet: &[u8]| u16::from_be_bytes([packet[2], packet[3]]);
    assert!(packets.windows(2).all(|two| number(&two[0]).wrapping_add(1) == number(&two[1])));
    // Before each are its parameter sets, in one packet with others of their kind: 24, a length, and 7.
    let has_sets = |payload: &[u8]| {
        let mut rest = &payload[1..];
        while let [high, low, kind, ..] = *rest {
            if kind & 0x1f == 7 {
                return true;
            }
            rest = rest.get(2 + usize::from(u16::from_be_bytes([high, low]))..).unwrap_or_default();
        }
        false
    };
    let key_frames = packets.iter().filter(|packet| packet[12] & 0x1f == 24 && has_sets(&packet[12..])).count();
    assert!(key_frames > 0);
    assert!((key_frames as f64) < 1.5 * seconds + 3.0, "{key_frames} in {seconds} s");
    drop(server);
    outputs.end();
}

#[test]
fn a_client_that_takes_nothing_is_ended_and_a_slow_one_goes_on() {
    let outputs = FakeOutputs::new(&[]);
    // Noise, of which an encoder makes much.
    outputs.cameras.lock().unwrap().insert("gate".into(), FakeCamera::new("gate", "snow", &outputs.threads));
    let server = serve(RtspLimits { connections: 64, request: LIMIT, ..QUICK }, None, &outputs);
    let player = Player::new(&server, "gate", "");
    player.picture();
    // No more than may watch. Those that are there hold the others off until they are ended.
    let stalled: Vec<Peer> = (1..QUICK.watchers).map(|_| Peer::play("gate", &server)).collect();
    let mut one_more = Peer::new(&server);
    let session = one_more.set_up("gate");
    let answer = one_more.ask("PLAY rtsp://h/gate", &format!("Session: {session}\r\n"));
    assert!(answer.starts_with("RTSP/1.0 453 "), "{answer}");
    wait_until("all of them are ended", LIMIT, || {
        player.picture();
        // As many others have a place at the same time.
        let place = |_| {
            let mut peer = Peer::new(&server);
            peer.try_play("gate").then_some(peer)
        };
        (1..QUICK.watchers).map(place).collect::<Option<Vec<Peer>>>().is_some()
    });
    // They have not more than what the system keeps for each.
    for mut peer in stalled {
        let rest = peer.rest();
        assert!(rest.len() < 1 << 20, "{} bytes", rest.len());
    }
    drop(server);
    outputs.end();
}

impl Peer {
    /// Whether there is a place for it.
    fn try_play(&mut self, path: &str) -> bool {
        let session = self.set_up(path);
        self.ask(&format!("PLAY rtsp://h/{path}/"), &format!("Session: {session}\r\n")).starts_with("RTSP/1.0 200 ")
    }
}

#[test]
fn a_source_that_is_removed_ends_its_clients() {
    let outputs = FakeOutputs::new(&["gate", "street"]);
    let server = serve(RtspLimits::default(), None, &outputs);
    let (gate, street) = (Player::new(&server, "gate", ""), Player::new(&server, "street", ""));
    gate.picture();
    street.picture();
    let removed = outputs.cameras.lock().unwrap().remove("gate");
    drop(removed);
    assert!(gate.error().is_none(), "it is the end of a stream");
    street.picture();
    let answer = Peer::new(&server).ask("DESCRIBE rtsp://h/gate", "");
    assert!(answer.starts_with("RTSP/1.0 404 "), "{answer}");
    // With the server, all end.
    drop(server);
    street.error();
    outputs.end();
}

/// Also where a client has closed its own side, and where one breaks off.
#[test]
fn clients_that_go_are_forgotten() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(RtspLimits::default(), None, &outputs);
    let half = Peer::play("gate", &server);
    half.stream.shutdown(Shutdown::Write).unwrap();
    drop(Peer::play("gate", &server));
    wait_until("nobody watches", LIMIT, || outputs.receivers("gate") == 0);
    drop(server);
    outputs.end();
}
