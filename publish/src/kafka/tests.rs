// SPDX-License-Identifier: MPL-2.0
//! To the cluster of brokers that librdkafka has inside for tests.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use gsttrt_core::dylib;

use super::super::destinations;
use super::super::tests::scratch;
use super::library::KafkaMessage;
use super::*;

/// A function of librdkafka that only tests call. `T` is its type in `rdkafka.h` or `rdkafka_mock.h`.
fn function_of<T: Copy>(name: &str) -> T {
    // SAFETY: it is loaded already, and is never closed.
    let library = unsafe { dylib::open(Path::new("librdkafka.so.1")) }.map_err(|error| error.to_string()).unwrap();
    // SAFETY: whoever calls this names the type of the header.
    *unsafe { library.get::<T>(name.as_bytes()) }.unwrap()
}

macro_rules! function {
    ($name:ident($($kind:ty),*) -> $result:ty) => {
        function_of::<unsafe extern "C" fn($($kind),*) -> $result>(concat!(stringify!($name), "\0"))
    };
}

type Handle = *mut c_void;

/// A client with these settings: 0 is a producer, 1 a consumer.
fn client(kind: c_int, settings: &[(&str, &str)]) -> Handle {
    let mut text = [0; 512];
    // SAFETY: the texts end with 0, and the client takes the configuration.
    unsafe {
        let conf = function!(rd_kafka_conf_new() -> Handle)();
        for (key, value) in settings {
            let (key, value) = (CString::new(*key).unwrap(), CString::new(*value).unwrap());
            let set = function!(rd_kafka_conf_set(Handle, *const c_char, *const c_char, *mut c_char, usize) -> c_int);
            assert_eq!(set(conf, key.as_ptr(), value.as_ptr(), text.as_mut_ptr(), text.len()), 0, "{key:?}");
        }
        let new = function!(rd_kafka_new(c_int, Handle, *mut c_char, usize) -> Handle);
        let client = new(kind, conf, text.as_mut_ptr(), text.len());
        assert!(!client.is_null(), "{:?}", CStr::from_ptr(text.as_ptr()));
        client
    }
}

/// A broker with the topic `boxes`.
struct MockCluster {
    client: Handle,
    cluster: Handle,
    partitions: c_int,
    port: u16,
}

impl MockCluster {
    /// `None` where librdkafka is not installed.
    fn new() -> Option<Self> {
        Self::with_partitions(1)
    }

    fn with_partitions(partitions: c_int) -> Option<Self> {
        if let Err(error) = Librdkafka::get() {
            println!("SKIP: {}", error.message());
            return None;
        }
        let client = client(0, &[("log_level", "0")]);
        // SAFETY: the client is there as long as the cluster; the text of addresses is the cluster's.
        unsafe {
            let cluster = function!(rd_kafka_mock_cluster_new(Handle, c_int) -> Handle)(client, 1);
            let create = function!(rd_kafka_mock_topic_create(Handle, *const c_char, c_int, c_int) -> c_int);
            assert_eq!(create(cluster, c"boxes".as_ptr(), partitions, 1), 0);
            let servers = function!(rd_kafka_mock_cluster_bootstraps(Handle) -> *const c_char)(cluster);
            let servers = CStr::from_ptr(servers).to_str().unwrap();
            let port = servers.rsplit(':').next().unwrap().parse().unwrap();
            Some(MockCluster { client, cluster, partitions, port })
        }
    }

    /// The broker goes, with its connections, and comes back.
    fn restart(&self) {
        for call in [
            function!(rd_kafka_mock_broker_set_down(Handle, i32) -> c_int),
            function!(rd_kafka_mock_broker_set_up(Handle, i32) -> c_int),
        ] {
            // SAFETY: the cluster is there, with one broker.
            assert_eq!(unsafe { call(self.cluster, 1) }, 0);
        }
    }

    fn open(&self, timeout: Duration) -> Box<dyn Destination> {
        self.open_with_key(timeout, "")
    }

    fn open_with_key(&self, timeout: Duration, key: &str) -> Box<dyn Destination> {
        let location = format!("kafka://127.0.0.1:{}/boxes", self.port).into();
        let options = PublishOptions { location, timeout, key: key.into(), ..PublishOptions::default() };
        destinations::open(&options).unwrap().destination
    }

    /// The first messages of the topic.
    fn messages(&self, count: usize) -> Vec<String> {
        self.messages_with_partitions(count).into_iter().map(|(_, message)| message).collect()
    }

