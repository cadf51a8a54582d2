// SPDX-License-Identifier: MPL-2.0
//! A server that is made up, and goes away when a real one seldom does.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::*;
use crate::tests::wait::LIMIT;

/// The next packet: its kind, and the rest.
fn packet_from(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let [kind, length] = head;
    assert!(length < 128, "the messages here are short");
    let mut rest = vec![0; length.into()];
    stream.read_exact(&mut rest).unwrap();
    (kind, rest)
}

/// The number and the text of a message of the topic "t".
fn message_from(stream: &mut TcpStream) -> (u16, String) {
    let (kind, rest) = packet_from(stream);
    assert_eq!(kind & 0xF6, 0x34, "a message of QoS 2");
    (u16::from_be_bytes([rest[3], rest[4]]), String::from_utf8(rest[5..].to_vec()).unwrap())
}

fn greeted(listener: &TcpListener, is_resumed: bool) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(packet_from(&mut stream).0, 0x10);
    stream.write_all(&[0x20, 2, is_resumed.into(), 0]).unwrap();
    stream
}

fn answer(stream: &mut TcpStream, kind: u8, id: u16) {
    let [high, low] = id.to_be_bytes();
    stream.write_all(&[kind, 2, high, low]).unwrap();
}

/// What is written from now on leaves when the connection is closed.
fn hold_back(stream: &TcpStream) {
    let (on, size) = (1_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the socket is open, and the option's value is an int that lives during the call.
    let failed = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CORK, (&raw const on).cast(), size)
    };
    assert_eq!(failed, 0);
}

#[test]
fn a_number_stays_that_of_its_message() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("mqtt://{}/t?qos=2&clean-session=false&client-id=me", listener.local_addr().unwrap());
    let messages: Vec<String> = (0..WINDOW).map(|number| format!("message {number}")).collect();
    let expected = messages.clone();
    let server = std::thread::spawn(move || {
        let mut stream = greeted(&listener, false);
        let first: BTreeMap<u16, String> = (0..WINDOW).map(|_| message_from(&mut stream)).collect();
        // It says that it has all, and is gone before the client can reply.
        hold_back(&stream);
        first.keys().for_each(|id| answer(&mut stream, 0x50, *id));
        drop(stream);

        let mut stream = greeted(&listener, true);
        let mut left = first.clone();
        while !left.is_empty() {
            let (kind, rest) = packet_from(&mut stream);
            if kind == 0x62 {
                let id = u16::from_be_bytes([rest[0], rest[1]]);
                left.remove(&id);
                answer(&mut stream, 0x70, id);
            } else {
                let id = u16::from_be_bytes([rest[3], rest[4]]);
                assert_eq!(first.get(&id).map(String::as_bytes), Some(&rest[5..]), "under the number {id}");
                answer(&mut stream, 0x50, id);
            }
        }
        first.into_values().collect::<Vec<_>>()
    });
    let address = Address::parse(&location, &["mqtt"]).unwrap();
    let mut client = open(&address, &PublishOptions::default()).unwrap();
    let mut rest = &messages[..];
    while !rest.is_empty() {
        client.connect().unwrap();
        rest = match client.send(rest) {
            Ok(()) => &[],
            Err(undelivered) => &rest[undelivered.delivered..],
        };
    }
    // What the server has not forgotten is released over the connection that is there.
    client.connect().ok();
    assert_eq!(server.join().unwrap(), expected);
}

/// A server that has lost the session never says that it is done with what was released to it before.
#[test]
fn a_server_that_forgets_the_session_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("mqtt://{}/t?qos=2&clean-session=false&client-id=me", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut stream = greeted(&listener, false);
        let (id, first) = message_from(&mut stream);
        answer(&mut stream, 0x50, id);
        assert_eq!(packet_from(&mut stream).0, 0x62);
        drop(stream);

        let mut stream = greeted(&listener, false);
        let (id, second) = message_from(&mut stream);
        answer(&mut stream, 0x50, id);
        assert_eq!(packet_from(&mut stream).0, 0x62);
        answer(&mut stream, 0x70, id);
        [first, second]
    });
    let address = Address::parse(&location, &["mqtt"]).unwrap();
    let mut client = open(&address, &PublishOptions::default()).unwrap();
    client.connect().unwrap();
    let undelivered = client.send(&["first".into()]).unwrap_err();
    assert_eq!(undelivered.delivered, 1, "the server said that it has it");
    client.connect().unwrap();
    assert!(client.send(&["second".into()]).is_ok());
    assert_eq!(server.join().unwrap(), ["first", "second"]);
}

/// To MQTT 0 is no number.
#[test]
fn numbers_begin_at_1_again() {
    const MESSAGES: usize = u16::MAX as usize + 1;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("mqtt://{}/t", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut stream = greeted(&listener, false);
        let mut ids = Vec::new();
        while ids.len() < MESSAGES {
            let (_, rest) = packet_from(&mut stream);
            ids.push(u16::from_be_bytes([rest[3], rest[4]]));
            answer(&mut stream, 0x40, ids[ids.len() - 1]);
        }
        ids
    });
    let address = Address::parse(&location, &["mqtt"]).unwrap();
    let mut client = open(&address, &PublishOptions { timeout: LIMIT, ..PublishOptions::default() }).unwrap();
    client.connect().unwrap();
    let messages = vec![String::from("{}"); MESSAGES];
    assert!(messages.chunks(1000).all(|messages| client.send(messages).is_ok()));
    let expected: Vec<u16> = (1..=u16::MAX).chain([1]).collect();
    assert!(server.join().unwrap() == expected);
}

/// Neither packets that are not asked for nor wrong numbers hold the thread.
#[test]
fn a_server_that_sends_without_end_is_given_up() {
    for (packets, is_flood) in [(&[0xD0, 0][..], true), (&[0x20, 2, 0, 0], true), (&[0x40, 2, 0xFF, 0xFE], false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = format!("mqtt://{}/t", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut stream = greeted(&listener, false);
            let more = if is_flood { packets.repeat(1 << 14) } else { packets.to_vec() };
            while stream.write_all(&more).is_ok() {
                // One wrong number for each message, so that something always comes before a time limit of its own.
                if !is_flood && stream.read(&mut [0; 4096]).is_ok_and(|count| count == 0) {
                    break;
                }
            }
        });
        let address = Address::parse(&location, &["mqtt"]).unwrap();
        let timeout = Duration::from_millis(200);
        let mut client = open(&address, &PublishOptions { timeout, ..PublishOptions::default() }).unwrap();
        let outcome = client.connect().and_then(|()| client.send(&["first".into()]).map_err(|failed| failed.error));
        let kind = outcome.unwrap_err().kind();
        assert!(matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::TimedOut), "{kind}");
        drop(client);
        server.join().unwrap();
    }
}
