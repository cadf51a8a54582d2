// SPDX-License-Identifier: MPL-2.0
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::redact::redacted;
use gsttrt_publish::clock;
use gsttrt_publish::destinations;
use gsttrt_publish::formats;
use gsttrt_publish::options::PublishOptions;
use gsttrt_publish::publisher::{Notice, PublishCounts, Publisher};
use gsttrt_publish::record::{Record, TracksInSight};

use super::MessageSubject;
use super::effect::without_effect;
use super::ending::{LastMessages, stopped_with};
use super::in_video::{self, MessagesInVideo};
use super::settings::{PROPERTIES, PublishSettings, Wanted};
use super::subject::{AwaitedSubject, missing};
use crate::gst::element::Properties;
use crate::gst::meta::record;
use crate::gst::meta_filter::{MetaFilter, meta_filter};
use crate::gst::publish_end;
use crate::gst::report::Report;
use crate::gst::stats;
use crate::gst::stream::{StreamFrame, VideoStream, any_video_and_h264_templates};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtpublish", gst::DebugColorFlags::empty(), Some("Results to files and brokers"))
});

/// State since start() and set_caps().
#[derive(Default)]
pub struct PublishState {
    stream: VideoStream,
    /// When the last frame was published, in running time.
    published: Option<u64>,
    tracks: TracksInSight,
    awaited: AwaitedSubject,
    /// Since the end has come, or is near.
    last: Option<LastMessages>,
    /// Where messages go to the video itself.
    in_video: Option<Arc<MessagesInVideo>>,
}

/// Lock order: settings, state, is_stopping, publisher. No lock is held while the publisher is waited for.
#[derive(Default)]
pub struct TrtPublish {
    settings: Mutex<PublishSettings>,
    state: Mutex<Option<PublishState>>,
    publisher: Mutex<Option<Arc<Publisher<Record>>>>,
    /// No frame may wait any more, also behind a flush that ends only now. Locked while that is told to the publisher.
    is_stopping: Mutex<bool>,
    /// The counts when the last publisher was closed.
    last_counts: Mutex<PublishCounts>,
    stats: Stats,
}

impl TrtPublish {
    fn publisher(&self) -> Option<Arc<Publisher<Record>>> {
        self.publisher.lock().unwrap().clone()
    }

    fn connect(&self, settings: &PublishSettings) -> Result<Publisher<Record>> {
        let source = settings.source()?;
        let options = PublishOptions { key: settings.source_id.clone(), ..settings.options.clone() };
        let opened = destinations::open(&options)?;
        gst::debug!(CAT, imp = self, "publishing to {}", opened.shown);
        let format = settings.format;
        let write = move |record: &Record| formats::message(format, record, &source);
        let element = self.obj().downgrade();
        let notify = move |notice| {
            let Some(element) = element.upgrade() else { return };
            match notice {
                Notice::Failing(error) | Notice::Refused(error) => element.post_warning(&error),
                Notice::Back(note) => element.post_info(&note),
            }
        };
        Publisher::start(opened, &options, write, notify)
    }

    /// The records of a frame.
    fn records(&self, state: &mut PublishState, wanted: &Wanted, buffer: &gst::BufferRef) -> Vec<Record> {
        let StreamFrame { number, stream_time, is_cut, .. } = state.stream.advance(buffer.pts());
        let (now, scene) = (state.stream.now, state.stream.scene);
        if wanted.per == MessageSubject::Frame && !is_due(state, wanted.publish_every) {
            return Vec::new();
        }
        let mut frame = record::frame(buffer, state.stream.size);
        state.awaited.see(wanted.per, &frame);
        if wanted.vectors {
            record::add_vectors(&mut frame, buffer);
        }
        frame.number = number;
        frame.times.stream_time = stream_time.map(gst::ClockTime::nseconds);
        frame.times.wall_clock = Some(clock::now());
        match wanted.per {
            MessageSubject::Frame if frame.is_empty() && !wanted.add_empty_results => Vec::new(),
            MessageSubject::Frame => {
                state.published = Some(now);
                vec![Record::Frame(frame)]
            }
            MessageSubject::Event => {
                let times = frame.times;
                frame.events.into_iter().map(|event| Record::Event { times, number, event }).collect()
            }
            MessageSubject::Object => {
                let ended = if is_cut { state.tracks.end_all() } else { Vec::new() };
                let gone = state.tracks.see(&frame, scene, wanted.gone_after);
                ended.into_iter().chain(gone).map(Record::Track).collect()
            }
        }
    }

