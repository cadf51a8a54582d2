// SPDX-License-Identifier: MPL-2.0
//! Brokers that do all but what they should, and a good one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::hostile_peer::{Act, HostilePeer};

/// Each kind of misbehaviour over each protocol where it makes a difference.
pub fn all() -> Vec<HostilePeer> {
    use Act::{Drip, Flood, Hang, Hear, Reply, Reset, Say};
    let say = |text: &str| Say(text.as_bytes().to_vec());
    let flood = |text: &str| Flood(text.as_bytes().to_vec());
    let welcome = || Say(vec![0x20, 2, 0, 0]);
    let broker = HostilePeer::new;
    let mut brokers = Vec::new();
    if cfg!(feature = "mqtt") {
        let (plain, tls) = ("mqtt://127.0.0.1:PORT/t", "mqtts://127.0.0.1:PORT/t");
        brokers.extend([
            broker("mqtt, says nothing", plain, vec![Hang]),
            broker("mqtt, closes", plain, vec![]),
            broker("mqtt, breaks off", plain, vec![Hear, Reset]),
            broker("mqtt, garbage", plain, vec![Flood(vec![0xA5; 999])]),
            broker("mqtt, a slow welcome", plain, vec![Drip(vec![0x20, 2])]),
            broker("mqtt, refuses", plain, vec![Hear, Say(vec![0x20, 2, 0, 5]), Hang]),
            broker("mqtt, does not acknowledge", plain, vec![Hear, welcome(), Hang]),
            broker("mqtt, pings", plain, vec![Hear, welcome(), Flood(vec![0xD0, 0])]),
            broker("mqtt, slow pings", plain, vec![Hear, welcome(), Drip(vec![0xD0, 0])]),
            broker("mqtt, welcomes without end", plain, vec![Hear, Flood(vec![0x20, 2, 0, 0])]),
            broker("mqtt, wrong numbers", plain, vec![Hear, welcome(), Reply(vec![0x40, 2, 0xFF, 0xFE])]),
            broker("mqtt, wrong numbers without end", plain, vec![Hear, welcome(), Flood(vec![0x50, 2, 0xFF, 0xFE])]),
            broker("mqtt, a huge packet", plain, vec![Hear, Say(vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F]), flood("a")]),
            broker("mqtt, breaks off behind the welcome", plain, vec![Hear, welcome(), Hear, Reset]),
            broker("mqtts, garbage", tls, vec![Hear, Flood(vec![0xA5; 999])]),
            broker("mqtts, half a handshake", tls, vec![Hear, Say(vec![0x16, 3, 3, 0x40, 0, 2]), Hang]),
            broker(
                "mqtts, a slow handshake",
                tls,
                vec![Hear, Say(vec![0x16, 3, 3, 0x40, 0, 2, 0, 0x3F]), Drip(vec![3])],
            ),
            broker("mqtts, an endless handshake", tls, vec![Hear, Flood(vec![0x16, 3, 3, 0, 4, 11, 0xFF, 0xFF, 0xFF])]),
        ]);
    }
    if cfg!(feature = "redis") {
        let (plain, tls) = ("redis://127.0.0.1:PORT/k", "rediss://127.0.0.1:PORT/k");
        brokers.extend([
            broker("redis, an endless text", plain, vec![Hear, say("$9999999999999\r\n"), flood("a")]),
            broker("redis, an endless list", plain, vec![Hear, say("*2147483647\r\n"), flood(":1\r\n")]),
            broker("redis, an endless line", plain, vec![Hear, say("+"), flood("a")]),
            broker("redis, lists in lists", plain, vec![Hear, flood("*1\r\n")]),
            broker("redis, pushes", plain, vec![Hear, flood(">2\r\n+a\r\n+b\r\n")]),
            broker("redis, a long error", plain, vec![Hear, say("-ERR "), Say(vec![b'a'; 8 << 20]), Hang]),
            broker("redis, half an answer", plain, vec![Hear, say("$5\r\nab"), Hang]),
            broker("redis, answers ahead", plain, vec![Hear, flood("+OK\r\n")]),
            broker("redis, breaks off", plain, vec![Hear, say("+PONG\r\n*0\r\n"), Hear, Hear, Reset]),
            broker("redis, slow", plain, vec![Hear, say("+PONG\r\n*0\r\n"), Drip(b"+OK\r\n".to_vec())]),
            broker("rediss, garbage", tls, vec![Hear, Flood(vec![0x16, 3, 3, 0, 0])]),
        ]);
    }
    if cfg!(feature = "http") {
        let plain = "http://127.0.0.1:PORT/hook";
        brokers.extend([
            broker("http, endless headers", plain, vec![Hear, say("HTTP/1.1 200 OK\r\n"), flood("a: b\r\n")]),
            broker("http, an endless status", plain, vec![Hear, say("HTTP/1.1 200 "), flood("a")]),
            broker("http, an endless body", plain, vec![Hear, say("HTTP/1.1 503 No\r\n\r\n"), flood("a")]),
            broker("http, a slow answer", plain, vec![Hear, Drip(b"HTTP/1.1 200 OK\r\na".to_vec())]),
            broker("http, continues", plain, vec![Hear, flood("HTTP/1.1 100 Continue\r\n\r\n")]),
            broker("http, says nothing", plain, vec![Hear, Hang]),
            broker("http, breaks off", plain, vec![Hear, Reset]),
        ]);
    }
    brokers
}

/// An MQTT broker that acknowledges each message, and keeps it.
pub struct GoodBroker {
    pub location: String,
    messages: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl GoodBroker {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = format!("mqtt://{}/t", listener.local_addr().unwrap());
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = messages.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                thread::spawn(move || while serve(&stream, &kept).is_some() {});
            }
        });
        GoodBroker { location, messages }
    }

    pub fn count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    pub fn take(&self) -> Vec<String> {
        let messages = std::mem::take(&mut *self.messages.lock().unwrap());
        messages.into_iter().map(|message| String::from_utf8(message).unwrap()).collect()
    }
}

/// Answers the next packet.
fn serve(mut stream: &TcpStream, kept: &Mutex<Vec<Vec<u8>>>) -> Option<()> {
    let mut byte = || {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok().map(|()| byte[0])
    };
    let kind = byte()?;
    let mut length = 0;
    for place in 0.. {
        let next = byte()?;
        length |= usize::from(next & 0x7F) << (7 * place);
        if next & 0x80 == 0 {
            break;
        }
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).ok()?;
    match kind & 0xF0 {
        0x10 => stream.write_all(&[0x20, 2, 0, 0]).ok(),
        0x30 => {
            let id = 2 + usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            kept.lock().unwrap().push(rest[id + 2..].to_vec());
            stream.write_all(&[0x40, 2, rest[id], rest[id + 1]]).ok()
        }
        0xC0 => stream.write_all(&[0xD0, 0]).ok(),
        _ => Some(()),
    }
}