    fn messages_with_partitions(&self, count: usize) -> Vec<(i32, String)> {
        let servers = format!("127.0.0.1:{}", self.port);
        let consumer = client(1, &[("bootstrap.servers", &servers), ("group.id", "tests"), ("log_level", "0")]);
        const BEGINNING: i64 = -2; // RD_KAFKA_OFFSET_BEGINNING
        // SAFETY: all handles are of this consumer; what it gives is given back.
        unsafe {
            let list = function!(rd_kafka_topic_partition_list_new(c_int) -> Handle)(self.partitions);
            let from = function!(rd_kafka_topic_partition_list_set_offset(Handle, *const c_char, i32, i64) -> c_int);
            let add = function!(rd_kafka_topic_partition_list_add(Handle, *const c_char, i32) -> Handle);
            for partition in 0..self.partitions {
                add(list, c"boxes".as_ptr(), partition);
                assert_eq!(from(list, c"boxes".as_ptr(), partition, BEGINNING), 0);
            }
            assert_eq!(function!(rd_kafka_assign(Handle, Handle) -> c_int)(consumer, list), 0);
            function!(rd_kafka_topic_partition_list_destroy(Handle) -> ())(list);
            let poll = function!(rd_kafka_consumer_poll(Handle, c_int) -> *mut KafkaMessage);
            let destroy = function!(rd_kafka_message_destroy(*mut KafkaMessage) -> ());
            let mut messages = Vec::new();
            while messages.len() < count {
                let message = poll(consumer, 30_000);
                assert!(!message.is_null(), "another message behind {messages:?}");
                if (*message).error == 0 {
                    let bytes = std::slice::from_raw_parts((*message).payload.cast(), (*message).length);
                    messages.push(((*message).partition, String::from_utf8(bytes.to_vec()).unwrap()));
                }
                destroy(message);
            }
            function!(rd_kafka_consumer_close(Handle) -> c_int)(consumer);
            function!(rd_kafka_destroy(Handle) -> ())(consumer);
            messages
        }
    }
}

impl Drop for MockCluster {
    fn drop(&mut self) {
        // SAFETY: nobody has them afterwards.
        unsafe {
            function!(rd_kafka_mock_cluster_destroy(Handle) -> ())(self.cluster);
            function!(rd_kafka_destroy(Handle) -> ())(self.client);
        }
    }
}

const LONG: Duration = Duration::from_secs(10);

#[test]
fn messages_reach_the_mock_cluster_in_order() {
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = cluster.open(LONG);
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
    let mut kafka = cluster.open(LONG);
    kafka.connect().unwrap();
    for some in messages[..100].chunks(7) {
        kafka.send(some).unwrap();
    }
    // Those with one key are in one partition, in order.
    let mut kafka = cluster.open_with_key(LONG, "gate");
    kafka.connect().unwrap();
    kafka.send(&messages[100..]).unwrap();
    let found = cluster.messages_with_partitions(200);
    let (spread, keyed): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, message)| *message < messages[100]);
    assert!(keyed.iter().all(|(partition, _)| *partition == keyed[0].0), "{keyed:?}");
    assert!(keyed.iter().map(|(_, message)| message).eq(&messages[100..]));
    let mut spread: Vec<String> = spread.into_iter().map(|(_, message)| message).collect();
    spread.sort_unstable();
    assert_eq!(spread, messages[..100]);
}

/// It would be sent again and again, and keep back all that follow.
#[test]
fn a_message_that_is_too_long_is_refused_for_good() {
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = cluster.open(LONG);
    kafka.connect().unwrap();
    let undelivered = kafka.send(&["x".repeat(2 << 20)]).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (0, 1), "{}", undelivered.error);
    assert!(kafka.send(&["{}".into()]).is_ok());
}

/// The client is given up with what it has not delivered, and does not wait for the broker.
#[test]
fn what_is_under_way_is_given_up_at_the_end() {
    let Some(cluster) = MockCluster::new() else { return };
    let mut kafka = cluster.open(Duration::from_millis(200));
    kafka.connect().unwrap();
    // SAFETY: the cluster is there, with one broker.
    unsafe { function!(rd_kafka_mock_broker_set_down(Handle, i32) -> c_int)(cluster.cluster, 1) };
    let undelivered = kafka.send(&["{}".into(), "{}".into()]).unwrap_err();
    assert_eq!((undelivered.delivered, undelivered.rejected), (0, 0), "{}", undelivered.error);
    drop(kafka);
}

fn has_library() -> bool {
    Librdkafka::get().map_err(|error| println!("SKIP: {}", error.message())).is_ok()
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    if !has_library() {
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
    if !has_library() {
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
