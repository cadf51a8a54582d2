// SPDX-License-Identifier: MPL-2.0
//! A video, a camera or a stream: one pipeline from the decoder to the encoder.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt::gst::cuda::registry;

use super::lines::JsonLines;
use super::report::{DetectReport, Watched, watch};
use super::show::Screen;
use super::silence::{ReceivedBytes, SILENCE_LIMIT, Silence};
use super::{Broken, Ended, Job, Setup, ending};
use crate::cause::{SourceFailure, Suspect};
use crate::chain::{self, element, stage};
use crate::failure::Failure;
use crate::frame_times;
use crate::output::{cannot_make, cannot_write, create_part, finish_part, part};
use crate::progress::TaskProgress;
use crate::running::RunningPipeline;
use crate::source::{ReadOptions, VideoAddress, whole};

/// How long frames that are under way may take until one of them has its results.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

pub fn run(
    job: &Job,
    name: &str,
    address: &VideoAddress,
    setup: &Setup,
    common: Option<&Arc<JsonLines>>,
) -> Result<Ended, Broken> {
    let output = job.output.as_deref();
    address.check().map_err(Broken::unreadable)?;
    let screen = setup.screen()?;
    let (pipeline, received) = pipeline(address, output, screen.as_ref(), setup)?;
    let own = job.json.as_deref().map(JsonLines::create).transpose()?.map(Arc::new);
    let lines = own.clone().or(common.cloned()).unwrap_or_else(|| JsonLines::nowhere().into());
    let shown = job.is_named.then(|| address.shown());
    let origin = move |pad: &gst::Pad, buffer: &gst::BufferRef| (shown.clone(), stream_time(pad, buffer));
    let report = watch(&pipeline, job, setup, lines.clone(), Box::new(origin));
    let (closed, entered) = gate(&pipeline, setup.frames);
    let running = RunningPipeline::new(pipeline, &setup.threads, address.shown());
    let outcome = VideoRun {
        running: &running,
        job,
        address,
        setup,
        screen: screen.as_ref(),
        report: &report,
        lines: &lines,
        received,
        entered,
        closed,
    }
    .to_the_end(name);
    // A decoder may be the first to meet a GPU that is lost, and does not tell: that is no fault of the file, and no other one is
    // tried. It can be seen as long as there is a pipeline.
    let outcome = outcome.map_err(|broken| registry::lost().map_or(broken, Broken::from));
    setup.keep_contexts();
    running.stop_in_time(); // one that does not is named at the end
    let finish = || -> Result<(), Failure> {
        if let Some(output) = output {
            finish_part(output).map_err(|error| cannot_write(output.display(), &error))?;
        }
        own.as_ref().map_or(Ok(()), |own| own.finish())
    };
    match outcome.and_then(|end| finish().map(|()| end).map_err(Broken::from)) {
        Ok(VideoEnd { signal, lost }) => {
            let is_kept = output.is_some() || own.is_some() || common.is_some() || setup.table.is_some();
            let kept = if is_kept { " What was found until then is written." } else { "" };
            let lost = lost.map(|lost| format!("{lost}{kept}").into());
            Ok(Ended { report: report.lock().clone(), signal, lost, broken: 0, images: 0 })
        }
        Err(broken) => {
            own.iter().for_each(|own| own.discard());
            output.into_iter().for_each(|path| drop(std::fs::remove_file(part(path))));
            Err(broken)
        }
    }
}

