// SPDX-License-Identifier: MPL-2.0
//! A connection whose reads and writes have to end by a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::address::ServerAddress;

pub struct TimedSocket {
    stream: TcpStream,
    deadline: Instant,
}

impl TimedSocket {
    /// Connects to the first address of the host that answers.
    pub fn connect(address: &ServerAddress, deadline: Instant) -> io::Result<Self> {
        // How long the system looks for the host's addresses is set in the system alone, such as in resolv.conf.
        let addresses: Vec<SocketAddr> = (address.host.as_str(), address.port).to_socket_addrs()?.collect();
        let stream = connect_to(&addresses, deadline)?;
        stream.set_nodelay(true)?;
        Ok(TimedSocket { stream, deadline })
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
        let is_same = |peer: SocketAddr| self.stream.local_addr().is_ok_and(|own| own.ip() == peer.ip());
        self.stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback() || is_same(peer))
    }
}

/// Connects to the first address that answers. One that says nothing leaves the others their part of the time.
fn connect_to(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (address, remaining) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        match time_left(deadline).and_then(|left| TcpStream::connect_timeout(address, left / remaining)) {
            Ok(stream) => return Ok(stream),
            // A server that says nothing may be there, whatever the other addresses say.
            Err(_) if last.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => last = error,
        }
    }
    Err(last)
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

/// As the standard library does it, but without the signal that ends a program in C where the other end has gone.
fn send_parts(stream: &TcpStream, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let parts = &parts[..parts.len().min(libc::UIO_MAXIOV as usize)];
    // SAFETY: all zero is a message to the other end of the connection that carries nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut().cast(), parts.len());
    // SAFETY: the message and its parts live during the call, which reads them alone. `IoSlice` is laid out as `iovec`.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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
        send_parts(&self.stream, parts).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/common/kserve_silent.rs"]
mod silent;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::silent::SilentServer;
    use super::*;

    #[test]
    fn an_address_that_says_nothing_leaves_time_for_the_next() {
        let silent = SilentServer::at(0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [silent.address, listener.local_addr().unwrap()];
        let connect = || connect_to(&addresses, Instant::now() + Duration::from_secs(1));
        assert_eq!(connect().unwrap().peer_addr().unwrap(), addresses[1]);
        drop(listener);
        assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::TimedOut, "the first one may be there");
        let nobody = connect_to(&addresses[1..], Instant::now() + Duration::from_secs(1));
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    /// Runs in a process of its own, which is as one of a program in C: there is no such signal in those in Rust.
    #[test]
    fn a_server_that_has_gone_is_an_error_and_no_signal() {
        const IS_AS_C: &str = "GSTTRT_TEST_SIGPIPE";
        if std::env::var_os(IS_AS_C).is_none() {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "backends::kserve::socket::tests::a_server_that_has_gone_is_an_error_and_no_signal";
            let output = test.args(["--exact", name]).env(IS_AS_C, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
            return;
        }
        // SAFETY: what the signal does by default.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let stream = connect_to(&[listener.local_addr().unwrap()], deadline).unwrap();
        let mut socket = TimedSocket { stream, deadline };
        drop(listener.accept().unwrap());
        let parts = [io::IoSlice::new(b"a"), io::IoSlice::new(b"b")];
        for _ in 0..2 {
            let error = loop {
                if let Err(error) = socket.write_vectored(&parts) {
                    break error.kind();
                }
            };
            assert!(matches!(error, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
        }
    }
}
