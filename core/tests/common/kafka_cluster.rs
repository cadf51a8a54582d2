// SPDX-License-Identifier: MPL-2.0
//! The cluster of brokers that librdkafka has inside for tests, with the topic `boxes`.
#![allow(dead_code)] // each test program uses a part

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use gsttrt_core::dylib;

const LIBRARY: &str = "librdkafka.so.1";

/// `rd_kafka_message_t`.
#[repr(C)]
struct ReceivedMessage {
    error: c_int,
    topic: *mut c_void,
    partition: i32,
    payload: *const c_void,
    length: usize,
    key: *const c_void,
    key_length: usize,
    offset: i64,
    opaque: *mut c_void,
}

/// What a consumer finds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundMessage {
    pub partition: i32,
    pub key: String,
    pub text: String,
}

/// Whether the library is installed; else it is said.
pub fn has_librdkafka() -> bool {
    // SAFETY: its initialisation does nothing but that of a library.
    let found = unsafe { dylib::open(Path::new(LIBRARY)) };
    found.map_err(|error| println!("SKIP: {error}")).is_ok()
}

/// A function of librdkafka that only tests call. `T` is its type in `rdkafka.h` or `rdkafka_mock.h`.
fn function_of<T: Copy>(name: &str) -> T {
    // SAFETY: it is loaded already, and is never closed.
    let library = unsafe { dylib::open(Path::new(LIBRARY)) }.map_err(|error| error.to_string()).unwrap();
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
pub struct MockCluster {
    client: Handle,
    cluster: Handle,
    partitions: c_int,
    pub port: u16,
}

impl MockCluster {
    /// `None` where librdkafka is not installed.
    pub fn new() -> Option<Self> {
        Self::with_partitions(1)
    }

    pub fn with_partitions(partitions: c_int) -> Option<Self> {
        if !has_librdkafka() {
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

    /// The broker goes, and does not come back.
    pub fn end(&self) {
        // SAFETY: the cluster is there, with one broker.
        assert_eq!(unsafe { function!(rd_kafka_mock_broker_set_down(Handle, i32) -> c_int)(self.cluster, 1) }, 0);
    }

    /// The broker goes, with its connections, and comes back.
    pub fn restart(&self) {
        for call in [
            function!(rd_kafka_mock_broker_set_down(Handle, i32) -> c_int),
            function!(rd_kafka_mock_broker_set_up(Handle, i32) -> c_int),
        ] {
            // SAFETY: the cluster is there, with one broker.
            assert_eq!(unsafe { call(self.cluster, 1) }, 0);
        }
    }

    /// The next request with messages is answered with that error.
    pub fn refuse_messages(&self, error: c_int) {
        const PRODUCE: i16 = 0; // its ApiKey
        let push = function!(rd_kafka_mock_push_request_errors_array(Handle, i16, usize, *const c_int) -> ());
        // SAFETY: the cluster is there, and copies the one error.
        unsafe { push(self.cluster, PRODUCE, 1, &raw const error) };
    }

    /// The first messages of the topic.
    pub fn messages(&self, count: usize) -> Vec<String> {
        self.found(count).into_iter().map(|found| found.text).collect()
    }

    pub fn found(&self, count: usize) -> Vec<FoundMessage> {
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
            let poll = function!(rd_kafka_consumer_poll(Handle, c_int) -> *mut ReceivedMessage);
            let destroy = function!(rd_kafka_message_destroy(*mut ReceivedMessage) -> ());
            let mut messages = Vec::new();
            while messages.len() < count {
                let message = poll(consumer, 30_000);
                assert!(!message.is_null(), "another message behind {messages:?}");
                if (*message).error == 0 {
                    let text = |bytes: *const c_void, length| match length {
                        0 => String::new(),
                        _ => String::from_utf8(std::slice::from_raw_parts(bytes.cast(), length).to_vec()).unwrap(),
                    };
                    messages.push(FoundMessage {
                        partition: (*message).partition,
                        key: text((*message).key, (*message).key_length),
                        text: text((*message).payload, (*message).length),
                    });
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
