// SPDX-License-Identifier: MPL-2.0
//! What is measured and found on the frames of a source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use gsttrt::gst::meta::record;
use gsttrt::gst::meta::tensor::{Payload, TensorMeta};
use gsttrt::gst::meta::vector;
use gsttrt_core::backends::batcher::CancelToken;
use gsttrt_publish::formats::gst_trt;
use gsttrt_publish::record::{FrameRecord, PublishSource};
use serde_json::Value;

use super::lines::JsonLines;
use super::objects::is_of_whole;
use super::{DetectArgs, Job, Setup, whole_path};
use crate::chain::{STAGES, element, stage};

/// What was measured and found on the frames so far.
#[derive(Clone, Default)]
pub struct DetectReport {
    pub frames: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    /// All of them, in their order.
    stages: Vec<MeasuredStage>,
    objects: LabelCounts,
    /// Maps by their kind, and on how many of them a class is.
    maps: BTreeMap<String, u64>,
    regions: BTreeMap<String, u64>,
    /// Frames with a vector of the whole of them.
    vectors: u64,
    /// What classifiers of objects have found.
    attributes: LabelCounts,
    /// What the message of the next frame says: its objects are those of an earlier one, or predicted.
    is_held: bool,
    is_predicted: bool,
    /// Whether a frame had results of the whole of it, in place of objects.
    pub is_of_whole_frames: bool,
}

/// How often labels were found. Those of models that read text are any number of texts.
#[derive(Clone, Default)]
struct LabelCounts {
    of_each: BTreeMap<String, u64>,
    /// Of all that came after so many others.
    of_more: u64,
}

impl LabelCounts {
    /// As many classes as large classifiers have.
    const MOST: usize = 1000;

    fn add(&mut self, label: &str) {
        if let Some(count) = self.of_each.get_mut(label) {
            *count += 1;
        } else if self.of_each.len() < LabelCounts::MOST {
            self.of_each.insert(label.to_string(), 1);
        } else {
            self.of_more += 1;
        }
    }

    fn text(&self) -> String {
        let each = counted(&self.of_each);
        if self.of_more == 0 { each } else { format!("{each}, and {} of further labels", self.of_more) }
    }
}

/// Labels with their counts.
fn counted(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> = counts.iter().map(|(label, count)| format!("{label} {count}")).collect();
    if counts.is_empty() { "none".into() } else { counts.join(", ") }
}

/// An element of a model.
#[derive(Clone)]
struct MeasuredStage {
    name: String,
    /// When each frame that is on its way came to it, of those that have, the first frame first.
    entered: VecDeque<Instant>,
    total: Duration,
}

/// The name of the source that a frame is of, and its stream time; `None` where there is none.
pub type Origin = Box<dyn Fn(&gst::Pad, &gst::BufferRef) -> (Option<String>, Option<gst::ClockTime>) + Send + Sync>;

impl DetectReport {
    pub fn fps(&self) -> f64 {
        let time = self.time();
        if time.is_zero() { 0.0 } else { (self.frames - 1) as f64 / time.as_secs_f64() }
    }

