// SPDX-License-Identifier: MPL-2.0
//! Calls of a server by gRPC, one at a time, on a connection that is made when one is needed.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use prost::Message;

use super::address::ServerAddress;
use super::hpack::{self, HeaderPair};
use super::http2::{ConnectionError, Http2};
use super::socket::TimedSocket;
use crate::backends::Interrupter;
use crate::redact::printable;

/// Bytes of answers that are only descriptions.
const MAX_DESCRIPTION: usize = 1 << 20;

/// For an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub enum CallError {
    /// There is no server, or it went away: a later attempt may succeed.
    Lost(String),
    /// The time is over.
    Late,
    /// Another thread has ended it.
    Interrupted,
    /// The server says no, by one of gRPC's codes; with 0 it was not asked.
    Refused(u32, String),
    /// What came is no answer.
    Garbage(String),
}

impl CallError {
    /// What the server is not asked for.
    pub fn refused(why: impl Into<String>) -> Self {
        CallError::Refused(0, why.into())
    }
}

/// gRPC's codes that mean something here.
const CANCELLED: u32 = 1;
const DEADLINE_EXCEEDED: u32 = 4;
pub const NOT_FOUND: u32 = 5;
pub const UNIMPLEMENTED: u32 = 12;
const UNAVAILABLE: u32 = 14;

/// A server, for one thread.
pub struct GrpcClient {
    address: Arc<ServerAddress>,
    connection: Option<Http2>,
    /// How many were made.
    connections: u64,
    control: Arc<CallControl>,
}

/// By which another thread ends a run.
#[derive(Default)]
pub struct CallControl {
    state: Mutex<ControlState>,
    changed: Condvar,
}

#[derive(Default)]
struct ControlState {
    runs: bool,
    is_interrupted: bool,
    socket: Option<TcpStream>,
}

impl CallControl {
    /// A run begins, which lasts until the result is dropped.
    pub fn begin(&self) -> impl Drop + '_ {
        struct RunGuard<'a>(&'a CallControl);
        impl Drop for RunGuard<'_> {
            fn drop(&mut self) {
                self.0.state.lock().unwrap().runs = false;
            }
        }
        let mut state = self.state.lock().unwrap();
        (state.runs, state.is_interrupted) = (true, false);
        RunGuard(self)
    }

    /// Ends the run, if there is one.
    pub fn interrupt(&self) {
        let mut state = self.state.lock().unwrap();
        if state.runs {
            state.is_interrupted = true;
            if let Some(socket) = &state.socket {
                let _ = socket.shutdown(Shutdown::Both); // it may have ended already
            }
            self.changed.notify_all();
        }
    }

    /// Whether the run was ended.
    pub fn is_interrupted(&self) -> bool {
        self.state.lock().unwrap().is_interrupted
    }

    /// Waits so long, or until the run is ended.
    pub fn pause(&self, length: Duration) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_timeout_while(state, length, |state| !state.is_interrupted).unwrap());
    }

    fn set_socket(&self, socket: Option<TcpStream>) {
        self.state.lock().unwrap().socket = socket;
    }
}

impl GrpcClient {
    pub fn new(address: Arc<ServerAddress>) -> Self {
        GrpcClient { address, connection: None, connections: 0, control: Arc::default() }
    }

    pub fn address(&self) -> &Arc<ServerAddress> {
        &self.address
    }

    pub fn control(&self) -> &Arc<CallControl> {
        &self.control
    }

    /// What ends a run from another thread.
    pub fn interrupter(&self) -> Interrupter {
        let control = self.control.clone();
        Arc::new(move || control.interrupt())
    }

    /// Whether the server has ended, as far as a new connection shows: this machine says that nothing listens there.
    pub fn has_ended(&self, deadline: Instant) -> bool {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        TimedSocket::connect(&self.address, deadline).err().is_some_and(refused)
    }

    /// Makes a connection, unless there is one. Returns its number.
    pub fn connect(&mut self, deadline: Instant) -> Result<u64, CallError> {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_open()) {
            self.close();
            // While it connects, a run cannot be ended from outside.
            let end = deadline.min(Instant::now() + CONNECT_TIMEOUT);
            let socket = TimedSocket::connect(&self.address, end).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut if !self.control.is_interrupted() => {
                    CallError::Lost("nothing answers there".into())
                }
                _ => self.broken(&error),
            })?;
            self.control.set_socket(socket.another().ok());
            if self.control.is_interrupted() {
                self.close(); // whoever ended it did not have the socket
                return Err(CallError::Interrupted);
            }
            self.connection = Some(Http2::begin(socket).map_err(|error| self.failed(error))?);
            self.connections += 1;
        }
        Ok(self.connections)
    }

    pub fn close(&mut self) {
        self.control.set_socket(None);
        self.connection = None;
    }

    /// Whether there is a connection, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether the server is on this machine; false where there is no connection.
    pub fn is_local(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.socket().is_local())
    }

    /// Calls a method with a small message.
    pub fn describe<T: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
        deadline: Instant,
    ) -> Result<T, CallError> {
        let answer = self.call(method, &[&request.encode_to_vec()], MAX_DESCRIPTION, deadline)?;
        T::decode(&answer[PREFIX..]).map_err(|error| {
            self.close();
            CallError::Garbage(format!("its answer to {method} is not the protocol's: {error}"))
        })
    }

    /// Calls a method with a message that lies in these parts. The answer begins behind [`PREFIX`] bytes, and has `limit` at most.
    pub fn call(
        &mut self,
        method: &str,
        parts: &[&[u8]],
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, CallError> {
        self.connect(deadline)?;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(length) = u32::try_from(length) else {
            return Err(CallError::refused("a request cannot have 4 GiB"));
        };
        let mut prefix = [0; PREFIX];
        prefix[1..].copy_from_slice(&length.to_be_bytes());
        let body: Vec<&[u8]> = [&prefix[..]].into_iter().chain(parts.iter().copied()).collect();
        let left = deadline.saturating_duration_since(Instant::now()).as_millis().clamp(1, 99_999_999);
        let block = hpack::encode([
            (":method", "POST"),
            (":scheme", "http"),
            (":path", &format!("/inference.GRPCInferenceService/{method}")),
            (":authority", &self.address.authority()),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", concat!("gst-trt/", env!("CARGO_PKG_VERSION"))),
            ("grpc-timeout", &format!("{left}m")),
        ]);
        let connection = self.connection.as_mut().expect("it was made above");
        let answer = match connection.request(&block, &body, PREFIX + limit, deadline) {
            Ok(answer) => answer,
            Err(error) => return Err(self.failed(error)),
        };
        check(&answer.headers, answer.body).inspect_err(|error| {
            // What is no answer says nothing good of what comes next.
            if matches!(error, CallError::Garbage(_)) {
                self.close();
            }
        })
    }

    fn failed(&mut self, error: ConnectionError) -> CallError {
        let error = match error {
            ConnectionError::Io(error) => self.broken(&error),
            ConnectionError::GoneAway(why) => CallError::Lost(why),
            ConnectionError::Protocol(what) => CallError::Garbage(what),
        };
        self.close();
        if self.control.is_interrupted() { CallError::Interrupted } else { error }
    }

    fn broken(&self, error: &io::Error) -> CallError {
        match error.kind() {
            _ if self.control.is_interrupted() => CallError::Interrupted,
            io::ErrorKind::TimedOut => CallError::Late,
            io::ErrorKind::UnexpectedEof => CallError::Lost("the server has closed the connection".into()),
            _ => CallError::Lost(error.to_string()),
        }
    }
}

