// SPDX-License-Identifier: MPL-2.0
//! A TCP connection, with or without TLS, and time limits for each step.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

pub enum Connection {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Connects to the first address of the host that answers.
pub fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Encrypts a connection; what is wrong with certificates is told here.
pub fn encrypt(mut stream: TcpStream, host: &str, config: &Arc<ClientConfig>) -> io::Result<Connection> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(Connection::Encrypted(Box::new(StreamOwned::new(session, stream))))
}

impl Connection {
    fn socket(&self) -> &TcpStream {
        match self {
            Connection::Plain(stream) => stream,
            Connection::Encrypted(stream) => &stream.sock,
        }
    }

    /// Appends what has arrived; waits for something for at most so long. False if nothing came.
    pub fn receive(&mut self, into: &mut Vec<u8>, wait: Duration) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        // A time limit of 0 would be none.
        let is_patient = !wait.is_zero();
        if is_patient {
            self.socket().set_read_timeout(Some(wait))?
        } else {
            self.socket().set_nonblocking(true)?
        }
        let found = self.read(&mut bytes);
        if !is_patient {
            self.socket().set_nonblocking(false)?;
        }
        match found {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection")),
            Ok(count) => {
                into.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if is_nothing_yet(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a read has only taken too long.
fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.read(buffer),
            Connection::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.write(bytes),
            Connection::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.flush(),
            Connection::Encrypted(stream) => stream.flush(),
        }
    }
}
