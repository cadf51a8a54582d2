// SPDX-License-Identifier: MPL-2.0
//! The elements of a source: from its decoder over the chain to destinations, recordings and pictures.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use gsttrt::gst::meta::events;

use super::super::ask::SourceAsks;
use super::super::config::SourceConfig;
use super::super::cut;
use super::super::identities;
use super::super::log::log;
use super::super::model::ServedModels;
use super::super::output::FrameHub;
use super::super::record::{Disk, Recorder};
use super::super::snapshot::SnapshotTaker;
use super::super::view::{self, Pictures};
use super::StreamEvent;
use super::capture;
use super::meter::{DestinationKey, Meter, MeteredElements, destination_keys};
use super::pace::Pace;
use super::turn::StartTurn;
use crate::chain::{self, InferenceElements, MATCH, ModelElements, element, stage};
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::source::ReadOptions;

/// Frames of a source that come at their own pace, between trtinfer and trtnms. One is in work for some milliseconds, and those of
/// other sources fill its batch. A decoder's pool never shrinks: of each source it keeps, for good, as many frames of 3 MB (1080p) as
/// ever waited here, which all do while a driver sets up the decoder of another source.
const IN_WORK: u32 = 4;

/// A source that runs.
pub struct StreamPipeline {
    pub running: RunningPipeline,
    recorder: Option<Recorder>,
    snapshots: Option<SnapshotTaker>,
    gpu: Option<i32>,
    /// Of a file that is read at its own.
    pace: Option<Arc<Pace>>,
    /// To start its decoder.
    pub turn: Arc<StartTurn>,
}

/// Where frames and their results go besides publishing, the same in each run.
pub struct Outlets {
    pub pictures: Arc<Pictures>,
    pub frames: FrameHub,
    pub asks: Arc<SourceAsks>,
    pub snapshots: Option<SnapshotTaker>,
    pub disk: Option<Disk>,
    /// Where it is decoded and inferred, if that is chosen.
    pub gpu: Option<i32>,
}

impl StreamPipeline {
    pub fn build(
        config: &SourceConfig,
        models: &ServedModels,
        outlets: Outlets,
        meter: &Arc<Meter>,
        running: impl FnOnce(gst::Pipeline) -> RunningPipeline,
    ) -> Result<Self, Failure> {
        let tracker = config.track.as_ref().map(|track| track.get("tracker").unwrap_or("bytetrack").to_string());
        let most_in_work = if config.sync || config.address.is_live() { IN_WORK } else { u32::MAX };
        let mut elements = models.iter().map(|model| {
            let model = model.config();
            let elements = model.elements();
            let has_names = elements.has_names || config.identities.as_ref() == Some(&model.name);
            ModelElements { queue: elements.queue.map(|frames| frames.min(most_in_work)), has_names, ..elements }
        });
        let first = elements.next().expect("a source has a model");
        let chain = InferenceElements { first, track: tracker, on_objects: elements.collect() };
        let pipeline = chain::parse(&launch_line(config, &chain.launch_line(false)))?;
        chain.configure(&pipeline);
        for (number, model) in models.iter().enumerate() {
            element(&pipeline, &stage("infer", number)).set_property("shared-model", model.shared_name());
            outlets.gpu.into_iter().for_each(|gpu| model.keep_on(gpu));
            let model = model.config();
            if let Some(matching) = &model.matching {
                matching.apply(&element(&pipeline, &stage(MATCH, number)));
            }
            if config.identities.as_ref() == Some(&model.name) {
                identities::connect(&element(&pipeline, &stage(MATCH, number)), config, &model);
            }
        }
        if let Some(gate) = config.motion_gate {
            element(&pipeline, "preprocess").set_property("motion-gate", gate);
        }
        if let Some(track) = &config.track {
            track.apply(&element(&pipeline, "track"));
        }
        if let Some(analytics) = &config.analytics {
            analytics.apply(&element(&pipeline, "analytics"));
        }
        if let Some(privacy) = &config.privacy {
            privacy.apply(&element(&pipeline, "privacy"));
        }
        let publish: Vec<_> =
            (0..config.publish.len()).map(|number| element(&pipeline, &format!("publish{number}"))).collect();
        config.publish.iter().zip(&publish).for_each(|(publish, element)| publish.properties.apply(element));
        let is_live = config.address.is_live();
        let recorder =
            config.record.as_ref().zip(outlets.disk).map(|(record, disk)| Recorder::new(disk, record, is_live));
        recorder.iter().try_for_each(|recorder| recorder.connect(&pipeline))?;
        if config.has_view {
            view::connect(&pipeline, &outlets.pictures);
        }
        if config.has_output {
            outlets.frames.connect(&pipeline);
        }
        if !config.asks.is_empty() {
            add_answers(&pipeline, &outlets.asks, meter);
        }
        let Outlets { asks, snapshots, gpu, .. } = outlets;
        if has_cuts(config) {
            let snapshots = snapshots.clone();
            cut::connect(&pipeline, &config.name, move |frame, size| {
                let kept = snapshots.iter().flat_map(|snapshots| snapshots.cuts(frame, size));
                asks.cuts(frame).into_iter().chain(kept).collect()
            });
        }
        let turn = StartTurn::keep(&pipeline, &pad(&element(&pipeline, "frames"), "sink"));
        let mut built = StreamPipeline { running: running(pipeline), recorder, snapshots, gpu, pace: None, turn };
        // Before frames are counted.
        if config.sync && !config.address.is_live() {
            built.pace = Some(Pace::keep(&built.input(), &pad(&built.element("out"), "sink")));
        }
        let publish = destination_keys(&config.publish).into_iter().zip(publish).collect();
        built.measure(&config.name, publish, meter);
        #[cfg(feature = "otel")]
        super::trace::follow(&built.running.pipeline, config);
        let tap = built.recorder.as_ref().map(Recorder::tap);
        let options = ReadOptions { stream: config.stream.clone(), gpu, tap, is_kept: false };
        config.address.connect(&built.running.pipeline, built.input(), &options)?;
        Ok(built)
    }