    /// From the results of the first frame to those of the last.
    fn time(&self) -> Duration {
        self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last - first)
    }

    /// Whether frames came that were not yet under way with the first one. Of those that were, the model was loaded first,
    /// and how soon one comes after the other tells nothing.
    fn tells_rate(&self) -> bool {
        let frames = self.frames.saturating_sub(1).max(1) as u32;
        self.time() > self.stages.iter().map(|stage| stage.total).sum::<Duration>() / frames
    }

    pub fn summary(&self, job: &Job, args: &DetectArgs) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            let line_break = if text.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{line_break}{name:<11} {value}");
        };
        // Summaries of several sources follow each other.
        if job.place.is_some() {
            row("source", job.shown());
        }
        row("frames", self.frames.to_string());
        // Times are of the frames after the first one.
        if self.frames > 1 {
            if self.tells_rate() {
                row("fps", format!("{:.1}", self.fps()));
            }
            let frames = (self.frames - 1) as f64;
            for MeasuredStage { name, total, .. } in &self.stages {
                row(name, format!("{:.2} ms", total.as_secs_f64() * 1e3 / frames));
            }
        }
        // What models of maps find are no objects.
        if !self.maps.is_empty() {
            row("maps", counted(&self.maps));
        }
        if !self.regions.is_empty() {
            row("regions", counted(&self.regions));
        }
        // Who has not asked for them would find nothing.
        if self.vectors > 0 {
            let how = if args.vectors { "" } else { ": --vectors writes them" };
            row("vectors", format!("{}{how}", self.vectors));
        }
        if !self.objects.of_each.is_empty() || self.maps.is_empty() && self.vectors == 0 {
            row("detections", self.objects.text());
        }
        if !self.attributes.of_each.is_empty() {
            row("attributes", self.attributes.text());
        }
        for path in job.output.iter().chain(job.json.iter().chain(&args.json)).chain(&args.parquet) {
            row("wrote", path.display().to_string());
        }
        text
    }

    /// A frame has left the stages.
    fn add(&mut self, now: Instant) {
        let entered: Vec<Option<Instant>> = self.stages.iter_mut().map(|stage| stage.entered.pop_front()).collect();
        let entered: Option<Vec<Instant>> = entered.into_iter().collect();
        // The first frame waits for the model to load, which is no stage's time.
        if let Some(entered) = entered.filter(|_| self.frames > 0) {
            let left = entered.iter().skip(1).copied().chain([now]);
            for ((stage, entered), left) in self.stages.iter_mut().zip(&entered).zip(left) {
                stage.total += left - *entered;
            }
        }
        self.frames += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// What is found on a frame.
    fn record(&mut self, pad: &gst::Pad, buffer: &gst::BufferRef, time: Option<gst::ClockTime>) -> FrameRecord {
        let caps = pad.current_caps();
        let size = |field| caps.as_ref().and_then(|caps| caps.structure(0)?.get::<i32>(field).ok()).unwrap_or(0) as u32;
        let mut frame = record::frame(buffer, (size("width"), size("height")));
        let detected = frame.objects.iter().map(|object| &*object.annotation.label);
        let class = frame.classes.iter().flatten().take(1).filter_map(|class| class["label"].as_str());
        let texts = frame.texts.iter().filter_map(|text| text["text"].as_str());
        for label in detected.chain(class).chain(texts) {
            self.objects.add(label);
        }
        for map in frame.maps.iter().flatten() {
            *self.maps.entry(map["kind"].as_str().unwrap_or_default().to_string()).or_default() += 1;
            let regions = map["regions"].as_array().into_iter().flatten();
            let labels: BTreeSet<&str> = regions.filter_map(|region| region["label"].as_str()).collect();
            for label in labels {
                *self.regions.entry(label.to_string()).or_default() += 1;
            }
        }
        self.vectors += u64::from(vector::are_of_frame(buffer));
        for attribute in frame.objects.iter().flat_map(|object| &object.annotation.attributes) {
            self.attributes.add(&attribute.label);
        }
        self.is_of_whole_frames |= is_of_whole(&frame);
        frame.number = self.frames;
        frame.times.stream_time = time.map(gst::ClockTime::nseconds);
        frame.is_held = std::mem::take(&mut self.is_held);
        frame
    }

    /// The line of a frame.
    fn line(&mut self, frame: &FrameRecord, source: Option<&str>, has_track: bool) -> Value {
        let mut line = gst_trt::frame(frame, &PublishSource::default());
        if let Some(source) = source {
            line["source"] = source.into();
        }
        if has_track {
            line["predicted"] = std::mem::take(&mut self.is_predicted).into();
        }
        line
    }
}

/// The report of a pipeline that runs.
#[derive(Clone, Default)]
pub struct Watched(Arc<Mutex<DetectReport>>);