fn pipeline(
    address: &VideoAddress,
    output: Option<&Path>,
    screen: Option<&Screen>,
    setup: &Setup,
) -> Result<(gst::Pipeline, ReceivedBytes), Failure> {
    // Where GPUs decode, frames may come in CUDA memory, of which videoconvert knows nothing.
    let download = if gst::ElementFactory::find("cudadownload").is_some() { "cudadownload !" } else { "" };
    // Queues let decoding, inference and encoding run in parallel. H.264 in 4:2:0 needs even sizes.
    let writer = output.map(|output| {
        let muxer = if ending(output) == "mkv" { "matroskamux" } else { "mp4mux" };
        // The encoder gives its first frame after dozens. Until the pipeline runs, a screen holds frames up, and those of a
        // camera over HTTP have no time of their own: it does not wait for the encoder.
        format!(
            "{download} videoconvert ! videoscale add-borders=false \
             ! capsfilter name=size caps=video/x-raw,width=[2,16384,2],height=[2,16384,2] ! x264enc speed-preset=veryfast \
             ! h264parse ! {muxer} ! filesink name=sink async=false"
        )
    });
    let shown = screen.map(|screen| format!("{download} {}", screen.launch_line(address.is_live())));
    let tail = match (writer, shown) {
        (Some(writer), Some(shown)) => {
            let leaky = if address.is_live() { "leaky=downstream" } else { "" };
            format!("tee name=both ! queue ! {writer} both. ! queue {leaky} max-size-buffers=2 ! {shown}")
        }
        (Some(end), None) | (None, Some(end)) => end,
        (None, None) => "fakesink name=sink sync=false".into(),
    };
    // Where the model is slower than a camera, old frames make room for new ones.
    let queue = match address {
        _ if address.is_live() => "queue name=frames leaky=downstream max-size-buffers=2",
        VideoAddress::Uri(_) => "queue name=frames max-size-buffers=2", // it may become a camera's
        _ => "queue name=frames",
    };
    let chain = if address.is_live() { setup.chain.clone() } else { setup.chain.for_throughput(setup.at_once > 1) };
    let line = format!("{queue} ! {} ! queue ! {tail}", chain.launch_line(output.is_some() || screen.is_some()));
    let pipeline = chain::parse(&line)?;
    chain.configure(&pipeline);
    if let Some(output) = output {
        create_part(output).map_err(|error| cannot_make(output, &error))?;
        element(&pipeline, "sink").set_property("location", part(output));
        keep_size(&element(&pipeline, "size"));
        frame_times::keep_order(&element(&pipeline, "size").static_pad("src").expect("an always pad"));
    }
    screen.iter().for_each(|screen| screen.connect(&pipeline));
    let options = ReadOptions { is_kept: true, ..ReadOptions::default() };
    let received = ReceivedBytes::of(&pipeline);
    address.connect(&pipeline, input(&pipeline), &options)?;
    Ok((pipeline, received))
}

/// A file has one size, from its first frame to its last; frames that come in another one are scaled.
fn keep_size(filter: &gst::Element) {
    const KEPT: [&str; 6] = ["format", "width", "height", "pixel-aspect-ratio", "colorimetry", "chroma-site"];
    let out = filter.static_pad("src").expect("an always pad");
    let filter = filter.downgrade();
    out.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view()) else {
            return gst::PadProbeReturn::Ok;
        };
        if let (Some(filter), Some(caps)) = (filter.upgrade(), caps.caps().structure(0)) {
            let kept = caps.iter().filter(|(name, _)| KEPT.iter().any(|kept| name.as_str() == *kept));
            let kept = gst::Structure::from_iter("video/x-raw", kept.map(|(name, value)| (name, value.clone())));
            filter.set_property("caps", gst::Caps::from(kept));
        }
        gst::PadProbeReturn::Remove
    });
}

/// Where the frames go in.
fn input(pipeline: &gst::Pipeline) -> gst::Pad {
    element(pipeline, "frames").static_pad("sink").expect("an always pad")
}

/// When the frame is shown, counted from the start of the file: files may begin their own time stamps anywhere.
fn stream_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<gst::ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<gst::ClockTime>()?.to_stream_time(buffer.pts())
}