    /// The pad that takes the frames.
    pub fn input(&self) -> gst::Pad {
        pad(&self.element("frames"), "sink")
    }

    /// Whether frames have come that are kept waiting here: no silence of the source.
    pub fn is_busy(&self, meter: &Meter) -> bool {
        meter.is_busy() || self.pace.as_ref().is_some_and(|pace| pace.is_waiting())
    }

    fn element(&self, name: &str) -> gst::Element {
        element(&self.running.pipeline, name)
    }

    fn measure(&self, name: &str, publish: Vec<(DestinationKey, gst::Element)>, meter: &Arc<Meter>) {
        let named = |name| self.element(name);
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
        let analytics = self.running.pipeline.by_name("analytics");
        meter.begin(MeteredElements { frames, infer: named("infer"), analytics, publish, recorder });
    }

    /// Sends on what the thread of the source looks at.
    pub fn listen(&self, run: u64, to: Sender<StreamEvent>) {
        let (connections, gpu) = (self.running.connections.clone(), self.gpu.unwrap_or(0));
        self.bus().set_sync_handler(move |_, message| {
            use gst::MessageView::*;
            registry::answer_message(message, gpu);
            connections.hear(message); // what is dropped here is not heard otherwise
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

    fn bus(&self) -> gst::Bus {
        self.running.pipeline.bus().expect("a pipeline has a bus")
    }

    /// All frames have come to their end: what is kept of them is completed before any element is stopped, which a decoder may take
    /// long for.
    pub fn complete(&self) {
        self.recorder.iter().for_each(Recorder::finish);
        self.snapshots.iter().for_each(SnapshotTaker::finish);
    }

    /// Stops all its threads, at the end of the process but for decoders of a GPU. What is recorded is completed in the background.
    pub fn stop(self, ends_process: bool, then: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        // A pad is not deactivated while a frame waits in it.
        self.turn.end();
        self.pace.iter().for_each(|pace| pace.end());
        let running = self.running.clone();
        let end = if ends_process { RunningPipeline::stop_last } else { RunningPipeline::stop };
        end(&running, move || {
            self.bus().unset_sync_handler();
            self.recorder.iter().for_each(Recorder::finish);
            self.snapshots.iter().for_each(SnapshotTaker::finish);
            then();
        })
    }
}

/// Answers that have come are events of the next frame, before it is published.
fn add_answers(pipeline: &gst::Pipeline, asks: &Arc<SourceAsks>, meter: &Arc<Meter>) {
    let (asks, meter) = (asks.clone(), meter.clone());
    pad(&element(pipeline, "analytics"), "src").add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let answers = asks.take_answers();
        if let Some(gst::PadProbeData::Buffer(frame)) = info.data.as_mut().filter(|_| !answers.is_empty()) {
            events::attach(frame.make_mut(), &answers);
            answers.iter().for_each(|answer| meter.event(answer));
        }
        gst::PadProbeReturn::Ok
    });
}

/// Whether pictures are cut out of its frames.
fn has_cuts(config: &SourceConfig) -> bool {
    !config.asks.is_empty() || config.snapshots.is_some()
}

fn launch_line(config: &SourceConfig, chain: &str) -> String {
    // Where the model is slower than a camera, old frames make room for new ones.
    let is_live = config.address.is_live();
    let leaky = if is_live { "leaky=downstream" } else { "" };
    let analytics = if config.analytics.is_some() { "! trtanalytics name=analytics" } else { "" };
    // Before all that shows, keeps or sends frames.
    let privacy = if config.privacy.is_some() { "! trtoverlay name=privacy draw=false" } else { "" };
    let publish: String =
        (0..config.publish.len()).map(|number| format!("! trtpublish name=publish{number} ")).collect();
    // Where GPUs decode, frames may come in CUDA memory, of which videoconvert knows nothing.
    let download = if gst::ElementFactory::find("cudadownload").is_some() { "cudadownload !" } else { "" };
    let view = if config.has_view { view::launch_line(download) } else { String::new() };
    let cut = if has_cuts(config) { cut::launch_line(download) } else { String::new() };
    format!(
        "queue name=frames {leaky} max-size-buffers={} max-size-bytes=0 max-size-time=0 ! {chain} {analytics} {privacy} {publish} \
         ! tee name=out out. ! fakesink name=sink sync=false enable-last-sample=false {view} {cut}",
        config.max_queued
    )
}

fn pad(element: &gst::Element, name: &str) -> gst::Pad {
    element.static_pad(name).expect("an always pad")
}