    fn push(&self, publisher: &Publisher<Record>, records: Vec<Record>) {
        for record in records {
            if publisher.push(record) {
                let max_queued = self.settings.lock().unwrap().options.max_queued;
                let warning = Error::new(ErrorKind::Run, "Messages are dropped")
                    .cause(format!("{max_queued} wait to be sent to {} already", self.destination()))
                    .remedy("stats counts them; with a larger max-queued more can wait");
                self.obj().post_warning(&warning);
            }
        }
    }

    /// Where messages go to: there may be several destinations, and one of them does not work.
    fn destination(&self) -> String {
        redacted(self.settings.lock().unwrap().options.location.reveal())
    }

    /// Counts messages that the video has now; returns how many.
    fn count_in_video(&self, (given, too_long): (usize, usize)) -> usize {
        let is_first = {
            let mut counts = self.last_counts.lock().unwrap();
            counts.published += given as u64;
            counts.rejected += too_long as u64;
            too_long > 0 && counts.rejected == too_long as u64
        };
        if is_first {
            self.obj().post_warning(&in_video::too_long());
        }
        given
    }

    /// The end of all objects in sight.
    fn end_tracks(&self) {
        let ended = match &mut *self.state.lock().unwrap() {
            Some(state) => state.tracks.end_all(),
            None => return,
        };
        if let Some(publisher) = self.publisher().filter(|_| !ended.is_empty()) {
            self.push(&publisher, ended.into_iter().map(Record::Track).collect());
        }
    }

    /// The time for what is queued begins, unless it has. Returns whether it does.
    fn begin_end(&self, limit: Option<Duration>) -> bool {
        let wait = self.settings.lock().unwrap().options.flush_timeout;
        let mut state = self.state.lock().unwrap();
        let Some(state) = state.as_mut() else { return false };
        let is_first = state.last.is_none();
        let last = state.last.get_or_insert_with(|| LastMessages::new(wait));
        limit.into_iter().for_each(|limit| last.limit(limit));
        is_first
    }

    /// There is no end: a stream begins, perhaps another one.
    fn go_on(&self) {
        if let Some(state) = self.state.lock().unwrap().as_mut() {
            state.last = None;
        }
    }

    fn last(&self) -> Option<LastMessages> {
        self.state.lock().unwrap().as_ref().and_then(|state| state.last)
    }

    fn flush(&self) {
        let (Some(publisher), Some(last)) = (self.publisher(), self.last()) else { return };
        if publisher.flush(last.left()) {
            return self.go_on(); // what comes later has a time of its own
        }
        let (queued, destination) = (publisher.counts().queued, self.destination());
        let what = format!("{queued} messages are not sent at the end of the stream, to {destination}");
        self.obj().post_warning(&Error::new(ErrorKind::Run, what).cause(last.cause()).remedy(last.remedy()));
    }

    /// The streaming thread may wait for room, or for the last message.
    fn prepare_state(&self, transition: gst::StateChange) {
        if transition == gst::StateChange::PausedToReady {
            for other in stopped_with(&self.obj()) {
                other.imp().begin_end(None);
            }
            let mut is_stopping = self.is_stopping.lock().unwrap();
            *is_stopping = true;
            self.publisher().iter().for_each(|publisher| publisher.set_open(true));
        }
    }

    fn statistics(&self) -> gst::Structure {
        let counts = self.publisher().map_or_else(|| *self.last_counts.lock().unwrap(), |publisher| publisher.counts());
        let totals = self.stats.read();
        let counted = [
            ("frames", totals.done),
            ("objects", totals.objects),
            ("published", counts.published),
            ("queued", counts.queued),
            ("dropped", counts.dropped),
            ("rejected", counts.rejected),
            ("connections", counts.connections),
        ];
        let mut built = stats::structure(&totals, counted);
        built.set("connected", counts.is_connected);
        built
    }
}

/// Whether a frame of now may be published. A time that has jumped back begins again.
fn is_due(state: &PublishState, publish_every: u64) -> bool {
    let now = state.stream.now;
    state.published.is_none_or(|last| now < last || now - last >= publish_every)
}

impl Properties for TrtPublish {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property(
            "Frames; messages published, waiting, dropped and rejected; connections; and the time that frames take",
        )]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| self.statistics().to_value())
    }
}

