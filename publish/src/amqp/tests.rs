// SPDX-License-Identifier: MPL-2.0
//! To servers that do what a test says. tests/trtpublish_brokers.rs has RabbitMQ.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::super::tests::wait::wait_until;
use super::frame::*;
use super::*;

/// A server's side of a connection.
struct AmqpPeer {
    stream: TcpStream,
    arrived: Vec<u8>,
    tuned: (u32, u16),
}

impl AmqpPeer {
    fn say(&mut self, channel: u16, id: MethodId, arguments: &[u8]) {
        let _ = self.stream.write_all(&method(channel, id, arguments));
    }

    fn closes(&mut self, id: MethodId, code: u16, text: &str) {
        let channel = if id == CLOSE { 0 } else { CHANNEL };
        self.say(channel, id, &[&code.to_be_bytes()[..], &short_text(text), &[0; 4]].concat());
    }

    fn confirms(&mut self, id: MethodId, tag: u64, is_multiple: bool) {
        self.say(CHANNEL, id, &[&tag.to_be_bytes()[..], &[is_multiple.into()]].concat());
    }

    /// The next frame: its kind and what it carries. `None` where the client has gone.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(&[kind, _, _, a, b, c, d]) = self.arrived.first_chunk::<7>() {
                let size = u32::from_be_bytes([a, b, c, d]) as usize;
                assert!(size + AROUND <= MIN_FRAME || self.tuned.0 == 0, "a frame of {size} bytes");
                if self.arrived.len() >= size + AROUND {
                    let frame: Vec<u8> = self.arrived.drain(..size + AROUND).collect();
                    return Some((kind, frame[7..size + 7].to_vec()));
                }
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.arrived.extend(&bytes[..count]),
                _ => return None,
            }
        }
    }

    /// The next method's arguments.
    fn expects(&mut self, (class, number): MethodId) -> Vec<u8> {
        let (_, carried) = self.frame().expect("a method");
        assert_eq!(carried[..4], [class.to_be_bytes(), number.to_be_bytes()].concat()[..], "{class} {number}");
        carried[4..].to_vec()
    }

    /// The greeting, until a login is wanted.
    fn starts(&mut self, mechanisms: &str) {
        let mut greeting = [0; GREETING.len()];
        self.stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, GREETING);
        let texts = [table(&[]), long_text(mechanisms.as_bytes()), long_text(b"en_US")];
        self.say(0, START, &[vec![0, 9], texts.concat()].concat());
    }

    /// All that comes before messages. Returns the login.
    fn welcomes(&mut self) -> String {
        self.starts("AMQPLAIN PLAIN");
        let login = String::from_utf8_lossy(&self.expects(START_OK)).into_owned();
        let (max_frame, heartbeat) = self.tuned;
        self.say(0, TUNE, &[&[0, 0][..], &max_frame.to_be_bytes(), &heartbeat.to_be_bytes()].concat());
        self.expects(TUNE_OK);
        self.expects(OPEN);
        self.say(0, OPEN_OK, &short_text(""));
        self.expects(CHANNEL_OPEN);
        self.say(CHANNEL, CHANNEL_OPEN_OK, &long_text(b""));
        self.expects(CONFIRM_SELECT);
        self.say(CHANNEL, CONFIRM_SELECT_OK, &[]);
        login
    }

    fn has_the_queue(&mut self) {
        self.expects(QUEUE_DECLARE);
        self.say(CHANNEL, QUEUE_DECLARE_OK, &[short_text("boxes"), vec![0; 8]].concat());
    }

    /// The text of the next message.
    fn message(&mut self) -> String {
        self.expects(PUBLISH);
        let (_, header) = self.frame().unwrap();
        let size = u64::from_be_bytes(header[4..12].try_into().unwrap()) as usize;
        let mut text = Vec::new();
        while text.len() < size {
            text.extend(self.frame().unwrap().1);
        }
        String::from_utf8(text).unwrap()
    }
}

const SOON: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(30);

