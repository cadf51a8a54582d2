// SPDX-License-Identifier: MPL-2.0
//! Viewers over real sockets, of videos that are made up.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use str0m::change::SdpAnswer;
use str0m::media::{Direction, KeyframeRequestKind, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output as RtcOutput, Rtc, RtcConfig};

use super::*;
use crate::serve::fakes::FakeOutputs;
use crate::serve::output::TilesConfig;
use crate::wait::{LIMIT, wait_until};

/// Kinds of units of H.264: those of a key frame, and parameter sets, which come together with others.
const KEY: u8 = 5;
const SETS: u8 = 7;
const TOGETHER: u8 = 24;
const PART: u8 = 28;

/// What is asked by those that wait for nothing.
const QUICK: WebrtcLimits =
    WebrtcLimits { viewers: 2, connect: Duration::from_millis(300), end: Duration::from_secs(1), unsent: 1 << 20 };

fn serve(limits: WebrtcLimits, listen_at: &str, outputs: &Arc<FakeOutputs>) -> WebrtcServer {
    let settings = WebrtcSettings { listen: listen_at.parse().unwrap(), addresses: Vec::new() };
    start_within(limits, &settings, listen(&settings).unwrap(), outputs.clone()).unwrap()
}

fn accept(server: &WebrtcServer, name: &str, offer: &str) -> Result<AcceptedOffer, OfferRefused> {
    server.accept(name, offer, Ipv4Addr::LOCALHOST.into())
}

/// A browser, as far as the network knows it.
struct Browser {
    rtc: Rtc,
    socket: UdpSocket,
    mid: Mid,
    session: String,
    /// Sequence numbers and payloads.
    packets: Vec<(u64, Vec<u8>)>,
}

/// Settings of a browser that decodes what this service sends.
fn config() -> RtcConfig {
    RtcFactory::new().unwrap().config()
}

/// The offer of a browser, which is answered at that socket.
fn offer(config: RtcConfig, kind: MediaKind, socket: &UdpSocket) -> (Rtc, Mid, String, str0m::change::SdpPendingOffer) {
    let mut rtc = config.build(Instant::now());
    rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
    let mut change = rtc.sdp_api();
    let mid = change.add_media(kind, Direction::RecvOnly, None, None, None);
    let (offer, pending) = change.apply().unwrap();
    (rtc, mid, offer.to_sdp_string(), pending)
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket
}

impl Browser {
    fn watch(server: &WebrtcServer, name: &str) -> Self {
        let socket = socket();
        let (mut rtc, mid, offer, pending) = offer(config(), MediaKind::Video, &socket);
        let accepted = accept(server, name, &offer).unwrap();
        let answer = SdpAnswer::from_sdp_string(&accepted.answer).unwrap();
        rtc.sdp_api().accept_answer(pending, answer).unwrap();
        Browser { rtc, socket, mid, session: accepted.session, packets: Vec::new() }
    }

    /// Does what it wants to, and takes a datagram. Returns whether it goes on.
    fn step(&mut self) -> bool {
        while self.rtc.is_alive() {
            match self.rtc.poll_output().unwrap() {
                RtcOutput::Transmit(transmit) => {
                    self.socket.send_to(&transmit.contents, transmit.destination).unwrap();
                }
                RtcOutput::Event(Event::RtpPacket(packet)) => {
                    self.packets.push((*packet.seq_no, packet.payload.to_vec()));
                }
                RtcOutput::Event(_) => {}
                RtcOutput::Timeout(_) => break,
            }
        }
        let mut bytes = [0; 2048];
        let input = match self.socket.recv_from(&mut bytes) {
            Ok((length, source)) => {
                let own = self.socket.local_addr().unwrap();
                Input::Receive(Instant::now(), Receive::new(Protocol::Udp, source, own, &bytes[..length]).unwrap())
            }
            Err(_) => Input::Timeout(Instant::now()),
        };
        self.rtc.handle_input(input).unwrap();
        self.rtc.is_alive()
    }

    /// Goes on until it has so many packets more.
    #[track_caller]
    fn take(&mut self, count: usize) {
        let wanted = self.packets.len() + count;
        wait_until("packets come", LIMIT, || self.step() && self.packets.len() >= wanted);
    }

