// SPDX-License-Identifier: MPL-2.0
//! A source: a thread that runs its pipeline, starts it again when it fails, and stops it. Whatever one source does, it
//! blocks no other.
//!
//! That thread waits for events alone. Calls that a camera or a disk can hold up are made in others: `running`.

mod capture;
mod counted;
mod dropped;
mod ending;
pub mod meter;
mod pace;
mod pipeline;
#[cfg(feature = "otel")]
mod trace;
mod turn;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use dropped::{DropNotice, DroppedFrames};
pub use ending::LastFrames;
use gst::prelude::*;
use gsttrt_publish::backoff::Backoff;
use meter::Meter;
use pipeline::{Outlets, StreamPipeline};

use super::archive::Archives;
use super::ask::{Asks, SourceAsks};
use super::config::SourceConfig;
use super::config::schedule::Schedule;
use super::control::State;
use super::log::{log, warn};
use super::model::{MAX_WARNED, ServedModel, ServedModels};
use super::output::{FrameHub, Output};
use super::record::Disk;
use super::snapshot::SourceSnapshots;
use super::view::Pictures;
use crate::cause::{Cause, SourceFailure, Suspect};
use crate::chain;
use crate::connections::CameraFault;
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::threads::Threads;

/// How often a source that rests looks at the time. Clocks may be set.
const REST_INTERVAL: Duration = Duration::from_secs(1);
/// How often a pipeline without messages is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long frames that are under way may take when a source is changed, and what is to be published.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// With so many pipelines left behind, a source is not started again until one of them has ended.
const MOST_LEFT: usize = 3;

/// What the thread of a source wakes up for.
pub enum StreamEvent {
    /// Of the pipeline of that run.
    Message(u64, gst::Message),
    /// Something that was asked of the pipeline of that run has failed.
    Failed(u64, String),
    /// A pipeline has been stopped: that of the run.
    Stopped(u64),
    /// Go on with that instead.
    Change(Arc<SourceConfig>, ServedModels),
    /// What it waits for may be better now.
    Retry,
    Stop(LastFrames),
}

/// A source, for those who command it.
pub struct SourceStream {
    pub config: Arc<SourceConfig>,
    pub meter: Arc<Meter>,
    pub pictures: Arc<Pictures>,
    pub output: Output,
    /// For pictures of many sources.
    pub frames: FrameHub,
    pub asks: Arc<SourceAsks>,
    pub snapshots: Arc<SourceSnapshots>,
    /// The GPU that it is on, where there are several. It stays there through all restarts.
    pub gpu: Option<i32>,
    events: Sender<StreamEvent>,
}

impl SourceStream {
    pub fn start(
        config: SourceConfig,
        models: ServedModels,
        archives: &Archives,
        asks: &Asks,
        gpu: Option<i32>,
        threads: &Threads,
    ) -> Result<Self, Failure> {
        let (stream, thread) = Self::new(config, models, archives, asks, gpu, threads);
        let name = format!("src-{}", stream.config.name);
        threads.spawn(name, &thread.subject(), move || thread.work())?;
        Ok(stream)
    }

    /// One whose thread has not begun.
    fn new(
        config: SourceConfig,
        models: ServedModels,
        archives: &Archives,
        asks: &Asks,
        gpu: Option<i32>,
        threads: &Threads,
    ) -> (Self, StreamThread) {
        let (sender, events) = channel();
        let frames = FrameHub::default();
        let stream = SourceStream {
            output: Output::new(&config.name, frames.clone(), config.has_sei, threads),
            frames: frames.clone(),
            snapshots: Arc::new(SourceSnapshots::new(&config.name, archives, threads)),
            config: Arc::new(config),
            meter: Arc::default(),
            pictures: Arc::new(Pictures::new(None)),
            asks: Arc::new(SourceAsks::new(asks)),
            gpu,
            events: sender,
        };
        let thread = StreamThread {
            config: stream.config.clone(),
            models,
            meter: stream.meter.clone(),
            pictures: stream.pictures.clone(),
            frames,
            asks: stream.asks.clone(),
            snapshots: stream.snapshots.clone(),
            archives: archives.clone(),
            threads: threads.clone(),
            disk: None,
            gpu,
            events,
            sender: stream.events.clone(),
            run: 0,
            ended: Instant::now(),
            pending: Vec::new(),
            left: Vec::new(),
            logged: None,
            warned: BTreeSet::new(),
            dropped: DroppedFrames::since(Instant::now()),
        };
        (stream, thread)
    }

