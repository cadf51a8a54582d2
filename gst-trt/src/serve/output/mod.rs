// SPDX-License-Identifier: MPL-2.0
//! What was found, drawn, as video for those who watch. A pipeline of its own draws and encodes, and runs only while somebody
//! does: what becomes of it is no concern of the sources.
//!
//! * `frames`: where the frames come from. `pipeline`: what is done with them. `tiles`: many sources in one picture.
//!   `sei`: results in the video itself. `rtp`: the packets.

mod frames;
mod pipeline;
mod rtp;
mod sei;
mod tiles;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gsttrt_publish::backoff::Backoff;
use tokio::sync::broadcast;

pub use self::frames::FrameHub;
use self::pipeline::{OutputContent, OutputPipeline, PipelineEvent};
use self::rtp::RtpProgress;
pub use self::rtp::{PAYLOAD_TYPE, RtpUnit};
pub use self::tiles::{MOST_TILES, SMALLEST_TILE, TilesConfig};
use super::heap;
use super::log::{log, log_error};
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::threads::Threads;

/// How often it looks whether anybody watches.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// It goes on for so long without a client: many come back.
const LINGER: Duration = Duration::from_secs(5);
/// Between two key frames that are asked for: with each client that comes, and each that was too slow.
const KEY_FRAME_INTERVAL: Duration = Duration::from_millis(500);
/// Parts of frames that wait for the slowest client: some seconds. What one has missed of them is lost to it.
const KEPT: usize = 256;
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A video that can be watched.
#[derive(Clone)]
pub struct Output(Arc<OutputState>);

struct OutputState {
    name: String,
    content: OutputContent,
    progress: RtpProgress,
    threads: Threads,
    watched: Mutex<WatchState>,
}

struct WatchState {
    /// What gives frames, in their order; `None` for a source that is not there.
    inputs: Vec<Option<FrameHub>>,
    /// `None` once there is nothing more to watch.
    units: Option<broadcast::Sender<Arc<RtpUnit>>>,
    /// Of the pipeline, while it runs.
    pipeline: Option<Sender<PipelineEvent>>,
    /// It was asked for a key frame, and has not seen that yet: more requests change nothing, however many come.
    has_asked: bool,
}

impl WatchState {
    fn ask_for_key_frame(&mut self) {
        if let Some(pipeline) = self.pipeline.as_ref().filter(|_| !self.has_asked) {
            self.has_asked = pipeline.send(PipelineEvent::KeyFrame).is_ok();
        }
    }
}

impl Output {
    /// Of a source, with results in the video itself if `has_sei`.
    pub fn new(name: &str, frames: FrameHub, has_sei: bool, threads: &Threads) -> Self {
        let sei = has_sei.then(|| name.to_string());
        Output::of(name, OutputContent::Source { sei }, vec![Some(frames)], threads)
    }

    /// Of many, which [`Output::show`] tells.
    pub fn tiles(config: &TilesConfig, threads: &Threads) -> Self {
        Output::of(&config.name, OutputContent::Tiles(config.clone()), vec![None], threads)
    }

    fn of(name: &str, content: OutputContent, inputs: Vec<Option<FrameHub>>, threads: &Threads) -> Self {
        let watched =
            WatchState { inputs, units: Some(broadcast::Sender::new(KEPT)), pipeline: None, has_asked: false };
        let (name, threads, progress) = (name.to_string(), threads.clone(), RtpProgress::new());
        Output(Arc::new(OutputState { name, content, progress, threads, watched: Mutex::new(watched) }))
    }

    /// From now on these sources are seen. Those who watch go on.
    pub fn show(&self, mut inputs: Vec<Option<FrameHub>>) {
        // Dark, where there is none.
        if inputs.is_empty() {
            inputs.push(None);
        }
        let mut watched = self.0.lock();
        if watched.inputs != inputs {
            watched.inputs = inputs;
            if let Some(pipeline) = &watched.pipeline {
                let _ = pipeline.send(PipelineEvent::Inputs);
            }
        }
    }

    /// What is encoded from now on. It begins with the next key frame, which is asked for.
    ///
    /// # Errors
    /// It was removed, or there is no thread for it.
    pub fn watch(&self) -> Result<broadcast::Receiver<Arc<RtpUnit>>, Failure> {
        let mut watched = self.0.lock();
        let gone = || format!("There is no video “{}” any more.", self.0.name);
        let receiver = watched.units.as_ref().ok_or_else(gone)?.subscribe();
        match &watched.pipeline {
            Some(_) => watched.ask_for_key_frame(),
            None => {
                let (sender, events) = channel();
                let thread = OutputThread { output: self.0.clone(), events, sender: sender.clone() };
                self.0.threads.spawn(format!("out-{}", self.0.name), &self.0.subject(), move || thread.work())?;
                watched.pipeline = Some(sender);
            }
        }
        Ok(receiver)
    }

    /// A client has missed something, and goes on with the next key frame.
    pub fn ask_for_key_frame(&self) {
        self.0.lock().ask_for_key_frame();
    }