    fn sequence(&self) -> Vec<u64> {
        self.packets.iter().map(|(number, _)| *number).collect()
    }

    /// How many frames have begun with which a decoder can begin.
    fn key_frames(&self) -> usize {
        let kinds = |payload: &[u8]| -> Vec<u8> {
            match payload[0] & 0x1f {
                // Each with its length.
                TOGETHER => {
                    let (mut rest, mut kinds) = (&payload[1..], Vec::new());
                    while let [high, low, kind, ..] = *rest {
                        kinds.push(kind & 0x1f);
                        rest = &rest[2 + usize::from(u16::from_be_bytes([high, low]))..];
                    }
                    kinds
                }
                PART if payload[1] & 0x80 != 0 => vec![payload[1] & 0x1f],
                kind => vec![kind],
            }
        };
        self.packets.iter().filter(|(_, payload)| kinds(payload).contains(&KEY)).count()
    }
}

fn is_in_order(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] + 1 == pair[1])
}

#[test]
fn a_viewer_begins_with_a_key_frame_and_loses_nothing() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(WebrtcLimits::default(), "127.0.0.1:0", &outputs);
    let mut one = Browser::watch(&server, "gate");
    assert_eq!(outputs.receivers("gate"), 0, "it has not connected");
    one.take(90);
    assert_eq!(outputs.receivers("gate"), 1);
    assert!(is_in_order(&one.sequence()), "{:?}", one.sequence());
    let first = one.packets[0].1[0] & 0x1f;
    assert!(first == TOGETHER || first == SETS, "{first}");
    // Another one begins with a key frame of the same pipeline.
    let mut other = Browser::watch(&server, "gate");
    other.take(30);
    assert!([TOGETHER, SETS].contains(&(other.packets[0].1[0] & 0x1f)) && is_in_order(&other.sequence()));
    assert_eq!(outputs.receivers("gate"), 1);
    one.take(1);
    // One that has lost something asks for a key frame: many more come than by themselves, which is each second.
    let (before, begun) = (other.key_frames(), other.packets.len());
    wait_until("key frames come", LIMIT, || {
        let mut direct = other.rtc.direct_api();
        let stream = direct.stream_rx_by_mid(other.mid, None).unwrap();
        stream.request_keyframe(KeyframeRequestKind::Pli);
        other.step() && other.key_frames() >= before + 4
    });
    let frames = other.packets.len() - begun;
    assert!(frames < 4 * 30, "{frames} packets with four key frames");
    // It is told its end, and asks twice.
    assert!(server.end(&one.session));
    assert!(!server.end(&one.session) && !server.end("other"));
    wait_until("its end is seen", LIMIT, || !one.step());
    other.take(10);
    drop(server);
    wait_until("the end of all is seen", LIMIT, || !other.step());
    wait_until("nobody watches", LIMIT, || outputs.receivers("gate") == 0);
    outputs.end();
}

/// One that asks for key frames all the time costs the encoder two a second, and the others nothing.
#[test]
fn who_asks_for_key_frames_again_and_again_gets_few() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(WebrtcLimits::default(), "127.0.0.1:0", &outputs);
    let (mut flooding, mut other) = (Browser::watch(&server, "gate"), Browser::watch(&server, "gate"));
    flooding.take(1);
    other.take(1);
    let (before, begun, mut asked) = (other.key_frames(), Instant::now(), 0);
    wait_until("packets come", LIMIT, || {
        for kind in [KeyframeRequestKind::Pli, KeyframeRequestKind::Fir] {
            let mut direct = flooding.rtc.direct_api();
            direct.stream_rx_by_mid(flooding.mid, None).unwrap().request_keyframe(kind);
            flooding.step();
            asked += 1;
        }
        other.step() && other.packets.len() >= 150
    });
    let (seconds, key_frames) = (begun.elapsed().as_secs_f64(), other.key_frames() - before);
    // Two a second that are asked for, and the encoder's own one.
    assert!((key_frames as f64) < 3.0 * seconds + 3.0, "{key_frames} key frames in {seconds} s, {asked} asked for");
    assert!(asked > 3 * key_frames, "{key_frames} of {asked}");
    let numbers = other.sequence();
    assert!(is_in_order(&numbers), "{numbers:?}");
    drop(server);
    outputs.end();
}

