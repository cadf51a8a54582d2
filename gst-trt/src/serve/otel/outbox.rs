// SPDX-License-Identifier: MPL-2.0
//! Log records and spans that wait to be sent, encoded. Whoever leaves some here never waits: where too many wait, the oldest are
//! dropped and counted.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use prost::Message;

use super::otlp::{AnyValue, AttributeValue, KeyValue, LogRecord, TraceSpan};
use crate::serve::log::{self, LogEvent, LogLevel};

/// Items and bytes of logs, and of traces, that wait.
const MOST_ITEMS: usize = 2048;
const MOST_BYTES: usize = 4 << 20;
/// Items of one request. With so many nothing is waited for.
pub const BATCH: usize = 512;
/// Bytes of the text of a log record.
const MAX_TEXT: usize = 8 << 10;
/// So long the first item waits for others.
const DELAY: Duration = Duration::from_secs(1);

/// What is told, each by requests of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TelemetrySignal {
    Metrics,
    Logs,
    Traces,
}

impl TelemetrySignal {
    /// As the paths of OTLP have it.
    pub fn name(self) -> &'static str {
        match self {
            TelemetrySignal::Metrics => "metrics",
            TelemetrySignal::Logs => "logs",
            TelemetrySignal::Traces => "traces",
        }
    }
}

/// Shared by those that tell something, and the thread that sends it.
pub struct Outbox {
    has_logs: bool,
    /// A trace whose number is not below is sampled; `None` for no traces.
    threshold: Option<u64>,
    state: Mutex<OutboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutboxState {
    logs: EncodedItems,
    spans: EncodedItems,
    phase: OutboxPhase,
}

/// How far it is from its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum OutboxPhase {
    #[default]
    Open,
    /// The last metrics are asked for.
    LastMetrics,
    /// They have been read.
    MetricsRead,
    /// Nothing more comes. What waits is sent once.
    Closed,
    /// All was sent, or given up.
    Done,
}

#[derive(Default)]
struct EncodedItems {
    items: VecDeque<Vec<u8>>,
    bytes: usize,
    /// When the first one that waits has come.
    since: Option<Instant>,
    lost: u64,
}

impl EncodedItems {
    fn push(&mut self, item: Vec<u8>) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes += item.len();
        self.items.push_back(item);
        self.shrink();
    }

    /// What could not be sent comes first again.
    fn put_back(&mut self, items: Vec<Vec<u8>>) {
        self.bytes += items.iter().map(Vec::len).sum::<usize>();
        items.into_iter().rev().for_each(|item| self.items.push_front(item));
        self.since.get_or_insert_with(Instant::now);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.items.len() > MOST_ITEMS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.items.pop_front() else { return };
            self.bytes -= oldest.len();
            self.lost += 1;
        }
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        let batch: Vec<_> = self.items.drain(..self.items.len().min(BATCH)).collect();
        self.bytes -= batch.iter().map(Vec::len).sum::<usize>();
        if self.items.is_empty() {
            self.since = None;
        }
        batch
    }

    /// When a batch is to be sent.
    fn due(&self) -> Option<Instant> {
        let since = self.since?;
        Some(if self.items.len() >= BATCH { since } else { since + DELAY })
    }
}

/// Ids of a trace that is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledTrace {
    pub id: [u8; 16],
    /// Of the span of the whole.
    pub root: [u8; 8],
}

/// What the thread is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum OutboxWork {
    /// Something may be due.
    Look,
    /// The last metrics are to be read.
    LastMetrics,
    /// It ends.
    End,
}

/// Where everything of this program goes now.
static CURRENT: RwLock<Option<Arc<Outbox>>> = RwLock::new(None);

/// Ids of a trace, if one is to be told of that begins now.
pub fn sample() -> Option<SampledTrace> {
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.sample()
}

/// Sends spans of a trace, if traces still go anywhere.
pub fn trace(spans: &[TraceSpan]) {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(outbox) = current {
        outbox.push(TelemetrySignal::Traces, spans.iter().map(Message::encode_to_vec));
    }
}

/// Of a span of a trace.
pub fn new_span_id() -> [u8; 8] {
    draw().to_be_bytes()
}

/// A number drawn at random, never zero.
fn draw() -> u64 {
    static STATE: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0)));
    // SplitMix64
    let mut number = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (number ^ (number >> 31)).max(1)
}