/// Bytes before a message: whether it is compressed, and its length.
pub const PREFIX: usize = 5;

/// The message of an answer, with its prefix.
fn check(headers: &[HeaderPair], body: Vec<u8>) -> Result<Vec<u8>, CallError> {
    let last = |name: &str| headers.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let garbage = |what: String| Err(CallError::Garbage(what));
    match last(":status") {
        Some("200") => {}
        // What proxies say of a server that is not there.
        Some(status @ ("429" | "502" | "503" | "504")) => {
            return Err(CallError::Lost(format!("it answers with HTTP {status}")));
        }
        status => {
            let status = printable(status.unwrap_or("without a status"), 20);
            return garbage(format!("it answers with HTTP {status}, so it is no server of gRPC"));
        }
    }
    match last("grpc-status").map(str::parse::<u32>) {
        Some(Ok(0)) => {}
        Some(Ok(CANCELLED)) => return Err(CallError::Lost("it has given up the request".into())),
        Some(Ok(DEADLINE_EXCEEDED)) => return Err(CallError::Late),
        Some(Ok(code)) => {
            let said = printable(&unescaped(last("grpc-message").unwrap_or_default()), 500);
            let said = if said.is_empty() { format!("code {code} of gRPC") } else { said };
            return Err(if code == UNAVAILABLE { CallError::Lost(said) } else { CallError::Refused(code, said) });
        }
        _ => return garbage("its answer has no status of gRPC".into()),
    }
    match body.get(..PREFIX) {
        None => garbage("its answer has no message".into()),
        Some([0, length @ ..]) => {
            let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
            match body.len() - PREFIX {
                have if have == length => Ok(body),
                have => garbage(format!("its answer has {have} bytes, and says {length}")),
            }
        }
        Some(_) => garbage("its answer is compressed, which was not asked for".into()),
    }
}

/// gRPC's messages have percent signs for what is not ASCII.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_servers_are_unescaped() {
        for (text, plain) in [("", ""), ("a b", "a b"), ("100%25 %C3%A4%0A", "100% ä\n"), ("%", "%"), ("%ü%4", "%ü%4")]
        {
            assert_eq!(unescaped(text), plain, "{text}");
        }
    }

    #[test]
    fn answers_are_checked() {
        let said = |headers: &[(&str, &str)], body: &[u8]| {
            let headers: Vec<HeaderPair> = headers.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            match check(&headers, body.to_vec()) {
                Ok(body) => format!("{} bytes", body.len() - PREFIX),
                Err(error) => format!("{error:?}"),
            }
        };
        let (ok, done) = ((":status", "200"), ("grpc-status", "0"));
        assert_eq!(said(&[ok, done], &[0, 0, 0, 0, 2, 7, 7]), "2 bytes");
        assert_eq!(said(&[ok, done], &[0, 0, 0, 0, 0]), "0 bytes");
        assert!(said(&[ok, done], &[0, 0, 0, 0, 3, 7, 7]).contains("has 2 bytes, and says 3"));
        assert!(said(&[ok, done], &[0, 0, 0]).contains("no message"));
        assert!(said(&[ok, done], &[1, 0, 0, 0, 0]).contains("compressed"));
        assert!(said(&[ok], &[0, 0, 0, 0, 0]).contains("no status of gRPC"));
        assert!(said(&[(":status", "404")], b"<html>").contains("HTTP 404, so it is no server of gRPC"));
        assert!(said(&[(":status", "503")], b"").contains("Lost"));
        assert_eq!(said(&[ok, ("grpc-status", "4")], b""), "Late");
        let unavailable = [ok, ("grpc-status", "14"), ("grpc-message", "a%20b\u{1b}")];
        assert_eq!(said(&unavailable, b""), r#"Lost("a b")"#);
        assert_eq!(said(&[ok, ("grpc-status", "5")], b""), r#"Refused(5, "code 5 of gRPC")"#);
    }
}
