// SPDX-License-Identifier: MPL-2.0
//! A pipeline that a camera or a disk can hold up without an end: whatever is asked of it is asked in a thread of its
//! own, and what does not come back is left behind.
//!
//! Where it is held up: in the change from PAUSED to READY, rtspsrc waits for the lock that its task holds while it reads an
//! answer. A pipeline that does not stop has its connections to cameras cut.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gst::prelude::*;

use crate::connections::Connections;
use crate::failure::Failure;
use crate::source::decodes_video;
use crate::threads::Threads;

/// After this, a pipeline that is being stopped is left behind. No pipeline that stops at all takes so long, and with it a
/// program ends within 5 s of a signal.
const STOP_LIMIT: Duration = Duration::from_secs(4);
/// After this, the connections to cameras of a pipeline that is being stopped are cut. Until then a camera is told that it may
/// stop, too, which rtspsrc gives 0.1 s.
const CUT_LIMIT: Duration = Duration::from_secs(1);
/// Changes to NULL that are tried.
const STOP_ATTEMPTS: usize = 3;

#[derive(Clone)]
pub struct RunningPipeline {
    pub pipeline: gst::Pipeline,
    threads: Threads,
    /// What it works for, as the end of the program names it.
    subject: String,
    /// Whether it has been stopped. Locked while it changes from and to NULL.
    is_stopped: Arc<Mutex<bool>>,
    is_started: Arc<AtomicBool>,
    pub connections: Connections,
}

impl RunningPipeline {
    pub fn new(pipeline: gst::Pipeline, threads: &Threads, subject: String) -> Self {
        RunningPipeline {
            connections: Connections::of(&pipeline),
            pipeline,
            threads: threads.clone(),
            subject,
            is_stopped: Arc::default(),
            is_started: Arc::default(),
        }
    }

    /// Asks something of it, in a thread of that name.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn ask(&self, thread: &str, ask: impl FnOnce(&gst::Pipeline) + Send + 'static) -> Result<(), Failure> {
        let pipeline = self.pipeline.clone();
        self.threads.spawn(thread.into(), &self.subject, move || ask(&pipeline))
    }

    /// Starts it, unless it has been stopped before that. `then` learns whether that succeeded; an error message on the
    /// bus is more specific, and has come before.
    pub fn start(&self, then: impl FnOnce(bool) + Send + 'static) -> Result<(), Failure> {
        let (is_stopped, started) = (self.is_stopped.clone(), self.is_started.clone());
        self.ask("start", move |pipeline| {
            let is_stopped = is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            let is_started = *is_stopped || pipeline.set_state(gst::State::Playing).is_ok();
            drop(is_stopped);
            started.store(is_started, Ordering::Relaxed);
            then(is_started);
        })
    }

    /// Whether the change of state has come back, and succeeded.
    pub fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// Stops all its threads.
    pub fn stop(&self, then: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        self.stop_by(end, then)
    }

    /// The same as the last thing that the process does, which ends then, whatever is left.
    pub fn stop_last(&self, then: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        self.stop_by(end_but_decoders, then)
    }

    fn stop_by(&self, end: fn(&gst::Pipeline), then: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let (stops, ended) = channel::<()>();
        let connections = self.connections.clone();
        // Without a thread it may stop all the same.
        let _ = self.threads.spawn("cut".into(), &self.subject, move || {
            if ended.recv_timeout(CUT_LIMIT) == Err(RecvTimeoutError::Timeout) {
                connections.cut();
            }
        });
        let is_stopped = self.is_stopped.clone();
        self.ask("stop", move |pipeline| {
            let mut is_stopped = is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            *is_stopped = true;
            end(pipeline);
            drop((is_stopped, stops));
            then();
        })
    }

    /// The same, for those who look at the outcome from time to time.
    pub fn starting(&self) -> Starting {
        let (sender, ended) = channel();
        // Without a thread the sender is dropped, which the receiver sees.
        let _ = self.start(move |is_started| {
            let _ = sender.send(is_started); // nobody waits for one that is left behind
        });
        Starting { ended, outcome: None }
    }

    /// Stops it, and returns once that is done, or the limit has passed.
    pub fn stop_in_time(&self) {
        let (sender, ended) = channel::<()>();
        // Dropped, the sender says it, too.
        if self.stop(move || drop(sender)).is_ok() {
            let _ = ended.recv_timeout(STOP_LIMIT);
        }
    }
}

/// uridecodebin of GStreamer 1.22 fails a change that meets it while it finds out what it decodes. All elements are left in READY
/// then, where they must not be dropped; the next attempt goes on from there.
fn end(pipeline: &gst::Pipeline) {
    let _ = (0..STOP_ATTEMPTS).find(|_| pipeline.set_state(gst::State::Null).is_ok());
}

/// A GPU's driver takes a decoder back in 50 ms, one after the other, while all others that use the GPU wait: with hundreds, the last
/// results would not be written in time. Of a process that has ended it takes each back in half of that.
fn end_but_decoders(pipeline: &gst::Pipeline) {
    let kept: Vec<_> = pipeline.children().into_iter().filter_map(|child| child.downcast::<gst::Bin>().ok()).collect();
    let kept: Vec<_> = kept.into_iter().filter(decodes_on_gpu).collect();
    for decode in &kept {
        decode.set_locked_state(true);
    }
    end(pipeline);
    // A camera is told that nobody watches it any more.
    for source in kept.iter().flat_map(|decode| decode.iterate_sources().into_iter().flatten()) {
        let _ = source.set_state(gst::State::Null);
    }
    if !kept.is_empty() {
        std::mem::forget(pipeline.clone()); // no element is dropped while it plays
    }
}

