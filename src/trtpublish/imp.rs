// SPDX-License-Identifier: MPL-2.0
use std::sync::{Arc, LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;

use super::MessageSubject;
use super::settings::{PROPERTIES, PublishSettings, Wanted};
use crate::core::counters::{Span, Stats};
use crate::core::error::{Error, ErrorKind, Result};
use crate::gst::meta::record;
use crate::gst::report::{Report, error_message, may_set};
use crate::gst::stats;
use crate::gst::stream::{StreamFrame, VideoStream, any_video_templates};
use crate::publish::clock;
use crate::publish::destinations;
use crate::publish::formats;
use crate::publish::publisher::{Notice, PublishCounts, Publisher};
use crate::publish::record::{Record, TracksInSight};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtpublish", gst::DebugColorFlags::empty(), Some("Results to files and brokers"))
});

/// State since start() and set_caps().
#[derive(Default)]
struct PublishState {
    stream: VideoStream,
    /// When the last frame was published, in running time.
    published: Option<u64>,
    tracks: TracksInSight,
}

/// Lock order: settings, state, publisher. No lock is held while the publisher is waited for.
#[derive(Default)]
pub struct TrtPublish {
    settings: Mutex<PublishSettings>,
    state: Mutex<Option<PublishState>>,
    publisher: Mutex<Option<Arc<Publisher<Record>>>>,
    /// The counts when the last publisher was closed.
    last_counts: Mutex<PublishCounts>,
    stats: Stats,
}

impl TrtPublish {
    fn publisher(&self) -> Option<Arc<Publisher<Record>>> {
        self.publisher.lock().unwrap().clone()
    }

    fn open(&self) -> Result<Publisher<Record>> {
        let settings = self.settings.lock().unwrap().clone();
        let source = settings.source()?;
        let opened = destinations::open(&settings.options)?;
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
        Publisher::start(opened, &settings.options, write, notify)
    }

    /// The records of a frame.
    fn records(&self, state: &mut PublishState, wanted: &Wanted, buffer: &gst::BufferRef) -> Vec<Record> {
        let StreamFrame { number, stream_time } = state.stream.advance(&self.obj().segment(), buffer.pts());
        let now = state.stream.now;
        if wanted.per == MessageSubject::Frame && !is_due(state, wanted.publish_every) {
            return Vec::new();
        }
        let mut frame = record::frame(buffer, state.stream.size);
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
                state.tracks.see(&frame, now, wanted.gone_after).into_iter().map(Record::Track).collect()
            }
        }
    }

    fn push(&self, publisher: &Publisher<Record>, records: Vec<Record>) {
        for record in records {
            if publisher.push(record) {
                let max_queued = self.settings.lock().unwrap().options.max_queued;
                let warning = Error::new(ErrorKind::Run, "Messages are dropped")
                    .cause(format!("{max_queued} wait to be sent already"))
                    .remedy("stats counts them; with a larger max-queued more can wait");
                self.obj().post_warning(&warning);
            }
        }
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

    fn flush(&self) {
        let wait = self.settings.lock().unwrap().options.flush_timeout;
        let Some(publisher) = self.publisher() else { return };
        if !publisher.flush(wait) {
            let counts = publisher.counts();
            let warning =
                Error::new(ErrorKind::Run, format!("{} messages are not sent at the end of the stream", counts.queued))
                    .cause(format!("flush-timeout, {:.1} s, is over", wait.as_secs_f64()))
                    .remedy("Check the connection, or set a longer flush-timeout");
            self.obj().post_warning(&warning);
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

/// Whether a frame of now may be published. A time that has jumped back begins anew.
fn is_due(state: &PublishState, publish_every: u64) -> bool {
    let now = state.stream.now;
    state.published.is_none_or(|last| now < last || now - last >= publish_every)
}

#[glib::object_subclass]
impl ObjectSubclass for TrtPublish {
    const NAME: &'static str = "GstTrtPublish";
    type Type = super::TrtPublish;
    type ParentType = gst_base::BaseTransform;
}

impl ObjectImpl for TrtPublish {
    fn properties() -> &'static [glib::ParamSpec] {
        static SPECS: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let stats =
                "Frames; messages published, waiting, dropped and rejected; connections; and the time that frames take";
            PROPERTIES.specs().chain([stats::property(stats)]).collect()
        });
        &SPECS
    }

    fn set_property(&self, _id: usize, value: &glib::Value, property: &glib::ParamSpec) {
        if may_set(&*self.obj(), property) {
            let mut settings = self.settings.lock().unwrap();
            PROPERTIES.set(&mut settings, property.name(), value);
            // As it is shown, which a password is not.
            let shown = PROPERTIES.get(&settings, property.name());
            drop(settings);
            gst::info!(CAT, imp = self, "{} = {shown:?}", property.name());
        }
    }

    fn property(&self, _id: usize, property: &glib::ParamSpec) -> glib::Value {
        if property.name() == "stats" {
            return self.statistics().to_value();
        }
        PROPERTIES.get(&self.settings.lock().unwrap(), property.name())
    }
}

