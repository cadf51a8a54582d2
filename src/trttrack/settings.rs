// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;

use crate::gst::property::{Property, PropertyTable, Valued, property, text_property};
use crate::image::overlay::Annotation;
use crate::track::options::{PARAMETERS, TrackField, TrackParameter};
use crate::track::{TrackOptions, TrackerKind};

#[derive(Clone, Debug, Default)]
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
        let is_it =
            |word: &str| word == annotation.label || annotation.class.is_some_and(|class| word.parse() == Ok(class));
        words.peek().is_none() || words.any(is_it)
    }
}

/// The property that a parameter of the trackers becomes.
fn parameter(parameter: &TrackParameter) -> Property<TrackSettings> {
    fn at<T: Valued + Copy>(spec: glib::ParamSpec, place: fn(&mut TrackOptions) -> &mut T) -> Property<TrackSettings> {
        Property::converted(
            spec,
            move |settings: &TrackSettings| *place(&mut settings.options.clone()),
            move |settings, value| *place(&mut settings.options) = value,
        )
    }
    macro_rules! build {
        ($builder:expr, $place:expr) => {{
            let builder = $builder.nick(parameter.nick).blurb(parameter.blurb);
            at(builder.default_value(*$place(&mut TrackOptions::default())).mutable_playing().build(), $place)
        }};
    }
    let name = parameter.name;
    match parameter.field {
        TrackField::Share(place) => build!(glib::ParamSpecFloat::builder(name).minimum(0.0).maximum(1.0), place),
        TrackField::Flag(place) => build!(glib::ParamSpecBoolean::builder(name), place),
        TrackField::Count(max, place) => build!(glib::ParamSpecUInt::builder(name).minimum(1).maximum(max), place),
        TrackField::Nanoseconds(place) => build!(glib::ParamSpecUInt64::builder(name), place),
    }
}

pub static PROPERTIES: LazyLock<PropertyTable<TrackSettings>> = LazyLock::new(|| {
    let mut properties: Vec<Property<TrackSettings>> = vec![property!(
        glib::ParamSpecEnum::builder::<TrackerKind>("tracker")
            .nick("Tracker")
            .blurb("The tracking algorithm")
            .mutable_ready()
            .build(),
        tracker
    )];
    properties.extend(PARAMETERS.iter().map(parameter));
    let classes: Property<TrackSettings> = text_property!(
        glib::ParamSpecString::builder("classes")
            .nick("Classes")
            .blurb("Names or ids of the classes to follow, like person,car (unset = all)")
            .mutable_playing()
            .build(),
        classes
    );
    properties.insert(properties.len() - 1, classes); // beside per-class
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