/// Lets in as many frames as the user wants, whose number is returned, too, and none once it is closed: the queue may hold hundreds.
fn gate(pipeline: &gst::Pipeline, limit: Option<u64>) -> (Arc<AtomicBool>, Arc<AtomicU64>) {
    let (closed, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (is_closed, entered) = (closed.clone(), count.clone());
    let out = element(pipeline, "frames").static_pad("src").expect("an always pad");
    out.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let is_wanted = limit.is_none_or(|limit| entered.load(Ordering::Relaxed) < limit);
        if is_closed.load(Ordering::Relaxed) || !is_wanted {
            return gst::PadProbeReturn::Drop;
        }
        entered.fetch_add(1, Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
    (closed, count)
}

/// How a video came to its end, which its files have.
struct VideoEnd {
    signal: Option<i32>,
    /// Of one that was not read to its end, or that has none: why.
    lost: Option<String>,
}

/// The end is under way: how many frames had their results, and when.
struct Drain {
    frames: u64,
    since: Instant,
}

struct VideoRun<'a> {
    running: &'a RunningPipeline,
    job: &'a Job,
    address: &'a VideoAddress,
    setup: &'a Setup,
    screen: Option<&'a Screen>,
    report: &'a Watched,
    lines: &'a JsonLines,
    received: ReceivedBytes,
    /// The frames that were let in.
    entered: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
}

impl VideoRun<'_> {
    /// Runs to the end of the source, to the number of frames that the user wants, to the end of the window, or to a signal, which is returned
    /// where it came before the end. A camera or a stream that is lost comes to an end as well. The error is the first that an
    /// element posts.
    fn to_the_end(&self, name: &str) -> Result<VideoEnd, Broken> {
        let pipeline = &self.running.pipeline;
        let bus = pipeline.bus().expect("a pipeline has a bus");
        // An error message is more specific than the failed state change, so it is looked for first.
        let mut starting = self.running.starting();
        let mut task = self.setup.display.one_of(name, self.job.place);
        let (mut quiet, mut signal, mut lost) = (0, None, None);
        let mut drain: Option<Drain> = None;
        let mut silence = Silence::new(Instant::now());
        loop {
            let started = starting.outcome(Duration::ZERO);
            let message = bus.timed_pop(gst::ClockTime::from_mseconds(100));
            match message.as_ref().map(|message| message.view()) {
                Some(gst::MessageView::Eos(_)) => break,
                // It is read no more.
                Some(gst::MessageView::Error(error)) if drain.is_some() && self.address.is_of_reading(error) => {}
                Some(gst::MessageView::Error(error)) if self.is_loss(error) => {
                    lost = Some(self.lost(&task, Some(&self.explained(error))));
                    drain = Some(self.drain()?);
                }
                Some(gst::MessageView::Error(error)) => {
                    return Err(if self.address.is_of_reading(error) {
                        Broken::unreadable(self.explained(error))
                    } else {
                        self.sentence(error).into()
                    });
                }
                Some(gst::MessageView::Warning(warning)) if self.address.is_of_reading_at(warning.src()) => {
                    quiet = 0;
                    let text = warning.error().to_string();
                    let shown = self.address.shown();
                    let name = if text.contains(&shown) { String::new() } else { format!("{shown}: ") };
                    task.line(&format!("Warning: {name}{text}"));
                }
                None if started == Some(false) => return Err("The pipeline does not start.".into()),
                // Once may be just before its last message.
                None if started == Some(true) && self.address.gave_up(pipeline, &input(pipeline)) => quiet += 1,
                _ => {
                    quiet = 0;
                    message.iter().for_each(|message| self.setup.said.show(&task, message));
                }
            }
            if quiet > 2 {
                let what = format!("Cannot read {}: it is damaged, or cut off.", self.address.shown());
                return Err(Broken::unreadable(what));
            }
            if let Some(fault) = self.running.connections.fault() {
                self.running.connections.cut();
                let shown = self.address.shown();
                return Err(Broken::unreadable(format!("Cannot read {shown}: {}.", fault.text())));
            }
            self.lines.check()?;
            self.setup.check_table()?;
            let report = self.report.lock().clone();
            self.setup.check_objects(&report)?;
            let is_enough =
                self.has_enough(&report) || self.screen.is_some_and(|screen| screen.is_closed(&self.setup.display));
            let number = self.setup.signals.signal();
            if drain.is_none() && (is_enough || number.is_some()) {
                if report.frames == 0 {
                    return Err(Broken::stopped(&self.address.shown()));
                }
                // A camera is ended so, which is no failure.
                signal = number.filter(|_| !is_enough && !self.address.runs_live(pipeline));
                self.closed.store(true, Ordering::Relaxed); // its queue holds frames that are not needed
                drain = Some(self.drain()?);
            }
            if let Some(Drain { frames, since }) = &mut drain {
                if *frames != report.frames {
                    (*frames, *since) = (report.frames, Instant::now());
                }
                if since.elapsed() > DRAIN_LIMIT {
                    return Err(format!("{} does not come to its end.", self.address.shown()).into());
                }
            }
            let silent = self.silence(&task, &report, &mut silence).filter(|_| drain.is_none());
            if let Some(why) = silent {
                if report.frames == 0 {
                    return Err(Broken::unreadable(format!("Cannot read {}: {why}", self.address.shown())));
                }
                lost = Some(format!("Cannot read {} to its end: {why}", self.address.shown()));
                drain = Some(self.drain()?);
            }
            self.show(&mut task, &report);
        }
        let report = self.report.lock().clone();
        self.setup.check_objects(&report)?;
        if report.frames == 0 {
            return Err(Broken::unreadable(format!("Cannot read {}: there is no video in it.", self.address.shown())));
        }
        let is_wanted = !self.has_enough(&report) && self.setup.signals.signal().is_none();
        if drain.is_none() && is_wanted {
            let is_live = self.address.runs_live(pipeline);
            lost = if is_live { Some(self.lost(&task, None)) } else { self.cut_off() };
        }
        Ok(VideoEnd { signal, lost })
    }

    fn has_enough(&self, report: &DetectReport) -> bool {
        self.setup.frames.is_some_and(|limit| report.frames >= limit)
    }

    /// Lets what is under way come to its end.
    fn drain(&self) -> Result<Drain, Failure> {
        // The decoder may not look for events. The pad may be blocked by frames that wait.
        let end = |pipeline: &gst::Pipeline| {
            input(pipeline).send_event(gst::event::Eos::new());
        };
        self.running.ask("end", end)?;
        Ok(Drain { frames: self.report.lock().frames, since: Instant::now() })
    }

    /// Whether an error ends a camera or a stream that has given frames.
    fn is_loss(&self, error: &gst::message::Error) -> bool {
        let is_live = self.address.runs_live(&self.running.pipeline);
        let is_wanted = self.setup.signals.signal().is_none();
        is_live && is_wanted && self.address.is_of_reading(error) && self.report.lock().frames > 0
    }

    /// Says of which of several sources it is, at once.
    fn lost(&self, task: &TaskProgress, why: Option<&str>) -> String {
        let why = why.unwrap_or("the connection is lost, or the other side has stopped.");
        let text = format!("{} has ended, and a camera or a stream has no end: {why}", self.address.shown());
        if self.job.is_named {
            task.line(&format!("Warning: {text}"));
        }
        text
    }

    /// Why not all of a file could be read, for the table: there nobody sees the warning that it begins with.
    fn cut_off(&self) -> Option<String> {
        let VideoAddress::File(path) = self.address else { return None };
        let is_listed = self.setup.table.is_some() && path.is_file(); // to open a pipe would be to wait
        let missing = is_listed.then(|| whole::missing(path)).flatten()?;
        Some(format!("Cannot read {} to its end: {missing}.", self.address.shown()))
    }

    /// Says once that it waits for the source, and for nothing else. Returns why the source is given up, once it is.
    fn silence(&self, task: &TaskProgress, report: &DetectReport, silence: &mut Silence) -> Option<String> {
        let named = |name: &str| element(&self.running.pipeline, name);
        let is_loaded = (self.setup.chain.models().enumerate()).all(|(number, _)| {
            named(&stage("infer", number)).property::<Option<gst::Structure>>("model-info").is_some()
        });
        let has_ended = input(&self.running.pipeline).pad_flags().contains(gst::PadFlags::EOS);
        let is_idle = report.frames >= self.entered.load(Ordering::Relaxed);
        let is_empty = named("frames").property::<u32>("current-level-buffers") == 0;
        let waits = is_loaded && !has_ended && is_idle && is_empty;
        let given = (report.frames, self.received.steps());
        let silent = silence.note(given, waits, Instant::now());
        if silence.is_to_be_said() {
            let seconds = SILENCE_LIMIT.as_secs();
            task.line(&format!("Warning: {} has given no frame for {seconds} s.", self.address.shown()));
        }
        let (limit, seconds) = (self.setup.timeout, self.setup.timeout.as_secs_f64());
        let is_over = !limit.is_zero() && silent > limit && self.address.may_be_silent();
        is_over.then(|| format!("no frame came for {seconds} s. Check what sends it; --timeout gives it more time."))
    }

    /// What fails behind the source. Elements that are not ours do not tell what they work for.
    fn sentence(&self, error: &gst::message::Error) -> String {
        let text = self.address.sentence(error);
        let is_ours = error.src().is_some_and(|source| chain::is_ours(&source.name()));
        match &self.job.output {
            Some(output) if !is_ours => {
                let (output, shown) = (output.display(), self.address.shown());
                let is_full = error.error().matches(gst::ResourceError::NoSpaceLeft);
                let room = if is_full { " Make room on that disk, or write to another one." } else { "" };
                format!(
                    "Cannot write {output} of {shown}: {text}{room} With --no-video only the JSON lines are written."
                )
            }
            _ => text,
        }
    }

    fn explained(&self, error: &gst::message::Error) -> String {
        let (address, threads, subject) = (self.address, &self.setup.threads, &self.address.shown());
        SourceFailure::posted(error, &Suspect { address, stream: &ReadOptions::default().stream, threads, subject })
            .text
    }

    fn show(&self, task: &mut TaskProgress, report: &DetectReport) {
        let pipeline = &self.running.pipeline;
        let position = pipeline.query_position::<gst::ClockTime>();
        let duration = pipeline.query_duration::<gst::ClockTime>();
        let part = match (position, duration) {
            (Some(position), Some(duration)) if !duration.is_zero() && !self.address.runs_live(pipeline) => {
                Some(position.nseconds() as f64 / duration.nseconds() as f64)
            }
            _ => None,
        };
        let part = self.setup.frames.map(|limit| report.frames as f64 / limit as f64).or(part);
        task.show(part, || format!("{} frames, {:.1} fps", report.frames, report.fps()));
    }
}
