// SPDX-License-Identifier: MPL-2.0
//! librdkafka, found at run time: its functions, with the types that `rdkafka.h` declares, and a producer over them.
//!
//! Its interface is the same in all releases of `librdkafka.so.1` from 1.0 on. Callbacks are called in [`KafkaProducer::poll`]
//! alone.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use gsttrt_core::dylib::{self, Attempts, LoadFailure};
use gsttrt_core::error::Result;

/// What C knows as `rd_kafka_conf_t`, `rd_kafka_t` and `rd_kafka_topic_t`.
type ConfHandle = *mut c_void;
type ClientHandle = *mut c_void;
type TopicHandle = *mut c_void;

/// `rd_kafka_message_t`.
#[repr(C)]
pub struct KafkaMessage {
    pub error: c_int,
    topic: TopicHandle,
    pub partition: i32,
    pub payload: *const c_void,
    pub length: usize,
    key: *const c_void,
    key_length: usize,
    offset: i64,
    /// Of a producer: what was given with the message.
    opaque: *mut c_void,
}

type Delivered = unsafe extern "C" fn(ClientHandle, *const KafkaMessage, *mut c_void);
type Failed = unsafe extern "C" fn(ClientHandle, c_int, *const c_char, *mut c_void);

const PRODUCER: c_int = 0; // RD_KAFKA_PRODUCER
const CONF_OK: c_int = 0;
const ANY_PARTITION: i32 = -1; // RD_KAFKA_PARTITION_UA
const COPY: c_int = 2; // RD_KAFKA_MSG_F_COPY
const QUEUED_AND_IN_FLIGHT: c_int = 1 | 2; // RD_KAFKA_PURGE_F_QUEUE, RD_KAFKA_PURGE_F_INFLIGHT
const MESSAGE_TOO_LARGE: c_int = 10; // RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE

pub struct Librdkafka {
    conf_new: unsafe extern "C" fn() -> ConfHandle,
    conf_destroy: unsafe extern "C" fn(ConfHandle),
    conf_set: unsafe extern "C" fn(ConfHandle, *const c_char, *const c_char, *mut c_char, usize) -> c_int,
    conf_set_delivered: unsafe extern "C" fn(ConfHandle, Delivered),
    conf_set_failed: unsafe extern "C" fn(ConfHandle, Failed),
    conf_set_opaque: unsafe extern "C" fn(ConfHandle, *mut c_void),
    new: unsafe extern "C" fn(c_int, ConfHandle, *mut c_char, usize) -> ClientHandle,
    destroy: unsafe extern "C" fn(ClientHandle),
    poll: unsafe extern "C" fn(ClientHandle, c_int) -> c_int,
    purge: unsafe extern "C" fn(ClientHandle, c_int) -> c_int,
    topic_new: unsafe extern "C" fn(ClientHandle, *const c_char, *mut c_void) -> TopicHandle,
    topic_destroy: unsafe extern "C" fn(TopicHandle),
    produce:
        unsafe extern "C" fn(TopicHandle, i32, c_int, *mut c_void, usize, *const c_void, usize, *mut c_void) -> c_int,
    metadata: unsafe extern "C" fn(ClientHandle, c_int, TopicHandle, *mut *const c_void, c_int) -> c_int,
    metadata_destroy: unsafe extern "C" fn(*const c_void),
    last_error: unsafe extern "C" fn() -> c_int,
    error_text: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Where it may lie: where the system has it, and in the Python package of Kafka, which brings its own.
fn candidates() -> Vec<PathBuf> {
    let folders = dylib::python_packages().into_iter().map(|packages| packages.join("confluent_kafka.libs"));
    let bundled = folders.flat_map(|folder| dylib::entries(&folder, |name| name.starts_with("librdkafka-")));
    std::iter::once("librdkafka.so.1".into()).chain(bundled).collect()
}

impl Librdkafka {
    /// Opened once; where it was not found, it is looked for again.
    ///
    /// # Errors
    /// It is not installed, or cannot be used. The error says what to install.
    pub fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Librdkafka> = OnceLock::new();
        match LIBRARY.get() {
            Some(library) => Ok(library),
            None => Self::find(&candidates()).map(|library| LIBRARY.get_or_init(|| library)),
        }
    }

    fn find(files: &[PathBuf]) -> Result<Self> {
        let mut attempts = Attempts::default();
        for file in files {
            match Self::open(file) {
                Ok(library) => return Ok(library),
                Err(failure) => attempts.add(&file.display().to_string(), failure),
            }
        }
        let remedy = "Install librdkafka1 (Debian, Ubuntu), librdkafka (Fedora, Arch), or confluent-kafka (pip)";
        Err(attempts.error("Kafka needs the library librdkafka, which cannot be loaded".into(), remedy))
    }

