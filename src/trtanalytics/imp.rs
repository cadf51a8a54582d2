// SPDX-License-Identifier: MPL-2.0
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;

use super::counts;
use super::settings::{self, AnalyticsSettings};
use crate::analytics::{Analytics, AnalyticsInput};
use crate::core::counters::{Span, Stats};
use crate::core::error::{Error, ErrorKind};
use crate::gst::meta::events;
use crate::gst::meta::read::{self, MetaObjects};
use crate::gst::meta::zones::{self, ZoneStructures};
use crate::gst::report::{Report, error_message, may_set};
use crate::gst::stats;
use crate::gst::stream::{StreamFrame, VideoStream, any_video_templates};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtanalytics", gst::DebugColorFlags::empty(), Some("Objects in zones and across lines"))
});

/// After so many frames with objects and without a single id, a tracker is missing.
const FRAMES_WITHOUT_IDS: u32 = 60;

/// State since start() and set_caps().
struct AnalyticsState {
    analytics: Analytics,
    stream: VideoStream,
    /// The last frame.
    frame: Option<StreamFrame>,
    /// The number of each object of the frame among those that are counted.
    numbers: Vec<Option<usize>>,
    /// What is attached to frames to be drawn, its version, and whether zones and tripwires are in it.
    drawn: Option<ZoneStructures>,
    drawn_for: Option<(u64, bool, bool)>,
    /// Frames with objects so far, until one has an id, or that is said.
    frames_without_ids: Option<u32>,
    events: u64,
}

/// Lock order: settings before state; settings are copied, and neither is locked while messages are posted.
#[derive(Default)]
pub struct TrtAnalytics {
    settings: Mutex<AnalyticsSettings>,
    state: Mutex<Option<AnalyticsState>>,
    stats: Stats,
}

impl AnalyticsState {
    fn new(analytics: Analytics) -> Self {
        AnalyticsState {
            analytics,
            stream: VideoStream::default(),
            frame: None,
            numbers: Vec::new(),
            drawn: None,
            drawn_for: None,
            frames_without_ids: Some(0),
            events: 0,
        }
    }

    /// Counts the objects of a frame, writes its metas, and returns its events, and how many objects have ids.
    fn process(
        &mut self,
        settings: &AnalyticsSettings,
        frame: &mut gst::Buffer,
        segment: &gst::Segment,
    ) -> (Vec<gst::Structure>, usize) {
        let AnalyticsState { analytics, stream, numbers, .. } = self;
        let at = stream.advance(segment, frame.pts());
        let MetaObjects { annotations, .. } = read::objects(frame, stream.size);
        let mut count = 0;
        numbers.clear();
        numbers.extend(annotations.iter().map(|annotation| {
            let number = annotation.track_id.map(|_| count);
            count += usize::from(number.is_some());
            number
        }));
        if count > 0 {
            self.frames_without_ids = None;
        } else if let Some(frames) = self.frames_without_ids.as_mut().filter(|_| !annotations.is_empty()) {
            *frames += 1;
        }
        let objects = annotations.iter().filter_map(|annotation| {
            Some(AnalyticsInput {
                id: annotation.track_id?,
                bbox: annotation.bbox,
                label: &annotation.label,
                class: annotation.class,
                confidence: annotation.confidence,
            })
        });
        analytics.update(&settings.options(), objects, stream.now);
        let events = self.structures(&at);
        self.frame = Some(at);
        self.attach(settings, frame, &events);
        (events, count)
    }

    fn structures(&mut self, frame: &StreamFrame) -> Vec<gst::Structure> {
        let AnalyticsState { analytics, stream, .. } = self;
        let events = analytics.events().iter();
        let events: Vec<_> =
            events.map(|event| events::structure(analytics, event, frame, stream.now, stream.size)).collect();
        self.events += events.len() as u64;
        events
    }

    fn attach(&mut self, settings: &AnalyticsSettings, frame: &mut gst::Buffer, events: &[gst::Structure]) {
        let AnalyticsState { analytics, stream, numbers, drawn, drawn_for, .. } = self;
        let wanted = (analytics.version(), settings.draw_zones, settings.draw_tripwires);
        if *drawn_for != Some(wanted) {
            *drawn = ZoneStructures::new(analytics, (settings.draw_zones, settings.draw_tripwires), stream.size);
            *drawn_for = Some(wanted);
        }
        if numbers.iter().any(Option::is_some) {
            zones::write_states(frame.make_mut(), analytics, numbers);
        }
        if let Some(drawn) = drawn {
            drawn.attach(frame.make_mut());
        }
        if !events.is_empty() {
            events::attach(frame.make_mut(), events);
        }
    }
}

impl TrtAnalytics {
    fn post(&self, events: Vec<gst::Structure>) {
        for event in events {
            let _ = self.obj().post_message(gst::message::Element::builder(event).src(&*self.obj()).build());
        }
    }

    /// The end of the stream: what was not yet certain counts now.
    fn finish(&self) {
        let post_messages = self.settings.lock().unwrap().post_messages;
        let events = self.state.lock().unwrap().as_mut().and_then(|state| {
            let frame = state.frame?;
            state.analytics.finish();
            Some(state.structures(&frame))
        });
        if post_messages {
            self.post(events.unwrap_or_default());
        }
    }

