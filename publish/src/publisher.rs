// SPDX-License-Identifier: MPL-2.0
//! The thread that sends what is queued: it connects, sends in order, and connects again.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::redact::printable;

use super::address::Secret;
use super::backoff::Backoff;
use super::destination::{Destination, Undelivered};
use super::destinations::Opened;
use super::options::PublishOptions;
use super::queue::{Next, PublishQueue};

/// What is worth telling.
#[derive(Clone, Debug)]
pub enum Notice {
    /// It does not work now, and is tried again.
    Failing(Error),
    /// Messages were rejected permanently.
    Refused(Error),
    /// It works again.
    Back(Error),
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishCounts {
    pub published: u64,
    pub queued: u64,
    pub dropped: u64,
    /// Refused by the other end.
    pub rejected: u64,
    /// How often a connection was made.
    pub connections: u64,
    pub is_connected: bool,
}

#[derive(Default)]
struct Counters {
    published: AtomicU64,
    rejected: AtomicU64,
    connections: AtomicU64,
    /// Taken from the queue, and given up at the end.
    abandoned: AtomicU64,
    is_connected: AtomicBool,
    /// It did not work when it was tried last.
    is_failing: AtomicBool,
    /// The end has come: a failure is the last one.
    is_closing: AtomicBool,
    /// What is queued is no longer sent.
    is_abandoned: AtomicBool,
}

/// Queues records, and has a thread that sends them.
pub struct Publisher<R: Send + 'static> {
    queue: Arc<PublishQueue<R>>,
    counters: Arc<Counters>,
    /// Never sends: it is closed when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl<R: Send + 'static> Publisher<R> {
    /// `write` makes the message of a record, on the thread that sends.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        opened: Opened,
        options: &PublishOptions,
        write: impl Fn(&R) -> String + Send + 'static,
        notify: impl Fn(Notice) + Send + 'static,
    ) -> gsttrt_core::error::Result<Self> {
        let queue = Arc::new(PublishQueue::new(options.max_queued as usize, options.drop));
        let counters = Arc::new(Counters::default());
        let (alive, ended) = mpsc::channel();
        let Opened { destination, shown, secrets } = opened;
        let mut sender = Sender {
            destination,
            shown,
            secrets,
            queue: queue.clone(),
            counters: counters.clone(),
            backoff: Backoff::new(options.max_reconnect_interval),
            batch: options.max_batch.max(1) as usize,
            max_queued: options.max_queued,
            timeout: options.timeout,
            failing_since: None,
            has_refused: false,
            write: Box::new(write),
            notify: Box::new(notify),
        };
        let work = move || {
            sender.run();
            drop(alive);
        };
        thread::Builder::new().name("trtpublish".into()).spawn(work).map_err(|error| {
            Error::new(ErrorKind::Run, "Cannot start the thread that publishes")
                .cause(error)
                .remedy("Close other programs")
        })?;
        Ok(Publisher { queue, counters, ended: Mutex::new(ended) })
    }

    /// A frame has come: there may be records, so there has to be a connection. Before that there is none.
    pub fn begin(&self) {
        self.queue.begin();
    }

    /// Queues a record; returns whether it was the first time that one had to be dropped.
    pub fn push(&self, record: R) -> bool {
        self.queue.push(record)
    }

    /// Waits until everything is sent, but not longer than this; returns whether it is.
    pub fn flush(&self, wait: Duration) -> bool {
        self.queue.wait_until_empty(wait)
    }

    /// Whether [`push`](Self::push) and [`flush`](Self::flush) may not wait.
    pub fn set_open(&self, is_open: bool) {
        self.queue.set_open(is_open);
    }

    pub fn counts(&self) -> PublishCounts {
        let (queued, dropped) = self.queue.counts();
        let Counters { published, rejected, connections, abandoned, is_connected, .. } = &*self.counters;
        PublishCounts {
            published: published.load(Relaxed),
            queued,
            dropped: dropped + abandoned.load(Relaxed),
            rejected: rejected.load(Relaxed),
            connections: connections.load(Relaxed),
            is_connected: is_connected.load(Relaxed),
        }
    }

    /// The end: what is queued is sent within that time unless that fails, and then dropped. Returns the last counts.
    pub fn close(&self, wait: Duration) -> PublishCounts {
        self.counters.is_closing.store(true, SeqCst);
        let is_sent = !self.counters.is_failing.load(SeqCst) && {
            self.queue.set_open(false);
            self.queue.wait_until_empty(wait)
        };
        self.counters.is_abandoned.store(true, Relaxed);
        self.queue.clear();
        self.queue.end();
        // A connection that works is worth a farewell. Else the thread waits for its next attempt, and ends at once, or it is
        // inside a system call, and ends within the time limit of that: nobody waits so long.
        let has_farewell = is_sent && self.counters.is_connected.load(Relaxed);
        let most = if has_farewell { wait.clamp(SHORTEST_FAREWELL, LONGEST_FAREWELL) } else { NO_FAREWELL };
        let _ = self.ended.lock().unwrap().recv_timeout(most);
        let mut counts = self.counts();
        counts.dropped += std::mem::take(&mut counts.queued);
        counts
    }
}