    pub fn change(&mut self, config: SourceConfig, models: ServedModels) {
        self.config = Arc::new(config);
        self.send(StreamEvent::Change(self.config.clone(), models));
    }

    pub fn retry(&self) {
        self.send(StreamEvent::Retry);
    }

    pub fn stop(&self, last_frames: LastFrames) {
        self.output.close();
        self.send(StreamEvent::Stop(last_frames));
    }

    fn send(&self, event: StreamEvent) {
        let _ = self.events.send(event); // it has ended
    }
}

struct StreamThread {
    config: Arc<SourceConfig>,
    models: ServedModels,
    meter: Arc<Meter>,
    pictures: Arc<Pictures>,
    frames: FrameHub,
    asks: Arc<SourceAsks>,
    snapshots: Arc<SourceSnapshots>,
    archives: Archives,
    threads: Threads,
    disk: Option<Disk>,
    gpu: Option<i32>,
    events: Receiver<StreamEvent>,
    sender: Sender<StreamEvent>,
    /// The number of the pipeline.
    run: u64,
    /// When the last pipeline came to its end, and was asked to stop.
    ended: Instant,
    /// Commands that came while a pipeline was being stopped.
    pending: Vec<StreamEvent>,
    /// The runs whose pipelines do not stop.
    left: Vec<u64>,
    /// The failure that was logged last: it is not logged twice in a row.
    logged: Option<SourceFailure>,
    /// Warnings of elements, by their names, since these were last well: the elements of the next pipeline do not
    /// repeat them.
    warned: BTreeSet<(String, String)>,
    dropped: DroppedFrames,
}

/// How long the next attempt waits for the last pipeline to stop, within its backoff: only one that a camera holds up takes longer.
const RESTART_LIMIT: Duration = Duration::from_secs(2);

/// The name of the element that says it.
fn name_of(message: &gst::Message) -> String {
    message.src().map(|source| source.name().to_string()).unwrap_or_default()
}

/// Why a pipeline does not go on.
enum PlayEnd {
    /// A file was read to its end.
    Ended,
    /// Its hours are over.
    Rests,
    Failed(SourceFailure),
    Command(StreamEvent),
}

impl StreamThread {
    fn work(mut self) {
        let mut backoff = self.backoff();
        loop {
            let begun = Instant::now();
            let played = match self.rest() {
                Some(command) => PlayEnd::Command(command),
                None => self.play(),
            };
            let command = match played {
                PlayEnd::Command(command) => Some(command),
                // It came while the pipeline was stopped.
                _ if !self.pending.is_empty() => Some(self.pending.remove(0)),
                PlayEnd::Rests => {
                    backoff = self.backoff();
                    continue;
                }
                PlayEnd::Ended => self.wait(None),
                PlayEnd::Failed(_) => {
                    if begun.elapsed() > self.config.timeout + DRAIN_TIMEOUT {
                        backoff = self.backoff();
                    }
                    self.wait(Some(backoff.wait().saturating_sub(self.ended.elapsed())))
                }
            };
            if command.is_none() {
                self.meter.restart();
            }
            for command in command.into_iter().chain(std::mem::take(&mut self.pending)) {
                match command {
                    StreamEvent::Stop(_) => return,
                    StreamEvent::Change(config, models) => {
                        (self.config, self.models) = (config, models);
                        backoff = self.backoff();
                    }
                    StreamEvent::Retry => self.meter.restart(),
                    StreamEvent::Stopped(run) => self.has_stopped(run),
                    StreamEvent::Message(..) | StreamEvent::Failed(..) => {}
                }
            }
        }
    }

