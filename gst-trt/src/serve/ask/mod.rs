// SPDX-License-Identifier: MPL-2.0
//! Questions about what has happened: a picture goes to a model that sees and answers, and its answer comes back as an event of
//! the source, on the next frame.
//!
//! * `chat`: the request and the answer. `server`: the thread that asks, one for each `[[ask]]`, and what waits for it.
//!
//! No frame waits for an answer: pictures are cut out by `cut`, and where a server is slower than events, old ones are dropped
//! and counted.

mod chat;
mod server;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use gsttrt::gst::meta::events;

use self::server::{AskQueue, Question};
use super::config::rate::RateCount;
use super::config::{AskConfig, AskedPicture};
use super::control::{AskCounts, AskStatus};
use super::cut::{Cut, Region};

/// What an answer is called among events.
pub const ANSWER: &str = "answer";
/// Answers of a source that wait for a frame.
const MAX_ANSWERS: usize = 64;
/// What is shown around an object, as a part of its sides.
const MARGIN: f64 = 0.1;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that are asked by a service: sources with the same `[[ask]]` share its thread.
#[derive(Clone, Default)]
pub struct Asks(Arc<Mutex<Vec<AskEntry>>>);

type AskEntry = (AskConfig, Weak<AskQueue>);

impl Asks {
    fn at(&self, config: &AskConfig) -> Arc<AskQueue> {
        let mut all = lock(&self.0);
        all.retain(|(_, queue)| queue.strong_count() > 0);
        let there = all.iter().find(|(known, _)| known == config).and_then(|(_, queue)| queue.upgrade());
        there.unwrap_or_else(|| {
            let queue = Arc::new(AskQueue::start(config));
            all.push((config.clone(), Arc::downgrade(&queue)));
            queue
        })
    }
}

/// The questions about a source, over all its restarts.
pub struct SourceAsks {
    all: Asks,
    asks: Mutex<Vec<Arc<SourceAsk>>>,
    /// By their names, also of those that are not asked now.
    states: Mutex<BTreeMap<String, Arc<Mutex<AskState>>>>,
    answers: Arc<Mutex<VecDeque<gst::Structure>>>,
}

/// One of them.
struct SourceAsk {
    config: AskConfig,
    queue: Arc<AskQueue>,
    state: Arc<Mutex<AskState>>,
}

#[derive(Default)]
struct AskState {
    rate: RateCount,
    counts: AskCounts,
    /// Why the last one has failed.
    error: Option<String>,
    last_answer: Option<String>,
}

impl SourceAsks {
    pub fn new(all: &Asks) -> Self {
        SourceAsks { all: all.clone(), asks: Mutex::default(), states: Mutex::default(), answers: Arc::default() }
    }

    /// What is asked from now on. What was counted under a name stays.
    pub fn set(&self, configs: &[AskConfig]) {
        let ask = |config: &AskConfig| {
            let state = lock(&self.states).entry(config.name.clone()).or_default().clone();
            Arc::new(SourceAsk { config: config.clone(), queue: self.all.at(config), state })
        };
        let asks = configs.iter().map(ask).collect();
        let before = std::mem::replace(&mut *lock(&self.asks), asks);
        drop(before); // not under the lock
    }

    /// The pictures that are needed of a frame, by its events.
    pub fn cuts(&self, frame: &gst::BufferRef) -> Vec<Cut> {
        let asks = lock(&self.asks);
        if asks.is_empty() {
            return Vec::new();
        }
        let events = events::read(frame);
        let wanted = events.iter().flat_map(|event| asks.iter().map(move |ask| (event, ask)));
        let (now, answers) = (Instant::now(), &self.answers);
        wanted.filter(|(event, ask)| ask.admits(event, now)).map(|(event, ask)| ask.cut(event, now, answers)).collect()
    }

    /// The answers that have come, as events.
    pub fn take_answers(&self) -> Vec<gst::Structure> {
        lock(&self.answers).drain(..).collect()
    }

