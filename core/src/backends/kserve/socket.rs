// SPDX-License-Identifier: MPL-2.0
//! A connection whose reads and writes have to end by a deadline.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::address::ServerAddress;

pub struct TimedSocket {
    stream: TcpStream,
    deadline: Instant,
}

impl TimedSocket {
    /// Connects to the first address of the host that answers.
    pub fn connect(address: &ServerAddress, deadline: Instant) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (address.host.as_str(), address.port).to_socket_addrs()? {
            match time_left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TimedSocket { stream, deadline });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// The same connection, for a thread that is to end it.
    pub fn another(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Whether the other end is on this machine.
    pub fn is_local(&self) -> bool {
        let is_same = |peer: std::net::SocketAddr| self.stream.local_addr().is_ok_and(|own| own.ip() == peer.ip());
        self.stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback() || is_same(peer))
    }
}

/// Never zero, which would be no limit.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Linux says that a read would block where its time is over.
fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(time_left(self.deadline)?))?;
        self.stream.read(bytes).map_err(late)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(time_left(self.deadline)?))?;
        self.stream.write(bytes).map_err(late)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(time_left(self.deadline)?))?;
        self.stream.write_vectored(parts).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
