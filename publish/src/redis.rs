// SPDX-License-Identifier: MPL-2.0
//! `redis://` and `rediss://`: entries of a stream, or messages of a channel, of a Redis or Valkey server.
//!
//! Entries have one field, [`FIELD`]. After a connection was lost, those whose fate is unknown are looked for at the
//! stream's end.

use std::io;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};
use redis::streams::StreamRangeReply;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;
use super::tls::{self, Certificates};

/// As DeepStream's adaptor calls it.
const FIELD: &str = "metadata";

/// How many entries are looked at for those that were sent before.
const LOOKED_AT: usize = 1000;

struct Redis {
    client: Client,
    key: String,
    /// Of a stream, with its largest length; `None` of a channel.
    max_length: Option<u64>,
    timeout: Duration,
    connection: Option<redis::Connection>,
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
    let max_length = parameters.number("maxlen", 0..=u64::MAX, 10_000)?;
    let database = parameters.number("db", 0..=65_535, 0)?;
    let mut login =
        RedisConnectionInfo::default().set_db(database as i64).set_lib_name("trtpublish", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &address.user {
        login = login.set_username(user);
    }
    if let Some(password) = &address.password {
        login = login.set_password(password.reveal());
    }
    let port = address.port.unwrap_or(6379);
    let client = client(address, port, login, options)
        .map_err(|error| error.about(&format!("Cannot make a client for {}", address.shown())))?;
    Ok(Box::new(Redis {
        client,
        key: address.path.clone(),
        max_length: is_stream.then_some(max_length),
        timeout: options.timeout,
        connection: None,
        is_unsure: false,
    }))
}

fn client(address: &Address, port: u16, login: RedisConnectionInfo, options: &PublishOptions) -> Result<Client> {
    let failed = |error: redis::RedisError| {
        Error::new(ErrorKind::Settings, "The address or the certificates are refused").cause(error).remedy("Check them")
    };
    let is_encrypted = address.scheme == "rediss";
    let host = address.host.clone();
    let place = if is_encrypted {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let info: ConnectionInfo = place.into_connection_info().map_err(failed)?.set_redis_settings(login);
    if !is_encrypted {
        return Client::open(info).map_err(failed);
    }
    tls::install_provider();
    let Certificates { authorities, client } = Certificates::read(options)?;
    let client_tls = client.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
    Client::build_with_tls(info, redis::TlsCertificates { client_tls, root_cert: authorities }).map_err(failed)
}

impl Redis {
    /// How many of the first messages are at the stream's end already.
    fn delivered_before(&mut self, messages: &[String]) -> io::Result<usize> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut command = redis::cmd("XREVRANGE");
        let reply: StreamRangeReply =
            command.arg(&self.key).arg("+").arg("-").arg("COUNT").arg(LOOKED_AT).query(connection).map_err(failure)?;
        let found: Vec<String> = reply.ids.iter().filter_map(|entry| entry.get(FIELD)).collect();
        Ok(messages.iter().take_while(|message| found.contains(message)).count())
    }

    fn commands(&self, messages: &[String]) -> redis::Pipeline {
        let mut pipeline = redis::pipe();
        for message in messages {
            let command = match self.max_length {
                None => pipeline.cmd("PUBLISH").arg(&self.key),
                Some(0) => pipeline.cmd("XADD").arg(&self.key).arg("*").arg(FIELD),
                Some(length) => {
                    pipeline.cmd("XADD").arg(&self.key).arg("MAXLEN").arg("~").arg(length).arg("*").arg(FIELD)
                }
            };
            command.arg(message).ignore();
        }
        pipeline
    }
}

fn failure(error: redis::RedisError) -> io::Error {
    io::Error::other(error.to_string())
}

impl Destination for Redis {
    fn connect(&mut self) -> io::Result<()> {
        self.connection = None;
        let mut connection = self.client.get_connection_with_timeout(self.timeout).map_err(failure)?;
        for limit in [redis::Connection::set_read_timeout, redis::Connection::set_write_timeout] {
            limit(&connection, Some(self.timeout)).map_err(failure)?;
        }
        // A server that is loading its data accepts connections, and nothing else.
        redis::cmd("PING").query::<()>(&mut connection).map_err(failure)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let mut delivered = 0;
        if self.is_unsure && self.max_length.is_some() {
            delivered = self.delivered_before(messages)?;
        }
        self.is_unsure = true;
        let rest = &messages[delivered..];
        if !rest.is_empty() {
            let commands = self.commands(rest);
            let connection =
                self.connection.as_mut().ok_or(Undelivered::after(delivered, io::ErrorKind::NotConnected.into()))?;
            commands.query::<()>(connection).map_err(|error| Undelivered::after(delivered, failure(error)))?;
        }
        self.is_unsure = false;
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    fn tend(&mut self) -> io::Result<()> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        redis::cmd("PING").query::<()>(connection).map_err(failure)
    }
}
