// SPDX-License-Identifier: MPL-2.0
//! `redis://` and `rediss://`: entries of a stream, or messages of a channel, of a Redis or Valkey server.
//!
//! A batch is a transaction: it arrives as a whole or not at all. If the connection breaks before the answer, the stream
//! is searched for the batch, behind the entry that was its last one before. Entries have one field, [`FIELD`].

mod resp;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};
use rustls::ClientConfig;

use self::resp::{Reply, RespConnection, command};
use super::address::{Address, Secret};
use super::connection;
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;
use super::tls;

/// As DeepStream's adaptor calls it.
const FIELD: &str = "metadata";

/// Entries that are asked for at once, when a batch is searched for, and how often.
const PAGE: u64 = 1000;
const PAGES: usize = 10;
/// Bytes of such an answer. Entries of others may be of any size.
const MAX_PAGE: usize = 16 << 20;
/// Bytes of the answers to a message: `QUEUED`, and the id of an entry.
const MAX_ANSWER: usize = 64;

struct Redis {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<Secret>,
    database: u64,
    key: String,
    /// Of a stream, with its largest length; `None` of a channel.
    max_length: Option<u64>,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    session: Option<RespConnection>,
    /// The last entry of the stream before the messages that are sent now.
    last_id: Option<String>,
    /// The first messages may have arrived over an earlier connection.
    is_unsure: bool,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let parameters = address.parameters(&["type", "maxlen", "db"])?;
    let is_stream = match parameters.text("type") {
        None | Some("stream") => true,
        Some("channel") => false,
        Some(_) => {
            return Err(Error::new(ErrorKind::Settings, "type in location is neither stream nor channel")
                .remedy("Write type=stream or type=channel"));
        }
    };
    if address.path.is_empty() {
        return Err(Error::new(ErrorKind::Settings, "There is no name of a stream or channel in location")
            .remedy("Write redis://host/name"));
    }
    // The server takes no larger numbers, and would refuse each message.
    let max_length = parameters.number("maxlen", 0..=i64::MAX as u64, 10_000)?;
    Ok(Box::new(Redis {
        host: address.host.clone(),
        port: address.port.unwrap_or(6379),
        user: address.user.clone(),
        password: address.password.clone(),
        database: parameters.number("db", 0..=65_535, 0)?,
        key: address.path.clone(),
        max_length: is_stream.then_some(max_length),
        tls: (address.scheme == "rediss").then(|| tls::client(options)).transpose()?,
        timeout: options.timeout,
        session: None,
        last_id: None,
        is_unsure: false,
    }))
}

fn not_connected() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads the entries of a page. Calls for each with its id and with the message in it, if one is there; returns how many
/// there were.
fn entries(session: &mut RespConnection, mut see: impl FnMut(String, Option<&[u8]>)) -> io::Result<u64> {
    let count = session.list()?;
    for _ in 0..count {
        session.list()?;
        let id = text(session.bytes()?);
        let mut message = None;
        for _ in 0..session.list()? / 2 {
            let (field, value) = (session.bytes()?, session.bytes()?);
            if field == FIELD.as_bytes() {
                message = Some(value);
            }
        }
        see(id, message.as_deref());
    }
    Ok(count)
}

impl Redis {
    /// Whether the messages are in the stream already. They came as a whole, so the last ones are enough where the stream
    /// keeps fewer.
    fn is_delivered(&mut self, messages: &[String]) -> io::Result<bool> {
        let session = self.session.as_mut().ok_or_else(not_connected)?;
        let kept = match self.max_length {
            Some(0) | None => messages.len(),
            Some(length) => messages.len().min(length as usize),
        };
        let mut wanted = messages[messages.len() - kept..].iter().map(String::as_bytes).peekable();
        let mut from = self.last_id.clone().unwrap_or_else(|| "-".into());
        for _ in 0..PAGES {
            let mut bytes = Vec::new();
            command(&mut bytes, &["XRANGE", &self.key, &from, "+", "COUNT", &PAGE.to_string()]);
            session.send(&bytes, MAX_PAGE)?;
            let begin = from.clone();
            let count = entries(session, |id, message| {
                // A page begins with the entry that is known.
                if id != begin && message == wanted.peek().copied() {
                    wanted.next();
                }
                from = id;
            })?;
            if wanted.peek().is_none() {
                self.last_id = Some(from);
                return Ok(true);
            }
            if count < PAGE {
                break;
            }
        }
        Ok(false)
    }

