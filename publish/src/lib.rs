// SPDX-License-Identifier: MPL-2.0
//! Results as JSON, sent to files and brokers by a thread of its own.
//!
//! [`formats`] makes lines of records, [`queue`] holds records until they are sent, [`publisher`] is the thread: it
//! connects, sends, and connects again. Each destination is a file of its own, and one line in [`destinations`].

pub mod address;
#[cfg(feature = "amqp")]
mod amqp;
pub mod backoff;
pub mod clock;
#[cfg(feature = "tls")]
mod connection;
pub mod destination;
pub mod destinations;
mod file;
pub mod formats;
#[cfg(feature = "tls")]
pub mod handshake;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod https;
#[cfg(feature = "kafka")]
mod kafka;
mod lines;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
pub mod options;
pub mod publisher;
pub mod queue;
pub mod record;
#[cfg(feature = "redis")]
mod redis;
mod stdout;
#[cfg(feature = "tls")]
mod tls;
mod unix;
#[cfg(feature = "http")]
#[doc(hidden)] // for the program of this project
pub mod web;
#[cfg(feature = "websocket")]
mod websocket;

#[cfg(test)]
mod tests;