    /// As the end of the service names it.
    fn subject(&self) -> String {
        format!("the source {}", self.config.name)
    }

    /// Where it records, the same in each run.
    fn disk(&mut self) -> Option<Disk> {
        let record = self.config.record.as_ref()?;
        let kept = self.disk.take().filter(|disk| disk.is_at(&record.folder));
        let new = || {
            if self.config.privacy.is_some() {
                log(&self.config.name, "recordings are encoded: the source's own stream shows what [privacy] hides.");
            }
            let disk = Disk::new(&self.archives.at(&record.folder), &self.config.name, &self.threads);
            self.meter.record_to(&disk);
            disk
        };
        let disk = kept.unwrap_or_else(new);
        self.disk = Some(disk.clone());
        Some(disk)
    }

    fn backoff(&self) -> Backoff {
        Backoff::between(self.config.backoff.0, self.config.backoff.1)
    }

    /// Waits for a command, or until the time has passed.
    fn wait(&mut self, time: Option<Duration>) -> Option<StreamEvent> {
        let until = time.map(|time| Instant::now() + time);
        loop {
            // Each attempt would leave another pipeline behind.
            let event = match until.filter(|_| self.left.len() < MOST_LEFT) {
                Some(until) => self.events.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(StreamEvent::Message(..) | StreamEvent::Failed(..)) => {}
                Ok(StreamEvent::Stopped(run)) => self.has_stopped(run),
                // There is nothing to try again where a file has ended.
                Ok(StreamEvent::Retry) if time.is_none() || self.left.len() >= MOST_LEFT => {}
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => return Some(StreamEvent::Stop(LastFrames::none())),
            }
        }
    }

    /// Waits until the hours of the source have begun. Returns a command that comes before.
    fn rest(&mut self) -> Option<StreamEvent> {
        let mut has_said = false;
        while !self.is_on() {
            if !std::mem::replace(&mut has_said, true) {
                self.meter.end(State::Resting, None);
                let hours = self.config.schedule.as_ref().map(Schedule::text).unwrap_or_default();
                log(&self.config.name, &format!("rests outside its hours, {hours}."));
            }
            match self.events.recv_timeout(REST_INTERVAL) {
                Ok(StreamEvent::Retry | StreamEvent::Message(..) | StreamEvent::Failed(..)) => {}
                Ok(StreamEvent::Stopped(run)) => self.has_stopped(run),
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Some(StreamEvent::Stop(LastFrames::none())),
            }
        }
        None
    }

    fn is_on(&self) -> bool {
        self.config.schedule.as_ref().is_none_or(Schedule::is_on)
    }

    /// Waits until the own element of each model was started. Returns a command that comes before.
    fn wait_for_models(&mut self) -> Option<StreamEvent> {
        loop {
            let is_to_start = |model: &Arc<ServedModel>| {
                let wake = self.sender.clone();
                model.is_to_start(move || drop(wake.send(StreamEvent::Retry)))
            };
            if !self.models.iter().any(is_to_start) {
                return None;
            }
            match self.events.recv() {
                Ok(StreamEvent::Retry | StreamEvent::Message(..) | StreamEvent::Failed(..)) => {}
                Ok(StreamEvent::Stopped(run)) => self.has_stopped(run),
                Ok(command) => return Some(command),
                Err(_) => return Some(StreamEvent::Stop(LastFrames::none())),
            }
        }
    }