    pub fn status(&self) -> Vec<AskStatus> {
        let status = |ask: &Arc<SourceAsk>| {
            let state = lock(&ask.state);
            AskStatus {
                name: ask.config.name.clone(),
                url: ask.config.shown(),
                model: ask.config.model.clone(),
                counts: state.counts,
                error: state.error.clone(),
                last_answer: state.last_answer.clone(),
            }
        };
        lock(&self.asks).iter().map(status).collect()
    }
}

impl SourceAsk {
    /// Whether it is asked about that event, which counts.
    fn admits(&self, event: &gst::StructureRef, now: Instant) -> bool {
        let is_one = |of: &[String], field: &str| {
            of.is_empty() || event.get::<&str>(field).is_ok_and(|found| of.iter().any(|wanted| wanted == found))
        };
        let AskConfig { events, names, classes, at_most, .. } = &self.config;
        let is_answer = event.get::<&str>("event") == Ok(ANSWER);
        if is_answer || !is_one(events, "event") || !is_one(names, "name") || !is_one(classes, "label") {
            return false;
        }
        let mut state = lock(&self.state);
        let is_admitted = state.rate.admit(*at_most, now);
        state.counts.asked += u64::from(is_admitted);
        state.counts.limited += u64::from(!is_admitted);
        is_admitted
    }

    fn cut(&self, event: &gst::Structure, now: Instant, answers: &Arc<Mutex<VecDeque<gst::Structure>>>) -> Cut {
        let side = |name| event.get::<f64>(name).ok();
        let region = match (self.config.picture, side("x"), side("y"), side("w"), side("h")) {
            (AskedPicture::Object, Some(x), Some(y), Some(w), Some(h)) => Some(Region { x, y, w, h }),
            _ => None,
        };
        let pending = PendingAnswer {
            state: self.state.clone(),
            answers: answers.clone(),
            event: event.clone(),
            config: self.config.clone(),
            asked: now,
            is_settled: false,
        };
        let queue = self.queue.clone();
        let ask = move |picture| {
            let tell = Box::new(move |answer| pending.settle(answer));
            queue.push(Question { picture, tell });
        };
        Cut { region, margin: MARGIN, max_side: self.config.max_size, give: Box::new(ask) }
    }
}

/// A question on its way. Where it is lost, it counts as dropped.
struct PendingAnswer {
    state: Arc<Mutex<AskState>>,
    answers: Arc<Mutex<VecDeque<gst::Structure>>>,
    /// What it is about.
    event: gst::Structure,
    config: AskConfig,
    asked: Instant,
    is_settled: bool,
}

impl PendingAnswer {
    fn settle(mut self, answer: Result<String, String>) {
        self.is_settled = true;
        let mut state = lock(&self.state);
        match answer {
            Ok(text) => {
                state.counts.answered += 1;
                (state.error, state.last_answer) = (None, Some(text.clone()));
                let mut answers = lock(&self.answers);
                if answers.len() == MAX_ANSWERS {
                    answers.pop_front(); // which has counted as answered
                }
                answers.push_back(self.event_of(&text));
            }
            Err(problem) => {
                state.counts.failed += 1;
                state.error = Some(problem);
            }
        }
    }

