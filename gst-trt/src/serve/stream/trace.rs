// SPDX-License-Identifier: MPL-2.0
//! The way of some frames through the stages, as a trace of OpenTelemetry: a span for the frame, and one for each stage.
//!
//! A frame is known by its time stamp. The clock is read for frames that are sampled alone; of all others each pad looks at a number.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt_publish::clock;

use super::capture;
use crate::chain::{element, models_before, stage};
use crate::serve::config::SourceConfig;
use crate::serve::otel::{self, ERROR, INTERNAL, KeyValue, SAMPLED, SampledTrace, SpanStatus, TraceSpan};

/// Sampled frames of a source that may be under way at the same time. No more than that are remembered.
const MOST_UNDER_WAY: usize = 64;

/// Where a span ends: the source pad of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedStage {
    element: String,
    /// Of the span.
    name: &'static str,
    /// What it is about: the model, or the destination.
    attribute: Option<(&'static str, String)>,
}

/// The stages of a source, in their order.
pub fn stages(config: &SourceConfig) -> Vec<TracedStage> {
    let of = |element: String, name, attribute| TracedStage { element, name, attribute };
    let mut stages = vec![of("frames".into(), "queue", None)];
    let tracker = config.track.as_ref().map(|track| track.get("tracker").unwrap_or("bytetrack"));
    let before = tracker.map(|tracker| models_before(tracker, config.models().count()));
    for (number, model) in config.models().enumerate() {
        for (element, name) in [("preprocess", "preprocess"), ("infer", "infer"), ("nms", "postprocess")] {
            stages.push(of(stage(element, number), name, Some(("model", model.to_string()))));
        }
        if before == Some(number + 1) {
            stages.push(of("track".into(), "track", None));
        }
    }
    let others = [("analytics", config.analytics.is_some()), ("privacy", config.privacy.is_some())];
    stages.extend(others.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| of(name.into(), name, None)));
    let publish = config.publish.iter().enumerate().map(|(number, publish)| {
        let destination = publish.name.clone().map(|name| ("destination", name));
        of(format!("publish{number}"), "publish", destination)
    });
    stages.extend(publish);
    stages
}

/// Follows the frames of a pipeline from its queue to the end of its chain.
pub fn follow(pipeline: &gst::Pipeline, config: &SourceConfig) {
    let stages = stages(config);
    let buffers = gst::PadProbeType::BUFFER;
    let pad = |name: &str, pad: &str| element(pipeline, name).static_pad(pad).expect("an always pad");
    let frames = Arc::new(FrameTracer {
        source: config.name.clone(),
        stages: stages.clone(),
        under_way: Mutex::default(),
        count: AtomicUsize::new(0),
    });
    let arriving = frames.clone();
    pad("frames", "sink").add_probe(buffers, move |_, info| {
        if let (Some(buffer), Some(trace)) = (info.buffer(), otel::sample()) {
            arriving.arrive(buffer.pts(), trace, capture::since(buffer));
        }
        gst::PadProbeReturn::Ok
    });
    for (number, stage) in stages.iter().enumerate() {
        let passing = frames.clone();
        pad(&stage.element, "src").add_probe(buffers, move |_, info| {
            if passing.has_some() {
                passing.pass(number, info.buffer().and_then(|buffer| buffer.pts()));
            }
            gst::PadProbeReturn::Ok
        });
    }
    pad("out", "sink").add_probe(buffers, move |_, info| {
        if let Some(buffer) = info.buffer().filter(|_| frames.has_some()) {
            let objects = || buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().count() as u64;
            frames.leave(buffer.pts(), objects).iter().for_each(|spans| otel::trace(spans));
        }
        gst::PadProbeReturn::Ok
    });
}

struct FrameTracer {
    source: String,
    stages: Vec<TracedStage>,
    under_way: Mutex<VecDeque<TracedFrame>>,
    /// How many these are, so that others need no lock.
    count: AtomicUsize,
}

