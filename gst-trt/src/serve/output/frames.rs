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
        // Before that it may have no clock, and a frame no time.
        for source in sources.iter().filter(|source| source.current_state() == gst::State::Playing) {
            let _ = source.push_sample(&sample); // it is being stopped
        }
    }

    #[cfg(test)]
    pub fn receivers(&self) -> usize {
        self.lock().len()
    }

    /// Gives one frame, as a source does.
    #[cfg(test)]
    pub fn give(&self) {
        let line = "videotestsrc num-buffers=1 ! video/x-raw,format=I420,width=64,height=48 ! tee name=out ! fakesink";
        let camera = crate::chain::parse(line).unwrap();
        self.connect(&camera);
        camera.set_state(gst::State::Playing).unwrap();
        let end = camera.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Eos]);
        camera.set_state(gst::State::Null).unwrap();
        assert!(end.is_some());
    }

    /// From now on that element has the newest frames, once it plays. It must not wait where it has too many.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;
    use crate::wait::{LIMIT, wait_until};

    #[test]
    fn the_time_of_a_frame_is_that_since_the_start() {
        chain::start_gstreamer().unwrap();
        let line = format!("{} ! appsink name=out sync=false async=false", input_line(0));
        let pipeline = chain::parse(&line).unwrap();
        let source = element(&pipeline, &input_name(0)).downcast::<gst_app::AppSrc>().unwrap();
        let out = element(&pipeline, "out").downcast::<gst_app::AppSink>().unwrap();
        let hub = FrameHub::default();
        let _attached = hub.attach(source.clone());
        pipeline.set_state(gst::State::Paused).unwrap();
        // As amid the start: it has the clock, and not yet the time of the start.
        source.set_clock(Some(&gst::SystemClock::obtain())).unwrap();
        hub.give();
        pipeline.set_state(gst::State::Playing).unwrap();
        wait_until("it plays", LIMIT, || source.current_state() == gst::State::Playing);
        hub.give();
        let sample = out.try_pull_sample(gst::ClockTime::from_seconds(60)).expect("a frame");
        let (time, now) = (sample.buffer().unwrap().pts(), pipeline.current_running_time());
        assert!(time.is_some() && time <= now, "{time:?} of {now:?}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
}