impl<R: Send + 'static> Drop for Publisher<R> {
    fn drop(&mut self) {
        self.counters.is_abandoned.store(true, Relaxed);
        self.queue.end();
    }
}

/// The thread's side.
struct Sender<R> {
    destination: Box<dyn Destination>,
    shown: String,
    secrets: Vec<Secret>,
    queue: Arc<PublishQueue<R>>,
    counters: Arc<Counters>,
    backoff: Backoff,
    batch: usize,
    max_queued: u32,
    timeout: Duration,
    failing_since: Option<Instant>,
    has_refused: bool,
    write: Box<dyn Fn(&R) -> String + Send>,
    notify: Box<dyn Fn(Notice) + Send>,
}

impl<R> Sender<R> {
    fn run(&mut self) {
        if !self.destination.is_server() {
            self.queue.wait_until_begun();
        }
        while self.connect() {
            if self.serve() {
                break;
            }
            self.counters.is_connected.store(false, Relaxed);
        }
        if self.counters.is_connected.swap(false, Relaxed) {
            self.destination.close();
        }
    }

    fn is_over(&self) -> bool {
        self.counters.is_abandoned.load(Relaxed)
    }

    /// Tries until there is a connection. False at the end.
    fn connect(&mut self) -> bool {
        loop {
            if self.is_over() || self.queue.is_ended() {
                return false;
            }
            match self.destination.connect() {
                Ok(()) => break,
                Err(error) => self.failed("Cannot connect to", &error),
            }
            let wait = self.backoff.wait();
            self.queue.pause(wait);
        }
        self.counters.is_connected.store(true, Relaxed);
        self.counters.connections.fetch_add(1, Relaxed);
        true
    }

    /// Sends what comes until the connection is lost; true at the end.
    fn serve(&mut self) -> bool {
        let interval = self.destination.tend_interval().unwrap_or(Duration::from_secs(3600));
        // What was not delivered before comes first.
        loop {
            match self.queue.take(self.batch, interval) {
                Next::End => return true,
                Next::Nothing => {
                    if let Err(error) = self.destination.tend() {
                        self.failed("The connection is lost to", &error);
                        return false;
                    }
                }
                Next::Items(records) => {
                    let messages: Vec<String> = records.iter().map(|record| (self.write)(record)).collect();
                    drop(records);
                    if !self.deliver(messages) {
                        return true;
                    }
                }
            }
        }
    }

