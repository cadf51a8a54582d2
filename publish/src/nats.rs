// SPDX-License-Identifier: MPL-2.0
//! `nats://` and `tls://`: messages of a subject of a NATS server. After each batch the server is pinged; its answer says
//! that it has all.
//!
//! A server says in plain text whether it wants TLS, and so may somebody in between say that it does not: with `tls://`
//! there is no login without TLS.

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
    // Otherwise it is made when the server asks for it.
    let is_demanded = address.scheme == "tls" || options.ca_file.is_some() || options.cert_file.is_some();
    let tls = is_demanded.then(|| tls::client(options)).transpose()?;
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

/// The longest line that a server may send.
const MAX_LINE: usize = 64 << 10;

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server does not speak the protocol of NATS")
}

/// Takes the first line out of what has arrived, without its end.
fn take_line(arrived: &mut Vec<u8>) -> io::Result<Option<String>> {
    match arrived.iter().position(|&byte| byte == b'\n') {
        Some(end) => {
            let line: Vec<u8> = arrived.drain(..=end).collect();
            Ok(Some(String::from_utf8_lossy(&line).trim_end().to_string()))
        }
        None if arrived.len() > MAX_LINE => Err(wrong()),
        None => Ok(None),
    }
}

/// The next line.
fn line(connection: &mut Connection, arrived: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(line) = take_line(arrived)? {
            return Ok(line);
        }
        connection.receive(arrived)?;
    }
}

/// Answers a ping. Returns whether the server has answered one of ours.
fn is_pong(connection: &mut Connection, line: &str) -> io::Result<bool> {
    match line.split_whitespace().next() {
        Some("PONG") => return Ok(true),
        Some("PING") => connection.write_all(b"PONG\r\n")?,
        Some("-ERR") => return Err(refused(line)),
        _ => {}
    }
    Ok(false)
}

/// Reads lines until the server answers a ping.
fn wait_for_pong(connection: &mut Connection, arrived: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = line(connection, arrived)?;
        if is_pong(connection, &line)? {
            return Ok(());
        }
    }
}

fn refused(line: &str) -> io::Error {
    io::Error::other(format!("the server says {}", line.trim_start_matches("-ERR").trim()))
}

impl Destination for NatsClient {
    fn connect(&mut self) -> io::Result<()> {
        self.connection = None;
        self.arrived.clear();
        let mut connection = connection::connect(&self.host, self.port, self.options.timeout)?;
        let info = line(&mut connection, &mut self.arrived)?;
        let info: Value =
            info.strip_prefix("INFO ").and_then(|info| serde_json::from_str(info).ok()).ok_or_else(wrong)?;
        if let Some(max_payload) = info["max_payload"].as_u64() {
            self.max_payload = max_payload as usize;
        }
        if info["tls_required"] == true && self.tls.is_none() {
            self.tls = Some(tls::client(&self.options).map_err(io::Error::other)?);
        }
        if let Some(config) = &self.tls {
            // What came in plain text may be somebody else's, and must not be taken for what comes encrypted.
            if !self.arrived.is_empty() {
                return Err(wrong());
            }
            connection = connection.encrypt(&self.host, config)?;
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
        wait_for_pong(&mut connection, &mut self.arrived)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        if let Some(delivered) = messages.iter().position(|message| message.len() > self.max_payload) {
            if delivered > 0 {
                self.send(&messages[..delivered])?;
            }
            let error = format!("a message is longer than the {} bytes that the server takes", self.max_payload);
            let error = io::Error::new(io::ErrorKind::InvalidInput, error);
            return Err(Undelivered::refused(delivered, 1, error));
        }
        let connection = self.connection.as_mut().ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(format!("PUB {} {}\r\n{message}\r\n", self.subject, message.len()).into_bytes());
        }
        bytes.extend(b"PING\r\n");
        connection.begin(0);
        connection.write_all(&bytes)?;
        connection.flush()?;
        Ok(wait_for_pong(connection, &mut self.arrived)?)
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn tend(&mut self) -> io::Result<()> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        connection.begin(0);
        loop {
            while let Some(line) = take_line(&mut self.arrived)? {
                is_pong(connection, &line)?;
            }
            if !connection.receive_now(&mut self.arrived)? {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// What a client says to a server that says this, and how it ends.
    fn talk(scheme: &str, said: Vec<u8>, is_endless: bool) -> (String, io::Error) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = format!("{scheme}://me:hunter2@{}/a", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&said).is_ok() && is_endless {}
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard);
            String::from_utf8_lossy(&heard).into_owned()
        });
        let address = Address::parse(&location, &["nats", "tls"]).unwrap();
        let timeout = Duration::from_millis(300);
        let mut client = open(&address, &PublishOptions { timeout, ..PublishOptions::default() }).unwrap();
        let outcome = client.connect().and_then(|()| client.send(&["{}".into()]).map_err(|failed| failed.error));
        drop(client);
        (server.join().unwrap(), outcome.unwrap_err())
    }

    #[test]
    fn nothing_is_said_without_tls_where_it_is_demanded() {
        let (heard, _) = talk("nats", b"INFO {}\r\n".to_vec(), false);
        assert!(heard.contains("hunter2"), "the test sees passwords: {heard}");
        let (heard, _) = talk("tls", b"INFO {}\r\n".to_vec(), false);
        assert!(!heard.contains("CONNECT") && !heard.contains("hunter2"), "{heard}");
    }

    #[test]
    fn what_came_before_tls_is_not_taken_for_encrypted() {
        for (scheme, info) in [("tls", "INFO {}\r\nPONG\r\n"), ("nats", "INFO {\"tls_required\":true}\r\nPONG\r\n")] {
            let (heard, error) = talk(scheme, info.into(), false);
            assert_eq!((heard.len(), error.kind()), (0, io::ErrorKind::InvalidData), "{error}");
        }
    }

    #[test]
    fn half_a_line_of_the_connection_before_is_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = format!("nats://{}/a", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for behind in ["+O", ""] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"INFO {}\r\n").unwrap();
                let mut heard = Vec::new();
                while !heard.ends_with(b"PING\r\n") {
                    let mut bytes = [0; 512];
                    let count = stream.read(&mut bytes).unwrap();
                    heard.extend_from_slice(&bytes[..count]);
                }
                stream.write_all(format!("PONG\r\n{behind}").as_bytes()).unwrap();
            }
        });
        let address = Address::parse(&location, &["nats"]).unwrap();
        let mut client = open(&address, &PublishOptions::default()).unwrap();
        client.connect().unwrap();
        assert!(client.send(&["{}".into()]).is_err(), "the server has gone");
        client.connect().unwrap();
        server.join().unwrap();
    }

    #[test]
    fn endless_answers_are_given_up() {
        for said in ["PING\r\n".repeat(9000), "+OK\r\n".repeat(9000), "x".repeat(1 << 16)] {
            let (_, error) = talk("nats", format!("INFO {{}}\r\n{said}").into(), true);
            let kind = error.kind();
            assert!(!matches!(kind, io::ErrorKind::Other), "{error}");
        }
    }
}