/// A client, and a server that does that on each of so many connections.
fn pair<T: Send + 'static>(
    (query, timeout): (&str, Duration),
    connections: usize,
    mut serve: impl FnMut(&mut AmqpPeer, usize) -> T + Send + 'static,
) -> (Box<dyn Destination>, JoinHandle<Vec<T>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("amqp://me:hunter2@{}/boxes{query}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut serve_next = |number| {
            let stream = listener.accept().unwrap().0;
            let mut peer = AmqpPeer { stream, arrived: Vec::new(), tuned: (MIN_FRAME as u32, 60) };
            serve(&mut peer, number)
        };
        (0..connections).map(&mut serve_next).collect()
    });
    let address = Address::parse(&location, &["amqp"]).unwrap();
    (open(&address, &PublishOptions { timeout, ..PublishOptions::default() }).unwrap(), server)
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{{\"frame\":{number}}}")).collect()
}

#[test]
fn messages_are_confirmed_in_any_order() {
    let (mut client, server) = pair(("", LONG), 1, |peer, _| {
        let login = peer.welcomes();
        peer.has_the_queue();
        let mut messages: Vec<String> = (0..4).map(|_| peer.message()).collect();
        // 3, then 1 and 2 at once, then 4.
        peer.confirms(ACK, 3, false);
        peer.confirms(ACK, 2, true);
        peer.confirms(ACK, 4, false);
        messages.push(peer.message());
        // 0 stands for all.
        peer.confirms(ACK, 0, true);
        peer.expects(CLOSE);
        (login, messages)
    });
    client.connect().unwrap();
    client.send(&texts(4)).unwrap();
    // Longer than the frames that were agreed on.
    let long = "x".repeat(3 * MIN_FRAME);
    client.send(std::slice::from_ref(&long)).unwrap();
    client.close();
    drop(client);
    let (login, messages) = server.join().unwrap().remove(0);
    assert!(login.contains("PLAIN\0\0\0\x0b\0me\0hunter2"), "{login:?}");
    assert_eq!((&messages[..4], &messages[4]), (&texts(4)[..], &long));
}

#[test]
fn what_was_confirmed_before_a_failure_is_not_sent_again() {
    let (mut client, server) = pair(("", LONG), 2, |peer, number| {
        peer.welcomes();
        peer.has_the_queue();
        let messages: Vec<String> = (0..if number == 0 { 4 } else { 2 }).map(|_| peer.message()).collect();
        peer.confirms(ACK, 2, true);
        // One that is behind others is not counted.
        if number == 0 {
            peer.confirms(ACK, 4, false);
            peer.confirms(NACK, 3, false);
        }
        while peer.frame().is_some() {}
        messages
    });
    client.connect().unwrap();
    let undelivered = client.send(&texts(4)).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (2, 0), "{}", undelivered.error);
    client.connect().unwrap();
    client.send(&texts(4)[2..]).unwrap();
    drop(client);
    assert_eq!(server.join().unwrap()[1], texts(4)[2..]);
}

#[test]
fn a_message_that_is_too_long_is_refused_for_good() {
    let (mut client, server) = pair(("", LONG), 3, |peer, _| {
        peer.welcomes();
        peer.has_the_queue();
        for tag in 1.. {
            let Some((_, carried)) = peer.frame() else { break };
            if carried[..4] == method(0, CLOSE, &[])[7..11] {
                break;
            }
            assert_eq!(carried[..4], method(0, PUBLISH, &[])[7..11]);
            let (_, header) = peer.frame().unwrap();
            peer.frame();
            if header[11] > 20 {
                peer.closes(CHANNEL_CLOSE, PRECONDITION_FAILED, "PRECONDITION_FAILED - message size 30 is larger");
            } else {
                peer.confirms(ACK, tag, false);
            }
        }
    });
    client.connect().unwrap();
    let messages = ["{}".into(), "{}".into(), "x".repeat(30), "{}".into()];
    let undelivered = client.send(&messages).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (2, 1), "{}", undelivered.error);
    assert!(undelivered.error.to_string().contains("message size"), "{}", undelivered.error);
    client.send(&messages[3..]).unwrap();
    drop(client);
    server.join().unwrap();
}

/// What a client is told by a server that does that at the end.
fn told(query: &str, serve: fn(&mut AmqpPeer)) -> io::Error {
    let (mut client, server) = pair((query, SOON), 1, move |peer, _| {
        serve(peer);
        let _ = io::copy(&mut peer.stream, &mut io::sink());
    });
    let outcome = client.connect().and_then(|()| client.send(&["{}".into()]).map_err(|failed| failed.error));
    drop(client);
    server.join().unwrap();
    outcome.unwrap_err()
}

