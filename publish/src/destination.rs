// SPDX-License-Identifier: MPL-2.0
//! What all destinations are.

use std::io;
use std::time::Duration;

/// Where messages go. All calls come from one thread. Each ends within the options' `timeout`, whatever the other end
/// does, and takes memory for a bounded answer only.
pub trait Destination: Send {
    /// Connects, or connects again after a failure.
    fn connect(&mut self) -> io::Result<()>;

    /// Whether others connect to it, so that it must be there before the first frame.
    fn is_server(&self) -> bool {
        false
    }

    /// Sends messages in order, and returns when all are delivered as far as the other end tells.
    fn send(&mut self, messages: &[String]) -> Result<(), Undelivered>;

    /// How often [`tend`](Self::tend) is to be called while nothing is sent; `None` for never.
    fn tend_interval(&self) -> Option<Duration> {
        None
    }

    /// Notices a connection that was closed, and keeps alive one that is not.
    fn tend(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The end: says goodbye, where that is usual.
    fn close(&mut self) {}
}

/// Why the rest of some messages was not sent.
#[derive(Debug)]
pub struct Undelivered {
    /// How many were delivered: the first ones.
    pub delivered: usize,
    /// How many behind them will never be accepted.
    pub rejected: usize,
    pub error: io::Error,
    /// How long the other end asks to wait, where it does.
    pub retry_after: Option<Duration>,
}

impl Undelivered {
    /// So many behind those that were delivered will never be accepted.
    pub fn refused(delivered: usize, rejected: usize, error: io::Error) -> Self {
        Undelivered { delivered, rejected, error, retry_after: None }
    }

    pub fn after(delivered: usize, error: io::Error) -> Self {
        Undelivered { delivered, rejected: 0, error, retry_after: None }
    }
}

impl From<io::Error> for Undelivered {
    fn from(error: io::Error) -> Self {
        Undelivered::after(0, error)
    }
}
