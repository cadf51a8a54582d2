// SPDX-License-Identifier: MPL-2.0
//! The elements that draw, encode and cut into RTP packets.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;
use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use tokio::sync::broadcast;

use super::frames::{Attached, FrameHub};
use crate::chain::{self, element};
use crate::failure::Failure;
use crate::running::RunningPipeline;
use crate::serve::encoder;

/// The payload type of its packets.
pub const PAYLOAD_TYPE: u8 = 96;
/// Bytes of a packet: what all networks take.
const PACKET: u32 = 1400;

/// What the thread of an output wakes up for.
pub enum PipelineEvent {
    /// Somebody waits for a key frame.
    KeyFrame,
    Failed(String),
    /// There is nothing more to watch.
    Close,
}

/// RTP packets that belong together: a frame, or a part of one.
pub struct RtpUnit {
    pub packets: Vec<Bytes>,
    /// Whether a decoder can begin with it.
    pub is_key: bool,
}

pub struct OutputPipeline {
    running: RunningPipeline,
    events: Sender<PipelineEvent>,
    /// What gives it frames.
    _frames: Attached,
}

impl OutputPipeline {
    pub fn build(
        frames: &FrameHub,
        units: &broadcast::Sender<Arc<RtpUnit>>,
        events: Sender<PipelineEvent>,
        running: impl FnOnce(gst::Pipeline) -> RunningPipeline,
    ) -> Result<Self, Failure> {
        let pipeline = chain::parse(&launch_line())?;
        // The frames may be in the memory of a GPU.
        registry::give(&pipeline);
        // Its end is seen by those who watch even if this pipeline does not end.
        let units = units.downgrade();
        let take = move |sink: &gst_app::AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            if let (Some(units), Some(unit)) = (units.upgrade(), unit(&sample)) {
                let _ = units.send(Arc::new(unit)); // nobody watches
            }
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = element(&pipeline, "packets").downcast::<gst_app::AppSink>().expect("it is an appsink");
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
        let failed = events.clone();
        pipeline.bus().expect("a pipeline has a bus").set_sync_handler(move |_, message| {
            registry::answer_message(message);
            if let gst::MessageView::Error(error) = message.view() {
                let _ = failed.send(PipelineEvent::Failed(chain::sentence(error))); // it has ended
            }
            gst::BusSyncReply::Drop
        });
        let source = element(&pipeline, "frames").downcast::<gst_app::AppSrc>().expect("it is an appsrc");
        Ok(OutputPipeline { running: running(pipeline), events, _frames: frames.attach(source) })
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

fn launch_line() -> String {
    let encode = encoder::launch_line();
    format!(
        "appsrc name=frames is-live=true format=time do-timestamp=true max-buffers=2 max-bytes=0 leaky-type=downstream \
         ! trtoverlay ! {encode} ! h264parse \
         ! rtph264pay pt={PAYLOAD_TYPE} mtu={PACKET} config-interval=-1 aggregate-mode=zero-latency \
         ! appsink name=packets sync=false async=false buffer-list=true"
    )
}

fn unit(sample: &gst::Sample) -> Option<RtpUnit> {
    let buffers: Vec<&gst::BufferRef> = match (sample.buffer_list(), sample.buffer()) {
        (Some(list), _) => list.iter().collect(),
        (None, buffer) => buffer.into_iter().collect(),
    };
    let is_key = !buffers.first()?.flags().contains(gst::BufferFlags::DELTA_UNIT);
    let packet = |buffer: &gst::BufferRef| buffer.map_readable().ok().map(|map| Bytes::copy_from_slice(&map));
    Some(RtpUnit { packets: buffers.into_iter().filter_map(packet).collect(), is_key })
}
