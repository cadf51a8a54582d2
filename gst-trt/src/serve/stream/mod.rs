// SPDX-License-Identifier: MPL-2.0
//! A source: a thread that runs its pipeline, starts it again when it fails, and stops it. Whatever one source does, it
//! blocks no other.

mod capture;
pub mod meter;
mod pace;
mod pipeline;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt_publish::backoff::Backoff;
use meter::Meter;
use pipeline::StreamPipeline;

use super::config::SourceConfig;
use super::control::State;
use super::heap;
use super::log::log;
use super::model::ServedModel;
use super::view::Pictures;
use crate::chain;
use crate::failure::Failure;

/// How often a pipeline without messages is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long frames that are under way may take when a source is stopped, and what is to be published.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the thread of a source wakes up for.
pub enum StreamEvent {
    /// Of the pipeline of that run.
    Message(u64, gst::Message),
    /// Go on with that instead.
    Change(Box<SourceConfig>, Arc<ServedModel>),
    /// What it waits for may be better now.
    Retry,
    Stop,
}

/// A source, for those who command it.
pub struct SourceStream {
    pub config: SourceConfig,
    pub meter: Arc<Meter>,
    pub pictures: Arc<Pictures>,
    events: Sender<StreamEvent>,
}

impl SourceStream {
    /// `alive` is dropped when the thread has ended.
    pub fn start(config: SourceConfig, model: Arc<ServedModel>, alive: Sender<()>) -> Result<Self, Failure> {
        let (sender, events) = channel();
        let stream =
            SourceStream { config, meter: Arc::default(), pictures: Arc::new(Pictures::new(None)), events: sender };
        let thread = StreamThread {
            config: stream.config.clone(),
            model,
            meter: stream.meter.clone(),
            pictures: stream.pictures.clone(),
            events,
            sender: stream.events.clone(),
            run: 0,
            pending: Vec::new(),
            logged: None,
            warned: BTreeSet::new(),
        };
        let name = format!("src-{}", stream.config.name);
        let work = move || {
            thread.work();
            drop(alive);
        };
        let spawned = thread::Builder::new().name(name).spawn(work);
        spawned.map_err(|error| format!("Cannot start a thread for the source {}: {error}.", stream.config.name))?;
        Ok(stream)
    }

    pub fn change(&mut self, config: SourceConfig, model: Arc<ServedModel>) {
        self.config = config.clone();
        self.send(StreamEvent::Change(Box::new(config), model));
    }

    pub fn retry(&self) {
        self.send(StreamEvent::Retry);
    }

    pub fn stop(&self) {
        self.send(StreamEvent::Stop);
    }

    fn send(&self, event: StreamEvent) {
        let _ = self.events.send(event); // it has ended
    }
}

struct StreamThread {
    config: SourceConfig,
    model: Arc<ServedModel>,
    meter: Arc<Meter>,
    pictures: Arc<Pictures>,
    events: Receiver<StreamEvent>,
    sender: Sender<StreamEvent>,
    /// The number of the pipeline.
    run: u64,
    /// Commands that came while a pipeline was being stopped.
    pending: Vec<StreamEvent>,
    /// The failure that was logged last: it is not logged twice in a row.
    logged: Option<String>,
    /// Warnings of elements, by their names, since these were last well: the elements of the next pipeline do not
    /// repeat them.
    warned: BTreeSet<(String, String)>,
}

/// Warnings that are kept; those with other numbers in them are others.
const MAX_WARNED: usize = 32;

/// The name of the element that says it.
fn name_of(message: &gst::Message) -> String {
    message.src().map(|source| source.name().to_string()).unwrap_or_default()
}

/// Why a pipeline does not go on.
enum PlayEnd {
    /// A file was read to its end.
    Ended,
    Failed(String),
    Command(StreamEvent),
}