    fn reset_counts(&self, name: Option<&str>) {
        let found = match self.state.lock().unwrap().as_mut() {
            Some(state) => state.analytics.reset_counts(name),
            None => name.is_none(),
        };
        if !found {
            let name = name.unwrap_or_default();
            let warning =
                Error::new(ErrorKind::Settings, format!("There is no zone, tripwire or direction \"{name}\""))
                    .remedy("Give reset-counts the id of one in the configuration, or NULL for all");
            self.obj().post_warning(&warning);
        }
    }
}

fn no_ids() -> Error {
    Error::new(ErrorKind::Settings, "Nothing is counted, because the objects have no ids")
        .remedy("Put trttrack, or another tracker, before trtanalytics")
}

fn outside(names: &[String], (width, height): (u32, u32)) -> Error {
    Error::new(ErrorKind::Settings, format!("Outside the frame, and never reached: {}", names.join(", ")))
        .cause(format!("the frame has {width}x{height} pixels"))
        .remedy("Write frame-width and frame-height into the configuration: the size that its points are for")
}

#[glib::object_subclass]
impl ObjectSubclass for TrtAnalytics {
    const NAME: &'static str = "GstTrtAnalytics";
    type Type = super::TrtAnalytics;
    type ParentType = gst_base::BaseTransform;
}

impl ObjectImpl for TrtAnalytics {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(settings::list);
        &PROPERTIES
    }

    fn signals() -> &'static [glib::subclass::Signal] {
        static SIGNALS: LazyLock<[glib::subclass::Signal; 1]> = LazyLock::new(|| {
            let reset = glib::subclass::Signal::builder("reset-counts").param_types([String::static_type()]).action();
            let reset = reset.class_handler(|values| {
                let element = values[0].get::<super::TrtAnalytics>().expect("checked by GObject");
                let name = values[1].get::<Option<String>>().expect("checked by GObject");
                element.imp().reset_counts(name.as_deref());
                None
            });
            [reset.build()]
        });
        &*SIGNALS
    }

    fn set_property(&self, _id: usize, value: &glib::Value, property: &glib::ParamSpec) {
        if may_set(&*self.obj(), property) {
            gst::info!(CAT, imp = self, "{} = {value:?}", property.name());
            settings::PROPERTIES.set(&mut self.settings.lock().unwrap(), property.name(), value);
        }
    }

    fn property(&self, _id: usize, property: &glib::ParamSpec) -> glib::Value {
        match property.name() {
            "counts" => counts::structure(self.state.lock().unwrap().as_ref().map(|state| &state.analytics)).to_value(),
            "stats" => {
                let totals = self.stats.read();
                let events = self.state.lock().unwrap().as_ref().map_or(0, |state| state.events);
                let counts = [("frames", totals.done), ("objects", totals.objects), ("events", events)];
                stats::structure(&totals, counts).to_value()
            }
            name => settings::PROPERTIES.get(&self.settings.lock().unwrap(), name),
        }
    }
}

impl GstObjectImpl for TrtAnalytics {}

impl ElementImpl for TrtAnalytics {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Object detection: zones and lines",
                "Filter/Analyzer/Video",
                "Counts tracked objects in zones and across lines, with dwell times and crowds",
                env!("CARGO_PKG_AUTHORS"),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(any_video_templates);
        &*TEMPLATES
    }
}

impl BaseTransformImpl for TrtAnalytics {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        self.stats.reset();
        let settings = self.settings.lock().unwrap().clone();
        let config = settings.read().map_err(|error| error_message(&error))?;
        *self.state.lock().unwrap() = Some(AnalyticsState::new(Analytics::new(config)));
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = None;
        Ok(())
    }

    /// Buffers pass as they are, so those of downstream's pool do too.
    fn propose_allocation(
        &self,
        _decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> Result<(), gst::LoggableError> {
        self.parent_propose_allocation(None, query)
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        if event.type_() == gst::EventType::Eos {
            self.finish();
        }
        if let Some(state) = self.state.lock().unwrap().as_mut()
            && state.stream.is_cut(&event, &self.obj().segment())
        {
            state.analytics.reset();
        }
        self.parent_sink_event(event)
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let taken = match self.state.lock().unwrap().as_mut() {
            Some(AnalyticsState { stream, analytics, .. }) => stream
                .set_caps(incaps, "trtanalytics")
                .map(|is_another| (if is_another { analytics.set_size(stream.size) } else { Vec::new() }, stream.size)),
            None => return Err(gst::loggable_error!(CAT, "caps before the start")),
        };
        let (names, size) = taken.map_err(|error| {
            self.obj().post_error(&error);
            gst::loggable_error!(CAT, "{error}")
        })?;
        if !names.is_empty() {
            self.obj().post_warning(&outside(&names, size));
        }
        Ok(())
    }

    fn generate_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(mut frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
        let stage = Span::begin(false);
        let settings = self.settings.lock().unwrap().clone();
        let segment = self.obj().segment();
        let (events, count, lacks_ids) = {
            let mut state = self.state.lock().unwrap();
            let state = state.as_mut().filter(|state| state.stream.size.0 > 0).ok_or(gst::FlowError::NotNegotiated)?;
            let (events, count) = state.process(&settings, &mut frame, &segment);
            let lacks_ids = state.frames_without_ids.take_if(|frames| *frames >= FRAMES_WITHOUT_IDS).is_some();
            (events, count, lacks_ids)
        };
        self.stats.add(stage, count);
        if lacks_ids {
            self.obj().post_warning(&no_ids());
        }
        if settings.post_messages {
            self.post(events);
        }
        Ok(GenerateOutputSuccess::Buffer(frame))
    }
}