impl Watched {
    pub fn lock(&self) -> MutexGuard<'_, DetectReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches frames enter and leave the elements, and writes a line for each, and its rows.
pub fn watch(pipeline: &gst::Pipeline, job: &Job, setup: &Setup, lines: Arc<JsonLines>, origin: Origin) -> Watched {
    let report = Watched::default();
    let pad = |name: &str, end: &str| element(pipeline, name).static_pad(end).expect("filters have these pads");
    let models = setup.chain.models().enumerate();
    let names = models.flat_map(|(number, _)| STAGES.map(|name| stage(name, number)));
    let measured = |name| MeasuredStage { name, entered: VecDeque::new(), total: Duration::ZERO };
    let stages: Vec<MeasuredStage> = names.map(measured).collect();
    report.lock().stages.clone_from(&stages);
    for (number, MeasuredStage { name, .. }) in stages.iter().enumerate() {
        let report = report.clone();
        pad(name, "sink").add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let payload = info.buffer().and_then(|buffer| TensorMeta::get(buffer));
            if let Some(Payload::Output { outputs, .. }) = payload.as_deref() {
                // trtnms would wait for them, in this thread too, and that is the model's time.
                outputs.iter().for_each(|output| drop(output.wait(&CancelToken::default())));
            }
            report.lock().stages[number].entered.push_back(Instant::now());
            gst::PadProbeReturn::Ok
        });
    }

    // Of a frame without objects, only the message says whether it was skipped, whatever the options for trtnms are. It
    // is posted just before the frame goes on.
    let first = element(pipeline, setup.chain.last_of_first());
    first.set_property("post-messages", true);
    let (shared, first) = (report.clone(), first.downgrade());
    pipeline.bus().expect("a pipeline has a bus").set_sync_handler(move |_, message| {
        registry::answer_message(message, 0);
        let content = message.structure().filter(|content| content.name() == "trt-detections");
        let Some(content) = content else { return gst::BusSyncReply::Pass };
        // What a model on objects finds is never of an earlier frame.
        let first = first.upgrade().map(|first| first.upcast::<gst::Object>());
        if first.as_ref() != message.src() {
            return gst::BusSyncReply::Drop;
        }
        let mut report = shared.lock();
        report.is_held = content.get("held").unwrap_or_default();
        report.is_predicted = content.get("predicted").unwrap_or_default();
        gst::BusSyncReply::Drop
    });

    let (shared, has_track) = (report.clone(), setup.chain.track.is_some());
    let (table, name, has_vectors) = (setup.table.clone(), job.table_name(), setup.vectors);
    pad(&setup.chain.last(), "src").add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let now = Instant::now();
        let Some(buffer) = info.buffer() else { return gst::PadProbeReturn::Ok };
        let mut report = shared.lock();
        let (source, time) = origin(pad, buffer);
        let mut frame = report.record(pad, buffer, time);
        if has_vectors {
            record::add_vectors(&mut frame, buffer);
        }
        let line = report.line(&frame, source.as_deref(), has_track);
        report.add(now);
        drop(report);
        if let Some(table) = &table {
            match (&name, source) {
                (Some(name), _) => table.add(name, &frame),
                // Each image is a source of its own.
                (None, Some(image)) => table.add(&whole_path(image.as_ref()), &FrameRecord { number: 0, ..frame }),
                (None, None) => {}
            }
        }
        lines.write(&line);
        gst::PadProbeReturn::Ok
    });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_number_are_counted_together() {
        let mut counts = LabelCounts::default();
        assert_eq!(counts.text(), "none");
        (0..LabelCounts::MOST).for_each(|number| counts.add(&format!("{number:04}")));
        assert!(counts.text().ends_with(", 0998 1, 0999 1"), "{}", counts.text());
        ["1000", "0999", "1001", "1000"].into_iter().for_each(|label| counts.add(label));
        assert!(counts.text().ends_with(", 0999 2, and 3 of further labels"), "{}", counts.text());
        assert_eq!(counts.of_each.len(), LabelCounts::MOST);
    }
}
