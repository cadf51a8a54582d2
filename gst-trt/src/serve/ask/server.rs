// SPDX-License-Identifier: MPL-2.0
//! The pictures that wait to be asked about, and the thread that asks.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::Bytes;
use gsttrt_publish::web::WebClient;

use super::chat;
use crate::serve::config::AskConfig;
use crate::serve::log::{log, log_error, warn};

/// Bytes of an answer, with all that is around it.
const MAX_ANSWER: u64 = 64 << 10;

/// Bytes of a key that nobody guesses.
const SHORTEST_SECRET: usize = 8;

/// A picture, and who is told the answer. Dropped without one, whoever asked is not told.
pub struct Question {
    pub picture: Bytes,
    pub tell: Box<dyn FnOnce(Result<String, String>) + Send>,
}

/// What one server is asked by all sources. Dropped, it is asked no more.
pub struct AskQueue(Arc<AskQueueState>);

struct AskQueueState {
    max: usize,
    waiting: Mutex<WaitingQuestions>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingQuestions {
    questions: VecDeque<Question>,
    is_closed: bool,
}

impl AskQueue {
    /// The thread is none that the end of the service waits for: with its sources nobody is left to be told an answer.
    pub fn start(config: &AskConfig) -> Self {
        let queue =
            Arc::new(AskQueueState { max: config.max_queued, waiting: Mutex::default(), changed: Condvar::new() });
        let (asker, waiting) = (Asker::new(config), queue.clone());
        if let Err(error) = thread::Builder::new().name("ask".into()).spawn(move || asker.work(&waiting)) {
            log_error(&config.name, &format!("Cannot start a thread to ask: {error}. Nothing is asked."));
            queue.lock().is_closed = true;
        }
        AskQueue(queue)
    }

    /// Never waits. Where too many wait, the oldest makes room.
    pub fn push(&self, question: Question) {
        let old = {
            let mut waiting = self.0.lock();
            if waiting.is_closed {
                return;
            }
            waiting.questions.push_back(question);
            (waiting.questions.len() > self.0.max).then(|| waiting.questions.pop_front())
        };
        self.0.changed.notify_one();
        drop(old); // outside of the lock: it counts itself
    }
}

impl Drop for AskQueue {
    fn drop(&mut self) {
        let left = {
            let mut waiting = self.0.lock();
            waiting.is_closed = true;
            std::mem::take(&mut waiting.questions)
        };
        self.0.changed.notify_one();
        drop(left);
    }
}

impl AskQueueState {
    fn lock(&self) -> MutexGuard<'_, WaitingQuestions> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one; `None` at the end.
    fn next(&self) -> Option<Question> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            match waiting.questions.pop_front() {
                Some(question) => return Some(question),
                None => waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The thread of a queue.
struct Asker {
    config: AskConfig,
    client: Option<WebClient>,
    /// What was said about failures since the last answer.
    said: Option<String>,
}

impl Asker {
    fn new(config: &AskConfig) -> Self {
        Asker { config: config.clone(), client: None, said: None }
    }

    fn work(mut self, queue: &AskQueueState) {
        while let Some(Question { picture, tell }) = queue.next() {
            let answer = self.ask(&picture).map_err(|problem| {
                let text = format!("Cannot ask {}: {problem}.", self.config.shown());
                self.without_key(&text)
            });
            // A short one is what servers without keys are given, such as “none”, and may be a word or a number of an answer.
            let is_secret = self.config.api_key.as_ref().is_some_and(|key| key.reveal().len() >= SHORTEST_SECRET);
            let answer = answer.map(|text| if is_secret { self.without_key(&text) } else { text });
            match &answer {
                Ok(_) if self.said.take().is_some() => log(&self.config.name, "Answers again."),
                // Numbers in it may be others each time.
                Err(text) if self.said.as_ref() != Some(&without_digits(text)) => {
                    warn(&self.config.name, text);
                    self.said = Some(without_digits(text));
                }
                _ => {}
            }
            tell(answer);
        }
    }

    fn ask(&mut self, picture: &[u8]) -> Result<String, String> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let client = self.config.client().map_err(|error| error.message().trim_end_matches('.').to_string());
                none.insert(client?)
            }
        };
        let answer = client.post(&chat::request(&self.config, picture)).map_err(|error| self.unheard(&error))?;
        let status = answer.status();
        let body = answer.read(MAX_ANSWER);
        match status {
            200..300 => body.map_err(|error| self.unheard(&error)).and_then(|body| chat::answer(&body)),
            _ => Err(chat::refusal(status, &body.unwrap_or_default())),
        }
    }

    /// Why there is no answer.
    fn unheard(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::TimedOut => {
                let seconds = self.config.timeout.as_secs_f64();
                format!("no answer within {seconds} s. Set a longer timeout in [[ask]], or ask a faster model")
            }
            io::ErrorKind::ConnectionRefused => {
                "connection refused. Check url in [[ask]], and that the server runs".into()
            }
            _ => format!("{}. Check url in [[ask]]", error.to_string().trim_end_matches('.')),
        }
    }

    /// A server may repeat the key.
    fn without_key(&self, text: &str) -> String {
        match &self.config.api_key {
            Some(key) => text.replace(key.reveal(), "***"),
            None => text.into(),
        }
    }
}

fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}
