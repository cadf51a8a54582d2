// SPDX-License-Identifier: MPL-2.0
//! `amqp://` and `amqps://`: messages of a queue or an exchange, by AMQP 0-9-1, which RabbitMQ speaks.
//!
//! A message is delivered when the server confirms it. What it has not confirmed is sent again over the next connection.
//! The queue or exchange has to be there: who reads from it knows how it is to be made.

mod frame;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind, Result};
use rustls::ClientConfig;

use self::frame::{AmqpFrame, MethodArguments, MethodId, Publication};
use super::address::{Address, Secret};
use super::connection::{self, Connection};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;
use super::tls;

const PARAMETERS: [&str; 4] = ["exchange", "vhost", "persistent", "heartbeat"];
/// Bytes of a name in AMQP.
const MAX_NAME: usize = 255;
/// Bytes of a frame that confirms a message.
const CONFIRMATION: usize = 21;
/// Codes of servers for a message that is longer than they take.
const CONTENT_TOO_LARGE: u16 = 311;
const PRECONDITION_FAILED: u16 = 406;
/// Bytes around a message that comes back, without its names.
const RETURNED: usize = 1024;

struct AmqpClient {
    host: String,
    port: u16,
    vhost: String,
    /// Empty for the one that sends to the queue of that name.
    exchange: String,
    routing_key: String,
    is_persistent: bool,
    user: String,
    password: Secret,
    /// Seconds; 0 for none.
    heartbeat: u16,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    link: Option<AmqpLink>,
}

/// A connection with its channel.
struct AmqpLink {
    connection: Connection,
    arrived: Vec<u8>,
    max_frame: usize,
    heartbeat: Option<Duration>,
    last_sent: Instant,
    last_heard: Instant,
    /// Messages since the connection was made. The server counts them as well.
    published: u64,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let is_encrypted = address.scheme == "amqps";
    let parameters = address.parameters(&PARAMETERS)?;
    let wrong = |what: &str, remedy: &str| Err(Error::new(ErrorKind::Settings, what).remedy(remedy));
    let exchange = parameters.text("exchange").unwrap_or_default();
    let vhost = parameters.text("vhost").unwrap_or("/");
    if address.path.is_empty() && exchange.is_empty() {
        return wrong(
            "There is neither a queue nor an exchange in location",
            "Write amqp://host/queue, or amqp://host/routing.key?exchange=name",
        );
    }
    if address.password.is_some() && address.user.is_none() {
        return wrong("The address has a password for AMQP, but no user", "Write amqp://user@host/queue");
    }
    if [&address.path[..], exchange, vhost].into_iter().any(|name| name.len() > MAX_NAME) {
        return wrong("A name in location is longer than the 255 bytes that AMQP has room for", "Use a shorter one");
    }
    Ok(Box::new(AmqpClient {
        host: address.host.clone(),
        port: address.port.unwrap_or(if is_encrypted { 5671 } else { 5672 }),
        vhost: vhost.into(),
        exchange: exchange.into(),
        routing_key: address.path.clone(),
        is_persistent: parameters.flag("persistent", true)?,
        // As other clients: a new server knows this user, from the same machine.
        user: address.user.clone().unwrap_or_else(|| "guest".into()),
        password: match (&address.user, &address.password) {
            (None, _) => Secret::new("guest"),
            (Some(_), password) => password.clone().unwrap_or_default(),
        },
        heartbeat: parameters.number("heartbeat", 0..=65_535, 30)? as u16,
        tls: is_encrypted.then(|| tls::client(options)).transpose()?,
        timeout: options.timeout,
        link: None,
    }))
}

fn missing() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// What the server does not do, in its words.
fn refused(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, format!("the server says {text}"))
}

/// What it will not do for these messages, whenever they are sent.
fn too_long(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the server says {text}"))
}