    /// One run, from the start of a pipeline to its stop.
    fn play(&mut self) -> PlayEnd {
        self.run += 1;
        if let Some(command) = self.wait_for_models() {
            let end = PlayEnd::Command(command);
            self.finish(&end, None);
            return end;
        }
        self.asks.set(&self.config.asks);
        let outlets = Outlets {
            pictures: self.pictures.clone(),
            frames: self.frames.clone(),
            asks: self.asks.clone(),
            snapshots: self.snapshots.begin(self.config.snapshots.as_ref()),
            disk: self.disk(),
            gpu: self.gpu,
        };
        let running = |pipeline| RunningPipeline::new(pipeline, &self.threads, self.subject());
        let built = StreamPipeline::build(&self.config, &self.models, outlets, &self.meter, running);
        let (end, built) = match built {
            Ok(built) => {
                built.listen(self.run, self.sender.clone());
                let end = self.follow(&built);
                let is_drained = match &end {
                    PlayEnd::Command(StreamEvent::Stop(last)) => self.drain(&built, *last),
                    PlayEnd::Command(_) | PlayEnd::Rests => {
                        let until = Instant::now() + DRAIN_TIMEOUT;
                        self.drain(&built, LastFrames { until, is_last: false, ends_process: false })
                    }
                    _ => false,
                };
                if is_drained {
                    built.complete();
                }
                (end, Some(built))
            }
            Err(failure) => (PlayEnd::Failed(SourceFailure::new(Cause::Other, failure.to_string())), None),
        };
        self.ended = Instant::now();
        self.finish(&end, built);
        end
    }

    /// What to do with the outcome of something that was asked of the pipeline.
    fn unless_done(&self, failure: String) -> impl FnOnce(bool) + Send + use<> {
        let (run, failed) = (self.run, self.sender.clone());
        move |is_done| {
            if !is_done {
                let _ = failed.send(StreamEvent::Failed(run, failure));
            }
        }
    }

