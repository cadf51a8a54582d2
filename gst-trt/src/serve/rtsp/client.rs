// SPDX-License-Identifier: MPL-2.0
//! One client: its requests, and the packets that it is sent.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::access::Nonce;
use super::request::{RtspInput, RtspRequest};
use super::{RtspLimits, RtspState};
use crate::serve::output::{Output, PAYLOAD_TYPE, RtpUnit};
use crate::serve::sockets::hear_out;

/// Wrong passwords on a connection, after which it ends.
const MOST_WRONG: u32 = 3;
const METHODS: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, SET_PARAMETER, TEARDOWN";
/// Between two looks at what a client has sent. All clients have one thread: who sends without end, such as packets that ask for key
/// frames, takes no more of it than others.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// The end of a stream, for RTCP: a packet of type 203 that names one source.
const BYE: [u8; 4] = [0x81, 203, 0, 1];

pub struct RtspClient {
    stream: TcpStream,
    state: Arc<RtspState>,
    limits: RtspLimits,
    input: RtspInput,
    /// When it is looked at next.
    reads_at: Instant,
    nonce: Nonce,
    wrong: u32,
    session: Option<RtspSession>,
    playing: Option<Playing>,
}

/// What was set up.
struct RtspSession {
    id: String,
    output: Output,
    /// Of its packets; that of RTCP follows.
    channel: u8,
}

/// What is watched.
struct Playing {
    units: Receiver<Arc<RtpUnit>>,
    /// A decoder can begin, or go on, with a key frame only.
    waits_for_key: bool,
    /// The source of the packets, as RTP numbers it.
    source: [u8; 4],
    _place: OwnedSemaphorePermit,
}

enum ClientEvent {
    Asked(RtspRequest),
    /// Something that is no request.
    Malformed,
    Unit(Arc<RtpUnit>),
    /// Units were lost, as the client is too slow.
    Missed,
    /// There is nothing more to watch.
    End,
}

struct RtspAnswer {
    status: (u16, &'static str),
    /// Lines with their ends.
    headers: String,
    body: String,
    is_last: bool,
}

impl RtspAnswer {
    fn with(headers: String) -> Self {
        RtspAnswer { status: (200, "OK"), headers, body: String::new(), is_last: false }
    }

    fn refused(code: u16, reason: &'static str) -> Self {
        RtspAnswer { status: (code, reason), ..RtspAnswer::with(String::new()) }
    }

    fn last(self) -> Self {
        RtspAnswer { is_last: true, ..self }
    }

    fn text(&self, number: Option<u32>) -> String {
        let RtspAnswer { status: (code, reason), headers, body, .. } = self;
        let number = number.map_or_else(String::new, |number| format!("CSeq: {number}\r\n"));
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        format!("RTSP/1.0 {code} {reason}\r\n{number}Server: gst-trt\r\n{headers}{length}\r\n{body}")
    }
}

impl RtspClient {
    pub fn new(stream: TcpStream, state: Arc<RtspState>, limits: RtspLimits) -> Self {
        let (input, nonce) = (RtspInput::default(), Nonce::new());
        RtspClient {
            stream,
            state,
            limits,
            input,
            reads_at: Instant::now(),
            nonce,
            wrong: 0,
            session: None,
            playing: None,
        }
    }

    /// Serves it to its end.
    pub async fn work(mut self) -> io::Result<()> {
        self.serve().await?;
        (self.session, self.playing) = (None, None);
        hear_out(self.stream).await;
        Ok(())
    }