    /// Nobody can watch it any more, and those who do see its end.
    pub fn close(&self) {
        let mut watched = self.0.lock();
        watched.units = None;
        if let Some(pipeline) = &watched.pipeline {
            let _ = pipeline.send(PipelineEvent::Close);
        }
    }
}

impl OutputState {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the end of the service names it.
    fn subject(&self) -> String {
        format!("the video of {}", self.name)
    }

    fn units(&self) -> Option<broadcast::Sender<Arc<RtpUnit>>> {
        self.lock().units.clone()
    }

    fn inputs(&self) -> Vec<Option<FrameHub>> {
        self.lock().inputs.clone()
    }

    fn is_watched(&self) -> bool {
        self.lock().units.as_ref().is_some_and(|units| units.receiver_count() > 0)
    }

    /// Whether the thread ends now: whoever comes later starts another.
    fn has_ended(&self) -> bool {
        let mut watched = self.lock();
        let has_ended = watched.units.as_ref().is_none_or(|units| units.receiver_count() == 0);
        if has_ended {
            watched.pipeline = None;
        }
        has_ended
    }
}

/// Why a pipeline does not go on.
enum OutputEnd {
    /// Nobody watches.
    Unwatched,
    /// There are more sources, or fewer.
    Changed,
    Failed(String),
}

struct OutputThread {
    output: Arc<OutputState>,
    events: Receiver<PipelineEvent>,
    sender: Sender<PipelineEvent>,
}

impl OutputThread {
    fn work(self) {
        log(&self.output.name, "is watched: its video is encoded.");
        let mut backoff = Backoff::between(RETRY.0, RETRY.1);
        let mut logged = None;
        loop {
            let begun = Instant::now();
            let end = self.play();
            if self.output.has_ended() {
                break;
            }
            let OutputEnd::Failed(failure) = end else { continue };
            if begun.elapsed() > RETRY.1 {
                backoff.reset();
            }
            if logged.as_ref() != Some(&failure) {
                log_error(&self.output.name, &format!("Its video cannot be watched now: {failure}"));
                logged = Some(failure);
            }
            self.wait(backoff.wait());
        }
        log(&self.output.name, "is not watched any more.");
    }

    /// Waits for so long, or until nobody watches.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && self.output.is_watched() {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok(PipelineEvent::Close) | Err(RecvTimeoutError::Disconnected) =
                self.events.recv_timeout(left.min(POLL_INTERVAL))
            {
                return;
            }
        }
    }

    /// One run of a pipeline.
    fn play(&self) -> OutputEnd {
        // What the last one has said is no concern of this one.
        self.events.try_iter().for_each(drop);
        self.output.lock().has_asked = false; // it begins with a key frame
        let Some(units) = self.output.units() else { return OutputEnd::Unwatched };
        let running = |pipeline| RunningPipeline::new(pipeline, &self.output.threads, self.output.subject());
        let OutputState { content, progress, .. } = &*self.output;
        let inputs = self.output.inputs();
        let built = OutputPipeline::build(content, &inputs, progress, &units, self.sender.clone(), running);
        drop(units); // else nobody sees its end
        let mut built = match built {
            Ok(built) => built,
            Err(failure) => return OutputEnd::Failed(failure.to_string()),
        };
        let end = self.follow(&mut built);
        built.stop();
        heap::trim();
        end
    }

    fn follow(&self, built: &mut OutputPipeline) -> OutputEnd {
        if let Err(failure) = built.start() {
            return OutputEnd::Failed(failure.to_string());
        }
        let mut watched_at = Instant::now();
        let (mut asked_at, mut is_wanted) = (None::<Instant>, false);
        let mut failed = BTreeSet::new();
        loop {
            match self.events.recv_timeout(POLL_INTERVAL) {
                Ok(PipelineEvent::KeyFrame) => {
                    self.output.lock().has_asked = false;
                    is_wanted = true;
                }
                Ok(PipelineEvent::Failed(failure)) => return OutputEnd::Failed(failure),
                Ok(PipelineEvent::Inputs) => {
                    let inputs = self.output.inputs();
                    if !built.can_show(inputs.len()) {
                        return OutputEnd::Changed;
                    }
                    built.attach(&inputs);
                }
                Ok(PipelineEvent::InputFailed(number, failure)) => {
                    if failed.insert(number) {
                        let text = format!("A source, number {} in it, cannot be shown: {failure}", number + 1);
                        log_error(&self.output.name, &text);
                    }
                    if !built.detach(number) {
                        return OutputEnd::Failed(failure);
                    }
                }
                Ok(PipelineEvent::Close) | Err(RecvTimeoutError::Disconnected) => return OutputEnd::Unwatched,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if is_wanted && asked_at.is_none_or(|asked| asked.elapsed() >= KEY_FRAME_INTERVAL) {
                built.ask_for_key_frame();
                (asked_at, is_wanted) = (Some(Instant::now()), false);
            }
            if self.output.is_watched() {
                watched_at = Instant::now();
            } else if watched_at.elapsed() > LINGER {
                return OutputEnd::Unwatched;
            }
        }
    }
}
