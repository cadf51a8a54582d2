// SPDX-License-Identifier: MPL-2.0
//! `kafka://` and `kafkas://`: messages of a topic, by librdkafka. It numbers them, so that a broker writes each once
//! and in order. It is kept over failures, with what it has queued: another one would begin its numbers again.

mod library;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind, Result};

use self::library::{KafkaError, KafkaProducer, Librdkafka};
use super::address::{Address, Secret};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

struct Kafka {
    library: &'static Librdkafka,
    settings: Vec<(&'static str, String)>,
    topic: String,
    timeout: Duration,
    key: String,
    producer: Option<KafkaProducer>,
    /// The next messages that the producer has already, and whether they have arrived: they do so in the order of their
    /// partition alone. They have numbers from the first on.
    queued: VecDeque<bool>,
    first: usize,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let parameters = address.parameters(&["sasl-mechanism"])?;
    let is_topic = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if address.path.is_empty() || address.path.len() > 249 || !address.path.chars().all(is_topic) {
        return Err(Error::new(
            ErrorKind::Settings,
            "There is no topic in location, or one with characters other than letters, digits, . _ and -",
        )
        .remedy("Write kafka://host:9092/topic"));
    }
    let library = Librdkafka::get()?;
    let mut settings = vec![
        ("bootstrap.servers", format!("{}:{}", address.host, address.port.unwrap_or(9092))),
        ("client.id", "trtpublish".into()),
        ("enable.idempotence", "true".into()),
        ("log_level", "0".into()),
        // What the producer has it sends until it has arrived, so that nothing is numbered twice.
        ("message.timeout.ms", "0".into()),
        ("socket.timeout.ms", options.timeout.as_millis().clamp(10, 300_000).to_string()),
        // Answers tell of a topic and of batches.
        ("receive.message.max.bytes", (4 << 20).to_string()),
        ("linger.ms", "0".into()),
        // As Java's clients have it. Without a key it is any partition.
        ("partitioner", "murmur2_random".into()),
        ("socket.keepalive.enable", "true".into()),
    ];
    if address.scheme == "kafkas" {
        for (key, file) in [
            ("ssl.ca.location", &options.ca_file),
            ("ssl.certificate.location", &options.cert_file),
            ("ssl.key.location", &options.key_file),
        ] {
            settings.extend(file.as_ref().map(|file| (key, file.display().to_string())));
        }
    }
    let protocol = match (address.scheme == "kafkas", address.user.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    settings.push(("security.protocol", protocol.into()));
    if let Some(user) = &address.user {
        settings.push(("sasl.mechanism", parameters.text("sasl-mechanism").unwrap_or("PLAIN").into()));
        settings.push(("sasl.username", user.clone()));
        settings.push(("sasl.password", address.password.as_ref().map_or("", Secret::reveal).into()));
    }
    let kafka = Kafka {
        library,
        settings,
        topic: address.path.clone(),
        timeout: options.timeout,
        key: options.key.clone(),
        producer: None,
        queued: VecDeque::new(),
        first: 0,
    };
    // Nothing is connected by that; what librdkafka does not understand is known now.
    kafka.producer().map_err(|error| {
        Error::new(ErrorKind::Settings, format!("Cannot make a client for {}", address.shown()))
            .cause(error)
            .remedy("Check location and the files of certificates")
    })?;
    Ok(Box::new(kafka))
}

impl Kafka {
    fn producer(&self) -> std::result::Result<KafkaProducer, KafkaError> {
        KafkaProducer::new(self.library, &self.settings, &self.topic)
    }

    /// Gives the messages that the producer does not have yet to it, as far as it takes them.
    ///
    /// # Errors
    /// It does not take the first of them.
    fn queue(&mut self, messages: &[String]) -> std::result::Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Ok(()) };
        while let Some(message) = messages.get(self.queued.len()) {
            match producer.send(message, &self.key, self.first + self.queued.len()) {
                Ok(()) => self.queued.push_back(false),
                Err(error) if self.queued.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Takes the next answers; `delivered` counts the messages that have arrived, up to the first that has not.
    ///
    /// # Errors
    /// What was first wrong with one of them.
    fn take_answers(&mut self, delivered: &mut usize) -> std::result::Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Ok(()) };
        let mut failure = None;
        for (number, error) in producer.answers(Duration::from_millis(100)) {
            if error.is_some() {
                failure = failure.or(error);
                continue;
            }
            if let Some(has_arrived) = number.checked_sub(self.first).and_then(|place| self.queued.get_mut(place)) {
                *has_arrived = true;
            }
            while self.queued.front() == Some(&true) {
                self.queued.pop_front();
                (self.first, *delivered) = (self.first + 1, *delivered + 1);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// After an error that is for good: another producer, whose numbers begin again.
    fn abandon(&mut self) {
        self.producer = None;
        self.queued.clear();
    }
}

impl Destination for Kafka {
    fn connect(&mut self) -> io::Result<()> {
        // It connects again by itself, and keeps what it has and the numbers of messages.
        if self.producer.is_none() {
            self.producer = Some(self.producer().map_err(io::Error::other)?);
        }
        let producer = self.producer.as_ref().expect("just made");
        producer.ask_for_topic(self.timeout).map_err(io::Error::other)
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        // A message that was refused has ended the producer.
        if self.producer.is_none() {
            self.connect()?;
        }
        let deadline = Instant::now() + self.timeout;
        let mut delivered = 0;
        while delivered < messages.len() {
            if let Err(error) = self.queue(&messages[delivered..]) {
                let rejected = error.is_too_long.into();
                return Err(Undelivered::refused(delivered, rejected, io::Error::other(error)));
            }
            if let Err(error) = self.take_answers(&mut delivered) {
                self.abandon();
                let (is_too_long, error) = (error.is_too_long, io::Error::other(error));
                if !is_too_long || messages.len() == 1 {
                    return Err(Undelivered::refused(delivered, is_too_long.into(), error));
                }
                // It may be all of them together. Which one it is shows if they go one by one.
                for (number, message) in messages.iter().enumerate().skip(delivered) {
                    let sent = self.send(std::slice::from_ref(message));
                    sent.map_err(|one| Undelivered { delivered: number + one.delivered, ..one })?;
                }
                return Ok(());
            }
            if delivered < messages.len() && Instant::now() >= deadline {
                return Err(Undelivered::after(delivered, io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }
}
