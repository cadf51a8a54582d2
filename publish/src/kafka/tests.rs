// SPDX-License-Identifier: MPL-2.0
//! To the cluster of brokers that librdkafka has inside for tests.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::super::destinations;
use super::super::tests::scratch;
use super::*;

#[path = "../../../core/tests/common/kafka_cluster.rs"]
mod kafka_cluster;

use kafka_cluster::{MockCluster, has_librdkafka};

fn open(cluster: &MockCluster, timeout: Duration) -> Box<dyn Destination> {
    open_with_key(cluster, timeout, "")
}

fn open_with_key(cluster: &MockCluster, timeout: Duration, key: &str) -> Box<dyn Destination> {
    let location = format!("kafka://127.0.0.1:{}/boxes", cluster.port).into();
    let options = PublishOptions { location, timeout, key: key.into(), ..PublishOptions::default() };
    destinations::open(&options).unwrap().destination
}

const LONG: Duration = Duration::from_secs(10);

#[test]
fn messages_reach_the_mock_cluster_in_order() {
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = open(&cluster, LONG);
    kafka.connect().unwrap();
    let messages: Vec<String> = (0..50).map(|number| format!("{{\"frame\":{number}}}")).collect();
    kafka.send(&messages[..20]).unwrap();
    cluster.restart();
    let mut sent = 20;
    while sent < messages.len() {
        match kafka.connect().map_err(Undelivered::from).and_then(|()| kafka.send(&messages[sent..])) {
            Ok(()) => sent = messages.len(),
            Err(failure) => sent += failure.delivered,
        }
    }
    assert_eq!(cluster.messages(50), messages);
}

/// Answers come in the order of each partition.
#[test]
fn several_partitions_are_served() {
    let Some(cluster) = MockCluster::with_partitions(4) else { return };
    let messages: Vec<String> = (0..200).map(|number| format!("{{\"frame\":{number:03}}}")).collect();
    let mut kafka = open(&cluster, LONG);
    kafka.connect().unwrap();
    for some in messages[..100].chunks(7) {
        kafka.send(some).unwrap();
    }
    // Those with one key are in one partition, in order.
    let mut kafka = open_with_key(&cluster, LONG, "gate");
    kafka.connect().unwrap();
    kafka.send(&messages[100..]).unwrap();
    let found = cluster.found(200);
    let (spread, keyed): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.text < messages[100]);
    assert!(keyed.iter().all(|found| found.partition == keyed[0].partition && found.key == "gate"), "{keyed:?}");
    assert!(keyed.iter().map(|found| &found.text).eq(&messages[100..]));
    assert!(spread.iter().all(|found| found.key.is_empty()), "{spread:?}");
    let mut spread: Vec<String> = spread.into_iter().map(|found| found.text).collect();
    spread.sort_unstable();
    assert_eq!(spread, messages[..100]);
}

/// It would be sent again and again, and keep back all that follow.
#[test]
fn a_message_that_is_too_long_is_refused_for_good() {
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = open(&cluster, LONG);
    kafka.connect().unwrap();
    let undelivered = kafka.send(&["x".repeat(2 << 20)]).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (0, 1), "{}", undelivered.error);
    assert!(kafka.send(&["{}".into()]).is_ok());
}

/// Brokers have limits of their own, also for messages that come together.
#[test]
fn what_a_broker_refuses_as_too_long_is_not_sent_for_ever() {
    const MESSAGE_TOO_LARGE: i32 = 10; // RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = open(&cluster, LONG);
    kafka.connect().unwrap();
    cluster.refuse_messages(MESSAGE_TOO_LARGE);
    let undelivered = kafka.send(&["0".into()]).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (0, 1), "{}", undelivered.error);
    kafka.send(&["1".into()]).unwrap();
    cluster.refuse_messages(MESSAGE_TOO_LARGE);
    kafka.send(&["2".into(), "3".into()]).unwrap();
    assert_eq!(cluster.messages(1), ["1"]);
}

/// The client is given up with what it has not delivered, and does not wait for the broker.
#[test]
fn what_is_under_way_is_given_up_at_the_end() {
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = open(&cluster, Duration::from_millis(200));
    kafka.connect().unwrap();
    cluster.end();
    let undelivered = kafka.send(&["{}".into(), "{}".into()]).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (0, 0), "{}", undelivered.error);
    drop(kafka);
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    if !has_librdkafka() {
        return;
    }
    // Nobody listens there, since it is ours.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("kafka://127.0.0.2:{}/boxes", taken.local_addr().unwrap().port());
    let options =
        PublishOptions { location: location.into(), timeout: Duration::from_secs(1), ..PublishOptions::default() };
    let mut kafka = destinations::open(&options).unwrap().destination;
    let error = kafka.connect().unwrap_err().to_string();
    assert!(error.contains("127.0.0.2") && error.contains("refused"), "{error}");
}

#[test]
fn what_librdkafka_does_not_know_is_told_at_once() {
    if !has_librdkafka() {
        return;
    }
    let location = "kafka://me:hunter2@127.0.0.1/boxes?sasl-mechanism=GUESSING".into();
    let error = destinations::open(&PublishOptions { location, ..PublishOptions::default() }).map(drop).unwrap_err();
    let said = format!("{} {}", error.message(), error.cause_text());
    assert!(said.contains("GUESSING") && !said.contains("hunter2"), "{said}");
}

/// TLS before the mock cluster, which has none. It wants a certificate of its clients.
struct Front {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Front {
    fn new(folder: &Path, cluster: &MockCluster) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/common/kafka_tls.py");
        let mut command = Command::new("python3");
        command.args([script, &cluster.port.to_string(), "own.pem", "own.key"]).current_dir(folder);
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
    let Some(cluster) = MockCluster::new() else { return };
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
        let mut kafka = destinations::open(&options).unwrap().destination;
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

#[test]
fn a_topic_is_needed() {
    for location in ["kafka://host", "kafka://host/a%20b"] {
        let options = PublishOptions { location: location.into(), ..PublishOptions::default() };
        let error = destinations::open(&options).map(drop).unwrap_err();
        assert!(error.message().contains("no topic"), "{error}");
    }
}