impl AmqpLink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.last_sent = Instant::now();
        self.connection.write_all(bytes)?;
        self.connection.flush()
    }

    /// The next method that has come. What says that nothing more can be sent is an error.
    fn arrived_method(&mut self) -> io::Result<Option<(MethodId, MethodArguments)>> {
        while let Some(frame) = frame::take(&mut self.arrived)? {
            let AmqpFrame::Method(method, mut arguments) = frame else { continue };
            match method {
                frame::CLOSE | frame::CHANNEL_CLOSE => {
                    let (code, text) = (arguments.number()?, arguments.short_text()?);
                    if method == frame::CLOSE {
                        let _ = self.write(&frame::method(0, frame::CLOSE_OK, &[]));
                    } else {
                        self.say_goodbye();
                    }
                    let is_too_long = [CONTENT_TOO_LARGE, PRECONDITION_FAILED].contains(&code);
                    return Err(if is_too_long { too_long(&text) } else { refused(&text) });
                }
                // It reads nothing more until it has memory and disk again.
                frame::BLOCKED => {
                    return Err(refused(&format!("that it takes no messages now: {}", arguments.short_text()?)));
                }
                _ => return Ok(Some((method, arguments))),
            }
        }
        Ok(None)
    }

    fn receive(&mut self) -> io::Result<()> {
        self.connection.receive(&mut self.arrived)?;
        self.last_heard = Instant::now();
        Ok(())
    }

    fn method(&mut self) -> io::Result<(MethodId, MethodArguments)> {
        loop {
            if let Some(method) = self.arrived_method()? {
                return Ok(method);
            }
            self.receive()?;
        }
    }

    /// Waits for that method; others have no meaning at this time.
    fn expect(&mut self, wanted: MethodId) -> io::Result<MethodArguments> {
        let (method, arguments) = self.method()?;
        if method == wanted { Ok(arguments) } else { Err(frame::wrong()) }
    }

    fn call(&mut self, channel: u16, method: MethodId, arguments: &[u8], answer: MethodId) -> io::Result<()> {
        self.write(&frame::method(channel, method, arguments))?;
        self.expect(answer).map(drop)
    }

    fn say_goodbye(&mut self) {
        let arguments = [&200u16.to_be_bytes()[..], &frame::short_text(""), &[0; 4]].concat();
        let _ = self.write(&frame::method(0, frame::CLOSE, &arguments));
    }
}

/// What the server is told of this client: what it understands besides the protocol.
fn properties() -> Vec<u8> {
    let flag = |name| (name, b't', vec![1]);
    let text = |name, text: &str| (name, b'S', frame::long_text(text.as_bytes()));
    let capabilities = ["publisher_confirms", "basic.nack", "connection.blocked", "authentication_failure_close"];
    let capabilities = frame::table(&capabilities.map(flag));
    frame::table(&[
        text("product", "trtpublish"),
        text("version", env!("CARGO_PKG_VERSION")),
        ("capabilities", b'F', capabilities),
    ])
}

impl AmqpClient {
    /// Logs in, opens a channel whose messages are confirmed, and asks for the queue or exchange.
    fn handshake(&self, link: &mut AmqpLink) -> io::Result<()> {
        link.write(frame::GREETING)?;
        let mut start = link.expect(frame::START)?;
        let (_, _, mechanisms) = (start.number()?, start.long_text()?, start.long_text()?);
        if !mechanisms.split_whitespace().any(|mechanism| mechanism == "PLAIN") {
            return Err(refused(&format!("that it wants a login by {mechanisms}, not PLAIN")));
        }
        let login = format!("\0{}\0{}", self.user, self.password.reveal());
        let short = frame::short_text;
        let arguments = [properties(), short("PLAIN"), frame::long_text(login.as_bytes()), short("en_US")].concat();
        link.write(&frame::method(0, frame::START_OK, &arguments))?;
        let mut tune = link.expect(frame::TUNE)?;
        let (channels, max_frame, heartbeat) = (tune.number()?, tune.long()? as usize, tune.number()?);
        // 0 is no limit, and no heartbeat.
        let max_frame = if max_frame == 0 { frame::MAX_FRAME } else { max_frame.min(frame::MAX_FRAME) };
        if max_frame < frame::MIN_FRAME {
            return Err(frame::wrong());
        }
        let heartbeat = if heartbeat == 0 { self.heartbeat } else { self.heartbeat.min(heartbeat) };
        link.max_frame = max_frame;
        link.heartbeat = (heartbeat > 0).then(|| Duration::from_secs(heartbeat.into()));
        let arguments =
            [&channels.to_be_bytes()[..], &(max_frame as u32).to_be_bytes(), &heartbeat.to_be_bytes()].concat();
        link.write(&frame::method(0, frame::TUNE_OK, &arguments))?;
        link.call(0, frame::OPEN, &[short(&self.vhost), short(""), vec![0]].concat(), frame::OPEN_OK)?;
        link.call(frame::CHANNEL, frame::CHANNEL_OPEN, &short(""), frame::CHANNEL_OPEN_OK)?;
        link.call(frame::CHANNEL, frame::CONFIRM_SELECT, &[0], frame::CONFIRM_SELECT_OK)?;
        const PASSIVE: u8 = 1;
        let nothing = frame::table(&[]);
        if self.exchange.is_empty() {
            let arguments = [vec![0, 0], short(&self.routing_key), vec![PASSIVE], nothing].concat();
            link.call(frame::CHANNEL, frame::QUEUE_DECLARE, &arguments, frame::QUEUE_DECLARE_OK)
        } else {
            let arguments = [vec![0, 0], short(&self.exchange), short("topic"), vec![PASSIVE], nothing].concat();
            link.call(frame::CHANNEL, frame::EXCHANGE_DECLARE, &arguments, frame::EXCHANGE_DECLARE_OK)
        }
    }