impl GstObjectImpl for TrtPublish {}

impl ElementImpl for TrtPublish {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Object detection: publisher",
                "Filter/Analyzer/Video/Network",
                "Publishes the results in metas as JSON, to files and brokers",
                env!("CARGO_PKG_AUTHORS"),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(any_video_templates);
        &*TEMPLATES
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> std::result::Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::PausedToReady
            && let Some(publisher) = self.publisher()
        {
            // The streaming thread may wait for room, or for the last message.
            publisher.set_open(true);
        }
        self.parent_change_state(transition)
    }
}

impl BaseTransformImpl for TrtPublish {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        self.stats.reset();
        let publisher = self.open().map_err(|error| error_message(&error))?;
        *self.publisher.lock().unwrap() = Some(Arc::new(publisher));
        *self.state.lock().unwrap() = Some(PublishState::default());
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        self.end_tracks();
        *self.state.lock().unwrap() = None;
        let wait = self.settings.lock().unwrap().options.flush_timeout;
        let publisher = self.publisher.lock().unwrap().take();
        if let Some(publisher) = publisher {
            let counts = publisher.close(wait);
            *self.last_counts.lock().unwrap() = counts;
            let PublishCounts { published, dropped, rejected, .. } = counts;
            if dropped + rejected > 0 {
                let all = published + dropped + rejected;
                let what = format!("{} of {all} messages were not published", dropped + rejected);
                let cause = format!("{dropped} were dropped, {rejected} refused");
                self.obj().post_warning(&Error::new(ErrorKind::Run, what).cause(cause));
            }
        }
        Ok(())
    }

    /// Buffers pass as they are, so those of downstream's pool do too.
    fn propose_allocation(
        &self,
        _decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> std::result::Result<(), gst::LoggableError> {
        self.parent_propose_allocation(None, query)
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        let segment = self.obj().segment();
        let is_cut = |state: &mut PublishState| {
            let is_cut = state.stream.is_cut(&event, &segment);
            state.published.take_if(|_| is_cut);
            is_cut
        };
        let is_cut = self.state.lock().unwrap().as_mut().is_some_and(is_cut);
        if is_cut {
            self.end_tracks();
        }
        match event.view() {
            gst::EventView::FlushStart(_) => self.publisher().iter().for_each(|publisher| publisher.set_open(true)),
            gst::EventView::FlushStop(_) => self.publisher().iter().for_each(|publisher| publisher.set_open(false)),
            gst::EventView::Eos(_) => {
                self.end_tracks();
                self.flush();
            }
            _ => {}
        }
        self.parent_sink_event(event)
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> std::result::Result<(), gst::LoggableError> {
        let taken = match self.state.lock().unwrap().as_mut() {
            Some(state) => state.stream.set_caps(incaps, "trtpublish").map(drop),
            None => return Err(gst::loggable_error!(CAT, "caps before the start")),
        };
        taken.map_err(|error| {
            self.obj().post_error(&error);
            gst::loggable_error!(CAT, "{error}")
        })
    }

    fn generate_output(&self) -> std::result::Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
        let stage = Span::begin(false);
        let wanted = self.settings.lock().unwrap().wanted;
        let records = {
            let mut state = self.state.lock().unwrap();
            let state = state.as_mut().filter(|state| state.stream.size.0 > 0).ok_or(gst::FlowError::NotNegotiated)?;
            self.records(state, &wanted, &frame)
        };
        let count = records.len();
        if let Some(publisher) = self.publisher().filter(|_| count > 0) {
            self.push(&publisher, records);
        }
        self.stats.add(stage, count);
        Ok(GenerateOutputSuccess::Buffer(frame))
    }
}
