// SPDX-License-Identifier: MPL-2.0
//! Lines to a program that listens at a Unix socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

struct UnixSocket {
    path: PathBuf,
    timeout: Duration,
    stream: Option<UnixStream>,
}

/// The longest name that the system takes.
const MAX_PATH: usize = 107;

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    if address.path.len() > MAX_PATH {
        return Err(Error::new(ErrorKind::Settings, "The path of the Unix socket in location is too long")
            .cause(format!("it has {} bytes, and {MAX_PATH} are possible", address.path.len()))
            .remedy("Use a shorter path"));
    }
    Ok(Box::new(UnixSocket { path: address.path.clone().into(), timeout: options.timeout, stream: None }))
}

impl Destination for UnixSocket {
    fn connect(&mut self) -> io::Result<()> {
        let stream = UnixStream::connect(&self.path)?;
        stream.set_write_timeout(Some(self.timeout))?;
        self.stream = Some(stream);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        // What the reader closed before is not written to.
        self.tend()?;
        let stream = self.stream.as_mut().ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
        for (number, message) in messages.iter().enumerate() {
            let line = format!("{message}\n");
            stream.write_all(line.as_bytes()).map_err(|error| Undelivered::after(number, error))?;
        }
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn tend(&mut self) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.set_nonblocking(true)?;
        let found = stream.read(&mut [0; 512]);
        stream.set_nonblocking(false)?;
        match found {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}