fn decodes_on_gpu(decode: &gst::Bin) -> bool {
    let is_hardware = |element: &gst::Element| element.metadata("klass").unwrap_or_default().contains("Hardware");
    decode.iterate_recurse().into_iter().flatten().any(|element| decodes_video(&element) && is_hardware(&element))
}

/// A pipeline that is being started.
pub struct Starting {
    ended: Receiver<bool>,
    outcome: Option<bool>,
}

impl Starting {
    /// Whether the change of state has come back, and succeeded. `None` if it goes on after that time.
    pub fn outcome(&mut self, wait: Duration) -> Option<bool> {
        self.outcome = self.outcome.or_else(|| match self.ended.recv_timeout(wait) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(false), // there was no thread for it
        });
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::LIMIT;

    mod imp {
        use gst::glib;
        use gst::subclass::prelude::*;

        use super::*;

        /// A bin that fails its first change to READY.
        #[derive(Default)]
        pub struct FailingBin(AtomicBool);

        #[glib::object_subclass]
        impl ObjectSubclass for FailingBin {
            const NAME: &'static str = "TestFailingBin";
            type Type = super::FailingBin;
            type ParentType = gst::Bin;
        }

        impl ObjectImpl for FailingBin {}
        impl GstObjectImpl for FailingBin {}
        impl BinImpl for FailingBin {}

        impl ElementImpl for FailingBin {
            fn change_state(&self, change: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
                let done = self.parent_change_state(change)?;
                let fails = change == gst::StateChange::PausedToReady && !self.0.swap(true, Ordering::Relaxed);
                if fails { Err(gst::StateChangeError) } else { Ok(done) }
            }
        }
    }

    mod gpu {
        use std::sync::LazyLock;

        use gst::glib;
        use gst::subclass::prelude::*;

        #[derive(Default)]
        pub struct GpuDecoder;

        #[glib::object_subclass]
        impl ObjectSubclass for GpuDecoder {
            const NAME: &'static str = "TestGpuDecoder";
            type Type = super::GpuDecoder;
            type ParentType = gst::Bin;
        }

        impl ObjectImpl for GpuDecoder {}
        impl GstObjectImpl for GpuDecoder {}
        impl BinImpl for GpuDecoder {}

        impl ElementImpl for GpuDecoder {
            fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
                static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                    gst::subclass::ElementMetadata::new("Test", "Codec/Decoder/Video/Hardware", "A test", "The tests")
                });
                Some(&METADATA)
            }
        }
    }

    gst::glib::wrapper! {
        pub struct GpuDecoder(ObjectSubclass<gpu::GpuDecoder>) @extends gst::Bin, gst::Element, gst::Object;
    }

    gst::glib::wrapper! {
        pub struct FailingBin(ObjectSubclass<imp::FailingBin>) @extends gst::Bin, gst::Element, gst::Object;
    }

    #[test]
    fn what_fails_to_stop_is_stopped_again() {
        gst::init().unwrap();
        let bin = gst::glib::Object::new::<FailingBin>();
        let source = gst::ElementFactory::make("fakesrc").property("is-live", true).build().unwrap();
        let sink = gst::ElementFactory::make("fakesink").build().unwrap();
        bin.add_many([&source, &sink]).unwrap();
        source.link(&sink).unwrap();
        let pipeline = gst::Pipeline::new();
        pipeline.add(&bin).unwrap();
        let running = RunningPipeline::new(pipeline.clone(), &Threads::default(), "the test".into());
        let (started, is_started) = channel();
        running.start(move |is_started| started.send(is_started).unwrap()).unwrap();
        assert_eq!(is_started.recv_timeout(LIMIT), Ok(true));
        let (ended, has_ended) = channel();
        running.stop(move || ended.send(()).unwrap()).unwrap();
        has_ended.recv_timeout(LIMIT).unwrap();
        let states = [pipeline.current_state(), bin.current_state(), source.current_state()];
        assert_eq!(states, [gst::State::Null; 3]);
    }

    #[test]
    fn at_the_end_of_the_process_decoders_of_a_gpu_are_kept() {
        gst::init().unwrap();
        let decode = gst::parse::bin_from_description("fakesrc name=camera is-live=true ! identity", true).unwrap();
        let camera = decode.by_name("camera").unwrap();
        decode.add(&gst::glib::Object::new::<GpuDecoder>()).unwrap();
        let sink = gst::ElementFactory::make("fakesink").build().unwrap();
        let pipeline = gst::Pipeline::new();
        pipeline.add_many([decode.upcast_ref(), &sink]).unwrap();
        decode.link(&sink).unwrap();
        let running = RunningPipeline::new(pipeline.clone(), &Threads::default(), "the test".into());
        let (started, is_started) = channel();
        running.start(move |is_started| started.send(is_started).unwrap()).unwrap();
        assert_eq!(is_started.recv_timeout(LIMIT), Ok(true));
        let (ended, has_ended) = channel();
        running.stop_last(move || ended.send(()).unwrap()).unwrap();
        has_ended.recv_timeout(LIMIT).unwrap();
        for element in pipeline.iterate_recurse().into_iter().flatten() {
            let state = if element == camera || element == sink { gst::State::Null } else { gst::State::Playing };
            assert_eq!(element.current_state(), state, "{}", element.name());
        }
        let _ = decode.set_state(gst::State::Null);
    }
}
