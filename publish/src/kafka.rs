// SPDX-License-Identifier: MPL-2.0
//! `kafka://` and `kafkas://`: messages of a topic, by librdkafka. It numbers them, so that a broker writes each once
//! and in order.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind, Result};
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use super::address::{Address, Secret};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

/// What brokers have answered: the number of each message, and what was wrong with it.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<(usize, Option<KafkaError>)>>>);

impl ClientContext for Answers {}

impl ProducerContext for Answers {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        self.0.lock().unwrap().push((*number, error));
    }
}

struct Kafka {
    config: ClientConfig,
    topic: String,
    timeout: Duration,
    answers: Answers,
    producer: Option<BaseProducer<Answers>>,
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
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("{}:{}", address.host, address.port.unwrap_or(9092)));
    config.set("client.id", "trtpublish").set("enable.idempotence", "true").set("log_level", "0");
    config.set("message.timeout.ms", options.timeout.as_millis().clamp(1, 2_000_000_000).to_string());
    config.set("linger.ms", "0").set("socket.keepalive.enable", "true");
    if address.scheme == "kafkas" {
        for (key, file) in [
            ("ssl.ca.location", &options.ca_file),
            ("ssl.certificate.location", &options.cert_file),
            ("ssl.key.location", &options.key_file),
        ] {
            if let Some(file) = file {
                config.set(key, file.display().to_string());
            }
        }
    }
    let has_user = address.user.is_some();
    config.set(
        "security.protocol",
        match (address.scheme == "kafkas", has_user) {
            (false, false) => "plaintext",
            (true, false) => "ssl",
            (false, true) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        },
    );
    if let Some(user) = &address.user {
        config.set("sasl.mechanism", parameters.text("sasl-mechanism").unwrap_or("PLAIN"));
        config.set("sasl.username", user).set("sasl.password", address.password.as_ref().map_or("", Secret::reveal));
    }
    let kafka = Kafka {
        config,
        topic: address.path.clone(),
        timeout: options.timeout,
        answers: Answers::default(),
        producer: None,
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
    fn producer(&self) -> std::result::Result<BaseProducer<Answers>, KafkaError> {
        BaseProducer::from_config_and_context(&self.config, self.answers.clone())
    }

    /// Queues the messages with librdkafka; returns how many it took.
    fn queue(&self, producer: &BaseProducer<Answers>, messages: &[String]) -> usize {
        let refused = messages.iter().enumerate().position(|(number, message)| {
            let record =
                BaseRecord::<(), str, Box<usize>>::with_opaque_to(&self.topic, Box::new(number)).payload(message);
            producer.send(record).is_err()
        });
        refused.unwrap_or(messages.len())
    }
}

impl Destination for Kafka {
    fn connect(&mut self) -> io::Result<()> {
        // It connects again by itself, and keeps the numbers of messages that way.
        if self.producer.is_none() {
            self.producer = Some(self.producer().map_err(io::Error::other)?);
        }
        let producer = self.producer.as_ref().expect("just made");
        producer.client().fetch_metadata(Some(&self.topic), self.timeout).map(drop).map_err(io::Error::other)
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let producer = self.producer.as_ref().ok_or(io::Error::from(io::ErrorKind::NotConnected))?;
        self.answers.0.lock().unwrap().clear();
        let queued = self.queue(producer, messages);
        // librdkafka tells the fate of each message within the timeout; a little more is for the telling.
        let deadline = Instant::now() + self.timeout + Duration::from_secs(1);
        while self.answers.0.lock().unwrap().len() < queued && Instant::now() < deadline {
            producer.poll(Duration::from_millis(100));
        }
        let mut answers = std::mem::take(&mut *self.answers.0.lock().unwrap());
        answers.sort_by_key(|(number, _)| *number);
        let is_delivered =
            |(at, (number, error)): &(usize, &(usize, Option<KafkaError>))| at == number && error.is_none();
        let delivered = answers.iter().enumerate().take_while(is_delivered).count();
        if delivered == messages.len() {
            return Ok(());
        }
        let error = answers.into_iter().nth(delivered).and_then(|(_, error)| error);
        let error =
            error.map_or(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"), io::Error::other);
        // What it may have left in its own queue must not come later.
        self.producer = None;
        Err(Undelivered::after(delivered, error))
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::{BaseConsumer, Consumer};
    use rdkafka::message::Message;
    use rdkafka::mocking::MockCluster;

    use super::*;

    #[test]
    fn messages_reach_the_mock_cluster_in_order() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("boxes", 1, 1).unwrap();
        let servers = cluster.bootstrap_servers();
        let options = PublishOptions {
            location: format!("kafka://{}/boxes", servers.replace("localhost", "127.0.0.1")),
            timeout: Duration::from_secs(10),
            ..PublishOptions::default()
        };
        let mut kafka = super::super::destinations::open(&options).unwrap().destination;
        kafka.connect().unwrap();
        let messages: Vec<String> = (0..50).map(|number| format!("{{\"frame\":{number}}}")).collect();
        kafka.send(&messages[..20]).unwrap();
        cluster.broker_down(1).unwrap();
        cluster.broker_up(1).unwrap();
        let mut sent = 20;
        while sent < messages.len() {
            match kafka.connect().map_err(Undelivered::from).and_then(|()| kafka.send(&messages[sent..])) {
                Ok(()) => sent = messages.len(),
                Err(failure) => sent += failure.delivered,
            }
        }
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &servers)
            .set("group.id", "tests")
            .set("auto.offset.reset", "earliest")
            .create()
            .unwrap();
        consumer.subscribe(&["boxes"]).unwrap();
        let next = || loop {
            if let Some(Ok(message)) = consumer.poll(Duration::from_secs(30)) {
                return String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
            }
        };
        let received: Vec<String> = (0..50).map(|_| next()).collect();
        assert_eq!(received, messages);
    }

    #[test]
    fn a_topic_is_needed() {
        for location in ["kafka://host", "kafka://host/a%20b"] {
            let options = PublishOptions { location: location.into(), ..PublishOptions::default() };
            let error = super::super::destinations::open(&options).map(|_| ()).unwrap_err();
            assert!(error.message().contains("no topic"), "{error}");
        }
    }
}