meta_filter! {
    TrtPublish: "GstTrtPublish",
    factory: "trtpublish",
    name: "Object detection: publisher",
    classification: "Filter/Analyzer/Video/Network",
    description: "Publishes the results in metas as JSON, to files and brokers",
    pads: any_video_and_h264_templates(),
    before_state_change: prepare_state,
}

impl MetaFilter for TrtPublish {
    type State = PublishState;

    fn open(&self) -> Result<PublishState> {
        let settings = self.settings.lock().unwrap().clone();
        *self.last_counts.lock().unwrap() = PublishCounts::default();
        *self.is_stopping.lock().unwrap() = false;
        let mut state = PublishState::default();
        if settings.is_in_video() {
            state.in_video = Some(Arc::new(MessagesInVideo::new(&settings)?));
        } else {
            *self.publisher.lock().unwrap() = Some(Arc::new(self.connect(&settings)?));
        }
        if let Some(warning) = without_effect(&settings) {
            self.obj().post_warning(&warning);
        }
        Ok(state)
    }

    fn close(&self) {
        self.end_tracks();
        self.begin_end(None);
        let wait = self.last().map_or(Duration::ZERO, |last| last.left());
        // It stays until then, as its counts go on.
        if let Some(publisher) = self.publisher() {
            let counts = publisher.close(wait);
            *self.last_counts.lock().unwrap() = counts;
            *self.publisher.lock().unwrap() = None;
            let PublishCounts { published, dropped, rejected, .. } = counts;
            if dropped + rejected > 0 {
                let all = published + dropped + rejected;
                let (lost, destination) = (dropped + rejected, self.destination());
                let what = format!("{lost} of {all} messages were not published to {destination}");
                let cause = format!("{dropped} were dropped, {rejected} refused");
                self.obj().post_warning(&Error::new(ErrorKind::Run, what).cause(cause));
            }
        }
    }

    fn see_event(&self, event: &gst::Event, is_cut: bool) {
        if is_cut {
            if let Some(state) = self.state.lock().unwrap().as_mut() {
                state.published = None;
            }
            self.end_tracks();
        }
        match event.view() {
            gst::EventView::FlushStart(_) => self.publisher().iter().for_each(|publisher| publisher.set_open(true)),
            gst::EventView::FlushStop(_) => {
                self.go_on();
                let is_stopping = self.is_stopping.lock().unwrap();
                self.publisher().iter().for_each(|publisher| publisher.set_open(*is_stopping));
            }
            gst::EventView::StreamStart(_) => self.go_on(),
            gst::EventView::CustomDownstream(_) => {
                if let Some(limit) = publish_end::of(event) {
                    self.end_tracks();
                    self.begin_end(limit);
                }
            }
            gst::EventView::CustomDownstreamOob(_) => {
                if let Some(limit) = publish_end::of(event) {
                    self.begin_end(limit);
                }
            }
            gst::EventView::Eos(_) => {
                self.end_tracks();
                if self.begin_end(None) {
                    let source = self.obj().static_pad("src").expect("an always pad");
                    source.push_event(publish_end::event(None));
                }
                self.flush();
            }
            _ => {}
        }
    }

    fn process(&self, frame: &mut gst::Buffer) -> std::result::Result<(), gst::FlowError> {
        let stage = Span::begin(false);
        let wanted = self.settings.lock().unwrap().wanted;
        let publisher = self.publisher();
        publisher.iter().for_each(|publisher| publisher.begin());
        let (records, in_video, is_overdue) = {
            let mut state = self.state.lock().unwrap();
            let state = state.as_mut().filter(|state| state.stream.size.0 > 0).ok_or(gst::FlowError::NotNegotiated)?;
            let in_video = state.in_video.clone();
            let is_encoded = state.stream.is_encoded;
            let records = if is_encoded { None } else { Some(self.records(state, &wanted, frame)) };
            (records, in_video, state.awaited.take_overdue())
        };
        if let Some(warning) = is_overdue.then(|| missing(wanted.per, &self.obj())).flatten() {
            self.obj().post_warning(&warning);
        }
        let count = match (records, in_video) {
            (Some(records), None) => {
                let count = records.len();
                if let Some(publisher) = publisher.filter(|_| count > 0) {
                    self.push(&publisher, records);
                }
                count
            }
            (records, Some(in_video)) => self.count_in_video(in_video.process(frame, records)),
            (None, None) => {
                self.obj().post_error(&in_video::not_raw());
                return Err(gst::FlowError::NotNegotiated);
            }
        };
        self.stats.add(stage, count);
        Ok(())
    }
}