impl Outbox {
    pub fn new(has_logs: bool, sampling_ratio: f64) -> Arc<Self> {
        const WHOLE: f64 = (1u64 << 56) as f64;
        Arc::new(Outbox {
            has_logs,
            threshold: (sampling_ratio > 0.0).then_some(((1.0 - sampling_ratio) * WHOLE) as u64),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is told all, in place of the one before.
    pub fn install(self: &Arc<Self>) {
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
        let logs = self.has_logs.then(|| {
            let outbox = Arc::downgrade(self);
            Arc::new(move |event: &LogEvent, time: u64| {
                if let Some(outbox) = outbox.upgrade() {
                    outbox.push(TelemetrySignal::Logs, [record(event, time).encode_to_vec()]);
                }
            }) as log::LogListener
        });
        log::tell(logs);
    }

    /// Nothing is told any more.
    pub fn uninstall() {
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = None;
        log::tell(None);
    }

    fn sample(&self) -> Option<SampledTrace> {
        let threshold = self.threshold?;
        let low = draw();
        // By the last 56 bits of its id, as W3C's trace context has it, so that others decide as this does.
        (low & ((1 << 56) - 1) >= threshold).then(|| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&draw().to_be_bytes());
            id[8..].copy_from_slice(&low.to_be_bytes());
            SampledTrace { id, root: new_span_id() }
        })
    }

    fn push(&self, signal: TelemetrySignal, items: impl IntoIterator<Item = Vec<u8>>) {
        {
            let mut state = self.lock();
            if state.phase >= OutboxPhase::Closed {
                return;
            }
            let waiting = state.of(signal);
            items.into_iter().for_each(|item| waiting.push(item));
        }
        self.changed.notify_all();
    }

    /// Waits for something to do, at most until then. `held` says until when a signal is not to be sent, as it has failed.
    pub fn wait(&self, until: Option<Instant>, held: impl Fn(TelemetrySignal) -> Option<Instant>) -> OutboxWork {
        let mut state = self.lock();
        loop {
            match state.phase {
                OutboxPhase::LastMetrics => return OutboxWork::LastMetrics,
                OutboxPhase::Closed | OutboxPhase::Done => return OutboxWork::End,
                OutboxPhase::Open | OutboxPhase::MetricsRead => {}
            }
            let due =
                |signal, items: &EncodedItems| items.due().map(|due| held(signal).map_or(due, |held| due.max(held)));
            let logs = due(TelemetrySignal::Logs, &state.logs);
            let next = [until, logs, due(TelemetrySignal::Traces, &state.spans)].into_iter().flatten().min();
            let left = next.map(|next| next.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return OutboxWork::Look,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Whether a batch of it is to be sent now.
    pub fn is_due(&self, signal: TelemetrySignal) -> bool {
        self.lock().of(signal).due().is_some_and(|due| due <= Instant::now())
    }

    pub fn take(&self, signal: TelemetrySignal) -> Vec<Vec<u8>> {
        self.lock().of(signal).take()
    }

    pub fn put_back(&self, signal: TelemetrySignal, items: Vec<Vec<u8>>) {
        self.lock().of(signal).put_back(items);
    }

    /// Counts what nobody has taken.
    pub fn lose(&self, signal: TelemetrySignal, number: usize) {
        self.lock().of(signal).lost += number as u64;
    }

    /// What was lost since this was asked last.
    pub fn take_lost(&self, signal: TelemetrySignal) -> u64 {
        std::mem::take(&mut self.lock().of(signal).lost)
    }

    /// Asks for the last metrics, and waits until they have been read, at most so long.
    pub fn read_last_metrics(&self, limit: Duration) {
        self.enter(OutboxPhase::LastMetrics);
        let is_early = |state: &mut OutboxState| state.phase < OutboxPhase::MetricsRead;
        drop(self.changed.wait_timeout_while(self.lock(), limit, is_early));
    }

    /// They have been read.
    pub fn have_last_metrics(&self) {
        self.enter(OutboxPhase::MetricsRead);
    }

    /// What waits is sent once, and no more comes.
    pub fn close(&self) {
        self.enter(OutboxPhase::Closed);
    }

    /// All that could be sent was.
    pub fn done(&self) {
        self.enter(OutboxPhase::Done);
    }

    /// Waits until all was sent, at most so long.
    pub fn wait_done(&self, limit: Duration) -> bool {
        let is_early = |state: &mut OutboxState| state.phase < OutboxPhase::Done;
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_early);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase == OutboxPhase::Done
    }

    /// Never back.
    fn enter(&self, phase: OutboxPhase) {
        {
            let mut state = self.lock();
            state.phase = state.phase.max(phase);
        }
        self.changed.notify_all();
    }
}

impl OutboxState {
    fn of(&mut self, signal: TelemetrySignal) -> &mut EncodedItems {
        if signal == TelemetrySignal::Logs { &mut self.logs } else { &mut self.spans }
    }
}

/// An event of the log.
fn record(event: &LogEvent, time: u64) -> LogRecord {
    // INFO, WARN and ERROR of the data model.
    let severity_number = match event.level {
        LogLevel::Info => 9,
        LogLevel::Warning => 13,
        LogLevel::Error => 17,
    };
    let text = &event.text[..event.text.floor_char_boundary(MAX_TEXT)];
    let mut attributes = vec![KeyValue::new("name", event.name)];
    attributes.extend(event.cause.map(|cause| KeyValue::new("cause", cause.name())));
    LogRecord {
        time_unix_nano: time,
        observed_time_unix_nano: time,
        severity_number,
        severity_text: event.level.shown().into(),
        body: Some(AnyValue { value: Some(AttributeValue::Text(text.into())) }),
        attributes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::Cause;

    #[test]
    fn the_oldest_make_room_by_number_and_by_bytes() {
        let outbox = Outbox::new(true, 0.0);
        let push = |number: usize, bytes: usize| {
            outbox.push(TelemetrySignal::Logs, (0..number).map(|at| vec![at as u8; bytes]));
        };
        push(MOST_ITEMS + 3, 1);
        assert_eq!(outbox.take_lost(TelemetrySignal::Logs), 3);
        assert!(outbox.is_due(TelemetrySignal::Logs), "a batch is full");
        let first = outbox.take(TelemetrySignal::Logs);
        assert_eq!((first.len(), &first[0]), (BATCH, &vec![3]));
        // What could not be sent makes room as well.
        push(BATCH, 1);
        outbox.put_back(TelemetrySignal::Logs, first);
        assert_eq!(outbox.take_lost(TelemetrySignal::Logs), BATCH as u64);
        push(5, MOST_BYTES / 4);
        let state = outbox.lock();
        assert!(state.logs.bytes <= MOST_BYTES && state.logs.items.len() == 4 && state.spans.items.is_empty());
    }

    #[test]
    fn as_many_traces_are_sampled_as_the_ratio_says() {
        assert_eq!(Outbox::new(false, 0.0).sample(), None);
        let all = Outbox::new(false, 1.0);
        let traces: Vec<SampledTrace> = (0..1000).filter_map(|_| all.sample()).collect();
        assert_eq!(traces.len(), 1000);
        let ids: std::collections::BTreeSet<_> = traces.iter().map(|trace| trace.id).collect();
        assert_eq!(ids.len(), 1000);
        let few = Outbox::new(false, 0.1);
        let count = (0..100_000).filter(|_| few.sample().is_some()).count();
        assert!((9_000..11_000).contains(&count), "{count}");
    }

    #[test]
    fn nobody_waits_for_a_thread_that_does_nothing() {
        let outbox = Outbox::new(true, 1.0);
        outbox.read_last_metrics(Duration::from_millis(1));
        assert_eq!(outbox.wait(None, |_| None), OutboxWork::LastMetrics);
        outbox.have_last_metrics();
        outbox.close();
        assert_eq!(outbox.wait(None, |_| None), OutboxWork::End);
        assert!(!outbox.wait_done(Duration::from_millis(1)));
        outbox.push(TelemetrySignal::Traces, [vec![1]]);
        assert!(outbox.take(TelemetrySignal::Traces).is_empty(), "nothing comes after the end");
        outbox.done();
        assert!(outbox.wait_done(Duration::ZERO));
    }

    #[test]
    fn an_event_of_the_log_has_its_severity_and_its_source() {
        let text = "ä".repeat(MAX_TEXT);
        let event = LogEvent { level: LogLevel::Error, name: "gate", cause: Some(Cause::Tls), text: &text };
        let found = record(&event, 7);
        assert_eq!((found.time_unix_nano, found.severity_number, found.severity_text.as_str()), (7, 17, "ERROR"));
        assert_eq!(found.attributes, [KeyValue::new("name", "gate"), KeyValue::new("cause", "tls")]);
        let body = found.body.unwrap().value.unwrap();
        assert_eq!(body, AttributeValue::Text("ä".repeat(MAX_TEXT / 2)));
    }
}
