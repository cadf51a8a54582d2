// SPDX-License-Identifier: MPL-2.0
//! Packets of MQTT 3.1.1, as far as publishing needs them.

use std::io;

/// The largest rest of a packet.
pub const MAX_REST: usize = 268_435_455;

/// What the first packet tells the server.
pub struct Connect<'a> {
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    pub password: Option<&'a str>,
    pub clean_session: bool,
    /// Seconds.
    pub keep_alive: u16,
    pub will: Option<Will<'a>>,
}

/// What the server publishes when this client is gone without a goodbye.
pub struct Will<'a> {
    pub topic: &'a str,
    pub message: &'a str,
    pub qos: u8,
    pub retain: bool,
}

/// What the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    /// The session of before is there, and the code.
    Connected {
        is_resumed: bool,
        code: u8,
    },
    /// QoS 1: it has the message.
    Acknowledged(u16),
    /// QoS 2: it has the message.
    Received(u16),
    /// QoS 2: it has forgotten the number.
    Completed(u16),
    Pong,
}

fn text(packet: &mut Vec<u8>, text: &str) {
    // Lengths were checked when the address was read.
    packet.extend((text.len() as u16).to_be_bytes());
    packet.extend(text.as_bytes());
}

/// Appends the length of the rest: seven bits a byte, the lowest first.
fn length(packet: &mut Vec<u8>, mut rest: usize) {
    loop {
        let more = if rest > 127 { 0x80 } else { 0 };
        packet.push((rest % 128) as u8 | more);
        rest /= 128;
        if rest == 0 {
            return;
        }
    }
}

fn whole(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![kind];
    length(&mut packet, rest.len());
    packet.extend(rest);
    packet
}

impl Connect<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = u8::from(self.clean_session) << 1;
        if let Some(will) = &self.will {
            flags |= 1 << 2 | will.qos << 3 | u8::from(will.retain) << 5;
        }
        flags |= u8::from(self.password.is_some()) << 6 | u8::from(self.user.is_some()) << 7;
        let mut rest = Vec::new();
        text(&mut rest, "MQTT");
        rest.extend([4, flags]);
        rest.extend(self.keep_alive.to_be_bytes());
        text(&mut rest, self.client_id);
        if let Some(will) = &self.will {
            text(&mut rest, will.topic);
            text(&mut rest, will.message);
        }
        self.user.into_iter().chain(self.password).for_each(|part| text(&mut rest, part));
        whole(0x10, &rest)
    }
}

/// Appends a message. `id` is 0 with QoS 0.
pub fn publish(packet: &mut Vec<u8>, topic: &str, id: u16, message: &str, (qos, retain): (u8, bool), is_again: bool) {
    packet.push(0x30 | u8::from(is_again) << 3 | qos << 1 | u8::from(retain));
    length(packet, 2 + topic.len() + if qos > 0 { 2 } else { 0 } + message.len());
    text(packet, topic);
    if qos > 0 {
        packet.extend(id.to_be_bytes());
    }
    packet.extend(message.as_bytes());
}

/// QoS 2: the server may forget the number.
pub fn release(id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [0x62, 2, high, low]
}

pub const PING: [u8; 2] = [0xC0, 0];
pub const DISCONNECT: [u8; 2] = [0xE0, 0];

pub fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server does not speak MQTT 3.1.1")
}

/// Takes the first packet out of the bytes that have arrived; `None` if it is not there in full.
///
/// # Errors
/// The bytes are no packet that a server may send here.
pub fn take(bytes: &mut Vec<u8>) -> io::Result<Option<ServerAnswer>> {
    // All answers have a rest of 0 or 2 bytes.
    let [kind, rest, ..] = bytes[..] else { return Ok(None) };
    if rest > 2 {
        return Err(wrong());
    }
    let size = 2 + usize::from(rest);
    if bytes.len() < size {
        return Ok(None);
    }
    let answer = match (kind, &bytes[2..size]) {
        (0x20, &[flags, code]) => ServerAnswer::Connected { is_resumed: flags & 1 == 1, code },
        (0x40, &[high, low]) => ServerAnswer::Acknowledged(u16::from_be_bytes([high, low])),
        (0x50, &[high, low]) => ServerAnswer::Received(u16::from_be_bytes([high, low])),
        (0x70, &[high, low]) => ServerAnswer::Completed(u16::from_be_bytes([high, low])),
        (0xD0, &[]) => ServerAnswer::Pong,
        _ => return Err(wrong()),
    };
    bytes.drain(..size);
    Ok(Some(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_the_standard() {
        let will = Some(Will { topic: "w", message: "gone", qos: 1, retain: true });
        let connect = Connect {
            client_id: "me",
            user: Some("u"),
            password: Some("p"),
            clean_session: false,
            keep_alive: 60,
            will,
        };
        let rest = b"\0\x04MQTT\x04\xEC\0\x3C\0\x02me\0\x01w\0\x04gone\0\x01u\0\x01p";
        assert_eq!(connect.encode(), [&[0x10, rest.len() as u8], &rest[..]].concat());
        let mut packet = Vec::new();
        publish(&mut packet, "a/b", 258, "x", (2, false), true);
        assert_eq!(packet, b"\x3C\x08\0\x03a/b\x01\x02x");
        packet.clear();
        publish(&mut packet, "t", 0, &"y".repeat(200), (0, true), false);
        assert_eq!(packet[..6], *b"\x31\xCB\x01\0\x01t");
    }

    #[test]
    fn lengths_are_those_of_the_standard() {
        for (rest, expected) in [
            (0, &[0][..]),
            (127, &[0x7F]),
            (128, &[0x80, 1]),
            (16_384, &[0x80, 0x80, 1]),
            (MAX_REST, &[0xFF, 0xFF, 0xFF, 0x7F]),
        ] {
            let mut packet = Vec::new();
            length(&mut packet, rest);
            assert_eq!(packet, expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_packets_or_errors(bytes: Vec<u8>) {
            let mut left = bytes.clone();
            while let Ok(Some(_)) = take(&mut left) {}
            assert!(left.len() <= bytes.len());
        }
    }
}