    /// The answer as an event, as trtanalytics has them.
    fn event_of(&self, text: &str) -> gst::Structure {
        let AskConfig { name, model, question, .. } = &self.config;
        let mut event = gst::Structure::builder(events::MESSAGE)
            .field("event", ANSWER)
            .field("name", name)
            .field("question", question)
            .field("model", model)
            .field("answer", text)
            .field("took-ms", self.asked.elapsed().as_millis() as u64)
            .build();
        // The time is that of the frame that was shown.
        let of_object = ["track-id", "label", "identity", "attributes"].map(|name| (name, name));
        for (of, name) in [("stream-time", "event-time")].into_iter().chain(of_object) {
            if let Ok(value) = self.event.value(of) {
                event.set_value(name, value.clone());
            }
        }
        event.set("about", &self.event);
        event
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if !self.is_settled {
            lock(&self.state).counts.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use bytes::Bytes;
    use gsttrt_publish::address::Secret;

    use super::*;
    use crate::serve::config::rate::Rate;
    use crate::wait::{LIMIT, wait_until};

    fn config(url: &str) -> AskConfig {
        AskConfig {
            name: "what".into(),
            url: url.into(),
            model: "seer".into(),
            question: "?".into(),
            events: vec!["entered".into()],
            names: vec!["hall".into()],
            classes: vec!["disc".into()],
            picture: AskedPicture::Object,
            max_size: 100,
            at_most: Rate { number: 5, each: Duration::from_secs(3600) },
            max_queued: 2,
            timeout: LIMIT,
            max_tokens: 10,
            api_key: None,
            ca_file: None,
            ca_content: None,
        }
    }

    fn frame(event: &str, name: &str, label: &str) -> gst::Buffer {
        gst::init().unwrap();
        let event =
            gst::Structure::builder("trt-event").field("event", event).field("name", name).field("label", label);
        let event = event.field("x", 1.0).field("y", 2.0).field("w", 30.0).field("h", 40.0).field("track-id", 7u64);
        let name = gst::Structure::builder("attribute").field("label", "Ada").build();
        let event = event.field("identity", 5u64).field("attributes", gst::Array::new([name]));
        let mut frame = gst::Buffer::new();
        events::attach(frame.make_mut(), &[event.build()]);
        frame
    }

    #[test]
    fn events_are_chosen_and_too_many_are_counted() {
        // Connections are made, and nothing is read.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = config(&format!("http://{}/", listener.local_addr().unwrap()));
        let asks = SourceAsks::new(&Asks::default());
        asks.set(std::slice::from_ref(&config));
        for (event, name, label) in [
            ("left", "hall", "disc"),
            ("entered", "yard", "disc"),
            ("entered", "hall", "box"),
            (ANSWER, "hall", "disc"),
        ] {
            assert!(asks.cuts(&frame(event, name, label)).is_empty(), "{event} {name} {label}");
        }
        assert!(asks.cuts(&gst::Buffer::new()).is_empty());
        let wanted = || asks.cuts(&frame("entered", "hall", "disc"));
        let cuts: Vec<Cut> = (0..5).flat_map(|_| wanted()).collect();
        assert_eq!(cuts[0].region, Some(Region { x: 1.0, y: 2.0, w: 30.0, h: 40.0 }));
        assert!(wanted().is_empty(), "more than at-most");
        let counts = || asks.status()[0].counts;
        assert_eq!(counts(), AskCounts { asked: 5, limited: 1, ..AskCounts::default() });
        // One is asked and not answered, two wait, and the older ones have made room.
        let mut cuts = cuts.into_iter();
        let mut give = || (cuts.next().unwrap().give)(Bytes::from_static(b"jpeg"));
        give();
        let (_connection, _) = listener.accept().unwrap();
        (0..3).for_each(|_| give());
        assert_eq!(counts().dropped, 1);
        drop(cuts); // no picture could be made
        assert_eq!(counts().dropped, 2);
        // Another one of that name goes on counting, and what waits for the old one is lost.
        asks.set(&[AskConfig { max_tokens: 20, ..config.clone() }]);
        wait_until("it is closed", LIMIT, || counts().dropped == 4);
        assert!(asks.take_answers().is_empty() && asks.status()[0].last_answer.is_none());
        // So does one that was left out meanwhile.
        let before = counts();
        asks.set(&[]);
        asks.set(std::slice::from_ref(&config));
        assert_eq!(counts(), before);
    }

    /// Its source may give no frames for long.
    #[test]
    fn an_answer_that_makes_room_for_newer_ones_is_not_dropped_too() {
        gst::init().unwrap();
        let (state, answers) = (Arc::<Mutex<AskState>>::default(), Arc::<Mutex<VecDeque<_>>>::default());
        for _ in 0..=MAX_ANSWERS {
            let pending = PendingAnswer {
                state: state.clone(),
                answers: answers.clone(),
                event: gst::Structure::new_empty("trt-event"),
                config: config("http://127.0.0.1:1/"),
                asked: Instant::now(),
                is_settled: false,
            };
            pending.settle(Ok("Yes.".into()));
        }
        let answered = MAX_ANSWERS as u64 + 1;
        assert_eq!(lock(&state).counts, AskCounts { answered, ..AskCounts::default() });
        assert_eq!(lock(&answers).len(), MAX_ANSWERS);
    }

    /// Reads a request, to the end of its JSON text. False where there is none.
    fn has_asked(mut stream: &TcpStream) -> bool {
        let (mut request, mut part) = (Vec::new(), [0; 1 << 12]);
        while !request.ends_with(b"}") {
            match stream.read(&mut part) {
                Ok(count) if count > 0 => request.extend(&part[..count]),
                _ => return false,
            }
        }
        true
    }

    /// An HTTP server on one connection. It answers with that text once it is told to.
    struct LateServer {
        url: String,
        heard: Receiver<()>,
        go: Sender<()>,
        thread: JoinHandle<()>,
    }

    impl LateServer {
        fn new(text: &str) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let ((hear, heard), (go, wait)) = (channel(), channel());
            let body = serde_json::json!({"choices": [{"message": {"content": text}}]}).to_string();
            let thread = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                while has_asked(&stream) {
                    let _ = hear.send(());
                    wait.recv().unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all((head + &body).as_bytes()).unwrap();
                }
            });
            LateServer { url, heard, go, thread }
        }

