// SPDX-License-Identifier: MPL-2.0
//! The elements of a source: from its decoder over the chain to destinations, recordings and pictures.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use gst::prelude::*;
use gsttrt::gst::cuda::registry;

use super::super::config::SourceConfig;
use super::super::log::log;
use super::super::model::ServedModel;
use super::super::record::{self, Recorder};
use super::super::threads::Threads;
use super::super::view::{self, Pictures};
use super::StreamEvent;
use super::capture;
use super::meter::{Meter, MeteredElements};
use super::pace::Pace;
use crate::chain::{self, element};
use crate::failure::Failure;

/// A source that runs.
pub struct StreamPipeline {
    pub pipeline: gst::Pipeline,
    pub recorder: Option<Recorder>,
    /// Whether it has been stopped. Locked while it changes from and to NULL.
    is_stopped: Arc<Mutex<bool>>,
    /// Of a file that is read at its own.
    pace: Option<Arc<Pace>>,
}

impl StreamPipeline {
    pub fn build(
        config: &SourceConfig,
        model: &ServedModel,
        pictures: &Arc<Pictures>,
        meter: &Arc<Meter>,
        threads: &Threads,
    ) -> Result<Self, Failure> {
        let tracker = config.track.as_ref().map(|track| track.get("tracker").unwrap_or("bytetrack").to_string());
        let chain = model.config().chain(tracker);
        let pipeline = chain::parse(&launch_line(config, &chain.launch_line(false)))?;
        chain.configure(&pipeline)?;
        element(&pipeline, "infer").set_property("shared-model", model.shared_name());
        if let Some(track) = &config.track {
            track.apply(&element(&pipeline, "track"));
        }
        if let Some(analytics) = &config.analytics {
            analytics.apply(&element(&pipeline, "analytics"));
        }
        let publish: Vec<_> =
            (0..config.publish.len()).map(|number| element(&pipeline, &format!("publish{number}"))).collect();
        config.publish.iter().zip(&publish).for_each(|(publish, element)| publish.properties.apply(element));
        let recorder = config.record.as_ref().map(|record| Recorder::new(record, &config.name, threads));
        recorder.iter().for_each(|recorder| recorder.connect(&pipeline));
        if config.has_view {
            view::connect(&pipeline, pictures);
        }
        let mut built = StreamPipeline { pipeline, recorder, is_stopped: Arc::default(), pace: None };
        // Before frames are counted.
        if config.sync && !config.address.is_live() {
            built.pace = Some(Pace::keep(&built.input(), &pad(&element(&built.pipeline, "out"), "sink")));
        }
        built.measure(&config.name, publish, meter);
        config.address.connect(&built.pipeline, built.input())?;
        Ok(built)
    }

    /// The pad that takes the frames.
    pub fn input(&self) -> gst::Pad {
        pad(&element(&self.pipeline, "frames"), "sink")
    }

    fn measure(&self, name: &str, publish: Vec<gst::Element>, meter: &Arc<Meter>) {
        let named = |name| element(&self.pipeline, name);
        let frames = named("frames");
        let buffers = gst::PadProbeType::BUFFER;
        let arrivals = meter.clone();
        pad(&frames, "sink").add_probe(buffers, move |_, info| {
            arrivals.arrive(info.buffer().and_then(|buffer| buffer.pts()));
            gst::PadProbeReturn::Ok
        });
        let entries = meter.clone();
        pad(&frames, "src").add_probe(buffers, move |_, info| {
            entries.enter(info.buffer().and_then(|buffer| buffer.pts()));
            gst::PadProbeReturn::Ok
        });
        let (results, name) = (meter.clone(), name.to_string());
        pad(&named("out"), "sink").add_probe(buffers, move |_, info| {
            if let Some(buffer) = info.buffer() {
                let objects = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().count();
                if let Some(failing) = results.leave(buffer.pts(), objects as u64, capture::since(buffer)) {
                    log(&name, &format!("frames again, after {:.1} s.", failing.as_secs_f64()));
                }
            }
            gst::PadProbeReturn::Ok
        });
        let recorder = self.recorder.clone();
        let analytics = self.pipeline.by_name("analytics");
        meter.begin(MeteredElements { frames, infer: named("infer"), analytics, publish, recorder });
    }

    /// Sends on what the thread of the source looks at.
    pub fn listen(&self, run: u64, to: Sender<StreamEvent>) {
        self.pipeline.bus().expect("a pipeline has a bus").set_sync_handler(move |_, message| {
            use gst::MessageView::*;
            registry::answer_message(message);
            let is_wanted = match message.view() {
                Eos(_) | Error(_) | Warning(_) | Info(_) | Progress(_) => true,
                Element(_) => message.structure().is_some_and(|content| content.name() == "trt-event"),
                _ => false,
            };
            if is_wanted {
                let _ = to.send(StreamEvent::Message(run, message.clone())); // it is not there at the end
            }
            gst::BusSyncReply::Drop
        });
    }

    /// What starts it, unless it has been stopped before that is called. Returns false where it does not start.
    pub fn starter(&self) -> impl FnOnce(&gst::Pipeline) -> bool + Send + use<> {
        let is_stopped = self.is_stopped.clone();
        move |pipeline: &gst::Pipeline| {
            let is_stopped = is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            *is_stopped || pipeline.set_state(gst::State::Playing).is_ok()
        }
    }

    /// Stops all its threads. What is recorded is completed in the background.
    pub fn stop(self) {
        self.pace.iter().for_each(|pace| pace.end()); // a pad is not deactivated while a frame waits in it
        {
            let mut is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
            *is_stopped = true;
            let _ = self.pipeline.set_state(gst::State::Null);
        }
        self.pipeline.bus().expect("a pipeline has a bus").unset_sync_handler();
        self.recorder.iter().for_each(Recorder::finish);
    }
}

fn launch_line(config: &SourceConfig, chain: &str) -> String {
    // Where the model is slower than a camera, old frames make room for new ones.
    let is_live = config.address.is_live();
    let leaky = if is_live { "leaky=downstream" } else { "" };
    let analytics = if config.analytics.is_some() { "! trtanalytics name=analytics" } else { "" };
    let publish: String =
        (0..config.publish.len()).map(|number| format!("! trtpublish name=publish{number} ")).collect();
    // Where GPUs decode, frames may come in CUDA memory, of which videoconvert knows nothing.
    let download = if gst::ElementFactory::find("cudadownload").is_some() { "cudadownload !" } else { "" };
    let record =
        config.record.as_ref().map_or_else(String::new, |config| record::launch_line(config, is_live, download));
    let view = if config.has_view { view::launch_line(download) } else { String::new() };
    format!(
        "queue name=frames {leaky} max-size-buffers={} max-size-bytes=0 max-size-time=0 ! {chain} {analytics} {publish} \
         ! tee name=out out. ! fakesink name=sink sync=false enable-last-sample=false {record} {view}",
        config.max_queued
    )
}

fn pad(element: &gst::Element, name: &str) -> gst::Pad {
    element.static_pad(name).expect("an always pad")
}
