// SPDX-License-Identifier: MPL-2.0
//! Lines on standard output.

use std::io::{self, Write};

use gsttrt_core::error::Result;

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

struct StandardOutput;

pub fn open(_address: &Address, _options: &PublishOptions) -> Result<Box<dyn Destination>> {
    Ok(Box::new(StandardOutput))
}

impl Destination for StandardOutput {
    fn connect(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let mut out = io::stdout().lock();
        for (number, message) in messages.iter().enumerate() {
            writeln!(out, "{message}").map_err(|error| Undelivered::after(number, error))?;
        }
        Ok(out.flush()?)
    }
}