#[test]
fn a_source_that_is_removed_ends_its_viewers() {
    let outputs = FakeOutputs::new(&["gate"]);
    // Noise, of which an encoder makes packets of full length.
    outputs.add("street", "snow");
    let tiles = TilesConfig { name: "wall".into(), sources: None, columns: None, size: (320, 240), framerate: 10 };
    outputs.set(&[tiles]);
    let server = serve(WebrtcLimits::default(), "[::]:0", &outputs);
    let mut viewers = ["gate", "street", "wall"].map(|name| Browser::watch(&server, name));
    viewers.iter_mut().for_each(|viewer| viewer.take(5));
    outputs.remove("gate");
    let [gate, street, wall] = &mut viewers;
    wait_until("its end is seen", LIMIT, || !gate.step());
    wait_until("it is forgotten", LIMIT, || server.viewers.count() == 2);
    street.take(500);
    let longest = street.packets.iter().map(|(_, payload)| payload.len()).max();
    assert!(longest > Some(1100), "{longest:?}");
    wall.take(5);
    // One that is gone without a word is forgotten, too.
    let [_, street, _] = viewers;
    drop(street);
    wait_until("it is forgotten", LIMIT, || server.viewers.count() == 0);
    drop(server);
    outputs.end();
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(QUICK, "127.0.0.1:0", &outputs);
    let socket = socket();
    let (_, _, good, _) = offer(config(), MediaKind::Video, &socket);
    let refused = |name: &str, offer: &str| accept(&server, name, offer).expect_err(offer);
    assert!(matches!(refused("none", &good), OfferRefused::Unknown(text) if text.contains("no video “none”")));
    for (what, config, kind) in [
        (
            "another codec",
            RtcConfig::new().set_crypto_provider(Arc::new(crypto::provider())).clear_codecs().enable_vp8(true),
            MediaKind::Video,
        ),
        ("sound", RtcConfig::new().set_crypto_provider(Arc::new(crypto::provider())), MediaKind::Audio),
    ] {
        let (_, _, text, _) = offer(config, kind, &socket);
        let refusal = refused("gate", &text);
        assert!(matches!(&refusal, OfferRefused::Unsupported(text) if text.contains("H.264")), "{what}: {refusal:?}");
    }
    // Of an offer that is right, only a part; or with something else in it.
    let lines: Vec<&str> = good.lines().collect();
    let without =
        |word: &str| lines.iter().filter(|line| !line.contains(word)).map(|line| format!("{line}\r\n")).collect();
    let odd: Vec<String> = vec![
        String::new(),
        "\0".repeat(60_000),
        "v=0\r\n".repeat(10_000),
        "{\"sdp\": \"v=0\"}".into(),
        without("fingerprint"),
        without("ice-pwd"),
        without("m=video"),
        good.replace("packetization-mode=1", "packetization-mode=0"),
        good.replace("a=recvonly", "a=sendonly"),
        good.replace("a=recvonly", "a=inactive"),
    ];
    for text in odd {
        let refusal = refused("gate", &text);
        let (OfferRefused::Malformed(said) | OfferRefused::Unsupported(said)) = &refusal else {
            panic!("{text:?}: {refusal:?}");
        };
        assert!(said.ends_with('.') && said.len() < 500, "{said}");
    }
    // Of what is cut off or changed, all is answered or refused.
    let roomy = serve(WebrtcLimits { viewers: 1000, ..QUICK }, "127.0.0.1:0", &outputs);
    let is_known = |text: &str| match accept(&roomy, "gate", text) {
        Ok(accepted) => roomy.end(&accepted.session),
        Err(refusal) => matches!(refusal, OfferRefused::Malformed(_) | OfferRefused::Unsupported(_)),
    };
    assert!((0..lines.len()).all(|number| is_known(&(lines[..number].join("\r\n") + "\r\n"))));
    let mut random = 0x5eed_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    for _ in 0..100 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..4 {
            let at = next() % bytes.len();
            bytes[at] = b' ' + (next() % 95) as u8;
        }
        assert!(is_known(&String::from_utf8(bytes).unwrap()));
    }
    wait_until("they are gone", LIMIT, || roomy.places.available_permits() == 1000);
    // Those that do not connect have a place for a short time.
    let (_one, _other) = (accept(&server, "gate", &good).unwrap(), accept(&server, "gate", &good).unwrap());
    let refusal = refused("gate", &good);
    assert!(
        matches!(&refusal, OfferRefused::Crowded(text) if text.contains("2 viewers have one already")),
        "{refusal:?}"
    );
    wait_until("there is a place again", LIMIT, || accept(&server, "gate", &good).is_ok());
    assert_eq!(outputs.receivers("gate"), 0);
    drop((server, roomy));
    outputs.end();
}

