// SPDX-License-Identifier: MPL-2.0
//! Frames that are encoded for recordings: where something is drawn, and where the source gives nothing that can be copied.

use std::sync::Arc;

use gst::prelude::*;

use crate::chain::element;
use crate::failure::Failure;
use crate::frame_times;
use crate::serve::encoder;
use crate::source::tap::{Medium, Packet, PacketSink};

/// Adds a branch to the tee `out`, whose packets go to the sink.
pub fn add(pipeline: &gst::Pipeline, draw: bool, is_live: bool, sink: Arc<dyn PacketSink>) -> Result<(), Failure> {
    let encoder = gst::parse::bin_from_description(&launch_line(draw, is_live), true)?;
    encoder.set_property("name", "record");
    let take = move |appsink: &gst_app::AppSink| {
        let sample = appsink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        if let (Some(buffer), Some(caps), Some(segment)) = (sample.buffer(), sample.caps_owned(), sample.segment())
            && let Some(packet) = Packet::new(Medium::Video, buffer, caps, segment, None)
        {
            sink.take(packet);
        }
        Ok(gst::FlowSuccess::Ok)
    };
    let output = encoder.by_name("encoded").and_downcast::<gst_app::AppSink>().expect("it is an appsink");
    output.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
    pipeline.add(&encoder)?;
    let tee = element(pipeline, "out").request_pad_simple("src_%u").ok_or("A tee has no more pads.")?;
    let input = encoder.static_pad("sink").expect("asked for");
    frame_times::keep_order(&input);
    tee.link(&input).map_err(|error| error.to_string())?;
    encoder.sync_state_with_parent()?;
    Ok(())
}

fn launch_line(draw: bool, is_live: bool) -> String {
    // A camera does not wait for the encoder.
    let leaky = if is_live { "leaky=downstream" } else { "" };
    let draw = if draw { "trtoverlay !" } else { "" };
    let encode = encoder::launch_line();
    format!(
        "queue {leaky} max-size-buffers=30 max-size-bytes=0 max-size-time=0 ! {draw} {encode} \
         ! h264parse config-interval=-1 ! video/x-h264,stream-format=avc,alignment=au \
         ! appsink name=encoded sync=false async=false"
    )
}
