// SPDX-License-Identifier: MPL-2.0
//! The frames of a source, with what was found in them, for pipelines that come and go. What those do holds up no source.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;

use crate::chain::element;

/// How long a frame is seen that does not tell.
const LENGTH: gst::ClockTime = gst::ClockTime::from_mseconds(40);

/// Where frames of a source can be had, over all its restarts.
#[derive(Clone, Default)]
pub struct FrameHub(Arc<Mutex<Vec<gst_app::AppSrc>>>);

/// A pipeline's element that is given frames, until this is dropped.
pub struct Attached {
    hub: FrameHub,
    source: gst_app::AppSrc,
}

impl PartialEq for FrameHub {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl FrameHub {
    fn lock(&self) -> MutexGuard<'_, Vec<gst_app::AppSrc>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it the frames of the tee `out`.
    pub fn connect(&self, pipeline: &gst::Pipeline) {
        let hub = self.clone();
        let input = element(pipeline, "out").static_pad("sink").expect("an always pad");
        input.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            if let Some(buffer) = info.buffer() {
                hub.push(pad, buffer);
            }
            gst::PadProbeReturn::Ok
        });
    }

    fn push(&self, pad: &gst::Pad, buffer: &gst::BufferRef) {
        let sources = self.lock();
        if sources.is_empty() {
            return;
        }
        let Some(caps) = pad.current_caps() else { return };
        // The memory is shared. Its time is that of its arrival: the clocks of sources have nothing in common.
        let mut frame = buffer.copy();
        let own = frame.get_mut().expect("it is new");
        own.set_pts(None);
        own.set_dts(None);
        // Else what puts several together takes it for its last one forever.
        if own.duration().is_none() {
            own.set_duration(LENGTH);
        }
        let sample = gst::Sample::builder().buffer(&frame).caps(&caps).build();
        for source in sources.iter() {
            let _ = source.push_sample(&sample); // it is being stopped
        }
    }

    #[cfg(test)]
    pub fn receivers(&self) -> usize {
        self.lock().len()
    }

    /// From now on that element has the newest frames. It must not wait where it has too many.
    pub fn attach(&self, source: gst_app::AppSrc) -> Attached {
        self.lock().push(source.clone());
        Attached { hub: self.clone(), source }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.hub.lock().retain(|source| *source != self.source);
    }
}

/// The name of the element that is given the frames of an input.
pub fn input_name(number: usize) -> String {
    format!("frames{number}")
}

/// The number of the input whose frames an element sees, and those of no other.
pub fn input_of(element: &gst::Object) -> Option<usize> {
    let mut element = element.downcast_ref::<gst::Element>()?.clone();
    while element.factory()?.name() != "appsrc" {
        element = element.static_pad("sink")?.peer()?.parent_element()?;
    }
    element.name().strip_prefix("frames")?.parse().ok()
}

/// What takes the newest frames of an input, whatever comes behind it.
pub fn input_line(number: usize) -> String {
    let name = input_name(number);
    format!(
        "appsrc name={name} is-live=true format=time do-timestamp=true max-buffers=2 max-bytes=0 leaky-type=downstream"
    )
}
