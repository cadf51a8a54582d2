// SPDX-License-Identifier: MPL-2.0
//! A client of HTTP/2 (RFC 9113) that has one request at a time, as a thread that runs a model has. So it needs no other thread, and
//! no runtime: while it waits for an answer, or for room to send more, it reads what comes.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::time::Instant;

use super::hpack::{self, HeaderPair};
use super::socket::TimedSocket;

/// Bytes of a frame that may come.
const MAX_FRAME: usize = 1 << 20;
/// Bytes of headers that may come.
const MAX_BLOCK: usize = 64 << 10;
/// Bytes that may come before this side says that they were read.
const WINDOW: u32 = 16 << 20;
/// What a window has at first, of the connection and of each stream.
const FIRST_WINDOW: i64 = 65_535;
/// Frames that are written by one call.
const FRAMES_AT_ONCE: usize = 64;
/// Identifiers of streams are odd, and may not be larger.
const LAST_STREAM: u32 = 0x7fff_fffd;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// Of SETTINGS and PING.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

const CANCEL: u32 = 8;

/// Why there is no answer. The connection cannot be used any more.
#[derive(Debug)]
pub enum ConnectionError {
    /// It ended, or its time is over.
    Io(io::Error),
    /// The server does not take the request, or ends the connection.
    GoneAway(String),
    /// What came is not HTTP/2.
    Protocol(String),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        ConnectionError::Io(error)
    }
}

type Result<T> = std::result::Result<T, ConnectionError>;

fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(ConnectionError::Protocol(what.into()))
}

/// What a server answered.
#[derive(Default)]
pub struct HttpResponse {
    /// Before the body, and behind it.
    pub headers: Vec<HeaderPair>,
    pub body: Vec<u8>,
}

/// A connection.
pub struct Http2 {
    socket: BufReader<TimedSocket>,
    /// What the server takes.
    frame_size: usize,
    stream_window: i64,
    /// Room for what is sent.
    window: i64,
    next_stream: u32,
    /// Bytes that came since this side has said how many were read.
    unsaid: u32,
    /// The server takes no more requests.
    is_going: bool,
}

/// A request and what has come of its answer.
struct Exchange {
    stream: u32,
    window: i64,
    answer: HttpResponse,
    /// Bytes of the body, at most.
    limit: usize,
    unsaid: u32,
    is_over: bool,
}

struct FrameHead {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
}