/// What others send to the port, also as if they were the viewer, changes nothing for it.
#[test]
fn datagrams_of_others_are_left() {
    let outputs = FakeOutputs::new(&["gate"]);
    let server = serve(WebrtcLimits::default(), "127.0.0.1:0", &outputs);
    let mut viewer = Browser::watch(&server, "gate");
    viewer.take(10);
    let (stranger, at) = (socket(), server.address());
    let mut random = 0x1234_5678_u64;
    for number in 0..2000_usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let length = random as usize % 1500;
        let mut bytes: Vec<u8> = (0..length).map(|at| (random >> (at % 57)) as u8).collect();
        // STUN, DTLS, RTP and RTCP by their first bytes.
        if let Some(first) = bytes.first_mut() {
            *first = [0, 1, 20, 22, 23, 25, 128, 129, 144, 255][number % 10];
        }
        if let (true, Some(cookie)) = (number % 3 == 0, bytes.get_mut(4..8)) {
            cookie.copy_from_slice(&[0x21, 0x12, 0xa4, 0x42]);
        }
        let _ = stranger.send_to(&bytes, at);
        if number % 10 == 3 {
            let _ = viewer.socket.send_to(&bytes, at);
        }
        if number % 50 == 0 {
            viewer.take(1);
        }
    }
    // Nothing is answered to who knows no session.
    let mut bytes = [0; 2048];
    assert!(stranger.recv_from(&mut bytes).is_err());
    viewer.take(60);
    assert_eq!(server.viewers.count(), 1);
    let numbers = viewer.sequence();
    assert!(is_in_order(&numbers), "{numbers:?}");
    drop(server);
    outputs.end();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let outputs = FakeOutputs::new(&[]);
    let server = serve(WebrtcLimits::default(), "127.0.0.1:0", &outputs);
    let settings = WebrtcSettings { listen: server.address(), addresses: Vec::new() };
    let error = listen(&settings).unwrap_err().to_string();
    assert!(error.contains(&server.address().to_string()) && error.contains("listen in [webrtc]"), "{error}");
    drop(server);
    outputs.end();
}

/// As a machine behind a router, or a container, is told to say.
#[test]
fn the_answer_has_the_addresses_that_are_configured() {
    let outputs = FakeOutputs::new(&["gate"]);
    let addresses = vec!["203.0.113.7:0".parse().unwrap(), "198.51.100.1:9000".parse().unwrap()];
    let settings = WebrtcSettings { listen: "127.0.0.1:0".parse().unwrap(), addresses };
    let server = start(&settings, listen(&settings).unwrap(), outputs.clone()).unwrap();
    let (_, _, offer, _) = offer(config(), MediaKind::Video, &socket());
    let answer = accept(&server, "gate", &offer).unwrap().answer;
    let port = server.address().port();
    for part in [format!("203.0.113.7 {port} typ host"), "198.51.100.1 9000 typ host".into(), "a=ice-lite".into()] {
        assert!(answer.contains(&part), "{part}: {answer}");
    }
    assert!(!answer.contains("127.0.0.1"), "{answer}");
    assert!(answer.contains("a=sendonly") && answer.contains("packetization-mode=1"), "{answer}");
    drop(server);
    outputs.end();
}
