// SPDX-License-Identifier: MPL-2.0
//! `mqtt://` and `mqtts://`: messages of a topic, by MQTT 3.1.1.
//!
//! With QoS 1 and 2 a message is delivered when the server says that it has it. What it has not said is sent again over
//! the next connection: with QoS 2 and `clean-session=false` under the same number, by which a server that kept the
//! session knows it.

mod packet;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind, Result};
use rustls::ClientConfig;

use self::packet::{Connect, ServerAnswer, Will};
use super::address::{Address, Secret};
use super::connection::{self, Connection};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;
use super::tls;

/// Messages that are on their way at a time. Servers take 20 without being asked.
const WINDOW: usize = 20;

const PARAMETERS: [&str; 9] = [
    "qos",
    "client-id",
    "clean-session",
    "keep-alive",
    "retain",
    "will-topic",
    "will-message",
    "will-qos",
    "will-retain",
];

struct Client {
    host: String,
    port: u16,
    topic: String,
    user: Option<String>,
    password: Option<Secret>,
    client_id: String,
    clean_session: bool,
    keep_alive: u16,
    qos: u8,
    retain: bool,
    will: Option<(String, String, u8, bool)>,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    link: Option<Link>,
    last_id: u16,
    /// The numbers under which the next messages were sent before, as far as the server may know them.
    sent: VecDeque<u16>,
    /// QoS 2: numbers that the server has not forgotten.
    releasing: VecDeque<u16>,
}

/// A connection.
struct Link {
    connection: Connection,
    arrived: Vec<u8>,
    last_sent: Instant,
    /// When a ping was sent that has no answer yet.
    pinged: Option<Instant>,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let is_encrypted = address.scheme == "mqtts";
    let parameters = address.parameters(&PARAMETERS)?;
    let qos = parameters.number("qos", 0..=2, 1)? as u8;
    let clean_session = parameters.flag("clean-session", true)?;
    let client_id = parameters.text("client-id").unwrap_or_default();
    let wrong = |what: &str, remedy: &str| Err(Error::new(ErrorKind::Settings, what).remedy(remedy));
    if client_id.is_empty() && !clean_session {
        return wrong(
            "clean-session=false has no client-id, by which the server knows the session",
            "Add client-id=… to location, another for each trtpublish",
        );
    }
    if address.password.is_some() && address.user.is_none() {
        return wrong("The address has a password for MQTT, but no user", "Write mqtt://user@host/topic");
    }
    let will_qos = parameters.number("will-qos", 0..=2, 0)? as u8;
    let will_retain = parameters.flag("will-retain", false)?;
    let will_message = parameters.text("will-message").unwrap_or_default();
    let will = parameters.text("will-topic").map(|topic| (topic.into(), will_message.into(), will_qos, will_retain));
    let topics = [Some(&address.path), will.as_ref().map(|(topic, ..): &(String, _, _, _)| topic)];
    for topic in topics.into_iter().flatten() {
        if topic.is_empty() || topic.contains(['+', '#', '\0']) {
            return wrong("There is no topic in location, or one with the wildcards + or #", "Write mqtt://host/topic");
        }
    }
    let texts = [&address.path[..], client_id, will_message, address.user.as_deref().unwrap_or_default()];
    let password = address.password.as_ref().map_or("", Secret::reveal);
    if texts.into_iter().chain([password]).any(|text| text.len() > usize::from(u16::MAX)) {
        return wrong("A text in location is longer than the 65535 bytes that MQTT has room for", "Use a shorter one");
    }
    let default = format!("trtpublish-{}-{:x}", std::process::id(), super::clock::now() & 0xFFFF_FFFF);
    Ok(Box::new(Client {
        host: address.host.clone(),
        port: address.port.unwrap_or(if is_encrypted { 8883 } else { 1883 }),
        topic: address.path.clone(),
        user: address.user.clone(),
        password: address.password.clone(),
        client_id: if client_id.is_empty() { default } else { client_id.into() },
        clean_session,
        keep_alive: parameters.number("keep-alive", 1..=65_535, 30)? as u16,
        qos,
        retain: parameters.flag("retain", false)?,
        will,
        tls: is_encrypted.then(|| tls::client(options)).transpose()?,
        timeout: options.timeout,
        link: None,
        last_id: 0,
        sent: VecDeque::new(),
        releasing: VecDeque::new(),
    }))
}

impl Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.last_sent = Instant::now();
        self.connection.write_all(bytes)?;
        self.connection.flush()
    }

    /// The next packet that has come; what answers pings is only noted.
    fn arrived_answer(&mut self) -> io::Result<Option<ServerAnswer>> {
        loop {
            match packet::take(&mut self.arrived)? {
                Some(ServerAnswer::Pong) => self.pinged = None,
                answer => return Ok(answer),
            }
        }
    }

    /// The next packet.
    fn answer(&mut self) -> io::Result<ServerAnswer> {
        loop {
            if let Some(answer) = self.arrived_answer()? {
                return Ok(answer);
            }
            self.connection.receive(&mut self.arrived)?;
        }
    }
}

/// Bytes of the answers to a message with QoS 2; there is one with QoS 1.
const ANSWERS: usize = 8;

