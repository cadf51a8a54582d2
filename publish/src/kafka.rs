// SPDX-License-Identifier: MPL-2.0
//! `kafka://` and `kafkas://`: messages of a topic, by librdkafka. It numbers them, so that a broker writes each once
//! and in order. It is kept over failures, with what it has queued: another one would begin its numbers again.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind, Result};
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext, PurgeConfig};

use super::address::{Address, Secret};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

/// The number of a message, and what was wrong with it.
type Answer = (usize, Option<KafkaError>);

/// What brokers have answered.
#[derive(Clone, Default)]
struct Answers {
    of_messages: Arc<Mutex<Vec<Answer>>>,
    /// What was first wrong with a connection, in words. The call that waited for it tells only that it failed.
    no_connection: Arc<Mutex<Option<String>>>,
}

impl ClientContext for Answers {
    fn error(&self, _: KafkaError, reason: &str) {
        self.no_connection.lock().unwrap().get_or_insert_with(|| reason.to_owned());
    }
}

impl ProducerContext for Answers {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        self.of_messages.lock().unwrap().push((*number, error));
    }
}

struct Kafka {
    config: ClientConfig,
    topic: String,
    timeout: Duration,
    answers: Answers,
    producer: Option<BaseProducer<Answers>>,
    /// So many of the next messages the producer has already. They have numbers from the first on.
    queued: usize,
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
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("{}:{}", address.host, address.port.unwrap_or(9092)));
    config.set("client.id", "trtpublish").set("enable.idempotence", "true").set("log_level", "0");
    // What the producer has it sends until it has arrived, so that nothing is numbered twice.
    config.set("message.timeout.ms", "0");
    config.set("socket.timeout.ms", options.timeout.as_millis().clamp(10, 300_000).to_string());
    // Answers tell of a topic and of batches.
    config.set("receive.message.max.bytes", (4 << 20).to_string());
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
        queued: 0,
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
    fn producer(&self) -> std::result::Result<BaseProducer<Answers>, KafkaError> {
        BaseProducer::from_config_and_context(&self.config, self.answers.clone())
    }

    /// Gives the messages that the producer does not have yet to it, as far as it takes them.
    ///
    /// # Errors
    /// It does not take the first of them.
    fn queue(&mut self, messages: &[String]) -> std::result::Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Ok(()) };
        while let Some(message) = messages.get(self.queued) {
            let number = Box::new(self.first + self.queued);
            let record = BaseRecord::<(), str, Box<usize>>::with_opaque_to(&self.topic, number).payload(message);
            match producer.send(record) {
                Ok(()) => self.queued += 1,
                Err((error, _)) if self.queued == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Takes the next answers; `delivered` counts the messages that have arrived.
    fn take_answers(&mut self, delivered: &mut usize) -> std::result::Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Ok(()) };
        producer.poll(Duration::from_millis(100));
        for (number, error) in std::mem::take(&mut *self.answers.of_messages.lock().unwrap()) {
            match error {
                Some(error) => return Err(error),
                // They come in order.
                None if number == self.first => {
                    (self.first, self.queued, *delivered) = (self.first + 1, self.queued - 1, *delivered + 1);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// After an error that is for good: another producer, whose numbers begin again.
    fn abandon(&mut self) {
        if let Some(producer) = self.producer.take() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
        self.answers = Answers::default();
        self.queued = 0;
    }
}

impl Destination for Kafka {
    fn connect(&mut self) -> io::Result<()> {
        // It connects again by itself, and keeps what it has and the numbers of messages.
        if self.producer.is_none() {
            self.producer = Some(self.producer().map_err(io::Error::other)?);
        }
        let producer = self.producer.as_ref().expect("just made");
        *self.answers.no_connection.lock().unwrap() = None;
        producer.client().fetch_metadata(Some(&self.topic), self.timeout).map(drop).map_err(|error| {
            // As many events as wait: with no time at all it would be one.
            producer.poll(Duration::from_millis(10));
            let reason = self.answers.no_connection.lock().unwrap().take();
            reason.map_or_else(|| io::Error::other(error), io::Error::other)
        })
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let deadline = Instant::now() + self.timeout;
        let mut delivered = 0;
        while delivered < messages.len() {
            if let Err(error) = self.queue(&messages[delivered..]) {
                let is_too_long = error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge);
                return Err(Undelivered { delivered, rejected: is_too_long.into(), error: io::Error::other(error) });
            }
            if let Err(error) = self.take_answers(&mut delivered) {
                self.abandon();
                return Err(Undelivered::after(delivered, io::Error::other(error)));
            }
            if delivered < messages.len() && Instant::now() >= deadline {
                return Err(Undelivered::after(delivered, io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
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
            location: format!("kafka://{}/boxes", servers.replace("localhost", "127.0.0.1")).into(),
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

    /// It would be sent again and again, and keep back all that follow.
    #[test]
    fn a_message_that_is_too_long_is_refused_for_good() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("boxes", 1, 1).unwrap();
        let options = PublishOptions {
            location: format!("kafka://{}/boxes", cluster.bootstrap_servers().replace("localhost", "127.0.0.1")).into(),
            timeout: Duration::from_secs(10),
            ..PublishOptions::default()
        };
        let mut kafka = super::super::destinations::open(&options).unwrap().destination;
        kafka.connect().unwrap();
        let undelivered = kafka.send(&["x".repeat(2 << 20)]).unwrap_err();
        assert_eq!((undelivered.delivered, undelivered.rejected), (0, 1), "{}", undelivered.error);
        assert!(kafka.send(&["{}".into()]).is_ok());
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_named() {
        // Nobody listens there, since it is ours.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let location = format!("kafka://127.0.0.2:{}/boxes", taken.local_addr().unwrap().port());
        let options =
            PublishOptions { location: location.into(), timeout: Duration::from_secs(1), ..PublishOptions::default() };
        let mut kafka = super::super::destinations::open(&options).unwrap().destination;
        let error = kafka.connect().unwrap_err().to_string();
        assert!(error.contains("127.0.0.2") && error.contains("refused"), "{error}");
    }

    #[cfg(feature = "kafka-tls")]
    mod tls {
        use std::io::{BufRead, BufReader, Lines};
        use std::path::Path;
        use std::process::{Child, ChildStdout, Command, Stdio};

        use super::super::super::tests::scratch;
        use super::*;

        /// TLS before the mock cluster, which has none. It wants a certificate of its clients.
        struct Front {
            child: Child,
            lines: Lines<BufReader<ChildStdout>>,
            port: u16,
        }

        impl Front {
            fn new(folder: &Path, cluster: &MockCluster<'_, impl ClientContext>) -> Self {
                let servers = cluster.bootstrap_servers();
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/common/kafka_tls.py");
                let mut command = Command::new("python3");
                command.args([script, servers.rsplit(':').next().unwrap(), "own.pem", "own.key"]).current_dir(folder);
                let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
                let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
                let port = lines.next().unwrap().unwrap().parse().unwrap();
                Front { child, lines, port }
            }
        }

        impl Drop for Front {
            fn drop(&mut self) {
                let _ = self.child.kill();
                self.child.wait().unwrap();
            }
        }

        /// As `openssl req -x509` makes it for a server: `NAME.pem` and `NAME.key`. Nothing where there is no openssl.
        fn make_certificate(folder: &Path, name: &str) -> Option<()> {
            let arguments = format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN={name} \
                 -addext subjectAltName=DNS:localhost -keyout {name}.key -out {name}.pem"
            );
            let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().ok()?;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(())
        }

        #[test]
        fn messages_are_encrypted_and_servers_are_checked() {
            let folder = scratch("publish-kafka-tls");
            if make_certificate(&folder, "own").and_then(|()| make_certificate(&folder, "other")).is_none() {
                println!("SKIP: openssl is not installed.");
                return;
            }
            let cluster = MockCluster::new(1).unwrap();
            cluster.create_topic("boxes", 1, 1).unwrap();
            let mut front = Front::new(&folder, &cluster);
            let connected = |host: &str, authority: Option<&str>, own: Option<&str>, seconds: u64| {
                let file = |name: &str, ending: &str| Some(folder.join(format!("{name}.{ending}")));
                let options = PublishOptions {
                    location: format!("kafkas://{host}:{}/boxes", front.port).into(),
                    ca_file: authority.and_then(|name| file(name, "pem")),
                    cert_file: own.and_then(|name| file(name, "pem")),
                    key_file: own.and_then(|name| file(name, "key")),
                    timeout: Duration::from_secs(seconds),
                    ..PublishOptions::default()
                };
                let mut kafka = super::super::super::destinations::open(&options).unwrap().destination;
                kafka.connect().map(|()| kafka).map_err(|error| error.to_string())
            };
            let mut kafka = connected("localhost", Some("own"), Some("own"), 30).unwrap();
            kafka.send(&["{}".into(), "{}".into()]).unwrap();
            assert_eq!(front.lines.next().unwrap().unwrap(), "own");
            // Of an unknown authority, of another name, and without a certificate of the client, which the server does not explain.
            for (host, authority, own, says) in [
                ("localhost", Some("other"), Some("own"), "certificate"),
                ("localhost", None, Some("own"), "certificate"),
                ("127.0.0.1", Some("own"), Some("own"), "certificate"),
                ("localhost", Some("own"), None, ""),
            ] {
                let error = connected(host, authority, own, 3).map(drop).unwrap_err();
                assert!(error.contains(says), "{host} {authority:?} {own:?}: {error}");
            }
        }
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