struct TracedFrame {
    time: gst::ClockTime,
    trace: SampledTrace,
    came: Instant,
    /// The same in nanoseconds since 1970.
    unix: u64,
    /// How long before that it was captured, where the camera says so.
    captured: Option<Duration>,
    /// The stages that it has left, and when.
    passed: Vec<(usize, Instant)>,
}

impl FrameTracer {
    fn lock(&self) -> MutexGuard<'_, VecDeque<TracedFrame>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_some(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn arrive(&self, time: Option<gst::ClockTime>, trace: SampledTrace, captured: Option<Duration>) {
        let Some(time) = time else { return };
        let passed = Vec::with_capacity(self.stages.len());
        let (came, unix) = (Instant::now(), clock::now());
        let mut frames = self.lock();
        if frames.len() == MOST_UNDER_WAY {
            frames.pop_front();
        }
        frames.push_back(TracedFrame { time, trace, came, unix, captured, passed });
        self.count.store(frames.len(), Ordering::Relaxed);
    }

    fn pass(&self, stage: usize, time: Option<gst::ClockTime>) {
        let now = Instant::now();
        let mut frames = self.lock();
        let is_it = |frame: &&mut TracedFrame| {
            Some(frame.time) == time && frame.passed.last().is_none_or(|(last, _)| *last < stage)
        };
        if let Some(frame) = frames.iter_mut().find(is_it) {
            frame.passed.push((stage, now));
        }
    }

    /// The spans of each frame that ends with one that leaves the chain: its own, and those of frames before it, which were
    /// dropped.
    fn leave(&self, time: Option<gst::ClockTime>, objects: impl Fn() -> u64) -> Vec<Vec<TraceSpan>> {
        let now = Instant::now();
        let Some(time) = time else { return Vec::new() };
        let mut frames = self.lock();
        let (ended, rest): (VecDeque<_>, _) = frames.drain(..).partition(|frame| frame.time <= time);
        *frames = rest;
        self.count.store(frames.len(), Ordering::Relaxed);
        drop(frames);
        let spans = |frame: TracedFrame| {
            let objects = (frame.time == time).then(&objects);
            self.spans(&frame, now, objects)
        };
        ended.into_iter().map(spans).collect()
    }

    /// The frame, and its stages. One without a number of objects was dropped.
    fn spans(&self, frame: &TracedFrame, left: Instant, objects: Option<u64>) -> Vec<TraceSpan> {
        // From one reading of a clock that may be set, by the one that only goes on.
        let unix = |at: Instant| frame.unix + (at - frame.came).as_nanos() as u64;
        let captured = frame.captured.map(|ago| frame.unix.saturating_sub(ago.as_nanos() as u64));
        let last = frame.passed.last().map_or(frame.came, |(_, at)| *at);
        let end = if objects.is_some() { left } else { last };
        let span = |name: &str, span_id: [u8; 8], parent: &[u8], begin, end, attributes| TraceSpan {
            trace_id: frame.trace.id.to_vec(),
            span_id: span_id.to_vec(),
            parent_span_id: parent.to_vec(),
            flags: SAMPLED,
            name: name.into(),
            kind: INTERNAL,
            start_time_unix_nano: begin,
            end_time_unix_nano: end,
            attributes,
            status: None,
        };
        let mut attributes = vec![
            KeyValue::new("source", self.source.as_str()),
            KeyValue::new("stream-time", frame.time.nseconds() as f64 / 1e9),
        ];
        attributes.extend(objects.map(|objects| KeyValue::new("objects", objects)));
        let begin = captured.unwrap_or(frame.unix);
        let mut root = span("frame", frame.trace.root, &[], begin, unix(end), attributes);
        if objects.is_none() {
            root.status = Some(SpanStatus { message: "dropped before it had its results".into(), code: ERROR });
        }
        let child = |name: &str, begin, end, attributes| {
            span(name, otel::new_span_id(), &frame.trace.root, begin, end, attributes)
        };
        let mut spans = vec![root];
        spans.extend(captured.map(|captured| child("receive", captured, frame.unix, Vec::new())));
        let mut begin = frame.came;
        for (number, at) in &frame.passed {
            let TracedStage { name, attribute, .. } = &self.stages[*number];
            let attributes = attribute.iter().map(|(key, value)| KeyValue::new(key, value.as_str())).collect();
            spans.push(child(name, unix(begin), unix(*at), attributes));
            begin = *at;
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer() -> FrameTracer {
        let stage = |name: &'static str, attribute| TracedStage { element: name.into(), name, attribute };
        FrameTracer {
            source: "gate".into(),
            stages: vec![stage("queue", None), stage("infer", Some(("model", "yolo".into())))],
            under_way: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    fn trace(number: u8) -> SampledTrace {
        SampledTrace { id: [number; 16], root: [number; 8] }
    }

    fn time(number: u64) -> Option<gst::ClockTime> {
        Some(gst::ClockTime::from_seconds(number))
    }

    #[test]
    fn each_stage_is_a_span_of_its_frame() {
        let tracer = tracer();
        tracer.arrive(None, trace(9), None);
        assert!(!tracer.has_some(), "a frame without a time cannot be followed");
        tracer.arrive(time(1), trace(1), Some(Duration::from_millis(80)));
        tracer.arrive(time(3), trace(3), None);
        for stage in [0, 1] {
            [1, 2].into_iter().for_each(|number| tracer.pass(stage, time(number)));
        }
        tracer.pass(0, time(1));
        let [spans] = &tracer.leave(time(1), || 2)[..] else { panic!("one frame") };
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["frame", "receive", "queue", "infer"]);
        let [frame, receive, queue, infer] = &spans[..] else { panic!("four spans") };
        assert!(spans.iter().all(|span| span.trace_id == [1; 16] && span.status.is_none()));
        assert!([receive, queue, infer].iter().all(|span| span.parent_span_id == [1; 8]));
        assert_eq!((&frame.span_id[..], frame.parent_span_id.len()), (&[1; 8][..], 0));
        assert_eq!(receive.end_time_unix_nano - receive.start_time_unix_nano, 80_000_000);
        assert_eq!(frame.start_time_unix_nano, receive.start_time_unix_nano);
        assert_eq!(queue.start_time_unix_nano, receive.end_time_unix_nano);
        assert_eq!(infer.start_time_unix_nano, queue.end_time_unix_nano);
        assert!(frame.end_time_unix_nano >= infer.end_time_unix_nano);
        assert_eq!(infer.attributes, [KeyValue::new("model", "yolo")]);
        let expected = [("source", "gate".into()), ("stream-time", 1.0.into()), ("objects", 2u64.into())];
        assert_eq!(frame.attributes, expected.map(|(key, value): (_, otel::AttributeValue)| KeyValue::new(key, value)));
        assert!(tracer.has_some(), "the next one is under way");
    }

    #[test]
    fn frames_that_others_overtake_were_dropped() {
        let tracer = tracer();
        tracer.arrive(time(1), trace(1), None);
        tracer.arrive(time(5), trace(5), None);
        tracer.pass(0, time(1));
        let [spans] = &tracer.leave(time(2), || 7)[..] else { panic!("one frame") };
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!((names, spans[0].status.as_ref().map(|status| status.code)), (vec!["frame", "queue"], Some(ERROR)));
        assert_eq!(spans[0].attributes.len(), 2, "it has no objects");
        assert!(tracer.leave(time(2), || 7).is_empty() && tracer.has_some());
        // Those that never leave are forgotten.
        (0..MOST_UNDER_WAY as u64).for_each(|number| tracer.arrive(time(10 + number), trace(2), None));
        assert_eq!(tracer.lock().len(), MOST_UNDER_WAY);
        assert_eq!(tracer.leave(time(1000), || 0).len(), MOST_UNDER_WAY);
        assert!(!tracer.has_some());
    }
}