        /// Asks it about a frame, and returns once it knows.
        fn is_asked_by(&self, asks: &SourceAsks) {
            let mut cuts = asks.cuts(&frame("entered", "hall", "disc"));
            (cuts.pop().unwrap().give)(Bytes::from_static(b"jpeg"));
            self.heard.recv_timeout(LIMIT).unwrap();
        }
    }

    /// Of a frame without a time, too.
    #[test]
    fn answers_that_are_numbers_come_as_they_are() {
        // As servers that want none are given one.
        let key = Some(Secret::new("7"));
        let server = LateServer::new("There are 17 of 7.");
        let asks = SourceAsks::new(&Asks::default());
        asks.set(&[AskConfig { api_key: key, ..config(&server.url) }]);
        server.is_asked_by(&asks);
        server.go.send(()).unwrap();
        let mut answers = Vec::new();
        wait_until("it has answered", LIMIT, || {
            answers.extend(asks.take_answers());
            !answers.is_empty()
        });
        assert_eq!(answers[0].get::<&str>("answer"), Ok("There are 17 of 7."));
        assert!(!answers[0].has_field("event-time") && answers[0].get::<u64>("track-id") == Ok(7), "{answers:?}");
        let names = answers[0].get::<gst::Array>("attributes").unwrap();
        assert!(answers[0].get::<u64>("identity") == Ok(5) && names.len() == 1, "{answers:?}");
        assert_eq!(asks.status()[0].error, None);
        drop(asks);
        server.thread.join().unwrap();
    }

    #[test]
    fn an_answer_for_a_source_that_is_gone_is_nobodys() {
        let server = LateServer::new("Yes.");
        let asks = SourceAsks::new(&Asks::default());
        asks.set(&[config(&server.url)]);
        server.is_asked_by(&asks);
        let ask = lock(&asks.asks)[0].clone();
        let (queue, state) = (Arc::downgrade(&ask.queue), ask.state.clone());
        drop(ask);
        drop(asks);
        assert!(queue.upgrade().is_none(), "nothing keeps it");
        server.go.send(()).unwrap();
        wait_until("it has answered", LIMIT, || lock(&state).counts.answered == 1);
        server.thread.join().expect("the connection ends");
    }

    #[test]
    fn sources_share_a_thread() {
        let (all, config) = (Asks::default(), config("http://127.0.0.1:1/"));
        let first = all.at(&config);
        assert!(Arc::ptr_eq(&first, &all.at(&config)));
        let other = all.at(&AskConfig { model: "other".into(), ..config.clone() });
        assert!(!Arc::ptr_eq(&first, &other));
        drop((first, other));
        all.at(&config);
        assert_eq!(lock(&all.0).len(), 1);
    }
}