    fn open(file: &Path) -> std::result::Result<Self, LoadFailure> {
        // SAFETY: librdkafka may be loaded in any process.
        let library = unsafe { dylib::open(file) }?;
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the type of the field is that of the function in rdkafka.h, and the library is never closed.
                let symbol = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                *symbol.map_err(|error| LoadFailure::Unusable(dylib::reason(error)))?
            }};
        }
        Ok(Librdkafka {
            conf_new: function!("rd_kafka_conf_new"),
            conf_destroy: function!("rd_kafka_conf_destroy"),
            conf_set: function!("rd_kafka_conf_set"),
            conf_set_delivered: function!("rd_kafka_conf_set_dr_msg_cb"),
            conf_set_failed: function!("rd_kafka_conf_set_error_cb"),
            conf_set_opaque: function!("rd_kafka_conf_set_opaque"),
            new: function!("rd_kafka_new"),
            destroy: function!("rd_kafka_destroy"),
            poll: function!("rd_kafka_poll"),
            purge: function!("rd_kafka_purge"),
            topic_new: function!("rd_kafka_topic_new"),
            topic_destroy: function!("rd_kafka_topic_destroy"),
            produce: function!("rd_kafka_produce"),
            metadata: function!("rd_kafka_metadata"),
            metadata_destroy: function!("rd_kafka_metadata_destroy"),
            last_error: function!("rd_kafka_last_error"),
            error_text: function!("rd_kafka_err2str"),
        })
    }

    fn error(&self, code: c_int) -> KafkaError {
        // SAFETY: it returns a constant text for any number.
        let text = unsafe { CStr::from_ptr((self.error_text)(code)) };
        KafkaError { is_too_long: code == MESSAGE_TOO_LARGE, text: text.to_string_lossy().into_owned() }
    }
}

/// What librdkafka or a broker does not do, in librdkafka's words.
#[derive(Clone, Debug)]
pub struct KafkaError {
    /// The message is longer than it may be.
    pub is_too_long: bool,
    text: String,
}

impl KafkaError {
    pub fn new(text: &str) -> Self {
        KafkaError { is_too_long: false, text: text.into() }
    }
}

impl fmt::Display for KafkaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for KafkaError {}

/// The number of a message, and what was wrong with it.
pub type KafkaAnswer = (usize, Option<KafkaError>);

/// What brokers have answered.
struct KafkaAnswers {
    library: &'static Librdkafka,
    of_messages: Vec<KafkaAnswer>,
    /// What was first wrong with a connection, in words. The call that waited for it tells only that it failed.
    no_connection: Option<String>,
}

/// # Safety
/// `opaque` is the [`KafkaAnswers`] of the producer.
unsafe extern "C" fn delivered(_: ClientHandle, message: *const KafkaMessage, opaque: *mut c_void) {
    // SAFETY: librdkafka gives a message that is valid until this returns, and what the producer gave it.
    let (message, answers) = unsafe { (&*message, &*opaque.cast::<Mutex<KafkaAnswers>>()) };
    let Ok(mut answers) = answers.lock() else { return };
    let error = (message.error != 0).then(|| answers.library.error(message.error));
    answers.of_messages.push((message.opaque as usize, error));
}

/// # Safety
/// `opaque` is the [`KafkaAnswers`] of the producer.
unsafe extern "C" fn failed(_: ClientHandle, _: c_int, reason: *const c_char, opaque: *mut c_void) {
    // SAFETY: librdkafka gives a text that is valid until this returns, and what the producer gave it.
    let (reason, answers) = unsafe { (CStr::from_ptr(reason), &*opaque.cast::<Mutex<KafkaAnswers>>()) };
    let Ok(mut answers) = answers.lock() else { return };
    answers.no_connection.get_or_insert_with(|| reason.to_string_lossy().into_owned());
}

/// A client that sends messages of one topic.
pub struct KafkaProducer {
    library: &'static Librdkafka,
    client: NonNull<c_void>,
    topic: NonNull<c_void>,
    /// The client has its address.
    answers: Box<Mutex<KafkaAnswers>>,
}

// SAFETY: librdkafka's functions may be called from any thread.
unsafe impl Send for KafkaProducer {}

/// What librdkafka writes into a text of that size.
fn written(text: &[u8; 512]) -> KafkaError {
    let text = CStr::from_bytes_until_nul(text).unwrap_or(c"it does not say why");
    KafkaError::new(&text.to_string_lossy())
}

fn text_of_c(text: &str) -> std::result::Result<CString, KafkaError> {
    CString::new(text).map_err(|_| KafkaError::new("there is a character with the number 0 in it"))
}