    /// Sends messages, over several connections if need be. False if they were given up at the end.
    fn deliver(&mut self, messages: Vec<String>) -> bool {
        let mut rest = &messages[..];
        while !rest.is_empty() {
            let now = &rest[..sent_at_once(rest)];
            let (delivered, rejected, error, patience) = match self.destination.send(now) {
                Ok(()) => (now.len(), 0, None, Duration::ZERO),
                Err(Undelivered { delivered, rejected, error, retry_after }) => {
                    let delivered = delivered.min(now.len());
                    (delivered, rejected.min(now.len() - delivered), Some(error), retry_after.unwrap_or_default())
                }
            };
            // What was delivered came before what went wrong.
            if delivered > 0 {
                self.works();
            }
            match error {
                Some(error) if rejected > 0 => self.refused(rejected, &error),
                Some(error) => self.failed("Cannot send to", &error),
                None => {}
            }
            let is_all = delivered == now.len();
            rest = &rest[delivered + rejected..];
            self.counters.published.fetch_add(delivered as u64, Relaxed);
            self.counters.rejected.fetch_add(rejected as u64, Relaxed);
            self.queue.done(delivered + rejected);
            if is_all || rejected > 0 {
                continue;
            }
            self.counters.is_connected.store(false, Relaxed);
            let wait = self.backoff.wait().max(patience);
            self.queue.pause(wait);
            if !self.connect() {
                self.counters.abandoned.fetch_add(rest.len() as u64, Relaxed);
                self.queue.done(rest.len());
                return false;
            }
        }
        true
    }

    /// It is said once until it works again.
    fn failed(&mut self, what: &str, cause: &std::io::Error) {
        self.counters.is_failing.store(true, SeqCst);
        if self.counters.is_closing.load(SeqCst) {
            self.counters.is_abandoned.store(true, Relaxed);
            self.queue.clear();
        }
        if self.failing_since.is_some() || self.is_over() {
            return;
        }
        self.failing_since = Some(Instant::now());
        let error = self.error(what, cause);
        (self.notify)(Notice::Failing(
            error.remedy(format!("It is tried again and again; up to {} messages wait meanwhile", self.max_queued)),
        ));
    }

    fn refused(&mut self, count: usize, cause: &std::io::Error) {
        if !std::mem::replace(&mut self.has_refused, true) {
            let what =
                if count == 1 { "A message is refused by".into() } else { format!("{count} messages are refused by") };
            let error = self.error(&what, cause).remedy("They are dropped, and so will be others that are refused");
            (self.notify)(Notice::Refused(error));
        }
    }

    /// Something was delivered.
    fn works(&mut self) {
        self.backoff.reset();
        self.counters.is_failing.store(false, SeqCst);
        if let Some(since) = self.failing_since.take() {
            let what = format!("Messages reach {} again, after {:.1} s", self.shown, since.elapsed().as_secs_f64());
            (self.notify)(Notice::Back(Error::new(ErrorKind::Run, what)));
        }
    }

    fn error(&self, what: &str, cause: &std::io::Error) -> Error {
        let cause = match cause.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("it does not answer within {} s", self.timeout.as_secs_f64())
            }
            _ => self.secrets.iter().fold(cause.to_string(), |text, secret| without(&text, secret.reveal())),
        };
        Error::new(ErrorKind::Run, format!("{what} {}", self.shown)).cause(printable(&cause, MAX_CAUSE))
    }
}

/// How long the end waits for the thread: for a connection to be closed in order, also where all other time is over, and where
/// there is none.
const LONGEST_FAREWELL: Duration = Duration::from_secs(1);
const SHORTEST_FAREWELL: Duration = Duration::from_millis(100);
const NO_FAREWELL: Duration = Duration::from_millis(20);

/// Bytes of messages that are sent at once, if they are not those of a single one: at a tenth of a megabit a second these
/// take 10 seconds, the usual time limit.
const SENT_AT_ONCE: usize = 128 << 10;

/// How many messages are sent at once.
fn sent_at_once(messages: &[String]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&String| {
        bytes += message.len();
        bytes <= SENT_AT_ONCE
    };
    messages.iter().take_while(fits).count().max(1)
}

/// Characters of what others say.
const MAX_CAUSE: usize = 300;

/// The text without a secret. A short one is only hidden where it stands alone: it may be a part of many words.
fn without(text: &str, secret: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(secret) {
        let (before, behind) = (&rest[..at], &rest[at + secret.len()..]);
        let touches = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_part = touches(before.chars().next_back()) || touches(behind.chars().next());
        let hidden = if is_part && secret.len() < 6 { secret } else { "***" };
        shown.extend([before, hidden]);
        rest = behind;
    }
    shown.push_str(rest);
    shown
}