    fn transaction(&self, messages: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let length = self.max_length.map(|length| length.to_string());
        command(&mut bytes, &["MULTI"]);
        for message in messages {
            match length.as_deref() {
                None => command(&mut bytes, &["PUBLISH", &self.key, message]),
                Some("0") => command(&mut bytes, &["XADD", &self.key, "*", FIELD, message]),
                Some(length) => {
                    command(&mut bytes, &["XADD", &self.key, "MAXLEN", "~", length, "*", FIELD, message]);
                }
            }
        }
        command(&mut bytes, &["EXEC"]);
        bytes
    }

    fn deliver(&mut self, messages: &[String]) -> io::Result<()> {
        let bytes = self.transaction(messages);
        let session = self.session.as_mut().ok_or_else(not_connected)?;
        session.send(&bytes, messages.len() * MAX_ANSWER)?;
        // The first error is that of the cause; the server does nothing then.
        for _ in 0..=messages.len() {
            session.bytes()?;
        }
        if session.list()? != messages.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server has not run the transaction"));
        }
        for _ in messages {
            if let Reply::Text(id) = session.reply()? {
                self.last_id = Some(text(id));
            }
        }
        Ok(())
    }
}

impl Destination for Redis {
    fn connect(&mut self) -> io::Result<()> {
        self.session = None;
        let mut connection = connection::connect(&self.host, self.port, self.timeout)?;
        if let Some(config) = &self.tls {
            connection = connection.encrypt(&self.host, config)?;
        }
        let mut session = RespConnection::new(connection);
        let mut bytes = Vec::new();
        if let Some(password) = &self.password {
            let words = ["AUTH"].into_iter().chain(self.user.as_deref()).chain([password.reveal()]);
            command(&mut bytes, &words.collect::<Vec<_>>());
        }
        if self.database > 0 {
            command(&mut bytes, &["SELECT", &self.database.to_string()]);
        }
        let answers = usize::from(self.password.is_some()) + usize::from(self.database > 0);
        // A server that is loading its data accepts connections, and nothing else.
        command(&mut bytes, &["PING"]);
        session.send(&bytes, 0)?;
        for _ in 0..=answers {
            session.bytes()?;
        }
        if self.max_length.is_some() && self.last_id.is_none() {
            bytes.clear();
            command(&mut bytes, &["XREVRANGE", &self.key, "+", "-", "COUNT", "1"]);
            session.send(&bytes, MAX_PAGE)?;
            let mut last = "0-0".to_string();
            entries(&mut session, |id, _| last = id)?;
            self.last_id = Some(last);
        }
        self.session = Some(session);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        self.session.as_mut().ok_or_else(not_connected)?.begin();
        if self.is_unsure && self.max_length.is_some() {
            let searched = self.is_delivered(messages);
            // Others have written more than can be searched in the time: better twice than never.
            let is_too_much = |kind| matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::TimedOut);
            if searched.as_ref().is_ok_and(|&is_there| is_there)
                || searched.as_ref().is_err_and(|error| is_too_much(error.kind()))
            {
                self.is_unsure = false;
            }
            if searched? {
                return Ok(());
            }
        }
        self.is_unsure = true;
        self.deliver(messages)?;
        self.is_unsure = false;
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    fn tend(&mut self) -> io::Result<()> {
        let session = self.session.as_mut().ok_or_else(not_connected)?;
        let mut bytes = Vec::new();
        command(&mut bytes, &["PING"]);
        session.begin();
        session.send(&bytes, 0)?;
        session.bytes().map(drop)
    }
}