impl KafkaProducer {
    /// Nothing is connected by that.
    ///
    /// # Errors
    /// librdkafka does not know a key, or cannot do what its value says.
    pub fn new(
        library: &'static Librdkafka,
        settings: &[(&str, String)],
        topic: &str,
    ) -> std::result::Result<Self, KafkaError> {
        let topic = text_of_c(topic)?;
        let answers = Box::new(Mutex::new(KafkaAnswers { library, of_messages: Vec::new(), no_connection: None }));
        let mut text = [0; 512];
        // SAFETY: takes nothing, and makes a configuration that is ours until `new` takes it.
        let conf = unsafe { (library.conf_new)() };
        let fill = |text: &mut [u8; 512]| {
            for (key, value) in settings {
                let (key, value) = (text_of_c(key)?, text_of_c(value)?);
                // SAFETY: the texts end with 0, and that for the error has so much room.
                let set = unsafe {
                    (library.conf_set)(conf, key.as_ptr(), value.as_ptr(), text.as_mut_ptr().cast(), text.len())
                };
                if set != CONF_OK {
                    return Err(written(text));
                }
            }
            Ok(())
        };
        if let Err(error) = fill(&mut text) {
            // SAFETY: nobody has taken it.
            unsafe { (library.conf_destroy)(conf) };
            return Err(error);
        }
        // SAFETY: the answers lie in a box that is dropped after the client.
        unsafe {
            (library.conf_set_delivered)(conf, delivered);
            (library.conf_set_failed)(conf, failed);
            (library.conf_set_opaque)(conf, (&raw const *answers).cast_mut().cast());
        }
        // SAFETY: it takes the configuration, if it makes a client of it.
        let client = unsafe { (library.new)(PRODUCER, conf, text.as_mut_ptr().cast(), text.len()) };
        let Some(client) = NonNull::new(client) else {
            // SAFETY: it was not taken.
            unsafe { (library.conf_destroy)(conf) };
            return Err(written(&text));
        };
        // SAFETY: the name ends with 0 and is copied; there is no configuration of the topic.
        let handle = unsafe { (library.topic_new)(client.as_ptr(), topic.as_ptr(), ptr::null_mut()) };
        let Some(topic) = NonNull::new(handle) else {
            // SAFETY: nobody else has it.
            unsafe { (library.destroy)(client.as_ptr()) };
            return Err(KafkaError::new("librdkafka does not take the topic"));
        };
        Ok(KafkaProducer { library, client, topic, answers })
    }

    /// Asks a broker for the topic, which needs a connection.
    pub fn ask_for_topic(&self, timeout: Duration) -> std::result::Result<(), KafkaError> {
        self.answers.lock().unwrap().no_connection = None;
        let mut found = ptr::null();
        // SAFETY: the handles are of this client; what it writes is given back below.
        let code = unsafe {
            (self.library.metadata)(self.client.as_ptr(), 0, self.topic.as_ptr(), &raw mut found, milliseconds(timeout))
        };
        if !found.is_null() {
            // SAFETY: it is from the call before.
            unsafe { (self.library.metadata_destroy)(found) };
        }
        if code == 0 {
            return Ok(());
        }
        // As many events as wait: with no time at all it would be one.
        self.poll(Duration::from_millis(10));
        let reason = self.answers.lock().unwrap().no_connection.take();
        Err(reason.map_or_else(|| self.library.error(code), |reason| KafkaError::new(&reason)))
    }

    /// Queues a copy of the message. Its number comes back with the answer. Messages of one key are in one partition.
    pub fn send(&self, message: &str, key: &str, number: usize) -> std::result::Result<(), KafkaError> {
        let key_start = if key.is_empty() { ptr::null() } else { key.as_ptr() };
        // SAFETY: it copies so many bytes of the message and the key, and does not look at what the number would point to.
        let code = unsafe {
            (self.library.produce)(
                self.topic.as_ptr(),
                ANY_PARTITION,
                COPY,
                message.as_ptr().cast_mut().cast(),
                message.len(),
                key_start.cast(),
                key.len(),
                ptr::without_provenance_mut(number),
            )
        };
        // SAFETY: takes nothing; it is the error of this thread's last call.
        if code == 0 { Ok(()) } else { Err(self.library.error(unsafe { (self.library.last_error)() })) }
    }

    /// Waits for answers, for so long at most, and takes them.
    pub fn answers(&self, wait: Duration) -> Vec<KafkaAnswer> {
        self.poll(wait);
        std::mem::take(&mut self.answers.lock().unwrap().of_messages)
    }

    fn poll(&self, wait: Duration) {
        // SAFETY: the client is there, and so is what its callbacks are given.
        unsafe { (self.library.poll)(self.client.as_ptr(), milliseconds(wait)) };
    }
}

fn milliseconds(time: Duration) -> c_int {
    time.as_millis().try_into().unwrap_or(c_int::MAX)
}

impl Drop for KafkaProducer {
    /// What was not delivered is given up.
    fn drop(&mut self) {
        // SAFETY: the handles are of this client, and nobody has them afterwards. The answers are dropped later.
        unsafe { (self.library.purge)(self.client.as_ptr(), QUEUED_AND_IN_FLIGHT) };
        self.poll(Duration::ZERO);
        // SAFETY: as above.
        unsafe {
            (self.library.topic_destroy)(self.topic.as_ptr());
            (self.library.destroy)(self.client.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_install() {
        let find = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            Librdkafka::find(&files).map(drop).unwrap_err().message()
        };
        let error = find(&["librdkafka-nowhere.so.1"]);
        assert!(error.contains("tried librdkafka-nowhere.so.1") && error.contains("Install librdkafka1"), "{error}");
        // Another library under its name.
        let error = find(&["libm.so.6"]);
        assert!(error.contains("libm.so.6 cannot be used") && error.contains("rd_kafka_conf_new"), "{error}");
    }
}
