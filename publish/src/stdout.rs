// SPDX-License-Identifier: MPL-2.0
//! Lines on standard output.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use gsttrt_core::error::Result;

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::lines::LineWriter;
use super::options::PublishOptions;

struct StandardOutput {
    /// Without the lock and the buffer of Rust's own, which others would wait for.
    out: Option<File>,
    lines: LineWriter,
    timeout: Duration,
}

pub fn open(_address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    Ok(Box::new(StandardOutput { out: None, lines: LineWriter::default(), timeout: options.timeout }))
}

impl Destination for StandardOutput {
    fn connect(&mut self) -> io::Result<()> {
        if self.out.is_none() {
            self.out = Some(io::stdout().as_fd().try_clone_to_owned()?.into());
        }
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let out = self.out.as_mut().ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
        self.lines.write(out, messages, self.timeout)
    }
}