    async fn serve(&mut self) -> io::Result<()> {
        let mut until = Instant::now() + self.limits.request;
        loop {
            match self.event(until).await? {
                ClientEvent::Asked(request) => {
                    until = Instant::now() + self.limits.request;
                    let number = request.header("cseq").and_then(|number| number.parse().ok());
                    let answer = match number {
                        Some(_) => self.answer(&request),
                        None => RtspAnswer::refused(400, "Bad Request").last(),
                    };
                    self.send(answer.text(number).as_bytes()).await?;
                    if answer.is_last {
                        return Ok(());
                    }
                }
                ClientEvent::Malformed => {
                    return self.send(RtspAnswer::refused(400, "Bad Request").text(None).as_bytes()).await;
                }
                ClientEvent::Unit(unit) => self.send_unit(&unit).await?,
                ClientEvent::Missed => {
                    if let (Some(playing), Some(session)) = (&mut self.playing, &self.session) {
                        playing.waits_for_key = true;
                        session.output.ask_for_key_frame();
                    }
                }
                ClientEvent::End => return self.send_end().await,
            }
        }
    }

    /// What comes next, of the client or for it. One that does not watch has until then for its request.
    async fn event(&mut self, until: Instant) -> io::Result<ClientEvent> {
        loop {
            match self.input.request() {
                Ok(Some(request)) => return Ok(ClientEvent::Asked(request)),
                Ok(None) => {}
                Err(_) => return Ok(ClientEvent::Malformed),
            }
            let reads_at = &mut self.reads_at;
            let read = pin!(async {
                sleep_until(*reads_at).await;
                read(&self.stream, &mut self.input).await?;
                *reads_at = Instant::now() + READ_INTERVAL;
                io::Result::Ok(())
            });
            let Some(playing) = &mut self.playing else {
                timeout_at(until, read).await.map_err(|_| ErrorKind::TimedOut)??;
                continue;
            };
            match select(pin!(playing.units.recv()), read).await {
                Either::Left((Ok(unit), _)) => return Ok(ClientEvent::Unit(unit)),
                Either::Left((Err(RecvError::Lagged(_)), _)) => return Ok(ClientEvent::Missed),
                Either::Left((Err(RecvError::Closed), _)) => return Ok(ClientEvent::End),
                Either::Right((result, _)) => result?,
            }
        }
    }

    fn answer(&mut self, request: &RtspRequest) -> RtspAnswer {
        if request.method == "OPTIONS" {
            return RtspAnswer::with(format!("Public: {METHODS}\r\n"));
        }
        if !self.state.access.permits(request, &self.nonce) {
            // The first request of a client has none.
            self.wrong += u32::from(request.header("authorization").is_some());
            let answer = RtspAnswer { headers: self.nonce.challenge(), ..RtspAnswer::refused(401, "Unauthorized") };
            return if self.wrong < MOST_WRONG { answer } else { answer.last() };
        }
        match request.method.as_str() {
            "DESCRIBE" => match self.state.service.output(request.name()) {
                Some(_) => describe(request),
                None => RtspAnswer::refused(404, "Not Found"),
            },
            "SETUP" => self.set_up(request),
            "PLAY" => self.play(request),
            // They keep a session alive, which needs no such thing here.
            "GET_PARAMETER" | "SET_PARAMETER" => RtspAnswer::with(self.session_header()),
            "TEARDOWN" => RtspAnswer::with(String::new()).last(),
            _ => RtspAnswer {
                headers: format!("Allow: {METHODS}\r\n"),
                ..RtspAnswer::refused(405, "Method Not Allowed")
            },
        }
    }

    fn session_header(&self) -> String {
        self.session.as_ref().map_or_else(String::new, |session| format!("Session: {};timeout=60\r\n", session.id))
    }

    fn set_up(&mut self, request: &RtspRequest) -> RtspAnswer {
        if self.playing.is_some() {
            return RtspAnswer::refused(455, "Method Not Valid in This State");
        }
        let Some(output) = self.state.service.output(request.name()) else {
            return RtspAnswer::refused(404, "Not Found");
        };
        let Some(channel) = request.header("transport").and_then(channel) else {
            return RtspAnswer::refused(461, "Unsupported Transport");
        };
        let id = self.session.take().map_or_else(|| Nonce::new().id(), |session| session.id);
        self.session = Some(RtspSession { id, output, channel });
        let session = self.session_header();
        RtspAnswer::with(format!("{session}Transport: RTP/AVP/TCP;unicast;interleaved={channel}-{}\r\n", channel + 1))
    }