    fn explained(&self, failure: impl FnOnce(&Suspect<'_>) -> SourceFailure) -> SourceFailure {
        let SourceConfig { address, stream, .. } = &*self.config;
        failure(&Suspect { address, stream, threads: &self.threads, subject: &self.subject() })
    }

    fn failed(&self, cause: Cause, text: String) -> PlayEnd {
        PlayEnd::Failed(SourceFailure::new(cause, text))
    }

    fn follow(&mut self, built: &StreamPipeline) -> PlayEnd {
        let StreamPipeline { running, .. } = built;
        if let Err(failure) = running.start(self.unless_done("The pipeline does not start.".into())) {
            return self.failed(Cause::Other, failure.to_string());
        }
        let mut quiet = 0;
        let mut rounds_from = 0;
        let mut watched_from = Instant::now();
        loop {
            let event = self.events.recv_timeout(POLL_INTERVAL);
            let is_live = self.config.address.runs_live(&running.pipeline); // HTTP's answer tells it
            match event {
                Ok(StreamEvent::Message(run, message)) if run == self.run => match message.view() {
                    gst::MessageView::Error(error) => {
                        return PlayEnd::Failed(self.explained(|suspect| SourceFailure::posted(error, suspect)));
                    }
                    gst::MessageView::Eos(_) if is_live => {
                        return self.failed(Cause::Disconnected, format!("{} has ended.", self.config.address.shown()));
                    }
                    gst::MessageView::Eos(_) if self.meter.frames_of_run() == rounds_from => {
                        let shown = self.config.address.shown();
                        return self.failed(Cause::NoVideo, format!("Cannot read {shown}: there is no video in it."));
                    }
                    gst::MessageView::Eos(_) if self.config.is_loop => {
                        rounds_from = self.meter.frames_of_run();
                        let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT;
                        let failure = format!("Cannot go back to the beginning of {}.", self.config.address.shown());
                        let then = self.unless_done(failure);
                        let seek = move |pipeline: &gst::Pipeline| {
                            then(pipeline.seek_simple(flags, gst::ClockTime::ZERO).is_ok());
                        };
                        if let Err(failure) = running.ask("seek", seek) {
                            return self.failed(Cause::Other, failure.to_string());
                        }
                    }
                    gst::MessageView::Eos(_) => return PlayEnd::Ended,
                    _ => self.note(&message),
                },
                Ok(StreamEvent::Failed(run, failure)) if run == self.run => return self.failed(Cause::Other, failure),
                Ok(StreamEvent::Message(..) | StreamEvent::Failed(..) | StreamEvent::Retry) => {}
                Ok(StreamEvent::Stopped(run)) => self.has_stopped(run),
                Ok(command) => return PlayEnd::Command(command),
                Err(RecvTimeoutError::Timeout) => {
                    let has_ended =
                        running.is_started() && self.config.address.gave_up(&running.pipeline, &built.input());
                    quiet = if has_ended { quiet + 1 } else { 0 };
                    if quiet > 2 {
                        let shown = self.config.address.shown();
                        return self.failed(Cause::Damaged, format!("Cannot read {shown}: it is damaged, or cut off."));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return PlayEnd::Command(StreamEvent::Stop(LastFrames::none())),
            }
            if !self.is_on() {
                return PlayEnd::Rests;
            }
            if let Some(fault) = running.connections.fault() {
                running.connections.cut();
                let cause = match &fault {
                    CameraFault::Flood | CameraFault::NoAddress | CameraFault::NoTransport => Cause::Damaged,
                    CameraFault::Redirects => Cause::Rejected,
                    CameraFault::NoVideo => Cause::NoVideo,
                    CameraFault::Unreadable(_) => Cause::Unsupported,
                };
                let shown = self.config.address.shown();
                return self.failed(cause, format!("Cannot read {shown}: {}.", fault.text()));
            }
            built.turn.end_in_time();
            match self.dropped.look(Instant::now(), self.meter.frame_counts()) {
                Some(DropNotice::Begun(text)) => warn(&self.config.name, &text),
                Some(DropNotice::Over) => log(&self.config.name, "no frames are dropped any more."),
                None => {}
            }
            // The first frame may wait for its turn, and for a model.
            if !is_live && built.is_busy(&self.meter)
                || built.turn.is_waiting()
                || !self.models.iter().all(|model| model.is_loaded())
            {
                watched_from = Instant::now();
            }
            if self.meter.silence().min(watched_from.elapsed()) > self.config.timeout {
                let (limit, has_frames) = (self.config.timeout, self.meter.frames_of_run() > 0);
                return PlayEnd::Failed(self.explained(|suspect| SourceFailure::silence(suspect, limit, has_frames)));
            }
        }
    }

    /// A message that is neither an error nor the end.
    fn note(&mut self, message: &gst::Message) {
        let name = name_of(message);
        let is_ours = chain::is_ours(&name);
        let model = chain::model_of(&name).and_then(|number| self.models.get(number));
        match message.view() {
            gst::MessageView::Warning(warning) => {
                let text = warning.error().to_string();
                // All its sources have the same settings.
                let of_settings = warning.error().kind() == Some(gst::ResourceError::Settings);
                if of_settings
                    && let Some(model) = chain::model_of_stage(&name).and_then(|number| self.models.get(number))
                {
                    return model.warn(&text);
                }
                if self.warned.len() >= MAX_WARNED {
                    self.warned.clear();
                }
                if self.warned.insert((name, text.clone())) {
                    warn(&self.config.name, &text);
                }
            }
            gst::MessageView::Info(info) if model.is_some() => {
                model.iter().for_each(|model| model.tell(&info.error().to_string()));
            }
            gst::MessageView::Info(info) if is_ours => {
                self.warned.retain(|(element, _)| *element != name);
                log(&self.config.name, &info.error().to_string());
            }
            gst::MessageView::Progress(progress) => model.iter().for_each(|model| model.note(progress)),
            gst::MessageView::Element(_) => {
                if let Some(event) = message.structure() {
                    self.meter.event(event);
                }
            }
            _ => {}
        }
    }
}
