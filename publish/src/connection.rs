// SPDX-License-Identifier: MPL-2.0
//! A TCP connection, with or without TLS.
//!
//! What belongs together is a step: connecting with TLS and login, or a batch with its answers. A step has one deadline
//! and takes so many bytes at most, so a server that sends without end holds neither the thread nor memory.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Bytes that a server may send in a step besides its answers: greetings, certificates, pings.
const SLACK: usize = 64 << 10;

pub struct Connection {
    stream: Transport,
    timeout: Duration,
}

enum Transport {
    Plain(Socket),
    Encrypted(Box<StreamOwned<ClientConnection, Socket>>),
}

/// Connects to the first address of the host that answers. That is the beginning of a step.
pub fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<Connection> {
    let deadline = Instant::now() + timeout;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match time_left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let socket = Socket { stream, deadline, allowance: SLACK, is_patient: true };
                return Ok(Connection { stream: Transport::Plain(socket), timeout });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Connection {
    /// Encrypts a connection; what is wrong with certificates is told here.
    pub fn encrypt(self, host: &str, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let Transport::Plain(mut socket) = self.stream else { return Ok(self) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(crate::tls::in_words)?;
        }
        Ok(Connection { stream: Transport::Encrypted(Box::new(StreamOwned::new(session, socket))), ..self })
    }

    fn socket(&mut self) -> &mut Socket {
        match &mut self.stream {
            Transport::Plain(socket) => socket,
            Transport::Encrypted(stream) => &mut stream.sock,
        }
    }

    /// Begins a step, whose answers have so many bytes at most.
    pub fn begin(&mut self, answers: usize) {
        self.socket().deadline = Instant::now() + self.timeout;
        self.expect(answers);
    }

    /// Within a step: the next answers have so many bytes at most.
    pub fn expect(&mut self, answers: usize) {
        self.socket().allowance = SLACK + answers;
    }

    /// Appends what comes next.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let count = self.read(&mut bytes)?;
        if count == 0 {
            return Err(closed());
        }
        into.extend_from_slice(&bytes[..count]);
        Ok(())
    }

    /// Appends what has come already; false if nothing has.
    pub fn receive_now(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.socket().set_patient(false)?;
        let received = self.receive(into);
        self.socket().set_patient(true)?;
        match received {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

pub fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection")
}

/// The time until a deadline.
///
/// # Errors
/// It is over.
pub fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

struct Socket {
    stream: TcpStream,
    deadline: Instant,
    /// Bytes that may still come in this step.
    allowance: usize,
    /// Whether what has not come yet is waited for.
    is_patient: bool,
}

impl Socket {
    fn set_patient(&mut self, is_patient: bool) -> io::Result<()> {
        self.is_patient = is_patient;
        self.stream.set_nonblocking(!is_patient)
    }

    /// Linux calls the end of a time limit as it calls the lack of anything to read.
    fn in_time<T>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(error) if self.is_patient && error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::TimedOut.into())
            }
            result => result,
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.allowance == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server sends more than it was asked for"));
        }
        let room = buffer.len().min(self.allowance);
        let read = uninterrupted(|| {
            self.stream.set_read_timeout(Some(time_left(self.deadline)?))?;
            self.stream.read(&mut buffer[..room])
        });
        let count = self.in_time(read)?;
        self.allowance -= count;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = uninterrupted(|| {
            self.stream.set_write_timeout(Some(time_left(self.deadline)?))?;
            self.stream.write(bytes)
        });
        self.in_time(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A signal says nothing about the other end: the call is made again.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Transport::Plain(socket) => socket.read(buffer),
            Transport::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Transport::Plain(socket) => socket.write(bytes),
            Transport::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Transport::Plain(socket) => socket.flush(),
            Transport::Encrypted(stream) => stream.flush(),
        }
    }
}