    fn play(&mut self, request: &RtspRequest) -> RtspAnswer {
        let Some(session) = &self.session else { return RtspAnswer::refused(455, "Method Not Valid in This State") };
        let given = request.header("session").and_then(|session| session.split(';').next());
        if given != Some(session.id.as_str()) {
            return RtspAnswer::refused(454, "Session Not Found");
        }
        if self.playing.is_none() {
            let Ok(place) = self.state.watchers.clone().try_acquire_owned() else {
                return RtspAnswer::refused(453, "Not Enough Bandwidth").last();
            };
            let Ok(units) = session.output.watch() else { return RtspAnswer::refused(404, "Not Found").last() };
            self.playing = Some(Playing { units, waits_for_key: true, source: [0; 4], _place: place });
        }
        RtspAnswer::with(format!("{}Range: npt=now-\r\n", self.session_header()))
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        timeout(self.limits.stalled, write(&self.stream, bytes)).await.map_err(|_| ErrorKind::TimedOut)?
    }

    async fn send_unit(&mut self, unit: &RtpUnit) -> io::Result<()> {
        let (Some(session), Some(playing)) = (&self.session, &mut self.playing) else { return Ok(()) };
        playing.waits_for_key &= !unit.is_key;
        if playing.waits_for_key {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(unit.packets.iter().map(|packet| packet.len() + 4).sum());
        for packet in &unit.packets {
            frame(session.channel, packet, &mut bytes);
            if let Some(source) = packet.get(8..12) {
                playing.source.copy_from_slice(source);
            }
        }
        self.send(&bytes).await
    }

    /// Players end then without an error.
    async fn send_end(&self) -> io::Result<()> {
        let (Some(session), Some(playing)) = (&self.session, &self.playing) else { return Ok(()) };
        let mut bytes = Vec::new();
        frame(session.channel + 1, &[BYE, playing.source].concat(), &mut bytes);
        self.send(&bytes).await
    }
}

/// A packet between the messages of RTSP.
fn frame(channel: u8, packet: &[u8], bytes: &mut Vec<u8>) {
    // No packet is longer than the pipeline was asked for.
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    bytes.extend([b'$', channel]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(&packet[..usize::from(length)]);
}

/// The channel of the first transport that is possible here: packets in the connection.
fn channel(transports: &str) -> Option<u8> {
    transports.split(',').find_map(|transport| {
        let mut words = transport.split(';').map(str::trim);
        if !words.next()?.eq_ignore_ascii_case("RTP/AVP/TCP") {
            return None;
        }
        let wanted = words.find_map(|word| word.strip_prefix("interleaved="));
        let channel = wanted.map_or(Some(0), |channels| channels.split('-').next()?.parse().ok());
        channel.filter(|channel| *channel < u8::MAX)
    })
}

fn describe(request: &RtspRequest) -> RtspAnswer {
    // Parameter sets come in the stream, before each key frame. So nothing need be encoded for this.
    let body = format!(
        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns={}\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=range:npt=now-\r\na=control:*\r\n\
         m=video 0 RTP/AVP {PAYLOAD_TYPE}\r\na=rtpmap:{PAYLOAD_TYPE} H264/90000\r\n\
         a=fmtp:{PAYLOAD_TYPE} packetization-mode=1\r\na=control:video\r\n",
        request.name()
    );
    let base = request.uri.trim_end_matches('/');
    let headers = format!("Content-Type: application/sdp\r\nContent-Base: {base}/\r\n");
    RtspAnswer { body, ..RtspAnswer::with(headers) }
}

async fn read(stream: &TcpStream, input: &mut RtspInput) -> io::Result<()> {
    loop {
        stream.readable().await?;
        let mut bytes = [0; 4096];
        match stream.try_read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                input.push(&bytes[..count]);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
