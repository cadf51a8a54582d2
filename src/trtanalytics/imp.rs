// SPDX-License-Identifier: MPL-2.0
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use gsttrt_core::analytics::config::AnalyticsConfig;
use gsttrt_core::analytics::{Analytics, AnalyticsInput};
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::overlay::Annotation;

use super::counts;
use super::known::KnownObjects;
use super::settings::{AnalyticsSettings, PROPERTIES};
use crate::gst::awaited::{Awaited, FRAMES_WITHOUT};
use crate::gst::classes_event;
use crate::gst::element::Properties;
use crate::gst::meta::attributes;
use crate::gst::meta::events;
use crate::gst::meta::read::{self, MetaObjects};
use crate::gst::meta::zones::{self, ZoneStructures};
use crate::gst::meta_filter::{MetaFilter, meta_filter};
use crate::gst::property;
use crate::gst::report::Report;
use crate::gst::stats;
use crate::gst::stream::{StreamFrame, VideoStream, any_video_templates};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtanalytics", gst::DebugColorFlags::empty(), Some("Objects in zones and across lines"))
});

/// State since start() and set_caps().
pub struct AnalyticsState {
    analytics: Analytics,
    /// Who the objects are that it watches.
    known: KnownObjects,
    stream: VideoStream,
    /// The last frame.
    frame: Option<StreamFrame>,
    /// The number of each object of the frame among those that are counted.
    numbers: Vec<Option<usize>>,
    /// What is attached to frames to be drawn, its version, and whether zones and tripwires are in it.
    drawn: Option<ZoneStructures>,
    drawn_for: Option<(u64, bool, bool)>,
    /// Ids of objects.
    awaited: Awaited,
    /// Texts of objects that have ids.
    texts: Awaited,
    events: u64,
    /// What each name that watches classes watches.
    classes: Vec<(String, String)>,
}

/// Lock order: settings before state; settings are copied, and neither is locked while messages are posted.
#[derive(Default)]
pub struct TrtAnalytics {
    settings: Mutex<AnalyticsSettings>,
    state: Mutex<Option<AnalyticsState>>,
    stats: Stats,
}

impl AnalyticsState {
    fn new(config: AnalyticsConfig) -> Self {
        let classes = config.classes().map(|(of, class)| (of.to_string(), class.to_string())).collect();
        let texts = if config.text_patterns.is_empty() { Awaited::nothing() } else { Awaited::default() };
        let analytics = Analytics::new(config);
        AnalyticsState {
            classes,
            analytics,
            known: KnownObjects::default(),
            stream: VideoStream::default(),
            frame: None,
            numbers: Vec::new(),
            drawn: None,
            drawn_for: None,
            awaited: Awaited::default(),
            texts,
            events: 0,
        }
    }

    /// Another part of the stream, or another stream, follows.
    fn reset(&mut self) {
        self.analytics.reset();
        self.known.clear();
    }

    /// Counts the objects of a frame, writes its metas, and returns its events, and how many objects have ids.
    fn count(&mut self, settings: &AnalyticsSettings, frame: &mut gst::Buffer) -> (Vec<gst::Structure>, usize) {
        let at = self.stream.advance(frame.pts());
        if at.is_cut {
            self.reset();
        }
        let AnalyticsState { analytics, known, stream, numbers, .. } = self;
        let MetaObjects { annotations, .. } = read::objects(frame, stream.size);
        let mut count = 0;
        numbers.clear();
        numbers.extend(annotations.iter().map(|annotation| {
            let number = annotation.track_id.map(|_| count);
            count += usize::from(number.is_some());
            number
        }));
        self.awaited.see(count > 0, !annotations.is_empty());
        let has_text = |annotation: &Annotation| annotation.track_id.is_some() && attributes::has_texts(annotation);
        self.texts.see(annotations.iter().any(has_text), count > 0);
        let objects = annotations.iter().filter_map(|annotation| {
            Some(AnalyticsInput {
                id: annotation.track_id?,
                bbox: annotation.bbox,
                label: &annotation.label,
                class: annotation.class,
                confidence: annotation.confidence,
                attributes: &annotation.attributes,
            })
        });
        let options = settings.options();
        analytics.update(&options, objects, stream.scene);
        known.see(frame, annotations, stream.scene);
        let events = self.structures(&at);
        self.known.forget(self.stream.scene, options.lost_after);
        self.frame = Some(at);
        self.attach(settings, frame, &events);
        (events, count)
    }