impl StreamThread {
    fn work(mut self) {
        let mut backoff = self.backoff();
        loop {
            let begun = Instant::now();
            let command = match self.play() {
                PlayEnd::Command(command) => Some(command),
                PlayEnd::Ended => self.wait(None),
                PlayEnd::Failed(_) if begun.elapsed() > self.config.timeout + DRAIN_TIMEOUT => {
                    backoff = self.backoff();
                    self.wait(Some(backoff.wait()))
                }
                PlayEnd::Failed(_) => self.wait(Some(backoff.wait())),
            };
            if command.is_none() {
                self.meter.restart();
            }
            for command in command.into_iter().chain(std::mem::take(&mut self.pending)) {
                match command {
                    StreamEvent::Stop => return,
                    StreamEvent::Change(config, model) => {
                        (self.config, self.model) = (*config, model);
                        backoff = self.backoff();
                    }
                    StreamEvent::Retry => self.meter.restart(),
                    StreamEvent::Message(..) => {}
                }
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::between(self.config.backoff.0, self.config.backoff.1)
    }

    /// Waits for a command, or until the time has passed.
    fn wait(&self, time: Option<Duration>) -> Option<StreamEvent> {
        let until = time.map(|time| Instant::now() + time);
        loop {
            let event = match until {
                Some(until) => self.events.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(StreamEvent::Message(..)) => {}
                // There is nothing to try again where a file has ended.
                Ok(StreamEvent::Retry) if time.is_none() => {}
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return Some(StreamEvent::Stop),
            }
        }
    }

    /// One run, from the start of a pipeline to its stop.
    fn play(&mut self) -> PlayEnd {
        self.run += 1;
        let built = StreamPipeline::build(&self.config, &self.model, &self.pictures, &self.meter);
        let end = match built {
            Ok(built) => {
                built.listen(self.run, self.sender.clone());
                let end = self.follow(&built);
                if let PlayEnd::Command(_) = end {
                    self.drain(&built);
                }
                self.finish(&end, Some(built));
                return end;
            }
            Err(failure) => PlayEnd::Failed(failure.to_string()),
        };
        self.finish(&end, None);
        end
    }

    fn finish(&mut self, end: &PlayEnd, built: Option<StreamPipeline>) {
        let (state, error) = match end {
            PlayEnd::Ended => (State::Ended, None),
            PlayEnd::Failed(error) => {
                let is_news = self.meter.frames_of_run() > 0 || self.logged.as_ref() != Some(error);
                if is_news {
                    log(&self.config.name, error);
                }
                self.logged = Some(error.clone());
                (State::Waiting, Some(error.clone()))
            }
            PlayEnd::Command(_) => (State::Connecting, None),
        };
        // The elements are asked for their last counts once they have stopped.
        if let Some(built) = built {
            built.stop();
            heap::trim();
        }
        self.meter.end(state, error);
    }

    fn follow(&mut self, built: &StreamPipeline) -> PlayEnd {
        let StreamPipeline { pipeline, .. } = built;
        let started = pipeline.set_state(gst::State::Playing);
        let mut quiet = 0;
        let mut rounds_from = 0;
        loop {
            let event = self.events.recv_timeout(POLL_INTERVAL);
            let is_live = self.config.address.runs_live(pipeline); // HTTP's answer tells it
            match event {
                Ok(StreamEvent::Message(run, message)) if run == self.run => match message.view() {
                    gst::MessageView::Error(error) => return PlayEnd::Failed(self.config.address.sentence(error)),
                    gst::MessageView::Eos(_) if is_live => {
                        return PlayEnd::Failed(format!("{} has ended.", self.config.address.shown()));
                    }
                    gst::MessageView::Eos(_) if self.meter.frames_of_run() == rounds_from => {
                        return PlayEnd::Failed(format!(
                            "Cannot read {}: there is no video in it.",
                            self.config.address.shown()
                        ));
                    }
                    gst::MessageView::Eos(_) if self.config.is_loop => {
                        rounds_from = self.meter.frames_of_run();
                        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT;
                        if pipeline.seek_simple(flags, gst::ClockTime::ZERO).is_err() {
                            return PlayEnd::Failed(format!(
                                "Cannot go back to the beginning of {}.",
                                self.config.address.shown()
                            ));
                        }
                    }
                    gst::MessageView::Eos(_) => return PlayEnd::Ended,
                    _ => self.note(&message),
                },
                Ok(StreamEvent::Message(..) | StreamEvent::Retry) => {}
                Ok(command) => return PlayEnd::Command(command),
                Err(RecvTimeoutError::Timeout) => {
                    // An error message is more specific, and it has come before.
                    if started.is_err() {
                        return PlayEnd::Failed("The pipeline does not start.".into());
                    }
                    quiet = if self.config.address.gave_up(pipeline, &built.input()) { quiet + 1 } else { 0 };
                    if quiet > 2 {
                        return PlayEnd::Failed(format!(
                            "Cannot read {}: it is damaged, or cut off.",
                            self.config.address.shown()
                        ));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return PlayEnd::Command(StreamEvent::Stop),
            }
            if is_live && self.meter.silence() > self.config.timeout {
                let seconds = self.config.timeout.as_secs_f64();
                return PlayEnd::Failed(format!("{} gave no frame for {seconds} s.", self.config.address.shown()));
            }
        }
    }

    /// A message that is neither an error nor the end.
    fn note(&mut self, message: &gst::Message) {
        let is_ours = message.src().is_some_and(|source| chain::is_ours(&source.name()));
        match message.view() {
            gst::MessageView::Warning(warning) => {
                let text = warning.error().to_string();
                if self.warned.len() >= MAX_WARNED {
                    self.warned.clear();
                }
                if self.warned.insert((name_of(message), text.clone())) {
                    log(&self.config.name, &text);
                }
            }
            gst::MessageView::Info(info) if is_ours => {
                let name = name_of(message);
                self.warned.retain(|(element, _)| *element != name);
                log(&self.config.name, &info.error().to_string());
            }
            gst::MessageView::Progress(progress) if is_ours => self.model.note(progress),
            gst::MessageView::Element(_) => {
                if let Some(kind) = message.structure().and_then(|event| event.get::<String>("event").ok()) {
                    self.meter.event(&kind);
                }
            }
            _ => {}
        }
    }

    /// Lets the frames that are under way come to their end, so that they are published.
    fn drain(&mut self, built: &StreamPipeline) {
        if self.meter.frames_of_run() == 0 {
            return; // an event before the first frame would be out of order, and there is nothing to wait for
        }
        // The pad may be blocked by frames that wait. Stopping the pipeline ends that.
        let input = built.input();
        let end = move || {
            input.send_event(gst::event::Eos::new());
        };
        if thread::Builder::new().name("src-drain".into()).spawn(end).is_err() {
            return;
        }
        let until = Instant::now() + DRAIN_TIMEOUT;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let StreamEvent::Message(run, message) = event else {
                self.pending.push(event);
                continue;
            };
            match message.view() {
                gst::MessageView::Eos(_) | gst::MessageView::Error(_) if run == self.run => return,
                _ if run == self.run => self.note(&message),
                _ => {}
            }
        }
    }
}
