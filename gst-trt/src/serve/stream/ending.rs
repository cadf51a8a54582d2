// SPDX-License-Identifier: MPL-2.0
//! The end of a run of a source: its last frames, its stop, and what does not stop.

use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use gsttrt::gst::publish_end;

use super::super::control::State;
use super::super::heap;
use super::super::log::{log_error, log_failure, warn};
use super::pipeline::StreamPipeline;
use super::{MOST_LEFT, PlayEnd, RESTART_LIMIT, StreamEvent, StreamThread};

/// How long after the time for last frames elements tell what was not sent in it.
const LAST_WARNINGS: Duration = Duration::from_millis(300);

/// How long what is under way may take when a source ends.
#[derive(Clone, Copy, Debug)]
pub struct LastFrames {
    /// For frames to come to their end.
    pub until: Instant,
    /// Whether no destination has longer, as the service ends.
    pub is_last: bool,
    /// Whether the process ends with it.
    pub ends_process: bool,
}

impl LastFrames {
    /// Nothing is waited for.
    pub fn none() -> Self {
        LastFrames { until: Instant::now(), is_last: true, ends_process: false }
    }
}

impl StreamThread {
    pub(super) fn finish(&mut self, end: &PlayEnd, built: Option<StreamPipeline>) {
        let (state, mut error) = match end {
            PlayEnd::Ended => (State::Ended, None),
            PlayEnd::Rests => (State::Resting, None),
            PlayEnd::Failed(error) => {
                // A decoder may be the first to meet a GPU that is lost, and does not tell. The service ends then.
                let _ = registry::lost();
                let is_news = self.meter.frames_of_run() > 0 || self.logged.as_ref() != Some(error);
                if is_news {
                    log_failure(&self.config.name, error);
                }
                self.logged = Some(error.clone());
                (State::Waiting, Some(error.clone()))
            }
            PlayEnd::Command(_) => (State::Connecting, None),
        };
        // The elements are asked for their last counts once they have stopped.
        if let Some(built) = built {
            let last = if let PlayEnd::Command(StreamEvent::Stop(last)) = end { Some(*last) } else { None };
            self.stop(built, last);
        }
        if matches!(end, PlayEnd::Ended) {
            // There is nothing to try again where a file has ended.
            self.pending.retain(|event| !matches!(event, StreamEvent::Retry));
        }
        if let Some(error) = error.as_mut().filter(|_| self.left.len() >= MOST_LEFT) {
            error.text.push_str(&format!(
                " It is not started again until one of {} earlier attempts, which do not end, has ended.",
                self.left.len()
            ));
        }
        self.meter.end(state, error);
    }

    /// Stops a pipeline, and waits for that unless it is the last one. One that does not stop is left behind.
    fn stop(&mut self, built: StreamPipeline, last: Option<LastFrames>) {
        let (run, stopped) = (self.run, self.sender.clone());
        let ends_process = last.is_some_and(|last| last.ends_process);
        let asked = built.stop(ends_process, move || {
            // It takes all other threads' turns at memory, for nothing where all of it is given back at once.
            if last.is_none() {
                heap::trim();
            }
            let _ = stopped.send(StreamEvent::Stopped(run));
        });
        if let Err(failure) = asked {
            return log_error(&self.config.name, &failure.to_string());
        }
        if last.is_some() {
            return; // the end of the service waits for that thread
        }
        let begun = Instant::now();
        let mut until = begun + RESTART_LIMIT;
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(StreamEvent::Stopped(stopped)) if stopped == run => return,
                Ok(StreamEvent::Stopped(earlier)) => self.has_stopped(earlier),
                Ok(StreamEvent::Message(..) | StreamEvent::Failed(..)) => {}
                // The end, which does not wait.
                Ok(StreamEvent::Stop(last)) => return self.pending.push(StreamEvent::Stop(last)),
                Ok(event) => self.pending.push(event),
                Err(_) => {
                    // Messages that are still sent have a time of their own, and no camera holds it up then.
                    let until_sent = begun + RESTART_LIMIT + self.meter.flush_timeout();
                    if until_sent <= until {
                        break;
                    }
                    until = until_sent;
                }
            }
        }
        self.left.push(run);
        self.meter.leave_behind(self.left.len());
        let shown = self.config.address.shown();
        warn(&self.config.name, &format!("{shown} does not stop. It is left behind, and another attempt is made."));
    }

    /// One that was left behind has ended.
    pub(super) fn has_stopped(&mut self, run: u64) {
        self.left.retain(|left| *left != run);
        self.meter.leave_behind(self.left.len());
    }

    /// Lets the frames that are under way come to their end, so that they are published. Returns whether all have.
    pub(super) fn drain(&mut self, built: &StreamPipeline, last: LastFrames) -> bool {
        if self.meter.frames_of_run() == 0 {
            return false; // an event before the first frame would be out of order, and there is nothing to wait for
        }
        // The pad may be blocked by frames that wait. Stopping the pipeline ends that.
        let input = built.input();
        let end = move |_: &gst::Pipeline| {
            let left = last.until.saturating_duration_since(Instant::now());
            input.send_event(publish_end::event(last.is_last.then_some(left)));
            input.send_event(gst::event::Eos::new());
        };
        if built.running.ask("drain", end).is_err() {
            return false;
        }
        let until = last.until + LAST_WARNINGS;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let StreamEvent::Message(run, message) = event else {
                let stop = if let StreamEvent::Stop(stop) = &event { Some(*stop) } else { None };
                self.pending.push(event);
                let Some(stop) = stop else { continue };
                // The service ends meanwhile, and no destination has longer than it has.
                if stop.is_last {
                    let left = stop.until.saturating_duration_since(Instant::now());
                    built.input().send_event(publish_end::limit(left));
                }
                return false;
            };
            match message.view() {
                gst::MessageView::Eos(_) if run == self.run => return true,
                gst::MessageView::Error(_) if run == self.run => return false,
                _ if run == self.run => self.note(&message),
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::SourceStream;
    use super::*;
    use crate::chain;
    use crate::serve::archive::Archives;
    use crate::serve::ask::Asks;
    use crate::serve::config::Config;
    use crate::threads::Threads;

    /// Its results would be published twice, because its model was replaced meanwhile.
    #[test]
    fn a_file_that_was_read_to_its_end_is_not_read_again() {
        chain::start_gstreamer().unwrap();
        let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");
        let model = format!("[[model]]\nname = \"m\"\nfile = {shapes:?}\n");
        let text = model + "[[source]]\nname = \"s\"\naddress = \"s.mp4\"\n";
        let source = Config::parse(Path::new("config.toml"), &text).unwrap().sources.remove(0);
        let (threads, asks) = (Threads::default(), Asks::default());
        let archives = Archives::new(&threads);
        let (_stream, mut thread) = SourceStream::new(source, Vec::new(), &archives, &asks, None, &threads);
        for (end, left) in [(PlayEnd::Ended, 1), (PlayEnd::Rests, 2)] {
            thread.pending = vec![StreamEvent::Retry, StreamEvent::Stop(LastFrames::none())];
            thread.finish(&end, None);
            assert_eq!(thread.pending.len(), left);
        }
    }
}