    fn structures(&mut self, frame: &StreamFrame) -> Vec<gst::Structure> {
        let AnalyticsState { analytics, known, stream, .. } = self;
        let structure = |event| {
            let mut content = events::structure(analytics, event, frame, stream.scene, stream.size);
            known.describe(event, &mut content);
            content
        };
        let events: Vec<_> = analytics.events().iter().map(structure).collect();
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

fn no_texts() -> Error {
    let cause = format!("no object of the first {FRAMES_WITHOUT} frames with objects has a text");
    Error::new(ErrorKind::Settings, "Nothing matches text-matches").cause(cause).remedy(
        "Before trttrack put trtpreprocess regions=objects ! trtinfer ! trtnms, with a model that reads text. It must \
         read the objects that are counted, such as plates and not their cars",
    )
}

fn outside(names: &[String], (width, height): (u32, u32)) -> Error {
    Error::new(ErrorKind::Settings, format!("Outside the frame, and never reached: {}", names.join(", ")))
        .cause(format!("the frame has {width}x{height} pixels"))
        .remedy("Write frame-width and frame-height into the configuration: the size that its points are for")
}

fn signals() -> &'static [glib::subclass::Signal] {
    static SIGNALS: LazyLock<[glib::subclass::Signal; 1]> = LazyLock::new(|| {
        let reset = glib::subclass::Signal::builder("reset-counts").param_types([String::static_type()]).action();
        let reset = reset.class_handler(|values| {
            let element = values[0].get::<super::TrtAnalytics>().expect("checked by GObject");
            element.imp().reset_counts(property::text_of(&values[1]).as_deref());
            None
        });
        [reset.build()]
    });
    &*SIGNALS
}

impl Properties for TrtAnalytics {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![
            glib::ParamSpecBoxed::builder::<gst::Structure>("counts")
                .nick("Counts")
                .blurb(
                    "Objects in each zone and across each tripwire: by class, now and since the start or reset-counts",
                )
                .read_only()
                .build(),
            stats::property("Frames, objects with an id, events, and the time that counting takes"),
        ]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        let state = || self.state.lock().unwrap();
        match name {
            "counts" => Some(counts::structure(state().as_ref().map(|state| &state.analytics)).to_value()),
            "stats" => {
                let totals = self.stats.read();
                let events = state().as_ref().map_or(0, |state| state.events);
                let counts = [("frames", totals.done), ("objects", totals.objects), ("events", events)];
                Some(stats::structure(&totals, counts).to_value())
            }
            _ => None,
        }
    }
}

meta_filter! {
    TrtAnalytics: "GstTrtAnalytics",
    factory: "trtanalytics",
    name: "Object detection: zones and lines",
    classification: "Filter/Analyzer/Video",
    description: "Counts tracked objects in zones and across lines, with dwell times and crowds",
    pads: any_video_templates(),
    signals: signals,
}

impl MetaFilter for TrtAnalytics {
    type State = AnalyticsState;

    fn open(&self) -> Result<AnalyticsState> {
        let settings = self.settings.lock().unwrap().clone();
        settings.read().map(AnalyticsState::new)
    }

    fn resized(state: &mut AnalyticsState) -> Option<Error> {
        let size = state.stream.size;
        state.known.clear();
        let names = state.analytics.set_size(size);
        (!names.is_empty()).then(|| outside(&names, size))
    }

    fn see_event(&self, event: &gst::Event, is_cut: bool) {
        if event.type_() == gst::EventType::Eos {
            self.finish();
        }
        if is_cut && let Some(state) = self.state.lock().unwrap().as_mut() {
            state.reset();
        }
        if let Some(classes) = classes_event::read(event) {
            let watched = self.state.lock().unwrap().as_ref().map(|state| state.classes.clone()).unwrap_or_default();
            let unknown = |(of, class): &(String, String)| classes.check(&format!("classes of {of}"), class).err();
            for unknown in watched.iter().filter_map(unknown) {
                self.obj().post_warning(&unknown.and_remedy("Nothing of that class is counted"));
            }
        }
    }

    fn process(&self, frame: &mut gst::Buffer) -> std::result::Result<(), gst::FlowError> {
        let stage = Span::begin(false);
        let settings = self.settings.lock().unwrap().clone();
        let (events, count, lacks_ids, lacks_texts) = {
            let mut state = self.state.lock().unwrap();
            let state = state.as_mut().filter(|state| state.stream.size.0 > 0).ok_or(gst::FlowError::NotNegotiated)?;
            let (events, count) = state.count(&settings, frame);
            (events, count, state.awaited.take_overdue(), state.texts.take_overdue())
        };
        self.stats.add(stage, count);
        if lacks_ids {
            self.obj().post_warning(&no_ids());
        }
        if lacks_texts {
            self.obj().post_warning(&no_texts());
        }
        if settings.post_messages {
            self.post(events);
        }
        Ok(())
    }
}
