// SPDX-License-Identifier: MPL-2.0
//! Lines to a program that listens at a Unix socket.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};
use socket2::{Domain, SockAddr, Socket, Type};

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::lines::LineWriter;
use super::options::PublishOptions;

struct UnixSocket {
    path: PathBuf,
    timeout: Duration,
    stream: Option<UnixStream>,
    lines: LineWriter,
}

/// The longest name that the system takes.
const MAX_PATH: usize = 107;

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    if address.path.len() > MAX_PATH {
        return Err(Error::new(ErrorKind::Settings, "The path of the Unix socket in location is too long")
            .cause(format!("it has {} bytes, and {MAX_PATH} are possible", address.path.len()))
            .remedy("Use a shorter path"));
    }
    Ok(Box::new(UnixSocket {
        path: address.path.clone().into(),
        timeout: options.timeout,
        stream: None,
        lines: LineWriter::default(),
    }))
}

impl Destination for UnixSocket {
    fn connect(&mut self) -> io::Result<()> {
        // A program that listens and accepts nobody would be waited for without a limit.
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(&self.path)?)?;
        (self.stream, self.lines) = (Some(socket.into()), LineWriter::default());
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        // What the reader closed before is not written to.
        self.tend()?;
        let stream = self.stream.as_mut().ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
        self.lines.write(stream, messages, self.timeout)
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn tend(&mut self) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        match stream.read(&mut [0; 512]) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
