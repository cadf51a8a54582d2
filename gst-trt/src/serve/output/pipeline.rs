// SPDX-License-Identifier: MPL-2.0
//! The elements that draw, encode and cut into RTP packets.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use tokio::sync::broadcast;

use super::frames::{Attached, FrameHub, input_line, input_name, input_of};
use super::rtp::{PAYLOAD_TYPE, RtpProgress, RtpUnit};
use super::sei;
use super::tiles::TilesConfig;
use crate::chain::{self, element};
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::serve::encoder;

/// Bytes of a packet: what all networks and tunnels take, with what WebRTC adds.
const PACKET: u32 = 1200;

/// What the thread of an output wakes up for.
pub enum PipelineEvent {
    /// Somebody waits for a key frame.
    KeyFrame,
    Failed(String),
    /// Other sources are to be seen.
    Inputs,
    /// Frames of an input, which has that number, cannot be shown. The others can.
    InputFailed(usize, String),
    /// There is nothing more to watch.
    Close,
}

pub struct OutputPipeline {
    running: RunningPipeline,
    events: Sender<PipelineEvent>,
    /// What gives it frames, for each of its inputs.
    frames: Vec<Option<Attached>>,
    has_failed_inputs: bool,
}

/// What is to be seen.
#[derive(Clone)]
pub enum OutputContent {
    /// A source, in its own size; with results in the video itself, under that name, if there is one.
    Source {
        sei: Option<String>,
    },
    Tiles(TilesConfig),
}

impl OutputPipeline {
    pub fn build(
        content: &OutputContent,
        inputs: &[Option<FrameHub>],
        progress: &RtpProgress,
        units: &broadcast::Sender<Arc<RtpUnit>>,
        events: Sender<PipelineEvent>,
        running: impl FnOnce(gst::Pipeline) -> RunningPipeline,
    ) -> Result<Self, Failure> {
        let pipeline = chain::parse(&launch_line(content, inputs.len()))?;
        begin_now(&pipeline);
        // The frames may be in the memory of a GPU.
        registry::give(&pipeline, None);
        progress.go_on(&element(&pipeline, "payloader"));
        match content {
            OutputContent::Source { sei: Some(name) } => {
                let pad = |name: &str, pad| element(&pipeline, name).static_pad(pad).expect("an always pad");
                sei::tell(name, &pad("overlay", "sink"), &pad("frame", "src"));
            }
            OutputContent::Source { sei: None } => {}
            OutputContent::Tiles(tiles) => tiles.configure(&pipeline, inputs.len()),
        }
        // Its end is seen by those who watch even if this pipeline does not end.
        let units = units.downgrade();
        let progress = progress.clone();
        let take = move |sink: &gst_app::AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            if let (Some(units), Some(unit)) = (units.upgrade(), RtpUnit::of(&sample)) {
                progress.has_sent(&unit);
                let _ = units.send(Arc::new(unit)); // nobody watches
            }
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = element(&pipeline, "packets").downcast::<gst_app::AppSink>().expect("it is an appsink");
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
        let (failed, has_many) = (events.clone(), matches!(content, OutputContent::Tiles(_)));
        pipeline.bus().expect("a pipeline has a bus").set_sync_handler(move |_, message| {
            registry::answer_message(message, 0);
            if let gst::MessageView::Error(error) = message.view() {
                let (sentence, at) = (chain::sentence(error), message.src().and_then(input_of));
                let _ = failed.send(match at.filter(|_| has_many) {
                    Some(number) => PipelineEvent::InputFailed(number, sentence),
                    None => PipelineEvent::Failed(sentence),
                }); // it has ended
            }
            gst::BusSyncReply::Drop
        });
        let running = running(pipeline);
        let mut built = OutputPipeline { running, events, frames: Vec::new(), has_failed_inputs: false };
        built.attach(inputs);
        Ok(built)
    }

    /// From now on these sources are seen, which are as many as before.
    pub fn attach(&mut self, inputs: &[Option<FrameHub>]) {
        let source = |number| {
            let element = element(&self.running.pipeline, &input_name(number));
            element.downcast::<gst_app::AppSrc>().expect("it is an appsrc")
        };
        let attach = |(number, input): (usize, &Option<FrameHub>)| Some(input.as_ref()?.attach(source(number)));
        self.frames.clear();
        self.frames = inputs.iter().enumerate().map(attach).collect();
    }

    /// An input gives no frames any more. Returns whether another one does.
    pub fn detach(&mut self, number: usize) -> bool {
        self.has_failed_inputs = true;
        if let Some(frames) = self.frames.get_mut(number) {
            *frames = None;
        }
        self.frames.iter().any(Option::is_some)
    }

    /// Whether it can show so many sources in place of those before.
    pub fn can_show(&self, count: usize) -> bool {
        self.frames.len() == count && !self.has_failed_inputs
    }

    pub fn start(&self) -> Result<(), Failure> {
        let events = self.events.clone();
        self.running.start(move |is_started| {
            if !is_started {
                let _ = events.send(PipelineEvent::Failed("The pipeline does not start.".into())); // it has ended
            }
        })
    }

    /// The next frame is one with which a decoder can begin.
    pub fn ask_for_key_frame(&self) {
        let event = gst_video::UpstreamForceKeyUnitEvent::builder().all_headers(true).build();
        let end = element(&self.running.pipeline, "packets").static_pad("sink").expect("an always pad");
        end.push_event(event);
    }

    /// Returns once all its threads have ended, or it is left behind.
    pub fn stop(self) {
        self.running.stop_in_time();
    }
}

/// Times are counted from here. A pipeline that starts gives its elements the clock first, and the time of its start after that:
/// a frame that came in between had the time since the machine was started, and compositor took its pictures for late, made them as
/// fast as it could, and had none that was due for a long time then.
fn begin_now(pipeline: &gst::Pipeline) {
    let clock = gst::SystemClock::obtain();
    pipeline.set_start_time(gst::ClockTime::NONE);
    pipeline.set_base_time(clock.time());
    pipeline.use_clock(Some(&clock));
}

fn launch_line(content: &OutputContent, inputs: usize) -> String {
    let encode = encoder::launch_line();
    let frame = match content {
        OutputContent::Source { sei: Some(_) } => {
            "! capsfilter name=frame caps=video/x-h264,stream-format=byte-stream,alignment=au"
        }
        _ => "",
    };
    let picture = match content {
        OutputContent::Source { .. } => format!("{} ! trtoverlay name=overlay", input_line(0)),
        OutputContent::Tiles(tiles) => tiles.launch_line(inputs),
    };
    format!(
        "{picture} ! {encode} ! h264parse {frame} \
         ! rtph264pay name=payloader pt={PAYLOAD_TYPE} mtu={PACKET} config-interval=-1 aggregate-mode=zero-latency \
         ! appsink name=packets sync=false async=false buffer-list=true"
    )
}