impl Http2 {
    /// Says how this side speaks. What the server says of itself comes with its first answer.
    pub fn begin(mut socket: TimedSocket) -> Result<Self> {
        const HEADER_TABLE_SIZE: u16 = 1;
        const ENABLE_PUSH: u16 = 2;
        const INITIAL_WINDOW_SIZE: u16 = 4;
        const MAX_FRAME_SIZE: u16 = 5;
        let settings = [
            (HEADER_TABLE_SIZE, 0),
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW_SIZE, WINDOW),
            (MAX_FRAME_SIZE, MAX_FRAME as u32),
        ];
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(head(SETTINGS, 0, 0, 6 * settings.len()));
        for (name, value) in settings {
            first.extend(name.to_be_bytes());
            first.extend(value.to_be_bytes());
        }
        first.extend(head(WINDOW_UPDATE, 0, 0, 4));
        first.extend((WINDOW - FIRST_WINDOW as u32).to_be_bytes());
        socket.write_all(&first)?;
        Ok(Http2 {
            socket: BufReader::with_capacity(64 << 10, socket),
            frame_size: 16 << 10,
            stream_window: FIRST_WINDOW,
            window: FIRST_WINDOW,
            next_stream: 1,
            unsaid: 0,
            is_going: false,
        })
    }

    pub fn socket(&self) -> &TimedSocket {
        self.socket.get_ref()
    }

    /// Whether it takes a request, as far as is known.
    pub fn is_open(&self) -> bool {
        !self.is_going && self.next_stream <= LAST_STREAM
    }

    /// Sends headers and a body, which lies in these parts, and waits for the answer, whose body has `limit` bytes at most.
    pub fn request(&mut self, block: &[u8], body: &[&[u8]], limit: usize, deadline: Instant) -> Result<HttpResponse> {
        self.socket.get_mut().set_deadline(deadline);
        let (stream, window) = (self.next_stream, self.stream_window);
        self.next_stream += 2;
        let mut exchange =
            Exchange { stream, window, answer: HttpResponse::default(), limit, unsaid: 0, is_over: false };
        if block.len() > self.frame_size {
            return wrong("the headers of the request are too long");
        }
        let head = head(HEADERS, END_HEADERS, stream, block.len());
        let written = write_parts(self.socket.get_mut(), &[&head, block]).map_err(ConnectionError::from);
        match written.and_then(|()| self.send(&mut exchange, body)) {
            // It may have said why before it closed the connection.
            Err(ConnectionError::Io(error)) => {
                while !exchange.is_over {
                    self.receive(&mut exchange).map_err(|said| match said {
                        ConnectionError::Io(_) => ConnectionError::Io(io::Error::from(error.kind())),
                        said => said,
                    })?;
                }
                self.is_going = true;
            }
            sent => sent?,
        }
        while !exchange.is_over {
            self.receive(&mut exchange)?;
        }
        Ok(exchange.answer)
    }

    /// Sends the body. A server that answers before the end does not want the rest.
    fn send(&mut self, exchange: &mut Exchange, body: &[&[u8]]) -> Result<()> {
        let mut left: usize = body.iter().map(|part| part.len()).sum();
        let mut parts = body.iter().copied().filter(|part| !part.is_empty());
        let mut part = parts.next().unwrap_or_default();
        loop {
            while left > 0 && self.window.min(exchange.window) <= 0 && !exchange.is_over {
                self.receive(exchange)?;
            }
            if exchange.is_over {
                self.tell(RST_STREAM, 0, exchange.stream, &CANCEL.to_be_bytes());
                return Ok(());
            }
            let (mut heads, mut pieces): (Vec<[u8; 9]>, Vec<Vec<&[u8]>>) = Default::default();
            while heads.len() < FRAMES_AT_ONCE {
                let room = usize::try_from(self.window.min(exchange.window)).unwrap_or(0);
                let length = left.min(room).min(self.frame_size);
                if length == 0 && left > 0 {
                    break;
                }
                left -= length;
                (self.window, exchange.window) = (self.window - length as i64, exchange.window - length as i64);
                let flags = if left == 0 { END_STREAM } else { 0 };
                heads.push(head(DATA, flags, exchange.stream, length));
                let (mut wanted, mut of_frame) = (length, Vec::new());
                while wanted > 0 {
                    let (now, later) = part.split_at(wanted.min(part.len()));
                    wanted -= now.len();
                    of_frame.push(now);
                    part = if later.is_empty() { parts.next().unwrap_or_default() } else { later };
                }
                pieces.push(of_frame);
                if left == 0 {
                    break;
                }
            }
            let frames = heads.iter().zip(&pieces);
            let all: Vec<&[u8]> =
                frames.flat_map(|(head, pieces)| [&head[..]].into_iter().chain(pieces.iter().copied())).collect();
            write_parts(self.socket.get_mut(), &all)?;
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Where that cannot be written, what the server has said before it closed the connection is still read, and then its end.
    fn tell(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let head = head(kind, flags, stream, payload.len());
        let _ = write_parts(self.socket.get_mut(), &[&head, payload]);
    }

    /// Reads the next frame, and does what it says.
    fn receive(&mut self, exchange: &mut Exchange) -> Result<()> {
        let frame = self.next_frame()?;
        match frame.kind {
            DATA => return self.data(exchange, &frame),
            HEADERS => return self.headers(exchange, &frame),
            CONTINUATION | PUSH_PROMISE => return wrong("it sends headers that nothing asked for"),
            _ => {}
        }
        let payload = self.payload(frame.length)?;
        let number = |at: usize| {
            payload.get(at..at + 4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.settings(exchange, &payload)?,
            PING if frame.flags & ACK == 0 => {
                if payload.len() != 8 {
                    return wrong("a ping has another length");
                }
                self.tell(PING, ACK, 0, &payload);
            }
            WINDOW_UPDATE => {
                let more = number(0).map_or(0, |more| i64::from(more & 0x7fff_ffff));
                let window = match frame.stream {
                    0 => &mut self.window,
                    stream if stream == exchange.stream => &mut exchange.window,
                    _ => return Ok(()),
                };
                *window += more;
                if more == 0 || *window > i64::from(i32::MAX) {
                    return wrong("the window of what it takes has no such size");
                }
            }
            RST_STREAM if frame.stream == exchange.stream => {
                let code = number(0).unwrap_or_default();
                // It may end the request where it has answered, and does not want the rest.
                if !exchange.is_over {
                    return Err(ConnectionError::GoneAway(format!("it has ended the request ({})", error_name(code))));
                }
            }
            GOAWAY => {
                self.is_going = true;
                if number(0).is_none_or(|last| exchange.stream > last & 0x7fff_ffff) {
                    let code = number(4).unwrap_or_default();
                    return Err(ConnectionError::GoneAway(format!("it ends the connection ({})", error_name(code))));
                }
            }
            _ => {} // what is not known is to be ignored
        }
        Ok(())
    }

    fn next_frame(&mut self) -> Result<FrameHead> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head)?;
        if head.starts_with(b"HTTP/1.") {
            return wrong("it speaks HTTP/1, so this is its port for HTTP");
        }
        if head[0] == 0x15 && head[1] == 3 {
            return wrong("it speaks TLS");
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > MAX_FRAME {
            return wrong(format!("a frame of {length} bytes is longer than asked for, or this is not HTTP/2"));
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        Ok(FrameHead { kind: head[3], flags: head[4], stream, length })
    }

    /// At most as many bytes as headers may have.
    fn payload(&mut self, length: usize) -> Result<Vec<u8>> {
        if length > MAX_BLOCK {
            return wrong(format!("a frame has {length} bytes"));
        }
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload)?;
        Ok(payload)
    }

    fn settings(&mut self, exchange: &mut Exchange, payload: &[u8]) -> Result<()> {
        for setting in payload.chunks_exact(6) {
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                4 if value <= i32::MAX as u32 => {
                    // It holds for what is open, too.
                    exchange.window += i64::from(value) - self.stream_window;
                    self.stream_window = value.into();
                }
                4 => return wrong("the window of what it takes has no such size"),
                // Larger ones gain nothing.
                5 => self.frame_size = (value as usize).clamp(16 << 10, MAX_FRAME),
                _ => {}
            }
        }
        self.tell(SETTINGS, ACK, 0, &[]);
        Ok(())
    }

    fn data(&mut self, exchange: &mut Exchange, frame: &FrameHead) -> Result<()> {
        let mut length = frame.length;
        let mut padding = 0;
        if frame.flags & PADDED != 0 {
            let mut byte = [0];
            self.socket.read_exact(&mut byte)?;
            padding = usize::from(byte[0]);
            let Some(rest) = length.checked_sub(padding + 1) else { return wrong("padding is longer than its frame") };
            length = rest;
        }
        let is_own = frame.stream == exchange.stream && !exchange.is_over;
        let body = &mut exchange.answer.body;
        if is_own {
            let before = body.len();
            if before + length > exchange.limit {
                return wrong(format!("the answer has more than {} bytes", exchange.limit));
            }
            // No more memory than has come, but for this frame.
            (&mut self.socket).take(length as u64).read_to_end(body)?;
            if body.len() < before + length {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        } else {
            self.skip(length)?;
        }
        self.skip(padding)?;
        exchange.is_over |= is_own && frame.flags & END_STREAM != 0;
        self.unsaid += frame.length as u32;
        if is_own {
            exchange.unsaid += frame.length as u32;
        }
        if self.unsaid >= WINDOW / 2 {
            let read = std::mem::take(&mut self.unsaid).to_be_bytes();
            self.tell(WINDOW_UPDATE, 0, 0, &read);
        }
        if exchange.unsaid >= WINDOW / 2 && !exchange.is_over {
            let read = std::mem::take(&mut exchange.unsaid).to_be_bytes();
            self.tell(WINDOW_UPDATE, 0, exchange.stream, &read);
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) -> Result<()> {
        let skipped = io::copy(&mut (&mut self.socket).take(bytes as u64), &mut io::sink())?;
        if skipped < bytes as u64 { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) } else { Ok(()) }
    }

    fn headers(&mut self, exchange: &mut Exchange, frame: &FrameHead) -> Result<()> {
        let payload = self.payload(frame.length)?;
        let (mut block, mut padding) = (&payload[..], 0);
        if frame.flags & PADDED != 0 {
            let Some((&first, rest)) = block.split_first() else { return wrong("headers have no length of padding") };
            (block, padding) = (rest, usize::from(first));
        }
        let priority = if frame.flags & PRIORITY != 0 { 5 } else { 0 };
        let end = block.len().checked_sub(padding).filter(|&end| end >= priority);
        let Some(block) = end.map(|end| &block[priority..end]) else {
            return wrong("padding is longer than its frame");
        };
        let mut block = block.to_vec();
        let mut is_whole = frame.flags & END_HEADERS != 0;
        while !is_whole {
            let next = self.next_frame()?;
            if next.kind != CONTINUATION || next.stream != frame.stream || block.len() + next.length > MAX_BLOCK {
                return wrong("headers do not go on, or are too long");
            }
            block.extend(self.payload(next.length)?);
            is_whole = next.flags & END_HEADERS != 0;
        }
        let Some(headers) = hpack::decode(&block) else { return wrong("its headers cannot be read") };
        if frame.stream == exchange.stream && !exchange.is_over {
            let is_interim = headers.iter().any(|(name, value)| name == ":status" && value.starts_with('1'));
            if !is_interim {
                exchange.answer.headers.extend(headers);
            }
            if exchange.answer.headers.len() > 1000 {
                return wrong("there is no end of its headers");
            }
            exchange.is_over = frame.flags & END_STREAM != 0;
        }
        Ok(())
    }
}

/// The nine bytes before a frame's payload.
fn head(kind: u8, flags: u8, stream: u32, length: usize) -> [u8; 9] {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [s, t, u, v] = stream.to_be_bytes();
    [a, b, c, kind, flags, s, t, u, v]
}

/// Writes all of them, by few calls.
fn write_parts(socket: &mut TimedSocket, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match socket.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut left, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The names that the standard gives to codes.
fn error_name(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "no error",
        "protocol error",
        "internal error",
        "flow control error",
        "settings timeout",
        "stream closed",
        "frame size error",
        "refused stream",
        "cancel",
        "compression error",
        "connect error",
        "enhance your calm",
        "inadequate security",
        "HTTP/1.1 required",
    ];
    usize::try_from(code)
        .ok()
        .and_then(|code| NAMES.get(code))
        .map_or_else(|| format!("code {code}"), |name| name.to_string())
}
