// SPDX-License-Identifier: MPL-2.0
//! `nats://`: messages of a subject of a NATS server. After each batch the server is pinged; its answer says that it
//! has all.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::address::{Address, Secret};
use super::connection::{self, Connection};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;
use super::tls;

struct NatsClient {
    host: String,
    port: u16,
    subject: String,
    user: Option<String>,
    /// Without a user it is a token.
    password: Option<Secret>,
    options: PublishOptions,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<Connection>,
    arrived: Vec<u8>,
    /// The longest message that the server takes.
    max_payload: usize,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    address.parameters(&[])?;
    let subject = address.path.clone();
    let is_subject = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "*>".contains(c));
    if !subject.split('.').all(is_subject) {
        return Err(Error::new(ErrorKind::Settings, "There is no subject in location, or one with spaces, * or >")
            .remedy("Write nats://host/subject"));
    }
    // A name alone is a token, as in other clients.
    let (user, password) = match (&address.user, &address.password) {
        (Some(token), None) => (None, Some(Secret::new(token.as_str()))),
        (user, password) => (user.clone(), password.clone()),
    };
    // Without files of its own it is made when the server asks for it.
    let tls = (options.ca_file.is_some() || options.cert_file.is_some()).then(|| tls::client(options)).transpose()?;
    Ok(Box::new(NatsClient {
        host: address.host.clone(),
        port: address.port.unwrap_or(4222),
        subject,
        user,
        password,
        options: options.clone(),
        tls,
        connection: None,
        arrived: Vec::new(),
        max_payload: 1 << 20,
    }))
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server does not answer")
}

/// The longest line that a server may send.
const MAX_LINE: usize = 1 << 20;

/// The next line, without its end; `None` if none comes for so long.
fn line(connection: &mut Connection, arrived: &mut Vec<u8>, wait: Duration) -> io::Result<Option<String>> {
    loop {
        if let Some(end) = arrived.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = arrived.drain(..=end).collect();
            return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_string()));
        }
        if arrived.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server does not speak the protocol of NATS"));
        }
        if !connection.receive(arrived, wait)? {
            return Ok(None);
        }
    }
}

impl NatsClient {
    /// Reads lines until the server answers a ping.
    fn wait_for_pong(connection: &mut Connection, arrived: &mut Vec<u8>, wait: Duration) -> io::Result<()> {
        loop {
            let line = line(connection, arrived, wait)?.ok_or_else(late)?;
            match line.split_whitespace().next() {
                Some("PONG") => return Ok(()),
                Some("PING") => connection.write_all(b"PONG\r\n")?,
                Some("-ERR") => return Err(refused(&line)),
                _ => {}
            }
        }
    }
}

fn refused(line: &str) -> io::Error {
    io::Error::other(format!("the server says {}", line.trim_start_matches("-ERR").trim()))
}

impl Destination for NatsClient {
    fn connect(&mut self) -> io::Result<()> {
        let timeout = self.options.timeout;
        self.connection = None;
        self.arrived.clear();
        let stream = connection::connect(&self.host, self.port, timeout)?;
        let mut connection = Connection::Plain(stream);
        let info = line(&mut connection, &mut self.arrived, timeout)?.ok_or_else(late)?;
        let info: Value =
            info.strip_prefix("INFO ").and_then(|info| serde_json::from_str(info).ok()).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the server does not speak the protocol of NATS")
            })?;
        if let Some(max_payload) = info["max_payload"].as_u64() {
            self.max_payload = max_payload as usize;
        }
        if info["tls_required"] == true && self.tls.is_none() {
            self.tls = Some(tls::client(&self.options).map_err(io::Error::other)?);
        }
        if let Some(config) = &self.tls {
            let Connection::Plain(stream) = connection else { unreachable!("it is not encrypted yet") };
            connection = connection::encrypt(stream, &self.host, config)?;
        }
        let mut hello = json!({
            "verbose": false, "pedantic": false, "tls_required": self.tls.is_some(),
            "name": "trtpublish", "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "protocol": 1,
        });
        let password = self.password.as_ref().map(Secret::reveal);
        match (&self.user, password) {
            (Some(user), password) => {
                hello["user"] = user.as_str().into();
                hello["pass"] = password.unwrap_or_default().into();
            }
            (None, Some(token)) => hello["auth_token"] = token.into(),
            (None, None) => {}
        }
        write!(connection, "CONNECT {hello}\r\nPING\r\n")?;
        connection.flush()?;
        Self::wait_for_pong(&mut connection, &mut self.arrived, timeout)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        if let Some(delivered) = messages.iter().position(|message| message.len() > self.max_payload) {
            if delivered > 0 {
                self.send(&messages[..delivered])?;
            }
            let error = format!("a message is longer than the {} bytes that the server takes", self.max_payload);
            return Err(Undelivered {
                delivered,
                rejected: 1,
                error: io::Error::new(io::ErrorKind::InvalidInput, error),
            });
        }
        let connection = self.connection.as_mut().ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(format!("PUB {} {}\r\n{message}\r\n", self.subject, message.len()).into_bytes());
        }
        bytes.extend(b"PING\r\n");
        connection.write_all(&bytes)?;
        connection.flush()?;
        Ok(Self::wait_for_pong(connection, &mut self.arrived, self.options.timeout)?)
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn tend(&mut self) -> io::Result<()> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        while let Some(line) = line(connection, &mut self.arrived, Duration::ZERO)? {
            match line.split_whitespace().next() {
                Some("PING") => connection.write_all(b"PONG\r\n")?,
                Some("-ERR") => return Err(refused(&line)),
                _ => {}
            }
        }
        Ok(())
    }
}