#[test]
fn what_the_server_says_is_told() {
    type Serve = fn(&mut AmqpPeer);
    let cases: [(&str, Serve, &str); 6] = [
        ("", |peer| peer.starts("EXTERNAL"), "login by EXTERNAL"),
        (
            "",
            |peer| {
                peer.starts("PLAIN");
                peer.expects(START_OK);
                peer.closes(CLOSE, 403, "ACCESS_REFUSED - Login was refused");
            },
            "the server says ACCESS_REFUSED",
        ),
        (
            "",
            |peer| {
                peer.welcomes();
                assert_eq!(peer.expects(QUEUE_DECLARE), [&b"\0\0\x05boxes\x01"[..], &[0; 4]].concat());
                peer.closes(CHANNEL_CLOSE, 404, "NOT_FOUND - no queue 'boxes' in vhost '/'");
            },
            "no queue 'boxes'",
        ),
        (
            "?exchange=all",
            |peer| {
                peer.welcomes();
                assert_eq!(peer.expects(EXCHANGE_DECLARE), [&b"\0\0\x03all\x05topic\x01"[..], &[0; 4]].concat());
                peer.closes(CHANNEL_CLOSE, 404, "NOT_FOUND - no exchange 'all' in vhost '/'");
            },
            "no exchange 'all'",
        ),
        (
            "",
            |peer| {
                peer.welcomes();
                peer.has_the_queue();
                peer.message();
                peer.say(CHANNEL, RETURN, &[&312u16.to_be_bytes()[..], b"\x08NO_ROUTE\0\x05boxes"].concat());
            },
            "NO_ROUTE: the queue boxes is gone",
        ),
        (
            "",
            |peer| {
                peer.welcomes();
                peer.has_the_queue();
                peer.message();
                peer.say(0, BLOCKED, &short_text("low on memory"));
            },
            "takes no messages now: low on memory",
        ),
    ];
    for (query, serve, part) in cases {
        let error = told(query, serve).to_string();
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn what_is_no_amqp_is_given_up() {
    let cases: [fn(&mut AmqpPeer); 6] = [
        |peer| drop(peer.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        // Another version of the protocol.
        |peer| drop(peer.stream.write_all(b"AMQP\x00\x01\x00\x00")),
        |peer| drop(peer.stream.write_all(&[1, 0, 0, 0xff, 0xff, 0xff, 0xff])),
        |peer| drop(peer.stream.write_all(&[1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 10, 0])),
        // A text that ends behind the frame.
        |peer| peer.say(0, START, &[0, 9, 0xff, 0xff, 0xff, 0xff]),
        // It confirms what was never sent.
        |peer| {
            peer.welcomes();
            peer.has_the_queue();
            peer.message();
            peer.confirms(ACK, u64::MAX, true);
        },
    ];
    for (number, serve) in cases.into_iter().enumerate() {
        let error = told("", serve);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{number}: {error}");
        assert!(error.to_string().contains("does not speak AMQP 0-9-1"), "{number}: {error}");
    }
}

#[test]
fn endless_answers_are_given_up() {
    for frame in [BEAT.to_vec(), method(0, (10, 61), &[])] {
        let (mut client, server) = pair(("", SOON), 1, move |peer, _| {
            peer.welcomes();
            peer.has_the_queue();
            while peer.stream.write_all(&frame.repeat(100)).is_ok() {}
        });
        let outcome = client.connect().and_then(|()| client.send(&["{}".into()]).map_err(|failed| failed.error));
        let kind = outcome.unwrap_err().kind();
        assert!(matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::TimedOut), "{kind}");
        drop(client);
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_falls_silent_is_left() {
    let (mut client, server) = pair(("?heartbeat=1", LONG), 1, |peer, _| {
        peer.welcomes();
        peer.has_the_queue();
        let mut beats = 0;
        while let Some((kind, _)) = peer.frame() {
            beats += u32::from(kind == BEAT[0]);
        }
        beats
    });
    client.connect().unwrap();
    wait_until("it is noticed", LONG, || client.tend().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
    drop(client);
    assert!(server.join().unwrap()[0] > 0, "the client was there meanwhile");
}
