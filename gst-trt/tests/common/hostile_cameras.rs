// SPDX-License-Identifier: MPL-2.0
//! Cameras and files that do all but what they should.

use std::path::Path;
use std::process::Command;

use super::hostile_peer::{Act, HostilePeer};
use super::service::free_address;
use super::{jpeg, sample};

/// A source that misbehaves.
pub struct HostileCamera {
    pub name: String,
    pub address: String,
    /// Of the network, it answers until this is dropped.
    pub peer: Option<HostilePeer>,
}

/// A stream of H.264, as an RTSP server describes it.
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
                   a=fmtp:96 packetization-mode=1\r\na=control:s0\r\n";

/// The head of an answer over HTTP.
fn http(kind: &str) -> Act {
    say(&format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"))
}

fn say(text: &str) -> Act {
    Act::Say(text.into())
}

fn flood(text: &str) -> Act {
    Act::Flood(text.into())
}

/// Answers to the first requests of RTSP, whose numbers are 1, 2 and so on.
fn rtsp(answers: &[&str]) -> Vec<Act> {
    let options = "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n\r\n".to_string();
    let described = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{SDP}", SDP.len());
    let good = [options, described];
    let answers = good.into_iter().chain(answers.iter().map(|answer| answer.to_string()));
    let numbered =
        answers.zip(1..).map(|(answer, number)| say(&format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{answer}")));
    numbered.flat_map(|answer| [Act::Hear, answer]).collect()
}

/// The first answer of RTSP, and then something else to the second request.
fn described_by(acts: Vec<Act>) -> Vec<Act> {
    rtsp(&[]).into_iter().take(2).chain([Act::Hear]).chain(acts).collect()
}

/// Packets of RTP with other numbers and what is no H.264.
fn packets() -> Vec<u8> {
    let packet = |number: u16| {
        let head = [&[b'$', 0, 3, 244, 0x80, 96][..], &number.to_be_bytes(), &[0, 0, u8::MAX, 0, 0, 0, 0, 7]].concat();
        let noise = (0..1000u32).map(move |at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ number as u8);
        head.into_iter().chain(noise).collect::<Vec<_>>()
    };
    (0..64).map(|number| packet(number * 997)).collect::<Vec<_>>().concat()
}

/// The start of a NAL unit, and what is none.
fn garbage() -> Vec<u8> {
    (0..50_000u32).flat_map(|at| [0, 0, 0, 1, at as u8, (at >> 3) as u8 ^ 0x5A, 7, 99]).collect()
}

pub fn all(folder: &Path) -> Vec<HostileCamera> {
    use Act::{Drip, Flood, Hang, Hear, Reply, Reset, Say};
    const RTSP: &str = "rtspt://127.0.0.1:PORT/v";
    const HTTP: &str = "http://127.0.0.1:PORT/v";
    const PARTS: &str = "multipart/x-mixed-replace;boundary=a";
    const LIST: &str = "application/vnd.apple.mpegurl";
    let ok = "Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n\r\n";
    let part = |text: &str| say(&format!("--a\r\nContent-Type: image/jpeg\r\n{text}"));
    let bomb = jpeg::of_size(jpeg::of(folder, 64, 48), 65535, 65535);
    let movie = std::fs::read(sample()).unwrap();
    let peers = [
        ("rtsp-silent", RTSP, vec![Hang]),
        ("rtsp-breaks-off", RTSP, vec![Hear, Reset]),
        ("rtsp-garbage", RTSP, vec![Flood(vec![0xA5; 999])]),
        ("rtsp-slow", RTSP, vec![Hear, Drip(b"RTSP/1.0 200 OK\r\nX: ".to_vec())]),
        ("rtsp-endless-header", RTSP, described_by(vec![say("RTSP/1.0 200 OK\r\nCSeq: 2\r\nX: "), flood("a")])),
        ("rtsp-endless-headers", RTSP, described_by(vec![say("RTSP/1.0 200 OK\r\nCSeq: 2\r\n"), flood("X: y\r\n")])),
        (
            "rtsp-announces-2-gib",
            RTSP,
            described_by(vec![say("RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 2147483647\r\n\r\nv=0"), Hang]),
        ),
        ("rtsp-flood", RTSP, [rtsp(&[ok, "Session: 1\r\n\r\n"]), vec![Flood(packets())]].concat()),
        ("rtsp-nothing-played", RTSP, [rtsp(&[ok, "Session: 1\r\n\r\n"]), vec![Hang]].concat()),
        ("http-silent", HTTP, vec![Hear, Hang]),
        ("http-breaks-off", HTTP, vec![Hear, http("video/mp4"), Reset]),
        ("http-endless-headers", HTTP, vec![Hear, say("HTTP/1.1 200 OK\r\n"), flood("a: b\r\n")]),
        (
            "http-redirects",
            HTTP,
            vec![Reply(b"HTTP/1.1 302 Found\r\nLocation: /w\r\nContent-Length: 0\r\n\r\n".to_vec())],
        ),
        ("http-stalls", HTTP, vec![Hear, http("video/mp4"), Say(movie[..movie.len().min(1 << 20) / 2].into()), Hang]),
        ("http-endless-text", HTTP, vec![Hear, http("text/html"), flood("<p>a</p>\n")]),
        ("http-h264-garbage", HTTP, vec![Hear, http("video/h264"), Flood(garbage())]),
        (
            "mjpeg-huge-part",
            HTTP,
            vec![Hear, http(PARTS), part("Content-Length: 2147483647\r\n\r\n"), Flood(vec![7; 999])],
        ),
        ("mjpeg-endless-headers", HTTP, vec![Hear, http(PARTS), part(""), flood("X: y\r\n")]),
        ("mjpeg-no-boundary", HTTP, vec![Hear, http("multipart/x-mixed-replace"), Flood(vec![7; 999])]),
        (
            "mjpeg-no-pictures",
            HTTP,
            vec![Hear, http(PARTS), flood("--a\r\nContent-Type: image/jpeg\r\n\r\nno picture\r\n")],
        ),
        (
            "mjpeg-bomb",
            HTTP,
            vec![Hear, http(PARTS), Flood([b"--a\r\nContent-Type: image/jpeg\r\n\r\n", &bomb[..], b"\r\n"].concat())],
        ),
        (
            "playlist-of-files",
            HTTP,
            vec![
                Hear,
                http(LIST),
                say(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{}\n#EXT-X-ENDLIST\n", sample())),
            ],
        ),
        ("playlist-of-itself", HTTP, vec![Hear, http(LIST), say("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nv\n")]),
    ];
    let of_peer = |(name, address, acts): (&'static str, &str, Vec<Act>)| {
        let peer = HostilePeer::new(name, address, acts);
        HostileCamera { name: name.into(), address: peer.location.clone(), peer: Some(peer) }
    };
    let plain = |name: &str, address: String| HostileCamera { name: name.into(), address, peer: None };
    let file = |name: &str, ending: &str, bytes: &[u8]| {
        let path = folder.join(name).with_extension(ending);
        std::fs::write(&path, bytes).unwrap();
        plain(name, path.display().to_string())
    };
    let pipe = folder.join("pipe.ts");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let more = [
        plain("rtsp-refused", format!("rtspt://{}/v", free_address())),
        plain("pipe", pipe.display().to_string()),
        file("cut-off", "mp4", &movie[..movie.len() / 3]),
        file("garbage", "h264", &garbage()),
        file("bomb", "jpg", &bomb),
    ];
    peers.into_iter().map(of_peer).chain(more).collect()
}
