// SPDX-License-Identifier: MPL-2.0
//! Frames of AMQP 0-9-1, as far as publishing needs them: eight bytes around what they carry.

use std::io;

/// The first bytes of a connection.
pub const GREETING: &[u8; 8] = b"AMQP\x00\x00\x09\x01";
/// Bytes of a frame without what it carries.
pub const AROUND: usize = 8;
/// The largest frame that is taken, and made.
pub const MAX_FRAME: usize = 128 << 10;
/// Each side takes frames of that size before another one is agreed on.
pub const MIN_FRAME: usize = 4096;
/// The channel that messages are sent on; 0 is the connection itself.
pub const CHANNEL: u16 = 1;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const END: u8 = 0xCE;

/// What tells the other side that this one is there.
pub const BEAT: [u8; AROUND] = [HEARTBEAT, 0, 0, 0, 0, 0, 0, END];

/// A class and the number of a method in it.
pub type MethodId = (u16, u16);

pub const START: MethodId = (10, 10);
pub const START_OK: MethodId = (10, 11);
pub const TUNE: MethodId = (10, 30);
pub const TUNE_OK: MethodId = (10, 31);
pub const OPEN: MethodId = (10, 40);
pub const OPEN_OK: MethodId = (10, 41);
pub const CLOSE: MethodId = (10, 50);
pub const CLOSE_OK: MethodId = (10, 51);
pub const BLOCKED: MethodId = (10, 60);
pub const CHANNEL_OPEN: MethodId = (20, 10);
pub const CHANNEL_OPEN_OK: MethodId = (20, 11);
pub const CHANNEL_CLOSE: MethodId = (20, 40);
pub const EXCHANGE_DECLARE: MethodId = (40, 10);
pub const EXCHANGE_DECLARE_OK: MethodId = (40, 11);
pub const QUEUE_DECLARE: MethodId = (50, 10);
pub const QUEUE_DECLARE_OK: MethodId = (50, 11);
pub const PUBLISH: MethodId = (60, 40);
pub const RETURN: MethodId = (60, 50);
pub const ACK: MethodId = (60, 80);
pub const NACK: MethodId = (60, 120);
pub const CONFIRM_SELECT: MethodId = (85, 10);
pub const CONFIRM_SELECT_OK: MethodId = (85, 11);

/// What the server says that counts here.
#[derive(Debug, PartialEq, Eq)]
pub enum AmqpFrame {
    Method(MethodId, MethodArguments),
    /// A heartbeat, or the content of a message that came back.
    Other,
}

pub fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server does not speak AMQP 0-9-1")
}

/// Takes the first frame out of what has arrived.
pub fn take(arrived: &mut Vec<u8>) -> io::Result<Option<AmqpFrame>> {
    // A server that does not know this protocol says which one it knows.
    if arrived.first().is_some_and(|kind| ![METHOD, HEADER, BODY, HEARTBEAT].contains(kind)) {
        return Err(wrong());
    }
    let Some(&[kind, _, _, a, b, c, d]) = arrived.first_chunk::<7>() else { return Ok(None) };
    let size = u32::from_be_bytes([a, b, c, d]) as usize;
    if size > MAX_FRAME {
        return Err(wrong());
    }
    if arrived.len() < size + AROUND {
        return Ok(None);
    }
    let frame: Vec<u8> = arrived.drain(..size + AROUND).collect();
    if frame.last() != Some(&END) {
        return Err(wrong());
    }
    if kind != METHOD {
        return Ok(Some(AmqpFrame::Other));
    }
    let mut arguments = MethodArguments { bytes: frame[7..frame.len() - 1].to_vec(), at: 0 };
    let method = (arguments.number()?, arguments.number()?);
    Ok(Some(AmqpFrame::Method(method, arguments)))
}

/// What comes behind the number of a method.
#[derive(Debug, PartialEq, Eq)]
pub struct MethodArguments {
    bytes: Vec<u8>,
    at: usize,
}

impl MethodArguments {
    fn take(&mut self, count: usize) -> io::Result<&[u8]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)).ok_or_else(wrong)?;
        self.at += count;
        Ok(taken)
    }

    pub fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn number(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().expect("two bytes")))
    }

    pub fn long(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    pub fn long_long(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    /// Up to 255 bytes.
    pub fn short_text(&mut self) -> io::Result<String> {
        let length = self.byte()?.into();
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// A longer text, or a table.
    pub fn long_text(&mut self) -> io::Result<String> {
        let length = self.long()? as usize;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

fn frame(kind: u8, channel: u16, carried: &[u8]) -> Vec<u8> {
    let size = (carried.len() as u32).to_be_bytes();
    [&[kind][..], &channel.to_be_bytes(), &size, carried, &[END]].concat()
}

pub fn method(channel: u16, (class, number): MethodId, arguments: &[u8]) -> Vec<u8> {
    frame(METHOD, channel, &[&class.to_be_bytes(), &number.to_be_bytes(), arguments].concat())
}

/// Its length was checked when the address was read.
pub fn short_text(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

pub fn long_text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

/// Fields of a table, each with its kind: `S` for texts, `t` for flags, `F` for tables.
pub fn table(fields: &[(&str, u8, Vec<u8>)]) -> Vec<u8> {
    long_text(
        &fields
            .iter()
            .flat_map(|(name, kind, value)| [short_text(name), vec![*kind], value.clone()].concat())
            .collect::<Vec<_>>(),
    )
}

/// What a message is published with.
pub struct Publication<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    /// The server sends back what goes into no queue.
    pub is_mandatory: bool,
    /// It outlives a restart of the server, if its queue does.
    pub is_persistent: bool,
}

impl Publication<'_> {
    /// Appends the frames of a message, none larger than that.
    pub fn encode(&self, into: &mut Vec<u8>, message: &str, max_frame: usize) {
        const CONTENT_TYPE: u16 = 1 << 15;
        const DELIVERY_MODE: u16 = 1 << 12;
        let arguments =
            [&[0, 0][..], &short_text(self.exchange), &short_text(self.routing_key), &[self.is_mandatory.into()]]
                .concat();
        into.extend(method(CHANNEL, PUBLISH, &arguments));
        let mut header = [PUBLISH.0.to_be_bytes(), [0, 0]].concat();
        header.extend((message.len() as u64).to_be_bytes());
        header.extend((CONTENT_TYPE | DELIVERY_MODE).to_be_bytes());
        header.extend(short_text("application/json"));
        header.push(if self.is_persistent { 2 } else { 1 });
        into.extend(frame(HEADER, CHANNEL, &header));
        for part in message.as_bytes().chunks(max_frame - AROUND) {
            into.extend(frame(BODY, CHANNEL, part));
        }
    }
}