fn missing() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl Client {
    /// Says hello. Returns whether the server has kept the session.
    fn handshake(&self, link: &mut Link) -> io::Result<bool> {
        let will =
            self.will.as_ref().map(|(topic, message, qos, retain)| Will { topic, message, qos: *qos, retain: *retain });
        let hello = Connect {
            client_id: &self.client_id,
            user: self.user.as_deref(),
            password: self.password.as_ref().map(Secret::reveal),
            clean_session: self.clean_session,
            keep_alive: self.keep_alive,
            will,
        };
        link.write(&hello.encode())?;
        let ServerAnswer::Connected { is_resumed, code } = link.answer()? else { return Err(packet::wrong()) };
        let refused = match code {
            0 => return Ok(is_resumed),
            1 => "the server does not speak MQTT 3.1.1",
            2 => "the server does not accept the client-id",
            3 => "the server is not available",
            4 => "the server does not accept user and password",
            5 => "the server does not allow it, or user and password are wrong",
            _ => "the server refuses for an unknown reason",
        };
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, refused))
    }

    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.sent.contains(&self.last_id) && !self.releasing.contains(&self.last_id) {
                return self.last_id;
            }
        }
    }

    fn send_unconfirmed(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let link = self.link.as_mut().ok_or_else(missing)?;
        let mut packet = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            packet.clear();
            packet::publish(&mut packet, &self.topic, 0, message, (0, self.retain), false);
            link.write(&packet).map_err(|error| Undelivered::after(number, error))?;
        }
        Ok(())
    }

    /// Sends, and takes answers until the server has all.
    fn send_confirmed(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let mut link = self.link.take().ok_or_else(missing)?;
        let known = self.sent.len();
        let (mut written, mut delivered) = (0, 0);
        let mut packet = Vec::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && delivered < messages.len() {
            packet.clear();
            while written < messages.len() && written < delivered + WINDOW {
                if delivered + self.sent.len() <= written {
                    let id = self.next_id();
                    self.sent.push_back(id);
                }
                let id = self.sent[written - delivered];
                packet::publish(
                    &mut packet,
                    &self.topic,
                    id,
                    &messages[written],
                    (self.qos, self.retain),
                    written < known,
                );
                written += 1;
            }
            outcome = if packet.is_empty() { Ok(()) } else { link.write(&packet) };
            outcome = outcome.and_then(|()| self.take_answer(&mut link, &mut delivered));
        }
        while outcome.is_ok() && !self.releasing.is_empty() {
            outcome = self.take_answer(&mut link, &mut delivered);
        }
        self.link = Some(link);
        outcome.map_err(|error| Undelivered::after(delivered, error))
    }

    /// Takes one answer, and counts a message that it says has arrived, also where the reply to it fails: the numbers in
    /// `sent` are those of the messages that are not counted. Servers answer in order.
    fn take_answer(&mut self, link: &mut Link, delivered: &mut usize) -> io::Result<()> {
        match link.answer()? {
            ServerAnswer::Acknowledged(id) if self.qos == 1 && self.sent.front() == Some(&id) => {
                self.sent.pop_front();
                *delivered += 1;
            }
            ServerAnswer::Received(id) if self.qos == 2 && self.sent.front() == Some(&id) => {
                self.sent.pop_front();
                *delivered += 1;
                self.releasing.push_back(id);
                link.write(&packet::release(id))?;
            }
            ServerAnswer::Completed(id) => self.releasing.retain(|releasing| *releasing != id),
            // It was released before, and is told again.
            ServerAnswer::Received(id) if self.releasing.contains(&id) => link.write(&packet::release(id))?,
            _ => {}
        }
        Ok(())
    }
}

impl Destination for Client {
    fn connect(&mut self) -> io::Result<()> {
        self.link = None;
        let mut connection = connection::connect(&self.host, self.port, self.timeout)?;
        if let Some(config) = &self.tls {
            connection = connection.encrypt(&self.host, config)?;
        }
        let mut link = Link { connection, arrived: Vec::new(), last_sent: Instant::now(), pinged: None };
        if self.handshake(&mut link)? {
            for &id in &self.releasing {
                link.write(&packet::release(id))?;
            }
        } else {
            // The server knows nothing of these numbers.
            self.sent.clear();
            self.releasing.clear();
        }
        self.link = Some(link);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let too_long = |message: &String| message.len() + self.topic.len() + 4 > packet::MAX_REST;
        if let Some(delivered) = messages.iter().position(too_long) {
            if delivered > 0 {
                self.send(&messages[..delivered])?;
            }
            let error = io::Error::new(io::ErrorKind::InvalidInput, "a message is longer than MQTT has room for");
            return Err(Undelivered::refused(delivered, 1, error));
        }
        // An end that came meanwhile is noticed before anything is lost.
        self.tend()?;
        self.link.as_mut().ok_or_else(missing)?.connection.begin(ANSWERS * (messages.len() + self.releasing.len()));
        if self.qos == 0 { self.send_unconfirmed(messages) } else { self.send_confirmed(messages) }
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn tend(&mut self) -> io::Result<()> {
        let (keep_alive, timeout) = (Duration::from_secs(self.keep_alive.into()), self.timeout);
        let link = self.link.as_mut().ok_or_else(missing)?;
        link.connection.begin(0);
        loop {
            while let Some(answer) = link.arrived_answer()? {
                if let ServerAnswer::Completed(id) = answer {
                    self.releasing.retain(|releasing| *releasing != id);
                }
            }
            if !link.connection.receive_now(&mut link.arrived)? {
                break;
            }
        }
        if link.pinged.is_some_and(|pinged| pinged.elapsed() > timeout) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if link.pinged.is_none() && link.last_sent.elapsed() > keep_alive / 2 {
            link.pinged = Some(Instant::now());
            link.write(&packet::PING)?;
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some(mut link) = self.link.take() {
            let _ = link.write(&packet::DISCONNECT);
        }
    }
}