    /// Sends all, and takes answers until the server has confirmed all. `delivered` counts the first ones that it has.
    fn send_over(&self, link: &mut AmqpLink, messages: &[String], delivered: &mut usize) -> io::Result<()> {
        let publication = Publication {
            exchange: &self.exchange,
            routing_key: &self.routing_key,
            is_mandatory: self.exchange.is_empty(),
            is_persistent: self.is_persistent,
        };
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| publication.encode(&mut bytes, message, link.max_frame));
        let first = link.published + 1;
        link.published += messages.len() as u64;
        link.write(&bytes)?;
        let mut confirmed = vec![false; messages.len()];
        while *delivered < messages.len() {
            let (method, mut arguments) = link.method()?;
            match method {
                frame::ACK | frame::NACK => {
                    let (tag, is_multiple) = (arguments.long_long()?, arguments.byte()? & 1 == 1);
                    // 0 stands for all.
                    let last = if tag == 0 { link.published } else { tag };
                    if last > link.published {
                        return Err(frame::wrong());
                    }
                    if method == frame::NACK {
                        return Err(refused("that it has not taken a message"));
                    }
                    // They may come in any order. Those of before were waited for.
                    let from = if is_multiple { first } else { last.max(first) };
                    (from..=last).for_each(|tag| confirmed[(tag - first) as usize] = true);
                    *delivered = confirmed.iter().take_while(|is_confirmed| **is_confirmed).count();
                }
                // The queue was there when the connection was made.
                frame::RETURN => {
                    let (_, text) = (arguments.number()?, arguments.short_text()?);
                    return Err(refused(&format!("{text}: the queue {} is gone", self.routing_key)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Destination for AmqpClient {
    fn connect(&mut self) -> io::Result<()> {
        self.link = None;
        let mut connection = connection::connect(&self.host, self.port, self.timeout)?;
        if let Some(config) = &self.tls {
            connection = connection.encrypt(&self.host, config)?;
        }
        let now = Instant::now();
        let mut link = AmqpLink {
            connection,
            arrived: Vec::new(),
            max_frame: frame::MIN_FRAME,
            heartbeat: None,
            last_sent: now,
            last_heard: now,
            published: 0,
        };
        self.handshake(&mut link)?;
        self.link = Some(link);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        // A message that was refused has ended the connection.
        if self.link.is_none() {
            self.connect()?;
        }
        // An end that came meanwhile is noticed before anything is lost.
        self.tend()?;
        let mut link = self.link.take().ok_or_else(missing)?;
        let bytes: usize = messages.iter().map(String::len).sum();
        let back = if self.exchange.is_empty() { bytes + messages.len() * RETURNED } else { 0 };
        link.connection.begin(messages.len() * CONFIRMATION + back);
        let mut delivered = 0;
        // After a failure the server counts on: there is a new connection then.
        match self.send_over(&mut link, messages, &mut delivered) {
            Ok(()) => self.link = Some(link),
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                return Err(Undelivered::after(delivered, error));
            }
            Err(error) if messages.len() == 1 => return Err(Undelivered::refused(delivered, 1, error)),
            // Which one it is shows if they go one by one.
            Err(_) => {
                for (number, message) in messages.iter().enumerate().skip(delivered) {
                    let sent = self.send(std::slice::from_ref(message));
                    sent.map_err(|one| Undelivered { delivered: number + one.delivered, ..one })?;
                }
            }
        }
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn tend(&mut self) -> io::Result<()> {
        let link = self.link.as_mut().ok_or_else(missing)?;
        link.connection.begin(0);
        loop {
            while link.arrived_method()?.is_some() {}
            if !link.connection.receive_now(&mut link.arrived)? {
                break;
            }
            link.last_heard = Instant::now();
        }
        if let Some(heartbeat) = link.heartbeat {
            if link.last_heard.elapsed() > 2 * heartbeat {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if link.last_sent.elapsed() > heartbeat / 2 {
                link.write(&frame::BEAT)?;
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some(mut link) = self.link.take() {
            link.say_goodbye();
        }
    }
}
