// SPDX-License-Identifier: MPL-2.0
//! Frames with what was found in them as JPEG pictures, while there is a receiver.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gst::prelude::*;
use tokio::sync::watch;

use crate::chain::element;

/// The time between two pictures, at least.
const PACE: Duration = Duration::from_millis(100);

/// Where the pictures of a source go, over all its restarts.
pub type Pictures = watch::Sender<Option<Bytes>>;

/// A branch of the tee `out`, which costs nothing while no client looks: drawing needs a copy of the frame.
pub fn launch_line(download: &str) -> String {
    format!(
        "out. ! queue name=view leaky=downstream max-size-buffers=1 ! trtoverlay ! {download} videoconvert \
         ! jpegenc quality=80 ! appsink name=pictures sync=false async=false max-buffers=1 drop=true"
    )
}

/// A receiver, which sees pictures from now on.
pub fn receive(pictures: &Pictures) -> watch::Receiver<Option<Bytes>> {
    if pictures.receiver_count() == 0 {
        pictures.send_replace(None); // the last one that a client saw may be of yesterday
    }
    pictures.subscribe()
}

pub fn connect(pipeline: &gst::Pipeline, pictures: &Arc<Pictures>) {
    let (wanted, last) = (pictures.clone(), Mutex::new(None::<Instant>));
    // The tee's own pad: GStreamer 1.22 complains of a buffer that is dropped as it comes in.
    let branch = element(pipeline, "view").static_pad("sink").and_then(|sink| sink.peer());
    branch.expect("it is linked to the tee").add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let mut last = last.lock().expect("no thread panics with it");
        if wanted.receiver_count() == 0 || last.is_some_and(|last| last.elapsed() < PACE) {
            return gst::PadProbeReturn::Drop;
        }
        *last = Some(Instant::now());
        gst::PadProbeReturn::Ok
    });
    let pictures = pictures.clone();
    let take = move |sink: &gst_app::AppSink| {
        let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        let map = sample.buffer().and_then(|buffer| buffer.map_readable().ok()).ok_or(gst::FlowError::Error)?;
        pictures.send_replace(Some(Bytes::copy_from_slice(&map)));
        Ok(gst::FlowSuccess::Ok)
    };
    let sink = element(pipeline, "pictures").downcast::<gst_app::AppSink>().expect("it is an appsink");
    sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
}
