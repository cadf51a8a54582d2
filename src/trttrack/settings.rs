// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::options::Setting;
use gsttrt_core::track::options::{SETTINGS, TRACKER};
use gsttrt_core::track::{TrackOptions, TrackerKind};

use crate::gst::options::{self, MUTABLE_PLAYING, MUTABLE_READY};
use crate::gst::property::{Property, PropertyTable, property, text_property};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackSettings {
    pub tracker: TrackerKind,
    pub options: TrackOptions,
    /// Names or ids of classes; empty for all.
    pub classes: String,
    pub post_messages: bool,
}

impl TrackSettings {
    /// Whether objects of that class are followed.
    pub fn wants(&self, annotation: &Annotation) -> bool {
        let mut words = self.classes.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
        words.peek().is_none() || words.any(|word| annotation.is_called(word))
    }
}

pub static PROPERTIES: LazyLock<PropertyTable<TrackSettings>> = LazyLock::new(|| {
    let tracker = Setting { spec: &TRACKER, field: |settings: &mut TrackSettings| &mut settings.tracker };
    let mut properties: Vec<Property<TrackSettings>> =
        vec![options::property(&tracker, MUTABLE_READY, |settings| settings)];
    properties
        .extend(options::properties(&SETTINGS, MUTABLE_PLAYING, |settings: &mut TrackSettings| &mut settings.options));
    let classes: Property<TrackSettings> = text_property!(
        glib::ParamSpecString::builder("classes")
            .nick("Classes")
            .blurb("Names or ids of the classes to follow, like person,car (unset = all)")
            .mutable_playing()
            .build(),
        classes
    );
    properties.insert(properties.len() - 1, classes); // next to per-class
    properties.push(property!(
        glib::ParamSpecBoolean::builder("post-messages")
            .nick("Post messages")
            .blurb("Post an element message trt-detections for each frame, as trtnms does, with the track-id of each object")
            .mutable_playing()
            .build(),
        post_messages
    ));
    PropertyTable::new(properties)
});
